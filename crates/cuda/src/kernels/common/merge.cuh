// The parts of an attention that have keys, joined: sum over parts of exp(most_p - most) sum_p, divided by the sum of weights.
// Every eighth part is a share, shares are added in their order.
#include "common/parts.cuh"
#include "common/reduce.cuh"

#define SHARES 8

template <int Parts, int Value>
struct Merge {
    static_assert(Value % 2 == 0, "elements are read in twos");
    const float2* stats;
    const float* sums;
    const float* weight;
    float total;
    int used;

    // Finds the parts of a head of row i, which has `count` keys.
    DI void begin(const float* part, int count, int i, int heads, int head) {
        int size = part_size(count, Parts);
        u64 row = (u64)i * heads + head;
        stats = (const float2*)part + row * Parts;
        sums = part + part_sums(heads, Parts) + row * Parts * Value;
        used = (count + size - 1) / size;
    }

    // What they weigh; each warp of the block finds it, and the first writes it where all read it behind the next barrier.
    DI void weigh(float (&weights)[Parts]) {
        const int each = (Parts + 31) / 32;
        int lane = threadIdx.x % 32;
        weight = weights;
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
        for (int p = n; p < Parts; p += SHARES) v = p < used ? fmaf(weight[p], sums[p * Value + k], v) : v;
        return v;
    }

    // Part p's elements threadIdx.x + 256 e, for a row whose parts are a share each.
    template <int Each>
    DI void add(int p, float (&v)[Each]) const {
#pragma unroll
        for (int e = 0; e < Each; e++) {
            int k = 256 * e + threadIdx.x;
            float of = p < used && k < Value ? sums[p * Value + k] : 0;
            // each is a share, and shares are added: rounded before they are, whatever the compiler makes of rows beside it
            if (p < used) v[e] += __fmul_rn(weight[p], of);
        }
    }

    // Elements 64 j + 2 lane of part p.
    template <int Twos>
    DI void fetch(float2 (&of)[Twos], int p) const {
#pragma unroll
        for (int j = 0; j < Twos; j++) {
            int k = 64 * j + 2 * (threadIdx.x % 32);
            of[j] = k < Value ? *(const float2*)(sums + p * Value + k) : make_float2(0, 0);
        }
    }

    // All parts' elements where they are more: a warp has a share of all, in twos. The first Ahead of a warp have been fetched.
    template <int Ahead, int Room, int Each>
    DI void many(const float2 (&ahead)[Room][4 * Each], float (&v)[Each]) const {
        __shared__ __align__(8) float shares[SHARES][256 * Each];
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        float2 own[4 * Each];
#pragma unroll
        for (int j = 0; j < 4 * Each; j++) own[j] = make_float2(0, 0);
        auto add = [&](const float2 (&of)[4 * Each], int p) {
#pragma unroll
            for (int j = 0; j < 4 * Each; j++) {
                own[j].x = fmaf(weight[p], of[j].x, own[j].x);
                own[j].y = fmaf(weight[p], of[j].y, own[j].y);
            }
        };
#pragma unroll
        for (int n = 0; n < Ahead; n++) {
            if (warp + SHARES * n < used) add(ahead[n], warp + SHARES * n);
        }
#pragma unroll (Ahead > 0 ? 4 : 2)
        for (int p = warp + SHARES * Ahead; p < used; p += SHARES) {
            float2 of[4 * Each];
            fetch(of, p);
            add(of, p);
        }
#pragma unroll
        for (int j = 0; j < 4 * Each; j++) *(float2*)&shares[warp][64 * j + 2 * lane] = own[j];
        __syncthreads();
#pragma unroll
        for (int e = 0; e < Each; e++) {
            v[e] = shares[0][256 * e + threadIdx.x];
#pragma unroll
            for (int n = 1; n < SHARES; n++) v[e] += shares[n][256 * e + threadIdx.x];
        }
        __syncthreads();
    }
};

// Parts of Rows rows that are asked for before it is known what they weigh, Count of each: of several rows there are no registers for any.
template <int Rows, int Each, int Count>
struct Ahead {
    float2 of[Rows][Count > 0 ? Count : 1][4 * Each];

    template <int Parts, int Value>
    explicit DI Ahead(const Merge<Parts, Value> (&rows)[Rows]) {
#pragma unroll
        for (int r = 0; r < Rows; r++) {
#pragma unroll
            for (int n = 0; n < Count; n++) {
                int p = threadIdx.x / 32 + SHARES * n;
                if (rows[r].used > SHARES && p < rows[r].used) rows[r].fetch(of[r][n], p);
            }
        }
    }
};

// Elements threadIdx.x + 256 e of each of Rows rows, by all of 256 threads together. Which way a row goes is its own affair, as the
// two round differently.
template <int Rows, int Parts, int Value, int Each, int Count>
DI void merged(const Merge<Parts, Value> (&rows)[Rows], const Ahead<Rows, Each, Count>& ahead, float (&v)[Rows][Each]) {
    int few = 0;
#pragma unroll
    for (int r = 0; r < Rows; r++) {
        bool is = rows[r].used <= SHARES;
        few = is ? max(few, rows[r].used) : few;
#pragma unroll
        for (int e = 0; e < Each; e++) v[r][e] = 0;
        if (!is) rows[r].template many<Count>(ahead.of[r], v[r]);
    }
    // those of all rows are asked for at once
#pragma unroll (Rows > 2 ? 2 : 8 / Rows)
    for (int p = 0; p < few; p++) {
#pragma unroll
        for (int r = 0; r < Rows; r++) {
            if (rows[r].used <= SHARES) rows[r].add(p, v[r]);
        }
    }
#pragma unroll
    for (int r = 0; r < Rows; r++) {
#pragma unroll
        for (int e = 0; e < Each; e++) v[r][e] /= rows[r].total;
    }
}
