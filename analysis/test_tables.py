"""Tables, comparisons and the published baselines."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analysis import report, tables, tune
from analysis.cli import main
from analysis.conftest import FolderWriter, gpu_folder
from analysis.load import ROOT, ResultsError, load


@pytest.fixture
def device(gpu):
    return load([gpu])[0]


def test_best_is_the_fastest_correct_variant(tmp_path):
    writer = gpu_folder(ns=(4096,), sizes=(1 << 23,), modes=("replay",), dtypes=("f16",))
    rows = {row["variant"]: row for row in writer.tables["results.csv"]}
    (best,) = tables.best(load([writer.write(tmp_path / "a")])[0].results).itertuples()
    assert best.variant == "wgmma"
    rows["wgmma"] |= {"status": "incorrect", "time_us": "", "fraction_of_limit": ""}
    (best,) = tables.best(load([writer.write(tmp_path / "b")])[0].results).itertuples()
    assert best.variant == "hadacore"


def test_modes_and_dtypes_are_never_mixed(device):
    best = tables.best(device.results)
    assert not best.duplicated(["dtype", "mode", "n", "rows"]).any()
    assert len(best) == len(device.results.drop_duplicates(["dtype", "mode", "n", "rows"]))
    assert list(dict.fromkeys(best["dtype"])) == ["f16", "bf16", "f32"]


@pytest.mark.parametrize(
    ("time", "spread", "exact", "encoding", "chosen", "ties"),
    [
        (1.000, 0.002, 1.0, "", "butterflies", "hadacore"),  # repetitions overlap, and butterflies rounds once
        (1.010, 0.002, 1.0, "", "hadacore", ""),  # slower beyond the repetitions
        (1.000, 0.002, 2.0, "", "hadacore", "butterflies"),  # as fast, and no more exact
        (1.000, 0.002, 1.95, "e4m3:row", "butterflies", "hadacore"),  # codes that are more exact by more than 1 %
        (1.000, 0.002, 1.999, "e4m3:row", "hadacore", "butterflies"),
    ],
)
def test_of_equally_fast_variants_the_most_exact_is_best(tmp_path, time, spread, exact, encoding, chosen, ties):
    writer = FolderWriter()
    for variant, us, error in (("hadacore", 0.999, 2.0), ("butterflies", time, exact)):
        writer.measure(variant, "f16", 4096, 1 << 20, "replay", time_us=us, time_min_us=us - spread, time_max_us=us + spread, limit_us=us / 2,
                       fraction_of_limit=0.5, rel_l2=error * tables.ideal_error("f16"), encoding=encoding)  # fmt: skip
    (best,) = tables.best(load([writer.write(tmp_path / "run")])[0].results).itertuples()
    assert (best.variant, best.ties) == (chosen, ties)


def test_two_measurements_of_one_kernel_say_what_is_as_fast(tmp_path):
    """Pairs of auto and its pick differ by 2 %: then 1.5 % is no difference, 3 % is one."""
    writer = FolderWriter()
    for i in range(20):
        for variant, time, settings in (("naive", 1.0, "{}"), ("auto", 1.02, '{"picked":"naive"}')):
            writer.measure(variant, "f16", 1 << 10, 1 << (10 + i), "cold", time_us=time, limit_us=1, fraction_of_limit=1 / time, settings=settings)
    for n, slow in ((1024, 1.015), (2048, 1.03)):
        for variant, time, error in (("hadacore", 1.0, 2.0), ("wgmma", slow, 1.0)):
            writer.measure(variant, "f16", n, 1 << 20, "replay", time_us=time, limit_us=time, fraction_of_limit=1.0, rel_l2=error * tables.ideal_error("f16"))
    best = tables.best(load([writer.write(tmp_path / "run")])[0].results)
    assert dict(zip(best["n"], best["variant"]))[2048] == "hadacore"
    assert best[(best["n"] == 1024) & (best["mode"] == "replay")]["variant"].item() == "wgmma"
    assert "auto" not in set(best["variant"])


def test_sizes_name_the_regimes_each_in_its_own_mode(device, host):
    sizes = tables.sizes(device.results, "f16", device.l2_bytes)
    assert [(s.label, s.elements, s.mode) for s in sizes] == [("small", 1 << 15, "replay"), ("L2", 1 << 23, "alternating"), ("DRAM", 1 << 28, "replay")]
    assert [(s.label, s.mode) for s in tables.sizes(load([host])[0].results, "f16", 0)] == [("small", "host"), ("medium", "host"), ("large", "host")]


def beside_the_cpu(writer, encoding=""):
    """With the CPU's rows, as the grids quick and smoke have them."""
    for n in (16, 512, 4096, 32768):
        writer.measure("cpu", "f16", n, 1 << 20, "host", encoding=encoding)
    return writer


def test_rows_of_the_cpu_beside_those_of_a_gpu_are_no_size(tmp_path, device):
    (mixed,) = load([beside_the_cpu(gpu_folder()).write(tmp_path / "mixed")])
    assert tables.sizes(mixed.results, "f16", mixed.l2_bytes) == tables.sizes(device.results, "f16", device.l2_bytes)
    (f32,) = load([beside_the_cpu(gpu_folder(dtypes=("f32",))).write(tmp_path / "f32")])
    assert tables.sizes(f32.results, "f16", f32.l2_bytes) == []
    (codes,) = load([beside_the_cpu(FolderWriter(), "e4m3:row").write(tmp_path / "codes")])
    assert set(tables.fused(codes)["size"]) == {"host"}, "the L2 is the GPU's"
    large = FolderWriter()
    large.measure("cpu", "f32", 16, 1 << 28, "host", encoding="rms>e4m3:row")
    assert list(tables.prepared(load([large.write(tmp_path / "large")])[0])["place"]) == [f"{1 << 24} rows"]


