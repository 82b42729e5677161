"""Figures: for each a function that computes the data (tested) and one that draws it.

Colours: Okabe-Ito for variants, cividis for fractions; both keep their order for colour-blind readers and in
grey. Every figure names the results folder, the device and the commit it shows.
"""

from __future__ import annotations

import math
import re
import textwrap
from dataclasses import dataclass, field

import matplotlib
import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator, ScalarFormatter

from . import baselines, tables
from .load import Device
from .tables import binary, byte_text

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5C3E", "#4D4D4D")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
HOST_MARKERS = ("*", "p", "h", ">")
INK, MUTED, RULE = "#1a1a1a", "#6b6b6b", "#d9d9d9"
PUBLISHED_STYLE = {"hadacore": (0, (5, 2)), "fast_hadamard_transform": (0, (1, 1.5))}
STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "sans-serif"],
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.6,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.fonttype": "none",
    "figure.dpi": 100,
}
WIDTH = 10.8  # inches


@dataclass
class Drawing:
    """A figure with its words. `tips[gid]` holds one line per cell of the group with that gid."""

    stem: str
    title: str
    caption: str
    figure: Figure
    tips: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


# ---------------------------------------------------------------------------------------------------- data


@dataclass(frozen=True)
class HeatMap:
    """Fraction of the limit of one variant; a cell is measured, a labelled gap or absent."""

    variant: str
    cells: dict[tuple[int, int], float]  # (n, elements) -> fraction of the limit
    gaps: dict[tuple[int, int], str]  # (n, elements) -> why there is no time
    times: dict[tuple[int, int], float]  # (n, elements) -> microseconds


def select(results: pd.DataFrame, dtype: str, mode: str, layout: str) -> pd.DataFrame:
    return results[(results["dtype"] == dtype) & (results["mode"] == mode) & (results["layout"] == layout)]


def heat_maps(device: Device, dtype: str, mode: str, layout: str) -> list[HeatMap]:
    """One map per variant that has a measurement or a reason, in ladder order; none for a mode without times.

    unsupported.csv names no mode: a reason is a gap where the same problem was timed in this mode, or in no
    mode at all and this mode has its size. In mode host only variants with times are shown: the others do
    not run there.
    """
    part = select(device.results, dtype, mode, layout)
    reasons = device.unsupported
    reasons = reasons[(reasons["dtype"] == dtype) & (reasons["layout"] == layout)]
    timed = device.results[(device.results["dtype"] == dtype) & (device.results["layout"] == layout)]
    here, anywhere, sizes = _problems(part), _problems(timed), set(part["elements"])
    host = set(device.results.loc[device.results["memory"] == "host", "variant"])
    maps = []
    for variant in device.variants:
        rows = part[part["variant"] == variant]
        own = reasons[reasons["variant"] == variant]
        if rows.empty and (own.empty or mode == "host" or variant in host):
            continue
        ok, bad = rows[rows["status"] == "ok"], rows[rows["status"] != "ok"]
        gaps = {
            (r.n, r.elements): r.reason
            for r in own.itertuples()
            if (r.n, r.elements) in here or ((r.n, r.elements) not in anywhere and r.elements in sizes)
        }
        gaps |= {(r.n, r.elements): f"{r.status}: {r.message}".rstrip(": ") for r in bad.itertuples()}
        cells = {(r.n, r.elements): r.fraction_of_limit for r in ok.itertuples()}
        times = {(r.n, r.elements): r.time_us for r in ok.itertuples()}
        maps.append(HeatMap(variant, cells, {k: v for k, v in gaps.items() if k not in cells}, times))
    return maps if any(m.cells for m in maps) else []


def _problems(results: pd.DataFrame) -> set[tuple[int, int]]:
    return set(zip(results["n"], results["elements"], strict=True))


@dataclass(frozen=True)
class GapReason:
    """One letter of a heat map: sentences that differ only in their numbers share it."""

    letter: str
    reasons: tuple[str, ...]
    text: str


def gap_legend(maps: list[HeatMap]) -> list[GapReason]:
    """Letters for all gaps of `maps`, in order of appearance, each with a sentence and its n."""
    alike: dict[str, list[tuple[int, str]]] = {}
    for heat in maps:
        for (n, _), reason in sorted(heat.gaps.items()):
            alike.setdefault(re.sub(r"\d[\d.e+-]*", "#", reason), []).append((n, reason))
    legend = []
    for index, entries in enumerate(alike.values()):
        reasons = tuple(dict.fromkeys(reason for _, reason in entries))
        rest = "" if len(reasons) == 1 else f" (and alike: n = {tables.n_ranges(n for n, _ in entries)})"
        legend.append(GapReason(_letter(index), reasons, f"{_letter(index)}: {reasons[0]}{rest}"))
    return legend


