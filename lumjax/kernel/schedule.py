"""Sizes that loop programs may be made with: the parameters that measuring may choose.

Every program has a rule for its sizes; a schedule replaces some of them. Any schedule gives a right
kernel, or one that verification refuses; only the time differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lumjax.record import record
from lumjax.target import Target

RULE, PANELS, IN_PLACE = 0, 1, 2  # how a contraction's plain right side is read


@record
class Schedule:
    """0 leaves a size to the program's own rule."""

    rows: int = 0  # of a register tile
    vectors: int = 0  # of a register tile: its columns, in vector registers
    height: int = 0  # rows of a job's block
    width: int = 0  # columns of a tile along a stream
    right: int = RULE

    def __str__(self) -> str:
        words = {
            "rows": "rows of a register tile",
            "vectors": "vectors across",
            "height": "rows of a block",
            "width": "columns of a stream tile",
        }
        parts = [f"{getattr(self, n)} {text}" for n, text in words.items() if getattr(self, n)]
        parts += {RULE: [], PANELS: ["right side in panels"], IN_PLACE: ["right side in place"]}[
            self.right
        ]
        return ", ".join(parts)


DEFAULT = Schedule()


def variants(programs: Sequence[str], target: Target) -> Iterator[list[dict[str, int]]]:
    """For a kernel of these loop programs: one list of changes to a schedule after the other."""
    tiles = _register_tiles(target)
    if "CONTRACT" in programs:
        yield tiles
        yield [{"height": h} for h in (24, 96, 384)]
        yield [{"right": PANELS}, {"right": IN_PLACE}]
    if "FOLD" in programs:
        yield [{"height": h} for h in (32, 128)]
        yield [{"width": w} for w in (128, 512)]
        yield tiles


def _register_tiles(target: Target) -> list[dict[str, int]]:
    """Register tiles that leave room for one row of the right side and one value of the left."""
    shapes = (
        [(12, 2), (8, 3), (6, 4)] if target.vector_registers >= 32 else [(8, 1), (4, 2), (4, 3)]
    )
    room = target.vector_registers - 1
    return [{"rows": r, "vectors": v} for r, v in shapes if r * v + v <= room]


def changed(schedule: Schedule, change: dict[str, int]) -> Schedule:
    """The schedule with some sizes replaced."""
    return replace(schedule, **change)
