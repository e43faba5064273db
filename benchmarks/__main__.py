"""Run one measurement: `python -m benchmarks mnist`, `... dispatch`, `... derive`, `... speed`."""

from __future__ import annotations

import argparse

from benchmarks import derive, dispatch, mnist, speed

MEASUREMENTS = {
    "mnist": mnist.main,
    "dispatch": dispatch.main,
    "derive": derive.main,
    "speed": speed.main,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(MEASUREMENTS))
    parser.add_argument("--out", default="out", help="folder of the JSON result")
    options = parser.parse_args()
    MEASUREMENTS[options.name](options.out)


if __name__ == "__main__":
    main()
