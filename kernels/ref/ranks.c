/* Reference implementations of what ranks do together. */
#include <math.h>

#include "kernels/ref/ref.h"

void ref_all_reduce(const struct call_all_reduce *const *calls, int32_t n_ranks, int64_t first,
                    int64_t end) {
    for (int64_t i = first; i < end; i++) {
        double sum = 0;
        for (int32_t rank = 0; rank < n_ranks; rank++) {
            sum += ref_load(calls[rank]->x, calls[rank]->dtype, i);
        }
        for (int32_t rank = 0; rank < n_ranks; rank++) {
            ref_store(calls[rank]->y, calls[rank]->dtype, i, sum);
        }
    }
}

/* What a rank gathered of one row. */
struct part {
    int32_t token;
    double share, margin, entropy, logit;
};

static struct part part_of(const struct call_combine *call, int64_t rank, int64_t row) {
    const int64_t n = call->n_rows, n_fields = call->margin ? 5 : 3;
    const int32_t *token = (const int32_t *)call->gathered + n_fields * n * rank + row;
    const float *share = (const float *)(const void *)token + n;
    return (struct part){.token = *token,
                         .share = (double)share[0],
                         .margin = call->margin ? (double)share[n] : 0,
                         .entropy = call->margin ? (double)share[2 * n] : 0,
                         .logit = (double)share[(n_fields - 2) * n]};
}

void ref_combine(const struct call_combine *call) {
    for (int64_t row = 0; row < call->n_rows; row++) {
        struct part parts[CALL_MAX_RANKS] = {part_of(call, 0, row)};
        int32_t best = 0;
        for (int32_t rank = 1; rank < call->n_ranks; rank++) {
            parts[rank] = part_of(call, rank, row);
            best = parts[rank].logit > parts[best].logit ? rank : best;
        }
        double sum = 0;
        for (int32_t rank = 0; rank < call->n_ranks; rank++) {
            sum += exp(parts[rank].logit - parts[best].logit) / parts[rank].share;
        }
        call->token[row] = parts[best].token + best * call->n_vocab;
        call->confidence[row] = (float)(1 / sum);
        if (call->logit) {
            call->logit[row] = (float)parts[best].logit;
        }
        if (!call->margin) {
            continue;
        }
        double second = 0, entropy = 0;
        for (int32_t rank = 0; rank < call->n_ranks; rank++) {
            const struct part *p = &parts[rank];
            const double weight = exp(p->logit - parts[best].logit) / p->share / sum;
            second = fmax(second, weight * (rank == best ? p->share - p->margin : p->share));
            entropy += weight > 0 ? weight * (p->entropy + log(weight)) : 0;
        }
        /* fmax would lose what is no number. */
        call->margin[row] = isnan(sum) ? (float)NAN : (float)(1 / sum - second);
        call->entropy[row] = isnan(sum) ? (float)NAN : (float)entropy;
    }
}
