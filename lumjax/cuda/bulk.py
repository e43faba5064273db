"""Bulk copies and products of warpgroups on the executor: CUDA C.

A bulk copy is made when somebody waits for the phase that it ends; a product when its warp waits
for it. What touches their places before that is reported. A warp computes its own 16 of the 64
rows, so that the warps of a warpgroup need not run together; they must ask for the same products.

An accumulator that is under way holds a pattern that no arithmetic gives, and the number of the
place where its value will be. When its warp has waited, registers with the pattern get the value.
"""

from __future__ import annotations

MOST_MOVES, MOVE = 512, 64  # bulk copies under way in a block, and bytes of one
PRODUCTS = 4096  # bytes of what a thread keeps of products
ISSUED = 8 * 64 * 24 + 64  # bytes of what the block's warpgroups have asked for
POISON = 0x7FA1  # in the upper half of an accumulator that is under way
MAP_MAGIC = 0x70616D2E6C6A2E31

FIRST = r"""
struct Move { u64 to, from; u32 size, barrier, by, line, rank; int at[5]; };

static __device__ Move* move_of(Block* b, u32 k) { return (Move*)b->moves + k; }
static __device__ bool is_moving(Block* b, u32 barrier) {
  for (u32 k = 0; k < b->moving; k++) if (move_of(b, k)->barrier == barrier) return true;
  return false;
}
static __device__ bool move_one(Block* b, u32 barrier);
"""

