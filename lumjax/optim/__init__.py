"""Optimizers under optax's names and semantics: gradient transformations that chain.

Each transformation is a pair of pure functions: `init(params) -> state` and
`update(updates, state, params=None) -> (updates, state)`. Updates are added to the parameters by
`apply_updates`, so that an optimizer's last step scales by minus the learning rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from lumjax import numpy as jnp
from lumjax import tree
from lumjax.errors import ArgumentTypeError, ArgumentValueError
from lumjax.lax import rsqrt
from lumjax.optim.schedules import Schedule
from lumjax.optim.schedules import constant_schedule as constant_schedule
from lumjax.optim.schedules import cosine_decay_schedule as cosine_decay_schedule
from lumjax.optim.schedules import join_schedules as join_schedules
from lumjax.optim.schedules import linear_schedule as linear_schedule
from lumjax.optim.schedules import polynomial_schedule as polynomial_schedule
from lumjax.optim.schedules import warmup_cosine_decay_schedule as warmup_cosine_decay_schedule

Params: TypeAlias = Any  # a pytree of arrays
ScalarOrSchedule: TypeAlias = float | Any | Schedule


class GradientTransformation(NamedTuple):
    """A pair of pure functions; see the module's docstring."""

    init: Callable[[Params], Any]
    update: Callable[..., tuple[Any, Any]]


class EmptyState(NamedTuple):
    """The state of a transformation that remembers nothing."""


class TraceState(NamedTuple):
    """The running sum of momentum."""

    trace: Params


class ScaleByAdamState(NamedTuple):
    """Step count and the two moment estimates."""

    count: Any
    mu: Params
    nu: Params


class ScaleByLionState(NamedTuple):
    """Step count and momentum."""

    count: Any
    mu: Params


class ScaleByRmsState(NamedTuple):
    """The running mean of squared gradients."""

    nu: Params


class ScaleByRmsWithCountState(NamedTuple):
    """Step count and the running mean of squared gradients."""

    count: Any
    nu: Params


class ScaleByRStdDevState(NamedTuple):
    """The running means of gradients and of their squares."""

    mu: Params
    nu: Params


class ScaleByRStdDevWithCountState(NamedTuple):
    """Step count and the running means of gradients and of their squares."""

    count: Any
    mu: Params
    nu: Params


class ScaleByScheduleState(NamedTuple):
    """The step count."""

    count: Any


def _stateless(update: Callable[[Any, Params], Any]) -> GradientTransformation:
    def init(params: Params) -> EmptyState:
        del params
        return EmptyState()

    def run(updates: Any, state: EmptyState, params: Params = None) -> tuple[Any, EmptyState]:
        return update(updates, params), state

    return GradientTransformation(init, run)


def _zeros_like(params: Params, dtype: Any = None) -> Params:
    return tree.map(lambda p: jnp.zeros_like(p, dtype=dtype), params)


def _cast(moments: Params, dtype: Any) -> Params:
    return moments if dtype is None else tree.map(lambda m: m.astype(dtype), moments)


def _next_count(count: Any) -> Any:
    """The count plus one, held at its maximum rather than wrapping."""
    return jnp.where(count < jnp.iinfo(jnp.int32).max, count + 1, count)


def _moment(updates: Any, moments: Params, decay: float, order: int) -> Params:
    return tree.map(lambda g, m: (1 - decay) * g**order + decay * m, updates, moments)


def _unbias(moments: Params, decay: float, count: Any) -> Params:
    correction = 1 - decay**count
    return tree.map(lambda m: m / correction.astype(m.dtype), moments)


# ---- composition


