// Blocks of 32 with a scale of their own: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0. Nibbles in halves: the low ones are elements 0 to 15.

#if QUANT == QUANT_Q8_0 && PLANES

DI void codes(const u8* row, int group, Codes& c) {
    u32 w[8];
    wide(row + 32 * group, w);
#pragma unroll
    for (int i = 0; i < 8; i++) c.q[i] = w[i];
    scale(c, half_at(row + 32 * ROW_BLOCKS + 2 * group));
}

#elif QUANT == QUANT_Q8_0

DI void codes(const u8* row, int group, Codes& c) {
    const u8* b = block_at(row, group);
    u32 w[8];
    words(b + 2, w);
#pragma unroll
    for (int i = 0; i < 8; i++) c.q[i] = w[i];
    scale(c, half_at(b));
}

#elif QUANT == QUANT_Q4_0

DI void codes(const u8* row, int group, Codes& c) {
    const u8* b = block_at(row, group);
    u32 w[4];
    words(b + 2, w);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        c.q[i] = minus(low_nibbles(w[i]), 8);
        c.q[4 + i] = minus(high_nibbles(w[i]), 8);
    }
    scale(c, half_at(b));
}

#elif QUANT == QUANT_Q4_1

DI void codes(const u8* row, int group, Codes& c) {
    const u32* b = (const u32*)block_at(row, group);
    u32 head = b[0];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 w = b[1 + i];
        c.q[i] = low_nibbles(w);
        c.q[4 + i] = high_nibbles(w);
    }
    c.s[0] = c.s[1] = half_to_float(head);
    c.m[0] = c.m[1] = half_to_float(head >> 16);
}

#elif QUANT == QUANT_Q5_0

DI void codes(const u8* row, int group, Codes& c) {
    const u8* b = block_at(row, group);
    u32 w[5]; // the fifth bits first
    words(b + 2, w);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        c.q[i] = minus(low_nibbles(w[1 + i]) | bit_bytes(w[0] >> 4 * i) << 4, 16);
        c.q[4 + i] = minus(high_nibbles(w[1 + i]) | bit_bytes(w[0] >> 16 + 4 * i) << 4, 16);
    }
    scale(c, half_at(b));
}

#elif QUANT == QUANT_Q5_1

DI void codes(const u8* row, int group, Codes& c) {
    const uint2* b = (const uint2*)block_at(row, group);
    uint2 head = b[0], first = b[1], second = b[2];
    u32 w[4] = {first.x, first.y, second.x, second.y};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        c.q[i] = low_nibbles(w[i]) | bit_bytes(head.y >> 4 * i) << 4;
        c.q[4 + i] = high_nibbles(w[i]) | bit_bytes(head.y >> 16 + 4 * i) << 4;
    }
    c.s[0] = c.s[1] = half_to_float(head.x);
    c.m[0] = c.m[1] = half_to_float(head.x >> 16);
}

#endif
