"""Transform and quantization in one pass: codes and scales in the formats that consumers read.

    q, scales = fwht.hadamard_quantize(x, "e4m3:row")            # float8_e4m3fn codes, one float32 scale per row
    q, scales = fwht.hadamard_quantize(x, "nvfp4", tensor_scale=g)
    q, scales = fwht.quantize.quantize(x, "mxfp4")               # the same without the transform
    y = fwht.quantize.dequantize(q, scales, "mxfp4")             # float32
    y = fwht.quantize.round_trip(x, "mxfp4")                     # what x becomes, in its dtype

An encoding is a text: format, what shares a scale, and where they differ from the default the type and layout of the scales
and the recipe, whose bits are those of the library that it is named after: "e4m3:row", "e4m3:128,ue8m0,mn,deepgemm", "int8:row",
"int4:row", "mxfp8", "mxfp4:rceil", "nvfp4:128x4".
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import json
import math
from typing import Any, Callable, NamedTuple, SupportsFloat

from . import _c, _tensors, array, operators

__all__ = [
    "Encoded", "Layout", "RmsNorm", "Rope", "dequantize", "hadamard_quantize", "into_cache", "layout_of", "quantize", "round_trip",
]  # fmt: skip


class Encoded(NamedTuple):
    """What `hadamard_quantize` returns; None for scales where the only one was given."""

    codes: Any
    scales: Any


class RmsNorm(NamedTuple):
    """In front of the transform, in the same kernel: x / sqrt(mean(x^2) + epsilon) rounded, times the weight, rounded."""

    weight: Any  # n elements of x's dtype
    epsilon: float = 1e-6


class Rope(NamedTuple):
    """In front of the transform, in the same kernel: rotary embedding of the first `width` elements of each row."""

    cos_sin: Any  # float32, (positions, width): half of a row are cosines, the other half sines
    positions: Any  # int64: the row of cos_sin for every `heads` consecutive rows of x
    heads: int = 1
    interleaved: bool = False  # pairs are neighbours; otherwise (i, i + width / 2)


# What the operators of PyTorch take of it: text, weight, epsilon, cos_sin, positions.
NO_PROLOGUE = (None, None, 0.0, None, None)


class Layout(NamedTuple):
    """An encoding of rows of n elements."""

    text: str
    element: str  # "e4m3", "e2m1", "int8", "int4"
    code_bits: int
    scale_type: str  # "none", "f32", "f16", "ue8m0", "e8m0", "e4m3"
    layout: str  # "row_major", "mn", "packed", "128x4"
    token: int  # elements of a row of the matrix of scales
    columns: int  # of that matrix; 0 where no scale is written
    whole_tensor: bool  # one scale for everything
    needs_tensor_scale: bool

    def rows(self, elements: int) -> int:
        """Of the matrix of scales."""
        return 0 if self.columns == 0 else 1 if self.whole_tensor else elements // self.token

    @property
    def code_dtype(self) -> str:
        """As PyTorch has it."""
        return {"e4m3": "float8_e4m3fn", "int8": "int8"}.get(self.element, "uint8")

    @property
    def scale_dtype(self) -> str:
        """As it lies in memory: e8m0 as its exponent byte, "packed" as four of them in an int32."""
        if self.layout == "packed":
            return "int32"
        return {"f32": "float32", "f16": "float16", "ue8m0": "float32", "e8m0": "uint8", "e4m3": "float8_e4m3fn"}[self.scale_type]

    def storage(self, elements: int) -> tuple[int, int, bool]:
        """(rows, columns, whether columns lie side by side) of the buffer, padding included, in elements of scale_dtype."""
        rows, columns = self.rows(elements), self.columns
        if self.layout == "mn":
            return _up(rows, 4), columns, False
        if self.layout == "packed":
            return _up(rows, 4), _up(columns, 4) // 4, False
        if self.layout == "128x4":
            return _up(rows, 128), _up(columns, 4), True
        return rows, columns, True


def _up(value: int, multiple: int) -> int:
    return (value + multiple - 1) // multiple * multiple


def layout_of(encoding: str, n: int) -> Layout:
    """What an encoding means for rows of n elements.

    Raises ValueError, with the form, for what is none or does not fit n; TypeError for what is no text or no integer.
    """
    return _known_layout(_c.text_for_c("encoding", encoding, _c.ENCODING_TEXT), _c.integer("n", n))


def _known_layout(text: bytes, n: int) -> Layout:
    """A constant for torch.compile, whose graphs would break where C is asked. Of a cache that cannot be said."""
    return _layout_of(text, n)


# What torch.compiler.assume_constant_result does, which imports the compiler for a second.
_known_layout._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.lru_cache(1024)
def _layout_of(text: bytes, n: int) -> Layout:
    def ask(rows: int) -> dict[str, Any]:
        return json.loads(_c.answered(_c.library.fwht_encoding_info_json(text, n, rows)))

    about = ask(0)
    two = ask(2 * max(about["token"] // n, 1))  # rows of two tokens
    return Layout(
        about["text"], about["element"], about["code_bits"], about["scale_type"], about["layout"], about["token"],
        two["scale_columns"], two["scale_rows"] == 1, about["needs_tensor_scale"],
    )  # fmt: skip


def _token_of(encoding: str) -> str:
    """The digits of "t64", "" where the text names no token. By what torch.compile traces."""
    for word in encoding.partition("/")[0].replace(":", ",").split(","):
        if word[:1] == "t" and word[1:].isdigit():
            return word[1:]
    return ""


def hadamard_quantize(
    x: Any, encoding: str = "e4m3:row", scale: SupportsFloat | None = None, *, operator: str | None = None, signs: Any = None,
    dense: Any = None, transpose: bool = False, tensor_scale: Any = None, variant: str | None = None,
    prologue: RmsNorm | Rope | None = None, out: tuple[Any, Any] | list[Any] | None = None,
) -> Encoded:  # fmt: skip
    """Codes and scales of scale * Op x[..., :], in one pass over x. The default scale is 1/sqrt(n): orthonormal.

    Args:
        x: shape (..., n), float16, bfloat16 or float32; a PyTorch tensor (CPU or CUDA) or a NumPy array. Rows without a
            constant stride and their elements side by side are copied first.
        encoding: what to write, see `fwht.quantize`.
        scale: of the transform; None: 1/sqrt(n).
        operator, signs, dense, transpose: as in `fwht.operators.transform`; without them H_n, or the operator for n.
        tensor_scale: the number of the whole tensor that some recipes ask for: the scale itself of "e4m3:tensor,vllm_static", the
            factor 448 * 6 / largest of "nvfp4". A number, or one float32 in a tensor on the CPU, whose number is read. Or one float32
            in a tensor on x's device, which the kernel reads: nothing waits for it, CUDA graphs have the number of each replay, and
            its value, which must be positive and finite, is not checked.
        variant: a name of `fwht.variants()`.
        prologue: what rows are put through first, with the bits of a kernel of its own in front: `RmsNorm`, `Rope`; signs come
            after it. On a GPU for the formats e4m3 and mxfp4. Positions on the host are checked, those on a device are not.
        out: (codes, scales) to write, as an earlier call returned them: shape, dtype, device and strides count, scales of tensors
            begin at a multiple of 16 bytes, and they share no memory with x or each other, which is not looked at inside
            `torch.compile`. Scales are None where the encoding has none.

    Returns: `Encoded(codes, scales)`; with out what that holds.
        codes: 8 bits: x's shape, torch.float8_e4m3fn or torch.int8. 4 bits: (..., n/2), torch.uint8, the even element in the low
            half.
        scales: a matrix with a row for each token (a row of x, unless the encoding says otherwise) and a column for each group:
            float32, float16, float8_e4m3fn, or uint8 for the exponent of e8m0. As the layout wants it: "mn" has columns at a
            distance of a multiple of four rows; "packed" is int32 with four exponents each; "128x4" has its padded sizes, and its
            memory is in tiles. None where the only scale was given.
        NumPy has no float8: uint8 stands for it.

    Not differentiable. A compiled graph keeps it as the node `fwht::hadamard_quantize`.

    Raises:
        ValueError: no such encoding, one that does not fit n or the number of rows, tensor_scale missing, given in vain, on another
            device or of another dtype or size; an out that is not as what would be returned.
        NotImplementedError: the variant does not write this encoding.
        RuntimeError: x requires grad while gradients are enabled. Others: as `fwht.operators.transform`.

    Source: docs/quantize.md.
    """
    packed = operators.beside(signs, x)
    tensor_scale = _number(tensor_scale, x)
    if face := _tensors.face_of(x):
        asked = (x, encoding, operator, packed, dense, scale, tensor_scale, transpose, variant, asked_of(prologue))
        codes, scales = face.quantize_rows(*asked) if out is None else face.quantize_to(out, *asked)
    else:
        import numpy

        _require_numpy(x)
        layout = checked(x.shape, encoding, tensor_scale)
        codes, scales = numpy_outputs(layout, x.shape)
        if out is not None:
            out = checked_out(out, layout, x, x.shape)
            codes = out[0]
        if x.size == 0:
            scales[...] = 0  # a whole tensor has one for nothing, too
        x = _in_rows(x)
        view, to = array.view_of(x), array.view_of(codes)
        assert view is not None and to is not None
        run(view, to, scales.ctypes.data if scales.size else None, scales.nbytes, layout.text, operator or "", packed, dense,
            scale, tensor_scale, transpose, variant, asked_of(prologue))  # fmt: skip
        scales = shaped(layout, x.shape, scales, numpy.lib.stride_tricks.as_strided)
        if out is not None and out[1] is not None:
            out[1][...] = scales
            scales = out[1]
    return Encoded(codes, None if scales.shape == (0,) else scales)


def checked_out(out: Any, layout: Layout, x: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Codes and scales that a caller gave, which must be as new ones beside x would be for rows of this shape."""
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise TypeError(f"fwht: out is a {type(out).__name__}; it must be (codes, scales)")
    codes, scales = out
    if layout.columns == 0 and scales is not None:
        raise ValueError(f"fwht: out has scales, but encoding {layout.text} has none")
    rows, columns, side_by_side = layout.storage(_elements(shape)) if layout.columns else (0, 0, True)
    matrix: tuple[int, ...] = (rows, columns) if side_by_side else (layout.rows(_elements(shape)), columns)
    if layout.layout == "row_major" and not layout.whole_tensor and layout.token == shape[-1]:
        matrix = (*shape[:-1], columns)
    face = _tensors.face_of(x)
    wanted = [("codes", codes, code_shape(layout, shape), layout.code_dtype, True)]
    if layout.columns:
        wanted.append(("scales", scales, matrix, layout.scale_dtype, side_by_side))
    for name, given, size, dtype, contiguous in wanted:
        view = array.view_of(given) if face is None else None
        if face and _tensors.face_of(given):
            face.require_memory(given)
            view = face.described(given, tuple(given.stride()), given.device == x.device)
        if view is None or (face is None and view.device != _c.HOST):
            raise TypeError(f"fwht: {name} of out are a {type(given).__module__}.{type(given).__qualname__}; x is a {type(x).__module__}.{type(x).__qualname__}")
        if face is None and dtype.startswith("float8"):
            dtype = "uint8"
        lies = operators._is_flat(view) if contiguous else all(n == 1 or s == want for n, s, want in zip(view.shape, view.strides, (1, rows)))
        other_dtype = view.dtype_name.removeprefix("torch.").replace(dtype, "", 1)  # PyTorch 2.7 to 2.11 trace no != of these two
        if view.shape != size or other_dtype or not view.writable or not (lies or 0 in size):
            raise ValueError(
                f"fwht: {name} of out have shape {view.shape}, strides {view.strides} and dtype {view.dtype_name}; as new ones they have "
                f"shape {size}, {'contiguous' if contiguous else f'strides {(1, rows)}'}, and dtype {dtype}, on x's device where they can be written"
            )
    named = [(name, each) for name, each in (("x", x), ("codes of out", codes), ("scales of out", scales)) if each is not None]
    for (name, one), (other_name, other) in itertools.combinations(named, 2):  # the library sees neither an x that is copied nor these scales
        if _share_memory(one, other):
            raise ValueError(f"fwht: {name} and {other_name} overlap; codes and scales want memory of their own")
    return codes, scales


