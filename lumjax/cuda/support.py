"""What a launch on the CPU needs besides the kernel: its scheduler and the checks of its accesses.

It is CUDA C, which NVRTC makes PTX of and the executor's own translation native code: no other
compiler is needed. The structures that it shares with translated kernels are laid out here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate

from lumjax.cuda import bulk, meeting, phases, shadow
from lumjax.record import record

_XYZ = ("x", "y", "z")
THREAD_FIELDS = (
    "values local frame value copies known seen products other met",  # 64 bits
    "resume state mask reason site line lane warp index taking clock what copied group "
    "tid_x tid_y tid_z which parity acquires",
)
BLOCK_FIELDS = (
    "params shared threads step regions shared_cells shared_map fuel fault_address value "
    "reads barriers moves issued grid readers",
    "first serial epoch count stride local_bytes shared_bytes region_count seed fault fault_size "
    "fault_line fault_thread fault_block fault_other fault_kind "
    "ctaid_x ctaid_y ctaid_z ntid_x ntid_y ntid_z nctaid_x nctaid_y nctaid_z blocks "
    "warps length moving done stirred spare",
)
LANES = 32
# Behind a thread's fields: what it gives to an instruction of the whole warp, and gets from it; the
# last tensor maps that it acquired; what it loaded last where blocks meet.
ARRAYS = {"given": 12, "result": 4, "acquired": 8, "heard": meeting.MOST_MEETINGS}
COPY, MOST_COPIES = 32, 128  # bytes of an asynchronous copy that is under way, and how many may be
CELL = 32  # bytes of one cell's shadow
READERS = 0xFFFFFFF  # stands for whoever read a cell
HOST = 1  # who wrote a cell: the host; block k of the first launch is 2 + k


@record
class Structure:
    """A C structure: where each field is, and of which LLVM type; its size."""

    fields: dict[str, tuple[int, str]]
    size: int
    text: str


def _structure(name: str, long: str, short: str, arrays: Mapping[str, int]) -> Structure:
    """A structure of fields of 64 bits, fields of 32, arrays of 32; an array's elements are fields
    by the array's name and their number.
    """
    wide, narrow = long.split(), short.split()
    elements = [f"{a}{k}" for a, count in arrays.items() for k in range(count)]
    names = wide + narrow + elements
    kinds = ["i64"] * len(wide) + ["i32"] * (len(names) - len(wide))
    places = list(accumulate([8 if k == "i64" else 4 for k in kinds], initial=0))
    fields = {n: (at, kind) for n, at, kind in zip(names, places, kinds, strict=False)}
    rest = "".join(f" u32 {a}[{count}];" for a, count in arrays.items())
    text = f"struct {name} {{ u64 {', '.join(wide)}; u32 {', '.join(narrow)};{rest} }};\n"
    return Structure(fields, -(-places[-1] // 8) * 8, text)


THREAD = _structure("Thread", *THREAD_FIELDS, ARRAYS)
BLOCK = _structure("Block", *BLOCK_FIELDS, {})

FAULTS = (
    "", "is out of bounds", "is misaligned", "reads what nothing has written",
    "races with another access", "waits for threads that never come",
    "meets threads of its warp that wait elsewhere", "asks a lane that takes no part",
    "does not end", "is a trap", "writes to what is only read",
    "meets a copy that nobody has waited for", "starts more copies than are kept",
    "waits for a phase that never ends", "asks a barrier that nobody has made, or made anew",
    "touches the memory of a barrier", "arrives where all have arrived",
    "is not seen by asynchronous copies and products without a fence.proxy.async",
    "reads a sum that tensor cores have not finished", "multiplies without a wgmma.fence",
    "gives a matrix that is laid out in no known way", "is no tensor map",
    "meets a barrier with another number of threads",
    "ends before its copies and products do",
    "is a tensor map that its thread has not acquired by a fence.proxy.tensormap",
    "waits for blocks that never come",
)  # fmt: skip
(OUTSIDE, MISALIGNED, UNWRITTEN, RACE, DEADLOCK, DIVERGED, LANE, HANG, TRAP, READ_ONLY, COPYING,
 MANY_COPIES, STUCK, NO_BARRIER, OF_BARRIER, ARRIVED, UNSEEN, UNFINISHED, UNFENCED, LAYOUT, NO_MAP,
 THREADS, EARLY, UNACQUIRED, ALONE) = range(1, len(FAULTS))  # fmt: skip


def _constants(pairs: Iterable[tuple[str, int]]) -> str:
    return "".join(f"#define {name} {value}\n" for name, value in pairs)


_HEADER = (
    "typedef unsigned char u8; typedef unsigned int u32; typedef unsigned long long u64;\n"
    + _constants([
        ("OUTSIDE", OUTSIDE), ("MISALIGNED", MISALIGNED), ("UNWRITTEN", UNWRITTEN),
        ("RACE", RACE), ("DEADLOCK", DEADLOCK), ("DIVERGED", DIVERGED), ("NO_LANE", LANE),
        ("READ_ONLY", READ_ONLY), ("READERS", READERS), ("COPYING", COPYING),
        ("MANY_COPIES", MANY_COPIES), ("MOST_COPIES", MOST_COPIES), ("STUCK", STUCK),
        ("NO_BARRIER", NO_BARRIER), ("OF_BARRIER", OF_BARRIER), ("ARRIVED", ARRIVED),
        ("UNSEEN", UNSEEN), ("UNFINISHED", UNFINISHED), ("UNFENCED", UNFENCED),
        ("LAYOUT", LAYOUT), ("NO_MAP", NO_MAP), ("THREADS", THREADS), ("EARLY", EARLY),
        ("UNACQUIRED", UNACQUIRED), ("ALONE", ALONE),
        ("MOST_MEETINGS", meeting.MOST_MEETINGS),
        ("MOST_BARRIERS", phases.MOST_BARRIERS), ("MOST_MOVES", bulk.MOST_MOVES),
    ])
    + THREAD.text
    + BLOCK.text
)  # fmt: skip

_MATRICES = r"""
// ldmatrix: lane l gives the address of a row of matrix l / 8, `what` of them, turned if bit 8.
static __device__ void load_matrices(Thread** x, u32 what) {
  for (u32 l = 0; l < 32; l++)
    for (u32 r = 0; r < (what & 7); r++) {
      if (!(what >> 8)) {
        x[l]->result[r] = ((u32*)x[8 * r + (l >> 2)]->value)[l & 3];
        continue;
      }
      u32 low = ((unsigned short*)x[8 * r + 2 * (l & 3)]->value)[l >> 2];
      u32 high = ((unsigned short*)x[8 * r + 2 * (l & 3) + 1]->value)[l >> 2];
      x[l]->result[r] = low | high << 16;
    }
}

