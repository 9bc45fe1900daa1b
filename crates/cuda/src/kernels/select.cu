// The KEEP best positions of each row by score: larger first, then lower position; written ascending, as numbers. Rows
// with no more than KEEP positions keep all; the rest of their list is -1.
// Each block marks what lies above the bin of the last one that is kept (common/bins.cuh), and what lies in it. The last block to be
// done gathers the scores of the latter in order of their positions, finds the least that is kept, and writes all that is. Where
// more than LISTED lie in the bin, or all that lies beyond the others, that block looks at all scores instead, several times. The key
// of the least that is kept is left in `around` [rows], for the next step's bins.
// score [rows][step_context] f32, out [rows][KEEP] f32; marks [rows][step_context / 32] {bits above, bits in};
// bins [rows][BIN_COPIES][SCORE_BINS] as scores were counted, done [rows] blocks: all zero in the end, as before scores are made.
// Grid: parts of PART, 1, rows; 1024 threads. Bytes: the scores once, the bins once a block.
#include "common/bins.cuh"
#include "common/last.cuh"
#include "common/select.cuh"
#include "common/step.cuh"

#define PART 4096
#define EACH (PART / 1024)

#if SCORE_BINS != 4 * 1024 || KEEP >= 1 << 16 || LISTED >= 1 << 15
#error "a thread takes four bins, and two counts share a word"
#endif

// A bin, how many keys lie above it, and how many in it.
struct Bin {
    u32 at;
    int above, here;
};

// The bin of the KEEP-th key.
DI Bin bin_of_last(const u32* bins) {
    __shared__ Bin found;
    // from the last one down
    u32 first = SCORE_BINS - 4 * (threadIdx.x + 1);
    int own[4] = {0, 0, 0, 0};
#pragma unroll
    for (int c = 0; c < BIN_COPIES; c++) {
        uint4 four = *(const uint4*)(bins + c * SCORE_BINS + first);
        own[0] += four.x;
        own[1] += four.y;
        own[2] += four.z;
        own[3] += four.w;
    }
    int above = threads_before<1024>(own[0] + own[1] + own[2] + own[3]);
#pragma unroll
    for (int n = 3; n >= 0; n--) {
        if (above < KEEP && KEEP <= above + own[n]) found = {first + n, above, own[n]};
        above += own[n];
    }
    __syncthreads();
    return found;
}

// Marks this block's positions, which each warp has EACH times 32 of in a row, by bins that must be known first.
DI Bin mark(const float* score, const Binning& binning, const u32* bins, uint2* marks, int count) {
    int first = blockIdx.x * PART + threadIdx.x / 32 * 32 * EACH, lane = threadIdx.x % 32;
    u32 key[EACH];
    uint2 own = {0, 0};
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        int t = first + 32 * j + lane;
        key[j] = t < count ? ordered(score[t]) : 0;
    }
    Bin bin = bin_of_last(bins);
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        bool has = first + 32 * j + lane < count;
        u32 above = __ballot_sync(~0u, has && binning.of(key[j]) > bin.at);
        u32 in = __ballot_sync(~0u, has && binning.of(key[j]) == bin.at);
        if (lane == j) own = {above, in};
    }
    if (lane < EACH && first + 32 * lane < count) marks[first / 32 + lane] = own;
    return bin;
}

// Writes the positions that are marked as above, and the best of those in the bin, `keep` of `listed`, whose keys lie from `low` on,
// `bits` bits far; gives the least. A thread has some words in a row; what is in the bin has its place in `list` by its rank, so that
// of equals the first are known by a sum.
DI u32 write_marked(const float* score, const uint2* marks, int words, u32 low, int bits, int listed, int keep, float* out) {
    __shared__ u32 list[LISTED];
    int each = (words + 1023) / 1024, first = threadIdx.x * each, end = min(words, first + each), in = 0, above = 0;
    for (int w = first; w < end; w += 4) {
        uint2 m[4];
#pragma unroll
        for (int j = 0; j < 4; j++) m[j] = w + j < end ? marks[w + j] : uint2{0, 0};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            above += __popc(m[j].x);
            in += __popc(m[j].y);
        }
    }
    int begin = threads_before<1024>(in), n = begin;
    for (int w = first; w < end; w++) {
        for (u32 left = marks[w].y; left; left &= left - 1) list[n++] = 32 * w + __ffs((int)left) - 1;
    }
    __syncthreads();
    // a thread's own again, as many for each
    visit(0, listed, threadIdx.x, 1024, [=](int t) { return ordered(score[list[t]]); }, [=](int t, u32 k) {
        if (t < listed) list[t] = k;
    });
    __syncthreads();
    int equals = keep, same = 0;
    u32 least = least_within<1024>(listed, [=](int t) { return list[t]; }, low, bits, listed, equals);
    for (n = begin; n < begin + in; n++) {
        above += list[n] > least;
        same += list[n] == least;
    }
    u32 before = threads_before<1024>(above | same << 16);
    same = before >> 16;
    int to = (before & 0xffff) + min(same, equals);
    n = begin;
    for (int w = first; w < end; w++) {
        uint2 m = marks[w];
        for (u32 left = m.x | m.y; left; left &= left - 1) {
            int bit = __ffs((int)left) - 1;
            u32 key = m.y >> bit & 1 ? list[n++] : ~0u;
            if (key > least || (key == least && same++ < equals)) out[to++] = (float)(32 * w + bit);
        }
    }
    return least;
}

// Writes the KEEP best of all, by all scores; gives the least.
DI u32 write_best(const float* score, int count, float* out) {
    auto key = [=](int t) { return ordered(score[t]); };
    int equals;
    u32 least = least_kept<1024>(count, KEEP, key, equals);
    each_from<1024>(count, least, equals, key, [=](int n, int t) { out[n] = (float)t; });
    return least;
}

extern "C" __global__ void __launch_bounds__(1024)
    run(const int* step, const float* score, u32* bins, uint2* marks, int* done, u32* around, float* out) {
    int i = blockIdx.z, first = blockIdx.x * PART, count = i < step_rows(step) ? step_position(step, i) + 1 : 0;
    in_turn();
    if (first >= count) return;
    out += (u64)i * KEEP;
    if (count <= KEEP) {
        for (int n = threadIdx.x; first == 0 && n < KEEP; n += 1024) out[n] = n < count ? (float)n : -1.0f;
        return;
    }
    score += i * step_context(step);
    bins += (u64)i * BIN_COPIES * SCORE_BINS;
    marks += i * (step_context(step) / 32);
    Binning binning(around[i]);
    Bin bin = mark(score, binning, bins, marks, count);
    if (!last_block(done + i, (count + PART - 1) / PART)) return;
    // all have read them
    for (int b = threadIdx.x; b < BIN_COPIES * SCORE_BINS / 4; b += 1024) ((uint4*)bins)[b] = uint4{0, 0, 0, 0};
    u32 low = binning.low + (bin.at << binning.bits), least;
    if (binning.ends(bin.at) && bin.here <= LISTED) {
        least = write_marked(score, marks, (count + 31) / 32, low, (int)binning.bits, bin.here, KEEP - bin.above, out);
    } else {
        least = write_best(score, count, out);
    }
    if (threadIdx.x == 0) around[i] = least;
}
