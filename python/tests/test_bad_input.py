"""Bad input: the type of the exception, and a sentence with the value and the limit, before anything runs or is written. Every row
of the table in docs/python.md, for NumPy and, where it is there, PyTorch; what only linear layers refuse is in test_linear.py."""

import copy
import pickle

import numpy as np
import pytest

import fwht
from conftest import needs_torch, torch
from fwht import operators


T, T_, OP, Q, W = fwht.hadamard_transform, fwht.hadamard_transform_, operators.transform, fwht.hadamard_quantize, fwht.walsh
inf, nan = float("inf"), float("nan")


class Library:
    """x = a(shape, dtype), zeros; and views that both libraries have."""

    def __init__(self, name):
        self.name = name

    def __call__(self, shape=(3, 8), dtype="float32"):
        return np.zeros(shape, dtype) if self.name == "numpy" else torch.zeros(shape, dtype=getattr(torch, dtype))

    def strided(self, shape, strides):
        x = self((64,))
        if self.name == "numpy":
            return np.lib.stride_tricks.as_strided(x, shape, [4 * stride for stride in strides])
        return x.as_strided(shape, strides)

    def expanded(self, n):
        return np.broadcast_to(np.zeros(1, "float16"), (n,)) if self.name == "numpy" else torch.zeros(1, dtype=torch.float16).expand(n)


def fill(x, *values):
    """The first elements of one row."""
    for i, value in enumerate(values):
        x[1, i] = value
    return x


def plan(n=8, rows=1, dtype="float32", **options):
    return fwht.plan(n, rows, dtype, device="cpu", **options)


