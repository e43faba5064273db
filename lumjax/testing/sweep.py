"""Many random programs, each checked in several ways.

    python -m lumjax.testing --count 10000 --seed 1
    python -m lumjax.testing --jax --count 10000 --seed 1

The second draws programs with branches, loops and other functions inside, and compares with JAX.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from typing import Any

from lumjax import dtype as dt
from lumjax.config import config
from lumjax.record import record
from lumjax.testing.programs import Program, RandomChooser, build
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


def checks(program: Program, second_order: bool = True, jax: bool = False) -> list[Check]:
    """What must hold of a program."""
    half = _half(program)
    near = "rtol=0.3, atol=0.3" if half else "rtol=5e-3, atol=2e-3"
    compiled = "testing.check_jit(*testing.derivatives(f, args{}), backends=['cpu'], {})"
    first = _slopes(program)
    if jax:
        return [
            Check(f"testing.check_jax(f, args{first}, rtol=1e-8, atol=1e-8)", wide=True),
            Check(compiled.format(_slopes(program, values=True), near)),
        ]
    second = _slopes(program, second_order=second_order and not half)
    values = "rtol=8e-2, atol=4e-2" if half else "rtol=1e-4, atol=2e-5"
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


def check_program(program: Program, second_order: bool = True, jax: bool = False) -> None:
    """Eager, jit, vmap, jvp and vjp of a program agree, at first and at second order.

    jit is compared with eager in the program's own dtypes (and no kernel may be rejected by its
    verification); vmap with a loop; forward with reverse mode by the adjoint identity in float64.
    `jax`: values and first derivatives are compared with JAX, which must be installed, in float64,
    and jit with eager.
    """
    for check in checks(program, second_order, jax):
        check.apply(program)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check many programs; print the first failures and a summary; 0 if all agree."""
    parser = argparse.ArgumentParser(prog="python -m lumjax.testing", description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="index of the first program")
    parser.add_argument("--flow", action="store_true", help="with branches, loops, ... inside")
    parser.add_argument("--jax", action="store_true", help="--flow, and compare with JAX")
    options = parser.parse_args(arguments)
    failed, started = 0, time.perf_counter()
    for index in range(options.first, options.first + options.count):
        failed += not _one(index, options)
    seconds = time.perf_counter() - started
    print(f"{options.count - failed} passed, {failed} failed in {seconds:.0f} s")
    return int(failed > 0)


def _one(index: int, options: Any) -> bool:
    chooser = RandomChooser(options.seed * 1_000_003 + index)
    program = build(chooser, flow=options.flow or options.jax)
    try:
        check_program(program, jax=options.jax)
    except Exception as e:
        print(f"--- program {index}: {type(e).__name__}: {str(e)[:1500]}\n{program.source()}\n")
        sys.stdout.flush()
        return False
    return True
