"""One self-contained HTML page: provenance, summary, figures, tables. It loads nothing from outside."""

from __future__ import annotations

import functools
import itertools
import json
import multiprocessing
import os
import xml.etree.ElementTree as ET
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
import matplotlib
import numpy as np
import pandas as pd
from markupsafe import Markup

from . import (
    accuracy,
    accuracy_figures,
    baselines,
    figures,
    paper,
    profile,
    profile_figures,
    profile_tables,
    static_code,
    svg,
    tables,
)
from .figures import Drawing
from .load import DTYPES, MODES, Device, Folder, layout_of

MANY_RESULTS = 2000  # from here on several processes draw; starting them takes a few seconds
TEMPLATE_FOLDER = Path(__file__).parent
MODE_WORDS = {
    "alternating": "each launch is preceded by a copy of the same buffer, whose own share is subtracted: the "
    "honest figure for "
    "tensors that fit the L2",
    "replay": "the same kernel on the same buffer again and again, as published comparisons do; it flatters "
    "persistent kernels "
    "on L2-sized tensors",
    "replay_pdl": "the same again and again by programmatic dependent launch: the variant and its limit's copies begin "
    "while the launch before still runs",
    "cold": "rotating over buffers of more than four times the L2: every launch reads from DRAM",
    "host": "the CPU, data in host memory; the limit is the best copy on the same CPU",
}


@dataclass(frozen=True)
class Shown:
    """A drawing as the template sees it."""

    title: str
    caption: str
    notes: list[str]
    svg: Markup


@dataclass(frozen=True)
class Table:
    """A plain table: header cells, rows of cell texts, and the columns that hold numbers (right-aligned)."""

    header: list[str]
    rows: list[list[str]]
    numeric: set[int]


def write_report(devices: list[Device], output: Path, *, files: bool = True, command: str = "") -> Path:
    """Writes the page and, with `files`, every figure as SVG and PNG into `<stem>_figures/` beside it."""
    output = Path(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    figure_folder = output.parent / f"{output.stem}_figures" if files else None
    if figure_folder:
        figure_folder.mkdir(exist_ok=True)
    sheet = svg.Sheet()
    sections = []
    for index, device in enumerate(devices):
        prefix = f"d{index}-" if len(devices) > 1 else ""
        groups = {
            name: [_shown(rendered, sheet) for rendered in drawn]
            for name, drawn in _render_groups(device, prefix, figure_folder).items()
        }
        profiles = _profiles(device, prefix, sheet, figure_folder)
        sections.append(_section(device, groups) | {"profiles": profiles})
    page = (
        _environment()
        .get_template("report.html.j2")
        .render(
            title=_title(devices),
            sections=sections,
            sheet=Markup(sheet.css()),
            side_by_side=_side_by_side(devices),
            mode_words=MODE_WORDS,
            written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            command=command,
        )
    )
    output.write_text(page, encoding="utf-8")
    return output


@dataclass(frozen=True)
class Rendered:
    """A drawing as SVG, its words beside it: what a process that drew it hands back."""

    title: str
    caption: str
    notes: list[str]
    root: ET.Element


def _render(drawing: Drawing, prefix: str, folder: Path | None) -> Rendered:
    root = svg.to_svg(drawing, prefix)
    if folder is not None:
        (folder / f"{prefix}{drawing.stem}.svg").write_text(svg.as_file(root), encoding="utf-8")
        with matplotlib.rc_context(figures.STYLE):
            drawing.figure.savefig(
                folder / f"{prefix}{drawing.stem}.png", dpi=150, metadata={"Software": None}
            )
    return Rendered(drawing.title, drawing.caption, drawing.notes, root)


def _render_group(device: Device, prefix: str, folder: Path | None, group: tuple[str, str, str]) -> list[Rendered]:
    drawings = figures.draw_group(device, *group)
    drawings += accuracy_figures.draw_all(device) if group[0] == "accuracy" else []
    return [_render(drawing, prefix, folder) for drawing in drawings]


def _render_groups(device: Device, prefix: str, folder: Path | None) -> dict[str, list[Rendered]]:
    """All groups, in as many processes as there are cores: drawing is what the report takes its time for."""
    groups = figures.groups(device)
    render = functools.partial(_render_group, device, prefix, folder)
    workers = min(os.cpu_count() or 1, len(groups))
    if len(device.results) < MANY_RESULTS or workers == 1:
        drawn = [render(group) for group in groups]
    else:
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            drawn = list(pool.map(render, groups))
    named = {name: rendered for (name, _, _), rendered in zip(groups, drawn, strict=True)}
    return {name: rendered for name, rendered in named.items() if rendered or name == "accuracy"}


def _shown(rendered: Rendered, sheet: svg.Sheet) -> Shown:
    return Shown(rendered.title, rendered.caption, rendered.notes, Markup(svg.as_fragment(rendered.root, sheet)))


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATE_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"time": tables.time_text, "percent": percent_text, "digits": digits_text}
    return environment


