"""Calls of compiled programs as native code: a builtin function that takes a call's arguments
apart, checks them, runs the kernels and puts the results together.

The code is one text for all programs (arguments.py, results.py); what differs is a block of
numbers, the plan. The builtin returns MISS for arguments that are not exactly as the plan has them,
before it has changed anything: then Python does the call.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np

from lumjax.aligned import ALIGNMENT, SMALL
from lumjax.cpu import arguments, objects, pool, results, words
from lumjax.cpu.arena import LARGE, maker, take
from lumjax.cpu.words import DICT, LEAF, LITERAL, SCALARS, Layout
from lumjax.dtype import DType
from lumjax.profiler import launches
from lumjax.record import record
from lumjax.trace.array import Array, Deleted
from lumjax.trace.aval import ShapedArray

MISS = NotImplemented
_TESTED = ((3, 11), (3, 12), (3, 13))  # versions of Python whose objects lie as the text has them

# ---- plans


@record
class Node:
    """A node of a tree. `of` is the number of a leaf, the very object that is expected, the type of
    a container, or what makes something of a list of its children; `keys` are a dict's.
    """

    kind: int
    of: Any
    children: tuple[Node, ...] = ()
    keys: tuple[Any, ...] = ()


@record
class Input:
    """A leaf that is expected, and the place of its address in the table (-1 if it has none).
    `scalar`: a number of Python's will do. `owned`: nothing else may know of its memory. `donated`:
    it has to be an Array.
    """

    aval: ShapedArray
    place: int
    scalar: bool = False
    owned: bool = False
    donated: bool = False


@record
class Fresh:
    """An array to make, and the place of its address."""

    shape: tuple[int, ...]
    dtype: DType
    place: int


@record
class Output:
    """A result: the fresh array or the input of this number, or a literal. `again`: not the very
    array that was given.
    """

    kind: int
    of: Any
    weak: bool
    again: bool = False


@record(eq=False)
class Plan:
    """A program's call. The first inputs are `consts`. `arena`: places and offsets in a block of
    `arena_bytes`. Kernels are run by `launch` on the table's address, else by a native call on
    `steps` (address and number). Or all is run by `whole` on a list of the inputs' data, which
    returns a list of what is fresh. `donated`: the numbers of leaves that are deleted; then the
    last argument is a tuple of what their data becomes.
    """

    trees: tuple[Node, ...]
    inputs: tuple[Input, ...]
    consts: tuple[Any, ...]
    table: Sequence[int]
    fresh: tuple[Fresh, ...]
    outputs: tuple[Output, ...]
    result: Node
    steps: tuple[int, int]
    launch: Callable[[int], None] | None
    arena: tuple[tuple[int, int], ...]
    arena_bytes: int
    whole: Callable[[list[Any]], list[Any]] | None
    donated: tuple[int, ...]
    keep: Any  # what has to live as long


_Call: TypeAlias = Callable[..., Any]


def make(plan: Plan) -> _Call | None:
    """The builtin of a plan: a function of as many arguments as the plan has trees. None where this
    Python's objects, or NumPy's, are not laid out as they have been tested to be.
    """
    code = _native()
    if code is None:
        return None
    block = _Block(plan, code)
    return code.function((block.finished(), block.kept, plan))


# Where in a block something is: told from a number, which stays what it is when the block moves.
@record
class _At:
    word: int


class _Block:
    """A plan as numbers, some of which are addresses of others or of objects that it keeps."""

    def __init__(self, plan: Plan, code: _Code) -> None:
        self.kept: list[Any] = []
        self._words: list[int] = [0] * len(words.FIELDS)
        self._inside: list[int] = []  # which words are places in the block
        fields = self._program(plan, code) | self._values(plan) | _areas(plan)
        for at, name in enumerate(words.FIELDS):
            self._write(at, fields.pop(name))
        assert not fields, "all are known"

    def finished(self) -> np.ndarray[Any, Any]:
        """The numbers."""
        found = np.array(self._words, np.int64)
        found[self._inside] = found[self._inside] * 8 + found.ctypes.data
        return found

    def _write(self, at: int, value: int | _At) -> None:
        if isinstance(value, _At):
            self._inside.append(at)
            value = value.word
        self._words[at] = value

    def _put(self, values: Sequence[int | _At]) -> _At:
        """Write numbers behind the others."""
        at = len(self._words)
        self._words += [0] * len(values)
        for k, value in enumerate(values):
            self._write(at + k, value)
        return _At(at)

    def _object(self, value: Any) -> int:
        """The address of an object, which is kept; 0 for None."""
        if value is None:
            return 0
        self.kept.append(value)
        return id(value)

    def _program(self, plan: Plan, code: _Code) -> dict[str, int | _At]:
        address, count = plan.steps
        block = partial(take, plan.arena_bytes) if plan.arena_bytes else None
        return {
            "kinds": self._put([id(k) for k in code.kinds]),  # which the code keeps
            "n.steps": count, "steps": address, "run": code.run, "raise": code.again,
            "launch": self._object(plan.launch), "whole": self._object(plan.whole),
            "take": self._object(block), "n.arena": len(plan.arena),
            "arena": self._put([n for pair in plan.arena for n in pair]),
        }  # fmt: skip

    def _values(self, plan: Plan) -> dict[str, int | _At]:
        inputs = [w for x in plan.inputs for w in self._input(x)]
        fresh = [w for x in plan.fresh for w in self._fresh(x)]
        outputs = [w for x in plan.outputs for w in self._output(x)]
        return {
            "expected": len(plan.trees) + bool(plan.donated), "roots": len(plan.trees),
            "trees": self._put([self._node(n) for n in plan.trees]),
            "n.inputs": len(plan.inputs), "inputs": self._put(inputs),
            "n.consts": len(plan.consts), "consts": self._put(list(map(self._object, plan.consts))),
            "n.table": len(plan.table), "table": self._put(plan.table),
            "n.fresh": len(plan.fresh), "fresh": self._put(fresh),
            "n.outputs": len(plan.outputs), "outputs": self._put(outputs),
            "result": self._node(plan.result),
            "n.donated": len(plan.donated), "donated": self._put(plan.donated),
        }  # fmt: skip

    def _node(self, node: Node) -> _At:
        children = [self._node(c) for c in node.children]
        found: list[int | _At] = []
        if node.kind == DICT:
            for key, child in zip(node.keys, children, strict=True):
                self.kept.append(key)
                found += [id(key), child]
        else:
            found += children
        self.kept.append(node.of)
        of = node.of if node.kind == LEAF else id(node.of)
        return self._put([node.kind, of, len(children), *found])

    def _input(self, x: Input) -> tuple[int | _At, ...]:
        dtype, weak = x.aval.dtype, x.aval.weak
        shape: tuple[Any, ...] = x.aval.shape
        usual = weak != (dtype.kind == "b")  # Python's numbers are weak, but for bools
        scalar = SCALARS.get(dtype.name, 0) if x.scalar and shape == () and usual else 0
        return (
            self._object(dtype), len(shape), self._put(shape), id(weak), x.place,
            x.owned + 2 * x.donated, self._object(x.aval), scalar,
        )  # fmt: skip

    def _fresh(self, x: Fresh) -> tuple[int | _At, ...]:
        size = int(np.prod(x.shape, dtype=np.int64)) * x.dtype.itemsize
        return (
            self._object(x.dtype), len(x.shape), self._put(x.shape), size if size >= SMALL else 0,
            x.place, self._object(maker(x.shape, x.dtype)) if size >= LARGE else 0,
        )  # fmt: skip

    def _output(self, x: Output) -> tuple[int, ...]:
        return x.kind, self._object(x.of) if x.kind == LITERAL else x.of, id(x.weak), x.again


def _areas(plan: Plan) -> dict[str, int | _At]:
    """Where a call's memory has what: references that it owns first."""
    inputs, size = len(plan.inputs), 1
    while size < 2 * len(plan.donated):
        size *= 2
    lengths = {
        "objects": inputs, "data": inputs, "fresh": len(plan.fresh), "made": len(plan.outputs),
        "block": 1, "seen": size, "table": len(plan.table), "numbers": inputs,
    }  # fmt: skip
    found: dict[str, int | _At] = {"hash": size - 1}
    end = 0
    for name, length in lengths.items():
        found[f"{name}.at"] = end
        end += length
        if name == "block":
            found["n.owned"] = end
    return found | {"words": end}


