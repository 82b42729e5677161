"""Runs single cases that ctest has no test of its own for: run_cases.py BUILD_DIR REGEX

Cases of GoogleTest programs that share a process (label gpu) and of pytest files. Reads BUILD_DIR/ctest.json (ctest
--show-only=json-v1). Exit code 0: all passed or skipped; 1: one failed; 2: no case of that name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

FILES_FOLLOW = "no:cacheprovider"  # in the command of every pytest test


def gtest_cases(command: list[str]) -> list[str]:
    """suite.case of a GoogleTest program under the filter of its ctest test."""
    listed = subprocess.run([*command, "--gtest_list_tests"], capture_output=True, text=True, check=False).stdout
    cases, suite = [], ""
    for line in listed.splitlines():
        if line.startswith("  "):
            cases.append(suite + line.split("#")[0].strip())
        elif line.split("#")[0].strip().endswith("."):
            suite = line.split("#")[0].strip()
    return cases


def pytest_cases(command: list[str], folder: str, environment: dict[str, str]) -> list[str]:
    listed = subprocess.run(
        [*command, "--collect-only"], capture_output=True, text=True, check=False, cwd=folder, env=environment
    ).stdout
    return [line.strip() for line in listed.splitlines() if "::" in line]


def properties(test: dict) -> dict:
    return {one["name"]: one["value"] for one in test.get("properties", [])}


def main(build: str, regex: str) -> int:
    wanted = re.compile(regex)
    tests = json.loads((Path(build) / "ctest.json").read_text(encoding="utf-8"))["tests"]
    programs, runs = set(), []
    for test in tests:
        command, about = test.get("command", []), properties(test)
        folder = about.get("WORKING_DIRECTORY", build)
        environment = os.environ | dict(one.split("=", 1) for one in about.get("ENVIRONMENT", []))
        if FILES_FOLLOW in command:
            if cases := [case for case in pytest_cases(command, folder, environment) if wanted.search(case)]:
                runs.append(([*command[: command.index(FILES_FOLLOW) + 1], *cases], folder, environment))
        elif "gpu" in about.get("LABELS", []) and tuple(command) not in programs:
            programs.add(tuple(command))  # its shards differ in their environment alone
            if cases := [case for case in gtest_cases(command) if wanted.search(case)]:
                runs.append(([command[0], "--gtest_filter=" + ":".join(cases)], folder, dict(os.environ)))
    # 77: a GoogleTest program that skipped every case.
    codes = [subprocess.run(command, cwd=cwd, env=env, check=False).returncode for command, cwd, env in runs]
    if not codes:
        return 2
    return int(any(code not in (0, 77) for code in codes))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print(__doc__.splitlines()[0], file=sys.stderr)
        sys.exit(2)
    sys.exit(main(*sys.argv[1:]))
