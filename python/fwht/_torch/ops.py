"""The operators torch.ops.fwht.*: for whatever the dispatcher must see. They end where eager calls do.

Saved graphs depend on the schemas: arguments are only appended, with defaults. scale=None is 1/sqrt(n). operator="" is H_n,
operator=None the one for the row length. There is no operator with an `out` argument: graphs get a copy of the functional one
instead, because Inductor may reorder operators that write one tensor and read another (pytorch issue 198031). The derivatives of
hadamard_transform and hadamard_arranged are those of eager calls, and registered there.
"""

from __future__ import annotations

from typing import Any, Sequence

import torch
from torch import Tensor

from .. import _arrange, _c, linear, operators, quantize
from .calls import DTYPES, blank, new, place_of, raw_stream, replace, require_memory, view_of


def _namespace() -> torch.library.Library:
    """That of the package's own name, `fwht`. Where another copy of the package has registered that, the next one that is free."""
    package = __name__.partition(".")[0]
    for copy in range(1, 100):
        try:
            return torch.library.Library(package if copy == 1 else f"{package}_{copy}", "DEF")
        except RuntimeError as error:
            if "Only a single TORCH_LIBRARY" not in str(error):
                raise
    raise RuntimeError(f"fwht: 99 copies of the package {package} have registered their operators in this process")


layer_dtypes = {torch.float16: "float16", torch.bfloat16: "bfloat16"}
_empty_like = torch.empty_like
library = _namespace()
library.define(
    "hadamard_transform(Tensor x, float? scale=None, str? variant=None, bool transpose=False, "
    'str? operator="", Tensor? signs=None, Tensor? dense=None) -> Tensor'
)
library.define("hadamard_transform_(Tensor(a!) x, float? scale=None, str? variant=None, bool transpose=False) -> ()")
library.define(
    "hadamard_arranged(Tensor x, float? scale=None, int axis=-1, str ordering='natural', str input_ordering='natural', "
    "str? variant=None, int[] axes=[]) -> Tensor"
)
library.define(
    "hadamard_quantize(Tensor x, str encoding, str? operator=None, Tensor? signs=None, Tensor? dense=None, float? scale=None, "
    "float? tensor_scale=None, bool transpose=False, str? variant=None, str? prologue=None, Tensor? weight=None, "
    "float epsilon=0.0, Tensor? cos_sin=None, Tensor? positions=None, Tensor? tensor_scale_at=None) -> (Tensor, Tensor)"
)
library.define(
    "hadamard_quantize_into(Tensor(a!) cache, Tensor slots, Tensor x, str encoding, str? operator=None, Tensor? signs=None, "
    "Tensor? dense=None, float? scale=None, bool transpose=False, str? variant=None, str? prologue=None, Tensor? weight=None, "
    "float epsilon=0.0, Tensor? cos_sin=None, Tensor? positions=None) -> ()"
)
library.define(
    "gptq_linear(Tensor x, Tensor weights, int n, int group, str zero_points, str rotation, str variant, "
    "bool act_order=False) -> Tensor"
)


def check(x: Tensor, scale: Any, operator: str | None = "", signs: Any = None, transpose: bool = False, is_encoded: bool = False) -> None:
    """What can be refused without memory; x may be fake, its shape symbolic."""
    if x.dim() == 0:
        raise ValueError("fwht: x must have at least one dimension, whose length is n; it is a scalar")
    if x.dtype not in DTYPES:
        raise TypeError(f"fwht: dtype {x.dtype} {_c.DTYPE_RULE}")
    if is_encoded:
        _c.check_encoded(DTYPES[x.dtype], str(x.dtype))
    n, text = x.shape[-1], None
    if operator != "" or signs is not None:
        text = operators.resolved((int(n),), operator or "", signs is not None, transpose)
    _c.check_sums(DTYPES[x.dtype], str(x.dtype), _c.checked_scale(scale), text)
    if operator == "" and isinstance(n, int) and (n < 2 or n & (n - 1)):
        raise ValueError(f"fwht: n={n} must be a power of two of at least 2")


# --- the transform ---------------------------------------------------------------------------------------------------


def transform(
    x: Tensor, scale: Any = None, variant: str | None = None, transpose: bool = False, operator: str | None = "",
    signs: Tensor | None = None, dense: Tensor | None = None,
) -> Tensor:  # fmt: skip
    if operator == "" and signs is None and dense is None:
        return new(x, scale, variant)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    transform_into(x, out, scale, variant, transpose, operator, signs, dense)
    return out


def transform_into(
    x: Tensor, out: Tensor, scale: Any, variant: str | None, transpose: bool, operator: str | None, signs: Any, dense: Any
) -> None:
    def copy() -> None:
        with torch.no_grad():
            out.copy_(x)

    text = operators.resolved(tuple(x.shape), operator or "", signs is not None, transpose)
    operators.run(view_of(x), view_of(out), text, signs, dense, scale, variant, copy)


