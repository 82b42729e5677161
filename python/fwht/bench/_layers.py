"""Layers of this library as PyTorch calls them, beside 16 bits: time on the device, time of the host, error.

    python -m fwht.bench layers --tokens 1,16,64,256,1024,4096 --output results

bfloat16 tokens; weights of 16, 8 and 4 bits, rotated or not, made from one matrix. `layers.json` in the folder has every row with its provenance.
On a machine without a CUDA device it runs on the host and times calls there, device times are left out.
"""

from __future__ import annotations

import argparse
import copy
import functools
import itertools
import json
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import fwht

from .. import linear, nn, operators
from .._torch.graph_times import times_in_turn
from ._attention import numbers_of, rel_l2, without_folders
from ._output import Output, lines_of

CASES = {
    "bf16": "torch.nn.Linear",
    "fp8": "Fp8Linear(rotate=False): e4m3 codes, a scale for each token and output",
    "fp8_rotated": "Fp8Linear: the same behind the rotation, in the launch that quantizes",
    "w4a16": "GptqLinear: 4 bits, groups of 128, rounded to nearest",
    "w4a16_rotated": "GptqLinear(rotation=...): the same behind the rotation, in a launch of its own",
}
DATA = {
    "normal": "N(0, 1)",
    "channels": "N(0, 1), and 50 times as large in one input of 512",
    "massive": "N(0, 1), and a constant of +-1000 in one input",
}
CALLS = {
    "torch.nn.functional.linear": "with weights of 16 bits",
    "fwht.linear.forward": "with the weights of GptqLinear",
    "GptqLinear": "the module",
    "GptqLinear, compiled": "the module by torch.compile(fullgraph=True, dynamic=True)",
    "Fp8Linear": "the module",
}
GROUP = 128
ERROR_TOKENS = 256
COLD = 320 << 20  # so many bytes of other weights between two calls of a layer: more than an L2 holds
REPEATS, ROUNDS = 40, 9
HOST_CALLS, HOST_ROUNDS = 200, 9  # fewer launches than a stream takes before it makes the host wait


