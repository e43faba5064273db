extern "C" __global__ void __launch_bounds__(256, 1)
k_phase0(const i64* __restrict__ table) {
  float* const c = (float*)table[0];
  __builtin_assume(__isGlobal(c));
  const float* __restrict__ const a = (const float*)table[1];
  __builtin_assume(__isGlobal(a));
  const float* __restrict__ const b = (const float*)table[2];
  __builtin_assume(__isGlobal(b));
  for (i64 job = blockIdx.x, lj_jobs = 1; job < lj_jobs; job += gridDim.x) {
    const i64 end_1 = 96;
    for (i64 nt = 0; nt < end_1; nt += 48) {
      const i64 end_2 = 64;
      for (i64 mt = 0; mt < end_2; mt += 8) {
        {
          const i64 m_8 = mt;
          const i64 n_9 = nt;
          const i64 m_end_10 = 64;
          const i64 n_end_11 = 96;
          const i64 depth_6 = 80;
          __shared__ float lhs_3[16][9];
          __shared__ float rhs_4[16][49];
          float sum_5[2][1];
          const int row_12 = threadIdx.x / 48;
          const int col_13 = threadIdx.x % 48;
          #pragma unroll
          for (int i_14 = 0; i_14 < 2; i_14++) {
            #pragma unroll
            for (int j_15 = 0; j_15 < 1; j_15++) sum_5[i_14][j_15] = 0;
          }
          for (i64 from_7 = 0; from_7 < depth_6; from_7 += 16) {
            __syncthreads();
            for (int cell_17 = threadIdx.x; cell_17 < 128; cell_17 += 256) {
              const int at_16 = cell_17 % 16, at_16_o = cell_17 / 16;
              const i64 m = m_8 + at_16_o;
              float at_16_v = 0;
              if (m < m_end_10 && from_7 + at_16 < depth_6) {
                i64 k_18 = from_7 + at_16;
                const i64 k = k_18;
                const float t_19 = a[(k + (80 * m))];
                at_16_v = t_19;
              }
              lhs_3[at_16][at_16_o] = at_16_v;
            }
            for (int cell_21 = threadIdx.x; cell_21 < 768; cell_21 += 256) {
              const int at_20 = cell_21 / 48, at_20_o = cell_21 % 48;
              const i64 n = n_9 + at_20_o;
              float at_20_v = 0;
              if (n < n_end_11 && from_7 + at_20 < depth_6) {
                i64 k_22 = from_7 + at_20;
                const i64 k = k_22;
                const float t_23 = b[((96 * k) + n)];
                at_20_v = t_23;
              }
              rhs_4[at_20][at_20_o] = at_20_v;
            }
            __syncthreads();
            if (row_12 < 4) {
              #pragma unroll 4
              for (int d_26 = 0; d_26 < 16; d_26++) {
                float left_24[2], right_25[1];
                #pragma unroll
                for (int i_14 = 0; i_14 < 2; i_14++) left_24[i_14] = lhs_3[d_26][row_12 + i_14 * 4];
                #pragma unroll
                for (int j_15 = 0; j_15 < 1; j_15++) right_25[j_15] = rhs_4[d_26][col_13 + j_15 * 48];
                #pragma unroll
                for (int i_14 = 0; i_14 < 2; i_14++) {
                  #pragma unroll
                  for (int j_15 = 0; j_15 < 1; j_15++) sum_5[i_14][j_15] = fmaf(left_24[i_14], right_25[j_15], sum_5[i_14][j_15]);
                }
              }
            }
          }
          #pragma unroll
          for (int i_14 = 0; i_14 < 2; i_14++) {
            #pragma unroll
            for (int j_15 = 0; j_15 < 1; j_15++) {
              const int r_27 = row_12 + i_14 * 4;
              const int c_28 = col_13 + j_15 * 48;
              const i64 m = m_8 + r_27, n = n_9 + c_28;
              if (m < m_end_10 && n < n_end_11 && r_27 < 8 && c_28 < 48 && row_12 < 4) {
                c[((96 * m) + n)] = sum_5[i_14][j_15];
              }
            }
          }
        }
      }
    }
  }
}
