"""The claims of the HadaCore paper (arXiv 2412.08832) as an experiment: its tables, ranges and remarks.

The paper gives time fast-hadamard-transform / time HadaCore over row length (columns) and number of elements
(rows). Here `warp_shuffle` stands for the first, `hadacore_published` (the paper's launch configurations) and
`hadacore` (configurations chosen by measurement) for the second. Everything is mode `replay` in place, as the
paper measures. The text is generated from the data: it says what was measured, whatever that is, and calls a
cause a hypothesis where times alone do not prove it.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass

import numpy as np
import pandas as pd

from . import baselines, tables
from .load import ELEMENT_BYTES, Device, ResultsError

BASE = "warp_shuffle"
PUBLISHED = "hadacore_published"
TUNED = "hadacore"
COMPARED = (PUBLISHED, TUNED)
DTYPES = ("f16", "bf16")
PAPER_NS = tuple(1 << k for k in range(7, 16))
SMALL_NS = tuple(1 << k for k in range(1, 7))
PAPER_ELEMENTS = tuple(1 << k for k in range(9, 26))
ELEMENTS = (*PAPER_ELEMENTS, 1 << 26, 1 << 28)
# Appendix-level claims of the paper, from its abstract: device, usual range, peak.
CLAIMS = (("H100", 1.0, 1.3, 3.6), ("A100", 1.1, 1.4, 3.5))
WANTED_MEAN = 1.15  # geometric mean of hadacore over hadacore_published, n >= 128
FEW = tuple(e for e in PAPER_ELEMENTS if e <= 1 << 15)
MANY = tuple(e for e in PAPER_ELEMENTS if e >= 1 << 21)
NO_ROW = "–"
READINGS = ("same launch", "spreads overlap", "within scatter", "slower")  # of a point that is slower
TEXT_COLUMNS = ("", "dtype", "variant", "reading")  # headers of columns that hold no numbers


@dataclass(frozen=True)
class Block:
    """A piece of the document: a heading, a paragraph, or a table with a caption in `text`."""

    kind: str  # "heading", "paragraph" or "table"
    text: str
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def heading(text: str) -> Block:
    return Block("heading", text)


def paragraph(text: str) -> Block:
    return Block("paragraph", text)


# ---------------------------------------------------------------------------------------------------- data


def points(device: Device, *, layout: str = "in place", mode: str = "replay") -> pd.DataFrame:
    """Rows of the results that are points of the tables: three variants, f16 and bf16, any status."""
    r = device.results
    wanted = (r["memory"] == "device") & (r["layout"] == layout) & (r["mode"] == mode)
    wanted &= r["variant"].isin((BASE, *COMPARED)) & r["dtype"].isin(DTYPES)
    return r[wanted & r["n"].isin((*SMALL_NS, *PAPER_NS)) & r["elements"].isin(ELEMENTS)]


def ratios(
    rows: pd.DataFrame, base: str, variant: str, base_rows: pd.DataFrame | None = None
) -> pd.DataFrame:
    """dtype, n, elements, ratio = time of `base` / time of `variant`, and the columns of both (_base, _own).

    Only where both have a time. `base_rows`: where the base is taken from, when not from `rows`.
    """
    key = ["dtype", "n", "elements"]
    values = [*key, "time_us", "time_min_us", "time_max_us", "fraction_of_limit", "settings"]
    base_rows = rows if base_rows is None else base_rows
    own = rows[(rows["variant"] == variant) & (rows["status"] == "ok")][values]
    other = base_rows[(base_rows["variant"] == base) & (base_rows["status"] == "ok")][values]
    both = other.merge(own, on=key, suffixes=("_base", "_own"))
    both["ratio"] = both["time_us_base"] / both["time_us_own"]
    return both.sort_values(key, key=tables.display_rank, ignore_index=True)


def in_paper(table: pd.DataFrame) -> pd.DataFrame:
    """The rows that lie on the paper's own grid: n = 2^7..2^15, 2^9..2^25 elements."""
    return table[table["n"].isin(PAPER_NS) & table["elements"].isin(PAPER_ELEMENTS)]


def grid_size(ns=PAPER_NS, elements=PAPER_ELEMENTS) -> int:
    """Points that hold at least one row."""
    return sum(e >= n for n in ns for e in elements)


def geometric_mean(values) -> float:
    values = np.asarray(values, float)
    return float(np.exp(np.log(values).mean())) if len(values) else float("nan")


def covers_paper(device: Device) -> bool:
    """Whether at least half of the paper's grid was measured for some dtype: what the report asks for."""
    rows = points(device)
    counts = [in_paper(ratios(rows, BASE, v))["dtype"].value_counts() for v in COMPARED]
    return any((2 * count >= grid_size()).any() for count in counts)


