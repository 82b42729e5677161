"""What the commands ask of the machine: programs, packages, room, a GPU; and how they speak."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"


def say(text: str) -> None:
    print(f"testbed: {text}", file=sys.stderr, flush=True)


def fail(why: str, code: int = 1) -> NoReturn:
    say(why)
    raise SystemExit(code)


def refuse(why: str) -> NoReturn:
    """Of a request that cannot be met; nothing was installed or built for it."""
    fail(why, 2)


def run(command: Sequence[str | Path], **more: Any) -> subprocess.CompletedProcess[str]:
    """As subprocess.run with text; ends this program when the command was interrupted, after the command's own end."""
    interrupted = []
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.append(True))  # the command has it too, and ends in its own way
    try:
        done = subprocess.run(command, **{"text": True, "check": False, **more})
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupted or done.returncode < 0:
        raise SystemExit(130 if interrupted else 128 - done.returncode)
    return done


def have(program: str) -> bool:
    return shutil.which(program) is not None


def environment(*needs: str) -> str | None:
    """Has ./testbed find or install these (its last lines list them). Returns the Python that it found, if asked for.

    Ends this program with exit code 1 when something cannot be had; the script has said what.
    """
    done = run(["bash", ROOT / "testbed", "environment", *needs], stdout=subprocess.PIPE)
    if done.returncode:
        raise SystemExit(done.returncode)
    if "tools" in needs:
        add_cuda_tools("nvcc")
        if have("ccache"):
            os.environ |= dict.fromkeys(("CMAKE_CXX_COMPILER_LAUNCHER", "CMAKE_CUDA_COMPILER_LAUNCHER"), "ccache")
    return done.stdout.strip() or None


def find_python(*needs: str) -> str:
    """An interpreter with the packages of analysis/, and of its tests where `needs` has "tests"."""
    return environment("python", *needs) or sys.executable


def analysis(python: str, *arguments: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    paths = [str(ROOT), os.environ.get("PYTHONPATH")]
    return run([python, "-P", "-m", "analysis", *arguments], env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}, **more)


def add_cuda_tools(program: str) -> bool:
    if not have(program):
        os.environ["PATH"] += ":/usr/local/cuda/bin"
    return have(program)


def has_gpu() -> bool:
    if any(Path("/dev").glob("nvidia[0-9]*")):
        return True
    return have("nvidia-smi") and run(["nvidia-smi", "-L"], capture_output=True).returncode == 0


def options_for_gpus() -> list[str]:
    """CMake options of a build for the GPUs of this machine alone, in less time; none where they do not say what they are, or where
    they would compile PTX at first use."""
    if not have("nvidia-smi"):
        return []
    said = run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], capture_output=True).stdout
    capabilities = {(int(major), int(minor)) for major, minor in re.findall(r"^ *(\d+)\.(\d+) *$", said or "", re.MULTILINE)}
    if not capabilities or not all((8, 0) <= each <= (9, 0) for each in capabilities):
        return []
    architectures = sorted({"90a-real" if each == (9, 0) else "80-real" for each in capabilities})
    return [f"-DCMAKE_CUDA_ARCHITECTURES={';'.join(architectures)}"]


def need_gpu(what: str) -> None:
    if not has_gpu():
        refuse(f"this machine has no CUDA device, and {what} needs one.")


def need_gpu_tool(program: str) -> None:
    if not add_cuda_tools(program):
        refuse(f"{program} was not found on PATH or in /usr/local/cuda/bin; it comes with the CUDA toolkit.")
    need_gpu(program)


def version() -> str:
    """As CMake takes it."""
    found = re.search(r"^project\(fwht VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)
    return found[1] if found else "of no known version"


def cores() -> int:
    return len(os.sched_getaffinity(0))


def require_writable(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        refuse(f"{folder} cannot be written, and that is where fwht is built; copy the checkout to a place of your own.")


def check_room(megabytes: int) -> None:
    """At least so much room for a build."""
    require_writable(BUILD)
    free = shutil.disk_usage(BUILD).free >> 20
    if free < megabytes:
        refuse(f"{BUILD} has {free} MB of room; at least {megabytes} MB are needed.")


def say_load() -> None:
    """A machine that does other work as well measures it too."""
    load = os.getloadavg()[0]
    if load > cores() / 2:
        say(f"this machine is busy (load average {load:.2f} on {cores()} cores): the times will be noisy.")


def say_origin(root: Path = ROOT) -> None:
    """What a checkout without its history means for the results."""
    why = "git is missing"
    if have("git"):
        done = run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True)
        if done.returncode == 0:
            return
        why = done.stderr.split("\n")[0]
    say(f"no commit is known here ({why}): results are marked as dirty, and reports of them say so.")
