"""The generated sections of README.md: what each variant supports, and the newest committed results.

The support table comes from the code itself (`fwht_sweep --list-json`), the results table from the newest
complete GPU folder that is committed. Both are pure functions of their source, so writing twice changes
nothing.
"""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

from . import tables
from .load import DTYPES, Device, Folder, ResultsError, load, load_folder

ROOT = Path(__file__).resolve().parent.parent
FIGURES = Path("analysis") / "readme_figures"
FEW_ROWS = (1, 4, 16, 64)
RESULTS = Path("experiments") / "results"
MARKERS = {name: (f"<!-- {name}:begin -->", f"<!-- {name}:end -->") for name in ("support", "results")}


def replace_section(text: str, name: str, body: str) -> str:
    """`text` with the lines between the markers of `name` replaced; ResultsError without the markers."""
    begin, end = MARKERS[name]
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ResultsError(f"the README needs the markers {begin} and {end} once each, in this order")
    head, rest = text.split(begin)
    return f"{head}{begin}\n{body.strip()}\n{end}{rest.split(end)[1]}"


# ------------------------------------------------------------------------------------------------- support


def find_sweep(root: Path = ROOT) -> Path | None:
    """The newest fwht_sweep of the build directories `build` and `build/<preset>`."""
    places = ("experiments", "experiments/sweep", "bin")
    found = [
        f for place in places for up in ("", "*/") for f in (root / "build").glob(f"{up}{place}/fwht_sweep")
    ]
    return max((f for f in found if f.is_file()), key=lambda f: f.stat().st_mtime, default=None)


def support_from_program(program: Path) -> dict:
    """What `fwht_sweep --list-json` prints; ResultsError when it cannot be run or prints no JSON."""
    try:
        done = subprocess.run(
            [str(program), "--list-json"], capture_output=True, text=True, timeout=120, check=True
        )
        return json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ResultsError(f"{program} --list-json gave no support list: {error}") from None


def support_from_file(path: Path) -> dict:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path} holds no support list: {error}") from None


def not_built(listing: dict) -> list[str]:
    """Variants whose back end this build lacks: their answers say nothing about the variant."""
    return [
        variant["name"]
        for variant in listing["variants"]
        if all(r["reason"].startswith("built without") for s in variant["support"] for r in s["refused"])
        and not any(s["n"] for s in variant["support"])
    ]


def support_section(listing: dict) -> str:
    """A table from what list_variants_json in experiments/support/cli.hpp describes.

    Throws ResultsError for another shape.
    """
    try:
        named = {entry["dtype"] for variant in listing["variants"] for entry in variant["support"]}
        dtypes = [dtype for dtype in DTYPES if dtype in named]
        lines = [
            f"Row lengths n on {listing['machine']} (contiguous rows), as the variants themselves answer:",
            "",
            f"| variant | runs on | {' | '.join(dtypes)} | in place / out of place |",
            f"| --- | --- | {' | '.join('---' for _ in dtypes)} | --- |",
        ]
        reasons: dict[str, str] = {}
        for variant in listing["variants"]:
            cells = [_support_cell(variant, dtype) for dtype in dtypes]
            places = _placements(variant)
            lines.append(f"| {variant['name']} | {variant['memory']} | {' | '.join(cells)} | {places} |")
            if places == "–":
                reasons[variant["name"]] = next(r["reason"] for s in variant["support"] for r in s["refused"])
        lines += [""] * bool(reasons)
        lines += [f"- {name}: {reason}" for name, reason in reasons.items()]
        return "\n".join(lines)
    except (KeyError, TypeError, StopIteration) as error:
        raise ResultsError(f"the support list lacks {error}") from None


def _support_cell(variant: dict, dtype: str) -> str:
    ns = {n for entry in variant["support"] if entry["dtype"] == dtype for n in entry["n"]}
    return _powers(ns) if ns else "–"


def _powers(ns: set[int]) -> str:
    """As n_ranges, with powers of two from 2^16 on written as such."""

    def text(part: str) -> str:
        return (
            f"2^{int(part).bit_length() - 1}" if int(part) >= 1 << 16 and int(part).bit_count() == 1 else part
        )

    return ", ".join("–".join(text(n) for n in run.split("–")) for run in tables.n_ranges(ns).split(", "))


def _placements(variant: dict) -> str:
    placements = {entry["placement"] for entry in variant["support"] if entry["n"]}
    return " / ".join("yes" if p in placements else "no" for p in ("in", "out")) if placements else "–"


# ------------------------------------------------------------------------------------------------- results


def committed_folders(root: Path = ROOT) -> list[Path]:
    """Results folders that git knows; all of them where there is no git (an unpacked archive)."""
    folder = root / RESULTS
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "ls-files", "--", f"{RESULTS.as_posix()}/*/context.json"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return sorted((root / line).parent for line in done.stdout.splitlines() if (root / line).is_file())
    except (OSError, subprocess.SubprocessError):
        return sorted(path.parent for path in folder.glob("*/context.json"))


def newest_gpu_results(folders: list[Path]) -> Device | None:
    """The newest clean, complete GPU run that holds times, all folders of it; None when there is none."""
    run = newest_run(folders)
    return load(run)[0] if run else None


