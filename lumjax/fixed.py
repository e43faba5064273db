"""Equations that are kernels of their own (`form.Whole`), compiled and checked.

A kernel is compared with the primitive's `eval` on values with many equal ones, special ones and
indices out of range before it is used: at the program's sizes, or, as sizes are arguments, with
shorter axes where arrays are large. Its accesses are proved to be in bounds at the program's sizes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.aligned import address_of
from lumjax.config import config
from lumjax.cpu.render import render, unsupported
from lumjax.cpu.runtime import Compiled, Program, Step, begin_kernel
from lumjax.egraph.machine import machine
from lumjax.egraph.plan import Found, Plan, Report
from lumjax.errors import LumjaxError
from lumjax.kernel.bounds import prove_bounds
from lumjax.kernel.builder import Choices, Operand, Uniform
from lumjax.kernel.digest import digest, operation_text, region_text
from lumjax.kernel.ir import Const, Kernel
from lumjax.kernel.order import LONG
from lumjax.kernel.region import Alone, Region, classify, volume
from lumjax.kernel.term import Buffer, Group
from lumjax.kernel.verify import open_sizes, proved_everywhere, traced_sizes
from lumjax.kernel.whole import lower_whole
from lumjax.native import Checked, Unsupported
from lumjax.record import record
from lumjax.store import Store
from lumjax.target import Target
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Atom, Eqn, Jaxpr, Literal, Var
from lumjax.trace.dim import Expr, bounds, estimate, evaluate, same
from lumjax.trace.form import Barrier, Cumulate, Form, Move, Order, Patch, Update, Whole

NDArray: TypeAlias = np.ndarray[Any, Any]
TURNS = 2  # sets of values
LONGEST = 1 << 31  # elements of an axis
LARGE = 1 << 20  # elements of arrays that are not checked at full size
LENGTH = 1024  # such arrays' axes become shorter than twice that
DEPTH = 64  # steps that an element of a cumulative operation goes through, if not all in order
LENGTHS = (1, 3, 70)  # tried for sizes that are known only at run time
# Where threads are executed one by one: elements of arrays that are not checked at full size, and
# how long axes are then tried to be, first those that pieces are merged along; what is too much.
SOME, TRIED, SIDES, MUCH = 1 << 16, (4200, 1100, 200), (17, 3), 1 << 20
APART = 4  # lengths that differ, and the largest indices along them, stay different
Shorter: TypeAlias = Callable[[tuple[int, ...]], list[int]]
_CHECKED = Store("whole", 1)
_lock = threading.Lock()
_found: dict[tuple[str, str, bool], tuple[Region, Found, tuple[Checked, ...]]] = {}


@record(eq=False)
class Maker:
    """How kernels become code and run: what of one has no code, its code, the text of that, and a
    run on arrays by name of buffer. `blocks`: whether a job is a block of threads.
    """

    unsupported: Callable[[Kernel], str | None]
    compiled: Callable[[Kernel, Target], Compiled]
    text: Callable[[Kernel, Target], str]
    run: Callable[[Compiled, Mapping[str, NDArray], Mapping[str, int]], None]
    blocks: bool


def _native(compiled: Compiled, arrays: Mapping[str, NDArray], sizes: Mapping[str, int]) -> None:
    kernel = compiled.kernel
    places = range(len(kernel.buffers) + len(kernel.sizes))
    addresses = [address_of(arrays[b.name]) for b in kernel.buffers]
    step = Step(compiled, list(places), sizes)
    Program([step]).run([*addresses, *(sizes[n] for n in kernel.sizes)])


NATIVE = Maker(unsupported, lambda k, t: begin_kernel(k, t)(), render, _native, False)


def compiled_alone(
    step: Alone, target: Target, maker: Maker = NATIVE
) -> tuple[Region, Found, tuple[Checked, ...]]:
    """The equation as a region of one kernel. Unsupported says why it can't be one."""
    region = _region(step.eqn, step.form)
    key = region.key, target.key, config.verify
    with _lock:
        if key not in _found:
            _found[key] = _made(region, target, maker)
        _, found, kernels = _found[key]
    return region, found, kernels


def _region(eqn: Eqn, form: Form) -> Region:
    inputs = tuple(dict.fromkeys(a for a in eqn.inputs if isinstance(a, Var)))
    text = operation_text(eqn.prim.name, form, eqn.params)
    key = digest(region_text(inputs, eqn.outputs, [eqn], [text]))
    return Region(inputs, eqn.outputs, (eqn,), (form,), key)


