"""Plants the faults of mutations.py one at a time into a copy of the checkout and says which test catches each.

    python3 cmake/mutation_test/run.py [--only REGEX] [--list] [--jobs N] [--folder DIR] [CMAKE_ARGUMENT...]

DIR (default build/mutations) holds the copy with its host build, and table.csv. A fault that the table says is caught, in the
same source, is not planted again, so a run that was stopped goes on; a survivor is, since it may have got a test. Arguments
that begin with -D go to CMake. Exit code: 0 when every fault is caught, 1 when one survives, 2 for a fault that cannot be planted."""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]
BUILD_LIMIT_S, TEST_LIMIT_S = 3600, 120  # a test that a fault keeps from ending has caught it
COLUMNS = ["name", "file", "outcome", "caught_by", "digest"]


def digest_of(mutation: Mutation) -> str:
    """Of the fault and of the file that it is planted into."""
    text = repr(mutation) + (ROOT / mutation.file).read_text(encoding="utf-8")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def copy_checkout(source: Path) -> None:
    """The files that git tracks, as they are in the checkout now; those that did not change keep their time."""
    names = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=True).stdout
    for name in names.splitlines():
        if name.startswith("experiments/results/") or not (ROOT / name).is_file():
            continue
        target = source / name
        if target.is_file() and target.read_bytes() == (ROOT / name).read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)


def run(command: list[str], folder: Path, log: Path, limit_s: float) -> bool:
    """Whether it ends with 0 in time; all that it started ends with it."""
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=folder, stdout=file, stderr=file, start_new_session=True)
        try:
            return process.wait(limit_s) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def is_command(test: str) -> bool:
    return test.startswith("sh ")


class Checkout:
    """The copy: builds what tests need and runs them."""

    def __init__(self, source: Path, build: Path, jobs: int) -> None:
        self.source, self.build, self.jobs = source, build, jobs
        self.sound: set[str] = set()  # tests that pass without a fault

    def builds(self, tests: tuple[str, ...]) -> bool:
        targets = sorted({Path(test.split(":")[0]).name for test in tests if not is_command(test)})
        command = ["cmake", "--build", str(self.build), "--parallel", str(self.jobs), "--target", *targets]
        return not targets or run(command, self.source, self.build / "mutation.log", BUILD_LIMIT_S)

    def passes(self, test: str) -> bool:
        log = self.build / "mutation.log"
        if is_command(test):
            return run(["sh", "-c", test[3:].replace("{build}", str(self.build))], self.source, log, TEST_LIMIT_S)
        program, _, gtest_filter = test.partition(":")
        return run([str(self.build / program), f"--gtest_filter={gtest_filter}"], self.build, log, TEST_LIMIT_S)

    def unsound(self, tests: tuple[str, ...]) -> str:
        """A test that fails without any fault, and so would catch everything; "" when there is none."""
        new = tuple(test for test in tests if test not in self.sound)
        if new and not self.builds(new):
            return f"the build for {new[0]}"
        for test in new:
            if not self.passes(test):
                return test
            self.sound.add(test)
        return ""

    def outcome_of(self, mutation: Mutation) -> tuple[str, str]:
        """("caught", test), ("survives", ""), ("does not build", ""): the compiler catches it."""
        file = self.source / mutation.file
        good = file.read_text(encoding="utf-8")
        try:
            file.write_text(good.replace(mutation.old, mutation.new), encoding="utf-8")
            if not self.builds(mutation.tests):
                return "does not build", ""
            failing = next((test for test in mutation.tests if not self.passes(test)), "")
            return ("caught", failing) if failing else ("survives", "")
        finally:
            file.write_text(good, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names that this regular expression finds")
    parser.add_argument("--list", action="store_true", help="names and files; plant nothing")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=ROOT / "build/mutations")
    options, cmake_arguments = parser.parse_known_args()

    chosen = [mutation for mutation in MUTATIONS if re.search(options.only, mutation.name)]
    placeless = 0
    for mutation in chosen:
        count = (ROOT / mutation.file).read_text(encoding="utf-8").count(mutation.old)
        if count != 1:
            print(f"{mutation.name}: {mutation.file} holds {mutation.old!r} {count} times, not once")
            placeless += 1
        elif options.list:
            print(f"{mutation.name}: {mutation.file}")
    if placeless or options.list:
        return 2 if placeless else 0

    # Laid out as a checkout with its host build, so that a compiler cache knows the files again.
    source = options.folder / "source"
    build = source / "build/host"
    build.mkdir(parents=True, exist_ok=True)
    copy_checkout(source)
    table = options.folder / "table.csv"
    rows = list(csv.DictReader(table.open())) if table.is_file() else []
    known = {row["digest"]: row for row in rows}
    configure = ["cmake", "-S", str(source), "-B", str(build), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                 "-DFWHT_CUDA=OFF", "-DFWHT_KOKKOS=OFF", *cmake_arguments]  # fmt: skip
    if not run(configure, source, build / "configure.log", BUILD_LIMIT_S):
        print(f"CMake could not configure {build} (see configure.log there)")
        return 2

    checkout = Checkout(source, build, options.jobs)
    survivors = []
    for mutation in chosen:
        digest = digest_of(mutation)
        if digest not in known or known[digest]["outcome"] == "survives":
            if unsound := checkout.unsound(mutation.tests):
                print(f"{unsound} fails without a fault (see {build / 'mutation.log'})")
                return 2
            outcome, caught_by = checkout.outcome_of(mutation)
            known[digest] = dict(zip(COLUMNS, [mutation.name, mutation.file, outcome, caught_by, digest], strict=True))
            with table.open("a", newline="") as stream:
                writer = csv.DictWriter(stream, COLUMNS)
                if stream.tell() == 0:
                    writer.writeheader()
                writer.writerow(known[digest])
        row = known[digest]
        print(f"{row['outcome']:<15} {mutation.name:<40} {row['caught_by']}", flush=True)
        if row["outcome"] == "survives":
            survivors.append(mutation.name)
    print(f"{len(chosen)} faults, {len(survivors)} survive{': ' + ', '.join(survivors) if survivors else ''}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
