"""Modules with the names and habits of published ones, for code that was written for them.

    import fwht
    fwht.compat.install()       # from here on `import fast_hadamard_transform` finds this library
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from . import fast_hadamard_transform

__all__ = ["install", "uninstall"]

VERSION = "1.1.0"  # of the package whose calls these are

_NAME = "fast_hadamard_transform"
_INTERFACE = f"{_NAME}.fast_hadamard_transform_interface"
_set: list[tuple[dict[str, Any], str, Any]] = []  # a namespace, the name in it and the value that `install` gave it


def _package() -> ModuleType:
    package = ModuleType(_NAME, fast_hadamard_transform.__doc__)
    package.__spec__ = ModuleSpec(_NAME, None, origin=fast_hadamard_transform.__file__, is_package=True)
    vars(package).update(
        __path__=[], __version__=VERSION, hadamard_transform=fast_hadamard_transform.hadamard_transform,
        fast_hadamard_transform_interface=fast_hadamard_transform,
    )  # fmt: skip
    return package


def install() -> list[str]:
    """Puts `fwht.compat.fast_hadamard_transform` where the package fast-hadamard-transform is looked for and is not.

    `import fast_hadamard_transform`, `from fast_hadamard_transform import hadamard_transform` and
    `from fast_hadamard_transform.fast_hadamard_transform_interface import hadamard_transform_12N` find it from now on. So do
    modules that imported it in vain before and bound the name to None (`fast_hadamard_transform = None`, `hadamard_transform =
    None`). What they decided otherwise (`HAS_FAST_HADAMARD = False`) stays: call it before they are imported.

    A package that is there and can be imported is left alone; one that is there and fails to be imported (built for another
    PyTorch) is replaced.

    Returns: the names that this call set, "sys.modules.fast_hadamard_transform" first; none the second time, or beside a package.
    """
    try:
        package = importlib.import_module(_NAME)
    except ImportError:
        package = None
    before = len(_set)
    if package is None:
        package = _package()
        _set.extend([(sys.modules, _NAME, package), (sys.modules, _INTERFACE, fast_hadamard_transform)])
    elif getattr(package, "hadamard_transform", None) is not fast_hadamard_transform.hadamard_transform:
        return []
    found = {_NAME: package, "hadamard_transform": package.hadamard_transform}
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            _set.extend((vars(module), name, value) for name, value in found.items() if vars(module).get(name, module) is None)
    transformers = sys.modules.get("transformers.utils.import_utils")
    if getattr(transformers, "_hadamard_available", None) is False:  # transformers 4, which asked once, at import
        _set.append((vars(transformers), "_hadamard_available", True))
    for namespace, name, value in _set[before:]:
        namespace[name] = value
    _ask_again()
    return [f"{namespace.get('__name__', 'sys.modules')}.{name}" for namespace, name, _ in _set[before:]]


def _ask_again() -> None:
    """transformers keeps its answer whether the package is there."""
    transformers = sys.modules.get("transformers.utils.import_utils")
    getattr(getattr(transformers, "is_hadamard_available", None), "cache_clear", lambda: None)()


def uninstall() -> None:
    """Takes back what `install` set, where nobody set something else since."""
    for namespace, name, value in _set:
        if namespace.get(name) is value:
            if namespace is sys.modules:
                del namespace[name]
            else:
                namespace[name] = False if value is True else None
    _set.clear()
    _ask_again()
