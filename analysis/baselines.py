"""Published kernels as measured on one H200, and a results folder compared with them.

The table and its provenance lie in `baselines/`. Fractions of the copy limit carry over between machines;
times do not, so times are only shown beside results of the same GPU.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

from .load import Device, ResultsError

FILE = Path(__file__).parent / "baselines" / "h200_published.csv"
GPU = "H200"
NAMES = {
    "hadacore": "published HadaCore (H200)",
    "fast_hadamard_transform": "published fast-hadamard-transform (H200)",
}
# Which published kernel a variant is the counterpart of.
COUNTERPART = {
    "warp_shuffle": "fast_hadamard_transform",
    "hadacore_published": "hadacore",
    "hadacore": "hadacore",
}
COLUMNS = ["variant", "method", "dtype", "n", "elements", "mode", "fraction", "baseline_fraction",
           "relative_difference", "time_us", "baseline_time_us"]  # fmt: skip


@cache
def published() -> pd.DataFrame:
    """The table with a column fraction = copy_us / time_us. Shared: do not modify."""
    table = pd.read_csv(FILE)
    table["fraction"] = table["copy_us"] / table["time_us"]
    return table


def same_gpu(device: str) -> bool:
    """Whether absolute times of the published table may stand beside those of `device`."""
    return GPU in device


def compare(device: Device) -> pd.DataFrame:
    """Fraction of the copy limit, measured against published, for every measurement that has a counterpart.

    `relative_difference` is fraction / baseline_fraction - 1: positive when the variant here is nearer to its
    limit than the published kernel was to its own. Columns as in COLUMNS.
    """
    ok = device.results[(device.results["status"] == "ok") & (device.results["layout"] == "in place")]
    ok = ok[ok["memory"] == "device"].assign(method=ok["variant"].map(COUNTERPART)).dropna(subset=["method"])
    other = published().rename(columns={"fraction": "baseline_fraction", "time_us": "baseline_time_us"})
    both = ok.merge(other, on=["method", "dtype", "n", "elements", "mode"], how="inner")
    both["fraction"] = both["fraction_of_limit"]
    both["relative_difference"] = both["fraction"] / both["baseline_fraction"] - 1
    return both[COLUMNS].sort_values(
        ["variant", "method", "dtype", "mode", "n", "elements"], ignore_index=True
    )


def compare_all(devices: list[Device]) -> pd.DataFrame:
    """`compare` for several devices, with a first column `device`; ResultsError when nothing matches."""
    tables = [compare(device).assign(device=device.name) for device in devices]
    table = pd.concat(tables, ignore_index=True)[["device", *COLUMNS]]
    if table.empty:
        raise ResultsError(
            "no measurement here has a published counterpart; that takes warp_shuffle, hadacore or "
            "hadacore_published "
            "in place, f16 or bf16, mode replay or cold, and a size of the published table"
        )
    return table
