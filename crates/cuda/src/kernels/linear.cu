// Matrices over the same rows, or one small matrix a head: out[i][h][n] = W_h[n] . x[i][h] (+ bias[n]).
// There are PARTS matrices, at most 4, each of a format of its own. PART0 to PART3 are what `matrix` takes of each, END0 to
// END3 the blocks up to its end; each has its w, a second pointer and its out.
// W [HEADS][Outs] rows in the file's format; out [rows][HEADS][Outs] f32, or rounded to q and s (common/round.cuh), or both.
// PREPARE, how the rows of x come to be: AS_IT_LIES: [rows][HEADS][cols] f32 at x, rounded at xq and xs. Otherwise made by
// each block, PREPARED bytes a row: COPIED from X_FROM on of runs of X_UNIT f32,
// one a row and head; NORMED, the same with what is ADDED (common/norm.cuh), through an RMS norm; MERGED from PARTIALS parts of
// an attention to at most KEEP keys, or any (common/merge.cuh).
// STREAM: one block more, in front of the others, writes what others read of the norm: the stream, and where `normed` has
// places for it the normed rows.
// ANSWER: only the rows that want an answer, one behind the other. LINES (where HAS_LINES): runs of other values that are
// made beside the matrices (common/line.cuh). CHOOSE: the last block to arrive chooses experts by the outputs of part 0
// (common/route.cuh). PUSH: the outputs are this rank's summand of a sum over devices, and go to the peers, whose inboxes `last`
// lists, as they are made (common/push.cuh); of one part and one head.
// Grid: STREAM, all parts' Outs / Own, lines / HEADS; rows / TILE; HEADS; BLOCK threads, for Own rows of W and
// TILE rows of x. Bytes: W once for each TILE rows; prepared, x once a block.
#include "common/last.cuh"
#include "common/line.cuh"
#include "common/merge.cuh"
#include "common/overlap.cuh"
#if PUSH
#include "common/push.cuh"
#endif
#include "common/route.cuh"
#include "common/side.cuh"

#define AS_IT_LIES 0
#define COPIED 1
#define NORMED 2
#define MERGED 3

#define PLAIN 0
#define BIASED 1
#define GATED 2

// All that the rows of x are made of.
struct Source {
    const int* step;
    const float *x, *second, *third;
    const i8* q;
    const float4* s;
    const float* norm;
    int* spoiled;
    const int* op;
    u8* room;
};

// Row i of x as a matrix takes it, where it was made in the t-th place.
template <class M>
DI typename M::Row row_of(const Source& from, int t, int i) {
#if PREPARE == AS_IT_LIES
    return M::row(M::rounds ? (const void*)from.q : from.x, from.s, (u64)i * HEADS + blockIdx.z);
#else
    u8* at = from.room + t * PREPARED;
    return M::row(at, (float4*)(at + M::cols), 0);
#endif
}

#if PREPARE != AS_IT_LIES
// Makes row i of x in the t-th place, rounded where the matrix wants that.
template <class M>
DI void make_row(const Source& from, int t, int i) {
    const int each = (M::cols + BLOCK - 1) / BLOCK;
    float v[each];
#if PREPARE == MERGED
    Merge<PARTIALS, M::cols> merge(from.x, from.step, i, HEADS, blockIdx.z, KEEP);
#else
    u64 row = (u64)i * HEADS + blockIdx.z;
#endif
#pragma unroll
    for (int e = 0; e < each; e++) {
#if PREPARE == MERGED
        v[e] = merge.at(BLOCK * e);
#else
        int k = threadIdx.x + BLOCK * e;
        v[e] = k < M::cols ? streamed<ADDED>(from.x, from.second, from.third, row * X_UNIT + X_FROM + k) : 0;
#endif
    }
#if PREPARE == NORMED
    check(v, from.spoiled + i, *from.op);
    norm<M::cols, BLOCK, true>(v, EPS, from.norm, 0);
#endif
    u8* to = from.room + t * PREPARED;
    float4* scales = (float4*)(to + M::cols);
#pragma unroll
    for (int e = 0; e < each; e++) {
        int k = threadIdx.x + BLOCK * e, first = k - threadIdx.x % 32;
        if (k >= M::cols) break;
        if (M::rounds) {
            round_warp(v[e], (i8*)to + first, scales + first / 32);
        } else {
            ((float*)to)[k] = v[e];
        }
    }
}
#endif

DI int rows_in_all(const int* step) { return ANSWER ? step_wanted(step) : step_rows(step); }
DI int row_at(const int* step, int n) { return ANSWER ? step_wanted_row(step, n) : n; }

