"""libfwht.so through ctypes: its structs, its functions, and its statuses as exceptions (see include/fwht.h)."""

from __future__ import annotations

import ctypes
import json
import math
import operator
import os
import sys
import threading
from typing import Any, NoReturn, Sequence, SupportsFloat

HOST = -1
DEVICE_OF_POINTER = -2
ABI_VERSION = 1

# Codes of fwht_dtype.
F16, BF16, F32, F64, I32, I64 = range(6)
DTYPES = {
    "float16": F16, "f16": F16, "fp16": F16, "half": F16,
    "bfloat16": BF16, "bf16": BF16,
    "float32": F32, "f32": F32, "fp32": F32, "float": F32,
    "float64": F64, "f64": F64, "fp64": F64, "double": F64,
    "int32": I32, "i32": I32,
    "int64": I64, "i64": I64,
}
ITEMSIZE = (2, 2, 4, 8, 4, 8)
ORDERINGS = ("natural", "dyadic", "sequency")  # by their codes of fwht_ordering
ZERO_POINTS = ("v1", "v2", "symmetric")  # by their codes of fwht_zero_points
DTYPE_RULE = "must be float16, bfloat16, float32, float64, int32 or int64"

OPERATOR_TEXT = "a text such as '28x512', or None"
ENCODING_TEXT = "a text such as 'e4m3:row'"

_IN_PLACE, _OUT_OF_PLACE = 0, 1
SCALE_AS_GIVEN, _PROGRAMMATIC_LAUNCH, SCRATCH_OF_CALLER = 8, 2, 16