_MOVES = r"""
// A tensor map as the executor's own host makes it: strides in bytes, of all dimensions but the
// first; swizzle 0, or 1, 2, 3 for 32, 64, 128 bytes.
struct Map { u64 magic, base, stride[4]; u32 extent[5], box[5], size, rank, swizzle; };

static __device__ void mark_moved(Block* b, u32 k, u64 to, u32 size, u32 clock, bool done) {
  Cell* c = (Cell*)b->shared_cells + (to - b->shared);
  for (u32 i = 0; i < size; i++, c++) {
    c->wblock = b->serial; c->wepoch = b->epoch; c->wclock = clock; c->rblock = 0;
    c->who = (b->warps + k / 32) | k % 32 << 8 | 1u << 18 | (done ? 0 : 1u << 17);
  }
}

// What all copies ask: a barrier that they see, and room.
static __device__ u32 begin_move(Thread* t, Block* b, Move* m, u64 barrier) {
  u32 k = asked(t, b, barrier, m->line);
  if (k == MOST_BARRIERS) return 1;
  Phase* p = phase_of(b, k);
  if (!p->fenced && seen(t)[p->by] < p->clock) return barrier_fault(t, b, UNSEEN, barrier, m->line);
  if (b->moving == MOST_MOVES)
    return lumjax_fault(t, b, MANY_COPIES, m->from, m->size, 1 << 8, m->line, ~0u);
  b->value = 0xffffffffu;
  u32 fault = shared_fault(t, b, m->to - b->shared, m->size, 1 | ASYNC);
  if (fault)
    return lumjax_fault(t, b, fault, m->to - b->shared, m->size, 1 | 2 << 8, m->line,
                        (u32)b->value);
  mark_moved(b, k, m->to, m->size, p->number + 1, false);
  m->barrier = k; m->by = t->index;
  *move_of(b, b->moving++) = *m;
  return 0;
}

API u32 lumjax_move(Thread* t, Block* b, u64 to, u64 from, u32 size, u64 barrier, u32 line) {
  Move m;
  m.to = to; m.from = from; m.size = size; m.line = line; m.rank = 0;
  u32 fault = !size || (from | size | (to - b->shared)) & 15 ? MISALIGNED : 0;
  b->value = 0xffffffffu;
  if (!fault) fault = global_fault(t, b, from, size, ASYNC);
  if (fault) return lumjax_fault(t, b, fault, from, size, 1 << 8, line, (u32)b->value);
  return begin_move(t, b, &m, barrier);
}

static __device__ bool is_map(Map* m, u32 rank) {
  u32 inner = m->box[0] * m->size, bytes = m->size;
  if (m->magic != MAP_MAGIC || m->rank != rank || m->base & 15 || inner & 15) return false;
  if (m->swizzle > 3 || (m->swizzle && inner > 16u << m->swizzle)) return false;
  for (u32 d = 0; d < rank; d++) {
    if (!m->box[d] || m->box[d] > 256 || !m->extent[d]) return false;
    if (d && m->stride[d - 1] & 15) return false;
    bytes *= m->box[d];
  }
  return bytes <= 227 << 10;
}

// A thread sees a map in global memory from where it says so. Its last ones are kept.
API void lumjax_acquired(Thread* t, u64 map) { t->acquired[t->acquires++ & 7] = (u32)(map >> 6); }

static __device__ bool has_acquired(Thread* t, u64 map) {
  for (u32 k = 0; k < 8 && k < t->acquires; k++) if (t->acquired[k] == (u32)(map >> 6)) return true;
  return false;
}

// cp.async.bulk.tensor: where in the tensor is in `given`.
API u32 lumjax_move_tensor(Thread* t, Block* b, u64 to, u64 map, u64 barrier, u32 rank, u32 line) {
  Move m;
  Map* of = (Map*)map;
  b->value = 0xffffffffu;
  u32 fault = map & 63 ? MISALIGNED : global_fault(t, b, map, 128, 0);
  if (!fault && !is_map(of, rank)) fault = NO_MAP;
  if (!fault && !has_acquired(t, map)) fault = UNACQUIRED;
  if (fault) return lumjax_fault(t, b, fault, map, 128, 1 << 8, line, (u32)b->value);
  m.to = to; m.from = map; m.line = line; m.rank = rank; m.size = of->size;
  for (u32 d = 0; d < rank; d++) { m.size *= of->box[d]; m.at[d] = (int)t->given[d]; }
  if ((to - b->shared) & 127)
    return lumjax_fault(t, b, MISALIGNED, to - b->shared, m.size, 1 | 2 << 8, line, ~0u);
  return begin_move(t, b, &m, barrier);
}

// One row of a box; what is outside of the tensor is zero.
static __device__ u32 move_row(Thread* t, Block* b, Move* m, u32 row) {
  Map* of = (Map*)m->from;
  u32 inner = of->box[0] * of->size, rest = row, span = (1u << of->swizzle) - 1;
  u64 from = of->base;
  bool inside = true;
  for (u32 d = 1; d < m->rank; d++) {
    long long at = m->at[d] + (long long)(rest % of->box[d]);
    rest /= of->box[d];
    inside = inside && at >= 0 && at < of->extent[d];
    from += at * of->stride[d - 1];
  }
  long long first = (long long)m->at[0] * of->size, end = (long long)of->extent[0] * of->size;
  u32 low = first < 0 ? (u32)-first : 0;
  u32 high = first + inner > end ? (end > first ? (u32)(end - first) : 0) : inner;
  if (inside && low < high) {
    u32 fault = global_fault(t, b, from + first + low, high - low, ASYNC);
    if (fault)
      return lumjax_fault(t, b, fault, from + first + low, high - low, 1 << 8, m->line,
                          (u32)b->value);
  }
  for (u32 i = 0; i < inner; i++) {
    u32 at = (u32)(m->to - b->shared) + row * inner + i;
    at ^= (at >> 7 & span) << 4;
    ((u8*)b->shared)[at] = inside && i >= low && i < high ? *(u8*)(from + first + i) : 0;
  }
  return 0;
}

static __device__ void make_move(Thread* t, Block* b, Move* m) {
  Phase* p = phase_of(b, m->barrier);
  if (!m->rank) {
    for (u32 i = 0; i < m->size; i++) ((u8*)m->to)[i] = ((u8*)m->from)[i];
  } else {
    Map* of = (Map*)m->from;
    u32 rows = m->size / (of->box[0] * of->size);
    for (u32 r = 0; r < rows; r++) if (move_row(t, b, m, r)) return;
  }
  mark_moved(b, m->barrier, m->to, m->size, p->number + 1, true);
  u32* mine = arrived(b, p, 0) + 32 * b->warps + m->barrier;
  if (*mine < p->number + 1) *mine = p->number + 1;
  p->bytes -= m->size;
  end_phase(b, p);
}

// Make one copy that ends with a barrier's phase, in an order that the seed chooses.
static __device__ bool move_one(Block* b, u32 barrier) {
  u32 found = MOST_MOVES;
  for (u32 k = 0; k < b->moving; k++)
    if (move_of(b, k)->barrier == barrier && (found == MOST_MOVES || b->seed & 1)) found = k;
  if (found == MOST_MOVES) return false;
  Move m = *move_of(b, found);
  b->moving--;
  for (u32 k = found; k < b->moving; k++) *move_of(b, k) = *move_of(b, k + 1);
  make_move(thread_of(b, m.by), b, &m);
  return true;
}
"""

