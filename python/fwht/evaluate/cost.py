"""What the online rotations of a model cost on this device, in microseconds a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import operators
from .._torch.graph_times import times_in_turn
from .rotate import head_length

REPEATS, ROUNDS = 50, 9


def cost(config: Any, dtype: torch.dtype, tokens: int) -> dict[str, float]:
    """Times of R3 and R4 beside the layer's matrix products in `dtype`, replayed as CUDA graphs, the cases in turn.

    Clocks fall while a GPU works: cases that are not taken in turn are not comparable. Needs a CUDA device.
    """
    head = head_length(config)
    heads, kv = config.num_attention_heads, config.num_key_value_heads
    shapes = ((config.hidden_size, (heads + 2 * kv) * head), (heads * head, config.hidden_size),
              (config.hidden_size, 2 * config.intermediate_size), (config.intermediate_size, config.hidden_size))  # fmt: skip

    def make(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", dtype=dtype)

    products = [(make(tokens, k), make(n, k)) for k, n in shapes]
    turned, rows = make(tokens, heads + kv, head), make(tokens, config.intermediate_size)
    signs = operators.random_signs(config.intermediate_size, 1)
    cases: dict[str, Callable[[], Any]] = {
        "products": lambda: [torch.nn.functional.linear(x, w) for x, w in products],
        "R3": lambda: operators.transform(turned),
        "R4": lambda: operators.transform(rows, signs=signs),
    }
    return times_in_turn(cases, repeats=REPEATS, rounds=ROUNDS)
