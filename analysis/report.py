"""One self-contained HTML page: the answer first, then everything to look at, filter and compare. It loads nothing from outside.

Sections are declared here: what they show (charts, tables) and when (their data exist). `templates/report.html.j2` lays them out,
`templates/report.js` draws them from the data, which lie in the page once as JSON.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from markupsafe import Markup

from . import accuracy, charts, profile, schema, tables
from .charts import Chart, by_style, category, chart, rule
from .load import DTYPES, ELEMENT_BYTES, MODES, Device, Folder, ResultsError, newest, runs, timed_on_gpu
from .tables import byte_text

TEMPLATES = Path(__file__).parent / "templates"
LARGEST_PAGE = 4 << 20  # bytes
MODE_WORDS = {
    "alternating": "each launch is preceded by a copy of the same buffer, whose own share is subtracted: honest for tensors that fit the L2",
    "replay": "the same kernel on the same buffer again and again, as published comparisons do; it flatters tensors that fit the L2",
    "replay_pdl": "the same again and again by programmatic dependent launch: it begins while the launch before still runs",
    "cold": "rotating over buffers of more than four times the L2: every launch reads from DRAM",
    "host": "the CPU, data in host memory; the limit is the best copy on the same CPU",
}
FAMILY_WORDS = {"transform": "transforms, n = 2^k", "width": "any row length, n = m 2^k", "encoded": "quantized output"}


@dataclass(frozen=True)
class Table:
    """A sortable table: columns are (field, title, format of templates/report.js)."""

    id: str
    title: str
    words: str
    columns: Sequence[tuple[str, str, str]]
    frame: pd.DataFrame


@dataclass
class Section:
    """A part of the page; `parts` are charts and tables in order."""

    id: str
    title: str
    words: str = ""
    parts: list[Chart | Table] = field(default_factory=list)


# ------------------------------------------------------------------------------------------------------------- the data


def pack(frame: pd.DataFrame) -> dict[str, Any]:
    """Columns of a data frame for the page: texts as levels and codes, numbers with five digits, null for none."""
    packed: dict[str, Any] = {}
    for name in frame:
        column = frame[name]
        if column.dtype.kind in "iu":
            packed[str(name)] = [int(v) for v in column]
        elif column.dtype.kind == "f":
            packed[str(name)] = [_number(v) for v in column]
        elif column.dtype.kind == "b":
            packed[str(name)] = [int(v) for v in column]
        else:
            codes, levels = pd.factorize(column.astype(str))
            packed[str(name)] = {"levels": list(levels), "codes": codes.tolist()}
    return packed


def unpacked(frame: pd.DataFrame) -> list[dict]:
    """The rows as the page's script sees them."""
    columns = {name: v if isinstance(v, list) else [v["levels"][code] for code in v["codes"]] for name, v in pack(frame).items()}
    return [dict(zip(columns, row)) for row in zip(*columns.values())]


def _number(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.5g}")
    return int(rounded) if rounded.is_integer() else rounded


RESULT_COLUMNS = ("variant", "operator", "encoding", "family", "dtype", "n", "rows", "layout", "mode", "status", "time_us", "time_min_us",
                  "time_max_us", "limit_us", "limit_kernel", "useful_bytes", "rel_l2", "predicted_rel_l2", "settings", "message", "picked")  # fmt: skip


def explored(device: Device) -> pd.DataFrame:
    """What the explorer shows: the results, and the published kernels where they were measured on the same GPU."""
    frame = device.results[list(RESULT_COLUMNS)]
    if tables.PUBLISHED_GPU not in device.name or frame.empty:
        return frame
    other = tables.published()
    other = other[other["dtype"].isin(frame["dtype"]) & other["mode"].isin(frame["mode"])]
    errors = tables.published_errors()
    rows = pd.DataFrame(
        {
            "variant": other["method"].map(tables.PUBLISHED) + ", published", "operator": other["n"].astype(str), "encoding": "",
            "family": "transform", "dtype": other["dtype"], "n": other["n"], "rows": other["elements"] // other["n"], "layout": "in place",
            "mode": other["mode"], "status": "published", "time_us": other["time_us"], "time_min_us": math.nan, "time_max_us": math.nan,
            "limit_us": other["copy_us"], "limit_kernel": "one-shot copies", "predicted_rel_l2": math.nan,
            "useful_bytes": 2 * other["elements"] * other["dtype"].map(ELEMENT_BYTES), "settings": "", "message": "", "picked": "",
            "rel_l2": [errors.get((r.method, r.dtype, r.n), math.nan) for r in other.itertuples()],
        }
    )  # fmt: skip
    return pd.concat([frame, rows[list(RESULT_COLUMNS)]], ignore_index=True)


