"""What ./testbed check runs before a commit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .machine import BUILD, ROOT, cores, environment, have, run, say

TOOLS = ("clang-format", "clang-tidy", "ruff", "mypy", "shellcheck", "sentences", "type-names")
CODE = ("*.cpp", "*.hpp", "*.cu", "*.cuh")


def path_of(tool: str) -> str | None:
    """Where a tool is; ruff and mypy may be in build/venv."""
    if tool in ("sentences", "type-names"):
        return sys.executable
    return shutil.which(tool, path=f"{BUILD / 'venv' / 'bin'}:{os.environ['PATH']}")


def install_missing(tools: list[str]) -> None:
    """Those that are missing."""
    missing = {tool for tool in tools if not path_of(tool)}
    if packages := sorted(missing & {"clang-format", "clang-tidy", "shellcheck"}):
        environment(*packages)
    if missing & {"ruff", "mypy"}:
        environment("checks")


def files_of(everything: bool, *patterns: str) -> list[str]:
    """Files of the tree, or of what changed, by patterns of git; they exist."""

    def git(*arguments: str) -> list[str]:
        return run(["git", "-C", ROOT, *arguments], stdout=subprocess.PIPE).stdout.splitlines()

    if everything:
        found = git("ls-files", "--", *patterns)
    elif git("status", "--porcelain"):
        found = git("diff", "--name-only", "--diff-filter=d", "HEAD", "--", *patterns)
    else:
        found = git("diff-tree", "--root", "-r", "-m", "--no-commit-id", "--name-only", "--diff-filter=d", "HEAD", "--", *patterns)
    return sorted({*found, *git("ls-files", "--others", "--exclude-standard", "--", *patterns)})


def tidy_sources(everything: bool) -> list[str]:
    """Sources that clang-tidy takes: a changed header is seen through the sources of its name."""
    wanted = set(files_of(everything, "*.cpp"))
    for header in files_of(everything, "*.hpp"):
        wanted |= {header.removesuffix(".hpp") + end for end in (".cpp", "_test.cpp")}
    compiled = {entry["file"] for entry in json.loads((ROOT / "compile_commands.json").read_text())}
    return [file for file in sorted(wanted) if str(ROOT / file) in compiled]


def in_parts(command: list[str], files: list[str], size: int) -> bool:
    """The command over so many files a time, as many at once as there are cores. Prints what it says of them."""

    def part(start: int) -> bool:
        done = subprocess.run([*command, *files[start : start + size]], cwd=ROOT, check=False, capture_output=True, text=True)
        said = [line for line in (done.stdout + done.stderr).splitlines() if not line.endswith("generated.")]  # "2 warnings generated."
        if said:
            print(*said, sep="\n", flush=True)
        return done.returncode == 0

    with ThreadPoolExecutor(cores()) as pool:
        return all(list(pool.map(part, range(0, len(files), size))))


def passes(tool: str, path: str, everything: bool) -> bool:
    """Runs one check, which prints its findings."""
    if tool == "clang-format":
        return in_parts([path, "--dry-run", "-Werror"], files_of(True, *CODE), 40)
    if tool == "clang-tidy":
        return in_parts([path, "--quiet", "--warnings-as-errors=*", "--extra-arg=-Wno-unknown-warning-option", "-p", str(ROOT)], tidy_sources(everything), 1)
    if tool == "shellcheck":
        return in_parts([path], sorted({*files_of(everything, "*.sh"), "testbed", ".ci/run"}), 1000)
    if tool == "sentences":
        return in_parts([path, "-m", "analysis.sentences"], files_of(everything, "*.md", "*.h", *CODE), 10000)
    commands = {
        "ruff": ["check", "--quiet", "--cache-dir", str(BUILD / "ruff"), "analysis"],
        "mypy": ["--cache-dir", str(BUILD / "mypy"), "--no-error-summary"],
        "type-names": ["-m", "analysis.type_names"],
    }
    return run([path, *commands[tool]], cwd=ROOT).returncode == 0


def why_not(tool: str) -> str | None:
    """What a check lacks on this machine."""
    if not have("git"):
        return "git is missing"
    if run(["git", "-C", ROOT, "rev-parse", "--is-inside-work-tree"], capture_output=True).returncode:
        return "this is no git checkout, which says what changed"
    if not path_of(tool):
        return f"{tool} is missing; ./testbed check --install gets it"
    if tool == "clang-tidy" and not Path(ROOT / "compile_commands.json").is_file():
        return "there is no compile_commands.json; 'cmake --preset host' makes it"
    return None


def main(tools: list[str], *, everything: bool, install: bool) -> int:
    """0: all pass; 1: one failed; 2: none failed, but a tool is missing."""
    if install:
        install_missing(tools)
    code = 0
    for tool in tools:
        if why := why_not(tool):
            say(f"{tool}: not run, {why}")
            code = code or 2
        elif passes(tool, path_of(tool) or "", everything):
            say(f"{tool}: ok")
        else:
            say(f"{tool}: failed (above)")
            code = 1
    return code