def same_launch(a: str, b: str) -> bool:
    """Whether two `settings` describe the same kernel and launch: equal but for the table's name."""
    try:
        first, second = json.loads(a), json.loads(b)
    except ValueError:
        return False
    if not isinstance(first, dict) or not isinstance(second, dict):
        return False
    first.pop("config", None), second.pop("config", None)
    return bool(first) and first == second


def tuned_over_published(rows: pd.DataFrame) -> pd.DataFrame:
    """`ratios` of hadacore over hadacore_published with `same` (same launch) and `reading` of slower points.

    reading: "" where hadacore is not slower; "same launch", when the two differ in name only, so that the
    difference is an error of measurement; "spreads overlap", when the fastest replay of hadacore is not
    behind the slowest one of hadacore_published; "within scatter", when it is behind by no more than
    `scatter`; else "slower".
    """
    table = ratios(rows, PUBLISHED, TUNED)
    table["same"] = [
        same_launch(a, b) for a, b in zip(table["settings_base"], table["settings_own"], strict=True)
    ]
    overlap = table["time_min_us_own"] <= table["time_max_us_base"]
    cases = [table["ratio"] >= 1, table["same"], overlap, table["ratio"] >= scatter(table)]
    table["reading"] = np.select(cases, ["", *READINGS[:3]], READINGS[3])
    return table


def scatter(table: pd.DataFrame) -> float:
    """The ratio below which 5 % of the points with the same launch fall, whose true ratio is 1; 1 if few."""
    same = table.loc[table["same"], "ratio"]
    return min(1.0, float(np.percentile(same, 5))) if len(same) >= 20 else 1.0


def setting(rows: pd.DataFrame, variant: str, dtype: str, n: int, name: str):
    """A recorded setting that all rows of `variant` at this dtype and n agree on, else None."""
    part = rows[(rows["variant"] == variant) & (rows["dtype"] == dtype) & (rows["n"] == n)]
    found = set()
    for text in part.loc[part["status"] == "ok", "settings"]:
        try:
            found.add(json.loads(text).get(name))
        except (ValueError, AttributeError):
            return None
    return found.pop() if len(found) == 1 else None


# --------------------------------------------------------------------------------------------------- words


def power(value: int) -> str:
    """2^25 for 33554432."""
    return f"2^{value.bit_length() - 1}"


def span(values) -> str:
    values = sorted(values)
    return power(values[0]) if len(values) == 1 else f"{power(values[0])} to {power(values[-1])}"


def number(value: float, digits: int = 2) -> str:
    return f"{value:.{digits}f}" if np.isfinite(value) else "not measured"


def at(row) -> str:
    return f"n = {row.n}, {power(row.elements)} elements"


def joined(parts) -> str:
    parts = list(parts)
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def position(value: float, neighbours) -> str:
    """Where a value lies among its neighbours, with 1 % of tolerance."""
    if value < 0.99 * min(neighbours):
        return "lower than"
    if value > 1.01 * max(neighbours):
        return "higher than"
    return "within the range (or 1 % of it) of"


def means(table: pd.DataFrame, ns, elements) -> dict[int, float]:
    """Geometric mean of `ratio` for each n over the element counts that were measured for all of them."""
    wide = table[table["elements"].isin(elements)].pivot(index="elements", columns="n", values="ratio")
    if not set(ns) <= set(wide.columns):
        return {}
    wide = wide[list(ns)].dropna()
    return {n: geometric_mean(wide[n]) for n in ns} if len(wide) else {}


def common_elements(table: pd.DataFrame, ns, elements) -> list[int]:
    sets = [set(table.loc[(table["n"] == n) & table["elements"].isin(elements), "elements"]) for n in ns]
    return sorted(set.intersection(*sets))


def time_step(table: pd.DataFrame, column: str, n: int, elements) -> float:
    """Geometric mean of time at 2n / time at n over common element counts."""
    wide = table[table["elements"].isin(elements)].pivot(index="elements", columns="n", values=column)
    if not {n, 2 * n} <= set(wide.columns):
        return float("nan")
    return geometric_mean((wide[2 * n] / wide[n]).dropna())


# ----------------------------------------------------------------------------------------- paper's tables


