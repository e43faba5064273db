"""Many random programs, each checked in several ways.

    python -m lumjax.testing --count 10000 --seed 1
    python -m lumjax.testing --jax --count 10000 --seed 1
    python -m lumjax.testing --plans --count 10000 --seed 1
    python -m lumjax.testing --dynamic --count 2000 --seed 1
    python -m lumjax.testing --backend cuda:emulated --count 1000 --seed 1

The second draws programs with branches, loops and other functions inside, and compares with JAX.
The third compares what the compiler's search makes of a program with it, on special values. The
fourth compiles each once for batches of every size; with `--flow` there are loops inside, too. The
last compares what another backend makes of values and derivatives with the interpreter.
`--minify` prints, for a program that fails, the smallest script that shows it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from lumjax.testing.claims import check_program
from lumjax.testing.minify import minify
from lumjax.testing.programs import RandomChooser, build


def main(arguments: Sequence[str] | None = None) -> int:
    """Check many programs; print the first failures and a summary; 0 if all agree."""
    parser = argparse.ArgumentParser(prog="python -m lumjax.testing", description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="index of the first program")
    parser.add_argument("--flow", action="store_true", help="with branches, loops, ... inside")
    parser.add_argument("--jax", action="store_true", help="--flow, and compare with JAX")
    parser.add_argument(
        "--plans", action="store_true", help="the search's plans, on special values"
    )
    parser.add_argument("--dynamic", action="store_true", help="one compilation for every batch")
    parser.add_argument("--backend", default="cpu", help="what jit compiles for")
    parser.add_argument("--minify", action="store_true", help="shrink what fails to a script")
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
    asked = {n: getattr(options, n) for n in ("jax", "plans", "dynamic", "backend")}
    try:
        check_program(program, **asked)
    except Exception as e:
        text = minify(program, **asked) if options.minify else program.source()
        print(f"--- program {index}: {type(e).__name__}: {str(e)[:1500]}\n{text}\n")
        sys.stdout.flush()
        return False
    return True
