#include "sim/policy/plugin/plugin.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/input/inputs.h"
#include "sim/base/mem.h"
#include "sim/base/system.h"
#include "sim/base/wait.h"
#include "sim/policy/cache/cache.h"
#include "sim/policy/decoder/decoder.h"
#include "sim/policy/plugin/object.h"
#include "sim/policy/plugin/registry.h"
#include "sim/policy/router/router.h"
#include "sim/policy/scheduler/scheduler.h"

static const uint32_t descriptor_bytes[] = {
    [POLICY_SCHEDULER] = sizeof(struct scheduler),
    [POLICY_CACHE] = sizeof(struct cache_policy),
    [POLICY_DECODER] = sizeof(struct decoder),
    [POLICY_ROUTER] = sizeof(struct router),
};

static bool is_name(const char *name, bool underscore) {
    for (const char *c = name; *c != '\0'; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9');
        if (!plain && *c != (underscore ? '_' : '-')) {
            return false;
        }
    }
    return true;
}

static int validate_names(const struct policy *policy, const char *place, struct err *err) {
    const char *kind = policy_kind_names[policy->kind];
    if (policy->name == NULL || policy->name[0] == '\0') {
        return err_world(err, "%s: the %s has no name", place, kind);
    }
    if (strnlen(policy->name, PLUGIN_MAX_NAME + 1) > PLUGIN_MAX_NAME) {
        return err_world(err, "%s: the %s's name '%.*s...' is longer than %d characters", place,
                         kind, PLUGIN_MAX_NAME, policy->name, PLUGIN_MAX_NAME);
    }
    if (!is_name(policy->name, false)) {
        return err_world(err, "%s: the %s's name '%s' may hold a-z, 0-9 and - only", place, kind,
                         policy->name);
    }
    if (policy->doc == NULL || policy->doc[0] == '\0' || strchr(policy->doc, '\n') != NULL) {
        return err_world(err, "%s: %s %s has no doc of one line", place, kind, policy->name);
    }
    return 0;
}

static int validate_flag(const struct policy *policy, uint32_t flag, const char *place,
                         struct err *err) {
    return flag <= 1 ? 0
                     : err_world(err, "%s: %s %s has a flag that is neither 0 nor 1", place,
                                 policy_kind_names[policy->kind], policy->name);
}

static int validate_callbacks(const struct policy *policy, const char *place, struct err *err) {
    const char *missing = NULL;
    switch ((enum policy_kind)policy->kind) {
    case POLICY_SCHEDULER:
        missing = ((const struct scheduler *)policy)->schedule == NULL ? "schedule" : NULL;
        break;
    case POLICY_CACHE: {
        const struct cache_policy *cache = (const struct cache_policy *)policy;
        missing = cache->plan == NULL ? "plan" : NULL;
        break;
    }
    case POLICY_DECODER: {
        const struct decoder *decoder = (const struct decoder *)policy;
        if (decoder->choose != NULL && (decoder->count != NULL || decoder->rule != NULL)) {
            return err_world(err, "%s: decoder %s has both %s and choose, of which one is used",
                             place, policy->name, decoder->count != NULL ? "count" : "rule");
        }
        if (decoder->take_back != NULL && decoder->choose == NULL) {
            return err_world(err, "%s: decoder %s has take_back, which goes with choose", place,
                             policy->name);
        }
        if (decoder->credit != NULL && decoder->count != NULL) {
            return err_world(err, "%s: decoder %s counts, so that its credit changes nothing",
                             place, policy->name);
        }
        if (validate_flag(policy, decoder->reads_statistics | decoder->reads_load, place, err) !=
            0) {
            return err_status(err);
        }
        bool decides = decoder->count != NULL || decoder->choose != NULL || decoder->rule != NULL;
        missing = decides ? NULL : "count, choose or rule";
        break;
    }
    case POLICY_ROUTER:
        missing = ((const struct router *)policy)->route == NULL ? "route" : NULL;
        break;
    }
    if (missing != NULL) {
        return err_world(err, "%s: %s %s lacks the callback %s", place,
                         policy_kind_names[policy->kind], policy->name, missing);
    }
    return 0;
}

