"""Rules of the compiler, tried on a program one by one: a wrong one changes its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax import tree
from lumjax.compile import Jitted, compiler
from lumjax.config import config
from lumjax.decorator import jit
from lumjax.testing.values import TOLERANCE, to_raw
from lumjax.trace.array import Array
from lumjax.trace.core import aval_of

NDArray: TypeAlias = np.ndarray[Any, Any]


def check_rewrites(
    f: Callable[..., Any],
    args: Sequence[Any],
    rules: Sequence[Any] | None = None,
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> dict[str, int]:
    """Every rewrite rule that fires on `f` at `args`, applied alone and wherever it can be.

    Results are compared with eager evaluation and with float64; AssertionError names the rule. No
    kernel may be rejected. `rules` are tried in place of the compiler's own. Returns how many
    programs each rule that fired alone was tried on.

    >>> import lumjax.numpy as jnp
    >>> tried = check_rewrites(lambda x: jnp.sum((x - 0.0) * 2.0), (jnp.arange(4.0),))
    >>> len(tried) > 0
    True
    """
    half = compiler()
    jitted: Any = f if isinstance(f, Jitted) else jit(f)
    program = jitted.program(*args)
    leaves = [*program.consts, *tree.leaves((tuple(args), {}))]
    judge = Judge(f, args, rtol, atol)
    tried: dict[str, int] = {}
    for rule in half.rules_that_fire(program.jaxpr, rules):
        for turn in range(half.PROGRAMS):
            made = half.rewritten(program.jaxpr, rule, turn)
            if made is None:
                break
            refuse_rejected(made, f"rule '{rule.name}'")
            judge.check(made.run(leaves), f"rule '{rule.name}' alone (program {turn + 1})")
            tried[rule.name] = turn + 1
    return tried


def refuse_rejected(executable: Any, what: str) -> None:
    """AssertionError if verification refused a kernel of the program."""
    refused = [k.rejected for s in executable.native() for k in s.kernels if k.rejected]
    assert not refused, f"{what}: {len(refused)} kernels rejected by verification: {refused}"


class Judge:
    """The answers of a function, in its own dtypes and in float64."""

    def __init__(
        self, f: Callable[..., Any], args: Sequence[Any], rtol: float | None, atol: float | None
    ) -> None:
        self.want = [to_raw(x) for x in tree.leaves(f(*args))]
        self.rtol, self.atol = rtol, atol
        self.wide = self._wide(f, args)

    def _wide(self, f: Callable[..., Any], args: Sequence[Any]) -> list[NDArray]:
        """In float64, as far as the inputs decide the dtypes; else the answers as they are."""
        with config.scope(enable_x64=True):
            widened = tree.map(_widened, tuple(args))
            try:
                found = [to_raw(x) for x in tree.leaves(f(*widened))]
            except TypeError:  # it insists on a dtype of its own
                return self.want
        return found if [x.shape for x in found] == [x.shape for x in self.want] else self.want

    def check(self, outs: Sequence[Any], what: str) -> None:
        """Each result is near the one or the other, and finite where eager evaluation is."""
        for k, (out, want, wide) in enumerate(zip(outs, self.want, self.wide, strict=True)):
            got = to_raw(out)
            place = f"{what}: output {k}"
            assert (got.shape, got.dtype) == (want.shape, want.dtype), (
                f"{place}: {got.dtype}{got.shape} is not {want.dtype}{want.shape}"
            )
            if not dt.is_inexact(want.dtype):
                assert np.array_equal(got, want), f"{place}: got {got}, want {want}"
                continue
            wrong = ~self._near(got, want, wide)
            if wrong.any():
                at = tuple(int(i) for i in np.argwhere(wrong)[0])
                raise AssertionError(
                    f"{place} differs at {at} and {int(wrong.sum()) - 1} more: got {got[at]}, "
                    f"eager evaluation {want[at]}, in float64 {wide[at]}"
                )

    def _near(self, got: NDArray, want: NDArray, wide: NDArray) -> NDArray:
        rtol, atol = TOLERANCE[want.dtype]
        rtol, atol = self.rtol or rtol, self.atol or atol
        kind = np.complex128 if dt.is_complex(want.dtype) else np.float64
        a, b, c = (x.astype(kind) for x in (got, want, wide))
        with np.errstate(all="ignore"):
            finite = np.isfinite(b)
            scale = max(1.0, float(np.max(np.abs(b), initial=0.0, where=finite)))
            allowed = atol * scale + rtol * np.abs(b)
            own = np.where(np.isfinite(b - c), np.abs(b - c), 0)  # what eager evaluation is off by
            near = (np.abs(a - b) <= allowed) | (np.abs(a - c) <= allowed + 2 * own)
        return np.where(finite, near & np.isfinite(a), ~np.isfinite(a))


def _widened(x: Any) -> Any:
    dtype = aval_of(x).dtype
    if dt.is_floating(dtype):
        return Array(to_raw(x).astype(np.float64))
    return Array(to_raw(x).astype(np.complex128)) if dt.is_complex(dtype) else x
