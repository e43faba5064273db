"""The device header: what every CUDA kernel includes, and all of its inline PTX.

Results are those of the semantics table: integers wrap, nothing traps, maxima pass NaN on, floats
saturate when they become integers.
"""

from __future__ import annotations

HEADER = r"""
typedef signed char i8; typedef unsigned char u8; typedef short i16; typedef unsigned short u16;
typedef int i32; typedef unsigned int u32; typedef long long i64; typedef unsigned long long u64;
#define LJ static __device__ __forceinline__
#define LJ_ALL 0xffffffffu

// The unsigned type, at least of 32 bits, in which integers of a type are computed.
template <class T> struct lj_wide { typedef u32 t; };
template <> struct lj_wide<i64> { typedef u64 t; };
template <> struct lj_wide<u64> { typedef u64 t; };
#define LJ_W(x) ((typename lj_wide<T>::t)(x))
template <class T> struct lj_is_signed { static const bool value = T(-1) < T(0); };

template <class T> LJ T lj_add(T a, T b) { return (T)(LJ_W(a) + LJ_W(b)); }
template <class T> LJ T lj_sub(T a, T b) { return (T)(LJ_W(a) - LJ_W(b)); }
template <class T> LJ T lj_mul(T a, T b) { return (T)(LJ_W(a) * LJ_W(b)); }
template <class T> LJ T lj_neg(T a) { return (T)(LJ_W(0) - LJ_W(a)); }
template <class T> LJ T lj_abs(T a) { return a < T(0) ? lj_neg(a) : a; }
template <class T> LJ T lj_div(T a, T b) {
  if (b == T(0)) return (T)~T(0);
  if (lj_is_signed<T>::value && b == (T)-1) return lj_neg(a);
  return (T)(a / b);
}
template <class T> LJ T lj_ipow(T a, T b) {
  const bool below = b < T(0);
  if (below && a == T(0)) return (T)~T(0);
  T base = below ? lj_div<T>(T(1), a) : a, result = T(1);
  for (u64 n = below ? 0 - (u64)b : (u64)b; n; n >>= 1) {
    if (n & 1) result = lj_mul<T>(result, base);
    base = lj_mul<T>(base, base);
  }
  return result;
}
template <class T> LJ T lj_rem(T a, T b) {
  if (b == T(0)) return a;
  if (lj_is_signed<T>::value && b == (T)-1) return T(0);
  return (T)(a % b);
}
template <class T> LJ T lj_sign(T a) { return (T)((a > T(0)) - (a < T(0))); }
template <class T> LJ T lj_max(T a, T b) { return a > b ? a : b; }
template <class T> LJ T lj_min(T a, T b) { return a < b ? a : b; }
template <class T> LJ T lj_shl(T a, T b) {
  return LJ_W(b) < 8 * sizeof(T) ? (T)(LJ_W(a) << LJ_W(b)) : T(0);
}
template <class T, class V> LJ T lj_lshr(T a, T b, V bits) {  // bits: a, unsigned and as wide
  return LJ_W(b) < 8 * sizeof(T) ? (T)(LJ_W(bits) >> LJ_W(b)) : T(0);
}
template <class T, class V> LJ T lj_ashr(T a, T b, V bits) {  // bits: a, signed and as wide
  return (T)(bits >> (LJ_W(b) < 8 * sizeof(T) ? (int)LJ_W(b) : (int)(8 * sizeof(T) - 1)));
}
template <class V> LJ int lj_popc(V bits) {
  return sizeof(V) == 8 ? __popcll((u64)bits) : __popc((u32)bits);
}
template <class V> LJ int lj_clz(V bits) {
  return sizeof(V) == 8 ? __clzll((i64)bits) : __clz((int)bits) - (int)(32 - 8 * sizeof(V));
}

LJ float lj_inf(float) { return __int_as_float(0x7f800000); }
LJ double lj_inf(double) { return __longlong_as_double(0x7ff0000000000000ll); }
LJ float lj_max(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
LJ float lj_min(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
LJ double lj_max(double a, double b) { return a != a ? a : b != b ? b : fmax(a, b); }
LJ double lj_min(double a, double b) { return a != a ? a : b != b ? b : fmin(a, b); }
LJ float lj_sign(float a) { return a > 0 ? 1.0f : a < 0 ? -1.0f : a; }
LJ double lj_sign(double a) { return a > 0 ? 1.0 : a < 0 ? -1.0 : a; }
LJ bool lj_finite(float a) { return fabsf(a) < lj_inf(a); }
LJ bool lj_finite(double a) { return fabs(a) < lj_inf(a); }
LJ float lj_lgamma(float a) { return (float)lgamma((double)a); }
LJ double lj_lgamma(double a) { return lgamma(a); }
LJ double lj_digamma(double a) {  // the recurrence, then the asymptotic series; reflected
  const double whole = rint(a);
  const double pi = 3.14159265358979323846;
  if (a <= 0 && a == whole) return __longlong_as_double(0x7ff8000000000000ll);
  const double left = a < 0 ? pi / tan(pi * (a - whole)) : 0;
  double x = a < 0 ? 1 - a : a, sum = 0;
  for (; x < 10; x += 1) sum -= 1 / x;
  const double w = 1 / (x * x);
  double series = 691.0 / 32760 - w / 12;
  series = 1.0 / 240 - w * (1.0 / 132 - w * series);
  series = 1.0 / 12 - w * (1.0 / 120 - w * (1.0 / 252 - w * series));
  return sum + log(x) - 0.5 / x - w * series - left;
}
LJ float lj_digamma(float a) { return (float)lj_digamma((double)a); }
LJ float lj_logistic(float a) {
  float e = expf(-fabsf(a));
  return (a >= 0 ? 1.0f : a < 0 ? e : a) / (e + 1.0f);
}
LJ double lj_logistic(double a) {
  double e = exp(-fabs(a));
  return (a >= 0 ? 1.0 : a < 0 ? e : a) / (e + 1.0);
}

// Floats to integers: towards zero, into the range, not a number to 0.
template <class T, class F> LJ T lj_whole(F x) {
  const T top = lj_is_signed<T>::value ? (T)(((u64)1 << (8 * sizeof(T) - 1)) - 1) : (T)~T(0);
  const T bottom = lj_is_signed<T>::value ? (T)(-top - 1) : T(0);
  if (x != x) return T(0);
  if (x >= (F)top) return top;
  if (x <= (F)bottom) return bottom;
  return (T)x;
}

// 16-bit floats, which are stored as integers and computed as float32.
LJ u16 lj_half_bits(float x) { u16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r; }
LJ u16 lj_half_bits(double x) { u16 r; asm("cvt.rn.f16.f64 %0, %1;" : "=h"(r) : "d"(x)); return r; }
LJ float lj_half(u16 x) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x)); return r; }
LJ u16 lj_brain_bits(float x) {
  u16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r;
}
LJ float lj_brain(u16 x) { return __uint_as_float((u32)x << 16); }

// Index arithmetic, which rounds down; most of it fits 32 bits.
LJ i64 lj_floor_div(i64 a, i64 b) {
  if ((((u64)a | (u64)b) >> 31) == 0) return (u32)a / (u32)b;
  i64 q = a / b;
  return q - ((a % b != 0) & ((a ^ b) < 0));
}
LJ i64 lj_floor_mod(i64 a, i64 b) {
  if ((((u64)a | (u64)b) >> 31) == 0) return (u32)a % (u32)b;
  i64 r = a % b;
  return r + (r != 0 && (r ^ b) < 0 ? b : 0);
}
LJ i64 lj_index(u64 a) { return a >> 63 ? 0x7fffffffffffffffll : (i64)a; }

// N elements side by side, loaded and stored at once.
template <class T, int N> struct __align__(sizeof(T) * N) lj_pack { T e[N]; };
template <class T, int N> LJ bool lj_aligned(const T* p) {
  return ((u64)p & (sizeof(T) * N - 1)) == 0;
}

// Reductions over the threads of a block: lanes in pairs, then warps in order. Each thread gets the
// same result, and the same in every run.
template <class T> LJ T lj_across(T v, int by) { return __shfl_xor_sync(LJ_ALL, v, by); }
LJ bool lj_across(bool v, int by) { return __shfl_xor_sync(LJ_ALL, (int)v, by) != 0; }
LJ i8 lj_across(i8 v, int by) { return (i8)__shfl_xor_sync(LJ_ALL, (int)v, by); }
LJ u8 lj_across(u8 v, int by) { return (u8)__shfl_xor_sync(LJ_ALL, (int)v, by); }
LJ i16 lj_across(i16 v, int by) { return (i16)__shfl_xor_sync(LJ_ALL, (int)v, by); }
LJ u16 lj_across(u16 v, int by) { return (u16)__shfl_xor_sync(LJ_ALL, (int)v, by); }
template <int WARPS, class T, class Op> LJ T lj_block(T v, Op op) {
  for (int by = 16; by; by >>= 1) v = op(v, lj_across(v, by));
  if (WARPS == 1) return v;
  __shared__ T s[WARPS];
  __syncthreads();
  if ((threadIdx.x & 31) == 0) s[threadIdx.x >> 5] = v;
  __syncthreads();
  v = s[0];
  for (int k = 1; k < WARPS; k++) v = op(v, s[k]);
  return v;
}

// Copies into shared memory that go on by themselves: of 16, 8 or 4 bytes, the first `bytes` of
// which are read and the others zero. A wait leaves the last N groups under way.
LJ u32 lj_shared(const void* p) { return (u32)__cvta_generic_to_shared(p); }
template <int SIZE> LJ void lj_copy(void* to, const void* from, int bytes) {
  if (SIZE == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(lj_shared(to)), "l"(from), "r"(bytes) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :: "r"(lj_shared(to)), "l"(from), "n"(SIZE == 16 ? 4 : SIZE), "r"(bytes)
                 : "memory");
}
LJ void lj_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> LJ void lj_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }

// Matrices of 8 by 8 elements of 16 bits from shared memory; a lane gives the address of one row.
template <bool TURNED> LJ void lj_matrices4(u32* r, const void* row) {
  if (TURNED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(lj_shared(row)) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(lj_shared(row)) : "memory");
}
template <bool TURNED> LJ void lj_matrices2(u32* r, const void* row) {
  if (TURNED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(lj_shared(row)) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(lj_shared(row)) : "memory");
}

// Products of 16 rows and 8 columns, added to d. Lane 4 g + i holds of d the rows g and g + 8 at
// the columns 2 i and 2 i + 1; of a the same rows at depths 2 i, 2 i + 1 and 8 more; of b column g
// at those depths.
LJ void lj_mma_bf16(float* d, const u32* a, const u32* b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
LJ void lj_mma_f16(float* d, const u32* a, const u32* b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// The same of float32 cut to ten bits behind the point, 8 deep: a lane's depths are i and i + 4.
LJ u32 lj_ten_bits(float x) { u32 r; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x)); return r; }
LJ void lj_mma_tf32(float* d, const u32* a, const u32* b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
"""

