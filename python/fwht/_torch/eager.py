"""What Python calls with a tensor. Plain ones take the shortest way, into `calls`; whatever the dispatcher must see
(compilation, export, fake and meta tensors, subclasses, modes, torch.jit.trace) goes through `ops`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Sequence

import torch
from torch import Tensor

from .. import _arrange, _c, array, linear, quantize
from . import calls, ops
from .calls import PLAIN, new, place_of, problem_of, replace, view_of

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
_is_batched, _unwrapped = torch._C._functorch.is_batchedtensor, torch._C._functorch.get_unwrapped
_is_of_batched_gradients = torch._C._functorch.is_legacy_batchedtensor
_below_autograd = torch._C._AutoDispatchBelowAutograd
_keys_below_autograd = torch._C._after_autograd_keyset
_one_level_allowed = torch._functorch.utils.enable_single_level_autograd_function


def _is_plain(x: Tensor, _modes: Callable[[], int] = _function_modes) -> bool:
    """Nothing but the library needs to see this call."""
    return (
        type(x) in PLAIN
        and (x.is_cuda or x.is_cpu)
        and x.layout is _dense_layout
        and not x.is_nested
        and not x.is_neg()
        and not _functorch_active()
        and not _dispatch_modes()
        and not _modes()
        and not _is_tracing()
        and not _is_of_batched_gradients(x)  # whose type is torch.Tensor, outside of functorch
    )


def _is_like(x: Tensor, out: Any) -> bool:
    """Rows of `out` lie as those of a new tensor would."""
    return (
        type(out) in PLAIN and out.shape == x.shape and out.dtype is x.dtype and out.get_device() == x.get_device()
        and out.is_contiguous() and not out.is_neg() and not (out.requires_grad and _is_grad_enabled())
    )  # fmt: skip


def require_memory(*tensors: Any) -> None:
    """Of those that are no stand-ins. PyTorch's own functions end the process where a storage was freed. Below a default
    device, which is a mode of functions, tensors are what they were."""
    if not _is_compiling():
        for x in tensors:
            if isinstance(x, Tensor) and _is_plain(x, lambda: 0):
                calls.require_memory(x)


def memory_of(x: Tensor) -> tuple[int, int]:
    """First address, and the one behind the last; none where the dispatcher must see the call, since x may stand for memory only."""
    if _is_compiling() or not _is_plain(x) or not x.numel():
        return 0, 0
    reach = sum(stride * (size - 1) for size, stride in zip(x.shape, x.stride()))
    return x.data_ptr(), x.data_ptr() + (reach + 1) * x.element_size()


def mark_written(x: Any) -> None:
    """Autograd must notice that a saved tensor was overwritten."""
    if isinstance(x, Tensor) and not x.is_inference():
        _increment_version(x)


def is_differentiated(*tensors: Any) -> bool:
    """Whether a gradient or a derivative of forward mode is asked of one of them."""
    if _is_grad_enabled():
        for t in tensors:  # every execution of a plan asks, so no list is made
            if isinstance(t, Tensor) and t.requires_grad:
                return True
    return _forward_ad._current_level >= 0 and any(_has_tangent(t) for t in tensors if isinstance(t, Tensor))


def _has_tangent(x: Tensor) -> bool:
    while _is_batched(x):  # which `_unpack_dual` does not look into
        x = _unwrapped(x)
    with torch._C._DisableTorchDispatch():  # else graphs would keep the question
        return torch._VF._unpack_dual(x, level=0)[1] is not None


def _is_in_forward_mode(x: Tensor) -> bool:
    """`_forward_ad` does not know the levels of compiled code. The tensor does, but asking it doubles the time of an operator."""
    return _forward_ad._current_level >= 0 or (bool(_functorch_active() or _dispatch_modes()) and _has_tangent(x))


def check_not_differentiated(*tensors: Any) -> None:
    if is_differentiated(*tensors):
        raise RuntimeError(
            "fwht: Plan.execute does not support automatic differentiation, but one of the tensors requires grad or has a tangent; "
            "call hadamard_transform, or execute the plan under torch.no_grad()"
        )


def _check(
    x: Tensor, scale: Any, variant: str | None, operator: str | None = "", signs: Any = None, transpose: bool = False, is_encoded: bool = False
) -> None:
    """What the dispatcher and autograd would refuse with sentences of their own. In a graph the operator's fake function does, whose
    scale is a number or a symbol: a number of NumPy is a tensor there."""
    if _is_compiling():
        if not isinstance(scale, (int, float, torch.SymInt, torch.SymFloat)):
            _c.checked_scale(scale)
        return
    if calls.is_foreign(x):
        problem_of(x, scale, variant, False)  # refused
    ops.check(x, scale, operator, signs, transpose, is_encoded)
    _c.encoded(variant)


def _check_out(x: Tensor, out: Any) -> None:
    if not isinstance(out, Tensor):
        raise TypeError(f"fwht: out is a {type(out).__name__}; for a tensor x it must be a tensor")
    if out.shape != x.shape or out.dtype != x.dtype or out.device != x.device:
        raise ValueError(
            f"fwht: out is {tuple(out.shape)} {out.dtype} on {out.device}; it must be as x, which is "
            f"{tuple(x.shape)} {x.dtype} on {x.device}"
        )


def _check_operands(signs: Any, dense: Any, weight: Any = None, cos_sin: Any = None, positions: Any = None) -> None:
    for name, given in (("signs", signs), ("dense", dense), ("weight", weight), ("cos_sin", cos_sin), ("positions", positions)):
        if given is not None and not isinstance(given, Tensor):
            raise TypeError(f"fwht: {name} is a {type(given).__name__}; for a tensor x it must be a tensor")


def _check_factors(signs: Any, dense: Any) -> None:
    _check_operands(signs, dense)
    if is_differentiated(dense):
        raise RuntimeError("fwht: dense factors are not differentiated; pass dense.detach()")


def _refuse_leaf(x: Tensor) -> None:
    if x.is_leaf or (x._base is not None and x._base.is_leaf):
        raise RuntimeError("fwht: x is a leaf that requires grad, or a view of one; it cannot be written in place")


def _refuse_out_with_grad(name: str) -> NoReturn:
    raise RuntimeError(
        f"fwht: {name} with out= does not support automatic differentiation, but one of the tensors requires grad"
    )


# --- autograd --------------------------------------------------------------------------------------------------------


class Transform(torch.autograd.function._SingleLevelFunction):
    """The transform; its derivative is itself, backward the operator transposed.

    how: what computes it without gradients, and for that scale, variant, transpose and operator ("" is H_n). It gives a new
    tensor, or x where the result replaces it. The levels of torch.func are the dispatcher's: it comes here
    with one at a time.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, how: tuple, signs: Any = None, dense: Any = None) -> Tensor:
        ctx.how = how
        run, scale, variant, transpose, operator = how
        if signs is not None or dense is not None:
            ctx.save_for_backward(signs, dense)  # so that overwriting them is noticed
            ctx.save_for_forward(signs, dense)
        result: Tensor = run(x, scale, variant, transpose, operator, signs, dense)
        if result is x:
            ctx.mark_dirty(x)  # raises the version counter
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:  # differentiable again
        run, scale, variant, transpose, operator = ctx.how
        if run is new or run is replace:  # H_n of a plain tensor, without operands
            return functional(grad, scale, variant), None
        return _differentiable(grad, scale, variant, not transpose, operator, *_saved(ctx)), None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        return _differentiable(tangent, *ctx.how[1:], *_saved(ctx))


