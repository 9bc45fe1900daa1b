// What all of a device agree on as the time. How often it ticks is the card's affair: each 32 ns, or each microsecond.
#include "common/types.cuh"

#ifndef EMULATED

DI u64 nanoseconds() {
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t) : : "memory");
    return t;
}

#endif
