extern "C" __global__ void __launch_bounds__(128, 1)
reversed_phase0(const i64* __restrict__ table) {
  float* const y = (float*)table[0];
  __builtin_assume(__isGlobal(y));
  const float* __restrict__ const x = (const float*)table[1];
  __builtin_assume(__isGlobal(x));
  __shared__ __align__(16) float tmp[70];
  for (i64 job = blockIdx.x, lj_jobs = 1; job < lj_jobs; job += gridDim.x) {
    const i64 end_1 = 5;
    for (i64 i = 0; i < end_1; i += 1) {
      {
        const i64 begin_2 = 0;
        const bool aligned_3 = lj_aligned<float, 4>(tmp + begin_2) && lj_aligned<float, 4>(x + ((70 * i) + begin_2));
        const i64 end_5 = 70;
        i64 first_4 = begin_2;
        if (aligned_3 && end_5 > begin_2) {
          first_4 = end_5 - (end_5 - begin_2) % 4;
          for (i64 base_6 = begin_2 + (i64)threadIdx.x * 4; base_6 < first_4; base_6 += 512) {
            lj_pack<float, 4> pack_7;
            const lj_pack<float, 4> pack_8 = *((const lj_pack<float, 4>*)(x + ((70 * i) + base_6)));
            #pragma unroll
            for (int lane = 0; lane < 4; lane++) {
              const i64 j = base_6 + lane;
              const float t_9 = pack_8.e[lane];
              pack_7.e[lane] = t_9;
            }
            *((lj_pack<float, 4>*)(tmp + base_6)) = pack_7;
          }
        }
        const i64 end_10 = 70;
        for (i64 j = first_4 + (i64)threadIdx.x; j < end_10; j += 128) {
          const float t_11 = x[((70 * i) + j)];
          tmp[j] = t_11;
        }
      }
      const bool on_12 = (((-1 * i) + 3) >= 0);
      __syncthreads();
      if (on_12) {
        if (threadIdx.x == 0) {
          const float t_13 = tmp[3];
          const float t_14 = tmp[60];
          const float t_15 = (t_13 + t_14);
          tmp[3] = t_15;
        }
        __syncthreads();
      }
      {
        const i64 begin_16 = 0;
        const i64 end_17 = 70;
        for (i64 j = begin_16 + (i64)threadIdx.x * 1; j < end_17; j += 128) {
          const float t_18 = tmp[((-1 * j) + 69)];
          y[((70 * i) + j)] = t_18;
        }
      }
      __syncthreads();
    }
  }
}
