"""Linear layers with 4-bit weights for few tokens: y = x W, with W as GPTQ stores it.

    from fwht import linear
    weights = linear.pack(qweight, qzeros, scales, g_idx, device="cuda")    # once
    y = linear.forward(x, weights)

    layer = fwht.nn.GptqLinear(qweight, qzeros, scales, g_idx, device="cuda")    # the same as a module

W[i][c] = scales[g][c] * (q - z) for input i and output c, g the group of input i. A kernel reads the weights in an order of
its own, into which `pack` brings them; what they are packed for (`Packed.variant`) is what multiplies them later.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
from typing import Any, NamedTuple

from . import _c, _tensors, array, operators
from ._gptq_files import GptqTensors, checked, layers, load, save
from ._plan import Variant, _device_number, _dtype_code, listed

__all__ = ["GptqTensors", "Packed", "forward", "layers", "load", "pack", "save", "supports", "variants"]

WHOLE = -1  # as group: all rows
# The first that supports the layer is taken. `auto` is none of them: what it packs depends on the number of tokens.
_ON_DEVICE = ("w4a16", "w4a16_splitk_f32", "dequantize_then_dense")
_ON_HOST = ("cpu",)
_ACT_ORDER = 4


class Packed(NamedTuple):
    """Weights as one variant reads them; made by `pack`."""

    k: int  # inputs
    n: int  # outputs
    group: int  # inputs that share scales and zero points; -1: all
    zero_points: str  # "v1", "v2", "symmetric"
    dtype: str  # of x and y: "float16" or "bfloat16"
    rotation: str  # what blocks of x are multiplied by first: "-1" H_k, the order of H, an operator's text; "0" nothing
    act_order: bool  # the weights hold the order of the inputs, and the variant follows it
    variant: str
    weights: Any  # uint8, on the device of x
    order: Any  # where the variant does not: x[..., order] meets the weights; None: x as it is

    def __repr__(self) -> str:
        return f"<fwht.linear.Packed {self.k} x {self.n} {self.dtype}, groups of {self.group}, for {self.variant}>"


def variants() -> list[Variant]:
    """Every variant of linear layers, in ladder order; `supports` says why one refuses."""
    return listed(_c.library.fwht_linear_variant_count, _c.library.fwht_get_linear_variant)


def _threads(device: int) -> int:
    """Of the host, as PyTorch is told; 0: all, or none on a device."""
    torch = sys.modules.get("torch") if device < 0 else None
    return 0 if torch is None else torch.get_num_threads()


def _problem(
    m: int, k: int, n: int, group: int, zero_points: str, dtype: str, rotation: int | str, act_order: bool = False
) -> _c.LinearProblem:
    operator = None
    if isinstance(rotation, str) and rotation in ("0", "-1"):
        rotation = int(rotation)
    elif isinstance(rotation, str):
        operator, rotation = _c.text_for_c("rotation", rotation, _c.OPERATOR_TEXT), 0
    for name, value in (("m", m), ("k", k), ("n", n), ("group", group), ("rotation", rotation)):
        _c.integer(name, value)
    return _c.LinearProblem(
        ctypes.sizeof(_c.LinearProblem), m, n, k, group, _dtype_code(dtype)[0], _c.ZERO_POINTS.index(zero_points), rotation,
        _ACT_ORDER if act_order else 0, _threads(_c.HOST), operator,
    )  # fmt: skip


def supports(
    k: int, n: int, *, m: int = 1, group: int = 128, zero_points: str = "v1", dtype: Any = "float16", rotation: int | str = 0,
    device: Any = None, variant: str | None = None,
) -> str:  # fmt: skip
    """Why a layer of k inputs and n outputs cannot be done for m tokens, in one sentence; "" where it can. Nothing is launched.

    variant: None: any of those that `pack` chooses from. Other arguments as for `pack`.
    """
    number = _device_number(device)
    if zero_points not in _c.ZERO_POINTS:
        raise ValueError(f"fwht: zero_points={zero_points!r} must be one of {', '.join(_c.ZERO_POINTS)}")
    known = variant is None or variant in [each.name for each in variants()]
    try:
        problem = _problem(m, k, n, group, zero_points, _dtype_code(dtype)[1], rotation)
        return _choice(problem, variant, number)[1]
    except ValueError as error:
        if not known:
            raise
        return str(error).removeprefix("fwht: ")


def _choice(problem: _c.LinearProblem, variant: str | None, device: int) -> tuple[str, str]:
    """The variant, and why it does not do the problem."""
    names = (variant,) if variant is not None else _ON_DEVICE if device >= 0 else _ON_HOST
    reasons = []
    for name in names:
        status = _c.library.fwht_linear_supports(problem, _c.encoded(name), device)
        if status == 0:
            return name, ""
        if status != 2:
            _c.fail(status, device)
        reasons.append(_c.last_error() if variant is not None else f"{name}: {_c.last_error()}")
    return names[0], "; ".join(reasons)


def pack(
    qweight: Any, qzeros: Any, scales: Any, g_idx: Any = None, *, zero_points: str | None = None, dtype: Any = None,
    rotation: int | str = 0, signs: Any = None, dense: Any = None, device: Any = None, variant: str | None = None,
) -> Packed:  # fmt: skip
    """Weights of GPTQ's format in the order in which a kernel reads them. Takes seconds for large layers, on the host.

    Args: tensors as in a checkpoint, PyTorch (any device) or NumPy.
        qweight: (k / 8, n), int32 or uint32: eight inputs in a word, the first in the lowest bits.
        qzeros: (groups, n / 8), int32 or uint32: eight outputs in a word; None: symmetric weights, z = 8.
        scales: (groups, n), float16. k / groups inputs share one.
        g_idx: (k,), int32: the group of each input; None: in order. Where inputs are out of order (act-order), their rows are
            sorted, every group must have as many, and x comes in the order of g_idx. A variant that does not gather x itself
            gets a sorted copy, and then no rotation is offered.
        zero_points: "v1" (default: the file stores z - 1, as GPTQ's checkpoint_format "gptq" does), "v2" ("gptq_v2": z), or
            "symmetric" without qzeros.
        dtype: of x and y: float16 (default) or bfloat16.
        rotation: x is multiplied by Op / sqrt(order) first: 0 not at all, -1 by H_k, an order by blocks of H; or an operator's
            text (`fwht.operators`), "28x512", whose order divides k.
        signs: of the operator, which multiply first unless its text says "signs+...": `fwht.operators.Signs`, or their packed
            bytes as a uint8 array. The kernel finds them behind the weights, as it does `dense`.
        dense: the entries of the operator's factors "d", row-major, one factor behind the other, in `dtype`; a matrix of rows of
            length sqrt(m), as one of +-1 has, is orthogonal with the square root of the order.
        device: where x will be; None: where qweight is.
        variant: a name of `variants()`, not "auto"; None: the first of those that suit the device and support the layer.

    Raises:
        ValueError: tensors of other shapes, a group outside 0 .. groups - 1, scales that are not finite, lengths that are no
            multiples of 8.
        TypeError: tensors of other dtypes.
        NotImplementedError: no variant does this layer, with the reasons.

    Source: Frantar et al., GPTQ (arXiv 2210.17323); docs/linear.md.
    """
    layer = checked(qweight, qzeros, scales, g_idx, zero_points)
    k, n, groups, zero_points = 8 * layer.qweight.shape[0], layer.qweight.shape[1], layer.scales.shape[0], layer.zero_points
    group = WHOLE if groups == 1 else k // groups
    if signs is not None and isinstance(rotation, str) and "signs" not in rotation:
        rotation += "+signs"
    sizes = operators.operand_sizes(rotation) if isinstance(rotation, str) else (0, 0)
    kind = _dtype_code("float16" if dtype is None else dtype)[1].removeprefix("torch.")
    if isinstance(signs, operators.Signs) and isinstance(rotation, str):
        operators.require_fitting(signs, rotation)
    data = [_operand(*each) for each in (("signs", signs, sizes[0], "uint8"), ("dense", dense, sizes[1], kind))]

    torch: Any = sys.modules.get("torch")
    of_torch = torch is not None and isinstance(qweight, torch.Tensor)
    where = _device_number((qweight.device if of_torch else "cpu") if device is None else device)
    if where >= 0:
        _c.needs_cuda_build()
        if not of_torch:
            raise TypeError("fwht: weights on a CUDA device are PyTorch tensors; pass torch.from_numpy(qweight) and the others so")
    memory = _TorchMemory() if of_torch else _NumpyMemory()
    tensors = layer.for_c(*(address for address, _ in data))
    problem = _problem(1, k, n, group, zero_points, kind, rotation)
    order = None
    if layer.g_idx is not None:
        order, words = memory.integers(k), memory.integers(k // 8 * n)
        _c.check(_c.library.fwht_gptq_sort_rows(problem, tensors, memory.address(words), memory.address(order)))
        if order.tolist() == list(range(k)):
            order, tensors.g_idx = None, None
    act_order = order is not None
    if act_order:
        gathering = _problem(1, k, n, group, zero_points, kind, rotation, True)
        act_order = not _choice(gathering, variant, where)[1]
        problem = gathering if act_order or rotation else problem  # x is rotated before it is sorted
    if act_order:
        order = None
    elif order is not None:
        tensors.qweight, tensors.g_idx = memory.address(words), None
    chosen, why_not = _choice(problem, variant, where)
    if chosen == "auto":
        raise ValueError("fwht: variant='auto' packs for one number of tokens; name another of fwht.linear.variants()")
    if why_not:
        raise NotImplementedError(f"fwht: {why_not}")
    plan = _Plan(problem, chosen, where)
    packed = memory.bytes(plan.info["packed_bytes"])
    _c.check(_c.library.fwht_linear_plan_pack(plan.handle, tensors, memory.address(packed), plan.info["packed_bytes"]))
    if of_torch:
        on = torch.device("cpu") if where < 0 else torch.device("cuda", where)
        packed, order = packed.to(on), None if order is None else order.to(on)
    return Packed(k, n, group, zero_points, kind, str(rotation), act_order, chosen, packed, order)


def _operand(name: str, given: Any, count: int, dtype: str) -> tuple[int | None, Any]:
    """The address of `count` entries of a rotation in host memory, and what keeps them there; None for none."""
    if (given is None) != (count == 0):
        raise ValueError(f"fwht: the rotation needs {count} entries of {name}; {'none are' if given is None else 'they are'} given")
    if given is None:
        return None, None
    if isinstance(given, operators.Signs):
        text = ctypes.c_char_p(given.packed)
        return ctypes.cast(text, ctypes.c_void_p).value, text
    kept: Any
    if face := _tensors.face_of(given):
        face.require_memory(given)
        kept = given.detach().cpu().contiguous()
        found, size, address = str(kept.dtype).removeprefix("torch."), kept.numel(), kept.data_ptr()
    else:
        import numpy

        kept = numpy.ascontiguousarray(given)
        found, size, address = array.dtype_name(kept), kept.size, kept.ctypes.data
    if found != dtype or size != count:
        raise ValueError(f"fwht: {name} has {size} entries of {found}; the rotation needs {count} of {dtype}")
    return address, kept


class _TorchMemory:
    """Host memory at multiples of 16 bytes."""

    def bytes(self, count: int) -> Any:
        return self._empty(count, "uint8")

    def integers(self, count: int) -> Any:
        return self._empty(count, "int32")

    def _empty(self, count: int, dtype: str) -> Any:
        torch = sys.modules["torch"]
        return torch.empty(count, dtype=getattr(torch, dtype), device="cpu")  # whatever the default device is

    def address(self, given: Any) -> int:
        return given.data_ptr()


class _NumpyMemory:
    def bytes(self, count: int) -> Any:
        return array.aligned_bytes(count)

    def integers(self, count: int) -> Any:
        return array.aligned_bytes(4 * count).view("int32")

    def address(self, given: Any) -> int:
        return given.ctypes.data


# --- execution -------------------------------------------------------------------------------------------------------


class _Plan(_c.Owner):
    _destroy = staticmethod(_c.library.fwht_linear_plan_destroy)

    def __init__(self, problem: _c.LinearProblem, variant: str, device: int):
        handle = ctypes.c_void_p()
        _c.check(_c.library.fwht_linear_plan_create(problem, variant.encode(), device, ctypes.byref(handle)), device)
        self.handle = handle.value
        self.info = json.loads(_c.library.fwht_linear_plan_info_json(self.handle))


# Plans own no memory that launches use: any stream, thread and graph shares them, and a full cache is emptied. So the number of
# kept plans has a bound, whatever numbers of tokens come.
_plans, _calls = _c.Cache(256), _c.Cache(512)
_making = threading.Lock()
_execute = _c.library.fwht_linear_plan_execute


def clear_plans() -> int:
    """Destroys the plans of linear layers that are kept, and returns how many there were. Captured graphs work on."""
    with _making:
        count = len(_plans.values())
        _plans.clear()
        _calls.clear()
    return count


def _plan_for(asked: tuple, variant: str, device: int) -> _Plan:
    """asked: m, k, n, group, zero_points, dtype, rotation, act_order."""
    key = (asked, variant, device, _threads(device))
    if (plan := _plans.get(key)) is None:
        with _making:
            if (plan := _plans.get(key)) is None:
                plan = _plans.put(key, _Plan(_problem(*asked), variant, device))
    return plan


def _most_tokens(asked: tuple, variant: str, device: int) -> int:
    """All m tokens where the variant does them in one launch, else the largest power of two that it does."""
    m = asked[0]
    while m > 1 and _c.library.fwht_linear_supports(_problem(m, *asked[1:]), variant.encode(), device):
        m = 1 << (m - 1).bit_length() - 1  # the power of two below
    return m


class _Call:
    """m contiguous tokens in slices of what the variant does in one launch; the slices follow each other in one workspace."""

    __slots__ = ("device", "packed_bytes", "slices", "text", "workspace_bytes")

    def __init__(self, m: int, asked: tuple, variant: str, device: int):
        k, n = asked[:2]
        most = _most_tokens((m, *asked), variant, device)
        plans = [(first, _plan_for((min(most, m - first), *asked), variant, device)) for first in range(0, m, max(most, 1))]
        self.slices = [(2 * first * k, 2 * first * n, plan.handle, plan) for first, plan in plans]
        self.workspace_bytes = max((plan.info["workspace_bytes"] for _, plan in plans), default=0)
        self.packed_bytes = plans[0][1].info["packed_bytes"] if plans else None
        self.device, self.text = device, f"{variant} reads {self.packed_bytes} of k={k}, n={n}"

    def run(self, x: int, y: int, weights: int, weights_bytes: int, workspace: int | None, stream: int | None) -> None:
        """All arguments are addresses but the number of bytes."""
        if weights_bytes != self.packed_bytes and self.slices:
            raise ValueError(f"fwht: the packed weights have {weights_bytes} bytes; {self.text}")
        for x_at, y_at, plan, _ in self.slices:
            if status := _execute(plan, x + x_at, weights, y + y_at, workspace, self.workspace_bytes, stream):
                _c.fail(status, self.device)


def call_for(
    m: int, k: int, n: int, group: int, zero_points: str, dtype: str, rotation: str, act_order: bool, variant: str, device: int
) -> _Call:
    key = (m, k, n, group, zero_points, dtype, rotation, act_order, variant, device, _threads(device))
    if (call := _calls.get(key)) is None:
        call = _calls.put(key, _Call(m, key[1:8], variant, device))
    return call


def known(key: Any) -> Any:
    """What `remember` was given for a call of PyTorch that went well before; its keys are others than those of `call_for`."""
    return _calls.get(key)


def remember(key: Any, entry: Any) -> None:
    _calls.put(key, entry)


def forward(x: Any, weights: Packed) -> Any:
    """y[..., :] = x[..., :] W.

    Args:
        x: (..., k), of the dtype and on the device that the weights were packed for; a PyTorch tensor, or a NumPy array on the
            host. Rows that are not contiguous, and inputs out of order (act-order), are copied first.
        weights: of `pack`.

    Returns: a new contiguous array (..., n) like x, by the sums and roundings of the variant (docs/linear.md). More tokens than a
    variant takes at once go in slices. Not differentiable. A compiled graph keeps it as the node `fwht::gptq_linear`.

    Raises:
        ValueError: another length or device than that of the weights. TypeError: another dtype or type.
        RuntimeError: x requires grad while gradients are enabled; CUDA failed.
    """
    if not isinstance(weights, Packed):
        raise TypeError(f"fwht: weights are a {type(weights).__name__}; fwht.linear.pack makes them")
    if face := _tensors.face_of(x):
        return face.linear_by(x, weights, weights.weights, weights.order)
    import numpy

    if not isinstance(x, numpy.ndarray):
        raise TypeError(f"fwht: x is a {type(x).__module__}.{type(x).__qualname__}; it must be a PyTorch tensor or a NumPy array")
    array.require_unmasked(x)
    if not isinstance(weights.weights, numpy.ndarray):
        raise TypeError("fwht: x is a NumPy array, and the weights were packed from PyTorch tensors")
    packed = weights.weights if weights.weights.flags.c_contiguous else numpy.ascontiguousarray(weights.weights)
    check(x.shape, array.dtype_name(x), weights)
    if weights.order is not None:
        x = x[..., weights.order]
    source = array.aligned_bytes(x.nbytes).view(x.dtype).reshape(x.shape)  # the library reads from multiples of 16 bytes
    source[...] = x
    y = array.aligned_bytes(x.nbytes // weights.k * weights.n).view(x.dtype).reshape((*x.shape[:-1], weights.n))
    call = call_for(x.size // weights.k, *weights[:8], _c.HOST)
    workspace = array.aligned_bytes(call.workspace_bytes)
    call.run(source.ctypes.data, y.ctypes.data, packed.ctypes.data, packed.nbytes, workspace.ctypes.data, None)
    return y


def check(shape: tuple, dtype: str, weights: Packed) -> None:
    if len(shape) == 0 or shape[-1] != weights.k:
        raise ValueError(f"fwht: x has shape {tuple(shape)}; its last dimension must be k={weights.k}")
    if dtype != weights.dtype:
        raise TypeError(f"fwht: x has dtype {dtype}; the weights were packed for {weights.dtype}")
