template <int TURN_LEFT, int TURN_RIGHT>
LJ void lj_products_bf16_128(float* d, u64 left, u64 right, int add) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
    "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
    "%64, %65, p, 1, 1, %67, %68;\n}"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
    : "l"(left), "l"(right), "r"(add), "n"(TURN_LEFT), "n"(TURN_RIGHT));
}

extern "C" __global__ void __launch_bounds__(160, 1)
product_phase0(const i64* __restrict__ table) {
  u16* const c = (u16*)table[0];
  __builtin_assume(__isGlobal(c));
  const u16* __restrict__ const a = (const u16*)table[1];
  __builtin_assume(__isGlobal(a));
  const u16* __restrict__ const b = (const u16*)table[2];
  __builtin_assume(__isGlobal(b));
  for (i64 job = blockIdx.x, lj_jobs = 1; job < lj_jobs; job += gridDim.x) {
    const i64 end_1 = 256;
    for (i64 nt = 0; nt < end_1; nt += 128) {
      const i64 end_2 = 128;
      for (i64 mt = 0; mt < end_2; mt += 64) {
        const i64 m_3 = mt;
        const i64 m_end_4 = 128;
        const i64 n_5 = nt;
        const i64 n_end_6 = 256;
        extern __shared__ __align__(1024) u8 lj_slots[];
        u64* const full_7 = (u64*)(lj_slots + 147456);
        u64* const empty_8 = full_7 + 6;
        const int slabs_9 = (int)((512 + 63) / 64);
        const int group_11 = threadIdx.x / 128;
        const int lane_12 = threadIdx.x & 31;
        if (threadIdx.x == 0) {
          #pragma unroll
          for (int slot_13 = 0; slot_13 < 6; slot_13++) {
            lj_phases(full_7 + slot_13, 1);
            lj_phases(empty_8 + slot_13, 4);
          }
          lj_show_phases();
        }
        __syncthreads();
        float sum_10[64];
        #pragma unroll
        for (int i_14 = 0; i_14 < 64; i_14++) {
          sum_10[i_14] = 0;
        }
        if (group_11 == 1) {
          if (lane_12 == 0) {
            const u8* const map_15 = (const u8*)table + 64;
            lj_see_map(map_15);
            const u8* const map_16 = (const u8*)table + 192;
            lj_see_map(map_16);
            int at_18 = 0, parity_19 = 0;
            #pragma unroll 1
            for (int slab_17 = 0; slab_17 < slabs_9; slab_17++) {
              lj_wait_for(empty_8 + at_18, parity_19 ^ 1);
              lj_expect(full_7 + at_18, 24576);
              lj_move_box(lj_slots + at_18 * 24576 + 0, map_15, full_7 + at_18, slab_17 * 64, (int)m_3);
              lj_move_box(lj_slots + at_18 * 24576 + 8192, map_16, full_7 + at_18, (int)n_5, slab_17 * 64);
              lj_move_box(lj_slots + at_18 * 24576 + 16384, map_16, full_7 + at_18, (int)n_5 + 64, slab_17 * 64);
              at_18 = at_18 == 5 ? 0 : at_18 + 1;
              parity_19 ^= at_18 == 0;
            }
          }
          __syncwarp();
        }
        else {
          int before_20 = -1;
          int at_23 = 0, parity_24 = 0;
          #pragma unroll 1
          for (int slab_22 = 0; slab_22 < slabs_9; slab_22++) {
            lj_wait_for(full_7 + at_23, parity_24);
            const u8* const left_25 = lj_slots + at_23 * 24576 + group_11 * 8192;
            const u8* const right_26 = lj_slots + at_23 * 24576 + 8192;
            lj_products_begin();
            #pragma unroll
            for (int step_21 = 0; step_21 < 4; step_21++) {
              lj_products_bf16_128<0, 1>(sum_10, lj_matrix(left_25 + step_21 * 32, 16, 1024, 1), lj_matrix(right_26 + step_21 * 2048, 8192, 1024, 1), 1);
            }
            lj_products_close();
            lj_products_wait<1>();
            if (before_20 >= 0 && lane_12 == 0) lj_arrive(empty_8 + before_20);
            before_20 = at_23;
            at_23 = at_23 == 5 ? 0 : at_23 + 1;
            parity_24 ^= at_23 == 0;
          }
          lj_products_wait<0>();
          #pragma unroll
          for (int i_27 = 0; i_27 < 64; i_27++) {
            lj_settled(sum_10[i_27]);
          }
        }
        if (group_11 < 1) {
          #pragma unroll
          for (int i_30 = 0; i_30 < 64; i_30++) {
            const int r_28 = (threadIdx.x >> 5) * 16 + (lane_12 >> 2) + 8 * (i_30 >> 1 & 1);
            const int c_29 = 8 * (i_30 >> 2) + 2 * (lane_12 & 3) + (i_30 & 1);
            const i64 m = m_3 + r_28, n = n_5 + c_29;
            if (m < m_end_4 && n < n_end_6 && r_28 < 64 && c_29 < 128) {
              const float t_31 = sum_10[i_30];
              const float t_32 = lj_brain(lj_brain_bits((float)(t_31)));
              c[((256 * m) + n)] = lj_brain_bits(t_32);
            }
          }
        }
        __syncthreads();
        if (threadIdx.x == 0) {
          #pragma unroll
          for (int slot_33 = 0; slot_33 < 6; slot_33++) {
            lj_phases_end(full_7 + slot_33);
            lj_phases_end(empty_8 + slot_33);
          }
        }
      }
    }
  }
}
