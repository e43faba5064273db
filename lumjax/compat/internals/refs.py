"""Mutable references and JAX's user-defined types: none of them here. The names are there, so that
libraries can mention them; making such a value raises UnsupportedError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from lumjax.errors import UnsupportedError
from lumjax.extend.core import Effect as Effect
from lumjax.extend.primitives import UndefinedPrimal
from lumjax.extend.primitives import Zero as Zero
from lumjax.extend.primitives import instantiate_zeros as instantiate_zeros
from lumjax.trace.aval import ShapedArray as AbstractValue

__all__ = [
    "AbstractRef", "AbstractValue", "AvalMutableQDD", "AvalQDD", "Effect", "HiPrimitive", "HiType",
    "MutableHiType", "Ref", "VJPHiPrimitive", "Zero", "aval_method", "aval_property",
    "control_flow_allowed_effects", "cur_qdd", "instantiate_zeros", "is_undefined_primal",
    "new_ref", "register_hitype",
]  # fmt: skip


__path__: list[str] = []  # a package for the import system: `jax._src.state.types`


def _refuse(what: str) -> NoReturn:
    raise UnsupportedError(
        operation=what,
        required="arrays, which are immutable, and pytrees of them",
        got="a mutable reference or a type of another library's",
        fix="carry the state as a value",
    )


class _Allowed:
    """Which effects may happen inside of loops and branches: JAX's list, which nothing reads."""

    def add_type(self, effect: type[Effect]) -> None:
        """Enter a kind of effect."""
        del effect


control_flow_allowed_effects = _Allowed()


class _Refused:
    """A class of which libraries derive; it has no instances."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Raise UnsupportedError."""
        _refuse(cls.__name__)


class Ref(_Refused):
    """A mutable array."""


class AbstractRef(_Refused):
    """The type of a mutable array."""


class AvalQDD(_Refused):
    """The type of a mutable value, with what it holds now."""


class AvalMutableQDD(_Refused):
    """The same while a program is traced."""


class HiType:
    """A type of values that another library defines."""


class MutableHiType(HiType):
    """The same for values that change."""


class HiPrimitive:
    """An operation on such values."""

    def __init__(self, name: str) -> None:
        self.name = name

    def bind(self, *args: Any, **params: Any) -> NoReturn:
        """Raise UnsupportedError."""
        del args, params
        _refuse(self.name)


class VJPHiPrimitive(HiPrimitive):
    """The same with a rule for reverse mode."""


class aval_property:  # noqa: N801
    """A property of traced values that is defined on their type."""

    def __init__(self, fget: Callable[..., Any]) -> None:
        self.fget = fget


class aval_method:  # noqa: N801
    """A method of traced values that is defined on their type."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.fun = fun


def register_hitype(value: type, typeof: Callable[..., Any]) -> None:
    """Announce a type. No value of it can be made."""
    del value, typeof


def new_ref(value: Any, **options: Any) -> NoReturn:
    """Raise UnsupportedError: there are no mutable arrays."""
    del value, options
    _refuse("jax.new_ref")


def cur_qdd(value: Any) -> NoReturn:
    """Raise UnsupportedError."""
    del value
    _refuse("jax.experimental.cur_qdd")


def is_undefined_primal(x: Any) -> bool:
    """Whether an operand of a transpose rule is one in which the operation is linear."""
    return isinstance(x, UndefinedPrimal)
