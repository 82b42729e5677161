"""Loads results folders and refuses what a reader could not trust.

A results folder holds `context.json` (provenance), `results.csv`, `limits.csv`, `unsupported.csv` (the sweep),
`accuracy.csv` (the accuracy experiment), `probes.csv`, `overflow.csv`, `quantization.csv`, `attention.csv` (what accuracy
means) and `profile.csv` (the profile); one of these is enough. Times are in microseconds, sizes in elements or bytes, errors
relative.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

FORMAT_VERSION = 1
MODES = ("alternating", "replay", "replay_pdl", "cold", "host")  # order of display
DTYPES = ("f16", "bf16", "f32")
ELEMENT_BYTES = {"f16": 2, "bf16": 2, "f32": 4}
STATUSES = ("ok", "incorrect", "failed")

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

# Columns per file; True marks a number (an empty field is then "no value").
COLUMNS = {
    "results.csv": {
        "variant": False, "memory": False, "dtype": False, "n": True, "rows": True, "elements": True,
        "placement": False, "row_stride": True, "mode": False, "status": False, "time_us": True,
        "time_min_us": True, "time_max_us": True, "launches": True, "replays": True, "empty_us": True,
        "limit_us": True, "limit_kernel": False, "fraction_of_limit": True, "useful_bytes": True,
        "bytes_per_second": True, "rel_l2": True, "predicted_rel_l2": True, "max_error_over_rms": True,
        "gain": True, "settings": False, "message": False,
    },
    "limits.csv": {
        "memory": False, "useful_bytes": True, "placement": False, "mode": False, "kernel": False,
        "time_us": True, "time_min_us": True, "time_max_us": True,
    },
    "unsupported.csv": {
        "variant": False, "dtype": False, "n": True, "rows": True, "placement": False, "reason": False,
    },
    "accuracy.csv": {
        "variant": False, "source": False, "dtype": False, "n": True, "input": False, "seeds": False,
        "elements": True, "status": False, "rel_l2": True, "rel_l2_min_row": True, "rel_l2_mean_row": True,
        "rel_l2_max_row": True, "predicted_rel_l2": True, "ratio": True, "max_error_over_rms": True,
        "gain": True, "predicted_gain": True, "mean_signed_error": True, "bit_match": True, "nonfinite": True,
        "message": False, "predicted_for_data": True, "ratio_for_data": True, "window": True,
        "gain_spread": True, "ulp_histogram": False, "unexpected_nan": True, "unexpected_infinity": True,
        "missing_nonfinite": True,
    },
    "probes.csv": {
        "source": False, "instruction": False, "operand": False, "accumulator": False, "probe": False,
        "vectors": True, "value": True, "model_value": True, "mismatches": True, "status": False,
        "message": False,
    },
    "overflow.csv": {
        "variant": False, "source": False, "dtype": False, "n": True, "shape": False,
        "norm_over_limit": True, "rms": True, "rows": True, "overflowing_rows": True, "spurious_rows": True,
        "spurious_values": True, "rel_l2": True, "status": False, "message": False,
    },
    "quantization.csv": {
        "variant": False, "source": False, "dtype": False, "n": True, "input": False, "format": False,
        "elements": True, "rel_l2": True, "bulk_rel_l2": True, "max_error_over_rms": True,
        "peak_over_rms": True, "underflow": True, "transform_rel_l2": True, "status": False,
        "message": False,
    },
    "attention.csv": {
        "variant": False, "source": False, "method": False, "choice": False, "d": True, "n": True,
        "heads": True, "rows_per_head": True, "seed": True, "rmse": True, "rmse_mean": True,
        "rmse_spread": True, "rmse_min": True, "rmse_max": True, "output_rms": True, "published": True,
        "status": False, "message": False,
    },
}  # fmt: skip
# Columns that older folders of this format lack; they read as "no value".
LATER_COLUMNS = {
    "accuracy.csv": (
        "predicted_for_data", "ratio_for_data", "window", "gain_spread", "ulp_histogram", "unexpected_nan",
        "unexpected_infinity", "missing_nonfinite",
    ),
}  # fmt: skip
SWEEP_FILES = ("results.csv", "limits.csv", "unsupported.csv")
NEVER_EMPTY = {
    "results.csv": ("n", "rows", "elements", "row_stride", "useful_bytes"),
    "limits.csv": ("useful_bytes", "time_us"),
    "unsupported.csv": ("n", "rows"),
    "accuracy.csv": ("n",),
    "probes.csv": (),
    "overflow.csv": ("n",),
    "quantization.csv": ("n",),
    "attention.csv": ("d", "n"),
}
# One measurement; two rows with the same key in one folder would leave open which one counts.
RESULT_KEY = ["variant", "memory", "dtype", "n", "rows", "placement", "row_stride", "mode"]
KEYS = {
    "accuracy.csv": ["variant", "source", "dtype", "n", "input"],
    "probes.csv": ["source", "instruction", "operand", "accumulator", "probe"],
    "overflow.csv": ["variant", "source", "dtype", "n", "shape", "norm_over_limit"],
    "quantization.csv": ["variant", "source", "dtype", "n", "input", "format"],
    "attention.csv": ["variant", "source", "method", "choice", "d", "n"],
}


class ResultsError(Exception):
    """A results folder or a request that cannot be served; the text is one sentence for the user."""


@dataclass(frozen=True)
class Folder:
    """One results folder as it lies on disk; the tables have the columns of COLUMNS."""

    path: Path
    context: dict
    results: pd.DataFrame
    limits: pd.DataFrame
    unsupported: pd.DataFrame
    accuracy: pd.DataFrame
    probes: pd.DataFrame
    overflow: pd.DataFrame
    quantization: pd.DataFrame
    attention: pd.DataFrame

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
class Device:
    """All folders of one device, merged; where two folders measured the same thing the newer one counts."""

    name: str
    folders: tuple[Folder, ...]  # oldest first
    results: pd.DataFrame
    limits: pd.DataFrame
    unsupported: pd.DataFrame
    accuracy: pd.DataFrame
    probes: pd.DataFrame
    overflow: pd.DataFrame
    quantization: pd.DataFrame
    attention: pd.DataFrame
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
    tables = {name: _read_table(path, name) for name in COLUMNS}
    missing = [name for name in SWEEP_FILES if tables[name] is None]
    if tables["results.csv"] is not None and missing:
        raise ResultsError(f"{path.name} has results.csv but no {missing[0]}")
    if all(tables[name] is None for name in ("results.csv", *KEYS)) and not has_profile(path):
        raise ResultsError(f"{path.name} has neither results.csv nor accuracy.csv nor profile.csv")
    tables = {name: _empty_table(name) if table is None else table for name, table in tables.items()}
    _check_results(path, tables["results.csv"])
    for name, key in KEYS.items():
        _check_duplicates(path, name, tables[name], key)
    return Folder(path, context, *(tables[name] for name in COLUMNS))


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


def _empty_table(name: str) -> pd.DataFrame:
    return pd.DataFrame(
        {c: pd.Series(dtype=float if number else object) for c, number in COLUMNS[name].items()}
    )


def _read_table(path: Path, name: str) -> pd.DataFrame | None:
    file = path / name
    if not file.is_file():
        return None
    try:
        text = file.read_text(encoding="utf-8")
        complete = text[: text.rfind("\n") + 1]  # a killed run may leave half a line
        table = pd.read_csv(io.StringIO(complete), dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path.name}: {name} cannot be read: {error}") from None
    later = LATER_COLUMNS.get(name, ())
    missing = [column for column in COLUMNS[name] if column not in table.columns and column not in later]
    if missing:
        raise ResultsError(f"{path.name}: {name} lacks column {', '.join(missing)}")
    for column in later:
        if column not in table.columns:
            table[column] = ""
    for column, number in COLUMNS[name].items():
        table[column] = _numbers(path, name, table[column]) if number else table[column].astype(object)
    for column in NEVER_EMPTY[name]:
        if table[column].isna().any():
            raise ResultsError(
                f"{path.name}: {name} has an empty {column} in line {_line(table[column].isna())}"
            )
        if COLUMNS[name][column] and column != "time_us":
            table[column] = table[column].astype("int64")
    return table


def _numbers(path: Path, name: str, column: pd.Series) -> pd.Series:
    numbers = pd.to_numeric(column, errors="coerce")
    text = column.str.strip().str.lower()
    wrong = numbers.isna() & ~text.isin(["", "nan", "-nan"])
    if wrong.any():
        raise ResultsError(
            f"{path.name}: {name} has {column[wrong].iloc[0]!r} for {column.name} in line {_line(wrong)}, "
            "not a number"
        )
    return numbers.astype(float)


def _line(mask: pd.Series) -> int:
    return int(mask.to_numpy().argmax()) + 2  # the header is line 1


def _check_results(path: Path, table: pd.DataFrame) -> None:
    """The columns must agree with each other; a table that does not was not written by the sweep."""
    ok = table["status"] == "ok"
    width = table["dtype"].map(ELEMENT_BYTES)
    checks = [
        (~table["status"].isin(STATUSES), "has a status other than " + ", ".join(STATUSES)),
        (~table["mode"].isin(MODES), "has a mode other than " + ", ".join(MODES)),
        (width.isna(), "has a dtype other than " + ", ".join(DTYPES)),
        (ok & ~(table["time_us"] > 0), "is ok without a positive time"),
        (~ok & table["time_us"].notna(), "has a time although the result is not ok"),
        (table["elements"] != table["n"] * table["rows"], "has elements other than n * rows"),
        (
            table["useful_bytes"] != 2 * table["elements"] * width,
            "has useful_bytes other than 2 * elements * bytes",
        ),
        (
            ok & ((table["fraction_of_limit"] * table["time_us"] / table["limit_us"] - 1).abs() > 0.01),
            "has a fraction_of_limit other than limit_us / time_us",
        ),
    ]
    for mask, what in checks:
        if mask.any():
            raise ResultsError(f"{path.name}: results.csv {what} in line {_line(mask)}")
    _check_duplicates(path, "results.csv", table, RESULT_KEY)


def _check_duplicates(path: Path, name: str, table: pd.DataFrame, key: list[str]) -> None:
    repeated = table.duplicated(key)
    if repeated.any():
        raise ResultsError(f"{path.name}: {name} repeats an earlier measurement in line {_line(repeated)}")


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


def _concat(tables: list[pd.DataFrame], name: str) -> pd.DataFrame:
    filled = [t for t in tables if len(t)]
    return pd.concat(filled, ignore_index=True) if filled else _empty_table(name)


def _merge(device: str, folders: list[Folder]) -> Device:
    results = _concat([f.results.assign(folder=f.name) for f in folders], "results.csv")
    merged = {
        name: _concat([getattr(f, Path(name).stem).assign(folder=f.name) for f in folders], name) for name in KEYS
    }
    before = len(results) + sum(map(len, merged.values()))
    results = results.drop_duplicates(RESULT_KEY, keep="last").reset_index(drop=True)
    merged = {
        name: table.drop_duplicates(KEYS[name], keep="last").reset_index(drop=True)
        for name, table in merged.items()
    }
    superseded = before - len(results) - sum(map(len, merged.values()))
    results["layout"] = [
        layout_of(p, s, n) for p, s, n in zip(results["placement"], results["row_stride"], results["n"])
    ]
    results["error_ratio"] = results["rel_l2"] / results["predicted_rel_l2"]
    unsupported = _concat([f.unsupported for f in folders], "unsupported.csv").drop_duplicates(
        ignore_index=True
    )
    unsupported["elements"] = unsupported["n"] * unsupported["rows"]
    unsupported["layout"] = unsupported["placement"].map(layout_of)
    limits = _concat([f.limits for f in folders], "limits.csv")
    limits = limits.drop_duplicates(["memory", "useful_bytes", "placement", "mode", "kernel"], keep="last")
    return Device(
        device,
        tuple(folders),
        results,
        limits.reset_index(drop=True),
        unsupported,
        *merged.values(),
        superseded,
    )
