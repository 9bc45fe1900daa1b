// Writes each row's WIDTH elements to its line of the cache, from element START of STRIDE on.
// x [rows][WIDTH] f32. Grid: WIDTH / 256 rounded up, 1, rows; 256 threads. Bytes: 6 or 8 a element.
#include "common/cache.cuh"
#include "common/overlap.cuh"

extern "C" __global__ void __launch_bounds__(256) run(const int* step, const float* x, Element* cache) {
    int rows = rows_in_turn(step);
    int i = blockIdx.z, k = blockIdx.x * 256 + threadIdx.x;
    if (i >= rows || k >= WIDTH) return;
    u64 line = cache_line(step_table(step, i), step_position(step, i));
    cache[line * STRIDE + START + k] = float_to_element(x[(u64)i * WIDTH + k]);
}