def require_apart(x: Any, cache: Any) -> None:
    """Before x is copied, after which the library sees nothing of it."""
    if _share_memory(x, cache):
        raise ValueError("fwht: x and cache overlap")


def _share_memory(one: Any, other: Any) -> bool:
    if face := _tensors.face_of(one):
        first, last = face.memory_of(one)
        other_first, other_last = face.memory_of(other)
        return bool(first < other_last and other_first < last)
    import numpy

    return numpy.may_share_memory(one, other)


def into_cache(
    cache: Any, slots: Any, x: Any, encoding: str, scale: SupportsFloat | None = None, *, operator: str | None = None, signs: Any = None,
    dense: Any = None, transpose: bool = False, variant: str | None = None, prologue: RmsNorm | Rope | None = None,
) -> None:  # fmt: skip
    """Codes and scales of `hadamard_quantize`, each row at its place in the pages of a cache; the rest of the cache stays.

    Args:
        cache: uint8, (pages, tokens, bytes of codes and scales of one row), contiguous, written in place. A page holds the codes
            of all its rows, then their scales: for n = 128 and "e4m3:128,ue8m0,deepseek_v32" 132 bytes per row, as the key
            cache of DeepSeek-V3.2's indexer.
        slots: int64, one per row of x, contiguous: page * tokens + place in the page. Negative, or behind the last: left out. No
            two are alike.
        x, encoding and the others: as in `hadamard_quantize`; each row has scales of its own, row-major.

    Raises: as `hadamard_quantize`; ValueError for a cache or slots of another shape, dtype or device.
    """
    face, packed = _tensors.face_of(x), operators.beside(signs, x)
    if _tensors.face_of(cache) is not face or (face and not _tensors.face_of(slots)):
        named = (("cache", cache), ("slots", slots), ("x", x))
        kinds = ", ".join(f"{name} is a {type(given).__name__}" for name, given in named)
        raise TypeError(f"fwht: {kinds}; they must not be mixed: all three are PyTorch tensors, or NumPy arrays")
    if face:
        face.quantize_into(cache, slots, x, encoding, operator, packed, dense, scale, transpose, variant, asked_of(prologue))
        return
    _require_numpy(x)
    to = array.view_of(cache)
    if to is None or not to.writable:
        raise ValueError(f"fwht: cache must be an array that can be written; it is {'read-only' if to else type(cache).__name__}")
    layout = checked(x.shape, encoding, None)
    if (rows := _in_rows(x)) is not x:
        require_apart(x, cache)
    view = array.view_of(rows)
    assert view is not None
    run(view, to, None, 0, layout.text, operator or "", packed, dense, scale, None, transpose, variant,
        asked_of(prologue), slots)  # fmt: skip


