/* Planning: what a request's next step is, according to the policies, and what memory it takes. */
#ifndef UNMASK_SIM_SERVE_PLAN_H
#define UNMASK_SIM_SERVE_PLAN_H

#include "sim/serve/lifecycle.h"

/* Makes `block` the active one, with its positions where they are followed. */
void plan_block(struct lifecycle *life, uint32_t slot);

/* The same of the next of several blocks, of which some is decided already. */
void plan_carried(struct lifecycle *life, uint32_t slot);

/* Where several blocks are in flight, after a pass: how much of the first is decided. */
void plan_front(struct lifecycle *life, uint32_t slot);

/* Where several blocks are in flight: takes more of them into it, as far as those before them are
 * decided, and says which of them passes decide on. */
void plan_several(struct lifecycle *life, uint32_t slot);

static inline void plan_marks(struct lifecycle *life, uint32_t slot) {
    if (life->system->settings.blocks_in_flight > 1 || life->system->settings.window_slides) {
        plan_several(life, slot);
    }
}

/* What the request holds while it takes its next step. Where the scheduler does not see to growth,
 * all that it will ever hold. */
void plan_memory(const struct lifecycle *life, struct request *request);

/* Ask the policies for the next step and for how long their answer holds. */
int plan_step(struct lifecycle *life, struct request *request, struct tracked *tracked,
              struct err *err);

/* The span of the step that the request takes where the refresh that is its next step is put off;
 * false: it cannot wait. */
bool plan_put_off(const struct lifecycle *life, uint32_t slot, struct span *span);

/* Which of the rows that leave the trunk go through the head, by the system's scope, and which of
 * these are looked at; `candidates`: the masked positions that the step runs. */
void plan_scope(const struct system *system, uint32_t candidates, struct request *request);

/* For how many steps a plan may hold that else would for `holds`: under some scopes, and where text
 * may end, each step has rows of its own. */
uint32_t plan_holds(const struct system *system, const struct request *request, uint32_t holds);

/* ERR_WORLD: a policy's answer lies outside what its header allows; check-plugin samples, this
 * always looks. */
int plan_broken_promise(const struct lifecycle *life, const struct policy *policy, const char *kind,
                        const char *what, int64_t found, int64_t least, int64_t most,
                        struct err *err);

/* What a pass may come out as, `most` commits: a decoder of a user's that takes positions back may
 * commit none, but not for ever. */
int plan_check_outcomes(const struct lifecycle *life, const struct request *request,
                        const struct outcomes *found, uint32_t most, struct err *err);

#endif
