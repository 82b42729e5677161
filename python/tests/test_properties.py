"""Whatever memory a call is given: the result of the definition in float64, and not a byte written beside it. Shapes, strides,
dtypes, overlaps and encodings are drawn by hypothesis, in rounds with fixed seeds for FWHT_HYPOTHESIS_SECONDS: by default 60 where CI
is set, else 5, for all tests together."""

import os
import time

import numpy as np
import pytest

hypothesis = pytest.importorskip("hypothesis")

import fwht
from conftest import CUDA, UNIT_ROUNDOFF, hadamard, host_takes_f64, torch
from hypothesis import strategies as st


SECONDS = float(os.environ.get("FWHT_HYPOTHESIS_SECONDS", 60 if os.environ.get("CI") else 5))
KINDS = ["numpy"] + ["cpu"] * (torch is not None) + ["cuda"] * CUDA
SIZE = 8192  # elements of the memory that views are taken from


def for_a_while(share, **drawn):
    """Rounds of drawn examples until this test's share of the time is over; the seed of a failing round is in its notes."""

    def decorate(test):
        def repeat():
            end = time.monotonic() + share * SECONDS
            number = 0
            while number == 0 or time.monotonic() < end:
                one = hypothesis.settings(
                    max_examples=100, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
                )(hypothesis.seed(number)(hypothesis.given(**drawn)(test)))
                one()
                number += 1

        repeat.__name__, repeat.__doc__ = test.__name__, test.__doc__
        return repeat

    return decorate


class Memory:
    """SIZE elements, and what lies at each place of a strided view of them."""

    def __init__(self, kind, dtype, seed):
        self.kind, self.dtype = kind, dtype
        self.before = np.random.default_rng(seed).integers(-8, 8, SIZE).astype("float64")
        self.flat = np.empty(SIZE, dtype) if kind == "numpy" else torch.empty(SIZE, dtype=getattr(torch, dtype), device=kind)
        self.flat[:] = self.before if kind == "numpy" else torch.from_numpy(self.before)

    def now(self):
        return self.flat.astype("float64") if self.kind == "numpy" else self.flat.double().cpu().numpy()

    def view(self, layout):
        shape, strides, first = layout
        if self.kind != "numpy":
            return self.flat.as_strided(shape, strides, first)
        item = self.flat.itemsize
        return np.lib.stride_tricks.as_strided(self.flat[first:], shape, [item * stride for stride in strides])

    @staticmethod
    def places(layout):
        shape, strides, first = layout
        return first + sum(np.arange(size).reshape((-1,) + (1,) * i) * stride for i, (size, stride) in enumerate(zip(shape[::-1], strides[::-1])))


@st.composite
def layouts(draw, kind, shape):
    """Where a view of this shape may lie; most often rows at one distance."""
    strides = [0] * len(shape)
    distance = 1
    usual = draw(st.integers(0, 3)) > 0
    for i in reversed(range(len(shape))):
        gap = draw(st.sampled_from([0, 0, 0, 1, 3, 8])) if i < len(shape) - 1 and (not usual or i == len(shape) - 2) else 0
        strides[i] = distance + gap
        distance = strides[i] * max(shape[i], 1)
    if not usual:
        strides = draw(st.permutations(strides))
        for i in range(len(strides)):
            strides[i] *= draw(st.sampled_from([1, 1, 1, 2, 0] + [-1] * (kind == "numpy")))
    low = sum(min(0, stride * (size - 1)) for size, stride in zip(shape, strides) if size)
    high = sum(max(0, stride * (size - 1)) for size, stride in zip(shape, strides) if size)
    hypothesis.assume(high - low < SIZE - 64)
    return tuple(shape), tuple(strides), draw(st.integers(-low, min(-low + 64, SIZE - 1 - high)))


