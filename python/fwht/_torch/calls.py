"""Plain tensors into the library without the dispatcher: that is what the host time of an eager call is made of.

A call of a kind that went well before costs a lookup of its `Call` and one of what that has prepared, then one call of C
with addresses: no struct is made, nothing is checked twice. Only signs, dense factors and scales need a struct of operands.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from .. import _c, array, operators
from ..array import View

Tensor = torch.Tensor
DTYPES = {torch.float16: _c.F16, torch.bfloat16: _c.BF16, torch.float32: _c.F32, torch.float64: _c.F64}
PLAIN = (torch.Tensor, torch.nn.Parameter)

_c_transform = _c.transform
_c_transform_operands = _c.library.fwht_transform_operands
_c_plan_execute = _c.library.fwht_plan_execute
_OPERANDS_SIZE = ctypes.sizeof(_c.Operands)
_empty_like = torch.empty_like
_get_num_threads = torch.get_num_threads


def _current_stream(device: int) -> int:
    return torch.cuda.current_stream(device).cuda_stream


raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", _current_stream)


def place_of(x: Tensor) -> int:
    """Of a key: the device, or how many threads the host has."""
    device: int = x.get_device()
    return device if device >= 0 else -_get_num_threads()


def view_of(x: Tensor) -> View:
    if x.layout is not torch.strided or not (x.is_cpu or x.is_cuda) or x.is_neg():
        raise NotImplementedError(
            f"fwht: a tensor of layout {x.layout} on {x.device}{', negative bit set,' if x.is_neg() else ''} is not "
            "supported here; it must be dense memory of the CPU or a CUDA device"
        )
    device = x.get_device()
    return View(
        x.data_ptr(), tuple(x.shape), x.stride(), DTYPES.get(x.dtype), str(x.dtype), device,
        raw_stream(device) if x.is_cuda else None, True,
        lambda: torch.empty(x.shape, dtype=x.dtype, device=x.device),
    )  # fmt: skip


def problem_of(
    x: Tensor, scale: Any, variant: str | None, in_place: bool, in_stride: int = 0, out_stride: int = 0, **more: Any
) -> _c.Problem:
    if x.layout is not torch.strided:
        raise NotImplementedError(f"fwht: layout {x.layout} is not supported; x must be a dense tensor")
    if x.device.type not in ("cpu", "cuda"):
        raise NotImplementedError(f"fwht: device {x.device} is not supported; cpu and cuda are")
    device = x.get_device()
    if device >= 0:
        _c.needs_cuda_build()
    return _c.make_problem(
        x.shape, DTYPES.get(x.dtype), str(x.dtype), scale, in_place=in_place, device=device, in_stride=in_stride,
        out_stride=out_stride, threads=_get_num_threads() if device < 0 else 0, variant=_c.encoded(variant), **more,
    )  # fmt: skip


class Call:
    """A transform by one scale, variant, operator and encoding, for any plain tensors: what can be done once is done once.

    Attributes:
        run: (ctx, x) -> H_n x out of place, without gradients; `ctx` is for torch.autograd.Function and not used.
        apply: x -> the same with a gradient; made by `eager` when it is first asked for.
        prepared: shape, dtype, place and where they matter strides and operands -> kept plan or None, the problem's address,
            the device as ctypes wants it, their owners, and what the kind of call needs besides.
    """

    __slots__ = ("apply", "name", "prepared", "run", "scale", "variant")

    def __init__(self, scale: Any, variant: str | None, *others: Any):
        _c.checked_scale(scale)
        self.scale, self.variant, self.apply = scale, variant, None
        self.name = name = _c.encoded(variant)
        self.prepared = _c.Cache()
        get = self.prepared.get

        def run(ctx: Any, x: Tensor) -> Tensor:
            if not x.is_contiguous():
                return self._strided(x)
            device = x.get_device()
            key = (x.shape, x.dtype, device if device >= 0 else -_get_num_threads())
            entry = get(key)
            if entry is None:
                out = _empty_like(x)
                self._first(key, problem_of(x, scale, variant, False), x.data_ptr(), out.data_ptr(), device)
                return out
            out = _empty_like(x)
            source = x.data_ptr()
            if source:  # as `execute`, without another Python call
                stream = raw_stream(device) if device >= 0 else None
                if entry[0]:
                    status = _c_plan_execute(entry[0], source, out.data_ptr(), stream)
                else:
                    status = _c_transform(entry[1], name, source, out.data_ptr(), entry[2], stream)
                if status:
                    _c.fail(status, device)
            return out

        self.run = run

    def execute(self, entry: tuple, source: int, target: int, device: int) -> None:
        stream = raw_stream(device) if device >= 0 else None
        if entry[0]:
            status = _c_plan_execute(entry[0], source, target, stream)
        else:
            status = _c_transform(entry[1], self.name, source, target, entry[2], stream)
        if status:
            _c.fail(status, device)

    def keep(self, key: Any, problem: _c.Problem, device: int, plan: Any = None, more: Any = None) -> tuple:
        address, ordinal = ctypes.c_void_p(ctypes.addressof(problem)), ctypes.c_int32(device)  # which saves conversions
        entry = (plan and plan.handle, address, ordinal, (problem, plan), more)
        return self.prepared.put(key, entry)

    def _first(self, key: Any, problem: _c.Problem, source: int, target: int, device: int) -> None:
        """The first call, which finds the plan for later ones, if all streams share one."""
        plan = None
        if source:  # else no rows
            self.execute((None, ctypes.addressof(problem), device), source, target, device)
            plan = _c.kept_plan(problem, self.name, device)
        self.keep(key, problem, device, plan)

    def _strided(self, x: Tensor) -> Tensor:
        problem_of(x, self.scale, self.variant, True)  # n, dtype and scale first
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        self.into(x, out)
        return out

    def into(self, x: Tensor, out: Tensor) -> None:
        """Out of place into `out`, whose rows lie at one distance. x has any strides."""
        device = x.get_device()
        key = (x.shape, x.stride(), out.stride(), x.dtype, place_of(x))
        entry = self.prepared.get(key)
        if entry is None:
            in_stride = _c.row_stride(x.shape, x.stride())
            out_stride = _c.row_stride(out.shape, out.stride()) or 0
            problem, gather = None, True
            if in_stride is not None:
                problem, gather = problem_of(x, self.scale, self.variant, False, in_stride, out_stride), False
                if in_stride != out_stride:  # some variants want one distance for both
                    gather = _c.library.fwht_supports(problem, self.name, device) != 0
            if gather:
                problem = problem_of(x, self.scale, self.variant, True, out_stride, out_stride)
                if status := _c.library.fwht_supports(problem, self.name, device):
                    _c.fail(status, device)  # before anything is copied
            assert problem is not None
            entry = self.keep(key, problem, device, more=gather)
        if x.numel() == 0:
            return
        if entry[4]:
            with torch.no_grad():
                out.copy_(x)
            x = out
        self.execute(entry, x.data_ptr(), out.data_ptr(), device)

    def replace(self, x: Tensor) -> None:
        """In place; does not raise the version counter."""
        device = x.get_device()
        key = (x.shape, x.stride(), x.dtype, place_of(x))
        entry = self.prepared.get(key)
        pointer = x.data_ptr()
        if entry is None:
            problem_of(x, self.scale, self.variant, True)  # n, dtype and scale first
            stride = array.in_place_stride(view_of(x))
            self._first(key, problem_of(x, self.scale, self.variant, True, stride, stride), pointer, pointer, device)
        elif pointer:
            self.execute(entry, pointer, pointer, device)

    # Operators and codes: the first call of a kind goes where every sentence is; if it went well, `remember` makes the next
    # one short.

    def known(self, key: Any, x: Tensor, signs: Any, dense: Any) -> Any:
        """The entry of a call that went well before, if these operands need no sentence."""
        entry = self.prepared.get(key)
        if entry is None:
            return None
        device = x.get_device()
        signs_bytes, dense_entries, _ = entry[4]
        fits = _is_operand(signs, signs_bytes, torch.uint8, device) and _is_operand(dense, dense_entries, x.dtype, device)
        return entry if fits else None

    def remember(
        self, key: Any, x: Tensor, operator: str | None, signs: Any, transpose: bool, in_place: bool = False, layout: Any = None
    ) -> None:
        text, n, device = operators.resolved(tuple(x.shape), operator or "", signs is not None, transpose), x.shape[-1], x.get_device()
        encoding = None if layout is None else layout.text
        problem = problem_of(x, self.scale, self.variant, in_place, n, n, operator=text, encoding=encoding)
        if _c.library.fwht_supports(problem, self.name, device) == 0:  # else x does not stay where it lies
            self.keep(key, problem, device, more=(*operators.operand_sizes(text), layout))

    def enqueue(
        self, entry: tuple, x: Tensor, out: Tensor, signs: Any, dense: Any, scales: Any = None, tensor_scale: Any = None
    ) -> None:
        source, device = x.data_ptr(), x.get_device()
        if not source:  # no rows
            return
        if signs is None and dense is None and scales is None:
            self.execute(entry, source, out.data_ptr(), device)
            return
        operands = _c.Operands(
            _OPERANDS_SIZE, source, out.data_ptr(), None if signs is None else signs.data_ptr(),
            None if dense is None else dense.data_ptr(),
        )  # fmt: skip
        if scales is not None:
            operands.scales, operands.scales_bytes = scales.data_ptr() or None, scales.untyped_storage().nbytes()
            operands.tensor_scale = 0.0 if tensor_scale is None else float(tensor_scale)
        stream = raw_stream(device) if device >= 0 else None
        if status := _c_transform_operands(entry[1], self.name, ctypes.addressof(operands), device, stream):
            _c.fail(status, device)


def _is_operand(given: Any, count: int, dtype: torch.dtype, device: int) -> bool:
    if given is None or count == 0:
        return given is None and count == 0
    return (
        type(given) in PLAIN and given.numel() == count and given.dtype is dtype and given.is_contiguous()
        and given.get_device() == device and not given.requires_grad
    )  # fmt: skip


# (scale, variant) of H_n, or (scale, variant, operator, transpose, encoding) -> Call
calls = _c.Cache(1024)


def call_of(*asked: Any) -> Call:
    try:
        call = calls.get(asked)
    except TypeError:  # an argument that cannot be hashed; it is refused with a sentence
        return Call(*asked)
    return calls.put(asked, Call(*asked)) if call is None else call


def forget() -> None:
    """Gives kept plans back."""
    for call in calls.values():
        call.prepared.clear()
