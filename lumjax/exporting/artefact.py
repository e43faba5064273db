"""Artefacts: a jitted function at one signature, as bytes that another process runs.

The bytes are a safetensors file: the arrays that the function closed over as tensors, and as text
the program in core primitives, the structures and types of its arguments and results, and the plans
of its kernels. Loading runs no code of the file's: primitives are ours, by name, the program is
type-checked, and kernels made by the plans are checked against the interpreter as always.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import files, tree
from lumjax.api import ShapeDtypeStruct
from lumjax.compile import Jitted, compiler
from lumjax.config import config
from lumjax.decorator import jit
from lumjax.errors import (
    ArgumentTypeError,
    ArtefactError,
    DTypeError,
    ShapeError,
    TreeError,
    UnsupportedError,
)
from lumjax.exporting import program, structure
from lumjax.ops.rng import random_unwrap, random_wrap
from lumjax.random import key_data, wrap_key_data
from lumjax.record import record
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Jaxpr, Value, aval_of, eval_jaxpr
from lumjax.trace.dim import Expr, estimate, same
from lumjax.trace.simplify import simplify

FORMAT = 1
_CONTENT = f"{files.OWN}export"
_NATIVE = "native."


@record
class Signature:
    """What a program takes and gives: structures, and a type for each leaf."""

    in_tree: tree.PyTreeDef
    out_tree: tree.PyTreeDef
    in_avals: tuple[ShapedArray, ...]
    out_avals: tuple[ShapedArray, ...]


class Exported:
    """A function at one signature that needs nothing of the process that wrote it. Call it as that
    function was called; `jit`, `grad` and `vmap` take it like any other function.

    `fun_name` says what it was called, `in_tree`, `out_tree`, `in_avals` and `out_avals` what it
    takes and gives. Calls raise TreeError, ShapeError or DTypeError where arguments do not fit.
    """

    def __init__(
        self,
        fun_name: str,
        jaxpr: Jaxpr,
        signature: Signature,
        consts: Sequence[Value],
        plans: Mapping[str, Any],
        native: Mapping[str, Mapping[str, bytes]] | None = None,
    ) -> None:
        self.native = dict(native or {})
        self.fun_name = self.__name__ = fun_name
        self.jaxpr, self.signature = jaxpr, signature
        self.consts, self.plans = tuple(consts), plans
        open_to = [None] * len(self.consts) + list(map(_open_axes, signature.in_avals))
        spec = tuple(open_to) if any(open_to) else None
        self._run: Jitted[Any, list[Value]] = jit(self._flat, dynamic=spec)
        self._compiled = not plans

    in_tree = property(lambda self: self.signature.in_tree)
    out_tree = property(lambda self: self.signature.out_tree)
    in_avals = property(lambda self: self.signature.in_avals)
    out_avals = property(lambda self: self.signature.out_avals)

    @property
    def is_open(self) -> bool:
        """Whether sizes of arguments come with each call."""
        return any(isinstance(n, Expr) for a in self.in_avals for n in a.shape)

    def __repr__(self) -> str:
        def listed(avals: Sequence[ShapedArray]) -> str:
            return ", ".join(map(str, avals))

        return f"Exported({self.fun_name}: {listed(self.in_avals)} -> {listed(self.out_avals)})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's results."""
        leaves, in_tree = tree.flatten((args, kwargs))
        if in_tree != self.in_tree:
            raise TreeError(
                operation=f"a call of the exported {self.fun_name}",
                required=f"arguments of the structure {self.in_tree}", got=str(in_tree),
                fix="call it as the function was called when it was exported",
            )  # fmt: skip
        given = [self._fitting(k, x) for k, x in enumerate(leaves)]
        with nullcontext() if self._compiled else compiler().planned(self.plans):
            outs = self._run(*self.consts, *given)
        # under another transformation nothing was compiled
        self._compiled = self._compiled or all(isinstance(x, Array) for x in outs)
        pairs = zip(outs, self.out_avals, strict=True)
        return tree.unflatten(self.out_tree, [_weakened(x, a.weak) for x, a in pairs])

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The same under JAX's name."""
        return self(*args, **kwargs)

    def serialize(self) -> bytes:
        """The artefact: what `load` reads."""
        tensors = {f"const{k:04d}": _tensor(x) for k, x in enumerate(self.consts)}
        content = {
            "format": FORMAT,
            "name": self.fun_name,
            "in_tree": self._structure("arguments", self.in_tree),
            "out_tree": self._structure("results", self.out_tree),
            "in_avals": list(map(program.aval_of, self.in_avals)),
            "out_avals": list(map(program.aval_of, self.out_avals)),
            "consts": [program.aval_of(aval_of(x)) for x in self.consts],
            "program": _programs(self.fun_name, self.jaxpr),
            "plans": dict(self.plans),
        }
        if self.native:
            content["native"] = {name: sorted(code) for name, code in self.native.items()}
            for code in self.native.values():
                tensors |= {_NATIVE + k: np.frombuffer(v, np.uint8) for k, v in code.items()}
        return files.packed(tensors, {_CONTENT: json.dumps(content, separators=(",", ":"))})

    def planned(self, native: Sequence[str] = ()) -> Exported:
        """The same, compiled here, with the plans that it was compiled by, and machine code for the
        targets named.
        """
        leaves = [ShapeDtypeStruct(_usual(a), a.dtype) for a in self.in_avals]

        def made() -> Any:
            fresh = Exported(self.fun_name, self.jaxpr, self.signature, self.consts, {})
            return fresh._run.lower(*self.consts, *leaves).compile().executable

        plans = compiler().plans_of(made().stages)
        code: dict[str, Mapping[str, bytes]] = {}
        for name in native:
            with config.scope(cpu="" if name == "host" else name):
                found = made()
                code[name] = compiler().objects_of(found.stages, found.target)
        return Exported(self.fun_name, self.jaxpr, self.signature, self.consts, plans, code)

    def warm(self) -> None:
        """Compile now, by a run on zeros, what the first call would."""
        args, kwargs = tree.unflatten(self.in_tree, [_zeros(a) for a in self.in_avals])
        self(*args, **kwargs)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artefact, in place of what is there, whole or not at all."""
        files.put(Path(path), self.serialize())

    def _flat(self, *leaves: Value) -> list[Value]:
        """The program, keys as keys at its boundary."""
        words = [random_unwrap(x) if dt.is_key(aval_of(x).dtype) else x for x in leaves]
        outs = eval_jaxpr(self._at_sizes(words), words)
        pairs = zip(outs, self.out_avals, strict=True)
        return [random_wrap(x) if dt.is_key(a.dtype) else x for x, a in pairs]

    def _at_sizes(self, leaves: Sequence[Value]) -> Jaxpr:
        """The program, at sizes that are known, as they are under another transformation."""
        known = all(isinstance(n, int) for x in leaves for n in aval_of(x).shape)
        return compiler().at_sizes(self.jaxpr, leaves) if known and self.is_open else self.jaxpr

    def _fitting(self, number: int, leaf: Value) -> Value:
        """An argument as the program takes it; Python's numbers become arrays."""
        wanted, found = self.in_avals[number], aval_of(leaf)
        if not isinstance(leaf, Array) and found.weak and not found.ndim:
            leaf = Array(np.asarray(leaf, wanted.dtype))
            found = aval_of(leaf)
        if not _fits(found, wanted):
            path = tree.leaves_with_path(tree.unflatten(self.in_tree, self.in_avals))[number][0]
            kind = DTypeError if _fits(found, wanted, shapes_only=True) else ShapeError
            raise kind(
                operation=f"a call of the exported {self.fun_name}",
                required=f"{wanted} at {tree.keystr(path)}", got=str(found),
                fix="convert the argument, or export the function for this type",
            )  # fmt: skip
        return _weakened(leaf, False)

    def _structure(self, what: str, treedef: tree.PyTreeDef) -> Any:
        try:
            return structure.encoded(treedef)
        except TypeError as error:
            raise _unportable(
                self.fun_name, f"{what} in dicts, lists, tuples and None alone", str(error)
            ) from None


