"""What the pages are made of: charts as Vega-Lite specifications and tables of data frames. The report embeds both, vl-convert
draws the figures of README and docs.

`templates/parts.toml` has titles, words and columns; a part is its id, a data frame and one call. Tooltips show all columns.
Colour, dash and symbol together tell variants apart, for the colour-blind too.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from .tables import OWN, binary, byte_text, fixed, percent, significant, time_text

TEMPLATES = Path(__file__).parent / "templates"
PARTS = tomllib.loads((TEMPLATES / "parts.toml").read_text(encoding="utf-8"))
# Okabe-Ito first; the rest keeps apart from it in hue and lightness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D46", "#A23B72", "#44AA99", "#8A8A1F", "#7F6FD9", "#B0413E")
# Symbols of Vega, by name or as a path in a square from -1 to 1, and the letter that stands for them. As many as are coprime to the colours.
SHAPES = {
    "circle": "●", "square": "■", "triangle-up": "▲", "diamond": "◆", "cross": "✚", "triangle-down": "▼", "triangle-right": "▶", "triangle-left": "◀",
    "M0,-1L.87,-.5L.87,.5L0,1L-.87,.5L-.87,-.5Z": "⬢", "M-1,-.8L1,.8L1,-.8L-1,.8Z": "⧓", "M-1,-.35H1V.35H-1Z": "▬",
    "M0,-1L.95,-.31L.59,.81H-.59L-.95,-.31Z": "⬟",
    "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z": "✖",
}  # fmt: skip
DASHES = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [4, 4])
OWN_STYLE = {"color": "#E6007E", "shape": "M0,-1L.3,-.3L1,-.25L.45,.2L.6,.95L0,.55L-.6,.95L-.45,.2L-1,-.25L-.3,-.3Z", "letter": "★", "dash": [1, 0]}
PUBLISHED_STYLE = {"HadaCore, published": "#767676", "fast-hadamard-transform, published": "#A39A8E"}
# As those of report.js, for Markdown and the terminal.
FORMATS: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(("text", "settings", "folder"), str),
    "int": lambda v: fixed(v, 0), "fixed": fixed, "fixed1": lambda v: fixed(v, 1), "fixed3": lambda v: fixed(v, 3), "number": significant,
    "percent": percent, "us": time_text, "bytes": byte_text, "rate": lambda v: f"{significant(v / 1e12)} TB/s", "binary": binary,
}  # fmt: skip

Columns = list[tuple[str, str, str]]  # field, title, format


def escaped(text: object) -> str:
    """Text from a results folder, for a cell or a sentence of Markdown: no markup of its own, one line."""
    return re.sub(r"\s+", " ", re.sub(r"([|<>`\\\[\]])", r"\\\1", str(text))).strip()


def markdown(header: list[str], rows: Iterable[list[str]], *, numeric: bool | str = True) -> str:
    """A Markdown table, numbers to the right (`numeric="rest"`: but in the first column); "" without rows."""
    lines = [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    rule = " | ".join(("---:" if i or numeric is True else "---") if numeric else "---" for i, _ in enumerate(header))
    return "\n".join([f"| {' | '.join(header)} |", f"| {rule} |", *lines]) if lines else ""


@dataclass(frozen=True)
class Table:
    """A sortable table of the report; also as Markdown and for the terminal."""

    id: str
    title: str
    words: str
    columns: Columns
    frame: pd.DataFrame
    device: str = ""  # whose numbers these are alone

    def rows(self) -> list[list[str]]:
        return [[FORMATS[kind](row[name]) for name, _, kind in self.columns] for row in self.frame.to_dict("records")]

    def markdown(self) -> str:
        header = [title for _, title, _ in self.columns]
        return markdown(header, ([escaped(cell) for cell in row] for row in self.rows()), numeric="rest")

    def text(self) -> str:
        return pd.DataFrame(self.rows(), columns=[title for _, title, _ in self.columns]).to_string(index=False) if len(self.frame) else "nothing to show"


def title_of(name: str) -> str:
    return PARTS["columns"].get(name, [name.replace("_", " ")])[0]


def columns_of(frame: pd.DataFrame, names: Iterable[str], titles: dict[str, str] | None = None, formats: dict[str, str] | None = None) -> Columns:
    """As parts.toml declares them, else by the values."""

    def kind(name: str) -> str:
        known = PARTS["columns"].get(name)
        return known[1] if known else {"i": "int", "u": "int", "f": "number"}.get(frame[name].dtype.kind if name in frame else "O", "text")

    return [(name, (titles or {}).get(name, title_of(name)), (formats or {}).get(name) or kind(name)) for name in names]


def table(id: str, frame: pd.DataFrame, columns: Iterable[str] | None = None) -> Table:
    """The table that parts.toml declares as `id`, with its columns, or `columns`, or all of `frame`."""
    part = PARTS["parts"][id]
    names = columns or part.get("columns", "").split() or [str(c) for c in frame]
    return Table(id, part["title"], part.get("words", ""), columns_of(frame, names, part.get("titles"), part.get("formats")), frame)


@dataclass(frozen=True)
class Chart:
    """A specification without data, and its data."""

    id: str
    title: str
    words: str
    spec: dict[str, Any]
    frame: pd.DataFrame
    device: str = ""  # whose numbers these are alone

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
        if name == OWN:
            found[name] = OWN_STYLE
            continue
        i = _places.setdefault(name, len(_places))
        colour = PUBLISHED_STYLE.get(name, COLOURS[i % len(COLOURS)])
        shape = list(SHAPES)[i % len(SHAPES)]
        found[name] = {"color": colour, "shape": shape, "letter": SHAPES[shape], "dash": DASHES[i % len(DASHES)]}
    return found


def field(name: str, title: str | None = None, *, log: float = 0, zero=False, domain=None, axis_format="", sort=None) -> dict[str, Any]:
    """One encoding of a column; numbers unless `sort` or the caller says otherwise. `log`: base of a logarithmic scale."""
    scale: dict[str, Any] = {"type": "log", "base": log} if log else {"zero": zero}
    if domain:
        scale |= {"domain": domain, "clamp": True}
    axis = {"labelOverlap": True} | ({"format": axis_format} if axis_format else {})
    return {"field": name, "type": "quantitative", "title": title or title_of(name), "scale": scale, "axis": axis} | ({"sort": sort} if sort else {})


def same(name: str, title: str | None = None) -> dict[str, Any]:
    """One encoding of a column in a further layer: on the scale and under the title of the first."""
    return {"field": name, "type": "quantitative", "title": title}


def category(name: str, title: str | None = None) -> dict[str, Any]:
    """One encoding of a column of texts, in the order of the data."""
    return {"field": name, "type": "nominal", "title": title, "sort": None}


def kinds(frame: pd.DataFrame, name: str, marks=("color", "shape")) -> dict[str, Any]:
    """Encodings that tell the values of a column apart, where they are no variants."""
    return {mark: category(name) | {"scale": {"domain": list(dict.fromkeys(frame[name]))}} for mark in marks}


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


def chart(id: str, frame: pd.DataFrame, mark: str | dict, encoding: dict[str, Any], *, facet: str = "", columns: int = 3, width: int | str = 300,
          height: int = 220, layers: Iterable[dict] = (), title: str = "", free=False) -> Chart:  # fmt: skip
    """`mark` over `encoding`; `layers` are drawn below with the same data; `facet`: a panel per value of that column, with `free`
    on a scale of its own. Title and words are those of `id` in parts.toml."""
    part = PARTS["parts"].get(id, {"title": title})
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
    spec: dict[str, Any] = panel
    if facet:
        panels = list(dict.fromkeys(frame[facet]))
        spec = {"facet": {"field": facet, "type": "nominal", "title": None, "sort": panels}, "columns": columns, "spec": panel}
    if free:
        spec |= {"resolve": {"scale": {"y": "independent"}, "axis": {"x": "independent"}}}  # shared ones would not stand under the panels
    return Chart(id, part["title"], part.get("words", ""), spec, frame)


def rule(value: float, channel: str = "y") -> dict[str, Any]:
    """A thin line at a value."""
    return {"mark": {"type": "rule", "strokeDash": [3, 3], "opacity": 0.6, "aria": False}, "encoding": {channel: {"datum": value}}}


def svg(drawn: Chart) -> str:
    """The chart as an SVG file on white, the same on every machine: the last digits of a place depend on the processor."""
    import vl_convert

    style = {"font": "DejaVu Sans", "legend": {"labelLimit": 260}, "axis": {"gridColor": "#e0e0e0", "labelColor": "#444", "titleColor": "#222"}}
    spec = drawn.spec | {"data": {"values": drawn.frame.to_dict("records")}, "background": "white", "config": style}
    return re.sub(r"\d+\.\d{4,}", lambda number: f"{float(number[0]):.3f}", vl_convert.vegalite_to_svg(spec))
