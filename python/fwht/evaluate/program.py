"""What `python -m fwht.evaluate` does: a table of formats and rotations, with a verdict for each format."""

from __future__ import annotations

import argparse
import contextlib
import copy
import hashlib
import json
import lzma
import math
import platform
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
import transformers

from .. import __version__, build_info
from . import checkpoint, hooks, measure, rotate, schemes
from . import outliers as outliers_of
from . import tasks as tasks_of
from .cost import cost
from .measure import interval

RESULTS = "evaluation.json"
DEMO = Path(__file__).with_name("tiny.tar.xz")
BASELINES = ("plain", "folded")
KEPT = 1 << 31  # bytes of models that are kept as each rotation leaves them


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.list:
        for scheme in schemes.SCHEMES.values():
            parts = {name: getattr(scheme, name) for name in ("weights", "inputs", "q", "k", "v") if getattr(scheme, name)}
            said = ", ".join(f"{name} {encoding}" for name, encoding in parts.items()) + ", by GPTQ" * scheme.gptq
            print(f"{scheme.name:18} {said}".rstrip())
        return 0
    if asked.demo == bool(asked.model):
        parser.error("name a folder of a model, or --demo")
    if asked.demo and asked.text:
        parser.error(f"--text {asked.text}: --demo has a text of its own")
    if not asked.demo and asked.text is None and not asked.save:
        parser.error("--text FILE is missing: what the model is measured on")
    measuring = ("text", "formats", "tokens", "length", "calibration", "batch", "cost", "outliers", "tasks", "output")
    in_vain = [f"--{name}" for name in measuring if asked.save and getattr(asked, name) != parser.get_default(name)]
    if in_vain:
        parser.error(f"{in_vain[0]} is given, but --save measures nothing")
    try:
        with _model_folder(asked) as (folder, text):
            return evaluate(asked, folder, text)
    except torch.cuda.OutOfMemoryError as error:
        print(f"error: no memory for the unquantized model: {str(error).split('. ')[0]}; try a smaller --batch, or --device cpu", file=sys.stderr)
        return 2
    except (ValueError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"interrupted; what is measured is kept: {asked.output} goes on with the same command", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fwht.evaluate", description="Whether rotation helps a model in each format.")
    parser.add_argument("model", nargs="?", type=Path, help="folder of a transformers checkpoint: llama, mistral, qwen2 or qwen3")
    parser.add_argument("--demo", action="store_true", help="the small model that comes with the package; a minute on two cores")
    parser.add_argument("--text", type=Path, help="UTF-8 text; documents separated by NUL")
    parser.add_argument("--formats", help="names of schemes, or all (see --list)")
    parser.add_argument("--rotations", help="plain, folded, rotated, R1,R2 written as r12, block32 (default: plain,folded,rotated)")
    parser.add_argument("--tokens", type=_positive, help="tokens to measure (default: 131072; --demo 4096)")
    parser.add_argument("--length", type=_length, help="tokens of a block (default: 2048; --demo 512)")
    parser.add_argument("--calibration", type=_positive, default=16, help="blocks behind those that are measured, for GPTQ (default: 16)")
    parser.add_argument("--batch", type=_positive, default=8, help="blocks at once")
    parser.add_argument("--seed", type=_seed, default=0, help="of the random signs, 0 to 2^63 - 1")
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32"), help="default: float16 on a GPU, float32 on the CPU, with --save as the checkpoint has it")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda where there is one")
    parser.add_argument("--cost", action="store_true", help="time the online rotations on this GPU")
    parser.add_argument("--outliers", action="store_true", help="outliers by layer, before and after rotation")
    parser.add_argument("--tasks", help="tasks of lm-evaluation-harness: names that it knows, or YAML files with local data")
    parser.add_argument("--output", type=Path, default=Path("evaluation"), help="folder of evaluation.json (default: evaluation)")
    parser.add_argument("--save", type=Path, help="write the model with --rotations in its weights (default: R1,R2; R4 too), as a checkpoint, and end")
    parser.add_argument("--list", action="store_true", help="name the schemes and end")
    return parser


def _positive(text: str) -> int:
    return _at_least(text, 1)


def _length(text: str) -> int:
    return _at_least(text, 3)  # the model's first token, one that is known, one that is guessed


def _seed(text: str) -> int:
    seed = _at_least(text, 0)
    if seed >= rotate.MOST_SEEDS:
        raise argparse.ArgumentTypeError(f"{text!r} must be below 2^63")
    return seed


