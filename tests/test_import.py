"""`import lumjax` loads nothing heavy, and everything public can be imported."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import lumjax

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


def loaded(code: str) -> set[str]:
    names = "sorted({m.split('.')[0] for m in sys.modules})"
    script = f"{code}\nimport sys, json\nprint(json.dumps({names}))"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(out.stdout.splitlines()[-1]))


def test_import_is_light():
    assert not loaded("import lumjax") & set(HEAVY)


def test_eager_code_is_light():
    code = "import lumjax, lumjax.numpy as jnp\n"
    code += "lumjax.grad(lambda x: jnp.sum(jnp.tanh(x)))(jnp.ones(3))"
    assert not loaded(code) & set(HEAVY)


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


def test_testing_is_loaded_on_first_use():
    code = (
        "import lumjax, sys\nassert 'lumjax.testing' not in sys.modules\nlumjax.testing.check_grads"
    )
    assert "lumjax" in loaded(code)
    with pytest.raises(AttributeError, match="nonsense"):
        lumjax.nonsense
