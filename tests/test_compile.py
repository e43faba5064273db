"""jit: signatures, closures, static arguments, settings, errors; what it leaves behind."""

from __future__ import annotations

import copy
import inspect
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import lax
from lumjax.config import config
from lumjax.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConcretizationError,
    LeakedTracerError,
    StaticArgumentError,
    UnsupportedError,
)
from lumjax.trace.array import Array
from lumjax.trace.core import active_traces


class Counted:
    """A function that counts how often it is traced."""

    def __init__(self, f):
        self.f, self.count = f, 0
        self.__signature__ = inspect.signature(f)

    def __call__(self, *args, **kwargs):
        self.count += 1
        return self.f(*args, **kwargs)


# ---- signatures


def test_one_trace_per_signature():
    f = Counted(lambda x: x * 2)
    g = lumjax.jit(f)
    g(jnp.ones(3))
    g(jnp.zeros(3))
    assert f.count == 1
    g(jnp.ones(4))
    g(jnp.ones(3, int))
    g(2.0)  # weak
    g(jnp.float32(2))
    assert f.count == 5
    assert g._cache_size() == 5


def test_settings_are_part_of_the_signature():
    f = Counted(lambda x: x.astype(float))
    g = lumjax.jit(f)
    assert g(jnp.ones(2)).dtype == np.float32
    with config.scope(enable_x64=True):
        assert g(jnp.ones(2, np.float32)).dtype == np.float64
    assert g(jnp.ones(2)).dtype == np.float32
    assert f.count == 2


def test_axis_environment_is_part_of_the_signature():
    inner = lumjax.jit(lambda x: x + lax.psum(1, "i"))
    outer = lambda n: lumjax.vmap(inner, axis_name="i")(jnp.zeros(n))
    np.testing.assert_array_equal(outer(2), [2, 2])
    np.testing.assert_array_equal(outer(4), [4, 4, 4, 4])


def test_pytrees_and_keywords():
    class Pair(NamedTuple):
        a: object
        b: object

    @lumjax.jit
    def f(p, *, scale=1.0, extra=None):
        out = Pair(p.b * scale, [p.a, None])
        return out if extra is None else (out, extra)

    out = f(Pair(1.0, jnp.arange(3.0)), scale=2.0)
    assert isinstance(out, Pair)
    np.testing.assert_array_equal(out.a, [0, 2, 4])
    assert out.b[1] is None
    assert f(Pair(1.0, 2.0), extra={"k": 3})[1]["k"] == 3


def test_static_arguments_by_number_and_name():
    f = Counted(lambda x, n, mode="up": x * n if mode == "up" else x - n)
    g = lumjax.jit(f, static_argnums=1, static_argnames="mode")
    assert float(g(2.0, 3)) == 6
    assert float(g(2.0, n=3)) == 6
    assert float(g(5.0, 3, mode="down")) == 2
    assert float(g(5.0, 3, "down")) == 2
    assert float(g(2.0, 4)) == 8
    h = lumjax.jit(lambda x, flag: x if flag else -x, static_argnames=["flag"])
    assert float(h(1.0, True)) == 1
    assert float(h(1.0, False)) == -1


def test_equal_static_values_of_other_types_are_told_apart():
    g = lumjax.jit(lambda x, n: x + (0.5 if isinstance(n, float) else n), static_argnums=1)
    assert float(g(1.0, 2)) == 3
    assert float(g(1.0, 2.0)) == 1.5


def test_methods_and_decorators():
    class Model:
        def __init__(self, w):
            self.w = w

        @partial(lumjax.jit, static_argnums=0)
        def apply(self, x):
            return self.w * x

    assert float(Model(3.0).apply(2.0)) == 6
    assert lumjax.jit(abs).__wrapped__ is abs


def test_inputs_and_literals_pass_through():
    x = jnp.arange(3.0)
    f = lumjax.jit(lambda x: (x, x, 3, jnp.ones(2)))
    a, b, c, d = f(x)
    np.testing.assert_array_equal(a, x)
    np.testing.assert_array_equal(b, x)
    assert int(c) == 3
    np.testing.assert_array_equal(d, [1, 1])


def test_views_and_foreign_arrays_as_inputs():
    f = lumjax.jit(lambda x: x + 1)
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_array_equal(f(base.T), base.T + 1)
    np.testing.assert_array_equal(f(base[::2, ::-1]), base[::2, ::-1] + 1)
    raw = np.frombuffer(b"\0" + base.tobytes(), np.uint8)[1:].view(np.float32)
    np.testing.assert_array_equal(f(raw), raw + 1)
    np.testing.assert_array_equal(f(jnp.broadcast_to(2.0, (3,))), [3, 3, 3])


# ---- closures


def test_closed_over_arrays_are_inputs():
    table = jnp.arange(4.0)
    f = lumjax.jit(lambda x: x + table)
    np.testing.assert_array_equal(f(jnp.ones(4)), [1, 2, 3, 4])
    assert f.program(jnp.ones(4)).jaxpr.consts == 1


