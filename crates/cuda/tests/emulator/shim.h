// Runs a kernel's source as host code: a block's threads are coroutines on one core, barriers and shuffles are where they
// take turns. For tests of what kernels compute; their speed and memory model are not those of a GPU.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <time.h>
#include <utility>

#define EMULATED
#define __device__
#define __global__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__
#define __constant__ static const
// One block runs at a time.
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

struct dim3_ { unsigned x, y, z; };
static dim3_ threadIdx, blockIdx, blockDim, gridDim;

struct __attribute__((aligned(8))) float2 { float x, y; };
struct __attribute__((aligned(16))) float4 { float x, y, z, w; };
struct __attribute__((aligned(8))) int2 { int x, y; };
struct __attribute__((aligned(16))) int4 { int x, y, z, w; };
struct __attribute__((aligned(8))) uint2 { unsigned x, y; };
struct __attribute__((aligned(16))) uint4 { unsigned x, y, z, w; };
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }

template <class To, class From>
static inline To bits_(From from) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline float __int_as_float(int v) { return bits_<float>(v); }
static inline float __uint_as_float(unsigned v) { return bits_<float>(v); }
static inline int __float_as_int(float v) { return bits_<int>(v); }
static inline unsigned __float_as_uint(float v) { return bits_<unsigned>(v); }
static inline int __float2int_rn(float v) { return (int)nearbyintf(v); }
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return (unsigned)(((uint64_t)high << 32 | low) >> (by & 31));
}
static inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++) c += (int)(int8_t)(a >> 8 * i) * (int)(int8_t)(b >> 8 * i);
    return c;
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
    uint64_t all = (uint64_t)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        unsigned byte = (unsigned)(all >> 8 * (s >> 4 * i & 7)) & 255;
        if (s >> 4 * i & 8) byte = byte & 128 ? 255 : 0;
        r |= byte << 8 * i;
    }
    return r;
}

static inline float __fmul_rn(float a, float b) { return a * b; }
static inline uint4 read_once(const uint4* from) { return *from; }
static inline float half_to_float(unsigned short h) {
    unsigned sign = (unsigned)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
    float v = exponent ? ldexpf((float)(fraction + 1024), (int)exponent - 25) : ldexpf((float)fraction, -24);
    return sign ? -v : v;
}
static inline unsigned short float_to_half(float f) {
    unsigned bits = __float_as_uint(f), sign = bits >> 16 & 0x8000;
    float v = fabsf(f);
    if (!(v == v)) return (unsigned short)(sign | 0x7fff);
    if (v >= 65520.0f) return (unsigned short)(sign | 0x7c00);
    int exponent;
    frexpf(v, &exponent);
    if (v == 0 || exponent < -13) return (unsigned short)(sign | (unsigned)nearbyintf(ldexpf(v, 24)));
    unsigned fraction = (unsigned)nearbyintf(ldexpf(v, 11 - exponent)); // 1024 to 2048, with its top bit
    return (unsigned short)(sign | (((unsigned)(exponent + 13) << 10) + fraction));
}

// --- coroutines ---

extern "C" void shim_switch(void** from, void* to);
#if defined(__x86_64__)
asm(R"(
.text
.type shim_switch, @function
shim_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
)");
#else
#error "the emulator switches stacks on x86-64 only"
#endif

enum { SHIM_THREADS = 1024, SHIM_STACK = 64 << 10 };

// What a test puts in the place of memory that others share, and of time.
struct Outside {
    void (*store)(unsigned* to, const unsigned* words);
    uint64_t (*clock)();
};

struct Barrier { int arrived, live; unsigned generation; };
struct Shim {
    void* main;
    void* thread[SHIM_THREADS];
    bool done[SHIM_THREADS];
    int current, threads;
    Barrier block, warp[SHIM_THREADS / 32];
    uint64_t lanes[SHIM_THREADS / 32][2][32], votes[SHIM_THREADS / 32][2][32];
    unsigned turn[SHIM_THREADS];
    const uint64_t* args;
    char* stacks;
    char* shared;
    long progress;
    // Is a packet looked for, which may not have come?
    bool expects;
    const Outside* outside;
};
static Shim shim;

static void shim_yield() {
    int me = shim.current;
    shim_switch(&shim.thread[me], shim.main);
    threadIdx.x = (unsigned)(shim.current = me);
}

static void shim_wait(Barrier& b) {
    unsigned generation = b.generation;
    shim.progress++;
    if (++b.arrived == b.live) {
        b.arrived = 0;
        b.generation++;
        return;
    }
    while (b.generation == generation) shim_yield();
}

static void shim_leave(Barrier& b) {
    shim.progress++;
    if (--b.live > 0 && b.arrived == b.live) {
        b.arrived = 0;
        b.generation++;
    }
}