def rounded(weight: torch.Tensor) -> linear.GptqTensors:
    """(n, k) to GPTQ's tensors by rounding to nearest: 4 bits, a scale and a zero point for GROUP inputs of an output."""
    n, k = weight.shape
    groups = weight.float().view(n, k // GROUP, GROUP)
    low, high = groups.amin(2).clamp(max=0), groups.amax(2).clamp(min=0)
    scales = ((high - low) / 15).clamp(min=1e-6).half()
    zeros = (-low / scales.float()).round().clamp(1, 15)
    q = ((groups / scales.float()[..., None]).round() + zeros[..., None]).clamp(0, 15).view(n, k)

    def words(nibbles: torch.Tensor) -> torch.Tensor:
        parts = nibbles.to(torch.int64).unflatten(-1, (-1, 8)) << (4 * torch.arange(8, device=nibbles.device))
        return ((parts.sum(-1) ^ (1 << 31)) - (1 << 31)).to(torch.int32)  # as two's complement has them

    return linear.GptqTensors(words(q).t().contiguous(), words(zeros.t() - 1), scales.t().contiguous())


def modules_of(weight: torch.Tensor) -> dict[str, torch.nn.Module]:
    """The cases, from one float32 matrix (n, k) on the device where they run."""
    n, k = weight.shape
    operator = operators.operator_for(k)
    plain = torch.nn.Linear(k, n, bias=False, device=weight.device, dtype=torch.bfloat16).requires_grad_(False)
    plain.weight.copy_(weight)
    turned = operators.transform(weight, operator)  # rows: y = (W Q^T) (Q x)
    four = {"dtype": torch.bfloat16, "device": weight.device}
    return {
        "bf16": plain,
        "fp8": nn.Fp8Linear(weight, rotate=False),
        "fp8_rotated": nn.Fp8Linear(weight, operator=operator),
        "w4a16": nn.GptqLinear(*rounded(weight)[:3], **four),
        "w4a16_rotated": nn.GptqLinear(*rounded(turned)[:3], rotation=operator, **four),
    }


def weight_of(n: int, k: int, seed: int, device: str) -> torch.Tensor:
    return torch.randn(n, k, generator=torch.Generator().manual_seed(seed)).mul_(k**-0.5).to(device)


def tokens_of(m: int, k: int, data: str, seed: int, device: str) -> torch.Tensor:
    """bfloat16, reproducible on every device. Where outliers are does not depend on the seed: weights of other layers put them there."""
    x = torch.randn(m, k, generator=torch.Generator().manual_seed(seed))
    fixed = torch.Generator().manual_seed(33)
    if data == "channels":
        x[:, torch.randperm(k, generator=fixed)[: -(-k // 512)]] *= 50
    elif data == "massive":
        x[:, torch.randperm(k, generator=fixed)[:1]] = 1000.0 * (1 - 2 * (seed % 2))
    return x.to(device, torch.bfloat16)


# --- times -----------------------------------------------------------------------------------------------------------


def _bytes_of(module: torch.nn.Module) -> int:
    return sum(t.nbytes for t in itertools.chain(module.parameters(), module.buffers()))


def cold(module: torch.nn.Module, x: torch.Tensor) -> Callable[[], torch.Tensor]:
    """A call whose weights are others than those of the calls before it."""
    count = min(REPEATS, -(-COLD // _bytes_of(module)))
    copies = itertools.cycle([module, *(copy.deepcopy(module) for _ in range(count - 1))])
    return lambda: next(copies)(x)


def device_times(modules: dict[str, torch.nn.Module], x: torch.Tensor) -> dict[str, float]:
    """Microseconds in CUDA graphs, cases in turn, other weights in every launch."""
    return times_in_turn({case: cold(module, x) for case, module in modules.items()}, repeats=REPEATS, rounds=ROUNDS)


def host_us(call: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """Microseconds that the caller's thread spends in a call: of HOST_CALLS calls without waiting between them, the median of HOST_ROUNDS."""
    rounds = []
    for _ in range(HOST_ROUNDS + 1):  # the first warms up
        wait()
        begin = time.perf_counter()
        for _ in range(HOST_CALLS):
            call()
        rounds.append(1e6 * (time.perf_counter() - begin) / HOST_CALLS)
    wait()
    return statistics.median(rounds[1:])


def host_rows(modules: dict[str, torch.nn.Module], tokens: Sequence[int], seed: int, backend: str) -> Iterator[dict[str, Any]]:
    """One row for each of CALLS and each number of tokens; calls without gradients, as a server makes them."""
    plain: Any = modules["bf16"]
    four: Any = modules["w4a16"]
    eight = modules["fp8_rotated"]
    compiled = torch.compile(four, fullgraph=True, dynamic=True, backend=backend)
    weight, packed = plain.weight, four.packed
    n, k = weight.shape
    wait = torch.cuda.synchronize if weight.is_cuda else lambda: None
    inputs = {m: tokens_of(m, k, "normal", seed, str(weight.device)) for m in tokens}
    calls: dict[str, Callable[[torch.Tensor], Any]] = {
        "torch.nn.functional.linear": lambda x: torch.nn.functional.linear(x, weight),
        "fwht.linear.forward": lambda x: linear.forward(x, packed),
        "GptqLinear": four,
        "Fp8Linear": eight,
        "GptqLinear, compiled": compiled,  # last: what a compiler runs into takes no other row along
    }
    for name, call in calls.items():
        for m, x in inputs.items():
            yield {"call": name, "n": n, "k": k, "tokens": m, "host_us": host_us(functools.partial(call, x), wait)}


def time_rows(modules: dict[str, torch.nn.Module], weight: torch.Tensor, tokens: Sequence[int], seed: int) -> Iterator[dict[str, Any]]:
    """One row for each case and number of tokens, on a CUDA device."""
    n, k = weight.shape
    for m in tokens if weight.is_cuda else ():
        taken = device_times(modules, tokens_of(m, k, "normal", seed, str(weight.device)))
        for case, us in taken.items():
            yield {"case": case, "n": n, "k": k, "tokens": m, "time_us": us}


def error_rows(modules: dict[str, torch.nn.Module], weight: torch.Tensor, seed: int) -> Iterator[dict[str, Any]]:
    """One row for each case and kind of data: relative 2-norm against float64."""
    n, k = weight.shape
    for data in DATA:
        x = tokens_of(ERROR_TOKENS, k, data, seed, str(weight.device))
        truth = x.double() @ weight.double().t()
        for case, module in modules.items():
            yield {"case": case, "n": n, "k": k, "data": data, "rel_l2": rel_l2(module(x), truth)}


def _shapes(text: str) -> list[tuple[int, int]]:
    shapes = []
    for word in text.split(","):
        n, times, k = word.partition("x")
        if not times or not n.isdigit() or not k.isdigit():
            raise ValueError(f"--layers {word}: must be outputs x inputs, as in 4096x14336")
        if int(n) % 16 or int(k) % GROUP or 0 in (int(n), int(k)):
            raise ValueError(f"--layers {word}: outputs must be a multiple of 16, inputs one of {GROUP}")
        shapes.append((int(n), int(k)))
    return shapes


def main(arguments: Sequence[str], backend: str = "inductor") -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fwht.bench layers", allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Layers with weights of 16, 8 and 4 bits: microseconds on the device and of the host, and errors.",
        epilog="\n".join(
            line
            for title, words in (("cases", CASES), ("data", DATA), ("calls", CALLS))
            for line in (f"{title}:", *(f"  {name:<28} {what}" for name, what in words.items()))
        ),
    )  # fmt: skip
    parser.add_argument("--layers", default="4096x4096,4096x14336", metavar="NxK,...", help="outputs x inputs (4096x4096,4096x14336)")
    parser.add_argument("--tokens", default="1,16,64,256,1024,4096", metavar="M,...", help="of the times on the device (1,16,64,256,1024,4096)")
    parser.add_argument("--host-tokens", default="1,16,128,512", metavar="M,...", help="of the times of the host (1,16,128,512)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and tokens (0)")
    parser.add_argument("--output", metavar="DIR", help="a new folder for layers.json")
    options = parser.parse_args(list(arguments))
    try:
        shapes, tokens = _shapes(options.layers), numbers_of(options.tokens, "--tokens")
        host_tokens = numbers_of(options.host_tokens, "--host-tokens")
        output = Output(options.output, "layers.json")
    except ValueError as error:
        print(f"fwht.bench layers: {error}", file=sys.stderr)
        return 2
    on_gpu = torch.cuda.is_available() and fwht.build_info()["devices"] > 0
    about = {
        "utc_start": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "arguments": without_folders(arguments), "library": fwht.build_info(),
        "python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name() if on_gpu else platform.processor() or platform.machine(), "on_gpu": on_gpu,
        "cases": CASES, "data": DATA, "calls": CALLS, "group": GROUP, "error_tokens": ERROR_TOKENS, "repeats": REPEATS, "rounds": ROUNDS,
        "host_calls": HOST_CALLS, "host_rounds": HOST_ROUNDS, "missing": [],
    }  # fmt: skip
    parts: dict[str, list[dict[str, Any]]] = {"times": [], "errors": [], "host": []}
    missing: list[str] = about["missing"]

    def failed(what: str, error: Exception) -> None:
        missing.append(f"{what}: {type(error).__name__}: {error}")
        print(missing[-1], file=sys.stderr, flush=True)

    def save() -> None:  # after every part: a run that is cut off leaves what it has
        output.write({"about": about, **parts})

    # What fails, whatever it is, is said, and the rest goes on: a run on a device is made once.
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "fwht: .* has no product of e4m3 codes")
        for n, k in shapes:
            try:
                weight = weight_of(n, k, options.seed, "cuda" if on_gpu else "cpu")
                modules = modules_of(weight)
            except Exception as error:
                failed(f"modules of {n}x{k}", error)
                save()
                continue
            makers = {
                "errors": error_rows(modules, weight, options.seed),
                "times": time_rows(modules, weight, tokens, options.seed),
                "host": host_rows(modules, host_tokens, options.seed, backend),
            }
            for name, rows in makers.items():
                try:
                    for row in rows:
                        parts[name].append(row)
                except Exception as error:
                    failed(f"{name} of {n}x{k}", error)
                save()
    print("\n".join(filter(None, map(lines_of, parts.values()))), end="")
    return 1 if missing else 0
