// Chooses experts from the router's logits: USED ids, ascending, then their weights.
// logits [rows][EXPERTS], bias [EXPERTS], out [rows][2 USED] f32. SIGMOID or softmax over all; the bias, where BIAS, takes
// part in the choice only; GROUPS > 1: only the best KEPT groups stay, by their best expert or, with BEST_TWO, the sum of
// their best two. Ties go to the lower id. NORMALIZE: weights are divided by their sum, at least 2^-14; then x SCALE.
// Grid: 1, 1, rows; 256 threads.
#include "common/reduce.cuh"
#include "common/step.cuh"

#define LEAST_SUM 6.103515625e-5f
#define GROUP_SIZE (EXPERTS / GROUPS)

// The place of the largest of n that is not taken, by order of floats, ties by lower place; all threads of the warp get it.
DI int largest(const float* v, const u8* taken, int n) {
    u64 best = 0;
    for (int e = threadIdx.x; e < n; e += 32) {
        u64 key = taken[e] ? 0 : (u64)ordered(v[e]) << 32 | (u32)(0xffffffffu - e);
        if (key > best) best = key;
    }
    for (int o = 16; o > 0; o >>= 1) {
        u64 other = __shfl_xor_sync(~0u, best, o);
        if (other > best) best = other;
    }
    return (int)(0xffffffffu - (u32)best);
}

DI float group_score(const float* v) {
    float first = -INFINITY_F, second = -INFINITY_F;
    for (int e = 0; e < GROUP_SIZE; e++) {
        if (v[e] > first) {
            second = first;
            first = v[e];
        } else if (v[e] > second) {
            second = v[e];
        }
    }
    return BEST_TWO ? first + second : first;
}

extern "C" __global__ void __launch_bounds__(256) run(const int* step, const float* logits, const float* bias, float* out) {
    int i = blockIdx.z, tid = threadIdx.x;
    if (i >= step_rows(step)) return;
    logits += (u64)i * EXPERTS;
    out += (u64)i * 2 * USED;
    __shared__ float p[EXPERTS], score[EXPERTS], groups[GROUPS];
    __shared__ u8 taken[EXPERTS];
    __shared__ u8 stays[GROUPS];
    __shared__ int chosen[USED];
    float most = -INFINITY_F, sum = 0;
    for (int e = tid; e < EXPERTS; e += 256) most = fmaxf(most, logits[e]);
    most = block_max<256>(most);
    for (int e = tid; e < EXPERTS; e += 256) {
        p[e] = SIGMOID ? 1 / (1 + expf(-logits[e])) : expf(logits[e] - most);
        sum += p[e];
        taken[e] = 0;
    }
    for (int g = tid; g < GROUPS; g += 256) stays[g] = 0;
    sum = block_sum<256>(sum);
    for (int e = tid; e < EXPERTS; e += 256) {
        if (!SIGMOID) p[e] /= sum;
        score[e] = BIAS ? p[e] + bias[e] : p[e];
    }
    __syncthreads();
    if (GROUPS > 1) {
        for (int g = tid; g < GROUPS; g += 256) groups[g] = group_score(score + g * GROUP_SIZE);
        __syncthreads();
        if (tid < 32) {
            for (int n = 0; n < KEPT; n++) {
                int g = largest(groups, stays, GROUPS);
                __syncwarp();
                if (tid == 0) stays[g] = 1;
                __syncwarp();
            }
        }
        __syncthreads();
        for (int e = tid; e < EXPERTS; e += 256) {
            if (!stays[e / GROUP_SIZE]) score[e] = -INFINITY_F;
        }
        __syncthreads();
    }
    if (tid >= 32) return;
    for (int n = 0; n < USED; n++) {
        int e = largest(score, taken, EXPERTS);
        __syncwarp();
        if (tid == 0) {
            taken[e] = 1;
            int at = n;
            for (; at > 0 && chosen[at - 1] > e; at--) chosen[at] = chosen[at - 1];
            chosen[at] = e;
        }
        __syncwarp();
    }
    float total = 0;
    for (int n = 0; n < USED; n++) total += p[chosen[n]];
    float divisor = NORMALIZE ? fmaxf(total, LEAST_SUM) : 1;
    for (int n = tid; n < USED; n += 32) {
        out[n] = (float)chosen[n];
        out[USED + n] = p[chosen[n]] / divisor * SCALE;
    }
}
