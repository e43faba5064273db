"""Calls as native code: what a builtin takes, gives, refuses, owns and leaves behind."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax.cpu import arena, caller
from lumjax.cpu.caller import MISS, Fresh, Input, Node, Output, Plan
from lumjax.cpu.words import DICT, FRESH, INPUT, LEAF, LIST, LITERAL, MAKE, SAME, TUPLE
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray

F32 = np.dtype(np.float32)
needs_code = pytest.mark.skipif(not caller.usable(), reason="calls are Python's here")
pytestmark = needs_code


def leaf(k):
    return Node(LEAF, k)


def plan_of(trees, inputs, outputs, result, **more):
    fields = {
        "consts": (), "table": (0,), "fresh": (), "steps": (0, 0), "launch": None, "arena": (),
        "arena_bytes": 0, "whole": None, "donated": (), "keep": None,
    }  # fmt: skip
    return Plan(
        trees=tuple(trees), inputs=tuple(inputs), outputs=tuple(outputs), result=result,
        **(fields | more),
    )  # fmt: skip


def aval(*shape, dtype=F32, weak=False):
    return ShapedArray(shape, np.dtype(dtype), weak)


def identity(tree, count, result=None, **more):
    """A builtin that returns its argument's leaves."""
    inputs = [Input(aval(2), -1) for _ in range(count)]
    outputs = [Output(INPUT, k, False) for k in range(count)]
    return caller.make(plan_of([tree], inputs, outputs, result or tree, **more))


def arrays(count):
    return [Array(np.full(2, k, np.float32)) for k in range(count)]


def test_a_tree_is_taken_apart_and_put_together():
    tree = Node(
        TUPLE, tuple,
        (
            Node(DICT, dict, (leaf(1), leaf(0)), ("b", "a")),
            Node(LIST, list, (leaf(2), Node(SAME, None))),
        ),
    )  # fmt: skip
    a, b, c = arrays(3)
    found = identity(tree, 3)(({"b": b, "a": a}, [c, None]))
    assert found == ({"b": b, "a": a}, [c, None])
    assert list(found[0]) == ["b", "a"]
    assert found[0]["a"] is a


def test_an_equal_key_will_do():
    key = "".join(["lea", "rning rate"])  # no interned object
    assert key is not "".join(["lea", "rning rate"])
    call = identity(Node(DICT, dict, (leaf(0),), (key,)), 1)
    (a,) = arrays(1)
    assert call({"".join(["learning", " rate"]): a}) == {key: a}


class Tuple(tuple):
    __slots__ = ()


class Dict(dict):
    pass


class Array2(Array):
    __slots__ = ()