# ---- the code


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )  # fmt: skip


_FASTCALL = 0x80  # METH_FASTCALL


class _Code:
    """The native code, and what plans mention of it."""

    def __init__(self, layout: Layout, numpy: _Numpy) -> None:
        self.run, self.again = pool.native().addresses
        self.kinds = (
            Array, np.ndarray, str, Deleted, sys.intern("__class__"), MISS, launches, None,
            float, int, bool, sys.intern("address"), np.dtype(np.uint8),
        )  # fmt: skip
        assert len(self.kinds) == len(words.KINDS)
        symbols = {n: _address(getattr(ctypes.pythonapi, n)) for n in words.PYTHON}
        symbols |= {"lumjax_new": numpy.new, "lumjax_based": numpy.based}
        code = objects.object_code(_text(layout), objects.host_target())
        (address,) = objects.load(code, ["lumjax_call"], symbols)
        self._method = _Method(b"call", address, _FASTCALL, b"A call of a compiled program.")
        self._new: Any = ctypes.PYFUNCTYPE(
            ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
        )(_address(ctypes.pythonapi.PyCFunction_NewEx))

    def function(self, of: tuple[Any, ...]) -> _Call:
        """A builtin whose `self` is this tuple, a plan's numbers first."""
        return self._new(ctypes.addressof(self._method), of, None)


