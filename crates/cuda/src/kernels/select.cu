// The KEEP best positions of each row by score: larger first, then lower position; written ascending, as numbers. Rows
// with no more than KEEP positions keep all; the rest of their list is -1.
// Each block marks what lies above the bin of the last one that is kept (common/bins.cuh), and lists what lies in it; the last block
// to be done marks the best of the list and writes all that is marked. A list of more than LISTED is too long, and that block
// then looks at all scores, several times.
// score [rows][step_context] f32, out [rows][KEEP] f32; marks [rows][step_context / 32] bits; keys, places [rows][LISTED];
// bins [rows][SCORE_BINS] as scores were counted, counts [rows] {listed, blocks done}: all zero in the end, as before scores are made.
// Grid: parts of PART, 1, rows; 1024 threads. Bytes: the scores once, the bins once a block.
#include "common/bins.cuh"
#include "common/last.cuh"
#include "common/select.cuh"
#include "common/step.cuh"

#define PART 4096
#define EACH (PART / 1024)
#define BINS_EACH (SCORE_BINS / 1024)

// A bin, and how many keys lie above it.
struct Bin {
    u32 at;
    int above;
};

// The bin of the KEEP-th key.
DI Bin bin_of_last(const u32* bins) {
    __shared__ Bin found;
    uint4 own[BINS_EACH / 4];
    // from the last one down
    u32 last = SCORE_BINS - 1 - threadIdx.x * BINS_EACH;
    int sum = 0;
#pragma unroll
    for (int b = 0; b < BINS_EACH / 4; b++) own[b] = ((const uint4*)(bins + last + 1 - BINS_EACH))[b];
#pragma unroll
    for (int b = 0; b < BINS_EACH / 4; b++) sum += own[b].x + own[b].y + own[b].z + own[b].w;
    int above = threads_before<1024>(sum);
    if (above < KEEP && KEEP <= above + sum) {
#pragma unroll
        for (int b = BINS_EACH / 4 - 1; b >= 0; b--) {
            u32 four[4] = {own[b].x, own[b].y, own[b].z, own[b].w};
#pragma unroll
            for (int n = 3; n >= 0; n--) {
                if (above < KEEP && KEEP <= above + (int)four[n]) found = {last + 1 - BINS_EACH + 4 * b + n, above};
                above += four[n];
            }
        }
    }
    __syncthreads();
    return found;
}

// Marks the `keep` best of a list, of equals those of lower places.
DI void mark_best(u32* marks, const u32* keys, const int* places, int listed, int keep) {
    __shared__ int same;
    auto mark = [=](int n) { atomicOr(&marks[(u32)places[n] / 32], 1u << places[n] % 32); };
    if (listed == keep) {
        for (int n = threadIdx.x; n < listed; n += 1024) mark(n);
        return;
    }
    int equals;
    u32 least = least_kept<1024>(listed, keep, [=](int n) { return keys[n]; }, equals), farthest = 0;
    if (threadIdx.x == 0) same = 0;
    __syncthreads();
    for (int n = threadIdx.x; n < listed; n += 1024) {
        if (keys[n] == least) atomicAdd(&same, 1);
    }
    __syncthreads();
    if (same > equals) {
        int one;
        farthest = least_kept<1024>(listed, equals, [=](int n) { return keys[n] == least ? ~(u32)places[n] : 0; }, one);
    }
    for (int n = threadIdx.x; n < listed; n += 1024) {
        if (keys[n] > least || (keys[n] == least && ~(u32)places[n] >= farthest)) mark(n);
    }
}

// The places that are marked, in their order.
DI void write_marked(const u32* marks, int words, float* out) {
    int each = (words + 1023) / 1024, first = threadIdx.x * each, end = min(words, first + each), own = 0;
    for (int w = first; w < end; w++) own += __popc(marks[w]);
    int n = threads_before<1024>(own);
    for (int w = first; w < end; w++) {
        for (u32 left = marks[w]; left; left &= left - 1) out[n++] = (float)(32 * w + __ffs((int)left) - 1);
    }
}

extern "C" __global__ void __launch_bounds__(1024)
    run(const int* step, const float* score, u32* bins, u32* marks, u32* keys, int* places, int2* counts, float* out) {
    int i = blockIdx.z, first = blockIdx.x * PART, count = i < step_rows(step) ? step_position(step, i) + 1 : 0;
    in_turn();
    if (first >= count) return;
    out += (u64)i * KEEP;
    if (count <= KEEP) {
        for (int n = threadIdx.x; first == 0 && n < KEEP; n += 1024) out[n] = n < count ? (float)n : -1.0f;
        return;
    }
    score += i * step_context(step);
    bins += (u64)i * SCORE_BINS;
    marks += i * (step_context(step) / 32);
    keys += (u64)i * LISTED;
    places += (u64)i * LISTED;
    counts += i;
    int own = first + threadIdx.x / 32 * 32 * EACH, lane = threadIdx.x % 32;
    u32 key[EACH];
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        int t = own + 32 * j + lane;
        key[j] = t < count ? ordered(score[t]) : 0;
    }
    Bin bin = bin_of_last(bins);
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        int t = own + 32 * j + lane;
        u32 more = __ballot_sync(~0u, t < count && score_bin(key[j]) > bin.at);
        u32 in = __ballot_sync(~0u, t < count && score_bin(key[j]) == bin.at);
        if (lane == 0 && t < count) marks[t / 32] = more;
        int n = 0;
        if (lane == 0 && in) n = atomicAdd(&counts->x, __popc(in));
        n = __shfl_sync(~0u, n, 0) + __popc(in & ((1u << lane) - 1));
        if (in >> lane & 1 && n < LISTED) {
            keys[n] = key[j];
            places[n] = t;
        }
    }
    if (!last_block(&counts->y, (count + PART - 1) / PART)) return;
    int listed = counts->x;
    if (listed <= LISTED) {
        mark_best(marks, keys, places, listed, KEEP - bin.above);
        __syncthreads();
        write_marked(marks, (count + 31) / 32, out);
    } else {
        each_kept<1024>(count, KEEP, [=](int t) { return ordered(score[t]); }, [=](int n, int t) { out[n] = (float)t; });
    }
    __syncthreads();
    if (threadIdx.x == 0) counts->x = 0;
    for (int b = threadIdx.x; b < SCORE_BINS / 4; b += 1024) ((uint4*)bins)[b] = uint4{0, 0, 0, 0};
}
