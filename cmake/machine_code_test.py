"""What the compiler made of every kernel for sm_90a, by its machine code; needs no GPU.

    machine_code_test.py FILE...      programs, libraries or objects that hold the kernels

- No thread touches global memory on any way to its wait for the kernel before (griddepcontrol.wait, ACQBULK in machine code), but
  for packed weights and tables, which that kernel does not write.
- No kernel has a stack frame, but for those that are named here, with the most that they may have.
- The registers of a block fit into a multiprocessor, and do not exceed what the launch bounds leave a thread.
- No kernel of a file stands in two of its objects: each would be compiled, loaded and shipped for nothing.

`cuobjdump` and `nvdisasm` come with the CUDA toolkit, or with the packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm of PyPI.
Exit code 77: they are missing, or there is no such kernel.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
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
    r"4fwht14warp_kronecker.*WarpLaunchELi12E": 56,  # 192 rows of X in registers: a few values wait outside
    r"4fwht14warp_kronecker.*WarpLaunchELi4ELi512E": 8,  # 128 registers a thread: one value waits outside
    r"4fwht6linear9pipelined": 32,
    r"4fwht6linear7prefill": 48,  # 168 registers a thread: a few values wait outside
}
# What goes out before the wait, as it never changes: packed weights, scales and the order of rows; the signs of the matrix, which come
# with the plan. Fragments of a dense factor are written by the launch ahead, but behind those no launch is programmatic.
READ_FIRST = ("4fwht6linear9pipelined", "4fwht9kronecker11spread_rows")
# Tensor maps, which the launch itself brings along, and prefetches into the L2, which is coherent, touch no operand.
GLOBAL = ("LDG", "STG", "LD", "ST", "LDGSTS", "RED", "REDG", "ATOM", "ATOMG", "UBLKCP", "UBLKRED", "UTMALDG", "UTMASTG", "UTMAREDG")
ENDS = ("EXIT", "RET", "BRX", "JMX", "JMP", "KILL")
JUMPS = ("BRA", "CALL")
WAIT = "ACQBULK"

# What nvdisasm prints of a kernel that matters here: its name, labels, and these instructions.
_CODE = re.compile(
    r"^\t\.section\t\.text\.(?P<kernel>[^,]+),|^(?P<label>[.$]\S+):$"
    rf"|^ +/\*(?P<address>[0-9a-f]+)\*/ +(?:@(?P<predicate>!?U?P\w+) +)?(?P<opcode>{'|'.join((WAIT, *GLOBAL, *ENDS, *JUMPS))})(?P<rest>(?!\w)[^;]*);",
    re.MULTILINE,
)
_TARGET = re.compile(r"`\((\S+)\)")


@dataclass
class Instruction:
    address: str
    predicate: str | None
    opcode: str
    rest: str


@dataclass
class Kernel:
    name: str
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)  # and the place in `code` that each stands before


def kernels_of(text: str) -> Iterator[Kernel]:
    """The kernels of `nvdisasm -c`."""
    kernel = None
    for match in _CODE.finditer(text):
        if name := match["kernel"]:
            if kernel:
                yield kernel
            kernel = Kernel(name)
        elif kernel and (label := match["label"]):
            kernel.labels[label] = len(kernel.code)
        elif kernel:
            kernel.code.append(Instruction(match["address"], match["predicate"], match["opcode"], match["rest"]))
    if kernel:
        yield kernel


def followers(kernel: Kernel) -> list[list[int]]:
    """Where a thread may go on behind each instruction."""
    found = []
    for place, i in enumerate(kernel.code):
        target = _TARGET.search(i.rest) if i.opcode in JUMPS else None
        # A branch may carry its condition in front of the target: BRA.U !UP0, `(.L_x_1) and BRA.DIV UR4, `(.L_x_2).
        for_all = i.opcode == "BRA" and target is not None and not i.rest[: target.start()].strip()
        goes_on = i.predicate is not None or not (for_all or i.opcode in ENDS)
        places = ([kernel.labels[target[1]]] if target else []) + ([place + 1] if goes_on else [])
        found.append([other for other in places if other < len(kernel.code)])
    return found


def reached(start: Iterable[int], onward: list[list[int]]) -> set[int]:
    seen: set[int] = set()
    waiting = list(start)
    while waiting:
        place = waiting.pop()
        if place not in seen:
            seen.add(place)
            waiting += onward[place]
    return seen


def before_the_wait(kernel: Kernel) -> list[str]:
    """Accesses of global memory by a thread that has yet to wait. Where one thread of a block waits for all of them, the others
    follow it by barriers, which this does not see."""
    code = kernel.code
    waits = [place for place, i in enumerate(code) if i.opcode == WAIT]
    if not waits:
        return []
    onward = followers(kernel)
    entry = reached([0], [[] if code[place].opcode == WAIT and code[place].predicate is None else on for place, on in enumerate(onward)])
    backward: list[list[int]] = [[] for _ in code]
    for place, on in enumerate(onward):
        for other in on:
            backward[other].append(place)
    early = sorted(entry & reached(waits, backward) - set(waits))
    return [f"0x{code[place].address} {code[place].opcode}{code[place].rest.rstrip()}" for place in early if code[place].opcode in GLOBAL]


@dataclass
class Resources:
    registers: int = 0
    stack: int = 0
    threads: int = 0  # of a block, at most; 0: not said
    most_registers: int = 255  # that the launch bounds leave a thread


def sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and content of the sections of a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<II16xQQ", elf, table + size * i) for i in range(count)]
    names_at = headers[names][2]
    for name, _, place, length in headers:
        start = names_at + name
        yield elf[start : elf.index(b"\0", start)].decode(), elf[place : place + length]


def attributes(info: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and value of each attribute of a section .nv.info, as `cuobjdump --dump-elf` reads it."""
    place = 0
    while place < len(info):
        form, number, short = struct.unpack_from("<BBH", info, place)
        length = short if form == 4 else 0  # EIFMT_SVAL: so many bytes behind
        yield number, info[place + 4 : place + 4 + length] if length else info[place + 2 : place + 4]
        place += 4 + length


