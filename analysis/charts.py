"""Charts as Vega-Lite specifications: the report embeds them, vl-convert draws the figures of README and docs.

A chart is a data frame and one call; tooltips show all of its columns. Colour, dash and symbol together tell variants apart, for
the colour-blind too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from . import tables
from .load import Device

# Okabe-Ito first; the rest keeps apart from it in hue and lightness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D46", "#A23B72", "#44AA99", "#8A8A1F", "#7F6FD9", "#B0413E")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [4, 4])
PUBLISHED_STYLE = {"HadaCore, published": "#767676", "fast-hadamard-transform, published": "#A39A8E"}


@dataclass(frozen=True)
class Chart:
    """A specification without data, and its data."""

    id: str
    title: str
    words: str
    spec: dict[str, Any]
    frame: pd.DataFrame

    @property
    def height(self) -> int:
        """About how high it will be on a wide page, in pixels."""
        panel = self.spec.get("spec", self.spec)["height"] + 70
        if "facet" not in self.spec:
            return panel
        return panel * -(-max(1, self.frame[self.spec["facet"]["field"]].nunique()) // self.spec["columns"])


_places: dict[str, int] = {}  # of names, so that a variant looks the same in all charts of a page


def assign(names: Iterable[str]) -> None:
    """Starts a page: `names` get their styles in this order."""
    _places.clear()
    _places.update({name: i for i, name in enumerate(dict.fromkeys(names))})


def styles(names: Iterable[str]) -> dict[str, dict]:
    """Colour, symbol and dash of every name; no two names share all three."""
    found = {}
    for name in names:
        i = _places.setdefault(name, len(_places))
        colour = PUBLISHED_STYLE.get(name, COLOURS[i % len(COLOURS)])
        found[name] = {"color": colour, "shape": SHAPES[i % len(SHAPES)], "dash": DASHES[i % len(DASHES)]}
    return found


def field(name: str, title: str | None = None, *, log: float = 0, zero=False, domain=None, axis_format="", sort=None) -> dict[str, Any]:
    """One encoding of a column; numbers unless `sort` or the caller says otherwise. `log`: base of a logarithmic scale."""
    scale: dict[str, Any] = {"type": "log", "base": log} if log else {"zero": zero}
    if domain:
        scale |= {"domain": domain, "clamp": True}
    axis = {"labelOverlap": True} | ({"format": axis_format} if axis_format else {})
    return {"field": name, "type": "quantitative", "title": title or name, "scale": scale, "axis": axis} | ({"sort": sort} if sort else {})


def category(name: str, title: str | None = None, *, sort=None, **more) -> dict[str, Any]:
    return {"field": name, "type": "nominal", "title": title or name, "sort": sort} | more


def by_style(column: str, names: Iterable[str], marks=("color", "shape", "strokeDash")) -> dict[str, Any]:
    """Encodings of a column by the styles of its values."""
    known = styles(names)
    key = {"color": "color", "shape": "shape", "strokeDash": "dash"}
    domain = list(known)
    return {
        mark: {"field": column, "type": "nominal", "title": None,
               "scale": {"domain": domain, "range": [known[n][key[mark]] for n in domain]}}
        for mark in marks
    }  # fmt: skip


def chart(id: str, title: str, words: str, frame: pd.DataFrame, mark: str | dict, encoding: dict[str, Any], *, facet: str = "",
          columns: int = 3, width: int | str = 300, height: int = 220, layers: Iterable[dict] = ()) -> Chart:  # fmt: skip
    """`mark` over `encoding`; `layers` are drawn below with the same data; `facet`: a panel per value of that column."""
    tooltip = [{"field": c, "type": "quantitative" if frame[c].dtype.kind in "if" else "nominal", **({"format": ".4~g"} if frame[c].dtype.kind == "f" else {})}
               for c in frame]  # fmt: skip
    unit: dict[str, Any] = {"mark": mark if isinstance(mark, dict) else {"type": mark}, "encoding": encoding | {"tooltip": tooltip}}
    own_layers = list(layers)
    if unit["mark"]["type"] == "line":
        points = {k: v for k, v in encoding.items() if k != "strokeDash"}
        own_layers.append({"mark": {"type": "line", "strokeWidth": 1.6}, "encoding": {k: v for k, v in encoding.items() if k != "shape"}})
        unit = {"mark": {"type": "point", "filled": True, "size": 38}, "encoding": points | {"tooltip": tooltip}}
    panel: dict[str, Any] = {"layer": [*own_layers, unit]} if own_layers else unit
    panel |= {"width": width, "height": height}
    spec: dict[str, Any] = {}
    if facet:
        spec |= {"facet": {"field": facet, "type": "nominal", "title": None, "sort": None}, "columns": columns, "spec": panel}
    else:
        spec |= panel
    return Chart(id, title, words, spec, frame)


def rule(value: float, channel: str = "y") -> dict[str, Any]:
    """A thin line at a value."""
    return {"mark": {"type": "rule", "strokeDash": [3, 3], "opacity": 0.6}, "encoding": {channel: {"datum": value}}}


# ------------------------------------------------------------------------------------------------------- README and docs


def speed(device: Device) -> Chart:
    """Bytes moved per second by row length, against a copy and the published kernels."""
    frame = tables.speed_lines(device, "f16", "replay", 64)
    frame = frame.assign(rate=frame["rate"] / 1e12)
    names = tables.ordered(frame["who"], ["copy", "fwht::transform"])
    known = {"copy": ("#777777", [4, 3]), "fwht::transform": ("#0072B2", [1, 0])}
    other = iter((("#D55E00", [1, 0]), ("#E69F00", [6, 3])))
    style = [known.get(name) or next(other) for name in names]
    encoding = {
        "x": field("n", "row length n", log=2, axis_format="d"),
        "y": field("rate", "TB/s", zero=True),
        "color": {"field": "who", "type": "nominal", "title": None, "scale": {"domain": names, "range": [s[0] for s in style]}},
        "strokeDash": {"field": "who", "type": "nominal", "title": None, "scale": {"domain": names, "range": [s[1] for s in style]}},
    }
    words = "f16, in place, mode replay: useful bytes over time."
    return chart("speed", "Speed by row length", words, frame, "line", encoding, facet="regime", columns=2, width=340)


def error_against_speed(device: Device, dtype: str = "f16") -> Chart:
    """Every variant's error over its share of the limit, a panel per regime."""
    assign(device.variants)
    frame = tables.error_against_speed(device, dtype)
    encoding = {
        "x": field("share", "share of the copy limit", domain=[0, 1.02], axis_format="%", zero=True),
        "y": field("over_ideal", "error / one rounding", zero=True),
    } | by_style("variant", tables.ordered(frame["variant"], device.variants), ("color", "shape"))
    words = f"{dtype}, geometric means over n >= {tables.SMALLEST_N}; right and low is good."
    mark = {"type": "point", "filled": True, "size": 90, "opacity": 0.9}
    return chart("error_against_speed", "Error against speed", words, frame, mark, encoding, facet="regime", width=250)


def svg(drawn: Chart) -> str:
    """The chart as an SVG file on white."""
    import vl_convert

    style = {"font": "DejaVu Sans", "legend": {"labelLimit": 260}, "axis": {"gridColor": "#e0e0e0", "labelColor": "#444", "titleColor": "#222"}}
    spec = drawn.spec | {"data": {"values": drawn.frame.to_dict("records")}, "background": "white", "config": style}
    return vl_convert.vegalite_to_svg(spec)
