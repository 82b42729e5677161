"""Figures of the accuracy analysis. Every figure draws the model's prediction beside what was measured."""

from __future__ import annotations

import math

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter

from . import accuracy, tables
from .figures import INK, MUTED, PALETTE, STYLE, Drawing, _grid, _legend, _log2_axis, _source_line, style_of
from .load import Device

SHAPES = {
    "normal": "normal data",
    "constant": "all entries equal",
    "block_of_256": "256 equal entries",
    "one_hot": "one entry",
}
FORMAT_WORDS = {"int8": "int8", "int4": "int4", "e4m3": "FP8 e4m3", "mxfp4": "MXFP4", "nvfp4": "NVFP4"}


def draw_all(device: Device) -> list[Drawing]:
    """The figures whose experiment this device has."""
    with matplotlib.rc_context(STYLE):
        drawn = [
            draw_ratios(device),
            draw_gains(device),
            draw_bit_match(device),
            draw_ulp_histogram(device),
            draw_inputs(device),
            draw_quantization(device),
            draw_overflow(device),
            draw_attention(device),
        ]
    return [drawing for drawing in drawn if drawing]


def _series(device: Device, table: pd.DataFrame):
    """(variant, source, rows, style) in ladder order; what was not measured here has hollow marks."""
    styles = style_of(device)
    for variant in device.variants:
        for source in accuracy.SOURCES:
            rows = table[(table["variant"] == variant) & (table["source"] == source)]
            if rows.empty:
                continue
            style = dict(styles[variant])
            if source != "measured":
                style["markerfacecolor"] = "white"
            if source == "emulated_a100":
                style["linestyle"] = ":"
            yield variant, source, rows, style


def _label(variant: str, source: str) -> str:
    return variant if source == "measured" else f"{variant} ({source.replace('_', ', ')})"


def draw_ratios(device: Device) -> Drawing | None:
    """Measured over predicted against N-dependent windows: the formula above, the data's own prediction below."""
    table = accuracy.ratios(device)
    if table.empty:
        return None
    dtypes = tables.ordered(table["dtype"], ("f16", "bf16"))
    figure, axes = _grid(2 * len(dtypes), len(dtypes), 2.5, 0.9, 0.95, sharey=False)
    window = float(table["window"].max())
    for column, dtype in enumerate(dtypes):
        part = table[table["dtype"] == dtype]
        for row, ratio in enumerate(("ratio", "ratio_for_data")):
            axis = axes[row * len(dtypes) + column]
            axis.axhspan(
                1 - window, 1 + window, color="#e4efe8", zorder=0, label="window 0.02 + 6.9 / sqrt N"
            )
            axis.axhline(1, color="black", linestyle="--", linewidth=0.9, label="predicted")
            for variant, source, rows, style in _series(device, part):
                style = style | {"linestyle": "none"}
                axis.plot(rows["n"], rows[ratio], label=_label(variant, source), **style)
            _log2_axis(axis, "x", part["n"], str, rotate=True)
            low, high = min(0.95, part[ratio].min() - 0.02), max(1.05, part[ratio].max() + 0.02)
            axis.set_ylim(low, high)
            axis.set_title(
                f"{dtype}, {'formula' if row == 0 else 'the same roundings followed through the data'}"
            )
    axes[0].set_ylabel("measured / predicted")
    axes[len(dtypes)].set_ylabel("measured / predicted")
    for axis in axes[len(dtypes) :]:
        axis.set_xlabel("row length n")
    _legend(figure, axes, device.variants)
    _source_line(figure, device)
    return Drawing(
        "accuracy_ratio",
        "Measured over predicted error, all continuous inputs",
        "Each mark is one variant on one kind of input. Above: against the formula sqrt(k (0.42466 u)^2 +"
        " gain^2 + ...). Below: against the same model with the spacing of the numbers that this very data"
        " meets. What leaves the upper band and returns in the lower one is explained by the data, not by the"
        " kernel.",
        figure,
    )


