"""Batches made ahead: the same ones, errors where they belong, and no thread left behind."""

from __future__ import annotations

import threading

import pytest

from lumjax.errors import ArgumentValueError
from lumjax.train import prefetch


def threads():
    return {t for t in threading.enumerate() if t.is_alive()}


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("count", [0, 1, 5, 50])
def test_the_same_batches_in_order(count, size):
    before = threads()
    assert list(prefetch(iter(range(count)), size)) == list(range(count))
    assert threads() == before


def test_batches_are_made_ahead_but_not_too_many():
    made, room = [], threading.Semaphore(0)

    def batches():
        for number in range(10):
            made.append(number)
            room.release()
            yield number

    fetched = prefetch(batches(), 3)
    assert made == []
    assert next(fetched) == 0
    for _ in range(5):  # the one taken, three that wait, and one in hand
        assert room.acquire(timeout=30)
    assert not room.acquire(timeout=0.05)
    assert made == [0, 1, 2, 3, 4]
    fetched.close()


def test_errors_come_where_the_batch_would_have():
    def batches():
        yield 1
        yield 2
        raise KeyError("no third batch")

    fetched = prefetch(batches())
    assert [next(fetched), next(fetched)] == [1, 2]
    with pytest.raises(KeyError, match="no third batch"):
        next(fetched)
    assert list(fetched) == []


def test_closing_ends_the_thread():
    before, ended = threads(), threading.Event()

    def batches():
        try:
            while True:
                yield 0
        finally:
            ended.set()

    endless = batches()
    fetched = prefetch(endless)
    assert next(fetched) == 0
    fetched.close()
    assert threads() == before
    endless.close()
    assert ended.is_set()


def test_sizes():
    with pytest.raises(ArgumentValueError, match="at least 1; got 0"):
        prefetch([1], 0)
