"""Pytrees: nested containers of leaves, flattened by optree, held to JAX's set of nodes.

Nodes are tuple, list, dict (keys sorted), OrderedDict, defaultdict, namedtuples, None (no leaves)
and registered classes. Everything else is a leaf, deques and unregistered dataclasses included.
"""

from __future__ import annotations

import builtins
import collections
import dataclasses
import functools
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from lumjax.errors import ArgumentTypeError, TreeError
from lumjax.record import record

_NAMESPACE = "lumjax"
if TYPE_CHECKING:
    from optree import PyTreeSpec as PyTreeDef

_T = TypeVar("_T", bound=type)
_IsLeaf: TypeAlias = Callable[[Any], bool] | None

_lock = threading.Lock()
_nodes: list[type] = []  # of this module's own that optree knows


@functools.cache
def _optree():
    """The library, loaded when something is first flattened: it would take a tenth of the time that
    importing lumjax takes.
    """
    import optree  # noqa: PLC0415 - the only place

    with _lock:
        if not _nodes:
            _nodes.append(Partial)
            register: Any = optree.register_pytree_node
            register(Partial, _flatten_partial, _unflatten_partial, namespace=_NAMESPACE)
    return optree


def __getattr__(name: str) -> Any:
    if name == "PyTreeDef":
        return _optree().PyTreeSpec
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# ---- key paths


@record
class DictKey:
    """A key of a dict."""

    key: Hashable

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@record
class SequenceKey:
    """A position in a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@record
class GetAttrKey:
    """A field of a namedtuple or dataclass."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@record
class FlattenedIndexKey:
    """A child of a registered class that gave no keys."""

    key: int

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


KeyEntry: TypeAlias = DictKey | SequenceKey | GetAttrKey | FlattenedIndexKey
KeyPath: TypeAlias = tuple[Any, ...]


def keystr(keys: KeyPath, *, simple: bool = False, separator: str = "") -> str:
    """A key path as text.

    >>> keystr((DictKey("w"), SequenceKey(0)))
    "['w'][0]"
    >>> keystr((DictKey("w"), SequenceKey(0)), simple=True, separator="/")
    'w/0'
    """
    if not simple:
        return separator.join(str(k) for k in keys)
    return separator.join(str(_bare(k)) for k in keys)


def _bare(entry: Any) -> Any:
    match entry:
        case DictKey(key=value) | FlattenedIndexKey(key=value):
            return value
        case SequenceKey(idx=value):
            return value
        case GetAttrKey(name=value):
            return value
        case _:
            return entry


# ---- flattening

_foreign_specs: dict[PyTreeDef, bool] = {}
_child_keys: dict[type, Callable[[Any], Sequence[Any]]] = {}


def _is_foreign(spec: PyTreeDef) -> bool:
    """Whether optree took something for a node that JAX does not: a deque, a struct sequence,
    unsortable keys.
    """
    if spec.type is None or spec.is_leaf():
        return False
    if spec.type is deque or _optree().is_structseq_class(spec.type):
        return True
    if spec.type is dict or spec.type.__name__ == "defaultdict":
        keys = spec.entries()
        try:
            sorted(keys)  # type: ignore[type-var]
        except TypeError:
            kinds = ", ".join(sorted({type(k).__name__ for k in keys}))
            raise TreeError(
                operation="flattening a dict",
                required="keys that can be compared with each other",
                got=f"keys of types {kinds}",
                fix="use keys of one type",
            ) from None
    return any(_is_foreign(child) for child in spec.children())


def _not_a_node(x: Any) -> bool:
    return isinstance(x, deque) or _optree().is_structseq(x)


def flatten(tree: Any, is_leaf: _IsLeaf = None) -> tuple[list[Any], PyTreeDef]:
    """The leaves of a pytree, left to right, and its structure.

    >>> flatten({"b": 2, "a": (1, None)})[0]
    [1, 2]
    """
    leaves, spec = _optree().tree_flatten(tree, is_leaf, namespace=_NAMESPACE)
    foreign = _foreign_specs.get(spec)
    if foreign is None:
        if len(_foreign_specs) > 4096:
            _foreign_specs.clear()
        foreign = _foreign_specs[spec] = _is_foreign(spec)
    if not foreign:
        return leaves, spec

    def stop(x: Any) -> bool:
        return _not_a_node(x) or (is_leaf is not None and is_leaf(x))

    return _optree().tree_flatten(tree, stop, namespace=_NAMESPACE)


