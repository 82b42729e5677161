"""Trains a small Llama from the corpus and saves it as a folder of `transformers`.

The recipe is plain: AdamW, cosine schedule, a high learning rate, `<s>` in front of every row. Nothing plants
outliers; they come by themselves. The shapes keep the ratios of Llama-3 8B, so that heads and the rows of the
MLP take the kernels that a large model takes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from . import tokens
from .recipes import Recipe
from .tokens import BEGIN


def train(recipe: Recipe, data: Path, output: Path, *, seconds: float | None = None, steps: int = 10**9, say: Callable[[str], None] = print) -> None:
    """Trains for `seconds` (the recipe's by default) or `steps`, whichever ends first, and saves to `output`.

    `data` is what `corpus.build` wrote, or the tokens of it. Progress goes to `say`, a line every 500 steps.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    text = tokens.of(recipe, data, say)
    rows, held_out = (torch.from_numpy(part.astype(np.int32)).to(device) for part in (text.train, text.validation))
    say(f"{len(rows) / 1e6:.2f} M tokens to train on, {len(held_out) / 1e6:.2f} M to validate")

    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=recipe.vocabulary, hidden_size=recipe.hidden, intermediate_size=recipe.mlp, num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads, num_key_value_heads=recipe.kv_heads, head_dim=recipe.head,
            max_position_embeddings=recipe.length, rms_norm_eps=1e-5, tie_word_embeddings=False, bos_token_id=BEGIN,
            eos_token_id=BEGIN, use_cache=False,
        )
    ).to(device)  # fmt: skip
    _initialize(model, recipe)
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": others, "weight_decay": 0.0}],
        lr=recipe.learning_rate, betas=(0.9, 0.95), fused=device == "cuda",
    )  # fmt: skip
    run = torch.compile(model) if device == "cuda" else model
    draw = torch.Generator(device=device).manual_seed(1)

    def loss_of(labels: torch.Tensor) -> torch.Tensor:
        ids = functional.pad(labels[:, :-1], (1, 0), value=BEGIN)
        with torch.autocast(device, torch.bfloat16):
            logits = run(input_ids=ids).logits
        return functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())

    def batch() -> torch.Tensor:
        starts = torch.randint(0, len(rows) - recipe.length, (recipe.batch, 1), generator=draw, device=device)
        return rows[starts + torch.arange(recipe.length, device=device)].long()

    loss_of(batch()).backward()  # compiles, before the clock runs
    optimizer.zero_grad(set_to_none=True)
    begun, step, seconds = time.monotonic(), 0, recipe.seconds if seconds is None else seconds
    while (progress := max((time.monotonic() - begun) / seconds, step / steps)) < 1:
        for group in optimizer.param_groups:
            cosine = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress))
            group["lr"] = recipe.learning_rate * min(1, (step + 1) / recipe.warm_up) * cosine
        loss = loss_of(batch())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % 50 == 0:
            torch.cuda.synchronize() if device == "cuda" else None  # the host must not run ahead of the clock
        if step % 500 == 0:
            say(f"step {step}, {time.monotonic() - begun:.0f} s, loss {loss.item():.3f}")
    taken = time.monotonic() - begun
    with torch.no_grad():
        blocks = held_out[: len(held_out) // recipe.length * recipe.length].view(-1, recipe.length)[:128].long()
        final = sum(loss_of(part).item() * len(part) for part in blocks.split(recipe.batch)) / len(blocks)
    epochs = step * recipe.batch * recipe.length / len(rows)
    say(f"{step} steps in {taken:.0f} s, {epochs:.1f} epochs; validation loss {final:.4f}, perplexity {math.exp(final):.2f}")

    model.to(torch.bfloat16).save_pretrained(output)
    PreTrainedTokenizerFast(tokenizer_object=text.tokenizer, bos_token="<s>", eos_token="<s>").save_pretrained(output)


def _initialize(model: LlamaForCausalLM, recipe: Recipe) -> None:
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            into_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
            torch.nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * recipe.layers) if into_residual else 1))