def export(
    fun: Any,
    *args: Any,
    path: str | os.PathLike[str] | None = None,
    native: Sequence[str] = (),
    **kwargs: Any,
) -> bytes:
    """A jitted function at the signature of these arguments (arrays or ShapeDtypeStructs) as an
    artefact: bytes that `lumjax.export.load` makes a function of, in another process, without the
    function's source, without tracing it and without a search; also written to `path` if given.

    Arrays that the function closes over are part of it; sizes that `jit(dynamic=)` leaves open stay
    open. `native` names targets whose machine code goes along, for `load(trust_native=True)`:
    "host", or what LLVM calls a processor ("x86-64", "haswell", ...) that this machine stands in
    for.

    Raises UnsupportedError for what has no
    meaning elsewhere: callbacks into Python, nodes of a class of your own in arguments or results.

    >>> import lumjax, lumjax.numpy as jnp
    >>> artefact = lumjax.export(lumjax.jit(lambda x: {"twice": 2 * x}), jnp.ones(3))
    >>> lumjax.export.load(artefact)(jnp.arange(3.0))
    {'twice': Array([0., 2., 4.], dtype=float32)}
    """
    made = _exported(fun, args, kwargs, native).serialize()
    if path is not None:
        files.put(Path(path), made)
    return made


def exported(fun: Any, *args: Any, **kwargs: Any) -> Exported:
    """The function at the signature of these arguments, compiled, with its plans."""
    return _exported(fun, args, kwargs)


