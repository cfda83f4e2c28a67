#include "sim/policy/plugin/registry.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/policy/cache/cache.h"
#include "sim/policy/decoder/decoder.h"
#include "sim/policy/plugin/plugin.h"
#include "sim/policy/plugin/ward.h"
#include "sim/policy/router/router.h"
#include "sim/policy/scheduler/scheduler.h"

#define SCHEDULER(name) extern const struct scheduler scheduler_##name;
#define CACHE(name)     extern const struct cache_policy cache_##name;
#define DECODER(name)   extern const struct decoder decoder_##name;
#define ROUTER(name)    extern const struct router router_##name;
#include "sim/policy/plugin/policies.def"

#define SCHEDULER(name) &scheduler_##name,
const struct scheduler *const scheduler_table[] = {
#include "sim/policy/plugin/policies.def"
};
const size_t scheduler_table_size = sizeof scheduler_table / sizeof scheduler_table[0];

#define CACHE(name) &cache_##name,
const struct cache_policy *const cache_table[] = {
#include "sim/policy/plugin/policies.def"
};
const size_t cache_table_size = sizeof cache_table / sizeof cache_table[0];

#define DECODER(name) &decoder_##name,
const struct decoder *const decoder_table[] = {
#include "sim/policy/plugin/policies.def"
};
const size_t decoder_table_size = sizeof decoder_table / sizeof decoder_table[0];

#define ROUTER(name) &router_##name,
const struct router *const router_table[] = {
#include "sim/policy/plugin/policies.def"
};
const size_t router_table_size = sizeof router_table / sizeof router_table[0];

const char *const policy_kind_names[] = {"", "scheduler", "cache", "decoder", "router"};

size_t policy_count(enum policy_kind kind) {
    switch (kind) {
    case POLICY_SCHEDULER:
        return scheduler_table_size;
    case POLICY_CACHE:
        return cache_table_size;
    case POLICY_DECODER:
        return decoder_table_size;
    case POLICY_ROUTER:
        return router_table_size;
    }
    return 0;
}

const struct policy *policy_at(enum policy_kind kind, size_t index) {
    ASSERT(index < policy_count(kind));
    switch (kind) {
    case POLICY_SCHEDULER:
        return &scheduler_table[index]->policy;
    case POLICY_CACHE:
        return &cache_table[index]->policy;
    case POLICY_DECODER:
        return &decoder_table[index]->policy;
    case POLICY_ROUTER:
        return &router_table[index]->policy;
    }
    return NULL;
}

bool policy_is_built_in(const struct policy *policy) {
    for (size_t i = 0; i < policy_count(policy->kind); i++) {
        if (policy_at(policy->kind, i) == policy) {
            return true;
        }
    }
    return false;
}

const struct policy *policy_find(enum policy_kind kind, const char *name, struct err *err) {
    if (strchr(name, '/') != NULL) {
        const struct policy *loaded = NULL;
        return plugin_load(name, kind, &loaded, err) == 0 ? ward_policy(loaded, name) : NULL;
    }
    enum { MAX_POLICIES = 32 };
    const char *names[MAX_POLICIES + 1] = {NULL};
    ASSERT(policy_count(kind) <= MAX_POLICIES);
    for (size_t i = 0; i < policy_count(kind); i++) {
        if (strcmp(policy_at(kind, i)->name, name) == 0) {
            return policy_at(kind, i);
        }
        names[i] = policy_at(kind, i)->name;
    }
    if (name_ends(name, ".so")) {
        err_unknown(err, "unknown %s '%s'; a plug-in's path holds a slash, as in ./%s",
                    policy_kind_names[kind], name, name);
        return NULL;
    }
    char hint[NAME_HINT_CHARS];
    name_hint(name, names, hint);
    err_unknown(err, "unknown %s '%s'%s (`unmask list %ss` prints them all)",
                policy_kind_names[kind], name, hint, policy_kind_names[kind]);
    return NULL;
}

void *policy_state(const struct policy *policy) {
    void *state = mem_zeroed(1, policy->state_bytes > 0 ? policy->state_bytes : 1);
    ward_fill_state(policy, state);
    param_defaults(policy->params, policy->n_params, state);
    return state;
}

/* What a large state does not use yet takes no memory. */
static void copy_used(char *to, const char *from, size_t bytes) {
    enum { PIECE = 4096 };
    static const char zeros[PIECE];
    for (size_t at = 0; at < bytes; at += PIECE) {
        const size_t n = bytes - at < PIECE ? bytes - at : PIECE;
        if (memcmp(from + at, zeros, n) != 0) {
            memcpy(to + at, from + at, n);
        }
    }
}

void *policy_state_for_run(const struct policy *policy, const void *state) {
    void *own = mem_zeroed(1, (size_t)policy->state_bytes + 1);
    copy_used(own, state, policy->state_bytes);
    ward_forget_world(policy, own);
    ward_begin_run(policy, own);
    return own;
}

void policy_state_free(const struct policy *policy, void *state) {
    if (state != NULL) {
        ward_end_state(policy, state);
        free(state);
    }
}