# Of kernels whose blocks wait for each other, all of them there at once.
MEETING = r"""
// All threads of all blocks wait: for the number-th time, counted from 1. The counter begins with
// zero and only grows: it never wraps, and what is late from the time before does no harm.
LJ void lj_meet(u64* counter, u64 number) {
  __syncthreads();
  if (gridDim.x == 1) return;
  if (threadIdx.x == 0) {
    u64 came;
    asm volatile("red.release.gpu.global.add.u64 [%0], 1;" :: "l"(counter) : "memory");
    do asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(came) : "l"(counter) : "memory");
    while (came < number * gridDim.x);
  }
  __syncthreads();
}

template <class T> LJ i64 lj_part(char* to, const char* from, i64 done, i64 size, i64 me, i64 all) {
  const i64 wide = sizeof(T), end = size / wide;
  if (((u64)to | (u64)from) & (wide - 1)) return done;
  for (i64 k = done / wide + me; k < end; k += all) ((T*)to)[k] = ((const T*)from)[k];
  return end * wide;
}
// Bytes copied by all blocks, of which this one is `first`: an element by one thread.
LJ void lj_move(char* to, const char* from, i64 size, i64 first) {
  const i64 me = first * blockDim.x + threadIdx.x, all = (i64)gridDim.x * blockDim.x;
  i64 done = lj_part<uint4>(to, from, 0, size, me, all);
  done = lj_part<u64>(to, from, done, size, me, all);
  done = lj_part<u32>(to, from, done, size, me, all);
  done = lj_part<u16>(to, from, done, size, me, all);
  lj_part<u8>(to, from, done, size, me, all);
}
"""
