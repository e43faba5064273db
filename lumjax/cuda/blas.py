"""cuBLAS, called through ctypes: `cublasGemmEx` and `cublasGemmStridedBatchedEx`.

CuPy's own wrappers of them refuse to be captured in a graph. Here the handle has its stream and its
workspace from the start, so that nothing is allocated while a graph is recorded. None of it has run
on a GPU.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lumjax.cuda.library import Call, Matrix
from lumjax.errors import UnsupportedError

WORKSPACE = 32 << 20  # bytes: what cuBLAS's documentation advises for an H100
FUNCTIONS = (
    "cublasCreate_v2", "cublasSetStream_v2", "cublasSetWorkspace_v2", "cublasSetPointerMode_v2",
    "cublasSetMathMode", "cublasGemmEx", "cublasGemmStridedBatchedEx",
)  # fmt: skip
_OF_HOST = 0  # CUBLAS_POINTER_MODE_HOST: factors are read as the call is made
_WHOLE_SUMS = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
_DEFAULT = -1  # CUBLAS_GEMM_DEFAULT: the library chooses


def _candidates() -> Iterator[str]:
    for entry in map(Path, sys.path):
        yield from map(str, sorted(entry.glob("nvidia/*/lib/libcublas.so.[0-9]*"), reverse=True))
    found = ctypes.util.find_library("cublas")
    yield from [found] if found else []


def library() -> Any:
    """The library.

    Raises UnsupportedError where there is none.
    """
    why = "no libcublas in the environment's packages or the system"
    for path in _candidates():
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            why = str(error)
    raise UnsupportedError(
        operation="multiplying with cuBLAS", required="NVIDIA's library libcublas", got=why,
        fix="run pip install nvidia-cublas, or leave cuda_library_gemm off",
    )  # fmt: skip


class Blas:
    """A handle on a stream, with memory of its own for what cuBLAS needs."""

    def __init__(self, found: Any, stream: int, workspace: int) -> None:
        self._library, self._handle = found, ctypes.c_void_p()
        self._asked("cublasCreate_v2", ctypes.byref(self._handle))
        handle = self._handle
        self._asked("cublasSetStream_v2", handle, ctypes.c_void_p(stream))  # takes the workspace
        size = ctypes.c_size_t(WORKSPACE)
        self._asked("cublasSetWorkspace_v2", handle, ctypes.c_void_p(workspace), size)
        self._asked("cublasSetPointerMode_v2", handle, ctypes.c_int(_OF_HOST))
        self._asked("cublasSetMathMode", handle, ctypes.c_int(_WHOLE_SUMS))
        self._factors = {
            (double, of_complex): _factors(double, of_complex)
            for double in (False, True)
            for of_complex in (False, True)
        }

    def multiply(self, call: Call, addresses: Sequence[int]) -> None:
        """A product. `addresses`: of the first side's buffer, the second's, the result's."""
        one, zero = self._factors[call.double, call.complex]
        batched = call.count > 1
        sides = [
            _matrix(matrix, address, batched)
            for matrix, address in zip(
                (call.first, call.second, call.result), addresses, strict=True
            )
        ]
        numbers = map(ctypes.c_int, (
            call.first.operation, call.second.operation, call.m, call.n, call.k,
        ))  # fmt: skip
        self._asked(
            "cublasGemmStridedBatchedEx" if batched else "cublasGemmEx", self._handle, *numbers,
            ctypes.byref(one), *sides[0], *sides[1], ctypes.byref(zero), *sides[2],
            *([ctypes.c_int(call.count)] if batched else []),
            ctypes.c_int(call.compute), ctypes.c_int(_DEFAULT),
        )  # fmt: skip

    def _asked(self, name: str, *args: Any) -> None:
        status = getattr(self._library, name)(*args)
        if status:
            raise RuntimeError(f"{name} returned {status}")


def _factors(double: bool, of_complex: bool) -> tuple[Any, Any]:
    """One and zero as cuBLAS reads them."""
    kind: Any = ctypes.c_double if double else ctypes.c_float
    if of_complex:
        return (kind * 2)(1, 0), (kind * 2)(0, 0)
    return kind(1), kind(0)


def _matrix(matrix: Matrix, address: int, batched: bool) -> list[Any]:
    numbers = [ctypes.c_void_p(address + matrix.begin), ctypes.c_int(matrix.type),
               ctypes.c_int(matrix.leading)]  # fmt: skip
    return [*numbers, ctypes.c_longlong(matrix.stride)] if batched else numbers
