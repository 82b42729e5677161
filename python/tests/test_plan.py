"""Plans, support, variants, build info."""

import gc
import pickle
import subprocess
import sys
import time

import numpy as np
import pytest

import fwht
from conftest import needs_cuda, needs_torch, torch, truth


def test_a_plan_in_place():
    x = np.random.default_rng(0).integers(-8, 8, (3, 64)).astype("float32")
    expected = truth(x, 1.0)
    plan = fwht.plan(64, 3, "float32", device="cpu", scale=1.0)
    assert plan.execute(x) is x
    assert np.array_equal(x, expected)
    assert plan.variant == "cpu" and plan.problem == "f32/n64/r3/s1" and plan.device == -1
    assert plan.numerics["arithmetic"] == "cpu" and fwht.plan(8, 1, "f32", device="cpu", variant="cpu_f64").numerics["arithmetic"] == "cpu_f64"
    assert plan.alignment >= 4 and plan.numerics["roundings"] == 1 and plan.settings["threads"] == 1


def test_support_of_an_ordering_is_asked_out_of_place():
    for options in ({"ordering": "sequency"}, {"input_ordering": "dyadic"}):
        assert fwht.supports(64, "float32", device="cpu", **options)
        assert "permutes a row" in fwht.supports(64, "float32", device="cpu", inplace=True, **options).why_not
    why_not = fwht.supports(64, "float32", device="cpu", ordering=np.array(["dyadic", "x"])).why_not
    assert "must be one of natural, dyadic, sequency" in why_not


@needs_torch
def test_support_is_pickled():
    for options in ({}, {"ordering": "sequency"}, {"inplace": False, "operator": "64r"}):
        support = fwht.supports(64, torch.float32, device="cpu", **options)
        again = pickle.loads(pickle.dumps(support))
        assert again and again.batch_invariant == support.batch_invariant
    assert pickle.loads(pickle.dumps(fwht.supports(12, "float32", device="cpu"))).why_not.startswith("n=12")