POWER, DTYPES, NUMBER, OVERLAP = "must be a power of two", "must be float16, bfloat16, float32, float64, int32 or int64", "must be a number or None", "overlap"
ROWS, FITS = "strides .* rows with a constant stride of at least n=", "must fit 64 bits"
# A sentence for each row of calls: they get the library.
TABLE = [
    (ValueError, "at least one dimension", [lambda a: T(a(())), lambda a: OP(a(())), lambda a: Q(a(()))]),
    (ValueError, r"n=\d+ must be a power of two between 2 and 1073741824",
     [lambda a, s=s, i=i: T(a(s), inplace=i) for s in ((3, 6), (6,), (3, 1), (0, 6)) for i in (False, True)]),
    (ValueError, f"n=0 {POWER}", [lambda a: T(a((0,))), lambda a: T(a((3, 0))), lambda a: T_(a((3, 0)))]),
    (ValueError, "n=0 must be between 1 and",
     [lambda a, e=e: Q(a((3, 0)), e) for e in ("e4m3:row", "e4m3:128", "int4:row", "mxfp8")] + [lambda a: OP(a((3, 0)))]),
    (NotImplementedError, f"n={2**31} must be a power of two between 2 and 1073741824", [lambda a: T(a.expanded(2**31))]),
    (TypeError, DTYPES, [lambda a, d=d, f=f: f(a((3, 8), d)) for d in ("int16", "int8", "bool", "complex64", "uint8") for f in (T, OP, Q)]),
    (ValueError, r"scale=None is 1/sqrt\(n\), but .*int\d\d data are only summed, so it must be 1",
     [lambda a, d=d, f=f: f(a((3, 8), d)) for d in ("int32", "int64") for f in (T, OP)] + [lambda a: T_(a((3, 8), "int64"))]),
    (ValueError, r"scale=0.5, but .*int32 data are only summed", [lambda a, f=f: f(a((3, 8), "int32"), scale=0.5) for f in (T, OP)]),
    (TypeError, r"int\d\d data are only summed by H_n; the operator .* takes float16, bfloat16, float32 or float64",
     [lambda a, d=d, s=s: OP(a((3, 12), d), "12", s) for d in ("int32", "int64") for s in (1.0, None)]
     + [lambda a: OP(a((3, 16), "int32"), "4x4", 1), lambda a: OP(a((3, 8), "int32"), scale=1, signs=operators.random_signs(8, 1)),
        lambda a: W.rounds(a((3, 8), "int32"), [operators.random_signs(8, 1)]), lambda a: plan(12, dtype="int32", operator="12", scale=1)]),
    (ValueError, "scale=0.0, but int32 data", [lambda a: plan(dtype="int32", scale=0)]),
    (TypeError, "codes are of rows in float16, bfloat16 or float32, not in .*(int32|int64|float64)",
     [lambda a, d=d, s=s: Q(a((3, 64), d), scale=s) for d in ("int32", "int64", "float64") for s in (None, 1)]),
    # spectra, convolutions, sketches
    (ValueError, "element 0 is 0, but the form signs has 1 and -1; 0 and 1 are the form bits", [lambda a: W.spectrum(a((8,), "int8"), "signs")]),
    (ValueError, "form='truth' must be one of packed, bits, signs", [lambda a: W.spectrum(a((8,), "int8"), "truth")]),
    (ValueError, "form=.'bits'. must be one of packed, bits, signs", [lambda a: W.spectrum(a((8,), "int8"), ["bits"])]),
    (ValueError, "unknown variant 'no_such_variant'", [lambda a: W.spectrum(a((8,), "bool"), "bits", variant="no_such_variant")]),
    (NotImplementedError, "passes works on device memory", [lambda a: W.spectrum(a((8,), "bool"), "bits", variant="passes")]),
    (TypeError, "float32 must be bool or uint8 or int8 for the form bits", [lambda a: W.spectrum(a((8,)), "bits")]),
    (TypeError, "bool must be int8 for the form signs", [lambda a: W.spectrum(a((8,), "bool"), "signs")]),
    (ValueError, "6 values of a function; there must be 2.k, k from 1 to 30", [lambda a: W.spectrum(a((2, 6), "bool"), "bits")]),
    (ValueError, "values of a function", [lambda a: W.spectrum(a((), "bool"), "bits"), lambda a: W.spectrum(a((0,), "uint8"), "packed")]),
    (TypeError, "float32 must be int32, as", [lambda a: W.summary(a((8,))), lambda a: W.largest(a((8,)), 1)]),
    (ValueError, "it must be one spectrum of 2.k", [lambda a, s=s: W.summary(a(s, "int32")) for s in ((6,), (2, 8), ())]),
    (ValueError, "count=9 must be between 1 and 8", [lambda a: W.largest(a((8,), "int32"), 9)]),
    (TypeError, "must be float32, float64, int32 or int64 for dyadic", [lambda a: W.autocorrelation(a((8,), "float16"))]),
    (ValueError, "both must be alike", [lambda a: W.dyadic_convolution(a((8,)), a((2, 8))), lambda a: W.dyadic_convolution(a((8,)), a((8,), "float64"))]),
    (ValueError, "n=6 must be a power of two", [lambda a: W.autocorrelation(a((6,)))]),
    (ValueError, "n=6 is no power of two times", [lambda a: W.rounds(a((6,)), [operators.random_signs(6, 1)])]),
    (ValueError, "signs must have at least one element", [lambda a: W.rounds(a(), [])]),
    (TypeError, "signs is a generator; it must be a sequence", [lambda a: W.rounds(a((3, 64)), (operators.random_signs(64, i) for i in range(3)))]),
    (TypeError, "signs has a int", [lambda a: W.rounds(a(), [1])]),
    (ValueError, "16 signs do not fit n=64", [lambda a: W.rounds(a((3, 64)), [operators.random_signs(16, 1)])]),
    (ValueError, "length=0 must be between 1 and", [lambda a: W.Sketch(0, 1, 1)]),
    (ValueError, "rows=9 must be between 1 and 8, the padded length", [lambda a: W.Sketch(7, 9, 1)]),
    (ValueError, "seed=-1 must be an integer from 0 to 2.64 - 1", [lambda a: W.Sketch(7, 3, -1), lambda a: operators.random_signs(4, -1)]),
    (TypeError, "seed=1.5 must be an integer", [lambda a: W.Sketch(7, 3, 1.5), lambda a: operators.random_signs(4, 1.5)]),
    (TypeError, "n=4.0 must be an integer", [lambda a: operators.random_signs(4.0, 1)]),
    (ValueError, f"n={2**45} must be between 1 and {2**37}", [lambda a: operators.random_signs(2**45, 1)]),
    (TypeError, "signs is a str; it must be one sequence", [lambda a: operators.pack_signs("abc")]),
    (TypeError, r"signs is a .* of shape \(2, 2\); it must be one sequence", [lambda a: operators.pack_signs(a((2, 2)))]),
    (ValueError, "its last dimension must be 7", [lambda a: W.Sketch(7, 3, 1)(a()), lambda a: W.Sketch(30, 7, 1).transpose(a())]),
    (TypeError, "must be float32 or float64 for sketches", [lambda a: W.Sketch(8, 3, 1)(a((8,), "float16"))]),
    # orderings, axes
    (ValueError, "ordering='walsh' must be one of natural, dyadic, sequency", [lambda a: T(a(), ordering="walsh"), lambda a: T(a(), input_ordering="walsh")]),
    (ValueError, "ordering=.'dyadic'. must be one of natural", [lambda a: T(a(), ordering=["dyadic"])]),
    (ValueError, "strides .* elements must lie apart", [lambda a, s=s, o=o: T(a((8, 8)), out=a.strided((8, 8), s), **o)
     for s in ((1, 1), (4, 1)) for o in ({"axis": 0}, {"ordering": "dyadic"})]),
    (ValueError, r"ordering=array\(\['dyadic', 'x'\].* must be one of natural",
     [lambda a, name=name: T(a(), **{name: np.array(["dyadic", "x"])}) for name in ("ordering", "input_ordering")]),
    (TypeError, r"axis=array\(\[0, 1\]\) must be an integer", [lambda a, f=f: f(a((8, 8)), axis=np.array([0, 1])) for f in (T, T_)]),
    (ValueError, "n8.*sequency ordering of the (in|out)put permutes a row", [lambda a: T(a(), ordering="sequency", inplace=True), lambda a: T(a(), input_ordering="sequency", inplace=True)]),
    (ValueError, "n=3 must be a power of two", [lambda a: T(a(), axis=0), lambda a: T(a(), axis=(1, 0)), lambda a: T_(a(), axis=0)]),
    (ValueError, "axis=2 must be between -2 and 1 for x of 2 dimensions", [lambda a: T(a(), axis=2), lambda a: T(a(), axis=(0, 2)), lambda a: T_(a(), axis=2)]),
    (ValueError, "at least one axis, and none twice", [lambda a: T(a(), axis=()), lambda a: T(a(), axis=(1, -1))]),
    (TypeError, "axis='x' must be an integer", [lambda a: T(a(), axis="x")]),
    (ValueError, "at least one dimension", [lambda a: T(a(()), axis=0)]),
    (TypeError, DTYPES, [lambda a: T(a((8, 8), "int8"), axis=0)]),
    (ValueError, "int32 data are only summed", [lambda a: T(a((8, 8), "int32"), ordering="dyadic")]),
    (ValueError, "exclude each other", [lambda a: T(a((8, 8)), out=a((8, 8)), inplace=True, axis=0)]),
    (NotImplementedError, "auto works on device memory", [lambda a: T(a((8, 8)), axis=0, variant="auto")]),
    (TypeError, "float32 must be int32 or int64", [lambda a: W.checked_transform(a())]),
    (OverflowError, "4 of 24 sums do not fit int32, max .x. is 2147483648 and n=8", [lambda a: W.checked_transform(fill(a((3, 8), "int32"), -(2**31), -1))]),
    (ValueError, "scale=.* must be finite", [lambda a, s=s: T(a(), s) for s in (inf, nan, -inf, 1e39, 10**400)]
     + [lambda a: OP(a((3, 12)), scale=inf), lambda a: Q(a(), scale=nan)]),
    (TypeError, f"scale.* {NUMBER}", [lambda a, s=s: T(a(), s) for s in (np.ones(()), "1.0", b"1", bytearray(b"1"), memoryview(b"1"), [1.0], object(), 2j, np.complex64(2j))] + [lambda a: T(a(), a(()))]),
    (ValueError, ROWS, [lambda a, s=s, w=w: T_(a.strided(*s)) if w else T(a(s[0]), out=a.strided(*s)) for w in (True, False) for s in (
        ((4, 8), (1, 8)), ((4, 8), (16, 2)), ((2, 3, 8), (32, 8, 1)), ((4, 8), (0, 1)), ((4, 8), (4, 1)))]),
    (ValueError, "out .*must be as x", [lambda a, o=o, f=f: f(a(), out=a(*o)) for f in (T, OP) for o in (((3, 16),), ((24,),), ((3, 8), "float16"))]),
    (ValueError, OVERLAP, [lambda a, f=f: (lambda b: f(b[:4], out=b[1:]))(a((5, 8))) for f in (T, OP)]
     + [lambda a: (lambda b: T(b[:, :8], out=b[:, 4:12]))(a((4, 16))), lambda a: (lambda b: plan(8, 4, inplace=False).execute(b[:4], b[1:]))(a((5, 8)))]),
    (ValueError, "exclude each other", [lambda a, f=f: f(a(), out=a(), inplace=True) for f in (T, OP)]),
    (ValueError, "no_such_variant", [lambda a, f=f: f(a((3, 64)), variant="no_such_variant") for f in (T, OP, Q)]),
    (ValueError, r"'cpu\\x00x' must be a name", [lambda a, f=f: f(a((3, 64)), variant="cpu\0x") for f in (T, OP, Q)]),
    (TypeError, "variant=3", [lambda a, f=f: f(a((3, 64)), variant=3) for f in (T, OP, Q)]),
    (NotImplementedError, "auto works on device memory", [lambda a, f=f: f(a((3, 64)), variant="auto") for f in (T, OP, Q)]),
    # operators
    (ValueError, "rows of 24 elements came to the operator 12x4, which is for 48", [lambda a: OP(a((3, 24)), "12x4"), lambda a: Q(a((3, 24)), operator="12x4")]),
    (ValueError, "nearest n that is: 13696", [lambda a: OP(a((3, 13697))), lambda a: Q(a((3, 13697)))]),
    (TypeError, "operator=24 must be a text", [lambda a: OP(a((3, 24)), 24), lambda a: operators.transposed(24)]),
    (ValueError, "must be a text", [lambda a: OP(a((3, 24)), "12x2\0"), lambda a: operators.transposed("ä")]),
    (ValueError, r"the operator 12x2\+signs needs signs", [lambda a: OP(a((3, 24)), "12x2+signs")]),
    (ValueError, "needs dense", [lambda a: OP(a((3, 24)), "d3x8")]),
    (ValueError, "dense are given, but the operator .* has none", [lambda a: OP(a((3, 24)), dense=a((9,)))]),
    (ValueError, "must be 9 contiguous elements of", [lambda a: OP(a((3, 24)), "d3x8", dense=a((8,)))]),
    (ValueError, "must be 4 contiguous elements of uint8",
     [lambda a: OP(a((3, 24)), signs=a((4,))), lambda a: OP(a((3, 24)), signs=a((3,), "uint8")), lambda a: OP(a((3, 24)), signs=a((8,), "uint8")[::2])]),
    (ValueError, "dense factor of order 4294967296 exceeds", [lambda a: OP(a((3, 24)), "d4294967296")]),
    # codes
    (ValueError, "encoding 'e4m4:row'", [lambda a: Q(a((3, 64)), "e4m4:row")]),
    (ValueError, "the form is e4m3:row", [lambda a: Q(a((3, 64)), "")]),
    (TypeError, "encoding=8 must be a text", [lambda a: Q(a((3, 64)), 8)]),
    (TypeError, "encoding=.'e4m3:row'. must be a text", [lambda a: Q(a((3, 64)), ["e4m3:row"])]),
    (TypeError, "epsilon='a' must be a number", [lambda a: Q(a((3, 64)), prologue=fwht.quantize.RmsNorm(a((64,)), "a"))]),
    (ValueError, "group=48", [lambda a: Q(a((3, 64)), "e4m3:48")]),
    (ValueError, "group=4611686018427387904 must be between", [lambda a: Q(a((3, 64)), f"int8:{2**62}")]),
    (ValueError, "512", [lambda a: Q(a((3, 128)), "e4m3:row,t512")]),
    (ValueError, "encoding nvfp4 needs tensor_scale", [lambda a: Q(a((3, 64)), "nvfp4")]),
    (ValueError, "tensor_scale=2.0 is given, but encoding e4m3:row has none", [lambda a: Q(a((3, 64)), tensor_scale=2.0)]),
    (ValueError, "tensor_scale=0.0 must be positive", [lambda a: Q(a((3, 64)), "nvfp4", tensor_scale=0.0)]),
    (ValueError, "tensor_scale=nan must be finite", [lambda a: Q(a((3, 64)), "nvfp4", tensor_scale=nan)]),
    (TypeError, f"tensor_scale='2' {NUMBER}", [lambda a: Q(a((3, 64)), "nvfp4", tensor_scale="2")]),
    (ValueError, "t=0 must be at least 1", [lambda a, e=e, f=f: f(a((3, 64)), e)
     for e in ("mxfp4:t0", "e4m3:row,t00") for f in (Q, fwht.quantize.quantize)]),
    (ValueError, r"x of shape \(3, 64\) and 192 elements are no whole tokens of 256", [lambda a: fwht.quantize.quantize(a((3, 64)), "e4m3:row,t256")]),
    # signs
    (TypeError, r"index=slice\(1, 3, None\) must be an integer", [lambda a: operators.random_signs(8, 1)[1:3]]),
    (IndexError, "index=(-1|8) must be between 0 and 7", [lambda a, i=i: operators.random_signs(8, 1)[i] for i in (-1, 8)]),
    # plans: every stride counts, and nothing is cut to 64 bits
    (ValueError, "the plan is f32/n8/r1", [lambda a, s=s, i=i: plan(inplace=i).execute(a.strided((8,), (s,))) for s in (0, 2) for i in (True, False)]
     + [lambda a, s=s: plan().execute(a(*s)) for s in (((1, 16),), ((2, 8),), ((1, 8), "float16"), ((),))]),
    (ValueError, "the plan is f32/n8/r3", [lambda a, s=s: plan(8, 3).execute(a.strided((3, 8), s)) for s in ((9, 1), (1, 3), (8, 2), (0, 1))]),
    (ValueError, "the plan is in place", [lambda a: plan().execute(a((1, 8)), a((1, 8)))]),
    (TypeError, "stream=.* must be an integer", [lambda a, s=s: plan().execute(a((1, 8)), stream=s) for s in ("a", b"x", 1.5)]),
    (ValueError, "stream=-1 must not be negative", [lambda a: plan().execute(a((1, 8)), stream=-1)]),
    (ValueError, f"stream={2**70} must fit 64 bits", [lambda a: plan().execute(a((1, 8)), stream=2**70)]),
    (TypeError, "list", [lambda a: plan().execute([1.0] * 8)]),
    (TypeError, "cannot be copied or pickled", [lambda a, f=f: f(plan()) for f in (copy.copy, copy.deepcopy, pickle.dumps)]),
    (ValueError, FITS, [lambda a: plan(8, 2**64 + 3), lambda a: plan(2**64 + 8), lambda a: plan(row_stride=2**64 + 8), lambda a: operators.operator_for(2**70 + 8)]),
    (ValueError, "device=4294967295 must fit 32 bits", [lambda a, d=d: fwht.plan(8, 3, "float32", device=d) for d in (2**32 - 1, "cuda:4294967295")]),
    (ValueError, "exceeds the limit", [lambda a: plan(8, 2**62), lambda a: plan(8, 2**40, row_stride=2**40)]),
    (TypeError, "rows=1.5 must be an integer", [lambda a: plan(8, 1.5)]),
]  # fmt: skip