def _title(devices: list[Device]) -> str:
    return "fwht on " + " and ".join(device.name for device in devices)


def ratio_text(value) -> str:
    return f"{value:.3f}" if value is not None and np.isfinite(value) else "–"


def percent_text(value) -> str:
    return f"{100 * value:.0f} %" if value is not None and np.isfinite(value) else "–"


def digits_text(value) -> str:
    return f"{value:.2f}" if np.isfinite(value) else "–"


def whole_text(value) -> str:
    return f"{value:.0f}" if np.isfinite(value) else "–"


def error_text(value) -> str:
    return f"{value:.3e}" if value is not None and np.isfinite(value) else "–"


def _profiles(device: Device, prefix: str, sheet: svg.Sheet, folder: Path | None) -> list[dict]:
    """For each folder with a profile: its words, figures and tables."""
    shown: list[dict] = []
    for index, source in enumerate(device.folders):
        found = profile.load_profile(source.path, source.context)
        static = static_code.load_static(source.path)
        if found is None and static is None:
            continue
        entry: dict = {"name": source.name, "drawings": [], "tables": [], "about": None}
        if found is not None:
            mark = f"{prefix}p{index}-" if shown else prefix
            entry["about"] = found.about
            entry["drawings"] = [
                _shown(_render(d, mark, folder), sheet) for d in profile_figures.draw_all(found)
            ]
            entry["tables"] = [("measured peaks", _text_table(*profile_tables.peaks_table(found), text={0, 2}))]
            entry["tables"] += [
                (study, _text_table(*profile_tables.problems_table(found, study)))
                for study in found.about["studies"]
            ]
        if static is not None:
            entry["tables"].append(("compiled code", _text_table(*profile_tables.static_rows(static, found))))
        shown.append(entry)
    return shown


def _text_table(header: list[str], rows: list[list[str]], text: set[int] | None = None) -> Table:
    """Columns of words are found by their cells unless `text` names them."""
    if text is None:
        text = {i for i in range(len(header)) if any(cell[:1].isalpha() for cell in (row[i] for row in rows))}
    return Table(header, rows, set(range(len(header))) - text)


def _section(device: Device, groups: dict[str, list[Shown]]) -> dict:
    errors = tables.errors(device).set_index(["variant", "dtype", "n"])
    dtypes, modes = tables.dtypes_of(device), tables.modes_of(device)
    headline = [_summary_view(tables.headline(device, dtype), errors) for dtype in dtypes]
    by_mode = {m: [_summary_view(tables.summary(device, d, m), errors) for d in dtypes] for m in modes}
    counts = device.results["status"].value_counts()
    return {
        "device": device,
        "folders": [_provenance(folder) for folder in device.folders],
        "newest": device.newest,
        "counts": {status: int(counts.get(status, 0)) for status in ("ok", "incorrect", "failed")},
        "modes": modes,
        "headline": [view for view in headline if view["rows"]],
        "by_mode": {mode: [view for view in views if view["rows"]] for mode, views in by_mode.items()},
        "open_group": _largest_group(device),
        "groups": groups,
        "accuracy": _accuracy_table(device),
        "analysis": _analysis_parts(device),
        "input": tables.main_input(device.accuracy),
        "best": _best_table(device, errors),
        "full": _full_table(device),
        "not_ok": _not_ok_table(device),
        "unsupported": _unsupported_table(device),
        "limits": _limits_table(device),
        "baselines": _baseline_table(device),
        "verdicts": baselines.verdict_lines(baselines.compare(device).assign(device=device.name)),
        "paper": _paper_parts(device),
    }


