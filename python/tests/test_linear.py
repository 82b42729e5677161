"""Linear layers with 4-bit weights: NumPy arrays on the host; PyTorch tensors on the CPU always, on CUDA where there is a
device. One-hot inputs give every weight, rounded once; sums of small integers are exact."""

import ctypes
import json
import re
import subprocess
import sys

import numpy as np
import pytest

import fwht
from conftest import CUDA, capture, devices, needs_cuda, needs_torch, torch, torch_cpu, torch_cuda
from fwht import linear

libraries = pytest.mark.parametrize("library", ["numpy", torch_cpu, torch_cuda])


def layer(k=256, n=24, group=64, zeros="v1", act=False, integers=False, seed=0):
    """(qweight, qzeros, scales, g_idx or None), and W in float64."""
    generator = np.random.default_rng(seed)
    groups = k // group
    q = generator.integers(0, 16, (k, n))
    lowest = 1 if zeros == "v1" else 0
    z = np.full((groups, n), 8) if zeros == "symmetric" else generator.integers(lowest, lowest + 16, (groups, n))
    scales = np.ones((groups, n)) if integers else generator.uniform(0.01, 0.1, (groups, n))
    scales = scales.astype(np.float16)
    g_idx = np.repeat(np.arange(groups), group)
    if act:
        g_idx = generator.permutation(g_idx)
    qweight = np.zeros((k // 8, n), np.int64)
    for i in range(8):
        qweight |= q[i::8] << (4 * i)
    qzeros = np.zeros((groups, n // 8), np.int64)
    for j in range(8):
        qzeros |= (z[:, j::8] - lowest) << (4 * j)
    given = (
        qweight.astype(np.uint32).view(np.int32), None if zeros == "symmetric" else qzeros.astype(np.uint32).view(np.int32), scales,
        g_idx.astype(np.int32) if act else None,
    )  # fmt: skip
    return given, scales[g_idx].astype(np.float64) * (q - z[g_idx])


def tensors(given, device="cpu"):
    return tuple(None if t is None else torch.from_numpy(t.copy()).to(device) for t in given)


LAYERS = {
    "v1": {}, "v2": {"zeros": "v2"}, "symmetric": {"zeros": "symmetric"}, "act": {"act": True}, "groups of 32": {"group": 32},
    "one group": {"group": 256}, "wide": {"k": 512, "n": 72, "group": 128},
}  # fmt: skip
form = pytest.mark.parametrize("form", LAYERS.values(), ids=LAYERS)


class Library:
    """NumPy, or PyTorch on a device: weights packed by it, and tokens that go through it."""

    def __init__(self, name, dtype="float16"):
        self.name, self.dtype = name, dtype

    def pack(self, given, zeros="v1", **options):
        options["zero_points"] = None if zeros == "symmetric" else zeros
        if self.name == "numpy":
            return linear.pack(*given, **options)
        return linear.pack(*tensors(given), device=self.name, dtype=self.dtype, **options)

    def tokens(self, x):
        return x.astype(self.dtype) if self.name == "numpy" else torch.from_numpy(x).to(self.name, getattr(torch, self.dtype))

    def forward(self, x, packed):
        """In float64."""
        y = linear.forward(x, packed)
        assert type(y) is type(x) and y.dtype == x.dtype and y.shape == (*x.shape[:-1], packed.n)
        return y.astype(np.float64) if self.name == "numpy" else y.double().cpu().numpy()

    def rounded(self, exact):
        return exact.astype(self.dtype).astype(np.float64) if self.name == "numpy" else self.tokens(exact).double().cpu().numpy()


@libraries
@form
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_weight_and_integer_sums(library, form, dtype):
    if library == "numpy" and dtype == "bfloat16":
        pytest.skip("NumPy has no bfloat16")
    by, zeros = Library(library, dtype), form.get("zeros", "v1")
    given, w = layer(**form)
    packed, unit = by.pack(given, zeros), np.eye(len(w))
    few = [by.forward(by.tokens(part), packed) for part in np.split(unit, len(w) // 32)]
    assert np.array_equal(np.concatenate(few), by.rounded(w))
    # Many tokens at once: w4a16_prefill's quotients of scales are off by 2^-24 each, which can turn a tie.
    assert np.all(np.abs(by.forward(by.tokens(unit), packed) - w) <= np.abs(by.rounded(w) - w) + 2.0**-20 * np.abs(w))

    given, w = layer(**form, integers=True)
    packed, x = by.pack(given, zeros), np.zeros((2, 9, len(w)))
    x[..., ::16] = np.random.default_rng(1).integers(-1, 2, x[..., ::16].shape)
    for part in (x, x[:, :1], x[0, 0], x[:0]):
        assert np.array_equal(by.forward(by.tokens(part), packed), by.rounded(part @ w))


@libraries
@pytest.mark.parametrize("act", [False, True])
@pytest.mark.parametrize("rotation", [64, -1])
def test_rotation(library, rotation, act):
    by = Library(library)
    given, w = layer(k=1024, group=128, integers=True, act=act)
    x = np.zeros((5, 1024))
    x[:, ::64] = np.random.default_rng(3).integers(-1, 2, (5, 16)) * 32
    blocks = x.astype(np.float32).reshape(-1, 1024 if rotation == -1 else rotation)
    rotated = by.rounded(fwht.hadamard_transform(blocks).astype(np.float64).reshape(x.shape))
    assert np.array_equal(by.forward(by.tokens(x), by.pack(given, rotation=rotation)), by.rounded(rotated @ w))


def rotating(operator, signed=False):
    """The operator's order, and what `pack` takes to rotate by it."""
    order = fwht.operators.operand_sizes(operator + ("" if "signs" in operator else "+signs"))[0] * 8
    dense = 20 * np.eye(20)[np.random.default_rng(4).permutation(20)] - 2  # orthogonal, rows of length 20
    return order, {
        "rotation": operator,
        "signs": fwht.operators.random_signs(order, 6) if signed else None,
        "dense": dense.astype(np.float16) if "d20" in operator else None,
    }


@libraries
@pytest.mark.parametrize("act", [False, True])
@pytest.mark.parametrize("operator, signed", [("256", True), ("signs+64x16", True), ("28x32", False), ("12x64", True), ("d20x32", False)])
def test_rotation_by_any_operator(library, operator, signed, act):
    """As the transform by the operator in front of the layer, up to one rounding of what stands between."""
    by, generator = Library(library), np.random.default_rng(4)
    order, options = rotating(operator, signed)
    signs, dense = options["signs"], options["dense"]
    k = order if order % 256 == 0 else 2 * order if order % 128 == 0 else 4 * order
    given, w = layer(k=k, n=40, group=64, integers=True, act=act)
    x = generator.standard_normal((5, k)).astype(np.float16)
    blocks = x.astype(np.float32).reshape(-1, order)
    chain = fwht.operators.transform(blocks, operator, signs=signs, dense=None if dense is None else dense.astype(np.float32), variant="cpu_f64")
    exact = chain.astype(np.float64).reshape(5, k) @ w
    packed = by.pack(given, **options)
    if torch is not None and library != "numpy" and dense is not None:
        packed = by.pack(given, **{**options, "dense": torch.from_numpy(dense).to(library)})
    bound = 2**-9 * np.sqrt(np.square(chain.astype(np.float64).reshape(5, k)) @ np.square(w)) + 2**-10 * np.abs(exact)
    assert (np.abs(by.forward(by.tokens(x), packed) - exact) <= bound).all()
    assert packed.rotation == operator + ("+signs" if signed and "signs" not in operator else "")
    other = by.pack(given, **options | ({"signs": fwht.operators.random_signs(order, 7)} if signed else {"rotation": 32, "dense": None}))
    assert not (np.abs(by.forward(by.tokens(x), other) - exact) <= bound).all()


def test_bytes_in_another_order_are_another_type():
    given, _ = layer()
    packed = linear.pack(*given)
    with pytest.raises(TypeError, match="x has dtype >f2; the weights were packed for float16"):
        linear.forward(np.zeros((1, 256), ">f2"), packed)
    with pytest.raises(TypeError, match="qweight has dtype >i4"):
        linear.pack(given[0].astype(">i4"), *given[1:])
    with pytest.raises(TypeError, match="dtype >f4"):
        fwht.plan(8, 1, np.dtype(">f4"), device="cpu")


def test_rotation_that_cannot_be_done():
    given, _ = layer()
    signs, dense = fwht.operators.random_signs(256, 1), np.eye(4, dtype=np.float16)
    for words, options in (
        ("k = 256 is no multiple of the rotation's order 96", {"rotation": "12x8"}),
        ("the rotation needs 32 entries of signs; none are given", {"rotation": "256+signs"}),
        ("the rotation needs 0 entries of signs; they are given", {"rotation": -1, "signs": signs}),
        ("signs has 4 entries of uint8; the rotation needs 32 of uint8", {"rotation": "256", "signs": np.zeros(4, np.uint8)}),
        ("the rotation needs 16 entries of dense; none are given", {"rotation": "d4x64"}),
        ("dense has 16 entries of float32; the rotation needs 16 of float16", {"rotation": "d4x64", "dense": dense.astype(np.float32)}),
        ("dense has 16 entries of float16; the rotation needs 16 of bfloat16", {"rotation": "d4x64", "dense": dense, "dtype": "bfloat16"}),
        ("250 signs do not fit the operator 256+signs", {"rotation": "256", "signs": fwht.operators.random_signs(250, 1)}),
        ("the dense factor of order 4 is not orthogonal", {"rotation": "d4x64", "dense": np.arange(16, dtype=np.float16)}),
    ):
        with pytest.raises(ValueError) as caught:
            linear.pack(*given, **options)
        assert words in str(caught.value), caught.value


@libraries
def test_strides_and_odd_addresses(library):
    by = Library(library)
    given, w = layer(integers=True)
    packed, x = by.pack(given), np.zeros((6, 512))
    x[:, ::32] = 1
    assert np.array_equal(by.forward(by.tokens(x)[:, ::2], packed), by.rounded(x[:, ::2] @ w))
    flat = by.tokens(np.concatenate([[0.0], x[0, ::2]]))
    assert np.array_equal(by.forward(flat[1:], packed), by.rounded(x[0, ::2] @ w))


def test_a_variant_that_wants_sorted_rows(monkeypatch):
    """It gets a sorted x; with a rotation, which comes before the sorting, it is refused."""
    given, w = layer(act=True)
    assert linear.pack(*given).act_order and linear.pack(*given).order is None
    choice = linear._choice
    monkeypatch.setattr(linear, "_choice", lambda p, *rest: ("cpu", "rows must be sorted") if p.flags & 4 else choice(p, *rest))
    packed = linear.pack(*given)
    assert not packed.act_order and np.array_equal(given[3][packed.order], np.sort(given[3]))
    assert np.array_equal(linear.forward(np.eye(256, dtype=np.float16), packed), w.astype(np.float16))
    with pytest.raises(NotImplementedError, match="rows must be sorted"):
        linear.pack(*given, rotation=64)
    in_order, _ = layer()
    trivial = linear.pack(*in_order[:3], np.repeat(np.arange(4, dtype=np.int32), 64))
    assert trivial.order is None and not trivial.act_order


def test_slices_give_the_same_bits(monkeypatch):
    given, w = layer()
    packed = linear.pack(*given)
    x = np.random.default_rng(2).standard_normal((7, len(w))).astype(np.float16)
    whole = linear.forward(x, packed)
    asked = []
    linear.clear_plans()
    monkeypatch.setattr(linear, "_most_tokens", lambda *_: 3)
    monkeypatch.setattr(linear, "_plan_for", lambda asked_, *rest, make=linear._plan_for: asked.append(asked_[0]) or make(asked_, *rest))
    assert np.array_equal(linear.forward(x, packed), whole) and asked == [3, 3, 1]


def test_all_tokens_in_one_launch_where_the_variant_takes_them(monkeypatch):
    asked = (70000, *linear.pack(*layer()[0])[:7])
    assert linear._most_tokens(asked, "cpu", -1) == 70000 and linear._most_tokens((0, *asked[1:]), "cpu", -1) == 0
    monkeypatch.setattr(linear._c.library, "fwht_linear_supports", lambda problem, *_: int(problem.m > 1024))
    assert [linear._most_tokens((m, *asked[1:]), "cpu", -1) for m in (1, 1000, 1024, 1025, 2048, 70000)] == [1, 1000, 1024, 1024, 1024, 1024]


def test_workspace_bytes():
    """Of the plan, as its information says; none without tokens or without a plan."""
    linear.clear_plans()
    packed = linear.pack(*layer()[0])
    of = linear._c.library.fwht_linear_plan_workspace_bytes
    plans = [linear._plan_for((m, *packed[:7]), "cpu", -1) for m in (0, 1, 7, 500)]
    needed = [of(plan.handle) for plan in plans]
    assert needed == [plan.info["workspace_bytes"] for plan in plans]
    assert needed[0] == 0 == of(None) and all(n >= 4 * m * (256 + 24) for n, m in zip(needed, (0, 1, 7, 500)))
    assert linear.call_for(7, *packed[:8], -1).workspace_bytes == needed[2]


def test_variants_and_support():
    known = {variant.name: variant.memory for variant in linear.variants()}
    assert known["cpu"] == "host" and known["w4a16_pipelined"] == "device"
    assert linear.supports(4096, 4096, device="cpu") == ""
    assert "w4a16_splitk works on device memory" in linear.supports(4096, 4096, device="cpu", variant="w4a16_splitk")
    for k, n, why in ((4096, 12, "n = 12 outputs"), (-8, 64, "k = -8 inputs"), (2**70, 64, "must fit 64 bits")):
        assert why in linear.supports(k, n, device="cpu")
    with pytest.raises(ValueError, match="no_such"):
        linear.supports(4096, 4096, device="cpu", variant="no_such")
    assert linear.clear_plans() >= 0 and linear.clear_plans() == 0


def test_kept_plans_do_not_grow_with_the_number_of_tokens(monkeypatch):
    given, w = layer()
    packed = linear.pack(*given)
    linear.clear_plans()
    monkeypatch.setattr(linear, "_plans", type(linear._plans)(4))
    monkeypatch.setattr(linear, "_calls", type(linear._calls)(3))
    x = np.random.default_rng(7).standard_normal((11, len(w))).astype(np.float16)
    whole = linear.forward(x, packed)
    for m in (*range(1, 12), 3):
        assert np.array_equal(linear.forward(x[:m], packed), whole[:m])
        assert len(linear._plans.values()) <= 4 and len(linear._calls.values()) <= 3


def test_kept_plans_have_a_bound():
    packed = linear.pack(*layer()[0])
    linear.clear_plans()
    most = 0
    for m in range(1, 600):
        linear.call_for(m, *packed[:8], -1)
        most = max(most, len(linear._plans.values()))
    assert 200 <= most <= 256 and linear.clear_plans() <= 256


@devices
def test_prepared_calls_give_new_contiguous_tensors(device):
    """A later call takes what the first one prepared; whether memory lies as it must is asked each time."""
    given, w = layer(k=512, n=72, group=128)
    packed = linear.pack(*tensors(given), device=device)
    linear.clear_plans()
    wide = torch.randn(2, 3, 2 * len(w), dtype=torch.float16, device=device)
    for x in (wide[0, 0, : len(w)].clone(), wide[0, :, : len(w)].clone(), wide[..., : len(w)].clone()):
        with torch.inference_mode():
            first = linear.forward(x, packed)
        results = [linear.forward(x, packed) for _ in range(3)]
        assert len({y.data_ptr() for y in (first, *results)}) == 4
        for y in results:
            assert torch.equal(y, first) and y.is_contiguous() and y.shape == (*x.shape[:-1], 72) and y.dtype == x.dtype
            assert y.device == x.device and y.untyped_storage().nbytes() == 2 * y.numel() and not y.is_inference()
    rows = wide[0, :, : len(w)]
    assert not rows.is_contiguous() and torch.equal(linear.forward(rows, packed), linear.forward(rows.clone(), packed))
    shifted = torch.empty(3 * len(w) + 1, dtype=torch.float16, device=device)[1:].view(3, len(w))
    assert torch.equal(linear.forward(shifted.copy_(rows), packed), linear.forward(rows.clone(), packed))
    columns = packed._replace(weights=torch.stack([packed.weights, packed.weights], -1)[:, 0])
    assert not columns.weights.is_contiguous() and torch.equal(linear.forward(rows.clone(), columns), linear.forward(rows, packed))
    with pytest.raises(ValueError, match="the packed weights have 16 bytes"):
        linear.forward(rows.clone(), packed._replace(weights=packed.weights[:16]))


def test_one_plan_serves_threads_at_once():
    from concurrent.futures import ThreadPoolExecutor

    given, w = layer(k=512, n=72, group=128)
    packed = linear.pack(*given)
    x = np.random.default_rng(8).standard_normal((16, 9, len(w))).astype(np.float16)
    wanted = [linear.forward(each, packed) for each in x]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            assert all(map(np.array_equal, pool.map(lambda each: linear.forward(each, packed), x), wanted))


def test_a_workspace_that_cannot_be_used():
    """Through the C interface: one sentence, and y stays as it was."""
    given, w = layer()
    packed = linear.pack(*given)
    x, y, memory = np.zeros((2, 256), np.float16), np.full((2, 24), 7, np.float16), np.zeros(1 << 16, np.uint8)
    plan = linear._plan_for((2, *packed[:7]), "cpu", -1)
    needed, free = plan.info["workspace_bytes"], memory.ctypes.data + -memory.ctypes.data % 16
    addresses = [each.ctypes.data for each in (x, packed.weights, y)]
    assert not any(address % 16 for address in addresses)
    for workspace, count, words in (
        (None, needed, f"workspace is a null pointer; the plan needs {needed} bytes"),
        (free, needed - 1, f"workspace_bytes={needed - 1} must be at least {needed}"),
        (free + 8, needed, "workspace is no multiple of 16 bytes"),
        (addresses[2], needed, "the workspace overlaps x, the weights or y"),
    ):
        assert linear._execute(plan.handle, *addresses, workspace, count, None) == 1
        assert words in linear._c.last_error() and (y == 7).all()
    assert linear._execute(plan.handle, *addresses, free, needed, None) == 0 and (y == 0).all()


def test_bad_input():
    given, _ = layer()
    q, z, s, _ = given

    def refused(kind, words, *args, **options):
        with pytest.raises(kind) as caught:
            linear.pack(*args, **options)
        assert words in str(caught.value), caught.value
        assert str(caught.value).startswith("fwht: ")

    refused(TypeError, "qweight is a list", q.tolist(), z, s)
    refused(TypeError, "qweight has dtype int64; it must be int32 or uint32", q.astype(np.int64), z, s)
    refused(TypeError, "scales has dtype float32; it must be float16", q, z, s.astype(np.float32))
    refused(ValueError, "qzeros has shape (4, 2); it must be (4, 3)", q, z[:, :2], s)
    refused(ValueError, "scales has shape (4, 23); it must be (4, 24)", q, z, s[:, :23])
    refused(ValueError, "k=256 is no multiple of the 3 groups", q, z, s[:3])
    refused(ValueError, "zero_points='v1', but qzeros are missing", q, None, s, zero_points="v1")
    refused(ValueError, "zero_points='v3' must be one of v1, v2, symmetric", q, z, s, zero_points="v3")
    refused(ValueError, "g_idx of row 7 is 4, groups are 0 to 3", q, z, s, np.where(np.arange(256) == 7, 4, 0).astype(np.int32))
    refused(ValueError, "rows in g_idx", q, z, s, np.zeros(256, np.int32))
    refused(ValueError, "g_idx has shape (255,); it must be (256,)", q, z, s, np.zeros(255, np.int32))
    refused(ValueError, "the scale of group 1, column 2 is nan", q, z, np.where(np.arange(96).reshape(4, 24) == 26, np.float16("nan"), s))
    refused(ValueError, "group 16: a multiple of 32", q, np.tile(z, (4, 1)), np.tile(s, (4, 1)))
    refused(ValueError, "x and y are f16 or bf16, not f32", q, z, s, dtype="float32")
    refused(ValueError, "a rotation of order 3", q, z, s, rotation=3)
    refused(ValueError, "unknown linear layer 'marlin'", q, z, s, variant="marlin")
    refused(ValueError, "variant='auto' packs for one number of tokens", q, z, s, variant="auto")
    refused(NotImplementedError, "w4a16_pipelined works on device memory", q, z, s, variant="w4a16_pipelined")

    packed = linear.pack(*given)
    for kind, words, x in (
        (ValueError, "its last dimension must be k=256", np.zeros((2, 128), np.float16)),
        (ValueError, "its last dimension must be k=256", np.zeros((), np.float16)),
        (TypeError, "x has dtype float32; the weights were packed for float16", np.zeros((2, 256), np.float32)),
        (TypeError, "x is a builtins.list", [0.0] * 256),
    ):
        with pytest.raises(kind) as caught:
            linear.forward(x, packed)
        assert words in str(caught.value)
    for wrong in (packed._replace(weights=packed.weights[:-16]), packed._replace(n=32), packed._replace(k=512), packed._replace(group=32)):
        with pytest.raises(ValueError, match=r"the packed weights have \d+ bytes; cpu reads \d+"):
            linear.forward(np.zeros((1, wrong.k), np.float16), wrong)
    with pytest.raises(TypeError, match="weights are a tuple"):
        linear.forward(np.zeros(256, np.float16), given)


# --- files -----------------------------------------------------------------------------------------------------------


def equal(one, other):
    return (one is None) == (other is None) and (one is None or np.array_equal(np.asarray(one), np.asarray(other)))


@pytest.mark.parametrize("shard_bytes", [None, 1, 9000])
@pytest.mark.parametrize("zeros", ["v1", "v2"])
def test_files(tmp_path, zeros, shard_bytes):
    """What was saved is loaded, from the folder and from its file, and multiplies alike."""
    pytest.importorskip("safetensors")
    given = {}
    for i, options in enumerate(({}, {"act": True}, {"zeros": "symmetric"}, {"group": 64, "n": 72})):
        form = {"zeros": zeros, **options}
        made, _ = layer(**form, seed=i)
        parts = made if torch is None else tensors(made)
        given[f"model.layers.{i}.proj"] = linear.GptqTensors(*parts, parts[2][0] if i == 1 else None, form["zeros"])
    linear.save(tmp_path, given, shard_bytes=shard_bytes)
    assert json.loads((tmp_path / "quantize_config.json").read_text())["desc_act"] is True
    files = sorted(file.name for file in tmp_path.iterdir())
    assert len(files) == {None: 2, 1: 6, 9000: 5}[shard_bytes], files
    source = tmp_path / ("model.safetensors" if shard_bytes is None else "model.safetensors.index.json")
    assert sorted(linear.layers(tmp_path)) == sorted(linear.layers(source)) == sorted(given)
    x = np.random.default_rng(3).standard_normal((3, 256)).astype(np.float16)
    x = x if torch is None else torch.from_numpy(x)
    for name, made in given.items():
        loaded = linear.load(source, name)
        assert loaded.zero_points == zeros and equal(loaded.qweight, made.qweight) and equal(loaded.scales, made.scales)
        assert equal(loaded.bias, made.bias) and (made.g_idx is None or equal(loaded.g_idx, made.g_idx))
        packed = [linear.pack(*each[:4], zero_points=each.zero_points) for each in (loaded, made)]
        assert equal(*(linear.forward(x, each) for each in packed))


def test_the_order_of_the_groups_in_files(tmp_path):
    """A file has g_idx always, so that it alone is no act-order; its groups are of one size."""
    pytest.importorskip("safetensors")
    made = [linear.GptqTensors(*(given if torch is None else tensors(given)), None, "v1") for given, _ in (layer(), layer(group=32))]
    with pytest.raises(ValueError, match="a has group_size=64 and b 32; a checkpoint has one"):
        linear.save(tmp_path, dict(zip("ab", made, strict=True)))
    assert not list(tmp_path.iterdir())
    given, _ = layer(k=64, group=64)
    short = linear.GptqTensors(*(given if torch is None else tensors(given)), None, "v1")
    linear.save(tmp_path / "both", {"a": made[0], "short": short})
    assert json.loads((tmp_path / "both" / "quantize_config.json").read_text())["group_size"] == 64
    linear.save(tmp_path, {"a": made[0]})
    loaded = linear.load(tmp_path, "a")
    assert loaded.g_idx is not None
    linear.save(tmp_path, {"a": loaded})
    assert json.loads((tmp_path / "quantize_config.json").read_text())["desc_act"] is False


def test_files_of_another_checkpoint_do_not_stay_beside(tmp_path):
    pytest.importorskip("safetensors")
    made, _ = layer()
    one = linear.GptqTensors(*(made if torch is None else tensors(made)))
    ways = {"whole": ({"a": one}, {}), "two": ({"a": one, "b": one}, {"shard_bytes": 1}), "three": (dict.fromkeys("abc", one), {"shard_bytes": 1})}
    for first in ways.values():
        for second in ways.values():
            folder = tmp_path / f"{len(first[0])}{len(second[0])}"
            linear.save(folder, first[0], **first[1])
            before = {path.name: path.read_bytes() for path in folder.iterdir()}
            if first is second:
                linear.save(folder, second[0], **second[1])
            else:
                with pytest.raises(FileExistsError, match="fwht: .* holds other weights .model.*; remove them, or name another folder"):
                    linear.save(folder, second[0], **second[1])
            assert before == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_pack_refuses_is_not_written(tmp_path):
    pytest.importorskip("safetensors")
    made, _ = layer()
    made = made if torch is None else tensors(made)
    one = linear.GptqTensors(*made)
    odd = one._replace(qweight=one.qweight[:, :20], qzeros=one.qzeros[:, :2], scales=one.scales[:, :20])
    order = np.arange(256, dtype="int32") // 64
    outside, uneven, infinite = order + 1, order * 0, 0 * one.scales + float("inf")
    if torch is not None:
        outside, uneven = torch.from_numpy(outside), torch.from_numpy(uneven)
    cases = [
        (ValueError, "layer a: n = 20 outputs: a positive multiple of 8 up to .* is needed", {"a": odd}, {}),
        (ValueError, "layer b: n = 20 outputs", {"a": one, "b": odd._replace(qzeros=None)}, {}),
        (ValueError, "layer a: g_idx of row 192 is 4, groups are 0 to 3", {"a": one._replace(g_idx=outside)}, {}),
        (ValueError, "layer a: group 0 has 256 rows in g_idx, sorting needs 64", {"a": one._replace(g_idx=uneven)}, {}),
        (ValueError, "layer a: the scale of group 0, column 0 is .*, a finite number is needed", {"a": one._replace(scales=infinite)}, {}),
        (ValueError, "layer a: zero_points='symmetric', but qzeros are given", {"a": one._replace(zero_points="symmetric")}, {}),
        (ValueError, "layer a: zero_points='v3' must be one of v1, v2, symmetric", {"a": one._replace(zero_points="v3")}, {}),
        (ValueError, r"layer a: scales has shape \(4, 16\); it must be \(4, 24\)", {"a": one._replace(scales=one.scales[:, :16])}, {}),
        (ValueError, r"layer a: bias has shape \(4,\); it must be \(24,\)", {"a": one._replace(bias=one.scales[:, 0])}, {}),
        (TypeError, "layer a: qweight has dtype float16; it must be int32 or uint32", {"a": one._replace(qweight=one.scales)}, {}),
        (TypeError, "layer a: scales is a NoneType, not a PyTorch tensor or NumPy array", {"a": one._replace(scales=None)}, {}),
        (TypeError, "layer 'a' is a tuple; a name stands for GptqTensors", {"a": tuple(one)}, {}),
        (TypeError, "layer 1 is a GptqTensors; a name stands", {1: one}, {}),
        (TypeError, "layers are a list; they must be a dict", [one], {}),
        (TypeError, "shard_bytes='4GB' must be an integer", {"a": one}, {"shard_bytes": "4GB"}),
        (ValueError, "shard_bytes=0 must be at least 1", {"a": one}, {"shard_bytes": 0}),
    ]
    if torch is not None:
        arrays = linear.GptqTensors(*(None if each is None else each.numpy() for each in one[:4]))
        cases += [
            (TypeError, "a.qweight is a Tensor and b.qweight a ndarray; all must be PyTorch tensors, or NumPy arrays", {"a": one, "b": arrays}, {}),
            (TypeError, "a.qweight is a ndarray and a.scales a Tensor; all must be", {"a": arrays._replace(scales=one.scales)}, {}),
        ]
    for kind, words, given, options in cases:
        with pytest.raises(kind, match=f"fwht: {words}"):
            linear.save(tmp_path / "new", given, **options)
        assert not (tmp_path / "new").exists()


def test_words_without_a_sign_are_written_with_one(tmp_path):
    safetensors = pytest.importorskip("safetensors")
    made, _ = layer()
    unsigned = linear.GptqTensors(*(each if each is None or each.dtype != np.int32 else each.view(np.uint32) for each in made))
    given = {"arrays": unsigned} if torch is None else {"tensors": linear.GptqTensors(*tensors(unsigned[:4]))}
    for folder, form in ({"arrays": unsigned} | given).items():
        linear.save(tmp_path / folder, {"a": form})
        with safetensors.safe_open(tmp_path / folder / "model.safetensors", "np") as file:
            assert [file.get_slice(f"a.{part}").get_dtype() for part in ("qweight", "qzeros", "g_idx")] == 3 * ["I32"]
            assert np.array_equal(file.get_tensor("a.qweight"), made[0]) and np.array_equal(file.get_tensor("a.qzeros"), made[1])


def test_a_disk_that_is_full(tmp_path, monkeypatch):
    safetensors = pytest.importorskip("safetensors")

    def fails(*_, **__):
        raise safetensors.SafetensorError("No space left on device")

    made, _ = layer()
    monkeypatch.setattr(pytest.importorskip("safetensors.numpy" if torch is None else "safetensors.torch"), "save_file", fails)
    with pytest.raises(OSError, match=r"fwht: .*model.safetensors cannot be written: No space left"):
        linear.save(tmp_path, {"a": linear.GptqTensors(*(made if torch is None else tensors(made)))})


@needs_torch
def test_a_bias_that_numpy_has_no_dtype_for(tmp_path):
    pytest.importorskip("safetensors")
    given = tensors(layer()[0])
    linear.save(tmp_path, {"a": linear.GptqTensors(*given, torch.ones(24).bfloat16())})
    code = (
        "import sys, fwht\n"
        "try: fwht.linear.load(sys.argv[1], 'a')\n"
        "except TypeError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True, text=True).stdout
    assert re.match("fwht: NumPy has no dtype for a.bias of .*model.safetensors: .*bfloat16.*; import torch first", said), said


@needs_torch
def test_rotations_of_tensors_without_numpy():
    code = (
        "import sys\n"
        "sys.modules['numpy'] = None\n"
        "import torch, fwht\n"
        "q, s = torch.zeros(8, 64, dtype=torch.int32), torch.ones(1, 64, dtype=torch.float16)\n"
        "signs = fwht.operators.random_signs(64, 1)\n"
        "both = [fwht.linear.pack(q, None, s, rotation='64', signs=each) for each in (signs, signs.on(q))]\n"
        "assert both[0].weights.equal(both[1].weights)\n"
        "dense = torch.tensor([1.0, 1, 1, -1], dtype=torch.bfloat16)\n"
        "fwht.linear.pack(q, None, s, rotation='d2x32', dense=dense, dtype='bfloat16')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_files_that_cannot_be_used(tmp_path, monkeypatch):
    pytest.importorskip("safetensors")
    made, _ = layer()
    tensors_of = linear.GptqTensors(*(made if torch is None else tensors(made)))
    folder = tmp_path / "model"

    def refused(kind, words, call, *args, **options):
        with pytest.raises(kind) as caught:
            call(*args, **options)
        assert words in str(caught.value) and str(caught.value).startswith("fwht: "), caught.value

    refused(ValueError, "there are no layers to save", linear.save, folder, {})
    refused(ValueError, "shard_bytes=0 must be at least 1", linear.save, folder, {"a": tensors_of}, shard_bytes=0)
    mixed = {"a": tensors_of, "b": tensors_of._replace(zero_points="v2")}
    refused(ValueError, "zero points are stored as v1, v2", linear.save, folder, mixed)
    assert not folder.exists()
    refused(FileNotFoundError, "there is no", linear.load, folder, "a")
    linear.save(folder, {"a": tensors_of, "b": tensors_of}, shard_bytes=1)
    refused(ValueError, "has no layer 'c'; it has a, b", linear.load, folder, "c")
    (folder / "model-00001-of-00002.safetensors").unlink()
    assert equal(linear.load(folder, "b").qweight, tensors_of.qweight)
    refused(FileNotFoundError, "model-00001-of-00002.safetensors, which", linear.load, folder, "a")
    for text, words in (
        ('{"bits": 3}', "bits=3; 4 are supported"), ('{"bits": "4"}', "bits='4'; 4 are supported, as a number"),
        ('{"checkpoint_format": "marlin"}', "checkpoint_format='marlin' must be one of"),
        ('{"quant_method": "awq"}', "quant_method='awq'; 'gptq' is supported"), ("[]", "holds no JSON object"), ("{", "is no JSON"),
    ):  # fmt: skip
        (folder / "quantize_config.json").write_text(text)
        refused(ValueError, words, linear.load, folder, "b")
    (folder / "quantize_config.json").unlink()
    (folder / "config.json").write_text('{"quantization_config": {"bits": 4, "checkpoint_format": "gptq_v2"}}')
    assert linear.load(folder, "b").zero_points == "v2"
    (folder / "config.json").write_text('{"quantization_config": "x"}')
    refused(ValueError, "config.json is 'x'; it must be a JSON object", linear.load, folder, "b")
    (folder / "config.json").write_text('{"quantization_config": null}')
    assert linear.load(folder, "b").zero_points == "v1"
    (folder / "model.safetensors.index.json").write_text("{}")
    refused(ValueError, "has no weight_map", linear.layers, folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a.qweight": 3}}')
    refused(ValueError, "has 3 for a.qweight; it must be the name of a file", linear.layers, folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"b.qweight": "model-00002-of-00002.safetensors"}}')
    for damage in (b"", b"x" * 100, (folder / "model-00002-of-00002.safetensors").read_bytes()[:-8]):
        (folder / "model-00002-of-00002.safetensors").write_bytes(damage)
        refused(ValueError, "model-00002-of-00002.safetensors cannot be read: ", linear.load, folder, "b")
        refused(ValueError, "model-00002-of-00002.safetensors cannot be read: ", linear.layers, folder / "model-00002-of-00002.safetensors")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    for call, *args in ((linear.layers, folder), (linear.save, folder, {"a": tensors_of})):
        refused(ImportError, "need the package safetensors", call, *args)


# --- PyTorch ---------------------------------------------------------------------------------------------------------


@devices
@pytest.mark.parametrize("act", [False, True])
def test_torch_graphs(device, act):
    given, w = layer(act=act)
    module = fwht.nn.GptqLinear(*tensors(given), bias=torch.arange(24, dtype=torch.float16), device=device)
    x = torch.randn(3, 256, generator=torch.Generator().manual_seed(4)).half().to(device)
    y = module(x)
    assert module._packed.weights is None and module._packed.order is None, "the buffers alone hold them"
    plain = linear.forward(x, module.packed) + torch.arange(24, device=device).half()
    assert torch.equal(y, plain)
    assert torch.equal(torch.compile(module, fullgraph=True, backend="aot_eager")(x), y)
    traced = torch.export.export(module, (x,)).graph
    assert any("gptq_linear" in str(node.target) for node in traced.nodes)
    torch.library.opcheck(
        torch.ops.fwht.gptq_linear.default, (x, module.weights, 24, 64, "v1", "0", module._packed.variant, act),
        test_utils=("test_schema", "test_faketensor"),
    )  # fmt: skip


@devices
def test_torch_dynamic_shapes_compile_once(device):
    given, w = layer()
    packed, graphs = linear.pack(*tensors(given), device=device), []

    def count(graph, _):
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(lambda x: linear.forward(x, packed), fullgraph=True, dynamic=True, backend=count)
    for m in (3, 2, 9, 40):
        x = torch.randn(m, 256, generator=torch.Generator().manual_seed(m)).half().to(device)
        assert torch.equal(compiled(x), linear.forward(x, packed))
    assert len(graphs) == 1 and sum("gptq_linear" in name for name in graphs[0]) == 1


@devices
def test_torch_bad_input(device):
    given, _ = layer()
    packed = linear.pack(*tensors(given), device=device)
    x = torch.zeros(2, 256, dtype=torch.float16, device=device)
    with pytest.raises(RuntimeError, match="does not support automatic differentiation"):
        linear.forward(x.clone().requires_grad_(), packed)
    with torch.no_grad():
        assert linear.forward(x.clone().requires_grad_(), packed).shape == (2, 24)
    with pytest.raises(ValueError, match="x is on meta"):
        linear.forward(x.to("meta"), packed)
    with pytest.raises(TypeError, match="packed for float16"):
        linear.forward(x.float(), packed)
    module = fwht.nn.GptqLinear(*tensors(given), device=device)
    module.weights = module.weights[:-16]
    for call in (lambda: module(x), lambda: linear.forward(x, packed._replace(weights=packed.weights[:-16]))):
        with pytest.raises(ValueError, match="the packed weights have"):
            call()
    freed = x.clone()
    freed.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="storage was freed"):
        linear.forward(freed, packed)
    with pytest.raises(TypeError, match="packed from PyTorch tensors"):
        linear.forward(np.zeros((2, 256), np.float16), packed)


@devices
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("k", [256, 48])
def test_fp8_layer(device, k, signed):
    """Rows and tokens that e4m3 holds after the rotation: the product is exact. Codes are those of the chain."""
    signs = fwht.operators.random_signs(k, 5) if signed else None
    generator = torch.Generator().manual_seed(3)

    def ternary(rows):
        return torch.randint(-1, 2, (rows, k), generator=generator).float().index_fill_(1, torch.tensor([0]), 1)

    a = ternary(32)
    q = fwht.operators.transform(torch.eye(k), signs=signs)  # rows: Q e_i
    weight = a @ q.t()
    layer_of = fwht.nn.Fp8Linear(weight, torch.arange(32.0), signs=signs).to(device)
    assert torch.equal((layer_of.codes.float() * layer_of.scales.t()).round().cpu(), a)
    x = torch.randn(2, 3, k, generator=generator).bfloat16().to(device)
    codes, scales = layer_of.quantize(x)
    tokens = x.cpu().double()
    assert torch.allclose(tokens @ q.double() @ a.double().t(), tokens @ weight.double().t(), rtol=0, atol=1e-4)
    y = fwht.operators.transform(x, signs=signs)
    wanted = fwht.quantize.quantize(y, "e4m3:row")
    assert torch.equal(codes.view(torch.uint8), wanted.codes.view(torch.uint8)) and torch.equal(scales.view(-1), wanted.scales.view(-1))
    if layer_of.why_not:
        with pytest.warns(UserWarning, match="cpu has no product of e4m3 codes"):
            got = layer_of(x)
    else:
        got = layer_of(x)
    want = (codes.double() * scales.view(2, 3, 1)).cpu() @ (layer_of.codes.double().cpu() * layer_of.scales.double().cpu().t()).t()
    assert got.shape == (2, 3, 32) and got.dtype is torch.bfloat16
    assert ((got.double().cpu() - want - torch.arange(32.0)).abs() <= 2**-7 * (want.abs() + 33)).all()
    assert layer_of(x[:0]).shape == (0, 3, 32)
    for kind, words, call in (
        (TypeError, "x has dtype torch.float32", lambda: layer_of(x.float())),
        (ValueError, f"its last dimension must be k={k}", lambda: layer_of(x[..., :16])),
        (ValueError, "both multiples of 16", lambda: fwht.nn.Fp8Linear(weight[:8])),
        (ValueError, "rotate=False, but an operator or signs", lambda: fwht.nn.Fp8Linear(weight, operator="256", rotate=False)),
    ):
        with pytest.raises(kind, match=words):
            call()
    for cast in (layer_of.half(), layer_of.to(torch.float64)):
        assert (cast.codes.dtype, cast.scales.dtype, cast.bias.dtype) == (torch.float8_e4m3fn, torch.float32, torch.bfloat16)
        assert torch.equal(cast(x), got)
    plain = fwht.nn.Fp8Linear(a, rotate=False).to(device)
    assert torch.equal((plain.codes.float() * plain.scales.t()).cpu(), a)
    codes, scales = plain.quantize(x)
    wanted = fwht.quantize.quantize(x, "e4m3:row")
    assert torch.equal(codes.view(torch.uint8), wanted.codes.view(torch.uint8)) and torch.equal(scales, wanted.scales)


@needs_torch
def test_modules_refuse_what_is_no_weight_or_bias():
    given, weight = tensors(layer()[0]), torch.ones(32, 64)
    bad = weight.clone()
    bad[1, 2:4] = torch.tensor([float("inf"), float("nan")])
    n = given[0].shape[1]
    for kind, words, call in (
        (TypeError, "weight is a numpy.ndarray; it must be a PyTorch tensor of floating point", lambda: fwht.nn.Fp8Linear(weight.numpy())),
        (TypeError, "weight is a torch.int64", lambda: fwht.nn.Fp8Linear(weight.long())),
        (ValueError, "2 of 2048 elements of the weight are not finite", lambda: fwht.nn.Fp8Linear(bad)),
        (ValueError, r"bias has shape \(1,\); it must be \(32,\)", lambda: fwht.nn.Fp8Linear(weight, torch.ones(1))),
        (TypeError, "bias is a builtins.list", lambda: fwht.nn.Fp8Linear(weight, [1.0] * 32)),
        (ValueError, rf"bias has shape \(2, {n}\); it must be \({n},\)", lambda: fwht.nn.GptqLinear(*given, bias=torch.ones(2, n))),
        (TypeError, "bias is a torch.int32", lambda: fwht.nn.GptqLinear(*given, bias=torch.ones(n).int())),
        (TypeError, "qweight is a numpy.ndarray; a module takes PyTorch tensors", lambda: fwht.nn.GptqLinear(*layer()[0])),
    ):
        with pytest.raises(kind, match=words):
            call()
    module = fwht.nn.GptqLinear(*given, bias=torch.ones(n))
    for each in (module, module.double()):
        assert each(torch.zeros(2, module.packed.k, dtype=torch.float16)).dtype is torch.float16


@needs_torch
def test_a_state_of_another_rotation_is_refused():
    make = lambda **options: fwht.nn.Fp8Linear(torch.randn(32, 64), **options)
    x, first, second = torch.randn(2, 64).bfloat16(), make(), make(operator="64")
    assert second.load_state_dict(first.state_dict()) and torch.equal(first(x), second(x))
    signed = make(signs=fwht.operators.random_signs(64, 1))
    for other, words in ((make(rotate=False), "nothing"), (make(operator="64r"), "64r"), (signed, "64 with signs")):
        codes = other.codes.clone()
        with pytest.raises(ValueError, match=f"is of an Fp8Linear that rotates by 64; this one rotates by {words}$"):
            other.load_state_dict(first.state_dict(), strict=False)
        assert torch.equal(other.codes.view(torch.uint8), codes.view(torch.uint8))  # nothing is loaded
    with pytest.raises(ValueError, match="rotates by 64 with signs; this one rotates by 64$"):
        second.load_state_dict(signed.state_dict(), strict=False)
    two = torch.nn.Sequential(torch.nn.Linear(64, 64), signed)  # of which a state may have a part
    assert "1.codes" in two.load_state_dict(torch.nn.Sequential(torch.nn.Linear(64, 64)).state_dict(), strict=False).missing_keys
    named = make(operator="64+signs", signs=fwht.operators.random_signs(64, 1))
    assert signed.load_state_dict(named.state_dict()) and torch.equal(signed(x), named(x))
    before = {name: each for name, each in first.state_dict().items() if name != "_extra_state"}
    with pytest.raises(RuntimeError, match='Missing key.*"_extra_state"'):
        second.load_state_dict(before)
    assert second.load_state_dict(before, strict=False).missing_keys == ["_extra_state"]
    module = fwht.nn.GptqLinear(*tensors(layer()[0]))
    with pytest.raises(NotImplementedError, match="a GptqLinear loads no state_dict"):
        module.load_state_dict(module.state_dict())


@needs_torch
@pytest.mark.parametrize("rotate", [False, True])
def test_an_fp8_layer_in_one_graph(rotate):
    torch.compiler.reset()
    module = fwht.nn.Fp8Linear(torch.randn(32, 64), torch.randn(32), rotate=rotate)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for rows in (1, 3, 5):
        x = torch.randn(rows, 64).bfloat16()
        assert torch.equal(compiled(x), module(x))


@needs_torch
def test_an_fp8_layer_under_autocast():
    """Products of codes do not fit float16."""
    module, x = fwht.nn.Fp8Linear(torch.randn(32, 64), torch.randn(32)), torch.randn(3, 64).bfloat16()
    wanted = module(x)
    for dtype in (torch.float16, torch.bfloat16):
        torch.compiler.reset()
        with torch.autocast("cpu", dtype=dtype):
            assert torch.equal(module(x), wanted)
            assert torch.equal(torch.compile(module, fullgraph=True, backend="aot_eager")(x), wanted)
    assert module.to("meta")(x.to("meta")).shape == (3, 32)  # a device without autocast


@needs_torch
def test_the_default_device_changes_nothing(tmp_path):
    """Modules are made under `torch.device("meta")`, of tensors that have memory."""
    pytest.importorskip("safetensors")
    given, x = tensors(layer(zeros="symmetric")[0]), torch.randn(2, 256).half()
    act, weight = tensors(layer(act=True)[0]), torch.randn(32, 64)
    wanted = [fwht.nn.GptqLinear(*each)(x) for each in (given, act)], fwht.nn.Fp8Linear(weight)
    with torch.device("meta"):
        made = [fwht.nn.GptqLinear(*each) for each in (given, act)], fwht.nn.Fp8Linear(weight)
        assert made[1].load_state_dict(wanted[1].state_dict())
        linear.save(tmp_path, {"a": linear.GptqTensors(*given, zero_points="symmetric")})
    assert all(torch.equal(module(x), y) for module, y in zip(made[0], wanted[0], strict=True))
    assert linear.load(tmp_path, "a").g_idx.tolist() == [i // 64 for i in range(256)]


OPERATORS = ("28x32", "d20x32")  # the second with signs


def rotating_by(rotation):
    """k, and what `pack` takes, for an order or one of OPERATORS."""
    return rotating(rotation, "d" in rotation) if isinstance(rotation, str) else (1024, {"rotation": rotation})


@needs_cuda
class TestCuda:
    def test_variants_agree(self):
        given, w = layer(k=1024, n=64, group=128, integers=True)
        x = torch.zeros(16, 1024, dtype=torch.float16)
        x[:, ::64] = 1
        expected = (x.double() @ torch.from_numpy(w)).half()
        for variant in linear.variants():
            if variant.memory == "host" or variant.name == "auto":
                continue
            if why := linear.supports(1024, 64, m=16, device="cuda", variant=variant.name):
                assert variant.name.startswith("rotated_w4a16") and "rotation" in why
                continue
            packed = linear.pack(*tensors(given), device="cuda", variant=variant.name)
            assert torch.equal(linear.forward(x.cuda(), packed).cpu(), expected), variant.name

    def test_more_tokens_than_one_launch_takes(self):
        given, w = layer(k=1024, n=64, group=128, integers=True)
        packed = linear.pack(*tensors(given), device="cuda")
        x = torch.zeros(2500, 1024, dtype=torch.float16)
        x[:, ::64] = torch.randint(-1, 2, (2500, 16), generator=torch.Generator().manual_seed(5)).half()
        assert torch.equal(linear.forward(x.cuda(), packed).cpu(), (x.double() @ torch.from_numpy(w)).half())

    @pytest.mark.parametrize("act", [False, True])
    @pytest.mark.parametrize("rotation", [0, -1])
    def test_many_tokens_go_to_prefill(self, rotation, act):
        """In one launch behind what gathers or rotates, with the weights of few tokens."""
        given, w = layer(k=1024, n=264, group=128, integers=True, act=act)
        packed, w = linear.pack(*tensors(given), device="cuda", rotation=rotation), torch.from_numpy(w).cuda()
        if why := linear.supports(1024, 264, m=129, device="cuda", variant="w4a16_prefill"):
            pytest.skip(why)
        assert packed.variant == "w4a16" and packed.order is None
        for m in (64, 128, 129, 200, 1025, 8192):
            x = torch.zeros(m, 1024, dtype=torch.float16, device="cuda")
            x[:, ::64] = torch.randint(-1, 2, (m, 16), generator=torch.Generator().manual_seed(m)).cuda().half() * (1 if rotation == 0 else 32)
            meets = x.double() if rotation == 0 else fwht.hadamard_transform(x).double()
            assert torch.equal(linear.forward(x, packed), (meets @ w).half()), m
            plans = linear.call_for(m, *packed[:8], 0).slices
            settings = plans[0][3].info["settings"]
            assert len(plans) == 1 and ("whole_waves" in settings) == (m > 128)

    @pytest.mark.parametrize("rotation", [0, -1, *OPERATORS])
    def test_streams_and_graphs(self, rotation):
        k, options = rotating_by(rotation)
        given, w = layer(k=k, n=64, group=128)
        packed = linear.pack(*tensors(given), device="cuda", **options)
        x = torch.randn(4, k, generator=torch.Generator().manual_seed(6)).half().cuda()
        y = linear.forward(x, packed)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            assert torch.equal(linear.forward(x, packed), y)
            graph, held = torch.cuda.CUDAGraph(), x.clone()
            side.synchronize()
            with capture(graph, stream=side):
                captured = linear.forward(held, packed)
        held.copy_(2 * x)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(captured, linear.forward(2 * x, packed))

    @pytest.mark.skipif(not CUDA or torch.cuda.device_count() < 2, reason="needs two CUDA devices")
    def test_another_device_than_the_current_one(self):
        given, w = layer(k=1024, n=64, group=128)
        for rotation in (0, -1):
            first = linear.pack(*tensors(given), device="cuda:0", rotation=rotation)
            second = linear.pack(*tensors(given), device="cuda:1", rotation=rotation)
            x = torch.randn(4, 1024, generator=torch.Generator().manual_seed(6)).half()
            y = linear.forward(x.to("cuda:1"), second)
            assert torch.cuda.current_device() == 0 and y.device.index == 1
            assert torch.equal(y.cpu(), linear.forward(x.to("cuda:0"), first).cpu())
            with pytest.raises(ValueError, match="x is on cuda:0, the weights are on cuda:1"):
                linear.forward(x.to("cuda:0"), second)

    @pytest.mark.parametrize("rotation", [0, -1])
    @pytest.mark.parametrize("n", [64, 4128, 8224])
    def test_every_variant_in_a_graph(self, n, rotation):
        """Captured on a fresh stream, plans made in the capture, replayed on other data. All sums are exact."""
        given, w = layer(k=1024, n=n, group=128, integers=True)
        w, seen = torch.from_numpy(w).cuda(), []
        generator = torch.Generator("cuda").manual_seed(9)
        for variant in linear.variants():
            if variant.name == "auto" or linear.supports(1024, n, rotation=rotation, device="cuda", variant=variant.name):
                continue
            packed = linear.pack(*tensors(given), rotation=rotation, device="cuda", variant=variant.name)
            seen.append(variant.name)
            for m in range(1, 131):
                x = torch.zeros(m, 1024, dtype=torch.float16, device="cuda")
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with capture(graph):
                    y = linear.forward(x, packed)
                for _ in range(2):
                    ones = torch.randint(-1, 2, (m, 16), generator=generator, device="cuda").half()
                    x[:, ::64] = ones if rotation == 0 else 32 * ones
                    graph.replay()
                    meets = x.double() if rotation == 0 else fwht.hadamard_transform(x).double()
                    assert torch.equal(y, (meets @ w).half()), (variant.name, m)
        assert seen and ("w4a16_pipelined" in seen) == (rotation == 0)

    @pytest.mark.parametrize("rotation", OPERATORS)
    def test_every_variant_behind_an_operator_in_a_graph(self, rotation):
        """As `test_every_variant_in_a_graph`, replayed when the plans of the capture have gone. Bit for bit the call without a graph."""
        k, options = rotating_by(rotation)
        given, _ = layer(k=k, n=4128, group=128)
        generator, seen = torch.Generator("cuda").manual_seed(9), []
        for variant in linear.variants():
            text = options["rotation"] + ("+signs" if options["signs"] is not None else "")
            if variant.name == "auto" or linear.supports(k, 4128, rotation=text, device="cuda", variant=variant.name):
                continue
            packed = linear.pack(*tensors(given), device="cuda", variant=variant.name, **options)
            seen.append(variant.name)
            for m in range(1, 131):
                x = torch.zeros(m, k, dtype=torch.float16, device="cuda")
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with capture(graph):
                    y = linear.forward(x, packed)
                linear.clear_plans()
                for _ in range(2):
                    x.normal_(generator=generator)
                    graph.replay()
                    assert torch.equal(y, linear.forward(x, packed)), (variant.name, m)
                linear.clear_plans()  # the next capture makes its own
        assert "rotated_w4a16" in seen

    @pytest.mark.parametrize("rotation", ["28x128", "d20x256"])
    def test_an_operator_in_front_is_the_chain(self, rotation):
        """The transform, rounded once, then the layer, bit for bit; the last number of tokens is beyond the L2, where tiles are counted."""
        k, options = rotating_by(rotation)
        given, _ = layer(k=k, n=264, group=128)
        packed, plain = (linear.pack(*tensors(given), device="cuda", **each) for each in (options, {}))
        data = {name: None if each is None else torch.from_numpy(each).cuda() for name, each in (("dense", options["dense"]),)}
        generator = torch.Generator("cuda").manual_seed(10)
        for m in (1, 2, 8, 64, 129, 16384):
            x = torch.randn(m, k, generator=generator, device="cuda").half()
            rotated = fwht.operators.transform(x.view(-1, k), rotation, signs=options["signs"], **data)
            for _ in range(2):
                assert torch.equal(linear.forward(x, packed), linear.forward(rotated, plain)), m

    @pytest.mark.parametrize("act", [False, True])
    @pytest.mark.parametrize("rotation", [0, -1, *OPERATORS])
    def test_two_streams_at_once(self, rotation, act):
        """Plans are shared; each execution has a workspace of its own."""
        k, options = rotating_by(rotation)
        given, w = layer(k=k, n=8224, group=128, act=act)
        packed = linear.pack(*tensors(given), device="cuda", **options)
        x = torch.randn(2, 20, k, generator=torch.Generator().manual_seed(6)).half().cuda()
        wanted = [linear.forward(each, packed) for each in x]
        streams = [torch.cuda.Stream() for _ in x]
        torch.cuda.synchronize()
        got = [[], []]
        for _ in range(50):
            for stream, each, results in zip(streams, x, got):
                with torch.cuda.stream(stream):
                    results.append(linear.forward(each, packed))
        torch.cuda.synchronize()
        assert all(torch.equal(y, want) for want, results in zip(wanted, got) for y in results)

    def test_a_workspace_on_another_device(self):
        given, w = layer(k=1024, n=64, group=128)
        packed = linear.pack(*tensors(given), device="cuda", rotation=-1)
        x, y = torch.zeros(4, 1024, dtype=torch.float16, device="cuda"), torch.full((4, 64), 7.0, dtype=torch.float16, device="cuda")
        plan = linear._plan_for((4, *packed[:7]), packed.variant, 0)
        needed = plan.info["workspace_bytes"]
        reaches_all = ctypes.c_int()
        ctypes.CDLL("libcuda.so.1").cuDeviceGetAttribute(ctypes.byref(reaches_all), 88, 0)  # pageable memory access
        others = [*([] if reaches_all.value else ["cpu"]), *(["cuda:1"] if torch.cuda.device_count() > 1 else [])]
        for other in others:
            workspace = torch.empty(needed, dtype=torch.uint8, device=other)
            addresses = [each.data_ptr() for each in (x, packed.weights, y, workspace)]
            assert linear._execute(plan.handle, *addresses, needed, None) == 1 and "workspace" in linear._c.last_error()
        torch.cuda.synchronize()
        assert (y == 7).all()

    def test_cuda_weights_from_numpy(self):
        given, _ = layer()
        with pytest.raises(TypeError, match="weights on a CUDA device are PyTorch tensors"):
            linear.pack(*given, device="cuda")


@needs_cuda
def test_signs_go_where_the_weight_is():
    signs = torch.tensor(list(fwht.operators.random_signs(64, 1).packed), dtype=torch.uint8)
    layer = fwht.nn.Fp8Linear(torch.randn(32, 64, device="cuda"), signs=signs)
    assert layer.signs.device == layer.codes.device
    assert layer(torch.randn(4, 64, device="cuda", dtype=torch.bfloat16)).shape == (4, 32)
