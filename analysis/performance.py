"""FINDINGS.md: what limits each variant, from the times of a sweep and the counters of a profile.

Every number is filled in from the two folders that the text names; the sentences around them are kept here.
`python -m analysis findings` writes the page.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from . import baselines, readme, static_code, tables
from .load import DTYPES, Device, ResultsError, load, load_folder
from .profile import DRAM_SIZED, L2_SIZED, REGIMES, SATURATED, SMALL, Profile, load_profile
from .profile_tables import fixed, percent, stalls_text

MODE_OF = {SMALL: "replay", L2_SIZED: "alternating", DRAM_SIZED: "replay"}
PORTABILITY = ("warp_shuffle", "hadacore", "kokkos_cuda")
PORTABILITY_DTYPES = ("f16", "f32")  # bf16 costs what f16 does
PORTABILITY_N = (64, 1024, 4096, 8192, 16384, 32768)
PUBLISHED_DESIGNS = ("warp_shuffle", "hadacore_published")
PUBLISHED_WORDS = (
    "`warp_shuffle` has the structure of fast-hadamard-transform, `hadacore_published` the launch shapes of HadaCore; how "
    "their times compare with the published sources is what `python -m analysis baselines` says."
)
GAIN_WORDS = (
    f"`auto` beside the published kernels, all sizes that both were measured at (in place, f16 and bf16, replay, n >= "
    f"{baselines.SMALLEST_N}; geometric means). The published shares stand on copies that give every thread one to eight vectors "
    "and end; the sweep knows persistent copies too, which in replay meet their own addresses in the L2 and are up to a quarter "
    "faster at 4 to 32 MiB. The times of small launches differ by more than the kernels: the published ones were taken in a process "
    "that had used few streams, in which a launch is up to 0.17 us shorter (experiments/README.md)."
)


@dataclass(frozen=True)
class Source:
    """Counters and times, looked up by variant, n and size."""

    profile: Profile
    device: Device

    def row(self, variant: str, n: int, size: str, dtype: str = "f16") -> dict | None:
        table = self.profile.problems
        found = table[
            (table["variant"] == variant) & (table["n"] == n) & (table["regime"] == size) & (table["dtype"] == dtype)
        ]
        return found.iloc[0].to_dict() if len(found) else None

    def fraction(self, row: dict) -> float:
        """Of the sweep's limit, at the profiled size, in the mode that judges it best; else at the size of the same
        regime that the sweep has."""
        results = self.device.results
        part = results[
            (results["variant"] == row["variant"]) & (results["dtype"] == row["dtype"]) & (results["n"] == row["n"])
        ]
        part = part[(part["mode"] == MODE_OF[row["regime"]]) & (part["layout"] == "in place")]
        part = part[(part["elements"] == row["elements"]) & (part["status"] == "ok")]
        return float(part["fraction_of_limit"].iloc[0]) if len(part) else math.nan

    def say(self, variant: str, n: int, size: str, *fields: str, dtype: str = "f16") -> str:
        """The values of `fields` in words, joined by commas; "not profiled" where there is no such launch."""
        row = self.row(variant, n, size, dtype)
        if row is None:
            return "not profiled"
        return ", ".join(WORDS[field](self, row) for field in fields)


WORDS: dict[str, Callable[[Source, dict], str]] = {
    "limit": lambda s, r: f"{percent(s.fraction(r))} of the limit",
    "lsu": lambda s, r: f"{r['lsu_words']:.1f} words of the LSU pipe an element",
    "shared": lambda s, r: f"{r['shared_words']:.1f} words through shared memory an element",
    "slots": lambda s, r: f"{r['issue_slots']:.1f} issue slots an element",
    "of_lsu": lambda s, r: f"LSU pipe {percent(r['of_LSU'])} of its peak",
    "of_dram": lambda s, r: f"DRAM {percent(r['of_DRAM'])}",
    "of_l2": lambda s, r: f"L2 {percent(r['of_L2'])}",
    "of_issue": lambda s, r: f"issue {percent(r['of_issue'])}",
    "of_tensor": lambda s, r: f"tensor pipe {percent(r['of_tensor'])}",
    "starts": lambda s, r: f"blocks start at {percent(r['block_starts'])} of the device's rate",
    "registers": lambda s, r: f"{r['registers']:.0f} registers a thread",
    "resident": lambda s, r: f"{r['resident_blocks']:.0f} block{'s' * (r['resident_blocks'] != 1)} an SM "
    f"({r['limiter']})",
    "occupancy": lambda s, r: f"{percent(r['occupancy'])} occupancy",
    "waves": lambda s, r: f"{r['waves']:.2f} waves",
    "busy": lambda s, r: f"SMs with work {percent(r['sm_busy'])} of the time",
    "waits": lambda s, r: f"waits: {stalls_text(r, 2)}",
    "bytes": lambda s, r: f"{r['dram_bytes']:.1f} bytes of DRAM an element",
    "l2bytes": lambda s, r: f"{r['l2_bytes']:.1f} bytes of L2 an element",
}


def load_source(device: Device, profiled: Path, *, allow_dirty: bool = False) -> Source:
    """Times and counters, both checked as every results folder is; ResultsError in a sentence."""
    folder = load_folder(profiled, allow_dirty=allow_dirty)
    found = load_profile(folder.path, folder.context)
    if found is None:
        raise ResultsError(f"{folder.name} holds no profile.csv")
    if device.name != folder.device:
        raise ResultsError(f"{device.newest.name} is of {device.name}, {folder.name} of {folder.device}")
    return Source(found, device)


def newest_profile(folders: Iterable[Path]) -> Path | None:
    """The newest clean folder with a profile."""
    good = []
    for path in folders:
        try:
            folder = load_folder(path)
        except ResultsError:
            continue
        if (path / "profile.csv").is_file():
            good.append(folder)
    return max(good, key=lambda f: f.context["utc_start"]).path if good else None


# -------------------------------------------------------------------------------------------------- tables


def markdown(header: list[str], rows: list[list[str]]) -> list[str]:
    lines = [f"| {' | '.join(header)} |", f"|{'|'.join(' --- ' for _ in header)}|"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def variant_table(source: Source, variant: str, dtype: str) -> list[str]:
    """By n: share of the copy limit in the sweep and verdict of the counters at each size; what an element costs and how many
    blocks an SM holds, at the largest size."""
    problems = source.profile.problems
    own = problems[(problems["variant"] == variant) & (problems["dtype"] == dtype)]
    sizes = [size for size in REGIMES if (own["regime"] == size).any()]
    rows = []
    for n in sorted(own["n"].unique()):
        found = {size: row for size in sizes if (row := source.row(variant, int(n), size, dtype))}
        cells = [f"{percent(source.fraction(found[s]))}; {found[s]['bound_by']}" if s in found else "–" for s in sizes]
        last = list(found.values())[-1]
        cells += [fixed(1)(last["lsu_words"]), fixed(1)(last["issue_slots"]), fixed(0)(last["registers"]),
                  f"{fixed(0)(last['resident_blocks'])} ({last['limiter']})"]  # fmt: skip
        rows.append([str(n), *cells])
    header = [f"{dtype}: n", *(f"{size}, {MODE_OF[size]}" for size in sizes), "LSU words/el", "issue slots/el", "registers",
              "blocks/SM"]  # fmt: skip
    return markdown(header, rows) if rows else []


def portability_table(source: Source) -> list[str]:
    """Kokkos' kernels beside those they compete with, at DRAM size."""
    problems = source.profile.problems
    part = problems[problems["variant"].isin(PORTABILITY) & (problems["regime"] == DRAM_SIZED)]
    keys = set(part[part["variant"] == "kokkos_cuda"][["dtype", "n"]].itertuples(index=False, name=None))
    rows = []
    for dtype, n in itertools.product(PORTABILITY_DTYPES, PORTABILITY_N):
        if (dtype, n) not in keys:
            continue
        for variant in PORTABILITY:
            row = source.row(variant, int(n), DRAM_SIZED, dtype)
            if row is None:
                continue
            rows.append(
                [
                    dtype, str(n), variant, percent(source.fraction(row)), fixed(1)(row["lsu_words"]),
                    fixed(1)(row["shared_words"]), fixed(1)(row["issue_slots"]), fixed(0)(row["registers"]),
                    fixed(0)(row["resident_blocks"]), f"{percent(row['occupancy_possible'])} / {percent(row['occupancy'])}",
                    row["bound_by"],
                ]
            )  # fmt: skip
    header = ["dtype", "n", "variant", "of limit", "LSU words/el", "scratch words/el", "issue slots/el", "registers",
              "blocks/SM", "occupancy possible / achieved", "bound by"]  # fmt: skip
    return markdown(header, rows) if rows else []