_PRODUCTS = r"""
// what: the kind (0 bf16, 1 f16, 2 tf32) | columns / 8 << 8 | left, right turned << 16, 17 |
// whether sums are added to << 18 | left, right negated << 19, 20
struct Product { u64 left, right; u32 what, base, group, line; };
struct Products {
  u32 given[128], sums[512], used, count, group, fenced, serial, clock; Product list[32];
};
struct Issued { u64 left, right, what; };

static __device__ Products* products_of(Thread* t) { return (Products*)t->products; }
static __device__ u32* issued_by(Block* b, u32 group) {
  return (u32*)(b->issued + 8 * 64 * sizeof(Issued)) + group;
}

// Sixteen bytes of a matrix in shared memory, in bytes from its beginning: of row i the k-th ones,
// or, if it is turned, of depth k the i-th ones.
static __device__ u32 place_in(u64 d, bool turned, u32 i, u32 k) {
  u32 start = (u32)(d & 0x3fff) << 4, lead = (u32)(d >> 16 & 0x3fff) << 4;
  u32 stride = (u32)(d >> 32 & 0x3fff) << 4, mode = (u32)(d >> 62), at;
  u32 wide = mode == 0 ? 1 : mode == 1 ? 8 : mode == 2 ? 4 : 2;
  if (turned && wide == 1) at = i * stride + (k & 7) * 16 + (k >> 3) * lead;
  else if (turned) at = i % wide * 16 + i / wide * lead + (k & 7) * 16 * wide + (k >> 3) * stride;
  else at = (i >> 3) * stride + (i & 7) * 16 * wide + k * (wide == 1 ? lead : 16);
  at += start;
  return at ^ (at >> 7 & (wide - 1)) << 4;
}

// The parts of a product that a warp reads: first and end of one side.
static __device__ u64 part_of(Product* p, u32 warp, u32 side, u32* first, u32* end, u32* deep) {
  bool turned = p->what >> (16 + side) & 1;
  u32 rows = side ? (p->what >> 8 & 63) * 8 : 16, from = side ? 0 : 16 * (warp & 3);
  *first = turned ? from / 8 : from;
  *end = turned ? (from + rows) / 8 : from + rows;
  *deep = turned ? 16 : 2;
  return side ? p->right : p->left;
}

static __device__ void mark_reads(Block* b, u32 warp, Product* p, u32 clock) {
  u32 first, end, deep;
  for (u32 side = 0; side < 2; side++) {
    u64 d = part_of(p, warp, side, &first, &end, &deep);
    for (u32 i = first; i < end; i++)
      for (u32 k = 0; k < deep; k++) {
        Cell* c = (Cell*)b->shared_cells + place_in(d, p->what >> (16 + side) & 1, i, k);
        for (u32 n = 0; n < 16; n++) reads_of(b, c + n, warp)->products = clock;
      }
  }
}

// Whether every lane may read what a product reads.
static __device__ u32 operands_fault(Block* b, Thread** x, Product* p) {
  u32 vectors[2][1024 + MOST_BARRIERS + 32], first, end, deep;
  Thread all = *x[0];
  for (u32 k = 0; k < b->length; k++)
    for (u32 l = 0; l < 32; l++) {
      u32 a = known(x[l])[k], s = seen(x[l])[k];
      if (!l || vectors[0][k] > a) vectors[0][k] = a;
      if (!l || vectors[1][k] > s) vectors[1][k] = s;
    }
  all.known = (u64)vectors[0]; all.seen = (u64)vectors[1];
  for (u32 side = 0; side < 2; side++) {
    u64 d = part_of(p, x[0]->warp, side, &first, &end, &deep);
    if (d & 0x3fffc000c000c000ull) return lumjax_fault(x[0], b, LAYOUT, d, 8, 0, p->line, 0);
    for (u32 i = first; i < end; i++)
      for (u32 k = 0; k < deep; k++) {
        u32 at = place_in(d, p->what >> (16 + side) & 1, i, k);
        b->value = 0xffffffffu;
        u32 fault = shared_fault(&all, b, at, 16, ASYNC);
        if (fault) return lumjax_fault(x[0], b, fault, at, 16, 2 << 8, p->line, (u32)b->value);
      }
  }
  mark_reads(b, x[0]->warp, p, NEVER);
  return 0;
}

// All warps of a warpgroup ask for the same products in the same order.
static __device__ u32 same_as_others(Block* b, Thread* t, Product* p, u32 serial) {
  u32 group = t->warp / 4, *top = issued_by(b, group);
  Issued* i = (Issued*)b->issued + 64 * group + serial % 64;
  if (group * 128 + 128 > b->count) return lumjax_fault(t, b, DEADLOCK, 0, 0, 0, p->line, t->index);
  if (serial == *top) {
    i->left = p->left; i->right = p->right; i->what = p->what;
    ++*top;
    return 0;
  }
  bool same = i->left == p->left && i->right == p->right && i->what == p->what;
  if (same || *top - serial > 64) return 0;
  return lumjax_fault(t, b, DIVERGED, 0, 0, 0, p->line, t->index);
}

static __device__ bool issue(Block* b, Thread** x) {
  Products* first = products_of(x[0]);
  Product* p = first->list + first->count;
  if (first->count == 32) return !lumjax_fault(x[0], b, MANY_COPIES, 0, 0, 0, x[0]->line, ~0u);
  p->left = x[0]->value; p->right = x[0]->other; p->what = x[0]->what; p->line = x[0]->line;
  p->group = first->group;
  u32 wide = (p->what >> 8 & 63) * 4, held = first->given[0];
  bool chained = held >> 16 == POISON;
  p->base = chained ? held & 0xffff : first->used;
  if (!chained && first->used + wide > 512)
    return !lumjax_fault(x[0], b, MANY_COPIES, 0, 0, 0, p->line, ~0u);
  if (!chained && !first->fenced) return !lumjax_fault(x[0], b, UNFENCED, 0, 0, 0, p->line, ~0u);
  if (!chained) first->used += wide;
  for (u32 l = 0; l < 32; l++) {
    Products* own = products_of(x[l]);
    if (x[l]->value != p->left || x[l]->other != p->right || x[l]->what != p->what)
      return !lumjax_fault(x[l], b, DIVERGED, 0, 0, 0, p->line, x[0]->index);
    for (u32 k = 0; k < wide; k++) {
      u32 mark = POISON << 16 | (p->base + k);
      if (chained ? own->given[k] != mark : own->given[k] >> 16 == POISON)
        return !lumjax_fault(x[l], b, UNFINISHED, 0, 0, 0, p->line, ~0u);
      if (!chained) own->sums[p->base + k] = own->given[k];
      own->given[k] = mark;
    }
  }
  if (same_as_others(b, x[0], p, first->serial++) || operands_fault(b, x, p)) return false;
  first->count++;
  return true;
}

static __device__ float entry(Block* b, u64 d, u32 what, bool turned, u32 row, u32 k) {
  u32 kind = what & 3, wide = kind == 2 ? 4 : 8;
  u32 at = turned ? place_in(d, true, row / wide, k) : place_in(d, false, row, k / wide);
  u32 within = turned ? row % wide : k % wide;
  if (kind == 2) return __uint_as_float(((u32*)(b->shared + at))[within] & 0xffffe000u);
  return half_of(kind, ((unsigned short*)(b->shared + at))[within]);
}

static __device__ void compute(Block* b, Thread** x, Product* p) {
  float left[16][16], right[256][16];
  u32 deep = (p->what & 3) == 2 ? 8 : 16, cols = (p->what >> 8 & 63) * 8, w = x[0]->warp & 3;
  for (u32 k = 0; k < deep; k++) {
    for (u32 r = 0; r < 16; r++)
      left[r][k] = entry(b, p->left, p->what, p->what >> 16 & 1, 16 * w + r, k);
    for (u32 r = 0; r < cols; r++)
      right[r][k] = entry(b, p->right, p->what, p->what >> 17 & 1, r, k);
  }
  float sign = (p->what >> 19 ^ p->what >> 20) & 1 ? -1.0f : 1.0f;
  for (u32 l = 0; l < 32; l++)
    for (u32 i = 0; i < cols / 2; i++) {
      u32* sum = products_of(x[l])->sums + p->base + i;
      u32 row = (l >> 2) + 8 * (i >> 1 & 1), col = 8 * (i >> 2) + 2 * (l & 3) + (i & 1);
      double total = p->what >> 18 & 1 ? __uint_as_float(*sum) : 0.0;
      for (u32 k = 0; k < deep; k++) total += (double)left[row][k] * right[col][k] * sign;
      *sum = __float_as_uint((float)total);
    }
}

// All groups of products end but the last `left` ones that are closed.
static __device__ void finish(Block* b, Thread** x, u32 left) {
  Products* first = products_of(x[0]);
  u32 kept = 0, clock = ++first->clock;
  for (u32 l = 0; l < 32; l++) known(x[l])[clock_of_products(b, x[l]->warp)] = clock;
  for (u32 k = 0; k < first->count; k++) {
    Product* p = first->list + k;
    if (p->group + left >= first->group) { first->list[kept++] = *p; continue; }
    compute(b, x, p);
    mark_reads(b, x[0]->warp, p, clock);
  }
  first->count = kept;
  for (u32 k = 0; k < kept; k++) mark_reads(b, x[0]->warp, first->list + k, NEVER);
  if (!kept) first->used = 0;
  first->fenced = 0;
}

// What a warp does together: 4 a product, 5 a fence, 6 the end of a group, 7 a wait.
static __device__ bool of_products(Block* b, Thread** x, u32 reason) {
  if (reason == 4) return issue(b, x);
  if (reason == 5) products_of(x[0])->fenced = 1;
  else if (reason == 6) products_of(x[0])->group++;
  else finish(b, x, x[0]->what);
  return true;
}

// An accumulator's value, if it is known.
API u32 lumjax_settled(Thread* t, Block* b, u32 bits) {
  if (bits >> 16 != POISON) return bits;
  Products* first = products_of(thread_of(b, t->index & ~31u));
  for (u32 k = 0; k < first->count; k++) {
    Product* p = first->list + k;
    if ((bits & 0xffff) - p->base < (p->what >> 8 & 63) * 4) return bits;
  }
  return products_of(t)->sums[bits & 511];
}

static __device__ void begin_phases(Block* b) {
  begin_orders(b);
  b->moving = 0;
  for (u32 k = 0; k < b->count; k++) {
    Products* own = products_of(thread_of(b, k));
    if (own) own->used = own->count = own->group = own->fenced = own->serial = own->clock = 0;
  }
  for (u32 g = 0; b->issued && g < 8; g++) *issued_by(b, g) = 0;
}

// A block's end: nothing may be under way.
static __device__ u32 all_over(Block* b) {
  for (u32 k = 0; k < b->moving; k++) {
    Move* m = move_of(b, k);
    return lumjax_fault(thread_of(b, m->by), b, EARLY, 0, 0, 0, m->line, ~0u);
  }
  for (u32 k = 0; b->issued && k < b->count; k += 32) {
    Thread* t = thread_of(b, k);
    Products* own = products_of(t);
    if (own->count) return lumjax_fault(t, b, EARLY, 0, 0, 0, own->list[0].line, ~0u);
    if (own->serial != *issued_by(b, k / 128))
      return lumjax_fault(t, b, DEADLOCK, 0, 0, 0, own->list[0].line, ~0u);
  }
  return 0;
}
"""
_CONSTANTS = f"#define POISON {POISON}u\n#define MAP_MAGIC {MAP_MAGIC}ull\n"
TEXT = _CONSTANTS + _MOVES + _PRODUCTS
EXPORTS = ("lumjax_move", "lumjax_move_tensor", "lumjax_settled", "lumjax_acquired")
