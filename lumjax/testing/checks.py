"""Checks of one function at one point: derivatives, adjoints, vmap against a loop, jit against
eager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax import tree
from lumjax.config import config
from lumjax.control.checkpoint import checkpoint
from lumjax.decorator import jit
from lumjax.errors import ArgumentValueError
from lumjax.grad.forward import jvp
from lumjax.grad.linear import vjp
from lumjax.testing.rewrites import Judge, check_rewrites, refuse_rejected
from lumjax.testing.values import TOLERANCE, to_numpy, to_raw
from lumjax.trace.array import Array
from lumjax.trace.batch import vmap
from lumjax.trace.core import aval_of

NDArray: TypeAlias = np.ndarray[Any, Any]


def assert_close(
    got: Any, want: Any, what: str, rtol: float | None = None, atol: float | None = None
) -> None:
    """Two pytrees of arrays agree: same structure, shapes and dtypes, values within tolerance."""
    mismatch = tree.first_mismatch(got, want)
    assert mismatch is None, f"{what}: {mismatch}"
    for (path, g), w in zip(tree.leaves_with_path(got), tree.leaves(want), strict=True):
        place = f"{what}{tree.keystr(path)}"
        a, b = aval_of(g), aval_of(w)
        assert (a.shape, a.dtype) == (b.shape, b.dtype), f"{place}: {a} is not {b}"
        if not dt.is_inexact(a.dtype):
            np.testing.assert_array_equal(to_numpy(g), to_numpy(w), err_msg=place)
            continue
        own_rtol, own_atol = TOLERANCE[a.dtype]
        scale = float(np.max(np.abs(to_numpy(w)), initial=0.0, where=np.isfinite(to_numpy(w))))
        np.testing.assert_allclose(
            to_numpy(g),
            to_numpy(w),
            rtol=own_rtol if rtol is None else rtol,
            atol=(own_atol if atol is None else atol) * max(1.0, scale),
            err_msg=place,
        )


def _inexact(args: Sequence[Any]) -> list[bool]:
    return [dt.is_inexact(aval_of(x).dtype) for x in tree.leaves(args)]


def _flat(f: Callable[..., Any], args: Sequence[Any]) -> tuple[Callable[..., list[Any]], list[Any]]:
    """`f` as a function of its inexact leaves, returning its inexact leaves; and those leaves."""
    leaves, treedef = tree.flatten(tuple(args))
    moves = _inexact(args)

    def flat(*xs: Any) -> list[Any]:
        values = iter(xs)
        full = [next(values) if m else x for m, x in zip(moves, leaves, strict=True)]
        outs = tree.leaves(f(*treedef.unflatten(full)))
        return [o for o in outs if dt.is_inexact(aval_of(o).dtype)]

    return flat, [x for m, x in zip(moves, leaves, strict=True) if m]


def _direction(rng: np.random.Generator, like: Any) -> Any:
    aval = aval_of(like)
    shape: Any = aval.shape
    draw = rng.standard_normal(shape)
    if dt.is_complex(aval.dtype):
        draw = draw + 1j * rng.standard_normal(shape)
    return Array(np.asarray(draw).astype(aval.dtype))


def _dot(xs: Sequence[Any], ys: Sequence[Any]) -> float:
    """The real inner product of lists of arrays, in float64."""
    total = 0.0
    for x, y in zip(xs, ys, strict=True):
        a, b = to_numpy(x).astype(np.complex128), to_numpy(y).astype(np.complex128)
        total += float(np.real(np.vdot(a, b)))
    return total


def _pairing(cotangents: Sequence[Any], tangents: Sequence[Any]) -> float:
    """What a cotangent says of a tangent, in float64: no conjugate, as reverse mode takes none."""
    return _dot([np.conj(to_numpy(c)) for c in cotangents], tangents)


def _size(xs: Sequence[Any]) -> float:
    return float(np.sqrt(max(_dot(xs, xs), 0.0)))


def check_adjoint(
    f: Callable[..., Any], args: Sequence[Any], *, seed: int = 0, rtol: float | None = None
) -> None:
    """<u, J v> equals <J^T u, v>: forward and reverse mode are each other's adjoint at `args`.

    Needs no step size: in float64 it holds to 1e-9. Blind to an error that both modes share, so
    pair it with `check_grads`.
    """
    flat, primals = _flat(f, args)
    if not primals:
        return
    rng = np.random.default_rng(seed)
    v = [_direction(rng, p) for p in primals]
    outs, forward = jvp(flat, primals, v)
    u = [_direction(rng, o) for o in outs]
    _, pull = vjp(flat, *primals)
    backward = list(pull(u))
    left, right = _pairing(u, forward), _pairing(backward, v)
    dtypes = [aval_of(x).dtype for x in (*primals, *outs)]
    worst = max((TOLERANCE[d][0] for d in dtypes), default=1e-9)
    limit = 10 * worst if rtol is None else rtol
    scale = _size(u) * _size(forward) + _size(backward) * _size(v) + 1e-6
    both_nan = np.isnan(left) and np.isnan(right)
    assert both_nan or abs(left - right) <= limit * scale, (
        f"adjoint: <u, Jv> = {left} but <J'u, v> = {right} (scale {scale})"
    )


def _differences(flat: Callable[..., list[Any]], primals: Sequence[Any], v: Sequence[Any]) -> Any:
    """The directional derivative by central differences of fourth order; None at a kink."""

    def at(step: float) -> list[NDArray]:
        moved = [
            Array(np.asarray(to_numpy(p) + step * to_numpy(d)).astype(aval_of(p).dtype))
            for p, d in zip(primals, v, strict=True)
        ]
        return [to_numpy(o).astype(np.complex128) for o in flat(*moved)]

    h = 1e-3 / max(1.0, _size(v))
    here, a, b, c, d = at(0.0), at(h), at(-h), at(2 * h), at(-2 * h)
    out: list[NDArray] = []
    for y0, ya, yb, yc, yd in zip(here, a, b, c, d, strict=True):
        right, left = (ya - y0) / h, (y0 - yb) / h
        if np.any(np.abs(right - left) > 0.05 * (1 + np.abs(right) + np.abs(left))):
            return None
        out.append((8 * (ya - yb) - (yc - yd)) / (12 * h))
    return out


def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int = 1,
    modes: Sequence[str] = ("fwd", "rev"),
    *,
    directions: int = 2,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    kinks: str = "skip",
    seed: int = 0,
) -> None:
    """Derivatives of `f` at `args` against differences, up to `order`, in both modes.

    Values are widened to float64 first (x64 is on inside). `kinks` says what a point does at which
    the one-sided differences disagree: "skip" leaves that direction out, "fail" reports it.
    """
    with config.scope(enable_x64=True):
        wide = tree.map(_widened, tuple(args))
        _check_order(f, wide, order, tuple(modes), directions, (rtol, atol), kinks, seed)


def _widened(x: Any) -> Any:
    dtype = aval_of(x).dtype
    if dt.is_floating(dtype):
        return Array(to_numpy(x).astype(np.float64))
    return Array(to_numpy(x).astype(np.complex128)) if dt.is_complex(dtype) else x


def _check_order(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int,
    modes: tuple[str, ...],
    directions: int,
    limits: tuple[float, float],
    kinks: str,
    seed: int,
) -> None:
    flat, primals = _flat(f, args)
    rng = np.random.default_rng(seed)
    for _ in range(directions if primals else 0):
        v = [_direction(rng, p) for p in primals]
        numeric = _differences(flat, primals, v)
        if numeric is None:
            assert kinks == "skip", "one-sided differences disagree: a kink"
            continue
        outs, forward = jvp(flat, primals, v)
        if "fwd" in modes:
            for got, want in zip(forward, numeric, strict=True):
                np.testing.assert_allclose(to_numpy(got), want, *limits, err_msg="forward mode")
        if "rev" in modes:
            u = [_direction(rng, o) for o in outs]
            _, pull = vjp(flat, *primals)
            left, right = _pairing(u, numeric), _pairing(list(pull(u)), v)
            np.testing.assert_allclose(right, left, *limits, err_msg="reverse mode")
    if order > 1 and primals:
        v = [_direction(rng, p) for p in primals]
        if "fwd" in modes:
            again: Callable[..., Any] = lambda *xs: jvp(flat, xs, v)[1]  # noqa: E731
            _check_order(again, primals, order - 1, modes, directions, limits, kinks, seed + 1)
        if "rev" in modes:
            u = [_direction(rng, o) for o in flat(*primals)]
            back: Callable[..., Any] = lambda *xs: vjp(flat, *xs)[1](u)  # noqa: E731
            _check_order(back, primals, order - 1, modes, directions, limits, kinks, seed + 2)


def check_vmap(
    f: Callable[..., Any],
    args: Sequence[Any],
    *,
    size: int = 3,
    rtol: float | None = None,
    seed: int = 0,
) -> None:
    """`vmap(f)` over stacked copies of `args`, the floating ones disturbed, against a loop."""
    rng = np.random.default_rng(seed)
    rows = [tree.map(lambda x: _disturbed(rng, x), tuple(args)) for _ in range(size)]
    stacked = tree.map(lambda *xs: Array(np.stack([x.data for x in xs])), *rows)
    mapped = vmap(f)(*stacked)
    looped = [f(*row) for row in rows]
    together = tree.map(lambda *xs: Array(np.stack([to_raw(x) for x in xs])), *looped)
    assert_close(mapped, together, "vmap against a loop", rtol)


def _disturbed(rng: np.random.Generator, x: Any) -> Array:
    data = to_raw(x)
    if not dt.is_floating(data.dtype):
        return Array(data)
    return Array(np.asarray(data + 0.01 * rng.standard_normal(data.shape)).astype(data.dtype))


def check_jit(
    f: Callable[..., Any],
    args: Sequence[Any],
    *,
    backends: Sequence[str] = ("interp", "cpu"),
    rtol: float | None = None,
    atol: float | None = None,
    rewrites: str | Sequence[Any] | None = None,
    interpret: bool = False,
    rounding: bool = False,
) -> None:
    """`jit(f)` on each backend against eager evaluation.

    "interp" evaluates the traced program primitive by primitive, "cpu" compiles it for the backend
    in force, the name of another backend for that; no kernel may have been rejected by its
    verification. Eager evaluation compiles the bodies of loops and jitted
    functions within, or, with `interpret`, nothing. With `rounding` an array's elements may differ
    by twice what any of them does in eager evaluation that is in float32 throughout: compiled code
    rounds to 16 bits less often.

    `rewrites="all"` also compares the program that the whole search finds with float64.
    `rewrites="each"` does that, and before it tries every rule that fires by itself, taking its
    results wherever they can be taken: the error names the rule. A sequence of rules tries those.

    >>> import lumjax.numpy as jnp
    >>> check_jit(lambda x: jnp.sum(x * 1.0 + 2.0), (jnp.arange(4.0),), rewrites="each")
    """
    with config.scope(interpret=interpret or config.interpret):
        want = f(*args)
        wider = f(*map(_in_float32, args)) if rounding else want
    for backend in backends:
        jitted: Any = jit(f)
        compiled_for = config.backend if backend in ("interp", "cpu") else backend
        with config.scope(interpret=backend == "interp", backend=compiled_for):
            got = jitted(*args)
            if backend != "interp":
                refuse_rejected(jitted.program(*args).executable(), f"jit on {backend}")
        if rounding:
            got = tree.map(_allowed, got, want, wider)
        assert_close(got, want, f"jit on {backend} against eager", rtol, atol)
    if isinstance(rewrites, str) and rewrites not in ("each", "all"):
        raise ArgumentValueError(
            operation="check_jit",
            required="rewrites to be 'each', 'all' or a sequence of rules",
            got=repr(rewrites),
            fix="pass one of them",
        )
    if rewrites is not None and rewrites != "all":
        rules = None if isinstance(rewrites, str) else rewrites
        check_rewrites(f, args, rules, rtol=rtol, atol=atol)
    if isinstance(rewrites, str):
        outs = tree.leaves(jit(f)(*args))
        Judge(f, args, rtol, atol).check(outs, "all rules together")


def _in_float32(x: Any) -> Any:
    dtype = aval_of(x).dtype
    return Array(to_raw(x).astype(np.float32)) if dtype in (dt.float16, dt.bfloat16) else x


def _allowed(got: Any, want: Any, wider: Any) -> Any:
    """What was got, but what was wanted where that explains the difference."""
    data, target = to_raw(got), to_raw(want)
    if not dt.is_inexact(data.dtype) or data.shape != target.shape:
        return got
    x, y, z = (to_numpy(v).astype(np.complex128) for v in (got, want, wider))
    with np.errstate(all="ignore"):
        apart = np.abs(z - y)
        explained = np.abs(x - y) <= 2 * np.max(apart, initial=0.0, where=np.isfinite(apart))
    return Array(np.asarray(np.where(explained, target.astype(data.dtype), data)))


def check_linearity(f: Callable[..., Any], args: Sequence[Any], *, seed: int = 0) -> None:
    """f(a x + b y) equals a f(x) + b f(y) for a function that claims to be linear."""
    rng = np.random.default_rng(seed)
    flat, xs = _flat(f, args)
    ys = [_direction(rng, x) for x in xs]
    mixed = [
        Array(np.asarray(2 * to_raw(x) - 3 * to_raw(y)).astype(to_raw(x).dtype))
        for x, y in zip(xs, ys, strict=True)
    ]
    for got, a, b in zip(flat(*mixed), flat(*xs), flat(*ys), strict=True):
        want = Array(np.asarray(2 * to_raw(a) - 3 * to_raw(b)).astype(to_raw(a).dtype))
        assert_close(got, want, "linearity", atol=1e-4)


def check_deterministic(f: Callable[..., Any], args: Sequence[Any], *, n: int = 3) -> None:
    """`n` runs give the same bits."""
    first = [to_raw(x).tobytes() for x in tree.leaves(f(*args))]
    for _ in range(n - 1):
        again = [to_raw(x).tobytes() for x in tree.leaves(f(*args))]
        assert again == first, "two runs differ"


def check_remat(
    f: Callable[..., Any], args: Sequence[Any], *, policy: Any = None, seed: int = 0
) -> None:
    """`checkpoint(f)` has f's values and cotangents, eagerly and compiled: recomputing what the
    backward pass needs changes nothing. `policy` says what is kept (`checkpoint_policies`).

    >>> check_remat(lambda x: x * x, (np.float32(2.0),))
    """
    flat, primals = _flat(f, args)
    rng = np.random.default_rng(seed)

    def pulled(run: Callable[..., list[Any]]) -> Callable[..., Any]:
        def both(*xs: Any) -> Any:
            outs, pull = vjp(run, *xs)
            return outs, pull(cts)

        return both

    cts = [_direction(rng, x) for x in flat(*primals)]
    wanted = tree.leaves(pulled(flat)(*primals))
    again = pulled(checkpoint(flat, policy=policy))
    for what, run in (("eagerly", again), ("compiled", jit(again))):
        for x, y in zip(tree.leaves(run(*primals)), wanted, strict=True):
            assert_close(x, y, f"checkpointed {what}")


def ulp_error(y: Any, reference: Any) -> NDArray:
    """|y - reference| in units of the last place of y's dtype; `reference` is float64.

    Equal infinities and NaNs count as 0, different ones as infinity.

    >>> float(ulp_error(np.float32(1.0), np.float64(1.0)))
    0.0
    """
    got = np.asarray(to_raw(y) if isinstance(y, Array) else y)
    want = np.asarray(reference, np.float64)
    rounded = want.astype(got.dtype)
    with np.errstate(all="ignore"):
        spacing = np.abs(np.spacing(np.where(np.isfinite(rounded), rounded, 1).astype(got.dtype)))
        error = np.abs(got.astype(np.float64) - want) / spacing.astype(np.float64)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    strange = ~np.isfinite(got.astype(np.float64)) | ~np.isfinite(rounded.astype(np.float64))
    return np.where(same & strange, 0.0, np.where(strange, np.inf, error))
