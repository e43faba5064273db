"""The meaning of a Form in plain NumPy, read from its maps alone: `eval` must agree with it."""

from __future__ import annotations

from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.trace import dim as dm
from lumjax.trace.aval import ShapedArray
from lumjax.trace.form import (
    Barrier,
    Contract,
    Cumulate,
    Form,
    Gather,
    GatherMode,
    Iota,
    Move,
    Order,
    Reduce,
    ReduceOp,
    Scatter,
    Size,
    Update,
)

_REDUCTIONS = {
    ReduceOp.SUM: np.add,
    ReduceOp.PROD: np.multiply,
    ReduceOp.MAX: np.maximum,
    ReduceOp.MIN: np.minimum,
    ReduceOp.AND: np.bitwise_and,
    ReduceOp.OR: np.bitwise_or,
    ReduceOp.XOR: np.bitwise_xor,
}


def read(x: np.ndarray, index: np.ndarray, mask: np.ndarray, fill: Any) -> np.ndarray:
    """x.flat[index] where mask, else fill."""
    if x.size == 0:
        assert not mask.any()
        return np.full(index.shape, fill, x.dtype)
    assert ((index >= 0) & (index < x.size))[mask].all()
    flat = np.ascontiguousarray(x).reshape(-1)
    out = flat[np.where(mask, index, 0)]
    return np.where(mask, out, np.asarray(fill, x.dtype)) if not mask.all() else out


def move(form: Move, arrays: list[np.ndarray]) -> np.ndarray:
    values = {name: int(arrays[k]) for name, k in form.scalars}
    parts = [(x, *m.evaluate(x.shape, values)) for x, m in zip(arrays, form.maps, strict=False)]
    out = np.zeros(parts[0][1].shape, parts[0][0].dtype)
    done = np.zeros(out.shape, bool)
    for x, index, mask in parts:
        now = mask & ~done
        zero = np.zeros((), x.dtype)
        found = (
            read(x, index, mask, zero)
            if x.dtype.kind != "V" or mask.all()
            else x.reshape(-1)[index]
        )
        out[now] = found[now]
        done |= now
    assert done.all(), "the maps do not cover the output"
    return out