def payload(devices: list[Device], sections: list[Section]) -> dict[str, Any]:
    """All data of the page."""
    shown = [d for d in devices if len(d.results)]
    frames = [explored(d) for d in shown]
    names = tables.ordered([v for f in frames for v in f["variant"]], [v for d in shown for v in d.variants])
    parts = [part for section in sections for part in section.parts]
    first = answer(devices)
    return {
        "start": shown.index(first.device) if first else 0,
        "runs": [
            {"name": d.short, "l2_bytes": d.l2_bytes, "noise": float(d.results["noise"].max()), "results": pack(f)} for d, f in zip(shown, frames)
        ],
        "styles": charts.styles(names),
        "modes": list(MODES), "dtypes": list(DTYPES), "families": FAMILY_WORDS, "own": tables.OWN,
        "ideal": {dtype: tables.ideal_error(dtype) for dtype in DTYPES}, "bytes": ELEMENT_BYTES,
        "preferred": tables.PREFERRED_MODES, "in_l2": tables.IN_L2,
        "charts": {p.id: {"title": p.title, "spec": p.spec, "data": pack(p.frame)} for p in parts if isinstance(p, Chart)},
        "tables": {p.id: {"title": p.title, "columns": [list(c) for c in p.columns], "data": pack(p.frame[[c[0] for c in p.columns]])}
                   for p in parts if isinstance(p, Table)},
    }  # fmt: skip


# --------------------------------------------------------------------------------------------------------- the sections


def sections_of(devices: list[Device]) -> list[Section]:
    """Every section that has data, in the order of the page. `devices`: runs, newest first."""
    found: list[Section] = []
    for build in (published_section, family_sections, few_rows_section, runs_section, other_tables, accuracy_section, profile_section,
                  checks_section):  # fmt: skip
        for section in build(devices):
            section.parts = [part for part in section.parts if len(part.frame)]
            found += [section] if section.parts else []
    return found


def _each(devices: list[Device], wanted: Callable[[Device], bool]) -> Iterator[tuple[str, str, Device]]:
    """Suffix of ids and titles for every run that has what is wanted; only the newest one per device is shown."""
    seen: set[str] = set()
    for device in devices:
        if device.name not in seen and wanted(device):
            seen.add(device.name)
            yield f"-{len(seen)}" if len(seen) > 1 else "", f" ({device.short})", device


def _has_family(family: str, device: Device) -> bool:
    return bool((device.results["family"] == family).any())


def _has_rows(table: str, device: Device) -> bool:
    return table in device.tables and len(device.tables[table]) > 0


def published_section(devices: list[Device]) -> Iterator[Section]:
    section = Section("published", "Published kernels", "Times of the published kernels are those of one H200; "
                      "“×” is their time over that of fwht::transform, both in mode replay and in place.")  # fmt: skip
    device = newest(devices, tables.covers_published) or newest(devices, lambda d: len(tables.gains(d)) > 0)
    if device:
        section.parts.append(charts.speed(device))
        section.parts.append(charts.error_against_speed(device))
        both = tables.beside_published(device)
        both = both[both["mode"] == "replay"].assign(method=both["method"].map(tables.PUBLISHED))
        columns = [("method", "kernel", "text"), ("dtype", "dtype", "text"), ("n", "n", "int"), ("elements", "elements", "int"),
                   ("time_us", "fwht", "us"), ("published_us", "published", "us"), ("ratio", "×", "fixed"),
                   ("fraction_of_limit", "of a copy", "percent"), ("published_fraction", "published, of a copy", "percent")]  # fmt: skip
        section.parts.append(Table("beside-published", "Every common size", f"{device.short}, in place, mode replay.", columns, both))
        columns = [("what", "time ratio", "text"), ("dtype", "dtype", "text"), ("points", "points", "int"), ("low", "10th percentile", "fixed"),
                   ("median", "median", "fixed"), ("high", "90th percentile", "fixed"), ("mean", "geometric mean", "fixed"),
                   ("least", "least", "fixed"), ("greatest", "greatest", "fixed")]  # fmt: skip
        words = ("The HadaCore paper (arXiv 2412.08832) gives fast-hadamard-transform over HadaCore as 1.0 to 1.3, at most 3.6, on an H100, and 1.1 to "
                 "1.4, at most 3.5, on an A100. The same ratio over its grid, n = 2^7 to 2^15 and 2^9 to 2^25 elements; `warp_shuffle` has the "
                 "structure of the first kernel, `hadacore_published` the launch shapes of the second.")  # fmt: skip
        section.parts.append(Table("paper", "The paper's claim", words, columns, tables.published_speedups(device)))
    yield section


