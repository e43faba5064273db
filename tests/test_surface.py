"""Stubs of several devices, traces, breakpoints, custom gradients, monitoring."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import debug, distributed, lax, monitoring, profiler, sharding
from lumjax.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from tests.numpy.oracle import check, lines


def test_sharding_is_data():
    mesh = lumjax.make_mesh((1, 1), ("data", "model"))
    spec = lumjax.P("data", None)
    named = lumjax.NamedSharding(mesh, spec)
    assert (named.spec, named.mesh.shape["model"]) == (spec, 1)
    assert named.shard_shape((2, 3)) == (2, 3)
    assert named.is_fully_replicated
    assert named.device_set == named.addressable_devices == set(lumjax.devices())
    assert hash(named) == hash(lumjax.NamedSharding(mesh, spec))
    assert sharding.PartitionSpec.UNCONSTRAINED is lumjax.P.UNCONSTRAINED
    x = jnp.ones((2, 3))
    assert lumjax.device_put(x, named).shape == (2, 3)
    assert lax.with_sharding_constraint(x, named) is x
    assert lumjax.reshard(x, spec) is x
    assert sharding.get_abstract_mesh().empty
    with mesh, lumjax.set_mesh(mesh):
        assert sharding.get_abstract_mesh() == mesh.abstract_mesh
    assert mesh.device_ids.tolist() == [[0]]
    assert sharding.SingleDeviceSharding(lumjax.devices()[0]).memory_kind == "device"
    with pytest.raises(ArgumentValueError):
        lumjax.make_mesh((2,), ("data",))
    with pytest.raises(ArgumentValueError):
        sharding.Mesh(np.array(lumjax.devices() * 2), ("data",))


def test_maps_over_devices():
    x = np.arange(6.0, dtype="f4").reshape(3, 2)
    got = lumjax.pmap(lambda v: v / lax.psum(v, "i"), axis_name="i")(x)
    np.testing.assert_allclose(got, x / x.sum(0), rtol=1e-6)
    scaled = lumjax.pmap(lambda v, n: v * n, static_broadcasted_argnums=1)(x, 3)
    np.testing.assert_allclose(scaled, x * 3)
    mesh = lumjax.make_mesh((1,), ("i",))
    got = lumjax.shard_map(lambda v: lax.psum(v, "i"), mesh=mesh)(x)
    np.testing.assert_allclose(got, x)
    from lumjax.experimental.pjit import pjit

    assert pjit(lambda v: v + 1, in_shardings=None)(1) == 2


def test_one_process():
    distributed.shutdown()
    assert not distributed.is_initialized()
    lumjax.distributed.initialize("localhost:1", 1, 0)
    assert distributed.is_initialized()
    distributed.shutdown()
    with pytest.raises(ArgumentValueError):
        distributed.initialize(num_processes=2)
    from lumjax.experimental import mesh_utils, multihost_utils

    assert mesh_utils.create_device_mesh((1, 1)).shape == (1, 1)
    assert mesh_utils.create_hybrid_device_mesh((1,), (1,)).shape == (1,)
    with pytest.raises(ArgumentValueError):
        mesh_utils.create_device_mesh((2,))
    assert multihost_utils.process_allgather(jnp.ones(2)).shape == (1, 2)
    assert multihost_utils.broadcast_one_to_all(jnp.ones(2)).tolist() == [1.0, 1.0]
    multihost_utils.sync_global_devices("here")


def test_arrays_of_shards():
    x = np.arange(4.0, dtype="f4")
    for made in (
        lumjax.make_array_from_callback((4,), None, lambda index: x[index]),
        lumjax.make_array_from_single_device_arrays((4,), None, [x]),
        lumjax.make_array_from_process_local_data(None, x),
    ):
        assert made.tolist() == x.tolist()


def test_settings_that_change_nothing():
    with lumjax.default_device(None), lumjax.transfer_guard("log"):
        assert jnp.ones(1).size == 1
    with lumjax.default_matmul_precision("highest"), lumjax.numpy_rank_promotion("allow"):
        assert (jnp.ones((2, 1)) + jnp.ones(3)).shape == (2, 3)
    for bad in (
        lambda: lumjax.default_matmul_precision("odd"),
        lambda: lumjax.numpy_rank_promotion("raise"),
        lambda: lumjax.numpy_dtype_promotion("strict"),
    ):
        with pytest.raises(ArgumentValueError), bad():
            pass
    lumjax.config.config_with_absl()
    lumjax.config.parse_flags_with_absl()
    assert str(lumjax.typeof(jnp.ones(2))) == "f32[2]"


def test_jit_disabled():
    with lumjax.disable_jit(), lumjax.check_tracer_leaks():
        assert lumjax.jit(lambda x: x + 1)(1) == 2
    assert not lumjax.config.interpret


def test_reduce_associative():
    from lumjax.errors import TreeError
    from lumjax.tree_util import tree_reduce_associative

    assert tree_reduce_associative(lambda a, b: a + b, ["a", ["b", "c"]]) == "abc"
    assert tree_reduce_associative(max, [], identity=0) == 0
    with pytest.raises(TreeError):
        tree_reduce_associative(max, [])


def test_collectives_take_no_groups():
    for f in (lax.psum, lax.pmean, lax.pmax, lax.pmin, lax.all_gather, lax.psum_scatter):
        with pytest.raises(ArgumentValueError):
            lumjax.vmap(lambda x, f=f: f(x, "i", axis_index_groups=[[0]]), axis_name="i")(
                jnp.eye(2)
            )


def test_custom_gradient():
    @lumjax.custom_gradient
    def f(x, y):
        return x * y, lambda g: (g * y * 2, g * x * 3)

    assert lumjax.grad(f, (0, 1))(2.0, 5.0) == (10.0, 6.0)
    assert float(f(2.0, 5.0)) == 10.0
    assert float(lumjax.jit(lumjax.grad(f))(2.0, 5.0)) == 10.0
    assert lumjax.vmap(lumjax.grad(f))(jnp.ones(3), jnp.arange(3.0)).tolist() == [0.0, 2.0, 4.0]
    zero = lumjax.custom_derivatives.zero_from_primal(jnp.ones(2), symbolic_zeros=True)
    assert (zero.shape, zero.dtype, zero.instantiate().tolist()) == ((2,), "float32", [0.0, 0.0])
    assert lumjax.custom_derivatives.CustomVJPPrimal(1.0, True).perturbed


def test_traces_are_perfetto_json(tmp_path):
    with profiler.trace(tmp_path), profiler.TraceAnnotation("work", step=3):
        pass
    (file,) = tmp_path.rglob("perfetto_trace.json")
    (event,) = json.loads(file.read_text())["traceEvents"]
    assert (event["name"], event["ph"], event["args"]) == ("work", "X", {"step": "3"})
    assert event["dur"] >= 0
    assert event["ts"] >= 0
    profiler.start_trace(tmp_path, profiler_options=profiler.ProfileOptions())
    with pytest.raises(ArgumentValueError):
        profiler.start_trace(tmp_path)
    profiler.stop_trace()
    with pytest.raises(ArgumentValueError):
        profiler.stop_trace()
    profiler.save_device_memory_profile(tmp_path / "memory")
    assert json.loads((tmp_path / "memory").read_bytes())["peak_bytes"] > 0
    assert profiler.start_server(9999).port == 9999
    profiler.stop_server()


def test_breakpoint_sees_the_arrays(monkeypatch):
    seen = []

    def hook(*args, **kwargs):
        seen.append({k: v.tolist() for k, v in sys._getframe(1).f_locals["values"].items()})

    monkeypatch.setattr(sys, "breakpointhook", hook)

    def f(x):
        y = x * 2
        debug.breakpoint()
        return y

    lumjax.jit(f)(jnp.ones(2))
    assert seen == [{"x": [1.0, 1.0], "y": [2.0, 2.0]}]


def test_monitoring():
    seen = []
    monitoring.register_event_listener(lambda name, **kw: seen.append((name, kw)))
    monitoring.register_event_duration_secs_listener(lambda name, t, **kw: seen.append((name, t)))
    monitoring.record_event("a", n=1)
    monitoring.record_event_duration_secs("b", 0.5)
    monitoring.clear_event_listeners()
    monitoring.record_event("c")
    assert seen == [("a", {"n": 1}), ("b", 0.5)]


# ---- lax's less common functions


@pytest.mark.parametrize(
    "expression",
    lines("""
    lax.broadcast_to_rank(f4, 3)
    lax.tile(f34, (2, 3))
    lax.split(f34, (1, 3), axis=1)
    lax.index_take(f34, [jnp.array([0, -1]), jnp.array([1, 2])], (0, 1))
    lax.approx_max_k(f34, 2)[0]
    lax.mulhi(i34 * 2**20, j34 * 2**15)
    lax.mulhi(u8, u8)
    lax.mulhi(u32, u32)
    lax.polygamma(jnp.array([0.0, 1.0, 2.0]), jnp.array([0.5, 1.5, 2.5]))
    lax.zeta(jnp.array([1.5, 2.0]), jnp.array([1.0, 2.5]))
    lax.igamma(p34, p34)
    lax.igammac(p34, p34)
    lax.random_gamma_grad(p34, p34)
    lax.betainc(p34, p34, p34)
    lax.bessel_i0e(f34)
    lax.bessel_i1e(f34)
    lax.reduce_precision(f34, 8, 7)
    lax.reduce_precision(f34 * 1e5, 5, 10)
    lax.reduce_precision(e4, 5, 3)
    lax.optimization_barrier(f34)
    lax.ragged_dot(f34, f245[:, :, :3], jnp.array([1, 2]))
    lax.gather(f34, jnp.array([[9]]), lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 4), mode=lax.GatherScatterMode.CLIP)
    lax.gather(f34, jnp.array([[9]]), lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 4), mode=lax.GatherScatterMode.FILL_OR_DROP)
    jax.vmap(lambda x: lax.all_to_all(x, 'i', 0, 0), axis_name='i')(f33)
    jax.vmap(lambda x: lax.all_to_all(x, 'i', 0, 1), axis_name='i')(jnp.arange(36.0).reshape(3, 3, 4))
    jax.vmap(lambda x: lax.all_to_all(x, 'i', 0, 1, tiled=True), axis_name='i')(jnp.arange(36.0).reshape(3, 3, 4))
    jax.vmap(lambda x: lax.psum_scatter(x, 'i'), axis_name='i')(f33)
    jax.vmap(lambda x: lax.psum_scatter(x, 'i', tiled=True), axis_name='i')(jnp.arange(36.0).reshape(2, 6, 3))
    jax.vmap(lambda x: lax.pshuffle(x, 'i', [2, 0, 1]), axis_name='i')(f33)
    jax.vmap(lambda x: lax.pswapaxes(x, 'i', 0), axis_name='i')(f33)
