"""The file that a bench writes as it goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Output:
    """A JSON file in a folder, or nothing where no folder is asked for. Whoever is killed while it is written leaves what was there.

    Raises ValueError for a folder that has the file, is a file itself, or has no name.
    """

    def __init__(self, folder: str | None, name: str):
        self._file = None if folder is None else Path(folder) / name
        if folder is None or self._file is None:
            return
        if not folder:
            raise ValueError("--output: names no folder")
        if self._file.exists():
            raise ValueError(f"--output {folder}: has {'an' if name[0] in 'aeiou' else 'a'} {name}")
        if Path(folder).exists() and not Path(folder).is_dir():
            raise ValueError(f"--output {folder}: is no folder")

    def write(self, contents: dict[str, Any]) -> None:
        if self._file is None:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(contents, indent=1) + "\n")
        part.replace(self._file)