def draw_gains(device: Device) -> Drawing | None:
    """Gain against n with its sampling spread; the predicted sawtooth of 16-bit constants as lines."""
    dtypes = [d for d in ("f16", "bf16", "f32") if len(accuracy.gains(device, d))]
    if not dtypes:
        return None
    figure, axes = _grid(len(dtypes), 3, 2.7, 0.9, 0.95, sharey=False)
    for axis, dtype in zip(axes, dtypes, strict=True):
        table = accuracy.gains(device, dtype)
        unit = tables.UNIT_ROUNDOFF[dtype]
        for variant, source, rows, style in _series(device, table):
            rows = rows.sort_values("n")
            axis.errorbar(
                rows["n"],
                rows["gain"] / unit,
                yerr=6 * rows["gain_spread"].astype(float).fillna(0) / unit,
                label=_label(variant, source),
                elinewidth=0.6,
                **(style | {"linestyle": "none"}),
            )
            axis.plot(
                rows["n"], rows["predicted_gain"] / unit, color=style["color"], linewidth=0.9, alpha=0.7
            )
        _log2_axis(axis, "x", table["n"], str, rotate=True)
        axis.set_title(dtype)
        axis.set_xlabel("row length n")
    axes[0].set_ylabel("gain / u")
    _legend(figure, axes, device.variants)
    _source_line(figure, device)
    return Drawing(
        "accuracy_gain",
        "Gain: the error that all elements share",
        "Normal data. Marks with six standard deviations of the sample; lines are the model: 0, but 181/256"
        " for 1/sqrt 2 at odd log2 n where constants are stored in 16 bits, and the truncation of tensor-core"
        " sums in f32.",
        figure,
    )


def draw_bit_match(device: Device) -> Drawing | None:
    table = device.accuracy
    table = table[(table["input"] == "normal") & table["bit_match"].notna()]
    dtypes = [d for d in ("f16", "bf16", "f32") if (table["dtype"] == d).any()]
    if not dtypes:
        return None
    figure, axes = _grid(len(dtypes), 3, 2.5, 0.9, 0.95)
    for axis, dtype in zip(axes, dtypes, strict=True):
        part = table[table["dtype"] == dtype]
        for variant, source, rows, style in _series(device, part):
            rows = rows.sort_values("n")
            axis.plot(
                rows["n"], 100 * rows["bit_match"].astype(float), label=_label(variant, source), **style
            )
        axis.axhline(
            100,
            color="black",
            linestyle=":",
            linewidth=1,
            label="one rounding of the exact result (model: k = 1)",
        )
        _log2_axis(axis, "x", part["n"], str, rotate=True)
        axis.set_ylim(0, 104)
        axis.set_title(dtype)
        axis.set_xlabel("row length n")
    axes[0].set_ylabel("% equal to the rounded exact result")
    _legend(figure, axes, device.variants)
    _source_line(figure, device)
    return Drawing(
        "accuracy_bit_match",
        "Share of results equal to the correctly rounded one",
        "Normal data. A model with one rounding predicts all but the few results that lie next to a rounding"
        " boundary.",
        figure,
    )


ULP_BINS = ("0", "1", "2–3", "4–7", "8–15", "16–31", "32–63", "≥ 64")


def ulp_bins(shares: np.ndarray) -> np.ndarray:
    """The sixteen bins of the file as the eight that are drawn."""
    return np.array([*shares[:7], shares[7:].sum()])


def draw_ulp_histogram(device: Device) -> Drawing | None:
    """Distance from the correctly rounded result, f16, at a short, a middle and the longest n."""
    table = device.accuracy
    table = table[(table["input"] == "normal") & (table["dtype"] == "f16") & (table["ulp_histogram"] != "")]
    ns = [n for n in (16, 128, 1024, 4096, 32768) if (table["n"] == n).any()]
    if not ns:
        return None
    figure, axes = _grid(len(ns), 5, 2.2, 0.9, 0.95)
    for axis, n in zip(axes, ns, strict=True):
        for variant, source, rows, style in _series(device, table[table["n"] == n]):
            shares = accuracy.ulp_shares(next(rows.itertuples()))
            if shares is None:
                continue
            axis.plot(
                range(len(ULP_BINS)),
                100 * np.maximum(ulp_bins(shares), 1e-7),
                label=_label(variant, source),
                **style,
            )
        axis.set_yscale("log")
        axis.set_ylim(1e-4, 200)
        axis.set_xticks(range(len(ULP_BINS)), ULP_BINS, rotation=90)
        axis.set_title(f"n = {n}")
        axis.set_xlabel("steps")
    axes[0].set_ylabel("% of the results")
    _legend(figure, axes, device.variants)
    _source_line(figure, device)
    return Drawing(
        "accuracy_ulp",
        "Distance from the correctly rounded result, f16",
        "Normal data, in steps along the numbers of the type. Errors of several roundings are absolute (about"
        " u times the row's RMS), so small results are many steps away: a model with k > 1 predicts a tail,"
        " one with k = 1 none.",
        figure,
    )


