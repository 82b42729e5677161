"""The commands of ./testbed. The docstring of each is what its --help says."""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, NoReturn

from . import check as checks
from . import wheel
from .building import build, configure, list_tests, run_cases, run_ctest
from .machine import (
    BUILD,
    ROOT,
    analysis,
    check_room,
    cores,
    environment,
    fail,
    find_python,
    has_gpu,
    have,
    need_gpu,
    need_gpu_tool,
    refuse,  # fmt: skip
    run,
    say,
    say_load,
    say_origin,
)

# --- arguments: what they name must exist before anything is installed or built ---------------------------------------


def unknown(argument: str, command: str) -> NoReturn:
    refuse(f"unknown argument '{argument}'; see ./testbed {command} --help.")


class ArgumentParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        found = re.match(r"argument (\S+): expected", message)
        refuse(f"{found[1]} needs a value; see ./testbed {self.prog} --help." if found else message)


def parse(command: str, arguments: list[str], *, one: Iterable[str] = (), many: Iterable[str] = (), flags: Iterable[str] = (), rest: bool = False):
    """The options that a command takes; a name with two dashes is the attribute without them. `rest`: plain words too."""

    def value(text: str) -> str:
        if not text:
            raise argparse.ArgumentTypeError("expected one argument")
        return text

    parser = ArgumentParser(prog=command, add_help=False, allow_abbrev=False)
    for name in one:
        parser.add_argument(name, type=value)
    for name in many:
        parser.add_argument(name, type=value, action="append", default=[])
    for name in flags:
        parser.add_argument(name, action="store_true")
    if rest:
        parser.add_argument("rest", nargs="*")
    found, others = parser.parse_known_args(arguments)
    if others:
        unknown(others[0], command)
    for name in ("--output", "--resume"):  # programs run in the root of the repository
        if getattr(found, name[2:], None):
            setattr(found, name[2:], os.path.abspath(getattr(found, name[2:])))
    selecting = ("variant", "grid", "dtype", "n", "rows", "resume")
    check_selection(command, [word for name in selecting for text in listed(found, name) for word in (f"--{name}", text)])
    if grids := [os.path.abspath(grid) if Path(grid).is_file() else grid for grid in listed(found, "grid")]:
        found.grid = grids if isinstance(found.grid, list) else grids[0]
    return found


def listed(found: argparse.Namespace, name: str) -> list[str]:
    value = getattr(found, name, None)
    return value if isinstance(value, list) else [value] if value else []


def options(found: argparse.Namespace, *names: str) -> list[str]:
    """The same options for a program."""
    return [word for name in names for value in listed(found, name) for word in (f"--{name}", value)]


def check_output(path: str | None, *, new: bool = False) -> None:
    """A results folder can be made there; `new`: none is continued."""
    if not path:
        return
    above = next(folder for folder in (Path(path), *Path(path).parents) if folder.exists())
    if not above.is_dir():
        refuse(f"--output {path}: {above} is a file, not a folder.")
    if not os.access(above, os.W_OK):
        refuse(f"--output {path}: {above} cannot be written.")
    if new and above == Path(path) and any(above.iterdir()):
        refuse(f"{path} is there already; --resume continues a results folder")


def check_resume(path: str) -> None:
    """A results folder is there to go on with."""
    if not (Path(path) / "context.json").is_file():
        refuse(f"--resume {path}: no results folder, as it has no context.json.")


def check_counts(option: str, text: str) -> None:
    """Numbers as fwht_sweep reads them: 4096, 2^12, 16..256, with commas between."""
    for item in text.split(","):
        for count in item.split(".."):
            if not re.fullmatch(r"2\^\d+|0*[1-9]\d*", count.strip()):
                refuse(f"{option}: '{count.strip()}' is no positive number; write 4096 or 2^12")


@cache
def names_of(kind: str) -> list[str]:
    """Those that fwht_sweep takes, as a test holds experiments/names.txt to `fwht_sweep --list-names`."""
    lines = (ROOT / "experiments" / "names.txt").read_text().splitlines()
    return [line.split(" ", 1)[1] for line in lines if line.startswith(f"{kind} ")]


