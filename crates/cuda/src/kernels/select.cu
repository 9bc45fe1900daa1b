// The KEEP best positions of each row by score: larger first, then lower position; written ascending, as numbers. Rows
// with no more than KEEP positions keep all; the rest of their list is -1.
// One block is enough for ALONE positions. Of more, each chooses the best of CHUNK, and the last one to be done the best of
// these, which lie in the order of their positions. done [MAX_ROWS] is zero before and after.
// score [rows][step_context] f32, out [rows][KEEP] f32; keys, places [rows][chunks][KEEP].
// Grid: chunks of CHUNK, 1, rows; 1024 threads. Bytes: five times the scores, by one SM for each chunk, from its L1 cache but for
// the first time. 128 k positions are 8 chunks and then one of 16 k.
#include "common/last.cuh"
#include "common/overlap.cuh"
#include "common/select.cuh"
#include "common/step.cuh"

static_assert(CHUNK >= KEEP, "all chunks but the last one leave KEEP");

extern "C" __global__ void __launch_bounds__(1024)
    run(const int* step, const float* score, u32* keys, int* places, int* done, float* out) {
    int i = blockIdx.z, first = blockIdx.x * CHUNK, count = i < step_rows(step) ? step_position(step, i) + 1 : 0;
    in_turn();
    if (first >= (count > ALONE ? count : min(count, 1))) return;
    score += i * step_context(step) + first;
    out += (u64)i * KEEP;
    if (count <= ALONE) {
        for (int n = count + threadIdx.x; n < KEEP; n += 1024) out[n] = -1;
        each_kept<1024>(count, KEEP, [=](int t) { return ordered(score[t]); }, [=](int n, int t) { out[n] = (float)t; });
        return;
    }
    keys += (u64)i * gridDim.x * KEEP;
    places += (u64)i * gridDim.x * KEEP;
    auto leave = [=](int n, int t) {
        keys[blockIdx.x * KEEP + n] = ordered(score[t]);
        places[blockIdx.x * KEEP + n] = first + t;
    };
    each_kept<1024>(min(CHUNK, count - first), KEEP, [=](int t) { return ordered(score[t]); }, leave);
    int chunks = (count + CHUNK - 1) / CHUNK;
    if (!last_block(done + i, chunks)) return;
    int left = (chunks - 1) * KEEP + min(KEEP, count - (chunks - 1) * CHUNK);
    each_kept<1024>(left, KEEP, [=](int t) { return keys[t]; }, [=](int n, int t) { out[n] = (float)places[t]; });
}
