"""Profiles of Nsight Compute: what the counters say about a variant on a problem.

`load_profile` reads `profile.csv` of a results folder; `derive` turns its counters into one row a problem; the
roofline divides by what the same counters showed for the peak kernels of the same run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from .load import ELEMENT_BYTES, ResultsError
from .ncu import COMMON, STALLS, identity
from .schema import Strict, line_of, read_json
from .tables import IN_L2

# Per resource: the peak kernels whose greatest rate is the peak, and what the rate counts, per what.
RESOURCES = {
    "issue": ("fp32", "instructions a cycle and SM"),
    "fp32": ("fp32", "instructions a cycle and SM"),
    "LSU": ("shuffle, shared", "wavefronts a cycle and SM"),
    "tensor": ("mma_sync, wgmma", "busy cycles of its four parts a cycle and SM"),
    "L2": ("l2", "bytes a nanosecond, from and to the SMs"),
    "DRAM": ("dram", "bytes a nanosecond"),
}
SMALL, L2_SIZED, DRAM_SIZED = "small", "L2", "DRAM"
REGIMES = (SMALL, L2_SIZED, DRAM_SIZED)
MODE_OF = {SMALL: "replay", L2_SIZED: "alternating", DRAM_SIZED: "replay"}  # whose times stand beside the counters
SATURATED = 0.75  # from here on a resource counts as what limits a kernel


class About(Strict):
    """profile.json, as ncu.py writes it."""

    ncu: str
    studies: list[str]
    metrics: list[str]
    missing: list[str]
    kernels: int
    seconds: float


@dataclass(frozen=True)
class Profile:
    """One profiled folder: a row a kernel, and what profile.json says about the run."""

    path: Path
    context: dict
    about: dict
    kernels: pd.DataFrame
    settings: pd.DataFrame

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def device(self) -> str:
        return self.context["device"]["name"]

    @property
    def l2_bytes(self) -> int:
        return int(self.context["device"]["l2_bytes"])

    @property
    def label(self) -> str:
        return f"{self.name}  |  {self.device}  |  commit {self.context['commit'][:10]}"

    @property
    def variants(self) -> list[str]:
        present = set(self.kernels["variant"])
        return [v for v in self.context["variants"] if v in present]

    @cached_property
    def peaks(self) -> dict[str, float]:
        """Per resource the greatest rate of its peak kernels; resources without one are left out."""
        rows = self.kernels[self.kernels["peak"] != ""]
        kinds = rows["peak"].where(~rows["peak"].str.startswith("dram_"), "dram")
        rates = _rates(rows).assign(peak=kinds)
        found = {}
        for resource, (kernels, _) in RESOURCES.items():
            own = rates.loc[rates["peak"].isin(kernels.split(", ")), resource]
            if own.notna().any():
                found[resource] = float(own.max())
        blocks = rows[rows["peak"] == "blocks"]
        if len(blocks):
            rate = blocks["launch__grid_size"] / blocks["gpu__time_duration.sum"]
            found["blocks"] = float(rate.iloc[0])
        return found

    @cached_property
    def mixed_stream(self) -> tuple[float, float]:
        """Time of the kernel that mixes mma.sync with fp32 additions, over the sum of what its products and its
        additions take alone: as measured, and as it would be if the shorter hid under the longer. NaN without
        these kernels."""
        kernels = ["fp32", "mma_sync", "mma_sync_fp32"]
        rows = self.kernels.set_index("peak")
        if not set(kernels) <= set(rows.index):
            return math.nan, math.nan
        rows = rows.loc[kernels]
        time, additions = _column(rows, "gpu__time_duration.sum"), _column(rows, "sm__inst_executed_pipe_fma.sum")
        # The products are as many as those of mma_sync.
        alone = time["mma_sync"], time["fp32"] * additions["mma_sync_fp32"] / additions["fp32"]
        return float(time["mma_sync_fp32"] / sum(alone)), float(max(alone) / sum(alone))

    @cached_property
    def problems(self) -> pd.DataFrame:
        return derive(self)

    @property
    def transforms(self) -> pd.DataFrame:
        """The problems of plain rows of 2^k: one for a variant, dtype, n, size and placement."""
        rows = self.problems
        return rows if rows.empty else rows[(rows["operator"] == rows["n"].astype(str)) & (rows["encoding"] == "")]


def load_profile(path: Path, context: dict) -> Profile | None:
    """None when the folder holds no profile; ResultsError when it holds half of one."""
    file = Path(path) / "profile.csv"
    if not file.is_file():
        return None
    try:
        about = read_json(path / "profile.json", About).model_dump()
        kernels = pd.read_csv(file, keep_default_na=False, na_values=[""])
        settings = pd.read_csv(path / "launches.csv", dtype=str, keep_default_na=False)
        settings["kernels"].astype(int)
    except (OSError, ValueError, KeyError) as error:
        raise ResultsError(f"{path.name}: the profile cannot be read: {error}") from None
    if "operator" not in kernels:  # folders of before had plain transforms alone
        kernels = kernels.assign(operator=kernels["n"].astype("Int64").astype(str).where(kernels["n"].notna(), ""), encoding="")
    numbers = [c for c in (*COMMON, *about["metrics"], "n", "rows", "elements", "row_stride", "useful_bytes") if c in kernels]
    if wrong := [c for c in numbers if kernels[c].dtype.kind not in "if"]:
        raise ResultsError(f"{path.name}: profile.csv has text in column {wrong[0]}")
    lacking = [c for c in (*identity(settings), "kernel", "symbol", *COMMON, *about["metrics"]) if c not in kernels]
    if lacking:
        raise ResultsError(f"{path.name}: profile.csv lacks column {', '.join(lacking)}")
    for column in ("variant", "peak", "operator", "encoding", "dtype", "placement", "kernel", "symbol"):
        kernels[column] = kernels[column].fillna("").astype(str)
    _check_numbers(path, kernels)
    if len(kernels) != settings["kernels"].astype(int).sum():
        raise ResultsError(f"{path.name}: profile.csv and launches.csv do not name the same kernels")
    return Profile(Path(path), context, about, kernels, settings)


def _check_numbers(path: Path, kernels: pd.DataFrame) -> None:
    """ResultsError for a launch without what every verdict divides by; what belongs to one study may be absent."""
    own = kernels["variant"] != ""
    checks = [(name, ~(kernels[name].gt(0) & np.isfinite(kernels[name]))) for name in COMMON]
    checks += [(name, own & ~kernels[name].gt(0)) for name in ("n", "rows", "elements", "row_stride", "useful_bytes")]
    for name, wrong in [*checks, ("dtype", own & ~kernels["dtype"].isin(list(ELEMENT_BYTES)))]:
        if wrong.any():
            value = kernels.loc[wrong, name].iloc[0]
            raise ResultsError(f"{path.name}: profile.csv has {'no' if pd.isna(value) else f'{value} as'} {name} in line {line_of(wrong)}")


def regime(tensor_bytes: float, l2_bytes: int) -> str:
    """As tables.regime divides them; between L2 and DRAM nothing is profiled."""
    if tensor_bytes <= l2_bytes / 64:
        return SMALL
    return L2_SIZED if tensor_bytes <= IN_L2 * l2_bytes else DRAM_SIZED


def _column(rows: pd.DataFrame, name: str) -> pd.Series:
    """A metric, NaN where its study was not run."""
    return rows[name].astype(float) if name in rows else pd.Series(math.nan, index=rows.index)


def _rates(rows: pd.DataFrame) -> pd.DataFrame:
    """What each resource does per cycle and SM, or per nanosecond, in the units of RESOURCES."""
    cycles = _column(rows, "sm__cycles_elapsed.max") * _column(rows, "launch__sm_count")
    nanoseconds = _column(rows, "gpu__time_duration.sum")
    sectors = _column(rows, "lts__t_sectors_srcunit_tex_op_read.sum") + _column(rows, "lts__t_sectors_srcunit_tex_op_write.sum")
    dram = _column(rows, "dram__bytes_read.sum") + _column(rows, "dram__bytes_write.sum")
    return pd.DataFrame(
        {
            "issue": _column(rows, "smsp__inst_executed.sum") / cycles,
            "fp32": _column(rows, "sm__inst_executed_pipe_fma.sum") / cycles,
            "LSU": _column(rows, "l1tex__data_pipe_lsu_wavefronts.sum") / cycles,
            "tensor": _column(rows, "sm__pipe_tensor_cycles_active.sum") / cycles,
            "L2": 32 * sectors / nanoseconds,
            "DRAM": dram / nanoseconds,
        }
    )


def _limiter(row) -> str:
    """What keeps more blocks from being resident: the grid, or the tightest of the launch's limits."""
    limits = {
        "registers": row.get("launch__occupancy_limit_registers"),
        "shared memory": row.get("launch__occupancy_limit_shared_mem"),
        "blocks": row.get("launch__occupancy_limit_blocks"),
        "warps": row.get("launch__occupancy_limit_warps"),
    }
    known = {name: value for name, value in limits.items() if value is not None and np.isfinite(value)}
    if not known:
        return ""
    least = min(known.values())
    if row["launch__grid_size"] < least * row["launch__sm_count"]:
        return "grid"
    return " = ".join(name for name, value in known.items() if value == least)


