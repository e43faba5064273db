"""Cut a simplified, expanded Jaxpr into regions: pieces that are searched and lowered alone.

Equations get levels: an edge into a contraction's costly operand, into or out of an equation that
runs alone (opaque, effectful, a barrier), goes up one level; every other edge joins equations of
one level into one region. Edges never go down, so regions depend on each other acyclically. Views,
cheap cones that several regions need, and values too large to store (`inside.py`) are cloned into
each. Repeated regions (layers, optimizer leaves) have equal keys.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

from lumjax import dtype as dt
from lumjax.kernel.acyclic import acyclic
from lumjax.kernel.digest import digest, has_text, operation_text, region_text
from lumjax.kernel.inside import Inside
from lumjax.kernel.remat import Parts, recompute
from lumjax.record import record
from lumjax.trace.core import Atom, Effect, Eqn, Jaxpr, Var
from lumjax.trace.dim import Dim, estimate, symbols
from lumjax.trace.form import (
    Barrier,
    Choose,
    Contract,
    Expand,
    Form,
    Iota,
    Map,
    Move,
    Opaque,
    Reduce,
    Repeat,
    ScalarOp,
    Scatter,
    Single,
    Size,
    Whole,
)
from lumjax.trace.simplify import freeze, uncollected

LIMIT = 256  # equations per region: keeps e-graphs small and lets layers repeat
_SHARED = 1024  # equations that read one array of at least this many elements belong together
_SUMMARY = 16  # how many times larger than its result an array must be whose sum is small
_FEW_ROWS = 16  # so few read a contraction's operand while it goes by, if that may save a pass
_RUN = 16  # elements in a row that a layout for contractions must keep together
_LIGHT_CLONES = 64
_CLONES = 24  # equations at most in a cone that is cloned rather than stored


@record(eq=False)
class Region:
    """Compilable equations. `outputs` are used outside; equal `key`s mean equal programs.

    Values in `inside` are too large to store: reading them twice means computing them twice.
    """

    inputs: tuple[Var, ...]
    outputs: tuple[Var, ...]
    eqns: tuple[Eqn, ...]
    forms: tuple[Form, ...]
    key: str
    inside: frozenset[Var] = frozenset()


@record(eq=False)
class Alone:
    """An equation that runs by itself: through its `eval`, or as a loop or choice over programs; a
    barrier renames its operands.
    """

    eqn: Eqn
    form: Single


Step: TypeAlias = Region | Alone


def volume(shape: Sequence[Dim]) -> int:
    """The number of elements of a shape, for weighing only."""
    return _volume(tuple(shape))


@lru_cache(maxsize=4096)
def _volume(shape: tuple[Dim, ...]) -> int:
    total = 1
    for d in shape:
        total *= estimate(d)
    return total


def _elements(atom: Atom) -> int:
    return volume(atom.aval.shape)


def _bytes(atom: Atom) -> int:
    return _elements(atom) * atom.aval.dtype.itemsize


# Whether the backend has code for a scalar operation on operands of these dtypes with that result.
NativeTest: TypeAlias = Callable[[ScalarOp, tuple[dt.DType, ...], dt.DType], bool]


def classify(eqn: Eqn, native: NativeTest | None = None) -> Form:
    """The equation's form as far as kernels can express it, else Opaque with the reason."""
    form = eqn.prim.form(*(a.aval for a in eqn.inputs), **eqn.params)
    if isinstance(form, (Opaque, Barrier)):
        return form
    if eqn.effect is not Effect.NONE:
        return Opaque(f"{eqn.prim.name} has an effect")
    if isinstance(form, (Repeat, Choose)):
        return form
    for atom in (*eqn.inputs, *eqn.outputs):
        if atom.aval.dtype not in dt.NUMERIC or dt.is_complex(atom.aval.dtype):
            return Opaque(f"{dt.short_name(atom.aval.dtype)} values are computed by eval")
    if isinstance(form, Whole):
        return form if has_text(eqn.params) else Opaque("its parameters have no stable text")
    if isinstance(form, Expand) or len(eqn.outputs) != 1:
        return Opaque(f"{eqn.prim.name} has no single-output form")
    if not has_text(eqn.params):
        return Opaque(f"{eqn.prim.name} has parameters without a stable text")
    if isinstance(form, (Map, Scatter)) and form.op is not None and native is not None:
        operands = eqn.inputs if isinstance(form, Map) else eqn.inputs[::2]
        dtypes = tuple(a.aval.dtype for a in operands)
        if not native(form.op, dtypes, eqn.outputs[0].aval.dtype):
            listing = ", ".join(map(dt.short_name, dtypes))
            return Opaque(f"no native code for {form.op.name}({listing})")
    return form


