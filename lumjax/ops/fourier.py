"""fft: discrete Fourier transforms over the last axes, by NumPy's pocketfft."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from lumjax.ops.checks import (
    Batched,
    Dims,
    Jvp,
    NDArray,
    Shape,
    all_weak,
    apply,
    check_dtype,
    silent,
    static_ints,
    text,
)
from lumjax.ops.elementwise import add, cast, mul, neg
from lumjax.ops.layout import broadcast_in_dim, shape_of
from lumjax.ops.matrix import Tangents
from lumjax.ops.parts import conj
from lumjax.ops.view import batch_first
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Primitive, Sample, Value, aval_of
from lumjax.trace.dim import same_shape
from lumjax.trace.form import Form, Opaque


class FftType(IntEnum):
    """Which transform: complex, its inverse, of real input, or its inverse."""

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


_COMPLEX = {dt.float32: dt.complex64, dt.float64: dt.complex128}
_REAL = {wide: narrow for narrow, wide in _COMPLEX.items()}


def fft(x: Value, fft_type: FftType | str, fft_lengths: Sequence[int]) -> Value:
    """The Fourier transform over the last len(fft_lengths) axes.

    FFT and IFFT keep the shape. RFFT takes real arrays and keeps n // 2 + 1 of the last n terms,
    the others being conjugates; IRFFT is its inverse, with the output lengths as fft_lengths.

    >>> fft(np.array([1.0, 2.0, 3.0], np.float32), "rfft", (3,)).shape
    (2,)
    """
    kind = _type(fft_type)
    dtype = aval_of(x).dtype
    if kind is FftType.RFFT:
        if dt.is_complex(dtype):
            raise ArgumentTypeError(
                operation="lax.fft", required="a real operand for RFFT", got=str(aval_of(x)),
                fix="use FFT for complex arrays",
            )  # fmt: skip
        x = x if dtype == dt.float64 else cast(x, dt.float32)
    elif not dt.is_complex(dtype):
        x = cast(x, _COMPLEX.get(dtype, dt.complex64))
    lengths = static_ints("lax.fft", "a length", fft_lengths)
    return apply(fft_p, x, fft_type=kind, fft_lengths=lengths)[0] if lengths else x


def _type(given: FftType | str) -> FftType:
    if isinstance(given, FftType):
        return given
    if str(given).upper() in FftType.__members__:
        return FftType[str(given).upper()]
    raise ArgumentValueError(
        operation="lax.fft", required="FFT, IFFT, RFFT or IRFFT", got=repr(given),
        fix="choose one of these",
    )  # fmt: skip


def _aval(
    x: ShapedArray, *, fft_type: FftType, fft_lengths: tuple[int, ...]
) -> tuple[ShapedArray, ...]:
    count = len(fft_lengths)
    halves: Shape = (*fft_lengths[:-1], fft_lengths[-1] // 2 + 1)
    wanted: Shape = halves if fft_type is FftType.IRFFT else fft_lengths
    if fft_type is FftType.RFFT:
        check_dtype("fft", x, x.dtype in _COMPLEX, "float32 or float64")
        dtype, out = _COMPLEX[x.dtype], halves
    else:
        check_dtype("fft", x, x.dtype in _REAL, "complex64 or complex128")
        real = fft_type is FftType.IRFFT
        dtype, out = _REAL[x.dtype] if real else x.dtype, fft_lengths
    if x.ndim < count or not same_shape(x.shape[x.ndim - count :], wanted):
        raise ShapeError(
            operation="fft",
            required=f"an operand whose last axes are {text(wanted)}",
            got=str(x),
            fix="cut or pad it first",
        )
    return (ShapedArray((*x.shape[: x.ndim - count], *out), dtype, all_weak(x)),)


@silent
def _eval(x: NDArray, *, fft_type: FftType, fft_lengths: tuple[int, ...]) -> tuple[NDArray]:
    (out,) = _aval(ShapedArray(x.shape, x.dtype), fft_type=fft_type, fft_lengths=fft_lengths)
    shape: Any = out.shape
    if not x.size or 0 in shape:
        return (np.zeros(shape, out.dtype),)
    axes = tuple(range(x.ndim - len(fft_lengths), x.ndim))
    transforms: Any = {
        FftType.FFT: np.fft.fftn, FftType.IFFT: np.fft.ifftn,
        FftType.RFFT: np.fft.rfftn, FftType.IRFFT: np.fft.irfftn,
    }  # fmt: skip
    return (transforms[fft_type](x, s=fft_lengths, axes=axes).astype(out.dtype, copy=False),)


def _form(x: ShapedArray, **_: Any) -> Form:
    return Opaque("fft runs in NumPy")


def _jvp(primals: Sequence[Value], ts: Tangents, **p: Any) -> Jvp:
    outs = fft_p.bind(*primals, **p)
    return outs, (None,) if ts[0] is None else fft_p.bind(ts[0], **p)


def _doubled(shape: Shape, length: int, dtype: dt.DType) -> Value:
    """How often each kept term of a real transform occurs: 2, but 1 at both ends."""
    count = length // 2 + 1
    times = np.full(count, 2, dtype)
    times[0] = 1
    if length % 2 == 0:
        times[-1] = 1
    return broadcast_in_dim(times, shape, (len(shape) - 1,))


def _transpose(
    cts: Tangents, inputs: Sequence[Any], *, fft_type: FftType, fft_lengths: tuple[int, ...]
) -> Tangents:
    (ct,) = cts
    if ct is None:
        return (None,)
    last, total = fft_lengths[-1], math.prod(fft_lengths)
    if fft_type is FftType.RFFT:
        times = _doubled(shape_of(ct), last, aval_of(ct).dtype)
        scaled = mul(conj(ct), np.asarray(total, aval_of(ct).dtype))
        return (fft(mul(scaled, _reciprocal(times)), FftType.IRFFT, fft_lengths),)
    if fft_type is FftType.IRFFT:
        x = fft(ct, FftType.RFFT, fft_lengths)
        times = _doubled(shape_of(x), last, aval_of(x).dtype)
        return (conj(mul(mul(x, times), np.asarray(1 / total, aval_of(x).dtype))),)
    return (fft(ct, fft_type, fft_lengths),)


def _reciprocal(times: Value) -> Value:
    """1 / times for ones and twos, exactly."""
    dtype = aval_of(times).dtype
    return mul(add(np.asarray(3, dtype), neg(times)), np.asarray(0.5, dtype))


def _batch(axis: MappedAxis, args: Sequence[Value], dims: Dims, **p: Any) -> Batched:
    return fft_p.bind(batch_first(args[0], dims[0], axis.size), **p), (0,)


def _sample(shape: tuple[int, ...], dtype: dt.DType, kind: FftType, *lengths: int) -> Sample:
    return Sample((ShapedArray(shape, dtype),), {"fft_type": kind, "fft_lengths": lengths})


fft_p = Primitive(
    "fft",
    aval=_aval,
    eval=_eval,
    form=_form,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    samples=(
        _sample((5,), dt.complex64, FftType.FFT, 5),
        _sample((2, 3, 4), dt.complex64, FftType.IFFT, 3, 4),
        _sample((2, 5), dt.float32, FftType.RFFT, 5),
        _sample((3, 4), dt.float32, FftType.RFFT, 3, 4),
        _sample((2, 3), dt.complex64, FftType.IRFFT, 5),
        _sample((3, 3), dt.complex64, FftType.IRFFT, 3, 4),
        _sample((0, 4), dt.complex64, FftType.FFT, 4),
        _sample((0, 4), dt.float32, FftType.RFFT, 4),
    ),
)
