"""Frozen records: `@record` makes what `@dataclass(frozen=True, slots=True)` makes, much faster.

A dataclass compiles six methods of every class from text, and a package has many classes. But the
methods of two classes with equally many fields differ in names only: here such a method is compiled
once, and each class gets a copy of its code with the names exchanged; comparing and hashing, which
few classes of a program do, at their first use. The rest is shared as it is.
`dataclasses.fields`, `replace`, `asdict` and `is_dataclass` know records; a record is compared,
hashed, matched, copied and pickled as a frozen dataclass is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import cache
from reprlib import recursive_repr
from types import CodeType, FunctionType
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


class _Absent:
    """The default of a parameter whose field has a factory."""

    def __repr__(self) -> str:
        return "<factory>"


_ABSENT: Any = _Absent()
_SCOPE = {"_set": object.__setattr__, "_ABSENT": _ABSENT}


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T], /) -> type[T]: ...
@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(
    *, eq: bool = True, repr: bool = True, weakref_slot: bool = False
) -> Callable[[type[T]], type[T]]: ...
def record(
    cls: Any = None, /, *, eq: bool = True, repr: bool = True, weakref_slot: bool = False
) -> Any:
    """Class decorator: a frozen dataclass with slots. Without `eq`, instances are compared by
    identity. What the class defines itself is kept.

    >>> @record
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1), Point(1) == Point(1, 0), len({Point(1), Point(1)})
    (Point(x=1, y=0), True, 1)
    """
    if cls is None:
        return lambda cls: _build(cls, eq, repr, weakref_slot)
    return _build(cls, eq, repr, weakref_slot)


def _build(cls: Any, eq: bool, repr: bool, weakref_slot: bool) -> Any:
    own: set[str] = set(cls.__dict__)
    if cls.__dict__.get("__hash__", _ABSENT) is None and "__eq__" in own:
        own.remove("__hash__")  # Python put None there
    cls = _slotted(cls, weakref_slot)
    every = fields(cls)
    cls.__setattr__, cls.__delattr__ = _setattr, _delattr
    if "__init__" not in own:
        cls.__init__ = _init(cls, every)
    if repr and "__repr__" not in own:
        cls.__repr__ = _repr
    if eq and "__eq__" not in own:
        _later(cls, "__eq__", _eq, [f.name for f in every if f.compare])
    if eq and "__hash__" not in own:
        hashed = [f.name for f in every if (f.compare if f.hash is None else f.hash)]
        _later(cls, "__hash__", _hash, hashed)
    if "__getstate__" not in own:
        cls.__getstate__ = _getstate
    if "__setstate__" not in own:
        cls.__setstate__ = _setstate
    return cls


# ---- the class


@dataclass(init=False, repr=False, eq=False)  # no method is compiled
class _Plain:
    """What of a dataclass other classes can share."""

    field: int


_PARAMS = _Plain.__dict__["__dataclass_params__"]
_KIND = fields(_Plain)[0]._field_type  # type: ignore[attr-defined]


def _slotted(cls: Any, weakref_slot: bool) -> Any:
    """The class anew, with slots for its fields, as `dataclass` makes it: that reads annotations
    and signatures that no record has, which takes longer than all the rest.
    """
    space = dict(cls.__dict__)
    every: dict[str, Any] = {}
    for base in cls.__mro__[-1:0:-1]:
        every.update(getattr(base, "__dataclass_fields__", {}))
    inherited = set(every)
    for name, kind in space.get("__annotations__", {}).items():
        if not str(kind).startswith(("ClassVar", "typing.ClassVar")):
            every[name] = _field(name, kind, space.pop(name, MISSING))
    space["__dataclass_fields__"], space["__dataclass_params__"] = every, _PARAMS
    given = [f.name for f in every.values() if f.init and not f.kw_only]
    space.setdefault("__match_args__", tuple(given))
    slots = [n for n in every if n not in inherited]
    space["__slots__"] = (*slots, "__weakref__") if weakref_slot else tuple(slots)
    for name in ("__dict__", "__weakref__"):
        space.pop(name, None)
    made = type(cls)(cls.__name__, cls.__bases__, space)
    made.__qualname__ = cls.__qualname__
    return made


def _field(name: str, kind: Any, given: Any) -> Any:
    found: Any = given if isinstance(given, Field) else field(default=given)
    found.name, found.type, found._field_type = name, kind, _KIND
    if found.kw_only is MISSING:
        found.kw_only = False
    return found


# ---- methods that differ in names


@cache
def _compiled(text: str) -> CodeType:
    scope: dict[str, Any] = {}
    exec(compile(text, "<record>", "exec"), scope)
    return scope["method"].__code__


def _method(
    cls: Any, name: str, text: str, names: Sequence[str], scope: dict[str, Any]
) -> FunctionType:
    """The function `method` that `text` defines, with _0, _1, ... standing for `names`."""
    new = {f"_{k}": n for k, n in enumerate(names)}
    code = _compiled(text)
    code = code.replace(
        co_name=name,
        co_qualname=f"{cls.__qualname__}.{name}",
        co_names=tuple([new.get(n, n) for n in code.co_names]),
        co_varnames=tuple([new.get(n, n) for n in code.co_varnames]),
        co_consts=tuple([new.get(c, c) for c in code.co_consts]),
    )
    return FunctionType(code, scope, name)


def _later(
    cls: Any, name: str, make: Callable[[Any, Sequence[str]], FunctionType], names: Sequence[str]
) -> None:
    """Give the class a method that is made when it is first called."""

    def first(*args: Any) -> Any:
        method = make(cls, names)
        setattr(cls, name, method)
        return method(*args)

    first.__name__, first.__qualname__ = name, f"{cls.__qualname__}.{name}"
    setattr(cls, name, first)


def _row(of: str, count: int) -> str:
    return "(" + "".join([f"{of}._{k}," for k in range(count)]) + ")"


def _eq(cls: Any, names: Sequence[str]) -> FunctionType:
    n = len(names)
    text = (
        "def method(self, other):\n"
        " if other.__class__ is self.__class__:\n"
        f"  return {_row('self', n)} == {_row('other', n)}\n"
        " return NotImplemented"
    )
    return _method(cls, "__eq__", text, names, _SCOPE)


def _hash(cls: Any, names: Sequence[str]) -> FunctionType:
    text = f"def method(self):\n return hash({_row('self', len(names))})"
    return _method(cls, "__hash__", text, names, _SCOPE)


def _init(cls: Any, every: Sequence[Field[Any]]) -> FunctionType:
    scope: dict[str, Any] = {}
    positional: list[str] = []
    by_name: list[str] = []
    lines: list[str] = []
    defaults: list[Any] = []
    by_name_defaults: dict[str, Any] = {}
    for k, f in enumerate(every):
        made = f.default_factory is not MISSING
        default = _ABSENT if made else f.default
        value = f"_{k}"
        if made or not f.init:
            scope[f"_value_{k}"] = f.default_factory if made else default
            value = f"_value_{k}()" if made else f"_value_{k}"
        if not f.init:
            if default is not MISSING:
                lines.append(f' _set(_self_, "_{k}", {value})')
            continue
        if made:
            value += f" if _{k} is _ABSENT else _{k}"
        lines.append(f' _set(_self_, "_{k}", {value})')
        if f.kw_only:
            by_name.append(f"_{k}")
            if default is not MISSING:
                by_name_defaults[f.name] = default
        else:
            positional.append(f"_{k}")
            if default is not MISSING:
                defaults.append(default)
            elif defaults:
                raise TypeError(f"non-default argument {f.name!r} follows default argument")
    if hasattr(cls, "__post_init__"):
        lines.append(" _self_.__post_init__()")
    given = ["_self_", *positional, *(["*", *by_name] if by_name else [])]
    text = "\n".join([f"def method({', '.join(given)}):", *(lines or [" pass"])])
    names = [f.name for f in every]
    init = _method(cls, "__init__", text, names, {**_SCOPE, **scope} if scope else _SCOPE)
    init.__defaults__ = tuple(defaults) or None
    init.__kwdefaults__ = by_name_defaults or None  # type: ignore[assignment]
    init.__annotations__ = {f.name: f.type for f in every if f.init} | {"return": None}
    return init


# ---- methods that all records share


def _frozen(instance: Any, name: str) -> bool:
    """Whether the attribute may not change: all of a record's, the fields in a plain subclass."""
    return "__dataclass_fields__" in type(instance).__dict__ or (
        name in instance.__dataclass_fields__
    )


def _setattr(self: Any, name: str, value: Any) -> None:
    if _frozen(self, name):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _delattr(self: Any, name: str) -> None:
    if _frozen(self, name):
        raise FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


@recursive_repr()
def _repr(self: Any) -> str:
    shown = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for f, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)