BEST_COLUMNS = [("dtype", "dtype", "text"), ("mode", "mode", "text"), ("layout", "layout", "text"), ("operator", "operator", "text"),
                ("n", "n", "int"), ("rows", "rows", "int"), ("variant", "best", "text"), ("ties", "as fast", "text"), ("time_us", "time", "us"),
                ("fraction_of_limit", "of a copy", "percent"), ("over_ideal", "error / one rounding", "fixed"),
                ("error_ratio", "error / predicted", "fixed")]  # fmt: skip


def family_sections(devices: list[Device]) -> Iterator[Section]:
    """The best variant of every problem, a section per family that was measured."""
    for family, title in (("transform", "Best variants"), ("width", "Any row length"), ("encoded", "Quantized output")):
        section = Section(
            f"best-{family}",
            title,
            "The fastest correct variant; where several are as fast within what repeated measurements differ by, the most "
            "exact one, and “as fast” names the others.",
        )
        for mark, suffix, device in _each(devices, partial(_has_family, family)):
            frame = tables.best(device.results[device.results["family"] == family])
            frame = frame.assign(over_ideal=frame["rel_l2"] / frame["dtype"].map(tables.ideal_error).astype(float))
            columns = BEST_COLUMNS if family != "encoded" else [("encoding", "encoding", "text"), *BEST_COLUMNS[:-2], ("rel_l2", "relative error", "number")]
            if family == "width":
                wide = frame[(frame["layout"] == "in place") & frame["mode"].isin(["replay", "host"])]
                encoding = {
                    "x": charts.field("n", "row length n", log=2, axis_format="d"),
                    "y": charts.field("fraction_of_limit", "of a copy", axis_format="%", zero=True),
                } | by_style("variant", tables.ordered(wide["variant"], device.variants), ("color", "shape"))
                kept = wide[["variant", "dtype", "operator", "n", "rows", "mode", "time_us", "fraction_of_limit"]]
                section.parts.append(
                    chart(
                        f"widths{mark}",
                        f"Share of a copy by row length{suffix}",
                        "A point per problem.",
                        kept,
                        {"type": "point", "filled": True, "size": 50},
                        encoding,
                        facet="dtype",
                    )
                )
            section.parts.append(Table(f"best-{family}{mark}", f"{FAMILY_WORDS[family]}{suffix}", "", columns, frame))
        yield section


def few_rows_section(devices: list[Device]) -> Iterator[Section]:
    section = Section(
        "few-rows",
        "A few rows",
        "fwht::transform for the row counts of decoding, in place: per launch in mode replay, and by programmatic dependent launch (PDL).",
    )
    for mark, suffix, device in _each(devices, lambda d: any(len(tables.few_rows(d, dtype)) for dtype in DTYPES)):
        frame = pd.concat([tables.few_rows(device, dtype).assign(dtype=dtype) for dtype in DTYPES], ignore_index=True)
        columns = [("dtype", "dtype", "text"), ("n", "n", "int"), ("rows", "rows", "int"), ("time_us", "time", "us"), ("pdl_us", "with PDL", "us"),
                   ("share", "of a copy", "percent")]  # fmt: skip
        lines = frame.assign(rows=frame["rows"].map(lambda r: f"{r} row{'s' * (r > 1)}"))
        encoding = {
            "x": charts.field("n", "row length n", log=2, axis_format="d"),
            "y": charts.field("time_us", "µs", zero=True),
            "color": category("rows", None, sort=None),
            "shape": category("rows", None, sort=None),
            "strokeDash": category("rows", None, sort=None),
        }
        section.parts.append(chart(f"few-rows{mark}", f"Time of a launch{suffix}", "", lines, "line", encoding, facet="dtype"))
        section.parts.append(Table(f"few-rows-table{mark}", f"A few rows{suffix}", "", columns, frame))
    yield section