def static_lines(folder: Path, profile: Profile | None) -> list[str]:
    """Registers and spills in the compiled code: of the profiled kernels, or of all without a profile."""
    table = static_code.load_static(folder)
    if table is None:
        return []
    table = table[table["variant"] != ""].drop_duplicates(["variant", "kernel"])
    if profile is not None:
        table = table[table["symbol"].isin(profile.kernels["symbol"])]
    spilled = table[table["local"] > 0]
    lines = [
        "## Compiled code",
        "",
        f"Registers and spills by `cuobjdump` (`{Path(folder).name}/static.csv`): {len(table)} kernels"
        + (", all of which were profiled. " if profile is not None else ". ")
        + ("None touches local memory." if spilled.empty else "Those that touch local memory:"),
    ]
    if len(spilled):
        columns = ["variant", "kernel", "registers", "stack_bytes", "local", "instructions"]
        rows = [[str(row[c]) for c in columns] for row in spilled.to_dict("records")]
        lines += ["", *markdown(["variant", "kernel", "registers", "stack B", "LDL + STL", "instructions"], rows)]
    return lines


def folder_names(device: Device) -> str:
    return ", ".join(f"`experiments/results/{folder.name}`" for folder in device.folders)


def sources_line(source: Source) -> str:
    profile, device = source.profile, source.device
    return (
        f"{device.name}. Times: {folder_names(device)} (commit `{device.newest.commit[:10]}`); "
        f"counters: `experiments/results/{profile.name}` (commit `{profile.context['commit'][:10]}`, ncu "
        f"{profile.about['ncu']}, {profile.about['kernels']} launches in {profile.about['seconds']:.0f} s)."
    )


