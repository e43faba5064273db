"""Checks that work under jit: a checked function returns, besides its result, what failed first.

>>> import lumjax, lumjax.numpy as jnp
>>> def f(x):
...     check(x > 0, "x is {}", x)
...     return jnp.log(x)
>>> error, y = lumjax.jit(checkify(f))(-1.0)
>>> error.get()
'x is -1.0 (`check` failed)'
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import tree
from lumjax.control.check import Format, Message, check_value, failed
from lumjax.control.staging import flatten_values, name_of, require_callable
from lumjax.errors import ArgumentTypeError, ShapeError
from lumjax.errors import FailedCheckError as JaxRuntimeError
from lumjax.experimental.functionalize import Functionalizer, Site
from lumjax.ops.compare import lt
from lumjax.ops.convert import concrete
from lumjax.ops.elementwise import asvalue
from lumjax.trace.array import Array
from lumjax.trace.core import Value, aval_of
from lumjax.trace.stage import stage

ErrorCategory = str
user_checks: frozenset[ErrorCategory] = frozenset({"user"})
nan_checks: frozenset[ErrorCategory] = frozenset({"nan"})
index_checks: frozenset[ErrorCategory] = frozenset({"index"})
div_checks: frozenset[ErrorCategory] = frozenset({"div"})
float_checks = nan_checks | div_checks
automatic_checks = float_checks | index_checks
all_checks = automatic_checks | user_checks


class Error:
    """What a checked function found: which check failed first, if any. A pytree, so that it passes
    through jit and vmap.
    """

    def __init__(self, code: Value, values: Sequence[Value], sites: tuple[Site, ...]) -> None:
        self.code = code
        self.values = tuple(values)
        self.sites = sites

    def get(self) -> str | None:
        """What the first failing check says; None if none fails. Under vmap one line per lane."""
        codes = _known(self.code)
        if not codes.ndim:
            return self._text(int(codes), [_known(v) for v in self.values])
        lines: list[str] = []
        for place in np.ndindex(codes.shape):
            text = self._text(int(codes[place]), [_known(v)[place] for v in self.values])
            if text is not None:
                lines.append(f"at mapped index {', '.join(map(str, place))}: {text}")
        return "\n".join(lines) or None

    def _text(self, code: int, values: Sequence[Any]) -> str | None:
        if code < 0:
            return None
        site = self.sites[code]
        mine = values[site.first - 1 : site.first - 1 + len(site.avals)]
        return site.message.text([np.asarray(v) for v in mine])

    def throw(self) -> None:
        """Raise FailedCheckError if a check failed."""
        text = self.get()
        if text is not None:
            codes = _known(self.code)
            source = None if codes.ndim else self.sites[int(codes)].source
            raise failed(text, source)

    def __repr__(self) -> str:
        return f"Error({self.get() if isinstance(self.code, Array) else self.code})"


def _known(x: Value) -> np.ndarray[Any, Any]:
    return concrete(asvalue(x), "reading an Error", "numpy")


tree.register_pytree_node(
    Error,
    lambda e: ((e.code, e.values), e.sites),
    lambda sites, children: Error(children[0], children[1], sites),
)
init_error = Error(Array(np.asarray(-1, np.int32)), (), ())


def check(pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """Require that `pred`, a bool scalar, holds; else `msg.format(*fmt_args, **fmt_kwargs)`.

    In a function that was checkified, a failure is returned as an Error. Elsewhere it raises
    FailedCheckError when the program runs, under jit too. `debug` checks are dropped outside of
    checkified functions in JAX; here they are checks like others.

    Raises ShapeError or ArgumentTypeError for what is no bool scalar, or no format string.
    """
    del debug
    if not isinstance(msg, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentTypeError(
            operation="checkify.check",
            required="a format string as second argument",
            got=f"{msg!r} of type {type(msg).__name__}",
            fix='write check(x > 0, "x is {}", x)',
        )
    holds = asvalue(pred, "checkify.check")
    aval = aval_of(holds)
    if aval.ndim or not dt.is_bool(aval.dtype):
        kind = ShapeError if aval.ndim else ArgumentTypeError
        raise kind(
            operation="checkify.check",
            required="a bool scalar",
            got=str(aval),
            fix="reduce it with jnp.all",
        )
    values, arguments = flatten_values((fmt_args, fmt_kwargs))
    check_value(holds, Format(msg, arguments), values)


debug_check = check


class _Rethrown(Message):
    """What another function's Error says."""

    def __init__(self, sites: tuple[Site, ...]) -> None:
        self.sites = sites

    def text(self, values: Sequence[Any]) -> str:
        """The message of the check that failed there."""
        code, *rest = values
        return str(Error(code, rest, self.sites).get())


def check_error(error: Error) -> None:
    """Require that an Error is none: what failed there fails here."""
    holds = lt(error.code, np.int32(0))
    check_value(holds, _Rethrown(error.sites), [error.code, *error.values])


def checkify(
    f: Callable[..., Any], errors: frozenset[ErrorCategory] = user_checks
) -> Callable[..., tuple[Error, Any]]:
    """`f`, returning (Error, result): the first failure of its checks instead of an exception.

    `errors` says what is looked for: `user_checks` (calls of `check`), `nan_checks`, `div_checks`,
    `index_checks`, or unions of them. Works through jit, scan, cond, while and vmap, on derivatives
    and inside them.

    >>> import lumjax.numpy as jnp
    >>> error, _ = checkify(lambda x, i: x[i], errors=index_checks)(jnp.arange(3), 5)
    >>> "index 5 is out of bounds for axis 0 with size 3" in error.get()
    True
    """
    require_callable("checkify", f)
    kinds = frozenset(errors)

    @functools.wraps(f)
    def checked(*args: Any, **kwargs: Any) -> tuple[Error, Any]:
        flat, in_tree = flatten_values((args, kwargs))
        out_trees: list[tree.PyTreeDef] = []

        def run(*leaves: Value) -> list[Value]:
            given: Any = tree.unflatten(in_tree, leaves)
            outs, out_tree = flatten_values(f(*given[0], **given[1]))
            out_trees.append(out_tree)
            return outs

        staged = stage(run, [aval_of(x) for x in flat], lambda: f"checkify of {name_of(f)}")
        functionalizer = Functionalizer(kinds)
        functionalizer.find(staged.jaxpr)
        state = functionalizer.initial()
        outs, state = functionalizer.run(staged.jaxpr, (*staged.consts, *flat), state)
        error = Error(state[0], state[1:], tuple(functionalizer.sites))
        return error, tree.unflatten(out_trees[0], outs)

    return checked


__all__ = [
    "Error",
    "ErrorCategory",
    "JaxRuntimeError",
    "all_checks",
    "automatic_checks",
    "check",
    "check_error",
    "checkify",
    "debug_check",
    "div_checks",
    "float_checks",
    "index_checks",
    "init_error",
    "nan_checks",
    "user_checks",
]