def _exported(
    fun: Any, args: Sequence[Any], kwargs: Mapping[str, Any], native: Sequence[str] = ()
) -> Exported:
    if not isinstance(fun, Jitted):
        raise ArgumentTypeError(
            operation="export", required="a function that jit made", got=repr(fun),
            fix="export jit(fun)",
        )  # fmt: skip
    traced = fun.trace(*args, **kwargs)
    core, more = compiler().expand(simplify(traced.jaxpr.jaxpr))
    core = simplify(core)
    consts = (*map(_strong, more), *map(_strong, traced.jaxpr.consts))
    signature = Signature(
        traced.in_tree, traced.out_tree, traced.jaxpr.in_avals, traced.jaxpr.out_avals
    )
    name = str(traced.fun_name)
    _programs(name, core)  # what can't be written is not compiled either
    return Exported(name, core, signature, consts, {}).planned(native)


def load(
    artefact: bytes | bytearray | memoryview | str | os.PathLike[str], *, trust_native: bool = False
) -> Exported:
    """The function in an artefact: its bytes, or the path of its file.

    Machine code that it brings along is left aside, unless `trust_native`: then this process runs
    it as it is where it is for this machine. Say so only of files whose writer you would let run
    any program here.

    Raises FileNotFoundError, and ArtefactError for bytes that are no artefact, were changed, or
    are of a format that this version does not read.

    >>> import lumjax, lumjax.numpy as jnp
    >>> lumjax.export.load(lumjax.export(lumjax.jit(jnp.sum), jnp.ones(3)))
    Exported(sum: f32[3] -> f32[])
    """
    if isinstance(artefact, bytes | bytearray | memoryview):
        data = bytes(artefact)
    else:
        data = Path(artefact).read_bytes()
    try:
        tensors, texts = files.unpacked(data)
        content = json.loads(texts[_CONTENT])
    except (files.DamageError, KeyError, ValueError) as error:
        why = "a safetensors file of something else" if isinstance(error, KeyError) else str(error)
        raise _damaged(why) from error
    if content.get("format") != FORMAT:
        raise _damaged(f"format {content.get('format')}, of which this version reads {FORMAT}")
    try:
        found = _read(content, tensors)
        if trust_native:
            for code in found.native.values():
                compiler().trust(code)
        return found
    except Exception as error:  # whatever a rule raises of a program that was never one
        raise _damaged(f"a program that is none: {error}") from error


