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
          const i64 m_5 = mt;
          const i64 m_end_6 = 64;
          const i64 n_7 = nt;
          const i64 n_end_8 = 96;
          __shared__ __align__(16) float lhs_3[3][16][12];
          __shared__ __align__(16) float rhs_4[3][16][52];
          const i64 depth_9 = 80;
          const float* const base_10 = b + ((96 * 0) + n_7);
          const bool wide_11 = lj_aligned<float, 4>(base_10);
          float sum_12[2][1];
          const int row_13 = threadIdx.x / 48;
          const int col_14 = threadIdx.x % 48;
          #pragma unroll
          for (int i_15 = 0; i_15 < 2; i_15++) {
            #pragma unroll
            for (int j_16 = 0; j_16 < 1; j_16++) {
              sum_12[i_15][j_16] = 0;
            }
          }
          const i64 slices_18 = (depth_9 + 15) / 16;
          __syncthreads();
          int put_19 = 0, at_20 = 0;
          #pragma unroll 1
          for (i64 slice_17 = -2; slice_17 < slices_18; slice_17++) {
            if (slice_17 >= 0) {
              lj_wait<1>();
              __syncthreads();
            }
            if (slice_17 + 2 < slices_18) {
              const i64 begin_21 = (slice_17 + 2) * 16;
              #pragma unroll 1
              for (int cell_22 = threadIdx.x; cell_22 < 128; cell_22 += 256) {
                const int at_23 = cell_22 % 16, place_24 = cell_22 / 16;
                const i64 m = m_5 + place_24;
                const bool inside_25 = m < m_end_6 && begin_21 + at_23 < depth_9;
                i64 k_26 = begin_21 + at_23;
                const i64 k = k_26;
                lj_copy<4>(&lhs_3[put_19][at_23][place_24], a + (inside_25 ? (k + (80 * m)) : 0), inside_25 ? 4 : 0);
              }
              if (wide_11) {
                #pragma unroll 1
                for (int cell_27 = threadIdx.x; cell_27 < 192; cell_27 += 256) {
                  const int place_29 = cell_27 % 12 * 4, at_28 = cell_27 / 12;
                  const i64 n = n_7 + place_29;
                  const i64 left_30 = begin_21 + at_28 < depth_9 ? n_end_8 - n : 0;
                  const int count_31 = left_30 < 0 ? 0 : left_30 < 4 ? (int)left_30 : 4;
                  i64 k_32 = begin_21 + at_28;
                  const i64 k = k_32;
                  lj_copy<16>(&rhs_4[put_19][at_28][place_29], count_31 ? b + ((96 * k) + n) : base_10, 4 * count_31);
                }
              }
              else {
                #pragma unroll 1
                for (int cell_33 = threadIdx.x; cell_33 < 768; cell_33 += 256) {
                  const int place_35 = cell_33 % 48, at_34 = cell_33 / 48;
                  const i64 n = n_7 + place_35;
                  const bool inside_36 = n < n_end_8 && begin_21 + at_34 < depth_9;
                  i64 k_37 = begin_21 + at_34;
                  const i64 k = k_37;
                  lj_copy<4>(&rhs_4[put_19][at_34][place_35], b + (inside_36 ? ((96 * k) + n) : 0), inside_36 ? 4 : 0);
                }
              }
            }
            lj_commit();
            put_19 = put_19 == 2 ? 0 : put_19 + 1;
            if (slice_17 < 0) continue;
            if (row_13 < 4) {
              #pragma unroll 4
              for (int d_38 = 0; d_38 < 16; d_38++) {
                float left_41[2], right_42[1];
                #pragma unroll
                for (int i_39 = 0; i_39 < 2; i_39++) {
                  left_41[i_39] = lhs_3[at_20][d_38][row_13 + i_39 * 4];
                }
                #pragma unroll
                for (int j_40 = 0; j_40 < 1; j_40++) {
                  right_42[j_40] = rhs_4[at_20][d_38][col_14 + j_40 * 48];
                }
                #pragma unroll
                for (int i_39 = 0; i_39 < 2; i_39++) {
                  #pragma unroll
                  for (int j_40 = 0; j_40 < 1; j_40++) {
                    sum_12[i_39][j_40] = fmaf(left_41[i_39], right_42[j_40], sum_12[i_39][j_40]);
                  }
                }
              }
            }
            at_20 = at_20 == 2 ? 0 : at_20 + 1;
          }
          #pragma unroll
          for (int i_45 = 0; i_45 < 2; i_45++) {
            #pragma unroll
            for (int j_46 = 0; j_46 < 1; j_46++) {
              const int r_43 = row_13 + i_45 * 4;
              const int c_44 = col_14 + j_46 * 48;
              const i64 m = m_5 + r_43, n = n_7 + c_44;
              if (m < m_end_6 && n < n_end_8 && r_43 < 8 && c_44 < 48 && row_13 < 4) {
                c[((96 * m) + n)] = sum_12[i_45][j_46];
              }
            }
          }
        }
      }
    }
  }
}