@pytest.mark.parametrize(
    ("tree", "other"),
    [
        (Node(TUPLE, tuple, (leaf(0),)), lambda a: [a]),
        (Node(TUPLE, tuple, (leaf(0),)), lambda a: (a, a)),
        (Node(TUPLE, tuple, (leaf(0),)), lambda a: ()),
        (Node(TUPLE, tuple, (leaf(0),)), lambda a: Tuple((a,))),
        (Node(LIST, list, (leaf(0),)), lambda a: [a, None]),
        (Node(DICT, dict, (leaf(0),), ("a",)), lambda a: {"b": a}),
        (Node(DICT, dict, (leaf(0),), ("a",)), lambda a: {"a": a, "b": a}),
        (Node(DICT, dict, (leaf(0),), ("a",)), lambda a: {}),
        (Node(DICT, dict, (leaf(0),), ("a",)), lambda a: {0: a}),
        (Node(DICT, dict, (leaf(0),), ("a",)), lambda a: Dict(a=a)),
        (Node(DICT, dict, (leaf(0), leaf(0)), ("a", "b")), lambda a: {"b": a, "a": a}),
        (Node(TUPLE, tuple, (leaf(0), Node(SAME, None))), lambda a: (a, a)),
        (Node(TUPLE, tuple, (leaf(0), Node(SAME, F32))), lambda a: (a, np.dtype(np.int8))),
        (leaf(0), lambda a: Array2(a.data)),
        (leaf(0), lambda a: Array(a.data, True)),
        (leaf(0), lambda a: Array(np.zeros(3, np.float32))),
        (leaf(0), lambda a: Array(np.zeros((2, 1), np.float32))),
        (leaf(0), lambda a: Array(np.float32(0)[None][0])),
        (leaf(0), lambda a: Array(np.zeros(2, np.int32))),
        (leaf(0), lambda a: Array(np.zeros(2, ">f4"))),
        (leaf(0), lambda a: Array(np.zeros(4, np.float32)[::2])),
        (leaf(0), lambda a: Array(np.zeros(9, np.uint8)[1:].view(np.float32))),
        (leaf(0), lambda a: Array(np.zeros(2, np.float32).view(np.matrix).T)),
        (leaf(0), lambda a: Array.__new__(Array)),
        (leaf(0), lambda a: 1.0),
        (leaf(0), lambda a: np.zeros(2)),
        (leaf(0), lambda a: np.ma.zeros(2, np.float32)),
        (leaf(0), lambda a: None),
        (leaf(0), lambda a: object()),
    ],
)  # fmt: skip
def test_what_is_not_the_same_is_left_to_python(tree, other):
    call = identity(tree, 1)
    (a,) = arrays(1)
    argument = other(a)
    assert call(argument) is MISS
    if argument is None:  # others count it too
        return
    before = sys.getrefcount(a), sys.getrefcount(argument)
    for _ in range(3):
        assert call(argument) is MISS
    assert (sys.getrefcount(a), sys.getrefcount(argument)) == before


def test_wrong_numbers_of_arguments_are_left_to_python():
    call = identity(leaf(0), 1)
    assert call() is MISS
    assert call(*arrays(2)) is MISS


def test_numpy_arrays_are_read_where_they_are():
    call = identity(leaf(0), 1)
    x = np.ones(2, np.float32)
    (found, again) = call(x), call(x)
    assert type(found) is Array
    assert found.data is x
    assert not found.weak
    assert found is not again


def kernel_that_adds(inputs, **more):
    """A builtin around a kernel in Python: it reads addresses in the table and writes one."""

    def launch(table):
        places = (ctypes.c_size_t * 3).from_address(table)
        a, b, out = [np.ctypeslib.as_array((kind * 1).from_address(p)) for p, kind in zip(
            places, (inputs[0][1], inputs[1][1], ctypes.c_double), strict=True)]  # fmt: skip
        out[0] = float(a[0]) + float(b[0])

    given = [Input(a, k, scalar=True) for k, (a, _) in enumerate(inputs)]
    fresh = (Fresh((1,), np.dtype(np.float64), 2),)
    plan = plan_of(
        [leaf(0), leaf(1)], given, [Output(FRESH, 0, False)], leaf(0), table=[0, 0, 0],
        fresh=fresh, launch=launch, **more,
    )  # fmt: skip
    return caller.make(plan)


NUMBERS = {
    "float32": (ctypes.c_float, True), "float64": (ctypes.c_double, True),
    "int32": (ctypes.c_int32, True), "int64": (ctypes.c_int64, True),
    "bool": (ctypes.c_bool, False),
}  # fmt: skip


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_of_python_are_written_for_the_kernels(dtype):
    kind, weak = NUMBERS[dtype]
    call = kernel_that_adds([(aval(dtype=dtype, weak=weak), kind)] * 2)
    values = {"f": [0.1, -2.5, 1e300, float("inf"), 1e-50], "i": [0, -7, 2**31 - 1, -(2**31)],
              "b": [True, False]}[np.dtype(dtype).kind]  # fmt: skip
    for x in values:
        with np.errstate(over="ignore"):
            want = float(np.asarray(x, dtype)) + float(np.asarray(values[0], dtype))
        assert call(x, values[0]).data.tolist() == [want]
        array = Array(np.asarray(values[0], dtype), weak)
        with np.errstate(over="ignore"):
            assert call(x, array).data.tolist() == [want]
    others = {"f": [1, True, 1j, "1"], "i": [1.0, True, 2**70, -(2**70), None], "b": [1, 0, 1.0]}
    more = [2**31, -(2**31) - 1, 2**63] if dtype == "int32" else []
    for x in others[np.dtype(dtype).kind] + more:
        assert call(x, values[0]) is MISS


