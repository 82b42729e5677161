"""Builds the wheel, installs it into empty environments, and looks at what is in it. Slow: the library is compiled, without
optimization (again only what changed, where ccache is installed). Without CUDA, whatever the machine has; needs a package index."""

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECK = """
import sys
for name in ("torch", "numpy"): sys.modules[name] = None
import fwht
assert fwht.supports(4096, "float16", device="cpu") and not fwht.supports(12, "float16", device="cpu")
assert fwht.build_info()["cuda"] == "none: FWHT_CUDA=OFF", fwht.build_info()
import ctypes, fwht._c as c
x = (ctypes.c_float * 4)(1, 2, 3, 4)
problem = c.make_problem((1, 4), c.F32, "float32", 1.0, in_place=True, device=c.HOST)
assert c.transform(ctypes.addressof(problem), None, ctypes.addressof(x), ctypes.addressof(x), c.HOST, None) == 0
assert list(x) == [10, -2, -4, 0]
print(c.__file__)
"""


def environment():
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "FWHT_LIBRARY")}
    kept |= {"FWHT_CUDA": "OFF", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    # No package of the distribution is looked for: what CMake is asked for and may not find is an error.
    arguments = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("fmt", "Eigen3", "GTest")]
    if shutil.which("ccache"):
        kept |= {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache"}
    else:  # what is looked at here is the package, not its speed
        arguments.append("-DCMAKE_CXX_FLAGS_RELEASE=-O0")
    kept |= {"CMAKE_ARGS": " ".join(arguments)}
    return kept


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), text=True, capture_output=True, env=environment(), **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module", autouse=True)
def package_index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("download")
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--retries", "0", "-d", folder, "scikit-build-core>=0.11"]
    done = subprocess.run(list(map(str, pip)), text=True, capture_output=True, env=environment())
    if done.returncode != 0:
        pytest.skip("scikit-build-core cannot be had: " + (done.stderr.strip().splitlines() or ["no pip"])[-1])


def python_of(folder):
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", "-w", folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_what_is_in_the_wheel(wheel):
    name, version, python, abi, platform = wheel.stem.split("-")
    assert (name, python, abi) == ("fwht", "py3", "none") and platform != "any"
    assert f"project(fwht VERSION {version} " in (ROOT / "CMakeLists.txt").read_text()
    assert wheel.stat().st_size < 40 * 2**20
    with zipfile.ZipFile(wheel) as archive:
        files = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = archive.read(f"fwht-{version}.dist-info/METADATA").decode()
    sources = {str(path.relative_to(ROOT / "python")) for path in (ROOT / "python/fwht").rglob("*.py")}
    assert files == sources | {"fwht/libfwht.so", "fwht/include/fwht.h", "fwht/py.typed", "fwht/evaluate/tiny.tar.xz"}
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra" not in line]
    assert required == []


def test_it_works_in_an_empty_environment(wheel, tmp_path):
    python = python_of(tmp_path / "env")
    run(python, "-m", "pip", "install", "-q", "--no-index", wheel)
    assert str(tmp_path) in run(python, "-I", "-c", CHECK, cwd=tmp_path)


def test_the_stand_in_is_a_wheel_of_its_own(tmp_path):
    """Pure Python, requires fwht, and holds the one module."""
    run(sys.executable, "-m", "pip", "wheel", ROOT / "python" / "stand_in", "--no-deps", "-w", tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == "fwht_fast_hadamard_transform-1.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        files = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = archive.read("fwht_fast_hadamard_transform-1.1.0.dist-info/METADATA").decode()
    module = "fast_hadamard_transform"
    assert files == {f"{module}/__init__.py", f"{module}/{module}_interface.py"}
    assert "Requires-Dist: fwht" in metadata.splitlines()


def test_an_editable_installation(wheel, tmp_path):
    """After the wheel, so that its build folder is there."""
    python = python_of(tmp_path / "env")
    run(python, "-m", "pip", "install", "-q", "-e", ROOT)
    assert str(ROOT / "python" / "fwht") in run(python, "-I", "-c", CHECK, cwd=tmp_path)


def test_uv(wheel, tmp_path):
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed")
    run(uv, "venv", "-q", "--python", sys.executable, tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    run(uv, "pip", "install", "-q", "--python", python, ROOT)
    run(python, "-I", "-c", CHECK, cwd=tmp_path)
