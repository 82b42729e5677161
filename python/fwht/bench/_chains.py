"""What frameworks do in several torch operations, or by a dense matrix, beside one call of this library.

    python -m fwht.bench chains --output results

The chains are written here from what those frameworks do (docs/integrations.md says who calls what). Both sides read the same input, results are
compared before anything is timed, and the calls are timed in turn: in CUDA graphs, and as they are where a weight is folded once. `chains.json` in
the folder has every row with its provenance. It is written anew after each row; what fails is said in it, and the other rows go on.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import fwht

from .. import operators
from .._torch.graph_times import captured, eager_times_in_turn, times_in_turn
from ..integrations import compressed_tensors, convrot
from ._attention import without_folders
from ._output import Output, lines_of

CHAINS = {
    "int4_kv": "vLLM's INT4 KV cache rotates a head: to float32, signs, to 16 bits, transform, to float32, times sqrt(n), to 16 bits. "
    "Its transform is `hadacore_transform`; here that of this library stands in for it",
    "int4_kv_back": "the same the other way: to float32, to 16 bits, transform, to float32, over sqrt(n), signs, to 16 bits",
    "r4": "the rotation in front of `down_proj` of a compressed-tensors checkpoint: one product with the dense n x n matrix",
    "convrot": "ConvRot's input: product with the dense 256 x 256 matrix, largest of a token, scale over 127, quotient, rounding, limits, to int8",
    "fold": "compressed-tensors folds a rotation into a weight of so many rows: product with the dense n x n matrix in float64. By calls, without a graph",
}
HEAD, HEADS = 128, 8
TOKENS = {"int4_kv": (1, 4, 16, 64, 256, 2048, 8192), "int4_kv_back": (1, 4, 16, 64, 256, 2048, 8192), "r4": (1, 4, 16, 64, 256, 2048),
          "convrot": (1, 256, 4096), "fold": (16384,)}  # fmt: skip
LENGTHS = {"int4_kv": (HEAD,), "int4_kv_back": (HEAD,), "r4": (14336,), "convrot": (3840, 5376, 10240), "fold": (53248,)}
REPEATS, ROUNDS = 20, 9
FOLD_ROUNDS = 3  # a dense product takes seconds
FOLD_ORDER = 208  # of the largest matrix of compressed-tensors' table that divides 53248 into a power of two
UNIT = {torch.bfloat16: 2.0**-9, torch.float16: 2.0**-12}  # largest relative error of one rounding
GROUP = 256


class Compared(NamedTuple):
    """A chain and the call that stands for it, on one input."""

    chain: Callable[[], Any]
    ours: Callable[[], Any]
    call: str  # ours, as it is written
    bytes_moved: int  # that ours must read and write
    difference: Callable[[Any, Any], float]  # of the two results
    bound: float  # of it
    judged: str  # what the difference is
    in_graphs: bool = True  # whether it is timed in CUDA graphs


class Failure(NamedTuple):
    """Why there is no row."""

    what: str
    is_refused: bool  # by this library, which does not take it on the device


# --- the chains ------------------------------------------------------------------------------------------------------


def rotated_head(x: Tensor, signs: Tensor) -> Tensor:
    """H (s x), 16 bits to 16 bits, with the transform's own rounding in between."""
    y = (x.float() * signs).to(x.dtype)
    y = fwht.hadamard_transform(y)
    return (y.float() * math.sqrt(x.shape[-1])).to(x.dtype)


def rotated_head_back(y: Tensor, signs: Tensor) -> Tensor:
    """s (H y) / n, so that it gives x for y = H (s x)."""
    x = fwht.hadamard_transform(y.float().to(y.dtype))
    return (x.float() * (1.0 / math.sqrt(y.shape[-1])) * signs).to(y.dtype)


def regular_matrix(group: int, dtype: torch.dtype, device: Any) -> Tensor:
    """R_4 (x) R_4 (x) ... of norm 1: its entries are powers of two for a power of four."""
    four = torch.ones(4, 4) - 2 * torch.eye(4).flip(0)
    matrix = torch.ones(1, 1)
    while len(matrix) < group:
        matrix = torch.kron(matrix, four)
    return (matrix / math.sqrt(group)).to(device=device, dtype=dtype)


