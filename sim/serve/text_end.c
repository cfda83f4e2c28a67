#include "sim/serve/text_end.h"

void text_end_open(struct lifecycle *life, uint32_t slot, const struct arrival *arrival) {
    bool is_said = arrival->answer_tokens > 0 && arrival->answer_tokens < arrival->output_tokens;
    bool device_says = life->asked->executor.find_end != NULL;
    struct tracked *tracked = &life->tracked[slot];
    tracked->answer_tokens =
        is_said && !device_says ? arrival->answer_tokens : arrival->output_tokens;
    /* A device may have met an end in a block in flight after it had decided what follows it. */
    const struct settings *settings = &life->system->settings;
    if (settings->early_stop == STOP_WINDOW && settings->blocks_in_flight > 1 &&
        arrival->decoded_tokens > 0) {
        tracked->last_end = arrival->prompt_tokens + arrival->decoded_tokens;
    }
}

uint32_t text_end_drawn(const struct lifecycle *life, uint32_t slot) {
    const struct request *request = &life->requests[slot];
    uint32_t answer = life->tracked[slot].answer_tokens;
    return answer < request->output_tokens ? request->prompt_tokens + answer : UINT32_MAX;
}

/* Positions of the active block before its first masked one; where positions are not followed, they
 * are committed from left to right. A decode trace does not say which positions its passes decide
 * on. */
static uint32_t known_in_front(const struct lifecycle *life, uint32_t slot) {
    const struct request *request = &life->requests[slot];
    if (life->has_positions) {
        return block_known_in_front(&life->positions.blocks[slot]);
    }
    bool is_known = window_masked(request) == 0 || lifecycle_recall(life, slot) == NULL;
    return is_known ? window_decided(request) : 0;
}

/* Whether the end is decoded, and all before it. A decode trace that stops short of the output ends
 * where the text does, on a server that stopped. */
static bool is_decoded(const struct lifecycle *life, uint32_t slot) {
    const struct request *request = &life->requests[slot];
    const struct tracked *tracked = &life->tracked[slot];
    const struct recall *recall = lifecycle_recall(life, slot);
    if (life->asked->executor.find_end != NULL) {
        return true; /* the device finds what is decoded */
    }
    return recall != NULL && recall->tokens < request->output_tokens
               ? request->committed_tokens == recall->tokens
               : window_first(request) + known_in_front(life, slot) >=
                     request->prompt_tokens + tracked->answer_tokens;
}

/* Whether an end of text, or a position after it, is decided in the window: as models are trained,
 * these are ends of text, too. */
static bool is_drawn(const struct lifecycle *life, uint32_t slot) {
    const struct request *request = &life->requests[slot];
    const uint32_t last = request->prompt_tokens + life->tracked[slot].answer_tokens - 1;
    struct range range = window_range(request);
    range.first = last > range.first ? last : range.first;
    return range.first < range.end &&
           positions_masked(&life->positions, slot, request, range) < range_length(range);
}

/* Whether what is decided in a block that is not over may still become another token. */
static bool may_change(const struct lifecycle *life) {
    const struct system *system = life->system;
    return system->revises || system->moves || system->renoises;
}

/* Whether blocks in flight are looked at before the first of them is decided. */
static bool looks_at_all(const struct lifecycle *life, uint32_t slot) {
    return life->system->settings.early_stop == STOP_WINDOW &&
           window_most(&life->requests[slot]) > 1 && life->has_positions;
}

int text_end_look(struct lifecycle *life, uint32_t slot, struct err *err) {
    const enum early_stop stops = (enum early_stop)life->system->settings.early_stop;
    const struct executor *executor = &life->asked->executor;
    struct request *request = &life->requests[slot];
    struct tracked *tracked = &life->tracked[slot];
    bool is_met = false, all = looks_at_all(life, slot);
    if (window_front_is_open(request) && !all && (stops != STOP_POSITION || may_change(life))) {
        return 0;
    }
    if (executor->find_end != NULL && tracked->answer_tokens == request->output_tokens) {
        uint32_t answer_tokens = 0;
        int status = executor->find_end(executor->state, tracked->replica, slot, request,
                                        &answer_tokens, &is_met, err);
        if (status != 0) {
            return status;
        }
        tracked->answer_tokens = answer_tokens > 0 ? answer_tokens : request->output_tokens;
    }
    const bool is_known = tracked->answer_tokens < request->output_tokens;
    if (all && tracked->last_end == 0 && (is_met || (is_known && is_drawn(life, slot)))) {
        tracked->last_end = window_first(request) + window_active(request);
    }
    bool ends =
        stops != STOP_NEVER && is_known && is_decoded(life, slot) &&
        !(stops == STOP_WINDOW && (window_front_is_open(request) || !text_end_is_last(life, slot)));
    request->answer_tokens = ends ? tracked->answer_tokens : 0;
    return 0;
}
