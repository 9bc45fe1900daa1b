// One lane's share of a row of weights, a chunk at a time, against a row of activations.
// COLS: elements of a row; FAST: activations are rounded to 8 bits in front of block types (see quantize.cu).
// CHUNK: elements that a lane takes at a time, CHUNK_HELD: registers for as many activations, CHUNK_HOLDS: are they worth it?
#include "common/quant.cuh"

#if QUANT_PLAIN && COLS % 4 != 0
#define CHUNK 1
#elif QUANT_PLAIN
#define CHUNK (QUANT_BYTES == 4 || COLS % 8 != 0 ? 4 : 8)
#elif QUANT == QUANT_Q4_K || QUANT == QUANT_Q5_K
#define CHUNK 64
#else
#define CHUNK 32
#endif

// Bytes before chunk c of a row, c where a block begins.
DI constexpr u32 chunk_offset(int c) { return (u32)c * CHUNK / QUANT_LEN * QUANT_BYTES; }

#if QUANT_PLAIN

#define CHUNK_HELD CHUNK
#define CHUNK_HOLDS 1

// A row of activations, and a chunk of it.
struct Input {
    const float* x;
};
struct Given {
    float x[CHUNK];
};

DI Input input_row(const void* x, const float4*, u64 row) { return {(const float*)x + row * COLS}; }

DI Given given(Input x, int chunk) {
    Given g;
#if CHUNK == 1
    g.x[0] = x.x[chunk];
#else
#pragma unroll
    for (int i = 0; i < CHUNK; i += 4) {
        float4 v = *(const float4*)(x.x + CHUNK * chunk + i);
        g.x[i] = v.x, g.x[i + 1] = v.y, g.x[i + 2] = v.z, g.x[i + 3] = v.w;
    }
#endif
    return g;
}

// A chunk of weights.
struct Taken {
    float w[CHUNK];
};

DI Taken taken(const u8* row, int chunk) {
    Taken t;
#if CHUNK == 1
    t.w[0] = plain_at(row, chunk);
#else
#pragma unroll
    for (int i = 0; i < CHUNK; i += 4) {
        float4 v = plain4_at(row, CHUNK * chunk + i);
        t.w[i] = v.x, t.w[i + 1] = v.y, t.w[i + 2] = v.z, t.w[i + 3] = v.w;
    }
#endif
    return t;
}

DI float chunk_dot(const Taken& t, const Given& g) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < CHUNK; i++) sum += t.w[i] * g.x[i];
    return sum;
}

#else

// A chunk of weights: its groups of 32.
struct Taken {
    Codes group[CHUNK / 32];
};

DI Taken taken(const u8* row, int chunk) {
    Taken t;
#if CHUNK == 64
    pair_codes(row, chunk, t.group);
#else
    codes(row, chunk, t.group[0]);
#endif
    return t;
}

#if FAST

#define CHUNK_HELD (12 * CHUNK / 32)
#define CHUNK_HOLDS 1

// A row of rounded activations, and a chunk of it.
struct Input {
    const i8* q;
    const float4* s;
};
struct Given {
    int4 q[CHUNK / 16];
    float4 s[CHUNK / 32];
};

DI Input input_row(const void* x, const float4* s, u64 row) { return {(const i8*)x + row * COLS, s + row * (COLS / 32)}; }

DI Given given(Input x, int chunk) {
    Given g;
#pragma unroll
    for (int i = 0; i < CHUNK / 16; i++) g.q[i] = ((const int4*)(x.q + CHUNK * chunk))[i];
#pragma unroll
    for (int i = 0; i < CHUNK / 32; i++) g.s[i] = x.s[CHUNK / 32 * chunk + i];
    return g;
}

DI float chunk_dot(const Taken& t, const Given& g) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < CHUNK / 32; i++) {
        const Codes& c = t.group[i];
        int4 lo = g.q[2 * i], hi = g.q[2 * i + 1];
        int a = __dp4a(c.q[0], lo.x, __dp4a(c.q[1], lo.y, __dp4a(c.q[2], lo.z, __dp4a(c.q[3], lo.w, 0))));
        int b = __dp4a(c.q[4], hi.x, __dp4a(c.q[5], hi.y, __dp4a(c.q[6], hi.z, __dp4a(c.q[7], hi.w, 0))));
        float4 s = g.s[i];
#if QUANT_GROUP == 32
        sum += c.s[0] * s.x * (float)(a + b);
#else
        sum += s.x * (c.s[0] * (float)a + c.s[1] * (float)b);
#endif
#if QUANT_HAS_MIN
        sum += c.m[0] * s.y + c.m[1] * s.z;
#endif
    }
    return sum;
}

#else

#define CHUNK_HELD CHUNK
#define CHUNK_HOLDS 0

// A row of activations, and a chunk of it where it lies.
struct Input {
    const float* x;
};
struct Given {
    const float* x;
};

DI Input input_row(const void* x, const float4*, u64 row) { return {(const float*)x + row * COLS}; }
DI Given given(Input x, int chunk) { return {x.x + CHUNK * chunk}; }

DI float chunk_dot(const Taken& t, const Given& g) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < CHUNK; j++) {
        const Codes& c = t.group[j / 32];
        float w = c.s[j / 16 % 2] * (float)(i8)(c.q[j / 4 % 8] >> 8 * (j % 4));
#if QUANT_HAS_MIN
        w += c.m[j / 16 % 2];
#endif
        sum += w * g.x[j];
    }
    return sum;
}

#endif

#endif