def unflatten(treedef: PyTreeDef, leaves: Iterable[Any]) -> Any:
    """The pytree with this structure and these leaves.

    >>> unflatten(structure({"a": 0, "b": 0}), [1, 2])
    {'a': 1, 'b': 2}
    """
    return treedef.unflatten(leaves)


def leaves(tree: Any, is_leaf: _IsLeaf = None) -> list[Any]:
    """The leaves of a pytree, left to right."""
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: _IsLeaf = None) -> PyTreeDef:
    """The structure of a pytree."""
    return flatten(tree, is_leaf)[1]


def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: _IsLeaf = None) -> Any:
    """Apply `f` to corresponding leaves; `rest` must have `tree`'s structure as a prefix.

    >>> map(lambda x, y: x + y, {"a": 1}, {"a": 2})
    {'a': 3}
    """
    flat, spec = flatten(tree, is_leaf)
    columns = [_flatten_up_to(spec, r, k + 1) for k, r in enumerate(rest)]
    return spec.unflatten([f(*row) for row in zip(flat, *columns, strict=True)])


def _flatten_up_to(spec: PyTreeDef, tree: Any, position: int) -> list[Any]:
    try:
        return spec.flatten_up_to(tree)
    except ValueError as e:
        why = str(e).replace("dictionary key mismatch", "Dict key mismatch")  # as JAX says it
        raise TreeError(
            operation="tree.map",
            required=f"argument {position + 1} to have the structure of the first tree, {spec}",
            got=f"{structure(tree)} ({why})",
            fix="pass trees of one structure",
        ) from None


def reduce(
    function: Callable[[Any, Any], Any],
    tree: Any,
    initializer: Any = ...,
    is_leaf: _IsLeaf = None,
) -> Any:
    """Fold the leaves with `function`, left to right, from `initializer` or the first leaf.

    Raises TypeError when there is neither.

    >>> reduce(lambda a, b: a + b, [1, (2, 3)])
    6
    """
    first = () if initializer is ... else (initializer,)
    return functools.reduce(function, leaves(tree, is_leaf), *first)


def reduce_associative(
    operation: Callable[[Any, Any], Any], tree: Any, *, identity: Any = ..., is_leaf: _IsLeaf = None
) -> Any:
    """Fold the leaves with an associative operation, halves by halves; `identity` for no leaves.

    >>> reduce_associative(lambda a, b: a + b, ["x", ("y", "z")])
    'xyz'
    """
    found = leaves(tree, is_leaf)
    if not found:
        if identity is ...:
            raise TreeError(
                operation="tree.reduce_associative",
                required="leaves, or identity=",
                got="a tree without leaves",
                fix="pass the neutral element as identity",
            )
        return identity

    def fold(part: list[Any]) -> Any:
        if len(part) == 1:
            return part[0]
        half = len(part) // 2
        return operation(fold(part[:half]), fold(part[half:]))

    return fold(found)


def all(tree: Any, *, is_leaf: _IsLeaf = None) -> bool:
    """Whether every leaf is true."""
    return builtins.all(leaves(tree, is_leaf))


def transpose(
    outer_treedef: PyTreeDef, inner_treedef: PyTreeDef | None, pytree_to_transpose: Any
) -> Any:
    """Turn a tree of trees inside out.

    >>> transpose(structure([0, 0]), structure({"a": 0}), [{"a": 1}, {"a": 2}])
    {'a': [1, 2]}
    """
    flat, spec = flatten(pytree_to_transpose)
    if inner_treedef is None:
        inner_treedef = structure(outer_treedef.flatten_up_to(pytree_to_transpose)[0])
    outer, inner = outer_treedef.num_leaves, inner_treedef.num_leaves
    if outer_treedef.compose(inner_treedef) != spec:
        raise TreeError(
            operation="tree.transpose",
            required=f"a tree of structure {outer_treedef} of {inner_treedef}",
            got=str(spec),
            fix="check the two treedefs",
        )
    rows = [flat[k * inner : (k + 1) * inner] for k in range(outer)]
    return inner_treedef.unflatten(
        [outer_treedef.unflatten(list(column)) for column in zip(*rows, strict=True)]
    )


def broadcast(prefix_tree: Any, full_tree: Any, is_leaf: _IsLeaf = None) -> Any:
    """`prefix_tree` with each leaf repeated to `full_tree`'s structure.

    >>> broadcast(1, {"a": 0, "b": 0})
    {'a': 1, 'b': 1}
    """
    spec = structure(full_tree, is_leaf)
    return spec.unflatten(flatten_axes("tree.broadcast", spec, prefix_tree))


# ---- paths


