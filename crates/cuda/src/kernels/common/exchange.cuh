// The way of a summand to the ranks on other devices. What lies in an inbox is its own flag: a word is EMPTY
// until it has come, so packets may arrive late, torn and in any order, and nothing is fenced.
// RANKS: how many; BF16: two bf16 a word, else an f32; CAPACITY: packets of a sender's part of an inbox.
#include "common/clock.cuh"
#include "common/types.cuh"

#define EMPTY 0xffffffffu

// Elements of a packet.
#if BF16
#define VEC 8
#else
#define VEC 4
#endif

// Who waits, how long, and whom to tell.
struct Wait {
    u64 patience; // nanoseconds
    u32* told;    // the host's: 1, the op, a bit for each missing peer
    u32 rank;
    u32 given_up; // by anybody on this device
};

#ifndef EMULATED

DI uint4 load_packet(const uint4* p) {
    uint4 v;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}

DI void store_packet(uint4* p, uint4 v) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

#endif

DI u32 bf16_pair(float low, float high) { return (u32)float_to_bf16(high) << 16 | float_to_bf16(low); }

DI bool missing(uint4 v) { return v.x == EMPTY || v.y == EMPTY || v.z == EMPTY || v.w == EMPTY; }

// A word that looks like none becomes another NaN.
DI u32 present(u32 w) { return w == EMPTY ? 0x7fff7fffu : w; }

// VEC elements as they travel.
DI uint4 packed(const float* v) {
    uint4 p;
#if BF16
    p.x = bf16_pair(v[0], v[1]), p.y = bf16_pair(v[2], v[3]), p.z = bf16_pair(v[4], v[5]), p.w = bf16_pair(v[6], v[7]);
#else
    p.x = __float_as_uint(v[0]), p.y = __float_as_uint(v[1]), p.z = __float_as_uint(v[2]), p.w = __float_as_uint(v[3]);
#endif
    p.x = present(p.x), p.y = present(p.y), p.z = present(p.z), p.w = present(p.w);
    return p;
}

