"""Comparisons of mixed-radix numbers are decided by their leading digits where these suffice."""

import itertools

import numpy as np
import pytest

from lumjax.trace import dim as dm
from lumjax.trace.dim import less, less_equal, symbol

H, D = symbol("h", 0, 5), symbol("d", 0, 15)


def test_digits_that_do_not_matter_are_dropped():
    assert str(less(16 * H + D, 32)) == "((-h + 1) >= 0)"
    assert str(less_equal(32, 16 * H + D)) == "((h - 2) >= 0)"
    assert less(16 * H + D, 96) == 1
    assert dm.symbols(less(16 * H + D, 40)) == {"h", "d"}


@pytest.mark.parametrize("seed", range(5))
def test_comparisons_mean_what_they_say(seed):
    rng = np.random.default_rng(seed)
    for _ in range(100):
        tops = rng.choice([1, 2, 3, 7], 3)
        names = [symbol(n, 0, int(t)) for n, t in zip("abc", tops, strict=True)]
        e = int(rng.integers(-40, 40))
        for x in names:
            e = e + int(rng.choice([0, 1, 2, 4, 8, 16, -1, -4, 3])) * x
        found = less_equal(0, e)
        for values in itertools.product(*(range(t + 1) for t in tops)):
            env = dict(zip("abc", values, strict=True))
            assert dm.evaluate(found, env) == (dm.evaluate(e, env) >= 0)