def _provenance(folder: Folder) -> list[tuple[str, str]]:
    c = folder.context
    device, host = c["device"], c["host"]
    lines = [("folder", folder.name)]
    if device["present"]:
        lines += [
            (
                "device",
                f"{device['name']}, compute capability {device['compute_capability']}, "
                f"{device['sm_count']} SMs, "
                f"{tables.byte_text(int(device['l2_bytes']))} L2, "
                f"{tables.byte_text(int(device['memory_bytes']))} memory, "
                f"clock {int(device['clock_khz']) / 1e6:.2f} GHz",
            ),
            (
                "driver",
                f"CUDA driver {_cuda_version(device['driver_version'])}, runtime "
                f"{_cuda_version(device['runtime_version'])}",
            ),
        ]
    else:
        lines.append(("device", f"none ({device.get('why_absent') or 'no reason given'})"))
    seeds = c["seeds"] if isinstance(c["seeds"], list) else [c["seeds"]]
    lines += [
        (
            "host",
            f"{host['name']}, {host['threads']} threads, {tables.byte_text(int(host['memory_bytes']))} "
            "memory",
        ),
        ("commit", c["commit"] + (" with uncommitted changes (dirty)" if c["dirty"] else ", clean")),
        ("sources hash", c["sources_hash"]),
        ("version", f"{c['version']}, {c['build_type']}"),
        ("C++", f"{c['cxx']}  {c['cxx_flags']}"),
        ("CUDA", f"{c['cuda']}  {c['cuda_flags']}".strip() or "none"),
        (
            "run",
            f"{c['utc_start']} to {c['utc_end'] or 'unknown'}" + ("" if c["complete"] else ", INCOMPLETE"),
        ),
        *(("command", " ".join(run["argv"])) for run in c.get("runs") or [{"argv": c["argv"]}]),
        ("grid", f"{_plain(c['grid'])}; seeds {', '.join(map(str, seeds))}"),
    ]
    return lines


def _plain(value) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _cuda_version(version) -> str:
    """13000 -> 13.0; other texts stay."""
    try:
        number = int(version)
    except (TypeError, ValueError):
        return str(version)
    return f"{number // 1000}.{number % 1000 // 10}"


def _largest_group(device: Device) -> str:
    """The group of figures with the most measurements, GPU before CPU: the one that is shown unfolded."""
    counts = device.results.groupby(["dtype", "mode"]).size().to_dict()
    groups = itertools.product(tables.dtypes_of(device), tables.modes_of(device))
    dtype, mode = max(groups, key=lambda g: (g[1] != "host", counts.get(g, 0)), default=("", ""))
    return f"{dtype}, mode {mode}"


def _summary_view(summary: tables.Summary, errors: pd.DataFrame) -> dict:
    """What the template needs of a summary: sizes with titles, rows with cells."""
    compared = {size for _, size in summary.published}
    sizes = [
        {"title": size.title(summary.dtype), "mode": size.mode, "published": size in compared}
        for size in summary.sizes
    ]
    rows = [
        {"n": n, "cells": [_summary_cell(summary, n, size, errors) for size in summary.sizes]}
        for n in summary.ns
    ]
    return {"dtype": summary.dtype, "layout": summary.layout, "sizes": sizes, "rows": rows}


def _summary_cell(summary: tables.Summary, n: int, size: tables.Size, errors: pd.DataFrame) -> dict | None:
    row = summary.cells.get((n, size))
    if row is None:
        return None
    fraction = row["fraction_of_limit"]
    method, other = summary.published.get((n, size), ("", None))
    short = "HadaCore" if method == "hadacore" else "FHT"
    return {
        "variant": row["variant"],
        "fraction": fraction,
        "bar": round(100 * min(1.0, fraction)) if np.isfinite(fraction) else 0,
        "time": row["time_us"],
        "error": errors["over_ideal"].get((row["variant"], summary.dtype, n), float("nan")),
        "published": "" if other is None else f"{percent_text(other)} {short}",
    }


@dataclass(frozen=True)
class Column:
    """A column of a table: the field of the data frame, how it is written, whether it is a number."""

    field: str
    text: Callable[[Any], str] = str
    number: bool = False


def _number(field: str, text: Callable[[Any], str] = str) -> Column:
    return Column(field, text, number=True)


def _table(frame: pd.DataFrame, columns: dict[str, Column]) -> Table:
    """`columns` by their headers."""
    texts = [[column.text(value) for value in frame[column.field]] for column in columns.values()]
    numeric = {i for i, column in enumerate(columns.values()) if column.number}
    return Table(list(columns), [list(row) for row in zip(*texts, strict=True)], numeric)


