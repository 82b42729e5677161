"""What the report, the README and the terminal show, as data frames; no drawing, no formatting of pages."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from . import baselines
from .load import DTYPES, ELEMENT_BYTES, MODES, Device, Folder, ResultsError, layout_of

# Root mean square of one rounding of a smooth density, in units of the unit roundoff: sqrt(1 / (8 ln 2)).
ROUNDING_RMS = math.sqrt(1 / (8 * math.log(2)))
UNIT_ROUNDOFF = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}

PROBLEM = ["dtype", "mode", "layout", "n", "rows", "row_stride", "elements", "operator", "encoding"]


def ideal_error(dtype: str) -> float:
    """Relative L2 error that rounding the exact result once to `dtype` makes."""
    return ROUNDING_RMS * UNIT_ROUNDOFF[dtype]


def binary(value: int) -> str:
    """512 -> "512", 2048 -> "2 Ki", 2^25 -> "32 Mi"; other values in full."""
    for power, suffix in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
        if value >= 1 << power and value % (1 << power) == 0:
            return f"{value >> power} {suffix}"
    return str(value)


def byte_text(value: int) -> str:
    """65536 -> "64 KiB"."""
    for power, suffix in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if value >= 1 << power:
            return f"{value / (1 << power):.3g} {suffix}"
    return f"{value} B"


def time_text(us: float) -> str:
    """Microseconds with three significant digits, in ns, µs or ms."""
    if not np.isfinite(us):
        return "–"
    for scale, unit in ((1e-3, "ns"), (1, "µs"), (1e3, "ms"), (1e6, "s")):
        if us < 999.5 * scale or unit == "s":
            value = us / scale
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"
    raise AssertionError("unreachable")


def ordered(values, order) -> list:
    """Distinct `values` in the order of `order`, strangers last."""
    present = list(dict.fromkeys(values))
    return [v for v in order if v in present] + sorted(v for v in present if v not in order)


def display_rank(column: pd.Series) -> pd.Series:
    """Sort key: dtypes and modes in their order of display, other columns by value."""
    order = {"dtype": DTYPES, "mode": MODES}.get(str(column.name))
    return column if order is None else column.map({name: i for i, name in enumerate(order)})


def modes_of(device: Device) -> list[str]:
    return ordered(device.results["mode"], MODES)


def dtypes_of(device: Device) -> list[str]:
    return ordered([*device.results["dtype"], *device.accuracy["dtype"]], DTYPES)


def main_layout(results: pd.DataFrame) -> str:
    """The layout that figures and the summary show: in place when measured, else the most frequent one."""
    layouts = results["layout"].value_counts()
    return "in place" if "in place" in layouts.index or layouts.empty else layouts.index[0]


@dataclass(frozen=True)
class Size:
    """One column of a summary: the regime in words, the number of elements, the mode of its times."""

    label: str
    elements: int
    mode: str

    def title(self, dtype: str) -> str:
        size = byte_text(self.elements * ELEMENT_BYTES[dtype])
        return f"{self.label}: {binary(self.elements)} elements, {size}"


# Which mode answers for a regime: replay flatters in the L2, so alternating comes first there.
PREFERRED_MODES = {
    "small": ("replay", "alternating", "cold"),
    "in L2": ("alternating", "replay"),
    "DRAM": ("replay", "alternating", "cold"),
}


def summary_sizes(results: pd.DataFrame, dtype: str, mode: str, l2_bytes: int) -> list[Size]:
    """At most three sizes of one mode that stand for the regimes: launch-bound, L2, DRAM.

    Per tensor: the size nearest to 64 KiB; the largest that fills at most 0.6 of the L2 (a tensor of 0.8
    already falls out of it); the largest beyond twice the L2. Without a known L2: smallest, middle and
    largest. Only sizes that were measured for most row lengths count.
    """
    part = results[(results["dtype"] == dtype) & (results["mode"] == mode)]
    counts = part.groupby("elements")["n"].nunique()
    elements = sorted(int(e) for e in counts.index[2 * counts >= counts.max()]) if len(counts) else []
    if not elements:
        return []
    if l2_bytes <= 0 or mode == "host":
        picks = list(dict.fromkeys([elements[0], elements[len(elements) // 2], elements[-1]]))
        labels = {1: ["only size"], 2: ["small", "large"], 3: ["small", "medium", "large"]}[len(picks)]
        return [Size(label, e, mode) for label, e in zip(labels, picks, strict=True)]
    size = {e: e * ELEMENT_BYTES[dtype] for e in elements}
    chosen: dict[int, str] = {}
    small = min(elements, key=lambda e: abs(math.log2(size[e] / 65536)))
    if size[small] <= l2_bytes // 64:
        chosen[small] = "small"
    in_l2 = [e for e in elements if l2_bytes // 64 < size[e] <= 0.6 * l2_bytes]
    if in_l2:
        chosen[max(in_l2)] = "L2-sized" if mode == "cold" else "in L2"
    in_dram = [e for e in elements if size[e] > 2 * l2_bytes]
    if in_dram:
        chosen[max(in_dram)] = "DRAM"
    return [Size(label, e, mode) for e, label in chosen.items()] or [Size("largest", elements[-1], mode)]


def headline_sizes(results: pd.DataFrame, dtype: str, l2_bytes: int) -> list[Size]:
    """One size per regime on the GPU, each in the mode that judges it best; see PREFERRED_MODES."""
    sizes = []
    for label, modes in PREFERRED_MODES.items():
        candidates = (
            s for m in modes for s in summary_sizes(results, dtype, m, l2_bytes) if s.label == label
        )
        sizes += [size] if (size := next(candidates, None)) else []
    return sizes


def picked(results: pd.DataFrame) -> pd.Series:
    """The variant that a row's plan forwards to, as `auto` does; "" where it launches kernels of its own."""
    return results["settings"].str.extract(r'"picked": ?"(\w+)"', expand=False).fillna("")


