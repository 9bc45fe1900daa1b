#include "common/types.cuh"
#define QUANT_F32 1
#define QUANT_F16 2
#define QUANT_BF16 3
#define QUANT_PLAIN 1
DI float plain_at(const u8* row, int k) {
#if QUANT == QUANT_F32
    return ((const float*)row)[k];
#elif QUANT == QUANT_F16
    return half_to_float(((const u16*)row)[k]);
#else
    return bf16_to_float(((const u16*)row)[k]);
#endif
}
