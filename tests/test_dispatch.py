"""Calls of jitted functions: what native code does of them, what it leaves to Python, and that
nobody can tell.
"""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple
from pathlib import Path
from typing import NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import lumjax
import lumjax.numpy as jnp
from lumjax import compile as compiling
from lumjax import tree
from lumjax.cpu import caller
from lumjax.errors import DonationError, DonationWarning
from lumjax.trace.array import Array

needs_code = pytest.mark.skipif(not caller.usable(), reason="calls are Python's here")
pytestmark = needs_code
CALLS = compiling._FIRST + 1  # after which native code does a call like them


def by_python(f, *args, **kwargs):
    """What Python makes of a call."""
    return f._by_python(args, kwargs)


def warm(f, *args, **kwargs):
    for _ in range(CALLS):
        found = f(*args, **kwargs)
    return found


def is_native(f, *args, **kwargs):
    """Whether native code does this call."""
    calls = []
    python = f._by_python
    f._by_python = lambda args, kwargs: calls.append(args) or python(args, kwargs)
    try:
        f(*args, **kwargs)
    finally:
        del f._by_python
    return not calls


def same(a, b):
    """Whether two results are alike in all that can be seen."""
    assert repr(tree.structure(a)) == repr(tree.structure(b))
    for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True):
        assert type(x) is type(y) is Array
        assert (x.shape, x.dtype, x.weak) == (y.shape, y.dtype, y.weak)
        assert x.data.tobytes() == y.data.tobytes()
        own = 4 if x.dtype.names else 0  # keys that Python makes are views of their words
        assert x.data.flags.num | own == y.data.flags.num | own


class Pair(NamedTuple):
    first: object
    second: object


OTHER = namedtuple("OTHER", "u v")
OTHER_PAIR = namedtuple("OTHER_PAIR", "first second")


@tree.register_pytree_node_class
class Custom:
    def __init__(self, value):
        self.value = value

    def tree_flatten(self):
        return (self.value,), None

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(*children)


def test_calls_become_native_after_a_few():
    f = lumjax.jit(lambda x, y: x * y)
    x, y = jnp.arange(3.0), jnp.ones(3)
    for _ in range(CALLS - 1):
        f(x, y)
        assert not f._fast
    f(x, y)
    assert is_native(f, x, y)
    same(f(x, y), by_python(f, x, y))
    f.clear_cache()
    assert not is_native(f, x, y)
    lumjax.clear_caches()
    same(warm(f, x, y), x * y)


def test_a_call_like_an_earlier_one_enters_no_more_files():
    from tests.test_spine import crossed

    f = lumjax.jit(lambda x: jnp.sin(x) * 2)
    x = jnp.ones(4)
    warm(f, x)
    assert crossed(lambda: f(x)) == ["compile.py", "trace/core.py", "config.py"]


LEAVES = {
    "array": lambda: jnp.arange(3.0),
    "weak": lambda: jnp.asarray(2.0) * 1.0,
    "numpy": lambda: np.arange(3.0, dtype=np.float32),
    "float": lambda: 2.5,
    "int": lambda: 7,
    "bool": lambda: True,
    "numpy scalar": lambda: np.float32(1.5),
    "complex": lambda: 1 + 2j,
    "strided": lambda: Array(np.arange(6, dtype=np.float32)[::2]),
    "column": lambda: np.ones((3, 2), np.float32).T,
    "float64": lambda: np.arange(3.0),
    "big endian": lambda: np.arange(3, dtype=">f4"),
    "matrix": lambda: np.ones((2, 2), np.float32).view(np.matrix),
    "bfloat16": lambda: jnp.ones(3, jnp.bfloat16),
    "empty": lambda: jnp.ones((0, 4)),
    "large": lambda: jnp.ones((300, 300)),
    "some": lambda: jnp.ones((30, 30)),
}


