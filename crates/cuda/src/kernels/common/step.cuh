// The step as it lies in memory (see step.rs): rows, wanted rows, most blocks of a sequence, nothing, then for each row its
// token, position, sequence and the row that the n-th answer is of, then the cache blocks of each sequence.
// MAX_ROWS: rows a step has room for. How long a sequence may be is no constant, so that one kernel is for every context.
#include "common/overlap.cuh"

#define CACHE_BLOCK 64
#define STEP_HEADER 4

DI int step_rows(const int* s) { return s[0]; }
DI int step_wanted(const int* s) { return s[1]; }
DI int step_token(const int* s, int i) { return s[STEP_HEADER + i]; }
DI int step_position(const int* s, int i) { return s[STEP_HEADER + MAX_ROWS + i]; }
DI int step_sequence(const int* s, int i) { return s[STEP_HEADER + 2 * MAX_ROWS + i]; }
DI int step_wanted_row(const int* s, int n) { return s[STEP_HEADER + 3 * MAX_ROWS + n]; }

// What most kernels begin with: how many rows there are. No kernel writes the step, so that it is read while earlier ones run.
DI int rows_in_turn(const int* step) {
    int rows = step_rows(step);
    in_turn();
    return rows;
}

// The cache blocks of row i's sequence.
DI const int* step_table(const int* s, int i) {
    return s + STEP_HEADER + 4 * MAX_ROWS + (u64)step_sequence(s, i) * s[2];
}

// Positions for which a row has room, from each row to the next.
DI u64 step_context(const int* s) { return (u64)s[2] * CACHE_BLOCK; }

// The cache line of a position.
DI u64 cache_line(const int* table, int position) {
    return (u64)table[position / CACHE_BLOCK] * CACHE_BLOCK + position % CACHE_BLOCK;
}
