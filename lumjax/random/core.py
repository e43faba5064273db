"""Keys and bits, and the distributions that JAX gives bit by bit or nearly so.

Source of the generator: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import numpy as jnp
from lumjax import ops
from lumjax.config import config
from lumjax.debugging.keys import consumed, renewed
from lumjax.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from lumjax.trace.core import Tracer, aval_of
from lumjax.trace.dim import bounds as dim_bounds

Key = Any
Shape = Sequence[Any]

# ---- keys


def _seed_words(seed: Any) -> Any:
    """The uint32[2] words of a seed: high and low half."""
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        number = int(seed)
        high = (number >> 32) & 0xFFFFFFFF if config.enable_x64 else 0
        return jnp.asarray(np.array([high, number & 0xFFFFFFFF], np.uint32))
    value = jnp.asarray(seed)
    aval = aval_of(value)
    if aval.ndim or not dt.is_integer(aval.dtype):
        raise ArgumentTypeError(
            operation="random key",
            required="an integer seed without axes",
            got=str(aval),
            fix="pass one integer; vmap over keys for several",
        )
    low = ops.cast(value, np.uint32)
    if aval.dtype.itemsize == 8:
        unsigned = ops.cast(value, np.uint64)
        high = ops.cast(ops.shift_right_logical(unsigned, np.uint64(32)), np.uint32)
        low = ops.cast(ops.and_(unsigned, np.uint64(0xFFFFFFFF)), np.uint32)
    else:
        low = ops.bitcast(value, np.uint32) if aval.dtype == dt.int32 else low
        high = ops.full((), 0, np.uint32)
    return jnp.stack([high, low])


def key(seed: Any, *, impl: str | None = None, dtype: Any = None) -> Key:
    """A typed key (dtype key<fry>, no axes) from an integer seed.

    `impl` or `dtype` may name the one generator there is; ArgumentValueError for another.

    >>> key(0).shape
    ()
    """
    _check_impl(impl, dtype)
    return ops.random_wrap(renewed(_seed_words(seed)))


def PRNGKey(seed: Any, *, impl: str | None = None) -> Key:
    """An old-style key, uint32[2], from an integer seed.

    >>> PRNGKey(7)
    Array([0, 7], dtype=uint32)
    """
    _check_impl(impl)
    return jnp.asarray(renewed(_seed_words(seed)))


def _check_impl(impl: Any, dtype: Any = None) -> None:
    if any(given not in (None, "threefry2x32", dt.key) for given in (impl, dtype)):
        raise ArgumentValueError(
            operation="random key",
            required="impl 'threefry2x32'",
            got=repr(dtype if impl is None else impl),
            fix="leave it out",
        )


def key_data(keys: Key) -> Any:
    """The words of typed keys: uint32[..., 2]."""
    value = jnp.asarray(keys)
    return ops.random_unwrap(value) if dt.is_key(aval_of(value).dtype) else value


def wrap_key_data(key_bits_array: Any, *, impl: str | None = None, dtype: Any = None) -> Key:
    """Typed keys of shape [...] from words uint32[..., 2]; the inverse of `key_data`.

    >>> wrap_key_data(key_data(key(7))).shape
    ()
    """
    _check_impl(impl, dtype)
    return ops.random_wrap(jnp.asarray(key_bits_array))


def key_impl(keys: Key) -> str:
    """The generator's name."""
    del keys
    return "threefry2x32"


def clone(key: Key) -> Key:
    """The same key, which may then be used once more where debug_key_reuse looks."""
    if not config.debug_key_reuse:
        return jnp.asarray(key)
    words = renewed(key_data(key))
    return ops.random_wrap(words) if dt.is_key(aval_of(jnp.asarray(key)).dtype) else words


