"""Sizes that a jitted function takes from its arguments at each call: `jit(f, dynamic=...)`.

A spec says which axes of which arguments have which name. A call's signature then has a symbol for
each of them, so that calls which differ in these sizes alone share one program.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from lumjax import tree
from lumjax.errors import ArgumentTypeError, ArgumentValueError, ShapeError, TreeError
from lumjax.record import record
from lumjax.trace.dim import Dim, Expr, bounds, symbol
from lumjax.trace.indexop import IndexOp

Shape: TypeAlias = tuple[Dim, ...]
# Names that the compiler gives its own sizes and indices.
_TAKEN = re.compile(r"[a-z_]{0,5}\d+")


def dim(name: str, *, min: int = 1, max: int | None = None) -> Dim:
    """A size with a name, known only when a program runs: for `jit(f, dynamic=...)`.

    Args:
        name: an identifier; one name stands for one size throughout a program.
        min: the least value, 0 or more. Where a size may be 1, `(T,) + (1,)` still has T elements,
            but `(T,) + (5,)` is an error, and so is a question whose answer depends on it.
        max: the largest value, if there is one. Plans are made for the middle of the range, or for
            256 if it has no end: a range near to what will be used makes them fit.

    The result may be computed with: `T + 1`, `2 * T`, `T // 2`, `T % 4` are sizes too.

    Raises:
        ArgumentValueError: a name that is no identifier, bounds that leave nothing.

    >>> import lumjax
    >>> T = lumjax.dim("T", max=8192)
    >>> T + T
    2*T
    >>> T <= 8192
    True
    """
    if not (isinstance(name, str) and name.isidentifier()):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentValueError(
            operation="dim",
            required="a name that is an identifier",
            got=repr(name),
            fix="use letters, digits and underscores, as in dim('batch')",
        )
    if min < 0 or (max is not None and max < min):
        raise ArgumentValueError(
            operation=f"dim {name!r}",
            required="0 <= min <= max",
            got=f"min={min}, max={max}",
            fix="give bounds with at least one size between them",
        )
    if max == min:
        return min
    return symbol(f"{name}'" if _TAKEN.fullmatch(name) else name, min, max)


@record(eq=False)
class _Axes:
    """A leaf of a spec: the names of an array's axes."""

    names: Mapping[int, Expr]