@pytest.mark.parametrize("kind", LEAVES)
@pytest.mark.parametrize("other", ["array", "float"])
def test_leaves_of_all_kinds(kind, other):
    f = lumjax.jit(lambda d: {"more": d["x"] * 2, "same": d["x"], "y": [d["y"] - 1]})
    given = {"x": LEAVES[kind](), "y": LEAVES[other]()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warm(f, given)
        same(f(given), by_python(f, given))
        fresh = {"x": LEAVES[kind](), "y": LEAVES[other]()}
        same(f(fresh), by_python(f, fresh))
        for after in LEAVES:  # another kind than the plan has
            changed = {"x": LEAVES[after](), "y": LEAVES[other]()}
            same(f(changed), by_python(f, changed))


@pytest.mark.parametrize(
    "make",
    [
        lambda x: (x, [x, {"b": x, "a": (x,)}], None),
        lambda x: Pair(x, Pair(None, [x])),
        lambda x: OTHER(x, x),
        lambda x: OrderedDict(b=x, a=x),
        lambda x: defaultdict(list, b=x, a=x),
        lambda x: Custom(x),
        lambda x: {"c": Custom([x]), "a": x},
        lambda x: {1: x, 0: x},
        lambda x: {(2, "b"): x, (1, "a"): x},
        lambda x: {},
        lambda x: (),
        lambda x: [[[[[[x]]]]]],
        lambda x: {"x": x},
        lambda x: x,
    ],
)
def test_trees_of_all_kinds(make):
    f = lumjax.jit(lambda t, **named: (tree.map(lambda x: x + 1, t), named.get("k"), [t]))
    x = jnp.arange(3.0)
    for kwargs in ({}, {"k": make(x)}):
        warm(f, make(x), **kwargs)
        same(f(make(x), **kwargs), by_python(f, make(x), **kwargs))
    assert type(f(make(x))[0]) is type(make(x))


class Turned(NamedTuple):
    first: object
    second: object

    def tree_flatten(self):
        return (self.second, self.first), None

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(*reversed(children))


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it was one as a named tuple
    tree.register_pytree_node_class(Turned)


def test_named_tuples():
    f = lumjax.jit(lambda t: type(t)(t.first - t.second, {"k": t.first}))
    for kind in (Pair, OTHER_PAIR, Turned):
        given = kind(jnp.ones(2), jnp.zeros(2))
        warm(f, given)
        assert is_native(f, given) == (kind is not Turned)
        same(f(given), by_python(f, given))
        found = f(given)
        assert type(found) is kind
        assert found.first.tolist() == [1, 1]
    assert len(f._flat) == 1


def test_classes_of_ones_own():
    f = lumjax.jit(lambda m, x: (Custom(m.value * x), {"k": Pair(m, x)}))
    x = jnp.arange(3.0)
    for other in (x, 2.0, np.float32(3), np.ones(3, np.float32), Custom([x])):
        m = Custom(other) if other is not x else Custom(x)
        if isinstance(other, Custom):
            m.value = x
        warm(f, m, x)
        same(f(m, x), by_python(f, m, x))
    assert len(f._flat) == 1
    donating = lumjax.jit(lambda m, x: (Custom(m.value * x), x), donate_argnums=0)
    m = Custom(x + 0)
    for _ in range(CALLS + 2):
        before, (m, _) = m, donating(m, x)
        assert before.value.is_deleted()
    assert len(donating._flat) == 1
    assert m.value.tolist() == [0, 1, 2 ** (CALLS + 3)]
    assert lumjax.grad(lambda x: jnp.sum(f(Custom(x), x)[0].value))(x).tolist() == [0, 2, 4]
    with lumjax.config.scope(enable_x64=True):
        assert f(Custom(np.ones(3)), x)[0].value.dtype == np.float64


def test_a_deque_is_refused_as_before():
    f = lumjax.jit(lambda t: t["x"])
    warm(f, {"x": jnp.ones(2)})
    with pytest.raises(lumjax.errors.ArgumentTypeError, match="deque"):
        f({"x": deque([jnp.ones(2)])})


SHAPES = st.sampled_from([(), (3,), (2, 3)])
ARRAYS = st.builds(
    lambda shape, dtype, value: jnp.full(shape, value, dtype), SHAPES,
    st.sampled_from(["float32", "int32"]), st.integers(-5, 5),
)  # fmt: skip
SOME = st.one_of(ARRAYS, st.floats(-4, 4, width=32), st.integers(-9, 9), st.booleans(), st.none())
TREES = st.recursive(
    SOME,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
        st.builds(Pair, inner, inner),
        st.builds(Custom, inner),
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(TREES, max_size=2), st.dictionaries(st.sampled_from("pq"), TREES, max_size=2),
       TREES)  # fmt: skip
def test_random_trees(args, kwargs, other):
    f = lumjax.jit(lambda *a, **k: [tree.map(lambda x: x + x, (k, a)), a], search=0)
    warm(f, *args, **kwargs)
    same(f(*args, **kwargs), by_python(f, *args, **kwargs))
    for more in ((*args, other), [other], args[::-1]):
        same(f(*more, **kwargs), by_python(f, *more, **kwargs))
    turned = dict(reversed(kwargs.items()))
    same(f(*args, **turned), by_python(f, *args, **turned))


def test_keywords_in_another_order():
    f = lumjax.jit(lambda **k: k["a"] - k["b"])
    warm(f, a=jnp.ones(2), b=jnp.zeros(2))
    assert f(b=jnp.ones(2), a=jnp.zeros(2)).tolist() == [-1, -1]
    warm(f, b=jnp.ones(2), a=jnp.zeros(2))
    assert is_native(f, a=jnp.ones(2), b=jnp.zeros(2))
    assert is_native(f, b=jnp.ones(2), a=jnp.zeros(2))
    assert f(b=jnp.ones(2), a=jnp.zeros(2)).tolist() == [-1, -1]
    assert f(a=jnp.ones(2), b=jnp.zeros(2)).tolist() == [1, 1]


def test_signatures_in_turn():
    f = lumjax.jit(lambda x: x * 2)
    many = [jnp.ones(n) for n in range(1, 12)]
    for _ in range(CALLS + 2):
        for x in many:
            assert f(x).shape == x.shape
    assert sum(len(v) for v in f._fast.values()) <= compiling._FOLLOWED


class Model:
    """Compared by identity."""


class Mutable:
    def __init__(self, n):
        self.n = n

    def __hash__(self):
        return self.n

    def __eq__(self, other):
        return self.n == other.n


def test_static_arguments():
    f = lumjax.jit(lambda x, n, mode="a": x * n if mode == "a" else x + n, static_argnums=1,
                   static_argnames="mode")  # fmt: skip
    x = jnp.ones(2)
    warm(f, x, 3)
    assert is_native(f, x, 3)
    assert f(x, 4).tolist() == [4, 4]
    assert f(x, 3.0).tolist() == [3, 3]
    assert f(x, True).tolist() == [1, 1]
    warm(f, x, 3, mode="b")
    assert is_native(f, x, 3, mode="b")
    assert f(x, 3, mode="b").tolist() == [4, 4]
    assert f(x, 3, mode="a").tolist() == f(x, 3).tolist() == [3, 3]
    assert f(x, mode="b", n=5).tolist() == [6, 6]


def test_static_values_that_may_change_are_pythons():
    f = lumjax.jit(lambda m, x: x * m.n, static_argnums=0)
    m, x = Mutable(2), jnp.ones(2)
    warm(f, m, x)
    assert f(m, x).tolist() == [2, 2]
    m.n = 3
    assert f(m, x).tolist() == [3, 3]
    g = lumjax.jit(lambda m, x: x * m.n, static_argnums=0)
    model = Model()
    model.n = 2
    warm(g, model, x)
    assert is_native(g, model, x)
    other = Model()
    other.n = 5
    assert g(other, x).tolist() == [5, 5]


def test_methods():
    class Layer:
        scale = 3.0

        @lumjax.jit
        def plain(self, x):  # self is a pytree with no leaves
            return x * Layer.scale

        step = lumjax.jit(lambda self, x: x * self.scale, static_argnums=0)

    layer = Layer()
    for _ in range(CALLS + 1):
        assert layer.step(jnp.ones(2)).tolist() == [3, 3]
    assert is_native(Layer.step, layer, jnp.ones(2))
    tree.register_static(Layer)
    for _ in range(CALLS + 1):
        assert layer.plain(jnp.ones(2)).tolist() == [3, 3]


def test_settings_count():
    f = lumjax.jit(lambda x: x + 1)
    x = jnp.ones(2)
    warm(f, x)
    with lumjax.config.scope(search_evaluations=0):
        assert not is_native(f, x)
        warm(f, x)
        assert is_native(f, x)
    assert is_native(f, x)
    with lumjax.config.scope(enable_x64=True):
        y = np.ones(2)
        assert f(y).dtype == np.float64
        warm(f, y)
        assert f(y).dtype == np.float64
    assert f(y).dtype == np.float32
    with lumjax.disable_jit():
        assert f(x).tolist() == [2, 2]
    with lumjax.config.scope(debug_nans=True):
        g = lumjax.jit(lambda x: x / x)
        warm(g, jnp.ones(2))
        with pytest.raises(FloatingPointError):
            g(jnp.zeros(2))


def test_settings_of_another_thread():
    f = lumjax.jit(lambda x: x + 1)
    x = jnp.ones(2)
    warm(f, x)
    found = []

    def work():
        found.append(is_native(f, x))
        with lumjax.config.scope(fast_math=not lumjax.config.fast_math):
            found.append(is_native(f, x))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [True, False]


def test_transformations_are_pythons():
    f = lumjax.jit(lambda x: jnp.sum(x * x))
    x = jnp.arange(3.0)
    warm(f, x)
    assert lumjax.grad(f)(x).tolist() == [0, 2, 4]
    assert lumjax.vmap(f)(jnp.ones((2, 3))).tolist() == [3, 3]
    assert lumjax.jit(lambda y: f(y) + f(x))(x).tolist() == 10
    seen = []
    lumjax.vmap(lambda y: seen.append(f(x)) or y)(x)  # a call on constants, inside
    assert float(seen[0]) == 5
    leaked = []
    lumjax.jit(lambda y: leaked.append(y) or y)(x)
    with pytest.raises(lumjax.errors.LeakedTracerError):
        f(leaked[0])


def test_names_of_axes_count():
    f = lumjax.jit(lambda x: x + 1)
    warm(f, jnp.ones(()))
    g = lumjax.vmap(lambda x: f(x) * lumjax.lax.psum(1, "i"), axis_name="i")
    assert g(jnp.ones(3)).tolist() == [6, 6, 6]


def test_spans_are_recorded():
    f = lumjax.jit(lambda x: x + 1)
    x = jnp.ones(2)
    warm(f, x)
    caller.launches.append(True)
    try:
        assert not is_native(f, x)
    finally:
        caller.launches.pop()
    assert is_native(f, x)


def test_closed_over_arrays():
    w = jnp.ones(3)
    f = lumjax.jit(lambda x: (x + w, w))
    x = jnp.arange(3.0)
    warm(f, x)
    assert is_native(f, x)
    same(f(x), by_python(f, x))
    gone = lumjax.jit(lambda w: w + 1, donate_argnums=0)
    gone(w)
    with pytest.raises(DonationError):
        f(x)


def test_results_that_are_arguments_or_constants():
    f = lumjax.jit(lambda x, y: (x, y, x, 3, jnp.float32(2), np.arange(2, dtype=np.int32)))
    x, y = jnp.ones(2), np.ones(2, np.float32)
    warm(f, x, y)
    assert is_native(f, x, y)
    found = f(x, y)
    same(found, by_python(f, x, y))
    assert found[0] is found[2] is x


def test_callbacks_and_calls_inside_them():
    inner = lumjax.jit(lambda x: x * 2)
    other = lumjax.jit(lambda x: x + 1)

    def host(x):
        more = outer(x, False) if x[0] > 5 else other(jnp.float32(1))
        return np.asarray(inner(x)) + np.asarray(more)

    def program(x, again):
        if not again:
            return x + 1
        shape = lumjax.ShapeDtypeStruct(x.shape, x.dtype)
        return lumjax.pure_callback(host, shape, x) + x

    outer = lumjax.jit(program, static_argnums=1)
    x = jnp.arange(3.0)
    for _ in range(CALLS + 3):
        assert outer(x, True).tolist() == [2, 5, 8]
    assert is_native(outer, x, True)

    def fails(x):
        raise ValueError("from the host")

    bad = lumjax.jit(
        lambda x: lumjax.pure_callback(fails, lumjax.ShapeDtypeStruct((3,), jnp.float32), x)
    )
    for _ in range(CALLS + 2):
        with pytest.raises(Exception, match="from the host"):
            bad(x)


def test_typed_keys():
    host = lumjax.ShapeDtypeStruct((2,), jnp.float32)

    def program(key, x):
        one, two = lumjax.random.split(key)
        return {"next": one, "same": key, "x": lumjax.random.normal(two, (2,)) + x}

    def asking(key, x):
        found = program(key, x)
        return found | {"x": lumjax.pure_callback(lambda x: np.asarray(x) + 1, host, found["x"])}

    def words(key, x):
        return lumjax.random.key_data(key), key, x

    def both(key, x):
        one = lumjax.random.split(key)
        return one, lumjax.random.key_data(one)

    def wrapped(key, x):
        bits = lumjax.random.bits(key, (2,), jnp.uint32)
        return lumjax.random.wrap_key_data(bits), lumjax.random.wrap_key_data(bits)

    for program_ in (program, asking, wrapped, words, both):
        f = lumjax.jit(program_)
        key, x = lumjax.random.key(3), jnp.ones(2)
        warm(f, key, x)
        assert is_native(f, key, x) == (program_ not in (words, both))
        for other in (lumjax.random.key(4), key):
            same(f(other, x), by_python(f, other, x))
    as_key = lumjax.jit(lambda w: (lumjax.random.wrap_key_data(w), w))
    warm(as_key, jnp.arange(2, dtype=jnp.uint32))
    w = jnp.arange(2, dtype=jnp.uint32)
    same(as_key(w), by_python(as_key, w))
    step = lumjax.jit(program, donate_argnums=0)
    keys = [lumjax.random.key(3)]
    for _ in range(CALLS + 3):
        keys.append(step(keys[-1], x)["next"])
    assert all(k.is_deleted() for k in keys[:-1])
    want = lumjax.random.key(3)
    for _ in keys[1:]:
        want = lumjax.random.split(want)[0]
    same(keys[-1], want)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="a timer's signals are POSIX's")
