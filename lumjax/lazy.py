"""Names of a package, and methods of a class, that are loaded when they are first mentioned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def later(
    namespace: dict[str, Any], modules: Sequence[str], names: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose globals are `namespace`: its `modules`, and
    the `names` of modules in it, wait for their first use, and then are globals like others.
    """
    package: str = namespace["__name__"]
    module_of = {name: module for module, those in names.items() for name in those}

    def load(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{module_of[name]}"), name)
        return namespace.setdefault(name, found)

    def listed() -> list[str]:
        return sorted({*namespace, *modules, *module_of})

    # what `from package import *` gives
    namespace["__all__"] = [n for n in listed() if not n.startswith("_")]
    return load, listed


class Method:
    """A function of a module as a method: the first look at it loads the module, and puts the
    function in its place.
    """

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def __get__(self, instance: object, owner: type) -> Any:
        function = getattr(import_module(self.module), self.name)
        for kind in owner.__mro__:
            if vars(kind).get(self.name) is self:
                setattr(kind, self.name, function)
        return function.__get__(instance, owner)