static inline void __threadfence() {}
static inline void __syncthreads() { shim_wait(shim.block); }
static inline void __syncwarp(unsigned = ~0u) { shim_wait(shim.warp[shim.current / 32]); }

// Two sets of lanes in turn: one barrier an exchange is enough.
template <class T>
static T shim_exchange(T v, int from) {
    static_assert(sizeof(T) <= 8, "a register or two");
    int me = shim.current, warp = me / 32;
    uint64_t* lanes = shim.lanes[warp][shim.turn[me]++ % 2];
    uint64_t bits = 0;
    memcpy(&bits, &v, sizeof v);
    lanes[me % 32] = bits;
    __syncwarp();
    memcpy(&v, &lanes[from & 31], sizeof v);
    return v;
}
template <class T>
static T __shfl_xor_sync(unsigned, T v, int o) { return shim_exchange(v, (int)threadIdx.x % 32 ^ o); }
template <class T>
static T __shfl_sync(unsigned, T v, int lane) { return shim_exchange(v, lane); }
template <class T>
static T __shfl_up_sync(unsigned, T v, int o) {
    int lane = (int)threadIdx.x % 32;
    return shim_exchange(v, lane >= o ? lane - o : lane);
}
template <class T>
static T __shfl_down_sync(unsigned, T v, int o) {
    int lane = (int)threadIdx.x % 32;
    return shim_exchange(v, lane + o < 32 ? lane + o : lane);
}
// Votes are marked with their turn: a lane may be gone when the others count its last one.
static inline unsigned __ballot_sync(unsigned, int v) {
    int me = shim.current;
    uint64_t turn = shim.turn[me]++, *votes = shim.votes[me / 32][turn % 2];
    votes[me % 32] = (turn + 1) << 1 | (v != 0);
    __syncwarp();
    unsigned r = 0;
    for (int l = 0; l < 32; l++) r |= (unsigned)(votes[l] == ((turn + 1) << 1 | 1)) << l;
    return r;
}
static inline int __any_sync(unsigned m, int v) { return __ballot_sync(m, v) != 0; }

static inline int __reduce_add_sync(unsigned m, int v) {
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(m, v, o);
    return v;
}
static inline unsigned __reduce_max_sync(unsigned m, unsigned v) {
    for (int o = 16; o > 0; o >>= 1) v = std::max<unsigned>(v, __shfl_xor_sync(m, v, o));
    return v;
}
static inline unsigned __reduce_add_sync(unsigned m, unsigned v) {
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(m, v, o);
    return v;
}
static inline unsigned __reduce_min_sync(unsigned m, unsigned v) {
    for (int o = 16; o > 0; o >>= 1) v = std::min<unsigned>(v, __shfl_xor_sync(m, v, o));
    return v;
}

// The sums and maxima of common/reduce.cuh, in the same order, with one exchange instead of five.
template <class F>
static float shim_reduce(float v, F f) {
    int me = shim.current;
    uint64_t* lanes = shim.lanes[me / 32][shim.turn[me]++ % 2];
    memcpy(&lanes[me % 32], &v, sizeof v);
    __syncwarp();
    float all[32];
    for (int l = 0; l < 32; l++) memcpy(&all[l], &lanes[l], sizeof v);
    for (int o = 16; o > 0; o >>= 1)
        for (int l = 0; l < o; l++) all[l] = f(all[l], all[l + o]);
    return all[0];
}
static float warp_sum(float v) { return shim_reduce(v, [](float a, float b) { return a + b; }); }
static float warp_max(float v) { return shim_reduce(v, [](float a, float b) { return fmaxf(a, b); }); }

// Kernels run one after the other.
static inline void let_later_begin() {}
// Every block must wait, or a kernel would seem to be done before those in front of it are.
static bool shim_waited;
static inline void await_earlier() { shim_waited = true; }
static inline void fetch_ahead(const void*, int) {}

// What common/ring.cuh does: pieces come at once, and are counted.
static inline void ring_init(unsigned long long* full, int) { *full = 0; }
static inline void ring_ready() { __syncwarp(); }
template <int PIECES, int ROOM>
static void ring_fill(unsigned char* stage, unsigned long long* full, const unsigned char* from, unsigned bytes) {
    int lane = (int)threadIdx.x % 32;
    if (lane >= PIECES) return;
    memcpy(stage + lane * ROOM, from, bytes);
    ++*full;
    shim.progress++;
}
static inline void ring_wait(unsigned long long* full, int pieces, int turn) {
    while (*full < (unsigned long long)pieces * (turn + 1)) shim_yield();
}

// --- common/mma.cuh ---

#define DYNAMIC_SHARED(name) unsigned char* name = (unsigned char*)shim.shared