def published_maps(dtype: str, mode: str, keys: set[tuple[int, int]]) -> list[HeatMap]:
    """The published kernels in the same form, where they were measured at one of the `keys` (n, elements)."""
    table = baselines.published()
    maps = []
    for method, name in baselines.NAMES.items():
        part = table[(table["method"] == method) & (table["dtype"] == dtype) & (table["mode"] == mode)]
        rows = [r for r in part.itertuples() if (r.n, r.elements) in keys]
        if rows:
            cells = {(r.n, r.elements): r.fraction for r in rows}
            maps.append(HeatMap(name, cells, {}, {(r.n, r.elements): r.time_us for r in rows}))
    return maps


def panel_sizes(results: pd.DataFrame, limit: int = 6) -> list[int]:
    """At most `limit` element counts, spread over those measured for several n; the largest included."""
    counts = results.groupby("elements")["n"].nunique()
    elements = (
        sorted(int(e) for e in counts.index[counts >= max(2, counts.max() // 2)]) if len(counts) else []
    )
    elements = elements or sorted(int(e) for e in counts.index)
    if len(elements) <= limit:
        return elements
    return [elements[round(i * (len(elements) - 1) / (limit - 1))] for i in range(limit)]


def panel_ns(results: pd.DataFrame, limit: int = 6) -> list[int]:
    """At most `limit` row lengths, the longer ones preferred: the short ones behave alike."""
    ns = sorted(int(n) for n in results["n"].unique())
    if len(ns) <= limit:
        return ns
    return [ns[round(i * (len(ns) - 1) / (limit - 1))] for i in range(limit)]


@dataclass(frozen=True)
class Lines:
    """One panel: named series of (x, y), and reference curves by name."""

    series: dict[str, tuple[np.ndarray, np.ndarray]]
    references: dict[str, tuple[np.ndarray, np.ndarray]]
    published: dict[str, tuple[np.ndarray, np.ndarray]]


def _xy(table: pd.DataFrame, x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
    table = table.dropna(subset=[y]).sort_values(x)
    return table[x].to_numpy(float), table[y].to_numpy(float)


def time_against_n(device: Device, part: pd.DataFrame, elements: int) -> Lines:
    """Time over n at a fixed number of elements; the limit, and the empty kernel's time in the same mode."""
    rows = part[(part["elements"] == elements) & (part["status"] == "ok")]
    series = {
        v: _xy(rows[rows["variant"] == v], "n", "time_us")
        for v in device.variants
        if (rows["variant"] == v).any()
    }
    references = {}
    ns = np.array(sorted(rows["n"].unique()), float)
    if len(ns):
        for name, column in (("limit (copy)", "limit_us"), ("empty kernel", "empty_us")):
            value = float(rows[column].median()) if rows[column].notna().any() else math.nan
            # Beside large work an empty kernel is no floor: it would only flatten the panel.
            if np.isfinite(value) and (column == "limit_us" or value > 0.05 * rows["time_us"].min()):
                references[name] = (ns, np.full(len(ns), value))
    return Lines(series, references, _published_lines(device, part, "n", "elements", elements))


def time_against_bytes(device: Device, part: pd.DataFrame, n: int) -> Lines:
    """Time over useful bytes (read + written) at a fixed n; the measured limit, and the latency floor."""
    rows = part[(part["n"] == n) & (part["status"] == "ok")]
    series = {
        v: _xy(rows[rows["variant"] == v], "useful_bytes", "time_us")
        for v in device.variants
        if (rows["variant"] == v).any()
    }
    references = {}
    limit = rows.dropna(subset=["limit_us"]).groupby("useful_bytes")["limit_us"].min()
    if len(limit):
        references["limit (copy)"] = (limit.index.to_numpy(float), limit.to_numpy(float))
    floor = rows.dropna(subset=["empty_us"])
    if len(floor):
        spread = np.array([rows["useful_bytes"].min(), rows["useful_bytes"].max()], float)
        references["empty kernel"] = (spread, np.full(2, float(floor["empty_us"].median())))
    return Lines(series, references, _published_lines(device, part, "useful_bytes", "n", n))


def _published_lines(device: Device, part: pd.DataFrame, x: str, fixed: str, value: int) -> dict:
    """Absolute times of the published kernels, only beside results of the same GPU and where both exist."""
    if part.empty or not baselines.same_gpu(device.name) or not (part["layout"] == "in place").all():
        return {}
    table = baselines.published()
    dtype, mode = part["dtype"].iloc[0], part["mode"].iloc[0]
    table = table[(table["dtype"] == dtype) & (table["mode"] == mode) & (table[fixed] == value)]
    table = table[table["n"].isin(part["n"]) & table["elements"].isin(part["elements"])]
    table = table.assign(useful_bytes=2 * table["elements"] * tables.ELEMENT_BYTES[dtype])
    lines = {
        name: _xy(table[table["method"] == method], x, "time_us") for method, name in baselines.NAMES.items()
    }
    return {name: line for name, line in lines.items() if len(line[0])}


def speedup_base(device: Device, part: pd.DataFrame) -> str:
    """warp_shuffle, or the lowest rung that was measured when it is not there."""
    measured = [v for v in device.variants if (part.loc[part["status"] == "ok", "variant"] == v).any()]
    return "warp_shuffle" if "warp_shuffle" in measured else (measured[0] if measured else "")


def speedups(part: pd.DataFrame, base: str) -> pd.DataFrame:
    """Columns variant, n, elements, speedup = time of `base` / time, for every other variant."""
    ok = part[part["status"] == "ok"]
    own = ok[ok["variant"] == base][["n", "elements", "time_us"]].rename(columns={"time_us": "base_us"})
    both = ok[ok["variant"] != base].merge(own, on=["n", "elements"])
    both["speedup"] = both["base_us"] / both["time_us"]
    return both[["variant", "n", "elements", "speedup"]].sort_values(
        ["variant", "n", "elements"], ignore_index=True
    )


def accuracy_lines(accuracy: pd.DataFrame, dtype: str) -> pd.DataFrame:
    """Rows of the main input for `dtype` with an error, sorted by n; `source` is measured or emulated."""
    part = accuracy[(accuracy["dtype"] == dtype) & (accuracy["input"] == tables.main_input(accuracy))]
    return part[np.isfinite(part["rel_l2"].astype(float))].sort_values(
        ["variant", "source", "n"], ignore_index=True
    )


def error_against_speed(device: Device, dtype: str, mode: str) -> pd.DataFrame:
    """Columns variant, n, elements, fraction_of_limit, over_ideal, at the largest size of the summary."""
    layout = tables.main_layout(device.results)
    part = select(device.results, dtype, mode, layout)
    sizes = tables.summary_sizes(part, dtype, mode, device.l2_bytes)
    if not sizes:
        return pd.DataFrame(columns=["variant", "n", "elements", "fraction_of_limit", "over_ideal"])
    rows = part[(part["elements"] == sizes[-1].elements) & (part["status"] == "ok")]
    rows = rows.merge(
        tables.errors(device)[["variant", "dtype", "n", "over_ideal"]], on=["variant", "dtype", "n"]
    )
    return rows[["variant", "n", "elements", "fraction_of_limit", "over_ideal"]].dropna(ignore_index=True)


# ------------------------------------------------------------------------------------------------- drawing


def styles(variants: list[str], colours=PALETTE, markers=MARKERS) -> dict[str, dict]:
    """One pair of colour and marker per variant, in the order given; a colour that comes again has another marker."""
    return {
        variant: {
            "color": colours[i % len(colours)],
            "marker": markers[(i + i // len(colours)) % len(markers)],
            "linestyle": "-" if i < len(colours) else "--",
        }
        for i, variant in enumerate(variants)
    }


def style_of(device: Device) -> dict[str, dict]:
    """One colour and marker per variant, the same in every figure.

    Variants on the GPU and on the CPU meet in the accuracy figure only: they count separately, so that the
    palette lasts, from its two ends and with other markers. What a GPU's results do not have is taken for the CPU's.
    """
    where = device.results["memory"]
    host = set(device.results.loc[where == "host", "variant"])
    if (where == "device").any():
        host = set(device.variants) - set(device.results.loc[where == "device", "variant"])
    on_device = styles([v for v in device.variants if v not in host])
    on_host = styles([v for v in device.variants if v in host], PALETTE[::-1], HOST_MARKERS)
    both = on_device | on_host
    return {variant: both[variant] for variant in device.variants}


def _grid(
    count: int, columns: int, panel_height: float, top: float, bottom: float, *, sharey=True, sharex=True
):
    """A figure with `count` panels; `top` and `bottom` are inches kept free for legend and source line."""
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    height = rows * panel_height + top + bottom
    width = WIDTH if columns > 1 else WIDTH * 0.62
    figure = Figure(figsize=(width, height))
    axes = figure.subplots(rows, columns, sharex=sharex, sharey=sharey, squeeze=False)
    figure.subplots_adjust(
        left=0.72 / width,
        right=1 - 0.12 / width,
        top=1 - top / height,
        bottom=bottom / height,
        wspace=0.12 if sharey else 0.26,
        hspace=0.24 + 0.12 * (panel_height < 2),
    )
    flat = list(axes.flat)
    for extra in flat[count:]:
        extra.set_visible(False)
    for axis in flat[max(0, count - columns) : count]:
        axis.tick_params(labelbottom=True)
    return figure, flat[:count]


def _source_line(figure: Figure, device: Device) -> None:
    text = "\n".join(textwrap.wrap(device.label, 150 if figure.get_figwidth() > 8 else 95))
    figure.text(0.008, 0.05 / figure.get_figheight(), text, fontsize=6.5, color=MUTED, va="bottom")


def _legend(figure: Figure, axes, order=()) -> None:
    """One legend for all panels: variants in ladder order, then reference curves, in one or two lines."""
    handles: dict[str, Artist] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    rank = {name: i for i, name in enumerate(order)}
    labels = sorted(handles, key=lambda label: rank.get(label.split(" (")[0], len(rank)))
    characters = sum(len(label) + 7 for label in labels)
    lines = math.ceil(characters / (15.5 * figure.get_figwidth()))
    figure.legend(
        [handles[label] for label in labels],
        labels,
        loc="upper left",
        ncols=math.ceil(len(labels) / lines),
        bbox_to_anchor=(0.0, 1 - 0.02 / figure.get_figheight()),
        columnspacing=1.4,
        handlelength=2.2,
    )


def _log2_axis(axis, which: str, values, text, rotate=False) -> None:
    values = sorted({float(v) for v in values})
    step = max(1, math.ceil(len(values) / 8)) if not rotate else max(1, math.ceil(len(values) / 16))
    ticks = values[::-1][::step][::-1]
    set_scale, target = (axis.set_xscale, axis.xaxis) if which == "x" else (axis.set_yscale, axis.yaxis)
    set_scale("log", base=2)
    target.set_ticks(ticks)
    target.set_major_formatter(FuncFormatter(lambda v, _: text(round(v))))
    target.set_minor_locator(NullLocator())
    if which == "x" and rotate:
        axis.tick_params(axis="x", rotation=90)


def _time_axis(axis) -> None:
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


def draw_heat_maps(device: Device, dtype: str, mode: str, layout: str) -> Drawing | None:
    maps = heat_maps(device, dtype, mode, layout)
    if not maps:
        return None
    keys = {k for m in maps for k in (*m.cells, *m.gaps)}
    maps += published_maps(dtype, mode, keys) if layout == "in place" else []
    ns = sorted({n for n, _ in keys})
    sizes = sorted({e for _, e in keys})
    legend = gap_legend(maps)
    letters = {reason: entry.letter for entry in legend for reason in entry.reasons}
    panel_height = 0.62 + 0.145 * len(sizes)
    figure, axes = _grid(len(maps), 3, panel_height, 0.55, 1.0)
    other = "" if layout == tables.main_layout(device.results) else f", {layout}"
    stem = f"heat_{dtype}_{mode}" + re.sub(r"\W+", "_", other)
    drawing = Drawing(
        stem,
        f"Fraction of the limit, {dtype}, {mode}{other}",
        "Time of the best copy kernel over the same bytes, divided by the time of the variant, in percent: "
        "100 means as fast as "
        f"copying. Rows {layout}. Hatched cells are gaps, the letter names the reason (red: a wrong or "
        "failed result, which has no time). "
        "White cells were not asked for.",
        figure,
    )
    for index, (axis, heat) in enumerate(zip(axes, maps)):
        _draw_heat_map(axis, heat, ns, sizes, letters, f"{stem}-{index}", drawing)
    label = "elements (n × rows)" if figure.get_figheight() > 3 else "elements"
    figure.supylabel(label, x=0.012, fontsize=8.5, color=INK)
    for axis in axes[max(0, len(axes) - 3) :]:
        axis.set_xlabel("row length n")
    _colour_bar(figure)
    drawing.notes = [entry.text for entry in legend]
    _source_line(figure, device)
    return drawing


def _letter(index: int) -> str:
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    return alphabet[index] if index < 26 else alphabet[index // 26 - 1] + alphabet[index % 26]


def _draw_heat_map(axis, heat: HeatMap, ns, sizes, letters, gid: str, drawing: Drawing) -> None:
    column, row = {n: i for i, n in enumerate(ns)}, {e: i for i, e in enumerate(sizes)}
    norm, colours = Normalize(0, 1), colormaps["cividis"].resampled(64)

    def squares(keys):
        return [
            [(column[n] + dx, row[e] + dy) for dx, dy in ((0, 0), (1, 0), (1, 1), (0, 1))] for n, e in keys
        ]

    small = 6.2 if len(ns) <= 16 else 4.6
    if heat.cells:
        values = list(heat.cells.values())
        cells = PolyCollection(
            squares(heat.cells),
            facecolors=[colours(norm(min(v, 1.0))) for v in values],
            edgecolors="white",
            linewidths=0.4,
            clip_on=False,
        )
        cells.set_gid(gid)
        axis.add_collection(cells)
        drawing.tips[gid] = [
            f"{heat.variant}, n={n}, {binary(e)} elements: {f:.3f} of the limit, "
            f"{tables.time_text(heat.times[n, e])}"
            for (n, e), f in heat.cells.items()
        ]
        for (n, e), value in heat.cells.items():
            colour = "white" if value < 0.55 else "black"
            axis.text(
                column[n] + 0.5,
                row[e] + 0.46,
                f"{100 * value:.0f}",
                ha="center",
                va="center",
                fontsize=small,
                color=colour,
            )
    wrong = {k for k, reason in heat.gaps.items() if reason.startswith(("incorrect", "failed"))}
    for kind, keys, fill, edge in (
        ("gap", [k for k in heat.gaps if k not in wrong], "#f1f1f1", "#c4c4c4"),
        ("wrong", [k for k in heat.gaps if k in wrong], "#ffd9cc", "#D55E00"),
    ):
        if keys:
            gaps = PolyCollection(
                squares(keys), facecolors=fill, edgecolors=edge, linewidths=0.3, hatch="////", clip_on=False
            )
            gaps.set_gid(f"{gid}-{kind}")
            axis.add_collection(gaps)
            drawing.tips[f"{gid}-{kind}"] = [
                f"{heat.variant}, n={n}, {binary(e)} elements: {heat.gaps[n, e]}" for n, e in keys
            ]
    for (n, e), reason in heat.gaps.items():
        axis.text(
            column[n] + 0.5,
            row[e] + 0.46,
            letters[reason],
            ha="center",
            va="center",
            fontsize=small,
            color=INK,
        )
    axis.set_xlim(0, len(ns))
    axis.set_ylim(0, len(sizes))
    axis.set_xticks(np.arange(len(ns)) + 0.5, [str(n) for n in ns], rotation=90)
    axis.set_yticks(np.arange(len(sizes)) + 0.5, [binary(e) for e in sizes])
    axis.tick_params(length=0)
    axis.grid(False)
    axis.set_title(heat.variant)


def _colour_bar(figure: Figure) -> None:
    width, height = figure.get_size_inches()
    axis = figure.add_axes((1 - 2.6 / width, 1 - 0.17 / height, 2.45 / width, 0.09 / height))
    colours = colormaps["cividis"].resampled(64)
    axis.bar(
        np.arange(64) * 100 / 64,
        1,
        101 / 64,
        align="edge",
        color=[colours(i) for i in range(64)],
        linewidth=0,
    )
    axis.set(xlim=(0, 100), ylim=(0, 1))
    axis.set_yticks([])
    axis.set_xticks([0, 25, 50, 75, 100])
    axis.tick_params(labelsize=6.5, length=0, pad=1)
    axis.grid(False)
    axis.spines[:].set_visible(False)
    figure.text(
        1 - 2.68 / width, 1 - 0.19 / height, "percent of the limit", ha="right", fontsize=7, color=MUTED
    )


def _draw_lines(axis, lines: Lines, styles: dict[str, dict]) -> None:
    for name, (x, y) in lines.references.items():
        style = {"color": "black", "linewidth": 1.1, "linestyle": "--" if name.startswith("limit") else ":"}
        axis.plot(x, y, label=name, zorder=1.5, **style)
    for name, (x, y) in lines.published.items():
        method = next(m for m, n in baselines.NAMES.items() if n == name)
        axis.plot(
            x, y, label=name, color="#9a9a9a", linewidth=1.2, linestyle=PUBLISHED_STYLE[method], zorder=1.6
        )
    for name, (x, y) in lines.series.items():
        axis.plot(x, y, label=name, markeredgecolor="white", markeredgewidth=0.4, **styles[name])
    own = np.concatenate([y for _, y in (*lines.series.values(), *lines.references.values())])
    if lines.published and len(own):  # they must not squeeze what the figure is about
        axis.set_ylim(0.8 * own.min(), 2.5 * own.max())


def draw_time_against_n(device: Device, dtype: str, mode: str) -> Drawing | None:
    part = select(device.results, dtype, mode, tables.main_layout(device.results))
    sizes = panel_sizes(part[part["status"] == "ok"])
    if not sizes:
        return None
    figure, axes = _grid(len(sizes), 3, 2.35, 0.72, 0.95, sharey=False)
    for axis, elements in zip(axes, sizes):
        _draw_lines(axis, time_against_n(device, part, elements), style_of(device))
        _log2_axis(axis, "x", part["n"], str, rotate=True)
        _time_axis(axis)
        axis.set_title(f"{binary(elements)} elements, {byte_text(elements * tables.ELEMENT_BYTES[dtype])}")
    _finish(figure, axes, device, "row length n", "time per launch (µs)")
    return Drawing(
        f"time_n_{dtype}_{mode}",
        f"Time against n, {dtype}, {mode}",
        "One panel per tensor size; lower is better. Dashed black: the limit, a copy of the same bytes. "
        "Dotted: an empty kernel." + _published_words(device, mode, dtype),
        figure,
    )


def draw_time_against_bytes(device: Device, dtype: str, mode: str) -> Drawing | None:
    part = select(device.results, dtype, mode, tables.main_layout(device.results))
    ok = part[part["status"] == "ok"]
    if ok["elements"].nunique() < 3:
        return None  # two points make no curve
    ns = panel_ns(ok)
    figure, axes = _grid(len(ns), 3, 2.35, 0.72, 0.95)
    for axis, n in zip(axes, ns):
        _draw_lines(axis, time_against_bytes(device, part, n), style_of(device))
        _log2_axis(axis, "x", part["useful_bytes"], byte_text, rotate=True)
        _time_axis(axis)
        axis.set_title(f"n = {n}")
    _finish(figure, axes, device, "useful bytes (read + written)", "time per launch (µs)")
    return Drawing(
        f"time_bytes_{dtype}_{mode}",
        f"Time against bytes, {dtype}, {mode}",
        "One panel per row length. Small work ends on the latency floor (dotted: an empty kernel), large "
        "work on the limit "
        "(dashed: a copy of the same bytes)." + _published_words(device, mode, dtype),
        figure,
    )


def draw_speedups(device: Device, dtype: str, mode: str) -> Drawing | None:
    """One panel per n over the elements; of a grid with fewer than three sizes, one panel per size over n."""
    part = select(device.results, dtype, mode, tables.main_layout(device.results))
    base = speedup_base(device, part)
    table = speedups(part, base)
    if table.empty:
        return None
    published = baselines.published_speedups(dtype, mode)
    published = published[published["elements"].isin(table["elements"]) & published["n"].isin(table["n"])]
    if table["elements"].nunique() > 2:
        panel, x, words = "n", "elements", "row length"
        across = 5 if table["n"].nunique() > 9 else 3
    else:
        panel, x, words, across = "elements", "n", "size", 3
    values = sorted(int(v) for v in table[panel].unique())
    figure, axes = _grid(len(values), across, 1.75 if across == 5 else 2.35, 0.72, 0.95)
    for axis, value in zip(axes, values):
        _draw_speedup_panel(
            axis, table[table[panel] == value], published[published[panel] == value], x, base, device
        )
        _log2_axis(axis, "x", table[x], binary if x == "elements" else str, rotate=True)
        _speedup_axis(axis)
        axis.set_title(f"n = {value}" if panel == "n" else f"{binary(value)} elements")
    label = "elements (n × rows)" if x == "elements" else "row length n"
    _finish(figure, axes, device, label, f"time of {base} / time")
    grey = " Grey: the same ratio of the published kernels, as measured on an H200." if len(published) else ""
    return Drawing(
        f"speedup_{dtype}_{mode}",
        f"Speed-up over {base}, {dtype}, {mode}",
        f"One panel per {words}, logarithmic; above 1 is faster than {base}.{grey}",
        figure,
    )


def _draw_speedup_panel(axis, table, published, x: str, base: str, device: Device) -> None:
    axis.axhline(1, color="black", linewidth=0.9, linestyle="--", label=base)
    if len(published):
        axis.plot(
            *_xy(published, x, "speedup"),
            color="#9a9a9a",
            linestyle=PUBLISHED_STYLE["hadacore"],
            label="published: HadaCore over fast-hadamard-transform",
        )
    for variant, style in style_of(device).items():
        rows = table[table["variant"] == variant]
        if len(rows):
            edge = {"markeredgecolor": "white", "markeredgewidth": 0.4}
            axis.plot(*_xy(rows, x, "speedup"), label=variant, **edge, **style)


def _speedup_axis(axis) -> None:
    axis.set_yscale("log", base=2)
    low, high = axis.get_ylim()
    axis.yaxis.set_major_locator(LogLocator(base=2, subs=(1, 1.5) if high < 12 * low else (1,)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axis.yaxis.set_minor_locator(NullLocator())


def draw_accuracy(device: Device) -> Drawing | None:
    dtypes = [d for d in tables.dtypes_of(device) if len(accuracy_lines(device.accuracy, d))]
    if not dtypes:
        return None
    figure, axes = _grid(2 * len(dtypes), len(dtypes), 2.6, 0.9, 0.95, sharey=False)
    upper, lower = axes[: len(dtypes)], axes[len(dtypes) :]
    for dtype, top, bottom in zip(dtypes, upper, lower):
        _draw_accuracy_panel(device, dtype, top, bottom)
    upper[0].set_ylabel("relative L2 error")
    lower[0].set_ylabel("measured / predicted")
    for axis in lower:
        axis.set_xlabel("row length n")
    _legend(figure, axes, device.variants)
    _source_line(figure, device)
    kind = tables.main_input(device.accuracy)
    return Drawing(
        "accuracy",
        "Error against n, measured and predicted",
        f"Input: {kind}. Above: relative L2 error against the FP64 reference; marks are measured (hollow: "
        "emulated on the host), lines are "
        "computed from the variant's steps before the run, dotted black is one rounding of the exact "
        "result. "
        "Below: measured over predicted.",
        figure,
    )


def _draw_accuracy_panel(device: Device, dtype: str, top, bottom) -> None:
    part = accuracy_lines(device.accuracy, dtype)
    variants = [v for v in device.variants if (part["variant"] == v).any()]
    for index, variant in enumerate(variants):
        style = style_of(device)[variant]
        shift = 2 ** (
            0.11 * (index - (len(variants) - 1) / 2)
        )  # side by side where marks would hide each other
        for source, rows in part[part["variant"] == variant].groupby("source"):
            hollow = (
                {"markerfacecolor": "white"} if source == "emulated" else {"markeredgecolor": style["color"]}
            )
            label = variant if source == "measured" else f"{variant} ({source})"
            x = rows["n"].to_numpy(float) * shift
            marks = {
                "marker": style["marker"],
                "color": style["color"],
                "linestyle": "none",
                "markeredgewidth": 0.8,
            }
            top.plot(x, rows["rel_l2"], label=label, **marks, **hollow)
            predicted = rows["predicted_rel_l2"].to_numpy(float)
            ratio = rows["rel_l2"].to_numpy(float) / predicted
            bottom.plot(x, ratio, **marks, **hollow)
        rows = part[part["variant"] == variant].drop_duplicates("n")
        top.plot(rows["n"], rows["predicted_rel_l2"], color=style["color"], linewidth=0.9, alpha=0.8)
    top.axhline(tables.ideal_error(dtype), color="black", linestyle=":", linewidth=1, label="one rounding")
    bottom.axhline(1, color="black", linestyle="--", linewidth=0.9)
    for axis in (top, bottom):
        _log2_axis(axis, "x", part["n"], str, rotate=True)
    top.set_ylim(bottom=0)
    reach = max(0.05, 1.6 * float((part["rel_l2"] / part["predicted_rel_l2"] - 1).abs().max()))
    bottom.set_ylim(1 - reach, 1 + reach)
    formatter = ScalarFormatter(useMathText=False)
    formatter.set_powerlimits((-2, 3))
    top.yaxis.set_major_formatter(formatter)
    top.set_title(dtype)


def draw_error_against_speed(device: Device, mode: str) -> Drawing | None:
    dtypes = [d for d in tables.dtypes_of(device) if len(error_against_speed(device, d, mode))]
    if not dtypes:
        return None
    figure, axes = _grid(len(dtypes), 3, 3.0, 0.72, 0.85, sharey=False)
    for axis, dtype in zip(axes, dtypes):
        table = error_against_speed(device, dtype, mode)
        _scatter_error_speed(axis, device, table)
        axis.set_title(f"{dtype}, {binary(int(table['elements'].iloc[0]))} elements")
    _finish(figure, axes, device, "percent of the limit", "error / one rounding")
    return Drawing(
        f"error_speed_{mode}",
        f"Error against speed, {mode}",
        "Every mark is one row length (larger mark: longer row) at the largest size of the summary. Right is "
        "fast, the dotted line is the "
        "smallest error that the storage type allows: one rounding of the exact result.",
        figure,
    )


def headline_points(device: Device, dtype: str) -> dict[tables.Size, pd.DataFrame]:
    """Per regime variant, n, fraction_of_limit and over_ideal, each regime in the mode that judges it best."""
    layout = tables.main_layout(device.results)
    errors = tables.errors(device)[["variant", "dtype", "n", "over_ideal"]]
    points = {}
    for size in tables.headline_sizes(device.results[device.results["layout"] == layout], dtype, device.l2_bytes):
        part = select(device.results, dtype, size.mode, layout)
        part = part[(part["elements"] == size.elements) & (part["status"] == "ok")]
        merged = part.merge(errors, on=["variant", "dtype", "n"])
        points[size] = merged[["variant", "n", "fraction_of_limit", "over_ideal"]].dropna(ignore_index=True)
    return {size: rows for size, rows in points.items() if len(rows)}


def draw_headline(device: Device) -> Drawing | None:
    """Error against speed at a small, an L2 and a DRAM size, of the variants that launch kernels of their own."""
    device = tables.without_forwarders(device)
    dtypes = [d for d in tables.dtypes_of(device) if headline_points(device, d)]
    if not dtypes:
        return None
    dtype = dtypes[0]
    points = headline_points(device, dtype)
    figure, axes = _grid(len(points), 3, 3.0, 0.72, 0.85)
    for axis, (size, table) in zip(axes, points.items()):
        _scatter_error_speed(axis, device, table)
        axis.set_title(f"{size.label}: {byte_text(size.elements * tables.ELEMENT_BYTES[dtype])}, {size.mode}")
    _finish(figure, axes, device, "percent of the limit", "error / one rounding")
    return Drawing(
        "headline",
        f"Error against speed, {dtype}",
        "Every mark is one row length (larger mark: longer row). Right is fast: 100 % is the speed of the best copy "
        "of the same bytes. The dotted line is the smallest error that the storage type allows: one rounding of the "
        "exact result.",
        figure,
    )


@dataclass(frozen=True)
class SpeedLines:
    """One panel of the README's figure: bytes moved per second, by row length; in TB/s."""

    title: str
    copy: tuple[np.ndarray, np.ndarray]
    own: tuple[np.ndarray, np.ndarray]
    published: dict[str, tuple[np.ndarray, np.ndarray]]  # by method


def speed_lines(device: Device, variant: str, dtype: str, mode: str, smallest_n: int) -> list[SpeedLines]:
    """`variant`, the copy of the same run and the published kernels, at the largest size in the L2 and in DRAM that all of
    them were measured at. Empty on another GPU than that of the published table."""
    if not baselines.same_gpu(device.name):
        return []
    part = select(device.results, dtype, mode, "in place")
    part = part[(part["variant"] == variant) & (part["status"] == "ok") & (part["n"] >= smallest_n)]
    other = baselines.published()
    other = other[(other["dtype"] == dtype) & (other["mode"] == mode) & (other["n"] >= smallest_n)]
    part = part[part["elements"].isin(other["elements"])]
    panels = []
    for size in reversed(tables.summary_sizes(part, dtype, mode, device.l2_bytes)):
        if size.label == "small":
            continue
        rows = part[part["elements"] == size.elements].sort_values("n")
        known = other[other["elements"] == size.elements].sort_values("n")
        useful = 2 * size.elements * tables.ELEMENT_BYTES[dtype]

        def rate(table: pd.DataFrame, column: str, useful: int = useful) -> tuple[np.ndarray, np.ndarray]:
            return table["n"].to_numpy(float), useful / table[column].to_numpy(float) / 1e6

        published = {str(m): rate(own, "time_us") for m, own in known.groupby("method")}
        title = f"{byte_text(useful // 2)}, {'in the L2 cache' if size.label == 'in L2' else 'in DRAM'}"
        panels.append(SpeedLines(title, rate(rows, "limit_us"), rate(rows, "time_us"), published))
    return panels


PUBLISHED_LABELS = {"hadacore": "HadaCore", "fast_hadamard_transform": "fast-hadamard-transform"}


def draw_speed(device: Device, variant: str = "auto", dtype: str = "f16", mode: str = "replay") -> Drawing | None:
    """The README's figure: four lines a panel."""
    panels = speed_lines(device, variant, dtype, mode, baselines.SMALLEST_N)
    if not panels:
        return None
    figure, axes = _grid(len(panels), 2, 3.0, 0.5, 0.8, sharey=False)
    for axis, panel in zip(axes, panels):
        axis.plot(*panel.copy, color=INK, linestyle="--", linewidth=1.2, label="copy of the same bytes")
        axis.plot(*panel.own, color=PALETTE[0], marker="o", linewidth=2.2, markersize=5, label="fwht::transform")
        for (method, line), colour, marker in zip(panel.published.items(), (PALETTE[2], PALETTE[1]), ("s", "^")):
            axis.plot(*line, color=colour, marker=marker, linewidth=1.4, markersize=5, label=PUBLISHED_LABELS[method])
        _log2_axis(axis, "x", panel.own[0], str)
        axis.set_ylim(bottom=0)
        axis.set_title(panel.title)
        axis.set_xlabel("row length n")
    axes[0].set_ylabel("bytes read and written, TB/s")
    _legend(figure, axes, ["copy of the same bytes", "fwht::transform"])
    _source_line(figure, device)
    return Drawing(
        "speed",
        f"Speed by row length, {dtype}, in place, {mode}",
        "Higher is better; no transform can be faster than a copy of the same bytes.",
        figure,
    )


def _scatter_error_speed(axis, device: Device, table: pd.DataFrame) -> None:
    for variant, style in style_of(device).items():
        rows = table[table["variant"] == variant]
        if rows.empty:
            continue
        size = 7 + 3.0 * np.log2(rows["n"].to_numpy(float))
        axis.scatter(
            100 * rows["fraction_of_limit"],
            rows["over_ideal"],
            s=size,
            label=variant,
            alpha=0.85,
            color=style["color"],
            marker=style["marker"],
            edgecolors="white",
            linewidths=0.4,
        )
    axis.axhline(1, color="black", linestyle=":", linewidth=1)
    axis.set_xlim(0, max(105, 104 * table["fraction_of_limit"].max()))
    low, high = axis.get_ylim()
    axis.set_ylim(min(low, 0.9), max(high, 1.2))


def _finish(figure: Figure, axes, device: Device, x: str, y: str) -> None:
    columns = axes[0].get_gridspec().ncols
    for axis in axes[::columns]:
        axis.set_ylabel(y)
    for axis in axes[max(0, len(axes) - columns) :]:
        axis.set_xlabel(x)
    _legend(figure, axes, device.variants)
    _source_line(figure, device)


def _published_words(device: Device, mode: str, dtype: str) -> str:
    table = baselines.published()
    known = ((table["dtype"] == dtype) & (table["mode"] == mode)).any()
    return (
        " Grey: the published kernels, as measured on an H200 (cut off above the panel)."
        if known and baselines.same_gpu(device.name)
        else ""
    )


def groups(device: Device) -> list[tuple[str, str, str]]:
    """Name, dtype and mode of every group of figures: "f16, mode replay", and "accuracy" last."""
    pairs = [(m, d) for m in tables.modes_of(device) for d in tables.dtypes_of(device)]
    return [(f"{dtype}, mode {mode}", dtype, mode) for mode, dtype in pairs] + [("accuracy", "", "")]


def draw_group(device: Device, name: str, dtype: str, mode: str) -> list[Drawing]:
    """The figures of one group, of the variants that launch kernels of their own. Layouts other than the main one get
    their heat maps only."""
    device = tables.without_forwarders(device)
    with matplotlib.rc_context(STYLE):
        if name == "accuracy":
            scatter = (draw_error_against_speed(device, m) for m in tables.modes_of(device))
            drawn = [draw_accuracy(device), *scatter]
        else:
            main = tables.main_layout(device.results)
            layouts = [main, *sorted(set(device.results["layout"]) - {main})]
            heat = [draw_heat_maps(device, dtype, mode, layout) for layout in layouts]
            lines = (draw_time_against_n, draw_time_against_bytes, draw_speedups)
            drawn = heat[:1] + [draw(device, dtype, mode) for draw in lines] + heat[1:]
        return [drawing for drawing in drawn if drawing]


def draw_all(device: Device) -> dict[str, list[Drawing]]:
    """All figures in groups; empty groups are left out, except "accuracy"."""
    drawn = {name: draw_group(device, name, dtype, mode) for name, dtype, mode in groups(device)}
    return {name: drawings for name, drawings in drawn.items() if drawings or name == "accuracy"}