@pytest.mark.parametrize("wrap", [lambda f: f, lumjax.jit], ids=["plain", "jit"])
def test_closed_over_tracers(wrap):
    """jit over what an outer grad, vmap or jit traces."""
    by_grad = wrap(lumjax.grad(lambda w: lumjax.jit(lambda x: x * w * w)(3.0)))
    assert float(by_grad(2.0)) == 12
    by_vmap = wrap(lumjax.vmap(lambda w: lumjax.jit(lambda x: x * w)(3.0)))
    np.testing.assert_array_equal(by_vmap(jnp.arange(3.0)), [0, 3, 6])
    by_jit = lumjax.jit(lambda w: lumjax.jit(lambda x: x + w)(1.0))
    assert float(by_jit(2.0)) == 3


@pytest.mark.parametrize("transform", ["grad", "vmap", "jit"])
@pytest.mark.parametrize("place", ["scan", "cond"])
def test_closed_over_tracers_inside_control_flow(transform, place):
    def f(w):
        if place == "scan":
            return lax.scan(lambda c, _: (c * w, None), 1.0, None, length=3)[0]
        return lax.cond(w > 0, lambda x: x * w * w, lambda x: x, w)

    match transform:
        case "grad":
            assert float(lumjax.jit(lumjax.grad(f))(2.0)) == 12
        case "vmap":
            got = lumjax.vmap(lumjax.jit(f))(jnp.array([1.0, 2.0]))
            np.testing.assert_allclose(got, [1, 8])
        case "jit":
            assert float(lumjax.jit(f)(2.0)) == 8


def test_third_order_through_nested_jits():
    f = lumjax.jit(lambda x: jnp.sin(x) * x)
    third = lumjax.jit(lumjax.grad(lumjax.jit(lumjax.grad(lumjax.grad(f)))))
    x = 1.3
    np.testing.assert_allclose(third(x), -3 * np.sin(x) - x * np.cos(x), rtol=1e-5)
    mixed = lumjax.jit(lumjax.vmap(lumjax.grad(lumjax.jit(lumjax.grad(f)))))
    xs = jnp.array([0.3, 1.3])
    np.testing.assert_allclose(mixed(xs), 2 * np.cos(xs) - xs * np.sin(xs), rtol=1e-5)


# ---- errors, and no state left behind


def clean():
    return len(active_traces()) == 1


def test_not_an_array():
    with pytest.raises(ArgumentTypeError, match=r"positional argument \[0\]\['k'\].*static"):
        lumjax.jit(lambda d: d)({"k": "text"})
    with pytest.raises(ArgumentTypeError, match="keyword argument"):
        lumjax.jit(lambda x, y=0: x)(1.0, y=object())
    with pytest.raises(ArgumentTypeError, match="requires a function"):
        lumjax.jit(3)
    assert clean()


def test_result_that_is_not_an_array():
    with pytest.raises(ArgumentTypeError, match=r"returns arrays.*'text'.*\[1\]"):
        lumjax.jit(lambda x: (x, "text"))(1.0)
    assert clean()


def test_unhashable_static():
    with pytest.raises(StaticArgumentError, match=r"hashable.*tuple"):
        lumjax.jit(lambda x, n: x, static_argnums=1)(1.0, [1, 2])


def test_wrong_static_names_and_numbers():
    with pytest.raises(ArgumentValueError, match="argnames among x"):
        lumjax.jit(lambda x: x, static_argnames="y")
    with pytest.raises(ArgumentValueError, match="argnums within 1"):
        lumjax.jit(lambda x: x, static_argnums=1)
    with pytest.raises(ArgumentTypeError, match="static_argnums of ints"):
        lumjax.jit(lambda x: x, static_argnums="x")


def test_if_on_a_traced_value():
    @lumjax.jit
    def f(x):
        return x if x > 0 else -x

    with pytest.raises(ConcretizationError) as caught:
        f(1.0)
    assert "test_compile.py" in str(caught.value)
    assert "where" in str(caught.value) or "cond" in str(caught.value)
    assert clean()
    assert f._cache_size() == 0


@pytest.mark.parametrize("convert", [int, float, bool, np.asarray, list])
def test_python_values_of_traced_arrays(convert):
    with pytest.raises((ConcretizationError, TypeError)):
        lumjax.jit(lambda x: convert(x) or x)(1)
    assert clean()


def test_leaked_tracer():
    kept = []
    lumjax.jit(lambda x: kept.append(x) or x)(1.0)
    with pytest.raises(LeakedTracerError, match="Return the value"):
        kept[0] + 1
    with pytest.raises(LeakedTracerError):
        lumjax.jit(lambda x: x + kept[0])(1.0)
    assert clean()


def test_an_exception_leaves_no_trace():
    def f(x):
        raise KeyError("mine")

    for wrapped in (lumjax.jit(f), lumjax.grad(f), lumjax.vmap(f), lumjax.jit(lumjax.grad(f))):
        with pytest.raises(KeyError, match="mine"):
            wrapped(jnp.ones(2))
        assert clean()


def test_cuda_says_that_it_is_not_there():
    with config.scope(backend="cuda"), pytest.raises(UnsupportedError, match="'cuda'"):
        lumjax.jit(lambda x: x + 1)(jnp.ones(2))