# ----------------------------------------------------------------------------------------------------- text


def notes(s: Source) -> dict[str, list[str]]:
    """Per variant: why, with the numbers of the folders, and what to try next."""
    d, l2, small = DRAM_SIZED, L2_SIZED, SMALL
    return {
        "naive": [
            f"Nothing but passes over memory: at n = 64 {s.say('naive', 64, d, 'bytes', 'of_dram')}, against 4 bytes that "
            "must move. Each pass alone is as fast as a copy.",
            "Next: nothing; it is there to show what keeping the row on the chip is worth.",
        ],
        "warp_shuffle": [
            f"Short rows are bound by the rate at which blocks start: n = 64 {s.say('warp_shuffle', 64, d, 'starts')}, n = 256 "
            f"{s.say('warp_shuffle', 256, d, 'starts', 'of_dram')}. From n = 1024 the shuffle and shared-memory pipe is the "
            f"limit: n = 1024 {s.say('warp_shuffle', 1024, d, 'lsu', 'of_lsu', 'of_dram')}; n = 8192 "
            f"{s.say('warp_shuffle', 8192, d, 'lsu', 'of_lsu')}. Loading and storing alone need one word.",
            f"At n = 32768 a thread holds 128 sums: {s.say('warp_shuffle', 32768, d, 'registers', 'resident', 'occupancy', 'of_lsu')}. "
            "One block an SM cannot load while it computes.",
            "Next: several rows a block for short rows; fewer words: the tensor cores (hadacore) or an exchange that "
            "keeps the lane (mma_split).",
        ],
        "hadacore_published": [
            f"Up to n = 512 its 1 KiB blocks meet the same start rate: n = 256 {s.say('hadacore_published', 256, d, 'starts', 'of_dram')}; "
            f"2 KiB blocks (hadacore) do not: {s.say('hadacore', 256, d, 'starts', 'of_dram')}.",
            f"At 4096 and 8192 it is the LSU pipe: {s.say('hadacore_published', 4096, d, 'lsu', 'of_lsu', 'of_dram')} and "
            f"{s.say('hadacore_published', 8192, d, 'lsu', 'of_lsu', 'of_dram')}; the same stages in the shapes of hadacore take "
            f"{s.say('hadacore', 8192, d, 'lsu', 'of_lsu', 'of_dram')}.",
            f"At 32768 nothing is saturated ({s.say('hadacore_published', 32768, d, 'resident', 'occupancy', 'of_dram', 'waits')}): one "
            "block an SM loads, waits, computes, waits, stores.",
            "Next: what hadacore does: larger blocks for short rows, fewer words at 4096 and 8192, two resident rows above.",
        ],
        "hadacore": [
            f"DRAM up to n = 8192 ({s.say('hadacore', 8192, d, 'of_dram')}); at 32768 {s.say('hadacore', 32768, d, 'of_dram', 'resident', 'waits')}.",
            f"In the L2 a launch lasts only {s.say('hadacore', 8192, l2, 'waves', 'busy')}: start and tail cost what is "
            f"missing; n = 32768: {s.say('hadacore', 32768, l2, 'waves', 'busy', 'of_l2', 'waits')}.",
            "Next: loads of the next row before the present one is stored (bulk copies), at n >= 16384.",
        ],
        "hadacore_f32": [
            f"As hadacore: accumulating in fp32 costs nothing that is scarce (n = 8192 {s.say('hadacore_f32', 8192, d, 'slots', 'of_issue', 'of_dram')}).",
        ],
        "mma_split": [
            f"DRAM: n = 1024 {s.say('mma_split', 1024, d, 'of_dram', 'lsu')}, n = 8192 {s.say('mma_split', 8192, d, 'of_dram', 'lsu', 'registers')}. "
            f"The hi + lo pairs show in the tensor pipe ({s.say('mma_split', 1024, d, 'of_tensor')}), where nobody waits for them.",
            f"In the L2: n = 1024 {s.say('mma_split', 1024, l2, 'waves', 'busy', 'of_l2', 'waits')}; n = 8192 "
            f"{s.say('mma_split', 8192, l2, 'waves', 'busy', 'of_l2', 'waits')}.",
            f"n = 16384 in the L2: {s.say('mma_split', 16384, l2, 'resident', 'occupancy', 'waves', 'shared', 'of_l2', 'waits')}. The fp32 sums "
            "of 2^23 elements are 32 MiB, the register files of 132 SMs 33 MiB: three rows an SM, and a second wave for the rest. hadacore, "
            "which keeps and exchanges 16-bit data, has all rows there at once: "
            f"{s.say('hadacore', 16384, l2, 'resident', 'occupancy', 'waves', 'shared', 'of_l2', 'waits')}. That is what one rounding costs there.",
            f"Next: shorter code for one row (n = 8192, few rows: {s.say('mma_split', 8192, small, 'waits')}); rows of 16384 of "
            "which more than three are on a multiprocessor, in transformation or on their way.",
        ],
        "wgmma": [
            f"Fewest words of all: n = 8192 {s.say('wgmma', 8192, d, 'lsu', 'slots', 'of_dram')}; n = 32768 "
            f"{s.say('wgmma', 32768, d, 'lsu', 'slots', 'of_dram', 'resident')}. No pipe is near its peak "
            f"({s.say('wgmma', 32768, d, 'of_tensor', 'of_issue', 'of_lsu')}): what is missing at 32768 is rows in flight.",
            f"In the L2 latency decides: n = 8192 {s.say('wgmma', 8192, l2, 'waves', 'busy', 'of_l2', 'waits')}; n = 32768 "
            f"{s.say('wgmma', 32768, l2, 'waves', 'busy', 'of_l2', 'waits')}.",
            f"At 32768 a row's exact stage is 2048 clocks of the tensor pipe (128 products an element) and its finish as many again: "
            f"{s.say('wgmma', 32768, l2, 'of_tensor', 'slots', 'of_issue', 'occupancy')}. Two warps a scheduler, all that 128 fp32 sums a thread "
            "allow, cannot overlap the two, and 2^23 elements are two rows an SM, so that no third row fills the time.",
            f"mma.sync and fp32 additions overlap only in part, although no counter shows a pipe that they share: a kernel that mixes them "
            f"(mma_sync_fp32, eight warps a scheduler) takes {percent(s.profile.mixed_stream[0])} of the time that its products and its additions "
            f"take one after the other, and {percent(s.profile.mixed_stream[1])} would be the products alone. The finish is made of the two, with two to "
            "four warps a scheduler; rings of 8192 to 32768 save two of six products with eight more additions.",
            f"At 65536 it is that for each half of a row, and each fills the register file with sums: {s.say('wgmma', 65536, d, 'of_tensor', 'of_dram', 'occupancy', 'waits')}.",
            f"For few rows of 32768 the row is read by every block of its cluster: {s.say('wgmma', 32768, small, 'l2bytes', 'busy')}; "
            "that is the price of an output split without an exchange.",
            "Next: a finish that leaves the tensor pipe to the next row's exact stage (mma.sync and wgmma share it), and stores that "
            "begin before a whole row is transformed. Attempts that lost: docs/attempts.md.",
        ],
        "auto": [
            "What it picks launches: the counters are those of mma_split, wgmma or warp_shuffle, which their sections explain.",
            "Next: nothing of its own; it gains what they gain.",
        ],
        "kokkos_cuda": [
            f"Every lane bit goes through team scratch: n = 1024 {s.say('kokkos_cuda', 1024, d, 'shared', 'lsu', 'of_lsu', 'slots', 'of_issue')}; "
            f"n = 8192 {s.say('kokkos_cuda', 8192, d, 'shared', 'lsu', 'of_lsu', 'registers', 'occupancy')}.",
            f"At 32768 {s.say('kokkos_cuda', 32768, d, 'resident', 'registers', 'occupancy', 'lsu', 'of_dram', 'waits')}: 48 KiB of "
            "scratch force the row through in pieces, and one team an SM has nothing to overlap with.",
            "Next: nothing within the common language; with team scratch beyond 48 KiB the third exchange would go.",
        ],
    }