@pytest.mark.parametrize("library", ["numpy", pytest.param("torch", marks=needs_torch)])
@pytest.mark.parametrize(("error", "words", "call"), [(error, words, call) for error, words, calls in TABLE for call in calls])
def test_table(library, error, words, call):
    for _ in range(2):  # the second call of a kind goes a shorter way
        with pytest.raises(error, match=words):
            call(Library(library))


def test_elements_without_bytes():
    with pytest.raises(TypeError, match=f"dtype void {DTYPES}"):
        Q(np.zeros((8, 8), "V0"))


@pytest.mark.parametrize("library", ["numpy", pytest.param("torch", marks=needs_torch)])
@pytest.mark.parametrize("one", [1 + 0j, np.complex64(1)])
def test_a_complex_scale_is_no_number_that_went_well(library, one):
    """It equals 1.0, with which a call was prepared."""
    calls = [T, T_, lambda x, s: T(x, s, out=Library(library)((8, 8))), lambda x, s: T(x, s, axis=0), lambda x, s: OP(x, scale=s),
             lambda x, s: OP(x, scale=s, inplace=True), lambda x, s: Q(x, scale=s)]  # fmt: skip
    for call in calls:
        x = Library(library)((8, 8))
        call(x, 1.0), call(x, 1)
        with pytest.raises(TypeError, match=f"scale=.*j.* {NUMBER}"):
            call(x, one)


