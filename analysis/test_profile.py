"""The profiler's table: parsing, attribution, what is missing, and what follows from the counters.

`testdata/` holds what ncu 2025.3.1 and fwht_profile wrote on an H200, cut down to a few launches.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
import re
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import charts, ncu, profile
from analysis.cli import main
from analysis.conftest import gpu_folder, make_context
from analysis.load import ResultsError, writing

DATA = Path(__file__).parent / "testdata"
METRICS = ncu.metrics_of(ncu.STUDIES)


def recorded() -> tuple[str, pd.DataFrame]:
    launches = pd.read_csv(DATA / "launches.csv", dtype=str, keep_default_na=False)
    return (DATA / "ncu.csv").read_text(), launches


@pytest.fixture
def profiled(tmp_path) -> profile.Profile:
    text, launches = recorded()
    table, missing = ncu.profile_table(text, launches, METRICS)
    launches.to_csv(tmp_path / "launches.csv", index=False)
    ncu.write_profile(tmp_path, table, missing, list(ncu.STUDIES), "Version 2025.3.1.0 (build 1)", 1.0)
    found = profile.load_profile(tmp_path, make_context(variants=["naive", "wgmma"]))
    assert found is not None
    return found


def test_rows_belong_to_the_launches_in_their_order():
    table, missing = ncu.profile_table(*recorded(), METRICS)
    assert missing == []
    assert len(table) == 14
    naive = table[table["variant"] == "naive"]
    assert len(naive) == 4 and set(naive["n"]) == {"16"}
    assert table["symbol"].str.contains("fp32_kernel").tolist().index(True) == 0
    assert table.loc[table["peak"] == "fp32", "gpu__time_duration.sum"].item() > 100_000
    assert "wgmma" in table["symbol"].iloc[-1] and table["variant"].iloc[-1] == "wgmma"


def test_thousands_and_gaps_in_numbers():
    assert ncu.number("1,234.5") == 1234.5
    assert all(np.isnan(ncu.number(text)) for text in ("", "n/a", "nan"))


def test_codes_of_a_length_are_problems_of_their_own(profiled):
    """Folders of before had neither operator nor encoding: what they hold are transforms."""
    assert list(profiled.transforms["variant"]) == list(profiled.problems["variant"])
    coded = profiled.kernels[profiled.kernels["variant"] == "wgmma"].assign(encoding="e4m3:row")
    both = dataclasses.replace(profiled, kernels=pd.concat([profiled.kernels, coded], ignore_index=True))
    wgmma = both.problems[both.problems["variant"] == "wgmma"]
    assert list(wgmma["encoding"]) == ["", "e4m3:row"] and wgmma["time_us"].nunique() == 1
    assert list(both.transforms["variant"]) == list(profiled.problems["variant"])


def test_another_number_of_kernels_is_refused():
    text, launches = recorded()
    launches.loc[0, "kernels"] = "2"
    with pytest.raises(ResultsError, match="ncu saw 14 kernels, fwht_profile launched 15"):
        ncu.profile_table(text, launches, METRICS)


def test_a_metric_that_is_not_there_is_named_not_blank():
    text, launches = recorded()
    other = text.replace("dram__bytes_read.sum", "dram__bytes_gone.sum")
    _, missing = ncu.profile_table(other, launches, METRICS)
    assert missing == ["dram__bytes_read.sum"]
    lines = text.splitlines()
    table = list(pd.read_csv(io.StringIO("\n".join(lines[2:])), dtype=str).columns)
    column = table.index("smsp__inst_executed.sum")
    cells = lines[-1].split('","')
    cells[column] = "n/a"
    _, missing = ncu.profile_table("\n".join([*lines[:-1], '","'.join(cells)]), launches, METRICS)
    assert missing == ["smsp__inst_executed.sum"]


def test_other_units_are_refused():
    text, launches = recorded()
    with pytest.raises(ResultsError, match="gpu__time_duration.sum in us, not in ns"):
        ncu.profile_table(text.replace('"ns"', '"us"'), launches, METRICS)


@pytest.mark.parametrize(
    ("output", "part"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "could not initialise"),
        ("all went well", ""),
    ],
)
def test_denied_counters_give_one_sentence(output, part):
    why = ncu.why_denied(output)
    assert part in why and "\n" not in why and bool(why) == bool(part)


def test_each_study_has_its_metrics_once():
    assert len(METRICS) == len(set(METRICS))
    for study in ncu.STUDIES:
        assert set(ncu.COMMON) < set(ncu.metrics_of([study])) <= set(METRICS)
    assert "dram__bytes_read.sum" not in ncu.metrics_of(["occupancy"])


def test_peaks_come_from_the_peak_kernels(profiled):
    peaks = profiled.peaks
    assert set(peaks) == {"issue", "fp32", "LSU", "tensor", "L2", "DRAM", "blocks"}
    assert 3.6 < peaks["fp32"] <= 4 and 3.6 < peaks["tensor"] <= 4 and 0.9 < peaks["LSU"] <= 1
    assert 4000 < peaks["DRAM"] < 4900 < peaks["L2"] < 8000


def test_products_and_additions_that_take_turns_or_overlap(profiled):
    assert math.isnan(profiled.mixed_stream[0])  # recorded before there was such a kernel

    def mixed(nanoseconds):
        rows = pd.DataFrame(
            {
                "peak": ["fp32", "mma_sync", "mma_sync_fp32"],
                "gpu__time_duration.sum": [100.0, 300.0, nanoseconds],
                "sm__inst_executed_pipe_fma.sum": [10.0, 0.0, 20.0],
            }
        )
        return dataclasses.replace(profiled, kernels=rows).mixed_stream

    assert mixed(500.0) == (1.0, 0.6)
    assert mixed(300.0) == (0.6, 0.6)


def test_counters_per_element(profiled):
    rows = profiled.problems.set_index("variant")
    naive = rows.loc["naive"]
    # Four passes over 2^15 elements of 2 bytes: 16 bytes an element where 4 would do.
    assert naive["kernels"] == 4 and naive["ideal_bytes"] == 4
    assert naive["l2_bytes"] == pytest.approx(16, rel=0.01)
    assert naive["useful_over_moved"] == pytest.approx(0.25, rel=0.01)
    # 16-byte vectors of consecutive lanes: 16 sectors of 32 bytes and more.
    assert 16 <= naive["sectors_per_load"] <= 32 and 16 <= naive["sectors_per_store"] <= 32
    assert naive["limiter"] == "grid" and np.isnan(naive["tail"])
    assert naive["bound_by"].startswith("latency: 8 blocks for 132 SMs")
    wgmma = rows.loc["wgmma"]
    assert wgmma["registers"] == 122 and wgmma["threads"] == 128 and wgmma["blocks"] == 4
    assert wgmma["l2_bytes"] == pytest.approx(4, rel=0.01)
    assert wgmma["time_us"] == pytest.approx(3.1, abs=1)
    assert wgmma["of_tensor"] > 0 == naive["of_tensor"] or wgmma["of_tensor"] > naive["of_tensor"]


def made() -> profile.Profile:
    """Peak kernels, and one problem of two kernels; counters of the shorter are half of those of the longer."""
    long = {"gpu__time_duration.sum": 3000.0, "sm__cycles_elapsed.max": 5000.0, "sm__cycles_active.avg": 4000.0, "launch__grid_size": 750.0,
            "launch__block_size": 128.0, "launch__occupancy_limit_registers": 4.0, "launch__occupancy_limit_shared_mem": 3.0,
            "launch__occupancy_limit_blocks": 32.0, "launch__occupancy_limit_warps": 8.0, "dram__bytes_read.sum": 4e5, "dram__bytes_write.sum": 2e5,
            "lts__t_sectors_srcunit_tex_op_read.sum": 2000.0, "lts__t_sectors_srcunit_tex_op_write.sum": 1000.0,
            "l1tex__m_xbar2l1tex_read_bytes.sum": 4e4, "l1tex__m_l1tex2xbar_write_bytes.sum": 2e4,
            "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 6400.0, "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 400.0,
            "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": 6400.0, "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": 800.0,
            "l1tex__data_pipe_lsu_wavefronts.sum": 1000.0, "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": 100.0,
            "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": 60.0, "sm__sass_data_bytes_mem_shared_op_ld.sum": 5120.0,
            "sm__sass_data_bytes_mem_shared_op_ldsm.sum": 2560.0, "sm__sass_data_bytes_mem_shared_op_st.sum": 1280.0,
            "sm__sass_data_bytes_mem_shared_op_stsm.sum": 1280.0, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": 20.0,
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": 12.0, "smsp__inst_executed.sum": 2000.0,
            "sm__inst_executed_pipe_fma.sum": 400.0, "sm__inst_executed_pipe_alu.sum": 600.0, "sm__pipe_tensor_cycles_active.sum": 800.0}  # fmt: skip
    short = {name: value / 2 for name, value in long.items()}
    problem = {"variant": "naive", "operator": "64", "encoding": "", "dtype": "f16", "n": 64, "rows": 100, "elements": 6400, "placement": "in",
               "row_stride": 64, "useful_bytes": 25600, "peak": "", "kernel": "k", "symbol": "s", "launch__sm_count": 100.0}  # fmt: skip
    peak = problem | {"variant": "", "sm__cycles_elapsed.max": 100.0, "gpu__time_duration.sum": 1000.0, "launch__grid_size": 500.0}
    rows = [problem | short, problem | long, *(peak | {"peak": name, "dram__bytes_read.sum": read, "dram__bytes_write.sum": 0.0,
            "l1tex__data_pipe_lsu_wavefronts.sum": lsu} for name, read, lsu in (("blocks", 0.0, 0.0), ("dram_read", 4e5, 0.0), ("dram_copy", 3e5, 0.0),
            ("shuffle", 0.0, 100.0), ("shared", 0.0, 200.0)))]  # fmt: skip
    return profile.Profile(Path("made"), make_context(), {}, pd.DataFrame(rows), pd.DataFrame())


def test_what_follows_from_counters():
    found = made()
    assert {name: found.peaks[name] for name in ("blocks", "DRAM", "LSU")} == {"blocks": 0.5, "DRAM": 400, "LSU": 0.02}
    (row,) = found.problems.to_dict("records")
    assert {name: row[name] for name in ("kernels", "blocks", "sms", "threads", "limiter", "bound_by")} == {
        "kernels": 2, "blocks": 750, "sms": 100, "threads": 128, "limiter": "shared memory", "bound_by": "latency: SMs busy 80 %, DRAM 50 %"}  # fmt: skip
    expected = {
        "time_us": 4.5, "clock_ghz": 5 / 3, "elements_per_clock": 6400 / 750000, "resident_blocks": 3, "waves": 2.5, "tail": 1 / 6, "sm_busy": 0.8,
        "blocks_per_us": 250, "block_starts": 0.5, "sectors_per_load": 16, "sectors_per_store": 8, "useful_over_moved": 25600 / 90000, "ideal_bytes": 4,
        "l2_bytes": 22.5, "dram_bytes": 9e5 / 6400, "lsu_words": 7.5, "shared_words": 1.2, "shared_over_ideal": 2, "bank_conflicts": 0.24,
        "issue_slots": 15, "fma_slots": 3, "alu_slots": 4.5, "tensor_cycles": 1200 / 6400, "of_DRAM": 0.5, "of_LSU": 0.1,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == pytest.approx(expected)


def entry(**changes) -> dict:
    row = {f"of_{r}": 0.1 for r in profile.RESOURCES} | {"block_starts": 0.1, "waves": 3.0, "sm_busy": 0.9}
    return row | {"blocks": 7, "sms": 132, "stall_barrier": 2.0, "stall_selected": 9.0} | changes


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"of_DRAM": 0.97}, "DRAM 97 %"),
        ({"block_starts": 1.01, "of_DRAM": 0.76}, "block starts 101 %"),
        ({"of_L2": 0.7, "sm_busy": 0.72}, "start and tail: SMs busy 72 %, then L2 97 %"),
        ({"of_LSU": 0.5}, "latency: SMs busy 90 %, LSU 50 %; waits: barrier"),
        ({"waves": 0.49}, "latency: 7 blocks for 132 SMs; waits: barrier"),
        ({"waves": 0.51}, "latency: SMs busy 90 %, issue 10 %; waits: barrier"),
        ({"sm_busy": math.nan}, "latency: issue 10 %; waits: barrier"),
    ],
)
def test_verdicts(changes, verdict):
    assert profile.bound_by(entry(**changes)) == verdict


def test_what_keeps_blocks_out():
    row = {"launch__grid_size": 4 * 132, "launch__sm_count": 132, "launch__occupancy_limit_registers": 4,
           "launch__occupancy_limit_shared_mem": 4, "launch__occupancy_limit_blocks": 32,
           "launch__occupancy_limit_warps": 8}  # fmt: skip
    assert profile._limiter(row) == "registers = shared memory"
    assert profile._limiter(row | {"launch__grid_size": 4 * 132 - 1}) == "grid"


def test_tables_have_a_row_a_problem(profiled):
    for study in ncu.STUDIES:
        columns = [*profile.PROBLEM_COLUMNS, *profile.STUDY_COLUMNS[study]]
        assert len(charts.table("profile", profiled.problems, columns).text().splitlines()) == 1 + 2
    assert list(profile.peaks_table(profiled)["resource"])[-1] == "blocks"


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("profile.json", '"seconds": 1.0', '"seconds": "long"', "seconds is 'long'"),
        ("profile.json", '"metrics"', '"metrix"', "metrics is missing"),
        ("profile.csv", "gpu__time_duration.sum,", "gpu__time_duration.sam,", "profile.csv lacks column gpu__time_duration.sum"),
        ("launches.csv", "kernels", "colonels", "the profile cannot be read"),
    ],
)
def test_a_damaged_profile_is_refused(profiled, name, old, new, words):
    file = profiled.path / name
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(ResultsError, match=words):
        profile.load_profile(profiled.path, profiled.context)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("gpu__time_duration.sum", "", "has no gpu__time_duration.sum in line 15"),
        ("launch__block_size", "0", "has 0 as launch__block_size in line 15"),
        ("elements", "", "has no elements in line 15"),
        ("dtype", "f17", "has f17 as dtype in line 15"),
    ],
)
def test_a_launch_without_what_verdicts_divide_by_is_refused(profiled, column, value, words):
    file = profiled.path / "profile.csv"
    rows = pd.read_csv(file, dtype=str, keep_default_na=False)
    rows.loc[rows.index[-1], column] = value
    rows.to_csv(file, index=False)
    with pytest.raises(ResultsError, match=re.escape(words)):
        profile.load_profile(profiled.path, profiled.context)


def test_a_study_that_was_not_run_leaves_no_numbers(tmp_path):
    text, launches = recorded()
    table, missing = ncu.profile_table(text, launches, ncu.metrics_of(["occupancy"]))
    assert missing == []
    launches.to_csv(tmp_path / "launches.csv", index=False)
    ncu.write_profile(tmp_path, table, missing, ["occupancy"], "Version 2025.3.1.0 (build 1)", 1.0)
    found = profile.load_profile(tmp_path, make_context(variants=["naive", "wgmma"]))
    assert found is not None
    assert found.problems["registers"].notna().all() and found.problems["of_DRAM"].isna().all()


def test_half_a_profile_is_refused(profiled):
    about = json.loads((profiled.path / "profile.json").read_text())
    (profiled.path / "profile.json").write_text(json.dumps(about | {"metrics": ["bogus__count.sum"]}))
    with pytest.raises(ResultsError, match="lacks column bogus__count.sum"):
        profile.load_profile(profiled.path, profiled.context)
    assert profile.load_profile(profiled.path / "nowhere", profiled.context) is None


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void fwht::wgmma::(anonymous namespace)::ring<(fwht::Dtype)0, 15>(fwht::RowBatch, int*)", "ring<(Dtype)0, 15>"),
        ("transform(float const*)", "transform"),
        (
            "void Kokkos::Impl::cuda_parallel_launch_local_memory<Kokkos::Impl::ParallelFor<fwht::kokkos::TileKernel"
            "<Kokkos::Cuda, (fwht::Dtype)0>, Kokkos::TeamPolicy<Kokkos::Cuda>, Kokkos::Cuda>, 512u, 1u>(int)",
            "TileKernel<Kokkos::Cuda, (Dtype)0>",
        ),
        ("void f<8, g<1> >(int)", "f<8, g<1> >"),
    ],
)
def test_short_names(name, short):
    assert ncu.short_name(name) == short


def test_what_cannot_be_attributed_is_kept(tmp_path):
    text, launches = recorded()
    launches.iloc[:-1].to_csv(tmp_path / "launches.csv", index=False)
    with pytest.raises(ResultsError, match="ncu saw 14 kernels"):
        ncu.attach(tmp_path, text, list(ncu.STUDIES), "", 1.0)
    assert (tmp_path / "ncu.csv").read_text() == text and not (tmp_path / "profile.csv").exists()


@pytest.mark.parametrize(("end", "why"), [("", "unexpected end of data"), ('"', "line 16 of ncu's table has 71 fields, its header 72")])
def test_a_table_that_was_cut_off_is_kept(tmp_path, end, why):
    text, launches = recorded()
    launches.to_csv(tmp_path / "launches.csv", index=False)
    left = text.rstrip().rsplit('","', 1)[0] + end
    with pytest.raises(ResultsError, match=why):
        ncu.attach(tmp_path, left, list(ncu.STUDIES), "", 1.0)
    assert (tmp_path / "ncu.csv").read_text() == left and not (tmp_path / "profile.csv").exists()


@pytest.mark.parametrize(("complete", "code", "accepted"), [(True, 0, True), (True, 11, True), (False, 11, False)])
def test_a_program_that_falls_at_its_end_was_measured(tmp_path, complete, code, accepted):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "context.json").write_text(json.dumps(make_context(complete=complete)))
    done = subprocess.CompletedProcess([], code, "==PROF== x\n9 kernels\nrun\n", "Segmentation fault\n")
    if accepted:
        assert ncu._made_folder(done, "", tmp_path) == tmp_path / "run"
    else:
        with pytest.raises(ResultsError, match="exit code 11: Segmentation fault"):
            ncu._made_folder(done, "", tmp_path)


def test_a_folder_that_is_being_written_is_left_alone(profiled):
    text, launches = recorded()
    table, missing = ncu.profile_table(text, launches, METRICS)
    with writing(profiled.path), pytest.raises(ResultsError, match="is being written by another program"):
        ncu.write_profile(profiled.path, table, missing, list(ncu.STUDIES), "Version 2025.3.1.0 (build 1)", 1.0)
    ncu.write_profile(profiled.path, table, missing, list(ncu.STUDIES), "Version 2025.3.1.0 (build 1)", 1.0)


def test_the_command_refuses_what_it_cannot_profile_or_print(tmp_path, capsys):
    folder = gpu_folder(ns=(16,), sizes=(1 << 15,), modes=("replay",), dtypes=("f16",)).write(tmp_path / "run")
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for arguments, words in (
        ([str(folder)], "run holds no profile"),
        ([], "profile needs a results folder, or --program"),
        (["--program", "/nonexistent", "--study", "static"], "/nonexistent is no program that can be run"),
        (["--program", str(plain)], "plain is no program that can be run"),
        ([str(folder), "--study", "mood"], "unknown study 'mood'; there are occupancy"),
    ):
        assert main(["profile", *arguments]) == 2
        error = capsys.readouterr().err
        assert words in error and error.count("\n") == 1


def test_the_command_prints_a_profile(profiled, capsys):
    (profiled.path / "context.json").write_text(json.dumps(profiled.context))
    assert main(["profile", str(profiled.path), "--study", "roofline"]) == 0
    out = capsys.readouterr().out
    assert "peaks of this device" in out and "bound by" in out and "wgmma" in out