@pytest.mark.parametrize(
    ("share", "regime"),
    [(1 / 64, "small"), (1.001 / 64, "L2"), (0.599, "L2"), (0.601, ""), (0.8, ""), (1.99, ""), (2.01, "DRAM")],
)
def test_a_regime_is_a_share_of_the_l2(share, regime):
    l2 = 60 << 20
    assert tables.regime(share * l2, l2) == regime


def test_a_few_odd_shapes_do_not_become_a_size(tmp_path):
    writer = gpu_folder(ns=(16, 512, 4096, 32768), sizes=(1 << 15,), modes=("replay",), dtypes=("f16",))
    writer.measure("naive", "f16", 64, 64 * 7, "replay")
    writer.measure("naive", "f16", 4096, 1 << 28, "replay")
    device = load([writer.write(tmp_path / "run")])[0]
    assert [s.elements for s in tables.sizes(device.results, "f16", device.l2_bytes)] == [1 << 15]


def test_ideal_error_is_one_rounding():
    assert tables.ideal_error("f16") == pytest.approx(2.074e-4, rel=1e-3)
    assert tables.ideal_error("bf16") == pytest.approx(8 * tables.ideal_error("f16"))


def test_errors_prefer_the_accuracy_experiment(device):
    errors = tables.errors(device)
    row = errors[(errors["variant"] == "hadacore") & (errors["dtype"] == "f16") & (errors["n"] == 32768)].iloc[0]
    accuracy = device.accuracy.query("variant == 'hadacore' and dtype == 'f16' and n == 32768 and input == 'normal'")
    assert row["rel_l2"] == accuracy["rel_l2"].iloc[0]
    assert row["over_ideal"] == pytest.approx(2, rel=0.03)


def test_reasons_of_refusals_are_grouped(device):
    table = tables.refusals(device)
    kokkos = table[table["variant"] == "kokkos"]
    assert len(kokkos) == 1
    assert kokkos["dtype"].iloc[0] == "f16, bf16, f32"
    assert kokkos["n"].iloc[0] == "16, 512, 4096, 32768"
    wgmma = table[(table["variant"] == "wgmma") & (table["dtype"] == "f16, bf16")]
    assert wgmma["reason"].item() == "n=N is below 2048, the shortest row that fills a wgmma tile" and wgmma["n"].item() == "16, 512"


@pytest.mark.parametrize(
    ("ns", "text"),
    [([2, 4, 8, 16], "2–16"), ([2, 4, 12, 64], "2, 4, 12, 64"), ([], ""), ([8, 2, 4, 40], "2–8, 40")],
)
def test_n_ranges(ns, text):
    assert tables.n_ranges(ns) == text


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0.9774, "977 ns"),
        (1.2, "1.20 µs"),
        (297.94, "298 µs"),
        (1432.1, "1.43 ms"),
        (math.nan, "–"),
        (999.7, "1.00 ms"),
    ],
)
def test_time_text(us, text):
    assert tables.time_text(us) == text


@pytest.mark.parametrize(
    ("value", "text"), [(68.04, "68"), (999.6, "1000"), (1253.0, "1250"), (9999.0, "10000"), (12345.0, "1.23e4"), (0.0026, "2.60e-3"), (math.nan, "–")]
)
def test_significant_digits_are_a_power_of_ten_only_where_that_is_shorter(value, text):
    assert tables.significant(value) == text


SMALL = {"ns": (512,), "sizes": (1 << 20,), "modes": ("replay",), "dtypes": ("f16",)}


def test_compare_gives_the_speed_up(tmp_path):
    (a,) = load([gpu_folder(slow=2.0, **SMALL).write(tmp_path / "a")])
    (b,) = load([gpu_folder(**SMALL).write(tmp_path / "b")])
    both = tables.compare(a, b)
    assert len(both) == len(a.results)
    assert both["speedup"].between(1.9, 2.0).all() and (both["verdict"] == "faster").all()
    assert both["fraction_ratio"].to_numpy() == pytest.approx(both["speedup"], rel=1e-3)  # of one limit
    assert (tables.compare(b, a)["verdict"] == "slower").all() and (tables.compare(b, b)["verdict"] == "same").all()
    slower = [len(tables.slower_beyond(tables.compare(b, a), threshold)) for threshold in (0.85, 1.05)]
    assert slower == [len(both), 0]  # by how much longer it takes
    b.results["rel_l2"] *= 3
    assert tables.compare(a, b)["error_ratio"].to_numpy() == pytest.approx(3)
    summary = tables.compare_summary(both)
    assert list(summary.columns) == ["variant", "dtype", "mode", "problems", "geometric_mean", "least", "greatest", "faster", "slower"]
    (other,) = load([gpu_folder(**SMALL | {"ns": (16,)}).write(tmp_path / "c")])
    with pytest.raises(ResultsError, match="no measurement in common"):
        tables.compare(a, other)


@pytest.mark.parametrize(("slow", "verdicts"), [(1.02, {"same"}), (1.05, {"slower"})])
def test_a_difference_counts_beyond_the_repetitions(tmp_path, slow, verdicts):
    """Repetitions reach from 0.99 to 1.02 of the median: 2 % overlap, 5 % do not."""
    (a,) = load([gpu_folder(**SMALL).write(tmp_path / "a")])
    (b,) = load([gpu_folder(slow=slow, **SMALL).write(tmp_path / "b")])
    both = tables.compare(a, b)
    assert set(both["verdict"]) == verdicts
    assert len(tables.slower_beyond(both, 0.03)) == (len(both) if "slower" in verdicts else 0)
    assert tables.slower_beyond(both, 0.06).empty


