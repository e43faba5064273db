"""jnp's less common functions against JAX."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConcretizationError,
    DTypeError,
    ShapeError,
)
from tests.numpy.oracle import check, lines

pytestmark = pytest.mark.sampled(4)


@pytest.mark.parametrize(
    "expression",
    lines("""
    jnp.nanprod(n34)
    jnp.nanprod(n34, axis=1, keepdims=True)
    jnp.nancumsum(n34, axis=1)
    jnp.nancumprod(n34)
    jnp.nanargmax(n34, axis=1)
    jnp.nanargmin(n34)
    jnp.nanargmax(i34, axis=0)
    jnp.nanargmax(jnp.full((2, 2), jnp.nan), axis=0)
    jnp.nanvar(n34, axis=0)
    jnp.nanvar(n34, ddof=1)
    jnp.nanvar(jnp.full((2,), jnp.nan))
    jnp.nanstd(n34, axis=1, keepdims=True)
    jnp.nanstd(i34)
    jnp.nanmedian(n34, axis=1)
    jnp.nanquantile(n34, 0.3)
    jnp.nanquantile(n34, jnp.array([0.1, 0.5]), axis=1)
    jnp.nanquantile(n34, 0.4, axis=0, method='lower', keepdims=True)
    jnp.nanpercentile(n34, 25, axis=1, method='higher')
    jnp.nanpercentile(n34, 40.0, method='nearest')
    jnp.grad if False else jax.grad(lambda x: jnp.nanvar(x, axis=1).sum())(f34)
    jnp.cov(f34)
    jnp.cov(f34, rowvar=False)
    jnp.cov(f4)
    jnp.cov(f34, g34, bias=True)
    jnp.cov(f34, fweights=jnp.array([1, 2, 1, 3]))
    jnp.cov(f34, aweights=jnp.array([0.5, 2, 1, 3]), ddof=0)
    jnp.cov(c4)
    jnp.corrcoef(f34)
    jnp.corrcoef(f4, f4)
    jnp.histogram(f34)
    jnp.histogram(f34, 4, (-1.0, 1.0))
    jnp.histogram(f34, jnp.array([-2.0, 0.0, 1.0, 5.0]), density=True)
    jnp.histogram(i34, 3)
    jnp.histogram(f4, 3, weights=jnp.arange(4.0))
    jnp.histogram_bin_edges(f34, 5)
    jnp.histogram_bin_edges(jnp.ones(3), 5)
    jnp.histogram2d(f34.ravel(), g34.ravel(), 3)
    jnp.histogramdd(f43, 2)
    jnp.histogramdd(f43, (2, 3, 1), density=True)
    jnp.hanning(5)
    jnp.hanning(1)
    jnp.hamming(4)
    jnp.blackman(5)
    jnp.bartlett(5)
    jnp.kaiser(5, 2.0)
    jnp.i0(f34)
    jnp.mgrid[0:3, 0:2]
    jnp.mgrid[0:1:3j, 1:2]
    jnp.mgrid[:3]
    jnp.ogrid[0:3, 0:2]
    jnp.r_[1:4, 0, 5.0]
    jnp.r_['0,2', f4, f4]
    jnp.c_[f4, f4]
    jnp.c_[f34, f34]
    jnp.ix_(jnp.array([0, 2]), jnp.array([1, 0, 2]))
    jnp.tril_indices(3)
    jnp.triu_indices(3, 1, 4)
    jnp.tril_indices_from(f34, -1)
    jnp.triu_indices_from(f33)
    jnp.diag_indices(3)
    jnp.diag_indices_from(f33)
    jnp.mask_indices(3, jnp.triu, 1)
    jnp.fill_diagonal(f34, 9.0, inplace=False)
    jnp.fill_diagonal(f33, jnp.array([1.0, 2.0]), inplace=False)
    jnp.unravel_index(jnp.array([0, 5, -1, 99]), (2, 3))
    jnp.unravel_index(7, (2, 2, 2))
    jnp.ravel_multi_index((jnp.array([0, 1]), jnp.array([2, 5])), (2, 3), mode='clip')
    jnp.ravel_multi_index((jnp.array([0, 1]), jnp.array([2, 5])), (2, 3), mode='wrap', order='F')
    jnp.vander(f4)
    jnp.vander(i4, 3, increasing=True)
    jnp.geomspace(1.0, 1000.0, 4)
    jnp.geomspace(1.0, 1000.0, 4, endpoint=False)
    jnp.compress(jnp.array([True, False, True]), f34, axis=0)
    jnp.compress(b4, f4, size=3, fill_value=-1)
    jnp.extract(b34, f34)
    jnp.choose(jnp.array([0, 1, 2]), [f34[:, 0], f34[:, 1], f34[:, 2]])
    jnp.choose(jnp.array([0, 5, -1]), [f34[:, 0], f34[:, 1]], mode='wrap')
    jnp.piecewise(f34, [f34 < 0, f34 > 1], [lambda x: -x, 2.0, lambda x: x + 1])
    jnp.piecewise(f4, [f4 < 0], [1])
    jnp.put(f4, jnp.array([0, 2]), 9.0, inplace=False)
    jnp.put(f34, jnp.array([0, 99]), jnp.array([9.0, 8.0]), mode='clip', inplace=False)
    jnp.place(f34, b34, jnp.array([1.0, 2.0]), inplace=False)
    jnp.put_along_axis(f34, jnp.array([[1], [0], [2]]), 9.0, axis=1, inplace=False)
    jnp.put_along_axis(f34, jnp.array([[1, 0, 2, 1]]), jnp.arange(4.0), axis=0, inplace=False)
    jnp.delete(f34, 1, axis=0)
    jnp.delete(f34, slice(1, 3), axis=1)
    jnp.delete(f34, jnp.array([0, -1]))
    jnp.insert(f4, 1, 9.0)
    jnp.insert(f34, 1, jnp.arange(4.0), axis=0)
    jnp.insert(f34, 2, jnp.arange(3.0), axis=1)
    jnp.insert(f4, jnp.array([0, 3]), jnp.array([7.0, 8.0]))
    jnp.resize(f34, (2, 8))
    jnp.trim_zeros(jnp.array([0, 0, 1, 0, 2, 0]))
    jnp.trim_zeros(jnp.array([0, 0, 1, 0]), 'f')
    jnp.block([[f33, f33], [f33, f33]])
    jnp.block([f4, 2.0])
    jnp.sort(jnp.partition(f34, 2, axis=1), axis=1)
    jnp.partition(f34, 1)[..., 1]
    jnp.argpartition(f34, 1, axis=0)[1]
    jnp.lexsort((i34, j34), axis=1)
    jnp.lexsort((f4, b4))
    jnp.sort_complex(f4)
    jnp.ediff1d(f34)
    jnp.ediff1d(f4, to_begin=-1.0, to_end=jnp.array([7.0, 8.0]))
    jnp.unwrap(jnp.array([0.0, 3.0, -3.0, 2.0, 9.0]))
    jnp.unwrap(f34 * 3, axis=0, period=4.0)
    jnp.union1d(t6, i4)
    jnp.setdiff1d(t6, i4)
    jnp.setxor1d(t6, i4)
    jnp.intersect1d(t6, jnp.array([2, 5, 0]))
    jnp.intersect1d(t6, jnp.array([2, 5, 0]), return_indices=True)
    jnp.unique_counts(t6)
    jnp.unique_inverse(t6)
    jnp.unique_all(t6)
    jnp.unique_values(t6)
    jnp.apply_over_axes(jnp.sum, f234, [0, 2])
    jnp.array_equiv(f34, f34[:1])
    jnp.array_equiv(f4, f34[:, :3])
    jnp.fromfunction(lambda i, j: i * 2 + j, (2, 3), dtype=int)
    jnp.polyadd(f4, f34[:, 0])
    jnp.polysub(f4, f34[:, 0])
    jnp.polymul(f4, f34[:, 0])
    jnp.polyder(f4, 2)
    jnp.polyint(f4)
    jnp.polyint(f4, 2, jnp.array([1.0, 2.0]))
    jnp.polydiv(jnp.array([1.0, -3.0, 2.0, 5.0]), jnp.array([1.0, 1.0]))
    jnp.polyfit(f4, jnp.arange(4.0), 2)
    jnp.poly(f4)
    jnp.sort_complex(jnp.roots(jnp.array([1.0, -6.0, 11.0, -6.0, 0.0])))
    jnp.gcd(i34, j34)
    jnp.gcd(jnp.array([0, 12]), 0)
    jnp.lcm(i34, j34)
    jnp.bitwise_count(i34)
    jnp.bitwise_count(u8)
    jnp.packbits(b34)
    jnp.packbits(b34, axis=1, bitorder='little')
    jnp.unpackbits(u8)
    jnp.unpackbits(u8, count=11, bitorder='little')
    jnp.frexp(f34)
    jnp.frexp(e4)
    jnp.ldexp(f34, j34)
    jnp.ldexp(f4, jnp.array([-140, 20, 0, -3]))
    jnp.spacing(f4)
    jnp.iscomplex(c4)
    jnp.isreal(c4)
    jnp.isreal(f4)
    jnp.cumulative_sum(f4, include_initial=True)
    jnp.cumulative_prod(f34, axis=1)
    jnp.matvec(f34, f4)
    jnp.vecmat(f34[:, 0], f34)
    jnp.dsplit(f234, 2)
    jnp.frombuffer(b'\\x01\\x02\\x03\\x04', dtype=jnp.uint8)
    jnp.fromstring('1 2 3', dtype=jnp.int32, sep=' ')
    jnp.isdtype(jnp.float32, 'real floating')
    jnp.isdtype(jnp.int8, ('bool', jnp.float32))
    jnp.i0(f0)
    jnp.nanvar(f04, axis=1)