def chain(*transforms: GradientTransformation) -> GradientTransformation:
    """Apply transformations one after the other.

    >>> import lumjax.numpy as jnp
    >>> tx = chain(clip_by_global_norm(5.0), scale(-0.5))
    >>> tx.update({"w": jnp.array([6.0, 8.0])}, tx.init({"w": jnp.zeros(2)}))[0]["w"]
    Array([-1.5, -2. ], dtype=float32)
    """

    def init(params: Params) -> tuple[Any, ...]:
        return tuple(t.init(params) for t in transforms)

    def update(updates: Any, state: Sequence[Any], params: Params = None) -> tuple[Any, Any]:
        if len(state) != len(transforms):
            raise ArgumentValueError(
                operation="optim.chain update",
                required=f"one state for each of {len(transforms)} transformations",
                got=f"{len(state)} states",
                fix="pass the state that this chain's init or update returned",
            )
        new_state: list[Any] = []
        for transform, part in zip(transforms, state, strict=True):
            updates, part = transform.update(updates, part, params)
            new_state.append(part)
        return updates, tuple(new_state)

    return GradientTransformation(init, update)


def identity() -> GradientTransformation:
    """Leave updates as they are."""
    return _stateless(lambda updates, _: updates)


def apply_updates(params: Params, updates: Any) -> Params:
    """`params` + updates, each leaf in the parameter's dtype; None updates leave a parameter alone.

    >>> import lumjax.numpy as jnp
    >>> apply_updates(jnp.array(1.0), jnp.array(-0.25))
    Array(0.75, dtype=float32)
    """

    def add(p: Any, u: Any) -> Any:
        return p if u is None else jnp.asarray(p + u).astype(jnp.asarray(p).dtype)

    return tree.map(add, params, updates)


# ---- elementary transformations


def scale(step_size: float) -> GradientTransformation:
    """Multiply updates by a constant."""
    return _stateless(lambda updates, _: tree.map(lambda g: step_size * g, updates))


def scale_by_schedule(step_size_fn: Schedule) -> GradientTransformation:
    """Multiply updates by a function of the step count (0 at the first update)."""

    def init(params: Params) -> ScaleByScheduleState:
        del params
        return ScaleByScheduleState(jnp.zeros((), jnp.int32))

    def update(
        updates: Any, state: ScaleByScheduleState, params: Params = None
    ) -> tuple[Any, ScaleByScheduleState]:
        del params
        size = step_size_fn(state.count)
        scaled = tree.map(lambda g: jnp.asarray(size, dtype=g.dtype) * g, updates)
        return scaled, ScaleByScheduleState(_next_count(state.count))

    return GradientTransformation(init, update)


def scale_by_learning_rate(
    learning_rate: ScalarOrSchedule, *, flip_sign: bool = True
) -> GradientTransformation:
    """Multiply by minus the learning rate, a number or a schedule (`flip_sign=False`: by plus)."""
    sign = -1 if flip_sign else 1
    if callable(learning_rate):
        schedule: Schedule = learning_rate
        return scale_by_schedule(lambda count: sign * schedule(count))
    return scale(sign * learning_rate)


def trace(
    decay: float, nesterov: bool = False, accumulator_dtype: Any = None
) -> GradientTransformation:
    """Momentum: the sum of past updates, each decayed by `decay` per step."""

    def init(params: Params) -> TraceState:
        return TraceState(_zeros_like(params, accumulator_dtype))

    def update(updates: Any, state: TraceState, params: Params = None) -> tuple[Any, TraceState]:
        del params

        def add(g: Any, t: Any) -> Any:
            return g + decay * t

        new = tree.map(add, updates, state.trace)
        out = tree.map(add, updates, new) if nesterov else new
        return out, TraceState(_cast(new, accumulator_dtype))

    return GradientTransformation(init, update)


