"""A handful of primitives, so that the tests of trace/ need no operation of the package."""

from __future__ import annotations

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import ShapeError
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Effect, Jaxpr, Primitive, eval_jaxpr
from lumjax.trace.dim import same_shape
from lumjax.trace.form import Barrier, Expand, Map, Opaque, ScalarOp


def f32(*shape, weak=False):
    return ShapedArray(shape, dt.float32, weak)


def i32(*shape, weak=False):
    return ShapedArray(shape, dt.int32, weak)


def _same_aval(*avals, **_):
    first = avals[0]
    if any(not same_shape(a.shape, first.shape) or a.dtype != first.dtype for a in avals):
        raise ShapeError(
            operation="op", required="equal operands", got=", ".join(map(str, avals)), fix="cast"
        )
    return (ShapedArray(first.shape, first.dtype, all(a.weak for a in avals)),)


def _elementwise(name, f, **more):
    op = ScalarOp(name, 1, f)

    def batch(axis, args, dims, **params):
        """Operands that are not mapped are repeated along a new leading axis."""
        moved = [
            spread(a, size=axis.size) if d is None else (a if d == 0 else front(a, axis=d))
            for a, d in zip(args, dims, strict=True)
        ]
        return prim.bind(*moved, **params), (0,)

    prim = Primitive(
        name,
        aval=_same_aval,
        eval=lambda *xs, **_: (np.asarray(f(*xs), xs[0].dtype),),
        form=lambda *a, **_: Map(op),
        batch=batch,
        **more,
    )
    return prim


sin_p = _elementwise("sin", np.sin)
add_p = _elementwise("add", np.add)
mul_p = _elementwise("mul", np.multiply)
scale_p = Primitive(
    "scale",
    aval=_same_aval,
    eval=lambda x, factor: (np.asarray(x * x.dtype.type(factor), x.dtype),),
    form=lambda *a, **_: Map(ScalarOp("scale", 1, np.multiply)),
)
iota_p = Primitive(
    "iota",
    aval=lambda *, n: (f32(n),),
    eval=lambda *, n: (np.arange(n, dtype=np.float32),),
    form=lambda *a, **_: Opaque("a test"),
)
total_p = Primitive(
    "total",
    aval=lambda a: (ShapedArray((), a.dtype),),
    eval=lambda x: (x.sum(),),
    form=lambda *a, **_: Opaque("a test"),
)
split_p = Primitive(
    "split",
    aval=lambda a: (ShapedArray((), a.dtype), a),
    eval=lambda x: (x.sum(), x),
    form=lambda *a, **_: Opaque("a test"),
)
weak_p = Primitive(
    "weak",
    aval=lambda a, *, weak: (ShapedArray(a.shape, a.dtype, weak),),
    eval=lambda x, *, weak: (x,),
    form=lambda *a, **_: Opaque("a test"),
)
barrier_p = Primitive(
    "barrier", aval=_same_aval, eval=lambda x, **_: (x,), form=lambda *a, **p: Barrier(p["id"])
)
failing_p = Primitive(
    "failing",
    aval=_same_aval,
    eval=lambda x: _same_aval(f32(1), f32(2)),
    form=lambda *a, **_: Opaque("a test"),
)
printed: list[float] = []
print_p = Primitive(
    "print",
    aval=lambda a: (),
    eval=lambda x: printed.append(float(x)) or (),
    form=lambda *a, **_: Opaque("an effect"),
    effect=Effect.ORDERED,
)
call_p = Primitive(
    "call",
    aval=lambda *a, jaxpr: jaxpr.out_avals,
    eval=lambda *xs, jaxpr: tuple(np.asarray(o.data) for o in eval_jaxpr(jaxpr, xs)),
    form=lambda *a, **_: Expand(),
)
switch_p = Primitive(
    "switch",
    aval=lambda *a, branches: branches[0].out_avals,
    eval=lambda i, *xs, branches: tuple(o.data for o in eval_jaxpr(branches[int(i)], xs)),
    form=lambda *a, **_: Expand(),
)
spread_p = Primitive(
    "spread",
    aval=lambda a, *, size: (a.with_shape((size, *a.shape)),),
    eval=lambda x, *, size: (np.broadcast_to(x, (size, *x.shape)),),
    form=lambda *a, **_: Opaque("a test"),
    batch=lambda axis, args, dims, *, size: (
        spread_p.bind(front(args[0], axis=dims[0]), size=size),
        (1,),
    ),
)
front_p = Primitive(
    "front",
    aval=lambda a, *, axis: (a.with_shape((a.shape[axis], *a.shape[:axis], *a.shape[axis + 1 :])),),
    eval=lambda x, *, axis: (np.moveaxis(x, axis, 0),),
    form=lambda *a, **_: Opaque("a test"),
)
psum_p = Primitive(
    "psum",
    aval=lambda a, *, axis_name: (a,),
    eval=lambda x, *, axis_name: (x,),
    form=lambda *a, **_: Opaque("a test"),
    batch=lambda axis, args, dims, *, axis_name: (
        (total_p.bind(*args), (None,))
        if dims[0] is not None
        else (scale_p.bind(args[0], factor=axis.size), (None,))
    ),
)


def spread(x, size):
    return spread_p.bind(x, size=size)[0]


def front(x, axis):
    return front_p.bind(x, axis=axis)[0]


def sin(x):
    return sin_p.bind(x)[0]


def add(x, y):
    return add_p.bind(x, y)[0]


def mul(x, y):
    return mul_p.bind(x, y)[0]


def call(staged, *args):
    """Bind a staged function with its constants as leading operands."""
    jaxpr = staged.jaxpr
    closed = Jaxpr(jaxpr.inputs, jaxpr.eqns, jaxpr.outputs)
    return call_p.bind(*staged.consts, *args, jaxpr=closed)
