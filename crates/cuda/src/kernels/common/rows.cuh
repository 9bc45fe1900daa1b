// Rows of weights times rows of activations, the weights streamed through shared memory: what every matrix kernel does.
//
// A row is SEGMENTS segments of COLS elements, each with weights and activations of its own. The segments are cut into
// steps, a step being 32 chunks, or as many short segments as fit side by side into 32 lanes. `warps` warps share a row, each
// has `each` steps of it one after the other; so a block has 8 / warps rows under way. A lane adds its chunks in order, then
// lanes are added, then warps: the order follows from the shape alone, whatever runs beside it and however many rows of
// activations there are.
// TILE: rows of activations.
#include "common/chunk.cuh"
#include "common/overlap.cuh"
#include "common/reduce.cuh"
#include "common/ring.cuh"

// Registers of a thread for activations, as long as rows of them are few.
#define ROWS_HELD 24
// Rows of weights between two barriers, and bytes of shared memory in all.
#define ROWS_BATCH 32
#define ROWS_SHARED (46 << 10)

DI constexpr int rows_lanes(int chunks) { return chunks > 16 ? 32 : chunks > 8 ? 16 : chunks > 4 ? 8 : chunks > 2 ? 4 : chunks; }

DI constexpr int rows_warps(int steps) {
    int warps = 1;
    while (warps < 8 && (steps + warps - 1) / warps * CHUNK_HELD > ROWS_HELD) warps *= 2;
    return warps;
}

// The largest divisor of n that is at most `most`, at least 1.
DI constexpr int rows_divisor(int n, int most) {
    int d = most < 1 ? 1 : most < n ? most : n;
    while (n % d) d--;
    return d;
}

// How rows of so many segments are shared out; STREAMS rows are multiplied side by side.
template <int STREAMS, int SEGMENTS>
struct Shape {
    static constexpr int chunks = COLS / CHUNK;
    static constexpr int lanes = rows_lanes(chunks), abreast = SEGMENTS < 32 / lanes ? SEGMENTS : 32 / lanes;
    static constexpr int segment_steps = (chunks + 31) / 32;
    static constexpr int steps = lanes == 32 ? SEGMENTS * segment_steps : (SEGMENTS + abreast - 1) / abreast;
    static constexpr int warps = rows_warps(steps), teams = 8 / warps, each = (steps + warps - 1) / warps;
    // the longest piece, with what lies around it
    static constexpr int room = (chunk_offset(chunks < 32 ? chunks : 32) + 15) / 16 * 16 + 16;
    static constexpr int sums = STREAMS * TILE * warps * ROWS_BATCH;
    static constexpr int ring = (ROWS_SHARED - 4 * sums) / 8;
    static constexpr int together = rows_divisor(each, ring / 3 / (STREAMS * abreast * room));
    static constexpr int rounds = each / together;
    static constexpr int pieces = STREAMS * together * abreast, stage = pieces * room;
    static constexpr int stages = ring / stage < 1 ? 1 : ring / stage > 8 ? 8 : ring / stage;
    static_assert(pieces <= 32, "a lane asks for a piece");
};

// Does a thread hold its activations in registers?
#define ROWS_HOLDS (CHUNK_HOLDS && TILE <= 4)

// Of n rows that all blocks share, the first of block b.
DI int rows_first(int n, int b) { return (int)((u64)n * b / gridDim.x); }

// What is the same for all segments.
struct Always {
    DI bool operator()(int) const { return true; }
};
struct Once {
    DI float operator()(int) const { return 1; }
};

