"""Integers and float64 in every array library, and the module `walsh`, against NumPy in float64 and int64."""

import copy
import ctypes
import pickle
import warnings

import numpy as np
import pytest

import fwht
from conftest import CUDA, capture, hadamard, needs_torch, torch

walsh = fwht.walsh
KINDS = ["numpy", pytest.param("cpu", marks=needs_torch), pytest.param("cuda", marks=pytest.mark.skipif(not CUDA, reason="no CUDA device"))]
kinds = pytest.mark.parametrize("kind", KINDS)


def give(x, kind):
    """A NumPy array as an array of the library."""
    return x.copy() if kind == "numpy" else torch.from_numpy(x.copy()).to(kind)


def numpy_of(y):
    return y if isinstance(y, np.ndarray) else y.cpu().numpy()


def sums(x):
    """H x of integers, modulo 2^64, by the definition one index bit after another."""
    y, n = x.astype(np.int64), x.shape[-1]
    half = 1
    with np.errstate(over="ignore"):
        while half < n:
            pairs = y.reshape(*y.shape[:-1], n // (2 * half), 2, half)
            y = np.stack([pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]], -2).reshape(y.shape)
            half *= 2
    return y


def test_the_sums_of_these_tests_are_the_definition():
    x = np.random.default_rng(0).integers(-99, 99, (3, 64))
    assert np.array_equal(sums(x), x @ hadamard(64).astype(np.int64))


@kinds
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("where", ["new", "in place", "out", "rows apart"])
def test_integers_are_exact_and_wrap(kind, dtype, where):
    n, info = 64, np.iinfo(dtype)
    for low, high in ((-99, 99), (info.min, info.max)):
        data = np.random.default_rng(1).integers(low, high, (3, n + 8 * (where == "rows apart")), dtype)
        expected = sums(data[:, :n]).astype(dtype)
        x = give(data, kind)[:, :n]
        if where == "in place":
            y = fwht.hadamard_transform_(x, 1)
            assert y is x
        elif where == "out":
            y = give(np.zeros_like(data), kind)
            assert fwht.hadamard_transform(x, 1, out=y) is y
        else:
            y = fwht.hadamard_transform(x, 1)
        assert np.array_equal(numpy_of(y), expected) and numpy_of(y).dtype == dtype
        if where != "in place":
            assert np.array_equal(numpy_of(x), data[:, :n])


@kinds
def test_float64(kind):
    n = 64
    x = np.random.default_rng(2).standard_normal((2, n))
    expected, half = x.astype(np.longdouble), 1
    while half < n:
        pairs = expected.reshape(2, n // (2 * half), 2, half)
        expected = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], 2).reshape(2, n)
        half *= 2
    y = numpy_of(fwht.hadamard_transform(give(x, kind)))
    bound = (np.log2(n) + 2) * 2.0**-53 * np.abs(x).sum(-1, keepdims=True) * n**-0.5
    assert y.dtype == np.float64 and (np.abs(y - expected * n**-0.5) <= bound).all()


@kinds
def test_gradients_of_float64(kind):
    if kind == "numpy":
        pytest.skip("NumPy has no gradients")
    x, g = (torch.randn(2, 64, dtype=torch.float64, device=kind) for _ in range(2))
    y = fwht.hadamard_transform(x.requires_grad_(), 0.5)
    y.backward(g)
    assert torch.equal(x.grad, fwht.hadamard_transform(g, 0.5))


@kinds
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_checked_transform(kind, dtype):
    n, info = 64, np.iinfo(dtype)
    x = np.zeros((2, n), dtype)
    x[1] = info.max // n  # every sum fits, by the bound
    assert np.array_equal(numpy_of(walsh.checked_transform(give(x, kind))), sums(x))
    x[0, 0], x[1] = info.min, 0  # beyond the bound, and each sum is the smallest number or zero
    assert np.array_equal(numpy_of(walsh.checked_transform(give(x, kind))), sums(x).astype(dtype))
    x[0, 1] = -1  # half of them are one less
    with pytest.raises(OverflowError, match=f"{n // 2} of {2 * n} sums do not fit {dtype}, max .x. is {-info.min} and n={n}"):
        walsh.checked_transform(give(x, kind))
    x[0] = 0
    x[1, :4] = info.max, info.max, -info.max, -info.max  # one sum in four does not fit
    assert sum(not info.min <= sum(int(a) * int(h) for a, h in zip(x[1, :4], row)) <= info.max for row in hadamard(4)) == 1
    with pytest.raises(OverflowError, match=f"{n // 4} of {2 * n} sums"):
        walsh.checked_transform(give(x, kind))
    least = info.max // n + 1  # n times this is one too many, which in the second int64 row only a carry shows
    for row in ([least] * n, [least + n - 1] + [least - 1] * (n - 1)):
        with pytest.raises(OverflowError, match=f"^fwht: 1 of {n} sums"):
            walsh.checked_transform(give(np.array(row, dtype), kind))



# --- orderings, axes -------------------------------------------------------------------------------------------------


