"""Laws that every record must obey, checked on one sample with NumPy alone."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.config import config
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Linear, Primitive, Sample, aval_of
from tests.ops.forms import interpret

TOLERANCE = {
    dt.float16: 2e-2,
    dt.bfloat16: 6e-2,
    dt.float32: 2e-5,
    dt.float64: 1e-10,
    dt.complex64: 2e-5,
}


def draw(
    aval: ShapedArray, rng: np.random.Generator, low: float = -2.0, high: float = 2.0
) -> np.ndarray:
    """A random array; key words, bools and integers too."""
    shape = tuple(aval.shape)
    if aval.dtype == dt.key:
        return rng.integers(0, 2**32, (*shape, 2), np.uint32).view(dt.key).reshape(shape)
    if aval.dtype == dt.bool_:
        return rng.random(shape) < 0.5
    if dt.is_integer(aval.dtype):
        low = 0 if dt.is_unsigned(aval.dtype) else int(low)
        return rng.integers(low, int(high) + 1, shape).astype(aval.dtype)
    x = rng.uniform(low, high, shape)
    if dt.is_complex(aval.dtype):
        x = x + 1j * rng.uniform(low, high, shape)
    return np.asarray(x).astype(aval.dtype)


def close(a: Any, b: Any, scale: float = 1.0) -> None:
    """Equality: exact for what is not floating, to the dtype's tolerance for what is."""
    a, b = (x.data if isinstance(x, Array) else np.asarray(x) for x in (a, b))
    assert a.dtype == b.dtype, (a.dtype, b.dtype)
    assert a.shape == b.shape, (a.shape, b.shape)
    if a.dtype in TOLERANCE:
        tol = TOLERANCE[a.dtype] * scale
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=tol, atol=tol)
    else:
        np.testing.assert_array_equal(a, b)


def run(prim: Primitive, args: list[Any], params: Any) -> list[np.ndarray]:
    return [np.asarray(o) for o in prim.eval(*args, **params)]


def check_aval(prim: Primitive, args: list[np.ndarray], params: Any) -> None:
    """eval returns what aval promises."""
    avals = prim.aval(*map(aval_of, args), **params)
    outs = run(prim, args, params)
    assert len(outs) == len(avals)
    for o, a in zip(outs, avals, strict=True):
        assert (o.shape, o.dtype) == (tuple(a.shape), a.dtype)


def check_form(prim: Primitive, args: list[np.ndarray], params: Any) -> bool:
    """The form's index maps mean the same as eval; says whether the form has maps."""
    avals = list(map(aval_of, args))
    found = interpret(prim.form(*avals, **params), args, prim.aval(*avals, **params)[0])
    if found is None:
        return False
    wanted = run(prim, args, params)
    founds = found if isinstance(found, list) else [found]
    for mine, want in zip(founds, wanted, strict=isinstance(found, list)):
        close(mine, want, scale=4.0)
    return True


def check_batch(
    prim: Primitive, args: list[np.ndarray], params: Any, rng: np.random.Generator, size: int = 3
) -> None:
    """The batch rule agrees with a loop, for at most 8 sets of mapped operands, axes at random."""
    sets = [m for m in itertools.product((False, True), repeat=len(args)) if any(m)]
    for mapped in sets[:7] + sets[-1:]:
        dims = [
            int(rng.integers(a.ndim + 1)) if m else None for a, m in zip(args, mapped, strict=True)
        ]
        stacked = []
        for a, d in zip(args, dims, strict=True):
            if d is None:
                stacked.append(a)
                continue
            lanes = [a, *(rng.permutation(a.reshape(-1)).reshape(a.shape) for _ in range(size - 1))]
            stacked.append(np.stack(lanes, d))
        outs, out_dims = prim.rule("batch")(
            MappedAxis(size), tuple(map(Array, stacked)), tuple(dims), **params
        )
        for k in range(size):
            lane = [
                a if d is None else np.take(a, k, d) for a, d in zip(stacked, dims, strict=True)
            ]
            for want, out, d in zip(run(prim, lane, params), outs, out_dims, strict=True):
                data = np.asarray(out.data)
                close(data if d is None else np.take(data, k, d), want, scale=4.0)


