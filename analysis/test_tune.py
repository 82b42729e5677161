"""The tuning table: what is chosen, and that the shipped one is what its results folder says."""

from typing import Any

import pytest

from analysis import tune
from analysis.cli import main
from analysis.conftest import FolderWriter, host_folder
from analysis.load import RESULTS, ROOT, ResultsError, load
from analysis.tables import ideal_error


def sweep(times: dict[tuple[str, int, str], float]) -> FolderWriter:
    """`times`: (variant, elements, mode) -> microseconds, for f16, n = 4096, in place."""
    writer = FolderWriter()
    for (variant, elements, mode), time in times.items():
        writer.measure(variant, "f16", 4096, elements, mode, time_us=time, limit_us=time, fraction_of_limit=1.0)
    return writer


def chosen(tmp_path, times) -> list[str]:
    folder = sweep(times).write(tmp_path / "run")
    return list(tune.choices(load([folder])[0].results)["variant"])


def test_the_fastest_candidate_is_chosen_size_by_size(tmp_path):
    times = {}
    for elements, fast in ((1 << 15, "mma_split"), (1 << 20, "wgmma"), (1 << 23, "mma_split")):
        for variant in ("mma_split", "wgmma", "warp_shuffle"):
            times[variant, elements, "replay"] = 1.0 if variant == fast else 1.5
    assert chosen(tmp_path, times) == ["mma_split", "wgmma", "mma_split"]


def test_what_rounds_twice_or_forwards_is_no_candidate(tmp_path):
    writer = sweep({("mma_split", 1 << 15, "replay"): 1.0})
    twice = {"predicted_rel_l2": 1.4 * ideal_error("f16")}
    forwards = {"settings": '{"picked":"mma_split","blocks":64}'}
    apart = {"row_stride": 4160}
    for variant, changes in (("hadacore", twice), ("auto", forwards), ("wgmma", apart)):
        writer.measure(variant, "f16", 4096, 1 << 15, "replay", time_us=0.1, limit_us=0.1, fraction_of_limit=1.0, **changes)
    folder = writer.write(tmp_path / "run")
    assert list(tune.choices(load([folder])[0].results)["variant"]) == ["mma_split"]


def test_codes_are_no_candidates(tmp_path):
    """Nor where they are f32, which rounds once by its width alone."""
    writer = FolderWriter()
    for dtype in ("f16", "f32"):
        for variant, encoding, time in (("mma_split", "", 1.0), ("rotate_then_quantize", "e4m3:row", 0.1)):
            writer.measure(variant, dtype, 4096, 1 << 15, "replay", encoding=encoding, time_us=time, limit_us=time)
    folder = writer.write(tmp_path / "run")
    assert list(tune.choices(load([folder])[0].results)["variant"]) == ["mma_split", "mma_split"]


def test_a_tie_keeps_the_choice_of_the_smaller_size(tmp_path):
    times = {
        ("mma_split", 1 << 15, "replay"): 1.0,
        ("wgmma", 1 << 15, "replay"): 2.0,
        ("mma_split", 1 << 20, "replay"): 1.005,
        ("wgmma", 1 << 20, "replay"): 1.0,
        ("mma_split", 1 << 21, "replay"): 1.006,
        ("wgmma", 1 << 21, "replay"): 1.0,
        ("mma_split", 1 << 22, "replay"): 1.03,
        ("wgmma", 1 << 22, "replay"): 1.0,
    }
    assert chosen(tmp_path, times) == ["mma_split", "mma_split", "wgmma", "wgmma"]


def test_one_variant_that_is_as_fast_everywhere_serves_all(tmp_path):
    times = {
        ("mma_split", 1 << 15, "replay"): 1.0,
        ("wgmma", 1 << 15, "replay"): 1.02,
        ("mma_split", 1 << 20, "replay"): 1.5,
        ("wgmma", 1 << 20, "replay"): 1.0,
        ("wgmma", 1 << 21, "replay"): 1.02,
        ("mma_split", 1 << 21, "replay"): 1.0,
    }
    assert chosen(tmp_path, times) == ["wgmma", "wgmma", "wgmma"], "one result for every number of rows"
    times["wgmma", 1 << 21, "replay"] = 1.03
    assert chosen(tmp_path / "again", times) == ["mma_split", "wgmma", "mma_split"]


