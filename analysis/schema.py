"""The declarations of a results folder's tables, as the programs write them into `schema.json`.

`docs/measuring.md` describes the format. A folder is read by the schema that lies in it. `analysis/schema.json` is what the
programs of this commit write: it gives the columns of tables that a folder does not have. A test holds it to the programs.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

SCHEMA_VERSION = 1
NAME = "schema.json"
CURRENT = Path(__file__).parent / NAME


class ResultsError(Exception):
    """A results folder or a request that cannot be served; the text is one sentence for the user."""


@dataclass(frozen=True)
class Column:
    """One column; `required`: never empty, `key`: one of those that tell the rows apart."""

    name: str
    type: str  # one of CHECKS
    unit: str
    required: bool
    key: bool
    meaning: str
    values: tuple[str, ...] = ()  # of an enum

    @property
    def is_number(self) -> bool:
        return self.type in ("integer", "number")


@dataclass(frozen=True)
class Table:
    """One file of a results folder; the columns stand in the order of the file."""

    name: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def key(self) -> list[str]:
        return [column.name for column in self.columns if column.key]

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def empty(self) -> pd.DataFrame:
        return pd.DataFrame({c.name: pd.Series(dtype=float if c.is_number else object) for c in self.columns})


Schema = dict[str, Table]  # by file name


def parse(text: str, where: str) -> Schema:
    """The declarations of a schema.json; ResultsError when it is none. `where` names the folder."""
    try:
        content = json.loads(text)
        version = content["schema_version"]
        if version != SCHEMA_VERSION:
            raise ResultsError(f"{where}: {NAME} has schema_version {version}, this program reads {SCHEMA_VERSION}")
        tables = {
            name: Table(name, tuple(_column(entry) for entry in table["columns"]))
            for name, table in content["tables"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultsError(f"{where}: {NAME} cannot be read: {error!r}") from None
    for table in tables.values():
        for column in table.columns:
            if column.type not in CHECKS:
                raise ResultsError(f"{where}: {NAME} has an unknown type {column.type!r} for {column.name}")
    return tables


def _column(entry: dict) -> Column:
    values = tuple(entry.get("values", ()))
    return Column(entry["name"], entry["type"], entry["unit"], entry["required"], entry["key"], entry["meaning"], values)


@cache
def current() -> Schema:
    """What the programs of this commit write. Shared: do not modify."""
    return parse(CURRENT.read_text(encoding="utf-8"), CURRENT.parent.name)


def of_folder(path: Path) -> Schema | None:
    """The schema that lies in a results folder; None without one."""
    file = path / NAME
    if not file.is_file():
        return None
    return parse(file.read_text(encoding="utf-8"), path.name)


def read_text_table(path: Path, name: str) -> pd.DataFrame | None:
    """All fields of a CSV file as text, "" for none; None without the file. A half last line, as a killed run leaves it,
    is left out."""
    file = path / name
    if not file.is_file():
        return None
    try:
        text = file.read_text(encoding="utf-8")
        complete = text[: text.rfind("\n") + 1]
        return pd.read_csv(io.StringIO(complete), dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path.name}: {name} cannot be read: {error}") from None


def typed(path: Path, table: pd.DataFrame, declared: Table) -> pd.DataFrame:
    """The texts of `table` as values: integers that are never empty as int64, other numbers as float with NaN for none.

    ResultsError for a column that is missing, not declared, or holds what its type does not allow.
    """
    name = declared.name
    missing = [column for column in declared.names if column not in table]
    if missing:
        raise ResultsError(f"{path.name}: {name} lacks column {', '.join(missing)}")
    strange = [column for column in table if column not in declared.names]
    if strange:
        raise ResultsError(f"{path.name}: {name} has column {', '.join(strange)}, which {NAME} does not declare")
    return pd.DataFrame({c.name: _values(path, name, c, table[c.name]) for c in declared.columns})


def _values(path: Path, name: str, column: Column, texts: pd.Series) -> pd.Series:
    empty = texts == ""
    if column.required and empty.any():
        raise ResultsError(f"{path.name}: {name} has an empty {column.name} in line {line_of(empty)}")
    wrong = ~empty & ~CHECKS[column.type](texts, column)
    if wrong.any():
        allowed = f"one of {', '.join(column.values)}" if column.values else WORDS[column.type]
        raise ResultsError(
            f"{path.name}: {name} has {texts[wrong].iloc[0]!r} for {column.name} in line {line_of(wrong)}, not {allowed}"
        )
    if not column.is_number:
        return texts.astype(object)
    return texts.astype("int64") if column.type == "integer" and column.required else _numbers(texts)


def line_of(mask: pd.Series) -> int:
    """The line of the file that the first true row of `mask` stands in; the header is line 1."""
    return int(mask.to_numpy().argmax()) + 2


def _numbers(texts: pd.Series) -> pd.Series:
    return pd.Series(pd.to_numeric(texts, errors="coerce"), index=texts.index).astype(float)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


CHECKS: dict[str, Callable[[pd.Series, Column], pd.Series]] = {
    "string": lambda texts, column: pd.Series(np.ones(len(texts), bool), index=texts.index),
    "integer": lambda texts, column: texts.str.fullmatch(r"-?\d+"),
    "number": lambda texts, column: _numbers(texts).notna(),
    "boolean": lambda texts, column: texts.isin(["true", "false"]),
    "enum": lambda texts, column: texts.isin(list(column.values)),
    "json": lambda texts, column: texts.map(_is_object).astype(bool),
}
WORDS = {"integer": "an integer", "number": "a number", "boolean": "true or false", "json": "a JSON object"}
