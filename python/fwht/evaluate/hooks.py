"""Quantization and the online rotations, by hooks of transformers: an attention function and forward pre-hooks."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as functional
from transformers import AttentionInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

from .. import hadamard_transform, operators
from ..quantize import layout_of, round_trip
from .gptq import round_weights
from .rotate import MARK, STATE, Rotation, head_length, linears
from .schemes import Scheme

ATTENTION = "fwht"  # as `attn_implementation` knows it
_TAP = "_fwht_tap"


def attention(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: Any = None, dropout: float = 0.0, **_: Any) -> tuple[Any, None]:
    """What transformers calls behind RoPE and behind the cache: the place of R3 and of the cache's format."""
    scheme, rotation = getattr(module, STATE, (None, None))
    if scheme is not None and rotation is not None:
        turns = "R3" in rotation.names or bool(rotation.block)  # scores stay as they are
        query, key = (quantized(x, encoding, turns) for x, encoding in ((query, scheme.q), (key, scheme.k)))
        value = quantized(value, scheme.v, False)  # R2 is in v_proj and o_proj
    if tap := getattr(module, _TAP, None):
        tap(query, key, value)
    causal = attention_mask is None and query.shape[2] > 1
    out = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, dropout_p=dropout, is_causal=causal, scale=scaling, enable_gqa=query.shape[1] != key.shape[1]
    )
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, attention)
AttentionMaskInterface.register(ATTENTION, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


def quantized(x: torch.Tensor, encoding: str, rotates: bool, signs: Any = None) -> torch.Tensor:
    """x, rotated or not, as its codes stand for it; 16 bits where the encoding is empty."""
    if not encoding:
        return operators.transform(x, signs=signs) if rotates else x
    form, _, grain = encoding.partition(":")
    if grain == "head":  # one scale for all tokens of a head
        encoding = f"{form}:row,t{x.shape[-2] * x.shape[-1]}"
    return round_trip(x.contiguous(), encoding, rotate=rotates, signs=signs)


def check(model: Any, scheme: Scheme) -> None:
    """Raises ValueError where a format does not fit the rows of this model."""
    rows = {"weights": {m.in_features for _, m in linears(model)}, "inputs": {m.in_features for _, m in linears(model)}}
    for part in ("weights", "inputs", "q", "k", "v"):
        encoding = getattr(scheme, part).replace(":head", ":row")
        for n in rows.get(part, {head_length(model.config)}) if encoding else ():
            layout_of(encoding, n)


def install(model: Any, scheme: Scheme, rotation: Rotation, calibration: torch.Tensor | None = None, batch: int = 1) -> Any:
    """Hooks what happens online into a model that `rotate_model` has rotated, and quantizes its weights, in place. What an earlier call
    hooked in is replaced.

    Where scheme or rotation change queries, keys or values, the model's attention becomes `ATTENTION`. Raises ValueError where R4 or blocks
    are in the weights and not in `rotation`, or the reverse, or of another seed.

    calibration: blocks of text, int64 (blocks, length), `batch` at once; a scheme with gptq needs them, ValueError otherwise.
    """
    if scheme.gptq and (calibration is None or not len(calibration)):
        raise ValueError(f"{scheme.name} is calibrated on blocks of text behind those that are measured, and there are none")
    made = getattr(model, MARK, Rotation())
    if (there := _online(made)) != (asked := _online(rotation)):
        raise ValueError(f"the weights have {there} for an online rotation, and {asked} is to be done online; both must be the same")
    signs = rotation.mlp_signs(model) if "R4" in rotation.names else None
    with torch.no_grad():
        for name, module in linears(model):
            for key, hook in list(module._forward_pre_hooks.items()):
                if getattr(hook, "func", None) is _before:
                    del module._forward_pre_hooks[key]
            turns = signs is not None and name.endswith("down_proj")
            if scheme.inputs or turns or rotation.block:
                module.register_forward_pre_hook(
                    functools.partial(_before, encoding=scheme.inputs, signs=signs if turns else None, turns=turns, block=rotation.block)
                )
    if (scheme.q or scheme.k or scheme.v or "R3" in rotation.names) and model.config._attn_implementation != ATTENTION:
        model.set_attn_implementation(ATTENTION)  # others know nothing of them
    for layer in model.model.layers:
        setattr(layer.self_attn, STATE, (scheme, rotation))
    with torch.no_grad():
        if scheme.gptq:
            assert calibration is not None
            round_weights(model, scheme.weights, calibration, batch)
        elif scheme.weights:
            for _, module in linears(model):
                module.weight.copy_(round_trip(module.weight, scheme.weights))
    return model


def _online(rotation: Rotation) -> str:
    """What weights and inputs must have in common, in words."""
    parts = [f"R4 of seed {rotation.seed}"] * ("R4" in rotation.names) + [f"block{rotation.block}"] * bool(rotation.block)
    return " and ".join(parts) or "nothing"


def _before(module: Any, arguments: tuple[Any, ...], *, encoding: str, signs: Any, turns: bool, block: int) -> tuple[Any, ...]:
    x = arguments[0]
    if block:
        x = hadamard_transform(x.reshape(*x.shape[:-1], -1, block)).reshape(x.shape)
    return (quantized(x, encoding, turns, signs), *arguments[1:])
