"""Check a kernel against the terms it was made from, before anything relies on it.

    check_kernel(kernel, group, run) -> Verdict

`run(kernel, buffers, sizes)` executes it: `buffers` maps the name of every buffer of the kernel
(workspace included) to an array, `sizes` every size symbol to its value. Three things are
checked: that all accesses are in bounds (`bounds.prove_bounds`); that at three reduced size
vectors (small job shares, residues kept) the results agree with float64, on moderate and on
adversarial values; and that at full size sampled outputs agree, each computed by itself. An
element passes if it is near the float64 result or near NumPy's in the term's own dtypes: the
former judges rounding, the latter overflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.kernel.bounds import prove_bounds
from lumjax.kernel.evaluate import (
    ROUNDED,
    bound_axes,
    by_axes,
    evaluate,
    evaluate_at,
    evaluate_group,
    evaluate_group_at,
    extent,
    factors,
    strain,
)
from lumjax.kernel.guard import Canaries
from lumjax.kernel.ir import Kernel
from lumjax.kernel.prepare import Prepared, parametrise
from lumjax.kernel.rounded import epsilon
from lumjax.kernel.term import Buffer, Group, Reduction, Root, free_names, subterms
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim, Expr
from lumjax.trace.expr import leaves

Array: TypeAlias = np.ndarray[Any, Any]
Run: TypeAlias = Callable[[Kernel, dict[str, Array], dict[str, int]], None]

Again: TypeAlias = Callable[[bool, int | None], Array]

REDUCED_WORK = 1 << 15  # points of the largest loop nest in a reduced run
FULL_WORK = 1 << 24  # elements of all buffers, and points of one sample's reductions, at full size
FALLBACK_WORK = 1 << 22  # points of the largest loop nest of a scalar kernel at full size
SAMPLED_WORK = 1 << 19  # points of the reductions of all samples of one output
SAMPLES = 64
LENGTHS = (67, 1, 32, 19)  # that a size takes which is known only at run time
MOST_UNJUDGED = 0.5  # of an output's elements: with more near overflow, smaller inputs are tried
STRAIN = 0.25  # of the largest finite value: what intermediates may reach without overflow
_LEAST = 2.0**-8  # by which moderate values are multiplied until nothing overflows
SPECIALS = (math.nan, math.inf, -math.inf, -0.0, 1e-40)


class Values(Enum):
    """What the inputs are filled with."""

    MODERATE = "moderate"
    LARGE = "large"  # as large as keeps every intermediate far from overflow
    SPECIAL = (
        "special"  # one nan, infinity, zero or denormal, or a row of -inf, among moderate ones
    )


@record
class Verdict:
    """Whether a kernel is accepted; if not, where it went wrong, what it gave, what it should.

    `unjudged` is the share of elements that were not looked at since overflow is near.
    """

    ok: bool
    where: str = ""
    got: Any = None
    want: Any = None
    tolerance: float = 0.0
    unjudged: float = 0.0


ACCEPTED = Verdict(True)


def check_kernel(
    kernel: Kernel,
    group: Group,
    run: Run,
    given: Mapping[str, int] | None = None,
    seed: int = 0,
    full: bool = True,
) -> Verdict:
    """Whether `kernel` computes `group`, as far as the module's checks can tell.

    Sizes known only at run time take several values, unless those of `given` are all that matters.
    `full=False` leaves out the run at full size.
    """
    check = _Check(kernel, parametrise(group), run, seed)
    typical = {str(s.name): dims.estimate(s) for s in open_sizes(kernel)}
    sizes = traced_sizes(kernel, typical if given is None else given)
    vectors = [sizes] if given else list(check.varied() if typical else check.reduced(sizes))
    turns = (Values.LARGE, Values.SPECIAL, Values.MODERATE)
    proved = check.proved(sizes)
    for n in range(max(3, len(vectors)) if proved.ok else 0):
        vector, values = vectors[n % len(vectors)], turns[n % 3]
        proved = check.proved(vector) if n == 0 or typical else proved
        if not proved.ok:
            return proved
        verdict = check.at(vector, values, f"{values.value} values at sizes {vector}", seed + n)
        if not verdict.ok:
            return verdict
    if full and proved.ok and sizes not in vectors:
        return check.at_full(sizes)
    return proved


def traced_sizes(kernel: Kernel, given: Mapping[str, int]) -> dict[str, int]:
    """The value of every size symbol in the traced program, dynamic sizes as given."""
    return {
        n: int(dims.evaluate(e, given)) for n, e in zip(kernel.sizes, kernel.extents, strict=True)
    }


def open_sizes(kernel: Kernel) -> list[Expr]:
    """The symbols whose values are known only at run time."""
    found = {s for e in kernel.extents if isinstance(e, Expr) for s in leaves(e)}
    return sorted(found, key=lambda s: s.key)


def proved_everywhere(kernel: Kernel) -> bool:
    """Whether every access is in bounds whatever the sizes are that are known only at run time."""
    return not prove_bounds(kernel, dict(zip(kernel.sizes, kernel.extents, strict=True)))


class _Check:
    def __init__(self, kernel: Kernel, prepared: Prepared, run: Run, seed: int) -> None:
        self.kernel = kernel
        self.prepared = prepared
        self.run = run
        self.seed = seed
        self.factor = 1.0  # of all inputs: smaller where moderate ones overflow
        self.scales = True  # whether smaller inputs may help
        self.nests = list(_nests(prepared.group))

    # ---- sizes

    def reduced(self, sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
        """Three size vectors with the residues of the traced one, small enough to check quickly."""
        seen: list[dict[str, int]] = []
        for turn in range(3):
            vector = self.smaller(sizes, turn)
            if vector not in seen:
                seen.append(vector)
                yield vector

    def varied(self) -> Iterator[dict[str, int]]:
        """Size vectors in which sizes known only at run time are one, parts of blocks and several
        blocks, each within its bounds.
        """
        found = open_sizes(self.kernel)
        for turn in range(len(LENGTHS)):
            lengths = [LENGTHS[(turn + k) % len(LENGTHS)] for k in range(len(found))]
            while True:
                given = {str(s.name): _within(s, n) for s, n in zip(found, lengths, strict=True)}
                vector = self.smaller(traced_sizes(self.kernel, given), turn)
                if self.work(vector) <= REDUCED_WORK or max(lengths) == 1:
                    break
                lengths = [-(-n // 2) for n in lengths]
            yield vector

    def smaller(self, sizes: Mapping[str, int], turn: int) -> dict[str, int]:
        """Sizes that are cheap to check: what the program says of a size holds of them too."""
        known = zip(self.kernel.sizes, self.kernel.extents, strict=True)
        constant = [n for n, extent in known if isinstance(extent, int)]
        extents = [n for n in constant if n in self.prepared.sizes]
        shares = [n for n in constant if n not in self.prepared.sizes]
        vector = dict(sizes)
        for period in (64, 32, 16, 8, 4, 2):
            for k, name in enumerate(extents):
                vector[name] = _reduce(sizes[name], period, 1 + (turn + k) % 3)
            if self.work(vector) <= REDUCED_WORK:
                break
        for k, name in enumerate(shares):
            vector[name] = min(sizes[name], (sizes[name], 5, 3)[(turn + k) % 3])
        return vector

    def work(self, sizes: Mapping[str, int]) -> int:
        """Points of the largest loop nest."""
        return max((int(dims.evaluate(n, sizes)) // d for n, d in self.nests), default=1)

    # ---- data

    def buffers(self, sizes: Mapping[str, int], canaries: Canaries) -> dict[str, Array]:
        """Every buffer of the kernel, inputs still to be filled."""
        return {
            b.name: canaries.empty(b.name, [int(dims.evaluate(n, sizes)) for n in b.shape], b.dtype)
            for b in self.kernel.buffers
        }

    def fill(
        self, arrays: Mapping[str, Array], sizes: Mapping[str, int], values: Values, seed: int
    ) -> None:
        """Values for every input."""
        rng = np.random.default_rng(seed)
        for b in self.kernel.inputs:
            array = arrays[b.name]
            moderate(rng, array)
            if self.factor < 1 and dt.is_floating(b.dtype):
                array *= b.dtype.type(self.factor)
            if values is Values.SPECIAL and array.size and dt.is_floating(b.dtype):
                plant(rng, array)
        if values is Values.LARGE:
            self.enlarge(arrays, sizes)

    def enlarge(self, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        """Scale the inputs up by the largest factor that keeps all roots inside the envelope."""
        floats = [b for b in self.kernel.inputs if dt.is_floating(b.dtype)]
        for factor in (64.0, 16.0, 4.0):
            scaled = {b.name: arrays[b.name] * b.dtype.type(factor) for b in floats}
            trial = {**arrays, **scaled}
            roots = self.prepared.group.roots
            if all(strain(r, trial, sizes).max(initial=0.0) < STRAIN for r in roots):
                for b in floats:
                    arrays[b.name][...] = scaled[b.name]
                return

    # ---- checks

    def proved(self, sizes: Mapping[str, int]) -> Verdict:
        """Whether every access is in bounds."""
        for breach in prove_bounds(self.kernel, sizes):
            where = f"{breach.kind} {breach.buffer}[{breach.offset}] at sizes {dict(sizes)}"
            return Verdict(False, where, breach.offset, f"< {breach.elements}")
        return ACCEPTED

    def at(self, sizes: dict[str, int], values: Values, where: str, seed: int) -> Verdict:
        """Every output at one size vector, with smaller inputs where the roots overflow."""
        verdict, overflows = self._at(sizes, values, where, seed)
        given, first = self.factor, verdict
        while overflows and self.scales:
            self.factor /= 8
            verdict, overflows = self._at(sizes, values, where, seed)
            if overflows and self.factor < _LEAST:  # whatever the inputs are
                self.factor, self.scales, verdict = given, False, first
        return verdict

    def _at(
        self, sizes: dict[str, int], values: Values, where: str, seed: int
    ) -> tuple[Verdict, bool]:
        """The verdict, and whether exact values are too large for the dtypes."""
        canaries = Canaries()
        arrays = self.buffers(sizes, canaries)
        self.fill(arrays, sizes, values, seed)
        self.run(self.kernel, arrays, sizes)
        if broken := canaries.broken():
            text = f"{where}: memory around {', '.join(broken)} was overwritten"
            return Verdict(False, text), False
        wide = evaluate_group(self.prepared.group, arrays, sizes, wide=True)
        overflows = False
        for root in self.prepared.group.roots:
            want = wide[root.buffer.name]
            if dt.is_floating(want.dtype):
                size = np.abs(want[np.isfinite(want)]).max(initial=0.0)
                overflows |= bool(size >= STRAIN * float(dt.finfo(root.buffer.dtype).max))
            got = arrays[root.buffer.name].reshape(want.shape)
            again = partial(self.again, root, arrays, sizes, None)
            outside = partial(self.outside, root, arrays, sizes, None)
            verdict = compare(root, got, want, again, where, outside)
            if not verdict.ok:
                return verdict, overflows
            if verdict.unjudged > MOST_UNJUDGED:
                return compare(root, got, want, again, where), True
        return ACCEPTED, overflows

    def at_full(self, sizes: dict[str, int]) -> Verdict:
        """Sampled outputs at the traced sizes."""
        if sum(_elements(b, sizes) for b in self.kernel.buffers) > FULL_WORK:
            return ACCEPTED
        if not self.kernel.programs and self.work(sizes) > FALLBACK_WORK:
            return ACCEPTED  # would take seconds; its loops are the same at every size
        canaries = Canaries()
        arrays = self.buffers(sizes, canaries)
        self.fill(arrays, sizes, Values.MODERATE, self.seed)
        self.run(self.kernel, arrays, sizes)
        if broken := canaries.broken():
            return Verdict(False, f"full size: memory around {', '.join(broken)} was overwritten")
        for roots in by_axes(self.prepared.group.roots):
            shape = [extent(a, sizes) for a in roots[0].axes]
            coords = samples(shape, max(per_sample(r, sizes) for r in roots), self.seed)
            if not len(coords):
                continue
            wide = evaluate_group_at(Group(roots), arrays, coords, sizes, wide=True)
            for root in roots:
                got = arrays[root.buffer.name].reshape(shape)[tuple(coords.T)]
                again = partial(self.again, root, arrays, sizes, coords)
                want = wide[root.buffer.name]
                outside = partial(self.outside, root, arrays, sizes, coords)
                verdict = compare(root, got.reshape(len(coords)), want, again, "full size", outside)
                if not verdict.ok:
                    return verdict
        return ACCEPTED

    def again(
        self,
        root: Root,
        arrays: Mapping[str, Array],
        sizes: Mapping[str, int],
        coords: Array | None,
        wide: bool,
        seed: int | None,
    ) -> Array:
        """The root evaluated once more, at `coords` if given, with rounding errors if seeded."""
        if coords is None:
            return evaluate(root, arrays, sizes, wide, seed)
        return evaluate_at(root, arrays, coords, sizes, wide, seed)

    def outside(
        self,
        root: Root,
        arrays: Mapping[str, Array],
        sizes: Mapping[str, int],
        coords: Array | None,
    ) -> Array:
        """Where some intermediate result comes near to overflow, which rounding may decide."""
        return strain(root, arrays, sizes, coords) >= STRAIN


def _nests(group: Group) -> Iterator[tuple[Dim, int]]:
    """The points of every loop nest, and what to divide them by for their cheapness."""
    for root in group.roots:
        extents = {a.name: a.extent for a in (*root.axes, *bound_axes(root.term))}
        yield math.prod((a.extent for a in root.axes), start=1), 1
        for t in subterms(root.term):
            if isinstance(t, Reduction):
                names = {*free_names(t), *(a.name for a in t.axes)} & extents.keys()
                points = math.prod((extents[n] for n in sorted(names)), start=1)
                yield points, 16 if factors(t) else 1


def _elements(buffer: Buffer, sizes: Mapping[str, int]) -> int:
    return int(dims.evaluate(math.prod(buffer.shape, start=1), sizes))


def _within(size: Expr, n: int) -> int:
    low, high = dims.bounds(size)
    n = n if low is None else max(n, low)
    return n if high is None else min(n, high)


def _reduce(n: int, period: int, turns: int) -> int:
    return n if n < (turns + 1) * period else n % period + turns * period


def per_sample(root: Root, sizes: Mapping[str, int]) -> int:
    """Points that the reductions of one output element visit."""
    counts = [
        math.prod(extent(a, sizes) for a in t.axes)
        for t in subterms(root.term)
        if isinstance(t, Reduction)
    ]
    return max(1, math.prod(counts) if len(counts) < 3 else max(counts) * len(counts))


def samples(shape: Sequence[int], cost: int, seed: int) -> Array:
    """Corners and random coordinates of an array, as the budget allows; [samples, rank]."""
    if 0 in shape or cost > FULL_WORK:
        return np.zeros((0, len(shape)), np.int64)
    rng = np.random.default_rng(seed)
    count = max(1, min(SAMPLES, SAMPLED_WORK // cost))
    rows = [np.zeros(len(shape), np.int64), np.asarray(shape, np.int64) - 1]
    rows += [rng.integers(0, shape, len(shape)) for _ in range(count)]
    for k, n in enumerate(shape if count > len(shape) else ()):  # edges of one axis at a time
        for at in (0, n - 1, n // 2):
            row = rng.integers(0, shape, len(shape))
            row[k] = at
            rows.append(row)
    return np.unique(np.stack(rows), axis=0) if shape else np.zeros((1, 0), np.int64)


def moderate(rng: np.random.Generator, array: Array) -> None:
    """Fill with random values of moderate size; large arrays repeat a block of prime length."""
    dtype = array.dtype
    n = min(array.size, 65537)
    if dt.is_bool(dtype):
        block = rng.integers(0, 2, n).astype(bool)
    elif dt.is_integer(dtype):
        block = rng.integers(0, 100, n).astype(dtype)
    elif dt.is_complex(dtype):
        block = (rng.standard_normal(n) + 1j * rng.standard_normal(n)).astype(dtype)
    elif dt.is_floating(dtype):
        block = rng.uniform(-2.0, 2.0, n).astype(np.float32).astype(dtype)
    else:
        block = np.frombuffer(rng.bytes(n * dtype.itemsize), dtype)
    flat = array.reshape(-1)
    whole = flat.size - flat.size % max(n, 1)
    flat[:whole].reshape(-1, max(n, 1))[...] = block
    flat[whole:] = block[: flat.size - whole]


def plant(rng: np.random.Generator, array: Array) -> None:
    """One special value somewhere, or a whole row of -inf."""
    kind = int(rng.integers(0, len(SPECIALS) + 1))
    if kind == len(SPECIALS):
        rows = array.reshape(-1, array.shape[-1] if array.ndim else 1)
        rows[int(rng.integers(0, len(rows)))] = -math.inf
    else:
        with np.errstate(all="ignore"):
            array.reshape(-1)[int(rng.integers(0, array.size))] = SPECIALS[kind]


# ---- comparison


def compare(
    root: Root,
    got: Array,
    wide: Array,
    again: Again,
    where: str,
    outside: Callable[[], Array] | None = None,
) -> Verdict:
    """Whether results are as near to the float64 ones as rounding allows; those `outside` of what
    is far from overflow do not count.

    `again(wide, seed)` evaluates the root once more: in its own dtypes, or with random rounding
    errors in every intermediate result. It is asked only about results that are not near: they may
    cancel, or a comparison or rounding inside the root may jump.
    """
    if got.size == 0:
        return ACCEPTED
    with np.errstate(all="ignore"):
        tolerance = tolerances(root, wide)
        wrong = ~near(got, wide, tolerance)
        if wrong.any():
            narrow = again(False, None)
            if dt.is_inexact(root.buffer.dtype):
                tolerance = tolerance + 32 * noise(wide, narrow)
            wrong = ~(near(got, wide, tolerance) | near(got, narrow, tolerance))
        if wrong.any():
            tolerance = tolerance + 8 * spread(wide, again)
            wrong &= ~near(got.astype(wide.dtype), wide, tolerance) | ~np.isfinite(wide)
        if wrong.any():
            wrong &= ~reachable(got, tolerance, again)
    unjudged = 0.0
    if wrong.any() and outside is not None:
        ignored = outside()
        wrong, unjudged = wrong & ~ignored, float(ignored.mean())
    if not wrong.any():
        return Verdict(True, unjudged=unjudged) if unjudged else ACCEPTED
    at = tuple(int(k) for k in np.argwhere(wrong)[0])
    return Verdict(
        False, f"{root.buffer.name}{list(at)}, {where}", got[at], wide[at], float(tolerance[at])
    )


def near(got: Array, want: Array, tolerance: Array) -> Array:
    """Elementwise agreement; nan agrees with nan, infinities with themselves."""
    if not dt.is_inexact(got.dtype) and not np.any(tolerance):
        return got == want
    if not dt.is_inexact(got.dtype):
        return np.abs(got.astype(np.float64) - want.astype(np.float64)) <= tolerance
    x = got.astype(want.dtype if want.dtype.kind in "fc" else np.float32)
    y = want.astype(x.dtype)
    return (x == y) | (np.isnan(x) & np.isnan(y)) | (np.abs(x - y) <= tolerance)


def tolerances(root: Root, wide: Array) -> Array:
    """Some units in the last place of each value and of the largest one, in the coarsest dtype."""
    unit = precision(root)
    if not unit:
        return np.zeros(wide.shape)
    finite = np.isfinite(wide)
    scale = float(np.abs(wide[finite]).max()) if finite.any() else 0.0
    return unit * (32 * np.where(finite, np.abs(wide), 0.0) + 8 * scale)


@lru_cache(maxsize=256)
def precision(root: Root) -> float:
    """The epsilon of the root's coarsest dtype, times the square root of its number of sums."""
    found = list(subterms(root.term))
    floats = [epsilon(t) for t in found if dt.is_inexact(t.dtype)]
    if not floats:
        return 0.0
    if dt.is_inexact(root.buffer.dtype):
        floats.append(float(dt.finfo(root.buffer.dtype).eps))
    eps = max(floats)
    return eps * math.sqrt(1 + sum(isinstance(t, Reduction) for t in found))


def spread(wide: Array, again: Again) -> Array:
    """How far rounding errors move each result."""
    far = np.zeros(wide.shape)
    real = wide if dt.is_inexact(wide.dtype) else wide.astype(np.float64)
    for seed in range(4):
        far = np.fmax(far, np.abs(again(True, seed).astype(real.dtype) - real))
    return np.where(np.isfinite(far), far, 0.0)


def reachable(got: Array, tolerance: Array, again: Again) -> Array:
    """Where rounding errors alone lead to this result: an infinity over a sum that cancels may have
    either sign, and is nan where the sum is zero once it is rounded.
    """
    found = np.zeros(got.shape, bool)
    for seed in range(4 * ROUNDED, 8):
        found |= near(got, again(True, seed), tolerance)
    return found


def noise(wide: Array, narrow: Array) -> float:
    """The largest rounding error that NumPy makes in the term's own dtypes."""
    error = np.abs(narrow.astype(wide.dtype) - wide)
    error = error[np.isfinite(error)]
    return float(error.max()) if error.size else 0.0
