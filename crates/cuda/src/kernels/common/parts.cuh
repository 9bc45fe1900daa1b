// How an attention's keys are dealt to parts: in tiles of 32, as evenly as tiles go, the first parts first. It is a function
// of a row's own number of keys, so that a row is summed the same way whatever runs beside it.
#include "common/step.cuh"

#define TILE_KEYS 32

// The keys of row i; `keep` is the most that a row has, or 0.
DI int attended(const int* step, int i, int keep) {
    int count = step_position(step, i) + 1;
    return keep ? min(count, keep) : count;
}

// Keys of a part, the last one's aside.
DI int part_size(int count, int parts) { return (count + parts * TILE_KEYS - 1) / (parts * TILE_KEYS) * TILE_KEYS; }

// Where the parts' sums lie, [rows][heads][parts][value], behind the largest score and the sum of weights of each.
DI u64 part_sums(int heads, int parts) { return 2 * (u64)MAX_ROWS * heads * parts; }
