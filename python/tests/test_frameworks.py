"""The frameworks of docs/integrations.md as their packages are today, by the stand-in of fwht.compat and by our plugins. Only where
they are asked for, each in a process of its own; they must be installed beside pytest (`pip install --no-deps` and what the module
asks for is enough):

    FWHT_FRAMEWORKS=transformers,modelopt,auto_round,gptqmodel,vllm,sglang,kernels,stand_in python -m pytest python/tests/test_frameworks.py
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import fwht

ASKED = os.environ.get("FWHT_FRAMEWORKS", "").split(",")
BEFORE = """
import math, sys, torch, fwht
import fwht.compat.fast_hadamard_transform as ours
calls = []
def seen(x, scale=1.0, inner=ours.hadamard_transform):
    calls.append(tuple(x.shape))
    return inner(x, scale)
ours.hadamard_transform = seen
def h(n):
    return ours.hadamard_transform_ref(torch.eye(n, dtype=torch.float64), n ** -0.5)
def close(a, b):
    assert a.shape == b.shape and torch.allclose(a.double(), b.double(), atol=1e-5), (a, b)
x = torch.randn(6, 256)
"""
PROGRAMS = {
    "transformers": """
        import transformers.utils.import_utils as utils
        assert not utils.is_hadamard_available()
        fwht.compat.install()
        assert utils.is_hadamard_available()
        import transformers.integrations.higgs as higgs
        assert hasattr(higgs, "is_flute_available") and higgs.hadamard_transform is seen
        close(higgs.hadamard_transform(x, 1), x.double() @ h(256) * 16)
    """,
    "modelopt": """
        from modelopt.torch.quantization.nn.functional import normalized_hadamard_transform
        fwht.compat.install()
        close(normalized_hadamard_transform(x), x.double() @ h(256))
        close(normalized_hadamard_transform(x.bfloat16(), rotate_fp32=True).float(), (x.bfloat16().double() @ h(256)).bfloat16().float())
        blocks = normalized_hadamard_transform(x[:, :192].requires_grad_())
        close(blocks, (x[:, :192].double().reshape(6, 3, 64) @ h(64)).reshape(6, 192))
        blocks.sum().backward()
    """,
    "auto_round": """
        import auto_round.algorithms.transforms.hadamard.inplace.hooks as hooks
        assert hooks.fast_hadamard_transform is None
        fwht.compat.install()
        close(hooks.matmul_hadU_cuda(x, None, 1), x.double() @ h(256))
        wide = torch.randn(3, 768)
        had, k = hooks.get_hadK(768)
        expected = torch.einsum("ij,rjn,nm->rim", had.double(), wide.double().view(3, k, -1), h(768 // k)) / math.sqrt(k)
        close(hooks.matmul_hadU_cuda(wide, had, k), expected.reshape(3, 768))
    """,
    "gptqmodel": """
        import gptqmodel.quantization.rotation.hadamard_utils as utils
        fwht.compat.install()
        close(utils.matmul_hadU_cuda(x, None, 1), x.double() @ h(256))
        wide = torch.randn(3, 768, requires_grad=True)
        had, k = utils.get_hadK(768)
        close(utils.matmul_hadU_cuda(wide, had, k), utils.matmul_hadU(wide.detach().double()))
    """,
    "vllm": """
        from fwht.integrations import vllm as plugin
        import vllm.platforms
        plugin._replaced.check()
        from fwht.integrations import _replace
        _replace._c.build_info = lambda: {"cuda": "13.0"}
        vllm.platforms.current_platform.__class__.is_cuda = lambda self: True
        import vllm.v1.attention.ops.int4_per_token_head as int4
        int4._hadacore_available = lambda: False
        keys = torch.randn(5, 4, 96).bfloat16()
        kept = []
        int4._run_reshape_kernel = lambda kernel, *, key, value, key_cache, value_cache, k_scale_cache, v_scale_cache, slot_mapping, packing_factor: kept.append(key)
        theirs = int4.reshape_and_cache_int4
        import types
        import vllm.model_executor.parameter as parameter
        import vllm.v1.attention.backends.turboquant_attn as turboquant
        transform = sys.modules[plugin._TRANSFORM]
        sylvester = turboquant._build_hadamard(128, "cpu")
        plugin.register()
        assert int4.reshape_and_cache_int4 is not theirs
        heads = torch.randn(5, 3, 128)
        close(heads @ turboquant._build_hadamard(128, "cpu"), heads.double() @ sylvester.double())
        assert turboquant._build_hadamard(80, "cpu").shape == (80, 80)
        transform.get_tensor_model_parallel_world_size = parameter.get_tensor_model_parallel_world_size = lambda: 2
        parameter.get_tensor_model_parallel_rank = lambda: 1
        layer = transform.LinearBase.__new__(transform.LinearBase)
        torch.nn.Module.__init__(layer)
        layer.input_size, layer.output_size = 256, 512
        scheme = transform.TransformScheme(type="random-hadamard", head_dim=64, apply=[])
        args = transform.TransformArgs(targets=["x"], location="output")
        q, k = (transform.HadamardTransform(dict.fromkeys(range(3), transform.TransformTuple("R", scheme, args)), layer, None, 256, [128, 64, 64]) for _ in "qk")
        from compressed_tensors.transform.utils.hadamard import random_hadamard_matrix
        matrix = random_hadamard_matrix(64, torch.float32)
        for made in (q, k):
            made.weight.tp_rank, made.weight.tp_size = 1, 2
            made.weight.load_qkv_weight(matrix, shard_id="k", num_heads=1)
        for made in (q, k):
            made.process_weights_after_loading()
            assert 1 in made.fwht_operators
            close(made(x[:, :64], 1), x[:, :64].double() @ matrix.double() / 8)
        import fwht.evaluate, json, tempfile, transformers
        from safetensors.torch import load_file
        from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import CompressedTensorsConfig
        from vllm.model_executor.layers.quantization.compressed_tensors.transform.linear import get_linear_transform_schemes
        shape = dict(vocab_size=64, hidden_size=64, intermediate_size=224, num_hidden_layers=1, num_attention_heads=2)
        model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**shape))
        with tempfile.TemporaryDirectory() as folder:
            fwht.evaluate.save_rotated(model, folder, "R4")
            quantization = CompressedTensorsConfig.from_config(json.load(open(folder + "/config.json"))["quantization_config"])
            (stored,) = [value for name, value in load_file(folder + "/model.safetensors").items() if name.endswith("R4_input.weight")]
        transform.get_tensor_model_parallel_world_size = parameter.get_tensor_model_parallel_world_size = lambda: 1
        layer.input_size, layer.output_size = 224, 64
        assert quantization.get_scheme(layer=layer, layer_name="model.layers.0.mlp.down_proj") is None
        inputs, outputs = get_linear_transform_schemes(layer, "model.layers.0.mlp.down_proj", quantization.transform_config, {})
        assert not outputs and get_linear_transform_schemes(layer, "model.layers.0.self_attn.o_proj", quantization.transform_config, {}) == ({}, {})
        made = transform.HadamardTransform(inputs, layer, None, 224, [64])
        made.weight.partitions[0].data.copy_(stored)
        made.process_weights_after_loading()
        assert 0 in made.fwht_operators
        mlp = torch.randn(5, 224)
        expected = fwht.operators.transform(mlp, signs=fwht.operators.random_signs(224, 1))
        close(made(mlp), expected)
        for function in (theirs, int4.reshape_and_cache_int4):
            function(keys, keys, None, None, None, k_scale_cache=None, v_scale_cache=None)
        assert torch.equal(*kept)
        seen(x)  # vLLM has no call of the stand-in
    """,
    "stand_in": """
        import importlib.metadata
        assert importlib.metadata.version("fwht-fast-hadamard-transform")
        from fast_hadamard_transform import hadamard_transform
        import transformers.utils.import_utils as utils
        assert hadamard_transform is seen and utils.is_hadamard_available()
        import transformers.integrations.higgs as higgs
        assert higgs.hadamard_transform is seen
        keys = torch.randn(2, 5, 128).bfloat16().requires_grad_()  # as the sparse attention of Megatron-LM
        close(hadamard_transform(keys, scale=keys.size(-1) ** -0.5).float(), (keys.double() @ h(128)).bfloat16().float())
        (gradient,) = torch.autograd.grad(hadamard_transform(keys, scale=128 ** -0.5)[0, 0, 0], keys)
        close(gradient[0, 0].float(), torch.full((128,), 128 ** -0.5).bfloat16().float())
        wide = x.t().contiguous().t()  # as QuaRot's matmul_hadU_cuda
        close(hadamard_transform(wide.contiguous(), 1.0 / torch.tensor(256).sqrt()), x.double() @ h(256))
    """,
    "kernels": """
        import os, pathlib, tempfile
        os.environ.pop("FWHT_LIBRARY", None)
        sys.path.append(str(pathlib.Path(fwht.__file__).parents[2]))
        from analysis.testbed.wheel import kernels_folder
        from kernels import get_local_kernel
        with tempfile.TemporaryDirectory() as folder:
            for made in kernels_folder(pathlib.Path(fwht.__file__).parent, pathlib.Path(folder), "none", fwht.__version__, set()):
                pathlib.Path(made, "libfwht.so").symlink_to(fwht._c.library._name)
            loaded = get_local_kernel(pathlib.Path(folder), backend="cpu")
            assert loaded is not fwht and loaded.__file__.startswith(folder)
            close(loaded.hadamard_transform(x), x.double() @ h(256))
        seen(x)  # nor has this one
    """,
    "sglang": """
        from fwht.integrations import sglang as plugin, _replace
        import sglang.srt.utils
        import sglang.srt.plugins.hook_registry as registry
        import sglang.kernels.ops.quantization.hadamard as kernels
        _replace._c.build_info = lambda: {"cuda": "13.0"}
        sglang.srt.utils.is_cuda = lambda: True
        plugin.hadamard_transform = seen
        plugin.register()
        registry.HookRegistry.apply_hooks()
        close(kernels.hadamard_transform(x, scale=256 ** -0.5), x.double() @ h(256))
    """,
}


@pytest.mark.parametrize("framework", PROGRAMS)
def test_as_it_calls_it(framework):
    if framework not in ASKED:
        pytest.skip(f"FWHT_FRAMEWORKS does not name {framework}")
    program = BEFORE + textwrap.dedent(PROGRAMS[framework]) + "\nassert calls"
    path = os.pathsep.join([str(Path(fwht.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr[-4000:]