def ordered(n, ordering):
    """The matrix with its rows in the ordering, each defined by itself: Walsh's by sign changes, Paley's by Rademacher functions."""
    h = hadamard(n)
    if ordering == "natural":
        return h
    if ordering == "sequency":
        return h[np.argsort((np.diff(h, axis=1) != 0).sum(1))]
    bits = n.bit_length() - 1
    rademacher = [(-1.0) ** (np.arange(n) >> (bits - 1 - i) & 1) for i in range(bits)]
    return np.array([np.prod([rademacher[i] for i in range(bits) if k >> i & 1], axis=0) * np.ones(n) for k in range(n)])


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("input_ordering", ["natural", "dyadic", "sequency"])
@pytest.mark.parametrize("ordering", ["natural", "dyadic", "sequency"])
def test_orderings(kind, dtype, ordering, input_ordering):
    for n in (2, 8, 64):
        data = np.random.default_rng(n).integers(-9, 9, (3, n)).astype(dtype)
        expected = data @ ordered(n, input_ordering) @ np.linalg.inv(hadamard(n)) @ ordered(n, ordering).T
        # H P_in^T x: the matrix of the input's ordering, transposed, is H with its columns permuted.
        y = fwht.hadamard_transform(give(data, kind), 1, ordering=ordering, input_ordering=input_ordering)
        assert np.array_equal(numpy_of(y), np.rint(expected).astype(dtype)) and numpy_of(y).dtype == dtype
        if dtype == "float64":
            back = fwht.hadamard_transform(y, 1 / n, ordering=input_ordering, input_ordering=ordering)
            assert np.allclose(numpy_of(back), data, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("axis", [0, 1, -2, 2, (0, 1), (2, 0), (0, 1, 2), [1]])
@pytest.mark.parametrize("where", ["new", "in place", "out", "strided"])
def test_axes(kind, axis, where):
    data = np.random.default_rng(3).integers(-9, 9, (4, 8, 16)).astype("float64")
    expected = data
    for each in axis if isinstance(axis, (tuple, list)) else (axis,):
        expected = np.moveaxis(np.moveaxis(expected, each, -1) @ hadamard(data.shape[each]), -1, each)
    x = give(data, kind)
    if where == "in place":
        y = fwht.hadamard_transform_(x, 1, axis=axis)
        assert y is x
    elif where == "out":
        y = x * 0
        assert fwht.hadamard_transform(x, 1, axis=axis, out=y) is y
    else:
        if where == "strided":
            x = np.asfortranarray(data) if kind == "numpy" else give(np.ascontiguousarray(data.T), kind).permute(2, 1, 0)
        y = fwht.hadamard_transform(x, 1, axis=axis)
    assert np.array_equal(numpy_of(y), expected)
    if where != "in place":
        assert np.array_equal(numpy_of(x), data)
        halved = fwht.hadamard_transform(give(data, kind), 0.5, axis=axis)
        assert np.array_equal(numpy_of(halved), expected / 2)


def test_two_axes_in_sequency_and_back():
    x = np.random.default_rng(4).standard_normal((2, 8, 16))
    y = fwht.hadamard_transform(x, axis=(1, 2), ordering="sequency")
    assert np.allclose(y, np.einsum("ai,bj,nij->nab", ordered(8, "sequency"), ordered(16, "sequency"), x) / 128**0.5)
    assert np.allclose(fwht.hadamard_transform(y, axis=(1, 2), input_ordering="sequency"), x)


@kinds
@pytest.mark.parametrize("scale", [2.0**-9, 2.0**-18, 0.001, 1.0, -3.0, 0.0])
def test_a_scale_of_several_axes_leaves_no_sums_between_them_out_of_range(kind, scale):
    """The first axis alone has sums of 512 times an element, which float16 may not hold where it holds the result."""
    signs, ones = np.random.default_rng(5).choice([-1.0, 1.0], 512), np.ones((512, 512))
    for x in (ones, ones * signs, ones * signs[:, None], np.eye(512)):
        peak = np.abs(scale * (hadamard(512) @ x @ hadamard(512))).max()
        x = (x * min(32000, 60000 / max(peak, 1))).astype("float16")
        y = numpy_of(fwht.hadamard_transform(give(x, kind), scale, axis=(-2, -1)))
        expected = scale * (hadamard(512) @ x.astype("float64") @ hadamard(512))
        assert np.abs(y - expected).max() <= 2.0**-10 * np.abs(expected).max()


@pytest.mark.parametrize("scale", [1.0, 0.3, -(2.0**-12), 7.0])
def test_the_axes_of_a_scale_round_as_little_as_one_does(scale):
    x = np.random.default_rng(6).integers(-4, 5, (8, 32, 2)).astype("float32")
    bare = fwht.hadamard_transform(x, 1.0, axis=(0, 1, 2))
    assert np.array_equal(fwht.hadamard_transform(x, scale, axis=(0, 1, 2)), (bare.astype("float64") * np.float32(scale)).astype("float32"))
    assert np.array_equal(fwht.hadamard_transform(x.astype("int32"), 1, axis=(0, 1, 2)), bare)


@needs_torch
def test_gradients_and_graphs_of_a_scale_over_several_axes():
    both = lambda t, scale=2.0**-9: fwht.hadamard_transform(t, scale, axis=(-2, -1))
    x = torch.randn(2, 4, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: both(t, 0.3), (x,), check_forward_ad=True)
    y = torch.zeros(512, 512, dtype=torch.float16, requires_grad=True)
    grad = (180 * (1 - 2 * torch.randint(2, (512,), generator=torch.Generator().manual_seed(1)))).half().expand(512, 512)
    both(y).backward(grad)
    assert torch.equal(y.grad, both(grad)) and y.grad.isfinite().all()
    for scale in (0.3, 2.0):
        assert torch.equal(torch.compile(both, fullgraph=True, backend="eager")(x, scale), both(x, scale))
    with warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)
        assert torch.equal(torch.jit.trace(both, (x.detach(),))(x.detach()), both(x.detach()))


@needs_torch
def test_a_length_of_several_axes_may_stay_a_symbol():
    both = lambda t: fwht.hadamard_transform(t, 2.0**-9, axis=(-2, -1))
    xs = [torch.randn(3, n, 8, dtype=torch.float64) for n in (4, 16, 32, 64)]
    expected = [both(x) for x in xs]
    graphs = 0

    def count(graph, _):
        nonlocal graphs
        graphs += 1
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(both, fullgraph=True, dynamic=True, backend=count)
    assert all(torch.equal(compiled(x), y) for x, y in zip(xs, expected, strict=True)) and graphs == 1

    class Both(torch.nn.Module):
        def forward(self, t):
            return both(t)

    for strict in (False, True):
        program = torch.export.export(Both(), (xs[1],), dynamic_shapes={"t": {1: torch.export.Dim("n", min=2, max=64)}}, strict=strict)
        assert torch.equal(program.module()(xs[2]), expected[2])


def test_supports_of_arrangements():
    ask = lambda **options: fwht.supports(64, "float32", device="cpu", **{"rows": 6, "inplace": False, **options})
    assert ask(ordering="sequency", input_ordering="dyadic", inner=3) and ask(inner=3, inplace=True)
    assert "permutes a row" in ask(ordering="sequency", inplace=True).why_not
    assert "inner=4 must divide rows=6" in ask(inner=4).why_not
    assert [ask(inner=inner).why_not for inner in (0, -3)] == ["inner=0 must be at least 1", "inner=-3 must be at least 1"]
    assert "ordering='walsh'" in ask(ordering="walsh").why_not
    for n in (64, 65536):
        assert bool(fwht.supports(n, "float32", device=0, ordering="dyadic", inplace=False)) == CUDA
    assert bool(fwht.supports(65536, "float16", device=0, ordering="dyadic", inplace=False)) == CUDA
    assert not fwht.supports(32768, "float16", device=0, ordering="dyadic", inplace=False)


