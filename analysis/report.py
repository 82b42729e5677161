"""One self-contained HTML page: the answer first, then everything to look at, filter and compare. It loads nothing from outside.

A section is a function that yields charts and tables of one run; it is there when it has data. `templates/parts.toml` has titles and
words, `templates/report.html.j2` lays the page out, `templates/report.js` draws it from the data, which lie in it once as JSON.
"""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from markupsafe import Markup

from . import accuracy, charts, layers, profile, static_code, tables
from .charts import PARTS, TEMPLATES, Chart, Table, by_style, category, chart, columns_of, kinds, rule, table
from .load import DTYPES, ELEMENT_BYTES, MODES, Device, Folder, newest, runs, timed_on_gpu, write_text
from .models import Evaluation
from .tables import byte_text

Parts = Iterator[Chart | Table]


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


RESULT_COLUMNS = ("variant", "operator", "encoding", "arrangement", "family", "dtype", "n", "rows", "layout", "mode", "status", "time_us", "time_min_us",
                  "time_max_us", "limit_us", "limit_kernel", "useful_bytes", "rel_l2", "predicted_rel_l2", "settings", "message", "picked",
                  "candidate", "folder")  # fmt: skip


def explored(device: Device) -> pd.DataFrame:
    """What the explorer shows: the results, and the published kernels where they were measured on the same GPU. `candidate`: the name
    under which “my problem” may answer with the row, "" for none."""
    frame = device.results.assign(candidate=tables.correct(device.results, candidates=True, forwards=True, arrangement="")["variant"])
    frame = frame.fillna({"candidate": ""})[list(RESULT_COLUMNS)]
    if not tables.has_published_gpu(device) or frame.empty:
        return frame
    other = tables.published()
    other = other[other["dtype"].isin(frame["dtype"]) & other["mode"].isin(frame["mode"])]
    errors = tables.published_errors()
    rows = pd.DataFrame(
        {
            "variant": other["method"].map(tables.PUBLISHED) + ", published", "operator": other["n"].astype(str), "family": "transform",
            "dtype": other["dtype"], "n": other["n"], "rows": other["elements"] // other["n"], "layout": "in place", "mode": other["mode"],
            "status": "published", "time_us": other["time_us"], "limit_us": other["copy_us"], "limit_kernel": "one-shot copies",
            "useful_bytes": 2 * other["elements"] * other["dtype"].map(ELEMENT_BYTES),
            "rel_l2": [errors.get((r.method, r.dtype, r.n), math.nan) for r in other.itertuples()],
            **dict.fromkeys(("encoding", "arrangement", "settings", "message", "picked", "candidate", "folder"), ""),
        }
    ).reindex(columns=RESULT_COLUMNS)  # fmt: skip
    return pd.concat([frame, rows], ignore_index=True)


def payload(devices: list[Device], sections: list[Section]) -> dict[str, Any]:
    """All data of the page."""
    shown = [d for d in devices if len(d.results)]
    frames = [explored(d) for d in shown]
    names = tables.ordered([v for f in frames for v in f["variant"]], [v for d in shown for v in d.variants])
    parts = [part for section in sections for part in section.parts]
    answers = answers_of(devices)
    return {
        "start": next((i for i, d in enumerate(shown) if any(d is answer.device for answer in answers)), 0),
        "answers": [answer.device.name for answer in answers],
        "runs": [
            {"name": d.short, "device": d.name, "l2_bytes": d.l2_bytes, "noise": float(d.results["noise"].max()), "results": pack(f)}
            for d, f in zip(shown, frames)
        ],
        "styles": charts.styles(names),
        "modes": list(MODES), "dtypes": list(DTYPES), "families": PARTS["families"], "own": tables.OWN,
        "ideal": {dtype: tables.ideal_error(dtype) for dtype in tables.UNIT_ROUNDOFF}, "bytes": ELEMENT_BYTES,
        "preferred": tables.PREFERRED_MODES, "in_l2": tables.IN_L2,
        "charts": {p.id: {"title": p.title, "spec": p.spec, "data": pack(p.frame)} for p in parts if isinstance(p, Chart)},
        "tables": {p.id: {"title": p.title, "columns": [list(c) for c in p.columns], "data": pack(p.frame[[c[0] for c in p.columns]])}
                   for p in parts if isinstance(p, Table)},
    }  # fmt: skip


# --------------------------------------------------------------------------------------------------------- the sections

LENGTH = charts.field("n", "row length n", log=2, axis_format="d")
TOKENS = charts.field("m", "tokens m", log=2, axis_format="d")
POINTS = {"type": "point", "filled": True, "size": 50}
MANY = {"scale": {"scheme": "tableau20"}}  # colours of more than ten kinds


