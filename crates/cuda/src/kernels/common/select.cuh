// The best of many: the least key that is kept, and the places of those kept in order.
#include "common/types.cuh"

// Bins of a histogram, and keys that are few enough to be compared with each other.
#define BITS 11
#define BINS (1 << BITS)
#define FEW 256

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

// The sum of what lanes before this one have; `all`: of all.
DI int lanes_before(int own, int& all) {
    int lane = threadIdx.x % 32, sum = own;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
        int other = __shfl_up_sync(~0u, sum, o);
        sum += lane >= o ? other : 0;
    }
    all = __shfl_sync(~0u, sum, 31);
    return sum - own;
}

// The sum of what the threads before this one have.
template <int THREADS>
DI int threads_before(int own) {
    __shared__ int sums[32];
    int lane = threadIdx.x % 32, all, before = lanes_before(own, all);
    if (lane == 31) sums[threadIdx.x / 32] = all;
    __syncthreads();
    before += __reduce_add_sync(~0u, lane < threadIdx.x / 32 ? sums[lane] : 0);
    __syncthreads();
    return before;
}

// The smallest and the largest of `count` keys.
template <int THREADS, class Key>
DI void range(int count, Key key, u32& low, u32& high) {
    __shared__ u32 lows[32], highs[32];
    int lane = threadIdx.x % 32;
    low = ~0u;
    high = 0;
    visit(0, count, threadIdx.x, THREADS, key, [&](int t, u32 k) {
        low = t < count && k < low ? k : low;
        high = t < count && k > high ? k : high;
    });
    low = __reduce_min_sync(~0u, low);
    high = __reduce_max_sync(~0u, high);
    if (lane == 0) {
        lows[threadIdx.x / 32] = low;
        highs[threadIdx.x / 32] = high;
    }
    __syncthreads();
    low = __reduce_min_sync(~0u, lane < THREADS / 32 ? lows[lane] : ~0u);
    high = __reduce_max_sync(~0u, lane < THREADS / 32 ? highs[lane] : 0);
}

// What a block looks for the least key with; there is one, whatever the keys.
struct Search {
    int histogram[BINS], found[3], listed;
    u32 list[FEW], least;
};

DI Search& search() {
    __shared__ Search s;
    return s;
}

// Of the `left` of `count` keys that lie from `low` on, `bits` bits far, the least of the `equals` largest; in the end, `equals` is how
// many of those equal to it are kept. The range is cut into BINS, and the bin that it lies in again, until few keys are in it.
template <int THREADS, class Key>
DI u32 least_within(int count, Key key, u32 low, int bits, int left, int& equals) {
    Search& s = search();
    const int each = BINS / THREADS;
    auto inside = [&](int t, u32 k) { return t < count && k >= low && (bits > 31 || (k - low) >> bits == 0); };
    while (left > FEW && bits > 0) {
        int shift = bits > BITS ? bits - BITS : 0, own = 0;
        for (int b = threadIdx.x; b < BINS; b += THREADS) s.histogram[b] = 0;
        __syncthreads();
        visit(0, count, threadIdx.x, THREADS, key, [&](int t, u32 k) {
            if (inside(t, k)) atomicAdd(&s.histogram[k - low >> shift], 1);
        });
        __syncthreads();
        // from the last bin down
        int last = BINS - 1 - threadIdx.x * each;
#pragma unroll
        for (int b = 0; b < each; b++) own += s.histogram[last - b];
        int above = threads_before<THREADS>(own);
#pragma unroll
        for (int b = 0; b < each; b++) {
            int here = s.histogram[last - b];
            if (above < equals && equals <= above + here) {
                s.found[0] = last - b;
                s.found[1] = above;
                s.found[2] = here;
            }
            above += here;
        }
        __syncthreads();
        low += (u32)s.found[0] << shift;
        equals -= s.found[1];
        left = s.found[2];
        bits = shift;
    }
    if (bits == 0) return low;
    if (threadIdx.x == 0) s.listed = 0;
    __syncthreads();
    visit(0, count, threadIdx.x, THREADS, key, [&](int t, u32 k) {
        if (inside(t, k)) s.list[atomicAdd(&s.listed, 1)] = k;
    });
    __syncthreads();
    for (int n = threadIdx.x; n < left; n += THREADS) {
        int larger = 0, same = 0;
        for (int m = 0; m < left; m++) {
            larger += s.list[m] > s.list[n];
            same += s.list[m] == s.list[n];
        }
        if (larger < equals && equals <= larger + same) {
            s.least = s.list[n];
            s.found[0] = larger;
        }
    }
    __syncthreads();
    equals -= s.found[0];
    return s.least;
}

// Of `count` keys the least of the `keep` largest, and how many equal to it are kept.
template <int THREADS, class Key>
DI u32 least_kept(int count, int keep, Key key, int& equals) {
    u32 low, high;
    range<THREADS>(count, key, low, high);
    equals = keep;
    return least_within<THREADS>(count, key, low, 32 - __clz((int)(high - low)), count, equals);
}

// Calls write(n, t) for the n-th of those of `count` keys that are larger than `least`, and of the first `equals` that equal it, in
// order of their places t. Every thread of the block calls it.
template <int THREADS, class Key, class Write>
DI void each_from(int count, u32 least, int equals, Key key, Write write) {
    int larger = 0, same = 0, lane = threadIdx.x % 32;
    u32 lower = (1u << lane) - 1;
    // a range of places for each warp
    int size = (count + THREADS - 1) / THREADS * 32, first = threadIdx.x / 32 * size, end = min(count, first + size);
    visit(first, end, lane, 32, key, [&](int t, u32 k) {
        larger += t < end && k > least;
        same += t < end && k == least;
    });
    // all lanes of a warp begin where the warp does
    larger = __shfl_sync(~0u, threads_before<THREADS>(larger), 0);
    same = __shfl_sync(~0u, threads_before<THREADS>(same), 0);
    visit(first, end, lane, 32, key, [&](int t, u32 k) {
        u32 above = __ballot_sync(~0u, t < end && k > least), equal = __ballot_sync(~0u, t < end && k == least);
        int left = max(equals - same, 0), taken = __popc(equal & lower);
        bool keeps = above >> lane & 1 || (equal >> lane & 1 && taken < left);
        if (keeps) write(larger + min(same, equals) + __popc(above & lower) + min(taken, left), t);
        larger += __popc(above);
        same += __popc(equal);
    });
}

// Calls write(n, t) for the n-th of the `keep` largest of `count` keys, in order of their places t: ties go to the lower
// place. Where there are no more than `keep`, for all. Every thread of the block calls it.
template <int THREADS, class Key, class Write>
DI void each_kept(int count, int keep, Key key, Write write) {
    if (count <= keep) {
        for (int t = threadIdx.x; t < count; t += THREADS) write(t, t);
        return;
    }
    int equals;
    u32 least = least_kept<THREADS>(count, keep, key, equals);
    each_from<THREADS>(count, least, equals, key, write);
}
