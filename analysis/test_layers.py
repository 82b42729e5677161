"""Sections of widths, fused output, linear layers and several GPUs: the numbers of every chart and table on tiny folders."""

import math

import pandas as pd
import pytest

from analysis import layers, pages, report, tables
from analysis.cli import main
from analysis.conftest import H100, FolderWriter, gpu_folder
from analysis.load import Device, load, load_folder, runs
from analysis.test_report import TINY


def device_of(writer: FolderWriter, path) -> Device:
    return load([writer.write(path / "20261120T100000Z_0123456789_h200")])[0]


def parts_of(device: Device) -> dict:
    return {part.id: part for section in report.sections_of([device]) for part in section.parts}


@pytest.fixture
def wide(tmp_path):
    """auto alone at widths, as the grid `widths` measures it, beside powers of two."""
    writer = gpu_folder(ns=(4096,), sizes=(1 << 26,), modes=("replay",), dtypes=("f16",))
    for rows in (1, 4681):
        writer.measure("auto", "f16", 14336, 14336 * rows, "replay", operator="28x512", time_us=2.0 * rows, limit_us=1.5 * rows, fraction_of_limit=0.75,
                       settings='{"picked":"kronecker"}', rel_l2="2.5e-4")  # fmt: skip
    writer.measure("auto", "f16", 4096, 4096, "replay", settings='{"picked":"wgmma"}')
    return device_of(writer, tmp_path)


def test_a_forwarding_variant_answers_for_what_it_picked(wide):
    """Where the picked variant was not measured itself; `which` and the page know the width too."""
    best = tables.best(wide.results).set_index(["n", "rows"])["variant"]
    assert best[(14336, 1)] == "kronecker" and best[(4096, 1)] == "wgmma"
    _, found = tables.which([wide], "f16", 14336, 1)
    assert found[["variant", "picked"]].to_numpy().tolist() == [["auto", "kronecker"]]
    shown = report.explored(wide)
    assert set(shown.loc[shown["n"] == 14336, "candidate"]) == {"auto"}
    measured = shown[(shown["n"] == 4096) & (shown["rows"] == 1 << 14) & (shown["status"] == "ok")]
    assert (measured["candidate"] == measured["variant"]).all()


def test_widths_stand_beside_powers_of_two(wide):
    parts = parts_of(wide)
    points = parts["widths"].frame.set_index("n")
    assert points.loc[14336, ["variant", "panel", "fraction_of_limit"]].to_list() == ["kronecker", "f16, DRAM, replay", 0.75]
    assert 4096 in points.index
    errors = parts["width-errors"].frame.set_index("n")["over_ideal"]
    assert errors[14336] == pytest.approx(2.5e-4 / tables.ideal_error("f16"))
    few = parts["decode"].frame.set_index("n")
    assert few.loc[14336, ["rows", "time_us", "limit_us"]].to_list() == ["1 row", 2.0, 1.5] and few["rows"].to_list() == ["1 row"] * 2


def test_widths_that_were_measured_out_of_place_alone(tmp_path):
    writer = gpu_folder(ns=(512,), sizes=(1 << 20,), modes=("cold",), dtypes=("f16",))
    writer.measure("kronecker", "f16", 14336, 14336 << 13, "cold", operator="28x512")
    for row in writer.tables["results.csv"]:
        row["placement"] = "out"
    device = device_of(writer, tmp_path)
    assert tables.by_width(device).empty and "widths" not in parts_of(device)


def test_who_supports_what(tmp_path):
    found = tables.support(device_of(gpu_folder(**TINY), tmp_path)).set_index(["variant", "dtype"])
    assert found.loc[("wgmma", "f16"), ["takes", "refuses"]].to_list() == ["4096", "16"]
    assert found.loc[("naive", "f16"), ["takes", "refuses", "output"]].to_list() == ["16, 4096", "", "rows"]


def test_row_lengths_of_a_run_in_which_nothing_was_refused(tmp_path):
    writer = FolderWriter()
    writer.measure("auto", "f16", 14336, 14336, "replay", operator="28x512", settings='{"picked":"kronecker"}')
    found = tables.support(device_of(writer, tmp_path), special=True)
    assert set(found[["variant", "takes"]].itertuples(index=False, name=None)) == {("kronecker", "14336"), ("auto", "14336")}


def test_who_writes_which_codes(tmp_path):
    """By format, behind what comes before; the page lists variants as the ladder does."""
    writer = gpu_folder(**TINY)
    for variant, encoding in (("wgmma", "rope64/page64x64>e4m3:row"), ("wgmma", "rope64/page64x64>mxfp4"), ("naive", "e4m3:row"), ("wgmma", "e4m3:row/f32")):
        writer.measure(variant, "f16", 4096, 1 << 20, "replay", encoding=encoding)
    writer.measure("rotate_then_quantize", "f16", 4096, 1 << 20, "replay", encoding="e4m3:row")
    device = device_of(writer, tmp_path)
    found = tables.support(device, special=True)
    wanted = [("naive", "e4m3"), ("wgmma", "rope64/page64x64>e4m3"), ("wgmma", "rope64/page64x64>mxfp4"), ("wgmma", "e4m3"), ("rotate_then_quantize", "e4m3")]
    assert list(found[["variant", "output"]].itertuples(index=False, name=None)) == wanted
    listed = [line.split(" | ")[0] for line in pages._special_support([device]).splitlines()[2:]]
    assert listed == ["| naive", "| wgmma", "| wgmma", "| wgmma", "| rotate_then_quantize"]