def sections_of(devices: list[Device], evaluations: Sequence[Evaluation] = ()) -> list[Section]:
    """Every section that has data, in the order of the page. `devices`: runs, newest first."""
    found = []
    builders = SECTIONS | {"models": lambda _: itertools.chain.from_iterable(map(model_parts, evaluations, itertools.count(1)))}
    for id, part in PARTS["sections"].items():
        found.append(Section(id, part["title"], part.get("words", ""), list(builders[id](devices))))
        found += other_tables(devices) if id == "runs" else []
    for section in found:
        section.parts = [part for part in section.parts if len(part.frame)]
    return [section for section in found if section.parts]


Cover = Callable[[Device], set[tuple]]
WIDE_ENOUGH = 0.9  # a newer run speaks for a section where it covers this share of what the widest one does


def of_family(*families: str) -> Cover:
    """The problems of these families that a run measured."""
    columns = ["family", "operator", "encoding", "dtype", "mode", "layout", "rows"]
    return lambda device: _tuples(tables.correct(device.results)[columns].query("family in @families", local_dict={"families": families}))


def of_tables(*names: str) -> Cover:
    """The keys of the rows of these tables."""

    def cover(device: Device) -> set[tuple]:
        found = {name: device.tables[name] for name in names if len(device.tables.get(name, ()))}
        return {(name, *key) for name, rows in found.items() for key in _tuples(rows[layers.key_of(device, name)])}

    return cover


def _tuples(rows: pd.DataFrame) -> set[tuple]:
    return set(rows.astype(str).itertuples(index=False, name=None))


def widest(devices: list[Device], covers: list[set[tuple]]) -> Device | None:
    """Of runs of one device, newest first: the newest that covers WIDE_ENOUGH of what the widest covers."""
    most = max(map(len, covers), default=0)
    return next((device for device, own in zip(devices, covers) if own and len(own) >= WIDE_ENOUGH * most), None)


def coverage(device: Device, devices: list[Device], covers: list[set[tuple]]) -> str:
    """How much of what `devices`, newest first, measured lies in `device`, in words; "" where it is all, and the newest."""
    place = devices.index(device)
    own, every, newer = covers[place], set().union(*covers), set().union(*covers[:place])
    words = f"{len(own)} of {len(every)} problems that runs of this device measured. " if len(own) < len(every) else ""
    names = "; ".join(d.short for d, other in zip(devices, covers[:place]) if other & own)
    return words + (f"{len(own & newer)} of its {len(own)} problems were measured again in {names}." if names else "")


def each(build: Callable[[Device], Parts], cover: Cover) -> Callable[[list[Device]], Parts]:
    """The parts of every device: of its run that is `widest`, with its `coverage` in words; the same part of several devices in a row."""

    def build_all(devices: list[Device]) -> Parts:
        found: dict[str, list[Chart | Table]] = {}
        for name in dict.fromkeys(d.name for d in devices):
            own = [d for d in devices if d.name == name]
            covers = list(map(cover, own))
            if (device := widest(own, covers)) is not None:
                words = coverage(device, own, covers)
                for part in build(device):
                    if len(part.frame):
                        found.setdefault(part.id, []).append(of_device(replace(part, words=f"{part.words} {words}".strip()), device, devices))
                        words = ""
        return itertools.chain.from_iterable(found.values())

    return build_all


def of_device(part: Chart | Table, device: Device, devices: list[Device]) -> Chart | Table:
    """A part of the page that shows `device` alone, with an id of its own."""
    place = list(dict.fromkeys(d.name for d in devices)).index(device.name)
    return replace(part, id=f"{part.id}-{place + 1}" if place else part.id, title=f"{part.title} ({device.short})", device=device.name)


def speed(*devices: Device) -> Chart:
    """Bytes moved per second by row length, against a copy and the published kernels; a row of panels per device."""
    frame = pd.concat([tables.speed_lines(device, "f16", "replay", 64) for device in devices], ignore_index=True)
    frame = frame.assign(rate=frame["rate"] / 1e12)
    names = tables.ordered(frame["who"], ["copy", "fwht::transform"])
    known = {"copy": ("#777777", [4, 3]), "fwht::transform": ("#0072B2", [1, 0])}
    other = iter((("#D55E00", [1, 0]), ("#E69F00", [6, 3])))
    style = [known.get(name) or next(other) for name in names]
    encoding = {
        "x": charts.field("n", "row length n", log=2, axis_format="d"),
        "y": charts.field("rate", "TB/s", zero=True),
        "color": {"field": "who", "type": "nominal", "title": None, "scale": {"domain": names, "range": [s[0] for s in style]}},
        "strokeDash": {"field": "who", "type": "nominal", "title": None, "scale": {"domain": names, "range": [s[1] for s in style]}},
    }
    return chart("speed", frame, "line", encoding, facet="regime", columns=2, width=340)


