extern "C" __global__ void __launch_bounds__(256, 1)
rows_phase0(const i64* __restrict__ table) {
  float* const y = (float*)table[0];
  __builtin_assume(__isGlobal(y));
  const float* __restrict__ const x = (const float*)table[1];
  __builtin_assume(__isGlobal(x));
  for (i64 job = blockIdx.x, lj_jobs = 4; job < lj_jobs; job += gridDim.x) {
    const i64 end_1 = lj_min<i64>(((2 * job) + 2), 7);
    for (i64 i = (2 * job); i < end_1; i += 1) {
      float s_2 = 0.0f;
      float s_3 = 0.0f;
      const i64 end_4 = 300;
      for (i64 j = 0; j < end_4; j += 1) {
        const float t_5 = x[2 * ((300 * i) + j) + 0];
        const float t_6 = x[2 * ((300 * i) + j) + 1];
        const float t_7 = (s_2 + t_5);
        const float t_8 = (s_3 + t_6);
        s_2 = t_7;
        s_3 = t_8;
      }
      {
        const i64 begin_9 = 0;
        const i64 end_10 = 300;
        for (i64 j = begin_9 + (i64)threadIdx.x * 1; j < end_10; j += 256) {
          const float t_11 = x[2 * ((300 * i) + j) + 0];
          const float t_12 = x[2 * ((300 * i) + j) + 1];
          const float t_13 = (t_11 * s_2 - t_12 * s_3);
          const float t_14 = (t_11 * s_3 + t_12 * s_2);
          y[2 * ((300 * i) + j) + 0] = t_13;
          y[2 * ((300 * i) + j) + 1] = t_14;
        }
      }
    }
  }
}
