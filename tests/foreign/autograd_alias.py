"""`import autograd` finds lumjax: a pytest plugin that runs autograd's own tests against lumjax.

What autograd builds from `make_vjp`, `make_jvp` and `vspace` (its `check_grads`, `unary_to_nary`,
`flatten`, ...) is loaded from the unpacked source distribution, unmodified; those three, the
differential operators and every array function are lumjax's. autograd's own primitives and tracer
never load.

    python -m pytest -p tests.foreign.autograd_alias UNPACKED/tests
"""

from __future__ import annotations

import builtins
import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
from scipy.stats import dirichlet

import lumjax
import lumjax.numpy as jnp
from lumjax import scipy, tree
from lumjax.trace.core import Tracer

# autograd's own files that stand on the names below alone
ITS_OWN = ("util", "wrap_util", "test_util", "misc.flatten")
SCALARS = (bool, int, float, complex, np.generic)


def leaf(x):
    return x if isinstance(x, Tracer) else np.asarray(x)


def is_inexact(x):
    return jnp.issubdtype(leaf(x).dtype, np.inexact)


class Space:
    """The vector space of a pytree of arrays: what autograd's tests ask of a VSpace."""

    def __init__(self, value):
        leaves, self.structure = tree.flatten(value)
        self.kinds = [(tuple(leaf(x).shape), leaf(x).dtype) for x in leaves]
        self.iscomplex = any(jnp.issubdtype(d, np.complexfloating) for _, d in self.kinds)

    def __eq__(self, other):
        return (self.structure, self.kinds) == (other.structure, other.kinds)

    def __hash__(self):
        return hash((self.structure, tuple(self.kinds)))

    def __repr__(self):
        return f"Space({self.structure}, {self.kinds})"

    @property
    def size(self):
        return sum(len(self._units(d)) * int(np.prod(s)) for s, d in self.kinds)

    @property
    def shape(self):
        (found,) = (s for s, _ in self.kinds)
        return found

    @staticmethod
    def _units(dtype):
        return (1.0, 1j) if jnp.issubdtype(dtype, np.complexfloating) else (1.0,)

    def _make(self, f):
        return tree.unflatten(self.structure, [f(s, d) for s, d in self.kinds])

    def zeros(self):
        return self._make(np.zeros)

    def ones(self):
        return self._make(lambda s, d: np.ones(s, d) * sum(self._units(d)))

    def randn(self):
        def draw(s, d):
            return np.asarray(sum(u * np.random.randn(*s) for u in self._units(d))).astype(d)

        return self._make(draw)

    def standard_basis(self):
        zero = tree.leaves(self.zeros())
        for k, (shape, dtype) in enumerate(self.kinds):
            for index in np.ndindex(*shape):
                for unit in self._units(dtype):
                    one = zero[k].copy()
                    one[index] = unit
                    yield tree.unflatten(self.structure, [*zero[:k], one, *zero[k + 1 :]])

    def add(self, x, y):
        return tree.map(lambda a, b: a + b, x, y)

    def scalar_mul(self, x, a):
        return tree.map(lambda v: v * a, x)

    def covector(self, x):
        return tree.map(lambda v: jnp.conj(v) if jnp.iscomplexobj(v) else v, x)

    def inner_prod(self, x, y):
        pairs = zip(tree.leaves(x), tree.leaves(y), strict=True)
        return sum(jnp.real(jnp.vdot(jnp.asarray(a), jnp.asarray(b))) for a, b in pairs)


# ---- the two modes and what autograd derives from them


def make_vjp(f, x):
    y, pull = lumjax.vjp(f, x)
    if not all(map(is_inexact, tree.leaves(y))):  # autograd's derivative of a comparison is zero
        return lambda g: Space(x).zeros(), y
    avals = tree.map(lambda v: leaf(v).dtype, y)

    def vjp(g):
        return pull(tree.map(lambda v, d: jnp.asarray(v, d), g, avals))[0]

    return vjp, y