class Gaps:
    """What stands in a cell without a ratio, and the legend of what was met."""

    def __init__(self, device: Device, rows: pd.DataFrame):
        key = ["variant", "dtype", "n", "elements"]
        self.status = rows.set_index(key)["status"].to_dict()
        bad = rows[rows["status"] != "ok"]
        self.message = bad.set_index(key)["message"].to_dict()
        refused = device.unsupported[device.unsupported["layout"].str.startswith("in place")]
        self.reason = refused.drop_duplicates(key).set_index(key)["reason"].to_dict()
        self.legend: dict[str, int] = {}

    def cell(self, variants, dtype: str, n: int, elements: int) -> str:
        if elements < n:
            return NO_ROW
        word, line = "absent", ""
        for variant in variants:
            key = (variant, dtype, n, elements)
            status = self.status.get(key)
            if status == "ok":
                continue
            if status is not None:
                word, line = status, f"{status}: {variant}: {self.message.get(key) or 'no message'}"
            elif key in self.reason:
                word, line = "refused", f"refused: {variant}: {self.reason[key]}"
            else:
                word, line = "absent", f"absent: not measured for {variant}"
            break
        self.legend[line] = self.legend.get(line, 0) + 1
        return word

    def words(self) -> str:
        seen = [
            f"{line} ({count} {'cell' if count == 1 else 'cells'})" for line, count in self.legend.items()
        ]
        return f"{NO_ROW}: fewer elements than one row" + "".join(f"; {line}" for line in seen) + "."


def ratio_table(device: Device, rows: pd.DataFrame, variant: str, dtype: str, ns) -> list[Block]:
    """One table in the form of the paper's appendix, and the legend of its gaps. Empty when nothing is "
    "there."""
    table = ratios(rows, BASE, variant)
    table = table[(table["dtype"] == dtype) & table["n"].isin(ns)]
    if table.empty:
        return []
    value = table.set_index(["elements", "n"])["ratio"].to_dict()
    gaps = Gaps(device, rows)
    body = [
        (
            f"{power(e)} ({tables.binary(e)})",
            *(
                number(value[e, n]) if (e, n) in value else gaps.cell((BASE, variant), dtype, n, e)
                for n in ns
            ),
        )
        for e in ELEMENTS
    ]
    caption = f"{dtype}: time {BASE} / time {variant}, n = {ns[0]} to {ns[-1]}"
    blocks = [Block("table", caption, ("elements", *map(str, ns)), tuple(body))]
    return [*blocks, paragraph(gaps.words())]


# ------------------------------------------------------------------------------------------------- summary


def _summary_row(name: str, dtype: str, table: pd.DataFrame, coverage: str) -> tuple[str, ...]:
    r = table["ratio"].astype(float)
    low, middle, high = np.percentile(r, (10, 50, 90))
    least, most = (next(table.loc[[i]].itertuples()) for i in (r.idxmin(), r.idxmax()))
    return (
        name,
        dtype,
        coverage,
        f"{low:.2f} to {high:.2f}",
        number(middle),
        number(geometric_mean(r)),
        f"{least.ratio:.2f} ({at(least)})",
        f"{most.ratio:.2f} ({at(most)})",
    )


def published_here() -> dict[str, pd.DataFrame]:
    """Per dtype: the two published kernels against each other on an H200, on the paper's grid."""
    found = {}
    for dtype in DTYPES:
        table = baselines.published_speedups(dtype, "replay").rename(columns={"speedup": "ratio"})
        found[dtype] = in_paper(table).reset_index(drop=True)
    return found


def summary_blocks(rows: pd.DataFrame) -> list[Block]:
    """The published ranges beside the measured ones, over the paper's own grid."""
    body: list[tuple[str, ...]] = [
        (f"paper, {gpu}", "f16", "not given", f"{low:.1f} to {high:.1f} (no percentiles given)", "", "", "",
         f"{peak:.1f}")
        for gpu, low, high, peak in CLAIMS
    ]  # fmt: skip
    sentences = []
    for variant in COMPARED:
        table = in_paper(ratios(rows, BASE, variant))
        for dtype in DTYPES:
            part = table[table["dtype"] == dtype]
            if part.empty:
                continue
            body.append(_summary_row(variant, dtype, part, f"{len(part)} of {grid_size()}"))
            sentences.append(_range_sentence(variant, dtype, part))
    here = in_paper(ratios(rows, BASE, PUBLISHED))
    for dtype, known in published_here().items():
        part = here[here["dtype"] == dtype].merge(known[["n", "elements"]], on=["n", "elements"])
        known = known.merge(part[["n", "elements"]], on=["n", "elements"])
        if len(part):
            body.append(_summary_row("the published kernels, H200", dtype, known, str(len(known))))
            body.append(_summary_row(f"{PUBLISHED} at these points", dtype, part, str(len(part))))
    header = (
        "",
        "dtype",
        "points",
        "10th to 90th percentile",
        "median",
        "geometric mean",
        "least",
        "greatest",
    )
    caption = (
        f"Ratio to {BASE}, in place, replay, over the paper's grid: n = 2^7 to 2^15, 2^9 to 2^25 elements"
    )
    words = (
        "The paper gives a usual range and a peak and does not say which share of the points the range "
        "covers; "
        "the 10th to 90th percentile is the reading taken here. They are read as f16; of bf16 the paper "
        "says that "
        "the speed-ups are similar. Its GPUs are an H100 and an A100, and it compares two published "
        "kernels, this "
        "table two variants of this project. The last rows, where present, are those published kernels, "
        "measured "
        "on an H200, and the variants at the same points."
    )
    return [
        heading("Published and measured ranges"),
        Block("table", caption, header, tuple(body)),
        paragraph(words),
        *map(paragraph, sentences),
    ]


