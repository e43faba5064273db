"""When training does not get better any more."""

from __future__ import annotations

import math
from typing import Any

from lumjax.errors import ArgumentValueError


class EarlyStop:
    """Watches a metric: `update` says True once `patience` values in a row were not better than
    the best before them by more than `change`. Less is better, or more with `maximize`; a NaN is
    never better.

    >>> stop = EarlyStop("loss", patience=2)
    >>> [stop.update(x) for x in (3.0, 2.0, 2.5, 2.1)]
    [False, False, False, True]
    """

    def __init__(
        self, metric: str, patience: int, change: float = 0.0, maximize: bool = False
    ) -> None:
        if patience < 1 or not change >= 0:
            raise ArgumentValueError(
                operation="train.EarlyStop",
                required="patience of at least 1 and change of at least 0",
                got=f"patience {patience} and change {change}", fix="correct them",
            )  # fmt: skip
        self.metric, self.patience, self.change, self.maximize = metric, patience, change, maximize
        self.best = math.inf
        self.since = 0

    def update(self, value: Any) -> bool:
        """Take a value of the metric, a scalar; whether it is time to stop."""
        number = -float(value) if self.maximize else float(value)
        if number < self.best - self.change or (self.best == math.inf and number < math.inf):
            self.best, self.since = number, 0
        else:
            self.since += 1
        return self.since >= self.patience
