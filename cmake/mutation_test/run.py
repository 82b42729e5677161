"""Plants the faults of mutations.py one at a time into a copy of the checkout and says which test catches each.

    python3 cmake/mutation_test/run.py [--only REGEX] [--list] [--jobs N] [--folder DIR] [CMAKE_ARGUMENT...]

DIR (default build/mutations) holds the copy with its host build, and table.csv. What the table holds for the same fault and the
same sources of its tests is not done again, so a run that was stopped goes on. Arguments that begin with -D go to
CMake. Exit code: 0 when every fault is caught, 1 when one survives, 2 for a fault that cannot be planted."""

from __future__ import annotations

import argparse
import csv
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]
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


def run(command: list[str], folder: Path, log: Path, limit_s: float = 1800) -> bool:
    with log.open("w") as file:
        try:
            return subprocess.run(command, cwd=folder, stdout=file, stderr=file, timeout=limit_s, check=False).returncode == 0
        except subprocess.TimeoutExpired:
            return False


def is_command(test: str) -> bool:
    return test.startswith("sh ")


def outcome_of(mutation: Mutation, source: Path, build: Path, jobs: int) -> tuple[str, str]:
    """("caught", test), ("survives", ""), ("does not build", ""): the compiler catches it."""
    log = build / "mutation.log"
    programs = sorted({test.split(":")[0] for test in mutation.tests if not is_command(test)})
    targets = [Path(program).name for program in programs]
    if targets and not run(["cmake", "--build", str(build), "--parallel", str(jobs), "--target", *targets], source, log):
        return "does not build", ""
    for test in mutation.tests:
        if is_command(test):
            passed = run(["sh", "-c", test[3:].replace("{build}", str(build))], source, log)
        else:
            program, _, gtest_filter = test.partition(":")
            passed = run([str(build / program), f"--gtest_filter={gtest_filter}"], build, log)
        if not passed:
            return "caught", test
    return "survives", ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names that this regular expression finds")
    parser.add_argument("--list", action="store_true", help="names and files; plant nothing")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=ROOT / "build/mutations")
    options, cmake_arguments = parser.parse_known_args()

    chosen = [mutation for mutation in MUTATIONS if re.search(options.only, mutation.name)]
    for mutation in chosen:
        count = (ROOT / mutation.file).read_text(encoding="utf-8").count(mutation.old)
        if count != 1:
            print(f"{mutation.name}: {mutation.file} holds {mutation.old!r} {count} times, not once")
            return 2
        if options.list:
            print(f"{mutation.name}: {mutation.file}")
    if options.list:
        return 0

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
    if not run(configure, source, build / "configure.log"):
        print(f"CMake could not configure {build} (see configure.log there)")
        return 2

    survivors = []
    for mutation in chosen:
        digest = digest_of(mutation)
        if digest not in known:
            file = source / mutation.file
            good = file.read_text(encoding="utf-8")
            try:
                file.write_text(good.replace(mutation.old, mutation.new), encoding="utf-8")
                outcome, caught_by = outcome_of(mutation, source, build, options.jobs)
            finally:
                file.write_text(good, encoding="utf-8")
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
