"""explain(f, *args): what the compiler made of a function, as text.

The jaxpr; the regions it was cut into; each region's kernels with the user's lines they compute,
the rules that fired and the predicted cost; what runs through `eval` and why; cache hits; memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from lumjax.compile import Jitted, compiler, jit
from lumjax.errors import Source
from lumjax.record import record
from lumjax.trace.core import Eqn
from lumjax.trace.dim import evaluate
from lumjax.trace.show import show

if TYPE_CHECKING:
    from lumjax.executable import Executable, Native
    from lumjax.native import Checked


@record
class Explanation:
    """The report; `print` it, or read `executable` for the data behind it."""

    executable: Executable
    text: str

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text


def explain(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Compile `fun` for these arguments (not running it) and say what became of it.

    `fun` may already be jitted. Arguments may be arrays or ShapeDtypeStructs.

    >>> import lumjax.numpy as jnp
    >>> report = explain(lambda x: jnp.sum(jnp.sin(x) * x), jnp.ones(8))
    >>> "kernels: 1" in str(report)
    True
    """
    jitted: Any = fun if isinstance(fun, Jitted) else jit(fun)
    program = jitted.program(*args, **kwargs)
    executable = program.executable()
    name = getattr(fun, "__name__", repr(fun))
    return Explanation(executable, "\n".join(_lines(name, executable)))


def _lines(name: str, executable: Executable) -> Iterable[str]:
    native, evaluated = list(executable.native()), list(executable.evaluated())
    kernels = sum(len(s.kernels) for s in native)
    yield f"explain {name} on {executable.target.backend.value} ({executable.target.arch})"
    yield ""
    yield show(executable.traced)
    yield ""
    equal = len(native) - len({s.region.key for s in native})
    hits = sum(s.found.report.cached for s in native)
    yield (
        f"regions: {len(native)} ({equal} repeated), kernels: {kernels}, by eval: {len(evaluated)}"
    )
    yield (
        f"plans from the cache: {hits} of {len(native)}; prepared in {executable.seconds:.2f} s; "
        f"predicted {_seconds(sum(s.found.plan.cost for s in native))} a run"
    )
    yield (
        f"memory between kernels: {executable.arena_bytes:,} bytes planned, "
        f"{executable.peak_bytes:,} at least"
    )
    for number, stage in enumerate(executable.stages):
        yield ""
        if isinstance(stage, compiler().Evaluated):
            yield f"[{number}] eval: {stage.eqn.prim.name}: {stage.why}"
            yield from _sources([stage.eqn])
        else:
            yield from _region(number, stage)


def _region(number: int, stage: Native) -> Iterable[str]:
    report = stage.found.report
    yield f"[{number}] region {stage.region.key[:12]}: {len(stage.region.eqns)} equations"
    yield from _sources(stage.region.eqns)
    rules = ", ".join(f"{n} x{k}" for n, k in report.rules) or "none"
    origin = "plan from the cache" if report.cached else f"rules fired: {rules}"
    yield f"    {origin}; predicted {_seconds(report.cost)}"
    if not report.cached and report.traced_cost > report.cost:
        yield f"    as traced it was predicted at {_seconds(report.traced_cost)}"
    if stage.found.plan.truncated:
        yield "    the search was stopped by the clock: another run may find another plan"
    for refusal in report.rejects:
        yield f"    split: {refusal}"
    for item in stage.kernels:
        yield from _kernel(item)


def _kernel(item: Checked) -> Iterable[str]:
    kernel = item.compiled.kernel
    outs = ", ".join(_buffer(b) for b in (r.buffer for r in item.group.roots))
    ins = ", ".join(b.name for b in kernel.inputs) or "nothing"
    sizes = compiler().sizes_of(kernel)
    phases = " then ".join(f"{evaluate(p.jobs, sizes)} jobs" for p in kernel.phases)
    yield f"    kernel {outs} <- {ins}: {phases}"
    if item.rejected:
        yield f"      REJECTED by verification, replaced by the scalar fallback: {item.rejected}"


def _buffer(buffer: Any) -> str:
    dims = ",".join(map(str, buffer.shape))
    return f"{buffer.name}:{buffer.dtype.name}[{dims}]"


def _sources(eqns: Iterable[Eqn]) -> Iterable[str]:
    """The user's lines of these equations, each once, in order."""
    found: dict[tuple[str, int], Source] = {}
    for eqn in eqns:
        if eqn.source is not None:
            found.setdefault((eqn.source.file, eqn.source.line), eqn.source)
    for source in list(found.values())[:8]:
        yield f"    {os.path.basename(source.file)}:{source.line} {_code(source)}"
    if len(found) > 8:
        yield f"    ... and {len(found) - 8} more lines"


def _code(source: Source) -> str:
    try:
        with open(source.file, encoding="utf-8") as file:
            return "| " + file.read().splitlines()[source.line - 1].strip()
    except (OSError, IndexError, UnicodeDecodeError):  # typed at a prompt, say
        return f"in {source.function}"


def _seconds(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"
