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
// made beside the matrices (common/line.cuh). PUSH: the outputs are this rank's summand of a sum over devices, and go to the peers,
// whose inboxes `peers` lists, as they are made (common/push.cuh); of one part and one head.
// Grid: STREAM, all parts' Outs / Own, lines / HEADS; rows / TILE; HEADS; BLOCK threads, for Own rows of W and
// TILE rows of x. Bytes: W once for each TILE rows; prepared, x once a block.
#include "common/line.cuh"
#include "common/merge.cuh"
#include "common/overlap.cuh"
#if PUSH
#include "common/push.cuh"
#endif
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

// A row of x, and of how many keys' attention it is.
struct Asked {
    int row, keys;
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

// What making a row takes that earlier kernels have no part in: a norm's weights, if it is one.
template <class M>
struct Before {
#if PREPARE == NORMED
    Affine<M::cols, BLOCK, true> affine;
    explicit DI Before(const Source& from) : affine(from.norm, 0) {}
#else
    explicit DI Before(const Source&) {}
#endif
};

#if PREPARE != AS_IT_LIES
// Makes Some rows of x together, from the t-th on, rounded where the matrix wants that.
template <class M, int Some>
DI void make_some(const Source& from, const Before<M>& before, const Asked (&rows)[Some], int t) {
    const int each = (M::cols + BLOCK - 1) / BLOCK;
    float v[Some][each];
#if PREPARE == MERGED
    __shared__ float weights[Some][PARTIALS];
    Merge<PARTIALS, M::cols> merge[Some];
    // others may still be at the rows before
    if (TILE > Some) __syncthreads();
#pragma unroll
    for (int r = 0; r < Some; r++) merge[r].begin(from.x, rows[r].keys, rows[r].row, HEADS, blockIdx.z);
    Ahead<Some, each, TILE == 1 ? 4 : 0> ahead(merge);
#pragma unroll
    for (int r = 0; r < Some; r++) merge[r].weigh(weights[r]);
    __syncthreads();
    merged(merge, ahead, v);
#else
#pragma unroll
    for (int r = 0; r < Some; r++) {
#pragma unroll
        for (int e = 0; e < each; e++) {
            int k = threadIdx.x + BLOCK * e;
            u64 row = (u64)rows[r].row * HEADS + blockIdx.z;
            v[r][e] = k < M::cols ? streamed<ADDED>(from.x, from.second, from.third, row * X_UNIT + X_FROM + k) : 0;
        }
    }
#endif
#if PREPARE == NORMED
#pragma unroll
    for (int r = 0; r < Some; r++) check(v[r], from.spoiled + rows[r].row, *from.op);
    norm(v, EPS, before.affine);
#endif
    if constexpr (M::rounds) {
        round_groups(v, Made<M::cols, each, BLOCK, PREPARED>{from.room + t * PREPARED});
    } else {
#pragma unroll
        for (int r = 0; r < Some; r++) {
            float* to = (float*)(from.room + (t + r) * PREPARED);
#pragma unroll
            for (int e = 0; e < each; e++) {
                int k = threadIdx.x + BLOCK * e;
                if (k < M::cols) to[k] = v[r][e];
            }
        }
    }
}

// Makes all of them: few together, many one by one, for want of registers.
template <class M>
DI void make_rows(const Source& from, const Before<M>& before, const Asked (&rows)[TILE]) {
#if TILE <= 4
    make_some<M, TILE>(from, before, rows, 0);
#else
#pragma unroll
    for (int t = 0; t < TILE; t++) {
        Asked one[1] = {rows[t]};
        make_some<M, 1>(from, before, one, t);
    }
#endif
    __syncthreads();
}
#endif

DI int rows_in_all(const int* step) { return ANSWER ? step_wanted(step) : step_rows(step); }

// The n-th row that is asked for; of an attention's parts with the number of its keys.
DI Asked asked(const int* step, int n) {
    int row = ANSWER ? step_wanted_row(step, n) : n;
#if PREPARE == MERGED
    return {row, attended(step, row, KEEP)};
#else
    return {row, 0};
#endif
}

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
    // the step and the first weights are under way while earlier kernels run
    int count = rows_in_all(from.step);
    Asked rows[TILE];
    auto begin = [&]() { return side.fetch(w, (const u8*)second, (u64)head * Outs + first, own, pass); };
    bool any = begin();
    Before<M> before(from);
#if PUSH
    __shared__ uint4* inboxes[RANKS];
    find_inboxes(inboxes, (uint4* const*)peers);
#endif
#pragma unroll
    for (int t = 0; t < TILE; t++) {
        // beyond the last row the last one is taken again, and what comes of it left
        rows[t] = tile < count ? asked(from.step, TILE == 1 ? tile : min(tile + t, count - 1)) : Asked{tile, 0};
    }
    // the next kernel's weights would come in the way of these, so that it begins when these are all under way
    await_earlier();
    let_later_begin();
    if (tile >= count) return;
    typename M::Row input[TILE];
    typename U::Row others[TILE];
#if PREPARE != AS_IT_LIES
    make_rows<M>(from, before, rows);
#endif
#pragma unroll
    for (int t = 0; t < TILE; t++) {
        input[t] = row_of<M>(from, t, rows[t].row);
        if (Form == GATED) others[t] = row_of<U>(from, t, rows[t].row);
    }
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

extern "C" __global__ void __launch_bounds__(BLOCK, TILE > 4 ? 1 : BLOCKS_HELD)
    run(const int* step, const float* x, const i8* xq, const float4* xs, const u8* w0, const u8* w1, const u8* w2, const u8* w3,
        const void* v0, const void* v1, const void* v2, const void* v3, float* o0, float* o1, float* o2, float* o3, i8* q,
        float4* s, const float* second, const float* third, const float* weight, int* spoiled, const int* op, void* const* normed,
        const void* const* lines, void* const* peers) {
    int b = (int)blockIdx.x - STREAM, row = blockIdx.y * TILE, end = min(step_rows(step), row + TILE);
    __shared__ __align__(16) u8 room[TILE * PREPARED + 16];
    Source from = {step, x, second, third, xq, xs, weight, spoiled, op, room};
    if (b < 0) {
#if STREAM
        Stream of = {x, second, third, (float*)normed[0], (float*)normed[1], spoiled, op, (i8*)normed[2], (float4*)normed[3]};
        Affine<X_UNIT, BLOCK, true> affine(weight, 0);
        in_turn();
#pragma unroll 1
        for (int i = row; i < end; i++) {
            norm_row<X_UNIT, BLOCK, true, ADDED, NORM_ROUND, true>(of, affine, i, (u64)i * X_UNIT, EPS, 0);
        }
#endif
    } else if (b < END0) {
        matrix<PART0>(from, b, w0, v0, o0, q, s, peers);
#if PARTS > 1
    } else if (b < END1) {
        matrix<PART1>(from, b - END0, w1, v1, o1, q, s, peers);
#endif
#if PARTS > 2
    } else if (b < END2) {
        matrix<PART2>(from, b - END1, w2, v2, o2, q, s, peers);
#endif
#if PARTS > 3
    } else if (b < END3) {
        matrix<PART3>(from, b - END2, w3, v3, o3, q, s, peers);
#endif
#if HAS_LINES
    } else {
        let_later_begin();
#pragma unroll 1
        for (int i = row; i < end; i++) {
            make_line<BLOCK, LINES>((b - MATRICES) * HEADS + blockIdx.z, step, i, lines);
        }
        // where there was no row
        await_earlier();
#endif
    }
}
