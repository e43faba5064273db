"""Pytrees against JAX's: nodes, leaves, paths, prefixes, registration, errors."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field

import numpy as np
import pytest

import lumjax
from lumjax import tree, tree_util
from lumjax.errors import ArgumentTypeError, TreeError

jax = pytest.importorskip("jax")

Point = namedtuple("Point", ["x", "y"])


@dataclass
class Plain:
    a: int


TREES = [
    1, None, (), [], {}, (1, 2), [1, (2, None)], {"b": 1, "a": [2, 3]}, {2: "x", 1: "y"},
    OrderedDict(b=1, a=2), defaultdict(list, b=1, a=2), Point(1, [2, 3]), deque([1, 2]), Plain(3),
    {"p": Point({"z": 1}, None), "q": ((), [None])}, np.arange(3), "text", [[[]]],
]  # fmt: skip


@pytest.mark.parametrize("x", TREES, ids=repr)
def test_leaves_are_jaxs(x):
    ours, theirs = tree.leaves(x), jax.tree.leaves(x)
    assert len(ours) == len(theirs)
    assert all(a is b for a, b in zip(ours, theirs, strict=True))
    assert tree.structure(x).num_leaves == len(theirs)


@pytest.mark.parametrize("x", TREES, ids=repr)
def test_paths_are_jaxs(x):
    ours = [tree.keystr(p) for p, _ in tree.leaves_with_path(x)]
    assert ours == [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(x)]
    ours = [tree.keystr(p, simple=True, separator="/") for p, _ in tree.leaves_with_path(x)]
    theirs = [
        jax.tree_util.keystr(p, simple=True, separator="/")
        for p, _ in jax.tree_util.tree_leaves_with_path(x)
    ]
    assert ours == theirs


@pytest.mark.parametrize("x", TREES, ids=repr)
def test_round_trip(x):
    flat, treedef = tree.flatten(x)
    back = tree.unflatten(treedef, flat)
    assert type(back) is type(x)
    assert tree.structure(back) == treedef
    if not isinstance(x, np.ndarray):
        assert back == x


def test_none_can_be_a_leaf():
    is_none = lambda v: v is None
    assert tree.leaves([1, None], is_leaf=is_none) == [1, None]
    assert tree.map(lambda v: v is None, [1, None], is_leaf=is_none) == [False, True]


def test_map():
    assert tree.map(lambda a, b: a + b, {"u": 1, "v": (2,)}, {"u": 10, "v": (20,)}) == {
        "u": 11,
        "v": (22,),
    }
    assert tree.map(lambda a, b: b, [1, 2], [{"x": 1}, (3,)]) == [{"x": 1}, (3,)]  # a prefix
    assert tree.map_with_path(lambda p, v: tree.keystr(p), {"a": [0]}) == {"a": ["['a'][0]"]}
    assert tree.reduce(lambda a, b: a + b, [1, (2, 3)], 10) == 16
    assert tree.all([True, (1, 2)])
    assert not tree.all({"a": 0})


@pytest.mark.parametrize(("a", "b"), [
    ({"u": 1}, {"v": 1}), ([1, 2], [1]), ((1,), [1]), ({"u": 1}, None), (Point(1, 2), (1, 2)),
])  # fmt: skip
def test_mismatches_raise(a, b):
    with pytest.raises(TreeError, match="structure"):
        tree.map(lambda x, y: x, a, b)
    assert tree.first_mismatch(a, b)


def test_no_mismatch():
    assert tree.first_mismatch({"a": 1}, {"a": 2}) is None


def test_unsortable_keys_raise():
    with pytest.raises(TreeError, match="keys"):
        tree.flatten({1: 0, "a": 0})


def test_transpose():
    outer, inner = tree.structure([0, 0]), tree.structure({"a": 0, "b": 0})
    x = [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert tree.transpose(outer, inner, x) == jax.tree.transpose(
        jax.tree.structure([0, 0]), jax.tree.structure({"a": 0, "b": 0}), x
    )
    assert tree.transpose(outer, None, x) == {"a": [1, 3], "b": [2, 4]}
    with pytest.raises(TreeError):
        tree.transpose(outer, tree.structure((0, 0)), x)


def test_prefixes():
    full = {"a": [1, 2], "b": 3}
    assert tree.broadcast({"a": True, "b": False}, full) == {"a": [True, True], "b": False}
    assert tree.flatten_axes("axes", tree.structure(full), None) == [None] * 3
    assert tree.flatten_axes("axes", tree.structure(full), {"a": 0, "b": None}) == [0, 0, None]
    with pytest.raises(TreeError, match="axes"):
        tree.flatten_axes("axes", tree.structure(full), {"a": 0})


def test_treedefs():
    treedef = tree.structure((1, [2, 3]))
    assert tree_util.treedef_tuple(tree_util.treedef_children(treedef)) == treedef
    assert tree_util.treedef_is_leaf(tree.structure(1))
    assert not tree_util.treedef_is_leaf(treedef)
    assert hash(treedef) == hash(tree.structure((0, [0, 0])))
    assert tree_util.all_leaves([1, 2])
    assert not tree_util.all_leaves([1, (2,)])


# ---- registration


@tree_util.register_pytree_node_class
class Pair:
    def __init__(self, a, b, tag="t"):
        self.a, self.b, self.tag = a, b, tag

    def tree_flatten(self):
        return (self.a, self.b), self.tag

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(*children, tag=aux)


@tree_util.register_dataclass
@dataclass
class Layer:
    w: object
    size: int = field(default=3, metadata={"static": True})


@tree_util.register_static
class Mode(str):
    pass


class Keyed:
    def __init__(self, x, y):
        self.x, self.y = x, y


tree_util.register_pytree_with_keys(
    Keyed,
    lambda k: (((tree_util.GetAttrKey("x"), k.x), (tree_util.GetAttrKey("y"), k.y)), None),
    lambda _, children: Keyed(*children),
)


def test_registered_classes():
    pair = tree.map(lambda v: v * 2, Pair(1, [2], tag="q"))
    assert (pair.a, pair.b, pair.tag) == (2, [4], "q")
    layer = tree.map(lambda v: v + 1, Layer(1, 5))
    assert layer == Layer(2, 5)
    assert tree.leaves([Mode("train"), 1]) == [1]
    assert tree.structure(Mode("a")) != tree.structure(Mode("b"))
    keys = [tree.keystr(p) for p, _ in tree.leaves_with_path([Keyed(1, 2), Layer(3), Pair(4, 5)])]
    assert keys == ["[0].x", "[0].y", "[1].w", "[2][<flat index 0>]", "[2][<flat index 1>]"]


def test_registered_classes_pass_through_transformations():
    out = lumjax.jit(lambda layer: Layer(layer.w * layer.size, layer.size))(Layer(2.0, 7))
    assert (float(out.w), out.size) == (14.0, 7)
    g = lumjax.grad(lambda layer: layer.w**2)(Layer(3.0))
    assert float(g.w) == 6.0


def test_register_dataclass_wants_a_dataclass():
    with pytest.raises(ArgumentTypeError):
        tree_util.register_dataclass(type("NotOne", (), {}))


def test_partial():
    f = tree_util.Partial(lambda a, b: a + b, 1)
    assert f(2) == 3
    assert tree.leaves(f) == [1]
    assert float(lumjax.jit(lambda g, x: g(x))(f, 2.0)) == 3.0