def _made(
    region: Region, target: Target, maker: Maker
) -> tuple[Region, Found, tuple[Checked, ...]]:
    kernel, operands, choices = _lowered(region, maker)
    if (operation := maker.unsupported(kernel)) is not None:
        raise Unsupported(f"no native code for {operation}")
    made = maker.compiled(kernel, target)
    check(made, region, operands, target, maker, choices)
    inputs, outputs = _buffers("i", region.inputs), _buffers("o", region.outputs)
    moved = sum(volume(b.shape) * b.dtype.itemsize for b in (*inputs, *outputs))
    machined = machine(target)
    cost = machined.launch + moved * machined.memory
    report = Report(region.key, False, cost=cost, traced_cost=cost)
    found = Found(Plan(inputs, outputs, (), (), cost), (kernel,), report)
    everywhere = not open_sizes(kernel) or proved_everywhere(kernel)
    return region, found, (Checked(Group(()), made, everywhere=everywhere),)


def _lowered(
    region: Region, maker: Maker, choices: Choices | None = None
) -> tuple[Kernel, list[Operand], Choices]:
    """The kernel, its operands, and what it chose, if it is not given."""
    (eqn,), (form,) = region.eqns, region.forms
    assert isinstance(form, Whole), "no other form is a kernel of its own"
    names = dict(zip(region.inputs, _buffers("i", region.inputs), strict=True))
    operands = [names[a] if isinstance(a, Var) else _uniform(a) for a in eqn.inputs]
    outputs = _buffers("o", region.outputs)
    if any(
        isinstance(n, int) and n >= LONGEST for b in (*names.values(), *outputs) for n in b.shape
    ):
        raise Unsupported("its positions are no 32-bit numbers")
    made = Choices() if choices is None else choices
    blocks = made if maker.blocks else None
    return lower_whole(form, operands, outputs, eqn.prim.name, blocks), operands, made


def _buffers(prefix: str, row: Sequence[Var]) -> tuple[Buffer, ...]:
    return tuple([Buffer(f"{prefix}{k}", v.aval.shape, v.aval.dtype) for k, v in enumerate(row)])


def _uniform(atom: Literal) -> Uniform:
    return Uniform(Const(atom.aval.dtype, np.asarray(atom.value, atom.aval.dtype).tobytes()))


# ---- constant operands


def with_literals(jaxpr: Jaxpr) -> Jaxpr:
    """The program that reads literals behind barriers as such: they lie nowhere in memory."""
    known: dict[Atom, Literal] = {}
    eqns: list[Eqn] = []
    for eqn in jaxpr.eqns:
        if any(isinstance(a, Var) and a in known for a in eqn.inputs):
            atoms = [known.get(a, a) if isinstance(a, Var) else a for a in eqn.inputs]
            eqn = replace(eqn, inputs=tuple(atoms))
        if any(isinstance(a, Literal) for a in eqn.inputs) and isinstance(classify(eqn), Barrier):
            pairs = zip(eqn.outputs, eqn.inputs, strict=True)
            known |= {v: a for v, a in pairs if isinstance(a, Literal)}
        eqns.append(eqn)
    return replace(jaxpr, eqns=tuple(eqns)) if known else jaxpr


def with_uniforms(jaxpr: Jaxpr) -> Jaxpr:
    """The program in which equations that are kernels of their own read a number that is spread
    over an array as a literal of the array's shape, so that the array need not be made.
    """
    spread = {e.outputs[0]: e.inputs[0] for e in jaxpr.eqns if _spreads(e)}
    if not spread:
        return jaxpr
    eqns = [_reading(e, spread) for e in jaxpr.eqns]
    used = {a for e in eqns for a in e.inputs if isinstance(a, Var)}
    used.update(a for a in jaxpr.outputs if isinstance(a, Var))
    dead = spread.keys() - used
    kept = [e for e in eqns if dead.isdisjoint(e.outputs)]
    return Jaxpr(jaxpr.inputs, tuple(kept), jaxpr.outputs, jaxpr.consts)


