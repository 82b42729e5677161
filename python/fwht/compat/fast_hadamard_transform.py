"""The calls of the package fast-hadamard-transform (Dao AI Lab), by this library.

    from fwht.compat.fast_hadamard_transform import hadamard_transform

Rows whose length is no power of two are padded with zeros to the next one, transformed, and cut to their length again,
as that package does. The result is H_n x for the padded x, cut: no orthogonal transform, and not its own inverse.
`fwht.hadamard_transform` refuses such rows.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from .. import hadamard_transform as _transform

__all__ = ["hadamard_transform", "hadamard_transform_ref"]

_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def _padded(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[-1]
    length = 1 << max(n - 1, 1).bit_length()  # at least 2
    return x if length == n else F.pad(x, (0, length - n))


def hadamard_transform(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """scale * H x along the last dimension, padded with zeros where it is no power of two.

    Args:
        x: shape (..., n), n >= 1; float16, bfloat16 or float32, CPU or CUDA.
        scale: multiplied once, in float32.

    Returns: a tensor of x's shape, dtype and device. Differentiable.
    """
    if x.dim() == 0 or x.shape[-1] == 0:
        raise ValueError(f"fwht: x has shape {tuple(x.shape)}; its last dimension must have at least one element")
    n = x.shape[-1]
    padded = _padded(x)
    result = _transform(padded, scale)
    return result if padded is x else result[..., :n].contiguous()


def hadamard_transform_ref(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """The same by a product with the matrix, in x's dtype: slow, for tests."""
    n = x.shape[-1]
    padded = _padded(x)
    matrix: Any = torch.ones(1, 1, dtype=x.dtype, device=x.device)
    for _ in range(int(math.log2(padded.shape[-1]))):
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return (F.linear(padded, matrix) * scale)[..., :n]
