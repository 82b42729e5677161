"""Matplotlib figures as SVG: standalone files, and fragments that share one HTML page."""

from __future__ import annotations

import copy
import io
import re
import xml.etree.ElementTree as ET

import matplotlib

from .figures import STYLE, Drawing

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
_DECIMALS = re.compile(r"-?\d+\.\d{3,}")
_FONT = re.compile(
    r"font: ((?:(?:bold|italic|\d00) )*)([\d.]+)px [^;\"]+|font-size: ([\d.]+)px; font-family: [^;\"]+"
)
_REFERENCE = re.compile(r"(?:url\(#|href=\"#)([^)\"]+)")
_SPACE = re.compile(r">\s+<")
_NUMBER = r"(-?[\d.]+)"
_BOX = re.compile(
    rf"M {_NUMBER} {_NUMBER} L {_NUMBER} {_NUMBER} L {_NUMBER} {_NUMBER} L {_NUMBER} {_NUMBER} z"
)


def to_svg(drawing: Drawing, prefix: str = "") -> ET.Element:
    """The figure as an SVG tree: tooltips inserted, ids made unique by `prefix`, short numbers."""
    buffer = io.StringIO()
    with matplotlib.rc_context(STYLE | {"svg.hashsalt": prefix + drawing.stem}):
        drawing.figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    root = ET.fromstring(buffer.getvalue())
    for parent in root.iter():
        for child in [c for c in parent if c.tag == f"{{{SVG}}}metadata"]:
            parent.remove(child)
    _insert_tips(root, drawing)
    _rewrite(root, f"{prefix}{drawing.stem}-")
    root.set("role", "img")
    root.set("aria-label", drawing.title)
    return root


def as_file(root: ET.Element) -> str:
    """A standalone SVG document."""
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", XLINK)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode")


class Sheet:
    """Style rules that the fragments of one page share; thousands of cells repeat a few of them."""

    def __init__(self):
        self._names: dict[str, str] = {}

    def name(self, style: str) -> str:
        return self._names.setdefault(style, f"s{len(self._names)}")

    def css(self) -> str:
        return "svg * { stroke-linejoin: round; stroke-linecap: butt }\n" + "\n".join(
            f"svg .{name} {{ {style} }}" for style, name in self._names.items()
        )


def as_fragment(root: ET.Element, sheet: Sheet) -> str:
    """For a place inside an HTML page: no namespaces, the page's font, styles shared through `sheet`."""
    root = copy.deepcopy(root)
    width = float(root.attrib["viewBox"].split()[2])
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    for parent in root.iter():
        parent[:] = [
            child for child in parent if child.tag != f"{{{SVG}}}style"
        ]  # it would style the whole page
    used = set(_REFERENCE.findall(ET.tostring(root, encoding="unicode")))
    for element in root.iter():
        _shorten(element, used)
        style = element.attrib.pop("style", "")
        if style:
            element.set("class", sheet.name(_FONT.sub(_font, style)))
    _unwrap(root)
    root.set("style", f"max-width: {1.65 * width:.0f}px")  # a figure of one panel must not fill the page
    text = as_file(root).split("\n", 1)[1]
    return _SPACE.sub("><", re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href"))


def _font(match: re.Match) -> str:
    return f"font-size: {match[2] or match[3]}px" + ("; font-weight: bold" if match[1] else "")


def _shorten(element: ET.Element, used: set[str]) -> None:
    if element.get("id") and element.get("id") not in used:
        del element.attrib["id"]
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    if element.tag == f"{{{SVG}}}path":
        path = " ".join(element.get("d", "").split())
        box = _BOX.fullmatch(path)
        if box and box[2] == box[4] and box[3] == box[5] and box[6] == box[8] and box[1] == box[7]:
            path = f"M{box[1]} {box[2]}H{box[3]}V{box[6]}H{box[1]}z"
        element.set("d", path)


def _unwrap(parent: ET.Element) -> None:
    """Replaces groups without attributes by their children; drops empty definitions."""
    children = []
    for child in list(parent):
        _unwrap(child)
        if child.tag == f"{{{SVG}}}g" and not child.attrib:
            children += list(child)
        elif len(child) or child.tag != f"{{{SVG}}}defs":
            children.append(child)
    parent[:] = children


def _insert_tips(root: ET.Element, drawing: Drawing) -> None:
    for group in root.iter(f"{{{SVG}}}g"):
        tips = drawing.tips.get(group.get("id", ""))
        if not tips:
            continue
        cells = [e for e in group.iter() if e.tag in (f"{{{SVG}}}path", f"{{{SVG}}}use")]
        defined = {e for d in group.iter(f"{{{SVG}}}defs") for e in d.iter()}
        cells = [e for e in cells if e not in defined]
        if len(cells) != len(tips):
            raise AssertionError(f"{group.get('id')}: {len(cells)} cells, {len(tips)} tooltips")
        for cell, tip in zip(cells, tips):
            ET.SubElement(cell, f"{{{SVG}}}title").text = tip


def _rewrite(root: ET.Element, prefix: str) -> None:
    for element in root.iter():
        for name, value in list(element.attrib.items()):
            if name == "id":
                value = prefix + value
            elif name == f"{{{XLINK}}}href" and value.startswith("#"):
                value = "#" + prefix + value[1:]
            elif name not in ("viewBox",):
                value = value.replace("url(#", f"url(#{prefix}")
                value = _DECIMALS.sub(lambda m: f"{float(m[0]):.2f}".rstrip("0").rstrip("."), value)
            element.set(name, value)
