"""Goals are judged by the least favourable problem, and every missed one has a cause."""

from __future__ import annotations

import pandas as pd
import pytest

from analysis import goals, performance, readme
from analysis.test_performance import source  # noqa: F401  (a fixture)


def results(**columns) -> pd.DataFrame:
    row = {"variant": "auto", "dtype": "f16", "n": 8192, "rows": 1024, "elements": 1 << 23, "layout": "in place",
           "mode": "alternating", "status": "ok", "time_us": 7.0, "limit_us": 6.3, "empty_us": 0.7, "fraction_of_limit": 0.9}  # fmt: skip
    length = max(len(values) for values in columns.values())
    return pd.DataFrame([{**row, **{name: values[i] for name, values in columns.items()}} for i in range(length)])


def only(table: pd.DataFrame, quantity: str, variant: str = "auto") -> goals.Reached:
    found = [g for g in goals.reached(table) if g.goal["quantity"] == quantity and g.goal["variant"] == variant]
    assert len(found) == 1
    return found[0]


def test_the_least_favourable_problem_counts():
    goal = only(results(elements=[1 << 23, 1 << 24], fraction_of_limit=[0.88, 0.951]), "share")
    assert goal.worst["value"] == 0.88 and goal.worst["elements"] == 1 << 23
    assert list(goal.missed["value"]) == [0.88]
    _, (row,) = goals.table([goal])
    assert row[-2:] == ["0.880 (f16, n = 8192, 2^23)", "**1 of 2**"]


def test_a_value_that_rounds_to_the_goal_meets_it():
    goal = only(results(fraction_of_limit=[0.9496]), "share")
    assert goal.missed.empty and goals.missed_causes([goal]) == []
    assert not only(results(fraction_of_limit=[0.9494]), "share").missed.empty


def test_failed_problems_and_other_sizes_are_no_evidence():
    assert goals.reached(results(status=["failed"])) == []
    assert goals.reached(results(elements=[1 << 20], rows=[128])) == []


def test_distances_and_savings():
    above = only(results(elements=[1 << 21], time_us=[2.6], limit_us=[2.0]), "above copy")
    assert above.worst["value"] == pytest.approx(0.6) and len(above.missed) == 1
    pair = results(mode=["replay", "replay_pdl"], rows=[1, 1], elements=[8192, 8192], time_us=[2.0, 1.5])
    saved = [g for g in goals.reached(pair) if g.goal["quantity"] == "saved"]
    assert [g.worst["value"] for g in saved] == [pytest.approx(0.5)]


def test_a_rival_that_was_not_measured_is_no_evidence():
    one = results(variant=["wgmma"])
    assert [g.goal["quantity"] for g in goals.reached(one)] == ["share"]
    both = results(variant=["wgmma", "hadacore"], time_us=[7.0, 6.3])
    assert only(both, "of hadacore", "wgmma").worst["value"] == pytest.approx(0.9)


def test_every_cause_has_words(source):  # noqa: F811
    named = set(pd.read_csv(goals.GOALS, keep_default_na=False)["cause"]) - {""}
    assert named == set(performance.causes(source))


def test_the_committed_results_miss_no_goal_without_a_cause():
    """FINDINGS.md would have nothing to say about it."""
    root = goals.GOALS.parent.parent
    device = readme.newest_gpu_results(readme.committed_folders(root))
    assert device is not None and "" not in goals.missed_causes(goals.reached(device.results))
