// The last block to arrive goes on alone, so that no block ever waits.
#include "common/types.cuh"

// Is this the last of `blocks` blocks to come here? If so, all its threads see what the others wrote. `arrived` is zero
// before and after.
DI bool last_block(int* arrived, int blocks) {
    __shared__ int last;
    __syncthreads();
    // one thread's fence is also for what others wrote before they met
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(arrived, 1) == blocks - 1;
        if (last) {
            *arrived = 0;
            __threadfence();
        }
    }
    __syncthreads();
    return last;
}
