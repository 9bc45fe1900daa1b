// Scores of the indexer in bins, counted by whoever makes them, so that who chooses knows at once in which bin the last one lies. Where
// nothing is known yet, a bin is all whose order begins with the same bits: sign, exponent and three more, so that it is 12 % wide or
// less. Once a row's last one is known, the bins of the same row of the next step lie around that, a thousandth wide and over a range
// of four to either side; the first and the last of them have all that lies beyond. What is chosen does not depend on it, but in a bin
// of few it is found sooner.
// A block counts its own in shared memory first: adding to one address of global memory goes one after the other, and most scores lie
// in few bins. Blocks still meet in those, so that a row's bins are there BIN_COPIES times, to be summed.
#include "common/types.cuh"

#define SCORE_BITS 20
#define SCORE_BINS (1 << (32 - SCORE_BITS))
#define FINE_BITS 13
#define BIN_COPIES 2

struct Binning {
    u32 low, bits;
    bool fine;

    // Around this key, or of all keys where there is none.
    explicit DI Binning(u32 around) : fine(around != 0) {
        const u32 half = (u32)SCORE_BINS / 2 << FINE_BITS;
        low = around > half ? around - half : 0;
        bits = fine ? FINE_BITS : SCORE_BITS;
    }

    DI u32 of(u32 key) const {
        u32 bin = key > low ? key - low >> bits : 0;
        return bin < SCORE_BINS ? bin : SCORE_BINS - 1;
    }

    // Does it have no more than its share?
    DI bool ends(u32 bin) const { return !fine || (bin > 0 && bin < SCORE_BINS - 1); }
};

// A block's own counts, which are zero once the block has met.
struct OwnBins {
    __align__(16) u32 count[SCORE_BINS];
};

template <int THREADS>
DI void clear_bins(OwnBins& own) {
    for (int b = threadIdx.x; b < SCORE_BINS / 4; b += THREADS) ((uint4*)own.count)[b] = uint4{0, 0, 0, 0};
}

DI void count_score(OwnBins& own, const Binning& bin, float score) { atomicAdd(&own.count[bin.of(ordered(score))], 1u); }

// The same where blocks are few, and shared memory is wanted for other things.
DI void count_score(u32* bins, const Binning& bin, int i, float score) {
    bins += ((u64)i * BIN_COPIES + blockIdx.x % BIN_COPIES) * SCORE_BINS;
    atomicAdd(&bins[bin.of(ordered(score))], 1u);
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
