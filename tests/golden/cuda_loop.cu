LJ void kernel_eb8f9e83_phase0(const i64* const table, u8* const lj_scratch, const i64 lj_first) {
  float* const o0 = (float*)table[0];
  __builtin_assume(__isGlobal(o0));
  const float* const i2 = (const float*)table[1];
  __builtin_assume(__isGlobal(i2));
  const float* const i1 = (const float*)table[2];
  __builtin_assume(__isGlobal(i1));
  const float* const i0 = (const float*)table[3];
  __builtin_assume(__isGlobal(i0));
  const i64 n0 = table[4];
  const i64 n1 = table[5];
  const i64 n2 = table[6];
  for (i64 job3 = lj_first, lj_jobs = ((i64)((u32)(n0 + 3) / (u32)4) * (i64)((u32)(n1 + 7) / (u32)8)); job3 < lj_jobs; job3 += gridDim.x) {
    const i64 end_1 = lj_min<i64>((job3 + 1), ((i64)((u32)(n0 + 3) / (u32)4) * (i64)((u32)(n1 + 7) / (u32)8)));
    for (i64 p4 = job3; p4 < end_1; p4 += 1) {
      const i64 nb2_2 = (i64)((i64)((u32)p4 % (u32)(i64)((u32)(n1 + 7) / (u32)8)));
      const i64 mb1_3 = (i64)((i64)((u32)p4 / (u32)(i64)((u32)(n1 + 7) / (u32)8)));
      const i64 end_4 = ((i64)nb2_2 + 1);
      for (i64 q5 = (i64)nb2_2; q5 < end_4; q5 += 1) {
        const i64 end_5 = lj_min<i64>(((4 * (i64)mb1_3) + 4), n0);
        for (i64 r6 = (4 * (i64)mb1_3); r6 < end_5; r6 += 4) {
          {
            const i64 m_8 = r6;
            const i64 m_end_9 = lj_min<i64>(((4 * (i64)mb1_3) + 4), n0);
            const i64 n_10 = (8 * q5);
            const i64 n_end_11 = n1;
            float (*const lhs_6)[16][12] = (float (*)[16][12])(lj_scratch + 0);
            float (*const rhs_7)[16][12] = (float (*)[16][12])(lj_scratch + 2304);
            const i64 depth_12 = n2;
            const float* const base_13 = i1 + ((0 * n1) + n_10);
            const bool wide_14 = lj_aligned<float, 4>(base_13) && n1 % 4 == 0;
            float sum_15[1][1];
            const int row_16 = threadIdx.x / 8;
            const int col_17 = threadIdx.x % 8;
            #pragma unroll
            for (int i_18 = 0; i_18 < 1; i_18++) {
              #pragma unroll
              for (int j_19 = 0; j_19 < 1; j_19++) {
                sum_15[i_18][j_19] = 0;
              }
            }
            const i64 slices_21 = (depth_12 + 15) / 16;
            __syncthreads();
            int put_22 = 0, at_23 = 0;
            #pragma unroll 1
            for (i64 slice_20 = -2; slice_20 < slices_21; slice_20++) {
              if (slice_20 >= 0) {
                lj_wait<1>();
                __syncthreads();
              }
              if (slice_20 + 2 < slices_21) {
                const i64 begin_24 = (slice_20 + 2) * 16;
                #pragma unroll 1
                for (int cell_25 = threadIdx.x; cell_25 < 128; cell_25 += 32) {
                  const int at_26 = cell_25 % 16, place_27 = cell_25 / 16;
                  const i64 a0 = m_8 + place_27;
                  const bool inside_28 = a0 < m_end_9 && begin_24 + at_26 < depth_12;
                  i64 k_29 = begin_24 + at_26;
                  const i64 a2 = k_29;
                  lj_copy<4>(&lhs_6[put_22][at_26][place_27], i0 + (inside_28 ? ((a0 * n2) + a2) : 0), inside_28 ? 4 : 0);
                }
                if (wide_14) {
                  #pragma unroll 1
                  for (int cell_30 = threadIdx.x; cell_30 < 32; cell_30 += 32) {
                    const int place_32 = cell_30 % 2 * 4, at_31 = cell_30 / 2;
                    const i64 a1 = n_10 + place_32;
                    const i64 left_33 = begin_24 + at_31 < depth_12 ? n_end_11 - a1 : 0;
                    const int count_34 = left_33 < 0 ? 0 : left_33 < 4 ? (int)left_33 : 4;
                    i64 k_35 = begin_24 + at_31;
                    const i64 a2 = k_35;
                    lj_copy<16>(&rhs_7[put_22][at_31][place_32], count_34 ? i1 + ((a2 * n1) + a1) : base_13, 4 * count_34);
                  }
                }
                else {
                  #pragma unroll 1
                  for (int cell_36 = threadIdx.x; cell_36 < 128; cell_36 += 32) {
                    const int place_38 = cell_36 % 8, at_37 = cell_36 / 8;
                    const i64 a1 = n_10 + place_38;
                    const bool inside_39 = a1 < n_end_11 && begin_24 + at_37 < depth_12;
                    i64 k_40 = begin_24 + at_37;
                    const i64 a2 = k_40;
                    lj_copy<4>(&rhs_7[put_22][at_37][place_38], i1 + (inside_39 ? ((a2 * n1) + a1) : 0), inside_39 ? 4 : 0);
                  }
                }
              }
              lj_commit();
              put_22 = put_22 == 2 ? 0 : put_22 + 1;
              if (slice_20 < 0) continue;
              {
                #pragma unroll 4
                for (int d_41 = 0; d_41 < 16; d_41++) {
                  float left_44[1], right_45[1];
                  #pragma unroll
                  for (int i_42 = 0; i_42 < 1; i_42++) {
                    left_44[i_42] = lhs_6[at_23][d_41][row_16 + i_42 * 4];
                  }
                  #pragma unroll
                  for (int j_43 = 0; j_43 < 1; j_43++) {
                    right_45[j_43] = rhs_7[at_23][d_41][col_17 + j_43 * 8];
                  }
                  #pragma unroll
                  for (int i_42 = 0; i_42 < 1; i_42++) {
                    #pragma unroll
                    for (int j_43 = 0; j_43 < 1; j_43++) {
                      sum_15[i_42][j_43] = fmaf(left_44[i_42], right_45[j_43], sum_15[i_42][j_43]);
                    }
                  }
                }
              }
              at_23 = at_23 == 2 ? 0 : at_23 + 1;
            }
            #pragma unroll
            for (int i_48 = 0; i_48 < 1; i_48++) {
              #pragma unroll
              for (int j_49 = 0; j_49 < 1; j_49++) {
                const int r_46 = row_16 + i_48 * 4;
                const int c_47 = col_17 + j_49 * 8;
                const i64 a0 = m_8 + r_46, a1 = n_10 + c_47;
                if (a0 < m_end_9 && a1 < n_end_11 && r_46 < 4 && c_47 < 8) {
                  const float t_50 = i2[((a0 * n1) + a1)];
                  const float t_51 = sum_15[i_48][j_49];
                  const float v9_52 = (t_51 + t_50);
                  const float v10_53 = tanhf(v9_52);
                  o0[((a0 * n1) + a1)] = v10_53;
                }
              }
            }
          }
        }
      }
    }
  }
}