@st.composite
def calls(draw, least=1):
    kind = draw(st.sampled_from(KINDS))
    dtypes = ["float16", "float32"] + ["bfloat16"] * (kind != "numpy") + ["float64"] * (kind != "cuda" and host_takes_f64())
    integers = ["int32", "int64"] * (kind != "cuda")
    operator = draw(st.sampled_from(["", "", "", "12", "12x2", "signs", "d3x4"]))
    n = {"": 2 ** draw(st.integers(least.bit_length() - 1, 7) | st.integers(8, 10)), "signs": 32}.get(operator) or int(np.prod([int(f.strip("d")) for f in operator.split("x")]))
    shape = draw(st.lists(st.integers(0, 5), max_size=3 if n < 256 else 1).map(lambda sizes: [*sizes, n]))
    x = draw(layouts(kind, shape))
    out = draw(st.sampled_from(["new", "in place", "other memory", "same memory"]))
    target = x
    if out == "same memory" and draw(st.booleans()):  # the same strides, as two slices of one tensor have
        most = SIZE - 1 - max(Memory.places(x).max(initial=0), x[2])
        target = (*x[:2], x[2] + draw(st.integers(0, min(most, 2 * n))))
    elif out in ("other memory", "same memory"):
        target = draw(layouts(kind, shape))
    dtype = draw(st.sampled_from(dtypes + integers * (operator == "")))
    return kind, dtype, operator, x, out, target, 1 if dtype in integers else draw(st.sampled_from([None, 0.25, -1])), draw(st.integers(0, 99))


def rows_of(layout):
    """(first element of each row, n) where rows lie at one distance of at least n with their elements side by side; else None."""
    n = layout[0][-1]
    rows = Memory.places(layout).reshape(-1, n)
    steps = np.diff(rows[:, 0])
    fine = (np.diff(rows, axis=1) == 1).all() and (len(steps) == 0 or (steps == steps[0]).all() and steps[0] >= n)
    return (rows[:, 0], n) if fine else None


def interleave(x, target):
    a, b = rows_of(x), rows_of(target)
    if a is None or b is None or len(a[0]) < 2:
        return False
    distance = a[0][1] - a[0][0]
    return distance == b[0][1] - b[0][0] and a[1] <= (b[0][0] - a[0][0]) % distance <= distance - a[1]


DENSE = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]


def apply(operator, x, scale, dtype, **where):
    if not operator:
        return fwht.hadamard_transform(x, scale, **where)
    dense, signs = None, None
    if operator == "signs":
        operator, signs = "32", fwht.operators.random_signs(32, 5)
    if "d" in operator:
        dense = DENSE.astype(dtype) if isinstance(x, np.ndarray) else torch.from_numpy(DENSE).to(x)
    return fwht.operators.transform(x, operator, scale, dense=dense, signs=signs, **where)


def matrix_of(operator, n):
    if operator == "signs":
        return hadamard(32) * [fwht.operators.random_signs(32, 5)[i] for i in range(32)]
    matrix = np.ones((1, 1))
    for factor in (operator or str(n)).split("x"):
        order = int(factor.strip("d"))
        paley = fwht.operators.transform(np.eye(12, dtype="float32"), "12", 1.0).T  # test_operators judges it
        matrix = np.kron(matrix, DENSE if factor[0] == "d" else paley if order == 12 else hadamard(order))
    return matrix


def is_close(y, operator, data, scale, dtype, kind):
    """One rounding to the storage type, and float32 sums in any order (on a device perhaps pairs of bfloat16); dense factors are
    rounded to the storage type, too."""
    y = np.asarray(y if kind == "numpy" else y.double().cpu(), dtype="float64")
    n = data.shape[-1]
    matrix, scale = matrix_of(operator, n), n**-0.5 if scale is None else scale
    exact, sizes = scale * data @ matrix.T, abs(scale) * abs(data) @ abs(matrix).T
    if dtype.startswith("int"):
        return np.array_equal(y, exact)
    sums = 2.0**-53 if dtype == "float64" else 2.0**-16 if kind == "cuda" else 2.0**-24
    unit = UNIT_ROUNDOFF[dtype]
    bound = unit * (abs(exact) * (1 + 2.0**-7) + 1.01 * sizes * ("d" in operator)) + (n + 1) * sums * sizes + 2.0**-25 * (dtype == "float16")
    return y.shape == exact.shape and (abs(y - exact) <= bound).all()