def _range_sentence(variant: str, dtype: str, part: pd.DataFrame) -> str:
    shares = [
        f"{100 * part['ratio'].between(low, high).mean():.0f} % in {low:.1f} to {high:.1f} ({gpu})"
        for gpu, low, high, _ in CLAIMS
    ]
    slower = int((part["ratio"] < 1).sum())
    return (
        f"{dtype}, {variant}: of {len(part)} points {joined(shares)}; below 1: {slower}; above the "
        f"paper's peak of {CLAIMS[0][3]} (H100): {int((part['ratio'] > CLAIMS[0][3]).sum())}."
    )


# ------------------------------------------------------------------------------- tuned against published


def tuned_blocks(rows: pd.DataFrame) -> list[Block]:
    """hadacore over hadacore_published: mean, worst point, and every slower point with its spread."""
    table = tuned_over_published(rows)
    title = heading(f"{TUNED} (tuned) over {PUBLISHED}")
    if table.empty:
        return [title, paragraph("The two have no point in common in mode replay in place.")]
    large = table[table["n"].isin(PAPER_NS)]
    body = []
    for dtype, part in [*((d, large[large["dtype"] == d]) for d in DTYPES), ("both", large)]:
        if part.empty:
            continue
        worst = next(part.loc[[part["ratio"].idxmin()]].itertuples())
        body.append(
            (
                dtype,
                f"{len(part)} of {grid_size(elements=ELEMENTS) * (2 if dtype == 'both' else 1)}",
                number(geometric_mean(in_paper(part)["ratio"]), 3),
                number(geometric_mean(part["ratio"]), 3),
                f"{worst.ratio:.4f} ({worst.dtype}, {at(worst)})",
                str(int((part["ratio"] < 1).sum())),
                str(int((part["reading"] == "slower").sum())),
            )
        )
    header = (
        "dtype", "points", "geometric mean, paper's grid", "geometric mean, all points", "worst point",
        "slower", "slower beyond noise",
    )  # fmt: skip
    caption = f"time {PUBLISHED} / time {TUNED}, n = 128 to 32768, 2^9 to 2^26 and 2^28 elements"
    blocks = [title, Block("table", caption, header, tuple(body))] if body else [title]
    return [*blocks, paragraph(_tuned_verdict(table, large)), *_slower_blocks(table)]


def _tuned_verdict(table: pd.DataFrame, large: pd.DataFrame) -> str:
    slower = table[table["ratio"] < 1]
    counts = slower["reading"].value_counts()
    if slower.empty:
        first = f"Never slower at a grid point: held at all {len(table)} measured points (n = 2 and up)."
    else:
        parts = [f"{r} {counts.get(r, 0)}" for r in READINGS]
        first = (
            f"Never slower at a grid point: not held to the letter; {len(slower)} of {len(table)} points "
            f"(n = 2 and up; {int(slower['n'].isin(PAPER_NS).sum())} of them with n >= 128) have a ratio "
            "below 1: "
            f"{', '.join(parts)} (the table below explains the words)."
        )
    mean = geometric_mean(large["ratio"])
    second = ""
    if np.isfinite(mean):
        second = (
            f" At least {WANTED_MEAN} in the geometric mean over n >= 128: "
            f"{'held' if mean >= WANTED_MEAN else 'not held'} ({mean:.3f})."
        )
    same = table[table["same"]]["ratio"]
    third = " No point has the same launch configuration in both, so the run has no control of its own."
    if len(same):
        third = (
            f" At {len(same)} points both have the same launch configuration, so the true ratio is 1; "
            "measured "
            f"there: {same.min():.4f} to {same.max():.4f} (5th percentile {np.percentile(same, 5):.4f}), "
            "which is what "
            "repeating a measurement changes in this run."
        )
    missing = grid_size(elements=ELEMENTS) * len(DTYPES) - len(large)
    fourth = f" {missing} points with n >= 128 were not compared." if missing else ""
    return first + second + third + fourth


