"""CuPy arrays: current stream, strides, placement. Needs CuPy and a CUDA device."""

import numpy as np
import pytest

cupy = pytest.importorskip("cupy")

import fwht
from conftest import truth

if fwht.build_info()["devices"] == 0:
    pytest.skip("no CUDA device, or this libfwht was built without CUDA", allow_module_level=True)


def integers(*shape):
    return cupy.asarray(np.random.default_rng(0).integers(-8, 8, shape).astype("float32"))


@pytest.mark.parametrize("view", [lambda a: a, lambda a: a[:, 8:40], lambda a: a[:, :64:2], lambda a: a[:32].T])
def test_values(view):
    x = view(integers(64, 64))
    y = fwht.hadamard_transform(x, 1.0)
    assert isinstance(y, cupy.ndarray) and y.flags.c_contiguous
    assert np.array_equal(cupy.asnumpy(y), truth(cupy.asnumpy(x), 1.0))


def test_in_place_and_out():
    x = integers(5, 128)
    expected = truth(cupy.asnumpy(x), 1.0)
    out = cupy.empty_like(x)
    assert fwht.hadamard_transform(x, 1.0, out=out) is out
    assert fwht.hadamard_transform_(x, 1.0) is x
    assert np.array_equal(cupy.asnumpy(out), expected) and np.array_equal(cupy.asnumpy(x), expected)


def test_the_current_stream_is_used():
    with cupy.cuda.Stream(non_blocking=True) as stream:
        x = integers(1024, 1024)
        y = fwht.hadamard_transform(x * 1, 1.0)
        stream.synchronize()
        assert np.array_equal(cupy.asnumpy(y), truth(cupy.asnumpy(x), 1.0))