// A product of a warp: every lane shows its elements, then makes its own of the result.
static void mma(float (&d)[4], const unsigned (&a)[4], unsigned low, unsigned high) {
    static float all[SHIM_THREADS / 32][2][32][12];
    int me = shim.current, lane = me % 32;
    float(*shown)[12] = all[me / 32][shim.turn[me]++ % 2];
    for (int j = 0; j < 12; j++) {
        unsigned two = j < 8 ? a[j / 2] : j < 10 ? low : high;
        shown[lane][j] = half_to_float((unsigned short)(two >> 16 * (j % 2)));
    }
    __syncwarp();
    for (int j = 0; j < 4; j++) {
        int row = lane / 4, column = lane % 4 * 2 + j % 2;
        double sum = d[j];
        for (int k = 0; k < 16; k++) {
            float x = shown[row * 4 + k % 8 / 2][k / 8 * 4 + j / 2 * 2 + k % 2];
            sum += (double)x * shown[column * 4 + k % 8 / 2][8 + k / 8 * 2 + k % 2];
        }
        d[j] = (float)sum;
    }
}

// The same of int8, with `steps` halves of 16 terms.
static void shim_mma8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], int steps) {
    static unsigned all[SHIM_THREADS / 32][2][32][6];
    int me = shim.current, lane = me % 32;
    unsigned(*shown)[6] = all[me / 32][shim.turn[me]++ % 2];
    for (int j = 0; j < 4; j++) shown[lane][j] = a[j];
    for (int j = 0; j < 2; j++) shown[lane][4 + j] = b[j];
    __syncwarp();
    for (int j = 0; j < 4; j++) {
        int row = lane / 4, column = lane % 4 * 2 + j % 2;
        for (int k = 0; k < 4 * steps; k++)
            d[j] = __dp4a((int)shown[row * 4 + k % 4][k / 4 * 2 + j / 2], (int)shown[column * 4 + k % 4][4 + k / 4], d[j]);
    }
}
static void mma8(int (&d)[4], const unsigned (&a)[4], unsigned low, unsigned high) { shim_mma8(d, a, {low, high}, 2); }
static void mma8_half(int (&d)[4], unsigned upper, unsigned lower, unsigned b) {
    shim_mma8(d, {upper, lower, 0, 0}, {b, 0}, 1);
}

static void shim_matrices(unsigned (&to)[4], const unsigned short* row, bool transposed) {
    int me = shim.current, lane = me % 32;
    uint64_t* lanes = shim.lanes[me / 32][shim.turn[me]++ % 2];
    if ((uintptr_t)row % 16) abort();
    lanes[lane] = (uint64_t)row;
    __syncwarp();
    for (int m = 0; m < 4; m++) {
        unsigned short two[2];
        for (int j = 0; j < 2; j++) {
            int r = transposed ? lane % 4 * 2 + j : lane / 4, c = transposed ? lane / 4 : lane % 4 * 2 + j;
            two[j] = ((const unsigned short*)lanes[8 * m + r])[c];
        }
        to[m] = (unsigned)two[1] << 16 | two[0];
    }
    __syncwarp();
}
static void load_matrices(unsigned (&to)[4], const unsigned short* row) { shim_matrices(to, row, false); }
static void load_transposed(unsigned (&to)[4], const unsigned short* row) { shim_matrices(to, row, true); }

// Copies are done when they are waited for, and not before.
struct Copy { void* to; const void* from; };
struct Copies { Copy all[512]; int group[512], count, groups; };
static Copies shim_copies[SHIM_THREADS];

static void copy_start(void* to, const void* from, bool is) {
    Copies& c = shim_copies[shim.current];
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16 || c.count == 512) abort();
    c.group[c.count] = c.groups;
    c.all[c.count++] = {to, is ? from : nullptr};
}
static void copy_commit() { shim_copies[shim.current].groups++; }
template <int LEFT>
static void copy_wait() {
    Copies& c = shim_copies[shim.current];
    int left = 0;
    for (int i = 0; i < c.count; i++) {
        Copy copy = c.all[i];
        if (c.group[i] >= c.groups - LEFT) {
            c.group[left] = c.group[i];
            c.all[left++] = copy;
        } else if (copy.from) {
            memcpy(copy.to, copy.from, 16);
        } else {
            memset(copy.to, 0, 16);
        }
    }
    c.count = left;
}

template <class T>
static T atomicExch(T* p, T v) { T old = *p; *p = v; return old; }
template <class T>
static T atomicAdd(T* p, T v) { T old = *p; *p += v; return old; }
template <class T>
static T atomicOr(T* p, T v) { T old = *p; *p |= v; return old; }
template <class T>
static T atomicMin(T* p, T v) { T old = *p; if (v < old) *p = v; return old; }
template <class T>
static T atomicMax(T* p, T v) { T old = *p; if (v > old) *p = v; return old; }