def _slower_blocks(table: pd.DataFrame) -> list[Block]:
    slower = table[table["ratio"] < 1].sort_values("ratio")
    if slower.empty:
        return []
    body = [
        (
            r.dtype,
            str(r.n),
            power(r.elements),
            f"{r.ratio:.4f}",
            _spread(r.time_us_own, r.time_min_us_own, r.time_max_us_own),
            _spread(r.time_us_base, r.time_min_us_base, r.time_max_us_base),
            r.reading,
        )
        for r in slower.itertuples()
    ]
    header = ("dtype", "n", "elements", "ratio", f"{TUNED} (µs)", f"{PUBLISHED} (µs)", "reading")
    words = (
        "Times are median (least to greatest replay). same launch: the same kernel was timed twice; spreads "
        "overlap: noise within this run could explain it; within scatter: every replay was behind, by no "
        "more than "
        "the 5th percentile of the points with the same launch; slower: by more (or fewer than 20 such "
        "points to "
        "judge by). The spread is that of one process and does not hold what changes from one run to the "
        "next."
    )
    caption = f"Points where {TUNED} is slower than {PUBLISHED}"
    return [Block("table", caption, header, tuple(body)), paragraph(words)]


def _spread(median: float, least: float, greatest: float) -> str:
    return f"{median:.4g} ({least:.4g} to {greatest:.4g})"


# ------------------------------------------------------------------------------------------------- remarks


def _each(rows: pd.DataFrame):
    """(dtype, variant, ratios of that pair) for all that were measured."""
    for dtype in DTYPES:
        for variant in COMPARED:
            table = ratios(rows, BASE, variant)
            table = table[table["dtype"] == dtype]
            if len(table):
                yield dtype, variant, table


def peak_blocks(rows: pd.DataFrame) -> list[Block]:
    """Where the greatest ratio lies, and how near to the limit both kernels are there."""
    sentences = []
    for dtype, variant, table in _each(rows):
        table = in_paper(table)
        if table.empty:
            continue
        top = next(table.loc[[table["ratio"].idxmax()]].itertuples())
        threads = (
            setting(rows, BASE, dtype, top.n, "threads"),
            setting(rows, variant, dtype, top.n, "threads"),
        )
        sentence = (
            f"{dtype}, {variant}: {top.ratio:.2f} at {at(top)}, where {BASE} reaches "
            f"{100 * top.fraction_of_limit_base:.0f} % of the copy limit and {variant} "
            f"{100 * top.fraction_of_limit_own:.0f} %"
        )
        if None not in threads:
            sentence += f", with {threads[0]} and {threads[1]} threads a block"
        sentences.append(paragraph(sentence + "."))
    words = (
        "The paper reports peaks of 3.6 (H100) and 3.5 (A100) and names n = 128 as the case where its "
        "freedom in "
        "block sizes, and so its occupancy, shows most."
    )
    cause = (
        "Hypotheses: with short and many rows, a kernel of one row and few threads a block is bound by the "
        "rate at which blocks start and by the number of resident blocks; with long and few rows there are "
        "fewer blocks than multiprocessors, and the time is the latency of one block. The ratios alone do "
        "not prove it; a profile (resident warps, block launch rate, stalls) would."
    )
    return [heading("The peak"), paragraph(words), *sentences, paragraph(cause)]


def short_rows_blocks(rows: pd.DataFrame) -> list[Block]:
    """n = 512 at few elements against its neighbours."""
    ns = (256, 512, 1024)
    sentences = []
    for dtype, variant, table in _each(rows):
        few = means(table, ns, FEW)
        if not few:
            sentences.append(paragraph(f"{dtype}, {variant}: n = 256, 512 and 1024 share no element count."))
            continue
        counts = common_elements(table, ns, FEW)
        part = table[(table["n"] == 512) & table["elements"].isin(counts)]["ratio"]
        many = table[(table["n"] == 512) & table["elements"].isin(MANY)]
        later = "at 2^21 to 2^25 elements it was not measured"
        if len(many):
            later = f"at {span(many['elements'])} elements its mean is {geometric_mean(many['ratio']):.2f}"
        sentences.append(
            paragraph(
                f"{dtype}, {variant}: over {span(counts)} elements the ratio at n = 512 is {few[512]:.2f} "
                "in the "
                f"geometric mean ({part.min():.2f} to {part.max():.2f}), "
                f"{position(few[512], (few[256], few[1024]))} "
                f"its neighbours (n = 256: {few[256]:.2f}, n = 1024: {few[1024]:.2f}); {later}. From n = "
                "256 to "
                f"512 the time at few elements changes by a factor of "
                f"{number(time_step(table, 'time_us_base', 256, counts), 3)} for {BASE} and of "
                f"{number(time_step(table, 'time_us_own', 256, counts), 3)} for {variant}."
            )
        )
    words = (
        "The paper finds a noticeably worse speed-up at n = 512 with few elements and explains it by the "
        "first "
        "exchange between 256-element fragments (block barrier, shared memory) and by one more full matrix "
        "product where the other kernel adds one butterfly."
    )
    return [
        heading("n = 512 at few elements"),
        paragraph(words),
        *sentences,
        paragraph(_short_rows_cause(rows)),
    ]


