"""The same names over lumjax, over plain Python loops, and over JAX: one program for all three."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import numpy as np

import lumjax.ops as ops
from lumjax import tree
from lumjax.control import scan as loops
from lumjax.control.call import call
from lumjax.control.checkpoint import checkpoint
from lumjax.control.cond import cond, switch
from lumjax.control.custom import custom_jvp, custom_vjp
from lumjax.control.staging import flatten_values, stage_tree
from lumjax.grad.forward import jvp
from lumjax.grad.reverse import grad
from lumjax.ops.layout import batch_first
from lumjax.trace.array import Array
from lumjax.trace.batch import MappedAxis, batch
from lumjax.trace.core import aval_of


def jit(f):
    """Stage `f` and call the result, as the compiler's jit does inside a transformation."""

    @functools.wraps(f)
    def wrapped(*args):
        leaves, in_tree = flatten_values(args)
        callee = stage_tree(f, in_tree, [aval_of(x) for x in leaves])
        outs = call(callee.jaxpr, (*callee.consts, *leaves), "f")
        return tree.unflatten(callee.out_tree, outs)

    return wrapped


def vmap(f, in_axes=0, axis_name=None):
    """Map `f` over the first axis of the arguments whose entry of `in_axes` is not None."""

    def wrapped(*args):
        axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
        leaves, in_tree = flatten_values(args)
        dims = [a for a, x in zip(axes, args, strict=True) for _ in tree.leaves(x)]
        size = next(aval_of(x).shape[d] for x, d in zip(leaves, dims, strict=True) if d is not None)
        trees = []

        def flat(*xs):
            outs, out_tree = flatten_values(f(*tree.unflatten(in_tree, xs)))
            trees.append(out_tree)
            return outs

        pairs = batch(flat, MappedAxis(size, axis_name), leaves, dims)
        return tree.unflatten(trees[0], [batch_first(v, d, size) for v, d in pairs])

    return wrapped


def total(x):
    """The sum of all elements."""
    return ops.reduce_sum(x, tuple(range(aval_of(x).ndim)))


def stack(xs):
    """Arrays as the rows of one."""
    return ops.concatenate([ops.reshape(x, (1, *aval_of(x).shape)) for x in xs], 0)


def at(x, k):
    """Row k of an array."""
    x = ops.asvalue(x)
    shape = aval_of(x).shape
    row = ops.slice(x, (k, *[0] * (len(shape) - 1)), (k + 1, *shape[1:]))
    return ops.reshape(row, shape[1:])


common = {
    "grad": grad, "jit": jit, "vmap": vmap, "jvp": jvp, "sum": total, "stack": stack, "at": at,
    "sin": ops.sin, "cos": ops.cos, "exp": ops.exp, "log": ops.log, "tanh": ops.tanh,
    "sqrt": ops.sqrt, "dot": ops.dot, "where": ops.select, "array": ops.asvalue,
}  # fmt: skip
real = SimpleNamespace(
    **common,
    scan=loops.scan, map=loops.map, while_loop=loops.while_loop, fori_loop=loops.fori_loop,
    cond=cond, switch=switch, checkpoint=checkpoint, custom_jvp=custom_jvp, custom_vjp=custom_vjp,
)  # fmt: skip


# ---- plain Python loops


def plain_scan(f, init, xs=None, length=None, reverse=False, unroll=1):
    leaves = tree.leaves(xs)
    length = aval_of(leaves[0]).shape[0] if leaves else length
    carry, ys = init, [None] * length
    for k in reversed(range(length)) if reverse else range(length):
        carry, ys[k] = f(carry, tree.map(lambda x: at(x, k), xs))
    return carry, tree.map(lambda *rows: stack([ops.asvalue(r) for r in rows]), *ys) if ys else None


def plain_select(index, functions, operands):
    results = [f(*operands) for f in functions]
    out = results[0]
    for k, result in enumerate(results[1:], start=1):
        out = tree.map(lambda a, b: ops.select(ops.eq(index, k), b, a), out, result)
    return out


def plain_fori(lower, upper, f, val, unroll=None):
    """Four steps at most where the bound is traced."""
    if isinstance(upper, int):
        for i in range(lower, upper):
            val = f(i, val)
        return val
    for i in range(4):
        val = tree.map(lambda new, old, i=i: ops.select(ops.lt(i, upper), new, old), f(i, val), val)
    return val


def plain_while(test, f, val):
    """Six steps at most, each lane keeping its value once it has stopped."""
    for _ in range(6):
        val = tree.map(lambda new, old: ops.select(test(val), new, old), f(val), val)
    return val


plain = SimpleNamespace(
    **{**common, "jit": lambda f: f},
    scan=plain_scan,
    map=lambda f, xs, batch_size=None: plain_scan(lambda _, x: (None, f(x)), None, xs)[1],
    while_loop=plain_while,
    fori_loop=plain_fori,
    cond=lambda p, f, g, *xs: plain_select(ops.cast(p, np.int32), (g, f), xs),
    switch=lambda i, fs, *xs: plain_select(ops.clamp(0, i, len(fs) - 1), fs, xs),
    checkpoint=lambda f, **_: f,
    custom_jvp=custom_jvp,
    custom_vjp=custom_vjp,
)


# ---- JAX


def jax_world():
    """JAX under the same names."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    return SimpleNamespace(
        grad=jax.grad, jit=lambda f: f, vmap=jax.vmap, jvp=jax.jvp, sum=jnp.sum, stack=jnp.stack,
        at=lambda x, k: x[k], sin=jnp.sin, cos=jnp.cos, exp=jnp.exp, log=jnp.log, tanh=jnp.tanh,
        sqrt=jnp.sqrt, dot=jnp.dot, where=jnp.where, array=jnp.asarray, scan=lax.scan, map=lax.map,
        while_loop=lax.while_loop, fori_loop=lax.fori_loop, cond=lax.cond, switch=lax.switch,
        checkpoint=jax.checkpoint, custom_jvp=jax.custom_jvp, custom_vjp=jax.custom_vjp,
    )  # fmt: skip


# ---- comparing


def numbers(x):
    """A tree of arrays as a tree of NumPy arrays."""
    return tree.map(lambda leaf: leaf.data if isinstance(leaf, Array) else np.asarray(leaf), x)


def close(found, expected, tolerance=1e-9):
    """Assert that two trees agree in structure and values."""
    found, expected = tree.leaves(numbers(found)), tree.leaves(numbers(expected))
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