static int validate_memory(const struct policy *policy, const char *place, struct err *err) {
    const struct cache_policy *cache = (const struct cache_policy *)policy;
    if (cache->memory_bytes > CACHE_MAX_MEMORY_BYTES || cache->memory_bytes % 8 != 0) {
        return err_world(err,
                         "%s: cache %s asks for %u bytes of memory of a request; expected a "
                         "multiple of 8 up to %d",
                         place, policy->name, cache->memory_bytes, CACHE_MAX_MEMORY_BYTES);
    }
    return validate_flag(policy, cache->reads_entropy | cache->reads_load, place, err);
}

static int validate_scheduler(const struct scheduler *scheduler, const char *place,
                              struct err *err) {
    if (validate_flag(&scheduler->policy,
                      scheduler->grows | scheduler->reads_all | scheduler->changes_passes |
                          scheduler->says_rows,
                      place, err) != 0) {
        return err_status(err);
    }
    if ((scheduler->needs & ~(uint32_t)SCHEDULER_NEEDS) != 0) {
        return err_world(err, "%s: scheduler %s needs %u, of which only %d have a meaning", place,
                         scheduler->policy.name, scheduler->needs, SCHEDULER_NEEDS);
    }
    if (scheduler->says_rows && !scheduler->changes_passes) {
        return err_world(err, "%s: scheduler %s has says_rows without changes_passes", place,
                         scheduler->policy.name);
    }
    if (scheduler->request_bytes > SCHEDULER_MAX_REQUEST_BYTES ||
        scheduler->request_bytes % 8 != 0) {
        return err_world(err,
                         "%s: scheduler %s asks for %u bytes of memory of a request; expected a "
                         "multiple of 8 up to %d",
                         place, scheduler->policy.name, scheduler->request_bytes,
                         SCHEDULER_MAX_REQUEST_BYTES);
    }
    for (uint32_t i = 0; scheduler->reject_reasons != NULL && scheduler->reject_reasons[i] != NULL;
         i++) {
        const char *reason = scheduler->reject_reasons[i];
        if (i == SCHEDULER_MAX_REASONS || reason[0] == '\0' || !is_name(reason, false) ||
            strnlen(reason, PLUGIN_MAX_NAME + 1) > PLUGIN_MAX_NAME) {
            return err_world(err,
                             "%s: scheduler %s has reject_reasons that are not up to %d names of "
                             "a-z, 0-9 and - with at most %d characters, NULL-ended",
                             place, scheduler->policy.name, SCHEDULER_MAX_REASONS, PLUGIN_MAX_NAME);
        }
    }
    return 0;
}

static size_t param_bytes(enum param_type type) {
    switch (type) {
    case PARAM_U32:
    case PARAM_WORD:
        return sizeof(uint32_t);
    case PARAM_I64:
        return sizeof(int64_t);
    case PARAM_F64:
        return sizeof(double);
    case PARAM_BOOL:
        return sizeof(bool);
    }
    return 0;
}

/* What is wrong with the fields of one parameter, or NULL. */
static const char *param_fault(const struct param *param, uint32_t state_bytes) {
    size_t bytes = param_bytes(param->type);
    if (bytes == 0) {
        return "has an unknown type";
    }
    if (param->unit == NULL || param->initial == NULL || param->doc == NULL) {
        return "lacks its unit, initial value or doc";
    }
    if (param->type == PARAM_WORD && (param->words == NULL || param->words[0] == NULL)) {
        return "lacks its words";
    }
    if (param->offset > state_bytes || state_bytes - param->offset < bytes) {
        return "lies outside the state";
    }
    bool is_number = param->type != PARAM_BOOL && param->type != PARAM_WORD;
    if (is_number && !(param->min <= param->max)) {
        return "has a minimum above its maximum";
    }
    if (param->type == PARAM_U32 && (param->min < 0 || param->max > UINT32_MAX)) {
        return "has a range that a uint32_t cannot hold";
    }
    if (param->type == PARAM_I64 && (param->min < -0x1p63 || param->max >= 0x1p63)) {
        return "has a range that an int64_t cannot hold";
    }
    return NULL;
}

