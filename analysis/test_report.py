"""The HTML report."""

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from analysis import ncu
from analysis.__main__ import main
from analysis.conftest import gpu_folder, make_context
from analysis.load import MODES, load
from analysis.report import MODE_WORDS, write_report
from analysis.test_profile import METRICS, recorded

VOID = {"meta", "br", "input", "link", "img"}
OPTIONAL = {"td", "th", "tr", "li", "p", "thead", "tbody"}


class Outline(HTMLParser):
    """Collects attributes that load something, ids, and unbalanced tags."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.ids, self.anchors, self.stack, self.errors = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.loads += [attrs[a] for a in ("src", "srcset", "data", "poster") if a in attrs]
        if tag in ("link", "iframe", "object", "embed", "img"):
            self.errors.append(f"<{tag}>")
        if attrs.get("href", "#")[:1] != "#":
            self.loads.append(attrs["href"])
        if tag == "a":
            self.anchors.append(attrs["href"][1:])
        if "id" in attrs:
            self.ids.append(attrs["id"])
        if tag not in VOID | OPTIONAL:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        if tag in VOID | OPTIONAL:
            return
        if not self.stack or self.stack.pop() != tag:
            self.errors.append(f"</{tag}>")


@pytest.fixture
def small(tmp_path):
    """A GPU folder with few figures: drawing is what takes time here."""
    sizes = {"ns": (16, 512, 4096), "sizes": (1 << 15, 1 << 23), "modes": ("replay",), "dtypes": ("f16",)}
    return gpu_folder(**sizes).write(tmp_path / "20261120T100000Z_0123456789_h200")


def page(path, *arguments):
    assert main(["report", *map(str, arguments), "--output", str(path)]) == 0
    return path.read_text(encoding="utf-8")


def assert_self_contained(html):
    outline = Outline(html)
    assert outline.loads == [] and outline.errors == [] and outline.stack == []
    assert not re.search(r"https?://|//cdn|@import|url\((?!#)", html)
    assert len(outline.ids) == len(set(outline.ids))
    assert set(outline.anchors) <= set(outline.ids)


def test_report_is_self_contained(small, tmp_path, capsys):
    html = page(tmp_path / "out" / "report.html", small)
    assert_self_contained(html)
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "out" / "report.html")


def test_a_folder_in_place_of_the_page_is_refused_at_once(small, tmp_path, capsys):
    assert main(["report", str(small), "--output", str(tmp_path)]) == 2
    assert "is a folder; the page is a file" in capsys.readouterr().err


def test_report_says_where_everything_comes_from(small, tmp_path):
    html = page(tmp_path / "report.html", small, "--no-files")
    context = json.loads((small / "context.json").read_text())
    for key in (
        "commit",
        "sources_hash",
        "cxx",
        "cxx_flags",
        "cuda",
        "cuda_flags",
        "utc_start",
        "command",
        "version",
    ):
        assert context[key] in html, key
    for words in (
        "NVIDIA H200",
        "driver 13.0",
        small.name,
        "Example CPU 9000",
        "How to read",
        "none incorrect, none failed",
        "built without Kokkos (FWHT_KOKKOS=OFF)",
        "published HadaCore (H200)",
    ):
        assert words in html, words
    assert not (tmp_path / "report_figures").exists()
    assert "not trustworthy" not in html


def test_every_mode_has_its_words(tmp_path):
    assert set(MODE_WORDS) == set(MODES)
    folder = gpu_folder(ns=(16,), sizes=(1 << 15,), modes=("replay", "replay_pdl"), dtypes=("f16",))
    text = write_report(load([folder.write(tmp_path / "pdl")]), tmp_path / "r.html").read_text("utf-8")
    assert "programmatic dependent launch" in text


def test_report_flags_what_it_was_told_to_accept(tmp_path):
    writer = gpu_folder(
        ns=(16, 4096),
        sizes=(1 << 15, 1 << 23),
        modes=("replay",),
        dtypes=("f16",),
        dirty=True,
        complete=False,
    )
    writer.tables["results.csv"][0] |= {
        "status": "incorrect",
        "time_us": "",
        "fraction_of_limit": "",
        "message": "a <b> & c",
    }
    folder = writer.write(tmp_path / "run")
    html = page(tmp_path / "report.html", folder, "--no-files", "--allow-dirty", "--allow-incomplete")
    assert html.count("not trustworthy") == 2
    assert "1 incorrect, 0 failed" in html
    assert "a &lt;b&gt; &amp; c" in html and "<b> &" not in html


def test_figures_are_written_as_valid_files(tmp_path):
    folder = gpu_folder(ns=(16, 4096), sizes=(1 << 15, 1 << 23), modes=("replay",), dtypes=("f16",)).write(
        tmp_path / "run"
    )
    page(tmp_path / "r.html", folder)
    files = sorted(p.name for p in (tmp_path / "r_figures").iterdir())
    stems = [
        "accuracy",
        "accuracy_bit_match",
        "accuracy_gain",
        "error_speed_replay",
        "heat_f16_replay",
        "speedup_f16_replay",
        "time_n_f16_replay",
    ]
    assert files == sorted(f"{s}.{e}" for s in stems for e in ("png", "svg"))
    for file in (tmp_path / "r_figures").glob("*.svg"):
        ET.parse(file)
    assert all(p.read_bytes()[:4] == b"\x89PNG" for p in (tmp_path / "r_figures").glob("*.png"))


def test_host_only_report_is_sensible(host, tmp_path):
    html = page(tmp_path / "report.html", host)
    assert_self_contained(html)
    for words in ("Example CPU 9000", "no CUDA device: no driver is installed", "Mode host", "cpu"):
        assert words in html, words
    assert "Mode replay" not in html


def test_devices_side_by_side(small, host, tmp_path):
    other = gpu_folder(ns=(16, 4096), sizes=(1 << 15, 1 << 23), modes=("replay",), dtypes=("f16",))
    other.context["device"]["name"] = "NVIDIA A100"
    html = page(tmp_path / "report.html", small, other.write(tmp_path / "a100"), host, "--no-files")
    assert_self_contained(html)
    assert "Which variant: NVIDIA A100" in html
    assert "Devices side by side" in html


def test_report_of_an_accuracy_run_alone(small, tmp_path):
    for name in ("results.csv", "limits.csv", "unsupported.csv"):
        (small / name).unlink()
    html = page(tmp_path / "report.html", small)
    assert_self_contained(html)
    assert "No times were measured" in html


def test_a_folder_with_a_profile_alone_makes_a_page(tmp_path):
    text, launches = recorded()
    table, missing = ncu.profile_table(text, launches, METRICS)
    folder = tmp_path / "20261121T100000Z_0123456_h200"
    folder.mkdir()
    (folder / "context.json").write_text(json.dumps(make_context(variants=["naive", "wgmma"])))
    launches.to_csv(folder / "launches.csv", index=False)
    ncu.write_profile(folder, table, [*missing, "bogus__count.sum"], list(ncu.STUDIES), "Version 2025.3.1.0 (build 1)", 1.0)
    page = write_report(load([folder]), tmp_path / "report.html", files=False).read_text()
    assert "What the counters say" in page
    assert "Not given by this version: bogus__count.sum" in page
    for study in (*ncu.STUDIES, "measured peaks"):
        assert study.capitalize() in page
