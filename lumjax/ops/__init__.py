"""First-order operations: every record and its wrapper, and Python's operators on arrays.

One record per primitive, in one of the files of this folder; `PRIMITIVES` has them by name.
"""

from __future__ import annotations

# ruff: noqa: F401, I001
# pyright: reportUnusedImport=false
# fmt: off
import typing as _typing
from collections.abc import Iterator as _Iterator, Mapping as _Mapping

from lumjax.lazy import later as _later
from lumjax.ops.convert import CONVERSIONS
from lumjax.ops.infix import OPERATORS
from lumjax.ops.checks import (
    canonical_axes, canonical_axis,
)
from lumjax.ops.layout import (
    broadcast_in_dim, broadcast_in_dim_p, expand_dims, full, moveaxis, reduce_sum, reduce_sum_p,
    reshape, reshape_p, rev, rev_p, shape_of, squeeze, transpose, transpose_p, zeros,
)
from lumjax.ops.view import (
    broadcasted_iota, concatenate, concatenate_p, dim_value, dim_value_p, iota, iota_p, pad,
    pad_p, slice, slice_p,
)
from lumjax.ops.elementwise import (
    add, add_p, asvalue, Binary, broadcast_shapes, broadcast_values, cast, cast_p, constant,
    cos, cos_p, mul, mul_p, neg, neg_p, promote_values, select, select_p, sin, sin_p, sincos_p,
    sub, sub_p, Unary,
)
from lumjax.ops.compare import (
    and_, and_p, eq, eq_p, ge, ge_p, gt, gt_p, is_finite, is_finite_p, is_nan, le, le_p, lt,
    lt_p, ne, ne_p, not_, not_p, or_, or_p, xor, xor_p,
)
from lumjax.ops.parts import (
    complex, complex_p, conj, conj_p, imag, imag_p, real, real_p,
)
from lumjax.ops.arithmetic import (
    abs, abs_p, ceil, ceil_p, clamp, clamp_p, div, div_p, floor, floor_p, idiv, idiv_p,
    integer_pow, integer_pow_p, max, max_p, min, min_p, nextafter, nextafter_p, recip, recip_p,
    rem, rem_p, round, round_p, rsqrt, rsqrt_p, sign, sign_p, sqrt, sqrt_p, square, square_p,
    trunc, trunc_p,
)
from lumjax.ops.transcendental import (
    acos, acos_p, acosh, acosh_p, asin, asin_p, asinh, asinh_p, atan, atan2, atan2_p, atan_p,
    atanh, atanh_p, cbrt, cbrt_p, cosh, cosh_p, exp, exp2, exp2_p, exp_p, expm1, expm1_p, ipow,
    ipow_p, log, log1p, log1p_p, log2, log2_p, log_p, logistic, logistic_p, pow, pow_p, sinh,
    sinh_p, tan, tan_p, tanh, tanh_p,
)
from lumjax.ops.integer import (
    bitcast, bitcast_p, clz, clz_p, population_count, population_count_p, shift_left,
    shift_left_p, shift_right_arithmetic, shift_right_arithmetic_p, shift_right_logical,
    shift_right_logical_p,
)
from lumjax.ops.reduce import (
    argmax, argmax_p, argmin, argmin_p, reduce_and, reduce_and_p, reduce_max, reduce_max_p,
    reduce_min, reduce_min_p, reduce_or, reduce_or_p, reduce_prod, reduce_prod_p, reduce_xor,
    reduce_xor_p,
)
from lumjax.ops.contract import (
    dot, dot_general, dot_general_p, DotDimensionNumbers,
)
from lumjax.ops.precision import (
    canonical_precision, DotAlgorithmPreset, Precision,
)
from lumjax.ops.barrier import (
    barrier, barrier_p,
)
from lumjax.ops.infix import (
    absolute, divmod, floor_divide, left_shift, matmul, plus, power, promote_inexact, remainder,
    right_shift, times, true_divide,
)
from lumjax.trace.core import Primitive as Primitive, set_methods

