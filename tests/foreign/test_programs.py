"""Programs written with libraries on top of JAX train as they do on JAX: the same losses.

The libraries are not among the tests' requirements: `pip install flax==0.12.8 equinox==0.13.8`.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
# What the programs print on JAX 0.10.2.
LOSSES = {
    "equinox_mlp": [0.5125, 0.3957, 0.2858, 0.1659, 0.0901],
    "equinox_recurrent": [5.6495, 4.5304, 3.8324, 3.5933, 2.3177],
    "flax_nnx": [1.1406, 1.0510, 0.9619, 0.8082, 0.6080],
    "flax_linen": [0.7378, 0.4049, 0.2502, 0.1475, 0.0774],
    "flax_rnn": [0.9748, 0.3183, 0.0988, 0.0697, 0.0461],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_model_trains_as_on_jax(name):
    library = name.partition("_")[0]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    program = HERE / "programs" / f"{name}.py"
    done = subprocess.run(
        [sys.executable, "-m", "lumjax.compat", str(program)],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    losses = [float(line) for line in done.stdout.splitlines()]
    assert losses == pytest.approx(LOSSES[name], abs=2e-3)
