"""Every control-flow construct under nestings of jit, grad, vmap and jvp, to third order."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from lumjax import tree
from lumjax.config import config
from lumjax.decorator import jit as compiled_jit
from lumjax.grad.jacobian import jacfwd, jacrev
from lumjax.trace.batch import vmap
from lumjax.trace.check import check
from lumjax.trace.core import aval_of
from lumjax.trace.stage import stage
from tests.control.programs import BOTH_MODES, FORWARD_ONLY, LANES, POINT, REVERSE_ONLY
from tests.control.worlds import close, jax_world, plain, real

pytestmark = pytest.mark.sampled(4)

DIRECTION = np.array([0.2, 1.0, -0.5])


def loss(w, f):
    return lambda x: w.sum(w.sin(f(x)))


def along(w, g):
    """A scalar whose gradient is a derivative of `g` along a fixed direction."""
    return lambda x: w.sum(g(x) * DIRECTION)


VALUE = {
    "value": lambda w, f: f(w.array(POINT)),
    "jit": lambda w, f: w.jit(f)(w.array(POINT)),
    "vmap": lambda w, f: w.vmap(f)(w.array(LANES)),
    "jit vmap": lambda w, f: w.jit(w.vmap(f))(w.array(LANES)),
    "vmap jit": lambda w, f: w.vmap(w.jit(f))(w.array(LANES)),
}
FORWARD = {
    "jvp": lambda w, f: w.jvp(f, (w.array(POINT),), (w.array(DIRECTION),)),
    "jvp jit": lambda w, f: w.jvp(w.jit(f), (w.array(POINT),), (w.array(DIRECTION),)),
    "vmap jvp": lambda w, f: w.vmap(lambda x: w.jvp(f, (x,), (x,))[1])(w.array(LANES)),
    "jvp vmap": lambda w, f: w.jvp(w.vmap(f), (w.array(LANES),), (w.array(LANES),))[1],
    "jit jvp jvp": lambda w, f: w.jit(
        lambda x: w.jvp(lambda x: w.jvp(f, (x,), (w.array(DIRECTION),))[1], (x,), (x,))[1]
    )(w.array(POINT)),
}
REVERSE = {
    "grad": lambda w, f: w.grad(loss(w, f))(w.array(POINT)),
    "grad jit": lambda w, f: w.grad(w.jit(loss(w, f)))(w.array(POINT)),
    "jit grad": lambda w, f: w.jit(w.grad(loss(w, f)))(w.array(POINT)),
    "vmap grad": lambda w, f: w.vmap(w.grad(loss(w, f)))(w.array(LANES)),
    "grad vmap": lambda w, f: w.grad(loss(w, w.vmap(f)))(w.array(LANES)),
    "jit grad vmap jit": lambda w, f: w.jit(w.grad(loss(w, w.vmap(w.jit(f)))))(w.array(LANES)),
    "grad grad": lambda w, f: w.grad(along(w, w.grad(loss(w, f))))(w.array(POINT)),
    "vmap grad jit grad": lambda w, f: w.vmap(w.grad(along(w, w.jit(w.grad(loss(w, f))))))(
        w.array(LANES)
    ),
}
MIXED = {
    "jvp grad": lambda w, f: w.jvp(w.grad(loss(w, f)), (w.array(POINT),), (w.array(DIRECTION),))[1],
    "grad jvp": lambda w, f: w.grad(lambda x: w.jvp(loss(w, f), (x,), (w.array(DIRECTION),))[1])(
        w.array(POINT)
    ),
}
THIRD = {
    "grad grad grad": lambda w, f: w.grad(along(w, w.grad(along(w, w.grad(loss(w, f))))))(
        w.array(POINT)
    ),
    "jit vmap grad grad jit grad": lambda w, f: w.jit(
        w.vmap(w.grad(along(w, w.grad(along(w, w.jit(w.grad(loss(w, f))))))))
    )(w.array(LANES)),
}
CASES = [
    *[
        (p, k, t)
        for p in BOTH_MODES
        for k, t in {**VALUE, **FORWARD, **REVERSE, **MIXED, **THIRD}.items()
    ],
    *[(p, k, t) for p in FORWARD_ONLY for k, t in {**VALUE, **FORWARD}.items()],
]
AGAINST_JAX = [
    *[(p, k) for p in BOTH_MODES for k in ("value", "vmap grad")],
    *[(p, k) for p in FORWARD_ONLY for k in ("value", "vmap jvp")],
    *[
        (p, k)
        for p in REVERSE_ONLY
        for k in ("value", "grad", "vmap grad", "grad vmap", "jit grad vmap jit")
    ],
]


@pytest.fixture(autouse=True)
def interpreted():
    """Rules are the matter here; one test below compiles."""
    with config.scope(enable_x64=True, interpret=True):
        yield


@pytest.mark.parametrize(
    ("program", "name", "transform"), CASES, ids=lambda x: getattr(x, "__name__", str(x))
)
def test_agrees_with_python_loops(program, name, transform):
    close(transform(real, program(real)), transform(plain, program(plain)))


@pytest.mark.parametrize(
    ("program", "name"), AGAINST_JAX, ids=lambda x: getattr(x, "__name__", str(x))
)
def test_agrees_with_jax(program, name):
    jax = pytest.importorskip("jax")
    transform = {**VALUE, **FORWARD, **REVERSE}[name]
    with jax.enable_x64(True):
        world = jax_world()
        expected = transform(world, program(world))
    close(transform(real, program(real)), expected)


@pytest.mark.parametrize("program", [*BOTH_MODES, *REVERSE_ONLY], ids=lambda p: p.__name__)
def test_jacobians(program):
    f, g = program(real), program(plain)
    close(jacrev(f)(POINT), jacrev(g)(POINT))
    if program not in REVERSE_ONLY:
        close(jacfwd(f)(POINT), jacrev(g)(POINT))


@pytest.mark.parametrize("program", [*BOTH_MODES, *FORWARD_ONLY], ids=lambda p: p.__name__)
def test_other_mapped_axes(program):
    f = program(real)
    expected = vmap(f)(LANES)
    close(vmap(f, in_axes=1, out_axes=1)(LANES.T), np.asarray(expected.data).T)


@pytest.mark.parametrize("program", [*BOTH_MODES, *REVERSE_ONLY], ids=lambda p: p.__name__)
def test_compiled_gradients(program):
    transform = compiled_jit(real.grad(loss(real, program(real))))
    expected = REVERSE["grad"](plain, program(plain))
    with config.scope(interpret=False):
        close(transform(POINT), expected)


@pytest.mark.parametrize("program", FORWARD_ONLY, ids=lambda p: p.__name__)
def test_compiled_tangents(program):
    transform = compiled_jit(lambda x: real.jvp(program(real), (x,), (real.array(DIRECTION),)))
    expected = FORWARD["jvp"](plain, program(plain))
    with config.scope(interpret=False):
        close(transform(POINT), expected)


@pytest.mark.parametrize(
    "program", [*BOTH_MODES, *FORWARD_ONLY, *REVERSE_ONLY], ids=lambda p: p.__name__
)
def test_every_derived_program_is_well_formed(program):
    transforms = dict(VALUE)
    transforms.update({} if program in REVERSE_ONLY else FORWARD)
    transforms.update({} if program in FORWARD_ONLY else REVERSE)
    for transform in transforms.values():

        def flat(point, lanes, transform=transform):
            given = {id(POINT): point, id(LANES): lanes}
            array = lambda x: given.get(id(x), x)
            world = SimpleNamespace(**{**vars(real), "array": array})
            return tree.leaves(transform(world, program(world)))

        check(stage(flat, [aval_of(POINT), aval_of(LANES)]).jaxpr)
