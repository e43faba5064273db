"""Random programs: DAGs over the vocabulary with sharing, dead code, broadcasting and sizes 0 and
1.

A `Program` is data: it can be run on any array values, printed as Python, and checked by
`check_program`. It is built by asking a `Chooser` for integers, so that Hypothesis and a plain
random generator make the same kind of program. Values are kept moderate while it is built; what
jumps (comparisons, sorting, rounding) reads only values that are exact, so that rounding cannot
flip it.

    python -m lumjax.testing --count 10000 --seed 1
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from lumjax import dtype as dt
from lumjax import lax, ops
from lumjax import numpy as jnp
from lumjax.compile import jit
from lumjax.config import config
from lumjax.grad.forward import jvp
from lumjax.grad.linear import vjp
from lumjax.record import record
from lumjax.testing.checks import check_adjoint, check_jit, check_vmap, to_numpy
from lumjax.trace.array import Array
from lumjax.trace.core import aval_of


class Chooser(Protocol):
    """A source of decisions."""

    def integer(self, low: int, high: int) -> int:
        """An integer in [low, high]; low is the simplest."""
        ...


class RandomChooser:
    """Decisions from a seeded generator."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def integer(self, low: int, high: int) -> int:
        """An integer in [low, high]."""
        return int(self._rng.integers(low, high, endpoint=True))


@record
class Node:
    """One step: `name` of the vocabulary applied to earlier values, with static parameters."""

    name: str
    args: tuple[int, ...]
    params: tuple[Any, ...] = ()


@record
class Program:
    """Inputs, steps, and the values returned. Values are numbered: inputs first, then nodes."""

    inputs: tuple[np.ndarray[Any, Any], ...]
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]

    @property
    def args(self) -> tuple[Array, ...]:
        """The inputs as arrays."""
        return tuple(Array(x) for x in self.inputs)

    def fn(self, *args: Any) -> tuple[Any, ...]:
        """Run on array values."""
        values = list(args)
        for node in self.nodes:
            values.append(VOCABULARY[node.name].run([values[k] for k in node.args], node.params))
        return tuple(values[k] for k in self.outputs)

    def source(self) -> str:
        """The program as text, one step a line."""
        lines = [f"v{k} = input {x.dtype.name}{list(x.shape)}" for k, x in enumerate(self.inputs)]
        for k, node in enumerate(self.nodes, len(self.inputs)):
            given = ", ".join([*(f"v{a}" for a in node.args), *map(repr, node.params)])
            lines.append(f"v{k} = {node.name}({given})")
        return "\n".join([*lines, "return " + ", ".join(f"v{k}" for k in self.outputs)])


# ---- the vocabulary


@record
class Word:
    """An operation. `pick(builder)` chooses operands and parameters, or None if nothing fits."""

    run: Callable[[Sequence[Any], tuple[Any, ...]], Any]
    pick: Callable[[Builder], tuple[tuple[int, ...], tuple[Any, ...]] | None]


@dataclass(slots=True)
class Builder:
    """A program under construction."""

    choose: Chooser
    values: list[Any] = field(default_factory=list[Any])  # float64 or exact, as they are computed
    exact: list[bool] = field(default_factory=list[bool])

    def one_of(self, items: Sequence[Any]) -> Any:
        """One of the items; the last is the simplest, being the newest."""
        return items[len(items) - 1 - self.choose.integer(0, len(items) - 1)]

    def which(self, test: Callable[[int], bool]) -> int | None:
        """One of the values that pass the test."""
        fitting = [k for k in range(len(self.values)) if test(k)]
        return self.one_of(fitting) if fitting else None

    def shape(self, k: int) -> tuple[int, ...]:
        """The shape of a value."""
        return tuple(aval_of(self.values[k]).shape)  # type: ignore[arg-type]

    def floating(self, k: int) -> bool:
        """Whether a value is a float."""
        return dt.is_floating(aval_of(self.values[k]).dtype)

    def integral(self, k: int) -> bool:
        """Whether a value is an integer."""
        return dt.is_integer(aval_of(self.values[k]).dtype)


def _float(b: Builder) -> int | None:
    return b.which(b.floating)


def _unary(f: Callable[[Any], Any]) -> Word:
    def pick(b: Builder) -> Any:
        k = _float(b)
        return None if k is None else ((k,), ())

    return Word(lambda xs, _: f(xs[0]), pick)


