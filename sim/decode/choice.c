#include "sim/decode/choice.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"

void choice_init(struct choice *choice, uint32_t most) {
    *choice = (struct choice){.confidence = mem_zeroed(most, sizeof(float)),
                              .margin = mem_zeroed(most, sizeof(float)),
                              .entropy = mem_zeroed(most, sizeof(float)),
                              .offset = mem_zeroed(most, sizeof(uint32_t)),
                              .picked = mem_zeroed(most, 1),
                              .draws = mem_zeroed(most, sizeof(double))};
    for (int i = 0; i < 3; i++) {
        choice->values[i] = mem_zeroed(most, sizeof(float));
    }
}

void choice_fini(struct choice *choice) {
    free(choice->confidence);
    free(choice->margin);
    free(choice->entropy);
    free(choice->offset);
    free(choice->picked);
    free(choice->draws);
    for (int i = 0; i < 3; i++) {
        free(choice->values[i]);
    }
}

void choice_see(struct choice *choice, const struct choice_asked *asked, struct decode_seen *seen) {
    const struct block_state *block = asked->block;
    bool statistics = asked->reads_statistics;
    struct decode_view view = *asked->view;
    view.wanted = statistics ? NULL : asked->keep; /* whoever reads statistics reads all of them */
    process_confidence(asked->process, asked->seed, &view, choice->confidence);
    if (asked->smoothing != NULL) {
        smoothing_raise(asked->smoothing, asked->smoothing_step, block->length, choice->confidence);
    }
    if (statistics) {
        process_statistics(asked->process, asked->seed, asked->view, choice->confidence,
                           choice->margin, choice->entropy);
    }
    if (asked->credit != NULL) {
        process_credit(asked->credit, asked->seed, asked->view, asked->keep, asked->earned,
                       choice->confidence);
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < block->length - asked->waiting;
         i++) { /* what is not asked for is written over */
        choice->offset[n] = i;
        choice->values[0][n] = choice->confidence[i];
        n += (asked->keep[i] != 0) & (block->masked[i] != 0);
    }
    for (uint32_t k = 0; statistics && k < n; k++) {
        choice->values[1][k] = choice->margin[choice->offset[k]];
        choice->values[2][k] = choice->entropy[choice->offset[k]];
    }
    choice->n = n;
    *seen = (struct decode_seen){.n = n,
                                 .first = asked->view->block_start,
                                 .offset = choice->offset,
                                 .confidence = choice->values[0],
                                 .margin = statistics ? choice->values[1] : NULL,
                                 .entropy = statistics ? choice->values[2] : NULL};
}

void choice_surest(struct choice *choice, const struct choice_asked *asked, uint32_t most,
                   uint8_t *outcome) {
    struct decode_view view = *asked->view;
    const uint32_t n = asked->block->length - asked->waiting;
    view.wanted = asked->keep;
    view.block_length = n;
    memset(outcome + n, OUTCOME_NONE, asked->waiting);
    process_surest(asked->process, asked->seed, &view, most, choice->draws, choice->offset,
                   outcome);
}

uint32_t choice_mark(const struct choice *choice, uint32_t length, uint8_t *outcome) {
    uint32_t n = 0;
    memset(outcome, OUTCOME_NONE, length);
    for (uint32_t k = 0; k < choice->n; k++) {
        const bool is_picked = choice->picked[k] != 0;
        outcome[choice->offset[k]] = is_picked ? OUTCOME_COMMIT : OUTCOME_NONE;
        n += is_picked;
    }
    return n;
}
