// The best of many: the least key that is kept, found eight bits at a time, and the places of those kept in order.
#include "common/types.cuh"

// Copies of a histogram: keys are alike in their first digits, and equal ones wait for each other.
#define COPIES 8

// Calls use(t, key(t)) for every t from `first` to `end` that is `offset` above a multiple of `stride`; beyond `end` too,
// so that all lanes do it as often. Eight keys are asked for at once.
template <class Key, class Use>
DI void visit(int first, int end, int offset, int stride, Key key, Use use) {
    for (; first < end; first += 8 * stride) {
        u32 keys[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            int t = first + j * stride + offset;
            keys[j] = t < end ? key(t) : 0;
        }
#pragma unroll
        for (int j = 0; j < 8; j++) use(first + j * stride + offset, keys[j]);
    }
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
    __shared__ int copies[256 * COPIES], histogram[256];
    u32 least = 0, mask = 0;
    equals = keep; // of those that share the digits found so far
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int b = threadIdx.x; b < 256 * COPIES; b += THREADS) copies[b] = 0;
        __syncthreads();
        visit(0, count, threadIdx.x, THREADS, key, [&](int t, u32 k) {
            if (t < count && (k & mask) == least) atomicAdd(&copies[(k >> shift & 255) * COPIES + threadIdx.x % COPIES], 1);
        });
        __syncthreads();
        for (int b = threadIdx.x; b < 256; b += THREADS) {
            int sum = 0;
            for (int c = 0; c < COPIES; c++) sum += copies[b * COPIES + c];
            histogram[b] = sum;
        }
        __syncthreads();
        int above, digit = reach(histogram, equals, above);
        least |= (u32)digit << shift;
        mask |= 255u << shift;
        equals -= above;
    }
    return least;
}

// The sum of what the warps before this one have.
template <int THREADS>
DI int before(int own) {
    __shared__ int sums[THREADS / 32];
    int sum = 0;
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = own;
    __syncthreads();
    for (int w = 0; w < threadIdx.x / 32; w++) sum += sums[w];
    __syncthreads();
    return sum;
}

DI int warp_count(int own) {
    for (int o = 16; o > 0; o >>= 1) own += __shfl_xor_sync(~0u, own, o);
    return own;
}

// Calls write(n, t) for the n-th of the `keep` largest of `count` keys, in order of their places t: ties go to the lower
// place. Where there are no more than `keep`, for all. Every thread of the block calls it.
template <int THREADS, class Key, class Write>
DI void each_kept(int count, int keep, Key key, Write write) {
    if (count <= keep) {
        for (int t = threadIdx.x; t < count; t += THREADS) write(t, t);
        return;
    }
    int equals, larger = 0, same = 0, lane = threadIdx.x % 32;
    u32 least = least_kept<THREADS>(count, keep, key, equals), lower = (1u << lane) - 1;
    // a range of places for each warp
    int size = (count + THREADS - 1) / THREADS * 32, first = threadIdx.x / 32 * size, end = min(count, first + size);
    visit(first, end, lane, 32, key, [&](int t, u32 k) {
        larger += t < end && k > least;
        same += t < end && k == least;
    });
    larger = before<THREADS>(warp_count(larger));
    same = before<THREADS>(warp_count(same));
    visit(first, end, lane, 32, key, [&](int t, u32 k) {
        u32 above = __ballot_sync(~0u, t < end && k > least), equal = __ballot_sync(~0u, t < end && k == least);
        int left = max(equals - same, 0), taken = __popc(equal & lower);
        bool keeps = above >> lane & 1 || (equal >> lane & 1 && taken < left);
        if (keeps) write(larger + min(same, equals) + __popc(above & lower) + min(taken, left), t);
        larger += __popc(above);
        same += __popc(equal);
    });
}
