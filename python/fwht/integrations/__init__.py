"""What other frameworks call, by this library: one module for each, imported by its plugin loader or by you (docs/integrations.md)."""

from __future__ import annotations

from typing import Any

from .. import _lazy

_SUBMODULES = ("comfy_kitchen", "compressed_tensors", "convrot", "gptqmodel", "recover", "sglang", "vllm")


def __getattr__(name: str) -> Any:
    return _lazy.submodule(__name__, name, _SUBMODULES)
