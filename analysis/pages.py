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
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from . import accuracy, charts, layers, profile, tables
from .charts import PARTS, TEMPLATES, escaped
from .charts import markdown as table
from .load import DTYPES, Device, Folder, ResultsError, committed_folders, merge, newest, runs, timed_on_gpu, write_text
from .report import answer
from .tables import OWN, PUBLISHED, fixed, percent, significant, time_text

README_N = (128, 1024, 4096, 8192, 16384, 32768)
FIGURES = Path("docs") / "figures"
NONE = "–"


def environment() -> jinja2.Environment:
    """For Markdown: text of folders goes through the filter `md`."""
    made = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
                              keep_trailing_newline=True)  # fmt: skip
    made.filters |= charts.FORMATS | {"md": escaped, "significant": significant}
    return made


def render(template: str, **values: Any) -> str:
    text = environment().get_template(template).render(**values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


# ------------------------------------------------------------------------------------------------ README, docs/results.md


def comparison(device: Device, dtype: str, ns: Iterable[int] = (), *, small=True) -> str:
    """OWN beside a copy and beside the published kernels, for `ns` or all n that were compared."""
    columns = {key: column for key, column in tables.comparison(device, dtype).items() if small or key[0].label != "small"}
    header = [f"{dtype}: n"]
    for size, what in columns:
        header.append(f"{size.label}, {size.bytes(dtype)}: of a copy" if what == "share" else f"× {PUBLISHED[what]}")
    known = list(ns) or sorted({int(n) for (_, what), column in columns.items() if what != "share" for n in column.index})
    rows = [[str(n), *((percent if what == "share" else fixed)(column.get(n, math.nan)) for (_, what), column in columns.items())] for n in known]
    return table(header, rows)


def own_table(device: Device, dtype: str) -> str:
    """Per n and size: share of the copy, time, and the variant that OWN launches."""
    sizes = tables.regime_sizes(device, dtype)[::-1]
    own = tables.own_rows(device, dtype)
    columns = [own[(own["elements"] == s.elements) & (own["mode"] == s.mode)].drop_duplicates("n").set_index("n") for s in sizes]
    errors = tables.errors(device).set_index(["variant", "dtype", "n"])["over_ideal"]
    rows = []
    for n in sorted({int(n) for column in columns for n in column.index}):
        cells = [_own_cell(column.loc[n]) if n in column.index else NONE for column in columns]
        rows.append([str(n), *cells, fixed(errors.get((OWN, dtype, n), math.nan))])
    header = [f"{dtype}: n", *(f"{s.label}: {tables.binary(s.elements)} elements, {s.bytes(dtype)}, {s.mode}" for s in sizes), "error"]
    return table(header, rows)


def _own_cell(row: pd.Series) -> str:
    return f"{percent(row['fraction_of_limit'])}, {time_text(row['time_us'])}, {escaped(row['picked'] or row['variant'])}"


def few_rows(device: Device, dtype: str) -> str:
    frame = tables.few_rows(device, dtype).set_index(["n", "rows"])
    counts = [r for r in tables.FEW_ROWS if r in frame.index.get_level_values("rows")]
    rows = []
    for n in sorted(set(frame.index.get_level_values("n"))):
        cells = []
        for count in counts:
            row = frame.loc[(n, count)] if (n, count) in frame.index else None
            chained = "" if row is None or not math.isfinite(row["pdl_us"]) else f" ({row['pdl_us']:.2f})"
            cells.append(NONE if row is None else f"{row['time_us']:.2f}{chained}, {percent(row['share'])}")
        rows.append([str(n), *cells])
    return table([f"{dtype}: n", *(f"{count} row{'s' * (count > 1)}" for count in counts)], rows)


def variants_table(device: Device, dtype: str, size: tables.Size) -> str:
    frame = tables.shares(device, dtype, size)
    return table([f"{dtype}: n", *map(escaped, frame.columns)], [[str(n), *map(percent, row)] for n, row in zip(frame.index, frame.to_numpy())])


def measured_table(device: Device, variant: str, dtype: str) -> str:
    """Of one variant at the longest of its lengths among MEASURED_N and the two before: share of the copy by size, error."""
    sizes = [s for s in tables.regime_sizes(device, dtype) if s.label != "small"]
    shares = [tables.shares(device, dtype, s) for s in sizes]
    errors = tables.errors(device).set_index(["variant", "dtype", "n"])["over_ideal"]
    taken = [{n: f[variant][n] for n in MEASURED_N if variant in f and n in f.index and math.isfinite(f[variant][n])} for f in shares]
    rows = [[str(n), *(percent(t[n]) if n in t else NONE for t in taken), fixed(errors.get((variant, dtype, n), math.nan))]
            for n in MEASURED_N if any(n in t for t in taken)]  # fmt: skip
    return table([f"{dtype}: n", *(f"{s.label}: {tables.binary(s.elements)} elements" for s in sizes), "error over one rounding"], rows)


LADDER_N = (128, 1024, 4096, 8192, 16384, 32768, 65536)


def ladder_table(device: Device, dtype: str, size: tables.Size) -> str:
    """By variant: share of the copy at LADDER_N, and the range of the error over one rounding."""
    frame, errors = tables.shares(device, dtype, size), tables.errors(device)
    errors = errors[(errors["dtype"] == dtype) & (errors["n"] >= tables.SMALLEST_N)].groupby("variant")["over_ideal"].agg(["min", "max"])
    ns = [n for n in LADDER_N if n in frame.index]
    span = {v: " to ".join(dict.fromkeys((fixed(r["min"]), fixed(r["max"])))) for v, r in errors.iterrows()}
    rows = [[escaped(v), *(percent(frame[v][n]) for n in ns), span.get(v, NONE)] for v in frame if frame.loc[ns, v].notna().any()]
    return table(["rung", *(f"n = {n}" for n in ns), "error"], rows, numeric="rest")


def width_ranges(device: Device) -> list[str]:
    """Least, median and greatest share of `kronecker` over the row lengths m 2^k, by size."""
    frame = tables.by_width(device)
    parts = frame[(frame["family"] == "width") & (frame["variant"] == "kronecker")].groupby(["size", "dtype"], sort=False)["fraction_of_limit"]
    return [f"{size}, {dtype}: {percent(p.min())} to {percent(p.max())} of a copy over {len(p)} row lengths, {percent(p.median())} in the middle"
            for (size, dtype), p in parts]  # fmt: skip


def width_table(device: Device, dtype: str, ns: Iterable[int] = ()) -> str:
    """By row length m 2^k, all or `ns`: the best variant in DRAM and in the L2, microseconds of a few rows, the largest error."""
    wide, few = tables.by_width(device), tables.decode(device)
    wide, few = (frame[(frame["dtype"] == dtype) & (frame["family"] == "width")] for frame in (wide, few))
    shares, times = (wide.pivot(index="n", columns="size", values="fraction_of_limit"), few.pivot(index="n", columns="rows", values="time_us"))
    both = pd.concat([wide, few.assign(over_ideal=few["rel_l2"] / tables.ideal_error(dtype))])
    rows = []
    for n, part in both[both["n"].isin(ns)].groupby("n") if ns else both.groupby("n"):
        cells = [*(percent(shares[c].get(n)) for c in shares), *(fixed(times[c].get(n)) for c in times)]
        rows.append([str(n), escaped(part["operator"].iloc[0]), *cells, fixed(part["over_ideal"].max()), escaped(", ".join(dict.fromkeys(part["variant"])))])
    return table([f"{dtype}: n", "operator", *shares, *(f"{r} row{'s' * (r > 1)}, µs" for r in times), "error", "best"], rows, numeric="rest")


def fused_table(device: Device, size: str = "", *, widths=False) -> str:
    """By encoding and size, all or those of one regime: share of the copy and gain over the pair at every n = 2^k, or at every row length
    m 2^k. Empty where none was measured."""
    frame = tables.fused(device)
    frame = frame[frame["size"].str.startswith(size) & ((frame["n"] & (frame["n"] - 1) != 0) == widths)]
    lengths = sorted(set(frame["n"]))
    rows = []
    for (dtype, encoding, size), part in frame.groupby(["dtype", "encoding", "size"], sort=False):
        cells = part.drop_duplicates("n").set_index("n")
        rows.append([f"{escaped(encoding)}, {dtype}", size, *(
            f"{percent(cells['fraction_of_limit'][n])}, × {fixed(cells['gain'][n])}" if n in cells.index else NONE for n in lengths)])  # fmt: skip
    return table(["encoding", "size", *(f"n = {n}" for n in lengths)], rows, numeric="rest")


def overview_table(wide: Device | None, coded: Device | None, linear: Device | None, parallel: Device | None) -> str:
    """Beyond powers of two: one line for row lengths m 2^k, codes, linear layers and several GPUs each, where a run has them."""
    rows = []
    if wide:
        frame = tables.by_width(wide)
        part = frame[(frame["family"] == "width") & (frame["dtype"] == "f16") & frame["size"].str.startswith("DRAM")]
        shares, error = part["fraction_of_limit"], part["over_ideal"].max()
        span = f"{percent(shares.min())} to {percent(shares.max())}"
        rows.append(["row lengths m 2^k, such as 14336", f"in f16, DRAM: {percent(shares.median())} of a copy, the median of {len(part)} lengths "
                     f"({span}); error at most {fixed(error)} roundings", "[operators](docs/operators.md)"])  # fmt: skip
    if coded:
        part = tables.fused(coded)
        part = part[part["size"].str.startswith("DRAM") & part["gain"].notna()]
        gains = [(f, part[part["format"] == f]["gain"]) for f in ("e4m3:row", "int8:row", "mxfp4")]
        rows.append(["rotate and quantize in one kernel", "DRAM: time of two launches over ours, " + "; ".join(
            f"{f} {fixed(g.min())} to {fixed(g.max())}" for f, g in gains if len(g)), "[quantize](docs/quantize.md)"])  # fmt: skip
    if linear:
        over = layers.over_dense(linear).query("m <= 32 and n == k")
        rows += [["linear layers with 4-bit weights", f"time of cuBLAS in fp16 over ours, 1 to 32 tokens, n = k from {over['n'].min()} to {over['n'].max()}: "
                  f"{fixed(over['ratio'].min())} to {fixed(over['ratio'].max())}", "[linear](docs/linear.md)"]] if len(over) else []  # fmt: skip
    if parallel:
        frame = layers.speedups(parallel)
        frame = frame[frame["ranks"] == frame["ranks"].max()]
        rows.append([f"MLP over {frame['ranks'].max()} GPUs, act-order", f"time of the naive order over the TP-aware one, 1 to 16 tokens: "
                     f"{fixed(frame['speedup'].min())} to {fixed(frame['speedup'].max())}", "[several GPUs](docs/several_gpus.md)"])  # fmt: skip
    return table(["more", "measured", "page"], rows, numeric=False)


PEERS = {"dao": "fast-hadamard-transform", "hadacore": "HadaCore", "matmul": "PyTorch, matrix product", "compile": "PyTorch, torch.compile", "triton": "Triton"}


def peers_table(device: Device) -> str:
    """Kernels of others beside the best variant on the same problem: times, theirs over ours, errors over one rounding."""
    frame = tables.beside_peers(device)
    frame = frame[~frame["peer"].str.startswith("python:")]
    frame = frame.assign(name=[PEERS.get(p, p) for p in frame["peer"]])
    rows = [[escaped(r["name"]), f"{r['dtype']}, {escaped(r['operator'])}, {r['rows']} row{'s' * (r['rows'] > 1)}, {r['mode']}", significant(r["peer_us"]),
             significant(r["time_us"]), escaped(r["variant"]), fixed(r["ratio"]), fixed(r["peer_rel_l2"] / tables.ideal_error(r["dtype"]))]
            for r in frame.sort_values(["name", "n", "rows", "dtype"], kind="stable").to_dict("records")]  # fmt: skip
    return table(["kernel", "problem", "its µs", "ours", "variant", "×", "its error"], rows, numeric="rest")


def results_values(devices: list[Device]) -> dict[str, Any]:
    """What README and docs/results.md show; `devices`: runs, newest first. The newest run that covers the comparison speaks."""
    device = newest(devices, tables.covers_published) or newest(devices, timed_on_gpu)
    wide, coded = newest(devices, tables.covers_widths), newest(devices, lambda d: len(tables.fused(d)) > 0)
    peers = newest(devices, lambda d: bool(peers_table(d)))
    families = {"peers": peers, "peers_table": peers_table, "wide": wide, "width_table": width_table, "width_ranges": width_ranges, "fused": coded,
                "fused_table": fused_table, "overview_table": overview_table}  # fmt: skip
    if device is None:
        return {"device": None} | families
    newer = newest(devices, timed_on_gpu)
    first = answer([device])
    dtypes = [dtype for dtype in DTYPES if len(tables.own_rows(device, dtype))]
    both = tables.beside_published(device)
    return {
        "device": device, "newer": newer if newer is not device else None, "gains": tables.gains(device), "dtypes": dtypes,
        "compared": set(both["dtype"]), "error": first.error if first else None, "published_error": first.published_error if first else math.nan,
        "smallest_n": tables.SMALLEST_N, "readme_n": README_N,
        "comparison": lambda dtype, ns=(), small=True: comparison(device, dtype, ns, small=small),
        "own_table": lambda dtype: own_table(device, dtype), "few_rows": lambda dtype: few_rows(device, dtype),
        "ladder_table": lambda dtype, size: ladder_table(device, dtype, size), "empty_us": _empty_us(device),
        "sizes": lambda dtype: tables.regime_sizes(device, dtype),
        "variants_table": lambda dtype, size: variants_table(device, dtype, size),
    } | families  # fmt: skip


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


def linear_table(device: Device) -> str:
    """Layers of the headline without rotation, act-order and programmatic launch: the limit, and time and share of every variant."""
    rows = layers.linear(device)
    rows = rows[(rows["mode"] == "cold") & (rows["n"] >= 4096) & rows["m"].isin((1, 8, 16, 32, 64))]
    rows = rows[(rows["rotation"].astype(str) == "0") & (rows["act_order"] == "false") & (rows["programmatic"] == "false")]
    rows = rows[(rows["zero_points"] == rows["zero_points"].iloc[0]) & (rows["group"] == rows["group"].iloc[0]) & (rows["dtype"] == "f16")]
    cells = rows.assign(cell=[f"{t:.1f} ({percent(f)})" for t, f in zip(rows["time_us"], rows["fraction_of_limit"])])
    wide = cells.drop_duplicates(["n", "k", "m", "variant"]).pivot(index=["n", "k", "m"], columns="variant", values="cell").fillna(NONE)
    limits = rows.groupby(["n", "k", "m"])["limit_us"].min()
    names = [v for v in dict.fromkeys(rows["variant"]) if v in wide]
    lines = [[f"{n}{'' if n == k else f' x {k}'}, {m}", fixed(limits[n, k, m]), *wide.loc[(n, k, m), names]] for n, k, m in wide.index]
    return table(["n = k, m" if (rows["n"] == rows["k"]).all() else "n x k, m", "limit", *(f"`{escaped(v)}`" for v in names)], lines, numeric="rest")


def split_table(device: Device) -> str:
    """SplitK over data parallel as arXiv 2402.00025 gives it: by mode and n, all m; a last line for all layers of a mode."""
    frame = layers.split_over_data_parallel(device)
    frame = frame[frame["m"] == "1 to 16"]
    names = list(dict.fromkeys(frame["what"]))
    cells = frame.assign(cell=[f"{fixed(r['geometric_mean'])} ({fixed(r['least'])} to {fixed(r['greatest'])})" for r in frame.to_dict("records")])
    wide = cells.pivot(index=["mode", "n"], columns="what", values="cell")
    order = list(dict.fromkeys(zip(frame["mode"], frame["n"])))
    order = [*(o for o in order if "to" not in o[1]), *(o for o in order if "to" in o[1])]
    lines = [[f"{mode}, {n}", *(wide.loc[(mode, n)].get(w, NONE) for w in names)] for mode, n in order]
    return table(["mode, n = k", *(f"`{escaped(w.split()[-1])}`" for w in names)], lines, numeric="rest")


def others_table(device: Device) -> str:
    lines = [[f"`{escaped(r['other'])}`", str(r["layers"]), *(fixed(r[c]) for c in ("geometric_mean", "least", "greatest")), escaped(r["least_at"])]
             for r in layers.over_others(device).to_dict("records")]  # fmt: skip
    return table(["other", "layers", "mean", "least", "greatest", "least at"], lines, numeric="rest")


def speedup_table(device: Device) -> str:
    frame = layers.speedups(device)
    frame = frame[frame["ranks"] == frame["ranks"].max()]
    names = [a for a in layers.ALGORITHMS if f"{a}_us" in frame]
    rows = [[f"{escaped(r['shape'])}, {r['m']}", *(fixed(r[f"{a}_us"], 1) for a in names), fixed(r["speedup"]), fixed(r["published_speedup"])]
            for r in frame.sort_values(["shape", "m"], ascending=[False, True]).to_dict("records")]  # fmt: skip
    return table(["shape, m", *names, "tp_aware over naive", "published, at best"], rows, numeric="rest")


def rotation_table(device: Device) -> str:
    frame = layers.rotations(device)
    frame = frame[frame["ranks"] == frame["ranks"].max()] if len(frame) else frame
    wide = frame.pivot_table(index=["shape", "m"], columns="rotation", values="added_us", sort=False) if len(frame) else frame
    return table(["shape, m", *wide], [[f"{escaped(shape)}, {m}", *(fixed(v, 1) for v in wide.loc[(shape, m)])] for shape, m in wide.index], numeric="rest")


def layer_values(devices: list[Device]) -> dict[str, Any]:
    """What docs/linear.md and docs/several_gpus.md show, each of the newest run that has it."""
    linear = newest(devices, layers.covers_headline)
    parallel = newest(devices, lambda d: len(layers.speedups(d)) > 0)
    others = newest(devices, lambda d: len(layers.over_others(d)) > 0)
    split = newest(devices, lambda d: len(layers.split_over_data_parallel(d)) > 0)
    turned = newest(devices, lambda d: len(layers.rotated(d)) > 0)
    study = newest(devices, lambda d: len(layers.rows_of(d, "linear_rotation.csv")) > 0)
    values: dict[str, Any] = {"study": study, "study_table": lambda d: charts.table("linear-rotation", layers.rows_of(d, "linear_rotation.csv")).markdown(),
                              "linear": linear, "split": split, "others": others, "turned": turned, "linear_table": linear_table, "split_table": split_table,
                              "others_table": others_table, "turned_table": lambda d: charts.table("linear-rotated", layers.rotated(d)).markdown(),
                              "parallel": parallel, "speedup_table": speedup_table, "rotation_table": rotation_table}  # fmt: skip
    if parallel:
        rows = layers.parallel(parallel)
        own, modelled = (rows[c] / rows["time_us"] for c in ("pieces_us", "model_us"))
        alone = layers.rotations(parallel)
        alone = alone.loc[alone["ranks"] > 1, "over_alone"].dropna() if len(alone) else alone
        many = layers.rows_of(parallel, "tensor_parallel_model.csv")
        many = many[(many["ranks"] == 8) & (many["rotation"] == "none")] if len(many) else many
        wide = many.pivot_table(index=["shape", "m"], columns="algorithm", values="model_us", sort=False) if len(many) else pd.DataFrame()
        far = wide.assign(speedup=wide["naive"] / wide["tp_aware"]).reset_index() if {"naive", "tp_aware"} <= set(wide) else wide
        far = far[far["m"].isin([far["m"].min(), far["m"].max()])] if len(far) else far
        bounds = layers.against_pieces(parallel)
        fitted = bounds[["least_fitted", "greatest_fitted"]].dropna()
        values |= {"fitted": (fitted["least_fitted"].min(), fitted["greatest_fitted"].max()) if len(fitted) else None,
                   "ranks": int(rows["ranks"].max()), "layers": int(rows["layers"].max()), "pieces": (own.min(), own.max()),
                   "model": (1 / modelled.max(), 1 / modelled.min()), "extrapolated": list(far.itertuples()),
                   "alone": (alone.min(), alone.max()) if len(alone) else None}  # fmt: skip
    return values


# ----------------------------------------------------------------------------------------------------------- FINDINGS.md

PORTABILITY = ("warp_shuffle", "hadacore", "kokkos_cuda")
class Findings:
    """Counters and times, looked up by variant, n and size."""

    def __init__(self, device: Device, found: profile.Profile):
        self.device, self.profile = device, found
        self.rows = {(r["variant"], r["n"], r["regime"], r["dtype"]): r for r in reversed(found.problems.to_dict("records"))}
        ok = tables.correct(device.results, layout="in place", family="transform")
        self.shares = ok.drop_duplicates(["variant", "dtype", "n", "elements", "mode"]).set_index(["variant", "dtype", "n", "elements", "mode"])[
            "fraction_of_limit"
        ]
        self.best = tables.best(device.results)
        self.words = {name: environment().from_string(text) for name, text in PARTS["findings"].items()}

    def share(self, row: dict) -> str:
        """Of the sweep's limit, at the profiled size, in the mode that judges it best."""
        return percent(self.shares.get((row["variant"], row["dtype"], row["n"], row["elements"], profile.MODE_OF[row["regime"]]), math.nan))

    def say(self, variant: str, n: int, size: str, *fields: str, dtype: str = "f16") -> str:
        """The values of `fields` in words, joined by commas; "not profiled" where there is no such launch."""
        row = self.rows.get((variant, n, size, dtype))
        values = row and row | {"stalls": lambda count: profile.stalls_text(row, count)}
        return ", ".join(self.words[field].render(values) for field in fields) if row else "not profiled"

    def variant_table(self, variant: str) -> str:
        """By n: share of the limit and verdict of the counters at each size; costs of an element at the largest size."""
        own = self.profile.problems[self.profile.problems["variant"] == variant]
        dtype = next(d for d in DTYPES if (own["dtype"] == d).any())
        sizes = [size for size in profile.REGIMES if ((own["dtype"] == dtype) & (own["regime"] == size)).any()]
        rows = []
        for n in sorted(own.loc[own["dtype"] == dtype, "n"].unique()):
            found = {s: row for s in sizes if (row := self.rows.get((variant, n, s, dtype)))}
            last = list(found.values())[-1]
            verdicts = (f"{self.share(found[s])}; {found[s]['bound_by']}" if s in found else NONE for s in sizes)
            costs = (fixed(last["lsu_words"], 1), fixed(last["issue_slots"], 1), fixed(last["registers"], 0))
            rows.append([str(n), *verdicts, *costs, f"{fixed(last['resident_blocks'], 0)} ({last['limiter']})"])
        header = [f"{dtype}: n", *(f"{s}, {profile.MODE_OF[s]}" for s in sizes), "LSU words/el", "issue slots/el", "registers", "blocks/SM"]
        return table(header, rows, numeric=False)

    def published_table(self) -> str:
        """Where the published designs lose against the best variant, row length by row length."""
        sizes = (profile.L2_SIZED, profile.DRAM_SIZED)

        def cells(row: dict | None) -> list[str]:
            best = None if row is None else self._best(row)
            return [NONE if row is None else f"{self.share(row)}; {row['bound_by']}",
                    NONE if best is None else f"{escaped(best['variant'])} {percent(best['fraction_of_limit'])}"]  # fmt: skip

        rows = []
        for design in ("warp_shuffle", "hadacore_published"):
            for n in sorted({key[1] for key in self.rows if key[0] == design and key[3] == "f16" and key[2] in sizes}):
                rows.append([design, str(n), *(cell for size in sizes for cell in cells(self.rows.get((design, n, size, "f16"))))])
        return table(["design", "n", *(t for s in sizes for t in (f"{s}, {profile.MODE_OF[s]}", "best variant"))], rows, numeric=False)

    def _best(self, row: dict) -> pd.Series | None:
        wanted = {name: row[name] for name in ("n", "elements", "dtype")}
        wanted |= {"mode": profile.MODE_OF[row["regime"]], "layout": "in place", "family": "transform"}
        found = self.best[np.logical_and.reduce([self.best[name] == value for name, value in wanted.items()])]
        return found.iloc[0] if len(found) else None

    def gain_table(self) -> str:
        rows = [[gain.name, str(gain.points), f"{gain.share:.3f}", f"{gain.published_share:.3f}", fixed(gain.speedup), f"{gain.worst:.3f} ({gain.worst_at})"]
                for gain in tables.gains(self.device)]  # fmt: skip
        return table(
            ["against", "sizes", "auto, of the sweep's limit", "published kernel, of one-shot copies", "times as fast", "at worst"], rows, numeric=False
        )

    def portability_table(self) -> str:
        """Kokkos' kernels beside those they compete with, at DRAM size; bf16 costs what f16 does."""
        rows = []
        for dtype, n in ((d, n) for d in ("f16", "f32") for n in (64, 1024, 4096, 8192, 16384, 32768)):
            found = [self.rows.get((v, n, profile.DRAM_SIZED, dtype)) for v in PORTABILITY]
            for r in (r for r in found if r and found[-1]):
                costs = (fixed(r[c], d) for c, d in (("lsu_words", 1), ("shared_words", 1), ("issue_slots", 1), ("registers", 0), ("resident_blocks", 0)))
                occupancy = f"{percent(r['occupancy_possible'])} / {percent(r['occupancy'])}"
                rows.append([dtype, str(n), r["variant"], self.share(r), *costs, occupancy, r["bound_by"]])
        header = ["dtype", "n", "variant", "of limit", "LSU words/el", "scratch words/el", "issue slots/el", "registers", "blocks/SM",
                  "occupancy possible / achieved", "bound by"]  # fmt: skip
        return table(header, rows, numeric=False)


def findings_page(device: Device, folder: Folder) -> str:
    found = profile.load_profile(folder.path, folder.context)
    assert found is not None
    if device.name != folder.device:
        raise ResultsError(f"{device.newest.name} is of {device.name}, {folder.name} of {folder.device}")
    static, queries = profile.load_static(folder.path), Findings(device, found)
    spills = ""
    if static is not None:
        static = static[(static["variant"] != "") & static["symbol"].isin(found.kernels["symbol"])].drop_duplicates(["variant", "kernel"])
        columns = ["variant", "kernel", "registers", "stack_bytes", "local", "instructions"]
        spills = table(columns, [[escaped(row[c]) for c in columns] for row in static[static["local"] > 0].to_dict("records")], numeric=False)
    return render("findings.md.j2", device=device, profile=found, static=static, spills=spills, saturated=profile.SATURATED, smallest_n=tables.SMALLEST_N,
                  say=queries.say, variant_table=queries.variant_table, published_table=queries.published_table, gain_table=queries.gain_table,
                  portability_table=queries.portability_table)  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- ACCURACY.md

LENGTHS = (128, 4096, 32768)
# Rows of the gain's table: last stages of two points, others, and every stage of two points.
GAINS = (("hadacore_published", "f16", 32768), ("hadacore_published", "bf16", 2), ("hadacore_published", "bf16", 32),
         ("hadacore_published", "bf16", 8192), ("hadacore_published", "bf16", 32768), ("naive", "bf16", 32768))  # fmt: skip
SHAPES = {"normal": "normal", "constant": "all equal", "block_of_256": "256 equal", "one_hot": "one entry"}


def accuracy_page(devices: list[Device]) -> str:
    """The first GPU leads, a host-only device adds what is emulated; ResultsError without accuracy rows."""
    devices = sorted((d for d in devices if len(d.accuracy)), key=lambda d: not d.newest.on_gpu)
    if not devices:
        raise ResultsError("no accuracy.csv in these results folders")
    first = devices[0]
    requirements: dict[str, dict] = {}
    for device in devices:
        for r in accuracy.requirements(device):
            requirements.setdefault(r.words, {}).setdefault(r, []).append(_name(device))
    return render(
        "accuracy.md.j2", devices=devices, requirements=requirements, errors=_errors(first), elements=int(first.accuracy["elements"].max()),
        causes=accuracy.findings(first), nonfinite=len(accuracy.nonfinite(first)), rows=len(first.accuracy), hadacore=_hadacore(devices),
        a100=next((found for d in devices if (found := _a100(d))), None), gains=_gains(first), probes=[p for d in devices if (p := _probes(d, "measured"))],
        probes_a100=next((p for d in devices if (p := _probes(d, "emulated_a100"))), None), overflow=_overflow(first), rotation=_rotation(first),
        attention=_attention(first), on_gpu=any(d.newest.on_gpu for d in devices),
    )  # fmt: skip


def _name(device: Device) -> str:
    return device.name if device.newest.on_gpu else "host, emulated"


def _who(variant: str, source: str) -> str:
    return escaped(variant if source == "measured" else f"{variant} ({source.replace('_', ', ')})")


def _merged(rows: Iterable[list[str]]) -> list[list[str]]:
    """Rows that differ in their first cell only, as one."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, *cells in rows:
        names.setdefault(tuple(cells), []).append(name)
    return [[", ".join(who), *cells] for cells, who in names.items()]


def _errors(device: Device) -> str:
    summary = accuracy.ratio_summary(device)
    rows = []
    for (variant, source), part in summary[summary["source"] != "emulated_a100"].groupby(["variant", "source"], sort=False):
        own = device.accuracy[(device.accuracy["variant"] == variant) & (device.accuracy["source"] == source) & (device.accuracy["input"] == "normal")]
        own = own.set_index(["dtype", "n"])
        cells = [significant(own["rel_l2"].get((d, n), math.nan) / tables.UNIT_ROUNDOFF[d]) for d in ("f16", "bf16") for n in LENGTHS]
        equal = own["bit_match"].get(("f16", 4096), math.nan)
        rows.append([_who(variant, source), *cells, fixed(100 * equal, 0), f"{part['low'].min():.2f} – {part['high'].max():.2f}",
                     f"{part['low_for_data'].min():.2f} – {part['high_for_data'].max():.2f}"])  # fmt: skip
    return table(
        ["variant", *(f"{d}, {n}" for d in ("f16", "bf16") for n in LENGTHS), "equal, %", "/ formula", "/ model on the data"], _merged(rows), numeric="rest"
    )


def _hadacore(devices: list[Device]) -> str:
    rows: dict[tuple[str, int], list[str]] = {}
    sources: dict[str, None] = {}
    for device in devices:
        for row in accuracy.hadacore(device).itertuples():
            if row.source != "emulated_a100":
                sources[f"{row.source}, {_name(device).removesuffix(', emulated')}"] = None
                cells = rows.setdefault((row.dtype, row.n), [f"{row.dtype}, n = {row.n}", significant(row.quoted), significant(row.kernel, 4)])
                cells.append(f"{significant(row.rel_l2, 4)} ({100 * (row.ratio - 1):+.1f} %)")
    return table(["", "quoted", "published kernel on an H200", *sources], rows.values(), numeric="rest")


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
    rows = [
        [f"{_who(r.variant, r.source)}, {r.dtype}, n = {r.n}", *(f"{1e6 * v:.1f}" for v in (r.gain, r.gain_spread, r.predicted_gain)), f"{r.deviations:+.1f}"]
        for r in every.itertuples()
        if (r.variant, r.dtype, r.n) in GAINS and r.gain_spread > 0
    ]
    if not rows:
        return None
    judged = every.dropna(subset=["deviations"])
    far = judged[judged["deviations"].abs() > 3]
    beyond = (far["gain"] - far["predicted_gain"]).abs() > 0.025 * far["dtype"].map(tables.UNIT_ROUNDOFF).astype(float)
    return {"table": table(["normal data", "gain", "standard deviation", "predicted", "in standard deviations"], rows, numeric="rest"),
            "rows": len(judged), "far": len(far), "places": ", ".join(dict.fromkeys(f"{r.dtype} n = {r.n}" for r in far.itertuples())),
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
    formats = tables.ordered(part["format"], accuracy.FORMATS)
    rows = []
    for name in tables.ordered(part["input"], accuracy.CONTINUOUS):
        cells = part[part["input"] == name].set_index("format")[["rel_l2_plain", "rel_l2_rotated", "gain_db"]]
        found = cells.reindex(formats).itertuples(index=False, name=None)
        rows.append([name, *(f"{significant(plain, 2)} → {significant(rotated, 2)} ({gained:+.1f})" for plain, rotated, gained in found)])
    bulk = gain[gain["format"].isin(["e4m3", "nvfp4", "mxfp4"])]
    seen, adds = accuracy.transform_visibility(device, n), []
    for dtype in ("f16", "bf16"):
        for fmt in ("int8", "e4m3"):
            own = seen[(seen["format"] == fmt) & (seen["dtype"] == dtype)].sort_values("added")
            if len(own):
                low, high = own.iloc[0], own.iloc[-1]
                adds.append(f"{dtype} to {fmt} {100 * low['added']:+.1f} % ({low['variant']}) to {100 * high['added']:+.1f} % ({high['variant']})")
    return {"n": n, "hurts": int((gain["gain_db"] < -0.5).sum()), "cases": len(gain), "most_e4m3": gain.groupby("format")["gain_db"].max()["e4m3"],
            "table": table(["input", *formats], rows, numeric="rest"), "bulk": bulk.loc[bulk["bulk_gain_db"].idxmax()], "adds": adds}  # fmt: skip


def _attention(device: Device) -> dict | None:
    shapes = accuracy.attention_shapes(device)
    if not shapes:
        return None
    d, n = (128, 8448) if (128, 8448) in shapes else shapes[-1]
    frame = accuracy.attention_table(device, d, n)
    default = frame[frame["choice"] == "default"]
    rows = [[r.method, significant(r.rmse), f"{significant(r.rmse_mean)} ± {significant(r.standard_error, 1)}", significant(r.rmse_spread, 2),
             significant(r.published, 2), fixed(r.ratio)] for r in default.itertuples()]  # fmt: skip
    published = default.set_index("method")["published"]
    others = [f"{choice}: " + ", ".join(f"{r.method} {r.rmse / published.get(r.method, math.nan):.2f}" for r in part.itertuples())
              for choice, part in frame[frame["choice"] != "default"].groupby("choice", sort=False)]  # fmt: skip
    fp8 = default[default["method"].str.startswith("fp8")]
    spread = fp8["rmse_spread"] / fp8["rmse_mean"]
    turned = default[default["variants"] > 1]
    return {"d": d, "n": n, "heads": int(frame["heads"].max()), "per_head": int(frame["rows_per_head"].max()), "others": "; ".join(others),
            "table": table(["method", "RMSE", "mean", "spread", "published", "ratio"], rows, numeric="rest"),
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
            rows.append([escaped(variant["name"]), variant["memory"], *(_powers(lengths[d]) if lengths[d] else NONE for d in dtypes), places])
            if not placements:
                reasons.append((variant["name"], next(r["reason"] for s in variant["support"] for r in s["refused"])))
        support = table(["variant", "runs on", *dtypes, "in place / out of place"], rows, numeric=False)
        return render("variants.md.j2", machine=listing["machine"], support=support, reasons=reasons, special=_special_support(devices))
    except (KeyError, TypeError, StopIteration) as error:
        raise ResultsError(f"the support list lacks {error}") from None


def _special_support(devices: Sequence[Device]) -> str:
    """Row lengths m 2^k and codes that variants took, of the newest run of each."""
    wanted = (tables.covers_widths, lambda d: len(tables.fused(d)) > 0)
    found = {id(d): d for d in (newest(devices, w) for w in wanted) if d is not None}
    frames = [tables.support(d, special=True) for d in found.values()]
    rows = pd.concat(frames) if frames else pd.DataFrame({"takes": []})
    kept = rows[rows["takes"] != ""].drop_duplicates()
    lengths = [text if len(ns := re.findall(r"\d+", text)) < 9 else f"{len(ns)} lengths, {ns[0]} to {ns[-1]}" for text in kept["takes"]]
    return table(["variant", "dtype", "result", "placement", "n"],
                 [[escaped(r.variant), r.dtype, escaped(r.output), r.placement, n] for r, n in zip(kept.itertuples(), lengths)], numeric=False)  # fmt: skip


def _powers(ns: set[int]) -> str:
    """As n_ranges, with powers of two from 2^16 on written as such."""
    return re.sub(r"\d+", lambda m: f"2^{int(m[0]).bit_length() - 1}" if int(m[0]) >= 1 << 16 and int(m[0]).bit_count() == 1 else m[0], tables.n_ranges(ns))


# ----------------------------------------------------------------------------------------------------------------- command


# Page, the section of it that is generated, its template, and the way to the repository's root. Pages but README.md may be absent.
SECTIONS = (
    ("README.md", "results", "README", ""), ("docs/ladder.md", "ladder", "ladder", "../"), ("docs/linear.md", "measured", "linear", "../"),
    ("docs/several_gpus.md", "measured", "several_gpus", "../"), ("variants/kit/encode/README.md", "measured", "encode", "../../../"),
    ("variants/kronecker/README.md", "measured", "kronecker", "../../"),
)
# Of these the page shows shares of the copy and errors at three lengths: variant, dtype.
MEASURED = {"butterflies": ("butterflies", "f32"), "hadacore": ("hadacore", "f16"), "kokkos": ("kokkos_cuda", "f16"), "mma_split": ("mma_split", "f16"),
            "naive": ("naive", "f16"), "warp_shuffle": ("warp_shuffle", "f16"), "wgmma": ("wgmma", "f16")}  # fmt: skip
MEASURED_N = (1024, 8192, 32768)  # fmt: skip


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
    values = results_values(devices) | layer_values(devices)
    found = {root / "docs" / "results.md": render("results.md.j2", up="../", **values)}
    for name, section, template, up in SECTIONS:
        path = root / name
        if path.is_file() or section == "results":
            found[path] = replace_section(read_text(path), section, render(f"{template}.md.j2", up=up, **values))
    device = values["device"]
    if device is not None:
        for folder, (variant, dtype) in MEASURED.items():
            path = root / "variants" / folder / "README.md"
            if path.is_file():
                text = render("measured.md.j2", device=device, table=measured_table(device, variant, dtype))
                found[path] = replace_section(read_text(path), "measured", text)
        for drawn in (charts.speed(device), charts.error_against_speed(device)):
            found[root / FIGURES / f"{drawn.id}.svg"] = charts.svg(drawn) + "\n"
        profiled = [f for f in folders if f.has("profile.csv") and f.device == device.name]
        if profiled:
            found[root / "analysis" / "FINDINGS.md"] = findings_page(device, profiled[-1])
    measured = {d.name: d for d in reversed(devices) if len(d.accuracy)}  # the newest of each device
    if measured:
        found[root / "analysis" / "ACCURACY.md"] = accuracy_page([merge(d.name, [f for f in d.folders if f.has("accuracy.csv")]) for d in measured.values()])
    if support is not None:
        found[root / "docs" / "variants.md"] = variants_page(support, devices)
    return found


def write(found: dict[Path, str], *, check: bool) -> list[Path]:
    """Writes what differs, or with `check` only names it. ResultsError where a page cannot be written."""
    stale = [path for path, text in found.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    return stale if check else [write_text(path, found[path]) for path in stale]
