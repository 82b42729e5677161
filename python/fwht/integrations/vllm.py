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
_ATTENTION = (
    "q", "k_cache", "v_cache", "out", "cu_seqlens_q", "max_seqlen_q", "seqused_k", "max_seqlen_k", "softmax_scale", "window_size",
    "block_table", "softcap", "sinks", "alibi_slopes", "use_alibi_sqrt", "qq_bias", "output_scale", "mm_prefix_range", "k_scale_cache",
    "v_scale_cache", "seq_threshold_3D", "num_par_softmax_segments", "softmax_segm_output", "softmax_segm_max", "softmax_segm_expsum",
)  # fmt: skip
_CACHE = ("key", "value", "key_cache", "value_cache", "slot_mapping", "k_scale_cache", "v_scale_cache")

# What this module replaces and what it calls, with the parameters of vLLM 0.33.0.
_KNOWN = {
    f"{_OPS}:hadacore_transform": ("x", "inplace"),
    f"{_TRANSFORM}:HadamardTransform.forward": ("self", "value", "part_id"),
    f"{_TRANSFORM}:HadamardTransform.process_weights_after_loading": ("self",),
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
            f"{_TRANSFORM}:HadamardTransform.process_weights_after_loading": _process_weights_after_loading,
            f"{_TRANSFORM}:HadamardTransform.forward": _forward,
            f"{_INT4}:reshape_and_cache_int4": _reshape_and_cache_int4,
            f"{_INT4}:unified_attention_int4": _unified_attention_int4,
        })  # fmt: skip


def unregister() -> None:
    """Puts vLLM's own functions back. Graphs that were compiled or captured meanwhile keep ours."""
    _replaced.take_back()


def _is_cuda() -> bool:
    """By vLLM's own answer, which leaves CUDA uninitialized in a process that is going to fork."""
    platforms = importlib.import_module("vllm.platforms")
    return bool(platforms.current_platform.is_cuda())


def _hadacore_transform(original: Any) -> Any:
    @functools.wraps(original)
    def hadacore_transform(x: Tensor, inplace: bool = True) -> Tensor:
        n = x.shape[-1]
        if x.dtype not in (torch.float16, torch.bfloat16) or n < 2 or n & (n - 1) or n > 2**15 or (inplace and not x.is_contiguous()):
            return original(x, inplace)
        return hadamard_transform(x, None, inplace=inplace)

    return hadacore_transform


# --- compressed-tensors' online transforms ---------------------------------------------------------------------------


def _process_weights_after_loading(original: Any) -> Any:
    @functools.wraps(original)
    def process_weights_after_loading(self: Any) -> None:
        original(self)
        self.fwht_operators = {}
        for part_id, partition in self.weight.partitions.items():
            transform = self.transforms.get(part_id)
            if transform is not None and transform.scheme.type == "random-hadamard" and (found := _recovered(partition.data)):
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
