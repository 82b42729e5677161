"""The declarations of a results folder's tables, as the programs write them into `schema.json`.

`docs/measuring.md` describes the format. A folder is read by the schema that lies in it. `experiments/harness/schema.json` is what
the programs of this commit write by: it gives the columns of tables that a folder does not have.

Pydantic holds the JSON files to their models. The CSV columns are checked here, a vector at a time: their declarations are
data, and a message names file, line and value.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError

# With pyarrow pandas would take its strings, and with them another kind of regular expressions: the answers are the same
# on every machine.
pd.options.mode.string_storage = "python"

NAME = "schema.json"
CURRENT = Path(__file__).resolve().parents[1] / "experiments" / "harness" / NAME
LARGEST_FILE = 256 << 20  # bytes; the largest committed table has 4 MB


class ResultsError(Exception):
    """A results folder or a request that cannot be served; the text is one sentence for the user."""


class Strict(BaseModel):
    """Types as written, no conversions; keys that a later program adds are kept out of the way."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class Column(Strict):
    """One column; `required`: never empty, `required_if_ok`: not where the row's status is ok, `key`: one of those that tell the
    rows apart, `range`: of its numbers, where the schema declares one."""

    name: str
    type: Literal["string", "integer", "number", "boolean", "enum", "json"]
    meaning: str
    unit: str = ""
    required: bool = False
    key: bool = False
    values: list[str] = []  # of an enum
    range: Literal["positive", "not_negative"] | None = None
    required_if_ok: bool = False

    @property
    def is_number(self) -> bool:
        return self.type in ("integer", "number")


class Table(Strict):
    """One file of a results folder; the columns stand in the order of the file."""

    name: str
    columns: list[Column]
    may_repeat: bool = False  # a resumed run writes rows again

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def key(self) -> list[str]:
        return [column.name for column in self.columns if column.key]

    def empty(self) -> pd.DataFrame:
        return pd.DataFrame({c.name: pd.Series(dtype=float if c.is_number else object) for c in self.columns})


class _TableEntry(Strict):
    columns: list[Column]
    may_repeat: bool = False


class _File(Strict):
    schema_version: Annotated[int, Field(ge=1, le=1)]  # Literal[1] would take true and 1.0
    tables: dict[str, _TableEntry]


Schema = dict[str, Table]  # by file name
Model = TypeVar("Model", bound=BaseModel)


def read_json(path: Path, model: type[Model]) -> Model:
    """A JSON file held to its model; ResultsError, in one sentence, for anything else."""
    where = f"{path.parent.name}: {path.name}"
    try:
        content = json.loads(read_bytes(path).decode("utf-8"), parse_constant=_no_constant)
        return model.model_validate(content)
    except ValidationError as error:
        raise ResultsError(f"{where}: {_first_error(error)}") from None
    except (ValueError, RecursionError) as error:
        raise ResultsError(f"{where} cannot be read: {_one_line(str(error))}") from None


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def read_bytes(path: Path) -> bytes:
    """The content of an ordinary file; ResultsError for devices, folders, and files that no program of ours writes."""
    try:
        if not path.is_file():
            raise ResultsError(f"{path.parent.name}: {path.name} is no file")
        if path.stat().st_size > LARGEST_FILE:
            raise ResultsError(f"{path.parent.name}: {path.name} has more than {LARGEST_FILE >> 20} MiB")
        return path.read_bytes()
    except OSError as error:
        raise ResultsError(f"{path.parent.name}: {path.name} cannot be read: {error.strerror}") from None


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(map(str, first["loc"])) or "the file"
    if first["type"] == "missing":
        return f"{place} is missing"
    return f"{place} is {_one_line(repr(first['input']), 60)}: {first['msg'][0].lower()}{first['msg'][1:]}"


def _one_line(text: str, longest: int = 200) -> str:
    text = re.sub(r"\s+", " ", text)
    return text if len(text) <= longest else text[: longest - 3] + "..."


def of_file(path: Path) -> Schema:
    """The declarations of a schema.json; ResultsError when it is none."""
    entries = read_json(path, _File).tables
    tables = {name: Table(name=name, columns=entry.columns, may_repeat=entry.may_repeat) for name, entry in entries.items()}
    for table in tables.values():
        where = f"{path.parent.name}: {NAME}"
        if not re.fullmatch(r"\w+\.csv", table.name):
            raise ResultsError(f"{where} declares {table.name!r}, which is no name of a table")
        if repeated := {name for name in table.names if table.names.count(name) > 1}:
            raise ResultsError(f"{where} declares column {min(repeated)} of {table.name} twice")
        if not table.columns:
            raise ResultsError(f"{where} declares no columns of {table.name}")
    return tables


@cache
def current() -> Schema:
    """What the programs of this commit write. Shared: do not modify."""
    return of_file(CURRENT)


def present(file: Path) -> bool:
    """Whether anything lies there, a link to nothing or to itself included."""
    return file.is_symlink() or file.exists()


