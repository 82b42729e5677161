"""Modules of a package that are imported at first use, since they import PyTorch or what is optional."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from types import ModuleType


def submodule(package: str, name: str, known: Collection[str]) -> ModuleType:
    """What `__getattr__` of the package returns for `name`."""
    if name not in known:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return importlib.import_module(f".{name}", package)