class Deleted:
    """As an array of JAX after `x.delete()`, or after a call that it was donated to."""

    shape = (3, 8)

    def is_deleted(self):
        return True

    def __dlpack_device__(self):
        raise TypeError("object of type 'NoneType' has no len()")

    def __dlpack__(self, **_):
        raise RuntimeError("Array has been deleted.")

    def __array_namespace__(self):
        return np


def test_arrays_that_were_deleted():
    with pytest.raises(ValueError, match=r"Deleted of shape \(3, 8\) was deleted, or donated to a call; it has no memory"):
        T(Deleted())


def test_float64_is_never_narrowed():
    x = np.zeros((3, 8))
    if fwht.supports(8, "float64", device="cpu"):
        assert T(x).dtype == x.dtype
    else:
        with pytest.raises(TypeError, match="float64"):
            T(x)


def test_numpy_numbers_are_scales():
    for scale in (np.float32(0.5), np.int64(2)):
        assert T(np.ones((3, 8), "float32"), scale)[0, 0] == 8 * scale


def test_read_only():
    x = np.zeros((3, 8), "float32")
    x.flags.writeable = False
    assert T(x).shape == (3, 8)
    for call in (T_, lambda x: OP(x, inplace=True), plan(8, 3).execute):
        with pytest.raises(ValueError, match="read-only"):
            call(x)


