"""What `precision=` asks for: its names, its way through transformations, programs and files."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import lumjax
import lumjax.dtype as dt
import lumjax.numpy as jnp
from lumjax import lax
from lumjax.errors import ArgumentValueError
from lumjax.ops.precision import DotAlgorithmPreset, Precision, canonical_precision, rounding
from lumjax.trace.form import Rounding

RNG = np.random.default_rng(3)
BF16, TF32 = DotAlgorithmPreset.BF16_BF16_F32, DotAlgorithmPreset.TF32_TF32_F32
F32 = DotAlgorithmPreset.F32_F32_F32
ROUNDED = {
    None: None, "highest": None, "float32": None, "F32_F32_F32": None,
    "default": Rounding.TF32, "fastest": Rounding.TF32, "high": Rounding.TF32,
    "tensorfloat32": Rounding.TF32, "TF32_TF32_F32": Rounding.TF32,
    "bfloat16_3x": Rounding.TF32, "bfloat16": Rounding.BF16, "BF16_BF16_F32": Rounding.BF16,
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "want"),
    [
        (None, None),
        ("highest", Precision.HIGHEST),
        ("tensorfloat32", Precision.HIGH),
        ("TF32_TF32_F32", TF32),
        ("bfloat16", BF16),
        (F32, F32),
        (Precision.DEFAULT, Precision.DEFAULT),
        (("default", "highest"), Precision.HIGHEST),
        (("bfloat16", Precision.HIGH), Precision.HIGH),
        (("highest", None), Precision.HIGHEST),
        (("bfloat16", None), None),
        ((None, None), None),
    ],
)
def test_precision_names(given, want):
    assert canonical_precision(given) is want


@pytest.mark.parametrize("name", ROUNDED)
def test_what_a_precision_allows(name):
    given = canonical_precision(name)
    assert rounding(given, dt.float32, dt.float32) is ROUNDED[name]
    for dtype in (dt.bfloat16, dt.float64, dt.int32, dt.complex64):
        assert rounding(given, dtype, dtype) is None
    assert rounding(given, dt.bfloat16, dt.float32) is None


@pytest.mark.parametrize("name", [n for n in ROUNDED if n is None or n.islower()])
def test_names_of_precisions_are_those_of_jax(name):
    assert Precision(name).name == jax.lax.Precision(name).name


def test_a_precision_that_is_none():
    for given in ("low", 3, ("high",), ("high", "odd")):
        with pytest.raises(ArgumentValueError, match="tensorfloat32"):
            canonical_precision(given)
    with pytest.raises(ValueError, match="odd"):
        Precision("odd")


def products(f, *args):
    """The precisions of a program's contractions."""
    jaxpr = lumjax.make_jaxpr(f)(*args).jaxpr
    found = [e.params["precision"] for e in jaxpr.eqns if "precision" in e.params]
    assert found
    return found


def matrices(*shapes):
    return [jnp.asarray(RNG.normal(size=s), "float32") for s in shapes]


def test_transformations_keep_it():
    def f(x, w):
        return jnp.tanh(jnp.matmul(x, w, precision="tensorfloat32")).sum()

    x, w = matrices((4, 5), (5, 6))
    assert set(products(lumjax.grad(f, (0, 1)), x, w)) == {Precision.HIGH}
    assert len(products(lumjax.grad(f, (0, 1)), x, w)) == 3
    assert products(lumjax.vmap(f, (None, 0)), x, w[None]) == [Precision.HIGH]
    tangent = lumjax.make_jaxpr(lambda x, w: lumjax.jvp(f, (x, w), (x, w)))(x, w)
    assert str(tangent).count("precision=HIGH") == 3

    def g(x, w):
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", precision=BF16).sum()

    x, w = matrices((1, 2, 5, 5), (3, 2, 3, 3))
    assert set(products(lumjax.grad(g, (0, 1)), x, w)) == {BF16}
    assert products(lumjax.vmap(g, (0, None)), x[None], w) == [BF16]


def test_the_default_counts_where_nothing_is_said():
    x, w = matrices((4, 5), (5, 6))

    def f(x, w):
        return x @ w + jnp.matmul(x, w, precision="highest")

    assert products(f, x, w) == [None, Precision.HIGHEST]
    with lumjax.default_matmul_precision("tensorfloat32"):
        assert products(f, x, w) == [Precision.HIGH, Precision.HIGHEST]
        with lumjax.default_matmul_precision(None):
            assert products(f, x, w) == [None, Precision.HIGHEST]
    with pytest.raises(ArgumentValueError), lumjax.default_matmul_precision("odd"):
        pass
    try:
        lumjax.config.update("jax_default_matmul_precision", "bfloat16")
        assert products(f, x, w) == [BF16, Precision.HIGHEST]
    finally:
        lumjax.config.update("jax_default_matmul_precision", None)
    assert products(f, x, w) == [None, Precision.HIGHEST]


def test_the_default_is_part_of_a_signature():
    traced = []

    @lumjax.jit
    def f(x):
        traced.append(lumjax.config.default_matmul_precision)
        return x @ x

    (x,) = matrices((4, 4))
    f(x)
    with lumjax.default_matmul_precision("tensorfloat32"):
        f(x)
        f(x)
    f(x)
    assert traced == ["", "tensorfloat32"]


@pytest.mark.parametrize("name", [n for n in ROUNDED if n])
def test_a_cpu_multiplies_float32(name):
    x, w = matrices((33, 70), (70, 9))

    def product(precision):
        return lumjax.jit(lambda x, w: jnp.matmul(x, w, precision=precision))(x, w)

    np.testing.assert_array_equal(product(name), product(None))


def test_files_keep_it():
    def f(x, w):
        return jnp.matmul(x, w, precision="bfloat16"), jnp.matmul(x, w, precision="high")

    x, w = matrices((4, 5), (5, 6))
    loaded = lumjax.export.load(lumjax.export(lumjax.jit(f), x, w))
    np.testing.assert_array_equal(loaded(x, w)[0], f(x, w)[0])
    text = str(lumjax.make_jaxpr(lambda x, w: loaded(x, w))(x, w))
    assert text.count("precision=BF16_BF16_F32") == text.count("precision=HIGH") == 1