@needs_torch
def test_complex_numbers():
    z = torch.randn(3, 8, dtype=torch.complex128)
    y = torch.view_as_complex(fwht.hadamard_transform(torch.view_as_real(z), 1, axis=-2))
    assert torch.allclose(y, z @ torch.from_numpy(hadamard(8)).to(z))


@needs_torch
def test_arrangements_in_pytorch():
    ops = __import__("fwht._torch.ops", fromlist=["ops"])
    x = torch.randn(2, 8, 4, dtype=torch.float64)
    for ordering in ("natural", "dyadic", "sequency"):
        for input_ordering in ("natural", "dyadic", "sequency"):
            f = lambda t: fwht.hadamard_transform(t, 0.5, axis=1, ordering=ordering, input_ordering=input_ordering)
            assert torch.autograd.gradcheck(f, (x.clone().requires_grad_(),))
            assert torch.autograd.gradgradcheck(f, (x.clone().requires_grad_(),))
            codes = fwht._c.ORDERINGS.index(input_ordering), fwht._c.ORDERINGS.index(ordering)
            assert torch.allclose(ops.by_copies(x, 0.5, -2, codes, None), f(x))  # what CUDA tensors get
            assert torch.equal(torch.func.vmap(f)(x[:, None]), f(x[:, None].flatten(0, 1)).view(2, 1, 8, 4))
    both = lambda t: fwht.hadamard_transform(t, axis=(1, 2), ordering="sequency")
    assert torch.autograd.gradcheck(both, (x.clone().requires_grad_(),))
    for backend in ("eager", "aot_eager"):
        assert torch.equal(torch.compile(both, fullgraph=True, backend=backend)(x), both(x))
    torch.library.opcheck(torch.ops.fwht.hadamard_arranged.default, (x.clone().requires_grad_(), 0.5, -2, "sequency", "natural"))
    op = torch.ops.fwht.hadamard_arranged
    assert torch.equal(op(x, 0.5, 0, "sequency"), op(x, 0.5, -3, "sequency")) and torch.equal(op(x, None, 2), op(x))
    assert torch.equal(torch.func.vmap(lambda t: op(t, 0.5, 0))(x), op(x, 0.5, 1))
    for axis in (3, -4):
        with pytest.raises(ValueError, match=f"axis={axis} must be between -3 and 2"):
            op(x, 0.5, axis)
    one = lambda t: fwht.hadamard_transform(t, 0.5, axis=1, ordering="sequency", input_ordering="dyadic")
    tangent = torch.randn_like(x)
    assert torch.equal(torch.func.jvp(one, (x,), (tangent,))[1], one(tangent))
    weights = torch.randn_like(x)
    grad = torch.func.grad(lambda t: (one(t) * weights).sum())(x)
    assert torch.allclose(grad, fwht.hadamard_transform(weights, 0.5, axis=1, ordering="dyadic", input_ordering="sequency"))
    assert torch.autograd.gradcheck(one, (x.clone().requires_grad_(),), check_forward_ad=True)
    y = x.clone().requires_grad_()
    fwht.hadamard_transform_(y * 1, axis=1).sum().backward()
    assert torch.allclose(y.grad, fwht.hadamard_transform(torch.ones_like(x), axis=1))
    assert both(torch.empty(2, 8, 4, device="meta")).shape == (2, 8, 4)
    memory = torch.cat([x, x])
    fwht.hadamard_transform(memory[:2], axis=1, out=memory[1:3])
    assert torch.equal(memory[1:3], fwht.hadamard_transform(x, axis=1))


# --- Boolean functions -----------------------------------------------------------------------------------------------


def functions(k, count=3, seed=0):
    return np.random.default_rng(seed).integers(0, 2, (count, 2**k), "uint8")


def of_form(bits, form):
    return {"packed": lambda: np.packbits(bits, axis=-1, bitorder="little"), "bits": lambda: bits, "signs": lambda: (1 - 2 * bits.astype("int8"))}[form]()


@kinds
@pytest.mark.parametrize("form", ["packed", "bits", "signs"])
def test_spectra_of_every_form(kind, form):
    for k in (5, 16) if kind != "cuda" else (3, 5, 8, 10, 14, 15, 16, 21):
        check_spectra(kind, form, k)


def check_spectra(kind, form, k):
    bits = functions(k)
    for f in [of_form(bits, form)] + [bits.astype(dtype) for dtype in ("bool", "int8") if form == "bits"]:
        w = walsh.spectrum(give(f, kind), form)
        assert numpy_of(w).dtype == np.int32 and np.array_equal(numpy_of(w), sums(1 - 2 * bits.astype("int64")))
        assert np.array_equal(numpy_of(walsh.spectrum(give(f[1], kind), form)), numpy_of(w)[1])
    assert walsh.spectrum(give(f[:0], kind), form).shape == (0, 2**k)
    bytes_behind = give(np.concatenate([f[0][:1], f[0]]), kind)[1:]  # at an odd address
    assert np.array_equal(numpy_of(walsh.spectrum(bytes_behind, form)), numpy_of(w)[0])


