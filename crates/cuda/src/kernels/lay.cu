// Rows as a file has them, block behind block, laid in planes (`planes.rs`): a thread makes 16 bytes of a row and looks where they come from.
// from: rows of blocks of BYTES bytes, a multiple of 16 bytes each, one behind the other; to: the same rows, field behind field, with a
// FIELD(place in a block, bytes) for each.
// second: where the second of the rows begins; end: behind the last.
// Grid: a block for each 4 KiB of them, 1, 1; 256 threads. Bytes: two for each of the rows'.
#include "common/overlap.cuh"

// Where the two bytes come from that a row of so many blocks has at `at`.
DI u32 comes_from(u32 at, u32 blocks) {
#define FIELD(AT, LEN)                                                          \
    if (at < blocks * LEN) return at / LEN * BYTES + AT + at % LEN;             \
    at -= blocks * LEN;
    FIELDS
#undef FIELD
    return 0;
}

DI u32 two(const u8* at) { return *(const u16*)at; }

extern "C" __global__ void __launch_bounds__(256) run(const u8* from, const u8* second, const u8* end, u8* to) {
    in_turn();
    u32 row_bytes = (u32)(second - from), pieces = row_bytes / 16, blocks = row_bytes / BYTES;
    u32 i = blockIdx.x * 256 + threadIdx.x;
    if (i >= (u32)((end - from) / 16)) return;
    const u8* row = from + (u64)(i / pieces) * row_bytes;
    u32 at = i % pieces * 16, made[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        u32 word = at + 4 * j;
        made[j] = two(row + comes_from(word, blocks)) | two(row + comes_from(word + 2, blocks)) << 16;
    }
    ((uint4*)to)[i] = make_uint4(made[0], made[1], made[2], made[3]);
}