def _saved(ctx: Any) -> Any:
    """signs and dense; what outlived a level of torch.func comes without it."""
    return [given if given is None else _unwrap_if_dead(given) for given in ctx.saved_tensors] or (None, None)


_apply = Transform.apply


def _differentiable(
    x: Tensor, scale: Any, variant: str | None, transpose: bool, operator: str | None, signs: Any, dense: Any
) -> Tensor:
    """Out of place, outside compilation."""
    if not _is_plain(x):
        return _op(x, scale, variant, transpose, operator, signs, dense)
    if (x.requires_grad and _is_grad_enabled()) or _forward_ad._current_level >= 0:
        return _apply(_unwrap_if_dead(x), (_run, scale, variant, transpose, operator), signs, dense)
    return _run(x, scale, variant, transpose, operator, signs, dense)


def _run(x: Tensor, scale: Any, variant: str | None, transpose: bool, operator: str | None, signs: Any, dense: Any) -> Tensor:
    """A plain tensor, out of place, without gradients."""
    if operator == "":
        return new(x, scale, variant)
    return _run_operator(x, None, signs, dense, scale, variant, transpose, operator)


class Arranged(torch.autograd.function._SingleLevelFunction):
    """Along an axis, from one ordering into another; its transpose exchanges the orderings."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, how: tuple) -> Tensor:
        run, *ctx.asked = how
        result: Tensor = run(x, *ctx.asked)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        scale, axis, ordering, input_ordering, *others = ctx.asked
        return ops.op_arranged(grad, scale, axis, input_ordering, ordering, *others), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        result: Tensor = ops.op_arranged(tangent, *ctx.asked)
        return result


def _through_autograd(op: Any, apply: Any, keys: Any, x: Tensor, asked: tuple, operands: tuple = ()) -> Tensor:
    """An operator for the dispatcher's autograd keys, also inside torch.func."""

    def below(*given: Any) -> Any:
        with _below_autograd():
            return op.redispatch(keys & _keys_below_autograd, *given)

    if not (x.requires_grad and _is_grad_enabled()) and not _is_in_forward_mode(x):
        return below(x, *asked, *operands)
    if not _functorch_active():
        return apply(x, (below, *asked), *operands)

    def next_level(*given: Any) -> Any:
        with torch.enable_grad(), _forward_ad._set_fwd_grad_enabled(True):  # which Function.forward turned off
            return below(*given)

    with _one_level_allowed():
        return apply(x, (next_level, *asked), *operands)


