/* Settings of a system and its parts: remembered key by key, then applied. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/input/inputs.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/decode/process_file.h"
#include "sim/policy/plugin/call_watch.h"
#include "sim/policy/plugin/check_plugin.h"
#include "sim/policy/plugin/plugin.h"
#include "sim/system/system_parts.h"

const char *const system_part_names[SYSTEM_PARTS] = {
    "scheduler", "cache", "decoder", "router", "runtime", "planner", "confidence", "host", "model"};

static int part_of(const char *key) {
    size_t length = strcspn(key, ".");
    for (int i = 0; i < SYSTEM_PARTS; i++) {
        if (strlen(system_part_names[i]) == length &&
            strncmp(key, system_part_names[i], length) == 0) {
            return i;
        }
    }
    return -1;
}

/* Where a system holds its policies, each a pointer to a struct that begins with one. */
static const struct {
    enum policy_kind kind;
    size_t policy, state;
} slots[SYSTEM_POLICIES] = {
    {POLICY_SCHEDULER, offsetof(struct system, scheduler),
     offsetof(struct system, scheduler_state)},
    {POLICY_CACHE, offsetof(struct system, cache), offsetof(struct system, cache_state)},
    {POLICY_DECODER, offsetof(struct system, decoder), offsetof(struct system, decoder_state)},
    {POLICY_ROUTER, offsetof(struct system, router), offsetof(struct system, router_state)},
};

const struct policy *system_policy(const struct system *s, enum system_part part, void **state) {
    const struct policy *policy;
    memcpy(&policy, (const char *)s + slots[part].policy, sizeof policy);
    memcpy(state, (const char *)s + slots[part].state, sizeof *state);
    return policy;
}

/* The plug-ins that passed their checks in this program, by digest: as often as its runs take one,
 * a file is checked once. */
static struct {
    pthread_mutex_t lock;
    char (*items)[SHA256_HEX_CHARS];
    size_t n, room;
} passed = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Under the lock, so that threads that take one plug-in wait for its check. */
static int check_once(const char *path, int file, FILE *nowhere, struct err *err) {
    char digest[SHA256_HEX_CHARS];
    if (call_is_trial()) { /* of this very file */
        return 0;
    }
    bool is_known = inputs_digest_open(file, digest);
    for (size_t i = 0; is_known && i < passed.n; i++) {
        if (strcmp(passed.items[i], digest) == 0) {
            return 0;
        }
    }
    int status = check_plugin(path, nowhere, NULL, err);
    if (status == 0 && is_known) {
        passed.items = mem_grown(passed.items, passed.n, &passed.room, sizeof *passed.items);
        memcpy(passed.items[passed.n++], digest, sizeof digest);
    }
    return status;
}

/* A user's policy is exercised in a child process (some 50 ms) before it may touch a run: one that
 * crashes, hangs or breaks a promise costs a sentence, not the run. */
static const struct policy *find_checked(enum policy_kind kind, const char *name, struct err *err) {
    if (strchr(name, '/') != NULL) {
        FILE *nowhere = fopen("/dev/null", "w");
        if (nowhere == NULL) {
            err_world(err, "cannot open /dev/null: %s", strerror(errno));
            return NULL;
        }
        pthread_mutex_lock(&passed.lock);
        const int held = inputs_hold("plugin", name);
        int status = plugin_may_load(name, held, err);
        status = status != 0 ? status : check_once(name, held, nowhere, err);
        pthread_mutex_unlock(&passed.lock);
        fclose(nowhere);
        struct err replaced = {0};
        if (inputs_release(held, name, &replaced) != 0 && status == 0) {
            *err = replaced;
            status = err_status(err);
        }
        if (status != 0) {
            return NULL;
        }
    }
    return policy_find(kind, name, err);
}

static int choose_policy(struct system *s, enum system_part part, const struct setting *setting,
                         struct err *err) {
    const struct policy *policy = find_checked(slots[part].kind, setting->value, err);
    if (policy == NULL) {
        char text[sizeof err->text];
        snprintf(text, sizeof text, "%s", err->text);
        snprintf(err->text, sizeof err->text, "%.120s: %.880s", setting->place, text);
        err->code = ERR_UNKNOWN;
        return (int)err->kind;
    }
    void *state;
    const struct policy *before = system_policy(s, part, &state);
    policy_state_free(before, state);
    state = policy_state(policy);
    memcpy((char *)s + slots[part].policy, &policy, sizeof policy);
    memcpy((char *)s + slots[part].state, &state, sizeof state);
    return 0;
}

/* "scheduler = phase-multiplexed": choose the part; its parameters return to initial values. */
static int choose_part(struct system *s, enum system_part part, const struct setting *setting,
                       struct err *err) {
    const struct runtime_preset *preset;
    switch (part) {
    case SYSTEM_RUNTIME:
        preset = runtime_find(setting->value, err);
        if (preset == NULL) {
            return (int)err->kind;
        }
        s->runtime = preset->runtime;
        s->preset = preset;
        s->runtime_name = preset->path != NULL ? preset->path : preset->name;
        return 0;
    case SYSTEM_PLANNER:
        s->planner = planner_find(setting->value, err);
        return s->planner == NULL ? (int)err->kind : 0;
    case SYSTEM_CONFIDENCE:
        snprintf(s->confidence, sizeof s->confidence, "%s", setting->value);
        return decode_process_find(setting->value, &s->process, err);
    case SYSTEM_HOST:
        snprintf(s->host.name, sizeof s->host.name, "%s", setting->value);
        return 0;
    case SYSTEM_MODEL:
        return err_usage(err, "%s: the model is chosen with --model", setting->place);
    default:
        return choose_policy(s, part, setting, err);
    }
}

