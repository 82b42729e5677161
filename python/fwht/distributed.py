"""Rows spread over the ranks of `torch.distributed`: rank r holds columns r n/T .. of every row of n.

form             operator           communication     result on rank q
all_to_all       H_T (x) H_(n/T)    one exchange      of each of the T shards, its q-th T-th
block_diagonal   I_T (x) H_(n/T)    none              columns q n/T ..

`result_columns` says which columns a rank holds afterwards: the rows of the layer that follows are spread alike, once,
so that nothing is sent back. The same forms in C++, with CUDA graphs: docs/several_gpus.md.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch
import torch.distributed as dist

from . import _arrange, _c
from . import hadamard_transform as _local_transform
from ._torch.eager import is_differentiated

FORMS = ("all_to_all", "block_diagonal")


def _check(shard: int, ranks: int, form: str) -> None:
    if form not in FORMS:
        raise ValueError(f"fwht: unknown form '{form}'; known: {', '.join(FORMS)}")
    if ranks < 1 or ranks & (ranks - 1):
        raise ValueError(f"fwht: {ranks} ranks must be a power of two")
    if form == "all_to_all" and shard % ranks:
        raise ValueError(f"fwht: a shard of {shard} columns is not divisible by {ranks} ranks, as all_to_all needs")


def result_columns(n: int, ranks: int, rank: int, form: str = "all_to_all") -> torch.Tensor:
    """The columns of the whole result that `rank` holds, in order: shape (n / ranks,), int64.

    Raises ValueError where n, or a shard of it, is not divisible by `ranks`; TypeError for what is no integer.
    """
    n, ranks, rank = _c.integer("n", n), _c.integer("ranks", ranks), _c.integer("rank", rank)
    if n < 1:
        raise ValueError(f"fwht: n={n} must be at least 1")
    if ranks < 1 or n % ranks:
        raise ValueError(f"fwht: n={n} is not divisible by {ranks} ranks")
    if not 0 <= rank < ranks:
        raise ValueError(f"fwht: rank={rank} must be between 0 and {ranks - 1}")
    shard = n // ranks
    _check(shard, ranks, form)
    if form == "block_diagonal":
        return torch.arange(rank * shard, (rank + 1) * shard)
    piece = shard // ranks
    return (torch.arange(ranks)[:, None] * shard + rank * piece + torch.arange(piece)).reshape(-1)


def _sums_over_ranks(parts: torch.Tensor) -> torch.Tensor:
    """H_T over the first dimension, by butterflies."""
    ranks, step = parts.shape[0], 1
    while step < ranks:
        pairs = parts.reshape(ranks // (2 * step), 2, step, *parts.shape[1:])
        parts = torch.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), dim=1).reshape(parts.shape)
        step *= 2
    return parts


def hadamard_transform(
    x: torch.Tensor, scale: float | None = None, *, form: str = "all_to_all", group: Any = None, variant: str | None = None
) -> torch.Tensor:
    """Transforms rows of n = T * x.shape[-1] elements of which every rank of `group` holds its shard.

    Args:
        x: shape (..., n/T), the same on all ranks; a dtype and device that `fwht.hadamard_transform` and the group's
            back end take.
        scale: of the whole operator; None makes it orthonormal.
        form: see the module.
        group: a process group of T ranks, T a power of two; None: the default one.
        variant: of the local transform.

    Returns:
        A new tensor of x's shape and dtype: columns `result_columns(n, T, rank, form)` of the result. all_to_all rounds
        twice: after the local transform and after the sum over ranks, which is formed in float32 (float64 for float64).
        Integers take scale=1 alone, and wrap.

    Not differentiable. Raises ValueError, and TypeError for what is no tensor, before anything is sent; every rank must
    call with the same shape, as torch.distributed demands.
    """
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"fwht: x is a {type(x).__module__}.{type(x).__qualname__}; it must be a PyTorch tensor")
    if x.dim() == 0:
        raise ValueError("fwht: x must have at least one dimension, whose length is n / ranks; it is a scalar")
    if is_differentiated(x):
        raise RuntimeError("fwht: the transform over ranks is not differentiable; call it under torch.no_grad()")
    ranks = dist.get_world_size(group)
    if ranks < 0:
        raise ValueError("fwht: this process is no rank of group; only its members call the transform")
    shard = x.shape[-1]
    _check(shard, ranks, form)
    whole = x.is_floating_point() and scale is not None
    if whole:
        scale = _c.checked_scale(scale, "scale")
        if scale is not None and x.dtype != torch.float64 and not math.isfinite(ctypes.c_float(scale).value):
            raise ValueError(f"fwht: scale={scale:g} must be finite in float32, in which {x.dtype} data are scaled")
    if form == "block_diagonal" or ranks == 1:
        return _local_transform(x, scale, variant=variant)

    first, last = _arrange.scales_of(scale, (shard, ranks), False) if whole else (scale, 1.0 / math.sqrt(ranks))
    local = _local_transform(x, first, variant=variant).reshape(-1, shard)
    piece = shard // ranks
    if ranks == 2:  # twice the bytes, but nothing to pack, and less latency
        rows = local.new_empty(ranks * local.shape[0], shard)
        dist.all_gather_into_tensor(rows, local, group=group)
        begin = dist.get_rank(group) * piece
        received = rows.reshape(ranks, -1, shard)[..., begin : begin + piece]
    else:
        pieces = local.reshape(-1, ranks, piece).transpose(0, 1).contiguous()
        received = torch.empty_like(pieces)
        dist.all_to_all_single(received, pieces, group=group)
    if not x.is_floating_point():
        return _sums_over_ranks(received).movedim(0, 1).reshape(x.shape)
    wide = torch.float32 if x.dtype != torch.float64 else torch.float64
    mixed = _sums_over_ranks(received.to(wide)) * last
    return mixed.movedim(0, 1).to(x.dtype).reshape(x.shape)
