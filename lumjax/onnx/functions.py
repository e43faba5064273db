"""Functions: those that a model defines, and operators that the standard defines by others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lumjax.onnx.faults import OnnxError
from lumjax.onnx.graph import Graph, Node, Port, Reader, Reference
from lumjax.onnx.package import helper, onnx, schema_of
from lumjax.record import record


@record(eq=False, repr=False)
class Functions:
    """Bodies of functions as graphs. `made` remembers those of the standard's operators."""

    local: Mapping[tuple[str, str], Any]
    folder: Path | None
    made: dict[Any, Graph]

    def is_local(self, node: Node) -> bool:
        """Whether the model defines this operator itself."""
        return (node.domain, node.op) in self.local

    def body(self, node: Node, inputs: list[Any]) -> Graph:
        """The graph that computes a node."""
        proto = self.local.get((node.domain, node.op))
        if proto is not None:
            key: Any = id(node)
        else:
            types = tuple(_type_of(x) for x in inputs)
            key = (id(node), types)
        if key not in self.made:
            if proto is None:
                proto = _standard(node, inputs)
            self.made[key] = self._graph(proto, node, len(inputs))
        return self.made[key]

    def _graph(self, proto: Any, node: Node, given: int) -> Graph:
        opsets = {
            ("" if o.domain == "ai.onnx" else o.domain): o.version for o in proto.opset_import
        }
        reader = Reader({"": node.opset, **opsets}, self.folder)
        names = frozenset(proto.input)
        known, nodes = set(names), list[Node]()
        attributes = {a.name: a for a in proto.attribute_proto}
        defaults = {n: reader.node(onnx.NodeProto(attribute=[a]), names).attributes[n]
                    for n, a in attributes.items()}  # fmt: skip
        bindings = {**defaults, **_schema_defaults(node), **node.attributes}
        for entry in proto.node:
            inner = reader.node(entry, frozenset(known))
            known.update(inner.outputs)
            nodes.append(_bound(inner, bindings))
        missing = [n for n in proto.output if n not in known]
        for n, name in zip(proto.output, node.outputs, strict=False):
            if name and n in missing:
                raise node.wrong(f"a function that makes the output {n}", "one that does not")
        absent: dict[str, Any] = dict.fromkeys((*list(proto.input)[given:], *missing))
        inputs, outputs = (
            tuple(Port(n, "tensor", None, None) for n in side)
            for side in (proto.input, proto.output)
        )
        return Graph(proto.name, inputs, outputs, tuple(nodes), absent)


def _schema_defaults(node: Node) -> dict[str, Any]:
    schema, found = schema_of(node.op, node.opset, node.domain), dict[str, Any]()
    if schema is None:
        return found
    for name, attribute in schema.attributes.items():
        if attribute.default_value.type:
            value = helper.get_attribute_value(attribute.default_value)
            if isinstance(value, bytes):
                value = value.decode()
            found[name] = tuple(value) if isinstance(value, list) else value
    return found


def _bound(node: Node, bindings: Mapping[str, Any]) -> Node:
    """A function's node with the attributes that its caller gives; those not given are left out."""
    found: dict[str, Any] = {}
    for name, value in node.attributes.items():
        if isinstance(value, Reference):
            if value.name in bindings:
                found[name] = bindings[value.name]
        elif isinstance(value, Graph):
            nodes = tuple(_bound(n, bindings) for n in value.nodes)
            found[name] = replace(value, nodes=nodes)
        else:
            found[name] = value
    return replace(node, attributes=found)


def _standard(node: Node, inputs: list[Any]) -> Any:
    """The FunctionProto by which the standard defines an operator."""
    schema = schema_of(node.op, node.opset, node.domain)
    if schema is not None and schema.has_function:
        return schema.function_body
    if schema is not None and schema.has_context_dependent_function:
        types = [_type_of(x) for x in inputs]
        text = schema.get_context_dependent_function(node.proto.SerializeToString(), types)
        return onnx.FunctionProto.FromString(text)
    raise node.unsupported(
        "an operator that lumjax.onnx has",
        f"{node.op} of the domain {node.domain or 'ai.onnx'!r} in opset {node.opset}",
        "export the model with other operators, or define this one as a function of the model",
    )


def _type_of(x: Any) -> bytes:
    """A serialised TypeProto of a value."""
    if x is None:
        return onnx.TypeProto().SerializeToString()
    if isinstance(x, list):
        element = onnx.TypeProto.FromString(_type_of(x[0])) if x else onnx.TypeProto()
        return helper.make_sequence_type_proto(element).SerializeToString()
    try:
        code = helper.np_dtype_to_tensor_dtype(np.dtype(x.dtype))
    except (KeyError, ValueError):
        raise OnnxError(
            operation="onnx",
            required="an element type of onnx.TensorProto.DataType",
            got=str(x.dtype),
            fix="cast the input to one of the dtypes that the model names",
        ) from None
    return helper.make_tensor_type_proto(code, x.shape).SerializeToString()
