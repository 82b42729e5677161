"""JAX arrays: immutable, so always a new array of the same kind."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import fwht
from conftest import error_bound, truth

DEVICES = [device for kind in ("cpu", "cuda") for device in (jax.devices(kind)[:1] if kind in {d.platform for d in jax.devices()} | {"cpu"} else [])]


@pytest.fixture(params=DEVICES, ids=str)
def device(request):
    if request.param.platform != "cpu" and fwht.build_info()["cuda"].startswith("none"):
        pytest.skip("this libfwht was built without CUDA")
    return request.param


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_values(device, dtype):
    x = jax.device_put(jax.numpy.asarray(np.random.default_rng(0).standard_normal((3, 64)), dtype=dtype), device)
    y = fwht.hadamard_transform(x, None)
    assert isinstance(y, jax.Array) and y.dtype == x.dtype and y.shape == x.shape and y.devices() == x.devices()
    data = np.asarray(x).astype("float64")
    assert (np.abs(np.asarray(y).astype("float64") - truth(data, None)) <= error_bound(data, None, dtype, device.platform != "cpu")).all()


def test_what_cannot_be_written():
    x = jax.numpy.zeros((3, 8))
    with pytest.raises(TypeError, match="cannot be written"):
        fwht.hadamard_transform_(x)
    with pytest.raises(TypeError, match="cannot be written"):
        fwht.hadamard_transform(x, out=x)


def test_inside_jit_it_says_so():
    with pytest.raises(TypeError, match="jax.jit"):
        jax.jit(fwht.hadamard_transform)(jax.numpy.zeros((3, 8)))


def test_bad_input_keeps_its_sentences():
    with pytest.raises(ValueError, match="n=6 must be a power of two"):
        fwht.hadamard_transform(jax.numpy.zeros((3, 6)))
    with pytest.raises(TypeError, match="int16"):
        fwht.hadamard_transform(jax.numpy.zeros((3, 8), "int16"))


def test_arrays_that_were_deleted():
    x = jax.numpy.zeros((3, 8))
    x.delete()
    with pytest.raises(ValueError, match=r"of shape \(3, 8\) was deleted, or donated to a call; it has no memory"):
        fwht.hadamard_transform(x)
