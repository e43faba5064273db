"""`python -m benchmarks.race`: see contest.py."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.race.contest import Result, run, written
from benchmarks.race.docs import into_docs
from benchmarks.race.peer import CLOCKS, PEERS
from benchmarks.race.roofline import Roof
from benchmarks.race.tables import charts, line, markdown


def main(given: list[str] | None = None) -> None:
    """Run the rows, print each as it ends, write JSON, Markdown and charts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks race", description=__doc__)
    parser.add_argument("--rows", nargs="*", default=[], help="words in names, or groups")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS)
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: on a busy machine")
    parser.add_argument("--out", default="out", help="folder of the results")
    parser.add_argument("--docs", action="store_true", help="put tables and charts into the docs")
    options = parser.parse_args(given)
    peers = list(dict.fromkeys(["lumjax", *options.peers]))
    results: list[Result] = []
    roofs: dict[int, Roof] = {}
    folder = Path(options.out)
    for result, top in run(options.rows, peers, options.threads, options.clock):
        results.append(result)
        roofs[result.threads] = top
        print(line(result), flush=True)
        written(results, roofs, folder)
    text = markdown(results, peers)
    (folder / "race.md").write_text(text)
    drawn = charts(results, peers, folder)
    print(text)
    if options.docs:
        into_docs(results, roofs, text, drawn, options.clock)


if __name__ == "__main__":
    main()
