"""Methods of Array and Tracer, installed once: x.sum(), x.reshape(...), x[...], x.at, x.T, ..."""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops
from lumjax.errors import ArgumentTypeError, ArgumentValueError, ConcretizationError
from lumjax.lazy import Method
from lumjax.numpy import (
    complexes,
    creation,
    elementwise,
    indexing,
    linear,
    logic,
    manipulation,
    reductions,
)
from lumjax.numpy.updates import At
from lumjax.target import HOST, Place
from lumjax.trace.array import Array, Remote, delete, stored
from lumjax.trace.core import Tracer, aval_of, set_methods, traced

_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    reductions.sum, reductions.prod, reductions.max, reductions.min, reductions.mean,
    reductions.var, reductions.std, reductions.all, reductions.any, reductions.argmax,
    reductions.argmin, reductions.cumsum, reductions.cumprod, reductions.ptp,
    manipulation.swapaxes, manipulation.squeeze, manipulation.repeat, manipulation.ravel,
    indexing.take, indexing.nonzero, elementwise.clip, elementwise.round, complexes.conj,
    linear.dot, linear.diagonal, linear.trace, creation.copy, creation.astype,
)  # fmt: skip
_WAITING = {  # in which module a function is that is loaded when it is first looked up
    "sort": "sorting", "argsort": "sorting", "searchsorted": "sorting",
    "argpartition": "editing", "choose": "editing", "_repr_html_": "display",
}  # fmt: skip


