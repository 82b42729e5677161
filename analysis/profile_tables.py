"""A profile in the terminal and in pages: one table a study, cells as text."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from .profile import RESOURCES, Profile, top_stalls


def fixed(digits: int) -> Callable[[float], str]:
    return lambda value: f"{value:.{digits}f}" if value is not None and np.isfinite(value) else "–"


def percent(value: float) -> str:
    return f"{100 * value:.0f} %" if value is not None and np.isfinite(value) else "–"


def stalls_text(row, count: int = 3) -> str:
    return ", ".join(f"{reason.replace('_', ' ')} {value:.1f}" for reason, value in top_stalls(row, count)) or "–"


# Study -> header -> (column, text).
COLUMNS: dict[str, dict[str, tuple[str, Callable]]] = {
    "occupancy": {
        "registers": ("registers", fixed(0)),
        "shared B": ("shared_bytes", fixed(0)),
        "threads": ("threads", fixed(0)),
        "blocks": ("blocks", fixed(0)),
        "blocks/SM": ("resident_blocks", fixed(0)),
        "limited by": ("limiter", str),
        "possible": ("occupancy_possible", percent),
        "achieved": ("occupancy", percent),
        "waves": ("waves", fixed(2)),
        "tail": ("tail", percent),
        "SM busy": ("sm_busy", percent),
        "blocks/µs": ("blocks_per_us", fixed(0)),
        "of start rate": ("block_starts", percent),
    },
    "coalescing": {
        "sectors/load": ("sectors_per_load", fixed(1)),
        "sectors/store": ("sectors_per_store", fixed(1)),
        "useful/moved": ("useful_over_moved", fixed(3)),
        "ideal B/el": ("ideal_bytes", fixed(0)),
        "L2 B/el": ("l2_bytes", fixed(2)),
        "DRAM B/el": ("dram_bytes", fixed(2)),
        "LSU words/el": ("lsu_words", fixed(2)),
        "LDS+STS words/el": ("shared_words", fixed(2)),
        "of ideal": ("shared_over_ideal", fixed(2)),
        "conflicts/el": ("bank_conflicts", fixed(2)),
    },
    "stalls": {
        "slots/el": ("issue_slots", fixed(1)),
        "FMA pipe": ("fma_slots", fixed(1)),
        "ALU pipe": ("alu_slots", fixed(1)),
    },
    "roofline": {
        **{resource: (f"of_{resource}", percent) for resource in RESOURCES},
        "bound by": ("bound_by", str),
    },
}


def problems_table(profile: Profile, study: str) -> tuple[list[str], list[list[str]]]:
    """Header and cells: variant, problem, time, then the columns of the study."""
    columns = COLUMNS[study]
    header = ["variant", "dtype", "n", "rows", "size", "µs", *columns]
    if study == "stalls":
        header.append("waits, in warps an issued instruction")
    rows = []
    for row in profile.problems.to_dict("records"):
        cells = [row["variant"], row["dtype"], str(row["n"]), str(row["rows"]), row["regime"]]
        cells += [fixed(2)(row["time_us"]), *(text(row[column]) for column, text in columns.values())]
        if study == "stalls":
            cells.append(stalls_text(row))
        rows.append(cells)
    return header, rows


def peaks_table(profile: Profile) -> tuple[list[str], list[list[str]]]:
    """What the roofline divides by."""
    words = {name: what for name, (_, what) in RESOURCES.items()} | {"blocks": "blocks started a nanosecond"}
    rows = [[name, f"{value:.3g}", words[name]] for name, value in profile.peaks.items()]
    return ["resource", "measured peak", "unit"], rows


def as_text(header: list[str], rows: list[list[str]]) -> str:
    frame = pd.DataFrame(rows, columns=header)
    return frame.to_string(index=False) if rows else "nothing to show"


def print_profile(profile: Profile, studies: list[str]) -> None:
    print(profile.label)
    print(f"ncu {profile.about['ncu']}, {profile.about['kernels']} kernels, {profile.about['seconds']:.0f} s")
    if "roofline" in studies:
        print("\npeaks of this device, by kernels that do nothing else, in the same run")
        print(as_text(*peaks_table(profile)))
    for study in studies:
        if study in profile.about["studies"]:
            print(f"\n{study}")
            print(as_text(*problems_table(profile, study)))
    for name in profile.about["missing"]:
        print(f"not given by ncu {profile.about['ncu']}: {name}")


STATIC_COLUMNS = ("registers", "stack_bytes", "shared_bytes", "instructions", "loops", "fp32", "tensor", "shuffle",
                  "shared", "global", "local", "convert", "logic", "integer", "move", "barrier", "other")  # fmt: skip


def static_rows(table: pd.DataFrame, profile: Profile | None) -> tuple[list[str], list[list[str]]]:
    """The compiled kernels: those that were profiled where there is a profile, else all of the variants."""
    if profile is not None:
        table = table[table["symbol"].isin(profile.kernels["symbol"])]
    table = table[table["variant"] != ""].drop_duplicates(["variant", "kernel"])
    header = ["variant", "kernel", *(name.replace("_bytes", " B") for name in STATIC_COLUMNS)]
    rows = [
        [row["variant"], row["kernel"], *(fixed(0)(row[name]) for name in STATIC_COLUMNS)]
        for row in table.to_dict("records")
    ]
    return header, rows
