"""`import lumjax` loads nothing heavy, and everything public can be imported."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import ops
from lumjax.trace.core import Primitive

HEAVY = [
    "egglog",
    "llvmlite",
    "scipy",
    "rich",
    "jax",
    "jaxlib",
    "hypothesis",
    "pytest",
    "matplotlib",
    "safetensors",
    "optax",
]


# What only compiling needs, of the package and of the standard library.
COMPILE_HALF = [
    "executable", "native", "placement", "stages", "layout", "timeline", "background", "insight",
    "profile", "recompute", "kernel", "egraph", "cpu", "judge",
]  # fmt: skip
# What a training step of an MLP does without.
RARE = [
    "api", "closed", "machine", "profiler", "lax", "grad.jacobian", "grad.linear",
    "control.branch", "control.check", "control.cond", "control.iteration", "control.scan",
    "control.scanning", "control.solve", "debugging.overflow", "debugging.values",
    "debugging.watch", "numpy.editing", "numpy.functional", "numpy.grids", "numpy.sorting",
    "ops.collective", "ops.conv", "ops.cumulative", "ops.dynamic", "ops.factor",
    "ops.fourier", "ops.fused", "ops.incomplete", "ops.index", "ops.matrix", "ops.rng",
    "ops.scatter_monoid", "ops.segment", "ops.sorting", "ops.special", "ops.spectral",
    "ops.schur", "ops.triangular", "ops.tridiagonal", "ops.windows",
]  # fmt: skip
SLOW = ["optree", "logging", "hashlib", "ipaddress", "pathlib", "subprocess", "tempfile", "json"]


def loaded(code: str, **environment: str) -> set[str]:
    """The loaded packages, and the modules lumjax.X, after running `code` in a new process."""
    script = (
        f"{code}\nimport sys\nnames = sorted(sys.modules)\nimport json\nprint(json.dumps(names))"
    )
    command, environment = [sys.executable, "-c", script], os.environ | environment
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    names = json.loads(out.stdout.splitlines()[-1])
    return {n.split(".")[0] for n in names} | {n for n in names if n.startswith("lumjax.")}


def compiling(names: set[str]) -> list[str]:
    return sorted(n for n in names if n.startswith("lumjax.") and n.split(".")[1] in COMPILE_HALF)


def test_import_is_light():
    names = loaded("import lumjax")
    assert not names & set(HEAVY)
    assert compiling(names) == []
    assert not (names - loaded("import numpy")) & set(SLOW)


def test_what_is_rare_is_loaded_on_first_use():
    code = "import lumjax, lumjax.numpy as jnp\n"
    step = (
        "lumjax.make_jaxpr(lumjax.grad(lambda w: jnp.mean(jnp.tanh(w @ w + 1) ** 2)))(jnp.eye(3))"
    )
    rare = {f"lumjax.{n}" for n in RARE}
    assert not loaded("import lumjax") & rare
    traced = {f"lumjax.{n}" for n in ["api", "closed", "profiler"]}  # make_jaxpr's own
    assert loaded(code + step) & rare == traced
    names = loaded(
        "\n".join(
            ["import importlib, lumjax", *[f"importlib.import_module('lumjax.{n}')" for n in RARE]]
        )
    )
    assert rare <= names  # all of them exist


def test_a_record_that_waits_is_found_by_its_name():
    code = "from lumjax.ops import PRIMITIVES\nfound = PRIMITIVES.get('sort')\n"
    code += "assert found.name == 'sort'\nassert PRIMITIVES.get('nonsense') is None"
    assert {n for n in loaded(code) if n.startswith("lumjax.ops.so")} == {"lumjax.ops.sorting"}
    assert all(p.name == name for name, p in ops.PRIMITIVES.items())
    records = {v.name for n in dir(ops) if isinstance(v := getattr(ops, n), Primitive)}
    assert records == set(ops.PRIMITIVES)


def test_a_method_that_waits_is_a_method():
    code = "import lumjax.numpy as jnp\nx = jnp.array([2, 1])\nassert callable(x.sum)"
    assert "lumjax.numpy.sorting" not in loaded(code)
    use = """
