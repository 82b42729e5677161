"""Loads results folders and refuses what a reader could not trust.

A results folder holds `context.json` (provenance), `schema.json` (what the columns of its tables mean, and what may stand in
them) and tables: `results.csv`, `limits.csv`, `unsupported.csv` (the sweep), `accuracy.csv` and what accuracy means
(`probes.csv`, `overflow.csv`, `quantization.csv`, `attention.csv`), `profile.csv` (the profile); one of these is enough.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from . import legacy, schema
from .schema import ResultsError

FORMAT_VERSION = 1
MODES = ("alternating", "replay", "replay_pdl", "cold", "host")  # order of display
DTYPES = ("f16", "bf16", "f32", "f64")
ELEMENT_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}

CONTEXT_KEYS = (
    "format_version", "command", "argv", "utc_start", "utc_end", "commit", "dirty", "sources_hash", "version",
    "build_type", "cxx", "cxx_flags", "cuda", "cuda_flags", "host", "device", "grid", "seeds", "variants",
    "complete",
)  # fmt: skip
HOST_KEYS = ("name", "threads", "memory_bytes")
DEVICE_KEYS = (
    "present", "why_absent", "name", "compute_capability", "sm_count", "l2_bytes", "memory_bytes",
    "clock_khz",
    "driver_version", "runtime_version",
)  # fmt: skip

SWEEP_FILES = ("results.csv", "limits.csv", "unsupported.csv")
SIDE_FILES = ("launches.csv", "not_profiled.csv", "tests.csv")  # what was launched, left out, tested: no measurement
# A resumed run measures limits again, meets refusals again, and may launch and test again.
MAY_REPEAT = ("limits.csv", "unsupported.csv", *SIDE_FILES)


class Tables:
    """The tables that pages and figures read, by name; empty where there is no such file."""

    tables: dict[str, pd.DataFrame]

    @property
    def results(self) -> pd.DataFrame:
        return self.tables["results.csv"]

    @property
    def limits(self) -> pd.DataFrame:
        return self.tables["limits.csv"]

    @property
    def unsupported(self) -> pd.DataFrame:
        return self.tables["unsupported.csv"]

    @property
    def accuracy(self) -> pd.DataFrame:
        return self.tables["accuracy.csv"]

    @property
    def probes(self) -> pd.DataFrame:
        return self.tables["probes.csv"]

    @property
    def overflow(self) -> pd.DataFrame:
        return self.tables["overflow.csv"]

    @property
    def quantization(self) -> pd.DataFrame:
        return self.tables["quantization.csv"]

    @property
    def attention(self) -> pd.DataFrame:
        return self.tables["attention.csv"]


@dataclass(frozen=True)
class Folder(Tables):
    """One results folder as it lies on disk; `schema` declares the tables."""

    path: Path
    context: dict
    schema: schema.Schema
    tables: dict[str, pd.DataFrame]  # by file name, every one that the schema or this program knows

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def on_gpu(self) -> bool:
        return bool(self.context["device"]["present"])

    @property
    def device(self) -> str:
        """What the times belong to: the GPU, or the CPU when the machine had none."""
        return (
            self.context["device"]["name"] if self.on_gpu else f"{self.context['host']['name']} (host only)"
        )

    @property
    def commit(self) -> str:
        return self.context["commit"]

    @property
    def l2_bytes(self) -> int:
        return int(self.context["device"].get("l2_bytes") or 0) if self.on_gpu else 0


@dataclass(frozen=True)
class Device(Tables):
    """All folders of one device, merged; where two folders measured the same thing the newer one counts."""

    name: str
    folders: tuple[Folder, ...]  # oldest first
    tables: dict[str, pd.DataFrame]  # by file name
    superseded: int  # rows of older folders that a newer one repeats

    @property
    def newest(self) -> Folder:
        return self.folders[-1]

    @property
    def l2_bytes(self) -> int:
        return self.newest.l2_bytes

    @property
    def variants(self) -> list[str]:
        """Names in ladder order, as the registry listed them; names only found in the tables follow."""
        names = list(dict.fromkeys(v for f in reversed(self.folders) for v in f.context["variants"]))
        tables = (self.results, self.unsupported, self.accuracy)
        return names + sorted({v for t in tables for v in t["variant"]} - set(names))

    @property
    def label(self) -> str:
        """Folder, device and commit: the line under every figure."""
        names = ", ".join(f.name for f in self.folders)
        dirty = "+dirty" if any(f.context["dirty"] for f in self.folders) else ""
        commits = ", ".join(dict.fromkeys(f.commit[:10] for f in self.folders))
        return f"{names}  |  {self.name}  |  commit {commits}{dirty}"


def load(
    paths: Iterable[Path | str], *, allow_dirty=False, allow_mixed=False, allow_incomplete=False
) -> list[Device]:
    """Loads folders and groups them by device.

    Throws ResultsError, in one sentence, for anything missing, malformed, dirty, mixed or unfinished.
    """
    folders: list[Folder] = []
    for path in paths:
        folder = load_folder(path, allow_dirty=allow_dirty, allow_incomplete=allow_incomplete)
        if any(f.path.resolve() == folder.path.resolve() for f in folders):
            raise ResultsError(f"{folder.name} was given twice")
        folders.append(folder)
    if not folders:
        raise ResultsError("no results folder was given")
    if not allow_mixed:
        _refuse_mixed(folders)
    groups: dict[str, list[Folder]] = {}
    for folder in sorted(folders, key=lambda f: f.context["utc_start"]):
        groups.setdefault(folder.device, []).append(folder)
    return [_merge(name, group) for name, group in groups.items()]


def load_folder(path: Path | str, *, allow_dirty=False, allow_incomplete=False) -> Folder:
    """Loads one folder; throws ResultsError as `load` does."""
    path = Path(path)
    if not path.is_dir():
        raise ResultsError(f"{path} is no results folder: no such directory")
    path = path.resolve()
    context = _read_context(path)
    if not context["complete"] and not allow_incomplete:
        raise ResultsError(
            f"{path.name} is an incomplete run (complete=false); --allow-incomplete reads it anyway"
        )
    if context["dirty"] and not allow_dirty:
        raise ResultsError(
            f"{path.name} comes from a dirty build (sources differ from commit {context['commit'][:10]}); "
            "--allow-dirty reads it anyway"
        )
    declared, tables = _read_tables(path)
    missing = [name for name in SWEEP_FILES if name not in tables]
    if "results.csv" in tables and missing:
        raise ResultsError(f"{path.name} has results.csv but no {missing[0]}")
    if not tables.keys() - {*SWEEP_FILES[1:], *SIDE_FILES} and not has_profile(path):
        raise ResultsError(f"{path.name} has neither results.csv nor accuracy.csv nor profile.csv")
    if "results.csv" in tables:
        _check_results(path, tables["results.csv"])
    for name in tables.keys() - set(MAY_REPEAT):
        _check_duplicates(path, name, tables[name], declared[name].key)
    return Folder(path, context, declared, {name: table.empty() for name, table in declared.items()} | tables)


def load_context(path: Path | str) -> dict:
    """context.json of a results folder, checked; throws ResultsError."""
    path = Path(path)
    if not path.is_dir():
        raise ResultsError(f"{path} is no results folder: no such directory")
    return _read_context(path.resolve())


def has_profile(path: Path) -> bool:
    """Whether the folder holds counters of Nsight Compute; analysis/profile.py reads them."""
    return (path / "profile.csv").is_file()


def layout_of(placement: str, row_stride: int = 0, n: int = 0) -> str:
    """Where the rows lie, in words: "in place", "out of place", with ", strided" when rows have gaps."""
    place = {"in": "in place", "out": "out of place"}.get(placement, placement)
    return place if row_stride == n else f"{place}, strided"


def _read_context(path: Path) -> dict:
    file = path / "context.json"
    try:
        context = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ResultsError(f"{path.name} is no results folder: context.json is missing") from None
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path.name}: context.json cannot be read: {error}") from None
    if not isinstance(context, dict):
        raise ResultsError(f"{path.name}: context.json holds no JSON object")
    version = context.get("format_version")
    if version != FORMAT_VERSION:
        raise ResultsError(f"{path.name} has format_version {version}, this program reads {FORMAT_VERSION}")
    _require_keys(path, context, CONTEXT_KEYS, "context.json")
    _require_keys(path, context["host"], HOST_KEYS, "host in context.json")
    device_keys = (
        DEVICE_KEYS
        if isinstance(context["device"], dict) and context["device"].get("present")
        else ("present",)
    )
    _require_keys(path, context["device"], device_keys, "device in context.json")
    for key in ("commit", "sources_hash"):
        if not isinstance(context[key], str) or not context[key]:
            raise ResultsError(f"{path.name}: {key} in context.json is empty, so the sources are unknown")
    for key in ("dirty", "complete"):
        if not isinstance(context[key], bool):
            raise ResultsError(f"{path.name}: {key} in context.json is {context[key]!r}, not true or false")
    return context


def _require_keys(path: Path, mapping, keys: Iterable[str], where: str) -> None:
    if not isinstance(mapping, dict):
        raise ResultsError(f"{path.name}: {where} is no JSON object")
    missing = [key for key in keys if key not in mapping]
    if missing:
        raise ResultsError(f"{path.name}: {where} lacks {', '.join(missing)}")


def _read_tables(path: Path) -> tuple[schema.Schema, dict[str, pd.DataFrame]]:
    """The declarations for all tables, and the tables that are there."""
    own = schema.of_folder(path)
    declared = schema.current() | (own or {})
    tables = {}
    for name, table in declared.items():
        texts = schema.read_text_table(path, name)
        if texts is None:
            continue
        if own is None:
            tables[name] = legacy.completed(schema.typed(path, texts, legacy.declared(table)), table)
        elif name in own:
            tables[name] = schema.typed(path, texts, table)
        else:
            raise ResultsError(f"{path.name}: {schema.NAME} does not declare {name}")
    return declared, tables


def _check_results(path: Path, table: pd.DataFrame) -> None:
    """The columns must agree with each other; a table that does not was not written by the sweep."""
    ok = table["status"] == "ok"
    width = table["dtype"].map(ELEMENT_BYTES)
    checks = [
        (width.isna(), "has a dtype other than " + ", ".join(DTYPES)),
        (ok & ~(table["time_us"] > 0), "is ok without a positive time"),
        (~ok & table["time_us"].notna(), "has a time although the result is not ok"),
        (table["elements"] != table["n"] * table["rows"], "has elements other than n * rows"),
        (table["bytes_read"] < table["elements"] * width, "has bytes_read below elements * bytes"),
        (
            table["useful_bytes"] != table["bytes_read"] + table["bytes_written"],
            "has useful_bytes other than bytes_read + bytes_written",
        ),
        (
            ok & ((table["fraction_of_limit"] * table["time_us"] / table["limit_us"] - 1).abs() > 0.01),
            "has a fraction_of_limit other than limit_us / time_us",
        ),
    ]
    for mask, what in checks:
        if mask.any():
            raise ResultsError(f"{path.name}: results.csv {what} in line {schema.line_of(mask)}")


def _check_duplicates(path: Path, name: str, table: pd.DataFrame, key: list[str]) -> None:
    repeated = table.duplicated(key)
    if repeated.any():
        raise ResultsError(f"{path.name}: {name} repeats an earlier measurement in line {schema.line_of(repeated)}")


def _refuse_mixed(folders: list[Folder]) -> None:
    """One device: one commit and one hash. Everywhere: one clean commit has one hash."""
    for i, a in enumerate(folders):
        for b in folders[i + 1 :]:
            same_device = a.device == b.device
            if same_device and a.commit != b.commit:
                raise ResultsError(
                    f"{a.name} and {b.name} mix commits {a.commit[:10]} and {b.commit[:10]} of {a.device}; "
                    "--allow-mixed reads them anyway"
                )
            same_source = same_device or (
                a.commit == b.commit and not a.context["dirty"] and not b.context["dirty"]
            )
            if same_source and a.context["sources_hash"] != b.context["sources_hash"]:
                raise ResultsError(
                    f"{a.name} and {b.name} name commit {a.commit[:10]} but have different sources_hash "
                    f"{a.context['sources_hash'][:12]} and {b.context['sources_hash'][:12]}; "
                    "--allow-mixed reads them anyway"
                )


def _merge(device: str, folders: list[Folder]) -> Device:
    """Where two folders hold a row of the same key, the newer one counts."""
    declared = folders[-1].schema
    tables: dict[str, pd.DataFrame] = {}
    superseded = 0
    for name in declared:
        parts = [f.tables[name].assign(folder=f.name) for f in folders if name in f.tables]
        parts = [part for part in parts if len(part)] or parts[:1]
        every = pd.concat(parts, ignore_index=True)
        tables[name] = every.drop_duplicates(declared[name].key, keep="last", ignore_index=True)
        superseded += (len(every) - len(tables[name])) * (name not in MAY_REPEAT)
    tables["results.csv"] = _with_layout(tables["results.csv"])
    tables["unsupported.csv"] = _refusals(tables["unsupported.csv"])
    return Device(device, tuple(folders), tables, superseded)


def _with_layout(results: pd.DataFrame) -> pd.DataFrame:
    layouts = [layout_of(p, s, n) for p, s, n in zip(results["placement"], results["row_stride"], results["n"])]
    return results.assign(layout=layouts, error_ratio=results["rel_l2"] / results["predicted_rel_l2"])


def _refusals(unsupported: pd.DataFrame) -> pd.DataFrame:
    layouts = unsupported["placement"].map(layout_of)
    return unsupported.assign(elements=unsupported["n"] * unsupported["rows"], layout=layouts)
