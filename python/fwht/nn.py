"""Modules and rotations of layers. Needs PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from . import hadamard_transform, linear, operators
from ._torch.eager import linear_by

__all__ = ["GptqLinear", "HadamardTransform", "rotate_linear"]


class GptqLinear(torch.nn.Module):
    """y = x W + bias with 4-bit weights of GPTQ's format, for few tokens (`fwht.linear`).

    Args:
        qweight, qzeros, scales, g_idx, options: as for `fwht.linear.pack`.
        bias: (n,), or None.

    Shape: (..., k) to (..., n). The packed weights move with the module, but only between devices of one kind; they are not part
    of its state_dict, since their order is that of a kernel. Raises what `fwht.linear` raises. Not differentiable.
    """

    def __init__(self, qweight: Any, qzeros: Any, scales: Any, g_idx: Any = None, bias: Any = None, **options: Any):
        super().__init__()
        self._packed = linear.pack(qweight, qzeros, scales, g_idx, **options)
        self.register_buffer("weights", self._packed.weights, persistent=False)
        self.register_buffer("order", self._packed.order, persistent=False)
        self.register_buffer("bias", None if bias is None else bias.to(self._packed.weights.device), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = linear_by(x, self._packed, self.weights, self.order)  # where the module is now
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        return repr(self._packed).removeprefix("<fwht.linear.Packed ").removesuffix(">")


class HadamardTransform(torch.nn.Module):
    """y[..., :] = scale * H_n x[..., :] as a layer without parameters; orthonormal unless a scale is given.

    Args:
        n: row length that x must have, a power of two.
        scale: a number, or None for 1/sqrt(n).

    Shape: (..., n) to (..., n). Raises ValueError for rows of another length.
    """

    def __init__(self, n: int, scale: float | None = None):
        super().__init__()
        if n < 2 or n & (n - 1):
            raise ValueError(f"fwht: n={n} must be a power of two of at least 2")
        self.n = n
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[-1] != self.n:
            raise ValueError(f"fwht: rows of {x.shape[-1]} elements came to a HadamardTransform of n={self.n}")
        return hadamard_transform(x, self.scale)

    def extra_repr(self) -> str:
        return f"n={self.n}, scale={'1/sqrt(n)' if self.scale is None else self.scale}"


@torch.no_grad()
def rotate_linear(
    linear: torch.nn.Linear, side: str = "in", operator: str | None = None, signs: Any = None
) -> torch.nn.Linear:
    """Multiplies an orthogonal matrix Q = Op/sqrt(n) into the weight of a layer, in place. For n = 2^k that is H_n/sqrt(n).

    `side="in"`: W becomes W Q^T, so that the layer takes rotated inputs: (W Q^T)(Q x) = W x.
    `side="out"`: W becomes Q W and the bias Q b, so that the layer gives rotated outputs: Q (W x + b).

    Q x is `fwht.operators.transform(x, operator, signs=signs)`, and for n = 2^k without signs
    `fwht.hadamard_transform(x)`.

    The products are formed in float32 (float64 for float64 weights) and rounded once to the weight's dtype.

    Args:
        linear: a torch.nn.Linear.
        side: "in" or "out": which of in_features and out_features is n.
        operator, signs: as in `fwht.operators`; without them the operator for n, which any multiple of a known order has.

    Returns: `linear`. Raises ValueError for another side, and for a length that has no operator; nothing is changed then.

    Source: QuaRot (Ashkboos et al. 2024), section 4, and SpinQuant (Liu et al. 2024): rotations that leave the
    network's function as it is.
    """
    if side not in ("in", "out"):
        raise ValueError(f"fwht: side={side!r} must be 'in' or 'out'")
    weight = linear.weight if side == "in" else linear.weight.t()
    rotated = operators.transform(weight.contiguous(), operator, signs=signs)
    if side == "out" and linear.bias is not None:
        linear.bias.copy_(operators.transform(linear.bias.detach(), operator, signs=signs))
    linear.weight.copy_(rotated if side == "in" else rotated.t())
    return linear
