"""How many blocks of a kernel a GPU holds at a time, from what the compiler says the kernel takes.

Cards are described by data, from NVIDIA's tables of compute capabilities.
"""

from __future__ import annotations

from lumjax.cuda import nvrtc
from lumjax.cuda.nvrtc import Usage
from lumjax.cuda.render import WARP, Rendered
from lumjax.record import record

BUDGET = 255  # registers of a thread: an instruction can't name more


@record
class Card:
    """What one of a card's units has: threads, blocks, registers, bytes of shared memory, and how
    many of these one block may take; how many units there are. `arch` is what kernels are compiled
    for.
    """

    name: str
    arch: str
    units: int
    threads: int
    blocks: int
    shared: int
    shared_of_block: int
    registers: int = 65_536


H200 = Card("H200", "sm_90a", 132, 2048, 32, 228 << 10, 227 << 10)
A100 = Card("A100", "sm_80", 108, 2048, 32, 164 << 10, 163 << 10)
SMALL = Card("RTX 3060", "sm_86", 28, 1536, 16, 100 << 10, 99 << 10)
CARDS = (H200, A100, SMALL)

_SERIALISED = "C75"  # the compiler's remarks on that begin so
_KEPT = 1 << 10  # bytes of shared memory that the system keeps for each block
_REGISTERS, _WARPS, _BYTES = 8, 4, 128  # what registers, warps and shared memory are given out by


def resident(card: Card, usage: Usage, threads: int, shared: int = 0) -> int:
    """How many blocks one unit runs at a time; 0 if the kernel can't be launched at all. `shared`:
    what the launch adds to the kernel's own shared memory.
    """
    warps = -(-threads // WARP)
    most = min(card.blocks, card.threads // (warps * WARP))
    each = -(-max(usage.registers, 1) // _REGISTERS) * _REGISTERS * WARP
    most = min(most, card.registers // each // _WARPS * _WARPS // warps)
    held = usage.shared + shared
    if held > card.shared_of_block or usage.registers > BUDGET:
        return 0
    return min(most, card.shared // (-(-(held + _KEPT) // _BYTES) * _BYTES))


def why_not(rendered: Rendered, arch: str) -> str | None:
    """Why the kernels' machine code should not be used: it keeps in memory what should be in
    registers, waits where it was not asked to, or no card of the architecture can run it. None if
    it is fine.
    """
    made = nvrtc.cubin(rendered.text, arch)
    usage = made.usage
    if _SERIALISED in made.log:
        return f"products of warpgroups are put in order on {arch}"
    for launch in rendered.launches:
        taken = usage[launch.name]
        if taken.spills:
            return f"{launch.name} spills {taken.spills} bytes on {arch}"
        for card in CARDS:
            if card.arch == arch and not resident(card, taken, launch.threads, launch.shared):
                return f"{launch.name} takes more than a block of {card.name} has"
    return None
