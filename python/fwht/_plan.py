"""Plans, questions about support, and what was built."""

from __future__ import annotations

import ctypes
import functools
import json
import sys
from typing import Any, NamedTuple

from . import _arrange, _c, _tensors, array, operators


class Variant(NamedTuple):
    """One implementation. `memory` is "device" or "host": where its arrays live."""

    name: str
    summary: str
    memory: str


def listed(count: Any, get: Any) -> list[Variant]:
    """The entries of a registry, by its two C functions."""
    found = []
    for index in range(count()):
        info = _c.VariantInfo(ctypes.sizeof(_c.VariantInfo))
        _c.check(get(index, info))
        found.append(Variant(info.name.decode(), info.summary.decode(), "device" if info.on_device else "host"))
    return found


def variants() -> list[Variant]:
    """Every variant, in ladder order. One that was not built stays listed; `supports` gives the reason."""
    return listed(_c.library.fwht_variant_count, _c.library.fwht_get_variant)


def build_info() -> dict[str, Any]:
    """What was built: version, commit, dirty, sources_hash, build_type, cxx, cxx_flags, cuda (or why not), cuda_flags,
    abi_version; `devices`: how many CUDA devices there are; `torch`: the PyTorch that the operators are registered
    with, or None."""
    return {
        **_c.build_info(),
        "devices": _c.library.fwht_device_count(),
        "torch": _tensors.face and _tensors.face.version,
    }


def clear_plans() -> int:
    """Destroys the plans that `hadamard_transform` keeps, on all devices, and returns how many there were. Only when
    none of their launches is pending and no CUDA graph captured from them will be replayed."""
    if _tensors.face:
        _tensors.face.forget()
    return _c.library.fwht_clear_plans()


def _dtype_code(dtype: Any) -> tuple[int, str]:
    dtype = "float64" if dtype is float else dtype  # as NumPy has it; the word "float" is that of C
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or str(dtype)
    name = str(dtype) if getattr(dtype, "isnative", True) is False else name
    name = getattr(dtype, "__name__", name) if isinstance(dtype, type) else name  # numpy.float32
    code = _c.DTYPES.get(name.removeprefix("torch."))
    if code is None:
        raise TypeError(f"fwht: dtype {name} {_c.DTYPE_RULE}")
    return code, name


def _device_number(device: Any) -> int:
    """None: the first CUDA device where there is one, else the host."""
    if device is None:
        return 0 if _c.library.fwht_device_count() > 0 else _c.HOST
    if isinstance(device, bool):
        raise TypeError(f"fwht: device={device!r} must be None, an ordinal, 'cpu', 'cuda' or 'cuda:1'")
    if isinstance(device, int):
        return _c.integer("device", device, 32)
    kind, _, ordinal = str(device).partition(":")
    if kind == "cpu":
        return _c.HOST
    if kind == "cuda" and (not ordinal or (ordinal.isascii() and ordinal.isdigit())):
        if ordinal:
            return _c.integer("device", int(ordinal), 32)
        torch = sys.modules.get("torch")
        return torch.cuda.current_device() if torch is not None and torch.cuda.is_initialized() else 0
    raise NotImplementedError(f"fwht: device {device} is not supported; cpu and cuda are")


def _problem(
    n: int, rows: int, dtype: Any, device: int, inplace: bool, row_stride: int | None, scale: float | None,
    variant: str | None, programmatic_launch: bool, operator: str | None, encoding: str | None, ordering: str, input_ordering: str,
    inner: int,
) -> _c.Problem:  # fmt: skip
    code, name = _dtype_code(dtype)
    n, rows, inner = _c.integer("n", n), _c.integer("rows", rows), _c.integer("inner", inner)
    orderings = _arrange.code("input_ordering", input_ordering), _arrange.code("ordering", ordering)
    if inner < 1:
        raise ValueError(f"fwht: inner={inner} must be at least 1")
    row_stride = None if row_stride is None else _c.integer("row_stride", row_stride)
    if rows < 0:
        raise ValueError(f"fwht: rows={rows} must not be negative")
    if row_stride is not None and row_stride < n:
        raise ValueError(f"fwht: row_stride={row_stride} must be at least n={n}")
    stride = n * inner if row_stride is None else row_stride
    return _c.make_problem(
        (rows, n), code, name, scale, in_place=inplace and encoding is None, device=device, in_stride=stride, out_stride=stride,
        variant=_c.encoded(variant), programmatic_launch=programmatic_launch, operator=operator, encoding=encoding, orderings=orderings,
        inner=inner,
    )  # fmt: skip