// Rows `first` to `last`. `weights(n, stream, segment)` is where a segment of row n begins, `has(segment)` whether it counts
// at all, `input(t, segment)` its activations, `factor(segment)` what its product is multiplied by. `finish(n, in, t, sums)`
// gets the sums of all streams from whole warps, a lane a row, of which those that are not `in` are beyond the last.
template <int STREAMS, int SEGMENTS, class Weights, class Has, class Activations, class Factor, class Finish>
DI void each_row(int first, int last, Weights weights, Has has, Activations input, Factor factor, Finish finish) {
    using S = Shape<STREAMS, SEGMENTS>;
    __shared__ __align__(128) u8 ring[8][S::stages][S::stage];
    __shared__ __align__(8) u64 full[8][S::stages];
    __shared__ float part[S::warps][STREAMS][TILE][ROWS_BATCH];
    let_later_begin();
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, slice = warp % S::warps, team = warp / S::warps;
    int rows = first + team < last ? (last - first - team + S::teams - 1) / S::teams : 0, turns = rows * S::rounds;
    if (lane < S::stages) ring_init(&full[warp][lane], S::pieces);
    ring_ready();

    // lane p asks for piece p: stream, step and place beside others
    auto fill = [&](int turn) {
        if (turn >= turns) return;
        int n = first + team + turn / S::rounds * S::teams, stream = lane / (S::together * S::abreast);
        int step = slice * S::each + turn % S::rounds * S::together + lane / S::abreast % S::together;
        int segment = S::lanes == 32 ? step / S::segment_steps : step * S::abreast + lane % S::abreast;
        int chunk = S::lanes == 32 ? step % S::segment_steps * 32 : 0;
        const u8* from = nullptr;
        u32 bytes = 0;
        if (lane < S::pieces && segment < SEGMENTS && has(segment)) {
            from = weights(n, stream, segment) + chunk_offset(chunk);
            u32 around = (u32)(u64)from & 15;
            from -= around;
            bytes = (chunk_offset(min(32, S::chunks - chunk)) + around + 15) / 16 * 16;
        }
        int stage = turn % S::stages;
        ring_fill<S::pieces, S::room>(ring[warp][stage], &full[warp][stage], from, bytes);
    };
#pragma unroll
    for (int turn = 0; turn < S::stages; turn++) fill(turn);
    await_earlier();

    // where lane's chunk of step j lies
    auto segment_of = [&](int j) {
        int step = slice * S::each + j;
        return S::lanes == 32 ? step / S::segment_steps : step * S::abreast + lane / S::lanes;
    };
    auto chunk_of = [&](int j) { return S::lanes == 32 ? (slice * S::each + j) % S::segment_steps * 32 + lane : lane % S::lanes; };
    auto counts = [&](int j) {
        return lane / S::lanes < S::abreast && segment_of(j) < SEGMENTS && chunk_of(j) < S::chunks && has(segment_of(j));
    };
#if ROWS_HOLDS
    Given held[S::each][TILE];
#pragma unroll
    for (int j = 0; j < S::each; j++) {
#pragma unroll
        for (int t = 0; t < TILE; t++) {
            if (counts(j)) held[j][t] = given(input(t, segment_of(j)), chunk_of(j));
        }
    }
#endif

    int turn = 0;
    for (int base = first; base < last; base += ROWS_BATCH) {
        int end = min(last, base + ROWS_BATCH);
        for (int n = base + team; n < end; n += S::teams) {
            float sum[STREAMS][TILE] = {};
#pragma unroll(ROWS_HOLDS ? S::rounds : 1)
            for (int r = 0; r < S::rounds; r++, turn++) {
                int stage = turn % S::stages;
                ring_wait(&full[warp][stage], S::pieces, turn / S::stages);
#pragma unroll
                for (int g = 0; g < S::together; g++) {
                    int j = r * S::together + g;
                    if (!counts(j)) continue;
#pragma unroll
                    for (int stream = 0; stream < STREAMS; stream++) {
                        int piece = (stream * S::together + g) * S::abreast + lane / S::lanes;
                        const u8* at = ring[warp][stage] + piece * S::room;
                        if (ROW_BYTES % 16 || chunk_offset(32) % 16) {
                            u32 before = chunk_offset(chunk_of(j) - lane % S::lanes);
                            at += (u32)((u64)weights(n, stream, segment_of(j)) + before) & 15;
                        }
                        Taken w = taken(at, lane % S::lanes);
#pragma unroll
                        for (int t = 0; t < TILE; t++) {
#if ROWS_HOLDS
                            sum[stream][t] += factor(segment_of(j)) * chunk_dot(w, held[j][t]);
#else
                            sum[stream][t] += factor(segment_of(j)) * chunk_dot(w, given(input(t, segment_of(j)), chunk_of(j)));
#endif
                        }
                    }
                }
                __syncwarp();
                fill(turn + S::stages);
            }
#pragma unroll
            for (int stream = 0; stream < STREAMS; stream++) {
#pragma unroll
                for (int t = 0; t < TILE; t++) {
                    float v = warp_sum(sum[stream][t]);
                    if (lane == 0) part[slice][stream][t][n - base] = v;
                }
            }
        }
        __syncthreads();
        for (int t = warp; t < TILE; t += 8) {
            float v[STREAMS];
#pragma unroll
            for (int stream = 0; stream < STREAMS; stream++) {
                v[stream] = part[0][stream][t][lane];
#pragma unroll
                for (int w = 1; w < S::warps; w++) v[stream] += part[w][stream][t][lane];
            }
            finish(base + lane, base + lane < last, t, v);
        }
        __syncthreads();
    }
}
