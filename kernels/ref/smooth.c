/* Reference implementations of iteration smoothing. */
#include <math.h>

#include "kernels/ref/ref.h"
#include "kernels/rules/smooth.h"

/* The largest of a row's logits; NaN where one of them is. */
static double largest(const struct call_softmax *call, int64_t first) {
    double most = ref_load(call->logits, call->dtype, first);
    for (int64_t i = 1; i < call->n_vocab; i++) {
        const double x = ref_load(call->logits, call->dtype, first + i);
        most = x > most || isnan(x) ? x : most;
        if (isnan(most)) {
            return most;
        }
    }
    return most;
}

void ref_softmax(const struct call_softmax *call) {
    for (int64_t row = 0; row < call->n_rows; row++) {
        const int64_t first = row * call->n_vocab;
        const double t = call->by ? (double)call->by[row].temperature : 1;
        const double most = call->top ? (double)call->top[row] : largest(call, first);
        double sum = call->top ? 1 / (double)call->confidence[row] : 0;
        for (int64_t i = 0; !call->top && i < call->n_vocab; i++) {
            sum += exp((ref_load(call->logits, call->dtype, first + i) - most) / t);
        }
        for (int64_t i = 0; i < call->n_vocab; i++) {
            const double x = ref_load(call->logits, call->dtype, first + i);
            ref_store(call->y, call->dtype, first + i, exp((x - most) / t) / sum);
        }
    }
}

void ref_keep_expected(const struct call_keep_expected *call) {
    const int64_t n = call->n_channels;
    for (int64_t row = 0; row < call->n_rows; row++) {
        const float weight = (float)smooth_weight(call->weight_init, call->weight_growth,
                                                  call->weight_most, (uint32_t)call->step[row]);
        for (int64_t c = 0; call->places[row] >= 0 && c < n; c++) {
            const double x = ref_load(call->x, call->dtype, row * n + c);
            ref_store(call->kept, call->dtype, call->places[row] * n + c, weight * x);
        }
    }
}

void ref_add_expected(const struct call_add_expected *call) {
    const int64_t n = call->n_channels;
    for (int64_t t = 0; t < call->n_tokens; t++) {
        const bool adds = call->places[t] >= 0 && call->canvas[call->at[t]] == call->mask_token;
        for (int64_t c = 0; adds && c < n; c++) {
            const double kept = ref_load(call->kept, call->dtype, call->places[t] * n + c);
            ref_store(call->y, call->dtype, t * n + c,
                      ref_load(call->y, call->dtype, t * n + c) + kept);
        }
    }
}

void ref_next_step(const struct call_next_step *call) {
    for (int32_t r = 0; call->n_rows > 0 && r < call->n_requests; r++) {
        call->threshold[r] = smooth_threshold(
            call->threshold_decay, (uint32_t)call->step[call->first_row[r]], call->least[r]);
    }
    for (int32_t row = 0; row < call->n_rows; row++) {
        call->step[row]++;
    }
}
