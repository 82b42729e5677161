"""Nsight Compute around fwht_profile: which metrics a study needs, the run, and what comes back as a table.

The profiler's rows are attributed by their order: fwht_profile writes how many kernels every problem launched
(`launches.csv`), in the order of the launches. A profile is `profile.csv` in the results folder, one row a
kernel with the metrics under the profiler's own names in base units, and `profile.json`: the profiler's
version, the studies, and every metric that this version did not give.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from .load import ResultsError, writing

ASKED = tomllib.loads((Path(__file__).parent / "metrics.toml").read_text(encoding="utf-8"))
STALLS, COMMON = (tuple(ASKED[name]) for name in ("stalls", "common"))
METRICS = {study: tuple(m.format(reason=reason) for m in metrics for reason in (STALLS if "{" in m else ("",)))
           for study, metrics in ASKED["studies"].items()}  # fmt: skip
STUDIES = tuple(METRICS)
BASE_UNITS = {"gpu__time_duration.sum": ("ns", "nsecond"), "dram__bytes_read.sum": ("byte",),
              "l1tex__m_xbar2l1tex_read_bytes.sum": ("byte",)}  # fmt: skip


def metrics_of(studies: Iterable[str]) -> list[str]:
    """The profiler's names, each once, in the order of the tables above."""
    names = [*COMMON, *(name for study in STUDIES if study in set(studies) for name in METRICS[study])]
    return list(dict.fromkeys(names))


def parse_ncu(text: str) -> tuple[list[dict[str, str]], dict[str, str]]:
    """Rows and units of `ncu --csv --page raw`; its remarks around the table are skipped. ResultsError for a table that was cut off."""
    listing = "\n".join(line for line in text.splitlines() if line.startswith('"'))
    try:
        lines = list(csv.reader(io.StringIO(listing), strict=True))
    except csv.Error as error:
        raise ResultsError(f"ncu's table cannot be read: {error}") from None
    if len(lines) < 2 or "Kernel Name" not in lines[0]:
        return [], {}
    header, units, *rows = lines
    for i, line in enumerate(lines, 1):
        if len(line) != len(header):
            raise ResultsError(f"line {i} of ncu's table has {len(line)} fields, its header {len(header)}")
    return [dict(zip(header, row, strict=True)) for row in rows], dict(zip(header, units, strict=True))


def number(text: str) -> float:
    """A value as ncu prints it ("1,234.5"); NaN for none ("", "n/a", "nan")."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return float("nan")


def identity(launches: pd.DataFrame) -> list[str]:
    """The columns of launches.csv that say which problem a kernel belongs to; profile.csv repeats them."""
    return [column for column in launches.columns if column not in ("kernels", "settings")]


def profile_table(text: str, launches: pd.DataFrame, metrics: list[str]) -> tuple[pd.DataFrame, list[str]]:
    """One row a kernel, and the metrics that are nowhere to be had.

    Throws ResultsError when kernels and launches do not match or a unit is not the base unit.
    """
    rows, units = parse_ncu(text)
    expected = int(launches["kernels"].astype(int).sum())
    if len(rows) != expected:
        raise ResultsError(f"ncu saw {len(rows)} kernels, fwht_profile launched {expected}")
    for name, allowed in BASE_UNITS.items():
        if units.get(name) and units[name] not in allowed:
            raise ResultsError(f"ncu gives {name} in {units[name]}, not in {allowed[0]}")
    owners = [launch for launch in launches.to_dict("records") for _ in range(int(launch["kernels"]))]
    table, problem = [], identity(launches)
    for row, owner in zip(rows, owners, strict=True):
        entry: dict[str, object] = {key: owner[key] for key in problem}
        entry["symbol"] = row["Kernel Name"]
        entry |= {name: number(row.get(name, "")) for name in metrics}
        table.append(entry)
    frame = pd.DataFrame(table, columns=[*problem, "symbol", *metrics])
    missing = [name for name in metrics if frame[name].isna().any()]
    frame.insert(len(problem), "kernel", demangled(frame["symbol"]))
    return frame, missing


def demangled(symbols: Iterable[str]) -> list[str]:
    """Readable names by c++filt; the symbols themselves where it is missing."""
    symbols = list(symbols)
    tool = shutil.which("c++filt")
    if tool is None or not symbols:
        return symbols
    done = subprocess.run([tool], input="\n".join(symbols), capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    return [short_name(line) for line in lines] if len(lines) == len(symbols) else symbols


def short_name(name: str) -> str:
    """Without return type, parameters and namespaces: "transform<10, 4>". Of Kokkos' launchers, the functor."""
    name = re.sub(r"\(anonymous namespace\)::", "", name)
    if functor := re.search(r"Kokkos::Impl::ParallelFor<(fwht::.*), Kokkos::TeamPolicy", name):
        name = functor[1]
    depth, end = 0, len(name)
    for i, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">" and name[i - 1] != "-")
        if letter == "(" and depth == 0:
            end = i
            break
    name = name[:end].removeprefix("void ")
    head, angle, rest = name.partition("<")
    return head.rsplit("::", 1)[-1] + angle + re.sub(r"\bfwht::(\w+::)*", "", rest)