def _short_rows_cause(rows: pd.DataFrame) -> str:
    facts = []
    for variant in (BASE, *COMPARED):
        shared = setting(rows, variant, "f16", 512, "shared_bytes")
        stages = [setting(rows, variant, "f16", n, "stages") for n in (256, 512)]
        if shared is not None:
            staged = f", {stages[0]} matrix stages at n = 256 and {stages[1]} at n = 512"
            facts.append(f"{variant} {shared} bytes{staged if None not in stages else ''}")
    text = "Hypotheses, which times alone do not separate: the exchange, the added stage, the launch itself."
    if facts:
        text += (
            f" Shared memory a block at n = 512 as recorded (f16): {'; '.join(facts)}. A kernel with 0 bytes "
            "exchanges nothing through shared memory at that n, so for it the exchange is ruled out as the "
            "cause."
        )
    empty = rows.loc[rows["elements"].isin(FEW), "empty_us"].dropna()
    if len(empty):
        text += (
            f" An empty kernel takes {empty.median():.2f} µs a launch here; ratios of times near it are "
            "drawn "
            "towards 1."
        )
    return text


def stages_blocks(rows: pd.DataFrame) -> list[Block]:
    """n = 8192 against 4096 and what follows it."""
    ns = (2048, 4096, 8192, 16384, 32768)
    wanted = tuple(e for e in PAPER_ELEMENTS if e >= 1 << 15)
    body, sentences = [], []
    for dtype, variant, table in _each(rows):
        mean = means(table, ns, wanted)
        if not mean:
            sentences.append(paragraph(f"{dtype}, {variant}: n = 2048 to 32768 share no element count."))
            continue
        counts = common_elements(table, ns, wanted)
        body.append((dtype, variant, span(counts), *(number(mean[n]) for n in ns)))
        change = 100 * (mean[8192] / mean[4096] - 1)
        step = [time_step(table, f"time_us_{side}", 4096, counts) for side in ("base", "own")]
        after = [mean[n] for n in (8192, 16384, 32768)]
        sentences.append(
            paragraph(
                f"{dtype}, {variant}: the ratio at n = 8192 differs from that at 4096 by {change:+.0f} %; "
                "the time "
                f"changes by a factor of {step[0]:.2f} for {BASE} and of {step[1]:.2f} for {variant}. "
                "Among 8192, "
                f"16384 and 32768, which take equally many stages, the ratio goes from {min(after):.2f} to "
                f"{max(after):.2f}."
            )
        )
    stages = [(n, setting(rows, PUBLISHED, "f16", n, "stages")) for n in ns]
    if all(s is not None for _, s in stages):
        body.append(("f16", "stages recorded", "", *(str(s) for _, s in stages)))
    words = (
        "The paper finds a relatively lower speed-up at 8K, since that takes four matrix stages where 4K "
        "takes "
        "three, while the other kernel adds one butterfly; it also says that from 8K on its reads of "
        "shared memory "
        "are not fully coalesced and that configurations were selected by trial."
    )
    cause = (
        "What differs among 8192, 16384 and 32768 cannot come from the number of stages. Hypotheses for "
        "that part: "
        "shared-memory accesses, registers and rows per multiprocessor, fewer blocks than multiprocessors "
        "at small "
        "sizes; for the step from 4096 to 8192: the fourth stage, and the same three. A profile separates "
        "them, "
        "these times do not."
    )
    header = ("dtype", "variant", "elements", *map(str, ns))
    caption = f"Ratio to {BASE} for each n, geometric mean over the element counts that all five n share"
    shown = [Block("table", caption, header, tuple(body))] if body else []
    return [heading("n = 8K"), paragraph(words), *shown, *sentences, paragraph(cause)]


