"""Modules and rotations of layers. Needs PyTorch."""

from __future__ import annotations

import contextlib
import functools
import warnings
from typing import Any, NoReturn

import torch

from . import _c, hadamard_transform, linear, operators
from ._torch.eager import linear_by, quantize_rows, require_memory
from .quantize import quantize

__all__ = ["Fp8Linear", "GptqLinear", "HadamardTransform", "rotate_linear"]


class _KeepsTypes(torch.nn.Module):
    """Moves with its buffers, which keep their types, whatever `.half()` and the like ask."""

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        before = {name: each for name, each in self._buffers.items() if each is not None}
        super()._apply(fn, recurse)
        for name, each in before.items():
            if (now := self._buffers[name]) is not None and now.dtype != each.dtype:
                self._buffers[name] = each.to(now.device)
        return self


def _bias_of(bias: Any, n: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor | None:
    if bias is None:
        return None
    if not isinstance(bias, torch.Tensor) or not bias.is_floating_point():
        raise TypeError(f"fwht: bias is a {_kind_of(bias)}; it must be a PyTorch tensor of floating point, or None")
    if tuple(bias.shape) != (n,):
        raise ValueError(f"fwht: bias has shape {tuple(bias.shape)}; it must be ({n},)")
    require_memory(bias)
    return bias.detach().to(device, dtype)


def _kind_of(given: Any) -> str:
    return str(given.dtype) if isinstance(given, torch.Tensor) else f"{type(given).__module__}.{type(given).__qualname__}"


class Fp8Linear(_KeepsTypes):
    """y = x W^T + bias in e4m3, tokens and weights, both rotated: Q = Op/sqrt(k) spreads outliers of a token over all of its codes.

    One launch makes codes and a scale per token of Q x (`fwht.hadamard_quantize(x, "e4m3:row")`); the weights are codes with a scale
    per output of W Q^T, formed in float32 and rounded once. torch._scaled_mm multiplies. Where the device has no such product, codes are
    multiplied in float32, and a warning says so once (not inside `torch.compile`); `why_not` is that sentence, "" where there is one.

    Args:
        weight: (n, k), n and k multiples of 16: of a torch.nn.Linear, finite, in any dtype of floating point.
        bias: (n,) in floating point, or None.
        operator, signs: of Q, as in `fwht.operators`; without them the operator for k.
        rotate: False: Q is the identity, to compare with.

    Shape: (..., k) to (..., n), bfloat16. Not differentiable. Raises ValueError for other sizes, a weight that is not finite and a k
    that has no operator, TypeError for tokens of another dtype and for what is no tensor of floating point.

    Its state_dict has the operator's text as `_extra_state`: `load_state_dict` raises ValueError where the module rotates otherwise, by
    another operator or with signs on one side alone, and loads nothing of this module; of a larger one the modules
    before it are loaded.
    Of state_dicts from before, which lack it, strict loading says so; with strict=False they are loaded as they are.
    """

    def __init__(self, weight: torch.Tensor, bias: Any = None, *, operator: str | None = None, signs: Any = None, rotate: bool = True):
        super().__init__()
        if not isinstance(weight, torch.Tensor) or not weight.is_floating_point():
            raise TypeError(f"fwht: weight is a {_kind_of(weight)}; it must be a PyTorch tensor of floating point")
        if weight.dim() != 2 or weight.shape[0] % 16 or weight.shape[1] % 16 or 0 in weight.shape:
            raise ValueError(f"fwht: a weight of shape {tuple(weight.shape)} must be (n, k), both multiples of 16")
        if not rotate and (operator is not None or signs is not None):
            raise ValueError("fwht: rotate=False, but an operator or signs are given")
        require_memory(weight, signs)
        self.operator, self.rotate, self._warned = operator, rotate, False
        host = signs.cpu() if isinstance(signs, torch.Tensor) else signs
        rotated = weight.detach().float().cpu().contiguous()
        if bad := int((~rotated.isfinite()).sum()):
            raise ValueError(f"fwht: {bad} of {rotated.numel()} elements of the weight are not finite")
        bias = _bias_of(bias, len(weight), torch.bfloat16, weight.device)
        if rotate:
            rotated = operators.transform(rotated, operator, signs=host)
        codes, scales = quantize(rotated, "e4m3:row")
        self.register_buffer("codes", codes.to(weight.device))
        self.register_buffer("scales", scales.view(1, -1).to(weight.device))
        if isinstance(signs, operators.Signs):
            signs = signs.on(weight)
        self.register_buffer("signs", signs.to(weight.device) if isinstance(signs, torch.Tensor) else signs)
        self.register_buffer("bias", bias)

    @property
    def why_not(self) -> str:
        """Why codes are multiplied in float32 where the module is now."""
        return _why_not(self.codes.device)

    def get_extra_state(self) -> torch.Tensor:
        """The text of the operator, "" for none, in bytes: a tensor, as files of safetensors want it."""
        text = (self.operator or operators.operator_for(self.codes.shape[1])) if self.rotate else ""
        return torch.tensor(list(text.encode()), dtype=torch.uint8, device="cpu")

    def set_extra_state(self, state: torch.Tensor) -> None:
        """What it says is asked before anything is loaded."""

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:
        def said(text: torch.Tensor, has_signs: bool) -> str:
            return (bytes(text.tolist()).decode().removesuffix("+signs") or "nothing") + (" with signs" if has_signs else "")

        if not any(key.startswith(prefix) for key in state_dict):  # nothing of this module
            return super()._load_from_state_dict(state_dict, prefix, *others)
        own = self.get_extra_state()
        theirs = said(state_dict.get(f"{prefix}_extra_state", own), f"{prefix}signs" in state_dict)
        if theirs != (ours := said(own, self.signs is not None)):
            raise ValueError(f"fwht: the state is of an Fp8Linear that rotates by {theirs}; this one rotates by {ours}")
        super()._load_from_state_dict(state_dict, prefix, *others)

    def quantize(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes of Q x, and a scale for each token."""
        if not self.rotate:
            return quantize(x, "e4m3:row")
        return quantize_rows(x, "e4m3:row", self.operator, self._buffers["signs"], None, None, None, False, None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = self._buffers  # an attribute takes five times as long
        own, bias = kept["codes"], kept["bias"]
        n, k = own.shape
        if x.dtype is not torch.bfloat16:
            raise TypeError(f"fwht: x has dtype {x.dtype}; an Fp8Linear takes torch.bfloat16")
        if x.dim() == 0 or x.shape[-1] != k:
            raise ValueError(f"fwht: x has shape {tuple(x.shape)}; its last dimension must be k={k}")
        if x.numel() == 0:
            return x.new_empty((*x.shape[:-1], n))
        codes, scales = self.quantize(x if x.dim() == 2 else x.reshape(-1, k))
        if why_not := (_why_not if torch.compiler.is_compiling() else _known_why_not)(own.device):
            if not self._warned and not torch.compiler.is_compiling():  # in a graph a warning is a break
                warnings.warn(f"fwht: {why_not}", stacklevel=2)
                self._warned = True
            with _without_autocast(own.device.type):  # which would cast the product to 16 bits
                y = (codes.float() @ own.float().t() * scales * kept["scales"]).to(torch.bfloat16)
        else:
            y = torch._scaled_mm(codes, own.t(), scale_a=scales, scale_b=kept["scales"], out_dtype=torch.bfloat16, use_fast_accum=False)
        if x.dim() != 2:
            y = y.view(*x.shape[:-1], n)
        return y if bias is None else y + bias

    def extra_repr(self) -> str:
        return f"n={self.codes.shape[0]}, k={self.codes.shape[1]}, operator={(self.operator or 'the one for k') if self.rotate else None}"


def _why_not(device: torch.device) -> str:
    if device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9) and torch.version.hip is None:
        return ""
    return f"{device} has no product of e4m3 codes, as CUDA devices from compute capability 8.9 on have; they are multiplied in float32"


@torch.compiler.assume_constant_result  # some releases trace no call of PyTorch's own
def _has_autocast(kind: str) -> bool:
    return torch.amp.is_autocast_available(kind)


def _without_autocast(kind: str) -> Any:
    return torch.autocast(kind, enabled=False) if _has_autocast(kind) else contextlib.nullcontext()


_known_why_not = functools.lru_cache(64)(_why_not)


class GptqLinear(_KeepsTypes):
    """y = x W + bias with 4-bit weights of GPTQ's format, for few tokens (`fwht.linear`).

    Args:
        qweight, qzeros, scales, g_idx, options: as for `fwht.linear.pack`, PyTorch tensors.
        bias: (n,) in floating point, or None; kept in the dtype that weights are packed for.

    Shape: (..., k) to (..., n). The packed weights move with the module, but only between devices of one kind; they are not part
    of its state_dict, since their order is that of a kernel, and `load_state_dict` is refused. Raises what `fwht.linear` raises,
    TypeError for what is no tensor, ValueError for a bias of another shape. Not differentiable.
    """

    def __init__(self, qweight: Any, qzeros: Any, scales: Any, g_idx: Any = None, bias: Any = None, **options: Any):
        super().__init__()
        if not isinstance(qweight, torch.Tensor):
            raise TypeError(f"fwht: qweight is a {_kind_of(qweight)}; a module takes PyTorch tensors")
        packed = linear.pack(qweight, qzeros, scales, g_idx, **options)
        self._packed = packed._replace(weights=None, order=None)  # the buffers alone hold them, and move
        self.register_buffer("weights", packed.weights, persistent=False)
        self.register_buffer("order", packed.order, persistent=False)
        bias = _bias_of(bias, packed.n, getattr(torch, packed.dtype), packed.weights.device)
        self.register_buffer("bias", bias, persistent=False)

    @property
    def packed(self) -> linear.Packed:
        """The weights where the module is now, for `fwht.linear.forward`."""
        return self._packed._replace(weights=self.weights, order=self.order)

    def load_state_dict(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError("fwht: a GptqLinear loads no state_dict, since it has none; make another of the checkpoint's tensors (fwht.linear.load)")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = self._buffers  # where the module is now; an attribute takes five times as long
        y, bias = linear_by(x, self._packed, kept["weights"], kept["order"]), kept["bias"]
        return y if bias is None else y + bias

    def extra_repr(self) -> str:
        return repr(self._packed).removeprefix("<fwht.linear.Packed ").removesuffix(">")


class HadamardTransform(torch.nn.Module):
    """y[..., :] = scale * H_n x[..., :] as a layer without parameters; orthonormal unless a scale is given.

    Args:
        n: row length that x must have, a power of two.
        scale: a number, or None for 1/sqrt(n).

    Shape: (..., n) to (..., n). Raises ValueError for another n, a scale that is not finite and rows of another length; TypeError for
    what is no number or no tensor.
    """

    def __init__(self, n: int, scale: float | None = None):
        super().__init__()
        n, scale = _c.integer("n", n), _c.checked_scale(scale)
        if n < 2 or n & (n - 1):
            raise ValueError(f"fwht: n={n} must be a power of two of at least 2")
        self.n = n
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"fwht: x is a {_kind_of(x)}; a HadamardTransform takes PyTorch tensors")
        if not x.is_nested and x.dim() and x.shape[-1] != self.n:  # nested tensors have no shape, scalars no row: the transform refuses both
            raise ValueError(f"fwht: rows of {x.shape[-1]} elements came to a HadamardTransform of n={self.n}")
        return hadamard_transform(x, self.scale)

    def extra_repr(self) -> str:
        return f"n={self.n}, scale={'1/sqrt(n)' if self.scale is None else self.scale}"


@torch.no_grad()
def rotate_linear(
    linear: torch.nn.Linear, side: str = "in", operator: str | None = None, signs: Any = None
) -> torch.nn.Linear:
    """Multiplies an orthogonal matrix Q = Op/sqrt(n) into the weight of a layer, in place. For n = 2^k that is H_n/sqrt(n).

    `side="in"`: W becomes W Q^T, so that the layer takes rotated inputs: (W Q^T)(Q x) = W x.
    `side="out"`: W becomes Q W and the bias Q b, so that the layer gives rotated outputs: Q (W x + b).

    Q x is `fwht.operators.transform(x, operator, signs=signs)`, and for n = 2^k without signs
    `fwht.hadamard_transform(x)`.

    The products are formed in float32 (float64 for float64 weights) and rounded once to the weight's dtype.

    Args:
        linear: a torch.nn.Linear.
        side: "in" or "out": which of in_features and out_features is n.
        operator, signs: as in `fwht.operators`; without them the operator for n, which any multiple of a known order has.

    Returns: `linear`. Raises TypeError for another layer, whose weight may lie otherwise, and for a weight or bias that
    is computed anew for each call, as by `torch.nn.utils.parametrizations` and `prune`; ValueError for another side,
    and for a length that has no operator. Nothing is changed then.

    Source: QuaRot (Ashkboos et al. 2024), section 4, and SpinQuant (Liu et al. 2024): rotations that leave the
    network's function as it is.
    """
    if not isinstance(linear, torch.nn.Linear):
        raise TypeError(f"fwht: linear is a {type(linear).__module__}.{type(linear).__qualname__}; it must be a torch.nn.Linear")
    if side not in ("in", "out"):
        raise ValueError(f"fwht: side={side!r} must be 'in' or 'out'")
    for name in ("weight", "bias")[: 1 + (side == "out")]:
        if name not in linear._parameters:  # what is written to it would be lost
            raise TypeError(f"fwht: the {name} of linear is computed from other parameters; remove the parametrization or the pruning first")
    require_memory(linear.weight, linear.bias)
    weight = linear.weight if side == "in" else linear.weight.t()
    rotated = operators.transform(weight.contiguous(), operator, signs=signs)
    bias = operators.transform(linear.bias.detach(), operator, signs=signs) if side == "out" and linear.bias is not None else None
    linear.weight.copy_(rotated if side == "in" else rotated.t())  # first: an expanded one cannot be written
    if bias is not None:
        linear.bias.copy_(bias)
    return linear
