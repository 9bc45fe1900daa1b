// Chooses experts from the router's logits: Used ids, ascending, then their weights. Sigmoid or softmax over all; the bias,
// where Biased, takes part in the choice only; Groups > 1: only the best Kept groups stay, by their best expert or, with
// BestTwo, the sum of their best two. Ties go to the lower id. Normalize: weights are divided by their sum, at least 2^-14;
// then x Scale, the bits of a float.
#include "common/reduce.cuh"

#define LEAST_SUM 6.103515625e-5f

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

template <int Experts, int Used, bool Sigmoid, bool Biased, bool Normalize, int Groups, int Kept, bool BestTwo, u32 Scale>
struct Routing {
    static DI float group_score(const float* v) {
        float first = -INFINITY_F, second = -INFINITY_F;
        for (int e = 0; e < (Experts / Groups); e++) {
            if (v[e] > first) {
                second = first;
                first = v[e];
            } else if (v[e] > second) {
                second = v[e];
            }
        }
        return BestTwo ? first + second : first;
    }

    // The Used best of all, ascending, by one warp, of which each lane holds every 32nd.
    static DI void best(const float* score, int* chosen) {
        const int each = (Experts + 31) / 32;
        int lane = threadIdx.x % 32, before = 0;
        u32 key[each], free = 0, taken = 0;
#pragma unroll
        for (int i = 0; i < each; i++) {
            bool is = lane + 32 * i < Experts;
            key[i] = is ? ordered(score[lane + 32 * i]) : 0;
            free |= (u32)is << i;
        }
        for (int n = 0; n < Used; n++) {
            u32 most = 0, first = ~0u;
#pragma unroll
            for (int i = 0; i < each; i++) most = free >> i & 1 && key[i] > most ? key[i] : most;
            most = __reduce_max_sync(~0u, most);
#pragma unroll
            for (int i = each - 1; i >= 0; i--) first = free >> i & 1 && key[i] == most ? lane + 32 * i : first;
            first = __reduce_min_sync(~0u, first);
            u32 own = first % 32 == lane ? 1u << first / 32 : 0;
            free &= ~own;
            taken |= own;
        }
#pragma unroll
        for (int i = 0; i < each; i++) {
            u32 all = __ballot_sync(~0u, taken >> i & 1);
            if (taken >> i & 1) chosen[before + __popc(all & (1u << lane) - 1)] = lane + 32 * i;
            before += __popc(all);
        }
        __syncwarp();
    }

    // For one row, by all Threads of a block: logits and bias [Experts], out [2 Used] f32.
    template <int Threads>
    static DI void choose(const float* logits, const float* bias, float* out) {
        int tid = threadIdx.x;
        __shared__ float p[Experts], score[Experts], groups[Groups];
        __shared__ u8 stays[Groups];
        __shared__ int chosen[Used];
        float most = -INFINITY_F, sum = 0;
        // the first warp may still be at the row before
        __syncthreads();
        if (!Sigmoid) {
            for (int e = tid; e < Experts; e += Threads) most = fmaxf(most, logits[e]);
            most = block_max<Threads>(most);
        }
        for (int e = tid; e < Experts; e += Threads) {
            p[e] = Sigmoid ? 1 / (1 + expf(-logits[e])) : expf(logits[e] - most);
            sum += p[e];
        }
        for (int g = tid; g < Groups; g += Threads) stays[g] = 0;
        if (!Sigmoid) sum = block_sum<Threads>(sum);
        for (int e = tid; e < Experts; e += Threads) {
            if (!Sigmoid) p[e] /= sum;
            score[e] = Biased ? p[e] + bias[e] : p[e];
        }
        __syncthreads();
        if (Groups > 1) {
            for (int g = tid; g < Groups; g += Threads) groups[g] = group_score(score + g * (Experts / Groups));
            __syncthreads();
            if (tid < 32) {
                for (int n = 0; n < Kept; n++) {
                    int g = largest(groups, stays, Groups);
                    __syncwarp();
                    if (tid == 0) stays[g] = 1;
                    __syncwarp();
                }
            }
            __syncthreads();
            for (int e = tid; e < Experts; e += Threads) {
                if (!stays[e / (Experts / Groups)]) score[e] = -INFINITY_F;
            }
            __syncthreads();
        }
        if (tid >= 32) return;
        best(score, chosen);
        float total = 0;
        for (int n = 0; n < Used; n++) total += p[chosen[n]];
        float divisor = Normalize ? fmaxf(total, LEAST_SUM) : 1;
        for (int n = tid; n < Used; n += 32) {
            out[n] = (float)chosen[n];
            out[Used + n] = p[chosen[n]] / divisor * __uint_as_float(Scale);
        }
    }
};
