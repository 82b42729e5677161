"""PyTorch, from below: `calls` enters the library, `ops` are the operators of graphs, `eager` is what Python calls."""
