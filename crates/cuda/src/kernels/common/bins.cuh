// Scores of the indexer by the leading bits of their order: sign, exponent and five bits more, so that a bin is 3 % wide or less.
// Whoever makes scores counts them, so that who chooses knows at once in which bin the last one lies.
#include "common/types.cuh"

#define SCORE_BINS (1 << 14)

DI u32 score_bin(u32 key) { return key >> 18; }

// Counts a score in its row's bins.
DI void count_score(u32* bins, float score) { atomicAdd(&bins[score_bin(ordered(score))], 1u); }
