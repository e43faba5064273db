extern "C" __global__ void __launch_bounds__(256, 1)
large_phase0(const i64* __restrict__ table) {
  float* const y = (float*)table[0];
  __builtin_assume(__isGlobal(y));
  const float* __restrict__ const x = (const float*)table[1];
  __builtin_assume(__isGlobal(x));
  extern __shared__ __align__(16) u8 lj_scratch[];
  float* const tmp = (float*)(lj_scratch + 0);
  for (i64 job = blockIdx.x, lj_jobs = 1; job < lj_jobs; job += gridDim.x) {
    {
      const i64 begin_1 = 0;
      const bool aligned_2 = lj_aligned<float, 4>(tmp + begin_1) && lj_aligned<float, 4>(x + begin_1);
      const i64 end_4 = 20000;
      i64 first_3 = begin_1;
      if (aligned_2 && end_4 > begin_1) {
        first_3 = end_4 - (end_4 - begin_1) % 4;
        for (i64 base_5 = begin_1 + (i64)threadIdx.x * 4; base_5 < first_3; base_5 += 1024) {
          lj_pack<float, 4> pack_6;
          const lj_pack<float, 4> pack_7 = *((const lj_pack<float, 4>*)(x + base_5));
          #pragma unroll
          for (int lane = 0; lane < 4; lane++) {
            const i64 j = base_5 + lane;
            const float t_8 = pack_7.e[lane];
            pack_6.e[lane] = t_8;
          }
          *((lj_pack<float, 4>*)(tmp + base_5)) = pack_6;
        }
      }
      const i64 end_9 = 20000;
      for (i64 j = first_3 + (i64)threadIdx.x; j < end_9; j += 256) {
        const float t_10 = x[j];
        tmp[j] = t_10;
      }
    }
    __syncthreads();
    {
      const i64 begin_11 = 0;
      const i64 end_12 = 20000;
      for (i64 j = begin_11 + (i64)threadIdx.x * 1; j < end_12; j += 256) {
        const float t_13 = tmp[((-1 * j) + 19999)];
        y[j] = t_13;
      }
    }
    __syncthreads();
  }
}
