"""fwht.compat: the calls of the package fast-hadamard-transform, its matrices, and how its name leads here."""

import functools
import hashlib
import importlib
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from conftest import hadamard

torch = pytest.importorskip("torch")

import fwht
import fwht.compat.fast_hadamard_transform as compat

STAND_IN = Path(__file__).parents[1] / "stand_in"
devices = pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(fwht.build_info()["devices"] == 0, reason="no CUDA device"))]
)


def integers(*shape, device, dtype=torch.float32):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(-8, 9, shape, generator=generator).to(device, dtype)


# --- the published calls ---------------------------------------------------------------------------------------------


@devices
@pytest.mark.parametrize("n", [1, 2, 3, 12, 137, 1024])
def test_padding(device, n):
    length = max(2, 1 << (n - 1).bit_length())
    x = integers(4, n, device=device).requires_grad_()
    y = compat.hadamard_transform(x, 0.5)
    h = torch.from_numpy(hadamard(length)[:n, :n]).float().to(device) * 0.5
    assert y.shape == x.shape and y.is_contiguous() and torch.equal(y, x.detach() @ h)
    assert torch.equal(compat.hadamard_transform_ref(x, 0.5), y)
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(grad, torch.ones_like(y) @ h)


@devices
@pytest.mark.parametrize("name", [name for name in compat.__all__ if name != "hadamard_transform_ref"])
def test_a_scale_without_dimensions(device, name):
    """QuaRot, SpinQuant, auto-round and GPTQModel write `1.0 / torch.tensor(n).sqrt()`; the result is that of the number."""
    function = getattr(compat, name)
    x = integers(3, 480, device=device)
    scale = 1.0 / torch.tensor(480).sqrt()
    assert torch.equal(function(x, scale), function(x, float(scale)))
    assert torch.equal(function(x, scale=torch.tensor(2)), function(x, 2.0))


@pytest.mark.parametrize(
    "scale", [torch.ones(1), torch.tensor(1.0, device="meta"), torch.tensor(1.0, requires_grad=True)], ids=["[1]", "device", "grad"]
)
def test_a_scale_that_is_refused(scale):
    for function in (compat.hadamard_transform, compat.hadamard_transform_12N):
        with pytest.raises(TypeError, match="scale is a tensor of shape .*requires_grad=.*must be a number"):
            function(torch.ones(2, 48), scale)


# SHA-256 of the signs ("+" and "-", a line per row, as in csrc/code_gen.py of the package at f3cdeed): they name the matrices
# had_12_paley, had_20_will, had_28_will and had_40_tpal without repeating them.
FINGERPRINTS = {
    12: "a8b73b2d138b0c9079b9fc7cef05cddac9efd34de7cf328925076e04f7ad089f",
    20: "40a113036aca9c3e1d767ddccee197a6d526de6728b2ef9a7d5349df8e4afdd1",
    28: "3916d8a7682dc5170fdd214f7cc08947b261fcb822691c23f91700aec5428b70",
    40: "8cd17c4fce4c2af2e3a728959ddc33324513217b6c597cfdb6d9d80fd6fe693e",
}


def special(m, x, *scale):
    return getattr(compat, f"hadamard_transform_{m}N")(x, *scale)


def published(m):
    """M_m, read off the transform of unit rows: rows of 4 m hold M (x) H_4, whose first column is that of M, four times."""
    return special(m, torch.eye(4 * m))[::4, ::4].T.numpy()


@pytest.mark.parametrize("m", FINGERPRINTS)
def test_the_published_matrices(m):
    matrix = published(m)
    assert (matrix @ matrix.T == m * np.eye(m)).all()
    text = "\n".join("".join("+" if entry == 1 else "-" for entry in row) for row in matrix)
    assert hashlib.sha256(text.encode()).hexdigest() == FINGERPRINTS[m]


@devices
@pytest.mark.parametrize("rows", [lambda m: (4, 4 * m), lambda m: (64, 64 * m), lambda m: (8, 8 * m - 3), lambda m: (4, m - 5)])
@pytest.mark.parametrize("m", FINGERPRINTS)
def test_values_and_gradients_of_the_special_kernels(device, m, rows):
    power, n = rows(m)
    matrix = torch.from_numpy(np.kron(published(m), hadamard(power))[:n, :n]).float().to(device)
    x = integers(2, 3, n, device=device).requires_grad_()
    y = special(m, x, 0.25)
    assert y.shape == x.shape and y.is_contiguous() and torch.equal(y, x.detach() @ matrix.T * 0.25)
    g = integers(2, 3, n, device=device)
    (grad,) = torch.autograd.grad(y, x, g)
    assert torch.equal(grad, g @ matrix * 0.25)