def asked_of(prologue: RmsNorm | Rope | None) -> tuple[str | None, Any, float, Any, Any]:
    """A prologue as text and operands, see NO_PROLOGUE."""
    if prologue is None:
        return NO_PROLOGUE
    if isinstance(prologue, RmsNorm):
        _require_array("weight", prologue.weight)
        epsilon = prologue.epsilon if _tensors.is_traced() else _c.checked_scale(prologue.epsilon, "epsilon")
        if epsilon is None:
            raise TypeError("fwht: epsilon=None must be a number")
        return "rms", prologue.weight, epsilon, None, None
    if not isinstance(prologue, Rope):
        raise TypeError(f"fwht: prologue is a {type(prologue).__name__}; it must be an RmsNorm, a Rope or None")
    _require_array("cos_sin", prologue.cos_sin)
    _require_array("positions", prologue.positions)
    if len(shape := tuple(prologue.cos_sin.shape)) != 2:
        raise ValueError(f"fwht: cos_sin must have shape (positions, width); it has {shape}")
    text = f"rope{shape[1]}{'i' if prologue.interleaved else ''}{f'h{prologue.heads}' if prologue.heads != 1 else ''}"
    return text, None, 0.0, prologue.cos_sin, prologue.positions


def _require_array(name: str, given: Any) -> None:
    if not hasattr(given, "shape"):
        raise TypeError(f"fwht: {name} is a {type(given).__name__}; it must be a PyTorch tensor or a NumPy array")


