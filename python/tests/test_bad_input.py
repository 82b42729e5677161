"""Bad input: the type of the exception, and a sentence with the value and the limit, before anything runs. Every row
of the table in docs/python.md, for NumPy and, where it is there, PyTorch."""

import numpy as np
import pytest

import fwht

try:
    import torch
except ImportError:
    torch = None


def array(library, shape, dtype="float32"):
    if library == "numpy":
        return np.zeros(shape, dtype)
    if torch is None:
        pytest.skip("PyTorch is not installed")
    return torch.zeros(shape, dtype=getattr(torch, dtype))


both = pytest.mark.parametrize("library", ["numpy", "torch"])


@both
def test_scalars(library):
    with pytest.raises(ValueError, match="at least one dimension"):
        fwht.hadamard_transform(array(library, ()))


@both
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("shape", [(3, 6), (6,), (3, 1), (0, 6)])
def test_n_that_is_no_power_of_two(library, shape, inplace):
    with pytest.raises(ValueError, match=f"n={shape[-1]} must be a power of two between 2 and 1073741824"):
        fwht.hadamard_transform(array(library, shape), inplace=inplace)


@both
@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_n_of_zero(library, shape):
    with pytest.raises(ValueError, match="n=0 must be a power of two"):
        fwht.hadamard_transform(array(library, shape))


@both
@pytest.mark.parametrize("dtype", ["int32", "int8", "bool", "complex64", "uint8"])
def test_dtypes(library, dtype):
    with pytest.raises(TypeError, match=f"{dtype}.* must be float16, bfloat16 or float32"):
        fwht.hadamard_transform(array(library, (3, 8), dtype))


@both
def test_float64_is_never_narrowed(library):
    x = array(library, (3, 8), "float64")
    if fwht.supports(8, "float64", device="cpu"):
        assert fwht.hadamard_transform(x).dtype == x.dtype
    else:
        with pytest.raises(TypeError, match="float64"):
            fwht.hadamard_transform(x)


@both
@pytest.mark.parametrize("scale", [float("inf"), float("nan"), -float("inf"), 1e39])
def test_scales_that_are_not_finite(library, scale):
    with pytest.raises(ValueError, match="scale=.* must be finite"):
        fwht.hadamard_transform(array(library, (3, 8)), scale)


@both
@pytest.mark.parametrize("scale", ["a tensor", np.ones(()), "1.0", [1.0], object()])
def test_scales_that_are_no_numbers(library, scale):
    x = array(library, (3, 8))
    with pytest.raises(TypeError, match="scale.* must be a number or None"):
        fwht.hadamard_transform(x, array(library, ()) if scale == "a tensor" else scale)


@both
def test_numpy_numbers_are_scales(library):
    fwht.hadamard_transform(array(library, (3, 8)), np.float32(0.5))
    fwht.hadamard_transform(array(library, (3, 8)), np.int64(2))


def transposed(x):
    return x.T if isinstance(x, np.ndarray) else x.t()


def expanded(x):
    if isinstance(x, np.ndarray):
        return np.lib.stride_tricks.as_strided(x, (4, 16), (0, x.itemsize))
    return x[:1].expand(4, 16)


@both
@pytest.mark.parametrize("where", ["inplace", "out"])
@pytest.mark.parametrize(
    "view", [lambda a: transposed(a), lambda a: a[:, ::2], lambda a: a[:, :8].reshape(2, 4, 8)[:, :3], expanded]
)
def test_strides_that_cannot_be_written(library, view, where):
    target = view(array(library, (8, 16)))
    x = array(library, tuple(target.shape))
    with pytest.raises(ValueError, match="strides .* rows at one distance of at least n="):
        if where == "inplace":
            fwht.hadamard_transform_(target)
        else:
            fwht.hadamard_transform(x, out=target)


@both
def test_out_of_another_kind(library):
    x = array(library, (3, 8))
    for out in (array(library, (3, 16)), array(library, (24,)), array(library, (3, 8), "float16")):
        with pytest.raises(ValueError, match="out .*must be as x"):
            fwht.hadamard_transform(x, out=out)


@both
def test_out_and_x_that_overlap_in_part(library):
    buffer = array(library, (5, 8))
    with pytest.raises(ValueError, match="overlap"):
        fwht.hadamard_transform(buffer[:4], out=buffer[1:])


@both
def test_out_and_inplace(library):
    x = array(library, (3, 8))
    with pytest.raises(ValueError, match="exclude each other"):
        fwht.hadamard_transform(x, out=x, inplace=True)


@both
def test_variants(library):
    x = array(library, (3, 8))
    with pytest.raises(ValueError, match="no_such_variant"):
        fwht.hadamard_transform(x, variant="no_such_variant")
    with pytest.raises(TypeError, match="variant=3"):
        fwht.hadamard_transform(x, variant=3)
    with pytest.raises(NotImplementedError, match="auto works on device memory"):
        fwht.hadamard_transform(x, variant="auto")


def test_read_only():
    x = np.zeros((3, 8), "float32")
    x.flags.writeable = False
    assert fwht.hadamard_transform(x).shape == (3, 8)
    with pytest.raises(ValueError, match="read-only"):
        fwht.hadamard_transform_(x)


@pytest.mark.parametrize("x", [[1.0, 2.0], 3.0, None, "text", np.float32(1)])
def test_what_is_no_array(x):
    with pytest.raises(TypeError, match="must be a PyTorch tensor, a NumPy, CuPy or JAX array"):
        fwht.hadamard_transform(x)


def test_out_that_is_no_array():
    with pytest.raises(ValueError, match="a builtins.list"):
        fwht.hadamard_transform(np.zeros((3, 8), "float32"), out=[0.0])


def test_a_byte_order_of_another_machine():
    with pytest.raises(TypeError, match=">f4"):
        fwht.hadamard_transform(np.zeros((3, 8), ">f4"))


class OnCuda:
    """An array that says that it is in CUDA memory."""

    __cuda_array_interface__ = {"shape": (3, 8), "typestr": "<f4", "data": (256, False), "version": 3}


def test_a_cuda_array_without_cuda():
    if not fwht.build_info()["cuda"].startswith("none"):
        pytest.skip("this libfwht was built with CUDA")
    with pytest.raises(RuntimeError, match="fwht was built without CUDA .*reinstall it with nvcc on PATH"):
        fwht.hadamard_transform_(OnCuda())


def test_a_cuda_array_of_an_unknown_library_needs_out():
    with pytest.raises(TypeError, match="OnCuda; pass out= or inplace=True"):
        fwht.hadamard_transform(OnCuda())


@both
def test_n_above_the_limit_of_the_variant(library):
    n = 2**31
    x = array(library, (1,), "float16")
    x = np.broadcast_to(x, (n,)) if library == "numpy" else x.expand(n)
    with pytest.raises(NotImplementedError, match=f"n={n} must be a power of two between 2 and 1073741824"):
        fwht.hadamard_transform(x)
