/* Twins of products, of the LM head and of the decoders' rules. */
#include <math.h>
#include <stdlib.h>

#include "kernels/bf16.h"
#include "kernels/twin.h"

void twin_linear(const struct call_linear *call) {
    for (int64_t t = 0; t < call->n_tokens; t++) {
        for (int64_t o = 0; o < call->n_outputs; o++) {
            const int64_t at = t * call->y_stride + o;
            double sum = 0;
            for (int64_t i = 0; i < call->n_inputs; i++) {
                sum += twin_load(call->x, call->dtype, t * call->x_stride + i) *
                       twin_load(call->w, call->dtype, o * call->n_inputs + i);
            }
            sum += call->add ? twin_load(call->add, call->dtype, at) : 0;
            twin_store(call->y, call->dtype, at, sum);
        }
    }
}

void twin_head_logits(const struct call_head *call, int32_t row, double *logits) {
    const int64_t n = call->n_channels;
    for (int64_t token = 0; token < call->n_vocab; token++) {
        double sum = 0;
        for (int64_t c = 0; c < n; c++) {
            sum += twin_load(call->x, call->dtype, row * n + c) *
                   twin_load(call->w, call->dtype, token * n + c);
        }
        logits[token] = sum;
    }
}

/* The first largest of n logits and its softmax probability. */
static void surest(const double *logits, int32_t n, int32_t *token, float *confidence,
                   float *logit) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += exp(logits[i] - logits[best]);
    }
    *token = best;
    *confidence = (float)(1 / sum);
    if (logit) {
        *logit = (float)logits[best];
    }
}

bool twin_head(const struct call_head *call) {
    double *logits = malloc(sizeof *logits * (size_t)call->n_vocab);
    if (!logits) {
        return false;
    }
    for (int32_t row = 0; row < call->n_rows; row++) {
        twin_head_logits(call, row, logits);
        for (int32_t i = 0; call->rounded && i < call->n_vocab; i++) {
            logits[i] = (double)bf16_to_float(bf16_from_float((float)logits[i]));
        }
        surest(logits, call->n_vocab, &call->token[row], &call->confidence[row],
               call->logit ? &call->logit[row] : NULL);
    }
    free(logits);
    return true;
}

bool twin_sample(const struct call_sample *call) {
    double *logits = malloc(sizeof *logits * (size_t)call->n_vocab);
    if (!logits) {
        return false;
    }
    for (int64_t row = 0; row < call->n_rows; row++) {
        for (int64_t i = 0; i < call->n_vocab; i++) {
            logits[i] = twin_load(call->logits, call->dtype, row * call->n_vocab + i);
        }
        surest(logits, call->n_vocab, &call->token[row], &call->confidence[row],
               call->logit ? &call->logit[row] : NULL);
    }
    free(logits);
    return true;
}

static bool candidate(const struct call_decode *call, int64_t row) {
    return !call->canvas || call->canvas[call->position[row]] == call->mask_token;
}

/* Candidates of the rows begin .. end that the rule prefers to this one. */
static int32_t n_preferred(const struct call_decode *call, int32_t begin, int32_t end,
                           int32_t row) {
    const float mine = call->confidence[row];
    int32_t n = 0;
    for (int32_t other = begin; other < end; other++) {
        const float its = call->confidence[other];
        n += candidate(call, other) && (its > mine || (its == mine && other < row));
    }
    return n;
}

void twin_decode(const struct call_decode *call) {
    for (int32_t r = 0; r < call->n_requests; r++) {
        const int32_t begin = call->first_row[r], end = begin + call->n_rows[r];
        int32_t n_sure = 0, n_committed = 0;
        for (int32_t row = begin; row < end; row++) {
            n_sure += candidate(call, row) && call->confidence[row] >= call->threshold;
        }
        const int32_t take = call->take ? call->take[r] : n_sure > 1 ? n_sure : 1;
        for (int32_t row = begin; row < end; row++) {
            call->committed[row] =
                candidate(call, row) && n_preferred(call, begin, end, row) < take;
            n_committed += call->committed[row];
        }
        for (int32_t row = begin; call->canvas && row < end; row++) { /* all are chosen by now */
            if (call->committed[row]) {
                call->canvas[call->position[row]] = call->token[row];
            }
        }
        if (call->n_committed) {
            call->n_committed[r] = n_committed;
        }
    }
}
