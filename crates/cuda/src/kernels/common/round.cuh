// Rounding to 8 bits: 32 elements, one a lane, share a scale of their largest magnitude / 127. Beside the codes lies, for
// each 16, {scale, scale x sum of the 16 codes}.
#include "common/reduce.cuh"

// The lanes of a warp round their elements; q and s are those of the first.
DI void round_warp(float v, i8* q, float4* s) {
    int lane = threadIdx.x % 32;
    // magnitudes order as their bits do
    float most = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(fabsf(v)))), scale = most / 127.0f;
    int code = most > 0 ? __float2int_rn(v * (127.0f / most)) : 0;
    q[lane] = (i8)code;
    // both sums at once, each of 16 numbers below 256
    u32 sums = __reduce_add_sync(~0u, (u32)(code + 128) << (lane < 16 ? 0 : 16));
    float first = (float)((int)(sums & 0xffff) - 2048), second = (float)((int)(sums >> 16) - 2048);
    if (lane == 0) *s = make_float4(scale, scale * first, scale, scale * second);
}

// A warp rounds Rows times Each groups of 32 at once, of which its lanes have an element each. What takes a division, and what one lane
// writes, is done for 32 groups together, by a lane for each. `place`: `has` the g-th group a place, and where are its `codes` and
// `scales`? A group that is nowhere is the same for all lanes.
template <int Rows, int Each, class Place>
DI void round_groups(const float (&v)[Rows][Each], const Place& place) {
    const int groups = Rows * Each;
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int first = 0; first < groups; first += 32) {
        u32 most = 0, sums = 0;
#pragma unroll
        for (int n = 0; n < 32 && first + n < groups; n++) {
            u32 all = __reduce_max_sync(~0u, __float_as_uint(fabsf(v[(first + n) / Each][(first + n) % Each])));
            most = lane == n ? all : most;
        }
        float largest = __uint_as_float(most), scale = largest / 127.0f, by = largest > 0 ? 127.0f / largest : 0;
#pragma unroll
        for (int n = 0; n < 32 && first + n < groups; n++) {
            float to = __shfl_sync(~0u, by, n);
            int g = first + n, code = __float2int_rn(v[g / Each][g % Each] * to);
            u32 both = __reduce_add_sync(~0u, (u32)(code + 128) << (lane < 16 ? 0 : 16));
            if (place.has(g)) place.codes(g)[lane] = (i8)code;
            sums = lane == n ? both : sums;
        }
        float low = (float)((int)(sums & 0xffff) - 2048), high = (float)((int)(sums >> 16) - 2048);
        int g = first + lane;
        if (g < groups && place.has(g)) *place.scales(g) = make_float4(scale, scale * low, scale, scale * high);
    }
}

// Where Threads threads of a block round rows of Width elements to, of which a warp has Each groups: each row Pitch bytes behind the one
// before, its codes, and behind them its scales.
template <int Width, int Each, int Threads, int Pitch>
struct Made {
    u8* room;

    DI int first(int g) const { return threadIdx.x / 32 * 32 + Threads * (g % Each); }
    DI u8* row(int g) const { return room + g / Each * Pitch; }
    DI bool has(int g) const { return first(g) < Width; }
    DI i8* codes(int g) const { return (i8*)row(g) + first(g); }
    DI float4* scales(int g) const { return (float4*)(row(g) + Width) + first(g) / 32; }
};
