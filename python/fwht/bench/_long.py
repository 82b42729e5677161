"""Long vectors beside what else transforms them: cuFFT, butterflies in PyTorch, NVIDIA's CUDA sample; and beside a copy of the same bytes.

    python -m fwht.bench long --output results

Every result is compared with what is known of it before it is timed. The calls are timed in turn, in CUDA graphs. `long.json` in the folder has every row
with its provenance, and is written after each problem.
"""

from __future__ import annotations

import argparse
import collections
import functools
import itertools
import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import fwht

from .._torch.graph_times import graph_of, replayed_in_turn
from . import peers
from ._attention import without_folders
from ._output import Output, lines_of
from .peers import Call, Problem

CASES = {
    "copy_in_place": "torch.neg(x, out=x): the limit of what works in place",
    "copy": "x.clone() or torch.neg(x), the quicker: the limit of what does not",
    "fwht_in_place": "fwht.hadamard_transform(x, inplace=True)",
    "fwht": "fwht.hadamard_transform(x)",
    "cufft": "torch.fft.rfft(x): cuFFT from real to complex numbers, unscaled, by a plan that is kept",
    "butterflies": "a loop over the stages in PyTorch operations: view, sum, difference, stack",
    "compile": "the same by torch.compile",
    "cuda_sample": "kernels of NVIDIA's sample fastWalshTransform, built from a checkout: in place, unscaled, on zeros",
}
MODES = {
    "cold": "rotating over buffers of more than 4 times the L2",
    "replay": "the same buffer again; only where it fits in the L2",
}
DTYPES = {"f32": torch.float32, "f64": torch.float64, "i32": torch.int32, "i64": torch.int64}
UNIT = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}
# What matters most comes first: a run that is cut off has it.
STANDARD = (
    *(f"f32/n{1 << bits}/r1" for bits in range(16, 29)),
    *(f"f32/n{1 << 20}/r{rows}" for rows in (8, 64)),
    *(f"f64/n{1 << bits}/r{1 << (25 - bits)}" for bits in range(10, 15)),
    *(f"{dtype}/n{1 << bits}/r1" for dtype in ("f64", "i32") for bits in (20, 24, 28)),
    f"f32/n{1 << 30}/r1",
)
COMPILED = f"f32/n{1 << 20}/r1"
SECONDS, COMPILE_SECONDS = 36.0, 14.0  # of a run, but for its last problem; of a compilation, which is not begun later
LONGEST_ON_HOST = 2**20  # n that is transformed there too
PIECE = 1 << 26  # elements that a check works on at once
GRAPH_US, ROUNDS = 4000.0, 7  # the most that a graph's calls take one by one


# --- what is compared ------------------------------------------------------------------------------------------------


class Contestant(NamedTuple):
    call: Call
    in_place: bool
    spectrum: str = "walsh"  # or "fourier"
    scale: float = 1.0
    zeros: bool = False  # data of its times: unscaled sums in place overflow

    def __call__(self, x: Tensor) -> Tensor:
        return self.call(x, x)


def problem_of(text: str, option: str = "--problem") -> Problem:
    found = re.fullmatch(r"(f32|f64|i32|i64)/n([0-9]+)/r([0-9]+)", text)
    if not found:
        raise ValueError(f"{option} {text}: must be {'|'.join(DTYPES)}/n<length>/r<rows>, as in f32/n1048576/r4")
    dtype, n, rows = DTYPES[found[1]], int(found[2]), int(found[3])
    if not 2**10 <= n <= 2**30 or n & (n - 1):
        raise ValueError(f"{option} {text}: n={n} must be a power of two from {2**10} to {2**30}")
    if not 1 <= rows <= 2**31 // n:
        raise ValueError(f"{option} {text}: rows={rows} must be from 1 to {2**31 // n}, so that there are 2^31 elements at most")
    return Problem(n, rows, dtype, n**-0.5 if dtype.is_floating_point else 1.0, False, 0)


def text_of(problem: Problem) -> str:
    return f"{_named(problem.dtype)}/n{problem.n}/r{problem.rows}"


