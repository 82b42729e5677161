"""Weights rounded so that the errors of earlier columns are taken up by later ones (GPTQ, Frantar et al. 2022)."""

from __future__ import annotations

from typing import Any

import torch

from .rotate import linears

DAMPING = 0.01  # of the mean diagonal of X^T X, added to it
COLUMNS = 128  # whose errors reach the columns behind them in one product


def round_weights(model: Any, encoding: str, blocks: torch.Tensor, batch: int) -> None:
    """Rounds the linear layers of a model in place, one decoder layer after the other, each on what the rounded ones before give it.

    Args:
        model: a causal language model of transformers with its hooks installed: what a layer takes behind them counts.
        encoding: "int<bits>:row" or "int<bits>:<group>".
        blocks: int64 (blocks, length): text apart from what the model is measured on.
        batch: blocks at once.
    """
    for layer in model.model.layers:
        modules = [module for _, module in linears(layer)]
        for module, gram in zip(modules, _grams(model, modules, blocks, batch), strict=True):
            module.weight.copy_(rounded(module.weight, gram, encoding))


def _grams(model: Any, modules: list[Any], blocks: torch.Tensor, batch: int) -> list[torch.Tensor]:
    """X^T X, float64 (k, k), of the inputs of each module."""
    grams = [torch.zeros(module.in_features, module.in_features, dtype=torch.float64, device=module.weight.device) for module in modules]

    def add(gram: torch.Tensor) -> Any:
        def hook(_: Any, arguments: tuple[Any, ...]) -> None:
            x = arguments[0].reshape(-1, len(gram)).float()
            gram.add_(x.t() @ x)

        return hook

    handles = [module.register_forward_pre_hook(add(gram)) for module, gram in zip(modules, grams, strict=True)]
    try:
        for ids in blocks.split(batch):
            model.model(ids.to(modules[0].weight.device), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return grams


def rounded(weight: torch.Tensor, gram: torch.Tensor, encoding: str) -> torch.Tensor:
    """The numbers that codes of `weight` (outputs, k) stand for, in float64, with little error on inputs of this X^T X.

    Scales are the largest element over the largest code, of a row or of each group as it is when its first column is rounded.
    """
    form, _, grain = encoding.partition(":")
    largest = 2 ** (int(form.removeprefix("int")) - 1) - 1
    w = weight.double().clone()
    k = w.shape[1]
    group = k if grain == "row" else int(grain)
    gram = gram.clone()
    diagonal = gram.diagonal()
    diagonal[diagonal == 0] = 1  # inputs that are never used
    diagonal += DAMPING * diagonal.mean()
    upper = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(gram)), upper=True)
    result = torch.empty_like(w)
    scale = w.new_zeros(len(w))
    for start in range(0, k, COLUMNS):
        stop = min(start + COLUMNS, k)
        errors = w.new_zeros(len(w), stop - start)
        for i in range(start, stop):
            if i % group == 0:
                if i + group > stop:  # columns behind this block have not seen its errors yet
                    w[:, stop:] -= errors @ upper[start:stop, stop:]
                    scale = w[:, i : i + group].abs().amax(1) / largest
                    w[:, stop:] += errors @ upper[start:stop, stop:]
                else:
                    scale = w[:, i : i + group].abs().amax(1) / largest
                scale = torch.where(scale == 0, 1.0, scale)
            result[:, i] = (w[:, i] / scale).round().clamp(-largest, largest) * scale
            errors[:, i - start] = (w[:, i] - result[:, i]) / upper[i, i]
            w[:, i:stop] -= errors[:, i - start, None] * upper[i, i:stop]
        w[:, stop:] -= errors @ upper[start:stop, stop:]
    return result
