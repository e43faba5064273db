"""What kernels for sm_90a include besides the device header: barriers with phases, bulk copies,
products of warpgroups.
"""

from __future__ import annotations

_TEXT = r"""
// A barrier in shared memory with phases: one is over when `count` threads have arrived, and all
// the bytes that were expected. Who waits says the parity of the phase's number. The fence shows
// barriers that the thread has made to copies.
LJ void lj_phases(u64* b, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
               :: "r"(lj_shared(b)), "r"(count) : "memory");
}
LJ void lj_phases_end(u64* b) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" :: "r"(lj_shared(b)) : "memory");
}
LJ void lj_show_phases() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
LJ void lj_arrive(u64* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(lj_shared(b)) : "memory");
}
LJ void lj_expect(u64* b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(lj_shared(b)), "r"(bytes) : "memory");
}
LJ bool lj_over(u64* b, u32 parity) {
  u32 r;
  asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
               "selp.u32 %0, 1, 0, p;\n}" : "=r"(r) : "r"(lj_shared(b)), "r"(parity) : "memory");
  return r != 0;
}
LJ void lj_wait_for(u64* b, u32 parity) { while (!lj_over(b, parity)); }

// What threads wrote to shared memory is seen by copies and products from here on.
LJ void lj_show() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Bulk copies, which end with a phase: of contiguous bytes, or of a box of a tensor.
LJ void lj_move(void* to, const void* from, u32 bytes, u64* b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1], %2, [%3];"
               :: "r"(lj_shared(to)), "l"(from), "r"(bytes), "r"(lj_shared(b)) : "memory");
}
LJ void lj_see_map(const void* map) {  // it lies in global memory, where the host has put it
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(map) : "memory");
}
BOXES
// Products of a warpgroup: 64 rows of the left side, both sides in shared memory. A matrix is told
// by its address, the steps `lead` and `stride` in bytes, how it is swizzled (1: by 128 bytes).
LJ u64 lj_matrix(const void* p, u32 lead, u32 stride, u32 swizzle) {
  return (u64)((lj_shared(p) & 0x3ffff) >> 4) | (u64)(lead >> 4) << 16 | (u64)(stride >> 4) << 32
         | (u64)swizzle << 62;
}
LJ void lj_products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
LJ void lj_products_close() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> LJ void lj_products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
}
// A sum that was waited for: what is made of it stays behind the wait.
LJ void lj_settled(float& d) { asm volatile("" : "+f"(d) :: "memory"); }
"""

_NAMES = "xyzvw"


def _box(rank: int) -> str:
    """The copy of a box of a tensor."""
    names = _NAMES[:rank]
    places = ", ".join(f"%{k}" for k in range(3, 3 + rank))
    given = ", ".join(f'"r"({n})' for n in names)
    return (
        f"LJ void lj_move_box(void* to, const void* map, u64* b, int {', int '.join(names)}) {{\n"
        f'  asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile"\n'
        f'               ".mbarrier::complete_tx::bytes [%0], [%1, {{{places}}}], [%2];"\n'
        f'               :: "r"(lj_shared(to)), "l"(map), "r"(lj_shared(b)), {given}\n'
        '               : "memory");\n}\n'
    )


HEADER_90 = _TEXT.replace("BOXES\n", "".join(map(_box, range(2, 6))))


def products(kind: str, cols: int) -> str:
    """The function of one product, of 64 rows, so many columns and 32 bytes deep: of bf16 or f16,
    whose sides may be turned, or of tf32, of which low bits don't count. Lane 4 g + i of warp w
    holds of d the rows 16 w + g and 8 below at columns 8 j + 2 i and 8 j + 2 i + 1. What d holds is
    added to where `add`.
    """
    count = cols // 2
    held = ", ".join(f"%{k}" for k in range(count))
    outs = ", ".join(f'"+f"(d[{k}])' for k in range(count))
    depth, turns = ("k8", "") if kind == "tf32" else ("k16", f", %{count + 3}, %{count + 4}")
    lines = [
        *(["template <int TURN_LEFT, int TURN_RIGHT>"] if turns else []),
        f"LJ void lj_products_{kind}_{cols}(float* d, u64 left, u64 right, int add) {{",
        f'  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 2}, 0;\\n"',
        f'    "wgmma.mma_async.sync.aligned.m64n{cols}{depth}.f32.{kind}.{kind} {{{held}}}, "',
        f'    "%{count}, %{count + 1}, p, 1, 1{turns};\\n}}"',
        f"    : {outs}",
        '    : "l"(left), "l"(right), "r"(add)'
        + (', "n"(TURN_LEFT), "n"(TURN_RIGHT));' if turns else ");"),
        "}",
    ]
    return "\n".join(lines) + "\n"
