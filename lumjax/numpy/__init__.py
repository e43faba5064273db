"""NumPy's functions on lumjax arrays: same names, JAX's promotion and semantics.

>>> import lumjax.numpy as jnp
>>> jnp.arange(3) + 0.5
Array([0.5, 1.5, 2.5], dtype=float32, weak_type=True)
"""

from __future__ import annotations

# ruff: noqa: F401, I001
# pyright: reportUnusedImport=false
# fmt: off
import builtins as _builtins
import typing as _typing
from typing import Any

import numpy as _np

from lumjax import dtype as _dt
from lumjax.lazy import later as _later
from lumjax.numpy import methods as _methods  # installs the methods
from lumjax.numpy.complexes import (
    angle, conj, conjugate, imag, iscomplexobj, isrealobj, real,
)
from lumjax.numpy.creation import (
    arange, array, asarray, astype, broadcast_to, copy, empty, empty_like, eye, full, full_like,
    identity, indices, linspace, logspace, meshgrid, ones, ones_like, tri, tril, triu, zeros,
    zeros_like,
)
from lumjax.numpy.elementwise import (
    abs, absolute, acos, acosh, add, arccos, arccosh, arcsin, arcsinh, arctan, arctan2, arctanh,
    around, asin, asinh, atan, atan2, atanh, cbrt, ceil, clip, cos, cosh, deg2rad, degrees, divide,
    divmod, exp, exp2, expm1, fabs, fix, float_power, floor, floor_divide, fmax, fmin, fmod,
    heaviside, hypot, log, log1p, log2, log10, logaddexp, logaddexp2, maximum, minimum, mod, modf,
    multiply, negative, nextafter, positive, pow, power, rad2deg, radians, reciprocal, remainder,
    rint, round, sign, sin, sinc, sinh, sqrt, square, subtract, tan, tanh, true_divide, trunc,
)
from lumjax.numpy.indexing import (
    argwhere, flatnonzero, nonzero, select, take, take_along_axis, where,
)
from lumjax.numpy.linear import (
    cross, diag, diagflat, diagonal, dot, einsum, inner, kron, matmul, outer, tensordot, trace,
    vdot, vecdot,
)
from lumjax.numpy.logic import (
    bitwise_and, bitwise_invert, bitwise_left_shift, bitwise_not, bitwise_or, bitwise_right_shift,
    bitwise_xor, copysign, equal, greater, greater_equal, invert, isfinite, isinf, isnan, isneginf,
    isposinf, left_shift, less, less_equal, logical_and, logical_not, logical_or, logical_xor,
    nan_to_num, not_equal, right_shift, signbit,
)
from lumjax.numpy.manipulation import (
    append, array_split, atleast_1d, atleast_2d, atleast_3d, broadcast_arrays, broadcast_shapes,
    column_stack, concat, concatenate, dstack, expand_dims, flip, fliplr, flipud, hsplit,
    hstack, matrix_transpose, moveaxis, ndim, permute_dims, ravel, repeat, reshape, roll,
    rollaxis, rot90, shape, size, split, squeeze, stack, swapaxes, tile, transpose, unstack,
    vsplit, vstack,
)
from lumjax.numpy.reductions import (
    all, amax, amin, any, argmax, argmin, average, count_nonzero, cumprod, cumsum, diff, max,
    mean, min, nanmax, nanmean, nanmin, nansum, prod, ptp, std, sum, var,
)
from lumjax.numpy.scalars import (
    bfloat16, bool_, complex64, complex128, float8_e3m4, float8_e4m3, float8_e4m3b11fnuz,
    float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float16, float32, float64, int4,
    int8, int16, int32, int64, uint4, uint8, uint16, uint32, uint64,
)
from lumjax.trace.array import Array as _Array
from lumjax.trace.core import Tracer as _Tracer
from lumjax.trace.core import aval_of as _aval_of
from lumjax.typing import Array as _ArrayType