def contract(form: Contract, arrays: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    wide = np.complex128 if dtype.kind == "c" else np.int64 if dtype.kind in "iu" else np.float64
    lhs, rhs = (
        read(x, *m.evaluate(x.shape), 0).astype(wide)
        for x, m in zip(arrays, (form.lhs, form.rhs), strict=True)
    )
    axes = tuple(range(lhs.ndim - form.reduced, lhs.ndim))
    return np.sum(lhs * rhs, axis=axes).astype(dtype)


def gather(form: Gather, arrays: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    operand, indices = arrays
    shape = form.operand.domain
    grid: dict[str, Any] = {f"d{k}": a for k, a in enumerate(np.indices(shape, sparse=True))}
    legal = np.ones(shape, bool)
    for name, m, (lo, hi) in zip(form.symbols, form.index_maps, form.bounds, strict=True):
        wanted = read(indices, *m.evaluate(indices.shape), 0).astype(np.int64)
        legal &= (wanted >= lo) & (wanted <= hi)
        grid[name] = np.clip(wanted, lo, hi)
    index = np.broadcast_to(dm.evaluate(form.operand.offset(operand.shape), grid), shape)
    everywhere = np.ones(shape, bool)
    out = read(operand, index, everywhere, 0)
    if form.mode is GatherMode.FILL:
        out = np.where(legal, out, np.asarray(form.fill).astype(dtype))
    return out


def scatter(form: Scatter, arrays: list[np.ndarray]) -> np.ndarray:
    operand, indices, updates = arrays
    shape = form.update.domain
    grid: dict[str, Any] = {f"d{k}": a for k, a in enumerate(np.indices(shape, sparse=True))}
    hit = np.ones(shape, bool)
    for name, m, (lo, hi) in zip(form.symbols, form.index_maps, form.bounds, strict=True):
        wanted = read(indices, *m.evaluate(indices.shape), 0).astype(np.int64)
        hit &= form.clip | ((wanted >= lo) & (wanted <= hi))
        grid[name] = np.clip(wanted, lo, hi)
    hit &= np.broadcast_to(dm.evaluate(form.update.valid, grid), shape) != 0
    index = np.broadcast_to(dm.evaluate(form.update.offset(updates.shape), grid), shape)
    found = read(updates, index, hit, 0)
    if form.op is not None:
        with np.errstate(all="ignore"):
            found = form.op.numpy(operand, found).astype(operand.dtype)
    return np.where(hit, found, operand)


def update(form: Update, arrays: list[np.ndarray]) -> np.ndarray:
    operand, indices, updates = arrays
    out = operand.astype(form.dtype)
    for place in np.ndindex(updates.shape):
        grid: dict[str, Any] = {f"d{k}": n for k, n in enumerate(place)}
        legal = True
        for name, m, (lo, hi) in zip(form.symbols, form.index_maps, form.bounds, strict=True):
            at = tuple(int(dm.evaluate(c, grid)) for c in m.coords)
            wanted = int(indices[at])
            legal &= form.clip or lo <= wanted <= hi
            grid = {**grid, name: min(max(wanted, lo), hi)}
        if legal:
            at = tuple(int(dm.evaluate(c, grid)) for c in form.target.coords)
            new = updates[place].astype(form.dtype)
            with np.errstate(all="ignore"):
                out[at] = new if form.op is None else form.op.numpy(out[at], new)
    return out.astype(operand.dtype)


def cumulate(form: Cumulate, x: np.ndarray) -> np.ndarray:
    carry: Any = form.dtype.type(form.start)
    out = np.empty(x.shape, x.dtype)
    source, target = np.moveaxis(x, form.axis, 0), np.moveaxis(out, form.axis, 0)
    steps = range(len(source))
    for k in reversed(steps) if form.reverse else steps:
        with np.errstate(all="ignore"):
            carry = form.op.numpy(carry, source[k].astype(form.dtype))
        target[k] = carry
    return out


def order(form: Order, arrays: list[np.ndarray]) -> list[np.ndarray]:
    moved = [np.moveaxis(a, form.axis, -1) for a in arrays]
    places = np.empty(moved[0].shape, np.int32)
    for row in np.ndindex(moved[0].shape[:-1]):

        def key(k: int, row: Any = row) -> tuple[Any, ...]:
            found: list[Any] = []
            for x in moved[: form.keys]:
                v = x[row][k].item() if x.dtype.kind != "V" else float(x[row][k])
                for part in (v.real, v.imag) if isinstance(v, complex) else (v,):
                    if form.descending:
                        found += [part == part, 0 if part != part else -part]
                    else:
                        found += [part != part, 0 if part != part else part]
            return tuple(found)

        places[row] = sorted(range(moved[0].shape[-1]), key=key)
    places = places[..., : form.take]
    outs = [np.take_along_axis(x, places, -1) for x in moved] + [places] * form.places
    return [np.moveaxis(x, -1, form.axis) for x in outs]


def interpret(form: Form, arrays: list[np.ndarray], out: ShapedArray) -> Any:
    """The output that the form describes, or all of them; None for Map, Expand, Opaque."""
    match form:
        case Move():
            return move(form, arrays)
        case Contract():
            return contract(form, arrays, out.dtype)
        case Gather():
            return gather(form, arrays, out.dtype)
        case Scatter():
            return scatter(form, arrays)
        case Update():
            return update(form, arrays)
        case Cumulate():
            return cumulate(form, arrays[0])
        case Order():
            return order(form, arrays)
        case Reduce(op=op, axes=axes):
            (x,) = arrays
            options = (
                {"initial": -np.inf if op is ReduceOp.MAX else np.inf}
                if x.size == 0 and op in (ReduceOp.MAX, ReduceOp.MIN)
                else {}
            )
            with np.errstate(all="ignore"):
                wide = x.astype(dt.accumulation_dtype(x.dtype))
                return np.asarray(_REDUCTIONS[op].reduce(wide, axis=axes, **options)).astype(
                    out.dtype
                )
        case Size(dim=dim):
            return np.asarray(dim, out.dtype)
        case Iota(axis=axis):
            return np.indices(out.shape)[axis].astype(out.dtype)
        case Barrier():
            return arrays[0]
        case _:
            return None
