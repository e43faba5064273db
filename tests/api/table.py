"""The table of cases: text files with a section per name or per family of names.

[jnp.sin jnp.cos]       the names that the lines below exercise; `@` stands for each
@(f34)                  one case: values, then gradients by every float operand it names
@({un})                 one case for each member of a set
~ @(f34)                without gradients (random draws, kinks of their own)
1e-3 @(f34)             with this tolerance
! why | @(f34)          lumjax differs on purpose here, and the test sees to it that it does
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent

SETS = {
    # operands of functions of one array
    "un": "f34; e4; f0; f04; s; 2.5; 3; i34; i0; b4; u4; bf34; h34; c4; w; i8".split("; "),
    "real": "f34; e4; f0; f04; s; 2.5; 3; i34; i0; b4; u4; bf34; h34; w; i8".split("; "),
    "float": "f34; e4; f0; f04; s; bf34; h34; w".split("; "),
    "unit": "p34; e4; f0; f04; 0.5; 1; b4; p34.astype('bfloat16'); p34.astype('float16')".split(
        "; "
    ),
    "int": "i34; i0; u4; b4; i8; k; 3; True; u32".split("; "),
    # of two
    "bi": (
        "f34, g34; f34, f4; f34, s; f31, f14; s, s; f34, 2.5; 3, i34; i34, j34; u4, i4; bf4, h4; "
        "bf34, f4; bf4, 2; w, wi; f04, f4; f0, f1; e4, f4; b4, b4; b4, 2; i4, f4; c4, f4; i8, i16; "
        "2, 3; f34, f3"
    ).split("; "),
    "rebi": (
        "f34, g34; f34, f4; f34, s; f31, f14; s, s; f34, 2.5; 3, i34; i34, j34; u4, i4; bf4, h4; "
        "bf34, f4; bf4, 2; w, wi; f04, f4; f0, f1; e4, f4; b4, b4; b4, 2; i4, f4; i8, i16; 2, 3; "
        "f34, f3"
    ).split("; "),
    "lax2": (
        "f34, g34; f34, f34; s, s; bf34, bf34; i34, j34; f0, f0; f04, f04; f4, 2.0; u4, u4; "
        "f34, i34; f34, f4; e4, f4"
    ).split("; "),
    # reductions
    "red": (
        "f34; f34, axis=0; f34, axis=-1, keepdims=True; f234, axis=(0, 2); f04, axis=1; s; i34; "
        "i34, axis=1; b34, axis=0; u4; bf34, axis=1; h34; n34, axis=0; f34, 0; f34, None; "
        "f34, axis=2; 3; i8"
    ).split("; "),
}


@dataclass(frozen=True)
class Case:
    """One expression about one name."""

    name: str
    number: int
    expression: str
    gradient: bool = True
    tolerance: float | None = None
    differs: str = ""


HEAD = re.compile(r"^\[((?:(?:j[na][px]\.[\w.]+|\.at\[\]\.\w+) ?)+)\]$", flags=re.MULTILINE)
LINE = re.compile(
    r"(?P<plain>~ )?(?:(?P<tol>[0-9.]+e-?\d+) )?(?:! (?P<why>[^|]*) \| )?(?P<rest>.*)"
)


def _expanded(text: str) -> list[str]:
    parts = re.split("{(" + "|".join(SETS) + ")}", text)
    choices = [SETS[p] if k % 2 else [p] for k, p in enumerate(parts)]
    return ["".join(choice) for choice in itertools.product(*choices)]


def _section(names: list[str], body: list[str]) -> list[tuple[str, str, re.Match[str]]]:
    found: list[tuple[str, str, re.Match[str]]] = []
    for line in body:
        match = LINE.fullmatch(line)
        assert match, line
        for name in names:
            found.extend((name, e.replace("@", name), match) for e in _expanded(match["rest"]))
    return found


def parse(text: str) -> list[tuple[str, str, re.Match[str]]]:
    """(name, expression, the line's marks) of every case of a file."""
    found: list[tuple[str, str, re.Match[str]]] = []
    _, *rest = HEAD.split(text)
    for head, body in zip(rest[::2], rest[1::2], strict=True):
        lines = [x.strip() for x in body.splitlines()]
        found += _section(head.split(), [x for x in lines if x and not x.startswith("#")])
    return found


@cache
def cases() -> tuple[Case, ...]:
    """Every case; a later line about the same expression replaces an earlier one, so that a family
    can have exceptions.
    """
    latest: dict[tuple[str, str], re.Match[str]] = {}
    for path in sorted(HERE.glob("cases/*.txt")):
        for name, expression, match in parse(path.read_text(encoding="utf-8")):
            latest[name, expression] = match
    counts: dict[str, int] = {}
    out: list[Case] = []
    for (name, expression), match in latest.items():
        counts[name] = number = counts.get(name, -1) + 1
        tolerance = float(match["tol"]) if match["tol"] else None
        out.append(
            Case(name, number, expression, not match["plain"], tolerance, match["why"] or "")
        )
    return tuple(out)
