// Grid rows looked up in a codebook: IQ1, IQ2 and IQ3 types.

#if QUANT == QUANT_IQ2_XXS || QUANT == QUANT_IQ2_XS || QUANT == QUANT_IQ2_S

// Eight number n of the four in c: grid row with signs.
DI void eight(Codes& c, int n, u32 row, u32 signs) {
    uint2 v = ((const uint2*)CODEBOOK)[row];
    c.q[2 * n] = negate(v.x, signs);
    c.q[2 * n + 1] = negate(v.y, signs >> 4);
}

#elif QUANT == QUANT_IQ3_XXS || QUANT == QUANT_IQ3_S

// Eight number n of the four in c: two grid rows with signs.
DI void eight(Codes& c, int n, u32 first, u32 second, u32 signs) {
    c.q[2 * n] = negate(CODEBOOK[first], signs);
    c.q[2 * n + 1] = negate(CODEBOOK[second], signs >> 4);
}

#elif QUANT == QUANT_IQ1_S || QUANT == QUANT_IQ1_M

// Eight number n of the four in c: grid row of -8, 0 and 8, plus or minus 1. The top bits are turned over for the time of
// the sum, so that no byte carries into the next.
DI void eight(Codes& c, int n, u32 row, bool down) {
    uint2 v = ((const uint2*)CODEBOOK)[row];
    u32 shift = down ? 0u - FOUR(1u) : FOUR(1u);
    c.q[2 * n] = (v.x ^ FOUR(128u)) + shift ^ FOUR(128u);
    c.q[2 * n + 1] = (v.y ^ FOUR(128u)) + shift ^ FOUR(128u);
}

#endif

// The eight signs of index n in a list of 7-bit ones: the eighth makes their number even.
DI u32 even_signs(u32 list, int n) {
    u32 bits = list >> 7 * n & 127;
    return bits | (__popc(bits) & 1) << 7;
}

#if QUANT == QUANT_IQ2_XXS

DI void codes(const u8* row, int group, Codes& c) {
    const u8* b = block_at(row, group);
    u32 w[2]; // four row numbers; four sign indices and the scale
    words(b + 2 + 8 * group_at(group), w);
#pragma unroll
    for (int n = 0; n < 4; n++) eight(c, n, w[0] >> 8 * n & 255, even_signs(w[1], n));
    scale(c, half_at(b) * (0.5f + (float)(int)(w[1] >> 28)) * 0.25f);
}

#elif QUANT == QUANT_IQ2_XS

DI void codes(const u8* row, int group, Codes& c) {
    const u8* b = block_at(row, group);
    u32 g = group_at(group), w[2]; // nine bits of row number and seven of sign index, four times
    words(b + 2 + 8 * g, w);
#pragma unroll
    for (int n = 0; n < 4; n++) {
        u32 v = w[n / 2] >> 16 * (n % 2);
        eight(c, n, v & 511, even_signs(v >> 9, 0));
    }
    u32 packed = b[66 + g];
    float d = half_at(b);
    scale(c, d * (0.5f + (float)(int)(packed & 15)) * 0.25f, d * (0.5f + (float)(int)(packed >> 4)) * 0.25f);
}

#elif QUANT == QUANT_IQ2_S

DI void codes(const u8* row, int group, Codes& c) {
    const u8* b = block_at(row, group);
    u32 g = group_at(group), low = word(b + 2 + 4 * g), signs = word(b + 34 + 4 * g), high = b[66 + g];
#pragma unroll
    for (int n = 0; n < 4; n++) eight(c, n, low >> 8 * n & 255 | (high >> 2 * n & 3) << 8, signs >> 8 * n);
    u32 packed = b[74 + g];
    float d = half_at(b);
    scale(c, d * (0.5f + (float)(int)(packed & 15)) * 0.25f, d * (0.5f + (float)(int)(packed >> 4)) * 0.25f);
}

#elif QUANT == QUANT_IQ3_XXS

DI void codes(const u8* row, int group, Codes& c) {
    const u8* b = block_at(row, group);
    u32 g = group_at(group), w[2], signs = word(b + 66 + 4 * g); // with the scale on top
    words(b + 2 + 8 * g, w);
#pragma unroll
    for (int n = 0; n < 4; n++) {
        u32 rows = w[n / 2] >> 16 * (n % 2);
        eight(c, n, rows & 255, rows >> 8 & 255, even_signs(signs, n));
    }
    scale(c, half_at(b) * (0.5f + (float)(int)(signs >> 28)) * 0.5f);
}

#elif QUANT == QUANT_IQ3_S

DI void codes(const u8* row, int group, Codes& c) {
    const u8* b = block_at(row, group);
    u32 g = group_at(group), w[2], ninth = b[66 + g], signs = word(b + 74 + 4 * g);
    words(b + 2 + 8 * g, w);
#pragma unroll
    for (int n = 0; n < 4; n++) {
        u32 rows = w[n / 2] >> 16 * (n % 2), high = ninth >> 2 * n;
        eight(c, n, rows & 255 | (high & 1) << 8, rows >> 8 & 255 | (high & 2) << 7, signs >> 8 * n);
    }
    u32 packed = b[106 + g / 2] >> 4 * (g % 2) & 15;
    scale(c, half_at(b) * (float)(int)(1 + 2 * packed));
}

#elif QUANT == QUANT_IQ1_S

DI void codes(const u8* row, int group, Codes& c) {
    const u8* b = block_at(row, group);
    u32 g = group_at(group), low = word(b + 2 + 4 * g), high = pair(b + 34 + 2 * g);
#pragma unroll
    for (int n = 0; n < 4; n++) eight(c, n, low >> 8 * n & 255 | (high >> 3 * n & 7) << 8, high & 0x8000);
    scale(c, half_at(b) * (float)(int)(2 * (high >> 12 & 7) + 1) * 0.125f);
}

#elif QUANT == QUANT_IQ1_M

DI void codes(const u8* row, int group, Codes& c) {
    const u8* b = block_at(row, group);
    u32 g = group_at(group), low = *(const u32*)(b + 4 * g), high = pair(b + 32 + 2 * g);
#pragma unroll
    for (int n = 0; n < 4; n++) eight(c, n, low >> 8 * n & 255 | (high >> 4 * n & 7) << 8, high >> 4 * n & 8);
    uint2 scales = *(const uint2*)(b + 48); // 16 bits four times: four scales, and a nibble of d on top
    float d = half_to_float(scales.x >> 12 & 15 | scales.x >> 24 & 0xf0 | scales.y >> 4 & 0xf00 | scales.y >> 16 & 0xf000);
    u32 packed = (g < 4 ? scales.x : scales.y) >> 16 * (g / 2 % 2) + 6 * (g % 2);
    float first = (float)(int)(2 * (packed & 7) + 1), second = (float)(int)(2 * (packed >> 3 & 7) + 1);
    scale(c, d * first * 0.125f, d * second * 0.125f);
}

#endif
