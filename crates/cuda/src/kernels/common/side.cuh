// Rows of one matrix, or of two of which each row has its like, side by side in a warp: some lie abreast in its lanes, and each
// lane has some of those under way at a time.
#include "common/reduce.cuh"

template <class A, class B>
struct Same {
    enum { is = false };
};
template <class A>
struct Same<A, A> {
    enum { is = true };
};

// Own rows that Warps warps deal among them, for Count rows of activations.
template <class M, class U, bool Both, int Own, int Warps, int Count>
struct Side {
    enum {
        lanes = Both && U::lanes > M::lanes ? U::lanes : M::lanes,
        abreast = 32 / lanes,
        // of a warp, and of those at a time
        passes = (Own + Warps * abreast - 1) / (Warps * abreast),
        most = Count > 2 || Both ? 1 : Count > 1 || abreast == 1 ? 2 : 4,
        depth = passes % most ? passes % 2 || most < 2 ? 1 : 2 : most,
        rows = abreast * depth
    };

    // A warp's sums of rows n, n + abreast, and so on, none behind `last`; each lane of a row gets those of its row.
    static DI void dots(const u8* w, const u8* u, u64 n, u64 last, const typename M::Row (&x)[Count],
                        const typename U::Row (&y)[Count], float (&sum)[depth][Count], float (&other)[depth][Count]) {
        const u8 *of[depth], *like[depth];
        u64 own = n + threadIdx.x % 32 / lanes;
#pragma unroll
        for (int r = 0; r < depth; r++) {
            u64 row = own + r * abreast < last ? own + r * abreast : last;
            of[r] = M::at(w, row);
            like[r] = Both ? U::at(u, row) : 0;
        }
        if constexpr (Both && Same<M, U>::is && Count == 1) {
            const u8* two[2] = {of[0], like[0]};
            float both[2][Count] = {};
            M::template dots<lanes>(two, x, both);
            sum[0][0] = both[0][0];
            other[0][0] = both[1][0];
        } else {
            M::template dots<lanes>(of, x, sum);
            if constexpr (Both) U::template dots<lanes>(like, y, other);
        }
#pragma unroll
        for (int r = 0; r < depth; r++) {
#pragma unroll
            for (int t = 0; t < Count; t++) {
                sum[r][t] = lanes_sum<lanes>(sum[r][t]);
                if (Both) other[r][t] = lanes_sum<lanes>(other[r][t]);
            }
        }
    }
};
