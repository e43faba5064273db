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
      {
        float s_3 = -0.0f;
        const i64 begin_4 = 0;
        const bool aligned_5 = lj_aligned<float, 4>(x + ((300 * i) + begin_4));
        const i64 end_7 = 300;
        i64 first_6 = begin_4;
        if (aligned_5 && end_7 > begin_4) {
          first_6 = end_7 - (end_7 - begin_4) % 4;
          for (i64 base_8 = begin_4 + (i64)threadIdx.x * 4; base_8 < first_6; base_8 += 1024) {
            const lj_pack<float, 4> pack_9 = *((const lj_pack<float, 4>*)(x + ((300 * i) + base_8)));
            #pragma unroll
            for (int lane = 0; lane < 4; lane++) {
              const i64 j = base_8 + lane;
              const float t_10 = pack_9.e[lane];
              s_3 = (s_3 + t_10);
            }
          }
        }
        const i64 end_11 = 300;
        for (i64 j = first_6 + (i64)threadIdx.x; j < end_11; j += 256) {
          const float t_12 = x[((300 * i) + j)];
          s_3 = (s_3 + t_12);
        }
        s_3 = lj_block<8>(s_3, [] (float a, float b) -> float { return (a + b); });
        s_2 = (s_2 + s_3);
      }
      {
        const i64 begin_13 = 0;
        const bool aligned_14 = lj_aligned<float, 4>(y + ((300 * i) + begin_13)) && lj_aligned<float, 4>(x + ((300 * i) + begin_13));
        const i64 end_16 = 300;
        i64 first_15 = begin_13;
        if (aligned_14 && end_16 > begin_13) {
          first_15 = end_16 - (end_16 - begin_13) % 4;
          for (i64 base_17 = begin_13 + (i64)threadIdx.x * 4; base_17 < first_15; base_17 += 1024) {
            lj_pack<float, 4> pack_18;
            const lj_pack<float, 4> pack_19 = *((const lj_pack<float, 4>*)(x + ((300 * i) + base_17)));
            #pragma unroll
            for (int lane = 0; lane < 4; lane++) {
              const i64 j = base_17 + lane;
              const float t_20 = pack_19.e[lane];
              const float t_21 = (t_20 * s_2);
              pack_18.e[lane] = t_21;
            }
            *((lj_pack<float, 4>*)(y + ((300 * i) + base_17))) = pack_18;
          }
        }
        const i64 end_22 = 300;
        for (i64 j = first_15 + (i64)threadIdx.x; j < end_22; j += 256) {
          const float t_23 = x[((300 * i) + j)];
          const float t_24 = (t_23 * s_2);
          y[((300 * i) + j)] = t_24;
        }
      }
    }
  }
}
