"""vLLM by this library: its plugin loader calls `register` in each of its processes. docs/integrations.md says what is replaced."""

from __future__ import annotations

import functools
import importlib
import inspect
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from .. import _plan, hadamard_transform, operators
from ._replace import Replaced
from .recover import Recovered, operator_of

__all__ = ["register", "unregister"]

_OPS = "vllm._custom_ops"
_TRANSFORM = "vllm.model_executor.layers.quantization.compressed_tensors.transform.module"
_INT4 = "vllm.v1.attention.ops.int4_per_token_head"
_TURBOQUANT = "vllm.v1.attention.backends.turboquant_attn"
_ATTENTION = (
    "q", "k_cache", "v_cache", "out", "cu_seqlens_q", "max_seqlen_q", "seqused_k", "max_seqlen_k", "softmax_scale", "window_size",
    "block_table", "softcap", "sinks", "alibi_slopes", "use_alibi_sqrt", "qq_bias", "output_scale", "mm_prefix_range", "k_scale_cache",
    "v_scale_cache", "seq_threshold_3D", "num_par_softmax_segments", "softmax_segm_output", "softmax_segm_max", "softmax_segm_expsum",
)  # fmt: skip
_CACHE = ("key", "value", "key_cache", "value_cache", "slot_mapping", "k_scale_cache", "v_scale_cache")

# What this module replaces and what it calls, with the parameters of vLLM 0.33.0.
_KNOWN = {
    f"{_OPS}:hadacore_transform": ("x", "inplace"),
    f"{_TRANSFORM}:HadamardTransform.__init__": (
        "self", "transforms", "layer", "weight_loader", "input_size_per_partition", "output_partition_sizes",
    ),
    f"{_TRANSFORM}:HadamardTransform.forward": ("self", "value", "part_id"),
    f"{_TRANSFORM}:HadamardTransform.process_weights_after_loading": ("self",),
    f"{_TRANSFORM}:SharedWeightParameter.add_partition": ("self", "index", "data_key", "args", "kwargs"),
    f"{_TRANSFORM}:get_tensor_model_parallel_world_size": (),
    f"{_TRANSFORM}:LinearBase": None,
    f"{_TRANSFORM}:TransformLocation.INPUT": None,
    f"{_INT4}:reshape_and_cache_int4": _CACHE,
    f"{_INT4}:unified_attention_int4": _ATTENTION,
    f"{_INT4}:single_rht": ("x", "inverse"),
    f"{_INT4}:largest_power_of_2_divisor": None,
    f"{_INT4}:_get_rht_signs": ("d", "round_idx", "device"),
    f"{_INT4}:_run_reshape_kernel": (
        "kernel", "key", "value", "key_cache", "value_cache", "k_scale_cache", "v_scale_cache", "slot_mapping", "packing_factor",
    ),
    f"{_INT4}:_launch_packed_attn": (*(name for name in _ATTENTION if name != "max_seqlen_k"), "packing_factor"),
    f"{_INT4}:_reshape_cache_int4_kernel": None,
    f"{_INT4}:_INT4_PACKING_FACTOR": None,
    f"{_TURBOQUANT}:_build_hadamard": ("d", "device_str"),
}  # fmt: skip

_replaced = Replaced("vllm", "FWHT_DISABLE_VLLM", _KNOWN)


def register() -> None:
    """Replaces what docs/integrations.md lists, once in a process.

    It does nothing, silently, where FWHT_DISABLE_VLLM is set, where the platform is not CUDA, and where this library was built without
    it. Where one name of vLLM is missing or takes other parameters than those known here, one warning says which, and nothing is
    replaced. Else one line of the log says what was.
    """
    if _replaced.wanted(_is_cuda) and _replaced.are_known():
        _replaced.put({
            f"{_OPS}:hadacore_transform": _hadacore_transform,
            f"{_TRANSFORM}:HadamardTransform.__init__": _init,
            f"{_TRANSFORM}:HadamardTransform.process_weights_after_loading": _process_weights_after_loading,
            f"{_TRANSFORM}:HadamardTransform.forward": _forward,
            f"{_INT4}:reshape_and_cache_int4": _reshape_and_cache_int4,
            f"{_INT4}:unified_attention_int4": _unified_attention_int4,
            f"{_TURBOQUANT}:_build_hadamard": _build_hadamard,
        })  # fmt: skip


def unregister() -> None:
    """Puts vLLM's own functions back. Graphs that were compiled or captured meanwhile keep ours."""
    _replaced.take_back()


def _is_cuda() -> bool:
    """By vLLM's own answer, which leaves CUDA uninitialized in a process that is going to fork."""
    platforms = importlib.import_module("vllm.platforms")
    return bool(platforms.current_platform.is_cuda())


def _is_for_hadacore(n: int) -> bool:
    return 2 <= n <= 2**15 and n & (n - 1) == 0


