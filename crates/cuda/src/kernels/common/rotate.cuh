// Rotary position embedding.
#include "common/types.cuh"

// The pair (u, v) turned by `angle`, a product of two f32, as everywhere in the field.
DI float2 rotated(float u, float v, float angle, float magnitude) {
    float sin, cos;
    sincosf(angle, &sin, &cos);
    sin *= magnitude;
    cos *= magnitude;
    return make_float2(u * cos - v * sin, u * sin + v * cos);
}
