"""Kernels compiled and checked: each is compared with the terms it came from before it is used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, TypeAlias

import numpy as np

from lumjax.aligned import address_of
from lumjax.config import config
from lumjax.cpu.render import unsupported
from lumjax.cpu.runtime import Compiled, Program, Step, begin_kernel, compile_kernels
from lumjax.kernel.bounds import prove_bounds
from lumjax.kernel.digest import digest
from lumjax.kernel.ir import Kernel
from lumjax.kernel.lower import lower
from lumjax.kernel.scalar import lower_scalar
from lumjax.kernel.term import Group
from lumjax.kernel.verify import (
    Verdict,
    check_kernel,
    open_sizes,
    proved_everywhere,
    traced_sizes,
)
from lumjax.record import record
from lumjax.store import Store
from lumjax.target import Target
from lumjax.trace.dim import estimate

NDArray: TypeAlias = np.ndarray[Any, Any]


@record
class Checked:
    """A compiled kernel and the group it computes. `rejected` tells why another one was refused.

    Unless it is proved `everywhere`, sizes that are known only at run time are proved one by one.
    """

    group: Group
    compiled: Compiled
    rejected: str = ""
    everywhere: bool = True


class Unsupported(Exception):  # noqa: N818
    """A kernel that has no native code here; the caller evaluates its equations instead."""


_accepted: set[str] = set()
_VERIFIED = Store("verified", 2)
_lock = threading.Lock()


def checked(kernel: Kernel, group: Group, target: Target) -> list[Checked]:
    """The kernel compiled, if it agrees with its terms; else one fallback kernel for each root."""
    return begin_checked([kernel], [group], target)()


def begin_checked(
    kernels: Sequence[Kernel],
    groups: Sequence[Group],
    target: Target,
    thread: Executor | None = None,
) -> Callable[[], list[Checked]]:
    """`checked` for a plan's kernels, in two steps: what is returned ends it, with the kernels in
    order. Meanwhile LLVM works in `thread`.
    """
    for kernel in kernels:
        if (operation := unsupported(kernel)) is not None:
            raise Unsupported(operation)
    ends = [begin_kernel(kernel, target, thread) for kernel in kernels]

    def end() -> list[Checked]:
        made = zip(ends, groups, strict=True)
        return [c for compiled, group in made for c in _verified(compiled(), group, target)]

    return end


def _verified(compiled: Compiled, group: Group, target: Target) -> list[Checked]:
    kernel = compiled.kernel
    open_to = sorted({s.key for s in open_sizes(kernel)})
    everywhere = not open_to or proved_everywhere(kernel)
    key = compiled.digest if not open_to else digest(f"{compiled.digest} {kernel.extents}{open_to}")
    if not config.verify or _known(key):
        return [Checked(group, compiled, everywhere=everywhere)]
    verdict = check_kernel(kernel, group, _runner(compiled))
    if verdict.ok:
        _remember(key)
        return [Checked(group, compiled, everywhere=everywhere)]
    why = f"{kernel.name}: {_describe(verdict)}"
    fallbacks: list[Checked] = []
    for root in group.roots:
        simple = lower_scalar(root)
        (alone,) = compile_kernels([simple], target)
        single = Group((root,))
        again = check_kernel(simple, single, _runner(alone))
        if not again.ok:
            raise Unsupported(f"{why}; and the fallback: {_describe(again)}")
        fallbacks.append(Checked(single, alone, why, proved_everywhere(simple)))
    return fallbacks


def whole(item: Checked, target: Target) -> Kernel:
    """The kernel with its statements: one that came from the disk is lowered again."""
    kernel = item.compiled.kernel
    if any(p.body for p in kernel.phases):
        return kernel
    made = lower(item.group, target) if kernel.programs else lower_scalar(item.group.roots[0])
    assert isinstance(made, Kernel), "what was lowered once is lowered again"
    return made


def _describe(verdict: Verdict) -> str:
    return f"{verdict.where}: got {verdict.got}, want {verdict.want}"


def sizes_of(kernel: Kernel, given: Mapping[str, int] | None = None) -> dict[str, int]:
    """The values of a kernel's size arguments, where those of the program are `given`; by default
    they are about as large as usual.
    """
    if given is None:
        given = {str(s.name): estimate(s) for s in open_sizes(kernel)}
    return traced_sizes(kernel, given)


def unproved(item: Checked, given: Mapping[str, int], target: Target) -> bool:
    """Whether an access of the kernel may be out of bounds at these sizes."""
    if item.everywhere:
        return False
    kernel = whole(item, target)
    return bool(prove_bounds(kernel, traced_sizes(kernel, given)))


def _runner(compiled: Compiled) -> Any:
    def run(kernel: Kernel, buffers: Mapping[str, NDArray], sizes: Mapping[str, int]) -> None:
        places = range(len(kernel.buffers) + len(kernel.sizes))
        step = Step(compiled, list(places), sizes)
        addresses = [address_of(buffers[b.name]) for b in kernel.buffers]
        Program([step]).run([*addresses, *(sizes[n] for n in kernel.sizes)])

    return run


def _known(key: str) -> bool:
    """Whether a kernel with this text was accepted before, here or on disk."""
    return key in _accepted or _VERIFIED.read(key) is not None


def _remember(key: str) -> None:
    with _lock:
        _accepted.add(key)
    _VERIFIED.write(key, b"")


def all_checked(
    kernels: Sequence[Kernel], groups: Sequence[Group], target: Target
) -> list[Checked]:
    """`checked` for a plan's kernels, in order."""
    return begin_checked(kernels, groups, target)()