def _replace(x: Tensor, scale: Any = None, variant: str | None = None, transpose: bool = False) -> None:
    replace(x, scale, variant)


def _fake(
    x: Tensor, scale: Any = None, variant: str | None = None, transpose: bool = False, operator: str | None = "",
    signs: Tensor | None = None, dense: Tensor | None = None,
) -> Tensor:  # fmt: skip
    check(x, scale, operator, signs, transpose)
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _fake_(x: Tensor, scale: Any = None, variant: str | None = None, transpose: bool = False) -> None:
    check(x, scale)


def _vmap(info: Any, in_dims: tuple, x: Tensor, *asked: Any) -> tuple:
    if any(dim is not None for dim in in_dims[1:]):
        raise NotImplementedError("fwht: vmap goes over x, not over signs or dense factors")
    return op(x.movedim(in_dims[0], 0), *asked), 0


def _vmap_(info: Any, in_dims: tuple, x: Tensor, *asked: Any) -> tuple:
    x.copy_(op(x.movedim(in_dims[0], 0), *asked).movedim(0, in_dims[0]))
    return None, None


def _in_place_below_autograd(
    keyset: Any, x: Tensor, scale: Any = None, variant: str | None = None, transpose: bool = False
) -> None:
    # A kernel of torch.library leaves x._version as it was, and autograd would not notice the write.
    with torch._C._AutoDispatchBelowADInplaceOrView():
        op_.redispatch(keyset & torch._C._after_ADInplaceOrView_keyset, x, scale, variant, transpose)
    torch.autograd.graph.increment_version(x)


# --- along an axis, and in other orders ------------------------------------------------------------------------------


def _orderings(ordering: str, input_ordering: str) -> tuple[int, int]:
    return _arrange.code("input_ordering", input_ordering), _arrange.code("ordering", ordering)


def _arranged_problem(x: Tensor, scale: Any, axis: int, orderings: tuple[int, int], in_place: bool, variant: str | None) -> _c.Problem:
    threads = torch.get_num_threads() if x.is_cpu else 0
    return _arrange.problem(
        tuple(x.shape), DTYPES.get(x.dtype), str(x.dtype), scale, axis, orderings, in_place, x.get_device(), _c.encoded(variant), threads
    )


def arranged(
    x: Tensor, scale: Any = None, axis: int = -1, ordering: str = "natural", input_ordering: str = "natural", variant: str | None = None,
    axes: Sequence[int] = (),
) -> Tensor:  # fmt: skip
    """axes: all axes that the scale is for, in their order, where lengths may have been symbols; of it this axis takes its part."""
    orderings, name = _orderings(ordering, input_ordering), _c.encoded(variant)
    (axis,) = _arrange.axes_of(axis, x.dim())
    if axes:
        lengths = [x.shape[each] for each in axes]
        scale = _arrange.scales_of(scale, lengths, not x.is_floating_point())[_arrange.axes_of(list(axes), x.dim()).index(axis)]
    if x.is_cuda:
        _c.needs_cuda_build()
    asked = _arranged_problem(x, scale, axis, orderings, False, variant)
    require_memory(x)
    if _arrange.supported(asked, name, x.get_device()):
        source, out = x.contiguous(), torch.empty(x.shape, dtype=x.dtype, device=x.device)
        _arrange.execute(asked, name, view_of(source), view_of(out))
        return out
    return by_copies(x, scale, axis, orderings, variant)


def by_copies(x: Tensor, scale: Any, axis: int, orderings: tuple[int, int], variant: str | None) -> Tensor:
    """By rows side by side in natural order, which every variant takes."""
    y = x.movedim(axis, -1)
    for side, code in enumerate(orderings):
        if side == 1:
            y = new(y, scale, variant)
        if code:
            places = natural_places(y.shape[-1], _c.ORDERINGS[code], y.device)
            y = y[..., places] if side == 1 else torch.empty_like(y).index_copy_(-1, places, y)
    return y.movedim(-1, axis).contiguous()


def natural_places(n: int, ordering: str, device: torch.device) -> Tensor:
    """Where natural order has the coefficients of the ordering."""
    places = torch.zeros(1, dtype=torch.int64, device=device)
    while len(places) < n:
        places = torch.cat([2 * places, 2 * places + 1])
    if ordering == "sequency":
        k = torch.arange(n, device=device)
        places = places[k ^ (k >> 1)]
    return places


def arranges_in_place(x: Tensor, scale: Any, axis: int, ordering: str, input_ordering: str, variant: str | None) -> bool:
    """Whether the variant does it; a ValueError where it cannot be."""
    asked = _arranged_problem(x, scale, axis, _orderings(ordering, input_ordering), True, variant)
    return _arrange.supported(asked, _c.encoded(variant), x.get_device())


