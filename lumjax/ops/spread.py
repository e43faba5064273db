"""Windows over operands that are spread out: which taps meet elements, and where."""

from __future__ import annotations

import math
from typing import Any

from lumjax.record import record
from lumjax.trace.dim import Dim, equal, less, less_equal, logical_and
from lumjax.trace.view import window


@record
class Spread:
    """A window along one axis of an operand that is spread out: its elements are `base` apart.

    A tap that meets a hole between them takes no part in the sum. Those that meet elements are
    every few taps, beginning with one that depends on the window's place.
    """

    stride: int
    dilation: int
    base: int
    low: int

    @classmethod
    def of(cls, p: dict[str, Any], k: int) -> Spread:
        """The k-th spatial axis of a convolution with these parameters."""
        low, _ = p["padding"][k]
        return cls(p["window_strides"][k], p["rhs_dilation"][k], p["lhs_dilation"][k], low)

    @property
    def common(self) -> int:
        """What divides the distances between taps and between elements."""
        return math.gcd(self.dilation, self.base)

    @property
    def every(self) -> int:
        """The taps from one that meets an element to the next."""
        return self.base // self.common

    def first(self, place: Dim) -> Dim:
        """The first tap that meets an element, if any does."""
        if self.every == 1:
            return 0
        inverse = pow(self.dilation // self.common, -1, self.every)
        if self.common == 1:
            step = -self.stride * inverse % self.every
            return (place * step + self.low * inverse) % self.every
        return (self.low - place * self.stride) // self.common * inverse % self.every

    def window(self, place: Dim, number: Dim, extent: Dim, taps: Dim) -> tuple[Dim, ...]:
        """(coordinate, tap, whether the coordinate exists, whether the tap exists) of the
        `number`-th tap that meets an element of the window at `place`.
        """
        if self.base == 1:
            coordinate, inside = window(
                place, number, extent, stride=self.stride, low=self.low, dilation=self.dilation
            )
            return coordinate, number, inside, 1
        begin = place * self.stride - self.low
        first = self.first(place)
        at = (begin + self.dilation * first) // self.base
        at = at + self.dilation // self.common * number
        tap = first + self.every * number
        hit = less(tap, taps)
        if self.common > 1:
            hit = logical_and(hit, equal(begin % self.common, 0))
        return at, tap, logical_and(less_equal(0, at), less(at, extent)), hit
