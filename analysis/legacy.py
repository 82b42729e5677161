"""Folders that were recorded before the programs wrote `schema.json`: read by today's declarations.

Delete this file, its call in load.py and its test with the last such folder.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from . import schema

# What such folders lack. Their operator is Sylvester of n, their encoding plain, and half of their bytes are read.
LACKED = ("operator", "encoding", "bytes_read", "bytes_written")


def declared(table: schema.Table, names: Iterable[str]) -> schema.Table:
    """`table` as older folders hold it, whose file has the columns `names`: what came later and may be empty is not asked for."""
    known = set(names)
    return table.model_copy(update={"columns": [c for c in table.columns if c.name in known or (c.required and c.name not in LACKED)]})


def completed(values: pd.DataFrame, table: schema.Table) -> pd.DataFrame:
    """The columns that older folders lack, in the places that `table` gives them."""
    meaning = {
        "operator": lambda: values["n"].astype(str).astype(object),
        "encoding": lambda: pd.Series("", index=values.index, dtype=object),
        "bytes_read": lambda: values["useful_bytes"] // 2,
        "bytes_written": lambda: values["useful_bytes"] // 2,
    }
    absent = {name: meaning[name]() for name in LACKED if name in table.names and name not in values}
    return schema.completed(values.assign(**absent), table)[table.names]
