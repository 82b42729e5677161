"""Dyadic convolutions of CUDA tensors with the product inside the passes; each is its own derivative, by the other factor."""

from __future__ import annotations

import ctypes
from typing import Any, Callable

import torch
from torch import Tensor

from .. import _c
from . import eager
from .calls import DTYPES, raw_stream, view_of


def convolves(a: Tensor, b: Tensor) -> bool:
    """Whatever the dispatcher must see is composed of transforms, which it sees."""
    return not eager._is_compiling() and eager._is_plain(a) and eager._is_plain(b) and eager._forward_ad._current_level < 0


class Convolution(torch.autograd.Function):
    """`again` is what the caller calls, which sees the gradients' own derivatives."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, again: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.again = again
        return run(a, b)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        a, b = ctx.saved_tensors
        needs_a, needs_b, _ = ctx.needs_input_grad
        return ctx.again(grad, b) if needs_a else None, ctx.again(grad, a) if needs_b else None, None


def convolve(a: Tensor, b: Tensor, again: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    result: Tensor = Convolution.apply(a, b, again)
    return result


def run(a: Tensor, b: Tensor) -> Tensor:
    is_own = a.data_ptr() == b.data_ptr() and a.stride() == b.stride()
    a = a.contiguous()
    b = a if is_own else b.contiguous()
    out = torch.empty(a.shape, dtype=a.dtype, device=a.device)
    code, n = DTYPES[a.dtype], a.shape[-1] if a.dim() else 1
    rows, device, needed = a.numel() // max(n, 1), a.get_device(), ctypes.c_int64()
    _c.check(_c.library.fwht_dyadic_convolution_workspace(code, n, rows, is_own, device, needed))
    workspace = torch.empty(needed.value, dtype=torch.uint8, device=a.device)
    _c.check(_c.library.fwht_dyadic_convolution_on(
        code, n, rows, view_of(a).pointer, view_of(b).pointer, out.data_ptr(), workspace.data_ptr() or None, needed.value, device,
        raw_stream(device),
    ))  # fmt: skip
    return out