def test_a_number_of_python_is_weak():
    call = kernel_that_adds([(aval(weak=False), ctypes.c_float)] * 2)
    assert call(1.0, 1.0) is MISS
    call = kernel_that_adds([(aval(dtype=bool, weak=True), ctypes.c_bool)] * 2)
    assert call(True, True) is MISS


@pytest.mark.parametrize("count", [0, 1, 3, 255, 256, 4096, 65535, 65536, 200_000])
def test_fresh_arrays_are_as_python_makes_them(count):
    fresh = (Fresh((count, 1), F32, 0),)
    seen = []
    plan = plan_of([], [], [Output(FRESH, 0, True)], leaf(0), fresh=fresh,
                   launch=lambda t: seen.append(ctypes.c_size_t.from_address(t).value))  # fmt: skip
    call = caller.make(plan)
    found = call()
    assert found.weak
    assert found.data.shape == (count, 1)
    assert found.data.dtype is F32
    assert seen == [found.data.ctypes.data]
    from_python = caller.maker((count, 1), F32)()
    assert found.data.flags.num == from_python.flags.num
    assert (found.data.base is None) == (from_python.base is None)
    if count >= 256:
        assert found.data.ctypes.data % 64 == 0
    found.data[...] = 1  # it is there
    lumjax.ops.add(found, 1.0)


def test_literals_and_what_python_makes():
    three = np.asarray(3, np.int32)
    made = Node(MAKE, lambda parts: ("made", *parts), (leaf(0), leaf(0)))
    call = caller.make(plan_of([], [], [Output(LITERAL, three, True)], made))
    name, a, b = call()
    assert name == "made"
    assert a is b
    assert a.data is three
    assert a.weak


def test_what_the_kernels_keep_for_themselves_lies_in_a_block():
    seen = []

    def launch(table):
        a, b = (ctypes.c_size_t * 2).from_address(table)
        ctypes.memset(a, 1, 5000)
        seen.append(b - a)

    plan = plan_of([], [], [], Node(TUPLE, tuple), table=[0, 0], arena=((0, 0), (1, 4096)),
                   arena_bytes=9000, launch=launch)  # fmt: skip
    assert caller.make(plan)() == ()
    assert seen == [4096]


def test_a_program_that_python_runs():
    def whole(data):
        assert [type(d) for d in data] == [np.ndarray]
        return [data[0] * 2, data[0]]

    fresh = (Fresh((), F32, -1),) * 2
    plan = plan_of(
        [leaf(0)], [Input(aval(2), -1)], [Output(FRESH, 0, False), Output(INPUT, 0, False)],
        Node(TUPLE, tuple, (leaf(0), leaf(1))), fresh=fresh, whole=whole,
    )  # fmt: skip
    (a,) = arrays(1)
    call = caller.make(plan)
    double, same = call(a)
    assert same is a
    assert double.tolist() == [0.0, 0.0]
    short = caller.make(plan_of([], [], [], leaf(0), fresh=fresh, whole=lambda data: []))
    with pytest.raises(IndexError):
        short()
    odd = caller.make(plan_of([], [], [], leaf(0), fresh=fresh, whole=lambda data: 1))
    with pytest.raises(SystemError):
        odd()


