// One row of weights against rows of activations: what every matrix kernel does. A warp's lanes take groups of 32
// elements in turn; each adds its own in order, so a row's sum does not depend on what runs beside it.
// COLS: elements of a row; FAST: activations are rounded to 8 bits in front of block types (see quantize.cu).
#include "common/quant.cuh"
#include "common/reduce.cuh"

#if FAST && !QUANT_PLAIN

// A row of rounded activations.
struct Input {
    const i8* q;
    const float4* s;
};

DI Input input_row(const void* x, const float4* s, u64 row) { return {(const i8*)x + row * COLS, s + row * (COLS / 32)}; }

// A group times its activations, 16 in each of lo and hi, and their scale.
DI float group_dot(const Codes& c, int4 lo, int4 hi, float4 s) {
    int a = __dp4a(c.q[0], lo.x, __dp4a(c.q[1], lo.y, __dp4a(c.q[2], lo.z, __dp4a(c.q[3], lo.w, 0))));
    int b = __dp4a(c.q[4], hi.x, __dp4a(c.q[5], hi.y, __dp4a(c.q[6], hi.z, __dp4a(c.q[7], hi.w, 0))));
#if QUANT_GROUP == 32
    float sum = c.s[0] * s.x * (float)(a + b);
#else
    float sum = s.x * (c.s[0] * (float)a + c.s[1] * (float)b);
#endif
#if QUANT_HAS_MIN
    sum += c.m[0] * s.y + c.m[1] * s.z;
#endif
    return sum;
}

DI float group_dot(const Codes& c, Input x, int group) {
    const int4* q = (const int4*)(x.q + 32 * group);
    return group_dot(c, q[0], q[1], x.s[group]);
}

#else

// A row of activations.
struct Input {
    const float* x;
};

DI Input input_row(const void* x, const float4*, u64 row) { return {(const float*)x + row * COLS}; }

#if !QUANT_PLAIN
DI float group_dot(const Codes& c, Input x, int group) {
    const float* v = x.x + 32 * group;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < 32; j++) {
        float w = c.s[j / 16] * (float)(i8)(c.q[j / 4] >> 8 * (j % 4));
#if QUANT_HAS_MIN
        w += c.m[j / 16];
#endif
        sum += w * v[j];
    }
    return sum;
}
#endif

#endif

// What a lane takes of a row at a time: a group of 32, or four elements, or one. A row has UNITS of them.
#if QUANT_PLAIN && COLS % 128 == 0
#define UNITS (COLS / 4)
#elif QUANT_PLAIN
#define UNITS COLS
#else
#define UNITS (COLS / 32)
#endif

// Adds to sum[t] unit u of a row times that of input t.
template <int COUNT>
DI void unit_dots(const u8* row, int u, const Input (&x)[COUNT], float (&sum)[COUNT]) {
#if QUANT_PLAIN && COLS % 128 == 0
    float4 w = plain4_at(row, 4 * u);
#pragma unroll
    for (int t = 0; t < COUNT; t++) {
        float4 v = ((const float4*)x[t].x)[u];
        sum[t] = fmaf(w.x, v.x, fmaf(w.y, v.y, fmaf(w.z, v.z, fmaf(w.w, v.w, sum[t]))));
    }
#elif QUANT_PLAIN
    float w = plain_at(row, u);
#pragma unroll
    for (int t = 0; t < COUNT; t++) sum[t] = fmaf(w, x[t].x[u], sum[t]);
#else
    Codes c;
    codes(row, u, c);
#pragma unroll
    for (int t = 0; t < COUNT; t++) sum[t] += group_dot(c, x[t], u);
#endif
}

// Adds to sum[r][t] the products of this lane's share of row r, one of LANES lanes, with input t. What is read of an input serves
// all rows.
template <int LANES, int ROWS, int COUNT>
DI void lane_dots(const u8* const (&row)[ROWS], const Input (&x)[COUNT], float (&sum)[ROWS][COUNT]) {
#pragma unroll (ROWS * COUNT > 2 ? 1 : (QUANT_PLAIN ? 8 : 2) / (ROWS * COUNT))
    for (int i = 0; i < (UNITS + LANES - 1) / LANES; i++) {
        int u = threadIdx.x % LANES + LANES * i;
        if (UNITS % LANES && u >= UNITS) break;
#pragma unroll
        for (int r = 0; r < ROWS; r++) unit_dots(row[r], u, x, sum[r]);
    }
}
