"""Walsh spectra and what is made of them: Boolean functions, dyadic convolutions, sketches, sums that are known to fit.

    w = fwht.walsh.spectrum(f, "packed")          # int32 [2^k] of a Boolean function of k variables
    fwht.walsh.summary(w).nonlinearity
    fwht.walsh.summaries(f, "packed").nonlinearity  # of one function or of many, without their spectra
    fwht.walsh.largest_of(f, "packed", 20)          # places and values
    c = fwht.walsh.dyadic_convolution(a, b)       # c[i] = sum over j of a[j] b[i xor j]
    y = fwht.walsh.Sketch(length, rows, seed)(x)  # random signs, transform, chosen rows (SRHT)
    y = fwht.walsh.rounds(x, [s1, s2, s3])        # H D3 H D2 H D1 x
    codes, scales = fwht.walsh.rounds_to_codes(x, [s1, s2, s3], 8)
    y = fwht.walsh.checked_transform(x)           # int32 or int64; OverflowError where a sum does not fit

NumPy arrays and PyTorch tensors, on the CPU and on CUDA devices; every function returns what it was given. The C and C++ names
are in fwht.h and variants/library/walsh.hpp; spectra and summaries of Boolean functions, dyadic convolutions, rounds and sketches for
device memory too, the others for host memory. Source: docs/long_vectors.md.
"""

from __future__ import annotations

import ctypes
import functools
import math
import sys
from typing import Any, NamedTuple, Sequence

from . import _c, _tensors, array, operators

__all__ = [
    "Sketch",
    "Summary",
    "autocorrelation",
    "checked_transform",
    "dyadic_convolution",
    "largest",
    "largest_of",
    "rounds",
    "rounds_to_codes",
    "spectrum",
    "summaries",
    "summary",
]
FORMS = {"packed": ("uint8",), "bits": ("bool", "uint8", "int8"), "signs": ("int8",)}  # by their codes of fwht_function_form
_MOST_VARIABLES = 30
_BITS = {"int32": 32, "int64": 64}


def _view(x: Any, name: str = "x") -> array.View:
    face = _tensors.face_of(x)
    view: array.View | None = face.view_of(x) if face else array.view_of(x)
    if view is None:
        raise TypeError(f"fwht: {name} is a {type(x).__module__}.{type(x).__qualname__}, not a PyTorch tensor, NumPy or CuPy array")
    return view


def _described(x: Any, name: str = "x") -> array.View:
    """Shape, dtype and device, which a tensor has where it has no address: inside torch.func and torch.compile."""
    face = _tensors.face_of(x)
    if face:
        face.require_memory(x)
    view: array.View = face.described(x) if face else _view(x, name)
    return view


def _dtype_name(view: array.View) -> str:
    return view.dtype_name.removeprefix("torch.")


def _as(x: Any, dtype: str) -> Any:
    """A copy in another dtype."""
    if _tensors.face_of(x):
        return x.to(getattr(sys.modules["torch"], dtype))
    return x.astype(dtype)


def _where(condition: Any, x: Any, y: Any) -> Any:
    return sys.modules["torch" if _tensors.face_of(x) else "numpy"].where(condition, x, y)


def _transform(x: Any, scale: float | None = 1, variant: str | None = None) -> Any:
    face = _tensors.face_of(x)
    return face.functional(x, scale, variant) if face else array.transform(x, scale, None, False, variant)