def _read(content: Mapping[str, Any], tensors: Mapping[str, Any]) -> Exported:
    jaxpr = program.decoded(content["program"])
    consts = [
        _const(tensors[f"const{k:04d}"], program.aval_from(entry))
        for k, entry in enumerate(content["consts"])
    ]
    signature = Signature(
        structure.decoded(content["in_tree"]),
        structure.decoded(content["out_tree"]),
        tuple(map(program.aval_from, content["in_avals"])),
        tuple(map(program.aval_from, content["out_avals"])),
    )
    words = [_words(a) for a in (*map(aval_of, consts), *signature.in_avals)]
    outs = [_words(a) for a in signature.out_avals]
    if [_words(a) for a in jaxpr.in_avals] != words or list(map(_words, jaxpr.out_avals)) != outs:
        raise ValueError("its types are not those of its signature")
    trees = (signature.in_tree, signature.in_avals), (signature.out_tree, signature.out_avals)
    if any(t.num_leaves != len(avals) for t, avals in trees):
        raise ValueError("its structures have other leaves")
    native = {
        str(name): {str(key): tensors[_NATIVE + key].tobytes() for key in keys}
        for name, keys in content.get("native", {}).items()
    }
    return Exported(str(content["name"]), jaxpr, signature, consts, dict(content["plans"]), native)


def _words(aval: ShapedArray) -> tuple[Any, ...]:
    """The shape and dtype of what a program has for values: of keys, their words."""
    if dt.is_key(aval.dtype):
        return (*aval.shape, 2), dt.uint32
    return aval.shape, aval.dtype


def _programs(name: str, jaxpr: Jaxpr) -> list[Any]:
    try:
        return program.encoded(jaxpr)
    except TypeError as error:
        raise _unportable(name, "a program of core primitives alone", str(error)) from None


def _tensor(x: Value) -> np.ndarray[Any, Any]:
    data = key_data(x).data if dt.is_key(x.dtype) else x.data
    if data.dtype in (dt.complex64, dt.complex128):
        data = data.reshape(*data.shape, 1).view(data.real.dtype)
    return np.ascontiguousarray(data).reshape(data.shape)


def _const(data: np.ndarray[Any, Any], aval: ShapedArray) -> Value:
    if dt.is_key(aval.dtype):
        return wrap_key_data(Array(data))
    if aval.dtype in (dt.complex64, dt.complex128):
        data = data.view(aval.dtype).reshape(data.shape[:-1])
    if (data.shape, data.dtype) != (aval.shape, aval.dtype):
        raise ValueError("a constant of another type")
    return Array(data)


def _zeros(aval: ShapedArray) -> Array:
    return Array(np.zeros(_usual(aval), aval.dtype))


def _usual(aval: ShapedArray) -> tuple[int, ...]:
    """The shape, with sizes that come with each call as they usually are."""
    return tuple([estimate(n) for n in aval.shape])


def _open_axes(aval: ShapedArray) -> dict[int, Expr] | None:
    """The axes whose sizes come with each call."""
    return {k: n for k, n in enumerate(aval.shape) if isinstance(n, Expr)} or None


def _fits(found: ShapedArray, wanted: ShapedArray, shapes_only: bool = False) -> bool:
    """Whether an argument may be of this type; what sizes that come with a call may be is looked at
    when all of them are known.
    """
    if not shapes_only and found.dtype != wanted.dtype:
        return False
    return found.ndim == wanted.ndim and all(
        isinstance(w, Expr) or same(n, w) for n, w in zip(found.shape, wanted.shape, strict=True)
    )


def _strong(x: Value) -> Array:
    return Array(x.data if isinstance(x, Array) else np.asarray(x))


def _weakened(x: Value, weak: bool) -> Value:
    return Array(x.data, weak) if isinstance(x, Array) and x.weak != weak else x


def _unportable(name: str, required: str, got: str) -> UnsupportedError:
    return UnsupportedError(
        operation=f"export of {name}", required=required, got=got,
        fix="leave it out of the function that is exported",
    )  # fmt: skip


def _damaged(why: str) -> ArtefactError:
    return ArtefactError(
        operation="export.load", required="an artefact of lumjax.export", got=why,
        fix="export the function again",
    )  # fmt: skip