def test_errors_of_what_it_calls_come_through_and_nothing_is_lost():
    class BoomError(Exception):
        pass

    def boom(*_):
        raise BoomError

    (a,) = arrays(1)
    before = sys.getrefcount(a), sys.getrefcount(a.data)
    inputs, outputs = [Input(aval(2), 0)], [Output(INPUT, 0, False)]
    for made in (
        plan_of([leaf(0)], inputs, outputs, leaf(0), launch=boom),
        plan_of([leaf(0)], inputs, outputs, leaf(0), whole=boom),
        plan_of([leaf(0)], inputs, outputs, Node(MAKE, boom, (leaf(0),))),
        plan_of([leaf(0)], inputs, outputs,
                Node(DICT, dict, (leaf(0), Node(MAKE, boom)), ("a", "b"))),
        plan_of([leaf(0)], inputs, outputs, Node(DICT, dict, (leaf(0),), ([],))),
    ):  # fmt: skip
        call = caller.make(made)
        for _ in range(3):
            with pytest.raises((BoomError, TypeError)):
                call(a)
    gc.collect()
    assert (sys.getrefcount(a), sys.getrefcount(a.data)) == before


def test_references_are_counted():
    key, result = "key" * 3, F32
    tree = Node(DICT, dict, (leaf(0), Node(LIST, list, (leaf(1),))), (key, "more"))
    fresh = (Fresh((5,), F32, 0), Fresh((500,), F32, 1))
    plan = plan_of(
        [tree], [Input(aval(2), 0), Input(aval(2), 1)],
        [Output(FRESH, 0, False), Output(INPUT, 1, False), Output(FRESH, 1, False)],
        Node(DICT, dict, (leaf(0), Node(TUPLE, tuple, (leaf(1), leaf(2)))), (key, "out")),
        fresh=fresh, table=[0, 0],
    )  # fmt: skip
    call = caller.make(plan)
    a, b = arrays(2)
    argument = {key: a, "more": [b]}
    watched = [a, b, a.data, b.data, key, result, argument, Array, np.ndarray, np.dtype(np.uint8)]
    call(argument)
    gc.collect()
    before = [sys.getrefcount(w) for w in watched]
    blocks = sys.getallocatedblocks()
    for _ in range(1000):
        call(argument)
    gc.collect()
    assert [sys.getrefcount(w) for w in watched] == before
    assert abs(sys.getallocatedblocks() - blocks) < 100
    alone = sys.getrefcount(b)
    held = call(argument)
    assert sys.getrefcount(b) == alone + 1
    data = held[key].data
    del held
    assert sys.getrefcount(data) == 2  # the variable and the question


def test_donated_leaves_are_deleted():
    plan = plan_of(
        [leaf(0), leaf(1)], [Input(aval(2), 0, donated=True), Input(aval(2), -1)],
        [Output(INPUT, 0, False, again=True)], leaf(0), donated=(0,),
    )  # fmt: skip
    call = caller.make(plan)
    a, b = arrays(2)
    data = a.data
    assert call(a, b) is MISS  # one argument less
    assert call(a, a, ("why",)) is MISS
    assert call(data, b, ("why",)) is MISS
    found = call(a, b, ("it was given away",))
    assert found.data is data
    assert a.is_deleted()
    assert a.shape == (2,)
    with pytest.raises(lumjax.errors.DonationError, match="it was given away"):
        _ = a.data
    assert call(a, b, ("why",)) is MISS
    assert sys.getrefcount(data) == 3
    c, d = arrays(2)
    known = c.aval
    call(c, d, ("why",))
    assert c.aval is known
    with pytest.raises(IndexError):
        call(*arrays(2), ())


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_only_what_is_donated_is_given_once(count):
    tree = Node(LIST, list, tuple(map(leaf, range(2 * count))))
    inputs = [Input(aval(2), -1, donated=k < count) for k in range(2 * count)]
    call = caller.make(plan_of([tree], inputs, [], Node(TUPLE, tuple), donated=range(count)))
    gone = ("why",) * count
    (x,) = arrays(1)
    for k in range(count):
        given = arrays(count)
        assert call([*given, *[x] * (count - 1), given[k]], gone) is MISS
        if k:
            assert call([*given[:k], given[0], *given[k + 1 :], *[x] * count], gone) is MISS
        assert not any(a.is_deleted() for a in given)
        assert call([*given, *[x] * count], gone) == ()
        assert all(a.is_deleted() for a in given)
    assert not x.is_deleted()


