// Rows of one block format as a type: groups of 32 elements as integers (common/quant.cuh). Comes in a matrix's namespace.
#include "common/quant.cuh"

struct Decoder {
    typedef Codes Group;
    enum {
        groups = COLS / 32,
        // Has each half of a group a scale of its own; has a group minima?
        halves = QUANT_GROUP == 16,
        minima = QUANT_HAS_MIN
    };

    static DI const u8* at(const u8* w, u64 n) { return w + n * ROW_BYTES; }
    static DI void group(const u8* row, int g, Codes& c) { codes(row, g, c); }
};
