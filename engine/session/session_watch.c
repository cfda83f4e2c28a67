#include "engine/session/session_watch.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/zeroed.h"

void session_watch_open(struct session_watch *watching, const struct position_watch *watch,
                        const struct step_limits *limits, uint32_t block_tokens) {
    const size_t rows = limits->max_logit_rows;
    *watching = (struct session_watch){.watch = *watch};
    watching->result = (struct step_result){.token = zeroed(rows, sizeof(int32_t)),
                                            .confidence = zeroed(rows, sizeof(float)),
                                            .margin = zeroed(rows, sizeof(float)),
                                            .entropy = zeroed(rows, sizeof(float))};
    watching->rows = zeroed(block_tokens, sizeof *watching->rows);
    decode_positions_init(&watching->positions, block_tokens);
}

void session_watch_close(struct session_watch *watching) {
    free(watching->result.token);
    free(watching->result.confidence);
    free(watching->result.margin);
    free(watching->result.entropy);
    free(watching->rows);
    decode_positions_fini(&watching->positions);
    *watching = (struct session_watch){0};
}

/* What layers before and at the eviction said of a member's positions, where one was asked. */
static void take_importance(const struct sessions *sessions, uint32_t member,
                            struct decode_positions *p) {
    const struct eviction *seen = &sessions->seen;
    p->has_importance = seen->before != NULL && sessions->parts[member].masked != NULL;
    memset(p->before, 0, p->length * sizeof *p->before);
    memset(p->after, 0, p->length * sizeof *p->after);
    for (uint32_t i = 0, at = 0; p->has_importance && i < p->length; i++) {
        if (p->run[i] && p->masked[i]) {
            p->before[i] = seen->before[(uint32_t)seen->first[member] + at];
            p->after[i] = seen->after[(uint32_t)seen->first[member] + at];
        }
        at += p->run[i] != 0;
    }
}

static void take_rows(struct session_watch *watching, const struct sessions *sessions,
                      const struct planned_step *planned, uint32_t member) {
    const struct step_result *said = &watching->result;
    struct decode_positions *p = &watching->positions;
    uint32_t n = sessions_masked_rows(sessions, planned, member, watching->rows);
    memset(p->seen, 0, p->length);
    for (uint32_t i = 0; i < p->length; i++) {
        p->token[i] = 0;
        p->confidence[i] = p->margin[i] = p->entropy[i] = 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = watching->rows[i], at = sessions_target(sessions, member, row) - p->start;
        p->seen[at] = p->masked[at] && p->keep[at];
        if (p->seen[at]) {
            p->token[at] = said->token[row];
            p->confidence[at] = said->confidence[row];
            p->margin[at] = said->margin[row];
            p->entropy[at] = 0 - said->entropy[row];
        }
    }
}

int session_watch_step(struct session_watch *watching, const struct sessions *sessions,
                       const struct planned_step *planned, struct err *err) {
    int status = forward_result(sessions->forward, &watching->result, err);
    for (uint32_t i = 0; status == 0 && i < planned->n_slots; i++) {
        const struct request *request = &planned->requests[planned->slots[i]];
        const struct planned_block *block = &planned->blocks[i];
        struct decode_positions *p = &watching->positions;
        p->start = request->block_start;
        p->length = request->block_length;
        memcpy(p->masked, block->masked, p->length);
        memcpy(p->run, block->run, p->length);
        memcpy(p->keep, block->keep, p->length);
        memcpy(p->commit, block->commit, p->length);
        take_rows(watching, sessions, planned, i);
        take_importance(sessions, i, p);
        status = watching->watch.see(watching->watch.state, request->id, p, err);
    }
    return status;
}
