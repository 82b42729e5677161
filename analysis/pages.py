"""The generated pages: docs/results.md, docs/variants.md, analysis/FINDINGS.md, analysis/ACCURACY.md, the figures of docs/, and a section
each of the pages of SECTIONS. `templates/*.md.j2` hold the sentences; the numbers are
queries of this file, of tables, layers and accuracy.

What each variant supports comes from the code itself (`fwht_sweep --list-json`), the rest from committed results folders. All are
pure functions of their sources, so writing twice changes nothing.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from . import accuracy, charts, layers, ncu, profile, static_code, tables, tune
from .charts import PARTS, TEMPLATES, escaped
from .load import DTYPES, ELEMENT_BYTES, Device, Folder, ResultsError, committed_files, committed_folders, merge, newest, runs, timed_on_gpu, write_text
from .models import Layers, Rows, committed_evaluations
from .report import answers_of, error_against_speed, speed, with_words
from .schema import read_json
from .tables import PUBLISHED, fixed, significant

README_N = (128, 1024, 4096, 8192, 16384, 32768)
FIGURES = Path("docs") / "figures"
NONE = "–"


@cache
def environment() -> jinja2.Environment:
    """For Markdown: text of folders goes through the filter `md`."""
    made = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
                              keep_trailing_newline=True)  # fmt: skip
    made.filters |= charts.FORMATS | {"md": escaped, "significant": significant, "ratio": tables.ratio_text}
    made.globals["named"] = named
    return made


def named(name: str, devices: Sequence[Any]) -> str:
    """What stands in front of a number of one of `devices`: nothing where there is one alone."""
    return f"{escaped(name.removeprefix('NVIDIA '))}: " if len(devices) > 1 else ""


def render(template: str, **values: Any) -> str:
    text = environment().get_template(template).render(**values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


@cache
def _cell(text: str) -> jinja2.Template:
    return environment().from_string(text)


def drawn(id: str, frame: pd.DataFrame, **words: Any) -> str:
    """The Markdown table that parts.toml declares as pages.`id`; its cells see the columns of a row and `words`. "" without rows."""
    part = PARTS["pages"][id]
    by, across, sort = part.get("by", "").split(), part.get("across", ""), part.get("sort", "").split()
    lines: dict[tuple, list[dict[str, Any]]] = {}
    places: dict[Any, dict[str, Any]] = {}
    for i, row in enumerate(words | row for row in frame.to_dict("records")):
        lines.setdefault(tuple(row[name] for name in by) or (i,), []).append(row)
        if across:
            places.setdefault(row[across], row)
    if not lines:
        return ""
    columns = {name: part.get(name, []) for name in ("first", "cells", "last")}

    def show(name: str, row: dict[str, Any], which: int) -> list[str]:
        return [_cell(column[which]).render(row) for column in columns[name]]

    ways = sorted(places) if "places" in sort else list(places)
    any_row = next(iter(lines.values()))[0]
    header = [*show("first", any_row, 0), *(title for place in ways for title in show("cells", places[place], 0)), *show("last", any_row, 0)]
    rows = []
    for key in sorted(lines) if "lines" in sort else lines:
        found = {row.get(across): row for row in reversed(lines[key])}
        cells = (show("cells", found[place], 1) if place in found else [NONE] * len(columns["cells"]) for place in ways)
        rows.append([*show("first", lines[key][0], 1), *(text for cell in cells for text in cell), *show("last", lines[key][-1], 1)])
    return charts.markdown(header, _merged(rows) if part.get("merge") else rows, numeric=part.get("numeric", "rest"))


def _merged(rows: Iterable[list[str]]) -> list[list[str]]:
    """Rows that differ in their first cell only, as one."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, *cells in rows:
        names.setdefault(tuple(cells), []).append(name)
    return [[", ".join(who), *cells] for cells, who in names.items()]


# ------------------------------------------------------------------------------------------------ README, docs/results.md


def comparison(device: Device, dtype: str, ns: Iterable[int] = (), *, small=True) -> str:
    """OWN beside a copy and beside the published kernels, for `ns` or all n that were compared; without them where none was timed there."""
    frame = tables.comparison(device, dtype)
    frame = frame if small else frame[frame["label"] != "small"]
    if ns:
        every = pd.MultiIndex.from_product([dict.fromkeys(frame["place"]), list(ns)], names=["place", "n"])
        frame = frame.set_index(["place", "n"]).reindex(every).reset_index().assign(dtype=dtype)
        return drawn("comparison" if frame[list(PUBLISHED)].notna().any(axis=None) else "share", frame)
    compared = frame.dropna(subset=list(PUBLISHED), how="all")["n"]
    return drawn("comparison", frame[frame["n"].isin(compared)])


def model_values(root: Path) -> dict[str, Any]:
    """What README and docs/models.md show of the newest committed evaluation of each device."""
    newest_of = {evaluation.written.about.device: evaluation for evaluation in reversed(committed_evaluations(root))}
    return {"evaluations": [newest_of[name] for name in sorted(newest_of)], "verdicts_table": lambda e: drawn("verdicts", e.verdicts),
            "rotations_table": lambda e: drawn("rotations", e.by_rotation), "cost_table": lambda e: drawn("cost", e.cost)}  # fmt: skip


def newest_of_bench(kind: type[Rows | Layers], name: str, root: Path) -> list[tuple[str, Any]]:
    """Folder and contents of each device's newest committed run of a clean tree, in the order of the devices' names."""
    found = [(file.parent.name, read_json(file, kind)) for file in committed_files(name, root)]
    clean = sorted((each for each in found if not each[1].about["library"]["dirty"]), key=lambda each: each[1].about["utc_start"])
    newest_of = {run.about["device"]: (folder, run) for folder, run in clean}
    return [newest_of[device] for device in sorted(newest_of)]


def attention_values(root: Path) -> dict[str, Any]:
    """What docs/quantize.md shows of the newest committed run of `python -m fwht.bench attention`."""
    return {"attention": newest_of_bench(Rows, "attention.json", root),
            "attention_times": lambda run: drawn("attention-times", pd.DataFrame(run.rows).drop_duplicates(["tokens", "case"])),
            "attention_errors": lambda run: drawn("attention-errors", pd.DataFrame(run.rows))}  # fmt: skip


def bench_layers_values(root: Path) -> dict[str, Any]:
    """What docs/linear.md shows of the newest committed run of `python -m fwht.bench layers`."""
    return {"layers_runs": newest_of_bench(Layers, "layers.json", root), "layers_times": lambda run: drawn("layers-times", pd.DataFrame(run.times)),
            "layers_errors": lambda run: drawn("layers-errors", pd.DataFrame(run.errors)),
            "layers_host": lambda run: drawn("layers-host", pd.DataFrame(run.host))}  # fmt: skip


