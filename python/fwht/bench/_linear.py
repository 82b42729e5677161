"""Linear layers with 4-bit weights of others, by the protocol and limit of `fwht_linear` (experiments/bench/linear_peers.h).

    python -m fwht.bench linear --peer tinygemm --variant w4a16_pipelined --problem bf16/m16/n4096/k4096/w4g128 --output results
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
from typing import Any, NamedTuple, Sequence

import torch

from .. import _c
from ._library import Streams, load, reported, tensor_at, words_of


class Layer(NamedTuple):
    """y = x W for m tokens; GPTQ's tensors have k / group groups."""

    m: int
    n: int
    k: int
    group: int
    dtype: torch.dtype
    zero_points: str  # "v1", "v2", "symmetric"
    device: int


class LinearPeer:
    name = ""
    summary = ""

    def missing(self) -> str:
        """Why it cannot be used here; empty where it can."""
        raise NotImplementedError

    def settings(self) -> dict[str, str]:
        return {"torch": torch.__version__, "cuda": str(torch.version.cuda)}

    def why_not(self, layer: Layer) -> str:
        raise NotImplementedError

    def parts(self, layer: Layer) -> list[tuple[tuple[int, ...], torch.dtype]]:
        """Shapes and dtypes of its own form of the weights, one behind the other in one block."""
        raise NotImplementedError

    def pack(self, layer: Layer, q: torch.Tensor, z: torch.Tensor, scales: torch.Tensor) -> list[torch.Tensor]:
        """The parts, from q (k, n) and z (groups, n) as int32 and scales (groups, n) as float16, all on the device."""
        raise NotImplementedError

    def call(self, layer: Layer, x: torch.Tensor, parts: list[torch.Tensor]) -> torch.Tensor:
        raise NotImplementedError


