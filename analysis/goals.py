"""What the project set out to reach, beside what the sweep shows: the section "Goals" of FINDINGS.md.

`goals.csv` has a line a goal. `sizes` are element counts (2^23) or row counts (16 rows); `quantity` is one of QUANTITIES.
A goal holds for every dtype, n and size of its line that was measured; a missed one names its cause.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

GOALS = Path(__file__).parent / "goals.csv"
RIVAL = "hadacore"


@dataclass(frozen=True)
class Quantity:
    words: str  # with the bound
    digits: int
    at_least: bool


QUANTITIES = {
    "share": Quantity("of the copy limit >= {}", 3, True),
    "above copy": Quantity("us above the copy <= {}", 2, False),
    "above empty": Quantity("us above an empty kernel <= {}", 2, False),
    "saved": Quantity("us saved by programmatic launch >= {}", 2, True),
    "of hadacore": Quantity(f"times as fast as {RIVAL} >= {{}}", 2, True),
}


@dataclass(frozen=True)
class Reached:
    """A goal and the values it was measured by; `worst` is that of the least favourable row."""

    goal: dict
    values: pd.DataFrame  # dtype, n, elements, rows, value

    @property
    def quantity(self) -> Quantity:
        return QUANTITIES[self.goal["quantity"]]

    @property
    def worst(self) -> pd.Series:
        at = self.values["value"].idxmin() if self.quantity.at_least else self.values["value"].idxmax()
        return self.values.loc[at]

    @property
    def missed(self) -> pd.DataFrame:
        """Rows that miss it, after rounding to the digits that the page shows."""
        shown = self.values["value"].round(self.quantity.digits)
        bound = float(self.goal["bound"])
        return self.values[shown < bound if self.quantity.at_least else shown > bound]


def _in_sizes(results: pd.DataFrame, sizes: str) -> pd.Series:
    """Rows of one of the sizes of a goal."""
    words = sizes.replace(" rows", "r").replace(" row", "r").split()
    rows = [int(word[:-1]) for word in words if word.endswith("r")]
    elements = [1 << int(word[2:]) for word in words if word.startswith("2^")]
    return results["rows"].isin(rows) | results["elements"].isin(elements)


def _beside(part: pd.DataFrame, other: pd.DataFrame, column: str) -> pd.Series:
    """`column` of the same problem in `other`, NaN where it was not measured."""
    key = ["dtype", "n", "elements", "layout"]
    return part.merge(other[[*key, column]].drop_duplicates(key), on=key, how="left", suffixes=("", "_other"))[
        f"{column}_other"
    ].set_axis(part.index)


def _values(goal: dict, part: pd.DataFrame, ok: pd.DataFrame) -> pd.Series:
    if goal["quantity"] == "share":
        return part["fraction_of_limit"]
    if goal["quantity"] == "above copy":
        return part["time_us"] - part["limit_us"]
    if goal["quantity"] == "above empty":
        return part["time_us"] - part["empty_us"]
    if goal["quantity"] == "saved":
        ordinary = ok[(ok["variant"] == goal["variant"]) & (ok["mode"] == "replay")]
        return _beside(part, ordinary, "time_us") - part["time_us"]
    rival = ok[(ok["variant"] == RIVAL) & (ok["mode"] == goal["mode"])]
    return _beside(part, rival, "time_us") / part["time_us"]


def reached(results: pd.DataFrame) -> list[Reached]:
    """Every goal of goals.csv that these results can judge."""
    ok = results[results["status"] == "ok"]
    found = []
    for goal in pd.read_csv(GOALS, keep_default_na=False).to_dict("records"):
        part = ok[(ok["variant"] == goal["variant"]) & (ok["mode"] == goal["mode"]) & (ok["layout"] == goal["layout"])]
        part = part[part["dtype"].isin(goal["dtypes"].split()) & part["n"].between(goal["n_from"], goal["n_to"])]
        part = part[_in_sizes(part, goal["sizes"])]
        values = part[["dtype", "n", "elements", "rows"]].assign(value=_values(goal, part, ok)).dropna(subset=["value"])
        if len(values):
            found.append(Reached(goal, values))
    return found


def _place(row: pd.Series) -> str:
    power = math.log2(row["elements"])
    size = f"2^{power:.0f}" if power == int(power) else f"{row['elements']}"
    return f"{row['dtype']}, n = {row['n']}, {size}"


def table(goals: list[Reached]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: the worst value of each goal, and how many of its problems meet it."""
    header = ["variant", "n", "where", "goal", "worst", "met"]
    rows = []
    for one in goals:
        goal, worst, missed = one.goal, one.worst, len(one.missed)
        span = str(goal["n_from"]) if goal["n_from"] == goal["n_to"] else f"{goal['n_from']}..{goal['n_to']}"
        place = f"{goal['dtypes'].replace(' ', ', ')}, {goal['layout']}, {goal['mode']}, {goal['sizes']}"
        met = "all" if missed == 0 else f"**{len(one.values) - missed} of {len(one.values)}**"
        rows.append([goal["variant"], span, place, one.quantity.words.format(goal["bound"]),
                     f"{worst['value']:.{one.quantity.digits}f} ({_place(worst)})", met])  # fmt: skip
    return header, rows


def missed_causes(goals: list[Reached]) -> list[str]:
    """The causes that the missed goals name, in the order of the table; "" for one that names none."""
    return list(dict.fromkeys(one.goal["cause"] for one in goals if len(one.missed)))
