extern "C" __global__ void __launch_bounds__(256, 1)
product_phase0(const i64* __restrict__ table) {
  u16* const c = (u16*)table[0];
  __builtin_assume(__isGlobal(c));
  const u16* __restrict__ const a = (const u16*)table[1];
  __builtin_assume(__isGlobal(a));
  const u16* __restrict__ const b = (const u16*)table[2];
  __builtin_assume(__isGlobal(b));
  for (i64 job = blockIdx.x, lj_jobs = 1; job < lj_jobs; job += gridDim.x) {
    const i64 end_1 = 96;
    for (i64 nt = 0; nt < end_1; nt += 32) {
      const i64 end_2 = 100;
      for (i64 mt = 0; mt < end_2; mt += 32) {
        {
          const i64 m_5 = mt;
          const i64 m_end_6 = 100;
          const i64 n_7 = nt;
          const i64 n_end_8 = 96;
          __shared__ __align__(16) u16 lhs_3[3][32][40];
          __shared__ __align__(16) u16 rhs_4[3][32][40];
          const i64 depth_9 = 80;
          const u16* const base_10 = b + (0 + (80 * n_7));
          const bool wide_11 = lj_aligned<u16, 8>(base_10);
          float sum_12[1][1][4];
          const int lane_13 = threadIdx.x & 31, warp_14 = threadIdx.x >> 5;
          const int row_15 = warp_14 / 4 * 16;
          const int col_16 = warp_14 % 4 * 8;
          #pragma unroll
          for (int i_17 = 0; i_17 < 1; i_17++) {
            #pragma unroll
            for (int j_18 = 0; j_18 < 1; j_18++) {
              #pragma unroll
              for (int e_19 = 0; e_19 < 4; e_19++) {
                sum_12[i_17][j_18][e_19] = 0;
              }
            }
          }
          const i64 slices_21 = (depth_9 + 31) / 32;
          __syncthreads();
          int put_22 = 0, at_23 = 0;
          #pragma unroll 1
          for (i64 slice_20 = -2; slice_20 < slices_21; slice_20++) {
            if (slice_20 >= 0) {
              lj_wait<1>();
              __syncthreads();
            }
            if (slice_20 + 2 < slices_21) {
              const i64 begin_24 = (slice_20 + 2) * 32;
              #pragma unroll 1
              for (int cell_25 = threadIdx.x; cell_25 < 1024; cell_25 += 256) {
                const int place_27 = cell_25 % 32, at_26 = cell_25 / 32;
                const i64 m = m_5 + place_27;
                u16 held_28 = 0;
                if (m < m_end_6 && begin_24 + at_26 < depth_9) {
                  i64 k_29 = begin_24 + at_26;
                  const i64 k = k_29;
                  const float t_30 = lj_half(a[((100 * k) + m)]);
                  const float t_31 = lj_max(t_30, t_30);
                  held_28 = lj_half_bits(t_31);
                }
                lhs_3[put_22][at_26][place_27] = held_28;
              }
              if (wide_11) {
                #pragma unroll 1
                for (int cell_32 = threadIdx.x; cell_32 < 128; cell_32 += 256) {
                  const int at_33 = cell_32 % 4 * 8, place_34 = cell_32 / 4;
                  const i64 n = n_7 + place_34;
                  const i64 left_35 = n < n_end_8 ? depth_9 - (begin_24 + at_33) : 0;
                  const int count_36 = left_35 < 0 ? 0 : left_35 < 8 ? (int)left_35 : 8;
                  i64 k_37 = begin_24 + at_33;
                  const i64 k = k_37;
                  lj_copy<16>(&rhs_4[put_22][place_34][at_33], count_36 ? b + (k + (80 * n)) : base_10, 2 * count_36);
                }
              }
              else {
                #pragma unroll 1
                for (int cell_38 = threadIdx.x; cell_38 < 1024; cell_38 += 256) {
                  const int at_39 = cell_38 % 32, place_40 = cell_38 / 32;
                  const i64 n = n_7 + place_40;
                  u16 held_41 = 0;
                  if (n < n_end_8 && begin_24 + at_39 < depth_9) {
                    i64 k_42 = begin_24 + at_39;
                    const i64 k = k_42;
                    const float t_43 = lj_half(b[(k + (80 * n))]);
                    held_41 = lj_half_bits(t_43);
                  }
                  rhs_4[put_22][place_40][at_39] = held_41;
                }
              }
            }
            lj_commit();
            put_22 = put_22 == 2 ? 0 : put_22 + 1;
            if (slice_20 < 0) continue;
            {
              #pragma unroll
              for (int d_44 = 0; d_44 < 2; d_44++) {
                u32 a_45[1][4], b_46[1][2];
                #pragma unroll
                for (int i_47 = 0; i_47 < 1; i_47++) {
                  lj_matrices4<true>(a_45[i_47], &lhs_3[at_23][16 * d_44 + (lane_13 & 7) + (lane_13 >> 4) * 8][row_15 + 16 * i_47 + (lane_13 >> 3 & 1) * 8]);
                }
                #pragma unroll
                for (int j_48 = 0; j_48 < 1; j_48++) {
                  lj_matrices2<false>(b_46[j_48], &rhs_4[at_23][col_16 + 8 * j_48 + (lane_13 & 7)][16 * d_44 + (lane_13 >> 3 & 1) * 8]);
                }
                #pragma unroll
                for (int i_47 = 0; i_47 < 1; i_47++) {
                  #pragma unroll
                  for (int j_48 = 0; j_48 < 1; j_48++) {
                    lj_mma_f16(sum_12[i_47][j_48], a_45[i_47], b_46[j_48]);
                  }
                }
              }
            }
            at_23 = at_23 == 2 ? 0 : at_23 + 1;
          }
          #pragma unroll
          for (int i_51 = 0; i_51 < 1; i_51++) {
            #pragma unroll
            for (int j_52 = 0; j_52 < 1; j_52++) {
              #pragma unroll
              for (int e_53 = 0; e_53 < 4; e_53++) {
                const int r_49 = row_15 + 16 * i_51 + (lane_13 >> 2) + 8 * (e_53 >> 1);
                const int c_50 = col_16 + 8 * j_52 + 2 * (lane_13 & 3) + (e_53 & 1);
                const i64 m = m_5 + r_49, n = n_7 + c_50;
                if (m < m_end_6 && n < n_end_8 && r_49 < 32 && c_50 < 32) {
                  const float t_54 = sum_12[i_51][j_52][e_53];
                  const float t_55 = lj_half(lj_half_bits((float)(t_54)));
                  c[((96 * m) + n)] = lj_half_bits(t_55);
                }
              }
            }
          }
        }
      }
    }
  }
}
