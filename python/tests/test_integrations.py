"""fwht.integrations, by modules with the names and parameters of the frameworks that do the same arithmetic in plain PyTorch."""

import functools
import importlib
import json
import logging
import math
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import ClassVar, NamedTuple

import pytest
from conftest import hadamard

torch = pytest.importorskip("torch")

import fwht
import fwht.integrations.convrot as convrot
import fwht.integrations.gptqmodel as gptqmodel
import fwht.integrations.sglang as sglang_plugin
import fwht.integrations.vllm as plugin
from fwht.integrations import _replace
from fwht.integrations.recover import operator_of


def h(n, dtype=torch.float32):
    return torch.from_numpy(hadamard(n)).to(dtype)


def random_matrix(m, power, seed=0):
    """diag(signs) (M (x) H)^T, as compressed-tensors makes them, with entries +-1."""
    generator = torch.Generator().manual_seed(seed)
    special = torch.eye(1) if m == 1 else fwht.operators.transform(torch.eye(m), str(m), 1.0).T.contiguous()
    signs = torch.randint(0, 2, (m * power,), generator=generator) * 2.0 - 1
    return signs[:, None] * torch.kron(special, h(power)).T


# --- a matrix's operator ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("m", "power", "text"),
    [(1, 2, "2+signs"), (1, 64, "64+signs"), (12, 1, "d12+signs"), (12, 4, "d12x4+signs"), (28, 8, "d28x8+signs"),
     (116, 2, "d116x2+signs"), (56, 4, "d28x8+signs"), (224, 2, "d224x2+signs"), (44, 4, "d44x4+signs")],
)  # fmt: skip
def test_the_operator_of_a_matrix(dtype, m, power, text):
    matrix = random_matrix(m, power)
    found = operator_of((matrix * 0.125).to(dtype))
    assert (found.text, found.entry) == (text, 0.125)
    x = torch.randint(-4, 5, (3, m * power)).float()
    dense = None if found.dense is None else found.dense.float()
    assert torch.equal(fwht.operators.transform(x, found.text, 1.0, signs=found.signs, dense=dense), x @ matrix)
    assert torch.equal(fwht.operators.transform(x, found.text, 1.0, signs=found.signs, dense=dense, transpose=True), x @ matrix.T)


def test_an_order_that_is_no_sylvester_multiple():
    """Where the special matrix is not one of a smaller order beside a Sylvester matrix, the larger order is found."""
    other = fwht.operators.transform(torch.eye(24), "24", 1.0)[torch.randperm(24, generator=torch.Generator().manual_seed(1))]
    matrix = torch.kron(other, h(2))
    found = operator_of(matrix)
    assert found.text == "d24x2+signs"
    assert torch.equal(fwht.operators.transform(torch.eye(48), found.text, 1.0, signs=found.signs, dense=found.dense), matrix)


def test_other_matrices_have_none():
    good = random_matrix(12, 4)
    one_sign, one_size, zero, infinite = (good.clone() for _ in range(4))
    one_sign[5, 7] *= -1
    one_size[5, 7] *= 2
    zero.zero_()
    infinite[:] = math.inf
    shuffled = random_matrix(12, 32)[torch.randperm(384, generator=torch.Generator().manual_seed(0))]  # to 256 it is a dense factor
    same_rows = torch.ones(8, 8)
    others = [one_sign, one_size, zero, infinite, shuffled, same_rows, good[:24], good[:1, :1], good[0]]
    assert [operator_of(matrix) for matrix in others] == [None] * len(others)


# --- what every plugin does ------------------------------------------------------------------------------------------


def test_entry_points_lead_to_functions():
    tomllib = pytest.importorskip("tomllib")
    project = Path(__file__).parents[2] / "pyproject.toml"
    groups = tomllib.loads(project.read_text())["project"]["entry-points"]
    assert set(groups) == {"vllm.general_plugins", "sglang.srt.plugins"}
    for group in groups.values():
        for target in group.values():
            module, _, name = target.partition(":")
            assert callable(getattr(importlib.import_module(module), name))


@pytest.fixture
def modules(monkeypatch):
    """Puts a module of that name, and those above it, into sys.modules."""

    def make(name, **content):
        parts = name.split(".")
        for i in range(1, len(parts) + 1):
            above = ".".join(parts[:i])
            if above not in sys.modules:
                made = ModuleType(above)
                made.__path__ = []
                monkeypatch.setitem(sys.modules, above, made)
                if i > 1:
                    setattr(sys.modules[".".join(parts[: i - 1])], parts[i - 1], made)
        vars(sys.modules[name]).update(content)
        return sys.modules[name]

    return make


@pytest.fixture
def with_cuda(monkeypatch):
    """A library that says it was built with CUDA: the arithmetic stays on the CPU."""
    monkeypatch.setattr(_replace._c, "build_info", lambda: {"cuda": "13.0"})


# --- vLLM ------------------------------------------------------------------------------------------------------------


def theirs(x, inplace=True):
    result = (x.float() @ h(x.shape[-1]) / x.shape[-1] ** 0.5).to(x.dtype)
    return x.copy_(result) if inplace else result


class LinearBase:
    def __init__(self, input_size=0, output_size=0):
        self.input_size, self.output_size = input_size, output_size


class SharedWeightParameter:
    """Its matrices, and what it loads of them, as vLLM's does it with the rank and the number of ranks that it was given."""

    def __init__(self, *, weight_loader):
        self.tp_rank, self.tp_size, self.partitions = 1, 2, {}
        if self.tp_size > 1:
            raise NotImplementedError("tensor parallelism")

    def add_partition(self, index, data_key, *args, **kwargs):
        self.partitions[index] = torch.nn.Parameter(torch.empty(*args, **kwargs), requires_grad=False)
        self.partitions[index].tp_rank, self.partitions[index].tp_size = 1, 2

    def load_qkv_weight(self, loaded_weight, shard_id):
        param = self.partitions[shard_id]
        size = param.shape[0] // self.tp_size
        param.data[self.tp_rank * size :][:size] = loaded_weight[param.tp_rank * size :][:size]


