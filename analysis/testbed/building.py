"""CMake and ctest, as the commands use them."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from analysis import times

from .machine import BUILD, ROOT, cores, fail, have, options_for_gpus, require_writable, run, say


def configure(preset: str, *arguments: str) -> Path:
    """Returns the build directory."""
    directory = BUILD / preset
    require_writable(directory)
    command = ["cmake", "-S", str(ROOT), "--preset", preset, *arguments]
    # CMake remembers that there was no nvcc, and where the checkout was.
    cache = directory / "CMakeCache.txt"
    if preset == "release" and not cache.is_file():  # what an earlier call or a user chose stays
        command += options_for_gpus()
    if cache.is_file():
        text = cache.read_text()
        moved = f"\nCMAKE_HOME_DIRECTORY:INTERNAL={ROOT}\n" not in text
        if moved or (have("nvcc") and re.search(r"^CMAKE_CUDA_COMPILER:.*NOTFOUND$", text, re.M)):
            command.append("--fresh")
    log = directory / "configure.log"
    with log.open("w") as out:
        done = run(command, stdout=out, stderr=subprocess.STDOUT)
    lines = log.read_text().splitlines()
    if done.returncode:
        print(*lines[-30:], sep="\n", flush=True)
        fail(f"CMake could not configure {directory} (see configure.log there).")
    for line in lines:
        if line.startswith("-- fwht: "):
            say(line.removeprefix("-- fwht: "))
    return directory


def build(directory: Path, *targets: str) -> None:
    chosen = ["--target", *targets] if targets else []
    if run(["cmake", "--build", directory, "--parallel", str(cores()), *chosen]).returncode:
        fail(f"the build in {directory} failed; the compiler's messages are above.")


def list_tests(directory: Path, selection: Sequence[str] = ()) -> list[dict]:
    """ctest's description of the tests; left in ctest.json too."""
    listed = run(["ctest", "--test-dir", directory, "--show-only=json-v1", *selection], stdout=subprocess.PIPE)
    (directory / "ctest.json").write_text(listed.stdout)
    return json.loads(listed.stdout)["tests"] if listed.returncode == 0 else []


NOT_SHOWN = re.compile(r"\*\*\*Skipped|^ *Start *\d*: |\(Skipped\)$|^The following tests did not run:$|ERROR_MESSAGE|^Errors while running CTest$")


def run_ctest(directory: Path, *selection: str) -> int:
    """Runs ctest without a line for each skipped test; then what ran in one line, with the reasons.

    The time of every test goes to tests.csv in the build folder (analysis/times.py). Returns ctest's exit code.
    """
    details = directory / "Testing" / "Temporary" / "LastTest.log"
    for old in (details, directory / "ctest.xml", directory / "tests.csv"):
        old.unlink(missing_ok=True)
    shutil.rmtree(directory / "test_times", ignore_errors=True)
    # As many tests as cores run at a time: idle OpenMP threads must sleep, not spin.
    command = ["ctest", "--test-dir", str(directory), "--output-on-failure", "--no-tests=error", "-j", str(cores())]
    command += ["--output-junit", str(directory / "ctest.xml"), *selection]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace", env=os.environ | {"OMP_WAIT_POLICY": "passive"}) as ctest:
        blank = False
        for line in ctest.stdout or ():
            if not NOT_SHOWN.search(line) and not (blank and line == "\n"):
                print(line, end="", flush=True)
                blank = line == "\n"
    if not details.is_file():  # ctest ended before it ran anything
        return ctest.returncode
    log = details.read_text(errors="replace")  # taken before ctest is called again, which empties it
    reasons = skip_reasons(log)
    if reasons:
        print("\nSkipped tests, and why:", *(f"{count:7} {why}" for why, count in reasons), sep="\n")
    if inside := skips_inside(log):
        print("\nSkipped inside of tests in Python, which pass without them:", *inside, sep="\n")
    for name, lines in last_words(directory / "ctest.xml"):
        print(f"\n{name} failed; its last lines:", *(f"  {line}" for line in lines), sep="\n")
    list_tests(directory, selection)
    if times.write(directory):
        print("\n" + count_tests(directory / "tests.csv", [why for why, _ in reasons]))
    else:
        say("the times of the tests could not be written (above).")
    return ctest.returncode


