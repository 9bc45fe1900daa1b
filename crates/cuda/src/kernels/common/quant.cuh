// Blocks of quantized weights as small integers under scales, 32 elements at a time: for each format the integers, scales
// and minima of the decoder on the host, bit for bit.
// QUANT: the format, one of the QUANT_ names. common/format.cuh comes from the host's tables: the numbers of the names,
// QUANT_PLAIN, QUANT_LEN and QUANT_BYTES of a block, QUANT_GROUP, QUANT_HAS_MIN, and the codebook if the format has one.
// Blocks of a row begin at multiples of QUANT_BYTES, and loads are no wider than that, but for PLANES: those of rows of ROW_BYTES that
// lie field by field (planes.rs), all first fields one behind the other, then all second ones.
#include "common/types.cuh"
#include "common/format.cuh"

#define PLANES (QUANT_PLANES && ROW_BYTES % 16 == 0)
#define ROW_BLOCKS (ROW_BYTES / QUANT_BYTES)

#if QUANT_PLAIN

// Element k of a row.
DI float plain_at(const u8* row, int k) {
#if QUANT == QUANT_F32
    return ((const float*)row)[k];
#elif QUANT == QUANT_F16
    return half_to_float(((const u16*)row)[k]);
#elif QUANT == QUANT_BF16
    return bf16_to_float(((const u16*)row)[k]);
#else
#error "QUANT: no format of weights"
#endif
}

// Elements k to k + 3, k a multiple of 4, of a row that begins at a multiple of four elements.
DI float4 plain4_at(const u8* row, int k) {
#if QUANT == QUANT_F32
    uint4 v = read_once((const uint4*)row + k / 4);
    return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
#else
    uint2 v = ((const uint2*)row)[k / 4];
#if QUANT == QUANT_F16
    return make_float4(half_to_float((u16)v.x), half_to_float((u16)(v.x >> 16)), half_to_float((u16)v.y),
                       half_to_float((u16)(v.y >> 16)));
#else
    return make_float4(bf16_to_float((u16)v.x), bf16_to_float((u16)(v.x >> 16)), bf16_to_float((u16)v.y),
                       bf16_to_float((u16)(v.y >> 16)));
#endif
#endif
}

#else

// 32 elements in order, four a word from the low byte on: element = s * q + m, with the scale and minimum of its half.
struct Codes {
    int q[8];
    float s[2];
    float m[2];
};

// Elements 32 * group to 32 * group + 31 of a row.
DI void codes(const u8* row, int group, Codes& c);

#include "common/quant/bytes.cuh"
#include "common/quant/legacy.cuh"
#include "common/quant/k.cuh"
#include "common/quant/iq.cuh"
#include "common/quant/low.cuh"
#include "common/quant/mx.cuh"

#endif