def _at_least(text: str, least: int) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of at least {least}")
    return int(text)


@contextlib.contextmanager
def _model_folder(asked: argparse.Namespace) -> Iterator[tuple[Path, str]]:
    if not asked.demo:
        if not (asked.model / "config.json").is_file():
            raise ValueError(f"{asked.model} is no folder with a config.json")
        try:
            text = "" if asked.save else asked.text.read_text(encoding="utf8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{asked.text} is no UTF-8 text: {error}") from error
        yield asked.model, text
        return
    with tempfile.TemporaryDirectory() as work:
        with lzma.open(DEMO) as packed, tarfile.open(fileobj=packed) as archive:
            archive.extractall(work, filter="data")
        # Text that is there wherever the package is: its own sources.
        sources = sorted(Path(__file__).parents[1].rglob("*.py"))
        yield Path(work) / "tiny", "\0".join(path.read_text(encoding="utf8") for path in sources)


def evaluate(asked: argparse.Namespace, folder: Path, text: str) -> int:
    transformers.utils.logging.disable_progress_bar()
    wanted = schemes.named(",".join(schemes.DEMO if asked.demo else schemes.DEFAULT) if asked.formats is None else asked.formats)
    if asked.save:
        checkpoint.check_folder(asked.save)  # before the model is loaded, which may take minutes
        asked.rotations = ("R1,R2" if asked.rotations is None else asked.rotations).replace(",", "+")  # one rotation, of several parts
    tasks = tasks_of.described(asked.tasks) if asked.tasks else []
    modes = ("folded,rotated" if asked.demo else "plain,folded,rotated") if asked.rotations is None else asked.rotations
    modes = list(dict.fromkeys(modes.split(",")))
    rotations = {mode: rotate.Rotation.parse(mode, asked.seed) for mode in modes}
    device = asked.device or ("cuda" if torch.cuda.is_available() and not asked.demo else "cpu")
    dtype = asked.dtype or ("auto" if asked.save else "float16" if device == "cuda" else "float32")  # auto: as the checkpoint has it
    tokens, length = asked.tokens or (4096 if asked.demo else 131072), asked.length or (512 if asked.demo else 2048)

    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: PyTorch finds no CUDA device; --device cpu needs none")
    if asked.cost and device != "cuda":
        raise ValueError("--cost times a GPU, and the device is the CPU")

    def load() -> Any:
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype, dtype), attn_implementation=hooks.ATTENTION)
        except safetensors.SafetensorError as error:
            raise OSError(f"the weights in {folder} cannot be read: {error}") from error
        return model.to(device).eval()

    config = transformers.AutoConfig.from_pretrained(folder)
    rotate.check_family(config)
    if asked.outliers:
        outliers_of.check(config)
    if getattr(config, "quantization_config", None):
        raise ValueError(f"{folder} is quantized or rotated already (its config.json has quantization_config); name the model that it was made of")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)  # before the model: one that is missing is said at once
    model = load()
    for rotation in rotations.values():
        rotate.check(model, rotation)
    if asked.save:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of the model in memory, which ends here
            checkpoint.save_rotated(model, asked.save, rotations[modes[0]])
        tokenizer.save_pretrained(asked.save)
        print(f"{asked.save}: the same model with {modes[0].replace('+', ', ')} in its weights")
        return 0
    blocks = measure.blocks_of(tokenizer, text, length, tokens, config.vocab_size)
    if len(blocks.blocks) < tokens // length:
        print(f"the text is shorter than --tokens {tokens}: it has {len(blocks.blocks)} blocks of {length} tokens", file=sys.stderr)
    calibration = None
    if any(scheme.gptq for scheme in wanted):
        more = measure.blocks_of(tokenizer, text, length, tokens + asked.calibration * length, config.vocab_size)
        calibration = more.blocks[tokens // length :]
    library = build_info()
    del library["torch"]  # filled in by the first call with a tensor; `torch` below is there from the start
    about = {
        "model": "demo" if asked.demo else folder.resolve().name, "model_sha256": _hash(folder), "family": config.model_type,
        "blocks": len(blocks.blocks), "length": length, "batch": asked.batch,  # over which one scale of a tensor goes
        "text_sha256": blocks.sha256, "dtype": dtype, "device": torch.cuda.get_device_name() if device == "cuda" else "cpu", "seed": asked.seed,
        "tasks": [tasks_of.said_of(task) for task in tasks],
        "calibration_blocks": 0 if calibration is None else len(calibration),
        "fwht": __version__, "library": library, "python": platform.python_version(), "torch": torch.__version__,
        "transformers": transformers.__version__, "numpy": np.__version__,
    }  # fmt: skip
    results = _Results(asked.output / RESULTS, about)
    if len(blocks.blocks) < 2:
        raise ValueError(f"--tokens {tokens}: one block of {length} tokens gives no interval; two are the least")
    reference = measure.Reference(model, blocks, asked.batch)
    if not np.isfinite(reference.loss).all():
        raise ValueError(f"the loss of the model itself is not finite in {dtype}; --dtype names another type")
    if asked.outliers and "outliers" not in results.data:
        results.add("outliers", outliers_of.outliers(model, measure.Text(blocks.blocks[:16], blocks.sha256), asked.batch))
    if tasks and "tasks" not in results.data:
        results.add("tasks", tasks_of.scores(model, tokenizer, tasks, asked.batch))
    del model
    print(f"{len(blocks.blocks)} blocks of {length} tokens, {device}, {dtype}; perplexity {_short(_perplexity(reference.loss))}", flush=True)
    results.add("loss", _stored(reference.loss))

    models = _Rotated(load, rotations)
    todo = [(scheme, mode) for scheme in wanted for mode in modes if f"{scheme.name}|{mode}" not in results.rows]
    begun = time.monotonic()
    for done, (scheme, mode) in enumerate(todo):
        left = (time.monotonic() - begun) / done * (len(todo) - done) if done else math.nan
        _progress(f"{scheme.name}, {mode}: {done + 1} of {len(todo)}" + (f", {left:.0f} s left" if done else ""))
        try:
            candidate = models.of(mode)
            hooks.check(candidate, scheme)
            hooks.install(candidate, scheme, rotations[mode], calibration, asked.batch)
            blocks_measured = reference.measure(candidate)
            if bad := int((~np.isfinite(blocks_measured).all(axis=1)).sum()):
                raise ValueError(f"no finite numbers in {bad} of {len(blocks_measured)} blocks")
            scores = tasks_of.scores(candidate, tokenizer, tasks, asked.batch) if tasks else None
            results.put(scheme.name, mode, blocks_measured, scores)
        except (ValueError, NotImplementedError, torch.linalg.LinAlgError) as error:
            results.refuse(scheme.name, mode, str(error).removeprefix("fwht: "))
        except torch.cuda.OutOfMemoryError as error:
            results.refuse(scheme.name, mode, f"no memory: {str(error).split('. ')[0]}; {needed(config, dtype, asked.batch, length)}")
        candidate = None
    _progress("")
    if asked.cost:
        results.add("cost", {str(count): cost(config, getattr(torch, dtype), count) for count in (1, 8, 2048)})
    results.end()
    print(table(results.data, [scheme.name for scheme in wanted], modes))
    if said := advice(results.data["summary"]):
        print(f"\n{said}")
    print(f"\nall of it: {results.path}")
    return 0


class _Rotated:
    """The model as each rotation leaves it, for every format anew. All of them stay in memory where they take KEPT at most; else each is read and
    rotated again, and one is in memory at a time."""

    def __init__(self, load: Callable[[], Any], rotations: Mapping[str, rotate.Rotation]):
        self._load, self._rotations = load, rotations
        self._kept: dict[str, Any] = {}

    def of(self, mode: str) -> Any:
        if mode not in self._kept:
            model = rotate.rotate_weights(self._load(), self._rotations[mode])
            if sum(parameter.nbytes for parameter in model.parameters()) * len(self._rotations) > KEPT:
                return model
            self._kept[mode] = model
        return copy.deepcopy(self._kept[mode])


def _hash(folder: Path) -> str:
    """Of the files that make the model: its configuration, weights and tokenizer."""
    hasher = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".json", ".safetensors", ".bin", ".model", ".txt", ".tiktoken") and path.name != RESULTS:  # --output may name this folder
            hasher.update(f"{path.name}\0{path.stat().st_size}\0".encode())
            with path.open("rb") as file:
                while piece := file.read(1 << 22):
                    hasher.update(piece)
    return hasher.hexdigest()


