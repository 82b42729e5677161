"""The tests of PyTorch against other versions of it, oldest and newest. Only where they are asked for, since each version is
gigabytes from a package index:

    FWHT_TORCH_VERSIONS=2.7.1,2.11.0 FWHT_LIBRARY=build/host/python/libfwht.so python -m pytest cmake/wheel_test/test_torch_versions.py
"""

import os
import subprocess
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSIONS = [version for version in os.environ.get("FWHT_TORCH_VERSIONS", "").split(",") if version]
TESTS = ["test_torch.py", "test_operators.py", "test_quantize.py"]


def test_some_version_is_asked_for():
    if not VERSIONS:
        pytest.skip("FWHT_TORCH_VERSIONS names no version of PyTorch")
    assert os.environ.get("FWHT_LIBRARY"), "FWHT_LIBRARY must name the libfwht.so to test"


@pytest.mark.parametrize("version", VERSIONS)
def test_version(version, tmp_path):
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", f"torch=={version}", "numpy", "pytest"], check=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "FWHT_LIBRARY": str(Path(os.environ["FWHT_LIBRARY"]).resolve())}
    tests = [ROOT / "python" / "tests" / name for name in TESTS]
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests], env=environment, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
