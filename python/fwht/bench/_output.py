"""The file that a bench writes as it goes, and its table."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Output:
    """A JSON file in a folder, or nothing where no folder is asked for. Whoever is killed while it is written leaves what was there.

    Raises ValueError for a folder that has the file, is a file itself, cannot be made or written, or has no name.
    """

    def __init__(self, folder: str | None, name: str):
        self._file = None if folder is None else Path(folder) / name
        if folder is None or self._file is None:
            return
        if not folder:
            raise ValueError("--output: names no folder")
        try:
            if self._file.exists():
                raise ValueError(f"--output {folder}: has {'an' if name[0] in 'aeiou' else 'a'} {name}")
            there = next(path for path in self._file.absolute().parents if path.exists())
        except OSError as error:  # a name that is too long
            raise ValueError(f"--output {folder}: {error.strerror}") from None
        if there == Path(folder).absolute() and not there.is_dir():
            raise ValueError(f"--output {folder}: is no folder")
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):  # else the first write would say so, behind what was measured
            raise ValueError(f"--output {folder}: cannot be made or written, since {there} is no folder that can be written")

    def write(self, contents: dict[str, Any]) -> None:
        if self._file is None:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(contents, indent=1) + "\n")
        part.replace(self._file)


def lines_of(rows: list[dict[str, Any]], columns: Sequence[str] = ()) -> str:
    """A line for each row below the names of its columns, all of them or those named; "" for no rows."""
    if not rows:
        return ""

    def cell(value: Any) -> str:
        return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)

    names = list(columns or rows[0])
    words = [names, *([cell(row[name]) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*words)]
    return "\n".join("  ".join(word.ljust(width) for word, width in zip(line, widths)).rstrip() for line in words) + "\n"
