"""Checkpoints that GPTQModel rotated before it quantized them: `rotation` in quantize_config.json."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch

from .. import linear, nn, operators
from .._gptq_files import config_of

__all__ = ["RotatedLinear", "load", "rotation_of"]

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


class RotatedLinear(torch.nn.Module):
    """y = W (Q x) + bias: an operator in front of a layer with 4-bit weights.

    Args:
        layer: a `fwht.nn.GptqLinear` of k inputs.
        matrix: (m, m), entries +-1, orthogonal, or None; k / m is a power of two. Q = (matrix (x) H_(k / m)) / sqrt(k): the operator
            "d<m>x<k / m>", with one rounding to x's dtype.

    Shape: (..., k) to (..., n). Raises ValueError for a matrix that does not fit k.
    """

    def __init__(self, layer: nn.GptqLinear, matrix: torch.Tensor | None = None):
        super().__init__()
        k = layer._packed.k
        m = 1 if matrix is None else len(matrix)
        power = k // m
        if k % m or power & (power - 1) or (matrix is not None and matrix.shape != (m, m)):
            given = "none" if matrix is None else tuple(matrix.shape)
            raise ValueError(f"fwht: a layer of k={k} inputs needs a matrix of order m with k / m a power of two; it has shape {given}")
        if matrix is not None and not torch.equal(matrix.double() @ matrix.double().T, m * torch.eye(m, dtype=torch.float64)):
            raise ValueError(f"fwht: the matrix of order {m} must have entries +-1 and orthogonal rows")
        self.layer = layer
        self.operator = str(k) if m == 1 else f"d{m}x{power}" if power > 1 else f"d{m}"
        kept = None if matrix is None else matrix.reshape(-1).to(layer.weights.device, getattr(torch, layer._packed.dtype))
        self.register_buffer("matrix", kept, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(operators.transform(x, self.operator, dense=self.matrix))

    def extra_repr(self) -> str:
        return f"operator={self.operator!r}"


def load(path: Any, name: str, *, matrix: torch.Tensor | None = None, **options: Any) -> nn.GptqLinear | RotatedLinear:
    """A layer of a GPTQ checkpoint as a module, with the rotation of its input where GPTQModel would apply one.

    Args:
        path, name: as for `fwht.linear.load`.
        matrix: the special factor; None: that of the installed gptqmodel (`get_hadK`), which is asked only where k is no power of two.
        options: as for `fwht.linear.pack`, without zero_points.

    Returns: a `RotatedLinear` for "...mlp.down_proj" of a rotated checkpoint, else a `fwht.nn.GptqLinear`.

    Raises: what `fwht.linear.load` and `pack` raise; ImportError where the matrix is needed and gptqmodel is not installed.
    """
    tensors = linear.load(path, name)
    layer = nn.GptqLinear(*tensors[:5], zero_points=tensors.zero_points, **options)
    if rotation_of(path) is None or not name.endswith(_ONLINE):
        return layer
    k = 8 * tensors.qweight.shape[0]
    if matrix is None and k & (k - 1):
        try:
            utils = importlib.import_module("gptqmodel.quantization.rotation.hadamard_utils")
        except ImportError as error:
            raise ImportError(f"fwht: {name} has k={k} inputs, whose matrix is in the package gptqmodel; install it or give matrix=") from error
        matrix, _ = utils.get_hadK(k)
    return RotatedLinear(layer, matrix)
