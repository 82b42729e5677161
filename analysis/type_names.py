"""Holds the code to docs/type_names.csv, one meaning per type name: `python3 -m analysis.type_names [ROOT]`.

A name of a struct, class, enum or union that is defined in two files must be in the table; so must be each file that defines it: the
owner, and those under `also`, which are told apart in `meaning`. A row whose files no longer define the name is wrong too. Definitions
in tests (`*_test.cpp`) are their own affair. Prints a line for each finding; exit code 1 when there is one.
"""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

TABLE = Path("docs") / "type_names.csv"
_DEFINITION = re.compile(
    r"^[ \t]*(?:template\s*<[^;{}]*>\s*)?(?:struct|class|union|enum(?:\s+class)?)\s+(?:alignas\([^)]*\)\s*|\[\[\w+\]\]\s*|__align__\([^)]*\)\s*)*"
    r"(\w+)(?:\s+final)?\s*(?::(?!:)[^;{]*)?\{",
    re.MULTILINE,
)


def definitions(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """The files that define each name; `sources`: text by path."""
    found: dict[str, set[str]] = {}
    for path, text in sources.items():
        if not path.endswith("_test.cpp"):
            for name in _DEFINITION.findall(text):
                found.setdefault(name, set()).add(path)
    return found


def findings(defined: Mapping[str, set[str]], rows: list[dict[str, str]]) -> list[str]:
    allowed: dict[str, set[str]] = {}
    lines = []
    for row in rows:
        files = {row["owner"], *row["also"].split()}
        if row["name"] in allowed:
            lines.append(f"{row['name']}: two rows in {TABLE}")
        allowed[row["name"]] = files
        lines += [f"{row['name']}: {TABLE} names {path}, which does not define it" for path in sorted(files - defined.get(row["name"], set()))]
        if not row["meaning"]:
            lines.append(f"{row['name']}: no meaning in {TABLE}")
    for name, paths in sorted(defined.items()):
        if name in allowed:
            lines += [f"{path}: {name} belongs to {TABLE}'s owner; take another name" for path in sorted(paths - allowed[name])]
        elif len(paths) > 1:
            lines.append(f"{', '.join(sorted(paths))}: all define {name}; take other names, or give it a row in {TABLE}")
    return lines


def sources_of(root: Path) -> dict[str, str]:
    """Sources that git tracks or would track."""
    patterns = ["*.hpp", "*.h", "*.cuh", "*.cu", "*.cpp"]
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return {path: (root / path).read_text(encoding="utf-8") for path in listed.stdout.splitlines() if (root / path).is_file()}


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).parents[1]
    with open(root / TABLE, encoding="utf-8", newline="") as file:
        lines = findings(definitions(sources_of(root)), list(csv.DictReader(file)))
    print(*lines, sep="\n", end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
