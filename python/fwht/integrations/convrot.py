"""ConvRot (arXiv 2512.03673): INT8 layers whose inputs are multiplied by the regular Hadamard matrix, by this library's transform.

R_4 = J - 2 antidiag(1, 1, 1, 1), R_(4^k) = R_4 (x) R_4 (x) ...: the operator "256r" for groups of 256 inputs (docs/operators.md).
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from .. import quantize, supports
from .._torch.eager import require_memory

__all__ = ["linear", "quantized"]


def _require_tensor(name: str, given: Any) -> None:
    if not isinstance(given, Tensor):
        raise TypeError(f"fwht: {name} is a {type(given).__module__}.{type(given).__qualname__}; it must be a PyTorch tensor")


def _check(name: str, x: Tensor, group: int) -> None:
    _require_tensor(name, x)
    if not isinstance(group, int) or group < 4 or group & (group - 1) or group.bit_length() % 2 == 0:
        raise ValueError(f"fwht: group={group} must be a power of four of at least 4, as the regular Hadamard matrices R_4 (x) R_4 (x) ... have")
    if x.dim() == 0 or x.shape[-1] % group or not x.shape[-1]:
        raise ValueError(f"fwht: {name} has shape {tuple(x.shape)}; its last dimension must be a multiple of group={group}")


def _check_layer(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> None:
    named = {"weight": weight, "weight_scale": weight_scale} | ({} if bias is None else {"bias": bias})
    for name, given in named.items():
        _require_tensor(name, given)
        if given.device != x.device:
            raise ValueError(f"fwht: {name} is on {given.device}, x is on {x.device}")
    if weight.dtype is not torch.int8:
        raise TypeError(f"fwht: weight has dtype {weight.dtype}; it must be torch.int8")
    k = x.shape[-1]
    if weight.dim() != 2 or weight.shape[1] != k:
        raise ValueError(f"fwht: weight has shape {tuple(weight.shape)}; it must be (outputs, {k}), as x of shape {tuple(x.shape)} asks")
    outputs = len(weight)
    if weight_scale.numel() not in (1, outputs):
        raise ValueError(f"fwht: weight_scale has shape {tuple(weight_scale.shape)}; it must have one element, or one for each of {outputs} outputs")
    if bias is not None and tuple(bias.shape) != (outputs,):
        raise ValueError(f"fwht: bias has shape {tuple(bias.shape)}; it must be ({outputs},)")
    require_memory(*named.values())


@functools.lru_cache(256)
def encoding_for(group: int, k: int, dtype: torch.dtype, device: torch.device) -> str:
    """Codes of the sums in float32 where a variant writes those, else of rows that are rounded to `dtype` first."""
    sums, rounded = f"int8:row,t{k}/f32", f"int8:row,t{k}"
    able = supports(group, dtype, rows=k // group, device=device, inplace=False, operator=f"{group}r", encoding=sums)
    return sums if able else rounded


def products(codes: Tensor, weight: Tensor) -> Tensor:
    """codes weight^T, int32, of int8 (m, K) and (n, K); on CUDA n and K are multiples of 8."""
    missing = max(0, 17 - len(codes)) if codes.is_cuda else 0  # the fewest rows that the product takes there
    return torch._int_mm(torch.nn.functional.pad(codes, (0, 0, 0, missing)), weight.t())[: len(codes)]


def quantized(x: Tensor, group: int = 256) -> tuple[Tensor, Tensor]:
    """The INT8 codes of x times the regular matrix within each group, with one scale a row of x: one call.

    Args:
        x: shape (..., K), float16, bfloat16 or float32.
        group: the rows of R: a power of four that divides K.

    Returns: codes, int8 of x's shape; scales, float32 (..., 1): the largest element of the rotated row over 127. On the CPU codes are those of
    the sums in float32, on a CUDA device of the rotated row in x's dtype. A row of zeros has the scale 0.

    Raises ValueError: no such group, one that does not divide K; TypeError: x is no tensor or of another dtype; NotImplementedError: no
    variant takes rows of K on this device.
    """
    _check("x", x, group)
    require_memory(x)
    encoding = encoding_for(group, x.shape[-1], x.dtype, x.device)
    codes, scales = quantize.hadamard_quantize(x.reshape(-1, group), encoding, operator=f"{group}r")
    return codes.reshape(x.shape), scales.reshape(*x.shape[:-1], 1)


def linear(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None = None, *, group: int = 256) -> Tensor:
    """y = x R (W R)^T + b from codes: int8 products, summed in int32, times both scales in float32, rounded once to x's dtype.

    Args:
        x: shape (..., K), float16, bfloat16 or float32.
        weight: shape (outputs, K), int8: codes of the weights times the regular matrix, as checkpoints have them. On CUDA, outputs and K
            are multiples of 8 (`torch._int_mm`).
        weight_scale: float32, one for all or one for each output.
        bias: shape (outputs,).

    Returns: shape (..., outputs), of x's dtype.

    Raises: as `quantized`; ValueError for a weight, scales or a bias of another shape or device, TypeError for what is no tensor and
    for weights that are not int8.
    """
    _check("x", x, group)
    _check_layer(x, weight, weight_scale, bias)
    codes, scales = quantized(x, group)
    rows = codes.reshape(-1, codes.shape[-1])
    y = products(rows, weight).float() * (scales.reshape(-1, 1) * weight_scale.float().reshape(1, -1))
    if bias is not None:
        y += bias.float()
    return y.to(x.dtype).reshape(*x.shape[:-1], len(weight))