class Plan(_c.Owner):
    """What a variant decided for one problem on one device, with the workspace it needs; made by `fwht.plan`.

    Attributes:
        variant, problem: names, the problem in its text form ("f16/n4096/r8192").
        device: ordinal of the CUDA device, or -1 for the host.
        alignment: both addresses must be multiples of this many bytes.
        scratch_bytes: memory that an execution works in; 0: none. What the plan owns serves one stream at a time; it owns none
            where it was made with own_scratch=False, which variants that keep such memory refuse.
        one_stream_at_a_time: whether the plan owns memory that executions change, so that two streams need a plan each.
        settings: grid, threads, tile ... as the variant names them.
        numerics: `roundings` to the storage type, the promises `batch_invariant`, `layout_invariant` and
            `row_isolation`, and `arithmetic`: the variant whose bits the results have. Two plans that name the same one
            agree bit for bit, as far as these promises hold, and so do codes with rows that are quantized afterwards.
    """

    _destroy = staticmethod(_c.library.fwht_plan_destroy)

    def __init__(self, problem: _c.Problem, variant: str | None, device: int, own_scratch: bool = True):
        self.handle = ctypes.c_void_p()
        self._problem = problem
        if not own_scratch:
            problem.flags |= _c.SCRATCH_OF_CALLER
        _c.check(_c.library.fwht_plan_create(problem, _c.encoded(variant), device, self.handle), device)
        about = json.loads(_c.library.fwht_plan_info_json(self.handle))
        self.variant: str = about["variant"]
        self.problem: str = about["problem"]
        self.device: int = about["device"]
        self.alignment: int = about["alignment"]
        self.scratch_bytes: int = about["scratch_bytes"]
        self.one_stream_at_a_time: bool = about["one_stream_at_a_time"]
        self.settings: dict[str, Any] = about["settings"]
        self.numerics: dict[str, Any] = {
            key: about[key] for key in ("roundings", "batch_invariant", "layout_invariant", "row_isolation", "arithmetic")
        }

    def execute(self, x: Any, out: Any = None, stream: int | None = None, scratch: Any = None) -> Any:
        """Runs the plan and returns the result's array.

        Args:
            x: PyTorch tensor, NumPy or CuPy array of `rows` rows of n elements at the plan's row stride; with `inner` one of shape
                (..., n, *behind), behind together `inner` elements.
            out: the same for the result of an out-of-place plan; None: a new contiguous one (where the plan's rows
                are contiguous). An in-place plan takes none.
            stream: a CUDA stream as an integer handle; None: the current one of x's library.
            scratch: an array of uint8, one dimension, of at least `scratch_bytes`, on x's device, at a multiple of 256 bytes:
                executions with one each may run at once. None: what the plan owns.

        Raises:
            ValueError: shape, dtype, device, strides or alignment are not the plan's, or the scratch is too small.
            RuntimeError: a tensor requires grad (and gradients are enabled), or CUDA failed.
        """
        if self._problem.encoding is not None:
            raise ValueError("fwht: a plan with an encoding only answers questions; hadamard_quantize writes codes")
        if stream is not None and (stream := _c.integer("stream", stream)) < 0:
            raise ValueError(f"fwht: stream={stream} must not be negative; it is a handle, or None")
        in_place = self._problem.placement == 0
        source, current = self._view(x, "x")
        if in_place:
            if out is not None and out is not x:
                raise ValueError("fwht: the plan is in place and takes no out")
            out, target = x, source
        else:
            if out is None:
                if source.empty_like is None:
                    raise TypeError(f"fwht: no result can be made for a {type(x).__name__}; pass out=")
                out = source.empty_like()
            target, _ = self._view(out, "out")
        face = _tensors.face
        if face is not None:
            face.check_not_differentiated(x, out)
        if not target.writable:
            raise ValueError("fwht: the array to be written is read-only")
        if self.device != _c.HOST and stream is None:
            stream = current
        if scratch is None:
            status = _c.library.fwht_plan_execute(self.handle, source.pointer, target.pointer, stream)
        else:
            room = self._scratch_view(scratch)
            operands = _c.Operands(ctypes.sizeof(_c.Operands), source.pointer, target.pointer)
            operands.scratch, operands.scratch_bytes = room.pointer, room.shape[0]
            status = _c.library.fwht_plan_execute_operands(self.handle, operands, stream)
        if status:
            _c.fail(status, self.device)
        if face is not None:
            face.mark_written(out)
        return out

    def _view(self, x: Any, name: str) -> tuple[array.View, int | None]:
        face = _tensors.face_of(x)
        view = face.view_of(x) if face else array.view_of(x)
        if view is None:
            raise TypeError(f"fwht: {name} is a {type(x).__name__}, not a PyTorch tensor, NumPy or CuPy array")
        n, rows = self._problem.n, self._problem.rows
        shape, strides = self._in_blocks(view)
        stride = _c.row_stride(shape, strides) if shape else None
        elements = 1
        for size in view.shape:
            elements *= size
        wanted = self._problem.in_stride if name == "x" else self._problem.out_stride
        fits = (
            bool(shape) and shape[-1] == n * self._problem.inner and elements == n * rows and view.dtype == self._problem.dtype
            and (rows == 0 or (stride is not None and (rows == self._problem.inner or stride == wanted)))
            and view.device in (self.device, _c.DEVICE_OF_POINTER if self.device >= 0 else _c.HOST)
        )  # fmt: skip
        if not fits:
            raise ValueError(
                f"fwht: {name} has shape {view.shape}, dtype {view.dtype_name}, strides {view.strides} on device "
                f"{view.device}; the plan is {self.problem} with row stride {wanted} on device {self.device}"
            )
        return view, view.stream

    def _in_blocks(self, view: array.View) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shape and strides with the n elements of a row and the `inner` ones between them as one dimension, where they are one."""
        behind, axis = 1, len(view.shape) - 1
        while axis > 0 and (behind < self._problem.inner or view.shape[axis] == 1):  # n is not 1
            behind *= view.shape[axis]
            axis -= 1
        block = view._replace(shape=view.shape[axis:], strides=view.strides[axis:])
        if not view.shape or behind != self._problem.inner or not (0 in view.shape or operators._is_flat(block)):
            return view.shape, view.strides
        return (*view.shape[:axis], behind * view.shape[axis]), (*view.strides[:axis], 1)

    def _scratch_view(self, scratch: Any) -> array.View:
        face = _tensors.face_of(scratch)
        view = face.view_of(scratch) if face else array.view_of(scratch)
        if view is None:
            raise TypeError(f"fwht: scratch is a {type(scratch).__name__}, not a PyTorch tensor, NumPy or CuPy array")
        plain = view.dtype_name.removeprefix("torch.") == "uint8" and len(view.shape) == 1 and view.strides in ((1,), (0,))
        if not plain or view.device not in (self.device, _c.DEVICE_OF_POINTER if self.device >= 0 else _c.HOST):
            raise ValueError(
                f"fwht: scratch has shape {view.shape}, dtype {view.dtype_name}, strides {view.strides} on device {view.device}; "
                f"it must be contiguous uint8 of one dimension on device {self.device}"
            )
        return view

    def __reduce_ex__(self, protocol: Any) -> Any:  # of copy and pickle
        raise TypeError("fwht: a Plan owns memory and cannot be copied or pickled; make another with fwht.plan")

    def __repr__(self) -> str:
        return f"<fwht.Plan {self.problem} by {self.variant} on {'the host' if self.device < 0 else self.device}>"


def plan(
    n: int, rows: int, dtype: Any, *, device: Any = None, row_stride: int | None = None, scale: float | None = None,
    inplace: bool = True, variant: str | None = None, programmatic_launch: bool = False, operator: str | None = None,
    encoding: str | None = None, own_scratch: bool = True, ordering: str = "natural", input_ordering: str = "natural", inner: int = 1,
) -> Plan:  # fmt: skip
    """A plan of one's own: everything is decided here, and `Plan.execute` only launches.

    Args:
        n, rows: row length and number of rows.
        dtype: "float16", "bfloat16", "float32", "float64", "int32", "int64", or a dtype of PyTorch or NumPy.
        device: None (the first CUDA device, else the host), an ordinal, "cpu", "cuda:1" or a torch.device.
        row_stride: elements between row starts of input and output, with `inner` between blocks of so many rows; None: n inner.
        scale: as in `hadamard_transform`; None is 1/sqrt(n), integers need 1.
        inplace: the result replaces the input; codes never do.
        variant: a name of `fwht.variants()`; None: "auto", on the host "cpu".
        programmatic_launch: programmatic dependent launch (CUDA Programming Guide), where the variant offers it.
        operator: another operator than H_n, as in `fwht.operators`, without signs and dense factors.
        encoding: as in `hadamard_quantize`: what that does, by `Plan.numerics` and `settings`. Such a plan
            is not executed.
        own_scratch: False: the plan allocates no `scratch_bytes`; every execution brings its own, and is refused without.
        ordering, input_ordering: as in `hadamard_transform`, for a plan that is not in place.
        inner: elements from one element of a row to the next, in a contiguous tensor the product of the dimensions behind the axis;
            it divides `rows`.

    Raises: as `hadamard_transform`.
    """
    number = _device_number(device)
    return Plan(
        _problem(
            n, rows, dtype, number, inplace, row_stride, scale, variant, programmatic_launch, operator, encoding, ordering, input_ordering, inner
        ),
        variant, number, own_scratch,
    )  # fmt: skip


class Support:
    """True where the problem is supported; else `why_not` is one sentence with the value and the limit."""

    def __init__(self, why_not: str = "", make_plan: Any = None):
        self.why_not = why_not
        self._make_plan = make_plan

    def __repr__(self) -> str:
        return f"fwht.Support({self.why_not!r})"

    def __bool__(self) -> bool:
        return not self.why_not

    @property
    def batch_invariant(self) -> bool:
        """Rows give the same bits whatever the number of rows."""
        return bool(self) and self._make_plan().numerics["batch_invariant"]


def supports(
    n: int, dtype: Any, *, rows: int = 1, device: Any = None, inplace: bool | None = None, row_stride: int | None = None,
    variant: str | None = None, operator: str | None = None, encoding: str | None = None, ordering: str = "natural",
    input_ordering: str = "natural", inner: int = 1,
) -> Support:  # fmt: skip
    """Whether a problem can be done, with the reason where it cannot. Arguments as for `plan`; nothing is launched.

    inplace: None: in place, unless an ordering is given, which permutes.

    Example:
        >>> import fwht
        >>> fwht.supports(12, "float16", device="cpu").why_not
        'n=12 must be a power of two between 2 and 1073741824'
    """
    number = _device_number(device)
    try:
        if inplace is None:
            inplace = not (_arrange.code("ordering", ordering) or _arrange.code("input_ordering", input_ordering))
        problem = _problem(
            n, rows, dtype, number, inplace, row_stride, 1.0, variant, False, operator, encoding, ordering, input_ordering, inner
        )
    except (ValueError, TypeError) as error:
        return Support(str(error).removeprefix("fwht: "))
    status = _c.library.fwht_supports(problem, _c.encoded(variant), number)
    if status == 1 and variant is not None and variant not in [each.name for each in variants()]:
        _c.fail(status)
    if status:
        return Support(_c.last_error())
    again = functools.partial(  # of what can be pickled
        plan, n, rows, dtype, device=number, row_stride=row_stride, scale=1.0, inplace=inplace, variant=variant,
        operator=operator, encoding=encoding, ordering=ordering, input_ordering=input_ordering, inner=inner,
    )  # fmt: skip
    return Support("", again)
