"""A Walsh-Hadamard transform in Triton, as future work of the HadaCore paper (arXiv 2412.08832) asks for.

A program holds some rows as one tile. A stage multiplies the lowest four index bits by H_16 on the tensor core, as a product
of a (tile/16, 16) matrix with a 16 x 16 one, and transposes the row so that those bits become its highest: after all of
them have been lowest once, every bit is back in its place, in natural order. A stage for fewer bits takes the block-diagonal
matrix of H_2^r. 16-bit data is rounded between stages, as the tensor core wants it; float32 data takes butterflies
of single bits, without tensor cores.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def _sixteen(R: tl.constexpr):
    """I ^ H_2^R as a 16 x 16 matrix: entry (i, j) is (-1)^popcount(i & j) where the bits above R agree."""
    i = tl.arange(0, 16)[:, None]
    j = tl.arange(0, 16)[None, :]
    both = (i & j) & ((1 << R) - 1)
    parity = (both ^ (both >> 1) ^ (both >> 2) ^ (both >> 3)) & 1
    return tl.where((i >> R) == (j >> R), (1 - 2 * parity).to(tl.float32), 0.0)


@triton.jit
def _products(x, ROWS: tl.constexpr, N: tl.constexpr, R: tl.constexpr):
    """The lowest R bits of (ROWS, N) multiplied by H_2^R and made the highest; float32."""
    matrix = _sixteen(R).to(x.dtype)
    y = tl.dot(tl.reshape(x, (ROWS * N // 16, 16)), matrix)
    y = tl.permute(tl.reshape(y, (ROWS, N // (1 << R), 1 << R)), (0, 2, 1))
    return tl.reshape(y, (ROWS, N))


@triton.jit
def _butterflies(x, ROWS: tl.constexpr, N: tl.constexpr):
    a, b = tl.split(tl.reshape(x, (ROWS, N // 2, 2)))
    return tl.reshape(tl.permute(tl.join(a + b, a - b), (0, 2, 1)), (ROWS, N))


@triton.jit
def _kernel(x, out, rows, scale, ROWS: tl.constexpr, N: tl.constexpr, LOG_N: tl.constexpr, PRODUCTS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    place = row * N + tl.arange(0, N)[None, :]
    inside = row < rows
    tile = tl.load(x + place, mask=inside, other=0.0)
    kind: tl.constexpr = x.dtype.element_ty
    if PRODUCTS:
        # 2^-2 a stage keeps orthonormal data at its size between the roundings.
        FULL: tl.constexpr = LOG_N // 4
        REST: tl.constexpr = LOG_N % 4
        sums = tile.to(tl.float32)
        for stage in tl.static_range(FULL):
            sums = _products(tile, ROWS, N, 4)
            if stage + 1 < FULL or REST > 0:
                sums = sums * 0.25
                tile = sums.to(kind)
        if REST > 0:
            sums = _products(tile, ROWS, N, REST)
    else:
        sums = tile.to(tl.float32)
        for _ in tl.static_range(LOG_N):
            sums = _butterflies(sums, ROWS, N)
    tl.store(out + place, (sums * scale).to(kind), mask=inside)


def hadamard_transform(x: torch.Tensor, out: torch.Tensor, scale: float) -> torch.Tensor:
    """scale * H x for contiguous (rows, n), n = 2^k from 16 to 16384, into out, which may be x."""
    rows, n = x.shape
    log_n = n.bit_length() - 1
    products = x.dtype != torch.float32
    tile_rows = max(1, 2048 // n)
    stages = (log_n + 3) // 4
    if products:
        scale *= 4.0 ** (stages - 1)
    options: dict[str, Any] = {"num_warps": 4 if tile_rows * n <= 4096 else 8 if n <= 8192 else 16}
    _kernel[(triton.cdiv(rows, tile_rows),)](x, out, rows, scale, tile_rows, n, log_n, products, **options)
    return out