def _in_ladder_order(frame: pd.DataFrame, device: Device, keys: list[str]) -> pd.DataFrame:
    """Sorted by `keys`, in which "rank" stands for the variant's place in the ladder."""
    rank = {variant: i for i, variant in enumerate(device.variants)}
    return frame.assign(rank=frame["variant"].map(rank)).sort_values(keys, key=tables.display_rank)


def _best_table(device: Device, errors: pd.DataFrame) -> Table:
    frame = tables.best(device.results).merge(
        errors[["over_ideal", "over_predicted"]],
        how="left",
        left_on=["variant", "dtype", "n"],
        right_index=True,
    )
    return _table(
        frame,
        {
            "dtype": Column("dtype"),
            "mode": Column("mode"),
            "layout": Column("layout"),
            "n": _number("n"),
            "rows": _number("rows"),
            "elements": _number("elements"),
            "variant": Column("variant"),
            "time (µs)": _number("time_us", ratio_text),
            "of limit": _number("fraction_of_limit", ratio_text),
            "error / one rounding": _number("over_ideal", ratio_text),
            "error / predicted": _number("over_predicted", ratio_text),
        },
    )


def _full_table(device: Device) -> Table:
    ok = device.results[device.results["status"] == "ok"]
    return _table(
        _in_ladder_order(ok, device, ["dtype", "mode", "layout", "n", "elements", "rank"]),
        {
            "variant": Column("variant"),
            "dtype": Column("dtype"),
            "mode": Column("mode"),
            "layout": Column("layout"),
            "n": _number("n"),
            "rows": _number("rows"),
            "time (µs)": _number("time_us", ratio_text),
            "least": _number("time_min_us", ratio_text),
            "greatest": _number("time_max_us", ratio_text),
            "limit (µs)": _number("limit_us", ratio_text),
            "of limit": _number("fraction_of_limit", ratio_text),
            "TB/s": _number("bytes_per_second", lambda v: ratio_text(v / 1e12)),
            "error / predicted": _number("error_ratio", ratio_text),
            "settings": Column("settings", settings_text),
        },
    )


def settings_text(text: str) -> str:
    """'{"grid": 4, "threads": 256}' -> "grid 4, threads 256"; anything else stays as it is."""
    try:
        settings = json.loads(text)
    except ValueError:
        return text
    if not isinstance(settings, dict):
        return text
    return ", ".join(f"{key} {value}" for key, value in settings.items())


def _accuracy_table(device: Device) -> Table:
    frame = _in_ladder_order(device.accuracy, device, ["dtype", "input", "n", "rank", "source"])
    outcome = frame["status"].where(frame["message"] == "", frame["status"] + ": " + frame["message"])
    return _table(
        frame.assign(outcome=outcome),
        {
            "variant": Column("variant"),
            "source": Column("source"),
            "dtype": Column("dtype"),
            "n": _number("n"),
            "input": Column("input"),
            "measured": _number("rel_l2", error_text),
            "predicted": _number("predicted_rel_l2", error_text),
            "ratio": _number("ratio", ratio_text),
            "best row": _number("rel_l2_min_row", error_text),
            "worst row": _number("rel_l2_max_row", error_text),
            "max error / rms": _number("max_error_over_rms", error_text),
            "gain": _number("gain", error_text),
            "predicted gain": _number("predicted_gain", error_text),
            "bit match": _number("bit_match", ratio_text),
            "status": Column("outcome"),
        },
    )


def _analysis_parts(device: Device) -> list[dict]:
    """Titles, sentences and tables of what the accuracy experiments found; only those that were run."""
    parts: list[dict] = []
    for requirement in accuracy.requirements(device):
        words = f"{'Holds' if requirement.holds else 'Does not hold'}: {requirement.words} ({requirement.detail})."
        parts.append({"title": "", "text": words, "table": None})
    for title, text, frame, columns in _analysis_tables(device):
        if len(frame):
            parts.append({"title": f"{title} ({len(frame)} rows)", "text": text, "table": _table(frame, columns)})
    return parts


