// The second half of the chosen experts: out[i][n] = sum over j of weight_j (down_e[n] . act[i][j]), in the order of
// `picked`; zero where no chosen expert is held here. SHARED: and then + shared[n] . h[i].
// down [COPIES][OUTS] rows in the format m0, of the experts from FIRST on; act [rows][USED][cols] f32 at x, rounded
// (common/round.cuh) at xq and xs where the format wants that; picked [rows][2 USED]; shared [OUTS] rows in the format SECOND;
// h [rows][its cols] as act, at h, hq and hs; out [rows][OUTS] f32. PUSH: that is this rank's summand of a sum over devices, and goes to
// the peers, whose inboxes `peers` lists, as it is made (common/push.cuh). ROUND and ROUND_H: what the format wants rounded comes
// unrounded, and each block rounds it.
// Grid: OUTS / OWN rounded up, 1, rows; BLOCK threads: TEAMS warps for each expert. Bytes: the chosen experts' weights once a row.
#include "common/overlap.cuh"
#if PUSH
#include "common/push.cuh"
#endif
#include "common/round.cuh"
#include "common/side.cuh"
#include "common/step.cuh"

// Count rows of activations as a matrix takes them, from row `first` on; those that each block rounds lie in `room`.
template <class M, int Count, bool Rounds>
struct Acts {
    const void* x;
    const float4* s;

    DI Acts(const float* plain, const i8* q, const float4* scales, u64 first, i8* room) {
        const int width = Count * M::cols, each = width > 0 ? (width + BLOCK - 1) / BLOCK : 1;
        x = M::rounds ? (const void*)(q + first * M::cols) : plain + first * M::cols;
        s = scales + first * (M::cols / 32);
        if (!Rounds) return;
        x = room;
        s = (const float4*)(room + width);
        float v[1][each];
#pragma unroll
        for (int e = 0; e < each; e++) {
            int k = threadIdx.x + BLOCK * e;
            v[0][e] = k < width ? plain[first * M::cols + k] : 0;
        }
        round_groups(v, Made<width, each, BLOCK, 0>{(u8*)room});
    }

    DI typename M::Row row(int j) const { return M::row(x, s, j); }
};

// Bytes of Width rounded elements.
#define ROOM(Width) ((Width) + (Width) / 32 * 16)

typedef m0::Matrix Down;

// The rows of an expert, of which TEAMS warps share out the block's; those of the shared expert all warps do.
typedef Side<Down, Down, false, OWN, TEAMS, 1, 1> Chosen;
#if SHARED
// both are under way at once: wide pieces of the chosen leave less room
typedef Side<SECOND, SECOND, false, OWN, USED * TEAMS, 1, 1, Down::registers <= 8 ? HELD_REGISTERS : HELD_REGISTERS / 2> Shared;
#endif

extern "C" __global__ void __launch_bounds__(BLOCK, BLOCKS_HELD)
    run(const int* step, const float* picked, const u8* down, const float* x, const i8* xq, const float4* xs, const u8* shared,
        const float* h, const i8* hq, const float4* hs, float* out, uint4* const* peers) {
    int i = blockIdx.z, warp = threadIdx.x / 32, j = warp % USED, n = blockIdx.x * OWN, own = min(OWN, OUTS - n), pass = 0;
    int rows = step_rows(step);
    __shared__ Chosen::Sums sums[USED];
    let_later_begin();
#if SHARED
    // these weights are under way before it is known which others are wanted
    __shared__ Shared::Sums beside;
    Shared second(warp);
    int turn = 0;
    auto begin_shared = [&]() { return second.fetch(shared, 0, n, own, turn); };
    bool more = begin_shared();
#endif
#if PUSH
    __shared__ uint4* inboxes[RANKS];
    find_inboxes(inboxes, peers);
#endif
    await_earlier();
    if (i >= rows) return;
    picked += (u64)i * 2 * USED;
    int e = (int)picked[j] - FIRST;
    bool held = e >= 0 && e < COPIES;
    Chosen side(warp / USED);
    auto begin = [&]() { return held && side.fetch(down, 0, (u64)e * OUTS + n, own, pass); };
    bool any = begin();
    __shared__ __align__(16) i8 room[ROUND ? ROOM(USED * Down::cols) : 16];
    Acts<Down, USED, ROUND> acts(x, xq, xs, (u64)i * USED, room);
#if SHARED
    __shared__ __align__(16) i8 room_h[ROUND_H ? ROOM(SECOND::cols) : 16];
    Acts<SECOND, 1, ROUND_H> hidden(h, hq, hs, i, room_h);
#endif
    if (ROUND || ROUND_H) __syncthreads();
#if SHARED
    SECOND::Row input[1] = {hidden.row(0)};
    for (; more; turn += Shared::depth, more = begin_shared()) second.dots(input, input, beside);
#endif
    Down::Row act[1] = {acts.row(j)};
    for (; any; pass += Chosen::depth, any = begin()) side.dots(act, act, sums[j]);
    __syncthreads();
    auto made = [&](int, int r) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < USED; k++) {
            int e = (int)picked[k] - FIRST;
            sum += e >= 0 && e < COPIES ? picked[USED + k] * sums[k].of[0][0][r] : 0;
        }
#if SHARED
        sum += beside.of[0][0][r];
#endif
        return sum;
    };
#if PUSH
    push_made<OUTS, OWN>(inboxes, out, i, 1, n, own, made);
#else
    for (int r = threadIdx.x; r < own; r += BLOCK) out[(u64)i * OUTS + n + r] = made(0, r);
#endif
}
