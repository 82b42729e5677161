"""Times of calls on a GPU, by CUDA graphs or as they are."""

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
    times = eager_times_in_turn({name: graph.replay for name, graph in graphs.items()}, rounds=rounds)
    return {name: time / repeats for name, time in times.items()}


def eager_times_in_turn(calls: dict[str, Callable[[], Any]], *, rounds: int) -> dict[str, float]:
    """The same of calls that are no graph, once a round: what the device waits for the host is part of the time. Needs a CUDA device."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            end.synchronize()
            times[name].append(1e3 * begin.elapsed_time(end))
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
