"""jit: flatten -> look up -> (stage -> compile) -> run. Nothing else happens here.

`jit(f)` keeps one program per signature: pytree structure, avals, static arguments, settings and
axis names in scope. On concrete values a program runs as an `Executable`; under another
transformation it becomes one `call` equation.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from lumjax import tree
from lumjax.config import config
from lumjax.control.call import call_p
from lumjax.debugging.effects import warn_of_rebinding
from lumjax.dynamic import Spec, shown
from lumjax.errors import (
    ArgumentTypeError,
    StaticArgumentError,
    user_source,
)
from lumjax.lookup import abstract_signature, array_key, axis_environment, on_gpu, signature_of_leaf
from lumjax.misses import History, Signature, compiled, named
from lumjax.ops.size import dim_value
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import argument_names
from lumjax.trace.core import (
    EvalTrace,
    Jaxpr,
    Tracer,
    Value,
    active_traces,
    aval_of,
    current,
    set_evaluator,
)
from lumjax.trace.dim import Expr
from lumjax.trace.simplify import simplify
from lumjax.trace.stage import stage

if TYPE_CHECKING:
    from lumjax.donation import Donation
    from lumjax.executable import Executable
    from lumjax.lowered import ArgInfo, Lowered, Traced
    from lumjax.recall import Recalled
    from lumjax.timeline import Timeline

_FIRST = 8  # calls of a program that Python does before native code is made of the next
_TRIES = 12  # such calls, at most, that have native code made
_FOLLOWED = 4  # kinds of calls that native code does, at most
P = ParamSpec("P")
R = TypeVar("R")


def compiler():
    """The module `lumjax.executable`. Its first use loads the compile half: programs that never
    compile, and everything that happens before the first compilation, do without it.
    """
    from lumjax import executable  # noqa: PLC0415 - the only place

    return executable


def recaller():
    """The module `lumjax.recall`: programs that were compiled before. It loads what running takes,
    not what compiling does.
    """
    from lumjax import recall  # noqa: PLC0415 - the only place

    return recall


def dispatcher():
    """The module `lumjax.dispatch`: calls as native code, for programs that are called often."""
    from lumjax import dispatch  # noqa: PLC0415 - the only place

    return dispatch


def _lowered():
    """The module `lumjax.lowered`, which few programs look at."""
    from lumjax import lowered  # noqa: PLC0415 - the only place

    return lowered


def _evaluate(jaxpr: Jaxpr, args: Sequence[Value]) -> list[Value]:
    return list(compiler().executable_of(jaxpr).run(args))


set_evaluator(_evaluate)


class Program:
    """One traced signature of a jitted function, under one set of settings: of the search, on top
    of those in force. `kept`: by the function, for the next call. `calls`: those that Python did.
    """

    __slots__ = (
        "_executable", "calls", "consts", "donated", "donation", "in_tree", "jaxpr", "kept", "name",
        "out_tree", "ready", "settings",
    )  # fmt: skip

    def __init__(
        self, jaxpr: Jaxpr, consts: tuple[Value, ...], in_tree: tree.PyTreeDef,
        out_tree: tree.PyTreeDef, settings: Mapping[str, Any], name: str = "", kept: bool = False,
        donated: frozenset[int] = frozenset(),
    ) -> None:  # fmt: skip
        self.jaxpr = jaxpr
        self.consts = consts
        self.out_tree = out_tree
        self.settings = settings
        self.name = name
        self.kept = kept
        self.donated = donated
        self.donation: Donation | None = None
        self.in_tree = in_tree
        self.calls = 0
        self.ready: Callable[[Sequence[Value]], Any] | None = None
        self._executable: Executable | Recalled | None = None

    def executable(self) -> Executable | Recalled:
        """The compiled program, made on first use."""
        if self._executable is None:
            self._executable = recaller().executable_of(
                self.jaxpr, self.settings, self._compiled, self.donated
            )
            compiled(self.name, self._executable.seconds)
        return self._executable

    def on_arrays(self) -> Callable[[Sequence[Value]], Any]:
        """The compiled program as a function of its leaves, for calls that need no more."""
        run, consts, unflatten = self.executable().run, self.consts, self.out_tree.unflatten
        if consts:
            return lambda args: unflatten(run([*consts, *args]))
        if self.out_tree.is_leaf():
            return lambda args: run(args)[0]
        return lambda args: unflatten(run(args))

    def core(self) -> Jaxpr:
        """The program in core primitives."""
        found, _ = compiler().expand(simplify(self.jaxpr))
        return simplify(found)

    def _compiled(self) -> Executable:
        return compiler().executable_of(self.jaxpr, self.settings, self.donated)


def _info(leaf: Any, donated: bool) -> ArgInfo:
    shape, dtype, _ = abstract_signature(leaf)
    return _lowered().ArgInfo(shape, dtype, donated)


def from_gpu(value: Any, copy: bool = False) -> Any:
    """Another library's array on a GPU as one that shares its memory, unless `copy`."""
    return compiler().accelerator().adopted(value, copy)


