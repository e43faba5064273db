"""What the search must make of naive programs: few kernels, nothing large stored, equal results."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from benchmarks import programs
from benchmarks.derive import derive
from benchmarks.programs import PROGRAMS
from lumjax.config import config


@pytest.mark.parametrize("name", PROGRAMS)
def test_becomes_what_it_must(name: str) -> None:
    found = derive(name, PROGRAMS[name], PROGRAMS[name].small)
    assert found.counted <= found.must, found
    assert found.forbidden is None or found.largest < found.forbidden, found
    assert not found.evaluated, found
    assert not found.rejected, found
    assert found.error < 1e-4, found


# ---- rows that are hard


def wide(f: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The interpreter's result in float64."""
    with config.scope(interpret=True, enable_x64=True):
        return lumjax.jit(f)(*(jnp.asarray(np.asarray(a, np.float64)) for a in args))


def agree(f: Callable[..., Any], args: tuple[Any, ...], tolerance: float = 1e-4) -> None:
    """The compiled result is the interpreter's in float64: nan where it is nan, finite where it is
    finite.
    """
    executable = lumjax.jit(f).lower(*args).compile()
    rejected = [k.rejected for s in executable.executable.native() for k in s.kernels]
    assert not any(rejected), rejected
    got, want = lumjax.tree.leaves(executable(*args)), lumjax.tree.leaves(wide(f, args))
    for g, w in zip(got, want, strict=True):
        x, y = np.asarray(g, np.float64), np.asarray(w)
        np.testing.assert_array_equal(np.isfinite(x), np.isfinite(y))
        finite = np.isfinite(y)
        scale = np.max(np.abs(y), initial=1.0, where=finite)
        np.testing.assert_allclose(x[finite], y[finite], atol=tolerance * scale)


VARIANTS = {
    "plain": programs.attention,
    "causal": programs.causal,
    "causal, finfo.min": programs.causal_finite,
    "causal, additive": programs.causal_additive,
    "window": programs.window,
    "alibi": programs.alibi,
    "soft cap": programs.soft_cap,
    "grouped": programs.grouped,
    "jnp alone": programs.attention_plain,
    "causal, jnp alone": programs.causal_plain,
}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("time", [0, 1, 2, 31, 64, 65, 129, 300])
@pytest.mark.sampled(12)
def test_rows_of_any_length(name: str, time: int) -> None:
    agree(*VARIANTS[name](time))


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("scale", [1e-4, 30.0, 100.0])
@pytest.mark.sampled(6)
def test_large_and_small_scores(name: str, scale: float) -> None:
    f, (q, k, v) = VARIANTS[name](97)
    agree(f, (q * scale, k * scale, v), 1e-3)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 1e-40])
@pytest.mark.parametrize("operand", [0, 1, 2])
@pytest.mark.parametrize("name", ["plain", "causal", "causal, finfo.min", "causal, additive"])
@pytest.mark.sampled(12)
def test_a_special_value_somewhere(name: str, operand: int, special: float) -> None:
    f, args = VARIANTS[name](150)
    rng = np.random.default_rng(3)
    arrays = [np.array(a) for a in args]
    flat = arrays[operand].reshape(-1)
    flat[rng.integers(0, flat.size)] = special
    agree(f, tuple(map(jnp.array, arrays)))


@pytest.mark.parametrize("block", ["row", "rows", "all", "block"])
def test_rows_that_are_masked_as_a_whole(block: str) -> None:
    mask = np.zeros((150, 150), bool)
    mask[
        {"row": slice(7, 8), "rows": slice(40, 120), "all": slice(None), "block": slice(0)}[block]
    ] = True
    if block == "block":
        mask[:70, 64:] = True
    where = jnp.array(mask)

    def f(q: Any, k: Any, v: Any) -> Any:
        return programs._attention(lambda s, i, j: jnp.where(where, -jnp.inf, s))(q, k, v)

    agree(f, programs._heads(150))
    assert lumjax.jit(f).lower(*programs._heads(150)).compile().executable.launches <= 3


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("time", [1, 65, 150])
@pytest.mark.sampled(4)
def test_gradients_of_rows(name: str, time: int) -> None:
    agree(*programs._backward(*VARIANTS[name](time)), 3e-4)


@pytest.mark.parametrize("name", ["jnp alone", "causal, jnp alone"])
@pytest.mark.parametrize("time", [65, 150])
@pytest.mark.sampled(4)
def test_gradients_of_rows_whose_maximum_occurs_several_times(name: str, time: int) -> None:
    """Whole numbers: the maximum's share of the gradient is spread over all places that have it."""
    f, (q, k, v) = VARIANTS[name](time)
    whole = (jnp.round(q), jnp.round(k), v)

    def loss(q: Any, k: Any, v: Any) -> Any:
        return jnp.sum(f(q, k, v) * jnp.max(v)) + jnp.sum(jnp.max(q @ jnp.swapaxes(k, 1, 2), -1))

    agree(lumjax.grad(loss, (0, 1, 2)), whole, 3e-4)


@pytest.mark.parametrize("name", ["attention causal", "attention causal backward", "contrastive"])
def test_memory_grows_with_rows_not_with_their_square(name: str) -> None:
    program = PROGRAMS[name]
    arenas = []
    for size in (512, 2048):
        f, args = program.build(size)
        arenas.append(lumjax.jit(f).lower(*args).compile().executable.arena_bytes)
    assert arenas[1] <= 5 * arenas[0]


@pytest.mark.parametrize(
    "name", ["attention causal", "attention causal backward", "linear and labels"]
)
def test_results_do_not_depend_on_the_number_of_threads(name: str) -> None:
    f, args = PROGRAMS[name].build(PROGRAMS[name].small)
    results = []
    for threads in (1, 2, 4):
        with config.scope(num_threads=threads):
            results.append([np.asarray(x) for x in lumjax.tree.leaves(lumjax.jit(f)(*args))])
    for other in results[1:]:
        for x, y in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(x, y)


STRIDES_DILATIONS_GROUPS_PADDINGS = list(
    itertools.product([1, 2, 3], [1, 2], [1, 2], ["SAME", "VALID", ((2, 1), (0, 3))])
)


@pytest.mark.parametrize(
    ("stride", "dilation", "groups", "padding"), STRIDES_DILATIONS_GROUPS_PADDINGS
)
@pytest.mark.sampled(8)
def test_convolutions_and_their_gradients_are_kernels(
    stride: int, dilation: int, groups: int, padding: object
) -> None:
    def f(x: object, w: object) -> object:
        return lumjax.lax.conv_general_dilated(
            x,
            w,
            (stride, stride),
            padding,
            rhs_dilation=(dilation, dilation),
            feature_group_count=groups,
            dimension_numbers=("NCHW", "OIHW", "NCHW"),
        )

    x, w = jnp.ones((2, 4, 11, 13)), jnp.ones((6, 4 // groups, 3, 2))
    for program in (f, *(lumjax.grad(lambda *a: jnp.sum(f(*a) ** 2), k) for k in (0, 1))):
        executable = lumjax.jit(program).lower(x, w).compile().executable
        assert [e.why for e in executable.evaluated()] == []
        assert not any(k.rejected for s in executable.native() for k in s.kernels)