/* "scheduler.stop_at_misfit = off". */
static int set_part(struct system *s, enum system_part part, const struct setting *setting,
                    struct err *err) {
    const char *name = strchr(setting->key, '.') + 1, *place = setting->place;
    const char *value = setting->value;
    switch (part) {
    case SYSTEM_RUNTIME:
        return param_set(runtime_params, runtime_n_params, &s->runtime, "runtime", place, name,
                         value, err);
    case SYSTEM_PLANNER:
        return err_usage(err, "%s: planners have no parameters", place);
    case SYSTEM_CONFIDENCE:
        return err_usage(err, "%s: what confidences are drawn from has no parameters here", place);
    case SYSTEM_HOST:
        return param_set(host_params, host_n_params, &s->host, "host", place, name, value, err);
    case SYSTEM_MODEL:
        s->changed = *s->model;
        s->model = &s->changed;
        return param_set(model_params, model_n_params, &s->changed, "the model", place, name, value,
                         err);
    default: {
        void *state;
        const struct policy *policy = system_policy(s, part, &state);
        char owner[128];
        snprintf(owner, sizeof owner, "%s %s", system_part_names[part], policy->name);
        return param_set(policy->params, policy->n_params, state, owner, place, name, value, err);
    }
    }
}

/* "cache", where its policy has the parameter `name`; NULL where no policy of the system has it. */
static const char *part_with(const struct system *s, const char *name) {
    for (int part = 0; part < SYSTEM_POLICIES; part++) {
        void *state;
        const struct policy *policy = system_policy(s, (enum system_part)part, &state);
        if (param_find(policy->params, policy->n_params, name) != NULL) {
            return system_part_names[part];
        }
    }
    return NULL;
}

int system_set_plain(struct system *s, const struct setting *setting, struct err *err) {
    const char *part = part_with(s, setting->key);
    if (param_find(system_params, system_n_params, setting->key) == NULL && part != NULL) {
        return err_usage(err, "%s: unknown key '%s'; did you mean '%s.%s'?", setting->place,
                         setting->key, part, setting->key);
    }
    if (param_find(system_params, system_n_params, setting->key) == NULL) {
        const char **names = mem_zeroed(SYSTEM_PARTS + system_n_params + 1, sizeof *names);
        size_t n = 0;
        for (int i = 0; i < SYSTEM_PARTS; i++) {
            names[n++] = system_part_names[i];
        }
        for (size_t i = 0; i < system_n_params; i++) {
            names[n++] = system_params[i].name;
        }
        char hint[NAME_HINT_CHARS], head[NAME_HINT_CHARS];
        const char *rest = strchr(setting->key, '.'), *near = NULL;
        if (rest != NULL) { /* "cach.retention" */
            snprintf(head, sizeof head, "%.*s", (int)(rest - setting->key), setting->key);
            names[SYSTEM_PARTS] = NULL;
            near = name_nearest(head, names);
        }
        if (near != NULL) {
            snprintf(hint, sizeof hint, "; did you mean '%.16s%.48s'?", near, rest);
        } else {
            name_hint(setting->key, names, hint);
        }
        free(names);
        return err_usage(err, "%s: unknown key '%s'%s", setting->place, setting->key, hint);
    }
    return param_set(system_params, system_n_params, &s->settings, "the system", setting->place,
                     setting->key, setting->value, err);
}

int system_remember(struct system *s, const struct setting *setting, struct err *err) {
    int part = part_of(setting->key);
    bool chooses = part >= 0 && strchr(setting->key, '.') == NULL;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->n_applied; i++) {
        const char *key = s->applied[i].key;
        bool is_older = s->applied[i].layer < s->layer;
        bool replaced =
            strcmp(key, setting->key) == 0 || (chooses && part_of(key) == part && is_older);
        if (!replaced) {
            s->applied[kept++] = s->applied[i];
        }
    }
    if (kept == MAX_SETTINGS) {
        return err_usage(err, "%s: more than %d keys for one system", setting->place, MAX_SETTINGS);
    }
    s->applied[kept] = *setting;
    s->applied[kept].layer = s->layer;
    s->n_applied = kept + 1;
    return 0;
}

struct setting *system_applied(const struct system *s, const char *key) {
    for (uint32_t i = 0; i < s->n_applied; i++) {
        if (strcmp(s->applied[i].key, key) == 0) {
            return (struct setting *)&s->applied[i];
        }
    }
    return NULL;
}

/* Parts first, then parameters: the order of lines in a file does not matter. */
int system_apply(struct system *s, struct err *err) {
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < s->n_applied; i++) {
            const struct setting *setting = &s->applied[i];
            int part = part_of(setting->key);
            bool chooses = part >= 0 && strchr(setting->key, '.') == NULL;
            int status = 0;
            if (pass == 0 && chooses) {
                status = choose_part(s, (enum system_part)part, setting, err);
            } else if (pass == 1 && part >= 0 && !chooses) {
                status = set_part(s, (enum system_part)part, setting, err);
            } else if (pass == 1 && part < 0) {
                status = system_set_plain(s, setting, err);
            }
            if (status != 0) {
                return status;
            }
        }
    }
    return 0;
}
