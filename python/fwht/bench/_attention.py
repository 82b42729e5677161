"""FP8 attention on Hopper: its launches and its error with and without rotation, beside 16 bits.

    python -m fwht.bench attention --tokens 2048,8192 --output results

One layer's attention for one sequence, causal: RoPE, quantization of Q, K and V with scales that were calibrated before, attention.
The kernel is cuDNN's `sdpa_fp8`, through the package `cudnn` (nvidia-cudnn-frontend). Where it is missing, or refuses, the run says so and
times the launches alone. `attention.json` in the folder has every row with its provenance.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

import fwht

from .. import quantize
from .._torch.graph_times import times_in_turn
from ._output import Output, lines_of

HEAD = 128  # elements of a head
E4M3 = "e4m3:tensor,vllm_static"  # one scale, given: y * (1 / s)
CASES = {
    "bf16": "RoPE; PyTorch's scaled_dot_product_attention, the quicker of FlashAttention and cuDNN",
    "fp8": "RoPE and e4m3 codes in one launch (Triton); FP8 attention",
    "fp8_rotated": "RoPE, rotation and e4m3 codes in one launch (this library); FP8 attention",
    "fp8_rotated_apart": "the same by three launches each for Q and K; FP8 attention",
}
DATA = {
    "normal": "N(0, 1)",
    "channels": "N(0, 1), and in two slow pairs of each head of K, in the same pairs of its queries, constants of +-16 and +-8",
    "entries": "N(0, 1), and N(0, 100) on top of one entry in a thousand",
}
REPEATS, ROUNDS = 20, 9
SOFTMAX_SCALE = 256.0  # of FP8 probabilities: they are at most 1, so a power of two below 448


class Shape(NamedTuple):
    tokens: int
    heads: int
    kv_heads: int


class Inputs(NamedTuple):
    """bfloat16; queries, keys and values as three projections write them: (tokens, heads, 128), contiguous, before RoPE."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    cos_sin: torch.Tensor  # float32 (tokens, 128): 64 cosines, then 64 sines
    positions: torch.Tensor  # int64 (tokens,)


class Scales(NamedTuple):
    """Of whole tensors: what one code stands for."""

    q: float
    k: float
    v: float
    out: float


# --- data and truth --------------------------------------------------------------------------------------------------


