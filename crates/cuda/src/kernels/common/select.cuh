// The best of many: the least key that is kept, found eight bits at a time, and the places of those kept in order.
#include "common/types.cuh"

// How many of the block's threads before this one have `is`, and of all.
template <int THREADS>
DI int before(int is, int& total) {
    __shared__ int sums[THREADS / 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 votes = __ballot_sync(~0u, is);
    if (lane == 0) sums[warp] = __popc(votes);
    __syncthreads();
    int sum = __popc(votes & ((1u << lane) - 1));
    total = 0;
    for (int w = 0; w < THREADS / 32; w++) {
        if (w < warp) sum += sums[w];
        total += sums[w];
    }
    __syncthreads();
    return sum;
}

// The bin, from the last one down, in which the count reaches `wanted`, and how many lie above it. For the first warp.
DI void reach(const int* histogram, int wanted, int* bin, int* above) {
    int lane = threadIdx.x, own = 0, sum;
#pragma unroll
    for (int b = 0; b < 8; b++) own += histogram[255 - 8 * lane - b];
    sum = own;
    for (int o = 1; o < 32; o <<= 1) {
        int other = __shfl_up_sync(~0u, sum, o);
        if (lane >= o) sum += other;
    }
    sum -= own;
    if (sum >= wanted || sum + own < wanted) return;
    int b = 255 - 8 * lane;
    while (sum + histogram[b] < wanted) sum += histogram[b--];
    *bin = b;
    *above = sum;
}

// Of `count` keys the least of the `keep` largest, and how many equal to it are kept. There are more than `keep`.
template <int THREADS, class Key>
DI u32 least_kept(int count, int keep, Key key, int& equals) {
    __shared__ int histogram[256], digit, above;
    u32 least = 0, mask = 0;
    equals = keep; // of those that share the digits found so far
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int b = threadIdx.x; b < 256; b += THREADS) histogram[b] = 0;
        __syncthreads();
        for (int base = 0; base < count; base += THREADS) {
            int t = base + threadIdx.x;
            u32 k = t < count ? key(t) : 0;
            int bin = t < count && (k & mask) == least ? (int)(k >> shift & 255) : 256;
            // scores are alike: one lane adds for all that share its bin
            u32 same = __match_any_sync(~0u, bin);
            if (bin < 256 && (same & ((1u << threadIdx.x % 32) - 1)) == 0) atomicAdd(&histogram[bin], __popc(same));
        }
        __syncthreads();
        if (threadIdx.x < 32) reach(histogram, equals, &digit, &above);
        __syncthreads();
        least |= (u32)digit << shift;
        mask |= 255u << shift;
        equals -= above;
    }
    return least;
}

// Calls write(n, t) for the n-th of the `keep` largest of `count` keys, in order of their places t: ties go to the lower
// place. Where there are no more than `keep`, for all. Every thread of the block calls it.
template <int THREADS, class Key, class Write>
DI void each_kept(int count, int keep, Key key, Write write) {
    if (count <= keep) {
        for (int t = threadIdx.x; t < count; t += THREADS) write(t, t);
        return;
    }
    int equals, written = 0, seen = 0;
    u32 least = least_kept<THREADS>(count, keep, key, equals);
    for (int base = 0; base < count; base += THREADS) {
        int t = base + threadIdx.x, found, kept;
        u32 k = t < count ? key(t) : 0;
        bool equal = t < count && k == least;
        int rank = seen + before<THREADS>(equal, found);
        bool keeps = t < count && (k > least || (equal && rank < equals));
        int place = written + before<THREADS>(keeps, kept);
        if (keeps) write(place, t);
        seen += found;
        written += kept;
    }
}
