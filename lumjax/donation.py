"""Donated arguments: arrays that a call may use up, deleted where a result could have their memory.

Here a result never takes over the memory itself: what is donated is let go of, and freed if nobody
else has it.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from lumjax.errors import DonationError, DonationWarning, Source, user_source
from lumjax.ownership import is_alone
from lumjax.trace.array import Array, again, delete, stored
from lumjax.trace.core import Jaxpr
from lumjax.trace.dim import Expr

_SOURCES = 64  # lines of calls that are remembered


class Donation:
    """Which leaves of the arguments of one program are donated (`places`): the program's inputs
    begin with `consts`.

    `names` says what the leaves are called, when a message has to. What is donated in vain is an
    error if `strict`.
    """

    def __init__(
        self,
        function: str,
        jaxpr: Jaxpr,
        donated: Iterable[int],
        consts: int,
        names: Callable[[], Sequence[str]],
        strict: bool,
    ) -> None:
        self.function, self.names, self.strict = function, names, strict
        self.places = sorted(k - consts for k in donated)
        self._given, self._results = jaxpr.in_avals[consts:], jaxpr.out_avals
        self._reasons: dict[Source | None, tuple[_Gone, ...]] = {}
        self._open = any(isinstance(n, Expr) for k in self.places for n in self._given[k].shape)

    def run(self, call: Callable[[Sequence[Any]], Sequence[Any]], leaves: Sequence[Any]) -> Any:
        """The results of a call on the leaves, which may not mention what was donated: that is
        deleted where it is of use.
        """
        arrays = [x for x in leaves if isinstance(x, Array)]
        if len(set(map(id, arrays))) < len(arrays):
            self._check_distinct(leaves)
        places = [k for k in self.places if isinstance(leaves[k], Array)]
        if self.strict:
            self._check_alone(leaves, places)
        outs = call(leaves)
        if self._open or len(places) < len(self.places):
            kinds = {k: (leaves[k].shape, leaves[k].dtype) for k in places}
            usable = _usable(kinds, [(x.shape, x.dtype) for x in outs])
        else:
            usable = self._usual
        known = {id(leaves[k]) for k in usable}
        # an argument that is returned lives on in a new array
        outs = [again(x) if id(x) in known else x for x in outs]
        source = user_source()
        for k in usable:
            delete(leaves[k], _Gone(self, k, source))
        if len(usable) < len(places):
            self._complain(leaves, [k for k in places if k not in usable])
        return outs

    @property
    def always(self) -> bool:
        """Whether calls on arrays have nothing to complain of and delete all that is donated."""
        return not (self.strict or self._open) and len(self._usual) == len(self.places)

    def gone(self, source: Source | None) -> tuple[_Gone, ...]:
        """What the places' arrays hold after a call from there."""
        found = self._reasons.get(source)
        if found is None:
            if len(self._reasons) >= _SOURCES:
                self._reasons.clear()
            found = self._reasons[source] = tuple([_Gone(self, k, source) for k in self.places])
        return found

    @cached_property
    def _usual(self) -> frozenset[int]:
        kinds = {k: (self._given[k].shape, self._given[k].dtype) for k in self.places}
        return _usable(kinds, [(x.shape, x.dtype) for x in self._results])

    def _check_distinct(self, leaves: Sequence[Any]) -> None:
        """Raise if a donated array is an argument twice."""
        counts = Counter(map(id, leaves))
        for k in self.places:
            if isinstance(leaves[k], Array) and counts[id(leaves[k])] > 1:
                raise DonationError(
                    operation=f"jit of {self.function}",
                    required="donated arrays that are passed once",
                    got=f"the array donated as {self.names()[k]} in another argument too",
                    fix="pass a copy in one of the places",
                )

    def _check_alone(self, leaves: Sequence[Any], places: Sequence[int]) -> None:
        """Raise if the memory of a donated array is known to something else, which keeps its
        values.
        """
        for k in places:
            data = stored(leaves[k])  # one reference more, as `is_alone` expects
            if not is_alone(data):
                raise DonationError(
                    operation=f"jit of {self.function}, donate='strict'",
                    required="donated arrays whose memory nothing else knows of",
                    got=f"{leaves[k].aval} as {self.names()[k]}, which a NumPy view or another "
                    "array shares",
                    fix="drop what shares it, pass a copy, or leave out donate='strict'",
                )

    def _complain(self, leaves: Sequence[Any], places: Sequence[int]) -> None:
        """What is of no use raises if `strict`, else there is a warning."""
        names = self.names()
        unusable = ", ".join(f"{leaves[k].aval} ({names[k]})" for k in places)
        if self.strict:
            raise DonationError(
                operation=f"jit of {self.function}, donate='strict'",
                required="donated arrays that a result has the shape and dtype of",
                got=unusable,
                fix="donate what is returned updated, or leave out donate='strict'",
            )
        warnings.warn(
            f"Some donated buffers were not usable: {unusable}. No result of {self.function} has "
            "their shape and dtype, so they were kept.",
            DonationWarning,
            stacklevel=6,
        )


class _Gone:
    """Why an array has no elements, put into words when somebody asks."""

    __slots__ = ("donation", "place", "source")

    def __init__(self, donation: Donation, place: int, source: Source | None) -> None:
        self.donation, self.place, self.source = donation, place, source

    def __str__(self) -> str:
        where = f" at {self.source}" if self.source else ""
        function, name = self.donation.function, self.donation.names()[self.place]
        return f"which has been deleted: {function} was given it as {name}{where}"


def _usable(given: Mapping[int, Hashable], results: Sequence[Hashable]) -> frozenset[int]:
    """The places whose shape and dtype a result has, each result counted once."""
    free, found = Counter(results), set[int]()
    for k, kind in given.items():
        if free[kind] > 0:
            free[kind] -= 1
            found.add(k)
    return frozenset(found)
