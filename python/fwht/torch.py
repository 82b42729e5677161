"""PyTorch: eager calls straight into the library, and the operators torch.ops.fwht.* for graphs.

Plain tensors take the shortest way, without the dispatcher: that is what the host time of an eager call is made of.
Whatever the dispatcher must see (compilation, export, fake and meta tensors, subclasses, modes, torch.jit.trace)
goes through the operators, which end in the same function.

    fwht::hadamard_transform(Tensor x, float? scale=None, str? variant=None, bool transpose=False) -> Tensor
    fwht::hadamard_transform_(Tensor(a!) x, float? scale=None, str? variant=None, bool transpose=False) -> ()
    fwht::apply_operator(Tensor x, str operator="", Tensor? signs=None, Tensor? dense=None, float? scale=None,
                         bool transpose=False, str? variant=None) -> Tensor

Saved graphs depend on these: arguments are only appended, with defaults. scale=None is 1/sqrt(n). `transpose` changes
nothing for H_n, which is symmetric; backward passes it on, so that it stays right for operators that are not.
There is no operator with an `out` argument: graphs get a copy of the functional one instead, because Inductor may
reorder operators that write one tensor and read another (pytorch issue 198031).
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, NoReturn

import torch

from . import _c, array, operators
from . import linear as _linear
from . import quantize as _quantize
from .array import View

Tensor = torch.Tensor

_DTYPES = {torch.float16: _c.F16, torch.bfloat16: _c.BF16, torch.float32: _c.F32, torch.float64: _c.F64}
_PLAIN = (torch.Tensor, torch.nn.Parameter)

_c_transform = _c.transform
_c_plan_execute = _c.library.fwht_plan_execute
_empty_like = torch.empty_like
_dense_layout = torch.strided
_is_compiling = torch.compiler.is_compiling
_is_dynamo_compiling = torch.compiler.is_dynamo_compiling
_is_grad_enabled = torch.is_grad_enabled
_increment_version = torch.autograd.graph.increment_version
_functorch_active = torch._C._are_functorch_transforms_active
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_is_tracing = torch._C._is_tracing
_get_num_threads = torch.get_num_threads
_forward_ad = torch.autograd.forward_ad
_unwrap_if_dead = torch._C._functorch.unwrap_if_dead


def _current_stream(device: int) -> int:
    return torch.cuda.current_stream(device).cuda_stream


_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", _current_stream)

# --- plain tensors ---------------------------------------------------------------------------------------------------

# What was asked for -> address of the struct, name of the variant, the struct, and whether x is gathered first; in place the
# kept plan or None.
_strided, _in_place = _c.Cache(), _c.Cache()
# (scale, variant) -> _Call
_calls = _c.Cache(1024)


def _problem(
    x: Tensor, scale: Any, variant: str | None, in_place: bool, in_stride: int = 0, out_stride: int = 0
) -> _c.Problem:
    if x.layout is not torch.strided:
        raise NotImplementedError(f"fwht: layout {x.layout} is not supported; x must be a dense tensor")
    if x.device.type not in ("cpu", "cuda"):
        raise NotImplementedError(f"fwht: device {x.device} is not supported; cpu and cuda are")
    device = x.get_device()
    if device >= 0:
        _c.needs_cuda_build()
    return _c.make_problem(
        x.shape, _DTYPES.get(x.dtype), str(x.dtype), scale, in_place=in_place, device=device, in_stride=in_stride,
        out_stride=out_stride, threads=_get_num_threads() if device < 0 else 0, variant=_c.encoded(variant),
    )  # fmt: skip


def _fetch(cache: _c.Cache, key: Any) -> Any:
    try:
        return cache.get(key)
    except TypeError:  # an argument that cannot be hashed; it is refused with a sentence
        return None


def _launch(entry: Any, source: int, target: int, device: int) -> None:
    status = _c_transform(entry[0], entry[1], source, target, device, _raw_stream(device) if device >= 0 else None)
    if status:
        _c.fail(status, device)


def _launch_first(problem: _c.Problem, name: bytes | None, source: int, target: int, device: int) -> _c.KeptPlan | None:
    """The plan for later calls, if all streams share one."""
    if not source:  # no rows
        return None
    _launch((ctypes.addressof(problem), name), source, target, device)
    return _c.kept_plan(problem, name, device)


class _Call:
    """The transform of plain tensors out of place, by one scale and variant: what can be done once is done once.

    Attributes:
        run: (ctx, x) -> result, without gradients; `ctx` is for torch.autograd.Function and not used.
        apply: x -> result, with a gradient. A class for each scale, since every further argument of Function.apply costs.
        forget: gives its plans back.
    """

    __slots__ = ("run", "apply", "forget")

    def __init__(self, scale: Any, variant: str | None):
        _c.checked_scale(scale)
        name = _c.encoded(variant)
        prepared = _c.Cache()  # shape, dtype and place -> the kept plan or None, what fwht_transform needs without it, owners
        get = prepared.get

        def run(ctx: Any, x: Tensor) -> Tensor:
            if not x.is_contiguous():
                return _new_strided(x, scale, variant)
            device = x.get_device()
            key = (x.shape, x.dtype, device if device >= 0 else -_get_num_threads())
            entry = get(key)
            if entry is None:
                return run_first(x, key)
            out = _empty_like(x)
            source = x.data_ptr()
            if source:
                stream = _raw_stream(device) if device >= 0 else None
                if entry[0]:
                    status = _c_plan_execute(entry[0], source, out.data_ptr(), stream)
                else:
                    status = _c_transform(entry[1], name, source, out.data_ptr(), entry[2], stream)
                if status:
                    _c.fail(status, device)
            return out

        def run_first(x: Tensor, key: Any) -> Tensor:
            problem = _problem(x, scale, variant, False)
            # As ctypes wants them, which saves conversions.
            address, device = ctypes.c_void_p(ctypes.addressof(problem)), ctypes.c_int32(x.get_device())
            out = _empty_like(x)
            plan = _launch_first(problem, name, x.data_ptr(), out.data_ptr(), device.value)
            prepared.put(key, (plan and plan.handle, address, device, problem, plan))
            return out

        class HadamardTransform(torch.autograd.Function):
            forward = staticmethod(run)

            @staticmethod
            def backward(ctx: Any, grad: Tensor) -> Tensor:  # H_n is symmetric; differentiable again
                return functional(grad, scale, variant)

        self.run, self.forget = run, prepared.clear
        self.apply = super(torch.autograd.Function, HadamardTransform).apply  # past Function.apply, which looks for torch.func


def _prepared(scale: Any, variant: str | None) -> _Call:
    call = _fetch(_calls, (scale, variant))
    return _calls.put((scale, variant), _Call(scale, variant)) if call is None else call


def _new(x: Tensor, scale: Any, variant: str | None) -> Tensor:
    """Out of place, by the library; x is a plain tensor in memory."""
    return _prepared(scale, variant).run(None, x)


def forget() -> None:
    """Gives kept plans back."""
    _in_place.clear()
    for call in _calls.values():
        call.forget()


def _new_strided(x: Tensor, scale: Any, variant: str | None) -> Tensor:
    _problem(x, scale, variant, True)  # n, dtype and scale first
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _into(x, out, scale, variant)
    return out


def _into(x: Tensor, out: Tensor, scale: Any, variant: str | None) -> None:
    """Out of place into `out`, whose rows lie at one distance. x has any strides."""
    device = x.get_device()
    where = device if device >= 0 else -_get_num_threads()
    key = (x.shape, x.stride(), out.stride(), x.dtype, scale, variant, where)
    entry = _fetch(_strided, key)
    if entry is None:
        in_stride = _c.row_stride(x.shape, x.stride())
        out_stride = _c.row_stride(out.shape, out.stride()) or 0
        problem, gather = None, True
        if in_stride is not None:
            problem, gather = _problem(x, scale, variant, False, in_stride, out_stride), False
            if in_stride != out_stride:  # some variants want one distance for both
                gather = _c.library.fwht_supports(problem, _c.encoded(variant), device) != 0
        if gather:
            problem = _problem(x, scale, variant, True, out_stride, out_stride)
            if status := _c.library.fwht_supports(problem, _c.encoded(variant), device):
                _c.fail(status, device)  # before anything is copied
        entry = _strided.put(key, (ctypes.addressof(problem), _c.encoded(variant), problem, gather))
    if x.numel() == 0:
        return
    target = out.data_ptr()
    if entry[3]:
        with torch.no_grad():
            out.copy_(x)
        _launch(entry, target, target, device)
    else:
        _launch(entry, x.data_ptr(), target, device)


def _replace(x: Tensor, scale: Any, variant: str | None) -> None:
    """In place, by the library; does not raise the version counter."""
    device = x.get_device()
    key = (x.shape, x.stride(), x.dtype, scale, variant, device if device >= 0 else -_get_num_threads())
    entry = _fetch(_in_place, key)
    if entry is None:
        _problem(x, scale, variant, True)  # n, dtype and scale first
        stride = array.in_place_stride(view_of(x))
        problem, name = _problem(x, scale, variant, True, stride, stride), _c.encoded(variant)
        plan = _launch_first(problem, name, x.data_ptr(), x.data_ptr(), device)
        _in_place.put(key, (ctypes.addressof(problem), name, problem, plan))
        return
    pointer = x.data_ptr()
    if not pointer:
        return
    if entry[3] is None:
        _launch(entry, pointer, pointer, device)
    elif status := _c_plan_execute(entry[3].handle, pointer, pointer, _raw_stream(device) if device >= 0 else None):
        _c.fail(status, device)


def view_of(x: Tensor) -> View:
    """For `Plan.execute`, which takes arrays of every library."""
    if x.layout is not torch.strided or not (x.is_cpu or x.is_cuda) or x.is_neg():
        raise NotImplementedError(
            f"fwht: a tensor of layout {x.layout} on {x.device}{', negative bit set,' if x.is_neg() else ''} is not "
            "supported here; it must be dense memory of the CPU or a CUDA device"
        )
    device = x.get_device()
    return View(
        x.data_ptr(), tuple(x.shape), x.stride(), _DTYPES.get(x.dtype), str(x.dtype), device,
        _raw_stream(device) if x.is_cuda else None, True,
        lambda: torch.empty(x.shape, dtype=x.dtype, device=x.device),
    )  # fmt: skip


def check_not_differentiated(*tensors: Any) -> None:
    if _is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in tensors):
        raise RuntimeError(
            "fwht: Plan.execute does not support automatic differentiation, but one of the tensors requires grad; "
            "call hadamard_transform, or execute the plan under torch.no_grad()"
        )


def mark_written(x: Any) -> None:
    """Autograd must notice that a saved tensor was overwritten."""
    if isinstance(x, Tensor) and not x.is_inference():
        _increment_version(x)


# --- operators -------------------------------------------------------------------------------------------------------

_library = torch.library.Library("fwht", "DEF")
_ARGUMENTS = "float? scale=None, str? variant=None, bool transpose=False"
_library.define(f"hadamard_transform(Tensor x, {_ARGUMENTS}) -> Tensor")
_library.define(f"hadamard_transform_(Tensor(a!) x, {_ARGUMENTS}) -> ()")


def _kernel(x: Tensor, scale: Any = None, variant: str | None = None, transpose: bool = False) -> Tensor:
    return _new(x, scale, variant)


def _kernel_(x: Tensor, scale: Any = None, variant: str | None = None, transpose: bool = False) -> None:
    _replace(x, scale, variant)


for _key in ("CPU", "CUDA"):
    _library.impl("hadamard_transform", _kernel, _key)
    _library.impl("hadamard_transform_", _kernel_, _key)
_op = torch.ops.fwht.hadamard_transform.default
_op_ = torch.ops.fwht.hadamard_transform_.default


def _check_fake(x: Tensor, scale: Any) -> None:
    if x.dim() == 0:
        raise ValueError("fwht: x must have at least one dimension, whose length is n; it is a scalar")
    if x.dtype not in _DTYPES or (x.dtype is torch.float64 and x.device.type == "cuda"):
        raise TypeError(f"fwht: dtype {x.dtype} {_c.DTYPE_RULE}")
    _c.checked_scale(scale)
    n = x.shape[-1]
    if isinstance(n, int) and (n < 2 or n & (n - 1)):
        raise ValueError(f"fwht: n={n} must be a power of two of at least 2")


@torch.library.register_fake("fwht::hadamard_transform")
def _(x: Tensor, scale: Any = None, variant: str | None = None, transpose: bool = False) -> Tensor:
    _check_fake(x, scale)
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


@torch.library.register_fake("fwht::hadamard_transform_")
def _(x: Tensor, scale: Any = None, variant: str | None = None, transpose: bool = False) -> None:
    _check_fake(x, scale)


def _op_setup(ctx: Any, inputs: tuple, output: Any) -> None:
    ctx.scale, ctx.variant, ctx.transpose = inputs[1:]


def _op_backward(ctx: Any, grad: Tensor) -> tuple:
    return _op(grad, ctx.scale, ctx.variant, not ctx.transpose), None, None, None


torch.library.register_autograd("fwht::hadamard_transform", _op_backward, setup_context=_op_setup)


@torch.library.register_vmap("fwht::hadamard_transform")
def _(info: Any, in_dims: tuple, x: Tensor, scale: Any = None, variant: str | None = None, transpose: bool = False):
    return _op(x.movedim(in_dims[0], 0), scale, variant, transpose), 0


def _in_place_below_autograd(
    keyset: Any, x: Tensor, scale: Any = None, variant: str | None = None, transpose: bool = False
) -> None:
    # A kernel of torch.library leaves x._version as it was, and autograd would not notice the write.
    with torch._C._AutoDispatchBelowADInplaceOrView():
        _op_.redispatch(keyset & torch._C._after_ADInplaceOrView_keyset, x, scale, variant, transpose)
    _increment_version(x)


_library.impl("hadamard_transform_", _in_place_below_autograd, "ADInplaceOrView", with_keyset=True)

# --- operators other than H_n ----------------------------------------------------------------------------------------

_library.define(
    'apply_operator(Tensor x, str operator="", Tensor? signs=None, Tensor? dense=None, float? scale=None, '
    "bool transpose=False, str? variant=None) -> Tensor"
)


def _apply_operator(
    x: Tensor, operator: str = "", signs: Tensor | None = None, dense: Tensor | None = None, scale: Any = None,
    transpose: bool = False, variant: str | None = None,
) -> Tensor:  # fmt: skip
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _run_operator(x, out, operator, signs, dense, scale, transpose, variant)
    return out


def _run_operator(
    x: Tensor, out: Tensor, operator: str, signs: Any, dense: Any, scale: Any, transpose: bool, variant: str | None
) -> None:
    def copy() -> None:
        with torch.no_grad():
            out.copy_(x)

    text = operators.resolved(tuple(x.shape), operator, signs is not None, transpose)
    operators.run(view_of(x), view_of(out), text, signs, dense, scale, variant, copy)


for _key in ("CPU", "CUDA"):
    _library.impl("apply_operator", _apply_operator, _key)
_op_operator = torch.ops.fwht.apply_operator.default


@torch.library.register_fake("fwht::apply_operator")
def _(
    x: Tensor, operator: str = "", signs: Tensor | None = None, dense: Tensor | None = None, scale: Any = None,
    transpose: bool = False, variant: str | None = None,
) -> Tensor:  # fmt: skip
    _check_operator(x, operator, signs, scale, transpose)
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _check_operator(x: Tensor, operator: str, signs: Any, scale: Any, transpose: bool) -> None:
    if x.dtype not in _DTYPES or (x.dtype is torch.float64 and x.device.type == "cuda"):
        raise TypeError(f"fwht: dtype {x.dtype} {_c.DTYPE_RULE}")
    _c.checked_scale(scale)
    operators.resolved(tuple(x.shape[-1:]) and (int(x.shape[-1]),), operator, signs is not None, transpose)


def _operator_setup(ctx: Any, inputs: tuple, output: Any) -> None:
    _, ctx.operator, signs, dense, ctx.scale, ctx.transpose, ctx.variant = inputs
    ctx.save_for_backward(*(t for t in (signs, dense) if t is not None))
    ctx.has = signs is not None, dense is not None


def _operator_backward(ctx: Any, grad: Tensor) -> tuple:
    saved = list(ctx.saved_tensors)
    signs, dense = (saved.pop(0) if there else None for there in ctx.has)
    given = _op_operator(grad, ctx.operator, signs, dense, ctx.scale, not ctx.transpose, ctx.variant)
    return given, None, None, None, None, None, None


torch.library.register_autograd("fwht::apply_operator", _operator_backward, setup_context=_operator_setup)


@torch.library.register_vmap("fwht::apply_operator")
def _(
    info: Any, in_dims: tuple, x: Tensor, operator: str = "", signs: Any = None, dense: Any = None, scale: Any = None,
    transpose: bool = False, variant: str | None = None,
):  # fmt: skip
    if any(dim is not None for dim in in_dims[1:]):
        raise NotImplementedError("fwht: vmap goes over x, not over signs or dense factors")
    return _op_operator(x.movedim(in_dims[0], 0), operator, signs, dense, scale, transpose, variant), 0


# What was asked for -> address of the struct, name of the variant, the struct, bytes of signs, entries of dense factors, and
# for codes their layout.
_by_operator, _quantized = _c.Cache(), _c.Cache()
_c_transform_operands = _c.library.fwht_transform_operands
_OPERANDS_SIZE = ctypes.sizeof(_c.Operands)


def _is_eager(x: Tensor) -> bool:
    """Nothing but the library needs to see this call, and x lies as a new tensor does."""
    return (
        not (x.requires_grad and _is_grad_enabled()) and not _is_dynamo_compiling() and _is_plain(x)
        and _forward_ad._current_level < 0 and x.is_contiguous()
    )  # fmt: skip


def _is_operand(given: Any, count: int, dtype: torch.dtype, device: int) -> bool:
    if given is None or count == 0:
        return given is None and count == 0
    return (
        type(given) in _PLAIN and given.numel() == count and given.dtype is dtype and given.is_contiguous()
        and given.get_device() == device and not given.requires_grad
    )  # fmt: skip


def _known(cache: _c.Cache, key: Any, x: Tensor, signs: Any, dense: Any) -> Any:
    """The entry of a call that went well before, if these operands need no sentence."""
    entry = _fetch(cache, key)
    if entry is None:
        return None
    device = x.get_device()
    fits = _is_operand(signs, entry[3], torch.uint8, device) and _is_operand(dense, entry[4], x.dtype, device)
    return entry if fits else None


def _enqueue(entry: Any, x: Tensor, out: Tensor, signs: Any, dense: Any, scales: Any = None, tensor_scale: Any = None) -> None:
    source, device = x.data_ptr(), x.get_device()
    if not source:  # no rows
        return
    if signs is None and dense is None and scales is None:
        _launch(entry, source, out.data_ptr(), device)
        return
    operands = _c.Operands(
        _OPERANDS_SIZE, source, out.data_ptr(), None if signs is None else signs.data_ptr(),
        None if dense is None else dense.data_ptr(),
    )  # fmt: skip
    if scales is not None:
        operands.scales, operands.scales_bytes = scales.data_ptr() or None, scales.untyped_storage().nbytes()
        operands.tensor_scale = 0.0 if tensor_scale is None else float(tensor_scale)
    stream = _raw_stream(device) if device >= 0 else None
    if status := _c_transform_operands(entry[0], entry[1], ctypes.addressof(operands), device, stream):
        _c.fail(status, device)


def _is_like(x: Tensor, out: Any) -> bool:
    """Rows of `out` lie as those of a new tensor would."""
    return (
        type(out) in _PLAIN and out.shape == x.shape and out.dtype is x.dtype and out.get_device() == x.get_device()
        and out.is_contiguous() and not out.is_neg() and not (out.requires_grad and _is_grad_enabled())
    )  # fmt: skip


def _remember(
    cache: _c.Cache, key: Any, x: Tensor, operator: str, has_signs: bool, scale: Any, transpose: bool, variant: str | None, *,
    in_place: bool = False, layout: _quantize.Layout | None = None,
) -> None:  # fmt: skip
    """After a call that went well: what the next one of its kind needs, if the variant reads x where it lies."""
    text = operators.resolved(tuple(x.shape), operator, has_signs, transpose)
    n, device, name = x.shape[-1], x.get_device(), _c.encoded(variant)
    problem = _c.make_problem(
        x.shape, _DTYPES[x.dtype], str(x.dtype), scale, in_place=in_place, device=device, in_stride=n, out_stride=n, variant=name,
        threads=_get_num_threads() if device < 0 else 0, operator=text, encoding=None if layout is None else layout.text,
    )  # fmt: skip
    if _c.library.fwht_supports(problem, name, device) == 0:
        cache.put(key, (ctypes.addressof(problem), name, problem, *operators.operand_sizes(text), layout))


def transform_by_operator(
    x: Tensor, operator: str, signs: Any, dense: Any, scale: Any, transpose: bool, out: Any, variant: str | None
) -> Tensor:
    key = None
    if _is_eager(x) and (out is None or out is x or _is_like(x, out)):
        device = x.get_device()
        in_place = out is not None and out.data_ptr() == x.data_ptr()
        where = device if device >= 0 else -_get_num_threads()
        key = (x.shape, x.dtype, operator, signs is None, scale, transpose, variant, in_place, where)
        entry = _known(_by_operator, key, x, signs, dense)
        if entry is not None:
            result = _empty_like(x) if out is None else out
            _enqueue(entry, x, result, signs, dense)
            if out is not None and not out.is_inference():
                _increment_version(out)
            return result
    for name, given in (("signs", signs), ("dense", dense)):
        if given is not None and not isinstance(given, Tensor):
            raise TypeError(f"fwht: {name} is a {type(given).__name__}; for a tensor x it must be a tensor")
    if dense is not None and dense.requires_grad and _is_grad_enabled():
        raise RuntimeError("fwht: dense factors are not differentiated; pass dense.detach()")
    differentiated = _is_grad_enabled() and x.requires_grad
    if differentiated and out is None and not _is_dynamo_compiling() and _is_plain(x) and _forward_ad._current_level < 0:
        return _EagerOperator.apply(x, (operator, signs, dense, scale, transpose, variant))
    if not _is_compiling():  # else the operator's fake function does
        if x.layout is not torch.strided or x.device.type not in ("cpu", "cuda", "meta"):
            _problem(x, scale, variant, False)  # refused
        _check_operator(x, operator, signs, scale, transpose)
        _c.encoded(variant)
    if out is None:
        result = _op_operator(x, operator, signs, dense, scale, transpose, variant)
        if key is not None:
            _remember(_by_operator, key, x, operator, signs is not None, scale, transpose, variant)
        return result
    _check_out(x, out)
    differentiated = differentiated or (_is_grad_enabled() and out.requires_grad)
    if differentiated and out is not x:
        _refuse_out_with_grad("operators.transform")
    if differentiated or _is_compiling() or not _is_plain(x) or not _is_plain(out) or _forward_ad._current_level >= 0:
        return out.copy_(_op_operator(x, operator, signs, dense, scale, transpose, variant))
    _run_operator(x, out, operator, signs, dense, scale, transpose, variant)
    if key is not None:
        _remember(_by_operator, key, x, operator, signs is not None, scale, transpose, variant, in_place=in_place)
    if not out.is_inference():
        _increment_version(out)
    return out


class _EagerOperator(torch.autograd.Function):
    """Gradients of eager calls: a fifth of the host time of an operator with an autograd formula."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, asked: tuple) -> Tensor:
        operator, signs, dense, scale, transpose, variant = asked
        ctx.asked = operator, scale, transpose, variant
        ctx.save_for_backward(signs, dense)  # so that overwriting them is noticed
        return transform_by_operator(x, operator, signs, dense, scale, transpose, None, variant)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:  # differentiable again
        operator, scale, transpose, variant = ctx.asked
        signs, dense = ctx.saved_tensors
        return transform_by_operator(grad, operator, signs, dense, scale, not transpose, None, variant), None