def _words(operation: str, key: Key, consume: bool = True) -> tuple[Any, Any, bool]:
    """The two words of one key, which is used up by that, and whether it is typed."""
    if not isinstance(key, (Tracer, jnp.ndarray, np.ndarray)):
        raise ArgumentTypeError(
            operation=operation,
            required="a key",
            got=f"{key!r} of type {type(key).__name__}",
            fix="make one with lumjax.random.key(seed)",
        )
    value = jnp.asarray(key)
    aval = aval_of(value)
    typed = dt.is_key(aval.dtype)
    if typed and not aval.ndim:
        value = ops.random_unwrap(value)
    elif typed or aval.dtype != dt.uint32 or tuple(aval.shape) != (2,):
        raise ShapeError(
            operation=operation,
            required="one key: a typed key without axes, or uint32[2]",
            got=str(aval),
            fix="index the keys, or map over them with vmap",
        )
    if consume:
        value = consumed(value, operation)
    first, second = (ops.squeeze(ops.slice(value, (k,), (k + 1,)), (0,)) for k in (0, 1))
    return first, second, typed


def _counts(shape: Sequence[Any]) -> tuple[Any, Any]:
    """The positions of an array's elements as two uint32 arrays, high and low."""
    size = math.prod(shape)
    most = dim_bounds(size)[1]
    if most is not None and most < 1 << 32:
        low = ops.reshape(ops.iota(np.uint32, size), shape)
        return ops.full(shape, 0, np.uint32), low
    raise ArgumentValueError(
        operation="random bits",
        required="fewer than 2**32 elements",
        got=str(size),
        fix="split the key and draw in pieces"
        if most is not None
        else "give sizes that are known only when it runs an end: lumjax.dim(name, max=...)",
    )


def _hash(words: tuple[Any, Any], high: Any, low: Any) -> tuple[Any, Any]:
    shape = tuple(aval_of(low).shape)
    first, second = (ops.broadcast_in_dim(w, shape, ()) for w in words)
    return ops.threefry2x32(first, second, high, low)


def split(key: Key, num: int | tuple[int, ...] = 2) -> Key:
    """`num` new keys (an int, or a shape) from one.

    >>> split(key(0), 3).shape
    (3,)
    """
    first, second, typed = _words("random.split", key)
    shape = (num,) if isinstance(num, (int, np.integer)) else tuple(num)
    high, low = _hash((first, second), *_counts(shape))
    words = renewed(jnp.stack([high, low], axis=-1), len(shape))
    return ops.random_wrap(words) if typed else words


def fold_in(key: Key, data: Any) -> Key:
    """A new key, of the same kind, from a key and an integer without axes (modulo 2^32)."""
    first, second, typed = _words("random.fold_in", key, consume=False)
    python = isinstance(data, (int, np.integer))
    value = jnp.asarray(np.uint32(int(data) & 0xFFFFFFFF) if python else data)
    if aval_of(value).ndim or not dt.is_integer(aval_of(value).dtype):
        raise ArgumentTypeError(
            operation="random.fold_in",
            required="an integer without axes",
            got=str(aval_of(value)),
            fix="pass one integer",
        )
    if aval_of(value).dtype == dt.int32:
        low = ops.bitcast(value, np.uint32)
    else:
        low = ops.cast(value, np.uint32)
    words = renewed(jnp.stack(_hash((first, second), ops.full((), 0, np.uint32), low)))
    return ops.random_wrap(words) if typed else words


def bits(key: Key, shape: Shape = (), dtype: Any = np.uint32, *, out_sharding: Any = None) -> Any:
    """Uniform random unsigned integers of 8, 16, 32 or 64 bits."""
    del out_sharding
    kind = dt.canonicalize(dtype)
    if not dt.is_unsigned(kind):
        raise DTypeError(
            operation="random.bits",
            required="an unsigned integer dtype",
            got=str(kind),
            fix="use randint for signed integers",
        )
    return bits_of(key, 8 * kind.itemsize, drawn_shape("random.bits", shape))


