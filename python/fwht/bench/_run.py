"""The command line."""

from __future__ import annotations

import argparse
import csv
import json
import signal
import sys
from pathlib import Path
from typing import Any, Iterable, Sequence

from .. import variants
from . import _attention, _chains, _layers, _library, _linear, _long, _walsh
from .peers import PEERS, Checkout, Peer, ThisPackage

# What another first word runs.
OTHERS: dict[str, Any] = {"linear": _linear, "layers": _layers, "attention": _attention, "chains": _chains, "long": _long, "walsh": _walsh}
WITHIN = 0.02  # two measurements of one kernel by one protocol may differ by this much


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fwht.bench",
        description="Times kernels of others beside the variants of this library: the same problems, checks, protocol and "
        "limit, in one process.",
        epilog="`linear`, `layers`, `attention`, `chains`, `long` or `walsh` as first argument: layers with 4-bit weights of others, layers of this library, "
        "FP8 attention, chains of other frameworks, long vectors or rounds, convolutions and sketches instead (python -m fwht.bench linear --help). "
        "Every other argument is one of fwht_sweep: --grid, --problem f16/n4096/r8192/out, --variant, --mode, --dtype, "
        "--n, --output, --resume, --dry-run, --benchmark_filter ...",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--peer", action="append", metavar="NAME[=CHECKOUT]",
        help=f"one of {', '.join(PEERS)}; dao and hadacore also from a checkout, whose extension is built into build/peers, cuda_sample only so; "
        "repeated. Default: all that can be imported. 'none': none",
    )  # fmt: skip
    parser.add_argument(
        "--through-python", default="auto", metavar="VARIANT",
        help="this variant also as Python calls it, as peer:python:VARIANT; 'none' leaves it out (default: auto)",
    )  # fmt: skip
    parser.add_argument("--list-peers", action="store_true", help="the peers, and why they cannot be used here")
    return parser


def chosen_peers(named: Sequence[str] | None) -> tuple[list[Peer], list[str]]:
    """The peers that can be used, and a sentence for each that cannot. One that was named and is missing: ValueError."""
    peers, sentences = [], []
    for item in PEERS if named is None else [] if "none" in named else named:
        name, _, checkout = item.partition("=")
        kind = PEERS.get(name)
        if kind is None:
            raise ValueError(f"--peer {item}: unknown; known: {', '.join(PEERS)}, none")
        if checkout and not issubclass(kind, Checkout):
            raise ValueError(f"--peer {item}: {name} is not built from a checkout")
        if checkout and not Path(checkout).is_dir():
            raise ValueError(f"--peer {item}: {checkout} is no folder")
        peer = kind(Path(checkout).resolve()) if checkout and issubclass(kind, Checkout) else kind()
        if why := peer.missing():
            if named is not None:
                raise ValueError(f"--peer {item}: {why}")
            sentences.append(f"{name}: not here ({why})")
        else:
            peers.append(peer)
    return peers, sentences


def agreement(rows: Iterable[dict[str, str]], variant: str) -> list[tuple[str, float]]:
    """(problem and mode, time through Python / time by the sweep - 1) for every problem that has both."""
    times: dict[tuple[str, ...], dict[str, float]] = {}
    for row in rows:
        if row["status"] == "ok" and row["variant"] in (variant, f"peer:python:{variant}"):
            where = "/".join((row["dtype"], row.get("operator") or row["n"], *(row[column] for column in ("rows", "placement", "mode"))))
            key = (where, *(row.get(column, "") for column in ("memory", "encoding", "arrangement", "row_stride")))
            times.setdefault(key, {})[row["variant"]] = float(row["time_us"])
    return [(key[0], both[f"peer:python:{variant}"] / both[variant] - 1) for key, both in times.items() if len(both) == 2]


def _say_agreement(folder: Path, variant: str) -> None:
    with open(folder / "results.csv", newline="") as file:
        gaps = agreement(csv.DictReader(file), variant)
    if gaps:
        where, gap = max(gaps, key=lambda item: abs(item[1]))
        print(
            f"{variant} through Python against the sweep's own call: {len(gaps)} problems, "
            f"{sum(abs(g) <= WITHIN for _, g in gaps)} within {WITHIN:.0%}; the largest difference is {gap:+.1%} ({where})"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments and arguments[0] in OTHERS:
        code: int = OTHERS[arguments[0]].main(arguments[1:])
        return code
    options, rest = _parser().parse_known_args(arguments)
    try:
        if options.list_peers:
            for name, kind in PEERS.items():
                print(f"{name:<11} {kind.summary}\n{'':<11} {kind().missing() or 'here: ' + json.dumps(kind().settings())}")
            return 0
        known = ["none", *(variant.name for variant in variants())]
        if options.through_python not in known:
            raise ValueError(f"--through-python {options.through_python}: no such variant; known: {', '.join(known)}")
        peers, sentences = chosen_peers(options.peer)
        if options.through_python != "none":
            peers.append(ThisPackage(options.through_python))
        for sentence in sentences:
            print(sentence, file=sys.stderr)
        sys.stdout.flush()
        previous = signal.signal(signal.SIGINT, signal.SIG_DFL)  # the library would not see the exception
        try:
            code = _library.run(rest, peers)
        finally:
            signal.signal(signal.SIGINT, previous)
    except (ValueError, ImportError) as error:
        print(f"fwht.bench: {error}", file=sys.stderr)
        return 2
    folder = _folder_of(rest)
    if code in (0, 1) and folder is not None and options.through_python != "none":
        _say_agreement(folder, options.through_python)
    return code


def _folder_of(arguments: Sequence[str]) -> Path | None:
    """The results folder that the command line names, if it was made."""
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name in ("--output", "--resume"):
            folder = Path(value if equals else arguments[index + 1] if index + 1 < len(arguments) else "")
            return folder if (folder / "results.csv").is_file() else None
    return None
