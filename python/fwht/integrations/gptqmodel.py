"""Checkpoints that GPTQModel rotated before it quantized them: `rotation` in quantize_config.json."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch

from .. import linear, nn
from .._gptq_files import config_of
from .._plan import _dtype_code

__all__ = ["load", "rotation_of"]

_MODES = ("hadamard", "random")
_ONLINE = "mlp.down_proj"  # the one layer whose input is rotated at run time; the rest is folded into weights


def rotation_of(path: Any) -> str | None:
    """"hadamard" or "random", as the configuration beside the layers says; None where the checkpoint is not rotated.

    Raises ValueError for another word there.
    """
    mode = config_of(Path(path)).get("rotation")
    if mode and mode not in _MODES:
        raise ValueError(f"fwht: rotation={mode!r} in the configuration of {path} must be one of {', '.join(_MODES)}")
    return mode or None


def _operator(k: int, matrix: torch.Tensor | None) -> str:
    """The text of (matrix (x) H_(k / m)) for a matrix of order m."""
    m = 1 if matrix is None else len(matrix)
    power = k // m
    if k % m or power & (power - 1) or (matrix is not None and matrix.shape != (m, m)):
        given = "none" if matrix is None else tuple(matrix.shape)
        raise ValueError(f"fwht: a layer of k={k} inputs needs a matrix of order m with k / m a power of two; it has shape {given}")
    return str(k) if m == 1 else f"d{m}x{power}" if power > 1 else f"d{m}"


def _dtype_of(given: Any) -> torch.dtype:
    """Of x, as `fwht.linear.pack` takes it."""
    if given is None or isinstance(given, torch.dtype):
        return given or torch.float16
    named: torch.dtype = getattr(torch, _dtype_code(given)[1].removeprefix("torch."))
    return named


def load(path: Any, name: str, *, matrix: torch.Tensor | None = None, **options: Any) -> nn.GptqLinear:
    """A layer of a GPTQ checkpoint as a module, with the rotation of its input where GPTQModel would apply one.

    Args:
        path, name: as for `fwht.linear.load`.
        matrix: (m, m), the special factor, orthogonal with rows of length sqrt(m); k / m is a power of two. None: that of the installed
            gptqmodel (`get_hadK`), which is asked only where k is no power of two.
        options: as for `fwht.linear.pack`, without zero_points, rotation and dense.

    Returns: a `fwht.nn.GptqLinear`. That of "...mlp.down_proj" of a rotated checkpoint multiplies its input by
    (matrix (x) H_(k / m)) / sqrt(k) first, the operator "d<m>x<k / m>".

    Raises: what `fwht.linear.load` and `pack` raise; ValueError for a matrix that does not fit k; ImportError where the matrix is needed
    and gptqmodel is not installed.
    """
    tensors = linear.load(path, name)
    if rotation_of(path) is not None and name.endswith(_ONLINE):
        k = 8 * tensors.qweight.shape[0]
        if matrix is None and k & (k - 1):
            try:
                utils = importlib.import_module("gptqmodel.quantization.rotation.hadamard_utils")
            except ImportError as error:
                raise ImportError(f"fwht: {name} has k={k} inputs, whose matrix is in the package gptqmodel; install it or give matrix=") from error
            matrix, _ = utils.get_hadK(k)
        options["rotation"] = _operator(k, matrix)
        if matrix is not None:
            options["dense"] = matrix.reshape(-1).to("cpu", _dtype_of(options.get("dtype")))
    return nn.GptqLinear(*tensors[:5], zero_points=tensors.zero_points, **options)