def skip_reasons(details: str) -> list[tuple[str, int]]:
    """Reason and number of tests, the commonest first, from ctest's LastTest.log."""
    found = re.findall(r": Skipped\n(.*)|^skipped: (.*)", details, re.M)
    return Counter(re.sub(r" *\(.*", "", gtest or other).strip() for gtest, other in found).most_common()


def skips_inside(details: str) -> list[str]:
    """A line for each reason why pytest skipped cases or whole files, the commonest first: how many, why, in which files."""
    cases, files = Counter[str](), defaultdict[str, set[str]](set)
    for count, path, why in re.findall(r"^SKIPPED \[(\d+)\] (\S+?\.py)(?::\d+)?: (.*)", details, re.M):
        cases[why] += int(count)
        files[why].add(Path(path).name)
    return [f"{count:7} {why}: {', '.join(sorted(files[why]))}" for why, count in cases.most_common()]


def last_words(report: Path, tests: int = 4, lines: int = 25) -> list[tuple[str, list[str]]]:
    """Name and last lines of output of the first tests that failed: they would otherwise be far above the summary."""
    if not report.is_file():
        return []
    failed = [test for test in ElementTree.parse(report).getroot().iter("testcase") if times.status_of(test) == "failed"]
    return [(test.get("name", ""), (test.findtext("system-out") or "").rstrip().splitlines()[-lines:]) for test in failed[:tests]]


def count_tests(table: Path, reasons: Sequence[str]) -> str:
    """As in "1043 ran, 0 failed, 1034 skipped: no CUDA device"."""
    with table.open(newline="") as file:
        status = Counter(row["status"] for row in csv.DictReader(file))
    why = f": {reasons[0]}{', and other reasons' * (len(reasons) > 1)}" if status["skipped"] and reasons else ""
    return f"{status['passed'] + status['failed']} ran, {status['failed']} failed, {status['skipped']} skipped{why}"


# --- cases inside tests ----------------------------------------------------------------------------------------------

FILES_FOLLOW = "no:cacheprovider"  # in the command of every pytest test


def gtest_cases(command: list[str]) -> list[str]:
    """suite.case of a GoogleTest program under the filter of its ctest test."""
    listed = run([*command, "--gtest_list_tests"], capture_output=True).stdout
    cases, suite = [], ""
    for line in listed.splitlines():
        name = line.split("#")[0].strip()
        if line.startswith("  "):
            cases.append(suite + name)
        elif name.endswith("."):
            suite = name
    return cases


def run_cases(directory: Path, tests: list[dict], regex: str) -> int | None:
    """Runs single cases that ctest has no test of its own for: of GoogleTest programs that share a process (label gpu)
    and of pytest files. Returns 0: all passed or were skipped, 1: one failed, None: no case has such a name."""
    wanted, programs, codes = re.compile(regex), set(), []
    for test in tests:
        command = test.get("command", [])
        about = {one["name"]: one["value"] for one in test.get("properties", [])}
        folder = about.get("WORKING_DIRECTORY", directory)
        settings = os.environ | dict(one.split("=", 1) for one in about.get("ENVIRONMENT", []))
        if FILES_FOLLOW in command:
            listed = run([*command, "--collect-only"], capture_output=True, cwd=folder, env=settings).stdout
            cases = [line.strip() for line in listed.splitlines() if "::" in line and wanted.search(line)]
            head = command[: command.index(FILES_FOLLOW) + 1]
        elif "gpu" in about.get("LABELS", []) and tuple(command) not in programs:
            programs.add(tuple(command))  # its shards differ in their environment alone
            found = [case for case in gtest_cases(command) if wanted.search(case)]
            cases, head = ["--gtest_filter=" + ":".join(found)] if found else [], command[:1]
            settings = dict(os.environ)
        else:
            continue
        if cases:
            codes.append(run([*head, *cases], cwd=folder, env=settings).returncode)
    # 77: a GoogleTest program that skipped every case.
    return int(any(code not in (0, 77) for code in codes)) if codes else None
