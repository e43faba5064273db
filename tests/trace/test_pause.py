import gc

import pytest

from lumjax.trace.simplify import uncollected


def test_the_collector_pauses_and_goes_on():
    seen = []
    inner = uncollected(lambda: seen.append(gc.isenabled()))

    @uncollected
    def outer(fails):
        inner()
        seen.append(gc.isenabled())
        if fails:
            raise KeyError
        return 3

    assert outer(False) == 3
    with pytest.raises(KeyError):
        outer(True)
    assert seen == [False] * 4
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off():
    gc.disable()
    try:
        uncollected(int)()
        assert not gc.isenabled()
    finally:
        gc.enable()
