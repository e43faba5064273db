"""`lower_scalar`: the fallback that lowers every root by itself, whatever it is.

Jobs share out the flattened output; a serial loop decodes each coordinate and every reduction is
a serial loop with one scalar accumulator, in order. Nothing is vectorised, so nothing can be
refused.
"""

from __future__ import annotations

import math

from lumjax.kernel.emit import Emitter, Scope
from lumjax.kernel.ir import Kernel
from lumjax.kernel.prepare import prepare
from lumjax.kernel.share import extent
from lumjax.kernel.term import Group, Reduction, Root, subterms
from lumjax.trace import dim as dims

WORK_PER_JOB = 1 << 14


def lower_scalar(root: Root, name: str = "scalar") -> Kernel:
    """One kernel that computes the root element by element."""
    emitter = Emitter(prepare(Group((root,))))
    for live in emitter.prepared.live():
        emit_scalar(emitter, live)
    return emitter.kernel(name)


def emit_scalar(emitter: Emitter, root: Root) -> None:
    """Append the phase that computes one root of the emitter's group."""
    total = math.prod((a.extent for a in root.axes), start=1)
    share = max(1, WORK_PER_JOB // work_per_element(emitter, root))
    job, top = dims.symbol(emitter.fresh("job")), Scope()
    top.bound.add(str(job))
    if not root.axes:
        emitter.store(root, top)
        emitter.phase(str(job), 1, top)
        return
    chunk = emitter.chunk(share)
    begin = job * chunk
    flat = emitter.fresh("p")
    with top.loop(flat, dims.minimum(begin + chunk, total), begin=begin) as scope:
        emitter.decode(root.axes, dims.symbol(flat, 0, total - 1), scope)
        emitter.store(root, scope)
    emitter.phase(str(job), dims.ceiling_divide(total, chunk), top)


def work_per_element(emitter: Emitter, root: Root) -> int:
    """Roughly how many scalar operations one element of the root costs."""
    reductions = [t for t in subterms(root.term) if isinstance(t, Reduction)]
    return 1 + sum(extent(emitter, t.axes) for t in reductions)
