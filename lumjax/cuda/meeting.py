"""Blocks that wait for each other, on the executor: CUDA C, and what such a launch has in memory.

Where a kernel loads by `ld.acquire` or adds by `red.release` or `atom.release`, of the whole GPU,
all its blocks are there at once. Each thread has a vector of clocks: how many of each block's
intervals between barriers are over for it. Who adds with a release leaves its vector at that place,
and that its own block's interval has begun: what came before the block's last barrier is over. Who
loads with an acquire takes the vector of the value that it loads. Values are loaded in the order in
which they came, none left out: a wait that is satisfied too early ends too early, however blocks
are scheduled. What nobody releases or acquires orders nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

MOST_MEETINGS = 4  # places where blocks wait, in one launch

TEXT = r"""
// A place where blocks meet: what it held before all that, and who had put that there when; how
// often something was added. The last values follow, each with the clocks that it stands for.
struct Meeting { u64 address, initial; u32 count, by, epoch, spare; };
struct Added { u64 value; };

static __device__ u32 kept_values(Block* b) { return 2 * b->blocks + 2; }
static __device__ u64 added_size(Block* b) { return (sizeof(Added) + 4 * b->blocks + 7) & ~7ull; }
static __device__ Meeting* meeting_at(Block* b, u32 k) {
  return (Meeting*)(b->grid + k * (sizeof(Meeting) + kept_values(b) * added_size(b)));
}
static __device__ Added* added(Block* b, Meeting* m, u32 number) {  // from 1
  return (Added*)((u8*)(m + 1) + (number - 1) % kept_values(b) * added_size(b));
}
static __device__ u32* clocks(Added* a) { return (u32*)(a + 1); }
static __device__ void join_blocks(Block* b, u32* to, u32* from) {
  for (u32 k = 0; k < b->blocks; k++) if (to[k] < from[k]) to[k] = from[k];
}

// The place that a thread may wait at, MOST_MEETINGS after a fault.
static __device__ u32 meeting_of(Thread* t, Block* b, u64 address, u32 size, u32 line) {
  Region* r = (Region*)b->regions;
  u32 k, fault = OUTSIDE;
  Cell* c = 0;
  for (k = 0; k < b->region_count; k++, r++) {
    if (address < r->begin || address + size > r->end) continue;
    fault = address & (size - 1) ? MISALIGNED : r->cells ? 0 : READ_ONLY;
    if (!fault) c = (Cell*)r->cells + ((address - r->begin) >> r->shift);
    break;
  }
  bool there = c && c->wblock >= b->first && c->who >> 19 & 1;
  if (c && !there && !c->wblock) fault = UNWRITTEN;
  for (k = 0; !fault && k < MOST_MEETINGS; k++) {
    Meeting* m = meeting_at(b, k);
    if (m->address == address) break;
    if (m->address) continue;
    m->address = address; m->by = c->wblock; m->epoch = c->wepoch;
    m->initial = size == 8 ? *(u64*)address : *(u32*)address;
    c->wblock = b->serial; c->wepoch = b->epoch; c->rblock = 0; c->who = 1u << 19;
    break;
  }
  if (!fault && k < MOST_MEETINGS) {
    Meeting* m = meeting_at(b, k);
    u32 known = m->by == b->serial ? b->epoch : m->by < b->first ? ~0u : met(t)[m->by - b->first];
    if (known > m->epoch) return k;
    fault = RACE;
    b->value = 0x80000000u | (m->by - b->first);
  }
  lumjax_fault(t, b, fault ? fault : NO_BARRIER, address, size, 2 | 1 << 8, line, (u32)b->value);
  return MOST_MEETINGS;
}

API u32 lumjax_ask(Thread* t, Block* b, u64 address, u32 size, u32 line) {
  return meeting_of(t, b, address, size, line) == MOST_MEETINGS;
}

// Something was added: now the place holds `value`. how: 1 it releases, 2 it acquires.
API u32 lumjax_tell(Thread* t, Block* b, u64 address, u32 size, u64 value, u32 how, u32 line) {
  u32 k = meeting_of(t, b, address, size, line);
  if (k == MOST_MEETINGS) return 1;
  Meeting* m = meeting_at(b, k);
  Added* last = m->count ? added(b, m, m->count) : 0;
  Added* now = added(b, m, ++m->count);
  now->value = value;
  for (u32 l = 0; l < b->blocks; l++) clocks(now)[l] = last ? clocks(last)[l] : 0;
  if (how & 2 && last) join_blocks(b, met(t), clocks(last));
  if (how & 1) {
    join_blocks(b, clocks(now), met(t));
    u32* own = clocks(now) + (b->serial - b->first);
    if (*own < b->epoch) *own = b->epoch;
  }
  t->heard[k] = 2 * m->count;
  return 0;
}

