"""Arrays of other libraries that lie on a GPU: into programs and out of them without a copy, on a
stand-in for CuPy. No GPU is asked.
"""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import dtype as dt
from lumjax.errors import ArgumentTypeError, DonationError
from tests.cuda.standin import OnlyDLPack, installed
from tests.cuda.test_emulated import close

RNG = np.random.default_rng(5)


@pytest.fixture
def cupy(monkeypatch):
    with installed(monkeypatch) as module:
        yield module


def numbers(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def jitted(f, **more):
    return lumjax.jit(f, backend="cuda", search=0, **more)


def copies(cupy):
    return sum(entry[0] == "copy" for entry in cupy.log)


def test_cupy_arrays_go_in_without_a_copy(cupy):
    f = jitted(lambda tree, y: tree["x"] @ y + 1)
    x, y = numbers(4, 5), numbers(5, 3)
    there = {"x": cupy.array(x)}, cupy.array(y)
    for _ in range(2):
        cupy.log.clear()
        got = f(*there)
        assert copies(cupy) == 1, "the parameters"
    close(got, x @ y + 1)
    assert ("order", 1, 77) in cupy.log, "kernels wait for the stream of CuPy's"
    assert ("order", 77, 1) in cupy.log, "and what CuPy does next waits for kernels"


def test_kernels_read_the_memory_itself(cupy):
    x = cupy.array(numbers(6))
    f = jitted(lambda v: v * 2)
    close(f(x), x.numpy() * 2)
    x.numpy()[:] = 3  # between calls it is the owner's
    close(f(x), np.full(6, 6.0))


@pytest.mark.parametrize("wrap", [lambda x: x, OnlyDLPack], ids=["interface", "DLPack"])
def test_an_array_taken_over_has_the_same_address(wrap, cupy):
    x = cupy.array(numbers(3, 2))
    for taken in (
        jnp.from_dlpack(wrap(x)),
        lumjax.dlpack.from_dlpack(wrap(x)),
        jnp.asarray(wrap(x)),
    ):
        assert taken.__cuda_array_interface__["data"][0] == x.memory.ptr
        assert copies(cupy) == 0
    assert jitted(lambda v: v)(taken) is taken
    close(taken, x.numpy())
    close(jnp.sin(taken), np.sin(x.numpy()))
    close(lumjax.jit(jnp.sin)(wrap(x)), np.sin(x.numpy()))
    copy = jnp.from_dlpack(wrap(x), copy=True)
    assert copy.__cuda_array_interface__["data"][0] != x.memory.ptr
    close(copy, x.numpy())


def test_results_go_out_without_a_copy(cupy):
    y = jitted(lambda v: v + 1)(numbers(3, 4))
    cupy.log.clear()
    told = y.__cuda_array_interface__
    assert (told["shape"], told["typestr"], told["stream"]) == ((3, 4), "<f4", 77)
    capsule = y.__dlpack__(stream=5)
    assert capsule.stream == 5
    assert capsule.array.memory.ptr == told["data"][0]
    assert y.__dlpack_device__() == (2, 0)
    assert repr(y.device) == "CudaDevice(id=0)"
    assert copies(cupy) == 0
    pointer = told["data"][0]
    del y
    assert capsule.array.memory.owner.ptr == pointer, "the memory lives as long as the capsule"


def test_what_one_program_makes_another_takes_where_it_is(cupy):
    y = jitted(lambda v: v + 1)(numbers(8))
    back = jnp.from_dlpack(y)
    assert back.__cuda_array_interface__["data"] == y.__cuda_array_interface__["data"]
    cupy.log.clear()
    z = jitted(lambda v: v * 2)(y)
    assert copies(cupy) == 1
    close(z, np.asarray(y) * 2)


def test_what_is_not_dense_is_copied_on_the_gpu(cupy):
    x = numbers(4, 6)
    base = cupy.array(x)
    turned = type(base)((6, 4), x.dtype, base.memory, strides=(4, 24))
    got = jitted(lambda v: v * 2)(turned)
    assert ("dense",) in cupy.log
    close(got, x.T * 2)


def test_wide_numbers_are_narrowed_on_the_gpu(cupy):
    x = cupy.array(RNG.normal(size=5))
    got = jitted(lambda v: v * 2)(x)
    assert got.dtype == np.float32
    close(got, x.numpy() * 2)


def test_arrays_without_elements_and_scalars(cupy):
    f = jitted(lambda v: v * 2)
    assert f(cupy.array(np.zeros((0, 3), np.float32))).shape == (0, 3)
    close(f(cupy.array(np.float32(4))), 8)


def test_an_array_of_another_device_is_refused(cupy):
    f = jitted(lambda v: v * 2)
    with pytest.raises(
        ArgumentTypeError, match=r"an array on GPU 0; got one on GPU 1(.|\n)*Copy it"
    ):
        f(cupy.array(numbers(3), gpu=1))
    with pytest.raises(ArgumentTypeError, match="DLPack's device 10, 0"):
        f(OnlyDLPack(cupy.array(numbers(3)), kind=10))
    with pytest.raises(ArgumentTypeError, match="with a mask"):
        f(cupy.array(numbers(3), mask=object()))


def test_dtypes_that_interfaces_do_not_know(cupy):
    y = jitted(lambda v: v.astype(jnp.bfloat16))(numbers(3))
    assert y.dtype == dt.bfloat16
    assert not hasattr(y, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="view it as uint16"):
        y.__dlpack__()


def test_what_is_lent_is_never_given_away(cupy):
    x = cupy.array(numbers(3))
    f = jitted(lambda v: v * 2, donate_argnums=0)
    close(f(x), x.numpy() * 2)
    strict = jitted(lambda v: v * 2, donate_argnums=0, donate="strict")
    with pytest.raises(DonationError, match="shares"):
        strict(jnp.from_dlpack(x))
    y = jitted(lambda v: v + 1)(numbers(3))
    capsule = y.__dlpack__()
    with pytest.raises(DonationError, match="shares"):
        strict(y)
    del capsule
    strict(y)
    assert y.is_deleted()


def test_without_a_gpu_arrays_of_the_emulated_device_are_the_hosts():
    y = lumjax.jit(lambda v: v + 1, backend="cuda:emulated", search=0)(numbers(3))
    assert not hasattr(y, "__cuda_array_interface__")
    assert y.__dlpack_device__() == (1, 0)
    close(np.from_dlpack(y), np.asarray(y))
