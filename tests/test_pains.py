"""What users of such libraries complain of, row by row, and that it is better here. Depth is in the
tests of each part; messages are in tests/golden/errors.txt.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import errors, lax, random
from lumjax.compile import compiler
from lumjax.config import config

jit = lumjax.jit
# Which messages of tests/golden/errors.txt belong to a row; the other rows are about no message.
MESSAGES = {
    2: ["why it was traced again"],
    6: ["nan outside of jit", "nan under jit", "nan in a backward pass", "nan in a scan",
        "nan in an argument", "infinity"],
    7: ["bool of a traced value", "bool under vmap", "bool in the body of a scan",
        "range of a traced value", "int of a traced value", "float of a traced value",
        "list index", "numpy of a traced value", "item of a traced value", "bool mask as an index",
        "slice bound", "shape from a traced value"],
    8: ["tracer used after its jit", "leak check", "side effect"],
    9: ["known index", "known index, take", "traced index", "traced update", "dynamic_slice"],
    10: ["wrapped sum", "lossy cast", "division of integers by zero", "large int64"],
    11: ["float64 asked for", "float64 input is rounded"],
    13: ["use after donation", "donated twice", "donation of no use"],
    16: ["no CUDA"],
    18: ["key used twice", "key used twice under jit"],
    19: ["unhashable static", "reverse through while_loop", "too few steps"],
}  # fmt: skip


def test_every_row_is_here_and_its_messages_are_agreed():
    rows = [int(name.split("_")[1]) for name in globals() if name.startswith("test_") and
            name.split("_")[1].isdigit()]  # fmt: skip
    assert sorted(rows) == list(range(1, 20))
    golden = Path(__file__).with_name("golden") / "errors.txt"
    agreed = re.findall(r"== (.*)\n", golden.read_text(encoding="utf-8"))
    assert {m for names in MESSAGES.values() for m in names} <= set(agreed)


@pytest.fixture(autouse=True)
def _unsearched():
    with config.scope(search_evaluations=0):
        yield


def compiled():
    return len(compiler()._executables)


def test_1_new_shapes_outside_of_jit_compile_nothing():
    before = compiled()
    for n in range(50):
        x = jnp.ones((n, 3))
        jnp.sum(jnp.sin(x) @ x.T)
        lumjax.grad(lambda x: jnp.sum(x * x))(x)
    assert compiled() == before


def test_2_why_it_was_compiled_again():
    f = jit(lambda x: x + 1)
    f(jnp.ones(3)), f(jnp.ones(3)), f(jnp.ones(4))
    assert f.explain()[1].why == ("argument x: f32[4], before f32[3] (another shape)",)
    assert "traced 2 times" in str(f.explain())


def test_3_the_search_is_bounded():
    x = jnp.ones((4, 4))
    f = jit(lambda x: jnp.sum(jnp.tanh(x @ x), 0), search=0)
    g = jit(lambda x: jnp.sum(jnp.tanh(x @ x), 0), search=50, timeout=5.0)
    np.testing.assert_allclose(f(x), g(x), rtol=1e-6)


@pytest.mark.parametrize("f", [
    lambda x: jnp.log(jnp.exp(x)), lambda x: jnp.sqrt(x * x), lambda x: (x + 1e8) - 1e8,
    lambda x: x / x, lambda x: x * 0, lambda x: (x - x) + 1,
])  # fmt: skip
def test_4_jit_computes_what_was_written(f):
    x = jnp.array([1000.0, -3.0, 0.0, np.inf, -np.inf, np.nan, 1e-40])
    with config.scope(search_evaluations=200):
        np.testing.assert_allclose(jit(f)(x), f(x), rtol=1e-6)
        slope = lumjax.vmap(lumjax.grad(f))
        np.testing.assert_allclose(jit(slope)(x), slope(x), rtol=1e-6)


def test_5_the_branch_not_taken_does_not_spoil_gradients():
    slope = lumjax.vmap(lumjax.grad(lambda x: jnp.where(x > 0, jnp.log(x), 0.0)))
    np.testing.assert_array_equal(slope(jnp.array([-1.0, 0.0, 2.0])), [0, 0, 0.5])
    branching = lumjax.vmap(lumjax.grad(lambda x: lax.cond(x > 0, jnp.sqrt, lambda x: x, x)))
    np.testing.assert_array_equal(branching(jnp.array([0.0, 4.0])), [1, 0.25])


def test_6_nan_is_named_where_it_comes_up():
    with config.scope(debug_nans=True), pytest.raises(FloatingPointError) as caught:
        jit(lambda x: lax.scan(lambda c, r: (c + jnp.log(r), None), 0.0, x)[0])(jnp.arange(3.0) - 1)
    assert "'log' in the forward pass" in str(caught.value)
    assert "[-1, -1]" in str(caught.value)


def test_7_python_control_flow_names_the_argument():
    with pytest.raises(errors.TracerBoolConversionError, match="argument limit of jit of"):
        jit(lambda x, limit: x if limit else -x)(1.0, True)
    masked = jit(lambda x: x.at[x > 1].set(0.0).at[x < 1].multiply(3.0))
    np.testing.assert_array_equal(masked(jnp.arange(3.0)), [0, 1, 0])


def test_8_leaks_are_found():
    kept = []
    with lumjax.checking_leaks(), pytest.raises(errors.LeakedTracerError, match="a list of 1"):
        jit(lambda x: kept.append(x * 2))(1.0)


def test_9_out_of_range_is_an_error():
    x = jnp.arange(3.0)
    for use in (lambda: x[5], lambda: x.at[5].set(1.0), lambda: jnp.take(x, jnp.array([0, 5]))):
        with pytest.raises(IndexError):
            use()
    assert np.isnan(float(jnp.take(x, 5, mode="fill")))
    assert float(jnp.take(x, 5, mode="clip")) == 2.0
    with config.scope(debug_index=True), pytest.raises(IndexError):
        jit(lambda x, k: x[k])(x, 5)


def test_10_integers_do_not_wrap_in_silence():
    for use in (jnp.asarray, jit(lambda x: x), jit(lambda x: x + 1)):
        with pytest.raises(OverflowError):
            use(np.int64(2**32))
    with config.scope(debug_overflow=True), pytest.raises(OverflowError):
        jit(jnp.sum)(jnp.full(3, 2**30))
    assert float(jnp.mean(jnp.ones(70000, jnp.float16))) == 1.0  # accumulated in float32


def test_11_float64_is_kept_or_it_is_said():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert jnp.zeros(2, np.float64).dtype == np.float32
    assert [w.category for w in caught] == [errors.PrecisionWarning]
    assert caught[0].filename == __file__
    with lumjax.enable_x64():
        assert jnp.zeros(2, np.float64).dtype == np.float64
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(64, 64)).astype(np.float32) for _ in range(2))
    exact = a.astype(float) @ b.astype(float)
    assert np.abs(np.asarray(jit(jnp.matmul)(a, b)) - exact).max() < 1e-4  # float32 is float32


def test_12_memory_is_known_before_running():
    program = jit(lambda x: jnp.sum(jnp.sin(x) * x)).lower(jnp.ones((64, 64))).compile()
    assert program.memory_analysis().argument_size_in_bytes == 64 * 64 * 4


def test_13_donation_is_checked():
    x = jnp.ones(3)
    jit(lambda x: x + 1, donate_argnums=0)(x)
    with pytest.raises(errors.DonationError, match="was given it as x"):
        x + 1


def test_14_outside_of_jit_an_operation_is_one_call_of_numpy():
    """Times are in the benchmarks; here, that nothing is traced, staged or compiled."""
    before = compiled()
    x = jnp.ones(4)
    y = x + x
    assert type(y.data) is np.ndarray
    assert compiled() == before


def test_15_equal_runs_give_equal_bits():
    rng = np.random.default_rng(0)
    x = rng.normal(size=5000).astype(np.float32)
    rows = rng.integers(0, 7, 5000)
    f = jit(lambda x: jnp.zeros(7).at[rows].add(x))
    runs = {np.asarray(f(x)).tobytes() for _ in range(5)}
    assert len(runs) == 1


def test_16_what_is_not_there_is_not_replaced_in_silence():
    with config.scope(backend="cuda"), pytest.raises(errors.LumjaxError, match="cuda"):
        jit(lambda x: x * 5)(jnp.ones(3))


def test_17_what_was_compiled_can_be_read():
    report = str(lumjax.explain(lambda x: jnp.sum(jnp.sin(x) * x), jnp.ones(8)))
    assert "kernels: 1" in report
    assert "test_pains" in report


def test_18_keys_are_used_once():
    with lumjax.debug_key_reuse():
        key = random.key(0)
        noise = random.normal(key)
        with pytest.raises(errors.KeyReuseError, match="used at"):
            noise + random.normal(key)


def test_19_constants_statics_and_loops():
    large = jnp.ones((100, 100))
    program = jit(lambda x: x @ large).lower(jnp.ones(100)).program
    assert program.jaxpr.consts == 1  # an input of the program, not part of its text
    assert program.consts[0] is large
    with pytest.raises(errors.StaticArgumentError, match="hashable"):
        jit(lambda n: n, static_argnums=0)([1])
    step = (lambda c: c < 5, lambda c: c * 2)
    with pytest.raises(errors.GradientError, match="max_steps"):
        lumjax.grad(lambda x: lax.while_loop(*step, x))(1.0)
    assert float(lumjax.grad(lambda x: lax.while_loop(*step, x, max_steps=9))(1.0)) == 8.0
