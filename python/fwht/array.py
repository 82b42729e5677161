"""Arrays that are no PyTorch tensors: NumPy, CuPy, JAX and others by their array interfaces and DLPack."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Callable, NamedTuple, Sequence, SupportsFloat

from . import _c, _tensors

_CUDA_TYPESTRS = {"<f2": "float16", "<f4": "float32", "<f8": "float64", "<i4": "int32", "<i8": "int64"}
_DLPACK_CPU, _DLPACK_CUDA = 1, 2


class View(NamedTuple):
    """What the library must know of an array; strides in elements."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: int | None
    dtype_name: str
    device: int
    stream: int | None
    writable: bool
    empty_like: Callable[[], Any] | None  # an uninitialised contiguous array of the same kind
    threads: int = 0  # of the host, as PyTorch is told; 0: all

    @property
    def contiguous(self) -> bool:
        return 0 in self.shape or _c.row_stride(self.shape, self.strides) == self.shape[-1]

    def span(self) -> tuple[int, int]:
        """First address, and the one behind the last."""
        low = high = 0
        for size, stride in zip(self.shape, self.strides):
            if size == 0:
                return self.pointer, self.pointer
            low += min(0, stride * (size - 1))
            high += max(0, stride * (size - 1))
        item = _c.ITEMSIZE[self.dtype]  # type: ignore[index]
        return self.pointer + low * item, self.pointer + (high + 1) * item


def _require_whole_elements(strides: tuple[int, ...], item: int) -> None:
    if item > 0 and any(stride % item for stride in strides):
        raise ValueError(f"fwht: strides {strides} bytes must be multiples of the element's {item} bytes")


def require_unmasked(x: Any) -> None:
    """Raises TypeError for an array whose mask would be lost."""
    if isinstance(x, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())):
        raise TypeError("fwht: a numpy.ma.MaskedArray would lose its mask; pass its filled(...)")