@for_a_while(0.6, call=calls())
def test_transforms(call):
    kind, dtype, operator, x, out, target, scale, seed = call
    memory = Memory(kind, dtype, seed)
    other = Memory(kind, dtype, seed + 1) if out == "other memory" else memory
    given, places = memory.view(x), Memory.places(x)
    data = memory.before[places]
    n = x[0][-1]
    where = {} if out == "new" else {"inplace": True} if out == "in place" else {"out": other.view(target)}
    writes = out != "new"
    wrong_n = not operator and n < 2
    met, same, apart, spans_meet = False, False, True, False
    if out == "same memory" and data.size:
        to = Memory.places(target)
        same = np.array_equal(places, to)
        apart = not np.intersect1d(places, to).size
        spans_meet = places.min() <= to.max() and to.min() <= places.max()
        met = not apart and not same
    refused = wrong_n or (writes and data.size and (rows_of(target) is None or met))
    may_refuse = refused or (spans_meet and apart and not interleave(x, target))
    try:
        y = apply(operator, given, scale, dtype, **where)
    except ValueError as error:
        assert may_refuse, error
        assert np.array_equal(memory.now(), memory.before) and np.array_equal(other.now(), other.before)
        return
    assert not refused
    if writes:
        assert y is (given if out == "in place" else where["out"])
    else:
        assert type(y) is type(given) and y.dtype == given.dtype and (y.flags.c_contiguous if kind == "numpy" else y.is_contiguous())
        again = apply(operator, given, scale, dtype)  # by what the first call prepared
        assert np.array_equal(again, y) if kind == "numpy" else torch.equal(again, y)
    assert is_close(y, operator, data, scale, dtype, kind)
    for each, written in ((memory, out in ("in place", "same memory")), (other, out != "new")):
        beside = np.ones(SIZE, bool)
        if written:
            beside[Memory.places(target)] = False
        assert np.array_equal(each.now()[beside], each.before[beside])


@for_a_while(0.2, call=calls(), rows=st.integers(0, 6), in_place=st.booleans())
def test_plans(call, rows, in_place):
    """A plan takes arrays whose rows lie where it was told, and nothing else."""
    kind, dtype, _, x, _, target, scale, seed = call
    n = x[0][-1]
    hypothesis.assume(n >= 2 and n & (n - 1) == 0)
    memory, other = Memory(kind, dtype, seed), Memory(kind, dtype, seed + 1)
    known = rows_of(x)
    stride = int(known[0][1] - known[0][0]) if known and len(known[0]) > 1 else n
    plan = fwht.plan(n, rows, dtype, device=kind if kind == "cuda" else "cpu", row_stride=stride, scale=scale, inplace=in_place)
    fits = [place is not None and len(place[0]) == rows and (rows < 2 or place[0][1] - place[0][0] == stride)
            for place in (known, rows_of(target))]  # fmt: skip
    arguments = [memory.view(x)] if in_place else [memory.view(x), other.view(target)]
    data = memory.before[Memory.places(x)]
    try:
        y = plan.execute(*arguments)
    except ValueError as error:
        assert not all(fits[: len(arguments)]) or "aligned" in str(error), error
        assert np.array_equal(memory.now(), memory.before) and np.array_equal(other.now(), other.before)
        return
    assert rows == 0 or all(fits[: len(arguments)])
    assert is_close(y, "", data, scale, dtype, kind)
    for each, place in ((memory, x if in_place else None), (other, None if in_place else target)):
        beside = np.ones(SIZE, bool)
        if place is not None:
            beside[Memory.places(place)] = False
        assert np.array_equal(each.now()[beside], each.before[beside])


ENCODINGS = ["e4m3:row", "e4m3:tensor", "e4m3:32", "e4m3:32,ue8m0,mn,deepgemm", "e4m3:32,ue8m0,packed,deepgemm", "int8:row", "int8:16",
             "int4:row", "mxfp8", "mxfp8:128x4", "mxfp4", "nvfp4", "nvfp4:128x4", "e4m3:tensor,vllm_static", "int8:row,t64"]  # fmt: skip


