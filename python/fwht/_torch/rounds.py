"""Rounds of CUDA tensors by one kernel; the gradient is the transposed kernel."""

from __future__ import annotations

from typing import Any, Sequence

import torch
from torch import Tensor

from .. import _c
from .calls import DTYPES, raw_stream, view_of


class Rounds(torch.autograd.Function):
    """`again(x, transpose)` is what the caller calls, which sees the gradients' own derivatives."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, signs: Tensor, count: int, transpose: bool, again: Any) -> Tensor:
        ctx.again, ctx.transpose = again, transpose
        x = x.contiguous()
        if x.data_ptr() % 16:
            x = x.clone()
        out, n, device = torch.empty_like(x), x.shape[-1], x.get_device()
        _c.check(_c.library.fwht_rounds_on(
            DTYPES[x.dtype], n, x.numel() // n, transpose, count, signs.data_ptr(), view_of(x).pointer, out.data_ptr(), device,
            raw_stream(device),
        ))  # fmt: skip
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        return ctx.again(grad, not ctx.transpose), None, None, None, None


def rounded(x: Tensor, signs: Tensor, count: int, transpose: bool, again: Any) -> Tensor:
    result: Tensor = Rounds.apply(x, signs, count, transpose, again)
    return result


def rounded_to_codes(x: Tensor, signs: Tensor, count: int, bits: int) -> tuple[Tensor, Tensor]:
    x = x.detach().contiguous()
    if x.data_ptr() % 16:
        x = x.clone()
    n, device = x.shape[-1], x.get_device()
    codes = torch.empty((*x.shape[:-1], n * bits // 8), dtype=torch.int8 if bits == 8 else torch.uint8, device=x.device)
    scales = torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device)
    _c.check(_c.library.fwht_rounds_to_codes_on(
        n, x.numel() // n, count, signs.data_ptr(), view_of(x).pointer, bits, codes.data_ptr(), scales.data_ptr(), device, raw_stream(device)
    ))
    return codes, scales


def signs_on(device: torch.device, packed: Sequence[bytes]) -> Tensor:
    return torch.frombuffer(bytearray(b"".join(packed)), dtype=torch.int32).to(device)
