"""libfwht_bench.so through ctypes (experiments/bench/peers.h): peers in Python as the C functions that the sweep calls."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable

import torch

from .. import _c
from .peers import Call, Peer, Problem

VERSION = 3
_DTYPES = {_c.F16: torch.float16, _c.BF16: torch.bfloat16, _c.F32: torch.float32}
# What the array interface calls as wide a number; it has no bfloat16.
_TYPESTRS = {torch.float16: "<f2", torch.bfloat16: "<i2", torch.float32: "<f4", torch.int32: "<i4"}


class _Problem(ctypes.Structure):
    _fields_ = [
        ("text", ctypes.c_char_p),
        ("problem", _c.Problem),
        ("device", ctypes.c_int32),
    ]


_Asked = ctypes.POINTER(_Problem)
_Supports = ctypes.CFUNCTYPE(ctypes.c_int32, _Asked, ctypes.c_void_p, ctypes.c_size_t)
_Launch = ctypes.CFUNCTYPE(
    ctypes.c_int32, _Asked, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p,
    ctypes.c_size_t,
)  # fmt: skip
_HostUs = ctypes.CFUNCTYPE(ctypes.c_double, _Asked)


class _Peer(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("settings", ctypes.c_char_p),
        ("supports", _Supports),
        ("launch", _Launch),
        ("host_us", _HostUs),
    ]


def find() -> Path:
    """The library's file. Raises ImportError that says how to build it."""
    named = os.environ.get("FWHT_BENCH_LIBRARY")
    candidates = [Path(named)] if named else []
    if not named and os.environ.get("FWHT_LIBRARY"):  # <build>/python/libfwht.so
        candidates.append(Path(os.environ["FWHT_LIBRARY"]).resolve().parents[1] / "experiments" / "libfwht_bench.so")
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    where = f"{candidates[0]} is no file" if candidates else "FWHT_BENCH_LIBRARY is not set"
    raise ImportError(
        f"fwht.bench needs libfwht_bench.so, and {where}; build the repository (cmake --build BUILD --target fwht_bench) "
        "and set FWHT_BENCH_LIBRARY=BUILD/experiments/libfwht_bench.so"
    )


def load() -> ctypes.CDLL:
    path = find()
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"fwht.bench: {path} could not be loaded: {error}") from None
    library.fwht_bench_version.restype = ctypes.c_int32
    if (version := library.fwht_bench_version()) != VERSION:
        raise ImportError(f"fwht.bench: {path} has version {version}, this package needs {VERSION}; build it anew")
    library.fwht_bench_run.restype = ctypes.c_int32
    library.fwht_bench_run.argtypes = [
        ctypes.c_int32, ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(_Peer), ctypes.c_size_t,
    ]  # fmt: skip
    return library


class _Memory:
    """Contiguous numbers at an address that somebody else owns."""

    def __init__(self, pointer: int, shape: tuple[int, ...], dtype: torch.dtype):
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": _TYPESTRS[dtype], "data": (pointer, False), "strides": None, "version": 2,
        }  # fmt: skip


def tensor_at(pointer: int, shape: tuple[int, ...], dtype: torch.dtype, device: int) -> torch.Tensor:
    return torch.as_tensor(_Memory(pointer, shape, dtype), device=f"cuda:{device}").view(dtype)


class Streams:
    """The streams on which a peer is called, and the outputs that it made there."""

    def __init__(self) -> None:
        self._stream: int | None = -1
        # The output of the last launch on each input, so that outputs rotate as the inputs do.
        self.outputs: dict[int, torch.Tensor] = {}

    def forget(self) -> None:
        self.outputs.clear()

    def on(self, stream: int | None, device: int) -> Any:
        """A context in which `stream` is PyTorch's."""
        if stream != self._stream:  # what was cached for a stream that is gone would stay allocated
            self.forget()
            torch.cuda.empty_cache()
            self._stream = stream
        at = torch.device("cuda", device)
        return torch.cuda.stream(torch.cuda.ExternalStream(stream, at) if stream else torch.cuda.default_stream(at))


def _problem_of(given: _Problem) -> Problem:
    p = given.problem
    return Problem(p.n, p.rows, _DTYPES[p.dtype], p.scale, p.placement == 0, given.device, p.op_text.decode())


