"""Which models are trained: shapes, and how much of what they see. Needs no packages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """A model's shape, and how it is trained. Lengths in tokens, sizes in elements."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    mlp: int
    length: int
    batch: int
    learning_rate: float
    seconds: float
    documents: int | None = None  #: only so many of the corpus, or all
    warm_up: int = 150
    weight_decay: float = 0.1


RECIPES = {
    "main": Recipe(4096, 512, 8, 4, 2, 128, 1792, 1024, 64, 3e-3, 150.0),
    "tiny": Recipe(1024, 128, 4, 2, 1, 64, 448, 512, 128, 6e-3, 45.0, documents=3000),
}
