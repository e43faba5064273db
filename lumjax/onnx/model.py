"""Models: read, checked, and called as pure functions of their parameters and inputs."""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from lumjax import dtype as dt
from lumjax.onnx.execute import Run
from lumjax.onnx.faults import OnnxError, UnsupportedOnnxError
from lumjax.onnx.functions import Functions
from lumjax.onnx.graph import SMALL, Graph, Node, Port, Reader
from lumjax.onnx.package import DecodeError, onnx, schema_of
from lumjax.onnx.table import OPS
from lumjax.onnx.values import Limits, is_foreign, limits, loose
from lumjax.record import record

NEWEST = 28
OLDEST = 7


@record(eq=False, repr=False)
class Model:
    """What a model computes, as a pure function: `model(params, *inputs)`, or inputs by name.

    `inputs` and `outputs` tell names, dtypes and shapes, with the names of symbolic sizes. The
    result is one output, or a tuple of them.
    """

    graph: Graph
    functions: Functions
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    limits: Limits

    def __call__(self, params: Mapping[str, Any], *inputs: Any, **named: Any) -> Any:
        """The outputs: arrays, lists of arrays for sequences, None for an empty optional."""
        given = self._given(inputs, named)
        sizes: dict[str, int] = {}
        values: dict[str, Any] = {}
        for port, x in zip(self.inputs, given, strict=True):
            if x is not _MISSING:
                values[port.name] = _accepted(port, x, sizes)
        order = [self._value(p.name, values, params) for p in self.graph.inputs]
        with limits(self.limits):
            found = Run(self.functions, params).graph(self.graph, order, ChainMap({}))
        found = [_result(x) for x in found]
        return found[0] if len(found) == 1 else tuple(found)

    def _value(self, name: str, values: Mapping[str, Any], params: Mapping[str, Any]) -> Any:
        """An input, or the initialiser that old models list among the inputs."""
        for place in (values, params, self.graph.initializers):
            if name in place:
                return place[name]
        return None

    def _given(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        names = [p.name for p in self.inputs]
        unknown = [n for n in named if n not in names[len(inputs) :]]
        required = [p.name for p in self.inputs if p.kind != "optional"]
        given = dict(zip(names, inputs, strict=False)) | dict(named)
        missing = [n for n in required if n not in given]
        if len(inputs) > len(names) or unknown or missing:
            raise OnnxError(
                operation="onnx model",
                required=f"the inputs {', '.join(map(str, self.inputs)) or 'of none'}",
                got=f"{len(inputs)} by place and {sorted(named)} by name",
                fix="pass every input once, in this order or by name",
            )
        return [given.get(n, _MISSING) for n in names]


_MISSING: Any = object()


def _result(x: Any) -> Any:
    if isinstance(x, list):
        return [_result(item) for item in cast("list[Any]", x)]
    return loose(x)


def _accepted(port: Port, x: Any, sizes: dict[str, int]) -> Any:
    """An input as a value, once its dtype and shape are those of the port."""
    if x is None:
        return None
    if port.kind != "tensor" and isinstance(x, (list, tuple)):
        return [_accepted(_ITEM, item, {}) for item in cast("list[Any]", x)]
    return _accepted_array(port, x, sizes)


def _accepted_array(port: Port, x: Any, sizes: dict[str, int]) -> Any:
    if not hasattr(x, "dtype") or not hasattr(x, "shape"):
        x = np.asarray(x, port.dtype)
    if isinstance(x, (np.ndarray, np.generic)):
        x = np.asarray(x)
        if x.dtype.kind in "UT":
            x = x.astype(object)
        x = x if is_foreign(x.dtype) or _is_setting(x) else loose(x)
    if port.kind != "tensor" or port.dtype is None:
        return x
    allowed = port.dtype if is_foreign(port.dtype) else dt.canonicalize(port.dtype)
    if np.dtype(x.dtype) not in (port.dtype, allowed):
        raise _refused(port, f"{x.dtype}")
    if port.shape is not None:
        fits = len(port.shape) == len(x.shape)
        for want, have in zip(port.shape, x.shape, strict=False):
            if isinstance(want, str):
                want = sizes.setdefault(want, have)
            fits = fits and (want is None or want == have)
        if not fits:
            known = f", where {sizes}" if sizes else ""
            raise _refused(port, f"shape {tuple(x.shape)}{known}")
    return x


def _is_setting(x: np.ndarray) -> bool:
    """Few integers stay known, as a rate or a length on which the program may depend."""
    return x.dtype.kind in "iub" and x.size <= SMALL


_ITEM = Port("item", "tensor", None, None)


def _refused(port: Port, got: str) -> OnnxError:
    return OnnxError(
        operation="onnx model",
        required=f"an input {port}",
        got=got,
        fix="convert the input to the dtype and shape that the model declares",
    )


def load(
    model: str | os.PathLike[str] | bytes | Any,
    *,
    max_bytes: int = 1 << 32,
    max_trips: int = 1_000_000,
) -> tuple[Model, dict[str, Any]]:
    """`(fn, params)` of an ONNX model: `fn(params, *inputs)` is pure, and `jit`, `grad` and `vmap`
    take it. Needs the onnx package (`pip install 'lumjax[onnx]'`).

    Args:
        model: the path of a model, its bytes, or an onnx.ModelProto. Tensors outside the file are
            read when they lie in the folder of `path`.
        max_bytes: what one value may take when the model runs.
        max_trips: how many iterations eager loops may have, and functions calls, in all.

    `params` holds the model's weights by name; integers that are sizes, axes and the like stay
    constants, as do values that follow from shapes. Symbolic sizes stay open: `fn` takes arrays of
    every size that fits, and jit compiles for each. `fn.inputs` and `fn.outputs` tell names, dtypes
    and shapes.

    Raises:
        OnnxError: the file is damaged or malformed, or a node cannot compute what it is given.
        UnsupportedOnnxError: an operator, type or opset that is not offered.

    >>> import numpy as np, onnx.parser
    >>> import lumjax.onnx
    >>> text = '''<ir_version: 8, opset_import: ["": 17]>
    ... net (float[n, 2] x) => (float[n, 1] y)
    ... <float[2, 1] w = {1.0, 2.0}> { h = MatMul(x, w)  y = Relu(h) }'''
    >>> fn, params = lumjax.onnx.load(onnx.parser.parse_model(text).SerializeToString())
    >>> print(fn.inputs[0], "->", fn.outputs[0])
    x: float32[n, 2] -> y: float32[n, 1]
    >>> lumjax.jit(fn)(params, np.array([[1, 1], [-5, 1]], np.float32)).tolist()
    [[3.0], [0.0]]
    """
    proto, folder = _read(model)
    _check_text(proto)
    opsets = _opsets(proto)
    if not proto.HasField("graph"):
        raise _damaged("a model with a graph", "none")
    local: dict[tuple[str, str], Any] = {(f.domain, f.name): f for f in proto.functions}
    functions = Functions(local, folder, {})
    graph = Reader(opsets, folder).graph(proto.graph)
    for node in _nodes(graph):
        _check(node, functions)
    inputs = tuple(p for p in graph.inputs if p.name not in graph.initializers)
    chosen = Limits(max_bytes, max_trips)
    return Model(graph, functions, inputs, graph.outputs, chosen), _parameters(graph)


def _read(model: Any) -> tuple[Any, Path | None]:
    if isinstance(model, onnx.ModelProto):
        return model, None
    folder = None
    if not isinstance(model, (bytes, bytearray, memoryview)):
        path = Path(model)
        if not path.is_file():
            raise OnnxError(
                operation="onnx.load",
                required="the path of a model file, or its bytes",
                got=repr(str(path)),
                fix="check the path",
            )
        folder, model = path.parent, path.read_bytes()
    try:
        return onnx.ModelProto.FromString(bytes(model)), folder
    except (DecodeError, RecursionError, ValueError) as error:
        raise _damaged("a serialised onnx.ModelProto", f"{len(model)} other bytes") from error


def _check_text(message: Any) -> None:
    """Raises where a name is not text: protobuf hands such names over as bytes."""
    for field, value in message.ListFields():
        if field.type not in (field.TYPE_STRING, field.TYPE_MESSAGE):
            continue
        repeated = not isinstance(value, (str, bytes)) and hasattr(value, "__len__")
        for item in value if repeated else (value,):
            if field.type == field.TYPE_MESSAGE:
                _check_text(item)
            elif isinstance(item, bytes):
                raise _damaged(f"text in UTF-8 as {field.name}", repr(item)[:80])


def _damaged(required: str, got: str) -> OnnxError:
    return OnnxError(
        operation="onnx.load",
        required=required,
        got=got,
        fix="the file is damaged or not a model: export or download it again",
    )


def _opsets(proto: Any) -> dict[str, int]:
    opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in proto.opset_import}
    if not opsets:
        raise _damaged("opset_import", "a model without it")
    version = opsets.get("", NEWEST)
    if not 1 <= version <= NEWEST:
        raise UnsupportedOnnxError(
            operation="onnx.load",
            required=f"an opset from {OLDEST} to {NEWEST}",
            got=f"{version}",
            fix="convert the model with onnx.version_converter, or export it anew",
        )
    return opsets