def convrot_codes(x: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """INT8 codes and float32 scales of the tokens of x (tokens, K), in groups of the matrix."""
    y = (x.view(-1, len(matrix)) @ matrix.t()).view(x.shape)
    scale = y.abs().amax(-1, keepdim=True).float() / 127.0
    scale = scale.clamp(min=1e-30)
    return (y.float() / scale).round().clamp(-127, 127).to(torch.int8), scale


# --- beside one call -------------------------------------------------------------------------------------------------


def relative(chain: Tensor, ours: Tensor) -> float:
    """2-norm of the difference over that of our result."""
    return ((chain.double() - ours.double()).norm() / ours.double().norm()).item()


def code_steps(chain: tuple[Tensor, Tensor], ours: tuple[Tensor, Tensor]) -> float:
    """Most steps between two codes of one number."""
    return float((chain[0].int() - ours[0].int()).abs().max())


def dense_matrix(operator: str, n: int, dtype: torch.dtype, device: Any, signs: Any) -> Tensor:
    """Q of norm 1 with x @ Q what `operators.transform(x, operator)` gives: its rows are the transforms of the unit vectors."""
    return operators.transform(torch.eye(n, dtype=dtype, device=device), operator, signs=signs)


def fold_matrix(n: int) -> compressed_tensors._Matrix:
    """A matrix of "random-hadamard" as compressed-tensors makes it for n = 2^k FOLD_ORDER, or for n = 2^k: a table's matrix beside Sylvester's, signs."""
    signs = operators.random_signs(n, seed=42)
    if n % FOLD_ORDER:
        return compressed_tensors._Matrix(f"{n}+signs", signs, None, torch.nn.Parameter(torch.ones(n), requires_grad=False), None)
    entries = operators.transform(torch.eye(FOLD_ORDER, dtype=torch.float64), operators.operator_for(FOLD_ORDER), 1.0).t().reshape(-1)
    text = f"d{FOLD_ORDER}x{n // FOLD_ORDER}+signs"
    return compressed_tensors._Matrix(text, signs, entries.contiguous(), torch.nn.Parameter(torch.ones(n), requires_grad=False), None)


def dense_fold_matrix(matrix: compressed_tensors._Matrix, device: Any) -> Tensor:
    """T of float64, entries +-1, with W T^T / sqrt(n) what is folded into a weight: 8 n^2 bytes, made without another such matrix."""
    n = len(matrix.parameter)
    special = torch.eye(1, dtype=torch.float64) if matrix.dense is None else matrix.dense.reshape(FOLD_ORDER, FOLD_ORDER)
    two = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64, device=device)
    sylvester = torch.eye(1, dtype=torch.float64, device=device)
    while len(sylvester) * len(special) < n:
        sylvester = torch.kron(sylvester, two)
    assert matrix.signs is not None
    signs = torch.tensor([float(matrix.signs[i]) for i in range(n)], dtype=torch.float64, device=device)
    return torch.kron(special.t().contiguous().to(device), sylvester).mul_(signs[:, None])


def folded(weight: Tensor, dense: Tensor) -> Tensor:
    """compressed-tensors' weight of a torch.nn.Linear, rotated on its input side."""
    return ((weight.to(dense.dtype) @ dense.t()) / math.sqrt(len(dense))).to(weight.dtype)


