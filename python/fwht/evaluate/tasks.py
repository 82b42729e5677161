"""Tasks of lm-evaluation-harness (the package lm-eval), with local data and without a network."""

from __future__ import annotations

import copy
import hashlib
import importlib
import json
import logging
from pathlib import Path
from typing import Any

Scores = dict[str, dict[str, dict[str, float | None]]]


def described(names: str) -> list[Any]:
    """Tasks of a list "mmlu,mine.yaml": names that lm-eval knows stay as they are, a file becomes its content, with its data beside it.

    Raises ValueError where lm-eval is missing, or a file is no task.
    """
    try:
        importlib.import_module("lm_eval")
    except ImportError as error:
        raise ValueError(f'{error}; --tasks needs it: pip install ".[tasks]" in a checkout of fwht') from error
    return [_of_file(Path(name)) if name.endswith((".yaml", ".yml")) else name for name in names.split(",") if name]


def _of_file(path: Path) -> dict[str, Any]:
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is no task: {error}") from error
    if not isinstance(content, dict) or "task" not in content:
        raise ValueError(f"{path} is no task: it has no key `task`")
    kwargs = content.get("dataset_kwargs")
    if isinstance(kwargs, dict) and "data_files" in kwargs:
        kwargs["data_files"] = _beside(path.resolve().parent, kwargs["data_files"])
    return content


def said_of(task: Any) -> str:
    """A name that lm-eval knows, or that of a file with a hash of its content and of its data on this machine."""
    if not isinstance(task, dict):
        return str(task)
    hasher = hashlib.sha256(json.dumps(task, sort_keys=True, default=str).encode())
    kwargs = task.get("dataset_kwargs")
    for path in _files(kwargs.get("data_files") if isinstance(kwargs, dict) else None):
        if Path(path).is_file():
            hasher.update(Path(path).read_bytes())
    return f"{task['task']} {hasher.hexdigest()[:16]}"


def _files(files: Any) -> list[str]:
    if isinstance(files, dict):
        files = list(files.values())
    return [path for each in files for path in _files(each)] if isinstance(files, list) else [files] if isinstance(files, str) else []


def _beside(folder: Path, files: Any) -> Any:
    """The names of files, one or several, of all splits or by split, as paths in the folder; addresses stay."""
    if isinstance(files, dict):
        return {split: _beside(folder, names) for split, names in files.items()}
    if isinstance(files, list):
        return [_beside(folder, name) for name in files]
    return str(folder / files) if isinstance(files, str) and "://" not in files else files


def scores(model: Any, tokenizer: Any, tasks: list[Any], batch: int) -> Scores:
    """By task and metric: value and standard error (None where lm-eval has none). The model is taken as it is, hooks and all."""
    lm_eval = importlib.import_module("lm_eval")
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # it says that a model was passed, and which defaults it took
    try:
        harness = importlib.import_module("lm_eval.models.huggingface").HFLM(pretrained=model, tokenizer=tokenizer, batch_size=batch)
        found = lm_eval.simple_evaluate(model=harness, tasks=copy.deepcopy(tasks), log_samples=False)  # it changes tasks in place
    except KeyError as error:
        raise ValueError(f"lm-eval has no task {error}") from error
    finally:
        logging.disable(before)
    return {task: _numbers(values) for task, values in found["results"].items()}


def _numbers(values: dict[str, Any]) -> dict[str, dict[str, float | None]]:
    def number(key: str) -> float | None:
        value = values.get(key)
        return float(value) if isinstance(value, (int, float)) else None

    metrics = [key for key in values if key.endswith(",none") and "_stderr" not in key]
    names = {key: key.removesuffix(",none") for key in metrics}
    return {name: {"value": number(key), "standard_error": number(f"{name}_stderr,none")} for key, name in names.items()}