def _require_numpy(x: Any) -> None:
    import numpy

    if not isinstance(x, numpy.ndarray):
        raise TypeError(f"fwht: x is a {type(x).__module__}.{type(x).__qualname__}; it must be a PyTorch tensor or a NumPy array")
    array.require_unmasked(x)


def _in_rows(x: Any) -> Any:
    """The NumPy array, or a copy whose rows have a constant stride, their elements side by side."""
    import numpy

    view = array.view_of(x)
    assert view is not None
    in_rows = min(view.strides, default=0) >= 0 and _c.row_stride(x.shape, view.strides) is not None
    return x if in_rows else numpy.ascontiguousarray(x)


def _pages(layout: Layout, codes: array.View) -> str:
    """The word of a problem for a cache. Its shape is (pages, tokens, bytes of a row)."""
    bytes_of_row = layout.token * layout.code_bits // 8
    if layout.columns:
        dtype = _c.DTYPES.get(layout.scale_dtype)
        bytes_of_row += layout.columns * (1 if dtype is None else _c.ITEMSIZE[dtype])
    shape = codes.shape
    if len(shape) != 3 or shape[2] != bytes_of_row or not codes.dtype_name.endswith("uint8") or not codes.contiguous:
        raise ValueError(
            f"fwht: cache must be contiguous uint8 of shape (pages, tokens, {bytes_of_row}) for rows of {layout.text}; it is "
            f"{codes.dtype_name} of shape {shape}"
        )
    return f"page{shape[1]}x{shape[0]}"


def quantize(
    x: Any, encoding: str, *, tensor_scale: Any = None, variant: str | None = None, out: tuple[Any, Any] | list[Any] | None = None
) -> Encoded:
    """Codes and scales of x itself: the quantizer of `hadamard_quantize` without a transform.

    Arguments, results and errors as there. The transform is H_1 of every element, so that each variant that offers it writes
    the codes of rows that an earlier launch has rotated.
    """
    if _tensors.face_of(x) is None and not (hasattr(x, "shape") and hasattr(x, "reshape")):
        raise TypeError(f"fwht: x is a {type(x).__module__}.{type(x).__qualname__}; it must be a PyTorch tensor or a NumPy array")
    if face := _tensors.face_of(x):
        face.require_memory(x)
    shape, tensor_scale = tuple(x.shape), _number(tensor_scale, x)
    layout = checked(shape, encoding, tensor_scale)
    _require_whole_tokens("x", shape, layout, encoding)
    text = _by_elements(layout, encoding, shape[-1])
    if out is not None:
        codes, scales = checked_out(out, layout, x, shape)
        is_matrix = scales is None or layout.layout != "row_major" or layout.whole_tensor
        flat = codes.reshape(-1, 1), scales if is_matrix else scales.reshape(-1, layout.columns)
        hadamard_quantize(x.reshape(-1, 1), text, 1.0, tensor_scale=tensor_scale, variant=variant, out=flat)
        return Encoded(codes, scales)
    codes, scales = hadamard_quantize(x.reshape(-1, 1), text, 1.0, tensor_scale=tensor_scale, variant=variant)
    codes = codes.reshape(code_shape(layout, shape))
    if scales is not None and layout.layout == "row_major" and not layout.whole_tensor:
        rows = shape[:-1] if layout.token == shape[-1] else (-1,)
        scales = scales.reshape((*rows, layout.columns))
    return Encoded(codes, scales)