def _text(layout: Layout) -> str:
    parts = [arguments.HELPERS, arguments.INPUTS, arguments.GATHER]
    parts += [results.RUNNING, results.RESULTS, results.CALL]
    return words.whole("\n".join([words.DECLARED, *parts]), layout, ALIGNMENT)


def _address(function: Any) -> int:
    found = ctypes.cast(function, ctypes.c_void_p).value
    assert found is not None, "a function has an address"
    return found


_lock = threading.Lock()


def _native() -> _Code | None:
    with _lock:
        return _code()


@cache
def _code() -> _Code | None:
    """The code, if it can be trusted here."""
    layout, numpy = _layout(), _numpy()
    return None if layout is None or numpy is None else _Code(layout, numpy)


def usable() -> bool:
    """Whether calls can be native here."""
    return _native() is not None


# ---- what the text takes for granted of objects in memory, compared with what Python says


def _word(address: int) -> int:
    return ctypes.c_size_t.from_address(address).value


def _half(address: int) -> int:
    return ctypes.c_uint32.from_address(address).value


def _layout() -> Layout | None:
    """Where an Array has its slots; None if objects do not look as they should."""
    plain = sys.implementation.name == "cpython" and sys.version_info[:2] in _TESTED
    if not plain or ctypes.sizeof(ctypes.c_void_p) != 8 or sys.byteorder != "little":
        return None
    if getattr(sys, "abiflags", "") or object.__basicsize__ != 16:  # no debug, no free threads
        return None
    if any(_word(id(x) + 8) != id(type(x)) for x in ((), [], {}, "", 1.0, True, None)):
        return None
    return _slots() if _counts_come_first() and _arrays_are_known() else None


def _counts_come_first() -> bool:
    value = object()
    before = _half(id(value))
    more = [value] * 5
    return _half(id(value)) == before + len(more)


def _slots() -> Layout | None:
    data, aval, weak = marks = (np.zeros(3), object(), object())
    value: Any = Array(data, weak)  # type: ignore[arg-type]  # something that is found again
    value._aval = aval
    at = {_word(id(value) + 8 * k): k for k in range(2, Array.__basicsize__ // 8)}
    places = [at.get(id(m)) for m in marks]
    value._aval, value.weak = None, False
    if None in places:
        return None
    return Layout(data=places[0], aval=places[1], weak=places[2])  # type: ignore[arg-type]


def _arrays_are_known() -> bool:
    """Whether arrays of several kinds have their fields where the text reads them."""
    base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for a in (base, base[1:, ::2], base.T, np.zeros((), np.int8), np.zeros((0, 5)), base[0].copy()):
        at, size = id(a), _word(id(a) + 32)
        read = _word(at + 16), _half(at + 24), _half(at + 64), _word(at + 48), _word(at + 56)
        owner = 0 if a.base is None else id(a.base)
        if read != (a.ctypes.data, a.ndim, a.flags.num, owner, id(a.dtype)):
            return False
        if tuple(_word(size + 8 * k) for k in range(a.ndim)) != a.shape:
            return False
    return True


@record
class _Numpy:
    """Functions of NumPy's table: PyArray_NewFromDescr and PyArray_SetBaseObject."""

    new: int
    based: int


def _numpy() -> _Numpy | None:
    """What NumPy has of them."""
    if np.__version__.split(".")[0] != "2":
        return None
    pointer: Any = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        _address(ctypes.pythonapi.PyCapsule_GetPointer)
    )
    numpy: Any = np
    table = pointer(numpy._core._multiarray_umath._ARRAY_API, None)
    if _word(table + 8 * words.NDARRAY) != id(np.ndarray):
        return None
    return _Numpy(_word(table + 8 * words.NEW), _word(table + 8 * words.BASED))
