"""Dtypes and the promotion lattice: a golden table, and JAX itself."""

from __future__ import annotations

import itertools
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import lumjax.numpy as jnp
from lumjax import dtype as dt
from lumjax.config import config
from lumjax.errors import ArgumentTypeError, DTypeError

GOLDEN = Path(__file__).parent / "golden" / "promotion.txt"
WEAK = {"i32*": (dt.int32, True), "f32*": (dt.float32, True), "c64*": (dt.complex64, True)}
KINDS = {dt.short_name(d): (d, False) for d in dt.NUMERIC if d.itemsize * 8 != 128} | WEAK


def rows() -> list[tuple[str, str, str]]:
    return [tuple(line.split()) for line in GOLDEN.read_text().splitlines() if line]


def name(dtype, weak) -> str:
    return dt.short_name(dtype) + "*" * weak


def table() -> str:
    """The golden text: with x64 on, so that no type is narrowed."""
    lines = []
    with config.scope(enable_x64=True):
        for a, b in itertools.combinations_with_replacement(KINDS, 2):
            lines.append(f"{a} {b} {name(*dt.promote(KINDS[a], KINDS[b]))}")
    return "\n".join(lines) + "\n"


def test_promotion_is_golden():
    assert table() == GOLDEN.read_text()


def test_promotion_commutes():
    with config.scope(enable_x64=True):
        for a, b, want in rows():
            assert name(*dt.promote(KINDS[b], KINDS[a])) == want


@pytest.mark.parametrize("x64", [False, True])
def test_promotion_is_jaxs(x64):
    jax = pytest.importorskip("jax")
    lattice = pytest.importorskip("jax._src.dtypes").lattice_result_type
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", x64)
    try:
        with config.scope(enable_x64=x64):
            for a, b in itertools.product(KINDS, KINDS):
                (da, wa), (db, wb) = KINDS[a], KINDS[b]
                da, db = dt.canonicalize(da), dt.canonicalize(db)
                pair = [
                    {"i": 1, "f": 1.0, "c": 1j}[d.kind] if w else jax.ShapeDtypeStruct((), d)
                    for d, w in ((da, wa), (db, wb))
                ]
                want, weak = lattice(*pair)
                wide = {"i": dt.int64, "f": dt.float64, "c": dt.complex128}  # JAX's scalars
                da, db = (
                    dt.canonicalize(wide[d.kind]) if w else d for d, w in ((da, wa), (db, wb))
                )
                got = dt.promote((da, wa), (db, wb))
                assert (got[0], got[1]) == (jax.dtypes.canonicalize_dtype(want), weak), (a, b)
    finally:
        jax.config.update("jax_enable_x64", before)


def test_three_operands_join_once():
    # Pairwise joins in any order would give float16 or bfloat16 a chance; the join gives float32.
    assert dt.promote((dt.float16, False), (dt.bfloat16, False), (dt.int8, False))[0] == dt.float32


def test_scalars():
    assert dt.scalar_dtype(True) == dt.bool_
    assert dt.scalar_dtype(1) == dt.int32
    assert dt.scalar_dtype(1.0) == dt.float32
    assert dt.scalar_dtype(1j) == dt.complex64
    with config.scope(enable_x64=True):
        assert dt.scalar_dtype(1.0) == dt.float64
    with pytest.raises(ArgumentTypeError, match="str"):
        dt.scalar_dtype("x")


def test_numpy_scalars_are_strong():
    with config.scope(enable_x64=True):
        assert (jnp.float32(1) + np.float64(1)).dtype == np.float64
        assert (jnp.float32(1) + 1.0).dtype == np.float32


def test_names_round_trip():
    for d in (*dt.NUMERIC, dt.key, dt.float0):
        assert dt.from_short_name(dt.short_name(d)) == d


def test_kinds():
    assert dt.is_floating(dt.bfloat16)
    assert not dt.is_integer(dt.bool_)
    assert dt.is_key(dt.key)
    assert not dt.is_numeric(dt.key)
    assert dt.tangent_dtype(dt.int32) == dt.float0
    assert dt.tangent_dtype(dt.bfloat16) == dt.bfloat16
    assert dt.accumulation_dtype(dt.float16) == dt.float32


@pytest.mark.parametrize(
    "bad", ["object", "U3", "datetime64[s]", np.longdouble, "no such type", object()]
)
def test_foreign_dtypes_raise(bad):
    with pytest.raises(DTypeError):
        dt.canonicalize(bad)


def test_dtype_spellings():
    for spelling in ("bfloat16", ml_dtypes.bfloat16, jnp.bfloat16, dt.bfloat16):
        assert dt.canonicalize(spelling) == dt.bfloat16
    assert dt.canonicalize(int) == dt.int32
    assert dt.canonicalize(float) == dt.float32
    assert dt.canonicalize(">f4") == dt.float32


ABSTRACT = [np.generic, np.number, np.integer, np.signedinteger, np.unsignedinteger, np.inexact,
            np.floating, np.complexfloating]  # fmt: skip


@pytest.mark.parametrize("concrete", [d for d in dt.NUMERIC if d.itemsize * 8 != 128], ids=str)
def test_issubdtype_is_jaxs(concrete):
    jax = pytest.importorskip("jax")
    for kind in (*ABSTRACT, np.float32, np.int32, np.bool_, ml_dtypes.bfloat16, "float32"):
        assert dt.issubdtype(concrete, kind) == jax.numpy.issubdtype(concrete, kind), kind


def test_issubdtype_of_keys():
    assert dt.issubdtype(dt.key, dt.prng_key)
    assert not dt.issubdtype(dt.key, np.number)
    assert not dt.issubdtype(np.float32, dt.prng_key)


def test_limits():
    assert dt.finfo("bfloat16").bits == 16
    assert dt.iinfo(np.uint8).max == 255


def test_keys_and_float0_do_not_promote():
    for strange in (dt.key, dt.float0):
        with pytest.raises(DTypeError):
            dt.promote((strange, False), (dt.float32, False))


@pytest.mark.parametrize(
    "name", ["bool", "int8", "int32", "uint32", "float16", "float32", "complex64"]
)
def test_a_dtype_is_one_object(name):
    """Code compares dtypes by `is`: whatever names one gives NumPy's."""
    given = [name, np.dtype(name), np.dtype(name).type, np.dtype(name).newbyteorder(">")]
    assert all(dt.canonicalize(d) is np.dtype(name) for d in given)
