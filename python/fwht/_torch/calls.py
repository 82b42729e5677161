"""Plain tensors into the library without the dispatcher: that is what the host time of an eager call is made of.

A call of a kind that went well before costs one lookup of what was prepared for it, then one call of C with addresses: no struct
is made, nothing is checked twice. Only signs, dense factors and scales need a struct of operands.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from typing import Any, Callable

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from .. import _c, array, operators
from ..array import View

DTYPES = {
    torch.float16: _c.F16, torch.bfloat16: _c.BF16, torch.float32: _c.F32, torch.float64: _c.F64, torch.int32: _c.I32,
    torch.int64: _c.I64,
}  # fmt: skip
PLAIN = (torch.Tensor, torch.nn.Parameter)

_c_transform = _c.transform
_c_transform_operands = _c.library.fwht_transform_operands
_c_plan_execute = _c.library.fwht_plan_execute
# _c.Operands as bytes: made in a tenth of the time.
_LETTERS = {ctypes.c_size_t: "N", ctypes.c_void_p: "P", ctypes.c_int64: "q", ctypes.c_double: "d"}
_operands = struct.Struct("".join(_LETTERS[field[1]] for field in _c.Operands._fields_))
_pack_operands, _OPERANDS_SIZE = _operands.pack, _operands.size
_empty_like = torch.empty_like
_get_num_threads = torch.get_num_threads


def _current_stream(device: int) -> int:
    return torch.cuda.current_stream(device).cuda_stream


raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", _current_stream)


def place_of(x: Tensor) -> int:
    """Of a key: the device, or how many threads the host has."""
    device: int = x.get_device()
    return device if device >= 0 else -_get_num_threads()


def blank(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """For torch.empty_like, which makes a contiguous tensor of it in half the time that naming shape, dtype and device takes. It has no
    memory."""
    if 0 in shape:
        return torch.empty(shape, dtype=dtype, device=device)
    like = torch.empty(1, dtype=dtype, device=device).expand(shape)
    like.untyped_storage().resize_(0)
    return like


def require_memory(x: Tensor) -> None:
    if x.numel() and not x.data_ptr():
        raise ValueError(f"fwht: a tensor of shape {tuple(x.shape)} has no memory; its storage was freed (resized to 0)")


def kept_beside(kept: dict[Any, Any], key: Any, make: Callable[[], Any]) -> Any:
    """What `make` gives, a tensor or several, kept under `key`: not where it stands for memory only (fake tensors), and never as
    tensors of inference mode, which a later call could not save for its gradient, or of a level of torch.func, which ends.

    A graph of torch.compile makes its own at first. The next call has one that finds them kept."""
    found = kept.get(key)
    if torch.compiler.is_compiling():  # which traces none of the questions below
        without_gradients = (key, "without gradients")  # may be of inference mode
        if found is None and not torch.is_grad_enabled():
            found = kept.get(without_gradients)
        if found is None:
            found = make()
            in_a_level = isinstance(torch._C._functorch.peek_interpreter_stack(), torch._C._functorch.CInterpreter)
            if torch.compiler.is_dynamo_compiling() and not in_a_level:
                kept[key if torch.is_grad_enabled() else without_gradients] = found
        return found
    if found is None or torch._C._len_torch_dispatch_stack():  # of fake tensors, for example, which take no others beside them
        tracing = torch._C._get_tracing_state()  # of torch.jit.trace, whose graph would differ from the next call's
        torch._C._set_tracing_state(None)
        try:
            with torch.inference_mode(False), temporarily_clear_interpreter_stack():
                found = make()
        finally:
            torch._C._set_tracing_state(tracing)
        if all(type(each) is Tensor for each in (found if isinstance(found, tuple) else (found,))):
            kept.setdefault(key, found)  # graphs of CUDA may read what is there
    return found


def is_foreign(x: Tensor) -> bool:
    """No dense memory of the CPU or a CUDA device, nor a stand-in for such."""
    return x.is_nested or x.layout is not torch.strided or x.device.type not in ("cpu", "cuda", "meta")


def require_dense(x: Tensor) -> None:
    if x.is_nested:  # with layout torch.strided it has no shape either
        raise NotImplementedError("fwht: nested tensors are not supported; give their rows, such as x.values() of layout torch.jagged")
    if x.layout is not torch.strided:
        raise NotImplementedError(f"fwht: layout {x.layout} is not supported; x must be a dense tensor")


def view_of(x: Tensor) -> View:
    require_dense(x)
    if not (x.is_cpu or x.is_cuda) or x.is_neg():
        raise NotImplementedError(
            f"fwht: a tensor on {x.device}{', negative bit set,' if x.is_neg() else ''} is not "
            "supported here; it must be dense memory of the CPU or a CUDA device"
        )
    if not torch.compiler.is_compiling() and torch._C._functorch.is_functorch_wrapped_tensor(x):
        raise NotImplementedError("fwht: a tensor inside torch.func (vmap, grad, ...) has no memory, which this call reads; call it outside")
    device = x.get_device()
    require_memory(x)
    return View(
        x.data_ptr(), tuple(x.shape), x.stride(), DTYPES.get(x.dtype), str(x.dtype), device,
        raw_stream(device) if x.is_cuda else None, True,
        lambda: torch.empty(x.shape, dtype=x.dtype, device=x.device),
        _get_num_threads() if device < 0 else 0,
    )  # fmt: skip


def described(x: Tensor, strides: tuple[int, ...] = (), writable: bool = True) -> View:
    """`view_of` without an address, for checks: tensors inside torch.func and torch.compile have none, nor strides in torch.func."""
    require_dense(x)
    return View(0, tuple(x.shape), strides, DTYPES.get(x.dtype), str(x.dtype), x.get_device(), None, writable, None)


def problem_of(
    x: Tensor, scale: Any, variant: str | None, in_place: bool, in_stride: int = 0, out_stride: int = 0, **more: Any
) -> _c.Problem:
    require_dense(x)
    if x.device.type not in ("cpu", "cuda"):
        raise NotImplementedError(f"fwht: device {x.device} is not supported; cpu and cuda are")
    device = x.get_device()
    if device >= 0:
        _c.needs_cuda_build()
    return _c.make_problem(
        x.shape, DTYPES.get(x.dtype), str(x.dtype), scale, in_place=in_place, device=device, in_stride=in_stride,
        out_stride=out_stride, threads=_get_num_threads() if device < 0 else 0, variant=_c.encoded(variant), **more,
    )  # fmt: skip


# What went well before: (x.shape, x.dtype, place, ...) -> (source, target, stream) -> status, by the kept plan where there is one;
# the variant as C wants it, the problem's address and owner, and what the kind of call needs besides. Behind the place come
# scale and variant, which are all for a new contiguous tensor of H_n, or another kind of call: _IN_PLACE and _INTO with strides,
# operators and codes with what they name.
prepared = _c.Cache()
_get = prepared.get
_IN_PLACE, _INTO = "in place", "into"
forget = prepared.clear  # gives kept plans back


def plain_scale(scale: Any) -> float | None:
    """For a key, in which 1 + 0j, which is refused, would be 1.0. `new` and `replace` make no call of it."""
    return scale if scale is None or type(scale) is float else _c.checked_scale(scale)


def find(key: tuple) -> Any:
    try:
        return _get(key)
    except TypeError:  # an argument that cannot be hashed; it is refused with a sentence
        return None


def new(x: Tensor, scale: Any, variant: str | None, *_: Any) -> Tensor:
    """H_n x out of place, without gradients."""
    if not x.is_contiguous():
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        into(x, out, scale, variant)
        return out
    device = x.get_device()
    if scale is not None and type(scale) is not float:
        scale = _c.checked_scale(scale)
    key = (x.shape, x.dtype, device if device >= 0 else -_get_num_threads(), scale, variant)
    try:
        entry = _get(key)
    except TypeError:  # as in `find`; here and below without another Python call
        entry = None
    if entry is None:
        problem = problem_of(x, scale, variant, False)
        require_memory(x)
        out = _empty_like(x)
        _first(key, problem, variant, x.data_ptr(), out.data_ptr(), device)
        return out
    out = _empty_like(x)
    if source := x.data_ptr():
        status = entry[0](source, out.data_ptr(), raw_stream(device) if device >= 0 else None)
        if status:
            _c.fail(status, device)
    else:
        require_memory(x)
    return out


def _keep(key: tuple, problem: _c.Problem, variant: str | None, device: int, plan: Any = None, more: Any = None) -> tuple:
    name = _c.encoded(variant)
    address, ordinal = ctypes.c_void_p(ctypes.addressof(problem)), ctypes.c_int32(device)  # which saves conversions

    def without_plan(source: int, target: int, stream: int | None) -> int:
        return _c_transform(address, name, source, target, ordinal, stream)

    execute = functools.partial(_c_plan_execute, plan.handle) if plan else without_plan
    entry = execute, name, address, (problem, plan), more
    is_zero = problem.flags & _c.SCALE_AS_GIVEN and problem.scale == 0  # 0.0 and -0.0 are one key, and give other zeros
    return entry if is_zero else prepared.put(key, entry)


def _first(key: tuple, problem: _c.Problem, variant: str | None, source: int, target: int, device: int) -> None:
    """The first call, which finds the plan for later ones, if all streams share one."""
    plan, name = None, _c.encoded(variant)
    if source:  # else no rows
        stream = raw_stream(device) if device >= 0 else None
        if status := _c_transform(ctypes.addressof(problem), name, source, target, device, stream):
            _c.fail(status, device)
        plan = _c.kept_plan(problem, name, device)
    _keep(key, problem, variant, device, plan)


def into(x: Tensor, out: Tensor, scale: Any, variant: str | None) -> None:
    """Into `out`, whose rows must have a constant stride; it may be x itself. x has any strides."""
    device, scale = x.get_device(), plain_scale(scale)
    key = (x.shape, x.dtype, device if device >= 0 else -_get_num_threads(), scale, variant, _INTO, x.stride(), out.stride())
    entry = find(key)
    source, target = x.data_ptr(), out.data_ptr()
    if entry is None or (source < target + entry[4][2] and target < source + entry[4][1]):
        problem_of(x, scale, variant, True)  # n, dtype and scale first
        view, to = view_of(x), view_of(out)
        array.in_place_stride(to, "out")
        if array.same_memory(view, to):
            replace(out, scale, variant)
            return
        if entry is None:
            entry = _prepare_into(key, x, out, scale, variant, view.span(), to.span())
    if x.numel() == 0:
        return
    require_memory(x)
    require_memory(out)
    if entry[4][0]:
        _c.require_aligned(entry[3][0], entry[1], device, target)
        with torch.no_grad():
            out.copy_(x)
        source = target
    if status := entry[0](source, target, raw_stream(device) if device >= 0 else None):
        _c.fail(status, device)


def _prepare_into(key: tuple, x: Tensor, out: Tensor, scale: Any, variant: str | None, *spans: tuple[int, int]) -> tuple:
    name, device = _c.encoded(variant), x.get_device()
    in_stride = _c.row_stride(x.shape, x.stride())
    out_stride = _c.row_stride(out.shape, out.stride()) or 0
    problem, gather = None, True
    if in_stride is not None:
        problem, gather = problem_of(x, scale, variant, False, in_stride, out_stride), False
        if in_stride != out_stride:  # some variants want one distance for both
            gather = _c.library.fwht_supports(problem, name, device) != 0
    if gather:
        problem = problem_of(x, scale, variant, True, out_stride, out_stride)
        if status := _c.library.fwht_supports(problem, name, device):
            _c.fail(status, device)  # before anything is copied
    assert problem is not None
    return _keep(key, problem, variant, device, more=(gather, *(last - first for first, last in spans)))


def replace(x: Tensor, scale: Any, variant: str | None, *_: Any) -> Tensor:
    """In place; does not raise the version counter."""
    device = x.get_device()
    if scale is not None and type(scale) is not float:
        scale = _c.checked_scale(scale)
    key = (x.shape, x.dtype, device if device >= 0 else -_get_num_threads(), scale, variant, _IN_PLACE, x.stride())
    try:
        entry = _get(key)
    except TypeError:
        entry = None
    pointer = x.data_ptr()
    if entry is None:
        problem_of(x, scale, variant, True)  # n, dtype and scale first
        stride = array.in_place_stride(view_of(x))
        _first(key, problem_of(x, scale, variant, True, stride, stride), variant, pointer, pointer, device)
    elif pointer:
        status = entry[0](pointer, pointer, raw_stream(device) if device >= 0 else None)
        if status:
            _c.fail(status, device)
    else:
        require_memory(x)
    return x


# Operators and codes: the first call of a kind goes where every sentence is; if it went well, `remember` makes the next one
# short.


def known(key: tuple, x: Tensor, signs: Any, dense: Any) -> Any:
    """The entry of a call that went well before, if these operands need no sentence."""
    entry = find(key)
    if entry is None:
        return None
    device = x.get_device()
    signs_bytes, dense_entries = entry[4][:2]
    fits = _is_operand(signs, signs_bytes, torch.uint8, device) and _is_operand(dense, dense_entries, x.dtype, device)
    return entry if fits else None


def remember(
    key: tuple, x: Tensor, operator: str | None, signs: Any, scale: Any, variant: str | None, transpose: bool,
    in_place: bool = False, layout: Any = None, codes: tuple | None = None,
) -> None:  # fmt: skip
    """`codes`: codes and scales, as they are returned."""
    text, n, device = operators.resolved(tuple(x.shape), operator or "", signs is not None, transpose), x.shape[-1], x.get_device()
    encoding = None if layout is None else layout.text
    problem = problem_of(x, scale, variant, in_place, n, n, operator=text, encoding=encoding)
    if _c.library.fwht_supports(problem, _c.encoded(variant), device) == 0:  # else x does not stay where it lies
        _keep(key, problem, variant, device, more=(*operators.operand_sizes(text), layout, None if codes is None else _like(*codes)))


def _like(codes: Tensor, scales: Tensor) -> tuple | None:
    """What the next ones are like, and the bytes of scales; None where scales are a view of a larger buffer, or lie in other strides."""
    count = scales.numel() * scales.element_size()
    rows_in_order = torch.empty(scales.shape, device="meta").stride()
    if scales.stride() != rows_in_order or scales.untyped_storage().nbytes() != count:  # the stride of one column counts, too
        return None
    return *(blank(given.shape, given.dtype, given.device) for given in (codes, scales)), count


def enqueue(
    entry: tuple, x: Tensor, out: Tensor, signs: Any, dense: Any, scales: Any = None, scales_bytes: int = 0, tensor_scale: Any = None
) -> None:
    source, target, device = x.data_ptr(), out.data_ptr(), x.get_device()
    if not source or not target:
        require_memory(x)
        require_memory(out)  # else no rows
        if scales is not None:
            scales.zero_()  # a whole tensor has one for nothing, too
        return
    stream = raw_stream(device) if device >= 0 else None
    if signs is None and dense is None and scales is None:
        if status := entry[0](source, target, stream):
            _c.fail(status, device)
        return
    number, at = 0.0, 0
    if tensor_scale is not None:
        if isinstance(tensor_scale, Tensor):
            at = tensor_scale.data_ptr()
        else:
            number = tensor_scale
    operands = _pack_operands(
        _OPERANDS_SIZE, source, target, 0 if signs is None else signs.data_ptr(), 0 if dense is None else dense.data_ptr(),
        0 if scales is None else scales.data_ptr(), scales_bytes, number, 0, 0.0, 0, 0, 0, at, 0, 0,
    )  # fmt: skip
    if status := _c_transform_operands(entry[2], entry[1], operands, device, stream):
        _c.fail(status, device)


def is_scale_of_tensor(given: Any, x: Tensor) -> bool:
    """None, a number or a tensor beside x that needs no sentence."""
    if given is None or type(given) is float:
        return given is None or 0 < given < math.inf
    return _is_operand(given, 1, torch.float32, x.get_device())


def _is_operand(given: Any, count: int, dtype: torch.dtype, device: int) -> bool:
    if given is None or count == 0:
        return given is None and count == 0
    return (
        type(given) in PLAIN and given.numel() == count and given.dtype is dtype and given.is_contiguous()
        and given.get_device() == device and not given.requires_grad and given.data_ptr() != 0
    )  # fmt: skip
