"""How ./testbed answers what it cannot do: the exit code, and one sentence instead of a trace. Installs nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.testbed import building, commands, machine, wheel
from analysis.testbed import check as checks
from analysis.testbed.__main__ import main
from analysis.testbed.machine import ROOT, has_gpu, say_origin

TESTBED = ROOT / "testbed"
BASH = shutil.which("bash") or "/bin/bash"
Answer = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A machine that has Python and the script's own tools, and nothing else: no compiler, no CMake, no apt-get."""
    folder = tmp_path_factory.mktemp("bin")
    for tool in ("bash", "cut", "dirname", "grep", "id", "mkdir", "tail"):
        (folder / tool).symlink_to(shutil.which(tool) or tool)
    (folder / "python3").symlink_to(sys.executable)
    return folder


@pytest.fixture
def bare(bin_folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Answer:
    """Exit code and words of ./testbed on such a machine."""

    def answer(*arguments: str, **environment: str) -> tuple[int, str]:
        for name, value in {"PATH": str(bin_folder), "CI": "", **environment}.items():
            monkeypatch.setenv(name, value)
        try:
            code: Any = main(list(arguments))
        except SystemExit as end:
            code = end.code
        captured = capfd.readouterr()
        return code, captured.out + captured.err

    return answer


def run_script(testbed: Path, *arguments: str, path: Path | str) -> tuple[int, str]:
    done = subprocess.run([BASH, testbed, *arguments], env={"PATH": str(path)}, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("command", commands.COMMANDS)
def test_explains_every_command(bare: Answer, command: str) -> None:
    assert f"\n  {command} " in bare("help")[1]
    for arguments in ((command, "--help"), (command, "-h"), ("help", command), (command, "--grid", "smoke", "--help")):
        code, text = bare(*arguments)
        assert code == 0 and text.startswith(f"Usage: ./testbed {command}")


@pytest.mark.parametrize("command", ["run --output", "run --grid", "accuracy --output", "sweep --output", "sweep --resume", "tune --resume"])
def test_refuses_what_the_system_does(bare: Answer, command: str) -> None:
    code, text = bare(*command.split(), "x" * 300)
    assert code == 2 and text.endswith("xx: File name too long.\n") and text.count("\n") == 1


def test_says_its_version(bare: Answer) -> None:
    code, text = bare("--version")
    assert code == 0 and re.fullmatch(r"fwht \d+\.\d+\.\d+\n", text)
    for line in ("help", "-h", "--help", "help help"):
        assert bare(*line.split()) == (0, bare("help")[1])


def test_the_script_starts_the_commands(bin_folder: Path, tmp_path: Path) -> None:
    code, text = run_script(TESTBED, "run", "-h", path=bin_folder)
    assert code == 0 and text.startswith("Usage: ./testbed run")
    assert run_script(TESTBED, "bogus", path=bin_folder)[0] == 2
    for tool in ("bash", "dirname"):
        (tmp_path / tool).symlink_to(bin_folder / tool)
    code, text = run_script(TESTBED, "help", path=tmp_path)
    assert code == 1 and "missing: python3 python3-venv. There is no apt-get here" in text


@pytest.mark.parametrize("has_venv", [True, False])
def test_asks_once_for_all_packages(bin_folder: Path, tmp_path: Path, has_venv: bool) -> None:
    """Those of the build, and what the Python packages need."""
    python = tmp_path / "python3"
    python.write_text(f"#!{BASH}\ncase \"$*\" in *ensurepip*) exit {0 if has_venv else 1} ;; *) exit 1 ;; esac\n")
    python.chmod(0o755)
    code, text = run_script(TESTBED, "environment", "tools", path=f"{tmp_path}:{bin_folder}")
    assert code == 1 and re.search("missing: .*cmake", text) and ("python3-venv" in text) != has_venv


# A typo is refused before anything is installed or built: here neither could be.
@pytest.mark.parametrize(
    "line, why",
    [
        *((line, "unknown command 'bogus'; ./testbed help lists the commands.") for line in ("bogus", "help bogus", "--help bogus")),
        *((f"{command} --bogus", f"unknown argument '--bogus'; see ./testbed {command} --help.")
          for command in ("run", "test", "accuracy", "tune", "profile", "check", "sanitize", "wheel")),
        ("sweep --bogus=1", "unknown argument '--bogus'; see ./testbed sweep --help."),
        ("check nope", "unknown argument 'nope'; see ./testbed check --help."),
        ("test -R", "-R needs a value; see ./testbed test --help."),
        ("profile --study", "--study needs a value; see ./testbed profile --help."),
        *((f"{command} --variant nope", "unknown variant 'nope'; known: auto butterflies cpu .*") for command in ("run", "accuracy", "profile")),
        ("sweep --grid smoke --variant=cpu,nope", "unknown variant 'nope'; known: .*"),
        *((f"{command} --output=", "--output needs a value; .*") for command in ("run", "accuracy")),
        *((f"{command} --output {TESTBED}/below", f"--output {TESTBED}/below: {TESTBED} is a file, not a folder.") for command in ("run", "accuracy")),
        (f"run --output {ROOT}/analysis", f"{ROOT}/analysis is there already; --resume continues a results folder"),
        *((f"{command} --grid nope", "unknown grid 'nope': no such file, and the built-in grids are .*headline host .*")
          for command in ("run", "sweep", "profile")),
        ("sweep --dtype f16,f8", "unknown dtype 'f8'; known: f16 .* i32 i64"),
        ("sweep --mode warm", "unknown mode 'warm'; known: replay replay_pdl alternating cold host"),
        ("sweep --placement=sideways", "unknown placement 'sideways'; known: in out"),
        *((f"{command} --resume {ROOT}/analysis", f"--resume {ROOT}/analysis: no results folder, as it has no context.json.")
          for command in ("sweep", "tune", "profile")),
        (f"sweep --dry-run --output={ROOT}/analysis", f"{ROOT}/analysis is there already; --resume continues a results folder"),
        (f"profile --output {ROOT}/analysis", f"{ROOT}/analysis is there already; --resume continues a results folder"),
        (f"tune --output {TESTBED}/below/x.csv", f"--output {TESTBED}/below: {TESTBED} is a file, not a folder."),
        ("profile --study static --study nope", "unknown study 'nope'; known: occupancy coalescing stalls roofline static all"),
        ("sweep --n 16..64,x", "--n: 'x' is no positive number; write 4096 or 2\\^12"),
        *((f"{command} --rows 0", "--rows: '0' is no positive number; write 4096 or 2\\^12") for command in ("sweep", "profile")),
        ("sweep --elements=2^", "--elements: '2\\^' is no positive number; .*"),
        ("test --preset nosuch", "unknown preset 'nosuch'; known: release ci nightly host sanitize thread"),
        *([] if Path("/usr/local/cuda/bin/ncu").exists() else [("profile --variant naive", "ncu was not found on PATH .*")]),
        *([] if Path("/usr/local/cuda/bin/compute-sanitizer").exists() else [("sanitize", "compute-sanitizer was not found on PATH .*")]),
        *([] if has_gpu() else [("tune", "this machine has no CUDA device, and tune needs one.")]),
    ],
)  # fmt: skip
def test_refuses_in_one_sentence(bare: Answer, line: str, why: str) -> None:
    code, text = bare(*line.split())
    assert code == 2 and re.fullmatch(f"testbed: {why}\n", text), text
    assert not (ROOT / "build" / "nosuch").exists()


def test_says_what_the_machine_lacks(bare: Answer) -> None:
    for line in ("run", "test", "sweep", "sweep --n 16..2^6,1 --dtype=bf16 --mode cold --placement out --variant cpu --benchmark_filter=x --dry-run"):
        code, text = bare(*line.split())
        assert code == 1 and re.search("missing: .*cmake.* There is no apt-get here", text)
    assert bare("check", "clang-format") == (2, "testbed: clang-format: not run, git is missing\n")
    code, text = bare("sweep", "--", "--help")
    assert code == 0 and "Usage: " in text  # of the command, or of a program that is there


def test_says_what_it_costs_and_leaves_out(bare: Answer) -> None:
    """Without a GPU `test` builds the host's part and says what is left out; with CI=true everything."""
    cost = r"testbed: a first build and test takes about {} minutes on two cores, less with more, and {} GB of disk\.\n"
    both, host = cost.format(r"\d+", r"[\d.]+"), (bare("test", "--preset", "host")[1])
    assert re.match(both, host)
    everything = bare("test", CI="true")[1]
    assert re.match(both, everything) and everything == bare("test", "--preset", "ci")[1] != host
    if not has_gpu():
        left_out = r"testbed: no CUDA device: kernels are not compiled, .*; \./testbed test --preset release compiles them\.\n"
        assert re.match(left_out + both, bare("test")[1])


def test_asks_for_a_checkout_that_can_be_written(bin_folder: Path, tmp_path: Path) -> None:
    for name in ("experiments", "CMakePresets.json"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "analysis" / "testbed", tmp_path / "analysis" / "testbed")
    for name in ("testbed", "analysis/__init__.py", "analysis/times.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "build").touch()
    for command in ("run", "test", "sweep"):
        code, text = run_script(tmp_path / "testbed", command, path=bin_folder)
        assert code == 2 and text.endswith("build cannot be written, and that is where fwht is built; copy the checkout to a place of your own.\n")
    for need in ("python", "checks"):
        code, text = run_script(tmp_path / "testbed", "environment", need, path=bin_folder)
        assert code == 1 and text.count("build cannot be written, and that is where packages and logs go;") == 1 and "mkdir" not in text


def test_says_when_no_commit_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    if shutil.which("git"):
        say_origin(tmp_path)
        assert re.match(r"testbed: no commit is known here \(fatal: not a git repository.*\): results are marked as dirty", capsys.readouterr().err)
    monkeypatch.setenv("PATH", "")
    say_origin(tmp_path)
    assert capsys.readouterr().err.startswith("testbed: no commit is known here (git is missing): results are marked as dirty")


def test_counts_what_ran(tmp_path: Path) -> None:
    table = tmp_path / "tests.csv"
    table.write_text('name,label,status,seconds\nA.b,host,passed,0.1\n"C.d/(1, 2)",host,failed,0.1\nE.f,gpu,skipped,0\nE.g,gpu,skipped,0\nH.i,host,skipped,0\n')
    assert building.count_tests(table, []) == "2 ran, 1 failed, 3 skipped"
    assert building.count_tests(table, ["no CUDA device"]) == "2 ran, 1 failed, 3 skipped: no CUDA device"
    assert building.count_tests(table, ["no CUDA device", "no torch"]) == "2 ran, 1 failed, 3 skipped: no CUDA device, and other reasons"


def test_reads_what_ctest_wrote() -> None:
    details = "a.cpp:3: Skipped\nno CUDA device (why)\n\nb.cpp:4: Skipped\nno CUDA device\n\nskipped: python3 lacks numpy; x\n"
    assert building.skip_reasons(details) == [("no CUDA device", 2), ("python3 lacks numpy; x", 1)]
    shown = ["1/2 Test #1: a ... Passed", "50% tests passed, 1 tests failed out of 2"]
    log = [*shown, "2/2 Test #2: b ...***Skipped", "      Start  2: b", "The following tests did not run:", "\t2 - b (Skipped)", "Errors while running CTest"]
    assert [line for line in log if not building.NOT_SHOWN.search(line)] == shown


def test_says_what_pytest_skipped_in_a_test_that_passed() -> None:
    details = "SKIPPED [1] ../a/test_torch.py:12: could not import 'torch'\nSKIPPED [3] ../a/test_b.py:4: no GPU\nSKIPPED [2] ../a/test_a.py: no GPU\n9 passed"
    assert building.skips_inside(details) == ["      5 no GPU: test_a.py, test_b.py", "      1 could not import 'torch': test_torch.py"]
    assert building.skip_reasons(details) == [] == building.skips_inside("9 passed")


def test_what_failed_is_said_again_at_the_end(tmp_path: Path) -> None:
    report = tmp_path / "ctest.xml"
    assert building.last_words(report) == []
    many = "\n".join(f"line {i}" for i in range(40))
    report.write_text(
        f'<testsuite><testcase name="a" status="run"><system-out>fine</system-out></testcase><testcase name="b" status="fail"><failure message="Failed"/>'
        f'<system-out>{many}\n</system-out></testcase><testcase name="c" status="fail"><failure message="Timeout"/></testcase></testsuite>'
    )
    assert building.last_words(report, lines=2) == [("b", ["line 38", "line 39"]), ("c", [])]
    assert building.last_words(report, tests=1, lines=1) == [("b", ["line 39"])]


def test_sanitizers_run_in_shards_end_in_time_and_leave_out_what_is_not_ours(tmp_path: Path, monkeypatch) -> None:
    tool = tmp_path / "compute-sanitizer"
    tool.write_text('#!/bin/sh\necho "$GTEST_SHARD_INDEX of $GTEST_TOTAL_SHARDS: $*"\nexec "$5" "$6"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    logs = tmp_path / "logs"

    def program(body: str, tests: int = 9) -> Path:
        file = tmp_path / "program"
        listed = "SanitizeGpu.\n" + "".join(f"  test{i}\n" for i in range(tests))
        file.write_text(f"#!/bin/sh\n[ \"$2\" = --gtest_list_tests ] && printf '{listed}' && exit\n{body}\n")
        file.chmod(0o755)
        return file

    def sanitize(body: str, tool: str, processes: int, left_out: tuple[str, ...] = (), tests: int = 9) -> Path | None:
        return commands.sanitize([commands.Sanitized(program(body, tests), tool, left_out)], logs, processes)

    assert sanitize("exit $((GTEST_SHARD_INDEX > 0 ? 77 : 0))", "memcheck", 2) is None  # the others have no test
    assert (logs / "program.memcheck.1.log").read_text().startswith("1 of 8: --tool memcheck --error-exitcode 1 ")
    assert sanitize("exit 0", "racecheck", 1, ("matmul/*", "dense/*")) is None
    left_out = "SanitizeGpu.*-SanitizeGpu.matmul/*:SanitizeGpu.dense/*"
    assert all(left_out in (logs / f"program.racecheck.{i}.log").read_text() for i in range(4))
    assert sanitize("exit $GTEST_SHARD_INDEX", "initcheck", 2) == logs / "program.initcheck.1.log"
    assert sanitize("exit $((GTEST_TOTAL_SHARDS != 3))", "synccheck", 2, tests=3) is None
    monkeypatch.setattr(commands, "SANITIZER_SECONDS", 0.5)
    assert sanitize(f"sleep 60; touch {tmp_path}/lived", "memcheck", 1) == logs / "program.memcheck.0.log"
    assert not (tmp_path / "lived").exists()


def test_tools_of_the_sanitizer_share_the_processes(tmp_path: Path, monkeypatch, capsys) -> None:
    tool = tmp_path / "compute-sanitizer"  # racecheck's first part ends when it has seen a part of memcheck begin
    tool.write_text(f"""#!/bin/sh
touch {tmp_path}/begun.$2
[ "$2$GTEST_SHARD_INDEX" = racecheck0 ] || exit 0
for i in $(seq 100); do [ -e {tmp_path}/begun.memcheck ] && exit 0; sleep 0.1; done
exit 1
""")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nprintf 'SanitizeGpu.\n  a\n  b\n'\n")
    program.chmod(0o755)
    work = [commands.Sanitized(program, name) for name in ("racecheck", "memcheck")]
    assert commands.sanitize(work, tmp_path / "logs", 2) is None
    assert re.findall(r"(\w+) is clean", "".join(capsys.readouterr())) == ["racecheck", "memcheck"]
    programs = [Path(name).name for name in commands.SANITIZED]
    listed = commands.to_sanitize(tmp_path)
    assert [work.program.name for work in listed] == programs * len(commands.SANITIZERS) and listed[0].tool == "racecheck"


def test_tuning_knows_the_folder_that_it_measures_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """With a filter the program's standard output is a report; ctest names the program. A refused selection leaves nothing to go on with."""
    program = os.environ.get("FWHT_SWEEP_PROGRAM", "")
    if not program:
        pytest.skip("FWHT_SWEEP_PROGRAM names no fwht_sweep; ctest sets it")
    monkeypatch.setattr(commands, "ROOT", tmp_path)
    cpu = ("--variant", "cpu", "--problem", "f16/n64/r9")
    results = commands.measured_to_tune(Path(program), None, *cpu)
    assert results.parent == tmp_path / "results" and (results / "results.csv").read_text().count("\n") == 2
    assert commands.measured_to_tune(Path(program), str(results), *cpu) == results
    out, err = capfd.readouterr()
    assert out == "" and "cpu/f16/n64/r9/host" in err
    monkeypatch.setattr(commands, "ROOT", tmp_path / "results")  # where nothing was measured yet
    with pytest.raises(SystemExit):
        commands.measured_to_tune(Path(program), None, "--variant", "nope")
    assert capfd.readouterr().err.endswith("testbed: the measurement failed; its message is above.\n")


def test_finds_the_row_nearest_to_its_limit(tmp_path: Path) -> None:
    table = tmp_path / "results.csv"
    table.write_text(
        "variant,dtype,n,rows,mode,status,fraction_of_limit,settings\n"
        'cpu,f16,8,2,host,ok,0.25,"{""a"": 1}"\nwrong,f16,8,2,host,failed,0.9,\nfast,f32,16,4,host,ok,0.75,{}\ndisturbed,f32,16,4,host,ok,2.0,{}\n'
    )
    assert commands.nearest_to_limit(table) == "nearest to the limit: fast on f32/n16/r4 (host), 75 % of a copy"


@pytest.mark.parametrize(
    "log, cause",
    [
        ("ERROR: SSLError(SSLCertVerificationError: certificate verify failed)\nERROR: No matching distribution\n", "certificate verify failed)"),
        ("E: Unable to locate package x\n", "E: Unable to locate package x"),
    ],
)  # fmt: skip
def test_names_the_cause_in_a_log(bin_folder: Path, tmp_path: Path, log: str, cause: str) -> None:
    """Of an installation that fails: here apt-get does, with this log."""
    apt = tmp_path / "apt-get"
    apt.write_text(f"#!{BASH}\nprintf '%b' {json.dumps(log)}\nexit 1\n")
    apt.chmod(0o755)
    shutil.copy(TESTBED, tmp_path / "testbed")
    (tmp_path / "env").symlink_to(shutil.which("env") or "")
    code, text = run_script(tmp_path / "testbed", "environment", "x", path=f"{tmp_path}:{bin_folder}")
    assert code == 1 and f"{cause} (see {tmp_path}/build/setup.log)" in text


def test_names_the_cause_in_a_log_of_pip(bin_folder: Path, tmp_path: Path) -> None:
    """A proxy that signs for PyPI: what it said, and what helps."""
    python = tmp_path / "python3"
    python.write_text(f"#!{BASH}\ncase \"$*\" in *'-m venv'*) echo 'SSLError: CERTIFICATE_VERIFY_FAILED'; exit 1 ;; *ensurepip*) exit 0 ;; *) exit 1 ;; esac\n")
    python.chmod(0o755)
    shutil.copy(TESTBED, tmp_path / "testbed")
    for tool in ("cmp", "sleep"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
    code, text = run_script(tmp_path / "testbed", "environment", "python", path=f"{tmp_path}:{bin_folder}")
    assert code == 1 and "CERTIFICATE_VERIFY_FAILED; PIP_CERT=FILE names the certificates of a proxy (see " in text


def test_says_how_an_installation_gets_on(bin_folder: Path, tmp_path: Path) -> None:
    """Every few seconds; ten where nothing else is asked for."""
    apt = tmp_path / "apt-get"
    apt.write_text(f"#!{BASH}\nprintf 'Get:7 x.deb\\n'\nread -r -t 2.5 <> <(:)\nexit 0\n")
    apt.chmod(0o755)
    shutil.copy(TESTBED, tmp_path / "testbed")
    (tmp_path / "env").symlink_to(shutil.which("env") or "")
    command = [BASH, str(tmp_path / "testbed"), "environment", "x"]
    done = subprocess.run(command, env={"PATH": f"{tmp_path}:{bin_folder}", "TESTBED_PROGRESS_SECONDS": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr.count("testbed:   1 s: Get:7 x.deb\ntestbed:   2 s: Get:7 x.deb\n") == 2  # update, install


@pytest.mark.parametrize(("gpu", "preset"), [(True, "release"), (False, "host")])
def test_a_sweep_compiles_kernels_where_a_gpu_runs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: bool, preset: str) -> None:
    configured: list[str] = []

    def configure(name: str, *_: str) -> Path:
        configured.append(name)
        return tmp_path

    monkeypatch.setattr(commands, "has_gpu", lambda: gpu)
    monkeypatch.setattr(commands, "environment", lambda *_: None)
    monkeypatch.setattr(commands, "configure", configure)
    monkeypatch.setattr(commands, "build", lambda *_: None)
    monkeypatch.setattr(commands, "run", lambda command, **_: subprocess.CompletedProcess(command, 0))
    assert commands.command_sweep(["--list"]) == 0 and configured == [preset]


def test_a_platform_is_refused_before_a_wheel_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "auditwheel").write_text(
        f"#!{BASH}\nprintf 'usage: repair --plat linux_gone\\n\\nPLATFORMS:\\n- linux_x86_64\\n- manylinux_2_17_x86_64 (aliased by manylinux2014_x86_64)\\n'\n"
    )
    (tmp_path / "auditwheel").chmod(0o755)
    monkeypatch.setattr(wheel, "tools", lambda: tmp_path)
    monkeypatch.setattr(wheel, "pip_wheel", lambda *_: pytest.fail("built"))
    with pytest.raises(SystemExit) as end:
        wheel.make("foo", with_cuda=False)
    said = capsys.readouterr().err
    assert end.value.code == 2 and said == "testbed: unknown platform 'foo'; known: linux_x86_64 manylinux_2_17_x86_64 manylinux2014_x86_64\n"
    wheel.check_platform(tmp_path, "manylinux2014_x86_64")


@pytest.mark.parametrize("packages", [True, False])
def test_runs_all_but_the_report_without_python_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], packages: bool
) -> None:
    """As offline. Building and timing are replaced here; that an environment without packages is one is not. With them the committed report
    is named among the lines of the build, and once more at the end."""
    (tmp_path / "tests.csv").write_text("")
    done: list[str] = []

    def environment(*needs: str) -> str | None:
        if "python" in needs and not packages:
            raise SystemExit(1)
        return sys.executable if "python" in needs else None

    def does(what: str, answer: object = None) -> Callable[..., Any]:
        def call(*_: object) -> object:
            done.append(what)
            return answer

        return call

    def run(command: list[Path], **_: object) -> subprocess.CompletedProcess[str]:
        done.append(Path(command[0]).name)
        return subprocess.CompletedProcess([str(word) for word in command], 0)

    monkeypatch.setattr(machine, "environment", environment)
    monkeypatch.setattr(commands, "environment", environment)
    monkeypatch.setattr(commands, "has_gpu", lambda: False)
    monkeypatch.setattr(commands, "configure", does("configure", tmp_path))
    monkeypatch.setattr(commands, "build", does("build"))
    monkeypatch.setattr(commands, "run_ctest", does("tests", 0))
    monkeypatch.setattr(commands, "measured", does("sweep", ("", tmp_path / "results", True)))
    monkeypatch.setattr(commands, "run", run)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "results.csv").write_text("variant,dtype,n,rows,mode,status,fraction_of_limit\n")
    if packages:
        monkeypatch.setattr(commands.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 0, f"{command[-1]}\n", ""))
        monkeypatch.setattr(commands, "finish", does("report", 0))
        assert commands.command_run([]) == 0 and done[-1] == "report"
        said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("testbed: the report of an H100 and an H200: ")]
        assert len(said) == 2 and said[0] == said[1] and said[0].endswith("committed/report.html")
        return
    assert commands.command_run([]) == 1
    assert done == ["configure", "build", "fwht_sweep", "fwht_sweep", "tests", "sweep", "fwht_accuracy"]
    out, err = capfd.readouterr()
    assert out.splitlines()[-1] == str(tmp_path / "results")
    assert "without them everything runs but the report." in err
    assert f"it lacks the Python packages (above); later './testbed report {tmp_path}/results' makes it.\n" in err


