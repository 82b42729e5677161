"""python -m experiments.model: from Debian packages to a small trained Llama."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import corpus


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.model",
        description="Trains a small Llama on text from Debian packages: what fwht.evaluate is shown on. "
        "Needs torch, transformers, tokenizers; a GPU, or patience.",
    )
    parser.add_argument("--size", choices=("main", "tiny"), default="main", help="32.5 M parameters in 150 s, or 1.2 M in 45 s")
    parser.add_argument("--corpus", type=Path, default=Path("build/corpus"), help="where the text is, or is made (apt-get download: 0.3 GB)")
    parser.add_argument("--output", type=Path, help="folder of the model (default: build/model-SIZE)")
    parser.add_argument("--seconds", type=float, help="train for so long instead of the recipe's time")
    parser.add_argument("--steps", type=int, default=10**9, help="end after so many steps")
    parser.add_argument("--corpus-only", action="store_true", help="make the text, train nothing")
    arguments = parser.parse_args()
    output = arguments.output or Path(f"build/model-{arguments.size}")
    if not arguments.corpus_only and (output / "config.json").exists():
        parser.error(f"{output} holds a model already")
    say = lambda line: print(line, flush=True)  # noqa: E731
    if not (arguments.corpus / "sources.csv").is_file():
        packages = arguments.corpus / "packages"
        packages.mkdir(parents=True, exist_ok=True)
        try:
            corpus.build(packages, arguments.corpus, say)
        except corpus.Unavailable as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    if arguments.corpus_only:
        return 0
    from .train import RECIPES, train

    train(RECIPES[arguments.size], arguments.corpus, output, seconds=arguments.seconds, steps=arguments.steps, say=say)
    print(f"saved to {output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
