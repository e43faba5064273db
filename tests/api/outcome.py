"""Evaluate one case in one library and describe everything about the outcome by value."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.api.operands import operands

FLOATS = {k for k, v in operands().items() if v.dtype.kind in "fcV"} | {"w"}


@dataclass(frozen=True)
class Leaf:
    """One leaf of a result: what it is, and its numbers if it is an array."""

    about: tuple[Any, ...]
    value: np.ndarray[Any, Any] | None = None


@dataclass(frozen=True)
class Outcome:
    """The leaves of a result and the containers that hold them, or the builtin class of the error
    that was raised.
    """

    leaves: tuple[Leaf, ...] = ()
    error: str = ""
    message: str = ""
    containers: str = ""


def _is_key(x: Any) -> bool:
    return "fry" in str(getattr(x, "dtype", ""))


def describe(library: Any, x: Any) -> Leaf:
    """A leaf by value: arrays as NumPy arrays, everything else as its type and text."""
    if _is_key(x):
        return Leaf(("key", tuple(x.shape)), np.asarray(library.random.key_data(x)))
    if isinstance(x, (library.Array, np.ndarray, np.generic)):
        kind = "array" if isinstance(x, library.Array) else "numpy"
        weak = bool(getattr(x, "weak_type", False))
        value = np.asarray(x)
        return Leaf((kind, tuple(value.shape), str(x.dtype), weak), value)
    if isinstance(x, (bool, int, float, complex, str, bytes, np.dtype)):
        return Leaf((type(x).__name__, repr(x)))
    return Leaf(("object", type(x).__name__.lstrip("_")))


def containers(x: Any) -> str:
    """The lists, tuples and dicts of a result; everything else is a star."""
    if isinstance(x, dict):
        inside = (f"{k!r}: {containers(v)}" for k, v in sorted(x.items(), key=str))
        return "{" + ", ".join(inside) + "}"
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        inside = (f"{k}={containers(v)}" for k, v in zip(x._fields, x, strict=True))
        return f"{type(x).__name__}({', '.join(inside)})"
    if type(x) in (list, tuple):
        return f"{type(x).__name__}({', '.join(map(containers, x))})"
    return "*"


def builtin_of(error: BaseException) -> str:
    """The first builtin class of an error."""
    return next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")


def guarded(run: Any) -> Outcome:
    """The outcome of `run()`, which returns leaves."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Outcome(tuple(run()))
    except Exception as error:  # an outcome like any other
        return Outcome((), builtin_of(error), f"{type(error).__name__}: {error}"[:300])


def evaluate(library: Any, names: dict[str, Any], expression: str) -> Outcome:
    """The values."""

    held = ""

    def run() -> list[Leaf]:
        nonlocal held
        result = eval(expression, dict(names))
        held = containers(result)
        return [describe(library, x) for x in library.tree.leaves(result)]

    return replace(guarded(run), containers=held)


def _differentiable(library: Any, x: Any) -> bool:
    inexact = isinstance(x, library.Array) and not _is_key(x)
    return inexact and library.numpy.issubdtype(x.dtype, library.numpy.inexact)


def _cotangent(library: Any, x: Any) -> Any:
    if x.weak_type:
        return library.numpy.broadcast_to(library.numpy.asarray(0.75), x.shape)
    ramp = np.cos(np.arange(int(np.prod(x.shape))) + 1.0).reshape(x.shape)
    return library.numpy.asarray(ramp.astype(x.dtype))


def gradients(library: Any, names: dict[str, Any], expression: str) -> Outcome:
    """The pullback of a fixed cotangent to the floating-point operands that are named."""
    code = compile(expression, "<case>", "eval")
    wanted = sorted(FLOATS & words(code))

    def f(*values: Any) -> list[Any]:
        result = eval(code, {**names, **dict(zip(wanted, values, strict=True))})
        leaves = library.tree.leaves(result)
        return [x for x in leaves if _differentiable(library, x)]

    def run() -> list[Leaf]:
        outs, pull = library.vjp(f, *(names[n] for n in wanted))
        back = pull([_cotangent(library, x) for x in outs]) if outs else ()
        return [describe(library, x) for x in back]

    return guarded(run) if wanted else Outcome()


def words(code: Any) -> set[str]:
    """The global names of an expression, those inside its lambdas too."""
    inner = (c for c in code.co_consts if hasattr(c, "co_names"))
    return set(code.co_names).union(*map(words, inner))
