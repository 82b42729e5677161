"""Command line. A refused request ends with one sentence and exit code 2; `compare` and `pages --check` exit 1 on a finding."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pandas as pd
import typer

from .load import DTYPES, ROOT, Device, Folder, ResultsError, committed_folders, load, load_context, runs, timed_on_gpu, write_text
from .testbed.commands import STUDIES

if TYPE_CHECKING:
    from .models import Evaluation
    from .profile import Profile

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
                  help="Tables, charts, pages and answers from results folders.")  # fmt: skip

UsageError: Any = typer.BadParameter.__mro__[1]  # click's, which some versions of typer bring themselves
MaybeFolders = Annotated[
    list[Path] | None, typer.Argument(metavar="[RESULTS...]", help="results folders; without any the newest committed ones", show_default=False)
]
Dirty = Annotated[bool, typer.Option("--allow-dirty", help="accept builds with uncommitted changes")]
Incomplete = Annotated[bool, typer.Option("--allow-incomplete", help="accept runs that did not finish")]
Mixed = Annotated[bool, typer.Option("--allow-mixed", help="accept different sources or builds of one commit")]
if TYPE_CHECKING:
    Dtype = str
else:
    Dtype = Literal[DTYPES]


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns the exit code: 0, 1 (a finding), 2 (refused)."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may lack the letter of microseconds
    try:
        return int(app(arguments, standalone_mode=False, prog_name="python -m analysis") or 0)
    except ResultsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except UsageError as error:
        print(f"error: {error.format_message().rstrip('.') or 'a command is missing'}; --help lists what there is.", file=sys.stderr)
        return 2
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:  # the reader (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a name that is too long, a full disk
        place = f"{str(error.filename)[:80]}: " if error.filename else ""
        print(f"error: {place}{error.strerror or error}", file=sys.stderr)
        return 2


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@app.command()
def report(
    results: MaybeFolders = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE.html", help="default: build/reports/<newest folder>/report.html")] = None,
    allow_dirty: Dirty = False,
    allow_incomplete: Incomplete = False,
    allow_mixed: Mixed = False,
    committed: Annotated[bool, typer.Option("--committed", help="the committed runs beside the named folders")] = False,
) -> int:
    """One self-contained page to look at, filter and compare; devices and commits side by side. Its path is the last line."""
    from .models import committed_evaluations, is_evaluation, load_evaluation
    from .report import committed_runs, write_report

    if output and output.is_dir():
        raise ResultsError(f"--output {output} is a folder; the page is a file: {output}/report.html")
    say(f"reading {len(results) if results else 'the committed'} results folder{'' if results and len(results) == 1 else 's'}")
    if results:
        evaluations = [load_evaluation(path, allow_dirty=allow_dirty, allow_incomplete=allow_incomplete) for path in results if is_evaluation(path)]
        folders = [path for path in results if not is_evaluation(path)]
        devices = load(folders, allow_dirty=allow_dirty, allow_incomplete=allow_incomplete, allow_mixed=allow_mixed, split=True) if folders else []
        named = {folder.path for device in devices for folder in device.folders}
        if committed:
            devices += committed_runs([f for f in committed_folders() if f.path.resolve() not in named])
            named = {evaluation.path for evaluation in evaluations}
            evaluations += [evaluation for evaluation in committed_evaluations() if evaluation.path not in named]
    else:
        devices, evaluations = committed_runs(committed_folders()), committed_evaluations()
        if not devices:
            raise ResultsError("no results of a GPU are committed; name a results folder")
    shown: list[Folder | Evaluation] = [*(f for d in devices for f in d.folders), *evaluations]
    newest: Folder | Evaluation = max((d.newest for d in devices), key=lambda f: f.context["utc_start"]) if devices else evaluations[0]
    rows = sum(len(d.results) for d in devices)
    models = f" and {len(evaluations)} model{'s' * (len(evaluations) > 1)}" if evaluations else ""
    say(f"writing the page: {rows} measurements of {len(devices)} run{'s' * (len(devices) != 1)}{models}")
    command = "python -m analysis report " + " ".join(each.name for each in shown)
    path = output or ROOT / "build" / "reports" / newest.name / "report.html"
    try:
        print(write_report(devices, path, command=command, evaluations=evaluations))
    except ResultsError as error:
        raise ResultsError(f"{error}{'' if output else '; --output FILE.html names another place'}") from None
    return 0


@app.command()
def pages(
    check: Annotated[bool, typer.Option("--check", help="change nothing; exit code 1 when a page is out of date")] = False,
    support: Annotated[Path | None, typer.Option(metavar="FILE", help="fwht_sweep, or a file with its --list-json (default: found in build/)")] = None,
    root: Annotated[Path, typer.Option(help="the repository")] = ROOT,
) -> int:
    """Write the generated pages, sections of pages and figures from the committed folders."""
    from . import pages as made

    program = support or made.find_sweep(root)
    listing = made.support_list(program) if program else None
    missing = made.not_built(listing) if listing else []
    if listing is None or (missing and not support):
        why = f"{program} was built without {', '.join(missing)}" if missing else "no fwht_sweep in build/"
        say(f"docs/variants.md is left as it is: {why} (--support names one)")
        listing = None
    stale = made.write(made.pages(root, listing), check=check)
    for path in stale:
        print(f"error: {path} is out of date; run python -m analysis pages" if check else path, file=sys.stderr if check else sys.stdout)
    return 1 if check and stale else 0


@app.command()
def which(
    n: Annotated[int, typer.Option(min=1, help="row length")],
    rows: Annotated[int, typer.Option(min=1, help="rows")],
    dtype: Annotated[Dtype, typer.Option(help="storage type")] = "f16",
    encoding: Annotated[str, typer.Option(help="of the result, as in results.csv: e4m3:row")] = "",
    results: MaybeFolders = None,
    on: Annotated[str, typer.Option("--device", metavar="NAME", help="words of a device's name: h100 (default: the newest that measured it)")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
    allow_dirty: Dirty = False,
    allow_incomplete: Incomplete = False,
    allow_mixed: Mixed = False,
) -> int:
    """Which variant for one problem, how long it takes, how far it is from the limit, how exact it is, and what auto takes by which table."""
    from . import tables

    if results:
        devices = load(results, allow_dirty=allow_dirty, allow_incomplete=allow_incomplete, allow_mixed=allow_mixed, split=True)
    else:
        devices = [d for d in runs(committed_folders()) if timed_on_gpu(d)]
        if not devices:
            raise ResultsError("no results of a GPU are committed; name a results folder")
    if named := [d for d in devices if all(word in d.name.lower() for word in on.lower().split())]:
        devices = named
    else:
        raise ResultsError(f"no results of a device named {on!r}; there are those of {'; '.join(sorted({d.name for d in devices}))}")
    device, found = tables.which(devices, dtype, n, rows, encoding=encoding)
    best = found.iloc[0]
    takes = "" if encoding else _auto_takes(device, dtype, n, n * rows, best["placement"])
    columns = ["variant", "picked", "operator", "time_us", "time_min_us", "time_max_us", "fraction_of_limit", "over_ideal", "ties"]
    if as_json:
        answer = {key: best[key].item() if hasattr(best[key], "item") else best[key] for key in ("dtype", "n", "rows", "mode", "layout", "limit_us")}
        print(json.dumps({"run": device.short, "folders": [f.name for f in device.folders], "asked_rows": rows, **answer, "auto": takes,
                          "variants": json.loads(found[columns].to_json(orient="records"))}))  # fmt: skip
        return 0
    near = "" if best["rows"] == rows else f" (nearest measured to {rows} rows)"
    apart = max(best["rows"] / rows, rows / best["rows"])
    if apart > 4:
        say(f"nothing near {rows} rows was measured: {best['rows']} rows are {tables.significant(apart)} times as {'many' if best['rows'] > rows else 'few'}")
    operator = f", operator {best['operator']}" if best["operator"] != str(n) else ""
    limit = f"limit {tables.time_text(best['limit_us'])}: a copy of the same bytes"
    print(f"{device.label}\nn={n}, {dtype}{operator}, {best['rows']} rows{near}, {best['mode']}; {limit}\n")
    text = {
        "variant": [f"{variant}, which launches {picked}" if picked else variant for variant, picked in zip(found["variant"], found["picked"])],
        "time": found["time_us"].map(tables.time_text),
        "of a copy": found["fraction_of_limit"].map(tables.percent),
        **({"relative error": found["rel_l2"].map(tables.significant)} if encoding else {"error / one rounding": found["over_ideal"].map(tables.fixed)}),
        "": ["best", *("as fast" if tied else "" for tied in found["ties"][1:])],
    }
    print(pd.DataFrame(text).to_string(index=False))
    chosen = found["settings"].astype(str).str.extract(r'"picked_by": ?"([^"]*)"', expand=False).dropna()
    for variant, by in zip(found["variant"][chosen.index], chosen):
        if not by.startswith("shipped: "):  # by the table of the device itself
            print(f"{variant} picked by {by}")
    if takes:
        print(takes)
    return 0


def _auto_takes(device: Device, dtype: str, n: int, elements: int, placement: str) -> str:
    """What auto takes by the tables that ship today, whatever the run was measured with; "" on a host, and for code of another architecture,
    which may lack what a table names."""
    from .tune import table_for

    if not device.newest.on_gpu or device.newest.code:
        return ""
    about = device.newest.context["device"]
    table = table_for(about, dtype=dtype, n=n)
    if table is None:
        return f"auto goes by its rule on {about['name']}: no tuning table of its class has {dtype}, n = {n}"
    choice = table.nearest(dtype, n, elements, placement)
    whose = "its own" if about["name"].startswith(table.device) and about["sm_count"] == table.sm_count else f"its class's, measured on {table.device}"
    return f"auto takes {choice} on {about['name']} by the tuning table {table.path.name}, {whose}"


@app.command()
def compare(
    results: Annotated[list[Path], typer.Argument(metavar="A B...", help="results folders; the first is the base", show_default=False)],
    threshold: Annotated[
        float, typer.Option(min=0, help="exit code 1 when something is slower than the base by more than this share, beyond its repetitions")
    ] = 0.05,
    output: Annotated[Path | None, typer.Option(metavar="FILE.csv", help="write every common measurement of A and the last folder")] = None,
    every: Annotated[bool, typer.Option("--all", help="print every common measurement")] = False,
    allow_dirty: Dirty = False,
    allow_incomplete: Incomplete = False,
) -> int:
    """Speed-up of each folder over the first, problem by problem; what differs beyond the repetitions is counted."""
    from . import tables

    if len(results) < 2:
        raise ResultsError("compare needs two results folders")
    base, *others = (load([path], allow_dirty=allow_dirty, allow_incomplete=allow_incomplete)[0] for path in results)
    code = 0
    for other in others:
        both = tables.compare(base, other)
        code |= _print_comparison(base, other, both, threshold, every)
        if output and other is others[-1]:
            write_text(output, both.to_csv(index=False))
            print(output)
    line = sorted([base, *others], key=lambda d: d.newest.context["utc_start"])
    if len(others) > 1 and len({d.name for d in line}) == 1:
        history = tables.history(line)
        if history.empty:
            print("\nno problem is in all folders")
            return code
        history = history.pivot_table(index=["variant", "dtype", "mode"], columns="when", values="share", sort=False)
        print("\nshare of the limit, geometric means over the problems of all folders\n" + history.round(4).to_string())
    return code


def _print_comparison(base: Device, other: Device, both: pd.DataFrame, threshold: float, every: bool) -> int:
    from . import tables

    print(f"A {base.newest.name}\nB {other.newest.name}\nspeed-up = time A / time B, above 1: B is faster\n")
    if base.name != other.name:
        print(f"different devices: A is {base.name}, B is {other.name}; compare fractions, not times\n")
    columns = [
        "variant",
        "operator",
        "encoding",
        "arrangement",
        "dtype",
        "rows",
        "placement",
        "mode",
        "time_us_a",
        "time_us_b",
        "speedup",
        "fraction_ratio",
        "verdict",
    ]
    if every:
        print(both[columns].round(4).to_string(index=False), end="\n\n")
    print(tables.compare_summary(both).round(4).to_string(index=False))
    alike = base.name == other.name
    worse = tables.slower_beyond(both, threshold) if alike else both[(both["status_a"] == "ok") & (both["status_b"] != "ok")]
    lost = tables.refused_since(base, other) if alike else pd.DataFrame()
    print(f"\n{len(both)} common, {len(base.results) - len(both)} only in A, {len(other.results) - len(both)} only in B")
    if worse.empty and not alike:
        print("nothing lost its correctness; times of different devices are not compared\n")
        return 0
    if len(lost):
        print(f"{len(lost)} lost, correct in A and refused in B:")
        print(lost[[*columns[:8], "reason"]].head(20).to_string(index=False), end="\n\n")
    if worse.empty:
        print(f"nothing is slower by more than {100 * threshold:g} % beyond its repetitions, nothing lost its correctness\n")
        return int(len(lost) > 0)
    print(f"{len(worse)} slower by more than {100 * threshold:g} % beyond their repetitions, or no longer correct:")
    print(worse[columns[:-2]].round(4).head(20).to_string(index=False), end="\n\n")
    return 1


@app.command()
def tune(
    results: Annotated[list[Path], typer.Argument(metavar="RESULTS", help="results folders of the grid tune", show_default=False)],
    output: Annotated[Path | None, typer.Option(metavar="FILE.csv", help="write the table instead of printing it")] = None,
    ship: Annotated[bool, typer.Option("--ship", help="write it to variants/auto/<device>.csv, which the next build compiles in")] = False,
    allow_dirty: Dirty = False,
) -> int:
    """The tuning table of the variant auto, from a sweep over the grid tune."""
    from .tune import shipped_path, table_text

    if ship and output:
        raise ResultsError("--ship and --output both name where the table goes; give one of them")
    text = table_text(*results, allow_dirty=allow_dirty)
    if ship:
        output = shipped_path(load_context(results[0])["device"]["name"])
    if output is None:
        print(text, end="")
        return 0
    write_text(output, text)
    print(output)
    return 0


@app.command("sources")
def name_sources(
    results: Annotated[list[Path], typer.Argument(metavar="RESULTS", help="results folders of builds that call themselves dirty", show_default=False)],
) -> int:
    """The commits whose sources such builds had, by their hashes, into experiments/results/sources.csv."""
    from . import sources

    for path in results:
        context = load_context(path)
        wanted = context["sources_hash"]
        if not context["dirty"]:
            print(f"{path.name}: {context['commit']}")
            continue
        if (commit := sources.name(wanted)) is None:
            raise ResultsError(f"{path.name}: none of the last commits has sources of the hash {wanted[:12]}")
        print(f"{path.name}: {commit}")
    return 0


Passed = list[str] | None


@app.command()
def profile(
    results: Annotated[Path | None, typer.Argument(metavar="[RESULTS]", help="print what this folder holds", show_default=False)] = None,
    program: Annotated[Path | None, typer.Option(help="fwht_profile; runs it under ncu")] = None,
    study: Annotated[Passed, typer.Option(help=f"{', '.join(STUDIES)}; may be repeated (default: all)")] = None,
    variant: Annotated[Passed, typer.Option(help="names (default: all on the device)")] = None,
    grid: Annotated[Passed, typer.Option(help="a built-in grid or a file (default: quick)")] = None,
    problem: Annotated[Passed, typer.Option(help="a problem instead of a grid: f16/n4096/r8192[/out]")] = None,
    n: Annotated[Passed, typer.Option(help="only these row lengths of the grid: 4096, 2^12, 16..256")] = None,
    dtype: Annotated[Passed, typer.Option(help="only f16, bf16 or f32 of the grid")] = None,
    rows: Annotated[Passed, typer.Option(help="these row counts instead of the grid's")] = None,
    resume: Annotated[Passed, typer.Option(help="a results folder of the same build to add the profile to")] = None,
    output: Annotated[Path | None, typer.Option(metavar="DIR", help="the results folder to make")] = None,
    tools: Annotated[Path | None, typer.Option(metavar="DIR", help="where cuobjdump lies (default: PATH)")] = None,
) -> int:
    """Run Nsight Compute over the variants, or print a profile that a results folder holds."""
    from . import ncu, static_code
    from . import profile as counters

    asked = study or ["all"]
    if unknown := [s for s in asked if s not in STUDIES]:
        raise ResultsError(f"unknown study {unknown[0]!r}; there are {', '.join(STUDIES)}")
    studies = [s for s in ncu.STUDIES if s in asked or "all" in asked]
    static = "static" in asked or "all" in asked
    folder = results
    if program:
        if not (program.is_file() and os.access(program, os.X_OK)):
            raise ResultsError(f"{program} is no program that can be run")
        passed = {"variant": variant, "grid": grid, "problem": problem, "n": n, "dtype": dtype, "rows": rows, "resume": resume}
        arguments = [word for name, values in passed.items() for value in values or () for word in (f"--{name}", value)]
        if studies:
            folder = ncu.run_ncu(program, arguments, studies, output, Path.cwd())
        if static:
            target = folder or output or (Path(resume[0]) if resume else None)
            static_code.run_static(program, target, tools)
            folder = target
    if folder is None:
        raise ResultsError("profile needs a results folder, or --program to profile with")
    found = counters.load_profile(folder.resolve(), load_context(folder)) if studies and (folder / "context.json").exists() else None
    if found:
        _print_profile(found, studies)
    elif not (static and (folder / "static.csv").is_file()):
        raise ResultsError(f"{folder} holds no profile")
    if static:
        _print_static(folder, found)
    print(folder)
    return 0


def _print_profile(found: Profile, studies: list[str]) -> None:
    from . import charts
    from . import profile as counters

    print(found.label)
    print(f"ncu {found.about['ncu']}, {found.about['kernels']} kernels, {found.about['seconds']:.0f} s")
    if "roofline" in studies:
        print("\npeaks of this device, by kernels that do nothing else, in the same run")
        print(counters.peaks_table(found).to_string(index=False))
    for study in studies:
        if study in found.about["studies"]:
            print(f"\n{study}")
            print(charts.table("profile", found.problems, [*counters.PROBLEM_COLUMNS, *counters.STUDY_COLUMNS[study]]).text())
    for name in found.about["missing"]:
        print(f"not given by ncu {found.about['ncu']}: {name}")


def _print_static(folder: Path, found: Profile | None) -> None:
    """The compiled kernels: those that were profiled where there is a profile, else all of the variants."""
    from . import charts, static_code

    table = static_code.load_static(folder)
    if table is None:
        print("\nno static study in this folder")
        return
    print(f"\nstatic: {len(table)} kernels, {int((table['local'] > 0).sum())} of them touch local memory (spills)")
    if found is not None:
        table = table[table["symbol"].isin(found.kernels["symbol"])]
    table = table[table["variant"] != ""].drop_duplicates(["variant", "kernel"])
    table = table.assign(kernel=table["kernel"].str.slice(0, 64))
    print(charts.table("static", table, [c for c in static_code.COLUMNS if c not in ("symbol", "arch", "local_bytes")]).text())