class HadamardTransform(torch.nn.Module):
    def __init__(self, transforms, layer, weight_loader, input_size_per_partition, output_partition_sizes):
        super().__init__()
        module = sys.modules[plugin._TRANSFORM]
        if module.get_tensor_model_parallel_world_size() > 1:
            raise NotImplementedError("tensor parallelism")
        self.transforms, self.weight = transforms, module.SharedWeightParameter(weight_loader=weight_loader)
        for part, (_, scheme, args) in transforms.items():
            whole = input_size_per_partition if args.location == "input" else output_partition_sizes[part]
            self.weight.add_partition(part, None, *[scheme.head_dim or whole] * 2)

    def process_weights_after_loading(self):
        for partition in self.weight.partitions.values():
            partition.data.div_(math.sqrt(partition.data.size(0)))

    def forward(self, value, part_id=0):
        if part_id not in self.weight.partitions:
            return value
        weight = self.weight.partitions[part_id]
        weight = weight.T if self.transforms[part_id].args.inverse else weight
        return (value.unflatten(-1, (-1, len(weight))).to(weight.dtype) @ weight).flatten(-2, -1).to(value.dtype)


class TransformTuple(NamedTuple):
    scheme_name: str
    scheme: SimpleNamespace
    args: SimpleNamespace


def transforms_of(parts, inverse=False, kind="random-hadamard", location="output", head_dim=None):
    made = TransformTuple("R", SimpleNamespace(type=kind, head_dim=head_dim), SimpleNamespace(inverse=inverse, location=location))
    return dict.fromkeys(parts, made)


def transform(matrices, inverse=False, kind="random-hadamard"):
    sizes = [len(matrix) for matrix in matrices.values()]
    with pytest.MonkeyPatch.context() as one_rank:
        one_rank.setattr(sys.modules[plugin._TRANSFORM], "get_tensor_model_parallel_world_size", lambda: 1)
        one_rank.setattr(sys.modules[plugin._TRANSFORM], "SharedWeightParameter", plugin._whole_on_each_rank(SharedWeightParameter))
        made = HadamardTransform(transforms_of(matrices, inverse, kind), LinearBase(), None, 0, sizes)
    for part, matrix in matrices.items():
        made.weight.partitions[part].data = matrix
    made.process_weights_after_loading()
    return made


class Int4(dict):
    """The module of the INT4 cache: the two kernels keep what came to them."""

    def __init__(self):
        self.seen = []

        def _get_rht_signs(d, round_idx, device):
            return torch.randint(0, 2, (d,), generator=torch.Generator().manual_seed(d)) * 2.0 - 1

        def single_rht(x, inverse=False):
            block = largest_power_of_2_divisor(x.shape[-1])
            rows, signs = x.unflatten(-1, (-1, block)), _get_rht_signs(block, 0, x.device)
            return (rows @ h(block) * signs if inverse else (rows * signs) @ h(block)).flatten(-2, -1)

        def largest_power_of_2_divisor(n):
            return n & -n

        def _run_reshape_kernel(
            kernel, *, key, value, key_cache, value_cache, k_scale_cache, v_scale_cache, slot_mapping, packing_factor
        ):
            self.seen.append((kernel, key, value, key_cache, value_cache, k_scale_cache, v_scale_cache, slot_mapping, packing_factor))

        def _launch_packed_attn(
            *, q, k_cache, v_cache, out, cu_seqlens_q, max_seqlen_q, seqused_k, softmax_scale, window_size, block_table, softcap, sinks,
            alibi_slopes, use_alibi_sqrt, qq_bias, output_scale, mm_prefix_range, k_scale_cache, v_scale_cache, seq_threshold_3D,
            num_par_softmax_segments, softmax_segm_output, softmax_segm_max, softmax_segm_expsum, packing_factor,
        ):  # fmt: skip
            self.seen.append((q, seq_threshold_3D, softmax_segm_max, packing_factor))
            out.copy_(k_cache[: len(out)] * softmax_scale * 64)

        def reshape_and_cache_int4(key, value, key_cache, value_cache, slot_mapping, *, k_scale_cache, v_scale_cache):
            key, value = single_rht(key.float()).to(key.dtype), single_rht(value.float()).to(value.dtype)
            _run_reshape_kernel(
                "kernel", key=key, value=value, key_cache=key_cache, value_cache=value_cache, k_scale_cache=k_scale_cache,
                v_scale_cache=v_scale_cache, slot_mapping=slot_mapping, packing_factor=2,
            )  # fmt: skip

        def unified_attention_int4(
            q, k_cache, v_cache, out, *, cu_seqlens_q, max_seqlen_q, seqused_k, max_seqlen_k, softmax_scale, window_size, block_table,
            softcap, sinks, alibi_slopes, use_alibi_sqrt, qq_bias, output_scale, mm_prefix_range, k_scale_cache, v_scale_cache,
            seq_threshold_3D=None, num_par_softmax_segments=None, softmax_segm_output=None, softmax_segm_max=None, softmax_segm_expsum=None,
        ):  # fmt: skip
            given = dict(locals())
            norm = largest_power_of_2_divisor(q.shape[2])
            given = {name: value for name, value in given.items() if name not in ("max_seqlen_k", "q", "softmax_scale")}
            given = {name: value for name, value in given.items() if name not in ("self", "single_rht", "_launch_packed_attn")}
            given.pop("largest_power_of_2_divisor", None)
            _launch_packed_attn(q=single_rht(q.float()).to(q.dtype), softmax_scale=softmax_scale / norm, packing_factor=2, **given)
            out.copy_((single_rht(out.float(), inverse=True) / norm).to(q.dtype))

        content = {name: value for name, value in locals().items() if callable(value)}
        super().__init__(content, _reshape_cache_int4_kernel="kernel", _INT4_PACKING_FACTOR=2)


def build_hadamard(d, device_str):
    assert d & (d - 1) == 0
    return h(d, torch.float32) / math.sqrt(d)


def world_size():
    return 2