static int validate_params(const struct policy *policy, const char *place, struct err *err) {
    const char *kind = policy_kind_names[policy->kind];
    if (policy->n_params > PLUGIN_MAX_PARAMS) {
        return err_world(err, "%s: %s %s has %llu parameters, at most %d are allowed", place, kind,
                         policy->name, (unsigned long long)policy->n_params, PLUGIN_MAX_PARAMS);
    }
    if (policy->n_params > 0 && policy->params == NULL) {
        return err_world(err, "%s: %s %s has %llu parameters but no table of them", place, kind,
                         policy->name, (unsigned long long)policy->n_params);
    }
    for (uint64_t i = 0; i < policy->n_params; i++) {
        const struct param *param = &policy->params[i];
        if (param->name == NULL || param->name[0] == '\0' ||
            strnlen(param->name, PLUGIN_MAX_NAME + 1) > PLUGIN_MAX_NAME ||
            !is_name(param->name, true)) {
            return err_world(err,
                             "%s: parameter %llu of %s %s has no name of a-z, 0-9 and _ with at "
                             "most %d characters",
                             place, (unsigned long long)i, kind, policy->name, PLUGIN_MAX_NAME);
        }
        const char *fault = param_fault(param, policy->state_bytes);
        if (fault != NULL) {
            return err_world(err, "%s: parameter %s of %s %s %s", place, param->name, kind,
                             policy->name, fault);
        }
        for (uint64_t j = 0; j < i; j++) {
            const struct param *other = &policy->params[j];
            if (strcmp(other->name, param->name) == 0) {
                return err_world(err, "%s: %s %s has two parameters named %s", place, kind,
                                 policy->name, param->name);
            }
            if (param->offset < other->offset + param_bytes(other->type) &&
                other->offset < param->offset + param_bytes(param->type)) {
                return err_world(err, "%s: parameters %s and %s of %s %s share bytes of the state",
                                 place, other->name, param->name, kind, policy->name);
            }
        }
    }
    return 0;
}

/* Every initial value is one that the parameter itself allows. */
static int validate_initials(const struct policy *policy, const char *place, struct err *err) {
    void *state = mem_zeroed(1, policy->state_bytes > 0 ? policy->state_bytes : 1);
    int status = 0;
    for (uint64_t i = 0; status == 0 && i < policy->n_params; i++) {
        const struct param *param = &policy->params[i];
        struct err refusal = {0};
        if (param_set(policy->params, policy->n_params, state, policy->name, place, param->name,
                      param->initial, &refusal) != 0) {
            status = err_world(err,
                               "%s: the initial value '%s' of parameter %s of %s %s is not "
                               "one that the parameter allows",
                               place, param->initial, param->name, policy_kind_names[policy->kind],
                               policy->name);
        }
    }
    free(state);
    return status;
}

int plugin_validate(const struct policy *policy, const char *place, struct err *err) {
    if (policy->abi != POLICY_ABI) {
        return err_world(err, "%s: the plug-in is made for ABI %u, this program has ABI %d", place,
                         policy->abi, POLICY_ABI);
    }
    if (policy->kind < POLICY_SCHEDULER || policy->kind > POLICY_ROUTER) {
        return err_world(err,
                         "%s: kind %u is neither scheduler (1), cache (2), decoder (3) nor "
                         "router (4)",
                         place, policy->kind);
    }
    if (policy->size != descriptor_bytes[policy->kind]) {
        return err_world(err, "%s: the %s descriptor says %u bytes, this program's has %u", place,
                         policy_kind_names[policy->kind], policy->size,
                         descriptor_bytes[policy->kind]);
    }
    int status = validate_names(policy, place, err);
    if (status == 0) {
        status = validate_callbacks(policy, place, err);
    }
    if (status == 0 && policy->kind == POLICY_CACHE) {
        status = validate_memory(policy, place, err);
    }
    if (status == 0 && policy->kind == POLICY_SCHEDULER) {
        status = validate_scheduler((const struct scheduler *)policy, place, err);
    }
    const int64_t memory_bytes = system_total_bytes();
    if (status == 0 && memory_bytes > 0 && (int64_t)policy->state_bytes > memory_bytes) {
        status = err_world(err,
                           "%s: %s %s asks for %u bytes of state, which are more than the %lld "
                           "bytes of this machine's memory",
                           place, policy_kind_names[policy->kind], policy->name,
                           policy->state_bytes, (long long)memory_bytes);
    } else if (status == 0 && policy->state_bytes > PLUGIN_MAX_STATE_BYTES) {
        status = err_world(err, "%s: %s %s asks for %u bytes of state, at most %u are allowed",
                           place, policy_kind_names[policy->kind], policy->name,
                           policy->state_bytes, PLUGIN_MAX_STATE_BYTES);
    }
    if (status == 0) {
        status = validate_params(policy, place, err);
    }
    return status != 0 ? status : validate_initials(policy, place, err);
}