def needed(config: Any, dtype: str, batch: int, length: int) -> str:
    """What a row of the table takes, in words: the weights, the widest activations of a batch, the logits of a slice twice."""
    with torch.device("meta"):
        weights = sum(parameter.numel() for parameter in transformers.AutoModelForCausalLM.from_config(config).parameters())
    item = getattr(torch, dtype).itemsize
    wide = 2 * batch * length * max(config.intermediate_size, config.hidden_size) * item
    logits = 2 * min(measure.SLICE, length) * config.vocab_size * 4
    return f"it needs about {(weights * item + wide + logits) / 1e9:.1f} GB, {weights * item / 1e9:.1f} GB of them for weights (--batch {batch})"


class _Results:
    """evaluation.json: written again after every row, and read back when the same question is asked again."""

    def __init__(self, path: Path, about: dict[str, Any]):
        self.path = path
        self._texts: dict[str, str] = {}  # of rows: the file is written again with each of them
        path.parent.mkdir(parents=True, exist_ok=True)
        self.data: dict[str, Any] = {"about": about, "rows": {}, "refused": {}, "summary": []}
        if path.exists():
            earlier = _read(path)
            if earlier["about"] != about:
                differ = [key for key in earlier["about"] | about if earlier["about"].get(key) != about.get(key)]
                raise ValueError(f"{path} is of another run ({', '.join(differ)} differ); name another --output")
            self.data = earlier
        else:
            self.data["begun"] = _now()

    @property
    def rows(self) -> dict[str, Any]:
        return self.data["rows"]

    def put(self, scheme: str, mode: str, blocks: np.ndarray, scores: tasks_of.Scores | None) -> None:
        row = {name: _stored(column) for name, column in zip(("loss", "kl", "same"), blocks.T, strict=True)}
        self.rows[f"{scheme}|{mode}"] = row if scores is None else row | {"tasks": scores}
        self._texts.pop(f"{scheme}|{mode}", None)
        self.data["refused"].pop(f"{scheme}|{mode}", None)  # a run that was started again may have had more memory
        self.data["summary"] = summary(self.rows)
        self._write()

    def refuse(self, scheme: str, mode: str, reason: str) -> None:
        self.data["refused"][f"{scheme}|{mode}"] = reason
        self._write()

    def add(self, name: str, value: Any) -> None:
        self.data[name] = value
        self._write()

    def end(self) -> None:
        self.add("ended", _now())

    def _write(self) -> None:
        part = self.path.with_suffix(".part")
        for name, row in self.rows.items():
            if name not in self._texts:
                self._texts[name] = json.dumps(row)
        part.write_text(_lines(self.data, self._texts))
        part.replace(self.path)