def test_which_gives_the_relative_error_of_codes(tmp_path, capsys):
    writer = gpu_folder(ns=(512,), sizes=(1 << 20,), modes=("replay",), dtypes=("f16",))
    writer.measure("mma_split", "f16", 512, 1 << 26, "replay", encoding="e4m3:row", rel_l2="0.0257")
    folder = writer.write(tmp_path / "run")
    assert main(["which", "--n", "512", "--rows", "131072", "--encoding", "e4m3:row", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "relative error" in out and "0.0257" in out and "one rounding" not in out


def test_which_says_by_what_auto_picked_where_it_was_no_table_of_the_device(tmp_path, capsys):
    for picked_by, said in (("shipped: run", ""), ("shipped for sm_90, measured on NVIDIA H200: run", "auto picked by shipped for sm_90"),
                            ("rule: no table for sm_80 or below", "auto picked by rule")):  # fmt: skip
        writer = gpu_folder(ns=(512,), sizes=(1 << 20,), modes=("replay",), dtypes=("f16",))
        writer.measure("auto", "f16", 512, 1 << 20, "replay", settings=f'{{"picked":"wgmma","picked_by":"{picked_by}"}}')
        folder = writer.write(tmp_path / f"run{len(said)}")
        assert main(["which", "--n", "512", "--rows", "2048", str(folder)]) == 0
        out = capsys.readouterr().out
        assert (said in out) if said else ("picked by" not in out)


def test_kernels_of_others_stand_beside_the_best_variant(tmp_path):
    writer = gpu_folder(ns=(512,), sizes=(1 << 20,), modes=("replay",), dtypes=("f16",))
    writer.measure("kronecker", "f16", 14336, 14336 * 64, "replay", operator="28x512", time_us=5, limit_us=4, fraction_of_limit=0.8)
    writer.measure("peer:dao", "f16", 14336, 14336 * 64, "replay", operator="28x512", time_us=12, limit_us=4, fraction_of_limit=1 / 3, rel_l2="3e-4")
    device = device_of(writer, tmp_path)
    (row,) = parts_of(device)["peers"].frame.itertuples()
    assert (row.peer, row.variant, row.n, row.time_us, row.peer_us, row.ratio, row.peer_rel_l2) == ("dao", "kronecker", 14336, 5, 12, 2.4, 3e-4)
    assert "| fast-hadamard-transform | f16, 28x512, 64 rows, replay | 12 | 5 | kronecker | 2.40 | 1.45 |" in pages.peers_table(device)
    assert pages.peers_table(device_of(gpu_folder(**TINY), tmp_path / "none")) == ""
    assert pages.has_few_peers(device) and not pages.has_many_peers(device)


def test_many_problems_beside_others_are_summed_up_by_length_and_mode(tmp_path):
    writer = gpu_folder(ns=(512,), sizes=(1 << 20,), modes=("replay",), dtypes=("f16",))
    for rows in range(1, 121):
        for mode in ("replay", "cold"):
            writer.measure("mma_split", "f16", 2048, 2048 * rows, mode, time_us=5, limit_us=4, fraction_of_limit=0.8)
            theirs = 4 if (rows, mode) == (77, "cold") else 10
            writer.measure("peer:hadacore", "f16", 2048, 2048 * rows, mode, time_us=theirs, limit_us=4, fraction_of_limit=4 / theirs, rel_l2="3e-4")
    device = device_of(writer, tmp_path)
    assert pages.has_many_peers(device) and not pages.has_few_peers(device)
    table = pages.many_peers_table(device)
    mean = math.exp((119 * math.log(2) + math.log(0.8)) / 120)
    assert f"| HadaCore | 2048 | cold | 120 | {mean:.2f} | 0.80: f16, 77 rows, in place | 2.00 |" in table
    assert "| HadaCore | 2048 | replay | 120 | 2.00 | 2.00: f16, 1 row, in place | 2.00 |" in table
    row = pages.overview([], [], [], [], [device])["rows"][device.name].loc["HadaCore"]
    assert (row["least"], row["greatest"], row["problems"], row["places"]) == (0.8, 2, 240, "in place")
    assert (row["smallest"], row["largest"]) == (2 * 2048, 2 * 2048 * 120)
    assert pages._places(pd.Series(["out of place", "in place"])) == "in and out of place"


def test_fused_output_stands_beside_the_pair(tmp_path):
    writer = gpu_folder(ns=(512,), sizes=(1 << 20,), modes=("replay",), dtypes=("f16",))
    times = {("mma_split", "e4m3:row"): 10, ("rotate_then_quantize", "e4m3:row"): 15, ("mma_split", "nvfp4:128x4"): 8, ("rotate_then_quantize", "int8:row"): 9}
    for (variant, encoding), time in times.items():
        writer.measure(variant, "f16", 512, 1 << 26, "replay", encoding=encoding, time_us=time, limit_us=7.5, fraction_of_limit=7.5 / time)
    writer.measure("rotate_then_quantize", "f16", 1, 1 << 26, "replay", encoding="e4m3:row,t512")  # a quantizer alone
    parts = parts_of(device_of(writer, tmp_path))
    table = parts["fused"].frame.set_index("encoding")
    assert list(table.index) == ["e4m3:row", "nvfp4:128x4"]
    assert table.loc["e4m3:row", ["pair_us", "gain", "format", "size"]].to_list() == [15, 1.5, "e4m3:row", "DRAM, replay"]
    assert table["gain"].isna()["nvfp4:128x4"] and table["format"]["nvfp4:128x4"] == "nvfp4:128x4"
    assert parts["fused-gain"].frame["gain"].to_list() == [1.5]
    assert parts["fused-share"].frame["fraction_of_limit"].to_list() == pytest.approx([0.75, 0.9375])
    for variant, encoding, time in (("mma_kronecker", "e4m3:row", 8), ("kronecker", "e4m3:row,col", 9), ("rotate_then_quantize", "e4m3:row,col", 27)):
        writer.measure(variant, "f16", 512, 1 << 26, "replay", encoding=encoding, time_us=time, limit_us=7.5, fraction_of_limit=7.5 / time)
    writer.measure("mma_split", "f16", 512, 1 << 26, "replay", encoding="e4m3:row,col", time_us=7.6, limit_us=7.5, fraction_of_limit=7.5 / 7.6)
    device = device_of(writer, tmp_path / "more")
    best = parts_of(device)["fused-gain"].frame
    assert best[["variant", "encoding"]].values.tolist() == [["mma_split", "e4m3:row,col"]] and best["gain"].to_list() == pytest.approx([27 / 7.6])
    page = pages.fused_table(device)
    assert "| e4m3:row, f16 | DRAM, replay | 94 %, × 1.88 |" in page and "| e4m3:row,col, f16 | DRAM, replay | 99 %, × 3.55 |" in page


def linear_writer(writer: FolderWriter | None = None) -> FolderWriter:
    writer = writer or gpu_folder(**TINY)
    for m, times in ((1, {"ours": 5, "w4a16_splitk": 15, "w4a16_data_parallel": 30, "dense_fp16": 12}), (64, {"ours": 16, "dense_fp16": 12})):
        for variant, time in (*times.items(), ("auto", 5)):
            writer.tables["linear.csv"].append(
                {"variant": variant, "memory": "device", "dtype": "f16", "m": m, "n": 4096, "k": 4096, "group": 128, "zero_points": "v1", "act_order": "false",
                 "rotation": 0, "programmatic": "false", "mode": "cold", "status": "ok", "time_us": time, "time_min_us": time, "time_max_us": time,
                 "limit_us": 4, "limit_kernel": "read", "fraction_of_limit": 4 / time, "bytes_read": 8724480, "bytes_written": 8192, "rel_l2": 3e-4,
                 "predicted_rel_l2": 3e-4, "one_rounding_rel_l2": 2e-4, "settings": "{}", "message": ""})  # fmt: skip
    return writer


def test_a_rotation_in_front_stands_beside_the_layer_alone(tmp_path):
    writer = linear_writer()
    turned = next(r for r in writer.tables["linear.csv"] if r["variant"] == "ours") | {"variant": "rotated", "rotation": 128}
    for variant, time in (("rotated", 6), ("quick", 4)):  # what is faster with a rotation is no layer without
        times = {"time_us": time, "time_min_us": time, "time_max_us": time, "fraction_of_limit": 4 / time}
        writer.tables["linear.csv"].append(turned | {"variant": variant} | times)
    device = device_of(writer, tmp_path)
    rows = parts_of(device)["linear-rotated"].frame
    assert rows[["variant", "alone_us", "added_us"]].to_numpy().tolist() == [["rotated", 5, 1], ["quick", 5, -1]]
    assert set(layers.linear(device)["layer"]) == {"n = k = 4096, rotation 0", "n = k = 4096, rotation 128"}
    header, _, row = pages.drawn("turned", layers.rotated(device)).splitlines()
    assert header == "| n = k, rotation, tokens | layer alone, µs | `rotated` | `quick` |" and row == "| 4096, 128, 1 | 5.00 | 1.00 | -1.00 |"


def test_linear_layers_stand_beside_the_others(tmp_path):
    device = device_of(linear_writer(), tmp_path)
    parts = parts_of(device)
    lines = parts["linear-share"].frame.set_index(["variant", "m"])
    assert lines.loc[("ours", 1), ["layer", "fraction_of_limit", "over_ideal"]].to_list() == ["n = k = 4096", 0.8, pytest.approx(1.5)]
    assert "auto" not in set(lines.index.get_level_values(0))  # its times are those of what it picks
    best = parts["linear-best"].frame.set_index("m")
    assert best["variant"].to_list() == ["ours", "dense_fp16"]
    assert best.loc[1, ["over_dense_fp16", "over_w4a16_splitk", "over_w4a16_data_parallel"]].to_list() == [2.4, 3, 6]
    claim = parts["linear-paper"].frame.set_index("m")
    assert list(claim.index) == ["1 to 16", "1"] and claim["geometric_mean"]["1 to 16"] == pytest.approx(2)
    assert len(parts["linear-all"].frame) == len(device.tables["linear.csv"]) == 8


LAYER = {"memory": "device", "dtype": "f16", "group": 128, "zero_points": "v1", "act_order": "false", "rotation": 0, "programmatic": "false", "status": "ok",
         "limit_kernel": "read", "bytes_read": 8724480, "bytes_written": 8192, "rel_l2": 3e-4, "predicted_rel_l2": 3e-4, "one_rounding_rel_l2": 2e-4,
         "settings": "{}", "message": ""}  # fmt: skip


def add_layers(writer: FolderWriter, mode: str, n: int, m: int, **times: float) -> None:
    for variant, time in times.items():
        row = LAYER | {"variant": variant, "m": m, "n": n, "k": n, "mode": mode, "time_us": time, "time_min_us": time, "time_max_us": time, "limit_us": 4}
        writer.tables["linear.csv"].append(row | {"fraction_of_limit": 4 / time})


def test_the_papers_claim_by_mode_and_size(tmp_path):
    """The page and the report show the ratio by n for each mode, and our kernel beside the others."""
    writer = gpu_folder(**TINY)
    for mode, factor in (("cold", 1.0), ("replay", 2.0)):
        add_layers(writer, mode, 512, 16, w4a16_data_parallel=12 * factor, w4a16_splitk=4)
        add_layers(writer, mode, 4096, 16, w4a16_data_parallel=30 * factor, w4a16_splitk=15, w4a16_pipelined=10, dense_fp16=8 if mode == "cold" else 1)
        add_layers(writer, mode, 4096, 1, w4a16_pipelined=5, dense_fp16=20)
        add_layers(writer, mode, 4096, 64, w4a16_data_parallel=999, w4a16_splitk=1, w4a16_pipelined=50, dense_fp16=10)
    device = device_of(writer, tmp_path)
    parts = parts_of(device)
    claim = parts["linear-paper"].frame.set_index(["mode", "m", "n"])["geometric_mean"]
    assert claim[("cold", "1 to 16", "512")] == pytest.approx(3) and claim[("cold", "1 to 16", "4096")] == pytest.approx(2)
    assert claim[("replay", "1 to 16", "512 to 4096")] == pytest.approx(24**0.5) and claim[("replay", "16", "512 to 4096")] == pytest.approx(24**0.5)
    others = parts["linear-others"].frame.set_index("other")  # 32 tokens at most, weights that are cold
    assert others.loc["dense_fp16", ["layers", "least", "greatest", "least_at"]].to_list() == [2, 0.8, 4, "f16, m = 16, n = 4096"]
    assert layers.over_dense(device).set_index(["m", "n"])["ratio"].to_dict() == {(1, 4096): 4, (16, 4096): 0.8, (64, 4096): 10}
    page = pages.render("linear.md.j2", **pages.layer_values([device]))
    assert "| cold, 512 | 3.00 (3.00 to 3.00) |" in page and "| replay, 512 to 4096 | 4.90 (4.00 to 6.00) |" in page
    assert "| `dense_fp16` | 2 | 1.79 | 0.80 | 4.00 | f16, m = 16, n = 4096 |" in page
    assert "| 4096, 16 |" in page and "| 512, 16 |" not in page  # the headline has layers from 4096 on
    assert page.count("| 4096, 64 | 4.00 |") == 1  # once, in mode cold


def test_layers_of_other_columns_are_not_compared(tmp_path):
    """cuBLAS knows no act-order and no programmatic launch; 32 tokens are the last of a few."""
    writer = FolderWriter()
    add_layers(writer, "cold", 4096, 32, w4a16_pipelined=10, dense_fp16=20)
    add_layers(writer, "cold", 4096, 33, w4a16_pipelined=10, dense_fp16=90)
    add_layers(writer, "cold", 4096, 32, w4a16_pipelined=5)
    writer.tables["linear.csv"][-1]["act_order"] = "true"
    add_layers(writer, "cold", 4096, 33, w4a16_pipelined=5)
    writer.tables["linear.csv"][-1]["programmatic"] = "true"
    device = device_of(writer, tmp_path)
    assert layers.over_dense(device).set_index("m")["ratio"].to_dict() == {32: 2, 33: 9}
    (other,) = layers.over_others(device).itertuples()
    assert (other.layers, other.greatest) == (1, 2)


def parallel_writer(writer: FolderWriter | None = None) -> FolderWriter:
    writer = writer or gpu_folder(**TINY)
    for m in (1, 16):
        for algorithm, rotation, time in (("naive", "none", 60), ("tp_aware", "none", 48), ("tp_aware", "blocks", 50)):
            key = {"shape": "llama-70b", "m": m, "ranks": 2, "algorithm": algorithm, "rotation": rotation}
            writer.tables["tensor_parallel.csv"].append(
                key | {"variant": "w4", "status": "ok", "time_us": time, "min_us": time, "max_us": time, "pieces_us": time - 2, "model_us": time / 1.25,
                       "published_speedup": 1.81, "layers": 20, "replays": 25, "rel_l2": 0, "rel_l2_bound": 0, "reason": ""})  # fmt: skip
            for piece in ("gemm_up", "all_reduce", "between"):
                writer.tables["tensor_parallel_pieces.csv"].append(
                    key | {"variant": "w4", "piece": piece, "time_us": time / 2, "min_us": 1, "max_us": 99, "layers": 20, "replays": 25}
                )
            writer.tables["tensor_parallel_model.csv"].append(key | {"source": "assumed", "gemms_us": 1, "between_us": 2, "reduce_us": 3, "model_us": 6})
    return writer


def every_section(writer: FolderWriter) -> FolderWriter:
    """Rows of every family, so that the page has all of its sections."""
    linear_writer(parallel_writer(writer))
    for rows in (1, 16, 4681):
        writer.measure("kronecker", "f16", 14336, 14336 * rows, "replay", operator="28x512")
    writer.measure("kronecker", "f16", 14336, 14336 * 16, "replay", operator="d28x512")
    for variant, time in (("mma_split", 10), ("rotate_then_quantize", 15)):
        for n in (128, 512):
            writer.measure(variant, "f16", n, 1 << 26, "replay", encoding="e4m3:row", time_us=time, limit_us=7.5, fraction_of_limit=7.5 / time)
    return writer


def test_many_tokens_stand_beside_the_dense_product(tmp_path):
    writer = FolderWriter()
    for mode, ours in (("cold", 10), ("replay", 1)):
        add_layers(writer, mode, 4096, 512, w4a16_prefill=ours, dense_fp16=8, w4a16_pipelined=99)
    add_layers(writer, "cold", 8192, 512, w4a16_prefill=10)
    device = device_of(writer, tmp_path)
    assert layers.prefill(device)[["n", "m", "time_us", "share"]].to_numpy().tolist() == [[4096, 512, 10, 0.8]]
    assert "| 512 | 10.0 (0.80) |" in pages.drawn("prefill", layers.prefill(device))
    assert layers.prefill(device_of(linear_writer(), tmp_path / "other")).empty
    assert layers.prefill_of_few(device).empty
    add_layers(writer, "cold", 4096, 32, w4a16_prefill=4, dense_fp16=8)
    assert layers.prefill_of_few(device_of(writer, tmp_path / "few"))[["m", "share"]].to_numpy().tolist() == [[32, 2.0]]


def test_the_first_screen_says_which_layer_to_take(tmp_path):
    """The faster of what w4a16 is made of, of each number of tokens, beside cuBLAS of its own run; the newest run counts."""
    old, new = FolderWriter(), FolderWriter(utc_start="2026-11-21T10:00:00Z")
    add_layers(old, "cold", 4096, 8, w4a16_pipelined=5, dense_fp16=20, w4a16_splitk=1)
    add_layers(old, "cold", 4096, 64, w4a16_pipelined=16, dense_fp16=12)
    add_layers(old, "replay", 4096, 8, w4a16_pipelined=1, dense_fp16=20)
    add_layers(old, "cold", 512, 8, w4a16_pipelined=1, dense_fp16=20)
    add_layers(new, "cold", 4096, 64, w4a16_prefill=12.5, dense_fp16=12)
    add_layers(new, "cold", 8192, 64, w4a16_prefill=20)  # nothing to compare with
    add_layers(old, "cold", 4096, 16, w4a16_pipelined=5, dense_fp16=20)
    add_layers(new, "cold", 4096, 16, w4a16_pipelined=6, dense_fp16=18)
    add_layers(old, "cold", 4096, 8, dense_fp16=25)  # the faster product counts
    old.tables["linear.csv"][-1]["zero_points"] = "v2"
    devices = [load([writer.write(tmp_path / f"{name}_h200")])[0] for writer, name in ((new, "20261121T100000Z_1"), (old, "20261120T100000Z_0"))]
    (found,) = layers.by_tokens(devices)
    assert found[["m", "n", "time_us", "share", "names"]].to_numpy().tolist() == [
        [8, 4096, 5, 4, "`w4a16_pipelined`"], [16, 4096, 6, 3, "`w4a16_pipelined`"], [64, 4096, 12.5, 0.96, "`w4a16_prefill`"],
    ]  # fmt: skip
    page = pages.render("linear_which.md.j2", **pages.layer_values(devices))
    assert "| tokens | n = k = 4096 | which |" in page and "| 64 | 12.5 (0.96) | `w4a16_prefill` |" in page
    assert page.count("_h200`") == 2 and "No complete results folder" in pages.render("linear_which.md.j2", **pages.layer_values([]))


def test_the_limit_of_a_layer_is_the_least_of_its_variants(tmp_path):
    writer = FolderWriter()
    add_layers(writer, "cold", 4096, 8, w4a16_pipelined=5, dense_fp16=20)
    writer.tables["linear.csv"][0]["limit_us"] = 3
    found = layers.headline(device_of(writer, tmp_path))
    assert found[["limit_us", "least_limit"]].to_numpy().tolist() == [[3, 3], [4, 3]] and found["square"].all()


def test_layers_over_several_gpus(tmp_path):
    parts = parts_of(device_of(parallel_writer(), tmp_path))
    gains = parts["tp-speedup"].frame.set_index("m")
    assert gains.loc[1, ["place", "speedup", "model_speedup", "published_speedup"]].to_list() == ["llama-70b, 2 GPUs", 1.25, pytest.approx(1.25), 1.81]
    assert parts["tp-rotation"].frame["added_us"].to_list() == [2, 2]
    assert set(parts["tp-pieces"].frame["what"]) == {"naive", "tp_aware", "tp_aware, blocks"} and len(parts["tp-pieces"].frame) == 6
    assert set(parts["tp-model"].frame["ratio"]) == {1.25}
    bounds = parts["tp-bounds"].frame.set_index("rotation")
    assert bounds.loc["none", ["layers", "within"]].to_list() == [4, 4] and bounds["greatest_fitted"].isna().all()
    assert bounds["greatest"]["none"] == pytest.approx(48 / 46)
    assert len(parts["tp-pieces-table"].frame) == 18 and len(parts["tp-model-table"].frame) == 6
    assert parts["tp-speedup-table"].frame["naive_us"].to_list() == [60, 60]


def over_gpus(ranks: tuple[int, ...], times: dict[tuple[str, str], float], predicted: float, **context) -> FolderWriter:
    """One layer timed over each of `ranks`, `times` by algorithm and rotation; for twice the most of them the model says `predicted` of every point."""
    writer = FolderWriter(**context)
    for over in (*ranks, 2 * max(ranks)):
        for (algorithm, rotation), time in times.items():
            key = {"shape": "llama-70b", "m": 1, "ranks": over, "algorithm": algorithm, "rotation": rotation}
            told = {"source": "fitted" if over in ranks else "extrapolated", "gemms_us": 1, "between_us": 2, "reduce_us": 3}
            writer.tables["tensor_parallel_model.csv"].append(key | told | {"model_us": time if over in ranks else predicted})
            if over in ranks:
                writer.tables["tensor_parallel.csv"].append(
                    key | {"variant": "w4", "status": "ok", "time_us": time, "min_us": time, "max_us": time, "pieces_us": time, "model_us": time,
                           "published_speedup": 1.81, "layers": 20, "replays": 25, "rel_l2": 0, "rel_l2_bound": 0, "reason": ""})  # fmt: skip
    return writer


TIMES = {("naive", "none"): 60.0, ("tp_aware", "none"): 40.0, ("tp_aware", "gather"): 50.0}


def runs_of(tmp_path, *writers: FolderWriter) -> list[Device]:
    return runs([load_folder(writer.write(tmp_path / f"folder{i}")) for i, writer in enumerate(writers)])


def prediction(device: Device, devices: list[Device]) -> layers.Prediction:
    found = layers.prediction(device, devices)
    assert found is not None
    return found


def test_what_a_run_says_of_more_gpus_is_a_prediction_until_they_are_measured(tmp_path):
    (device,) = runs_of(tmp_path, over_gpus((1, 2), TIMES, 44.0))
    found = prediction(device, [device])
    assert (found.ranks, found.folder.name, len(found.measured)) == (4, "folder0", 0)
    text = pages.render("several_gpus.md.j2", **pages.layer_values([device]))
    assert "Prediction for 4 NVIDIA H200, none of it measured" in text and "| llama-70b, 1 | 44.0 | 44.0 | 1.00 |" in text and "another GPU" not in text


def test_two_hosts_are_marked_as_assumed(tmp_path):
    (device,) = runs_of(tmp_path, over_gpus((8,), TIMES, 44.0))
    text = pages.render("several_gpus.md.j2", **pages.layer_values([device]))
    assert "For two hosts of 8, over a network that is assumed and not measured, the model says llama-70b, m = 1: 1.00. The sum" in text
    assert "For T = 8" not in text, "eight GPUs were measured"


def test_a_measured_layer_stands_beside_what_a_run_over_fewer_said(tmp_path):
    """Of the same GPU, and before: not what the later run itself was fitted to, nor a still later one."""
    before = {"utc_start": "2026-11-20T09:00:00Z", "utc_end": "2026-11-20T09:01:00Z"}
    after = {"utc_start": "2026-11-21T09:00:00Z", "utc_end": "2026-11-21T09:01:00Z"}
    timed = TIMES | {("tp_aware", "gather"): 62.0}
    writers = [over_gpus((1, 2), TIMES, 50.0, **before), over_gpus((1, 2, 4), timed, 1.0), over_gpus((1, 2), TIMES, 7.0, **after)]
    writers += [over_gpus((1, 2), TIMES, 9.0, device=H100, utc_start="2026-11-20T09:30:00Z")]
    writers += [over_gpus((1, 2, 4), timed, 1.0, utc_start="2026-11-22T09:00:00Z", utc_end="2026-11-22T09:01:00Z")]  # measured again
    devices = runs_of(tmp_path, *writers)
    device = next(d for d in devices if d.name == "NVIDIA H200")
    found = prediction(device, devices)
    assert (found.ranks, found.folder.name) == (4, "folder0") and found.rows["predicted_us"].to_list() == [50.0] * 3
    assert (len(found.measured), found.within, found.worst["rotation"], found.worst["ratio"]) == (3, 0, "gather", 1.24)
    text = pages.render("several_gpus.md.j2", **pages.layer_values([device]))
    assert "said of 4 before they were measured (`experiments/results/folder0`): 0 of 3 layers are within 15 % of it." in text
    assert "Furthest is llama-70b, m = 1, tp_aware, gather, 1.24 times its prediction." in text
    assert "| llama-70b, 1 | 50.0 | 60.0 | 50.0 | 40.0 | 1.00 | 1.50 |" in text
    found.rows["ratio"] = [1.14, 0.86, 1.16]
    assert found.within == 2


def test_another_gpus_prediction_serves_where_there_is_no_own(tmp_path):
    before = {"utc_start": "2026-11-20T09:00:00Z", "utc_end": "2026-11-20T09:01:00Z"}
    devices = runs_of(tmp_path, over_gpus((1, 2), TIMES, 60.0, **before), over_gpus((1, 2, 4), TIMES, 1.0, device=H100))
    device = next(d for d in devices if d.name != "NVIDIA H200")
    found = prediction(device, devices)
    assert found.folder.device == "NVIDIA H200" and found.within == 1
    assert "(`experiments/results/folder0`, another GPU's run): 1 of 3 layers" in pages.render("several_gpus.md.j2", **pages.layer_values(devices))
    assert "For T = 8, extrapolated from fewer ranks, the model says llama-70b, m = 1: 1.00. The sum" in pages.render(
        "several_gpus.md.j2", **pages.layer_values([device])
    )
    alone = prediction(device, [device])
    assert alone.ranks == 8 and alone.folder.name == "folder1" and alone.measured.empty


def test_a_rotation_stands_beside_its_pieces(tmp_path):
    """And a layer's exchange counts once: the all_to_all beside an all_gather is a comparison."""
    writer = parallel_writer()
    rotated = next(r for r in writer.tables["tensor_parallel.csv"] if r["rotation"] == "blocks") | {"rotation": "all_to_all", "time_us": 60}
    writer.tables["tensor_parallel.csv"].append(rotated | {"min_us": 60, "max_us": 60})
    piece = writer.tables["tensor_parallel_pieces.csv"][0] | {"algorithm": "tp_aware", "rotation": "all_to_all", "min_us": 1, "max_us": 9}
    for name, time in (("transform", 4), ("all_to_all", 6), ("all_gather", 7)):
        writer.tables["tensor_parallel_pieces.csv"].append(piece | {"piece": name, "time_us": time})
    device = device_of(writer, tmp_path)
    device.tables["tensor_parallel_model.csv"].loc[0, ["source", "model_us"]] = ["fitted", 48.0]
    found = layers.rotations(device).set_index("rotation")
    assert found.loc["all_to_all", ["added_us", "over_alone"]].to_list() == [12, 1.2] and found["over_alone"].isna()["blocks"].all()
    assert found["over_pieces"]["all_to_all"] == 12 / 11  # transform and all_gather; an all_to_all of its own would count
    bounds = layers.against_pieces(device).set_index("rotation")
    assert bounds.loc["none", ["least_fitted", "greatest_fitted"]].to_list() == [1.25, 1.25] and bounds["least_fitted"].isna()["blocks"]
    device.tables["tensor_parallel.csv"].loc[0, "pieces_us"] = 600.0  # far quicker than its pieces is as far from them
    assert layers.against_pieces(device).set_index("rotation").loc["none", ["layers", "within"]].to_list() == [4, 3]
    own = layers.pieces(device)
    assert set(own[own["rotation"] == "all_to_all"]["piece"]) == {"transform", "all_gather"}
    measured = device.tables["tensor_parallel_pieces.csv"]
    device.tables["tensor_parallel_pieces.csv"] = measured[measured["piece"] != "all_to_all"]
    assert layers.rotations(device)["over_alone"].isna().all(), "one of the two pieces says nothing of both"


def test_a_fused_layer_stands_beside_the_aware_one_too(tmp_path):
    (device,) = runs_of(tmp_path, over_gpus((2,), TIMES | {("naive_fused", "none"): 80.0}, 44.0))
    assert layers.speedups(device)[["speedup", "fused_speedup"]].to_numpy().tolist() == [[1.5, 2.0]]


def test_layers_that_were_only_checked_have_no_times_to_compare(tmp_path):
    """As fwht_tensor_parallel --host writes them: neither layers nor pieces were timed."""
    writer, untimed = parallel_writer(), dict.fromkeys(("time_us", "min_us", "max_us", "pieces_us"), "")
    rows = writer.tables["tensor_parallel.csv"]
    rows.extend([row | untimed | {"ranks": 4} for row in rows])
    device = device_of(writer, tmp_path / "both")
    assert set(layers.speedups(device)["ranks"]) == {2} and layers.prediction(device, [device]) is None
    rows[:] = [row | untimed for row in rows]
    writer.tables["tensor_parallel_pieces.csv"].clear()
    device = device_of(writer, tmp_path / "none")
    assert layers.speedups(device).empty and layers.algorithms(device).empty and not {"tp-speedup", "tp-time", "tp-model"} & set(parts_of(device))


def test_a_run_without_them_has_none_of_these_sections(tmp_path):
    device = device_of(gpu_folder(**TINY), tmp_path)
    queries = (layers.linear, layers.linear_best, layers.rotated, layers.split_over_data_parallel, layers.speedups, layers.rotations, layers.pieces,
               layers.against_pieces, tables.fused, tables.beside_peers)  # fmt: skip
    for query in queries:
        assert len(query(device)) == 0, query.__name__
    assert layers.prediction(device, [device]) is None


def test_the_pages_of_layers_are_written_from_the_same_queries(tmp_path):
    text = pages.drawn("linear", layers.headline(device_of(linear_writer(), tmp_path / "linear")))
    assert "| n = k, m | limit | `ours` | `w4a16_splitk` | `w4a16_data_parallel` | `dense_fp16` |" in text
    assert "| 4096, 1 | 4.00 | 5.0 (80 %) | 15.0 (27 %) | 30.0 (13 %) | 12.0 (33 %) |" in text
    assert "| 4096, 64 | 4.00 | 16.0 (25 %) | – | – | 12.0 (33 %) |" in text
    device = device_of(parallel_writer(), tmp_path / "parallel")
    assert "| llama-70b, 1 | 60.0 | 48.0 | 1.25 | 1.81 |" in pages.drawn("speedup", layers.algorithms(device))
    assert "| llama-70b, 16 | 2.0 |" in pages.drawn("rotation", layers.rotations_added(device))
    text = pages.render("several_gpus.md.j2", **pages.layer_values([device]))
    assert "2 NVIDIA H200 linked by NVLink" in text and "Layers take 1.25 to 1.25 times the lower bound" in text and "20261120T100000Z_0123456789_h200" in text
    for template, words in (("linear", "No complete results folder with `linear.csv`"), ("several_gpus", "No results folder with `tensor_parallel.csv`")):
        assert words in pages.render(f"{template}.md.j2", **pages.layer_values([]))


def readme(wide, fused, linear, parallel):
    values = pages.results_values([device for device in (wide, fused, linear, parallel) if device])
    parts = {name: [device] if device else [] for name, device in (("wide", wide), ("fused", fused), ("linear", linear), ("parallel", parallel))}
    return pages.render("README.md.j2", up="", **values | parts | {"evaluations": [], "long_runs": []})


def test_the_readme_has_a_line_for_each_part_that_was_measured(wide, tmp_path):
    linear, parallel = device_of(linear_writer(), tmp_path / "linear"), device_of(parallel_writer(), tmp_path / "parallel")
    text = readme(wide, None, linear, parallel)
    assert "in f16, DRAM: 75 % of a copy, the median of 1 lengths (75 % at 14336 to 75 %); error at most 1.21 times" in text
    assert "time of cuBLAS in fp16 over ours, 1 to 32 tokens, n = k from 4096 to 4096: 2.40 to 2.40" in text  # 64 tokens are another matter
    assert "MLP over 2 GPUs" in text and "1 to 16 tokens: 1.25 to 1.25" in text and "rotate and quantize" not in text
    assert "| more |" not in readme(None, None, None, None)


def test_tables_of_widths_and_fused_output(wide, tmp_path):
    text = pages.drawn("widths", tables.widths(wide, "f16"), dtype="f16")
    assert "| f16: n | operator | DRAM, replay | 1 row, µs | error | best |" in text and "| 14336 | 28x512 | 75 % | 2.00 | 1.21 | kronecker |" in text
    assert "| DRAM, replay, f16 | 1 | 75 % | 75 % | 75 % |" in pages.width_ranges(wide)
    writer = gpu_folder(ns=(512,), sizes=(1 << 20,), modes=("replay",), dtypes=("f16",))
    for variant, time in (("mma_split", 10), ("rotate_then_quantize", 15)):
        writer.measure(variant, "f16", 512, 1 << 26, "replay", encoding="e4m3:row", time_us=time, limit_us=7.5, fraction_of_limit=7.5 / time)
    fused = device_of(writer, tmp_path / "fused")
    assert "| e4m3:row, f16 | DRAM, replay | 75 %, × 1.50 |" in pages.fused_table(fused)
    assert pages.fused_table(fused, widths=True) == ""
    for variant, time in (("kronecker", 12), ("rotate_then_quantize", 18)):
        row = {"operator": "28x128", "encoding": "int8:row", "time_us": time, "limit_us": 6, "fraction_of_limit": 6 / time}
        writer.measure(variant, "f16", 3584, 3584 * 18725, "replay", **row)
    wider = device_of(writer, tmp_path / "wider")
    assert "| int8:row, f16 | DRAM, replay | 50 %, × 1.50 |" in pages.fused_table(wider, widths=True) and "int8:row" not in pages.fused_table(wider)
    assert "over that of one kernel, median (least to greatest), e4m3:row 1.50 (1.50 to 1.50)" in readme(None, fused, None, None)
    lines = pages._special_support([wide, fused]).splitlines()[2:]
    assert sorted(lines) == [
        "| auto | f16 | rows | in place | 14336 |", "| kronecker | f16 | rows | in place | 14336 |", "| mma_split | f16 | e4m3 | in place | 512 |",
        "| rotate_then_quantize | f16 | e4m3 | in place | 512 |",
    ]  # fmt: skip