static __device__ float half_of(u32 what, u32 bits) {
  float r;
  if (what == 0) return __uint_as_float(bits << 16);
  unsigned short h = (unsigned short)bits;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(h));
  return r;
}

// mma of 16 rows and 8 columns: `what` 0 is bf16, 1 f16, both 16 deep, 2 tf32, 8 deep. Products and
// sums are exact and rounded once, which no GPU promises.
static __device__ void multiply_matrices(Thread** x, u32 what) {
  float left[16][16], right[16][8];
  u32 depth = what == 2 ? 8 : 16;
  for (u32 l = 0; l < 32; l++) {
    u32 g = l >> 2, i = l & 3;
    for (u32 r = 0; r < 6; r++) {
      u32 bits = x[l]->given[r], upper = r < 4 ? r >> 1 : r - 4, row = g + 8 * (r & 1);
      for (u32 e = 0; e < (what == 2 ? 1 : 2); e++) {
        u32 k = what == 2 ? i + 4 * upper : 2 * i + 8 * upper + e;
        u32 part = what == 2 ? bits & 0xffffe000u : bits >> 16 * e & 0xffff;
        float v = what == 2 ? __uint_as_float(part) : half_of(what, part);
        if (r < 4) left[row][k] = v; else right[k][g] = v;
      }
    }
  }
  for (u32 l = 0; l < 32; l++)
    for (u32 r = 0; r < 4; r++) {
      u32 row = (l >> 2) + 8 * (r >> 1), col = 2 * (l & 3) + (r & 1);
      double total = __uint_as_float(x[l]->given[6 + r]);
      for (u32 k = 0; k < depth; k++) total += (double)left[row][k] * right[k][col];
      x[l]->result[r] = __float_as_uint((float)total);
    }
}

