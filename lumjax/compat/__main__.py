"""`python -m lumjax.compat script.py [args]` and `python -m lumjax.compat -m module [args]`."""

from __future__ import annotations

import os
import runpy
import sys

from lumjax.compat.finder import install

USAGE = "usage: python -m lumjax.compat (script.py | -m module) [args]"


def main(arguments: list[str]) -> None:
    """Run a program as Python itself would, except that its `import jax` gives lumjax."""
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["-m"]:
        print(USAGE, file=sys.stderr)
        raise SystemExit(0 if arguments and arguments[0] != "-m" else 2)
    install()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