// --- what ranks exchange: packets of four words, each a store or load of its own ---

static uint4 load_packet(const uint4* p) {
    shim.expects = true;
    shim_yield();
    const volatile unsigned* words = (const volatile unsigned*)p;
    return {words[0], words[1], words[2], words[3]};
}

static void store_packet(uint4* p, uint4 v) {
    const unsigned from[4] = {v.x, v.y, v.z, v.w};
    volatile unsigned* words = (volatile unsigned*)p;
    if (shim.outside) {
        shim_yield();
        shim.outside->store((unsigned*)p, from);
        return;
    }
    for (int i = 0; i < 4; i++) words[i] = from[i];
}

static uint64_t nanoseconds() {
    if (shim.outside) return shim.outside->clock();
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void __threadfence_system() { __sync_synchronize(); }

// --- launches ---

template <class... P, size_t... I>
static void shim_apply(void (*f)(P...), std::index_sequence<I...>) { f((P)shim.args[I]...); }
template <class... P>
static void shim_call(void (*f)(P...)) { shim_apply(f, std::index_sequence_for<P...>{}); }

static void (*shim_body)();

static void shim_start() {
    threadIdx.x = (unsigned)shim.current;
    shim_body();
    int me = shim.current;
    shim.done[me] = true;
    shim_leave(shim.warp[me / 32]);
    shim_leave(shim.block);
    shim_switch(&shim.thread[me], shim.main);
    abort();
}

static void shim_begin() {
    shim.block = {0, shim.threads, 0};
    memset(shim.votes, 0, sizeof shim.votes);
    for (int t = 0; t < shim.threads; t++) {
        if (t % 32 == 0) shim.warp[t / 32] = {0, min(32, shim.threads - t), 0};
        // as if called: the stack is a multiple of 16 plus 8 at the entry
        void** top = (void**)(shim.stacks + (size_t)(t + 1) * SHIM_STACK) - 2;
        *top = (void*)shim_start;
        shim.thread[t] = top - 6;
        shim.done[t] = false;
        shim.turn[t] = 0;
        shim_copies[t].count = 0;
    }
}

// Runs a thread until it waits. Has it ended?
static bool shim_resume(int t) {
    shim.current = t;
    threadIdx = {(unsigned)t, 0, 0};
    shim_switch(&shim.main, shim.thread[t]);
    return shim.done[t];
}

static void shim_block() {
    shim_begin();
    for (int left = shim.threads; left > 0;) {
        long before = shim.progress;
        shim.expects = false;
        for (int t = 0; t < shim.threads; t++)
            if (!shim.done[t]) left -= shim_resume(t);
        if (left > 0 && shim.progress == before) {
            if (!shim.expects) {
                fprintf(stderr, "emulated kernel: threads of block %u,%u,%u wait at different barriers\n", blockIdx.x, blockIdx.y, blockIdx.z);
                abort();
            }
            sched_yield();
        }
    }
}

static int shim_ready(void (*body)(), const unsigned* grid, unsigned threads, unsigned shared, const uint64_t* args, char* stacks) {
    if (threads == 0 || threads > SHIM_THREADS) return 1;
    free(shim.shared);
    shim.shared = (char*)aligned_alloc(128, (shared + 127) / 128 * 128 + 128);
    memset(shim.shared, 0xff, shared);
    shim.stacks = stacks;
    shim_body = body;
    shim.threads = (int)threads;
    shim.args = args;
    blockDim = {threads, 1, 1};
    gridDim = {grid[0], grid[1], grid[2]};
    return 0;
}

static int shim_launch(void (*body)(), const unsigned* grid, unsigned threads, unsigned shared, const uint64_t* args, char* stacks) {
    int status = shim_ready(body, grid, threads, shared, args, stacks);
    if (status) return status;
    for (unsigned z = 0; z < grid[2]; z++)
        for (unsigned y = 0; y < grid[1]; y++)
            for (unsigned x = 0; x < grid[0]; x++) {
                blockIdx = {x, y, z};
                memset(shim.shared, 0xff, shared);
                shim_waited = false;
                shim_block();
                if (!shim_waited) {
                    fprintf(stderr, "block %u %u %u has not waited for its turn\n", x, y, z);
                    abort();
                }
            }
    return 0;
}

// One block, whose threads the caller resumes in an order of its own.
static int shim_single(void (*body)(), const unsigned* grid, const unsigned* block, unsigned threads, const uint64_t* args, char* stacks, const Outside* outside) {
    int status = shim_ready(body, grid, threads, 0, args, stacks);
    shim.outside = outside;
    blockIdx = {block[0], block[1], block[2]};
    if (!status) shim_begin();
    return status;
}
extern "C" int resume(unsigned thread) { return shim_resume((int)thread); }
