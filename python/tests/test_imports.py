"""What holds for the modules of fwht together: they import downward only, none hides an import of a sister inside a function,
and all have one default scale."""

import ast
import ctypes.util
import doctest
import importlib
import inspect
import os
import subprocess
import sys
import typing
from pathlib import Path

import numpy as np
import pytest

import fwht
from conftest import needs_torch, torch

ROOT = Path(fwht.__file__).parent
FILES = {".".join(("fwht", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path for path in ROOT.rglob("*.py")}


def sisters(module, tree):
    """Modules of fwht that this one names in an import."""
    package = module if FILES[module].name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in FILES}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1] + ([base] if base else []))
            for alias in node.names:
                name = f"{base}.{alias.name}" if f"{base}.{alias.name}" in FILES else base
                found |= {name} & FILES.keys()
    return found - {module}


def test_no_import_inside_a_function():
    for module, path in FILES.items():
        if module.startswith(("fwht.bench", "fwht.evaluate")):  # programs of their own, whose packages are optional
            continue
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert not sisters(module, function), f"{module}.{function.name}"


@pytest.mark.parametrize("module", [module for module, path in FILES.items() if "\n    Example:\n" in path.read_text()])
def test_examples_of_docstrings(module):
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted >= 2 and results.failed == 0


def test_annotations_take_what_runs():
    x = np.ones((4, 64), "float32")
    codes = fwht.hadamard_quantize(x, "int8:row", np.float32(2))
    for call, asked in (
        (fwht.hadamard_transform, {"scale": np.float32(2), "axis": [0, 1]}), (fwht.hadamard_transform_, {"scale": np.float32(2), "axis": [0, 1]}),
        (fwht.hadamard_quantize, {"encoding": "int8:row", "scale": np.float32(2), "out": list(codes)}),
        (fwht.quantize.quantize, {"encoding": "int8:row", "out": list(codes)}), (fwht.operators.transform, {"scale": np.float32(2)}),
    ):  # fmt: skip
        call(x, **asked)
        hints = typing.get_type_hints(call)
        for name, value in asked.items():
            taken = [typing.get_origin(each) or each for each in typing.get_args(hints[name]) or (hints[name],)]
            assert isinstance(value, tuple(taken)), (call, name)


def test_no_circle():
    below = {module: sisters(module, ast.parse(path.read_text())) for module, path in FILES.items()}
    assert "fwht._torch.calls" in below["fwht._torch.eager"] and "fwht._c" in below["fwht.array"]  # the walk sees something
    done = set()

    def visit(module, way):
        assert module not in way, " -> ".join([*way, module])
        if module not in done:
            for other in sorted(below[module]):
                visit(other, [*way, module])
            done.add(module)

    for module in below:
        visit(module, [])


# What has a scale: on x = (1, 2, 3, 4), an array of the library that it takes. Classes are called with their first argument.
WITH_SCALE = {
    "fwht.hadamard_transform": lambda f, x: f(x),
    "fwht.hadamard_transform_": lambda f, x: f(x),
    "fwht.plan": lambda f, x: f(4, 1, "float32", device="cpu", inplace=False).execute(x),
    "fwht.operators.transform": lambda f, x: f(x),
    "fwht.quantize.hadamard_quantize": lambda f, x: np.rint(np.asarray(f(x, "int8:row")[0]) * (5 / 127)),
    "fwht.quantize.into_cache": None,  # test_quantize compares it with hadamard_quantize
    "fwht.nn.HadamardTransform": lambda f, x: f(4)(x),
    "fwht.distributed.hadamard_transform": None,  # test_distributed compares it with H_n / sqrt(n)
    "fwht.compat.fast_hadamard_transform.hadamard_transform": lambda f, x: f(x) / 2,
    "fwht.compat.fast_hadamard_transform.hadamard_transform_ref": lambda f, x: f(x) / 2,
    **{f"fwht.compat.fast_hadamard_transform.hadamard_transform_{m}N": None for m in (12, 20, 28, 40)},  # test_compat has matrices
}


@needs_torch
def test_import_fwht_alone_reaches_every_public_module():
    """One interpreter each: importing one module puts it into its package for the others."""
    names = [name for name in FILES if "._" not in name and not name.startswith("fwht.bench")]
    assert {"fwht.integrations.compressed_tensors", "fwht.evaluate.hooks", "fwht.compat.fast_hadamard_transform"} <= set(names)
    program = (
        "import fwht, importlib, os, torch\n"
        f"for name in {names}:\n"
        "    if (child := os.fork()) == 0:\n"
        "        try: assert eval(name) is importlib.import_module(name)\n"
        "        except ModuleNotFoundError as error: assert error.name == 'transformers', (name, error)\n"
        "        except BaseException as error: print(name, error); os._exit(1)\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT.parent)})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for package in (fwht, fwht.integrations, fwht.evaluate):
        with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'missing'"):
            _ = package.missing


def public_functions():
    for module in FILES:
        if module.startswith(("fwht.bench", "fwht.evaluate", "fwht._", "fwht.array")):
            continue
        try:
            module = importlib.import_module(module)
        except ImportError:
            if torch is not None:
                raise
            continue
        for name in getattr(module, "__all__", vars(module)):
            value = getattr(module, name)
            where = getattr(value, "__module__", "").replace("fwht._plan", "fwht")
            if callable(value) and not name.startswith("_") and where == module.__name__:
                yield f"{where}.{name}", value


@pytest.mark.parametrize(("name", "function"), list(public_functions()))
def test_one_default_scale_everywhere(name, function):
    """H_n / sqrt(n); fwht.compat alone imitates the published 1.0."""
    scale = inspect.signature(function).parameters.get("scale")
    if scale is None:
        assert name not in WITH_SCALE
        return
    assert scale.default == (1.0 if ".compat." in name else None)
    if call := WITH_SCALE[name]:
        x = np.array([1, 2, 3, 4], "float32")
        libraries = [x] if ".nn." not in name and ".compat." not in name else []
        for x in libraries + ([torch.from_numpy(x.copy())] if torch else []):
            assert np.asarray(call(function, x)).tolist() == [5, -1, -2, 0]


@needs_torch
def test_the_default_scale_of_the_operators():
    x = torch.tensor([1.0, 2, 3, 4])
    for name in ("hadamard_transform", "hadamard_transform_"):
        y = getattr(torch.ops.fwht, name)(z := x.clone())
        assert (z if y is None else y).tolist() == [5, -1, -2, 0]
    assert torch.equal(torch.ops.fwht.hadamard_quantize(x, "int8:row")[1] * 127, torch.tensor([5.0]))


def test_the_bench_says_in_one_line_that_torch_is_missing():
    program = "import runpy, sys; sys.modules['torch'] = None; runpy.run_module('fwht.bench', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", program, "--list-peers"], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT.parent)})
    assert done.returncode == 1
    assert done.stderr == "python -m fwht.bench: PyTorch is missing, and every peer is called through it (pip install torch)\n"


