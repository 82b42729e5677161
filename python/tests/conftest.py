"""Runs against an installed fwht, or an existing build:

    FWHT_LIBRARY=build/release/python/libfwht.so PYTHONPATH=python python -m pytest python/tests
"""

import functools
import os

import numpy as np
import pytest

import fwht

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # processes of pytest-xdist share a device

try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
CUDA = torch is not None and torch.cuda.is_available() and fwht.build_info()["devices"] > 0
needs_cuda = pytest.mark.skipif(not CUDA, reason="no CUDA device, or this libfwht was built without CUDA")
torch_cpu, torch_cuda = pytest.param("cpu", marks=needs_torch), pytest.param("cuda", marks=needs_cuda)
devices = pytest.mark.parametrize("device", [torch_cpu, torch_cuda])

UNIT_ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}


@functools.lru_cache
def hadamard(n):
    """H_n in natural order, in float64, by its recursion H_2n = [[H_n, H_n], [H_n, -H_n]]."""
    if n == 1:
        return np.ones((1, 1))
    half = hadamard(n // 2)
    return np.block([[half, half], [half, -half]])


def truth(x, scale):
    """scale * H x in float64 for a NumPy array."""
    n = x.shape[-1]
    return np.asarray(x, dtype=np.float64) @ hadamard(n) * (n**-0.5 if scale is None else scale)


def error_bound(x, scale, dtype, on_device=False):
    """Largest error that one rounding to the storage type and the sums may make, per element. Sums of n terms in
    float32 lose at most (log2(n) + 2) 2^-24 of scale * sum|x|; the device's kernels may carry float32 as pairs of
    bfloat16, which hold 16 bits."""
    n = x.shape[-1]
    scale = n**-0.5 if scale is None else abs(scale)
    sums = UNIT_ROUNDOFF["float64"] if dtype == "float64" else 2.0**-16 if on_device else 2.0**-24
    absolute = np.abs(np.asarray(x, dtype=np.float64)).sum(-1, keepdims=True) * scale
    smallest = {"float16": 2.0**-25, "bfloat16": 2.0**-134, "float32": 2.0**-150, "float64": 0.0}[dtype]
    return UNIT_ROUNDOFF[dtype] * np.abs(truth(x, scale)) * (1 + 2.0**-7) + (np.log2(n) + 2) * sums * absolute + smallest


def host_takes_f64():
    return bool(fwht.supports(8, "float64", device="cpu"))


needs_f64 = pytest.mark.skipif(not host_takes_f64(), reason="this libfwht has no float64 transform on the host")


def capture(graph, **options):
    """Of this thread: JAX in the same process has one that asks its streams, which ends a capture of PyTorch's default mode."""
    return torch.cuda.graph(graph, capture_error_mode="thread_local", **options)


def integers(*shape, device="cpu", dtype=None, seed=0):
    """Whose sums are exact in float32."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-8, 8, shape, generator=generator).to(device=device, dtype=dtype or torch.float32)
