#include "sim/decode/choice.h"

#include <stdlib.h>

#include "sim/base/mem.h"

void choice_init(struct choice *choice, uint32_t most) {
    *choice = (struct choice){.confidence = mem_zeroed(most, sizeof(float)),
                              .margin = mem_zeroed(most, sizeof(float)),
                              .entropy = mem_zeroed(most, sizeof(float)),
                              .offset = mem_zeroed(most, sizeof(uint32_t)),
                              .picked = mem_zeroed(most, 1)};
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
    for (uint32_t i = 0; i < block->length; i++) {
        if (asked->keep[i] && block->masked[i]) {
            choice->offset[n] = i;
            choice->values[0][n] = choice->confidence[i];
            choice->values[1][n] = choice->margin[i];
            choice->values[2][n] = choice->entropy[i];
            n++;
        }
    }
    *seen = (struct decode_seen){.n = n,
                                 .first = asked->view->block_start,
                                 .offset = choice->offset,
                                 .confidence = choice->values[0],
                                 .margin = statistics ? choice->values[1] : NULL,
                                 .entropy = statistics ? choice->values[2] : NULL};
}

uint32_t choice_mark(const struct choice *choice, const struct block_state *block,
                     const uint8_t *keep, uint8_t *outcome) {
    uint32_t at = 0, n = 0;
    for (uint32_t i = 0; i < block->length; i++) {
        bool is_asked = keep[i] && block->masked[i];
        outcome[i] = is_asked && choice->picked[at] ? OUTCOME_COMMIT : OUTCOME_NONE;
        at += is_asked;
        n += outcome[i] == OUTCOME_COMMIT;
    }
    return n;
}
