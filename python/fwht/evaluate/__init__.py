"""Does rotation help this model in this format, and what does it cost?

    python -m fwht.evaluate MODEL --text FILE      # a folder of transformers; a table with a verdict for each format
    python -m fwht.evaluate --demo                 # a small model that comes with the package, on the CPU

    fwht.rotate_model(model, "R1,R2")              # exact in float64; the model computes the same function

Rotations have the names of SpinQuant (Liu et al. 2024): R1 rotates the residual stream, R2 the values of each head; both are
folded into weights. R3 rotates queries and keys behind RoPE, R4 the input of the MLP's last layer; both run online.
Needs transformers 5 or later: the extra `evaluate` of the package.
"""

from __future__ import annotations

from typing import Any

from .. import _lazy

__all__ = ["SCHEMES", "Rotation", "Scheme", "load_rotated", "rotate_model", "save_rotated"]

_HOMES = {
    "SCHEMES": "schemes", "Scheme": "schemes", "Rotation": "rotate", "rotate_model": "rotate",
    "load_rotated": "checkpoint", "save_rotated": "checkpoint",
}  # fmt: skip
_SUBMODULES = ("checkpoint", "cost", "gptq", "hooks", "measure", "outliers", "program", "rotate", "schemes", "tasks")


def __getattr__(name: str) -> Any:  # at first use: without PyTorch the program still says what is missing
    if name in _HOMES:
        return getattr(_lazy.submodule(__name__, _HOMES[name], _SUBMODULES), name)
    return _lazy.submodule(__name__, name, _SUBMODULES)
