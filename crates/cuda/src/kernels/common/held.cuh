// How many registers of weights are under way in a thread at a time.
#include "common/reduce.cuh"

// Registers that units may fill beside `count` rows of activations and their sums.
DI constexpr int registers_beside(int held, int count) { return count > 4 ? held / 3 : count > 2 ? held * 5 / 9 : count > 1 ? held * 2 / 3 : held; }

// Units under way at a time, of so many in all; as many each time if they are not much fewer for it.
DI constexpr int piece_depth(int turns, int held, int registers) {
    int most = held / registers < 1 ? 1 : held / registers;
    for (int d = most; 2 * d > most; d--) {
        if (turns % d == 0) return d;
    }
    return most < turns ? most : turns;
}
