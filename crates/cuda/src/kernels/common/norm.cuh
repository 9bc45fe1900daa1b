// Norms by one block, whose threads hold the elements in registers, so that all loads are under way together: element
// threadIdx.x + Threads e of Width at place e, zeros beyond.
#include "common/round.cuh"

// Over all Threads of the block, in the order of a block of 1024: as if each thread had every 1024th element.
template <int Threads, int Each>
DI float norm_sum(const float (&v)[Each]) {
    const int shares = 1024 / Threads;
    __shared__ float part[32];
    float own[shares], sum = 0;
#pragma unroll
    for (int j = 0; j < shares; j++) own[j] = 0;
#pragma unroll
    for (int e = 0; e < Each; e++) own[e % shares] += v[e];
#pragma unroll
    for (int j = 0; j < shares; j++) {
        own[j] = warp_sum(own[j]);
        if (threadIdx.x % 32 == 0) part[j * (Threads / 32) + threadIdx.x / 32] = own[j];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 32; j++) sum += part[j];
    __syncthreads();
    return sum;
}

// Lowers `spoiled` to `op` if there is a NaN or an infinity.
template <int Each>
DI void check(const float (&v)[Each], int* spoiled, int op) {
    bool bad = false;
#pragma unroll
    for (int e = 0; e < Each; e++) bad |= !(fabsf(v[e]) < INFINITY_F);
    if (bad) atomicMin(spoiled, op);
}

// RMS: x / sqrt(mean(x^2) + eps) * w. Otherwise (x - mean) / sqrt(var + eps) * w + b.
template <int Width, int Threads, bool Rms, int Each>
DI void norm(float (&v)[Each], float eps, const float* w, const float* b) {
    float scale[Each], square[Each], mean = 0;
    // the weights are under way with the rest
#pragma unroll
    for (int e = 0; e < Each; e++) scale[e] = threadIdx.x + Threads * e < Width ? w[threadIdx.x + Threads * e] : 0;
    if (!Rms) mean = norm_sum<Threads>(v) / Width;
#pragma unroll
    for (int e = 0; e < Each; e++) {
        float off = threadIdx.x + Threads * e < Width ? v[e] - mean : 0;
        square[e] = off * off;
    }
    float root = sqrtf(norm_sum<Threads>(square) / Width + eps);
#pragma unroll
    for (int e = 0; e < Each; e++) {
        int k = threadIdx.x + Threads * e;
        v[e] = (v[e] - mean) / root * scale[e];
        if (!Rms && k < Width) v[e] += b[k];
    }
}

// What a norm of the stream reads and writes.
struct Stream {
    float* x;
    const float *w, *b;
    float* out;
    int* spoiled;
    const int* op;
    const float *first, *second, *third;
    i8* q;
    float4* s;
};

// Norms run `run` of row i, which begins at element `at`. Addends = 2 or 3: first x = first + (second + third), which is the
// stream with what was added to it. Rounds: the output also comes rounded (common/round.cuh).
template <int Width, int Threads, bool Rms, int Addends, bool Rounds>
DI void norm_row(const Stream& of, int i, u64 at, float eps) {
    const int each = (Width + Threads - 1) / Threads;
    float v[each];
#pragma unroll
    for (int e = 0; e < each; e++) {
        int k = threadIdx.x + Threads * e;
        bool in = k < Width;
        if (Addends > 0) {
            float added = in ? of.second[at + k] : 0;
            if (Addends > 2 && in) added += of.third[at + k];
            v[e] = in ? of.first[at + k] + added : 0;
            if (in) of.x[at + k] = v[e];
        } else {
            v[e] = in ? of.x[at + k] : 0;
        }
    }
    check(v, of.spoiled + i, *of.op);
    norm<Width, Threads, Rms>(v, eps, of.w, of.b);
    // the sums are there, so all has been read: the output may lie where an addend lay
#pragma unroll
    for (int e = 0; e < each; e++) {
        int k = threadIdx.x + Threads * e;
        if (k >= Width) break;
        of.out[at + k] = v[e];
        if (Rounds) {
            u64 group = at + k - threadIdx.x % 32;
            round_warp(v[e], of.q + group, of.s + group / 32);
        }
    }
}
