"""Walsh-Hadamard transforms of what is no neural network's: sums of integers that are known to fit.

    y = fwht.walsh.checked_transform(x)   # int32 or int64; OverflowError where a sum does not fit

NumPy and CuPy arrays and PyTorch tensors; every function returns what it was given.
"""

from __future__ import annotations

import sys
from typing import Any

from . import _c, _tensors, array

_BITS = {"int32": 32, "int64": 64}


def _view(x: Any, name: str = "x") -> array.View:
    face = _tensors.face_of(x)
    view: array.View | None = face.view_of(x) if face else array.view_of(x)
    if view is None:
        raise TypeError(f"fwht: {name} is a {type(x).__module__}.{type(x).__qualname__}, not a PyTorch tensor, NumPy or CuPy array")
    return view


def _dtype_name(view: array.View) -> str:
    return view.dtype_name.removeprefix("torch.")


def _as(x: Any, dtype: str) -> Any:
    """A copy in another dtype."""
    if _tensors.face_of(x):
        return x.to(getattr(sys.modules["torch"], dtype))
    return x.astype(dtype)


def _transform(x: Any, scale: float | None = 1, variant: str | None = None) -> Any:
    face = _tensors.face_of(x)
    return face.functional(x, scale, variant) if face else array.transform(x, scale, None, False, variant)


def checked_transform(x: Any, *, variant: str | None = None) -> Any:
    """`hadamard_transform(x, 1)` of integers, whose results all fit x's dtype.

    Where n max |x| is small enough, this costs one look at x; else one or two more transforms, of wider or split numbers. It waits
    for the device.

    Args:
        x: int32 or int64, shape (..., n), as `hadamard_transform` takes it. int32 is judged by an int64 transform.
        variant: as in `hadamard_transform`.

    Returns: a new array like x.

    Raises:
        OverflowError: with the number of elements that do not fit.
        TypeError: x is not of integers. Others as `hadamard_transform`.

    Example:
        >>> import numpy, fwht
        >>> fwht.walsh.checked_transform(numpy.array([2**30, 2**30], "int32"))
        Traceback (most recent call last):
        ...
        OverflowError: fwht: 1 of 2 sums do not fit int32, max |x| is 1073741824 and n=2
    """
    view = _view(x)
    dtype = _dtype_name(view)
    bits = _BITS.get(dtype)
    if bits is None:
        raise TypeError(f"fwht: dtype {view.dtype_name} must be int32 or int64, whose sums can overflow")
    y = _transform(x, 1, variant)
    if 0 in view.shape:
        return y
    largest, n = max(-int(x.min()), int(x.max())), view.shape[-1]
    if largest * n < 1 << (bits - 1):
        return y
    if bits == 32:
        wide = _transform(_as(x, "int64"), 1, variant)
        high = wide >> 31  # 0 or -1 where it fits
    else:  # x = 2^32 high + low, and so are the sums
        low = _transform(x & 0xFFFFFFFF, 1, variant)
        high = (_transform(x >> 32, 1, variant) + (low >> 32)) >> 31
    wrong = int(((high != 0) & (high != -1)).sum())
    if wrong:
        elements = 1
        for size in view.shape:
            elements *= size
        raise OverflowError(f"fwht: {wrong} of {elements} sums do not fit {dtype}, max |x| is {largest} and n={n}")
    return y