class Answers(Streams):
    """A peer as the three C functions. Must live as long as the library calls them."""

    def __init__(self, peer: Peer):
        super().__init__()
        self._peer = peer
        self._text = b""
        self._problem: Problem | None = None
        self._call: Call | None = None
        self._tensors: dict[int, torch.Tensor] = {}
        self._host_us: dict[bytes, float] = {}
        self.struct = _Peer(
            f"peer:{peer.name}".encode(), json.dumps(peer.settings()).encode(), _Supports(self._supports),
            _Launch(self._launch), _HostUs(self._measure_host),
        )  # fmt: skip

    def _read(self, asked: Any) -> Problem:
        given = asked.contents
        if given.text != self._text or self._problem is None:
            self.forget()
            self._call = None
            self._text = given.text
            self._problem = _problem_of(given)
        return self._problem

    def forget(self) -> None:
        super().forget()
        self._tensors.clear()

    def _prepared(self, problem: Problem) -> Call:
        if self._call is None:
            self._call = self._peer.make(problem)
        return self._call

    def _supports(self, asked: Any, why: int, size: int) -> int:
        def answer() -> str:
            return self._peer.why_not(_problem_of(asked.contents))

        return reported(answer, why, size)

    def _launch(self, asked: Any, source: int, target: int, stream: int | None, deliver: int, why: int, size: int) -> int:
        def enqueue() -> str:
            problem = self._read(asked)
            with self.on(stream, problem.device), torch.no_grad():
                call = self._prepared(problem)
                x, out = self._at(source, problem), self._at(target, problem)
                self.outputs.pop(source, None)
                result = call(x, out)
                if result.data_ptr() != target:
                    if problem.in_place:
                        return "it did not work in place"
                    if deliver:
                        out.copy_(self._peer.delivered(result, problem))
                    else:
                        self.outputs[source] = result
            return ""

        return reported(enqueue, why, size)

    def _at(self, pointer: int, problem: Problem) -> torch.Tensor:
        tensor = self._tensors.get(pointer)
        if tensor is None:
            tensor = self._tensors[pointer] = tensor_at(pointer, (problem.rows, problem.n), problem.dtype, problem.device)
        return tensor

    def _measure_host(self, asked: Any) -> float:
        try:
            problem = self._read(asked)
            if self._text not in self._host_us:
                self._host_us[self._text] = host_us(self._prepared(problem), problem)
            return self._host_us[self._text]
        except Exception:  # no memory for it, or the peer failed: its launch will say so
            return -1.0


def reported(answer: Callable[[], str], why: int, size: int) -> int:
    """0, or 1 with a sentence in the buffer."""
    try:
        sentence = answer()
    except BaseException as error:  # nothing may leave a function that C calls
        lines = str(error).strip().splitlines()
        sentence = f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
    if not sentence:
        return 0
    text = sentence.encode()[: size - 1] + b"\0"
    ctypes.memmove(why, text, len(text))
    return 1


def host_us(call: Call, problem: Problem, calls: int = 100, bursts: int = 7) -> float:
    """Microseconds of one call on the host: median of bursts, each queued behind a kernel that keeps the device busy, so
    that no call waits for work to end."""
    device = torch.device("cuda", problem.device)
    with torch.cuda.device(device), torch.no_grad():
        x = torch.randn(problem.rows, problem.n, device=device, dtype=problem.dtype)
        out = x if problem.in_place else torch.empty_like(x)
        for _ in range(10):
            call(x, out)
        times = []
        for _ in range(bursts):
            torch.cuda.synchronize(device)
            torch.cuda._sleep(20_000_000)  # 10 ms
            start = time.perf_counter_ns()
            for _ in range(calls):
                call(x, out)
            times.append((time.perf_counter_ns() - start) / calls / 1e3)
        torch.cuda.synchronize(device)
    return sorted(times)[bursts // 2]


def run(arguments: list[str], peers: list[Peer]) -> int:
    """The sweep with these arguments and peers; its exit code."""
    library = load()
    if not _c.library.fwht_device_count():
        note = "no CUDA device is found; the variants for the host are timed, which can take minutes"
        print(f"fwht.bench: {note}", file=sys.stderr, flush=True)
    answers = [Answers(peer) for peer in peers]
    count, argv = words_of(arguments)
    structs = (_Peer * max(len(answers), 1))(*(answer.struct for answer in answers))
    return library.fwht_bench_run(count, argv, structs, len(answers))


def words_of(arguments: list[str]) -> tuple[int, Any]:
    """argc and argv, the program's name in front."""
    words = [argument.encode() for argument in ("fwht.bench", *arguments)]
    return len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None)
