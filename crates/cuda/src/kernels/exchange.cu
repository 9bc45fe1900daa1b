// The sum over ranks that have a device each, in rank order and with the same bits on all (common/exchange.cuh): every rank
// pushes its summand to its peers and adds what comes. RECEIVE 0 only pushes; a norm then receives.
// x, y (where ADDENDS is 2: the summand is x + y), out [rows][WIDTH] f32; `to` has this rank's part of each rank's inbox, `inbox`
// is its own.
// LEGS 2: in two legs, each rank adding a share for all.
// Grid: BLOCKS, 1, 1, which all fit on a device at once, as a block waits for one of its peers'; BLOCK threads.
// Bytes an element: 4 read, 4 written; on the wire 2 or 4 for each peer.
#include "common/exchange.cuh"
#include "common/overlap.cuh"
#include "common/step.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    run(const int* step, const float* x, const float* y, float* out, uint4* const* to, uint4* inbox, Wait* wait, const int* op) {
    u64 packets = (u64)rows_in_turn(step) * (WIDTH / VEC), first = blockIdx.x * BLOCK + threadIdx.x;
#if LEGS == 2
    sum_shares<ADDENDS == 2>(x, y, out, to, inbox, first, BLOCKS * BLOCK, packets, wait, *op);
#else
    for (u64 t = first; t < packets; t += BLOCKS * BLOCK) push_packet(to, t, own_packet<ADDENDS == 2>(x, y, t));
#if RECEIVE
    receive_packets<ADDENDS == 2>(x, y, inbox, first, BLOCKS * BLOCK, packets, 0, out, wait, *op);
#endif
#endif
}