def _hadacore_transform(original: Any) -> Any:
    @functools.wraps(original)
    def hadacore_transform(x: Tensor, inplace: bool = True) -> Tensor:
        known = x.dtype in (torch.float16, torch.bfloat16) and _is_for_hadacore(x.shape[-1])
        if not known or (inplace and not x.is_contiguous()):
            return original(x, inplace)
        return hadamard_transform(x, None, inplace=inplace)

    return hadacore_transform


# --- compressed-tensors' online transforms ---------------------------------------------------------------------------


def _init(original: Any) -> Any:
    """Under tensor parallelism, each rank holds the whole matrix of a transform that does not mix what lies on different ranks."""

    @functools.wraps(original)
    def __init__(
        self: Any, transforms: Any, layer: Any, weight_loader: Any, input_size_per_partition: int, output_partition_sizes: list[int]
    ) -> None:
        module: Any = importlib.import_module(_TRANSFORM)
        arguments = (self, transforms, layer, weight_loader, input_size_per_partition, output_partition_sizes)
        if module.get_tensor_model_parallel_world_size() == 1 or not _stays_on_its_rank(module, *arguments[1:]):
            original(*arguments)
            return
        kept = module.get_tensor_model_parallel_world_size, module.SharedWeightParameter
        module.get_tensor_model_parallel_world_size, module.SharedWeightParameter = (lambda: 1), _whole_on_each_rank(kept[1])
        try:
            original(*arguments)
        finally:
            module.get_tensor_model_parallel_world_size, module.SharedWeightParameter = kept

    return __init__


def _stays_on_its_rank(
    module: ModuleType, transforms: Any, layer: Any, weight_loader: Any, input_size_per_partition: int, output_partition_sizes: list[int]
) -> bool:
    """Whether each transform is one of the whole input or output, or has blocks of which each lies on one rank."""
    if not isinstance(layer, module.LinearBase):
        return False
    whole_input, whole_output = layer.input_size == input_size_per_partition, layer.output_size == sum(output_partition_sizes)
    for part, (_, scheme, args) in transforms.items():
        is_input = args.location == module.TransformLocation.INPUT
        size = input_size_per_partition if is_input else output_partition_sizes[part]
        in_blocks = scheme.head_dim is not None and size % scheme.head_dim == 0
        if not in_blocks and not (whole_input if is_input else whole_output):
            return False
    return True


@functools.cache
def _whole_on_each_rank(shared: Any) -> type:
    """vLLM's parameter as it is on one rank: its layers set the rank and the size of each parameter of theirs again."""

    class Whole(shared):
        tp_rank = property(lambda self: 0, lambda self, value: None)
        tp_size = property(lambda self: 1, lambda self, value: None)

        def add_partition(self, index: int, data_key: Any, *args: Any, **kwargs: Any) -> None:
            super().add_partition(index, data_key, *args, **kwargs)
            self.partitions[index].tp_rank, self.partitions[index].tp_size = 0, 1

    return Whole


def _process_weights_after_loading(original: Any) -> Any:
    @functools.wraps(original)
    def process_weights_after_loading(self: Any) -> None:
        original(self)
        self.fwht_operators = {}
        for part_id, partition in self.weight.partitions.items():
            transform = self.transforms.get(part_id)
            if transform is None or (transform.scheme.type == "hadamard" and _is_for_hadacore(len(partition))):
                continue
            if found := _recovered(partition.data):
                self.fwht_operators[part_id] = (found.text, len(partition))
                self.register_buffer(f"fwht_signs_{part_id}", found.signs, persistent=False)
                self.register_buffer(f"fwht_dense_{part_id}", found.dense, persistent=False)

    return process_weights_after_loading


def _recovered(matrix: Tensor) -> Recovered | None:
    """The operator of a matrix that is orthonormal up to the rounding of its entries."""
    found = operator_of(matrix) if matrix.dtype in (torch.float16, torch.bfloat16, torch.float32) else None
    if found is None or abs(found.entry * len(matrix) ** 0.5 - 1) > 2.0**-8:
        return None
    return found


def _forward(original: Any) -> Any:
    @functools.wraps(original)
    def forward(self: Any, value: Tensor, part_id: int = 0) -> Tensor:
        text, n = getattr(self, "fwht_operators", {}).get(part_id, (None, 0))
        if text is None or value.dtype not in (torch.float16, torch.bfloat16, torch.float32):
            return original(self, value, part_id)
        transform = self.transforms[part_id]
        dense = getattr(self, f"fwht_dense_{part_id}")
        result = operators.transform(
            value.unflatten(-1, (-1, n)), text, None, signs=getattr(self, f"fwht_signs_{part_id}"), dense=None if dense is None else dense.to(value.dtype),
            transpose=bool(transform.args.inverse),
        )  # fmt: skip
        return result.flatten(-2, -1)

    return forward