@devices
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_data_of_the_special_kernels(device, dtype):
    for m in FINGERPRINTS:
        x = integers(5, 16 * m, device=device)  # sums are exact in float32, so that each is rounded once
        y = special(m, x.to(dtype), 1 / 16)
        assert torch.equal(y, special(m, x, 1 / 16).to(dtype))


@pytest.mark.parametrize("m", FINGERPRINTS)
def test_integers_have_the_power_of_two_alone(m):
    x = torch.ones(2, 4 * m, dtype=torch.int32)
    with pytest.raises(TypeError, match=f"int32 data are only summed by H_n; the operator d?{m}x4 takes float16"):
        special(m, x)
    assert compat.hadamard_transform(x[:, :4]).tolist() == 2 * [[4, 0, 0, 0]]


def test_no_row_and_no_element():
    assert compat.hadamard_transform_20N(torch.empty(0, 80)).shape == (0, 80)
    for function in (compat.hadamard_transform, compat.hadamard_transform_28N):
        with pytest.raises(TypeError, match="x is a numpy.ndarray; it must be a PyTorch tensor"):
            function(np.ones((3, 8), "float32"))
        for shape in ((), (3, 0)):
            with pytest.raises(ValueError, match="at least one element"):
                function(torch.ones(shape))


# --- the name --------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_package(monkeypatch):
    """The published name leads nowhere before, and after."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "fast_hadamard_transform"]:
        monkeypatch.delitem(sys.modules, name)
    yield
    fwht.compat.uninstall()
    for name in [name for name in sys.modules if name.partition(".")[0] == "fast_hadamard_transform"]:
        del sys.modules[name]


def test_install(no_package):
    if importlib.util.find_spec("fast_hadamard_transform"):
        pytest.skip("fast_hadamard_transform is installed")
    assert fwht.compat.install() == [
        "sys.modules.fast_hadamard_transform", "sys.modules.fast_hadamard_transform.fast_hadamard_transform_interface",
    ]  # fmt: skip
    assert fwht.compat.install() == []
    package = importlib.import_module("fast_hadamard_transform")
    interface = importlib.import_module("fast_hadamard_transform.fast_hadamard_transform_interface")
    assert importlib.util.find_spec("fast_hadamard_transform") is package.__spec__
    assert package.__version__ == "1.1.0" and package.fast_hadamard_transform_interface is interface
    assert package.hadamard_transform is compat.hadamard_transform and interface.hadamard_transform_28N is compat.hadamard_transform_28N
    fwht.compat.uninstall()
    assert importlib.util.find_spec("fast_hadamard_transform") is None


def test_modules_that_looked_before(no_package, monkeypatch):
    looked, other = ModuleType("looked"), ModuleType("other")
    looked.fast_hadamard_transform = looked.hadamard_transform = looked.something_else = None
    other.hadamard_transform = kept = object()
    monkeypatch.setitem(sys.modules, "looked", looked)
    monkeypatch.setitem(sys.modules, "other", other)
    assert {"looked.fast_hadamard_transform", "looked.hadamard_transform"} <= set(fwht.compat.install())
    assert looked.hadamard_transform is looked.fast_hadamard_transform.hadamard_transform is compat.hadamard_transform
    assert other.hadamard_transform is kept and looked.something_else is None
    late = ModuleType("late")
    late.hadamard_transform = None
    monkeypatch.setitem(sys.modules, "late", late)
    assert fwht.compat.install() == ["late.hadamard_transform"]
    looked.fast_hadamard_transform = kept  # somebody else's since
    fwht.compat.uninstall()
    assert looked.hadamard_transform is None and late.hadamard_transform is None and looked.fast_hadamard_transform is kept


@pytest.mark.parametrize("text", ["def hadamard_transform(x, scale=1.0): return x", "", "import no_such_module"])
def test_a_package_that_is_there(no_package, monkeypatch, tmp_path, text):
    """It is left alone, also where it lacks the function; one that cannot be imported is replaced."""
    (tmp_path / "fast_hadamard_transform").mkdir()
    (tmp_path / "fast_hadamard_transform/__init__.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert bool(fwht.compat.install()) == ("no_such" in text)
    package = importlib.import_module("fast_hadamard_transform")
    assert (getattr(package, "hadamard_transform", None) is compat.hadamard_transform) == ("no_such" in text)


def test_the_second_wheel(no_package, monkeypatch):
    """Its two files, and that `install` takes them for ours: it fills in what was None and puts nothing into sys.modules."""
    monkeypatch.syspath_prepend(STAND_IN)
    looked = ModuleType("looked")
    looked.hadamard_transform = None
    monkeypatch.setitem(sys.modules, "looked", looked)
    assert fwht.compat.install() == ["looked.hadamard_transform"]
    package = importlib.import_module("fast_hadamard_transform")
    interface = importlib.import_module("fast_hadamard_transform.fast_hadamard_transform_interface")
    assert Path(package.__file__).is_relative_to(STAND_IN) and package.hadamard_transform is compat.hadamard_transform
    assert package.__version__ == fwht.compat.VERSION and f'version = "{package.__version__}"' in (STAND_IN / "pyproject.toml").read_text()
    assert all(getattr(interface, name) is getattr(compat, name) for name in compat.__all__)


def test_nothing_changes_until_it_is_asked_for():
    code = "import sys, fwht; assert 'torch' not in sys.modules and 'fwht.compat' not in sys.modules and 'fwht.integrations' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "import sys, fwht.compat; assert not [name for name in sys.modules if name.startswith('fast_hadamard')]"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- as the frameworks call it ---------------------------------------------------------------------------------------


@devices
def test_a_transposed_view(device):
    """auto-round rotates the columns of a weight by the rows of its transpose, which it makes contiguous or not."""
    w = integers(64, 48, device=device)
    y = compat.hadamard_transform(w.t(), 1.0 / torch.tensor(64).sqrt()).t()
    assert torch.equal(y, (torch.from_numpy(hadamard(64)).float().to(device) @ w) * (1.0 / math.sqrt(64)))


@devices
def test_blocks_and_gradients_in_bfloat16(device):
    """ModelOpt's blocks, and Megatron's indexer: bfloat16, n = 128, scale n^-0.5, with a gradient."""
    x = integers(3, 2, 128, device=device, dtype=torch.bfloat16).requires_grad_()
    y = compat.hadamard_transform(x, scale=128**-0.5)
    h, scale = torch.from_numpy(hadamard(128)).float().to(device), torch.tensor(128**-0.5, device=device)
    assert torch.equal(y, (x.detach().float() @ h * scale).bfloat16())
    (grad,) = torch.autograd.grad(y, x, torch.ones_like(y))
    assert torch.equal(grad, (torch.ones(3, 2, 128, device=device) @ h * scale).bfloat16())


@pytest.mark.filterwarnings("error:.*Dynamo")
def test_the_interface_in_a_graph():
    torch.compiler.reset()
    x = integers(4, 80, device="cpu")
    for function in (getattr(compat, name) for name in compat.__all__ if name != "hadamard_transform_ref"):
        compiled = torch.compile(function, backend="eager", fullgraph=True)
        assert torch.equal(compiled(x, 80**-0.5), function(x, 80**-0.5))


@pytest.mark.filterwarnings("ignore:Converting a tensor")
@pytest.mark.parametrize("name", compat.__all__)
def test_the_interface_in_a_trace(name):
    function, x = getattr(compat, name), torch.randn(3, 60)
    assert torch.equal(torch.jit.trace(function, (x.flip(0),))(x), function(x))


def test_transformers_4_which_asked_at_import(monkeypatch):
    """Its answer is a number of the module, not a cached function."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "fast_hadamard_transform"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(importlib, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    module = ModuleType("transformers.utils.import_utils")
    module._hadamard_available = False
    module.is_hadamard_available = lambda: module._hadamard_available
    monkeypatch.setitem(sys.modules, module.__name__, module)
    fwht.compat.install()
    assert module.is_hadamard_available() is True
    fwht.compat.uninstall()
    assert module.is_hadamard_available() is False


def test_transformers_5_keeps_its_answer_in_a_cache(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "fast_hadamard_transform"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(importlib, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    module = ModuleType("transformers.utils.import_utils")
    module.is_hadamard_available = functools.lru_cache(lambda: "fast_hadamard_transform" in sys.modules)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert module.is_hadamard_available() is False
    fwht.compat.install()
    assert module.is_hadamard_available() is True
    fwht.compat.uninstall()
    assert module.is_hadamard_available() is False
