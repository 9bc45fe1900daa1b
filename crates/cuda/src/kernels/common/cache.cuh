// A cache: a line of elements for each token, f32 or, where HALF, f16.
#include "common/step.cuh"

#if HALF
typedef u16 Element;
DI float element_to_float(Element e) { return half_to_float(e); }
DI Element float_to_element(float f) { return float_to_half(f); }
#else
typedef float Element;
DI float element_to_float(Element e) { return e; }
DI Element float_to_element(float f) { return f; }
#endif
