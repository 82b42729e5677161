"""ACCURACY.md: findings of the error analysis on two pages; every number comes from the results folders it names."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from . import accuracy, tables
from .load import Device, ResultsError

LENGTHS = (128, 4096, 32768)
# Rows of the gain's table: last stages of two points, others, and every stage of two points.
GAINS = (
    ("hadacore_published", "f16", 32768), ("hadacore_published", "bf16", 2), ("hadacore_published", "bf16", 32),
    ("hadacore_published", "bf16", 8192), ("hadacore_published", "bf16", 32768), ("naive", "bf16", 32768),
)  # fmt: skip


def markdown(devices: list[Device]) -> str:
    """The whole page; the first GPU leads, a host-only device adds what is emulated. ResultsError without accuracy."""
    devices = sorted((d for d in devices if len(d.accuracy)), key=lambda d: not d.newest.on_gpu)
    if not devices:
        raise ResultsError("no accuracy.csv in these results folders")
    first = devices[0]
    parts = [
        "# Accuracy: what was found\n",
        (
            "How wrong each variant is, why exactly that wrong, and whether it matters in quantized"
            " inference. Written by `python -m analysis accuracy`; every number comes from these results"
            " folders, and `python -m analysis report` shows all of their tables and figures:\n"
        ),
        _folders(devices),
        _section("What must hold", _requirements(devices)),
        _section("One formula explains the errors", _errors(first)),
        _section("HadaCore's numbers", _hadacore(devices)),
        _section("Gain", _gains(first)),
        _section("How the tensor cores add", _probes(devices)),
        _section("Where the scale stands: overflow", _overflow(first)),
        _section("Rotation before quantization", _quantization(first)),
        _section("FlashAttention-3's FP8 table", _attention(first)),
        _section("What this does not show", _limits(devices)),
    ]
    return "\n".join(part for part in parts if part).rstrip() + "\n"


def _section(title: str, body: str) -> str:
    return f"## {title}\n\n{body}\n" if body else ""


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def _merged(rows: list[list[str]]) -> list[list[str]]:
    """Rows that differ in their first cell only, as one."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, *cells in rows:
        names.setdefault(tuple(cells), []).append(name)
    return [[", ".join(who), *cells] for cells, who in names.items()]


def _folders(devices: list[Device]) -> str:
    return (
        "\n".join(
            f"- [`{folder.name}`](../experiments/results/{folder.name}): {device.name}, commit"
            f" `{folder.commit[:10]}`"
            + (", **uncommitted changes**" if folder.context["dirty"] else "")
            for device in devices
            for folder in device.folders
        )
        + "\n"
    )


def _name(device: Device) -> str:
    return device.name if device.newest.on_gpu else "host, emulated"


def _requirements(devices: list[Device]) -> str:
    """A line for each thing that must hold, with what every device says of it."""
    found: dict[str, dict[str, list[str]]] = {}
    for device in devices:
        for r in accuracy.requirements(device):
            says = f"**{'holds' if r.holds else 'does not hold'}** ({{}}): {r.detail}"
            found.setdefault(r.words, {}).setdefault(says, []).append(_name(device))
    return "\n".join(
        f"- {words[0].upper()}{words[1:]}. "
        + ". ".join(line.format("; ".join(names)) for line, names in says.items())
        + "."
        for words, says in found.items()
    )


def _percent(ratio: float, digits: int = 1) -> str:
    return f"{100 * (ratio - 1):+.{digits}f} %"


def _number(value: float, digits: int = 3) -> str:
    """Significant digits, as a power of ten where that is shorter."""
    if value is None or not np.isfinite(value):
        return "–"
    if value != 0 and not 1e-2 <= abs(value) < 1e4:
        return f"{value:.{digits - 1}e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:.{digits}g}"


def _range(values) -> str:
    """One number, or least and greatest."""
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return low if low == high else f"{low} to {high}"


# --------------------------------------------------------------------------------------------------- the error


