"""What a checkpoint saves: predicates on an equation, called as policy(primitive, *input avals,
**params).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

from lumjax import dtype as dt
from lumjax import tree
from lumjax.ops.contract import dot_general_p
from lumjax.ops.conv import conv_general_dilated_p
from lumjax.ops.elementwise import asvalue
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Primitive, Sample
from lumjax.trace.form import Move
from lumjax.trace.view import identity

Policy: TypeAlias = Callable[..., bool]


# ---- names


def _named_jvp(primals: Any, tangents: Any, *, name: str) -> Any:
    """The primal is what a policy may save; tangents need no name."""
    return name_p.bind(*primals, name=name), tangents


name_p = Primitive(
    "name",
    aval=lambda x, *, name: (x,),
    eval=lambda x, *, name: (x,),
    form=lambda x, *, name: Move((identity(x.shape),)),
    jvp=_named_jvp,
    transpose=lambda cts, inputs, *, name: cts,
    batch=lambda axis, args, dims, *, name: (name_p.bind(*args, name=name), dims),
    samples=(Sample((ShapedArray((3, 2), dt.float32),), {"name": "x"}),),
)


def checkpoint_name(x: Any, name: str) -> Any:
    """`x`, a pytree, whose leaves checkpoint policies can refer to by `name`.

    >>> float(checkpoint_name(2.0, "activation"))
    2.0
    """
    return tree.map(lambda leaf: name_p.bind(asvalue(leaf), name=name)[0], x)


# ---- policies


def everything_saveable(prim: Primitive, *_: Any, **params: Any) -> bool:
    """Save every intermediate value: recompute nothing."""
    return True


def nothing_saveable(prim: Primitive, *_: Any, **params: Any) -> bool:
    """Save the arguments only: recompute everything."""
    return False


def dots_saveable(prim: Primitive, *_: Any, **params: Any) -> bool:
    """Save the results of contractions."""
    return prim is dot_general_p or prim is conv_general_dilated_p


def dots_with_no_batch_dims_saveable(prim: Primitive, *_: Any, **params: Any) -> bool:
    """Save the results of contractions without batch dimensions, such as weights times
    activations.
    """
    if prim is not dot_general_p:
        return False
    _, (batch, _) = params["dimension_numbers"]
    return not batch


def save_only_these_names(*names: str) -> Policy:
    """Save the values that `checkpoint_name` gave one of these names."""
    chosen = frozenset(names)

    def policy(prim: Primitive, *_: Any, **params: Any) -> bool:
        return prim is name_p and params["name"] in chosen

    return policy


def save_any_names_but_these(*names: str) -> Policy:
    """Save the named values, except those with one of these names."""
    chosen = frozenset(names)

    def policy(prim: Primitive, *_: Any, **params: Any) -> bool:
        return prim is name_p and params["name"] not in chosen

    return policy


def save_anything_except_these_names(*names: str) -> Policy:
    """Save every value, except those with one of these names."""
    chosen = frozenset(names)

    def policy(prim: Primitive, *_: Any, **params: Any) -> bool:
        return prim is not name_p or params["name"] not in chosen

    return policy


def save_from_both_policies(policy_1: Policy, policy_2: Policy) -> Policy:
    """Save what either policy saves."""

    def policy(prim: Primitive, *avals: Any, **params: Any) -> bool:
        return policy_1(prim, *avals, **params) or policy_2(prim, *avals, **params)

    return policy


def save_and_offload_only_these_names(
    *,
    names_which_can_be_saved: Sequence[str],
    names_which_can_be_offloaded: Sequence[str],
    offload_src: str,
    offload_dst: str,
) -> Policy:
    """Save the values with these names. There is one memory to save in, so nothing moves."""
    return save_only_these_names(*names_which_can_be_saved, *names_which_can_be_offloaded)


def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Policy:
    """Save contractions without batch dimensions. There is one memory, so nothing moves."""
    return dots_with_no_batch_dims_saveable


checkpoint_policies = SimpleNamespace(
    everything_saveable=everything_saveable,
    nothing_saveable=nothing_saveable,
    dots_saveable=dots_saveable,
    checkpoint_dots=dots_saveable,
    dots_with_no_batch_dims_saveable=dots_with_no_batch_dims_saveable,
    checkpoint_dots_with_no_batch_dims=dots_with_no_batch_dims_saveable,
    save_only_these_names=save_only_these_names,
    save_any_names_but_these=save_any_names_but_these,
    save_anything_except_these_names=save_anything_except_these_names,
    save_from_both_policies=save_from_both_policies,
    save_and_offload_only_these_names=save_and_offload_only_these_names,
    offload_dot_with_no_batch_dims=offload_dot_with_no_batch_dims,
)
