#include "engine/session_credit.h"

#include <stdlib.h>

#include "sim/base/zeroed.h"
#include "sim/policy/blocks.h"

bool session_credit_wanted(const struct system *system) {
    return system->credit_slots > 0;
}

void session_credit_open(struct session_credit *credit, const struct step_limits *limits,
                         uint32_t n_slots) {
    credit->of_slot = zeroed(n_slots, sizeof *credit->of_slot);
    credit->free = zeroed(limits->max_requests, sizeof *credit->free);
    credit->rows = zeroed(limits->max_logit_rows, sizeof *credit->rows);
    for (uint32_t i = limits->max_requests; i > 0; i--) {
        credit->free[credit->n_free++] = i - 1;
    }
}

void session_credit_close(struct session_credit *credit) {
    free(credit->of_slot);
    free(credit->free);
    free(credit->rows);
}

/* The first of a request's lists. */
static int64_t first_list(const struct sessions *sessions, uint32_t slot) {
    return (int64_t)sessions->credit.of_slot[slot] * sessions->system->settings.block_tokens;
}

static int empty_lists(struct sessions *sessions, uint32_t slot, struct err *err) {
    return forward_clear_credit(sessions->forward, first_list(sessions, slot),
                                sessions->system->settings.block_tokens, err);
}

int session_credit_take(struct sessions *sessions, uint32_t slot, struct err *err) {
    struct session_credit *credit = &sessions->credit;
    ASSERT(credit->n_free > 0); /* no more requests run than the system says */
    credit->of_slot[slot] = credit->free[--credit->n_free];
    return empty_lists(sessions, slot, err);
}

void session_credit_give(struct sessions *sessions, uint32_t slot) {
    struct session_credit *credit = &sessions->credit;
    credit->free[credit->n_free++] = credit->of_slot[slot];
}

int session_credit_plan(struct sessions *sessions, const struct request *request, uint32_t slot,
                        struct step_part *part, struct err *err) {
    int32_t *rows = sessions->credit.rows + (part->logit_rows - sessions->logit_rows);
    bool decides = blocks_decide(request);
    for (uint32_t r = 0; r < request->span.logit_rows; r++) {
        int64_t offset = (int64_t)part->targets[r] - request->block_start;
        bool in_block = offset >= 0 && offset < request->block_length;
        rows[r] = decides && in_block ? (int32_t)(first_list(sessions, slot) + offset) : -1;
    }
    part->credit = rows;
    return decides && request->step_in_block == 0 ? empty_lists(sessions, slot, err) : 0;
}

struct decode_credit session_credit_rule(const struct system *system) {
    struct decoder_credit credit = {0};
    if (system->decoder->credit != NULL) {
        system->decoder->credit(system->decoder_state, &credit);
    }
    return credit.rule;
}
