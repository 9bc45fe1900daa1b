// Tiles of a product of many rows: TILE rows of activations, rounded to 8 bits (common/round.cuh), times SPAN rows of weights,
// by tensor cores for integers. Weights are decoded once for a tile, from memory to shared memory, where they lie as
// integers beside their scales. A step is GROUPS groups of 32 elements; one is multiplied while the next comes.
// Integers are summed within a group, exactly; a row's groups are added one after the other in f32, so that a row's sum does
// not depend on what runs beside it. Grouped sums are float and integer at once: they begin at the number whose bits as a float are
// 1.5 x 2^23, and stay in the range where the last bit is worth 1, as 32 x 127 x 128 < 2^22.
// By 256 threads: a warp has all rows of activations and 16 of weights, or eight and the eight that go with them.
#include "common/mma.cuh"
#include "common/round.cuh"

#define SPAN 128
#define GROUPS 2
#define STRIPS (TILE / 16)
// Bytes of a row in shared memory: an odd number of 16, so that eight rows lie in different banks.
#define PITCH (32 * GROUPS + 16)
#define OUT_PITCH (SPAN + 8)

#define PLAIN 0
#define BIASED 1
#define GATED 2

struct Stage {
    u8 x[TILE][PITCH], w[SPAN][PITCH];
    float4 x_scale[GROUPS][TILE];
    // scales and minima of both halves
    float4 w_scale[GROUPS][SPAN];
};

struct Tile {
    union {
        Stage stage[2];
        float out[TILE][OUT_PITCH];
    };
    // Which rows of activations these are, and which ones they become; -1: none.
    int from[TILE], to[TILE];
};

// A lane's sums: in strip m rows lane / 4 and that + 8, of both eights of weights columns 2 (lane % 4) and that + 1.
typedef float Sums[STRIPS][2][4];

struct Activations {
    const i8* q;
    const float4* s;
};

// Has the activations of a step copied; zeros beyond the last group and of no row.
template <int Count>
DI void copy_rows(Stage& to, const int* from, Activations x, int first) {
#pragma unroll
    for (int p = threadIdx.x; p < TILE * GROUPS * 2; p += 256) {
        int t = p / (GROUPS * 2), half = p % (GROUPS * 2), row = from[t];
        bool is = row >= 0 && first + half / 2 < Count;
        copy_start(&to.x[t][16 * half], is ? x.q + ((u64)row * Count + first) * 32 + 16 * half : x.q, is);
    }
    for (int p = threadIdx.x; p < TILE * GROUPS; p += 256) {
        int t = p / GROUPS, g = p % GROUPS, row = from[t];
        bool is = row >= 0 && first + g < Count;
        copy_start(&to.x_scale[g][t], is ? x.s + (u64)row * Count + first + g : x.s, is);
    }
}

template <class A, class B>
struct Alike {
    enum { are = false };
};
template <class A>
struct Alike<A, A> {
    enum { are = true };
};

// A group of 32 weights, with scales and minima of both halves.
struct Group {
    int4 low, high;
    float4 scale;

    template <class M>
    DI void read(const u8* row, int g) {
        typename M::Group c;
        M::group(row, g, c);
        low = make_int4(c.q[0], c.q[1], c.q[2], c.q[3]);
        high = make_int4(c.q[4], c.q[5], c.q[6], c.q[7]);
        scale = make_float4(c.s[0], c.s[1], c.m[0], c.m[1]);
    }
};

// Rows of weights on their way through a thread, which always has the same groups of one row. Both: a warp has eight rows of M and
// the eight of U that go with them.
template <class M, class U, bool Both>
struct Weights {
    enum { each = SPAN * GROUPS / 256, groups = M::groups };
    const u8* row;
    Group held[each];

    // Which of a tile's rows, and groups of a step, are this thread's.
    static DI int place() { return threadIdx.x / (GROUPS / each); }
    static DI int group() { return threadIdx.x % (GROUPS / each) * each; }
    static DI bool second() { return Both && place() / 8 % 2; }

    DI Weights(const u8* w, const u8* u, u64 n, u64 last) {
        u64 own = n + (Both ? place() / 16 * 8 + place() % 8 : place());
        own = own < last ? own : last;
        row = second() ? U::at(u, own) : M::at(w, own);
    }

    DI void read(int first) {
#pragma unroll
        for (int e = 0; e < each; e++) {
            int g = first + group() + e;
            if (groups % GROUPS && g >= groups) break;
            if (!Alike<M, U>::are && second()) {
                held[e].template read<U>(row, g);
            } else {
                held[e].template read<M>(row, g);
            }
        }
    }

    DI void write(Stage& to, int first) const {
#pragma unroll
        for (int e = 0; e < each; e++) {
            int g = group() + e;
            if (groups % GROUPS && first + g >= groups) break;
            int4* at = (int4*)&to.w[place()][32 * g];
            at[0] = held[e].low;
            at[1] = held[e].high;
            to.w_scale[g][place()] = held[e].scale;
        }
    }
};

#define ZERO_BITS 0x4b400000
#define ZERO 12582912.0f

// Adds the products of a group to a lane's sums of one strip and one eight.
template <class M>
DI void add_group(float (&sum)[4], const u32 (&a)[4], u32 low, u32 high, const float4 (&x)[2], const float4 (&w)[2]) {
    int first[4] = {ZERO_BITS, ZERO_BITS, ZERO_BITS, ZERO_BITS}, second[4] = {ZERO_BITS, ZERO_BITS, ZERO_BITS, ZERO_BITS};
    if (M::halves) {
        mma8_half(first, a[0], a[1], low);
        mma8_half(second, a[2], a[3], high);
    } else {
        mma8(first, a, low, high);
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float4 of = x[j / 2], by = w[j % 2];
        float v = __int_as_float(first[j]) - ZERO;
        if (M::halves) {
            sum[j] = fmaf(of.x, fmaf(by.x, v, by.y * (__int_as_float(second[j]) - ZERO)), sum[j]);
        } else {
            sum[j] = fmaf(of.x * by.x, v, sum[j]);
        }
        if (M::minima) sum[j] = M::halves ? fmaf(by.z, of.y, fmaf(by.w, of.w, sum[j])) : fmaf(by.z, of.y + of.w, sum[j]);
    }
}

