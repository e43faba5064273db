"""The counter-based bits everything random is made of: threefry2x32; typed keys as words.

Bit-identical to JAX's threefry2x32 on the same key and counters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import ShapeError
from lumjax.ops.checks import (
    Batched,
    Dims,
    Jvp,
    NDArray,
    all_weak,
    apply,
    check_dtype,
    silent,
    text,
)
from lumjax.ops.compare import or_, xor
from lumjax.ops.elementwise import add, broadcast_values, constant
from lumjax.ops.integer import shift_left, shift_right_logical
from lumjax.ops.view import batch_first, each_batch_first
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Primitive, Sample, Value
from lumjax.trace.dim import same, same_shape
from lumjax.trace.form import Expand, Form, Opaque

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA  # Skein's key schedule constant
_U32 = dt.uint32


def threefry2x32(k0: Value, k1: Value, x0: Value, x1: Value) -> tuple[Value, Value]:
    """20 rounds of threefry on two uint32 words of counter under two words of key.

    Operands are broadcast together.
    """
    operands = broadcast_values(k0, k1, x0, x1, operation="threefry2x32")
    first, second = apply(threefry2x32_p, *operands)
    return first, second


def _aval(*avals: ShapedArray) -> tuple[ShapedArray, ...]:
    for a in avals:
        check_dtype("threefry2x32", a, a.dtype == _U32, "uint32 operands")
        if not same_shape(a.shape, avals[0].shape):
            raise ShapeError(
                operation="threefry2x32",
                required="operands of one shape",
                got=text(avals),
                fix="broadcast key words and counters first",
            )
    out = ShapedArray(avals[0].shape, _U32, all_weak(*avals))
    return out, out


def _rounds(
    k0: Any,
    k1: Any,
    x0: Any,
    x1: Any,
    parity: Any,
    plus: Callable[[Any, Any], Any],
    exclusive_or: Callable[[Any, Any], Any],
    rotate: Callable[[Any, int], Any],
) -> tuple[Any, Any]:
    """The cipher over any arithmetic: NumPy's for `eval`, primitives for `expand`."""
    keys = (k0, k1, exclusive_or(exclusive_or(k0, k1), parity))
    x0, x1 = plus(x0, k0), plus(x1, k1)
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            x0 = plus(x0, x1)
            x1 = exclusive_or(x0, rotate(x1, distance))
        x0 = plus(x0, keys[(group + 1) % 3])
        x1 = plus(plus(x1, keys[(group + 2) % 3]), group + 1)
    return x0, x1


@silent
def _eval(k0: NDArray, k1: NDArray, x0: NDArray, x1: NDArray) -> tuple[NDArray, ...]:
    def plus(x: NDArray, y: Any) -> NDArray:
        return x + np.uint32(y) if isinstance(y, int) else x + y

    def rotate(x: NDArray, distance: int) -> NDArray:
        return (x << np.uint32(distance)) | (x >> np.uint32(32 - distance))

    outs = _rounds(k0, k1, x0, x1, np.uint32(_PARITY), plus, np.bitwise_xor, rotate)
    return tuple([np.asarray(o) for o in outs])


def _expand(k0: Value, k1: Value, x0: Value, x1: Value) -> tuple[Value, ...]:
    def number(n: int) -> Value:
        return constant(n, k0)

    def plus(x: Value, y: Any) -> Value:
        return add(x, number(y) if isinstance(y, int) else y)

    def rotate(x: Value, distance: int) -> Value:
        low = shift_right_logical(x, number(32 - distance))
        return or_(shift_left(x, number(distance)), low)

    return _rounds(k0, k1, x0, x1, number(_PARITY), plus, xor, rotate)


def _batch(axis: MappedAxis, args: Sequence[Value], dims: Dims) -> Batched:
    moved = each_batch_first(args, dims, axis.size)
    return threefry2x32_p.bind(*moved), (0, 0)


def _jvp(primals: Sequence[Value], tangents: Sequence[Value | None]) -> Jvp:
    return threefry2x32_p.bind(*primals), (None, None)


def _words(*shape: int) -> ShapedArray:
    return ShapedArray(shape, _U32)


def _expand_form(*avals: ShapedArray) -> Form:
    return Expand()


threefry2x32_p = Primitive(
    "threefry2x32",
    aval=_aval,
    eval=_eval,
    form=_expand_form,
    expand=_expand,
    jvp=_jvp,
    batch=_batch,
    samples=(
        Sample((_words(3),) * 4, {}, 0.0, 2.0**31),
        Sample((_words(),) * 4, {}, 0.0, 2.0**31),
        Sample((_words(2, 0),) * 4, {}, 0.0, 2.0**31),
    ),
)


# ---- keys


def random_wrap(words: Value) -> Value:
    """uint32[..., 2] as an array of typed keys, of shape [...]."""
    return apply(random_wrap_p, words)[0]


def random_unwrap(keys: Value) -> Value:
    """The two uint32 words of each key, along a new last axis."""
    return apply(random_unwrap_p, keys)[0]


def _wrap_aval(x: ShapedArray) -> tuple[ShapedArray, ...]:
    check_dtype("random_wrap", x, x.dtype == _U32, "uint32 words")
    if not x.ndim or not same(x.shape[-1], 2):
        raise ShapeError(
            operation="random_wrap",
            required="a last axis of size 2, the two words of a key",
            got=str(x),
            fix="make keys with random.key(seed)",
        )
    return (ShapedArray(x.shape[:-1], dt.key, x.weak),)


def _wrap_eval(x: NDArray) -> tuple[NDArray]:
    return (np.ascontiguousarray(x).view(dt.key).reshape(x.shape[:-1]),)


def _wrap_batch(axis: MappedAxis, args: Sequence[Value], dims: Dims) -> Batched:
    return random_wrap_p.bind(batch_first(args[0], dims[0], axis.size)), (0,)


def _unwrap_aval(x: ShapedArray) -> tuple[ShapedArray, ...]:
    check_dtype("random_unwrap", x, dt.is_key(x.dtype), "typed keys")
    return (ShapedArray((*x.shape, 2), _U32, x.weak),)


random_wrap_p = Primitive(
    "random_wrap",
    aval=_wrap_aval,
    eval=_wrap_eval,
    form=lambda x: Opaque("key words become a key"),
    jvp=lambda primals, tangents: (random_wrap_p.bind(*primals), (None,)),
    batch=_wrap_batch,
    samples=(
        Sample((_words(2),), {}, 0.0, 2.0**31),
        Sample((_words(3, 1, 2),), {}, 0.0, 2.0**31),
        Sample((_words(0, 2),), {}),
    ),
)

random_unwrap_p = Primitive(
    "random_unwrap",
    aval=_unwrap_aval,
    eval=lambda x: (np.asarray(x["fry"]),),
    form=lambda x: Opaque("a key becomes key words"),
    jvp=lambda primals, tangents: (random_unwrap_p.bind(*primals), (None,)),
    batch=lambda axis, args, dims: (random_unwrap_p.bind(*args), dims),
    samples=(
        Sample((ShapedArray((), dt.key),), {}),
        Sample((ShapedArray((2, 3), dt.key),), {}),
        Sample((ShapedArray((0,), dt.key),), {}),
    ),
)