def test_the_noisier_of_two_runs_says_what_is_a_difference(tmp_path):
    quiet, noisy = (load([gpu_folder(slow=slow, **SMALL).write(tmp_path / str(slow))])[0] for slow in (1.0, 1.05))
    noisy.results["noise"] = 0.1
    for a, b in ((quiet, noisy), (noisy, quiet)):
        assert set(tables.compare(a, b)["verdict"]) == {"same"}


def test_a_result_that_is_no_longer_correct_is_worse(tmp_path):
    (a,) = load([gpu_folder(**SMALL).write(tmp_path / "a")])
    writer = gpu_folder(**SMALL)
    writer.tables["results.csv"][0] |= {"status": "incorrect", "time_us": "", "fraction_of_limit": "", "message": "off"}
    (b,) = load([writer.write(tmp_path / "b")])
    assert list(tables.slower_beyond(tables.compare(a, b), 0.5)["variant"]) == [writer.tables["results.csv"][0]["variant"]]


def test_a_result_that_is_refused_now_is_lost(tmp_path, capsys):
    """Not one that A refuses too, at another row stride, nor one that B refuses in another mode, nor on another device."""
    before, after = gpu_folder(**SMALL), gpu_folder(**SMALL)
    row = after.tables["results.csv"].pop()
    for n, modes in ((16, ("replay",)), (32, ("replay", "replay_pdl"))):
        for mode in modes:
            before.measure("naive", "f16", n, 1 << 20, mode)
    for writer in (before, after):
        writer.unsupported("naive", "f16", 16, 1 << 20, "the row stride is odd")
    after.unsupported("naive", "f16", 32, 1 << 20, "programmatic dependent launch is not offered by this variant")
    after.unsupported(row["variant"], "f16", 512, 1 << 20, "it asks too much")
    a, b = before.write(tmp_path / "a"), after.write(tmp_path / "b")
    assert main(["compare", str(a), str(b)]) == 1
    out = capsys.readouterr().out
    assert "2 lost, correct in A and refused in B:" in out and "it asks too much" in out and "row stride" not in out
    lost = tables.refused_since(load([a])[0], load([b])[0])
    assert lost[["variant", "n", "mode"]].to_numpy().tolist() == [[row["variant"], 512, "replay"], ["naive", 32, "replay_pdl"]]
    assert main(["compare", str(a), str(a)]) == 0 and main(["compare", str(b), str(a)]) == 0
    after.context["device"]["name"] = "NVIDIA A100"
    assert main(["compare", str(a), str(after.write(tmp_path / "c"))]) == 0


