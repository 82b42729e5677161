"""What Python calls with a tensor. Plain ones take the shortest way, into `calls`; whatever the dispatcher must see
(compilation, export, fake and meta tensors, subclasses, modes, torch.jit.trace) goes through `ops`."""

from __future__ import annotations

import math
from typing import Any, NoReturn

import torch

from .. import _c, array, linear, quantize
from . import ops
from .calls import PLAIN, Call, Tensor, call_of, calls, place_of, problem_of, view_of

_op, _op_, _op_quantize = ops.op, ops.op_, ops.op_quantize
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
_forward_ad = torch.autograd.forward_ad
_unwrap_if_dead = torch._C._functorch.unwrap_if_dead


def _is_plain(x: Tensor) -> bool:
    """Nothing but the library needs to see this call."""
    return (
        type(x) in PLAIN
        and (x.is_cuda or x.is_cpu)
        and x.layout is _dense_layout
        and not x.is_neg()
        and not _functorch_active()
        and not _dispatch_modes()
        and not _function_modes()
        and not _is_tracing()
    )


def _is_like(x: Tensor, out: Any) -> bool:
    """Rows of `out` lie as those of a new tensor would."""
    return (
        type(out) in PLAIN and out.shape == x.shape and out.dtype is x.dtype and out.get_device() == x.get_device()
        and out.is_contiguous() and not out.is_neg() and not (out.requires_grad and _is_grad_enabled())
    )  # fmt: skip


def mark_written(x: Any) -> None:
    """Autograd must notice that a saved tensor was overwritten."""
    if isinstance(x, Tensor) and not x.is_inference():
        _increment_version(x)


def check_not_differentiated(*tensors: Any) -> None:
    if _is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in tensors):
        raise RuntimeError(
            "fwht: Plan.execute does not support automatic differentiation, but one of the tensors requires grad; "
            "call hadamard_transform, or execute the plan under torch.no_grad()"
        )


def _check(x: Tensor, scale: Any, variant: str | None, operator: str | None = "", signs: Any = None, transpose: bool = False) -> None:
    """What the dispatcher and autograd would refuse with sentences of their own."""
    if x.layout is not torch.strided or x.device.type not in ("cpu", "cuda", "meta"):
        problem_of(x, scale, variant, False)  # refused
    ops.check(x, scale, operator, signs, transpose)
    _c.encoded(variant)


def _check_out(x: Tensor, out: Any) -> None:
    if not isinstance(out, Tensor):
        raise TypeError(f"fwht: out is a {type(out).__name__}; for a tensor x it must be a tensor")
    if out.shape != x.shape or out.dtype != x.dtype or out.device != x.device:
        raise ValueError(
            f"fwht: out is {tuple(out.shape)} {out.dtype} on {out.device}; it must be as x, which is "
            f"{tuple(x.shape)} {x.dtype} on {x.device}"
        )


def _check_operands(signs: Any, dense: Any) -> None:
    for name, given in (("signs", signs), ("dense", dense)):
        if given is not None and not isinstance(given, Tensor):
            raise TypeError(f"fwht: {name} is a {type(given).__name__}; for a tensor x it must be a tensor")


def _refuse_out_with_grad(name: str) -> NoReturn:
    raise RuntimeError(
        f"fwht: {name} with out= does not support automatic differentiation, but one of the tensors requires grad"
    )


# --- autograd --------------------------------------------------------------------------------------------------------


class Transform(torch.autograd.Function):
    """The transform; its derivative is itself, backward the operator transposed. `asked`: scale, variant, transpose, operator
    ("" is H_n), and whether the result replaces x."""

    @staticmethod
    def forward(x: Tensor, signs: Any, dense: Any, asked: tuple) -> Tensor:
        *how, in_place = asked
        if not in_place:
            return _run(x, signs, dense, *how)
        call_of(*how[:2]).replace(x)
        return x

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        x, signs, dense, ctx.asked = inputs
        if ctx.asked[4]:
            ctx.mark_dirty(x)  # raises the version counter, and refuses leaves
        if signs is not None or dense is not None:
            ctx.save_for_backward(signs, dense)  # so that overwriting them is noticed

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:  # differentiable again
        scale, variant, transpose, operator, _ = ctx.asked
        operands = ctx.saved_tensors or (None, None)
        return _differentiable(grad, *operands, scale, variant, not transpose, operator), None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:  # operators with operands never come here
        return _differentiable(tangent, None, None, *ctx.asked[:4])

    @staticmethod
    def vmap(info: Any, in_dims: tuple, x: Tensor, *others: Any) -> tuple:
        return Transform.apply(x.movedim(in_dims[0], 0), *others), 0


