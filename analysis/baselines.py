"""Published kernels as measured on one H200, and a results folder compared with them.

The table and its provenance lie in `baselines/`. Fractions of the copy limit carry over between machines;
times do not, so times are only shown beside results of the same GPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from .load import Device, ResultsError

FILE = Path(__file__).parent / "baselines" / "h200_published.csv"
ERRORS = Path(__file__).parent / "baselines" / "h200_published_accuracy.csv"
GPU = "H200"
NAMES = {
    "hadacore": "published HadaCore (H200)",
    "fast_hadamard_transform": "published fast-hadamard-transform (H200)",
}
# Which published kernel a variant is the counterpart of.
COUNTERPART = {
    "warp_shuffle": "fast_hadamard_transform",
    "hadacore_published": "hadacore",
    "hadacore": "hadacore",
}
COLUMNS = ["variant", "method", "dtype", "n", "elements", "mode", "fraction", "baseline_fraction",
           "relative_difference", "time_us", "baseline_time_us", "verdict"]  # fmt: skip
# How far a fraction may lie below that of the counterpart (relative), where, and what to call the outcome.
BOUNDS = {"warp_shuffle": 0.10, "hadacore_published": 0.05}
JUDGED_NS = 16
SMALLEST_N = 128  # of comparisons over the paper's grid
JUDGED_ELEMENTS = (1 << 21, 1 << 28)


@cache
def published() -> pd.DataFrame:
    """The table with a column fraction = copy_us / time_us. Shared: do not modify."""
    table = pd.read_csv(FILE)
    table["fraction"] = table["copy_us"] / table["time_us"]
    return table


@cache
def published_errors() -> pd.Series:
    """Relative L2 error by (method, dtype, n). Shared: do not modify."""
    return pd.read_csv(ERRORS).set_index(["method", "dtype", "n"])["rel_l2"]


def same_gpu(device: str) -> bool:
    """Whether absolute times of the published table may stand beside those of `device`."""
    return GPU in device


def published_speedups(dtype: str, mode: str) -> pd.DataFrame:
    """n, elements, speedup of the published HadaCore over the published fast-hadamard-transform."""
    table = published()
    table = table[(table["dtype"] == dtype) & (table["mode"] == mode)]
    wide = table.pivot(index=["n", "elements"], columns="method", values="time_us").dropna()
    if wide.empty:
        return pd.DataFrame(columns=["n", "elements", "speedup"])
    return (wide["fast_hadamard_transform"] / wide["hadacore"]).rename("speedup").reset_index()


def one_shot_limit(device: Device, rows: pd.DataFrame) -> pd.Series:
    """The limit that the published table was measured with: the best copy that gives every thread one to eight
    vectors of 16 bytes and ends, in place. The sweep's own limit takes more kinds of copies, and replayed on data
    in the L2 the persistent ones among them are faster; where limits.csv lacks a row the sweep's limit is taken.
    """
    limits = device.limits
    plain = limits[limits["kernel"].str.startswith("one_shot_") & (limits["memory"] == "device")
                   & (limits["placement"] == "in")]  # fmt: skip
    best = plain.groupby(["useful_bytes", "mode"])["time_us"].min()
    keys = pd.MultiIndex.from_arrays([rows["useful_bytes"], rows["mode"]])
    return best.reindex(keys).set_axis(rows.index).fillna(rows["limit_us"]).astype(float)


def compare(device: Device) -> pd.DataFrame:
    """Fraction of the copy limit, measured against published, for every measurement that has a counterpart.

    `relative_difference` is fraction / baseline_fraction - 1: positive when the variant here is nearer to its
    limit than the published kernel was to its own. `verdict` is "met" or "missed" where BOUNDS asks for
    something (n >= 16, 2^21 to 2^28 elements), else "". Columns as in COLUMNS.
    """
    ok = device.results[(device.results["status"] == "ok") & (device.results["layout"] == "in place")]
    ok = ok[ok["memory"] == "device"].assign(method=ok["variant"].map(COUNTERPART)).dropna(subset=["method"])
    other = published().rename(columns={"fraction": "baseline_fraction", "time_us": "baseline_time_us"})
    both = ok.merge(other, on=["method", "dtype", "n", "elements", "mode"], how="inner")
    both["fraction"] = one_shot_limit(device, both) / both["time_us"]
    both["relative_difference"] = both["fraction"] / both["baseline_fraction"] - 1
    both["verdict"] = _verdicts(both)
    return both[COLUMNS].sort_values(
        ["variant", "method", "dtype", "mode", "n", "elements"], ignore_index=True
    )


@dataclass(frozen=True)
class Gain:
    """A variant over a published kernel, over all sizes that both were measured at. Shares are geometric means."""

    method: str
    points: int
    share: float  # of the sweep's copy limit
    one_shot_share: float  # of one_shot_limit, which the published shares stand on
    published_share: float
    speedup: float  # geometric mean of the times' ratios; NaN on another GPU than the published table's
    worst: float  # the smallest of these ratios
    worst_at: str


def gains(device: Device, variant: str) -> list[Gain]:
    """`variant` over each published kernel: in place, 16-bit, mode replay, n >= SMALLEST_N, all element counts of the
    published table. Empty without a common size."""
    both = _common(device, variant)
    both["one_shot_share"] = one_shot_limit(device, both) / both["time_us"]
    both["ratio"] = both["published_us"] / both["time_us"] if same_gpu(device.name) else np.nan
    return [_gain(str(method), part) for method, part in both.groupby("method")]


def _common(device: Device, variant: str) -> pd.DataFrame:
    """Rows of `variant` at sizes of the published table, once for each of its kernels."""
    ok = device.results[(device.results["status"] == "ok") & (device.results["layout"] == "in place")]
    ok = ok[(ok["variant"] == variant) & (ok["mode"] == "replay") & (ok["n"] >= SMALLEST_N)]
    other = published().rename(columns={"fraction": "published_share", "time_us": "published_us"})
    return ok.merge(other, on=["dtype", "n", "elements", "mode"], how="inner").reset_index(drop=True)


def _gain(method: str, part: pd.DataFrame) -> Gain:
    worst, where = math.nan, ""
    if part["ratio"].notna().any():
        row = part.loc[part["ratio"].idxmin()]
        worst = float(row["ratio"])
        where = f"{row['dtype']}, n = {row['n']}, 2^{int(row['elements']).bit_length() - 1} elements"
    share, one_shot, published_share, speedup = (
        _mean(part[c]) for c in ("fraction_of_limit", "one_shot_share", "published_share", "ratio")
    )
    return Gain(method, len(part), share, one_shot, published_share, speedup, worst, where)


def _mean(values: pd.Series) -> float:
    """Geometric."""
    return float(np.exp(np.log(values.astype(float)).mean()))


def gain_lines(device: Device, variant: str) -> list[str]:
    """`gains` in words, a line for each published kernel."""
    lines = []
    for gain in gains(device, variant):
        line = (
            f"{variant} against {NAMES[gain.method]}, {device.name}: {gain.points} sizes in place, replay, n >= {SMALLEST_N}: "
            f"geometric mean {gain.share:.3f} of the sweep's copy limit, {gain.one_shot_share:.3f} of that of one-shot copies "
            f"(published: {gain.published_share:.3f})"
        )
        if not math.isnan(gain.speedup):
            line += f"; {gain.speedup:.2f} times as fast, at worst {gain.worst:.3f} times ({gain.worst_at})"
        lines.append(line)
    return lines


def compare_all(devices: list[Device]) -> pd.DataFrame:
    """`compare` for several devices, with a first column `device`; ResultsError when nothing matches."""
    tables = [compare(device).assign(device=device.name) for device in devices]
    table = pd.concat(tables, ignore_index=True)[["device", *COLUMNS]]
    if table.empty:
        raise ResultsError(
            "no measurement here has a published counterpart; that takes warp_shuffle, hadacore or "
            "hadacore_published "
            "in place, f16 or bf16, mode replay or cold, and a size of the published table"
        )
    return table


def _verdicts(both: pd.DataFrame) -> pd.Series:
    bound = both["variant"].map(BOUNDS).astype(float)
    judged = bound.notna() & both["relative_difference"].notna()
    judged &= (both["n"] >= JUDGED_NS) & both["elements"].between(*JUDGED_ELEMENTS)
    outcome = pd.Series("missed", index=both.index, dtype=object)
    outcome[both["relative_difference"] >= -bound] = "met"
    return outcome.where(judged, "")


def misses(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of `compare_all` outside their bound, worst first within variant and mode.

    `time_ratio` is time here / time of the published kernel, only on the GPU of the published table: near 1
    there, a miss comes from the limit, which the sweep takes from more copy kernels, and not from the kernel.
    """
    rows = table[table["verdict"] == "missed"].sort_values(
        ["device", "variant", "mode", "relative_difference"]
    )
    ratio = (rows["time_us"] / rows["baseline_time_us"]).where(rows["device"].map(same_gpu).astype(bool))
    columns = ["device", "variant", "mode", "dtype", "n", "elements", "fraction", "baseline_fraction"]
    return rows[[*columns, "relative_difference"]].assign(time_ratio=ratio).reset_index(drop=True)


def verdict_lines(table: pd.DataFrame) -> list[str]:
    """One line per device, variant and mode: how many comparisons are within the bound, the worst, the "
    "mean."""
    lines = []
    for variant, bound in BOUNDS.items():
        judged = table[(table["variant"] == variant) & (table["verdict"] != "")]
        name = f"{variant} against published {COUNTERPART[variant]}"
        if judged.empty:
            lines.append(f"{name}: nothing to judge (n >= {JUDGED_NS}, 2^21 to 2^28 elements)")
        for (device, mode), part in judged.groupby(["device", "mode"], sort=False):
            worst = next(part.loc[[part["relative_difference"].idxmin()]].itertuples())
            mean = float(np.exp(np.log1p(part["relative_difference"].astype(float)).mean()))
            lines.append(
                f"{name}, {mode}, {device}: {int((part['verdict'] == 'met').sum())} of {len(part)} within "
                f"{100 * bound:.0f} % of its fraction or better, geometric mean {mean:.3f} of it, worst "
                f"{100 * worst.relative_difference:+.1f} % ({worst.dtype}, n = {worst.n}, "
                f"2^{worst.elements.bit_length() - 1} elements)"
            )
    return lines
