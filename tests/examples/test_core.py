"""Every jitted program of the examples is one of core primitives, of which none runs through `eval`
on the CPU but those that are listed here.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest

import lumjax
from lumjax.cpu.math import supported
from lumjax.expansion import expand
from lumjax.kernel.region import Alone, cut
from lumjax.trace.core import sub_jaxprs
from lumjax.trace.form import Opaque
from lumjax.trace.simplify import simplify
from tests.examples import inventory

pytest.importorskip("matplotlib")
ROOT = Path(__file__).resolve().parents[2]
FOREIGN = Path(os.environ.get("LUMJAX_FOREIGN", ROOT / ".venv" / "foreign"))

# All of the examples are made of these: elementwise operations, ...
CORE = {
    "add", "mul", "rem", "idiv", "recip", "sqrt", "exp2", "log2", "sin", "floor", "lt", "and", "or",
    "xor", "shift_left", "shift_right_logical", "select", "cast", "bitcast",
}  # fmt: skip
# ... movement, sums and products, loops, keys, a barrier, ...
CORE |= {
    "iota", "broadcast_in_dim", "reshape", "transpose", "slice", "pad", "rev", "concatenate",
    "gather", "scatter_add", "reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or",
    "dot_general", "conv_general_dilated", "scan", "random_wrap", "random_unwrap", "barrier",
}  # fmt: skip
# ... and what runs through `eval`, with the reason.
BY_EVAL = {"gp": {"cholesky": "runs in LAPACK", "triangular_solve": "runs in BLAS"}}
CORE |= {name for reasons in BY_EVAL.values() for name in reasons}

EXAMPLES = [("train", name) for name in inventory.TRAIN]
EXAMPLES += [("infer", name) for name in inventory.INFER]
by_example = pytest.mark.parametrize(("folder", "name"), EXAMPLES)


@pytest.fixture
def programs(folder, name, monkeypatch):
    """The example's programs: (what, function, arguments)."""
    build, needs = getattr(inventory, folder.upper())[name]
    pytest.importorskip("tokenizers" if folder == "infer" else "numpy")
    for path in (*FOREIGN.glob("*-[0-9]*/"), ROOT / "examples" / folder):
        monkeypatch.syspath_prepend(str(path))
    try:
        if needs:
            pytest.importorskip("onnx")
            importlib.metadata.distribution(needs)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"the weights come with {needs}")
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield list(build(module))
    for shared in ("common", "shared", "sentences"):
        sys.modules.pop(shared, None)


def equations(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in sub_jaxprs(eqn.params):
            yield from equations(inner)


def evaluated(jaxpr):
    """(name, reason) of what does not run in kernels, in loops and branches too."""
    for step in cut(simplify(expand(simplify(jaxpr))[0]), native=supported):
        if isinstance(step, Alone):
            if isinstance(step.form, Opaque):
                yield step.eqn.prim.name, step.form.why
            for inner in sub_jaxprs(step.eqn.params):
                yield from evaluated(inner)


@by_example
def test_programs_are_made_of_core_primitives(folder, name, programs):
    for what, function, args in programs:
        core = lumjax.make_jaxpr(function, level="core")(*args).jaxpr
        used = {e.prim.name for e in equations(core)}
        assert used, what
        assert used <= CORE, what


@by_example
def test_nothing_runs_through_eval_but_what_is_listed(folder, name, programs):
    for what, function, args in programs:
        found = dict(evaluated(lumjax.make_jaxpr(function)(*args).jaxpr))
        reasons = BY_EVAL.get(name, {})
        assert found.keys() == reasons.keys(), what
        assert all(words in found[prim] for prim, words in reasons.items()), what


def test_every_example_is_in_the_inventory():
    listed = {(folder, f"{name}.py") for folder, name in EXAMPLES}
    helpers = {("train", "common.py"), ("infer", "shared.py")}
    there = {(p.parent.name, p.name) for p in (ROOT / "examples").glob("*/*.py")}
    assert there == listed | helpers


@by_example
def test_every_jitted_function_is_in_the_inventory(folder, name):
    """One program at least for each `jit` in the file; a reference's is not the example's."""
    text = (ROOT / "examples" / folder / f"{name}.py").read_text()
    written = len(re.findall(r"lumjax\.jit\b", text)) - len(re.findall(r"jit\(model\)", text))
    build = getattr(inventory, folder.upper())[name][0]
    listed = len(set(re.findall(r"yield f?\"(?:\{\w+(?:\.\w+)?\} )?([^\"]+)\"", source(build))))
    assert listed >= written


def source(build):
    """A builder's text, with that of another that it yields from."""
    module = sys.modules[build.__module__]
    text = Path(module.__file__).read_text()
    (found,) = re.findall(rf"^def {build.__name__}\(.*?(?=^def |^# |\Z)", text, re.M | re.S)
    more = re.findall(r"yield from (\w+)\(", found)
    return found + "".join(source(getattr(module, name)) for name in more)
