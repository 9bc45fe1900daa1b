// Four bytes a word: what the formats have in common.

// A byte in all four places.
#define FOUR(byte) ((byte) * 0x01010101u)

// The block of a group of 32, and the group's place in it.
DI const u8* block_at(const u8* row, int group) { return row + (u64)((u32)group / (QUANT_LEN / 32)) * QUANT_BYTES; }
DI u32 group_at(int group) { return (u32)group % (QUANT_LEN / 32); }

// N words from any address: the aligned words that cover them, shifted into place. No word without a byte of them is read.
template <int N>
DI void words(const u8* p, u32 (&w)[N]) {
    u32 odd = (u32)(u64)p & 3;
    const u32* cover = (const u32*)(p - odd);
    u32 low = cover[0];
#pragma unroll
    for (int i = 0; i < N; i++) {
        u32 high = cover[i + 1 < N ? i + 1 : N - (odd == 0)];
        w[i] = __funnelshift_r(low, high, 8 * odd);
        low = high;
    }
}

DI u32 word(const u8* p) {
    u32 w[1];
    words(p, w);
    return w[0];
}

// 32 bytes from a multiple of 16.
DI void wide(const u8* p, u32 (&w)[8]) {
    uint4 first = ((const uint4*)p)[0], second = ((const uint4*)p)[1];
    w[0] = first.x, w[1] = first.y, w[2] = first.z, w[3] = first.w;
    w[4] = second.x, w[5] = second.y, w[6] = second.z, w[7] = second.w;
}

DI u32 pair(const u8* p) { return *(const u16*)p; }
DI float half_at(const u8* p) { return half_to_float(*(const u16*)p); }

// Scales of both halves, without minima.
DI void scale(Codes& c, float first, float second) {
    c.s[0] = first;
    c.s[1] = second;
    c.m[0] = c.m[1] = 0;
}
DI void scale(Codes& c, float both) { scale(c, both, both); }

// Every byte less `zero`: bytes of 0 to 127, of which none borrows from the next.
DI u32 minus(u32 bytes, u32 zero) { return bytes + FOUR(128 - zero) ^ FOUR(128u); }

DI u32 low_nibbles(u32 w) { return w & FOUR(15u); }
DI u32 high_nibbles(u32 w) { return w >> 4 & FOUR(15u); }

// Bit i of four as 0 or 1 in byte i.
DI u32 bit_bytes(u32 bits) { return (bits & 15) * 0x00204081u & FOUR(1u); }

// Bytes of 1 to 127, negated where the bit of four is set: as none is 0, no byte carries into the next.
DI u32 negate(u32 bytes, u32 bits) {
    u32 ones = bit_bytes(bits);
    return (bytes ^ ones * 255) + ones;
}
