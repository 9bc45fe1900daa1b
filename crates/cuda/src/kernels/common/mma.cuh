// Tensor cores and copies into shared memory. A warp holds a 16 x 16 matrix of f16 `a` row by row, 16 x 8 `b` column by
// column and 16 x 8 of f32 `d`, as mma.m16n8k16 deals them: with g = lane / 4 and c = 2 (lane % 4), a lane has of `a` rows g
// and g + 8 at columns c, c + 1 and then c + 8, c + 9; of `b` rows c, c + 1 and c + 8, c + 9 at column g; of `d` row g at
// columns c and c + 1, then row g + 8.
#include "common/types.cuh"

#ifndef EMULATED

// Shared memory of the size that the launch gives.
#define DYNAMIC_SHARED(name) extern __shared__ __align__(128) u8 name[]

DI u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// d += a b
DI void mma(float (&d)[4], const u32 (&a)[4], u32 low, u32 high) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(low), "r"(high));
}

// d += a b of int8: `a` 16 x 32 and `b` 32 x 8, four elements in a row where there are two of f16.
DI void mma8(int (&d)[4], const u32 (&a)[4], u32 low, u32 high) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(low), "r"(high));
}

// The same of one half: the first two registers of `a` with the first of `b`, or the others.
DI void mma8_half(int (&d)[4], u32 upper, u32 lower, u32 b) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(upper), "r"(lower), "r"(b));
}

// Four 8 x 8 matrices of f16 in shared memory: lane 8 m + r gives the address of row r of matrix m. Register m of a lane is
// of matrix m row g at columns c and c + 1.
DI void load_matrices(u32 (&to)[4], const u16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// The same of their transposes.
DI void load_transposed(u32 (&to)[4], const u16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Has 16 bytes copied to shared memory; zeros, and nothing read, unless `is`.
DI void copy_start(void* to, const void* from, bool is) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(is ? 16 : 0)
                 : "memory");
}

// Ends a group of this thread's copies.
DI void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until all of this thread's groups but the last LEFT are there.
template <int LEFT>
DI void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

#endif

DI u32 halves(float low, float high) { return (u32)float_to_half(high) << 16 | float_to_half(low); }

// The power of two that brings the magnitude `most` to [1, 2), so that f16 holds what is not much smaller. What is not
// finite stays so.
DI float half_scale(float most) {
    u32 exponent = __float_as_uint(most) >> 23;
    exponent = exponent < 1 ? 1 : exponent > 253 ? 253 : exponent;
    return __uint_as_float((254 - exponent) << 23);
}

// Its inverse.
DI float half_unscale(float scale) { return __uint_as_float((254u << 23) - __float_as_uint(scale)); }
