"""SGLang by this library: its plugin loader calls `register` in each of its processes. docs/integrations.md says what is replaced."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from .. import hadamard_transform
from ._replace import Replaced

__all__ = ["register"]

_TARGET = "sglang.kernels.ops.quantization.hadamard:hadamard_transform"
_REGISTRY = "sglang.srt.plugins.hook_registry"

# What this module hooks and what it calls, with the parameters of SGLang 0.5.23.
_replaced = Replaced("sglang", "FWHT_DISABLE_SGLANG", {
    _TARGET: ("x", "scale"),
    f"{_REGISTRY}:HookRegistry.register": ("target", "hook", "hook_type", "source"),
    f"{_REGISTRY}:HookType.AROUND": None,
})  # fmt: skip


def register() -> None:
    """Registers one hook, once in a process; SGLang applies it when all plugins are loaded.

    It does nothing, silently, where FWHT_DISABLE_SGLANG is set, without CUDA, and where this library was built without it. Where a name
    of SGLang is missing or takes other parameters than those known here, one warning says which, and there is no hook: a hook's
    target is a text, which SGLang itself would only report as not found. Else one line of the log says what is replaced.
    """
    if _replaced.wanted(_is_cuda) and _replaced.are_known():
        registry = importlib.import_module(_REGISTRY)
        registry.HookRegistry.register(_TARGET.replace(":", "."), _around, registry.HookType.AROUND)
        _replaced.tell([_TARGET])


def _is_cuda() -> bool:
    return bool(importlib.import_module("sglang.srt.utils").is_cuda())


def _around(original: Any, x: Tensor, scale: float = 1.0) -> Tensor:
    n = x.shape[-1]
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32) or n < 2 or n & (n - 1) or n > 2**15:
        return original(x, scale)
    return hadamard_transform(x, scale)
