"""How far the inputs of a model's layers are from normal data, before and after a rotation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from .. import operators
from .hooks import _TAP
from .measure import Text
from .rotate import head_length

SITES = {"attention": "self_attn.q_proj", "output": "self_attn.o_proj", "mlp": "mlp.gate_proj", "down": "mlp.down_proj"}


def check(config: Any) -> None:
    """Raises ValueError where a length that is looked at has no operator."""
    head = head_length(config)
    for n in (config.hidden_size, head * config.num_attention_heads, config.intermediate_size, head):
        try:
            operators.operator_for(n)
        except ValueError as error:
            raise ValueError(f"--outliers rotates all inputs of layers, queries, keys and values: {str(error).removeprefix('fwht: ')}") from error


def outliers(model: Any, text: Text, batch: int) -> list[dict[str, Any]]:
    """By layer and site: kurtosis over the channels of a token (normal: 3) and largest over RMS, plain and rotated.

    The first token of a block is apart, as `first`: massive activations live there.
    """
    sums: dict[tuple[int, str], list[torch.Tensor]] = {}

    def take(layer: int, site: str, x: torch.Tensor) -> None:
        both = (x, operators.transform(x.contiguous()))
        sums.setdefault((layer, site), []).append(torch.cat([_moments(y.float()) for y in both]).cpu())

    handles = []
    for index, layer in enumerate(model.model.layers):
        for site, path in SITES.items():
            handles.append(layer.get_submodule(path).register_forward_pre_hook(functools.partial(_before, take, index, site)))

        def tap(query: Any, key: Any, value: Any, index: int = index) -> None:
            for site, x in (("query", query), ("key", key), ("value", value)):
                take(index, site, x)

        setattr(layer.self_attn, _TAP, tap)
    try:
        with torch.no_grad():
            for ids in text.blocks.split(batch):
                model.model(ids.to(model.device), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
        for layer in model.model.layers:
            delattr(layer.self_attn, _TAP)
    names = [f"{what}{when}" for when in ("", "_rotated") for what in ("kurtosis", "largest", "first")]
    return [
        {"layer": layer, "site": site, **dict(zip(names, torch.stack(parts).mean(0).tolist(), strict=True))} for (layer, site), parts in sorted(sums.items())
    ]


def _before(take: Callable[[int, str, Any], None], layer: int, site: str, _: Any, inputs: tuple[Any, ...]) -> None:
    take(layer, site, inputs[0])


def _moments(x: torch.Tensor) -> torch.Tensor:
    body, first = x[..., 1:, :], x[..., :1, :]
    squares = body.pow(2).mean(-1).clamp(min=1e-30)
    rms = squares.mean().sqrt()
    fourth = (body / squares.sqrt()[..., None]).pow(4)  # of the quotient: squares of squares leave the range of float32
    return torch.stack((fourth.mean(), body.abs().amax() / rms, first.abs().amax() / rms))