def _spreads(eqn: Eqn) -> bool:
    """Whether it gives every element of an array the same constant."""
    if len(eqn.inputs) != 1 or not isinstance(eqn.inputs[0], Literal) or len(eqn.outputs) != 1:
        return False
    form = classify(eqn)
    return isinstance(form, Move) and not form.scalars and all(same(m.valid, 1) for m in form.maps)


def _reading(eqn: Eqn, spread: Mapping[Var, Any]) -> Eqn:
    if not any(isinstance(a, Var) and a in spread for a in eqn.inputs):
        return eqn
    if not isinstance(classify(eqn), Whole):
        return eqn
    atoms = [
        Literal(spread[a].value, a.aval) if isinstance(a, Var) and a in spread else a
        for a in eqn.inputs
    ]
    return Eqn(eqn.prim, tuple(atoms), eqn.outputs, eqn.params, eqn.source)


# ---- checking


def check(
    compiled: Compiled,
    region: Region,
    operands: Sequence[Operand],
    target: Target,
    maker: Maker = NATIVE,
    choices: Choices | None = None,
) -> None:
    """Raises Unsupported unless the kernel does what the primitive's `eval` does."""
    if not config.verify:
        return
    kernel = compiled.kernel
    key = digest(f"{compiled.digest} {region.key} {kernel.extents}")
    if _CHECKED.read(key) is not None:
        return
    vectors = _vectors(kernel, region, maker)
    for given in vectors:
        if breaches := prove_bounds(kernel, traced_sizes(kernel, given)):
            raise Unsupported(f"{kernel.name}: perhaps out of bounds: {breaches[0]}")
    for small in _smaller(region, maker) if vectors == [{}] else ():
        reduced, given_operands, _ = _lowered(small, maker, choices and choices.again())
        alike = replace(reduced, extents=kernel.extents)  # by which code is chosen
        if maker.text(alike, target) == maker.text(kernel, target):  # sizes are arguments
            compiled, region = replace(compiled, kernel=alike), small
            kernel, operands = reduced, given_operands
            break
    if maker.blocks and vectors == [{}] and _elements(region, {}) > MUCH:
        raise Unsupported(
            "no equation of less elements has its kernel, and these are too many to check"
        )
    for number, given in enumerate(vectors):
        sizes = traced_sizes(kernel, given)
        for turn in range(TURNS):
            _compare(compiled, region, operands, given, sizes, number * TURNS + turn, maker)
    _CHECKED.write(key, b"")


def _elements(region: Region, given: Mapping[str, int]) -> int:
    every = (*region.inputs, *region.outputs)
    return sum(int(np.prod(_shape(v.aval.shape, given), dtype=np.int64)) for v in every)


def _smaller(region: Region, maker: Maker) -> Generator[Region]:
    """The equation with long axes shortened, equal ones alike, in some ways; none if it is small,
    or has no such equations.
    """
    if maker.blocks:
        if _elements(region, {}) < SOME:
            return
        for long, side in product(TRIED, SIDES):
            small = _shortened(region, _shorter_sides(region, long, side))
            if small is not None and _elements(small, {}) < 2 * SOME:
                yield small
        return
    if _elements(region, {}) < LARGE:
        return
    least = LONG if isinstance(region.forms[0], Order) else LENGTH  # long rows are sorted otherwise

    def shorter(shape: tuple[int, ...]) -> list[int]:
        return [n if n <= LENGTH else (LENGTH if n < least else least) + n % LENGTH for n in shape]

    if (small := _shortened(region, shorter)) is not None:
        yield small


def _shorter_sides(region: Region, long: int, side: int) -> Shorter:
    """Axes along which something goes on become `long`, others `side`, if they are longer."""
    (eqn,), (form,) = region.eqns, region.forms
    if isinstance(form, Order | Cumulate):
        least = estimate(form.take) if isinstance(form, Order) and form.take is not None else 1
        limits = {form.axis: max(long, least + APART)}
        return lambda shape: [min(n, limits.get(k, side)) for k, n in enumerate(shape)]
    walked = {estimate(n) for n in eqn.inputs[1].aval.shape}
    found: dict[int, int] = {}
    for n in sorted({estimate(n) for a in (*eqn.inputs, *eqn.outputs) for n in a.aval.shape}):
        made = min(n, long if n in walked else side)
        while made < n and any(abs(made - m) < APART for m in found.values()):
            made += 1
        found[n] = made
    return lambda shape: [found.get(n, n) for n in shape]


