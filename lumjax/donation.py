"""Donated arguments: arrays that a call may use up, deleted where a result could have their memory.

Here a result never takes over the memory itself: what is donated is let go of, and freed if nobody
else has it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lumjax import tree
from lumjax.errors import DonationError, DonationWarning, user_source
from lumjax.ownership import is_alone
from lumjax.trace.array import Array, again, delete, stored
from lumjax.trace.batch import argument_names


def given_arrays(
    fun: Callable[..., Any],
    donate: frozenset[int | str],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> dict[str, Array]:
    """The donated arrays, by the names of their places."""
    count = len(args)
    chosen = (a if k in donate or k - count in donate else None for k, a in enumerate(args))
    dynamic = (tuple(chosen), {n: v for n, v in kwargs.items() if n in donate})
    leaves = zip(argument_names(fun, *dynamic), tree.leaves(dynamic), strict=True)
    return {n: x for n, x in leaves if isinstance(x, Array)}


def check_distinct(name: str, given: Mapping[str, Array], arguments: Any) -> None:
    """Raise if a donated array is an argument twice."""
    everything = [id(x) for x in tree.leaves(arguments) if isinstance(x, Array)]
    for place, x in given.items():
        if everything.count(id(x)) > 1:
            raise DonationError(
                operation=f"jit of {name}",
                required="donated arrays that are passed once",
                got=f"the array donated as {place} in another argument too",
                fix="pass a copy in one of the places",
            )


def check_alone(name: str, given: Mapping[str, Array]) -> None:
    """Raise if the memory of a donated array is known to something else, which keeps its values."""
    for place, x in given.items():
        data = stored(x)
        if not is_alone(data):
            raise DonationError(
                operation=f"jit of {name}, donate='strict'",
                required="donated arrays whose memory nothing else knows of",
                got=f"{x.aval} as {place}, which a NumPy view or another array shares",
                fix="drop what shares it, pass a copy, or leave out donate='strict'",
            )


def settled(name: str, given: Mapping[str, Array], result: Any, strict: bool = False) -> Any:
    """Delete what was donated to `name` and is of use; the result, which may not mention it.

    What is of no use raises if `strict`, else there is a warning.
    """
    outs = [x for x in tree.leaves(result) if isinstance(x, Array)]
    free = [(x.shape, x.dtype) for x in outs]
    usable: dict[str, Array] = {}
    for place, x in given.items():
        if (x.shape, x.dtype) in free:
            free.remove((x.shape, x.dtype))
            usable[place] = x
    known = {id(x) for x in usable.values()}
    if any(id(x) in known for x in outs):  # an argument that is returned lives on in a new array
        result = tree.map(lambda x: again(x) if id(x) in known else x, result)
    source = user_source()
    for place, x in usable.items():
        where = f" at {source}" if source else ""
        delete(x, f"which has been deleted: {name} was given it as {place}{where}")
    unusable = [f"{x.aval} ({n})" for n, x in given.items() if n not in usable]
    if unusable and strict:
        raise DonationError(
            operation=f"jit of {name}, donate='strict'",
            required="donated arrays that a result has the shape and dtype of",
            got=", ".join(unusable),
            fix="donate what is returned updated, or leave out donate='strict'",
        )
    if unusable:
        warnings.warn(
            f"Some donated buffers were not usable: {', '.join(unusable)}. No result of {name} has "
            "their shape and dtype, so they were kept.",
            DonationWarning,
            stacklevel=3,
        )
    return result
