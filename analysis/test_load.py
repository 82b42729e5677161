"""Loading: what is read, and what is refused with one sentence."""

import json
import os
import subprocess

import pandas as pd
import pytest

from analysis import legacy, schema
from analysis.__main__ import main
from analysis.conftest import gpu_folder, host_folder
from analysis.load import CONTEXT_KEYS, DTYPES, MODES, ResultsError, load, load_folder


def small(**context):
    return gpu_folder(ns=(16, 4096), sizes=(1 << 15,), modes=("replay",), dtypes=("f16",), **context)


def edit_context(folder, **changes):
    file = folder / "context.json"
    context = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({k: v for k, v in context.items() if v is not ...}))


def edit_table(folder, name, change):
    table = pd.read_csv(folder / name, dtype=str, keep_default_na=False)
    change(table).to_csv(folder / name, index=False)


def test_reads_every_table(gpu):
    (device,) = load([gpu])
    assert device.name == "NVIDIA H200"
    assert device.variants == ["cpu", "naive", "warp_shuffle", "hadacore", "wgmma", "kokkos"]
    assert len(device.results) == len((gpu / "results.csv").read_text().splitlines()) - 1
    assert set(device.results["layout"]) == {"in place"}
    assert device.results["elements"].dtype == "int64"
    assert (device.unsupported["reason"] != "").all()
    assert len(device.limits) and len(device.accuracy)
    assert "20261120T100000Z_0123456789_h200" in device.label and "0123456789" in device.label


def test_host_only_folder_is_named_after_the_cpu(host):
    (device,) = load([host])
    assert device.name == "Example CPU 9000 (host only)"
    assert device.l2_bytes == 0
    assert set(device.results["mode"]) == {"host"}


def test_a_sweep_or_an_accuracy_run_alone_is_enough(tmp_path):
    sweep = small().write(tmp_path / "a")
    (sweep / "accuracy.csv").unlink()
    accuracy = small(utc_start="2026-11-20T10:05:00Z").write(tmp_path / "b")
    for name in ("results.csv", "limits.csv", "unsupported.csv"):
        (accuracy / name).unlink()
    (device,) = load([sweep, accuracy])
    assert len(device.results) and len(device.accuracy)
    assert device.newest.name == "b"


@pytest.mark.parametrize("key", CONTEXT_KEYS)
def test_refuses_a_missing_key(tmp_path, key):
    folder = small().write(tmp_path / "run")
    edit_context(folder, **{key: ...})
    with pytest.raises(ResultsError, match=key):
        load([folder])


TABLES = ["results.csv", "limits.csv", "unsupported.csv", "accuracy.csv", "probes.csv", "overflow.csv", "quantization.csv",
          "attention.csv"]  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_columns_are_those_that_the_schema_declares(tmp_path, name):
    first, *_, last = schema.current()[name].names
    for column in (first, last):
        folder = small().write(tmp_path / f"without_{column}")
        edit_table(folder, name, lambda t, column=column: t.drop(columns=column))
        with pytest.raises(ResultsError, match=f"{name} lacks column {column}"):
            load([folder])
    folder = small().write(tmp_path / "more")
    edit_table(folder, name, lambda t: t.assign(mood="fine"))
    with pytest.raises(ResultsError, match=f"{name} has column mood, which schema.json does not declare"):
        load([folder])


def edit_schema(folder, change):
    file = folder / "schema.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def declared(content, name, column):
    return next(c for c in content["tables"][name]["columns"] if c["name"] == column)


