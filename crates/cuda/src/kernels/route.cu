// Chooses experts from the router's logits, as ROUTING says (common/route.cuh).
// logits [rows][EXPERTS], bias [EXPERTS], out [rows][2 USED] f32. Grid: 1, 1, rows; 256 threads.
#include "common/overlap.cuh"
#include "common/route.cuh"
#include "common/step.cuh"

extern "C" __global__ void __launch_bounds__(256) run(const int* step, const float* logits, const float* bias, float* out) {
    int rows = rows_in_turn(step);
    u64 i = blockIdx.z;
    if (i >= rows) return;
    Routing<ROUTING>::choose<256>(logits + i * EXPERTS, bias, out + i * 2 * USED);
}
