// Kernels that overlap, where they were started so: the next may begin when all blocks of this one have said so or are done, and
// what earlier ones have written is there only after waiting for them. Otherwise, and before sm_90, both do nothing.
#include "common/types.cuh"

#ifndef EMULATED

DI void let_later_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

DI void await_earlier() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Has bytes that no kernel writes come nearer, so that they are there once it is its turn; by all threads of a block.
DI void fetch_ahead(const void* from, int bytes) {
    for (int at = threadIdx.x * 128; from && at < bytes; at += blockDim.x * 128) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"((const u8*)from + at));
    }
}

#endif

// What a kernel begins with that has nothing to do before: one that ended without waiting would have others believe that all before
// it is done.
DI void in_turn() {
    let_later_begin();
    await_earlier();
}