def compared(chain: str, n: int, tokens: int, dtype: torch.dtype = torch.bfloat16, device: Any = "cuda", matrix: Tensor | None = None) -> Compared:
    """What is compared; `matrix` is the dense one, where the chain has one and it is there already."""
    noise = torch.Generator().manual_seed(37)
    unit = UNIT[dtype]
    if chain.startswith("int4_kv"):
        x = torch.randn(tokens, HEADS, n, generator=noise).to(device=device, dtype=dtype)
        signs = operators.random_signs(n, seed=42)
        packed, factors = signs.on(x), torch.tensor([float(signs[i]) for i in range(n)], device=device)
        back = chain == "int4_kv_back"
        scale = 1.0 / n if back else 1.0

        def ours() -> Tensor:
            return operators.transform(x, f"{n}+signs", scale, signs=packed, transpose=back)

        by = rotated_head_back if back else rotated_head
        call = f'operators.transform(x, "{n}+signs", {"1 / n, transpose=True" if back else "1.0"})'
        # Two roundings there, one here.
        return Compared(lambda: by(x, factors), ours, call, 2 * x.numel() * x.element_size(), relative, 3.1 * unit, "relative 2-norm")
    if chain == "fold":
        x = torch.randn(tokens, n, generator=torch.Generator(device).manual_seed(37), device=device).to(dtype)
        factors = fold_matrix(n)
        dense = dense_fold_matrix(factors, device) if matrix is None else matrix
        # Both sums are of float64, so the rounded weights are the same but for halves: fewer than one element in a million, by two units.
        return Compared(lambda: folded(x, dense), lambda: compressed_tensors._fold(x, factors, None, True, True), "integrations.compressed_tensors",
                        2 * x.numel() * x.element_size(), relative, 2.0**-9 * unit, "relative 2-norm", in_graphs=False)  # fmt: skip
    x = torch.randn(tokens, n, generator=noise).to(device=device, dtype=dtype)
    if chain == "r4":
        operator = f"{operators.operator_for(n)}+signs"
        signs = operators.random_signs(n, seed=42)
        packed = signs.on(x)
        dense = dense_matrix(operator, n, dtype, device, packed) if matrix is None else matrix
        # The matrix's entries are rounded, and both results.
        return Compared(lambda: x @ dense, lambda: operators.transform(x, operator, signs=packed), f'operators.transform(x, "{operator}")',
                        2 * x.numel() * x.element_size(), relative, 3.1 * unit, "relative 2-norm")  # fmt: skip
    if chain != "convrot":
        raise ValueError(f"--chain {chain}: unknown; known: {', '.join(CHAINS)}")
    regular = regular_matrix(GROUP, dtype, device)
    # y and its largest are rounded there: half a step at the limit, so two codes are at most one step apart.
    return Compared(lambda: convrot_codes(x, regular), lambda: convrot.quantized(x, GROUP), f"convrot.quantized(x, {GROUP})",
                    x.numel() * (x.element_size() + 1) + 4 * tokens, code_steps, 1.0, "steps of a code")  # fmt: skip


# --- launches and times ----------------------------------------------------------------------------------------------


def launches_of(call: Callable[[], Any]) -> int | None:
    """Nodes of a CUDA graph that holds the call once: kernels, copies and memsets. None where this PyTorch keeps no graph to count in."""
    try:
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        kept = graph.raw_cuda_graph
    except (TypeError, AttributeError):
        return None
    call()
    torch.cuda.synchronize()
    captured(call, graph=graph)
    count = ctypes.c_size_t()
    nodes_of = ctypes.CDLL("libcuda.so.1").cuGraphGetNodes
    nodes_of.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t))
    failed = nodes_of(kept(), None, ctypes.byref(count))
    return None if failed else count.value


def times_of(calls: dict[str, Callable[[], Any]], in_graphs: bool = True) -> dict[str, float]:
    return times_in_turn(calls, repeats=REPEATS, rounds=ROUNDS) if in_graphs else eager_times_in_turn(calls, rounds=FOLD_ROUNDS)


def row_of(chain: str, n: int, tokens: int, pair: Compared) -> dict[str, Any]:
    """One row; RuntimeError where the results are further apart than the bound, and then nothing is timed."""
    difference = pair.difference(pair.chain(), pair.ours())
    if not difference <= pair.bound:
        raise RuntimeError(f"results are {difference:.3g} apart ({pair.judged}); the bound is {pair.bound:.3g}")
    times = times_of({"chain": pair.chain, "ours": pair.ours}, pair.in_graphs)
    launches = [launches_of(call) if pair.in_graphs else None for call in (pair.chain, pair.ours)]
    heads = HEADS if chain.startswith("int4_kv") else None
    return {"chain": chain, "tokens": tokens, "heads": heads, "n": n, "call": pair.call, "difference": difference, "bound": pair.bound,
            "judged": pair.judged, "in_graphs": pair.in_graphs, "chain_us": times["chain"], "ours_us": times["ours"],
            "ratio": times["chain"] / times["ours"], "chain_launches": launches[0], "ours_launches": launches[1], "ours_bytes": pair.bytes_moved,
            "ours_terabytes_per_second": pair.bytes_moved / times["ours"] / 1e6}  # fmt: skip


