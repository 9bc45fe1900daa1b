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

#endif

// What a kernel begins with that has nothing to do before: one that ended without waiting would have others believe that all before
// it is done.
DI void in_turn() {
    let_later_begin();
    await_earlier();
}
