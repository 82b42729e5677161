"""The published library's own tests against fwht.compat. They are not part of this repository:

    FWHT_PUBLISHED_TEST=CHECKOUT/tests/test_fast_hadamard_transform.py python -m pytest python/tests/test_published.py

They need einops and a CUDA device.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import fwht

STAND_IN = "import fwht; fwht.compat.install()"


def test_the_published_tests(tmp_path):
    file = os.environ.get("FWHT_PUBLISHED_TEST")
    if not file:
        pytest.skip("FWHT_PUBLISHED_TEST names no file")
    pytest.importorskip("einops")
    if fwht.build_info()["devices"] == 0:
        pytest.skip("no CUDA device, or this libfwht was built without CUDA")
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    path = os.pathsep.join([str(tmp_path), str(Path(fwht.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "stand_in", "-p", "no:cacheprovider", file],
        env={**os.environ, "PYTHONPATH": path}, text=True, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-4000:] + done.stderr[-2000:]
    print(done.stdout.strip().splitlines()[-1])