def test_compare_on_the_command_line(tmp_path, capsys):
    a, b = gpu_folder(slow=2.0, **SMALL).write(tmp_path / "a"), gpu_folder(**SMALL).write(tmp_path / "b")
    assert main(["compare", str(a), str(b), "--output", str(tmp_path / "new" / "ab.csv")]) == 0
    assert "warp_shuffle" in capsys.readouterr().out
    assert (pd.read_csv(tmp_path / "new" / "ab.csv")["speedup"] > 1.9).all()
    assert main(["compare", str(b), str(a)]) == 1
    assert "slower by more than 5 %" in capsys.readouterr().out
    assert main(["compare", str(b), str(a), "--threshold", "3"]) == 0
    assert main(["compare", str(a), str(b), "--output", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path} cannot be written: Is a directory\n"
    assert main(["compare", str(a)]) == 2 and main(["compare", str(a), str(b), "--threshold", "-1"]) == 2
    elsewhere = gpu_folder(slow=3.0, **SMALL)
    elsewhere.context["device"]["name"] = "NVIDIA A100"
    capsys.readouterr()
    assert main(["compare", str(b), str(elsewhere.write(tmp_path / "elsewhere"))]) == 0
    assert "nothing lost its correctness; times of different devices are not compared" in capsys.readouterr().out
    c = gpu_folder(utc_start="2026-11-21T10:00:00Z", **SMALL).write(tmp_path / "c")
    capsys.readouterr()
    assert main(["compare", str(a), str(b), str(c)]) == 0
    assert "2026-11-20 10:00:00" in (out := capsys.readouterr().out) and "2026-11-21 10:00:00" in out
    both = gpu_folder(**SMALL | {"sizes": (1 << 20, 1 << 23)}).write(tmp_path / "both")
    other = gpu_folder(**SMALL | {"sizes": (1 << 23,)}).write(tmp_path / "other")
    assert main(["compare", str(both), str(a), str(other)]) in (0, 1)
    assert "no problem is in all folders" in capsys.readouterr().out


def test_history_takes_the_problems_that_all_runs_measured(tmp_path):
    (old,) = load([gpu_folder(slow=2.0, **SMALL).write(tmp_path / "a")])
    (new,) = load([gpu_folder(**SMALL | {"sizes": (1 << 20, 1 << 23)}).write(tmp_path / "b")])
    frame = tables.history([old, new])
    assert set(frame["problems"]) == {1} and len(frame) == 2 * old.results["variant"].nunique()
    share = frame[frame["variant"] == "naive"]["share"].to_list()
    assert share[1] / share[0] == pytest.approx(2, rel=0.05)


def test_runs_that_begin_within_a_minute_stay_apart(tmp_path, capsys):
    folders = [gpu_folder(slow=s, utc_start=f"2026-11-20T10:00:0{s}Z", **SMALL).write(tmp_path / str(s)) for s in (1, 2, 3)]
    assert main(["compare", *map(str, folders)]) == 1
    out = capsys.readouterr().out
    assert all(f"2026-11-20 10:00:0{s}" in out for s in (1, 2, 3))
    devices = [load([folder])[0] for folder in folders]
    assert tables.history(devices)["when"].nunique() == tables.drift(devices)["when"].nunique() == 3


def test_the_published_table_repeats_its_own_summary():
    """Three fractions of the original measurement, rounded to two digits there."""
    table = tables.published().set_index(["method", "dtype", "n", "elements", "mode"])["fraction"]
    assert len(table) == 660 and table.index.is_unique and table.between(0, 1.05).all()
    assert table["hadacore", "f16", 2048, 1 << 28, "replay"] == pytest.approx(0.99, abs=0.005)
    assert table["hadacore", "f16", 128, 1 << 23, "replay"] == pytest.approx(0.53, abs=0.005)
    assert table["fast_hadamard_transform", "f16", 32768, 1 << 15, "replay"] == pytest.approx(0.09, abs=0.005)


def test_a_number_is_called_a_power_of_two_where_it_is_one():
    """60002304 elements, at which the published kernels were timed too, passed for 2^25."""
    assert [tables.power_text(n) for n in (1, 1 << 25, 60002304, 3 << 24)] == ["2^0", "2^25", "60002304", "50331648"]


def test_the_place_of_the_least_gain_is_named_as_it_is(device, monkeypatch):
    both = tables.beside_published(device, "wgmma")
    monkeypatch.setattr(tables, "beside_published", lambda *_: both.assign(elements=60002304))
    assert {gain.worst_at.split(", ")[-1] for gain in tables.gains(device, "wgmma")} == {"60002304 elements"}


def test_gains_over_the_published_kernels(tmp_path):
    writer = gpu_folder()
    for n in (64, 128):
        writer.measure("wgmma", "f16", n, 1 << 23, "replay")
    (device,) = load([writer.write(tmp_path / "run")])
    gains = {gain.method: gain for gain in tables.gains(device, "wgmma")}
    assert set(gains) == set(tables.PUBLISHED)
    published = tables.published()
    own = device.results.query("variant == 'wgmma' and mode == 'replay' and layout == 'in place' and n >= 128")
    both = own.merge(published[published["method"] == "hadacore"], on=["dtype", "n", "elements", "mode"])
    gain = gains["hadacore"]
    assert gain.points == len(both) > 0
    ratios = both["time_us_y"] / both["time_us_x"]
    assert gain.speedup == pytest.approx(np.prod(ratios) ** (1 / len(ratios)))
    assert gain.worst == pytest.approx(ratios.min())
    assert gain.published_share == pytest.approx(np.prod(both["fraction"]) ** (1 / len(both)))
    assert tables.gains(replace(device, name="Another GPU"), "wgmma") == [] and tables.gains(device, "nobody") == []
    assert tables.gains(device, "wgmma", mode="replay") == list(gains.values()) and tables.gains(device, "wgmma", mode="host") == []


def test_speedups_of_the_paper_are_over_its_grid(tmp_path):
    """Ratios of 1 to 11 on it, at its edges too, and three beyond them."""
    inside = [*((1 << k, 1 << 25) for k in range(7, 16)), (1 << 7, 1 << 15), (1 << 15, 1 << 15)]
    outside = [(1 << 6, 1 << 25), (1 << 16, 1 << 25), (1 << 7, 1 << 26)]
    writer = FolderWriter()
    writer.context["device"]["name"] = "NVIDIA A100"  # whose published kernels are those of the run
    for ratio, (n, elements) in [*enumerate(inside, 1), *((99, problem) for problem in outside)]:
        for variant, time in (("warp_shuffle", ratio), ("auto", 1), ("peer:dao", ratio), ("peer:hadacore", 1)):
            writer.measure(variant, "f16", n, elements, "replay", time_us=time)
    found = tables.published_speedups(load([writer.write(tmp_path / "run")])[0])
    assert found[["what", "points", "low", "median", "high", "least", "greatest"]].to_numpy().tolist() == [
        ["the published kernels", 11, 2, 6, 10, 1, 11], ["warp_shuffle over auto", 11, 2, 6, 10, 1, 11]]  # fmt: skip


def test_lines_of_speed_are_each_of_its_own_time(tmp_path):
    writer = FolderWriter()
    writer.measure("auto", "f16", 4096, 1 << 28, "replay", time_us=4, limit_us=2)
    lines = tables.speed_lines(load([writer.write(tmp_path / "run")])[0], "f16", "replay", 64)
    published = tables.published().query("dtype == 'f16' and mode == 'replay' and n == 4096 and elements == 2**28").set_index("method")["time_us"]
    theirs = {f"{name}, published": published[method] for method, name in tables.PUBLISHED.items()}
    assert dict(zip(lines["who"], 2**30 / lines["rate"] * 1e6)) == pytest.approx({"copy": 2, "fwht::transform": 4} | theirs)


def test_a_few_rows_are_listed_from_256_elements_on(tmp_path):
    writer = FolderWriter()
    for n in (128, 256):
        for mode, time in (("replay", 4), ("replay_pdl", 3)):
            writer.measure("auto", "f16", n, 16 * n, mode, time_us=time, limit_us=2)
    found = tables.few_rows(load([writer.write(tmp_path / "run")])[0], "f16")
    assert found[["n", "rows", "time_us", "share", "pdl_us"]].to_numpy().tolist() == [[256, 16, 4, 0.5, 3]]


def test_which_takes_the_nearest_row_count_and_its_mode(gpu, device):
    _, found = tables.which([device], "bf16", 4096, 9)
    assert set(found["rows"]) == {8} and set(found["mode"]) == {"replay"}
    assert found["variant"].iloc[0] == "wgmma" and found["time_us"].iloc[1:].is_monotonic_increasing
    _, in_l2 = tables.which([device], "f16", 4096, 2048)
    assert set(in_l2["mode"]) == {"alternating"} and set(in_l2["elements"]) == {1 << 23}


def test_which_takes_the_fewer_of_two_row_counts_as_near(tmp_path):
    writer = FolderWriter()
    for rows in (32, 8):
        writer.measure("naive", "f16", 4096, 4096 * rows, "replay")
    assert set(tables.which(load([writer.write(tmp_path / "run")]), "f16", 4096, 16)[1]["rows"]) == {8}


def test_which_answers_by_one_operator(tmp_path, capsys):
    writer = FolderWriter()
    for operator, time, encoding in (("512+signs", 2, ""), ("512", 3, ""), ("512+signs", 4, "e4m3:row"), ("512", 5, "e4m3:row"), ("512+signs", 6, "mxfp4")):
        writer.measure("mma_split", "f16", 512, 512 * 64, "replay", operator=operator, encoding=encoding, time_us=time)
    run = load([folder := writer.write(tmp_path / "run")])
    for encoding, operator in (("", "512"), ("e4m3:row", "512"), ("mxfp4", "512+signs")):
        assert list(tables.which(run, "f16", 512, 64, encoding=encoding)[1]["operator"]) == [operator]
        assert main(["which", str(folder), "--n", "512", "--rows", "64", "--encoding", encoding]) == 0
        assert ("operator 512+signs, 64 rows" in capsys.readouterr().out) == (operator != "512")


def test_which_answers_from_the_first_run_that_measured_it_or_one_that_measured_it_more_closely(gpu, device, tmp_path):
    (newest,) = load([gpu_folder(**SMALL).write(tmp_path / "newest")])
    of_newest, of_device = (set(one.results[one.results["n"] == 512]["rows"]) for one in (newest, device))
    (common,), closer = of_newest & of_device, min(of_device - of_newest)
    assert tables.which([newest, device], "f16", 512, int(common))[0] is newest
    assert tables.which([newest, device], "f16", 512, int(closer))[0] is device
    assert tables.which([newest, device], "f16", 16, 4)[0] is device
    other = replace(newest, name="another device")
    assert tables.which([other, device], "f16", 512, int(closer))[0] is other


def one_run(tmp_path, day, *measured):
    writer = FolderWriter(utc_start=f"2026-11-{day}T10:00:00Z")
    for variant, rows, mode, settings in measured:
        writer.measure(variant, "f16", 512, 512 * rows, mode, settings=settings)
    return load([writer.write(tmp_path / f"run{day}")])[0]


def test_which_answers_by_launches_that_overlap_only_where_there_is_nothing_else(tmp_path):
    older = one_run(tmp_path, 20, ("naive", 64, "replay", "{}"), ("naive", 128, "replay_pdl", "{}"))
    newer = one_run(tmp_path, 21, ("naive", 64, "replay_pdl", "{}"))
    for rows in (64, 128):
        device, found = tables.which([newer, older], "f16", 512, rows)
        assert device is older and set(found["mode"]) == {"replay"} and set(found["rows"]) == {64}
    assert set(tables.which([newer], "f16", 512, 64)[1]["mode"]) == {"replay_pdl"}


def test_which_prefers_a_run_whose_mode_judges_the_size_to_a_newer_one_as_near(tmp_path):
    rows = 1 << 14  # 16 MiB: in the L2
    older = one_run(tmp_path, 20, ("naive", rows, "alternating", "{}"))
    newer = one_run(tmp_path, 21, ("naive", rows, "cold", "{}"), ("naive", 4 * rows, "replay", "{}"))
    assert tables.which([newer, older], "f16", 512, rows)[0] is older
    assert tables.which([newer, older], "f16", 512, 4 * rows)[0] is newer


def test_variants_that_there_are_no_longer_are_not_recommended(tmp_path):
    run = one_run(tmp_path, 20, ("bygone", 64, "replay", "{}"), ("auto", 64, "replay", '{"picked":"bygone"}'), ("naive", 64, "replay", "{}"))
    assert list(tables.which([run], "f16", 512, 64)[1]["variant"]) == ["naive"]
    assert set(report.explored(run)["candidate"]) == {"", "naive"}


def test_means_of_several_variants_are_over_lengths_that_these_have(tmp_path):
    writer = FolderWriter()
    lengths = {"naive": range(7, 16), "hadacore": range(7, 15), "wgmma": range(12, 16), "passes": range(15, 16)}
    for variant, powers in lengths.items():
        for k in powers:
            writer.measure(variant, "f16", 1 << k, 1 << 28, "replay")
    writer.measure("auto", "f16", 4096, 1 << 28, "replay")
    found = tables.error_against_speed(load([writer.write(tmp_path / "run")])[0], "f16")
    assert dict(zip(found["variant"], found["lengths"])) == {"naive": 3, "hadacore": 3, "wgmma": 3}
    assert set(found["regime"]) == {"NVIDIA H200: DRAM, 512 MiB, n = 4096–16384"}
    table = pd.DataFrame({"a": [1.0, 2, 3, 4], "b": [1.0, 2, 3, math.nan]}, index=[1, 2, 4, 8])
    assert tables.shared(table).equals(table.loc[[1, 2, 4]]) and tables.shared(table[["a"]]).equals(table[["a"]])
    assert tables.shared(table.iloc[:0]).empty


@pytest.mark.parametrize("n", [3, 17, 131072, 10**40])
def test_which_refuses_what_was_not_measured(device, n):
    with pytest.raises(ResultsError, match="was not measured in f16; the nearest row lengths are"):
        tables.which([device], "f16", n, 4)
    with pytest.raises(ResultsError, match="nothing was measured in f64"):
        tables.which([device], "f64", n, 4)


def test_which_on_the_command_line(gpu, capsys):
    assert main(["which", str(gpu), "--n", "4096", "--rows", "8", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["variants"][0]["variant"] == "wgmma" and answer["rows"] == 8 and answer["mode"] == "replay"
    assert main(["which", str(gpu), "--n", "3", "--rows", "8"]) == 2
    assert "n=3 was not measured" in capsys.readouterr().err
    for wrong in (["--n", "0", "--rows", "8"], ["--n", "x", "--rows", "8"], ["--n", "16", "--rows", "-1"], ["--n", "16"]):
        assert main(["which", str(gpu), *wrong]) == 2
    capsys.readouterr()
    assert main(["which", str(gpu), "--n", "12345678901234567890123", "--rows", "8"]) == 2
    assert "n=12345678901234567890123 was not measured" in capsys.readouterr().err
    for dtype, said in (("i32", "nothing was measured in i32"), ("i8", "'i8' is not one of 'f16', 'bf16', 'f32', 'f64', 'i32', 'i64'")):
        capsys.readouterr()
        assert main(["which", str(gpu), "--n", "16", "--rows", "8", "--dtype", dtype]) == 2
        assert said in capsys.readouterr().err


def test_which_where_the_terminal_knows_ascii_alone(tmp_path):
    folder = gpu_folder(**SMALL).write(tmp_path / "run")
    command = [sys.executable, "-m", "analysis", "which", str(folder), "--n", "512", "--rows", "64"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONIOENCODING": "ascii"}, cwd=ROOT)
    assert done.returncode == 0 and " ?s: a copy of the same bytes" in done.stdout, done.stderr


def test_encoded_and_other_widths_are_families_of_their_own(tmp_path):
    writer = gpu_folder(**SMALL)
    writer.measure("kronecker", "f16", 14336, 14336 * 64, "replay", operator="28x512")
    writer.measure("mma_split", "f16", 512, 1 << 20, "replay", encoding="e4m3:row")
    (device,) = load([writer.write(tmp_path / "run")])
    best = tables.best(device.results).set_index("family")["variant"]
    assert best["width"] == "kronecker" and best["encoded"] == "mma_split" and best["transform"] not in ("kronecker", "mma_split")
    assert tables.which([device], "f16", 512, 2048)[1]["encoding"].eq("").all()
    assert list(tables.which([device], "f16", 512, 2048, encoding="e4m3:row")[1]["variant"]) == ["mma_split"]
    assert list(tables.which([device], "f16", 14336, 64)[1]["operator"]) == ["28x512"]
    assert "kronecker" not in set(tables.errors(device)["variant"])


def arranged_folder():
    """Two arrangements of one problem beside natural order, one of integers without it."""
    writer = gpu_folder(**SMALL)

    def measure(variant, dtype, time, arrangement, **changes):
        writer.measure(variant, dtype, 1 << 16, 1 << 20, "replay", arrangement=arrangement, time_us=time, limit_us=2, fraction_of_limit=2 / time, **changes)

    for variant, time in (("passes", 5), ("naive", 9)):
        measure(variant, "f32", time, "", placement="out")
    measure("passes", "f32", 8, "sequency", placement="out")
    measure("naive", "f32", 80, "sequency", placement="out")
    measure("passes", "f32", 4, "inner16", row_stride=1 << 20, placement="out")
    measure("passes", "i32", 6, "sequency", placement="out", rel_l2=0, predicted_rel_l2=0)
    return writer


def test_orders_and_axes_stand_beside_natural_order(tmp_path):
    (device,) = load([arranged_folder().write(tmp_path / "run")])
    found = tables.arranged(device)
    assert list(zip(found["dtype"], found["arrangement"], found["variant"], found["natural"].fillna(""))) == [
        ("f32", "inner16", "passes", "passes"), ("f32", "sequency", "passes", "passes"), ("i32", "sequency", "passes", "")]  # fmt: skip
    assert list(found["ratio"].fillna(0)) == [0.8, 1.6, 0] and list(found["fraction_of_limit"]) == pytest.approx([1 / 2, 1 / 4, 1 / 3])
    assert set(found["place"]) == {"out of place"} and set(found["family"]) == {"arranged"}
    assert list(tables.which([device], "f32", 1 << 16, 16)[1]["time_us"]) == [5, 9], "the fastest is another problem"
    assert list(tables.compare(device, device)["arrangement"]).count("sequency") == 3
    assert not len(tables.arranged(load([gpu_folder(**SMALL).write(tmp_path / "plain")])[0]))


def test_codes_of_prepared_rows_stand_beside_those_of_bare_ones(tmp_path):
    writer = gpu_folder(**SMALL)

    def measure(time, encoding, **changes):
        writer.measure("mma_split", "bf16", 128, 1 << 20, "replay", encoding=encoding, placement="out", time_us=time, limit_us=2,
                       fraction_of_limit=2 / time, **changes)  # fmt: skip

    for time, encoding in ((4, "e4m3:row"), (6, "rope128h8>e4m3:row"), (5, "rms/page64x64>mxfp4")):
        measure(time, encoding)
    measure(8, "e4m3:row", operator="128+signs")
    (device,) = load([writer.write(tmp_path / "run")])
    found = tables.prepared(device)
    assert list(zip(found["form"], found["preparation"], found["ratio"].fillna(0))) == [
        ("e4m3:row", "rope128h8", 1.5), ("e4m3:row", "signs", 2), ("mxfp4", "rms page64x64", 0)]  # fmt: skip
    assert not tables.covers_fused(device) and list(tables.fused(device)["encoding"]) == ["e4m3:row"], "prepared rows are no fused output"
    assert not len(tables.prepared(load([gpu_folder(**SMALL).write(tmp_path / "plain")])[0]))


def test_operators_with_numbers_stand_beside_the_same_factors_without(tmp_path):
    writer = gpu_folder(**SMALL)

    def measure(time, operator, variant="mma_split", n=14336, **changes):
        writer.measure(variant, "bf16", n, n * 64, "replay", placement="out", time_us=time, limit_us=2, fraction_of_limit=2 / time,
                       operator=operator, **changes)  # fmt: skip

    for time, operator in ((4, "28x512"), (6, "d28x512"), (5, "28x512+signs"), (8, "signs+d28x512")):
        measure(time, operator)
    measure(7, "d53x256", n=13568)
    measure(4, "256", n=256)
    measure(3, "256+signs", n=256)
    for variant, time in (("mma_kronecker", 10), ("rotate_then_quantize", 15)):
        measure(time, "d28x512", variant, encoding="e4m3:row")
        measure(time, "28x512", variant, encoding="e4m3:row")
    (device,) = load([writer.write(tmp_path / "run")])
    found = tables.operands(device)
    assert list(zip(found["operator"], found["reads"], found["ratio"].fillna(0))) == [
        ("d53x256", "dense", 0), ("d28x512", "dense", 1.5), ("signs+d28x512", "dense signs", 2), ("256+signs", "signs", 0.75),
        ("28x512+signs", "signs", 1.25)]  # fmt: skip
    codes = tables.dense_codes(device)
    assert list(zip(codes["operator"], codes["octave"], codes["gain"])) == [("d28x512", 20, 1.5)]
    assert list(tables.fused(device)["operator"]) == ["28x512"], "codes behind dense factors are a table of their own"
    assert set(device.results.loc[device.results["family"] == "width", "operator"]) == {"28x512"}


def test_operators_with_numbers_answer_for_no_other_row_length(tmp_path):
    """Beside 4096 and 28x512, in front of them and with other times: what by_width, decode, which, support and tune say is that of the named ones."""
    writer = gpu_folder(**SMALL)
    for n, operators in ((4096, ("4096+signs", "4096")), (14336, ("d28x512", "28x512+signs", "28x512"))):
        for operator in operators:
            named = operator in ("4096", "28x512")
            for count in (1, (1 << 26) // n):
                for variant, time in (("mma_split", 10 if named else 99), ("factors", 11 if named else 1)):
                    writer.measure(variant, "f16", n, n * count, "replay", operator=operator, time_us=time, limit_us=5, fraction_of_limit=5 / time)
    (device,) = load([writer.write(tmp_path / "run")])
    wide = tables.by_width(device)
    assert set(wide["operator"]) == {"4096", "28x512"} and set(wide["time_us"]) == {10}
    assert set(tables.decode(device)["operator"]) == {"4096", "28x512"}
    assert list(tables.beside_variant(device, "mma_split", "factors")["other_us"].unique()) == [11]
    _, found = tables.which([device], "f16", 14336, 1)
    assert found["time_us"].iloc[0] == 10
    chosen = tune.choices(device.results)
    assert set(chosen.loc[chosen["n"] == 14336, "variant"]) == {"mma_split"}



def test_codes_of_a_variant_that_wrote_wrong_ones_are_not_recommended(tmp_path):
    writer = gpu_folder(**SMALL)
    writer.measure("mma_split", "f16", 512, 1 << 20, "replay", encoding="e4m3:row", time_us=9.0, limit_us=4.5, fraction_of_limit=0.5)
    for n, encoding in ((512, "e4m3:row"), (1024, "e4m3:row"), (1024, "mxfp8")):
        writer.measure("kronecker", "f16", n, 1 << 20, "replay", encoding=encoding, time_us=5.0, limit_us=4.5, fraction_of_limit=0.9)
    of_1024 = next(row for row in writer.tables["results.csv"] if row["variant"] == "kronecker" and int(row["n"]) == 1024)
    of_1024 |= {"status": "incorrect", "time_us": "", "fraction_of_limit": "", "message": "a code"}
    (device,) = load([writer.write(tmp_path / "run")])
    of_512 = tables.which([device], "f16", 512, 2048, encoding="e4m3:row")[1]
    assert list(of_512["variant"]) == ["mma_split"]
    assert list(tables.which([device], "f16", 1024, 1024, encoding="mxfp8")[1]["variant"]) == ["kronecker"]


def test_kernels_of_others_are_shown_and_never_recommended(tmp_path):
    writer = gpu_folder(**SMALL)
    writer.measure("peer:dao", "f16", 512, 1 << 20, "replay", time_us=0.001, limit_us=0.001, fraction_of_limit=1.0, host_us=3.0)
    (device,) = load([writer.write(tmp_path / "run")])
    assert "peer:dao" not in set(tables.best(device.results)["variant"]) | set(tables.which([device], "f16", 512, 2048)[1]["variant"])
    (size,) = tables.sizes(device.results, "f16", device.l2_bytes)
    assert "peer:dao" in tables.shares(device, "f16", size).columns


def test_the_score_is_half_at_the_published_kernel_and_one_at_the_copy(tmp_path):
    assert list(tables.score(pd.Series([1.0, 2.0, 4.0, 1.0]), [2.0, 2.0, 2.0, 1.0], 1.0).fillna(-1)) == [1, 0.5, 0.25, -1]
    writer = FolderWriter()
    for variant, time in (("naive", 4), ("peer:dao", 9), ("peer:hadacore", 5), ("peer:compile", 3)):
        writer.measure(variant, "f16", 512, 1 << 20, "replay", time_us=time, limit_us=3)
    writer.measure("auto", "f16", 512, 1 << 15, "replay", time_us=1.25, limit_us=0.9)
    (device,) = load([writer.write(tmp_path / "run")])
    found = tables.beside_peers(device)
    assert list(found["peer"]) == ["compile", "dao", "hadacore"] and set(found["score"]) == {2 / 3}, "compile is no published kernel"
    both = tables.beside_published(device)
    faster = tables.published().query("dtype == 'f16' and mode == 'replay' and n == 512 and elements == 32768")["time_us"].min()
    assert list(both["score"]) == pytest.approx([1 / (1 + 0.35 / (faster - 0.9))] * 2)


def test_few_row_lengths_beside_codes_are_no_run_of_row_lengths(tmp_path):
    """Nor are those of the grid `tune`, or of a part of it that a file holds."""

    def lengths(name: str, **placed: object) -> bool:
        writer = FolderWriter(grid=name)
        writer.measure("kronecker", "f16", 14336, 14336, "replay", operator="28x512", time_us=2.0, limit_us=1.0, fraction_of_limit=0.5, **placed)
        return tables.covers_widths(load([writer.write(tmp_path / name)])[0])

    assert lengths("widths", placement="in") and not lengths("fused", placement="out")
    assert not lengths("tune", placement="in") and not lengths("tune.grid", placement="in")
    (both,) = load([tmp_path / "tune", tmp_path / "fused"])
    assert not tables.covers_widths(both), "both of one commit"


def test_times_beside_another_variant_by_place(tmp_path):
    writer = gpu_folder(ns=(512,), sizes=(1 << 20,), modes=("replay",), dtypes=("f16",))
    for variant, time in (("factors", 12.0), ("kronecker", 4.0)):
        for rows, mode, factor in ((1, "replay", 1), (1 << 10, "alternating", 2), (1 << 16, "replay", 3), (1 << 16, "alternating", 9)):
            writer.measure(variant, "f16", 14336, 14336 * rows, mode, operator="28x512", time_us=time * factor, limit_us=2, fraction_of_limit=2 / time / factor)
    (device,) = load([writer.write(tmp_path / "20261120T100000Z_0123456789_h200")])
    found = tables.beside_variant(device, "factors", "kronecker").set_index("place")
    assert dict(found["time_us"]) == {"one row, replay": 12, "L2, alternating": 24, "DRAM, replay": 36} and set(found["ratio"]) == {3.0}


def test_auto_stands_before_what_it_launches_where_both_are_as_fast(tmp_path):
    writer = FolderWriter()
    for variant, settings in (("naive", "{}"), ("auto", '{"picked":"naive"}')):
        writer.measure(variant, "f16", 1024, 1 << 20, "replay", time_us=1, settings=settings, rel_l2=tables.ideal_error("f16"))
    (best,) = tables.best(load([writer.write(tmp_path / "run")])[0].results, forwards=True).itertuples()
    assert (best.variant, best.ties) == ("auto", "naive")


def test_errors_of_a_sweep_are_those_of_its_largest_problem(tmp_path):
    writer = FolderWriter()
    for elements, error in ((1 << 15, 3e-4), (1 << 23, 2e-4), (1 << 20, 4e-4)):
        writer.measure("naive", "f16", 512, elements, "replay", rel_l2=error)
    assert tables.errors(load([writer.write(tmp_path / "run")])[0])["rel_l2"].to_list() == [2e-4]


def test_the_published_kernels_stand_beside_rows_in_place_in_their_mode(tmp_path):
    """They were timed in place; the comparison by regime is of mode replay."""
    one = tables.published().query("dtype == 'f16' and mode == 'cold' and n == 4096 and elements == 8388608").iloc[-1]
    writer = FolderWriter()
    for mode, placement, time in (("cold", "in", 200), ("replay", "in", 100), ("replay", "out", 50)):
        writer.measure("auto", "f16", 4096, int(one["elements"]), mode, placement=placement, time_us=time, settings='{"picked":"naive"}')
    device = load([writer.write(tmp_path / "run")])[0]
    both = tables.beside_published(device)
    assert set(both["time_us"]) == {100, 200} and not both.duplicated(["method", "mode"]).any()
    (row,) = tables.comparison(device, "f16").to_dict("records")
    theirs = tables.published().query("dtype == 'f16' and mode == 'replay' and n == 4096 and elements == @one.elements and method == @one.method")
    assert row["mode"] == "replay" and row[one["method"]] == pytest.approx(theirs["time_us"].item() / 100)


def test_sizes_without_published_kernels_are_shown_in_the_mode_that_judges_them_best(tmp_path):
    writer = FolderWriter()
    writer.context["device"]["name"] = "NVIDIA A100"
    for elements, mode in ((1 << 23, "replay"), (1 << 23, "alternating"), (1 << 28, "replay")):
        writer.measure("auto", "f16", 4096, elements, mode, settings='{"picked":"naive"}')
    found = tables.comparison(load([writer.write(tmp_path / "run")])[0], "f16")
    assert list(found["mode"]) == ["replay", "alternating"] and list(found["place"]) == ["DRAM, 512 MiB", "L2, 16 MiB, alternating"]


def test_row_lengths_of_a_few_rows_and_of_a_like_size(tmp_path):
    """A few rows are DECODE_ROWS at most, and as many at most lengths; beside m 2^k stand powers of two of at most twice or half as many
    elements."""
    writer = FolderWriter()
    for rows in (tables.DECODE_ROWS, 2 * tables.DECODE_ROWS, 1 << 14):
        writer.measure("kronecker", "f16", 14336, 14336 * rows, "replay", operator="28x512")
    for n, size in ((1024, 28), (2048, 29), (4096, 27)):
        writer.measure("wgmma", "f16", n, 1 << size, "replay")
    device = load([writer.write(tmp_path / "run")])[0]
    assert sorted(tables.decode(device)["rows"]) == [tables.DECODE_ROWS]
    assert sorted(tables.by_width(device)["n"]) == [1024, 4096, 14336]
    writer.measure("kronecker", "f16", 7168, 7168 * tables.DECODE_ROWS, "replay", operator="28x256")
    writer.measure("kronecker", "f16", 7168, 7168 * 73, "replay", operator="28x256")
    assert sorted(tables.decode(load([writer.write(tmp_path / "more")])[0])["rows"]) == [tables.DECODE_ROWS] * 2