"""),
)  # fmt: skip
def test_expressions(expression):
    check(expression, 2e-5, signs=False)


def test_lax_without_jax():
    x = jnp.array([3.0, 1.0, 2.0])
    assert lax.approx_min_k(x, 2)[1].tolist() == [1, 2]
    draw = lax.rng_uniform(1.0, 2.0, (50,))
    assert bool(((draw >= 1) & (draw < 2)).all())
    assert lax.dtype(1) == np.int32
    assert lax.platform_dependent(2, cpu=lambda v: v + 1, tpu=lambda v: v) == 3
    assert [v.tolist() for v in lax.unstack(lax.stack([x, x], 1), 1)] == [x.tolist()] * 2
    x3 = jnp.arange(6.0).reshape(3, 2)
    got = lumjax.vmap(lambda v: lax.pbroadcast(v, "i", 1), axis_name="i")(x3)
    assert got.tolist() == [[2.0, 3.0]] * 3
    assert lax.empty((2,), jnp.int8).dtype == np.int8
    cases = [
        (ShapeError, lambda: lax.broadcast_to_rank(jnp.eye(2), 1)),
        (ShapeError, lambda: lax.tile(x, (1, 2))),
        (ShapeError, lambda: lax.split(x, (1, 1))),
        (DTypeError, lambda: lax.mulhi(x, x)),
        (DTypeError, lambda: lax.reduce_precision(1, 5, 5)),
        (ArgumentValueError, lambda: lax.platform_dependent(1, tpu=abs)),
        (ArgumentTypeError, lambda: lax.ragged_dot(x[None], x[None, :, None], [1], group_offset=1)),
    ]
    for error, f in cases:
        with pytest.raises(error):
            f()


# ruff: noqa: E501
