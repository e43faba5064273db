"""Programs that fail are shrunk to a few lines that fail when they are run by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from lumjax import ops
from lumjax.errors import ArgumentValueError
from lumjax.testing import check_vmap, minify
from lumjax.testing.edits import (
    Scope,
    all_values,
    cleaned,
    smaller_programs,
    smaller_scopes,
    without_dead,
)
from lumjax.testing.edits import _cut as cut
from lumjax.testing.programs import Program, RandomChooser, build
from lumjax.testing.steps import Body, Node

ROOT = Path(__file__).resolve().parents[2]

# Each makes one rule of a primitive wrong, as text, so that a script can be given the fault too.
FAULTS = {
    "derivative": (
        "erf",
        """
from lumjax import ops
erf, right = ops.PRIMITIVES["erf"], ops.PRIMITIVES["erf"].jvp
def wrong(primals, tangents, **params):
    out, moved = right(primals, tangents, **params)
    return out, [None if t is None else ops.mul(t, 1.5) for t in moved]
object.__setattr__(erf, "jvp", wrong)
""",
        "testing.check_grads(f, args, rtol=1e-3, atol=1e-3)",
    ),
    "transpose": (
        "cumsum",
        """
from lumjax import ops
cumsum, right = ops.PRIMITIVES["cumsum"], ops.PRIMITIVES["cumsum"].transpose
def wrong(cts, inputs, **params):
    return [None if t is None else ops.neg(t) for t in right(cts, inputs, **params)]
object.__setattr__(cumsum, "transpose", wrong)
""",
        "testing.check_adjoint(f, args)",
    ),
    "batch": (
        "sort",
        """
from lumjax import ops
sort, right = ops.PRIMITIVES["sort"], ops.PRIMITIVES["sort"].batch
def wrong(axis, args, dims, **params):
    outs, dims = right(axis, args, dims, **params)
    return [ops.neg(o) for o in outs], dims
object.__setattr__(sort, "batch", wrong)
""",
        "testing.check_vmap(f, args)",
    ),
}


@contextmanager
def planted(fault):
    name, text, _ = FAULTS[fault]
    record = ops.PRIMITIVES[name]
    rules = {k: getattr(record, k) for k in ("jvp", "transpose", "batch")}
    exec(text, {})
    try:
        yield
    finally:
        for k, rule in rules.items():
            object.__setattr__(record, k, rule)


def run_alone(text, folder):
    script = folder / "script.py"
    script.write_text(text, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("fault", "seed", "flow"),
    [("derivative", 132, True), ("transpose", 17, False), ("batch", 26, False)],
)
def test_a_planted_fault_is_a_few_lines(fault, seed, flow, tmp_path):
    name, text, check = FAULTS[fault]
    program = build(RandomChooser(seed), flow=flow)
    assert len(program.source().splitlines()) >= 9
    with planted(fault):
        found = minify(program, check)
    assert [n.name for n in found.program.nodes] == [name]
    assert len(found.program.inputs) == len(found.program.outputs) == 1
    assert found.program.inputs[0].size <= 3
    script = str(found)
    assert len(script.split("# AssertionError")[0].strip().splitlines()) <= 20
    code, said = run_alone(text + script, tmp_path)
    assert code == 1
    assert "AssertionError" in said
    if fault == "derivative":  # it is the fault that it shows
        assert run_alone(script, tmp_path) == (0, "")


def test_the_first_check_that_fails_is_the_one():
    with planted("batch"):
        found = minify(build(RandomChooser(28)))
    assert "check_vmap" in found.check.text
    assert found.check.wide
    assert "enable_x64" in str(found)
    assert "float64" in str(found)


# ---- every kind of edit leaves the results as they were, or what it says


def outputs(program):
    return program.fn(*program.args)


def same(a, b):
    for x, y in zip(outputs(a), outputs(b), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


@pytest.mark.parametrize("seed", range(12))
def test_cutting_and_cleaning_keep_the_results(seed):
    program = build(RandomChooser(seed), flow=seed % 3 > 0)
    same(cleaned(program), program)
    values = all_values(program)
    for index in range(len(program.nodes)):
        same(cut(program, index, values), program)


def test_dead_steps_go_in_functions_too():
    body = Body(1, (Node("sin", (2,)), Node("exp", (0,))), (3,))
    nodes = (Node("cos", (0,)), Node("jit", (0, 0), (), (body,)), Node("neg", (2,)))
    scope = without_dead(Scope(nodes, 1, (3,)))
    # `cos` is gone, so that the function's parameter is v1, its sine v2
    kept = Body(1, (Node("sin", (1,)),), (2,))
    assert scope.nodes == (Node("jit", (0, 0), (), (kept,)), Node("neg", (1,)))
    assert scope.outputs == (2,)


def test_a_function_in_its_steps_place():
    x = np.asarray([0.25, -1.5], np.float32)
    inner = Body(2, (Node("mul", (4, 5)), Node("sin", (1,))), (6,))
    body = Body(2, (Node("jit", (2, 3), (), (inner,)),), (4,))
    nodes = (Node("exp", (0,)), Node("checkpoint", (0, 1), (), (body,)), Node("neg", (2,)))
    program = Program((x,), nodes, (3,))
    scopes = smaller_scopes(Scope(nodes, 1, (3,)))
    flat = [s for s in scopes if [n.name for n in s.nodes] == ["exp", "jit", "neg"]]
    assert [s.nodes[1].args for s in flat] == [(0, 1), (1, 0)]
    for scope in flat:  # a product: either order will do
        same(Program((x,), scope.nodes, scope.outputs), program)


def test_candidates_are_many_and_mostly_valid():
    program = build(RandomChooser(2), flow=True)
    valid = total = 0
    for candidate in smaller_programs(program):
        total += 1
        try:
            outputs(candidate)
        except Exception:
            continue
        valid += 1
    assert total > 20
    assert valid > total // 3


# ---- what it is asked for


def test_a_program_that_passes_is_refused():
    with pytest.raises(ArgumentValueError, match="requires a program that fails"):
        minify(build(RandomChooser(1), 2, ["sin"]), check_vmap)


def test_a_check_must_be_one_that_a_script_can_name():
    with pytest.raises(ArgumentValueError, match="can import"):
        minify(build(RandomChooser(1), 2, ["sin"]), lambda f, args: None)


def positive(f, args):
    assert all((np.asarray(y) >= 0).all() for y in f(*args))


def test_a_check_of_ones_own(tmp_path):
    found = minify(build(RandomChooser(10)), positive)
    assert found.program.nodes == ()
    assert f"from {positive.__module__} import positive" in str(found)
    code, said = run_alone(str(found), tmp_path)
    assert code == 1
    assert "AssertionError" in said


def test_tries_are_counted():
    program = build(RandomChooser(10))
    assert minify(program, positive, tries=0).program is program
    few = minify(program, positive, tries=2)
    assert len(few.program.nodes) <= len(program.nodes)