def _of_the_operator(
    keys: Any, x: Tensor, scale: Any = None, variant: str | None = None, transpose: bool = False, operator: str | None = "",
    signs: Any = None, dense: Any = None,
) -> Tensor:  # fmt: skip
    """torch.ops.fwht.hadamard_transform"""
    return _through_autograd(_op, _apply, keys, x, (scale, variant, transpose, operator), (signs, dense))


def _of_the_arrangement(
    keys: Any, x: Tensor, scale: Any = None, axis: int = -1, ordering: str = "natural", input_ordering: str = "natural",
    variant: str | None = None, axes: Sequence[int] = (),
) -> Tensor:  # fmt: skip
    """torch.ops.fwht.hadamard_arranged"""
    return _through_autograd(ops.op_arranged, Arranged.apply, keys, x, (scale, axis, ordering, input_ordering, variant, axes))


def _of_the_operator_in_place(
    keys: Any, x: Tensor, scale: Any = None, variant: str | None = None, transpose: bool = False
) -> None:
    """torch.ops.fwht.hadamard_transform_, also in graphs that were made without gradients and run with them."""
    if x.requires_grad and _is_grad_enabled():
        _refuse_leaf(x)
    elif not _is_in_forward_mode(x):
        with _below_autograd():
            return _op_.redispatch(keys & _keys_below_autograd, x, scale, variant, transpose)
    x.copy_(_op(x, scale, variant, transpose))


ops.library.impl("hadamard_transform", _of_the_operator, "Autograd", with_keyset=True)
ops.library.impl("hadamard_transform_", _of_the_operator_in_place, "Autograd", with_keyset=True)
ops.library.impl("hadamard_arranged", _of_the_arrangement, "Autograd", with_keyset=True)


