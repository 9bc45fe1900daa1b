// Matrices of one format and shape as a type. A kernel that reads several has each in a namespace of its own (unit.rs), so
// that one launch takes weights of any types.
// QUANT, COLS, FAST: see common/dot.cuh; ROW_BYTES: of a row in the file's format.
#include "common/dot.cuh"

struct Matrix {
    typedef Input Row;
    enum { rounds = FAST && !QUANT_PLAIN, cols = COLS };

    // Row i of activations: x rounded where the matrix wants that, with the scales s.
    static DI Row row(const void* x, const float4* s, u64 i) { return input_row(x, s, i); }

    // Adds to sum[t] this lane's share of row n of the matrix times activations t.
    template <int Count>
    static DI void dots(const u8* w, u64 n, const Row (&x)[Count], float (&sum)[Count]) {
        lane_dots<Count>(w + n * ROW_BYTES, x, sum);
    }
};