def _errors(device: Device) -> str:
    summary = accuracy.ratio_summary(device)
    if summary.empty:
        return ""
    lines = []
    summary = summary[summary["source"] != "emulated_a100"]
    for (variant, source), part in summary.groupby(["variant", "source"], sort=False):
        table = device.accuracy
        table = table[
            (table["variant"] == variant) & (table["source"] == source) & (table["input"] == "normal")
        ]
        errors = table.set_index(["dtype", "n"])["rel_l2"].astype(float)
        cells = [
            _number(errors.get((dtype, n), math.nan) / tables.UNIT_ROUNDOFF[dtype])
            for dtype in ("f16", "bf16")
            for n in LENGTHS
        ]
        equal = table.set_index(["dtype", "n"])["bit_match"].astype(float).get(("f16", 4096), math.nan)
        lines.append(
            [
                _who(next(part.itertuples())),
                *cells,
                f"{100 * equal:.0f}" if np.isfinite(equal) else "–",
                f"{part['low'].min():.2f} – {part['high'].max():.2f}",
                f"{part['low_for_data'].min():.2f} – {part['high_for_data'].max():.2f}",
            ]
        )
    elements = int(device.accuracy["elements"].max())
    text = (
        "relative L2 error² = k (0.42466 u)² + gain² + (fp32 arithmetic)², with k roundings to the storage"
        f" type on the way (`common/numerics.hpp`). Up to {elements} elements over three seeds. Error"
        " over u on normal data; f16 results equal to the correctly rounded one at n = 4096; measured over"
        " predicted on all continuous inputs, by the formula and by the same roundings followed through the"
        " data.\n\n"
    )
    header = ["variant", *(f"{d}, {n}" for d in ("f16", "bf16") for n in LENGTHS)]
    text += _table([*header, "equal, %", "/ formula", "/ model on the data"], _merged(lines))
    found = accuracy.findings(device)
    if len(found):
        text += "\nOutside the window of the formula, with the ratio to the model on the data:\n\n" + "\n".join(
            f"- {row.words}: {row.cases} cases ({row.inputs}), {row.low_for_data:.3f} to"
            f" {row.high_for_data:.3f}."
            for row in found.itertuples()
        )
    wrong = accuracy.nonfinite(device)
    return (
        text
        + f"\n\nNaN or infinities where they must not be, or missing ones: {len(wrong)} of"
        f" {len(device.accuracy)} rows."
    )


def _who(row) -> str:
    return row.variant if row.source == "measured" else f"{row.variant} ({row.source.replace('_', ', ')})"


def _hadacore(devices: list[Device]) -> str:
    rows: dict[tuple[str, int], list[str]] = {}
    for device in devices:
        for row in accuracy.hadacore(device).itertuples():
            if row.source == "emulated_a100":
                continue
            cells = rows.setdefault(
                (row.dtype, row.n), [f"{row.dtype}, n = {row.n}", _number(row.quoted), _number(row.kernel, 4)]
            )
            cells.append(f"{_number(row.rel_l2, 4)} ({_percent(row.ratio)})")
    if not rows:
        return ""
    header = ["", "quoted", "published kernel on an H200"]
    sources = [
        f"{row.source}, {_name(device).removesuffix(', emulated')}"
        for device in devices
        for row in accuracy.hadacore(device).drop_duplicates("source").itertuples()
        if row.source != "emulated_a100"
    ]
    text = (
        "`hadacore_published` against what is quoted for that kernel and against the kernel itself, built"
        " from its sources (`baselines/h200_published_accuracy.csv`):\n\n"
        + _table([*header, *sources], list(rows.values()))
        + "\nThe quoted figures have three digits and an unknown sample: 2.35e-3 stands for anything from"
        " 2.345e-3 to 2.355e-3, so the rule is 1 % from a number that rounds to the figure. (A sample of 100"
        " rows of 64 alone would spread by up to 1.153 / sqrt(6400) = 1.4 %.)"
    )
    a100 = _a100(devices)
    return text + (" " + a100 if a100 else "")


def _a100(devices: list[Device]) -> str:
    """The predictions for an A100 against the H200's arithmetic, both emulated."""
    for device in devices:
        table = device.accuracy
        table = table[(table["variant"] == "hadacore") & (table["input"] == "normal")]
        both = table[table["source"] == "emulated"].merge(
            table[table["source"] == "emulated_a100"], on=["dtype", "n"], suffixes=("", "_a100")
        )
        if both.empty:
            continue
        both["factor"] = both["rel_l2_a100"].astype(float) / both["rel_l2"].astype(float)
        f16, bf16 = both[(both["dtype"] == "f16") & (both["n"] >= 16)], both[both["dtype"] == "bf16"]
        return (
            "Predicted for an A100, whose tensor cores chain two blocks of eight products (not measured):"
            f" f16 {f16['factor'].min():.2f} to {f16['factor'].max():.2f} times the H200's error for n >= 16,"
            f" bf16 {bf16['factor'].min():.3f} to {bf16['factor'].max():.3f} times."
            + _a100_bounds(device)
        )
    return ""


