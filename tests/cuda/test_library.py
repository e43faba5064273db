"""cuBLAS as a candidate: what it is told, held to a stand-in that does in NumPy what its
documentation says of gemmEx. Neither cuBLAS nor a GPU runs here.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import accelerated
from lumjax.config import config
from lumjax.cuda import blas, device, measured
from lumjax.cuda.device import DeviceError
from lumjax.cuda.library import products
from lumjax.errors import UnsupportedError
from tests.cuda import standin

KINDS = {0: np.float32, 1: np.float64, 2: np.float16, 4: np.complex64, 5: np.complex128,
         14: ml_dtypes.bfloat16}  # fmt: skip
INVALID = 7


class Library:
    """libcublas, as far as it is used. `calls`: the arguments of each product."""

    def __init__(self):
        self.calls, self.log, self.wrong = [], [], 0.0

    def __getattr__(self, name):
        return lambda *args: self.log.append((name, *map(number, args)))

    def cublasCreate_v2(self, handle):
        handle._obj.value = 4711
        return 0

    def cublasGemmEx(self, *args):
        """One product: no strides, one matrix."""
        a = list(args)
        return self.product(*a[:10], 0, *a[10:13], 0, *a[13:17], 0, 1, *a[17:])

    def cublasGemmStridedBatchedEx(self, *args):
        assert number(args[-3]) > 1
        return self.product(*args)

    def product(self, handle, transa, transb, m, n, k, alpha, a, atype, lda, stridea, b, btype, ldb,
                strideb, beta, c, ctype, ldc, stridec, count, compute, algo):  # fmt: skip
        assert number(handle) == 4711
        assert number(algo) == -1
        transa, transb, m, n, k, lda, ldb, ldc, count, compute = map(
            number, (transa, transb, m, n, k, lda, ldb, ldc, count, compute)
        )
        kinds = [KINDS[number(t)] for t in (atype, btype, ctype)]
        self.calls.append(SimpleNamespace(
            trans="NT"[transa] + "NT"[transb], shape=(m, n, k), leading=(lda, ldb, ldc),
            count=count, kinds=kinds, compute=compute,
        ))  # fmt: skip
        if lda < max(1, k if transa else m) or ldb < max(1, n if transb else k) or ldc < max(1, m):
            return INVALID
        wide = np.float64 if compute == 70 else np.float32
        if np.issubdtype(kinds[0], np.complexfloating):
            wide = kinds[0]
        one, zero = factor(alpha, wide), factor(beta, wide)
        for i in range(count):  # verification plants inf and nan
            left = matrix(number(a), kinds[0], lda, k if not transa else m, i * number(stridea),
                          m if not transa else k)  # fmt: skip
            right = matrix(number(b), kinds[1], ldb, n if not transb else k, i * number(strideb),
                           k if not transb else n)  # fmt: skip
            result = matrix(number(c), kinds[2], ldc, n, i * number(stridec), m)
            left, right = (rounded(x, compute).astype(wide) for x in (left, right))
            with np.errstate(all="ignore"):
                total = one * ((left.T if transa else left) @ (right.T if transb else right))
            if zero:
                total = total + zero * result.astype(wide)
            with np.errstate(all="ignore"):
                result[:] = (total + self.wrong).astype(kinds[2])
        return 0


def number(x):
    return x.value if hasattr(x, "value") else x


def factor(pointer, wide):
    """What an argument by reference holds, read as cuBLAS reads it."""
    address = ctypes.addressof(pointer._obj)
    return np.frombuffer(ctypes.string_at(address, np.dtype(wide).itemsize), wide)[0]


def matrix(address, kind, leading, columns, skipped, rows):
    """A matrix laid out by columns, of which rows are dense and columns `leading` apart."""
    item = np.dtype(kind).itemsize
    size = (leading * (columns - 1) + rows) * item
    memory = (ctypes.c_char * size).from_address(address + skipped * item)
    return np.ndarray((rows, columns), kind, memory, 0, (item, leading * item))


def rounded(x, compute):
    if compute == 75:
        return x.astype(ml_dtypes.bfloat16)
    if compute == 77:
        bits = np.ascontiguousarray(x).view(np.uint32)
        return ((bits + 0x1000) & 0xFFFFE000).astype(np.uint32).view(np.float32)
    return x


@pytest.fixture
def gpu(monkeypatch):
    """A GPU with the library, which always pays."""
    made = Library()
    with standin.installed(monkeypatch):
        monkeypatch.setattr(device, "library", lambda: made)
        monkeypatch.setattr(accelerated, "pays", lambda *_: True)
        monkeypatch.setattr(accelerated, "_judged", {})
        with config.scope(cuda_library_gemm=True, search_evaluations=0):
            accelerated._found.clear()
            yield made
            accelerated._found.clear()
    products.clear()


def drawn(shape, kind, seed=3):
    values = np.random.default_rng(seed).normal(size=shape)
    if np.issubdtype(kind, np.complexfloating):
        values = values + 1j * np.random.default_rng(seed + 1).normal(size=shape)
    return values.astype(kind)


def used(gpu, f, *args, tolerance=1e-5):
    """The calls of one run; its result is the interpreter's."""
    with config.scope(enable_x64=True):
        made = lumjax.jit(f, backend="cuda")
        args = [jnp.asarray(a) for a in args]
        made(*args)
        gpu.calls.clear()
        got = np.asarray(made(*args))
        want = np.asarray(f(*args))
    wide = np.complex128 if np.iscomplexobj(want) else np.float64
    scale = max(1.0, np.abs(want.astype(wide)).max())
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), 0, tolerance * scale)
    assert got.dtype == want.dtype
    return gpu.calls