# --- H_n -------------------------------------------------------------------------------------------------------------


def functional(x: Tensor, scale: Any, variant: str | None) -> Tensor:
    """The call without `out` and `inplace`."""
    if not _is_dynamo_compiling() and _is_plain(x) and _forward_ad._current_level < 0:
        if not (x.requires_grad and _is_grad_enabled()):
            return new(x, scale, variant)
        return _apply(_unwrap_if_dead(x), (new, scale, variant, False, ""))
    _check(x, scale, variant)
    return _op(x, scale, variant)


def transform(x: Tensor, scale: Any, out: Any, inplace: bool, variant: str | None) -> Tensor:
    if out is None and not inplace:
        return functional(x, scale, variant)
    if out is not None:
        if inplace:
            raise ValueError("fwht: out and inplace=True exclude each other")
        return _write_to(x, out, scale, variant)
    grad = x.requires_grad and _is_grad_enabled()
    if _is_compiling():
        _check(x, scale, variant)
        if grad:
            return x.copy_(_op(x, scale, variant))
        _op_(x, scale, variant)
        return x
    if not _is_plain(x) or _forward_ad._current_level >= 0:
        _check(x, scale, variant)
        require_memory(x)
        if grad or x.is_neg() or _functorch_active() or _forward_ad._current_level >= 0:
            return x.copy_(functional(x, scale, variant))
        _op_(x, scale, variant)
        return x
    if grad:
        _refuse_leaf(x)
        return _apply(x, (replace, scale, variant, False, ""))
    replace(x, scale, variant)
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
        require_memory(x, out)
        return out.copy_(functional(x, scale, variant))
    calls.into(x, out, scale, variant)
    mark_written(out)
    return out


# --- along axes, and in other orders ---------------------------------------------------------------------------------


def _check_memory(x: Tensor, target: Any) -> None:
    """What axes, views and copies would meet with other sentences, or worse."""
    if calls.is_foreign(x):
        problem_of(x, None, None, False)  # refused
    require_memory(x, target)
    if isinstance(target, Tensor) and not calls.is_foreign(target):
        array.require_apart(target.shape, target.stride(), "x" if target is x else "out")


def arranged(
    x: Tensor, scale: Any, out: Any, inplace: bool, variant: str | None, ordering: str, input_ordering: str, axis: Any
) -> Tensor:
    if out is not None and inplace:
        raise ValueError("fwht: out and inplace=True exclude each other")
    if not _is_compiling():
        _check_memory(x, x if inplace else out)
        ops._orderings(ordering, input_ordering)
    axes = _arrange.axes_of(axis, x.dim())
    together: tuple[int, ...] = ()
    if len(axes) > 1 and scale is not None and (_is_compiling() or _is_tracing()):
        together = axes  # lengths may be symbols, of which a part of the scale would make constants
        scales = [float(scale) if isinstance(scale, (int, float)) else _c.checked_scale(scale)] * len(axes)
    else:
        scales = _arrange.scales_of(scale, [x.shape[axis] for axis in axes], not x.is_floating_point())
    steps = list(zip(scales, axes))
    here = False  # whether every step replaces x
    for each, axis in steps:
        _check(x.movedim(axis, -1), each, variant)
    if not _is_compiling():
        here = inplace and all([ops.arranges_in_place(x, each, axis, ordering, input_ordering, variant) for each, axis in steps])
    grad = x.requires_grad and _is_grad_enabled()
    if here and not grad and _is_plain(x) and x.is_contiguous() and _forward_ad._current_level < 0:
        for each, axis in steps:
            ops.arrange_in_place(x, each, axis, variant)
        mark_written(x)
        return x
    if out is not None:
        _check_out(x, out)
        if _is_grad_enabled() and (grad or out.requires_grad):
            _refuse_out_with_grad("hadamard_transform")
    y = x
    for each, axis in steps:
        y = ops.op_arranged(y, each, axis, ordering, input_ordering, variant, together)
    return y if out is None and not inplace else (x if inplace else out).copy_(y)