def _a100_bounds(device: Device) -> str:
    """Predictions that leave the elementwise bounds of their own model."""
    rows = device.accuracy[device.accuracy["source"] == "emulated_a100"]
    outside = rows[rows["status"] == "incorrect"]
    if outside.empty:
        return ""
    return (
        f" {len(outside)} of {len(rows)} rows (f16, n = {outside['n'].min()} to"
        f" {outside['n'].max()}) leave the elementwise bounds: the model holds the size of the partial sums'"
        " rounding, not where it falls."
    )


def _gains(device: Device) -> str:
    rows, judged = [], []
    for dtype in ("f16", "bf16"):
        table = accuracy.gains(device, dtype)
        table = table[table["source"] != "emulated_a100"].assign(dtype=dtype)
        judged.append(table)
        for row in table.itertuples():
            if (row.variant, dtype, row.n) in GAINS and row.gain_spread > 0:
                rows.append(
                    [
                        f"{_who(row)}, {dtype}, n = {row.n}",
                        f"{row.gain * 1e6:.1f}",
                        f"{row.gain_spread * 1e6:.1f}",
                    ]
                    + [f"{row.predicted_gain * 1e6:.1f}", f"{row.deviations:+.1f}"]
                )
    if not rows:
        return ""
    every = pd.concat(judged, ignore_index=True).dropna(subset=["deviations"])
    far = every[every["deviations"].abs() > 3]
    allowance = 0.025 * every["dtype"].map(tables.UNIT_ROUNDOFF)
    beyond = int(((far["gain"] - far["predicted_gain"]).abs() > allowance[far.index]).sum())
    places = ", ".join(dict.fromkeys(f"{row.dtype} n = {row.n}" for row in far.itertuples()))
    return (
        "The error that all results share, in units of 1e-6: -106.8 where 1/sqrt 2 is stored in 16 bits"
        " (181/256), and -2.75 for each bf16 rounding of a smooth density. Sums of two bf16 numbers lie on a"
        " coarse lattice, which `reference/lattice` follows exactly: a last stage of two points (n = 2, 32,"
        " 512, 8192) gives +10.3 instead, a radix-2 stage that is stored (naive) about -6.\n\n"
        + _table(["normal data", "gain", "standard deviation", "predicted", "in standard deviations"], rows)
        + f"\nOf all {len(every)} rows of 16-bit normal data {len(far)} lie more than three standard"
        " deviations off"
        + (
            f" (variants share their data): {places}, the farthest"
            f" {every['deviations'].loc[every['deviations'].abs().idxmax()]:+.1f}. Stages of more points are"
            f" taken for smooth. {beyond} leave the allowance for lattices, 0.025 u (98 in bf16)."
            if len(far)
            else "."
        )
    )


# ---------------------------------------------------------------------------------------------------- hardware


def _probes(devices: list[Device]) -> str:
    text = ""
    for device in devices:
        if device.probes.empty:
            continue
        summary = accuracy.probe_summary(device)
        measured, a100 = (summary[summary["source"] == source] for source in ("measured", "emulated_a100"))
        if len(measured):
            wide = measured[measured["accumulator"] == "f32"]
            text += (
                f"{_name(device)}, {len(measured)} instructions of mma.sync and wgmma:"
                f" {_range(measured['fraction_bits'])} fraction bits below the largest product,"
                f" {_range(measured['fused_products'])} products at once; {measured['mismatches'].sum()} of"
                f" {measured['vectors'].sum()} random vectors differ from the model (arXiv 2512.07004,"
                f" 2511.10909; `reference/emulation.hpp`), {measured['order'].sum():.0f} of"
                f" {measured['order_vectors'].sum()} change with the order inside a block"
                + (f"; f32 sums are truncated, a gain of {_number(wide['gain'].min())}" if len(wide) else "")
                + ". "
            )
        if len(a100) and "A100" not in text:
            text += (
                f"The model of an A100, not measured: {_range(a100['fraction_bits'])} bits,"
                f" {_range(a100['fused_products'])} products, {a100['order'].sum():.0f} of"
                f" {a100['order_vectors'].sum()} change. "
            )
    return text.strip() + "\n" if text else ""


