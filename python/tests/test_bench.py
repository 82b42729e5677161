"""python -m fwht.bench: peers, their kernels where the host can run them, and the way into the sweep's library."""

import contextlib
import ctypes
import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import fwht
from conftest import hadamard, truth
from fwht import _c

from fwht.bench import PEERS, Peer, Problem, agreement
from fwht.bench import _attention, _chains, _layers, _library, _linear, _long, _run, _walsh, peers


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
    assert "has no fastWalshTransform_kernel.cuh" in peers.CudaSample(tmp_path).missing()
    assert "cuda_sample=CHECKOUT names a checkout" in peers.CudaSample().missing()


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
    sample = peers.CudaSample()
    vectors = problem(n=2**20, dtype=torch.float32, scale=1.0, in_place=True)
    assert sample.why_not(vectors) == "" and "scale=0.5 must be 1" in sample.why_not(vectors._replace(scale=0.5))
    assert "4096 rows of 1048576: at most 65535, and 2^31 elements" in sample.why_not(vectors._replace(rows=4096))
    assert sample.why_not(vectors._replace(in_place=False)) == "the result replaces the input"
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
    for dtype in (torch.float64, torch.int32):
        same = peers.butterflies(x.to(dtype), 1.0)
        assert same.dtype is dtype and torch.equal(same.double(), 2 * expected.double())
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
    done = subprocess.run([sys.executable, "-c", INTERPRETED], text=True, capture_output=True, env={**os.environ, "TRITON_INTERPRET": "1"})
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


def test_agreement_is_of_one_problem():
    """Others of this length, by another operator or with codes, are other problems."""

    def row(variant, time_us, operator="28x128", encoding=""):
        return {"variant": variant, "operator": operator, "encoding": encoding, "dtype": "f16", "n": "3584", "rows": "1", "placement": "out",
                "mode": "replay", "time_us": time_us, "status": "ok"}  # fmt: skip

    table = [row("auto", "2.0"), row("peer:python:auto", "2.02"), row("auto", "4", encoding="e4m3:row"), row("auto", "8", "7x512"), row("peer:python:auto", "8.8", "7x512")]
    assert agreement(table, "auto") == [("f16/28x128/1/out/replay", pytest.approx(0.01)), ("f16/7x512/1/out/replay", pytest.approx(0.1))]


def run(*arguments, **changes):
    kept = {key: value for key, value in os.environ.items() if key != "FWHT_BENCH_LIBRARY" or key in changes}
    return subprocess.run([sys.executable, "-m", "fwht.bench", *arguments], text=True, capture_output=True, env={**kept, **changes})


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
    else:
        assert "no CUDA device is found; the variants for the host are timed" in done.stderr


def test_arguments_of_linear_layers():
    file = library()
    done = run("linear", "--peer", "marlin", FWHT_BENCH_LIBRARY=file)
    assert done.returncode == 2 and "--peer marlin: unknown; known: tinygemm, none" in done.stderr, done.stderr
    done = run("linear", "--peer", "tinygemm", "--peer", "none", "--variant", "cpu", "--problem", "bf16/m1/n64/k256/w4g128", "--dry-run", FWHT_BENCH_LIBRARY=file)
    assert done.returncode == 0 and "tinygemm" not in done.stdout, done.stdout + done.stderr
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


# --- attention -------------------------------------------------------------------------------------------------------

SHAPE = _attention.Shape(128, 4, 2)


def at(pointer, shape, dtype):
    """Memory of the host that the stand-in was given the address of."""
    size = int(np.prod(shape)) * dtype.itemsize
    return torch.frombuffer((ctypes.c_uint8 * size).from_address(pointer), dtype=dtype).reshape(shape)


class StandIn:
    """The functions of the package cudnn that are called; its kernel is exact attention on what it is declared and given."""

    __version__ = "0"

    class data_type:
        FP8_E4M3, FLOAT = torch.float8_e4m3fn, torch.float32

    class heur_mode:
        A, FALLBACK = 0, 1

    def __init__(self, version=91900, refuses=""):
        self.version, self.refuses, self.streams = version, refuses, []

    def backend_version(self):
        return self.version

    def create_handle(self):
        return 7

    def set_stream(self, handle, stream):
        self.streams.append((handle, stream))

    def pygraph(self, **settings):
        assert settings["handle"] == 7
        return StandInGraph(self.refuses)


class StandInTensor:
    def __init__(self, uid=0, dim=(), stride=(), data_type=None):
        self.uid, self.dim, self.stride, self.data_type = uid, dim, stride, data_type

    def __getattr__(self, name):
        def set_it(value):
            setattr(self, name.removeprefix("set_"), value)
            return self

        return set_it


class StandInGraph:
    def __init__(self, refuses):
        self.refuses, self.declared = refuses, {}

    def tensor(self, **about):
        return StandInTensor(**about)

    def sdpa_fp8(self, **asked):
        assert asked["attn_scale"] == 128**-0.5 and asked["use_causal_mask"] and not asked["generate_stats"]
        self.asked, self.outputs = asked, [StandInTensor() for _ in range(4)]
        return self.outputs

    def validate(self):
        pass

    build_operation_graph = build_plans = validate

    def create_execution_plans(self, modes):
        assert modes == [0, 1]

    def check_support(self):
        if self.refuses:
            raise ValueError(self.refuses + "\nand more")

    def get_workspace_size(self):
        return 0

    def execute(self, pack, workspace, handle):
        assert workspace and handle == 7

        def rows(tensor):
            _, heads, tokens, head = tensor.dim
            assert tensor.stride == (tokens * heads * head, head, heads * head, 1)
            return at(pack[tensor.uid], (tokens, heads, head), tensor.data_type)

        number = {name: at(pack[self.asked[name].uid], (), torch.float32).item() for name in self.asked if "scale_" in name}
        assert number["descale_s"] * number["scale_s"] == 1
        q, k, v = (rows(self.asked[name]).double() * number[f"descale_{name}"] for name in "qkv")
        out = self.outputs[0]
        largest = torch.finfo(out.data_type).max  # the kernel saturates; conversions of torch 2.11 give NaN
        rows(out)[...] = (_attention.attention(q, k, v) * number["scale_o"]).clamp(-largest, largest).to(out.data_type)
        assert self.outputs[2].output and {self.outputs[2].uid, self.outputs[3].uid} <= set(pack)