def draw_inputs(device: Device) -> Drawing | None:
    """Error over u by kind of input, one panel a dtype, at n = 4096 (or the n with most inputs)."""
    table = device.accuracy
    table = table[table["rel_l2"].notna() & table["input"].isin([*accuracy.CONTINUOUS, *accuracy.STRUCTURED])]
    counts = table.groupby("n")["input"].nunique()
    if counts.empty or counts.max() < 6:
        return None
    n = 4096 if counts.get(4096, 0) == counts.max() else int(counts.idxmax())
    table = table[table["n"] == n]
    inputs = tables.ordered(table["input"], (*accuracy.CONTINUOUS, *accuracy.STRUCTURED))
    dtypes = [d for d in ("f16", "bf16") if (table["dtype"] == d).any()]
    figure, axes = _grid(len(dtypes), 2, 3.0, 0.9, 1.35, sharey=False)
    for axis, dtype in zip(axes, dtypes, strict=True):
        unit = tables.UNIT_ROUNDOFF[dtype]
        for variant, source, rows, style in _series(device, table[table["dtype"] == dtype]):
            x = [inputs.index(name) for name in rows["input"]]
            axis.plot(
                x,
                rows["rel_l2"].astype(float) / unit,
                label=_label(variant, source),
                **(style | {"linestyle": "none"}),
            )
            for place, value in zip(x, rows["predicted_for_data"].astype(float) / unit, strict=True):
                if np.isfinite(value):
                    axis.plot([place - 0.3, place + 0.3], [value, value], color=style["color"], linewidth=1)
        axis.set_xticks(range(len(inputs)), inputs, rotation=60, ha="right")
        axis.set_yscale("symlog", linthresh=0.1)
        axis.set_ylim(bottom=-0.02)
        axis.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        axis.set_title(f"{dtype}, n = {n}")
    axes[0].set_ylabel("relative L2 error / u")
    _legend(figure, axes, device.variants)
    _source_line(figure, device)
    return Drawing(
        "accuracy_inputs",
        "Error by kind of input",
        "Marks are measured, bars the model's prediction for this data (where its roundings are independent)."
        " Constant and one-hot rows come out exactly where the scale is a power of two.",
        figure,
    )


# ------------------------------------------------------------------------------------------- what it means


def predicted_quantization(fmt: str, peak: np.ndarray) -> np.ndarray | None:
    """Error of a rotated token: a uniform grid of peak / (2^(b-1) - 1), or u of e4m3 on smooth data."""
    steps = {"int8": 127, "int4": 7}.get(fmt)
    if steps:
        return peak / steps / math.sqrt(12)
    return np.full(len(peak), tables.ROUNDING_RMS * 2.0**-4) if fmt == "e4m3" else None


def draw_quantization(device: Device) -> Drawing | None:
    """Error of quantized tokens without and with rotation, per format and n, by kind of token."""
    table = accuracy.rotation_gain(device) if len(device.quantization) else pd.DataFrame()
    if table.empty:
        return None
    formats = [f for f in accuracy.FORMATS if (table["format"] == f).any()]
    ns = sorted(table["n"].unique())
    inputs = tables.ordered(table["input"], accuracy.CONTINUOUS)
    figure, axes = _grid(len(formats), 5, 2.9, 0.72, 1.3, sharey=False)
    for axis, fmt in zip(axes, formats, strict=True):
        part = table[table["format"] == fmt]
        for index, n in enumerate(ns):
            rows = part[part["n"] == n].set_index("input").reindex(inputs)
            x = np.arange(len(inputs)) + 0.16 * (index - (len(ns) - 1) / 2)
            for a, b, place in zip(rows["rel_l2_plain"], rows["rel_l2_rotated"], x, strict=True):
                axis.plot([place, place], [a, b], color=MUTED, linewidth=0.7, zorder=1)
            axis.plot(
                x, rows["rel_l2_plain"], "o", color=PALETTE[1], markersize=3.2, label="without rotation"
            )
            axis.plot(x, rows["rel_l2_rotated"], "s", color=PALETTE[0], markersize=3.2, label="rotated")
            predicted = predicted_quantization(fmt, rows["peak_over_rms_rotated"].to_numpy(float))
            if predicted is not None:
                axis.plot(x, predicted, "_", color="black", markersize=6, label="predicted, rotated")
        axis.set_yscale("log")
        axis.set_xticks(range(len(inputs)), inputs, rotation=60, ha="right")
        axis.set_title(FORMAT_WORDS[fmt])
    axes[0].set_ylabel("relative L2 error of a token")
    _legend(figure, axes)
    _source_line(figure, device)
    return Drawing(
        "accuracy_quantization",
        "Quantized tokens with and without rotation",
        "f16 tokens, random signs and exact rotation; from left to right in each group n ="
        f" {', '.join(map(str, ns))}. Black: the prediction peak / (2^(b-1) - 1) / sqrt 12 for integers,"
        " 0.42466 / 16 for e4m3. Integers gain where outliers set the scale and lose on uniform data;"
        " floating formats cannot gain in this norm.",
        figure,
    )


