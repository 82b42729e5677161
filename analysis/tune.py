"""The tuning table of the variant `auto`, from a sweep of its candidates over the grid `tune`."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from . import tables
from .load import ELEMENT_BYTES, READS_NUMBERS, ROOT, ResultsError, load_folder, merge

FOLDER = ROOT / "variants" / "auto"
SHIPPED = sorted(FOLDER.glob("*.csv"))  # one a device that was measured
TITLE = "# fwht tuning table 2"
HEADER = ["dtype", "n", "elements", "placement", "launch", "variant"]
# A variant that is as fast at every size of a row length is named at all of them, so that equal rows have equal results. Elsewhere, of
# two within this of each other the choice of the next smaller size stays, so that noise does not make the table flicker. Times out of
# the L2 repeat better than that, and a whole per cent would keep the choice of the L2 there, which at n = 8192 is 0.8 % slower.
INDIFFERENCE = 0.005
AS_FAST = 1.02  # times the fastest: what `auto` must keep warm wherever it was measured, up to INDIFFERENCE
ROUNDS_ONCE = 1.1  # times the error of rounding the exact result once; a second rounding makes it 1.4
LEAST_LENGTHS = 10  # of each dtype: the grid tune has 15 or 16
PROBLEM = ["dtype", "n", "placement", "launch", "elements"]
WARM = ("alternating", "replay")  # of a size that was timed in both, the first decides


def candidates(results: pd.DataFrame) -> pd.Series:
    """Rows of what `auto` may pick: it launches kernels of its own, its plan has no memory that would bind it to one stream, its operator reads
    no numbers of a caller, and its results are no codes, of 16 bits rounded once."""
    ideal = results["dtype"].map(tables.ideal_error).astype(float)
    once = (results["dtype"].map(ELEMENT_BYTES) > 2) | (results["predicted_rel_l2"] <= ROUNDS_ONCE * ideal)
    alone = results["settings"].astype(str).str.contains(r'"workspace_bytes": ?[1-9]')
    named = ~results["operator"].astype(str).str.contains(READS_NUMBERS)
    return named & (results["memory"] == "device") & (results["encoding"] == "") & (results["picked"] == "") & ~results["peer"] & ~alone & once


def choices(results: pd.DataFrame) -> pd.DataFrame:
    """One row per dtype, n, placement, launch and number of elements: the fastest candidate.

    A choice reaches half way to the next size, where nothing was measured. So a size that alone would take another variant than both sizes beside it
    takes theirs, where that is as fast warm, and costs less here than the other one costs at either of them.

    `results` are rows of results.csv. Ordinary launches may find their data in the L2 or not, and `auto` cannot know. So of a size that was
    timed cold too, candidates that are as fast warm are compared by the mode that is worse for them. Programmatic launches are replay_pdl.
    """
    rows = results[
        (results["status"] == "ok")
        & candidates(results)
        & (results["row_stride"] == results["n"])
        & (results["arrangement"] == "")
        & results["mode"].isin([*WARM, "cold", "replay_pdl"])
    ].assign(launch=lambda rows: rows["mode"].eq("replay_pdl").map({True: "programmatic", False: "ordinary"}))
    warm = rows["mode"].isin(WARM)
    if not warm.any():
        raise ResultsError("no measurement of a variant that auto may pick, in mode alternating or replay")
    first_mode = rows["mode"].where(warm).groupby([rows[key] for key in PROBLEM]).transform("min")  # "alternating" sorts before "replay"
    rows = rows[np.where(warm, rows["mode"] == first_mode, (rows["launch"] == "programmatic") | first_mode.notna())]
    chosen: list[tuple] = []
    for (dtype, n, placement, launch), part in rows.groupby(["dtype", "n", "placement", "launch"], sort=True):
        sizes = [(elements, _costs(here)) for elements, here in part.groupby("elements", sort=True)]
        worst = pd.concat([cost for _, cost in sizes], axis="columns").max(axis="columns", skipna=False)
        before = worst.idxmin() if worst.min() <= AS_FAST else None
        best: list[Any] = []
        for _, cost in sizes:
            fastest = cost.idxmin()
            stays = before in cost.index and cost[before] <= (AS_FAST if worst.min() <= AS_FAST else (1 + INDIFFERENCE) * cost[fastest])
            best.append(before if stays else fastest)
            before = best[-1]
        here = [_ratios(rows).max(axis="columns") for _, rows in part.groupby("elements", sort=True)]
        for i in range(1, len(best) - 1):
            around, cost = best[i - 1], sizes[i][1]
            if around == best[i + 1] and around in cost.index and cost[around] < min(here[i - 1].get(best[i], 1.0), here[i + 1].get(best[i], 1.0)):
                best[i] = around
        chosen += [(dtype, n, elements, placement, launch, variant) for (elements, _), variant in zip(sizes, best, strict=True)]
    return pd.DataFrame(chosen, columns=HEADER)


def _ratios(rows: pd.DataFrame) -> pd.DataFrame:
    """How many times the time of the fastest each variant takes, by mode, of those that were timed in every mode; ResultsError without one."""
    every = rows.groupby(["variant", "mode"])["time_us"].median().unstack("mode")
    times = every.dropna()
    if times.empty:
        dtype, n, placement, elements = rows[["dtype", "n", "placement", "elements"]].iloc[0]
        raise ResultsError(f"{dtype}, n = {n}, {elements} elements, placement {placement}: no variant was timed in both {' and '.join(every.columns)}")
    return times / times.min()


def _costs(rows: pd.DataFrame) -> pd.Series:
    """Of the variants that are as fast as the fastest, warm and up to noise: how many times the time of the fastest they take, in their worse mode."""
    costs = _ratios(rows)
    return costs[costs.drop(columns="cold", errors="ignore").max(axis="columns") <= AS_FAST + INDIFFERENCE].max(axis="columns")


# Before the variant butterflies was split off, mma_split served these with the same kernels.
LARGEST_SPLIT_OFF = 32
NAMES = "# names: of results before butterflies was split off mma_split; f32 and n <= 32 were mma_split there"


def before_the_split(results: pd.DataFrame) -> pd.Series:
    """Which rows name mma_split for what butterflies serves now."""
    return (results["variant"] == "mma_split") & ((results["dtype"] == "f32") | (results["n"] <= LARGEST_SPLIT_OFF))


def table_text(*paths: Path, allow_dirty: bool = False) -> str:
    """The table as a file for FWHT_TUNING, from results folders of one CUDA device in any order; ResultsError where they are no
    sweep over the grid tune: `auto` trusts the table at every row length."""
    folders = sorted((load_folder(path, allow_dirty=allow_dirty) for path in paths), key=lambda f: f.context["utc_start"])
    device = folders[0].context["device"]
    for folder in folders:
        if not folder.on_gpu:
            raise ResultsError(f"{folder.path} was not measured on a CUDA device")
        if folder.device != folders[0].device:
            raise ResultsError(f"{folder.name} was measured on {folder.device}, {folders[0].name} on {folders[0].device}")
    names = " ".join(folder.name for folder in folders)
    lines = [
        TITLE,
        f"# device: {device['name']}",
        f"# compute_capability: {device['compute_capability'].replace('.', '')}",
        f"# sm_count: {device['sm_count']}",
        f"# source: {names}",
    ]
    results = merge(folders[0].device, folders).results
    renamed = before_the_split(results)
    if renamed.any():
        lines.append(NAMES)
        results = results.assign(variant=results["variant"].mask(renamed, "butterflies"))
    found = choices(results)
    lengths = found.groupby("dtype")["n"].nunique()
    if (lengths < LEAST_LENGTHS).any():
        raise ResultsError(f"{names} has {lengths.min()} row lengths in {lengths.idxmin()}, a tuning table needs {LEAST_LENGTHS}; ./testbed tune measures them")
    return "\n".join(lines) + "\n" + found.to_csv(index=False, lineterminator="\n")


def sources_of(text: str) -> list[str]:
    """The results folders that a table names."""
    for line in text.splitlines():
        if line.startswith("# source: "):
            return line.removeprefix("# source: ").split()
    raise ResultsError("the tuning table names no source")


def shipped_name(device: str) -> str:
    """The file of a device's table: h100.csv of "NVIDIA H100 80GB HBM3", its first word with a digit up to a hyphen."""
    word = next((word for word in device.split() if re.search(r"\d", word)), device.split()[-1])
    return re.sub(r"[^a-z0-9]", "", word.split("-")[0].lower()) + ".csv"