def test_an_out_between_two_elements_is_not_written():
    """Nor by the copy of rows that the transform does not read where they lie."""
    memory = np.full(4 * 96 + 16, 7, "uint8")
    first = -memory.ctypes.data % 4 + 1
    x = np.ones((8, 12), "float32").T
    pairs = [(x, memory[first : first + 4 * 96].view("float32").reshape(12, 8))]
    if torch is not None:
        pairs += [(torch.from_numpy(x), torch.frombuffer(memory, dtype=torch.float32, offset=first, count=96).view(12, 8))]
    for x, out in pairs:
        for call in (T, OP):
            with pytest.raises(ValueError, match="out=0x.* must be aligned to 4 bytes for f32/n8/r12"):
                call(x, out=out)
            assert (memory == 7).all()


@pytest.mark.parametrize("x", [[1.0] * 12, 3.0, None, "text", np.float32(1)])
def test_what_is_no_array(x):
    for call, words in ((T, "a NumPy, CuPy or JAX array"), (OP, "operators take PyTorch tensors and NumPy arrays"), (Q, "or a NumPy array")):
        with pytest.raises(TypeError, match=words):
            call(x)
    if x is not None:
        with pytest.raises(ValueError, match="must be as x"):
            T(np.zeros((3, 8), "float32"), out=x)


