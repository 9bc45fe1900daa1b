// Scores of the indexer by the leading bits of their order: sign, exponent and three bits more, so that a bin is 12 % wide or less.
// Whoever makes scores counts them, so that who chooses knows at once in which bin the last one lies. A block counts its own in
// shared memory first: adding to one address of global memory goes one after the other, and most scores lie in few bins. Blocks
// still meet in those, so that a row's bins are there BIN_COPIES times, to be summed.
#include "common/types.cuh"

#define SCORE_BITS 20
#define SCORE_BINS (1 << (32 - SCORE_BITS))
#define BIN_COPIES 2

DI u32 score_bin(u32 key) { return key >> SCORE_BITS; }

// A block's own counts, which are zero once the block has met.
struct OwnBins {
    __align__(16) u32 count[SCORE_BINS];
};

template <int THREADS>
DI void clear_bins(OwnBins& own) {
    for (int b = threadIdx.x; b < SCORE_BINS / 4; b += THREADS) ((uint4*)own.count)[b] = uint4{0, 0, 0, 0};
}

DI void count_score(OwnBins& own, float score) { atomicAdd(&own.count[score_bin(ordered(score))], 1u); }

// The same where blocks are few, and shared memory is wanted for other things.
DI void count_score(u32* bins, int i, float score) {
    bins += ((u64)i * BIN_COPIES + blockIdx.x % BIN_COPIES) * SCORE_BINS;
    atomicAdd(&bins[score_bin(ordered(score))], 1u);
}

// Adds a block's counts to those of row i, by all its threads. Neighbours go together, as bins that are hot lie side by side.
template <int THREADS>
DI void add_bins(const OwnBins& own, u32* bins, int i) {
    bins += ((u64)i * BIN_COPIES + blockIdx.x % BIN_COPIES) * SCORE_BINS;
    __syncthreads();
#pragma unroll
    for (int b = 0; b < SCORE_BINS; b += THREADS) {
        u32 n = own.count[b + threadIdx.x];
        if (n) atomicAdd(&bins[b + threadIdx.x], n);
    }
}