def _entry_key(entry: Any) -> Any:
    kinds = _optree().PyTreeKind
    match entry.kind:
        case kinds.LIST | kinds.TUPLE:
            return SequenceKey(entry.entry)
        case kinds.NAMEDTUPLE:
            return GetAttrKey(entry.type._fields[entry.entry])
        case kinds.CUSTOM:
            if entry.type in _child_keys:
                return entry.entry
            return FlattenedIndexKey(entry.entry)
        case _:
            return DictKey(entry.entry)


def _paths(spec: PyTreeDef) -> list[KeyPath]:
    return [tuple(_entry_key(e) for e in accessor) for accessor in spec.accessors()]


def flatten_with_path(
    tree: Any, is_leaf: _IsLeaf = None
) -> tuple[list[tuple[KeyPath, Any]], PyTreeDef]:
    """Like `flatten`, with each leaf's key path."""
    flat, spec = flatten(tree, is_leaf)
    return list(zip(_paths(spec), flat, strict=True)), spec


def leaves_with_path(tree: Any, is_leaf: _IsLeaf = None) -> list[tuple[KeyPath, Any]]:
    """(key path, leaf) pairs.

    >>> [keystr(p) for p, _ in leaves_with_path({"a": [1, 2]})]
    ["['a'][0]", "['a'][1]"]
    """
    return flatten_with_path(tree, is_leaf)[0]


def map_with_path(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: _IsLeaf = None) -> Any:
    """Like `map`; `f` also gets the key path first."""
    pairs, spec = flatten_with_path(tree, is_leaf)
    columns = [_flatten_up_to(spec, r, k + 1) for k, r in enumerate(rest)]
    return spec.unflatten([f(*pair, *row) for pair, *row in zip(pairs, *columns, strict=True)])


# ---- prefixes


def flatten_axes(name: str, treedef: PyTreeDef, axes: Any) -> list[Any]:
    """One entry of `axes` per leaf of `treedef`; `axes` is a tree prefix in which None is a leaf.

    Raises TreeError, naming `name`, when `axes` is not a prefix.
    """
    proxy = treedef.unflatten([object()] * treedef.num_leaves)
    out: list[Any] = []

    def spread(prefix: Any, full: Any) -> None:
        out.extend([prefix] * structure(full).num_leaves)

    try:
        _optree().tree_map(spread, axes, proxy, is_leaf=lambda x: x is None, namespace=_NAMESPACE)
    except (ValueError, TypeError) as e:
        raise TreeError(
            operation=name,
            required=f"a prefix of the structure {treedef}",
            got=f"{axes!r} ({e})",
            fix="give one entry for the whole tree, or one per subtree",
        ) from None
    return out


def first_mismatch(a: Any, b: Any) -> str | None:
    """Where two trees first differ in structure, in words; None where they agree."""
    if structure(a) == structure(b):
        return None
    paths_a, paths_b = [p for p, _ in leaves_with_path(a)], [p for p, _ in leaves_with_path(b)]
    only_a = next((p for p in paths_a if p not in set(paths_b)), None)
    if only_a is not None:
        return f"only the first has a leaf at {keystr(only_a) or 'the root'}"
    only_b = next((p for p in paths_b if p not in set(paths_a)), None)
    if only_b is not None:
        return f"only the second has a leaf at {keystr(only_b) or 'the root'}"
    return f"container types differ: {structure(a)} and {structure(b)}"


# ---- registration


def register_pytree_node(
    nodetype: type,
    flatten_func: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten_func: Callable[[Any, Any], Any],
    flatten_with_keys_func: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Any]] | None = None,
) -> None:
    """Make instances of `nodetype` nodes: `flatten_func(x) -> (children, aux)`,
    `unflatten_func(aux, children)`.
    """
    if flatten_with_keys_func is None:
        _optree().register_pytree_node(nodetype, flatten_func, unflatten_func, namespace=_NAMESPACE)
        return
    with_keys = flatten_with_keys_func

    def flat(x: Any) -> tuple[list[Any], Any, tuple[Any, ...]]:
        pairs, aux = with_keys(x)
        pairs = list(pairs)
        return [c for _, c in pairs], aux, tuple(k for k, _ in pairs)

    _optree().register_pytree_node(nodetype, flat, unflatten_func, namespace=_NAMESPACE)
    _child_keys[nodetype] = lambda x: flat(x)[2]


def is_node_type(kind: type) -> bool:
    """Whether values of this very type are nodes of pytrees; named tuples have no entry.

    >>> is_node_type(dict), is_node_type(int)
    (True, False)
    """
    if kind is type(None):
        return True
    entry = _optree().register_pytree_node.get(kind, namespace=_NAMESPACE)
    return entry is not None and kind is not collections.deque