def _shape_tables(device: Device):
    for d, n in accuracy.attention_shapes(device):
        yield (
            f"FP8 attention, d = {d}, n = {n}",
            "RMSE against FP64; methods that rotate show the median over variants and the range.",
            accuracy.attention_table(device, d, n),
            {
                "method": Column("method"),
                "choice": Column("choice"),
                "RMSE": _number("rmse", error_text),
                "mean over heads": _number("rmse_mean", error_text),
                "standard error": _number("standard_error", error_text),
                "spread": _number("rmse_spread", error_text),
                "published": _number("published", error_text),
                "ratio": _number("ratio", ratio_text),
                "variants": _number("variants"),
                "least": _number("low", error_text),
                "greatest": _number("high", error_text),
                "heads": _number("heads"),
                "rows of a head": _number("rows_per_head"),
            },
        )


def _analysis_tables(device: Device):
    """(title, words, data frame, columns) of every table."""
    yield (
        "Measured over predicted error by variant",
        "f16 and bf16 on continuous inputs: range against the formula, and against the prediction for the data.",
        accuracy.ratio_summary(device),
        {
            "variant": Column("variant"),
            "source": Column("source"),
            "dtype": Column("dtype"),
            "cases": _number("cases"),
            "least": _number("low", ratio_text),
            "greatest": _number("high", ratio_text),
            "least, data": _number("low_for_data", ratio_text),
            "greatest, data": _number("high_for_data", ratio_text),
            "outside": _number("outside"),
            "explained": _number("explained"),
        },
    )
    yield (
        "Deviations from the formula and their causes",
        "What has a cause is inside the window again once the model follows its roundings through the data.",
        accuracy.findings(device),
        {
            "cause": Column("words"),
            "cases": _number("cases"),
            "inputs": Column("inputs"),
            "variants": Column("variants"),
            "smallest n": _number("smallest_n"),
            "largest n": _number("largest_n"),
            "least": _number("low", ratio_text),
            "greatest": _number("high", ratio_text),
            "least, data": _number("low_for_data", ratio_text),
            "greatest, data": _number("high_for_data", ratio_text),
        },
    )
    for dtype in ("f16", "bf16", "f32"):
        yield (
            f"Gain on normal data, {dtype}",
            "The error that all results share, its sampling deviation, and what the model predicts.",
            accuracy.gains(device, dtype),
            {
                "variant": Column("variant"),
                "source": Column("source"),
                "n": _number("n"),
                "gain": _number("gain", error_text),
                "standard deviation": _number("gain_spread", error_text),
                "predicted": _number("predicted_gain", error_text),
                "in standard deviations": _number("deviations", digits_text),
            },
        )
    yield (
        "Tensor cores",
        "What the probes found; mismatches are bitwise differences from the model.",
        accuracy.probe_summary(device) if len(device.probes) else pd.DataFrame(),
        {
            "source": Column("source"),
            "instruction": Column("instruction"),
            "operands": Column("operand"),
            "accumulator": Column("accumulator"),
            "fraction bits": _number("fraction_bits", whole_text),
            "products at once": _number("fused_products", whole_text),
            "vectors": _number("vectors"),
            "mismatches": _number("mismatches"),
            "changed by order": _number("order", whole_text),
            "truncation gain": _number("gain", error_text),
            "agrees": Column("agrees"),
        },
    )
    yield (
        "Where spurious overflow begins",
        "The smallest 2-norm over 65504 at which a finite result came out infinite or NaN.",
        accuracy.overflow_onset(device) if len(device.overflow) else pd.DataFrame(),
        {
            "variant": Column("variant"),
            "source": Column("source"),
            "n": _number("n"),
            "shape": Column("shape"),
            "begins at": _number("onset", ratio_text),
            "tested up to": _number("largest_tested", ratio_text),
        },
    )
    yield (
        "What rotation does for quantized tokens",
        "f16 tokens, exact rotation; positive gains help.",
        accuracy.rotation_gain(device) if len(device.quantization) else pd.DataFrame(),
        {
            "format": Column("format"),
            "input": Column("input"),
            "n": _number("n"),
            "without": _number("rel_l2_plain", error_text),
            "rotated": _number("rel_l2_rotated", error_text),
            "gain (dB)": _number("gain_db", digits_text),
            "gain of the bulk (dB)": _number("bulk_gain_db", digits_text),
            "peak / RMS without": _number("peak_over_rms_plain", digits_text),
            "rotated ": _number("peak_over_rms_rotated", digits_text),
        },
    )
    yield (
        "What a variant's own rounding adds to quantization",
        "The case in which it adds most, against exact rotation.",
        accuracy.transform_visibility(device) if len(device.quantization) else pd.DataFrame(),
        {
            "variant": Column("variant"),
            "source": Column("source"),
            "dtype": Column("dtype"),
            "format": Column("format"),
            "input": Column("input"),
            "n": _number("n"),
            "adds": _number("added", lambda v: f"{100 * v:.2f} %"),
            "transform": _number("transform_rel_l2", error_text),
            "quantization": _number("exact", error_text),
        },
    )
    yield from _shape_tables(device)


