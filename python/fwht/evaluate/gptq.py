"""Weights rounded so that the errors of earlier columns are taken up by later ones (GPTQ, Frantar et al. 2022)."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from .._torch.graph_times import captured
from .rotate import linears

DAMPING = 0.01  # of the mean diagonal of X^T X, added to it
COLUMNS = 128  # whose errors reach the columns behind them in one product

# Layers that take the same inputs: rounded as one, row by row.
TOGETHER = (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",))
LARGEST_GRAPH = 1 << 24  # elements of weight and factor that a CUDA graph may keep


def round_weights(model: Any, encoding: str, blocks: torch.Tensor, batch: int) -> None:
    """Rounds the linear layers of a model in place, one decoder layer after the other, each on what the rounded ones before give it.

    Args:
        model: a causal language model of transformers with its hooks installed: what a layer takes behind them counts.
        encoding: "int<bits>:row" or "int<bits>:<group>".
        blocks: int64 (blocks, length): text apart from what the model is measured on.
        batch: blocks at once.
    """
    columns = _Columns()
    for layer in model.model.layers:
        found = {name.rsplit(".", 1)[-1]: module for name, module in linears(layer)}
        groups = [[found[name] for name in names] for names in TOGETHER]
        for modules, gram in zip(groups, _grams(model, [modules[0] for modules in groups], blocks, batch), strict=True):
            weight = torch.cat([module.weight for module in modules])
            parts = rounded(weight, gram, encoding, columns).split([module.out_features for module in modules])
            for module, part in zip(modules, parts, strict=True):
                module.weight.copy_(part)


def _grams(model: Any, modules: list[Any], blocks: torch.Tensor, batch: int) -> list[torch.Tensor]:
    """X^T X, float64 (k, k), of the inputs of each module."""
    grams = [torch.zeros(module.in_features, module.in_features, dtype=torch.float64, device=module.weight.device) for module in modules]

    def add(gram: torch.Tensor) -> Any:
        def hook(_: Any, arguments: tuple[Any, ...]) -> None:
            x = arguments[0].reshape(-1, len(gram)).float()
            gram.add_(x.t() @ x)

        return hook

    handles = [module.register_forward_pre_hook(add(gram)) for module, gram in zip(modules, grams, strict=True)]
    try:
        for ids in blocks.split(batch):
            model.model(ids.to(modules[0].weight.device), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return grams


def rounded(weight: torch.Tensor, gram: torch.Tensor, encoding: str, columns: Any = None) -> torch.Tensor:
    """The numbers that codes of `weight` (outputs, k) stand for, in float64, with little error on inputs of this X^T X.

    Scales are the largest element over the largest code, of a row or of each group as it is when its first column is rounded.
    `columns` keeps what calls of one shape share.
    """
    form, _, grain = encoding.partition(":")
    largest = 2 ** (int(form.removeprefix("int")) - 1) - 1
    group = weight.shape[1] if grain == "row" else int(grain)
    gram = gram.clone()
    diagonal = gram.diagonal()
    diagonal[diagonal == 0] = 1  # inputs that are never used
    diagonal += DAMPING * diagonal.mean()
    upper = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(gram)), upper=True)
    return (columns or _Columns())(weight.double(), upper, group, largest)


class _Columns:
    """Rounds column after column. On CUDA that is a graph for each shape: thousands of launches take longer to issue than to run.

    Where a graph cannot be captured, a warning says so once, and every launch is issued.
    """

    def __init__(self) -> None:
        self._graphs: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._fails = False

    def __call__(self, w: torch.Tensor, upper: torch.Tensor, group: int, largest: int) -> torch.Tensor:
        key = (w.shape, group, largest)
        if key not in self._graphs and self._wants_graph(w, upper):
            try:
                self._graphs[key] = _graph_of(w, upper, group, largest)
            except RuntimeError as error:  # no memory for it is one
                self._fails = True
                warnings.warn(f"fwht: GPTQ takes longer, without CUDA graphs: {str(error).strip().splitlines()[0]}", stacklevel=2)
        if key not in self._graphs:
            return _round_columns(w.clone(), upper, group, largest)
        graph, w_of_graph, upper_of_graph, result = self._graphs[key]
        w_of_graph.copy_(w)
        upper_of_graph.copy_(upper)
        graph.replay()
        return result.clone()

    def _wants_graph(self, w: torch.Tensor, upper: torch.Tensor) -> bool:
        return w.is_cuda and not self._fails and w.numel() + upper.numel() <= LARGEST_GRAPH


def _graph_of(w: torch.Tensor, upper: torch.Tensor, group: int, largest: int) -> tuple[Any, ...]:
    """A graph, the weights and the factor that it reads, and the result that it writes."""
    some = min(2 * COLUMNS, len(upper))  # the libraries begin before the capture does
    _round_columns(w[:, :some].clone(), upper[:some, :some], group, largest)
    w_of_graph, upper_of_graph, results = w.clone(), upper.clone(), []
    torch.cuda.synchronize()
    graph = captured(lambda: results.append(_round_columns(w_of_graph, upper_of_graph, group, largest)))
    return graph, w_of_graph, upper_of_graph, results[0]


def _round_columns(w: torch.Tensor, upper: torch.Tensor, group: int, largest: int) -> torch.Tensor:
    """Of w, which is written over."""
    k = w.shape[1]
    result = torch.empty_like(w)
    scale = w.new_zeros(len(w))
    for start in range(0, k, COLUMNS):
        stop = min(start + COLUMNS, k)
        errors = w.new_zeros(len(w), stop - start)
        for i in range(start, stop):
            if i % group == 0:
                if i + group > stop:  # columns behind this block have not seen its errors yet
                    w[:, stop:] -= errors @ upper[start:stop, stop:]
                    scale = w[:, i : i + group].abs().amax(1) / largest
                    w[:, stop:] += errors @ upper[start:stop, stop:]
                else:
                    scale = w[:, i : i + group].abs().amax(1) / largest
                scale.masked_fill_(scale == 0, 1.0)
            column, error = w[:, i], errors[:, i - start]
            torch.mul((column / scale).round_().clamp_(-largest, largest), scale, out=result[:, i])
            torch.div(column - result[:, i], upper[i, i], out=error)
            w[:, i:stop] -= error[:, None] * upper[i, i:stop]
        w[:, stop:] -= errors @ upper[start:stop, stop:]
    return result
