// One row of weights against rows of activations: what every matrix kernel does. A warp's lanes take units of a row in turn
// (common/piece.cuh); each adds its own in order, so a row's sum does not depend on what runs beside it.
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

// The n-th 16 codes of a row, and what lies beside them (common/round.cuh).
DI int4 codes16(const Input& x, int n) { return ((const int4*)x.q)[n]; }
DI float2 sixteen(const Input& x, int n) { return ((const float2*)x.s)[n]; }

DI int dot16(uint4 w, int4 x) { return __dp4a((int)w.x, x.x, __dp4a((int)w.y, x.y, __dp4a((int)w.z, x.z, __dp4a((int)w.w, x.w, 0)))); }

DI uint4 and4(uint4 v, u32 mask) { return make_uint4(v.x & mask, v.y & mask, v.z & mask, v.w & mask); }
DI uint4 or4(uint4 a, uint4 b) { return make_uint4(a.x | b.x, a.y | b.y, a.z | b.z, a.w | b.w); }
DI uint4 shift4(uint4 v, u32 by) { return make_uint4(v.x >> by, v.y >> by, v.z >> by, v.w >> by); }
DI uint4 left4(uint4 v, u32 by) { return make_uint4(v.x << by, v.y << by, v.z << by, v.w << by); }

// A group times its activations.
DI float group_dot(const Codes& c, Input x, int group) {
    int4 lo = codes16(x, 2 * group), hi = codes16(x, 2 * group + 1);
    float4 s = x.s[group];
    int a = __dp4a(c.q[0], lo.x, __dp4a(c.q[1], lo.y, __dp4a(c.q[2], lo.z, __dp4a(c.q[3], lo.w, 0))));
    int b = __dp4a(c.q[4], hi.x, __dp4a(c.q[5], hi.y, __dp4a(c.q[6], hi.z, __dp4a(c.q[7], hi.w, 0))));
#if QUANT_GROUP == 32
    float sum = c.s[0] * s.x * (float)(a + b);
#else
    float sum = s.x * (c.s[0] * (float)a + c.s[1] * (float)b);
#endif
#if QUANT_HAS_MIN
    sum += c.m[0] * s.y + c.m[1] * s.w;
#endif
    return sum;
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
