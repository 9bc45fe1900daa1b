// The time at which this kernel runs, which is after all in front of it: between two of them lies what a launch takes.
// Grid: 1, 1, 1; 1 thread. Bytes: 8.
#include "common/clock.cuh"
#include "common/overlap.cuh"

extern "C" __global__ void __launch_bounds__(1) run(u64* at) {
    await_earlier();
    *at = nanoseconds();
}
