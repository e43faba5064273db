"""What the kernels of a compiled program are called in a trace: the words that explain has for
them, and the user's lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from lumjax.insight import loop_words, part, whole
from lumjax.native import Checked
from lumjax.runner import Label
from lumjax.stages import Evaluated, Native, Nested, Stage
from lumjax.target import Target
from lumjax.trace.core import Eqn


def labels_of(stages: Sequence[Stage], target: Target) -> list[Label]:
    """A label for each kernel, loop, choice and evaluated equation, in the order of their runs."""
    found: list[Label] = []
    for number, stage in enumerate(stages):
        match stage:
            case Native():
                found += [_kernel(number, stage, item, target) for item in stage.kernels]
            case Nested():
                says, *_ = loop_words(stage.form)
                name = f"[{number}] {stage.eqn.prim.name} within the native call: {says}"
                found.append(Label(name, _details(stage.eqns)))
            case Evaluated():
                name = f"[{number}] eval: {stage.eqn.prim.name}"
                found.append(Label(name, {"why": stage.why} | _details(stage.eqns)))
    return found


def _kernel(number: int, stage: Native, item: Checked, target: Target) -> Label:
    kernel = item.compiled.kernel
    told = part(item.group, kernel, target) if item.group.roots else whole(stage, kernel)
    name = f"[{number}] kernel {', '.join(told.shapes)} <- {', '.join(told.reads) or 'nothing'}"
    results = {f"o{k}": v for k, v in enumerate(stage.region.outputs)}
    made = {results[n] for n in told.writes if n in results}
    eqns = [e for e in stage.eqns if made.intersection(e.outputs)]
    program = f"{told.program}: {told.roles}"
    details = {"program": program, "predicted": f"{told.predicted * 1e6:.3g} us"}
    return Label(name, details | _details(eqns or stage.eqns))


def _details(eqns: Iterable[Eqn]) -> dict[str, str]:
    """The lines that equations come from, in order."""
    sources = [e.source for e in eqns if e.source is not None]
    lines = dict.fromkeys(f"{os.path.basename(s.file)}:{s.line}" for s in sources)
    return {"lines": ", ".join(lines)} if lines else {}