if _typing.TYPE_CHECKING:  # these are loaded when they are first mentioned
    from lumjax.numpy import fft as fft
    from lumjax.numpy import linalg as linalg
    from lumjax.numpy.bits import (
        bitwise_count, frexp, gcd, iscomplex, isreal, lcm, ldexp, packbits, spacing, unpackbits,
    )
    from lumjax.numpy.editing import (
        apply_over_axes, argpartition, array_equiv, block, choose, compress, delete, ediff1d,
        extract, fromfunction, insert, lexsort, partition, piecewise, place, put, put_along_axis,
        resize, sort_complex, trim_zeros, unwrap,
    )
    from lumjax.numpy.files import (
        array_repr, array_str, from_dlpack, frombuffer, fromfile, fromiter, fromstring,
        get_printoptions, load, printoptions, save, savez, set_printoptions,
    )
    from lumjax.numpy.functional import (
        allclose, apply_along_axis, array_equal, convolve, correlate, gradient, interp, isclose,
        polyval, trapezoid, vectorize,
    )
    from lumjax.numpy.grids import (
        c_, diag_indices, diag_indices_from, fill_diagonal, geomspace, index_exp, ix_,
        mask_indices, mgrid, ogrid, r_, ravel_multi_index, s_, tril_indices, tril_indices_from,
        triu_indices, triu_indices_from, unravel_index, vander,
    )
    from lumjax.numpy.namespace import __array_api_version__, __array_namespace_info__
    from lumjax.numpy.nans import (
        nanargmax, nanargmin, nancumprod, nancumsum, nanmedian, nanpercentile, nanprod, nanquantile,
        nanstd, nanvar,
    )
    from lumjax.numpy.padding import pad
    from lumjax.numpy.polynomials import (
        poly, polyadd, polyder, polydiv, polyfit, polyint, polymul, polysub, roots,
    )
    from lumjax.numpy.sets import (
        intersect1d, setdiff1d, setxor1d, union1d, unique_all, unique_counts, unique_inverse,
        unique_values,
    )
    from lumjax.numpy.sorting import (
        argsort, bincount, digitize, isin, median, percentile, quantile, searchsorted, sort,
        unique,
    )
    from lumjax.numpy.standard import (
        cumulative_prod, cumulative_sum, dsplit, einsum_path, isdtype, matvec, vecmat,
    )
    from lumjax.numpy.statistics import (
        bartlett, blackman, corrcoef, cov, hamming, hanning, histogram, histogram2d,
        histogram_bin_edges, histogramdd, i0, kaiser,
    )

_NAMES = {  # in which module a name is
    "bits": (
        "bitwise_count", "frexp", "gcd", "iscomplex", "isreal", "lcm", "ldexp", "packbits",
        "spacing", "unpackbits",
    ),
    "editing": (
        "apply_over_axes", "argpartition", "array_equiv", "block", "choose", "compress", "delete",
        "ediff1d", "extract", "fromfunction", "insert", "lexsort", "partition", "piecewise",
        "place", "put", "put_along_axis", "resize", "sort_complex", "trim_zeros", "unwrap",
    ),
    "files": (
        "array_repr", "array_str", "from_dlpack", "frombuffer", "fromfile", "fromiter",
        "fromstring", "get_printoptions", "load", "printoptions", "save", "savez",
        "set_printoptions",
    ),
    "functional": (
        "allclose", "apply_along_axis", "array_equal", "convolve", "correlate", "gradient",
        "interp", "isclose", "polyval", "trapezoid", "vectorize",
    ),
    "grids": (
        "c_", "diag_indices", "diag_indices_from", "fill_diagonal", "geomspace", "index_exp",
        "ix_", "mask_indices", "mgrid", "ogrid", "r_", "ravel_multi_index", "s_", "tril_indices",
        "tril_indices_from", "triu_indices", "triu_indices_from", "unravel_index", "vander",
    ),
    "namespace": (
        "__array_api_version__", "__array_namespace_info__",
    ),
    "nans": (
        "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmedian", "nanpercentile",
        "nanprod", "nanquantile", "nanstd", "nanvar",
    ),
    "padding": (
        "pad",
    ),
    "polynomials": (
        "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub",
        "roots",
    ),
    "sets": (
        "intersect1d", "setdiff1d", "setxor1d", "union1d", "unique_all", "unique_counts",
        "unique_inverse", "unique_values",
    ),
    "sorting": (
        "argsort", "bincount", "digitize", "isin", "median", "percentile", "quantile",
        "searchsorted", "sort", "unique",
    ),
    "standard": (
        "cumulative_prod", "cumulative_sum", "dsplit", "einsum_path", "isdtype", "matvec",
        "vecmat",
    ),
    "statistics": (
        "bartlett", "blackman", "corrcoef", "cov", "hamming", "hanning", "histogram",
        "histogram2d", "histogram_bin_edges", "histogramdd", "i0", "kaiser",
    ),
}
# fmt: on