def _reshape(self: Any, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
    """The array with another shape, given as a tuple or as arguments."""
    target = shape[0] if len(shape) == 1 else shape
    return manipulation.reshape(self, target, order, copy=copy)


def _transpose(self: Any, *axes: Any) -> Any:
    """The array with its axes permuted, given as a tuple or as arguments; reversed by default."""
    if not axes or axes == (None,):
        return manipulation.transpose(self)
    return manipulation.transpose(self, axes[0] if len(axes) == 1 else axes)


def _flatten(self: Any, order: str = "C") -> Any:
    """The array as one axis."""
    return manipulation.ravel(self, order)


def _value(self: Any, operation: str) -> np.ndarray[Any, Any]:
    if isinstance(self, Array):
        return self.data
    known = self.concrete()
    if known is None:
        raise ConcretizationError(
            operation=operation,
            required="a value that is known now",
            got=traced(self),
            fix="keep computing with arrays, or return the value from the jitted function first",
        )
    return known


def _item(self: Any, *args: int) -> Any:
    """The element as a Python number; needs size 1 or an index."""
    return _value(self, "item").item(*args)


def _tolist(self: Any) -> Any:
    """The elements as nested lists of Python numbers."""
    return _value(self, "tolist").tolist()


def _iter(self: Any) -> Any:
    if not aval_of(self).shape:
        raise ArgumentTypeError(
            operation="iteration over a 0-d array", required="an array with at least one axis",
            got=str(aval_of(self)), fix="give it an axis, or use the value itself",
        )  # fmt: skip
    return iter([indexing.getitem(self, k) for k in builtins.range(aval_of(self).shape[0])])


def _round(self: Any, ndigits: int | None = None) -> Any:
    """round(x) is an integer array, round(x, n) a float one."""
    if ndigits is not None:
        return elementwise.round(self, ndigits)
    return creation.astype(elementwise.round(self), int)


def _block_until_ready(self: Any) -> Any:
    """The array, computed: what lies on the host is, as it is returned."""
    if isinstance(self, Remote):
        stored(self).ready()
    return self


def _devices(self: Any) -> set[Place]:
    """The devices that hold the array."""
    return {_device(self)}


def _compress(self: Any, condition: Any, axis: int | None = None, out: None = None) -> Any:
    """The slices along an axis where `condition` holds."""
    editing = importlib.import_module("lumjax.numpy.editing")
    return editing.compress(condition, self, axis, out=out)


def _view(self: Any, dtype: Any = None) -> Any:
    """The bits read as another dtype; the last axis grows or shrinks with the element's size."""
    if dtype is None:
        return self
    have, want = aval_of(self).dtype, dt.canonicalize(dtype)
    if have == want:
        return self
    if have.itemsize == want.itemsize:
        return ops.bitcast(self, want)
    data = np.ascontiguousarray(_value(self, "view"))
    return creation.asarray(data.view(want))


def _tobytes(self: Any, order: Any = "C") -> bytes:
    """The bytes of the elements."""
    return _value(self, "tobytes").tobytes(order)


def _to_device(self: Any, device: Any, *, stream: Any = None) -> Any:
    """The array: there is one device."""
    del device, stream
    return self


def _array_namespace(self: Any, *, api_version: str | None = None) -> Any:
    """The module with the functions of the Python Array API: lumjax.numpy."""
    if api_version not in (None, "2022.12", "2023.12", "2024.12"):
        raise ArgumentValueError(
            operation="__array_namespace__", required="'2024.12' or earlier",
            got=repr(api_version), fix="leave it out",
        )  # fmt: skip
    return importlib.import_module("lumjax.numpy")


_CPU = 1  # DLPack's number for it


def _dlpack(
    self: Any, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
    copy: bool | None = None,
) -> Any:  # fmt: skip
    """A capsule for other libraries: of a GPU's memory itself, else with a copy of the elements."""
    del dl_device, copy
    if isinstance(self, Remote) and _dlpack_device(self)[0] != _CPU:
        return stored(self).exported(stream, max_version)
    return np.array(_value(self, "__dlpack__")).__dlpack__(max_version=max_version)


def _dlpack_device(self: Any) -> tuple[int, int]:
    """Where `__dlpack__` says the elements are."""
    return stored(self).place() if isinstance(self, Remote) else (_CPU, 0)


def _contains(self: Any, value: Any) -> bool:
    return bool(_value(logic.equal(self, value), "in").any())


def _deepcopy(self: Any, memo: Any) -> Any:
    """The array: it does not change."""
    del memo
    return creation.copy(self)


def _device(self: Any) -> Place:
    """Where the elements are."""
    kind, number = _dlpack_device(self)
    return HOST if kind == _CPU else Place("cuda", number, "cuda")


def _sharding(self: Any) -> Any:
    """How the array lies on devices: whole on one."""
    del self
    return importlib.import_module("lumjax.sharding").SingleDeviceSharding()


def _delete(self: Any) -> None:
    """Let go of the memory; later uses of the array raise DonationError."""
    if isinstance(self, Array):
        delete(self, "has been deleted by its method delete")


def _copy_to_host_async(self: Any) -> None:
    """Nothing to do: the array is on the host."""
    del self


_PROPERTIES: dict[str, Callable[[Any], Any]] = {
    "at": At,
    "T": manipulation.transpose,
    "mT": manipulation.matrix_transpose,
    "real": complexes.real,
    "imag": complexes.imag,
    "nbytes": lambda x: aval_of(x).size * aval_of(x).dtype.itemsize,
    "itemsize": lambda x: aval_of(x).dtype.itemsize,
    "device": _device,
    "weak_type": lambda x: aval_of(x).weak,
    "sharding": _sharding,
    "committed": lambda _: False,
    "is_fully_addressable": lambda _: True,
    "is_fully_replicated": lambda _: True,
    "on_device_size_in_bytes": lambda x: lambda: aval_of(x).size * aval_of(x).dtype.itemsize,
}


def _read_only(name: str) -> Callable[..., None]:
    def refuse(self: Any, *args: Any) -> None:
        raise TypeError(
            f"arrays are immutable: instead of x{name}, write x = x.at[index].set(value)"
        )

    return refuse


def install() -> None:
    """Give both classes their methods and properties."""
    methods: dict[str, Any] = {f.__name__: f for f in _FUNCTIONS}
    methods |= {n: Method(f"lumjax.numpy.{module}", n) for n, module in _WAITING.items()}
    methods |= {n: property(f) for n, f in _PROPERTIES.items()}
    methods |= {
        "reshape": _reshape, "transpose": _transpose, "flatten": _flatten, "item": _item,
        "tolist": _tolist, "conj": complexes.conj, "conjugate": complexes.conj,
        "block_until_ready": _block_until_ready,
        "devices": _devices, "copy_to_host_async": _copy_to_host_async,
        "__getitem__": indexing.getitem, "__iter__": _iter,
        "__setitem__": _read_only("[index] = value"), "__delitem__": _read_only("[index]"),
        "__round__": _round, "compress": _compress, "view": _view, "tobytes": _tobytes,
        "to_device": _to_device, "__array_namespace__": _array_namespace, "__dlpack__": _dlpack,
        "__dlpack_device__": _dlpack_device, "__contains__": _contains,
        "__copy__": creation.copy, "__deepcopy__": _deepcopy,
        "addressable_data": lambda self, index: self, "is_ready": lambda self: True,
        "is_deleted": lambda self: False, "delete": _delete,
    }  # fmt: skip
    set_methods(methods)
    for name in ("shape", "dtype", "ndim", "size"):  # Array has its own, faster ones
        setattr(Tracer, name, property(lambda x, n=name: getattr(x.aval, n)))


install()