def chains_values(root: Path) -> dict[str, Any]:
    """What docs/integrations.md and docs/long_vectors.md show of the newest committed runs of `python -m fwht.bench chains` and `walsh`."""

    def table(run: Rows) -> str:
        frame = pd.DataFrame(run.rows)
        for side in ("chain_launches", "ours_launches"):
            frame[side] = [NONE if pd.isna(count) else str(int(count)) for count in frame[side]]
        return drawn("walsh" if "rows" in frame else "chains", frame)

    def beside_dense(run: Rows) -> pd.DataFrame:
        """Rounds of rows that no L2 holds, beside a dense product."""
        frame = pd.DataFrame(run.rows)
        return frame[(frame["chain"] == "rounds_dense") & (frame["n"] * frame["rows"] > 1 << 25)]

    return {"chains": newest_of_bench(Rows, "chains.json", root), "walsh": newest_of_bench(Rows, "walsh.json", root), "chains_table": table,
            "rounds_beside_dense": beside_dense}  # fmt: skip


def long_values(root: Path) -> dict[str, Any]:
    """What docs/long_vectors.md and README show of each device's newest committed run of `python -m fwht.bench long`."""
    return {"long_runs": [_long_run(folder, run) for folder, run in newest_of_bench(Rows, "long.json", root)]}


def _long_run(folder: str, run: Rows) -> dict[str, Any]:
    frame = pd.DataFrame(run.rows).assign(power=lambda f: [int(n).bit_length() - 1 for n in f["n"]])
    order = {name: place for place, name in enumerate([*DTYPES, *run.about["cases"]])}

    def place(column: pd.Series) -> pd.Series:
        return column.map(order) if column.name in ("dtype", "case") else column

    frame = frame.sort_values(["dtype", "rows", "n", "mode", "case"], key=place, kind="stable")
    timed = frame[frame["time_us"].notna()]
    return {"about": run.about, "folder": folder, "gains": _long_gains(timed), "table": lambda: drawn("long", timed),
            "without": frame[frame["time_us"].isna()].to_dict("records")}  # fmt: skip