@pytest.mark.parametrize(
    ("said", "architectures"),
    [("9.0\n9.0\n", "90a-real"), ("8.0\n", "80-real"), ("8.9\n9.0\n", "80-real;90a-real"), ("10.0\n", ""), ("9.0\n12.0\n", ""), ("7.5\n", ""), ("[N/A]\n", "")],
)
def test_a_first_build_is_for_the_gpus_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, architectures: str) -> None:
    """What was configured before stays as it is."""
    for name, text in (("nvidia-smi", said), ("cmake", "")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho \"$@\" >> {tmp_path}/{name}.calls\nprintf '{text}'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(building, "BUILD", tmp_path / "build")
    building.configure("release")
    (tmp_path / "build" / "release" / "CMakeCache.txt").write_text(f"\nCMAKE_HOME_DIRECTORY:INTERNAL={ROOT}\n")
    building.configure("release")
    building.configure("host")
    first, *others = (tmp_path / "cmake.calls").read_text().splitlines()
    assert re.findall(r"-DCMAKE_CUDA_ARCHITECTURES=(\S+)$", first) == ([architectures] if architectures else [])
    assert not any("-D" in other for other in others)


def test_runs_cases_inside_tests(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of a GoogleTest program on the GPU, and of a pytest file."""
    programs = {
        "gtest": "*list_tests*) printf 'SuiteGpu.\\n  One\\n  Two/0  # GetParam() = 2\\n' ;; *) echo \"ran $1\"; exit 77",
        "pytest": "*--collect-only*) printf 'test_x.py::test_good\\ntest_x.py::test_bad[1]\\n\\n2 tests collected\\n' ;;\n"
        "*) echo \"ran $* with $A\"; case \"$*\" in *bad*) exit 1 ;; esac",
    }  # fmt: skip
    for name, cases in programs.items():
        (tmp_path / name).write_text(f'#!/bin/sh\ncase "$*" in {cases} ;; esac\n')
        (tmp_path / name).chmod(0o755)
    gpu = {"command": [f"{tmp_path}/gtest", "--gtest_filter=*Gpu*"], "properties": [{"name": "LABELS", "value": ["gpu"]}]}
    settings = [{"name": "ENVIRONMENT", "value": ["A=b"]}, {"name": "WORKING_DIRECTORY", "value": str(tmp_path)}]
    files = {"name": "x", "command": [f"{tmp_path}/pytest", "no:cacheprovider", "test_x.py"], "properties": settings}
    tests: list[dict] = [files, {"name": "s.gpu.1", **gpu}, {"name": "s.gpu.2", **gpu}, {"name": "bare"}]
    for regex, code, said in [
        ("test_good", 0, "ran no:cacheprovider test_x.py::test_good with b\n"),
        ("test_bad", 1, "ran no:cacheprovider test_x.py::test_bad[1] with b\n"),
        (r"SuiteGpu\.Two", 0, "ran --gtest_filter=SuiteGpu.Two/0\n"),
        ("nothing", None, ""),
    ]:
        assert building.run_cases(tmp_path, tests, regex) == code
        assert capfd.readouterr().out == said


@pytest.mark.parametrize(
    ("kind", "content", "why"),
    [
        ("cpu", {"fwht/libfwht.so": 10}, ""),
        ("cpu", {"fwht/libfwht.so": 5_000_000}, r"fwht\.whl has 5\.0 MB; 4 MB are the limit for cpu\."),
        ("cuda", {"fwht/libfwht.so": 5_000_000}, ""),
        ("cuda", {"fwht/libfwht.so": 41_000_000}, r"fwht\.whl has 41\.0 MB; 40 MB are the limit for cuda\."),
        ("cuda", {"fwht/__init__.py": 10}, r"fwht\.whl has no fwht/libfwht\.so\."),
        ("cpu", {"fwht/libfwht.so": 10, "fwht.libs/libgomp-1.so.1": 1}, r"fwht\.whl brings libraries of this machine: fwht\.libs/libgomp-1\.so\.1\."),
    ],
)
def test_what_a_wheel_may_hold(tmp_path, capsys, kind, content, why):
    with zipfile.ZipFile(tmp_path / "fwht.whl", "w") as file:
        for name, size in content.items():
            file.writestr(name, bytes(size))
    if not why:
        wheel.check(tmp_path / "fwht.whl", kind)
        return
    with pytest.raises(SystemExit):
        wheel.check(tmp_path / "fwht.whl", kind)
    assert re.search(why, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("elf", "ptx", "why"),
    [
        (["sm_80", "sm_90a"], ["sm_80"], ""),
        (["sm_80", "sm_90a", "sm_100"], ["sm_80", "sm_90a"], ""),
        (["sm_90a"], ["sm_80"], "the wheel lacks machine code for sm_80"),
        (["sm_80", "sm_90a"], ["sm_90a"], "the wheel lacks PTX for sm_80"),
        (["sm_80", "sm_90"], [], "the wheel lacks machine code for sm_90a"),
    ],
)
def test_the_device_code_of_a_wheel(tmp_path, capsys, elf, ptx, why):
    program = tmp_path / "lib" / "python3" / "site-packages" / "nvidia" / "cu13" / "bin" / "cuobjdump"
    program.parent.mkdir(parents=True)
    machine_code = "".join(f"ELF file    1: libfwht.1.{name}.cubin\n" for name in elf)
    texts = "".join(f"PTX file    1: libfwht.1.{name}.ptx\n" for name in ptx)
    program.write_text(f"#!/bin/sh\ncase $1 in --list-elf) printf '{machine_code}';; --list-ptx) printf '{texts}';; *) exit 1;; esac\n")
    program.chmod(0o755)
    found = wheel.device_code(tmp_path / "libfwht.so", tmp_path / "bin")
    assert found == {"elf": set(elf), "ptx": set(ptx)}
    if not why:
        wheel.check_device_code(found)
        return
    with pytest.raises(SystemExit):
        wheel.check_device_code(found)
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(("built_by", "backends"), [("nvcc 13.0.88", ["cu130"]), ("nvcc 12.8.61", ["cu126", "cu130"]), ("none: nvcc was not found", ["cpu"])])
def test_the_folders_of_kernels(tmp_path, built_by, backends):
    package = tmp_path / "fwht"
    (package / "__pycache__").mkdir(parents=True)
    for name in ("__init__.py", "libfwht.so", "__pycache__/x.pyc"):
        (package / name).touch()
    folders = wheel.kernels_folder(package, tmp_path / "kernels", built_by, "2.1.0", {"sm_90a", "sm_120"})
    assert [folder.name.split("-")[3] for folder in folders] == backends
    for folder in folders:
        about = json.loads((folder / "metadata.json").read_text())
        kind = "cpu" if backends == ["cpu"] else "cuda"
        assert (about["id"], about["version"], about["backend"]["type"]) == (f"fwht_{kind}_2", 2, kind)
        assert about["backend"].get("archs") == (["12.0", "9.0a"] if kind == "cuda" else None)
        assert folder.parent.name == "build" and {path.name for path in folder.iterdir()} == {"__init__.py", "libfwht.so", "metadata.json"}


def test_nothing_is_checked_where_git_does_not_say_what_changed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(checks, "ROOT", tmp_path)
    assert checks.why_not("sentences") == "this is no git checkout, which says what changed"


def test_a_grid_of_a_file_is_found_from_every_folder(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "my.grid").write_text("n = 8\n")
    monkeypatch.chdir(tmp_path)
    assert commands.parse("run", ["--grid", "my.grid"], one=("--grid",)).grid == str(tmp_path / "my.grid")
    assert commands.parse("profile", ["--grid", "my.grid", "--grid", "quick"], many=("--grid",)).grid == [str(tmp_path / "my.grid"), "quick"]
