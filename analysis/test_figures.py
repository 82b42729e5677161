"""The data behind the figures; drawing is only checked for being possible and for saying what it must say."""

import matplotlib
import numpy as np
import pytest

from analysis import baselines, figures, svg, tables
from analysis.conftest import gpu_folder
from analysis.load import load

SVG = f"{{{svg.SVG}}}"


@pytest.fixture
def device(gpu):
    return load([gpu])[0]


def in_mode(device, dtype="f16", mode="replay"):
    return figures.select(device.results, dtype, mode, "in place")


def test_heat_map_cells_are_the_measured_fractions(device):
    maps = {m.variant: m for m in figures.heat_maps(device, "f16", "replay", "in place")}
    assert list(maps) == [
        "naive",
        "warp_shuffle",
        "hadacore",
        "wgmma",
        "kokkos",
    ]  # ladder order; cpu has no device rows
    rows = in_mode(device).query("variant == 'wgmma'")
    expected = {(n, e): f for n, e, f in zip(rows["n"], rows["elements"], rows["fraction_of_limit"])}
    assert maps["wgmma"].cells == expected


def test_heat_map_gaps_carry_the_reason_unchanged(device):
    maps = {m.variant: m for m in figures.heat_maps(device, "f16", "replay", "in place")}
    assert maps["wgmma"].gaps[512, 1 << 20] == "n=512 is below 2048, the shortest row that fills a wgmma tile"
    assert not maps["kokkos"].cells
    assert set(maps["kokkos"].gaps.values()) == {"built without Kokkos (FWHT_KOKKOS=OFF)"}
    assert not maps["naive"].gaps


def test_heat_map_marks_wrong_results(tmp_path):
    writer = gpu_folder(ns=(16, 512), sizes=(1 << 15,), modes=("replay",), dtypes=("f16",))
    writer.tables["results.csv"][0] |= {
        "status": "incorrect",
        "time_us": "",
        "fraction_of_limit": "",
        "message": "too large",
    }
    device = load([writer.write(tmp_path / "run")])[0]
    naive = figures.heat_maps(device, "f16", "replay", "in place")[0]
    assert naive.gaps == {(16, 1 << 15): "incorrect: too large"}
    assert (16, 1 << 15) not in naive.cells


def test_a_reason_is_a_gap_only_where_its_problem_belongs(tmp_path):
    writer = gpu_folder(ns=(16, 4096), sizes=(1 << 15,), modes=("replay",), dtypes=("f16",))
    writer.measure("naive", "f16", 4096, 1 << 23, "alternating")
    writer.measure("cpu", "f16", 16, 1 << 15, "host")
    for elements in (1 << 15, 1 << 20, 1 << 23):
        writer.unsupported("naive", "f16", 8192, elements, "n=8192 is too long")
    device = load([writer.write(tmp_path / "run")])[0]
    alternating = {m.variant: m for m in figures.heat_maps(device, "f16", "alternating", "in place")}
    replay = {m.variant: m for m in figures.heat_maps(device, "f16", "replay", "in place")}
    assert (16, 1 << 15) in replay["wgmma"].gaps  # asked for in replay, not in alternating
    assert (16, 1 << 15) not in alternating["wgmma"].gaps
    assert replay["naive"].gaps == {(8192, 1 << 15): "n=8192 is too long"}
    assert alternating["naive"].gaps == {(8192, 1 << 23): "n=8192 is too long"}
    assert [m.variant for m in figures.heat_maps(device, "f16", "host", "in place")] == ["cpu"]


def test_other_layouts_get_their_own_heat_map(tmp_path):
    writer = gpu_folder(ns=(16, 4096), sizes=(1 << 15,), modes=("replay",), dtypes=("f16",))
    writer.measure("naive", "f16", 16, 1 << 15, "replay", placement="out")
    device = load([writer.write(tmp_path / "run")])[0]
    (naive,) = figures.heat_maps(device, "f16", "replay", "out of place")
    assert naive.variant == "naive" and len(naive.cells) == 1
    stems = [d.stem for d in figures.draw_all(device)["f16, mode replay"]]
    assert stems == [
        "heat_f16_replay",
        "time_n_f16_replay",
        "speedup_f16_replay",
        "heat_f16_replay_out_of_place",
    ]


def test_gap_legend_gives_one_letter_to_alike_sentences(device):
    legend = figures.gap_legend(figures.heat_maps(device, "f16", "replay", "in place"))
    assert [entry.letter for entry in legend] == ["a", "b"]
    assert (
        legend[0].text
        == "a: n=16 is below 2048, the shortest row that fills a wgmma tile (and alike: n = 16, 512)"
    )
    assert legend[1].text == "b: built without Kokkos (FWHT_KOKKOS=OFF)"


def test_no_heat_map_for_a_mode_without_times(device):
    assert figures.heat_maps(device, "f16", "host", "in place") == []