def runs_section(devices: list[Device]) -> Iterator[Section]:
    """Several runs: each beside the newest, and the history of a device over commits."""
    section = Section(
        "runs",
        "Run against run",
        "Speed-up: time of the older run over that of the newest. “Faster” and “slower” count problems that differ by more than repeated measurements do.",
    )
    timed = [d for d in devices if len(d.results)]
    columns = [("variant", "variant", "text"), ("dtype", "dtype", "text"), ("mode", "mode", "text"), ("problems", "problems", "int"),
               ("geometric_mean", "speed-up", "fixed3"), ("least", "least", "fixed3"), ("greatest", "greatest", "fixed3"), ("faster", "faster", "int"),
               ("slower", "slower", "int")]  # fmt: skip
    for i, other in enumerate(timed[1:], 1):
        try:
            both = tables.compare(other, timed[0])
        except ResultsError:
            continue
        ratio = "shares of the limit compare, times do not" if other.name != timed[0].name else ""
        section.parts.append(Table(f"run-{i}", f"{timed[0].short} over {other.short}", ratio, columns, tables.compare_summary(both)))
    for name in dict.fromkeys(d.name for d in timed):
        line = [d for d in reversed(timed) if d.name == name]
        frame = tables.history(line) if len(line) > 1 else pd.DataFrame()
        if len(frame):
            encoding = {"x": {"field": "when", "type": "ordinal", "title": "run (UTC)"}, "y": charts.field("share", "share of a copy", axis_format="%")}
            encoding |= by_style("variant", tables.ordered(frame["variant"], line[-1].variants))
            frame = frame.assign(panel=frame["dtype"] + ", " + frame["mode"])
            section.parts.append(chart(f"history-{len(section.parts)}", f"History on {name}", "Geometric mean over the problems that all runs measured.",
                                       frame, "line", encoding, facet="panel"))  # fmt: skip
    yield section


def other_tables(devices: list[Device]) -> Iterator[Section]:
    """Tables of programs that have no section of their own, as their schema.json declares them."""
    known = set(accuracy.TABLES) | {"results.csv", "limits.csv", "unsupported.csv", "launches.csv", "not_profiled.csv", "tests.csv"}
    names = dict.fromkeys(n for d in devices for n in d.tables if n not in known and len(d.tables[n]))
    for name in names:
        section = Section(f"table-{Path(name).stem}", Path(name).stem.replace("_", " ").capitalize())
        for mark, suffix, device in _each(devices, partial(_has_rows, name)):
            declared = next(f.schema[name] for f in reversed(device.folders) if name in f.schema)
            columns = [(c.name, c.name + (f" ({c.unit})" if c.unit and c.unit != "us" else ""), _format_of(c)) for c in declared.columns if c.type != "json"]
            frame = device.tables[name]
            section.parts += _generic_charts(Path(name).stem, mark, suffix, declared, frame)
            section.parts.append(Table(f"{Path(name).stem}{mark}", f"{name}{suffix}", "", columns, frame))
        yield section


def _format_of(column: schema.Column) -> str:
    if column.name.startswith("fraction"):
        return "percent"
    return {"us": "us", "bytes": "bytes"}.get(column.unit, {"integer": "int", "number": "number"}.get(column.type, "text"))


def _generic_charts(stem: str, mark: str, suffix: str, declared: schema.Table, frame: pd.DataFrame) -> list[Chart | Table]:
    """Share of the limit, or time, over the key number that varies most, where a table has variants and times."""
    names = declared.names
    value = next((c for c in ("fraction_of_limit", "time_us") if c in names), "")
    numbers = [c.name for c in declared.columns if c.key and c.is_number]
    if "variant" not in names or not value or not numbers:
        return []
    x = max(numbers, key=lambda c: frame[c].nunique())
    rows = frame.dropna(subset=[value])[["variant", *[c.name for c in declared.columns if c.key and c.name != "variant"], value]]
    encoding = {"x": charts.field(x, x, log=2), "y": charts.field(value, value, zero=True)} | by_style(
        "variant", dict.fromkeys(rows["variant"]), ("color", "shape")
    )
    return [chart(f"{stem}-chart{mark}", f"{value} by {x}{suffix}", "", rows, {"type": "point", "filled": True, "size": 45}, encoding, width="container")]


