"""Rotary embedding in Triton, with or without fp8 codes of what comes out: what stacks launch that do not rotate."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(x, out, cos_sin, positions, rows, heads, inverse, HALF: tl.constexpr, ROWS: tl.constexpr, CODES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lane = tl.arange(0, HALF)[None, :]
    inside = (row < rows)[:, None]
    position = tl.load(positions + row // heads, mask=row < rows, other=0)[:, None]
    place, angle = row[:, None] * (2 * HALF) + lane, position * (2 * HALF) + lane
    a = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(x + place + HALF, mask=inside, other=0.0).to(tl.float32)
    c, s = tl.load(cos_sin + angle), tl.load(cos_sin + angle + HALF)
    left, right = (a * c - b * s).to(x.dtype.element_ty), (b * c + a * s).to(x.dtype.element_ty)
    if CODES:
        left = tl.minimum(tl.maximum(left.to(tl.float32) * inverse, -448.0), 448.0)
        right = tl.minimum(tl.maximum(right.to(tl.float32) * inverse, -448.0), 448.0)
    tl.store(out + place, left.to(out.dtype.element_ty), mask=inside)
    tl.store(out + place + HALF, right.to(out.dtype.element_ty), mask=inside)


def rope(x: torch.Tensor, cos_sin: torch.Tensor, positions: torch.Tensor, heads: int, scale: float | None = None) -> torch.Tensor:
    """x (rows, n) embedded over its whole width, each position for `heads` rows; with a scale e4m3 codes of the rounded result.

    cos_sin: float32 (positions, n), cosines, then sines; pairs are (i, i + n / 2).
    """
    rows, n = x.shape
    out = torch.empty_like(x, dtype=x.dtype if scale is None else torch.float8_e4m3fn)
    inverse = 1.0 if scale is None else 1.0 / scale
    _kernel[(triton.cdiv(rows, 32),)](x, out, cos_sin, positions, rows, heads, inverse, n // 2, 32, scale is not None, num_warps=4)
    return out
