// The parts of an attention that have keys, joined: sum over parts of exp(most_p - most) sum_p, divided by the sum of weights.
// Every eighth part is a share, shares are added in their order.
#include "common/parts.cuh"
#include "common/reduce.cuh"

#define SHARES 8

template <int Parts, int Value>
struct Merge {
    static_assert(Value % 2 == 0, "elements are read in twos");
    const float* sums;
    const float* weight;
    float total;
    int used;

    // What the parts of a head of row i, which has `count` keys, weigh; each warp of the block finds it, and the first writes it where
    // all read it behind the next barrier.
    DI void weigh(const float* part, int count, int i, int heads, int head, float (&weights)[Parts]) {
        const int each = (Parts + 31) / 32;
        int lane = threadIdx.x % 32, size = part_size(count, Parts);
        u64 row = (u64)i * heads + head;
        const float2* stats = (const float2*)part + row * Parts;
        sums = part + part_sums(heads, Parts) + row * Parts * Value;
        weight = weights;
        used = (count + size - 1) / size;
        float2 stat[each];
        float most = -INFINITY_F;
#pragma unroll
        for (int j = 0; j < each; j++) {
            stat[j] = lane + 32 * j < used ? stats[lane + 32 * j] : make_float2(-INFINITY_F, 0);
            most = fmaxf(most, stat[j].x);
        }
        most = warp_max(most);
        total = 0;
#pragma unroll
        for (int j = 0; j < each; j++) {
            float w = expf(stat[j].x - most);
            total += w * stat[j].y;
            if (threadIdx.x < 32 && lane + 32 * j < Parts) weights[lane + 32 * j] = w;
        }
        total = warp_sum(total);
    }

    // A share of element k, not yet divided.
    DI float share(int k, int n) const {
        float v = 0;
#pragma unroll 8
        for (int p = n; p < Parts; p += SHARES) v += p < used ? weight[p] * sums[p * Value + k] : 0;
        return v;
    }

    // Element `first` + threadIdx.x, by all of 256 threads together, a warp for each share.
    DI float at(int first) const {
        __shared__ __align__(8) float shares[SHARES][256];
        if (used <= SHARES) {
            // a part is a share
            float v = 0, sum[SHARES];
            int k = first + threadIdx.x;
#pragma unroll
            for (int p = 0; p < SHARES; p++) sum[p] = p < used && k < Value ? sums[p * Value + k] : 0;
#pragma unroll
            for (int p = 0; p < SHARES; p++) v += p < used ? weight[p] * sum[p] : 0;
            return v / total;
        }
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        float2 v[4];
#pragma unroll
        for (int j = 0; j < 4; j++) v[j] = make_float2(0, 0);
#pragma unroll 4
        for (int p = warp; p < used; p += SHARES) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int k = first + 64 * j + 2 * lane;
                float2 s = k < Value ? *(const float2*)(sums + p * Value + k) : make_float2(0, 0);
                v[j].x += weight[p] * s.x;
                v[j].y += weight[p] * s.y;
            }
        }
#pragma unroll
        for (int j = 0; j < 4; j++) *(float2*)&shares[warp][64 * j + 2 * lane] = v[j];
        __syncthreads();
        float all = shares[0][threadIdx.x];
#pragma unroll
        for (int n = 1; n < SHARES; n++) all += shares[n][threadIdx.x];
        __syncthreads();
        return all / total;
    }
};