def arrange_in_place(x: Tensor, scale: Any, axis: int, variant: str | None) -> None:
    view = view_of(x)
    _arrange.execute(_arranged_problem(x, scale, axis, (0, 0), True, variant), _c.encoded(variant), view, view)


def _fake_arranged(
    x: Tensor, scale: Any = None, axis: int = -1, ordering: str = "natural", input_ordering: str = "natural", variant: str | None = None,
    axes: Sequence[int] = (),
) -> Tensor:  # fmt: skip
    _orderings(ordering, input_ordering)
    (axis,) = _arrange.axes_of(axis, x.dim())
    check(x.movedim(axis, -1), scale)
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _vmap_arranged(info: Any, in_dims: tuple, x: Tensor, scale: Any = None, axis: int = -1, *asked: Any) -> tuple:
    (axis,) = _arrange.axes_of(axis, x.dim() - 1)  # from the end, which a dimension in front does not change
    return op_arranged(x.movedim(in_dims[0], 0), scale, axis, *asked), 0


# --- codes and scales ------------------------------------------------------------------------------------------------


def encoded_outputs(x: Tensor, layout: quantize.Layout) -> tuple[Tensor, Tensor]:
    """Codes and the matrix of scales; x may be fake, its number of rows symbolic."""
    codes = torch.empty(quantize.code_shape(layout, x.shape), dtype=getattr(torch, layout.code_dtype), device=x.device)
    if layout.columns == 0:
        return codes, torch.empty(0, dtype=torch.float32, device=x.device)
    rows, columns, _ = layout.storage(x.numel())
    flat = torch.empty(rows * columns, dtype=getattr(torch, layout.scale_dtype), device=x.device)
    return codes, quantize.shaped(layout, x.shape, flat, torch.as_strided)