def _by_elements(layout: Layout, encoding: str, n: int) -> str:
    """The encoding of rows of n elements, said of rows of one: its tokens are named. H_1 rounds nothing, so that results in fp32
    are x itself."""
    head, slash, intermediate = encoding.removesuffix("/f32").partition("/")
    if layout.token != n or _token_of(head):
        return head + slash + intermediate
    return f"{head}{',' if ':' in head else ':'}t{n}{slash}{intermediate}"


def _number(tensor_scale: Any, x: Any) -> Any:
    """Of one element on the CPU; one on x's device stays there. What else is no number, is refused."""
    if tensor_scale is None or type(tensor_scale) is float or (type(tensor_scale) is int and _tensors.is_traced()):
        return tensor_scale
    face = _tensors.face_of(tensor_scale)
    if not face and _tensors.is_traced():  # where NumPy's numbers are arrays
        return _c.checked_scale(tensor_scale, "tensor_scale")
    device, shape = getattr(tensor_scale, "device", "cpu"), getattr(tensor_scale, "shape", None)
    if face:
        if face.is_differentiated(tensor_scale):
            raise RuntimeError("fwht: tensor_scale requires grad, and codes have none; pass tensor_scale.detach()")
        face.require_memory(tensor_scale)
    if str(device) == "cpu" and shape is not None:
        if shape != ():
            _require_one_float(tensor_scale)
        number = tensor_scale.item()
        return number if _tensors.is_traced() else _c.checked_scale(number, "tensor_scale")
    if not face:
        return _c.checked_scale(tensor_scale, "tensor_scale")
    if device != getattr(x, "device", None):
        raise ValueError(f"fwht: tensor_scale is on {device}, x is on {getattr(x, 'device', 'the host')}")
    return tensor_scale


def _require_one_float(tensor_scale: Any) -> None:
    shape, dtype = tuple(tensor_scale.shape), str(tensor_scale.dtype)
    if _elements(shape) != 1 or dtype.removeprefix("torch.") != "float32":
        raise ValueError(f"fwht: tensor_scale must be one element of float32; it has shape {shape} and dtype {dtype}")


def _in_memory(tensor_scale: Any) -> bool:
    """Whether it is a tensor of PyTorch, whose number kernels read."""
    return _tensors.face_of(tensor_scale) is not None


def checked(shape: tuple[int, ...], encoding: str, tensor_scale: Any) -> Layout:
    if len(shape) == 0:
        raise ValueError("fwht: x must have at least one dimension, whose length is n; it is a scalar")
    layout = layout_of(encoding, shape[-1])
    if layout.needs_tensor_scale and tensor_scale is None:
        raise ValueError(f"fwht: encoding {encoding} needs tensor_scale, a number or a tensor")
    if tensor_scale is not None:
        in_memory = _in_memory(tensor_scale)
        is_number = not in_memory and not _tensors.is_traced()
        if is_number:
            _c.checked_scale(tensor_scale, "tensor_scale")
        if not layout.needs_tensor_scale:
            raise ValueError(f"fwht: tensor_scale{'' if in_memory else f'={tensor_scale}'} is given, but encoding {encoding} has none")
        if in_memory:
            _require_one_float(tensor_scale)
        elif is_number and not (0 < (single := ctypes.c_float(float(tensor_scale)).value) < math.inf and ctypes.c_float(1 / single).value < math.inf):
            raise ValueError(f"fwht: tensor_scale={tensor_scale} must be positive and finite in float32, in which codes are scaled, as its reciprocal must")
    return layout