def make_jvp(f, x):
    return lambda v: lumjax.jvp(f, (x,), (v,))


def one_number(ans, name):
    leaves = tree.leaves(ans)
    if len(leaves) != 1 or leaf(leaves[0]).size != 1:
        raise TypeError(f"{name} only applies to real scalar-output functions")
    return jnp.asarray(ans).reshape(())


def operators(unary_to_nary):
    """The functions of `autograd.differential_operators`, from lumjax's."""
    wrapped = {}

    def operator(f):
        wrapped[f.__name__] = unary_to_nary(f)
        return wrapped[f.__name__]

    @operator
    def grad(fun, x):
        return lumjax.grad(lambda v: one_number(fun(v), "grad"))(x)

    grad.__doc__ = "\n    Returns a function which computes the gradient of `fun`."

    @operator
    def value_and_grad(fun, x):
        return lumjax.value_and_grad(lambda v: one_number(fun(v), "grad"))(x)

    @operator
    def grad_and_aux(fun, x):
        return lumjax.grad(fun, has_aux=True)(x)

    @operator
    def elementwise_grad(fun, x):
        return lumjax.grad(lambda v: jnp.sum(fun(v)))(x)

    @operator
    def deriv(fun, x):
        return lumjax.jvp(fun, (x,), (Space(x).ones(),))[1]

    @operator
    def jacobian(fun, x):
        return lumjax.jacrev(fun)(x)

    @operator
    def hessian(fun, x):
        return lumjax.hessian(fun)(x)

    @operator
    def holomorphic_grad(fun, x):
        return lumjax.grad(fun, holomorphic=True)(x)

    @operator
    def make_hvp(fun, x):
        value, push = lumjax.linearize(lumjax.grad(fun), x)
        return push, value

    def hessian_tensor_product(fun, argnum=0):
        def product(*args):
            *args, vector = args
            one = lambda v: fun(*args[:argnum], v, *args[argnum + 1 :])
            return lumjax.jvp(lumjax.grad(one), (args[argnum],), (vector,))[1]

        return product

    def tensor_jacobian_product(fun, argnum=0):
        def contracted(*args):
            return jnp.tensordot(args[-1], fun(*args[:-1]), axes=jnp.ndim(args[-1]))

        return lumjax.jacrev(contracted, argnum)

    def make_ggnvp(f, g=lambda x: 0.5 * jnp.sum(x**2, axis=-1)):
        def at(x):
            y, push = lumjax.linearize(f, x)
            _, pull = lumjax.vjp(f, x)
            curve = lumjax.linearize(lumjax.grad(g), y)[1]
            return lambda v: pull(curve(push(v)))[0]

        return at

    return wrapped | {
        "make_vjp": unary_to_nary(make_vjp),
        "make_jvp": unary_to_nary(make_jvp),
        "hessian_tensor_product": hessian_tensor_product,
        "hessian_vector_product": hessian_tensor_product,
        "tensor_jacobian_product": tensor_jacobian_product,
        "vector_jacobian_product": tensor_jacobian_product,
        "make_ggnvp": make_ggnvp,
        "checkpoint": lumjax.checkpoint,
    }


# ---- autograd.extend: user-made primitives are lumjax.custom_vjp


class primitive:
    """A function whose reverse derivative is given by `defvjp`, argument by argument."""

    def __init__(self, f):
        functools.update_wrapper(self, f)
        self.makers = None
        self.f = lumjax.custom_vjp(f)
        self.f.defvjp(self._forward, self._backward)
        self.plain = f

    def __call__(self, *args):
        return self.f(*args)

    def _forward(self, *args):
        if self.makers is None:
            raise NotImplementedError(f"VJP of {self.__name__} not defined")
        ans = self.plain(*args)
        return ans, (ans, args)

    def _backward(self, kept, g):
        ans, args = kept
        found = [m and m(ans, *args)(g) for m in self.makers]
        return tuple(
            jnp.zeros_like(x) if d is None else d for x, d in zip(args, found, strict=True)
        )


