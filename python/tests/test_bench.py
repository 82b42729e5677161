"""python -m fwht.bench: peers, their kernels where the host can run them, and the way into the sweep's library."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import fwht
from conftest import hadamard, truth
from fwht import _c

from fwht.bench import PEERS, Peer, Problem, agreement
from fwht.bench import _library, _linear, _run, peers


def problem(n=256, rows=3, dtype=torch.float16, scale=None, in_place=False, operator=""):
    return Problem(n, rows, dtype, n**-0.5 if scale is None else scale, in_place, 0, operator)


# --- who can be used -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("doa", "--peer doa: unknown; known: dao, hadacore"),
        ("matmul=.", "--peer matmul=.: matmul is not built from a checkout"),
        ("dao=/no/such/folder", "/no/such/folder is no folder"),
        ("vllm", "--peer vllm: ModuleNotFoundError: No module named 'vllm'"),
    ],
)
def test_a_peer_that_cannot_be_used(named, words):
    if named == "vllm" and not PEERS["vllm"]().missing():
        pytest.skip("vllm is installed")
    with pytest.raises(ValueError) as caught:
        _run.chosen_peers([named])
    assert words in str(caught.value)


def test_an_empty_checkout(tmp_path):
    if not PEERS["hadacore"]().missing():
        pytest.skip("its package is installed")
    assert "has no hadamard_transform.cpp" in peers.HadaCore(tmp_path).missing()


def test_the_others_go_on_without_those_that_are_missing():
    usable, sentences = _run.chosen_peers(None)
    assert {peer.name for peer in usable} | {sentence.split(":")[0] for sentence in sentences} == set(PEERS)
    assert "matmul" in {peer.name for peer in usable}
    assert _run.chosen_peers(["none"]) == ([], [])


def test_what_a_peer_takes():
    dao, core, mm = peers.Dao(), peers.HadaCore(), peers.Matmul()
    assert dao.why_not(problem()) == "" and core.why_not(problem(in_place=True)) == ""
    assert dao.why_not(problem(in_place=True)) == "the result never replaces the input"
    assert "n=4 must be between 8 and 32768" in dao.why_not(problem(n=4))
    assert "torch.float32 data are not offered" in core.why_not(problem(dtype=torch.float32))
    assert "scale=1.0 must be 1/sqrt(n)" in core.why_not(problem(scale=1.0))
    assert dao.why_not(problem(scale=1.0)) == "" and mm.why_not(problem(n=2**14)) != ""
    assert dao.why_not(problem(n=14336, operator="28x512")) == dao.why_not(problem(n=40960, operator="20x2048")) == ""
    assert dao.why_not(problem(n=4096, operator="4096")) == ""
    for n, text in ((24576, "12x2048"), (24, "12x2"), (11008, "172x64"), (10944, "76x2x36x2")):
        assert f"the operator {text} is not offered" in dao.why_not(problem(n=n, operator=text))
    assert "the operator 28x512 is not offered" in core.why_not(problem(n=14336, operator="28x512"))
    assert mm.why_not(problem(n=768, operator="12x64")) == ""
    through = peers.ThisPackage("cpu")
    assert "cpu works on host memory" in through.why_not(problem())


def test_settings_are_json():
    for kind in PEERS.values():
        assert isinstance(kind().settings()["torch"], str)
    assert peers.Dao(Path("/")).settings()["commit"] == "unknown"


# --- kernels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 8, 64, 1024])
def test_butterflies_and_matrix(n):
    x = torch.from_numpy(np.random.default_rng(0).integers(-8, 8, (3, n))).float()
    expected = torch.from_numpy(truth(x.numpy(), 0.5)).float()
    assert torch.equal(peers.butterflies(x, 0.5), expected)
    assert np.array_equal(peers.hadamard_matrix(n).numpy(), hadamard(n))


@pytest.mark.parametrize(("m", "text"), [(12, "12x16"), (20, "20x16"), (28, "28tx16")])
def test_another_matrix_of_the_same_order(m, text, monkeypatch):
    """Rows and columns of ours exchanged and negated stand for the published library's."""
    n, generator = 16 * m, torch.Generator().manual_seed(m)
    ours = peers.operator_matrix(text, n)
    sign = torch.where(torch.rand(2, m, generator=generator) < 0.5, -1.0, 1.0).double()
    base = ours[::16, ::16][torch.randperm(m, generator=generator)][:, torch.randperm(m, generator=generator)]
    base = sign[0][:, None] * base * sign[1]

    def kernel(x, scale):
        return (x.double() @ torch.kron(base, peers.hadamard_matrix(x.shape[-1] // m)) * scale).to(x.dtype)

    monkeypatch.setattr(peers.Dao, "_load_special", lambda self, order: kernel if order == m else None)
    dao, asked = peers.Dao(), problem(n=n, dtype=torch.float32, operator=text)
    x = torch.randint(-8, 9, (asked.rows, n), generator=generator).float()
    call = dao.make(asked._replace(scale=1.0))
    result = call(x, x)
    assert not torch.equal(result.double(), x.double() @ ours)
    # Integers, but for sums of twelfths that should be 0.
    torch.testing.assert_close(dao.delivered(result, asked).double(), x.double() @ ours, rtol=0, atol=1e-9)
    plain = problem()
    assert dao.delivered(result, plain) is result


INTERPRETED = """
import torch
from fwht.bench import _triton
generator = torch.Generator().manual_seed(0)
for dtype, lengths in ((torch.float16, (16, 32, 64, 128, 256, 512)), (torch.float32, (16, 128))):
    for n in lengths:
        x = torch.randn(37, n, generator=generator).to(dtype)
        h = torch.ones(1, 1, dtype=torch.float64)
        while h.shape[0] < n:
            h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
        exact = x.double() @ h * n**-0.5
        out = torch.full_like(x, 7.0)
        _triton.hadamard_transform(x, out, n**-0.5)
        error = ((out.double() - exact).norm() / exact.norm()).item()
        # One rounding is 0.42 u; every further stage of 16-bit data rounds once more.
        u = 2.0**-11 if dtype == torch.float16 else 2.0**-24 * n.bit_length()
        assert error < u, (dtype, n, error)
        _triton.hadamard_transform(x, x, n**-0.5)
        assert torch.equal(x, out), (dtype, n)
print("fine")
"""


def test_the_triton_kernel():
    """By Triton's interpreter, which runs on the CPU."""
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED], text=True, capture_output=True, env={**os.environ, "TRITON_INTERPRET": "1"}
    )
    assert done.returncode == 0 and "fine" in done.stdout, done.stderr[-2000:]


# --- linear layers ---------------------------------------------------------------------------------------------------


def test_gptq_words():
    numbers = torch.randint(0, 16, (24, 16), generator=torch.Generator().manual_seed(0), dtype=torch.int64)
    shifts = torch.arange(0, 32, 4)
    rows = (numbers.view(3, 8, 16) << shifts[None, :, None]).sum(1)
    columns = (numbers.view(24, 2, 8) << shifts).sum(2)
    for words, along in ((rows, 0), (columns, 1)):
        as_stored = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
        assert torch.equal(_linear.unpacked(as_stored, along).long(), numbers)


def test_tinygemm_has_the_same_weights(monkeypatch):
    """Scales that bfloat16 holds: W = s (q - z) again, from the halves of a byte and an offset."""
    layer = _linear.Layer(3, 8, 256, 128, torch.bfloat16, "v1", 0)
    generator = torch.Generator().manual_seed(1)
    q = torch.randint(0, 16, (256, 8), generator=generator, dtype=torch.int32)
    z = torch.randint(1, 17, (2, 8), generator=generator, dtype=torch.int32)
    scales = torch.tensor([0.5, 0.25]).half()[:, None].expand(2, 8)
    monkeypatch.setattr(torch.ops.aten, "_convert_weight_to_int4pack", lambda rows, inner: rows, raising=False)
    halves, pairs = _linear.Tinygemm().pack(layer, q, z, scales)
    rows = torch.stack([halves >> 4, halves & 15], -1).reshape(8, 256).t().float()
    per_row = pairs.float().repeat_interleave(128, 0)
    expected = scales.float().repeat_interleave(128, 0) * (q - z.repeat_interleave(128, 0))
    assert torch.equal((rows - 8) * per_row[..., 0] + per_row[..., 1], expected)


def test_what_a_linear_peer_takes():
    peer, layer = _linear.Tinygemm(), _linear.Layer(3, 4096, 4096, 128, torch.bfloat16, "v1", 0)
    assert peer.why_not(layer) == ""
    assert "torch.float16 data are not offered" in peer.why_not(layer._replace(dtype=torch.float16))
    assert "group 4096" in peer.why_not(layer._replace(group=4096))
    assert "k=4000 must be a multiple of 128" in peer.why_not(layer._replace(k=4000))
    sizes = [_linear._bytes(part) for part in peer.parts(layer)]
    assert sizes == [4096 * 4096 // 2, 32 * 4096 * 4]


# --- the way into the library ----------------------------------------------------------------------------------------


class Odd(Peer):
    name = "odd"

    def load(self):
        return None

    def why_not(self, problem):
        if problem.n == 64:
            raise RuntimeError("it fell\nover")
        return "" if problem.rows % 2 else f"rows={problem.rows} must be odd"


def test_a_peer_behind_c_functions():
    answers = _library.Answers(Odd())
    problem = _c.make_problem((3, 8), _c.F16, "float16", 1.0, in_place=True, device=-1, operator="8")
    asked = _library._Problem(b"f16/n8/r3", problem, 0)
    buffer = ctypes.create_string_buffer(16)
    assert answers.struct.name == b"peer:odd"
    assert answers.struct.supports(asked, ctypes.addressof(buffer), 16) == 0
    asked.problem.rows = 4
    assert answers.struct.supports(asked, ctypes.addressof(buffer), 16) == 1
    assert buffer.value == b"rows=4 must be "  # cut to the buffer
    asked.problem.n = 64
    assert answers.struct.supports(asked, ctypes.addressof(buffer), 16) == 1
    assert buffer.value == b"RuntimeError: i"


def test_agreement():
    def row(variant, rows, time_us, status="ok"):
        return {"variant": variant, "dtype": "f16", "n": "64", "rows": rows, "placement": "in", "mode": "replay",
                "time_us": time_us, "status": status}  # fmt: skip

    table = [row("auto", "1", "2.0"), row("peer:python:auto", "1", "2.02"), row("auto", "2", "5"), row("naive", "1", "9"),
             row("peer:python:auto", "2", "", "failed")]  # fmt: skip
    ((where, gap),) = agreement(table, "auto")
    assert where == "f16/64/1/in/replay" and gap == pytest.approx(0.01)


def run(*arguments, **changes):
    kept = {key: value for key, value in os.environ.items() if key != "FWHT_BENCH_LIBRARY" or key in changes}
    return subprocess.run(
        [sys.executable, "-m", "fwht.bench", *arguments], text=True, capture_output=True, env={**kept, **changes}
    )


def test_without_the_library(tmp_path):
    done = run("--peer", "none", "--dry-run", FWHT_BENCH_LIBRARY=str(tmp_path / "nothing.so"))
    assert done.returncode == 2 and "nothing.so is no file; build the repository" in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1


def library():
    try:
        return str(_library.find())
    except ImportError as error:
        pytest.skip(str(error))


def test_the_sweeps_arguments():
    file = library()
    done = run("--peer", "none", "--no-such", FWHT_BENCH_LIBRARY=file)
    assert done.returncode == 2 and done.stderr.startswith("fwht.bench: ") and "--no-such" in done.stderr, done.stderr
    done = run("--peer", "matmul", "--dry-run", "--variant", "cpu", "--problem", "f16/n64/r3", "--mode", "replay",
               "--mode", "host", FWHT_BENCH_LIBRARY=file)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "cpu/f16/n64/r3/host" in done.stdout
    assert "unsupported: peer:matmul/f16/n64/r3: " in done.stdout
    if fwht.build_info()["devices"]:
        assert "the result never replaces the input" in done.stdout


def test_arguments_of_linear_layers():
    file = library()
    done = run("linear", "--peer", "marlin", FWHT_BENCH_LIBRARY=file)
    assert done.returncode == 2 and "--peer marlin: unknown; known: tinygemm, none" in done.stderr, done.stderr
    done = run("linear", "--variant", "cpu", "--problem", "bf16/m1/n64/k256/w4g128", "--dry-run", FWHT_BENCH_LIBRARY=file)
    assert done.returncode == 0 and "cpu/bf16/m1/n64/k256/w4g128/host" in done.stdout, done.stdout + done.stderr
    assert "peer:tinygemm/bf16/m1/n64/k256/w4g128" in done.stdout  # in cold mode, or not supported for want of a device


@pytest.mark.skipif(fwht.build_info()["devices"] == 0, reason="no CUDA device, or this libfwht was built without CUDA")
def test_a_run_of_linear_layers(tmp_path):
    import csv

    folder, zeros = tmp_path / "results", ("", "/v2", "/sym")
    problems = [word for form in zeros for word in ("--problem", f"bf16/m16/n1024/k1024/w4g64{form}")]
    done = run("linear", "--variant", "w4a16_pipelined", *problems, "--output", str(folder), FWHT_BENCH_LIBRARY=library())
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    with open(folder / "linear.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["variant"] for row in rows) == ["peer:tinygemm"] * 3 + ["w4a16_pipelined"] * 3
    assert all(row["status"] == "ok" and float(row["time_us"]) > 0 for row in rows)


@pytest.mark.skipif(fwht.build_info()["devices"] == 0, reason="no CUDA device, or this libfwht was built without CUDA")
def test_a_run(tmp_path):
    import csv

    folder = tmp_path / "results"
    done = run("--peer", "matmul", "--peer", "triton", "--variant", "auto", "--problem", "f16/n256/r4096/out",
               "--problem", "bf16/n1024/r1024/out", "--mode", "replay", "--output", str(folder),
               FWHT_BENCH_LIBRARY=library())  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    with open(folder / "results.csv", newline="") as file:
        rows = {(row["variant"], row["n"]): row for row in csv.DictReader(file)}
    assert set(rows) == {(name, n) for name in ("auto", "peer:matmul", "peer:triton", "peer:python:auto") for n in ("256", "1024")}
    for (name, _), row in rows.items():
        assert row["status"] == "ok" and float(row["time_us"]) > 0
        assert (float(row["host_us"] or 0) > 0) == name.startswith("peer:")
    assert "auto through Python against the sweep's own call: 2 problems" in done.stdout