def test_time_against_n(device):
    part = in_mode(device)
    lines = figures.time_against_n(device, part, 1 << 15)
    n, time = lines.series["naive"]
    assert list(n) == [16, 512, 4096, 32768]
    rows = part[(part["variant"] == "naive") & (part["elements"] == 1 << 15)].sort_values("n")
    assert list(time) == list(rows["time_us"])
    assert set(lines.references) == {"limit (copy)", "empty kernel"}
    assert np.all(lines.references["limit (copy)"][1] == rows["limit_us"].iloc[0])
    assert set(lines.published) == {"published HadaCore (H200)", "published fast-hadamard-transform (H200)"}
    assert "empty kernel" not in figures.time_against_n(device, part, 1 << 28).references


def test_time_against_bytes_has_limit_and_floor(device):
    lines = figures.time_against_bytes(device, in_mode(device), 4096)
    size, limit = lines.references["limit (copy)"]
    assert list(size) == [4 * e for e in (1 << 15, 1 << 20, 1 << 23, 1 << 28)]
    assert np.all(np.diff(limit) > 0)
    assert set(lines.references["empty kernel"][1]) == {0.55}
    assert list(lines.series) == ["naive", "warp_shuffle", "hadacore", "wgmma"]


def test_published_times_only_beside_the_same_gpu(tmp_path, device):
    writer = gpu_folder(ns=(4096,), sizes=(1 << 15, 1 << 23), modes=("replay",), dtypes=("f16",))
    writer.context["device"]["name"] = "NVIDIA A100"
    other = load([writer.write(tmp_path / "a100")])[0]
    assert figures.time_against_bytes(other, in_mode(other), 4096).published == {}
    assert figures.time_against_bytes(device, in_mode(device, mode="alternating"), 4096).published == {}
    assert figures.time_against_bytes(device, in_mode(device, "f32"), 4096).published == {}


def test_speedup_is_the_base_time_over_the_time(device):
    part = in_mode(device)
    table = figures.speedups(part, figures.speedup_base(device, part))
    assert set(table["variant"]) == {"naive", "hadacore", "wgmma"}
    row = table.query("variant == 'wgmma' and n == 4096 and elements == 2**23").iloc[0]
    times = part.query("n == 4096 and elements == 2**23").set_index("variant")["time_us"]
    assert row["speedup"] == pytest.approx(times["warp_shuffle"] / times["wgmma"])
    assert row["speedup"] > 1


def test_variants_without_results_take_no_colour_from_those_with(device):
    names = [v for v in device.variants if v in set(device.results["variant"])]
    assert len(names) < len(device.variants)
    colours = [figures.style_of(device)[v]["color"] for v in names]
    assert colours == list(figures.PALETTE[: len(names)])


def test_more_variants_than_colours_still_differ():
    styles = figures.styles([f"v{i}" for i in range(20)])
    assert len({(s["color"], s["marker"]) for s in styles.values()}) == 20


def test_a_variant_that_only_forwards_is_not_drawn(tmp_path):
    writer = gpu_folder(ns=(512, 4096), sizes=(1 << 15, 1 << 23), modes=("replay",), dtypes=("f16",))
    writer.context["variants"].append("auto")
    for n in (512, 4096):
        writer.measure("auto", "f16", n, 1 << 23, "replay", settings='{"picked":"wgmma"}')
    device = load([writer.write(tmp_path / "run")])[0]
    drawn = [*figures.draw_group(device, "f16, mode replay", "f16", "replay"), figures.draw_headline(device)]
    for drawing in drawn:
        assert drawing is not None
        labels = {text.get_text() for legend in drawing.figure.legends for text in legend.get_texts()}
        titles = {axis.get_title(loc) for axis in drawing.figure.axes for loc in ("left", "center")}
        assert "auto" not in labels | titles and {"wgmma"} & (labels | titles)


def test_the_readmes_figure_has_four_lines(tmp_path):
    writer = gpu_folder(ns=(512, 4096), sizes=(1 << 15, 1 << 24, 1 << 28), modes=("replay",), dtypes=("f16",))
    for n in (512, 4096):
        for elements in (1 << 15, 1 << 24, 1 << 28):
            writer.measure("auto", "f16", n, elements, "replay", settings='{"picked":"wgmma"}')
    device = load([writer.write(tmp_path / "run")])[0]
    drawing = figures.draw_speed(device)
    assert drawing is not None
    assert [axis.get_title() for axis in drawing.figure.axes] == ["512 MiB, in DRAM", "32 MiB, in the L2 cache"]
    for axis in drawing.figure.axes:
        assert len({(line.get_color(), line.get_marker(), line.get_linestyle()) for line in axis.get_lines()}) == 4
    panel = figures.speed_lines(device, "auto", "f16", "replay", 128)[0]
    row = device.results.query("variant == 'auto' and n == 4096 and elements == 2**28").iloc[0]
    assert panel.own[1][-1] == pytest.approx(row["useful_bytes"] / row["time_us"] / 1e6)
    other = baselines.published().query("method == 'hadacore' and dtype == 'f16' and elements == 2**28 and mode == 'replay'")
    at = list(panel.published["hadacore"][0]).index(8192)
    time = other.query("n == 8192")["time_us"].item()
    assert panel.published["hadacore"][1][at] == pytest.approx(2 * 2 * 2**28 / time / 1e6)
    writer.context["device"]["name"] = "NVIDIA A100"
    assert figures.draw_speed(load([writer.write(tmp_path / "a100")])[0]) is None