def defvjp(f, *makers):
    f.makers = makers


# ---- modules


class Layered(ModuleType):
    """A module whose missing names are looked up in lumjax's module of the same meaning."""

    def __init__(self, name, base, **extra):
        super().__init__(name)
        self.__dict__.update(extra)
        self.__dict__["base"] = base

    def __getattr__(self, name):
        return getattr(self.__dict__["base"], name)


def make_diagonal(D, offset=0, axis1=0, axis2=1):
    """autograd's own: matrices with the last axis of D on their diagonals."""
    if offset != 0 or {axis1, axis2} != {-1, -2}:
        raise NotImplementedError
    return jnp.vectorize(jnp.diag, signature="(n)->(n,n)")(D)


def of_the_tracer(*args, **kwargs):
    raise NotImplementedError("a feature of autograd's tracer alone")


def module(name, base=builtins, **names):
    made = Layered(f"autograd{name}", base, **names)
    made.__path__ = []
    sys.modules[made.__name__] = made
    parent, _, last = made.__name__.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, made)
    return made


def load(folder: Path, name: str) -> ModuleType:
    """One of autograd's own files."""
    path = folder / "autograd" / (name.replace(".", "/") + ".py")
    spec = importlib.util.spec_from_file_location(f"autograd.{name}", path)
    made = importlib.util.module_from_spec(spec)
    sys.modules[made.__name__] = made
    parent, _, last = made.__name__.rpartition(".")
    setattr(sys.modules[parent], last, made)
    spec.loader.exec_module(made)
    return made


def install(folder: Path) -> None:
    """Make `import autograd` find lumjax; `folder` is the unpacked source distribution."""
    assert not any(m.split(".")[0] == "autograd" for m in sys.modules), "autograd is loaded"
    lumjax.config.update("enable_x64", True)
    containers = {
        "tuple": tuple, "list": list, "dict": dict, "isinstance": isinstance, "type": type,
    }  # fmt: skip
    root = module("", **containers)
    module(".builtins", **containers)
    module(
        ".numpy", jnp, __version__=np.__version__, make_diagonal=make_diagonal,
        row_stack=jnp.vstack, longdouble=np.longdouble, clongdouble=np.clongdouble,
    )  # fmt: skip
    module(".numpy.random", np.random)
    module(".numpy.linalg", jnp.linalg, T=jnp.matrix_transpose, _dot=jnp.matmul)
    module(".numpy.fft", jnp.fft)
    core = {"primitive": primitive, "defvjp": defvjp, "vspace": Space, "make_vjp": make_vjp}
    module(".core", primitive_vjps={}, make_jvp=make_jvp, **core)
    module(".extend", **core)
    module(".tracer", primitive=primitive, isbox=lambda x: isinstance(x, Tracer))
    module(".misc")
    module(".scipy", scipy)
    for name in ("special", "linalg", "signal", "stats"):
        module(f".scipy.{name}", getattr(scipy, name))
    module(".scipy.integrate")
    for name in ("beta", "chi2", "gamma", "multivariate_normal", "norm", "poisson", "t"):
        module(f".scipy.stats.{name}", getattr(scipy.stats, name))
    # Tests draw samples with SciPy's.
    module(".scipy.stats.dirichlet", scipy.stats.dirichlet, rvs=dirichlet.rvs)
    for name in ("util", "wrap_util"):
        load(folder, name)
    root.__dict__.update(operators(sys.modules["autograd.wrap_util"].unary_to_nary))
    for name in ITS_OWN[2:]:
        load(folder, name)
    sys.modules["autograd.misc"].const_graph = of_the_tracer
    sys.modules["autograd.misc"].flatten = sys.modules["autograd.misc.flatten"].flatten


def pytest_addoption(parser):
    parser.addoption("--autograd", type=Path, required=True, help="autograd's unpacked sdist")


def pytest_configure(config):
    install(config.getoption("--autograd"))