class Problem(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("n", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("scale", ctypes.c_double),
        ("dtype", ctypes.c_int32),
        ("placement", ctypes.c_int32),
        ("in_stride", ctypes.c_int64),
        ("out_stride", ctypes.c_int64),
        ("flags", ctypes.c_uint32),
        ("threads", ctypes.c_int32),
        ("op_text", ctypes.c_char_p),
        ("encoding", ctypes.c_char_p),
        ("preparation", ctypes.c_char_p),
        ("in_ordering", ctypes.c_int32),
        ("out_ordering", ctypes.c_int32),
        ("inner", ctypes.c_int64),
    ]


class Operands(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("input", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("signs", ctypes.c_void_p),
        ("dense", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("scales_bytes", ctypes.c_int64),
        ("tensor_scale", ctypes.c_double),
        ("weight", ctypes.c_void_p),
        ("epsilon", ctypes.c_double),
        ("cos_sin", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("slots", ctypes.c_void_p),
        ("tensor_scale_at", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p),
        ("scratch_bytes", ctypes.c_int64),
    ]


class LinearProblem(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("m", ctypes.c_int64),
        ("n", ctypes.c_int64),
        ("k", ctypes.c_int64),
        ("group", ctypes.c_int64),
        ("dtype", ctypes.c_int32),
        ("zero_points", ctypes.c_int32),
        ("rotation", ctypes.c_int64),
        ("flags", ctypes.c_uint32),
        ("threads", ctypes.c_int32),
        ("rotation_op", ctypes.c_char_p),
    ]


class GptqWeights(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("qweight", ctypes.c_void_p),
        ("qzeros", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("g_idx", ctypes.c_void_p),
        ("signs", ctypes.c_void_p),
        ("dense", ctypes.c_void_p),
    ]


class SpectrumSummary(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("largest", ctypes.c_int64),
        ("place", ctypes.c_int64),
        ("nonlinearity", ctypes.c_int64),
        ("sum_of_squares", ctypes.c_uint64),
    ]


class VariantInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("summary", ctypes.c_char_p),
        ("on_device", ctypes.c_int32),
    ]


def _find_library() -> str:
    named = os.environ.get("FWHT_LIBRARY")
    if named:
        return named
    for folder in sys.modules[__package__ or "fwht"].__path__:  # an editable installation has two: the sources and what was built
        candidate = os.path.join(folder, "libfwht.so")
        if os.path.exists(candidate):
            return candidate
    raise ImportError(
        "fwht: libfwht.so is not beside the package; install it with `pip install .`, or let the environment "
        "variable FWHT_LIBRARY name the file"
    )


def _load(path: str) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(path)  # RTLD_LOCAL; calls release the interpreter's lock
    except OSError as error:
        raise ImportError(f"fwht: {path} could not be loaded: {error}") from None
    size, i32, text, address = ctypes.c_size_t, ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p
    i64, u64 = ctypes.c_int64, ctypes.c_uint64
    problem = ctypes.POINTER(Problem)
    for name, result, arguments in (
        ("abi_version", i32, []),
        ("version", text, []),
        ("last_error", text, []),
        ("build_info_json", text, []),
        ("device_count", i32, []),
        ("variant_count", size, []),
        ("get_variant", i32, [size, ctypes.POINTER(VariantInfo)]),
        ("supports", i32, [problem, text, i32]),
        # Addresses as plain integers: the conversion is the larger part of a call.
        ("transform", i32, [address, text, address, address, i32, address]),
        ("transform_operands", i32, [address, text, address, i32, address]),
        ("operator_for", text, [ctypes.c_int64]),
        ("operator_transposed", text, [text]),
        ("operator_info_json", text, [text]),
        ("encoding_info_json", text, [text, ctypes.c_int64, ctypes.c_int64]),
        ("clear_plans", size, []),
        ("plan_create", i32, [problem, text, i32, ctypes.POINTER(address)]),
        ("plan_execute", i32, [address, address, address, address]),
        ("plan_execute_operands", i32, [address, ctypes.POINTER(Operands), address]),
        ("plan_kept", i32, [problem, text, i32, ctypes.POINTER(address)]),
        ("plan_info_json", text, [address]),
        ("plan_destroy", None, [address]),
        ("walsh_spectrum", i32, [i32, address, i32, i64, address, i32]),
        ("walsh_spectrum_on", i32, [i32, address, i32, i64, address, i32, address]),
        ("walsh_summary", i32, [address, i32, ctypes.POINTER(SpectrumSummary)]),
        ("walsh_summaries", i32, [i32, address, i32, i64, address, i32]),
        ("walsh_summaries_on", i32, [i32, address, i32, i64, address, address, i64, i32, address]),
        ("walsh_summaries_workspace", i32, [i32, i64, ctypes.POINTER(i64)]),
        ("walsh_largest_of", i32, [i32, address, i32, i64, address, address, i32]),
        ("walsh_largest_of_on", i32, [i32, address, i32, i64, address, address, address, i64, i32, address]),
        ("walsh_largest_of_workspace", i32, [i32, i64, ctypes.POINTER(i64)]),
        ("walsh_largest", i32, [address, i32, i64, address, address]),
        ("dyadic_convolution_on", i32, [i32, i64, i64, address, address, address, address, i64, i32, address]),
        ("dyadic_convolution_workspace", i32, [i32, i64, i64, i32, i32, ctypes.POINTER(i64)]),
        ("random_signs", i32, [i64, u64, address]),
        ("random_rows", i32, [i64, i64, u64, address]),
        ("rounds_to_codes", i32, [i64, i64, i32, address, address, i32, address, address, i32]),
        ("rounds_to_codes_on", i32, [i64, i64, i32, address, address, i32, address, address, i32, address]),
        ("rounds_on", i32, [i32, i64, i64, i32, i32, address, address, address, i32, address]),
        ("sketch_table", i32, [i64, i64, u64, address]),
        ("sketch_on", i32, [i32, i64, i64, i32, i64, address, address, address, address, i64, i32, address]),
        ("sketch_workspace", i32, [i32, i64, i64, i64, i32, ctypes.POINTER(i64)]),
        ("linear_variant_count", size, []),
        ("get_linear_variant", i32, [size, ctypes.POINTER(VariantInfo)]),
        ("linear_supports", i32, [ctypes.POINTER(LinearProblem), text, i32]),
        ("linear_plan_create", i32, [ctypes.POINTER(LinearProblem), text, i32, ctypes.POINTER(address)]),
        ("linear_plan_info_json", text, [address]),
        ("linear_plan_pack", i32, [address, ctypes.POINTER(GptqWeights), address, ctypes.c_int64]),
        ("linear_plan_workspace_bytes", ctypes.c_int64, [address]),
        ("linear_plan_execute", i32, [address, address, address, address, address, ctypes.c_int64, address]),
        ("linear_plan_destroy", None, [address]),
        ("gptq_sort_rows", i32, [ctypes.POINTER(LinearProblem), ctypes.POINTER(GptqWeights), address, address]),
    ):
        function = getattr(library, "fwht_" + name, None)
        if function is None:
            raise ImportError(f"fwht: {path} has no function fwht_{name}; it is another library, or of another version")
        function.restype, function.argtypes = result, arguments
    version = library.fwht_abi_version()
    if version != ABI_VERSION:
        raise ImportError(f"fwht: {path} has interface version {version}, this package needs {ABI_VERSION}")
    return library


_path = _find_library()
library = _load(_path)
transform = library.fwht_transform
version: str = library.fwht_version().decode()


def last_error() -> str:
    return library.fwht_last_error().decode()


def build_info() -> dict[str, Any]:
    return json.loads(library.fwht_build_info_json())


def fail(status: int, device: int = HOST) -> NoReturn:
    """The exception for a status that is not FWHT_OK, with the library's sentence."""
    if status == 1:
        raise ValueError("fwht: " + last_error())
    if status == 2:
        raise NotImplementedError("fwht: " + last_error())
    if device != HOST:
        needs_cuda_build()
    raise RuntimeError("fwht: " + last_error())


def check(status: int, device: int = HOST) -> None:
    """`fail` unless the status is FWHT_OK."""
    if status:
        fail(status, device)


def needs_cuda_build() -> None:
    cuda = build_info()["cuda"]
    if cuda.startswith("none"):
        raise RuntimeError(
            f"fwht was built without CUDA ({cuda.removeprefix('none: ')}), so it cannot work on device memory; "
            "reinstall it with nvcc on PATH (FWHT_CUDA=ON makes a missing nvcc an error)"
        )


def encoded(variant: str | None) -> bytes | None:
    return None if variant is None else text_for_c("variant", variant, "a name of fwht.variants() or None")


def text_for_c(name: str, given: Any, wanted: str) -> bytes:
    if not isinstance(given, str):
        raise TypeError(f"fwht: {name}={given!r} must be {wanted}")
    if "\0" in given or not given.isascii():  # C would see what is before the null character
        raise ValueError(f"fwht: {name}={given!r} must be {wanted}")
    return given.encode()


def integer(name: str, given: Any, bits: int = 64) -> int:
    """ctypes would cut off what does not fit."""
    try:
        value = operator.index(given)
    except TypeError:
        raise TypeError(f"fwht: {name}={given!r} must be an integer") from None
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise ValueError(f"fwht: {name}={value} must fit {bits} bits")
    return value


def seed(given: Any) -> int:
    """Of random signs and rows."""
    try:
        value = operator.index(given)
    except TypeError:
        raise TypeError(f"fwht: seed={given!r} must be an integer") from None
    if not 0 <= value < 2**64:
        raise ValueError(f"fwht: seed={value} must be an integer from 0 to 2^64 - 1")
    return value


def checked_scale(scale: Any, name: str = "scale") -> float | None:
    if scale is None:
        return None
    kind = type(scale)
    of_numpy = kind.__module__ == "numpy" and kind.__name__ != "ndarray"  # numpy.float32 is a number
    if hasattr(scale, "__array__") and not of_numpy:
        raise TypeError(
            f"fwht: {name} must be a number or None, not a {kind.__module__}.{kind.__name__}: reading an array's value "
            f"would wait for the device; pass {name}.item() if that is meant"
        )
    drops = of_numpy and kind.__name__.startswith(("complex", "clong"))  # float() of NumPy's leaves the imaginary part out
    if drops or not (hasattr(kind, "__float__") or hasattr(kind, "__index__")):  # float() reads texts and buffers, too
        raise TypeError(f"fwht: {name}={scale!r} must be a number or None")
    try:
        value = float(scale)
    except (TypeError, ValueError):
        raise TypeError(f"fwht: {name}={scale!r} must be a number or None") from None
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ValueError(f"fwht: {name}={value} must be finite")
    return value


def check_encoded(dtype: int, dtype_name: str) -> None:
    """Before the scale: what codes are not made of, no scale helps."""
    if dtype > F32:
        raise TypeError(f"fwht: codes are of rows in float16, bfloat16 or float32, not in {dtype_name}")


def check_sums(dtype: int | None, dtype_name: str, scale: float | None, operator: str | None) -> None:
    """Integers are summed by H_n and nothing else; operator: None, or a whole text."""
    if dtype not in (I32, I64):
        return
    if operator is not None and not (operator.isdigit() and int(operator).bit_count() == 1):
        raise TypeError(f"fwht: {dtype_name} data are only summed by H_n; the operator {operator} takes float16, bfloat16, float32 or float64")
    if scale != 1:
        why = "scale=None is 1/sqrt(n)" if scale is None else f"scale={scale}"
        raise ValueError(f"fwht: {why}, but {dtype_name} data are only summed, so it must be 1")


def row_stride(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """The distance of row starts in elements where all rows lie at one distance of at least n and elements side
    by side, else None. Dimensions of size 1 do not count."""
    n = shape[-1]
    if n > 1 and strides[-1] != 1:
        return None
    distance = None
    expected = 0
    for size, stride in zip(reversed(shape[:-1]), reversed(strides[:-1])):
        if size == 1:
            continue
        if distance is None:
            distance = stride
        elif stride != expected:
            return None
        expected = stride * size
    if distance is None:
        return n
    return distance if distance >= n else None


def answered(text: bytes | None) -> str:
    """What a function returned that gives NULL for bad input."""
    if text is None:
        raise ValueError("fwht: " + last_error())
    return text.decode()


def make_problem(
    shape: Sequence[int],
    dtype: int | None,
    dtype_name: str,
    scale: SupportsFloat | None,
    *,
    in_place: bool,
    device: int,
    in_stride: int = 0,
    out_stride: int = 0,
    threads: int = 0,
    variant: bytes | None = None,
    programmatic_launch: bool = False,
    operator: str | None = None,
    encoding: str | None = None,
    preparation: str | None = None,
    orderings: tuple[int, int] = (0, 0),
    inner: int = 1,
) -> Problem:
    """Checks what does not depend on a variant, in the order in which a user would want to hear of it."""
    if len(shape) == 0:
        raise ValueError("fwht: x must have at least one dimension, whose length is n; it is a scalar")
    if dtype is None:
        raise TypeError(f"fwht: dtype {dtype_name} {DTYPE_RULE}")
    if encoding is not None:
        check_encoded(dtype, dtype_name)
    scale = checked_scale(scale)
    op_text = None if operator is None else text_for_c("operator", operator, OPERATOR_TEXT)
    check_sums(dtype, dtype_name, scale, operator)
    n = shape[-1]
    rows = 1
    for size in shape[:-1]:
        rows *= size
    integer("n", n)
    for name, value in (("the number of rows", rows), ("in_stride", in_stride), ("out_stride", out_stride)):
        integer(name, value)
    problem = Problem(
        ctypes.sizeof(Problem), n, rows, 0.0 if scale is None else scale, dtype,
        _IN_PLACE if in_place else _OUT_OF_PLACE, in_stride, out_stride,
        (0 if scale is None else SCALE_AS_GIVEN) | (_PROGRAMMATIC_LAUNCH if programmatic_launch else 0), threads,
        op_text, None if encoding is None else text_for_c("encoding", encoding, ENCODING_TEXT),
        preparation.encode() if preparation else None, *orderings, inner,
    )  # fmt: skip
    if op_text is not None:
        order = json.loads(answered(library.fwht_operator_info_json(op_text)))["n"]
        if n != order:
            raise ValueError(f"fwht: rows of {n} elements came to the operator {operator}, which is for {order}")
    elif n < 2 or n & (n - 1):
        why = f"n={n} must be a power of two of at least 2"
        if n > 0 and library.fwht_supports(problem, variant, max(device, HOST)) == 2 and "power of two" in last_error():
            why = last_error()  # with the limits of the variant
        raise ValueError(f"fwht: {why}")
    return problem


class Owner:
    """Whose handle is destroyed with it, by a function of the class: globals may be gone when the interpreter ends."""

    _destroy: Any
    handle: Any = None

    def __del__(self) -> None:
        if self.handle:
            self._destroy(self.handle)


class KeptPlan(Owner):
    """A plan that every stream and thread may execute; `handle` is valid as long as this."""

    _destroy = staticmethod(library.fwht_plan_destroy)

    def __init__(self, handle: ctypes.c_void_p):
        self.handle = handle


def kept_plan(problem: Problem, variant: bytes | None, device: int) -> KeptPlan | None:
    """The plan by which `transform` works; None where it keeps none for all streams."""
    handle = ctypes.c_void_p()
    check(library.fwht_plan_kept(problem, variant, device, handle), device)
    return KeptPlan(handle) if handle else None


def require_aligned(problem: Problem, variant: bytes | None, device: int, address: int) -> None:
    """Of `out`, before x is copied there. No plan wants more than 16 bytes."""
    if address % 16 == 0:
        return
    plan = kept_plan(problem, variant, device)
    if plan is None:
        handle = ctypes.c_void_p()
        check(library.fwht_plan_create(problem, variant, device, handle), device)
        plan = KeptPlan(handle)
    about = json.loads(library.fwht_plan_info_json(plan.handle))
    if address % about["alignment"]:
        raise ValueError(f"fwht: out={address:#x} must be aligned to {about['alignment']} bytes for {about['problem']}")


class Cache:
    """Prepared calls by what they depend on. They are small and quick to make, so a full cache is emptied."""

    def __init__(self, most: int = 4096):
        self._most = most
        self._entries: dict[Any, Any] = {}
        self._lock = threading.Lock()
        self.get = self._entries.get

    def values(self) -> list[Any]:
        with self._lock:
            return list(self._entries.values())

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()

    def put(self, key: Any, entry: Any) -> Any:
        with self._lock:
            if len(self._entries) >= self._most:
                self._entries.clear()
            self._entries[key] = entry
        return entry
