"""The Array API standard: every function against array-api-strict, on what Hypothesis draws.

`pytest --whole tests/foreign/test_array_api.py` runs all; CI runs a sample. The functions that
agree are in array_api.txt, which may only grow.
"""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lumjax
import lumjax.numpy as jnp
from lumjax.errors import ArgumentValueError
from tests.foreign.array_api import BINARY, CASES, UNARY, both, strict, xps

RECORDED = (Path(__file__).parent / "array_api.txt").read_text(encoding="utf-8").splitlines()


def numbers(x):
    return np.asarray(getattr(x, "_array", x))


def agree(name, ours, theirs):
    if isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for one, two in zip(ours, theirs, strict=True):
            agree(name, one, two)
        return
    a, b = numbers(ours), numbers(theirs)
    assert (a.shape, a.dtype) == (b.shape, b.dtype), (a, b)
    if CASES[name].exact or b.dtype.kind not in "fc":
        np.testing.assert_array_equal(a, b)
        if b.dtype.kind == "f":
            known = ~np.isnan(b)
            np.testing.assert_array_equal(np.signbit(a)[known], np.signbit(b)[known])
        return
    close(a, b, CASES[name].rtol)


def close(a, b, ulps):
    """Equal to so many units in the last place, counted from the largest number around."""
    eps = float(np.finfo(b.dtype).eps)
    finite = np.abs(b[np.isfinite(b)])
    scale = 1.0 if ulps <= 8 or not finite.size else max(1.0, float(np.max(finite)))
    tiny = float(np.finfo(b.dtype).smallest_normal)
    atol = ulps * eps * scale if ulps > 8 else 8 * tiny * eps
    np.testing.assert_allclose(a, b, rtol=ulps * eps, atol=atol)


@pytest.fixture(autouse=True, scope="module")
def _wide():
    with lumjax.enable_x64(True):
        yield


def test_the_list_only_grows():
    assert sorted(set(CASES)) == RECORDED


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", sorted(CASES))
def test_function(name):
    @settings(max_examples=30, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data):
        args, kwargs = CASES[name].draw(data.draw)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            agree(name, *both(name, args, kwargs))

    check()


# ---- the special cases of the standard: infinities, NaN, zeros of both signs, halves, the ends

GRID = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.0, -2.0, 3.0, -3.0, 4.5]
GRID += [float(np.finfo(np.float32).max), float(np.finfo(np.float32).smallest_normal), -1e-40]
SPECIAL = sorted(n for n, kinds in (UNARY | BINARY).items() if "float64" in kinds)
# Zeros whose sign is JAX's: the standard leaves the first three open, and JAX differs in the
# others.
ZEROS = {"maximum", "minimum", "sign", "remainder", "floor_divide"}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name, dtype):
    values = np.array(GRID, dtype)
    pairs = np.meshgrid(values, values) if name in BINARY else [values]
    operands = [p.ravel() for p in pairs]
    with np.errstate(all="ignore"):
        wanted = np.asarray(getattr(strict, name)(*map(strict.asarray, operands))._array)
    for f in (getattr(jnp, name), lumjax.jit(getattr(jnp, name))):
        found = np.asarray(f(*map(jnp.asarray, operands)))
        assert found.dtype == wanted.dtype
        for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
            at = tuple(float(p[k]) for p in operands)
            special = not np.isfinite(b) or b == 0 or a == 0
            if special or CASES[name].exact:
                np.testing.assert_array_equal(a, b, str(at))
                signed = b.dtype.kind == "f" and not np.isnan(b) and not (b == 0 and name in ZEROS)
                assert not signed or np.signbit(a) == np.signbit(b), (at, a, b)
            else:
                np.testing.assert_allclose(a, b, 8 * np.finfo(dtype).eps, err_msg=str(at))


# ---- names and signatures


def functions_of_the_standard():
    spaces = {"": strict, "linalg.": strict.linalg, "fft.": strict.fft}
    for prefix, space in spaces.items():
        for name in space.__all__:
            f = getattr(space, name)
            public = not name.startswith("_") and "array_api_strict_flags" not in name
            if inspect.isfunction(f) and public:
                yield prefix + name, f


