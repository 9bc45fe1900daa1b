// The hash of what a weight's slot holds, as its file has it, added to `out` (common/hash.cuh): every word is looked for where it should
// lie by now. How `lay.cu` has brought it there is not asked, so that what one of the two does wrong the other finds.
// first: rows of blocks of BYTES bytes, whose fields lie in planes: a FIELD(place in a block, bytes) for each, in their order. BYTES 0: rows
// as they are, of any length that has no half words.
// second: where the second row begins; end: behind the last, where zeros follow.
// Grid: any number of blocks, 1, 1; 256 threads, of which 32 take a row. Bytes: those of the rows.
#include "common/hash.cuh"
#include "common/overlap.cuh"

#if BYTES
// Where the two bytes lie that are at `at` of a row in the file, in a row of so many blocks.
DI u32 lies(u32 at, u32 blocks) {
    u32 block = at / BYTES, inside = at % BYTES, plane = 0;
#define FIELD(AT, LEN)                                                     \
    if (inside - AT < LEN) return plane + block * LEN + (inside - AT);     \
    plane += blocks * LEN;
    FIELDS
#undef FIELD
    return 0;
}

DI u32 two(const u8* at) { return *(const u16*)at; }
#endif

DI u32 word(const u8* row, u32 at, u32 row_bytes) {
#if BYTES
    u32 blocks = row_bytes / BYTES;
    return two(row + lies(at, blocks)) | two(row + lies(at + 2, blocks)) << 16;
#else
    return *(const u32*)(row + at);
#endif
}

extern "C" __global__ void __launch_bounds__(256) run(const u8* first, const u8* second, const u8* end, u64* out) {
    in_turn();
    u32 row_bytes = (u32)(second - first);
    u64 all = end - first, sum = 0;
    for (u64 row = blockIdx.x * 8 + threadIdx.x / 32; row * row_bytes < all; row += gridDim.x * 8) {
        u64 from = row * row_bytes, left = all - from;
        u32 here = left < row_bytes ? (u32)left : row_bytes;
        for (u32 at = threadIdx.x % 32 * 4; at < here; at += 128) {
            sum += word(first + from, at, row_bytes) * place((from + at) / 4);
        }
    }
    add_hash(sum, out);
}
