"""Give stored values that are read only at their own axes back to the planner as plain terms.

Encoding stores a value at its first pull at other axes; by the time that all such values are
stored, some of them are read nowhere else any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lumjax.egraph.axes import axis_symbol
from lumjax.egraph.encode import Encoded
from lumjax.kernel.rewrite import rebuild, rewrite
from lumjax.kernel.term import Load, Root, Term, loads
from lumjax.trace.dim import same


def inlined(encoded: Encoded) -> Encoded:
    """The program with those stored values computed where they are used."""
    stored = {r.buffer.name: r for r in encoded.stored}
    for load in _loads(encoded.roots):
        root = stored.get(load.buffer.name)
        if root is not None and not _own(load, root):
            del stored[load.buffer.name]
    if not stored:
        return encoded
    memo: dict[Term, Term] = {}

    def leaf(term: Term, kids: tuple[Term, ...]) -> Term:
        if isinstance(term, Load) and term.buffer.name in stored:
            return rewrite(stored[term.buffer.name].term, leaf, memo)
        return rebuild(term, kids, {})

    def rewritten(roots: Iterable[Root]) -> tuple[Root, ...]:
        kept = [r for r in roots if r.buffer.name not in stored]
        return tuple(replace(r, term=rewrite(r.term, leaf, memo)) for r in kept)

    layout = dict(encoded.layout)
    for term, axes in encoded.layout.items():
        layout.setdefault(rewrite(term, leaf, memo), axes)
    return replace(
        encoded,
        outputs=rewritten(encoded.outputs),
        stored=rewritten(encoded.stored),
        layout=layout,
    )


def _loads(roots: Iterable[Root]) -> Iterable[Load]:
    return dict.fromkeys(load for r in roots for load in loads(r.term))


def _own(load: Load, root: Root) -> bool:
    """Whether a load reads each element of the root at the element's own axes."""
    plain = not load.indices and same(load.valid, 1)
    return plain and all(
        same(c, 0 if same(a.extent, 1) else axis_symbol(a))
        for c, a in zip(load.coords, root.axes, strict=True)
    )