API u32 lumjax_row(Thread* t, Block* b, u64 address, u32 count, u32 line) {
  return t->lane < 8 * count ? lumjax_access(t, b, address, 16, 0, 2, line) : 0;
}
"""

_SCHEDULER = r"""
static __device__ u32 turn(u32 seed, u32 n, u32 total) {
  if (seed == 0) return n;
  if (seed == 1) return total - 1 - n;
  u32 step = seed * 2 + 1, a, b;
  for (;; step++) {
    for (a = total, b = step; b;) { u32 r = a % b; a = b; b = r; }
    if (a == 1) return (u32)(((u64)n * step + seed) % total);
  }
}

static __device__ bool in_group(Thread* x, Thread* leader) {
  return x->state == 3 && x->mask == leader->mask && x->site == leader->site;
}

static __device__ void released(Block* b, u32 base, u32 group, Thread* leader) {
  u32 clock = 0;
  for (u32 m = group; m; m &= m - 1) {
    Thread* x = thread_of(b, base + 31 - __clz(m & -m));
    ((u64*)x->values)[x->lane] = x->value;
    x->taking = group;
    x->state = RUN;
    if (clock < x->clock) clock = x->clock;
  }
  if (leader->reason != 1) return;  // an exchange of values orders nothing
  u32* all = known(leader);
  for (u32 m = group; m; m &= m - 1) {
    Thread* x = thread_of(b, base + 31 - __clz(m & -m));
    x->clock = clock;
    known(x)[own(b, x)] = clock;
    join(all, known(x), b->length);
    if (b->reads) join(seen(leader), seen(x), b->length);
  }
  for (u32 m = group; m; m &= m - 1) {
    Thread* x = thread_of(b, base + 31 - __clz(m & -m));
    for (u32 l = 0; l < b->length; l++) known(x)[l] = all[l];
    for (u32 l = 0; b->reads && l < b->length; l++) seen(x)[l] = seen(leader)[l];
  }
  for (u32 m = group; m; m &= m - 1)
    begin_interval(b, thread_of(b, base + 31 - __clz(m & -m)));
}

// What a whole warp does as one.
static __device__ bool together(Block* b, u32 base, u32 group, Thread* leader) {
  Thread* x[32];
  if (group != 0xffffffffu) {
    lumjax_fault(leader, b, DEADLOCK, 0, 0, 0, leader->line, leader->index);
    return false;
  }
  for (u32 l = 0; l < 32; l++) x[l] = thread_of(b, base + l);
  if (leader->reason == 2) load_matrices(x, leader->what);
  else if (leader->reason == 3) multiply_matrices(x, leader->what);
  else return of_products(b, x, leader->reason);
  return true;
}

// Let groups of lanes go on that are complete: 0 none, 1 some, 2 a fault.
static __device__ u32 release_warp(Block* b, u32 base, u32 lanes) {
  u32 some = 0;
  for (u32 k = 0; k < lanes; k++) {
    Thread* t = thread_of(b, base + k);
    if (t->state != 3) continue;
    if (!(t->mask >> t->lane & 1)) {
      lumjax_fault(t, b, NO_LANE, 0, 0, 0, t->line, t->index);
      return 2;
    }
    u32 group = 0, whole = 1;
    for (u32 l = 0; l < lanes; l++) {
      Thread* x = thread_of(b, base + l);
      if (!(t->mask >> l & 1) || x->state == 0) continue;
      if (in_group(x, t)) group |= 1u << l;
      else if (x->state == 3) {
        lumjax_fault(t, b, DIVERGED, 0, 0, 0, t->line, x->index);
        return 2;
      } else whole = 0;
    }
    if (!whole) continue;
    if (t->reason >= 2 && !together(b, base, group, t)) return 2;
    released(b, base, group, t);
    some = 1;
  }
  return some;
}