assert x.sort().tolist() == [1, 2] and type(x).sort(x).tolist() == [1, 2]
assert type(x).sort is jnp.sort is vars(type(x))["sort"]
import lumjax
assert lumjax.jit(lambda x: x.sort() + x.argsort())(x).tolist() == [2, 2]
"""
    assert "lumjax.numpy.sorting" in loaded(code + use)


def test_no_name_that_waits_is_also_a_module_of_its_package():
    # loading the module would put it where the name belongs
    for package in (lumjax, jnp, ops):
        names = {n for those in package._NAMES.values() for n in those}
        modules = {p.stem for p in Path(package.__file__).parent.iterdir()}
        assert not names & modules


def test_reports_are_loaded_by_the_first_one():
    assert not any(n.startswith("lumjax.report") for n in loaded("import lumjax"))
    code = "import lumjax\nlumjax.explain(lambda x: x + 1, 1.0)"
    assert "lumjax.report" in loaded(code)


def test_eager_code_is_light():
    code = "import lumjax, lumjax.numpy as jnp\n"
    code += "lumjax.grad(lambda x: jnp.sum(jnp.tanh(x)))(jnp.ones(3))"
    names = loaded(code)
    assert not names & set(HEAVY)
    assert compiling(names) == []


def test_tracing_does_not_compile():
    code = "import lumjax, lumjax.numpy as jnp\n"
    code += "lumjax.make_jaxpr(lumjax.jit(lumjax.grad(lambda x: x * x)))(1.0)"
    assert compiling(loaded(code)) == []


def test_threads_that_compile_first_at_the_same_time(tmp_path):
    code = """
import threading
import lumjax, lumjax.numpy as jnp
begin, found = threading.Barrier(4), []
def work(k):
    f = lumjax.jit(lambda x: jnp.sum(x * k))
    begin.wait()
    found.append(float(f(jnp.arange(4.0))) == 6.0 * k)
threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
assert found == [True] * 4
"""
    # an empty cache: programs that are on disk are recalled, not compiled
    names = loaded(code, LUMJAX_CACHE_DIR=str(tmp_path))
    assert "lumjax.executable" in names
    assert "lumjax.cpu.runtime" in names
    recalled = loaded(code, LUMJAX_CACHE_DIR=str(tmp_path))
    assert "lumjax.egraph" not in recalled
    assert "lumjax.cpu.runtime" in recalled


@pytest.mark.parametrize(
    "name",
    [
        "numpy",
        "lax",
        "nn",
        "random",
        "optim",
        "tree",
        "tree_util",
        "scipy.special",
        "flatten_util",
        "debug",
        "ad_checkpoint",
        "profiler",
        "typing",
        "dtypes",
        "testing",
        "errors",
        "nn.initializers",
        "numpy.linalg",
    ],
)
def test_modules_import_by_name(name):
    loaded(f"import lumjax.{name}")


LATER = sorted(lumjax._LATER)


@pytest.mark.parametrize("package", [lumjax, jnp, ops], ids=["lumjax", "numpy", "ops"])
def test_what_waits_is_what_the_type_checker_sees(package):
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    checked = [n for n in tree.body if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n)]
    seen: dict[str, set[str]] = {}
    for node in (n for block in checked for n in block.body):
        assert isinstance(node, ast.ImportFrom)
        module = str(node.module).removeprefix(package.__name__).removeprefix(".")
        seen.setdefault(module, set()).update(a.name for a in node.names)
    modules = seen.pop("", set())
    assert seen == {module: set(names) for module, names in package._NAMES.items()}
    assert modules == {lumjax: set(LATER), jnp: {"fft", "linalg"}, ops: set()}[package]


def test_rare_functions_of_numpy_are_loaded_on_first_use():
    rare = {f"lumjax.numpy.{n}" for n in ["fft", "linalg", *jnp._NAMES]}
    assert not loaded("import lumjax.numpy as jnp\njnp.sum(jnp.arange(3) + 1)") & rare
    code = "import lumjax.numpy as jnp\njnp.pad(jnp.ones(3), 1)\n"
    code += "assert 'pad' in vars(jnp)\njnp.linalg.norm(jnp.ones(3))"
    expected = {f"lumjax.numpy.{n}" for n in ["linalg", "padding", "sorting"]}  # pads by medians
    assert loaded(code) & rare == expected


def test_star_gives_what_waits_too():
    code = "from lumjax.numpy import *\nassert float(nanstd(pad(ones(2), 1))) == 0.5\nlinalg, fft"
    assert "lumjax.numpy.nans" in loaded(code)


def test_public_modules_are_loaded_on_first_use():
    assert not loaded("import lumjax") & {f"lumjax.{n}" for n in LATER}
    lines = [f"assert lumjax.{n}.__name__ == 'lumjax.{n}'" for n in LATER]
    names = loaded("\n".join(["import lumjax", *lines]))
    assert {f"lumjax.{n}" for n in LATER} <= names


@pytest.mark.parametrize("name", LATER)
def test_public_modules_can_be_imported_from_the_package(name):
    assert f"lumjax.{name}" in loaded(f"from lumjax import {name}")


def test_the_package_lists_what_it_has():
    assert set(LATER) <= set(dir(lumjax))
    assert {"grad", "jit", "lax", "numpy", "vmap"} <= set(dir(lumjax))
    with pytest.raises(AttributeError, match="nonsense"):
        lumjax.nonsense