def error_against_speed(*devices: Device, dtype: str = "f16") -> Chart:
    """Every variant's error over its share of the limit, a panel per device and regime."""
    names = list(dict.fromkeys(variant for device in devices for variant in device.variants))
    charts.assign(names)
    frame = pd.concat([tables.error_against_speed(device, dtype) for device in devices], ignore_index=True)
    encoding = {
        "x": charts.field("share", "share of the copy limit", domain=[0, 1.02], axis_format="%", zero=True),
        "y": charts.field("over_ideal", "error / one rounding", zero=True),
    } | by_style("variant", tables.ordered(frame["variant"], names), ("color", "shape"))
    mark = {"type": "point", "filled": False, "size": 90, "strokeWidth": 2}  # what lies below shows through
    return chart("error_against_speed", frame, mark, encoding, facet="regime", width=250)


def published_parts(devices: list[Device]) -> Parts:
    for device in newest(devices, tables.covers_published) or newest(devices, lambda d: len(tables.gains(d)) > 0):
        both = tables.beside_published(device)
        for part in (
            speed(device), error_against_speed(device),
            table("beside-published", both[both["mode"] == "replay"].assign(method=both["method"].map(tables.PUBLISHED))),
            table("paper", tables.published_speedups(device)),
        ):  # fmt: skip
            yield of_device(part, device, devices)
    yield from each(lambda d: iter([table("peers", tables.beside_peers(d))]), lambda d: _tuples(tables.beside_peers(d)[["peer", *tables.PROBLEM]]))(devices)


def best_parts(family: str, device: Device) -> Table:
    frame = tables.best(device.results[device.results["family"] == family])
    frame = frame.assign(over_ideal=frame["rel_l2"] / frame["dtype"].map(tables.ideal_error).astype(float))
    return table(f"best-{family}", frame)


def transform_parts(device: Device) -> Parts:
    yield (found := best_parts("transform", device))
    if len(found.frame):
        yield table("support", tables.support(device))


def few_rows_parts(device: Device) -> Parts:
    frame = pd.concat([tables.few_rows(device, dtype).assign(dtype=dtype) for dtype in DTYPES], ignore_index=True)
    lines = frame.assign(rows=[f"{r} row{'s' * (r > 1)}" for r in frame["rows"]])
    lines = lines.iloc[frame["rows"].argsort(kind="stable")]  # colours of row counts are the same on every device
    y = charts.field("time_us", "µs", zero=True)
    yield chart("few-rows", lines, "line", {"x": LENGTH, "y": y} | kinds(lines, "rows", ("color", "shape", "strokeDash")), facet="dtype")
    yield table("few-rows-table", frame)


def width_parts(device: Device) -> Parts:
    if not (device.results["family"] == "width").any():
        return
    frame = tables.by_width(device)[["variant", "operator", "dtype", "n", "rows", "size", "time_us", "limit_us", "fraction_of_limit", "over_ideal"]]
    style = by_style("variant", tables.ordered(frame["variant"], device.variants), ("color", "shape"))
    panels = frame.assign(panel=frame["dtype"] + ", " + frame["size"])
    y = charts.field("fraction_of_limit", axis_format="%", zero=True)
    yield chart("widths", panels, POINTS, {"x": LENGTH, "y": y} | style, facet="panel", width=400, columns=2)
    worst = frame.sort_values("over_ideal", ascending=False, kind="stable").drop_duplicates(["variant", "dtype", "n"]).sort_values("n")
    yield chart("width-errors", worst, POINTS, {"x": LENGTH, "y": charts.field("over_ideal")} | style, facet="dtype", layers=[rule(1)], width=400, columns=2)
    few = tables.decode(device)
    few = few.assign(rows=[f"{r} row{'s' * (r > 1)}" for r in few["rows"]])[["dtype", "n", "operator", "rows", "variant", "time_us", "limit_us"]]
    copy = {"mark": {"type": "line", "strokeDash": [3, 3], "opacity": 0.6},
            "encoding": {"x": LENGTH, "y": charts.same("limit_us", "µs"), "color": category("rows")}}  # fmt: skip
    encoding = {"x": LENGTH, "y": charts.field("time_us", "µs", log=2)} | kinds(few, "rows")
    yield chart("decode", few, "line", encoding, facet="dtype", layers=[copy], width=400, columns=2)
    yield best_parts("width", device)


def arranged_parts(device: Device) -> Parts:
    yield table("arranged", tables.arranged(device))


def prepared_parts(device: Device) -> Parts:
    yield table("prepared", tables.prepared(device))


def operands_parts(device: Device) -> Parts:
    yield table("operands", tables.operands(device))
    yield table("dense-codes", tables.dense_codes(device))