def _fits(a: Sequence[int], b: Sequence[int]) -> bool:
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + tuple(a), (1,) * (rank - len(b)) + tuple(b), strict=True)
    return all(m == n or 1 in (m, n) for m, n in pairs)


def _binary(f: Callable[[Any, Any], Any], exact: bool = False, integers: bool = False) -> Word:
    def ok(b: Builder, k: int) -> bool:
        kind = b.integral(k) if integers else b.floating(k)
        return kind and (b.exact[k] or not exact)

    def pick(b: Builder) -> Any:
        one = b.which(lambda k: ok(b, k))
        if one is None:
            return None
        dtype = aval_of(b.values[one]).dtype
        two = b.which(
            lambda k: (
                ok(b, k) and _fits(b.shape(k), b.shape(one)) and aval_of(b.values[k]).dtype == dtype
            )
        )
        return None if two is None else ((one, two), ())

    return Word(lambda xs, _: f(xs[0], xs[1]), pick)


def _axis_word(f: Callable[[Any, int], Any], need: int = 0, exact: bool = False) -> Word:
    """An operation along one axis of length at least `need`."""

    def pick(b: Builder) -> Any:
        k = b.which(
            lambda k: (
                b.floating(k) and any(n >= need for n in b.shape(k)) and (b.exact[k] or not exact)
            )
        )
        if k is None:
            return None
        axes = [a for a, n in enumerate(b.shape(k)) if n >= need]
        return (k,), (b.one_of(axes),)

    return Word(lambda xs, p: f(xs[0], p[0]), pick)


def _any(b: Builder) -> int | None:
    return b.which(lambda k: True)


def _pick_transpose(b: Builder) -> Any:
    k = _any(b)
    if k is None:
        return None
    rest, order = list(range(len(b.shape(k)))), list[int]()
    while rest:
        order.append(rest.pop(b.choose.integer(0, len(rest) - 1)))
    return (k,), (tuple(order),)


