"""A rotated model as a folder, and back.

R1 and R2 are in the weights alone, so the folder is a plain checkpoint. R4 also acts online: its config.json names it in the words of
compressed-tensors (`transform_config`), and its matrix of +-1 is stored once, under the name that vLLM reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import torch
import transformers

from .. import operators
from . import hooks
from .rotate import MARK, Rotation, check, rotate_model, rotate_weights
from .schemes import Scheme

_TARGETS = "re:.*mlp[.]down_proj$"
_MATRIX = "model.layers.0.mlp.down_proj.R4_input.weight"  # all layers share it
_ROWS = 1 << 22  # elements of the matrix that are formed at once


def save_rotated(model: Any, folder: str | Path, rotations: str | Rotation = "R1,R2", *, seed: int | None = None) -> None:
    """Rotates a model in place, and writes it as a checkpoint of transformers.

    Args:
        model, rotations, seed: as `fwht.rotate_model`. With R4 the folder takes 2 n^2 bytes more in 16 bits, for rows of n =
            intermediate_size, and its reader must know `transform_config`: vLLM, `compressed_tensors.transform`, `load_rotated`.
            transformers 5 itself does not: it raises ImportError without compressed-tensors, and leaves R4 out with it. The model in
            memory then wants R4 online, as that of `fwht.rotate_model`, and cannot be saved again by `save_pretrained`.
        folder: made where it is missing; one that holds anything is refused, so that no checkpoint is written over, least of all the
            one that the model was read from.

    Raises TypeError and ValueError as `fwht.rotate_model`, ValueError for R3 and blocks, which are no part of a checkpoint, and OSError
    for a folder that is not empty or cannot be made; nothing is rotated or written then.
    """
    rotation = Rotation.of(rotations, seed)
    if "R3" in rotation.names or rotation.block:
        raise ValueError("a checkpoint holds R1, R2 and R4; R3 and blocks are done online alone")
    check(model, rotation)
    check_folder(folder)
    Path(folder).mkdir(parents=True, exist_ok=True)  # transformers only logs that it cannot
    if "R4" not in rotation.names:
        _save(rotate_weights(model, rotation), folder)
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
    _save(model, folder, state_dict=model.state_dict() | {_MATRIX: matrix})
    model.save_pretrained = _refuse_to_save  # its config.json would name a matrix that it leaves out


def _save(model: Any, folder: str | Path, **options: Any) -> None:
    from safetensors import SafetensorError

    try:
        model.save_pretrained(folder, **options)
    except SafetensorError as error:  # a full disk, for example, is no OSError there
        raise OSError(f"{folder} cannot be written: {error}") from None


def check_folder(folder: str | Path) -> None:
    """Raises FileExistsError for what is there and is no empty folder."""
    path = Path(folder)
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise FileExistsError(f"{path} is {'not empty' if path.is_dir() else 'a file'}; a checkpoint is written to an empty folder, or to a new one")


def load_rotated(folder: str | Path, **options: Any) -> Any:
    """The model of `save_rotated`, with R4 by this library in front of the last layer of each MLP.

    Args:
        folder: of a checkpoint on this machine. Others than those of `save_rotated` are loaded as they are.
        options: those of `transformers.AutoModelForCausalLM.from_pretrained`, such as dtype. config= is not taken for
            a folder with R4, whose own says how it was rotated.

    A model with R4 cannot be saved again by `save_pretrained`, which would leave out the online part: NotImplementedError.

    Raises FileNotFoundError for a folder without config.json; ValueError where this version forms another operator for rows of
    intermediate_size, and for a config.json that lacks what `save_rotated` wrote; TypeError for config= with R4.
    """
    if not (Path(folder) / "config.json").is_file():  # else transformers takes it for a name, and asks the network
        raise FileNotFoundError(f"{folder} is no folder with a config.json")
    config = transformers.AutoConfig.from_pretrained(folder)
    about = getattr(config, "fwht", None)
    if about is None:
        return transformers.AutoModelForCausalLM.from_pretrained(folder, **options)
    if "config" in options:
        raise TypeError(f"config= is given, but {folder} has R4, which its own config.json describes; leave config out")
    if missing := [key for key in ("operator", "seed") if key not in about] + ["quantization_config"] * (not hasattr(config, "quantization_config")):
        raise ValueError(f"{folder}: config.json is of a rotated model, but lacks {', '.join(missing)}; write the folder again with save_rotated")
    if about["operator"] != (ours := operators.operator_for(config.intermediate_size)):
        raise ValueError(f"{folder} was rotated by the operator {about['operator']}; this version has {ours} for rows of {config.intermediate_size}")
    del config.quantization_config
    before = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity_error()  # else it warns of the matrix, which only others read
    try:
        found = transformers.AutoModelForCausalLM.from_pretrained(folder, config=config, **options)
    finally:
        transformers.utils.logging.set_verbosity(before)
    model = found[0] if isinstance(found, tuple) else found  # with output_loading_info
    model.save_pretrained = _refuse_to_save
    rotation = Rotation(frozenset(("R4",)), seed=about["seed"])
    setattr(model, MARK, rotation)
    hooks.install(model, Scheme("none"), rotation)
    return found


def _refuse_to_save(*_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError("the model has R4 online, which save_pretrained would lose; copy its folder, or rotate the original by save_rotated")


def _matrix(signs: operators.Signs, n: int) -> torch.Tensor:
    """W of +-1, float32 (n, n), with x W / sqrt(n) = R4 x."""
    rows = max(1, _ROWS // n)
    result = torch.empty(n, n, dtype=torch.float32, device="cpu")
    for start in range(0, n, rows):
        units = result.new_zeros(min(rows, n - start), n)
        units.diagonal(start).fill_(1)
        result[start : start + rows] = operators.transform(units, None, 1.0, signs=signs)
    return result
