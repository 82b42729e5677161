"""The times of a ctest run as a table, tests.csv.

Columns: name (of the ctest test, or of the GoogleTest case where one ctest test holds many), label (host, gpu,
slow ..., joined by +), status (passed, failed, skipped), seconds (wall clock).

Reads what ./testbed leaves in the build folder: ctest.xml (ctest --output-junit), ctest.json (ctest
--show-only=json-v1, for the labels, which JUnit has no place for) and test_times/*.xml, which the programs that
share many cases write. Needs nothing but Python itself.
"""

from __future__ import annotations

import csv
import json
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

COLUMNS = ["name", "label", "status", "seconds"]


def labels_of(listing: Path) -> dict[str, str]:
    """Test name -> its labels, joined."""
    labels = {}
    for test in json.loads(listing.read_text())["tests"]:
        properties = {one["name"]: one["value"] for one in test.get("properties", [])}
        labels[test["name"]] = "+".join(sorted(properties.get("LABELS", [])))
    return labels


def status_of(case: ElementTree.Element) -> str:
    """Of a JUnit or GoogleTest test case."""
    if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
        return "failed"
    if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
        return "skipped"
    return "passed"


def cases_of(report: Path) -> Iterator[tuple[str, str, str]]:
    """Name, status and seconds of the cases that a GoogleTest program had to run; those of other shards left out."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.get("result") != "suppressed":
            yield f"{case.get('classname')}.{case.get('name')}", status_of(case), case.get("time", "0")


def rows_of(build: Path) -> Iterator[list[str]]:
    labels = labels_of(build / "ctest.json")
    for test in ElementTree.parse(build / "ctest.xml").getroot().iter("testcase"):
        name = test.get("name", "")
        label = labels.get(name, "")
        report = build / "test_times" / f"{name}.xml"
        if report.exists():
            cases = list(cases_of(report))
            yield from ([case, label, status, f"{float(seconds):.6g}"] for case, status, seconds in cases)
            # A program that fails outside its cases, by a crash or a timeout, has a row of its own.
            if status_of(test) != "failed" or any(status == "failed" for _, status, _ in cases):
                continue
        yield [name, label, status_of(test), f"{float(test.get('time', '0')):.6g}"]


def write(build: Path) -> bool:
    """Writes tests.csv of a build folder; false, after a sentence, when what it reads is not as ctest leaves it."""
    try:
        rows = list(rows_of(build))
    except (OSError, ValueError, KeyError, ElementTree.ParseError) as error:
        print(f"times: {build}: {error}", file=sys.stderr)
        return False
    with (build / "tests.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
    return True
