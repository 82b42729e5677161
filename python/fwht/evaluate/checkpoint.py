"""A rotated model as a folder, and back.

R1 and R2 are in the weights alone, so the folder is a plain checkpoint. R4 also acts online: its config.json names it in the words of
compressed-tensors (`transform_config`), and its matrix of +-1 is stored once, under the name that vLLM reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from .. import operators
from . import hooks
from .rotate import Rotation, check, rotate_model
from .schemes import Scheme

_TARGETS = "re:.*mlp[.]down_proj$"
_MATRIX = "model.layers.0.mlp.down_proj.R4_input.weight"  # all layers share it
_ROWS = 1 << 22  # elements of the matrix that are formed at once


def save_rotated(model: Any, folder: str | Path, rotations: str | Rotation = "R1,R2", *, seed: int = 0) -> None:
    """Rotates a model in place, and writes it as a checkpoint of transformers.

    Args:
        model, rotations, seed: as `fwht.rotate_model`. With R4 the folder takes 2 n^2 bytes more in 16 bits, for rows of n =
            intermediate_size, and its reader must know `transform_config`: vLLM, `compressed_tensors.transform`, `load_rotated`.
            transformers 5 itself does not, and says nothing.

    Raises ValueError as `fwht.rotate_model`, and for R3 and blocks, which are no part of a checkpoint; nothing is written then.
    """
    rotation = Rotation.parse(rotations, seed) if isinstance(rotations, str) else rotations
    if "R3" in rotation.names or rotation.block:
        raise ValueError("a checkpoint holds R1, R2 and R4; R3 and blocks are done online alone")
    check(model, rotation)
    if "R4" not in rotation.names:
        rotate_model(model, rotation).save_pretrained(folder)
        return
    rotate_model(model, rotation)
    n = model.config.intermediate_size
    model.config.quantization_config = {
        "quant_method": "compressed-tensors", "format": "dense", "config_groups": {}, "ignore": [],
        "transform_config": {"config_groups": {"R4": {
            "type": "random-hadamard", "apply": [{"targets": [_TARGETS], "location": "input", "inverse": False, "ignore": []}],
        }}},
    }  # fmt: skip
    model.config.fwht = {"rotations": sorted(rotation.names), "seed": rotation.seed, "operator": operators.operator_for(n)}
    matrix = _matrix(rotation.mlp_signs(model), n).to(model.dtype)
    model.save_pretrained(folder, state_dict=model.state_dict() | {_MATRIX: matrix})


def load_rotated(folder: str | Path, **options: Any) -> Any:
    """The model of `save_rotated`, with R4 by this library in front of the last layer of each MLP.

    options: those of `transformers.AutoModelForCausalLM.from_pretrained`, such as dtype. Other checkpoints are loaded as they are.

    Raises ValueError where this version forms another operator for rows of intermediate_size.
    """
    config = transformers.AutoConfig.from_pretrained(folder)
    about = getattr(config, "fwht", None)
    if about is None:
        return transformers.AutoModelForCausalLM.from_pretrained(folder, **options)
    if about["operator"] != (ours := operators.operator_for(config.intermediate_size)):
        raise ValueError(f"{folder} was rotated by the operator {about['operator']}; this version has {ours} for rows of {config.intermediate_size}")
    del config.quantization_config
    before = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity_error()  # else it warns of the matrix, which only others read
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, config=config, **options)
    finally:
        transformers.utils.logging.set_verbosity(before)
    return hooks.install(model, Scheme("none"), Rotation(frozenset(("R4",)), seed=about["seed"]))


def _matrix(signs: operators.Signs, n: int) -> torch.Tensor:
    """W of +-1, float32 (n, n), with x W / sqrt(n) = R4 x."""
    rows = max(1, _ROWS // n)
    result = torch.empty(n, n)
    for start in range(0, n, rows):
        units = torch.zeros(min(rows, n - start), n)
        units.diagonal(start).fill_(1)
        result[start : start + rows] = operators.transform(units, None, 1.0, signs=signs)
    return result
