"""MAP: any number of terms without reductions over the same axes, in one pass."""

from __future__ import annotations

from collections.abc import Sequence

from lumjax.kernel.emit import Emitter, Scope
from lumjax.kernel.ir import LoopKind
from lumjax.kernel.share import one_job, over_pieces, work
from lumjax.kernel.term import Root


def emit_map(emitter: Emitter, roots: Sequence[Root]) -> None:
    """Append the phase that computes `roots`, whose axes agree; vectors run along the last."""
    axes = roots[0].axes

    def stores(scope: Scope) -> None:
        for root in roots:
            emitter.store(root, scope)

    if not axes:
        one_job(emitter, stores)
        return
    per_element = work(r.term for r in roots) + len(roots)
    over_pieces(
        emitter,
        axes[:-1],
        axes[-1],
        per_element,
        lambda scope: emitter.nest(axes[-1:], scope, LoopKind.VECTOR, stores),
    )