def check_selection(command: str, arguments: list[str]) -> None:
    """Arguments of fwht_sweep: its options, and those values that are names, numbers or folders."""
    known = {"--variant": names_of("variant"), "--mode": names_of("mode"), "--placement": names_of("placement"),
             "--dtype": ["f16", "fp16", "bf16", "f32", "fp32", "f64", "fp64", "i32", "i64"]}  # fmt: skip
    option = ""
    for argument in arguments:
        value = argument
        if argument.startswith("--"):
            option, equals, value = argument.partition("=")
            if not option.startswith("--benchmark_") and option not in names_of("option"):
                unknown(option, command)
            if not equals:
                continue
        if option == "--grid":
            grids = sorted(path.stem for path in (ROOT / "experiments" / "grids").glob("*.grid"))
            if value not in grids and not Path(value).is_file():
                refuse(f"unknown grid '{value}': no such file, and the built-in grids are {' '.join(grids)}")
        if option == "--output":
            check_output(value, new=True)
        elif option == "--resume":
            check_resume(value)
        elif option in ("--n", "--rows", "--elements"):
            check_counts(option, value)
        for name in value.split(",") if option in known else ():
            if name not in known[option]:
                refuse(f"unknown {option[2:]} '{name}'; known: {' '.join(known[option])}")
        option = ""


def check_preset(name: str) -> None:
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["testPresets"]
    known = [preset["name"] for preset in presets if not preset.get("hidden")]
    if name not in known:
        refuse(f"unknown preset '{name}'; known: {' '.join(known)}")


# --- commands --------------------------------------------------------------------------------------------------------


def measured(program: Path, *arguments: str) -> tuple[str, Path, bool]:
    """Runs a program that prints a table and, last, its results folder. Returns the table, the folder, and whether all
    results were right: the program fails, after writing everything, when one was wrong, and the report shows which."""
    done = run([program, *arguments], cwd=ROOT, stdout=subprocess.PIPE)
    table, _, results = done.stdout.rstrip("\n").rpartition("\n")
    if not results:
        fail(f"{program.name} measured nothing; its message is above.")
    return table, ROOT / results, done.returncode == 0


def finish(passed: bool, python: str | None, results: Path, *more: str) -> int:
    """The report, whose path is the last line; without Python's packages the results folder is."""
    if not passed:
        say("some results are wrong (above); do not trust the variants that they name.")
    if python is None:
        say(f"the report is not made, as it lacks the Python packages (above); later './testbed report {results}' makes it.")
        print(results, flush=True)
        return 1
    code = analysis(python, "report", "--allow-dirty", results, *more).returncode
    return code or int(not passed)


def nearest_to_limit(table: Path) -> str:
    """The row nearest to its limit, in words. What seems to beat a copy by over 5 % says that the copy was disturbed."""
    with table.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["status"] == "ok" and 0 < float(row["fraction_of_limit"] or 0) <= 1.05]
    if not rows:
        return ""
    best = max(rows, key=lambda row: float(row["fraction_of_limit"]))
    problem = "{variant} on {dtype}/n{n}/r{rows} ({mode})".format(**best)
    return f"nearest to the limit: {problem}, {100 * float(best['fraction_of_limit']):.0f} % of a copy"


def usual_preset() -> str:
    """Without a GPU the one that compiles no kernels, which take most of the time of a build."""
    return "release" if has_gpu() else "host"


