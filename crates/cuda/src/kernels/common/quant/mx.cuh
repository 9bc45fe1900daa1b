// Codes of four bits that are looked up among sixteen values: IQ4_NL, IQ4_XS, MXFP4, NVFP4.

#if QUANT == QUANT_IQ4_NL || QUANT == QUANT_IQ4_XS || QUANT == QUANT_MXFP4 || QUANT == QUANT_NVFP4

// The values of the low nibbles of four bytes, and of the high ones. A byte permutation looks up four nibbles among eight
// values: those of both halves of the sixteen, then by the top bits which of the two it was.
DI void look_up(u32 w, int& low, int& high) {
    u32 three = w & 0x77777777u, top = 0x32103210u | w >> 1 & 0x44444444u, found[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        u32 lower = __byte_perm(CODEBOOK[0], CODEBOOK[1], three >> 16 * i);
        u32 upper = __byte_perm(CODEBOOK[2], CODEBOOK[3], three >> 16 * i);
        found[i] = __byte_perm(lower, upper, top >> 16 * i);
    }
    low = __byte_perm(found[0], found[1], 0x6420);
    high = __byte_perm(found[0], found[1], 0x7531);
}

#endif

#if QUANT == QUANT_IQ4_NL

DI void codes(const u8* row, int group, Codes& c) {
    const u8* b = block_at(row, group);
    u32 w[4];
    words(b + 2, w);
#pragma unroll
    for (int i = 0; i < 4; i++) look_up(w[i], c.q[i], c.q[4 + i]);
    scale(c, half_at(b));
}

#elif QUANT == QUANT_IQ4_XS

DI void codes(const u8* row, int group, Codes& c) {
    const u8* b = block_at(row, group);
    u32 g = group_at(group);
    uint2 head = *(const uint2*)b;
    const uint2* qs = (const uint2*)(b + 8 + 16 * g);
    uint2 first = qs[0], second = qs[1];
    look_up(first.x, c.q[0], c.q[4]);
    look_up(first.y, c.q[1], c.q[5]);
    look_up(second.x, c.q[2], c.q[6]);
    look_up(second.y, c.q[3], c.q[7]);
    u32 packed = head.y >> 4 * g & 15 | (head.x >> 16 + 2 * g & 3) << 4;
    scale(c, half_to_float(head.x) * (float)((int)packed - 32));
}

#elif QUANT == QUANT_MXFP4

DI void codes(const u8* row, int group, Codes& c) {
    const u8* b = block_at(row, group);
    u32 w[4];
    words(b + 1, w);
#pragma unroll
    for (int i = 0; i < 4; i++) look_up(w[i], c.q[i], c.q[4 + i]);
    u32 e = b[0];
    scale(c, __uint_as_float(e < 2 ? 0x00200000u << e : e - 1 << 23)); // 2^(e - 128)
}

#elif QUANT == QUANT_NVFP4

// Half an unsigned E4M3, whose NaN counts as 0: its bits are those of a half 2^8 times smaller.
DI float e4m3(u32 v) {
    v &= 127;
    return v == 127 ? 0 : half_to_float(v << 7) * 128.0f;
}

DI void codes(const u8* row, int group, Codes& c) {
    const u8* b = block_at(row, group);
    u32 g = group_at(group);
    const u32* qs = (const u32*)(b + 4 + 16 * g);
#pragma unroll
    for (int i = 0; i < 4; i++) look_up(qs[i], c.q[i / 2 * 4 + i % 2], c.q[i / 2 * 4 + i % 2 + 2]);
    u32 packed = pair(b + 2 * g);
    scale(c, e4m3(packed), e4m3(packed >> 8));
}

#endif
