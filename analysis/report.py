"""One self-contained HTML page: provenance, summary, figures, tables. No script, style, font or image from outside."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import jinja2
import matplotlib
import numpy as np
import pandas as pd
from markupsafe import Markup

from . import baselines, figures, svg, tables
from .figures import Drawing
from .load import DTYPES, MODES, Device, Folder, layout_of

TEMPLATE_FOLDER = Path(__file__).parent
MODE_WORDS = {
    "alternating": "each launch is preceded by a copy of the same buffer, whose own share is subtracted: the honest figure for "
    "tensors that fit the L2",
    "replay": "the same kernel on the same buffer again and again, as published comparisons do; it flatters persistent kernels "
    "on L2-sized tensors",
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
    """Writes the page to `output` and, with `files`, every figure as SVG and PNG into `<stem>_figures/` beside it."""
    output = Path(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    figure_folder = output.parent / f"{output.stem}_figures"
    sheet = svg.Sheet()
    sections = []
    for index, device in enumerate(devices):
        prefix = f"d{index}-" if len(devices) > 1 else ""
        groups = {}
        for key, drawings in figures.draw_all(device).items():
            groups[key] = [
                _show(drawing, prefix, sheet, figure_folder if files else None) for drawing in drawings
            ]
        sections.append(_section(device, groups))
    page = (
        _environment()
        .get_template("report.html.j2")
        .render(
            title=_title(devices),
            sections=sections,
            sheet=Markup(sheet.css()),
            side_by_side=_side_by_side(devices),
            mode_words=MODE_WORDS,
            written=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            command=command,
        )
    )
    output.write_text(page, encoding="utf-8")
    return output


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


def error_text(value) -> str:
    return f"{value:.3e}" if value is not None and np.isfinite(value) else "–"


def _show(drawing: Drawing, prefix: str, sheet: svg.Sheet, folder: Path | None) -> Shown:
    root = svg.to_svg(drawing, prefix)
    if folder is not None:
        folder.mkdir(exist_ok=True)
        (folder / f"{prefix}{drawing.stem}.svg").write_text(svg.as_file(root), encoding="utf-8")
        with matplotlib.rc_context(figures.STYLE):
            drawing.figure.savefig(
                folder / f"{prefix}{drawing.stem}.png", dpi=150, metadata={"Software": None}
            )
    return Shown(drawing.title, drawing.caption, drawing.notes, Markup(svg.as_fragment(root, sheet)))


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
        "input": tables.main_input(device.accuracy),
        "best": _best_table(device, errors),
        "full": _full_table(device),
        "not_ok": _not_ok_table(device),
        "unsupported": _unsupported_table(device),
        "limits": _limits_table(device),
        "baselines": _baseline_table(device),
    }


def _provenance(folder: Folder) -> list[tuple[str, str]]:
    c = folder.context
    device, host = c["device"], c["host"]
    lines = [("folder", folder.name)]
    if device["present"]:
        lines += [
            ("device", f"{device['name']}, compute capability {device['compute_capability']}, {device['sm_count']} SMs, "
             f"{tables.byte_text(int(device['l2_bytes']))} L2, {tables.byte_text(int(device['memory_bytes']))} memory, "
             f"clock {int(device['clock_khz']) / 1e6:.2f} GHz"),
            ("driver", f"CUDA driver {_cuda_version(device['driver_version'])}, runtime {_cuda_version(device['runtime_version'])}"),
        ]  # fmt: skip
    else:
        lines.append(("device", f"none ({device.get('why_absent') or 'no reason given'})"))
    seeds = c["seeds"] if isinstance(c["seeds"], list) else [c["seeds"]]
    lines += [
        (
            "host",
            f"{host['name']}, {host['threads']} threads, {tables.byte_text(int(host['memory_bytes']))} memory",
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
    counts = device.results.groupby(["dtype", "mode"]).size()
    if counts.empty:
        return ""
    on_gpu = counts[counts.index.get_level_values("mode") != "host"]
    dtype, mode = (on_gpu if len(on_gpu) else counts).idxmax()
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


def _table(header: list[str], numeric: list[str], rows: list[list[str]]) -> Table:
    return Table(header, rows, {i for i, name in enumerate(header) if name in numeric})


def _best_table(device: Device, errors: pd.DataFrame) -> Table:
    header = ["dtype", "mode", "layout", "n", "rows", "elements", "variant", "time (µs)", "of limit", "error / one rounding",
              "error / predicted"]  # fmt: skip
    rows = []
    for row in tables.best(device.results).itertuples():
        key = (row.variant, row.dtype, row.n)
        over_ideal = errors["over_ideal"].get(key, float("nan"))
        rows.append([row.dtype, row.mode, row.layout, row.n, row.rows, row.elements, row.variant, f"{row.time_us:.3f}",
                     ratio_text(row.fraction_of_limit), ratio_text(over_ideal),
                     ratio_text(errors["over_predicted"].get(key, float("nan")))])  # fmt: skip
    return _table(header, [*header[3:6], *header[7:]], rows)


def _full_table(device: Device) -> Table:
    header = ["variant", "dtype", "mode", "layout", "n", "rows", "time (µs)", "least", "greatest", "limit (µs)", "of limit", "TB/s",
              "error / predicted", "settings"]  # fmt: skip
    rank = {v: i for i, v in enumerate(device.variants)}
    ok = device.results[device.results["status"] == "ok"]
    ok = ok.assign(rank=ok["variant"].map(rank))
    ok = ok.sort_values(["dtype", "mode", "layout", "n", "elements", "rank"], key=tables.display_rank)
    rows = [
        [r.variant, r.dtype, r.mode, r.layout, r.n, r.rows, f"{r.time_us:.3f}", f"{r.time_min_us:.3f}", f"{r.time_max_us:.3f}",
         f"{r.limit_us:.3f}", ratio_text(r.fraction_of_limit), f"{r.bytes_per_second / 1e12:.3f}", ratio_text(r.error_ratio),
         settings_text(r.settings)]
        for r in ok.itertuples()
    ]  # fmt: skip
    return _table(header, header[4:13], rows)


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
    header = ["variant", "source", "dtype", "n", "input", "measured", "predicted", "ratio", "max error / rms", "gain", "predicted gain",
              "bit match", "status"]  # fmt: skip
    rank = {v: i for i, v in enumerate(device.variants)}
    table = device.accuracy.assign(rank=device.accuracy["variant"].map(rank))
    table = table.sort_values(["dtype", "input", "n", "rank", "source"], key=tables.display_rank)
    rows = [
        [r.variant, r.source, r.dtype, r.n, r.input, error_text(r.rel_l2), error_text(r.predicted_rel_l2), ratio_text(r.ratio),
         error_text(r.max_error_over_rms), error_text(r.gain), error_text(r.predicted_gain), ratio_text(r.bit_match),
         f"{r.status}: {r.message}" if r.message else r.status]
        for r in table.itertuples()
    ]  # fmt: skip
    return _table(header, [header[3], *header[5:12]], rows)


def _not_ok_table(device: Device) -> Table:
    header = ["status", "variant", "dtype", "mode", "layout", "n", "rows", "error", "predicted", "message"]
    rows = [
        [
            r.status,
            r.variant,
            r.dtype,
            r.mode,
            r.layout,
            r.n,
            r.rows,
            error_text(r.rel_l2),
            error_text(r.predicted_rel_l2),
            r.message,
        ]
        for r in tables.not_ok(device).itertuples()
    ]
    return _table(header, header[5:9], rows)


def _unsupported_table(device: Device) -> Table:
    table = tables.unsupported_reasons(device)
    return _table(list(table.columns), [], table.values.tolist())


def _limits_table(device: Device) -> Table:
    """Per memory, mode, placement and size: the best copy kernel, its rate, and how many kernels it beat."""
    header = [
        "memory",
        "mode",
        "placement",
        "useful bytes",
        "best copy kernel",
        "time (µs)",
        "TB/s",
        "kernels",
    ]
    rows = []
    key = ["memory", "mode", "placement", "useful_bytes"]
    groups = device.limits.sort_values(key, key=tables.display_rank).groupby(key, sort=False)
    for (memory, mode, placement, useful), part in groups:
        copies = part[~part["kernel"].str.contains("empty")]
        if copies.empty:
            continue
        first = copies.loc[copies["time_us"].idxmin()]
        rows.append([memory, mode, layout_of(placement), useful, first["kernel"], f"{first['time_us']:.3f}",
                     f"{useful / first['time_us'] / 1e6:.3f}", len(copies)])  # fmt: skip
    return _table(header, [header[3], *header[5:]], rows)


def _baseline_table(device: Device) -> Table:
    header = [
        "variant",
        "published kernel",
        "dtype",
        "n",
        "elements",
        "mode",
        "of limit here",
        "of limit published",
        "difference",
    ]
    rows = [
        [r.variant, baselines.NAMES[r.method], r.dtype, r.n, r.elements, r.mode, ratio_text(r.fraction), ratio_text(r.baseline_fraction),
         f"{100 * r.relative_difference:+.1f} %"]
        for r in baselines.compare(device).itertuples()
    ]  # fmt: skip
    return _table(header, [*header[3:5], *header[6:]], rows)


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
            {"title": f"{dtype}, {mode}, {elements} elements", "table": _table(["n", *names], ["n"], rows)}
        )
    return shown


def _side_by_side_cell(row) -> str:
    return f"{percent_text(row.fraction_of_limit)}, {tables.time_text(row.time_us)}, {row.variant}"