def scale_by_adam(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """Adam's rescaling (Kingma and Ba 2014); with `nesterov`, NAdam's (Dozat 2016)."""

    def init(params: Params) -> ScaleByAdamState:
        return ScaleByAdamState(
            jnp.zeros((), jnp.int32), _zeros_like(params, mu_dtype), _zeros_like(params)
        )

    def update(
        updates: Any, state: ScaleByAdamState, params: Params = None
    ) -> tuple[Any, ScaleByAdamState]:
        del params
        mu = _moment(updates, state.mu, b1, 1)
        nu = _moment(updates, state.nu, b2, 2)
        count = _next_count(state.count)
        if nesterov:
            ahead = _unbias(mu, b1, _next_count(count))
            now = _unbias(updates, b1, count)
            mu_hat = tree.map(lambda m, g: b1 * m + (1 - b1) * g, ahead, now)
        else:
            mu_hat = _unbias(mu, b1, count)
        nu_hat = _unbias(nu, b2, count)
        out = tree.map(lambda m, v: m / (jnp.sqrt(v + eps_root) + eps), mu_hat, nu_hat)
        return out, ScaleByAdamState(count, _cast(mu, mu_dtype), nu)

    return GradientTransformation(init, update)


def scale_by_lion(
    b1: float = 0.9, b2: float = 0.99, mu_dtype: Any = None
) -> GradientTransformation:
    """Lion's sign of interpolated momentum (Chen et al. 2023)."""

    def init(params: Params) -> ScaleByLionState:
        return ScaleByLionState(jnp.zeros((), jnp.int32), _zeros_like(params, mu_dtype))

    def update(
        updates: Any, state: ScaleByLionState, params: Params = None
    ) -> tuple[Any, ScaleByLionState]:
        del params
        out = tree.map(lambda g, m: jnp.sign((1.0 - b1) * g + b1 * m), updates, state.mu)
        mu = _moment(updates, state.mu, b2, 1)
        return out, ScaleByLionState(_next_count(state.count), _cast(mu, mu_dtype))

    return GradientTransformation(init, update)


def _divided(updates: Any, squares: Any, eps: float, eps_in_sqrt: bool) -> Any:
    """Updates divided by the root of `squares`."""
    if eps_in_sqrt:
        return tree.map(lambda g, n: rsqrt(n + eps) * g, updates, squares)
    return tree.map(lambda g, n: (1 / (jnp.sqrt(n) + eps)) * g, updates, squares)


def scale_by_rms(
    decay: float = 0.9,
    eps: float = 1e-8,
    initial_scale: float = 0.0,
    eps_in_sqrt: bool = True,
    bias_correction: bool = False,
) -> GradientTransformation:
    """Divide by the root of a running mean of squares (Tieleman and Hinton 2012).

    `eps` is added under the root, or after it with `eps_in_sqrt=False`; `bias_correction` undoes
    the pull of the initial value.
    """

    def init(params: Params) -> Any:
        nu = tree.map(lambda p: jnp.full_like(p, initial_scale), params)
        if bias_correction:
            return ScaleByRmsWithCountState(jnp.zeros((), jnp.int32), nu)
        return ScaleByRmsState(nu)

    def update(updates: Any, state: Any, params: Params = None) -> tuple[Any, Any]:
        del params
        nu = _moment(updates, state.nu, decay, 2)
        if not bias_correction:
            return _divided(updates, nu, eps, eps_in_sqrt), ScaleByRmsState(nu)
        count = _next_count(state.count)
        out = _divided(updates, _unbias(nu, decay, count), eps, eps_in_sqrt)
        return out, ScaleByRmsWithCountState(count, nu)

    return GradientTransformation(init, update)


def scale_by_stddev(
    decay: float = 0.9,
    eps: float = 1e-8,
    initial_scale: float = 0.0,
    eps_in_sqrt: bool = True,
    bias_correction: bool = False,
) -> GradientTransformation:
    """Divide by a running standard deviation: like `scale_by_rms`, about the running mean (Graves
    2013).
    """

    def init(params: Params) -> Any:
        mu = _zeros_like(params)
        nu = tree.map(lambda p: jnp.full_like(p, initial_scale), params)
        if bias_correction:
            return ScaleByRStdDevWithCountState(jnp.zeros((), jnp.int32), mu, nu)
        return ScaleByRStdDevState(mu, nu)

    def spread(mu: Params, nu: Params) -> Params:
        return tree.map(lambda m, n: n - m * m, mu, nu)

    def update(updates: Any, state: Any, params: Params = None) -> tuple[Any, Any]:
        del params
        mu = _moment(updates, state.mu, decay, 1)
        nu = _moment(updates, state.nu, decay, 2)
        if not bias_correction:
            out = _divided(updates, spread(mu, nu), eps, eps_in_sqrt)
            return out, ScaleByRStdDevState(mu, nu)
        count = _next_count(state.count)
        centred = spread(_unbias(mu, decay, count), _unbias(nu, decay, count))
        out = _divided(updates, centred, eps, eps_in_sqrt)
        return out, ScaleByRStdDevWithCountState(count, mu, nu)

    return GradientTransformation(init, update)


def add_decayed_weights(weight_decay: float = 0.0, mask: Any = None) -> GradientTransformation:
    """Add weight_decay * params. `mask`, a pytree of bools or a function giving one, selects
    leaves.
    """

    def update(updates: Any, params: Params) -> Any:
        if params is None:
            raise ArgumentTypeError(
                operation="optim.add_decayed_weights",
                required="the parameters",
                got="params=None",
                fix="call update(grads, state, params)",
            )
        if mask is None:
            return tree.map(lambda g, p: g + weight_decay * p, updates, params)
        chosen = mask(params) if callable(mask) else mask
        flags = tree.broadcast(chosen, params)
        return tree.map(lambda g, p, m: g + weight_decay * p if m else g, updates, params, flags)

    return _stateless(update)


def global_norm(updates: Any) -> Any:
    """The Euclidean norm over all leaves.

    >>> import lumjax.numpy as jnp
    >>> global_norm({"a": jnp.array([3.0]), "b": jnp.array([4.0])})
    Array(5., dtype=float32)
    """
    return jnp.sqrt(sum(jnp.sum(jnp.square(jnp.abs(x))) for x in tree.leaves(updates)))


def clip_by_global_norm(max_norm: float) -> GradientTransformation:
    """Scale all updates together so that their global norm is at most `max_norm`."""

    def update(updates: Any, params: Params) -> Any:
        del params
        norm = global_norm(updates)
        small = norm < max_norm
        return tree.map(
            lambda g: jnp.where(small, g, (g / norm.astype(g.dtype)) * max_norm), updates
        )

    return _stateless(update)


def clip(max_delta: float) -> GradientTransformation:
    """Clip every element to [-max_delta, max_delta]."""
    return _stateless(lambda u, _: tree.map(lambda g: jnp.clip(g, -max_delta, max_delta), u))


# ---- optimizers


def sgd(
    learning_rate: ScalarOrSchedule,
    momentum: float | None = None,
    nesterov: bool = False,
    accumulator_dtype: Any = None,
) -> GradientTransformation:
    """Stochastic gradient descent, with momentum where given.

    >>> import lumjax.numpy as jnp
    >>> tx = sgd(0.1)
    >>> tx.update(jnp.array([2.0]), tx.init(jnp.array([1.0])))[0]
    Array([-0.2], dtype=float32)
    """
    first = identity() if momentum is None else trace(momentum, nesterov, accumulator_dtype)
    return chain(first, scale_by_learning_rate(learning_rate))


def adam(
    learning_rate: ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """Adam (Kingma and Ba 2014)."""
    return chain(
        scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov),
        scale_by_learning_rate(learning_rate),
    )


def adamw(
    learning_rate: ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    weight_decay: float = 1e-4,
    mask: Any = None,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""
    return chain(
        scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


def lion(
    learning_rate: ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.99,
    mu_dtype: Any = None,
    weight_decay: float = 1e-3,
    mask: Any = None,
) -> GradientTransformation:
    """Lion (Chen et al. 2023)."""
    return chain(
        scale_by_lion(b1, b2, mu_dtype),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


def rmsprop(
    learning_rate: ScalarOrSchedule,
    decay: float = 0.9,
    eps: float = 1e-8,
    initial_scale: float = 0.0,
    eps_in_sqrt: bool = True,
    centered: bool = False,
    momentum: float | None = None,
    nesterov: bool = False,
    bias_correction: bool = False,
) -> GradientTransformation:
    """RMSProp (Tieleman and Hinton 2012), with momentum where given; `centered` divides by the
    standard deviation rather than the root mean square (Graves 2013).
    """
    rescale = scale_by_stddev if centered else scale_by_rms
    return chain(
        rescale(decay, eps, initial_scale, eps_in_sqrt, bias_correction),
        scale_by_learning_rate(learning_rate),
        identity() if momentum is None else trace(momentum, nesterov),
    )