def test_a_folder_is_read_by_its_own_schema(tmp_path):
    """A column that only the folder knows is read, and a value that only the folder's schema allows."""
    folder = small().write(tmp_path / "run")
    new = {"name": "mood", "type": "enum", "values": ["fine"], "unit": "", "required": True, "key": False, "meaning": "x"}
    edit_schema(folder, lambda s: s["tables"]["results.csv"]["columns"].append(new))
    with pytest.raises(ResultsError, match="results.csv lacks column mood"):
        load([folder])
    edit_table(folder, "results.csv", lambda t: t.assign(mood="fine"))
    assert set(load([folder])[0].results["mood"]) == {"fine"}
    edit_table(folder, "results.csv", lambda t: t.assign(mood="bad"))
    with pytest.raises(ResultsError, match="'bad' for mood in line 2, not one of fine"):
        load([folder])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.update(schema_version=2), "schema_version 2, this program reads 1"),
        (lambda s: s.pop("tables"), "schema.json cannot be read"),
        (lambda s: declared(s, "results.csv", "n").pop("type"), "schema.json cannot be read"),
        (lambda s: declared(s, "results.csv", "n").update(type="colour"), "unknown type 'colour' for n"),
        (lambda s: s["tables"].pop("probes.csv"), "schema.json does not declare probes.csv"),
    ],
)
def test_refuses_a_schema(tmp_path, change, words):
    folder = small().write(tmp_path / "run")
    edit_schema(folder, change)
    with pytest.raises(ResultsError, match=words):
        load([folder])


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("integer", ["-12", "0"], ["1e3", "1.0", "12 ", "x"]),
        ("number", ["1", "-1.5", "3.7e+12", "inf", "-inf"], ["nan", "1,5", "1.5us"]),
        ("boolean", ["true", "false"], ["1", "True"]),
        ("enum", ["a"], ["b", "A"]),
        ("json", ['{"tile":3}'], ["{", "3"]),
        ("string", ["anything, really"], []),
    ],
)
def test_values_are_of_their_columns_type(tmp_path, kind, good, bad):
    table = schema.Table("t.csv", (schema.Column("c", kind, "", False, False, "x", ("a",) if kind == "enum" else ()),))
    schema.typed(tmp_path, pd.DataFrame({"c": [*good, ""]}), table)
    for text in bad:
        with pytest.raises(ResultsError, match="for c in line 3, not "):
            schema.typed(tmp_path, pd.DataFrame({"c": [good[0], text]}), table)


def test_a_folder_without_a_schema_is_read_as_older_ones_were(tmp_path):
    folder = small().write(tmp_path / "run")
    new = load_folder(folder)
    for name in TABLES:
        edit_table(folder, name, lambda t: t.drop(columns=[c for c in legacy.LACKED if c in t]))
    with pytest.raises(ResultsError, match="lacks column operator"):
        load_folder(folder)
    (folder / "schema.json").unlink()
    old = load_folder(folder)
    for name in TABLES:
        pd.testing.assert_frame_equal(old.tables[name], new.tables[name])


def test_the_programs_write_the_schema_of_this_commit(tmp_path):
    """And folders that are read without complaint. ctest names the program."""
    program = os.environ.get("FWHT_SWEEP_PROGRAM", "")
    if not program:
        pytest.skip("FWHT_SWEEP_PROGRAM names no fwht_sweep; ctest sets it")
    folder = tmp_path / "run"
    command = [program, "--variant", "cpu", "--problem", "f32/n16/r4", "--output", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    assert (folder / "schema.json").read_text() == schema.CURRENT.read_text()
    assert list(load([folder], allow_dirty=True)[0].results["variant"]) == ["cpu"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format_version": 2}, "format_version 2, this program reads 1"),
        ({"dirty": True}, "dirty build"),
        ({"complete": False}, "incomplete run"),
        ({"sources_hash": ""}, "sources_hash .* is empty"),
        ({"commit": ""}, "commit .* is empty"),
        ({"dirty": "no"}, "not true or false"),
        ({"host": {"name": "x"}}, "lacks threads, memory_bytes"),
        ({"device": {"present": True, "name": "x"}}, "lacks why_absent, compute_capability"),
        ({"device": "H200"}, "no JSON object"),
    ],
)
def test_refuses_a_context(tmp_path, changes, words):
    folder = small().write(tmp_path / "run")
    edit_context(folder, **changes)
    with pytest.raises(ResultsError, match=words):
        load([folder])


def test_dirty_and_incomplete_are_read_on_request_only(tmp_path):
    folder = small(dirty=True, complete=False, utc_end=None).write(tmp_path / "run")
    with pytest.raises(ResultsError, match="incomplete"):
        load([folder], allow_dirty=True)
    with pytest.raises(ResultsError, match="dirty"):
        load([folder], allow_incomplete=True)
    (device,) = load([folder], allow_dirty=True, allow_incomplete=True)
    assert device.label.endswith("+dirty")


@pytest.mark.parametrize("name", ["limits.csv", "unsupported.csv"])
def test_refuses_a_sweep_with_a_missing_file(tmp_path, name):
    folder = small().write(tmp_path / "run")
    (folder / name).unlink()
    with pytest.raises(ResultsError, match=f"has results.csv but no {name}"):
        load([folder])


def test_refuses_a_folder_without_measurements(tmp_path):
    folder = small().write(tmp_path / "run")
    for name in TABLES:
        (folder / name).unlink()
    with pytest.raises(ResultsError, match="neither results.csv nor accuracy.csv"):
        load([folder])


def test_half_a_line_of_a_killed_run_is_left_out(tmp_path):
    folder = small(complete=False).write(tmp_path / "run")
    file = folder / "results.csv"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(lines)[:-40])
    (device,) = load([folder], allow_incomplete=True)
    assert len(device.results) == len(lines) - 2


