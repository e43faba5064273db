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


@pytest.mark.parametrize("package", [lumjax, jnp], ids=["lumjax", "numpy"])
def test_what_waits_is_what_the_type_checker_sees(package):
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    checked = [n for n in tree.body if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n)]
    seen: dict[str, set[str]] = {}
    for node in (n for block in checked for n in block.body):
        assert isinstance(node, ast.ImportFrom)
        module = str(node.module).removeprefix(package.__name__).removeprefix(".")
        seen.setdefault(module, set()).update(a.name for a in node.names)
    modules = seen.pop("")
    assert seen == {module: set(names) for module, names in package._NAMES.items()}
    assert modules == ({"fft", "linalg"} if package is jnp else set(LATER))


def test_rare_functions_of_numpy_are_loaded_on_first_use():
    rare = {f"lumjax.numpy.{n}" for n in ["fft", "linalg", *jnp._NAMES]}
    assert not loaded("import lumjax.numpy as jnp\njnp.sum(jnp.arange(3) + 1)") & rare
    code = "import lumjax.numpy as jnp\njnp.pad(jnp.ones(3), 1)\n"
    code += "assert 'pad' in vars(jnp)\njnp.linalg.norm(jnp.ones(3))"
    assert loaded(code) & rare == {"lumjax.numpy.padding", "lumjax.numpy.linalg"}


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
