"""Times of calls on a GPU, by CUDA graphs."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch


def times_in_turn(calls: dict[str, Callable[[], Any]], *, repeats: int, rounds: int) -> dict[str, float]:
    """Microseconds of each call: the median of `rounds` replays of a graph that holds it `repeats` times, the calls in turn.

    Clocks fall while a GPU works: calls that are not taken in turn are not comparable. Needs a CUDA device.
    """
    graphs = {name: _graph(call, repeats) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(1e3 * begin.elapsed_time(end) / repeats)
    return {name: statistics.median(values) for name, values in times.items()}


def _graph(call: Callable[[], Any], repeats: int) -> torch.cuda.CUDAGraph:
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            call()
    graph.replay()
    return graph
