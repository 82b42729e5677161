"""Wheels for other machines, and the folder that the package `kernels` (Hugging Face) loads."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from .machine import BUILD, ROOT, environment, fail, refuse, run, say

DIST = ROOT / "dist"
MEGABYTES = {"cuda": 40, "cpu": 4}  # of a wheel, at most
SMOKE_TEST = ROOT / "cmake" / "wheel_test" / "smoke.py"
DEVICE_CODE = {"elf": {"sm_80", "sm_90a"}, "ptx": {"sm_80"}}  # machine code, and PTX for whatever comes later
TORCH_STABLE_ABI = "torch-stable-abi27"  # PyTorch 2.7 and newer: the library asks nothing of PyTorch's own ABI


def new_environment(folder: Path) -> Path:
    """Its Python."""
    if run([sys.executable, "-c", "import ensurepip, venv"], capture_output=True).returncode:
        environment("python3-venv")
    if run([sys.executable, "-m", "venv", "--clear", folder]).returncode:
        fail(f"{folder}: no environment could be made there (above).")
    return folder / "bin" / "python"


def tools() -> Path:
    """The folder of the programs of requirements-wheel.txt; installed on the first call."""
    folder, asked = BUILD / "wheel" / "tools", ROOT / "analysis" / "requirements-wheel.txt"
    python = folder / "bin" / "python"
    has_all: list[str | Path] = [python, ROOT / "cmake" / "has_requirements.py", asked]
    if not python.exists() or run(has_all, stdout=subprocess.DEVNULL).returncode:
        say(f"installing the packages of {asked.name} into {folder}")
        if run([new_environment(folder), "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", asked]).returncode:
            fail(f"the packages of {asked} could not be installed (above).")
    return folder / "bin"


def check_platform(programs: Path, platform: str) -> None:
    """Asked before anything is built: auditwheel itself comes last."""
    listed = run([programs / "auditwheel", "repair", "--help"], stdout=subprocess.PIPE).stdout
    known = re.findall(r"\b(?:linux|manylinux|musllinux)_?\d*\w*_[a-z]\w+", listed.partition("\nPLATFORMS:")[2])
    if known and platform not in known:
        refuse(f"unknown platform '{platform}'; known: {' '.join(known)}")


def pip_wheel(programs: Path, source: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    command: list[str | Path] = [programs / "python", "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", to, source]
    if run(command, cwd=ROOT).returncode:
        fail(f"the wheel of {source} could not be built (above).")
    return next(to.glob("*.whl"))


def check(wheel: Path, kind: str) -> None:
    """Ends the program where the wheel is too large, or brings libraries of this machine with it."""
    size, limit = wheel.stat().st_size / 1e6, MEGABYTES[kind]
    say(f"{wheel.name}: {size:.1f} MB of {limit} MB at most")
    if size > limit:
        fail(f"{wheel.name} has {size:.1f} MB; {limit} MB are the limit for {kind}.")
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
    if others := [name for name in names if ".so" in Path(name).name and name != "fwht/libfwht.so"]:
        fail(f"{wheel.name} brings libraries of this machine: {', '.join(others)}.")
    if "fwht/libfwht.so" not in names:
        fail(f"{wheel.name} has no fwht/libfwht.so.")


def device_code(library: Path, programs: Path) -> dict[str, set[str]]:
    """The architectures that a library holds machine code ("elf") and PTX ("ptx") of."""
    cuobjdump = next(programs.parent.glob("lib/python*/site-packages/nvidia/*/bin/cuobjdump"))
    found = {}
    for kind in DEVICE_CODE:
        listed = run([cuobjdump, f"--list-{kind}", library], stdout=subprocess.PIPE)
        if listed.returncode:
            fail(f"cuobjdump could not read {library} (above).")
        found[kind] = set(re.findall(r"\b(sm_\d+[a-z]?)\.(?:cubin|ptx)$", listed.stdout, re.MULTILINE))
    return found


def check_device_code(found: dict[str, set[str]]) -> None:
    for kind, name in (("elf", "machine code"), ("ptx", "PTX")):
        say(f"{name}: {', '.join(sorted(found[kind])) or 'none'}")
        if lacking := DEVICE_CODE[kind] - found[kind]:
            fail(f"the wheel lacks {name} for {', '.join(sorted(lacking))}; is FWHT_CUDA_ARCHITECTURES set?")


def smoke(python: Path, *arguments: str | Path) -> None:
    """Runs the smoke test without what this environment says of Python and of the library."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FWHT"))}
    if run([python, "-I", SMOKE_TEST, *arguments], env=clean, cwd=BUILD).returncode:
        fail("the smoke test failed (above).")


