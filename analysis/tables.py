"""Queries over the results of sweeps: data frames and numbers that every page, chart and command shows. No drawing, no pages."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from .load import DENSE, DTYPES, ELEMENT_BYTES, MODES, READS_NUMBERS, Device, ResultsError, layout_of, merge
from .testbed.commands import names_of

# Root mean square of one rounding of a smooth density, in units of the unit roundoff: sqrt(1 / (8 ln 2)).
ROUNDING_RMS = math.sqrt(1 / (8 * math.log(2)))
UNIT_ROUNDOFF = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}
NAMED = ("transform", "width")  # families of plain rows by operators without numbers of a caller
PROBLEM = ["family", "operator", "encoding", "dtype", "mode", "layout", "n", "rows", "row_stride", "elements"]
OWN = "auto"  # what fwht::transform launches

# The published kernels as measured on one H200; analysis/baselines/README.md has their provenance.
BASELINES = Path(__file__).parent / "baselines"
PUBLISHED_GPU = "NVIDIA H200"
PUBLISHED = {"hadacore": "HadaCore", "fast_hadamard_transform": "fast-hadamard-transform"}
PUBLISHED_PEERS = {"peer:dao": "fast_hadamard_transform", "peer:hadacore": "hadacore"}  # the same, built and timed by python -m fwht.bench
SMALLEST_N = 128  # of comparisons over the published grid
FEW_ROWS = (1, 4, 16, 64)


def ideal_error(dtype: str) -> float:
    """Relative L2 error that rounding the exact result once to `dtype` makes; NaN for integers, whose results are exact."""
    return ROUNDING_RMS * UNIT_ROUNDOFF.get(dtype, math.nan)


# ----------------------------------------------------------------------------------------------------- numbers as text


def binary(value: int) -> str:
    """512 -> "512", 2048 -> "2 Ki", 2^25 -> "32 Mi"; other values in full."""
    for power, suffix in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
        if value >= 1 << power and value % (1 << power) == 0:
            return f"{value >> power} {suffix}"
    return str(value)


def power_text(value: int) -> str:
    """1024 -> "2^10"; other values in full."""
    return f"2^{value.bit_length() - 1}" if value.bit_count() == 1 else str(value)


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


def percent(value: float) -> str:
    return f"{100 * value:.0f} %" if value is not None and np.isfinite(value) else "–"


def fixed(value: float, digits: int = 2) -> str:
    return f"{value:.{digits}f}" if value is not None and np.isfinite(value) else "–"


def ratio_text(value: float) -> str:
    """Two digits; three where two would hide that `value` is below 1, and never up to 1."""
    return fixed(min(value, 0.999), 3) if value < 1 and fixed(value) == "1.00" else fixed(value, 2)


def significant(value: float, digits: int = 3) -> str:
    """Significant digits, as a power of ten where that is shorter."""
    if value is None or not np.isfinite(value):
        return "–"
    if value != 0 and not 1e-2 <= abs(value) < 1e4:
        return f"{value:.{digits - 1}e}".replace("e-0", "e-").replace("e+0", "e")
    text = f"{value:.{digits}g}"
    return fixed(float(text), 0) if "e" in text else text


def n_ranges(values) -> str:
    """Row lengths, runs of doublings drawn together: 2, 4, 8, 12, 64 -> "2–8, 12, 64"."""
    doublings: list[list[int]] = []
    for n in sorted({int(v) for v in values}):
        if doublings and n == 2 * doublings[-1][-1]:
            doublings[-1].append(n)
        else:
            doublings.append([n])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}{'–' if len(r) > 2 else ', '}{r[-1]}" for r in doublings)


def n_listed(text: str) -> list[int]:
    """What `n_ranges` wrote: "2–8, 12" -> 2, 4, 8, 12."""
    found = []
    for part in filter(None, text.split(", ")):
        first, _, last = part.partition("–")
        found += [int(first) << k for k in range((int(last or first) // int(first)).bit_length())]
    return found


# ------------------------------------------------------------------------------------------------------------ selecting


def ordered(values, order) -> list:
    """Distinct `values` in the order of `order`, strangers last."""
    present = list(dict.fromkeys(values))
    return [v for v in order if v in present] + sorted(v for v in present if v not in order)


def display_rank(column: pd.Series) -> pd.Series:
    """Sort key: dtypes and modes in their order of display, other columns by value."""
    order = {"dtype": DTYPES, "mode": MODES}.get(str(column.name))
    return column if order is None else column.map({name: i for i, name in enumerate(order)})


def correct(results: pd.DataFrame, *, candidates=False, forwards=False, **wanted) -> pd.DataFrame:
    """Correct rows whose columns have the `wanted` values. `candidates`: of what a reader may take, without kernels of others, without
    variants that there are no longer, and without the codes of a variant that wrote wrong ones of the same encoding elsewhere; a variant
    that hands on to another one goes by its own name (`forwards`), or by that of what it picked, where that was not measured itself."""
    rows = results[results["status"] == "ok"]
    if candidates:
        wrong = results[(results["status"] == "incorrect") & (results["encoding"] != "")]
        of_codes = ["variant", "encoding"]
        rows = rows[~pd.MultiIndex.from_frame(rows[of_codes]).isin(list(wrong[of_codes].itertuples(index=False, name=None)))]
        known = ["", *names_of("variant")]
        rows = rows[~rows["peer"].astype(bool) & rows["variant"].isin(known) & rows["picked"].isin(known)]
        if not forwards:
            handed = rows["picked"] != ""
            rows = rows.assign(variant=rows["picked"].where(handed, rows["variant"]), handed=handed)
            rows = rows.sort_values("handed", kind="stable").drop_duplicates([*PROBLEM, "variant"]).sort_index().drop(columns="handed")
    for column, value in wanted.items():
        rows = rows[rows[column] == value]
    return rows


def on_the_device(rows: pd.DataFrame) -> pd.DataFrame:
    """Without the rows of the CPU (mode host) where there are others."""
    others = rows[rows["mode"] != "host"]
    return others if len(others) else rows


def own_rows(device: Device, dtype: str) -> pd.DataFrame:
    """Plain transforms of OWN in place."""
    return correct(device.results, variant=OWN, dtype=dtype, layout="in place", family="transform")


def best(results: pd.DataFrame, *, forwards=False) -> pd.DataFrame:
    """The best correct variant of every problem and mode: the fastest, and among those that are as fast (`as_fast`) the most
    exact; with `forwards` OWN is one of them, before what it picks. All columns of `results`, and `ties`: the others that are as fast."""
    ok = correct(results, candidates=True, forwards=forwards)
    if ok.empty:
        return ok.assign(ties="")
    fastest = ok.loc[ok.groupby(PROBLEM)["time_us"].idxmin(), [*PROBLEM, "time_us", "time_max_us"]]
    rows = ok.merge(fastest, on=PROBLEM, suffixes=("", "_of_fastest"))
    rows = rows[as_fast(rows, rows["time_us_of_fastest"], rows["time_max_us_of_fastest"])]
    rows = rows.assign(exact=_exactness(rows), plain=rows["variant"] != OWN).sort_values(["exact", "plain", "time_us"], kind="stable")
    names = rows.groupby(PROBLEM)["variant"].agg(list).rename("all_best")
    chosen = rows.drop_duplicates(PROBLEM).join(names, on=PROBLEM)
    chosen["ties"] = [", ".join(v for v in every if v != own) for every, own in zip(chosen["all_best"], chosen["variant"])]
    chosen = chosen.drop(columns=["time_us_of_fastest", "time_max_us_of_fastest", "exact", "plain", "all_best"])
    return chosen.sort_values(PROBLEM, key=display_rank, ignore_index=True)


def as_fast(rows: pd.DataFrame, fastest, slowest_of_fastest) -> pd.Series:
    """Whether rows are as fast as the fastest: their repetitions overlap its own, or they lie within what two measurements of one
    kernel differ by (load.repeatability)."""
    return (rows["time_min_us"] <= slowest_of_fastest) | (rows["time_us"] <= (1 + rows["noise"]) * fastest)


def _exactness(rows: pd.DataFrame) -> pd.Series:
    """The error over that of one rounding, where a third digit is chance; of encoded results in steps of 1 %."""
    over = (rows["rel_l2"] / rows["dtype"].map(ideal_error).astype(float)).round(2)
    return over.where(rows["encoding"] == "", np.log(rows["rel_l2"].clip(lower=1e-9)).mul(100).round())


@dataclass(frozen=True)
class Size:
    """A size that stands for a regime: the regime in words, the number of elements, the mode of its times."""

    label: str
    elements: int
    mode: str

    def bytes(self, dtype: str) -> str:
        return byte_text(self.elements * ELEMENT_BYTES[dtype])

    def title(self, dtype: str) -> str:
        return f"{self.label}, {self.bytes(dtype)}"


# Which mode answers for a regime: replay flatters in the L2, so alternating comes first there.
PREFERRED_MODES = {"small": ("replay", "alternating", "cold"), "L2": ("alternating", "replay"), "DRAM": ("replay", "alternating", "cold")}
IN_L2 = 0.6  # share of the L2 that a tensor fills at most; one of 0.8 already falls out of it


def regime(tensor_bytes: float, l2_bytes: int) -> str:
    """small, L2 or DRAM; "" between L2 and DRAM."""
    if tensor_bytes <= l2_bytes / 64:
        return "small"
    return "L2" if tensor_bytes <= IN_L2 * l2_bytes else "DRAM" if tensor_bytes > 2 * l2_bytes else ""


def sizes(results: pd.DataFrame, dtype: str, l2_bytes: int) -> list[Size]:
    """One size per regime, each in the mode that judges it best: the tensor nearest to 64 KiB, the largest in the L2, the
    largest in DRAM. Only sizes that were measured for most row lengths count. Of mode host alone the smallest, middle and largest."""
    rows = on_the_device(results)
    rows = rows[rows["dtype"] == dtype]

    def measured(mode: str) -> list[int]:
        counts = rows[rows["mode"] == mode].groupby("elements")["n"].nunique()
        return sorted(int(e) for e in counts.index[2 * counts >= counts.max()]) if len(counts) else []

    if host := measured("host"):
        picks = list(dict.fromkeys([host[0], host[len(host) // 2], host[-1]]))
        labels = {1: ["only size"], 2: ["small", "large"], 3: ["small", "medium", "large"]}[len(picks)]
        return [Size(label, e, "host") for label, e in zip(labels, picks)]
    found = []
    for label, modes in PREFERRED_MODES.items():
        for mode in modes:
            fitting = [e for e in measured(mode) if regime(e * ELEMENT_BYTES[dtype], l2_bytes) == label]
            if fitting:
                nearest = min(fitting, key=lambda e: abs(math.log2(e * ELEMENT_BYTES[dtype] / 65536)))
                found.append(Size(label, nearest if label == "small" else fitting[-1], mode))
                break
    return found


def errors(device: Device) -> pd.DataFrame:
    """Measured error per variant, dtype and n of plain transforms against one rounding of the exact result.

    From the accuracy experiment on normal data; where it has no row, from the sweep's own check. Columns variant, dtype, n,
    rel_l2, predicted_rel_l2, over_ideal, over_predicted.
    """
    accuracy = device.accuracy
    exact = accuracy[(accuracy["source"] == "measured") & (accuracy["status"] == "ok") & (accuracy["input"] == "normal")]
    columns = ["variant", "dtype", "n", "rel_l2", "predicted_rel_l2"]
    checks = correct(device.results, family="transform").sort_values("elements", ascending=False)
    parts = [part for part in (exact[columns], checks[columns]) if len(part)]
    table = pd.concat(parts or [exact[columns]], ignore_index=True).dropna(subset=["rel_l2"])
    table = table.drop_duplicates(["variant", "dtype", "n"], ignore_index=True)
    table["over_ideal"] = table["rel_l2"].astype(float) / table["dtype"].map(ideal_error).astype(float)
    table["over_predicted"] = table["rel_l2"].astype(float) / table["predicted_rel_l2"].astype(float)
    return table


# ------------------------------------------------------------------------------------------------- the published kernels


@cache
def published() -> pd.DataFrame:
    """Their times: method, dtype, n, elements, mode, time_us, copy_us, fraction = copy_us / time_us. Shared: do not modify."""
    table = pd.read_csv(BASELINES / "h200_published.csv")
    return table.assign(fraction=table["copy_us"] / table["time_us"])


@cache
def published_errors() -> pd.Series:
    """Relative L2 error by (method, dtype, n). Shared: do not modify."""
    return pd.read_csv(BASELINES / "h200_published_accuracy.csv").set_index(["method", "dtype", "n"])["rel_l2"]


def score(time_us, published_us, limit_us) -> pd.Series:
    """1 for a kernel as fast as the copy, 1/2 for one as fast as the published one, towards 0 beyond (docs/measuring.md); NaN where
    the published kernel is as fast as the copy."""
    ahead = pd.Series(published_us) - limit_us
    return (ahead / (ahead + time_us - limit_us)).where(ahead > 0)


def has_published_gpu(device: Device) -> bool:
    """Whether it is the GPU of the recorded times of published kernels; a GH200, an H200 NVL and a slice of an H200 are none."""
    return device.name.partition(",")[0] == PUBLISHED_GPU  # behind the comma the code that it ran


def beside_published(device: Device, variant: str = OWN) -> pd.DataFrame:
    """Rows of `variant` in place beside each published kernel: `method`, `published_us`, `ratio` = its time over ours, and `score` against
    the faster of them. On another GPU than that of the published times both are those of the folders that timed them, empty without."""
    if not has_published_gpu(device):
        beside = [f for f in device.folders if f.tables["results.csv"]["variant"].isin(list(PUBLISHED_PEERS)).any()]
        device = merge(device.name, beside) if beside else device
    rows = correct(device.results, variant=variant, layout="in place", family="transform")
    other = published_on(device)[["method", "dtype", "n", "elements", "mode", "time_us", "fraction"]]
    both = rows.merge(other.rename(columns={"time_us": "published_us", "fraction": "published_fraction"}), on=["dtype", "n", "elements", "mode"])
    faster = both.groupby(["dtype", "n", "elements", "mode"])["published_us"].transform("min")
    return both.assign(ratio=both["published_us"] / both["time_us"], score=score(both["time_us"], faster, both["limit_us"]))


def published_on(device: Device) -> pd.DataFrame:
    """The published kernels on this GPU, with the columns of `published`: its own times, or what the run timed itself."""
    if has_published_gpu(device):
        return published()
    rows = correct(device.results, layout="in place", family="transform")
    rows = rows[rows["variant"].isin(list(PUBLISHED_PEERS))]
    return rows.assign(method=rows["variant"].map(PUBLISHED_PEERS), copy_us=rows["limit_us"], fraction=rows["fraction_of_limit"])


@dataclass(frozen=True)
class Gain:
    """OWN over a published kernel: geometric means over all sizes of one mode, n >= SMALLEST_N, that both were measured at."""

    method: str
    points: int
    share: float  # of the copy limit
    published_share: float
    speedup: float
    worst: float  # the smallest ratio of times
    worst_at: str

    @property
    def name(self) -> str:
        return PUBLISHED[self.method]


def geometric_mean(values) -> float:
    values = np.asarray(values, float)
    return float(np.exp(np.log(values).mean())) if len(values) else math.nan


def gains(device: Device, variant: str = OWN, mode: str = "replay") -> list[Gain]:
    """In the order of PUBLISHED; empty without a common size."""
    both = beside_published(device, variant)
    both = both[(both["mode"] == mode) & (both["n"] >= SMALLEST_N)]
    found = []
    for method in PUBLISHED:
        part = both[both["method"] == method]
        if len(part):
            worst = part.loc[part["ratio"].idxmin()]
            where = f"{worst['dtype']}, n = {worst['n']}, {power_text(int(worst['elements']))} elements"
            share, other, speedup = (geometric_mean(part[c]) for c in ("fraction_of_limit", "published_fraction", "ratio"))
            found.append(Gain(method, len(part), share, other, speedup, float(worst["ratio"]), where))
    return found


def regime_sizes(device: Device, dtype: str, *, compared=False) -> list[Size]:
    """`sizes` of OWN from DRAM to small; `compared`: of those that the published kernels were measured at, where there are such."""
    rows = own_rows(device, dtype)
    known = rows[rows["elements"].isin(published()["elements"])]
    return sizes(known if compared and len(known) else rows, dtype, device.l2_bytes)[::-1]


def comparison(device: Device, dtype: str) -> pd.DataFrame:
    """OWN at one size per regime, in mode replay where published kernels were timed at that size, else in the mode that judges it best: n,
    `label` and `place` of the size, fraction_of_limit, and under the name of each published kernel its time over ours."""
    own, both = own_rows(device, dtype), beside_published(device)
    both = both[(both["dtype"] == dtype) & (both["mode"] == "replay")].drop_duplicates(["elements", "n", "method"])
    ratios = both.pivot(index=["elements", "n"], columns="method", values="ratio").reindex(columns=list(PUBLISHED))
    timed = set(ratios.index.get_level_values("elements"))
    found = [replace(size, mode="replay") if size.elements in timed else size for size in regime_sizes(device, dtype, compared=True)]
    places = [size.title(dtype) + (f", {size.mode}" if size.mode != "replay" else "") for size in found]
    parts = [_of_size(own, size).assign(label=size.label, place=place) for size, place in zip(found, places)]
    return pd.concat(parts or [own.assign(label="", place="")]).join(ratios, on=["elements", "n"])


def _of_size(rows: pd.DataFrame, size: Size) -> pd.DataFrame:
    return rows[(rows["elements"] == size.elements) & (rows["mode"] == size.mode)].drop_duplicates(["variant", "n"])


def own_by_size(device: Device, dtype: str) -> pd.DataFrame:
    """OWN at one size per regime, from small to DRAM: `place`, and the error of its n, `over_ideal`."""
    own = own_rows(device, dtype)
    parts = [_of_size(own, s).assign(place=f"{s.label}: {binary(s.elements)} elements, {s.bytes(dtype)}, {s.mode}") for s in regime_sizes(device, dtype)[::-1]]
    return pd.concat(parts or [own.assign(place="")]).merge(errors(device)[["variant", "dtype", "n", "over_ideal"]], how="left")


def covers_widths(device: Device) -> bool:
    """Whether rows of any length were measured in place, as the grid `widths` does: not beside codes alone, nor at the few sizes of
    the grid `tune` or of a part of it."""
    timed = [f.results for f in device.folders if f.has("results.csv") and Path(str(f.context.get("grid"))).stem != "tune"]
    return any(bool(((rows["placement"] == "in") & (rows["n"] & (rows["n"] - 1) != 0)).any()) for rows in timed)


def covers_tune(device: Device) -> int:
    """At how many row lengths all candidates of `auto` were timed, as the grid `tune` does."""
    tuned = any(folder.context.get("grid") == "tune" for folder in device.folders if folder.has("results.csv"))
    return int(device.results["n"].nunique()) if tuned else 0


def covers_published(device: Device) -> bool:
    """Whether the comparison has every regime, beside the published kernels where this GPU has times of them: the run that README and
    docs/results.md show."""
    frame = comparison(device, "f16")
    compared = frame[list(PUBLISHED)].notna().any(axis=1)
    return set(frame.loc[compared | (not has_published_gpu(device)), "label"]) == {"DRAM", "L2", "small"}


# --------------------------------------------------------------------------------------------------------- other queries


def few_rows(device: Device, dtype: str) -> pd.DataFrame:
    """OWN for a few rows, as in decoding: columns n, rows, time_us and share (mode replay), pdl_us (mode replay_pdl)."""
    rows = own_rows(device, dtype)
    rows = rows[rows["rows"].isin(FEW_ROWS) & (rows["n"] >= 256)]
    by_mode = {m: rows[rows["mode"] == m].drop_duplicates(["n", "rows"]).set_index(["n", "rows"]) for m in ("replay", "replay_pdl")}
    table = by_mode["replay"][["time_us", "fraction_of_limit"]].rename(columns={"fraction_of_limit": "share"})
    return table.assign(pdl_us=by_mode["replay_pdl"]["time_us"]).reset_index().sort_values(["n", "rows"], ignore_index=True)


def arranged(device: Device) -> pd.DataFrame:
    """The best variant of every arranged problem, with `place`, and the best of the same rows in natural order along the last axis:
    `natural`, its `natural_us`, and `ratio`, the time over that."""
    rows = best(device.results)
    rows = rows.assign(place=[layout_of(placement) for placement in rows["placement"]])
    key = ["operator", "encoding", "dtype", "mode", "placement", "rows"]
    own = rows[rows["family"] == "arranged"]
    other = rows[(rows["family"] != "arranged") & (rows["layout"] == rows["place"])].rename(columns={"variant": "natural", "time_us": "natural_us"})
    both = own.merge(other[[*key, "natural", "natural_us"]], on=key, how="left")
    return both.assign(ratio=both["time_us"] / both["natural_us"]).sort_values(
        ["dtype", "mode", "n", "rows", "place", "arrangement"], key=display_rank, ignore_index=True
    )


def shares(device: Device, dtype: str, size: Size, *, forwards=False) -> pd.DataFrame:
    """Share of the copy limit by n (rows) and variant (columns, ladder order), of variants that launch kernels of their own, and with
    `forwards` of those that hand on."""
    rows = correct(device.results, **({} if forwards else {"picked": ""}), dtype=dtype, layout="in place", family="transform", mode=size.mode)
    rows = rows[rows["elements"] == size.elements].drop_duplicates(["variant", "n"])
    table = rows.pivot(index="n", columns="variant", values="fraction_of_limit")
    return table[[v for v in device.variants if v in table.columns]]


def every_share(device: Device, dtype: str) -> pd.DataFrame:
    """`shares` at one size per regime as rows: label, place, variant, n, share, and `over_ideal`, the error over one rounding."""
    parts = [shares(device, dtype, s).melt(var_name="variant", value_name="share", ignore_index=False).reset_index()
             .assign(label=s.label, place=f"{s.label}: {binary(s.elements)} elements") for s in regime_sizes(device, dtype)]  # fmt: skip
    over = errors(device)
    frame = pd.concat(parts or [pd.DataFrame(columns=["n", "variant", "share", "label", "place"])]).dropna(subset=["share"])
    return frame.merge(over.loc[over["dtype"] == dtype, ["variant", "n", "over_ideal"]], how="left")


def by_width(device: Device) -> pd.DataFrame:
    """The best variant at every row length, 2^k and m 2^k, where the run has both: in DRAM (mode replay) and in the L2 (alternating), at the
    size nearest to that of the row lengths m 2^k. Columns of `best`, `over_ideal` and `size`."""
    frame = best(_with_widths(device))
    frame = frame.assign(
        size=[regime(e * ELEMENT_BYTES[d], device.l2_bytes) for e, d in zip(frame["elements"], frame["dtype"])],
        over_ideal=frame["rel_l2"] / frame["dtype"].map(ideal_error).astype(float),
    )
    frame = frame[((frame["size"] == "DRAM") & (frame["mode"] == "replay")) | ((frame["size"] == "L2") & (frame["mode"] == "alternating"))]
    typical = np.log2(frame[frame["family"] == "width"].groupby("size")["elements"].median().astype(float))
    far = (np.log2(frame["elements"].astype(float)) - frame["size"].map(typical)).abs()
    frame = frame.assign(far=far, size=frame["size"].astype(str) + ", " + frame["mode"].astype(str))[far <= 1].sort_values("far", kind="stable")
    return frame.drop_duplicates(["dtype", "n", "size"]).sort_values(["size", "dtype", "n"], key=display_rank, ignore_index=True)


def _with_widths(device: Device) -> pd.DataFrame:
    """Plain results in place, of the dtypes in which row lengths m 2^k were measured."""
    rows = device.results
    dtypes = rows.loc[rows["family"] == "width", "dtype"].unique()
    return rows[rows["family"].isin(NAMED) & (rows["layout"] == "in place") & rows["dtype"].isin(dtypes)]


def beside_variant(device: Device, variant: str, other: str, dtype: str = "f16") -> pd.DataFrame:
    """Plain results of `variant` in place at three places (one row, the L2, DRAM), with `ratio`, its time over that of `other`."""
    rows = correct(device.results, dtype=dtype, layout="in place")
    rows = rows[rows["family"].isin(NAMED)].sort_values("elements", ascending=False, kind="stable")
    sizes = [regime(e * ELEMENT_BYTES[dtype], device.l2_bytes) for e in rows["elements"]]
    wanted = {("L2", "alternating"): "L2, alternating", ("DRAM", "replay"): "DRAM, replay"}
    rows = rows.assign(place=["one row, replay" if r == 1 and m == "replay" else wanted.get((s, m), "") for r, s, m in zip(rows["rows"], sizes, rows["mode"])])
    rows = rows[rows["place"] != ""]
    own, theirs = (rows[rows["variant"] == name] for name in (variant, other))
    own = own.drop_duplicates(["n", "place"]).sort_values(["rows", "n"])
    key = ["operator", "rows", "mode"]
    both = own.merge(theirs[[*key, "time_us"]].drop_duplicates(key).rename(columns={"time_us": "other_us"}), on=key, how="left")
    return both.assign(ratio=both["time_us"] / both["other_us"])


def lengths_beside(device: Device, variant: str, other: str, ns: Sequence[int]) -> int:
    """At how many of the row lengths `ns` beside_variant has one row."""
    rows = beside_variant(device, variant, other)
    return int(rows.loc[(rows["rows"] == 1) & rows["n"].isin(ns), "n"].nunique())


DECODE_ROWS = 256  # at most; the grid `widths` has 1, 16 and 256


def decode(device: Device) -> pd.DataFrame:
    """The best variant for a few rows at every row length, in place, mode replay, where rows of m 2^k were measured: of the numbers of rows
    that most lengths have in common. (The grid `tune` has numbers of elements, and so other rows at each length.)"""
    rows = _with_widths(device)
    rows = rows[rows["mode"] == "replay"]
    few = rows[(rows["family"] == "width") & (rows["rows"] <= DECODE_ROWS)]
    lengths = few.groupby("rows")["n"].nunique()
    return best(rows[rows["rows"].isin(lengths.index[2 * lengths > few["n"].nunique()])])


def widths(device: Device, dtype: str, ns: Iterable[int] = ()) -> pd.DataFrame:
    """By row length m 2^k, all or `ns`: the best variant in DRAM, in the L2, and for a few rows (`few`), with `place`, and of all three the
    largest error (`worst`) and the `names` of the best variants."""
    wide, few = by_width(device), decode(device).sort_values("rows", kind="stable")
    few = few.assign(few=True, place=[f"{r} row{'s' * (r > 1)}, µs" for r in few["rows"]], over_ideal=few["rel_l2"] / ideal_error(dtype))
    frame = pd.concat([wide.assign(few=False, place=wide["size"]), few], ignore_index=True)
    frame = frame[(frame["dtype"] == dtype) & (frame["family"] == "width") & (frame["n"].isin(list(ns)) if ns else True)]
    groups = frame.groupby("n")
    return frame.assign(worst=groups["over_ideal"].transform("max"), names=frame["n"].map(groups["variant"].agg(lambda v: ", ".join(dict.fromkeys(v)))))


def support(device: Device, *, special=False) -> pd.DataFrame:
    """Which row lengths the variants took and refused in this run: columns variant, dtype, placement, output, takes, refuses. What a
    forwarding variant took, the one that it picked takes too. `special`: row lengths m 2^k and codes alone."""
    ok = correct(device.results)
    picked = ok[ok["picked"] != ""].assign(variant=lambda rows: rows["picked"])
    both = pd.concat([ok.assign(answer="takes"), picked.assign(answer="takes"), device.unsupported.assign(answer="refuses")], ignore_index=True)
    both = both[~both["variant"].astype(str).str.startswith("peer:")].astype({"n": "int64"})  # a table without rows has no type
    reads = both["operator"].astype(str).str.contains(READS_NUMBERS)  # what takes a length may refuse it with signs
    both = both[~reads | (both["encoding"] != "")]
    if special:
        both = both[(both["encoding"] != "") | (both["n"] & (both["n"] - 1) != 0)]
    output = both["encoding"].astype(str).str.replace(r"^((?:.*>)?[^:,/]*).*", r"\1", regex=True).replace("", "rows")
    both = both.assign(output=output, placement=[layout.removesuffix(", strided") for layout in both["layout"]])
    if both.empty:
        return pd.DataFrame()
    keys = ["variant", "dtype", "placement", "output"]
    lengths = both.groupby([*keys, "answer"], sort=False)["n"].agg(n_ranges).unstack("answer", fill_value="").reset_index()
    rank = {v: i for i, v in enumerate(device.variants)}
    lengths = lengths.reindex(columns=[*keys, "takes", "refuses"], fill_value="")
    return lengths.sort_values("variant", key=lambda c: c.map(rank), kind="stable", ignore_index=True)


PAIR = "rotate_then_quantize"  # the transform and a quantizer, in two launches


def fused(device: Device, family: str = "encoded") -> pd.DataFrame:
    """Codes and scales by one kernel, beside PAIR on the same problem: `pair_us`, `gain` (its time over ours), `format` (the encoding
    without layout and recipe), `size` (regime or rows, and mode; "host" of the CPU). Of the family `operands`: behind dense factors."""
    ok = correct(device.results, candidates=True, family=family)
    ok = ok[(ok["n"] > 1) & (ok["encoding"] != "")]  # H_1 is a quantizer alone
    key = [c for c in PROBLEM if c != "elements"]
    pair = ok[ok["variant"] == PAIR].drop_duplicates(key)[[*key, "time_us"]].rename(columns={"time_us": "pair_us"})
    both = ok[ok["variant"] != PAIR].merge(pair, on=key, how="left")
    sizes = [regime(e * ELEMENT_BYTES[d], device.l2_bytes) for e, d in zip(both["elements"], both["dtype"])]
    few = [f"{rows} row{'s' * (rows > 1)}" if size == "small" else size or "between" for size, rows in zip(sizes, both["rows"])]
    places = [mode if mode == "host" else f"{size}, {mode}" for size, mode in zip(few, both["mode"])]
    return both.assign(gain=both["pair_us"] / both["time_us"], format=both["encoding"].astype(str).str.split(r"[,/]").str[0], size=places)


def nearest_to_limit(rows: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    """Of rows of one key the one with the greatest share of its limit; in the order that they had."""
    return rows.sort_values("fraction_of_limit", ascending=False, kind="stable").drop_duplicates(key).sort_index()


def covers_fused(device: Device) -> int:
    """At how many problems the run has codes by one kernel beside those by two launches."""
    return int(fused(device)["gain"].notna().sum())


def dense_codes(device: Device) -> pd.DataFrame:
    """`fused` behind dense factors, with `octave`, the power of two that is nearest to the number of elements."""
    rows = fused(device, "operands").dropna(subset=["gain"])
    return rows.assign(octave=np.log2(rows["elements"].astype(float)).round().astype(int)).sort_values(["encoding", "n", "octave"], ignore_index=True)


def operands(device: Device) -> pd.DataFrame:
    """The best variant of rows without an encoding, by operators that read signs or dense factors: `reads` ("signs", "dense", "dense signs"),
    `place`, and of the same factors without, a dense one as the matrix of signs of its order, `bare_us` and `ratio`, the time over that."""
    rows = best(device.results)
    rows = rows[(rows["encoding"] == "") & (rows["arrangement"] == "")]
    text = rows["operator"].astype(str)
    kinds = [" ".join(word for word, there in (("dense", dense), ("signs", signs)) if there)
             for dense, signs in zip(text.str.contains(DENSE), text.str.contains("signs"))]  # fmt: skip
    rows = rows.assign(reads=kinds, factors=text.str.replace(r"\+?signs\+?|d(?=\d)", "", regex=True))
    key = ["dtype", "mode", "layout", "rows", "factors"]
    own, bare = rows[rows["reads"] != ""], rows[rows["reads"] == ""]
    both = own.merge(bare[[*key, "time_us"]].rename(columns={"time_us": "bare_us"}).drop_duplicates(key), on=key, how="left")
    both = both.assign(ratio=both["time_us"] / both["bare_us"], place=few_or_dram(both, device))
    return both.sort_values(["dtype", "mode", "reads", "n", "rows"], key=display_rank, ignore_index=True)


def few_or_dram(rows: pd.DataFrame, device: Device) -> pd.Series:
    """"3 rows" where they fit the L2, and on the host; "DRAM" otherwise."""
    few = (rows["mode"] == "host") | (rows["elements"] * rows["dtype"].map(ELEMENT_BYTES) <= device.l2_bytes)
    return (rows["rows"].astype(str) + " rows").where(few, "DRAM")


def prepared(device: Device) -> pd.DataFrame:
    """The best variant of codes whose rows are prepared first: `preparation` (signs, a prologue, pages, as a problem's text has them), `form`
    (the encoding), `place`, and of the same codes without it `bare_us` and `ratio`, the time over that."""
    rows = best(device.results)
    own, bare = rows[rows["family"] == "prepared"], rows[rows["family"] == "encoded"]
    text = own["encoding"].astype(str)
    before, form = text.str.replace(r">?[^>]*$", "", regex=True), text.str.replace(r"^.*>", "", regex=True)
    signs = own["operator"].astype(str).str.contains("signs").map({True: "signs ", False: ""})
    preparation = (signs + before.str.replace("/", " ")).str.strip()
    own = own.assign(preparation=preparation, form=form, place=few_or_dram(own, device))
    key = ["dtype", "mode", "layout", "n", "rows"]
    bare = bare[[*key, "encoding", "time_us"]].rename(columns={"encoding": "form", "time_us": "bare_us"}).drop_duplicates([*key, "form"])
    both = own.merge(bare, on=[*key, "form"], how="left")
    both = both.assign(ratio=both["time_us"] / both["bare_us"])
    return both.sort_values(["dtype", "mode", "form", "n", "rows", "preparation"], key=display_rank, ignore_index=True)


def beside_peers(device: Device) -> pd.DataFrame:
    """Kernels of others that this run timed itself (python -m fwht.bench), beside the best variant on the same problem: `peer`, `peer_us`,
    `ratio` (its time over ours), `peer_rel_l2`, and `score` against the faster of the published ones among them."""
    ok = correct(device.results)
    key = [c for c in PROBLEM if c != "elements"]
    others = ok[ok["peer"].astype(bool)][["variant", *key, "time_us", "rel_l2"]]
    both = best(device.results).merge(others.rename(columns={"variant": "peer_name"}), on=key, suffixes=("", "_peer"))
    faster = both["time_us_peer"].where(both["peer_name"].isin(PUBLISHED_PEERS)).groupby([both[c] for c in key]).transform("min")
    both = both.assign(score=score(both["time_us"], faster, both["limit_us"]))
    both = both.assign(peer=both["peer_name"].astype(str).str.removeprefix("peer:"), ratio=both["time_us_peer"] / both["time_us"],
                       peer_over_ideal=both["rel_l2_peer"] / both["dtype"].map(ideal_error).astype(float))  # fmt: skip
    return both.rename(columns={"time_us_peer": "peer_us", "rel_l2_peer": "peer_rel_l2"}).sort_values(["peer", *key], key=display_rank, ignore_index=True)


def not_ok(device: Device) -> pd.DataFrame:
    """Measurements without a time: incorrect or failed, with the message."""
    rows = device.results[device.results["status"] != "ok"]
    columns = ["status", "variant", "operator", "encoding", "dtype", "mode", "layout", "rows", "rel_l2", "predicted_rel_l2", "message"]
    return rows[columns].reset_index(drop=True)


def refusals(device: Device) -> pd.DataFrame:
    """variant, dtype, placement, n (compact list), encoding, reason: one line per distinct sentence, its numbers as N."""
    table = device.unsupported
    columns = ["variant", "dtype", "placement", "n", "encoding", "problems", "reason"]
    if table.empty:
        return pd.DataFrame(columns=columns)
    rank = {v: i for i, v in enumerate(device.variants)}
    rows = []
    alike = table["reason"].astype(str).str.replace(r"\b(n|rows|elements)=\d+", r"\1=N", regex=True)
    for (variant, placement, reason), part in table.groupby([table["variant"], table["layout"], alike], sort=False):
        rows.append(
            {
                "variant": variant, "dtype": ", ".join(ordered(part["dtype"], DTYPES)), "placement": placement,
                "n": n_ranges(part["n"]), "encoding": ", ".join(sorted({e for e in part["encoding"] if e})), "problems": len(part),
                "reason": reason,
            }
        )  # fmt: skip
    rows.sort(key=lambda r: (rank.get(r["variant"], 99), r["placement"]))
    return pd.DataFrame(rows, columns=columns)


def best_copies(device: Device) -> pd.DataFrame:
    """Per memory, mode, placement and bytes: the fastest copy kernel, its rate in bytes/s, how many were tried."""
    key = ["memory", "mode", "placement", "bytes_read", "bytes_written"]
    copies = device.limits[~device.limits["kernel"].astype(str).str.contains("empty")].sort_values([*key, "time_us"], key=display_rank)
    counts = copies.groupby(key).size().rename("kernels")
    frame = copies.drop_duplicates(key).join(counts, on=key)
    return frame.assign(rate=frame["useful_bytes"] / frame["time_us"] * 1e6).reset_index(drop=True)


def published_speedups(device: Device) -> pd.DataFrame:
    """The claims of the HadaCore paper (arXiv 2412.08832: time of fast-hadamard-transform over that of HadaCore, 1.0 to 1.3 and up
    to 3.6 on an H100) beside what was measured: over its grid, n = 2^7 .. 2^15 and 2^9 .. 2^25 elements, in place, mode replay."""
    rows = []

    def add(what: str, dtype: str, ratio: pd.Series) -> None:
        if len(ratio):
            low, middle, high = np.percentile(ratio, (10, 50, 90))
            rows.append({"what": what, "dtype": dtype, "points": len(ratio), "low": low, "median": middle, "high": high,
                         "mean": geometric_mean(ratio), "least": ratio.min(), "greatest": ratio.max()})  # fmt: skip

    results = correct(device.results, layout="in place", mode="replay", family="transform", memory="device")
    for dtype in ("f16", "bf16"):
        table = published_on(device)
        wide = table[(table["dtype"] == dtype) & (table["mode"] == "replay")].pivot(index=["n", "elements"], columns="method", values="time_us")
        if set(PUBLISHED) <= set(wide):
            add("the published kernels", dtype, _on_grid(wide["fast_hadamard_transform"] / wide["hadacore"]))
        wide = results[results["dtype"] == dtype].drop_duplicates(["n", "elements", "variant"])
        wide = wide.pivot(index=["n", "elements"], columns="variant", values="time_us")
        for variant in ("hadacore_published", "hadacore", OWN):
            if {"warp_shuffle", variant} <= set(wide.columns):
                add(f"warp_shuffle over {variant}", dtype, _on_grid(wide["warp_shuffle"] / wide[variant]))
    return pd.DataFrame(rows)


def _on_grid(ratio: pd.Series) -> pd.Series:
    n, elements = ratio.index.get_level_values(0), ratio.index.get_level_values(1)
    return ratio[(n >= 1 << 7) & (n <= 1 << 15) & (elements <= 1 << 25)].dropna()


# ---------------------------------------------------------------------------------------------------------------- which


def which(devices: Iterable[Device], dtype: str, n: int, rows: int, *, encoding: str = "") -> tuple[Device, pd.DataFrame]:
    """Every variant on the measured problem nearest to n, dtype and rows, best first, of one operator (`plainest`), contiguous and in place
    where measured; on the GPU in the mode that judges its size best, else in mode host; of launches that overlap (replay_pdl) only where nothing else was
    measured. From the first of `devices` that measured n and dtype, or another run of the same device that measured a number of rows nearer
    to `rows`, or as near in a mode that judges the size better.

    All columns of the results, `over_ideal` (the error over that of one rounding) and `ties` (as fast as the first within the
    repetitions). ResultsError where nothing was measured.
    """
    known: set[int] = set()
    parts: list[tuple[Device, pd.DataFrame]] = []
    for device in devices:
        part = correct(device.results, candidates=True, forwards=True, dtype=dtype, encoding=encoding, arrangement="")
        known |= set(part["n"])
        part = part[part["n"] == n]
        if len(part) and (not parts or device.name == parts[0][0].name):
            parts.append((device, part))
    apart = [(device, rest) for device, part in parts if len(rest := part[part["mode"] != "replay_pdl"])]
    if found := [(device, _nearest(device, part, dtype, n, rows)) for device, part in apart or parts]:
        return min(found, key=lambda one: (abs(math.log2(one[1]["rows"].iloc[0] / rows)), not one[1]["judges"].iloc[0]))
    text = f" with encoding {encoding}" if encoding else ""
    if not known:
        raise ResultsError(f"nothing was measured in {dtype}{text}")
    near = sorted(known, key=lambda k: abs(math.log2(k) - math.log2(n)))[:2]
    raise ResultsError(f"n={n} was not measured in {dtype}{text}; the nearest row lengths are {', '.join(map(str, sorted(near)))}")


def plainest(operators: Iterable[str], n: int) -> str:
    """Sylvester's matrix where it is one of them, else the first without signs and dense factors, else the first."""
    return min(operators, key=lambda operator: (operator != str(n), re.search(READS_NUMBERS, operator) is not None))


def _nearest(device: Device, part: pd.DataFrame, dtype: str, n: int, rows: int) -> pd.DataFrame:
    part = part[part["operator"] == plainest(part["operator"].unique(), n)]
    layouts = part["layout"].value_counts()
    part = part[part["layout"] == ("in place" if "in place" in layouts.index else layouts.index[0])]
    part = on_the_device(part)
    count = min(part["rows"].unique(), key=lambda r: (abs(math.log2(r / rows)), r))
    part = part[part["rows"] == count]
    judging = PREFERRED_MODES[regime(count * n * ELEMENT_BYTES[dtype], device.l2_bytes) or "DRAM"]
    mode = next(m for m in (*judging, "cold", "replay_pdl", "host") if (part["mode"] == m).any())
    part = part[part["mode"] == mode]
    fastest = part.loc[part["time_us"].idxmin()]
    tied = as_fast(part, fastest["time_us"], fastest["time_max_us"])
    winner = part[tied].assign(exact=_exactness(part), plain=part["variant"] != OWN).sort_values(["exact", "plain", "time_us"]).index[0]
    part = part.assign(over_ideal=part["rel_l2"] / ideal_error(dtype), ties=tied, judges=mode in judging, first=part.index != winner)
    return part.sort_values(["first", "time_us"], ignore_index=True).drop(columns="first")


# -------------------------------------------------------------------------------------------------------------- compare


REFUSAL = ["variant", "operator", "encoding", "arrangement", "dtype", "n", "rows", "placement"]  # what unsupported.csv says of a problem
MEASUREMENT = [*REFUSAL, "memory", "row_stride", "mode"]


def compare(a: Device, b: Device) -> pd.DataFrame:
    """Every measurement that both hold: times, `speedup` = time a / time b (above 1: b is faster), fractions of the limit, errors.

    `verdict`: "faster", "slower" or "same" (repetitions overlap, or the ratio is within load.repeatability of either); "" where
    either has no time. ResultsError when nothing is common.
    """
    columns = [*MEASUREMENT, "status", "time_us", "time_min_us", "time_max_us", "fraction_of_limit", "rel_l2"]
    both = a.results[columns].merge(b.results[columns], on=MEASUREMENT, suffixes=("_a", "_b"))
    if both.empty:
        raise ResultsError(f"{a.newest.name} and {b.newest.name} have no measurement in common")
    both["speedup"] = both["time_us_a"] / both["time_us_b"]
    both["fraction_ratio"] = both["fraction_of_limit_b"] / both["fraction_of_limit_a"]
    both["error_ratio"] = both["rel_l2_b"] / both["rel_l2_a"]
    noise = 1 + max(d.results["noise"].max() if len(d.results) else 0.0 for d in (a, b))
    faster = (both["time_max_us_b"] < both["time_min_us_a"]) & (both["speedup"] > noise)
    slower = (both["time_min_us_b"] > both["time_max_us_a"]) & (both["speedup"] < 1 / noise)
    both["verdict"] = np.select([both["speedup"].isna(), faster, slower], ["", "faster", "slower"], "same")
    return both


def common(a: Device, b: Device) -> tuple[Device, pd.DataFrame]:
    """`a` and `compare(a, b)`, which is empty where they share nothing."""
    try:
        return a, compare(a, b)
    except ResultsError:
        return a, pd.DataFrame()


def compare_summary(table: pd.DataFrame) -> pd.DataFrame:
    """Per variant, dtype and mode: count, geometric mean, least and greatest speed-up, how many differ beyond the repetitions."""
    timed = table.dropna(subset=["speedup"])
    groups = timed.groupby(["variant", "dtype", "mode"], sort=False)
    return groups.agg(
        problems=("speedup", "count"), geometric_mean=("speedup", geometric_mean), least=("speedup", "min"),
        greatest=("speedup", "max"), faster=("verdict", lambda v: int((v == "faster").sum())),
        slower=("verdict", lambda v: int((v == "slower").sum())),
    ).reset_index()  # fmt: skip


def slower_beyond(table: pd.DataFrame, threshold: float) -> pd.DataFrame:
    """Rows of `compare` that are slower beyond their repetitions and by more than `threshold`, or no longer correct."""
    lost = (table["status_a"] == "ok") & (table["status_b"] != "ok")
    slow = (table["verdict"] == "slower") & (1 / table["speedup"] - 1 > threshold)
    return table[lost | slow].sort_values("speedup", ignore_index=True)


def refused_since(a: Device, b: Device) -> pd.DataFrame:
    """Correct rows of `a` that `b` did not measure and refuses, with its `reason`; without those of a problem that `a` itself refuses at another
    row stride."""
    before, now = (dict(zip(d.unsupported[REFUSAL].itertuples(index=False, name=None), d.unsupported["reason"])) for d in (a, b))
    measured = set(b.results[MEASUREMENT].itertuples(index=False, name=None))

    def why(refusals: dict[tuple, str], row: tuple) -> str:
        reason = refusals.get(row[: len(REFUSAL)], "")
        return reason if row[-1] == "replay_pdl" or "programmatic dependent launch" not in reason else ""

    rows = correct(a.results)
    reasons = ["" if row in measured or why(before, row) else why(now, row) for row in rows[MEASUREMENT].itertuples(index=False, name=None)]
    return rows.assign(reason=reasons).query("reason != ''").reset_index(drop=True)


def _when(device: Device) -> str:
    """When its newest run began, to the second: "2026-11-20 10:00:00"."""
    return str(device.newest.context["utc_start"]).replace("T", " ").removesuffix("Z")


def history(devices: list[Device]) -> pd.DataFrame:
    """Over runs of one device, oldest first: per variant, dtype and mode the geometric mean of the share of the limit over the
    problems that all of these runs measured. Columns run, when, variant, dtype, mode, problems, share."""
    key = ["variant", "dtype", "mode", "operator", "encoding", "rows", "layout", "row_stride"]
    tables = [correct(d.results).drop_duplicates(key).set_index(key)["fraction_of_limit"] for d in devices]
    common = pd.concat(tables, axis=1, join="inner", keys=range(len(tables)))
    rows = []
    for (variant, dtype, mode), part in common.groupby(level=[0, 1, 2], sort=False):
        for i, device in enumerate(devices):
            rows.append({"run": device.short, "when": _when(device), "variant": variant,
                         "dtype": dtype, "mode": mode, "problems": len(part), "share": geometric_mean(part[i])})  # fmt: skip
    return pd.DataFrame(rows)


def drift(devices: list[Device]) -> pd.DataFrame:
    """Over runs of one device, oldest first: per variant, dtype and mode the geometric mean of the share of the limit over that of the run
    with the most such problems, over the problems that both measured. Columns run, when, variant, dtype, mode, problems, relative. Empty
    without two runs of one problem."""
    key = ["variant", "dtype", "mode", "operator", "encoding", "rows", "layout", "row_stride"]
    shares = {
        i: correct(d.results).drop_duplicates(key).set_index(key)["fraction_of_limit"].groupby(level=[0, 1, 2], sort=False) for i, d in enumerate(devices)
    }
    groups = {name for parts in shares.values() for name in parts.groups}
    rows = []
    for name in sorted(groups):
        found = {i: parts.get_group(name) for i, parts in shares.items() if name in parts.groups}
        widest = max(found.values(), key=len)
        common = {i: (share / widest.reindex(share.index)).dropna() for i, share in found.items()}
        common = {i: ratio for i, ratio in common.items() if len(ratio)}
        for i, ratio in common.items() if len(common) > 1 else ():
            rows.append({"run": devices[i].short, "when": _when(devices[i]),
                         **dict(zip(("variant", "dtype", "mode"), name)), "problems": len(ratio), "relative": geometric_mean(ratio)})  # fmt: skip
    return pd.DataFrame(rows)


def speed_lines(device: Device, dtype: str, mode: str, smallest_n: int) -> pd.DataFrame:
    """Bytes moved per second by row length in the L2 and in DRAM: columns regime (with the device), who (copy, OWN, published kernels), n, rate."""
    rows = []
    for size in regime_sizes(device, dtype, compared=True)[:2]:
        own = own_rows(device, dtype)
        own = own[(own["elements"] == size.elements) & (own["mode"] == mode) & (own["n"] >= smallest_n)]
        title = f"{device.name}: {size.title(dtype)}"
        for row in own.drop_duplicates("n").itertuples():
            rows.append({"regime": title, "who": "copy", "n": row.n, "rate": row.useful_bytes / row.limit_us * 1e6})
            rows.append({"regime": title, "who": "fwht::transform", "n": row.n, "rate": row.useful_bytes / row.time_us * 1e6})
        for method, name in PUBLISHED.items():
            part = beside_published(device)
            part = part[(part["method"] == method) & (part["dtype"] == dtype) & (part["elements"] == size.elements) & (part["mode"] == mode)]
            for row in part[part["n"] >= smallest_n].itertuples():
                rows.append({"regime": title, "who": f"{name}, published", "n": row.n, "rate": row.useful_bytes / row.published_us * 1e6})
    return pd.DataFrame(rows, columns=["regime", "who", "n", "rate"])


def shared(table: pd.DataFrame, least=3) -> pd.DataFrame:
    """Of a table by n and variant the neighbouring lengths, `least` or more where there are so many, that most variants have, and as many
    lengths as these have; without the other variants. A mean over a variant's own lengths says nothing beside one over others."""
    table = table.dropna(how="all").sort_index()
    spans = [table.iloc[i:j] for i in range(len(table)) for j in range(i + min(least, len(table)), len(table) + 1)]
    return max((span.dropna(axis="columns") for span in spans), key=lambda span: (len(span.columns), len(span)), default=table)


def error_against_speed(device: Device, dtype: str) -> pd.DataFrame:
    """Per regime and variant, geometric means over the lengths that variants share (`shared`): columns regime (with the device and the
    lengths), variant, share, over_ideal, lengths."""
    over = errors(device).set_index(["variant", "dtype", "n"])["over_ideal"]
    rows = []
    for size in regime_sizes(device, dtype):
        table = shares(device, dtype, size, forwards=True)
        table = shared(table[table.index >= SMALLEST_N])
        for variant in table.columns:
            share = table[variant]
            error = [over.get((variant, dtype, n), math.nan) for n in share.index]
            if len(share) and np.isfinite(error).all():
                rows.append({"regime": f"{device.name}: {size.title(dtype)}, n = {n_ranges(table.index)}", "variant": variant, "share": geometric_mean(share),
                             "over_ideal": geometric_mean(error), "lengths": len(share)})  # fmt: skip
    return pd.DataFrame(rows, columns=["regime", "variant", "share", "over_ideal", "lengths"])
