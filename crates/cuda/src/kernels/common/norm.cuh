// Norms by one block, whose threads hold the elements in registers, so that all loads are under way together: element
// threadIdx.x + Threads e of Width at place e, zeros beyond.
#include "common/round.cuh"

// Over all Threads of the block, in the order of a block of 1024: as if each thread had every 1024th element.
template <int Threads, int Each>
DI float norm_sum(const float (&v)[Each]) {
    const int shares = 1024 / Threads;
    __shared__ float part[32];
    float own[shares];
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
    float sum = warp_sum(part[threadIdx.x % 32]);
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

// What is subtracted, and what is divided by: RMS: 0 and sqrt(mean(x^2) + eps); otherwise the mean and sqrt(var + eps).
template <int Width, int Threads, bool Rms, int Each>
DI float2 moments(const float (&v)[Each], float eps) {
    float square[Each], mean = 0;
    if (!Rms) mean = norm_sum<Threads>(v) / Width;
#pragma unroll
    for (int e = 0; e < Each; e++) {
        float off = threadIdx.x + Threads * e < Width ? v[e] - mean : 0;
        square[e] = off * off;
    }
    return make_float2(mean, sqrtf(norm_sum<Threads>(square) / Width + eps));
}

// v less its mean, divided by its root, times w; not RMS: and + b.
template <int Width, int Threads, bool Rms, int Each>
DI void norm(float (&v)[Each], float eps, const float* w, const float* b) {
    float scale[Each];
    // the weights are under way with the rest
#pragma unroll
    for (int e = 0; e < Each; e++) scale[e] = threadIdx.x + Threads * e < Width ? w[threadIdx.x + Threads * e] : 0;
    float2 m = moments<Width, Threads, Rms>(v, eps);
#pragma unroll
    for (int e = 0; e < Each; e++) {
        int k = threadIdx.x + Threads * e;
        v[e] = (v[e] - m.x) / m.y * scale[e];
        if (!Rms && k < Width) v[e] += b[k];
    }
}

// Element `at` of the stream with what is added to it.
template <int Addends>
DI float streamed(const float* x, const float* second, const float* third, u64 at) {
    if (Addends == 0) return x[at];
    return x[at] + (Addends > 2 ? second[at] + third[at] : second[at]);
}

// What a norm of the stream reads and writes.
struct Stream {
    const float *first, *second, *third;
    float* x;
    const float *w, *b;
    float* out;
    int* spoiled;
    const int* op;
    i8* q;
    float4* s;
};

// Norms a run of row i, which begins at element `at`. Addends = 2 or 3: first x = first + (second + third), which is the
// stream with what was added to it. Rounds: the output also comes rounded (common/round.cuh). Alone: this block writes all;
// otherwise only every element threadIdx.x + Threads `share`. Without `out` only the stream is written.
template <int Width, int Threads, bool Rms, int Addends, bool Rounds, bool Alone>
DI void norm_row(const Stream& of, int i, u64 at, float eps, int share) {
    const int each = (Width + Threads - 1) / Threads;
    float v[each], scale[each], shift[each];
#pragma unroll
    for (int e = 0; e < each; e++) {
        int k = threadIdx.x + Threads * e;
        bool in = k < Width, own = in && (Alone || e == share);
        v[e] = in ? streamed<Addends>(of.first, of.second, of.third, at + k) : 0;
        if (Addends > 0 && own) of.x[at + k] = v[e];
        scale[e] = own ? of.w[k] : 0;
        shift[e] = own && !Rms ? of.b[k] : 0;
    }
    if (!of.out) return;
    check(v, of.spoiled + i, *of.op);
    float2 m = moments<Width, Threads, Rms>(v, eps);
    // the sums are there, so all has been read: where a block is alone the output may lie where an addend lay
#pragma unroll
    for (int e = 0; e < each; e++) {
        int k = threadIdx.x + Threads * e;
        if (k >= Width || (!Alone && e != share)) continue;
        float y = (v[e] - m.x) / m.y * scale[e];
        if (!Rms) y += shift[e];
        of.out[at + k] = y;
        if (Rounds) {
            u64 group = at + k - threadIdx.x % 32;
            round_warp(y, of.q + group, of.s + group / 32);
        }
    }
}