# ---- threads, the cache on disk


def test_threads_trace_once_and_agree():
    f = Counted(lambda x: jnp.sin(x) @ x)
    g = lumjax.jit(f)
    x = jnp.arange(64.0)
    results = []
    threads = [threading.Thread(target=lambda: results.append(float(g(x)))) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert f.count == 1
    assert len(set(results)) == 1
    assert len(results) == 8


PROGRAM = """
import warnings
import numpy as np
import lumjax, lumjax.numpy as jnp
from lumjax.errors import CacheWarning
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    f = lumjax.jit(lambda x: jnp.sum(jnp.exp(x) @ x.T, axis=0))
    x = jnp.arange(12.0).reshape(3, 4) / 12
    out = np.asarray(f(x))
    report = lumjax.explain(f, x).executable
print(out.tobytes().hex(), all(s.found.report.cached for s in report.native()),
      sum(issubclass(w.category, CacheWarning) for w in caught))
"""


def run_program(folder):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"LUMJAX_CACHE_DIR": str(folder), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
        cwd=str(Path(__file__).parent.parent),
    )
    bits, cached, warned = done.stdout.split()
    return bits, cached == "True", int(warned)


def test_cache_on_disk_survives_damage(tmp_path):
    bits, cached, warned = run_program(tmp_path)
    assert (cached, warned) == (False, 0)
    assert run_program(tmp_path) == (bits, True, 0)
    files = [p for p in tmp_path.rglob("*") if p.is_file() and p.stat().st_size]
    assert files
    for k, path in enumerate(files):
        data = path.read_bytes()
        path.write_bytes([data[: len(data) // 2], b"\0" * len(data), b"foreign"][k % 3])
    again, cached, warned = run_program(tmp_path)
    assert again == bits
    assert not cached
    assert warned >= 1
    assert run_program(tmp_path) == (bits, True, 0)  # rewritten


# ---- calls whose arguments are all arrays are looked up by these alone


def test_what_such_calls_are_looked_up_by():
    f = lumjax.jit(lambda x, y: x + y)
    x = jnp.arange(4)
    kinds = [x, x[:2], x[:1], x.astype(jnp.float16), x.astype(jnp.float32), jnp.ones((4, 1))]
    for _ in range(2):
        for a in kinds:
            for b in (x[:1], x[:1].astype(jnp.float32), jnp.asarray(2), lumjax.numpy.sin(2)):
                got, want = f(a, b), a + b
                assert (got.shape, got.dtype, got.weak_type) == (
                    want.shape, want.dtype, want.weak_type,
                )  # fmt: skip
                np.testing.assert_array_equal(got, want)
    count = f._cache_size()
    f(x, x[:1])
    assert f._cache_size() == count


def test_such_calls_know_transformations_settings_and_structure():
    f = lumjax.jit(lambda *xs: {"sum": sum(xs) * 2.0, "first": xs[0]})
    x = jnp.ones(3)
    f(x)
    f(x)
    assert f(x)["first"] is x
    np.testing.assert_array_equal(f(x, x)["sum"], [4, 4, 4])
    np.testing.assert_array_equal(lumjax.grad(lambda x: f(x)["sum"].sum())(x), [2, 2, 2])
    np.testing.assert_array_equal(lumjax.vmap(lambda x: f(x)["sum"])(x), [2, 2, 2])
    with config.scope(debug_nans=True), pytest.raises(FloatingPointError):
        f(x * jnp.nan)
    assert np.isnan(np.asarray(f(x * jnp.nan)["sum"])).all()
    f.clear_cache()
    f(x)
    assert f._cache_size() == 1


def test_such_calls_keep_what_the_function_closed_over():
    table = jnp.arange(6.0)
    f = lumjax.jit(lambda i: table[i] + table[0])
    for _ in range(3):
        assert f(jnp.asarray(3)) == 3.0


@pytest.mark.parametrize(
    "copied",
    [
        jnp.copy, jnp.array, lambda x: jnp.asarray(x, copy=True), lambda x: x.copy(), copy.copy,
        copy.deepcopy, lambda x: x.astype(x.dtype, copy=True),
    ],
)  # fmt: skip
def test_a_copy_lives_on_when_the_array_is_donated(copied):
    x = jnp.arange(3.0)
    y = copied(x)
    f = lumjax.jit(lambda x, y: x + y, donate_argnums=0)
    assert f(x, y).tolist() == [0.0, 2.0, 4.0]
    assert y.tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(RuntimeError):
        x.tolist()


def test_such_calls_of_views_and_donated_arrays():
    f = lumjax.jit(lambda x: x + 1)
    x = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    for view in (x, x.T, x[:, ::2], x[::-1], np.ascontiguousarray(x)[1:], x[:0]):
        for _ in range(2):
            np.testing.assert_array_equal(f(Array(view)), view + 1)
    g = lumjax.jit(lambda x: x + 1, donate_argnums=0)
    for _ in range(3):
        y = jnp.ones(3)
        g(y)
        with pytest.raises(lumjax.errors.DonationError):
            g(y)
