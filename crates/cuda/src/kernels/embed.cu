// Rows of the vocabulary, decoded: of row i of the step out[i], zeros if this part of the vocabulary has not its token.
// w [ROWS] rows of ROW_BYTES in the format QUANT, the first of them of token FIRST -> out [rows][WIDTH] f32.
// Grid: enough for a thread each 32 elements, or each element in types without blocks; 1; rows; 128 threads.
// Bytes: 4 an element and the weight's.
#include "common/overlap.cuh"
#include "common/quant.cuh"
#include "common/step.cuh"

extern "C" __global__ void __launch_bounds__(128) run(const int* step, const u8* w, float* out) {
    int rows = rows_in_turn(step);
    int i = blockIdx.z, at = blockIdx.x * 128 + threadIdx.x;
    if (i >= rows) return;
    u32 n = (u32)(step_token(step, i) - FIRST);
    bool held = n < ROWS;
    const u8* row = w + (u64)n * ROW_BYTES;
    out += (u64)i * WIDTH;
#if QUANT_PLAIN
    if (at < WIDTH) out[at] = held ? plain_at(row, at) : 0;
#else
    if (at >= WIDTH / 32) return;
    Codes c = {};
    if (held) codes(row, at, c);
    float4* values = (float4*)out + 8 * at;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float s = c.s[j / 4], m = c.m[j / 4];
        int q = c.q[j];
        values[j] = make_float4(s * (float)(i8)q + m, s * (float)(i8)(q >> 8) + m, s * (float)(i8)(q >> 16) + m, s * (float)(q >> 24) + m);
    }
#endif
}
