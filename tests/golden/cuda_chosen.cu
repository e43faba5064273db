extern "C" __global__ void __launch_bounds__(64, 1)
chosen_phase0(const i64* __restrict__ table) {
  float* const y = (float*)table[0];
  __builtin_assume(__isGlobal(y));
  const float* __restrict__ const x = (const float*)table[1];
  __builtin_assume(__isGlobal(x));
  const i32* __restrict__ const at = (const i32*)table[2];
  __builtin_assume(__isGlobal(at));
  for (i64 job = blockIdx.x, lj_jobs = 1; job < lj_jobs; job += gridDim.x) {
    {
      const i64 begin_1 = 0;
      const i64 end_2 = 40;
      for (i64 j = begin_1 + (i64)threadIdx.x * 1; j < end_2; j += 64) {
        const i32 t_3 = at[j];
        const float t_4 = x[(j + (40 * (i64)t_3))];
        const float t_5 = (t_4 + t_4);
        y[j] = t_5;
      }
    }
  }
}