def in_place_blocks(device: Device, rows: pd.DataFrame) -> list[Block]:
    """16 Mi elements in place: what the L2 does to the ratio."""
    wanted = tuple(e for e in ELEMENTS if e >= 1 << 20)
    curves = {}
    for dtype, variant, table in _each(rows):
        by_size = _means_by_size(table, wanted)
        if by_size:
            curves[dtype, variant] = by_size
    rate = _copy_rates(rows, wanted)
    shown = [e for e in wanted if e in rate or any(e in c for c in curves.values())]
    body = []
    for e in shown:
        size = e * ELEMENT_BYTES["f16"]
        share = f"{100 * size / device.l2_bytes:.0f} %" if device.l2_bytes else "unknown"
        cells = [number(c[e]) if e in c else "absent" for c in curves.values()]
        body.append(
            (power(e), tables.byte_text(size), share, number(rate[e]) if e in rate else "absent", *cells)
        )
    header = ("elements", "tensor", "of the L2", "copy (TB/s)", *(f"{d} {v}" for d, v in curves))
    caption = (
        f"Ratio to {BASE} for each size, geometric mean over the n >= 128 that all sizes share; copy: the "
        "best "
        "one in place"
    )
    words = (
        "The paper reports a noticeable gain at 16 Mi elements on the H100 (8 Mi on the A100) from writing "
        "in place: "
        "32 MiB fit the 50 MB of L2, source and destination together do not. Its text leaves open whether "
        "the "
        "kernel it compares with wrote in place too in the tables; here both do."
    )
    blocks = [heading("16 Mi elements in place"), paragraph(words)]
    if body:
        blocks.append(Block("table", caption, header, tuple(body)))
    blocks += [paragraph(text) for text in _l2_sentences(device, rate)]
    blocks += [paragraph(_size_sentence(d, v, curve)) for (d, v), curve in curves.items()]
    blocks += [paragraph(text) for text in (_other_modes(device), _placement_sentence(device, rows)) if text]
    cause = (
        "Hypotheses: inside the L2 the memory is faster, so differences between the kernels' own work "
        "weigh more "
        "than beyond it, where kernels that keep up are drawn towards the speed of the memory (one that is "
        "limited "
        "by something else stays behind there too). In mode replay a kernel also meets in each launch the "
        "addresses "
        "that it left in the L2; modes alternating and cold weaken or remove that. Hit rates, not times, "
        "would "
        "prove it."
    )
    return [*blocks, paragraph(cause)]


def _means_by_size(table: pd.DataFrame, elements) -> dict[int, float]:
    part = table[table["n"].isin(PAPER_NS) & table["elements"].isin(elements)]
    wide = part.pivot(index="n", columns="elements", values="ratio").dropna()
    return {int(e): geometric_mean(wide[e]) for e in wide.columns} if len(wide) else {}


def _copy_rates(rows: pd.DataFrame, elements) -> dict[int, float]:
    """TB/s (reads and writes) of the copy limit per element count of 16-bit data."""
    part = rows[rows["elements"].isin(elements)].dropna(subset=["limit_us"])
    best = part.groupby("elements")["limit_us"].min()
    return {int(e): 4 * int(e) / us / 1e6 for e, us in best.items()}


def _l2_sentences(device: Device, rate: dict[int, float]) -> list[str]:
    sentences = []
    sizes = sorted(rate)
    pairs = [(a, b) for a, b in itertools.pairwise(sizes) if b == 2 * a]
    if pairs:
        a, b = min(pairs, key=lambda p: rate[p[1]] / rate[p[0]])
        sentences.append(
            f"Of the doublings measured here, the copy rate changes most unfavourably from {power(a)} to "
            f"{power(b)} "
            f"elements: {rate[a]:.2f} to {rate[b]:.2f} TB/s ({100 * (rate[b] / rate[a] - 1):+.0f} %)."
        )
    if device.l2_bytes:
        width = ELEMENT_BYTES["f16"]
        fits = [e for e in ELEMENTS if e * width <= device.l2_bytes < 2 * e * width]
        where = f"only {joined(map(power, fits))} elements do so" if fits else "no size of the grid does so"
        sentences.append(
            f"The L2 of this device has {tables.byte_text(device.l2_bytes)}. By the paper's rule (fits in "
            "place, does "
            f"not fit with a second tensor) {where} here."
        )
    return sentences