def accuracy_section(devices: list[Device]) -> Iterator[Section]:
    section = Section(
        "accuracy",
        "Accuracy",
        "Relative L2 error against FP64. “Predicted” follows from the roundings of each variant "
        "(docs/numerics.md); rows marked emulated were carried out bit for bit on a host.",
    )
    for mark, suffix, device in _each(devices, lambda d: any(len(d.tables.get(t, ())) for t in accuracy.TABLES)):
        section.parts += accuracy_charts(device, mark, suffix)
        for id, title, words, frame, columns in accuracy.report_tables(device):
            if len(frame):
                section.parts.append(Table(f"{id}{mark}", f"{title}{suffix}", words, columns, frame))
    if not section.parts:  # the sweep's own checks
        for mark, suffix, device in _each(devices, lambda d: len(tables.errors(d)) > 0):
            section.parts.append(_error_chart(device, mark, suffix))
    yield section


def _error_chart(device: Device, mark: str, suffix: str) -> Chart:
    frame = tables.errors(device)[["variant", "dtype", "n", "rel_l2", "over_ideal", "over_predicted"]]
    encoding = {"x": charts.field("n", "row length n", log=2, axis_format="d"), "y": charts.field("over_ideal", "error / one rounding", log=2)}
    encoding |= by_style("variant", tables.ordered(frame["variant"], device.variants))
    return chart(
        f"error{mark}", f"Error by row length{suffix}", "Over that of rounding the exact result once; normal data.", frame, "line", encoding, facet="dtype"
    )


def accuracy_charts(device: Device, mark: str, suffix: str) -> Iterator[Chart]:
    """Charts of the accuracy experiments that were run."""
    if len(device.accuracy):
        yield _error_chart(device, mark, suffix)
        normal = device.accuracy[(device.accuracy["input"] == "normal") & (device.accuracy["source"] == "measured")]
        normal = normal if len(normal) else device.accuracy[device.accuracy["input"] == "normal"]
        names = tables.ordered(normal["variant"], device.variants)
        x = charts.field("n", "row length n", log=2, axis_format="d")
        equal = normal[["variant", "dtype", "n", "bit_match"]].dropna()
        yield chart(
            f"bit-match{mark}",
            f"Results equal to the correctly rounded one{suffix}",
            "Normal data.",
            equal,
            "line",
            {"x": x, "y": charts.field("bit_match", "share", axis_format="%", zero=True)} | by_style("variant", names),
            facet="dtype",
        )
        ratios = accuracy.ratios(device)[["variant", "source", "dtype", "n", "input", "ratio", "ratio_for_data"]]
        yield chart(
            f"ratios{mark}",
            f"Measured over predicted error{suffix}",
            "Every continuous input; predicted by the same roundings followed through the data.",
            ratios,
            {"type": "point", "size": 18, "opacity": 0.6},
            {"x": x, "y": charts.field("ratio_for_data", "measured / predicted")}
            | by_style("variant", tables.ordered(ratios["variant"], device.variants), ("color", "shape")),
            facet="dtype",
            columns=2,
            width=420,
            layers=[rule(1)],
        )
    if len(device.tables["quantization.csv"]):
        gain = accuracy.rotation_gain(device)[["format", "input", "n", "rel_l2_plain", "rel_l2_rotated", "gain_db"]]
        yield chart(
            f"rotation{mark}",
            f"What rotation gains before quantization{suffix}",
            "dB of relative L2 error, f16 tokens, exact rotation.",
            gain,
            {"type": "point", "filled": True, "size": 40},
            {
                "x": charts.field("n", "row length n", log=2, axis_format="d"),
                "y": charts.field("gain_db", "gain, dB"),
                "color": category("input", None),
                "shape": category("input", None),
            },
            facet="format",
            layers=[rule(0)],
        )
    shapes = accuracy.attention_shapes(device)
    for d, n in [(128, 8448)] if (128, 8448) in shapes else shapes[-1:]:
        frame = accuracy.attention_table(device, d, n)[["method", "choice", "rmse", "published", "ratio"]]
        yield chart(
            f"attention{mark}",
            f"FP8 attention: RMSE by method, d = {d}, n = {n}{suffix}",
            "Grey: the published value.",
            frame[frame["choice"] == "default"],
            {"type": "point", "filled": True, "size": 90},
            {"y": category("method", None, sort=None), "x": charts.field("rmse", "RMSE", log=10)},
            layers=[
                {
                    "mark": {"type": "tick", "thickness": 3, "color": "#888", "size": 26},
                    "encoding": {"y": category("method", None), "x": charts.field("published", log=10)},
                }
            ],
            width=420,
            height=170,
        )