def backends(built_by: str) -> list[str]:
    """The backends of `kernels` for a library by this compiler ("nvcc 13.0.88"), or for one without CUDA ("none: ...").

    A folder is taken where PyTorch's CUDA has its major number and at least its minor one. The library brings its CUDA runtime
    along, so it asks of the machine a driver of its own major number or a newer one.
    """
    if built_by.startswith("none"):
        return ["cpu"]
    major = int(built_by.removeprefix("nvcc ").partition(".")[0])
    return [name for name, its_major in (("cu126", 12), ("cu130", 13)) if its_major >= major]


def kernels_folder(package: Path, to: Path, built_by: str, version: str, machine_code: set[str]) -> list[Path]:
    """Copies the package with its libfwht.so to `to`/build/<variant>/, with a metadata.json each. Returns these folders."""
    capabilities = sorted(re.sub(r"sm_(\d+)(\d[a-z]?)", r"\1.\2", architecture) for architecture in machine_code)
    folders = []
    for backend in backends(built_by):
        folder = to / "build" / f"{TORCH_STABLE_ABI}-{backend}-{os.uname().machine}-linux"
        shutil.copytree(package, folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        kind = "cpu" if backend == "cpu" else "cuda"
        major = int(version.partition(".")[0])
        about = {
            "id": f"fwht_{kind}_{major}", "name": "fwht", "version": major, "license": "Apache-2.0", "python-depends": [],
            "backend": {"type": kind} | ({"archs": capabilities} if kind == "cuda" else {}),
        }  # fmt: skip
        (folder / "metadata.json").write_text(json.dumps(about, indent=2) + "\n")
        folders.append(folder)
    return folders


def make(platform: str, with_cuda: bool) -> Path:
    """Everything of `./testbed wheel`. Returns the wheel of fwht."""
    programs = tools()
    check_platform(programs, platform)
    os.environ["FWHT_CUDA"] = "ON" if with_cuda else "OFF"
    os.environ["PATH"] = os.pathsep.join([str(programs), os.environ["PATH"]])
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    say("building the wheel")
    built = pip_wheel(programs, ROOT, BUILD / "wheel" / "built")
    stand_in = pip_wheel(programs, ROOT / "python" / "stand_in", BUILD / "wheel" / "stand_in")
    repaired = run([programs / "auditwheel", "repair", "--plat", platform, "-w", DIST, built], capture_output=True)
    if repaired.returncode:
        print(repaired.stdout, repaired.stderr, sep="\n", flush=True)
        fail(f"auditwheel could not make {built.name} a wheel for {platform} (above).")
    shutil.copy(stand_in, DIST)
    wheel = next(DIST.glob("fwht-*.whl"))
    check(wheel, "cuda" if with_cuda else "cpu")
    shutil.rmtree(BUILD / "wheel" / "content", ignore_errors=True)
    with zipfile.ZipFile(wheel) as content:
        content.extractall(BUILD / "wheel" / "content")
    package, code = BUILD / "wheel" / "content" / "fwht", {"elf": set[str](), "ptx": set[str]()}
    if with_cuda:
        check_device_code(code := device_code(package / "libfwht.so", programs))

    say("installing it into an empty environment")
    python = new_environment(BUILD / "wheel" / "empty")
    install: list[str | Path] = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--find-links", DIST]
    if run([*install, "fwht", "fwht-fast-hadamard-transform"]).returncode:
        fail(f"{wheel.name} could not be installed into an empty environment (above).")
    smoke(python)

    info = run([python, "-I", "-c", "import fwht; print(fwht.build_info()['cuda'], fwht.__version__, sep='\\n')"], stdout=subprocess.PIPE)
    built_by, version = info.stdout.split("\n")[:2]
    for folder in kernels_folder(package, DIST / "kernels", built_by, version, code["elf"]):
        smoke(python, folder)
    return wheel