def test_plans_end_with_the_interpreter():
    """By one way: what ends a plan is held by its class, since globals may be gone by then."""
    kinds = (fwht._c.KeptPlan, fwht.linear._Plan, fwht.Plan)
    assert all(kind.__del__ is fwht._c.Owner.__del__ and "_destroy" in vars(kind) for kind in kinds)
    code = (
        "import fwht, sys\n"
        "plan = fwht.plan(8, 4, 'float32', device='cpu')\n"
        "layer = fwht.linear._plan_for((1, 128, 128, -1, 'v1', 'float16', '0', False), 'cpu', -1)\n"
        "kept = fwht._c.kept_plan(plan._problem, None, -1)\n"
        "for module in (fwht._c, fwht._plan, fwht.linear): vars(module).update(library=None, _c=None)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_a_plan_makes_its_result():
    x = np.random.default_rng(2).integers(-8, 8, (2, 3, 16)).astype("float32")
    y = fwht.plan(16, 6, "f32", device="cpu", inplace=False, scale=1.0).execute(x)
    assert np.array_equal(y, truth(x, 1.0))


@pytest.mark.parametrize("library", ["numpy", pytest.param("torch", marks=needs_torch)])
def test_a_plan_along_an_axis_and_in_another_order(library):
    data = np.random.default_rng(0).integers(-9, 9, (2, 8, 3, 4)).astype("float32")
    x = data if library == "numpy" else torch.from_numpy(data)
    want = fwht.hadamard_transform(x, axis=1, ordering="sequency")
    plan = fwht.plan(8, 24, "float32", device="cpu", inplace=False, inner=12, ordering="sequency")
    assert plan.problem == "f32/n8/r24/out/sequency/inner12"
    for given in (x, x.reshape(2, 8, 12)):
        assert (plan.execute(given).reshape(want.shape) == want).all()
    y = x * 1
    assert (fwht.plan(8, 24, "float32", device="cpu", inner=12).execute(y) == fwht.hadamard_transform(x, axis=1)).all()
    apart_by_one = fwht.plan(8, 24, "float32", device="cpu", inner=12).execute(1 * x.reshape(2, 8, 1, 12))
    assert (apart_by_one == fwht.hadamard_transform(x, axis=1).reshape(2, 8, 1, 12)).all()
    nothing = np.lib.stride_tricks.as_strided(data, (0, 8, 12), (0, 0, 0))  # as tensors without elements give theirs
    assert fwht.plan(8, 0, "float32", device="cpu", inner=12).execute(nothing) is nothing
    back = fwht.plan(8, 24, "float32", device="cpu", inplace=False, inner=12, input_ordering="sequency").execute(want)
    assert np.allclose(np.asarray(back), data, atol=1e-5)
    apart = np.zeros((2, 100), "float32")[:, :96].reshape(2, 8, 12) if library == "numpy" else torch.zeros(2, 100)[:, :96].unflatten(1, (8, 12))
    apart[...] = x.reshape(2, 8, 12)
    assert (fwht.plan(8, 24, "float32", device="cpu", inner=12, row_stride=100).execute(apart) == y.reshape(2, 8, 12)).all()
    for bad in (x.reshape(2, 4, 2, 12), x.reshape(16, 12), x.swapaxes(2, 3), x[..., ::2], apart):
        with pytest.raises(ValueError, match="the plan is f32/n8/r24"):
            plan.execute(bad)
    for options, words in (({"inner": 5}, "inner=5 must divide rows=24"), ({"inner": 0}, "inner=0 must be at least 1"), ({"ordering": "x"}, "ordering='x'"),
                           ({"ordering": "dyadic"}, "permutes a row")):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            fwht.plan(8, 24, "float32", device="cpu", **options)


@pytest.mark.parametrize("inner", [1, 2])
def test_dimensions_of_one_element_behind_the_rows(inner):
    x = np.random.default_rng(3).integers(-8, 8, (3, 16, inner)).astype("float64")
    plan = fwht.plan(16, 3 * inner, "float64", device="cpu", inplace=False, scale=1.0, inner=inner)
    for shape in (x.shape, (3, 1, 16, inner), (3, 16, inner, 1), (3, 16, 1, inner, 1)):
        y = plan.execute(x.reshape(shape))
        assert y.shape == shape and np.array_equal(y.reshape(x.shape), fwht.hadamard_transform(x, 1.0, axis=1))
    empty = fwht.plan(16, 0, "float64", device="cpu", inplace=False, inner=inner)
    assert empty.execute(x[:0]).shape == (0, 16, inner)
    for bad in (x.reshape(16, 3, inner), np.ones((3, 16, 4 * inner))[..., :inner], np.ones(())):
        with pytest.raises(ValueError, match="the plan is f64/n16"):
            plan.execute(bad)


def test_scratch_of_an_execution():
    plan = fwht.plan(8, 1, "float32", device="cpu", inplace=False, scale=1.0)
    x, memory = np.ones((1, 8), "float32"), np.zeros(1024, "uint8")
    room = memory[-memory.ctypes.data % 256 :]
    assert plan.scratch_bytes == 0 and not plan.one_stream_at_a_time
    assert np.array_equal(plan.execute(x, scratch=room), truth(x, 1.0))
    for scratch in (room[:256].astype("int8"), room[:512:2], room[:256].reshape(2, 128)):
        with pytest.raises(ValueError, match="contiguous uint8 of one dimension"):
            plan.execute(x, scratch=scratch)
    with pytest.raises(TypeError, match="scratch is a int"):
        plan.execute(x, scratch=room.ctypes.data)


@needs_cuda
def test_scratch_of_a_vector_of_sixteen_bits():
    import torch

    x = torch.randn(2, 1 << 17, dtype=torch.float16, device="cuda")
    plan = fwht.plan(1 << 17, 2, "float16", device=0, inplace=False, variant="passes")
    assert plan.scratch_bytes == 2 << 19
    want = plan.execute(x)
    streams = [torch.cuda.Stream() for _ in range(2)]
    scratch = [torch.empty(plan.scratch_bytes, dtype=torch.uint8, device="cuda") for _ in streams]
    torch.cuda.synchronize()
    results = [torch.empty_like(x) for _ in streams]
    for stream, room, result in zip(streams * 8, scratch * 8, results * 8):
        plan.execute(x, result, stream.cuda_stream, room)
    torch.cuda.synchronize()
    assert all(torch.equal(result, want) for result in results)
    with pytest.raises(ValueError, match="must be aligned to 256"):
        plan.execute(x, results[0], scratch=torch.empty(plan.scratch_bytes + 1, dtype=torch.uint8, device="cuda")[1:])
    with pytest.raises(ValueError, match=f"scratch_bytes={plan.scratch_bytes - 1} must be at least {plan.scratch_bytes}"):
        plan.execute(x, results[0], scratch=scratch[0][:-1])


@needs_cuda
def test_plans_that_keep_their_memory():
    kept = {"n": 4096, "rows": 8, "dtype": "float16", "device": 0, "inplace": False, "variant": "matmul"}
    assert fwht.plan(**kept).one_stream_at_a_time
    with pytest.raises(ValueError, match="own_scratch=False.* matmul keeps what it works in"):
        fwht.plan(**kept, own_scratch=False)


@needs_cuda
def test_plans_that_own_no_scratch():
    """Of 16 bits, a workspace; of fp32 in DRAM, the counters of two passes in one launch."""
    import torch

    for n, rows, dtype in ((1 << 24, 1, "float16"), (1 << 20, 16, "float32")):
        x = torch.randn(rows, n, dtype=getattr(torch, dtype), device="cuda")
        torch.cuda.synchronize()
        taken = []
        for _ in range(5):  # what the device has free is less by what other processes take meanwhile: the least counts
            before = torch.cuda.mem_get_info()[0]
            plan = fwht.plan(n, rows, dtype, device=0, inplace=False, own_scratch=False)
            taken.append(before - torch.cuda.mem_get_info()[0])
            time.sleep(0.1)
        assert plan.settings["picked"] == "passes" and plan.scratch_bytes > 0
        if dtype == "float16":
            assert min(taken) < plan.scratch_bytes == 4 * n
        y = torch.zeros_like(x)
        with pytest.raises(ValueError, match=f"the plan owns none, and an execution needs {plan.scratch_bytes} bytes"):
            plan.execute(x, y)
        assert not y.any()
        plan.execute(x, y, scratch=torch.empty(plan.scratch_bytes, dtype=torch.uint8, device="cuda"))
        assert torch.equal(y, fwht.hadamard_transform(x))


def test_plans_go_away():
    plan = fwht.plan(8, 1, "float32", device="cpu", scale=1.0)
    assert "f32/n8/r1" in repr(plan)
    del plan
    gc.collect()


def test_supports():
    assert fwht.supports(4096, "float16", device="cpu").batch_invariant
    refused = fwht.supports(12, "float16", device="cpu")
    assert not refused and refused.why_not == "n=12 must be a power of two between 2 and 1073741824"
    assert not refused.batch_invariant
    assert "float16" in fwht.supports(8, "int8", device="cpu").why_not
    assert "host's" in fwht.supports(8, "float16", device="cpu", variant="auto").why_not
    assert not fwht.supports(2**31, "float16", device="cpu")
    assert "row_stride=3" in fwht.supports(8, "float16", device="cpu", row_stride=3).why_not
    with pytest.raises(ValueError, match="no_such"):
        fwht.supports(8, "float16", device="cpu", variant="no_such")
    if fwht.build_info()["devices"] == 0:
        why = fwht.supports(4096, "float16", device=0).why_not
        assert "CUDA" in why


def test_variants():
    by_name = {v.name: v for v in fwht.variants()}
    assert by_name["cpu"].memory == "host" and by_name["auto"].memory == "device"
    assert all(v.summary for v in by_name.values())


def test_build_info():
    info = fwht.build_info()
    assert info["version"] == fwht.__version__ and info["abi_version"] == 1
    assert {"commit", "dirty", "sources_hash", "cxx", "cuda", "devices", "torch"} <= set(info)
    assert "/" not in info["commit"]


def test_clear_plans():
    assert fwht.clear_plans() >= 0
    assert fwht.clear_plans() == 0


@pytest.mark.parametrize("device", ["tpu", "mps:0", "cuda:x", "cuda:²"])
def test_unknown_devices(device):
    with pytest.raises(NotImplementedError, match=device):
        fwht.plan(8, 1, "float32", device=device)


def test_problems_are_traced_once(tmp_path, monkeypatch):
    """As blocks of a grid, which fwht_sweep times; of a call and of a plan."""
    trace = tmp_path / "problems.grid"
    monkeypatch.setenv("FWHT_TRACE", str(trace))
    x = np.zeros((5, 2048), np.float32)  # a problem that no other test has
    for _ in range(2):
        fwht.hadamard_transform(x)
    fwht.plan(2048, 7, "float32", device="cpu")
    monkeypatch.delenv("FWHT_TRACE")
    fwht.plan(2048, 9, "float32", device="cpu")
    blocks = trace.read_text().split("[")[1:]
    assert [block.splitlines() for block in blocks] == [
        ["f32/n2048/r5/out]", "problem = f32/n2048/r5/out", "mode = host"], ["f32/n2048/r7]", "problem = f32/n2048/r7", "mode = host"],
    ]  # fmt: skip