if _typing.TYPE_CHECKING:  # these are loaded when they are first mentioned
    from lumjax.ops.fused import (
        fma, fma_p, xla_log,
    )
    from lumjax.ops.special import (
        digamma, digamma_p, erf, erf_inv, erf_inv_p, erf_p, erfc, erfc_p, lgamma, lgamma_p,
        trigamma,
    )
    from lumjax.ops.incomplete import (
        bessel_i0e, bessel_i0e_p, bessel_i1e, bessel_i1e_p, betainc, expi, expi_p, expn, expn_p,
        igamma, igamma_grad_a, igamma_grad_a_p, igamma_p, igammac, igammac_p, random_gamma_grad,
        random_gamma_grad_p, regularized_incomplete_beta_p, zeta, zeta_p,
    )
    from lumjax.ops.cumulative import (
        cumlogsumexp, cumlogsumexp_p, cummax, cummax_p, cummin, cummin_p, cumprod, cumprod_p,
        cumsum, cumsum_p,
    )
    from lumjax.ops.conv import (
        conv_dimension_numbers, conv_general_dilated, conv_general_dilated_p,
        ConvDimensionNumbers, padtype_to_pads,
    )
    from lumjax.ops.dynamic import (
        dynamic_index_in_dim, dynamic_slice, dynamic_slice_in_dim, dynamic_slice_p,
        dynamic_update_index_in_dim, dynamic_update_slice, dynamic_update_slice_in_dim,
        dynamic_update_slice_p,
    )
    from lumjax.ops.index import (
        gather, gather_p, scatter, scatter_add, scatter_add_p, scatter_p, scatter_sub,
    )
    from lumjax.ops.windows import (
        GatherDimensionNumbers, ScatterDimensionNumbers,
    )
    from lumjax.ops.scatter_monoid import (
        scatter_max, scatter_max_p, scatter_min, scatter_min_p, scatter_mul, scatter_mul_p,
    )
    from lumjax.ops.segment import (
        segment_max, segment_min, segment_prod, segment_sum,
    )
    from lumjax.ops.sorting import (
        argsort, sort, sort_p, take_along_axis, top_k, top_k_p,
    )
    from lumjax.ops.schur import (
        sqrtm, sqrtm_p, sylvester, sylvester_p,
    )
    from lumjax.ops.triangular import (
        cholesky, cholesky_p, triangular_solve, triangular_solve_p,
    )
    from lumjax.ops.tridiagonal import (
        tridiagonal_solve, tridiagonal_solve_p,
    )
    from lumjax.ops.factor import (
        lu, lu_p, qr, qr_p,
    )
    from lumjax.ops.spectral import (
        eig, eig_p, eigh, eigh_p, svd, svd_p,
    )
    from lumjax.ops.fourier import (
        FftType, fft, fft_p,
    )
    from lumjax.ops.rng import (
        random_unwrap, random_unwrap_p, random_wrap, random_wrap_p, threefry2x32,
        threefry2x32_p,
    )
    from lumjax.ops.collective import (
        all_gather, all_gather_p, axis_index, axis_index_p, axis_size, pmax, pmax_p, pmean,
        pmin, pmin_p, ppermute, ppermute_p, psum, psum_p,
    )

_NAMES = {  # in which module a name is
    "fused": (
        "fma", "fma_p", "xla_log",
    ),
    "special": (
        "digamma", "digamma_p", "erf", "erf_inv", "erf_inv_p", "erf_p", "erfc", "erfc_p",
        "lgamma", "lgamma_p", "trigamma",
    ),
    "incomplete": (
        "bessel_i0e", "bessel_i0e_p", "bessel_i1e", "bessel_i1e_p", "betainc", "expi", "expi_p",
        "expn", "expn_p", "igamma", "igamma_grad_a", "igamma_grad_a_p", "igamma_p", "igammac",
        "igammac_p", "random_gamma_grad", "random_gamma_grad_p",
        "regularized_incomplete_beta_p", "zeta", "zeta_p",
    ),
    "cumulative": (
        "cumlogsumexp", "cumlogsumexp_p", "cummax", "cummax_p", "cummin", "cummin_p", "cumprod",
        "cumprod_p", "cumsum", "cumsum_p",
    ),
    "conv": (
        "conv_dimension_numbers", "conv_general_dilated", "conv_general_dilated_p",
        "ConvDimensionNumbers", "padtype_to_pads",
    ),
    "dynamic": (
        "dynamic_index_in_dim", "dynamic_slice", "dynamic_slice_in_dim", "dynamic_slice_p",
        "dynamic_update_index_in_dim", "dynamic_update_slice", "dynamic_update_slice_in_dim",
        "dynamic_update_slice_p",
    ),
    "index": (
        "gather", "gather_p", "scatter", "scatter_add", "scatter_add_p", "scatter_p",
        "scatter_sub",
    ),
    "windows": (
        "GatherDimensionNumbers", "ScatterDimensionNumbers",
    ),
    "scatter_monoid": (
        "scatter_max", "scatter_max_p", "scatter_min", "scatter_min_p", "scatter_mul",
        "scatter_mul_p",
    ),
    "segment": (
        "segment_max", "segment_min", "segment_prod", "segment_sum",
    ),
    "sorting": (
        "argsort", "sort", "sort_p", "take_along_axis", "top_k", "top_k_p",
    ),
    "schur": (
        "sqrtm", "sqrtm_p", "sylvester", "sylvester_p",
    ),
    "triangular": (
        "cholesky", "cholesky_p", "triangular_solve", "triangular_solve_p",
    ),
    "tridiagonal": (
        "tridiagonal_solve", "tridiagonal_solve_p",
    ),
    "factor": (
        "lu", "lu_p", "qr", "qr_p",
    ),
    "spectral": (
        "eig", "eig_p", "eigh", "eigh_p", "svd", "svd_p",
    ),
    "fourier": (
        "FftType", "fft", "fft_p",
    ),
    "rng": (
        "random_unwrap", "random_unwrap_p", "random_wrap", "random_wrap_p", "threefry2x32",
        "threefry2x32_p",
    ),
    "collective": (
        "all_gather", "all_gather_p", "axis_index", "axis_index_p", "axis_size", "pmax",
        "pmax_p", "pmean", "pmin", "pmin_p", "ppermute", "ppermute_p", "psum", "psum_p",
    ),
}
# fmt: on

__getattr__, __dir__ = _later(globals(), (), _NAMES)


class _Records(_Mapping[str, Primitive]):
    """Every record by its name; `name_p` is loaded when it is first asked for."""

    def __init__(self) -> None:
        listed = [n.removesuffix("_p") for n in __dir__() if n.endswith("_p")]
        self._names = dict.fromkeys(listed)

    def __getitem__(self, name: str) -> Primitive:
        if name not in self._names:
            raise KeyError(name)
        variable = f"{name}_p"
        return globals().get(variable) or __getattr__(variable)

    def __iter__(self) -> _Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


PRIMITIVES = _Records()
bitwise_and, bitwise_or, bitwise_xor, bitwise_not = and_, or_, xor, not_

set_methods({**OPERATORS, **CONVERSIONS})
