extern "C" __global__ void __launch_bounds__(256, 1)
product_phase0(const i64* __restrict__ table) {
  u16* const c = (u16*)table[0];
  __builtin_assume(__isGlobal(c));
  const u16* __restrict__ const a = (const u16*)table[1];
  __builtin_assume(__isGlobal(a));
  const u16* __restrict__ const b = (const u16*)table[2];
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
          u16 (*const lhs_3)[64][40] = (u16 (*)[64][40])(lj_scratch + 0);
          u16 (*const rhs_4)[32][136] = (u16 (*)[32][136])(lj_scratch + 15360);
          const i64 depth_9 = 512;
          const u16* const base_10 = a + (0 + (512 * m_5));
          const bool wide_11 = lj_aligned<u16, 8>(base_10);
          const u16* const base_12 = b + ((256 * 0) + n_7);
          const bool wide_13 = lj_aligned<u16, 8>(base_12);
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
          const i64 slices_23 = (depth_9 + 31) / 32;
          __syncthreads();
          int put_24 = 0, at_25 = 0;
          #pragma unroll 1
          for (i64 slice_22 = -2; slice_22 < slices_23; slice_22++) {
            if (slice_22 >= 0) {
              lj_wait<1>();
              __syncthreads();
            }
            if (slice_22 + 2 < slices_23) {
              const i64 begin_26 = (slice_22 + 2) * 32;
              if (wide_11) {
                #pragma unroll 1
                for (int cell_27 = threadIdx.x; cell_27 < 256; cell_27 += 256) {
                  const int at_28 = cell_27 % 4 * 8, place_29 = cell_27 / 4;
                  const i64 m = m_5 + place_29;
                  const i64 left_30 = m < m_end_6 ? depth_9 - (begin_26 + at_28) : 0;
                  const int count_31 = left_30 < 0 ? 0 : left_30 < 8 ? (int)left_30 : 8;
                  i64 k_32 = begin_26 + at_28;
                  const i64 k = k_32;
                  lj_copy<16>(&lhs_3[put_24][place_29][at_28], count_31 ? a + (k + (512 * m)) : base_10, 2 * count_31);
                }
              }
              else {
                #pragma unroll 1
                for (int cell_33 = threadIdx.x; cell_33 < 2048; cell_33 += 256) {
                  const int at_34 = cell_33 % 32, place_35 = cell_33 / 32;
                  const i64 m = m_5 + place_35;
                  u16 held_36 = 0;
                  if (m < m_end_6 && begin_26 + at_34 < depth_9) {
                    i64 k_37 = begin_26 + at_34;
                    const i64 k = k_37;
                    const float t_38 = lj_brain(a[(k + (512 * m))]);
                    held_36 = lj_brain_bits(t_38);
                  }
                  lhs_3[put_24][place_35][at_34] = held_36;
                }
              }
              if (wide_13) {
                #pragma unroll 1
                for (int cell_39 = threadIdx.x; cell_39 < 512; cell_39 += 256) {
                  const int place_41 = cell_39 % 16 * 8, at_40 = cell_39 / 16;
                  const i64 n = n_7 + place_41;
                  const i64 left_42 = begin_26 + at_40 < depth_9 ? n_end_8 - n : 0;
                  const int count_43 = left_42 < 0 ? 0 : left_42 < 8 ? (int)left_42 : 8;
                  i64 k_44 = begin_26 + at_40;
                  const i64 k = k_44;
                  lj_copy<16>(&rhs_4[put_24][at_40][place_41], count_43 ? b + ((256 * k) + n) : base_12, 2 * count_43);
                }
              }
              else {
                #pragma unroll 1
                for (int cell_45 = threadIdx.x; cell_45 < 4096; cell_45 += 256) {
                  const int place_47 = cell_45 % 128, at_46 = cell_45 / 128;
                  const i64 n = n_7 + place_47;
                  u16 held_48 = 0;
                  if (n < n_end_8 && begin_26 + at_46 < depth_9) {
                    i64 k_49 = begin_26 + at_46;
                    const i64 k = k_49;
                    const float t_50 = lj_brain(b[((256 * k) + n)]);
                    held_48 = lj_brain_bits(t_50);
                  }
                  rhs_4[put_24][at_46][place_47] = held_48;
                }
              }
            }
            lj_commit();
            put_24 = put_24 == 2 ? 0 : put_24 + 1;
            if (slice_22 < 0) continue;
            {
              #pragma unroll
              for (int d_51 = 0; d_51 < 2; d_51++) {
                u32 a_52[2][4], b_53[4][2];
                #pragma unroll
                for (int i_54 = 0; i_54 < 2; i_54++) {
                  lj_matrices4<false>(a_52[i_54], &lhs_3[at_25][row_17 + 16 * i_54 + (lane_15 & 15)][16 * d_51 + (lane_15 >> 4) * 8]);
                }
                #pragma unroll
                for (int j_55 = 0; j_55 < 4; j_55++) {
                  lj_matrices2<true>(b_53[j_55], &rhs_4[at_25][16 * d_51 + (lane_15 & 15)][col_18 + 8 * j_55 + 0]);
                }
                #pragma unroll
                for (int i_54 = 0; i_54 < 2; i_54++) {
                  #pragma unroll
                  for (int j_55 = 0; j_55 < 4; j_55++) {
                    lj_mma_bf16(sum_14[i_54][j_55], a_52[i_54], b_53[j_55]);
                  }
                }
              }
            }
            at_25 = at_25 == 2 ? 0 : at_25 + 1;
          }
          #pragma unroll
          for (int i_58 = 0; i_58 < 2; i_58++) {
            #pragma unroll
            for (int j_59 = 0; j_59 < 4; j_59++) {
              #pragma unroll
              for (int e_60 = 0; e_60 < 4; e_60++) {
                const int r_56 = row_17 + 16 * i_58 + (lane_15 >> 2) + 8 * (e_60 >> 1);
                const int c_57 = col_18 + 8 * j_59 + 2 * (lane_15 & 3) + (e_60 & 1);
                const i64 m = m_5 + r_56, n = n_7 + c_57;
                if (m < m_end_6 && n < n_end_8 && r_56 < 64 && c_57 < 128) {
                  const float t_61 = sum_14[i_58][j_59][e_60];
                  const float t_62 = lj_brain(lj_brain_bits((float)(t_61)));
                  c[((256 * m) + n)] = lj_brain_bits(t_62);
                }
              }
            }
          }
        }
      }
    }
  }
}
