// Super-blocks of 256 whose groups have small integer scales: Q2_K to Q6_K.

#if QUANT == QUANT_Q4_K || QUANT == QUANT_Q5_K

// 32 bytes from a multiple of 16.
DI void wide(const u8* p, u32 (&w)[8]) {
    uint4 first = ((const uint4*)p)[0], second = ((const uint4*)p)[1];
    w[0] = first.x, w[1] = first.y, w[2] = first.z, w[3] = first.w;
    w[4] = second.x, w[5] = second.y, w[6] = second.z, w[7] = second.w;
}

// Scale and minimum from the head of the block: d, dmin, and twelve bytes of 6-bit numbers.
DI void head_scale(const u8* b, u32 g, Codes& c) {
    uint4 head = *(const uint4*)b;
    u32 shift = 8 * (g % 4), x = head.y >> shift, y = head.z >> shift, z = head.w >> shift;
    u32 of_scale = g < 4 ? x & 63 : z & 15 | x >> 2 & 48;
    u32 of_min = g < 4 ? y & 63 : z >> 4 & 15 | y >> 2 & 48;
    c.s[0] = c.s[1] = half_to_float(head.x) * (float)(int)of_scale;
    c.m[0] = c.m[1] = -(half_to_float(head.x >> 16) * (float)(int)of_min);
}

// The low bits of two groups, and the fifth bits of all eight, which Q4_K has not.
DI void bits(const u8* b, u32 pair, u32 (&low)[8], u32 (&fifth)[8]) {
    wide(b + QUANT_BYTES - 128 + 32 * pair, low);
#if QUANT == QUANT_Q5_K
    wide(b + 16, fifth);
#else
#pragma unroll
    for (int i = 0; i < 8; i++) fifth[i] = 0;
#endif
}

DI void codes(const u8* row, int group, Codes& c) {
    const u8* b = block_at(row, group);
    u32 g = group_at(group), low[8], fifth[8];
    bits(b, g / 2, low, fifth);
#pragma unroll
    for (int i = 0; i < 8; i++) c.q[i] = low_nibbles(low[i] >> 4 * (g % 2)) | (fifth[i] >> g & FOUR(1u)) << 4;
    head_scale(b, g, c);
}

// Groups 2 * pair and 2 * pair + 1, whose low bits lie in the same bytes.
DI void pair_codes(const u8* row, int pair, Codes (&c)[2]) {
    const u8* b = block_at(row, 2 * pair);
    u32 g = group_at(2 * pair), low[8], fifth[8];
    bits(b, g / 2, low, fifth);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        c[0].q[i] = low_nibbles(low[i]) | (fifth[i] >> g & FOUR(1u)) << 4;
        c[1].q[i] = high_nibbles(low[i]) | (fifth[i] >> g + 1 & FOUR(1u)) << 4;
    }
    head_scale(b, g, c[0]);
    head_scale(b, g + 1, c[1]);
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

DI void codes(const u8* row, int group, Codes& c) {
    const u8* b = block_at(row, group);
    u32 g = group_at(group), low[8], high[8];
    words(b + 64 * (g / 4) + 32 * (g % 2), low);
    words(b + 128 + 32 * (g / 4), high);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        u32 nibbles = low_nibbles(low[i] >> 4 * (g % 4 / 2));
        c.q[i] = minus(nibbles | (high[i] >> 2 * (g % 4) & FOUR(3u)) << 4, 32);
    }
    u32 packed = pair(b + 192 + 2 * g);
    float d = half_at(b + 208);
    scale(c, d * (float)(i8)packed, d * (float)(i8)(packed >> 8));
}

#endif