def _read(path: Path) -> dict[str, Any]:
    """Raises ValueError for a file that is damaged."""
    try:
        earlier = json.loads(path.read_text(encoding="utf8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); remove it, or name another --output") from error
    kinds = {"about": dict, "rows": dict, "refused": dict, "summary": list}
    for key, kind in kinds.items():
        if not isinstance(earlier, dict) or not isinstance(earlier.get(key), kind):
            raise ValueError(f"{path} is damaged (it has no {key}); remove it, or name another --output")
    return earlier


def _stored(values: np.ndarray) -> list[float]:
    """With the digits of float32. What is shown follows from them, so that a run that goes on shows the same."""
    return [float(str(value)) for value in values.astype(np.float32)]


def _lines(data: dict[str, Any], rows: Mapping[str, str]) -> str:
    """JSON with a line for each entry and for each row of the table, whose texts are there."""

    def entry(key: str, value: Any) -> str:
        if key != "rows":
            return json.dumps(value)
        return "{\n" + ",\n".join(f"  {json.dumps(name)}: {rows[name]}" for name in value) + "\n }"

    return "{\n" + ",\n".join(f" {json.dumps(key)}: {entry(key, value)}" for key, value in data.items()) + "\n}\n"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _perplexity(losses: Any) -> float:
    return math.exp(min(float(np.mean(losses)), 709.0))  # of more there is no number


def _short(perplexity: float) -> str:
    return f"{perplexity:.3f}" if perplexity < 1e6 else f"{perplexity:.3g}"


def _baseline(rows: dict[str, Any], scheme: str) -> np.ndarray | None:
    """KL by block of the better of plain and folded."""
    known = [np.array(rows[f"{scheme}|{base}"]["kl"]) for base in BASELINES if f"{scheme}|{base}" in rows]
    return min(known, key=np.mean) if known else None


def verdict(rows: dict[str, Any], scheme: str, mode: str) -> str:
    """helps, hurts or no difference: the paired interval of the KL against the better of plain and folded."""
    base = _baseline(rows, scheme)
    if base is None or scheme == "none":
        return ""
    low, high = interval(np.array(rows[f"{scheme}|{mode}"]["kl"]) - base)
    return "helps" if high < 0 else "hurts" if low > 0 else "no difference"


def summary(rows: dict[str, Any]) -> list[dict[str, Any]]:
    """What the table shows, by scheme and rotation; KL in nats a token, `recovered` the share of the baseline's KL that is gone."""
    found = []
    for key, values in rows.items():
        name, mode = key.split("|")
        kl, base = np.array(values["kl"]), _baseline(rows, name)
        low, high = interval(kl)
        turned = mode not in BASELINES and name != "none" and base is not None and base.mean() > 0
        found.append({
            "format": name, "rotation": mode, "perplexity": _perplexity(values["loss"]), "kl": float(kl.mean()), "kl_low": low, "kl_high": high,
            "same": float(np.mean(values["same"])), "recovered": float(1 - kl.mean() / base.mean()) if turned and base is not None else None,
            "verdict": verdict(rows, name, mode) if mode not in BASELINES else "",
        })  # fmt: skip
    return found


def advice(rows: list[dict[str, Any]]) -> str:
    """A line for each verdict. A format that is helped stands with the rotation to take, of the fewest parts within the best one's interval."""
    said: dict[str, list[str]] = {"helps": [], "hurts": [], "makes no difference for": []}
    for name in dict.fromkeys(row["format"] for row in rows):
        of_format = [row for row in rows if row["format"] == name and row["verdict"]]
        if helped := [row for row in of_format if row["verdict"] == "helps"]:
            limit = min(helped, key=lambda row: row["kl"])["kl_high"]
            best = min((row for row in helped if row["kl"] <= limit), key=lambda row: (_parts(row["rotation"]), row["kl"]))
            said["helps"].append(f"{name} ({best['rotation']}: {100 * best['recovered']:.0f} % of its KL gone)")
        elif hurt := [row["rotation"] for row in of_format if row["verdict"] == "hurts"]:
            said["hurts"].append(f"{name} ({', '.join(hurt)})")
        elif of_format:
            said["makes no difference for"].append(name)
    return "\n".join(f"rotation {word} {', '.join(names)}" for word, names in said.items() if names)


def _parts(mode: str) -> int:
    return len(rotate.Rotation.parse(mode).names) or 1


def table(data: dict[str, Any], names: list[str], modes: list[str]) -> str:
    """A row for each scheme and rotation: perplexity, KL in 1e-3 nats a token with its interval, same first choice, verdict."""
    lines = [f"{'format':18} {'rotation':9} {'perplexity':>10} {'KL, 1e-3 nats [95 %]':>26} {'same first, %':>13}  verdict"]
    known = {(row["format"], row["rotation"]): row for row in data["summary"]}
    for name in names:
        for mode in modes:
            if (key := f"{name}|{mode}") in data["refused"]:
                lines.append(f"{name:18} {mode:9} not measured: {data['refused'][key]}")
            if row := known.get((name, mode)):
                kl = f"{1e3 * row['kl']:.3f} [{1e3 * row['kl_low']:.3f}, {1e3 * row['kl_high']:.3f}]"
                lines.append(f"{name:18} {mode:9} {_short(row['perplexity']):>10} {kl:>26} {100 * row['same']:13.2f}  {row['verdict']}".rstrip())
    for task, metrics in data.get("tasks", {}).items():
        for metric, score in metrics.items():
            lines.append(f"{task}, {metric}: {_score(score)} unquantized")
            for name in names:
                there = [(mode, data["rows"][f"{name}|{mode}"]["tasks"][task][metric]) for mode in modes if f"{name}|{mode}" in data["rows"]]
                lines.append(f"  {name:18} " + ", ".join(f"{mode} {_score(value)}" for mode, value in there))
    for tokens, times in data.get("cost", {}).items():
        online = times["R3"] + times["R4"]
        share = 100 * online / times["products"]
        lines.append(f"{tokens} tokens: R3 {times['R3']:.2f} us, R4 {times['R4']:.2f} us a layer, {share:.1f} % of its matrix products")
    return "\n".join(lines)


def _score(score: dict[str, float | None]) -> str:
    value, error = score["value"], score["standard_error"]
    return "no number" if value is None else f"{value:.4g}" + ("" if error is None else f" +- {error:.2g}")


def _progress(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
    elif line:
        print(line, file=sys.stderr, flush=True)
