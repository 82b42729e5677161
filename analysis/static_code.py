"""The compiled code, without a GPU: registers, spills, shared memory and instruction mix of every kernel.

`cuobjdump` (of the CUDA toolkit) lists resources and machine code of a program; `static.csv` keeps a row a
kernel. Counts are of instructions in the code: a kernel without loops executes each at most once a thread.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from .load import ResultsError, load_context, writing
from .ncu import demangled

# Class -> opcodes (SASS, up to the first dot) by pattern; the first that matches counts.
CLASSES = {
    "tensor": r"HMMA|HGMMA|IMMA|QGMMA|BMMA|DMMA",
    "shuffle": r"SHFL",
    "shared": r"LDS|STS|LDSM|STSM|ATOMS",
    "global": r"LDG(?:STS)?|STG|LD|ST|RED|ATOMG?|UBLKCP|UTMALDG|UTMASTG",
    "local": r"LDL|STL",
    "fp32": r"FADD|FMUL|FFMA",
    "convert": r"F2FP?|F2F|I2F|F2I|HADD2|HMUL2|HFMA2",
    "logic": r"U?(PRMT|F?SEL|LOP3|SHF|PLOP3)",
    "integer": r"U?(IADD3|LEA|ISETP|IMAD)|VIADD",
    "move": r"U?MOV|CS2R|S2U?R|U?LDC|R2UR|R2P|P2R",
    "barrier": r"BAR|SYNCS|WARPSYNC|MEMBAR|FENCE|(?:LDG)?DEPBAR|WARPGROUP|UCGABAR_ARV|UCGABAR_WAIT",
}
COLUMNS = ("variant", "kernel", "symbol", "arch", "registers", "stack_bytes", "shared_bytes", "local_bytes",
           "instructions", "loops", *CLASSES, "other")  # fmt: skip
_RESOURCES = {"registers": "REG", "stack_bytes": "STACK", "shared_bytes": "SHARED", "local_bytes": "LOCAL"}
_FUNCTION = re.compile(r"^\s*Function : (\S+)")
_ARCH = re.compile(r"^arch = (sm_\w+)")
_SOURCE = re.compile(r"^identifier = (\S+)")
_CODE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)([^;]*);")
_USAGE = re.compile(r"(\w+):(\d+)")


def classify(opcode: str) -> str:
    return next((name for name, pattern in CLASSES.items() if re.fullmatch(pattern, opcode)), "other")


def find_cuobjdump(folder: Path | None) -> str | None:
    """In `folder` when it is given; else on PATH or where the toolkit lies."""
    if folder is not None:
        return shutil.which("cuobjdump", path=str(folder))
    return shutil.which("cuobjdump") or shutil.which("cuobjdump", path="/usr/local/cuda/bin")


def parse_resources(lines: Iterable[str]) -> dict[tuple[str, str], dict[str, int]]:
    """(arch, symbol) -> REG, STACK, SHARED, LOCAL of `cuobjdump --dump-resource-usage`."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    arch = symbol = ""
    for line in lines:
        if match := _ARCH.match(line):
            arch = match[1]
        elif match := re.match(r"^\s*Function (\S+):", line):
            symbol = match[1]
        elif symbol and "REG:" in line:
            found[arch, symbol] = {name: int(value) for name, value in _USAGE.findall(line)}
            symbol = ""
    return found


@dataclass
class Code:
    """The machine code of one kernel."""

    arch: str
    source: str
    symbol: str
    counts: Counter = field(default_factory=Counter)
    loops: int = 0  # branches backwards


def parse_code(lines: Iterable[str]) -> Iterator[Code]:
    """The kernels of `cuobjdump --dump-sass`."""
    arch = source = ""
    code: Code | None = None
    for line in lines:
        if match := _ARCH.match(line):
            arch, source = match[1], ""
        elif match := _SOURCE.match(line):
            source = match[1]
        elif match := _FUNCTION.match(line):
            if code:
                yield code
            code = Code(arch, source, match[1])
        elif code and (match := _CODE.match(line)):
            _count(code, int(match[1], 16), match[2], match[3])
    if code:
        yield code


