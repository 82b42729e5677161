"""FINDINGS.md: numbers come from the folders, verdicts and times from the same problem."""

from __future__ import annotations

import re
from dataclasses import replace

import pandas as pd
import pytest

from analysis import ncu, performance, profile
from analysis.conftest import gpu_folder, make_context
from analysis.load import ResultsError, load
from analysis.test_profile import METRICS, recorded


@pytest.fixture
def source(tmp_path, gpu) -> performance.Source:
    """The recorded launches, shown as launches of several variants at sizes of the synthetic sweep."""
    text, launches = recorded()
    table, missing = ncu.profile_table(text, launches, METRICS)
    copies = [table[table["variant"] != "wgmma"]]
    for variant in ("warp_shuffle", "hadacore", "kokkos_cuda", "wgmma"):
        for rows in (8, 65536):
            changes = {"variant": variant, "n": 4096, "rows": rows, "elements": 4096 * rows}
            copies.append(table[table["variant"] == "wgmma"].assign(**changes))
    table = pd.concat(copies, ignore_index=True)
    folder = tmp_path / "profile"
    folder.mkdir()
    counts = pd.DataFrame({"kernels": ["1"] * len(table)})
    counts.to_csv(folder / "launches.csv", index=False)
    ncu.write_profile(folder, table, missing, list(ncu.STUDIES), "Version 2025.3.1.0 (build 1)", 1.0)
    names = ["naive", "warp_shuffle", "hadacore", "wgmma", "kokkos_cuda"]
    found = profile.load_profile(folder, make_context(variants=names))
    assert found is not None
    return performance.Source(found, load([gpu])[0])


def test_times_are_those_of_the_same_problem(source):
    row = source.row("hadacore", 4096, profile.DRAM_SIZED)
    results = source.device.results
    same = results[
        (results["variant"] == "hadacore") & (results["n"] == 4096) & (results["elements"] == 1 << 28)
        & (results["dtype"] == "f16") & (results["mode"] == "replay")
    ]  # fmt: skip
    assert row["elements"] == 1 << 28
    assert source.fraction(row) == same["fraction_of_limit"].item()


def test_a_launch_that_is_not_there_is_said(source):
    assert source.say("hadacore", 17, profile.SMALL, "lsu") == "not profiled"
    assert source.say("hadacore", 4096, profile.DRAM_SIZED, "registers") == "122 registers per thread"


def test_the_page_has_every_variant_and_both_folders(source):
    text = performance.page(source)
    for variant in source.profile.variants:
        assert f"\n## {variant}\n" in text
    assert source.profile.name in text and source.device.newest.name in text
    assert not re.search(r"\bnan\b", text)


def test_the_portability_table_compares_the_same_n(source):
    header, _, *rows = performance.portability_table(source)
    assert header.startswith("| dtype | n | variant")
    assert [row.split(" | ")[2] for row in rows] == ["warp_shuffle", "hadacore", "kokkos_cuda"]


def test_a_variant_has_one_table(source):
    """Times and verdicts by n and size, costs at the largest size; of the first dtype that was profiled."""
    text = performance.page(source)
    section = text[text.index("\n## hadacore\n") :].split("\n## ")[1]
    header, _, *rows = [line for line in section.splitlines() if line.startswith("|")]
    assert header == ("| f16: n | small, replay | DRAM, replay | LSU words/el | issue slots/el | registers | blocks/SM |")
    row = source.row("hadacore", 4096, profile.DRAM_SIZED)
    assert rows[-1].startswith("| 4096 | ") and f"| {row['registers']:.0f} |" in rows[-1]
    only_f32 = source.profile.kernels.assign(dtype="f32")
    other = performance.Source(replace(source.profile, kernels=only_f32), source.device)
    assert "| f32: n | " in performance.page(other)


def test_a_folder_without_a_profile_is_refused(gpu):
    with pytest.raises(ResultsError, match="holds no profile.csv"):
        performance.load_source(load([gpu])[0], gpu)


def test_the_newest_profile_is_found(tmp_path, gpu):
    assert performance.newest_profile([gpu]) is None
    other = gpu_folder(ns=(16,), sizes=(1 << 15,), modes=("replay",), dtypes=("f16",)).write(tmp_path / "other")
    (other / "profile.csv").write_text("")
    assert performance.newest_profile([gpu, other]) == other


def test_without_counters_the_page_says_so(gpu):
    text = performance.page_without_counters(load([gpu])[0])
    assert "No counters are committed yet" in text and "./testbed profile --resume" in text
    assert "| 4096 |" in text and gpu.name in text