def _quantize(
    x: Tensor, encoding: str, operator: str | None = None, signs: Tensor | None = None, dense: Tensor | None = None,
    scale: Any = None, tensor_scale: Any = None, transpose: bool = False, variant: str | None = None, *rest: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    prologue, tensor_scale = _split(rest, tensor_scale)
    layout = quantize.checked(tuple(x.shape), encoding, tensor_scale)
    codes, scales = encoded_outputs(x, layout)
    write_codes(x, codes, scales, layout, operator, signs, dense, scale, tensor_scale, transpose, variant, prologue)
    return codes, scales


def write_codes(
    x: Tensor, codes: Tensor, scales: Tensor, layout: quantize.Layout, operator: str | None, signs: Any, dense: Any, scale: Any,
    tensor_scale: Any, transpose: bool, variant: str | None, prologue: tuple,
) -> None:  # fmt: skip
    if _c.row_stride(x.shape, x.stride()) is None:
        require_memory(x)
        x = x.contiguous()
    if x.numel() == 0:
        scales.zero_()  # a whole tensor has one for nothing, too
    quantize.run(
        view_of(x), view_of(codes), scales.data_ptr() or None, bytes_from(scales), layout.text, operator or "", signs, dense, scale,
        tensor_scale, transpose, variant, prologue,
    )  # fmt: skip


def bytes_from(x: Tensor) -> int:
    """Of its storage, from its first element on."""
    return x.untyped_storage().nbytes() - x.storage_offset() * x.element_size()


def _split(rest: tuple, tensor_scale: Any) -> tuple[tuple, Any]:
    """The prologue, and the scale of the tensor, which is a number or lies in memory."""
    at = rest[5] if len(rest) > 5 else None
    if at is not None and tensor_scale is not None:
        raise ValueError(f"fwht: tensor_scale={tensor_scale} and tensor_scale_at are both given")
    return _whole(rest[:5]), tensor_scale if at is None else at


def _whole(prologue: tuple) -> tuple:
    """With the defaults that the dispatcher left out."""
    return (*prologue, *quantize.NO_PROLOGUE[len(prologue) :])


def _quantize_into(
    cache: Tensor, slots: Tensor, x: Tensor, encoding: str, operator: str | None = None, signs: Tensor | None = None,
    dense: Tensor | None = None, scale: Any = None, transpose: bool = False, variant: str | None = None, *prologue: Any,
) -> None:  # fmt: skip
    layout = quantize.checked(tuple(x.shape), encoding, None)
    if _c.row_stride(x.shape, x.stride()) is None:
        quantize.require_apart(x, cache)
        require_memory(x)
        x = x.contiguous()
    quantize.run(
        view_of(x), view_of(cache), None, 0, layout.text, operator or "", signs, dense, scale, None, transpose, variant,
        _whole(prologue), slots,
    )  # fmt: skip


def _fake_quantize_into(
    cache: Tensor, slots: Tensor, x: Tensor, encoding: str, operator: str | None = None, signs: Tensor | None = None,
    dense: Tensor | None = None, scale: Any = None, transpose: bool = False, variant: str | None = None, *prologue: Any,
) -> None:  # fmt: skip
    check(x, scale, operator or None, signs, transpose, is_encoded=True)
    quantize.checked((int(x.shape[-1]),), encoding, None)


def _fake_quantize(
    x: Tensor, encoding: str, operator: str | None = None, signs: Tensor | None = None, dense: Tensor | None = None,
    scale: Any = None, tensor_scale: Any = None, transpose: bool = False, variant: str | None = None, *rest: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    check(x, scale, operator or None, signs, transpose, is_encoded=True)
    return encoded_outputs(x, quantize.checked((int(x.shape[-1]),), encoding, _split(rest, tensor_scale)[1]))


# --- linear layers ---------------------------------------------------------------------------------------------------


def multiply(
    x: Tensor, weights: Tensor, n: int, group: int, zero_points: str, rotation: str, variant: str, act_order: bool = False
) -> Tensor:
    dtype = layer_dtypes.get(x.dtype) or str(x.dtype).removeprefix("torch.")
    asked = (x.shape[-1], n, group, zero_points, dtype, rotation, act_order, variant)
    if (y := multiplied(x, weights, asked)) is not None:
        return y
    device = x.get_device()
    require_memory(x)
    require_memory(weights)
    if weights.device != x.device:
        raise ValueError(f"fwht: x is on {x.device}, the weights are on {weights.device}")
    x, weights = x.contiguous(), weights.contiguous()
    if x.data_ptr() % 16:
        x = x.clone()  # a slice of a larger tensor
    key = (x.shape, x.dtype, place_of(x), asked)
    if (entry := linear.known(key)) is None:
        shape = (*x.shape[:-1], n)
        entry = linear.call_for(x.numel() // asked[0], *asked, device), blank(shape, x.dtype, x.device)
        if x.numel():  # else its memory has no address
            linear.remember(key, entry)
    return _run_layer(entry, x, weights)


def multiplied(x: Tensor, weights: Tensor, asked: tuple) -> Tensor | None:
    """What `multiply` does once it has done a call of this kind, where tensors lie as kernels read them; else None.

    asked: as `linear.Packed` begins.
    """
    device, source = x.get_device(), x.data_ptr()
    entry = linear.known((x.shape, x.dtype, device if device >= 0 else place_of(x), asked))
    if entry is None or source % 16 or not source or not x.is_contiguous():
        return None
    if weights.get_device() != device or not weights.is_contiguous() or not weights.data_ptr():
        return None
    return _run_layer(entry, x, weights)


def _run_layer(entry: tuple[linear._Call, Tensor], x: Tensor, weights: Tensor) -> Tensor:
    """The workspace is PyTorch's, of the current stream: in a capture, of the graph."""
    call, like = entry
    y = _empty_like(like)
    workspace = weights.new_empty(call.workspace_bytes) if call.workspace_bytes else None
    call.run(
        x.data_ptr(), y.data_ptr(), weights.data_ptr(), weights.nbytes, None if workspace is None else workspace.data_ptr(),
        raw_stream(call.device) if call.device >= 0 else None,
    )  # fmt: skip
    return y


def _fake_multiply(
    x: Tensor, weights: Tensor, n: int, group: int, zero_points: str, rotation: str, variant: str, act_order: bool = False
) -> Tensor:
    return torch.empty((*x.shape[:-1], n), dtype=x.dtype, device=x.device)


# --- registration ----------------------------------------------------------------------------------------------------

for _name, _kernel, _shape in (
    ("hadamard_transform", transform, _fake),
    ("hadamard_transform_", _replace, _fake_),
    ("hadamard_arranged", arranged, _fake_arranged),
    ("hadamard_quantize", _quantize, _fake_quantize),
    ("hadamard_quantize_into", _quantize_into, _fake_quantize_into),
    ("gptq_linear", multiply, _fake_multiply),
):
    for _key in ("CPU", "CUDA"):
        library.impl(_name, _kernel, _key)
    torch.library.register_fake(f"{library.ns}::{_name}", _shape)
torch.library.register_vmap(f"{library.ns}::hadamard_transform", _vmap)
torch.library.register_vmap(f"{library.ns}::hadamard_transform_", _vmap_)
torch.library.register_vmap(f"{library.ns}::hadamard_arranged", _vmap_arranged)
library.impl("hadamard_transform_", _in_place_below_autograd, "ADInplaceOrView", with_keyset=True)

_registered = getattr(torch.ops, library.ns)
op = _registered.hadamard_transform.default
op_ = _registered.hadamard_transform_.default
op_arranged = _registered.hadamard_arranged.default
op_quantize = _registered.hadamard_quantize.default
op_quantize_into = _registered.hadamard_quantize_into.default
op_linear = _registered.gptq_linear.default