def test_masks_are_not_lost():
    x = np.ma.masked_array(np.zeros((4, 64), "float32"))
    for call in (T, T_, OP, Q, lambda x: T(x, axis=0), lambda x: Q(x.T[:4, :4]), lambda x: T(np.zeros((4, 64), "float32"), out=x), W.autocorrelation, plan(64, 4).execute):
        with pytest.raises(TypeError, match="a numpy.ma.MaskedArray would lose its mask"):
            call(x)


def test_a_byte_order_of_another_machine():
    with pytest.raises(TypeError, match=">f4"):
        T(np.zeros((3, 8), ">f4"))


class OnCuda:
    """An array that says that it is in CUDA memory."""

    __cuda_array_interface__ = {"shape": (3, 8), "typestr": "<f4", "data": (256, False), "version": 3}


def test_cuda_arrays_of_an_unknown_library():
    with pytest.raises(TypeError, match="OnCuda; pass out= or inplace=True"):
        T(OnCuda())
    with pytest.raises(ValueError, match="out .*host memory.* must be as x .*CUDA memory"):
        T(OnCuda(), out=np.empty((3, 8), "f4"))
    between = OnCuda()
    between.__cuda_array_interface__ = {**OnCuda.__cuda_array_interface__, "strides": (34, 4)}
    for x in (between, np.lib.stride_tricks.as_strided(np.zeros(64, "f4"), (3, 8), (34, 4))):
        with pytest.raises(ValueError, match="must be multiples of the element's 4 bytes"):
            T(x)
    if fwht.build_info()["cuda"].startswith("none"):
        with pytest.raises(RuntimeError, match="fwht was built without CUDA .*reinstall it with nvcc on PATH"):
            T_(OnCuda())