class Spec:
    """Which axes of a function's arguments are open.

    A spec is a tuple with an entry for each positional argument, or a dictionary of entries by
    parameter name. An entry is None, a dictionary {axis: name}, or a tree of these that is a prefix
    of the argument. For a function of one array the dictionary alone will do.
    """

    def __init__(self, fun: Callable[..., Any], given: Any) -> None:
        self._name = getattr(fun, "__name__", type(fun).__name__)
        self._dims: dict[str, Expr] = {}
        self._parameters = _positional(fun)
        spec = self._prepared((given,) if _is_leaf(given) else given)
        if isinstance(spec, list):
            spec = tuple(spec)
        if not isinstance(spec, tuple | dict):
            raise self._wrong(
                "a dictionary {axis: name}, or one such entry for each argument", given
            )
        self._spec: tuple[Any, ...] | dict[str, Any] = spec
        self._known: dict[Any, tuple[_Axes | None, ...]] = {}

    def _prepared(self, given: Any) -> Any:
        return tree.map(self._leaf, given, is_leaf=lambda x: x is None or _is_leaf(x))

    def _leaf(self, given: Any) -> _Axes | None:
        if given is None:
            return None
        if not _is_leaf(given):
            raise self._wrong("leaves that are None or dictionaries {axis: name}", given)
        return _Axes({axis: self._dim(name) for axis, name in given.items()})

    def _dim(self, given: Any) -> Expr:
        found = dim(given) if isinstance(given, str) else given
        if not isinstance(found, Expr) or found.op is not IndexOp.SYMBOL or found.name is None:
            raise self._wrong("names of sizes: strings, or what lumjax.dim gives", given)
        known = self._dims.setdefault(found.name, found)
        if known is not found:
            raise self._wrong(f"one range for {found.name}", f"{_range(known)} and {_range(found)}")
        return found

    def _wrong(self, required: str, got: Any) -> ArgumentTypeError:
        return ArgumentTypeError(
            operation=f"jit of {self._name}, dynamic",
            required=required,
            got=got if isinstance(got, str) else repr(got),
            fix="write dynamic=({0: 'batch'}, None), say: axis 0 of the first argument is open",
        )

    def opened(
        self, shapes: Sequence[Shape], in_tree: tree.PyTreeDef, names: Callable[[], list[str]]
    ) -> list[Shape]:
        """The shapes of all leaves, with symbols for sizes that are open.

        Raises ShapeError for a size out of range, or one name with two sizes.
        """
        axes = self._known.get(in_tree)
        if axes is None:
            axes = self._known[in_tree] = self._spread(in_tree)
        sizes: dict[Expr, tuple[int, int, int]] = {}
        found = list(shapes)
        for k, leaf in enumerate(axes):
            if leaf is None:
                continue
            shape = list(shapes[k])
            for axis, size in leaf.names.items():
                if not -len(shape) <= axis < len(shape):
                    raise self._refused(names, k, f"an array with an axis {axis}", str(shapes[k]))
                n = shape[axis]
                if isinstance(n, Expr):
                    continue  # a size of a program around this one
                first = sizes.setdefault(size, (n, k, axis))
                low, high = bounds(size)
                if first[0] != n:
                    there = f"{first[0]} on axis {first[2]} of {names()[first[1]]}"
                    raise self._refused(names, k, f"{size} = {there}", f"{n} on axis {axis}")
                if (low is not None and n < low) or (high is not None and n > high):
                    raise self._refused(names, k, _range(size), f"{n} on axis {axis}")
                shape[axis] = size
            found[k] = tuple(shape)
        return found

    def _spread(self, in_tree: tree.PyTreeDef) -> tuple[_Axes | None, ...]:
        """An entry of the spec for each leaf of (arguments, keyword arguments)."""
        args, kwargs = tree.treedef_children(in_tree)
        found: list[_Axes | None] = []
        positional = tree.treedef_children(args)
        if isinstance(self._spec, tuple) and len(self._spec) > len(positional):
            raise TreeError(
                operation=f"jit of {self._name}, dynamic",
                required=f"an entry for each of the {len(positional)} positional arguments",
                got=f"{len(self._spec)} entries",
                fix="leave out the entries of arguments that are passed by keyword, or name them",
            )
        for k, structure in enumerate(positional):
            found += self._entry(k, None, structure)
        names: list[str] = kwargs.entries() if kwargs.num_leaves or not kwargs.is_leaf() else []
        for name, structure in zip(names, tree.treedef_children(kwargs), strict=True):
            found += self._entry(None, name, structure)
        return tuple(found)

    def _entry(
        self, position: int | None, name: str | None, structure: tree.PyTreeDef
    ) -> list[_Axes | None]:
        spec = self._spec
        if isinstance(spec, dict):
            if name is None and position is not None and position < len(self._parameters):
                name = self._parameters[position]
            entry = None if name is None else spec.get(name)
        else:
            if position is None and name in self._parameters:
                position = self._parameters.index(name)
            entry = None if position is None or position >= len(spec) else spec[position]
        if entry is None:
            return [None] * structure.num_leaves
        return tree.flatten_axes(f"jit of {self._name}, dynamic", structure, entry)

    def _refused(
        self, names: Callable[[], list[str]], k: int, required: str, got: str
    ) -> ShapeError:
        return ShapeError(
            operation=f"jit of {self._name}, argument {names()[k]}",
            required=required,
            got=got,
            fix="pass arrays that agree with dynamic=, or widen the range with lumjax.dim",
        )


def _is_leaf(x: Any) -> bool:
    return isinstance(x, dict) and bool(x) and all(isinstance(k, int) for k in x)


def _range(size: Expr) -> str:
    low, high = bounds(size)
    return f"{size} of at least {low}" if high is None else f"{size} in {low}..{high}"


def _positional(fun: Callable[..., Any]) -> list[str]:
    try:
        found = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def shown(shape: Shape) -> tuple[int | str, ...]:
    """A shape whose open sizes are words: it may be compared with others."""
    return tuple([str(d) if isinstance(d, Expr) else d for d in shape])
