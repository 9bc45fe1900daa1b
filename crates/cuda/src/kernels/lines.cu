// Runs of rows normed, rotated, written to the cache: LINES is a list of kinds of lines (common/line.cuh), `args` their
// addresses. HALF: are the cache's elements f16?
// Grid: the runs of all lines, 1, rows; 256 threads, a block for a run. Bytes: 6 or 8 an element.
#include "common/line.cuh"
#include "common/overlap.cuh"

extern "C" __global__ void __launch_bounds__(256) run(const int* step, const void* const* args) {
    let_later_begin();
    if (blockIdx.z >= step_rows(step)) return await_earlier();
    make_line<256, LINES>(blockIdx.x, step, blockIdx.z, args);
}