@needs_torch
def test_storages_that_were_freed():
    for call in (T, T_, OP, lambda x: OP(x, inplace=True), Q, lambda x: T(torch.ones(4, 8), out=x), plan(8, 4).execute, lambda x: OP(torch.ones(4, 8), out=x),
                 lambda x: T(x, axis=0), lambda x: T_(x, axis=0), lambda x: T(torch.ones(4, 8), out=x, ordering="dyadic")):  # fmt: skip
        call(torch.ones(4, 8))  # so that one way is prepared
        x = torch.ones(4, 8)
        x.untyped_storage().resize_(0)
        for _ in range(2):
            with pytest.raises(ValueError, match=r"shape \(4, 8\) has no memory; its storage was freed"):
                call(x)


def freed(*shape, dtype="float32", transposed=False):
    x = torch.ones(shape, dtype=getattr(torch, dtype))
    x = x.T if transposed else x
    x.untyped_storage().resize_(0)
    return x


def encoded(encoding="e4m3:row", part=None):
    """Codes and scales of four rows, one of them freed."""
    made = fwht.quantize.quantize(torch.ones(4, 64), encoding)
    if part is not None:
        made[part].untyped_storage().resize_(0)
    return made


def layer(part=None):
    """One of PyTorch, its weight or bias freed."""
    made = torch.nn.Linear(64, 64)
    if part is not None:
        getattr(made, part).untyped_storage().resize_(0)
    return made


def packed(is_freed=False):
    made = fwht.linear.pack(torch.zeros(16, 128, dtype=torch.int32), None, torch.ones(1, 128).half(), device="cpu")
    if is_freed:
        made.weights.untyped_storage().resize_(0)
    return made