def _not_ok_table(device: Device) -> Table:
    return _table(
        tables.not_ok(device),
        {
            "status": Column("status"),
            "variant": Column("variant"),
            "dtype": Column("dtype"),
            "mode": Column("mode"),
            "layout": Column("layout"),
            "n": _number("n"),
            "rows": _number("rows"),
            "error": _number("rel_l2", error_text),
            "predicted": _number("predicted_rel_l2", error_text),
            "message": Column("message"),
        },
    )


def _unsupported_table(device: Device) -> Table:
    table = tables.unsupported_reasons(device)
    return _table(table, {name: Column(name) for name in table.columns})


def _limits_table(device: Device) -> Table:
    """Per memory, mode, placement and size: the best copy kernel, its rate, how many were tried."""
    key = ["memory", "mode", "placement", "useful_bytes"]
    copies = device.limits[~device.limits["kernel"].str.contains("empty")]
    copies = copies.sort_values([*key, "time_us"], key=tables.display_rank)
    counts = copies.groupby(key).size().rename("kernels")
    frame = copies.drop_duplicates(key).join(counts, on=key)
    return _table(
        frame.assign(rate=frame["useful_bytes"] / frame["time_us"] / 1e6),
        {
            "memory": Column("memory"),
            "mode": Column("mode"),
            "placement": Column("placement", layout_of),
            "useful bytes": _number("useful_bytes"),
            "best copy kernel": Column("kernel"),
            "time (µs)": _number("time_us", ratio_text),
            "TB/s": _number("rate", ratio_text),
            "kernels": _number("kernels"),
        },
    )


def _baseline_table(device: Device) -> Table:
    return _table(
        baselines.compare(device),
        {
            "variant": Column("variant"),
            "published kernel": Column("method", baselines.NAMES.__getitem__),
            "dtype": Column("dtype"),
            "n": _number("n"),
            "elements": _number("elements"),
            "mode": Column("mode"),
            "of limit here": _number("fraction", ratio_text),
            "of limit published": _number("baseline_fraction", ratio_text),
            "difference": _number("relative_difference", lambda v: f"{100 * v:+.1f} %"),
            "bound": Column("verdict"),
        },
    )


def _paper_parts(device: Device) -> list[dict]:
    """The paper's comparison, one entry per heading; empty when the run has too few of its points."""
    if not paper.covers_paper(device):
        return []
    parts: list[dict] = [{"title": "", "blocks": []}]
    for block in paper.blocks(device):
        if block.kind == "heading":
            parts.append({"title": block.text, "blocks": []})
            continue
        text_columns = {i for i, name in enumerate(block.header) if name in paper.TEXT_COLUMNS}
        numeric = set(range(len(block.header))) - text_columns
        table = Table(list(block.header), [list(row) for row in block.rows], numeric)
        parts[-1]["blocks"].append({"kind": block.kind, "text": block.text, "table": table})
    return parts


def _side_by_side(devices: list[Device]) -> list[dict]:
    """One table per dtype and mode that several devices measured; empty for a single device."""
    shown = []
    for mode, dtype in itertools.product(MODES, DTYPES):
        able = [d for d in devices if ((d.results["mode"] == mode) & (d.results["dtype"] == dtype)).any()]
        table = tables.side_by_side(able, dtype, mode) if len(able) > 1 else pd.DataFrame()
        if table.empty:
            continue
        names = [d.name for d in able]
        cells = {(r.n, r.device): _side_by_side_cell(r) for r in table.itertuples()}
        rows = [[n, *(cells.get((n, name), "–") for name in names)] for n in sorted(table["n"].unique())]
        elements = tables.binary(int(table["elements"].iloc[0]))
        shown.append(
            {"title": f"{dtype}, {mode}, {elements} elements", "table": Table(["n", *names], rows, {0})}
        )
    return shown


def _side_by_side_cell(row) -> str:
    return f"{percent_text(row.fraction_of_limit)}, {tables.time_text(row.time_us)}, {row.variant}"