def command_run(arguments: list[str]) -> int:
    """Usage: ./testbed run [--grid NAME|FILE] [--output DIR] [--variant NAME]...

    Builds what this machine can run (without a GPU the host variants alone), checks every variant on small problems, runs the
    sweep (which checks every result before timing it) and the accuracy summary, prints a table and writes a self-contained
    HTML report; without a GPU those of an H100 and an H200 stand beside this machine's. The last line is the path of the report.

      --grid NAME     problem sizes of the sweep, any grid of experiments/README.md (default quick: about a minute)
      --output DIR    the results folder to make (default results/<time>_<commit>_<device>)
      --variant NAME  only this variant; may be repeated (default: all)
    """
    asked = parse("run", arguments, one=("--grid", "--output"), many=("--variant",))
    check_output(asked.output, new=True)
    grid = asked.grid or "quick"
    check_room(1500)
    gpu = has_gpu()
    if gpu:
        say(f"builds all variants (20 minutes on two cores, 4 on sixteen), checks them, times the {grid} grid, writes a report; 1 GB of disk.")
    else:
        say(f"no CUDA device: builds what runs on the host (5 minutes on two cores, less with more), checks it, times the {grid} grid, "
            "and writes a report beside those of an H100 and an H200; 0.6 GB of disk.")  # fmt: skip
    environment("tools")
    say_origin()
    python = python_or_none()
    # While the build runs: what an H100 and an H200 measured, for whoever has neither.
    others: list[str] = []
    report = threading.Thread(target=report_of_others, args=(python, others), daemon=True)
    if not gpu and python:
        report.start()
    directory = configure(usual_preset(), f"-DFWHT_PYTHON={python or 'python3'}")
    build(directory, "fwht_sweep", "fwht_accuracy", "conformance_test")
    if not gpu and python:
        report.join()

    sweep, variants = directory / "experiments" / "fwht_sweep", options(asked, "variant")
    if (code := run([sweep, "--grid", grid, *variants, "--dry-run"], stdout=subprocess.DEVNULL).returncode) != 0:
        return code  # what is left is refused before any work
    say("what the variants support on this machine")
    run([sweep, "--list"])
    say("checking every variant on small problems (./testbed test has the whole suite)")
    passed = run_ctest(directory, "-R", r"^Sanitize(Host|Gpu)\.") == 0
    say(f"timing the {grid} grid")
    say_load()
    table, results, right = measured(sweep, "--grid", grid, *options(asked, "output"), *variants)
    shutil.copy(directory / "tests.csv", results)
    say("measuring accuracy")
    accurate = run([directory / "experiments" / "fwht_accuracy", "--output", results, *variants]).returncode == 0
    print("", table, nearest_to_limit(results / "results.csv"), sep="\n", flush=True)
    for line in others:  # said among the lines of the build before
        say(line)
    return finish(passed and right and accurate, python, results, *(() if gpu else ("--committed",)))


def python_or_none() -> str | None:
    """Only the report needs Python's packages; the script has said why they cannot be had."""
    try:
        return find_python()
    except SystemExit as end:
        if end.code != 1:  # ctrl-C
            raise
    say("without them everything runs but the report.")
    return None