class _Eager(Transform):
    """The same outside torch.func, where a context that is set up inside forward costs less."""

    setup_context = staticmethod(torch.autograd.function._SingleLevelFunction.setup_context)

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:  # type: ignore[override]
        output = Transform.forward(*inputs)
        Transform.setup_context(ctx, inputs, output)
        return output


_apply_eager = super(torch.autograd.Function, _Eager).apply  # past Function.apply, which looks for torch.func


def _differentiable(
    x: Tensor, signs: Any, dense: Any, scale: Any, variant: str | None, transpose: bool, operator: str | None
) -> Tensor:
    """Out of place, outside compilation."""
    if _functorch_active():
        return Transform.apply(x, signs, dense, (scale, variant, transpose, operator, False))
    if (x.requires_grad and _is_grad_enabled()) or _forward_ad._current_level >= 0:
        return _apply_eager(_unwrap_if_dead(x), signs, dense, (scale, variant, transpose, operator, False))
    return _run(x, signs, dense, scale, variant, transpose, operator)


def _run(x: Tensor, signs: Any, dense: Any, scale: Any, variant: str | None, transpose: bool, operator: str | None) -> Tensor:
    """Out of place, without gradients."""
    if not _is_plain(x):
        return _op(x, scale, variant, transpose, operator, signs, dense)
    if operator == "":
        return call_of(scale, variant).run(None, x)
    return _run_operator(x, None, signs, dense, scale, variant, transpose, operator)


def _bind(call: Call) -> Any:
    """`Transform` of plain tensors by one scale and variant, since every further argument of apply costs."""

    class HadamardTransform(torch.autograd.Function):
        forward = staticmethod(call.run)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return functional(grad, call.scale, call.variant)

    call.apply = super(torch.autograd.Function, HadamardTransform).apply
    return call.apply


# --- H_n -------------------------------------------------------------------------------------------------------------


def functional(x: Tensor, scale: Any, variant: str | None) -> Tensor:
    """The call without `out` and `inplace`."""
    if not _is_dynamo_compiling() and _is_plain(x) and _forward_ad._current_level < 0:
        try:
            call = calls.get((scale, variant)) or call_of(scale, variant)
        except TypeError:  # an argument that cannot be hashed; it is refused with a sentence
            call = Call(scale, variant)
        if not (x.requires_grad and _is_grad_enabled()):
            return call.run(None, x)
        apply = call.apply or _bind(call)
        try:
            return apply(x)
        except RuntimeError:
            inner = _unwrap_if_dead(x)
            if inner is x:
                raise
            return apply(inner)  # x outlived torch.func
    if _is_compiling():
        return _op(x, scale, variant)  # its fake function checks; scale may be a symbol here
    _check(x, scale, variant)
    return _differentiable(x, None, None, scale, variant, False, "")


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
        _check(x, scale, variant)
        if grad or _functorch_active() or _forward_ad._current_level >= 0:
            return x.copy_(functional(x, scale, variant))
        _op_(x, scale, variant)
        return x
    if grad:
        return _apply_eager(x, None, None, (scale, variant, False, "", True))
    call_of(scale, variant).replace(x)
    if not x.is_inference():
        _increment_version(x)
    return x


def _write_to(x: Tensor, out: Any, scale: Any, variant: str | None) -> Tensor:
    _check_out(x, out)
    if _is_grad_enabled() and (x.requires_grad or out.requires_grad):
        _refuse_out_with_grad("hadamard_transform")
    if out is x:
        return transform(x, scale, None, True, variant)
    if _is_compiling() or not _is_plain(x) or not _is_plain(out) or _forward_ad._current_level >= 0:
        return out.copy_(functional(x, scale, variant))
    problem_of(x, scale, variant, True)  # n, dtype and scale first
    view, target = view_of(x), view_of(out)
    array.in_place_stride(target, "out")
    call = call_of(scale, variant)
    if array.same_memory(view, target):
        call.replace(out)
    else:
        call.into(x, out)
    mark_written(out)
    return out


# --- operators other than H_n, codes, linear layers ------------------------------------------------------------------


def _run_operator(
    x: Tensor, out: Any, signs: Any, dense: Any, scale: Any, variant: str | None, transpose: bool, operator: str | None
) -> Tensor:
    """Of a plain tensor into a new one, or into `out`: x, or a tensor like it."""
    call, in_place = None, out is not None and out.data_ptr() == x.data_ptr()
    if x.is_contiguous():
        call = call_of(scale, variant, operator, transpose, None)
        key = (x.shape, x.dtype, signs is None, in_place, place_of(x))
        entry = call.known(key, x, signs, dense)
        if entry is not None:
            result = _empty_like(x) if out is None else out
            call.enqueue(entry, x, result, signs, dense)
            return result
    _check_operands(signs, dense)
    if dense is not None and dense.requires_grad and _is_grad_enabled():
        raise RuntimeError("fwht: dense factors are not differentiated; pass dense.detach()")
    _check(x, scale, variant, operator, signs, transpose)
    result = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    ops.transform_into(x, result, scale, variant, transpose, operator, signs, dense)
    if call is not None:
        call.remember(key, x, operator, signs, transpose, in_place)
    return result