LJ void kernel_add14e47_phase0(const i64* const table, u8* const lj_scratch, const i64 lj_first) {
  float* const o0 = (float*)table[0];
  __builtin_assume(__isGlobal(o0));
  const float* const i0 = (const float*)table[1];
  __builtin_assume(__isGlobal(i0));
  const i32 n0 = (i32)table[2];
  const i32 n1 = (i32)table[3];
  const i32 c0 = (i32)table[4];
  for (i32 job1 = lj_first, lj_jobs = ((i32)((u32)(n0 + -1) / (u32)c0) + 1); job1 < lj_jobs; job1 += gridDim.x) {
    const i32 end_1 = lj_min<i32>(((c0 * job1) + c0), n0);
    for (i32 a0 = (c0 * job1); a0 < end_1; a0 += 1) {
      float s2_2 = 0.0f;
      {
        float s2_3 = -0.0f;
        const i32 begin_4 = 0;
        const bool aligned_5 = lj_aligned<float, 4>(i0 + ((a0 * n1) + begin_4));
        const i32 end_7 = n1;
        i32 first_6 = begin_4;
        if (aligned_5 && end_7 > begin_4) {
          first_6 = end_7 - (end_7 - begin_4) % 4;
          for (i32 base_8 = begin_4 + (i32)threadIdx.x * 4; base_8 < first_6; base_8 += 128) {
            const lj_pack<float, 4> pack_9 = *((const lj_pack<float, 4>*)(i0 + ((a0 * n1) + base_8)));
            #pragma unroll
            for (int lane = 0; lane < 4; lane++) {
              const i32 a1 = base_8 + lane;
              const float v3_10 = pack_9.e[lane];
              s2_3 = (s2_3 + v3_10);
            }
          }
        }
        const i32 end_11 = n1;
        for (i32 a1 = first_6 + (i32)threadIdx.x; a1 < end_11; a1 += 32) {
          const float t_12 = i0[((a0 * n1) + a1)];
          s2_3 = (s2_3 + t_12);
        }
        s2_3 = lj_block<1>(s2_3, [] (float a, float b) -> float { return (a + b); });
        s2_2 = (s2_2 + s2_3);
      }
      if (threadIdx.x == 0) {
        o0[a0] = s2_2;
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(32, 1)
loop_becf5e70af9b(const i64* const table) {
  __shared__ i64 lj_table[14];
  __shared__ __align__(16) u8 lj_scratch[4608];
  for (int k = threadIdx.x; k < 14; k += 32)
    lj_table[k] = table[k];
  u64* const lj_counter = (u64*)(table + 16);
  u64 lj_times = 0;
  __syncthreads();
  #pragma unroll 1
  for (i64 step_1 = 0; step_1 < lj_table[1]; step_1++) {
    const i64 carry_2 = step_1 == 0 ? lj_table[4] : step_1 & 1 ? lj_table[2] : lj_table[3];
    const i64 next_3 = step_1 + 1 == lj_table[1] ? lj_table[5] : step_1 & 1 ? lj_table[3] : lj_table[2];
    const i64 row_4 = lj_table[6] + (step_1) * lj_table[7];
    const i64 row_5 = lj_table[8] + (step_1) * lj_table[9];
    if (step_1) lj_meet(lj_counter, ++lj_times);
    { const i64 slots[] = {next_3, row_4, lj_table[0], carry_2, lj_table[10], lj_table[11], lj_table[11]}; kernel_eb8f9e83_phase0(slots, lj_scratch, blockIdx.x); }
    __syncthreads();
    { const i64 slots[] = {row_5, carry_2, lj_table[10], lj_table[11], lj_table[13]}; kernel_add14e47_phase0(slots, lj_scratch, (blockIdx.x + gridDim.x - lj_table[12] % gridDim.x) % gridDim.x); }
  }
}