def _named(dtype: torch.dtype) -> str:
    return next(name for name, known in DTYPES.items() if known is dtype)


def contestants(problem: Problem, compiled: bool, sample: peers.CudaSample | None) -> dict[str, Contestant]:
    """Those that take the problem, in the order of CASES."""
    ours, scale = peers.ThisPackage(), problem.scale
    found = {
        "fwht_in_place": Contestant(ours.make(problem._replace(in_place=True)), True, scale=scale),
        "fwht": Contestant(ours.make(problem), False, scale=scale),
    }
    if problem.dtype.is_floating_point:
        found["cufft"] = Contestant(lambda x, _: torch.fft.rfft(x), False, "fourier")
    found["butterflies"] = Contestant(lambda x, _: peers.butterflies(x, scale), False, scale=scale)
    if compiled:
        found["compile"] = Contestant(lambda x, out: _compiled(problem)(x, out), False, scale=scale)
    unscaled = problem._replace(scale=1.0, in_place=True)
    if sample and not sample.why_not(unscaled):
        found["cuda_sample"] = Contestant(sample.make(unscaled), True, zeros=True)
    return found


@functools.lru_cache(1)
def _compiled(problem: Problem) -> Call:
    return peers.Compiled().make(problem)


def copies(in_place: bool) -> dict[str, Contestant]:
    """Copies of the bytes that a transform reads and writes, by name. One that flips signs is a kernel of PyTorch's, not the driver's copy."""
    if in_place:
        return {"copy_in_place": Contestant(lambda x, _: torch.neg(x, out=x), True)}
    return {"clone": Contestant(lambda x, _: x.clone(), False), "neg": Contestant(lambda x, _: torch.neg(x), False)}


# --- checks ----------------------------------------------------------------------------------------------------------


