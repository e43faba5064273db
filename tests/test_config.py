"""Settings: environment, update, scopes, threads."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax.config import config, enable_x64
from lumjax.errors import ArgumentTypeError, ArgumentValueError


@pytest.fixture
def restored():
    before = config.snapshot()
    yield
    for name in ("enable_x64", "grad_compat", "interpret", "search_seconds"):
        config.update(name, getattr(before, name))


def test_update_and_jaxs_prefix(restored):
    config.update("jax_enable_x64", True)
    assert config.enable_x64
    assert config.jax_enable_x64
    assert jnp.zeros(2).dtype == np.float64
    config.update("enable_x64", False)
    assert jnp.zeros(2).dtype == np.float32


def test_a_scope_ends_also_when_it_raises():
    with pytest.raises(KeyError), config.scope(enable_x64=True):
        raise KeyError
    assert not config.enable_x64


def test_scopes_nest():
    with config.scope(enable_x64=True), config.scope(grad_compat="jax"):
        assert config.enable_x64
        assert config.grad_compat == "jax"
        with enable_x64(False):
            assert not config.enable_x64
        assert config.snapshot().enable_x64
    assert config.grad_compat == "lumjax"


def test_scopes_belong_to_their_thread():
    seen = []
    with config.scope(enable_x64=True):
        thread = threading.Thread(target=lambda: seen.append(config.enable_x64))
        thread.start()
        thread.join()
    assert seen == [False]


def test_bad_settings():
    for name, value, error in [
        ("no_such_setting", 1, ArgumentValueError),
        ("enable_x64", 1, ArgumentTypeError),
        ("grad_compat", "torch", ArgumentValueError),
        ("seed", "3", ArgumentTypeError),
    ]:
        with pytest.raises(error):
            config.update(name, value)
        with pytest.raises(error), config.scope(**{name: value}):
            pass
    with pytest.raises(AttributeError):
        config.no_such_setting


def test_an_integer_is_a_float_setting(restored):
    config.update("search_seconds", 3)
    assert config.search_seconds == 3.0


def test_the_semantic_key_follows_what_programs_depend_on():
    before = config.semantic_key()
    with config.scope(grad_compat="jax"):
        assert config.semantic_key() != before
    with config.scope(search_seconds=1.0):
        assert config.semantic_key() == before


def test_jit_retraces_when_x64_changes():
    f = lumjax.jit(lambda: jnp.ones(2))
    assert f().dtype == np.float32
    with enable_x64():
        assert f().dtype == np.float64
    assert f().dtype == np.float32


@pytest.mark.parametrize(
    ("variable", "expression", "value"),
    [
        ("LUMJAX_ENABLE_X64=1", "config.enable_x64", "True"),
        ("LUMJAX_GRAD_COMPAT=jax", "config.grad_compat", "jax"),
        ("LUMJAX_SEED=7", "config.seed", "7"),
        ("LUMJAX_CACHE=off", "config.cache", "False"),
        ("LUMJAX_SEARCH_SECONDS=2.5", "config.search_seconds", "2.5"),
    ],
)
def test_environment(variable, expression, value):
    name, _, text = variable.partition("=")
    code = f"import os; os.environ[{name!r}] = {text!r}\n"
    code += f"from lumjax.config import config\nprint({expression})"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == value


@pytest.mark.parametrize(("name", "text"), [("LUMJAX_ENABLE_X64", "perhaps"), ("LUMJAX_SEED", "x")])
def test_bad_environment(name, text):
    code = f"import os; os.environ[{name!r}] = {text!r}\nimport lumjax.config"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert out.returncode != 0
    assert name in out.stderr


@pytest.mark.parametrize(
    ("name", "accepted", "refused"),
    [
        ("jax_platform_name", "cpu", "gpu"),
        ("jax_numpy_rank_promotion", "allow", "raise"),
        ("jax_default_prng_impl", "threefry2x32", "rbg"),
    ],
)
def test_flags_that_only_jax_has(name, accepted, refused):
    """A value that would have to change something is refused, the rest is forgotten."""
    config.update(name, accepted)
    with pytest.raises(ArgumentValueError):
        config.update(name, refused)
