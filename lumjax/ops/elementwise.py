"""Elementwise operations: how a record is made, promotion and broadcasting, and arithmetic itself.

`unary` and `binary` turn a NumPy function and a derivative into a record and its public wrapper.
The wrapper
promotes and broadcasts as NumPy does; the record itself requires operands of one shape and one
dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import (
    ArgumentTypeError,
    DTypeError,
    ScalarRangeError,
    ShapeError,
)
from lumjax.ops import numerics
from lumjax.ops.layout import broadcast_in_dim, broadcast_in_dim_p
from lumjax.ops.narrowing import narrowed
from lumjax.ops.record import (
    ANY,
    INEXACT,
    NUMBERS,
    NUMERIC,
    Accepts,
    JvpResult,
    NDArray,
    Shape,
    aval_rule,
    batch_rule,
    check_shapes,
    form_rule,
    quiet,
    same_dtype,
    sample_avals,
    widened,
)
from lumjax.ops.size import dim_value
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Linear, Primitive, Sample, Tracer, Value, aval_of
from lumjax.trace.dim import Dim, Expr, same, same_shape
from lumjax.trace.form import Expand, Form, Map, Opaque, ScalarOp, Trait

Unary: TypeAlias = Callable[[Value], Value]
Binary: TypeAlias = Callable[[Value, Value], Value]


def asvalue(x: Value, operation: str = "array argument") -> Value:
    """`x` as an Array or Tracer; Python scalars become weak arrays, NumPy arrays are copied. Lists
    raise.
    """
    if isinstance(x, (Array, Tracer)):
        return x
    if isinstance(x, (np.ndarray, np.generic)):
        return Array(narrowed(np.asarray(x), operation))
    if isinstance(x, (bool, int, float, complex)):
        aval = aval_of(x)
        return Array(_scalar(x, aval.dtype, operation), aval.weak)
    if isinstance(x, Expr):
        return dim_value(x)
    if hasattr(x, "__jax_array__"):
        return asvalue(x.__jax_array__(), operation)
    raise ArgumentTypeError(
        operation=operation,
        required="arrays or numbers",
        got=f"a {type(x).__name__}",
        fix="convert it with jnp.asarray first, or mark the argument static if it is not data",
    )


def _scalar(x: complex, dtype: dt.DType, operation: str) -> NDArray:
    """A Python scalar in a dtype; integers must fit it."""
    try:
        return quiet.run(np.asarray, x, dtype)
    except OverflowError:
        raise ScalarRangeError(
            operation=operation,
            required=f"Python numbers that fit {dtype}",
            got=str(x),
            fix="use a wider dtype (64-bit types need enable_x64) or a float",
        ) from None


def promote_values(*values: Value, operation: str = "type promotion") -> list[Value]:
    """The values as Arrays or Tracers of one dtype, by JAX's promotion lattice; Python scalars are
    weak.
    """
    pairs = [_pair(v, operation) for v in values]
    if all(p[0] == pairs[0][0] for p in pairs) and all(
        isinstance(v, (Array, Tracer)) for v in values
    ):
        return list(values)
    dtype, weak = dt.promote(*pairs)
    return [convert(v, p, dtype, weak, operation) for v, p in zip(values, pairs, strict=True)]


def _pair(x: Value, operation: str) -> tuple[dt.DType, bool]:
    """The dtype and weakness of an argument; raises for what is not an array."""
    if isinstance(x, (Array, Tracer, bool, int, float, complex)):
        aval = aval_of(x)
    else:
        aval = aval_of(asvalue(x, operation))
    return aval.dtype, aval.weak


def convert(
    x: Value, pair: tuple[dt.DType, bool], dtype: dt.DType, weak: bool, operation: str
) -> Value:
    """`x`, whose dtype and weakness are `pair`, in `dtype`; weak if the promoted type is."""
    if isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic):
        return Array(_scalar(x, dtype, operation), pair[1] or weak)
    x = asvalue(x, operation)
    return x if pair[0] == dtype and (pair[1] or not weak) else cast(x, dtype, weak)


_PYTHON = frozenset({int, float})


def _beside(number: float, x: Array | Tracer, operation: str) -> Value:
    """A Python number with the shape and dtype of x, if promotion leaves x as it is: the short
    way for what most programs do most.
    """
    aval = x.aval
    if aval.dtype not in (INEXACT if type(number) is float else NUMBERS).dtypes:
        return number
    if aval.weak and aval.dtype != dt.scalar_dtype(number):
        return number  # of two weak operands the wider wins
    scalar = Array(_scalar(number, aval.dtype, operation), True)
    if not aval.shape:
        return scalar
    return broadcast_in_dim_p.bind(scalar, shape=aval.shape, broadcast_dimensions=())[0]


_BROADCASTING = "Incompatible shapes for broadcasting"  # in JAX's words


def broadcast_shapes(*shapes: Shape, operation: str = _BROADCASTING) -> Shape:
    """The shape that NumPy broadcasting gives; a literal 1 yields to any size."""
    rank = len(sorted(shapes, key=len)[-1])
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    result: list[Dim] = []
    for sizes in zip(*padded, strict=True):
        size = next((n for n in sizes if not same(n, 1)), 1)
        if not all(same(n, 1) or same(n, size) for n in sizes):
            raise ShapeError(
                operation=operation,
                required="shapes that broadcast: equal sizes, or 1, counted from the last axis",
                got=" and ".join(f"({', '.join(map(str, s))})" for s in shapes),
                fix="reshape or transpose an operand so that the axes line up",
            )
        result.append(size)
    return tuple(result)


def broadcast_values(*values: Value, operation: str = _BROADCASTING) -> list[Value]:
    """The values broadcast to one shape."""
    shapes = [aval_of(v).shape for v in values]
    if all(same_shape(s, shapes[0]) for s in shapes[1:]):
        return list(values)
    shape = broadcast_shapes(*shapes, operation=operation)
    rank = len(shape)
    return [
        v if same_shape(s, shape) else broadcast_in_dim(v, shape, range(rank - len(s), rank))
        for v, s in zip(values, shapes, strict=True)
    ]


def constant(value: complex, like: Value) -> Value:
    """An array of one value with the shape, dtype and weakness of `like`; integers wrap."""
    aval = aval_of(like)
    scalar = Array(np.asarray(value).astype(aval.dtype), aval.weak)
    return broadcast_in_dim(scalar, aval.shape, ()) if aval.ndim else scalar


# ---- records


def jvp_rule(
    bind: Callable[..., tuple[Value, ...]], tangents: Sequence[Callable[..., Value] | None]
) -> Callable[..., JvpResult]:
    """The jvp rule from one function (tangent, *primals, out, **params) -> tangent per operand."""

    def jvp(primals: Sequence[Value], ts: Sequence[Value | None], **params: Any) -> JvpResult:
        (out,) = bind(*primals, **params)
        total = None
        for rule, t in zip(tangents, ts, strict=True):
            if rule is not None and t is not None:
                term = rule(t, *primals, out, **params)
                total = term if total is None else add(total, term)
        return (out,), (total,)

    return jvp


def elementwise(
    name: str,
    arity: int,
    function: Callable[..., Any],
    accepts: Accepts,
    *,
    tangents: Sequence[Callable[..., Value] | None] | None = None,
    transpose: Callable[..., Sequence[Value | None]] | None = None,
    expand: Callable[..., Value] | None = None,
    form: Form | None = None,
    result: Callable[[dt.DType], dt.DType] = same_dtype,
    flops: float = 1.0,
    traits: Iterable[Trait] = (),
    identity: float | None = None,
    jvp: Callable[..., JvpResult] | None = None,
    domain: tuple[float, float] = (-2.0, 2.0),
    settings: Callable[[dt.DType], Iterable[dict[str, Any]]] = lambda _: ({},),
) -> Primitive:
    """A record of an operation whose operands have one shape and dtype.

    `function` computes it on ndarrays. `tangents` has one function per operand, see `jvp_rule`;
    without it the derivative is zero unless `jvp` gives the whole rule. `transpose(ct, *inputs)`
    returns one cotangent per operand. `expand(*values)` is the definition in core primitives;
    `form` overrides Map(op). `domain` is where the tests draw operands from, `settings` gives the
    parameters that they try with operands of a dtype.
    """

    def evaluate(*xs: NDArray, **params: Any) -> tuple[NDArray, ...]:
        return (np.asarray(quiet.run(function, *xs, **params)),)

    def bind(*args: Value, **params: Any) -> tuple[Value, ...]:
        return prim.bind(*args, **params)

    def transposed(
        cts: Sequence[Value | None], inputs: Sequence[Any], **params: Any
    ) -> Sequence[Value | None]:
        if cts[0] is None or transpose is None:
            return (None,) * arity
        return transpose(cts[0], *inputs, **params)

    op = ScalarOp(
        name,
        arity,
        lambda *xs: evaluate(*xs)[0],
        flops=flops,
        traits=frozenset(traits),
        identity=identity,
    )
    prim = Primitive(
        name,
        aval=aval_rule(name, accepts, result),
        eval=evaluate,
        form=form_rule(op, form),
        expand=None if expand is None else lambda *xs, **params: (expand(*xs, **params),),
        jvp=jvp or jvp_rule(bind, tangents or (None,) * arity),
        transpose=None if transpose is None else transposed,
        batch=batch_rule(lambda: prim),
        samples=tuple(
            Sample((ShapedArray(shape, d),) * arity, params, *domain)
            for d in sample_avals(accepts)
            for shape in ((2, 3), ())
            for params in settings(d)
        ),
    )
    return prim


def named(wrapper: Any, name: str, doc: str) -> Any:
    """Give a generated wrapper its name and docstring."""
    wrapper.__name__ = wrapper.__qualname__ = name
    wrapper.__doc__ = doc
    return wrapper


def unary(
    name: str,
    function: Callable[..., Any],
    accepts: Accepts,
    doc: str,
    *,
    tangent: Callable[..., Value] | None = None,
    **rules: Any,
) -> tuple[Primitive, Unary]:
    """The record of a function of one operand, and its wrapper. `tangent(t, x, out)` is the
    derivative.
    """
    prim = elementwise(name, 1, function, accepts, tangents=tangent and (tangent,), **rules)
    bind, dtypes = prim.bind, accepts.dtypes

    def wrapper(x: Value) -> Value:
        if type(x) is Array and x.data.dtype in dtypes:
            return bind(x)[0]
        x = asvalue(x, name)
        accepts.check(name, aval_of(x))
        return bind(x)[0]

    return prim, named(wrapper, name, doc)


def binary(
    name: str, function: Callable[..., Any], accepts: Accepts, doc: str, **rules: Any
) -> tuple[Primitive, Binary]:
    """The record of a function of two operands, and its wrapper, which promotes and broadcasts."""
    prim = elementwise(name, 2, function, accepts, **rules)
    bind, dtypes = prim.bind, accepts.dtypes

    def wrapper(x: Value, y: Value) -> Value:
        if type(x) is Array and type(y) is Array:
            a, b = x.data, y.data
            if a.dtype == b.dtype and a.shape == b.shape and a.dtype in dtypes:
                return bind(x, y)[0]
        elif isinstance(x, (Array, Tracer)):
            y = _beside(y, x, name) if type(y) in _PYTHON else y
        elif type(x) in _PYTHON and isinstance(y, (Array, Tracer)):
            x = _beside(x, y, name)
        if isinstance(x, (Array, Tracer)) and isinstance(y, (Array, Tracer)):
            one, two = x.aval, y.aval
            if one.dtype == two.dtype and same_shape(one.shape, two.shape):
                accepts.check(name, one)
                return bind(x, y)[0]
        x, y = promote_values(x, y, operation=name)
        accepts.check(name, aval_of(x))
        return bind(*broadcast_values(x, y, operation=name))[0]

    return prim, named(wrapper, name, doc)


def _both(
    ct: Value, x: Any, y: Any, to_x: Callable[[], Value], to_y: Callable[[], Value]
) -> tuple[Value | None, ...]:
    """Cotangents of those of two operands that are linear."""
    return to_x() if isinstance(x, Linear) else None, to_y() if isinstance(y, Linear) else None


# ---- conversion and choice


@cache
def cast_op(dtype: dt.DType) -> ScalarOp:
    """The scalar operation that converts to `dtype`."""

    def convert_to(x: NDArray) -> NDArray:
        return np.asarray(quiet.run(numerics.cast_array, x, dtype))

    return ScalarOp("cast", 1, convert_to, traits=frozenset({Trait.CAST}))


def _cast_aval(x: ShapedArray, *, dtype: dt.DType, weak: bool) -> tuple[ShapedArray, ...]:
    NUMERIC.check("cast", x)
    return (ShapedArray(x.shape, dtype, weak),)


def _cast_eval(x: NDArray, *, dtype: dt.DType, weak: bool) -> tuple[NDArray]:
    return (np.asarray(quiet.run(numerics.cast_array, x, dtype)),)


def _cast_form(x: ShapedArray, *, dtype: dt.DType, weak: bool) -> Form:
    if dt.is_complex(x.dtype) or dt.is_complex(dtype):
        return Opaque("cast of complex numbers runs in NumPy")
    return Map(cast_op(dtype))


def _cast_jvp(primals: Sequence[Value], ts: Sequence[Value | None], **params: Any) -> JvpResult:
    (out,) = cast_p.bind(*primals, **params)
    moves = ts[0] is not None and dt.is_inexact(params["dtype"])
    return (out,), (cast_p.bind(ts[0], **params)[0] if moves else None,)


def _cast_transpose(
    cts: Sequence[Value | None], inputs: Sequence[Any], **_: Any
) -> Sequence[Value | None]:
    (ct,), (x,) = cts, inputs
    return (None if ct is None else cast_p.bind(ct, dtype=x.aval.dtype, weak=x.aval.weak)[0],)


cast_p = Primitive(
    "cast",
    aval=_cast_aval,
    eval=_cast_eval,
    form=_cast_form,
    jvp=_cast_jvp,
    transpose=_cast_transpose,
    batch=batch_rule(lambda: cast_p),
    samples=tuple(
        Sample((ShapedArray((2, 3), a),), {"dtype": b, "weak": False}, -3.0, 3.0)
        for a, b in (
            (dt.float32, dt.float16), (dt.float32, dt.int32), (dt.int32, dt.float32),
            (dt.float32, dt.bool_), (dt.bool_, dt.float32), (dt.int32, dt.uint8),
            (dt.bfloat16, dt.float32), (dt.float32, dt.complex64), (dt.complex64, dt.float32),
        )
    ),
)  # fmt: skip


def cast(x: Value, dtype: Any, weak: bool = False) -> Value:
    """`x` in another dtype. Floats become integers by truncation, saturating, with NaN -> 0."""
    target = dt.canonicalize(dtype)
    x = asvalue(x, "cast")
    aval = aval_of(x)
    if aval.dtype == target and aval.weak == weak:
        return x
    NUMERIC.check("cast", aval)
    NUMERIC.check("cast", aval.with_dtype(target))
    return cast_p.bind(x, dtype=target, weak=weak)[0]


def _select_aval(which: ShapedArray, x: ShapedArray, y: ShapedArray) -> tuple[ShapedArray, ...]:
    if which.dtype != dt.bool_:
        raise DTypeError(
            operation="select",
            required="a bool condition",
            got=str(which),
            fix="compare it with something, for instance condition != 0",
        )
    check_shapes("select", (which, x, y))
    (out,) = _branches_aval(x, y)
    return (ShapedArray(out.shape, out.dtype, out.weak and which.weak),)


_branches_aval = aval_rule("select", ANY, same_dtype)


def _select_jvp(primals: Sequence[Value], ts: Sequence[Value | None]) -> JvpResult:
    which, x, y = primals
    _, on_true, on_false = ts
    (out,) = select_p.bind(which, x, y)
    if on_true is None and on_false is None:
        return (out,), (None,)
    like = on_true if on_true is not None else on_false
    chosen = [constant(0, like) if t is None else t for t in (on_true, on_false)]
    return (out,), (select(which, *chosen),)


def _select_transpose(cts: Sequence[Value | None], inputs: Sequence[Any]) -> Sequence[Value | None]:
    (ct,), (which, x, y) = cts, inputs
    if ct is None:
        return (None, None, None)
    zero = constant(0, ct)
    return None, *_both(ct, x, y, lambda: select(which, ct, zero), lambda: select(which, zero, ct))


_select_op = ScalarOp("select", 3, np.where)
select_p = Primitive(
    "select",
    aval=_select_aval,
    eval=lambda which, x, y: (np.where(which, x, y),),
    form=form_rule(_select_op, None),
    jvp=_select_jvp,
    transpose=_select_transpose,
    batch=batch_rule(lambda: select_p),
    samples=tuple(
        Sample((ShapedArray((2, 3), dt.bool_), ShapedArray((2, 3), d), ShapedArray((2, 3), d)), {})
        for d in (dt.float32, dt.int32, dt.bool_, dt.complex64)
    ),
)


def select(which: Value, on_true: Value, on_false: Value) -> Value:
    """`on_true` where the bool array `which` holds, else `on_false`; promotes and broadcasts the
    three.
    """
    x, y = promote_values(on_true, on_false, operation="select")
    operands = broadcast_values(asvalue(which, "select"), x, y, operation="select")
    avals = [aval_of(v) for v in operands]
    _select_aval(*avals)
    out = select_p.bind(*operands)[0]
    weak = avals[1].weak and avals[2].weak
    return cast(out, avals[1].dtype, weak=True) if weak and not avals[0].weak else out


# ---- arithmetic

add_p, add = binary(
    "add", np.add, NUMBERS, "x + y, elementwise.",
    tangents=(lambda t, *_: t, lambda t, *_: t),
    transpose=lambda ct, x, y: _both(ct, x, y, lambda: ct, lambda: ct),
    traits=(Trait.COMMUTATIVE, Trait.ASSOCIATIVE), identity=0,
)  # fmt: skip
sub_p, sub = binary(
    "sub", np.subtract, NUMBERS, "x - y, elementwise.",
    tangents=(lambda t, *_: t, lambda t, *_: neg(t)),
    transpose=lambda ct, x, y: _both(ct, x, y, lambda: ct, lambda: neg(ct)),
    expand=lambda x, y: add(x, mul(y, constant(-1, y))),
)  # fmt: skip
mul_p, mul = binary(
    "mul", np.multiply, NUMBERS, "x * y, elementwise.",
    tangents=(lambda t, x, y, _: mul(t, y), lambda t, x, y, _: mul(x, t)),
    transpose=lambda ct, x, y: _both(ct, x, y, lambda: mul(ct, y), lambda: mul(x, ct)),
    traits=(Trait.COMMUTATIVE, Trait.ASSOCIATIVE), identity=1,
)  # fmt: skip
neg_p, neg = unary(
    "neg", np.negative, NUMBERS, "-x, elementwise.",
    tangent=lambda t, *_: neg(t), transpose=lambda ct, _: (neg(ct),),
    expand=lambda x: mul(x, constant(-1, x)),
)  # fmt: skip


def _sincos_aval(x: ShapedArray) -> tuple[ShapedArray, ...]:
    return aval_rule("sincos", INEXACT, same_dtype)(x) * 2


def _sincos_jvp(primals: Sequence[Value], ts: Sequence[Value | None]) -> JvpResult:
    (x,), (t,) = primals, ts
    sine, cosine = sincos_p.bind(x)
    if t is None:
        return (sine, cosine), (None, None)
    return (sine, cosine), (mul(t, cosine), neg(mul(t, sine)))


def _sin_jvp(primals: Sequence[Value], ts: Sequence[Value | None]) -> JvpResult:
    (x,), (t,) = primals, ts
    sine, cosine = sincos_p.bind(x)
    return (sine,), (None if t is None else mul(t, cosine),)


def _cos_jvp(primals: Sequence[Value], ts: Sequence[Value | None]) -> JvpResult:
    (x,), (t,) = primals, ts
    sine, cosine = sincos_p.bind(x)
    return (cosine,), (None if t is None else neg(mul(t, sine)),)


sin_p, sin = unary(
    "sin", widened(np.sin), INEXACT, "The sine of x in radians, elementwise.",
    jvp=_sin_jvp, flops=20, domain=(-10.0, 10.0),
)  # fmt: skip
cos_p, cos = unary(
    "cos", widened(np.cos), INEXACT, "The cosine of x in radians, elementwise.",
    expand=lambda x: sin(add(x, 0.5 * np.pi)), jvp=_cos_jvp, flops=20, domain=(-10.0, 10.0),
)  # fmt: skip
# Sine and cosine as one operation, so that derivatives of any order evaluate each of them once.
sincos_p = Primitive(
    "sincos",
    aval=_sincos_aval,
    eval=lambda x: (*sin_p.eval(x), *cos_p.eval(x)),
    form=lambda *_: Expand(),
    expand=lambda x: (sin(x), cos(x)),
    jvp=_sincos_jvp,
    batch=batch_rule(lambda: sincos_p),
    samples=sin_p.samples,
)
