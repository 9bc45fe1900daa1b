// Asking for weights before there is anything to multiply them with, so that memory is busy meanwhile.
#include "common/types.cuh"

#ifndef EMULATED

DI void ask_for(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

#endif

// By Threads threads, of which this is number `thread`: the first Each bytes of each of `rows` rows of M from w on.
template <class M, int Each, int Threads>
DI void ask_ahead(const u8* w, int rows, int thread) {
    const int line = 128, lines = (Each + line - 1) / line;
    for (int n = thread; n < rows * lines; n += Threads) ask_for(M::at(w, n / lines) + n % lines * line);
}
