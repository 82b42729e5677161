"""Rotations of a model's weights that leave its function as it is.

Every weight is read once, changed in float64 and rounded once. R3 and R4 also act online: `hooks.py` installs that part.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .. import operators
from .._torch.eager import require_memory

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

STATE = "_fwht_state"  # of an attention layer: the scheme and rotation that `hooks.install` gave it
MARK = "_fwht_rotation"  # of a model: the rotation with an online part that is in its weights
MOST_SEEDS = 1 << 63  # each gives two seeds of signs

Map = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Rotation:
    """Which rotations a model has.

    plain: not even the gains of the norms are folded. block: H_block in front of every linear layer, on every `block` inputs,
    instead of R1, R2 and R4. seed: of the random signs of R1 and R4.
    """

    names: frozenset[str] = frozenset()
    plain: bool = False
    block: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.names, (set, frozenset)) or not self.names <= {"R1", "R2", "R3", "R4"}:
            raise ValueError(f"names={self.names!r} must be a set of some of 'R1', 'R2', 'R3' and 'R4'")
        object.__setattr__(self, "names", frozenset(self.names))
        if not hasattr(self.seed, "__index__") or not 0 <= self.seed < MOST_SEEDS:
            raise ValueError(f"seed={self.seed!r} must be an integer from 0 to 2^63 - 1")
        object.__setattr__(self, "seed", int(self.seed))  # of NumPy, too

    @classmethod
    def parse(cls, text: str, seed: int = 0) -> Rotation:
        """From "plain", "folded", "rotated" (all four), "R1,R2" (also "r12") or "block32". Raises ValueError with the forms, and for a seed
        outside 0 to 2^63 - 1."""
        if text in ("plain", "folded"):
            return cls(plain=text == "plain", seed=seed)
        if text == "rotated":
            return cls(frozenset(("R1", "R2", "R3", "R4")), seed=seed)
        if re.fullmatch(r"block[1-9][0-9]*", text):
            return cls(block=int(text[5:]), seed=seed)
        if re.fullmatch(r"[rR]([1-4]+|[1-4]([,+][rR][1-4])+)", text):
            return cls(frozenset(f"R{digit}" for digit in re.findall("[1-4]", text)), seed=seed)
        raise ValueError(f"no rotation {text!r}; the forms are plain, folded, rotated, R1,R2 (or r12), and block32")

    @classmethod
    def of(cls, given: Any, seed: int | None = None) -> Rotation:
        """A rotation as it is, or of a text. Raises TypeError for what is neither, ValueError for a second seed."""
        if isinstance(given, str):
            return cls.parse(given, 0 if seed is None else seed)
        if not isinstance(given, cls):
            raise TypeError(f"rotations is a {type(given).__name__}; it must be a Rotation, or a text such as R1,R2, rotated or folded")
        if seed is not None:
            raise ValueError(f"seed={seed} is given, but the Rotation has seed={given.seed}")
        return given

    @property
    def is_online(self) -> bool:
        """Whether weights that are rotated so want inputs that are, too."""
        return "R4" in self.names or bool(self.block)

    def mlp_signs(self, model: Any) -> operators.Signs:
        return operators.random_signs(model.config.intermediate_size, 2 * self.seed + 1)


def rotate_model(model: Any, rotations: str | Rotation = "R1,R2", *, seed: int | None = None) -> Any:
    """Folds the gains of the norms and rotates the weights of a transformers model, in place. Needs transformers.

    Args:
        model: a causal language model of llama, mistral, qwen2 or qwen3, in any floating type. Tied embeddings are untied.
        rotations: any of R1 to R4, as "R1,R2" or "rotated"; "folded" folds the gains alone. With R4 the last layer of each
            MLP wants rotated inputs: `fwht.evaluate.hooks.install` gives them. Until then the model computes
            something else, of which a UserWarning tells. So it is with blocks. R3 changes no weight.
        seed: of the random signs of R1 and R4, 0 to 2^63 - 1; None: 0, or that of a `Rotation`.

    Returns: model, which computes the same function with R1 and R2, up to one rounding of every weight.

    Raises TypeError for what is no causal language model of transformers, or no rotation; ValueError for another
    family, a layer without an operator of its length, a seed beside that of a `Rotation`, and weights without numbers,
    of inference mode, or shared by layers; TypeError for weights of parametrizations, pruning, or quantized layers, too.
    So it does for a model that has R4 or blocks online already, or in its weights where they are asked for again.
    Nothing is changed then.

    Source: QuaRot (Ashkboos et al. 2024), SpinQuant (Liu et al. 2024).
    """
    rotation = Rotation.of(rotations, seed)
    rotate_weights(model, rotation)
    if rotation.is_online:
        what = "R4" if "R4" in rotation.names else f"block{rotation.block}"
        missing = "until fwht.evaluate.hooks.install rotates their inputs, the model computes something else"
        warnings.warn(f"{what} is in the weights alone: {missing}", stacklevel=2)
    return model


def rotate_weights(model: Any, rotation: Rotation) -> Any:
    """`rotate_model` for callers that see to what is done online."""
    check(model, rotation)
    if rotation.plain:
        return model
    if rotation.is_online:
        setattr(model, MARK, rotation)
    residual, values, mlp = _maps(model, rotation)
    config, body = model.config, model.model
    if model.lm_head.weight is body.embed_tokens.weight:
        tied = model.lm_head.weight
        model.lm_head.weight = torch.nn.Parameter(tied.detach().clone(), tied.requires_grad)
    config.tie_word_embeddings = False
    with torch.no_grad():
        if residual:
            _store(body.embed_tokens, residual(_double(body.embed_tokens.weight)))
        _change(model.lm_head, gain=body.norm, inputs=residual)
        for layer in body.layers:
            attention, feed = layer.self_attn, layer.mlp
            for linear in (attention.q_proj, attention.k_proj):
                _change(linear, gain=layer.input_layernorm, inputs=residual)
            _change(attention.v_proj, gain=layer.input_layernorm, inputs=residual, outputs=values)
            _change(attention.o_proj, inputs=values, outputs=residual)
            for linear in (feed.gate_proj, feed.up_proj):
                _change(linear, gain=layer.post_attention_layernorm, inputs=residual)
            _change(feed.down_proj, inputs=mlp, outputs=residual)
            for norm in (layer.input_layernorm, layer.post_attention_layernorm):
                norm.weight.fill_(1)
            if rotation.block:
                for name in LINEARS:
                    _change(getattr(attention if hasattr(attention, name) else feed, name), inputs=_by_heads(rotation.block))
        body.norm.weight.fill_(1)
    return model


def check(model: Any, rotation: Rotation) -> None:
    """Raises ValueError where this rotation of this model is not offered, with the reason; TypeError for what is no such model."""
    if not isinstance(model, torch.nn.Module) or not hasattr(model, "config"):
        raise TypeError(f"model is a {type(model).__module__}.{type(model).__qualname__}; it must be a causal language model of transformers")
    check_family(model.config)
    if not hasattr(model, "model") or not hasattr(model, "lm_head"):
        raise TypeError(f"model is a {type(model).__qualname__}, which has no layers `model` and `lm_head`; AutoModelForCausalLM gives a model that has")
    for layer in model.model.layers:
        _, online = getattr(layer.self_attn, STATE, (None, Rotation()))
        if online.is_online:  # what is in the weights and what is done online would no longer fit
            raise ValueError("the model has R4 or blocks online already, as of load_rotated; rotate the original")
    if rotation.is_online and hasattr(model, MARK):
        raise ValueError("the model has R4 or blocks in its weights already, as of rotate_model; rotate the original")
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            raise ValueError(f"{name} is on the meta device, which has no numbers to rotate; load the model's weights first")
        require_memory(parameter)
    if not rotation.plain:
        _check_weights(model)
    widths = {"hidden_size": "R1", "intermediate_size": "R4"}
    for field, name in widths.items():
        if name in rotation.names:
            try:
                operators.operator_for(getattr(model.config, field))
            except ValueError as error:
                raise ValueError(f"{name} rotates rows of {field}: {str(error).removeprefix('fwht: ')}") from error
    head = head_length(model.config)
    if rotation.names & {"R2", "R3"} and head & (head - 1):
        raise ValueError(f"R2 and R3 rotate heads of 2^k elements; these have {head}")
    if rotation.block == 1:
        raise ValueError("block1 rotates nothing; blocks have 2^k inputs, from 2 on")
    if rotation.block:
        for name, module in linears(model):
            if module.in_features % rotation.block or rotation.block & (rotation.block - 1):
                raise ValueError(f"block{rotation.block} does not divide the {module.in_features} inputs of {name} into rows of 2^k")


def _check_weights(model: Any) -> None:
    """Raises TypeError for layers whose weights cannot be written, or are of others than torch.nn.Linear; ValueError for shared ones."""
    for name, module in [("model.embed_tokens", model.model.embed_tokens), *linears(model), ("lm_head", model.lm_head)]:
        if not isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
            raise TypeError(f"{name} is a {type(module).__module__}.{type(module).__qualname__}, not a torch.nn.Linear; rotate a model before its layers are replaced")
        for part in ("weight", "bias"):
            if hasattr(module, part) and part not in module._parameters:  # what is written to it would be lost
                raise TypeError(f"the {part} of {name} is computed from other parameters; remove the parametrization or the pruning first")
    tied = {"model.embed_tokens.weight", "lm_head.weight"}
    names: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter.is_inference() and not torch.is_inference_mode_enabled():
            raise ValueError(f"{name} was made in inference mode, outside of which it cannot be changed; load the model without it")
        first = names.setdefault(id(parameter), name)
        if first != name and {first, name} != tied:
            raise ValueError(f"{first} and {name} are one parameter, which would be rotated twice; give each layer its own")


def check_family(config: Any) -> None:
    """Raises ValueError for a family whose norms and matrices this module does not know."""
    family = getattr(config, "model_type", None)
    if family not in FAMILIES:
        raise ValueError(f"models of the family {family!r} are not offered; {', '.join(FAMILIES)} are: others place gains, or fuse matrices, differently")


def linears(model: Any) -> list[tuple[str, torch.nn.Linear]]:
    """The layers that are quantized: all but embedding and head."""
    return [(name, module) for name, module in model.named_modules() if name.rsplit(".", 1)[-1] in LINEARS]


def head_length(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def _maps(model: Any, rotation: Rotation) -> tuple[Map | None, Map | None, Map | None]:
    def signed(signs: operators.Signs) -> Map:
        return lambda rows: operators.transform(rows, signs=signs)

    residual = signed(operators.random_signs(model.config.hidden_size, 2 * rotation.seed)) if "R1" in rotation.names else None
    mlp = signed(rotation.mlp_signs(model)) if "R4" in rotation.names else None
    # One H for every head: grouped queries then need nothing more.
    return residual, _by_heads(head_length(model.config)) if "R2" in rotation.names else None, mlp


def _by_heads(length: int) -> Map:
    return lambda rows: operators.transform(rows.reshape(*rows.shape[:-1], -1, length)).reshape(rows.shape)


def _double(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.detach().to("cpu", torch.float64, copy=True)  # float64 kernels are on the host


def _change(linear: Any, *, gain: Any = None, inputs: Map | None = None, outputs: Map | None = None) -> None:
    """W becomes Q_out W diag(gain) Q_in^T, and b Q_out b."""
    weight = _double(linear.weight)
    if gain is not None:
        weight *= _double(gain.weight)
    if inputs:
        weight = inputs(weight)
    if outputs:
        weight = outputs(weight.t().contiguous()).t()
        if linear.bias is not None:
            linear.bias.copy_(outputs(_double(linear.bias)))
    _store(linear, weight)


def _store(module: Any, weight: torch.Tensor) -> None:
    module.weight.copy_(weight.to(module.weight.dtype))