def test_memory_that_is_written_belongs_to_one_array():
    plan = plan_of(
        [leaf(0)], [Input(aval(2), 0, owned=True, donated=True)],
        [Output(INPUT, 0, False, again=True)], leaf(0), donated=(0,),
    )  # fmt: skip
    call = caller.make(plan)

    def takes(make):  # which keeps nothing, as an `assert` would
        return call(Array(make()), ("why",)) is not MISS

    shared, wide = np.zeros(2, np.float32), np.zeros(4, np.float32)
    assert takes(lambda: np.zeros(2, np.float32))
    assert takes(lambda: np.zeros((1, 2), np.float32)[0])
    assert not takes(lambda: shared)
    assert not takes(lambda: wide[:2])
    assert takes(lambda: arena.maker((2,), F32)())
    large = arena.LARGE // 4
    plan = plan_of(
        [leaf(0)], [Input(aval(large), 0, owned=True, donated=True)],
        [Output(INPUT, 0, False, again=True)], leaf(0), donated=(0,),
    )  # fmt: skip
    call = caller.make(plan)
    assert takes(arena.maker((large,), F32))


def test_many_threads():
    f = lumjax.jit(lambda d: {k: v * 2 for k, v in d.items()})
    given = {f"k{n}": jnp.full(n + 1, float(n)) for n in range(20)}
    for _ in range(20):
        f(given)
    (call,) = next(iter(f._fast.values()))
    wrong = []

    def work():
        for _ in range(300):
            out = call((given,), {})
            if not all(bool((out[k].data == 2 * v.data).all()) for k, v in given.items()):
                wrong.append(out)

    threads = [threading.Thread(target=work) for _ in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_it_is_not_used_where_objects_are_not_known(monkeypatch):
    assert caller._layout() is not None
    monkeypatch.setattr(caller, "_TESTED", ())
    assert caller._layout() is None
    monkeypatch.undo()
    monkeypatch.setattr(caller, "_counts_come_first", lambda: False)
    assert caller._layout() is None
    monkeypatch.undo()
    monkeypatch.setattr(caller.words, "NDARRAY", 3)
    assert caller._numpy() is None
    monkeypatch.undo()
    monkeypatch.setattr(caller.np, "__version__", "3.0.0")
    assert caller._numpy() is None
    monkeypatch.undo()
    monkeypatch.setattr(caller, "_code", lambda: None)
    assert caller.make(plan_of([], [], [], leaf(0))) is None
    f = lumjax.jit(lambda x: x + 1)
    assert [float(f(1.0)) for _ in range(20)] == [2.0] * 20
    assert not f._fast


def test_no_memory():
    """Wherever memory runs out, there is an error and nothing is lost."""
    memory = pytest.importorskip("_testcapi")
    tree = Node(DICT, dict, (leaf(0),), ("a",))
    plan = plan_of(
        [tree], [Input(aval(2), 0)],
        [Output(FRESH, 0, False), Output(FRESH, 1, False), Output(INPUT, 0, False)],
        Node(DICT, dict, (Node(LIST, list, (leaf(0), leaf(1))), Node(TUPLE, tuple, (leaf(2),))),
             ("x", "y")),
        fresh=(Fresh((2,), F32, 0), Fresh((600,), F32, 0)),
    )  # fmt: skip
    call = caller.make(plan)
    (a,) = arrays(1)
    argument = {"a": a}
    call(argument)
    before = sys.getrefcount(a), sys.getrefcount(a.data)
    failed = 0
    for start in range(40):
        memory.set_nomemory(start, start + 1)
        try:
            call(argument)
        except MemoryError:
            failed += 1
        finally:
            memory.remove_mem_hooks()
    assert failed > 5
    gc.collect()
    assert (sys.getrefcount(a), sys.getrefcount(a.data)) == before
    assert call(argument)["y"] == (a,)