def test_what_owns_memory_is_no_candidate(tmp_path):
    writer = sweep({("mma_split", 1 << 15, "replay"): 1.0})
    for variant, settings in (("passes", '{"workspace_bytes":4096}'), ("wgmma", '{"workspace_bytes":0}')):
        writer.measure(variant, "f16", 4096, 1 << 15, "replay", time_us=0.1, limit_us=0.1, fraction_of_limit=1.0, settings=settings)
    folder = writer.write(tmp_path / "run")
    assert list(tune.choices(load([folder])[0].results)["variant"]) == ["wgmma"], "such a plan runs on one stream at a time"


def test_refuses_modes_that_no_variant_was_timed_in_alike(tmp_path):
    """As parts of a sweep give them."""
    folder = sweep({("mma_split", 1 << 23, "alternating"): 1.0, ("wgmma", 1 << 23, "cold"): 2.0}).write(tmp_path / "run")
    with pytest.raises(ResultsError, match="f16, n = 4096, 8388608 elements, placement in: no variant was timed in both alternating and cold"):
        tune.choices(load([folder])[0].results)


def test_alternating_decides_where_both_modes_were_timed(tmp_path):
    times = {
        ("mma_split", 1 << 23, "replay"): 1.0,
        ("wgmma", 1 << 23, "replay"): 0.5,
        ("mma_split", 1 << 23, "alternating"): 1.0,
        ("wgmma", 1 << 23, "alternating"): 2.0,
    }
    assert chosen(tmp_path, times) == ["mma_split"]


def test_of_what_is_as_fast_warm_the_worse_mode_counts(tmp_path):
    times = {
        ("mma_split", 1 << 23, "alternating"): 1.0,
        ("mma_split", 1 << 23, "cold"): 2.1,
        ("wgmma", 1 << 23, "alternating"): 1.03,
        ("wgmma", 1 << 23, "cold"): 2.0,
        ("mma_split", 1 << 24, "cold"): 1.0,  # never warm: no size of the table
        ("warp_shuffle", 1 << 23, "cold"): 1.0,  # nor is it a candidate
    }
    assert chosen(tmp_path, times) == ["mma_split"], "3 % slower warm"
    times["wgmma", 1 << 23, "alternating"] = 1.024  # 2 % and noise
    assert chosen(tmp_path / "again", times) == ["wgmma"], "5 % faster cold"


def test_a_size_between_two_others_takes_what_costs_less_half_way(tmp_path):
    times = {
        ("wgmma", 1 << 19, "alternating"): 1.0,
        ("passes", 1 << 19, "alternating"): 1.11,
        ("wgmma", 1 << 21, "alternating"): 1.01,
        ("wgmma", 1 << 21, "cold"): 2.2,
        ("passes", 1 << 21, "alternating"): 1.0,
        ("passes", 1 << 21, "cold"): 2.0,
        ("wgmma", 1 << 22, "alternating"): 1.0,
        ("passes", 1 << 22, "alternating"): 1.5,
    }
    assert chosen(tmp_path, times) == ["wgmma"] * 3, "wgmma is 10 % slower cold here, passes 11 % at the size beside it"
    times["passes", 1 << 19, "alternating"] = 1.09
    assert chosen(tmp_path / "near", times) == ["wgmma", "passes", "wgmma"], "there it costs less than what it gains here"
    times |= {("passes", 1 << 19, "alternating"): 1.11, ("wgmma", 1 << 21, "alternating"): 1.03}
    assert chosen(tmp_path / "slower", times) == ["wgmma", "passes", "wgmma"], "3 % slower warm"


def test_programmatic_launches_have_choices_of_their_own(tmp_path):
    times = {
        ("mma_split", 1 << 15, "replay"): 2.0,
        ("mma_split", 1 << 15, "replay_pdl"): 1.0,
        ("wgmma", 1 << 15, "replay"): 1.5,
        ("wgmma", 1 << 15, "replay_pdl"): 1.2,
        ("warp_shuffle", 1 << 16, "replay_pdl"): 1.2,
    }
    folder = sweep(times).write(tmp_path / "run")
    found = tune.choices(load([folder])[0].results)
    assert [tuple(row) for row in found[["elements", "launch", "variant"]].to_numpy()] == [
        (1 << 15, "ordinary", "wgmma"),
        (1 << 15, "programmatic", "mma_split"),
        (1 << 16, "programmatic", "warp_shuffle"),
    ]


