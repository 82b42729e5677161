"""NumPy arrays: values, strides, placement, and what every array path shares."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fwht
from conftest import error_bound, hadamard, truth

SHAPES = [(2,), (8,), (3, 16), (2, 3, 64), (1, 1024), (300, 512)]


def numbers(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("scale", [1.0, None, 0.25, -3])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("shape", SHAPES)
def test_values(shape, dtype, scale):
    x = numbers(shape, dtype)
    before = x.copy()
    y = fwht.hadamard_transform(x, scale)
    assert isinstance(y, np.ndarray) and y.shape == shape and y.dtype == x.dtype and y.flags.c_contiguous
    assert (np.abs(y - truth(x, scale)) <= error_bound(x, scale, dtype)).all()
    assert np.array_equal(x, before)
    assert fwht.hadamard_transform_(x, scale) is x
    assert np.array_equal(x, y)


def test_bfloat16_by_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = numbers((3, 64), "float32").astype(ml_dtypes.bfloat16)
    y = fwht.hadamard_transform(x, None)
    assert y.dtype == x.dtype
    assert (np.abs(y.astype("float64") - truth(x, None)) <= error_bound(x, None, "bfloat16")).all()


def test_a_nan_stays_in_its_row():
    x = numbers((3, 16), "float32")
    x[1, 3] = np.nan
    y = fwht.hadamard_transform(x, 1.0)
    assert np.isnan(y[1]).all() and np.isfinite(y[[0, 2]]).all()


@pytest.mark.parametrize("variant", ["cpu", "cpu_f64"])
def test_variants_by_name(variant):
    x = np.random.default_rng(5).integers(-8, 8, (3, 64)).astype("float32")
    assert np.array_equal(fwht.hadamard_transform(x, 1.0, variant=variant), truth(x, 1.0))


def test_the_matrix_of_these_tests_is_the_definition():
    h = hadamard(16)
    assert all(h[i, j] == (-1) ** (i & j).bit_count() for i in range(16) for j in range(16))


def test_threads_give_the_bits_of_one():
    xs = [numbers((i % 7 + 1, 2 ** (i % 9 + 1)), "float32", i) for i in range(64)]
    alone = [fwht.hadamard_transform(x) for x in xs]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(fwht.hadamard_transform, xs))
    assert all(np.array_equal(a, b) for a, b in zip(alone, together))


def test_the_library_answers_without_torch_and_numpy():
    code = (
        "import sys\n"
        "for name in ('torch', 'numpy', 'cupy', 'jax'): sys.modules[name] = None\n"
        "import fwht\n"
        "assert fwht.variants() and fwht.supports(64, 'float16', device='cpu')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_axes_write_to_any_out():
    """To x itself, to rows that do not lie side by side, and where x lies in part."""
    x = numbers((8, 16), "float32", 3)
    want = fwht.hadamard_transform(x, axis=0)
    for make in (lambda: np.zeros((8, 32), "float32")[:, ::2], lambda: np.zeros((16, 8), "float32").T):
        out = make()
        assert fwht.hadamard_transform(x, axis=0, out=out) is out and np.array_equal(out, want)
    memory = np.concatenate([x, x])
    fwht.hadamard_transform(memory[:8], axis=0, out=memory[4:12])
    assert np.array_equal(memory[4:12], want)
    for options in ({}, {"ordering": "sequency"}):
        want, given = fwht.hadamard_transform(x, axis=0, **options), x.copy()
        assert fwht.hadamard_transform(given, axis=0, out=given, **options) is given and np.array_equal(given, want)


def test_a_row_stride_of_zero_is_refused():
    assert "row_stride=0 must be at least n=8" in fwht.supports(8, "float32", row_stride=0, device="cpu").why_not
    assert fwht.plan(8, 1, float, device="cpu").problem.startswith("f64/n8")