def report_of_others(python: str, said: list[str]) -> None:
    command = [python, "-m", "analysis", "report", "--output", str(BUILD / "reports" / "committed" / "report.html")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        said.append(f"the report of an H100 and an H200: {done.stdout.splitlines()[-1]}")
        say(said[0])


def command_test(arguments: list[str]) -> int:
    """Usage: ./testbed test [--preset NAME] [-R REGEX] [-L LABEL] [-E REGEX]

    Builds and runs every test with ctest; fails when no test was found. Ends with ctest's own summary and how many tests ran
    and why others were skipped. The status and the time of every test are in build/<preset>/tests.csv.

      --preset NAME   a preset of CMakePresets.json: release (everything; default where there is a GPU), host (no CUDA;
                      default where there is none), ci (everything, warnings are errors; default where the environment has
                      CI=true), sanitize (host code under the address and undefined-behaviour sanitizers), thread (the
                      thread sanitizer)
      -R, -E, -L      as in ctest: only / not the tests whose name matches; only those with the label (host, gpu). A -R that
                      no test's name matches finds cases inside them: a case of a pytest file, or of a GPU program
    """
    asked = parse("test", arguments, one=("--preset",), many=("-R", "-E", "-L"))
    in_ci, preset = os.environ.get("CI") == "true", asked.preset
    if preset:
        check_preset(preset)
    check_room(1500)
    if not preset:
        preset = "ci" if in_ci else usual_preset()
        if preset == "host":
            say("no CUDA device: kernels are not compiled, tests of them are left out; ./testbed test --preset release compiles them.")
    minutes, room = {"release": (55, "1 GB"), "ci": (40, "2 GB")}.get(preset, (12, "0.7 GB"))
    say(f"a first build and test takes about {minutes} minutes on two cores, less with more, and {room} of disk.")
    environment("tools")
    say_origin()
    try:
        python = find_python("tests")
    except SystemExit as end:
        if in_ci or end.code != 1:  # interrupted
            raise
        python = "python3"
    # Tests of the report look at it in a browser; outside of CI they are skipped where there is none.
    if in_ci and not have("chromium"):
        try:
            environment("chromium")
        except SystemExit as end:
            if end.code != 1:
                raise
            say("without chromium the tests of the report in a browser are skipped.")
    directory = configure(preset, f"-DFWHT_PYTHON={python}")
    build(directory)
    selection = [word for name in "REL" for regex in getattr(asked, name) for word in (f"-{name}", regex)]
    if asked.R and not list_tests(directory, selection):  # a name that no ctest test has may be that of a case inside one
        code = run_cases(directory, list_tests(directory), asked.R[-1])
        if code is None:
            fail(f"no test and no case of one is named like '{asked.R[-1]}'; ctest --test-dir {directory} -N lists the tests.")
        return code
    return run_ctest(directory, *selection)


def command_sweep(arguments: list[str]) -> int:
    """Usage: ./testbed sweep [ARGUMENTS of fwht_sweep]

    Builds what this machine can run (without a GPU the host variants alone) and times variants over a grid of problems;
    every result is checked before it is timed.
    `./testbed sweep -- --help` lists the arguments of fwht_sweep.
    """
    arguments = arguments[arguments[:1] == ["--"] :]
    if "-h" in arguments or "--help" in arguments:
        for preset in ("release", "host"):  # asked of a program that is there; help never builds
            program = BUILD / preset / "experiments" / "fwht_sweep"
            if os.access(program, os.X_OK):
                return run([program, "--help"]).returncode
        print(usage(command_sweep))
        say("fwht_sweep is not built yet: './testbed sweep --list' builds it, and then lists its arguments here.")
        return 0
    check_selection("sweep", arguments)
    check_room(1500)
    environment("tools")
    directory = configure(usual_preset())
    build(directory, "fwht_sweep")
    return run([directory / "experiments" / "fwht_sweep", *arguments]).returncode


def command_tune(arguments: list[str]) -> int:
    """Usage: ./testbed tune [--output FILE.csv] [--resume RESULTS]

    Measures on this device what the variant `auto` chooses by: its candidates over the grid `tune` (some minutes on an
    H200), every result checked before it is timed. Writes a results folder and, from it, the tuning table; the last line is
    the path of the table. The environment variable FWHT_TUNING=FILE.csv makes `auto` use it. Needs a CUDA device.

      --output FILE   the table (default build/tuning/<results folder>.csv)
      --resume DIR    the results folder of a run that was stopped: what it has is not measured again
    """
    asked = parse("tune", arguments, one=("--output", "--resume"))
    if asked.output:
        check_output(os.path.dirname(asked.output))
    need_gpu("tune")
    environment("tools")
    python = find_python()
    directory = configure("release", f"-DFWHT_PYTHON={python}")
    build(directory, "fwht_sweep")
    results = measured_to_tune(directory / "experiments" / "fwht_sweep", asked.resume, "--grid", "tune", "--variant",
                               "mma_split,butterflies,wgmma,warp_shuffle,passes,naive,kronecker,mma_kronecker,warp_kronecker,factors,matmul")  # fmt: skip
    table = asked.output or BUILD / "tuning" / f"{results.name}.csv"
    return analysis(python, "tune", "--allow-dirty", results, "--output", table).returncode


def measured_to_tune(sweep: Path, resume: str | None, *selection: str) -> Path:
    """The results folder of a sweep but for candidates that are slow where others are known to be fast. With a filter standard output is
    Google Benchmark's report, so the folder is named here; the report shows how far it is, and goes where progress does."""
    results = Path(resume) if resume else ROOT / "results" / time.strftime("%Y%m%dT%H%M%SZ_tune", time.gmtime())
    place = ["--resume" if resume else "--output", str(results)]
    done = run([sweep, *selection, "--benchmark_filter=-^(matmul/[a-z0-9]+/n|naive/[a-z0-9]+/([0-9]|n[0-9][0-9]))", *place], cwd=ROOT, stdout=2)
    if done.returncode:
        goes_on = f", and --resume {results} goes on with what is there" if (results / "context.json").exists() else ""
        fail(f"the measurement failed; its message is above{goes_on}.")
    return results


def command_accuracy(arguments: list[str]) -> int:
    """Usage: ./testbed accuracy [--output DIR] [--variant NAME]...

    The whole error analysis: every variant against FP64 on twelve kinds of input at n = 2 .. 65536, probes of the tensor
    cores, overflow by place of the scale, quantization with and without rotation, FlashAttention-3's FP8 table; then the
    report. Under four minutes on an H200. Without a GPU its variants are emulated bit for bit on the host where that is
    possible (rows marked "emulated"), with predictions for an A100. The last line is the path of the report.

      --output DIR    the results folder to make or to continue (default results/<time>_<commit>_<device>)
      --variant NAME  only this variant; may be repeated (default: all)
    """
    asked = parse("accuracy", arguments, one=("--output",), many=("--variant",))
    check_output(asked.output)
    environment("tools")
    python = find_python()
    directory = configure("release", f"-DFWHT_PYTHON={python}")
    build(directory, "fwht_accuracy", "fwht_studies")
    programs, variants = directory / "experiments", options(asked, "variant")
    say("error of every variant against FP64")
    table, results, right = measured(programs / "fwht_accuracy", "--analysis", "--a100", *options(asked, "output"), *variants)
    print(table, flush=True)
    say("tensor cores, overflow, quantization, attention")
    studied = run([programs / "fwht_studies", "--output", results, *variants]).returncode == 0
    return finish(right and studied, python, results)


def command_report(arguments: list[str]) -> int:
    """Usage: ./testbed report [RESULTS...] [--output FILE.html]

    Makes one self-contained HTML page from results folders, to look at, filter and compare; several devices and commits stand
    side by side. Without folders: from the newest committed ones. Needs no GPU. The last line is its path.
    """
    return analysis(find_python(), "report", *arguments).returncode


def command_compare(arguments: list[str]) -> int:
    """Usage: ./testbed compare A B... [--threshold SHARE] [--output FILE.csv] [--all]

    Speed-up of each results folder over the first. Exit code 1: something is slower than in A by more than the threshold (default
    0.05) and beyond what its repetitions differ by, or is no longer correct. Needs no GPU.
    """
    return analysis(find_python(), "compare", *arguments).returncode


def command_which(arguments: list[str]) -> int:
    """Usage: ./testbed which --n N --rows ROWS [--dtype TYPE] [--encoding TEXT] [--device NAME] [--json] [RESULTS...]

    Which variant is best for one problem, how long it takes, how far it is from the limit, how exact it is: from the committed
    results that measured the nearest number of rows, the newest first, or from the folders named. The last line says what `auto`
    takes on that device and by which tuning table. Needs no GPU.

      --device NAME   only results of this device: h100, h200 (words of its name)
    """
    return analysis(find_python(), "which", *arguments).returncode


STUDIES = ("occupancy", "coalescing", "stalls", "roofline", "static", "all")


def command_profile(arguments: list[str]) -> int:
    """Usage: ./testbed profile [--variant NAME]... [--n N]... [--dtype TYPE]... [--rows N]... [--study NAME]...

    Runs Nsight Compute over one launch of every variant on the grid `quick` or on what is asked
    for, writes profile.csv and static.csv into a results folder, and prints one table per study. The last line is the folder.

      --study NAME    occupancy, coalescing, stalls, roofline (ncu and a CUDA device needed), static (registers, spills and
                      instruction mix by cuobjdump; needs no GPU) or all (default); may be repeated
      --variant, --n, --dtype, --rows, --grid, --problem   as for the sweep; --rows replaces the grid's row counts
      --output DIR    the results folder to make (default results/<time>_<commit>_<device>)
      --resume DIR    a results folder of the same build, a sweep's for example, to add the profile to
    """
    selecting = ("study", "variant", "n", "dtype", "rows", "grid", "problem")
    asked = parse("profile", arguments, one=("--output", "--resume"), many=[f"--{name}" for name in selecting])
    for study in asked.study:
        if study not in STUDIES:
            refuse(f"unknown study '{study}'; known: {' '.join(STUDIES)}")
    check_output(asked.output, new=True)
    if any(study != "static" for study in asked.study or ["all"]):
        need_gpu_tool("ncu")
    environment("tools")
    python = find_python()
    directory = configure("profile", f"-DFWHT_PYTHON={python}")
    build(directory, "fwht_profile")
    program = directory / "experiments" / "fwht_profile"
    return analysis(python, "profile", "--program", program, *options(asked, *selecting, "output", "resume"), cwd=ROOT).returncode


# The programs with tests SanitizeGpu.*, and which of their variants call cuBLASLt: its kernels read what its split-K kernels
# leave unwritten, and take minutes under two of the tools.
SANITIZED = {
    "conformance_test": ("matmul",),
    "transform_test": (),
    "linear/linear_conformance_test": ("auto", "dense_fp16", "dequantize_then_dense"),
}
# True: with them. The longest one begins, so that the others fill the processes that it leaves idle towards its end.
SANITIZERS = {"racecheck": False, "initcheck": False, "memcheck": True, "synccheck": True}
# Tests that a tool leaves out, and why: memcheck alone has all. Racecheck takes most of the time: it follows each access of a cluster.
KERNELS_OF_OTHER_TYPES = {
    "bf16, whose kernels are those of f16 with other conversions": ("*/bf16/*",),
    "integers, whose kernels are those of floating point with other additions": ("*/i32/*", "*/i64/*"),
}
SPARED: dict[str, dict[str, tuple[str, ...]]] = {
    "racecheck": KERNELS_OF_OTHER_TYPES
    | {
        "factors of fp32, whose kernels are those of f16 with other loads and stores": ("factors/f32/*",),
        "rotate_then_quantize of fp32, which rotates by passes and butterflies and quantizes as of 16 bits": ("rotate_then_quantize/f32/*",),
    },
    "initcheck": KERNELS_OF_OTHER_TYPES
    | {
        "rotate_then_quantize of 16 bits, whose workspace tensor copies write, which the tool does not see": (
            "rotate_then_quantize/f16/*",
            "rotate_then_quantize/bf16/*",
        ),
    },
    "synccheck": KERNELS_OF_OTHER_TYPES
    | {
        "fp64 on one multiprocessor, where more than eight clusters of 16 blocks run, at which the tool's own code fails": (
            "passes/f64/OneMultiprocessor",
            "passes/f64/WithoutL2",
        ),
    },
}
SANITIZER_SECONDS = 600
SHARDS_OF_A_PROCESS = 4  # a test takes one second or, under racecheck, sixty


class Sanitized(NamedTuple):
    """The tests of a program under one of the tools, but for those of the patterns."""

    program: Path
    tool: str
    left_out: tuple[str, ...] = ()


def command_sanitize(arguments: list[str]) -> int:
    """Usage: ./testbed sanitize

    Runs compute-sanitizer's memcheck, synccheck, racecheck and initcheck over small problems: the conformance tests of transforms
    and of linear layers, and Walsh spectra, convolutions and sketches. Up to 16 processes at once (logs in the build folder);
    racecheck and initcheck leave out the variants that call cuBLASLt, and all but memcheck something more; they say what and why.
    Needs compute-sanitizer and a CUDA device; exit code 2 without.
    """
    parse("sanitize", arguments)
    need_gpu_tool("compute-sanitizer")
    environment("tools")
    directory = configure("release")
    build(directory, *(Path(name).name for name in SANITIZED))
    if bad := sanitize(to_sanitize(directory / "variants"), directory / "sanitize", min(16, cores())):
        print(bad.read_text(errors="replace")[-8000:], flush=True)
        fail(f"{bad.name.split('.')[1]} reports errors or took longer than {SANITIZER_SECONDS} s ({bad}).")
    return 0


def to_sanitize(programs: Path) -> list[Sanitized]:
    """Every program of the folder under every tool, the tool that takes longest first; says what is left out."""
    work = []
    for tool, with_all in SANITIZERS.items():
        spared = SPARED.get(tool, {})
        for why in spared:
            say(f"compute-sanitizer {tool} leaves out {why}")
        for name, of_cublaslt in SANITIZED.items():
            left_out = () if with_all else of_cublaslt
            without = f", without {', '.join(left_out)}, whose kernels are cuBLASLt's" if left_out else ""
            say(f"compute-sanitizer {tool}, {Path(name).name}{without}")
            patterns = (*(f"{variant}/*" for variant in left_out), *(test for tests in spared.values() for test in tests))
            work.append(Sanitized(programs / name, tool, patterns))
    return work


def sanitizer_shards(work: Sanitized, logs: Path, processes: int) -> list[tuple[Path, list[str | Path], dict[str, str]]]:
    """Log, command and what it adds to the environment, for each part of the tests."""
    program, tool, left_out = work
    tests = "--gtest_filter=SanitizeGpu.*" + ("-" + ":".join(f"SanitizeGpu.{pattern}" for pattern in left_out) if left_out else "")
    command: list[str | Path] = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "1", program, tests]
    count = run([program, tests, "--gtest_list_tests"], stdout=subprocess.PIPE).stdout.count("\n  ")
    if count == 0:
        fail(f"{program.name} has no test SanitizeGpu.*.")
    shards = min(SHARDS_OF_A_PROCESS * processes, count)  # one without a test calls no driver, which the tool takes for an error
    return [(logs / f"{program.name}.{tool}.{i}.log", command, {"GTEST_TOTAL_SHARDS": str(shards), "GTEST_SHARD_INDEX": str(i)}) for i in range(shards)]