def page(source: Source) -> str:
    """The whole of FINDINGS.md."""
    profile = source.profile
    written = notes(source)
    lines = [
        "# Findings",
        "",
        "What limits each variant at a small, an L2 and a DRAM size, and the counter that shows it. Written by "
        "`python -m analysis findings` from the two folders; do not edit.",
        "",
        sources_line(source),
        "",
        "How to read. `98 %; DRAM 97 %`: in the sweep the variant reaches 98 % of the copy limit, and the profiler counts 97 % of "
        "the DRAM bytes a nanosecond that a copy reaches under the profiler. A resource is named as the limit from "
        f"{100 * SATURATED:.0f} % of its measured peak on; \"start and tail\" when it gets there while SMs have work but the launch is so "
        "short that they have none for much of it; \"latency\" when nothing is near its peak: then the commonest reason of waiting "
        "warps is given. Peaks: "
        + ", ".join(f"{name} {value:.3g}" for name, value in profile.peaks.items())
        + " (units in the report). The profiler times one launch alone, which is slower than one of many; shares of limit come "
        "from the sweep.",
    ]
    for variant in profile.variants:
        shown = next((t for d in DTYPES if (t := variant_table(source, variant, d))), [])
        lines += ["", f"## {variant}", "", *shown, ""]
        for paragraph in written.get(variant, ["No words on this variant yet; the tables speak for it."]):
            lines += [paragraph, ""]
        lines.pop()
    lines += ["", *published_section(source)]
    if static := static_lines(source.profile.path, source.profile):
        lines += ["", *static]
    table = portability_table(source)
    if table:
        lines += ["", "## What portability costs", "", *portability_lines(source)]
    return "\n".join(lines).rstrip() + "\n"


