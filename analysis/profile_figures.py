"""Figures of a profile: roofline, what an element costs, occupancy, stalls. Data functions first, then drawing."""

from __future__ import annotations

import matplotlib
import numpy as np
import pandas as pd

from . import figures
from .figures import MUTED, PALETTE, Drawing
from .load import ELEMENT_BYTES
from .profile import DRAM_SIZED, L2_SIZED, Profile

# Reasons drawn by themselves, greatest first on average; the others are summed up.
DRAWN_STALLS = ("long_scoreboard", "short_scoreboard", "mio_throttle", "math_pipe_throttle", "barrier", "wait",
                "not_selected", "other")  # fmt: skip
CEILINGS = {
    "issue_slots": ("issue", 32, "issue slots an element"),
    "lsu_words": ("LSU", 32, "words of the LSU pipe an element"),
    "tensor_cycles": ("tensor", 1, "tensor-pipe cycles an element"),
}


def main_dtype(profile: Profile) -> str:
    """The type with the most problems."""
    return str(profile.problems["dtype"].mode().iloc[0])


def part(profile: Profile, dtype: str, size: str) -> pd.DataFrame:
    table = profile.problems
    chosen = table[(table["dtype"] == dtype) & (table["regime"] == size)]
    return chosen.sort_values(["n"])


def memory_ceiling(profile: Profile, resource: str, dtype: str, clock_ghz: float) -> float:
    """Elements a clock and SM that the L2 or the DRAM can feed: one read and one write each."""
    sms = int(profile.context["device"]["sm_count"])
    return profile.peaks[resource] / (2 * ELEMENT_BYTES[dtype]) / (sms * clock_ghz)


def pipe_ceiling(profile: Profile, cost: str, x: np.ndarray) -> np.ndarray:
    """Elements a clock and SM at which the pipe of `cost` is at its measured peak."""
    resource, width, _ = CEILINGS[cost]
    return profile.peaks[resource] * width / x


def stall_shares(rows: pd.DataFrame) -> pd.DataFrame:
    """Which share of the waiting has which reason, in the columns of DRAWN_STALLS, a row a variant."""
    named = [reason for reason in DRAWN_STALLS if reason != "other"]
    waits = [c for c in rows.columns if c.startswith("stall_") and c != "stall_selected"]
    table = rows.set_index("variant")[[f"stall_{reason}" for reason in named]].copy()
    table.columns = named
    total = rows.set_index("variant")[waits].sum(axis=1)
    table["other"] = total - table.sum(axis=1)
    return table.div(total, axis=0)


# ------------------------------------------------------------------------------------------------- drawing


def style_of(profile: Profile) -> dict[str, dict]:
    return figures.styles([v for v in profile.context["variants"] if v in set(profile.kernels["variant"])])


def _finish(figure, axes, profile: Profile, x: str | None) -> None:
    columns = axes[0].get_gridspec().ncols
    for axis in axes[max(0, len(axes) - columns) :]:
        if x:
            axis.set_xlabel(x)
    figures._legend(figure, axes, profile.variants)
    figure.text(0.008, 0.05 / figure.get_figheight(), profile.label, fontsize=6.5, color=MUTED, va="bottom")