def resources_of(usage: str, cubins: Iterable[bytes]) -> dict[str, Resources]:
    """By kernel: `cuobjdump --dump-resource-usage`, and the launch bounds that stand in the machine code."""
    found = {
        name: Resources(int(registers), int(stack)) for name, registers, stack in re.findall(r"^ *Function (\S+):\s+REG:(\d+) STACK:(\d+)", usage, re.MULTILINE)
    }
    for cubin in cubins:
        for section, content in sections(cubin):
            if not section.startswith(".nv.info.") or (name := section.removeprefix(".nv.info.")) not in found:
                continue
            for number, value in attributes(content):
                if number == 0x05:  # EIATTR_MAX_THREADS
                    (found[name].threads,) = struct.unpack_from("<I", value)
                elif number == 0x1B:  # EIATTR_MAXREG_COUNT
                    (found[name].most_registers,) = struct.unpack("<H", value)
    return found


def faults(kernel: Kernel, resources: Resources) -> list[str]:
    said = []
    early = [] if any(part in kernel.name for part in READ_FIRST) else before_the_wait(kernel)
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
    """cuobjdump, with nvdisasm beside it: on PATH, in the toolkit, or of the packages of PyPI."""
    places = [os.environ.get("PATH", ""), "/usr/local/cuda/bin"]
    places += [str(folder) for path in sys.path for folder in Path(path or ".").glob("nvidia/*/bin")]
    found = (shutil.which("cuobjdump", path=folder) for place in places for folder in place.split(os.pathsep))
    return next((program for program in found if program and Path(program).with_name("nvdisasm").is_file()), None)


def output_of(program: str, *arguments: str | Path, folder: Path | None = None) -> str:
    environment = os.environ | {"PATH": f"{Path(program).parent}:{os.environ.get('PATH', '')}"}
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, env=environment, cwd=folder)
    if done.returncode != 0 and "does not contain device code" not in done.stderr:
        raise SystemExit(f"{Path(program).name} failed on {arguments[-1]}: {done.stderr.strip() or 'no message'}")
    return done.stdout