// 0 nobody could go on, 1 a fault, 2 somebody did.
static __device__ u32 run_warp(Block* b, u32 base, u32 lanes) {
  u32 (*step)(Thread*, Block*) = (u32(*)(Thread*, Block*))b->step;
  for (u32 ran = 0;;) {
    for (u32 n = 0; n < lanes; n++) {
      Thread* t = thread_of(b, base + turn(b->seed, n, lanes));
      if (t->state == 8 ? was_told(t, b) : t->state > RUN && may_go_on(t, b)) t->state = RUN;
      if (t->state != RUN) continue;
      u32 state = step(t, b);
      if (state == 1) return 1;
      t->state = state;
      b->stirred = 1;
      ran = 2;
    }
    u32 some = release_warp(b, base, lanes);
    if (some == 2) return 1;
    if (!some) return ran;
  }
}

static __device__ u32 open_barrier(Block* b, u32* waiting) {
  Thread* first = 0;
  *waiting = 0;
  for (u32 k = 0; k < b->count; k++) {
    Thread* t = thread_of(b, k);
    u32 fault = t->state == 3 || t->state == 7 ? DEADLOCK : t->state == 5 ? STUCK : 0;
    if ((k & 31) == 0) first = 0;
    if (fault) return lumjax_fault(t, b, fault, 0, 0, 0, t->line, t->index);
    if (t->state != 2) continue;
    if (!first) first = t;
    if (first->site != t->site) return lumjax_fault(t, b, DIVERGED, 0, 0, 0, t->line, first->index);
    *waiting += 1;
  }
  for (u32 k = 0; k < b->count; k++) {
    Thread* t = thread_of(b, k);
    if (t->state == 2) t->state = RUN;
  }
  b->epoch++;
  if (b->reads) meet_all(b);
  if (b->grid) share_meetings(b);
  return 0;
}

// 0 it has ended, 1 a fault, 2 it waits for other blocks.
static __device__ u32 run_block(Block* b) {
  u32 warps = (b->count + 31) / 32, waiting;
  do {
    for (u32 ran = 2; ran;) {
      ran = 0;
      for (u32 n = 0; n < warps; n++) {
        u32 w = turn(b->seed, n, warps), left = b->count - 32 * w;
        u32 state = run_warp(b, 32 * w, left < 32 ? left : 32);
        if (state == 1) return 1;
        if (b->reads) ran |= state;  // others may wait for what this warp did
      }
    }
    if (b->grid && waits_for_blocks(b)) return 2;
    if (open_barrier(b, &waiting)) return 1;
  } while (waiting);
  return b->reads && all_over(b);
}

static __device__ void begin_block(Block* b, u32 i) {
  b->serial = b->first + i; b->epoch = 0;
  b->ctaid_x = i % b->nctaid_x;
  b->ctaid_y = i / b->nctaid_x % b->nctaid_y;
  b->ctaid_z = i / (b->nctaid_x * b->nctaid_y);
  for (u32 k = 0; k < b->shared_bytes / 8; k++) ((u64*)b->shared)[k] = ~0ull;
  for (u32 k = 0; k < b->count; k++) {
    Thread* t = thread_of(b, k);
    t->resume = 0; t->state = RUN; t->index = k; t->lane = k & 31; t->warp = k >> 5;
    t->tid_x = k % b->ntid_x;
    t->tid_y = k / b->ntid_x % b->ntid_y;
    t->tid_z = k / (b->ntid_x * b->ntid_y);
    t->clock = 1; t->copied = t->group = t->acquires = 0;
    for (u32 l = 0; l < b->length; l++) known(t)[l] = 0;
    for (u32 l = 0; b->reads && l < b->length; l++) seen(t)[l] = 0;
    known(t)[own(b, t)] = 1;
    if (b->grid) begin_meetings(b, t);
    for (u32 l = 0; l < b->local_bytes; l++) ((u8*)t->local)[b->local_bytes + l] = 0;
  }
  if (b->reads) begin_phases(b);
}

