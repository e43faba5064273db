"""Graphs of a model: nodes with their attributes as Python values, checked while they are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lumjax.onnx import tensors
from lumjax.onnx.faults import OnnxError, UnsupportedOnnxError
from lumjax.onnx.package import onnx
from lumjax.record import record

Shape = tuple[int | str | None, ...]  # numbers, names of symbolic sizes, and what is not told
DEPTH = 32  # of graphs inside graphs
SMALL = 64  # numbers that are more are weights, not sizes, axes and the like


@record
class Port:
    """An input or output: `kind` is "tensor", "sequence" or "optional"; `shape` None if untold."""

    name: str
    kind: str
    dtype: np.dtype[Any] | None
    shape: Shape | None

    def __str__(self) -> str:
        if self.kind != "tensor" or self.dtype is None:
            return f"{self.name}: {self.kind}"
        sizes = "..." if self.shape is None else ", ".join(str(d or "?") for d in self.shape)
        dtype = "string" if self.dtype.hasobject else self.dtype.name
        return f"{self.name}: {dtype}[{sizes}]"


@record
class Reference:
    """An attribute of a function's node that the caller of the function gives."""

    name: str


@record(eq=False, repr=False)
class Node:
    """One node. The getters give an attribute of the type that the operator wants."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    opset: int
    proto: Any

    def __str__(self) -> str:
        where = f"node {self.name!r}" if self.name else f"node that makes {self.outputs[:1]}"
        return f"{self.domain + '.' if self.domain else ''}{self.op} ({where})"

    def has(self, name: str) -> bool:
        """Whether the attribute is given."""
        return name in self.attributes

    def _get(self, name: str, default: Any, kinds: tuple[type, ...], what: str) -> Any:
        found = self.attributes.get(name, default)
        if name not in self.attributes and default is not None:
            return default
        items = found if isinstance(found, tuple) and tuple not in kinds else (found,)
        if not all(isinstance(item, kinds) for item in items):
            raise self.wrong(f"attribute {name} to be {what}", repr(found)[:80])
        return found

    def integer(self, name: str, default: int | None = None) -> int:
        """An attribute that is a whole number."""
        return self._one(name, default, (int,), "a whole number")

    def number(self, name: str, default: float | None = None) -> float:
        """An attribute that is a number."""
        return float(self._one(name, default, (int, float), "a number"))

    def text(self, name: str, default: str | None = None) -> str:
        """An attribute that is a string."""
        return self._one(name, default, (str,), "a string")

    def tensor(self, name: str) -> np.ndarray:
        """An attribute that is a tensor."""
        return self._one(name, None, (np.ndarray,), "a tensor")

    def graph(self, name: str) -> Graph:
        """An attribute that is a graph."""
        return self._one(name, None, (Graph,), "a graph")

    def _one(self, name: str, default: Any, kinds: tuple[type, ...], what: str) -> Any:
        found = self._get(name, default, kinds, what)
        if isinstance(found, tuple):
            raise self.wrong(f"attribute {name} to be {what}", repr(found)[:80])
        return found

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """An attribute that is a list of whole numbers."""
        return self._many(name, default, (int,), "whole numbers")

    def numbers(self, name: str, default: tuple[float, ...] | None = None) -> tuple[float, ...]:
        """An attribute that is a list of numbers."""
        return self._many(name, default, (int, float), "numbers")

    def texts(self, name: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """An attribute that is a list of strings."""
        return self._many(name, default, (str,), "strings")

    def _many(self, name: str, default: Any, kinds: tuple[type, ...], what: str) -> Any:
        found = self._get(name, default, kinds, f"a list of {what}")
        if not isinstance(found, tuple):
            raise self.wrong(f"attribute {name} to be a list of {what}", repr(found)[:80])
        return found

    def choice(self, name: str, default: str, options: tuple[str, ...]) -> str:
        """An attribute that is one of some words."""
        found = self.text(name, default)
        if found not in options:
            raise self.wrong(f"attribute {name} to be one of {', '.join(options)}", repr(found))
        return found

    def wrong(self, required: str, got: str) -> OnnxError:
        """The error of a node that cannot compute what it is given."""
        return OnnxError(
            operation=f"onnx {self}",
            required=required,
            got=got,
            fix="check the inputs; if they fit the model's signature, the file is at fault",
        )

    def unsupported(self, required: str, got: str, fix: str) -> UnsupportedOnnxError:
        """The error of a node that is well formed but not offered."""
        return UnsupportedOnnxError(operation=f"onnx {self}", required=required, got=got, fix=fix)


@record(eq=False, repr=False)
class Graph:
    """Nodes in an order in which they can run; `initializers` are arrays by name."""

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    nodes: tuple[Node, ...]
    initializers: Mapping[str, np.ndarray]


@record(eq=False, repr=False)
class Reader:
    """What reading needs to know: opsets by domain, and the folder of external data."""

    opsets: Mapping[str, int]
    folder: Path | None

    def graph(self, proto: Any, outer: frozenset[str] = frozenset(), depth: int = 0) -> Graph:
        """A GraphProto, checked: every name has one definition, before its uses."""
        where = f"onnx graph {proto.name!r}"
        if depth > DEPTH:
            raise _wrong(where, f"graphs nested at most {DEPTH} deep", "deeper ones")
        if proto.sparse_initializer:
            raise UnsupportedOnnxError(
                operation=where,
                required="dense initialisers",
                got=f"{len(proto.sparse_initializer)} sparse ones",
                fix="convert them to dense tensors when exporting",
            )
        arrays = {t.name: tensors.tensor(t, self.folder, where) for t in proto.initializer}
        inputs = tuple(port(v, where) for v in proto.input)
        known = {*outer, *arrays, *(p.name for p in inputs)}
        nodes = self._weights(self._nodes(proto, known, depth, where), arrays)
        outputs = tuple(port(v, where) for v in proto.output)
        for p in outputs:
            if p.name not in known:
                raise _wrong(where, f"a node that makes the output {p.name!r}", "none")
        return Graph(proto.name, inputs, outputs, nodes, arrays)

    def _nodes(self, proto: Any, known: set[str], depth: int, where: str) -> list[Node]:
        made: set[str] = set()
        nodes: list[Node] = []
        for entry in proto.node:
            node = self.node(entry, frozenset(known), depth)
            for name in node.inputs:
                if name and name not in known:
                    raise node.wrong("inputs that are defined before it", repr(name))
            for name in node.outputs:
                if name and name in made:
                    raise _wrong(where, "one definition of every name", f"two of {name!r}")
                made.add(name)
            known.update(node.outputs)
            nodes.append(node)
        return nodes

    def _weights(self, nodes: list[Node], arrays: dict[str, np.ndarray]) -> tuple[Node, ...]:
        """The nodes that are left when constants that are weights count as initialisers."""
        kept: list[Node] = []
        for node in nodes:
            value = node.attributes.get("value") if node.op == "Constant" else None
            if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size > SMALL:
                arrays[node.outputs[0]] = value
            else:
                kept.append(node)
        return tuple(kept)

    def node(self, proto: Any, outer: frozenset[str], depth: int = 0) -> Node:
        """A NodeProto with its attributes read."""
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        where = f"onnx {proto.op_type} (node {proto.name!r})"
        attributes = {a.name: self._attribute(a, outer, depth, where) for a in proto.attribute}
        return Node(
            proto.op_type, domain, proto.name, tuple(proto.input), tuple(proto.output),
            attributes, self.opsets.get(domain, 0), proto,
        )  # fmt: skip

    def _attribute(self, a: Any, outer: frozenset[str], depth: int, where: str) -> Any:
        kind, place = onnx.AttributeProto, f"{where}, attribute {a.name}"
        if a.ref_attr_name:
            return Reference(a.ref_attr_name)
        match a.type:
            case kind.INT:
                return int(a.i)
            case kind.FLOAT:
                return float(a.f)
            case kind.STRING:
                return tensors.text(a.s, place)
            case kind.TENSOR:
                return tensors.tensor(a.t, self.folder, place)
            case kind.GRAPH:
                return self.graph(a.g, outer, depth + 1)
            case kind.INTS:
                return tuple(int(i) for i in a.ints)
            case kind.FLOATS:
                return tuple(float(f) for f in a.floats)
            case kind.STRINGS:
                return tuple(tensors.text(s, place) for s in a.strings)
            case kind.TENSORS:
                return tuple(tensors.tensor(t, self.folder, place) for t in a.tensors)
            case kind.TYPE_PROTO:
                return a.tp
            case _:
                raise UnsupportedOnnxError(
                    operation=place,
                    required="numbers, strings, dense tensors or a graph",
                    got=f"an attribute of type {a.type}",
                    fix="export the model without sparse tensors or lists of graphs",
                )


def port(proto: Any, where: str) -> Port:
    """A ValueInfoProto."""
    kind = proto.type.WhichOneof("value")
    if kind == "tensor_type":
        described = proto.type.tensor_type
        dtype = None
        if described.elem_type:
            dtype = tensors.dtype_of(described.elem_type, f"{where}, value {proto.name!r}")
        return Port(proto.name, "tensor", dtype, _shape(described))
    if kind in ("sequence_type", "optional_type", None):
        return Port(proto.name, (kind or "tensor").removesuffix("_type"), None, None)
    raise UnsupportedOnnxError(
        operation=f"{where}, value {proto.name!r}",
        required="a tensor, sequence or optional",
        got=str(kind),
        fix="export the model without maps and sparse tensors",
    )


def _shape(described: Any) -> Shape | None:
    if not described.HasField("shape"):
        return None
    return tuple(
        d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in described.shape.dim
    )


def _wrong(where: str, required: str, got: str) -> OnnxError:
    return OnnxError(
        operation=where, required=required, got=got, fix="the file is damaged: export it again"
    )