def page_without_counters(device: Device) -> str:
    """FINDINGS.md while no profile of a clean build is committed: what the times alone show, and what is missing."""
    lines = [
        "# Findings",
        "",
        "Written by `python -m analysis findings`; do not edit.",
        "",
        "**No counters are committed yet.** What limits a variant is only known from its profile, and no folder with a "
        "profile of a clean build is in `experiments/results`. This makes one, beside a sweep of the same build, and writes "
        "this page again with the counters of every variant:",
        "",
        "    ./testbed profile --resume RESULTS && python -m analysis findings",
        "",
        f"Times: {folder_names(device)} (commit `{device.newest.commit[:10]}`), {device.name}.",
        "",
        "## Where the published designs lose",
        "",
        PUBLISHED_WORDS + " Share of the copy limit, f16, in place:",
        "",
        *published_times(device),
    ]
    for folder in device.folders:
        if static := static_lines(folder.path, None):
            lines += ["", *static]
    return "\n".join(lines) + "\n"


def published_times(device: Device) -> list[str]:
    """The published designs and the best variant, per n, at the sizes of the summary."""
    view = tables.headline(device, "f16")
    results = device.results[(device.results["layout"] == view.layout) & (device.results["dtype"] == "f16")]
    results = results[results["status"] == "ok"]
    fractions = results.set_index(["variant", "mode", "elements", "n"])["fraction_of_limit"]
    rows = []
    for n in view.ns:
        cells = [str(n)]
        for size in view.sizes:
            own = [fractions.get((v, size.mode, size.elements, n), math.nan) for v in PUBLISHED_DESIGNS]
            best = view.cells.get((n, size))
            words = "–" if best is None else f"{best['variant']} {percent(best['fraction_of_limit'])}"
            cells.append(f"{percent(own[0])}, {percent(own[1])}; {words}")
        rows.append(cells)
    header = ["n", *(f"{s.label}, {s.mode}: {', '.join(PUBLISHED_DESIGNS)}; best" for s in view.sizes)]
    return markdown(header, rows)