# --- codes and scales ------------------------------------------------------------------------------------------------

_library.define(
    'hadamard_quantize(Tensor x, str encoding, str operator="", Tensor? signs=None, Tensor? dense=None, float? scale=None, '
    "float? tensor_scale=None, bool transpose=False, str? variant=None) -> (Tensor, Tensor)"
)


def _encoded_outputs(x: Tensor, layout: _quantize.Layout) -> tuple[Tensor, Tensor]:
    """Codes and the matrix of scales; x may be fake, its number of rows symbolic."""
    kind = {"e4m3": torch.float8_e4m3fn, "int8": torch.int8}.get(layout.element, torch.uint8)
    codes = torch.empty(_quantize.code_shape(layout, x.shape), dtype=kind, device=x.device)
    if layout.columns == 0:
        return codes, torch.empty(0, dtype=torch.float32, device=x.device)
    rows, columns, _ = layout.storage(x.numel())
    flat = torch.empty(rows * columns, dtype=getattr(torch, layout.scale_dtype), device=x.device)
    return codes, _quantize.shaped(layout, x.shape, flat, torch.as_strided)


def _quantize_kernel(
    x: Tensor, encoding: str, operator: str = "", signs: Tensor | None = None, dense: Tensor | None = None, scale: Any = None,
    tensor_scale: Any = None, transpose: bool = False, variant: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    layout = _quantize.checked(tuple(x.shape), encoding, tensor_scale)
    if _c.row_stride(x.shape, x.stride()) is None:
        x = x.contiguous()
    codes, scales = _encoded_outputs(x, layout)
    _quantize.run(
        view_of(x), view_of(codes), scales.data_ptr() or None, scales.untyped_storage().nbytes(), layout.text, operator, signs,
        dense, scale, tensor_scale, transpose, variant,
    )  # fmt: skip
    return codes, scales


for _key in ("CPU", "CUDA"):
    _library.impl("hadamard_quantize", _quantize_kernel, _key)
_op_quantize = torch.ops.fwht.hadamard_quantize.default


@torch.library.register_fake("fwht::hadamard_quantize")
def _(
    x: Tensor, encoding: str, operator: str = "", signs: Tensor | None = None, dense: Tensor | None = None, scale: Any = None,
    tensor_scale: Any = None, transpose: bool = False, variant: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    _check_operator(x, operator, signs, scale, transpose)
    layout = _quantize.checked((int(x.shape[-1]),), encoding, tensor_scale)
    return _encoded_outputs(x, layout)


def quantize(
    x: Tensor, encoding: str, operator: str, signs: Any, dense: Any, scale: Any, tensor_scale: Any, transpose: bool,
    variant: str | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    key = None
    if _is_eager(x):
        device = x.get_device()
        where = device if device >= 0 else -_get_num_threads()
        key = (x.shape, x.dtype, encoding, operator, signs is None, scale, tensor_scale is None, transpose, variant, where)
        entry = _known(_quantized, key, x, signs, dense)
        if entry is not None and (tensor_scale is None or (type(tensor_scale) is float and 0 < tensor_scale < math.inf)):
            codes, scales = _encoded_outputs(x, entry[5])
            _enqueue(entry, x, codes, signs, dense, scales, tensor_scale)
            return codes, scales
    if x.requires_grad and _is_grad_enabled():
        raise RuntimeError("fwht: hadamard_quantize does not support automatic differentiation, but x requires grad")
    for name, given in (("signs", signs), ("dense", dense)):
        if given is not None and not isinstance(given, Tensor):
            raise TypeError(f"fwht: {name} is a {type(given).__name__}; for a tensor x it must be a tensor")
    if not _is_compiling():  # else the operator's fake function does
        if x.layout is not torch.strided or x.device.type not in ("cpu", "cuda", "meta"):
            _problem(x, scale, variant, False)  # refused
        _quantize.checked(tuple(x.shape), encoding, tensor_scale)
        _check_operator(x, operator, signs, scale, transpose)
        _c.encoded(variant)
    result = _op_quantize(x, encoding, operator, signs, dense, scale, tensor_scale, transpose, variant)
    if key is not None:
        layout = _quantize.checked(tuple(x.shape), encoding, tensor_scale)
        _remember(_quantized, key, x, operator, signs is not None, scale, transpose, variant, layout=layout)
    return result


# --- linear layers ---------------------------------------------------------------------------------------------------

_library.define(
    "gptq_linear(Tensor x, Tensor weights, int n, int group, str zero_points, int rotation, str variant, "
    "bool act_order=False) -> Tensor"
)


def _linear_kernel(
    x: Tensor, weights: Tensor, n: int, group: int, zero_points: str, rotation: int, variant: str, act_order: bool = False
) -> Tensor:
    device, k = x.get_device(), x.shape[-1]
    x = x.contiguous()
    if x.data_ptr() % 16:
        x = x.clone()  # a slice of a larger tensor
    y = torch.empty((*x.shape[:-1], n), dtype=x.dtype, device=x.device)
    _linear.run(
        x.data_ptr(), y.data_ptr(), x.numel() // k, k, n, group, zero_points, str(x.dtype).removeprefix("torch."), rotation,
        act_order, variant, weights.data_ptr(), device, _raw_stream(device) if device >= 0 else None,
    )  # fmt: skip
    return y


for _key in ("CPU", "CUDA"):
    _library.impl("gptq_linear", _linear_kernel, _key)
_op_linear = torch.ops.fwht.gptq_linear.default


@torch.library.register_fake("fwht::gptq_linear")
def _(
    x: Tensor, weights: Tensor, n: int, group: int, zero_points: str, rotation: int, variant: str, act_order: bool = False
) -> Tensor:
    return torch.empty((*x.shape[:-1], n), dtype=x.dtype, device=x.device)


def linear(x: Tensor, packed: _linear.Packed) -> Tensor:
    return linear_by(x, packed, packed.weights, packed.order)


def linear_by(x: Tensor, packed: _linear.Packed, weights: Any, order: Tensor | None) -> Tensor:
    """`packed` with its tensors where a module was moved to."""
    _linear.check(x.shape, str(x.dtype).removeprefix("torch."), packed)
    if not isinstance(weights, Tensor) or x.device != weights.device:
        raise ValueError(f"fwht: x is on {x.device}, the weights are on {getattr(weights, 'device', 'the host')}")
    if x.requires_grad and _is_grad_enabled():
        raise RuntimeError("fwht: linear.forward does not support automatic differentiation, but x requires grad")
    if order is not None:
        x = x.index_select(-1, order)
    asked = (weights, packed.n, packed.group, packed.zero_points, packed.rotation, packed.variant, packed.act_order)
    plain = not _is_compiling() and _is_plain(x) and _forward_ad._current_level < 0
    return _linear_kernel(x, *asked) if plain else _op_linear(x, *asked)


# --- autograd --------------------------------------------------------------------------------------------------------


class _Eager(torch.autograd.Function):
    """Gradients of eager calls that _Call does not take: half the host time of an operator with an autograd formula."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Any, variant: str | None) -> Tensor:
        ctx.scale, ctx.variant = scale, variant
        return _run(x, scale, variant)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:  # H_n is symmetric; differentiable again
        return _apply(grad, ctx.scale, ctx.variant), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        return _Eager.apply(tangent, ctx.scale, ctx.variant)


class _Functional(torch.autograd.Function):
    """The same under torch.func, which needs a context of its own (and costs more)."""

    @staticmethod
    def forward(x: Tensor, scale: Any, variant: str | None) -> Tensor:
        return _run(x, scale, variant)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.scale, ctx.variant = inputs[1:]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        return _Functional.apply(grad, ctx.scale, ctx.variant), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        return _Functional.apply(tangent, ctx.scale, ctx.variant)

    @staticmethod
    def vmap(info: Any, in_dims: tuple, x: Tensor, scale: Any, variant: str | None) -> tuple:
        return _Functional.apply(x.movedim(in_dims[0], 0), scale, variant), 0


class _EagerInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Any, variant: str | None) -> Tensor:
        ctx.scale, ctx.variant = scale, variant
        ctx.mark_dirty(x)  # raises the version counter, and refuses leaves
        _replace(x, scale, variant)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        return _Eager.apply(grad, ctx.scale, ctx.variant), None, None


# --- the call --------------------------------------------------------------------------------------------------------


def _is_plain(x: Tensor) -> bool:
    """Nothing but the library needs to see this call."""
    return (
        type(x) in _PLAIN
        and (x.is_cuda or x.is_cpu)
        and x.layout is _dense_layout
        and not x.is_neg()
        and not _functorch_active()
        and not _dispatch_modes()
        and not _function_modes()
        and not _is_tracing()
    )


def _run(x: Tensor, scale: Any, variant: str | None) -> Tensor:
    """Out of place, without gradients."""
    return _new(x, scale, variant) if _is_plain(x) else _op(x, scale, variant)


def _apply(x: Tensor, scale: Any, variant: str | None) -> Tensor:
    """Out of place, differentiable, outside compilation."""
    if (x.requires_grad and _is_grad_enabled()) or _forward_ad._current_level >= 0 or _functorch_active():
        _check_arguments(x, scale, variant)
        return (_Functional if _functorch_active() else _Eager).apply(x, scale, variant)
    return _run(x, scale, variant)


def _check_arguments(x: Tensor, scale: Any, variant: str | None) -> None:
    """What the dispatcher and autograd would refuse with sentences of their own."""
    _check_fake(x, scale)
    _c.encoded(variant)


def functional(x: Tensor, scale: Any, variant: str | None) -> Tensor:
    """The call without `out` and `inplace`."""
    if not _is_dynamo_compiling() and _is_plain(x) and _forward_ad._current_level < 0:
        try:
            call = _calls.get((scale, variant)) or _prepared(scale, variant)
        except TypeError:  # an argument that cannot be hashed; it is refused with a sentence
            call = _Call(scale, variant)
        if not (x.requires_grad and _is_grad_enabled()):
            return call.run(None, x)
        try:
            return call.apply(x)
        except RuntimeError:
            inner = _unwrap_if_dead(x)
            if inner is x:
                raise
            return call.apply(inner)  # x outlived torch.func
    if _is_compiling():
        return _op(x, scale, variant)  # its fake function checks; scale may be a symbol here
    if x.layout is not torch.strided or x.device.type not in ("cpu", "cuda", "meta"):
        _problem(x, scale, variant, False)  # refused
    return _apply(x, scale, variant)


def transform(x: Tensor, scale: Any, out: Any, inplace: bool, variant: str | None) -> Tensor:
    if out is None and not inplace:
        return functional(x, scale, variant)
    if out is not None:
        if inplace:
            raise ValueError("fwht: out and inplace=True exclude each other")
        return _write_to(x, out, scale, variant)
    grad = x.requires_grad and _is_grad_enabled()
    if _is_compiling():
        if grad:
            return x.copy_(_op(x, scale, variant))
        _op_(x, scale, variant)
        return x
    if not _is_plain(x) or _forward_ad._current_level >= 0:
        _check_arguments(x, scale, variant)
        if grad or _functorch_active() or _forward_ad._current_level >= 0:
            return x.copy_(functional(x, scale, variant))
        _op_(x, scale, variant)
        return x
    if grad:
        return _EagerInPlace.apply(x, scale, variant)
    _replace(x, scale, variant)
    if not x.is_inference():
        _increment_version(x)
    return x


def _check_out(x: Tensor, out: Any) -> None:
    if not isinstance(out, Tensor):
        raise TypeError(f"fwht: out is a {type(out).__name__}; for a tensor x it must be a tensor")
    if out.shape != x.shape or out.dtype != x.dtype or out.device != x.device:
        raise ValueError(
            f"fwht: out is {tuple(out.shape)} {out.dtype} on {out.device}; it must be as x, which is "
            f"{tuple(x.shape)} {x.dtype} on {x.device}"
        )


def _refuse_out_with_grad(name: str) -> NoReturn:
    raise RuntimeError(
        f"fwht: {name} with out= does not support automatic differentiation, but one of the tensors requires grad"
    )


def _write_to(x: Tensor, out: Any, scale: Any, variant: str | None) -> Tensor:
    _check_out(x, out)
    if _is_grad_enabled() and (x.requires_grad or out.requires_grad):
        _refuse_out_with_grad("hadamard_transform")
    if out is x:
        return transform(x, scale, None, True, variant)
    if _is_compiling() or not _is_plain(x) or not _is_plain(out) or _forward_ad._current_level >= 0:
        return out.copy_(functional(x, scale, variant))
    _problem(x, scale, variant, True)  # n, dtype and scale first
    view, target = view_of(x), view_of(out)
    array.in_place_stride(target, "out")
    if array.same_memory(view, target):
        _replace(out, scale, variant)
    else:
        _into(x, out, scale, variant)
    if not out.is_inference():
        _increment_version(out)
    return out
