"""Which commit a build's sources are, by their hash.

A build from a copy of the tree that lacks the newest commits, as on a machine that only measures, finds that its sources differ
from the commit that it knows, and says so in its results. Its hash of the sources tells what was built all the same. The table
experiments/results/sources.csv names the commits of such hashes, and a test computes each anew from the history.
"""

import csv
import functools
import hashlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "experiments" / "results" / "sources.csv"
FOLDERS = ("common", "reference", "variants", "cmake")
# As cmake/write_build_info.cmake has it for the files of a tree.
_OF_LIBRARY = rf"({'|'.join(FOLDERS)})/(.*\.(cpp|hpp|cu|cuh|cmake|in)|(.*/)?CMakeLists\.txt)"
_SOURCE = re.compile(rf"{_OF_LIBRARY}|experiments/.*\.(cpp|hpp|cu|cuh)|(experiments/)?CMakeLists\.txt")


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", ROOT, *arguments], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def hash_of(commit: str) -> str:
    """What a build of this commit has as its hash of the sources; needs the history."""
    listed = _git("ls-tree", "-r", "--name-only", "-z", commit).decode().split("\0")
    names = sorted(name for name in listed if _SOURCE.fullmatch(name))
    request = "".join(f"{commit}:{name}\n" for name in names).encode()
    batch = subprocess.run(["git", "-C", ROOT, "cat-file", "--batch"], input=request, check=True, stdout=subprocess.PIPE).stdout
    digest = hashlib.sha256()
    at = 0
    for name in names:
        line_end = batch.index(b"\n", at)
        size = int(batch[at:line_end].split()[-1])
        content = batch[line_end + 1 : line_end + 1 + size]
        digest.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
        at = line_end + size + 2
    return digest.hexdigest()


def commit_with(sources_hash: str, commits: int = 50) -> str | None:
    """The newest of the last commits that has these sources, if one has."""
    for commit in _git("rev-list", f"--max-count={commits}", "HEAD").decode().split():
        if hash_of(commit) == sources_hash:
            return commit
    return None


@functools.cache
def named() -> dict[str, str]:
    """The commits of the table, by their hashes."""
    return dict(_rows())


def _rows() -> Iterator[tuple[str, str]]:
    if TABLE.exists():
        with TABLE.open(newline="") as file:
            for row in csv.DictReader(file):
                yield row["sources_hash"], row["commit"]


def name(sources_hash: str) -> str | None:
    """Adds the commit that has these sources to the table; None where none of the last ones has."""
    if known := named().get(sources_hash):
        return known
    if commit := commit_with(sources_hash):
        rows = sorted({**named(), sources_hash: commit}.items(), key=lambda row: row[1])
        TABLE.write_text("".join(f"{a},{b}\n" for a, b in [("sources_hash", "commit"), *rows]))
        named.cache_clear()
    return commit