def profile_section(devices: list[Device]) -> Iterator[Section]:
    section = Section(
        "profile",
        "Profile",
        "Counters of Nsight Compute over one launch, as shares of what kernels reach that do nothing "
        "else, in the same run. “Bound by” names the resource above three quarters of its peak, else what is short.",
    )
    for device in devices:
        for folder in device.folders:
            mark, found = f"-{folder.name}", profile.load_profile(folder.path, folder.context)
            if found is not None:
                section.parts += profile_charts(found, mark)
                section.parts += [
                    Table(f"profile{mark}", f"Costs per element and shares of the peaks ({found.label})", "", profile.REPORT_COLUMNS, found.problems)
                ]
            static = profile.load_static(folder.path)
            if static is not None:
                static = static[static["variant"] != ""].drop_duplicates(["variant", "kernel"])
                columns = [
                    (c, c.replace("_bytes", " B"), "text" if c in ("variant", "kernel", "arch") else "int") for c in profile.STATIC_COLUMNS if c != "symbol"
                ]
                section.parts.append(
                    Table(f"static{mark}", f"Compiled code ({folder.name})", "cuobjdump: registers, spills and instruction mix.", columns, static)
                )
    yield section


def profile_charts(found: profile.Profile, mark: str) -> Iterator[Chart]:
    """Of DRAM-sized problems: the resources' shares, costs of an element, occupancy, what warps wait for."""
    rows = found.problems[(found.problems["regime"] == profile.DRAM_SIZED) & (found.problems["dtype"] == found.problems["dtype"].iloc[0])]
    x = charts.field("n", "row length n", log=2, axis_format="d")
    color = by_style("variant", found.variants)
    shares = rows.melt(["variant", "n"], [f"of_{r}" for r in profile.RESOURCES], "resource", "share").dropna()
    shares["resource"] = shares["resource"].str.removeprefix("of_")
    yield chart(
        f"resources{mark}",
        f"Share of each resource's peak ({found.label})",
        "DRAM-sized problems of the first dtype.",
        shares,
        "line",
        {"x": x, "y": charts.field("share", "of the measured peak", axis_format="%", zero=True)} | color,
        facet="resource",
    )
    for id, title, columns in (
        ("costs", "Costs of an element", ("lsu_words", "shared_words", "issue_slots", "tensor_cycles", "bank_conflicts", "l2_bytes", "dram_bytes")),
        ("occupancy", "Occupancy", ("occupancy_possible", "occupancy", "registers", "resident_blocks")),
    ):
        frame = rows.melt(["variant", "n"], [c for c in columns if c in rows], "cost", "value").dropna()
        frame["cost"] = frame["cost"].str.replace("_", " ")
        drawn = chart(
            f"{id}{mark}", title, "", frame, "line", {"x": x, "y": charts.field("value", None or "", zero=True)} | color, facet="cost", width=230, height=160
        )
        drawn.spec["resolve"] = {"scale": {"y": "independent"}}
        yield drawn
    stalls = rows.melt(["variant", "n"], [c for c in rows if c.startswith("stall_") and c != "stall_selected"], "reason", "warps").dropna()
    stalls = stalls[stalls["warps"] > 0.05].assign(reason=stalls["reason"].str.removeprefix("stall_").str.replace("_", " "))
    yield chart(
        f"stalls{mark}",
        "What warps wait for",
        "Warps per issued instruction.",
        stalls,
        {"type": "bar"},
        {"x": {"field": "n", "type": "ordinal", "title": "n"}, "y": charts.field("warps", "warps", zero=True), "color": category("reason", None)},
        facet="variant",
        width=230,
        height=140,
    )


