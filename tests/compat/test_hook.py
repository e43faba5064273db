"""The import hook: JAX's module names give lumjax's own modules, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lumjax.compat.modules import MODULES, VERSION

ROOT = Path(__file__).resolve().parents[2]
START = "from lumjax import compat\ncompat.install()\n"


def run(code, *more, fails=False, cwd=None):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *(("-c", code) if code else ()), *more],
        capture_output=True, text=True, cwd=cwd, env=environment,
    )  # fmt: skip
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stderr if fails else done.stdout


def test_modules_are_lumjaxs_own():
    code = START + (
        "import importlib, sys\n"
        "from lumjax.compat.modules import MODULES\n"
        "for name, target in MODULES.items():\n"
        "    module = importlib.import_module(name)\n"
        "    assert module is sys.modules[target] is sys.modules[name], name\n"
        "    assert module.__spec__ is None or module.__spec__.name == target, name\n"
        "import jax, lumjax\n"
        "import jax.numpy as jnp, jax.experimental.shard_map, jax.scipy.stats.norm\n"
        "assert jnp is lumjax.numpy is jax.numpy and jax.jit is lumjax.jit\n"
        "from jax import lax, tree_util, Array\n"
        "assert (lax, tree_util, Array) == (lumjax.lax, lumjax.tree_util, lumjax.Array)\n"
        "assert 'numpy' in dir(jax) and 'jit' in dir(jax)\n"
        "assert not any(m.startswith('jax._src.xla') for m in sys.modules)\n"
    )
    run(code)


def test_versions_are_those_of_the_jax_that_lumjax_follows():
    code = START + (
        "import importlib.metadata as m, jax, jaxlib, jax.version, jaxlib.version\n"
        "print(jax.__version__, jaxlib.__version__, jax.version.__version__, m.version('jax'),\n"
        "      m.version('jaxlib'), *jax.__version_info__, sep=' ')\n"
        "assert m.distribution('jax').metadata['Name'] == 'jax'\n"
        "assert m.version('numpy') and [d for d in m.distributions() if d.name == 'numpy']\n"
    )
    assert run(code).split() == [VERSION] * 5 + VERSION.split(".")


def test_export_is_a_module():
    code = START + (
        "import jax, jax.export, jax.numpy as jnp\n"
        "from jax import export\n"
        "from jax.export import Exported, deserialize\n"
        "assert export is jax.export and jax.export.deserialize is deserialize\n"
        "made = export.export(jax.jit(lambda x, y: {'a': jnp.sin(x) @ y}))(\n"
        "    jax.ShapeDtypeStruct((2, 3), jnp.float32), jnp.ones(3))\n"
        "assert isinstance(made, Exported) and made.fun_name == '<lambda>'\n"
        "assert [a.shape for a in made.in_avals] == [(2, 3), (3,)]\n"
        "again = deserialize(bytearray(made.serialize()))\n"
        "x = jnp.arange(6.0).reshape(2, 3)\n"
        "want = jnp.sin(x) @ jnp.ones(3)\n"
        "assert jnp.allclose(again.call(x, jnp.ones(3))['a'], want)\n"
        "assert jnp.allclose(jax.jit(again.call)(x, jnp.ones(3))['a'], want)\n"
        "assert export.export(jax.jit(jnp.sin), platforms=['cpu'])(x).in_avals[0].shape == (2, 3)\n"
        "export.export(jax.jit(jnp.sin), platforms=['tpu'])\n"
    )
    assert "jax.export.export: requires platforms 'cpu' and 'cuda'" in run(code, fails=True)


def test_what_has_no_counterpart_is_missing():
    code = START + (
        "import importlib.util, jax\n"
        "find = importlib.util.find_spec\n"
        "assert find('jax.numpy') and not find('jax.pallas')\n"
        "for name in ('jax.experimental.pallas', 'jax.egraph', 'jaxlib.xla_client'):\n"
        "    try:\n"
        "        __import__(name)\n"
        "    except ModuleNotFoundError as e:\n"
        "        assert e.name == name, e\n"
        "    else:\n"
        "        raise AssertionError(name)\n"
        "jax.nonsense\n"
    )
    error = run(code, fails=True)
    assert "module 'jax' (which is lumjax here) has no attribute 'nonsense'" in error


def test_the_real_jax_is_refused():
    pytest.importorskip("jax")
    error = run("import jax\n" + START, fails=True)
    assert "HookError: lumjax.compat.install: requires a process that has not imported JAX" in error
    assert "Install the hook before anything imports jax" in error


def test_it_comes_off():
    pytest.importorskip("jax")
    code = (
        "import sys, logging\n" + START + "import jax, jax.numpy, jaxlib\n"
        "compat.install()\n"
        "assert compat.installed()\n"
        "compat.uninstall()\n"
        "assert not compat.installed() and not logging.getLogger('lumjax').handlers\n"
        "assert not [n for n in sys.modules if n.split('.')[0] in ('jax', 'jaxlib')]\n"
        "compat.uninstall()\n"
        "import jax\n"
        "assert jax.__file__.replace(chr(92), '/').endswith('jax/__init__.py'), jax.__file__\n"
    )
    run(code)


SCRIPT = """
import sys
import jax, jax.numpy as jnp
import helper
assert __name__ == "__main__"
print(jax.jit.__module__, sys.argv[1:], helper.VALUE, jax.grad(lambda x: jnp.sum(x**2))(3.0))
"""


def test_scripts_and_modules(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_text("VALUE = 7\n")
    want = "lumjax.decorator ['a', '-b'] 7 6.0\n"
    assert run(None, "-m", "lumjax.compat", str(tmp_path / "script.py"), "a", "-b") == want
    assert run(None, "-m", "lumjax.compat", "-m", "script", "a", "-b", cwd=tmp_path) == want
    assert "usage" in run(None, "-m", "lumjax.compat", fails=True)


def test_pytest(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import jax\nimport lumjax\n\ndef test_it():\n    assert jax.jit is lumjax.jit\n"
    )
    out = run(None, "-m", "pytest", "-q", "-p", "lumjax.compat", "-c", os.devnull, str(tmp_path))
    assert "1 passed" in out


LOG = """
import logging, sys
import jax, jax.numpy as jnp
class Keep(logging.Handler):
    def emit(self, record):
        print(record.getMessage())
logging.getLogger("jax").addHandler(Keep())
f = jax.jit(lambda x: x + 1)
f(1.0)
with jax.log_compiles():
    f(2.0)
    print("again")
    f(jnp.ones(3))
"""


def test_what_is_logged_reaches_listeners_of_jax():
    first, *lines = run(START + LOG).splitlines()
    assert first == "again"
    assert [line.partition(" for ")[0].partition(" in ")[0] for line in lines] == [
        "Finished tracing <lambda>",
        "Finished native compilation of jit(<lambda>)",
    ]


def test_every_name_is_a_module_of_jax():
    pytest.importorskip("jax")
    names = [n for n in MODULES if n not in ("jax", "jaxlib")]
    code = "import importlib\n" + "".join(f"importlib.import_module({n!r})\n" for n in names)
    run(code)