def test_the_choices_of_a_table_beside_the_fastest(tmp_path):
    times = {
        ("mma_split", 1 << 15, "replay"): 1.0,
        ("wgmma", 1 << 15, "replay"): 1.5,
        ("mma_split", 1 << 15, "replay_pdl"): 1.2,
        ("wgmma", 1 << 15, "replay_pdl"): 1.0,
        ("mma_split", 1 << 24, "cold"): 1.0,
        ("wgmma", 1 << 24, "cold"): 1.1,
        ("mma_split", 1 << 26, "replay"): 1.0,  # alone
    }
    writer = sweep(times)
    writer.measure("warp_shuffle", "f16", 4096, 1 << 15, "replay", time_us=0.5, limit_us=0.5, fraction_of_limit=1.0, throttle="sw_power_cap")
    results = load([writer.write(tmp_path / "run")])[0].results
    path = table_of(tmp_path / "t.csv", "f16,4096,32768,in,ordinary,mma_split\nf16,4096,32768,in,programmatic,mma_split\nf16,4096,16777216,in,ordinary,wgmma\n")
    found = tune.beside_the_best(results, tune.read_table(path)).set_index(["elements", "mode"])
    assert found["choice"].to_dict() == {(1 << 15, "replay"): "mma_split", (1 << 15, "replay_pdl"): "mma_split", (1 << 24, "cold"): "wgmma"}
    assert found["ratio"].round(6).to_dict() == {(1 << 15, "replay"): 1.0, (1 << 15, "replay_pdl"): 1.2, (1 << 24, "cold"): 1.1}


def table_of(path, rows="", device="NVIDIA H200", capability=90, sms=132):
    path.write_text(f"# device: {device}\n# compute_capability: {capability}\n# sm_count: {sms}\ndtype,n,elements,placement,launch,variant\n{rows}")
    return path


def test_the_nearest_choice_of_a_table(tmp_path):
    """On a logarithmic scale; the larger of two sizes, the own launch, and rows in place where a placement has none."""
    rows = "".join(f"f16,{n},{elements},{placement},{launch},{variant}\n" for n, elements, placement, launch, variant in (
        (64, 1024, "in", "ordinary", "a"), (64, 4096, "in", "ordinary", "b"), (64, 4096, "in", "programmatic", "c"),
        (128, 1024, "in", "ordinary", "d"), (128, 4096, "out", "ordinary", "e")))  # fmt: skip
    table = tune.read_table(table_of(tmp_path / "t.csv", rows))
    asked: dict[tuple[Any, ...], str] = {(64, 2000, "in"): "a", (64, 2048, "in"): "b", (64, 9999, "out"): "b", (64, 4096, "in", True): "c",
             (64, 1024, "in", True): "a", (128, 1, "out"): "e", (128, 1 << 20, "in"): "d", (256, 1, "in"): ""}  # fmt: skip
    assert {one: table.nearest("f16", *one) for one in asked} == asked and table.nearest("bf16", 64, 1024, "in") == ""


def test_the_table_that_a_device_takes(tmp_path):
    """The nearest capability at or below its own, then the name, then the nearest number of SMs."""
    shipped = [table_of(tmp_path / f"{i}", device=device, capability=capability, sms=sms) for i, (device, capability, sms) in enumerate((
        ("NVIDIA A100", 80, 108), ("NVIDIA H100 PCIe", 90, 114), ("NVIDIA H100 SXM", 90, 132), ("NVIDIA B200", 100, 148)))]  # fmt: skip
    asked = {("NVIDIA A10", "8.6", 72): 0, ("NVIDIA H100 PCIe", "9.0", 132): 1, ("NVIDIA H200", "9.0", 132): 2, ("NVIDIA H100", "9.0", 120): 1,
             ("NVIDIA B300", "10.3", 160): 3, ("NVIDIA T4", "7.5", 40): None}  # fmt: skip
    for (name, capability, sms), expected in asked.items():
        found = tune.table_for({"name": name, "compute_capability": capability, "sm_count": sms}, shipped)
        assert (found and shipped.index(found.path)) == expected, name