@pytest.fixture
def vllm(modules, with_cuda, monkeypatch):
    monkeypatch.delenv("FWHT_DISABLE_VLLM", raising=False)
    int4 = Int4()
    names = SimpleNamespace(
        platforms=modules("vllm.platforms", current_platform=SimpleNamespace(is_cuda=lambda: True)),
        ops=modules("vllm._custom_ops", hadacore_transform=theirs),
        transform=modules(
            plugin._TRANSFORM, HadamardTransform=HadamardTransform, SharedWeightParameter=SharedWeightParameter, LinearBase=LinearBase,
            TransformLocation=SimpleNamespace(INPUT="input"), get_tensor_model_parallel_world_size=world_size,
        ),
        turboquant=modules(plugin._TURBOQUANT, _build_hadamard=build_hadamard),
        int4=modules(plugin._INT4, **int4),
        elsewhere=modules("vllm.elsewhere", hadacore_transform=theirs),
        seen=int4.seen,
    )
    before = {name: vars(HadamardTransform)[name] for name in ("__init__", "forward", "process_weights_after_loading")}
    plugin._signs.cache_clear()
    yield names
    plugin.unregister()
    assert all(vars(HadamardTransform)[name] is value for name, value in before.items())


def test_it_replaces_once_and_says_so(vllm, caplog):
    caplog.set_level(logging.INFO)
    plugin.register()
    ours = vllm.ops.hadacore_transform
    assert ours is not theirs and vllm.elsewhere.hadacore_transform is ours
    plugin.register()
    assert vllm.ops.hadacore_transform is ours
    (record,) = [record for record in caplog.records if "fwht" in record.name]
    assert record.name == "vllm.fwht" and record.levelno == logging.INFO
    for name in ("hadacore_transform", "HadamardTransform.forward", "unified_attention_int4", "FWHT_DISABLE_VLLM=1"):
        assert name in record.getMessage()
    plugin.unregister()
    assert vllm.ops.hadacore_transform is vllm.elsewhere.hadacore_transform is theirs


@pytest.mark.parametrize("why", ["variable", "platform", "build"])
def test_it_is_silent_where_it_is_not_wanted(vllm, monkeypatch, caplog, why):
    caplog.set_level(logging.DEBUG)
    if why == "variable":
        monkeypatch.setenv("FWHT_DISABLE_VLLM", "1")
    elif why == "platform":
        vllm.platforms.current_platform = SimpleNamespace(is_cuda=lambda: False)
    else:
        monkeypatch.setattr(_replace._c, "build_info", lambda: {"cuda": "none: FWHT_CUDA=OFF"})
    plugin.register()
    assert vllm.ops.hadacore_transform is theirs and not caplog.records


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda vllm: delattr(vllm.int4, "_run_reshape_kernel"), "int4_per_token_head:_run_reshape_kernel is missing"),
        (lambda vllm: delattr(vllm.transform, "HadamardTransform"), "HadamardTransform is missing"),
        (lambda vllm: setattr(vllm.ops, "hadacore_transform", lambda x: x), r"hadacore_transform takes \(x\), not \(x, inplace\)"),
        (lambda vllm: sys.modules.update({plugin._INT4: None}), "int4_per_token_head cannot be imported"),
    ],
)
def test_names_that_moved(vllm, caplog, monkeypatch, break_it, words):
    monkeypatch.setattr(_replace.importlib.metadata, "version", lambda name: f"{name}-9.9")
    break_it(vllm)
    kept = vllm.ops.hadacore_transform, vars(HadamardTransform)["forward"]
    plugin.register()
    plugin.register()
    assert (vllm.ops.hadacore_transform, vars(HadamardTransform)["forward"]) == kept
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert re.search(r"vllm vllm-9\.9: .*" + words + ".*nothing is replaced", record.getMessage())


def test_hadacore(vllm):
    plugin.register()
    ops = vllm.ops
    x = torch.randint(-4, 5, (3, 5, 256)).to(torch.bfloat16)  # sqrt(256) = 16: exact
    expected = theirs(x, inplace=False)
    kept = x.clone()
    assert torch.equal(ops.hadacore_transform(x, inplace=False), expected) and torch.equal(x, kept)
    assert torch.equal(torch.compile(ops.hadacore_transform, fullgraph=True, backend="aot_eager")(x, inplace=False), expected)
    assert ops.hadacore_transform(x) is x and torch.equal(x, expected)
    y = kept.transpose(0, 1)  # what this library does not write in place is left to vLLM's own function, as float32 is
    assert ops.hadacore_transform(y) is y and torch.equal(y, expected.transpose(0, 1))
    assert torch.equal(ops.hadacore_transform(kept.float(), inplace=False), theirs(kept.float(), inplace=False))


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize(("m", "power"), [(1, 64), (12, 16), (28, 4)])
def test_random_hadamard_transforms(vllm, m, power, inverse):
    n = m * power
    theirs = transform({0: random_matrix(m, power), 1: random_matrix(m, power, 1)}, inverse)
    plugin.register()
    ours = transform({0: random_matrix(m, power), 1: random_matrix(m, power, 1)}, inverse)
    assert len(ours.fwht_operators) == 2
    assert not ours.state_dict()
    x = torch.randn(4, 3 * n, generator=torch.Generator().manual_seed(2))  # three heads of n
    for part in (0, 1, 2):
        expected = HadamardTransform.forward.__wrapped__(theirs, x, part)
        assert torch.allclose(ours(x, part), expected, atol=1e-5) and (part == 2) == torch.equal(x, expected)
    half = torch.randint(-2, 3, (4, n)).to(torch.bfloat16)
    matrix = random_matrix(m, power).double()
    exact = half.double() @ (matrix.T if inverse else matrix) * n**-0.5
    assert (ours(half).double() - exact).abs().max() <= exact.abs().max() * 2**-8
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(half), ours(half))


@pytest.mark.parametrize("matrix", [lambda: random_matrix(12, 4) * 3, lambda: torch.randn(48, 48), lambda: torch.ones(48, 48)])
def test_matrices_that_are_left_to_vllm(vllm, matrix):
    weight = matrix()
    plugin.register()
    ours = transform({0: weight.clone()})
    assert ours.fwht_operators == {} and not list(ours.buffers())
    x = torch.randn(2, 48)
    assert torch.equal(ours(x), (x.unflatten(-1, (-1, 48)) @ (weight / math.sqrt(48))).flatten(-2, -1))


def test_what_hadacore_does_is_left_to_it(vllm):
    plugin.register()
    assert transform({0: random_matrix(1, 16)}, kind="hadamard").fwht_operators == {}
    assert list(transform({0: random_matrix(12, 4)}, kind="hadamard").fwht_operators) == [0]