def again(gpu, f, *args, **more):
    """The one call; graphs that are replayed ask again here."""
    calls = used(gpu, f, *args, **more)
    assert len(calls) == 1, calls
    return calls[0]


TOLERANCE = {np.float32: 1e-5, np.float64: 1e-12, np.float16: 2e-3, ml_dtypes.bfloat16: 1e-2,
             np.complex64: 1e-5, np.complex128: 1e-12}  # fmt: skip
WAYS = {
    "NN": (lambda a, b: a @ b, (24, 40), (40, 32)),
    "NT": (lambda a, b: a @ b.T, (24, 40), (32, 40)),
    "TN": (lambda a, b: a.T @ b, (40, 24), (40, 32)),
    "TT": (lambda a, b: a.T @ b.T, (40, 24), (32, 40)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [np.float32, np.float64, ml_dtypes.bfloat16, np.float16])
def test_products_of_all_layouts(way, kind, gpu):
    f, left, right = WAYS[way]
    call = again(gpu, f, drawn(left, kind), drawn(right, kind, 5), tolerance=TOLERANCE[kind])
    assert call.shape == (32, 24, 40), "by columns, the sides change places"
    assert call.trans == {"NN": "NN", "NT": "TN", "TN": "NT", "TT": "TT"}[way]
    assert call.leading == (right[1], left[1], 32)
    assert call.kinds == [kind] * 3
    assert call.compute == (70 if kind is np.float64 else 68)
    assert call.count == 1


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_complex_products(kind, gpu):
    calls = used(gpu, WAYS["NT"][0], drawn((12, 9), kind), drawn((7, 9), kind, 5),
                 tolerance=TOLERANCE[kind])  # fmt: skip
    assert all(c.kinds == [kind] * 3 for c in calls)


def test_what_may_be_rounded_is(gpu):
    args = drawn((24, 40), np.float32), drawn((40, 32), np.float32, 5)
    for precision, compute in (("high", 77), ("bfloat16", 75), ("highest", 68)):

        def f(a, b, precision=precision):
            return jnp.matmul(a, b, precision=precision)

        assert again(gpu, f, *args, tolerance=3e-2).compute == compute


def test_sums_of_sixteen_bits_may_stay_float32(gpu):
    def f(a, b):
        return jnp.matmul(a, b, preferred_element_type=jnp.float32)

    kind = ml_dtypes.bfloat16
    call = again(gpu, f, drawn((24, 40), kind), drawn((40, 32), kind, 5))
    assert call.kinds == [kind, kind, np.float32]


def test_many_products_at_once(gpu):
    a, b = drawn((5, 12, 20), np.float32), drawn((5, 20, 16), np.float32, 5)
    assert again(gpu, lambda a, b: a @ b, a, b).count == 5
    call = again(gpu, lambda a, b: jnp.einsum("bji,bkj->bik", a, b), a.swapaxes(1, 2).copy(), b
                 .swapaxes(1, 2).copy())  # fmt: skip
    assert (call.count, call.trans) == (5, "TT")
    call = again(gpu, lambda a, b: jnp.einsum("ibj,bjk->bik", a, b), a.swapaxes(0, 1).copy(), b)
    assert call.leading == (16, 100, 16), "rows of one product lie between those of others"
    again(gpu, lambda a, b: jnp.einsum("xyij,xyjk->xyik", a, b), drawn((2, 3, 8, 9), np.float32),
          drawn((2, 3, 9, 10), np.float32))  # fmt: skip


def test_views_are_told_by_distances(gpu):
    a, b = drawn((30, 50), np.float32), drawn((60, 44), np.float32, 5)
    call = again(gpu, lambda a, b: a[3:27, 5:45] @ b[7:47, 2:34], a, b)
    assert call.shape == (32, 24, 40)
    assert call.leading == (44, 50, 32)
    x, w = drawn((4, 6, 20), np.float32), drawn((20, 16), np.float32, 5)
    assert again(gpu, lambda x, w: x @ w, x, w).shape == (16, 24, 20), "rows are one axis"
    x, w = drawn((4, 6, 20), np.float32), drawn((6, 20, 16), np.float32, 5)
    assert again(gpu, lambda x, w: jnp.einsum("bij,ijk->bk", x, w), x, w).shape == (16, 4, 120)


@pytest.mark.parametrize(("f", "shapes"), [
    (lambda a, b: a @ b, [(1, 40), (40, 32)]),
    (lambda a, b: a @ b, [(24, 40), (40, 1)]),
    (lambda a, b: a @ b, [(24, 1), (1, 32)]),
    (lambda a, b: (a @ b.T).T, [(24, 40), (32, 40)]),
    (lambda a, b: a[::2] @ b[:, ::1], [(48, 40), (40, 32)]),
])  # fmt: skip
def test_odd_shapes(f, shapes, gpu):
    args = [drawn(s, np.float32, k) for k, s in enumerate(shapes)]
    used(gpu, f, *args)


@pytest.mark.parametrize(("f", "shapes"), [
    (lambda a, b: jnp.tanh(a @ b), [(24, 40), (40, 32)]),  # an epilogue
    (lambda a, b: jnp.sin(a) @ b, [(24, 40), (40, 32)]),  # a side that is a term
    (lambda a, b: a[:, ::2] @ b, [(24, 80), (40, 32)]),  # no dense rows or columns
    (lambda a, b: jnp.einsum("bthd,bshd->bhts", a, b), [(2, 7, 3, 16), (2, 9, 3, 16)]),
    (lambda a, b: a * b, [(24, 40), (24, 40)]),
])  # fmt: skip
def test_what_is_no_plain_product_is_a_kernel(f, shapes, gpu):
    assert used(gpu, f, *[drawn(s, np.float32, k) for k, s in enumerate(shapes)]) == []


def test_a_graph_holds_where_arrays_lie(gpu):
    f = lumjax.jit(lambda a, b: (a @ b).T @ b.T[:, :40].T, backend="cuda")
    for seed in range(4):
        a, b = (jnp.asarray(drawn((40, 40), np.float32, s)) for s in (seed, seed + 9))
        want = (np.asarray(a) @ np.asarray(b)).T @ np.asarray(b).T[:, :40].T
        np.testing.assert_allclose(np.asarray(f(a, b)), want, 1e-4, 1e-3)


def test_it_is_off_by_default_and_where_it_is_wrong_or_slow(gpu, monkeypatch):
    args = drawn((24, 40), np.float32), drawn((40, 32), np.float32, 5)
    f = WAYS["NN"][0]
    assert config.cuda_library_gemm
    with config.scope(cuda_library_gemm=False):
        assert used(gpu, f, *args) == []
    gpu.wrong = 1.0
    assert used(gpu, f, *args) == [], "what verification refuses is not used"
    gpu.wrong = 0.0
    monkeypatch.setattr(accelerated, "_judged", {})
    accelerated._found.clear()
    monkeypatch.setattr(accelerated, "pays", lambda *_: False)
    assert used(gpu, lambda a, b: f(a, b), *args) == []


def test_both_are_measured_in_turn(gpu, monkeypatch):
    args = drawn((24, 40), np.float32), drawn((40, 32), np.float32, 5)
    monkeypatch.setattr(accelerated, "pays", measured.pays)
    clock = SimpleNamespace(now=0.0)

    def launch(self, function, blocks, table, launch=standin.Gpu.launch):
        clock.now += 1.0
        self.processor._do(lambda: setattr(clock, "now", clock.now + 1.0))
        launch(self, function, blocks, table)

    monkeypatch.setattr(standin.Gpu, "launch", launch)
    monkeypatch.setattr(measured.time, "perf_counter", lambda: clock.now)
    assert len(used(gpu, WAYS["NN"][0], *args)) == 1


def test_the_handle_is_made_once_with_its_workspace(gpu):
    args = drawn((24, 40), np.float32), drawn((40, 32), np.float32, 5)
    used(gpu, WAYS["NN"][0], *args)
    names = [name for name, *_ in gpu.log]
    order = ["cublasSetStream_v2", "cublasSetWorkspace_v2", "cublasSetPointerMode_v2",
             "cublasSetMathMode"]  # fmt: skip
    assert names == order, "a stream that is set later takes the workspace away"
    assert gpu.log[0][1:] == (4711, 77)
    assert gpu.log[1][3] == blas.WORKSPACE


def test_a_call_that_fails_is_told():
    library = Library()
    library.product = lambda *_: 15
    made = blas.Blas(library, 1, 2)
    fake = SimpleNamespace(_blas=made)
    call = SimpleNamespace(
        first=SimpleNamespace(operation=0, begin=0, type=0, leading=1, stride=0), m=1, n=1, k=1,
        second=SimpleNamespace(operation=0, begin=0, type=0, leading=1, stride=0), count=1,
        result=SimpleNamespace(operation=0, begin=0, type=0, leading=1, stride=0), compute=68,
        double=False, complex=False,
    )  # fmt: skip
    with pytest.raises(DeviceError, match="cublasGemmEx returned 15"):
        device.Cupy.multiply(fake, call, [8, 8, 8])


def test_without_the_library_nothing_changes(gpu, monkeypatch):
    monkeypatch.setattr(blas, "_candidates", lambda: iter(["/nowhere/libcublas.so.1"]))
    with pytest.raises(UnsupportedError, match="nvidia-cublas"):
        blas.library()
    monkeypatch.setattr(device, "library", blas.library)
    assert used(gpu, lambda a, b: a @ b, drawn((8, 8), np.float32), drawn((8, 8), np.float32)) == []


def test_the_real_library_has_the_functions():
    try:
        found = blas.library()
    except UnsupportedError:
        pytest.skip("no libcublas here")
    for name in blas.FUNCTIONS:
        assert hasattr(found, name)
