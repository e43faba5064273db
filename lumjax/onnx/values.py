"""What flows through a model: arrays, NumPy arrays that are known while tracing, lists (sequences)
and None (an optional that is empty). Known values stay NumPy's, so that shapes fold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import numpy as np

from lumjax import dtype as dt
from lumjax import numpy as jnp
from lumjax.errors import ConcretizationError
from lumjax.onnx.faults import OnnxError
from lumjax.onnx.graph import Node
from lumjax.record import record

Compute = Callable[..., Any]
FOLDED = 1 << 16  # elements of a value that is still folded


@record
class Limits:
    """What a run may use at most: bytes of one value, iterations of eager loops and calls."""

    bytes: int = 1 << 32
    trips: int = 1_000_000


LIMITS: ContextVar[Limits] = ContextVar("LIMITS", default=Limits())  # noqa: B039
_SPENT: ContextVar[list[int]] = ContextVar("_SPENT")  # what this run has had of its iterations


@contextmanager
def limits(chosen: Limits) -> Generator[None]:
    """Runs inside hold to these limits."""
    token, spent = LIMITS.set(chosen), _SPENT.set([0])
    try:
        yield
    finally:
        LIMITS.reset(token)
        _SPENT.reset(spent)


def spend(node: Node) -> None:
    """Counts an iteration of a loop or a call of a function; raises when there were too many."""
    spent = _SPENT.get()
    spent[0] += 1
    allowed = LIMITS.get().trips
    if spent[0] > allowed:
        raise OnnxError(
            operation=f"onnx {node}",
            required=f"at most {allowed} iterations of loops and calls of functions",
            got="more",
            fix="if the model means this, raise max_trips of lumjax.onnx.load",
        )


@record(eq=False, repr=False)
class Op:
    """An operator: `compute(node, *inputs)` gives an output or a tuple of them.

    The inputs at `static` are NumPy arrays, whose values decide shapes. The others are lumjax's
    arrays, unless the operator is `raw` and takes them as they come. `fold`: whether it is computed
    while tracing when all inputs are known. `nested`: `compute(node, call, *inputs)` runs graphs.
    """

    compute: Compute
    static: tuple[int, ...] = ()
    fold: bool = True
    raw: bool = False
    nested: bool = False


def is_known(x: Any) -> bool:
    """Whether the value is known while tracing."""
    if isinstance(x, list):
        return all(is_known(item) for item in cast("list[Any]", x))
    return x is None or isinstance(x, (np.ndarray, np.generic))


def size_of(x: Any) -> int:
    """How many elements a value has."""
    if isinstance(x, list):
        return sum(size_of(item) for item in cast("list[Any]", x))
    return 0 if x is None else math.prod(x.shape)


def is_foreign(dtype: Any) -> bool:
    """Whether lumjax has no arrays of this dtype: strings, and floats and integers below 8 bits."""
    return np.dtype(dtype) not in _OURS


_OURS = {
    np.dtype(d)
    for d in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64", "complex64", "complex128", dt.bfloat16,
    )
}  # fmt: skip


def loose(x: Any) -> Any:
    """A value as lumjax's array; without x64, 64-bit integers are clipped to what 32 bits hold."""
    if isinstance(x, list):
        return [loose(item) for item in cast("list[Any]", x)]
    if not isinstance(x, (np.ndarray, np.generic)) or is_foreign(x.dtype):
        return x
    array = np.asarray(x)
    narrow = dt.canonicalize(array.dtype)
    if narrow != array.dtype:
        if np.issubdtype(narrow, np.integer):
            array = np.clip(array, np.iinfo(narrow).min, np.iinfo(narrow).max)
        with np.errstate(all="ignore"):
            array = array.astype(narrow)
    return jnp.asarray(array)


def fixed(x: Any) -> Any:
    """A computed value as NumPy's."""
    if isinstance(x, list):
        return [fixed(item) for item in cast("list[Any]", x)]
    return None if x is None else np.asarray(x)