def derive(profile: Profile) -> pd.DataFrame:
    """One row a problem. Counters of several kernels add up; shapes are those of the longest one."""
    own = profile.kernels[profile.kernels["variant"] != ""]
    keys = ["variant", "operator", "encoding", "dtype", "n", "rows", "elements", "placement", "row_stride", "useful_bytes"]
    if own.empty:
        return pd.DataFrame()
    problems = own.groupby(keys, sort=False)
    longest = own.loc[problems["gpu__time_duration.sum"].idxmax()]
    sums = problems[[*own.select_dtypes("number").columns.difference(keys)]].sum(min_count=1)
    rates = _rates(sums.assign(launch__sm_count=longest["launch__sm_count"].to_numpy()))
    of_each = zip(longest.to_dict("records"), sums.to_dict("records"), rates.to_dict("records"), problems.size(), strict=True)
    table = pd.DataFrame(
        [{key: long[key] for key in keys} | _derive_problem(long, total, rate, kernels, profile.peaks) for long, total, rate, kernels in of_each]
    )
    table = table.astype(dict.fromkeys(("n", "rows", "elements", "row_stride", "useful_bytes"), "int64"))
    table["regime"] = [regime(e * ELEMENT_BYTES[d], profile.l2_bytes) for e, d in zip(table["elements"], table["dtype"])]
    return table