def test_recorded_arguments_name_no_folder_of_the_machine():
    assert _attention.without_folders(["--output", "/somewhere/else/run", "--tokens", "2048"]) == ["--output", "run", "--tokens", "2048"]


def test_attention_is_attention():
    x = _attention.inputs_of(SHAPE, "normal", 0, "cpu")
    q, k = (_attention.embedded(y.double(), x.cos_sin) for y in (x.q, x.k))
    expected = torch.nn.functional.scaled_dot_product_attention(*(y.transpose(0, 1)[None] for y in (q, k, x.v.double())), is_causal=True, enable_gqa=True)[
        0
    ].transpose(0, 1)
    torch.testing.assert_close(_attention.attention(q, k, x.v, rows=48), expected)
    # Scores depend on the distance of two positions alone.
    same = torch.ones(128, 1, 1, dtype=torch.float64) * q[:1]
    turned = _attention.embedded(same, x.cos_sin)[:, 0]
    scores = turned @ turned.T
    torch.testing.assert_close(scores[:-1, :-1], scores[1:, 1:], rtol=1e-5, atol=1e-4)


def test_one_launch_has_the_codes_of_three():
    x = _attention.inputs_of(SHAPE, "channels", 0, "cpu")
    scales = _attention.calibrated(_attention.inputs_of(SHAPE, "channels", 1, "cpu"), True)
    one, three = (_attention.launches(case, x, scales) for case in ("fp8_rotated", "fp8_rotated_apart"))
    for name in ("q", "k", "v"):
        assert torch.equal(one[name]().view(torch.uint8), three[name]().view(torch.uint8))
    assert set(_attention.launches("bf16", x, scales)) == {"q", "k"}


@pytest.mark.parametrize(("data", "least", "most"), [("normal", 0.95, 1.05), ("channels", 0.1, 0.5), ("entries", 0.2, 0.8)])
def test_what_rotation_saves(data, least, most):
    x, other = (_attention.inputs_of(SHAPE, data, seed, "cpu") for seed in (0, 1))
    truth = _attention.truth_of(x)

    def error(case):
        scales = _attention.calibrated(other, "rotated" in case)
        return _attention.errors_of(case, x, scales, truth, None)["rel_l2_of_inputs"]

    assert least < error("fp8_rotated") / error("fp8") < most


def test_cudnn_gets_what_it_is_told(monkeypatch):
    module = StandIn()
    monkeypatch.setitem(sys.modules, "cudnn", module)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: type("Stream", (), {"cuda_stream": 5}))
    kernel = _attention.CudnnFp8(SHAPE, "cpu")
    x, other = (_attention.inputs_of(SHAPE, "normal", seed, "cpu") for seed in (0, 1))
    scales, truth = _attention.calibrated(other, True), _attention.truth_of(x)
    kernel.set_scales(scales)
    errors = _attention.errors_of("fp8_rotated", x, scales, truth, kernel.numbers)
    assert module.streams == [(7, 5)]
    # One more rounding to e4m3, of the output: independent errors add in squares; 2^-4 is the largest of one rounding.
    assert errors["rel_l2_of_inputs"] < errors["rel_l2"] < (errors["rel_l2_of_inputs"] ** 2 + 2.0**-8) ** 0.5


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (None, "the package cudnn is missing"),
        (StandIn(91300), "cuDNN 91300 is too old: FP8 attention is taken from 9.14 (91400) on"),
        (StandIn(refuses="not on this device"), "cuDNN 91900 refuses this FP8 attention: not on this device"),
    ],
)
def test_why_there_is_no_fp8_attention(module, words, monkeypatch):
    monkeypatch.setitem(sys.modules, "cudnn", module)
    with pytest.raises(RuntimeError) as caught:
        _attention.CudnnFp8(SHAPE, "cpu")
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tokens", "2000"], "--tokens 2000: must be a positive multiple of 128"),
        (["--tokens", "2k"], "--tokens 2k: must be numbers with commas between them"),
        (["--heads", "30"], "--heads 30: must be a multiple of --kv-heads 8"),
        (["--kv-heads", "4,8"], "--kv-heads 4,8: must be one number"),
        (["--data", "real"], "--data real: unknown; known: normal, channels, entries"),
        (["--output", "."], "--output .: has an attention.json"),
        ([], "PyTorch sees no CUDA device"),
    ],
)
def test_bad_attention(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "attention.json").touch()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert _run.main(["attention", *arguments]) == 2
    assert capsys.readouterr().err == f"fwht.bench attention: {words}\n"