class _Classes:
    """The forms and texts of equations; equations that look the same share them."""

    def __init__(self, native: NativeTest | None) -> None:
        self.native = native
        self.known: dict[Any, tuple[Form, str, bool]] = {}

    def of(self, eqn: Eqn) -> tuple[Form, str, bool]:
        """The equation's form, the text of what it does (empty where it runs alone), and whether it
        does nothing.
        """
        avals = [(a.aval.shape, a.aval.dtype) for a in (*eqn.inputs, *eqn.outputs)]
        key = (eqn.prim, tuple(avals), freeze(eqn.params))
        found = self.known.get(key)
        if found is None:
            form = classify(eqn, self.native)
            alone = isinstance(form, Single)
            text = "" if alone else operation_text(eqn.prim.name, form, eqn.params)
            nothing = isinstance(form, Move) and form.maps[0].is_identity(eqn.inputs[0].aval.shape)
            found = self.known[key] = form, text, nothing
        return found


class _Cutter:
    def __init__(self, jaxpr: Jaxpr, limit: int, native: NativeTest | None) -> None:
        self.jaxpr, self.limit = jaxpr, limit
        self.kept = frozenset(a for a in jaxpr.outputs if isinstance(a, Var))
        self.eqns: list[Eqn] = []
        self.forms: list[Form] = []
        self.texts: list[str] = []
        self._classify(_Classes(native))
        self.effects = [e.effect for e in self.eqns]
        self.alone = [isinstance(f, Single) for f in self.forms]
        self.maker = {v: k for k, e in enumerate(self.eqns) for v in e.outputs}
        self.users: dict[Var, list[int]] = {}
        self.reads = [tuple(_variables(e.inputs)) for e in self.eqns]
        self.made = [tuple([v for v in reads if v in self.maker]) for reads in self.reads]
        self.below = [tuple([self.maker[v] for v in made]) for made in self.made]
        for k, reads in enumerate(self.reads):
            for v in reads:
                self.users.setdefault(v, []).append(k)
        found = Inside(self.eqns, self.forms, self.alone, self.below, self.users, _elements, volume)
        self.family = found.find(self.kept)
        self.rescaled = found.rescaled()
        self.inside = [f is not None for f in self.family]
        self.heavy = self._heavy()
        self.settled = self._settled()
        self.cloned, self.light = self._cones()
        self.update = self._updates()
        self.level = self._levels()
        self._sink()

    def _classify(self, classes: _Classes) -> None:
        """The equations that do something, with their forms and texts."""
        names: dict[Atom, Atom] = {}
        for eqn in self.jaxpr.eqns:
            form, text, nothing = classes.of(eqn)
            if names and any(a in names for a in eqn.inputs):
                atoms = tuple([names.get(a, a) for a in eqn.inputs])
                eqn = Eqn(eqn.prim, atoms, eqn.outputs, eqn.params, eqn.source)
            if nothing and eqn.outputs[0] not in self.kept:
                names[eqn.outputs[0]] = eqn.inputs[0]
                continue
            self.eqns.append(eqn)
            self.forms.append(form)
            self.texts.append(text)

    def _heavy(self) -> list[bool]:
        """Whether a reduction lies between an equation and what exists before its region."""
        heavy: list[bool] = []
        for k, below in enumerate(self.below):
            above = True in [heavy[m] for m in below]
            own = isinstance(self.forms[k], (Reduce, Contract))
            heavy.append(not self.alone[k] and (own or above))
        return heavy

    def _settled(self) -> list[bool]:
        """Whether an equation lays out for contractions alone what a reduction computed.

        Then it is stored in that layout, if its runs are long, rather than rearranged at each use.
        """
        settled = [False] * len(self.eqns)
        for k in reversed(range(len(self.eqns))):
            form, eqn = self.forms[k], self.eqns[k]
            if not isinstance(form, Move) or len(form.maps) != 1 or self.alone[k]:
                continue
            v, out = eqn.inputs[0], eqn.outputs[0]
            users = self.users.get(out, ())
            if (
                isinstance(v, Var)
                and v in self.maker
                and self.heavy[self.maker[v]]
                and not self.inside[self.maker[v]]
                and v not in self.kept
                and self.users[v] == [k]
                and users
                and all(isinstance(self.forms[u], Contract) or settled[u] for u in users)
                and _elements(v) == _elements(out)
            ):
                settled[k] = estimate(form.maps[0].contiguous_run(v.aval.shape)) >= _RUN
        for k in range(len(self.eqns)):
            made = self.below[k][0] if settled[k] else k
            if settled[k] and isinstance(self.forms[made], Move):
                settled[k] = settled[made]
        return settled

    def _cones(self) -> tuple[list[bool], list[bool]]:
        """For each equation whether its cone may be cloned, and whether that costs nothing: then it
        starts from single numbers, and from no reduction.
        """
        cones: list[tuple[set[int], set[Var]] | None] = []
        lights: list[bool] = []
        for k, eqn in enumerate(self.eqns):
            own, leaves = {k}, set[Var]()
            for v in self.reads[k]:
                made = self.maker.get(v)
                below = None if made is None else cones[made]
                if below is None:
                    leaves.add(v)
                else:
                    own |= below[0]
                    leaves |= below[1]
            light = not self.heavy[k] and all(_elements(v) == 1 for v in leaves)
            match self.forms[k]:
                case Iota() | Size() | Move(maps=(_,)):
                    clone = not self.settled[k]
                case Map():
                    clone = light or 4 * sum(map(_bytes, leaves)) <= _bytes(eqn.outputs[0])
                case _:
                    clone = False
            clone = clone and len(own) <= (_LIGHT_CLONES if light else _CLONES)
            cones.append((own, leaves) if clone else None)
            lights.append(clone and light)
        return [c is not None for c in cones], lights

    def _updates(self) -> list[bool]:
        """Whether an equation begins to update stored arrays by a small result of a reduction.

        Nothing that depends on it is larger, and at least two stored arrays of its size are read:
        what computes the result gains little by doing that as well, and updates repeat.
        """
        largest = [0] * len(self.eqns)  # elements of anything computed from the equation
        others = [0] * len(self.eqns)  # stored arrays that are read on the way, at least
        update = [False] * len(self.eqns)
        for k in reversed(range(len(self.eqns))):
            eqn = self.eqns[k]
            size = max(map(_elements, eqn.outputs), default=0)
            users = [u for v in eqn.outputs for u in self.users.get(v, ())]
            ends = self.alone[k] or isinstance(self.forms[k], (Reduce, Contract))
            largest[k] = max([size, *(largest[u] for u in users)])
            if ends or any(self.alone[u] for u in users):
                largest[k] = 1 << 62  # not elementwise to the end
            own = sum(_elements(a) == size and self._exists(a) for a in eqn.inputs)
            others[k] = min(4, own + sum(others[u] for u in users))
            update[k] = isinstance(self.forms[k], Map) and largest[k] <= size and others[k] >= 2
        return update

    def _exists(self, atom: Atom) -> bool:
        """Whether no reduction of the region is needed to know the array, and it is none."""
        if not isinstance(atom, Var) or not atom.aval.ndim:
            return False
        made = self.maker.get(atom)
        return made is None or not (self.heavy[made] or self.cloned[made])

    def _steps_up(self, v: Var, k: int) -> int:
        """How many levels the edge from `v` to equation `k` climbs."""
        made = self.maker[v]
        if self.alone[made] or self.alone[k]:
            return 1
        eqn = self.eqns[k]
        if self.update[k] and isinstance(self.forms[made], Reduce):
            return int(_elements(self.eqns[made].inputs[0]) >= _SUMMARY * _elements(v))
        if not isinstance(self.forms[k], Contract) or not self.heavy[made] or self.inside[made]:
            return 0
        if self.rescaled[made] and self._goes_by(v, k):
            return 0
        others = sum(_elements(a) for a in (*eqn.inputs, *eqn.outputs) if a is not v)
        return int(_elements(v) <= 4 * others)

    def _goes_by(self, v: Var, k: int) -> bool:
        """Whether few rows of `v` share the operand that equation k contracts it with."""
        form, eqn = self.forms[k], self.eqns[k]
        assert isinstance(form, Contract), "it has two operands"
        maps = [m for a, m in zip(eqn.inputs, (form.rhs, form.lhs), strict=True) if a is v]
        if len(maps) != 1:
            return False
        used = symbols(*maps[0].coords)
        kept = maps[0].domain[: len(maps[0].domain) - form.reduced]
        rows = [n for d, n in enumerate(kept) if f"d{d}" not in used]
        return volume(rows) <= _FEW_ROWS

    def _levels(self) -> list[int]:
        levels: list[int] = []
        last_effect = 0
        for k in range(len(self.eqns)):
            level = max(
                [levels[self.maker[v]] + self._steps_up(v, k) for v in self.made[k]], default=0
            )
            if self.effects[k] is not Effect.NONE:
                level = last_effect = max(level, last_effect + 1)
            levels.append(level)
        return levels

    def _sink(self) -> None:
        """Move equations up to their first user's level where that stores no more bytes."""
        for k in reversed(range(len(self.eqns))):
            eqn, form = self.eqns[k], self.forms[k]
            users = self.users.get(eqn.outputs[0], []) if len(eqn.outputs) == 1 else []
            movable = isinstance(form, (Map, Move, Iota, Size)) and not self.settled[k]
            if not users or eqn.outputs[0] in self.kept or not movable:
                continue
            made = sum([_bytes(v) for v in self.made[k]])
            target = min(self.level[u] - self._steps_up(eqn.outputs[0], u) for u in users)
            if made <= _bytes(eqn.outputs[0]) and target > self.level[k]:
                self.level[k] = target

    def components(self) -> list[list[int]]:
        """The compilable equations by region, each in program order."""
        parent = list(range(len(self.eqns)))

        def find(k: int) -> int:
            while parent[k] != k:
                parent[k] = parent[parent[k]]
                k = parent[k]
            return k

        readers: dict[tuple[Var, int], int] = {}
        sharers: dict[tuple[int | None, int], int] = {}  # of families computed again
        for k in range(len(self.eqns)):
            if self.alone[k]:
                continue
            for v in self.reads[k]:
                made = self.maker.get(v)
                if made is not None and self.light[made] and not self.light[k]:
                    continue
                if made is not None and self.level[made] == self.level[k] and not self.alone[made]:
                    parent[find(made)] = find(k)
                elif made is not None and self.inside[made]:
                    first = sharers.setdefault((self.family[made], self.level[k]), k)
                    parent[find(first)] = find(k)
                elif _elements(v) >= _SHARED and not isinstance(self.forms[k], Contract):
                    first = readers.setdefault((v, self.level[k]), k)
                    parent[find(first)] = find(k)
        groups: dict[int, list[int]] = {}
        for k in range(len(self.eqns)):
            if not self.alone[k]:
                groups.setdefault(find(k), []).append(k)
        return [part for group in groups.values() for part in self._split(group)]

    def _split(self, group: list[int]) -> list[list[int]]:
        """Pieces of at most `limit` equations, cut where the fewest bytes are alive."""
        if len(group) <= self.limit:
            return [group]
        position = {k: p for p, k in enumerate(group)}
        alive = [0] * (len(group) + 1)  # difference array: bytes alive just before each position
        for p, k in enumerate(group):
            (out,) = self.eqns[k].outputs
            ends = [position.get(u, len(group) - 1) for u in self.users.get(out, [])]
            if ends and not self._clonable(k):
                alive[p + 1] += _bytes(out)
                alive[min(max(ends) + 1, len(group))] -= _bytes(out)
        for p in range(1, len(alive)):
            alive[p] += alive[p - 1]
        window = range(max(1, self.limit // 2), self.limit + 1)
        at = min(window, key=lambda p: (alive[p], -p))
        return [group[:at], *self._split(group[at:])]

    def run(self) -> tuple[Step, ...]:
        """Regions and single equations, in an order in which values exist before their use."""
        singles = [[k] for k in range(len(self.eqns)) if self.alone[k]]
        every = acyclic([*self.components(), *singles], self._waits(), self.alone)
        parts = [p for p in every if self.alone[p[0]] or not self._all_cloned(p)]
        where = {k: n for n, part in enumerate(parts) for k in part}
        members = [set(self._with_clones(part)) for part in parts]
        parts_of = Parts(
            self.eqns, self.forms, self.maker, self.kept, members, self.alone, self.inside, _bytes
        )
        recompute(parts_of)
        cloned = [sorted(m) for m in members]
        needs: list[set[int]] = []
        needed: set[Var] = set(self.kept)
        previous_effect: int | None = None
        for n, part in enumerate(cloned):
            own = set(part)
            needs.append(set())
            for k in part:
                for v, made in zip(self.made[k], self.below[k], strict=True):
                    if made not in own:
                        needs[n].add(where[made])
                        needed.add(v)
                if self.effects[k] is not Effect.NONE:
                    if previous_effect is not None:
                        needs[n].add(previous_effect)
                    previous_effect = n
        order = _topological(needs, [part[-1] for part in parts])
        steps = (self._step(cloned[n], set(parts[n]), needed) for n in order)
        return tuple(s for s in steps if isinstance(s, Alone) or s.outputs)

    def _waits(self) -> list[list[int]]:
        """What each equation waits for: what makes its operands (where that is cloned, what the
        clone waits for), and the effect before its own.
        """
        waits: list[list[int]] = []
        for k, below in enumerate(self.below):
            found: dict[int, None] = {}
            for made in below:
                cloned = self._clonable(made) and not self.alone[k]
                found.update(dict.fromkeys(waits[made] if cloned else [made]))
            waits.append(list(found))
        ordered = [k for k, e in enumerate(self.effects) if e is not Effect.NONE]
        for before, after in pairwise(ordered):
            waits[after].append(before)
        return waits

    def _all_cloned(self, part: list[int]) -> bool:
        """Whether the part's users clone every one of its equations, and none is an output."""
        if any(not self._clonable(k) or self.eqns[k].outputs[0] in self.kept for k in part):
            return False
        own = set(part)
        return all(not self.alone[u] for k in part for u in self._outside_users(k, own))

    def _clonable(self, k: int) -> bool:
        return self.inside[k] or self.cloned[k]

    def _outside_users(self, k: int, own: set[int]) -> Iterator[int]:
        return (u for u in self.users.get(self.eqns[k].outputs[0], []) if u not in own)

    def _with_clones(self, part: list[int]) -> list[int]:
        """The part's equations and the clonable ones that they need, in program order."""
        if self.alone[part[0]]:
            return part
        found = set(part)
        stack = list(part)
        while stack:
            for made in self.below[stack.pop()]:
                if made not in found and self._clonable(made):
                    found.add(made)
                    stack.append(made)
        return sorted(found)

    def _step(self, part: list[int], own: set[int], needed: set[Var]) -> Step:
        form = self.forms[part[0]]
        if isinstance(form, Single):
            return Alone(self.eqns[part[0]], form)
        live = self._live(part, own, needed)
        wanted = [k for k in live if k in own and self.eqns[k].outputs[0] in needed]
        live, outputs = self._ordered(live, wanted)
        fresh: dict[Var, Var] = {}  # clones get variables of their own
        eqns: list[Eqn] = []
        for k in live:
            eqn = self.eqns[k]
            if k not in own:
                fresh[eqn.outputs[0]] = Var(eqn.outputs[0].aval)
            if k not in own or any(a in fresh for a in eqn.inputs):
                atoms = tuple([fresh.get(a, a) if isinstance(a, Var) else a for a in eqn.inputs])
                results = tuple([fresh.get(v, v) for v in eqn.outputs])
                eqn = Eqn(eqn.prim, atoms, results, eqn.params, eqn.source)
            eqns.append(eqn)
        made = {v for e in eqns for v in e.outputs}
        inputs = tuple(
            dict.fromkeys(v for e in eqns for v in _variables(e.inputs) if v not in made)
        )
        inside = frozenset(e.outputs[0] for k, e in zip(live, eqns, strict=True) if self.inside[k])
        text = region_text(inputs, outputs, eqns, [self.texts[k] for k in live], inside)
        forms = tuple([self.forms[k] for k in live])
        return Region(inputs, tuple(outputs), tuple(eqns), forms, digest(text), inside)

    def _ordered(self, live: Sequence[int], wanted: Sequence[int]) -> tuple[list[int], list[Var]]:
        """The equations and the outputs in an order that does not depend on the program's.

        Outputs come by what they compute, equations when an output first needs them.
        """
        inside = frozenset(live)
        below = {k: [m for m in self.below[k] if m in inside] for k in live}
        first = list(wanted)
        if len(first) > 1:
            meaning = self._meaning(live, inside)
            first.sort(key=lambda k: (meaning[k], k))
        order: dict[int, None] = {}
        stack = first[::-1]
        while stack:
            k = stack[-1]
            missing = [m for m in below[k] if m not in order] if k not in order else []
            if missing:
                stack += missing[::-1]
                continue
            order.setdefault(stack.pop())
        return list(order), [self.eqns[k].outputs[0] for k in first]

    def _meaning(self, live: Sequence[int], inside: frozenset[int]) -> dict[int, str]:
        """For each equation a text of what it computes from what is outside."""
        meaning: dict[int, str] = {}
        for k in live:
            parts = [self.texts[k]]
            for a in self.eqns[k].inputs:
                made = self.maker.get(a, -1) if isinstance(a, Var) else -1
                if made in inside:
                    parts.append(meaning[made])
                else:
                    parts.append(str(a.aval) if isinstance(a, Var) else a.value.tobytes().hex())
            meaning[k] = digest(",".join(parts))
        return meaning

    def _live(self, part: Sequence[int], own: set[int], needed: set[Var]) -> list[int]:
        """The equations on which something needed outside depends."""
        wanted: set[Var] = set()
        kept: list[int] = []
        for k in reversed(part):
            (out,) = self.eqns[k].outputs
            if out in wanted or (k in own and out in needed):
                kept.append(k)
                wanted.update(self.reads[k])
        return kept[::-1]


def _variables(atoms: Sequence[Atom]) -> Iterator[Var]:
    return (a for a in atoms if isinstance(a, Var))


def _topological(needs: list[set[int]], priority: list[int]) -> list[int]:
    """An order in which needs come first, nearest to program order."""
    waiting = [len(n) for n in needs]
    users: list[list[int]] = [[] for _ in needs]
    for n, wanted in enumerate(needs):
        for w in wanted:
            users[w].append(n)
    ready = [(priority[n], n) for n, w in enumerate(waiting) if w == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, n = heapq.heappop(ready)
        order.append(n)
        for u in users[n]:
            waiting[u] -= 1
            if waiting[u] == 0:
                heapq.heappush(ready, (priority[u], u))
    if len(order) != len(needs):
        raise AssertionError("regions depend on each other in a circle")
    return order


@uncollected
def cut(jaxpr: Jaxpr, limit: int = LIMIT, native: NativeTest | None = None) -> tuple[Step, ...]:
    """The steps of a program, in the order in which they run.

    `jaxpr` must be simplified and expanded (no `Expand` forms left that matter: one that is, runs
    through eval). Values that no step needs are dropped; jaxpr outputs that are inputs or literals
    are the caller's business.
    """
    return _Cutter(jaxpr, limit, native).run()