def draw_overflow(device: Device) -> Drawing | None:
    """Share of rows with a spurious infinity against the row's 2-norm, and the error of the others."""
    table = device.overflow
    if table.empty:
        return None
    n = int(table["n"].max())
    table = table[table["n"] == n]
    shapes = [s for s in SHAPES if (table["shape"] == s).any()]
    figure, axes = _grid(2 * len(shapes), len(shapes), 2.2, 0.9, 0.95, sharey=False)
    names = [*tables.ordered(table["variant"], ("scale_before", "scale_after_in_f16", *device.variants))]
    styles = style_of(device)
    for column, shape in enumerate(shapes):
        part = table[table["shape"] == shape]
        upper, lower = axes[column], axes[len(shapes) + column]
        for name in names:
            rows = part[part["variant"] == name].sort_values("norm_over_limit")
            style = styles.get(name, {"color": INK, "linestyle": "--" if name == "scale_before" else ":"})
            style = {k: v for k, v in style.items() if k != "marker"}
            valid = rows["rows"] - rows["overflowing_rows"]
            upper.plot(
                rows["norm_over_limit"],
                100 * rows["spurious_rows"] / valid.where(valid > 0),
                label=name,
                **style,
            )
            lower.plot(rows["norm_over_limit"], rows["rel_l2"], label=name, **style)
        for axis in (upper, lower):
            axis.axvline(1, color="black", linewidth=0.7, label="model: norm 65504")
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter(
                FuncFormatter(lambda v, _: f"2^{round(math.log2(v))}" if v > 0 else "")
            )
        lower.axhline(
            tables.ideal_error("f16"), color="black", linestyle=":", linewidth=1, label="one rounding"
        )
        lower.set_yscale("log")
        upper.set_ylim(-4, 104)
        upper.set_title(SHAPES[shape])
        lower.set_xlabel("2-norm of the row / 65504")
    axes[0].set_ylabel("% of rows spuriously infinite")
    axes[len(shapes)].set_ylabel("relative L2 error")
    _legend(figure, axes, names)
    _source_line(figure, device)
    return Drawing(
        "accuracy_overflow",
        f"Where the scale stands: overflow and lost precision, f16, n = {n}",
        "Above: rows whose exact result is finite but that came out infinite or NaN. The model: staged fp16"
        " transforms cannot overflow below a 2-norm of 65504; sums in fp32 with the scale before the only"
        " rounding never do. Dashed and dotted black: the scale applied first, or last in fp16 storage.",
        figure,
    )


def draw_attention(device: Device) -> Drawing | None:
    """RMSE of every method by shape; published values as crosses."""
    if device.attention.empty:
        return None
    shapes = accuracy.attention_shapes(device)
    figure, axes = _grid(len(shapes), 3, 2.5, 0.72, 1.3)
    for axis, (d, n) in zip(axes, shapes, strict=True):
        table = accuracy.attention_table(device, d, n)
        table = (
            table[table["choice"] == "default"].set_index("method").reindex(accuracy.METHODS).reset_index()
        )
        x = np.arange(len(table))
        axis.errorbar(
            x,
            table["rmse_mean"],
            yerr=table["rmse_spread"],
            fmt="o",
            color=PALETTE[0],
            label="mean and spread over heads",
        )
        axis.plot(x, table["rmse"], "s", color=PALETTE[1], label="all heads together")
        axis.plot(
            x, table["published"], "x", color="black", markersize=5, label="published (shape not stated)"
        )
        axis.set_yscale("log")
        axis.set_xticks(x, [m.replace("_", " ") for m in table["method"]], rotation=60, ha="right")
        axis.set_title(f"d = {d}, n = {n}")
    axes[0].set_ylabel("RMSE against FP64")
    _legend(figure, axes)
    _source_line(figure, device)
    return Drawing(
        "accuracy_attention",
        "FlashAttention-3's FP8 table",
        "Q, K, V ~ N(0, 1) + N(0, 100) Bernoulli(0.001). Methods that rotate: the median over all variants;"
        " what the published table leaves open is listed in experiments/attention/attention.hpp.",
        figure,
    )