def _pieces(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """Parts of a matrix of at most PIECE elements each."""
    height, width = max(1, PIECE // columns), min(columns, PIECE)
    for row in range(0, rows, height):
        for column in range(0, columns, width):
            yield slice(row, min(row + height, rows)), slice(column, min(column + width, columns))


def random(problem: Problem, count: int, seed: int, device: Any) -> Tensor:
    """(count, rows, n): N(0, 1), or integers from -3 to 3."""
    generator, shape = torch.Generator(device).manual_seed(seed), (count, problem.rows, problem.n)
    if problem.dtype.is_floating_point:
        return torch.randn(shape, generator=generator, device=device, dtype=problem.dtype)
    return torch.randint(-3, 4, shape, generator=generator, device=device, dtype=problem.dtype)


def energy(y: Tensor) -> float | int:
    """Sum of squares of a matrix, in float64, or exact in int64."""
    wide = torch.float64 if y.dtype.is_floating_point else torch.int64
    return sum(y[part].to(wide).square().sum().item() for part in _pieces(*y.shape))


def _places(rows: int, n: int, device: Any) -> Tensor:
    """Where each row of the impulses is 1, int64 (rows, 1)."""
    return (torch.arange(1, rows + 1, device=device)[:, None] * 0x9E3779B1) % n


def _off_impulse(y: Tensor, problem: Problem, contestant: Contestant) -> float:
    """Of the transforms of impulses: the largest error over the scale, for Fourier transforms the relative 2-norm."""
    places, worst, total = _places(problem.rows, problem.n, y.device), 0.0, 0.0
    for rows, columns in _pieces(*y.shape):
        k, j = places[rows].int(), torch.arange(columns.start, columns.stop, device=y.device, dtype=torch.int32)
        if contestant.spectrum == "walsh":
            odd = k & j
            for shift in (16, 8, 4, 2, 1):
                odd = odd ^ (odd >> shift)
            expected = 1 - 2 * (odd & 1)
            part = y[rows, columns] if contestant.scale == 1.0 else y[rows, columns].double() / contestant.scale
            worst = max(worst, float((part - expected).abs().max()))
        else:
            turns = (k.long() * j.long() % problem.n).double() / problem.n
            expected = torch.polar(torch.ones_like(turns), -2 * math.pi * turns)
            total += float((y[rows, columns] - expected).abs().square().sum())
    return worst if contestant.spectrum == "walsh" else math.sqrt(total / y.numel())


def _off_parseval(y: Tensor, of_x: float | int, problem: Problem, contestant: Contestant) -> float:
    """How far the sum of squares is from Parseval's equation, relative."""
    if contestant.spectrum == "walsh":
        expected, found = of_x * problem.n * contestant.scale**2, energy(y)
    else:  # of the n coefficients half and one are there
        parts = torch.view_as_real(y)
        ends = sum(float(parts[:, end].double().square().sum()) for end in (0, -1))
        expected, found = of_x * problem.n, 2 * energy(parts.flatten(1)) - ends
    return abs(found - expected) / expected


def _off_host(y: Tensor, x: Tensor, contestant: Contestant) -> float:
    """Relative 2-norm of the error of the first and the last row, against float64, or int64, on the host."""
    some = [0, len(x) - 1]
    rows, result = x[some].cpu(), y[some].cpu()
    if contestant.spectrum == "fourier":
        truth = torch.fft.rfft(rows.double())
        return float((result - truth).norm() / truth.norm())
    wide = torch.float64 if x.dtype.is_floating_point else torch.int64
    truth = fwht.hadamard_transform(rows.to(wide), contestant.scale, variant="cpu")
    return float((result.to(wide) - truth).double().norm() / truth.double().norm())


def bounds(problem: Problem, contestant: Contestant) -> dict[str, float]:
    """Of the errors. A stage of butterflies rounds each sum once, so that its error is at most u times the norm; scale and its product round
    once each. For a Fourier transform stage it is 7 u (Higham, Accuracy and Stability of Numerical Algorithms, theorem 24.2)."""
    if not problem.dtype.is_floating_point:
        return {"impulse": 0.0, "parseval": 0.0, "rel_l2": 0.0}
    bits, u = problem.n.bit_length() - 1, UNIT[problem.dtype]
    norm = (bits + 2) * u if contestant.spectrum == "walsh" else 7 * (bits + 1) * u
    sums = 2.0**-44  # of the two sums of squares, in float64
    return {"impulse": 2 * u if contestant.spectrum == "walsh" else norm, "parseval": 2 * norm + norm**2 + sums, "rel_l2": norm + (bits + 2) * 2.0**-53}


def errors_of(contestant: Contestant, problem: Problem, x: Tensor) -> dict[str, float]:
    """What the results for impulses and for x (rows, n), which stays, are off, by name."""
    impulses = torch.zeros_like(x)
    impulses.scatter_(1, _places(problem.rows, problem.n, x.device), 1)
    errors = {"impulse": _off_impulse(contestant(impulses), problem, contestant)}
    del impulses
    y = contestant(x.clone() if contestant.in_place else x)
    errors["parseval"] = _off_parseval(y, energy(x), problem, contestant)
    if problem.n <= LONGEST_ON_HOST:
        errors["rel_l2"] = _off_host(y, x, contestant)
    return errors


def wrong(errors: dict[str, float], limits: dict[str, float]) -> str:
    """The sentence that says so, or "". What is no number is wrong."""
    return "; ".join(f"wrong: {name} {error:.3g}, at most {limits[name]:.3g}" for name, error in errors.items() if not error <= limits[name])


# --- times -----------------------------------------------------------------------------------------------------------


class Rotating:
    """The call on other memory each time: on as many inputs, and with as many results alive, as there are."""

    def __init__(self, contestant: Contestant, inputs: Sequence[Tensor]):
        self._contestant, self._inputs = contestant, itertools.cycle(inputs)
        self._kept: collections.deque[Tensor] = collections.deque(maxlen=len(inputs))

    def __call__(self) -> None:
        if len(self._kept) == self._kept.maxlen:
            self._kept.popleft()  # its memory is that of the next result
        self._kept.append(self._contestant(next(self._inputs)))


def _repeats(call: Callable[[], Any], most: int) -> int:
    """As many calls as take GRAPH_US one by one."""
    call()  # plans and libraries begin
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(2):
        call()
    end.record()
    end.synchronize()
    return max(1, min(most, int(GRAPH_US / (500 * begin.elapsed_time(end)))))


def times_of(calls: dict[str, Callable[[], Any]], most: int) -> tuple[dict[str, tuple[float, int]], dict[str, str]]:
    """Microseconds and calls in a graph by name, and why others have none. At most `most` calls find other memory than those before."""
    graphs, repeats, why = {}, {}, {}
    for name, call in calls.items():
        try:
            repeats[name] = _repeats(call, most)
            graphs[name] = graph_of(call, repeats[name])
        except Exception as error:  # one that cannot be captured, or for which there is no memory, must not end the others
            why[name] = _sentence(error)
    times = replayed_in_turn(graphs, repeats, ROUNDS)
    return {name: (us, repeats[name]) for name, us in times.items()}, why


def _sentence(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def l2_bytes() -> int:
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)


def measure(
    problem: Problem, seed: int, compiled: bool, sample: peers.CudaSample | None, say: Callable[[str], None], device: Any = "cuda"
) -> list[dict[str, Any]]:
    """A row for each mode and case. What is wrong, or fails, has no time and says why."""
    text, l2 = text_of(problem), l2_bytes()
    bytes_of_one = problem.n * problem.rows * problem.dtype.itemsize
    fits = bytes_of_one <= l2
    right: dict[str, Contestant] = {}
    about: dict[str, dict[str, Any]] = {}
    x = random(problem, 1, seed, device)[0]
    for case, contestant in contestants(problem, compiled, sample).items():
        errors: dict[str, float] = {}
        try:
            errors = errors_of(contestant, problem, x)
            why = wrong(errors, bounds(problem, contestant))
        except Exception as error:
            why = _sentence(error)
        about[case] = {**dict.fromkeys(("impulse", "parseval", "rel_l2")), **errors, "why_not": why}
        if why:
            say(f"{text}, {case}: {why}")
        else:
            right[case] = contestant
    del x
    rows: list[dict[str, Any]] = []
    for mode in MODES if fits else ("cold",):
        count = 1 if mode == "replay" else -(-4 * l2 // bytes_of_one)
        inputs = random(problem, count, seed + 1, device)
        taken = {**copies(True), **copies(False), **right}
        calls = {case: Rotating(one, list(torch.zeros_like(inputs) if one.zeros else inputs)) for case, one in taken.items()}
        # On one buffer every call finds the memory of the one before, so that their number does not matter.
        times, failed = times_of(dict(calls), 2000 if mode == "replay" or count == 1 else count)
        for case, why in failed.items():
            say(f"{text}, {mode}, {case}: {why}")
        rows += _rows(problem, mode, times, failed, about)
        del calls, inputs, taken
        _forget()
    return rows


def _rows(problem: Problem, mode: str, times: dict[str, tuple[float, int]], failed: dict[str, str], about: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    quickest = min((name for name in copies(False) if name in times), key=times.__getitem__, default=None)
    times = dict(times)
    if quickest:
        times["copy"] = times[quickest]
    found = []
    for case in CASES:
        if case not in times and case not in failed and case not in about:
            continue
        us, repeats = times.get(case, (None, None))
        limit, _ = times.get("copy_in_place" if case in ("copy_in_place", "fwht_in_place", "cuda_sample") else "copy", (None, None))
        row = {"dtype": _named(problem.dtype), "n": problem.n, "rows": problem.rows, "mode": mode, "case": case, "time_us": us, "repeats": repeats,
               "copies": us / limit if us and limit else None, "bytes": 2 * problem.n * problem.rows * problem.dtype.itemsize}  # fmt: skip
        row["terabytes_per_second"] = row["bytes"] / us / 1e6 if us else None
        row |= about.get(case, dict.fromkeys(("impulse", "parseval", "rel_l2")) | {"why_not": ""})
        row["why_not"] = row["why_not"] or failed.get(case, "")
        found.append(row)
    return found


def _forget() -> None:
    """Memory and plans of a problem whose graphs are gone."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
        torch.backends.cuda.cufft_plan_cache.clear()
        torch.cuda.empty_cache()


# --- the run ---------------------------------------------------------------------------------------------------------


def table(rows: list[dict[str, Any]]) -> str:
    """A line for each problem and mode: microseconds by case."""
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        key = (_of(row), row["mode"])
        lines.setdefault(key, {"problem": key[0], "mode": key[1], **dict.fromkeys(CASES, "-")})[row["case"]] = row["time_us"] or "-"
    return lines_of(list(lines.values()))


def _of(row: dict[str, Any]) -> str:
    return f"{row['dtype']}/n{row['n']}/r{row['rows']}"


def _checkout(named: str | None) -> peers.CudaSample | None:
    if named is None:
        return None
    if not Path(named).is_dir():
        raise ValueError(f"--sample {named}: is no folder")
    sample = peers.CudaSample(Path(named).resolve())
    if why := sample.missing():
        raise ValueError(f"--sample {named}: {why}")
    return sample


def main(arguments: Sequence[str]) -> int:
    begun = time.monotonic()
    parser = argparse.ArgumentParser(
        prog="python -m fwht.bench long", allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Times transforms of long vectors beside cuFFT, PyTorch and a copy, after it has checked their results.",
        epilog="\n".join(
            line for title, words in (("cases", CASES), ("modes", MODES)) for line in (f"{title}:", *(f"  {name:<14} {what}" for name, what in words.items()))
        ),
    )  # fmt: skip
    parser.add_argument("--problem", action="append", metavar="DTYPE/nN/rROWS", help="as f32/n1048576/r4; repeated. Default: 2^16 to 2^30 and others")
    parser.add_argument("--compile", default=COMPILED, metavar="PROBLEM", help=f"torch.compile takes this one, at the end; 'none': no one ({COMPILED})")
    parser.add_argument("--sample", metavar="CHECKOUT", help="of cuda-samples, or the folder fastWalshTransform: its kernels are built into build/peers")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"no problem is begun later ({SECONDS:.0f})")
    parser.add_argument("--seed", type=int, default=0, help="of the data (0)")
    parser.add_argument("--output", metavar="DIR", help="a new folder for long.json")
    options = parser.parse_args(list(arguments))
    try:
        problems = [(problem_of(text), False) for text in options.problem or STANDARD]
        if options.compile != "none":
            problems.append((problem_of(options.compile, "--compile"), True))
        output = Output(options.output, "long.json")
        if not torch.cuda.is_available():
            raise ValueError("PyTorch sees no CUDA device")
        sample = _checkout(options.sample)
    except ValueError as error:
        print(f"fwht.bench long: {error}", file=sys.stderr)
        return 2
    about: dict[str, Any] = {
        "utc_start": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "arguments": without_folders(arguments), "library": fwht.build_info(),
        "torch": torch.__version__, "cuda": torch.version.cuda, "device": torch.cuda.get_device_name(), "l2_bytes": l2_bytes(),
        "capability": list(torch.cuda.get_device_capability()), "cases": CASES, "modes": MODES, "rounds": ROUNDS,
        "sample": sample.settings() if sample else None, "seconds": None, "left_out": [],
    }  # fmt: skip
    rows: list[dict[str, Any]] = []
    failed = False

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def save() -> None:  # after every problem: a run that is cut off leaves what it has
        about["seconds"] = round(time.monotonic() - begun, 1)
        output.write({"about": about, "rows": rows})

    for problem, compiled in problems:
        text = text_of(problem) + ", compiled" * compiled
        if time.monotonic() - begun > options.seconds - compiled * COMPILE_SECONDS:
            about["left_out"].append(text)
            say(f"{text}: left out, since the run is at its end (--seconds {options.seconds:g})")
            save()
            continue
        try:
            with torch.no_grad():
                found = measure(problem, options.seed, compiled, sample, say)
            rows = [row for row in rows if not compiled or _of(row) != text_of(problem)] + found  # all in turn with what was compiled
        except Exception as error:  # the others are measured all the same
            failed = True
            say(f"{text}: {_sentence(error)}")
            about["left_out"].append(f"{text}: {_sentence(error)}")
            _forget()
        save()
    print(table(rows), end="")
    return int(failed or any(row["why_not"] for row in rows if row["case"].startswith("fwht")))