def encoded_parts(device: Device) -> Parts:
    frame = tables.fused(device)
    lines = tables.nearest_to_limit(frame, ["format", "n", "size", "dtype"])
    lines = lines[["format", "encoding", "variant", "dtype", "n", "rows", "size", "time_us", "pair_us", "gain", "fraction_of_limit"]]
    power = lines["n"] & (lines["n"] - 1) == 0
    lines = lines.assign(panel=lines["dtype"] + ", " + lines["size"] + power.map({True: "", False: ", n = m 2^k"}))
    style = {"x": LENGTH} | kinds(lines, "format")
    yield chart("fused-gain", lines.dropna(subset=["gain"]), "line", style | {"y": charts.field("gain", log=2)}, facet="panel", layers=[rule(1)])
    yield chart("fused-share", lines, "line", style | {"y": charts.field("fraction_of_limit", axis_format="%", zero=True)}, facet="panel")
    yield table("fused", frame)
    yield best_parts("encoded", device)


def linear_parts(device: Device) -> Parts:
    rows = layers.linear(device)
    if len(rows):
        names = list(dict.fromkeys(rows["variant"]))
        lines = rows[["variant", "layer", "m", "time_us", "limit_us", "fraction_of_limit", "over_ideal", "mode"]]
        share = charts.field("fraction_of_limit", "of the read limit", axis_format="%", zero=True)
        style = {"x": TOKENS} | by_style("variant", names)
        yield chart("linear-share", lines, "line", style | {"y": share}, facet="layer")
        yield chart("linear-time", lines, "line", style | {"y": charts.field("time_us", "µs", log=2)}, facet="layer", free=True)
        yield table("linear-best", layers.linear_best(device))
        yield table("linear-rotated", layers.rotated(device))
        yield table("linear-others", layers.over_others(device))
        yield table("linear-paper", layers.split_over_data_parallel(device))
    yield table("linear-rotation", layers.rows_of(device, "linear_rotation.csv"))
    every = device.tables.get("linear.csv", pd.DataFrame())
    yield table("linear-all", every, [c for c in every if c not in ("settings", "folder")])


def gpus_parts(device: Device) -> Parts:
    rows = layers.parallel(device)
    if len(rows):
        gains = layers.speedups(device)
        if len(gains):
            lines = [{"mark": {"type": "line", "strokeDash": [5, 4]}, "encoding": {"x": TOKENS, "y": charts.same("published_speedup", "times as fast")}},
                     {"mark": {"type": "point", "shape": "cross"}, "encoding": {"x": TOKENS, "y": charts.same("model_speedup", "times as fast")}}]  # fmt: skip
            many = gains[gains["ranks"] > 1] if (gains["ranks"] > 1).any() else gains
            encoding = {"x": TOKENS, "y": charts.field("speedup", "times as fast", zero=True)} | kinds(many, "variant")
            yield chart("tp-speedup", many, "line", encoding, facet="place", columns=2, width=360, layers=lines)
        plain = rows[rows["rotation"] == "none"][["place", "algorithm", "variant", "m", "time_us", "min_us", "max_us", "pieces_us", "model_us"]]
        y = charts.field("time_us", "µs", zero=True)
        yield chart("tp-time", plain, "line", {"x": TOKENS, "y": y} | kinds(plain, "algorithm"), facet="place", columns=2, width=360)
        added = layers.rotations(device)[["place", "algorithm", "rotation", "variant", "m", "time_us", "added_us"]]
        y = charts.field("added_us", "µs more", zero=True)
        yield chart("tp-rotation", added, "line", {"x": TOKENS, "y": y} | kinds(added, "rotation"), facet="place", columns=2, width=360)
        model = rows[["place", "algorithm", "rotation", "m", "time_us", "model_us"]].dropna().assign(ratio=rows["time_us"] / rows["model_us"])
        y = charts.field("ratio", "measured / model", zero=True)
        style = kinds(model, "algorithm", ("color",)) | kinds(model, "rotation", ("shape",))
        yield chart("tp-model", model, POINTS, {"x": TOKENS, "y": y} | style, facet="place", columns=2, width=360, layers=[rule(1)])
    pieces = layers.pieces(device)
    if len(pieces):
        encoding = {"y": category("what"), "x": charts.field("time_us", "µs", zero=True), "color": category("piece") | MANY}
        frame = pieces[["shape", "ranks", "what", "piece", "time_us", "min_us", "max_us"]]
        yield chart("tp-pieces", frame, "bar", encoding, facet="shape", columns=2, width=420)
    yield table("tp-speedup-table", layers.speedups(device).drop(columns="place", errors="ignore"))
    yield table("tp-rotation-table", layers.rotations(device))
    yield table("tp-bounds", layers.against_pieces(device))
    for id, name in (("tp-pieces-table", "tensor_parallel_pieces.csv"), ("tp-model-table", "tensor_parallel_model.csv")):
        yield table(id, device.tables.get(name, pd.DataFrame()).drop(columns="folder", errors="ignore"))


