"""Running a graph: values by name, nodes in order, known values folded, functions expanded."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lumjax.api import ensure_compile_time_eval
from lumjax.config import enable_x64
from lumjax.errors import ConcretizationError
from lumjax.onnx.faults import OnnxError
from lumjax.onnx.functions import Functions
from lumjax.onnx.graph import Graph, Node
from lumjax.onnx.table import OPS
from lumjax.onnx.values import (
    FOLDED,
    Op,
    check_bytes,
    fixed,
    is_foreign,
    is_known,
    loose,
    size_of,
    spend,
    static,
)
from lumjax.record import record

Environment = ChainMap[str, Any]
CALLS = 48  # functions and graphs that are run inside one another


@record(eq=False, repr=False)
class Run:
    """One run of a model: its functions, and the parameters by name."""

    functions: Functions
    parameters: Mapping[str, Any]

    def graph(
        self, graph: Graph, given: Sequence[Any], outer: Environment, depth: int = 0
    ) -> list[Any]:
        """The outputs of a graph whose inputs are `given`, where names of `outer` are seen."""
        if depth > CALLS:
            raise OnnxError(
                operation=f"onnx graph {graph.name!r}",
                required=f"functions and graphs at most {CALLS} deep",
                got="deeper ones",
                fix="a function that calls itself never ends: the file is at fault",
            )
        arrays = {n: self.parameters.get(n, a) for n, a in graph.initializers.items()}
        names = [p.name for p in graph.inputs]
        if len(given) > len(names):
            raise OnnxError(
                operation=f"onnx graph {graph.name!r}",
                required=f"at most {len(names)} inputs",
                got=f"{len(given)}",
                fix="the file is damaged: export it again",
            )
        values = outer.new_child({**arrays, **dict(zip(names, given, strict=False))})
        for node in graph.nodes:
            self.node(node, values, depth)
        return [values[p.name] for p in graph.outputs]

    def node(self, node: Node, values: Environment, depth: int) -> None:
        """Compute a node's outputs into `values`."""
        inputs = [values[n] if n else None for n in node.inputs]
        try:
            found = self._outputs(node, inputs, values, depth)
        except (OnnxError, ConcretizationError):
            raise
        except Exception as error:  # whatever an operator meets, the user is told which node it was
            raise node.wrong("inputs that the operator accepts", _said(error)) from error
        if len(found) < len(node.outputs) and any(node.outputs[len(found) :]):
            raise node.wrong(f"at most {len(found)} outputs", f"{len(node.outputs)}")
        for name, value in zip(node.outputs, found, strict=False):
            if name:
                check_bytes(f"onnx {node}", size_of(value) * _width(value))
                values[name] = value

    def _outputs(
        self, node: Node, inputs: list[Any], values: Environment, depth: int
    ) -> Sequence[Any]:
        op = OPS.get(f"{node.domain}:{node.op}" if node.domain else node.op)
        local = self.functions.is_local(node)
        if op is None or local:
            spend(node)
            body = self.functions.body(node, inputs)
            return self.graph(body, inputs, ChainMap({}), depth + 1)
        if op.nested:

            def call(graph: Graph, *given: Any) -> list[Any]:
                return self.graph(graph, given, values, depth + 1)

            return _tuple(op.compute(node, call, *inputs))
        return _applied(op, node, inputs)


def _applied(op: Op, node: Node, inputs: list[Any]) -> Sequence[Any]:
    known = all(is_known(x) for x in inputs)
    if op.fold and known and sum(map(size_of, inputs)) <= FOLDED:
        with ensure_compile_time_eval(), enable_x64(True):
            return tuple(fixed(x) for x in _tuple(op.compute(node, *_placed(op, node, inputs))))
    return _tuple(op.compute(node, *_placed(op, node, inputs)))


def _placed(op: Op, node: Node, inputs: list[Any]) -> list[Any]:
    """The inputs as the operator wants them."""
    placed: list[Any] = []
    for k, x in enumerate(inputs):
        if k in op.static:
            placed.append(static(node, x, k))
            continue
        if not op.raw and isinstance(x, (np.ndarray, np.generic)) and is_foreign(x.dtype):
            raise node.unsupported(
                "arrays of booleans, integers of 8 bits or more, and floats of 16 or more",
                f"input {k} of {'strings' if x.dtype.hasobject else x.dtype}",
                "cast it before this node",
            )
        placed.append(x if op.raw else loose(x))
    return placed


def _tuple(found: Any) -> Sequence[Any]:
    return found if isinstance(found, tuple) else (found,)


def _width(value: Any) -> int:
    return np.dtype(value.dtype).itemsize if hasattr(value, "dtype") else 1


def _said(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"