# ---- dtypes and constants

bool = bool_
int_, uint, float_, complex_ = int32, uint32, float32, complex64
generic, number, integer, signedinteger = _np.generic, _np.number, _np.integer, _np.signedinteger
unsignedinteger, inexact, floating = _np.unsignedinteger, _np.inexact, _np.floating
complexfloating = _np.complexfloating
character, flexible, object_ = _np.character, _np.flexible, _np.object_
single, double, csingle, cdouble = float32, float64, complex64, complex128
ComplexWarning = _np.exceptions.ComplexWarning
dtype = _np.dtype
e, pi, inf, nan, euler_gamma = _np.e, _np.pi, _np.inf, _np.nan, _np.euler_gamma
newaxis = None
finfo, iinfo, issubdtype = _dt.finfo, _dt.iinfo, _dt.issubdtype


ndarray = _ArrayType


def promote_types(a: Any, b: Any) -> _np.dtype[Any]:
    """The dtype of combining arrays of two dtypes.

    >>> promote_types(int32, float16)
    dtype('float16')
    """
    return _dt.promote((_dt.canonicalize(a), False), (_dt.canonicalize(b), False))[0]


def result_type(*args: Any) -> _np.dtype[Any]:
    """The dtype of combining arrays, dtypes and Python scalars, which are weak."""
    pairs: list[tuple[_np.dtype[Any], _builtins.bool]] = []
    python = {_builtins.int: int32, _builtins.float: float32, complex: complex64}
    for x in args:
        if isinstance(x, type) and x in python:
            pairs.append((_dt.canonicalize(x), True))
        elif isinstance(x, (type, str, _np.dtype)):
            pairs.append((_dt.canonicalize(x), False))
        else:
            aval = _aval_of(x) if not hasattr(x, "dtype") else x
            pairs.append((_dt.canonicalize(aval.dtype), getattr(_weak(x), "weak", False)))
    return _dt.promote(*pairs)[0]


def _weak(x: Any) -> Any:
    return (
        _aval_of(x)
        if isinstance(x, (_Array, _Tracer, _builtins.int, _builtins.float, complex))
        else x
    )


def isscalar(element: Any) -> _builtins.bool:
    """Whether it is a number or an array without axes."""
    return isinstance(element, (_builtins.int, _builtins.float, complex, _np.generic)) or (
        isinstance(element, ndarray) and not shape(element)
    )


def iterable(y: Any) -> _builtins.bool:
    """Whether it can be iterated over."""
    return hasattr(y, "__iter__") and not (isinstance(y, ndarray) and not shape(y))


def can_cast(from_: Any, to: Any, casting: str = "safe") -> _builtins.bool:
    """Whether a cast is possible under NumPy's rule `casting`."""
    return _builtins.bool(_np.can_cast(_np.dtype(from_), _np.dtype(to), casting))  # type: ignore[arg-type]


__getattr__, __dir__ = _later(globals(), ("fft", "linalg"), _NAMES)