def _overflow(device: Device) -> str:
    if device.overflow.empty:
        return ""
    onset = accuracy.overflow_onset(device)
    n = int(onset["n"].max())
    part = onset[(onset["n"] == n) & (onset["source"] != "emulated_a100")]
    rows = []
    for variant in tables.ordered(part["variant"], (*device.variants, "scale_before", "scale_after_in_f16")):
        cells = part[part["variant"] == variant].set_index("shape")["onset"]
        begins = [f"{_shapes()[s]} {cells[s]:.3g}" for s in _shapes() if np.isfinite(cells.get(s, math.nan))]
        rows.append([f"`{variant}`", ", ".join(begins) or "never"])
    small = device.overflow
    small = small[(small["n"] == n) & (small["shape"] == "normal")]
    lost = small[small["variant"] == "scale_before"].sort_values("norm_over_limit")
    words = ""
    if len(lost):
        row = lost.iloc[(lost["rms"] - 1e-3).abs().argsort().iloc[0]]
        kept = small[
            (small["variant"] == "warp_shuffle") & (small["norm_over_limit"] == row["norm_over_limit"])
        ]
        other = (
            f" against {_number(float(kept['rel_l2'].iloc[0]))} with the scale last in fp32"
            if len(kept)
            else ""
        )
        words = (
            f" The scale first costs precision instead: {_number(float(row['rel_l2']))} at an RMS of "
            f"{_number(float(row['rms']), 2)}{other}."
        )
    return (
        f"f16, n = {n}: the 2-norm of a row, over 65504, from which on finite results come out infinite or"
        " NaN, tested in half octaves: 1.41 is the first above 1, below which a staged fp16 transform cannot"
        " overflow. "
        + "; ".join(f"{who}: {begins}" for who, begins in _merged(rows))
        + "."
        + words
        + "\n"
    )


def _shapes() -> dict[str, str]:
    return {"normal": "normal", "constant": "all equal", "block_of_256": "256 equal", "one_hot": "one entry"}


# ---------------------------------------------------------------------------------------------------- meaning


def _quantization(device: Device) -> str:
    if device.quantization.empty:
        return ""
    gain = accuracy.rotation_gain(device)
    n = 4096
    part = gain[gain["n"] == n]
    rows = []
    for name in tables.ordered(part["input"], accuracy.CONTINUOUS):
        cells = part[part["input"] == name].set_index("format")
        rows.append(
            [name]
            + [
                f"{_number(cells['rel_l2_plain'][f], 2)} → {_number(cells['rel_l2_rotated'][f], 2)}"
                f" ({cells['gain_db'][f]:+.1f})"
                for f in accuracy.FORMATS
            ]
        )
    bulk = gain[gain["format"].isin(["e4m3", "nvfp4", "mxfp4"])]
    best = bulk.loc[bulk["bulk_gain_db"].idxmax()]
    hurts = gain[gain["gain_db"] < -0.5]
    most = gain.groupby("format")["gain_db"].max()
    return (
        f"Relative L2 error of f16 tokens of n = {n} without → with rotation (gain in dB). Integers gain"
        f" where outliers set the scale and lose on uniform data; in {len(hurts)} of {len(gain)} cases over"
        " all n rotation costs more than 0.5 dB. The error of e4m3 is relative to each number and cannot"
        f" gain in this norm (at most {most['e4m3']:+.1f} dB); MXFP4 gains where its power-of-two scale cuts"
        " off the largest number of a block.\n\n"
        + _table(["input", *accuracy.FORMATS], rows)
        + "\nOf the bulk alone (no outliers, in their own columns) a floating format gains at most"
        f" {best['bulk_gain_db']:+.1f} dB ({best['format']}, {best['input']}, n = {best['n']})."
        + _visibility(device, n)
    )


