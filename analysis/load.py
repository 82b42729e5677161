"""Loads results folders and refuses what a reader could not trust.

A results folder holds `context.json` (provenance), `schema.json` (what the columns of its tables mean, and what may stand in
them) and tables: `results.csv`, `limits.csv`, `unsupported.csv` (the sweep), `accuracy.csv` and what accuracy means
(`probes.csv`, `overflow.csv`, `quantization.csv`, `attention.csv`), `profile.csv` (the profile); one of these is enough.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, BeforeValidator, Field, JsonValue

from . import legacy, schema, sources
from .schema import ResultsError, Strict, read_bytes, read_json

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path("experiments") / "results"
MODES = ("alternating", "replay", "replay_pdl", "cold", "host")  # order of display
DTYPES = ("f16", "bf16", "f32", "f64", "i32", "i64")
ELEMENT_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "i32": 4, "i64": 8}
INTEGERS = ("i32", "i64")  # whose results are exact
SWEEP_FILES = ("results.csv", "limits.csv", "unsupported.csv")
SIDE_FILES = ("launches.csv", "not_profiled.csv", "tests.csv")  # what was launched, left out, tested: no measurement
# A resumed run measures limits again, meets refusals again, and may launch and test again.
MAY_REPEAT = ("limits.csv", "unsupported.csv", *SIDE_FILES)
BUILD = ("build_type", "cxx", "cxx_flags", "cuda", "cuda_flags")  # of context.json: what tells builds of one commit apart, as --resume has it
NOISY = 1.2  # slowest over fastest replay: beyond it something else ran on the machine

Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]


class Host(Strict):
    name: str
    threads: Count
    memory_bytes: Count


def _boolean_present(device: Any) -> Any:
    """Literal[True] would take 1."""
    if isinstance(device, dict) and not isinstance(device.get("present", False), bool):
        raise ValueError("present should be true or false")
    return device


class NoGpu(Strict):
    present: Literal[False]


class Gpu(Strict):
    present: Literal[True]
    why_absent: str
    name: Text
    compute_capability: str
    sm_count: Count
    l2_bytes: Annotated[int, Field(ge=0)]
    memory_bytes: Count
    clock_khz: int
    driver_version: int | str
    runtime_version: int | str


class Run(Strict):
    """One program that wrote into the folder."""

    argv: list[str]
    load_average: float | int | None = None


class Listed(Strict):
    """What a finished run records of a table."""

    rows: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Context(Strict):
    """context.json; docs/measuring.md describes the keys."""

    format_version: int  # load_context has seen that it is 1
    command: str
    argv: list[str]
    utc_start: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]
    utc_end: str | None
    commit: Text
    dirty: bool
    sources_hash: Text
    version: str
    build_type: str
    cxx: str
    cxx_flags: str
    cuda: str
    cuda_flags: str
    host: Host
    device: Annotated[Annotated[NoGpu | Gpu, Field(discriminator="present")], BeforeValidator(_boolean_present)]
    grid: JsonValue
    seeds: list[int] | int
    variants: list[str]
    complete: bool
    runs: list[Run] = Field(default_factory=list)
    files: dict[str, Listed] = Field(default_factory=dict)


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


@dataclass(frozen=True)
class Folder(Tables):
    """One results folder as it lies on disk; `schema` declares the tables."""

    path: Path
    context: dict[str, Any]
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
        if not self.on_gpu:
            return f"{self.context['host']['name']} (host only)"
        return f"{self.context['device']['name']}, {self.code} code" if self.code else self.context["device"]["name"]

    @property
    def code(self) -> str:
        """ "sm_80" where the device compiled the PTX of an older architecture, "" where it ran code of its own."""
        listed = re.search(r"architectures (\S+)$", self.context.get("cuda_flags") or "")
        own = str(self.context["device"].get("compute_capability") or "").replace(".", "")
        numbers = [int(number) for number in re.findall(r"\d+", listed[1])] if listed else []
        if not self.on_gpu or not own.isdigit() or not numbers or int(own) in numbers:
            return ""
        return f"sm_{max((number for number in numbers if number <= int(own)), default=min(numbers))}"

    @property
    def commit(self) -> str:
        return self.context["commit"]

    @property
    def l2_bytes(self) -> int:
        return int(self.context["device"].get("l2_bytes") or 0) if self.on_gpu else 0

    @property
    def origin(self) -> tuple[str, ...]:
        """Folders of one origin may be read together: device, commit, sources, and the build."""
        return self.device, self.commit, self.context["sources_hash"], *(self.context[entry] for entry in BUILD)

    @property
    def loaded(self) -> bool:
        """Whether the machine had other work when a program began to measure."""
        loads = [run.get("load_average") or 0 for run in self.context.get("runs", [])]
        return max(loads, default=0) > self.context["host"]["threads"] / 2

    def has(self, table: str) -> bool:
        """Whether there are rows, or a profile."""
        return has_profile(self.path) if table == "profile.csv" else len(self.tables.get(table, ())) > 0


@dataclass(frozen=True)
class Device(Tables):
    """Folders of one device, merged; where two folders measured the same thing the newer one counts."""

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
        """Names in ladder order, as the registry listed them; names only found in the tables follow. A run may have named a few in any order,
        so the folder with the most of them says it, the newest of several."""
        widest_first = sorted((f.context["variants"] for f in reversed(self.folders)), key=len, reverse=True)
        names = list(dict.fromkeys(v for listed in widest_first for v in listed))
        tables = (self.results, self.unsupported, self.accuracy)
        return names + sorted({v for t in tables for v in t["variant"]} - set(names))

    @property
    def short(self) -> str:
        """Device and commit: what tells runs apart on a page."""
        dirty = "+dirty" if any(f.context["dirty"] for f in self.folders) else ""
        return f"{self.name}, {', '.join(dict.fromkeys(f.commit[:10] for f in self.folders))}{dirty}"

    @property
    def label(self) -> str:
        """Folders, device and commit."""
        return f"{', '.join(f.name for f in self.folders)}  |  {self.short.replace(', ', '  |  commit ', 1)}"


def load(paths: Iterable[Path | str], *, allow_dirty=False, allow_mixed=False, allow_incomplete=False, split=False) -> list[Device]:
    """Loads folders and groups them by device; with `split` by origin, the newest group first.

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
        _refuse_mixed(folders, commits=not split)
    groups: dict[Any, list[Folder]] = {}
    for folder in sorted(folders, key=lambda f: f.context["utc_start"]):
        groups.setdefault(folder.origin if split else folder.device, []).append(folder)
    devices = [merge(group[-1].device, group) for group in groups.values()]
    return sorted(devices, key=_speaks_first, reverse=True) if split else devices


