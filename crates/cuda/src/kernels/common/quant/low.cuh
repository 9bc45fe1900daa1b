// One and two bits an element: Q1_0, Q2_0, TQ1_0, TQ2_0.

#if QUANT == QUANT_Q1_0

DI void codes(const u8* row, int group, Codes& c) {
    const u8* b = block_at(row, group);
    u32 bits = word(b + 2 + 4 * group_at(group));
#pragma unroll
    for (int i = 0; i < 8; i++) c.q[i] = minus(bit_bytes(bits >> 4 * i) << 1, 1);
    scale(c, half_at(b));
}

#elif QUANT == QUANT_Q2_0

// The four pairs of bits of a byte, each in a byte of its own.
DI u32 pair_bytes(u32 byte) {
    u32 halves = (byte | byte << 12) & 0x000f000fu;
    return (halves | halves << 6) & FOUR(3u);
}

DI void codes(const u8* row, int group, Codes& c) {
    const u8* b = block_at(row, group);
    u32 w[2];
    words(b + 2 + 8 * group_at(group), w);
#pragma unroll
    for (int i = 0; i < 8; i++) c.q[i] = minus(pair_bytes(w[i / 4] >> 8 * (i % 4) & 255), 1);
    scale(c, half_at(b));
}

#elif QUANT == QUANT_TQ2_0

DI void codes(const u8* row, int group, Codes& c) {
    const u8* b = block_at(row, group);
    u32 g = group_at(group), w[8];
    words(b + 32 * (g / 4), w);
#pragma unroll
    for (int i = 0; i < 8; i++) c.q[i] = minus(w[i] >> 2 * (g % 4) & FOUR(3u), 1);
    scale(c, half_at(b + 64));
}

#elif QUANT == QUANT_TQ1_0

// Digit n of the base-3 fractions in four bytes.
DI u32 trits(u32 w, u32 n) {
    u32 power = __byte_perm(0x1b090301u, 81, n) & 255;
    u32 even = (w & 0x00ff00ffu) * power & 0x00ff00ffu, odd = (w >> 8 & 0x00ff00ffu) * power & 0x00ff00ffu;
    return even * 3 >> 8 & 0x00ff00ffu | odd * 3 & 0xff00ff00u;
}

// Groups 0 to 4 are the digits of 32 bytes. What follows are two digits of 16 bytes a group, but for the last 16 elements,
// four digits of the last four bytes.
DI void codes(const u8* row, int group, Codes& c) {
    const u8* b = block_at(row, group);
    u32 g = group_at(group);
    bool early = g < 5, last = g == 7;
    u32 first = early ? 0 : 32, second = early ? 16 : last ? 48 : 32, stride = last ? 0 : 4;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        c.q[i] = minus(trits(word(b + first + 4 * i), early ? g : 2 * (g - 5)), 1);
        c.q[4 + i] = minus(trits(word(b + second + stride * i), early ? g : last ? i : 2 * (g - 5) + 1), 1);
    }
    scale(c, half_at(b + 52));
}

#endif