def newest_run(folders: list[Path]) -> list[Path]:
    """The folder with the newest GPU times, and those that stand together with it: of the same device, commit and
    sources. Dirty and unfinished ones are passed over."""
    good = []
    for path in folders:
        try:
            good.append(load_folder(path))
        except ResultsError:
            continue
    timed = [f for f in good if f.on_gpu and (f.results["status"] == "ok").any()]
    if not timed:
        return []
    newest = max(timed, key=lambda f: f.context["utc_start"])

    def origin(folder: Folder) -> tuple[str, str, str]:
        return folder.device, folder.commit, folder.context["sources_hash"]

    return [f.path for f in good if origin(f) == origin(newest)]


def results_section(device: Device | None) -> str:
    """Best variant per n and size, each size in the mode that judges it best, one table per dtype."""
    if device is None:
        return "No results of a GPU are committed yet."
    newest = device.newest
    names = ", ".join(f"[`{f.name}`]({RESULTS.as_posix()}/{f.name})" for f in device.folders)
    lines = [
        f"{device.name}, commit `{newest.commit[:10]}`, {newest.context['utc_start'][:10]}, {names}. "
        "Each cell: the best variant, its share of the measured "
        "copy limit, its time, its error divided by the error of rounding the exact result once.",
        "",
        f"![Error against speed of every variant at three sizes]({FIGURES.as_posix()}/headline.svg)",
        "",
        f"![Speed-up over warp_shuffle by row length (from 128, as in the HadaCore paper) and size]({FIGURES.as_posix()}/speedup.png)",
    ]
    errors = tables.errors(device).set_index(["variant", "dtype", "n"])["over_ideal"]
    for dtype in tables.dtypes_of(device):
        summary = tables.headline(device, dtype)
        if not summary.cells:
            continue
        titles = [f"{size.title(dtype)}, {size.mode}" for size in summary.sizes]
        lines += [
            "",
            f"| {dtype}, {summary.layout}: n | {' | '.join(titles)} |",
            f"| ---: |{' --- |' * len(titles)}",
        ]
        for n in summary.ns:
            cells = [_result_cell(summary.cells.get((n, size)), errors, dtype, n) for size in summary.sizes]
            lines.append(f"| {n} | {' | '.join(cells)} |")
    return "\n".join(lines + few_rows_lines(device, errors))


def few_rows_lines(device: Device, errors) -> list[str]:
    """The best variant for a few rows, as in decoding: small launches, mode replay."""
    layout = tables.main_layout(device.results)
    part = device.results[(device.results["layout"] == layout) & (device.results["mode"] == "replay")]
    part = part[part["rows"].isin(FEW_ROWS) & (part["n"] >= 256) & (part["status"] == "ok")]
    best = tables.best(part).set_index(["dtype", "n", "rows"])
    lines = []
    for dtype in (d for d in DTYPES if d in set(part["dtype"])):
        ns = sorted({n for d, n, _ in best.index if d == dtype})
        counts = [r for r in FEW_ROWS if any((dtype, n, r) in best.index for n in ns)]
        titles = [f"{r} row{'s' * (r > 1)}" for r in counts]
        lines += [
            "",
            f"| {dtype}, few rows, replay: n | {' | '.join(titles)} |",
            f"| ---: |{' --- |' * len(counts)}",
        ]
        for n in ns:
            found = [best.loc[(dtype, n, r)] if (dtype, n, r) in best.index else None for r in counts]
            lines.append(f"| {n} | {' | '.join(_result_cell(row, errors, dtype, n) for row in found)} |")
    if lines:
        lines += ["", "Any other size: `python -m analysis which --n 8192 --dtype bf16 --rows 4`."]
    return lines


def write_figures(device: Device, root: Path = ROOT) -> list[Path]:
    """The figures of the README: SVG, and PNG where thousands of marks would make the SVG large."""
    from . import figures, svg  # slow to import, and not needed for the text

    folder = root / FIGURES
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with figures.matplotlib.rc_context(figures.STYLE):
        if headline := figures.draw_headline(device):
            paths.append(folder / "headline.svg")
            paths[-1].write_text(svg.as_file(svg.to_svg(headline)) + "\n", encoding="utf-8")
        if speedup := figures.draw_speedups(device, "f16", "replay", smallest_n=128, without=["naive"]):
            paths.append(folder / "speedup.png")
            speedup.figure.savefig(paths[-1], dpi=110, metadata={"Software": None})
    return paths


def _result_cell(row, errors, dtype: str, n: int) -> str:
    if row is None:
        return "–"
    error = errors.get((row["variant"], dtype, n), float("nan"))
    tail = f", {error:.2f}" if math.isfinite(error) else ""
    return (
        f"{row['variant']} {100 * row['fraction_of_limit']:.0f} %, {tables.time_text(row['time_us'])}{tail}"
    )


# ------------------------------------------------------------------------------------------------- command


def regenerate(text: str, support: dict | None, device: Device | None) -> str:
    """README text with fresh sections; without a support list that section stays as it is."""
    if support is not None:
        text = replace_section(text, "support", support_section(support))
    return replace_section(text, "results", results_section(device))