def runs_parts(devices: list[Device]) -> Parts:
    """Several runs: each beside the older one of its device that shares most problems, and the newest of each device; and the history."""
    timed = [d for d in devices if len(d.results)]
    newest_of = list({d.name: d for d in reversed(timed)}.values())
    pairs = [(d, [other for other in timed[i + 1 :] if other.name == d.name]) for i, d in enumerate(timed)]
    pairs += [(timed[0], [other]) for other in newest_of if other.name != timed[0].name]
    for i, (one, others) in enumerate(pairs):
        both = max((tables.common(other, one) for other in others), key=lambda found: len(found[1]), default=None)
        if both is not None and len(both[1]):
            words = "shares of the limit compare, times do not" if both[0].name != one.name else ""
            yield replace(table("run", tables.compare_summary(both[1])), id=f"run-{i}", title=f"{one.short} over {both[0].short}", words=words, device=one.name)
    for i, name in enumerate(dict.fromkeys(d.name for d in timed)):
        frame = tables.drift([d for d in reversed(timed) if d.name == name])
        if len(frame):
            panels = frame.assign(panel=frame["dtype"] + ", " + frame["mode"])
            encoding = {
                "x": {"field": "when", "type": "ordinal", "title": "run (UTC)"},
                "y": charts.field("relative", "share of the limit over the widest run's"),
            }
            style = by_style("variant", tables.ordered(frame["variant"], timed[0].variants))
            drawn = chart("history", panels, "line", encoding | style, facet="panel", layers=[rule(1)])
            yield replace(drawn, id=f"history-{i}", title=f"{drawn.title} on {name}", device=name)


def other_tables(devices: list[Device]) -> list[Section]:
    """Tables of programs that have no section of their own, as their schema.json declares them: a family of rows that is new here."""
    known = {*accuracy.TABLES, *layers.TABLES, "results.csv", "limits.csv", "unsupported.csv", "launches.csv", "not_profiled.csv", "tests.csv"}
    names = dict.fromkeys(n for d in devices for n in d.tables if n not in known and len(d.tables[n]))
    return [Section(f"table-{stem}", stem.replace("_", " ").capitalize(), "", list(each(lambda d, n=name: _declared_parts(d, n), of_tables(name))(devices)))  # type: ignore[misc]
            for name in names for stem in [Path(name).stem]]  # fmt: skip


def _declared_parts(device: Device, name: str) -> Parts:
    """A table, and before it share of the limit, or time, over the key number that varies most, where there are variants and times."""
    frame, stem = device.tables.get(name, pd.DataFrame()), Path(name).stem
    if frame.empty:
        return
    declared = next(f.schema[name] for f in reversed(device.folders) if name in f.schema)
    value = next((c for c in ("fraction_of_limit", "time_us") if c in declared.names), "")
    numbers = [c.name for c in declared.columns if c.key and c.is_number]
    if "variant" in declared.names and value and numbers:
        x = max(numbers, key=lambda c: frame[c].nunique())
        rows = frame.dropna(subset=[value])[["variant", *(c for c in declared.key if c != "variant"), value]]
        encoding = {"x": charts.field(x, log=2), "y": charts.field(value, zero=True)} | by_style("variant", dict.fromkeys(rows["variant"]), ("color", "shape"))
        yield chart(f"{stem}-chart", rows, POINTS, encoding, title=f"{value} by {x}", width="container")
    shown = [c for c in declared.columns if c.type != "json"]
    units = {c.name: f"{c.name} ({c.unit})" for c in shown if c.unit and c.unit != "us"}
    yield Table(stem, name, "", columns_of(frame, [c.name for c in shown], units), frame)


def accuracy_parts(devices: list[Device]) -> Parts:
    """The experiments; where none was run, the errors of the sweep's own checks."""

    def experiments(device: Device) -> Parts:
        if any(len(device.tables.get(t, ())) for t in accuracy.TABLES):
            yield from accuracy_charts(device)
            yield from (table(id, frame) for id, frame in accuracy_tables(device) if len(frame))

    parts = list(each(experiments, of_tables(*accuracy.TABLES))(devices)) or each(lambda d: iter([_error_chart(d)]), of_family(*PARTS["families"]))(devices)
    yield from parts


def _error_chart(device: Device) -> Chart:
    frame = tables.errors(device)[["variant", "dtype", "n", "rel_l2", "over_ideal", "over_predicted"]]
    frame = frame[frame["over_ideal"] > 0]  # one 0 leaves a logarithmic scale no place for anything else
    encoding = {"x": LENGTH, "y": charts.field("over_ideal", log=2)} | by_style("variant", tables.ordered(frame["variant"], device.variants))
    return chart("error", frame, "line", encoding, facet="dtype")