def checked_transform(x: Any, *, variant: str | None = None) -> Any:
    """`hadamard_transform(x, 1)` of integers, whose results all fit x's dtype.

    Where n max |x| is small enough, this costs one look at x; else one or two more transforms, of wider or split numbers. It waits
    for the device. So torch.func.vmap refuses it, and torch.compile breaks its graph here.

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
    view = _described(x)
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


# --- Boolean functions -----------------------------------------------------------------------------------------------


def _like(x: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """A new array beside x."""
    if _tensors.face_of(x):
        return x.new_empty(shape, dtype=getattr(sys.modules["torch"], dtype))
    import numpy

    return numpy.empty(shape, dtype)


def _contiguous(x: Any) -> Any:
    if _tensors.face_of(x):
        return x.contiguous()
    import numpy

    return numpy.ascontiguousarray(x)


def _host_or_tensor(x: Any, name: str) -> array.View:
    view = _described(x, name)
    if view.device != _c.HOST and not _tensors.face_of(x):
        raise TypeError(f"fwht: {name} is a {type(x).__module__}.{type(x).__qualname__}; it must be a PyTorch tensor or a NumPy array")
    return view


class _Functions(NamedTuple):
    """Of the values of Boolean functions, as C wants them."""

    view: array.View
    code: int
    n: int
    functions: int

    @property
    def variables(self) -> int:
        return self.n.bit_length() - 1

    @property
    def on_device(self) -> bool:
        return bool(self.view.device != _c.HOST)


def _functions(f: Any, form: str) -> _Functions:
    view = _host_or_tensor(f, "f")
    if not isinstance(form, str) or form not in FORMS:
        raise ValueError(f"fwht: form={form!r} must be one of {', '.join(FORMS)}")
    if _dtype_name(view) not in FORMS[form]:
        raise TypeError(f"fwht: dtype {view.dtype_name} must be {' or '.join(FORMS[form])} for the form {form}")
    n = (view.shape[-1] if view.shape else 0) * (8 if form == "packed" else 1)
    if n < 2 or n & (n - 1) or n > 1 << _MOST_VARIABLES:
        raise ValueError(f"fwht: f has the shape {view.shape}, {n} values of a function; there must be 2^k, k from 1 to {_MOST_VARIABLES}")
    return _Functions(view, list(FORMS).index(form), n, math.prod(view.shape[:-1]))


def _values_on_device(f: Any, form: str) -> Any:
    """Looked at, contiguous, packed ones at a multiple of 4 bytes."""
    f = _contiguous(f)
    _check_form(f, form)
    return f.clone() if form == "packed" and _view(f).pointer % 4 else f


def spectrum(f: Any, form: str, *, variant: str | None = None) -> Any:
    """Walsh spectra of Boolean functions of k variables: W(a) = sum over x of (-1)^(f(x) + <a, x>), exactly.

    Args:
        f: what `form` says, f(0) first; leading dimensions are functions. 1 <= k <= 30.
            "packed": uint8 (..., 2^k / 8), f(x) is bit x mod 8 of byte x // 8, as numpy.packbits(..., bitorder="little") makes them.
            "bits": bool, uint8 or int8 (..., 2^k) of 0 and 1.
            "signs": int8 (..., 2^k), (-1)^f(x): 1 and -1.
            The values are looked at, which waits for the device; nothing is guessed.
        variant: for CUDA tensors, as in `hadamard_transform`. None there: the first pass of `passes` reads f itself, so that no
            int32 copy of f is made.

    Returns: int32 (..., 2^k), of f's library and device. torch.func refuses it, and what else reads functions or spectra here;
    leading dimensions do what vmap would.

    Raises:
        ValueError: an unknown form or variant, a length that is none, a value that is not of the form, with its place.
        TypeError: a dtype that is not of the form.
        NotImplementedError: a variant that works on the other kind of memory; a tensor inside torch.func.

    Example:
        >>> import numpy, fwht
        >>> fwht.walsh.spectrum(numpy.array([0, 0, 0, 1], "uint8"), "bits")
        array([ 2,  2,  2, -2], dtype=int32)
    """
    given = _functions(f, form)
    if given.on_device and variant is not None:
        return _transform(_checked_signs(f, form), 1, variant)
    if variant is not None:  # on the host there is one way, but a name is looked up all the same
        name = _c.encoded(variant)
        asked = _c.make_problem((given.functions, given.n), _c.I32, "int32", 1, in_place=False, device=_c.HOST, variant=name)
        _c.check(_c.library.fwht_supports(asked, name, _c.HOST))
    w = _like(f, (*given.view.shape[:-1], given.n), "int32")
    if given.on_device:
        f = _values_on_device(f, form)
        seen, made = _view(f), _view(w)
        _c.check(_c.library.fwht_walsh_spectrum_on(
            given.code, seen.pointer, given.variables, given.functions, made.pointer, f.device.index, seen.stream
        ))
    else:
        seen = _view(f := _contiguous(f))
        _c.check(_c.library.fwht_walsh_spectrum(given.code, seen.pointer, given.variables, given.functions, _view(w).pointer, seen.threads))
    return w


def _check_form(f: Any, form: str) -> None:
    """Looks at the values of a tensor, one byte each."""
    if form == "packed" or _dtype_name(_view(f)) == "bool":
        return
    wrong = (f != 1) & (f != -1) if form == "signs" else (f != 0) & (f != 1)
    if wrong.any():
        place = int(wrong.flatten().nonzero()[0])
        allowed = "1 and -1; 0 and 1 are the form bits" if form == "signs" else "0 and 1; 1 and -1 are the form signs"
        raise ValueError(f"fwht: element {place} is {int(f.flatten()[place])}, but the form {form} has {allowed}")


def _checked_signs(f: Any, form: str) -> Any:
    """int32 1 and -1 of a tensor."""
    torch = sys.modules["torch"]
    if form == "packed":
        bits = f[..., None] >> torch.arange(8, dtype=torch.uint8, device=f.device) & 1
        return 1 - 2 * bits.flatten(-2).to(torch.int32)
    _check_form(f, form)
    values = f.to(torch.int32)
    return values if form == "signs" else 1 - 2 * values


class Summary(NamedTuple):
    """Of one Walsh spectrum: max |W|, the first place that has it, 2^(k-1) - largest / 2, and the sum of W^2, which is 4^k for a
    Boolean function (Parseval). Integers, or from `summaries` int64 arrays of them."""

    largest: Any
    place: Any
    nonlinearity: Any
    sum_of_squares: Any


def summaries(f: Any, form: str) -> Summary:
    """Of Boolean functions, without their spectra: the last pass on a device reduces its sums in place of storing them.

    Args: f, form: as `spectrum` takes them; values of packed functions are not looked at, which would wait for the device.

    Returns: `Summary` of int64 arrays (...), of f's library and device.

    Raises: as `spectrum`.

    Example:
        >>> import numpy, fwht
        >>> fwht.walsh.summaries(numpy.array([[0, 0, 0, 1], [0, 1, 1, 0]], "uint8"), "bits").nonlinearity
        array([1, 0])
    """
    given = _functions(f, form)
    leading = given.view.shape[:-1]
    numbers = _like(f, (*leading, 4), "int64")
    if given.on_device:
        f = _values_on_device(f, form)
        needed = ctypes.c_int64()
        _c.check(_c.library.fwht_walsh_summaries_workspace(given.variables, given.functions, needed))
        workspace = _like(f, (needed.value,), "uint8")
        seen = _view(f)
        _c.check(_c.library.fwht_walsh_summaries_on(
            given.code, seen.pointer, given.variables, given.functions, numbers.data_ptr(), workspace.data_ptr() or None, needed.value,
            f.device.index, seen.stream,
        ))  # fmt: skip
    else:
        seen = _view(f := _contiguous(f))
        _c.check(_c.library.fwht_walsh_summaries(
            given.code, seen.pointer, given.variables, given.functions, _view(numbers).pointer, seen.threads
        ))
    return Summary(*(numbers[..., i] for i in range(4)))


def _spectrum_view(w: Any) -> tuple[array.View, int]:
    view = _host_or_tensor(w, "w")
    if _dtype_name(view) != "int32":
        raise TypeError(f"fwht: dtype {view.dtype_name} must be int32, as `spectrum` makes it")
    n = view.shape[0] if len(view.shape) == 1 else 0
    if n < 2 or n & (n - 1) or n > 1 << _MOST_VARIABLES:
        raise ValueError(f"fwht: w has the shape {view.shape}; it must be one spectrum of 2^k, k from 1 to {_MOST_VARIABLES}")
    return view, n.bit_length() - 1


def summary(w: Any) -> Summary:
    """Of one spectrum, int32 [2^k]. Waits for the device."""
    view, variables = _spectrum_view(w)
    if view.device != _c.HOST:
        return _summary_by_torch(w, variables)
    return _summary_of_memory(_view(_contiguous(w)), variables)


def _summary_of_memory(view: array.View, variables: int) -> Summary:
    found = _c.SpectrumSummary(ctypes.sizeof(_c.SpectrumSummary))
    _c.check(_c.library.fwht_walsh_summary(view.pointer, variables, found))
    return Summary(found.largest, found.place, found.nonlinearity, found.sum_of_squares)


# What torch.compiler.disable does, which imports the compiler for a second: it would warn of each structure of ctypes.
_summary_of_memory._torchdynamo_disable = True  # type: ignore[attr-defined]


def _summary_by_torch(w: Any, variables: int) -> Summary:
    wide = w.long()
    size = wide.abs()
    most = int(size.max())
    squares = int(wide.square().sum()) % (1 << 64)
    return Summary(most, int((size == most).nonzero()[0]), (1 << (variables - 1)) - most // 2, squares)


def largest(w: Any, count: int) -> tuple[Any, Any]:
    """(places, values) of the `count` coefficients that are largest in size, the largest first, of equal ones the first one first.

    Args: w: one spectrum, int32 [2^k]. Returns: int64 and int32 of `count` elements, of w's library and device.
    """
    view, variables = _spectrum_view(w)
    count = _c.integer("count", count)
    if not 1 <= count <= 1 << variables:
        raise ValueError(f"fwht: count={count} must be between 1 and {1 << variables}")
    if view.device != _c.HOST:
        return _largest_by_torch(w, count)
    w = _contiguous(w)
    places, values = _like(w, (count,), "int64"), _like(w, (count,), "int32")
    _c.check(_c.library.fwht_walsh_largest(_view(w).pointer, variables, count, _view(places).pointer, _view(values).pointer))
    return places, values


def _largest_by_torch(w: Any, count: int) -> tuple[Any, Any]:
    torch = sys.modules["torch"]
    key = (w.long().abs() << 31) - torch.arange(len(w), device=w.device)  # no two alike
    places = key.topk(count).indices
    return places, w[places]


def largest_of(f: Any, form: str, count: int) -> tuple[Any, Any]:
    """`largest` of one Boolean function, without its spectrum: on a device the last pass stores the largest of every tile alone.

    Args: f, form: as `summaries` takes them, one function; count: 1 to 2^k, on a device at most 256.

    Returns: int64 and int32 of `count` elements, of f's library and device.

    Raises: as `spectrum`.

    Example:
        >>> import numpy, fwht
        >>> fwht.walsh.largest_of(numpy.array([0, 0, 0, 1], "uint8"), "bits", 2)
        (array([0, 1]), array([2, 2], dtype=int32))
    """
    given, count = _functions(f, form), _c.integer("count", count)
    if len(given.view.shape) != 1:
        raise ValueError(f"fwht: f has the shape {given.view.shape}; it must be one function")
    if not 1 <= count <= given.n:
        raise ValueError(f"fwht: count={count} must be between 1 and {given.n}")
    places, values = _like(f, (count,), "int64"), _like(f, (count,), "int32")
    if given.on_device:
        f = _values_on_device(f, form)
        needed = ctypes.c_int64()
        _c.check(_c.library.fwht_walsh_largest_of_workspace(given.variables, count, needed))
        workspace, seen = _like(f, (needed.value,), "uint8"), _view(f)
        _c.check(_c.library.fwht_walsh_largest_of_on(
            given.code, seen.pointer, given.variables, count, places.data_ptr(), values.data_ptr(), workspace.data_ptr(), needed.value,
            f.device.index, seen.stream,
        ))  # fmt: skip
    else:
        seen = _view(f := _contiguous(f))
        _c.check(_c.library.fwht_walsh_largest_of(
            given.code, seen.pointer, given.variables, count, _view(places).pointer, _view(values).pointer, seen.threads
        ))
    return places, values


# --- convolutions ----------------------------------------------------------------------------------------------------


def dyadic_convolution(a: Any, b: Any, *, variant: str | None = None) -> Any:
    """c[..., i] = sum over j of a[..., j] b[..., i xor j], by three transforms.

    Args:
        a, b: float32, float64, int32 or int64, (..., n), of one shape and dtype. Integers are exact, and refused where n |a| |b|, of a
            row's Euclidean lengths, is not below 2^31 or 2^63; that look waits for the device.
        variant: as in `hadamard_transform`. None for CUDA tensors: the product is taken inside the passes, so that neither spectrum
            is stored; by a variant three transforms and a product follow each other.

    Returns: a new array like a; differentiable in PyTorch, by torch.func too. torch.compile traces it for floats; where it looks at
    integers, it breaks its graph.

    Raises: TypeError, ValueError; OverflowError for integers that may wrap.

    Example:
        >>> import numpy, fwht
        >>> fwht.walsh.dyadic_convolution(numpy.array([1, 2, 0, 0]), numpy.array([0, 0, 1, 0]))
        array([0, 0, 1, 2])
    """
    views = _host_or_tensor(a, "a"), _host_or_tensor(b, "b")
    face = _tensors.face_of(a)
    if (face is None) != (_tensors.face_of(b) is None):
        raise TypeError(f"fwht: a is a {type(a).__name__} and b a {type(b).__name__}; both must be PyTorch tensors, or NumPy arrays")
    dtype, n = _dtype_name(views[0]), int(views[0].shape[-1]) if views[0].shape else 1  # a tensor in torch.jit.trace
    if dtype not in ("float32", "float64", "int32", "int64"):
        raise TypeError(f"fwht: dtype {views[0].dtype_name} must be float32, float64, int32 or int64 for dyadic convolutions")
    if views[0].shape != views[1].shape or views[0].dtype != views[1].dtype or views[0].device != views[1].device:
        raise ValueError(
            f"fwht: a has shape {views[0].shape} and dtype {views[0].dtype_name}, b {views[1].shape} and {views[1].dtype_name}; "
            "both must be alike, on one device"
        )
    bits = _BITS.get(dtype)
    if bits and 0 not in views[0].shape:
        lengths = [(_as(x, "float64") ** 2).sum(-1) ** 0.5 for x in (a, b)]
        bound = float((lengths[0] * lengths[1]).max()) * n
        if not bound * (1 + 2.0**-20) < 2.0 ** (bits - 1):
            raise OverflowError(f"fwht: n |a| |b| = {bound:g} must be below 2^{bits - 1}, where no sum can wrap")
    if variant is None and views[0].device != _c.HOST and face.convolves(a, b):
        return face.convolve(a, b, dyadic_convolution)
    x, y = _transform(a, 1, variant), _transform(b, 1, variant)
    if bits:
        return _transform(x * y, 1, variant) // n  # without a remainder
    # Divided first, and of both the larger one: x y may leave the range where no sum of a convolution does.
    large = abs(x) > 1
    return _transform(_where(large, x, y) / n * _where(large, y, x), 1, variant)


def autocorrelation(a: Any, *, variant: str | None = None) -> Any:
    """`dyadic_convolution(a, a)`: r[i] = sum over j of a[j] a[i xor j]. Of (-1)^f, in int64, that of a Boolean function."""
    return dyadic_convolution(a, a, variant=variant)


# --- rounds and sketches ---------------------------------------------------------------------------------------------


def rounds(x: Any, signs: Sequence[operators.Signs], *, transpose: bool = False, variant: str | None = None) -> Any:
    """H D_k ... H D_1 x along the last dimension, H orthonormal: each D_i multiplies by `signs[i - 1]` (`operators.random_signs(n, seed)`).

    As vector search uses it to spread coordinates. H is that of `operators.operator_for(n)`.

    Args:
        x: as `operators.transform` takes it.
        transpose: D_1 H^T ... D_k H^T x, the inverse.
        variant: as in `hadamard_transform`. None for CUDA tensors of float32, float16 or bfloat16, n from 64 to 4096 (2^j, or m 2^j with m
            12, 20, 28 or 36 and j at least 3), up to 8 rounds: one kernel does all of them and rounds once to x's dtype. Else each
            round is a transform, and rounds.

    Returns: a new array like x. Differentiable in PyTorch, by torch.func too; torch.compile traces it round by round.

    Raises: as `operators.transform`; TypeError, ValueError for signs that do not fit.

    Example:
        >>> import numpy, fwht
        >>> signs = [fwht.operators.random_signs(64, seed) for seed in range(3)]
        >>> x = numpy.eye(1, 64, dtype="float32")
        >>> bool(numpy.allclose(fwht.walsh.rounds(fwht.walsh.rounds(x, signs), signs, transpose=True), x, atol=1e-6))
        True
    """
    n = _checked_rounds(_host_or_tensor(x, "x"), signs)
    if kernel := _kernel_of_rounds(x, n, signs, variant):

        def again(grad: Any, transposed: bool) -> Any:
            return rounds(grad, signs, transpose=transposed)

        return kernel.rounded(x, _signs_beside(x, signs), len(signs), transpose, again)
    for each in reversed(signs) if transpose else signs:
        x = operators.transform(x, signs=each, transpose=transpose, variant=variant)
    return x


def rounds_to_codes(x: Any, signs: Sequence[operators.Signs], bits: int) -> tuple[Any, Any]:
    """(codes, scales) of y = `rounds(x, signs)`, as vector search keeps them; on a device one kernel makes them.

    Args:
        x: float32, (..., n). signs: as `rounds` takes them. CUDA tensors: n and the number of rounds as one kernel of `rounds` has them.
        bits: 8: int8, scale a / 127 with a the largest |y| of the row, codes of y (127 / a). 4: two a byte, the even element in the low
            half, scale a / 7. These are what `quantize.hadamard_quantize` writes for "int8:row" and "int4:row". 1: eight a byte, the
            first in the lowest bit, set where y < 0; the scale is the mean of |y|, with which scale and -scale are nearest to y.

    Returns: codes, int8 (..., n) or uint8 (..., n bits / 8), and float32 scales (...), of x's library and device. Not differentiable;
    torch.func refuses it, and torch.compile breaks its graph here.

    Raises: TypeError, ValueError; NotImplementedError inside torch.func.

    Example:
        >>> import numpy, fwht
        >>> codes, scales = fwht.walsh.rounds_to_codes(numpy.ones((5, 96), "float32"), [fwht.operators.random_signs(96, 1)], 1)
        >>> codes.shape, scales.shape
        ((5, 12), (5,))
    """
    view, bits = _host_or_tensor(x, "x"), _c.integer("bits", bits)
    n = _checked_rounds(view, signs)
    if _dtype_name(view) != "float32":
        raise TypeError(f"fwht: dtype {view.dtype_name} must be float32 for codes of rounds")
    if bits not in (1, 4, 8):
        raise ValueError(f"fwht: bits={bits} must be 1, 4 or 8")
    if view.device != _c.HOST:
        made: tuple[Any, Any] = _tensors.face_of(x).rounded_to_codes(x, _signs_beside(x, signs), len(signs), bits)
        return made
    x, leading = _contiguous(x), view.shape[:-1]
    codes, scales = _like(x, (*leading, n * bits // 8), "int8" if bits == 8 else "uint8"), _like(x, leading, "float32")
    packed = (ctypes.c_char_p * len(signs))(*(each.packed for each in signs))
    seen = _view(x)
    _c.check(_c.library.fwht_rounds_to_codes(
        n, math.prod(leading), len(signs), ctypes.addressof(packed), seen.pointer, bits, _view(codes).pointer, _view(scales).pointer, seen.threads
    ))  # fmt: skip
    return codes, scales


def _checked_rounds(view: array.View, signs: Sequence[operators.Signs]) -> int:
    if not hasattr(signs, "__len__"):
        raise TypeError(f"fwht: signs is a {type(signs).__name__}; it must be a sequence of what operators.random_signs or pack_signs make")
    if not len(signs):
        raise ValueError("fwht: signs must have at least one element, the signs of the first round")
    n = view.shape[-1] if view.shape else 0
    if n < 2:
        raise ValueError(f"fwht: n={n} must be at least 2")
    for each in signs:
        if not isinstance(each, operators.Signs):
            raise TypeError(f"fwht: signs has a {type(each).__name__}; its elements are made by operators.random_signs or pack_signs")
        if each.n != n:
            raise ValueError(f"fwht: {each.n} signs do not fit n={n}")
    return n


def _kernel_of_rounds(x: Any, n: int, signs: Sequence[operators.Signs], variant: str | None) -> Any:
    """The face of a tensor whose rounds one kernel does, or None."""
    face = _tensors.face_of(x)
    if not face or variant is not None or not x.is_cuda or not face.convolves(x, x):
        return None
    return face if x.dtype in face.DTYPES and _fit_one_kernel(face.DTYPES[x.dtype], n, len(signs)) else None


@functools.lru_cache(256)
def _fit_one_kernel(dtype: int, n: int, count: int) -> bool:
    """No rows are refused as many are, and launch nothing."""
    refused: int = _c.library.fwht_rounds_on(dtype, n, 0, 0, count, None, None, None, 0, None)
    return not refused


def _signs_beside(x: Any, signs: Sequence[operators.Signs]) -> Any:
    """All rounds' signs in one tensor on x's device: made at the first call, which waits for the device and may not be captured."""
    face = _tensors.face_of(x)
    return face.kept_beside(signs[0]._on, (x.device, *signs[1:]), lambda: face.signs_on(x.device, [each.packed for each in signs]))


class Sketch:
    """Subsampled randomized Hadamard transform (SRHT): y = sqrt(N / rows) R H D (x, 0 ... 0) along the last dimension.

    N is the power of two from `length` up, H orthonormal, D random signs, R `rows` of the N coefficients, drawn without replacement. So
    the mean of |y|^2 over seeds is |x|^2. Signs and rows depend on N, `rows` and `seed` alone, and are those of C and C++.

    Args: length: of x, 1 to 2^30 (the limits of the transform count); rows: 1 to N; seed: 0 to 2^64 - 1.

    Calls: `sketch(x)`, x (..., length) in float32 or float64, gives (..., rows); `sketch.transpose(y)` gives (..., length).
    `variant` is as in `hadamard_transform`. None for CUDA tensors: signs and zeros are part of the first loads, chosen rows of the last
    stores, without a padded copy of x. Differentiable in PyTorch, by torch.func too; torch.compile traces the calls of a sketch that was
    made outside. Source: Tropp, Improved analysis of the subsampled randomized Hadamard transform (2011).

    Example:
        >>> import numpy, fwht
        >>> fwht.walsh.Sketch(100, 16, seed=1)(numpy.ones((2, 100), "float32")).shape
        (2, 16)
    """

    def __init__(self, length: int, rows: int, seed: int):
        self.length, self.rows, self.seed = _c.integer("length", length), _c.integer("rows", rows), _c.seed(seed)
        if not 1 <= self.length <= 1 << 30:
            raise ValueError(f"fwht: length={length} must be between 1 and {1 << 30}")
        self.padded = max(2, 1 << (self.length - 1).bit_length())
        if not 1 <= self.rows <= self.padded:
            raise ValueError(f"fwht: rows={rows} must be between 1 and {self.padded}, the padded length")
        words = (ctypes.c_uint32 * ((self.padded + 31) // 32))()
        kept = (ctypes.c_int64 * self.rows)()
        _c.check(_c.library.fwht_random_signs(self.padded, self.seed, words))
        _c.check(_c.library.fwht_random_rows(self.padded, self.rows, self.seed, kept))
        self.signs, self._kept = operators.Signs(bytes(words), self.padded), bytes(kept)  # of int64
        self._on: dict[Any, Any] = {}
        self._tables: dict[Any, Any] = {}

    def _tools(self, x: Any) -> tuple[Any, Any]:
        """The signs of x's elements in its dtype, and the chosen rows, beside it."""
        if face := _tensors.face_of(x):
            return face.kept_beside(self._on, (x.device, x.dtype), lambda: self._tensors_of(x))
        if x.dtype not in self._on:
            import numpy

            bits = numpy.unpackbits(self.signs.on(x), bitorder="little")[: self.length]
            self._on[x.dtype] = 1 - 2 * bits.astype(x.dtype), numpy.frombuffer(self._kept, numpy.int64)
        return self._on[x.dtype]

    def _tensors_of(self, x: Any) -> tuple[Any, Any]:
        torch = sys.modules["torch"]
        bits = self.signs.on(x)[:, None] >> torch.arange(8, dtype=torch.uint8, device=x.device) & 1
        if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():  # graphs and fake tensors have no buffer to read from
            kept = torch.tensor(list(self._kept), dtype=torch.uint8, device=x.device).view(torch.int64)
        else:
            kept = torch.frombuffer(bytearray(self._kept), dtype=torch.int64).to(x.device)
        return 1 - 2 * bits.flatten()[: self.length].to(x.dtype), kept

    def _table(self, x: Any) -> Any:
        """`fwht_sketch_table` beside a tensor: made at the first call, which waits for the device and may not be captured."""
        face = _tensors.face_of(x)
        return face.kept_beside(self._tables, x.device, lambda: face.table_on(x.device, self.length, self.rows, self.seed, self.padded))

    def _in_passes(self, x: Any, variant: str | None) -> bool:
        face = _tensors.face_of(x)
        return bool(face and variant is None and x.is_cuda and face.convolves(x, x))

    def _check(self, x: Any, wanted: int) -> None:
        view = _host_or_tensor(x, "x")
        if _dtype_name(view) not in ("float32", "float64"):
            raise TypeError(f"fwht: dtype {view.dtype_name} must be float32 or float64 for sketches")
        if not view.shape or view.shape[-1] != wanted:
            raise ValueError(f"fwht: x has the shape {view.shape}; its last dimension must be {wanted}")

    def __call__(self, x: Any, *, variant: str | None = None) -> Any:
        self._check(x, self.length)
        if self._in_passes(x, variant):
            return _tensors.face_of(x).sketched(x, self, False)
        signs, kept = self._tools(x)
        x = x * signs
        if _tensors.face_of(x):
            padded = sys.modules["torch"].nn.functional.pad(x, (0, self.padded - self.length))
        else:
            import numpy

            padded = numpy.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, self.padded - self.length)])
        return _transform(padded, self.rows**-0.5, variant)[..., kept]

    def transpose(self, y: Any, *, variant: str | None = None) -> Any:
        self._check(y, self.rows)
        if self._in_passes(y, variant):
            return _tensors.face_of(y).sketched(y, self, True)
        signs, kept = self._tools(y)
        if _tensors.face_of(y):
            spread = y.new_zeros((*y.shape[:-1], self.padded)).index_copy(-1, kept, y)
        else:
            import numpy

            spread = numpy.zeros((*y.shape[:-1], self.padded), y.dtype)
            spread[..., kept] = y
        return _transform(spread, self.rows**-0.5, variant)[..., : self.length] * signs

    def __reduce__(self) -> Any:  # of copy and pickle
        return type(self), (self.length, self.rows, self.seed)

    def __repr__(self) -> str:
        return f"fwht.walsh.Sketch({self.length}, {self.rows}, seed={self.seed})"
