"""Programs for CUDA, as far as they differ from the CPU's: other kernels, launched otherwise.

`lumjax.launcher` runs them. Sorts, cumulative operations and updates in order are kernels of their
own (`fixed.py`), as on the CPU. What has no CUDA kernel (linear algebra, SciPy's special functions,
complex numbers) runs through `eval`, and with it a loop that has such a thing in its body.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lumjax.config import config
from lumjax.cpu.runtime import Compiled
from lumjax.cuda import device, runtime
from lumjax.cuda.contract import candidates
from lumjax.cuda.library import gemm_of, products
from lumjax.cuda.measured import agrees, pays
from lumjax.cuda.memory import Buffer, copied
from lumjax.cuda.occupancy import why_not
from lumjax.cuda.render import unsupported
from lumjax.cuda.runtime import Emulated
from lumjax.cuda.scalar import supported
from lumjax.egraph.plan import Found
from lumjax.egraph.search import budget_of_config, search
from lumjax.errors import LumjaxError, UnsupportedError
from lumjax.fixed import Maker, compiled_alone, with_literals, with_uniforms
from lumjax.kernel.ir import Kernel
from lumjax.kernel.region import Alone, Region, cut
from lumjax.kernel.scalar import lower_scalar
from lumjax.kernel.term import Group
from lumjax.kernel.verify import check_kernel
from lumjax.launcher import Launcher as Launcher
from lumjax.native import Checked, Unsupported
from lumjax.stages import Evaluated, Native, Nested, Nester, Planner, Stage
from lumjax.target import Target
from lumjax.trace.array import Array
from lumjax.trace.core import Atom, Jaxpr, Var
from lumjax.trace.form import Barrier, Opaque, Patch, Whole

_found: dict[tuple[Any, ...], tuple[Found, list[Checked]]] = {}
_lock = threading.RLock()


def target_of(backend: str) -> Target:
    """The target of a backend's name.

    Raises UnsupportedError for one that is not known, and for a GPU where CuPy, the driver or the
    GPU is missing.
    """
    if backend == "cuda":
        return device.current().info()
    if backend not in ("cuda:emulated", "cuda:emulated:sm_90a"):
        raise UnsupportedError(
            operation=f"compiling for backend '{backend}'",
            required="'cpu', 'cuda', or 'cuda:emulated', which runs CUDA kernels on the CPU",
            got=f"backend {backend!r}",
            fix="use config.update('backend', 'cpu')",
        )
    return runtime.emulated_target(runtime.emulated_arch(backend))


def adopted(value: Any, copy: bool = False) -> Array:
    """Another library's array on the GPU as an array that shares its memory, unless it is to be
    copied there.

    Raises UnsupportedError where CuPy, the driver or the GPU is missing, ArgumentTypeError for an
    array on another device.
    """
    gpu = device.current()
    lent = gpu.adopted(value)
    found = Buffer(gpu, lent, lent.shape, lent.dtype)
    if copy:
        found = copied(found)
        gpu.returned(lent)
    return found.array()


# ---- stages


def stages_of(
    jaxpr: Jaxpr, target: Target, nester: Nester, planner: Planner | None = None
) -> tuple[list[Stage], dict[Var, Atom]]:
    """Every step compiled or evaluated, and the variables that barriers rename."""
    stages: list[Stage] = []
    renamed: dict[Var, Atom] = {}
    for step in cut(with_uniforms(with_literals(jaxpr)), native=supported):
        if isinstance(step, Region):
            try:
                found, kernels = _compiled(step, target, planner)
            except Unsupported as e:
                stages += [Evaluated(eqn, str(e)) for eqn in step.eqns]
            else:
                stages.append(Native(step, found, tuple(kernels)))
        elif isinstance(step.form, Barrier):
            for out, atom in zip(step.eqn.outputs, step.eqn.inputs, strict=True):
                renamed[out] = renamed.get(atom, atom) if isinstance(atom, Var) else atom
        elif isinstance(step.form, Opaque):
            stages.append(Evaluated(step.eqn, step.form.why))
        elif isinstance(step.form, Whole):
            stages.append(_whole(step, target))
        else:
            programs = nester(step.form)
            if isinstance(programs, str):
                stages.append(Evaluated(step.eqn, programs))
            else:
                stages.append(Nested(step.eqn, step.form, programs))
    return stages, renamed


def _whole(step: Alone, target: Target) -> Native | Evaluated:
    """An equation that is a kernel of its own."""
    if isinstance(step.form, Patch):
        return Evaluated(step.eqn, "arrays on a device are not changed in place")
    try:
        return Native(*compiled_alone(step, target, _MAKER))
    except Unsupported as e:
        return Evaluated(step.eqn, str(e))


def _on_arrays(
    made: Compiled, arrays: Mapping[str, runtime.NDArray], sizes: Mapping[str, int]
) -> None:
    try:
        runtime.compiled(made.kernel).on_arrays(made.kernel, arrays, sizes)
    except LumjaxError as error:
        raise Unsupported(f"{made.kernel.name}: {error}") from error


def _compiled(
    region: Region, target: Target, planner: Planner | None
) -> tuple[Found, list[Checked]]:
    """The region's plan and kernels; equal regions share them."""
    if planner is not None:
        return _checked(planner(region, target), target)
    key = region.key, target.key, config.fast_math, config.compiled_key()
    with _lock:
        if key not in _found:
            _found[key] = _checked(search(region, target, budget_of_config()), target)
        return _found[key]


