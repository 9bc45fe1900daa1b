// Blocks of quantized weights as small integers under scales.
#include "common/types.cuh"
