"""Serve exported programs: `python -m lumjax.serve model.lumjax`."""

from __future__ import annotations

import argparse

import uvicorn

from lumjax.exporting.artefact import load
from lumjax.serve.app import DEFAULT, Limits, application


def main(arguments: list[str] | None = None) -> None:
    """Load the programs, run each once, and serve until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m lumjax.serve", description=__doc__)
    parser.add_argument(
        "artefact",
        nargs="+",
        help="a file that lumjax.export wrote; several may differ in the size of the axis: the "
        "smallest that has room is run",
    )
    parser.add_argument("--axis", type=int, help="the axis along which requests are joined")
    parser.add_argument("--host", default="127.0.0.1", help="default: this machine alone")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument(
        "--gather-ms",
        type=float,
        default=DEFAULT.gather * 1e3,
        help="how long a request waits for others to run with (default: %(default)s)",
    )
    parser.add_argument("--waiting", type=int, default=DEFAULT.waiting, help="requests that wait")
    parser.add_argument("--timeout", type=float, default=DEFAULT.timeout, help="seconds")
    parser.add_argument("--body-mb", type=float, default=DEFAULT.body / (1 << 20))
    options = parser.parse_args(arguments)
    limits = Limits(
        int(options.body_mb * (1 << 20)), options.waiting, options.timeout, options.gather_ms / 1e3
    )
    programs = [load(path) for path in options.artefact]
    for program in programs:
        program.warm()
    app = application(programs, axis=options.axis, limits=limits)
    uvicorn.run(app, host=options.host, port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