def _checked(found: Found, target: Target) -> tuple[Found, list[Checked]]:
    pairs = zip(found.kernels, found.plan.groups, strict=True)
    return found, [c for kernel, group in pairs for c in _verified(kernel, group, target)]


def _verified(kernel: Kernel, group: Group, target: Target) -> list[Checked]:
    """The kernel, if it agrees with its terms and does nothing wrong; else one for each root. What
    is a contraction is lowered for a GPU, with the largest tiles that do without spills.
    """
    for own in candidates(group, target, kernel.name):
        if (
            unsupported(own) is None
            and why_not(runtime.compiled(own).rendered, target.arch) is None
        ):
            made = _accepted(own, group, target)
            if not isinstance(made, str):
                return [Checked(group, _fastest(made, group))]
            break
    if (what := unsupported(kernel)) is not None:
        raise Unsupported(what)
    made = _accepted(kernel, group, target)
    if not isinstance(made, str):
        return [Checked(group, _fastest(made, group))]
    fallbacks: list[Checked] = []
    for root in group.roots:
        simple, single = lower_scalar(root), Group((root,))
        again = _accepted(simple, single, target)
        if isinstance(again, str):
            raise Unsupported(f"{made}; and the fallback: {again}")
        fallbacks.append(Checked(single, _handle(again), made))
    return fallbacks


def _accepted(kernel: Kernel, group: Group, target: Target) -> Emulated | str:
    """The kernel, of whose texts the second is dropped if it is not as it should be; why it may not
    be used if the first isn't.
    """
    try:
        made = runtime.compiled(kernel, target.arch)
        if made.digest in runtime.kernels or not config.verify:
            return made
        plain = replace(made, pipelined=None)
        verdict = check_kernel(kernel, group, plain.on_arrays)
    except LumjaxError as error:
        return f"{kernel.name}: {error}"
    if not verdict.ok:
        return f"{kernel.name}: {verdict.where}: got {verdict.got}, want {verdict.want}"
    if made.pipelined is not None and not _sound(made, made.pipelined, group, target):
        return runtime.compiled(kernel)
    return made


def _sound(made: Emulated, pipelined: Emulated, group: Group, target: Target) -> bool:
    """Whether a kernel's second text is right, in runs of which some were its own."""
    own = 0

    def run(
        kernel: Kernel, arrays: Mapping[str, runtime.NDArray], sizes: Mapping[str, int]
    ) -> None:
        nonlocal own
        fitting = made.fitting(runtime.table_of(kernel, arrays, sizes), sizes)
        own += fitting is pipelined
        fitting.on_arrays(kernel, arrays, sizes)

    try:
        if why_not(pipelined.rendered, target.arch) is not None:
            return False
        return check_kernel(made.kernel, group, run).ok and own > 0
    except LumjaxError:
        return False


def _handle(made: Emulated) -> Compiled:
    """What stands for the kernel in a program."""
    runtime.kernels[made.digest] = made
    return Compiled(made.kernel, (), 0, made.digest, b"", ())


def _fastest(made: Emulated, group: Group) -> Compiled:
    """The kernel, or the library's product where that is asked for, right, and faster."""
    plain = _handle(made)
    if not config.cuda_library_gemm or config.backend != "cuda":
        return plain
    gpu = device.current()
    product = gemm_of(group) if gpu.multiplies() else None
    if product is None:
        return plain
    digest = f"{made.digest}, of a library"
    other = replace(plain, digest=digest)
    with _lock:
        if digest not in _judged:
            runtime.kernels[digest], products[digest] = made, product
            _judged[digest] = agrees(gpu, other, group) and pays(gpu, plain, other)
            if not _judged[digest]:
                del products[digest]
        return other if _judged[digest] else plain


_judged: dict[str, bool] = {}  # whether a library's product is used, by digest

_MAKER = Maker(
    unsupported,
    lambda k, t: _handle(runtime.compiled(k)),
    lambda k, t: runtime.compiled(k).rendered.text,
    _on_arrays,
    True,
)


def text_of(kernels: Sequence[Compiled]) -> str:
    """Kernels of programs as CUDA C."""
    return "\n".join(t.text for k in kernels for t in runtime.kernels[k.digest].texts)
