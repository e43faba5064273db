"""Parts of a program that can run one after the other: none depends on itself through others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def acyclic(
    parts: Sequence[Sequence[int]], below: Sequence[Sequence[int]], alone: Sequence[bool]
) -> list[list[int]]:
    """The parts of equations, those in a circle cut and joined until there is none.

    `below[k]` are equations that k waits for, all smaller than k; `alone` ones are parts of their
    own. A circle is cut where an equation that runs alone lies between; what is in a circle
    without one is joined.
    """
    if all(len(c) == 1 for c in circles(parts, below)):
        return [list(p) for p in parts]
    depth: list[int] = []  # alone equations on the longest way to each equation
    for k, makers in enumerate(below):
        depth.append(max((depth[m] + (alone[m] or alone[k]) for m in makers), default=0))
    pieces: dict[tuple[int, int], list[int]] = {}
    for n, part in enumerate(parts):
        for k in part:
            pieces.setdefault((n, depth[k]), []).append(k)
    cut = list(pieces.values())
    return [sorted(k for n in circle for k in cut[n]) for circle in circles(cut, below)]


def circles(parts: Sequence[Sequence[int]], below: Sequence[Sequence[int]]) -> list[list[int]]:
    """The numbers of parts that depend on each other, together; most parts are alone."""
    where = {k: n for n, part in enumerate(parts) for k in part}
    needs = [
        list(dict.fromkeys(where[m] for k in part for m in below[k] if where.get(m, n) != n))
        for n, part in enumerate(parts)
    ]
    users: list[list[int]] = [[] for _ in parts]
    for n, wanted in enumerate(needs):
        for m in wanted:
            users[m].append(n)
    found: list[list[int]] = []
    seen = [False] * len(parts)
    for start in reversed(list(_finished(needs))):  # Kosaraju: strongly connected components
        if not seen[start]:
            seen[start] = True
            circle = [start]
            for n in circle:
                fresh = [u for u in users[n] if not seen[u]]
                for u in fresh:
                    seen[u] = True
                circle += fresh
            found.append(sorted(circle))
    return sorted(found)


def _finished(needs: Sequence[Sequence[int]]) -> Iterator[int]:
    """Every number after all that it leads to, as far as circles allow."""
    seen = [False] * len(needs)
    for start in range(len(needs)):
        stack = [] if seen[start] else [(start, iter(needs[start]))]
        seen[start] = True
        while stack:
            n, rest = stack[-1]
            follower = next((m for m in rest if not seen[m]), None)
            if follower is None:
                stack.pop()
                yield n
            else:
                seen[follower] = True
                stack.append((follower, iter(needs[follower])))