def transform_by_operator(
    x: Tensor, operator: str | None, signs: Any, dense: Any, scale: Any, transpose: bool, out: Any, variant: str | None
) -> Tensor:
    operator = operator or None
    grad = x.requires_grad and _is_grad_enabled()
    eager = not _is_dynamo_compiling() and _is_plain(x) and _forward_ad._current_level < 0
    if eager and not grad and (out is None or out is x or _is_like(x, out)):
        result = _run_operator(x, out, signs, dense, scale, variant, transpose, operator)
        if out is not None and not out.is_inference():
            _increment_version(out)
        return result
    _check_operands(signs, dense)
    if dense is not None and dense.requires_grad and _is_grad_enabled():
        raise RuntimeError("fwht: dense factors are not differentiated; pass dense.detach()")
    if out is None and eager:
        return _differentiable(x, signs, dense, scale, variant, transpose, operator)
    if not _is_compiling():  # else the operator's fake function does
        _check(x, scale, variant, operator, signs, transpose)
    if out is None:
        return _op(x, scale, variant, transpose, operator, signs, dense)
    _check_out(x, out)
    grad = grad or (_is_grad_enabled() and out.requires_grad)
    if grad and out is not x:
        _refuse_out_with_grad("operators.transform")
    if grad or not eager or not _is_plain(out):
        return out.copy_(_op(x, scale, variant, transpose, operator, signs, dense))
    ops.transform_into(x, out, scale, variant, transpose, operator, signs, dense)
    mark_written(out)
    return out


def quantize_rows(
    x: Tensor, encoding: str, operator: str | None, signs: Any, dense: Any, scale: Any, tensor_scale: Any, transpose: bool,
    variant: str | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    call = None
    grad = x.requires_grad and _is_grad_enabled()
    if not grad and not _is_dynamo_compiling() and _is_plain(x) and _forward_ad._current_level < 0 and x.is_contiguous():
        call = call_of(scale, variant, operator, transpose, encoding)
        key = (x.shape, x.dtype, signs is None, tensor_scale is None, place_of(x))
        entry = call.known(key, x, signs, dense)
        if entry is not None and (tensor_scale is None or (type(tensor_scale) is float and 0 < tensor_scale < math.inf)):
            codes, scales = ops.encoded_outputs(x, entry[4][2])
            call.enqueue(entry, x, codes, signs, dense, scales, tensor_scale)
            return codes, scales
    if grad:
        raise RuntimeError("fwht: hadamard_quantize does not support automatic differentiation, but x requires grad")
    _check_operands(signs, dense)
    if not _is_compiling():  # else the operator's fake function does
        if x.layout is not torch.strided or x.device.type not in ("cpu", "cuda", "meta"):
            problem_of(x, scale, variant, False)  # refused
        quantize.checked(tuple(x.shape), encoding, tensor_scale)
        _check(x, scale, variant, operator or None, signs, transpose)
    result = _op_quantize(x, encoding, operator, signs, dense, scale, tensor_scale, transpose, variant)
    if call is not None:
        call.remember(key, x, operator, signs, transpose, layout=quantize.checked(tuple(x.shape), encoding, tensor_scale))
    return result


def linear_by(x: Tensor, packed: linear.Packed, weights: Any, order: Tensor | None) -> Tensor:
    """`packed` with its tensors where a module was moved to."""
    linear.check(x.shape, str(x.dtype).removeprefix("torch."), packed)
    if not isinstance(weights, Tensor) or x.device != weights.device:
        raise ValueError(f"fwht: x is on {x.device}, the weights are on {getattr(weights, 'device', 'the host')}")
    if x.requires_grad and _is_grad_enabled():
        raise RuntimeError("fwht: linear.forward does not support automatic differentiation, but x requires grad")
    if order is not None:
        x = x.index_select(-1, order)
    asked = (weights, packed.n, packed.group, packed.zero_points, packed.rotation, packed.variant, packed.act_order)
    plain = not _is_compiling() and _is_plain(x) and _forward_ad._current_level < 0
    return ops.multiply(x, *asked) if plain else ops.op_linear(x, *asked)