def sanitize(all_work: Sequence[Sanitized], logs: Path, processes: int) -> Path | None:
    """The log of the first shard that did not end well, if one did not; so many of them run at once, of any tool. Says when a tool is done."""
    logs.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    waiting = [(work.tool, *shard) for work in all_work for shard in sanitizer_shards(work, logs, processes)]
    left = Counter(tool for tool, *_ in waiting)
    running: dict[Path, tuple[str, subprocess.Popen]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                tool, file, command, shard = waiting.pop(0)
                with file.open("w") as log:
                    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=os.environ | shard, start_new_session=True)
                running[file] = tool, process
            time.sleep(0.05)
            for file, (tool, process) in list(running.items()):
                code = process.poll()
                if code is None and time.monotonic() < begin + SANITIZER_SECONDS:
                    continue
                if code not in (0, 77):  # 77: all of it was skipped; None: it is out of time
                    return file
                del running[file]
                left[tool] -= 1
                if not left[tool]:
                    say(f"{tool} is clean ({time.monotonic() - begin:.0f} s)")
    finally:
        for _, process in running.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what it runs, too
    return None


def command_wheel(arguments: list[str]) -> int:
    """Usage: ./testbed wheel [--host] [--platform TAG]

    Builds the wheel of fwht (with CUDA where nvcc is) and that of the stand-in for fast_hadamard_transform, repairs the first
    with auditwheel, checks its platform, its size and what it brings, installs both into an empty environment and runs a smoke
    test there. The folder dist/ has the wheels, and in dist/kernels what kernels.get_local_kernel(Path("dist/kernels"))
    loads. The last line is the path of the wheel.

      --host          without CUDA, even where nvcc is
      --platform TAG  the oldest systems that it is for (default manylinux_2_34_<machine>); a library that asks for newer ones fails
    """
    asked = parse("wheel", arguments, one=("--platform",), flags=("--host",))
    check_room(1500)
    environment("tools")
    made = wheel.make(asked.platform or f"manylinux_2_34_{os.uname().machine}", have("nvcc") and not asked.host)
    print(made)
    return 0


