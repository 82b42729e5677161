"""ACCURACY.md: findings of the error analysis on two pages; every number comes from the results folders it names."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from . import accuracy, tables
from .load import Device, ResultsError

LENGTHS = (128, 4096, 32768)


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
            " folders, whose report holds the rest:\n"
        ),
        _folders(devices),
        _section("What must hold", _requirements(devices)),
        _section("One formula explains the errors", _errors(first)),
        _section("HadaCore's numbers", _hadacore(devices)),
        _section("Gain", _gains(devices)),
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
    return "\n".join(
        f"- **{'Holds' if r.holds else 'Does not hold'}** ({_name(device)}): {r.words}. {r.detail}."
        for device in devices
        for r in accuracy.requirements(device)
    )


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def _number(value: float, digits: int = 3) -> str:
    """Significant digits, as a power of ten where that is shorter."""
    if value is None or not np.isfinite(value):
        return "–"
    if value != 0 and not 1e-2 <= abs(value) < 1e4:
        return f"{value:.{digits - 1}e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:.{digits}g}"


# --------------------------------------------------------------------------------------------------- the error


def _errors(device: Device) -> str:
    summary = accuracy.ratio_summary(device)
    if summary.empty:
        return ""
    lines = []
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
                f"{part['low'].min():.3f} – {part['high'].max():.3f}",
                f"{part['low_for_data'].min():.3f} – {part['high_for_data'].max():.3f}",
                f"{part['outside'].sum()} of {part['cases'].sum()}",
            ]
        )
    elements = int(device.accuracy["elements"].max())
    text = (
        "relative L2 error² = k (0.42466 u)² + gain² + (fp32 arithmetic)², with k roundings to the storage"
        f" type on the way (`common/numeric_model.hpp`). Up to {elements} elements over three seeds. Error"
        " over u on normal data; share of f16 results equal to the correctly rounded one at n = 4096;"
        " measured over predicted on all continuous inputs, f16 and bf16, by the formula and by the same"
        " roundings followed through the data.\n\n"
    )
    header = ["variant", *(f"{d}, {n}" for d in ("f16", "bf16") for n in LENGTHS)]
    text += _table([*header, "equal, %", "/ formula", "/ model on the data", "outside the window"], lines)
    found = accuracy.findings(device)
    if len(found):
        text += "\nWhat lies outside the window of the formula, and why:\n\n" + "\n".join(
            f"- {row.words}: {row.cases} cases ({row.inputs}; n = {row.smallest_n} to {row.largest_n};"
            f" {row.low:.3f} to {row.high:.3f} of the formula, {row.low_for_data:.3f} to"
            f" {row.high_for_data:.3f} of the model on the data)."
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
    rows = []
    for device in devices:
        for row in accuracy.hadacore(device).itertuples():
            if row.source == "emulated_a100":
                continue
            rows.append(
                [
                    f"{row.dtype}, n = {row.n}",
                    _number(row.published),
                    _number(row.rel_l2, 4),
                    _percent(row.ratio),
                ]
                + [_number(row.mean_row, 4), _percent(row.mean_row / row.published)]
                + [row.source, _name(device), str(row.elements)]
            )
    if not rows:
        return ""
    header = ["", "published", "all rows together", "difference", "mean over rows", "difference"]
    text = _table([*header, "source", "device", "elements"], rows)
    a100 = _a100(devices)
    return text + ("\n" + a100 if a100 else "")


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
            "Prediction for an A100, whose tensor cores chain two blocks of eight products (not measured):"
            f" f16 {f16['factor'].min():.2f} to {f16['factor'].max():.2f} times the H200's error for n >= 16,"
            f" bf16 {bf16['factor'].min():.3f} to {bf16['factor'].max():.3f} times." + _a100_bounds(device)
        )
    return ""


def _a100_bounds(device: Device) -> str:
    """Predictions that leave the elementwise bounds of their own model."""
    rows = device.accuracy[device.accuracy["source"] == "emulated_a100"]
    outside = rows[rows["status"] == "incorrect"]
    if outside.empty:
        return ""
    return (
        f" {len(outside)} of {len(rows)} predicted rows (f16, n = {outside['n'].min()} to"
        f" {outside['n'].max()}) leave the elementwise bounds: the model holds the size of the partial sums'"
        " rounding, not where it falls. On an A100 the conformance checks would say the same."
    )


def _gains(devices: list[Device]) -> str:
    rows = []
    for device in devices[:1]:
        for dtype in ("f16", "bf16"):
            table = accuracy.gains(device, dtype)
            table = table[(table["variant"] == "hadacore_published") & (table["source"] != "emulated_a100")]
            for row in table[table["predicted_gain"].abs() > 5e-5].sort_values("n").itertuples():
                if dtype == "bf16" or row.n in (2, 32, 2048, 32768):
                    rows.append(
                        [f"{dtype}, n = {row.n}", f"{row.gain * 1e6:.1f}", f"{row.gain_spread * 1e6:.1f}"]
                        + [
                            f"{row.predicted_gain * 1e6:.1f}",
                            f"{(row.gain - row.predicted_gain) / row.gain_spread:+.1f}",
                        ]
                    )
    if not rows:
        return ""
    return (
        "The error that all results share, in units of 1e-6: where 1/sqrt 2 is stored in 16 bits (181/256) it"
        " is -106.8, and each bf16 rounding takes 2.75 more (`measured_gain` in `reference/tolerance.hpp`)."
        " hadacore_published on normal data:\n\n"
        + _table(["", "gain", "standard deviation", "predicted", "in standard deviations"], rows)
        + _lattice(devices[0])
    )


def _lattice(device: Device) -> str:
    """The offset of a last stage that adds two numbers, and naive's."""
    table = accuracy.gains(device, "bf16")
    table = table.assign(offset=(table["gain"] - table["predicted_gain"]) * 1e6)
    own = table[table["variant"] == "hadacore_published"]
    pairs, others = own[own["n"].isin([2, 32, 512, 8192])], own[own["n"].isin([8, 128, 2048, 32768])]
    naive = table[(table["variant"] == "naive") & (table["n"] == 32768)]
    if pairs.empty or others.empty:
        return ""
    text = (
        f"\nA last stage of two points (n = 2, 32, 512, 8192) is off by {pairs['offset'].min():+.1f} to"
        f" {pairs['offset'].max():+.1f}, all others by {others['offset'].min():+.1f} to"
        f" {others['offset'].max():+.1f}: sums of two bf16 numbers times 181/256 lie on few residues, whose"
        " rounding is not level over a step. n = 2, where nothing else rounds, has the same offset. "
    )
    if len(naive):
        row = naive.iloc[0]
        text += (
            f"naive, which rounds after every radix-2 stage, shows {row['gain'] * 1e6:.0f} instead of"
            f" {row['predicted_gain'] * 1e6:.0f} at n = 32768 in bf16 as sums on one grid tie often. Both are"
            " inside the allowance of 0.025 u for lattices (98 in these units)."
        )
    return text