@pytest.mark.parametrize(
    ("location", "head_dim", "whole", "here"),
    [("input", 16, 64, 32), ("input", None, 64, 64), ("output", 16, 192, 96), ("output", None, 32, 32), ("output", 32, 32, 32)],
)
def test_transforms_on_one_of_two_ranks(vllm, location, head_dim, whole, here):
    """Each rank has the whole matrix; what it does to its part of the rows is that part of what is done to whole rows."""
    plugin.register()
    n = head_dim or whole
    layer = LinearBase(input_size=whole if location == "input" else 7, output_size=7 if location == "input" else whole)
    sizes = (here, [7]) if location == "input" else (7, [here])
    ours = HadamardTransform(transforms_of([0], location=location, head_dim=head_dim), layer, None, *sizes)
    assert vllm.transform.get_tensor_model_parallel_world_size is world_size
    assert vllm.transform.SharedWeightParameter is SharedWeightParameter
    ours.weight.tp_rank, ours.weight.tp_size = 1, 2  # as the layer does after its construction
    matrix = random_matrix(1, n)
    ours.weight.load_qkv_weight(matrix, 0)
    ours.process_weights_after_loading()
    x = torch.randint(-4, 5, (3, whole)).float()
    expected = (x.unflatten(-1, (-1, n)) @ matrix * n**-0.5).flatten(-2, -1)
    assert torch.allclose(ours(x[:, whole - here :]), expected[:, whole - here :], atol=1e-5)


@pytest.mark.parametrize(
    ("location", "head_dim", "sizes"), [("input", None, (32, [7])), ("input", 64, (32, [7])), ("output", 24, (7, [32, 32]))]
)
def test_transforms_across_ranks_are_refused_by_vllm(vllm, location, head_dim, sizes):
    plugin.register()
    for layer in (LinearBase(input_size=64, output_size=128), SimpleNamespace(input_size=32, output_size=64)):
        with pytest.raises(NotImplementedError, match="tensor parallelism"):
            HadamardTransform(transforms_of([0, 1], location=location, head_dim=head_dim), layer, None, *sizes)


@pytest.mark.parametrize("d", [64, 80, 96, 128])
def test_the_rotation_of_turboquant(vllm, monkeypatch, d):
    plugin.register()
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)  # as vLLM does while it makes a model
    try:
        with torch.device("meta"):
            matrix = vllm.turboquant._build_hadamard(d, "cpu")
    finally:
        torch.set_default_dtype(before)
    assert vllm.turboquant._build_hadamard(d, "cpu") is matrix
    dense = matrix.as_subclass(torch.Tensor).double()
    assert torch.equal(dense, dense.T) and torch.allclose(dense @ dense, torch.eye(d, dtype=torch.float64), atol=1e-6)
    assert d & (d - 1) or torch.equal(dense, build_hadamard(d, "cpu").double())
    calls = []
    inner = plugin.operators.transform
    monkeypatch.setattr(plugin.operators, "transform", lambda *args: calls.append(args[1]) or inner(*args))
    x = torch.randn(5, 3, d, generator=torch.Generator().manual_seed(d))
    for product in (x @ matrix, torch.matmul(x, matrix), x.matmul(matrix)):
        assert type(product) is torch.Tensor and torch.allclose(product.double(), x.double() @ dense, atol=1e-5)
    assert len(calls) == 3
    others = [x.half() @ matrix.half(), x.double() @ matrix.double(), x[..., 0, :1].T @ x[..., 0, :], matrix.T.contiguous(), matrix @ matrix]
    assert [type(other) for other in others] == [torch.Tensor] * len(others) and len(calls) == 3


def test_a_rotation_that_turboquant_has_otherwise(vllm):
    vllm.turboquant._build_hadamard = theirs = lambda d, device_str: -h(d)
    plugin.register()
    assert vllm.turboquant._build_hadamard is not theirs
    assert torch.equal(vllm.turboquant._build_hadamard(8, "cpu"), -h(8))