def _numpy_view(x: Any) -> View:
    import numpy

    if type(x) is not numpy.ndarray:
        require_unmasked(x)
    name, item = dtype_name(x), x.dtype.itemsize
    _require_whole_elements(x.strides, item)
    return View(
        x.__array_interface__["data"][0], x.shape, tuple(stride // max(item, 1) for stride in x.strides),
        _c.DTYPES.get(name), name, _c.HOST, None, x.flags.writeable,
        lambda: numpy.empty(x.shape, x.dtype),
    )  # fmt: skip


def _cuda_view(x: Any) -> View:
    about = x.__cuda_array_interface__
    shape = tuple(about["shape"])
    name = _CUDA_TYPESTRS.get(about["typestr"], about["typestr"])
    dtype = _c.DTYPES.get(name)
    strides: list[int] = []
    if about.get("strides") is None:
        distance = 1
        for size in reversed(shape):
            strides.insert(0, distance)
            distance *= size
    else:
        item = int(about["typestr"][2:])
        _require_whole_elements(about["strides"], item)
        strides = [stride // item for stride in about["strides"]]
    cupy = sys.modules.get("cupy")
    empty_like = None
    if cupy is not None and isinstance(x, cupy.ndarray):
        stream, device = cupy.cuda.get_current_stream(x.device.id).ptr, x.device.id

        def empty_like() -> Any:
            with x.device:
                return cupy.empty(x.shape, x.dtype)
    else:  # the producer's stream, by version 3 of the interface; 1 and 2 are CUDA's own default streams
        stream, device = about.get("stream"), _c.DEVICE_OF_POINTER
    pointer, read_only = about["data"]
    return View(pointer, shape, tuple(strides), dtype, name, device, stream, not read_only, empty_like)


def view_of(x: Any) -> View | None:
    """None for an object that shows no memory. Raises TypeError for a numpy.ndarray with a mask."""
    if "numpy" in sys.modules and isinstance(x, sys.modules["numpy"].ndarray):
        return _numpy_view(x)
    if type(x).__module__.partition(".")[0] in ("jax", "jaxlib"):  # shows the memory of its CUDA arrays, but owns it alone
        return None
    if hasattr(x, "__cuda_array_interface__"):
        return _cuda_view(x)
    return None


def aligned_bytes(count: int) -> Any:
    """Uninitialised NumPy bytes at a multiple of 16, as the library wants scales and packed weights."""
    import numpy

    memory: Any = numpy.empty(count + 16, numpy.uint8)
    start = -memory.ctypes.data % 16
    return memory[start : start + count]


def same_memory(x: View, out: View) -> bool:
    """Whether out is x. Raises ValueError for any other overlap."""
    stride, out_stride = (_c.row_stride(view.shape, view.strides) for view in (x, out))
    if x.pointer == out.pointer and (x.strides == out.strides or (stride is not None and stride == out_stride)):
        return True
    first, last = x.span()
    out_first, out_last = out.span()
    if stride is not None and stride == out_stride:
        item = _c.ITEMSIZE[x.dtype]  # type: ignore[index]
        row = x.shape[-1] * item
        if row <= (out.pointer - x.pointer) % (stride * item) <= stride * item - row:
            return False  # rows of one lie between those of the other
    if first < out_last and out_first < last:
        raise ValueError(
            f"fwht: x ({first:#x} to {last:#x}) and out ({out_first:#x} to {out_last:#x}) overlap; out may be x itself"
        )
    return False


def in_place_stride(view: View, name: str = "x") -> int:
    stride = _c.row_stride(view.shape, view.strides)
    if stride is None and 0 not in view.shape:
        raise ValueError(
            f"fwht: {name} has strides {view.strides} for shape {view.shape}; to be written it needs elements side by "
            f"side and rows with a constant stride of at least n={view.shape[-1]} elements"
        )
    return stride or 0


def require_apart(shape: Sequence[int], strides: Sequence[int], name: str) -> None:
    """Raises ValueError for an array whose elements may share memory, so that it cannot be written."""
    reach = 0
    for stride, size in sorted((abs(stride), size) for size, stride in zip(shape, strides) if size > 1):
        if stride <= reach and 0 not in shape:
            raise ValueError(f"fwht: {name} has strides {tuple(strides)} for shape {tuple(shape)}; to be written its elements must lie apart, as those of a contiguous array do")
        reach += stride * (size - 1)


def run(x: View, out: View, scale: SupportsFloat | None, variant: str | None, copy: Callable[[], Any]) -> None:
    """scale * H x into out, which may be the same memory; `copy` copies x into out."""
    name = _c.encoded(variant)
    if not out.writable:
        raise ValueError("fwht: the array to be written is read-only")

    if out.device != _c.HOST:  # else the library would take an address on a device for one of the host
        _c.needs_cuda_build()
    device = 0 if out.device == _c.DEVICE_OF_POINTER else out.device  # for questions

    def problem(in_place: bool, in_stride: int, out_stride: int) -> _c.Problem:
        return _c.make_problem(
            out.shape, out.dtype, out.dtype_name, scale, in_place=in_place, device=device,
            in_stride=in_stride, out_stride=out_stride, variant=name,
        )  # fmt: skip

    # n, dtype, scale and what the variant does not do are told before strides, and before anything is copied.
    _c.check(_c.library.fwht_supports(problem(True, 0, 0), name, device))
    in_place = same_memory(x, out)
    out_stride = in_place_stride(out, "x" if in_place else "out")
    made = None
    if not in_place:
        in_stride = _c.row_stride(x.shape, x.strides)
        if in_stride is not None:
            made = problem(False, in_stride, out_stride)
            # A variant may want one distance for both.
            if in_stride != out_stride and _c.library.fwht_supports(made, name, device) != 0:
                made = None
    gather = made is None and not in_place
    if made is None:
        made = problem(True, out_stride, out_stride)
    if 0 in out.shape:
        return
    if gather:
        _c.require_aligned(made, name, device, out.pointer)
        copy()
    source = out.pointer if in_place or gather else x.pointer
    status = _c.transform(ctypes.addressof(made), name, source, out.pointer, out.device, out.stream)
    if status:
        _c.fail(status, out.device)


def transform(x: Any, scale: SupportsFloat | None, out: Any, inplace: bool, variant: str | None) -> Any:
    if out is not None and inplace:
        raise ValueError("fwht: out and inplace=True exclude each other")
    view = view_of(x)
    if view is None:
        return _by_dlpack(x, scale, out, inplace, variant)
    if view.dtype is None or not view.shape:  # refused with the common sentences
        _c.make_problem(view.shape, view.dtype, view.dtype_name, scale, in_place=True, device=_c.HOST)
    if inplace:
        run(view, view, scale, variant, lambda: None)
        return x
    if out is None:
        if view.empty_like is None:
            raise TypeError(f"fwht: no result can be made for a {_name_of(x)}; pass out= or inplace=True")
        out = view.empty_like()
        to = view_of(out)
    else:
        to = view_of(out)
        if to is None or (to.shape, to.dtype) != (view.shape, view.dtype) or not _beside(to, view):
            raise ValueError(f"fwht: out ({_describe(to, out)}) must be as x ({_describe(view, x)})")
    assert to is not None
    run(view, to, scale, variant, lambda: _copy(out, x))
    return out


def _copy(out: Any, x: Any) -> None:
    if not hasattr(out, "__setitem__") or _name_of(x).split(".")[0] not in ("numpy", "cupy"):
        raise ValueError(f"fwht: a {_name_of(x)} must have rows with a constant stride, elements side by side")
    out[...] = x


def _beside(a: View, b: View) -> bool:
    """Not where one lies on the host alone, or both on devices that are known and differ."""
    known = {view.device for view in (a, b)} - {_c.DEVICE_OF_POINTER}
    return (a.device == _c.HOST) == (b.device == _c.HOST) and len(known) < 2


def dtype_name(array: Any) -> str:
    """Of a NumPy array; bytes in another order than the machine's are another type."""
    name: str = array.dtype.name if array.dtype.isnative else str(array.dtype)
    return name


def _name_of(x: Any) -> str:
    return f"{type(x).__module__}.{type(x).__qualname__}"


def _describe(view: View | None, x: Any) -> str:
    if view is None:
        return f"a {_name_of(x)}"
    return f"shape {view.shape}, {view.dtype_name}, {'host' if view.device == _c.HOST else 'CUDA'} memory"


def _by_dlpack(x: Any, scale: SupportsFloat | None, out: Any, inplace: bool, variant: str | None) -> Any:
    """Arrays that cannot be written: the result is a new one, handed back to the library that x came from."""
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__array_namespace__"):
        hint = ""
        if type(x).__module__.split(".")[0] == "torch":
            hint = " (is its PyTorch older than 2.7?)"
        raise TypeError(
            f"fwht: x is a {_name_of(x)}; it must be a PyTorch tensor, a NumPy, CuPy or JAX array, or have "
            f"__dlpack__ and __array_namespace__{hint}"
        )
    try:
        is_deleted = bool(getattr(x, "is_deleted", bool)())
        kind = _DLPACK_CPU if is_deleted else x.__dlpack_device__()[0]
    except Exception as error:
        raise TypeError(f"fwht: a {_name_of(x)} has no data yet (is this inside jax.jit?): {error}") from None
    if is_deleted:
        about = f"a {_name_of(x)} of shape {tuple(x.shape)}"
        raise ValueError(f"fwht: {about} was deleted, or donated to a call; it has no memory")
    if out is not None or inplace:
        raise TypeError(f"fwht: a {_name_of(x)} cannot be written; leave out= and inplace= away")
    space = x.__array_namespace__()
    if int(kind) == _DLPACK_CPU:
        import numpy

        result = transform(numpy.asarray(x), scale, None, False, variant)
    elif int(kind) == _DLPACK_CUDA:
        try:
            import torch
        except ImportError:
            raise NotImplementedError(
                f"fwht: a {_name_of(x)} on a CUDA device goes through PyTorch, which is not installed"
            ) from None
        tensor = torch.from_dlpack(x)
        result = _tensors.face_of(tensor).transform(tensor, scale, None, False, variant)
    else:
        raise NotImplementedError(f"fwht: the device of this {_name_of(x)} (DLPack kind {int(kind)}) is not supported")
    try:
        return space.from_dlpack(result)
    except Exception:  # NumPy's bfloat16 has no DLPack form
        return space.asarray(result, device=x.device)
