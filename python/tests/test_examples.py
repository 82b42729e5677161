"""The examples run, keep the function of what they rotate, and gain what they say."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.stem)
def test_example(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    example = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(example)
    except ModuleNotFoundError as error:
        if error.name in ("safetensors", "torch", "transformers"):
            pytest.skip(f"{error.name} is not installed")
        raise
    exact, plain, rotated = example.main().values()
    assert exact < 1e-5  # float32 sums in another order
    assert rotated < plain / 1.5, (plain, rotated)


@pytest.mark.parametrize("variables", ["5", "2", "32", "-4", "x", "4.0"])
def test_numbers_of_variables_that_are_refused(variables):
    command = [sys.executable, str(EXAMPLES / "walsh_spectrum.py"), f"--variables={variables}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and f"--variables: {variables} must be an even number from 4 to 30" in done.stderr, done.stderr