def is_named(kind: type) -> bool:
    """Whether values of this very type are named tuples, and nodes as such.

    >>> from collections import namedtuple
    >>> is_named(namedtuple("Pair", "x y")), is_named(tuple)
    (True, False)
    """
    entry = _optree().register_pytree_node.get(kind, namespace=_NAMESPACE)
    named = entry is None or entry.kind == _optree().PyTreeKind.NAMEDTUPLE
    return named and _optree().is_namedtuple_class(kind)


def keys_of(treedef: PyTreeDef) -> tuple[Any, ...]:
    """The keys of a dict's structure, in the order in which unflattening puts them.

    >>> keys_of(structure({"b": 0, "a": 0}))
    ('b', 'a')
    """
    one = treedef.one_level()
    return tuple(one.unflatten([None] * one.num_leaves)) if one else ()


def register_pytree_with_keys(
    nodetype: type,
    flatten_with_keys: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Any]],
    unflatten_func: Callable[[Any, Any], Any],
    flatten_func: Callable[[Any], tuple[Iterable[Any], Any]] | None = None,
) -> None:
    """Like `register_pytree_node`; `flatten_with_keys(x) -> ((key, child) pairs, aux)` names the
    children.
    """
    del flatten_func  # an optimisation in JAX; one flattening serves both here
    register_pytree_node(nodetype, lambda x: ((), None), unflatten_func, flatten_with_keys)


def register_pytree_node_class(cls: _T) -> _T:
    """Class decorator: the class has `tree_flatten(self)` and classmethod `tree_unflatten(cls, aux,
    children)`.
    """
    node: Any = cls
    register_pytree_node(cls, lambda x: x.tree_flatten(), node.tree_unflatten)
    return cls


def register_pytree_with_keys_class(cls: _T) -> _T:
    """Class decorator: the class has `tree_flatten_with_keys` and `tree_unflatten`."""
    node: Any = cls
    register_pytree_with_keys(cls, lambda x: x.tree_flatten_with_keys(), node.tree_unflatten)
    return cls


def register_dataclass(
    nodetype: _T,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> _T:
    """Make a dataclass a node. `data_fields` are children, `meta_fields` static; by default all are
    children but fields declared with `field(metadata={"static": True})`.
    """
    if data_fields is None or meta_fields is None:
        if not dataclasses.is_dataclass(cast(Any, nodetype)):
            raise ArgumentTypeError(
                operation="register_dataclass",
                required="a dataclass, or data_fields and meta_fields",
                got=repr(nodetype),
                fix="decorate the class with @dataclass, or name the fields",
            )
        own = [
            f
            for f in dataclasses.fields(cast(Any, nodetype))
            if f.init and f.name not in drop_fields
        ]
        meta_fields = [f.name for f in own if f.metadata.get("static", False)]
        data_fields = [f.name for f in own if not f.metadata.get("static", False)]
    data, meta = tuple(data_fields), tuple(meta_fields)

    def flat(x: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        return [(GetAttrKey(n), getattr(x, n)) for n in data], tuple(getattr(x, n) for n in meta)

    def rebuild(aux: tuple[Any, ...], children: Iterable[Any]) -> Any:
        return nodetype(
            **dict(zip(data, children, strict=True)), **dict(zip(meta, aux, strict=True))
        )

    register_pytree_node(nodetype, lambda x: ((), None), rebuild, flat)
    return nodetype


def register_static(cls: _T) -> _T:
    """Class decorator: instances are nodes without leaves, compared by == and hash."""
    register_pytree_node(cls, lambda x: ((), x), lambda aux, _: aux)
    return cls


class Partial(functools.partial[Any]):
    """functools.partial as a pytree: the arguments are children, the function is static."""


def _flatten_partial(p: Any) -> tuple[tuple[Any, Any], Any]:
    return (p.args, p.keywords), p.func


def _unflatten_partial(func: Any, children: Any) -> Partial:
    args, keywords = children
    return Partial(func, *args, **keywords)


# ---- treedefs


def all_leaves(iterable: Iterable[Any], is_leaf: _IsLeaf = None) -> bool:
    """Whether every item is a leaf."""
    items = list(iterable)
    flat = leaves(items, is_leaf)
    same = len(flat) == len(items)
    return same and builtins.all(a is b for a, b in zip(flat, items, strict=True))


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """The structures of a node's children."""
    return treedef.children()


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """Whether the structure is that of one leaf."""
    return treedef.is_leaf()


def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """The structure of a tuple of trees."""
    return _optree().treespec_tuple(treedefs, namespace=_NAMESPACE)