// Own rows of M, from Own x block on, of Outs, times a tile of x. Form: PLAIN; BIASED by `second`; GATED: silu(a) * b, b of the
// matrix U at `second`. Rounds: to q and s.
template <class M, class U, int Outs, int Own, int Form, bool Rounds>
DI void matrix(const Source& from, int block, const u8* w, const void* second, float* out, i8* q, float4* s, void* const* peers) {
#if PREPARE != AS_IT_LIES
    static_assert(M::rounds == U::rounds, "both take the same rows");
#endif
    typedef Side<M, U, Form == GATED, Own, BLOCK / 32, TILE> S;
    __shared__ typename S::Sums sums;
    S side(threadIdx.x / 32);
    int head = blockIdx.z, tile = blockIdx.y * TILE, first = block * Own, own = min(Own, Outs - first), pass = 0;
    // weights are under way before anything of the step is known
    auto begin = [&]() { return side.fetch(w, (const u8*)second, (u64)head * Outs + first, own, pass); };
    bool any = begin();
#if PUSH
    __shared__ uint4* inboxes[RANKS];
    find_inboxes(inboxes, (uint4* const*)peers);
#endif
    // the next kernel's weights would come in the way of these, so that it begins when these are all under way
    await_earlier();
    let_later_begin();
    int count = rows_in_all(from.step);
    if (tile >= count) return;
    typename M::Row input[TILE];
    typename U::Row others[TILE];
#pragma unroll
    for (int t = 0; t < TILE; t++) {
        // beyond the last row the last one is taken again, and what comes of it left
        int i = row_at(from.step, min(tile + t, count - 1));
#if PREPARE != AS_IT_LIES
        make_row<M>(from, t, i);
#endif
        input[t] = row_of<M>(from, t, i);
        if (Form == GATED) others[t] = row_of<U>(from, t, i);
    }
    if (PREPARE != AS_IT_LIES) __syncthreads();
    for (; any; pass += S::depth, any = begin()) side.dots(input, others, sums);
    __syncthreads();
    auto made = [&](int t, int r) {
        float2 sum = S::sum(sums, t, r);
        float v = Form == GATED ? sum.x / (1 + expf(-sum.x)) * sum.y : sum.x;
        if (Form == BIASED) v += ((const float*)second)[first + r];
        return v;
    };
#if PUSH
    push_made<Outs, Own>(inboxes, out, tile, min(TILE, count - tile), first, own, made);
#else
    for (int k = threadIdx.x; k < TILE * Own; k += BLOCK) {
        int t = k / Own, r = k % Own;
        if (tile + t >= count || r >= own) continue;
        float v = made(t, r);
        u64 to = ((u64)(tile + t) * HEADS + head) * Outs + first + r, group = to - k % 32;
        // whole warps are here, as rows that are rounded are dealt by 32
        if (Rounds) round_warp(v, q + group, s + group / 32);
        if (out) out[to] = v;
    }
#endif
}

extern "C" __global__ void __launch_bounds__(BLOCK, TILE == 1 ? BLOCKS_HELD : 1)
    run(const int* step, const float* x, const i8* xq, const float4* xs, const u8* w0, const u8* w1, const u8* w2, const u8* w3,
        const void* v0, const void* v1, const void* v2, const void* v3, float* o0, float* o1, float* o2, float* o3, i8* q,
        float4* s, const float* second, const float* third, const float* weight, int* spoiled, const int* op, void* const* normed,
        const void* const* lines, void* const* last) {
    __shared__ __align__(16) u8 room[TILE * PREPARED + 16];
    Source from = {step, x, second, third, xq, xs, weight, spoiled, op, room};
    int b = (int)blockIdx.x - STREAM;
    if (b < 0) {
#if STREAM
        in_turn();
        Stream of = {x, second, third, (float*)normed[0], weight, 0, (float*)normed[1], spoiled, op, (i8*)normed[2], (float4*)normed[3]};
#pragma unroll 1
        for (int i = blockIdx.y * TILE; i < min(step_rows(step), (int)(blockIdx.y + 1) * TILE); i++) {
            norm_row<X_UNIT, BLOCK, true, ADDED, NORM_ROUND, true>(of, i, (u64)i * X_UNIT, EPS, 0);
        }
#endif
    } else if (b < END0) {
        matrix<PART0>(from, b, w0, v0, o0, q, s, last);
#if PARTS > 1
    } else if (b < END1) {
        matrix<PART1>(from, b - END0, w1, v1, o1, q, s, last);
#endif
#if PARTS > 2
    } else if (b < END2) {
        matrix<PART2>(from, b - END1, w2, v2, o2, q, s, last);
#endif
#if PARTS > 3
    } else if (b < END3) {
        matrix<PART3>(from, b - END2, w3, v3, o3, q, s, last);
#endif
#if HAS_LINES
    } else {
        in_turn();
#pragma unroll 1
        for (int i = blockIdx.y * TILE; i < min(step_rows(step), (int)(blockIdx.y + 1) * TILE); i++) {
            make_line<BLOCK, LINES>((b - MATRICES) * HEADS + blockIdx.z, step, i, lines);
        }
#endif
    }
#if CHOOSE
    if (b < 0 || b >= END0 || !last_block((int*)last[0] + blockIdx.y, END0)) return;
#pragma unroll 1
    for (int i = blockIdx.y * TILE; i < min(step_rows(step), (int)(blockIdx.y + 1) * TILE); i++) {
        u64 experts = EXPERTS, chosen = 2 * USED;
        Routing<ROUTING>::choose<BLOCK>(o0 + i * experts, (const float*)last[1], (float*)last[2] + i * chosen);
    }
#endif
}
