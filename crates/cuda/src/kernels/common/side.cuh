// Rows of one matrix, or of two of which each row has its like, by the warps of a block: long rows are shared by several warps, short
// ones lie abreast in the lanes of one, and each lane has some of those under way at a time.
#include "common/reduce.cuh"

// Own rows of Warps warps, of which Slices share each, for Count rows of activations; Held registers for weights under way.
template <class M, class U, bool Both, int Own, int Warps, int Count, int Slices = M::slices, int Held = HELD_REGISTERS>
struct Side {
    enum {
        lanes = Both && (int)U::lanes > (int)M::lanes ? (int)U::lanes : (int)M::lanes,
        slices = lanes < 32 ? 1 : Slices,
        abreast = 32 / lanes,
        // of all warps together, and how often that is
        at_once = Warps / slices * abreast,
        passes = (Own + at_once - 1) / at_once,
        // both of a pair by the same loop
        alike = Both && Same<M, U>::is,
        turns = (M::units + lanes * slices - 1) / (lanes * slices),
        room = Held / ((turns > 0 ? turns : 1) * M::registers * (1 + alike)),
        // what is read of several rows of activations serves several rows of weights, if those are fetched ahead
        most = Count > 4 || (Count > 1 && M::registers > 16) ? 1 : Count > 1 ? (Count > 2 ? 4 : 2) / (1 + alike) : room < 1 ? 1 : room > 4 ? 4 : room,
        depth = (passes + (passes + most - 1) / most - 1) / ((passes + most - 1) / most),
        fetched = depth * (1 + alike)
    };
    static_assert(slices <= Warps, "a row's warps are of one block");

    // What the warps have found, of each row in the end all of it.
    struct Sums {
        float of[slices][Count][Own];
        float like[Both ? slices : 1][Count][Both ? Own : 1];
    };

    // which of the warps this is
    int warp, at;
    const u8 *of[fetched], *like[depth];
    typename M::template Batch<lanes, slices, fetched, Count> batch;

    explicit DI Side(int warp) : warp(warp) {}

    DI int slice() const { return warp % slices; }
    // The unit that a lane begins with.
    DI int first() const { return threadIdx.x % lanes + lanes * slice(); }

    // Begins with some of `count` rows from row n on.
    DI bool fetch(const u8* w, const u8* u, u64 n, int count, int pass) {
        at = pass * at_once + warp / slices * abreast + (int)(threadIdx.x % 32 / lanes);
        if (pass >= passes || at - (int)(threadIdx.x % 32 / lanes) >= count) return false;
#pragma unroll
        for (int r = 0; r < depth; r++) {
            u64 row = n + min(at + r * at_once, count - 1);
            of[r] = M::at(w, row);
            like[r] = Both ? U::at(u, row) : 0;
            if constexpr (alike) of[depth + r] = like[r];
        }
        batch.fetch(of, first(), 0);
        return true;
    }

    // What has been fetched times the activations, as a share of the sums.
    DI void dots(const typename M::Row (&x)[Count], const typename U::Row (&y)[Count], Sums& sums) {
        float all[fetched][Count] = {}, other[depth][Count] = {};
        batch.dots(of, first(), x, all);
        if constexpr (Both && !alike) {
            typename U::template Batch<lanes, slices, depth, Count> second;
            second.fetch(like, first(), 0);
            second.dots(like, first(), y, other);
        }
        // rows of a pair lie behind those that they are like
        put<0>(all, sums);
        if constexpr (Both && !alike) put<depth>(other, sums);
    }

    // Sums of Rows rows over the lanes; the r-th is of matrix (r + From) / depth.
    template <int From, int Rows>
    DI void put(const float (&v)[Rows][Count], Sums& sums) {
        const int all = Rows * Count, some = power_of_two(all < lanes ? all : (int)lanes);
#pragma unroll
        for (int first = 0; first < all; first += some) {
            float part[some];
#pragma unroll
            for (int n = 0; n < some; n++) part[n] = first + n < all ? v[(first + n) / Count][(first + n) % Count] : 0;
            float sum = lanes_sums<lanes>(part);
            int n = first + (int)(threadIdx.x % lanes) / (lanes / some), r = n / Count + From, row = at + r % depth * at_once;
            if (threadIdx.x % (lanes / some) || n >= all || row >= Own) continue;
            if (!Both || r < depth) {
                sums.of[slice()][n % Count][row] = sum;
            } else {
                sums.like[slice()][n % Count][row] = sum;
            }
        }
    }

    // A row's sum, and that of its like, when all warps are done.
    static DI float2 sum(const Sums& sums, int t, int row) {
        float v = sums.of[0][t][row], w = Both ? sums.like[0][t][row] : 0;
#pragma unroll
        for (int s = 1; s < slices; s++) {
            v += sums.of[s][t][row];
            if (Both) w += sums.like[s][t][row];
        }
        return make_float2(v, w);
    }
};