def test_what_the_nearest_table_lacks_comes_from_the_others_of_its_capability(tmp_path):
    """As DeviceClass.WhatTheNearestTableLacksComesFromTheOthersOfItsCapability of variants/auto/auto_test.cpp."""
    rows = [[(64, "f16"), (768, "f16")], [(64, "f16")], [(64, "f16"), (768, "f16"), (768, "bf16")]]
    shipped = [table_of(tmp_path / f"{i}", "".join(f"{dtype},{n},1024,in,ordinary,{i}\n" for n, dtype in has), device=device, capability=capability)
               for i, (has, device, capability) in enumerate(zip(rows, ("NVIDIA A100", "NVIDIA H100", "NVIDIA H200"), (80, 90, 90)))]  # fmt: skip
    about = {"name": "NVIDIA H100", "compute_capability": "9.0", "sm_count": 132}
    for dtype, n, expected in (("f16", 64, 1), ("f16", 768, 2), ("bf16", 768, 2), ("f16", 32, None), ("bf16", 64, None)):
        found = tune.table_for(about, shipped, dtype=dtype, n=n)
        assert (found and shipped.index(found.path)) == expected, (dtype, n)


def test_refuses_a_folder_without_candidates_or_without_a_device(tmp_path):
    folder = sweep({("mma_split", 1 << 15, "cold"): 1.0}).write(tmp_path / "run")
    with pytest.raises(ResultsError, match="no measurement of a variant that auto may pick"):
        tune.table_text(folder)
    with pytest.raises(ResultsError, match="not measured on a CUDA device"):
        tune.table_text(host_folder().write(tmp_path / "host"))


def test_a_table_needs_the_row_lengths_of_the_grid(tmp_path):
    """auto would trust it at every row length."""
    folder = sweep({("mma_split", 1 << 15, "replay"): 1.0}).write(tmp_path / "run")
    with pytest.raises(ResultsError, match="run has 1 row lengths in f16, a tuning table needs 10"):
        tune.table_text(folder)


def test_the_command_writes_the_table(tmp_path, capsys):
    writer = FolderWriter()
    lengths = [1 << k for k in range(6, 16)]
    for n in lengths:
        writer.measure("mma_split", "f16", n, 1 << 15, "replay")
    folder = writer.write(tmp_path / "run")
    output = tmp_path / "tables" / "mine.csv"
    assert main(["tune", str(folder), "--output", str(output)]) == 0
    assert capsys.readouterr().out.strip() == str(output)
    assert output.read_text().splitlines() == [
        "# fwht tuning table 2",
        "# device: NVIDIA H200",
        "# compute_capability: 90",
        "# sm_count: 132",
        "# source: run",
        "dtype,n,elements,placement,launch,variant",
        *(f"f16,{n},32768,in,ordinary,mma_split" for n in lengths),
    ]
    assert main(["tune", str(folder), "--output", str(tmp_path)]) == 2
    assert "cannot be written: Is a directory" in capsys.readouterr().err


@pytest.mark.parametrize("shipped", tune.SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_table_is_what_its_results_folders_say(shipped):
    text = shipped.read_text(encoding="utf-8")
    folders = [ROOT / RESULTS / name for name in tune.sources_of(text)]
    for folder in folders:
        assert folder.is_dir(), f"{shipped.name} names {folder.name}, which is no committed results folder"
    assert tune.table_text(*folders) == text


def test_a_table_from_several_folders(tmp_path):
    """Row lengths that were measured later are added; what both have is the newer one's."""
    older = FolderWriter(utc_start="2026-11-19T10:00:00Z")
    for n in [1 << k for k in range(6, 16)]:
        older.measure("mma_split", "f16", n, 1 << 15, "replay")
    newer = FolderWriter()
    newer.measure("wgmma", "f16", 64, 1 << 15, "replay", time_us=0.01, limit_us=0.01, fraction_of_limit=1.0)
    newer.measure("kronecker", "f16", 14336, 14336 * 64, "replay", operator="28x512")
    folders = older.write(tmp_path / "older"), newer.write(tmp_path / "newer")
    text = tune.table_text(*folders)
    assert tune.table_text(*folders[::-1]) == text, "whatever their order"
    assert "# source: older newer" in text.splitlines()
    assert tune.sources_of(text) == ["older", "newer"]
    assert "f16,64,32768,in,ordinary,wgmma" in text and "f16,14336,917504,in,ordinary,kronecker" in text