CACHED = "e4m3:128,ue8m0,deepseek_v32"
FREED = {
    "sketch": lambda: W.Sketch(8, 3, 1)(freed(2, 8)), "sketch transposed": lambda: W.Sketch(8, 3, 1).transpose(freed(2, 3)),
    "spectrum": lambda: W.spectrum(freed(8, 8, dtype="uint8", transposed=True), "packed"),
    "summaries": lambda: W.summaries(freed(8, 8, dtype="uint8", transposed=True), "packed"),
    "summary": lambda: W.summary(freed(16, dtype="int32")), "largest": lambda: W.largest(freed(16, dtype="int32"), 2),
    "convolution": lambda: W.dyadic_convolution(freed(8, dtype="int32"), torch.ones(8, dtype=torch.int32)),
    "rounds": lambda: W.rounds_to_codes(freed(64, 4, transposed=True), [operators.random_signs(64, 1)], 8),
    "codes": lambda: fwht.quantize.dequantize(*encoded(part=0), "e4m3:row"), "scales": lambda: fwht.quantize.dequantize(*encoded(part=1), "e4m3:row"),
    "x of codes": lambda: Q(freed(64, 4, transposed=True)), "x of a quantizer": lambda: fwht.quantize.quantize(freed(64, 4, transposed=True), "e4m3:row"),
    "codes to write": lambda: Q(torch.ones(4, 64), out=encoded(part=0)), "scales to write": lambda: Q(torch.ones(4, 64), out=encoded(part=1)),
    "round trip": lambda: fwht.quantize.round_trip(freed(4, 64), "nvfp4"),
    "tensor_scale": lambda: fwht.quantize.quantize(torch.ones(4, 64), "nvfp4", tensor_scale=freed(1)),
    "cache": lambda: fwht.quantize.into_cache(torch.zeros(1, 4, 132, dtype=torch.uint8), torch.arange(3), freed(128, 3, transposed=True), CACHED),
    "axis": lambda: T(freed(4, 8, transposed=True), axis=0), "ordering": lambda: T(freed(4, 8, transposed=True), ordering="dyadic"),
    "signs": lambda: operators.pack_signs(freed(8)), "signs beside x": lambda: OP(torch.ones(4, 64), signs=freed(8, dtype="uint8")),
    "compat": lambda: fwht.compat.fast_hadamard_transform.hadamard_transform(freed(3, 6)),
    "compat 20N": lambda: fwht.compat.fast_hadamard_transform.hadamard_transform_20N(freed(3, 75)),
    "compat ref": lambda: fwht.compat.fast_hadamard_transform.hadamard_transform_ref(freed(3, 6)),
    "fp8": lambda: fwht.nn.Fp8Linear(freed(16, 16)), "fp8 bias": lambda: fwht.nn.Fp8Linear(torch.ones(16, 16), freed(16)),
    "rotated inputs": lambda: fwht.nn.rotate_linear(layer("weight")), "rotated outputs": lambda: fwht.nn.rotate_linear(layer("weight"), "out"),
    "rotated bias": lambda: fwht.nn.rotate_linear(layer("bias"), "out"),
    "qweight": lambda: fwht.linear.pack(freed(8, 16, dtype="int32"), None, torch.ones(1, 16).half()),
    "packed": lambda: fwht.linear.forward(torch.ones(2, 128).half(), packed(True)),
    "x of a layer": lambda: fwht.linear.forward(freed(128, 2, dtype="float16", transposed=True), packed()),
}  # fmt: skip


@needs_torch
@pytest.mark.parametrize("name", FREED)
def test_storages_that_were_freed_before_anything_else_reads_them(name):
    """PyTorch's own functions read address 0, and end the process."""
    OP(torch.ones(4, 64), signs=torch.zeros(8, dtype=torch.uint8)), fwht.linear.forward(torch.ones(2, 128).half(), packed())  # prepared
    with pytest.raises(ValueError, match=r"a tensor of shape \(.*\) has no memory; its storage was freed"):
        FREED[name]()


@needs_torch
def test_storages_that_were_freed_below_a_default_device():
    """Which is a mode of PyTorch's functions: calls go another way."""
    writes = (
        lambda x: T(torch.ones(4, 8), out=x), lambda x: OP(torch.ones(4, 8), out=x), lambda x: T(torch.ones(4, 8), axis=0, out=x),
        T_, lambda x: T(x, axis=0), Q,
    )  # fmt: skip
    with torch.device("cpu"):
        for call in writes:
            with pytest.raises(ValueError, match=r"shape \(4, 8\) has no memory; its storage was freed"):
                call(freed(4, 8))
        codes, scales = encoded(part=1)
        with pytest.raises(ValueError, match=r"shape \(4, 1\) has no memory; its storage was freed"):
            Q(torch.ones(4, 64), out=(codes, scales))


def test_rows_that_lie_between_each_other():
    """Slices of a packed tensor, such as q and k of qkv."""
    for dtype in ("float32", "float64"):
        b = np.random.default_rng(0).integers(-8, 8, (4, 24)).astype(dtype)
        for memory in [b] + ([torch.from_numpy(b.copy())] if torch else []):
            for call in (T, OP):
                q, k, v = (memory[:, i : i + 8] for i in (0, 8, 16))
                before = T(q * 1), v * 1
                call(q, out=k)
                assert (k == before[0]).all() and (v == before[1]).all()


def test_no_rows():
    for x in [np.zeros((0, 256), "float32")] + [torch.zeros(0, 256) for _ in range(torch is not None)]:
        assert T(x).shape == T_(x).shape == OP(x).shape == plan(256, 0).execute(x).shape == (0, 256)
        codes, scales = Q(x, "e4m3:128")
        assert codes.shape == (0, 256) and scales.shape == (0, 2)
        assert all(Q(x, "e4m3:tensor").scales.tolist() == [[0.0]] for _ in range(20))