@for_a_while(0.2, call=calls() | calls(32) | calls(32), encoding=st.sampled_from(ENCODINGS))
def test_codes(call, encoding):
    """Codes of any rows are those of the rows alone, side by side; sizes are refused, never divided by."""
    kind, dtype, operator, x, _, _, scale, seed = call
    hypothesis.assume("d" not in operator)
    memory = Memory(kind, dtype, seed)
    given, n = memory.view(x), x[0][-1]
    number = 3.0 if encoding.startswith("nvfp4") or "static" in encoding else None
    options = {"tensor_scale": number, "scale": scale}
    if operator:
        options["operator"] = "32" if operator == "signs" else operator
    try:
        codes, scales = fwht.hadamard_quantize(given, encoding, **options)
    except (ValueError, TypeError, NotImplementedError):
        fits = n >= 32 and n % 32 == 0 and "t64" not in encoding and dtype not in ("float64", "int32", "int64")
        assert not fits or kind == "cuda"
        return
    assert np.array_equal(memory.now(), memory.before)
    layout, data = fwht.quantize.layout_of(encoding, n), memory.before[Memory.places(x)]
    assert tuple(codes.shape) == (x[0] if layout.code_bits == 8 else (*x[0][:-1], n // 2) if n > 1 else (data.size // 2, 1))
    whole = Memory(kind, dtype, seed)  # the same rows, contiguous in memory of their own
    rows = whole.view((x[0], tuple(int(np.prod(x[0][i + 1 :])) for i in range(len(x[0]))), 0))
    rows[...] = data if kind == "numpy" else torch.from_numpy(data).to(rows)
    alone = fwht.hadamard_quantize(rows, encoding, **options)

    for one, other in zip((codes, scales), alone):
        same = np.array_equal(one, other) if kind == "numpy" or one is None else torch.equal(one.double(), other.double())
        assert (one is None) == (other is None) and (one is None or same)


@st.composite
def arrangements(draw):
    kind = draw(st.sampled_from([kind for kind in KINDS if kind != "cuda"]))
    shape = draw(st.lists(st.integers(0, 3).map(lambda k: 2**k) | st.integers(1, 5), min_size=1, max_size=4))
    axes = [i for i, size in enumerate(shape) if size >= 2 and size & (size - 1) == 0]
    hypothesis.assume(axes)
    axis = draw(st.sampled_from(axes) | st.permutations(axes).map(tuple) | st.sampled_from(axes).map(lambda i: i - len(shape)))
    orderings = draw(st.sampled_from(["natural", "natural", "dyadic", "sequency"])), draw(st.sampled_from(["natural", "dyadic", "sequency"]))
    return kind, draw(st.sampled_from(["float32", "float64", "int32", "int64"])), draw(layouts(kind, shape)), axis, orderings, draw(st.booleans())


def matrix_in(n, ordering):
    """H_n with its rows in the ordering, by sign changes or by reversed bits."""
    h = hadamard(n)
    if ordering == "natural":
        return h
    if ordering == "sequency":
        return h[np.argsort((np.diff(h, axis=1) != 0).sum(1))]
    return h[[int(f"{k:0{n.bit_length() - 1}b}"[::-1], 2) for k in range(n)]]


@for_a_while(0.3, call=arrangements(), seed=st.integers(0, 99))
def test_arrangements(call, seed):
    """Any axes of any view, in any order: the matrices of the orderings, one axis after another, and x as it was."""
    kind, dtype, layout, axis, (ordering, input_ordering), in_place = call
    memory = Memory(kind, dtype, seed)
    x, data = memory.view(layout), memory.before[Memory.places(layout)]
    expected = data
    for each in axis if isinstance(axis, tuple) else (axis,):
        n = data.shape[each]
        matrix = matrix_in(n, ordering) @ hadamard(n) @ matrix_in(n, input_ordering).T / n
        expected = np.moveaxis(np.moveaxis(expected, each, -1) @ matrix.T, -1, each)
    options = {"axis": axis, "ordering": ordering, "input_ordering": input_ordering}
    if in_place:
        copy = x.copy() if kind == "numpy" else x.clone(memory_format=torch.contiguous_format)
        if ordering != "natural" or input_ordering != "natural":
            with pytest.raises(ValueError, match="permutes a row"):
                fwht.hadamard_transform(copy, 1, inplace=True, **options)
            return
        y = fwht.hadamard_transform(np.ascontiguousarray(copy) if kind == "numpy" else copy, 1, inplace=True, **options)
    else:
        y = fwht.hadamard_transform(x, 1, **options)
    assert np.array_equal(np.asarray(y, dtype="float64"), np.rint(expected))
    assert np.array_equal(memory.now(), memory.before)