def drawn_shape(operation: str, shape: Any) -> tuple[Any, ...]:
    """A shape argument as a tuple of sizes."""
    found: tuple[Any, ...] = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if any(isinstance(n, (int, np.integer)) and n < 0 for n in found):
        raise ShapeError(
            operation=operation, required="sizes >= 0", got=str(found), fix="correct the shape"
        )
    return found


def bits_of(key: Key, width: int, shape: Sequence[Any]) -> Any:
    """Random unsigned integers of `width` bits."""
    first, second, _ = _words("random numbers", key)
    high, low = _hash((first, second), *_counts(shape))
    if width == 64:
        wide = ops.shift_left(ops.cast(high, np.uint64), np.uint64(32))
        return ops.or_(wide, ops.cast(low, np.uint64))
    mixed = ops.xor(high, low)
    return mixed if width == 32 else ops.cast(mixed, np.dtype(f"u{width // 8}"))


# ---- uniform and integers


def floating(operation: str, dtype: Any) -> Any:
    """A dtype argument, which must be floating; float32 by default (float64 under x64)."""
    kind = dt.canonicalize(np.float64 if dtype is None else dtype)
    if not dt.is_floating(kind):
        raise DTypeError(
            operation=operation,
            required="a floating dtype",
            got=str(kind),
            fix="use randint for integers",
        )
    return kind


def uniform(
    key: Key,
    shape: Shape = (),
    dtype: Any = None,
    minval: Any = 0.0,
    maxval: Any = 1.0,
    *,
    out_sharding: Any = None,
) -> Any:
    """Uniform on [minval, maxval).

    >>> x = uniform(key(1), (100,))
    >>> bool((x >= 0).all() & (x < 1).all())
    True
    """
    del out_sharding
    kind = floating("random.uniform", dtype)
    shape = drawn_shape("random.uniform", shape)
    low, high = (jnp.asarray(v, kind) for v in (minval, maxval))
    shape = ops.broadcast_shapes(shape, tuple(aval_of(low).shape), tuple(aval_of(high).shape))
    low, high = jnp.broadcast_to(low, shape), jnp.broadcast_to(high, shape)
    info = dt.finfo(kind)
    width, mantissa = int(info.bits), int(info.nmant)
    drawn = 8 if mantissa < 8 else width
    unsigned = np.dtype(f"u{width // 8}")
    raw = ops.cast(bits_of(key, drawn, shape), unsigned)
    one = np.ones((), kind).view(unsigned)
    filled = ops.or_(ops.shift_right_logical(raw, unsigned.type(drawn - mantissa)), one)
    unit = ops.sub(ops.bitcast(filled, kind), np.ones((), kind))
    span = ops.sub(high, low)
    if width < 32:
        return ops.max(low, ops.add(ops.mul(unit, span), low))
    # Rounded once, as XLA's fused multiply-add does it.
    return ops.max(low, ops.fma(unit, span, low))


