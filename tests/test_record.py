"""Records behave as frozen dataclasses with slots: each case is made both ways and compared."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import weakref
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any, ClassVar

import pytest

from lumjax.record import record

NOTHING = object()


def frozen(cls=None, /, **options):
    """What a record is to be like."""
    make = dataclass(frozen=True, slots=True, **options)
    return make if cls is None else make(cls)


def classes(make):
    @make
    class Empty:
        """No field."""

    @make
    class Pair:
        """Two fields."""

        a: int
        b: Any

    @make
    class Defaults:
        """Defaults of all kinds."""

        a: int
        b: tuple[int, ...] = (1, 2)
        c: list[int] = field(default_factory=list)
        d: str = field(default="d", kw_only=True)
        e: dict[str, int] = field(default_factory=dict, kw_only=True)
        k: ClassVar[int] = 3

    @make
    class Derived(Pair):
        """Fields of a base, one overridden."""

        b: int = 5
        c: int = 6

    @make
    class Uncompared:
        """Fields left out of comparison, hash and repr."""

        a: int
        b: int = field(compare=False)
        c: int = field(hash=False)
        d: int = field(repr=False)

    @make
    class Made:
        """Fields that the constructor does not take."""

        a: int
        b: int = field(init=False, default=7)
        c: list[int] = field(init=False, default_factory=list)

        def __post_init__(self):
            self.c.append(self.a)

    @make
    class Own:
        """A class that brings its methods."""

        a: int

        def __eq__(self, other):
            return isinstance(other, Own) and abs(self.a) == abs(other.a)

        def __hash__(self):
            return hash(abs(self.a))

        def __repr__(self):
            return f"<{self.a}>"

        @property
        def twice(self):
            """A property."""
            return 2 * self.a

    @make
    class OwnEquality:  # noqa: PLW1641
        """A class that brings `__eq__` alone."""

        a: int
        b: int = field(default=0, hash=False)

        def __eq__(self, other):
            return self.a == other.a

    @make(eq=False)
    class Identity:
        """Compared by identity."""

        a: int

    @make(eq=False, repr=False, weakref_slot=True)
    class Weak:
        """Can be referred to weakly, and has object's repr."""

        a: int

    @make
    class Undocumented:
        self: int
        _0: int = 1
        name: str = "_0"

    return {k: v for k, v in locals().items() if k != "make"}


RECORDS, FROZEN = classes(record), classes(frozen)
CASES = [
    ("Empty", (), {}),
    ("Pair", (1, "x"), {}),
    ("Pair", (1,), {"b": "x"}),
    ("Pair", (2, [1]), {}),
    ("Defaults", (1,), {}),
    ("Defaults", (1, (2,), [3]), {"d": "x", "e": {"k": 1}}),
    ("Defaults", (), {"a": 2, "c": [4]}),
    ("Derived", (1,), {}),
    ("Derived", (1, 2, 3), {}),
    ("Uncompared", (1, 2, 3, 4), {}),
    ("Uncompared", (1, 5, 3, 4), {}),
    ("Uncompared", (1, 2, 6, 4), {}),
    ("Made", (1,), {}),
    ("Own", (-1,), {}),
    ("Own", (1,), {}),
    ("OwnEquality", (1, 2), {}),
    ("Identity", (1,), {}),
    ("Weak", (1,), {}),
    ("Undocumented", (1,), {}),
    ("Undocumented", (1, 2, "x"), {}),
]
NAMES = sorted(RECORDS)


def pairs(name):
    """Equal instances of the record and of the dataclass, for each case of the class."""
    for n, args, kwargs in CASES:
        if n == name:
            yield RECORDS[n](*args, **kwargs), FROZEN[n](*args, **kwargs)


def outcome(f):
    """The result or the kind of error."""
    try:
        return f()
    except Exception as e:
        return type(e)


def test_every_class_has_a_case():
    assert {n for n, _, _ in CASES} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_class_attributes(name):
    mine, theirs = RECORDS[name], FROZEN[name]
    assert mine.__match_args__ == theirs.__match_args__
    assert mine.__slots__ == theirs.__slots__
    assert str(inspect.signature(mine)) == str(inspect.signature(theirs))
    for m, t in zip(dataclasses.fields(mine), dataclasses.fields(theirs), strict=True):
        for attribute in ("name", "type", "default", "init", "repr", "compare", "hash", "kw_only"):
            assert getattr(m, attribute) == getattr(t, attribute)
    assert mine.__name__ == theirs.__name__
    assert mine.__qualname__ == theirs.__qualname__
    assert mine.__module__ == theirs.__module__
    assert not hasattr(mine(*CASES[[n for n, _, _ in CASES].index(name)][1]), "__dict__")