/* The symbol's length in the object file: a pointer exported by mistake shows before it is read. */
static int validate_symbol(const void *symbol, const char *path, struct err *err) {
    uint64_t bytes;
    if (symbol == NULL) {
        return err_world(err, "%s: no symbol 'unmask_policy' is exported", path);
    }
    if (!system_symbol_bytes(symbol, &bytes)) {
        return err_world(err, "%s: 'unmask_policy' is not an object of the file", path);
    }
    if (bytes < sizeof(struct policy)) {
        return err_world(err,
                         "%s: 'unmask_policy' has %llu bytes, which is no descriptor; export the "
                         "struct itself, not a pointer to it",
                         path, (unsigned long long)bytes);
    }
    uint32_t size = ((const struct policy *)symbol)->size;
    if (((const struct policy *)symbol)->abi == POLICY_ABI && bytes < size) {
        return err_world(err, "%s: the descriptor says %u bytes but has %llu", path, size,
                         (unsigned long long)bytes);
    }
    if (plugin_validate(symbol, path, err) != 0) {
        return err_status(err);
    }
    const struct policy *policy = symbol;
    const uint32_t way = policy->kind == POLICY_DECODER ? ((const struct decoder *)symbol)->way
                         : policy->kind == POLICY_CACHE ? ((const struct cache_policy *)symbol)->way
                                                        : 0;
    return way == 0 || (policy->kind == POLICY_CACHE && way == CACHE_SLIDES)
               ? 0
               : err_world(err, "%s: %s %s has way = %u, which is for built-in ones: leave it 0",
                           path, policy_kind_names[policy->kind], policy->name, way);
}

static _Thread_local const struct plugin_gate *asked;

const struct plugin_gate *plugin_ask(const struct plugin_gate *gate) {
    const struct plugin_gate *before = asked;
    asked = gate;
    return before;
}

int plugin_may_load(const char *path, int file, struct err *err) {
    return asked != NULL && asked->may_load(asked->state, path, file, err) != 0 ? err_status(err)
                                                                                : 0;
}

/* The loader says why. */
static int no_file(const char *path, struct err *err) {
    const int wait = wait_begin();
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    wait_end(wait);
    if (object != NULL) {
        (void)dlclose(object);
        return err_world(err, "cannot load the plug-in: %s is no regular file", path);
    }
    return err_world(err, "cannot load the plug-in: %s", dlerror());
}

/* As plugin_open; `kind` 0 takes any. */
static int load(const char *path, uint32_t kind, const struct policy **out, struct err *err) {
    if (strchr(path, '/') == NULL) {
        return err_usage(err, "'%s' names no file: a plug-in's path holds a slash, as in ./%s",
                         path, path);
    }
    const int held = inputs_hold("plugin", path);
    int status = plugin_may_load(path, held, err);
    if (status != 0) {
        struct err ignored = {0};
        (void)inputs_release(held, path, &ignored);
        return status;
    }
    status = held >= 0 ? object_open(path, held, validate_symbol, out, err) : no_file(path, err);
    struct err replaced = {0};
    if (inputs_release(held, path, &replaced) != 0) {
        *err = replaced;
        *out = NULL;
        return err_status(err);
    }
    if (status == 0 && kind != 0 && (*out)->kind != kind) {
        const char *name = (*out)->name, *found = policy_kind_names[(*out)->kind];
        *out = NULL;
        return err_usage(err, "%s: %s is a %s, but a %s is wanted here", path, name, found,
                         policy_kind_names[kind]);
    }
    return status;
}

int plugin_load(const char *path, enum policy_kind kind, const struct policy **out,
                struct err *err) {
    return load(path, (uint32_t)kind, out, err);
}

int plugin_open(const char *path, const struct policy **out, struct err *err) {
    return load(path, 0, out, err);
}