"""),
)
def test_expressions(expression):
    check(expression, 2e-4 if "poly" in expression or "roots" in expression else 2e-5, signs=False)


@pytest.mark.parametrize(
    "name",
    ["save", "savez"],
)
def test_files(name):
    file = io.BytesIO()
    x = jnp.arange(3.0)
    getattr(jnp, name)(file, x)
    file.seek(0)
    found = jnp.load(file)
    assert (found if name == "save" else jnp.asarray(found["arr_0"])).tolist() == x.tolist()


def test_bfloat16_file():
    file = io.BytesIO()
    jnp.save(file, jnp.ones(2, jnp.bfloat16))
    file.seek(0)
    assert jnp.load(file).dtype == jnp.bfloat16


def test_text_and_names():
    assert jnp.array_str(jnp.arange(2)) == "[0 1]"
    assert "Array([0, 1]" in jnp.array_repr(jnp.arange(2))
    assert jnp.from_dlpack(np.ones(2)).shape == (2,)
    assert jnp.einsum_path("ij,jk->ik", jnp.ones((2, 3)), jnp.ones((3, 4)))[0] == [(0, 1)]
    assert jnp.dtype(jnp.float8_e4m3fn).itemsize == 1
    assert jnp.int4 != jnp.int8
    assert (repr(jnp.mgrid), repr(jnp.r_)) == ("mgrid", "r_")


def test_errors():
    x = jnp.arange(3)
    traced = lumjax.jit
    cases = [
        (ArgumentValueError, lambda: jnp.piecewise(x, [x > 1], [1, 2, 3])),
        (ArgumentValueError, lambda: jnp.choose(jnp.array([5]), [x, x])),
        (ArgumentValueError, lambda: jnp.choose(x, [x], mode="odd")),
        (ArgumentValueError, lambda: jnp.put(x, 0, 1)),
        (ArgumentValueError, lambda: jnp.fill_diagonal(jnp.eye(2), 1)),
        (ArgumentValueError, lambda: jnp.ravel_multi_index((5,), (3,))),
        (ArgumentValueError, lambda: jnp.ravel_multi_index((5,), (3,), mode="odd")),
        (ArgumentValueError, lambda: jnp.histogram(x, "auto")),
        (ArgumentValueError, lambda: jnp.packbits(x, bitorder="odd")),
        (ArgumentValueError, lambda: jnp.polyder(x, -1)),
        (ArgumentValueError, lambda: jnp.cumulative_sum(jnp.eye(2))),
        (ArgumentValueError, lambda: jnp.isdtype(jnp.int8, "odd")),
        (ArgumentTypeError, lambda: jnp.fromfile("nothing")),
        (ArgumentTypeError, lambda: jnp.fromiter([1])),
        (ArgumentTypeError, lambda: jnp.lexsort([])),
        (DTypeError, lambda: jnp.gcd(1.0, 2)),
        (DTypeError, lambda: jnp.ldexp(1.0, 2.0)),
        (DTypeError, lambda: jnp.packbits(jnp.ones(3))),
        (DTypeError, lambda: jnp.unpackbits(x)),
        (ShapeError, lambda: jnp.cov(jnp.ones((2, 2, 2)))),
        (ShapeError, lambda: jnp.ix_(jnp.eye(2))),
        (ShapeError, lambda: jnp.tril_indices_from(x)),
        (ShapeError, lambda: jnp.diag_indices_from(jnp.ones((2, 3)))),
        (ShapeError, lambda: jnp.fill_diagonal(x, 1, inplace=False)),
        (ShapeError, lambda: jnp.vander(jnp.eye(2))),
        (ShapeError, lambda: jnp.polyadd(jnp.eye(2), x)),
        (ShapeError, lambda: jnp.polyint(x, 3, jnp.ones(2))),
        (ShapeError, lambda: jnp.polyfit(jnp.eye(2), x, 1)),
        (ShapeError, lambda: jnp.dsplit(x, 1)),
        (ConcretizationError, lambda: traced(lambda i: jnp.delete(x, i))(1)),
        (ConcretizationError, lambda: traced(lambda i: jnp.choose(i, [x, x]))(x)),
        (ConcretizationError, lambda: traced(lambda i: jnp.save("nothing", i))(x)),
    ]
    for error, f in cases:
        with pytest.raises(error):
            f()


def test_methods():
    x = jnp.arange(6.0).reshape(2, 3)
    assert x.compress(jnp.array([True, False]), axis=0).shape == (1, 3)
    assert x.argpartition(1).shape == (2, 3)
    for wrap in (lambda f: f, lumjax.jit, lambda f: lambda x: lumjax.vmap(f)(x[None])[0]):
        assert wrap(lambda x: x.trace(offset=1))(x) == 6
    assert jnp.array([0, 1]).choose([x[0, :2], x[1, :2]]).tolist() == [0.0, 4.0]
    assert x.view(jnp.int32).dtype == np.int32
    assert x.view(jnp.int8).shape == (2, 12)
    assert x.view() is x.view(jnp.float32) is x
    assert x.tobytes() == np.asarray(x).tobytes()
    assert x.__array_namespace__(api_version="2024.12") is jnp
    assert x.to_device(x.device) is x
    assert 3.0 in x
    assert 9.0 not in x
    assert copy.deepcopy(x).tolist() == x.tolist()
    assert copy.copy(x).tolist() == x.tolist()
    assert np.from_dlpack(x).tolist() == x.tolist()
    assert x.sharding.is_fully_replicated
    assert (x.is_fully_addressable, x.is_deleted(), x.on_device_size_in_bytes()) == (
        True,
        False,
        24,
    )
    with pytest.raises(ArgumentValueError):
        x.__array_namespace__(api_version="1999.12")
    with pytest.raises(ConcretizationError):
        lumjax.jit(lambda v: v.tobytes())(x)