API u32 lumjax_run(Block* b) {
  for (u32 n = 0; n < b->blocks; n++) {
    begin_block(b, turn(b->seed, n, b->blocks));
    if (run_block(b)) return 1;
  }
  return 0;
}

API int lumjax_source(Thread* t, Block* b, u32 given, u32 clamp, u32 mode, u32 line) {
  int lane = t->lane, segment = clamp >> 8 & 31, bound = clamp & 31, by = given & 31;
  int most = (lane & segment) | (bound & ~segment), j;
  if (mode == 0) j = lane - by;
  else if (mode == 1) j = lane + by;
  else if (mode == 2) j = lane ^ by;
  else j = (lane & segment) | (by & ~segment);
  bool fine = mode == 0 ? j >= most : j <= most;
  if (!fine) return 256 | lane;
  if (!(t->taking >> j & 1)) {
    lumjax_fault(t, b, NO_LANE, 0, 0, 0, line, (t->warp << 5) + j);
    return -1;
  }
  return j;
}

API u32 lumjax_ballot(Thread* t) {
  u32 found = 0;
  for (u32 l = 0; l < 32; l++)
    if (t->taking >> l & 1 && ((u64*)t->values)[l]) found |= 1u << l;
  return found;
}
"""

_NUMBERS = r"""
// A float64 and what it lacks of the exact value, as a float32: mode 1 to zero, 2 down, 3 up.
static __device__ float directed(double value, double rest, u32 mode) {
  float near = (float)value;
  double back = near, exact = value - back;
  bool above = exact > 0 || (exact == 0 && rest > 0);  // the exact value is above
  bool below = exact < 0 || (exact == 0 && rest < 0);
  if (mode == 1) mode = value > 0 ? 2 : 3;
  if (isinf(value) || value != value || !(above || below)) return near;
  int bits = __float_as_int(near);
  if (mode == 2 && below) {
    if (near == 0) return __int_as_float(0x80000001);
    return __int_as_float(near > 0 ? bits - 1 : bits + 1);
  }
  if (mode == 3 && above) {
    if (near == 0) return __int_as_float(1);
    return __int_as_float(near > 0 ? bits + 1 : bits - 1);
  }
  return near;
}

API float lumjax_narrow_directed(double x, u32 mode) { return directed(x, 0.0, mode); }

API float lumjax_fma_directed(float a, float b, float c, u32 mode) {
  double p = (double)a * b, s = p + c, t = s - p;  // the product is exact
  double rest = (p - (s - t)) + (c - t);
  if (s == 0 && rest == 0 && p != 0) return mode == 2 ? -0.0f : 0.0f;
  return directed(s, rest, mode);
}

// To float32 with an odd last bit if anything was lost: a second rounding is then correct.
API float lumjax_narrow_odd(double x) {
  float near = (float)x;
  double back = near;
  int bits = __float_as_int(near);
  if (back == x || x != x) return near;
  if (isinf(near)) return __int_as_float(bits - 1);
  bool larger = fabs(back) > fabs(x);
  return __int_as_float(larger ? (bits - 1) | 1 : bits | 1);
}
"""

SOURCE = "".join((
    _HEADER, shadow.CHECKS, bulk.FIRST, phases.TEXT, shadow.COPIES, _MATRICES, bulk.TEXT,
    meeting.TEXT, _SCHEDULER, meeting.SCHEDULER, _NUMBERS,
))  # fmt: skip
EXPORTS = (
    "lumjax_fault", "lumjax_access", "lumjax_run", "lumjax_source", "lumjax_ballot",
    "lumjax_narrow_directed", "lumjax_fma_directed", "lumjax_narrow_odd", "lumjax_copy",
    "lumjax_copied", "lumjax_row", *phases.EXPORTS, *bulk.EXPORTS,
    *meeting.EXPORTS,
)  # fmt: skip