# --- operators other than H_n, codes, linear layers ------------------------------------------------------------------


def _run_operator(
    x: Tensor, out: Any, signs: Any, dense: Any, scale: Any, variant: str | None, transpose: bool, operator: str | None
) -> Tensor:
    """Of a plain tensor into a new one, or into `out`: x, or a tensor like it."""
    key, in_place, scale = None, out is not None and out.data_ptr() == x.data_ptr(), calls.plain_scale(scale)
    if x.is_contiguous():
        key = (x.shape, x.dtype, place_of(x), scale, variant, operator, transpose, signs is None, in_place)
        entry = calls.known(key, x, signs, dense)
        if entry is not None:
            result = _empty_like(x) if out is None else out
            calls.enqueue(entry, x, result, signs, dense)
            return result
    _check_factors(signs, dense)
    _check(x, scale, variant, operator, signs, transpose)
    result = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    ops.transform_into(x, result, scale, variant, transpose, operator, signs, dense)
    if key is not None:
        calls.remember(key, x, operator, signs, scale, variant, transpose, in_place)
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
    _check_factors(signs, dense)
    if out is None and eager:
        return _differentiable(x, scale, variant, transpose, operator, signs, dense)
    _check(x, scale, variant, operator, signs, transpose)
    if out is None:
        return _op(x, scale, variant, transpose, operator, signs, dense)
    _check_out(x, out)
    grad = grad or (_is_grad_enabled() and out.requires_grad)
    if grad and out is not x:
        _refuse_out_with_grad("operators.transform")
    if grad or not eager or not _is_plain(out):
        require_memory(x, out)
        return out.copy_(_op(x, scale, variant, transpose, operator, signs, dense))
    ops.transform_into(x, out, scale, variant, transpose, operator, signs, dense)
    mark_written(out)
    return out


def _refuse_grad(*tensors: Any) -> None:
    if is_differentiated(*tensors):
        raise RuntimeError(
            "fwht: hadamard_quantize does not support automatic differentiation, but x or an operand requires grad or has a tangent"
        )


