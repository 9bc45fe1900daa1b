// The end of a product whose outputs are this rank's summand of a sum over devices: a block sends the peers what it has just made, and
// leaves it where this rank's own norm reads it. Each block does so after its own wait for what is in front of the kernel: this rank has then
// received the exchange before, which everybody has begun to push, and so has emptied the slot that this one goes to. That other
// blocks have not begun yet, or are done, is nothing to it. The norm behind waits for all of them.
#include "common/exchange.cuh"

// Reads ahead where the peers' inboxes lie, which never changes, so that nobody waits for that in the end.
DI void find_inboxes(uint4* (&inboxes)[RANKS], uint4* const* to) {
    if (threadIdx.x < RANKS - 1) inboxes[threadIdx.x] = to[threadIdx.x];
}

// Elements first to first + own of `rows` rows from `row` on, each of Width; made(t, r) is element first + r of row `row` + t. A block
// makes whole packets. Threads share out packets and where they go: each peer, or, in the first place, `out`.
template <int Width, int Own, class F>
DI void push_made(uint4* const (&inboxes)[RANKS], float* out, int row, int rows, int first, int own, F made) {
    static_assert(Own % VEC == 0 && Width % VEC == 0, "packets are of one block");
    const int at_once = BLOCK / RANKS, packets = Own / VEC;
    int way = threadIdx.x % RANKS;
    // what is left of the block would push what others push, perhaps when it has been received already
    if (threadIdx.x >= at_once * RANKS) return;
    for (int k = threadIdx.x / RANKS; k < rows * packets; k += at_once) {
        int t = k / packets, r = k % packets * VEC;
        if (r >= own) continue;
        float v[VEC];
#pragma unroll
        for (int i = 0; i < VEC; i++) v[i] = made(t, r + i);
        u64 at = (u64)(row + t) * Width + first + r;
        if (way) {
            store_packet(inboxes[way - 1] + at / VEC, packed(v));
        } else {
#pragma unroll
            for (int i = 0; i < VEC; i += 4) *(float4*)(out + at + i) = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
        }
    }
}