def cache_arguments(head, dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(head)
    qkv = torch.randint(-3, 4, (5, 4, 2 * head), generator=generator).to(dtype)
    key, value = qkv[..., :head], qkv[..., head:]  # rows at one distance, as in a packed projection
    return (key, value, "kc", "vc", "slots"), {"k_scale_cache": "ks", "v_scale_cache": "vs"}


@pytest.mark.parametrize("head", [64, 128, 256, 192, 96, 80, 2])
def test_what_is_written_to_the_int4_cache(vllm, head):
    """The very values of vLLM's chain in float32: one rounding, at the same place."""
    arguments, named = cache_arguments(head)
    vllm.int4.reshape_and_cache_int4(*arguments, **named)
    plugin.register()
    vllm.int4.reshape_and_cache_int4(*arguments, **named)
    theirs, ours = vllm.seen
    assert ours[0] == theirs[0] and ours[3:] == theirs[3:]
    for i in (1, 2):
        assert ours[i].dtype == theirs[i].dtype and ours[i].shape == theirs[i].shape and torch.equal(ours[i], theirs[i])


@pytest.mark.parametrize("case", [(97, torch.bfloat16), (64, torch.float64)])
def test_heads_that_are_left_to_vllm(vllm, monkeypatch, case):
    arguments, named = cache_arguments(*case)
    plugin.register()
    monkeypatch.setattr(plugin, "_rotated", None)
    vllm.int4.reshape_and_cache_int4(*arguments, **named)
    assert len(vllm.seen) == 1


@pytest.mark.parametrize("head", [64, 80])
@pytest.mark.parametrize("optional", [{}, {"seq_threshold_3D": 7, "softmax_segm_max": "max"}])
def test_attention_over_the_int4_cache(vllm, head, optional):
    generator = torch.Generator().manual_seed(head)
    q, k_cache = (torch.randint(-3, 4, (5, 4, head), generator=generator).to(torch.bfloat16) for _ in range(2))
    given = dict.fromkeys(plugin._ATTENTION[4:-5]) | {"softmax_scale": 0.25, "max_seqlen_k": 9} | optional
    outs = []
    for register in (False, True):
        if register:
            plugin.register()
        outs.append(torch.full((5, 4, head), 7.0, dtype=torch.bfloat16))
        assert vllm.int4.unified_attention_int4(q, k_cache, "vc", outs[-1], **given) is None
    assert torch.equal(*outs) and not torch.equal(outs[0], k_cache)
    theirs, ours = vllm.seen
    assert torch.equal(theirs[0], ours[0]) and theirs[1:] == ours[1:] == (optional.get("seq_threshold_3D"), optional.get("softmax_segm_max"), 2)


# --- SGLang ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def sglang(modules, with_cuda, monkeypatch):
    """Its registry of hooks, which applies AROUND to the one target, and a kernel that pads as SGLang's does."""
    monkeypatch.delenv("FWHT_DISABLE_SGLANG", raising=False)

    class HookRegistry:
        hooks: ClassVar = []

        @classmethod
        def register(cls, target, hook, hook_type="after", *, source=None):
            cls.hooks.append((target, hook, hook_type))

    def hadamard_transform(x, scale=1.0):
        n = x.shape[-1]
        power = 1 << (n - 1).bit_length()
        return (torch.nn.functional.pad(x.float(), (0, power - n)) @ h(power) * scale)[..., :n].to(x.dtype)

    yield SimpleNamespace(
        utils=modules("sglang.srt.utils", is_cuda=lambda: True),
        registry=modules("sglang.srt.plugins.hook_registry", HookRegistry=HookRegistry, HookType=SimpleNamespace(AROUND="around")),
        kernel=modules("sglang.kernels.ops.quantization.hadamard", hadamard_transform=hadamard_transform),
        hooks=HookRegistry.hooks,
    )
    sglang_plugin._replaced.take_back()


def test_the_hook_of_sglang(sglang, caplog):
    caplog.set_level(logging.INFO)
    sglang_plugin.register()
    sglang_plugin.register()
    ((target, hook, kind),) = sglang.hooks
    module, _, name = target.rpartition(".")
    original = getattr(importlib.import_module(module), name)
    (record,) = caplog.records
    assert kind == "around" and record.name == "sglang.fwht" and "hadamard_transform" in record.getMessage()

    def not_called(*arguments, **named):
        raise AssertionError

    for n, dtype in ((128, torch.bfloat16), (512, torch.float16), (64, torch.float32)):
        x = torch.randint(-8, 9, (3, 2, n)).to(dtype)
        assert torch.equal(hook(not_called, x, scale=0.125), original(x, 0.125)) and torch.equal(hook(not_called, x), original(x))
    x = torch.randint(-8, 9, (3, 96)).to(torch.bfloat16)  # no power of two is SGLang's
    assert torch.equal(hook(original, x, 0.5), original(x, 0.5))
    compiled = torch.compile(lambda t: hook(not_called, t, 0.125), fullgraph=True, backend="aot_eager")
    x = torch.randint(-8, 9, (3, 128)).to(torch.bfloat16)
    assert torch.equal(compiled(x), original(x, 0.125))


@pytest.mark.parametrize("why", ["variable", "platform", "name", "parameters", "registry"])
def test_no_hook_in_sglang(sglang, monkeypatch, caplog, why):
    caplog.set_level(logging.DEBUG)
    if why == "variable":
        monkeypatch.setenv("FWHT_DISABLE_SGLANG", "1")
    elif why == "platform":
        sglang.utils.is_cuda = lambda: False
    elif why == "name":
        del sglang.kernel.hadamard_transform
    elif why == "parameters":
        sglang.kernel.hadamard_transform = lambda x: x
    else:
        del sglang.registry.HookRegistry.register
    sglang_plugin.register()
    sglang_plugin.register()
    assert not sglang.hooks
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(messages) == len(caplog.records) == (0 if why in ("variable", "platform") else 1)
    assert all("sglang of unknown version: sglang." in message and "nothing is replaced" in message for message in messages)


# --- GPTQModel -------------------------------------------------------------------------------------------------------


def checkpoint(folder, k, **config):
    """One layer of k inputs and 16 outputs as "m.mlp.down_proj" and as "m.mlp.up_proj", and its weights (k, 16)."""
    pytest.importorskip("safetensors")
    generator = torch.Generator().manual_seed(k)
    codes = torch.randint(0, 16, (k, 16), generator=generator)
    words = (codes.reshape(k // 8, 8, 16) << torch.arange(0, 32, 4)[:, None]).sum(1)
    tensors = fwht.linear.GptqTensors(words.to(torch.int32), None, torch.full((1, 16), 0.125, dtype=torch.float16))
    fwht.linear.save(folder, {"m.mlp.down_proj": tensors, "m.mlp.up_proj": tensors})
    path = folder / "quantize_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return (codes - 8) * 0.125


@pytest.mark.parametrize("m", [1, 12])
def test_a_rotated_checkpoint_of_gptqmodel(tmp_path, modules, m):
    k = 64 * m
    weights = checkpoint(tmp_path, k, rotation="hadamard")
    special = torch.eye(1) if m == 1 else fwht.operators.transform(torch.eye(m), str(m), 1.0).T.contiguous()
    special = special[torch.randperm(m, generator=torch.Generator().manual_seed(0))]  # not symmetric, as some of theirs
    assert gptqmodel.rotation_of(tmp_path) == "hadamard"
    if m > 1:
        with pytest.raises(ImportError, match=f"k={k} inputs"):
            gptqmodel.load(tmp_path, "m.mlp.down_proj", device="cpu")
        modules("gptqmodel.quantization.rotation.hadamard_utils", get_hadK=lambda n: (special, m) if n == k else None)
    layer = gptqmodel.load(tmp_path, "m.mlp.down_proj", device="cpu")
    assert layer._packed.rotation == ("64" if m == 1 else "d12x64")
    x = torch.randn(3, k, generator=torch.Generator().manual_seed(1)).half()
    rotated = (x.double() @ torch.kron(special, h(64)).T.double() * k**-0.5).half()
    assert torch.allclose(layer(x).double(), rotated.double() @ weights.double(), rtol=2**-8, atol=2**-6)
    plain = gptqmodel.load(tmp_path, "m.mlp.up_proj", device="cpu")
    assert isinstance(plain, fwht.nn.GptqLinear)
    assert torch.allclose(plain(x).double(), x.double() @ weights.double(), rtol=2**-8, atol=2**-6)


@pytest.mark.parametrize("kind", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"))])
@pytest.mark.parametrize("text", ["64+signs", "64", "28x16+signs", "12x2x20x2+signs", "d5x8+signs", "d7+signs", "172+signs"])
def test_weights_on_a_device_are_folded_factor_by_factor(kind, text):
    plugin = importlib.import_module("fwht.integrations.compressed_tensors")
    m = int(re.match(r"d?(\d+)", text)[1])
    n = math.prod(int(order.removeprefix("d")) for order in text.removesuffix("+signs").split("x"))
    generator = torch.Generator().manual_seed(n)
    signs = fwht.operators.random_signs(n, 3) if "signs" in text else None
    # Orthogonal and not symmetric, so that a transpose in the wrong place shows.
    dense = torch.linalg.qr(torch.randn(m, m, dtype=torch.float64, generator=generator))[0] * m**0.5 if "d" in text else None
    matrix = plugin._Matrix(text, signs, None if dense is None else dense.reshape(-1).contiguous(), torch.nn.Parameter(torch.ones(n)), None)
    rows = torch.randn(3, 2, n, dtype=torch.float64, generator=generator)
    for transpose in (False, True):
        want = fwht.operators.transform(rows, text, None, signs=signs, dense=matrix.dense, transpose=transpose)
        with torch.device("meta"):
            got = plugin._by_factors(rows.to(kind), matrix, transpose).cpu()
        assert torch.allclose(got, want, rtol=0, atol=1e-13)



def test_a_checkpoint_that_is_not_rotated_or_in_a_way_that_is_not_known(tmp_path):
    checkpoint(tmp_path, 64)
    assert gptqmodel.rotation_of(tmp_path) is None
    layer = gptqmodel.load(tmp_path, "m.mlp.down_proj", device="cpu")
    assert isinstance(layer, fwht.nn.GptqLinear)
    checkpoint(tmp_path, 64, rotation="random")
    for matrix, words in ((torch.ones(3, 3), "a matrix of order m"), (torch.ones(4, 2), "a matrix of order m"), (torch.ones(4, 4), "is not orthogonal")):
        with pytest.raises(ValueError, match=words):
            gptqmodel.load(tmp_path, "m.mlp.down_proj", matrix=matrix, device="cpu")
    checkpoint(tmp_path, 64, rotation="learned")
    with pytest.raises(ValueError, match="rotation='learned' .*hadamard, random"):
        gptqmodel.load(tmp_path, "m.mlp.down_proj", device="cpu")


# --- compressed-tensors ----------------------------------------------------------------------------------------------


@pytest.fixture
def folding(monkeypatch):
    """The package itself, and `fold(kind, module, apply)`: the module after the transforms of a scheme, by the factory's seed 5."""
    transforms = pytest.importorskip("compressed_tensors.transform")
    plugin = importlib.import_module("fwht.integrations.compressed_tensors")
    monkeypatch.delenv("FWHT_DISABLE_COMPRESSED_TENSORS", raising=False)

    def fold(kind, module, *apply, **scheme):
        arguments = [transforms.TransformArgs(targets=[".*"], location=location, inverse=inverse) for location, inverse in apply]
        made = transforms.TransformScheme(type=kind, apply=arguments, **scheme)
        factory = transforms.TransformFactory.from_scheme(made, name="R", seed=5)
        for each in arguments:
            factory._apply_to_module(module, module, each)
        return module

    yield SimpleNamespace(fold=fold, install=plugin.install, uninstall=plugin.uninstall, replaced=plugin._replaced)
    plugin.uninstall()


def layer(kind, n, m, seed=0):
    torch.manual_seed(seed)
    if kind == "embedding":
        return torch.nn.Embedding(m, n, dtype=torch.float64)
    return torch.nn.Linear(n, m, dtype=torch.float64)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("location", ["weight_input", "weight_output"])
@pytest.mark.parametrize("module", ["linear", "embedding"])
@pytest.mark.parametrize(
    ("kind", "n", "more"),
    [("hadamard", 64, {}), ("hadamard", 64, {"randomize": True}), ("hadamard", 192, {"head_dim": 64}), ("random-hadamard", 64, {}),
     ("random-hadamard", 112, {}), ("random-hadamard", 144, {"head_dim": 48, "randomize": True}), ("random-hadamard", 28, {})],
)  # fmt: skip
def test_what_is_folded_is_the_product_by_their_matrix(folding, monkeypatch, kind, n, more, module, location, inverse):
    dense = [importlib.import_module(f"compressed_tensors.transform.factory.{name}") for name in ("hadamard", "random_hadamard")]
    n_is_last = (module == "linear") == (location == "weight_input")
    sizes = (n, 20) if n_is_last else (20, n)
    theirs, ours = (layer(module, *sizes) for _ in range(2))
    folding.fold(kind, theirs, (location, inverse), **more)
    folding.install()
    monkeypatch.setattr(dense[0], "deterministic_hadamard_matrix", None)  # not called
    monkeypatch.setattr(dense[1], "random_hadamard_matrix", None)
    folding.fold(kind, ours, (location, inverse), **more)
    assert not torch.equal(ours.weight, layer(module, *sizes).weight)
    for name, value in theirs.named_parameters():
        assert torch.allclose(ours.get_parameter(name), value, rtol=0, atol=1e-14)


@pytest.mark.parametrize("apply", [(("input", False), ("weight_input", True)), (("weight_input", True), ("input", False))])
@pytest.mark.parametrize("kind", ["hadamard", "random-hadamard"])
def test_an_online_rotation_and_its_inverse_in_the_weights(folding, kind, apply):
    n = 64 if kind == "hadamard" else 96
    x = torch.randn(3, n, dtype=torch.float64)
    before, theirs, ours = (layer("linear", n, 20) for _ in range(3))
    folding.fold(kind, theirs, *apply, precision=torch.float64)
    folding.install()
    folding.fold(kind, ours, *apply, precision=torch.float64)
    assert torch.allclose(ours.weight, theirs.weight, rtol=0, atol=1e-14) and not torch.allclose(ours.weight, before.weight, atol=0.01)
    assert torch.allclose(ours(x), before(x), rtol=0, atol=1e-13) and torch.equal(ours.R_input.weight, theirs.R_input.weight)


def test_orders_without_a_matrix_there(folding):
    with pytest.raises(ValueError, match="Cannot construct random hadamard matrix of size 428"):
        folding.fold("random-hadamard", layer("linear", 428, 4), ("weight_input", False))
    folding.install()
    theirs, ours = layer("linear", 428, 4), layer("linear", 428, 4)
    folding.fold("random-hadamard", ours, ("weight_input", False))
    assert torch.allclose(ours.weight @ ours.weight.T, theirs.weight @ theirs.weight.T, atol=1e-14) and not torch.allclose(ours.weight, theirs.weight)
    folding.fold("random-hadamard", ours, ("weight_input", True))
    assert torch.allclose(ours.weight, theirs.weight, rtol=0, atol=1e-14)
    with pytest.raises(ValueError, match="size 428"):
        folding.fold("random-hadamard", ours, ("input", False), ("weight_input", True))
    with pytest.raises(ValueError, match=r"2\^n"):
        folding.fold("hadamard", ours, ("weight_input", True))


def test_folding_is_installed_once_or_not_at_all(folding, monkeypatch, caplog):
    factory = importlib.import_module("compressed_tensors.transform.factory.hadamard").HadamardFactory
    theirs = factory.create_transform
    monkeypatch.setenv("FWHT_DISABLE_COMPRESSED_TENSORS", "1")
    folding.install()
    assert factory.create_transform is theirs
    monkeypatch.delenv("FWHT_DISABLE_COMPRESSED_TENSORS")
    folding.install()
    ours = factory.create_transform
    folding.install()
    assert factory.create_transform is ours is not theirs
    folding.uninstall()
    assert factory.create_transform is theirs
    monkeypatch.setattr(factory, "_create_weight", lambda self: None)
    folding.install()
    assert factory.create_transform is theirs
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "HadamardFactory._create_weight takes (self), not (self, size" in record.getMessage()


# --- ConvRot ---------------------------------------------------------------------------------------------------------


def regular(group):
    four = torch.ones(4, 4) - 2 * torch.eye(4).flip(0)
    return four if group == 4 else torch.kron(regular(group // 4), four)


@pytest.mark.parametrize(("dtype", "k", "group"), [(torch.float32, 5376, 256), (torch.bfloat16, 768, 256), (torch.float16, 192, 64)])
def test_codes_of_convrot(dtype, k, group):
    generator = torch.Generator().manual_seed(k)
    x = torch.randn(2, 20, k, generator=generator).to(dtype)
    x[1, 3] = 0
    codes, scales = convrot.quantized(x, group)
    rotated = (x.double().unflatten(-1, (-1, group)) @ regular(group).double() / group**0.5).flatten(-2, -1)
    expected = rotated.abs().amax(-1, keepdim=True) / 127
    # The sums are those of 16 numbers, twice: 30 additions in float32.
    assert torch.allclose(scales.double(), expected, rtol=30 * 2.0**-24, atol=0) and not codes[1, 3].any()
    theirs = (rotated / expected.clamp(min=1e-30)).round().to(torch.int8)
    weight = torch.randint(-127, 128, (24, k), generator=generator).to(torch.int8)
    steps = (codes.int() - theirs.int()).abs()
    assert steps.max() <= 1 and (steps > 0).double().mean() < 1e-4
    weight_scale, bias = torch.rand(24, generator=generator) / 100, torch.randn(24, generator=generator)
    exact = (codes.double() @ weight.double().T) * scales.double() * weight_scale.double() + bias.double()
    y = convrot.linear(x, weight, weight_scale, bias, group=group)
    assert y.dtype == dtype and torch.allclose(y.double(), exact, rtol=2.0**-8 if dtype != torch.float32 else 1e-5, atol=1e-5)


def test_codes_of_convrot_beside_those_of_comfy_kitchen():
    """Its portable backend in float32, where it rounds nothing in between."""
    pytest.importorskip("comfy_kitchen")
    eager = importlib.import_module("comfy_kitchen.backends.eager.quantization")
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(40, 768, generator=generator), torch.randint(-127, 128, (16, 768), generator=generator).to(torch.int8)
    codes, scales = convrot.quantized(x)
    theirs, their_scales = eager.quantize_and_rotate_rowwise(x, eager._build_hadamard(256), 256)
    assert torch.allclose(scales, their_scales, rtol=1e-6)
    steps = (codes.int() - theirs.int()).abs()
    assert steps.max() <= 1 and (steps > 0).double().mean() < 1e-3
    y = eager.int8_linear(x, weight, torch.tensor(0.01), None, torch.float32, True, 256)
    ours = convrot.linear(x, weight, torch.tensor(0.01))
    assert (ours - y).norm() < 1e-3 * y.norm()


@pytest.fixture
def kitchen(monkeypatch):
    """comfy-kitchen with our backend in front of its portable one; its compiled ones are switched off."""
    pytest.importorskip("comfy_kitchen")
    module = importlib.import_module("fwht.integrations.comfy_kitchen")
    registry = importlib.import_module("comfy_kitchen.registry").registry
    monkeypatch.setattr(registry, "_disabled", {"cuda", "triton", "hip", "ascend"})
    module.install()
    yield SimpleNamespace(
        ours=module, registry=registry, linear=importlib.import_module("comfy_kitchen").int8_linear,
        eager=importlib.import_module("comfy_kitchen.backends.eager.quantization"),
    )  # fmt: skip
    module.uninstall()
    assert registry._priority == ["ascend", "cuda", "triton", "eager"]


@pytest.mark.parametrize(("dtype", "group"), [(torch.float32, 16), (torch.float32, 64), (torch.float32, 256), (torch.bfloat16, 256), (torch.float16, 64)])
def test_the_backend_for_comfy_kitchen_has_its_bits(kitchen, dtype, group):
    """Where both formulas are one: rows whose rotated elements are codes times a power of two."""
    generator = torch.Generator().manual_seed(group)
    k, outputs = 768, 24
    rotated = torch.zeros(2, 20, k)
    if dtype is torch.float32:
        rotated = torch.randint(-126, 127, rotated.shape, generator=generator).float()
    rotated[..., 5] = 127.0  # the largest: the scale is 2^-3
    x = kitchen.eager._rotate_activation(rotated / 8, kitchen.eager._build_hadamard(group).T.contiguous(), group).to(dtype)
    x[1, 3] = 0
    weight = torch.randint(-127, 128, (outputs, k), generator=generator).to(torch.int8)
    scale, bias = torch.rand(outputs, generator=generator) / 100, torch.randn(outputs, generator=generator)
    for out_dtype, operands in ((dtype, {"bias": bias}), (torch.bfloat16, {})):
        call = {"weight_scale": scale, "out_dtype": out_dtype, "convrot": True, "convrot_groupsize": group, **operands}
        assert kitchen.registry.get_capable_backend("int8_linear", {"x": x, "weight": weight, **call}) == "fwht"
        ours, theirs = kitchen.linear(x, weight, **call), kitchen.eager.int8_linear(x, weight, **call)
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs) and bool(ours[0].any())


@pytest.mark.parametrize("group", [16, 64, 256])
def test_codes_of_the_backend_are_its_sums_by_our_formula(kitchen, group):
    """Integers: sums are exact, so that only y * (127 / largest) in place of y / scale is left."""
    x = torch.randint(-8, 9, (40, 768), generator=torch.Generator().manual_seed(1)).float()
    y = kitchen.eager._rotate_activation(x, kitchen.eager._build_hadamard(group), group)
    theirs, scales = kitchen.eager.quantize_int8_rowwise(y)
    codes, our_scales = convrot.quantized(x, group)
    assert torch.equal(our_scales, scales)
    largest = y.abs().amax(-1, keepdim=True)
    assert torch.equal(codes, (y * (torch.full_like(largest, 127) / largest)).round().to(torch.int8))  # 127 / x is 127 * (1 / x) in PyTorch
    other = codes != theirs
    assert (codes.int() - theirs.int()).abs().max() == 1  # at halves of a step, which one formula rounds up and the other down
    assert torch.allclose(((y / scales)[other] % 1).double(), torch.tensor(0.5, dtype=torch.float64), atol=1e-4)


def test_the_backend_leaves_the_rest_to_others(kitchen):
    x, weight = torch.randn(3, 768), torch.ones(8, 768, dtype=torch.int8)
    for other in (
        {"convrot": False}, {"input_act": "gelu_tanh"}, {"convrot_groupsize": 128}, {"residual": torch.zeros(3, 8)}, {"x": x[:0]},
        {"weight": torch.ones(8, 512, dtype=torch.int8)},
    ):  # fmt: skip
        call = {"x": x, "weight": weight, "weight_scale": torch.tensor(1.0), "convrot": True, "convrot_groupsize": 256} | other
        assert kitchen.registry.get_capable_backend("int8_linear", call) == "eager", other


def test_the_backend_says_where_it_stands(kitchen, caplog, monkeypatch):
    assert kitchen.registry._priority == ["ascend", "cuda", "triton", "fwht", "eager"]
    kitchen.ours.uninstall()
    with pytest.raises(ValueError, match="before='turing' is no backend of comfy-kitchen; there are ascend, cuda, triton, eager"):
        kitchen.ours.install(before="turing")
    kitchen.ours.install(before="cuda")
    kitchen.ours.install(before="cuda")
    assert kitchen.registry._priority == ["ascend", "fwht", "cuda", "triton", "eager"]
    kitchen.ours.uninstall()
    monkeypatch.delattr(importlib.import_module("comfy_kitchen.constraints"), "ParamConstraint")
    kitchen.ours.install()
    assert kitchen.registry._priority == ["ascend", "cuda", "triton", "eager"]
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "comfy_kitchen.constraints:ParamConstraint is missing; nothing is replaced" in record.getMessage()


def test_convrot_refuses():
    x, weight, scale = torch.zeros(2, 96), torch.zeros(32, 96, dtype=torch.int8), torch.ones(32)
    linear = functools.partial(convrot.linear, group=16)
    for kind, call, words in (
        (ValueError, lambda: convrot.quantized(x, 32), "group=32 must be a power of four"),
        (ValueError, lambda: convrot.quantized(x, 64), r"\(2, 96\); .* group=64"),
        (TypeError, lambda: convrot.quantized(x.numpy(), 16), "x is a numpy.ndarray; it must be a PyTorch tensor"),
        (TypeError, lambda: convrot.quantized(x.double(), 16), "codes are of rows in float16, bfloat16 or float32"),
        (TypeError, lambda: linear(x.numpy(), weight, scale), "x is a numpy.ndarray"),
        (TypeError, lambda: linear(x, weight.numpy(), scale), "weight is a numpy.ndarray"),
        (TypeError, lambda: linear(x, weight, 0.5), "weight_scale is a builtins.float; it must be a PyTorch tensor"),
        (TypeError, lambda: linear(x, weight, scale, [0.0]), "bias is a builtins.list"),
        (TypeError, lambda: linear(x, weight.float(), scale), "weight has dtype torch.float32; it must be torch.int8"),
        (ValueError, lambda: linear(x, weight[:, :48], scale), r"weight has shape \(32, 48\); it must be \(outputs, 96\), as x of shape \(2, 96\) asks"),
        (ValueError, lambda: linear(x, weight[0], scale), r"weight has shape \(96,\)"),
        (ValueError, lambda: linear(x, weight, scale[:31]), r"weight_scale has shape \(31,\); it must have one element, or one for each of 32 outputs"),
        (ValueError, lambda: linear(x, weight, scale, scale[:31]), r"bias has shape \(31,\); it must be \(32,\)"),
        (ValueError, lambda: linear(x, weight.to("meta"), scale), "weight is on meta, x is on cpu"),
    ):
        with pytest.raises(kind, match=words):
            call()
    assert not linear(x, weight, scale[:1].view(1, 1), scale).sub(1).any() and linear(x[:0], weight, scale[:, None]).shape == (0, 32)


def test_convrot_takes_rows_that_are_rounded_where_no_sums_in_float32_are_quantized(monkeypatch):
    """As on a CUDA device: the same call, of y rounded to x's dtype."""
    x = torch.randn(20, 768, generator=torch.Generator().manual_seed(3)).to(torch.bfloat16)
    sums, _ = convrot.quantized(x)
    monkeypatch.setattr(convrot, "supports", lambda *given, encoding, **more: not encoding.endswith("/f32"))
    convrot.encoding_for.cache_clear()
    try:
        codes, scales = convrot.quantized(x)
    finally:
        convrot.encoding_for.cache_clear()
    y = fwht.operators.transform(x.view(-1, 256), "256r").view(x.shape).float()
    largest = y.abs().amax(-1, keepdim=True)
    assert torch.equal(scales, largest / 127) and torch.equal(codes, (y * (torch.full_like(largest, 127) / largest)).round().to(torch.int8))
    assert 0 < (codes != sums).double().mean() < 0.1
