"""What must hold of a random program, as statements that a script can contain."""

from __future__ import annotations

import importlib

from lumjax import dtype as dt
from lumjax.config import config
from lumjax.record import record
from lumjax.testing.programs import Program
from lumjax.testing.steps import library, run


@record
class Check:
    """One way to check a program: a statement on `f` and `args`. `wide`: on float64 inputs, step by
    step.
    """

    text: str
    wide: bool = False

    def apply(self, program: Program) -> None:
        """Execute it on a program; AssertionError if it does not hold."""
        names = library("lumjax") | {"testing": importlib.import_module("lumjax.testing")}
        if not self.wide:
            run([self.text], {**names, "f": program.fn, "args": program.args}, "<check>")
            return
        with config.scope(enable_x64=True, interpret=True):
            wide = program.widened()
            run([self.text], {**names, "f": wide.fn, "args": wide.args}, "<check>")


def _half(program: Program) -> bool:
    return any(x.dtype in (dt.float16, dt.bfloat16) for x in program.inputs)


def _slopes(program: Program, **options: bool) -> str:
    options["forward"] = not program.reversible()
    return "".join(f", {name}=True" for name, on in options.items() if on)


def checks(
    program: Program,
    second_order: bool = True,
    jax: bool = False,
    plans: bool = False,
    dynamic: bool = False,
    backend: str = "cpu",
) -> list[Check]:
    """What must hold of a program."""
    half = _half(program)
    near = "rtol=0.3, atol=0.3" if half else "rtol=5e-3, atol=2e-3"
    compiled = "testing.check_jit(*testing.derivatives(f, args{}), backends=['cpu'], {})"
    first = _slopes(program)
    if dynamic:
        both = f"*testing.derivatives(f, args{first})"
        opened = [f"testing.check_dynamic({of}, {near})" for of in ("f, args", both)]
        return list(map(Check, opened))
    if plans:
        both = f"*testing.derivatives(f, args{_slopes(program, values=True)})"
        return [Check(f"testing.check_plans({both})")]
    if jax:
        return [
            Check(f"testing.check_jax(f, args{first}, rtol=1e-8, atol=1e-8)", wide=True),
            Check(compiled.format(_slopes(program, values=True), f"interpret=True, {near}")),
        ]
    second = _slopes(program, second_order=second_order and not half)
    values = "rtol=8e-2, atol=4e-2" if half else "rtol=1e-4, atol=2e-5"
    if backend != "cpu":
        held = f"testing.check_jit({{}}, backends=[{backend!r}], interpret=True, {{}}"
        held += ", rounding=True)" if half else ")"
        both = f"*testing.derivatives(f, args{second})"
        return [Check(held.format("f, args", values)), Check(held.format(both, near))]
    made = [
        Check(f"testing.check_jit(f, args, {values})"),
        Check(compiled.format(second, near)),
        Check("testing.check_vmap(f, args, rtol=1e-8)", wide=True),
    ]
    if program.reversible():
        made.append(Check("testing.check_adjoint(f, args, rtol=1e-8)", wide=True))
        if second_order:
            slopes = "testing.check_adjoint(*testing.derivatives(f, args), rtol=1e-7)"
            made.append(Check(slopes, wide=True))
    return made


def check_program(
    program: Program,
    second_order: bool = True,
    jax: bool = False,
    plans: bool = False,
    dynamic: bool = False,
    backend: str = "cpu",
) -> None:
    """Eager, jit, vmap, jvp and vjp of a program agree, at first and at second order.

    jit is compared with eager in the program's own dtypes (and no kernel may be rejected by its
    verification); vmap with a loop; forward with reverse mode by the adjoint identity in float64.
    `jax`: values and first derivatives are compared with JAX, which must be installed, in float64,
    and jit, in the program's own dtypes, with eager, both times primitive by primitive.
    `plans`: what the compiler's search makes of values and first derivatives is compared with the
    traced program on special values, and nothing else.
    `dynamic`: values and first derivatives of batches of several sizes, compiled once, are compared
    with no compilation, and nothing else.
    `backend`: if it is another, what jit makes for it of values and derivatives is compared with
    the interpreter, and nothing else.
    """
    for check in checks(program, second_order, jax, plans, dynamic, backend):
        check.apply(program)