def load_folder(path: Path | str, *, allow_dirty=False, allow_incomplete=False) -> Folder:
    """Loads one folder; throws ResultsError as `load` does."""
    path = Path(path)
    context = load_context(path)
    path = path.resolve()
    if not context["complete"] and not allow_incomplete:
        raise ResultsError(f"{path.name} is an incomplete run (complete=false); --allow-incomplete reads it anyway")
    if context["dirty"] and not allow_dirty:
        raise ResultsError(f"{path.name} comes from a dirty build (sources differ from commit {context['commit'][:10]}); --allow-dirty reads it anyway")
    _check_files(path, context.get("files", {}))
    declared, tables = _read_tables(path)
    missing = [name for name in SWEEP_FILES if name not in tables]
    if "results.csv" in tables and missing:
        raise ResultsError(f"{path.name} has results.csv but no {missing[0]}")
    if not tables.keys() - {*SWEEP_FILES[1:], *SIDE_FILES} and not has_profile(path):
        raise ResultsError(f"{path.name} has neither results.csv nor accuracy.csv nor profile.csv")
    for name, table in tables.items():
        _check_measured(path, name, table)
        if name not in MAY_REPEAT and not declared[name].may_repeat:
            _check_duplicates(path, name, table, declared[name].key)
    for name in ("results.csv", "unsupported.csv"):
        if name in tables:
            _check_texts(path, name, tables[name])
    if "results.csv" in tables:
        _check_results(path, tables["results.csv"])
    none = {name: schema.completed(table.empty(), schema.current().get(name, table)) for name, table in declared.items()}
    return Folder(path, context, declared, none | tables)