def without_forwarders(device: Device) -> Device:
    """`device` without the variants that only forward: their times and errors are those of what they pick."""
    names = set(device.results.loc[picked(device.results) != "", "variant"])
    kept = {name: t[~t["variant"].isin(names)] for name, t in device.tables.items() if "variant" in t}
    return replace(device, tables=device.tables | kept)


def best(results: pd.DataFrame) -> pd.DataFrame:
    """The fastest correct variant of every problem and mode, sorted; all columns of `results`. One that forwards to
    another is left out: which of the two is faster is noise."""
    ok = results[(results["status"] == "ok") & (picked(results) == "")]
    rows = ok.loc[ok.groupby(PROBLEM)["time_us"].idxmin()] if len(ok) else ok
    return rows.sort_values(PROBLEM, key=display_rank, ignore_index=True)


@dataclass(frozen=True)
class Summary:
    """Best variant per n (rows) and size (columns) of one dtype; `cells[n, size]` is a row of the results."""

    dtype: str
    layout: str
    sizes: list[Size]
    ns: list[int]
    cells: dict[tuple[int, Size], pd.Series]
    published: dict[tuple[int, Size], tuple[str, float]]  # (method, fraction of its own limit)


def summary(device: Device, dtype: str, mode: str) -> Summary:
    """The sizes of one mode."""
    part = _main_part(device, dtype)
    return _summary(
        part, dtype, main_layout(device.results), summary_sizes(part, dtype, mode, device.l2_bytes)
    )


def headline(device: Device, dtype: str) -> Summary:
    """One column per regime on the GPU, each in its own mode. No columns without a GPU."""
    part = _main_part(device, dtype)
    return _summary(part, dtype, main_layout(device.results), headline_sizes(part, dtype, device.l2_bytes))


def _main_part(device: Device, dtype: str) -> pd.DataFrame:
    results = device.results
    return results[(results["dtype"] == dtype) & (results["layout"] == main_layout(results))]


