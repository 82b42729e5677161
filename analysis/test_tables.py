"""Tables, comparisons and the published baselines."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analysis import baselines, tables
from analysis.__main__ import main
from analysis.conftest import gpu_folder
from analysis.load import ResultsError, load, load_folder


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


def test_summary_sizes_name_the_regimes(device):
    sizes = tables.summary_sizes(device.results, "f16", "alternating", device.l2_bytes)
    assert [(s.label, s.elements) for s in sizes] == [
        ("small", 1 << 15),
        ("in L2", 1 << 23),
        ("DRAM", 1 << 28),
    ]
    assert [s.label for s in tables.summary_sizes(device.results, "f16", "cold", device.l2_bytes)][
        1
    ] == "L2-sized"
    # 32 MiB of f32 are the largest tensor inside 0.6 of a 60 MiB L2; 2^23 elements are 32 MiB.
    assert tables.summary_sizes(device.results, "f32", "replay", device.l2_bytes)[1].elements == 1 << 23
    assert [s.label for s in tables.summary_sizes(device.results, "f16", "replay", 0)] == [
        "small",
        "medium",
        "large",
    ]


def test_summary_has_one_cell_per_n_and_size(device):
    summary = tables.summary(device, "f16", "replay")
    small, in_l2, dram = summary.sizes
    assert set(summary.cells) == {(n, s) for n in (16, 512, 4096, 32768) for s in (small, in_l2, dram)}
    assert summary.cells[4096, dram]["variant"] == "wgmma"
    method, fraction = summary.published[4096, dram]
    assert method == "hadacore" and fraction == pytest.approx(0.92, abs=0.006)
    assert summary.published[512, small][0] == "fast_hadamard_transform"
    assert not tables.summary(device, "f16", "alternating").published
    assert not tables.summary(device, "f32", "replay").published


def test_headline_judges_each_size_by_its_own_mode(device, host):
    summary = tables.headline(device, "f16")
    assert [(s.label, s.mode) for s in summary.sizes] == [
        ("small", "replay"),
        ("in L2", "alternating"),
        ("DRAM", "replay"),
    ]
    for (n, size), row in summary.cells.items():
        assert (row["mode"], row["elements"], row["n"]) == (size.mode, size.elements, n)
    assert {size.label for _, size in summary.published} == {"small", "DRAM"}
    assert tables.headline(load([host])[0], "f16").sizes == []


def test_a_few_odd_shapes_do_not_become_a_size_of_the_summary(tmp_path):
    writer = gpu_folder(ns=(16, 512, 4096, 32768), sizes=(1 << 15,), modes=("replay",), dtypes=("f16",))
    writer.measure("naive", "f16", 64, 64 * 7, "replay")
    writer.measure("naive", "f16", 4096, 1 << 28, "replay")
    device = load([writer.write(tmp_path / "run")])[0]
    assert [s.elements for s in tables.summary(device, "f16", "replay").sizes] == [1 << 15]


def test_ideal_error_is_one_rounding():
    assert tables.ideal_error("f16") == pytest.approx(2.074e-4, rel=1e-3)
    assert tables.ideal_error("bf16") == pytest.approx(8 * tables.ideal_error("f16"))


def test_errors_prefer_the_accuracy_experiment(device):
    errors = tables.errors(device)
    row = errors[
        (errors["variant"] == "hadacore") & (errors["dtype"] == "f16") & (errors["n"] == 32768)
    ].iloc[0]
    accuracy = device.accuracy.query(
        "variant == 'hadacore' and dtype == 'f16' and n == 32768 and input == 'normal'"
    )
    assert row["rel_l2"] == accuracy["rel_l2"].iloc[0]
    assert row["over_ideal"] == pytest.approx(2, rel=0.03)


def test_unsupported_reasons_are_grouped(device):
    table = tables.unsupported_reasons(device)
    kokkos = table[table["variant"] == "kokkos"]
    assert len(kokkos) == 1
    assert kokkos["dtype"].iloc[0] == "f16, bf16, f32"
    assert kokkos["n"].iloc[0] == "16, 512, 4096, 32768"


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


def test_compare_gives_the_speed_up(tmp_path):
    sizes = {"ns": (512,), "sizes": (1 << 20,), "modes": ("replay",), "dtypes": ("f16",)}
    a = load_folder(gpu_folder(slow=2.0, **sizes).write(tmp_path / "a"))
    b = load_folder(gpu_folder(**sizes).write(tmp_path / "b"))
    both = tables.compare(a, b)
    assert len(both) == len(a.results)
    assert both["speedup"].between(1.9, 2.0).all()
    summary = tables.compare_summary(both)
    assert list(summary.columns) == [
        "variant",
        "dtype",
        "mode",
        "problems",
        "geometric_mean",
        "least",
        "greatest",
    ]
    other = load_folder(gpu_folder(**sizes | {"ns": (16,)}).write(tmp_path / "c"))
    with pytest.raises(ResultsError, match="no measurement in common"):
        tables.compare(a, other)


def test_compare_on_the_command_line(tmp_path, capsys):
    sizes = {"ns": (512,), "sizes": (1 << 20,), "modes": ("replay",), "dtypes": ("f16",)}
    a = gpu_folder(slow=2.0, **sizes).write(tmp_path / "a")
    b = gpu_folder(**sizes).write(tmp_path / "b")
    assert main(["compare", str(a), str(b), "--output", str(tmp_path / "ab.csv")]) == 0
    assert "warp_shuffle" in capsys.readouterr().out
    assert (pd.read_csv(tmp_path / "ab.csv")["speedup"] > 1.9).all()


def test_the_published_table_repeats_its_own_summary():
    """Three fractions of the original measurement, rounded to two digits there."""
    table = baselines.published().set_index(["method", "dtype", "n", "elements", "mode"])["fraction"]
    assert len(table) == 660 and table.index.is_unique and table.between(0, 1.05).all()
    assert table["hadacore", "f16", 2048, 1 << 28, "replay"] == pytest.approx(0.99, abs=0.005)
    assert table["hadacore", "f16", 128, 1 << 23, "replay"] == pytest.approx(0.53, abs=0.005)
    assert table["fast_hadamard_transform", "f16", 32768, 1 << 15, "replay"] == pytest.approx(0.09, abs=0.005)


def test_baselines_compare_fractions_of_the_limit(device):
    table = baselines.compare(device)
    assert set(table["variant"]) == {"warp_shuffle", "hadacore"}
    assert set(table["mode"]) == {"replay", "cold"}
    row = table.query(
        "variant == 'hadacore' and dtype == 'f16' and n == 4096 and elements == 2**23 and mode == 'replay'"
    ).iloc[0]
    measured = device.results.query(
        "variant == 'hadacore' and dtype == 'f16' and n == 4096 and elements == 2**23 and mode == 'replay'"
    ).iloc[0]
    limits = device.limits[(device.limits["mode"] == "replay") & (device.limits["placement"] == "in")]
    limits = limits[limits["useful_bytes"] == measured["useful_bytes"]]
    plain = limits[limits["kernel"].str.startswith("one_shot_")]["time_us"].min()  # as the published table had
    measured = plain / measured["time_us"]
    assert row["fraction"] == pytest.approx(measured)
    assert row["baseline_fraction"] == pytest.approx(0.63, abs=0.005)
    assert row["relative_difference"] == pytest.approx(measured / row["baseline_fraction"] - 1)


def test_gains_over_the_published_kernels(device):
    gains = {gain.method: gain for gain in baselines.gains(device, "wgmma")}
    assert set(gains) == set(baselines.NAMES)
    published = baselines.published()
    own = device.results.query("variant == 'wgmma' and mode == 'replay' and layout == 'in place' and n >= 128")
    both = own.merge(published[published["method"] == "hadacore"], on=["dtype", "n", "elements", "mode"])
    gain = gains["hadacore"]
    assert gain.points == len(both) > 0
    ratios = both["time_us_y"] / both["time_us_x"]
    assert gain.speedup == pytest.approx(np.prod(ratios) ** (1 / len(ratios)))
    assert gain.worst == pytest.approx(ratios.min())
    assert gain.published_share == pytest.approx(np.prod(both["fraction"]) ** (1 / len(both)))
    assert gain.share == pytest.approx(gain.one_shot_share, rel=1e-4)  # here the limit is a one-shot copy
    other = replace(device, name="Another GPU")
    assert np.isnan(baselines.gains(other, "wgmma")[0].speedup) and baselines.gains(device, "nobody") == []
    (line, _) = baselines.gain_lines(device, "wgmma")
    assert f"{gain.points} sizes" in baselines.gain_lines(device, "wgmma")[1] and "times as fast" in line
    assert "times as fast" not in baselines.gain_lines(other, "wgmma")[0]


def test_baselines_on_the_command_line(gpu, host, tmp_path, capsys):
    assert main(["baselines", str(gpu), "--output", str(tmp_path / "b.csv")]) == 0
    assert list(pd.read_csv(tmp_path / "b.csv").columns) == ["device", *baselines.COLUMNS]
    assert main(["baselines", str(host)]) == 2
    assert "no measurement here has a published counterpart" in capsys.readouterr().err


def test_table_on_the_command_line(gpu, capsys):
    assert main(["table", str(gpu), "--dtype", "f16", "--mode", "cold"]) == 0
    out = capsys.readouterr().out
    assert "f16, cold" in out and "replay" not in out and "wgmma" in out
    assert main(["table", str(gpu), "--variant", "wgmm"]) == 2
    assert "there is hadacore, naive, warp_shuffle, wgmma" in capsys.readouterr().err


def test_which_takes_the_nearest_row_count_and_its_mode(gpu):
    (device,) = load([gpu])
    found = tables.which(device, "bf16", 4096, 9)
    assert set(found["rows"]) == {8} and set(found["mode"]) == {"replay"}
    assert found["time_us"].is_monotonic_increasing and "wgmma" in set(found["variant"])
    in_l2 = tables.which(device, "f16", 4096, 2048)
    assert set(in_l2["mode"]) == {"alternating"} and set(in_l2["elements"]) == {1 << 23}
    assert tables.which(device, "f16", 17, 4).empty