def command_check(arguments: list[str]) -> int:
    """Usage: ./testbed check [--all] [--install] [TOOL]...

    What must hold before a commit, in under a minute and without a build: clang-format, clang-tidy, ruff, mypy, shellcheck,
    sentences (none of more than 40 words in pages and comments, comments within 110 columns),
    type-names (one owner each, docs/type_names.csv). Names of them run only these.

    Looks at what differs from the last commit, or at the last commit where nothing does; ruff, mypy and clang-format look at
    everything. Exit code 1: a check failed; 2: none failed, but a tool is missing.

      --all           all pages and scripts, and clang-tidy over all sources (many minutes)
      --install       first gets what is missing: by apt, ruff and mypy into build/venv
    """
    asked = parse("check", arguments, flags=("--all", "--install"), rest=True)
    for tool in asked.rest:
        if tool not in checks.TOOLS:
            unknown(tool, "check")
    return checks.main(asked.rest or list(checks.TOOLS), everything=asked.all, install=asked.install)


COMMANDS = {name.removeprefix("command_"): function for name, function in list(globals().items()) if name.startswith("command_")}


def usage(command) -> str:
    return "\n".join(line.removeprefix("    ") for line in command.__doc__.rstrip().splitlines())


def help_text() -> str:
    """Usage: ./testbed COMMAND [ARGUMENTS]

      run        build, check, time the quick grid, write a report: start here
      test       build and run all tests
      sweep      time variants over a grid of problems
      accuracy   the whole error analysis, and a report of it
      tune       measure on this device what the variant auto chooses by
      report     make a page from results folders, to look at, filter and compare
      compare    speed-up of one results folder over another, also useful in your CI
      which      which variant for one problem
      profile    run Nsight Compute over the variants
      sanitize   run compute-sanitizer over the kernels
      wheel      build, check and try wheels for other machines
      check      formatters and linters over what changed, before a commit
      help       this text

    Each command explains itself with --help. What is missing on this machine (packages of apt, Python packages into
    build/venv) is installed on the first call; a later call installs nothing.
    """
    return usage(help_text)