@kinds
@pytest.mark.parametrize("form", ["packed", "bits", "signs"])
def test_summaries(kind, form):
    for k in (5, 12, 16) if kind != "cuda" else (3, 6, 9, 10, 13, 15, 18, 24):
        bits = functions(k, 6 if k < 20 else 1, seed=k).reshape(2 if k < 20 else 1, -1, 2**k)
        w = sums(1 - 2 * bits.astype("int64"))
        size, place = np.abs(w).max(-1), np.abs(w).argmax(-1)
        found = walsh.summaries(give(of_form(bits, form), kind), form)
        for got, want in zip(found, (size, place, 2 ** (k - 1) - size // 2, np.full_like(size, 4**k))):
            assert np.array_equal(numpy_of(got), want) and numpy_of(got).dtype == np.int64
        assert int(walsh.summaries(give(of_form(bits[0, 0], form), kind), form).largest) == size[0, 0]
        assert walsh.summaries(give(of_form(bits[:0], form), kind), form).place.shape == (0, *bits.shape[1:-1])
    if form != "packed":
        bad = of_form(bits, form).copy()
        bad[0, 0, 7] = 2
        with pytest.raises(ValueError, match=f"element 7 is 2, but the form {form} has"):
            walsh.summaries(give(bad, kind), form)


@kinds
def test_largest_of(kind):
    for k in (8, 12, 16) if kind != "cuda" else (8, 10, 13, 14, 15, 16, 18, 20, 22):
        bits, x = functions(k, 1, seed=k)[0], np.arange(2**k)
        half = k // 2
        product = x >> half & x & (1 << half) - 1
        for shift in (16, 8, 4, 2, 1):
            product ^= product >> shift
        flat = (product & 1).astype("uint8")  # bent, or for an odd k zeros and one size
        for f in (bits, flat, bits * (x < 64)):
            w = sums(1 - 2 * f.astype("int64"))
            order = np.argsort(-np.abs(w), kind="stable")
            for count in (1, 20, 256):
                places, values = walsh.largest_of(give(of_form(f, "packed"), kind), "packed", count)
                assert np.array_equal(numpy_of(places), order[:count]) and np.array_equal(numpy_of(values), w[order[:count]])
                assert numpy_of(values).dtype == np.int32 and numpy_of(places).dtype == np.int64
    for bad in (0, 2**k + 1) if kind != "cuda" else (0, 257, 2**k + 1):
        with pytest.raises(ValueError, match=f"count={bad} must be between 1 and"):
            walsh.largest_of(give(of_form(f, "packed"), kind), "packed", bad)


def test_strided_functions():
    bits = functions(5, 6)
    expected = sums(1 - 2 * bits[::2].astype("int64"))
    assert np.array_equal(walsh.spectrum(bits[::2], "bits"), expected)
    assert np.array_equal(walsh.spectrum(np.asfortranarray(bits[::2]), "bits"), expected)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_strided_spectra(kind):
    w = sums(1 - 2 * functions(20, 1)[0].astype("int64")).astype("int32")
    apart = give(np.repeat(w, 2), kind)[::2]  # so large that its copy's memory goes back to the system
    assert walsh.summary(apart) == walsh.summary(give(w, kind))
    for found, expected in zip(walsh.largest(apart, 9), walsh.largest(give(w, kind), 9)):
        assert np.array_equal(numpy_of(found), numpy_of(expected))


@pytest.mark.parametrize("kind", KINDS[:2])
def test_summary_and_largest(kind):
    bits = functions(10, 1)[0]
    w = sums(1 - 2 * bits.astype("int64")).astype("int32")
    order = np.lexsort((np.arange(1024), -np.abs(w)))[:20]
    size = int(np.abs(w).max())
    expected = walsh.Summary(size, int(np.argmax(np.abs(w))), 512 - size // 2, 4**10)
    assert walsh.summary(give(w, kind)) == expected
    places, values = walsh.largest(give(w, kind), 20)
    assert np.array_equal(numpy_of(places), order) and np.array_equal(numpy_of(values), w[order])
    if kind == "cpu":  # what CUDA tensors get
        assert walsh._summary_by_torch(give(w, kind), 10) == expected
        places, values = walsh._largest_by_torch(give(w, kind), 20)
        assert np.array_equal(numpy_of(places), order) and np.array_equal(numpy_of(values), w[order])
        for x in np.array([[5, -(2**31)], [-(2**31)] * 2], "int32"):  # no int32 is of that size
            assert walsh._summary_by_torch(give(x, kind), 1) == walsh.summary(x)
            assert all(np.array_equal(numpy_of(ours), host) for ours, host in zip(walsh._largest_by_torch(give(x, kind), 2), walsh.largest(x, 2)))
        for form in walsh.FORMS:
            assert np.array_equal(numpy_of(walsh._checked_signs(give(of_form(bits, form), kind), form)), 1 - 2 * bits.astype("int32"))
        for form, bad in (("bits", -1), ("bits", 2), ("signs", 0), ("signs", -128)):
            f = of_form(bits, form).astype("int8")
            f[7] = bad
            for call in (walsh._checked_signs, walsh.spectrum):
                with pytest.raises(ValueError, match=f"element 7 is {bad % 256 if call is walsh.spectrum and form == 'bits' else bad}, but the form {form} has"):
                    call(give(f, kind), form)


def test_nonlinearity_is_the_distance_to_the_affine_functions():
    bits = functions(4, 1)[0]
    affine = [(c + np.array([(a & x).bit_count() for x in range(16)])) % 2 for a in range(16) for c in (0, 1)]
    assert walsh.summary(walsh.spectrum(bits, "bits")).nonlinearity == min(int((bits != g).sum()) for g in affine)


# --- convolutions, rounds, sketches ----------------------------------------------------------------------------------


def xor_sums(a, b):
    n = a.shape[-1]
    return np.stack([(a * b[..., np.arange(n) ^ i]).sum(-1) for i in range(n)], -1)


@kinds
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_dyadic_convolution(kind, dtype):
    a, b = (np.random.default_rng(seed).integers(-99, 99, (2, 3, 32)).astype(dtype) for seed in (1, 2))
    c = numpy_of(walsh.dyadic_convolution(give(a, kind), give(b, kind)))
    r = numpy_of(walsh.autocorrelation(give(a, kind)))
    assert c.dtype == dtype
    for found, expected in ((c, xor_sums(a.astype("int64"), b.astype("int64"))), (r, xor_sums(a.astype("int64"), a.astype("int64")))):
        if dtype == "float32":  # three transforms of five levels and a product, whose sums are at most 32 |a| |b|
            assert (np.abs(found - expected) <= 20 * 2.0**-24 * 32 * 99 * 99).all()
        else:
            assert np.array_equal(found, expected)


@pytest.mark.skipif(not CUDA, reason="no CUDA device")
def test_convolutions_on_a_device():
    """Of one pass, of three and of five, beside the composition, as views, in graphs, and their gradients."""
    for n, rows in ((1024, 5), (2**14, 3), (2**16, 40), (2**20, 2), (2**25, 1)):
        a, b = (torch.randint(-3, 3, (rows, n), device="cuda") for _ in range(2))
        for x, y in ((a, b), (a, a)):
            assert torch.equal(walsh.dyadic_convolution(x, y), walsh.dyadic_convolution(x, y, variant="passes"))
    a, b = a[..., : 2**20], b[..., 1 : 2**20 + 1]  # the second one at an odd address
    assert torch.equal(walsh.dyadic_convolution(a, b), walsh.dyadic_convolution(a, b, variant="passes"))
    a, b = a.to(torch.float64), b.to(torch.float64)
    graph = torch.cuda.CUDAGraph()
    with capture(graph):
        c = walsh.dyadic_convolution(a, b)
    c.zero_()
    graph.replay()
    assert torch.equal(c, walsh.dyadic_convolution(a, b, variant="passes"))  # exact: all sums are integers below 2^53
    x, y = (torch.randn(2, 8, dtype=torch.float64, device="cuda", requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(walsh.dyadic_convolution, (x, y)) and torch.autograd.gradgradcheck(walsh.dyadic_convolution, (x, y))
    assert torch.autograd.gradcheck(walsh.autocorrelation, (x,))


@pytest.mark.parametrize(
    ("a", "b", "dtype", "bits"),
    [
        ([2**10] * 64, [2**10] * 64, "int32", 31),
        ([2**26] * 64, [2**26] * 64, "int64", 63),
        ([8, 3], [117670337, 44126376], "int32", 31),  # a sum of 2^31, where rounded lengths give a little less
    ],
)
def test_convolutions_of_integers_that_may_wrap(a, b, dtype, bits):
    with pytest.raises(OverflowError, match=f"must be below 2.{bits}"):
        walsh.dyadic_convolution(np.array([a], dtype), np.array([b], dtype))


def test_convolutions_of_integers_that_fit():
    a = np.full(64, 2**26)
    assert np.array_equal(walsh.autocorrelation(a // 2**10), np.full(64, 64 * 2**32))
    a = np.array([[33000, 0], [1, 0]], "int32")  # row by row; the longest rows of both would not fit
    assert np.array_equal(walsh.dyadic_convolution(a, a[::-1].copy()), [[33000, 0]] * 2)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_convolutions_at_the_ends_of_the_range(kind):
    """Products of spectra are up to n times as large as the result, and a small spectrum over n loses bits."""
    one, small, large = np.eye(1, 4096, dtype="float32")[0], np.float32(1e-37), np.float32(1e37)
    for a, b, expected, error in (
        (one * 1e19, one * 1e19, one * 1e38, 1e-6),
        (np.full_like(one, 1e16), np.full_like(one, 1e16), 4.096e35, 1e-6),
        (one * small, one * large, one * (small * large), 0),
        (one * large, one * small, one * (small * large), 0),
    ):
        c = walsh.dyadic_convolution(give(a, kind), give(b, kind))
        assert np.allclose(numpy_of(c), expected, rtol=error, atol=0)


def test_autocorrelation_of_a_bent_function():
    bits = np.array([(x >> 3 & x & 7).bit_count() & 1 for x in range(64)])
    assert np.array_equal(walsh.autocorrelation(1 - 2 * bits), 64 * (np.arange(64) == 0))


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("n", [64, 96, 100])
def test_rounds(n, kind):
    x = np.random.default_rng(6).standard_normal((3, n))
    signs = [fwht.operators.random_signs(n, seed) for seed in range(3)]
    matrix = fwht.operators.transform(np.eye(n)).T
    expected = x
    for each in signs:
        expected = (expected * [each[i] for i in range(n)]) @ matrix.T
    y = walsh.rounds(give(x, kind), signs)
    assert np.allclose(numpy_of(y), expected, rtol=0, atol=1e-13)
    assert np.allclose(numpy_of(walsh.rounds(y, signs, transpose=True)), x, rtol=0, atol=1e-13)


def codes_of(y, bits):
    """Codes and scales of rows, by their definition in float32."""
    size, n = np.abs(y), y.shape[-1]
    if bits == 1:
        return np.packbits(y < 0, axis=-1, bitorder="little"), size.astype(np.float64).mean(-1)
    largest = size.max(-1)
    limit = np.float32(127 if bits == 8 else 7)
    factor = np.divide(limit, largest, out=np.zeros_like(largest), where=largest > 0)
    codes = np.rint(y * factor[..., None]).astype(np.int8)
    return (codes if bits == 8 else (codes[..., ::2] & 15 | codes[..., 1::2] << 4).astype(np.uint8).reshape(*y.shape[:-1], n // 2)), largest / limit


@kinds
@pytest.mark.parametrize("bits", [1, 4, 8])
@pytest.mark.parametrize("n", [64, 768])
def test_codes_of_rounds(n, bits, kind):
    x = np.random.default_rng(7).standard_normal((2, 5, n)).astype("float32")
    x[0, 1] = 0
    signs = [fwht.operators.random_signs(n, seed) for seed in range(3)]
    codes, scales = walsh.rounds_to_codes(give(x, kind), signs, bits)
    expected = codes_of(numpy_of(walsh.rounds(give(x, kind), signs)), bits)
    assert np.array_equal(numpy_of(codes), expected[0]) and numpy_of(codes).dtype == expected[0].dtype
    assert np.allclose(numpy_of(scales), expected[1], rtol=1e-4 if bits == 1 else 0, atol=0) and numpy_of(scales).shape == (2, 5)


def test_rounds_refuse_what_does_not_fit():
    x, signs = np.ones((2, 64), "float32"), fwht.operators.random_signs(64, 1)
    for call, sentence in (
        (lambda: walsh.rounds(x, []), "at least one element"),
        (lambda: walsh.rounds(x, [fwht.operators.random_signs(32, 1)]), "32 signs do not fit n=64"),
        (lambda: walsh.rounds(x[:, :1], [signs]), "n=1 must be at least 2"),
        (lambda: walsh.rounds_to_codes(x, [signs], 2), "bits=2 must be 1, 4 or 8"),
        (lambda: walsh.rounds_to_codes(np.ones((1, 20), "float32"), [fwht.operators.random_signs(20, 1)], 1), "n=20 must be a multiple of 8"),
    ):
        with pytest.raises(ValueError, match=sentence):
            call()
    with pytest.raises(TypeError, match="float64 must be float32 for codes"):
        walsh.rounds_to_codes(x.astype("float64"), [signs], 8)
    with pytest.raises(TypeError, match="signs has a str"):
        walsh.rounds(x, ["signs"])


@pytest.mark.skipif(not CUDA, reason="no CUDA device")
def test_rounds_on_a_device():
    for n in (64, 768, 1024, 2304):
        signs = [fwht.operators.random_signs(n, seed) for seed in range(3)]
        x = torch.randn(7, 3, n, device="cuda")
        for transpose in (False, True):
            y = walsh.rounds(x, signs, transpose=transpose)
            for dtype, unit in ((torch.float32, 1e-5), (torch.float16, 2**-11), (torch.bfloat16, 2**-8)):
                rows = x.detach().to(dtype)
                exact = walsh.rounds(rows.cpu().double(), signs, transpose=transpose)
                assert (walsh.rounds(rows, signs, transpose=transpose).cpu() - exact).norm() < unit * exact.norm()
            x.requires_grad_()
            weight = torch.randn_like(y)
            (gradient,) = torch.autograd.grad(walsh.rounds(x, signs, transpose=transpose), x, weight)
            assert torch.equal(gradient, walsh.rounds(weight, signs, transpose=not transpose))
            x = x.detach()
        odd = torch.randn(5 * n + 1, device="cuda")[1:].view(5, n)  # at no multiple of 16 bytes
        assert torch.equal(walsh.rounds(odd, signs), walsh.rounds(odd.clone(), signs))
        graph = torch.cuda.CUDAGraph()
        with capture(graph):
            y = walsh.rounds(x, signs)
            codes = walsh.rounds_to_codes(x, signs, 8)
        x.copy_(torch.randn_like(x))
        graph.replay()
        assert torch.equal(y, walsh.rounds(x, signs)) and torch.equal(codes[0], walsh.rounds_to_codes(x, signs, 8)[0])
        assert walsh.rounds(x[:0], signs).shape == (0, 3, n)
    many = walsh.rounds(torch.ones(2, 64, device="cuda"), [fwht.operators.random_signs(64, 1)] * 9)
    assert torch.allclose(many.square().sum(-1), torch.full((2,), 64.0, device="cuda"))  # more rounds than the kernel has


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize(("length", "n"), [(1, 2), (2, 2), (50, 64), (64, 64), (65, 128)])
def test_sketch(kind, length, n):
    rows = min(20, max(2, length))
    sketch = walsh.Sketch(length, rows, 2**40 + 5)
    assert sketch.padded == n
    assert sketch.signs == fwht.operators.random_signs(n, 2**40 + 5)
    kept = np.frombuffer(sketch._kept, np.int64).tolist()
    assert kept == sorted(set(kept)) and 0 <= kept[0] and kept[-1] < n and len(kept) == rows
    matrix = (hadamard(n)[kept] * [sketch.signs[i] for i in range(n)])[:, :length] / rows**0.5
    x, y = (np.random.default_rng(seed).standard_normal((2, 3, size)) for seed, size in ((1, length), (2, rows)))
    assert np.allclose(numpy_of(sketch(give(x, kind))), x @ matrix.T, rtol=0, atol=1e-13)
    assert np.allclose(numpy_of(sketch.transpose(give(y, kind))), y @ matrix, rtol=0, atol=1e-13)
    assert numpy_of(sketch(give(x.astype("float32"), kind))).dtype == np.float32


def test_the_table_of_a_sketch():
    """Masks of the chosen rows, how many are before each word, and the signs."""
    sketch = walsh.Sketch(100, 40, 7)
    words = (ctypes.c_uint32 * 12)()
    assert fwht._c.library.fwht_sketch_table(100, 40, 7, words) == 0
    kept = [j for j in range(128) if words[j // 32 * 2] >> j % 32 & 1]
    assert kept == np.frombuffer(sketch._kept, np.int64).tolist()
    assert [words[2 * i + 1] for i in range(4)] == [sum(j < 32 * i for j in kept) for i in range(4)]
    assert bytes(words)[32:] == sketch.signs.packed
    assert fwht._c.library.fwht_sketch_table(100, 129, 7, words) != 0


def test_sketches_on_a_device_refuse_before_they_launch():
    """Requests that need no device to be refused."""

    def said(dtype=2, length=100, rows=40, vectors=1, table=None):
        status = fwht._c.library.fwht_sketch_on(dtype, length, rows, 0, vectors, table, None, None, None, 0, 0, None)
        with pytest.raises((ValueError, TypeError)) as refusal:
            fwht._c.fail(status)
        return str(refusal.value)

    assert "length=0 must be between 1 and" in said(length=0)
    assert "rows=129 must be between 1 and 128" in said(rows=129)
    assert "must be f32 or f64 for sketches" in said(dtype=0)
    assert "table is a null pointer" in said()


@needs_torch
def test_a_sketch_inside_the_passes_and_its_transpose_derive_each_other(monkeypatch):
    """The calls of the device path with the composition in place of its kernels."""
    from fwht._torch import sketches

    calls = []

    def run(x, sketch, transposed):
        calls.append(transposed)
        return (sketch.transpose if transposed else sketch)(x, variant="cpu")

    monkeypatch.setattr(sketches, "run", run)
    monkeypatch.setattr(walsh.Sketch, "_in_passes", lambda self, x, variant: variant is None)
    sketch = walsh.Sketch(7, 3, 1)
    for call, size, forward in ((sketch, 7, False), (sketch.transpose, 3, True)):
        x = torch.randn(2, size, dtype=torch.float64, requires_grad=True)
        calls.clear()
        call(x).sum().backward()
        assert calls == [forward, not forward]
        assert torch.autograd.gradcheck(call, (x,)) and torch.autograd.gradgradcheck(call, (x,))


@needs_torch
def test_a_sketch_inside_the_passes_hands_on_what_c_wants(monkeypatch):
    """Sizes, pointers and workspace, with Python functions in place of C's."""
    from fwht._torch import sketches

    asked = []

    class Library:
        fwht_sketch_table = staticmethod(fwht._c.library.fwht_sketch_table)

        @staticmethod
        def fwht_sketch_workspace(code, length, rows, vectors, device, needed):
            needed.value = 64
            asked.append((code, length, rows, vectors))
            return 0

        @staticmethod
        def fwht_sketch_on(code, length, rows, transposed, vectors, table, x, out, workspace, size, device, stream):
            assert all((table, x, out, workspace)) and size == 64 and (code, length, rows, vectors) == asked[-1]
            asked.append(transposed)
            return 0

    sketch = walsh.Sketch(7, 3, 1)
    monkeypatch.setattr(sketches._c, "library", Library)
    monkeypatch.setattr(sketches, "raw_stream", lambda device: 0)
    assert sketches.run(torch.zeros(2, 5, 7), sketch, False).shape == (2, 5, 3)
    assert sketches.run(torch.zeros(3, dtype=torch.float64), sketch, True).shape == (7,)
    codes = [sketches.DTYPES[dtype] for dtype in (torch.float32, torch.float64)]
    assert asked == [(codes[0], 7, 3, 10), False, (codes[1], 7, 3, 1), True]
    assert bytes(sketch._table(torch.zeros(1)).numpy())[8:] == sketch.signs.packed[:4].ljust(4, b"\0")


@pytest.mark.skipif(not CUDA, reason="no CUDA device")
def test_sketches_on_a_device():
    """Of one kernel, two passes and three, beside the composition, as views, in graphs, and their gradients."""
    for length, rows, leading in ((1, 2, (3,)), (1000, 50, (2, 5)), (2**14 - 1, 2**14, (3,)), (40000, 1, (90,)), (2**22 + 1, 5000, ())):
        sketch = walsh.Sketch(length, rows, 3)
        for dtype in (torch.float32, torch.float64):  # sums of integers are exact, so that only the scale rounds
            for call, size in ((sketch, length), (sketch.transpose, rows)):
                x = torch.randint(-2, 3, (*leading, size), device="cuda").to(dtype)
                want = call(x.double(), variant="passes")
                assert torch.allclose(call(x).double(), want, rtol=4 * torch.finfo(dtype).eps, atol=0)
    sketch = walsh.Sketch(3000, 70, 3)
    x = torch.randint(-2, 3, (4, 3001), device="cuda").double()[:, 1:]
    want = sketch(x)
    assert torch.allclose(want, sketch(x, variant="passes"), rtol=2.0**-50, atol=0)
    graph = torch.cuda.CUDAGraph()
    with capture(graph):
        y = sketch(x)
    y.zero_()
    graph.replay()
    assert torch.equal(y, want)
    small = walsh.Sketch(7, 3, 1)
    for call, size in ((small, 7), (small.transpose, 3)):
        x = torch.randn(2, size, dtype=torch.float64, device="cuda", requires_grad=True)
        assert torch.autograd.gradcheck(call, (x,)) and torch.autograd.gradgradcheck(call, (x,))


def test_sketches_keep_the_mean_of_lengths():
    x = np.zeros(64)
    x[3] = 1  # the vector that sampling alone would lose
    squares = [float((walsh.Sketch(64, 8, seed)(x) ** 2).sum()) for seed in range(50)]
    assert np.allclose(squares, 1)  # of a unit vector every coefficient has the same size


@needs_torch
def test_gradients_of_compositions():
    a, b = (torch.randn(2, 8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(walsh.dyadic_convolution, (a, b))
    assert torch.autograd.gradcheck(walsh.autocorrelation, (a,))
    sketch = walsh.Sketch(8, 3, 1)
    assert torch.autograd.gradcheck(sketch, (a,))
    assert torch.autograd.gradcheck(sketch.transpose, (a[:, :3].detach().requires_grad_(),))
    assert torch.autograd.gradcheck(lambda x: walsh.rounds(x, [fwht.operators.random_signs(8, 1)] * 2), (a,))


def composed(n=8):
    """Functions of (..., n) whose signs and rows are not beside any tensor yet."""
    signs, sketch = [fwht.operators.random_signs(n, seed) for seed in range(3)], walsh.Sketch(n, 3, 1)
    return (lambda x: walsh.dyadic_convolution(x, x.flip(-1)), walsh.autocorrelation, lambda x: walsh.rounds(x, signs),
            lambda x: walsh.rounds(x, signs, transpose=True), sketch, lambda x: sketch.transpose(x[..., :3]))  # fmt: skip


@needs_torch
@pytest.mark.parametrize("first", ["grad", "vmap", "batched", "compile", "trace"])
def test_compositions_in_transforms_of_functions(first):
    """Each of them meets tensors that are beside nothing yet, and leaves behind what the others can use."""
    x, torch_jacobian = torch.randn(4, 8, dtype=torch.float64), torch.autograd.functional.jacobian
    torch.compiler.reset()
    for f, other in zip(composed(), composed()):
        y, jacobian, given = other(x), torch_jacobian(other, x), x.clone().requires_grad_()
        checks = {
            "grad": lambda: torch.allclose(torch.func.jacrev(f)(x), jacobian) and torch.allclose(torch.func.jacfwd(f)(x), jacobian),
            "vmap": lambda: torch.allclose(torch.func.vmap(f)(x), y),
            "batched": lambda: torch.allclose(torch_jacobian(f, x, vectorize=True), jacobian)
            and torch.autograd.gradcheck(f, (given,), check_batched_grad=True),
            "compile": lambda: torch.allclose(torch.compile(f, fullgraph=True, backend="aot_eager")(x), y),
            "trace": lambda: torch.allclose(torch.jit.trace(lambda t: f(t), (x.flip(0),))(x), y),
        }
        assert checks.pop(first)(), first
        assert all(check() for check in checks.values())


@needs_torch
@pytest.mark.parametrize("first", ["export", "compiled in inference mode", "compiled gradient"])
def test_graphs_leave_nothing_behind_that_later_calls_cannot_use(first):
    signs, x = fwht.operators.random_signs(8, 1), torch.randn(4, 8)
    for f in (lambda v: fwht.operators.transform(v, signs=signs), *composed()[2:]):

        class Module(torch.nn.Module):
            def forward(self, v, f=f):
                return f(v)

        torch.compiler.reset()
        if first == "export":
            made = torch.export.export(Module(), (x,), strict=False).module()(x)
        elif first == "compiled gradient":
            made = torch.compile(torch.func.grad(lambda v, f=f: f(v).sum()), backend="aot_eager")(x)
        else:
            with torch.inference_mode():
                made = torch.compile(f, fullgraph=True, backend="aot_eager")(x)
        given = x.clone().requires_grad_()
        y = f(given)
        y.sum().backward()
        assert torch.allclose(made, given.grad if first == "compiled gradient" else y)


@needs_torch
def test_the_table_of_a_sketch_is_made_on_the_host():
    from fwht.torch import table_on

    host = torch.device("cpu")
    with torch.device("meta"):
        table = table_on(host, 100, 16, 1, 128)
    assert torch.equal(table, table_on(host, 100, 16, 1, 128)) and table.any()


@needs_torch
def test_a_convolution_takes_no_two_kinds_of_arrays():
    a, b = np.ones(8, "float32"), torch.ones(8)
    for given in ((a, b), (b, a)):
        with pytest.raises(TypeError, match="a is a (ndarray|Tensor) and b a (ndarray|Tensor); both must be"):
            walsh.dyadic_convolution(*given)


def of_memory():
    """Functions of Boolean functions, and of rounds, which read the memory of what they are given."""
    signs = [fwht.operators.random_signs(8, 1)]
    return (
        lambda f: walsh.spectrum(f, "bits"), lambda f: walsh.summaries(f, "bits").largest, lambda f: walsh.largest_of(f, "bits", 2)[0],
        lambda f: torch.tensor(walsh.summary(f.int())), lambda f: walsh.largest(f.int(), 2)[0], lambda f: walsh.rounds_to_codes(f.float(), signs, 8)[0],
        lambda f: fwht.plan(8, 1, "float32", device="cpu").execute(f.float()[None]),
    )  # fmt: skip


@needs_torch
@pytest.mark.parametrize("function", of_memory())
def test_torch_func_refuses_what_reads_memory(function):
    with pytest.raises(NotImplementedError, match="a tensor inside torch.func .* has no memory, which this call reads"):
        torch.func.vmap(function)(torch.ones(3, 8, dtype=torch.uint8))


@needs_torch
@pytest.mark.filterwarnings("error:.*Dynamo")
@pytest.mark.parametrize("function", of_memory()[:-1])
def test_graphs_break_without_a_warning_where_memory_is_read(function):
    torch.compiler.reset()
    compiled, generator = torch.compile(function, backend="eager"), torch.Generator().manual_seed(1)
    for _ in range(3):
        f = torch.randint(2, (8,), dtype=torch.uint8, generator=generator)
        assert torch.equal(compiled(f), function(f))


@needs_torch
def test_compositions_of_tensors_without_memory():
    from torch._subclasses import FakeTensorMode

    assert [f(torch.empty(4, 8, device="meta")).shape[-1] for f in composed()] == [8, 8, 8, 8, 3, 8]
    with FakeTensorMode():
        assert [f(torch.empty(4, 8)).shape[-1] for f in composed()] == [8, 8, 8, 8, 3, 8]


@needs_torch
@pytest.mark.parametrize("tracing_mode", ["real", "fake", "symbolic"])
def test_traced_compositions(tracing_mode):
    from torch.fx.experimental.proxy_tensor import make_fx

    x, other = torch.randn(4, 8), torch.randn(4, 8)
    for f in composed():
        assert torch.equal(make_fx(lambda t: f(t), tracing_mode=tracing_mode)(x)(other), f(other))


def test_a_sketch_is_copied_by_what_it_was_made_of():
    sketch = walsh.Sketch(7, 3, np.uint64(2**63))
    x = np.ones((2, 7))
    for other in (pickle.loads(pickle.dumps(sketch)), copy.deepcopy(sketch)):
        assert repr(other) == repr(sketch) == f"fwht.walsh.Sketch(7, 3, seed={2**63})" and np.array_equal(other(x), sketch(x))


@kinds
def test_every_kind_of_array(kind):
    """What the tests above ask on the host, once where each array lives; its length suits a device."""
    n = 64
    bits = functions(n.bit_length() - 1, 1)[0]
    w = sums(1 - 2 * bits.astype("int64")).astype("int32")
    found = walsh.spectrum(give(bits, kind), "bits")
    assert np.array_equal(numpy_of(found), w)
    size = int(np.abs(w).max())
    assert walsh.summary(found) == (size, int(np.argmax(np.abs(w))), n // 2 - size // 2, n * n)
    assert np.array_equal(numpy_of(walsh.largest(found, 5)[0]), np.lexsort((np.arange(n), -np.abs(w)))[:5])

    a, delta = np.random.default_rng(1).integers(-9, 9, n), np.zeros(n, "int64")
    delta[5] = 1
    assert np.array_equal(numpy_of(walsh.dyadic_convolution(give(a, kind), give(delta, kind))), a[np.arange(n) ^ 5])
    x = np.random.default_rng(2).standard_normal((2, n - 3)).astype("float32")
    y = numpy_of(walsh.Sketch(n - 3, 20, 1)(give(x, kind)))
    assert np.allclose(y, walsh.Sketch(n - 3, 20, 1)(x.astype("float64")), rtol=0, atol=1e-4)

    data = np.random.default_rng(3).integers(-9, 9, (2, n), "int32")
    for variant in [None] + ["passes"] * (kind == "cuda"):
        for ordering in ("dyadic", "sequency"):
            y = fwht.hadamard_transform(give(data, kind), 1, ordering=ordering, variant=variant)
            bits_of = n.bit_length() - 1
            natural = [int(f"{k ^ (k >> 1) if ordering == 'sequency' else k:0{bits_of}b}"[::-1], 2) for k in range(n)]
            assert np.array_equal(numpy_of(y), sums(data)[:, natural])
            back = fwht.hadamard_transform(y, 1, input_ordering=ordering, variant=variant)
            assert np.array_equal(numpy_of(back), (sums(sums(data))).astype("int32"))
        image = np.random.default_rng(4).integers(-9, 9, (3, 64, 32)).astype("float32")
        y = fwht.hadamard_transform(give(image, kind), 1, axis=1, variant=variant)
        assert np.array_equal(numpy_of(y), np.einsum("ij,njk->nik", hadamard(64), image))
        z = give(image, kind)
        assert np.array_equal(numpy_of(fwht.hadamard_transform_(z, 1, axis=1, variant=variant)), numpy_of(y)) and np.array_equal(numpy_of(z), numpy_of(y))


@needs_torch
@pytest.mark.filterwarnings("ignore")
def test_a_second_graph_finds_signs_kept_and_training_none_of_inference():
    signs, x = fwht.operators.random_signs(64, 1), torch.randn(4, 64)
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda v: fwht.operators.transform(v, signs=signs), backend=counter, fullgraph=True)
    with torch.inference_mode():
        for _ in range(4):
            compiled(x)
    assert counter.frame_count == 2, "the one that makes them, and the one that finds them"
    trained = x.clone().requires_grad_()
    compiled(trained).sum().backward()
    compiled(trained).sum().backward()
    fwht.operators.transform(trained, signs=signs).sum().backward()
