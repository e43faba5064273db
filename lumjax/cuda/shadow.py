"""What the executor knows of each place in memory, and how an access is judged by it: CUDA C.

Each cell of memory (an element of a buffer; a byte of shared memory) has a shadow: who wrote it
last, and who read it since. An access is fine if what it meets happened before: in an earlier
launch, before an earlier barrier of the same block, or in a lane of the same warp that has met this
one at a warp's barrier since. Clocks of the lanes of a warp are vectors, those of a block one
number, as barriers are of whole blocks. Kernels with other barriers are ordered by vectors of all
threads of a block (phases.py); there a cell of shared memory knows its readers in each warp.
"""

from __future__ import annotations

CHECKS = r"""
// Who wrote a cell last and who read it since: blocks, epochs between barriers, clocks of lanes.
// who: the writer's warp | its lane << 8 | whether at once << 16 | whether a copy to it is under
// way << 17 | whether by asynchronous copies << 18 | whether a barrier is there << 19 | the
// readers' warp << 24
struct Cell { u32 wblock, wepoch, wclock, who, rblock, repoch, rclock, lanes; };
struct Region { u64 begin, end, cells; u32 shift, writable; u64 readers; };
#define MANY_BLOCKS 0xffffffffu
#define MANY_WARPS 0xffu
#define ASYNC 4u  // added to the kind of an access: by asynchronous copies and products
#define NEVER 0xffffffffu  // the clock of products that are not over
#define API extern "C" __device__ __noinline__

static __device__ u32* known(Thread* t) { return (u32*)t->known; }
static __device__ u32* seen(Thread* t) { return (u32*)t->seen; }
static __device__ u32* met(Thread* t) { return (u32*)t->met; }
static __device__ Thread* thread_of(Block* b, u32 k) {
  return (Thread*)(b->threads + (u64)k * b->stride);
}

API u32 lumjax_fault(Thread* t, Block* b, u32 fault, u64 address, u32 size, u32 kind, u32 line,
                     u32 other) {
  if (!b->fault) {
    b->fault = fault; b->fault_address = address; b->fault_size = size; b->fault_kind = kind;
    b->fault_line = line; b->fault_thread = t->index; b->fault_block = b->serial - b->first;
    b->fault_other = other;
  }
  return 1;
}

static __device__ u32 reader_warp(Cell* c) { return c->who >> 24; }
static __device__ void set_reader_warp(Cell* c, u32 w) { c->who = (c->who & 0xffffffu) | w << 24; }

static __device__ bool writer_before(Thread* t, Block* b, Cell* c) {
  if (c->wblock < b->first) return true;
  if (c->wblock != b->serial) return b->grid && met(t)[c->wblock - b->first] > c->wepoch;
  if (b->reads) return known(t)[(c->who & 0xff) * 32 + (c->who >> 8 & 31)] >= c->wclock;
  if (c->wepoch != b->epoch) return true;
  if ((c->who & 0xff) != t->warp) return false;
  return known(t)[c->who >> 8 & 31] >= c->wclock;
}

// Of an ordered kernel: the lanes of a warp that read a cell of shared memory, and when; when its
// products did, by a clock of their own.
struct Reads { u32 lanes, clock, products; };
static __device__ Reads* reads_of(Block* b, Cell* c, u32 warp) {
  return (Reads*)b->reads + (c - (Cell*)b->shared_cells) * b->warps + warp;
}

static __device__ u32 clock_of_products(Block* b, u32 warp) {
  return 32 * b->warps + MOST_BARRIERS + warp;
}

static __device__ bool warp_before(Thread* t, Block* b, u32 warp, Reads* r) {
  if (r->products > known(t)[clock_of_products(b, warp)]) return false;
  for (u32 m = r->lanes; m; m &= m - 1) {
    u32 k = 32 * warp + 31 - __clz(m & -m);
    if (k != t->index && known(t)[k] < r->clock) return false;
  }
  return true;
}

static __device__ bool all_before(Thread* t, Block* b, Cell* c) {
  if (c->rblock != b->serial) return true;
  for (u32 w = 0; w < b->warps; w++) if (!warp_before(t, b, w, reads_of(b, c, w))) return false;
  return true;
}

static __device__ void begin_reads(Block* b, Cell* c) {
  for (u32 w = 0; c->rblock != b->serial && w < b->warps; w++)
    reads_of(b, c, w)->lanes = reads_of(b, c, w)->products = 0;
  c->rblock = b->serial;
}

static __device__ void add_read(Thread* t, Block* b, Cell* c) {
  begin_reads(b, c);
  Reads* r = reads_of(b, c, t->warp);
  if (!r->lanes || warp_before(t, b, t->warp, r)) {
    r->lanes = 1u << t->lane; r->clock = t->clock;
    return;
  }
  u32 before = r->clock, now = before > t->clock ? before : t->clock;
  r->lanes |= 1u << t->lane;
  r->clock = now;
  for (u32 m = r->lanes; m; m &= m - 1) {  // a clock may be put forward: the reads count as later
    Thread* x = thread_of(b, 32 * t->warp + 31 - __clz(m & -m));
    if (x == t || x->clock == before) known(x)[x->index] = x->clock = now;
  }
}

// Where blocks wait for each other, a cell has a row of when each of them read it, but for the last
// one: intervals between barriers, from 1.
static __device__ bool blocks_before(Thread* t, Block* b) {
  u32* row = (u32*)b->readers;
  for (u32 k = 0; row && k < b->blocks; k++) {
    if (!row[k]) continue;
    if (k == b->serial - b->first ? row[k] > b->epoch : row[k] > met(t)[k]) return false;
  }
  return true;
}

static __device__ void forget_blocks(Block* b) {
  for (u32 k = 0; b->readers && k < b->blocks; k++) ((u32*)b->readers)[k] = 0;
}

static __device__ bool readers_before(Thread* t, Block* b, Cell* c) {
  if (b->readers && !blocks_before(t, b)) return false;
  if (b->readers && c->rblock >= b->first && c->rblock != b->serial)
    return met(t)[c->rblock - b->first] > c->repoch;
  if (c->rblock == MANY_BLOCKS) return c->repoch != b->first;
  if (c->rblock < b->first) return true;
  if (c->rblock != b->serial) return false;
  if (c->repoch != b->epoch) return true;
  if (reader_warp(c) != t->warp) return false;
  for (u32 m = c->lanes; m; m &= m - 1) {
    u32 lane = 31 - __clz(m & -m);
    if (lane != t->lane && known(t)[lane] < c->rclock) return false;
  }
  return true;
}

static __device__ void add_reader(Thread* t, Block* b, Cell* c) {
  bool here = c->rblock == b->serial && c->repoch == b->epoch;
  bool launch = c->rblock == MANY_BLOCKS ? c->repoch == b->first : c->rblock >= b->first;
  if (here && reader_warp(c) == t->warp && !readers_before(t, b, c)) {
    c->lanes |= 1u << t->lane;
    if (c->rclock < t->clock) c->rclock = t->clock;
  } else if (here && reader_warp(c) != t->warp) {
    set_reader_warp(c, MANY_WARPS);
  } else if (launch && c->rblock != b->serial && !b->readers) {
    c->rblock = MANY_BLOCKS; c->repoch = b->first;
  } else {
    if (b->readers && launch) ((u32*)b->readers)[c->rblock - b->first] = c->repoch + 1;
    c->rblock = b->serial; c->repoch = b->epoch; c->rclock = t->clock; c->lanes = 1u << t->lane;
    set_reader_warp(c, t->warp);
  }
}

static __device__ u32 race(Block* b, u32 other) { b->value = other; return RACE; }

static __device__ u32 writer_of(Block* b, Cell* c) {
  if (c->wblock != b->serial) return 0x80000000u | (c->wblock - b->first);
  return (c->who & 0xff) * 32 + (c->who >> 8 & 31);
}

// kind: 0 reads, 1 writes, 2 both at once. Whether the access of one cell is a fault.
static __device__ u32 cell_fault(Thread* t, Block* b, Cell* c, u32 kind, u32 shared) {
  if (shared && c->wblock != b->serial) c->wblock = c->rblock = 0;  // of another block's memory
  bool written = c->wblock != 0, async = kind & ASYNC;
  kind &= 3;
  if (shared && written && c->who >> 17 & 1) return COPYING;
  if (written && c->wblock >= b->first && c->who >> 19 & 1) return OF_BARRIER;
  if (kind != 1 && !written) return UNWRITTEN;
  bool atomic = c->who >> 16 & 1;
  if (written && !(kind == 2 && atomic) && !writer_before(t, b, c)) return race(b, writer_of(b, c));
  bool ours = async && b->reads && c->wblock == b->serial && !(c->who >> 18 & 1);
  if (ours && seen(t)[(c->who & 0xff) * 32 + (c->who >> 8 & 31)] < c->wclock) return UNSEEN;
  if (kind == 0) {
    if (shared && b->reads && async) begin_reads(b, c);  // products say themselves who reads
    else if (shared && b->reads) add_read(t, b, c);
    else add_reader(t, b, c);
    return 0;
  }
  if (!(shared && b->reads ? all_before(t, b, c) : readers_before(t, b, c)))
    return race(b, READERS);
  c->wblock = b->serial; c->wepoch = b->epoch; c->wclock = t->clock;
  c->who = t->warp | t->lane << 8 | (kind == 2 ? 1u << 16 : 0);
  c->rblock = 0;
  if (b->readers) forget_blocks(b);
  return 0;
}

static __device__ u32 cells_fault(Thread* t, Block* b, u64 cells, u64 first, u64 last, u32 kind,
                                  u32 shared, u64 readers) {
  for (u64 k = first; k <= last; k++) {
    Cell* c = (Cell*)cells + k;
    b->readers = readers ? readers + 4 * k * b->blocks : 0;
    u32 fault = cell_fault(t, b, c, kind, shared);
    if (fault) return fault;
  }
  return 0;
}

static __device__ u32 local_fault(Thread* t, Block* b, u64 offset, u32 size, u32 kind) {
  if (offset + size > b->local_bytes) return OUTSIDE;
  u8* known = (u8*)(t->local + b->local_bytes + offset);
  for (u32 k = 0; k < size; k++) {
    if (kind != 1 && !known[k]) return UNWRITTEN;
    if (kind) known[k] = 1;
  }
  return 0;
}

static __device__ u32 shared_fault(Thread* t, Block* b, u64 offset, u32 size, u32 kind) {
  u8* map = (u8*)b->shared_map;
  if (offset + size > b->shared_bytes) return OUTSIDE;
  for (u32 k = 0; k < size; k++)  // the map names the array of each byte, 0 between arrays
    if (!map[offset + k] || map[offset + k] != map[offset]) return OUTSIDE;
  return cells_fault(t, b, b->shared_cells, offset, offset + size - 1, kind, 1, 0);
}

static __device__ u32 global_fault(Thread* t, Block* b, u64 address, u32 size, u32 kind) {
  Region* r = (Region*)b->regions;
  for (u32 k = 0; k < b->region_count; k++, r++) {
    if (address < r->begin || address + size > r->end) continue;
    if ((kind & 3) && !r->writable) return READ_ONLY;
    if (!r->cells) return 0;
    u64 at = address - r->begin;
    return cells_fault(t, b, r->cells, at >> r->shift, (at + size - 1) >> r->shift, kind, 0,
                       r->readers);
  }
  return OUTSIDE;
}

// space: 0 generic, 1 global, 2 shared, 3 local, 4 constant
API u32 lumjax_access(Thread* t, Block* b, u64 address, u32 size, u32 kind, u32 space, u32 line) {
  u32 fault;
  bool local = address - t->local < b->local_bytes && b->local_bytes;
  bool shared = address - b->shared < b->shared_bytes;
  b->value = 0xffffffffu;
  if (space == 0) space = local ? 3 : shared ? 2 : 1;
  u64 base = space == 2 ? b->shared : 0;
  if ((address - base) & (size - 1)) fault = MISALIGNED;
  else if (space == 3) fault = local ? local_fault(t, b, address - t->local, size, kind) : OUTSIDE;
  else if (space == 2) fault = shared_fault(t, b, address - b->shared, size, kind);
  else fault = global_fault(t, b, address, size, kind);
  if (!fault) return 0;
  if (space == 2) address -= b->shared;
  return lumjax_fault(t, b, fault, address, size, kind | space << 8, line, (u32)b->value);
}
"""