def test_a_library_that_is_another():
    environment = os.environ | {"FWHT_LIBRARY": ctypes.util.find_library("m"), "PYTHONPATH": str(ROOT.parent)}
    done = subprocess.run([sys.executable, "-c", "import fwht"], capture_output=True, text=True, env=environment)
    said = done.stderr.splitlines()[-1]
    assert said.startswith("ImportError: fwht: ") and said.endswith("has no function fwht_abi_version; it is another library, or of another version")


TWO_COPIES = """
import importlib.util, sys, torch, fwht
x = torch.tensor([1.0, 2, 3, 4], requires_grad=True)
copies = [fwht]
for name in ("another", "fwht"):
    spec = importlib.util.spec_from_file_location(name, fwht.__file__)
    for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] == name]:
        del sys.modules[loaded]
    copies.append(importlib.util.module_from_spec(spec))
    sys.modules[name] = copies[-1]
    spec.loader.exec_module(copies[-1])
for copy in copies:
    assert torch.compile(copy.hadamard_transform, fullgraph=True, backend="aot_eager")(x).tolist() == [5, -1, -2, 0]
    assert torch.autograd.grad(copy.hadamard_transform(x)[0], x)[0].tolist() == [0.5] * 4
for namespace in ("fwht", "another", "fwht_2"):
    assert getattr(torch.ops, namespace).hadamard_transform(x).tolist() == [5, -1, -2, 0]
"""


@needs_torch
def test_several_copies_in_one_process():
    """As the package `kernels` loads one beside an installed one, under another name; and once more under the same."""
    path = os.pathsep.join([str(ROOT.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", TWO_COPIES], env={**os.environ, "PYTHONPATH": path}, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


FRAMEWORKS = ("torch", "numpy", "transformers", "vllm", "sglang", "comfy_kitchen", "compressed_tensors", "jax", "cupy", "kernels")


def in_a_process(program, *paths):
    """What a fresh interpreter prints; it may say nothing else."""
    path = os.pathsep.join([*map(str, paths), str(ROOT.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, text=True, capture_output=True, check=True)
    assert done.stderr == ""
    return done.stdout


def test_import_brings_and_touches_no_framework(tmp_path):
    """Their modules are on the path, and cannot be imported."""
    for name in FRAMEWORKS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise SystemExit('fwht imports {name}')")
    program = "import logging, sys; before = set(logging.root.manager.loggerDict); import fwht; print(sorted(set(%r) & set(sys.modules)))\n" % (FRAMEWORKS,)
    assert in_a_process(program + "assert set(logging.root.manager.loggerDict) == before", tmp_path) == "[]\n"


def fastest(program, times=5):
    """Seconds of the processor: others may be busy on this machine."""
    program = "import time; begun = time.process_time()\n" + program + "\nprint(time.process_time() - begun)"
    return min(float(in_a_process(program)) for _ in range(times))


def test_import_takes_less_than_a_tenth_of_a_second():
    """On a machine where the modules of the standard library that it needs take 50 ms or less; twice that time on slower ones."""
    own, needed = fastest("import fwht"), fastest("import asyncio, ctypes, http.client, json, sqlite3, unittest.mock")
    assert own < max(0.1, 2 * needed), (own, needed)


@needs_torch
def test_import_beside_torch_takes_less_than_a_tenth_of_a_second():
    begun = "import time, torch, torch.library; begun = time.process_time()\n"
    assert fastest(begun + "import fwht", times=3) < max(0.1, 0.2 * fastest("import torch", times=1))


@pytest.mark.parametrize("name", ["vllm", "sglang"])
@needs_torch
def test_a_plugin_without_its_framework_says_one_line_and_no_more(name):
    """As where an entry point is called by hand. Without CUDA it looks at nothing."""
    program = f"import fwht.integrations.{name} as plugin, sys; plugin.register(); print({name!r} in sys.modules)"
    if not fwht.build_info()["cuda"].startswith("none"):
        pytest.skip("a library with CUDA asks the framework for its platform")
    assert in_a_process(program) == "False\n"