class Tinygemm(LinearPeer):
    """W = s (q - 8) + b in bfloat16: scales and offsets are rounded to it."""

    name = "tinygemm"
    summary = "torch.ops.aten._weight_int4pack_mm: PyTorch's own kernel, bfloat16"
    inner = 8  # k tiles in one load

    def missing(self) -> str:
        return "" if hasattr(torch.ops.aten, "_weight_int4pack_mm") else "this PyTorch has no _weight_int4pack_mm"

    def settings(self) -> dict[str, str]:
        return {**super().settings(), "inner_k_tiles": str(self.inner)}

    def why_not(self, layer: Layer) -> str:
        if layer.dtype != torch.bfloat16:
            return f"{layer.dtype} data are not offered"
        if layer.group not in (32, 64, 128, 256):
            return f"group {layer.group}: 32, 64, 128 and 256 are offered"
        return "" if layer.k % (16 * self.inner) == 0 else f"k={layer.k} must be a multiple of {16 * self.inner}"

    def parts(self, layer: Layer) -> list[tuple[tuple[int, ...], torch.dtype]]:
        tiles = (layer.n // 8, layer.k // (16 * self.inner), 32, self.inner // 2)
        return [(tiles, torch.int32), ((layer.k // layer.group, layer.n, 2), torch.bfloat16)]

    def pack(self, layer: Layer, q: torch.Tensor, z: torch.Tensor, scales: torch.Tensor) -> list[torch.Tensor]:
        rows = q.t().to(torch.uint8)
        tiles = torch.ops.aten._convert_weight_to_int4pack((rows[:, ::2] << 4 | rows[:, 1::2]).contiguous(), self.inner)
        offsets = (8 - z) * scales.float()
        return [tiles, torch.stack([scales.float(), offsets], -1).to(torch.bfloat16)]

    def call(self, layer: Layer, x: torch.Tensor, parts: list[torch.Tensor]) -> torch.Tensor:
        return torch.ops.aten._weight_int4pack_mm(x, parts[0], layer.group, parts[1])


LINEAR_PEERS: dict[str, type[LinearPeer]] = {kind.name: kind for kind in (Tinygemm,)}


def unpacked(words: torch.Tensor, along: int) -> torch.Tensor:
    """The eight numbers of each word, side by side along dimension 0 or 1."""
    shifts = torch.arange(0, 32, 4, device=words.device, dtype=torch.int32)
    if along == 0:
        return (words[:, None, :] >> shifts[None, :, None] & 15).reshape(-1, words.shape[1])
    return (words[:, :, None] >> shifts & 15).reshape(words.shape[0], -1)


# --- the way into the library ----------------------------------------------------------------------------------------


class _Problem(ctypes.Structure):
    _fields_ = [
        ("text", ctypes.c_char_p),
        ("problem", _c.LinearProblem),
        ("device", ctypes.c_int32),
    ]

    def layer(self) -> Layer:
        p = self.problem
        return Layer(p.m, p.n, p.k, p.group, (torch.float16, torch.bfloat16)[p.dtype], _c.ZERO_POINTS[p.zero_points], self.device)


_Asked, _Address, _I32 = ctypes.POINTER(_Problem), ctypes.c_void_p, ctypes.c_int32
_Supports = ctypes.CFUNCTYPE(_I32, _Asked, _Address, ctypes.c_size_t)
_PackedBytes = ctypes.CFUNCTYPE(ctypes.c_int64, _Asked)
_Pack = ctypes.CFUNCTYPE(_I32, _Asked, _Address, _Address, _Address, _Address, _Address, ctypes.c_size_t)
_Launch = ctypes.CFUNCTYPE(_I32, _Asked, _Address, _Address, _Address, _Address, _Address, ctypes.c_size_t)


class _Peer(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("settings", ctypes.c_char_p),
        ("supports", _Supports),
        ("packed_bytes", _PackedBytes),
        ("pack", _Pack),
        ("launch", _Launch),
    ]


def _bytes(part: tuple[tuple[int, ...], torch.dtype]) -> int:
    size = part[1].itemsize
    for length in part[0]:
        size *= length
    return (size + 255) // 256 * 256


def _host(pointer: int, shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
    count = shape[0] * shape[1] * dtype.itemsize
    return torch.frombuffer((ctypes.c_uint8 * count).from_address(pointer), dtype=dtype).reshape(shape)


class LinearAnswers(Streams):
    """A peer as the four C functions. Must live as long as the library calls them."""

    def __init__(self, peer: LinearPeer):
        super().__init__()
        self._peer = peer
        self.struct = _Peer(
            f"peer:{peer.name}".encode(), json.dumps(peer.settings()).encode(), _Supports(self._supports),
            _PackedBytes(lambda asked: sum(map(_bytes, peer.parts(asked.contents.layer())))), _Pack(self._pack),
            _Launch(self._launch),
        )  # fmt: skip

    def _supports(self, asked: Any, why: int, size: int) -> int:
        return reported(lambda: self._peer.why_not(asked.contents.layer()), why, size)

    def _pack(self, asked: Any, qweight: int, qzeros: int | None, scales: int, packed: int, why: int, size: int) -> int:
        def pack() -> str:
            layer = asked.contents.layer()
            groups, device = layer.k // layer.group, f"cuda:{layer.device}"
            q = unpacked(_host(qweight, (layer.k // 8, layer.n), torch.int32).to(device), 0)
            if qzeros:
                z = unpacked(_host(qzeros, (groups, layer.n // 8), torch.int32).to(device), 1) + (layer.zero_points == "v1")
            else:
                z = torch.full((groups, layer.n), 8, dtype=torch.int32, device=device)
            parts = self._peer.pack(layer, q, z, _host(scales, (groups, layer.n), torch.float16).to(device))
            at = packed
            for made, part in zip(parts, self._peer.parts(layer)):
                if (tuple(made.shape), made.dtype) != part:
                    return f"a part is {tuple(made.shape)} {made.dtype}, not {part}"
                here = made.contiguous().cpu()
                ctypes.memmove(at, here.data_ptr(), here.numel() * here.element_size())
                at += _bytes(part)
            return ""

        return reported(pack, why, size)

    def _launch(self, asked: Any, x: int, packed: int, y: int, stream: int | None, why: int, size: int) -> int:
        def enqueue() -> str:
            layer = asked.contents.layer()
            with self.on(stream, layer.device), torch.no_grad():
                parts, at = [], packed
                for part in self._peer.parts(layer):
                    parts.append(tensor_at(at, *part, layer.device))
                    at += _bytes(part)
                self.outputs.pop(packed, None)
                result = self._peer.call(layer, tensor_at(x, (layer.m, layer.k), layer.dtype, layer.device), parts)
                if torch.cuda.is_current_stream_capturing():
                    self.outputs[packed] = result
                else:
                    tensor_at(y, (layer.m, layer.n), layer.dtype, layer.device).copy_(result)
            return ""

        return reported(enqueue, why, size)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fwht.bench linear", allow_abbrev=False,
        description="Times linear layers with 4-bit weights of others beside the variants of this library.",
        epilog="Every other argument is one of fwht_linear: --list, --problem, --variant, --mode, --output, --dry-run ...",
    )  # fmt: skip
    parser.add_argument(
        "--peer", action="append", metavar="NAME", help=f"one of {', '.join(LINEAR_PEERS)}; repeated. Default: all; 'none': none"
    )
    options, rest = parser.parse_known_args(arguments)
    try:
        peers = []
        for name in [] if "none" in (options.peer or []) else options.peer or LINEAR_PEERS:
            if name not in LINEAR_PEERS:
                raise ValueError(f"--peer {name}: unknown; known: {', '.join(LINEAR_PEERS)}, none")
            peer = LINEAR_PEERS[name]()
            if why := peer.missing():
                raise ValueError(f"--peer {name}: {why}")
            peers.append(peer)
        library = load()
    except (ValueError, ImportError) as error:
        print(f"fwht.bench: {error}", file=sys.stderr)
        return 2
    answers = [LinearAnswers(peer) for peer in peers]
    count, argv = words_of(rest)
    structs = (_Peer * max(len(answers), 1))(*(answer.struct for answer in answers))
    run = library.fwht_bench_linear_run
    run.restype, run.argtypes = ctypes.c_int32, [ctypes.c_int32, ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(_Peer), ctypes.c_size_t]
    return run(count, argv, structs, len(answers))
