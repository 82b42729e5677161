"""Rows that do not lie side by side, or whose coefficients stand in another order: `axis`, `ordering` and `input_ordering` of
`fwht.hadamard_transform`."""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

from . import _c, _tensors, array
from .array import View


def code(name: str, given: Any) -> int:
    if not isinstance(given, str) or given not in _c.ORDERINGS:  # an array has no one answer
        raise ValueError(f"fwht: {name}={given!r} must be one of {', '.join(_c.ORDERINGS)}")
    return _c.ORDERINGS.index(given)


def axes_of(axis: Any, dimensions: int) -> tuple[int, ...]:
    """As negative numbers, so that dimensions in front do not change them."""
    if dimensions == 0:
        raise ValueError("fwht: x must have at least one dimension, whose length is n; it is a scalar")
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    found = []
    for each in given:
        each = _c.integer("axis", each)
        if not -dimensions <= each < dimensions:
            raise ValueError(f"fwht: axis={each} must be between {-dimensions} and {dimensions - 1} for x of {dimensions} dimensions")
        found.append(each if each < 0 else each - dimensions)
    if not found or len(set(found)) < len(found):
        raise ValueError(f"fwht: axis={tuple(given)} must name at least one axis, and none twice")
    return tuple(found)


def problem(
    shape: tuple[int, ...], dtype: int | None, dtype_name: str, scale: Any, axis: int, orderings: tuple[int, int], in_place: bool,
    device: int, variant: bytes | None, threads: int = 0,
) -> _c.Problem:  # fmt: skip
    """Of a contiguous array; axis is counted from the end."""
    if not shape:
        return _c.make_problem(shape, dtype, dtype_name, scale, in_place=in_place, device=device)  # refused
    n, inner, rows = shape[axis], 1, 1
    for place, size in enumerate(shape, -len(shape)):
        if place > axis:
            inner *= size
        if place != axis:
            rows *= size
    return _c.make_problem(
        (rows, n), dtype, dtype_name, scale, in_place=in_place, device=device, variant=variant, orderings=orderings,
        inner=max(inner, 1), threads=threads,
    )  # fmt: skip


def supported(asked: _c.Problem, variant: bytes | None, device: int) -> bool:
    """False where the variant does not do it, but another way may; raises for what is wrong."""
    status = _c.library.fwht_supports(asked, variant, device)
    if status not in (0, 2):
        _c.fail(status, device)
    return status == 0


def execute(asked: _c.Problem, variant: bytes | None, x: View, out: View) -> None:
    if 0 in x.shape:
        return
    if status := _c.transform(ctypes.addressof(asked), variant, x.pointer, out.pointer, out.device, out.stream):
        _c.fail(status, out.device)


def transform(
    x: Any, scale: Any, out: Any, inplace: bool, variant: str | None, orderings: tuple[int, int], axes: tuple[int, ...]
) -> Any:
    """NumPy arrays; for others by copies that lie as the plain transform wants them."""
    if out is not None and inplace:
        raise ValueError("fwht: out and inplace=True exclude each other")
    view = array.view_of(x)
    if view is None or view.device != _c.HOST:
        raise TypeError(
            f"fwht: x is a {type(x).__module__}.{type(x).__qualname__}; axis and ordering take PyTorch tensors and NumPy arrays"
        )
    import numpy

    name = _c.encoded(variant)
    given = x if inplace else out
    ask = functools.partial(problem, view.shape, view.dtype, view.dtype_name)
    scales = scales_of(scale, [view.shape[axis] for axis in axes], view.dtype in (_c.I32, _c.I64))
    for each, axis in zip(scales, axes):  # everything is refused before anything is written
        if not supported(ask(each, axis, orderings, inplace, _c.HOST, name), name, _c.HOST):
            _c.fail(2)
    if given is None:
        given = numpy.empty(x.shape, x.dtype)
    target, to = given, array.view_of(given)
    if to is None or (to.shape, to.dtype) != (view.shape, view.dtype) or not to.writable or (inplace and not to.contiguous):
        raise ValueError(
            f"fwht: with axis or ordering, {'x' if inplace else 'out'} is written, so it must be "
            f"{'contiguous, ' if inplace else ''}writable and as x"
        )
    array.require_apart(to.shape, to.strides, "x" if inplace else "out")
    if not inplace and (not to.contiguous or numpy.may_share_memory(x, given)):
        given = numpy.empty(x.shape, x.dtype)
        to = array.view_of(given)
    assert to is not None
    source = x
    for each, axis in zip(scales, axes):
        if source is given and any(orderings):
            source = given.copy()
        elif source is not given:
            source = numpy.ascontiguousarray(source)
        here = array.view_of(source)
        assert here is not None
        execute(ask(each, axis, orderings, source is given, _c.HOST, name), name, here, to)
        source = given
    if target is not given:
        target[...] = given
    return target


def scales_of(scale: Any, lengths: Sequence[int], is_summed: bool) -> list[Any]:
    """The scale of each axis. None makes every axis orthonormal. Of a number below 1 each axis has its part, by its share of
    log2 n: the root mean square between two axes lies between those of x and of the result. All parts but the last are powers
    of two, by which nothing is rounded. A number from 1 on belongs to the last axis: no sums before are larger than its own.

    is_summed: of integers, which take 1 alone.
    """
    if scale is None:
        return [None] * len(lengths)
    if is_summed or len(lengths) == 1:
        return [1.0] * (len(lengths) - 1) + [scale]
    whole = float(scale) if _tensors.is_traced() and isinstance(scale, (int, float)) else _c.checked_scale(scale)
    assert whole is not None
    if abs(whole) >= 1:
        return [1.0] * (len(lengths) - 1) + [whole]
    bits = [max(int(n).bit_length() - 1, 0) for n in lengths]  # lengths that are no powers of two are refused later
    share = -math.log2(max(abs(whole), 2.0 ** -sum(bits))) / (sum(bits) or 1)
    exponents = [round(share * sum(bits[:i])) for i in range(len(bits))]
    return [*(2.0 ** (before - after) for before, after in itertools.pairwise(exponents)), whole * 2.0 ** exponents[-1]]
