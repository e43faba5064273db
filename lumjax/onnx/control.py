"""If, Loop and Scan. What is known is decided while tracing; the rest is cond, while and scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lumjax import lax, vmap
from lumjax import numpy as jnp
from lumjax.core import Tracer
from lumjax.errors import ConcretizationError
from lumjax.onnx.graph import Graph, Node
from lumjax.onnx.values import Op, axis_of, concrete, is_known, loose, module, spend

Call = Callable[..., list[Any]]
UNROLLED = 4  # iterations that are written out rather than scanned


class _OpenBodyError(Exception):
    """The body of a loop is not the same program in every iteration."""


def _truth(node: Node, x: Any) -> bool | None:
    """A condition as a bool, None while it is traced."""
    found = concrete(x)
    if found is None:
        return None
    if found.size != 1:
        raise node.wrong("a condition of one element", f"shape {found.shape}")
    return bool(found.reshape(-1)[0])


def _if(node: Node, call: Call, condition: Any) -> Any:
    graphs = node.graph("then_branch"), node.graph("else_branch")
    chosen = _truth(node, condition)
    if chosen is not None:
        return tuple(call(graphs[0] if chosen else graphs[1]))
    branches = [lambda g=g: tuple(_arrays(node, call(g))) for g in graphs]
    return lax.cond(condition.reshape(()), *branches)


def _arrays(node: Node, values: list[Any]) -> list[Any]:
    if any(x is None or isinstance(x, list) for x in values):
        raise ConcretizationError(
            operation=f"onnx {node}",
            required="arrays as the results of what is chosen while the program runs",
            got="a sequence or an optional",
            fix="run the model without jit",
        )
    return [loose(x) for x in values]


# ---- Loop


def _loop(node: Node, call: Call, trips: Any = None, condition: Any = None, *carried: Any) -> Any:
    body, count = node.graph("body"), _count(node, trips)
    scans = len(body.outputs) - 1 - len(carried)
    if len(body.inputs) != 2 + len(carried) or scans < 0:
        raise node.wrong(f"a body with {2 + len(carried)} inputs", f"{len(body.inputs)}")
    state, rows = list(carried), [list[Any]() for _ in range(scans)]
    step, going = 0, np.array(True) if condition is None else condition
    tried, open_end = False, count is None and trips is not None
    while count is None or step < count:
        truth = _truth(node, going)
        if truth is None or (truth and open_end):
            return _while(node, call, body, step, trips, going, state, rows)
        if not truth:
            break
        spend(node)
        traced = any(isinstance(x, Tracer) for x in (*state, *(r[0] for r in rows if r)))
        if traced and not tried and count is not None and count - step > UNROLLED:
            tried = True
            found = _scanned(call, body, step, count, state)
            if found is not None:
                state, more = found
                return (*state, *(_joined(r, m) for r, m in zip(rows, more, strict=True)))
        going, *found = call(body, np.array(step, np.int64), np.array(truth), *state)
        state = found[: len(carried)]
        for row, x in zip(rows, found[len(carried) :], strict=True):
            row.append(x)
        step += 1
    return (*state, *(_stacked(r, p) for r, p in zip(rows, body.outputs[1 + len(carried) :],
                                                     strict=True)))  # fmt: skip


def _count(node: Node, trips: Any) -> int | None:
    """The number of iterations: None when there is no limit, or it is traced."""
    found = None if trips is None else concrete(trips)
    if found is None:
        return None
    if found.size != 1:
        raise node.wrong("a trip count of one element", f"shape {found.shape}")
    return int(found.reshape(-1)[0])


def _stacked(rows: list[Any], port: Any) -> Any:
    if rows:
        xp = module(*rows)
        return xp.stack([x if xp is np else loose(x) for x in rows])
    shape = [d if isinstance(d, int) else 0 for d in port.shape or ()]
    return np.zeros((0, *shape), port.dtype or np.float32)


def _joined(rows: list[Any], more: Any) -> Any:
    return jnp.concatenate([jnp.stack([loose(x) for x in rows]), more]) if rows else more


def _scanned(
    call: Call, body: Graph, start: int, count: int, state: list[Any]
) -> tuple[list[Any], list[Any]] | None:
    """The rest of a loop as one scan, if its body is the same program every time."""
    if any(x is None or isinstance(x, list) for x in state):
        return None
    first = tuple(loose(x) for x in state)

    def one(carry: tuple[Any, ...], step: Any) -> Any:
        going, *found = call(body, step, np.array(True), *carry)
        if any(x is None or isinstance(x, list) for x in found):
            raise _OpenBodyError
        found = [loose(x) for x in found]
        after = tuple(found[: len(carry)])
        same = all(a.shape == b.shape and a.dtype == b.dtype
                   for a, b in zip(carry, after, strict=True))  # fmt: skip
        if not (same and is_known(going) and bool(np.all(going))):
            raise _OpenBodyError
        return after, tuple(found[len(carry) :])

    steps = jnp.arange(start, count, dtype=loose(np.array(0, np.int64)).dtype)
    try:
        state_after, more = lax.scan(one, first, steps)
    except (_OpenBodyError, ConcretizationError):
        return None
    return list(state_after), list(more)


def _while(
    node: Node, call: Call, body: Graph, step: int, trips: Any, going: Any, state: list[Any],
    rows: list[list[Any]],
) -> Any:  # fmt: skip
    """The rest of a loop whose end the program finds when it runs."""
    if rows:
        raise ConcretizationError(
            operation=f"onnx {node}",
            required="a number of iterations known while the program is traced",
            got="a condition that depends on traced values, with results that are stacked",
            fix="run the model without jit, or give the loop a trip count",
        )
    limit = None if trips is None else loose(trips).reshape(())
    first = (jnp.asarray(step), jnp.asarray(going).reshape(()), *_arrays(node, state))

    def open_(carry: tuple[Any, ...]) -> Any:
        return carry[1] if limit is None else carry[1] & (carry[0] < limit)

    def one(carry: tuple[Any, ...]) -> Any:
        found = _arrays(node, call(body, carry[0], carry[1], *carry[2:]))
        return (carry[0] + 1, found[0].reshape(()), *found[1:])

    return tuple(lax.while_loop(open_, one, first)[2:])


# ---- Scan


def _scan(node: Node, call: Call, *inputs: Any) -> Any:
    body, count = node.graph("body"), node.integer("num_scan_inputs")
    if node.opset < 9:
        return _batched_scan(node, call, body, count, inputs)
    states = len(inputs) - count
    if not 0 < count <= len(inputs) or len(body.inputs) != len(inputs):
        raise node.wrong(f"a body with {len(inputs)} inputs", f"{len(body.inputs)}")
    outs = len(body.outputs) - states
    axes = node.integers("scan_input_axes", (0,) * count)
    backward = node.integers("scan_input_directions", (0,) * count)
    if len(axes) != count or len(backward) != count or outs < 0:
        raise node.wrong(f"an axis and a direction for each of {count} inputs", f"{axes, backward}")
    rows = [_turned(node, loose(x), a, b)
            for x, a, b in zip(inputs[states:], axes, backward, strict=True)]  # fmt: skip
    state, found = _scan_rows(node, call, body, tuple(loose(x) for x in inputs[:states]), rows)
    axes = node.integers("scan_output_axes", (0,) * outs)
    backward = node.integers("scan_output_directions", (0,) * outs)
    placed = [
        jnp.moveaxis(jnp.flip(y, 0) if b else y, 0, axis_of(node, a, len(y.shape)))
        for y, a, b in zip(found, axes, backward, strict=True)
    ]
    return (*state, *placed)


def _turned(node: Node, x: Any, axis: int, backward: int) -> Any:
    x = jnp.moveaxis(x, axis_of(node, axis, len(x.shape)), 0)
    return jnp.flip(x, 0) if backward else x


def _scan_rows(
    node: Node, call: Call, body: Graph, state: tuple[Any, ...], rows: list[Any]
) -> tuple[Any, Any]:
    if len({x.shape[0] for x in rows}) > 1:
        raise node.wrong("inputs of one length", str([x.shape[0] for x in rows]))

    def one(carry: tuple[Any, ...], row: Any) -> Any:
        found = _arrays(node, call(body, *carry, *row))
        after = tuple(found[: len(carry)])
        for a, b in zip(carry, after, strict=True):
            if a.shape != b.shape or a.dtype != b.dtype:
                raise node.wrong("states that keep shape and dtype",
                                 f"{a.dtype}{a.shape} -> {b.dtype}{b.shape}")  # fmt: skip
        return after, tuple(found[len(carry) :])

    return lax.scan(one, state, tuple(rows))


def _batched_scan(node: Node, call: Call, body: Graph, count: int, inputs: tuple[Any, ...]) -> Any:
    """Opset 8: axis 0 is the batch, axis 1 is scanned; the first input is lengths."""
    if inputs[0] is not None:
        raise node.unsupported("sequences of one length", "sequence_lens", "export as opset 9")
    if any(node.integers("directions", ())):
        raise node.unsupported("forward scans", "directions", "export as opset 9")
    states = len(inputs) - 1 - count

    def one(*each: Any) -> Any:
        state, found = _scan_rows(node, call, body, each[:states], list(each[states:]))
        return (*state, *found)

    return tuple(vmap(one)(*(loose(x) for x in inputs[1:])))


OPS = {
    "If": Op(_if, nested=True),
    "Loop": Op(_loop, nested=True),
    "Scan": Op(_scan, nested=True),
}