@functools.lru_cache(8)
def inputs_of(shape: Shape, data: str, seed: int, device: str = "cuda", base: float = 500000.0) -> Inputs:
    """Reproducible on every device. Where outliers are does not depend on the seed: weights put them there."""
    if data not in DATA:
        raise ValueError(f"--data {data}: unknown; known: {', '.join(DATA)}")
    noise, fixed = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(36)

    def some(heads: int) -> torch.Tensor:
        return torch.randn(shape.tokens, heads, HEAD, generator=noise)

    q, k, v = some(shape.heads), some(shape.kv_heads), some(shape.kv_heads)
    if data == "channels":
        group = shape.heads // shape.kv_heads
        for head in range(shape.kv_heads):
            for pair in (48 + torch.randperm(16, generator=fixed)[:2]).tolist():
                for channel in (pair, pair + HEAD // 2):
                    signs = (2 * torch.randint(0, 2, (2,), generator=fixed) - 1).tolist()
                    k[:, head, channel] += 16 * signs[0]
                    q[:, head * group : (head + 1) * group, channel] += 8 * signs[1]
    elif data == "entries":
        for x in (q, k, v):
            x += 10 * torch.randn(x.shape, generator=noise) * (torch.rand(x.shape, generator=noise) < 0.001)
    angles = torch.arange(shape.tokens)[:, None] * base ** (-torch.arange(0, HEAD, 2) / HEAD)[None, :].double()
    table = torch.cat([angles.cos(), angles.sin()], 1).float()
    q, k, v = (x.to(device=device, dtype=torch.bfloat16) for x in (q, k, v))
    return Inputs(q, k, v, table.to(device), torch.arange(shape.tokens, device=device))


def embedded(x: torch.Tensor, cos_sin: torch.Tensor) -> torch.Tensor:
    """x (tokens, heads, 128) after RoPE, in x's arithmetic."""
    c, s = cos_sin[:, None, : HEAD // 2].to(x.dtype), cos_sin[:, None, HEAD // 2 :].to(x.dtype)
    a, b = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    return torch.cat([a * c - b * s, b * c + a * s], -1)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: int = 1024) -> torch.Tensor:
    """Causal attention of (tokens, heads, 128) with grouped heads, in float64."""
    tokens, heads, _ = q.shape
    group = heads // k.shape[1]
    out = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    at = torch.arange(tokens, device=q.device)
    for head in range(heads):
        keys, values = k[:, head // group].double(), v[:, head // group].double()
        for first in range(0, tokens, rows):
            some = q[first : first + rows, head].double()
            last = first + some.shape[0]
            logits = some @ keys[:last].T / math.sqrt(HEAD)
            logits.masked_fill_(at[None, :last] > at[first:last, None], -math.inf)
            out[first:last, head] = torch.softmax(logits, -1) @ values[:last]
    return out


def truth_of(x: Inputs) -> torch.Tensor:
    return attention(embedded(x.q.double(), x.cos_sin), embedded(x.k.double(), x.cos_sin), x.v)


def rel_l2(result: torch.Tensor, truth: torch.Tensor) -> float:
    return ((result.double() - truth).norm() / truth.norm()).item()


def calibrated(x: Inputs, rotate: bool) -> Scales:
    """What a static scheme stores after a calibration run: largest absolute value / 448. `x` is other data than what is measured."""
    q, k = embedded(x.q.float(), x.cos_sin), embedded(x.k.float(), x.cos_sin)
    out = attention(q, k, x.v)
    if rotate:
        q, k = fwht.hadamard_transform(q), fwht.hadamard_transform(k)
    return Scales(*(y.abs().amax().item() / 448 for y in (q, k, x.v, out)))


# --- launches --------------------------------------------------------------------------------------------------------


def _rope(x: torch.Tensor, given: Inputs, scale: float | None = None) -> torch.Tensor:
    heads = x.shape[1]
    if x.is_cuda:
        from ._rope import rope

        return rope(x.view(-1, HEAD), given.cos_sin, given.positions, heads, scale).view(x.shape)
    y = embedded(x.float(), given.cos_sin).to(x.dtype)
    return y if scale is None else (y.float() * (1.0 / scale)).clamp(-448, 448).to(torch.float8_e4m3fn)


def _codes(x: torch.Tensor, scale: float) -> torch.Tensor:
    return quantize.quantize(x, E4M3, tensor_scale=scale).codes


def _fused(x: torch.Tensor, given: Inputs, scale: float) -> torch.Tensor:
    prologue = quantize.Rope(given.cos_sin, given.positions, heads=x.shape[1])
    return fwht.hadamard_quantize(x.view(-1, HEAD), E4M3, tensor_scale=scale, prologue=prologue).codes.view(x.shape)


def launches(case: str, given: Inputs, scales: Scales) -> dict[str, Callable[[], torch.Tensor]]:
    """What makes the attention kernel's q, k and v of the inputs, by name; "v" is missing where it is taken as it is."""
    q, k, v = given.q, given.k, given.v
    if case == "bf16":
        return {"q": lambda: _rope(q, given), "k": lambda: _rope(k, given)}
    made: dict[str, Callable[[], torch.Tensor]]
    if case == "fp8":
        made = {"q": lambda: _rope(q, given, scales.q), "k": lambda: _rope(k, given, scales.k)}
    elif case == "fp8_rotated":
        made = {"q": lambda: _fused(q, given, scales.q), "k": lambda: _fused(k, given, scales.k)}
    else:
        made = {
            "q": lambda: _codes(fwht.hadamard_transform(_rope(q, given)), scales.q),
            "k": lambda: _codes(fwht.hadamard_transform(_rope(k, given)), scales.k),
        }
    return {**made, "v": lambda: _codes(v, scales.v)}


def moved(case: str, shape: Shape) -> int:
    """Bytes that one launch for Q must read and write; tables of RoPE apart. Launches that keep rows in between move more."""
    return shape.tokens * shape.heads * HEAD * (4 if case == "bf16" else 3)


# --- attention kernels -----------------------------------------------------------------------------------------------


class CudnnFp8:
    """cuDNN's FP8 attention forward. On Hopper it writes e4m3, with a scale that is given."""

    def __init__(self, shape: Shape, device: str = "cuda"):
        try:
            cudnn = importlib.import_module("cudnn")
        except ImportError as error:
            raise RuntimeError(f"the package cudnn is missing ({error}; pip install nvidia-cudnn-frontend)") from None
        if (version := cudnn.backend_version()) < 91400:
            raise RuntimeError(f"cuDNN {version} is too old: FP8 attention is taken from 9.14 (91400) on")
        self._cudnn, self._device, self._scales = cudnn, device, Scales(1.0, 1.0, 1.0, 1.0)
        t, h, kv = shape
        self._handle = cudnn.create_handle()
        kind, single = cudnn.data_type.FP8_E4M3, cudnn.data_type.FLOAT
        graph = cudnn.pygraph(io_data_type=kind, intermediate_data_type=single, compute_data_type=single, handle=self._handle)

        def rows(uid: int, heads: int) -> Any:
            return graph.tensor(uid=uid, dim=(1, heads, t, HEAD), stride=(t * heads * HEAD, HEAD, heads * HEAD, 1), data_type=kind)

        def number(uid: int) -> Any:
            return graph.tensor(uid=uid, dim=(1, 1, 1, 1), stride=(1, 1, 1, 1), data_type=single)

        try:
            out, _, largest_s, largest_o = graph.sdpa_fp8(
                q=rows(1, h), k=rows(2, kv), v=rows(3, kv), descale_q=number(4), descale_k=number(5), descale_v=number(6),
                descale_s=number(7), scale_s=number(8), scale_o=number(9), generate_stats=False, attn_scale=HEAD**-0.5,
                use_causal_mask=True,
            )  # fmt: skip
            out.set_uid(10).set_output(True).set_dim((1, h, t, HEAD)).set_stride((t * h * HEAD, HEAD, h * HEAD, 1)).set_data_type(kind)
            for uid, largest in ((11, largest_s), (12, largest_o)):
                largest.set_uid(uid).set_output(True).set_dim((1, 1, 1, 1)).set_stride((1, 1, 1, 1)).set_data_type(single)
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
            graph.check_support()
            graph.build_plans()
        except Exception as error:  # a class of the package
            raise RuntimeError(f"cuDNN {version} refuses this FP8 attention: {str(error).strip().splitlines()[0]}") from None
        self._graph = graph
        self.settings = {"cudnn": str(version), "cudnn_frontend": str(cudnn.__version__)}

    def set_scales(self, scales: Scales) -> None:
        """Numbers that the kernel reads on the device."""
        p = SOFTMAX_SCALE
        numbers = (scales.q, scales.k, scales.v, 1 / p, p, 1 / scales.out, 0.0, 0.0)
        self._numbers = torch.tensor(numbers, device=self._device).repeat_interleave(4)  # 16 bytes apart: cuDNN's default alignment
        self._scales = scales
        self._workspace = torch.empty(max(self._graph.get_workspace_size(), 1), dtype=torch.uint8, device=self._device)

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """e4m3 codes, (tokens, heads, 128)."""
        out = torch.empty_like(q)
        at = self._numbers.data_ptr()
        pack = {1: q.data_ptr(), 2: k.data_ptr(), 3: v.data_ptr(), 10: out.data_ptr()}
        pack |= {uid: at + 16 * place for place, uid in enumerate((4, 5, 6, 7, 8, 9, 11, 12))}
        self._cudnn.set_stream(handle=self._handle, stream=torch.cuda.current_stream().cuda_stream)
        self._graph.execute(pack, self._workspace.data_ptr(), handle=self._handle)
        return out

    def numbers(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """What the codes that come out stand for, in float64."""
        return self(q, k, v).double() * self._scales.out


def bf16_attention(backend: Any) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]:
    from torch.nn.attention import sdpa_kernel

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(*(x.transpose(0, 1)[None] for x in (q, k, v)), is_causal=True, enable_gqa=True)[
                0
            ].transpose(0, 1)

    return call


# --- times -----------------------------------------------------------------------------------------------------------


def without_folders(arguments: Sequence[str]) -> list[str]:
    """As they are recorded: of an absolute path its last part, as results say nothing of the machine's folders."""
    return [Path(argument).name if Path(argument).is_absolute() else argument for argument in arguments]


times_of = functools.partial(times_in_turn, repeats=REPEATS, rounds=ROUNDS)


def _copy(bytes_moved: int) -> Callable[[], Any]:
    source = torch.ones(bytes_moved // 2, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _plain_attention(x: Inputs) -> tuple[str, Callable[..., torch.Tensor]]:
    """The quickest backend that takes the problem, and its name."""
    from torch.nn.attention import SDPBackend

    q, k = _rope(x.q, x), _rope(x.k, x)
    offered, calls = {}, dict[str, Callable[[], Any]]()
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        call = bf16_attention(backend)
        try:
            call(q, k, x.v)
        except RuntimeError:
            continue
        offered[backend.name] = call
        calls[backend.name] = functools.partial(call, q, k, x.v)
    if not calls:
        raise RuntimeError("neither FlashAttention nor cuDNN of this PyTorch takes the bf16 attention")
    times = times_of(calls)
    name = min(times, key=times.__getitem__)
    return name, offered[name]


# --- the run ---------------------------------------------------------------------------------------------------------


def errors_of(case: str, x: Inputs, scales: Scales, truth: torch.Tensor, kernel: Callable[..., torch.Tensor] | None) -> dict[str, float | None]:
    """Against float64: of the kernel's output, and of exact attention on the numbers that the codes stand for."""
    q, k, v = _inputs(launches(case, x, scales), x)
    numbers = [q, k, v] if case == "bf16" else [codes.double() * scale for codes, scale in zip((q, k, v), scales)]
    result = None if kernel is None else rel_l2(kernel(q, k, v), truth)
    return {"rel_l2": result, "rel_l2_of_inputs": rel_l2(attention(*numbers), truth)}


def _inputs(parts: dict[str, Callable[[], torch.Tensor]], x: Inputs) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return parts["q"](), parts["k"](), parts["v"]() if "v" in parts else x.v


def _layer(kernel: Callable[..., torch.Tensor], parts: dict[str, Callable[[], torch.Tensor]], x: Inputs) -> torch.Tensor:
    return kernel(*_inputs(parts, x))


def measure(shape: Shape, data: Sequence[str], seed: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """One row for each case, and each kind of data."""
    x = inputs_of(shape, data[0], seed)
    backend, plain = _plain_attention(x)
    scales = {case: calibrated(inputs_of(shape, data[0], seed + 1), "rotated" in case) for case in ("fp8", "fp8_rotated")}
    fp8, why = None, ""
    try:
        made = CudnnFp8(shape)
        made.set_scales(scales["fp8_rotated"])
        made(*_inputs(launches("fp8_rotated", x, scales["fp8_rotated"]), x))
        fp8 = made
    except RuntimeError as error:
        why = str(error)
        say(f"no FP8 attention: {why}")
    calls: dict[str, Callable[[], Any]] = {}
    for case in CASES:
        parts = launches(case, x, scales["fp8_rotated" if "rotated" in case else "fp8"])
        kernel = plain if case == "bf16" else fp8
        calls |= {f"{case}/{name}": call for name, call in parts.items()}
        calls[f"{case}/inputs"] = functools.partial(_inputs, parts, x)
        if kernel is not None:
            calls[f"{case}/attention"] = functools.partial(kernel, *_inputs(parts, x))
            calls[f"{case}/layer"] = functools.partial(_layer, kernel, parts, x)
        calls[f"copy/{case}"] = _copy(moved(case, shape))
    times = times_of(calls)
    rows = []
    for kind in data:
        given, other = inputs_of(shape, kind, seed), inputs_of(shape, kind, seed + 1)
        truth = truth_of(given)
        for case in CASES:
            own = calibrated(other, "rotated" in case)
            if fp8:
                fp8.set_scales(own)
            judged = plain if case == "bf16" else fp8.numbers if fp8 else None
            row: dict[str, Any] = {"case": case, "data": kind, **shape._asdict(), "seed": seed}
            row["kernel"] = f"torch {backend}" if case == "bf16" else "cudnn sdpa_fp8" if fp8 else None
            row["why_not"] = why if case != "bf16" else ""
            for part in ("q", "k", "v", "inputs", "attention", "layer"):
                row[f"{part}_us"] = times.get(f"{case}/{part}")
            row["copy_of_q_us"] = times[f"copy/{case}"]
            row["q_bytes"] = moved(case, shape)
            row["q_terabytes_per_second"] = moved(case, shape) / times[f"{case}/q"] / 1e6
            row |= errors_of(case, given, own, truth, judged)
            rows.append(row)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Microseconds and relative errors, a line for each row."""
    columns = ("case", "data", "tokens", "q_us", "k_us", "v_us", "inputs_us", "attention_us", "layer_us", "copy_of_q_us",
               "q_terabytes_per_second", "rel_l2", "rel_l2_of_inputs")  # fmt: skip
    return lines_of(rows, columns)


def numbers_of(text: str, option: str, multiple: int = 1) -> list[int]:
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} {text}: must be numbers with commas between them") from None
    for number in numbers:
        if number < 1 or number % multiple:
            raise ValueError(f"{option} {number}: must be a positive multiple of {multiple}")
    return numbers


def _number_of(text: str, option: str) -> int:
    number, *others = numbers_of(text, option)
    if others:
        raise ValueError(f"{option} {text}: must be one number")
    return number


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fwht.bench attention", allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Times FP8 attention with and without rotation beside 16 bits, and says how far off it is.",
        epilog="\n".join(["cases:", *(f"  {k:<18} {v}" for k, v in CASES.items()), "data:", *(f"  {k:<18} {v}" for k, v in DATA.items())]),
    )  # fmt: skip
    parser.add_argument("--tokens", default="2048,8192", metavar="N,...", help="lengths of the sequence, multiples of 128 (2048,8192)")
    parser.add_argument("--heads", default="32", metavar="N", help="of the queries (32)")
    parser.add_argument("--kv-heads", default="8", metavar="N", help="of keys and values (8)")
    parser.add_argument("--data", default=",".join(DATA), metavar="NAME,...", help="what errors are measured on; times are of the first")
    parser.add_argument("--seed", type=int, default=0, help="of the data; calibration takes the next (0)")
    parser.add_argument("--output", metavar="DIR", help="a new folder for attention.json")
    options = parser.parse_args(list(arguments))
    try:
        lengths = numbers_of(options.tokens, "--tokens", 128)
        heads, kv_heads = _number_of(options.heads, "--heads"), _number_of(options.kv_heads, "--kv-heads")
        if heads % kv_heads:
            raise ValueError(f"--heads {heads}: must be a multiple of --kv-heads {kv_heads}")
        data = options.data.split(",")
        for name in data:
            if name not in DATA:
                raise ValueError(f"--data {name}: unknown; known: {', '.join(DATA)}")
        output = Output(options.output, "attention.json")
        if not torch.cuda.is_available():
            raise ValueError("PyTorch sees no CUDA device")
        if (capability := torch.cuda.get_device_capability()) < (9, 0):
            raise ValueError(f"the device has compute capability {capability[0]}.{capability[1]}; FP8 attention needs 9.0 or later")
    except ValueError as error:
        print(f"fwht.bench attention: {error}", file=sys.stderr)
        return 2
    about = {
        "utc_start": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "arguments": without_folders(arguments), "library": fwht.build_info(),
        "torch": torch.__version__, "cuda": torch.version.cuda, "torch_cudnn": torch.backends.cudnn.version(),
        "device": torch.cuda.get_device_name(), "capability": list(torch.cuda.get_device_capability()), "encoding": E4M3,
        "cases": CASES, "data": DATA, "repeats": REPEATS, "rounds": ROUNDS, "softmax_scale": SOFTMAX_SCALE,
    }  # fmt: skip
    rows: list[dict[str, Any]] = []
    for tokens in lengths:
        rows += measure(Shape(tokens, heads, kv_heads), data, options.seed, lambda line: print(line, file=sys.stderr))
        output.write({"about": about, "rows": rows})  # after every length: a run that is cut off leaves what it has
    print(table(rows), end="")
    return 0
