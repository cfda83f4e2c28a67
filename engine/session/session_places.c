#include "engine/session/session_places.h"

#include <stdlib.h>

#include "sim/base/zeroed.h"
#include "sim/cache/blocks.h"

static bool smooths(const struct system *system) {
    return system->settings.iteration == ITERATION_SMOOTH;
}

bool session_places_wanted(const struct system *system) {
    return system->credit_slots > 0 || smooths(system);
}

void session_places_open(struct session_places *places, const struct step_limits *limits,
                         uint32_t n_slots) {
    places->of_slot = zeroed(n_slots, sizeof *places->of_slot);
    places->free = zeroed(limits->max_requests, sizeof *places->free);
    places->rows = zeroed(limits->max_logit_rows, sizeof *places->rows);
    places->tokens = zeroed(limits->max_tokens, sizeof *places->tokens);
    for (uint32_t i = limits->max_requests; i > 0; i--) {
        places->free[places->n_free++] = i - 1;
    }
}

void session_places_close(struct session_places *places) {
    free(places->of_slot);
    free(places->free);
    free(places->rows);
    free(places->tokens);
}

/* The first of a request's places. */
static int64_t first_place(const struct sessions *sessions, uint32_t slot) {
    return (int64_t)sessions->places.of_slot[slot] * sessions->system->settings.block_tokens;
}

static int empty_places(struct sessions *sessions, uint32_t slot, struct err *err) {
    return forward_clear_places(sessions->forward, first_place(sessions, slot),
                                sessions->system->settings.block_tokens, err);
}

int session_places_take(struct sessions *sessions, uint32_t slot, struct err *err) {
    struct session_places *places = &sessions->places;
    ASSERT(places->n_free > 0); /* no more requests run than the system says */
    places->of_slot[slot] = places->free[--places->n_free];
    return empty_places(sessions, slot, err);
}

void session_places_give(struct sessions *sessions, uint32_t slot) {
    struct session_places *places = &sessions->places;
    places->free[places->n_free++] = places->of_slot[slot];
}

/* -1: the position is none of the active block, or the pass decides nothing. */
static int32_t place_of(const struct sessions *sessions, const struct request *request,
                        uint32_t slot, int32_t position) {
    int64_t offset = (int64_t)position - request->block_start;
    bool in_block = offset >= 0 && offset < request->block_length;
    return blocks_decide(request) && in_block ? (int32_t)(first_place(sessions, slot) + offset)
                                              : -1;
}

int session_places_plan(struct sessions *sessions, const struct request *request, uint32_t slot,
                        struct step_part *part, struct err *err) {
    int32_t *rows = sessions->places.rows + (part->logit_rows - sessions->logit_rows);
    int32_t *tokens = sessions->places.tokens + (part->positions - sessions->positions);
    for (uint32_t r = 0; r < request->span.logit_rows; r++) {
        rows[r] = place_of(sessions, request, slot, part->targets[r]);
    }
    for (uint32_t t = 0; smooths(sessions->system) && t < request->span.queries; t++) {
        tokens[t] = place_of(sessions, request, slot, part->positions[t]);
    }
    part->row_places = rows;
    part->token_places = smooths(sessions->system) ? tokens : NULL;
    part->steps = request->steps;
    return blocks_decide(request) && request->step_in_block == 0 ? empty_places(sessions, slot, err)
                                                                 : 0;
}

struct decode_credit session_credit_rule(const struct system *system) {
    struct decoder_credit credit = {0};
    if (system->decoder->credit != NULL) {
        system->decoder->credit(system->decoder_state, &credit);
    }
    return credit.rule;
}