def draw_roofline(profile: Profile) -> Drawing | None:
    """Elements a clock and SM against what an element costs in a pipe, under the measured ceilings."""
    dtype = main_dtype(profile)
    sizes = [s for s in (L2_SIZED, DRAM_SIZED) if len(part(profile, dtype, s))]
    costs = [c for c, (resource, _, _) in CEILINGS.items() if resource in profile.peaks]
    if not sizes or not costs or not {"L2", "DRAM"} <= set(profile.peaks):
        return None
    figure, axes = figures._grid(len(sizes) * len(costs), len(costs), 2.5, 0.72, 0.95, sharex=False)
    for i, size in enumerate(sizes):
        rows = part(profile, dtype, size)
        for axis, cost in zip(axes[i * len(costs) :], costs):
            _draw_roofline_panel(axis, profile, rows, cost, dtype, size)
    for axis in axes[:: len(costs)]:
        axis.set_ylabel("elements a clock and SM")
    for axis, cost in zip(axes[-len(costs) :], costs):
        axis.set_xlabel(CEILINGS[cost][2])
        axis.tick_params(labelbottom=True)
    _finish(figure, axes, profile, None)
    return Drawing(
        "roofline",
        f"Roofline, {dtype}",
        "Every mark is one launch (larger mark: longer row). Slanted: the pipe's measured peak; level: what "
        "L2 and DRAM feed at one read and one write an element. All peaks were measured by kernels that drive one "
        "resource only, in the same run, with the same counters. A mark far below every line waits for "
        "latency. A single launch under the profiler, its start and end included, is slower than one of many.",
        figure,
    )


def _draw_roofline_panel(axis, profile: Profile, rows: pd.DataFrame, cost: str, dtype: str, size: str) -> None:
    # Moves by a half-precision multiply count as tensor cycles; that is no use of the tensor cores.
    shown = rows[rows[f"of_{CEILINGS[cost][0]}"] > 0.02]
    for variant, style in style_of(profile).items():
        own = shown[shown["variant"] == variant]
        if len(own):
            area = 6 + 3.0 * np.log2(own["n"].to_numpy(float))
            axis.scatter(own[cost], own["elements_per_clock"], s=area, label=variant, color=style["color"],
                         marker=style["marker"], edgecolors="white", linewidths=0.4, alpha=0.9)  # fmt: skip
    if len(shown):
        low, high = 0.6 * shown[cost].min(), 1.7 * shown[cost].max()
        x = np.geomspace(low, high, 50)
        axis.plot(x, pipe_ceiling(profile, cost, x), color="black", linewidth=1.1, label="peak of the pipe")
        clock = float(rows["clock_ghz"].median())
        for resource, line in (("L2", "--"), ("DRAM", ":")):
            level = memory_ceiling(profile, resource, dtype, clock)
            axis.axhline(level, color="black", linewidth=1, linestyle=line, label=f"{resource} peak")
        top = memory_ceiling(profile, "L2", dtype, clock)
        axis.set(xscale="log", yscale="log", xlim=(low, high))
        axis.set_ylim(0.6 * rows["elements_per_clock"].min(), 2.2 * top)
        for which in (axis.xaxis, axis.yaxis):
            which.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda v, _: f"{v:g}"))
            which.set_minor_formatter(matplotlib.ticker.NullFormatter())
    axis.set_title(f"{size}: {CEILINGS[cost][0]}")


def draw_costs(profile: Profile) -> Drawing | None:
    """What an element costs in bytes, words and slots, over n."""
    dtype = main_dtype(profile)
    rows = part(profile, dtype, DRAM_SIZED)
    if rows.empty or rows["l2_bytes"].isna().all():
        return None
    panels = {
        "dram_bytes": "DRAM bytes an element",
        "l2_bytes": "L2 bytes an element",
        "sectors_per_load": "sectors a load request",
        "lsu_words": "LSU words an element",
        "shared_words": "LDS + STS words an element",
        "issue_slots": "issue slots an element",
    }
    figure, axes = figures._grid(len(panels), 3, 2.1, 0.72, 0.95, sharey=False)
    for axis, (column, title) in zip(axes, panels.items()):
        for variant, style in style_of(profile).items():
            own = rows[rows["variant"] == variant].dropna(subset=[column])
            if len(own):
                axis.plot(own["n"], own[column], label=variant, **style)
        if column in ("dram_bytes", "l2_bytes"):
            axis.axhline(rows["ideal_bytes"].iloc[0], color="black", linestyle="--", linewidth=1, label="ideal")
        figures._log2_axis(axis, "x", rows["n"], str, rotate=True)
        axis.set_ylim(bottom=0)
        axis.set_title(title)
    _finish(figure, axes, profile, "row length n")
    return Drawing(
        "costs",
        f"What an element costs, {dtype}, DRAM size",
        "Counted by the profiler, divided by the elements. Ideal: every element read once and written once. "
        "A 16-byte load of a warp is 16 sectors. The LSU pipe carries shuffles, shared memory and global loads and "
        "stores; load and store alone are one word an element of 16 bit.",
        figure,
    )


