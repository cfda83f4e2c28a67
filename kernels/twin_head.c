/* Twins of the LM head and of the decoders' rules. */
#include <math.h>
#include <stdlib.h>

#include "kernels/bf16.h"
#include "kernels/twin.h"

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

bool twin_head(const struct call_head *call) {
    double *logits = malloc(sizeof *logits * (size_t)call->n_vocab);
    if (!logits) {
        return false;
    }
    for (int32_t row = 0; row < call->n_rows; row++) {
        twin_head_logits(call, row, logits);
        int32_t best = 0;
        for (int32_t token = 0; token < call->n_vocab; token++) {
            if (call->rounded) {
                logits[token] = (double)bf16_to_float(bf16_from_float((float)logits[token]));
            }
            best = logits[token] > logits[best] ? token : best;
        }
        double sum = 0;
        for (int32_t token = 0; token < call->n_vocab; token++) {
            sum += exp(logits[token] - logits[best]);
        }
        call->token[row] = best;
        call->confidence[row] = (float)(1 / sum);
    }
    free(logits);
    return true;
}

void twin_decode(const struct call_decode *call) {
    for (int32_t r = 0; r < call->n_requests; r++) {
        const int32_t begin = call->start[r], end = call->start[r + 1];
        int32_t n_sure = 0;
        for (int32_t row = begin; row < end; row++) {
            n_sure += call->confidence[row] >= call->threshold;
        }
        const int32_t take = call->take ? call->take[r] : n_sure > 1 ? n_sure : 1;
        for (int32_t row = begin; row < end; row++) {
            const float mine = call->confidence[row];
            int32_t n_before = 0;
            for (int32_t other = begin; other < end; other++) {
                const float its = call->confidence[other];
                n_before += its > mine || (its == mine && other < row);
            }
            call->committed[row] = n_before < take;
            if (call->committed[row] && call->canvas) {
                call->canvas[call->position[row]] = call->token[row];
            }
        }
    }
}
