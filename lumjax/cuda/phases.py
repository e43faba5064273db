"""Barriers that are not of whole blocks, on the executor: CUDA C. Mbarriers with their phases,
barriers that are called by a number, and what is ordered by them.

Each thread has two vectors of clocks: what it knows of every thread of the block, and what of that
asynchronous copies and products see, because a fence.proxy.async lies between. Who arrives leaves
both with the barrier, who finds a phase over takes them from it. Copies that end with a phase have
a place of their own behind the threads', one for each barrier, and the products of each warp.
"""

from __future__ import annotations

MOST_BARRIERS, NAMED = 64, 16

TEXT = r"""
#define RUN 4u
#define NAMED 16u
// at: bytes into shared memory. by, clock: who made it, and when; number: phases that are over.
struct Phase { u32 at, alive, expected, pending, number, fenced, by, clock; long long bytes; };

static __device__ Phase* phase_of(Block* b, u32 k) {
  return (Phase*)(b->barriers + (u64)k * (sizeof(Phase) + 16 * b->length));
}
static __device__ u32* arrived(Block* b, Phase* p, u32 sight) {
  return (u32*)(p + 1) + sight * b->length;
}
static __device__ u32* over(Block* b, Phase* p, u32 sight) { return arrived(b, p, 2 + sight); }

static __device__ u32 own(Block* b, Thread* t) { return b->reads ? t->index : t->lane; }

static __device__ void join(u32* to, u32* from, u32 count) {
  for (u32 k = 0; k < count; k++) if (to[k] < from[k]) to[k] = from[k];
}

static __device__ void begin_interval(Block* b, Thread* t) { known(t)[own(b, t)] = ++t->clock; }

static __device__ void acquire(Block* b, Thread* t, Phase* p) {
  join(known(t), over(b, p, 0), b->length);
  join(seen(t), over(b, p, 1), b->length);
}

static __device__ void release(Block* b, Thread* t, Phase* p) {
  join(arrived(b, p, 0), known(t), b->length);
  join(arrived(b, p, 1), seen(t), b->length);
  begin_interval(b, t);
}

static __device__ void end_phase(Block* b, Phase* p) {
  if (p->pending || p->bytes) return;
  for (u32 s = 0; s < 2; s++) join(over(b, p, s), arrived(b, p, s), b->length);
  p->number++;
  p->pending = p->expected;
}

static __device__ void clear_phase(Block* b, Phase* p, u32 count) {
  for (u32 k = 0; k < 4 * b->length; k++) ((u32*)(p + 1))[k] = 0;
  p->alive = 1; p->expected = p->pending = count; p->number = p->fenced = 0; p->bytes = 0;
}

static __device__ void begin_orders(Block* b) {
  for (u32 k = 0; k < MOST_BARRIERS + NAMED; k++) phase_of(b, k)->alive = 0;
}

// A barrier of the whole block.
static __device__ void meet_all(Block* b) {
  u32* all[2] = {known(thread_of(b, 0)), seen(thread_of(b, 0))};
  for (u32 k = 1; k < b->count; k++) {
    join(all[0], known(thread_of(b, k)), b->length);
    join(all[1], seen(thread_of(b, k)), b->length);
  }
  for (u32 k = 0; k < b->count; k++) {
    Thread* t = thread_of(b, k);
    for (u32 l = 0; l < b->length; l++) { known(t)[l] = all[0][l]; seen(t)[l] = all[1][l]; }
  }
  for (u32 k = 0; k < b->count; k++) begin_interval(b, thread_of(b, k));
}

// ---- mbarriers

static __device__ u32 barrier_fault(Thread* t, Block* b, u32 fault, u64 address, u32 line) {
  return lumjax_fault(t, b, fault, address - b->shared, 8, 2 | 2 << 8, line, t->index);
}

static __device__ u32 find_phase(Block* b, u64 address) {
  u32 at = (u32)(address - b->shared);
  for (u32 k = 0; k < MOST_BARRIERS; k++)
    if (phase_of(b, k)->alive && phase_of(b, k)->at == at) return k;
  return MOST_BARRIERS;
}

// The number of a barrier that a thread may ask, MOST_BARRIERS after a fault.
static __device__ u32 asked(Thread* t, Block* b, u64 address, u32 line) {
  u32 k = find_phase(b, address);
  if (k == MOST_BARRIERS) { barrier_fault(t, b, NO_BARRIER, address, line); return k; }
  Cell* c = (Cell*)b->shared_cells + phase_of(b, k)->at;
  if (!writer_before(t, b, c)) {
    lumjax_fault(t, b, RACE, address - b->shared, 8, 2 | 2 << 8, line, writer_of(b, c));
    return MOST_BARRIERS;
  }
  add_read(t, b, c);
  return k;
}

API u32 lumjax_make(Thread* t, Block* b, u64 address, u32 count, u32 line) {
  u32 k = 0;
  if (lumjax_access(t, b, address, 8, 1, 2, line)) return 1;
  while (k < MOST_BARRIERS && phase_of(b, k)->alive) k++;
  if (k == MOST_BARRIERS || !count || count >> 20)
    return barrier_fault(t, b, NO_BARRIER, address, line);
  Phase* p = phase_of(b, k);
  clear_phase(b, p, count);
  p->at = (u32)(address - b->shared); p->by = t->index; p->clock = t->clock;
  for (u32 i = 0; i < 8; i++) ((Cell*)b->shared_cells)[p->at + i].who |= 1u << 19;
  return 0;
}

API u32 lumjax_unmake(Thread* t, Block* b, u64 address, u32 line) {
  u32 k = find_phase(b, address);
  if (k == MOST_BARRIERS) return barrier_fault(t, b, NO_BARRIER, address, line);
  if (is_moving(b, k)) return barrier_fault(t, b, COPYING, address, line);
  Cell* c = (Cell*)b->shared_cells + phase_of(b, k)->at;
  for (u32 i = 0; i < 8; i++) c[i].who &= ~(1u << 19);
  phase_of(b, k)->alive = 0;
  return lumjax_access(t, b, address, 8, 1, 2, line);
}

// Expect bytes, then arrive `count` times: the number of the phase, ~0 after a fault.
API u32 lumjax_arrive(Thread* t, Block* b, u64 address, u32 count, u32 bytes, u32 line) {
  u32 k = asked(t, b, address, line);
  if (k == MOST_BARRIERS) return ~0u;
  Phase* p = phase_of(b, k);
  u32 number = p->number;
  p->bytes += bytes;
  if (!count) return number;
  if (p->pending < count) { barrier_fault(t, b, ARRIVED, address, line); return ~0u; }
  release(b, t, p);
  p->pending -= count;
  end_phase(b, p);
  return number;
}

// Whether a phase is over, by its parity or (`by_number`) its number. Copies are made for it as
// late as they may be: now.
static __device__ bool is_over(Block* b, u32 k, u32 phase, u32 by_number) {
  Phase* p = phase_of(b, k);
  for (;;) {
    if (b->fault || !p->alive) return true;
    if (by_number ? p->number > phase : (p->number & 1) != (phase & 1)) return true;
    if (!move_one(b, k)) return false;
  }
}

// 0 not yet, 1 it is over, 2 a fault.
API u32 lumjax_over(Thread* t, Block* b, u64 address, u32 phase, u32 by_number, u32 line) {
  u32 k = asked(t, b, address, line);
  if (k == MOST_BARRIERS) return 2;
  t->which = k; t->parity = phase; t->what = by_number; t->line = line;
  if (!is_over(b, k, phase, by_number)) return 0;
  if (b->fault) return 2;
  acquire(b, t, phase_of(b, k));
  return 1;
}

// ---- barriers with numbers

// What is ordered is ordered when the last one comes: later ones may come before others go on.
API u32 lumjax_meet(Thread* t, Block* b, u32 id, u32 count, u32 waits, u32 line) {
  Phase* p = phase_of(b, MOST_BARRIERS + id);
  if (!count) count = b->count;
  else if (count & 31) return lumjax_fault(t, b, THREADS, id, count, 0, line, t->index);
  if (id >= NAMED) return lumjax_fault(t, b, NO_BARRIER, id, 8, 2 | 2 << 8, line, t->index);
  if (!p->alive) clear_phase(b, p, 0);
  if (!p->pending) p->pending = p->expected = count;
  if (p->expected != count) return lumjax_fault(t, b, THREADS, id, count, 0, line, t->index);
  t->which = MOST_BARRIERS + id; t->parity = p->number; t->line = line;
  release(b, t, p);
  p->pending--;
  p->expected = p->pending ? count : 0;
  end_phase(b, p);
  if (p->number == t->parity) return 0;
  if (waits) acquire(b, t, p);
  for (u32 k = 0; k < b->count; k++) {
    Thread* x = thread_of(b, k);
    if (x->state == 7 && x->which == t->which) { acquire(b, x, p); x->state = RUN; }
  }
  return 0;
}

// Whether a thread that waits for a phase (5), once (6), or at a barrier with a number (7) goes on.
static __device__ bool may_go_on(Thread* t, Block* b) {
  Phase* p = phase_of(b, t->which);
  if (t->state == 6) return true;
  if (t->state == 5) return is_over(b, t->which, t->parity, t->what);
  return p->number != t->parity;
}

// fence.proxy.async (0), or fence.mbarrier_init (1): it is about barriers only that one has made.
API void lumjax_fenced(Thread* t, Block* b, u32 what) {
  if (!b->reads) return;
  for (u32 k = 0; what && k < MOST_BARRIERS; k++)
    if (phase_of(b, k)->by == t->index) phase_of(b, k)->fenced = 1;
  if (what) return;
  join(seen(t), known(t), b->length);
  begin_interval(b, t);
}
"""
EXPORTS = (
    "lumjax_make", "lumjax_unmake", "lumjax_arrive", "lumjax_over", "lumjax_meet", "lumjax_fenced",
)  # fmt: skip
