"""What the compiler made of every kernel for sm_90a, by its machine code; needs no GPU.

    machine_code_test.py FILE...      programs, libraries or objects that hold the kernels

- No thread touches global memory on any way to its wait for the kernel before (griddepcontrol.wait, ACQBULK in machine code), but
  for packed weights, which that kernel does not write.
- No kernel has a stack frame, but for those that are named here, with the most that they may have.
- The registers of a block fit into a multiprocessor, and do not exceed what the launch bounds leave a thread.

`cuobjdump` comes with the CUDA toolkit, or with the packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm of PyPI. Exit code 77:
there is none, or no such kernel.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

SKIPPED = 77
REGISTERS_PER_SM = 65536
# Kernels by a pattern of their mangled names, with the bytes that they may have. What writes codes looks at a group of values twice, and
# keeps the group; plain rows of mma_split, butterflies, wgmma, hadacore and the like have no frame at all.
STACK_BYTES = {
    r"4fwht7factors": 24,  # any operator: its stages are a list
    r"4fwht20rotate_then_quantize": 112,
    r"4fwht9mma_split.*(LargestOfTensor|EncodedRows)": 1024,
    r"4fwht9mma_split.*RopedRows": 288,  # of the exact way; with eight vectors a lane up to six words wait outside on every way
    r"4fwht9kronecker": 128,  # several chunks of a row in registers: a few values wait outside
    r"4fwht6linear9pipelined": 32,
    r"4fwht6linear7prefill": 48,  # 168 registers a thread: a few values wait outside
}
READ_WEIGHTS_FIRST = ("4fwht6linear9pipelined",)  # packed weights, scales and the order of rows go out before the wait: they never change
# Tensor maps, which the launch itself brings along, and prefetches into the L2, which is coherent, touch no operand.
GLOBAL = re.compile(r"(LDG|STG|LD|ST|LDGSTS|RED|REDG|ATOM|ATOMG|UBLKCP|UBLKRED|UTMALDG|UTMASTG|UTMAREDG)$")
ENDS = re.compile(r"(EXIT|RET|BRX|JMX|JMP|KILL)$")
WAIT = "ACQBULK"

_ARCH = re.compile(r"^arch = (sm_\w+)")
_FUNCTION = re.compile(r"^\s*Function : (\S+)")
_CODE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][A-Z0-9_]*)([^;]*);")
_LABEL = re.compile(r"0x([0-9a-f]+)")


@dataclass
class Instruction:
    predicate: str | None
    opcode: str
    rest: str


@dataclass
class Kernel:
    name: str
    code: dict[int, Instruction] = field(default_factory=dict)


def kernels_of(lines: Iterable[str]) -> Iterator[Kernel]:
    """The kernels for sm_90a of `cuobjdump --dump-sass`."""
    arch, kernel = "", None
    for line in lines:
        if match := _ARCH.match(line):
            arch = match[1]
        elif match := _FUNCTION.match(line):
            if kernel:
                yield kernel
            kernel = Kernel(match[1]) if arch == "sm_90a" else None
        elif kernel and (match := _CODE.match(line)):
            kernel.code[int(match[1], 16)] = Instruction(match[2], match[3], match[4])
    if kernel:
        yield kernel


def followers(kernel: Kernel) -> dict[int, list[int]]:
    """Where a thread may go on behind each instruction."""
    behind = dict(pairwise(sorted(kernel.code)))
    found = {}
    for address, i in kernel.code.items():
        target = _LABEL.search(i.rest) if i.opcode in ("BRA", "CALL") else None
        # A branch may carry its condition in front of the target: BRA.U !UP0, 0x40 and BRA.DIV UR4, 0x40.
        for_all = i.opcode == "BRA" and target is not None and not i.rest[: target.start()].strip()
        goes_on = i.predicate is not None or not (for_all or ENDS.match(i.opcode))
        found[address] = ([int(target[1], 16)] if target else []) + ([behind[address]] if goes_on and address in behind else [])
    return found


def reached(start: Iterable[int], onward: dict[int, list[int]]) -> set[int]:
    seen: set[int] = set()
    waiting = list(start)
    while waiting:
        address = waiting.pop()
        if address not in seen:
            seen.add(address)
            waiting += onward.get(address, ())
    return seen


def before_the_wait(kernel: Kernel) -> list[str]:
    """Accesses of global memory by a thread that has yet to wait. Where one thread of a block waits for all of them, the others
    follow it by barriers, which this does not see."""
    waits = [address for address, i in kernel.code.items() if i.opcode == WAIT]
    onward = followers(kernel)
    entry = reached([min(kernel.code)], {a: [] if a in waits and kernel.code[a].predicate is None else on for a, on in onward.items()})
    backward: dict[int, list[int]] = {}
    for address, on in onward.items():
        for other in on:
            backward.setdefault(other, []).append(address)
    early = sorted(entry & reached(waits, backward) - set(waits))
    return [f"{a:#x} {kernel.code[a].opcode}{kernel.code[a].rest.rstrip()}" for a in early if GLOBAL.match(kernel.code[a].opcode)]


@dataclass
class Resources:
    registers: int = 0
    stack: int = 0
    threads: int = 0  # of a block, at most; 0: not said
    most_registers: int = 255  # that the launch bounds leave a thread


def resources_of(usage: Iterable[str], elf: Iterable[str]) -> dict[str, Resources]:
    """By kernel of sm_90a: `cuobjdump --dump-resource-usage`, and the launch bounds of `--dump-elf`."""
    found: dict[str, Resources] = {}
    arch = name = ""
    for line in usage:
        if match := _ARCH.match(line):
            arch = match[1]
        elif match := re.match(r"^\s*Function (\S+):", line):
            name = match[1]
        elif name and arch == "sm_90a" and (match := re.search(r"REG:(\d+) STACK:(\d+)", line)):
            found[name] = Resources(int(match[1]), int(match[2]))
            name = ""
    arch = name = attribute = ""
    for line in elf:
        if match := _ARCH.match(line):
            arch = match[1]
        elif match := re.match(r"^\.nv\.info\.(\S+)", line):
            name = match[1]
        elif match := re.match(r"^\s*Attribute:\s*(\S+)", line):
            attribute = match[1]
        elif arch == "sm_90a" and name in found and (match := re.match(r"^\s*Value:\s*0x([0-9a-f]+)", line)):
            if attribute == "EIATTR_MAX_THREADS":
                found[name].threads = int(match[1], 16)
            elif attribute == "EIATTR_MAXREG_COUNT":
                found[name].most_registers = int(match[1], 16)
    return found


def faults(kernel: Kernel, resources: Resources) -> list[str]:
    said = []
    early = [] if any(part in kernel.name for part in READ_WEIGHTS_FIRST) else before_the_wait(kernel)
    if early:
        said.append(f"touches global memory before it waits for the kernel before it: {'; '.join(early[:3])}")
    allowed = max((most for name, most in STACK_BYTES.items() if re.search(name, kernel.name)), default=0)
    if resources.stack > allowed:
        said.append(f"has a stack frame of {resources.stack} bytes, not {allowed} at most")
    block = -(-resources.registers // 8) * 8 * resources.threads
    if block > REGISTERS_PER_SM:
        said.append(f"needs {block} registers for {resources.threads} threads, a multiprocessor has {REGISTERS_PER_SM}")
    if resources.registers > resources.most_registers:
        said.append(f"has {resources.registers} registers, its launch bounds leave {resources.most_registers}")
    return said


def tool() -> str | None:
    """cuobjdump: on PATH, in the toolkit, or of the package of PyPI, which finds nvdisasm beside it."""
    places = [os.environ.get("PATH", ""), "/usr/local/cuda/bin"]
    places += [str(folder) for path in sys.path for folder in Path(path or ".").glob("nvidia/*/bin")]
    return next((found for place in places if (found := shutil.which("cuobjdump", path=place))), None)


def lines_of(program: str, option: str, file: Path) -> list[str]:
    environment = os.environ | {"PATH": f"{Path(program).parent}:{os.environ.get('PATH', '')}"}
    done = subprocess.run([program, option, "--gpu-architecture", "sm_90a", str(file)], capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0 and "does not contain device code" not in done.stderr:
        raise SystemExit(f"cuobjdump {option} failed on {file.name}: {done.stderr.strip() or 'no message'}")
    return done.stdout.splitlines()


def check_the_check() -> None:
    """Each fault is found, and what is right is not called one."""

    def kernel(*code: str) -> Kernel:
        lines = ["arch = sm_90a", "\tFunction : k"]
        lines += [f"        /*{16 * i:04x}*/      {text} ;      /* 0x0 */" for i, text in enumerate(code)]
        (found,) = kernels_of(lines)
        return found

    load = "LDG.E.128 R4, desc[UR4][R2.64]"
    right = [
        kernel("LDC R1, c[0x0][0x28]", "LDS R3, [R1]", "ACQBULK", load, "EXIT"),
        kernel(load, "EXIT"),  # is never launched early
        kernel("@P0 BRA 0x40", "ACQBULK", load, "EXIT", "ACQBULK", "STG.E desc[UR4][R2.64], R4", "EXIT"),
        kernel("BRA 0x30", load, "EXIT", "ACQBULK", "BRA 0x10"),  # the load lies in front of the wait, but comes after it
        kernel("@P0 BRA 0x30", "ACQBULK", "EXIT", "SYNCS", load, "EXIT"),  # a thread that another one waits for
    ]
    wrong = [
        kernel(load, "ACQBULK", "EXIT"),
        kernel("@P0 BRA 0x20", load, "ACQBULK", "EXIT"),  # on one of two ways
        kernel("BRA 0x20", "ACQBULK", "@P0 UTMALDG.2D [UR8], [UR6]", "BRA 0x10"),
        kernel("@!P0 ACQBULK", load, "@P1 BRA 0x0", "EXIT"),  # comes round again
        kernel("@P1 EXIT", "ATOMG.E.ADD.STRONG.GPU PT, R2, desc[UR4][R2.64], R3", "ACQBULK", "EXIT"),
        kernel("UBLKCP.S.G [UR4], [UR6], UR5", "ACQBULK", "EXIT"),
    ]
    for one in right:
        assert not before_the_wait(one), before_the_wait(one)
    for one in wrong:
        assert before_the_wait(one), one
    plain = right[0]
    assert not faults(plain, Resources(128, 0, 512, 128))
    assert faults(plain, Resources(128, 8, 512)) and faults(plain, Resources(136, 0, 512)) and faults(plain, Resources(130, 0, 128, 128))
    usage = ["arch = sm_90a", " Function k:", "  REG:26 STACK:8 SHARED:1024 LOCAL:0"]
    elf = ["arch = sm_90a", ".nv.info.k", "\tAttribute:\tEIATTR_MAX_THREADS", "\tValue:\t0x100 0x1 0x1",
           "\tAttribute:\tEIATTR_MAXREG_COUNT", "\tValue:\t0xa8"]  # fmt: skip
    assert resources_of(usage, elf) == {"k": Resources(26, 8, 256, 168)}


def main(files: list[str]) -> int:
    check_the_check()
    program = tool()
    if program is None:
        print("skipped: cuobjdump was found neither on PATH nor in /usr/local/cuda/bin nor as a package of PyPI")
        return SKIPPED
    seen = waiting = wrong = 0
    for file in map(Path, files):
        resources = resources_of(lines_of(program, "--dump-resource-usage", file), lines_of(program, "--dump-elf", file))
        for kernel in kernels_of(lines_of(program, "--dump-sass", file)):
            seen += 1
            waiting += any(i.opcode == WAIT for i in kernel.code.values())
            for fault in faults(kernel, resources.get(kernel.name, Resources())):
                wrong += 1
                print(f"{file.name}: {kernel.name} {fault}")
    print(f"{seen} kernels for sm_90a, {waiting} of them wait for the one before, {wrong} faults")
    if seen == 0:
        print("skipped: no kernel was compiled for sm_90a")
        return SKIPPED
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
