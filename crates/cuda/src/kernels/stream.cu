// A matrix times rows, its weights streamed through shared memory: out[i][n] = W[n] . x[i].
// W [OUTS] rows of ROW_BYTES in the file's format; x [rows][COLS] f32, or rounded (common/round.cuh); out [rows][OUTS] f32.
// The next kernel may begin while this one runs, and this one fetches weights before the last has ended.
// Grid: as many blocks as the device holds, which share the outputs; rows / TILE rounded up; 256 threads
// (common/rows.cuh). Bytes: W once for each TILE rows.
#include "common/rows.cuh"
#include "common/step.cuh"

extern "C" __global__ void __launch_bounds__(256, TILE <= 2 ? 2 : 1)
    run(const int* step, const void* x, const float4* s, const u8* w, float* out) {
    int top = blockIdx.y * TILE, count = step_rows(step);
    if (top >= count) return;
    // beyond the last row the last one is taken again, and what comes of it left
    auto input = [&](int t) { return input_row(x, s, min(top + t, count - 1)); };
    auto finish = [&](int n, bool in, int t, float v) {
        if (in && top + t < count) out[(u64)(top + t) * OUTS + n] = v;
    };
    each_row(w, rows_first(OUTS, blockIdx.x), rows_first(OUTS, blockIdx.x + 1), input, finish);
}