// Adds the products of a step that begins with group `first`. Only `strips` strips have rows.
template <class M, class U>
DI void add_step(Sums& sum, const Stage& s, int first, int strips) {
    int lane = threadIdx.x % 32, own = threadIdx.x / 32 * 16;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        if (M::groups % GROUPS && first + g >= M::groups) break;
        u32 b[4];
        load_matrices(b, (const u16*)&s.w[own + lane % 8 + lane / 16 * 8][32 * g + lane / 8 % 2 * 16]);
        float4 w[2][2];
#pragma unroll
        for (int n = 0; n < 4; n++) w[n / 2][n % 2] = s.w_scale[g][own + n / 2 * 8 + lane % 4 * 2 + n % 2];
#pragma unroll
        for (int m = 0; m < STRIPS; m++) {
            if (m >= strips) break;
            u32 a[4];
            load_matrices(a, (const u16*)&s.x[16 * m + lane % 16][32 * g + lane / 16 * 16]);
            float4 x[2] = {s.x_scale[g][16 * m + lane / 4], s.x_scale[g][16 * m + lane / 4 + 8]};
            add_group<M>(sum[m][0], a, b[0], b[1], x, w[0]);
            add_group<U>(sum[m][1], a, b[2], b[3], x, w[1]);
        }
    }
}

// A tile's rows times rows of w from n on, SPAN of them, or Both half as many of each of w and u; none lies behind `last`.
template <class M, class U, bool Both>
DI void multiply(Sums& sum, Tile& tile, const u8* w, const u8* u, u64 n, u64 last, Activations x, int strips) {
#pragma unroll
    for (int m = 0; m < STRIPS; m++) {
#pragma unroll
        for (int j = 0; j < 8; j++) sum[m][j / 4][j % 4] = 0;
    }
    if (M::groups == 0) return;
    Weights<M, U, Both> weights(w, u, n, last);
    copy_rows<M::groups>(tile.stage[0], tile.from, x, 0);
    copy_commit();
    weights.read(0);
    weights.write(tile.stage[0], 0);
    copy_wait<0>();
    __syncthreads();
#pragma unroll 1
    for (int first = 0, at = 0; first < M::groups; first += GROUPS, at ^= 1) {
        int next = first + GROUPS;
        bool more = next < M::groups;
        if (more) {
            copy_rows<M::groups>(tile.stage[at ^ 1], tile.from, x, next);
            weights.read(next);
        }
        copy_commit();
        add_step<M, U>(sum, tile.stage[at], first, strips);
        if (more) weights.write(tile.stage[at ^ 1], next);
        copy_wait<0>();
        __syncthreads();
    }
}

// Where the products go: f32 at `out`, or rounded (common/round.cuh) to q and s, or both.
struct Outputs {
    float* out;
    i8* q;
    float4* s;
};

// Writes a tile's sums, of Outs a row, from output n on. Rounds: Outs is a multiple of 32.
template <int Outs, int Form, bool Rounds>
DI void leave(Tile& tile, const Sums& sum, int n, const float* bias, Outputs to) {
    const int eights = Form == GATED ? 1 : 2, wide = SPAN / 2 * eights / 32;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int m = 0; m < STRIPS; m++) {
#pragma unroll
        for (int j = 0; j < 2 * eights; j++) {
            float v[2];
#pragma unroll
            for (int c = 0; c < 2; c++) {
                v[c] = sum[m][j / 2][j % 2 * 2 + c];
                if (Form == GATED) v[c] = v[c] / (1 + expf(-v[c])) * sum[m][1][j * 2 + c];
            }
            float* at = &tile.out[16 * m + lane / 4 + j % 2 * 8][8 * (eights * warp + j / 2) + lane % 4 * 2];
            *(float2*)at = make_float2(v[0], v[1]);
        }
    }
    __syncthreads();
    for (int p = warp; p < TILE * wide; p += 8) {
        int t = p / wide, k = p % wide * 32, row = tile.to[t], of = n + k + lane;
        if (row < 0 || n + k >= Outs) continue;
        float v = tile.out[t][k + lane];
        if (Form == BIASED && of < Outs) v += bias[of];
        if (to.out && of < Outs) to.out[(u64)row * Outs + of] = v;
        if (!Rounds) continue;
        u64 group = (u64)row * Outs + n + k;
        round_warp(v, to.q + group, to.s + group / 32);
    }
}

// Block number `block` of the outputs that copy number `copy` of the matrix M has, Outs in all. Form: PLAIN; BIASED by `second`; GATED:
// silu(a) * b, b of the matrix U at `second`. Gated outputs of a block are SPAN / 2, others SPAN.
template <class M, class U, int Outs, int Form, bool Rounds>
DI void tile_part(Tile& tile, int block, int copy, const u8* w, const void* second, Activations x, int strips, Outputs to) {
    int n = block * (Form == GATED ? SPAN / 2 : SPAN);
    u64 first = (u64)copy * Outs;
    Sums sum;
    multiply<M, U, Form == GATED>(sum, tile, w, (const u8*)second, first + n, first + Outs - 1, x, strips);
    leave<Outs, Form, Rounds>(tile, sum, n, (const float*)second, to);
}
