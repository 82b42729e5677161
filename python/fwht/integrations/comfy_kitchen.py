"""comfy-kitchen's INT8 layers with ConvRot by this library: a backend of its registry. docs/integrations.md says what it takes."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Mapping

import torch
from torch import Tensor

from .. import supports
from ._replace import Replaced
from .convrot import encoding_for, products, quantized

__all__ = ["install", "int8_linear", "uninstall"]

_NAME = "fwht"
_REGISTRY = "comfy_kitchen.registry"
_CONSTRAINTS = "comfy_kitchen.constraints"
_DTYPES = frozenset((torch.float16, torch.bfloat16, torch.float32))

# What this module calls and what calls it, with the parameters of comfy-kitchen 0.2.40.
_known = Replaced("comfy_kitchen", "FWHT_DISABLE_COMFY_KITCHEN", {
    f"{_REGISTRY}:registry.register": ("name", "module", "capabilities"),
    f"{_REGISTRY}:registry.set_priority": ("priority_list",),
    f"{_REGISTRY}:registry._priority": None,
    f"{_CONSTRAINTS}:FunctionConstraints": ("params", "default_devices", "min_compute_capability", "call_rules"),
    f"{_CONSTRAINTS}:ParamConstraint": ("dtypes", "devices", "shape_rules"),
    f"{_CONSTRAINTS}:ValidationResult": ("success", "failed_param", "failure_reason"),
    "comfy_kitchen.backends.eager.quantization:int8_linear": (
        "x", "weight", "weight_scale", "bias", "out_dtype", "convrot", "convrot_groupsize", "input_act", "input_act_weight",
        "input_act_eps", "residual", "residual_scale",
    ),
})  # fmt: skip


def install(before: str = "eager") -> None:
    """Registers the backend "fwht" for `int8_linear`, in front of the backend `before` in the order in which they are asked.

    The default takes the calls that only the portable backend would take; before="cuda" takes them from the compiled kernels. Calls
    without ConvRot, with an activation or a residual, or with rows that this library has no variant for, go on to the next backend.

    It does nothing where FWHT_DISABLE_COMFY_KITCHEN is set, and the second time. Where a name of comfy-kitchen is missing or takes other
    parameters than those known here, one warning says which, and nothing is registered.

    Raises ValueError: comfy-kitchen has no backend of the name `before`.
    """
    if _known.wanted(None) and _known.are_known():
        registry, constraints = importlib.import_module(_REGISTRY).registry, importlib.import_module(_CONSTRAINTS)
        order = [name for name in registry._priority if name != _NAME]
        if before not in order:
            _known.take_back()
            raise ValueError(f"fwht: before={before!r} is no backend of comfy-kitchen; there are {', '.join(order)}")
        order.insert(order.index(before), _NAME)
        x = constraints.ParamConstraint(dtypes=_DTYPES)
        weight = constraints.ParamConstraint(dtypes=frozenset((torch.int8,)))
        takes = constraints.FunctionConstraints(params={"x": x, "weight": weight}, call_rules=(_rule,))
        registry.register(_NAME, sys.modules[__name__], {"int8_linear": takes})
        registry.set_priority(order)
        _known.tell([f"{_REGISTRY}:int8_linear before {before}"])


def uninstall() -> None:
    """The backend is asked no more."""
    registry = importlib.import_module(_REGISTRY).registry
    registry.set_priority([name for name in registry._priority if name != _NAME])
    _known.take_back()


def _rule(call: Mapping[str, Any]) -> Any:
    """Whether this backend takes a call of `int8_linear`, as comfy-kitchen asks it."""
    x, weight, group = call["x"], call["weight"], call.get("convrot_groupsize", 256)
    found: tuple[str, str] | None
    if not call.get("convrot"):
        found = ("convrot", "without it there is nothing to rotate")
    elif call.get("input_act") is not None or call.get("residual") is not None:
        found = ("input_act", "activations and residuals are left to other backends")
    elif group < 4 or group & (group - 1) or group.bit_length() % 2 == 0 or x.shape[-1] % group:
        found = ("convrot_groupsize", f"{group} is no power of four that divides {x.shape[-1]}")
    elif x.shape[-1] != weight.shape[-1] or x.device != weight.device or not x.numel():
        found = ("weight", "its device or its inputs are not those of x")
    elif x.is_cuda and (weight.shape[0] % 8 or weight.shape[1] % 8):
        found = ("weight", f"{tuple(weight.shape)} are no multiples of 8")
    else:
        rows, encoding = x.numel() // group, encoding_for(group, x.shape[-1], x.dtype, x.device)
        able = supports(group, x.dtype, rows=rows, device=x.device, inplace=False, operator=f"{group}r", encoding=encoding)
        found = None if able else ("x", able.why_not)
    result = importlib.import_module(_CONSTRAINTS).ValidationResult
    return result(True) if found is None else result(False, *found)


def int8_linear(
    x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None = None, out_dtype: torch.dtype = torch.bfloat16,
    convrot: bool = True, convrot_groupsize: int = 256, **others: Any,
) -> Tensor:  # fmt: skip
    """comfy-kitchen's function for the calls that `_rule` takes: x (..., K) and int8 codes (outputs, K) in the order of its matrix.

    Scales are its own, the largest element of a rotated row over 127. Codes are y * (127 / largest), of sums in float32 on the CPU; its portable
    backend has y / scale, of y rounded to x's dtype.
    """
    codes, scales = quantized(x, convrot_groupsize)
    sums = products(codes.reshape(-1, codes.shape[-1]), weight)
    result = (sums.float() * (scales.reshape(-1, 1) * weight_scale.float().reshape(1, -1))).to(out_dtype)
    if bias is not None:
        result = result + bias.to(device=result.device, dtype=out_dtype)
    return result.reshape(*x.shape[:-1], len(weight))

