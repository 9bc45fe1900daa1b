// Norms by one block, whose threads hold the elements in registers, so that all loads are under way together: element
// threadIdx.x + Threads e of Width at place e, zeros beyond.
#include "common/round.cuh"

// Over all Threads of the block, of Rows rows at once, in the order of a block of 1024: as if each thread had every 1024th element.
template <int Threads, int Rows, int Each>
DI void norm_sums(const float (&v)[Rows][Each], float (&sums)[Rows]) {
    const int shares = 1024 / Threads, some = power_of_two(Rows * shares);
    static_assert(1024 % Threads == 0 && some <= 32, "a lane for each sum");
    __shared__ float part[Rows][32];
    float own[some];
#pragma unroll
    for (int n = 0; n < some; n++) own[n] = 0;
#pragma unroll
    for (int r = 0; r < Rows; r++) {
#pragma unroll
        for (int e = 0; e < Each; e++) own[r * shares + e % shares] += v[r][e];
    }
    float sum = lanes_sums<32>(own);
    int n = (int)(threadIdx.x % 32) / (32 / some);
    if (threadIdx.x % (32 / some) == 0 && n < Rows * shares) {
        part[n / shares][n % shares * (Threads / 32) + threadIdx.x / 32] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < Rows; r++) sums[r] = warp_sum(part[r][threadIdx.x % 32]);
    __syncthreads();
}

// Lowers `spoiled` to `op` if there is a NaN or an infinity.
template <int Each>
DI void check(const float (&v)[Each], int* spoiled, int op) {
    bool bad = false;
#pragma unroll
    for (int e = 0; e < Each; e++) bad |= !(fabsf(v[e]) < INFINITY_F);
    if (bad) atomicMin(spoiled, op);
}

// What is subtracted from each element of a row, and the root that it is divided by. Once the root's inverse is known, a division takes two
// more multiplications to come out as if it had been one (Markstein, IBM J. Res. Dev. 34, 1990): with an inverse alone, rounded activations
// would differ from those of the CPU.
struct Moments {
    float mean, root, inverse;

    DI float of(float v) const {
        float off = v - mean, about = off * inverse;
        return fmaf(fmaf(-about, root, off), inverse, about);
    }
};

// Of each of Rows rows: RMS: 0 and sqrt(mean(x^2) + eps); otherwise the mean and sqrt(var + eps).
template <int Width, int Threads, bool Rms, int Rows, int Each>
DI void moments(const float (&v)[Rows][Each], float eps, Moments (&m)[Rows]) {
    float square[Rows][Each], sums[Rows];
    if (!Rms) norm_sums<Threads>(v, sums);
#pragma unroll
    for (int r = 0; r < Rows; r++) {
        m[r].mean = Rms ? 0 : sums[r] / Width;
#pragma unroll
        for (int e = 0; e < Each; e++) {
            float off = threadIdx.x + Threads * e < Width ? v[r][e] - m[r].mean : 0;
            square[r][e] = off * off;
        }
    }
    norm_sums<Threads>(square, sums);
#pragma unroll
    for (int r = 0; r < Rows; r++) {
        m[r].root = sqrtf(sums[r] / Width + eps);
        m[r].inverse = 1 / m[r].root;
    }
}

// A norm's weights. No kernel writes them, so that they are read while earlier ones run.
template <int Width, int Threads, bool Rms>
struct Affine {
    enum { each = (Width + Threads - 1) / Threads };
    float scale[each], shift[Rms ? 1 : each];

    // All of them, or every element threadIdx.x + Threads `share`.
    DI Affine(const float* w, const float* b, int share = -1) {
#pragma unroll
        for (int e = 0; e < each; e++) {
            int k = threadIdx.x + Threads * e;
            bool own = k < Width && (share < 0 || e == share);
            scale[e] = own ? w[k] : 0;
            if (!Rms) shift[e] = own ? b[k] : 0;
        }
    }

    // An element less the mean, divided by the root, times its weight; not RMS: and what is added to it.
    DI float of(float v, int e, const Moments& moments) const {
        float y = moments.of(v) * scale[e];
        return Rms ? y : y + shift[e];
    }
};

template <int Width, int Threads, bool Rms, int Rows, int Each>
DI void norm(float (&v)[Rows][Each], float eps, const Affine<Width, Threads, Rms>& affine) {
    Moments m[Rows];
    moments<Width, Threads, Rms>(v, eps, m);
#pragma unroll
    for (int r = 0; r < Rows; r++) {
#pragma unroll
        for (int e = 0; e < Each; e++) v[r][e] = affine.of(v[r][e], e, m[r]);
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
    float *x, *out;
    int* spoiled;
    const int* op;
    i8* q;
    float4* s;
};

// Norms a run of row i, which begins at element `at`. Addends = 2 or 3: first x = first + (second + third), which is the
// stream with what was added to it. Rounds: the output also comes rounded (common/round.cuh). Alone: this block writes all;
// otherwise only every element threadIdx.x + Threads `share`. Without `out` only the stream is written.
template <int Width, int Threads, bool Rms, int Addends, bool Rounds, bool Alone>
DI void norm_row(const Stream& of, const Affine<Width, Threads, Rms>& affine, int i, u64 at, float eps, int share) {
    const int each = (Width + Threads - 1) / Threads;
    float v[1][each];
#pragma unroll
    for (int e = 0; e < each; e++) {
        int k = threadIdx.x + Threads * e;
        bool in = k < Width, own = in && (Alone || e == share);
        v[0][e] = in ? streamed<Addends>(of.first, of.second, of.third, at + k) : 0;
        if (Addends > 0 && own) of.x[at + k] = v[0][e];
    }
    if (!of.out) return;
    check(v[0], of.spoiled + i, *of.op);
    Moments m[1];
    moments<Width, Threads, Rms>(v, eps, m);
    // the sums are there, so all has been read: where a block is alone the output may lie where an addend lay
#pragma unroll
    for (int e = 0; e < each; e++) {
        int k = threadIdx.x + Threads * e;
        if (k >= Width || (!Alone && e != share)) continue;
        float y = affine.of(v[0][e], e, m[0]);
        of.out[at + k] = y;
        if (Rounds) {
            u64 group = at + k - threadIdx.x % 32;
            round_warp(y, of.q + group, of.s + group / 32);
        }
    }
}