def shipped_path(device: str) -> Path:
    """Where a device's table ships; ResultsError where that of another device lies."""
    path = FOLDER / shipped_name(device)
    if path.exists() and (other := read_table(path).device) != device:
        raise ResultsError(f"{path.name} is the table of {other}, not of {device}; --output FILE.csv writes one elsewhere")
    return path


@dataclass(frozen=True)
class TuningTable:
    """A table as `auto` reads it (variants/auto/tuning_table.hpp)."""

    path: Path
    device: str
    compute_capability: int
    sm_count: int
    choices: pd.DataFrame

    def has(self, dtype: str, n: int) -> bool:
        return bool(((self.choices["dtype"] == dtype) & (self.choices["n"] == n)).any())

    def nearest(self, dtype: str, n: int, elements: int, placement: str, programmatic: bool = False) -> str:
        """The choice of the nearest number of elements on a logarithmic scale (the larger of two, and of the own launch), of this placement
        where the table has it, else in place; "" without one."""
        rows = self.choices[(self.choices["dtype"] == dtype) & (self.choices["n"] == n) & ((self.choices["launch"] == "ordinary") | programmatic)]
        for place in (placement, "in"):
            if len(own := rows[rows["placement"] == place].sort_values(["elements", "launch"], ascending=False)):
                return str(own["variant"].iloc[(own["elements"].map(math.log2) - math.log2(elements)).abs().argmin()])
        return ""