def checks_section(devices: list[Device]) -> Iterator[Section]:
    """What was wrong, refused, noisy; and the copies that the limits come from."""
    section = Section("checks", "Checks and limits")
    for mark, suffix, device in _each(devices, lambda d: len(d.results) > 0):
        text = [(c, c, "text") for c in ("status", "variant", "operator", "encoding", "dtype", "mode", "layout")]
        wrong = tables.not_ok(device)
        noisy = tables.correct(device.results, noisy=True)
        if len(wrong):
            columns = [
                *text,
                ("rows", "rows", "int"),
                ("rel_l2", "error", "number"),
                ("predicted_rel_l2", "predicted", "number"),
                ("message", "message", "text"),
            ]
            section.parts.append(Table(f"wrong{mark}", f"Without a time: incorrect or failed{suffix}", "", columns, wrong))
        if len(noisy):
            columns = [*text[1:], ("rows", "rows", "int"), ("time_us", "median", "us"), ("time_min_us", "fastest", "us"), ("time_max_us", "slowest", "us")]
            section.parts.append(
                Table(f"noisy{mark}", f"Noisy measurements{suffix}", "The slowest replay took more than 1.2 times the fastest.", columns, noisy)
            )
        columns = [(c, c, "int" if c == "problems" else "text") for c in ("variant", "dtype", "placement", "n", "encoding", "problems", "reason")]
        if len(refused := tables.refusals(device)):
            section.parts.append(Table(f"refused{mark}", f"What variants refuse, and why{suffix}", "", columns, refused))
        columns = [
            ("memory", "memory", "text"),
            ("mode", "mode", "text"),
            ("placement", "placement", "text"),
            ("bytes_read", "read", "bytes"),
            ("bytes_written", "written", "bytes"),
            ("kernel", "fastest copy", "text"),
            ("time_us", "time", "us"),
            ("rate", "rate", "rate"),
            ("kernels", "tried", "int"),
        ]
        section.parts.append(Table(f"copies{mark}", f"The copies that the limits come from{suffix}", "", columns, tables.best_copies(device)))
    yield section


# ------------------------------------------------------------------------------------------------------------- the page


def committed_runs(folders: list[Folder]) -> list[Device]:
    """What the report shows without named folders: the newest run, the newest that covers the published kernels, and those with
    the newest accuracy (of each device) and profile; newest first."""
    every = runs(folders)
    timed = [d for d in every if timed_on_gpu(d)]
    wanted = [newest(timed, timed_on_gpu), newest(timed, tables.covers_published), newest(every, lambda d: any(f.has("profile.csv") for f in d.folders))]
    wanted += {d.name: d for d in reversed(every) if len(d.accuracy)}.values()
    return [d for d in every if any(d is w for w in wanted)] if timed else []


@dataclass(frozen=True)
class Answer:
    """The first screen: sentences with numbers, and the best variant by n and regime."""

    device: Device
    dtype: str
    sizes: list[tables.Size]
    rows: list[dict]
    gains: list[tables.Gain]
    error: tuple[float, float] | None  # least and greatest error of OWN in 16 bits over one rounding
    published_error: float


def answer(devices: list[Device]) -> Answer | None:
    device = newest(devices, tables.covers_published) or newest(devices, timed_on_gpu) or newest(devices, lambda d: (d.results["status"] == "ok").any())
    if device is None:
        return None
    results = tables.correct(device.results, candidates=True, family="transform")
    results = results if len(results) else tables.correct(device.results, candidates=True)
    layout = "in place" if (results["layout"] == "in place").any() else results["layout"].iloc[0]
    results = results[results["layout"] == layout]
    dtype = tables.ordered(results["dtype"], DTYPES)[0]
    sizes = tables.sizes(results, dtype, device.l2_bytes)[::-1]
    over = tables.errors(device).set_index(["variant", "dtype", "n"])["over_ideal"]
    best = tables.best(results[results["dtype"] == dtype])
    rows = []
    for n in sorted(best["n"].unique()):
        cells = []
        for size in sizes:
            found = best[(best["n"] == n) & (best["elements"] == size.elements) & (best["mode"] == size.mode)]
            cells.append(None if found.empty else found.iloc[0].to_dict() | {"error": over.get((found.iloc[0]["variant"], dtype, n), math.nan)})
        if any(cells):
            rows.append({"n": int(n), "cells": cells})
    own = tables.errors(device)
    own = own[(own["variant"] == tables.OWN) & own["dtype"].isin(["f16", "bf16"])]["over_ideal"]
    errors = tables.published_errors()
    worst = max(value / tables.ideal_error(d) for (method, d, _), value in errors.items() if method == "hadacore")
    return Answer(device, dtype, sizes, rows, tables.gains(device), (own.min(), own.max()) if len(own) else None, worst)