def elf_of(contents: dict[str, bytes]) -> bytes:
    """An ELF file of these sections, for check_the_check."""
    contents = contents | {".shstrtab": b"\0".join([*(name.encode() for name in contents), b".shstrtab", b""])}
    names, data, headers = contents[".shstrtab"], b"", b""
    for name, content in contents.items():
        headers += struct.pack("<II16xQQ24x", names.index(name.encode() + b"\0"), 1, 64 + len(data), len(content))
        data += content
    return struct.pack("<40xQ10xHHH", 64 + len(data), 64, len(contents), len(contents) - 1) + data + headers


def check_the_check() -> None:
    """Each fault is found, and what is right is not called one."""

    def kernel(*code: str) -> Kernel:
        lines = ['\t.section\t.text.k,"ax",@progbits']
        lines += [text if text.endswith(":") else f"        /*{16 * i:04x}*/      {text} ;" for i, text in enumerate(code)]
        (found,) = kernels_of("\n".join(lines))
        return found

    load = "LDG.E.128 R4, desc[UR4][R2.64]"
    right = [
        kernel("LDC R1, c[0x0][0x28]", "LDS R3, [R1]", "ACQBULK", load, "EXIT"),
        kernel(load, "EXIT"),  # is never launched early
        kernel("@P0 BRA `(.L_1)", "ACQBULK", load, "EXIT", ".L_1:", "ACQBULK", "STG.E desc[UR4][R2.64], R4", "EXIT"),
        kernel("BRA `(.L_2)", ".L_1:", load, "EXIT", ".L_2:", "ACQBULK", "BRA `(.L_1)"),  # the load lies in front of the wait, but comes after it
        kernel("@P0 BRA `(.L_1)", "ACQBULK", "EXIT", ".L_1:", "SYNCS", load, "EXIT"),  # a thread that another one waits for
    ]
    wrong = [
        kernel(load, "ACQBULK", "EXIT"),
        kernel("@P0 BRA `(.L_1)", load, ".L_1:", "ACQBULK", "EXIT"),  # on one of two ways
        kernel("BRA P1, `(.L_1)", load, ".L_1:", "ACQBULK", "EXIT"),  # likewise
        kernel("BRA `(.L_2)", ".L_1:", "ACQBULK", ".L_2:", "@P0 UTMALDG.2D [UR8], [UR6]", "BRA `(.L_1)"),
        kernel(".L_1:", "@!P0 ACQBULK", load, "@P1 BRA `(.L_1)", "EXIT"),  # comes round again
        kernel("CALL.REL.NOINC `($k$part)", load, "ACQBULK", "EXIT", "$k$part:", "RET.REL.NODEC R2 `(k)"),
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
    usage = "arch = sm_90a\n Function k:\n  REG:26 STACK:8 SHARED:1024 LOCAL:0"
    bounds = bytes.fromhex("02 4c 0100  04 05 0c00 00010000 01000000 01000000  03 1b a800")
    assert resources_of(usage, [elf_of({".nv.info.k": bounds, ".nv.info.other": bounds})]) == {"k": Resources(26, 8, 256, 168)}


def main(files: list[str]) -> int:
    check_the_check()
    program = tool()
    if program is None:
        print("skipped: cuobjdump and nvdisasm were found neither on PATH nor in /usr/local/cuda/bin nor as packages of PyPI")
        return SKIPPED
    seen = waiting = wrong = 0
    for file in (Path(name).resolve() for name in files):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            output_of(program, "--extract-elf", "all", "--gpu-architecture", "sm_90a", file, folder=folder)
            cubins = sorted(folder.iterdir())
            usage = output_of(program, "--dump-resource-usage", "--gpu-architecture", "sm_90a", file)
            resources = resources_of(usage, (cubin.read_bytes() for cubin in cubins))
            of_file: set[str] = set()
            for cubin in cubins:
                for kernel in kernels_of(output_of(str(Path(program).with_name("nvdisasm")), "--print-code", cubin)):
                    seen += 1
                    waiting += any(i.opcode == WAIT for i in kernel.code)
                    again = ["stands in two objects"] if kernel.name in of_file else []
                    of_file.add(kernel.name)
                    for fault in again + faults(kernel, resources[kernel.name]):
                        wrong += 1
                        print(f"{file.name}: {kernel.name} {fault}")
    print(f"{seen} kernels for sm_90a, {waiting} of them wait for the one before, {wrong} faults")
    if seen == 0:
        print("skipped: no kernel was compiled for sm_90a")
        return SKIPPED
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
