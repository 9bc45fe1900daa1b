// What a lane takes of a row of weights at a time, a unit, in two steps: the bytes are fetched, and later multiplied, so that those of
// several units are under way together.
// Of planes (common/quant.cuh) with rounded activations a unit is 16 bytes of codes, those of lane n + 1 right behind those of lane
// n; of plain types four elements, or one; of other rows a group of 32, which is not fetched ahead.
#include "common/dot.cuh"

#if FAST && PLANES && QUANT == QUANT_Q8_0

#define UNITS (COLS / 16)
#define PIECE_REGISTERS 5

struct Piece {
    uint4 q;
    u32 d;
};

DI Piece piece_at(const u8* row, int u) {
    return {read_once((const uint4*)row + u), ((const u16*)(row + 32 * ROW_BLOCKS))[u / 2]};
}

template <int Count>
DI void piece_dots(const Piece& p, const u8*, int u, const Input (&x)[Count], float (&sum)[Count]) {
    float scale = half_to_float((u16)p.d);
#pragma unroll
    for (int t = 0; t < Count; t++) {
        sum[t] += scale * sixteen(x[t], u).x * (float)dot16(p.q, codes16(x[t], u));
    }
}

#elif FAST && PLANES && (QUANT == QUANT_Q4_K || QUANT == QUANT_Q5_K)

#define UNITS (COLS / 32)
// of Q5_K with those that its fifth bits pass through
#define PIECE_REGISTERS (QUANT == QUANT_Q5_K ? 16 : 8)

struct Piece {
    uint4 q, head;
#if QUANT == QUANT_Q5_K
    uint4 fifth;
#endif
};

DI Piece piece_at(const u8* row, int u) {
    Piece p;
    p.q = read_once((const uint4*)row + u);
    p.head = head_of(row, (u32)u / 8);
#if QUANT == QUANT_Q5_K
    p.fifth = read_once((const uint4*)(row + ROW_BLOCKS * OF_LOW) + ((u32)u / 8 * 2 + u % 2));
#endif
    return p;
}

// The low nibbles are half of one group, the high ones of the next.
template <int Count>
DI void piece_dots(const Piece& p, const u8*, int u, const Input (&x)[Count], float (&sum)[Count]) {
    u32 pair = (u32)u / 2 % 4, shift = 16 * (pair % 2);
    uint4 low = and4(p.q, FOUR(15u)), high = and4(shift4(p.q, 4), FOUR(15u));
#if QUANT == QUANT_Q5_K
    low = or4(low, left4(and4(shift4(p.fifth, 2 * pair), FOUR(1u)), 4));
    high = or4(high, left4(and4(shift4(p.fifth, 2 * pair + 1), FOUR(1u)), 4));
#endif
    u32 a = p.head.y >> shift, b = p.head.z >> shift, c = p.head.w >> shift;
    u32 of_scale = pair < 2 ? a & 0x3f3f : c & 0x0f0f | a >> 2 & 0x3030;
    u32 of_min = pair < 2 ? b & 0x3f3f : c >> 4 & 0x0f0f | b >> 2 & 0x3030;
    float d = half_to_float((u16)p.head.x), least = half_to_float((u16)(p.head.x >> 16));
    float s0 = d * (float)(of_scale & 255), s1 = d * (float)(of_scale >> 8);
    float m0 = least * (float)(of_min & 255), m1 = least * (float)(of_min >> 8);
    int first = u / 2 * 4 + u % 2;
#pragma unroll
    for (int t = 0; t < Count; t++) {
        float2 f = sixteen(x[t], first), g = sixteen(x[t], first + 2);
        float v = s0 * f.x * (float)dot16(low, codes16(x[t], first)) - m0 * f.y;
        sum[t] += v + (s1 * g.x * (float)dot16(high, codes16(x[t], first + 2)) - m1 * g.y);
    }
}

#elif FAST && PLANES && QUANT == QUANT_Q6_K

#define UNITS (COLS / 32)
#define PIECE_REGISTERS 11

struct Piece {
    uint4 q, high;
    uint2 scales;
    u32 d;
};

DI Piece piece_at(const u8* row, int u) {
    Piece p;
    p.q = read_once((const uint4*)row + u);
    p.high = read_once((const uint4*)field(row, 0, 128, 64) + ((u32)u / 4 * 2 + u % 2));
    p.scales = ((const uint2*)field(row, 0, 192, 16))[(u32)u / 4];
    p.d = ((const u16*)field(row, 0, 208, 2))[(u32)u / 8];
    return p;
}

// Half a group of each of two groups of 128 elements: the low nibbles of the first 64, the high ones of the others.
template <int Count>
DI void piece_dots(const Piece& p, const u8*, int u, const Input (&x)[Count], float (&sum)[Count]) {
    u32 r = (u32)u % 4, shift = r / 2 * 2;
    uint4 low = or4(and4(p.q, FOUR(15u)), and4(left4(p.high, 4 - shift), FOUR(48u)));
    uint4 high = or4(and4(shift4(p.q, 4), FOUR(15u)), and4(shift4(p.high, shift), FOUR(48u)));
    float d = half_to_float((u16)p.d);
    float s0 = d * (float)(i8)(p.scales.x >> 8 * r), s1 = d * (float)(i8)(p.scales.y >> 8 * r);
    int first = u / 4 * 8 + (int)r;
#pragma unroll
    for (int t = 0; t < Count; t++) {
        float2 f = sixteen(x[t], first), g = sixteen(x[t], first + 4);
        // codes begin at -32
        float v = s0 * (f.x * (float)dot16(low, codes16(x[t], first)) - 32 * f.y);
        sum[t] += v + s1 * (g.x * (float)dot16(high, codes16(x[t], first + 4)) - 32 * g.y);
    }
}

#elif QUANT_PLAIN && COLS % 128 == 0

#define UNITS (COLS / 4)
#define PIECE_REGISTERS 4

struct Piece {
    float4 w;
};

DI Piece piece_at(const u8* row, int u) { return {plain4_at(row, 4 * u)}; }

template <int Count>
DI void piece_dots(const Piece& p, const u8*, int u, const Input (&x)[Count], float (&sum)[Count]) {
#pragma unroll
    for (int t = 0; t < Count; t++) {
        float4 v = ((const float4*)x[t].x)[u];
        sum[t] = fmaf(p.w.x, v.x, fmaf(p.w.y, v.y, fmaf(p.w.z, v.z, fmaf(p.w.w, v.w, sum[t]))));
    }
}

#else

#define UNITS (QUANT_PLAIN ? COLS : COLS / 32)
#define PIECE_REGISTERS 20

struct Piece {};

DI Piece piece_at(const u8*, int) { return {}; }

template <int Count>
DI void piece_dots(const Piece&, const u8* row, int u, const Input (&x)[Count], float (&sum)[Count]) {
#if QUANT_PLAIN
    float w = plain_at(row, u);
#pragma unroll
    for (int t = 0; t < Count; t++) sum[t] = fmaf(w, x[t].x[u], sum[t]);
#else
    Codes c;
    codes(row, u, c);
#pragma unroll
    for (int t = 0; t < Count; t++) sum[t] += group_dot(c, x[t], u);
#endif
}

#endif
