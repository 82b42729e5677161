"""Modules and rotations of layers. Needs PyTorch."""

from __future__ import annotations

import torch

from . import hadamard_transform

__all__ = ["HadamardTransform", "rotate_linear"]


class HadamardTransform(torch.nn.Module):
    """y[..., :] = scale * H_n x[..., :] as a layer without parameters; orthonormal unless a scale is given.

    Args:
        n: row length that x must have, a power of two.
        scale: a number, or None for 1/sqrt(n). (`fwht.hadamard_transform` has 1.0 as its default.)

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
def rotate_linear(linear: torch.nn.Linear, side: str = "in") -> torch.nn.Linear:
    """Multiplies an orthonormal Hadamard matrix H = H_n/sqrt(n) into the weight of a layer, in place.

    `side="in"`: W becomes W H, so that the layer takes rotated inputs: (W H)(H x) = W x.
    `side="out"`: W becomes H W and the bias H b, so that the layer gives rotated outputs: H (W x + b).

    The products are formed in float32 (float64 for float64 weights) and rounded once to the weight's dtype.

    Args:
        linear: a torch.nn.Linear whose rotated side (in_features or out_features) is a power of two.
        side: "in" or "out".

    Returns: `linear`. Raises ValueError for another side or length; nothing is changed then.

    Source: QuaRot (Ashkboos et al. 2024), section 4, and SpinQuant (Liu et al. 2024): rotations that leave the
    network's function as it is.
    """
    if side not in ("in", "out"):
        raise ValueError(f"fwht: side={side!r} must be 'in' or 'out'")
    weight = linear.weight if side == "in" else linear.weight.t()
    rotated = hadamard_transform(weight.contiguous(), None)
    if side == "out" and linear.bias is not None:
        linear.bias.copy_(hadamard_transform(linear.bias.detach(), None))
    linear.weight.copy_(rotated if side == "in" else rotated.t())
    return linear
