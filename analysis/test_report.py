"""The HTML report and the generated README sections."""

import json
import re
import subprocess
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from analysis import ncu, readme
from analysis.__main__ import main
from analysis.conftest import gpu_folder, make_context
from analysis.load import MODES, ResultsError, load
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


# --------------------------------------------------------------------------------------------------- README

README = """# x
<!-- support:begin -->
old
<!-- support:end -->
between
<!-- results:begin -->
<!-- results:end -->
after
"""
LISTING = {
    "machine": "an H200",
    "variants": [
        {
            "name": "naive",
            "memory": "device",
            "support": [
                {
                    "dtype": d,
                    "placement": p,
                    "n": [1 << k for k in range(1, 31)],
                    "refused": [{"n": [3], "reason": "n=3 is no power of two"}],
                }
                for d in ("f16", "bf16", "f32")
                for p in ("in", "out")
            ],
        },
        {
            "name": "wgmma",
            "memory": "device",
            "support": [{"dtype": "f16", "placement": "in", "n": [2048, 4096, 8192], "refused": []}],
        },
        {
            "name": "kokkos",
            "memory": "device",
            "support": [
                {
                    "dtype": "f16",
                    "placement": "in",
                    "n": [],
                    "refused": [{"n": [2], "reason": "built without Kokkos (FWHT_KOKKOS=OFF)"}],
                }
            ],
        },
    ],
}


@pytest.fixture
def repository(tmp_path):
    """A git repository with one good committed GPU folder, two newer ones, and a support list."""
    root = tmp_path / "repo"
    results = root / "experiments" / "results"
    small = {
        "ns": (16, 4096),
        "sizes": (1 << 15, 1 << 23, 1 << 28),
        "modes": ("replay", "alternating"),
        "dtypes": ("f16",),
    }
    gpu_folder(**small).write(results / "20261120T100000Z_0123456789_h200")
    gpu_folder(**small, utc_start="2026-11-21T09:00:00Z", complete=False).write(
        results / "20261121T090000Z_0123456789_h200"
    )
    (root / "README.md").write_text(README)
    (root / "support.json").write_text(json.dumps(LISTING))
    git = ["git", "-C", str(root), "-c", "user.name=x", "-c", "user.email=x@example.com"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *command], check=True)
    gpu_folder(**small, utc_start="2026-11-22T09:00:00Z").write(results / "20261122T090000Z_0123456789_h200")
    return root


def run_readme(root, *arguments):
    return main(
        ["readme", "--readme", str(root / "README.md"), "--support", str(root / "support.json"), *arguments]
    )


def test_readme_is_regenerated_once(repository):
    assert run_readme(repository, "--check") == 1
    assert (repository / "README.md").read_text() == README
    assert run_readme(repository) == 0
    text = (repository / "README.md").read_text()
    assert run_readme(repository, "--check") == 0
    assert run_readme(repository) == 0
    assert (repository / "README.md").read_text() == text
    assert text.startswith("# x\n<!-- support:begin -->\n") and text.endswith("<!-- results:end -->\nafter\n")
    assert "| naive | device | 2–2^30 | 2–2^30 | 2–2^30 | yes / yes |" in text
    assert "| wgmma | device | 2048–8192 | – | – | yes / no |" in text
    assert "- kokkos: built without Kokkos (FWHT_KOKKOS=OFF)" in text


def test_readme_shows_the_newest_complete_committed_folder(repository):
    run_readme(repository)
    text = (repository / "README.md").read_text()
    assert "20261120T100000Z" in text  # the second is incomplete, the third is not committed
    assert "20261121T090000Z" not in text and "20261122T090000Z" not in text
    assert "in L2: 8 Mi elements, 16 MiB, alternating" in text and "512 MiB, replay" in text
    assert re.search(r"^\| 4096 \| wgmma \d+ %, [\d.]+ µs, 1\.0\d \|", text, re.MULTILINE)


def test_readme_check_sees_an_edited_section(repository, capsys):
    run_readme(repository)
    file = repository / "README.md"
    file.write_text(file.read_text().replace("2048–8192", "2048–16384"))
    assert run_readme(repository, "--check") == 1
    assert "out of date" in capsys.readouterr().err


def test_readme_without_results_or_markers(tmp_path):
    assert readme.results_section(None) == "No results of a GPU are committed yet."
    with pytest.raises(ResultsError, match="results:begin"):
        readme.replace_section("no markers", "results", "x")
    with pytest.raises(ResultsError, match="lacks 'variants'"):
        readme.support_section({"machine": "x"})


def test_readme_asks_the_program(tmp_path):
    program = tmp_path / "fwht_sweep"
    program.write_text(
        "#!/bin/sh\n[ \"$1\" = --list-json ] || exit 2\ncat <<'E'\n" + json.dumps(LISTING) + "\nE\n"
    )
    program.chmod(0o755)
    assert readme.support_from_program(program) == LISTING
    with pytest.raises(ResultsError, match="gave no support list"):
        readme.support_from_program(tmp_path / "absent")


def test_readme_takes_no_support_list_from_a_partial_build(repository, monkeypatch, capsys):
    assert readme.not_built(LISTING) == ["kokkos"]
    program = repository / "fwht_sweep"
    program.write_text("#!/bin/sh\ncat " + str(repository / "support.json") + "\n")
    program.chmod(0o755)
    monkeypatch.setattr(readme, "find_sweep", lambda: program)
    assert main(["readme", "--readme", str(repository / "README.md")]) == 0
    assert "was built without kokkos" in capsys.readouterr().err
    assert "<!-- support:begin -->\nold\n<!-- support:end -->" in (repository / "README.md").read_text()
    assert main(["readme", "--readme", str(repository / "README.md"), "--sweep", str(program)]) == 0
    assert "| wgmma | device | 2048–8192 |" in (repository / "README.md").read_text()


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


def test_the_newest_run_is_all_folders_of_its_build(tmp_path):
    small = {"ns": (16,), "sizes": (1 << 15,), "modes": ("replay",), "dtypes": ("f16",)}
    old = gpu_folder(**small, commit="1" * 40, utc_start="2026-11-19T10:00:00Z").write(tmp_path / "old")
    first = gpu_folder(**small, utc_start="2026-11-20T10:00:00Z").write(tmp_path / "first")
    second = gpu_folder(**small, utc_start="2026-11-20T11:00:00Z").write(tmp_path / "second")
    dirty = gpu_folder(**small, dirty=True, utc_start="2026-11-20T12:00:00Z").write(tmp_path / "dirty")
    run = readme.newest_run([old, first, second, dirty])
    assert [path.name for path in run] == ["first", "second"]
    assert [f.name for f in readme.newest_gpu_results([old, first, second, dirty]).folders] == ["first", "second"]
    assert readme.newest_run([dirty]) == [] and readme.newest_gpu_results([dirty]) is None
