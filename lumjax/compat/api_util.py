"""jax.api_util: functions of pytrees as functions of their leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lumjax import tree
from lumjax.extend.linear_util import WrappedFun, wrap_init
from lumjax.record import record


@record(eq=False)
class DebugInfo:
    """What messages may say of a function that is traced."""

    traced_for: str
    func_src_info: str


def debug_info(traced_for: str, fun: Callable[..., Any], *_: Any, **__: Any) -> DebugInfo:
    """A function's name, and what it is traced for."""
    return DebugInfo(traced_for, getattr(fun, "__name__", repr(fun)))


def _flattened(fun: WrappedFun, call: Callable[..., Any]) -> tuple[WrappedFun, Callable[[], Any]]:
    out_trees: list[Any] = []

    def flat(*leaves: Any) -> list[Any]:
        outs, out_tree = tree.flatten(call(leaves))
        out_trees.append(out_tree)
        return outs

    return wrap_init(flat, debug_info=fun.debug_info), lambda: out_trees[-1]


def flatten_fun(fun: WrappedFun, in_tree: Any) -> tuple[WrappedFun, Callable[[], Any]]:
    """A function of the leaves of (args, kwargs), and what tells the structure of its results."""

    def call(leaves: Any) -> Any:
        args, kwargs = in_tree.unflatten(leaves)
        return fun.call_wrapped(*args, **kwargs)

    return _flattened(fun, call)


def flatten_fun_nokwargs(fun: WrappedFun, in_tree: Any) -> tuple[WrappedFun, Callable[[], Any]]:
    """A function of the leaves of args, and what tells the structure of its results."""
    return _flattened(fun, lambda leaves: fun.call_wrapped(*in_tree.unflatten(leaves)))