def _visibility(device: Device, n: int) -> str:
    """What the variants' own rounding adds, least and most."""
    table = accuracy.transform_visibility(device, n)
    words = []
    for dtype in ("f16", "bf16"):
        for fmt in ("int8", "e4m3"):
            part = table[(table["format"] == fmt) & (table["dtype"] == dtype)].sort_values("added")
            if len(part):
                low, high = part.iloc[0], part.iloc[-1]
                words.append(
                    f"{dtype} to {fmt} {100 * low['added']:+.1f} % ({low['variant']}) to"
                    f" {100 * high['added']:+.1f} % ({high['variant']})"
                )
    if not words:
        return ""
    return " A variant's own rounding adds, in its worst input: " + "; ".join(words) + "."


def _attention(device: Device) -> str:
    shapes = accuracy.attention_shapes(device)
    if not shapes:
        return ""
    d, n = (128, 8448) if (128, 8448) in shapes else shapes[-1]
    table = accuracy.attention_table(device, d, n)
    default = table[table["choice"] == "default"]
    rows = [
        [row.method, _number(row.rmse), f"{_number(row.rmse_mean)} ± {_number(row.standard_error, 1)}"]
        + [_number(row.rmse_spread, 2), _number(row.published, 2), f"{row.ratio:.2f}"]
        for row in default.itertuples()
    ]
    heads, per_head = int(table["heads"].max()), int(table["rows_per_head"].max())
    turned = default[default["variants"] > 1]
    spread = max((float(r.high / r.low - 1) for r in turned.itertuples()), default=math.nan)
    text = (
        "In place of the HadaCore paper's MMLU table, which needs weights. Q, K, V ~ N(0, 1) + N(0, 100)"
        f" Bernoulli(0.001), d = {d}, n = {n}, {heads} heads, {per_head} query rows of each; RMSE against"
        " FP64 of all heads together, mean over heads with its standard error, spread over heads, and the"
        " RMSE over that of Table 3 in arXiv 2407.08608.\n\n"
        + _table(["method", "RMSE", "mean", "spread", "published", "ratio"], rows)
        + "\nWhat the paper leaves open is chosen on documented grounds"
        " (`experiments/attention/attention.hpp`). Its baseline is scaled per tensor, and the softmax"
        " weights p are an FP8 tensor like the others: they are scaled to e4m3's range. FlashAttention-3's"
        " published kernels scale p by 2^8. "
    )
    others = _other_choices(table)
    if others:
        text += f"Other choices, over the published value: {others}. "
    text += f"The published sample is not known; one head spreads by {_head_spread(table)}."
    if len(turned):
        text += (
            f" Between the {int(turned['variants'].max())} variants that rotated Q and K the rows differ by"
            f" at most {100 * spread:.2f} %: the rounding pattern of the transform does not matter here."
        )
    return text


def _other_choices(table: pd.DataFrame) -> str:
    published = table[table["choice"] == "default"].set_index("method")["published"]
    words = []
    for choice, part in table[table["choice"] != "default"].groupby("choice", sort=False):
        ratios = (
            f"{row.method} {row.rmse / published.get(row.method, math.nan):.2f}" for row in part.itertuples()
        )
        words.append(f"{choice}: " + ", ".join(ratios))
    return "; ".join(words)


def _head_spread(table: pd.DataFrame) -> str:
    default = table[(table["choice"] == "default") & table["method"].str.startswith("fp8")]
    shares = default["rmse_spread"] / default["rmse_mean"]
    return f"{100 * shares.min():.0f} to {100 * shares.max():.0f} %" if len(shares) else "–"


def _limits(devices: list[Device]) -> str:
    lines = [
        (
            "Variants whose sums have no host emulation (tensor-core stages with bf16 hi + lo pairs, Kokkos"
            " on CUDA) appear on a GPU only; A100 rows are predictions."
        ),
        (
            "Hopper's FP8 tensor cores keep about 14 bits of a sum; the attention rows sum in fp32. On a host"
            " 32 query rows of each head are compared, too few for a heavy tail: those RMSE are not judged."
        ),
        "Gains of rotation are those of random tokens; what a model's accuracy makes of them needs weights.",
    ]
    if not any(d.newest.on_gpu for d in devices):
        lines.insert(0, "No GPU was measured in these folders.")
    return "\n".join(f"- {line}" for line in lines)
