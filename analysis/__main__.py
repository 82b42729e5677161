"""Command line. A refused request ends with one sentence and exit code 2."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd

from .load import DTYPES, MODES, Device, ResultsError, load, load_folder

ROOT = Path(__file__).resolve().parent.parent
PROFILE_OPTIONS = {
    "variant": "names, with commas or repeated (default: all on the device)",
    "grid": "a built-in grid or a file (default: quick)",
    "problem": "a problem instead of a grid: f16/n4096/r8192[/out]",
    "n": "only these row lengths of the grid: 4096, 2^12, 16..256",
    "dtype": "only f16, bf16 or f32 of the grid",
    "rows": "these row counts instead of the grid's",
    "resume": "a results folder of the same build to add the profile to",
}  # handed on to fwht_profile


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns the exit code: 0, 1 (readme --check found a difference), 2 (refused)."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except ResultsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()  # the reader (head, less) has seen enough
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m analysis", description="Tables, figures and reports from results folders."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    report = commands.add_parser(
        "report", help="one self-contained HTML page with figures; prints its path last"
    )
    report.add_argument(
        "results",
        nargs="*",
        type=Path,
        metavar="RESULTS",
        help="results folders; without any the newest committed ones, and the figures of the README",
    )
    _allow(report, mixed=True)
    report.add_argument(
        "--output", type=Path, metavar="FILE.html", help="default: build/reports/<newest folder>/report.html"
    )
    report.add_argument(
        "--no-files", action="store_true", help="do not write the figures as separate SVG and PNG files"
    )
    report.set_defaults(run=_report)

    table = commands.add_parser("table", help="which variant is best, in the terminal")
    _folders(table)
    table.add_argument("--dtype", choices=DTYPES, help="only this type")
    table.add_argument("--mode", choices=MODES, help="only this mode")
    table.add_argument(
        "--variant", help="all measurements of this variant instead of the best of each problem"
    )
    table.add_argument("--all", action="store_true", help="all sizes, not only the three of the summary")
    table.set_defaults(run=_table)

    which = commands.add_parser("which", help="which variant for one problem, and how far from the limit")
    which.add_argument("results", nargs="*", type=Path, metavar="RESULTS", help="default: the newest committed")
    which.add_argument("--n", type=int, required=True)
    which.add_argument("--dtype", choices=DTYPES, default="f16")
    which.add_argument("--rows", type=int, required=True)
    _allow(which, mixed=True)
    which.set_defaults(run=_which)

    compare = commands.add_parser("compare", help="speed-up of folder B over folder A, problem by problem")
    compare.add_argument("a", type=Path, metavar="A")
    compare.add_argument("b", type=Path, metavar="B")
    compare.add_argument("--output", type=Path, metavar="FILE.csv", help="write every common measurement")
    compare.add_argument(
        "--all", action="store_true", help="print every common measurement, not only the summary"
    )
    _allow(compare, mixed=False)
    compare.set_defaults(run=_compare)

    published = commands.add_parser(
        "baselines",
        help="fractions of the limit against those of the published kernels, and which bounds they miss",
    )
    _folders(published)
    published.add_argument(
        "--output", type=Path, metavar="FILE.csv", help="write the table instead of printing it"
    )
    published.set_defaults(run=_baselines)

    paper = commands.add_parser(
        "paper", help="the HadaCore paper's tables and claims: hadacore against warp_shuffle"
    )
    _folders(paper)
    paper.add_argument(
        "--output", type=Path, metavar="FILE.md", help="write the Markdown instead of printing it"
    )
    paper.set_defaults(run=_paper)

    tune = commands.add_parser(
        "tune", help="the tuning table of the variant auto, from a sweep over the grid tune"
    )
    tune.add_argument("results", type=Path, metavar="RESULTS", help="results folder")
    tune.add_argument("--output", type=Path, metavar="FILE.csv", help="write the table instead of printing it")
    tune.add_argument("--allow-dirty", action="store_true", help="accept builds with uncommitted changes")
    tune.set_defaults(run=_tune)

    profile = commands.add_parser(
        "profile", help="run Nsight Compute over the variants, or print a profile that a results folder holds"
    )
    profile.add_argument("results", nargs="?", type=Path, metavar="RESULTS", help="print what this folder holds")
    profile.add_argument("--program", type=Path, help="fwht_profile; runs it under ncu")
    profile.add_argument(
        "--study",
        action="append",
        choices=("occupancy", "coalescing", "stalls", "roofline", "static", "all"),
        help="may be repeated (default: all)",
    )
    for option, words in PROFILE_OPTIONS.items():
        profile.add_argument(f"--{option}", action="append", default=[], help=words)
    profile.add_argument("--output", type=Path, metavar="DIR", help="the results folder to make")
    profile.add_argument("--tools", type=Path, metavar="DIR", help="where cuobjdump lies (default: PATH)")
    profile.set_defaults(run=_profile)

    findings = commands.add_parser("accuracy", help="the findings of the error analysis as Markdown")
    _folders(findings)
    findings.add_argument(
        "--output", type=Path, metavar="FILE.md", help="write the Markdown instead of printing it"
    )
    findings.add_argument(
        "--check", action="store_true", help="change nothing; exit code 1 when --output is out of date"
    )
    findings.set_defaults(run=_findings)

    performance = commands.add_parser("findings", help="write analysis/FINDINGS.md from a sweep and a profile")
    performance.add_argument("--sweep", type=Path, metavar="RESULTS", help="default: the newest committed")
    performance.add_argument("--profile", type=Path, metavar="RESULTS", help="default: the newest committed")
    performance.add_argument("--allow-dirty", action="store_true", help="accept builds with uncommitted changes")
    performance.set_defaults(run=_performance)

    readme = commands.add_parser("readme", help="regenerate the marked section of README.md, docs/results.md and docs/variants.md")
    readme.add_argument(
        "--check", action="store_true", help="change nothing; exit code 1 when a page is out of date"
    )
    readme.add_argument("--sweep", type=Path, metavar="PROGRAM", help="fwht_sweep (default: found in build/)")
    readme.add_argument(
        "--support", type=Path, metavar="FILE.json", help="saved output of fwht_sweep --list-json"
    )
    readme.add_argument("--root", type=Path, default=ROOT, help="the repository (default: this one)")
    readme.set_defaults(run=_readme)
    return parser


def _folders(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS", help="results folders")
    _allow(parser, mixed=True)


def _allow(parser: argparse.ArgumentParser, *, mixed: bool) -> None:
    parser.add_argument("--allow-dirty", action="store_true", help="accept builds with uncommitted changes")
    parser.add_argument("--allow-incomplete", action="store_true", help="accept runs that did not finish")
    if mixed:
        parser.add_argument(
            "--allow-mixed", action="store_true", help="accept different commits or sources of one device"
        )


def _load(options) -> list[Device]:
    return load(
        options.results,
        allow_dirty=options.allow_dirty,
        allow_mixed=options.allow_mixed,
        allow_incomplete=options.allow_incomplete,
    )


def _report(options) -> int:
    if options.output and Path(options.output).is_dir():
        raise ResultsError(f"--output {options.output} is a folder; the page is a file: {options.output}/report.html")
    from .report import write_report  # draws figures: slow to import, and no other command needs it

    if not options.results:
        from . import readme

        folders = readme.committed_folders()
        options.results = readme.newest_run(folders)
        if not options.results:
            raise ResultsError("no results of a GPU are committed; name a results folder")
        if newest := readme.newest_gpu_results(folders):
            print("\n".join(map(str, readme.write_figures(newest))))
    devices = _load(options)
    last = max((d.newest for d in devices), key=lambda f: f.context["utc_start"])
    output = options.output or ROOT / "build" / "reports" / last.name / "report.html"
    command = "python -m analysis report " + " ".join(path.name for path in options.results)
    print(write_report(devices, output, files=not options.no_files, command=command))
    return 0


def _print(table: pd.DataFrame) -> None:
    print(table.to_string(index=False, na_rep="-") if len(table) else "nothing to show")


def _table(options) -> int:
    from . import tables

    for device in _load(options):
        print(device.label)
        results = device.results
        for column in ("dtype", "mode", "variant"):
            wanted = getattr(options, column)
            if wanted and not (results[column] == wanted).any():
                raise ResultsError(
                    f"no measurement with {column} {wanted}; there is "
                    f"{', '.join(sorted(set(results[column])))}"
                )
            results = results[results[column] == wanted] if wanted else results
        rows = results[results["status"] == "ok"] if options.variant else tables.best(results)
        for (dtype, mode), part in rows.groupby(["dtype", "mode"], sort=False):
            sizes = tables.summary_sizes(results, dtype, mode, device.l2_bytes)
            shown = part if options.all else part[part["elements"].isin([s.elements for s in sizes])]
            print(f"\n{dtype}, {mode}")
            _print(_terminal(shown))
        bad = (results["status"] != "ok").sum()
        print(f"\n{(results['status'] == 'ok').sum()} ok, {bad} incorrect or failed\n")
    return 0


def _terminal(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows.sort_values(["elements", "n"])
    return pd.DataFrame(
        {
            "n": rows["n"],
            "rows": rows["rows"],
            "layout": rows["layout"],
            "variant": rows["variant"],
            "time_us": rows["time_us"].map("{:.3f}".format),
            "of_limit": rows["fraction_of_limit"].map("{:.3f}".format),
            "error/predicted": rows["error_ratio"].map("{:.3f}".format),
        }
    )


def _which(options) -> int:
    from . import readme, tables

    if options.n < 1 or options.rows < 1:
        raise ResultsError(f"n={options.n} and rows={options.rows} must be at least 1")
    newest = None if options.results else readme.newest_gpu_results(readme.committed_folders())
    devices = _load(options) if options.results else [newest] if newest else []
    if not devices:
        raise ResultsError("no results of a GPU are committed; name a results folder")
    for device in devices:
        found = tables.which(device, options.dtype, options.n, options.rows)
        print(device.label)
        if found.empty:
            print(f"n={options.n} in {options.dtype} was not measured")
            continue
        best = found.iloc[0]
        near = "" if best["rows"] == options.rows else f" (nearest measured to {options.rows} rows)"
        print(f"n={options.n}, {options.dtype}, {best['rows']} rows{near}, {best['mode']}, limit "
              f"{best['limit_us']:.2f} us: a copy of the same bytes; empty kernel {best['empty_us']:.2f} us\n")  # fmt: skip
        columns = {
            "variant": found["variant"],
            "time_us": found["time_us"].map("{:.2f}".format),
            "of_limit": found["fraction_of_limit"].map("{:.0%}".format),
            "error/one rounding": found["over_ideal"].map("{:.2f}".format),
        }
        _print(pd.DataFrame(columns))
        print()
    return 0


def _compare(options) -> int:
    from . import tables

    a, b = (
        load_folder(path, allow_dirty=options.allow_dirty, allow_incomplete=options.allow_incomplete)
        for path in (options.a, options.b)
    )
    both = tables.compare(a, b)
    if a.device != b.device:
        print(f"different devices: A is {a.device}, B is {b.device}; compare fractions, not times")
    print(f"A {a.name}\nB {b.name}\nspeed-up = time A / time B, above 1: B is faster\n")
    if options.all:
        _print(both[[*a.schema["results.csv"].key, "time_us_a", "time_us_b", "speedup", "fraction_ratio"]].round(4))
        print()
    _print(tables.compare_summary(both).round(4))
    lost = both[(both["status_a"] == "ok") & (both["status_b"] != "ok")]
    won = both[(both["status_a"] != "ok") & (both["status_b"] == "ok")]
    print(
        f"\n{len(both)} common, {len(a.results) - len(both)} only in A, {len(b.results) - len(both)} only "
        "in B; "
        f"{len(lost)} ok in A but not in B, {len(won)} the other way"
    )
    if options.output:
        both.to_csv(options.output, index=False)
        print(options.output)
    return 0


def _baselines(options) -> int:
    from . import baselines

    devices = _load(options)
    table = baselines.compare_all(devices)
    if not options.output:
        _print(table.round(4))
    missed = baselines.misses(table)
    print(f"\noutside the bound: {len(missed)}")
    if len(missed):
        _print(missed.round(4))
    gains = [line for device in devices for line in baselines.gain_lines(device, "auto")]
    print("\n" + "\n".join([*baselines.verdict_lines(table), *gains]))
    if options.output:
        table.to_csv(options.output, index=False)
        print(options.output)
    return 0


def _paper(options) -> int:
    from . import paper

    text = paper.markdown(_load(options))
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text, encoding="utf-8")
        print(options.output)
    else:
        print(text)
    return 0


def _tune(options) -> int:
    from . import tuning

    text = tuning.table_text(options.results, allow_dirty=options.allow_dirty)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text, encoding="utf-8")
        print(options.output)
    else:
        print(text, end="")
    return 0


def _profile(options) -> int:
    from . import ncu, profile, profile_tables, static_code
    from .load import load_context

    asked = options.study or ["all"]
    studies = [s for s in ncu.STUDIES if s in asked or "all" in asked]
    static = "static" in asked or "all" in asked
    folder = options.results
    if options.program:
        arguments = [
            word for name in PROFILE_OPTIONS for value in getattr(options, name) for word in (f"--{name}", value)
        ]
        if studies:
            folder = ncu.run_ncu(options.program, arguments, studies, options.output, Path.cwd())
        if static:
            static_code.run_static(options.program, folder or options.output, options.tools)
            folder = folder or options.output
    if folder is None:
        raise ResultsError("profile needs a results folder, or --program to profile with")
    found = profile.load_profile(folder.resolve(), load_context(folder)) if studies else None
    if found:
        profile_tables.print_profile(found, studies)
    if static:
        static_code.print_static(folder, found)
    print(folder)
    return 0


def _findings(options) -> int:
    from . import findings

    text = findings.markdown(_load(options))
    if not options.output:
        print(text, end="")
        return 0
    if options.check:
        there = options.output.is_file() and options.output.read_text(encoding="utf-8") == text
        print(f"{options.output} is {'up to date' if there else 'out of date'}")
        return 0 if there else 1
    options.output.write_text(text, encoding="utf-8")
    print(options.output)
    return 0


def _support_list(options) -> dict | None:
    """From what was named; else from a build that is found and complete; else None, with a note."""
    from . import readme

    if options.support:
        return readme.support_from_file(options.support)
    if options.sweep:
        return readme.support_from_program(options.sweep)
    program = readme.find_sweep()
    listing = readme.support_from_program(program) if program else None
    missing = readme.not_built(listing) if listing else []
    if program and not missing:
        return listing
    why = f"{program} was built without {', '.join(missing)}" if program else "no fwht_sweep in build/"
    print(f"docs/variants.md left as it is: {why} (--sweep names another one)", file=sys.stderr)
    return None


def _performance(options) -> int:
    from . import performance

    for path in performance.write(ROOT, options.sweep, options.profile, allow_dirty=options.allow_dirty):
        print(path)
    return 0


def _readme(options) -> int:
    from . import readme

    support = _support_list(options)
    newest = readme.newest_gpu_results(readme.committed_folders(options.root))
    pages = readme.pages(options.root, support, newest)
    stale = [path for path, text in pages.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if options.check:
        for path in stale:
            print(f"error: {path} is out of date; run python -m analysis readme", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages[path], encoding="utf-8")
    if newest:
        readme.write_figures(newest, options.root)
    print("\n".join(map(str, pages)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
