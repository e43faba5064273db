"""What the tests of control flow share: a jit that stages and binds `call_p`, and comparisons with trees."""

from __future__ import annotations

import functools

import numpy as np

from lumjax import tree
from lumjax.control.call import call
from lumjax.control.staging import flatten_values, stage_tree
from lumjax.grad.reverse import grad
from lumjax.trace.array import Array
from lumjax.trace.batch import MappedAxis, batch
from lumjax.trace.core import aval_of
from lumjax.ops.layout import batch_first


def jit(f):
    """Stage `f` and call the result, as the compiler's jit does inside a transformation."""

    @functools.wraps(f)
    def wrapped(*args):
        leaves, in_tree = flatten_values(args)
        callee = stage_tree(f, in_tree, [aval_of(x) for x in leaves])
        outs = call(callee.jaxpr, (*callee.consts, *leaves), getattr(f, "__name__", "f"))
        return tree.unflatten(callee.out_tree, outs)

    return wrapped


def vmap(f, in_axes=0):
    """Map `f` over axis 0 of all arguments, or of those whose entry of `in_axes` is not None."""

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

        pairs = batch(flat, MappedAxis(size), leaves, dims)
        return tree.unflatten(trees[0], [batch_first(v, d, size) for v, d in pairs])

    return wrapped


def numbers(x):
    """A tree of arrays as a tree of NumPy arrays."""
    return tree.map(lambda leaf: leaf.data if isinstance(leaf, Array) else np.asarray(leaf), x)


def close(found, expected, tolerance=1e-5):
    """Assert that two trees agree in structure and values."""
    found, expected = numbers(found), numbers(expected)
    assert tree.structure(found) == tree.structure(expected)
    for a, b in zip(tree.leaves(found), tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


__all__ = ["close", "grad", "jit", "numbers", "vmap"]