def concrete(x: Any) -> np.ndarray | None:
    """The value of an array, or None while it is traced."""
    try:
        return np.asarray(x)
    except ConcretizationError:
        return None


def static(node: Node, x: Any, k: int) -> np.ndarray | None:
    """Input `k`, whose value the operator needs while it is traced."""
    if x is None:
        return None
    found = None if isinstance(x, list) else concrete(x)
    if found is None:
        name = node.inputs[k] if k < len(node.inputs) else str(k)
        raise ConcretizationError(
            operation=f"onnx {node}",
            required=f"input {k} ({name!r}) to be known while the program is traced",
            got=f"a traced value of {getattr(x, 'dtype', 'a sequence')}",
            fix="run the model without jit, or give jit sizes from which it follows",
        )
    return found


def host(node: Node, x: Any) -> np.ndarray:
    """An input on which the shape of the output depends: known, or an array outside jit."""
    found = static(node, x, 0)
    if found is None:
        raise node.wrong("an input", "none")
    return found


def whole(node: Node, x: np.ndarray | None, what: str = "a shape") -> tuple[int, ...]:
    """A known value as whole numbers."""
    if x is None:
        raise node.wrong(what, "no such input")
    if x.dtype.kind not in "iu" or x.ndim > 1:
        raise node.wrong(f"{what}: whole numbers in one row", f"{x.dtype} of shape {x.shape}")
    return tuple(int(i) for i in x.reshape(-1))


def scalar(node: Node, x: np.ndarray | None, what: str) -> Any:
    """A known value of one element as a Python number."""
    if x is None or x.size != 1:
        raise node.wrong(f"{what} of one element", "nothing" if x is None else f"shape {x.shape}")
    return x.reshape(-1)[0].item()


def bounded(node: Node, shape: Sequence[Any], dtype: Any = np.float32) -> tuple[int, ...]:
    """A shape that is about to be made, once it fits the limit."""
    sizes = tuple(int(d) for d in shape)
    if any(d < 0 for d in sizes):
        raise node.wrong("sizes that are not negative", str(sizes))
    check_bytes(f"onnx {node}", math.prod(sizes) * np.dtype(dtype).itemsize)
    return sizes


def check_bytes(operation: str, size: int) -> None:
    """Raises when one value would take more memory than the run may use."""
    allowed = LIMITS.get().bytes
    if size > allowed:
        raise OnnxError(
            operation=operation,
            required=f"values of at most {allowed} bytes",
            got=f"{size} bytes",
            fix="if the model means this, raise max_bytes of lumjax.onnx.load",
        )


def axis_of(node: Node, axis: int, rank: int) -> int:
    """An axis counted from the front."""
    if not -rank <= axis < max(rank, 1):
        raise node.wrong(f"an axis of {rank} axes", str(axis))
    return axis % max(rank, 1)


def axes_of(node: Node, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the front, each once."""
    found = tuple(axis_of(node, int(a), rank) for a in axes)
    if len(set(found)) != len(found):
        raise node.wrong("axes that differ", str(tuple(axes)))
    return found


def module(*xs: Any) -> Any:
    """NumPy when everything is known, else lumjax.numpy."""
    return np if all(is_known(x) for x in xs) else jnp


def common(*xs: Any) -> tuple[Any, tuple[Any, ...]]:
    """The module that handles these values, and the values as it wants them."""
    if module(*xs) is np:
        return np, xs
    return jnp, tuple(loose(x) for x in xs)


def is_float(x: Any) -> bool:
    """Whether a value has floating point elements."""
    return dt.is_floating(np.dtype(x.dtype))


def dtype_name(x: Any) -> str:
    """For errors: what a value is."""
    return type(x).__name__ if not hasattr(x, "dtype") else f"{x.dtype}{list(x.shape)}"
