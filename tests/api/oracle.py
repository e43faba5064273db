"""JAX in a process of its own: cases go in by value, outcomes come back by value.

Run as a script it is that process; imported it is the way to it, one process per test process.
"""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class Oracle:
    """The other end of a pipe to a process that has imported JAX."""

    def __init__(self) -> None:
        # Unoptimised code is quicker to make, and the answers are the same to rounding.
        flags = "--xla_backend_optimization_level=0 --xla_cpu_multi_thread_eigen=false"
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": flags,
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "ignore",
        }
        command = [sys.executable, "-m", "tests.api.oracle"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        atexit.register(self.close)

    def ask(self, question: str, *arguments: Any) -> Any:
        """The answer of one of the functions below `ANSWERS`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump((question, arguments), self._process.stdin)
        self._process.stdin.flush()
        return pickle.load(self._process.stdout)

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.wait()
        self._process.stdout.close()  # type: ignore[union-attr]


@cache
def oracle() -> Oracle:
    """The one oracle of this process."""
    return Oracle()


def _serve() -> None:
    """Answer until the pipe closes; what JAX prints goes elsewhere."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import jax

    from tests.api.operands import namespace
    from tests.api.outcome import evaluate, gradients
    from tests.api.signatures import parameters

    names = namespace(jax, jax.numpy)
    answers = {
        "evaluate": lambda expression: evaluate(jax, names, expression),
        "gradients": lambda expression: gradients(jax, names, expression),
        "parameters": lambda name: parameters(jax, name),
    }
    while True:
        try:
            question, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(answers[question](*arguments), output)
        output.flush()


if __name__ == "__main__":
    _serve()
