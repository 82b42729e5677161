"""Rows of any length: y[..., :] = scale * Op x[..., :] for Kronecker products of Hadamard matrices and given ones.

    from fwht import operators
    y = operators.transform(x)                                  # the operator for x's row length, 14336 = 28x512
    y = operators.transform(x, "28x512", signs=signs)           # signs multiplied in first
    z = operators.transform(y, "28x512", signs=signs, transpose=True)   # back again
    y = operators.transform(x, "256r")                          # the regular Hadamard matrix of order 256

An operator is a text: orders between "x", the slowest factor first. A power of two is the Sylvester matrix, another order
the Hadamard matrix of that order, "d" in front of it a matrix that you give, "t" behind it its transpose. Which matrix
belongs to which order, and how checkpoints that were rotated elsewhere are read: docs/operators.md.
"""

from __future__ import annotations

import ctypes
import functools
import json
import sys
from typing import Any, Callable, Iterable, SupportsFloat

from . import _c, _tensors, array

__all__ = ["Signs", "operator_for", "pack_signs", "random_signs", "transform", "transposed"]


def operator_for(n: int) -> str:
    """The operator for rows of n elements, of matrices that are known by name: "4096", "28x512", "76x2x36x2".

    Raises ValueError, naming the nearest n that has one, where there is none.
    """
    return _c.answered(_c.library.fwht_operator_for(_c.integer("n", n)))


def transposed(operator: str) -> str:
    """The text of the transposed operator: "428x32+signs" gives "signs+428tx32". A symmetric one is its own."""
    return _c.answered(_c.library.fwht_operator_transposed(_c.text_for_c("operator", operator, _c.OPERATOR_TEXT)))


def _about(operator: str) -> dict[str, Any]:
    return json.loads(_c.answered(_c.library.fwht_operator_info_json(_c.text_for_c("operator", operator, _c.OPERATOR_TEXT))))