def _shortened(region: Region, shorter: Shorter) -> Region | None:
    """The equation for arrays of other shapes, if there is one."""
    (eqn,) = region.eqns

    def made(aval: ShapedArray) -> ShapedArray:
        return ShapedArray(tuple(shorter(tuple(map(estimate, aval.shape)))), aval.dtype, aval.weak)

    new = {v: Var(made(v.aval)) for v in region.inputs}
    atoms = [new[a] if isinstance(a, Var) else Literal(a.value, made(a.aval)) for a in eqn.inputs]
    avals = [a.aval for a in atoms]
    try:
        outs = tuple(map(Var, eqn.prim.aval(*avals, **eqn.params)))
        form = eqn.prim.form(*avals, **eqn.params)
    except LumjaxError:
        return None
    again = Eqn(eqn.prim, tuple(atoms), outs, eqn.params, eqn.source)
    return replace(region, inputs=tuple(new.values()), outputs=outs, eqns=(again,), forms=(form,))


def _vectors(kernel: Kernel, region: Region, maker: Maker) -> list[dict[str, int]]:
    """The sizes at which a kernel is checked: the program's, or some where those come with a call,
    each within its bounds and with as many elements as are wanted.
    """
    found = [{str(s.name): estimate(s) for s in open_sizes(kernel)}]
    if not found[0]:
        return found
    for n in (*LENGTHS, TRIED[0]) if maker.blocks else LENGTHS:
        pairs = ((s, *bounds(s)) for s in open_sizes(kernel))
        found.append({str(s.name): max(low or 0, min(n, high or n)) for s, low, high in pairs})
    if maker.blocks:
        found = [found[1], *(g for g in found if _elements(region, g) < 2 * SOME)]
    (eqn,), (form,) = region.eqns, region.forms
    if not isinstance(form, Order) or form.take is None:
        return found
    extent = eqn.inputs[0].aval.shape[form.axis]
    return [g for g in found if evaluate(form.take, g) <= evaluate(extent, g)]


def _compare(
    compiled: Compiled, region: Region, operands: Sequence[Operand], given: Mapping[str, int],
    sizes: Mapping[str, int], seed: int, maker: Maker,
) -> None:  # fmt: skip
    (eqn,), (form,) = region.eqns, region.forms
    rng = np.random.default_rng(seed)
    arrays: dict[str, NDArray] = {}
    values: list[NDArray] = []
    for k, (atom, operand) in enumerate(zip(eqn.inputs, operands, strict=True)):
        shape = _shape(atom.aval.shape, given)
        if isinstance(operand, Uniform):
            one = np.frombuffer(operand.value.bits, operand.value.dtype).reshape(())
            values.append(np.broadcast_to(one, shape))
            continue
        if operand.name not in arrays:
            limits = _limits(form, given, eqn) if _is_index(form, k) else None
            arrays[operand.name] = drawn(rng, shape, operand.dtype, limits)
        values.append(arrays[operand.name])
    params = {n: evaluate(p, given) if isinstance(p, Expr) else p for n, p in eqn.params.items()}
    wanted = eqn.prim.eval(*values, **params)
    assert wanted is not None, "an equation without eval is no kernel"
    given_first = values[0] if isinstance(form, Patch) else None
    got = _run(compiled, arrays, sizes, maker, given_first)
    for buffer, mine, want in zip(compiled.kernel.outputs, got, wanted, strict=True):
        wrong = ~_near(mine, want, form)
        if maker.blocks and isinstance(form, Cumulate) and wrong.any():
            wrong &= ~_near_in_any_order(mine, values[0], eqn, form)
        if wrong.any():
            at = tuple(int(n) for n in np.argwhere(wrong)[0])
            raise Unsupported(
                f"{compiled.kernel.name}: {buffer.name}{list(at)} is {mine[at]}, not {want[at]}"
            )


def _shape(shape: Sequence[Any], given: Mapping[str, int]) -> tuple[int, ...]:
    return tuple([int(evaluate(n, given)) for n in shape])


def _is_index(form: Form, k: int) -> bool:
    return k == 1 if isinstance(form, Update) else k > 1 and isinstance(form, Patch)