def randint(
    key: Key, shape: Shape, minval: Any, maxval: Any, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Integers in [minval, maxval).

    >>> int(randint(key(0), (), 5, 6))
    5
    """
    del out_sharding
    kind = dt.canonicalize(np.int64 if dtype is None else dtype)
    if not dt.is_integer(kind):
        raise DTypeError(
            operation="random.randint",
            required="an integer dtype",
            got=str(kind),
            fix="use uniform for floats",
        )
    shape = drawn_shape("random.randint", shape)
    info = np.iinfo(kind)
    if info.bits < 32:  # drawn in 32 bits, so that the remainder's bias is small
        bounds = [
            jnp.clip(ops.cast(jnp.asarray(b), np.int32), int(info.min), int(info.max) + up)
            for b, up in ((minval, 0), (maxval, 1))
        ]
        return ops.cast(randint(key, shape, *bounds, dtype=np.int32), kind)
    low, _ = _into_range(minval, kind)
    high, beyond = _into_range(maxval, kind)
    shape = ops.broadcast_shapes(shape, tuple(aval_of(low).shape), tuple(aval_of(high).shape))
    low, high = jnp.broadcast_to(low, shape), jnp.broadcast_to(high, shape)
    width = int(info.bits)
    unsigned = np.dtype(f"u{width // 8}")
    keys = split(key)
    upper, lower = (bits_of(jnp.asarray(keys)[k], width, shape) for k in (0, 1))
    span = ops.bitcast(ops.sub(high, low), unsigned)
    one = ops.full((), 1, unsigned)
    span = ops.select(ops.le(high, low), one, span)
    span = ops.select(ops.and_(beyond, ops.gt(high, low)), ops.add(span, one), span)
    half = ops.rem(ops.full(shape, 1 << (width // 2), unsigned), span)
    factor = ops.rem(ops.mul(half, half), span)
    offset = ops.add(ops.mul(ops.rem(upper, span), factor), ops.rem(lower, span))
    return ops.add(low, ops.bitcast(ops.rem(offset, span), kind))


def _into_range(bound: Any, kind: Any) -> tuple[Any, Any]:
    """A bound clipped into the dtype, and whether it was beyond the dtype's maximum."""
    info = np.iinfo(kind)
    if isinstance(bound, (int, np.integer)):
        number = int(bound)
        clipped = min(max(number, int(info.min)), int(info.max))
        return jnp.asarray(kind.type(clipped)), jnp.asarray(number > int(info.max))
    value = jnp.asarray(bound)
    have = aval_of(value).dtype
    if not dt.is_integer(have):
        raise DTypeError(
            operation="random.randint",
            required="integer bounds",
            got=str(aval_of(value)),
            fix="cast the bounds to integers",
        )
    own = np.iinfo(have)
    beyond = ops.full((), False, np.bool_)
    if int(own.max) > int(info.max):
        beyond = ops.gt(value, have.type(info.max))
        value = ops.min(value, have.type(info.max))
    if int(own.min) < int(info.min):
        value = ops.max(value, have.type(info.min))
    return ops.cast(value, kind), beyond


def bernoulli(
    key: Key, p: Any = 0.5, shape: Any = None, mode: str = "low", *, out_sharding: Any = None
) -> Any:
    """True with probability p: bools of its shape by default. `mode` "high" draws with twice the
    bits, for probabilities below 1e-6.
    """
    del out_sharding
    _check_mode("random.bernoulli", mode)
    chance = jnp.asarray(p)
    if not dt.is_floating(aval_of(chance).dtype):
        chance = ops.cast(chance, np.float64)
    shape = (
        tuple(aval_of(chance).shape) if shape is None else drawn_shape("random.bernoulli", shape)
    )
    kind = aval_of(chance).dtype
    chance = jnp.broadcast_to(chance, shape)
    if mode == "high":
        first, second = uniform(key, (2, *shape), kind)
        rest = ops.mul(second, np.asarray(2.0 ** -dt.finfo(kind).nmant, kind))
        return ops.lt(rest, ops.sub(chance, first))
    return ops.lt(uniform(key, shape, kind), chance)


def _check_mode(operation: str, mode: str | None) -> None:
    if mode not in (None, "low", "high"):
        raise ArgumentValueError(
            operation=operation,
            required="the mode 'low' or 'high'",
            got=repr(mode),
            fix="leave it out, or choose one of the two",
        )


# ---- normal and its relatives


def normal(key: Key, shape: Shape = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Standard normal, by the inverse error function of a uniform draw.

    >>> normal(key(0), (3,)).shape
    (3,)
    """
    del out_sharding
    kind = dt.canonicalize(np.float64 if dtype is None else dtype)
    if dt.is_complex(kind):
        part = np.dtype(f"f{kind.itemsize // 2}")
        first, second = split(key)[0], split(key)[1]
        scale = part.type(np.sqrt(0.5))
        return ops.complex(
            ops.mul(normal(first, shape, part), scale), ops.mul(normal(second, shape, part), scale)
        )
    kind = floating("random.normal", kind)
    low = np.nextafter(np.array(-1.0, kind), np.array(0.0, kind), dtype=kind)
    draw = uniform(key, shape, kind, low, 1.0)
    return ops.mul(np.array(np.sqrt(2), kind), ops.erf_inv(draw))


def truncated_normal(
    key: Key,
    lower: Any,
    upper: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Standard normal, cut to (lower, upper)."""
    del out_sharding
    kind = floating("random.truncated_normal", dtype)
    low, high = jnp.asarray(lower, kind), jnp.asarray(upper, kind)
    common = ops.broadcast_shapes(tuple(aval_of(low).shape), tuple(aval_of(high).shape))
    shape = common if shape is None else drawn_shape("random.truncated_normal", shape)
    root = np.array(np.sqrt(2), kind)
    a, b = ops.erf(ops.div(low, root)), ops.erf(ops.div(high, root))
    draw = uniform(key, shape, kind, a, b)
    out = ops.mul(root, ops.erf_inv(draw))
    # Rounding must not reach the bounds.
    low = ops.nextafter(low, np.array(np.inf, kind))
    high = ops.nextafter(high, np.array(-np.inf, kind))
    return jnp.clip(out, low, high)


def gumbel(
    key: Key,
    shape: Shape = (),
    dtype: Any = None,
    mode: str | None = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Standard Gumbel: -log(-log(uniform)); with mode "high" from twice the bits."""
    del out_sharding
    _check_mode("random.gumbel", mode)
    kind = floating("random.gumbel", dtype)
    if mode == "high":
        first, second = uniform(key, (2, *shape), kind)
        fine = ops.mul(second, np.asarray(2.0 ** -dt.finfo(kind).nmant, kind))
        fine = ops.add(ops.add(first, fine), np.asarray(dt.finfo(kind).tiny, kind))
        draw = ops.select(ops.ge(first, np.asarray(0.5, kind)), first, fine)
        return ops.neg(_log(ops.neg(ops.log1p(ops.neg(draw)))))
    tiny = np.array(dt.finfo(kind).tiny, kind)
    draw = uniform(key, shape, kind, tiny, 1.0)
    return ops.neg(_log(ops.neg(_log(draw))))


def _log(x: Any) -> Any:
    """The logarithm of a positive draw: JAX's own, where a unit in the last place would show."""
    return ops.xla_log(x) if aval_of(x).dtype == dt.float32 else ops.log(x)


def exponential(key: Key, shape: Shape = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Standard exponential."""
    del out_sharding
    draw = uniform(key, shape, floating("random.exponential", dtype))
    return ops.neg(ops.log1p(ops.neg(draw)))


def laplace(key: Key, shape: Shape = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Standard Laplace."""
    del out_sharding
    kind = floating("random.laplace", dtype)
    low = np.array(-1.0 + float(dt.finfo(kind).epsneg), kind)
    draw = uniform(key, shape, kind, low, 1.0)
    return ops.mul(ops.sign(draw), ops.log1p(ops.neg(ops.abs(draw))))


def logistic(key: Key, shape: Shape = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Standard logistic."""
    del out_sharding
    kind = floating("random.logistic", dtype)
    draw = uniform(key, shape, kind, np.array(dt.finfo(kind).tiny, kind), 1.0)
    return _log(ops.div(draw, ops.sub(np.ones((), kind), draw)))


def cauchy(key: Key, shape: Shape = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Standard Cauchy."""
    del out_sharding
    kind = floating("random.cauchy", dtype)
    draw = uniform(key, shape, kind, np.array(dt.finfo(kind).eps, kind), 1.0)
    centred = ops.sub(draw, np.array(0.5, kind))
    return ops.tan(ops.mul(np.array(np.pi, kind), centred))


def rademacher(key: Key, shape: Shape = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """-1 or 1 with equal probability."""
    del out_sharding
    kind = dt.canonicalize(np.int64 if dtype is None else dtype)
    coin = ops.cast(bernoulli(key, 0.5, shape), kind)
    return ops.sub(ops.mul(coin, kind.type(2)), kind.type(1))