def draw_occupancy(profile: Profile) -> Drawing | None:
    """Possible and achieved occupancy, and how long SMs have work, a panel a variant."""
    dtype = main_dtype(profile)
    rows = part(profile, dtype, DRAM_SIZED)
    if rows.empty or rows["occupancy"].isna().all():
        return None
    variants = [v for v in profile.variants if (rows["variant"] == v).any()]
    figure, axes = figures._grid(len(variants), 4, 1.7, 0.72, 0.95)
    lines = {
        "occupancy_possible": ("possible occupancy", PALETTE[0], "o", "-"),
        "occupancy": ("achieved occupancy", PALETTE[1], "s", "-"),
        "sm_busy": ("SMs with work", PALETTE[7], "^", ":"),
    }
    for axis, variant in zip(axes, variants):
        own = rows[rows["variant"] == variant]
        for column, (label, colour, marker, line) in lines.items():
            axis.plot(own["n"], 100 * own[column], label=label, color=colour, marker=marker, linestyle=line)
        figures._log2_axis(axis, "x", rows["n"], str, rotate=True)
        axis.set_ylim(0, 105)
        axis.set_title(variant)
    for axis in axes[::4]:
        axis.set_ylabel("percent")
    _finish(figure, axes, profile, "row length n")
    return Drawing(
        "occupancy",
        f"Occupancy, {dtype}, DRAM size",
        "Warps resident, as a share of what an SM holds: what registers, shared memory and block size "
        "allow, and what was there on average.",
        figure,
    )


def draw_stalls(profile: Profile) -> Drawing | None:
    """Why warps wait, a panel a row length, a bar a variant."""
    dtype = main_dtype(profile)
    size = L2_SIZED if len(part(profile, dtype, L2_SIZED)) else DRAM_SIZED
    rows = part(profile, dtype, size)
    if rows.empty or rows["stall_wait"].isna().all():
        return None
    ns = figures.panel_ns(rows, 4)
    figure, axes = figures._grid(len(ns), len(ns), 2.6, 0.72, 0.95, sharey=False)
    for axis, n in zip(axes, ns):
        table = stall_shares(rows[rows["n"] == n])
        variants = [v for v in reversed(profile.variants) if v in table.index]
        left = np.zeros(len(variants))
        for reason, colour in zip(DRAWN_STALLS, PALETTE):
            values = 100 * table.loc[variants, reason].to_numpy(float)
            axis.barh(variants, values, left=left, color=colour, label=reason.replace("_", " "), height=0.7)
            left += values
        axis.tick_params(axis="y", labelsize=6.5)
        axis.set_xlim(0, 100)
        axis.set_title(f"n = {n}")
    figure.subplots_adjust(wspace=0.75, left=0.1)
    _finish(figure, axes, profile, "percent of the waiting warps")
    return Drawing(
        "stalls",
        f"Why warps wait, {dtype}, {size}",
        "Warps that cannot issue, by reason. Long scoreboard: data from L2 or "
        "DRAM; short scoreboard and MIO throttle: shuffles and shared memory; math pipe throttle: a busy "
        "arithmetic pipe; not selected: ready, another warp was issued.",
        figure,
    )


def draw_all(profile: Profile) -> list[Drawing]:
    with matplotlib.rc_context(figures.STYLE):
        drawn = [draw_roofline(profile), draw_costs(profile), draw_occupancy(profile), draw_stalls(profile)]
    return [drawing for drawing in drawn if drawing]