def _long_gains(timed: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """By peer that works out of place: its time over ours, of one fp32 vector in mode cold, with n."""
    vectors = timed[(timed["dtype"] == "f32") & (timed["rows"] == 1) & (timed["mode"] == "cold")]
    times = vectors.pivot_table(index="n", columns="case", values="time_us")
    found = {peer: (times[peer] / times["fwht"]).dropna() for peer in ("cufft", "butterflies") if {peer, "fwht"} <= set(times)}
    return {peer: gains.rename("gain").reset_index() for peer, gains in found.items() if len(gains)}


LADDER_N = (128, 1024, 4096, 8192, 16384, 32768, 65536)


def ladder_table(device: Device, dtype: str, size: tables.Size) -> str:
    """By variant: share of the copy at LADDER_N, and the range of the error over one rounding."""
    over = tables.errors(device)
    spans = over[(over["dtype"] == dtype) & (over["n"] >= tables.SMALLEST_N)].groupby("variant")["over_ideal"].agg(["min", "max"])
    span = {v: " to ".join(dict.fromkeys((fixed(r["min"]), fixed(r["max"])))) for v, r in spans.iterrows()}
    frame = tables.every_share(device, dtype)
    frame = frame[(frame["label"] == size.label) & frame["n"].isin(LADDER_N)]
    return drawn("ladder", frame.assign(span=frame["variant"].map(span).fillna(NONE)))


def width_ranges(device: Device) -> str:
    """Least, median and greatest share of `kronecker` over the row lengths m 2^k, by size and type."""
    frame = tables.by_width(device)
    parts = frame[(frame["family"] == "width") & (frame["variant"] == "kronecker")].groupby(["size", "dtype"], sort=False)["fraction_of_limit"]
    return drawn("width-ranges", parts.agg(["count", "min", "median", "max"]).reset_index())


def fused_table(device: Device, size: str = "", *, widths=False) -> str:
    """By encoding and size, all or those of one regime: share of the copy and gain over the pair at every n = 2^k, or at every row length
    m 2^k. Empty where none was measured."""
    frame = tables.nearest_to_limit(tables.fused(device), ["dtype", "encoding", "size", "n"])
    return drawn("fused", frame[frame["size"].str.startswith(size) & ((frame["n"] & (frame["n"] - 1) != 0) == widths)])


MOST_CODED_N = 32768  # of the gains of codes that README shows


def overview(
    wide: list[Device], coded: list[Device], linear: list[Device], parallel: list[Device], crowded: list[Device]
) -> dict[str, dict[str, Any]]:
    """What README says beyond the headline, by kind and device: rows of m 2^k, gains of codes by format, linear layers, layers over the
    most GPUs, published kernels at many row counts."""
    found: dict[str, dict[str, Any]] = {kind: {} for kind in ("widths", "codes", "layers", "gpus", "rows")}
    for device in crowded:
        frame = peer_rows(device)
        frame = frame.assign(bytes=frame["elements"] * frame["dtype"].map(ELEMENT_BYTES))
        found["rows"][device.name] = frame.groupby("name").agg(
            mean=("ratio", tables.geometric_mean), least=("ratio", "min"), greatest=("ratio", "max"), problems=("ratio", "size"),
            places=("layout", _places), smallest=("bytes", "min"), largest=("bytes", "max"))  # fmt: skip
    for device in wide:
        frame = tables.by_width(device)
        found["widths"][device.name] = frame[(frame["family"] == "width") & (frame["dtype"] == "f16") & frame["size"].str.startswith("DRAM")]
    for device in coded:
        part = tables.fused(device)
        part = part[part["size"].str.startswith("DRAM") & part["gain"].notna() & (part["n"] <= MOST_CODED_N)].sort_values("time_us", kind="stable")
        part = part.drop_duplicates([c for c in tables.PROBLEM if c != "elements"])  # the fastest variant of each problem
        found["codes"][device.name] = {f: gains for f in ("e4m3:row", "int8:row", "mxfp4") if len(gains := part[part["format"] == f]["gain"])}
    for device in linear:
        found["layers"][device.name] = layers.over_dense(device).query("m <= 32 and n == k")
    for device in parallel:
        frame = layers.speedups(device)
        found["gpus"][device.name] = frame[frame["ranks"] == frame["ranks"].max()]
    return {kind: {name: part for name, part in parts.items() if len(part)} for kind, parts in found.items()}


def _places(layouts: pd.Series) -> str:
    return " and ".join(tables.ordered(layouts, ("in place", "out of place"))).replace("in place and out", "in and out")


MOST_PEER_ROWS = 100  # that are shown one by one


def peer_rows(device: Device) -> pd.DataFrame:
    """tables.beside_peers of kernels, by the names that they have in words."""
    frame = tables.beside_peers(device)
    frame = frame[~frame["peer"].str.startswith("python:")]
    return frame.assign(name=[PARTS["peers"].get(p, p) for p in frame["peer"]]).sort_values(["name", "n", "rows", "dtype"], kind="stable")


def peers_table(device: Device) -> str:
    """Kernels of others beside the best variant on the same problem: times, theirs over ours, errors over one rounding."""
    return drawn("peers", peer_rows(device))


def has_few_peers(device: Device) -> bool:
    return 0 < len(peer_rows(device)) <= MOST_PEER_ROWS


def has_many_peers(device: Device) -> bool:
    return len(peer_rows(device)) > MOST_PEER_ROWS


def many_peers_table(device: Device) -> str:
    """The same of many problems: by kernel, length and mode how many times as long it takes, and where least."""
    rows = peer_rows(device)
    found = []
    for (name, n, operator, mode), part in rows.groupby(["name", "n", "operator", "mode"], sort=False):
        least = part.loc[part["ratio"].idxmin()]
        found.append({"name": name, "n": n, "operator": operator, "mode": mode, "points": len(part), "mean": math.exp(np.log(part["ratio"]).mean()),
                      "least": least["ratio"], "greatest": part["ratio"].max(),
                      "where": f"{least['dtype']}, {least['rows']} row{'s' if least['rows'] > 1 else ''}, {least['layout']}"})  # fmt: skip
    return drawn("many-peers", pd.DataFrame(found).sort_values(["name", "mode", "n"], kind="stable"))


def results_values(devices: list[Device]) -> dict[str, Any]:
    """What README, docs/results.md and docs/ladder.md show; `devices`: runs, newest first. Of each GPU the newest run that covers the
    comparison speaks."""
    shown = newest(devices, tables.covers_published) or newest(devices, timed_on_gpu)[:1]
    latest = {device.name: device for device in newest(devices, timed_on_gpu)}
    answers = {device.name: answer for device in shown for answer in answers_of([device])}
    return {
        "devices": shown, "is_shown": lambda d: any(d is other for other in shown),
        "newer": lambda d: latest[d.name] if d.name in latest and latest[d.name] is not d else None,
        "wide": newest(devices, tables.covers_widths), "fused": newest(devices, tables.covers_fused),
        "older": newest(devices, lambda d: bool(d.newest.code) and tables.covers_widths(d)), "peers": newest(devices, has_few_peers),
        "many_peers": newest(devices, has_many_peers), "many_peers_table": many_peers_table,
        "older_peers": newest(devices, lambda d: bool(d.newest.code) and has_many_peers(d)),
        "gains": tables.gains, "dtypes": lambda d: [dtype for dtype in DTYPES if len(tables.own_rows(d, dtype))],
        "compared": lambda d: set(tables.beside_published(d)["dtype"]), "answers": answers, "all_dtypes": DTYPES, "smallest_n": tables.SMALLEST_N,
        "readme_n": README_N, "most_coded_n": MOST_CODED_N, "has_published_gpu": tables.has_published_gpu,
        "shares": lambda d, ns: tables.comparison(d, "f16").query("label != 'small' and n in @ns", local_dict={"ns": ns}),
        "comparison": comparison, "own_table": lambda d, dtype: drawn("own", tables.own_by_size(d, dtype)),
        "few_rows": lambda d, dtype: drawn("few-rows", tables.few_rows(d, dtype), dtype=dtype), "ladder_table": ladder_table, "empty_us": _empty_us,
        "choice_words": choice_words,
        "sizes": tables.regime_sizes, "peers_table": peers_table, "width_ranges": width_ranges, "fused_table": fused_table, "overview": overview,
        "width_table": lambda d, dtype, ns=(): drawn("widths", tables.widths(d, dtype, ns)),
        "variants_table": lambda d, dtype, size: drawn("variants", tables.shares(d, dtype, size).melt(value_name="share", ignore_index=False).reset_index(),
                                                       dtype=dtype),
    }  # fmt: skip


def choice_words(device: Device) -> str:
    """How the choices of the device's tuning table compare with the fastest candidates of this run; "" where one variant alone was timed."""
    table = tune.table_for(device.newest.context["device"]) if not device.newest.code else None
    found = tune.beside_the_best(device.results, table) if table else pd.DataFrame()
    if table is None or found.empty:
        return ""
    worst = found.loc[found["ratio"].idxmax()]
    within = (found["ratio"] <= tune.AS_FAST).sum()
    place = "out of" if worst["placement"] == "out" else "in"
    return (
        f"By the tuning table `{table.path.name}` of today `auto` takes the fastest variant, or one within {100 * (tune.AS_FAST - 1):.0f} % of it, at "
        f"{within} of {len(found)} problems and modes at which several were timed. At worst {worst['choice']} takes {worst['ratio']:.3f} times as long "
        f"({worst['dtype']}, n = {worst['n']}, {worst['elements']} elements, {place} place, {worst['mode']})."
    )


def _empty_us(device: Device) -> float:
    """Time of an empty kernel in the graphs of mode replay."""
    return float(device.results.loc[device.results["mode"] == "replay", "empty_us"].median())


def replace_section(text: str, name: str, body: str) -> str:
    """`text` with the lines between the markers of `name` replaced; ResultsError without the markers."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ResultsError(f"the page needs the markers {begin} and {end} once each, in this order")
    head, rest = text.split(begin)
    return f"{head}{begin}\n{body.strip()}\n{end}{rest.split(end)[1]}"


# ------------------------------------------------------------------------------------- docs/linear.md, docs/several_gpus.md


def split_table(device: Device) -> str:
    """SplitK over data parallel as arXiv 2402.00025 gives it: by mode and n, all m; a last line for all layers of a mode."""
    frame = layers.split_over_data_parallel(device)
    return drawn("split", frame[frame["m"] == "1 to 16"].sort_values("n", key=lambda n: n.str.contains("to"), kind="stable"))


def of_pages(rows: pd.DataFrame) -> pd.DataFrame:
    """What docs/operators.md and docs/quantize.md show of operators with numbers: bf16 out of place, replay."""
    return rows[(rows["dtype"] == "bf16") & (rows["mode"] == "replay") & (rows["layout"] == "out of place")]


def layer_values(devices: list[Device]) -> dict[str, Any]:
    """What docs/linear.md, docs/several_gpus.md and docs/long_vectors.md show, each of the newest run of every GPU that has it."""
    return {
        "arranged": newest(devices, lambda d: len(tables.arranged(d)) > 0), "arranged_table": lambda d: drawn("arranged", tables.arranged(d)),
        "prepared": newest(devices, lambda d: len(tables.prepared(d)) > 0), "prepared_table": lambda d: drawn("prepared", tables.prepared(d)),
        "with_operands": newest(devices, lambda d: len(tables.operands(d)) > 0), "operands_table": lambda d: drawn("operands", of_pages(tables.operands(d))),
        "dense": newest(devices, lambda d: len(tables.dense_codes(d)) > 0), "dense_table": lambda d: drawn("dense-codes", of_pages(tables.dense_codes(d))),
        "study": newest(devices, lambda d: len(layers.rows_of(d, "linear_rotation.csv")) > 0)[:1],  # computed on the host, the same everywhere
        "study_table": lambda d: charts.table("linear-rotation", layers.rows_of(d, "linear_rotation.csv")).markdown(),
        "linear": newest(devices, layers.covers_headline), "linear_table": lambda d: drawn("linear", layers.headline(d)),
        "others": newest(devices, lambda d: len(layers.over_others(d)) > 0), "others_table": lambda d: drawn("others", layers.over_others(d)),
        "prefill": newest(devices, lambda d: len(layers.prefill_of_few(d)) > 0), "prefill_table": lambda d: drawn("prefill", layers.prefill_of_few(d)),
        "split": newest(devices, lambda d: len(layers.split_over_data_parallel(d)) > 0), "split_table": split_table,
        "turned": newest(devices, lambda d: len(layers.rotated(d)) > 0),
        "turned_table": lambda d: drawn("turned", layers.rotated(d)),
        "parallel": newest(devices, lambda d: len(layers.speedups(d)) > 0), "parallel_values": parallel_values,
        "prediction": lambda d: layers.prediction(d, devices), "prediction_table": prediction_table, "within": layers.WITHIN,
        "speedup_table": lambda d: drawn("speedup", layers.algorithms(d)), "rotation_table": lambda d: drawn("rotation", layers.rotations_added(d)),
        "which": list(layers.by_tokens(devices)), "which_table": lambda frame: drawn("by_tokens", frame),
    }  # fmt: skip


def parallel_values(device: Device) -> dict[str, Any]:
    """The numbers in the words of docs/several_gpus.md."""
    rows = layers.parallel(device)
    own, modelled = (rows[c] / rows["time_us"] for c in ("pieces_us", "model_us"))
    turned = layers.rotations(device)
    turned = turned[turned["ranks"] == turned["ranks"].max()].dropna(subset=["over_alone"]) if len(turned) else turned
    far = {over: list(_modelled(device, over).itertuples()) for over in (8, 16)}
    bounds = layers.against_pieces(device)
    fitted = bounds[["least_fitted", "greatest_fitted"]].dropna()
    return {"fitted": (fitted["least_fitted"].min(), fitted["greatest_fitted"].max()) if len(fitted) else None,
            "ranks": int(rows["ranks"].max()), "layers": int(rows["layers"].max()), "pieces": (own.min(), own.max()),
            "model": (1 / modelled.max(), 1 / modelled.min()), "extrapolated": far,
            "alone": {c: (turned[c].min(), turned[c].max()) for c in ("over_alone", "over_pieces")} if len(turned) else None}  # fmt: skip


def _modelled(device: Device, ranks: int) -> pd.DataFrame:
    """`speedup` of tp_aware over naive for `ranks`, by the model alone: the fewest and the most tokens of every shape."""
    rows = layers.rows_of(device, "tensor_parallel_model.csv")
    rows = rows[(rows["ranks"] == ranks) & (rows["rotation"] == "none") & rows["source"].isin(("extrapolated", "assumed"))] if len(rows) else rows
    wide = rows.pivot_table(index=["shape", "m"], columns="algorithm", values="model_us", sort=False) if len(rows) else pd.DataFrame()
    if not {"naive", "tp_aware"} <= set(wide):
        return pd.DataFrame()
    far = wide.assign(speedup=wide["naive"] / wide["tp_aware"]).reset_index()
    return far[far["m"].isin([far["m"].min(), far["m"].max()])]


def prediction_table(found: layers.Prediction) -> str:
    """Predicted layers; measured ones beside them where there are any."""
    return drawn("prediction-measured" if len(found.measured) else "prediction", layers.predicted_speedups(found))


# ----------------------------------------------------------------------------------------------------------- FINDINGS.md

PORTABILITY = ("warp_shuffle", "hadacore", "kokkos_cuda")
PUBLISHED_DESIGNS = ("warp_shuffle", "hadacore_published")
PLACE = ["n", "elements", "dtype", "mode"]


def profiled(device: Device, found: profile.Profile) -> pd.DataFrame:
    """The transforms of a profile from small to DRAM, beside the sweep in place in the mode that judges each size best: `share` of the
    limit, whether that is the time of another launch (`changed`), `best` and `best_share` of the variant that is best there."""
    ok = tables.correct(device.results, layout="in place", family="transform").drop_duplicates(["variant", *PLACE])
    best = tables.best(device.results)
    best = best[(best["layout"] == "in place") & (best["family"] == "transform")].drop_duplicates(PLACE)
    rows = found.transforms.assign(mode=found.transforms["regime"].map(profile.MODE_OF))
    key = [c for c in ncu.identity(found.settings) if c not in ("peak", "elements", "useful_bytes")]
    launched = found.settings.loc[found.settings["variant"] != "", [*key, "settings"]].astype(dict.fromkeys(("n", "rows", "row_stride"), "int64"))
    rows = rows.merge(launched.drop_duplicates(key), on=key, how="left")
    timed = ok[["variant", *PLACE, "fraction_of_limit", "settings"]].rename(columns={"fraction_of_limit": "share", "settings": "timed"})
    rows = rows.merge(timed, how="left")
    rows["changed"] = [share == share and _launch(own) != _launch(now) for share, own, now in zip(rows["share"], rows["settings"], rows["timed"])]
    rows = rows.merge(best[[*PLACE, "variant", "fraction_of_limit"]].rename(columns={"variant": "best", "fraction_of_limit": "best_share"}), how="left")
    return rows.sort_values("regime", key=lambda c: c.map(profile.REGIMES.index), kind="stable")


def _launch(settings: object) -> dict[str, Any]:
    """What was launched, whatever table picked it."""
    words: dict[str, Any] = json.loads(settings) if isinstance(settings, str) and settings else {}
    return {name: value for name, value in words.items() if name != "picked_by"}


def profiled_sizes(found: profile.Profile, dtype: str = "f16") -> str:
    """The size of each regime in words: "small 64 KiB, L2 16 MiB"."""
    rows = found.transforms[found.transforms["dtype"] == dtype]
    spans = {name: sorted(rows.loc[rows["regime"] == name, "elements"].unique() * ELEMENT_BYTES[dtype]) for name in profile.REGIMES}
    return ", ".join(f"{name} {' to '.join(dict.fromkeys(tables.byte_text(int(e)) for e in (s[0], s[-1])))}" for name, s in spans.items() if s)


def card_words(root: Path, variant: str) -> str:
    """What the page of a variant says of its limits, of a folder with several variants by name first: "" without a page or such words."""
    names = [folder.name for folder in (root / "variants").glob("*/") if variant == folder.name or variant.startswith(f"{folder.name}_")]
    page = root / "variants" / max(names, key=len, default="") / "README.md"
    text = read_text(page) if page.is_file() else ""
    leads = (f"What limits `{variant}`", "What limits it")
    found = (re.search(rf"^\*\*{lead}\.?\*\*,?\s*(.*?)(?=^\*\*|^#|\Z)", text, re.MULTILINE | re.DOTALL) for lead in leads)
    words = next(filter(None, found), None)
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", words[1]).strip() if words else ""


def findings_page(root: Path, profiles: Sequence[tuple[Device, Folder]]) -> str:
    """FINDINGS.md of runs, each beside a folder of its device that holds a profile."""
    found = [_findings(device, folder) for device, folder in profiles]
    peaks = [{"device": f["device"].name, "name": name, "value": value} for f in found for name, value in f["profile"].peaks.items()]
    variants = tables.ordered((v for f in found for v in f["profile"].variants), found[0]["profile"].variants)
    sizes: dict[str, list[str]] = {}
    for each in found:
        sizes.setdefault(profiled_sizes(each["profile"]), []).append(each["device"].name)
    return render("findings.md.j2", found=found, variants=variants, peaks=drawn("peaks", pd.DataFrame(peaks)), saturated=profile.SATURATED,
                  sizes={words: ", ".join(names) for words, names in sizes.items() if words}, smallest_n=tables.SMALLEST_N,
                  words_of=lambda variant: card_words(root, variant))  # fmt: skip


def _findings(device: Device, folder: Folder) -> dict[str, Any]:
    found = profile.load_profile(folder.path, folder.context)
    assert found is not None
    if device.name != folder.device:
        raise ResultsError(f"{device.newest.name} is of {device.name}, {folder.name} of {folder.device}")
    every, static, spills = profiled(device, found), static_code.load_static(folder.path), ""
    rows = every[~every["changed"]]
    if static is not None:
        static = static[(static["variant"] != "") & static["symbol"].isin(found.kernels["symbol"])].drop_duplicates(["variant", "kernel"])
        spills = drawn("spills", static[static["local"] > 0])
    dram = rows[(rows["regime"] == profile.DRAM_SIZED) & rows["variant"].isin(PORTABILITY) & rows["n"].isin((64, 1024, 4096, 8192, 16384, 32768))]
    here = dram.loc[(dram["variant"] == "kokkos_cuda") & dram["dtype"].isin(["f16", "f32"]), ["dtype", "n"]]  # bf16 costs what f16 does
    beside = dram.merge(here.drop_duplicates()).drop_duplicates(["variant", "dtype", "n"])
    portable = beside.assign(rank=beside["variant"].map(PORTABILITY.index)).sort_values(["dtype", "n", "rank"])
    designs = rows[rows["variant"].isin(PUBLISHED_DESIGNS) & (rows["dtype"] == "f16") & rows["regime"].isin([profile.L2_SIZED, profile.DRAM_SIZED])]
    designs = designs.assign(rank=designs["variant"].map(PUBLISHED_DESIGNS.index)).sort_values(["rank", "n"], kind="stable")

    def variant_table(variant: str) -> str:
        own = rows[rows["variant"] == variant]
        return drawn("findings", own[own["dtype"] == tables.ordered(own["dtype"], DTYPES)[0]]) if len(own) else ""

    gains = pd.DataFrame([{"name": gain.name} | vars(gain) for gain in tables.gains(device)])
    return {"device": device, "profile": found, "static": static, "spills": spills, "variant_table": variant_table,
            "commits_differ": device.newest.commit != folder.commit, "changed": int(every["changed"].sum()), "timed": int(every["share"].notna().sum()),
            "published_table": drawn("published-designs", designs), "gain_table": drawn("gain", gains),
            "portability_table": drawn("portability", portable)}  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- ACCURACY.md

LENGTHS = (128, 4096, 32768)
# Rows of the gain's table: last stages of two points, others, and every stage of two points.
GAINS = (("hadacore_published", "f16", 32768), ("hadacore_published", "bf16", 2), ("hadacore_published", "bf16", 32),
         ("hadacore_published", "bf16", 8192), ("hadacore_published", "bf16", 32768), ("naive", "bf16", 32768))  # fmt: skip
SHAPES = {"normal": "normal", "constant": "all equal", "block_of_256": "256 equal", "one_hot": "one entry"}


def accuracy_runs(devices: Sequence[Device]) -> list[Device]:
    """Of each device that has errors: every table of the experiments as its newest run has it, for no run has to repeat all of them.
    `devices`: runs, newest first."""
    found = []
    for name in dict.fromkeys(d.name for d in devices if len(d.accuracy)):
        own = [d for d in devices if d.name == name]
        newest_of = {t: next((d for d in own if len(d.tables.get(t, ()))), None) for t in accuracy.TABLES}
        parts: dict[str, Folder] = {}
        for folder in (f for d in own for f in d.folders):
            kept = [t for t, run in newest_of.items() if run is not None and folder in run.folders and folder.has(t)]
            if kept:
                parts[folder.name] = replace(folder, tables={t: rows if t in kept else rows.iloc[:0] for t, rows in folder.tables.items()})
        found.append(merge(name, sorted(parts.values(), key=lambda f: f.context["utc_start"])))
    return found


def accuracy_page(devices: list[Device]) -> str:
    """The GPUs lead, in the order of their names, a host-only device adds what is emulated; ResultsError without accuracy rows."""
    devices = sorted((d for d in devices if len(d.accuracy)), key=lambda d: (not d.newest.on_gpu, d.name))
    if not devices:
        raise ResultsError("no accuracy.csv in these results folders")
    gpus = [d for d in devices if d.newest.on_gpu] or devices[:1]

    def of_each(query: Callable[[Device], dict | None]) -> dict[str, dict]:
        return {d.name: found for d in gpus if (found := query(d))}

    requirements: dict[str, dict] = {}
    for device in devices:
        for r in accuracy.requirements(device):
            requirements.setdefault(r.words, {}).setdefault(r, []).append(_name(device))
    return render(
        "accuracy.md.j2", devices=devices, gpus=gpus, requirements=requirements, errors=of_each(_errors), hadacore=_hadacore(devices),
        held=lambda f: [name.removesuffix(".csv") for name in accuracy.TABLES if f.has(name)],
        elements=max(int(d.accuracy["elements"].max()) for d in gpus), a100=next((found for d in devices if (found := _a100(d))), None), gains=of_each(_gains),
        probes=[p for d in devices if (p := _probes(d, "measured"))], probes_a100=next((p for d in devices if (p := _probes(d, "emulated_a100"))), None),
        overflow=of_each(_overflow), rotation=of_each(_rotation), attention=of_each(_attention), on_gpu=any(d.newest.on_gpu for d in devices),
    )  # fmt: skip


def _name(device: Device) -> str:
    return device.name if device.newest.on_gpu else "host, emulated"


def _who(variant: str, source: str) -> str:
    return escaped(variant if source == "measured" else f"{variant} ({source.replace('_', ', ')})")


def _errors(device: Device) -> dict | None:
    summary = accuracy.ratio_summary(device)
    summary = summary[summary["source"] != "emulated_a100"].groupby(["variant", "source"], sort=False)
    summary = summary.agg(low=("low", "min"), high=("high", "max"), low_for_data=("low_for_data", "min"), high_for_data=("high_for_data", "max")).reset_index()
    normal = device.accuracy[device.accuracy["input"] == "normal"].set_index(["variant", "source", "dtype", "n"])
    frame = summary.merge(pd.DataFrame([{"dtype": d, "n": n, "place": f"{d}, {n}"} for d in ("f16", "bf16") for n in LENGTHS]), how="cross")
    keys = list(frame[["variant", "source", "dtype", "n"]].itertuples(index=False, name=None))
    over_u = [float(normal["rel_l2"].get(key, math.nan)) / tables.UNIT_ROUNDOFF[key[2]] for key in keys]
    equal = [100 * float(normal["bit_match"].get((variant, source, "f16", 4096), math.nan)) for variant, source, *_ in keys]
    table = drawn("errors", frame.assign(over_u=over_u, equal=equal, who=[_who(variant, source) for variant, source, *_ in keys]))
    return {"table": table, "causes": with_words(accuracy.findings(device)), "nonfinite": len(accuracy.nonfinite(device)),
            "rows": len(device.accuracy)} if table else None  # fmt: skip


def _hadacore(devices: list[Device]) -> str:
    parts = [accuracy.hadacore(d).query("source != 'emulated_a100'").assign(where=lambda f, d=d: f["source"] + ", " + _name(d).removesuffix(", emulated"))
             for d in devices]  # fmt: skip
    return drawn("hadacore", pd.concat(parts, ignore_index=True))


def _a100(device: Device) -> dict | None:
    """The predictions for an A100 against the H200's arithmetic, both emulated; rows that leave their own model's bounds."""
    own = device.accuracy[(device.accuracy["variant"] == "hadacore") & (device.accuracy["input"] == "normal")]
    both = own[own["source"] == "emulated"].merge(own[own["source"] == "emulated_a100"], on=["dtype", "n"], suffixes=("", "_a100"))
    if both.empty:
        return None
    factor = both["rel_l2_a100"].astype(float) / both["rel_l2"].astype(float)
    f16, bf16 = factor[(both["dtype"] == "f16") & (both["n"] >= 16)], factor[both["dtype"] == "bf16"]
    every = device.accuracy[device.accuracy["source"] == "emulated_a100"]
    outside = every.loc[every["status"] == "incorrect", "n"]
    return {"f16": (f16.min(), f16.max()), "bf16": (bf16.min(), bf16.max()), "outside": len(outside), "rows": len(every),
            "least": outside.min(), "greatest": outside.max()}  # fmt: skip


def _gains(device: Device) -> dict | None:
    every = pd.concat([accuracy.gains(device, d).assign(dtype=d) for d in ("f16", "bf16")], ignore_index=True)
    every = every[every["source"] != "emulated_a100"]
    named = pd.MultiIndex.from_frame(every[["variant", "dtype", "n"]]).isin(GAINS)
    shown = every[named & (every["gain_spread"] > 0)]
    if shown.empty:
        return None
    shown = shown.assign(who=[_who(r.variant, r.source) for r in shown.itertuples()])
    judged = every.dropna(subset=["deviations"])
    far = judged[judged["deviations"].abs() > 3]
    beyond = (far["gain"] - far["predicted_gain"]).abs() > 0.025 * far["dtype"].map(tables.UNIT_ROUNDOFF).astype(float)
    places = far.groupby("dtype", sort=False)["n"].agg(lambda ns: ", ".join(map(str, dict.fromkeys(ns)))).reset_index()
    return {"table": drawn("lattice", shown), "rows": len(judged), "far": len(far), "places": drawn("off-gain", places),
            "farthest": judged["deviations"].loc[judged["deviations"].abs().idxmax()], "beyond": int(beyond.sum())}  # fmt: skip


def _probes(device: Device, source: str) -> dict | None:
    summary = accuracy.probe_summary(device)
    own = summary[summary["source"] == source] if len(summary) else summary
    if own.empty:
        return None

    def span(values) -> str:
        low, high = f"{min(values):.0f}", f"{max(values):.0f}"
        return low if low == high else f"{low} to {high}"

    wide = own[own["accumulator"] == "f32"]["gain"]
    return {"name": _name(device), "count": len(own), "bits": span(own["fraction_bits"]), "fused": span(own["fused_products"]),
            "mismatches": own["mismatches"].sum(), "vectors": own["vectors"].sum(), "order": f"{own['order'].sum():.0f}",
            "order_vectors": own["order_vectors"].sum(), "gain": wide.min() if len(wide) else None}  # fmt: skip


def _overflow(device: Device) -> dict | None:
    every = device.tables["overflow.csv"]
    if every.empty:
        return None
    onset = accuracy.overflow_onset(device)
    n = int(onset["n"].max())
    part = onset[(onset["n"] == n) & (onset["source"] != "emulated_a100")]
    rows = []
    for variant in tables.ordered(part["variant"], (*device.variants, "scale_before", "scale_after_in_f16")):
        cells = part[part["variant"] == variant].set_index("shape")["onset"]
        rows.append([f"`{escaped(variant)}`", ", ".join(f"{SHAPES[s]} {cells[s]:.3g}" for s in SHAPES if np.isfinite(cells.get(s, math.nan))) or "never"])
    small = every[(every["n"] == n) & (every["shape"] == "normal")]
    first = small[small["variant"] == "scale_before"].sort_values("norm_over_limit")
    scale_first = None
    if len(first):
        row = first.iloc[(first["rms"] - 1e-3).abs().argsort().iloc[0]]
        kept = small[(small["variant"] == "warp_shuffle") & (small["norm_over_limit"] == row["norm_over_limit"])]
        scale_first = (row["rel_l2"], row["rms"], kept["rel_l2"].iloc[0]) if len(kept) else None
    return {"n": n, "begins": "; ".join(f"{who}: {begins}" for who, begins in _merged(rows)), "scale_first": scale_first}


def _rotation(device: Device) -> dict | None:
    if device.tables["quantization.csv"].empty:
        return None
    gain, n = accuracy.rotation_gain(device), 4096
    part = gain[gain["n"] == n]
    bulk = gain[gain["format"].isin(["e4m3", "nvfp4", "mxfp4"])]
    seen, adds = accuracy.transform_visibility(device, n), []
    for dtype in ("f16", "bf16"):
        for fmt in ("int8", "e4m3"):
            own = seen[(seen["format"] == fmt) & (seen["dtype"] == dtype)].sort_values("added")
            if len(own):
                low, high = own.iloc[0], own.iloc[-1]
                adds.append(f"{dtype} to {fmt} {100 * low['added']:+.1f} % ({low['variant']}) to {100 * high['added']:+.1f} % ({high['variant']})")
    return {"n": n, "hurts": int((gain["gain_db"] < -0.5).sum()), "cases": len(gain), "most_e4m3": gain.groupby("format")["gain_db"].max()["e4m3"],
            "table": drawn("quantization", part), "bulk": bulk.loc[bulk["bulk_gain_db"].idxmax()], "adds": adds}  # fmt: skip


def _attention(device: Device) -> dict | None:
    shapes = accuracy.attention_shapes(device)
    if not shapes:
        return None
    d, n = (128, 8448) if (128, 8448) in shapes else shapes[-1]
    frame = accuracy.attention_table(device, d, n)
    default = frame[frame["choice"] == "default"]
    published = default.set_index("method")["published"]
    others = [f"{choice}: " + ", ".join(f"{r.method} {r.rmse / published.get(r.method, math.nan):.2f}" for r in part.itertuples())
              for choice, part in frame[frame["choice"] != "default"].groupby("choice", sort=False)]  # fmt: skip
    fp8 = default[default["method"].str.startswith("fp8")]
    spread = fp8["rmse_spread"] / fp8["rmse_mean"]
    turned = default[default["variants"] > 1]
    return {"d": d, "n": n, "heads": int(frame["heads"].max()), "per_head": int(frame["rows_per_head"].max()), "others": "; ".join(others),
            "table": drawn("attention", default),
            "spread": f"{100 * spread.min():.0f} to {100 * spread.max():.0f} %" if len(spread) else NONE,
            "turned": (int(turned["variants"].max()), float((turned["high"] / turned["low"] - 1).max())) if len(turned) else None}  # fmt: skip


# --------------------------------------------------------------------------------------------------------- docs/variants.md


def find_sweep(root: Path) -> Path | None:
    """The newest fwht_sweep of the build directories `build` and `build/<preset>`."""
    found = [f for up in ("", "*/") for place in ("experiments", "bin") for f in (root / "build").glob(f"{up}{place}/fwht_sweep")]
    return max((f for f in found if f.is_file()), key=lambda f: f.stat().st_mtime, default=None)


def support_list(source: Path) -> dict:
    """What `fwht_sweep --list-json` prints, or a file that holds it; ResultsError when there is none."""
    try:
        if source.suffix == ".json":
            return json.loads(source.read_text(encoding="utf-8"))
        return json.loads(subprocess.run([str(source), "--list-json"], capture_output=True, text=True, timeout=120, check=True).stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ResultsError(f"{source} gave no support list: {error}") from None


def not_built(listing: dict) -> list[str]:
    """Variants whose back end this build lacks: their answers say nothing about the variant."""
    return [
        variant["name"]
        for variant in listing["variants"]
        if all(r["reason"].startswith("built without") for s in variant["support"] for r in s["refused"]) and not any(s["n"] for s in variant["support"])
    ]


def variants_page(listing: dict, devices: Sequence[Device] = ()) -> str:
    """docs/variants.md: powers of two from the list, row lengths m 2^k and codes as the newest runs of a GPU met them. ResultsError for
    a list of another shape."""
    try:
        named = {entry["dtype"] for variant in listing["variants"] for entry in variant["support"]}
        dtypes = [dtype for dtype in DTYPES if dtype in named]
        rows, reasons = [], []
        for variant in listing["variants"]:
            lengths = {d: {n for e in variant["support"] if e["dtype"] == d for n in e["n"]} for d in dtypes}
            placements = {entry["placement"] for entry in variant["support"] if entry["n"]}
            places = " / ".join("yes" if p in placements else "no" for p in ("in", "out")) if placements else NONE
            row = {"variant": variant["name"], "memory": variant["memory"], "places": places}
            rows += [row | {"dtype": d, "lengths": _powers(lengths[d]) if lengths[d] else NONE} for d in dtypes]
            if not placements:
                reasons.append((variant["name"], next(r["reason"] for s in variant["support"] for r in s["refused"])))
        support = drawn("support", pd.DataFrame(rows))
        special = _special_support(devices, [variant["name"] for variant in listing["variants"]])
        return render("variants.md.j2", machine=listing["machine"], support=support, reasons=reasons, special=special)
    except (KeyError, TypeError, StopIteration) as error:
        raise ResultsError(f"the support list lacks {error}") from None


def _special_support(devices: Sequence[Device], variants: Sequence[str] = ()) -> str:
    """Row lengths m 2^k and codes that variants took, of the newest run of each, in the order of `variants`."""
    wanted = (tables.covers_tune, tables.covers_widths, tables.covers_fused)
    found = {id(d): d for w in wanted for d in newest(devices, w)}
    frames = [tables.support(d, special=True) for d in found.values()]
    rows = pd.concat(frames) if frames else pd.DataFrame({"takes": []})
    kept = rows[rows["takes"] != ""].drop_duplicates()
    if len({d.name for d in found.values()}) > 1:  # whether a variant takes a row length, one device says as well as another
        alike = kept.groupby(["variant", "dtype", "placement", "output"], sort=False)["takes"]
        kept = alike.agg(lambda takes: tables.n_ranges(n for text in takes for n in tables.n_listed(text))).reset_index()
    lengths = [text if len(ns := re.findall(r"\d+", text)) < 9 else f"{len(ns)} lengths, {ns[0]} to {ns[-1]}" for text in kept["takes"]]
    widest_first = sorted(found.values(), key=lambda d: len(d.newest.context["variants"]), reverse=True)
    ladder = tables.ordered(kept.get("variant", ()), [*variants, *(v for d in widest_first for v in d.variants)])
    kept = kept.assign(lengths=lengths, rank=[ladder.index(v) for v in kept.get("variant", ())])
    return drawn("special-support", kept.sort_values("rank", kind="stable"))


def _powers(ns: set[int]) -> str:
    """As n_ranges, with powers of two from 2^16 on written as such."""
    return re.sub(r"\d+", lambda m: f"2^{int(m[0]).bit_length() - 1}" if int(m[0]) >= 1 << 16 and int(m[0]).bit_count() == 1 else m[0], tables.n_ranges(ns))


# ----------------------------------------------------------------------------------------------------------------- command


# Page, the section of it that is generated, its template, and the way to the repository's root. Pages but README.md may be absent.
SECTIONS = (
    ("README.md", "results", "README", ""),
    ("docs/ladder.md", "ladder", "ladder", "../"),
    ("docs/long_vectors.md", "arranged", "arranged", "../"),
    ("docs/long_vectors.md", "peers", "long", "../"),
    ("docs/long_vectors.md", "walsh", "walsh", "../"),
    ("docs/linear.md", "which", "linear_which", "../"),
    ("docs/models.md", "measured", "models", "../"),
    ("docs/quantize.md", "attention", "attention", "../"),
    ("docs/quantize.md", "prepared", "prepared", "../"),
    ("docs/quantize.md", "dense-codes", "dense_codes", "../"),
    ("docs/operators.md", "operands", "operands", "../"),
    ("docs/integrations.md", "chains", "chains", "../"),
    ("docs/linear.md", "layers", "layers", "../"),
    ("docs/linear.md", "measured", "linear", "../"),
    ("docs/several_gpus.md", "measured", "several_gpus", "../"),
    ("variants/kit/encode/README.md", "measured", "encode", "../../../"),
    ("variants/kronecker/README.md", "measured", "kronecker", "../../"),
    ("variants/mma_kronecker/README.md", "measured", "mma_kronecker", "../../"),
)
# Of these the page shows shares of the copy and errors at three lengths: variant, dtype.
MEASURED = {"butterflies": ("butterflies", "f32"), "hadacore": ("hadacore", "f16"), "kokkos": ("kokkos_cuda", "f16"), "mma_split": ("mma_split", "f16"),
            "naive": ("naive", "f16"), "warp_shuffle": ("warp_shuffle", "f16"), "wgmma": ("wgmma", "f16")}  # fmt: skip
# Times beside those of kronecker, at these n.
BESIDE = {"factors": (768, 14336, 28672, 22016, 13696), "matmul": (768, 2880, 7168, 14336),
          "warp_kronecker": (768, 896, 1536, 2880, 3584, 5120, 7168, 8960, 9216, 11008, 12288, 14336, 17408, 18944, 20480, 22016, 28672, 36864,
                             53248)}  # fmt: skip
MEASURED_N = (1024, 8192, 32768)  # fmt: skip


def measured_sections(devices: list[Device], shown: list[Device]) -> dict[str, str]:
    """The measured section of a variant's page by the variant's folder, of every GPU. `shown`: the runs that speak for the headline."""
    found = {}
    for folder, (variant, dtype) in MEASURED.items() if shown else ():
        parts = []
        for device in shown:
            frame = tables.every_share(device, dtype)
            frame = frame[(frame["variant"] == variant) & frame["n"].isin(MEASURED_N) & (frame["label"] != "small")]
            parts.append(("Share of the copy limit, in place", device, drawn("measured", frame, dtype=dtype)))
        found[folder] = render("measured.md.j2", parts=parts, missing="The newest runs do not have this variant.", in_results=True)
    for variant, ns in BESIDE.items():
        runs_beside = newest(devices, lambda d, v=variant, at=ns: tables.lengths_beside(d, v, "kronecker", at))  # type: ignore[misc]
        what = "f16 in place: time, and that over the time of `kronecker` in the same run"
        frames = {run.name: tables.beside_variant(run, variant, "kronecker") for run in runs_beside}
        if frames:
            beside = "No run has timed it beside `kronecker`. [docs/results.md](../../docs/results.md) has its powers of two."
            parts = [(what, run, drawn("beside", frames[run.name][frames[run.name]["n"].isin(ns)])) for run in runs_beside]
            found[variant] = render("measured.md.j2", parts=parts, missing=beside, in_results=False)
    hosts = {"cpu", "cpu_f64", "kokkos_openmp"}
    for host in newest(devices, lambda d: hosts <= set(tables.correct(d.results, mode="host", layout="in place")["variant"]))[:1]:
        frame = tables.correct(host.results, mode="host", layout="in place")
        frame = frame[(frame["elements"] == frame["elements"].max()) & (frame["n"] == frame["n"].min())]
        what = (
            f"n = {frame['n'].iloc[0]}, {tables.binary(int(frame['elements'].iloc[0]))} elements in place on {host.newest.context['host']['threads']} threads"
        )
        found["cpu"] = render("measured.md.j2", parts=[(what, host, drawn("host", frame))], in_results=True)
    return found


def read_text(path: Path) -> str:
    """ResultsError where a page cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error.strerror}") from None