def load_context(path: Path | str) -> dict[str, Any]:
    """context.json of a results folder, checked; throws ResultsError."""
    path = Path(path)
    if not path.is_dir():
        raise ResultsError(f"{path} is no results folder: no such directory")
    path = path.resolve()
    file = path / "context.json"
    if not schema.present(file):
        raise ResultsError(f"{path.name} is no results folder: context.json is missing")

    class Versioned(BaseModel):
        format_version: Any = None

    version = read_json(file, Versioned).format_version
    if type(version) is not int or version != 1:
        raise ResultsError(f"{path.name} has format_version {version!r}, this program reads 1")
    context = read_json(file, Context).model_dump()
    if context["dirty"] and (commit := sources.named().get(context["sources_hash"])):
        context |= {"commit": commit, "dirty": False}
    return context


def has_profile(path: Path) -> bool:
    """Whether the folder holds counters of Nsight Compute; analysis/profile.py reads them."""
    return (path / "profile.csv").is_file()


def layout_of(placement: str, row_stride: int = 0, n: int = 0, arrangement: str = "") -> str:
    """Where the rows lie, in words: "in place", "out of place", with ", sequency" or ", inner64" where they are arranged so, with
    ", strided" when rows have gaps."""
    place = {"in": "in place", "out": "out of place"}.get(placement, placement)
    place = f"{place}, {arrangement}" if arrangement else place
    return place if row_stride == n * inner_of(arrangement) else f"{place}, strided"


def inner_of(arrangement: str) -> int:
    """How many rows lie between each other."""
    found = re.search(r"inner(\d+)", arrangement)
    return int(found[1]) if found else 1


def _check_files(path: Path, files: dict[str, dict]) -> None:
    """A finished folder lists its tables: rows and hash must be what the run recorded."""
    for name, listed in files.items():
        if Path(name).name != name or not (path / name).is_file():
            raise ResultsError(f"{path.name}: {name[:80]!r} is missing, although its context.json lists it")
        content = read_bytes(path / name)
        if hashlib.sha256(content).hexdigest() != listed["sha256"]:
            rows = max(0, content.count(b"\n") - 1)
            raise ResultsError(
                f"{name} of {path.name} has {rows} rows, its context.json says {listed['rows']}: the file is not what the run wrote"
                if rows != listed["rows"]
                else f"{name} of {path.name} has another hash than its context.json says: the file is not what the run wrote"
            )


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
            tables[name] = legacy.completed(schema.typed(path, texts, legacy.declared(table, texts.columns)), table)
        elif name in own:
            tables[name] = schema.completed(schema.typed(path, texts, table), schema.current().get(name, table))
        else:
            raise ResultsError(f"{path.name}: {schema.NAME} does not declare {name}")
    return declared, tables


def _check_measured(path: Path, name: str, table: pd.DataFrame) -> None:
    """Infinite numbers stand in rows of wrong results only."""
    good = table["status"] == "ok" if "status" in table else pd.Series(True, index=table.index)
    for column in table.select_dtypes(float):
        infinite = good & np.isinf(table[column])
        if infinite.any():
            raise ResultsError(f"{path.name}: {name} has an infinite {column} in line {schema.line_of(infinite)}")