_alive: weakref.WeakSet[Jitted[Any, Any]] = weakref.WeakSet()


def clear_caches() -> None:
    """Forget every program that a jitted function traced and compiled in this process: the next
    call traces anew. Plans and objects on disk stay, so that it compiles sooner than before.

    >>> import lumjax
    >>> double = lumjax.jit(lambda x: 2 * x)
    >>> _ = double(1.0)
    >>> lumjax.clear_caches()
    >>> len(double.explain())
    0
    """
    for jitted in list(_alive):
        jitted.clear_cache()


class Jitted(Generic[P, R]):
    """A function compiled once per signature; made by `jit`."""

    strict = False  # whether donated arrays that can't be used are errors

    def __init__(
        self,
        fun: Callable[P, R],
        static_argnums: frozenset[int],
        static_argnames: frozenset[str],
        donate: frozenset[int | str],
        settings: Mapping[str, Any] | None = None,
        dynamic: Spec | None = None,
    ) -> None:
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.static_argnums = static_argnums
        self.static_argnames = static_argnames
        self.donate = donate
        self.dynamic = dynamic
        self.settings = settings or {}
        self._programs: dict[Any, Program] = {}
        self._quick: dict[Any, Program] = {}  # by array_key
        # builtins that do calls like earlier ones, by the identity of the settings' key
        self._fast: dict[int, tuple[Callable[..., Any], ...]] = {}
        self._flat: dict[Any, Callable[[list[Any]], Any]] = {}  # on leaves, by their structure too
        self._followed: list[tuple[Program, Any]] = []  # what they do: arguments of which trees
        self._history = History(self._name)
        self._lock = threading.RLock()
        # whether every leaf of the arguments is one of the program's, and no size is open
        self._plain = dynamic is None and not (static_argnums or static_argnames)
        _alive.add(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the program of this signature, compiling it first if it is new."""
        if len(active_traces()) == 1:
            for fast in self._fast.get(id(config.compiled_key()), ()):
                found = fast(args, kwargs)
                if found is not NotImplemented:
                    return found
        return self._by_python(args, kwargs)

    def _by_python(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that is not like earlier ones, or under a transformation."""
        given: Sequence[Any] = args
        flat = None
        key = None if kwargs else array_key(args)
        if key is None and self._plain:
            flat = given, in_tree = tree.flatten((args, kwargs))
            found = self._on_leaves(given, in_tree)
            if found is not NotImplemented:
                return found
            key = array_key(given, in_tree)
        program = self._quick.get(key)
        if program is not None and program.ready is not None:
            self._count(program, args, kwargs, given)
            return program.ready(given)
        program, leaves = self._program(args, kwargs, flat=flat)
        values = [*program.consts, *leaves] if program.consts else leaves
        if type(current()) is EvalTrace and not any(isinstance(v, Tracer) for v in values):
            if program.ready is None:
                program.ready = self._ready(program)
            if program.kept and self.dynamic is None and len(active_traces()) == 1:
                self._count(program, args, kwargs, leaves)
                if key is not None:
                    self._quick[key] = program
            return program.ready(leaves)
        outs = call_p.bind(*values, jaxpr=program.jaxpr, name=self._name)
        result: Any = program.out_tree.unflatten(outs)
        return result

    def _on_leaves(self, leaves: list[Any], in_tree: tree.PyTreeDef) -> Any:
        """A call that is like an earlier one but for containers that native code does not know."""
        if not self._flat or len(active_traces()) > 1:
            return NotImplemented
        fast = self._flat.get((id(config.compiled_key()), in_tree))
        return NotImplemented if fast is None else fast(leaves)

    def _count(
        self, program: Program, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: Sequence[Any]
    ) -> None:
        """Note a call that Python does; after some, the next one like it is native code's."""
        program.calls += 1
        if not _FIRST < program.calls <= _FIRST + _TRIES:
            return
        places = [k for k in range(len(args)) if self._is_static(k, len(args))]
        trees = dispatcher().of_call(args, kwargs, leaves, [*places, *self.static_argnames])
        which = id(config.compiled_key())
        with self._lock:
            if (program, trees) in self._followed:
                return
            self._followed = [*self._followed[1 - _FOLLOWED :], (program, trees)]
            if trees is not None:
                made = self._native(program, trees)
                if made is not None:
                    self._fast[which] = (made, *self._fast.get(which, ())[: _FOLLOWED - 1])
            elif self._plain and len(self._flat) < _TRIES:  # Python flattens the arguments
                made = self._native(program, (dispatcher().of_leaves(len(leaves)),))
                if made is not None:
                    self._flat[which, program.in_tree] = made

    def _native(self, program: Program, trees: Any) -> Callable[..., Any] | None:
        """The builtin that runs the program on arguments of these trees."""
        executable = program.executable()
        return dispatcher().native(executable, program.consts, program.out_tree, trees)

    def _is_static(self, place: int, count: int) -> bool:
        return place in self.static_argnums or place - count in self.static_argnums

    def _ready(self, program: Program) -> Callable[[Sequence[Value]], Any]:
        """The compiled program as a function of its leaves."""
        return program.on_arrays()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<jit of {self._name}>"

    @property
    def _name(self) -> str:
        return getattr(self.fun, "__name__", type(self.fun).__name__)

    def _program(
        self,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        signature_of: Callable[[Any], Any] = signature_of_leaf,
        flat: tuple[list[Any], tree.PyTreeDef] | None = None,
    ) -> tuple[Program, list[Value]]:
        """The program of a call, and its leaves. `flat`: they are known, with their structure."""
        static: tuple[Any, ...] = ()
        dynamic: tuple[Any, Any] = (args, kwargs)
        if self.static_argnums or self.static_argnames:
            dynamic, static = self._split(args, kwargs)
        leaves, in_tree = flat or tree.flatten(dynamic)
        try:
            signature = tuple([signature_of(x) for x in leaves])
        except ArgumentTypeError:
            leaves = [from_gpu(x) if on_gpu(x) else x for x in leaves]
            try:
                signature = tuple([signature_of(x) for x in leaves])
            except ArgumentTypeError:
                raise self._not_an_array(dynamic) from None
        if self.dynamic is not None and not any(isinstance(x, Tracer) for x in leaves):
            signature = self._opened(self.dynamic, signature, in_tree)
        key = (in_tree, static, signature, config.compiled_key(), axis_environment())
        program = self._programs.get(key)
        if program is None:
            with self._lock:
                program = self._programs.get(key)
                if program is None:
                    program = self._missed(key)
        return program, leaves

    def _opened(
        self, dynamic: Spec, signature: tuple[Any, ...], in_tree: tree.PyTreeDef
    ) -> tuple[Any, ...]:
        """The signature with symbols for sizes that come with each call."""
        shapes = dynamic.opened([s[0] for s in signature], in_tree, lambda: self._names(in_tree))
        return tuple([(n, *s[1:]) for n, s in zip(shapes, signature, strict=True)])

    def _missed(self, key: Any) -> Program:
        """Trace for a signature that is new, and note why it is."""
        in_tree, static, signature, settings, axes = key
        if config.debug_side_effects:
            warn_of_rebinding(self.fun, f"jit of {self._name}")
        started = time.perf_counter()
        program, keep = self._trace(static, in_tree, [ShapedArray(*s) for s in signature])
        if keep:
            self._programs[key] = program
            program.kept = True
        names = named(self._names(in_tree), len(signature))
        leaves = tuple([(shown(s[0]), *s[1:]) for s in signature])
        found = Signature(in_tree, static, leaves, settings, axes, names)
        self._history.add(found, user_source(), time.perf_counter() - started, keep)
        return program

    def _split(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        """The dynamic arguments, and the static ones as a hashable key."""
        fixed: list[tuple[int | str, Any]] = []
        for k, value in enumerate(args):
            if self._is_static(k, len(args)):
                fixed.append((k, value))
        fixed += [(n, v) for n, v in kwargs.items() if n in self.static_argnames]
        for where, value in fixed:
            try:
                hash(value)
            except TypeError:
                raise StaticArgumentError(
                    operation=f"jit of {self._name}",
                    required=f"a hashable value for static argument {where!r}",
                    got=f"{value!r} of type {type(value).__name__}",
                    fix="pass a tuple or a frozen dataclass, or make the argument dynamic",
                ) from None
        names = {w for w, _ in fixed}
        dynamic = (
            tuple(None if k in names else a for k, a in enumerate(args)),
            {n: v for n, v in kwargs.items() if n not in names},
        )
        return dynamic, tuple((w, type(v), v) for w, v in fixed)

    def _trace(
        self, static: tuple[Any, ...], in_tree: tree.PyTreeDef, avals: Sequence[ShapedArray]
    ) -> tuple[Program, bool]:
        """Stage the function at one signature; whether the program may be kept."""
        out_trees: list[tree.PyTreeDef] = []

        def flat(*leaves: Value) -> list[Value]:
            given: Any = in_tree.unflatten(leaves)
            args, kwargs = list(given[0]), dict(given[1])
            for where, _, value in static:
                if isinstance(where, int):
                    args[where] = value
                else:
                    kwargs[where] = value
            fun: Any = self.fun
            out = fun(*args, **kwargs)
            found, out_tree = tree.flatten(out)
            found = [dim_value(x) if isinstance(x, Expr) else x for x in found]
            self._check_outputs(out, found)
            out_trees.append(out_tree)
            return found

        staged = stage(flat, avals, lambda: f"jit of {self._name}", lambda: self._names(in_tree))
        consts = len(staged.consts)
        program = Program(
            staged.jaxpr, staged.consts, in_tree, out_trees[0], self.settings, self._name,
            donated=frozenset(k + consts for k in self._donated(in_tree)),
        )  # fmt: skip
        return program, staged.cacheable

    def _donated(self, in_tree: tree.PyTreeDef) -> list[int]:
        """The leaves that are donated."""
        if not self.donate:
            return []
        given: Any = in_tree.unflatten(range(in_tree.num_leaves))
        args, kwargs = given
        count = len(args)
        chosen = [a for k, a in enumerate(args) if k in self.donate or k - count in self.donate]
        return tree.leaves([*chosen, *(v for n, v in kwargs.items() if n in self.donate)])

    def _names(self, in_tree: tree.PyTreeDef) -> list[str]:
        """What to call each dynamic leaf, for messages."""
        given: Any = in_tree.unflatten(range(in_tree.num_leaves))
        args, kwargs = given
        return argument_names(self.fun, args, kwargs)

    def _check_outputs(self, out: Any, leaves: Iterable[Any]) -> None:
        for k, leaf in enumerate(leaves):
            try:
                aval_of(leaf)
            except (ArgumentTypeError, TypeError):
                path, _ = tree.leaves_with_path(out)[k]
                raise ArgumentTypeError(
                    operation=f"jit of {self._name}",
                    required="a function that returns arrays, numbers or pytrees of them",
                    got=f"{leaf!r} of type {type(leaf).__name__} at output{tree.keystr(path)}",
                    fix="return only arrays from the jitted function",
                ) from None

    def _not_an_array(self, dynamic: tuple[Any, Any]) -> ArgumentTypeError:
        for path, leaf in tree.leaves_with_path(dynamic):
            try:
                aval_of(leaf)
            except (ArgumentTypeError, TypeError):
                place = "positional argument" if path[0].idx == 0 else "keyword argument"
                return ArgumentTypeError(
                    operation=f"jit of {self._name}",
                    required="arrays, numbers or pytrees of them",
                    got=f"{leaf!r} of type {type(leaf).__name__} "
                    f"in {place} {tree.keystr(path[1:])}",
                    fix="convert it with jnp.asarray, or name it in static_argnums/static_argnames",
                )
        raise AssertionError("every leaf is an array")

    # ---- looking inside

    def program(self, *args: P.args, **kwargs: P.kwargs) -> Program:
        """The traced program for these arguments (arrays or ShapeDtypeStructs)."""
        return self._program(args, kwargs, abstract_signature)[0]

    def eval_shape(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The output's avals as a pytree, without computing anything."""
        program = self.program(*args, **kwargs)
        return program.out_tree.unflatten(program.jaxpr.out_avals)

    def memory_plan(self, *args: P.args, **kwargs: P.kwargs) -> Timeline:
        """What a call with these arguments (arrays or ShapeDtypeStructs) will hold in memory, step
        by step, before it runs: `.peak()`, `.allocated()`, the buffers `.live(step)` and, by your
        lines, `.by_line(step)`, in bytes. Arguments are listed, not counted. `print` it.

        >>> import lumjax, lumjax.numpy as jnp
        >>> plan = lumjax.jit(lambda x: jnp.sin(x) @ x).memory_plan(jnp.ones((64, 64)))
        >>> plan.peak() >= 64 * 64 * 4
        True
        """
        program, leaves = self._program(args, kwargs, abstract_signature)
        shapes = [abstract_signature(x)[0] for x in (*program.consts, *leaves)]
        return program.executable().timeline(shapes)

    def trace(self, *args: P.args, **kwargs: P.kwargs) -> Traced:
        """Trace for these arguments (arrays or ShapeDtypeStructs): `.jaxpr`, and `.lower()`."""
        return _lowered().Traced(
            self.program(*args, **kwargs), self._name, self._infos(args, kwargs)
        )

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Lowered:
        """Trace for these arguments; `.compile()` gives the executable."""
        return self.trace(*args, **kwargs).lower()

    def _infos(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        """What the program takes: the arguments that are not static, in their places."""

        def infos(where: Sequence[int | str], value: Any) -> Any:
            donated = any(w in self.donate for w in where)
            return tree.map(lambda x: _info(x, donated), value)

        places = [(k, k - len(args)) for k in range(len(args))]
        return (
            tuple(
                infos(w, a)
                for w, a in zip(places, args, strict=True)
                if self.static_argnums.isdisjoint(w)
            ),
            {n: infos((n,), v) for n, v in kwargs.items() if n not in self.static_argnames},
        )

    def explain(self) -> History:
        """Every tracing of the function so far, and why the signature was new: the nearest earlier
        one and the fields that differ.

        >>> import lumjax, lumjax.numpy as jnp
        >>> double = lumjax.jit(lambda x: x * 2)
        >>> _ = double(jnp.ones(3)), double(jnp.ones(4))
        >>> double.explain()[1].why
        ('argument x: f32[4], before f32[3] (another shape)',)
        """
        return self._history

    def clear_cache(self) -> None:
        """Forget every program."""
        with self._lock:
            self._programs.clear()
            self._quick.clear()
            self._fast.clear()
            self._flat.clear()
            self._followed = []
            self._history = History(self._name)

    def _cache_size(self) -> int:
        return len(self._programs)