@pytest.mark.parametrize("module", [None, StandIn()])
def test_a_run_of_attention(module, monkeypatch, tmp_path, capsys):
    """On the host, with every call made once for its time."""
    inputs = _attention.inputs_of

    def times_of(calls):
        for call in calls.values():
            call()
        return dict.fromkeys(calls, 2.0)

    monkeypatch.setitem(sys.modules, "cudnn", module)
    kernel = _attention.CudnnFp8
    monkeypatch.setattr(_attention, "CudnnFp8", lambda shape: kernel(shape, "cpu"))
    monkeypatch.setattr(_attention, "inputs_of", lambda shape, data, seed: inputs(shape, data, seed, "cpu"))
    calibrated, of = _attention.calibrated, []
    monkeypatch.setattr(_attention, "calibrated", lambda x, rotate: (of.append(x), calibrated(x, rotate))[1])
    monkeypatch.setattr(_attention, "times_of", times_of)
    monkeypatch.setattr(_attention, "_copy", lambda bytes_moved: lambda: None)
    monkeypatch.setattr(_attention, "_plain_attention", lambda x: ("NONE", _attention.attention))
    for name, answer in (("is_available", True), ("get_device_capability", (9, 0)), ("get_device_name", "none")):
        monkeypatch.setattr(torch.cuda, name, lambda answer=answer: answer)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: type("Stream", (), {"cuda_stream": 5}))
    asked = ["attention", "--tokens", "128", "--heads", "4", "--kv-heads", "2", "--data", "channels", "--output", str(tmp_path)]
    assert _run.main(asked) == 0
    written, said = json.loads((tmp_path / "attention.json").read_text()), capsys.readouterr()
    rows = {row["case"]: row for row in written["rows"]}
    assert of and all(x is inputs(SHAPE, "channels", 1, "cpu") for x in of)  # other data than what is measured, which has the seed 0
    assert set(rows) == set(_attention.CASES) and written["about"]["library"]["version"] == fwht.__version__
    assert rows["bf16"]["v_us"] is None and rows["bf16"]["layer_us"] == 2.0 and rows["bf16"]["rel_l2"] < 0.1
    for case, row in rows.items():
        if case != "bf16":
            assert row["q_bytes"] == 128 * 4 * 128 * 3 and row["q_us"] == row["v_us"] == row["inputs_us"] == 2.0
            assert (row["rel_l2"], row["layer_us"], row["kernel"]) == (None, None, None) if module is None else row["rel_l2"] > 0
            assert ("cudnn is missing" in row["why_not"]) == (module is None)
    assert rows["fp8_rotated"]["rel_l2_of_inputs"] < 0.5 * rows["fp8"]["rel_l2_of_inputs"]
    assert ("no FP8 attention: the package cudnn is missing" in said.err) == (module is None) and len(said.out.splitlines()) == 5


def test_the_table():
    row = dict.fromkeys(("case", "data", "tokens", "q_us", "k_us", "v_us", "inputs_us", "attention_us", "layer_us", "copy_of_q_us",
                         "q_terabytes_per_second", "rel_l2", "rel_l2_of_inputs"))  # fmt: skip
    lines = _attention.table([row | {"case": "bf16", "q_us": 1.5}]).splitlines()
    assert lines[1].split()[:4] == ["bf16", "-", "-", "1.5"] and lines[0].split()[3] == "q_us"


ROPE = """
import torch
from fwht.bench import _attention, _rope
x = _attention.inputs_of(_attention.Shape(128, 3, 3), "normal", 0, "cpu")
rows = x.q.float().view(-1, 128)
y = _rope.rope(rows, x.cos_sin, x.positions, 3)
torch.testing.assert_close(y.view(x.q.shape), _attention.embedded(x.q.float(), x.cos_sin), rtol=1e-6, atol=1e-6)
# Codes of numbers that have one: the interpreter does not round to e4m3 as the device does. Position 0 turns nothing.
numbers = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().nan_to_num(448).repeat(3, 1)
rows = torch.cat([numbers.view(-1, 128), torch.full((3, 128), -1000.0)]) * 0.25
codes = _rope.rope(rows, x.cos_sin, torch.zeros(3, dtype=torch.int64), 3, 0.25)
assert codes.dtype == torch.float8_e4m3fn
assert torch.equal(codes.float(), (rows * 4).clamp(-448, 448))
print("fine")
"""


def test_the_rope_kernel():
    """By Triton's interpreter, which runs on the CPU."""
    pytest.importorskip("triton")
    done = subprocess.run([sys.executable, "-c", ROPE], text=True, capture_output=True, env={**os.environ, "TRITON_INTERPRET": "1"})
    assert done.returncode == 0 and "fine" in done.stdout, done.stderr[-2000:]


# --- chains ----------------------------------------------------------------------------------------------------------

SMALL = {"int4_kv": 128, "int4_kv_back": 128, "r4": 768, "convrot": 768, "fold": 832}
# Of a token, which is read, and of its result; signs and matrices are not counted.
BYTES = {"int4_kv": 4 * 8 * 128, "int4_kv_back": 4 * 8 * 128, "r4": 4 * 768, "convrot": 3 * 768 + 4, "fold": 4 * 832}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("chain", _chains.CHAINS)
def test_a_chain_and_the_call_that_stands_for_it(chain, dtype):
    """On the CPU too the results are within the bound, and a result that is wrong is not."""
    pair = _chains.compared(chain, SMALL[chain], 6, dtype, "cpu")
    chained, ours = pair.chain(), pair.ours()
    difference = pair.difference(chained, ours)
    assert difference <= pair.bound and (difference > 0) == (chain != "fold")
    wrong = (ours[0].roll(1, -1), ours[1]) if chain == "convrot" else ours.roll(1, -1)
    assert pair.difference(chained, wrong) > pair.bound
    assert pair.bytes_moved == 6 * BYTES[chain]
    assert eval(pair.call.split("(")[0], {"operators": fwht.operators, "convrot": _chains.convrot, "integrations": fwht.integrations})


def test_the_chains_are_what_they_are_called():
    x = torch.randn(3, 8, 128, generator=torch.Generator().manual_seed(1))
    signs = torch.tensor([-1.0, 1.0]).repeat(64)
    torch.testing.assert_close(_chains.rotated_head(x, signs), fwht.hadamard_transform(x * signs, 1.0))
    torch.testing.assert_close(_chains.rotated_head_back(_chains.rotated_head(x, signs), signs), x)
    regular = _chains.regular_matrix(64, torch.float32, "cpu")
    torch.testing.assert_close(regular @ regular.t(), torch.eye(64))
    torch.testing.assert_close(x[..., :64] @ regular.t(), fwht.operators.transform(x[..., :64].contiguous(), "64r"))
    codes, scale = _chains.convrot_codes(torch.zeros(2, 256), _chains.regular_matrix(256, torch.float32, "cpu"))
    assert not codes.any() and (scale == 1e-30).all()


