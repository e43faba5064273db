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

Params: TypeAlias = Any  # a pytree of arrays
Schedule: TypeAlias = Callable[[Any], Any]  # step count -> value
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
        return out, TraceState(new)

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
        if mu_dtype is not None:
            mu = tree.map(lambda m: m.astype(mu_dtype), mu)
        return out, ScaleByAdamState(count, mu, nu)

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
        if mu_dtype is not None:
            mu = tree.map(lambda m: m.astype(mu_dtype), mu)
        return out, ScaleByLionState(_next_count(state.count), mu)

    return GradientTransformation(init, update)


def scale_by_rms(
    decay: float = 0.9, eps: float = 1e-8, initial_scale: float = 0.0
) -> GradientTransformation:
    """Divide by the root of a running mean of squares (Tieleman and Hinton 2012)."""

    def init(params: Params) -> ScaleByRmsState:
        return ScaleByRmsState(tree.map(lambda p: jnp.full_like(p, initial_scale), params))

    def update(
        updates: Any, state: ScaleByRmsState, params: Params = None
    ) -> tuple[Any, ScaleByRmsState]:
        del params
        nu = _moment(updates, state.nu, decay, 2)
        out = tree.map(lambda g, n: g * rsqrt(n + eps), updates, nu)
        return out, ScaleByRmsState(nu)

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
    momentum: float | None = None,
    nesterov: bool = False,
) -> GradientTransformation:
    """RMSProp (Tieleman and Hinton 2012), with momentum where given."""
    last = identity() if momentum is None else trace(momentum, nesterov)
    return chain(
        scale_by_rms(decay, eps, initial_scale), scale_by_learning_rate(learning_rate), last
    )


# ---- schedules


def constant_schedule(value: float) -> Schedule:
    """The same value at every step."""
    return lambda count: value


def polynomial_schedule(
    init_value: float,
    end_value: float,
    power: float,
    transition_steps: int,
    transition_begin: int = 0,
) -> Schedule:
    """From init to end over `transition_steps`, as (1 - progress)**power."""
    if transition_steps <= 0:
        return constant_schedule(init_value)
    begin = max(transition_begin, 0)

    def schedule(count: Any) -> Any:
        progress = jnp.clip(count - begin, 0, transition_steps) / transition_steps
        return (init_value - end_value) * (1 - progress) ** power + end_value

    return schedule


def linear_schedule(
    init_value: float, end_value: float, transition_steps: int, transition_begin: int = 0
) -> Schedule:
    """A straight line from init to end over `transition_steps`.

    >>> float(linear_schedule(1.0, 0.0, 10)(5))
    0.5
    """
    return polynomial_schedule(init_value, end_value, 1, transition_steps, transition_begin)


def cosine_decay_schedule(
    init_value: float, decay_steps: int, alpha: float = 0.0, exponent: float = 1.0
) -> Schedule:
    """Half a cosine from init to alpha * init (Loshchilov and Hutter 2017)."""
    if decay_steps <= 0:
        raise ArgumentValueError(
            operation="optim.cosine_decay_schedule",
            required="decay_steps > 0",
            got=str(decay_steps),
            fix="give the number of steps over which to decay",
        )

    def schedule(count: Any) -> Any:
        progress = jnp.minimum(count, decay_steps) / decay_steps
        cosine = 0.5 * (1 + jnp.cos(jnp.pi * progress))
        return init_value * ((1 - alpha) * cosine**exponent + alpha)

    return schedule


def join_schedules(schedules: Sequence[Schedule], boundaries: Sequence[int]) -> Schedule:
    """One schedule after another; each restarts its count at its boundary."""
    if len(boundaries) != len(schedules) - 1:
        raise ArgumentValueError(
            operation="optim.join_schedules",
            required=f"{len(schedules) - 1} boundaries for {len(schedules)} schedules",
            got=str(len(boundaries)),
            fix="give one boundary between each two schedules",
        )

    def schedule(count: Any) -> Any:
        out = schedules[0](count)
        for boundary, following in zip(boundaries, schedules[1:], strict=True):
            out = jnp.where(count < boundary, out, following(count - boundary))
        return out

    return schedule


def warmup_cosine_decay_schedule(
    init_value: float,
    peak_value: float,
    warmup_steps: int,
    decay_steps: int,
    end_value: float = 0.0,
    exponent: float = 1.0,
) -> Schedule:
    """A linear warm-up to the peak, then a cosine to the end; `decay_steps` counts both."""
    alpha = 0.0 if peak_value == 0.0 else end_value / peak_value
    return join_schedules(
        [
            linear_schedule(init_value, peak_value, warmup_steps),
            cosine_decay_schedule(peak_value, decay_steps - warmup_steps, alpha, exponent),
        ],
        [warmup_steps],
    )
