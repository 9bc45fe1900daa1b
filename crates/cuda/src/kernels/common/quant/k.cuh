// Super-blocks of 256 whose groups have small integer scales: Q2_K to Q6_K.

#if QUANT == QUANT_Q4_K || QUANT == QUANT_Q5_K

// Always planes: 128 bytes of low bits a block, the fifth bits, which Q4_K has not, then the heads.
#define OF_LOW 128
#define OF_FIFTH (QUANT_BYTES - OF_LOW - 16)

// d and dmin, and twelve bytes of 6-bit scales and minima.
DI uint4 head_of(const u8* row, u32 block) { return ((const uint4*)(row + ROW_BLOCKS * (OF_LOW + OF_FIFTH)))[block]; }

// Scale and minimum of group g from the head of its block.
DI void head_scale(uint4 head, u32 g, Codes& c) {
    u32 shift = 8 * (g % 4), x = head.y >> shift, y = head.z >> shift, z = head.w >> shift;
    u32 of_scale = g < 4 ? x & 63 : z & 15 | x >> 2 & 48;
    u32 of_min = g < 4 ? y & 63 : z >> 4 & 15 | y >> 2 & 48;
    c.s[0] = c.s[1] = half_to_float(head.x) * (float)(int)of_scale;
    c.m[0] = c.m[1] = -(half_to_float(head.x >> 16) * (float)(int)of_min);
}

DI void codes(const u8* row, int group, Codes& c) {
    u32 block = (u32)group / 8, g = group_at(group), low[8];
    wide(row + 32 * ((u32)group / 2), low);
#pragma unroll
    for (int i = 0; i < 8; i++) c.q[i] = low_nibbles(low[i] >> 4 * (g % 2));
#if QUANT == QUANT_Q5_K
    u32 fifth[8];
    wide(row + ROW_BLOCKS * OF_LOW + OF_FIFTH * block, fifth);
#pragma unroll
    for (int i = 0; i < 8; i++) c.q[i] |= (fifth[i] >> g & FOUR(1u)) << 4;
#endif
    head_scale(head_of(row, block), g, c);
}

#elif QUANT == QUANT_Q2_K

DI void codes(const u8* row, int group, Codes& c) {
    const u8* b = block_at(row, group);
    u32 g = group_at(group);
    const u32* qs = (const u32*)(b + 16 + 32 * (g / 4));
#pragma unroll
    for (int i = 0; i < 8; i++) c.q[i] = qs[i] >> 2 * (g % 4) & FOUR(3u);
    u32 packed = pair(b + 2 * g), head = *(const u32*)(b + 80);
    float d = half_to_float(head), least = half_to_float(head >> 16);
    c.s[0] = d * (float)(int)(packed & 15);
    c.s[1] = d * (float)(int)(packed >> 8 & 15);
    c.m[0] = -(least * (float)(int)(packed >> 4 & 15));
    c.m[1] = -(least * (float)(int)(packed >> 12));
}

#elif QUANT == QUANT_Q3_K

DI void codes(const u8* row, int group, Codes& c) {
    const u8* b = block_at(row, group);
    u32 g = group_at(group), third[8], low[8];
    words(b, third);
    words(b + 32 + 32 * (g / 4), low);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        c.q[i] = minus(low[i] >> 2 * (g % 4) & FOUR(3u) | (third[i] >> g & FOUR(1u)) << 2, 4);
    }
    u32 packed = pair(b + 96 + 2 * (g % 4)) >> 4 * (g / 4) & 0x0f0f;
    packed |= (pair(b + 104 + 2 * (g % 2)) >> 2 * (g / 2) & 0x0303) << 4;
    float d = half_at(b + 108);
    scale(c, d * (float)((int)(packed & 255) - 32), d * (float)((int)(packed >> 8) - 32));
}

#elif QUANT == QUANT_Q6_K

// A field of `len` bytes of a block; its fields lie in the order of their planes.
DI const u8* field(const u8* row, u32 block, u32 at, u32 len) {
    return PLANES ? row + ROW_BLOCKS * at + len * block : row + QUANT_BYTES * block + at;
}

DI void codes(const u8* row, int group, Codes& c) {
    u32 block = (u32)group / 8, g = group_at(group), low[8], high[8];
    words(field(row, block, 0, 128) + 64 * (g / 4) + 32 * (g % 2), low);
    words(field(row, block, 128, 64) + 32 * (g / 4), high);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        u32 nibbles = low_nibbles(low[i] >> 4 * (g % 4 / 2));
        c.q[i] = minus(nibbles | (high[i] >> 2 * (g % 4) & FOUR(3u)) << 4, 32);
    }
    u32 packed = pair(field(row, block, 192, 16) + 2 * g);
    float d = half_at(field(row, block, 208, 2));
    scale(c, d * (float)(i8)packed, d * (float)(i8)(packed >> 8));
}

#endif