def test_a_loop_is_interrupted():
    f = lumjax.jit(lambda x, n: lumjax.lax.fori_loop(0, n, lambda i, c: c * 0.5 + 1, x))
    x = jnp.ones(64)
    warm(f, x, 3)
    assert is_native(f, x, 3)

    def handler(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    held = sys.getrefcount(x), sys.getrefcount(x.data)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            f(x, 2**31 - 1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    gc.collect()
    assert (sys.getrefcount(x), sys.getrefcount(x.data)) == held
    assert f(x, 0).tolist() == x.tolist()


def test_loops_choices_random_numbers_and_sorts():
    def program(key, x, n):
        x = lumjax.lax.fori_loop(0, 3, lambda i, c: c * 2 + i, x)
        x = lumjax.lax.cond(n > 0, lambda v: v + 1, lambda v: v - 1, x)
        x = lumjax.lax.scan(lambda c, v: (c + v, c * v), jnp.zeros(()), x)[1]
        return jnp.sort(x) @ x, lumjax.random.normal(key, (3,))

    f = lumjax.jit(program)
    for key in (lumjax.random.PRNGKey(0), lumjax.random.key(0)):
        warm(f, key, jnp.arange(4.0), 3)
        same(f(key, jnp.arange(4.0), -3), by_python(f, key, jnp.arange(4.0), -3))


def test_programs_of_many_threads_with_memory_of_their_own():
    f = lumjax.jit(lambda x: jnp.sum(jnp.exp(x @ x), axis=0) @ x)
    x = jnp.linspace(0, 0.01, 300 * 300).reshape(300, 300)
    warm(f, x)
    assert is_native(f, x)
    same(f(x), by_python(f, x))


def test_deferred_sizes_are_pythons():
    f = lumjax.jit(lambda x: x + 1, dynamic={0: "n"})
    for n in range(1, 9):
        assert f(jnp.ones(n)).shape == (n,)


# ---- donation


def step(p, g):
    return {k: v - g[k] for k, v in p.items()}


def state(count=3):
    return {f"k{n}": jnp.full((n + 1,), float(n)) for n in range(count)}


def test_donated_states():
    f = lumjax.jit(step, donate_argnums=0)
    p, g = state(), state()
    for _ in range(CALLS):
        p = f(p, g)
    assert is_native(f, state(), g)
    line = sys._getframe().f_lineno + 1
    q = f(p, g)
    assert all(x.is_deleted() for x in p.values())
    assert p["k1"].shape == (2,)
    assert f"test_dispatch.py:{line}" in repr(p["k1"])
    with pytest.raises(DonationError, match=r"step was given it as p\['k1'\]"):
        p["k1"] + 1
    with pytest.raises(DonationError, match="deleted"):
        f(p, g)
    with pytest.raises(DonationError, match="passed once"):
        f(q, q)
    assert q["k2"].tolist() == [2.0 - 2 * (CALLS + 1)] * 3


def test_donated_arrays_that_are_shared_are_copied():
    f = lumjax.jit(lambda x, i: x.at[i].set(7.0), donate_argnums=0)
    for _ in range(CALLS + 1):
        f(jnp.zeros(4), 1)
    x = jnp.zeros(4)
    view = np.asarray(x)
    assert f(x, 2).tolist() == [0, 0, 7, 0]
    assert view.tolist() == [0, 0, 0, 0]
    y = f(jnp.zeros(4), 1)
    for k in range(4):
        y = f(y, k)
    assert y.tolist() == [7, 7, 7, 7]


def test_what_is_donated_in_vain_is_told_each_time():
    f = lumjax.jit(lambda x: jnp.sum(x), donate_argnums=0)
    for _ in range(CALLS + 2):
        with pytest.warns(DonationWarning, match="not usable") as seen:
            f(jnp.ones(3))
        assert Path(seen[0].filename).name == "test_dispatch.py"


def test_a_donated_argument_that_is_returned_lives_in_a_new_array():
    f = lumjax.jit(lambda x, y: (x, y + 1), donate_argnums=0)
    for _ in range(CALLS + 2):
        x = jnp.ones(3)
        same_x, _ = f(x, jnp.ones(2))
        assert x.is_deleted()
        assert same_x.tolist() == [1, 1, 1]


def test_strict_donation_is_pythons():
    f = lumjax.jit(step, donate_argnums=0, donate="strict")
    p, g = state(), state()
    for _ in range(CALLS + 2):
        p = f(p, g)
    view = np.asarray(p["k1"])
    with pytest.raises(DonationError):
        f(p, g)
    del view


# ---- what is left behind


def test_nothing_is_left_behind():
    f = lumjax.jit(lambda d, n: ({k: v * n for k, v in d.items()}, d["k1"]))
    given = state(20)
    warm(f, given, 2.0)
    assert is_native(f, given, 2.0)
    leaves = tree.leaves(given)
    gc.collect()
    before = [(sys.getrefcount(x), sys.getrefcount(x.data)) for x in leaves]
    blocks = sys.getallocatedblocks()
    for k in range(10_000):
        f(given, float(k))
    gc.collect()
    assert [(sys.getrefcount(x), sys.getrefcount(x.data)) for x in leaves] == before
    assert sys.getallocatedblocks() - blocks < 500


def test_a_function_is_let_go():
    import weakref

    f = lumjax.jit(lambda x: x + 1)
    warm(f, jnp.ones(2))
    gone = weakref.ref(f)
    del f
    gc.collect()
    assert gone() is None


def test_threads_that_call_at_once():
    f = lumjax.jit(lambda d, n: {k: v * n for k, v in d.items()})
    given = state(10)
    wrong = []

    def work(n):
        for _ in range(200):
            out = f(given, float(n))
            if not all(np.array_equal(out[k], np.asarray(v) * n) for k, v in given.items()):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(5)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_who_calls_once_loads_nothing_more():
    code = """
import sys, lumjax, lumjax.numpy as jnp
f = lumjax.jit(lambda x: x + 1)
f(jnp.ones(3))
assert not {'lumjax.dispatch', 'lumjax.cpu.caller'} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