def _size_sentence(dtype: str, variant: str, curve: dict[int, float]) -> str:
    middle = 1 << 24
    top = max(curve, key=lambda elements: curve[elements])
    text = f"{dtype}, {variant}: the mean ratio is greatest at {power(top)} elements ({curve[top]:.2f})"
    if middle not in curve:
        return text + "; 2^24 elements were not measured."
    near = {e: curve[e] for e in (middle // 2, 2 * middle) if e in curve}
    text += f"; at 2^24 it is {curve[middle]:.2f}"
    if near:
        values = joined(f"{power(e)}: {value:.2f}" for e, value in near.items())
        text += f", {position(curve[middle], list(near.values()))} its neighbours ({values})"
    return text + "."


def _other_modes(device: Device) -> str:
    """The same means at 2^24 elements where the run has other modes."""
    found = []
    for mode in ("alternating", "cold"):
        rows = points(device, mode=mode)
        for dtype, variant, table in _each(rows):
            part = table[(table["elements"] == 1 << 24) & table["n"].isin(PAPER_NS)]
            if len(part):
                found.append(
                    f"{geometric_mean(part['ratio']):.2f} {mode} ({dtype}, {variant}, {len(part)} n)"
                )
    return f"At 2^24 elements in other modes: {joined(found)}." if found else ""


def _placement_sentence(device: Device, rows: pd.DataFrame) -> str:
    """Out of place over in place, and what comparing unlike placements would give."""
    out = points(device, layout="out of place")
    parts = []
    for e in sorted(set(out["elements"])):
        for dtype in DTYPES:
            mine, other = (t[(t["dtype"] == dtype) & (t["elements"] == e)] for t in (rows, out))
            mine, other = (t[t["n"].isin(PAPER_NS)] for t in (mine, other))
            slow = [geometric_mean(ratios(mine, v, v, base_rows=other)["ratio"]) for v in (BASE, PUBLISHED)]
            unlike = geometric_mean(ratios(mine, BASE, PUBLISHED, base_rows=other)["ratio"])
            if np.isfinite([*slow, unlike]).all():
                parts.append(f"{power(e)} {dtype}: {slow[0]:.2f}, {slow[1]:.2f}, {unlike:.2f}")
    if not parts:
        return (
            "Nothing was measured out of place in mode replay, so this run does not show the gain of "
            "writing in "
            "place."
        )
    missing = "" if (out["elements"] == 1 << 24).any() else " Out of place was not measured at 2^24 elements."
    return (
        f"Time out of place / in place (n >= 128) for {BASE}, for {PUBLISHED}, and {BASE} out of place / "
        f"{PUBLISHED} "
        f"in place: {'; '.join(parts)}.{missing}"
    )


# ------------------------------------------------------------------------------------------------ document


def blocks(device: Device) -> list[Block]:
    """The whole document for one device; ResultsError when no ratio can be formed."""
    rows = points(device)
    if all(ratios(rows, BASE, variant).empty for variant in COMPARED):
        raise ResultsError(
            f"{device.name}: the paper's comparison takes {BASE} and {PUBLISHED} or {TUNED}, in place, "
            "mode replay, "
            "f16 or bf16, at sizes of its grid; no such pair was measured"
        )
    intro = (
        f"Every figure is time {BASE} / time of the other variant (above 1: the tensor-core kernel is "
        "faster), in "
        "mode replay in place, as the paper measures: the same kernel on the same buffer again and again. "
        "That mode "
        "flatters tensors that fit the L2; the modes alternating and cold of the sweep judge those. Each "
        "time is a "
        f"median over replays, checked for correctness first. {BASE} stands for the "
        "fast-hadamard-transform library "
        f"(in place, as in the paper's Appendix B), {PUBLISHED} for HadaCore with the launch "
        "configurations of its "
        f"authors, {TUNED} for the same kernel with configurations chosen by measurement on this project's "
        "GPU."
    )
    document = [paragraph(intro), *summary_blocks(rows), *tuned_blocks(rows)]
    document += [
        *peak_blocks(rows),
        *short_rows_blocks(rows),
        *stages_blocks(rows),
        *in_place_blocks(device, rows),
    ]
    document += table_blocks(device, rows)
    return document


def table_blocks(device: Device, rows: pd.DataFrame) -> list[Block]:
    """The tables of all pairs: the paper's columns first, the shorter rows after them."""
    found = []
    for ns, title in ((PAPER_NS, "Tables over the paper's grid"), (SMALL_NS, "Tables for shorter rows")):
        part = [b for d in DTYPES for v in COMPARED for b in ratio_table(device, rows, v, d, ns)]
        found += [heading(title), *part] if part else []
    return found


def markdown(devices: list[Device]) -> str:
    """The document of every device as Markdown."""
    lines = ["# The HadaCore paper's claims, measured", ""]
    for device in devices:
        lines += [f"Device: {device.name}. {device.label}", ""]
        for block in blocks(device):
            lines += [*_markdown_lines(block), ""]
    return "\n".join(lines)


def _markdown_lines(block: Block) -> list[str]:
    if block.kind == "heading":
        return [f"## {block.text}"]
    if block.kind == "paragraph":
        return [_escaped(block.text)]
    rule = "| " + " | ".join("---" for _ in block.header) + " |"
    rows = ["| " + " | ".join(map(_escaped, row)) + " |" for row in block.rows]
    return [f"Table: {_escaped(block.text)}", "", "| " + " | ".join(block.header) + " |", rule, *rows]


def _escaped(text: str) -> str:
    """Characters that Markdown would take for markup: table bars and emphasis."""
    return text.replace("|", "\\|").replace("*", "\\*").replace("\n", " ")
