#include "sim/bound/words.h"

#include <string.h>

#include "sim/policy/plugin/registry.h"

/* Widths of models that see their whole canvas are not among them: another width is another number
 * of refreshes, and a position is surer the larger the share of its window that is known. */
static const struct {
    const char *scheduler;
    const char *threshold[2]; /* settings of which none is above the thresholds that it says */
    bool leaves_rows;
} known[] = {
    {"threshold-valve", {"threshold"}, false},
    {"deadline-valve", {"low", "high"}, false},
    {"row-budget", {0}, true},
    {"width-by-rate", {0}, true},
};

static double setting(const struct policy *policy, const void *state, const char *name) {
    for (uint64_t i = 0; i < policy->n_params; i++) {
        if (strcmp(policy->params[i].name, name) == 0) {
            double value;
            memcpy(&value, (const char *)state + policy->params[i].offset, sizeof value);
            return value;
        }
    }
    return 1;
}

bool words_fewest(const struct system *system, struct words *out) {
    const struct policy *policy = &system->scheduler->policy;
    *out = (struct words){0};
    if (system->scheduler->changes_passes == 0) {
        return true;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0] && policy_is_built_in(policy); i++) {
        if (strcmp(known[i].scheduler, policy->name) == 0) {
            double least = 1;
            for (uint32_t k = 0; k < 2 && known[i].threshold[k] != NULL; k++) {
                const double value =
                    setting(policy, system->scheduler_state, known[i].threshold[k]);
                least = value < least ? value : least;
            }
            out->threshold_millionths = known[i].threshold[0] != NULL ? (uint32_t)(1e6 * least) : 0;
            out->leaves_rows = known[i].leaves_rows || rows_leave_out(&system->rows);
            return true;
        }
    }
    return false;
}
