"""Walsh transforms with something in front, inside or behind, beside what composes them of several launches or of a dense product.

    python -m fwht.bench walsh --output results

As `chains`: both sides read the same input, results are compared before anything is timed, and the calls are timed in turn, in CUDA graphs.
`walsh.json` in the folder has every row with its provenance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

import fwht

from .. import operators, walsh
from . import _chains
from ._chains import Compared, Failure, relative

CHAINS = {
    "rounds": "three rounds of fp32 rows, as three transforms with signs: each reads and writes all rows",
    "rounds_bf16": "the same of bf16 rows; the chain rounds three times, the call once",
    "rounds_dense": "three rounds of fp32 rows as vector search does them (cuVS): one product with the dense n x n matrix, by cuBLAS in fp32 without TF32",
    "codes": "int8 codes of three rounds of fp32 rows: the rounds in one launch, then the quantizer of this library",
    "bits": "one bit an element of three rounds of fp32 rows: the rounds in one launch, then PyTorch compares, packs and takes means",
    "convolution": "dyadic convolution of fp32 rows: three transforms and a product",
    "autocorrelation": "the same of a row with itself: two transforms and a square",
    "sketch": "an eighth of N coefficients of 3 N / 4 fp32 numbers: signs, padding, transform, choice of rows; N is the n of the table",
    "sketch_back": "the transpose of the same",
    "summaries": "largest |W| and sum of W^2 of Boolean functions of n packed values: the spectrum stored, then reductions of PyTorch",
}
_IN_L2, _IN_DRAM = 1 << 18, 1 << 26  # elements
_LENGTHS = (768, 1024, 1536)  # of embeddings
SIZES = {
    "rounds": [(n, total // n) for n in (128, *_LENGTHS, 3584, 4096) for total in (_IN_L2, _IN_DRAM)],
    "rounds_bf16": [(n, total // n) for n in (128, *_LENGTHS) for total in (_IN_L2, _IN_DRAM)],
    "rounds_dense": [(n, total // n) for n in _LENGTHS for total in (_IN_L2, _IN_DRAM)],
    "codes": [(n, _IN_DRAM // n) for n in _LENGTHS],
    "bits": [(n, _IN_DRAM // n) for n in _LENGTHS],
    "convolution": [(1 << 10, 1 << 16), (1 << 14, 1 << 12), (1 << 20, 1), (1 << 24, 1), (1 << 26, 1)],
    "autocorrelation": [(1 << 14, 1 << 12), (1 << 20, 1), (1 << 24, 1)],
    "sketch": [(1 << 12, 1 << 14), (1 << 16, 1 << 10), (1 << 20, 1), (1 << 24, 1)],
    "sketch_back": [(1 << 12, 1 << 14), (1 << 24, 1)],
    "summaries": [(1 << 14, 1 << 12), (1 << 20, 1), (1 << 24, 1), (1 << 28, 1)],
}  # n, rows
ROUNDS, UNIT = 3, 2.0**-24


def _named(x: Tensor) -> str:
    """A variant by name: then the library composes transforms."""
    return "auto" if x.is_cuda else "cpu"


def _bits_by_torch(y: Tensor) -> tuple[Tensor, Tensor]:
    places = torch.arange(8, dtype=torch.uint8, device=y.device)
    return ((y < 0).view(*y.shape[:-1], -1, 8).to(torch.uint8) << places).sum(-1, dtype=torch.uint8), y.abs().mean(-1)


def codes_apart(chain: tuple[Tensor, Tensor], ours: tuple[Tensor, Tensor]) -> float:
    """The largest relative difference of scales; 1 where any code differs."""
    if not torch.equal(chain[0], ours[0]):
        return 1.0
    return float(((chain[1].double().flatten() - ours[1].double().flatten()) / ours[1].double().flatten()).abs().max())


def _levels(n: int) -> int:
    """At each a sum is rounded: log2 of the power of two, and the order of the matrix."""
    power = n & -n
    odd = n // power
    return power.bit_length() - 1 if odd == 1 else 4 * odd + (power // 4).bit_length() - 1


def _of_rounds(chain: str, n: int, rows: int, device: Any, noise: torch.Generator) -> Compared:
    signs = [operators.random_signs(n, seed) for seed in range(ROUNDS)]
    x = torch.randn(rows, n, generator=noise, device=device)
    rounding = ROUNDS * (_levels(n) + 2) * UNIT
    if chain == "codes":
        return Compared(lambda: tuple(fwht.quantize.quantize(walsh.rounds(x, signs), "int8:row")), lambda: walsh.rounds_to_codes(x, signs, 8),
                        "walsh.rounds_to_codes(x, signs, 8)", 5 * x.numel() + 4 * rows, codes_apart, 0.0, "of scales; codes are equal")  # fmt: skip
    if chain == "bits":
        return Compared(lambda: _bits_by_torch(walsh.rounds(x, signs)), lambda: walsh.rounds_to_codes(x, signs, 1),
                        "walsh.rounds_to_codes(x, signs, 1)", 33 * x.numel() // 8 + 4 * rows, codes_apart, 2 * n * UNIT, "of scales; codes are equal")  # fmt: skip
    if chain == "rounds_bf16":
        x = x.bfloat16()
        rounding += 2 * 2.0**-9
    moved = 2 * x.numel() * x.element_size()
    if chain == "rounds_dense":
        dense = walsh.rounds(torch.eye(n, device=device), signs)
        # Each of n products and sums is rounded, in the worst case all one way.
        return Compared(lambda: x @ dense, lambda: walsh.rounds(x, signs), "walsh.rounds(x, signs)", moved, relative,
                        n**1.5 * UNIT + 2 * rounding, "relative 2-norm")  # fmt: skip
    return Compared(lambda: walsh.rounds(x, signs, variant=_named(x)), lambda: walsh.rounds(x, signs), "walsh.rounds(x, signs)", moved, relative, 2 * rounding,
                    "relative 2-norm")  # fmt: skip


def _of_convolution(chain: str, n: int, rows: int, device: Any, noise: torch.Generator) -> Compared:
    a, b = (torch.randn(rows, n, generator=noise, device=device) for _ in range(2))
    if chain == "autocorrelation":
        b = a
    lengths = a.double().norm(dim=-1) * b.double().norm(dim=-1)

    def apart(one: Tensor, other: Tensor) -> float:
        return float(((one.double() - other.double()).abs().amax(-1) / lengths).max())

    def composed() -> Tensor:
        of_a = fwht.hadamard_transform(a, 1.0)
        return fwht.hadamard_transform(of_a * (of_a if b is a else fwht.hadamard_transform(b, 1.0)), 1.0 / n)

    call = "walsh.dyadic_convolution(a, b)" if b is not a else "walsh.autocorrelation(a)"
    moved = (2 if b is a else 3) * 4 * a.numel()
    return Compared(composed, lambda: walsh.dyadic_convolution(a, b), call, moved, apart, 2 * (3 * math.log2(n) + 3) * UNIT, "largest, over |a| |b|")


def _of_sketch(chain: str, n: int, rows: int, device: Any, noise: torch.Generator) -> Compared:
    sketch = walsh.Sketch(3 * n // 4, n // 8, seed=1)
    back = chain == "sketch_back"
    x = torch.randn(rows, sketch.rows if back else sketch.length, generator=noise, device=device)
    by = sketch.transpose if back else sketch
    lengths = x.double().norm(dim=-1) * math.sqrt(n / sketch.rows)

    def apart(one: Tensor, other: Tensor) -> float:
        return float(((one.double() - other.double()).abs().amax(-1) / lengths).max())

    moved = 4 * rows * (sketch.rows + sketch.length) + 3 * n // 8
    return Compared(lambda: by(x, variant=_named(x)), lambda: by(x), f"Sketch(3 N / 4, N / 8, seed){'.transpose' * back}(x)", moved, apart,
                    2 * (math.log2(n) + 3) * UNIT, "largest, over |x| sqrt(N / rows)")  # fmt: skip


def _of_summaries(n: int, rows: int, device: Any, noise: torch.Generator) -> Compared:
    f = torch.randint(0, 256, (rows, n // 8), generator=noise, device=device, dtype=torch.uint8)

    def composed() -> tuple[Tensor, Tensor]:
        w = walsh.spectrum(f, "packed")
        return w.abs().amax(-1), w.long().square().sum(-1)

    def ours() -> tuple[Tensor, Tensor]:
        found = walsh.summaries(f, "packed")
        return found.largest, found.sum_of_squares

    def apart(one: Any, other: Any) -> float:
        return float(sum((a.long() - b.long()).abs().max() for a, b in zip(one, other)))

    moved = f.numel() + rows * 4 * 8  # four int64 of a function
    return Compared(composed, ours, 'walsh.summaries(f, "packed")', moved, apart, 0.0, "integers")


def compared(chain: str, n: int, rows: int, device: Any = "cuda") -> Compared:
    noise = torch.Generator(device).manual_seed(41)
    if chain.startswith(("rounds", "codes", "bits")):
        return _of_rounds(chain, n, rows, device, noise)
    if chain in ("convolution", "autocorrelation"):
        return _of_convolution(chain, n, rows, device, noise)
    return _of_sketch(chain, n, rows, device, noise) if chain.startswith("sketch") else _of_summaries(n, rows, device, noise)


def measure(chain: str, _: torch.dtype, device: Any = "cuda") -> Iterator[dict[str, Any] | Failure]:
    for n, rows in SIZES[chain]:
        try:
            row = _chains.row_of(chain, n, rows, compared(chain, n, rows, device))
            yield {"rows" if key == "tokens" else key: value for key, value in row.items() if key != "heads"}
        except Exception as error:  # whatever it is: a run on a device is made once
            yield Failure(f"{chain}, {rows} rows of {n}: {type(error).__name__}: {error}", isinstance(error, NotImplementedError))


def main(arguments: Sequence[str]) -> int:
    return _chains.run(arguments, _chains.Subject("walsh", "Times Walsh transforms in one call beside compositions, after it has compared their results.", CHAINS, measure, ()))  # fmt: skip