def without_options(params: Any, **changes: Any) -> dict[str, Any]:
    """The params in which the operation is exact and, where asked for, linear."""
    changed = {k: v for k, v in changes.items() if params.get(k) is not None}
    if "preferred_element_type" in params:
        changed["preferred_element_type"] = None
    return {**params, **changed}


def inner(a: Any, b: Any) -> float:
    wide = np.complex128 if np.asarray(a).dtype.kind == "c" else np.float64
    return np.sum(np.asarray(a).astype(wide) * np.asarray(b).astype(wide))


def widened(args: list[np.ndarray]) -> list[np.ndarray]:
    """Floats in float64, for differences and inner products; complex in complex128."""
    names = {dt.complex64: dt.complex128, dt.complex128: dt.complex128}
    return [a.astype(names.get(a.dtype, dt.float64)) if dt.is_inexact(a.dtype) else a for a in args]


def check_jvp(
    prim: Primitive,
    args: list[np.ndarray],
    params: Any,
    rng: np.random.Generator,
    tol: float = 1e-5,
    still: tuple[int, ...] = (),
) -> None:
    """The tangent agrees with a central difference, for each operand and all together but those
    that are held `still`.
    """
    with config.scope(enable_x64=True):
        args, params = widened(args), without_options(params)
        moving = [k for k, a in enumerate(args) if dt.is_inexact(a.dtype) and k not in still]
        assert moving
        for chosen in [[k] for k in moving] + [moving]:
            tangents: list[Any] = [None] * len(args)
            for k in chosen:
                tangents[k] = draw(aval_of(args[k]), rng, -1, 1)
            outs, dots = prim.rule("jvp")(
                tuple(map(Array, args)),
                tuple(None if t is None else Array(t) for t in tangents),
                **params,
            )
            eps = 1e-6
            plus, minus = (
                run(
                    prim,
                    [a if t is None else a + s * t for a, t in zip(args, tangents, strict=True)],
                    params,
                )
                for s in (eps, -eps)
            )
            for out, dot, p, m, base in zip(
                outs, dots, plus, minus, run(prim, args, params), strict=True
            ):
                close(out, base)
                if not dt.is_inexact(base.dtype):
                    assert dot is None
                    continue
                with np.errstate(invalid="ignore"):
                    want = (p - m) / (2 * eps)
                got = np.zeros(base.shape) if dot is None else dot.data
                want = np.where(np.isfinite(base), want, 0)  # fills and identities do not move
                assert got.shape == base.shape
                np.testing.assert_allclose(got, want, rtol=tol, atol=tol)
        nothing = prim.rule("jvp")(tuple(map(Array, args)), (None,) * len(args), **params)[1]
        assert all(t is None for t in nothing)


def check_transpose(
    prim: Primitive,
    args: list[np.ndarray],
    params: Any,
    linear: tuple[int, ...],
    rng: np.random.Generator,
) -> None:
    """The dot-product identity in the operands in which the operation is jointly linear."""
    with config.scope(enable_x64=True):
        args, params = widened(args), without_options(params, fill_value=0)
        inputs = [Linear(aval_of(a)) if k in linear else Array(a) for k, a in enumerate(args)]
        (out,) = run(prim, args, params)
        ct = draw(aval_of(out), rng)
        found = prim.rule("transpose")((Array(ct),), tuple(inputs), **params)
        assert len(found) == len(args)
        total = 0.0
        for k, (a, c) in enumerate(zip(args, found, strict=True)):
            assert k in linear or c is None
            if c is not None:
                assert aval_of(c).shape == a.shape
                assert aval_of(c).dtype == a.dtype
                total = total + inner(c.data, a)
        np.testing.assert_allclose(total, inner(ct, out), rtol=1e-9, atol=1e-9)
        zero = prim.rule("transpose")((None,), tuple(inputs), **params)
        assert all(c is None for c in zero)


def draw_sample(sample: Sample, rng: np.random.Generator) -> list[np.ndarray]:
    return [draw(a, rng, sample.low, sample.high) for a in sample.avals]
