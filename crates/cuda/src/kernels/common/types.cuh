// Types, conversions and the few things that have no spelling in C++. No headers: NVRTC needs none.
typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define DI __device__ __forceinline__

#ifndef EMULATED

DI float half_to_float(u16 h) {
    float f;
    asm("{.reg .b16 t; mov.b16 t, %1; cvt.f32.f16 %0, t;}" : "=f"(f) : "h"(h));
    return f;
}

DI u16 float_to_half(float f) {
    u16 h;
    asm("{.reg .b16 t; cvt.rn.f16.f32 t, %1; mov.b16 %0, t;}" : "=h"(h) : "f"(f));
    return h;
}

// Weights, which a step reads once: in caches they give way to what kernels hand to each other.
DI uint4 read_once(const uint4* from) {
    uint4 v;
    asm("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
    return v;
}

#endif

DI float bf16_to_float(u16 b) { return __uint_as_float((u32)b << 16); }

// To the nearest, ties to even; NaN stays one.
DI u16 float_to_bf16(float f) {
    u32 bits = __float_as_uint(f);
    if (f != f) return (u16)(bits >> 16 | 64);
    return (u16)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

// A positive number that orders as the float does, -0 below 0.
DI u32 ordered(float f) {
    u32 bits = __float_as_uint(f);
    return bits ^ ((u32)((int)bits >> 31) | 0x80000000u);
}

#define INFINITY_F __int_as_float(0x7f800000)

// Are two types one?
template <class A, class B>
struct Same {
    enum { is = false };
};
template <class A>
struct Same<A, A> {
    enum { is = true };
};