def quantize_rows(
    x: Tensor, encoding: str, operator: str | None, signs: Any, dense: Any, scale: Any, tensor_scale: Any, transpose: bool,
    variant: str | None, prologue: tuple = quantize.NO_PROLOGUE,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    key = None
    grad = x.requires_grad and _is_grad_enabled()
    plain = prologue[0] is None
    if plain and not grad and not _is_dynamo_compiling() and _is_plain(x) and _forward_ad._current_level < 0 and x.is_contiguous():
        scale = calls.plain_scale(scale)
        key = (x.shape, x.dtype, place_of(x), scale, variant, operator, transpose, signs is None, tensor_scale is None, encoding)
        entry = calls.known(key, x, signs, dense)
        if entry is not None and calls.is_scale_of_tensor(tensor_scale, x):
            layout, like = entry[4][2:]
            if like is None:
                codes, scales = ops.encoded_outputs(x, layout)
                scales_bytes = scales.untyped_storage().nbytes()
            else:
                codes, scales, scales_bytes = _empty_like(like[0]), _empty_like(like[1]), like[2]
            calls.enqueue(entry, x, codes, signs, dense, scales, scales_bytes, tensor_scale)
            return codes, scales
    _, weight, _, cos_sin, positions = prologue
    _refuse_grad(x, weight, cos_sin)
    _check_operands(signs, dense, weight, cos_sin, positions)
    if not _is_compiling():  # else the operator's fake function does
        if calls.is_foreign(x):
            problem_of(x, scale, variant, False)  # refused
        quantize.checked(tuple(x.shape), encoding, tensor_scale)
    _check(x, scale, variant, operator or None, signs, transpose, is_encoded=True)
    if isinstance(tensor_scale, Tensor):
        result = _op_quantize(x, encoding, operator, signs, dense, scale, None, transpose, variant, *prologue, tensor_scale)
    else:
        result = _op_quantize(x, encoding, operator, signs, dense, scale, tensor_scale, transpose, variant, *(() if plain else prologue))
    if key is not None:
        layout = quantize.checked(tuple(x.shape), encoding, tensor_scale)
        calls.remember(key, x, operator, signs, scale, variant, transpose, layout=layout, codes=result)
    return result


def quantize_to(
    out: Any, x: Tensor, encoding: str, operator: str | None, signs: Any, dense: Any, scale: Any, tensor_scale: Any, transpose: bool,
    variant: str | None, prologue: tuple,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`quantize_rows` into codes and scales that are there. What the dispatcher must see is copied into them."""
    _, weight, _, cos_sin, positions = prologue
    _refuse_grad(x, weight, cos_sin)
    _check_operands(signs, dense, weight, cos_sin, positions)
    if calls.is_foreign(x):
        problem_of(x, scale, variant, False)  # refused
    layout = quantize.checked(tuple(x.shape), encoding, tensor_scale)
    codes, scales = quantize.checked_out(out, layout, x, tuple(x.shape))
    if _is_compiling() or not all(each is None or _is_plain(each) for each in (x, codes, scales)) or _forward_ad._current_level >= 0:
        made = quantize_rows(x, encoding, operator, signs, dense, scale, tensor_scale, transpose, variant, prologue)
        codes.copy_(made[0])
        return codes, made[1] if scales is None else scales.copy_(made[1])
    _check(x, scale, variant, operator or None, signs, transpose, is_encoded=True)
    if scales is None:
        scales = torch.empty(0, dtype=torch.float32, device=x.device)
    ops.write_codes(x, codes, scales, layout, operator, signs, dense, scale, tensor_scale, transpose, variant, prologue)
    mark_written(codes)
    mark_written(scales)
    return codes, scales


def quantize_into(
    cache: Tensor, slots: Tensor, x: Tensor, encoding: str, operator: str | None, signs: Any, dense: Any, scale: Any,
    transpose: bool, variant: str | None, prologue: tuple,
) -> None:  # fmt: skip
    _, weight, _, cos_sin, positions = prologue
    _refuse_grad(x, weight, cos_sin)
    _check_operands(signs, dense, weight, cos_sin, positions)
    if not _is_compiling():
        quantize.checked(tuple(x.shape), encoding, None)
    _check(x, scale, variant, operator or None, signs, transpose, is_encoded=True)
    ops.op_quantize_into(cache, slots, x, encoding, operator, signs, dense, scale, transpose, variant, *prologue)
    if not _is_compiling():  # graphs keep the counters themselves
        mark_written(cache)


def linear_by(x: Tensor, packed: linear.Packed, weights: Any, order: Tensor | None) -> Tensor:
    """`packed` with its tensors where a module was moved to."""
    plain = not _is_dynamo_compiling() and _is_plain(x) and _forward_ad._current_level < 0
    if plain and order is None and type(weights) in PLAIN and not (x.requires_grad and _is_grad_enabled()):
        y = ops.multiplied(x, weights, packed[:8])
        if y is not None:
            return y
    linear.check(x.shape, str(x.dtype).removeprefix("torch."), packed)
    if not isinstance(weights, Tensor) or x.device != weights.device:
        raise ValueError(f"fwht: x is on {x.device}, the weights are on {getattr(weights, 'device', 'the host')}")
    if is_differentiated(x):
        raise RuntimeError("fwht: linear.forward does not support automatic differentiation, but x requires grad or has a tangent")
    if order is not None:
        x = x.index_select(-1, order)
    asked = (weights, packed.n, packed.group, packed.zero_points, packed.rotation, packed.variant, packed.act_order)
    return ops.multiply(x, *asked) if plain else ops.op_linear(x, *asked)