def accuracy_charts(device: Device) -> Parts:
    """Charts of the accuracy experiments that were run."""
    if len(device.accuracy):
        yield _error_chart(device)
        normal = device.accuracy[device.accuracy["input"] == "normal"]
        measured = normal[normal["source"] == "measured"]
        equal = (measured if len(measured) else normal)[["variant", "dtype", "n", "bit_match"]].dropna()
        style = by_style("variant", tables.ordered(equal["variant"], device.variants))
        yield chart("bit-match", equal, "line", {"x": LENGTH, "y": charts.field("bit_match", "share", axis_format="%", zero=True)} | style, facet="dtype")
        ratios = accuracy.ratios(device)[["variant", "source", "dtype", "n", "input", "ratio", "ratio_for_data"]]
        style = by_style("variant", tables.ordered(ratios["variant"], device.variants), ("color", "shape"))
        yield chart("ratios", ratios, {"type": "point", "size": 18, "opacity": 0.6}, {"x": LENGTH, "y": charts.field("ratio_for_data")} | style, facet="dtype",
                    columns=2, width=420, layers=[rule(1)])  # fmt: skip
    if len(device.tables["quantization.csv"]):
        gain = accuracy.rotation_gain(device)[["format", "input", "n", "rel_l2_plain", "rel_l2_rotated", "gain_db"]]
        yield chart("rotation", gain, POINTS, {"x": LENGTH, "y": charts.field("gain_db", "gain, dB")} | kinds(gain, "input"), facet="format", layers=[rule(0)])
    for d, n in accuracy.attention_shapes(device, published=True):
        frame = accuracy.attention_table(device, d, n)[["method", "choice", "rmse", "published", "ratio"]]
        tick = {"mark": {"type": "tick", "thickness": 3, "color": "#888", "size": 26},
                "encoding": {"y": category("method"), "x": charts.same("published", "RMSE")}}  # fmt: skip
        yield chart("attention", frame[frame["choice"] == "default"].assign(d=d, n=n), {"type": "point", "filled": True, "size": 90},
                    {"y": category("method"), "x": charts.field("rmse", "RMSE", log=10)}, layers=[tick], width=420, height=170)  # fmt: skip


def with_words(findings: pd.DataFrame) -> pd.DataFrame:
    """`accuracy.findings` with each cause in words."""
    return findings.assign(words=[PARTS["causes"].get(cause, "none of the known causes") for cause in findings["cause"]])


def accuracy_tables(device: Device) -> Iterator[tuple[str, pd.DataFrame]]:
    """Id (templates/parts.toml) and data of every table that the report shows."""
    yield (
        "must-hold",
        pd.DataFrame([{"words": r.words, "holds": "holds" if r.holds else "DOES NOT HOLD", "detail": r.detail} for r in accuracy.requirements(device)]),
    )
    yield "ratio-summary", accuracy.ratio_summary(device)
    yield "deviations", with_words(accuracy.findings(device))
    yield "gains", pd.concat([accuracy.gains(device, dtype).assign(dtype=dtype) for dtype in ("f16", "bf16", "f32")], ignore_index=True)
    queries = {"probes": ("probes.csv", accuracy.probe_summary), "overflow": ("overflow.csv", accuracy.overflow_onset),
               "rotation-table": ("quantization.csv", accuracy.rotation_gain), "visibility": ("quantization.csv", accuracy.transform_visibility)}  # fmt: skip
    yield from ((id, query(device)) for id, (name, query) in queries.items() if len(device.tables[name]))
    shapes = [accuracy.attention_table(device, d, n).assign(d=d, n=n) for d, n in accuracy.attention_shapes(device)]
    yield "attention-table", pd.concat(shapes, ignore_index=True) if shapes else pd.DataFrame()
    yield "accuracy-all", device.accuracy


def profile_parts(devices: list[Device]) -> Parts:
    for folder in (f for d in devices for f in d.folders):
        found = profile.load_profile(folder.path, folder.context)
        parts: list[Chart | Table] = [] if found is None else [*profile_charts(found), table("profile", found.problems, profile.REPORT_COLUMNS)]
        static = static_code.load_static(folder.path)
        if static is not None:
            kernels = static[static["variant"] != ""].drop_duplicates(["variant", "kernel"])
            parts.append(table("static", kernels, [c for c in static_code.COLUMNS if c != "symbol"]))
        yield from (replace(part, id=f"{part.id}-{folder.name}", title=f"{part.title} ({folder.name})", device=folder.device) for part in parts)


COSTS = ("lsu_words", "shared_words", "issue_slots", "tensor_cycles", "bank_conflicts", "l2_bytes", "dram_bytes")


