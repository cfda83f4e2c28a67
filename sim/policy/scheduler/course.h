/* The passes that a request has yet to take, as its cache policy and its decoder plan them.
 *
 * A copy of the request is taken from step to step by the policies' own answers and the rules of
 * blocks.h, in counts alone. Where the decoder counts and the policy neither leaves positions of a
 * block out nor learns, that is what will come to be. Else it is what to expect: a pass commits
 * `tokens_per_pass` on average, an eviction leaves what it left last, and the policy learns no
 * more. */
#ifndef UNMASK_SIM_POLICY_SCHEDULER_COURSE_H
#define UNMASK_SIM_POLICY_SCHEDULER_COURSE_H

#include "sim/policy/cache/cache.h"
#include "sim/policy/decoder/decoder.h"
#include "sim/policy/scheduler/scheduler.h"

struct course {
    const struct cache_policy *cache;
    const struct decoder *decoder;
    const void *cache_state, *decoder_state;
    double tokens_per_pass; /* >= 1; of decoders that do not count */
    double owed;            /* of these, what is less than a position; 0 at the start */
    /* May be NULL: what else a plan goes by, of a request that is planned for `holds` steps;
     * returns for how many it holds then. */
    uint32_t (*adjust)(const void *state, struct request *request, uint32_t holds);
    const void *adjust_state;
};

/* Plans the request's next step: its rows, its span, what it commits and for how many steps that
 * holds. */
void course_plan(const struct course *course, struct request *request);

/* `steps` of the steps planned are done, at most request->steps_to_change. Returns whether anything
 * is left to do; planned is the next step only after course_plan. */
bool course_take(struct course *course, struct request *request, uint32_t steps);

/* All that `request` has yet to do (struct schedule_view's foresee), which is left as it is.
 * out->is_exact is the caller's word. */
void course_foresee(struct course *course, const struct request *request, struct pass_ahead *passes,
                    uint32_t capacity, struct outlook *out);

#endif