def published_section(source: Source) -> list[str]:
    """Where the published designs lose against the best variant, row length by row length."""
    sizes = (L2_SIZED, DRAM_SIZED)
    rows = []
    for design in PUBLISHED_DESIGNS:
        problems = source.profile.problems
        own = problems[(problems["variant"] == design) & (problems["dtype"] == "f16")]
        for n in sorted(own[own["regime"].isin(sizes)]["n"].unique()):
            rows.append([design, str(n)])
            for size in sizes:
                row = source.row(design, int(n), size)
                best = None if row is None else _best(source, row)
                rows[-1].append("–" if row is None else f"{percent(source.fraction(row))}; {row['bound_by']}")
                rows[-1].append("–" if best is None else f"{best['variant']} {percent(best['fraction_of_limit'])}")
    header = ["design", "n", *(text for size in sizes for text in (f"{size}, {MODE_OF[size]}", "best variant"))]
    lines = [
        "## Where the published kernels lose",
        "",
        PUBLISHED_WORDS + " f16:",
        "",
        *markdown(header, rows),
    ]
    if gains := gain_table(source.device):
        lines += ["", GAIN_WORDS, "", *gains]
    return lines


def gain_table(device: Device) -> list[str]:
    """`auto` over the published kernels at every size that both were measured at."""
    rows = [
        [
            baselines.NAMES[gain.method], str(gain.points), f"{gain.share:.3f}", f"{gain.one_shot_share:.3f}",
            f"{gain.published_share:.3f}", fixed(2)(gain.speedup), f"{fixed(3)(gain.worst)} ({gain.worst_at})",
        ]
        for gain in baselines.gains(device, "auto")
    ]  # fmt: skip
    header = ["against", "sizes", "auto, of the sweep's limit", "auto, of one-shot copies", "published kernel, of one-shot copies",
              "times as fast", "at worst"]  # fmt: skip
    return markdown(header, rows) if rows else []


def _best(source: Source, row: dict) -> pd.Series | None:
    best = tables.best(source.device.results)
    found = best[
        (best["n"] == row["n"]) & (best["elements"] == row["elements"]) & (best["dtype"] == row["dtype"])
        & (best["mode"] == MODE_OF[row["regime"]]) & (best["layout"] == "in place")
    ]  # fmt: skip
    return found.iloc[0] if len(found) else None


def portability_lines(source: Source) -> list[str]:
    """The table and what it says."""
    return [
        "Counters of one launch at DRAM size:",
        "",
        *portability_table(source),
        "",
        "`kokkos_cuda` transforms its lane bits through team scratch where `warp_shuffle` shuffles and exchanges: fewer words of the "
        "same pipe, so it is faster, although the common language has no shuffle. Against `hadacore` it pays in issue slots "
        "(butterflies on the FP32 pipe, address arithmetic of the scratch) and, where a row needs more than 48 KiB, in resident teams.",
    ]


def write(root: Path, sweep: Path | None, profiled: Path | None, *, allow_dirty: bool = False) -> list[Path]:
    """FINDINGS.md, from the newest committed folders unless named."""
    folders = readme.committed_folders(root)
    device = load([sweep], allow_dirty=allow_dirty)[0] if sweep else readme.newest_gpu_results(folders)
    profiled = profiled or newest_profile(folders)
    if device is None:
        raise ResultsError("findings need a committed sweep of a GPU")
    written = [root / "analysis" / "FINDINGS.md"]
    if profiled is None:
        written[0].write_text(page_without_counters(device), encoding="utf-8")
        return written
    source = load_source(device, profiled, allow_dirty=allow_dirty)
    written[0].write_text(page(source), encoding="utf-8")
    return written

