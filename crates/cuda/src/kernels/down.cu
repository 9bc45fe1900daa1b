// The second half of the chosen experts: out[i][n] = sum over j of weight_j (down_e[n] . act[i][j]), in the order of
// `picked`; zero where no chosen expert is held here. SHARED: and then + shared[n] . h[i].
// down [COPIES][OUTS] rows in the format m0, of the experts from FIRST on; act [rows][USED][cols] f32 at x, rounded
// (common/round.cuh) at xq and xs where the format wants that; picked [rows][2 USED]; shared [OUTS] rows in the format SECOND;
// h [rows][its cols] as act, at h, hq and hs; out [rows][OUTS] f32. ROUND and ROUND_H: what the format wants rounded comes
// unrounded, and each block rounds it.
// Grid: OUTS / 8 rounded up, 1, rows; 256 threads, a warp for a row. Bytes: the chosen experts' weights once a row.
#include "common/reduce.cuh"
#include "common/round.cuh"
#include "common/step.cuh"

// Count rows of activations as a matrix takes them, from row `first` on; those that each block rounds lie in `room`.
template <class M, int Count, bool Rounds>
struct Acts {
    const void* x;
    const float4* s;

    DI Acts(const float* plain, const i8* q, const float4* scales, u64 first, i8* room) {
        const int width = Count * M::cols;
        x = M::rounds ? (const void*)(q + first * M::cols) : plain + first * M::cols;
        s = scales + first * (M::cols / 32);
        if (!Rounds) return;
        x = room;
        s = (const float4*)(room + width);
        for (int k = threadIdx.x; k < width; k += 256) {
            int group = k - threadIdx.x % 32;
            round_warp(plain[first * M::cols + k], room + group, (float4*)(room + width) + group / 32);
        }
    }

    DI typename M::Row row(int j) const { return M::row(x, s, j); }
};

// Bytes of Width rounded elements.
#define ROOM(Width) ((Width) + (Width) / 32 * 16)

typedef m0::Matrix Down;

extern "C" __global__ void __launch_bounds__(256, 3)
    run(const int* step, const float* picked, const u8* down, const float* x, const i8* xq, const float4* xs, const u8* shared,
        const float* h, const i8* hq, const float4* hs, float* out) {
    int i = blockIdx.z, n = blockIdx.x * 8 + threadIdx.x / 32;
    if (i >= step_rows(step)) return;
    picked += (u64)i * 2 * USED;
    __shared__ __align__(16) i8 room[ROUND ? ROOM(USED * Down::cols) : 16];
    Acts<Down, USED, ROUND> acts(x, xq, xs, (u64)i * USED, room);
#if SHARED
    __shared__ __align__(16) i8 room_h[ROUND_H ? ROOM(SECOND::cols) : 16];
    Acts<SECOND, 1, ROUND_H> hidden(h, hq, hs, i, room_h);
#endif
    if (ROUND || ROUND_H) __syncthreads();
    if (n >= OUTS) return;
    // all experts' units in one row, so that all lanes have as many, and their weights are under way together
    const int units = USED * Down::units;
    float sum = 0;
#pragma unroll 4
    for (int i = 0; i < (units + 31) / 32; i++) {
        int at = threadIdx.x % 32 + 32 * i, j = at / Down::units;
        if (units % 32 && at >= units) break;
        int e = (int)picked[j] - FIRST;
        bool held = e >= 0 && e < COPIES;
        Down::Row act[1] = {acts.row(j)};
        float v[1] = {0};
        Down::unit(Down::at(down, (u64)(held ? e : 0) * OUTS + n), at % Down::units, act, v);
        sum += held ? picked[USED + j] * v[0] : 0;
    }
    sum = warp_sum(sum);
#if SHARED
    const u8* row[1] = {SECOND::at(shared, n)};
    SECOND::Row input[1] = {hidden.row(0)};
    float v[1][1] = {};
    SECOND::dots<32>(row, input, v);
    sum += warp_sum(v[0][0]);
#endif
    if (threadIdx.x % 32 == 0) out[(u64)i * OUTS + n] = sum;
}