# --------------------------------------------------------------------------------------------------- the run


def find_tool(name: str) -> str | None:
    """On PATH or where the CUDA toolkit puts it."""
    return shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")


def why_denied(output: str) -> str:
    """One sentence for a run of ncu that gave no counters; empty when it knows no reason."""
    if "ERR_NVGPUCTRPERM" in output:
        return (
            "the driver gives hardware counters to administrators only (ERR_NVGPUCTRPERM): run as root, or load "
            "the module nvidia with NVreg_RestrictProfilingToAdminUsers=0 (in a container: add the capability "
            "SYS_ADMIN)"
        )
    if "LibraryNotLoaded" in output or "Failed to initialize the profiler" in output:
        return (
            "ncu could not initialise its profiler (the driver's profiling library is not there): this machine, "
            "often a virtual one, does not pass the hardware counters on"
        )
    if "ERR_NVCMPGPU" in output or "not supported on device" in output.lower():
        return "this version of ncu does not know this GPU; install the ncu of the driver's CUDA version"
    return ""


def run_ncu(program: Path, arguments: list[str], studies: list[str], output: Path | None, root: Path) -> Path:
    """Profiles into a results folder, which fwht_profile makes, and returns it. ResultsError, in a sentence."""
    ncu = find_tool("ncu")
    if ncu is None:
        raise ResultsError("ncu was not found on PATH or in /usr/local/cuda/bin; it comes with the CUDA toolkit")
    metrics = metrics_of(studies)
    target = [str(program), *arguments, *(["--output", str(output)] if output else [])]
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "ncu.csv"
        # Clocks are left alone: locking them needs rights that shared machines do not give. Caches too: the
        # L2-sized problems are about data that stay there.
        command = [
            ncu, "--clock-control", "none", "--cache-control", "none", "--profile-from-start", "off", "--csv",
            "--page", "raw", "--print-units", "base", "--print-kernel-base", "mangled", "--metrics",
            ",".join(metrics), "--log-file", str(log), *target,
        ]  # fmt: skip
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    folder = _made_folder(done, text, root)
    version = subprocess.run([ncu, "--version"], capture_output=True, text=True, check=False).stdout
    attach(folder, text, studies, version, time.monotonic() - start, done.returncode)
    return folder


def attach(folder: Path, text: str, studies: list[str], version: str, seconds: float, exit_code: int = 0) -> None:
    """profile.csv and profile.json from what ncu printed. What cannot be read is kept beside them as ncu.csv."""
    launches = pd.read_csv(folder / "launches.csv", dtype=str, keep_default_na=False)
    try:
        if denied := why_denied(text):
            raise ResultsError(denied)
        table, missing = profile_table(text, launches, metrics_of(studies))
    except ResultsError:
        (folder / "ncu.csv").write_text(text, encoding="utf-8")
        raise
    write_profile(folder, table, missing, studies, version, seconds, exit_code)


def _made_folder(done: subprocess.CompletedProcess, log: str, root: Path) -> Path:
    """The folder that fwht_profile printed. A program that falls after its run is complete has been measured."""
    lines = [line for line in done.stdout.splitlines() if line and not line.startswith("==")]
    folder = root / lines[-1] if lines else None
    context = folder / "context.json" if folder else None
    if folder and context and context.is_file() and json.loads(context.read_text(encoding="utf-8")).get("complete"):
        return folder
    why = why_denied(log + done.stdout + done.stderr)
    last = next((line for line in reversed((done.stderr + log).splitlines()) if line.strip()), "no message")
    raise ResultsError(why or f"ncu ended with exit code {done.returncode}: {last[:300]}")


def write_profile(
    folder: Path,
    table: pd.DataFrame,
    missing: list[str],
    studies: list[str],
    version: str,
    seconds: float,
    exit_code: int = 0,
) -> None:
    """profile.csv and profile.json; `version` is what `ncu --version` prints."""
    found = re.search(r"Version\s+(\S+)", version)
    about = {
        "ncu": found[1] if found else "unknown",
        "studies": list(studies),
        "metrics": [name for name in table.columns if "__" in name],
        "missing": missing,
        "kernels": len(table),
        "seconds": round(seconds, 1),
        "exit_code": exit_code,
        "clock_control": "none",
        "cache_control": "none",
    }
    with writing(folder):
        table.to_csv(folder / "profile.csv", index=False, float_format="%.10g")
        (folder / "profile.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