def _summary(part: pd.DataFrame, dtype: str, layout: str, sizes: list[Size]) -> Summary:
    table = baselines.published()
    cells: dict[tuple[int, Size], pd.Series] = {}
    others: dict[tuple[int, Size], tuple[str, float]] = {}
    for size in sizes:
        rows = best(part[(part["mode"] == size.mode) & (part["elements"] == size.elements)])
        cells |= {(int(row["n"]), size): row for _, row in rows.iterrows()}
        known = table[
            (table["dtype"] == dtype) & (table["mode"] == size.mode) & (table["elements"] == size.elements)
        ]
        for row in known.sort_values("fraction").itertuples():  # the better one comes last
            if layout == "in place" and (row.n, size) in cells:
                others[row.n, size] = (row.method, row.fraction)
    return Summary(dtype, layout, sizes, sorted({n for n, _ in cells}), cells, others)


def side_by_side(devices: list[Device], dtype: str, mode: str) -> pd.DataFrame:
    """Best fraction of the limit per n and device, at the largest size that all of them measured."""
    tables = []
    for device in devices:
        rows = best(device.results[(device.results["layout"] == main_layout(device.results))])
        tables.append(rows[(rows["dtype"] == dtype) & (rows["mode"] == mode)].assign(device=device.name))
    common = set.intersection(*(set(t["elements"]) for t in tables))
    if not common:
        return pd.DataFrame()
    rows = pd.concat(t[t["elements"] == max(common)] for t in tables)
    table = rows[["n", "device", "elements", "variant", "time_us", "fraction_of_limit"]]
    return table.sort_values(["n", "device"], ignore_index=True)


def not_ok(device: Device) -> pd.DataFrame:
    """Measurements without a time: incorrect or failed, with the message."""
    rows = device.results[device.results["status"] != "ok"]
    columns = [
        "status",
        "variant",
        "dtype",
        "mode",
        "layout",
        "n",
        "rows",
        "rel_l2",
        "predicted_rel_l2",
        "message",
    ]
    return rows[columns].reset_index(drop=True)


def unsupported_reasons(device: Device) -> pd.DataFrame:
    """variant, dtype, placement, n (compact list), reason: one line per distinct sentence."""
    table = device.unsupported
    if table.empty:
        return pd.DataFrame(columns=["variant", "dtype", "placement", "n", "reason"])
    rank = {v: i for i, v in enumerate(device.variants)}
    groups = table.groupby(["variant", "placement", "reason"], sort=False)
    rows = [
        {
            "variant": variant,
            "dtype": ", ".join(ordered(part["dtype"], DTYPES)),
            "placement": layout_of(placement),
            "n": n_ranges(part["n"]),
            "reason": reason,
            "first_n": int(part["n"].min()),
        }
        for (variant, placement, reason), part in groups
    ]
    rows.sort(key=lambda r: (rank.get(r["variant"], 99), r["placement"], r["first_n"]))
    return pd.DataFrame(rows).drop(columns="first_n")


def n_ranges(values) -> str:
    """Row lengths, runs of doublings drawn together: 2, 4, 8, 12, 64 -> "2–8, 12, 64"."""
    ns = sorted({int(v) for v in values})
    runs: list[list[int]] = []
    for n in ns:
        if runs and n == 2 * runs[-1][-1]:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ", ".join(
        str(r[0]) if len(r) == 1 else f"{r[0]}{'–' if len(r) > 2 else ', '}{r[-1]}" for r in runs
    )


def main_input(accuracy: pd.DataFrame) -> str:
    """The input of the accuracy figures: normally distributed data, else the most frequent."""
    inputs = accuracy["input"].value_counts()
    if inputs.empty:
        return ""
    return next((name for name in inputs.index if "normal" in name or "gauss" in name), inputs.index[0])