// A load: 0 a value that the thread had not loaded before, 1 a fault, 2 there is none yet. A value
// that nobody follows is loaded again when another came.
API u32 lumjax_listen(Thread* t, Block* b, u64 address, u32 size, u32 how, u32 line) {
  u32 k = meeting_of(t, b, address, size, line), stale = 0;
  if (k == MOST_MEETINGS) return 1;
  Meeting* m = meeting_at(b, k);
  u32 number = t->heard[k] >> 1, oldest = m->count > kept_values(b) ? m->count - kept_values(b) : 0;
  if (!(t->heard[k] & 1)) {
  } else if (number < m->count) number++;
  else stale = 2;
  if (number < oldest) number = oldest + 1;
  t->heard[k] = 2 * number | 1;
  t->value = number ? added(b, m, number)->value : m->initial;
  if (how && number) join_blocks(b, met(t), clocks(added(b, m, number)));
  t->which = k; t->line = line;
  return stale;
}

// Whether something was added since a thread's last load.
static __device__ bool was_told(Thread* t, Block* b) {
  return t->heard[t->which] >> 1 < meeting_at(b, t->which)->count;
}

// A barrier of a block: what one of its threads knows of other blocks, all know.
static __device__ void share_meetings(Block* b) {
  u32* all = met(thread_of(b, 0));
  for (u32 k = 1; k < b->count; k++) join_blocks(b, all, met(thread_of(b, k)));
  for (u32 k = 1; k < b->count; k++) join_blocks(b, met(thread_of(b, k)), all);
}

static __device__ void begin_meetings(Block* b, Thread* t) {
  for (u32 k = 0; k < b->blocks; k++) met(t)[k] = 0;
  for (u32 k = 0; k < MOST_MEETINGS; k++) t->heard[k] = 0;
}

static __device__ Thread* waits_for_blocks(Block* b) {
  for (u32 k = 0; k < b->count; k++) if (thread_of(b, k)->state == 8) return thread_of(b, k);
  return 0;
}
"""
SCHEDULER = r"""
// All blocks at once: each goes on until it waits for others.
API u32 lumjax_run_grid(Block* first) {
  u32 n = first->blocks;
  for (u32 k = 0; k < n; k++) begin_block(first + k, k);
  for (u32 left = n; left;) {
    u32 some = 0;
    for (u32 i = 0; i < n; i++) {
      Block* b = first + turn(first->seed, i, n);
      if (b->done) continue;
      u32 state = run_block(b);
      if (state == 1) { *first = *b; return 1; }
      if (state == 0) { b->done = 1; left--; }
      some |= b->stirred | (state == 0);
      b->stirred = 0;
    }
    for (u32 k = 0; left && !some && k < n; k++) {
      Block* b = first + k;
      if (b->done) continue;
      Thread* t = waits_for_blocks(b);
      lumjax_fault(t, b, ALONE, 0, 0, 0, t->line, t->index);
      *first = *b;
      return 1;
    }
  }
  return 0;
}
"""
EXPORTS = ("lumjax_ask", "lumjax_tell", "lumjax_listen", "lumjax_run_grid")


def room_of(blocks: int) -> np.ndarray[Any, Any]:
    """The places where blocks meet, with what they keep."""
    each = -(-(8 + 4 * blocks) // 8) * 8
    return np.zeros(MOST_MEETINGS * (32 + (2 * blocks + 2) * each) // 8, np.uint64)


def readers_of(
    rows: Sequence[tuple[int, int, int, int, int]], blocks: int
) -> tuple[list[int], Mapping[int, np.ndarray[Any, Any]]]:
    """For regions of memory (begin, end, cells, shift, ..): where it stands when each block read
    each cell last; 0 for those that are only read.
    """
    kept: dict[int, np.ndarray[Any, Any]] = {}
    for k, (begin, end, cells, shift, _) in enumerate(rows):
        if cells:
            kept[k] = np.zeros((((end - begin - 1) >> shift) + 1) * blocks, np.uint32)
    return [kept[k].ctypes.data if k in kept else 0 for k in range(len(rows))], kept