def beside_the_best(results: pd.DataFrame, table: TuningTable) -> pd.DataFrame:
    """Of every problem and mode at which several candidates were timed: `choice`, the variant that the table names, and `ratio`, its time over
    that of the fastest. Throttled measurements do not count."""
    rows = results[(results["status"] == "ok") & candidates(results) & (results["row_stride"] == results["n"]) & (results["arrangement"] == "")]
    rows = rows[(rows["throttle"].fillna("") == "") & rows["n"].isin(table.choices["n"])]
    problem = ["dtype", "n", "elements", "placement", "mode"]
    times = rows.groupby([*problem, "variant"])["time_us"].median().unstack("variant")
    times = times[times.notna().sum(axis="columns") > 1]
    found = times.index.to_frame(index=False)
    found["choice"] = [table.nearest(p.dtype, p.n, p.elements, p.placement, p.mode == "replay_pdl") for p in found.itertuples()]
    found["ratio"] = [row.get(name, math.nan) / row.min() for name, (_, row) in zip(found["choice"], times.iterrows())]
    return found.dropna(subset="ratio")


def read_table(path: Path) -> TuningTable:
    text = path.read_text(encoding="utf-8")
    found = dict(re.findall(r"^# (\w+): (.*)$", text, re.MULTILINE))
    choices = pd.read_csv(io.StringIO(text), comment="#")
    return TuningTable(path, found["device"], int(found["compute_capability"]), int(found["sm_count"]), choices)


def table_for(device: dict[str, Any], shipped: Iterable[Path] | None = None, *, dtype: str = "", n: int = 0) -> TuningTable | None:
    """Of the tables that ship the one that `auto` takes on a device of a context.json, as variants/auto/device_class.hpp has it: the
    nearest compute capability at or below its own, then the name that agrees in most words, then the nearest number of SMs. With `dtype`
    and `n`, of those tables the one that has such rows."""

    def rank(table: TuningTable) -> tuple[int, float]:
        alike = [own == other for own, other in zip(table.device.split(), device["name"].split())]
        return (*alike, False).index(False), -abs(math.log2(table.sm_count / device["sm_count"]))

    own = int(device["compute_capability"].replace(".", ""))
    tables_ = [table for path in (SHIPPED if shipped is None else shipped) if (table := read_table(path)).compute_capability <= own]
    nearest = max((table.compute_capability for table in tables_), default=0)
    has = [table for table in tables_ if table.compute_capability == nearest and (not n or table.has(dtype, n))]
    return max(has, key=rank, default=None)