def errors(device: Device) -> pd.DataFrame:
    """Measured error per variant, dtype and n against one rounding of the exact result.

    From the accuracy experiment (main input); where it has no row, from the sweep's own check. Columns
    variant, dtype, n, rel_l2, predicted_rel_l2, over_ideal, over_predicted.
    """
    accuracy = device.accuracy
    exact = accuracy[
        (accuracy["source"] == "measured")
        & (accuracy["status"] == "ok")
        & (accuracy["input"] == main_input(accuracy))
    ]
    columns = ["variant", "dtype", "n", "rel_l2", "predicted_rel_l2"]
    checks = device.results[device.results["status"] == "ok"].sort_values("elements", ascending=False)
    table = pd.concat([exact[columns], checks[columns]], ignore_index=True).dropna(subset=["rel_l2"])
    table = table.drop_duplicates(["variant", "dtype", "n"], ignore_index=True)
    table["over_ideal"] = table["rel_l2"].astype(float) / table["dtype"].map(ideal_error).astype(float)
    table["over_predicted"] = table["rel_l2"].astype(float) / table["predicted_rel_l2"].astype(float)
    return table


def compare(a: Folder, b: Folder) -> pd.DataFrame:
    """Every measurement that both folders hold: times, b's speed-up over a, fractions of the limit, errors.

    `speedup` is time_a / time_b: above 1 when b is faster. Throws ResultsError when nothing is common.
    """
    key = a.schema["results.csv"].key
    columns = [*key, "status", "time_us", "fraction_of_limit", "rel_l2"]
    both = a.results[columns].merge(b.results[columns], on=key, suffixes=("_a", "_b"))
    if both.empty:
        raise ResultsError(f"{a.name} and {b.name} have no measurement in common")
    both["speedup"] = both["time_us_a"] / both["time_us_b"]
    both["fraction_ratio"] = both["fraction_of_limit_b"] / both["fraction_of_limit_a"]
    both["error_ratio"] = both["rel_l2_b"] / both["rel_l2_a"]
    return both


def compare_summary(table: pd.DataFrame) -> pd.DataFrame:
    """Per variant, dtype and mode: count, geometric mean, least and greatest speed-up."""
    timed = table.dropna(subset=["speedup"])
    groups = timed.groupby(["variant", "dtype", "mode"], sort=False)["speedup"]
    return groups.agg(
        problems="count",
        geometric_mean=lambda s: float(np.exp(np.log(s).mean())),
        least="min",
        greatest="max",
    ).reset_index()


def which(device: Device, dtype: str, n: int, rows: int) -> pd.DataFrame:
    """Every variant on the measured problem nearest to n, dtype and rows, fastest first, contiguous and in place
    where measured; on the GPU in the mode that judges its size best, else in mode host. Empty when n and dtype
    were not measured. All columns of the results, and `over_ideal`, the error over that of one rounding.
    """
    layout = main_layout(device.results)
    part = device.results[(device.results["dtype"] == dtype) & (device.results["n"] == n)]
    part = part[(part["layout"] == layout) & (part["status"] == "ok") & (picked(part) == "")]
    gpu = part[part["mode"] != "host"]
    part = gpu if len(gpu) else part
    if part.empty:
        return part
    counts = sorted(part["rows"].unique(), key=lambda r: (abs(math.log2(r / rows)), r))
    part = part[part["rows"] == counts[0]]
    in_l2 = device.l2_bytes // 64 < counts[0] * n * ELEMENT_BYTES[dtype] <= 0.6 * device.l2_bytes
    modes = PREFERRED_MODES["in L2" if in_l2 else "small"]
    mode = next(m for m in (*modes, "cold", "host") if (part["mode"] == m).any())
    errors_of = errors(device)[["variant", "dtype", "n", "over_ideal"]]
    part = part[part["mode"] == mode].merge(errors_of, how="left", on=["variant", "dtype", "n"])
    return part.sort_values("time_us", ignore_index=True)
