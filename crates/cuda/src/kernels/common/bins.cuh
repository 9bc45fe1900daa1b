// Scores of the indexer by the leading bits of their order: sign, exponent and five bits more, so that a bin is 3 % wide or less.
// Whoever makes scores counts them, so that who chooses knows at once in which bin the last one lies.
#include "common/types.cuh"

#define SCORE_BINS (1 << 14)

DI u32 score_bin(u32 key) { return key >> 18; }

// Counts a score in its row's bins.
DI void count_score(u32* bins, float score) { atomicAdd(&bins[score_bin(ordered(score))], 1u); }

// Counts those that the lanes of a warp have, the first of them one. Those in its bin are counted at once, as all may lie in one.
DI void count_scores(u32* bins, float score, bool has) {
    u32 bin = score_bin(ordered(score)), first = __shfl_sync(~0u, bin, 0), alike = __ballot_sync(~0u, has && bin == first);
    if (threadIdx.x % 32 == 0) {
        atomicAdd(&bins[bin], (u32)__popc(alike));
    } else if (has && bin != first) {
        atomicAdd(&bins[bin], 1u);
    }
}
