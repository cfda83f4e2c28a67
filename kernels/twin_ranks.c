/* Twins of what ranks do together. */
#include <math.h>

#include "kernels/twin.h"

void twin_all_reduce(const struct call_all_reduce *const *calls, int32_t n_ranks, int64_t first,
                     int64_t end) {
    for (int64_t i = first; i < end; i++) {
        double sum = 0;
        for (int32_t rank = 0; rank < n_ranks; rank++) {
            sum += twin_load(calls[rank]->x, calls[rank]->dtype, i);
        }
        for (int32_t rank = 0; rank < n_ranks; rank++) {
            twin_store(calls[rank]->y, calls[rank]->dtype, i, sum);
        }
    }
}

void twin_combine(const struct call_combine *call) {
    const int64_t n = call->n_rows;
    for (int64_t row = 0; row < n; row++) {
        const int32_t *token = (const int32_t *)call->gathered + row;
        const float *share = (const float *)call->gathered + n + row, *logit = share + n;
        int64_t best = 0;
        for (int32_t rank = 1; rank < call->n_ranks; rank++) {
            best = logit[3 * n * rank] > logit[3 * n * best] ? rank : best;
        }
        double sum = 0;
        for (int32_t rank = 0; rank < call->n_ranks; rank++) {
            const double apart = (double)logit[3 * n * rank] - (double)logit[3 * n * best];
            sum += exp(apart) / (double)share[3 * n * rank];
        }
        call->token[row] = token[3 * n * best] + (int32_t)best * call->n_vocab;
        call->confidence[row] = (float)(1 / sum);
    }
}