def _pick_reshape(b: Builder) -> Any:
    k = _any(b)
    if k is None:
        return None
    shape = b.shape(k)
    size = int(np.prod(shape))
    choices: list[tuple[int, ...]] = [(size,), (1, *shape), (*shape, 1)]
    choices += [(d, size // d) for d in (2, 3, 4) if size and size % d == 0]
    if len(shape) > 1:
        choices.append((shape[0] * shape[1], *shape[2:]))
    return (k,), (b.one_of(choices),)


def _pick_slice(b: Builder) -> Any:
    k = b.which(lambda k: len(b.shape(k)) > 0)
    if k is None:
        return None
    low, high, by = list[int](), list[int](), list[int]()
    for n in b.shape(k):
        start = b.choose.integer(0, n)
        low.append(start)
        high.append(b.choose.integer(start, n))
        by.append(b.choose.integer(1, 3))
    return (k,), (tuple(low), tuple(high), tuple(by))


def _pick_pad(b: Builder) -> Any:
    k = b.which(lambda k: b.floating(k) and len(b.shape(k)) > 0)
    if k is None:
        return None
    edges = tuple(
        (
            b.choose.integer(0, 2) - (1 if n > 2 else 0),
            b.choose.integer(0, 2),
            b.choose.integer(0, 1),
        )
        for n in b.shape(k)
    )
    return (k,), (edges,)


def _pick_concatenate(b: Builder) -> Any:
    one = b.which(lambda k: len(b.shape(k)) > 0)
    if one is None:
        return None
    axis = b.choose.integer(0, len(b.shape(one)) - 1)

    def joins(k: int) -> bool:
        a, c = b.shape(k), b.shape(one)
        same = len(a) == len(c) and all(
            m == n for j, (m, n) in enumerate(zip(a, c, strict=True)) if j != axis
        )
        return same and aval_of(b.values[k]).dtype == aval_of(b.values[one]).dtype

    two = b.which(joins)
    return None if two is None else ((one, two), (axis,))


def _pick_broadcast(b: Builder) -> Any:
    k = b.which(lambda k: len(b.shape(k)) < 4)
    if k is None:
        return None
    return (k,), (b.one_of([2, 1, 0, 3]),)


def _pick_dot(b: Builder) -> Any:
    one = b.which(lambda k: b.floating(k) and len(b.shape(k)) >= 1)
    if one is None:
        return None
    n = b.shape(one)[-1]
    dtype = aval_of(b.values[one]).dtype
    two = b.which(
        lambda k: b.floating(k) and 1 <= len(b.shape(k)) <= 2 and b.shape(k)[0] == n
        and aval_of(b.values[k]).dtype == dtype
    )  # fmt: skip
    return None if two is None else ((one, two), ())


def _pick_take(b: Builder) -> Any:
    k = b.which(lambda k: b.floating(k) and len(b.shape(k)) > 0 and b.shape(k)[0] > 0)
    i = b.which(b.integral)
    return None if k is None or i is None else ((k, i), ())


def _pick_select(b: Builder) -> Any:
    test = b.which(lambda k: dt.is_bool(aval_of(b.values[k]).dtype))
    if test is None:
        return None
    one = b.which(lambda k: b.floating(k) and _fits(b.shape(k), b.shape(test)))
    if one is None:
        return None
    common = np.broadcast_shapes(b.shape(test), b.shape(one))
    dtype = aval_of(b.values[one]).dtype
    two = b.which(
        lambda k: (
            b.floating(k) and _fits(b.shape(k), common) and aval_of(b.values[k]).dtype == dtype
        )
    )
    return None if two is None else ((test, one, two), ())


def _pick_iota(b: Builder) -> Any:
    return (), (b.choose.integer(0, 4),)


def _softmax(x: Any, axis: int) -> Any:
    terms = ops.exp(ops.tanh(x))
    return ops.div(terms, jnp.sum(terms, axis, keepdims=True))


def _padded(x: Any, edges: tuple[tuple[int, int, int], ...]) -> Any:
    return ops.pad(x, ops.full((), 0.5, aval_of(x).dtype), edges)


def _scan(x: Any) -> Any:
    """A recurrence over the first axis that keeps its values bounded."""

    def body(carry: Any, row: Any) -> tuple[Any, Any]:
        new = ops.tanh(ops.add(ops.mul(carry, 0.5), row))
        return new, new

    first = ops.full(tuple(aval_of(x).shape[1:]), 0, aval_of(x).dtype)
    return lax.scan(body, first, x)[1]


def _cond(p: Any, x: Any, y: Any) -> Any:
    return lax.cond(ops.reduce_or(p, range(aval_of(p).ndim)), ops.add, ops.sub, x, y)


def _pick_cond(b: Builder) -> Any:
    test = b.which(lambda k: dt.is_bool(aval_of(b.values[k]).dtype))
    pair = VOCABULARY["add"].pick(b)
    return None if test is None or pair is None else ((test, *pair[0]), ())


def _scatter(x: Any, i: Any, u: Any) -> Any:
    return x.at[ops.rem(i, aval_of(x).shape[0])].add(u)


def _pick_scatter(b: Builder) -> Any:
    k = b.which(lambda k: b.floating(k) and len(b.shape(k)) > 0 and b.shape(k)[0] > 0)
    i = b.which(lambda j: b.integral(j) and len(b.shape(j)) == 1)
    u = None
    if k is not None and i is not None:
        want = (b.shape(i)[0], *b.shape(k)[1:])
        dtype = aval_of(b.values[k]).dtype
        u = b.which(lambda j: b.shape(j) == want and aval_of(b.values[j]).dtype == dtype)
    return None if u is None else ((k, i, u), ())


_NESTED: Any = jit(lambda x: ops.mul(ops.sin(x), ops.cos(ops.square(x))))

VOCABULARY: dict[str, Word] = {
    "add": _binary(ops.add),
    "mul": _binary(ops.mul),
    "sub": _binary(ops.sub),
    "sin": _unary(ops.sin),
    "tanh": _unary(ops.tanh),
    "exp": _unary(lambda x: ops.exp(ops.tanh(x))),
    "log": _unary(lambda x: ops.log(ops.add(ops.square(x), 0.5))),
    "sqrt": _unary(lambda x: ops.sqrt(ops.add(ops.square(x), 0.25))),
    "logistic": _unary(ops.logistic),
    "erf": _unary(ops.erf),
    "neg": _unary(ops.neg),
    "square": _unary(ops.square),
    "div": _binary(lambda x, y: ops.div(x, ops.add(ops.square(y), 1.0))),
    "max": _binary(ops.max, exact=True),
    "min": _binary(ops.min, exact=True),
    "abs": _axis_word(lambda x, _: ops.abs(x), exact=True),
    "less": _binary(ops.lt, exact=True),
    "select": Word(lambda xs, _: ops.select(*xs), _pick_select),
    "iota": Word(lambda _, p: ops.iota(dt.int32, p[0]), _pick_iota),
    "int_add": _binary(ops.add, integers=True),
    "int_mul": _binary(lambda x, y: ops.rem(ops.mul(x, y), 7), integers=True),
    "sum": _axis_word(lambda x, a: ops.reduce_sum(x, (a,))),
    "mean": _axis_word(jnp.mean, need=1),
    "reduce_max": _axis_word(lambda x, a: ops.reduce_max(x, (a,)), need=1, exact=True),
    "prod": _axis_word(lambda x, a: ops.reduce_prod(ops.tanh(x), (a,))),
    "cumsum": _axis_word(ops.cumsum),
    "sort": _axis_word(ops.sort, need=1, exact=True),
    "argmax": _axis_word(ops.argmax, need=1, exact=True),
    "softmax": _axis_word(_softmax, need=1),
    "rev": _axis_word(lambda x, a: ops.rev(x, (a,))),
    "transpose": Word(lambda xs, p: ops.transpose(xs[0], p[0]), _pick_transpose),
    "reshape": Word(lambda xs, p: ops.reshape(xs[0], p[0]), _pick_reshape),
    "slice": Word(lambda xs, p: ops.slice(xs[0], *p), _pick_slice),
    "pad": Word(lambda xs, p: _padded(xs[0], p[0]), _pick_pad),
    "concatenate": Word(lambda xs, p: ops.concatenate(xs, p[0]), _pick_concatenate),
    "broadcast": Word(
        lambda xs, p: jnp.broadcast_to(xs[0], (p[0], *aval_of(xs[0]).shape)), _pick_broadcast
    ),
    "dot": Word(lambda xs, _: jnp.dot(*xs), _pick_dot),
    "take": Word(lambda xs, _: jnp.take(xs[0], xs[1], axis=0, mode="clip"), _pick_take),
    "scatter_add": Word(lambda xs, _: _scatter(*xs), _pick_scatter),
    "scan": _axis_word(lambda x, _: _scan(x)),
    "cond": Word(lambda xs, _: _cond(*xs), _pick_cond),
    "nested_jit": _unary(_NESTED),
}  # fmt: skip

# What keeps values that another implementation computes bit for bit.
_EXACT = {
    "iota", "int_add", "int_mul", "less", "argmax", "max", "min", "abs", "neg", "sort", "rev",
    "transpose", "reshape", "slice", "pad", "concatenate", "broadcast", "take", "reduce_max",
    "select",
}  # fmt: skip
_LIMIT = 50.0  # larger values are left out: their rounding would drown the comparison
_ELEMENTS = 600


def build(choose: Chooser, max_nodes: int = 10, words: Sequence[str] | None = None) -> Program:
    """A program of up to `max_nodes` steps."""
    names = list(words or VOCABULARY)
    builder = Builder(choose)
    inputs: list[np.ndarray[Any, Any]] = []
    dtype = (dt.float32, dt.float32, dt.float32, dt.float16, dt.bfloat16)[choose.integer(0, 4)]
    sizes = (2, 3, 1, 0, 5, 17, 4)
    for k in range(choose.integer(1, 3)):
        rank = choose.integer(0, 3)
        shape = tuple(sizes[choose.integer(0, len(sizes) - 1)] for _ in range(rank))
        noise = np.random.default_rng(choose.integer(0, 999) + 1000 * k)
        if choose.integer(0, 4) == 4:
            inputs.append(noise.integers(-3, 4, shape).astype(np.int32))
        else:
            inputs.append(np.asarray(noise.uniform(-2, 2, shape)).astype(dtype))
    nodes: list[Node] = []
    for x in inputs:
        builder.values.append(Array(x))
        builder.exact.append(True)
    for _ in range(choose.integer(1, max_nodes)):
        _extend(builder, nodes, names)
    total = len(builder.values)
    outputs = {total - 1, *(choose.integer(0, total - 1) for _ in range(choose.integer(0, 2)))}
    return Program(tuple(inputs), tuple(nodes), tuple(sorted(outputs)))


def _extend(builder: Builder, nodes: list[Node], names: Sequence[str]) -> None:
    """Add a step, if the word that was drawn fits and its value stays moderate."""
    name = names[builder.choose.integer(0, len(names) - 1)]
    picked = VOCABULARY[name].pick(builder)
    if picked is None:
        return
    args, params = picked
    value = VOCABULARY[name].run([builder.values[k] for k in args], params)
    data = to_numpy(value)
    if data.size > _ELEMENTS or (
        data.size and data.dtype.kind == "f" and np.abs(data).max() > _LIMIT
    ):
        return
    nodes.append(Node(name, tuple(args), tuple(params)))
    builder.values.append(value)
    builder.exact.append(name in _EXACT and all(builder.exact[k] for k in args))


# ---- checking


def _weighted(program: Program) -> Callable[..., Any]:
    """A smooth scalar function of the program's floating outputs, for derivatives of any order."""

    def loss(*args: Any) -> Any:
        total: Any = 0.0
        for k, out in enumerate(program.fn(*args)):
            if dt.is_floating(aval_of(out).dtype):
                wave = ops.sin(ops.add(ops.cast(out, np.float64), float(k)))
                total = ops.add(total, ops.reduce_sum(wave, range(aval_of(out).ndim)))
        return ops.asvalue(total)

    return loss


def _moving(program: Program) -> tuple[int, ...]:
    return tuple(k for k, x in enumerate(program.inputs) if dt.is_floating(x.dtype))


def check_program(program: Program, second_order: bool = True) -> None:
    """Eager, jit, vmap, jvp and vjp of a program agree, at first and at second order.

    jit is compared with eager in the program's own dtypes (and no kernel may be rejected by its
    verification); vmap with a loop; forward with reverse mode by the adjoint identity in float64.
    """
    half = any(x.dtype in (dt.float16, dt.bfloat16) for x in program.inputs)
    wide = Program(
        tuple(x.astype(np.float64) if dt.is_floating(x.dtype) else x for x in program.inputs),
        program.nodes,
        program.outputs,
    )
    check_jit(program.fn, program.args, rtol=8e-2 if half else 1e-4, atol=4e-2 if half else 2e-5)
    derivatives, points = _derivatives(program, second_order and not half)
    check_jit(
        derivatives,
        points,
        backends=("cpu",),
        rtol=0.3 if half else 5e-3,
        atol=0.3 if half else 2e-3,
    )
    with config.scope(enable_x64=True, interpret=True):
        check_vmap(wide.fn, wide.args, rtol=1e-8)
        check_adjoint(wide.fn, wide.args, rtol=1e-8)
        if second_order:
            gradients, wide_points = _derivatives(wide, False)
            check_adjoint(gradients, wide_points, rtol=1e-7)


def _derivatives(program: Program, second_order: bool) -> tuple[Callable[..., Any], list[Array]]:
    """A function of the floating inputs that gives the gradient of a smooth scalar of the outputs
    and, if asked, the directional derivative of that gradient; and the inputs.
    """
    moving = _moving(program)
    loss = _weighted(program)

    def slope(*xs: Any) -> Any:
        full = list(program.args)
        for k, x in zip(moving, xs, strict=True):
            full[k] = x
        return loss(*full)

    def gradient(*xs: Any) -> Any:
        out, pull = vjp(slope, *xs)
        return pull(ops.full((), 1.0, aval_of(out).dtype))

    def both(*xs: Any) -> Any:
        return jvp(gradient, xs, [ops.full(aval_of(x).shape, 1.0, aval_of(x).dtype) for x in xs])

    points = [program.args[k] for k in moving]
    if not moving:
        return lambda *xs: (), points
    return (both if second_order else gradient), points


def main(arguments: Sequence[str] | None = None) -> int:
    """Check many programs; print the first failures and a summary; 0 if all agree."""
    parser = argparse.ArgumentParser(description="Check random programs.")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="index of the first program")
    options = parser.parse_args(arguments)
    failed, started = 0, time.perf_counter()
    for index in range(options.first, options.first + options.count):
        program = build(RandomChooser(options.seed * 1_000_003 + index))
        try:
            check_program(program)
        except Exception as e:
            failed += 1
            print(f"--- program {index}: {type(e).__name__}: {str(e)[:1500]}\n{program.source()}\n")
            sys.stdout.flush()
    seconds = time.perf_counter() - started
    print(f"{options.count - failed} passed, {failed} failed in {seconds:.0f} s")
    return int(failed > 0)
