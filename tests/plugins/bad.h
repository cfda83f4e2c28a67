/* Descriptors of the misbehaving samples, which differ in one callback each. */
#ifndef UNMASK_TESTS_PLUGINS_BAD_H
#define UNMASK_TESTS_PLUGINS_BAD_H

#include "sim/policy/cache/cache.h"
#include "sim/policy/decoder/decoder.h"
#include "sim/policy/router/router.h"
#include "sim/policy/scheduler/scheduler.h"

#define POLICY(of_kind, type, its_name)                                                            \
    .policy = {.abi = POLICY_ABI,                                                                  \
               .kind = of_kind,                                                                    \
               .size = sizeof(struct type),                                                        \
               .name = its_name,                                                                   \
               .doc = "breaks a promise on purpose"}

#define BAD_SCHEDULER(its_name)                                                                    \
    const struct scheduler unmask_policy = {POLICY(POLICY_SCHEDULER, scheduler, its_name),         \
                                            .schedule = schedule}

#define BAD_GROWING_SCHEDULER(its_name)                                                            \
    const struct scheduler unmask_policy = {POLICY(POLICY_SCHEDULER, scheduler, its_name),         \
                                            .grows = 1, .schedule = schedule}

/* A decoder's choice that keeps its promise: the first masked position. */
static inline uint32_t choose_first(const void *state, const struct request *request,
                                    const struct decode_seen *seen, uint8_t *commit) {
    (void)state;
    (void)request;
    for (uint32_t i = 0; i < seen->n; i++) {
        commit[i] = i == 0;
    }
    return 1;
}

#endif
