"""numpy's names over lumjax's operations: one test function runs on these and on jax.numpy."""

from types import SimpleNamespace

from lumjax.ops import (
    arithmetic,
    compare,
    contract,
    cumulative,
    elementwise,
    layout,
    reduce,
    transcendental,
    view,
)
from lumjax.trace.core import aval_of


def _reduction(f):
    def reduced(x, axis=None):
        return f(x, axis if axis is None or isinstance(axis, tuple) else (axis,))

    return reduced


ops = SimpleNamespace(
    add=elementwise.add,
    subtract=elementwise.sub,
    multiply=elementwise.mul,
    negative=elementwise.neg,
    where=elementwise.select,
    sin=elementwise.sin,
    cos=elementwise.cos,
    divide=arithmetic.div,
    maximum=arithmetic.max,
    minimum=arithmetic.min,
    abs=arithmetic.abs,
    sqrt=arithmetic.sqrt,
    square=arithmetic.square,
    sign=arithmetic.sign,
    exp=transcendental.exp,
    log=transcendental.log,
    log1p=transcendental.log1p,
    tanh=transcendental.tanh,
    power=transcendental.pow,
    greater=compare.gt,
    less=compare.lt,
    greater_equal=compare.ge,
    logical_and=compare.and_,
    sum=_reduction(layout.reduce_sum),
    max=_reduction(
        lambda x, axes: reduce.reduce_max(x, range(aval_of(x).ndim) if axes is None else axes)
    ),
    prod=_reduction(
        lambda x, axes: reduce.reduce_prod(x, range(aval_of(x).ndim) if axes is None else axes)
    ),
    cumsum=lambda x: cumulative.cumsum(x, 0),
    cumprod=lambda x: cumulative.cumprod(x, 0),
    dot=contract.dot,
    reshape=layout.reshape,
    transpose=layout.transpose,
    flip=lambda x, axis: layout.rev(x, (axis,)),
    concatenate=lambda xs: view.concatenate(xs, 0),
    take=lambda x, k: layout.squeeze(view.slice(x, (k,), (k + 1,)), (0,)),
)
