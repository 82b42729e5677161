"""Functions of a framework are replaced all together or not at all, after a look at their names and parameters."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import logging
import os
import sys
from types import ModuleType
from typing import Any, Callable, Iterable, Mapping, Sequence

from .. import _c


class Replaced:
    """The functions of one framework that were replaced, and how they come back.

    A target is "module:name" or "module:Class.name". `known` has the parameters of each as this plugin knows them, or None for what is
    no function. Messages go to a child of the framework's own logger, whose level and place they take.
    """

    def __init__(self, framework: str, switch: str, known: Mapping[str, Sequence[str] | None]):
        self.framework = framework
        self.switch = switch
        self.known = known
        self.log = logging.getLogger(f"{framework}.fwht")
        self._back: list[tuple[Any, str, Any]] = []
        self._looked = False

    def wanted(self, is_cuda: Callable[[], bool] | None) -> bool:
        """Whether to go on: not where that was done before, where the environment variable is set, and without CUDA (None: that is not needed)."""
        if self._looked or os.environ.get(self.switch, "0") not in ("", "0"):
            return False
        self._looked = True
        return is_cuda is None or not _c.build_info()["cuda"].startswith("none") and is_cuda()

    def are_known(self) -> bool:
        """Whether all targets are as they are known; else one warning says which is not."""
        try:
            self.check()
        except LookupError as error:
            self.log.warning(
                "fwht: %s %s: %s; nothing is replaced (%s=1 silences this)",
                self.framework, _version(self.framework), error.args[0], self.switch,
            )  # fmt: skip
            return False
        return True

    def put(self, ours: Mapping[str, Callable[[Any], Any]]) -> None:
        """Puts what `ours` makes of each original in its place."""
        for target, make in ours.items():
            owner, name = _owner(target)
            original = getattr(owner, name)
            self._set(owner, name, original, make(original))
        self.tell(ours)

    def tell(self, targets: Iterable[str]) -> None:
        """The one line in the log."""
        names = ", ".join(target.partition(":")[2] for target in targets)
        version = _version(self.framework)
        self.log.info("fwht %s replaces in %s %s: %s (%s=1 switches it off)", _c.version, self.framework, version, names, self.switch)

    def check(self) -> None:
        """LookupError, with the name, where a target is missing or takes other parameters."""
        for target, parameters in self.known.items():
            owner, name = _owner(target)
            if not hasattr(owner, name):
                raise LookupError(f"{target} is missing")
            if parameters is not None:
                there = list(inspect.signature(getattr(owner, name)).parameters)
                if there != list(parameters):
                    raise LookupError(f"{target} takes ({', '.join(there)}), not ({', '.join(parameters)})")

    def _set(self, owner: Any, name: str, original: Any, value: Any) -> None:
        setattr(owner, name, value)
        self._back.append((owner, name, original))
        if isinstance(owner, ModuleType):  # modules that imported the function by its name
            for module in list(sys.modules.values()):
                if isinstance(module, ModuleType) and vars(module).get(name) is original:
                    setattr(module, name, value)
                    self._back.append((module, name, original))

    def take_back(self) -> None:
        while self._back:
            setattr(*self._back.pop())
        self._looked = False


def _owner(target: str) -> tuple[Any, str]:
    module_name, _, path = target.partition(":")
    try:
        owner: Any = importlib.import_module(module_name)
    except Exception as error:  # whatever a module of another version runs into: the framework goes on without us
        raise LookupError(f"{module_name} cannot be imported ({type(error).__name__}: {error})") from error
    *classes, name = path.split(".")
    for part in classes:
        if not hasattr(owner, part):
            raise LookupError(f"{module_name}:{part} is missing")
        owner = getattr(owner, part)
    return owner, name


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"
