"""Does rotation help this model in this format, and what does it cost?

    python -m fwht.evaluate MODEL --text FILE      # a folder of transformers; a table with a verdict for each format
    python -m fwht.evaluate --demo                 # a small model that comes with the package, on the CPU

    fwht.rotate_model(model, "R1,R2")              # exact in float64; the model computes the same function

Rotations have the names of SpinQuant (Liu et al. 2024): R1 rotates the residual stream, R2 the values of each head; both are
folded into weights. R3 rotates queries and keys behind RoPE, R4 the input of the MLP's last layer; both run online.
Needs transformers 5 or later: the extra `evaluate` of the package.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["SCHEMES", "Rotation", "Scheme", "load_rotated", "rotate_model", "save_rotated"]

_HOMES = {
    "SCHEMES": "schemes", "Scheme": "schemes", "Rotation": "rotate", "rotate_model": "rotate",
    "load_rotated": "checkpoint", "save_rotated": "checkpoint",
}  # fmt: skip


def __getattr__(name: str) -> Any:  # at first use: without PyTorch the program still says what is missing
    if name in _HOMES:
        return getattr(importlib.import_module("." + _HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
