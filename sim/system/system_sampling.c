#include "sim/system/system_sampling.h"

#include <inttypes.h>

#include "sim/model/ranks.h"
#include "sim/system/system.h"

/* In millionths: the least temperature that kernels divide by, and the most, as of a system. */
enum { LEAST_TEMPERATURE = SAMPLING_UNIT / 100, MOST_TEMPERATURE = 100 * SAMPLING_UNIT };

static double asked_value(uint64_t said) {
    return (double)(said - 1) / SAMPLING_UNIT;
}

static bool is_greedy(const struct sampling *asked) {
    return asked->temperature == 1;
}

struct draw_rule system_drawing(const struct system *system, const struct sampling *asked) {
    struct draw_rule rule = system->process.drawing;
    if (is_greedy(asked)) {
        return (struct draw_rule){.top_p = 1, .temperature = 1, .of = rule.of};
    }
    rule.temperature =
        asked->temperature > 0 ? (float)asked_value(asked->temperature) : rule.temperature;
    rule.top_p = asked->top_p > 0 ? asked_value(asked->top_p) : rule.top_p;
    rule.top_k = asked->top_k > 0 ? (uint32_t)(asked->top_k - 1) : rule.top_k;
    return rule;
}

static bool is_in_range(const struct sampling *asked) {
    const uint64_t t = asked->temperature;
    return (t <= 1 || (t - 1 >= LEAST_TEMPERATURE && t - 1 <= MOST_TEMPERATURE)) &&
           asked->top_p <= SAMPLING_UNIT + 1 && asked->top_k <= (uint64_t)UINT32_MAX + 1;
}

static bool cuts(const struct sampling *asked) {
    return asked->top_k > 1 || (asked->top_p > 0 && asked->top_p <= SAMPLING_UNIT);
}

/* Chances that drafts are accepted by are of whole distributions, as the model has them. */
static bool cuts_chances(const struct system *system, const struct sampling *asked) {
    const bool is_tempered =
        asked->temperature > 0 && asked->temperature != (uint64_t)SAMPLING_UNIT + 1;
    return system->speculates && system->settings.sampling && !is_greedy(asked) &&
           (is_tempered || cuts(asked));
}

int system_check_sampling(const struct system *system, const struct sampling *asked,
                          struct err *err) {
    const struct settings *settings = &system->settings;
    const bool searches = settings->top_k > 0 || settings->top_p < 1;
    if (!is_in_range(asked)) {
        return err_usage(err, "a temperature is 0 or from 0.01 to 100, top_p from 0 to 1, top_k a "
                              "whole number below 2^32");
    }
    if (!settings->sampling && asked->temperature > 1) {
        return err_usage(err,
                         "a temperature above 0 draws tokens, and system %s takes the most likely "
                         "ones: set sampling = on",
                         system->name);
    }
    if (cuts_chances(system, asked)) {
        return err_usage(err,
                         "decoder %s accepts drafts by chances of whole distributions: ask for a "
                         "temperature of 1 or 0, top_k = 0 and top_p = 1",
                         system->decoder->policy.name);
    }
    if (settings->sampling && !searches && model_ranks(system->model) > 1 && !is_greedy(asked) &&
        cuts(asked)) {
        return err_usage(err,
                         "several GPUs look for what top_k and top_p keep where the system does: "
                         "set top_k = %" PRIu32 ", which keeps all tokens",
                         model_whole_vocab(system->model));
    }
    return 0;
}
