"""Run one measurement: `python -m benchmarks NAME` with a name of the table below."""

from __future__ import annotations

import argparse

from benchmarks import (
    calibrate,
    cost,
    decode,
    derive,
    dispatch,
    examples,
    gpt,
    gpu,
    memory,
    mnist,
    search,
    serve,
    speed,
    steps_table,
)
from benchmarks.race import __main__ as race

MEASUREMENTS = {
    "calibrate": calibrate.main,
    "cost": cost.main,
    "decode": decode.main,
    "derive": derive.main,
    "dispatch": dispatch.main,
    "gpt": gpt.main,
    "memory": memory.main,
    "mnist": mnist.main,
    "search": search.main,
    "serve": serve.main,
    "speed": speed.main,
}
# Those that take arguments of their own.
PARTS = {"gpu": gpu.main, "programs": examples.main, "steps": steps_table.main}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted([*MEASUREMENTS, *PARTS, "race"]))
    parser.add_argument("--out", default="out", help="folder of the JSON result")
    options, rest = parser.parse_known_args()
    if options.name == "race":
        race.main([*rest, "--out", options.out])
        return
    if options.name in PARTS:
        PARTS[options.name](options.out, rest)
        return
    if rest:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    MEASUREMENTS[options.name](options.out)


if __name__ == "__main__":
    main()