# ---------------------------------------------------------------------------------------------------- hardware


def _probes(devices: list[Device]) -> str:
    rows = []
    for device in devices:
        if device.probes.empty:
            continue
        for row in accuracy.probe_summary(device).itertuples():
            if row.source == "emulated":
                continue
            rows.append(
                [f"{row.instruction}, {row.operand} to {row.accumulator}", row.source.replace("_", ", ")]
                + [
                    f"{row.fraction_bits:.0f}",
                    f"{row.fused_products:.0f}",
                    f"{row.mismatches} of {row.vectors}",
                ]
                + [f"{row.order:.0f} of {row.order_vectors}", _number(row.gain, 3)]
            )
    rows = [
        row for index, row in enumerate(rows) if row not in rows[:index]
    ]  # the model is the same anywhere
    if not rows:
        return ""
    header = ["instruction", "source", "fraction bits", "products at once", "differ from the model"]
    return (
        "Found from the values that come back; the model is that of arXiv 2512.07004 and 2511.10909"
        " (`reference/emulation.hpp`). An f16 accumulator hides the last bits. Rows of an A100 are the"
        " model's.\n\n"
        + _table([*header, "changed by order", "truncation gain"], rows)
    )


def _overflow(device: Device) -> str:
    if device.overflow.empty:
        return ""
    onset = accuracy.overflow_onset(device)
    n = int(onset["n"].max())
    part = onset[(onset["n"] == n) & (onset["source"] != "emulated_a100")]
    rows = []
    for variant in tables.ordered(part["variant"], (*device.variants, "scale_before", "scale_after_in_f16")):
        cells = part[part["variant"] == variant].set_index("shape")["onset"]
        rows.append(
            [
                variant,
                *(
                    ("never" if not np.isfinite(v) else f"{v:.3g}")
                    for v in (cells.get(s, math.nan) for s in _shapes())
                ),
            ]
        )
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
            f"\nThe scale first costs precision instead: {_number(float(row['rel_l2']))} at an RMS of "
            f"{_number(float(row['rms']), 2)}{other}."
        )
    return (
        f"f16, n = {n}: the 2-norm of a row, over 65504, from which on finite results come out infinite or"
        " NaN, tested in half octaves: 1.41 is the first above 1, below which a staged fp16 transform cannot"
        " overflow; fp32 sums never do.\n\n"
        + _table(["variant", "normal", "all equal", "256 equal entries", "one entry"], rows)
        + words
    )