def code_shape(layout: Layout, shape: tuple[int, ...]) -> tuple[int, ...]:
    if shape[-1] == 1 and layout.code_bits == 4:  # rows of one element, of which two share a byte of 4-bit codes
        return (_elements(shape) * layout.code_bits // 8, 1)
    return (*shape[:-1], shape[-1] * layout.code_bits // 8)


def _elements(shape: tuple[int, ...]) -> int:
    elements = 1
    for size in shape:
        elements *= size
    return elements


def numpy_outputs(layout: Layout, shape: tuple[int, ...]) -> tuple[Any, Any]:
    import numpy

    codes: Any = numpy.empty(code_shape(layout, shape), numpy.int8 if layout.element == "int8" else numpy.uint8)
    if layout.columns == 0:
        return codes, numpy.empty(0, numpy.float32)
    rows, columns, _ = layout.storage(_elements(shape))
    kind = "uint8" if layout.scale_dtype.startswith("float8") else layout.scale_dtype
    return codes, array.aligned_bytes(rows * columns * numpy.dtype(kind).itemsize).view(kind)


def shaped(layout: Layout, shape: tuple[int, ...], flat: Any, strided: Callable[..., Any]) -> Any:
    """The matrix in a flat buffer; `strided(buffer, shape, strides)` counts strides in bytes for NumPy, in elements for PyTorch."""
    if layout.columns == 0:
        return flat
    rows, columns, side_by_side = layout.storage(_elements(shape))
    if not side_by_side:
        item = getattr(flat, "itemsize", 1) if strided.__module__.startswith("numpy") else 1
        return strided(flat, (layout.rows(_elements(shape)), columns), (item, rows * item))
    if layout.layout == "row_major" and not layout.whole_tensor and layout.token == shape[-1]:
        return flat.reshape((*shape[:-1], columns))
    return flat.reshape((rows, columns))


def run(
    x: array.View, codes: array.View, scales: int | None, scales_bytes: int, encoding: str, operator: str, signs: Any, dense: Any,
    scale: SupportsFloat | None, tensor_scale: Any, transpose: bool, variant: str | None, prologue: tuple = NO_PROLOGUE,
    slots: Any = None,
) -> None:  # fmt: skip
    """Codes and scales, or with `slots` rows of `codes`, which is a cache of pages then."""
    text = operators.resolved(tuple(x.shape), operator, signs is not None, transpose)
    name = _c.encoded(variant)
    if x.device != _c.HOST:
        _c.needs_cuda_build()
    stride = _c.row_stride(x.shape, x.strides)
    word, weight, epsilon, cos_sin, positions = prologue
    words = [] if word is None else [word]
    if slots is not None:
        if codes.device != x.device:
            raise ValueError(f"fwht: cache is on device {codes.device} and x is on {x.device} (-1: the host)")
        words.append(_pages(layout_of(encoding, x.shape[-1]), codes))
    preparation = "/".join(words)
    problem = _c.make_problem(
        x.shape, x.dtype, x.dtype_name, scale, in_place=False, device=x.device, in_stride=stride or 0, out_stride=x.shape[-1],
        variant=name, operator=text, encoding=encoding, preparation=preparation, threads=x.threads,
    )  # fmt: skip
    assert stride is not None or 0 in x.shape  # behind the dtype: elements without bytes have no strides
    operands = _c.Operands(ctypes.sizeof(_c.Operands))
    signs_bytes, dense_entries = operators.operand_sizes(text)
    operands.signs = operators._operand("signs", signs, signs_bytes, "uint8", f"operator {text}", x)
    operands.dense = operators._operand("dense", dense, dense_entries, x.dtype_name, f"operator {text}", x)
    _c.check(_c.library.fwht_supports(problem, name, x.device), x.device)
    if 0 in x.shape:
        return
    if cos_sin is not None and cos_sin.shape[0] == 0:
        raise ValueError(f"fwht: cos_sin has shape {tuple(cos_sin.shape)}; it must have at least one position")
    rows, operands.epsilon = problem.rows, epsilon
    for key, given, count, dtype in (
        ("weight", weight, x.shape[-1], x.dtype_name),
        ("cos_sin", cos_sin, 0 if cos_sin is None else cos_sin.shape[0] * cos_sin.shape[1], "float32"),
        ("positions", positions, rows // max(_heads(word), 1), "int64"),
        ("slots", slots, rows, "int64"),
    ):
        if given is not None:
            setattr(operands, key, operators._operand(key, given, count, dtype, f"preparation {preparation}", x))
    if positions is not None and x.device == _c.HOST and not 0 <= int(positions.min()) <= int(positions.max()) < cos_sin.shape[0]:
        raise ValueError(
            f"fwht: positions run from {int(positions.min())} to {int(positions.max())}; cos_sin has {cos_sin.shape[0]} of them"
        )
    operands.input, operands.out, operands.scales = x.pointer, codes.pointer, scales
    operands.scales_bytes = scales_bytes
    if _in_memory(tensor_scale):
        operands.tensor_scale_at = operators._operand("tensor_scale", tensor_scale, 1, "float32", f"encoding {encoding}", x)
    elif tensor_scale is not None:
        operands.tensor_scale = float(tensor_scale)
    if status := _c.library.fwht_transform_operands(
        ctypes.addressof(problem), name, ctypes.addressof(operands), x.device, x.stream
    ):
        _c.fail(status, x.device)


def _heads(word: str | None) -> int:
    """Of "rope64h32"."""
    return int(word.split("h")[1]) if word is not None and "h" in word else 1


_LEAST = 2.0**-110  # as the largest element of a tensor: 448 * 6 over it is finite in float32
_SLICE = 1 << 24  # elements that `dequantize` works on at once: bounds its memory beside the result


def dequantize(codes: Any, scales: Any, encoding: str, *, tensor_scale: Any = None, dtype: Any = None) -> Any:
    """The numbers that codes and scales stand for, in float32 or `dtype`: codes times scales in float32, rounded once.

    Needs PyTorch, and takes its tensors. Beside the result it takes memory for 2^24 elements.

    Args:
        codes, scales: as `hadamard_quantize` and `quantize` return them for `encoding`, on one device. Scales that are row-major may
            have other dimensions in front of several columns. Of one column they have the dimensions of codes in front
            of it, or one for all rows, and need not have the column itself.
        tensor_scale: what the codes were made with: for "nvfp4" results are divided by it, the one scale of "vllm_static" is it.
        dtype: of the result, torch.float16, torch.bfloat16 or torch.float32; None: float32.

    Returns: (..., n), for codes of shape (..., n) or, of 4 bits, (..., n/2).

    Raises:
        ValueError: no such encoding; codes or scales of another dtype or shape than it has, no whole tokens, scales on another
            device; tensor_scale missing, in vain, or not positive and finite in float32.
        TypeError: codes or scales that are no tensors, another dtype.
    """
    import torch

    if dtype not in (None, torch.float16, torch.bfloat16, torch.float32):
        raise TypeError(f"fwht: dtype={dtype!r} must be torch.float16, torch.bfloat16, torch.float32 or None")

    if not isinstance(codes, torch.Tensor):
        raise TypeError(f"fwht: codes are a {type(codes).__module__}.{type(codes).__qualname__}; they must be a PyTorch tensor")
    if face := _tensors.face_of(codes):
        face.require_memory(codes, scales)
    tensor_scale = _number(tensor_scale, codes)
    bits = 4 if codes.dtype is torch.uint8 else 8
    shape = (*codes.shape[:-1], codes.shape[-1] * 8 // bits) if codes.dim() else ()
    layout = checked(shape, encoding, tensor_scale)
    if codes.dtype is not getattr(torch, layout.code_dtype):
        raise ValueError(f"fwht: codes are {codes.dtype}, but encoding {encoding} has codes of {layout.code_bits} bits in {layout.code_dtype}")
    elements = _elements(shape)
    _require_whole_tokens("codes", shape, layout, encoding)
    _check_scales(scales, layout, encoding, shape, codes.device)
    result = codes.new_empty(shape, dtype=dtype or torch.float32)  # with the dimension of a vmap, where codes have one
    if elements == 0:
        return result
    rows, columns = (layout.rows(elements), layout.columns) if layout.columns else (1, 1)
    # In memory in any case: PyTorch multiplies by the reciprocal of a number instead of dividing, on CUDA.
    number: Any = 1.0 if tensor_scale is None else tensor_scale
    given = number if _in_memory(number) else torch.full((), number, dtype=torch.float32, device=codes.device)
    factors = _scale_matrix(scales, layout, rows, columns) if layout.columns else given
    divided = layout.element == "e2m1" and layout.needs_tensor_scale
    groups = rows * columns
    group, factors = elements // groups, factors.reshape(groups, 1)
    shared = 2 if bits == 4 and group % 2 else 1  # groups that have bytes of their own together
    numbers, codes = result.view(groups, group), codes.reshape(groups // shared, -1)
    step = max(1, _SLICE // (shared * group))
    most = _SLICE if shared == 1 else group
    for first in range(0, groups // shared, step):
        some = slice(shared * first, shared * (first + step))
        for at in range(0, group, most):
            place = slice(at * bits // 8, (at + most) * shared * bits // 8)
            decoded = _decoded(codes[first : first + step, place], layout.element)
            values = decoded.reshape(len(factors[some]), -1) * factors[some]
            numbers[some, at : at + most] = values / given if divided else values
    return result


def _require_whole_tokens(name: str, shape: tuple[int, ...], layout: Layout, encoding: str) -> None:
    if not layout.whole_tensor and _elements(shape) % layout.token:
        raise ValueError(
            f"fwht: {name} of shape {shape} and {_elements(shape)} elements are no whole tokens of {layout.token} elements, as "
            f"encoding {encoding} has them"
        )


def _check_scales(scales: Any, layout: Layout, encoding: str, shape: tuple[int, ...], device: Any) -> None:
    import torch

    elements = _elements(shape)
    if layout.columns == 0:
        if scales is not None and tuple(scales.shape) != (0,):
            raise ValueError(f"fwht: scales are given, but encoding {encoding} has none")
        return
    if not isinstance(scales, torch.Tensor):
        raise TypeError(f"fwht: scales are a {type(scales).__module__}.{type(scales).__qualname__}; they must be a PyTorch tensor")
    rows, columns, side_by_side = layout.storage(elements)
    leading = shape[:-1] if layout.token == shape[-1] else (rows,)
    if side_by_side and columns == 1 and not layout.whole_tensor:
        # Other dimensions may be those of the codes in another order, which one column does not tell.
        fits = tuple(scales.shape) in ((rows, 1), (rows,), (*leading, 1), leading)
    elif side_by_side:
        fits = scales.numel() == rows * columns and (columns == 1 or scales.shape[-1] == columns)
    else:
        rows = layout.rows(elements)
        fits = tuple(scales.shape) == (rows, columns)
    if not fits or scales.dtype is not getattr(torch, layout.scale_dtype):
        raise ValueError(
            f"fwht: scales are {scales.dtype} of shape {tuple(scales.shape)}; for {elements} elements encoding {encoding} has "
            f"{layout.scale_dtype} of shape {(rows, columns)}{f' or {(*leading, columns)}' if len(leading) > 1 else ''}"
        )
    if scales.device != device:
        raise ValueError(f"fwht: scales are on {scales.device}, codes are on {device}")


def round_trip(
    x: Any, encoding: str, *, rotate: bool = False, operator: str | None = None, signs: Any = None, dense: Any = None,
    tensor_scale: Any = None, variant: str | None = None,
) -> Any:  # fmt: skip
    """What x becomes by quantization: `quantize` and `dequantize`, in x's shape and dtype. Needs a PyTorch tensor.

    With rotate=True the codes are those of the orthonormal transform of x, and so is the result. tensor_scale: for "nvfp4"
    None takes 448 * 6 / the largest element, on x's device (on the CPU by reading it, which breaks a compiled graph;
    ValueError where it is not finite). Others, and errors: as `hadamard_quantize`.
    """
    import torch

    if not isinstance(x, torch.Tensor):
        raise TypeError(f"fwht: x is a {type(x).__module__}.{type(x).__qualname__}; it must be a PyTorch tensor")
    if not rotate and (operator is not None or signs is not None or dense is not None):
        raise ValueError("fwht: operator, signs and dense are given, but rotate is False")
    if face := _tensors.face_of(x):
        face.require_memory(x)
    tensor_scale = _number(tensor_scale, x)
    is_made = tensor_scale is None and isinstance(encoding, str) and encoding.startswith("nvfp4")
    checked(tuple(x.shape), encoding, 1.0 if is_made else tensor_scale)
    if is_made:
        y = operators.transform(x, operator, signs=signs, dense=dense) if rotate else x
        if not x.numel():
            tensor_scale = 1.0
        elif x.is_cpu:
            largest = float(y.abs().amax())
            if not math.isfinite(largest):
                raise ValueError(f"fwht: the largest element is {largest}, of which {encoding} has no factor; pass tensor_scale, or x that is finite")
            tensor_scale = 448 * 6 / max(largest, _LEAST)
        else:
            largest_of_all = y.abs().amax().float().clamp_(min=_LEAST)
            tensor_scale = largest_of_all.new_full((), 448 * 6) / largest_of_all  # number / tensor would round twice, by its reciprocal
    if rotate:
        codes, scales = hadamard_quantize(
            x, encoding, operator=operator, signs=signs, dense=dense, tensor_scale=tensor_scale, variant=variant
        )
    else:
        codes, scales = quantize(x, encoding, tensor_scale=tensor_scale, variant=variant)
    return dequantize(codes, scales, encoding, tensor_scale=tensor_scale, dtype=x.dtype).view(x.shape)  # of rows of one element, too


def _decoded(codes: Any, element: str) -> Any:
    """float32; two numbers for each byte of 4-bit codes. Arithmetic on bytes: a table would want indices of eight."""
    import torch

    if element in ("e4m3", "int8"):
        return codes.to(torch.float32)
    halves = torch.stack([codes & 15, codes >> 4], -1).flatten(-2).to(torch.int8)
    if element == "int4":
        return ((halves ^ 8) - 8).to(torch.float32)
    size = halves & 7  # twice the number is 0 1 2 3 | 4 6 | 8 12: below 4, from 4 on, from 6 on
    doubled = size + (size - 4).clamp_(min=0) + 2 * (size - 6).clamp_(min=0)
    return torch.where(halves > 7, -doubled, doubled).to(torch.float32) * 0.5


def _scale_matrix(scales: Any, layout: Layout, rows: int, columns: int) -> Any:
    """rows x columns numbers in float32, whatever the layout."""
    import torch

    if layout.layout == "packed":
        stored = torch.stack([scales >> shift & 255 for shift in (0, 8, 16, 24)], -1).reshape(scales.shape[0], -1)[:, :columns]
        return torch.exp2(stored.to(torch.float32) - 127)
    if layout.scale_type == "e4m3":  # PyTorch does not index float8 on the CPU
        scales = scales.to(torch.float32)
    if layout.layout == "128x4":
        i = torch.arange(rows, device=scales.device)[:, None]
        j = torch.arange(columns, device=scales.device)[None, :]
        tile = (i >> 7) * (_up(columns, 4) // 4) + (j >> 2)
        scales = scales.reshape(-1)[tile * 512 + (i & 31) * 16 + (i >> 5 & 3) * 4 + (j & 3)]
    matrix = scales.reshape(rows, columns) if layout.layout != "mn" else scales
    if layout.scale_type == "e8m0":
        return torch.exp2(matrix.to(torch.float32) - 127)
    return matrix.to(torch.float32)
