"""Times of a test run, from reports as ctest 3.25 and GoogleTest 1.12 write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis import times

JUNIT = """<testsuite>
<testcase name="Problem.TextForm" time="0.0041" status="run"><system-out></system-out></testcase>
<testcase name="memory_test.gpu.1" time="0.02" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>
<testcase name="Switched.Off" time="0" status="disabled"/>
<testcase name="ConformanceGpu.0" time="1.1" status="run"/>
<testcase name="ConformanceGpu.1" time="9.5" status="fail"><failure message=""/></testcase>
<testcase name="ConformanceGpu.2" time="600.01" status="fail"><failure message="Timeout"/></testcase>
</testsuite>"""
SHARD = """<testsuites><testsuite name="ConformanceGpu">
<testcase name="naive/f16/Impulses" status="run" result="completed" time="0.25" classname="ConformanceGpu" />
<testcase name="naive/f16/Strides" status="run" result="completed" time="0.5" classname="ConformanceGpu">
<failure message="wrong" type=""/></testcase>
<testcase name="naive/f16/Throws" status="run" result="completed" time="0.5" classname="ConformanceGpu">
<error message="thrown" type=""/></testcase>
<testcase name="naive/f16/IndexWidth" status="run" result="skipped" time="0" classname="ConformanceGpu">
<skipped message="no memory"/></testcase>
<testcase name="naive/f16/Overflow" status="notrun" result="suppressed" time="0" classname="ConformanceGpu" />
</testsuite></testsuites>"""
PASSING_SHARD = """<testsuites><testsuite name="ConformanceGpu">
<testcase name="naive/bf16/Impulses" status="run" result="completed" time="1" classname="ConformanceGpu" />
</testsuite></testsuites>"""


@pytest.fixture
def build(tmp_path: Path) -> Path:
    labels = {
        "Problem.TextForm": ["host"],
        "Switched.Off": ["host"],
        "memory_test.gpu.1": ["gpu"],
        "ConformanceGpu.0": ["gpu"],
        "ConformanceGpu.1": ["gpu"],
        "ConformanceGpu.2": ["slow", "gpu"],
    }
    tests = [{"name": name, "properties": [{"name": "LABELS", "value": value}]} for name, value in labels.items()]
    (tmp_path / "ctest.json").write_text(json.dumps({"tests": tests}))
    (tmp_path / "ctest.xml").write_text(JUNIT)
    (tmp_path / "test_times").mkdir()
    (tmp_path / "test_times" / "ConformanceGpu.0.xml").write_text(PASSING_SHARD)
    (tmp_path / "test_times" / "ConformanceGpu.1.xml").write_text(SHARD)
    (tmp_path / "test_times" / "ConformanceGpu.2.xml").write_text(PASSING_SHARD)
    return tmp_path


def test_has_a_row_for_every_case_that_was_to_run(build: Path) -> None:
    assert times.write(build)
    assert (build / "tests.csv").read_text().splitlines() == [
        "name,label,status,seconds",
        "Problem.TextForm,host,passed,0.0041",
        "memory_test.gpu.1,gpu,skipped,0.02",
        "Switched.Off,host,skipped,0",
        "ConformanceGpu.naive/bf16/Impulses,gpu,passed,1",  # the time of the program is that of its cases
        "ConformanceGpu.naive/f16/Impulses,gpu,passed,0.25",
        "ConformanceGpu.naive/f16/Strides,gpu,failed,0.5",
        "ConformanceGpu.naive/f16/Throws,gpu,failed,0.5",
        "ConformanceGpu.naive/f16/IndexWidth,gpu,skipped,0",
        "ConformanceGpu.naive/bf16/Impulses,gpu+slow,passed,1",
        "ConformanceGpu.2,gpu+slow,failed,600.01",  # no case of it failed: the program did
    ]


def test_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not times.write(tmp_path)
    assert "ctest.json" in capsys.readouterr().err
    (tmp_path / "ctest.json").write_text('{"tests": []}')
    (tmp_path / "ctest.xml").write_text("<half")
    assert not times.write(tmp_path)