def _shapes() -> tuple[str, ...]:
    return ("normal", "constant", "block_of_256", "one_hot")


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
        f"Relative L2 error of f16 tokens of n = {n} without → with rotation (gain in dB). Rotation helps"
        f" integers where outliers set the scale and hurts them on uniform data; in {len(hurts)} of"
        f" {len(gain)} cases over all n it costs more than 0.5 dB. The error of e4m3 is relative to each"
        f" number, so it cannot gain in this norm (at most {most['e4m3']:+.1f} dB); MXFP4 gains where its"
        " power-of-two scale cuts off the largest number of a block.\n\n"
        + _table(["input", *accuracy.FORMATS], rows)
        + "\nThe largest gain of the bulk (entries that are no outliers, in their own columns) of a floating"
        f" format is {best['bulk_gain_db']:+.1f} dB ({best['format']}, {best['input']}, n = {best['n']})."
        " What a variant's own rounding adds to the error of an exact rotation, in its worst case over"
        " inputs and n:\n\n"
        + _visibility(device)
    )


def _visibility(device: Device) -> str:
    table = accuracy.transform_visibility(device)
    columns = [(d, f) for d in ("f16", "bf16") for f in ("int8", "e4m3", "int4")]
    rows = []
    for (variant, source), part in table.groupby(["variant", "source"], sort=False):
        added = part.set_index(["dtype", "format"])["added"]
        cells = [added.get(column, math.nan) for column in columns]
        who = _who(next(part.itertuples()))
        rows.append([who, *(f"{100 * v:+.1f} %" if np.isfinite(v) else "–" for v in cells)])
    return _table(["variant", *(f"{d}, {f}" for d, f in columns)], rows)


def _attention(device: Device) -> str:
    shapes = accuracy.attention_shapes(device)
    if not shapes:
        return ""
    d, n = (128, 8448) if (128, 8448) in shapes else shapes[-1]
    table = accuracy.attention_table(device, d, n)
    rows = [
        [
            row.method if row.choice == "default" else f"{row.method}, {row.choice}",
            _number(row.rmse),
            _number(row.rmse_mean),
        ]
        + [
            _number(row.rmse_spread, 2),
            _number(row.published, 2),
            f"{row.ratio:.2f}" if np.isfinite(row.ratio) else "–",
        ]
        for row in table.itertuples()
    ]
    heads, per_head = int(table["heads"].max()), int(table["rows_per_head"].max())
    turned = table[(table["variants"] > 1) & (table["choice"] == "default")]
    spread = max((float(r.high / r.low - 1) for r in turned.itertuples()), default=math.nan)
    variants = int(turned["variants"].max()) if len(turned) else 1
    others = []
    for shape in shapes:
        other = accuracy.attention_table(device, *shape)
        cells = other[other["choice"] == "default"].set_index("method")["rmse"]
        if {"fp8_baseline", "fp8_fa3", "fp8_no_rotation"} <= set(cells.index):
            others.append(
                f"d = {shape[0]}, n = {shape[1]}: {_number(cells['fp8_baseline'])},"
                f" {_number(cells['fp8_no_rotation'])}, {_number(cells['fp8_fa3'])}"
            )
    text = (
        "This stands in for the HadaCore paper's MMLU table, which needs weights. Q, K, V ~ N(0, 1) + N(0,"
        f" 100) Bernoulli(0.001), d = {d}, n = {n}, {heads} heads, {per_head} query rows of each; RMSE"
        " against FP64 of all heads together, and mean and spread over heads.\n\n"
        + _table(["method", "RMSE", "mean", "spread", "published", "ratio"], rows)
    )
    if variants > 1:
        text += (
            f"\nThe rows that rotate differ by at most {100 * spread:.2f} % between the {variants} variants"
            " that rotated Q and K: the rounding pattern of the transform does not matter here. "
        )
    return text + (
        "Unstated in the paper and chosen here: shape, reference on the unrounded inputs, per-head tensors,"
        " weights cast without a scale, fp32 sums (`experiments/attention/attention.hpp`); rows with another"
        " choice show its effect. FP8 baseline, without rotation, FlashAttention-3 at the other shapes: "
        + "; ".join(others)
        + "."
    )


def _limits(devices: list[Device]) -> str:
    lines = [
        (
            "Variants whose sums have no host emulation (tensor-core stages with bf16 hi + lo pairs, Kokkos)"
            " appear on a GPU only."
        ),
        "Hopper's FP8 tensor cores keep about 14 bits of a sum; the attention rows sum in fp32.",
        (
            "On a host 32 query rows of each head are compared, too few for a heavy tail: those RMSE are not"
            " judged."
        ),
        "A100 rows are predictions of the model; no A100 was measured.",
        "Gains of rotation are those of random tokens; what a model's accuracy makes of them needs weights.",
    ]
    if not any(d.newest.on_gpu for d in devices):
        lines.insert(0, "No GPU was measured in these folders.")
    return "\n".join(f"- {line}" for line in lines)
