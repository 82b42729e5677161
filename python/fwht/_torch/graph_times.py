"""Times of calls on a GPU, by CUDA graphs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

import torch

SLEEP_CYCLES = 400_000  # a fifth of a millisecond: the host has queued a replay before the device begins it


def times_in_turn(calls: Mapping[str, Callable[[], Any]], *, repeats: int, rounds: int) -> dict[str, float]:
    """Microseconds of each call: the median of `rounds` replays of a graph that holds it `repeats` times, the calls in turn.

    Clocks fall while a GPU works: calls that are not taken in turn are not comparable. Needs a CUDA device.
    """
    graphs = {name: graph_of(call, repeats) for name, call in calls.items()}
    return replayed_in_turn(graphs, dict.fromkeys(graphs, repeats), rounds)


def replayed_in_turn(graphs: Mapping[str, torch.cuda.CUDAGraph], repeats: Mapping[str, int], rounds: int) -> dict[str, float]:
    """The same for graphs that are there, each with so many calls."""
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(SLEEP_CYCLES)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(1e3 * begin.elapsed_time(end) / repeats[name])
    return {name: statistics.median(values) for name, values in times.items()}


def graph_of(call: Callable[[], Any], repeats: int) -> torch.cuda.CUDAGraph:
    """A graph that holds the call `repeats` times and has been replayed once. The call is made once before: plans and libraries begin there."""
    call()
    torch.cuda.synchronize()
    graph = captured(call, repeats)
    graph.replay()
    return graph


def captured(call: Callable[[], Any], repeats: int = 1) -> torch.cuda.CUDAGraph:
    """A graph that holds the call `repeats` times, not replayed yet. Where it cannot be captured, the current stream is what it was.

    Other threads may work on the device meanwhile.
    """
    graph = torch.cuda.CUDAGraph()
    # In some versions of PyTorch a capture that fails leaves its own stream behind.
    with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(repeats):
            call()
    return graph
