"""Plans as JSON values and back: terms in a table, children first; operations by name."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, assert_never

from lumjax import dtype as dt
from lumjax.egraph.plan import Measured, Plan, Report
from lumjax.egraph.scalar import Operations
from lumjax.kernel.rewrite import followed
from lumjax.kernel.schedule import Schedule
from lumjax.kernel.term import (
    Apply,
    Axis,
    Buffer,
    Group,
    Index,
    Lit,
    Load,
    Reduction,
    Root,
    Running,
    Term,
    children,
    subterms,
)
from lumjax.trace.dim import Dim, IndexOp
from lumjax.trace.expr import intern
from lumjax.trace.form import ReduceOp


def plan_text(plan: Plan, operations: Operations) -> dict[str, Any]:
    """The plan as a JSON value."""
    return _Writer(operations).plan(plan)


def plan_from(value: Any, operations: Operations) -> Plan:
    """The plan again; KeyError, TypeError, ValueError or IndexError if the value is not one."""
    return _Reader(operations).plan(value)


def report_text(report: Report) -> dict[str, Any]:
    """The report as a JSON value, times left out: equal searches leave equal files."""
    return asdict(replace(report, seconds=(), rule_seconds=()))


def report_from(value: Any) -> Report:
    """The report again; KeyError, TypeError or ValueError if the value is not one."""
    fields = {name: _frozen(entry) for name, entry in value.items()}
    fields["measured"] = tuple(Measured(**entry) for entry in value["measured"])
    return Report(**fields)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _schedules(value: Any, count: int) -> tuple[Schedule, ...] | None:
    if value is None:
        return None
    if len(value) != count:
        raise ValueError("a schedule for each group")
    return tuple(Schedule(**{str(k): int(v) for k, v in entry.items()}) for entry in value)


def dim_text(d: Dim) -> Any:
    """An index expression as a JSON value."""
    return (
        d if isinstance(d, int) else [d.op.value, [dim_text(a) for a in d.args], d.name, d.lo, d.hi]
    )


def dim_from(value: Any) -> Dim:
    """The index expression again."""
    if isinstance(value, int):
        return value
    op, args, name, lo, hi = value
    return intern(IndexOp(op), tuple(map(dim_from, args)), name, lo, hi)


def _axis(axis: Axis) -> Any:
    return [axis.name, dim_text(axis.extent)]


def _axis_from(value: Any) -> Axis:
    name, extent = value
    return Axis(str(name), dim_from(extent))


def buffer_text(b: Buffer) -> Any:
    """A buffer as a JSON value."""
    return [b.name, [dim_text(d) for d in b.shape], dt.short_name(b.dtype)]


def buffer_from(value: Any) -> Buffer:
    """The buffer again."""
    name, shape, dtype = value
    return Buffer(str(name), tuple(map(dim_from, shape)), dt.from_short_name(dtype))


class _Writer:
    def __init__(self, operations: Operations) -> None:
        self.names = operations.names
        self.number: dict[Term, int] = {}
        self.table: list[Any] = []

    def plan(self, plan: Plan) -> dict[str, Any]:
        groups = [[self._root(r) for r in g.roots] for g in plan.groups]
        return {
            "inputs": [buffer_text(b) for b in plan.inputs],
            "outputs": [buffer_text(b) for b in plan.outputs],
            "temporaries": [buffer_text(b) for b in plan.temporaries],
            "terms": self.table,
            "groups": groups,
            "cost": plan.cost.hex(),
            "truncated": plan.truncated,
            "schedules": None if plan.schedules is None else list(map(asdict, plan.schedules)),
        }

    def _root(self, root: Root) -> Any:
        for term in subterms(root.term):
            if term not in self.number:
                self.table.append(self._term(term))
                self.number[term] = len(self.table) - 1
        return [buffer_text(root.buffer), [_axis(a) for a in root.axes], self.number[root.term]]

    def _indices(self, indices: tuple[tuple[str, Term], ...]) -> Any:
        return [[n, self.number[t]] for n, t in indices]

    def _term(self, term: Term) -> Any:
        match term:
            case Lit(dtype=dtype, bits=bits):
                return ["lit", dt.short_name(dtype), bits.hex()]
            case Load(buffer=buffer, coords=coords, valid=valid, fill=fill, indices=indices):
                masked = None if fill is None else self._term(fill)
                where = [dim_text(c) for c in coords]
                return [
                    "load",
                    buffer_text(buffer),
                    where,
                    dim_text(valid),
                    masked,
                    self._indices(indices),
                ]
            case Index(expr=expr, dtype=dtype, indices=indices):
                return ["index", dim_text(expr), dt.short_name(dtype), self._indices(indices)]
            case Apply(op=op, args=args, dtype=dtype):
                numbers = [self.number[a] for a in args]
                return ["apply", self.names[op], numbers, dt.short_name(dtype)]
            case Reduction(op=op, axes=axes, dtype=dtype):
                bound = [_axis(a) for a in sorted(axes, key=lambda a: a.name)]
                below = [self.number[t] for t in children(term)]
                return ["reduce", op.value, bound, below, dt.short_name(dtype)]
            case Running(of=of, axes=axes):
                bound = [_axis(a) for a in sorted(axes, key=lambda a: a.name)]
                return ["running", bound, self.number[of]]
        assert_never(term)


class _Reader:
    def __init__(self, operations: Operations) -> None:
        self.operations = operations.by_name
        self.terms: list[Term] = []

    def plan(self, value: Any) -> Plan:
        for entry in value["terms"]:
            self.terms.append(self._term(entry))
        return Plan(
            tuple(map(buffer_from, value["inputs"])),
            tuple(map(buffer_from, value["outputs"])),
            tuple(map(buffer_from, value["temporaries"])),
            tuple(Group(tuple(map(self._root, g))) for g in value["groups"]),
            float.fromhex(value["cost"]),
            bool(value["truncated"]),
            _schedules(value["schedules"], len(value["groups"])),
        )

    def _root(self, value: Any) -> Root:
        buffer, axes, term = value
        return Root(buffer_from(buffer), tuple(map(_axis_from, axes)), self.terms[term])

    def _indices(self, value: Any) -> tuple[tuple[str, Term], ...]:
        return tuple((str(n), self.terms[t]) for n, t in value)

    def _term(self, value: Any) -> Term:
        match value:
            case ["lit", dtype, bits]:
                return Lit(dt.from_short_name(dtype), bytes.fromhex(bits))
            case ["load", buffer, coords, valid, fill, indices]:
                masked = None if fill is None else self._term(fill)
                if not (masked is None or isinstance(masked, Lit)):
                    raise ValueError("a fill must be a literal")
                where = tuple(map(dim_from, coords))
                pairs = self._indices(indices)
                return Load(buffer_from(buffer), where, dim_from(valid), masked, pairs)
            case ["index", expr, dtype, indices]:
                return Index(dim_from(expr), dt.from_short_name(dtype), self._indices(indices))
            case ["apply", name, args, dtype]:
                terms = tuple(self.terms[a] for a in args)
                return Apply(self.operations[name], terms, dt.from_short_name(dtype))
            case ["reduce", op, axes, below, dtype]:
                bound = frozenset(map(_axis_from, axes))
                kids = tuple(self.terms[k] for k in below)
                found = dt.from_short_name(dtype)
                return Reduction(ReduceOp(op), bound, kids[0], found, *followed(kids))
            case ["running", axes, of]:
                return Running(self.terms[of], frozenset(map(_axis_from, axes)))
            case _:
                raise ValueError("not a term")
