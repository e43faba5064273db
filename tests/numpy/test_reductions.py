"""Summaries against JAX."""

from __future__ import annotations

import pytest

from tests.numpy.oracle import check, lines

pytestmark = pytest.mark.sampled(3)

NAMES = (
    "sum prod max min mean var std all any argmax argmin cumsum cumprod ptp count_nonzero".split()
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("args", ["f34", "f34, 0", "f34, -1", "i34, 1", "b34, 0", "u8", "bf4", "i8",
                                  "f1, 0", "s", "n34, 0", "w"])  # fmt: skip
def test_summaries(name, args):
    if args in ("s", "w") and name in ("argmax", "argmin", "cumsum", "cumprod"):
        args = "f1"
    if name == "ptp" and args == "b34, 0":
        pytest.skip("bools do not subtract")
    check(f"jnp.{name}({args})", 1e-2 if "bf4" in args else 4e-6)


@pytest.mark.parametrize("name", "sum prod max min mean var std all any".split())
@pytest.mark.parametrize(
    "extra",
    [
        "axis=(0, 1)",
        "axis=(0, -1), keepdims=True",
        "axis=-1, keepdims=True",
        "keepdims=True",
        "axis=()",
    ],
)
def test_axes(name, extra):
    check(f"jnp.{name}(f234, {extra})", 4e-6)


@pytest.mark.parametrize("name", "sum prod mean var std all any".split())
def test_where(name):
    check(f"jnp.{name}(f34, axis=0, where=b34)")
    check(f"jnp.{name}(f34, axis=1, where=f34 > -100, keepdims=True)", 4e-6)


@pytest.mark.parametrize(
    "expression",
    lines("""
    jnp.max(f34, axis=0, where=b34, initial=-1.0)
    jnp.min(i34, axis=1, where=b34, initial=9)
    jnp.max(f0, initial=-jnp.inf)
    jnp.sum(f34, initial=2)
    jnp.sum(f34, axis=0, initial=s)
    jnp.prod(i34, axis=0, initial=2)
    jnp.sum(f34, dtype=jnp.float16)
    jnp.sum(i8)
    jnp.sum(i8, dtype=jnp.int8)
    jnp.sum(i8, promote_integers=False)
    jnp.sum(u8)
    jnp.sum(b34)
    jnp.sum(f0)
    jnp.sum(f04, axis=0)
    jnp.sum(f04, axis=1)
    jnp.prod(f0)
    jnp.mean(f0)
    jnp.mean(i34, axis=0)
    jnp.mean(b34)
    jnp.mean(f34, dtype=jnp.float16)
    jnp.mean(h4 * 600)
    jnp.sum(jnp.ones(70000, jnp.float16) / 2)
    jnp.var(f34, ddof=1)
    jnp.var(f34, axis=0, correction=1)
    jnp.std(f34, axis=1, ddof=1, keepdims=True)
    jnp.var(i34)
    jnp.var(c4)
    jnp.std(c4)
    jnp.var(bf4)
    jnp.all(f0)
    jnp.any(f0)
    jnp.all(i34, axis=0)
    jnp.argmax(f34, axis=0)
    jnp.argmax(f34, axis=-1, keepdims=True)
    jnp.argmin(i34, keepdims=True)
    jnp.argmax(e4)
    jnp.argmin(e4)
    jnp.argmax(b34, axis=1)
    jnp.cumsum(f34)
    jnp.cumsum(f34, axis=0)
    jnp.cumsum(b4)
    jnp.cumsum(u8)
    jnp.cumsum(i8, dtype=jnp.int8)
    jnp.cumsum(f0)
    jnp.cumprod(f34, axis=-1)
    jnp.cumsum(f34, axis=0, dtype=jnp.float16)
    jnp.average(f34)
    jnp.average(f34, axis=0, weights=jnp.array([1., 2., 3.]))
    jnp.average(f34, weights=p34)
    jnp.average(f34, axis=1, weights=p34, returned=True)
    jnp.average(i34, axis=0, returned=True)
    jnp.count_nonzero(i34, axis=0)
    jnp.count_nonzero(i34, axis=(0, 1), keepdims=True)
    jnp.diff(f34)
    jnp.diff(f34, n=2, axis=0)
    jnp.diff(b4)
    jnp.diff(i4, n=1)
    jnp.nansum(n34)
    jnp.nansum(n34, axis=0)
    jnp.nanmean(n34, axis=1)
    jnp.nanmax(n34, axis=0)
    jnp.nanmin(n34)
    jnp.nanmax(i34)
    jnp.amax(f34, 1)
    jnp.amin(f34)
    f34.sum()
    f34.sum(0)
    f34.mean(axis=-1, keepdims=True)
    f34.max(1)
    f34.min()
    f34.std()
    f34.var(0)
    f34.prod()
    f34.argmax(1)
    f34.argmin()
    b34.all()
    b34.any(0)
    f34.cumsum(1)
    f34.cumprod(0)
    f34.ptp()
    jnp.ptp(i34, axis=0)
    jnp.sum([1, 2, 3]) if jax.__name__ == 'never' else jnp.sum(jnp.array([1, 2, 3]))
    jnp.max(2)
    jnp.sum(2.0)
    jnp.mean(2)
    jnp.sum(w)
    jnp.max(wi)
    jnp.std(3.0)
"""),
)
def test_expressions(expression):
    check(expression, 2e-3 if "float16" in expression else 1e-2 if "bf4" in expression else 4e-6)