def profile_charts(found: profile.Profile) -> Parts:
    """Of DRAM-sized transforms: the resources' shares, costs of an element, occupancy, what warps wait for."""
    if found.transforms.empty:
        return
    rows = found.transforms[(found.transforms["regime"] == profile.DRAM_SIZED) & (found.transforms["dtype"] == found.transforms["dtype"].iloc[0])]
    style = {"x": LENGTH} | by_style("variant", found.variants)
    shares = rows.melt(["variant", "n"], [f"of_{r}" for r in profile.RESOURCES], "resource", "share").dropna()
    shares["resource"] = shares["resource"].str.removeprefix("of_")
    yield chart("resources", shares, "line", style | {"y": charts.field("share", "of the measured peak", axis_format="%", zero=True)}, facet="resource")
    for id, columns in (("costs", COSTS), ("occupancy", ("occupancy_possible", "occupancy", "registers", "resident_blocks"))):
        frame = rows.melt(["variant", "n"], [c for c in columns if c in rows], "cost", "value").dropna()
        frame["cost"] = frame["cost"].str.replace("_", " ")
        yield chart(id, frame, "line", style | {"y": charts.field("value", zero=True)}, facet="cost", width=230, height=160, free=True)
    stalls = rows.melt(["variant", "n"], [c for c in rows if c.startswith("stall_") and c != "stall_selected"], "reason", "warps").dropna()
    stalls = stalls[stalls["warps"] > 0.05].assign(reason=stalls["reason"].str.removeprefix("stall_").str.replace("_", " "))
    encoding = {"x": {"field": "n", "type": "ordinal", "title": "n"}, "y": charts.field("warps", zero=True), "color": category("reason") | MANY}
    yield chart("stalls", stalls, "bar", encoding, facet="variant", width=230, height=140)


