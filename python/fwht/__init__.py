"""Fast Walsh-Hadamard transforms for PyTorch, NumPy, CuPy and JAX.

    import fwht
    y = fwht.hadamard_transform(x)          # H_n x / sqrt(n) along the last dimension: orthonormal
    y = fwht.hadamard_transform(x, 1.0)     # without the factor, as fast_hadamard_transform

`import fwht` needs neither PyTorch nor a GPU; each is used where it is there.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, SupportsFloat

from . import _arrange, _c, _lazy, _tensors, array, linear, operators, quantize, walsh
from ._plan import Plan, Support, Variant, build_info, clear_plans, plan, supports, variants

__all__ = [
    "Plan",
    "Support",
    "Variant",
    "build_info",
    "clear_plans",
    "hadamard_quantize",
    "hadamard_transform",
    "hadamard_transform_",
    "linear",
    "operators",
    "plan",
    "quantize",
    "supports",
    "variants",
    "walsh",
]
hadamard_quantize = quantize.hadamard_quantize  # the module stays `fwht.quantize`
__version__: str = _c.version

_SUBMODULES = ("compat", "distributed", "evaluate", "integrations", "nn", "torch")  # those that import PyTorch

_torch_transform: Any = None
_torch_functional: Any = None
_Tensor: Any = None


def _load_torch() -> Any:
    """The code for PyTorch, if that is there to be used: fwht never imports it by itself."""
    global _torch_transform, _torch_functional, _Tensor
    if sys.modules.get("torch") is None or not hasattr(sys.modules["torch"], "Tensor"):
        return None
    face = _tensors.face = importlib.import_module(".torch", __name__)
    _Tensor, _torch_transform, _torch_functional = face.Tensor, face.transform, face.functional
    return face


_tensors.load = _load_torch


def hadamard_transform(
    x: Any, scale: SupportsFloat | None = None, *, out: Any = None, inplace: bool = False, variant: str | None = None,
    ordering: str = "natural", input_ordering: str = "natural", axis: int | tuple[int, ...] | list[int] = -1,
) -> Any:  # fmt: skip
    """Multiplies the rows of `x` by the Hadamard matrix: y[..., :] = scale * H_n x[..., :].

    The default scale, None, is 1/sqrt(n): the transform is orthonormal and its own inverse. (`fwht.compat` alone has the
    default of the package fast-hadamard-transform, 1.0.)

    H_n is in natural order: H[i, j] = (-1)^popcount(i & j). 16-bit results are rounded once; kernels on tensor cores carry sums
    between their stages as two bf16 numbers. float32 is summed in float32, float64 in float64. Integers are only summed, modulo
    2^32 or 2^64: an element of the result is exact wherever it fits the dtype (`fwht.walsh.checked_transform` says whether all
    do). A variant that rounds more often runs only where `variant` names it.

    Args:
        x: shape (..., n), n = 2^k from 2 to the limit of the variant (`fwht.supports` says it); the leading
            dimensions are rows. float16, bfloat16, float32, float64, int32 or int64. A PyTorch tensor (CPU or CUDA), a numpy.ndarray without a mask, a CuPy
            array, a JAX array (outside jax.jit), or another array with `__dlpack__` and `__array_namespace__`. NumPy has bfloat16 by the package ml_dtypes. Any strides: where the rows do not
            have a constant stride with their elements side by side, they are gathered into the result first.
        scale: a number that is finite in float32, or None for 1/sqrt(n); 1 for integers. Not a tensor: reading it would wait
            for the device. In a graph of torch.compile a number of Python: NumPy's are tensors there, so they break the graph.
        out: where the result goes; shape, dtype and device of x. Rows with a constant stride of at least n elements.
            May be x itself; other overlaps are refused, but with `axis` or an ordering any is taken, since the result is copied there.
        inplace: the result replaces x, which must have rows with a constant stride of at least n elements.
        variant: a name of `fwht.variants()`; None: "auto" on a CUDA device, "cpu" on the host.
        ordering: "natural" (Hadamard), "dyadic" (Paley) or "sequency" (Walsh: row k of the matrix changes its sign k times): how
            the coefficients of the result stand. Not in place, since it permutes.
        input_ordering: how those of x stand. The inverse of `ordering="sequency"` is `input_ordering="sequency"`.
        axis: along which x is transformed, instead of the last; of several, one after another, each with its own ordering of
            n. A number as `scale` is for the whole: below 1 each axis has its part. Complex numbers: `torch.view_as_real(x)` with axis=-2. Other axes than
            the last, and orderings, are for PyTorch tensors and NumPy arrays. On a CUDA device `auto` has kernels for most of
            them; others cost a copy, or an indexing (docs/long_vectors.md).

    Returns:
        A new contiguous array of x's type, shape, dtype and device; or `out`; or x where `inplace`.

    Streams and graphs: the work is enqueued on the current stream of x's device (PyTorch, CuPy) and may be captured
    in a CUDA graph; call it once before the capture, since the first call for a shape makes a plan. Differentiable
    in PyTorch, by torch.func too; a compiled graph keeps it as one node. Autocast does not change the dtype.

    The same input, shape, dtype, variant, device kind and version give the same bits. Rows give the same bits whatever
    the number of rows where `fwht.supports(...).batch_invariant`.

    Raises:
        ValueError: n is no power of two, `scale` is not finite or not 1 for integers, strides or overlap are not allowed.
        TypeError: a dtype, scale or array type that is not taken.
        NotImplementedError: the variant does not do this problem, with its reason; a device that is neither CPU
            nor CUDA.
        RuntimeError: CUDA failed, or fwht was built without it. In place on a leaf that requires grad.
        All before anything is launched.

    Example:
        >>> import numpy, fwht
        >>> fwht.hadamard_transform(numpy.array([10, -2, -4, 0], dtype="int32"), 1, ordering="sequency")
        array([ 4, 12, 16,  8], dtype=int32)
        >>> fwht.hadamard_transform(numpy.array([1, 2, 3, 4], dtype="float32"))
        array([ 5., -1., -2.,  0.], dtype=float32)

    Source: docs/operators.md; docs/python.md.
    """
    if type(axis) is not int or axis != -1 or not _is_natural(ordering) or not _is_natural(input_ordering):
        return _arranged(x, scale, out, inplace, variant, ordering, input_ordering, axis)
    if (_Tensor is not None or _load_torch()) and isinstance(x, _Tensor):
        if out is None and not inplace:
            return _torch_functional(x, scale, variant)
        return _torch_transform(x, scale, out, inplace, variant)
    return array.transform(x, scale, out, inplace, variant)


def _is_natural(ordering: Any) -> bool:
    # Of an array, which is refused later, the comparison alone would have no truth.
    return isinstance(ordering, str) and ordering == "natural"


def _arranged(
    x: Any, scale: Any, out: Any, inplace: bool, variant: str | None, ordering: str, input_ordering: str, axis: Any
) -> Any:
    if face := _tensors.face_of(x):
        return face.arranged(x, scale, out, inplace, variant, ordering, input_ordering, axis)
    axes = _arrange.axes_of(axis, len(getattr(x, "shape", (1,))))
    codes = _arrange.code("input_ordering", input_ordering), _arrange.code("ordering", ordering)
    return _arrange.transform(x, scale, out, inplace, variant, codes, axes)


def hadamard_transform_(
    x: Any, scale: SupportsFloat | None = None, *, variant: str | None = None, axis: int | tuple[int, ...] | list[int] = -1
) -> Any:
    """`hadamard_transform(x, scale, inplace=True, variant=variant, axis=axis)`: the result replaces x, which is returned."""
    if type(axis) is not int or axis != -1:
        return _arranged(x, scale, None, True, variant, "natural", "natural", axis)
    if (_Tensor is not None or _load_torch()) and isinstance(x, _Tensor):
        return _torch_transform(x, scale, None, True, variant)
    return array.transform(x, scale, None, True, variant)


def __getattr__(name: str) -> Any:
    if name == "rotate_model":
        return _lazy.submodule(__name__, "evaluate", _SUBMODULES).rotate_model
    return _lazy.submodule(__name__, name, _SUBMODULES)


if "torch" in sys.modules:  # else at the first tensor
    _load_torch()
