"""Sketches of CUDA tensors with signs, zeros and chosen rows inside the passes; a sketch and its transpose derive each other."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from .. import _c
from .calls import DTYPES, raw_stream, view_of


class Sketching(torch.autograd.Function):
    """`sketch` is called again for the gradients, which sees their own derivatives."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sketch: Any, transposed: bool) -> Tensor:
        ctx.sketch, ctx.transposed = sketch, transposed
        return run(x, sketch, transposed)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        return ctx.sketch(grad) if ctx.transposed else ctx.sketch.transpose(grad), None, None


def sketched(x: Tensor, sketch: Any, transposed: bool) -> Tensor:
    result: Tensor = Sketching.apply(x, sketch, transposed)
    return result


def table_on(device: torch.device, length: int, rows: int, seed: int, padded: int) -> Tensor:
    words = torch.empty(3 * ((padded + 31) // 32), dtype=torch.int32, device="cpu")
    _c.check(_c.library.fwht_sketch_table(length, rows, seed, words.data_ptr()))
    return words.to(device)


def run(x: Tensor, sketch: Any, transposed: bool) -> Tensor:
    x = x.contiguous()
    out = torch.empty((*x.shape[:-1], sketch.length if transposed else sketch.rows), dtype=x.dtype, device=x.device)
    code, device, needed = DTYPES[x.dtype], x.get_device(), ctypes.c_int64()
    vectors, table = x.numel() // x.shape[-1], sketch._table(x)
    _c.check(_c.library.fwht_sketch_workspace(code, sketch.length, sketch.rows, vectors, device, needed))
    workspace = torch.empty(needed.value, dtype=torch.uint8, device=x.device)
    _c.check(_c.library.fwht_sketch_on(
        code, sketch.length, sketch.rows, transposed, vectors, table.data_ptr(), view_of(x).pointer, out.data_ptr(),
        workspace.data_ptr() or None, needed.value, device, raw_stream(device),
    ))  # fmt: skip
    return out