def _limits(form: Form, given: Mapping[str, int], eqn: Eqn) -> tuple[int, int]:
    """The least and greatest index that is tried: a little out of range on both sides."""
    if isinstance(form, Update):
        highest = [int(evaluate(high, given)) for _, high in form.bounds]
    else:
        highest = list(_shape(eqn.inputs[0].aval.shape, given))
    return -2, max(highest, default=0) + 2


def drawn(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: dt.DType,
    limits: tuple[int, int] | None = None,
) -> NDArray:  # fmt: skip
    """Values with many equal ones and, among floats, special ones; indices within the limits."""
    if limits is not None:
        low, high = limits
        info = dt.iinfo(dtype)
        low, high = max(low, int(info.min)), min(high, int(info.max))
        return rng.integers(low, high, shape, np.int64, endpoint=True).astype(dtype)
    if dtype == np.dtype(bool):
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype in dt.INTEGER:
        info = dt.iinfo(dtype)
        kind = np.dtype(np.uint64) if dt.is_unsigned(dtype) else np.dtype(np.int64)
        wide = rng.integers(int(info.min), int(info.max), shape, kind, endpoint=True)
        small = rng.integers(0, 4, shape, kind)
        return np.where(rng.random(shape) < 0.5, wide, small).astype(dtype)
    found = np.where(rng.random(shape) < 0.5, rng.normal(size=shape), rng.integers(-2, 3, shape))
    flat = found.reshape(-1)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan]
    places = rng.integers(0, max(1, flat.size), min(flat.size // 8, 24))
    flat[places] = rng.choice(special, places.size)
    return found.astype(dtype)


def _run(
    compiled: Compiled, arrays: Mapping[str, NDArray], sizes: Mapping[str, int], maker: Maker,
    before: NDArray | None = None,
) -> list[NDArray]:  # fmt: skip
    """The kernel's results, in memory that holds `before` where it is given."""
    kernel = compiled.kernel
    made = {
        b.name: np.zeros(_shape(b.shape, sizes), b.dtype)
        for b in (*kernel.outputs, *kernel.workspace)
    }
    if before is not None:
        made[kernel.outputs[0].name][...] = before
    maker.run(compiled, {**arrays, **made}, sizes)
    return [made[b.name] for b in kernel.outputs]


def _near(got: NDArray, want: NDArray, form: Form) -> NDArray:
    """Elementwise agreement. The order of every step is the same, so that only a step that is no
    single operation may differ, by its rounding.
    """
    if not dt.is_inexact(got.dtype):
        return got == want
    wide = np.result_type(dt.accumulation_dtype(got.dtype), np.float32)
    x, y = got.astype(wide), want.astype(wide)
    alike = (x == y) | (np.isnan(x) & np.isnan(y))
    if isinstance(form, Cumulate) and form.op.emit is not None:
        steps = 4.0 * (1 + got.shape[form.axis])
        unit = float(dt.finfo(got.dtype).eps) + steps * float(np.finfo(np.float64).eps)
        with np.errstate(invalid="ignore"):
            alike |= np.abs(x - y) <= unit * (1 + np.abs(y))
    return alike


def _near_in_any_order(got: NDArray, x: NDArray, eqn: Eqn, form: Cumulate) -> NDArray:
    """Agreement with what is computed in a wider dtype, as far as steps in another order may
    differ: by a rounding of each of the few that an element has gone through.
    """
    carried = np.dtype(form.dtype)
    if not dt.is_inexact(carried):
        return np.zeros(got.shape, bool)
    wide = np.complex128 if carried in dt.COMPLEX else np.float64
    run = eqn.prim.eval
    want = np.asarray((run(x.astype(wide), **eqn.params) or [0])[0])
    unit = float(dt.finfo(carried).eps) * DEPTH + 2 * float(dt.finfo(got.dtype).eps)
    y = got.astype(wide)
    with np.errstate(all="ignore"):
        scale = 1 + np.abs(want)
        if form.op.name == "mul":
            scale = np.abs(want)
        elif form.op.name == "add":
            total = np.asarray((run(np.abs(x.astype(wide)), **eqn.params) or [0])[0])
            scale = np.where(np.isfinite(total), np.abs(total), np.abs(want))
        least = float(dt.finfo(got.dtype).tiny)
        limit = np.where(np.isfinite(scale), scale * unit, 0) + least
        return (y == want) | (np.isnan(y) & np.isnan(want)) | (np.abs(y - want) <= limit)
