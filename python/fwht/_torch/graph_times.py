"""Times of calls on a GPU, by CUDA graphs or as they are."""

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
    times = _in_turn({name: graph.replay for name, graph in graphs.items()}, rounds, SLEEP_CYCLES)
    return {name: time / repeats[name] for name, time in times.items()}


def eager_times_in_turn(calls: Mapping[str, Callable[[], Any]], *, rounds: int) -> dict[str, float]:
    """The same of calls that are no graph, once a round: what the device waits for the host is part of the time. Needs a CUDA device."""
    return _in_turn(calls, rounds, 0)


def _in_turn(calls: Mapping[str, Callable[[], Any]], rounds: int, sleep: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            if sleep:
                torch.cuda._sleep(sleep)
            begin.record()
            call()
            end.record()
            end.synchronize()
            times[name].append(1e3 * begin.elapsed_time(end))
    return {name: statistics.median(values) for name, values in times.items()}


def graph_of(call: Callable[[], Any], repeats: int) -> torch.cuda.CUDAGraph:
    """A graph that holds the call `repeats` times and has been replayed once. The call is made once before: plans and libraries begin there."""
    call()
    torch.cuda.synchronize()
    graph = captured(call, repeats)
    graph.replay()
    return graph


def captured(call: Callable[[], Any], repeats: int = 1, graph: torch.cuda.CUDAGraph | None = None) -> torch.cuda.CUDAGraph:
    """A graph that holds the call `repeats` times, not replayed yet. Where it cannot be captured, the current stream is what it was.

    Other threads may work on the device meanwhile.

    graph: an empty one; None makes one.
    """
    graph = torch.cuda.CUDAGraph() if graph is None else graph
    # In some versions of PyTorch a capture that fails leaves its own stream behind.
    with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(repeats):
            call()
    return graph
