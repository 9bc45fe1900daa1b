// The parts of an attention, joined in their order: sum over parts of exp(most_p - most) sum_p, divided by the sum of
// weights. A part is Value elements, the largest score, the sum of weights, as attend.cu leaves it.
#include "common/types.cuh"

template <int Parts, int Value>
struct Merge {
    const float* part;
    float most, total;

    DI float score(int p) const { return part[p * (Value + 2) + Value]; }

    DI explicit Merge(const float* of) : part(of), most(-INFINITY_F), total(0) {
        for (int p = 0; p < Parts; p++) most = fmaxf(most, score(p));
        for (int p = 0; p < Parts; p++) {
            if (score(p) != -INFINITY_F) total += expf(score(p) - most) * part[p * (Value + 2) + Value + 1];
        }
    }

    DI float at(int k) const {
        float v = 0;
        for (int p = 0; p < Parts; p++) {
            if (score(p) != -INFINITY_F) v += expf(score(p) - most) * part[p * (Value + 2) + k];
        }
        return v / total;
    }
};
