// Weights on their way through shared memory. A warp asks for pieces long before it needs them, and waits for those of one
// stage at a time: on newer architectures the copy engine brings them (cp.async.bulk), before that the lanes themselves
// (cp.async). Pieces begin anywhere; whole runs of 16 bytes around them are copied, which memory has room for.
#include "common/types.cuh"

#ifndef EMULATED

#if __CUDA_ARCH__ >= 900
#define RING_ARRIVALS(pieces) (pieces)
#else
#define RING_ARRIVALS(pieces) 32
#endif

DI u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// A stage's barrier, before anybody waits at it: by one lane.
DI void ring_init(u64* full, int pieces) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(full)), "r"(RING_ARRIVALS(pieces)) : "memory");
}

// What was done to barriers is seen by the copy engine.
DI void ring_ready() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
    __syncwarp();
}

// By all lanes: piece p of a stage, from where lane p says to ROOM x p, as many bytes as it says, a multiple of 16, or none.
template <int PIECES, int ROOM>
DI void ring_fill(u8* stage, u64* full, const u8* from, u32 bytes) {
    int lane = threadIdx.x % 32;
    u32 barrier = shared_address(full);
#if __CUDA_ARCH__ >= 900
    if (lane >= PIECES) return;
    if (bytes == 0) {
        asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
        return;
    }
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(stage + lane * ROOM)),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
#else
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        const u8* piece = (const u8*)__shfl_sync(~0u, (u64)from, p);
        u32 size = __shfl_sync(~0u, bytes, p), to = shared_address(stage + p * ROOM);
        for (u32 at = 16 * lane; at < size; at += 512) {
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + at), "l"(piece + at) : "memory");
        }
    }
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
#endif
}

// Until the stage was filled `turn` + 1 times.
DI void ring_wait(u64* full, int, int turn) {
    u32 done, barrier = shared_address(full);
    do {
#if __CUDA_ARCH__ >= 900
        asm volatile(
            "{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
            : "=r"(done)
            : "r"(barrier), "r"(turn & 1)
            : "memory");
#else
        asm volatile(
            "{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
            : "=r"(done)
            : "r"(barrier), "r"(turn & 1)
            : "memory");
#endif
    } while (!done);
}

#endif