# As parse_operator, parse_encoding, parse_preparations and set_arrangement read them (common/contract).
_OPERATOR = re.compile(r"(?:signs\+)?(d?\d{1,18}r?t?(?:xd?\d{1,18}r?t?)*)(?:\+signs)?")
_PREPARED = r"(?:rms|rope\d{1,9}i?(?:h\d{1,9})?|page\d{1,9}x\d{1,9})"  # what stands in front of a format
_ENCODING = re.compile(rf"(?:(?:{_PREPARED}(?:/{_PREPARED})*>)?(?:e4m3|int8|int4|mxfp8|mxfp4|nvfp4)(?::[a-z0-9_]+(?:,[a-z0-9_]+)*)?(?:/f32)?)?")
_WORD = r"(?:(?:from-)?(?:natural|dyadic|sequency)|inner[1-9]\d{0,17})"
_ARRANGEMENT = re.compile(f"(?:{_WORD}(?:/{_WORD})*)?")


def _check_texts(path: Path, name: str, table: pd.DataFrame) -> None:
    """Every operator is one of its row length, every encoding a known format, every arrangement made of known words."""
    for operator, n in table[["operator", "n"]].drop_duplicates().itertuples(index=False, name=None):
        found = _OPERATOR.fullmatch(operator)
        if not found or math.prod(map(int, re.findall(r"\d+", found[1]))) != n:
            raise ResultsError(f"{path.name}: {name} has operator {operator[:80]!r} on rows of n={n}")
    for encoding in table["encoding"].unique():
        if not _ENCODING.fullmatch(encoding):
            raise ResultsError(f"{path.name}: {name} has {encoding[:80]!r} for encoding, which names no format")
    for arrangement in table["arrangement"].unique():
        if not _ARRANGEMENT.fullmatch(arrangement):
            raise ResultsError(f"{path.name}: {name} has {arrangement[:80]!r} for arrangement, which names none")


# Present in every correct row.
MEASURED = ("time_us", "time_min_us", "time_max_us", "limit_us", "fraction_of_limit", "bytes_per_second", "rel_l2")


def _check_results(path: Path, table: pd.DataFrame) -> None:
    """The columns must agree with each other; a table that does not was not written by the sweep."""
    ok = table["status"] == "ok"
    width = table["dtype"].map(ELEMENT_BYTES)
    checks = [
        (width.isna(), "has a dtype other than " + ", ".join(DTYPES)),
        (ok & ~(table["time_us"] > 0), "is ok without a positive time"),
        *((ok & table[name].isna(), f"is ok without {name}") for name in MEASURED),
        (ok & ~(table["limit_us"] > 0), "is ok without a positive limit_us"),
        (ok & (table["encoding"] == "") & ~table["dtype"].isin(INTEGERS) & ~(table["predicted_rel_l2"] > 0), "is ok without a positive predicted_rel_l2"),
        (~ok & table["time_us"].notna(), "has a time although the result is not ok"),
        (ok & ~table["time_us"].between(table["time_min_us"], table["time_max_us"]), "has time_us outside time_min_us to time_max_us"),
        (table["elements"] != table["n"] * table["rows"], "has elements other than n * rows"),
        (table["row_stride"] < table["n"] * table["arrangement"].map(inner_of), "has row_stride below n, times the inner dimension"),
        (table["bytes_read"] < table["elements"] * width, "has bytes_read below elements * bytes"),
        (table["useful_bytes"] != table["bytes_read"] + table["bytes_written"], "has useful_bytes other than bytes_read + bytes_written"),
        (ok & ((table["fraction_of_limit"] * table["time_us"] / table["limit_us"] - 1).abs() > 0.01),
         "has a fraction_of_limit other than limit_us / time_us"),
    ]  # fmt: skip
    for mask, what in checks:
        if mask.any():
            raise ResultsError(f"{path.name}: results.csv {what} in line {schema.line_of(mask)}")


def _check_duplicates(path: Path, name: str, table: pd.DataFrame, key: list[str]) -> None:
    repeated = table.duplicated(key)
    if repeated.any():
        raise ResultsError(f"{path.name}: {name} repeats an earlier measurement in line {schema.line_of(repeated)}")