@pytest.mark.parametrize("n", [208, 832, 64])
def test_the_matrix_that_weights_are_multiplied_by(n):
    """Its entries are +-1, its rows orthogonal; the fold by factors is the product in float64, and one that rounds twice is told from it."""
    matrix = _chains.fold_matrix(n)
    dense = _chains.dense_fold_matrix(matrix, "cpu")
    assert torch.equal(dense.abs(), torch.ones(n, n, dtype=torch.float64)) and torch.equal(dense @ dense.t(), n * torch.eye(n, dtype=torch.float64))
    assert not torch.equal(dense, dense.t())
    weight = torch.randn(64, n, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    ours = _chains.compressed_tensors._fold(weight, matrix, None, True, True)
    torch.testing.assert_close(ours, _chains.folded(weight, dense), rtol=0, atol=1e-13)
    pair = _chains.compared("fold", n, 64, torch.bfloat16, "cpu")
    many = torch.randn(64, n, generator=torch.Generator().manual_seed(37)).bfloat16()
    assert torch.equal(pair.chain(), _chains.folded(many, dense))
    twice = ((many.double() @ dense.t()).bfloat16() / n**0.5).bfloat16()
    assert n == 64 or _chains.relative(twice, pair.ours()) > pair.bound  # 8 divides without a rounding


def test_what_is_wrong_is_not_timed(monkeypatch):
    monkeypatch.setattr(_chains, "times_of", lambda *given: pytest.fail("timed"))
    pair = _chains.compared("int4_kv", 128, 2, torch.bfloat16, "cpu")
    for factor, apart in ((0, "1"), (float("nan"), "nan")):
        with pytest.raises(RuntimeError, match=f"results are {apart} apart"):
            _chains.row_of("int4_kv", 128, 2, pair._replace(chain=lambda factor=factor: factor * pair.ours()))
    monkeypatch.setattr(_chains, "compared", lambda *_: pair._replace(chain=lambda: 0 * pair.ours()))
    made = list(_chains.measure("int4_kv", 128, (2, 3), torch.bfloat16, "cpu"))  # the others go on
    assert [(failure.what.split(": ")[0], failure.is_refused) for failure in made] == [(f"int4_kv, {m} tokens of 128", False) for m in (2, 3)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--chain", "r5"], "--chain r5: unknown; known: int4_kv, int4_kv_back, r4, convrot, fold"),
        (["--output", "."], "--output .: has a chains.json"),
        ([], "PyTorch sees no CUDA device"),
    ],
)
def test_bad_chains(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chains.json").touch()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert _run.main(["chains", *arguments]) == 2
    assert capsys.readouterr().err == f"fwht.bench chains: {words}\n"


def test_a_run_of_chains(monkeypatch, tmp_path, capsys):
    """On the host, with every call made once for its time. What is refused or fails is said, and all others are there."""
    compared, written = _chains.compared, tmp_path / "chains.json"
    timed_in_graphs, in_the_file = [], []

    def some(chain, n, tokens, dtype, device, matrix):
        if written.exists():
            in_the_file.append(len(json.loads(written.read_text())["rows"]))
        if tokens == 4:
            raise NotImplementedError("not here")
        if chain == failing:
            raise ValueError("broken")
        assert (matrix is not None) == (chain == "r4")
        return compared(chain, n, tokens, dtype, "cpu", matrix)

    def times_of(calls, in_graphs):
        timed_in_graphs.append(in_graphs)
        return {name: (call(), 4.0 if name == "chain" else 2.0)[1] for name, call in calls.items()}

    measure = _chains.measure
    monkeypatch.setattr(_chains, "compared", some)
    monkeypatch.setattr(_chains, "measure", lambda *given: measure(*given, "cpu"))
    monkeypatch.setattr(_chains, "times_of", times_of)
    monkeypatch.setattr(_chains, "launches_of", lambda call: 1)
    monkeypatch.setattr(_chains, "LENGTHS", {name: (n,) for name, n in SMALL.items()})
    monkeypatch.setattr(_chains, "TOKENS", dict.fromkeys(SMALL, (1, 4)))
    for name, answer in (("is_available", True), ("get_device_capability", (9, 0)), ("get_device_name", "none")):
        monkeypatch.setattr(torch.cuda, name, lambda answer=answer: answer)
    failing = None
    assert _run.main(["chains", "--output", str(tmp_path)]) == 0
    found, said = json.loads(written.read_text()), capsys.readouterr()
    assert [row["chain"] for row in found["rows"]] == list(SMALL) and set(found["about"]["chains"]) == set(SMALL)
    assert found["about"]["library"]["version"] == fwht.__version__ and "r4, 4 tokens of 768: NotImplementedError: not here" in said.err
    assert found["about"]["missing"] == said.err.splitlines() and len(found["about"]["missing"]) == len(SMALL)
    for row in found["rows"]:
        assert (row["ratio"], row["tokens"]) == (2.0, 1) and row["difference"] <= row["bound"]
        assert row["chain_launches"] == row["ours_launches"] == (1 if row["in_graphs"] else None) and row["in_graphs"] == (row["chain"] != "fold")
    assert timed_in_graphs == [True] * 4 + [False] and len(said.out.splitlines()) == 1 + len(SMALL)
    assert in_the_file == [1, 1, 2, 2, 3, 3, 4, 4, 5]  # the file has what came before
    written.unlink()
    failing = "int4_kv"
    assert _run.main(["chains", "--output", str(tmp_path)]) == 1
    found, said = json.loads(written.read_text()), capsys.readouterr()
    assert [row["chain"] for row in found["rows"]] == list(SMALL)[1:] and "int4_kv, 1 tokens of 128: ValueError: broken" in found["about"]["missing"]


# --- Walsh transforms beside compositions ----------------------------------------------------------------------------

SMALL_WALSH = {"rounds": 96, "rounds_bf16": 96, "rounds_dense": 96, "codes": 96, "bits": 96, "convolution": 64, "autocorrelation": 64, "sketch": 64,
               "sketch_back": 64, "summaries": 64}  # fmt: skip
# Of a row; signs are not counted.
WALSH_BYTES = {"rounds": 8 * 96, "rounds_bf16": 4 * 96, "rounds_dense": 8 * 96, "codes": 5 * 96 + 4, "bits": 4 * 96 + 96 // 8 + 4,
               "convolution": 12 * 64, "autocorrelation": 8 * 64, "sketch": 4 * (48 + 8), "sketch_back": 4 * (48 + 8), "summaries": 64 // 8 + 4 * 8}  # fmt: skip


@pytest.mark.parametrize("chain", _walsh.CHAINS)
def test_a_composition_and_the_call_that_stands_for_it(chain):
    """On the CPU too the results are within the bound, and a result that is wrong is not."""
    pair = _walsh.compared(chain, SMALL_WALSH[chain], 6, "cpu")
    chained, ours = pair.chain(), pair.ours()
    assert pair.difference(chained, ours) <= pair.bound
    wrong = (ours[0].roll(1, 0), ours[1]) if isinstance(ours, tuple) else ours.roll(1, -1)
    assert pair.difference(chained, wrong) > pair.bound
    table = 24 * chain.startswith("sketch")  # of 64 signs, places and counts; all rows share it
    assert pair.bytes_moved == 6 * WALSH_BYTES[chain] + table
    assert set(_walsh.SIZES) == set(_walsh.CHAINS) == set(SMALL_WALSH)


def test_the_levels_of_a_transform():
    assert [_walsh._levels(n) for n in (64, 96, 768, 1152, 3584)] == [6, 12 + 3, 12 + 6, 36 + 5, 28 + 7]


def test_a_run_of_walsh(monkeypatch, tmp_path, capsys):
    """On the host, with every call made once for its time."""
    compared, measure = _walsh.compared, _walsh.measure

    def some(chain, n, rows, device):
        if rows == 4:
            raise NotImplementedError("not here")
        return compared(chain, n, rows, "cpu")

    monkeypatch.setattr(_walsh, "compared", some)
    monkeypatch.setattr(_walsh, "measure", lambda *given: measure(*given, "cpu"))
    monkeypatch.setattr(_walsh, "SIZES", {name: [(n, 2), (n, 4)] for name, n in SMALL_WALSH.items()})
    monkeypatch.setattr(_chains, "times_of", lambda calls, in_graphs: {name: (call(), 4.0 if name == "chain" else 2.0)[1] for name, call in calls.items()})
    monkeypatch.setattr(_chains, "launches_of", lambda call: 1)
    for name, answer in (("is_available", True), ("get_device_capability", (9, 0)), ("get_device_name", "none")):
        monkeypatch.setattr(torch.cuda, name, lambda answer=answer: answer)
    assert _run.main(["walsh", "--output", str(tmp_path)]) == 0
    found, said = json.loads((tmp_path / "walsh.json").read_text()), capsys.readouterr()
    assert [row["chain"] for row in found["rows"]] == list(SMALL_WALSH) == list(found["about"]["chains"]) and "dtype" not in found["about"]
    assert all(row["rows"] == 2 and row["ratio"] == 2.0 and "tokens" not in row for row in found["rows"])
    assert "rounds, 4 rows of 96: NotImplementedError: not here" in said.err and said.out.split()[1] == "rows"
    assert _run.main(["walsh", "--chain", "r4"]) == 2
    assert capsys.readouterr().err.startswith("fwht.bench walsh: --chain r4: unknown; known: rounds, rounds_bf16")


@pytest.fixture
def seen(monkeypatch):
    """A list whose every element takes a millisecond, as events of a device see it."""

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = len(made)

        def synchronize(self):
            pass

        def elapsed_time(self, end):
            return float(end.at - self.at)

    made = []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    return made


def clock(*lasting):
    """Of readings around what lasts so long."""
    return iter([at for length in lasting for at in (0, length)]).__next__


def test_eager_calls_are_timed_in_turn(seen, monkeypatch):
    from fwht._torch import graph_times

    calls = {"a": lambda: seen.append("a"), "b": lambda: seen.extend("bb")}
    assert graph_times.eager_times_in_turn(calls, rounds=3) == {"a": 1e3, "b": 2e3} and seen == ["a", "b", "b"] * 3
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    monkeypatch.setattr(graph_times, "graph_of", lambda call, repeats: type("Graph", (), {"replay": lambda self: [call() for _ in range(repeats)]})())
    assert graph_times.times_in_turn(calls, repeats=5, rounds=3) == {"a": 1e3, "b": 2e3}
    lasting = iter([1, 10, 2])
    assert graph_times.eager_times_in_turn({"a": lambda: seen.extend("a" * next(lasting))}, rounds=3) == {"a": 2e3}


def test_times_of_the_host_are_medians(monkeypatch):
    none = contextlib.nullcontext
    cuda = SimpleNamespace(device=none, synchronize=lambda *_: None, _sleep=lambda _: None)
    monkeypatch.setattr(_library, "torch", SimpleNamespace(device=lambda *_: None, no_grad=none, cuda=cuda, randn=lambda *_, **__: None))
    monkeypatch.setattr(_library, "time", SimpleNamespace(perf_counter_ns=clock(1e4, 1e5, 2e4)))
    assert _library.host_us(lambda *_: None, SimpleNamespace(device=0, rows=1, n=1, dtype=None, in_place=True), calls=10, bursts=3) == 2
    monkeypatch.setattr(_layers, "HOST_ROUNDS", 3)
    monkeypatch.setattr(_layers, "time", SimpleNamespace(perf_counter=clock(9, 1, 10, 2)))  # the first warms up
    assert _layers.host_us(lambda: None, lambda: None) == 2e6 / _layers.HOST_CALLS


def test_a_graph_holds_as_many_calls_as_fill_its_time(seen, monkeypatch):
    monkeypatch.setattr(_long, "GRAPH_US", 12000)
    assert [_long._repeats(lambda: seen.extend(range(length)), 7) for length in (1, 2, 3, 20)] == [7, 6, 4, 1]


# --- layers ----------------------------------------------------------------------------------------------------------


def test_layers_in_a_run(monkeypatch, tmp_path, capsys):
    """On the host: errors and host times of every case and call, no device times."""
    monkeypatch.setattr(_layers, "HOST_CALLS", 2)
    monkeypatch.setattr(_layers, "HOST_ROUNDS", 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(_layers, "main", functools.partial(_layers.main, backend="aot_eager"))
    asked = ["layers", "--layers", "48x768", "--host-tokens", "1,3", "--output"]
    assert _run.main([*asked, str(tmp_path)]) == 0
    written, said = json.loads((tmp_path / "layers.json").read_text()), capsys.readouterr()
    about = written["about"]
    assert about["library"]["version"] == fwht.__version__ and not about["on_gpu"] and about["arguments"] == [*asked[1:], tmp_path.name]
    assert written["times"] == []
    assert {(row["call"], row["tokens"]) for row in written["host"]} == {(call, m) for call in about["calls"] for m in (1, 3)}
    assert all(row["host_us"] > 0 and (row["n"], row["k"]) == (48, 768) for row in written["host"])
    errors = {(row["data"], row["case"]): row["rel_l2"] for row in written["errors"]}
    assert set(errors) == {(data, case) for data in about["data"] for case in about["cases"]}
    for data in about["data"]:
        assert errors[data, "bf16"] < 2**-8 < errors[data, "fp8"] < 2**-4
        assert 2**-8 < errors[data, "fp8_rotated"] < 2**-4 and 0.02 < errors[data, "w4a16"] < 0.2
    assert len(said.out.splitlines()) == 1 + len(errors) + 1 + 1 + len(written["host"])
    assert about["missing"] == []
    assert _run.main([*asked, str(tmp_path)]) == 2 and "has a layers.json" in capsys.readouterr().err


def test_a_layer_that_fails_takes_no_other_along(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(_layers, "HOST_CALLS", 1)
    monkeypatch.setattr(_layers, "HOST_ROUNDS", 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    def compiled(module, **options):
        def call(x):
            raise RuntimeError("no compiler")

        return call

    monkeypatch.setattr(torch, "compile", compiled)
    modules_of = _layers.modules_of
    monkeypatch.setattr(_layers, "modules_of", lambda weight: modules_of(weight) if len(weight) == 48 else 1 / 0)
    assert _run.main(["layers", "--layers", "16x128,48x768", "--host-tokens", "1", "--output", str(tmp_path)]) == 1
    written, said = json.loads((tmp_path / "layers.json").read_text()), capsys.readouterr().err.splitlines()
    assert said == ["modules of 16x128: ZeroDivisionError: division by zero", "host of 48x768: RuntimeError: no compiler"] == written["about"]["missing"]
    assert len(written["errors"]) == len(_layers.CASES) * len(_layers.DATA)
    assert [row["call"] for row in written["host"]] == [name for name in _layers.CALLS if "compiled" not in name]


def test_layers_are_timed_with_other_weights(monkeypatch):
    """As many modules in turn as hold COLD bytes, more than any L2; times are of the calls of a graph."""
    seen, x = [], torch.ones(2, 128)
    assert _layers.COLD > 2 * (126 << 20)
    monkeypatch.setattr(_layers, "COLD", 3 * 128 * 16 * 4)
    monkeypatch.setattr(torch.nn.Linear, "forward", lambda self, x: seen.append(self))
    call = _layers.cold(torch.nn.Linear(128, 16, bias=False), x)
    for _ in range(6):
        call()
    assert len(set(map(id, seen))) == 3 and seen[:3] == seen[3:] and len({module.weight.data_ptr() for module in seen}) == 3
    weight = _layers.weight_of(16, 128, 0, "cpu")

    def times_in_turn(calls, **numbers):
        assert numbers == {"repeats": _layers.REPEATS, "rounds": _layers.ROUNDS}
        return dict.fromkeys(calls, 1.5)

    monkeypatch.setattr(_layers, "times_in_turn", times_in_turn)
    assert _layers.device_times({"bf16": torch.nn.Linear(128, 16)}, _layers.tokens_of(1, 128, "normal", 0, "cpu")) == {"bf16": 1.5}
    assert torch.equal(weight, _layers.weight_of(16, 128, 0, "cpu"))


def test_weights_of_four_bits_take_all_sixteen_codes():
    qweight, qzeros, scales = _layers.rounded((torch.arange(128.0) % 16 - 7).expand(8, -1))[:3]
    assert scales.eq(1).all() and qzeros.eq(0x66666666).all()  # stored less one
    assert qweight[:2, 0].tolist() == [0x76543210, 0xFEDCBA98 - (1 << 32)] and qweight.shape == (16, 8)
    positive = (torch.arange(128.0) % 8 + 8).expand(8, -1)  # a zero point of 0, stored less one, would borrow from others
    qweight, qzeros, scales = _layers.rounded(positive)[:3]
    assert scales.eq(1).all() and qzeros.eq(0).all() and qweight.eq(0xFFEDCBA9 - (1 << 32)).all()


def test_outliers_of_tokens():
    """50 times in one input of 512, +-1000 in one, at the same places whatever the seed."""
    plain, channels, massive, other = (
        _layers.tokens_of(16, 1024, data, seed, "cpu").float() for data, seed in (("normal", 2), ("channels", 2), ("massive", 2), ("massive", 3))
    )
    ratio = (channels / plain).mean(0)
    assert ((ratio - 50).abs() < 1).sum() == 2 and ratio.eq(1).sum() == 1022
    others = (_layers.tokens_of(16, 1024, data, 3, "cpu").float() for data in ("normal", "channels"))
    assert torch.ne(*others).all(0).equal(ratio.ne(1))
    assert massive.eq(1000).all(0).equal(other.eq(-1000).all(0)) and massive.ne(plain).any(0).sum() == 1 == massive.eq(1000).all(0).sum()


def test_what_the_host_calls(monkeypatch):
    called, compiled = [], torch.nn.Identity()
    modules = {case: torch.nn.Linear(128, 16, bias=False) for case in _layers.CASES}
    modules["w4a16"].packed = "packed"
    monkeypatch.setattr(torch, "compile", lambda module, **_: compiled if module is modules["w4a16"] else None)
    monkeypatch.setattr(_layers, "host_us", lambda call, wait: called.append(call.func) or 1.0)
    rows = list(_layers.host_rows(modules, [1], 0, "eager"))
    assert [row["call"] for row in rows] == list(_layers.CALLS)[:2] + ["GptqLinear", "Fp8Linear", "GptqLinear, compiled"]
    assert called[2:] == [modules["w4a16"], modules["fp8_rotated"], compiled]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--layers", "4096"], "--layers 4096: must be outputs x inputs, as in 4096x14336"),
        (["--layers", "4096x100"], "--layers 4096x100: outputs must be a multiple of 16, inputs one of 128"),
        (["--layers", "8x128"], "--layers 8x128: outputs must be a multiple of 16"),
        (["--tokens", "0"], "--tokens 0: must be a positive multiple of 1"),
        (["--host-tokens", "many"], "--host-tokens many: must be numbers with commas between them"),
    ],
)
def test_bad_layers(arguments, words, capsys):
    assert _run.main(["layers", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"fwht.bench layers: {words}")


# --- long vectors ----------------------------------------------------------------------------------------------------


@pytest.fixture
def long_on_the_host(monkeypatch):
    """The library's variant for the host stands for `auto`, and an L2 of 64 KiB for the device's."""
    package = peers.ThisPackage
    monkeypatch.setattr(peers, "ThisPackage", lambda: package("cpu"))
    monkeypatch.setattr(_long, "l2_bytes", lambda: 1 << 16)


@pytest.mark.parametrize("text", ["f32/n4096/r3", "f64/n1024/r5", "i32/n2048/r2", "i64/n1024/r1"])
def test_who_transforms_long_vectors_is_within_bounds_that_can_be_passed(text, long_on_the_host, monkeypatch):
    monkeypatch.setattr(_long, "PIECE", 1500)  # pieces of rows, and of a row
    asked = _long.problem_of(text)
    assert _long.text_of(asked) == text
    x = _long.random(asked, 1, 0, "cpu")[0]
    before, found = x.clone(), _long.contestants(asked, False, None)
    assert set(found) == {"fwht_in_place", "fwht", "butterflies"} | ({"cufft"} if text[0] == "f" else set())
    for case, contestant in found.items():
        limits = _long.bounds(asked, contestant)
        errors = _long.errors_of(contestant, asked, x)
        assert set(errors) == {"impulse", "parseval", "rel_l2"} and _long.wrong(errors, limits) == "", (case, errors, limits)
        assert torch.equal(x, before)

        def broken(y, _, call=contestant.call, how="roll"):
            result = call(y, y)
            return {"roll": lambda: result.roll(1, -1), "scale": lambda: 2 * result, "last": lambda: result.index_fill(1, torch.tensor([-1]), 0)}[how]()

        for how, caught in (("roll", "impulse"), ("scale", "parseval"), ("last", "rel_l2")):
            errors = _long.errors_of(contestant._replace(call=functools.partial(broken, how=how)), asked, x)
            assert f"wrong: {caught} " in _long.wrong(errors, limits), (case, how, errors)
    assert "wrong: impulse nan" in _long.wrong({"impulse": float("nan")}, {"impulse": 1.0})


def test_what_is_rotated():
    """Each call finds other memory, and as many results are kept; on one buffer the result's memory is free for the next."""
    seen, results = [], []

    def call(x, _):
        seen.append(x.data_ptr())
        results.append(x + 1)
        return results[-1]

    inputs = list(torch.zeros(3, 2, 4))
    rotating = _long.Rotating(_long.Contestant(call, False), inputs)
    for _ in range(7):
        rotating()
    assert len(set(seen)) == 3 and seen[:3] == seen[3:6] and [each.data_ptr() for each in rotating._kept] == [each.data_ptr() for each in results[-3:]]
    one = _long.Rotating(_long.Contestant(call, False), inputs[:1])
    for _ in range(2):
        one()
    assert len(one._kept) == 1


def test_what_cannot_be_captured_leaves_the_others(monkeypatch):
    def graph_of(call, repeats):
        return call()

    def fails():
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(_long, "_repeats", lambda call, most: min(most, 3))
    monkeypatch.setattr(_long, "graph_of", graph_of)
    monkeypatch.setattr(_long, "replayed_in_turn", lambda graphs, repeats, rounds: {name: float(graph) for name, graph in graphs.items()})
    times, why = _long.times_of({"a": lambda: 5, "b": fails, "c": lambda: 7}, 2)
    assert times == {"a": (5.0, 2), "c": (7.0, 2)}
    assert why == {"b": "RuntimeError: operation not permitted when stream is capturing"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--problem", "f16/n4096/r1"], "--problem f16/n4096/r1: must be f32|f64|i32|i64/n<length>/r<rows>"),
        (["--problem", "f32/n5000/r1"], "--problem f32/n5000/r1: n=5000 must be a power of two from 1024 to 1073741824"),
        (["--problem", "f32/n1048576/r4096"], "--problem f32/n1048576/r4096: rows=4096 must be from 1 to 2048"),
        (["--compile", "all"], "--compile all: must be"),
        (["--output", "."], "--output .: has a long.json"),
        ([], "PyTorch sees no CUDA device"),
    ],
)
def test_bad_long(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "long.json").touch()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert _run.main(["long", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"fwht.bench long: {words}")


def test_a_run_of_long_vectors(long_on_the_host, monkeypatch, tmp_path, capsys):
    """On the host, with every call made for its time. What is wrong, what fails and what has no time left is said and leaves the others."""
    measure, butterflies, asked = _long.measure, peers.butterflies, []

    def times_of(calls, most):
        for _ in range(2):
            [call() for call in calls.values()]
        asked.append(most)
        times = {name: (8.0 if name == "clone" else 4.0, most) for name in calls if name != "cufft"}
        return times, {"cufft": "OutOfMemoryError: no"} if "cufft" in calls else {}

    def some(problem, *given):
        if problem.n == 2048:
            raise RuntimeError("no memory")
        return measure(problem, *given, "cpu")

    monkeypatch.setattr(_long, "times_of", times_of)
    monkeypatch.setattr(_long, "measure", some)
    monkeypatch.setattr(_long, "_compiled", lambda problem: lambda x, out: butterflies(x, problem.scale))
    monkeypatch.setattr(peers, "butterflies", lambda x, scale: butterflies(x, scale) if x.dtype is torch.float32 else x)
    for name, answer in (("is_available", True), ("get_device_capability", (9, 0)), ("get_device_name", "none"), ("is_initialized", False)):
        monkeypatch.setattr(torch.cuda, name, lambda answer=answer: answer)
    problems = ["f32/n1024/r3", "f32/n2048/r1", "i32/n32768/r1"]
    arguments = ["long", *(word for text in problems for word in ("--problem", text)), "--compile", "f32/n1024/r3", "--output"]
    assert _run.main([*arguments, str(tmp_path)]) == 1  # one problem failed
    written, said = json.loads((tmp_path / "long.json").read_text()), capsys.readouterr()
    about, rows = written["about"], {(_long._of(row), row["mode"], row["case"]): row for row in written["rows"]}
    assert about["library"]["version"] == fwht.__version__ and about["arguments"][-1] == tmp_path.name and about["sample"] is None
    assert about["left_out"] == ["f32/n2048/r1: RuntimeError: no memory"] and "f32/n2048/r1: RuntimeError: no memory" in said.err
    assert len(rows) == len(written["rows"]) == 2 * 7 + 5  # once each, compiled or not
    assert asked == [22, 2000, 2, 22, 2000]  # cold, replay; more than the L2: cold alone; compiled: cold, replay
    ours = rows["f32/n1024/r3", "cold", "fwht"]
    assert (ours["time_us"], ours["copies"], ours["bytes"], ours["repeats"], ours["why_not"]) == (4.0, 1.0, 2 * 3 * 4096, 22, "")
    assert 0 < ours["rel_l2"] < 1e-6 and ours["impulse"] < 2e-7 and rows["f32/n1024/r3", "replay", "copy"]["time_us"] == 4.0
    assert rows["f32/n1024/r3", "cold", "cufft"]["time_us"] is None and rows["f32/n1024/r3", "cold", "cufft"]["why_not"] == "OutOfMemoryError: no"
    assert rows["f32/n1024/r3", "cold", "compile"]["time_us"] == 4.0
    broken = rows["i32/n32768/r1", "cold", "butterflies"]
    assert broken["time_us"] is None and broken["why_not"].startswith("wrong: impulse ")
    assert rows["i32/n32768/r1", "cold", "fwht_in_place"]["rel_l2"] == 0
    assert [line.split()[:2] for line in said.out.splitlines()[1:]] == [["i32/n32768/r1", "cold"], ["f32/n1024/r3", "cold"], ["f32/n1024/r3", "replay"]]
    assert _run.main([*arguments, str(tmp_path)]) == 2 and "has a long.json" in capsys.readouterr().err
    assert _run.main([*arguments, str(tmp_path / "late"), "--seconds", "-1"]) == 0
    late = json.loads((tmp_path / "late" / "long.json").read_text())
    assert late["rows"] == [] and late["about"]["left_out"] == [*problems, "f32/n1024/r3, compiled"]
    assert "f32/n1024/r3, compiled: left out, since the run is at its end (--seconds -1)" in capsys.readouterr().err


def test_the_sample_is_built_from_a_checkout(tmp_path, monkeypatch):
    cpp_extension = pytest.importorskip("torch.utils.cpp_extension")
    folder = tmp_path / peers.CudaSample.folder
    folder.mkdir(parents=True)
    (folder / "fastWalshTransform_kernel.cuh").touch()
    monkeypatch.chdir(tmp_path)
    built = []

    class Module:
        @staticmethod
        def transform(x):
            x.copy_(peers.butterflies(x, 1.0))

    monkeypatch.setattr(cpp_extension, "load_inline", lambda name, **options: built.append(options) or Module)
    sample = _long._checkout(str(tmp_path))
    found = _long.contestants(_long.problem_of("f32/n1024/r2"), False, sample)["cuda_sample"]
    assert built[0]["extra_include_paths"] == [str(folder)] and built[0]["functions"] == ["transform"] and len(built) == 1
    assert found.in_place and found.zeros and found.scale == 1.0
    asked = _long.problem_of("f32/n1024/r2")
    assert _long.wrong(_long.errors_of(found, asked, _long.random(asked, 1, 0, "cpu")[0]), _long.bounds(asked, found)) == ""
    assert "cuda_sample" not in _long.contestants(_long.problem_of("f64/n1024/r2"), False, sample)
    with pytest.raises(ValueError, match=r"--sample \S+late: is no folder"):
        _long._checkout(str(tmp_path / "late"))


def test_what_a_bench_writes_is_whole_or_not_there(tmp_path, monkeypatch):
    from fwht.bench._output import Output, lines_of

    folder = tmp_path / "new" / "folder"
    output = Output(str(folder), "layers.json")
    output.write({"rows": [1]})
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("killed here")))
    with pytest.raises(OSError, match="killed here"):
        output.write({"rows": [1, 2]})
    assert json.loads((folder / "layers.json").read_text()) == {"rows": [1]}
    (tmp_path / "file").write_text("")
    for given, name, words in ((str(folder), "layers.json", "has a layers.json"), (str(tmp_path / "file"), "x.json", "is no folder"), ("", "x.json", "no folder")):
        with pytest.raises(ValueError, match=words):
            Output(given, name)
    for given, words in ((str(tmp_path / "file" / "x"), r"cannot be made or written, since \S+file is no folder"), (str(tmp_path / ("x" * 300)), "File name too long")):
        with pytest.raises(ValueError, match=words):  # before anything is measured
            Output(given, "x.json")
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, _: Path(path) != tmp_path)  # root may write everywhere
        with pytest.raises(ValueError, match=f"cannot be made or written, since {tmp_path} is no folder"):
            Output(str(tmp_path / "late" / "folder"), "x.json")
    assert not (tmp_path / "late").exists()
    Output(None, "x.json").write({})
    assert lines_of([]) == "" and lines_of([{"a": 1.23456, "b": None}], ("b", "a")) == "b  a\n-  1.235\n"
