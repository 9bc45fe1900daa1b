// Matrices of one format and shape as a type. A kernel that reads several has each in a namespace of its own (unit.rs), so
// that one launch takes weights of any types.
// QUANT, COLS, FAST: see common/dot.cuh; ROW_BYTES: of a row in the file's format.
#include "common/dot.cuh"

struct Matrix {
    typedef Input Row;
    enum {
        rounds = FAST && !QUANT_PLAIN,
        cols = COLS,
        units = UNITS,
        // Lanes that a row keeps busy; as many rows lie abreast in a warp as that leaves room for.
        lanes = QUANT_PLAIN || COLS > 512 ? 32 : COLS > 256 ? 16 : COLS > 128 ? 8 : 4
    };

    // Row i of activations: x rounded where the matrix wants that, with the scales s.
    static DI Row row(const void* x, const float4* s, u64 i) { return input_row(x, s, i); }

    static DI const u8* at(const u8* w, u64 n) { return w + n * ROW_BYTES; }

    // Adds to sum[t] unit u of the row at w times that of activations t.
    template <int Count>
    static DI void unit(const u8* w, int u, const Row (&x)[Count], float (&sum)[Count]) {
        unit_dots(w, u, x, sum);
    }

    // Adds to sum[r][t] this lane's share, one of Lanes, of the row at w[r] times activations t.
    template <int Lanes, int Rows, int Count>
    static DI void dots(const u8* const (&w)[Rows], const Row (&x)[Count], float (&sum)[Rows][Count]) {
        lane_dots<Lanes>(w, x, sum);
    }
};