def _refuse_mixed(folders: list[Folder], *, commits: bool) -> None:
    """Everywhere: one clean commit has one hash, and on one device one build. With `commits`, one device has one commit and one hash."""
    for i, a in enumerate(folders):
        for b in folders[i + 1 :]:
            same_device = commits and a.device == b.device
            if same_device and a.commit != b.commit:
                raise ResultsError(f"{a.name} and {b.name} mix commits {a.commit[:10]} and {b.commit[:10]} of {a.device}; --allow-mixed reads them anyway")
            same_source = same_device or (a.commit == b.commit and not a.context["dirty"] and not b.context["dirty"])
            if same_source and a.context["sources_hash"] != b.context["sources_hash"]:
                raise ResultsError(
                    f"{a.name} and {b.name} name commit {a.commit[:10]} but have different sources_hash "
                    f"{a.context['sources_hash'][:12]} and {b.context['sources_hash'][:12]}; --allow-mixed reads them anyway"
                )
            differing = [entry for entry in BUILD if a.context[entry] != b.context[entry]]
            if differing and a.origin[:3] == b.origin[:3]:
                raise ResultsError(
                    f"{a.name} and {b.name} come from different builds of commit {a.commit[:10]}: {differing[0]} {a.context[differing[0]]!r} "
                    f"and {b.context[differing[0]]!r}; --allow-mixed reads them anyway"
                )


def merge(device: str, folders: list[Folder]) -> Device:
    """Where two folders hold a row of the same key, the newer one counts; `folders` oldest first."""
    declared = {name: table for folder in folders for name, table in folder.schema.items()}
    tables: dict[str, pd.DataFrame] = {}
    superseded = 0
    for name, table in declared.items():
        parts = [f.tables[name].assign(folder=f.name) for f in folders if name in f.tables]
        parts = [part for part in parts if len(part)] or parts[:1]
        every = pd.concat(parts, ignore_index=True)
        key = schema.current().get(name, table).key  # an older folder's schema may lack a column that is empty in it
        tables[name] = every.drop_duplicates(key, keep="last", ignore_index=True)
        superseded += (len(every) - len(tables[name])) * (name not in MAY_REPEAT)
    tables["results.csv"] = _completed(tables["results.csv"])
    unsupported = tables["unsupported.csv"]
    tables["unsupported.csv"] = unsupported.assign(elements=unsupported["n"] * unsupported["rows"], layout=_places(unsupported))
    return Device(device, tuple(folders), tables, superseded)


DENSE = r"d\d"  # an operator with a dense factor
READS_NUMBERS = f"signs|{DENSE}"  # or with signs: numbers of a caller


def _places(rows: pd.DataFrame) -> list[str]:
    """Placement and arrangement in words, whatever the row stride."""
    return [layout_of(p, inner_of(a), 1, a) for p, a in zip(rows["placement"], rows["arrangement"])]


def _completed(results: pd.DataFrame) -> pd.DataFrame:
    """With what every reader asks for: the layout in words, the family of the problem, what a forwarding plan picked."""
    layouts = [layout_of(*place) for place in results[["placement", "row_stride", "n", "arrangement"]].itertuples(index=False, name=None)]
    plain = results["operator"] == results["n"].astype(str)
    family = pd.Series("transform", index=results.index, dtype=object).mask(~plain, "width").mask(results["encoding"] != "", "encoded")
    signs, dense = results["operator"].str.contains("signs"), results["operator"].str.contains(DENSE)
    first = results["encoding"].str.contains(">") | signs  # a prologue, pages, signs
    family = family.mask((results["encoding"] != "") & first, "prepared")
    family = family.mask(dense | (signs & (results["encoding"] == "")), "operands").mask(results["arrangement"] != "", "arranged")
    picked = results["settings"].astype(str).str.extract(r'"picked": ?"(\w+)"', expand=False).fillna("")
    completed = results.assign(
        layout=layouts, family=family, picked=picked, error_ratio=results["rel_l2"] / results["predicted_rel_l2"],
        peer=results["variant"].astype(str).str.startswith("peer:"), noisy=results["time_max_us"] > NOISY * results["time_min_us"],
    )  # fmt: skip
    return completed.assign(noise=repeatability(completed))