def pages(root: Path, support: dict | None = None) -> dict[Path, str]:
    """The generated pages and figures by path. ResultsError when the README cannot be read or lacks the markers."""
    folders = committed_folders(root)
    devices = runs(folders)
    values = results_values(devices) | layer_values(devices) | model_values(root) | attention_values(root) | chains_values(root) | bench_layers_values(root)
    values |= long_values(root)
    found = {root / "docs" / "results.md": render("results.md.j2", up="../", **values)}
    for name, section, template, up in SECTIONS:
        path = root / name
        if path.is_file() or section == "results":
            found[path] = replace_section(found.get(path) or read_text(path), section, render(f"{template}.md.j2", up=up, **values))
    shown = values["devices"]
    for folder, text in measured_sections(devices, shown).items():
        path = root / "variants" / folder / "README.md"
        if path.is_file():
            found[path] = replace_section(read_text(path), "measured", text)
    if shown:
        for figure in (speed(*shown), error_against_speed(*shown)):
            found[root / FIGURES / f"{figure.id}.svg"] = charts.svg(figure) + "\n"
        profiles = {f.device: f for f in folders if f.has("profile.csv")}  # the newest of each device
        if with_profile := [(d, profiles[d.name]) for d in shown if d.name in profiles]:
            found[root / "analysis" / "FINDINGS.md"] = findings_page(root, with_profile)
    if judged := accuracy_runs(devices):
        found[root / "analysis" / "ACCURACY.md"] = accuracy_page(judged)
    if support is not None:
        found[root / "docs" / "variants.md"] = variants_page(support, devices)
    return found


def write(found: dict[Path, str], *, check: bool) -> list[Path]:
    """Writes what differs, or with `check` only names it. ResultsError where a page cannot be written."""
    stale = [path for path, text in found.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    return stale if check else [write_text(path, found[path]) for path in stale]
