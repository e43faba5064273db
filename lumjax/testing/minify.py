"""From a program that fails a check to a few lines that fail it, to run by themselves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lumjax.errors import ArgumentValueError
from lumjax.record import record
from lumjax.testing.claims import Check, checks
from lumjax.testing.edits import all_values, cleaned, smaller_programs
from lumjax.testing.programs import Program
from lumjax.testing.steps import Node, moderate

_HEAD = """import lumjax as jax
import lumjax.numpy as jnp
import numpy as np
from lumjax import lax, testing
"""
_WIDE = """
jax.config.update("enable_x64", True)
jax.config.update("interpret", True)
"""


@record
class Reproduction:
    """A program that fails a check, and the script that shows it: `str(reproduction)`."""

    program: Program
    check: Check
    error: str

    def __str__(self) -> str:
        """The script: imports, inputs, function, the check, and what it said."""
        program = self.program.widened() if self.check.wide else self.program
        lines = [f"    {_literal(x)}," for x in program.inputs]
        said = "".join(f"# {line}\n" for line in self.error.splitlines()[:12])
        return "\n".join(
            [
                *(_HEAD + _WIDE if self.check.wide else _HEAD).splitlines(),
                *("", "args = [", *lines, "]"),
                *("", "", program.source(), "", "", self.check.text),
                said,
            ]
        )


def _literal(x: np.ndarray[Any, Any]) -> str:
    name = x.dtype.name
    if x.size == 0:
        return f'jnp.zeros({x.shape}, "{name}")'
    plain = x.astype(np.float32) if name in ("bfloat16", "float16") else x
    text = np.array2string(
        plain, separator=", ", floatmode="unique", threshold=sys.maxsize, max_line_width=88,
        prefix="    jnp.array(",
    )  # fmt: skip
    return f'jnp.array({text}, "{name}")'.replace("nan", "jnp.nan").replace("inf", "jnp.inf")


def minify(
    program: Program,
    check: Callable[[Any, Any], Any] | str | None = None,
    *,
    jax: bool = False,
    plans: bool = False,
    dynamic: bool = False,
    backend: str = "cpu",
    tries: int = 1000,
) -> Reproduction:
    """The smallest program found that fails as `program` does.

    `check` is called as `check(f, args)`, or is a statement on `f` and `args` with the names of a
    reproduction (`jax`, `jnp`, `lax`, `testing`); by default it is the first of `check_program`'s
    (those with `jax`, `plans`, `dynamic` or a `backend`, if asked) that fails. An error counts as
    the same if it is of the same class. Outputs are dropped, values in the middle become inputs,
    steps are replaced by operands or by the functions inside them, axes are shortened or taken
    away, numbers rounded, as long as it fails; at most `tries` programs are run. Raises
    ArgumentValueError if `program` does not fail.

    >>> from lumjax.testing.programs import RandomChooser, build
    >>> found = minify(build(RandomChooser(6)), "assert f(*args)[-1].max() < 1")
    >>> print(found.program.source())
    def f(v0):
        return (v0,)
    """
    claims = checks(program, jax=jax, plans=plans, dynamic=dynamic, backend=backend)
    found, error = _first_failure(program, claims if check is None else [_named(check)])
    kind, orderly = type(error), _orderly(program)

    def fails(candidate: Program) -> Exception | None:
        if orderly and not _orderly(candidate):
            return None
        again = _failure(candidate, found)
        return again if type(again) is kind else None

    best, candidates = program, iter([cleaned(program), *smaller_programs(program)])
    while tries and (candidate := next(candidates, None)) is not None:
        if _key(candidate) < _key(best):
            tries -= 1
            if (again := fails(candidate)) is not None:
                best, error, candidates = candidate, again, smaller_programs(candidate)
    return Reproduction(best, found, f"{kind.__name__}: {error}")


def _first_failure(program: Program, tried: Sequence[Check]) -> tuple[Check, Exception]:
    for one in tried:
        if (error := _failure(program, one)) is not None:
            return one, error
    raise ArgumentValueError(
        operation="minify",
        required="a program that fails",
        got=f"one that passes {len(tried)} checks",
        fix="pass the check that it fails",
    )


def _named(check: Any) -> Check:
    """A check as a statement that a script can make."""
    if isinstance(check, str):
        return Check(check)
    module, name = getattr(check, "__module__", ""), getattr(check, "__name__", "")
    if getattr(sys.modules.get(module), name, None) is not check or module == "__main__":
        raise ArgumentValueError(
            operation="minify",
            required="a check that a script can import, or the text of a statement",
            got=repr(check),
            fix="define it in a module, or write the statement as text",
        )
    return Check(f"from {module} import {name}\n\n{name}(f, args)")


def _failure(program: Program, check: Check) -> Exception | None:
    try:
        check.apply(program)
    except Exception as error:
        return error
    return None


def _orderly(program: Program) -> bool:
    """Whether it runs, step by step, and all of its values are moderate."""
    try:
        return all(map(moderate, all_values(program)))
    except Exception:
        return False


def _steps(nodes: tuple[Node, ...]) -> int:
    return sum(1 + sum(1 + _steps(b.nodes) for b in n.bodies) for n in nodes)


def _key(program: Program) -> tuple[int, ...]:
    """How large a program is; steps count most."""
    return (
        _steps(program.nodes),
        len(program.inputs) + len(program.outputs),
        sum(x.size for x in program.inputs),
        sum(x.ndim for x in program.inputs),
        sum(len(_literal(x)) for x in program.inputs),
    )