COPIES = r"""
// Copies into shared memory that a thread has begun: they are made as late as they may be.
struct Copy { u64 to, from; u32 size, given, group, line; };

static __device__ void mark_copied(Thread* t, Block* b, Copy* c, bool done) {
  Cell* cell = (Cell*)b->shared_cells + (c->to - b->shared);
  for (u32 k = 0; k < c->size; k++, cell++) {
    cell->wblock = b->serial; cell->wepoch = b->epoch; cell->wclock = t->clock;
    cell->who = t->warp | t->lane << 8 | (done ? 0 : 1u << 17);
    cell->rblock = 0;
  }
}

// What of `from` is not given is zero.
API u32 lumjax_copy(Thread* t, Block* b, u64 to, u64 from, u32 size, u32 given, u32 line) {
  Copy* c = (Copy*)t->copies + t->copied;
  u32 fault = t->copied == MOST_COPIES ? MANY_COPIES : given > size ? OUTSIDE : 0;
  if (!fault && lumjax_access(t, b, to, size, 1, 2, line)) return 1;
  if (!fault && from & (size - 1)) fault = MISALIGNED;
  b->value = 0xffffffffu;
  if (!fault && given) fault = global_fault(t, b, from, given, 0);
  if (fault) return lumjax_fault(t, b, fault, from, given, 1 << 8, line, (u32)b->value);
  c->to = to; c->from = from; c->size = size; c->given = given; c->group = t->group; c->line = line;
  t->copied++;
  mark_copied(t, b, c, false);
  return 0;
}

// All groups of copies end but the last `left` ones that are closed.
API u32 lumjax_copied(Thread* t, Block* b, u32 left) {
  u32 kept = 0;
  for (u32 k = 0; k < t->copied; k++) {
    Copy* c = (Copy*)t->copies + k;
    if (c->group + left >= t->group) {
      ((Copy*)t->copies)[kept++] = *c;
      continue;
    }
    u32 fault = c->given ? global_fault(t, b, c->from, c->given, 0) : 0;
    if (fault) return lumjax_fault(t, b, fault, c->from, c->given, 1 << 8, c->line, (u32)b->value);
    for (u32 i = 0; i < c->size; i++) ((u8*)c->to)[i] = i < c->given ? ((u8*)c->from)[i] : 0;
    mark_copied(t, b, c, true);
  }
  t->copied = kept;
  return 0;
}
"""
