"""Kernels of equations that are no terms: which loop program computes which form.

lower_whole(form, operands, results, name) -> Kernel

INDEXED  updates of an array's elements in order            kernel/update.py
SCAN     cumulative operations                              kernel/cumulate.py
SORT     rows in a stable order                             kernel/order.py
PATCH    a window overwritten in place                      kernel/patch.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from lumjax.kernel.builder import Builder, Choices, Operand, volume
from lumjax.kernel.cumulate import emit_cumulate
from lumjax.kernel.ir import Kernel
from lumjax.kernel.order import emit_order
from lumjax.kernel.patch import emit_patch
from lumjax.kernel.term import Buffer
from lumjax.kernel.update import emit_update
from lumjax.trace.dim import same
from lumjax.trace.form import Cumulate, Order, Patch, Update, Whole

_PROGRAMS: dict[type[Whole], str] = {
    Update: "INDEXED", Cumulate: "SCAN", Order: "SORT", Patch: "PATCH",
}  # fmt: skip


def lower_whole(
    form: Whole,
    operands: Sequence[Operand],
    results: Sequence[Buffer],
    name: str = "kernel",
    blocks: Choices | None = None,
) -> Kernel:
    """The kernel that computes the results; `blocks`: where a job is a block of threads, with what
    such a program chooses.
    """
    b = Builder([o for o in operands if isinstance(o, Buffer)], results, blocks)
    b.apart = blocks is not None and isinstance(form, Cumulate | Order)
    if all(same(volume(r.shape), 0) for r in results):
        b.idle()
    else:
        _emit(b, form, operands, results, blocks is not None)
    return b.kernel(name, _PROGRAMS[type(form)])


def _emit(
    b: Builder, form: Whole, operands: Sequence[Operand], results: Sequence[Buffer], blocks: bool
) -> None:
    match form:
        case Update():
            emit_update(b, form, operands, results, blocks)
        case Cumulate():
            emit_cumulate(b, form, operands, results, blocks)
        case Order():
            emit_order(b, form, operands, results, blocks)
        case Patch():
            emit_patch(b, operands, results)
        case _:
            assert_never(form)
