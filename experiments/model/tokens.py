"""The corpus as tokens of a tokenizer of its own. Needs NumPy and tokenizers, but no PyTorch: they are made before a GPU is there.

The same text and version of tokenizers give the same tokens on every machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from . import corpus
from .recipes import Recipe

BEGIN = 0  # the token `<s>`
_AT_ONCE = 2000  # documents; an encoding takes a hundred bytes a token while it is read
_PARTS = ("train", "validation")


class Tokens(NamedTuple):
    """uint16; all documents in one row, each behind `<s>`."""

    tokenizer: Tokenizer
    train: np.ndarray
    validation: np.ndarray


def of(recipe: Recipe, data: Path, say: Callable[[str], None] = print) -> Tokens:
    """Those of the text in `data` (`corpus.build`): read where they lie beside it, else made and written there.

    Beside the tokens nothing but validation.txt.xz and sources.csv is needed any more: where train.txt.xz is missing, they are taken as they are.
    """
    stem = data / f"tokens-{recipe.vocabulary}-{recipe.documents or 'all'}"
    kept, words = stem.with_suffix(".npz"), stem.with_suffix(".json")
    if kept.is_file() and words.is_file():
        with np.load(kept) as file:
            if all(not _file(data, part).is_file() or str(file[f"sha256_of_{part}"]) == _hash(data, part) for part in _PARTS):
                return Tokens(Tokenizer.from_file(str(words)), *(file[part] for part in _PARTS))
    texts = corpus.read(data, "train")[: recipe.documents]
    tokenizer = _tokenizer_of(texts[:: max(1, len(texts) // 4000)], recipe.vocabulary)
    made = Tokens(tokenizer, _row_of(tokenizer, texts), _row_of(tokenizer, corpus.read(data, "validation")))
    tokenizer.save(str(words))
    part_way = stem.with_suffix(".part.npz")  # what is there under its name is whole
    np.savez_compressed(part_way, train=made.train, validation=made.validation, **{f"sha256_of_{part}": np.array(_hash(data, part)) for part in _PARTS})
    part_way.replace(kept)
    say(f"{kept.name}: {len(made.train) / 1e6:.2f} M tokens")
    return made


def _file(data: Path, part: str) -> Path:
    return data / f"{part}.txt.xz"


def _hash(data: Path, part: str) -> str:
    return hashlib.sha256(_file(data, part).read_bytes()).hexdigest()


def _tokenizer_of(texts: list[str], vocabulary: int) -> Tokenizer:
    """A byte-level BPE tokenizer with digits apart; `<s>` is token 0."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=["<s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _row_of(tokenizer: Tokenizer, texts: list[str]) -> np.ndarray:
    some = (texts[start : start + _AT_ONCE] for start in range(0, len(texts), _AT_ONCE))
    rows = [np.array([BEGIN, *encoding.ids], np.uint16) for part in some for encoding in tokenizer.encode_batch_fast(part)]
    return np.concatenate(rows)