class Signs:
    """n factors of +1 and -1, one bit each: bit i mod 8 of byte i // 8 is set for -1, in whole words of 32 bits.

    `packed` has the bytes; `on(x)` is a uint8 array of them beside x (PyTorch or NumPy), made once for each device. A graph of
    torch.export makes its own, and so does the first one of torch.compile, unless `on` was called outside before.
    """

    def __init__(self, packed: bytes, n: int):
        if n < 1:
            raise ValueError(f"fwht: n={n} must be at least 1")
        if len(packed) != _bytes_for(n):
            raise ValueError(f"fwht: {len(packed)} bytes of signs; n={n} needs {_bytes_for(n)}, whole words of 32 bits")
        self.packed = bytes(packed)
        self.n = n
        self._on: dict[Any, Any] = {}

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> int:
        i = _c.integer("index", i)
        if not 0 <= i < self.n:
            raise IndexError(f"fwht: index={i} must be between 0 and {self.n - 1}")
        return -1 if self.packed[i // 8] >> i % 8 & 1 else 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Signs) and (self.n, self.packed) == (other.n, other.packed)

    def __hash__(self) -> int:
        return hash((self.n, self.packed))

    def __reduce__(self) -> Any:  # of copy and pickle
        return type(self), (self.packed, self.n)

    def on(self, x: Any) -> Any:
        if face := _tensors.face_of(x):
            torch = sys.modules["torch"]
            return face.kept_beside(
                self._on, x.device, lambda: torch.tensor(list(self.packed), dtype=torch.uint8, device=x.device)
            )
        import numpy

        return self._on.setdefault("numpy", numpy.frombuffer(self.packed, numpy.uint8))


def _bytes_for(n: int) -> int:
    return (n + 31) // 32 * 4


def require_fitting(signs: Signs, operator: str) -> None:
    if signs.n != (order := _about(operator)["n"]):
        raise ValueError(f"fwht: {signs.n} signs do not fit the operator {operator}, which is for {order}")


def beside(signs: Any, x: Any) -> Any:
    """Packed signs where x is; others than `Signs` as they are given."""
    if not isinstance(signs, Signs):
        return signs
    shape = tuple(getattr(x, "shape", ()))
    if shape and signs.n != shape[-1]:
        raise ValueError(f"fwht: {signs.n} signs do not fit rows of {shape[-1]} elements")
    return signs.on(x)


def pack_signs(signs: Iterable[Any]) -> Signs:
    """Signs of a sequence of +1 and -1 (numbers; a NumPy array or a tensor of shape (n,)).

    Raises ValueError, with the place, for another value; TypeError for what is no sequence of numbers.
    """
    if face := _tensors.face_of(signs):
        face.require_memory(signs)
    try:
        values = [float(0.0 + value) for value in (signs.tolist() if hasattr(signs, "tolist") else signs)]
    except (TypeError, ValueError):
        shape = f" of shape {tuple(signs.shape)}" if hasattr(signs, "shape") else ""
        raise TypeError(f"fwht: signs is a {type(signs).__name__}{shape}; it must be one sequence of +1 and -1") from None
    packed = bytearray(_bytes_for(len(values)))
    for i, value in enumerate(values):
        if value not in (1.0, -1.0):
            raise ValueError(f"fwht: sign {i} of {len(values)} is {value}, not +1 or -1")
        if value < 0:
            packed[i // 8] |= 1 << i % 8
    return Signs(bytes(packed), len(values))


def random_signs(n: int, seed: int) -> Signs:
    """n signs that depend on n and seed alone, the same on every machine and in every version; 1 <= n <= 2^37.

    Sign i is bit i mod 32 of word (i // 32) mod 4 of Philox4x32-10 with the counter (i // 128, 0, 0, 0) and the key (seed mod
    2^32, seed // 2^32); 0 <= seed < 2^64. Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).

    Raises ValueError for an n or a seed outside these limits, TypeError for what is no integer.
    """
    n, seed = _c.integer("n", n), _c.seed(seed)
    if not 1 <= n <= 1 << 37:
        raise ValueError(f"fwht: n={n} must be between 1 and {1 << 37}")
    words = (ctypes.c_uint32 * (_bytes_for(n) // 4))()
    _c.check(_c.library.fwht_random_signs(n, seed, words))
    return Signs(bytes(words), n)


def transform(
    x: Any, operator: str | None = None, scale: SupportsFloat | None = None, *, signs: Any = None, dense: Any = None,
    transpose: bool = False, out: Any = None, inplace: bool = False, variant: str | None = None,
) -> Any:  # fmt: skip
    """Multiplies the rows of `x` by an operator: y[..., :] = scale * Op x[..., :].

    The default scale is 1/sqrt(n), with which an operator of +-1 entries is orthogonal, and `transpose=True` its inverse. Sums
    are formed in float32 (float64 for float64 data) and rounded once to x's dtype.

    Args:
        x: shape (..., n); float16, bfloat16 or float32, on the CPU also float64. A PyTorch tensor (CPU or CUDA) or a NumPy
            array. The leading dimensions are rows; any strides, those that the variant does not take are gathered first.
        operator: its text; None: `operator_for(n)`.
        scale: a number that is finite in float32, or None for 1/sqrt(n).
        signs: for D with +-1 on its diagonal: `Signs`, or their packed bytes as a contiguous uint8 array on x's device. They
            are multiplied in first (Op D) unless the text says "signs+..." (D Op).
        dense: the entries of the factors "d", in x's dtype and on its device, row-major, one factor behind the other. The
            host variants refuse matrices whose rows are not orthogonal and of one length.
        transpose: multiply by the transposed operator instead.
        out: where the result goes; shape, dtype and device of x, contiguous rows. May be x itself.
        inplace: the result replaces x.
        variant: a name of `fwht.variants()`; None: "auto" on a CUDA device, "cpu" on the host.

    Returns: a new contiguous array like x; or `out`; or x where `inplace`. In PyTorch it is differentiable in x (backward is the
    transpose) and a compiled graph keeps it as the node `fwht::hadamard_transform`.

    Raises:
        ValueError: no such operator, another row length than the operator's, signs or dense factors that do not fit it.
        TypeError, NotImplementedError, RuntimeError: as `fwht.hadamard_transform`.

    Example:
        >>> import numpy, fwht
        >>> fwht.operators.transform(numpy.ones((1, 12), "float32"), scale=1.0)[0, :3]
        array([10., -2.,  2.], dtype=float32)

    Source: docs/operators.md.
    """
    if out is not None and inplace:
        raise ValueError("fwht: out and inplace=True exclude each other")
    if operator is not None and not isinstance(operator, str):
        raise TypeError(f"fwht: operator={operator!r} must be {_c.OPERATOR_TEXT}")
    packed = beside(signs, x)
    if face := _tensors.face_of(x):
        return face.transform_by_operator(x, operator, packed, dense, scale, transpose, x if inplace else out, variant)
    view = array.view_of(x)
    if view is None or view.device != _c.HOST:
        raise TypeError(f"fwht: x is a {type(x).__module__}.{type(x).__qualname__}; operators take PyTorch tensors and NumPy arrays")
    target = x if inplace else out
    if target is None:
        assert view.empty_like is not None
        target = view.empty_like()
    to = array.view_of(target)
    if to is None or (to.shape, to.dtype, to.device) != (view.shape, view.dtype, view.device):
        raise ValueError(f"fwht: out must be as x, which has shape {view.shape} and dtype {view.dtype_name}")

    def copy() -> None:
        target[...] = x

    run(view, to, resolved(view.shape, operator or "", signs is not None, transpose), packed, dense, scale, variant, copy)
    return target


@functools.lru_cache(1024)
def resolved(shape: tuple[int, ...], operator: str, has_signs: bool, transpose: bool) -> str:
    """The operator's whole text: that of the row length for "", with its signs, transposed. Checked against the shape."""
    if len(shape) == 0:
        raise ValueError("fwht: x must have at least one dimension, whose length is n; it is a scalar")
    text = operator or operator_for(shape[-1])
    if has_signs and "signs" not in text:
        text += "+signs"
    if transpose:
        text = transposed(text)
    if (order := _about(text)["n"]) != shape[-1]:
        raise ValueError(f"fwht: rows of {shape[-1]} elements came to the operator {text}, which is for {order}")
    return text


@functools.lru_cache(1024)
def operand_sizes(operator: str) -> tuple[int, int]:
    """(bytes of signs, entries of dense factors) that an operator needs."""
    about = _about(operator)
    return _bytes_for(about["n"]) if about["signs"] != "none" else 0, about["dense_entries"]


def run(
    x: array.View, out: array.View, operator: str, signs: Any, dense: Any, scale: SupportsFloat | None, variant: str | None,
    copy: Callable[[], None],
) -> None:  # fmt: skip
    """scale * Op x into out, which may be the same memory; `copy` copies x into out. Checks before anything is written."""
    name = _c.encoded(variant)
    if not out.writable:
        raise ValueError("fwht: the array to be written is read-only")
    if out.device != _c.HOST:
        _c.needs_cuda_build()

    def problem(in_place: bool, in_stride: int, out_stride: int) -> _c.Problem:
        return _c.make_problem(
            out.shape, out.dtype, out.dtype_name, scale, in_place=in_place, device=out.device, in_stride=in_stride,
            out_stride=out_stride, variant=name, operator=operator, threads=out.threads,
        )  # fmt: skip

    def refusal(asked: _c.Problem) -> int:
        return _c.library.fwht_supports(asked, name, out.device)

    first = problem(False, 0, 0)
    signs_bytes, dense_entries = operand_sizes(operator)
    operands = _c.Operands(ctypes.sizeof(_c.Operands))
    operands.signs = _operand("signs", signs, signs_bytes, "uint8", f"operator {operator}", out)
    operands.dense = _operand("dense", dense, dense_entries, out.dtype_name, f"operator {operator}", out)
    in_place = array.same_memory(x, out)
    out_stride = array.in_place_stride(out, "x" if in_place else "out")
    in_stride = _c.row_stride(x.shape, x.strides)
    # In place, out of place where x lies, or by a copy of x in out: the first that the variant does.
    made, status, gather = None, 0, False
    for asked, gathered in (
        (problem(True, out_stride, out_stride) if in_place else None, False),
        (problem(False, in_stride, out_stride) if in_stride is not None and not in_place else None, False),
        (problem(True, out_stride, out_stride) if not in_place else None, True),
    ):
        if asked is not None and made is None:
            status = refusal(asked)
            if status == 0:
                made, gather = asked, gathered
    if made is None:
        _c.fail(refusal(first) or status, out.device)
    if 0 in out.shape:
        return
    if gather:
        _c.require_aligned(made, name, out.device, out.pointer)
        copy()
    operands.out = out.pointer
    operands.input = out.pointer if in_place or gather else x.pointer
    if status := _c.library.fwht_transform_operands(
        ctypes.addressof(made), name, ctypes.addressof(operands), out.device, out.stream
    ):
        _c.fail(status, out.device)


def _operand(name: str, given: Any, count: int, dtype: str, owner: str, beside: array.View) -> int | None:
    """The address of `count` contiguous elements; None where its owner needs none."""
    if count == 0:
        if given is not None:
            raise ValueError(f"fwht: {name} are given, but the {owner} has none")
        return None
    if given is None:
        raise ValueError(f"fwht: the {owner} needs {name}")
    face = _tensors.face_of(given)
    view = face.view_of(given) if face else array.view_of(given)
    if view is None:
        raise TypeError(f"fwht: {name} is a {type(given).__name__}, not an array")
    elements = 1
    for size in view.shape:
        elements *= size
    if elements != count or view.dtype_name.removeprefix("torch.") != dtype.removeprefix("torch.") or not _is_flat(view):
        raise ValueError(
            f"fwht: {name} of the {owner} must be {count} contiguous elements of {dtype}; they have shape "
            f"{view.shape}, strides {view.strides} and dtype {view.dtype_name}"
        )
    if view.device != beside.device:
        raise ValueError(f"fwht: {name} are on device {view.device} and x is on {beside.device} (-1: the host)")
    return view.pointer


def _is_flat(view: array.View) -> bool:
    distance = 1
    for size, stride in zip(reversed(view.shape), reversed(view.strides)):
        if size != 1 and stride != distance:
            return False
        distance *= size
    return True
