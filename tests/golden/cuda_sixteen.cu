extern "C" __global__ void __launch_bounds__(256, 1)
k_phase0(const i64* __restrict__ table) {
  u16* const out = (u16*)table[0];
  __builtin_assume(__isGlobal(out));
  const u16* __restrict__ const x0 = (const u16*)table[1];
  __builtin_assume(__isGlobal(x0));
  const u16* __restrict__ const x1 = (const u16*)table[2];
  __builtin_assume(__isGlobal(x1));
  for (i64 job = blockIdx.x, lj_jobs = 1; job < lj_jobs; job += gridDim.x) {
    {
      const i64 begin_1 = 0;
      const bool aligned_2 = lj_aligned<u16, 8>(out + begin_1) && lj_aligned<u16, 8>(x1 + begin_1) && lj_aligned<u16, 8>(x0 + begin_1);
      const i64 end_4 = 1000;
      i64 first_3 = begin_1;
      if (aligned_2 && end_4 > begin_1) {
        first_3 = end_4 - (end_4 - begin_1) % 8;
        for (i64 base_5 = begin_1 + (i64)threadIdx.x * 8; base_5 < first_3; base_5 += 2048) {
          lj_pack<u16, 8> pack_6;
          const lj_pack<u16, 8> pack_7 = *((const lj_pack<u16, 8>*)(x1 + base_5));
          const lj_pack<u16, 8> pack_8 = *((const lj_pack<u16, 8>*)(x0 + base_5));
          #pragma unroll
          for (int lane = 0; lane < 8; lane++) {
            const i64 i = base_5 + lane;
            const float t_9 = lj_brain(pack_8.e[lane]);
            const float t_10 = lj_brain(pack_7.e[lane]);
            const float t_11 = (t_9 * t_10);
            pack_6.e[lane] = lj_brain_bits(t_11);
          }
          *((lj_pack<u16, 8>*)(out + base_5)) = pack_6;
        }
      }
      const i64 end_12 = 1000;
      for (i64 i = first_3 + (i64)threadIdx.x; i < end_12; i += 256) {
        const float t_13 = lj_brain(x0[i]);
        const float t_14 = lj_brain(x1[i]);
        const float t_15 = (t_13 * t_14);
        out[i] = lj_brain_bits(t_15);
      }
    }
  }
}
