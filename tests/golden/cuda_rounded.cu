extern "C" __global__ void __launch_bounds__(256, 1)
product_phase0(const i64* __restrict__ table) {
  float* const c = (float*)table[0];
  __builtin_assume(__isGlobal(c));
  const float* __restrict__ const a = (const float*)table[1];
  __builtin_assume(__isGlobal(a));
  const float* __restrict__ const b = (const float*)table[2];
  __builtin_assume(__isGlobal(b));
  extern __shared__ __align__(16) u8 lj_scratch[];
  for (i64 job = blockIdx.x, lj_jobs = 1; job < lj_jobs; job += gridDim.x) {
    const i64 end_1 = 256;
    for (i64 nt = 0; nt < end_1; nt += 128) {
      const i64 end_2 = 128;
      for (i64 mt = 0; mt < end_2; mt += 64) {
        {
          const i64 m_5 = mt;
          const i64 m_end_6 = 128;
          const i64 n_7 = nt;
          const i64 n_end_8 = 256;
          float (*const lhs_3)[64][20] = (float (*)[64][20])(lj_scratch + 0);
          float (*const rhs_4)[128][20] = (float (*)[128][20])(lj_scratch + 15360);
          const i64 depth_9 = 512;
          const float* const base_10 = a + (0 + (512 * m_5));
          const bool wide_11 = lj_aligned<float, 4>(base_10);
          const float* const base_12 = b + (0 + (512 * n_7));
          const bool wide_13 = lj_aligned<float, 4>(base_12);
          float sum_14[2][4][4];
          const int lane_15 = threadIdx.x & 31, warp_16 = threadIdx.x >> 5;
          const int row_17 = warp_16 / 4 * 32;
          const int col_18 = warp_16 % 4 * 32;
          #pragma unroll
          for (int i_19 = 0; i_19 < 2; i_19++) {
            #pragma unroll
            for (int j_20 = 0; j_20 < 4; j_20++) {
              #pragma unroll
              for (int e_21 = 0; e_21 < 4; e_21++) {
                sum_14[i_19][j_20][e_21] = 0;
              }
            }
          }
          const i64 slices_23 = (depth_9 + 15) / 16;
          __syncthreads();
          int put_24 = 0, at_25 = 0;
          #pragma unroll 1
          for (i64 slice_22 = -2; slice_22 < slices_23; slice_22++) {
            if (slice_22 >= 0) {
              lj_wait<1>();
              __syncthreads();
            }
            if (slice_22 + 2 < slices_23) {
              const i64 begin_26 = (slice_22 + 2) * 16;
              if (wide_11) {
                #pragma unroll 1
                for (int cell_27 = threadIdx.x; cell_27 < 256; cell_27 += 256) {
                  const int at_28 = cell_27 % 4 * 4, place_29 = cell_27 / 4;
                  const i64 m = m_5 + place_29;
                  const i64 left_30 = m < m_end_6 ? depth_9 - (begin_26 + at_28) : 0;
                  const int count_31 = left_30 < 0 ? 0 : left_30 < 4 ? (int)left_30 : 4;
                  i64 k_32 = begin_26 + at_28;
                  const i64 k = k_32;
                  lj_copy<16>(&lhs_3[put_24][place_29][at_28], count_31 ? a + (k + (512 * m)) : base_10, 4 * count_31);
                }
              }
              else {
                #pragma unroll 1
                for (int cell_33 = threadIdx.x; cell_33 < 1024; cell_33 += 256) {
                  const int at_34 = cell_33 % 16, place_35 = cell_33 / 16;
                  const i64 m = m_5 + place_35;
                  const bool inside_36 = m < m_end_6 && begin_26 + at_34 < depth_9;
                  i64 k_37 = begin_26 + at_34;
                  const i64 k = k_37;
                  lj_copy<4>(&lhs_3[put_24][place_35][at_34], a + (inside_36 ? (k + (512 * m)) : 0), inside_36 ? 4 : 0);
                }
              }
              if (wide_13) {
                #pragma unroll 1
                for (int cell_38 = threadIdx.x; cell_38 < 512; cell_38 += 256) {
                  const int at_39 = cell_38 % 4 * 4, place_40 = cell_38 / 4;
                  const i64 n = n_7 + place_40;
                  const i64 left_41 = n < n_end_8 ? depth_9 - (begin_26 + at_39) : 0;
                  const int count_42 = left_41 < 0 ? 0 : left_41 < 4 ? (int)left_41 : 4;
                  i64 k_43 = begin_26 + at_39;
                  const i64 k = k_43;
                  lj_copy<16>(&rhs_4[put_24][place_40][at_39], count_42 ? b + (k + (512 * n)) : base_12, 4 * count_42);
                }
              }
              else {
                #pragma unroll 1
                for (int cell_44 = threadIdx.x; cell_44 < 2048; cell_44 += 256) {
                  const int at_45 = cell_44 % 16, place_46 = cell_44 / 16;
                  const i64 n = n_7 + place_46;
                  const bool inside_47 = n < n_end_8 && begin_26 + at_45 < depth_9;
                  i64 k_48 = begin_26 + at_45;
                  const i64 k = k_48;
                  lj_copy<4>(&rhs_4[put_24][place_46][at_45], b + (inside_47 ? (k + (512 * n)) : 0), inside_47 ? 4 : 0);
                }
              }
            }
            lj_commit();
            put_24 = put_24 == 2 ? 0 : put_24 + 1;
            if (slice_22 < 0) continue;
            {
              #pragma unroll
              for (int d_49 = 0; d_49 < 2; d_49++) {
                u32 a_50[2][4], b_51[4][2];
                #pragma unroll
                for (int i_52 = 0; i_52 < 2; i_52++) {
                  #pragma unroll
                  for (int e_54 = 0; e_54 < 4; e_54++) {
                    a_50[i_52][e_54] = lj_ten_bits(lhs_3[at_25][row_17 + (lane_15 >> 2) + 16 * i_52 + 8 * (e_54 & 1)][8 * d_49 + (lane_15 & 3) + 4 * (e_54 >> 1)]);
                  }
                }
                #pragma unroll
                for (int j_53 = 0; j_53 < 4; j_53++) {
                  #pragma unroll
                  for (int e_54 = 0; e_54 < 2; e_54++) {
                    b_51[j_53][e_54] = lj_ten_bits(rhs_4[at_25][col_18 + (lane_15 >> 2) + 8 * j_53][8 * d_49 + (lane_15 & 3) + 4 * e_54]);
                  }
                }
                #pragma unroll
                for (int i_52 = 0; i_52 < 2; i_52++) {
                  #pragma unroll
                  for (int j_53 = 0; j_53 < 4; j_53++) {
                    lj_mma_tf32(sum_14[i_52][j_53], a_50[i_52], b_51[j_53]);
                  }
                }
              }
            }
            at_25 = at_25 == 2 ? 0 : at_25 + 1;
          }
          #pragma unroll
          for (int i_57 = 0; i_57 < 2; i_57++) {
            #pragma unroll
            for (int j_58 = 0; j_58 < 4; j_58++) {
              #pragma unroll
              for (int e_59 = 0; e_59 < 4; e_59++) {
                const int r_55 = row_17 + 16 * i_57 + (lane_15 >> 2) + 8 * (e_59 >> 1);
                const int c_56 = col_18 + 8 * j_58 + 2 * (lane_15 & 3) + (e_59 & 1);
                const i64 m = m_5 + r_55, n = n_7 + c_56;
                if (m < m_end_6 && n < n_end_8 && r_55 < 64 && c_56 < 128) {
                  c[((256 * m) + n)] = sum_14[i_57][j_58][e_59];
                }
              }
            }
          }
        }
      }
    }
  }
}
