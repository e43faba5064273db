"""Counters as Prometheus reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # seconds


class Metrics:
    """Requests by status, and how long they took from arrival to answer."""

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def count(self, status: int, seconds: float) -> None:
        """A request that was answered."""
        self.requests[status] += 1
        self.buckets[sum(seconds > b for b in BOUNDS)] += 1
        self.seconds += seconds

    def text(self, more: Mapping[str, tuple[str, str, float]]) -> str:
        """Everything in the text format; `more` has (kind, help, value) by name."""
        return "\n".join([*self._lines(more), ""])

    def _lines(self, more: Mapping[str, tuple[str, str, float]]) -> Iterator[str]:
        yield "# HELP lumjax_requests_total Requests that were answered."
        yield "# TYPE lumjax_requests_total counter"
        for status, number in sorted(self.requests.items()):
            yield f'lumjax_requests_total{{status="{status}"}} {number}'
        yield "# HELP lumjax_request_seconds From arrival to answer."
        yield "# TYPE lumjax_request_seconds histogram"
        total = 0
        for bound, number in zip([*map(str, BOUNDS), "+Inf"], self.buckets, strict=True):
            total += number
            yield f'lumjax_request_seconds_bucket{{le="{bound}"}} {total}'
        yield f"lumjax_request_seconds_sum {self.seconds:.9g}"
        yield f"lumjax_request_seconds_count {total}"
        for name, (kind, words, value) in more.items():
            yield f"# HELP {name} {words}"
            yield f"# TYPE {name} {kind}"
            yield f"{name} {value:.9g}"
