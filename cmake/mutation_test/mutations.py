"""The faults that run.py plants, one a line of this list: where, what becomes what, and the smallest tests that should see
it. `tests` are programs of the build folder with a GoogleTest filter ("experiments/csv_test:Csv.*"), or commands that
begin with "sh " and run in the checkout ({build}: its build folder)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    name: str
    file: str
    old: str  # occurs exactly once
    new: str
    tests: tuple[str, ...]


def _m(name: str, file: str, old: str, new: str, *tests: str) -> Mutation:
    return Mutation(name, file, old, new, tests)


COMPARE = ("reference/compare_test:*", "reference/ten_lies_test:*")
TOLERANCE = ("reference/tolerance_test:Predicted*:Hard*:Promise*:Exact*:Overflow*",)
FOLDER = ("experiments/results_folder_test:*",)
CSV = ("experiments/csv_test:*",)
SCHEMA = ("experiments/schema_test:*",)
GRID = ("experiments/grid_test:*",)
JOBS = ("experiments/jobs_test:*",)
AUTO = ("variants/auto_test:-*Gpu*",)
PROBLEM = ("common/problem_test:*",)
VARIANT = ("common/variant_test:*",)
PLACES = ("variants/module_places_test:*",)
TESTBED = ("sh bash cmake/testbed_test.sh $PWD/testbed {build}/testbed_test",)
PROGRAMS = ("experiments/programs_test:Programs.RefuseBadInput*:Programs.AFull*:Programs.ANewFolder*:Programs.AFolderHas*",)


def _python(file: str, words: str) -> str:
    """Tests of analysis/ by words of their names. Without their packages nothing is caught: a missing package is no finding."""
    return f"sh P=${{FWHT_PYTHON:-python3}}; $P -c 'import pydantic, pytest, typer' || exit 0; $P -m pytest -q -x -p no:cacheprovider analysis/{file} -k '{words}'"


MUTATIONS = [
    # Maps and arithmetic.
    _m("butterfly adds twice", "reference/hadamard.cpp", "high[i] = a - b;", "high[i] = a + b;", "reference/hadamard_test:*"),
    _m("parity of the high word", "common/host/bits.hpp", "v ^= v >> 32;", "", "common/bits_test:*"),
    _m("ceil_div rounds down", "common/host/bits.hpp", "return (a + b - 1) / b;", "return a / b;", "common/bits_test:*"),
    _m("zero is a power of two", "common/host/bits.hpp", "n > 0 && (n & (n - 1)) == 0", "n >= 0 && (n & (n - 1)) == 0", "common/bits_test:*"),
    # The checker and its tolerances, both ways.
    _m("NaN bound passes", "reference/compare.cpp", "!(std::fabs(error) <= bounds[i])", "std::fabs(error) > bounds[i]", *COMPARE),
    _m("row norm is not judged", "reference/compare.cpp", "if (std::sqrt(row_error2) <= allowed) return;", "return;", *COMPARE, *TOLERANCE),
    _m("not every element need be compared", "reference/compare.cpp",
       "stats.elements != problem.elements() || stats.rows != problem.rows", "stats.rows > problem.rows", *COMPARE, *TOLERANCE),
    _m("sign of an infinity", "reference/compare.cpp", "std::signbit(got) == std::signbit(expected)) return false;", "true) return false;", *COMPARE),
    _m("open order twice as loose", "reference/tolerance.cpp", "kChained = 3.0", "kChained = 6.0", *TOLERANCE),
    _m("open order too tight", "reference/tolerance.cpp", "kChained = 3.0", "kChained = 1.5", *TOLERANCE),
    _m("levels not counted in the hard bound", "reference/tolerance.cpp",
       "growth *= std::pow(1.0 + eps, levels + 1);", "growth *= std::pow(1.0 + eps, 8 * levels + 8);", *TOLERANCE),
    _m("last gap between rows", "reference/conformance/session.cpp", "row + 1 < problem.rows; ++row", "row + 2 < problem.rows; ++row",
       "variants/conformance_test:*writes_last_gap*"),
    # The contract.
    _m("alignment is not checked", "common/contract/variant.cpp", "if (address % alignment() != 0) {", "if (false) {", *VARIANT),
    _m("half of an overlap", "common/contract/variant.cpp", "b.address >= a.address + static_cast<std::uintptr_t>(a.bytes)", "b.address >= a.address", *VARIANT, "variants/misuse_test:*"),
    _m("rows below 0", "common/contract/problem.cpp", "if (problem.rows < 0) throw", "if (problem.rows < -1) throw", *PROBLEM, "variants/misuse_test:*"),
    _m("stride one below n", "common/contract/problem.cpp", "if (array.row_stride < n) {", "if (array.row_stride < n - 1) {", *PROBLEM, "variants/misuse_test:*"),
    _m("span limit", "common/contract/problem.cpp", "std::numeric_limits<std::int64_t>::max() / 16;", "std::numeric_limits<std::int64_t>::max();", *PROBLEM, "variants/misuse_test:*"),
    _m("scale may be infinite", "common/contract/problem.cpp", "if (!finite) throw", "if (false) throw", *PROBLEM, "variants/misuse_test:*"),
    _m("n above the limit", "common/contract/variant.cpp", "n >= smallest && n <= largest", "n >= smallest", *VARIANT, "variants/registry_test:*"),
    # Provenance and results folders.
    _m("a clean run washes a dirty folder", "experiments/harness/results_folder.cpp",
       'context["dirty"].get<bool>() || provenance.build.dirty', "provenance.build.dirty", *FOLDER),
    _m("a dirty run in a clean folder", "experiments/harness/results_folder.cpp",
       'context["dirty"].get<bool>() || provenance.build.dirty', 'context["dirty"].get<bool>()', *FOLDER),
    _m("other sources are taken", "experiments/harness/results_folder.cpp", "hash != provenance.build.sources_hash) {", "false) {", *FOLDER),
    _m("another device is taken", "experiments/harness/results_folder.cpp", "there != here) {", "false) {", *FOLDER),
    _m("no lock", "experiments/harness/results_folder.cpp", "if (flock(directory_, LOCK_EX | LOCK_NB) == 0) return;", "return;", *FOLDER),
    _m("a shared lock", "experiments/harness/results_folder.cpp", "LOCK_EX | LOCK_NB", "LOCK_SH | LOCK_NB", *FOLDER),
    _m("hashes are not looked at", "experiments/harness/results_folder.cpp",
       'if (now[name]["sha256"] == recorded["sha256"]) continue;', "continue;", *FOLDER),
    _m("hashes stay while a run goes on", "experiments/harness/results_folder.cpp", 'context.erase("files");', "", *FOLDER),
    _m("half a line stays", "experiments/harness/results_folder.cpp", "cut_half_line(path / table.name);", "(void)table;", *FOLDER),
    _m("a row may repeat", "experiments/harness/results_folder.cpp", "if (!seen.insert(std::move(key)).second) {", "if (false) {", *FOLDER),
    _m("one finished program is enough", "experiments/harness/results_folder.cpp", "return std::all_of(last.begin()", "return std::any_of(last.begin()", *FOLDER),
    _m("any depth", "experiments/harness/results_folder.cpp", "depth > static_cast<int>(kDeepest)", "depth > 1000000", *FOLDER),
    _m("exit code of a signal", "experiments/harness/results_folder.cpp", "return 128 + interrupted_by();", "return code;", *FOLDER),
    # Tables.
    _m("half a row stays on a full disk", "experiments/harness/csv.cpp", "ftruncate(file_, size_)", "ftruncate(file_, size_ + 4)", *CSV),
    _m("quotes are not doubled", "experiments/harness/csv.cpp", "if (c == '\"') line += '\"';", "", *CSV),
    _m("a short row is padded", "experiments/harness/csv.cpp", "if (fields.size() != columns.size())", "if (fields.size() > columns.size())", *CSV),
    _m("another header is read", "experiments/harness/csv.cpp", "if (line != header)", "if (false)", *CSV, *FOLDER),
    _m("infinite times", "experiments/harness/schema.cpp", "value > 0.0 && std::isfinite(value)", "value > 0.0", *SCHEMA),
    _m("times of 0", "experiments/harness/schema.cpp", "value > 0.0 && std::isfinite(value)", "value >= 0.0 && std::isfinite(value)", *SCHEMA),
    _m("negative errors", "experiments/harness/schema.cpp", ": value >= 0.0;", ": value >= -1.0;", *SCHEMA),
    _m("ok without a time", "experiments/harness/schema.cpp", "if (ok && column.required_if_ok", "if (false && column.required_if_ok", *SCHEMA),
    _m("a full disk is the variant's fault", "experiments/sweep/session.cpp",
       "harness::DiskFull&) {  // of", "std::bad_function_call&) {  // of", "experiments/session_test:SessionTest.AFullDisk*"),
    _m("a full disk is a row", "experiments/harness/tasks.cpp", "catch (const DiskFull&)", "catch (const std::bad_alloc&)",
       "experiments/tasks_test:*"),
    # Codes.
    _m("the scale of a neighbour", "variants/kit/encode/sharing.hpp", "return (lane & ~(kOwners - 1)) |", "return (lane & ~kOwners) |", "variants/encode_test:Sharing.*"),
    _m("a scale stored for another group", "variants/kit/encode/sharing.hpp", "return (s << kSteps) * kVectorsOfScale;", "return s * kVectorsOfScale;",
       "variants/encode_test:Sharing.*"),
    # Tuning.
    _m("a table of another SM count", "variants/auto/tuning_table.cpp", " && info.sm_count == sm_count;", ";", *AUTO),
    _m("a table of another capability", "variants/auto/tuning_table.cpp", "info.compute_capability() == compute_capability && ", "", *AUTO),
    _m("auto may choose auto", "variants/auto/tuning_table.cpp", "if (&variant == &automatic::variant) throw", "if (false) throw", *AUTO),
    _m("the smaller of two equally near", "variants/auto/tuning_table.cpp", "choice.elements > best->elements", "choice.elements < best->elements", *AUTO),
    _m("the other placement first", "variants/auto/tuning_table.cpp", "nearest_of(problem.placement);", "nearest_of(Placement::in_place);", *AUTO),
    # Command lines.
    _m("a negative device", "experiments/harness/cli.cpp", "if (ordinal && *ordinal < 0) throw", "if (false) throw", *PROGRAMS),
    _m("elements not a multiple of n", "experiments/harness/grid.cpp", "if (count % length != 0 && !of_width)", "if (false)", *GRID),
    _m("a range that runs down", "experiments/harness/grid.cpp", " || first > last)", ")", *GRID),
    _m("a full standard output", "common/host/error.hpp", "if (!std::cout.flush()) {", "if (false) {", "experiments/programs_test:Programs.AFull*"),
    _m("control characters on a terminal", "common/host/error.hpp", "static_cast<unsigned char>(c) < 0x20", "false", *PROGRAMS),
    _m("nothing to measure makes a folder", "experiments/sweep/command.cpp", "if (!list.jobs.empty()) return;", "return;", *PROGRAMS),
    _m("no layer to time makes a folder", "experiments/linear/command.cpp",
       "if (cases.empty() && !options.rotation_study) {", "if (false) {", *PROGRAMS),
    _m("any number of tokens", "experiments/tensor_parallel/main.cpp", "if (count < 1 || count > kMostTokens)", "if (count < 1)",
       "experiments/tensor_parallel_test:Program.RefusesBad*"),
    _m("memory that is not there", "experiments/sweep/jobs.cpp", "return support ? fits_into_memory(harness::describe(variant, problem).buffers, device) : support;", "return support;", *PROGRAMS),
    _m("noise is never seen", "experiments/sweep/report.cpp", "kQuiet = 1.2", "kQuiet = 12.0", "experiments/session_test:Report*:SessionTest.OnlyASweep*"),
    _m("wrong rows end with 0", "experiments/sweep/report.cpp", "return all_run && all_ok && !results.empty() ? 0 : 1;", "return all_run && !results.empty() ? 0 : 1;", "experiments/session_test:Report*:SessionTest.OnlyASweep*"),
    _m("a device as a file", "common/host/text_file.cpp", "if (status.type() != fs::file_type::regular && status.type() != fs::file_type::fifo)", "if (false)", "common/text_file_test:*"),
    _m("a file without end", "common/host/text_file.cpp", "if (text.size() > most_bytes)", "if (false)", "common/text_file_test:*"),
    # Untrusted places.
    _m("modules that everybody may write", "variants/kokkos/module_places.cpp", "if ((about.st_mode & S_IWOTH) != 0)", "if (false)", *PLACES),
    _m("modules of other users", "variants/kokkos/module_places.cpp", "if (about.st_uid != 0 && about.st_uid != geteuid())", "if (false)", *PLACES),
    _m("a named folder that is not there", "variants/kokkos/module_places.cpp", "if (!is_there(path)) throw BadRequest", "if (false) throw BadRequest", *PLACES),
    _m("a relative folder", "variants/kokkos/module_places.cpp", "if (!fs::path(named).is_absolute()) throw", "if (false) throw", *PLACES),
    # The front door.
    _m("an unknown variant builds", "testbed", "grep -qx -- \"$name\" <<<\"$known\" || fail", "true || fail", *TESTBED),
    _m("a wrong mode builds", "testbed", '--mode) check_values', '--moot) check_values', *TESTBED),
    _m("an empty value", "testbed", '[[ -n ${2:-} ]] || fail', 'true || fail', *TESTBED),
    _m("help builds", "testbed", "case $argument in -h | --help)", "case $argument in --halp)", *TESTBED),
    _m("a pin without hash", "analysis/requirements.lock", "jinja2==3.1.6 \\\n", "jinja2==3.1.6\n", "sh python3 cmake/lock_test.py analysis"),
    # Results folders and what is shown of them.
    _m("a hash that differs", "analysis/load.py", '!= listed["sha256"]:', '== "":', _python("test_load.py", "rows_and_hashes")),
    _m("a fraction off by two per cent", "analysis/load.py", ".abs() > 0.01)", ".abs() > 0.03)", _python("test_load.py", "within_one_per_cent")),
    _m("a fraction off by a third of a per cent", "analysis/load.py", ".abs() > 0.01)", ".abs() > 0.003)", _python("test_load.py", "within_one_per_cent")),
    _m("an infinite time", "analysis/load.py", "infinite = good & np.isinf", "infinite = ~good & np.isinf", _python("test_load.py", "contradict")),
    _m("L2 up to 0.7 of it", "analysis/tables.py", "IN_L2 = 0.6", "IN_L2 = 0.7", _python("test_tables.py", "share_of_the_l2")),
    _m("L2 up to half of it", "analysis/tables.py", "IN_L2 = 0.6", "IN_L2 = 0.5", _python("test_tables.py", "share_of_the_l2")),
    _m("noise from all pairs", "analysis/load.py", "quantile(0.95)", "quantile(1.0)", _python("test_load.py", "repeatability")),
    _m("ties by time alone", "analysis/tables.py", 'rows.assign(exact=_exactness(rows))', 'rows.assign(exact=0)', _python("test_tables.py", "most_exact")),
    _m("slower within the repetitions", "analysis/tables.py", '(both["time_min_us_b"] > both["time_max_us_a"]) & ', "", _python("test_tables.py", "beyond_the_repetitions")),
    _m("others are recommended", "analysis/tables.py", '[~rows["peer"].astype(bool)]', "", _python("test_tables.py", "never_recommended")),
    _m("markup of a folder", "analysis/report.py", "autoescape=True", "autoescape=False", _python("test_report.py", "escaped")),
    _m("exit code of a refusal", "analysis/cli.py", 'print(f"error: {error}", file=sys.stderr)\n        return 2', 'print(f"error: {error}", file=sys.stderr)\n        return 1',
       _python("test_load.py", "exit_code_2")),
]