def model_parts(evaluation: Evaluation, place: int) -> Parts:
    """KL by format and rotation with its interval; outliers before and after; what the rotations cost."""
    rows = evaluation.rows
    shown = rows[rows["format"] != "none"].replace({"verdict": {"": "baseline"}})
    order = {"field": "rotation", "type": "nominal", "title": None, "sort": list(dict.fromkeys(shown["rotation"]))}
    interval = {"mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"x": order, "y": charts.same("kl_low", "KL, 1e-3 nats"), "y2": {"field": "kl_high"}}}  # fmt: skip
    sites = evaluation.outliers
    turned = [(when, f"kurtosis{end}", f"largest{end}", f"first{end}") for when, end in (("as it is", ""), ("rotated", "_rotated"))]
    columns = ["layer", "site", "when", "kurtosis", "largest", "first"]
    both = [sites.assign(when=when)[["layer", "site", "when", *names]].set_axis(columns, axis=1) for when, *names in turned]
    layer = {"field": "layer", "type": "ordinal", "title": "layer"}
    cost = evaluation.cost
    for part in (
        chart("model-kl", shown, POINTS, {"x": order, "y": charts.field("kl", "KL, 1e-3 nats", zero=True)} | kinds(shown, "verdict"), facet="format",
              layers=[interval], width=230, height=170, free=True),
        table("model-table", rows),
        chart("model-outliers", frame := pd.concat(both, ignore_index=True), POINTS,
              {"x": layer, "y": charts.field("kurtosis", log=10)} | kinds(frame, "when"), facet="site", width=230, height=150),
        table("model-cost", cost, None if len(cost) else ["tokens"]),
        table("model-refused", evaluation.refused),
    ):  # fmt: skip
        yield replace(part, id=f"{part.id}-{place}", title=f"{part.title} ({evaluation.short})", device=evaluation.written.about.device)


def checks_parts(device: Device) -> Parts:
    """What was wrong, noisy, refused; and the copies that the limits come from."""
    if len(device.results):
        yield table("wrong", tables.not_ok(device))
        yield table("noisy", tables.correct(device.results, noisy=True))
        yield table("throttled", device.results[device.results["throttle"] != ""])
        yield table("refused", tables.refusals(device))
        yield table("copies", tables.best_copies(device))


COVERS: dict[str, Cover] = {
    "best-transform": of_family("transform"), "few-rows": lambda d: _tuples(pd.concat([tables.few_rows(d, t).assign(t=t)[["t", "n", "rows"]] for t in DTYPES])),
    "best-width": of_family("width"), "arranged": of_family("arranged"), "best-encoded": of_family("encoded"),
    "prepared": of_family("prepared"), "operands": of_family("operands"),
    "linear": of_tables("linear.csv", "linear_rotation.csv"),
    "several-gpus": of_tables(*(name for name in layers.TABLES if name.startswith("tensor"))), "checks": of_family(*PARTS["families"]),
}  # fmt: skip
SECTIONS: dict[str, Callable[[list[Device]], Parts]] = {
    "published": published_parts, "best-transform": each(transform_parts, COVERS["best-transform"]), "few-rows": each(few_rows_parts, COVERS["few-rows"]),
    "best-width": each(width_parts, COVERS["best-width"]), "arranged": each(arranged_parts, COVERS["arranged"]),
    "best-encoded": each(encoded_parts, COVERS["best-encoded"]), "prepared": each(prepared_parts, COVERS["prepared"]),
    "operands": each(operands_parts, COVERS["operands"]),
    "linear": each(linear_parts, COVERS["linear"]), "several-gpus": each(gpus_parts, COVERS["several-gpus"]), "runs": runs_parts,
    "accuracy": accuracy_parts, "profile": profile_parts, "checks": each(checks_parts, COVERS["checks"]),
}  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- the page


def committed_runs(folders: list[Folder]) -> list[Device]:
    """What the report shows without named folders: the newest run, the newest that covers the published kernels, the newest profile, and
    those that the sections and tables of each device take; newest first."""
    every = runs(folders)
    timed = [d for d in every if timed_on_gpu(d)]
    wanted: list[Device | None] = [*newest(timed, timed_on_gpu), *newest(timed, tables.covers_published)]
    wanted += newest(every, lambda d: any(f.has("profile.csv") for f in d.folders))
    for devices, covers in ((timed, list(COVERS.values())), (every, [of_tables(name) for name in (*accuracy.TABLES, *layers.TABLES)])):
        for name in dict.fromkeys(d.name for d in devices):
            own = [d for d in devices if d.name == name]
            wanted += [widest(own, list(map(cover, own))) for cover in covers]
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


def answers_of(devices: list[Device]) -> list[Answer]:
    """Of each GPU, from the run that covers the comparison, else the newest one that was timed; of the newest host where no GPU was."""
    found = []
    for timed in newest(devices, lambda d: bool(len(tables.correct(d.results, candidates=True, forwards=True)))):
        own = [d for d in devices if d.name == timed.name]
        found += newest(own, tables.covers_published) or newest(own, timed_on_gpu) or [timed]
    return list(map(_answer, found))


def _answer(device: Device) -> Answer:
    results = tables.on_the_device(tables.correct(device.results, candidates=True, forwards=True))
    transforms = results[results["family"] == "transform"]
    results = transforms if len(transforms) else results
    layout = "in place" if (results["layout"] == "in place").any() else results["layout"].iloc[0]
    results = results[results["layout"] == layout]
    dtype = tables.ordered(results["dtype"], DTYPES)[0]
    sizes = tables.sizes(results, dtype, device.l2_bytes)[::-1]
    over = tables.errors(device).set_index(["variant", "dtype", "n"])["over_ideal"]
    best = tables.best(results[results["dtype"] == dtype], forwards=True)
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
    made.filters |= {"time": tables.time_text, "percent": tables.percent, "fixed": tables.fixed, "ratio": tables.ratio_text}
    return made


def embedded(value: Any) -> str:
    """JSON, compressed by gzip (a tenth of it remains), as base64: nothing in it can end its script element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain)
    return base64.b64encode(gzip.compress(text.encode("utf-8"), mtime=0)).decode("ascii")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(type(value).__name__)


def names_of(devices: list[Device], evaluations: Sequence[Evaluation]) -> list[str]:
    """The devices between which the page switches, those of the answers first."""
    names = [answer.device.name for answer in answers_of(devices)] + [d.name for d in devices] + [e.written.about.device for e in evaluations]
    return list(dict.fromkeys(names))


def page(devices: list[Device], command: str, evaluations: Sequence[Evaluation] = ()) -> str:
    """The whole page; `devices`: runs, newest first."""
    import vl_convert

    charts.assign(v for d in devices for v in d.variants)
    sections = sections_of(devices, evaluations)
    names = dict.fromkeys([*(d.name for d in devices), *(e.written.about.model for e in evaluations if not devices)])
    bundle: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub asks for a snippet
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            title="fwht on " + " and ".join(names),
            devices=devices,
            answers=answers_of(devices),
            names=names_of(devices, evaluations),
            sections=[{"section": s, "parts": [{"part": p, "is_chart": isinstance(p, Chart)} for p in s.parts]} for s in sections],
            explorer=any(len(d.results) for d in devices),
            data=embedded(payload(devices, sections)),
            vega=Markup(bundle.replace("</script", "<\\/script")),
            script=Markup((TEMPLATES / "report.js").read_text(encoding="utf-8")),
            style=Markup((TEMPLATES / "report.css").read_text(encoding="utf-8")),
            mode_words=PARTS["modes"],
            provenance=[(folder, provenance(folder)) for d in devices for folder in d.folders] + [(e, e.provenance()) for e in evaluations],
            written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            command=command,
        )
    )


def write_report(devices: list[Device], output: Path, *, command: str = "", evaluations: Sequence[Evaluation] = ()) -> Path:
    """Writes the page; ResultsError where the path cannot be written."""
    return write_text(output, page(devices, command, evaluations))