def accepted(function, theirs):
    """The parameters of the standard that a function does not take as the standard passes them."""
    ours = inspect.signature(function).parameters
    kinds = [p.kind for p in ours.values()]
    free = inspect.Parameter.VAR_POSITIONAL in kinds
    positional = sum(k in (0, 1) for k in kinds)
    for place, (name, p) in enumerate(theirs.items()):
        if p.kind is inspect.Parameter.VAR_POSITIONAL:
            if not free:
                yield f"*{name}"
        elif p.kind is inspect.Parameter.POSITIONAL_ONLY:
            if not free and place >= positional:
                yield name
        elif name not in ours or ours[name].kind is inspect.Parameter.POSITIONAL_ONLY:
            yield name


def test_names_and_signatures():
    missing, wanting = [], {}
    for name, theirs in functions_of_the_standard():
        ours = jnp
        for part in name.split("."):
            ours = getattr(ours, part, None)
        if ours is None:
            missing.append(name)
            continue
        lacks = list(accepted(ours, inspect.signature(theirs).parameters))
        if lacks:
            wanting[name] = lacks
    assert (missing, wanting) == ([], {})
    tested = {n.split(" ")[0] for n in CASES}
    named = {n for n, _ in functions_of_the_standard()}
    later = {"broadcast_shapes", "isin"}  # of the version after
    assert named - tested - later == {"from_dlpack"}  # below
    methods = [n for n in dir(strict.asarray(1)) if n.startswith("__") and not n.startswith("__i")]
    kept = {"__invert__", "__index__", "__int__", "__iter__", "__init__", "__init_subclass__"}
    x = jnp.ones((2, 2))
    assert [n for n in (*methods, *kept) if not hasattr(x, n) and n != "__buffer__"] == []
    constants = ["e", "inf", "nan", "newaxis", "pi"]
    assert all(hasattr(jnp, c) for c in constants)


# ---- what has no counterpart in array-api-strict


def test_inspection():
    info = jnp.__array_namespace_info__()
    assert set(info.capabilities()) == {
        "boolean indexing", "data-dependent shapes", "max dimensions",
    }  # fmt: skip
    assert info.default_device() in info.devices()
    wide = strict.__array_namespace_info__()
    for kind in (None, "bool", "integral", ("real floating", "complex floating"), "numeric"):
        theirs = {n: np.dtype(str(d).split(".")[-1]) for n, d in wide.dtypes(kind=kind).items()}
        assert info.dtypes(kind=kind) == theirs
    assert {k: d.name for k, d in info.default_dtypes().items()} == {
        "real floating": "float64", "complex floating": "complex128", "integral": "int64",
        "indexing": "int64",
    }  # fmt: skip
    with lumjax.enable_x64(False):
        assert "float64" not in info.dtypes()
        assert info.default_dtypes()["integral"] == np.int32
    with pytest.raises(ArgumentValueError):
        info.dtypes(kind="strange")
    x = jnp.ones(2)
    assert x.__array_namespace__() is jnp
    assert x.__array_namespace__(api_version=jnp.__array_api_version__) is jnp
    with pytest.raises(ArgumentValueError):
        x.__array_namespace__(api_version="2020.01")
    assert jnp.asarray([1.0], device=x.device).device == x.device
    assert x.to_device(x.device) is x


@settings(max_examples=15)
@given(st.data())
def test_strategies_of_hypothesis_draw_from_the_namespace(data):
    x = data.draw(xps.arrays(xps.scalar_dtypes(), xps.array_shapes(max_dims=2, max_side=3)))
    assert isinstance(x, lumjax.Array)
    key = data.draw(xps.indices(x.shape))
    np.testing.assert_array_equal(x[key], np.asarray(x)[key])
    assert data.draw(xps.arrays("float32", 3, fill=st.nothing(), unique=True)).shape == (3,)


@settings(max_examples=15)
@given(st.data())
def test_arrays_are_exchanged_by_dlpack(data):
    x = data.draw(xps.arrays(xps.scalar_dtypes(), xps.array_shapes(max_dims=2, max_side=3)))
    there = np.from_dlpack(x)
    np.testing.assert_array_equal(there, np.asarray(x))
    back = jnp.from_dlpack(np.array(there))
    assert (back.dtype, back.shape) == (x.dtype, x.shape)
    np.testing.assert_array_equal(back, x)
    assert x.__dlpack_device__() == (1, 0)
