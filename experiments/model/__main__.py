"""python -m experiments.model: from Debian packages to a small trained Llama."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path

from . import corpus
from .recipes import RECIPES

# What docs/models.md shows: every format without and with rotation, then single rotations of some.
FORMATS = ("--formats", "all", "--outliers")
SINGLE = ("--formats", "fp8-attention,kv4,w4a4-int4,w4a4-mxfp4,w4a4-nvfp4,w4a16-gptq", "--rotations", "r1,r2,r3,r4,r12,block32,block128")


def evaluate(model: Path, data: Path, length: int, output: Path) -> int:
    """`python -m fwht.evaluate` on 240 blocks of the validation text; times of the online rotations too where there is a GPU."""
    import torch
    from fwht.evaluate.program import main as fwht_evaluate

    with tempfile.NamedTemporaryFile("w", encoding="utf8", suffix=".txt") as text:
        text.write(corpus.SEPARATOR.join(corpus.read(data, "validation")))
        text.flush()
        asked = [str(model), "--text", text.name, "--length", str(length), "--tokens", str(240 * length), "--batch", "16", "--output", str(output)]
        code = fwht_evaluate([*asked, *FORMATS])
        return code or fwht_evaluate([*asked, *SINGLE, *(["--cost"] if torch.cuda.is_available() else [])])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.model",
        description="Trains a small Llama on text from Debian packages: what fwht.evaluate is shown on. "
        "Needs torch, transformers, tokenizers; a GPU, or patience.",
    )
    parser.add_argument("--size", choices=tuple(RECIPES), default="main", help="32.5 M parameters in 150 s, or 1.2 M in 45 s")
    parser.add_argument("--corpus", type=Path, default=Path("build/corpus"), help="where the text is, or is made (apt-get download: 0.3 GB)")
    parser.add_argument("--output", type=Path, help="folder of the model (default: build/model-SIZE)")
    parser.add_argument("--seconds", type=float, help="train for so long instead of the recipe's time")
    parser.add_argument("--steps", type=int, default=10**9, help="end after so many steps")
    parser.add_argument("--evaluate", type=Path, metavar="DIR", help="then measure it in every format, by fwht.evaluate: evaluation.json, training.txt")
    parser.add_argument("--corpus-only", action="store_true", help="make the text and its tokens, train nothing: needs no PyTorch and no GPU")
    arguments = parser.parse_args()
    output = arguments.output or Path(f"build/model-{arguments.size}")
    trained = (output / "config.json").exists()
    if trained and not arguments.corpus_only and arguments.evaluate is None:
        parser.error(f"{output} holds a model already; --evaluate DIR measures it")
    if arguments.evaluate is not None and importlib.util.find_spec("fwht") is None:
        parser.error("--evaluate needs the package fwht (pip install ., or PYTHONPATH=python and FWHT_LIBRARY)")
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    if not (arguments.corpus / "sources.csv").is_file():
        packages = arguments.corpus / "packages"
        packages.mkdir(parents=True, exist_ok=True)
        try:
            corpus.build(packages, arguments.corpus, say)
        except corpus.Unavailable as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    if arguments.corpus_only:
        from . import tokens

        tokens.of(RECIPES[arguments.size], arguments.corpus, say)
        return 0
    if not trained:
        from .train import train

        train(RECIPES[arguments.size], arguments.corpus, output, seconds=arguments.seconds, steps=arguments.steps, say=say)
        print(f"saved to {output}", flush=True)  # not in training.txt, which goes into a results folder
    if arguments.evaluate is None:
        return 0
    if not trained:
        arguments.evaluate.mkdir(parents=True, exist_ok=True)
        (arguments.evaluate / "training.txt").write_text("\n".join(lines) + "\n", encoding="utf8")
    return evaluate(output, arguments.corpus, RECIPES[arguments.size].length, arguments.evaluate)


if __name__ == "__main__":
    sys.exit(main())