def provenance(folder: Folder) -> list[tuple[str, str]]:
    """What a reader needs to repeat the run."""
    c = folder.context
    device, host = c["device"], c["host"]
    gpu = "none"
    if device["present"]:
        gpu = (f"{device['name']}, compute capability {device['compute_capability']}, {device['sm_count']} SMs, {byte_text(device['l2_bytes'])} L2, "
               f"{byte_text(device['memory_bytes'])} memory, {device['clock_khz'] / 1e6:.2f} GHz; CUDA driver {_cuda(device['driver_version'])}, "
               f"runtime {_cuda(device['runtime_version'])}")  # fmt: skip
    seeds = c["seeds"] if isinstance(c["seeds"], list) else [c["seeds"]]
    noisy = int((folder.results["time_max_us"] > 1.2 * folder.results["time_min_us"]).sum())
    return [
        ("device", gpu),
        ("host", f"{host['name']}, {host['threads']} threads, {byte_text(host['memory_bytes'])} memory" + (", LOADED by other work" if folder.loaded else "")),
        ("commit", c["commit"] + (" with UNCOMMITTED CHANGES" if c["dirty"] else ", clean")),
        ("sources", c["sources_hash"]),
        ("version", f"{c['version']}, {c['build_type']}"),
        ("C++", f"{c['cxx']} {c['cxx_flags']}"),
        ("CUDA", f"{c['cuda']} {c['cuda_flags']}".strip() or "none"),
        ("run", f"{c['utc_start']} to {c['utc_end'] or 'unknown'}" + ("" if c["complete"] else ", INCOMPLETE")),
        *(("command", " ".join(run["argv"])) for run in c["runs"] or [{"argv": c["argv"]}]),
        ("grid", f"{c['grid'] if isinstance(c['grid'], str) else json.dumps(c['grid'])}; seeds {', '.join(map(str, seeds))}"),
        ("rows", ", ".join(f"{len(t)} of {name}" for name, t in folder.tables.items() if len(t)) + (f"; {noisy} noisy" if noisy else "")),
    ]


def _cuda(version: int | str) -> str:
    """13000 -> 13.0; other texts stay."""
    text = str(version)
    return f"{int(text) // 1000}.{int(text) % 1000 // 10}" if text.isascii() and text.isdigit() else text


def environment() -> jinja2.Environment:
    """For HTML: everything is escaped."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters |= {"time": tables.time_text, "percent": tables.percent, "fixed": tables.fixed}
    return made


def embedded(value: Any) -> str:
    """JSON, compressed by gzip (a tenth of it remains), as base64: nothing in it can end its script element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain)
    return base64.b64encode(gzip.compress(text.encode("utf-8"), mtime=0)).decode("ascii")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(type(value).__name__)


def page(devices: list[Device], command: str) -> str:
    """The whole page; `devices`: runs, newest first."""
    import vl_convert

    charts.assign(v for d in devices for v in d.variants)
    sections = sections_of(devices)
    bundle: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub asks for a snippet
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            title="fwht on " + " and ".join(dict.fromkeys(d.name for d in devices)),
            devices=devices,
            answer=answer(devices),
            sections=[{"section": s, "parts": [{"part": p, "is_chart": isinstance(p, Chart)} for p in s.parts]} for s in sections],
            explorer=any(len(d.results) for d in devices),
            data=embedded(payload(devices, sections)),
            vega=Markup(bundle.replace("</script", "<\\/script")),
            script=Markup((TEMPLATES / "report.js").read_text(encoding="utf-8")),
            style=Markup((TEMPLATES / "report.css").read_text(encoding="utf-8")),
            mode_words=MODE_WORDS,
            provenance=[(folder, provenance(folder)) for d in devices for folder in d.folders],
            written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            command=command,
        )
    )


def write_report(devices: list[Device], output: Path, *, command: str = "") -> Path:
    """Writes the page; ResultsError where the path cannot be written."""
    text = page(devices, command)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"{output} cannot be written: {error.strerror}") from None
    return output