def test_published_speedups_peak_as_documented():
    table = baselines.published_speedups("f16", "replay")
    assert table.query("n >= 128")["speedup"].max() == pytest.approx(3.96, abs=0.01)
    assert table.query("n >= 128")["speedup"].min() == pytest.approx(0.87, abs=0.01)
    assert baselines.published_speedups("f32", "replay").empty


def test_error_against_speed(device):
    table = figures.error_against_speed(device, "f16", "cold")
    assert set(table["elements"]) == {1 << 28}
    hadacore = table.query("variant == 'hadacore' and n == 32768").iloc[0]
    assert hadacore["over_ideal"] == pytest.approx(2, rel=0.03)
    assert table.query("variant == 'wgmma'")["over_ideal"].between(0.95, 1.05).all()


def test_accuracy_lines_take_the_main_input(device):
    table = figures.accuracy_lines(device.accuracy, "f16")
    assert set(table["input"]) == {"normal"}
    assert set(table["source"]) == {"measured", "emulated"}


def test_panels_are_few_and_hold_the_extremes(tmp_path):
    writer = gpu_folder(
        ns=[1 << k for k in range(1, 16)],
        sizes=[1 << k for k in range(15, 26)],
        modes=("replay",),
        dtypes=("f16",),
    )
    results = load([writer.write(tmp_path / "run")])[0].results
    assert figures.panel_ns(results)[0] == 2 and figures.panel_ns(results)[-1] == 32768
    assert len(figures.panel_ns(results)) == 6
    sizes = figures.panel_sizes(results)
    assert len(sizes) == 6 and sizes[-1] == 1 << 25


def test_every_figure_names_its_folder_and_has_units(device):
    groups = figures.draw_all(device)
    names = [f"{d}, mode {m}" for m in ("alternating", "replay", "cold") for d in ("f16", "bf16", "f32")]
    assert list(groups) == [*names, "accuracy"]
    stems = [d.stem for drawings in groups.values() for d in drawings]
    assert len(stems) == len(set(stems))
    for drawings in groups.values():
        for drawing in drawings:
            words = " ".join(t.get_text() for t in drawing.figure.texts)
            for part in (device.newest.name, device.name, device.newest.commit[:10]):
                assert part in words.replace("\n", " "), drawing.stem
            axes = drawing.figure.axes
            labels = {a.get_ylabel() for a in axes} | {a.get_xlabel() for a in axes}
            labels.add(drawing.figure.get_supylabel())
            assert len(labels - {""}) >= 2, drawing.stem


def test_tooltips_lie_on_their_cells(device):
    with matplotlib.rc_context(figures.STYLE):
        drawing = figures.draw_heat_maps(device, "f16", "replay", "in place")
    assert drawing is not None
    root = svg.to_svg(drawing, "p-")
    titles = [e.text for e in root.iter(SVG + "title")]
    cells = sum(len(m.cells) + len(m.gaps) for m in figures.heat_maps(device, "f16", "replay", "in place"))
    published = figures.published_maps(
        "f16",
        "replay",
        {k for m in figures.heat_maps(device, "f16", "replay", "in place") for k in (*m.cells, *m.gaps)},
    )
    assert len(titles) == cells + sum(len(m.cells) for m in published)
    assert "kokkos, n=16, 32 Ki elements: built without Kokkos (FWHT_KOKKOS=OFF)" in titles


def test_ids_are_unique_and_references_resolve(device):
    with matplotlib.rc_context(figures.STYLE):
        drawings = [figures.draw_heat_maps(device, "f16", m, "in place") for m in ("replay", "cold")]
    sheet = svg.Sheet()
    text = "".join(svg.as_fragment(svg.to_svg(d), sheet) for d in drawings if d) + sheet.css()
    import re

    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text)) <= set(ids)


def test_binary_and_byte_text():
    assert [tables.binary(v) for v in (512, 2048, 1 << 25, 1 << 30, 3 << 20, 1000)] == [
        "512", "2 Ki", "32 Mi", "1 Gi", "3 Mi", "1000",
    ]  # fmt: skip
    assert [tables.byte_text(v) for v in (12, 65536, 62914560)] == ["12 B", "64 KiB", "60 MiB"]


def test_speedups_of_two_sizes_are_drawn_over_n(tmp_path):
    writer = gpu_folder(ns=(16, 512, 4096), sizes=(1 << 15, 1 << 23), modes=("replay",), dtypes=("f16",))
    device = load([writer.write(tmp_path / "run")])[0]
    drawing = figures.draw_speedups(device, "f16", "replay")
    assert drawing is not None
    assert [a.get_title(loc="left") or a.get_title() for a in drawing.figure.axes] == [
        "32 Ki elements",
        "8 Mi elements",
    ]
    assert figures.draw_time_against_bytes(device, "f16", "replay") is None
