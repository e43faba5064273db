"""JAX as a second opinion: the same function, run on JAX, in values and derivatives.

This is the one place of the package that loads JAX, and only when it is asked to.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from lumjax import tree
from lumjax.config import config
from lumjax.errors import ArgumentValueError
from lumjax.testing.checks import assert_close
from lumjax.testing.slopes import derivatives
from lumjax.testing.values import to_raw
from lumjax.trace.array import Array
from lumjax.trace.core import aval_of

# The program as it is written, quickly compiled: one kernel for an operation is soonest made.
_UNOPTIMIZED = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


def check_jax(
    f: Callable[..., Any],
    args: Sequence[Any],
    *,
    forward: bool = False,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """`f` at `args` gives what it gives on JAX: the same shapes, dtypes and weak types, values
    within the tolerance, and the same derivatives of what is a float.

    `f` returns a flat tuple of arrays. On JAX it is the same code with other modules: of what it
    names from its module, each module of lumjax is exchanged for JAX's of that name. `forward`
    compares derivatives along a direction in place of gradients. JAX must be installed.

    >>> import lumjax.numpy as jnp
    >>> check_jax(lambda x: (jnp.sin(x),), (jnp.arange(3.0),))  # doctest: +SKIP
    """
    jax = _jax()
    theirs = on_jax(f)
    given = [to_raw(x) for x in args]
    run, points = derivatives(f, args, forward=forward)
    outs = tuple(f(*args))
    with jax.enable_x64(config.enable_x64):
        both, at = derivatives(theirs, given, forward=forward, values=True, package="jax")
        found = jax.jit(both, compiler_options=_UNOPTIMIZED)(*at)
        values, slopes = found if at else (found, ())
    for k, (out, w) in enumerate(zip(map(aval_of, outs), values, strict=True)):
        ours, want = (out.shape, out.dtype, out.weak), (w.shape, w.dtype, w.weak_type)
        assert ours == want, f"output {k}: {ours}, on JAX {want}"
    want = tree.map(lambda x: Array(np.asarray(x)), (values, slopes))
    assert_close((outs, run(*points)), want, "lumjax against JAX", rtol, atol)


def on_jax(f: Callable[..., Any]) -> Callable[..., Any]:
    """A Python function that calls JAX where it called lumjax, by its module's names."""
    return _Exchange().function(f)


def _jax() -> Any:
    jax = importlib.import_module("jax")
    if jax.__name__ != "jax":
        raise ArgumentValueError(
            operation="check_jax",
            required="the real JAX",
            got="lumjax, by the import hook",
            fix="do not install lumjax.compat in this process",
        )
    return jax


class _Exchange:
    """Functions of one module, with its modules of lumjax exchanged."""

    def __init__(self) -> None:
        self.done: dict[int, dict[str, Any]] = {}

    def function(self, f: Any) -> Any:
        """A function with exchanged globals."""
        if not isinstance(f, FunctionType):
            raise ArgumentValueError(
                operation="check_jax",
                required="a Python function",
                got=repr(f),
                fix="wrap it in a function that calls it",
            )
        made = FunctionType(
            f.__code__, self.names(f.__globals__), f.__name__, f.__defaults__, f.__closure__
        )
        made.__kwdefaults__ = f.__kwdefaults__
        return made

    def names(self, found: dict[str, Any]) -> dict[str, Any]:
        """A module's names; its own functions call each other exchanged too."""
        if id(found) not in self.done:
            self.done[id(found)] = made = dict(found)
            for name, value in found.items():
                if isinstance(value, ModuleType):
                    made[name] = _counterpart(value)
                elif isinstance(value, FunctionType) and value.__globals__ is found:
                    made[name] = self.function(value)
        return self.done[id(found)]


def _counterpart(module: ModuleType) -> ModuleType:
    root, _, rest = module.__name__.partition(".")
    if root != "lumjax":
        return module
    try:
        return importlib.import_module(f"jax.{rest}" if rest else "jax")
    except ModuleNotFoundError:
        return module  # of lumjax alone