@pytest.mark.parametrize("name", NAMES)
def test_instances(name):
    for mine, theirs in pairs(name):
        names = [f.name for f in dataclasses.fields(theirs)]
        shown = [(getattr(mine, n), getattr(theirs, n)) for n in names]
        assert all(repr(m) == repr(t) for m, t in shown)
        if type(theirs).__repr__ is not object.__repr__:
            assert repr(mine) == repr(theirs)
        assert dataclasses.is_dataclass(mine)
        assert repr(dataclasses.asdict(mine)) == repr(dataclasses.asdict(theirs))
        same = outcome(lambda: hash(mine)), outcome(lambda: hash(theirs))
        if type(theirs).__hash__ is not object.__hash__:
            assert same[0] == same[1]


@pytest.mark.parametrize("name", NAMES)
def test_comparison(name):
    everything = [pair for n in NAMES for pair in pairs(n)]
    for mine, theirs in pairs(name):
        for other, their_other in everything:
            assert outcome(lambda: mine == other) == outcome(lambda: theirs == their_other)
            assert outcome(lambda: mine != other) == outcome(lambda: theirs != their_other)
        assert outcome(lambda: mine == NOTHING) == outcome(lambda: theirs == NOTHING)
        assert (outcome(lambda: mine < mine)) is TypeError


@pytest.mark.parametrize("name", NAMES)
def test_frozen(name):
    for mine, theirs in pairs(name):
        for attribute in [*(f.name for f in dataclasses.fields(theirs)), "other"]:
            with pytest.raises(FrozenInstanceError, match="cannot assign to field"):
                setattr(mine, attribute, 1)
            with pytest.raises(FrozenInstanceError, match="cannot delete field"):
                delattr(mine, attribute)


@pytest.mark.parametrize("name", NAMES)
def test_replace(name):
    for mine, theirs in pairs(name):
        for change in ({}, {"a": 9}, {"b": 9}, {"nonsense": 9}):
            m = outcome(lambda: dataclasses.replace(mine, **change))
            t = outcome(lambda: dataclasses.replace(theirs, **change))
            if isinstance(t, type):
                assert m is t
            else:
                assert repr(dataclasses.astuple(m)) == repr(dataclasses.astuple(t))


@pytest.mark.parametrize("name", NAMES)
def test_copy(name):
    for mine, _ in pairs(name):
        for again in (copy.copy(mine), copy.deepcopy(mine)):
            assert type(again) is type(mine)
            assert repr(dataclasses.astuple(again)) == repr(dataclasses.astuple(mine))


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("Empty", (1,), {}),
        ("Pair", (), {}),
        ("Pair", (1, 2, 3), {}),
        ("Pair", (1, 2), {"a": 1}),
        ("Defaults", (1, 2, 3, 4), {}),
        ("Made", (1,), {"b": 2}),
    ],
)
def test_wrong_arguments(name, args, kwargs):
    messages = []
    for kind in (RECORDS, FROZEN):
        with pytest.raises(TypeError) as e:
            kind[name](*args, **kwargs)
        messages.append(str(e.value).split("__init__()")[1])
    assert messages[0] == messages[1]


def test_a_field_that_is_one_object_is_equal():
    nan = float("nan")
    assert RECORDS["Pair"](1, nan) == RECORDS["Pair"](1, nan)
    assert RECORDS["Pair"](1, nan) != RECORDS["Pair"](1, float("nan"))


def test_factories_make_a_value_each_time():
    a, b = RECORDS["Defaults"](1), RECORDS["Defaults"](1)
    assert a == b
    assert a.c is not b.c
    assert a.e is not b.e


def test_matching():
    match RECORDS["Pair"](1, 2):
        case Pair(a, b=b):  # type: ignore[misc]
            assert (a, b) == (1, 2)
        case _:
            pytest.fail("a record did not match")


def test_weak_references():
    kept = RECORDS["Weak"](1)
    assert weakref.ref(kept)() is kept
    with pytest.raises(TypeError):
        weakref.ref(RECORDS["Identity"](1))


def test_plain_subclasses_may_have_attributes_of_their_own():
    class Sub(RECORDS["Pair"]):
        pass

    x = Sub(1, 2)
    x.other = 3
    assert x.other == 3
    del x.other
    assert not hasattr(x, "other")
    with pytest.raises(FrozenInstanceError):
        x.a = 3
    with pytest.raises(FrozenInstanceError):
        del x.a


def test_recursive_repr():
    x = RECORDS["Pair"](1, [])
    x.b.append(x)
    assert repr(x).endswith("Pair(a=1, b=[...])")


def test_fields_without_a_default_come_first():
    for make in (record, frozen):
        with pytest.raises(TypeError, match="non-default argument 'b' follows default argument"):

            @make
            class Wrong:
                a: int = 1
                b: int


def test_metaclasses_are_kept():
    class Meta(type):
        pass

    @record
    class WithMeta(metaclass=Meta):
        """With a metaclass."""

        a: int

    assert type(WithMeta) is Meta
    assert WithMeta(1) == WithMeta(1)


Pair = RECORDS["Pair"]


@record
class Kept:
    """At module level, so that it can be pickled."""

    a: int
    b: tuple[int, ...] = ()
    c: int = field(init=False, default=4)


def test_pickling():
    x = Kept(1, (2, 3))
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(x, protocol))
        assert again == x
        assert again.c == 4