def repeatability(results: pd.DataFrame) -> float:
    """How far two measurements of one kernel in one run differ, relative, 95 of 100 times: a variant that forwards, and what it
    picks, launch the same kernel. 0 without such pairs. The replays of one measurement differ by less."""
    key = ["operator", "encoding", "dtype", "mode", "layout", "rows", "row_stride"]
    ok = results[results["status"] == "ok"]
    own = ok[ok["picked"] == ""].drop_duplicates([*key, "variant"])
    pairs = ok[ok["picked"] != ""].merge(own, left_on=[*key, "picked"], right_on=[*key, "variant"], suffixes=("", "_own"))
    apart = np.log(pairs["time_us"].astype(float) / pairs["time_us_own"].astype(float)).abs()
    return float(np.expm1(apart.quantile(0.95))) if len(pairs) >= 20 else 0.0


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Holds the lock of a results folder, as the programs do while they write; ResultsError when another program holds it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ResultsError(f"{folder.name} is being written by another program") from None
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> Path:
    """In one step, so that a full disk leaves the old file, never half of one. ResultsError where the path cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # a device; a folder is refused
            path.write_text(text, encoding="utf-8")
            return path
        target = path.resolve()
        part = target.with_name(f"{target.name[:200]}.{os.getpid()}.part")
        try:
            part.write_text(text, encoding="utf-8")
            if target.exists():
                shutil.copymode(target, part)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise ResultsError(f"{path} cannot be written: {error.strerror}") from None
    return path


# ------------------------------------------------------------------------------------------------ committed folders


def committed_files(name: str, root: Path = ROOT) -> list[Path]:
    """Files of this name in results folders that git knows; all of them where there is no git (an unpacked archive)."""
    try:
        command = ["git", "-C", str(root), "ls-files", "--", f"{RESULTS.as_posix()}/*/{name}"]
        listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
        return [root / line for line in listed]
    except (OSError, subprocess.SubprocessError):
        return list((root / RESULTS).glob(f"*/{name}"))


def committed_folders(root: Path = ROOT) -> list[Folder]:
    """Complete and clean results folders that git knows, oldest first."""
    good = []
    for path in committed_files("context.json", root):
        try:
            good.append(load_folder(path.parent))
        except ResultsError:
            continue
    return sorted(good, key=lambda f: f.context["utc_start"])


def runs(folders: Iterable[Folder]) -> list[Device]:
    """Folders merged by origin, the newest first; behind them those of code for an older architecture."""
    groups: dict[tuple, list[Folder]] = {}
    for folder in folders:
        groups.setdefault(folder.origin, []).append(folder)
    return sorted((merge(g[-1].device, g) for g in groups.values()), key=_speaks_first, reverse=True)


def _speaks_first(device: Device) -> tuple[bool, str]:
    return not device.newest.code, device.newest.context["utc_start"]


def newest(devices: Iterable[Device], wanted: Callable[[Device], int]) -> list[Device]:
    """Of `devices` (newest first) the first of every GPU that has what is wanted, in the order of their names; where no GPU has it by
    code of its own, of those with code for an older architecture; where none has, the first host. Where `wanted` counts, the first
    of those that have most: a newer run over a part does not hide the whole."""
    has = {id(device): (device, int(wanted(device))) for device in devices}
    found = [device for device, much in has.values() if much]
    kinds = [(not device.newest.on_gpu, bool(device.newest.code)) for device in found]
    best = [device for device, kind in zip(found, kinds) if kind == min(kinds)]
    if not best or not best[0].newest.on_gpu:
        return best[:1]
    names = sorted({device.name for device in best})
    return [max((device for device in best if device.name == name), key=lambda device: has[id(device)][1]) for name in names]


def timed_on_gpu(device: Device) -> bool:
    return device.newest.on_gpu and bool(((device.results["status"] == "ok") & (device.results["mode"] != "host")).any())
