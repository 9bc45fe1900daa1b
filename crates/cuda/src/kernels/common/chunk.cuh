// A lane's share of a row of weights, a chunk at a time, against activations that it holds in registers.
// COLS, FAST: see common/dot.cuh; block types take rounded activations.
#include "common/dot.cuh"

#if QUANT_PLAIN && COLS % 4 == 0

// Elements that a lane takes at a time, and the registers that as many activations fill.
#define CHUNK 4
#define CHUNK_HELD 4

// A chunk of activations.
struct Given {
    float4 x;
};

DI Given given(Input x, int chunk) { return {((const float4*)x.x)[chunk]}; }

DI float chunk_dot(const u8* row, int chunk, const Given& g) {
    float4 w = plain4_at(row, CHUNK * chunk);
    return w.x * g.x.x + w.y * g.x.y + w.z * g.x.z + w.w * g.x.w;
}

#elif FAST && !QUANT_PLAIN

// Two groups where their codes lie in the same bytes.
#define CHUNK_GROUPS (QUANT == QUANT_Q4_K || QUANT == QUANT_Q5_K ? 2 : 1)
#define CHUNK (32 * CHUNK_GROUPS)
#define CHUNK_HELD (12 * CHUNK_GROUPS)

struct Given {
    int4 q[2 * CHUNK_GROUPS];
    float4 s[CHUNK_GROUPS];
};

DI Given given(Input x, int chunk) {
    Given g;
#pragma unroll
    for (int i = 0; i < 2 * CHUNK_GROUPS; i++) g.q[i] = ((const int4*)(x.q + CHUNK * chunk))[i];
#pragma unroll
    for (int i = 0; i < CHUNK_GROUPS; i++) g.s[i] = x.s[CHUNK_GROUPS * chunk + i];
    return g;
}

DI float chunk_dot(const u8* row, int chunk, const Given& g) {
#if QUANT == QUANT_Q4_K || QUANT == QUANT_Q5_K
    Codes c[2];
    pair_codes(row, chunk, c);
    return group_dot(c[0], g.q[0], g.q[1], g.s[0]) + group_dot(c[1], g.q[2], g.q[3], g.s[1]);
#else
    Codes c;
    codes(row, chunk, c);
    return group_dot(c, g.q[0], g.q[1], g.s[0]);
#endif
}

#else
#error "block types with rounded activations, or plain rows of whole fours"
#endif

// Bytes before chunk c of a row, c where a block begins.
DI constexpr u32 chunk_offset(int c) { return (u32)c * CHUNK / QUANT_LEN * QUANT_BYTES; }
