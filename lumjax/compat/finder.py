"""The import hook: the names of JAX's modules, resolved to modules of lumjax."""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from lumjax.compat.modules import MODULES, VERSION
from lumjax.config import config
from lumjax.errors import HookError

_ROOTS = ("jax", "jaxlib")


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in _ROOTS


def _asked_for(fullname: str, path: Sequence[str] | None) -> str:
    """JAX's name of a module. `from jax.experimental import x` asks for `lumjax.experimental.x`, as
    modules know their own names; where lumjax has that, it is not ours to answer.
    """
    if not fullname.startswith("lumjax."):
        return fullname
    name = f"jax.{fullname.removeprefix('lumjax.')}"
    return "" if name not in MODULES or PathFinder.find_spec(fullname, path) else name


class _Distribution(importlib.metadata.Distribution):
    """What `importlib.metadata` says of jax and jaxlib: a name and a version."""

    def __init__(self, name: str) -> None:
        self._name = name

    def read_text(self, filename: str) -> str | None:
        """The one file there is, METADATA."""
        if filename == "METADATA":
            return f"Metadata-Version: 2.1\nName: {self._name}\nVersion: {VERSION}\n"
        return None

    def locate_file(self, path: Any) -> Any:
        """Refuse: nothing is installed under this name."""
        raise FileNotFoundError(f"{self._name} is lumjax.compat and has no files: {path}")


class _Loader(Loader):
    """Puts the module of lumjax that stands for a name into `sys.modules`, itself and no copy."""

    def __init__(self, target: str) -> None:
        self.target = target

    def exec_module(self, module: ModuleType) -> None:
        """Replace the empty module that the import system made."""
        spec = module.__spec__
        assert spec is not None
        sys.modules[spec.name] = importlib.import_module(self.target)


class _Finder:
    """Answers for jax and jaxlib alone, and for these before anyone else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module that has a counterpart."""
        del target
        name = _asked_for(fullname, path)
        if name not in MODULES:
            return None
        found = MODULES[name]
        package = any(other.startswith(f"{name}.") for other in MODULES)
        return ModuleSpec(fullname, _Loader(found), origin=found, is_package=package)

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context
    ) -> Iterable[importlib.metadata.Distribution]:
        """Give jax and jaxlib the version whose behaviour lumjax has."""
        return [_Distribution(name) for name in _ROOTS if context.name in (None, name)]

    def invalidate_caches(self) -> None:
        """There are none."""


class _Relay(logging.Handler):
    """What lumjax logs, for listeners of the logger "jax"."""

    def emit(self, record: logging.LogRecord) -> None:
        """Pass it on; the root's handlers have it from lumjax's logger already."""
        jax = logging.getLogger("jax")
        for handler in jax.handlers:
            if record.levelno >= handler.level:
                handler.handle(record)
        if not jax.hasHandlers() and logging.lastResort is not None:
            logging.lastResort.handle(record)


_finder = _Finder()
_relay = _Relay()


def installed() -> bool:
    """Whether `import jax` gives lumjax in this process.

    >>> from lumjax import compat
    >>> compat.installed()
    False
    """
    return _finder in sys.meta_path


def install() -> None:
    """Make `import jax` and its submodules resolve to lumjax in this process.

    Modules are lumjax's own (`jax.numpy is lumjax.numpy`); `jax.__version__` is the version of JAX
    whose behaviour they have. A module without a counterpart is a ModuleNotFoundError. Raises
    HookError when the real JAX has been imported before: the two cannot share a process.

    >>> from lumjax import compat
    >>> compat.install()  # doctest: +SKIP
    """
    if installed():
        return
    real = sorted(name for name in sys.modules if _is_ours(name))
    if real:
        raise HookError(
            operation="lumjax.compat.install",
            required="a process that has not imported JAX",
            got=f"{len(real)} modules of JAX, loaded as {real[0]}",
            fix="install the hook before anything imports jax, or compare in a second process",
        )
    sys.meta_path.insert(0, _finder)  # pyright: ignore[reportArgumentType]
    logging.getLogger("lumjax").addHandler(_relay)
    config.update("warn_narrowing", False)  # JAX rounds float64 input without a word


def uninstall() -> None:
    """Undo `install`: `import jax` finds what is installed. Code already imported keeps lumjax.

    >>> from lumjax import compat
    >>> compat.uninstall()
    """
    if installed():
        sys.meta_path.remove(_finder)  # pyright: ignore[reportArgumentType]
        logging.getLogger("lumjax").removeHandler(_relay)
        config.update("warn_narrowing", True)
        for name in [n for n in sys.modules if _is_ours(n)]:
            del sys.modules[name]