def _nodes(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        for value in node.attributes.values():
            if isinstance(value, Graph):
                yield from _nodes(value)


def _check(node: Node, functions: Functions) -> None:
    """Raises unless the operator is offered, and has the inputs, outputs and attributes it must."""
    if functions.is_local(node):
        return
    key = f"{node.domain}:{node.op}" if node.domain else node.op
    schema = schema_of(node.op, node.opset, node.domain)
    offered = schema is not None and (
        key in OPS or schema.has_function or schema.has_context_dependent_function
    )
    if schema is None or not offered:
        raise node.unsupported(
            "an operator that lumjax.onnx has",
            f"{node.op} of the domain {node.domain or 'ai.onnx'!r} in opset {node.opset}",
            "export the model with other operators, or define this one as a function of the model",
        )
    if not schema.min_input <= len(node.inputs) <= schema.max_input:
        raise node.wrong(f"{schema.min_input} to {schema.max_input} inputs", str(len(node.inputs)))
    if not schema.min_output <= len(node.outputs) <= schema.max_output:
        expected = f"{schema.min_output} to {schema.max_output} outputs"
        raise node.wrong(expected, str(len(node.outputs)))
    for name, attribute in schema.attributes.items():
        if attribute.required and name not in node.attributes:
            raise node.wrong(f"the attribute {name}", "none")
    for name in node.attributes:
        if name not in schema.attributes and not name.startswith("_"):
            raise node.unsupported(
                f"attributes of {node.op} in opset {node.opset}",
                f"an attribute {name!r}",
                "check that the model's opset_import is what its exporter meant",
            )


def _parameters(graph: Graph) -> dict[str, Any]:
    """The weights: floating and complex initialisers of every graph, and large or 8-bit integers,
    except those at inputs whose values an operator needs while it is traced.
    """
    found: dict[str, Any] = {}
    twice: set[str] = set()
    for inner in _graphs(graph):
        for name, array in inner.initializers.items():
            if name in found:
                twice.add(name)
            if _is_weight(array):
                found[name] = array
    needed: set[str] = set()
    for node in _nodes(graph):
        op = OPS.get(node.op) if not node.domain else None
        places = op.static if op is not None else ()
        needed |= {n for k, n in enumerate(node.inputs) if k in places}
    return {n: loose(a) for n, a in found.items() if n not in needed | twice}


def _graphs(graph: Graph) -> Iterator[Graph]:
    yield graph
    for node in graph.nodes:
        for value in node.attributes.values():
            if isinstance(value, Graph):
                yield from _graphs(value)


def _is_weight(array: np.ndarray) -> bool:
    if is_foreign(array.dtype):
        return False
    if dt.is_inexact(array.dtype):
        return True
    return array.size > SMALL or (array.ndim > 0 and array.dtype.itemsize == 1)
