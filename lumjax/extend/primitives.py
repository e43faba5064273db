"""Primitives that another library makes the way JAX's are made: a name, and rules that are entered
in tables, one by one, later. A record of lumjax's own has all its rules when it is made; here one
stands for the tables, and asks them when a rule is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lumjax import dtype as dt
from lumjax.control.staging import zeros
from lumjax.errors import MissingRuleError
from lumjax.ops.elementwise import asvalue, cast
from lumjax.record import record
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import EvalTrace, Linear, Value, aval_of, using
from lumjax.trace.core import Primitive as Record
from lumjax.trace.form import Expand, Form, Opaque

Rule = Callable[..., Any]

# The tables, by primitive; the rules have JAX's signatures.
primitive_jvps: dict[Any, Rule] = {}
primitive_transposes: dict[Any, Rule] = {}
primitive_batchers: dict[Any, Rule] = {}
axis_primitive_batchers: dict[Any, Rule] = {}
lowerings: dict[Any, Rule] = {}


@record
class Zero:
    """A tangent or cotangent that is known to be zero."""

    aval: ShapedArray

    @staticmethod
    def from_primal_value(value: Any) -> Zero:
        """The zero tangent of a value."""
        return Zero(aval_of(value).tangent())


@record
class UndefinedPrimal:
    """An operand in which an operation is linear, for a transpose rule."""

    aval: ShapedArray


@record
class Traced:
    """A lowering that is a function of values, `lower_fun(function)`: the compiler traces it."""

    function: Rule
    multiple_results: bool


class _Kind(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return type(instance) is Record or type.__instancecheck__(cls, instance)


class Primitive(metaclass=_Kind):
    """An operation that JAX's `jax.extend.core.Primitive(name)` makes.

    `def_impl` gives its value, `def_abstract_eval` its type; the tables of
    `jax.interpreters` its other rules. Compiled programs contain what `mlir.lower_fun` registers;
    where there is none, they call the implementation.

    >>> double_p = Primitive("double")
    >>> _ = double_p.def_impl(lambda x: x * 2)
    >>> _ = double_p.def_abstract_eval(lambda x: x)
    >>> float(double_p.bind(3.0))
    6.0
    """

    multiple_results = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.impl: Rule | None = None
        self.abstract_eval: Rule | None = None
        self.record = Record(
            name,
            aval=self._aval,
            eval=self._eval,
            form=self._form,
            expand=self._expand,
            jvp=self._jvp,
            transpose=self._transpose,
            batch=self._batch,
        )
        _by_record[self.record] = self

    def __repr__(self) -> str:
        return self.name

    def def_impl(self, impl: Rule) -> Rule:
        """Define the value: a function of arrays."""
        self.impl = impl
        return impl

    def def_abstract_eval(self, abstract_eval: Rule) -> Rule:
        """Define the type of the result, from those of the operands."""
        self.abstract_eval = abstract_eval
        return abstract_eval

    def bind(self, *args: Any, **params: Any) -> Any:
        """Apply it: a list of results with `multiple_results`, else one."""
        outs = self.record.bind(*map(asvalue, args), **params)
        return list(outs) if self.multiple_results else outs[0]

    # ---- the rules of the record

    def _several(self, out: Any) -> tuple[Any, ...]:
        return tuple(out) if self.multiple_results else (out,)

    def _missing(self, kind: str, where: str) -> MissingRuleError:
        return MissingRuleError(
            operation=f"{kind} of primitive '{self.name}'",
            required=f"a rule in {where}",
            got="none",
            fix=f"enter one: {where}",
        )

    def _aval(self, *avals: ShapedArray, **params: Any) -> tuple[ShapedArray, ...]:
        if self.abstract_eval is None:
            raise self._missing("abstract evaluation", "def_abstract_eval")
        outs = self._several(self.abstract_eval(*avals, **params))
        return tuple(ShapedArray(tuple(o.shape), o.dtype, o.weak) for o in outs)

    def _eval(self, *args: Any, **params: Any) -> tuple[Any, ...]:
        compute = self.impl
        if compute is None:
            lowered = lowerings.get(self)
            if not isinstance(lowered, Traced):
                raise self._missing("evaluation", "def_impl")
            compute = lowered.function
        with using(EvalTrace()):
            outs = self._several(compute(*[Array(a) for a in args], **params))
        return tuple(asvalue(o) for o in outs)

    def _form(self, *avals: ShapedArray, **params: Any) -> Form:
        if isinstance(lowerings.get(self), Traced):
            return Expand()
        return Opaque("defined outside of lumjax", host=True)

    def _expand(self, *args: Value, **params: Any) -> tuple[Value, ...]:
        lowered = lowerings.get(self)
        assert isinstance(lowered, Traced), "the form says so"
        outs = lowered.function(*args, **params)
        several = outs if lowered.multiple_results else (outs,)
        wanted = self._aval(*map(aval_of, args), **params)
        return tuple(_typed(o, a) for o, a in zip(several, wanted, strict=True))

    def _jvp(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any
    ) -> tuple[Sequence[Value], Sequence[Value | None]]:
        if all(t is None for t in tangents):
            outs = self.record.bind(*primals, **params)
            return outs, [None] * len(outs)
        rule = primitive_jvps.get(self)
        if rule is None:
            raise self._missing("derivative", "jax.interpreters.ad.primitive_jvps")
        given = [
            Zero.from_primal_value(p) if t is None else t
            for p, t in zip(primals, tangents, strict=True)
        ]
        outs, moved = rule(tuple(primals), tuple(given), **params)
        values = [asvalue(o) for o in self._several(outs)]
        return values, [_tangent(t) for t in self._several(moved)]

    def _transpose(
        self, cts: Sequence[Value | None], inputs: Sequence[Any], **params: Any
    ) -> Sequence[Value | None]:
        rule = primitive_transposes.get(self)
        if rule is None:
            raise self._missing("transposition", "jax.interpreters.ad.primitive_transposes")
        avals = [x.aval if isinstance(x, Linear) else aval_of(x) for x in inputs]
        operands = [UndefinedPrimal(x.aval) if isinstance(x, Linear) else x for x in inputs]
        wanted = self._aval(*avals, **params)
        given = [Zero(a.tangent()) if ct is None else ct for ct, a in zip(cts, wanted, strict=True)]
        found = rule(given if self.multiple_results else given[0], *operands, **params)
        if found is Zero:  # as some libraries write it: zero, whatever the operands are
            return [None] * len(inputs)
        return [
            _tangent(f) if isinstance(x, Linear) else None
            for f, x in zip(found, inputs, strict=True)
        ]

    def _batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        if self in axis_primitive_batchers:
            named = axis_primitive_batchers[self]
            outs, out_dims = named(axis.size, axis.name, None, tuple(args), tuple(dims), **params)
        elif self in primitive_batchers:
            outs, out_dims = primitive_batchers[self](tuple(args), tuple(dims), **params)
        else:
            raise self._missing("vmap", "jax.interpreters.batching.primitive_batchers")
        return [asvalue(o) for o in self._several(outs)], list(self._several(out_dims))


_by_record: dict[Record, Primitive] = {}


def named(made: Record) -> Any:
    """The primitive that a library made, of an equation's; others as they are."""
    return _by_record.get(made, made)


def _tangent(x: Any) -> Value | None:
    """A rule's tangent or cotangent, None where it is zero."""
    if x is None or isinstance(x, Zero):
        return None
    value = asvalue(x)
    return None if aval_of(value).dtype == dt.float0 else value


def _typed(x: Any, aval: ShapedArray) -> Value:
    """A result as strong as its type says."""
    value = asvalue(x)
    found = aval_of(value)
    same = (found.dtype, found.weak) == (aval.dtype, aval.weak)
    return value if same else cast(value, aval.dtype, aval.weak)


def instantiate_zeros(x: Any) -> Any:
    """A symbolic zero as an array of zeros; everything else as it is.

    >>> instantiate_zeros(2.0)
    2.0
    """
    return zeros(x.aval) if isinstance(x, Zero) else x