def measure(chain: str, n: int, tokens: Sequence[int], dtype: torch.dtype, device: Any = "cuda") -> Iterator[dict[str, Any] | Failure]:
    """A row for each number of tokens, or why there is none: the others go on."""
    matrix = None
    for count in tokens:
        try:
            if chain == "r4" and matrix is None:
                signs = operators.random_signs(n, seed=42).on(torch.empty(0, device=device))
                matrix = dense_matrix(f"{operators.operator_for(n)}+signs", n, dtype, device, signs)
            yield row_of(chain, n, count, compared(chain, n, count, dtype, device, matrix))
        except Exception as error:  # whatever it is: a run on a device is made once
            yield Failure(f"{chain}, {count} tokens of {n}: {type(error).__name__}: {error}", isinstance(error, NotImplementedError))


def table(rows: list[dict[str, Any]]) -> str:
    """A line for each row."""
    columns = ("chain", "rows" if rows and "rows" in rows[0] else "tokens", "n", "chain_us", "ours_us", "ratio", "chain_launches", "ours_launches", "ours_terabytes_per_second", "difference",
               "bound")  # fmt: skip
    return lines_of(rows, columns)


class Subject(NamedTuple):
    """What a mode of `fwht.bench` compares."""

    word: str  # of the command line, and the name of the file
    description: str
    chains: dict[str, str]
    measure: Callable[[str, torch.dtype], Iterator[dict[str, Any] | Failure]]
    dtypes: tuple[str, ...]  # to choose from


def main(arguments: Sequence[str]) -> int:
    def measured(name: str, dtype: torch.dtype) -> Iterator[dict[str, Any] | Failure]:
        for n in LENGTHS[name]:
            yield from measure(name, n, TOKENS[name], dtype)

    return run(arguments, Subject("chains", "Times chains of torch operations of frameworks beside one call of this library, after it has compared their results.",
                                  CHAINS, measured, ("bf16", "f16")))  # fmt: skip


def run(arguments: Sequence[str], subject: Subject) -> int:
    chains, file = subject.chains, f"{subject.word}.json"
    parser = argparse.ArgumentParser(
        prog=f"python -m fwht.bench {subject.word}", allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter,
        description=subject.description, epilog="\n".join(["chains:", *(f"  {name:<15} {what}" for name, what in chains.items())]),
    )  # fmt: skip
    parser.add_argument("--chain", default=",".join(chains), metavar="NAME,...", help="all")
    if subject.dtypes:
        parser.add_argument("--dtype", default=subject.dtypes[0], choices=subject.dtypes, help=f"of the rows ({subject.dtypes[0]})")
    parser.add_argument("--output", metavar="DIR", help=f"a new folder for {file}")
    options = parser.parse_args(list(arguments))
    try:
        names = options.chain.split(",")
        for name in names:
            if name not in chains:
                raise ValueError(f"--chain {name}: unknown; known: {', '.join(chains)}")
        output = Output(options.output, file)
        if not torch.cuda.is_available():
            raise ValueError("PyTorch sees no CUDA device")
    except ValueError as error:
        print(f"fwht.bench {subject.word}: {error}", file=sys.stderr)
        return 2
    about = {
        "utc_start": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "arguments": without_folders(arguments), "library": fwht.build_info(),
        "torch": torch.__version__, "cuda": torch.version.cuda, "device": torch.cuda.get_device_name(),
        "capability": list(torch.cuda.get_device_capability()), "chains": {name: chains[name] for name in names},
        "repeats": REPEATS, "rounds": ROUNDS, "missing": [],
    } | ({"dtype": options.dtype, "fold_rounds": FOLD_ROUNDS} if subject.dtypes else {})  # fmt: skip
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[options.dtype if subject.dtypes else "bf16"]
    rows: list[dict[str, Any]] = []
    failures: list[Failure] = []
    for name in names:
        for made in subject.measure(name, dtype):
            if isinstance(made, Failure):
                failures.append(made)
                print(made.what, file=sys.stderr, flush=True)
            else:
                rows.append(made)
            about["missing"] = [failure.what for failure in failures]
            output.write({"about": about, "rows": rows})  # after every row: a run that is cut off leaves what it has
    print(table(rows), end="")
    return 0 if all(failure.is_refused for failure in failures) else 1
