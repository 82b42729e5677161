"""Kernels of others beside the variants of this library, in one process, by the protocol and limit of `fwht_sweep`.

    python -m fwht.bench --list-peers
    python -m fwht.bench --grid published --variant auto --output results
    python -m fwht.bench --peer dao=CHECKOUT --problem f16/n4096/r8192/out --mode replay --mode alternating

Every result is checked against FP64 before it is timed, and a wrong one has no time. The results folder is that of the
sweep (docs/measuring.md); its rows have `peer:NAME` as their variant. The library `libfwht_bench.so` does the work. It is
built with the experiments of the repository (`ninja fwht_bench`) and is in no wheel: FWHT_BENCH_LIBRARY names the file,
else it is looked for beside the build that FWHT_LIBRARY names. Needs PyTorch and a CUDA device.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._run import agreement, main
    from .peers import PEERS, Peer, Problem

__all__ = ["PEERS", "Peer", "Problem", "agreement", "main"]


def __getattr__(name: str) -> Any:
    """Its parts need PyTorch; the command line says so in one line where there is none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import _run, peers

    return getattr(_run if name in ("agreement", "main") else peers, name)
