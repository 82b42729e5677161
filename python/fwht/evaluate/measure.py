"""Perplexity and KL by blocks of text, and intervals by a paired bootstrap over the blocks."""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

SLICE = 2048  # tokens whose logits are in memory at once


@dataclass(frozen=True)
class Text:
    """Blocks of tokens, each behind the model's first token if it has one: int64 (blocks, length)."""

    blocks: torch.Tensor
    sha256: str


def blocks_of(tokenizer: Any, text: str, length: int, tokens: int, vocabulary: int) -> Text:
    """Documents (apart by NUL) behind one another, cut into blocks. Raises ValueError for a text shorter than one block."""
    begin = tokenizer.bos_token_id
    ids: list[int] = []
    for document in text.split("\0"):
        ids += tokenizer(document, add_special_tokens=False)["input_ids"] + ([] if begin is None else [begin])
        if len(ids) > tokens + length:
            break
    step = length - (begin is not None)
    count = min(len(ids) // step, tokens // length)
    if count < 1:
        raise ValueError(f"the text has {len(ids)} tokens and {tokens} are asked for; one block takes {length}")
    if (largest := max(ids)) >= vocabulary:
        raise ValueError(f"the tokenizer gives token {largest}, but the model has a vocabulary of {vocabulary}")
    rows = torch.tensor(ids[: count * step]).view(count, step)
    if begin is not None:
        rows = torch.cat((torch.full((count, 1), begin), rows), 1)
    return Text(rows, hashlib.sha256(text.encode()).hexdigest())


class Reference:
    """The unquantized model's last hidden states, on the host, and its head: so that one model is in memory at a time."""

    def __init__(self, model: Any, text: Text, batch: int):
        self.head = model.lm_head.weight.detach().clone()
        self.text, self.batch = text, batch
        self.hidden = [hidden.cpu() for hidden in _hidden_states(model, text, batch)]
        self.loss = self.measure(model)[:, 0]

    def measure(self, model: Any) -> np.ndarray:
        """By block: negative log likelihood, KL from the reference (nats a token), share of tokens with the same first choice."""
        rows = []  # on the device until the end: nothing waits for it
        for ids, hidden, known in zip(self.text.blocks.split(self.batch), _hidden_states(model, self.text, self.batch), self.hidden, strict=True):
            ids, known, last = ids.to(hidden.device), known.to(hidden.device), ids.shape[1] - 1
            for block in range(len(ids)):
                sums = torch.zeros(3, dtype=torch.float64, device=hidden.device)
                for start in range(0, last, SLICE):
                    some = slice(start, min(start + SLICE, last))
                    ours = torch.log_softmax((hidden[block, some] @ model.lm_head.weight.t()).float(), -1)
                    theirs = torch.log_softmax((known[block, some] @ self.head.t()).float(), -1)
                    next_ids = ids[block, some.start + 1 : some.stop + 1]
                    sums += torch.stack((
                        -ours.gather(-1, next_ids[:, None]).sum(),
                        (theirs.exp() * (theirs - ours)).sum(),
                        (theirs.argmax(-1) == ours.argmax(-1)).sum().float(),
                    )).double()  # fmt: skip
                rows.append(sums / last)
        return torch.stack(rows).cpu().numpy()


def _hidden_states(model: Any, text: Text, batch: int) -> Any:
    device = model.lm_head.weight.device
    for ids in text.blocks.split(batch):
        with torch.no_grad():
            yield model.model(ids.to(device), use_cache=False).last_hidden_state


def interval(values: np.ndarray, times: int = 2000) -> tuple[float, float]:
    """95 % of means over resampled blocks, about the mean as much wider as Student's t asks for so few of them. The resamples depend on the
    number of blocks alone, so that differences are paired."""
    return _interval(np.asarray(values, np.float64).tobytes(), times)


@functools.lru_cache(1 << 12)  # a table is written again with every row of it
def _interval(of_blocks: bytes, times: int) -> tuple[float, float]:
    values = np.frombuffer(of_blocks)
    low, high = np.percentile(values[_picks(len(values), times)].mean(1), [2.5, 97.5])
    mean, wider = values.mean(), _wider(len(values))
    return float(mean + wider * (low - mean)), float(mean + wider * (high - mean))


_T = (math.nan, 12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060)  # 97.5 % of Student's t, by degrees of freedom


def _wider(blocks: int) -> float:
    """Resampling takes n for n - 1, and as many blocks as there are for all that there could be."""
    z, free = 1.959964, blocks - 1
    if free < 1:
        return 1.0
    t = _T[free] if free < len(_T) else z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
    return float(t / z * math.sqrt(blocks / free))


@functools.lru_cache(1)
def _picks(count: int, times: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, count, (times, count))
