"""Integers and float64 in every array library, and the module `walsh`, against NumPy in float64 and int64."""

import numpy as np
import pytest

import fwht
from conftest import CUDA, hadamard, needs_torch, torch

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


def length(kind, n=64):
    return 65536 if kind == "cuda" else n  # wide types begin there on a device


def test_the_sums_of_these_tests_are_the_definition():
    x = np.random.default_rng(0).integers(-99, 99, (3, 64))
    assert np.array_equal(sums(x), x @ hadamard(64).astype(np.int64))


@kinds
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("where", ["new", "in place", "out", "rows apart"])
def test_integers_are_exact_and_wrap(kind, dtype, where):
    n, info = length(kind), np.iinfo(dtype)
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
    n = length(kind)
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
    x, g = (torch.randn(2, length(kind), dtype=torch.float64, device=kind) for _ in range(2))
    y = fwht.hadamard_transform(x.requires_grad_(), 0.5)
    y.backward(g)
    assert torch.equal(x.grad, fwht.hadamard_transform(g, 0.5))


@kinds
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_checked_transform(kind, dtype):
    n, info = length(kind), np.iinfo(dtype)
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