# --- the INT4 KV cache -----------------------------------------------------------------------------------------------


@functools.cache
def _signs(block: int) -> operators.Signs:
    module = importlib.import_module(_INT4)
    return operators.pack_signs(module._get_rht_signs(block, 0, torch.device("cpu")))


@functools.cache
def _takes(block: int, dtype: torch.dtype, device: torch.device) -> bool:
    if block < 2 or dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return False
    there = _plan.supports(block, dtype, device=device, inplace=False, operator=f"{block}+signs")
    return bool(there and _plan.supports(block, dtype, device=device, inplace=True, operator=f"signs+{block}"))


def _blocks(module: ModuleType, *heads: Tensor) -> list[int]:
    """The block that vLLM rotates each of these by; none at all where this library does not take one of them."""
    blocks = [module.largest_power_of_2_divisor(x.shape[-1]) for x in heads]
    return blocks if all(_takes(block, x.dtype, x.device) for block, x in zip(blocks, heads)) else []


def _rotated(x: Tensor, block: int) -> Tensor:
    """H_b D x in each block of b elements of the heads, by one kernel and with one rounding."""
    rows = x.unflatten(-1, (-1, block))
    return operators.transform(rows, f"{block}+signs", 1.0, signs=_signs(block).on(x)).flatten(-2, -1)


def _reshape_and_cache_int4(original: Any) -> Any:
    module = importlib.import_module(_INT4)

    @functools.wraps(original)
    def reshape_and_cache_int4(
        key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor, *, k_scale_cache: Tensor,
        v_scale_cache: Tensor,
    ) -> None:  # fmt: skip
        if blocks := _blocks(module, key, value):
            module._run_reshape_kernel(
                module._reshape_cache_int4_kernel, key=_rotated(key, blocks[0]), value=_rotated(value, blocks[1]), key_cache=key_cache,
                value_cache=value_cache, k_scale_cache=k_scale_cache, v_scale_cache=v_scale_cache, slot_mapping=slot_mapping,
                packing_factor=module._INT4_PACKING_FACTOR,
            )  # fmt: skip
        else:
            original(key, value, key_cache, value_cache, slot_mapping, k_scale_cache=k_scale_cache, v_scale_cache=v_scale_cache)

    return reshape_and_cache_int4


def _unified_attention_int4(original: Any) -> Any:
    module = importlib.import_module(_INT4)
    optional = {
        name: parameter.default
        for name, parameter in inspect.signature(original).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }

    @functools.wraps(original)
    def unified_attention_int4(q: Tensor, k_cache: Tensor, v_cache: Tensor, out: Tensor, **others: Any) -> None:
        blocks = _blocks(module, q, out)
        if not blocks or blocks[0] != blocks[1] or out.dtype != q.dtype or not out.is_contiguous():
            original(q, k_cache, v_cache, out, **others)
            return
        block = blocks[0]
        given = {**optional, **others}
        del given["max_seqlen_k"]
        given["softmax_scale"] = given["softmax_scale"] / block
        module._launch_packed_attn(
            q=_rotated(q, block), k_cache=k_cache, v_cache=v_cache, out=out, packing_factor=module._INT4_PACKING_FACTOR, **given
        )
        back = out.unflatten(-1, (-1, block))
        operators.transform(back, f"{block}+signs", 1 / block, signs=_signs(block).on(out), transpose=True, inplace=True)

    return unified_attention_int4


# --- TurboQuant's KV cache -------------------------------------------------------------------------------------------


class _Rotation(Tensor):
    """The matrix of a symmetric operator: rows of float32 times it are one fast transform, all else is the matrix itself."""

    operator: str

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.__matmul__, Tensor.matmul, torch.matmul) and len(args) == 2 and not kwargs:
            x, matrix = args
            if isinstance(matrix, cls) and type(x) is Tensor and x.dtype == torch.float32 and x.shape[-1] == len(matrix):
                return operators.transform(x, matrix.operator, None)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def _build_hadamard(original: Any) -> Any:
    @functools.wraps(original)
    @functools.cache
    def build_hadamard(d: int, device_str: str) -> Tensor:
        try:
            operator = operators.operator_for(d)
        except ValueError:
            return original(d, device_str)
        matrix = operators.transform(torch.eye(d, dtype=torch.float32, device="cpu"), operator, None).to(device_str)
        # TurboQuant takes the matrix for its inverse; and where vLLM has one, another one would be for another cache.
        is_known = torch.equal(matrix, original(d, device_str)) if d & (d - 1) == 0 else operators.transposed(operator) == operator
        if not is_known or not _plan.supports(d, torch.float32, device=matrix.device, operator=operator):
            return original(d, device_str)
        rotation = matrix.as_subclass(_Rotation)
        rotation.operator = operator
        return rotation

    return build_hadamard
