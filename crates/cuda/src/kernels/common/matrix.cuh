// Matrices of one format and shape as a type. A kernel that reads several has each in a namespace of its own (unit.rs), so
// that one launch takes weights of any types.
// QUANT, COLS, FAST: see common/dot.cuh; ROW_BYTES: of a row. LANES: those that a row keeps busy, as many rows lie abreast in a warp as
// that leaves room for; SLICES: warps that share a row of 32 lanes (planes.rs).
#include "common/piece.cuh"

// HELD_REGISTERS: those that units under way may fill, in all.

// Units under way at a time, of so many in all; as many each time if they are not much fewer for it.
DI constexpr int piece_depth(int turns, int registers) {
    int most = HELD_REGISTERS / registers < 1 ? 1 : HELD_REGISTERS / registers;
    for (int d = most; 2 * d > most; d--) {
        if (turns % d == 0) return d;
    }
    return most < turns ? most : turns;
}

struct Matrix {
    typedef Input Row;
    enum {
        rounds = FAST && !QUANT_PLAIN,
        cols = COLS,
        units = UNITS,
        registers = PIECE_REGISTERS,
        lanes = LANES,
        slices = SLICES
    };

    // Row i of activations: x rounded where the matrix wants that, with the scales s.
    static DI Row row(const void* x, const float4* s, u64 i) { return input_row(x, s, i); }

    static DI const u8* at(const u8* w, u64 n) { return w + n * ROW_BYTES; }

    // Units of Rows rows that a lane has under way at a time, one of Lanes, of which Slices warps have as many, for Count rows of
    // activations.
    template <int Lanes, int Slices, int Rows, int Count>
    struct Batch {
        enum {
            all = Lanes * Slices,
            turns = (UNITS + all - 1) / all,
            depth = piece_depth(turns, Rows * PIECE_REGISTERS)
        };
        Piece held[depth][Rows];

        static DI bool has(int u, int turn) { return ((turns > 0 && turns % depth == 0) || turn < turns) && (UNITS % all == 0 || u < UNITS); }

        // Fetches those from `turn` on, of the lane that begins at unit `first`.
        DI void fetch(const u8* const (&w)[Rows], int first, int turn) {
#pragma unroll
            for (int d = 0; d < depth; d++) {
                int u = first + all * (turn + d);
                if (!has(u, turn + d)) break;
#pragma unroll
                for (int r = 0; r < Rows; r++) held[d][r] = piece_at(w[r], u);
            }
        }

        // Adds to sum[r][t] the products of this lane's share of the row at w[r] with activations t; the first ones have been fetched.
        DI void dots(const u8* const (&w)[Rows], int first, const Row (&x)[Count], float (&sum)[Rows][Count]) {
#pragma unroll 1
            for (int turn = 0; turn < turns; turn += depth) {
                if (turn > 0) fetch(w, first, turn);
#pragma unroll
                for (int d = 0; d < depth; d++) {
                    int u = first + all * (turn + d);
                    if (!has(u, turn + d)) break;
#pragma unroll
                    for (int r = 0; r < Rows; r++) piece_dots(held[d][r], w[r], u, x, sum[r]);
                }
            }
        }
    };
};
