/* What a step came to: read from the device, or chosen on the host where the decoder does, and
 * written to the planned step's blocks and to the numbers that the loop takes. */
#ifndef UNMASK_ENGINE_SESSION_OUTCOME_H
#define UNMASK_ENGINE_SESSION_OUTCOME_H

#include "engine/session/drafts.h"
#include "engine/session/members.h"
#include "engine/session/moving.h"
#include "sim/base/decode.h"

/* The receiver of a step's outputs for every masked position of the active blocks. */
struct position_watch {
    void *state;
    /* After each pass of a request over its active block, before the loop sees it; the arrays
     * hold until the return. Margins and entropies are 0 where the graph makes none. */
    int (*see)(void *state, uint64_t request, const struct decode_positions *positions,
               struct err *err);
};

/* Of one logit row, as in struct step_result. */
struct row_said {
    int32_t token;
    float confidence, margin, entropy;
};

struct outcome {
    const struct members *members;
    struct forward *forward;
    uint32_t *commits;         /* [max_unrolled, max_requests], as the loop takes them */
    struct step_result result; /* of the step done last; owned */
    uint32_t *left;            /* [max_requests], masked positions after the steps read so far */
    /* Of one request, for decoders that choose on the host: [block_tokens] each. */
    uint32_t *rows, *offsets;
    float *confidence, *margin, *entropy;
    uint8_t *chosen;
    /* A step's logits, where the host reads them; where the decoder renoises the most likely tokens
     * of each slot's pass before, [max_requests, block_tokens]; else NULL. */
    float *logits;
    int32_t *top, *next, *before;
    struct row_said *kept; /* [max_in_system], of the row before each slot's window, where it
                              outlasts the pass (members_kept_row); else NULL */
    struct moving moving;  /* where the canvas moves; and its step's logits */
    struct drafts drafts;  /* where drafts are checked; and the step's logits where they are kept */
    struct position_watch watch; /* all zero: not watched, and nothing is read back for it */
    struct decode_positions positions;
};

/* Both are borrowed. */
void outcome_open(struct outcome *outcome, const struct members *members, struct forward *forward);
void outcome_close(struct outcome *outcome);

void outcome_watch(struct outcome *outcome, const struct position_watch *watch);
bool outcome_is_watched(const struct outcome *outcome);

/* Whether somebody has to know which rows a step committed. */
bool outcome_tracks_rows(const struct outcome *outcome);

/* Waits for the step that the members planned last. decided: the caller said how many positions
 * each member commits. ERR_WORLD where logits are no numbers, or a decoder broke its promise. */
int outcome_wait(struct outcome *outcome, bool decided, double *device_ns, struct err *err);

/* The same of `n_steps` that were issued at once: commits of each, [n_steps, members]. */
int outcome_wait_unrolled(struct outcome *outcome, uint32_t n_steps, double *device_ns,
                          struct err *err);

/* What the device decided, once the step is done. */
int outcome_read(struct outcome *outcome, bool decided, struct err *err);

#endif