def _derive_problem(long: dict, sums: dict, rates: dict, kernels: int, peaks: dict[str, float]) -> dict:
    """Args: long: the row of the problem's longest kernel; sums: over its kernels; rates: of RESOURCES."""
    elements, useful = float(long["elements"]), float(long["useful_bytes"])

    def total(name: str) -> float:
        return float(sums.get(name, math.nan))

    def ratio(a: float, b: float) -> float:
        return a / b if b else math.nan

    sms, blocks = float(long["launch__sm_count"]), float(long["launch__grid_size"])
    limits = [long.get(f"launch__occupancy_limit_{w}", math.nan) for w in ("registers", "shared_mem", "blocks", "warps")]
    resident = float(np.min(limits)) if len(limits) else math.nan
    waves = blocks / (resident * sms) if resident else math.nan
    nanoseconds = total("gpu__time_duration.sum")
    lsu = total("l1tex__data_pipe_lsu_wavefronts.sum")
    shared_ld = total("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum")
    shared_st = total("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum")
    shared_bytes = sum(np.nan_to_num(total(f"sm__sass_data_bytes_mem_shared_op_{op}.sum")) for op in ("ld", "ldsm", "st", "stsm"))
    moved = total("l1tex__m_xbar2l1tex_read_bytes.sum") + total("l1tex__m_l1tex2xbar_write_bytes.sum")
    entry = {
        "kernel": long["kernel"],
        "symbol": long["symbol"],
        "kernels": kernels,
        "time_us": nanoseconds / 1e3,
        "clock_ghz": total("sm__cycles_elapsed.max") / nanoseconds,
        "elements_per_clock": elements / (total("sm__cycles_elapsed.max") * sms),
        "blocks": int(blocks),
        "sms": int(sms),
        "threads": int(long["launch__block_size"]),
        "registers": long.get("launch__registers_per_thread", math.nan),
        "shared_bytes": long.get("launch__shared_mem_per_block", math.nan),
        "resident_blocks": resident,
        "limiter": _limiter(long),
        "occupancy_possible": long.get("sm__maximum_warps_per_active_cycle_pct", math.nan) / 100,
        "occupancy": long.get("sm__warps_active.avg.pct_of_peak_sustained_active", math.nan) / 100,
        "waves": waves,
        "tail": 1 - waves / math.ceil(waves) if waves >= 1 else math.nan,
        "sm_busy": ratio(float(long.get("sm__cycles_active.avg", math.nan)), float(long["sm__cycles_elapsed.max"])),
        "blocks_per_us": blocks / float(long["gpu__time_duration.sum"]) * 1e3,
        "block_starts": ratio(blocks / float(long["gpu__time_duration.sum"]), peaks.get("blocks", math.nan)),
        "sectors_per_load": ratio(
            total("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"),
            total("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"),
        ),
        "sectors_per_store": ratio(
            total("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"),
            total("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"),
        ),
        "useful_over_moved": ratio(useful, moved),
        "ideal_bytes": useful / elements,
        "l2_bytes": 32 * (total("lts__t_sectors_srcunit_tex_op_read.sum") + total("lts__t_sectors_srcunit_tex_op_write.sum")) / elements,
        "dram_bytes": (total("dram__bytes_read.sum") + total("dram__bytes_write.sum")) / elements,
        "lsu_words": 32 * lsu / elements,
        "shared_words": 32 * (shared_ld + shared_st) / elements,
        "shared_over_ideal": ratio(shared_ld + shared_st, shared_bytes / 128),
        "bank_conflicts": 32 * sum(
            total(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum") for op in ("ld", "st")
        ) / elements,
        "issue_slots": 32 * total("smsp__inst_executed.sum") / elements,
        "fma_slots": 32 * total("sm__inst_executed_pipe_fma.sum") / elements,
        "alu_slots": 32 * total("sm__inst_executed_pipe_alu.sum") / elements,
        "tensor_cycles": total("sm__pipe_tensor_cycles_active.sum") / elements,
    }  # fmt: skip
    entry |= {f"of_{resource}": ratio(rate, peaks.get(resource, math.nan)) for resource, rate in rates.items()}
    stalls = {reason: float(long.get(f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio", math.nan)) for reason in STALLS}
    entry |= {f"stall_{reason}": value for reason, value in stalls.items()}
    entry["bound_by"] = bound_by(entry)
    entry["waits"] = stalls_text(entry)
    return entry


def top_stalls(row, count: int = 3) -> list[tuple[str, float]]:
    """The reasons for which warps wait, in warps an issued instruction, greatest first; without "selected"."""
    waits = {reason: row.get(f"stall_{reason}", math.nan) for reason in STALLS if reason != "selected"}
    known = {reason: value for reason, value in waits.items() if np.isfinite(value) and value > 0.005}
    return sorted(known.items(), key=lambda item: -item[1])[:count]


def resource_shares(row) -> dict[str, float]:
    """Share of the measured peak per resource, with the rate at which blocks start."""
    shares = {resource: row.get(f"of_{resource}", math.nan) for resource in RESOURCES}
    shares["block starts"] = row.get("block_starts", math.nan)
    return {name: float(share) for name, share in shares.items() if np.isfinite(share)}


def bound_by(row) -> str:
    """The verdict, by rule: the resource that is at SATURATED of its measured peak over the whole launch, else
    during the time in which the SMs have work; else a grid that is too small; else latency."""
    shares = resource_shares(row)
    if not shares:
        return ""
    name, share = max(shares.items(), key=lambda item: item[1])
    if share >= SATURATED:
        return f"{name} {100 * share:.0f} %"
    waits = top_stalls(row, 1)
    why = f"; waits: {waits[0][0].replace('_', ' ')}" if waits else ""
    busy = row.get("sm_busy", math.nan)
    if row.get("waves", math.nan) < 0.5:
        return f"latency: {row['blocks']} block{'s' * (row['blocks'] > 1)} for {row['sms']} SMs{why}"
    if busy > 0 and share / busy >= SATURATED:
        return f"start and tail: SMs busy {100 * busy:.0f} %, then {name} {100 * share / busy:.0f} %"
    known = f"SMs busy {100 * busy:.0f} %, " if np.isfinite(busy) else ""
    return f"latency: {known}{name} {100 * share:.0f} %{why}"


# ---------------------------------------------------------------------------------------------------------------- tables

# Study -> columns.
STUDY_COLUMNS = {
    "occupancy": ["registers", "shared_bytes", "threads", "blocks", "resident_blocks", "limiter", "occupancy_possible", "occupancy", "waves", "tail",
                  "sm_busy", "blocks_per_us", "block_starts"],
    "coalescing": ["sectors_per_load", "sectors_per_store", "useful_over_moved", "ideal_bytes", "l2_bytes", "dram_bytes", "lsu_words", "shared_words",
                   "shared_over_ideal", "bank_conflicts"],
    "stalls": ["issue_slots", "fma_slots", "alu_slots", "waits"],
    "roofline": [*(f"of_{resource}" for resource in RESOURCES), "bound_by"],
}  # fmt: skip
PROBLEM_COLUMNS = ["variant", "operator", "encoding", "dtype", "rows", "regime", "time_us"]
REPORT_COLUMNS = [*PROBLEM_COLUMNS, "bound_by", *(c for columns in STUDY_COLUMNS.values() for c in columns if c != "bound_by")]


def stalls_text(row, count: int = 3) -> str:
    return ", ".join(f"{reason.replace('_', ' ')} {value:.1f}" for reason, value in top_stalls(row, count)) or "–"


def peaks_table(profile: Profile) -> pd.DataFrame:
    """What the roofline divides by: columns resource, peak, unit."""
    words = {name: what for name, (_, what) in RESOURCES.items()} | {"blocks": "blocks started a nanosecond"}
    return pd.DataFrame([{"resource": name, "peak": f"{value:.3g}", "unit": words[name]} for name, value in profile.peaks.items()])