def _count(code: Code, address: int, opcode: str, rest: str) -> None:
    if opcode == "NOP":
        return
    target = re.search(r"0x([0-9a-f]+)", rest) if opcode == "BRA" else None
    if target and int(target[1], 16) == address:
        return  # the end of every function: a branch to itself
    if target and int(target[1], 16) < address:
        code.loops += 1
    code.counts["move" if rest.startswith(".MOV") else classify(opcode)] += 1


def static_table(program: Path, tool: str) -> pd.DataFrame:
    """One row a kernel of the program."""
    resources = parse_resources(_output(tool, "--dump-resource-usage", program).splitlines())
    rows = []
    for code in parse_code(_output(tool, "--dump-sass", program).splitlines()):
        usage = resources.get((code.arch, code.symbol), {})
        row: dict[str, str | int | None] = {"variant": variant_of(code.source), "symbol": code.symbol, "arch": code.arch}
        row |= {column: usage.get(name) for column, name in _RESOURCES.items()}
        row |= {"instructions": code.counts.total(), "loops": code.loops}
        rows.append(row | {name: code.counts[name] for name in (*CLASSES, "other")})
    table = pd.DataFrame(rows, columns=[c for c in COLUMNS if c != "kernel"])
    table.insert(1, "kernel", demangled(table["symbol"]))
    return table


def variant_of(source: str) -> str:
    """The folder of variants/ that a source lies in; "" for any other source."""
    match = re.search(r"(?:^|/)variants/(\w+)/", source)
    return match[1] if match else ""


def _output(tool: str, option: str, program: Path) -> str:
    done = subprocess.run([tool, option, str(program)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ResultsError(f"cuobjdump {option} failed on {program.name}: {done.stderr.strip() or 'no message'}")
    return done.stdout


def run_static(program: Path, folder: Path | None, tools: Path | None) -> None:
    """Writes static.csv for the program and its Kokkos module; says why when it cannot."""
    tool = find_cuobjdump(tools)
    if tool is None:
        print("no static study: cuobjdump was not found on PATH or in /usr/local/cuda/bin; it comes with the "
              "CUDA toolkit", file=sys.stderr)  # fmt: skip
        return
    if folder is None:
        raise ResultsError("the static study alone needs --output: the folder for static.csv")
    refuse_other_sources(program, folder)
    tables = [static_table(program, tool)]
    for module in sorted(program.parent.parent.glob("kokkos_modules/*cuda*.so")):
        tables.append(static_table(module, tool).assign(variant="kokkos_cuda"))
    folder.mkdir(parents=True, exist_ok=True)
    with writing(folder):
        pd.concat(tables, ignore_index=True).to_csv(folder / "static.csv", index=False)


def refuse_other_sources(program: Path, folder: Path) -> None:
    """A results folder takes the code of its own build only: programs carry the hash of their sources."""
    if not (folder / "context.json").is_file():
        return
    wanted = load_context(folder)["sources_hash"]
    if wanted.encode() not in program.read_bytes():
        raise ResultsError(f"{program.name} was built from other sources than {folder.name} (sources_hash {wanted[:12]})")


def load_static(folder: Path) -> pd.DataFrame | None:
    """None when the folder has none."""
    file = Path(folder) / "static.csv"
    if not file.is_file():
        return None
    try:
        table = pd.read_csv(file)
    except (OSError, ValueError) as error:
        raise ResultsError(f"{Path(folder).name}: static.csv cannot be read: {error}") from None
    lacking = [c for c in COLUMNS if c not in table]
    if lacking:
        raise ResultsError(f"{Path(folder).name}: static.csv lacks column {', '.join(lacking)}")
    numbers = [c for c in COLUMNS if c not in ("variant", "kernel", "symbol", "arch")]
    if wrong := [c for c in numbers if table[c].dtype.kind not in "if"]:
        raise ResultsError(f"{Path(folder).name}: static.csv has text in column {wrong[0]}")
    return table.fillna({"variant": "", "kernel": ""})
