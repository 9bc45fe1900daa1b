// The best CANDIDATES of each answer's logits, and what the sum of exp over all is made of, in two passes: first of each
// CHUNK logits, then (LAST) of what the chunks left.
// First: logits [wanted][VOCAB] f32 -> list. Last: list -> list of one chunk. A chunk of a list is ids [CANDIDATES],
// logits [CANDIDATES], then the largest logit, the sum of exp(logit - largest), the number of candidates, and whether
// all logits were finite. Ids count from FIRST. Ties go to the lower id; candidates are in order of their ids.
// Grid: chunks (first) or 1 (last), 1, rows; 512 threads. Bytes: 4 a logit.
#include "common/overlap.cuh"
#include "common/reduce.cuh"
#include "common/select.cuh"
#include "common/step.cuh"

#define CHUNKS ((VOCAB + CHUNK - 1) / CHUNK)

struct Found {
    u32 ids[CANDIDATES];
    float logits[CANDIDATES];
    float most, sum;
    int count, finite;
};

#if LAST

extern "C" __global__ void __launch_bounds__(512) run(const int* step, const Found* list, Found* out) {
    bool wanted = blockIdx.z < step_wanted(step);
    in_turn();
    if (!wanted) return;
    list += (u64)blockIdx.z * CHUNKS;
    out += blockIdx.z;
    // what a chunk has not filled is below every logit
    __shared__ u32 keys[CHUNKS * CANDIDATES];
    for (int t = threadIdx.x; t < CHUNKS * CANDIDATES; t += 512) {
        const Found& f = list[t / CANDIDATES];
        keys[t] = t % CANDIDATES < f.count ? ordered(f.logits[t % CANDIDATES]) : 0;
    }
    float most = -INFINITY_F, sum = 0, bad = 0;
    for (int c = threadIdx.x; c < CHUNKS; c += 512) {
        most = fmaxf(most, list[c].most);
        bad = fmaxf(bad, list[c].finite ? 0 : 1);
    }
    most = block_max<512>(most);
    bad = block_max<512>(bad);
    for (int c = threadIdx.x; c < CHUNKS; c += 512) sum += list[c].sum * expf(list[c].most - most);
    sum = block_sum<512>(sum);
    const u32* held = keys;
    auto write = [=](int n, int t) {
        out->ids[n] = list[t / CANDIDATES].ids[t % CANDIDATES];
        out->logits[n] = list[t / CANDIDATES].logits[t % CANDIDATES];
    };
    each_kept<512>(CHUNKS * CANDIDATES, CANDIDATES, [=](int t) { return held[t]; }, write);
    if (threadIdx.x == 0) {
        out->most = most;
        out->sum = sum;
        out->count = min(VOCAB, CANDIDATES);
        out->finite = bad == 0;
    }
}

#else

extern "C" __global__ void __launch_bounds__(512) run(const int* step, const float* logits, Found* list) {
    bool wanted = blockIdx.z < step_wanted(step);
    in_turn();
    if (!wanted) return;
    int first = blockIdx.x * CHUNK, count = min(CHUNK, VOCAB - first);
    logits += (u64)blockIdx.z * VOCAB + first;
    list += (u64)blockIdx.z * CHUNKS + blockIdx.x;
    __shared__ float v[CHUNK];
    float most = -INFINITY_F, sum = 0, bad = 0;
    for (int t = threadIdx.x; t < count; t += 512) {
        v[t] = logits[t];
        most = fmaxf(most, v[t]);
        if (!(fabsf(v[t]) < INFINITY_F)) bad = 1;
    }
    most = block_max<512>(most);
    bad = block_max<512>(bad);
    for (int t = threadIdx.x; t < count; t += 512) sum += expf(v[t] - most);
    sum = block_sum<512>(sum);
    const float* kept = v;
    auto write = [=](int n, int t) {
        list->ids[n] = FIRST + first + t;
        list->logits[n] = kept[t];
    };
    each_kept<512>(count, CANDIDATES, [=](int t) { return ordered(kept[t]); }, write);
    if (threadIdx.x == 0) {
        list->most = most;
        list->sum = sum;
        list->count = min(count, CANDIDATES);
        list->finite = bad == 0;
    }
}

#endif
