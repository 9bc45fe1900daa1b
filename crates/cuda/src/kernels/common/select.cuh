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

// The bin, from the last one down, in which the count reaches `wanted`, and how many lie above it. Every warp finds it.
DI int reach(const int* histogram, int wanted, int& above) {
    int lane = threadIdx.x % 32, own = 0, sum, found = -1, before = 0;
#pragma unroll
    for (int b = 0; b < 8; b++) own += histogram[255 - 8 * lane - b];
    sum = own;
    for (int o = 1; o < 32; o <<= 1) {
        int other = __shfl_up_sync(~0u, sum, o);
        sum += lane >= o ? other : 0;
    }
    sum -= own;
#pragma unroll
    for (int b = 0; b < 8; b++) {
        int here = histogram[255 - 8 * lane - b];
        bool reaches = sum < wanted && wanted <= sum + here;
        found = reaches ? 255 - 8 * lane - b : found;
        before = reaches ? sum : before;
        sum += here;
    }
    int with = 31 - __clz((int)__ballot_sync(~0u, found >= 0));
    above = __shfl_sync(~0u, before, with);
    return __shfl_sync(~0u, found, with);
}

// Of `count` keys the least of the `keep` largest, and how many equal to it are kept. There are more than `keep`.
template <int THREADS, class Key>
DI u32 least_kept(int count, int keep, Key key, int& equals) {
    __shared__ int histogram[256];
    u32 least = 0, mask = 0;
    equals = keep; // of those that share the digits found so far
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int b = threadIdx.x; b < 256; b += THREADS) histogram[b] = 0;
        __syncthreads();
        for (int t = threadIdx.x; t < count; t += THREADS) {
            u32 k = key(t);
            if ((k & mask) == least) atomicAdd(&histogram[k >> shift & 255], 1);
        }
        __syncthreads();
        int above, digit = reach(histogram, equals, above);
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
