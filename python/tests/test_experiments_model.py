"""experiments/model: the corpus as tokens, which are made without PyTorch and kept."""

import dataclasses
import lzma
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tokenizers")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from experiments.model import corpus, tokens  # noqa: E402
from experiments.model.recipes import RECIPES  # noqa: E402

RECIPE = dataclasses.replace(RECIPES["tiny"], vocabulary=300, documents=None)


def write(folder, part, texts):
    (folder / f"{part}.txt.xz").write_bytes(lzma.compress(corpus.SEPARATOR.join(texts).encode()))


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, "train", [f"document {i} says that {i} and {i} are {2 * i}" for i in range(50)])
    write(tmp_path, "validation", ["that 7 and 7 are 14", "that is all"])
    return tmp_path


def same(a, b):
    return np.array_equal(a.train, b.train) and np.array_equal(a.validation, b.validation) and a.tokenizer.to_str() == b.tokenizer.to_str()


def test_tokens_are_made_once_and_read_again(folder, monkeypatch):
    said = []
    made = tokens.of(RECIPE, folder, said.append)
    assert said == [f"tokens-300-all.npz: {len(made.train) / 1e6:.2f} M tokens"] and made.train.dtype == np.uint16
    assert np.count_nonzero(made.train == tokens.BEGIN) == 50 and np.count_nonzero(made.validation == tokens.BEGIN) == 2
    first, second = np.flatnonzero(made.validation == tokens.BEGIN)
    assert made.tokenizer.decode(made.validation[first + 1 : second].tolist()) == "that 7 and 7 are 14"
    monkeypatch.setattr(tokens, "_AT_ONCE", 7)  # the number of documents at once does not matter
    (folder / "tokens-300-all.npz").unlink()
    assert same(tokens.of(RECIPE, folder, said.append), made)
    monkeypatch.setattr(corpus, "read", lambda *_: pytest.fail("the text is read again"))
    assert same(tokens.of(RECIPE, folder, said.append), made) and len(said) == 2
    (folder / "train.txt.xz").unlink()  # as on a machine that is given the tokens alone
    assert same(tokens.of(RECIPE, folder, said.append), made)


def test_tokens_of_another_text_are_made_anew(folder):
    made = tokens.of(RECIPE, folder, lambda line: None)
    write(folder, "validation", ["another text"])
    again = tokens.of(RECIPE, folder, lambda line: None)
    assert np.array_equal(made.train, again.train) and not np.array_equal(made.validation, again.validation)
    assert len(tokens.of(dataclasses.replace(RECIPE, documents=10), folder, lambda line: None).train) < len(made.train)


def test_tokens_need_no_pytorch(folder):
    program = """
import sys
sys.modules["torch"] = sys.modules["transformers"] = None
from experiments.model.__main__ import main
sys.argv = ["", "--size", "tiny", "--corpus", sys.argv[1], "--corpus-only"]
sys.exit(main())
"""
    (folder / "sources.csv").touch()
    done = subprocess.run([sys.executable, "-c", program, str(folder)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and (folder / "tokens-1024-3000.npz").is_file(), done.stderr[-2000:]