DI void unpacked(uint4 p, float* v) {
    const u32 words[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
    for (int i = 0; i < VEC; i++) {
#if BF16
        v[i] = bf16_to_float((u16)(words[i / 2] >> 16 * (i % 2)));
#else
        v[i] = __uint_as_float(words[i]);
#endif
    }
}

// Packet t of the rank's own summand: of x, or of x + y.
template <bool TWO>
DI uint4 own_packet(const float* x, const float* y, u64 t) {
    float v[VEC];
#pragma unroll
    for (int i = 0; i < VEC; i += 4) {
        float4 a = *(const float4*)(x + t * VEC + i);
        if (TWO) {
            float4 b = *(const float4*)(y + t * VEC + i);
            a.x += b.x, a.y += b.y, a.z += b.z, a.w += b.w;
        }
        v[i] = a.x, v[i + 1] = a.y, v[i + 2] = a.z, v[i + 3] = a.w;
    }
    return packed(v);
}

// Packet t to all peers. `to`: this rank's part of each one's inbox, beginning with the peer after it.
DI void push_packet(uint4* const* to, u64 t, uint4 p) {
#pragma unroll
    for (int i = 0; i < RANKS - 1; i++) store_packet(to[i] + t, p);
}

// Has this wait taken too long, or one before it? `open`: the peers that are waited for.
DI bool gives_up(Wait* wait, int op, u32 open, u32& polls, u64& since) {
    if (++polls % 64) return false;
    if (*(volatile u32*)&wait->given_up) return true;
    u64 now = nanoseconds();
    if (!since) since = now;
    if (now - since <= wait->patience) return false;
    if (atomicExch(&wait->given_up, 1u) == 0) {
        volatile u32* told = wait->told;
        told[1] = (u32)op;
        told[2] = open;
        __threadfence_system();
        told[0] = 1;
    }
    return true;
}

// All ranks but this one, a bit each.
DI u32 peers(u32 rank) { return ((1u << RANKS) - 1) & ~(1u << rank); }

// Packet t of every peer in `open`, as soon as all have come; all that are missing are looked for together.
DI void await_packets(uint4 (&p)[RANKS], const uint4* inbox, u64 t, u32 open, Wait* wait, int op) {
    u32 polls = 0;
    u64 since = 0;
    while (open) {
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            if (open >> r & 1) p[r] = load_packet(inbox + (u64)r * CAPACITY + t);
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            if (open >> r & 1 && !missing(p[r])) open &= ~(1u << r);
        if (open && gives_up(wait, op, open, polls, since)) return;
    }
}

// Makes this rank's own slot ready for the exchange after the next.
DI void rearm_packets(uint4* inbox, u64 t, u32 of) {
#pragma unroll
    for (int r = 0; r < RANKS; r++)
        if (of >> r & 1) store_packet(inbox + (u64)r * CAPACITY + t, uint4{EMPTY, EMPTY, EMPTY, EMPTY});
}

// The summands in rank order.
DI void sum_packets(const uint4 (&p)[RANKS], float* sum) {
    unpacked(p[0], sum);
#pragma unroll
    for (int r = 1; r < RANKS; r++) {
        float v[VEC];
        unpacked(p[r], v);
#pragma unroll
        for (int i = 0; i < VEC; i++) sum[i] += v[i];
    }
}

// The sums of packets first, first + stride, ... below `end`, to sums[t - base] onwards. Lanes of a warp come with consecutive
// packets and leave together, so that stores are whole again after a wait.
template <bool TWO>
DI void receive_packets(const float* x, const float* y, uint4* inbox, u64 first, u64 stride, u64 end, u64 base, float* sums,
                        Wait* wait, int op) {
    for (u64 t = first; t - threadIdx.x % 32 < end; t += stride) {
        uint4 p[RANKS];
        if (t < end) {
            uint4 own = own_packet<TWO>(x, y, t);
#pragma unroll
            for (int r = 0; r < RANKS; r++) p[r] = own;
            await_packets(p, inbox, t, peers(wait->rank), wait, op);
        }
        __syncwarp();
        if (t < end) {
            float sum[VEC];
            sum_packets(p, sum);
#pragma unroll
            for (int i = 0; i < VEC; i += 4)
                *(float4*)(sums + (t - base) * VEC + i) = make_float4(sum[i], sum[i + 1], sum[i + 2], sum[i + 3]);
            rearm_packets(inbox, t, peers(wait->rank));
        }
    }
}

// Packets of f32 that the sums of a packet are.
#define SUMS (VEC / 4)

// The sums of all packets in two legs: each rank adds a share of them for all and sends the sums, unrounded, to all. The same
// bits, and fewer bytes where ranks are many: a peer's part of an inbox holds its packets of this rank's share, then its sums.
template <bool TWO>
DI void sum_shares(const float* x, const float* y, float* out, uint4* const* to, uint4* inbox, u64 first, u64 stride,
                   u64 packets, Wait* wait, int op) {
    const u32 rank = wait->rank;
    const u64 share = (packets + RANKS - 1) / RANKS;
    for (u64 k = first; k < share; k += stride) {
#pragma unroll
        for (int i = 0; i < RANKS - 1; i++) {
            u64 t = (rank + 1 + i) % RANKS * share + k;
            if (t < packets) store_packet(to[i] + k, own_packet<TWO>(x, y, t));
        }
    }
    for (u64 k = first; k - threadIdx.x % 32 < share; k += stride) {
        uint4 p[RANKS];
        u64 t = rank * share + k;
        bool in = k < share && t < packets;
        if (in) {
            uint4 own = own_packet<TWO>(x, y, t);
#pragma unroll
            for (int r = 0; r < RANKS; r++) p[r] = own;
            await_packets(p, inbox, k, peers(rank), wait, op);
        }
        __syncwarp();
        if (in) {
            float sum[VEC];
            sum_packets(p, sum);
            rearm_packets(inbox, k, peers(rank));
#pragma unroll
            for (int s = 0; s < SUMS; s++) {
                const float* v = sum + 4 * s;
                *(float4*)(out + t * VEC + 4 * s) = make_float4(v[0], v[1], v[2], v[3]);
                uint4 words = {present(__float_as_uint(v[0])), present(__float_as_uint(v[1])),
                               present(__float_as_uint(v[2])), present(__float_as_uint(v[3]))};
                push_packet(to, share + SUMS * k + s, words);
            }
        }
    }
    for (u64 k = first; k - threadIdx.x % 32 < share; k += stride) {
        u32 open = 0;
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            if (r != rank && k < share && r * share + k < packets) open |= 1u << r;
#pragma unroll
        for (int s = 0; s < SUMS; s++) {
            uint4 p[RANKS];
            await_packets(p, inbox, share + SUMS * k + s, open, wait, op);
            __syncwarp();
#pragma unroll
            for (int r = 0; r < RANKS; r++)
                if (open >> r & 1) *(uint4*)(out + (r * share + k) * VEC + 4 * s) = p[r];
            rearm_packets(inbox, share + SUMS * k + s, open);
        }
    }
}