def of_folder(path: Path) -> Schema | None:
    """The schema that lies in a results folder, None without one. It may add tables, columns and values to those of `current`, and lack
    columns that may be empty, of the key too, and ranges; ResultsError where it says anything else of what readers know."""
    if not present(path / NAME):
        return None
    own = of_file(path / NAME)
    for name in own.keys() & current().keys():
        known = {column.name: column for column in own[name].columns}
        for column in current()[name].columns:
            where = f"{path.name}: {NAME}"
            if column.name not in known and (column.required or column.required_if_ok):
                raise ResultsError(f"{where} declares no {column.name} of {name}")
            for entry in ("type", "key", "required", "required_if_ok", "range"):
                wanted, found = getattr(column, entry), getattr(known.get(column.name, column), entry)
                if wanted != found and not (entry == "range" and found is None):
                    raise ResultsError(f"{where} declares {entry} {found} for {column.name} of {name}; it is {wanted}")
        ranges = {column.name: column.range for column in current()[name].columns}  # older folders name fewer
        own[name] = own[name].model_copy(update={"columns": [c.model_copy(update={"range": c.range or ranges.get(c.name)}) for c in own[name].columns]})
    return own


def read_text_table(path: Path, name: str) -> pd.DataFrame | None:
    """All fields of a CSV file as text, "" for none; None without the file. A half last line, as a killed run leaves it,
    is left out."""
    file = path / name
    if not present(file):
        return None
    try:
        text = read_bytes(file).decode("utf-8")
        if "\0" in text or "\r" in text:
            raise ValueError("it holds a zero byte" if "\0" in text else "it holds a carriage return")
        header, *lines = csv.reader(io.StringIO(text[: text.rfind("\n") + 1]), strict=True)
        if len(set(header)) != len(header):
            raise ValueError("its header names a column twice")
    except (ValueError, csv.Error) as error:
        why = "it is empty" if "to unpack" in str(error) else _one_line(str(error))
        raise ResultsError(f"{path.name}: {name} cannot be read: {why}") from None
    for number, line in enumerate(lines, 2):
        if len(line) != len(header):
            raise ResultsError(f"{path.name}: {name} has {'fewer' if len(line) < len(header) else 'more'} fields than columns in line {number}")
    return pd.DataFrame(lines, columns=header, dtype=str)


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
    if table.empty:
        return declared.empty()
    values = pd.DataFrame({c.name: _values(path, name, c, table[c.name]) for c in declared.columns})
    if "status" in table:
        for column in (c for c in declared.columns if c.required_if_ok):
            empty = (table["status"] == "ok") & (table[column.name] == "")
            if empty.any():
                raise ResultsError(f"{path.name}: {name} is ok without {column.name} in line {line_of(empty)}")
    return values


def completed(values: pd.DataFrame, table: Table) -> pd.DataFrame:
    """With the columns of `table` that `values` lacks, empty: no number, or "" for text."""
    lacked = [column for column in table.columns if column.name not in values]
    return values.assign(**{c.name: pd.Series(np.nan if c.is_number else "", index=values.index, dtype=float if c.is_number else object) for c in lacked})


def _values(path: Path, name: str, column: Column, texts: pd.Series) -> pd.Series:
    empty = texts == ""
    if column.required and empty.any():
        raise ResultsError(f"{path.name}: {name} has an empty {column.name} in line {line_of(empty)}")
    wrong = ~empty & ~CHECKS[column.type](texts, column)
    if wrong.any():
        allowed = f"one of {', '.join(column.values)}" if column.values else WORDS[column.type]
        raise ResultsError(f"{path.name}: {name} has {texts[wrong].iloc[0][:80]!r} for {column.name} in line {line_of(wrong)}, not {allowed}")
    if not column.is_number:
        return texts.astype(object)
    values = _numbers(texts)
    least = least_value(column)
    low = (values < least) | ((values == 0) & (column.range == "positive"))
    if low.any():
        words = "which is not positive" if column.range == "positive" else f"below {least:g}"
        raise ResultsError(f"{path.name}: {name} has {column.name} = {texts[low].iloc[0]} in line {line_of(low)}, {words}")
    return texts.astype("int64") if column.type == "integer" and column.required else values


# Where a schema declares no range: counts, sizes, times and errors are never negative; only these say a direction.
SIGNED = ("gain", "predicted_gain", "mean_signed_error", "value", "model_value", "group")


def least_value(column: Column) -> float:
    """The least value that a number of this column may have."""
    if column.range is None and column.name in SIGNED:
        return -np.inf
    return 1 if column.name in ("n", "rows", "elements", "useful_bytes", "launches", "replays") and column.type == "integer" else 0


def line_of(mask: pd.Series) -> int:
    """The line of the file that the first true row of `mask` stands in; the header is line 1."""
    return int(mask.to_numpy().argmax()) + 2


def _numbers(texts: pd.Series) -> pd.Series:
    return pd.Series(pd.to_numeric(texts, errors="coerce"), index=texts.index).astype(float)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text, parse_constant=_no_constant), dict)
    except (ValueError, RecursionError):
        return False


CHECKS: dict[str, Callable[[pd.Series, Column], Any]] = {
    "string": lambda texts, column: ~texts.str.contains("[" + r"\x00-\x08\x0b-\x1f\x7f-\x9f" + "\u2028\u2029]"),
    "integer": lambda texts, column: texts.str.fullmatch(r"-?[0-9]{1,18}"),
    "number": lambda texts, column: texts.str.fullmatch(r"[-+.0-9eE]+|-?inf") & _numbers(texts).notna(),
    "boolean": lambda texts, column: texts.isin(["true", "false"]),
    "enum": lambda texts, column: texts.isin(list(column.values)),
    "json": lambda texts, column: texts.map(_is_object).astype(bool),
}
WORDS = {"string": "text without control characters", "integer": "an integer", "number": "a number",
         "boolean": "true or false", "json": "a JSON object"}  # fmt: skip
