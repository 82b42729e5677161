"""ConvRot (arXiv 2512.03673): INT8 layers whose inputs are multiplied by the regular Hadamard matrix, by this library's transform.

R_4 = J - 2 antidiag(1, 1, 1, 1) and R_(4^k) = R_4 (x) R_4 (x) ... are H_(4^k) with rows and columns permuted and signed: R = D H P D, where
D has -1 at the indices with an odd number of base-4 digits 3, and P swaps the two bits of every digit. So codes of R x are those of
H (D x) in another order, and with other signs: both go into the INT8 weights, once, and no codes are moved at run time.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from .. import operators, quantize

__all__ = ["fold", "linear", "quantized"]


@functools.cache
def _order(group: int) -> tuple[Tensor, Tensor]:
    """P as indices, and D's diagonal, int8: both of `group` elements."""
    digits = (group.bit_length() - 1) // 2 if isinstance(group, int) and group > 0 else 0
    if group < 4 or group != 4**digits:
        raise ValueError(f"fwht: group={group} must be a power of four of at least 4, as the regular Hadamard matrices R_4 (x) R_4 (x) ... have")
    index = torch.arange(group)
    even = sum(1 << 2 * i for i in range(digits))
    swapped = ((index & even) << 1) | ((index >> 1) & even)
    threes = sum((index >> 2 * i) & (index >> (2 * i + 1)) & 1 for i in range(digits))
    return swapped, (1 - 2 * (threes % 2)).to(torch.int8)


@functools.cache
def _signs(group: int) -> operators.Signs:
    return operators.pack_signs(_order(group)[1])


def _check(name: str, x: Tensor, group: int) -> None:
    _order(group)
    if x.dim() == 0 or x.shape[-1] % group or not x.shape[-1]:
        raise ValueError(f"fwht: {name} has shape {tuple(x.shape)}; its last dimension must be a multiple of group={group}")


def fold(weight: Tensor, group: int = 256) -> Tensor:
    """The INT8 weights of a ConvRot layer for the codes of `quantized`: permuted and signed within each group of inputs.

    Args:
        weight: shape (outputs, K), int8, from -127: codes of the weights times the regular matrix, as checkpoints have them.
        group: the rows of R: a power of four that divides K.

    Returns: a new tensor like weight. `fold` of it gives weight back.

    Raises ValueError: no such group, one that does not divide K, codes of -128, whose negative is no code.
    """
    _check("weight", weight, group)
    if weight.dtype is not torch.int8:
        raise TypeError(f"fwht: weight has dtype {weight.dtype}, and these are torch.int8 codes")
    if bool((weight == -128).any()):
        raise ValueError("fwht: weight has the code -128; a symmetric code goes from -127 to 127")
    return ordered(weight, group)


def ordered(codes: Tensor, group: int) -> Tensor:
    """Codes between the order of the regular matrix and that of `quantized`, either way: `fold` without its checks."""
    order, signs = (each.to(codes.device) for each in _order(group))
    return (codes.unflatten(-1, (-1, group))[..., order] * signs).flatten(-2, -1)


def products(codes: Tensor, weight: Tensor) -> Tensor:
    """codes weight^T, int32, of int8 (m, K) and (n, K); on CUDA n and K are multiples of 8."""
    missing = max(0, 17 - len(codes)) if codes.is_cuda else 0  # the fewest rows that the product takes there
    return torch._int_mm(torch.nn.functional.pad(codes, (0, 0, 0, missing)), weight.t())[: len(codes)]


def quantized(x: Tensor, group: int = 256) -> tuple[Tensor, Tensor]:
    """The INT8 codes of x times the regular matrix, in the order that `fold` gives the weights, with one scale a row; one launch.

    Args:
        x: shape (..., K), float16, bfloat16 or float32.

    Returns: codes, int8 of x's shape; scales, float32 (..., 1): the largest element of the rotated row over 127. Codes are those of
    the sums in float32: frameworks that round x R to x's dtype first have others. A row of zeros has the scale 0.

    Raises ValueError: no such group, one that does not divide K; NotImplementedError: no variant takes rows of K on this device.
    """
    _check("x", x, group)
    encoding = f"int8:row,t{x.shape[-1]}/f32"
    codes, scales = quantize.hadamard_quantize(x.reshape(-1, group), encoding, signs=_signs(group).on(x))
    return codes.reshape(x.shape), scales.reshape(*x.shape[:-1], 1)


def linear(x: Tensor, folded: Tensor, weight_scale: Tensor, bias: Tensor | None = None, *, group: int = 256) -> Tensor:
    """y = x R (W R)^T + b from codes: int8 products, summed in int32, times both scales in float32, rounded once to x's dtype.

    Args:
        x: shape (..., K), float16, bfloat16 or float32.
        folded: shape (outputs, K), int8, by `fold`. On CUDA, outputs and K are multiples of 8 (`torch._int_mm`).
        weight_scale: float32, one for all or one for each output.
        bias: shape (outputs,).

    Returns: shape (..., outputs), of x's dtype.

    Raises: as `quantized`.
    """
    codes, scales = quantized(x, group)
    rows = codes.reshape(-1, codes.shape[-1])
    y = products(rows, folded).float() * (scales.reshape(-1, 1) * weight_scale.float().reshape(1, -1))
    if bias is not None:
        y += bias.float()
    return y.to(x.dtype).reshape(*x.shape[:-1], len(folded))