def test_refuses_what_is_no_results_folder(tmp_path):
    with pytest.raises(ResultsError, match="no such directory"):
        load([tmp_path / "absent"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ResultsError, match="context.json is missing"):
        load([tmp_path / "empty"])
    (tmp_path / "empty" / "context.json").write_text("{")
    with pytest.raises(ResultsError, match="cannot be read"):
        load([tmp_path / "empty"])
    with pytest.raises(ResultsError, match="no results folder was given"):
        load([])


def cell(table, column, value, row=0):
    table.loc[row, column] = value
    return table


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("time_us", "fast", "'fast' for time_us in line 2, not a number"),
        ("time_us", "", "is ok without a positive time in line 2"),
        ("time_us", "0", "is ok without a positive time"),
        ("status", "incorrect", "has a time although the result is not ok"),
        ("status", "fine", "'fine' for status in line 2, not one of ok, incorrect, failed"),
        ("mode", "warm", "'warm' for mode in line 2, not one of replay"),
        ("dtype", "f8", "'f8' for dtype in line 2, not one of f16"),
        ("elements", "7", "elements other than"),
        ("useful_bytes", "7", "useful_bytes other than"),
        ("bytes_read", "7", "has bytes_read below elements"),
        ("fraction_of_limit", "0.999", "fraction_of_limit other than"),
        ("n", "", "empty n in line 2"),
    ],
)
def test_refuses_rows_that_contradict_themselves(tmp_path, column, value, words):
    folder = small().write(tmp_path / "run")
    edit_table(folder, "results.csv", lambda t: cell(t, column, value))
    with pytest.raises(ResultsError, match=words):
        load([folder])


def test_refuses_a_repeated_measurement(tmp_path):
    folder = small().write(tmp_path / "run")
    edit_table(folder, "results.csv", lambda t: pd.concat([t, t.iloc[[0]]]))
    with pytest.raises(ResultsError, match="repeats an earlier measurement"):
        load([folder])


def test_an_incorrect_result_is_kept_without_a_time(tmp_path):
    writer = small()
    writer.tables["results.csv"][0] |= {
        "status": "incorrect",
        "time_us": "",
        "fraction_of_limit": "",
        "message": "off",
    }
    (device,) = load([writer.write(tmp_path / "run")])
    assert device.results["time_us"].isna().sum() == 1


def test_refuses_mixed_sources_of_one_device(tmp_path):
    a = small().write(tmp_path / "a")
    b = small(commit="f" * 40, sources_hash="b" * 64).write(tmp_path / "b")
    c = small(sources_hash="b" * 64).write(tmp_path / "c")
    with pytest.raises(ResultsError, match="mix commits"):
        load([a, b])
    with pytest.raises(ResultsError, match="different sources_hash"):
        load([a, c])
    assert len(load([a, b], allow_mixed=True)) == 1


def test_one_clean_commit_has_one_hash_on_every_device(tmp_path):
    a = small().write(tmp_path / "a")
    b = host_folder(sources_hash="b" * 64).write(tmp_path / "b")
    with pytest.raises(ResultsError, match="different sources_hash"):
        load([a, b])


def test_devices_of_different_commits_stand_side_by_side(tmp_path):
    a = small().write(tmp_path / "a")
    b = host_folder(commit="f" * 40, sources_hash="b" * 64).write(tmp_path / "b")
    assert [d.name for d in load([a, b])] == ["NVIDIA H200", "Example CPU 9000 (host only)"]


def test_of_two_folders_the_newer_measurement_counts(tmp_path):
    old = small(utc_start="2026-11-19T10:00:00Z", slow=2.0).write(tmp_path / "old")
    new = small().write(tmp_path / "new")
    (alone,), (both,) = load([new]), load([new, old])
    assert both.superseded == len(alone.results) + len(alone.accuracy)
    assert sorted(both.results["time_us"]) == sorted(alone.results["time_us"])
    with pytest.raises(ResultsError, match="given twice"):
        load([new, new])


def test_the_command_line_refuses_with_exit_code_2(tmp_path, capsys):
    folder = small(dirty=True).write(tmp_path / "run")
    assert main(["table", str(folder)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: run comes from a dirty build") and captured.err.count("\n") == 1
    assert main(["table", "--allow-dirty", str(folder)]) == 0


def test_knows_every_mode_and_dtype_of_the_sweep():
    results = schema.current()["results.csv"]
    assert set(results.column("mode").values) == set(MODES)
    assert set(results.column("dtype").values) == set(DTYPES)
