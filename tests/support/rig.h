/* What the suites of the serving loop share: sources, a fixed-time executor, a collecting sink. */
#ifndef UNMASK_TESTS_SUPPORT_RIG_H
#define UNMASK_TESTS_SUPPORT_RIG_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/rng.h"
#include "sim/serve/executor_sim.h"
#include "sim/serve/loop.h"
#include "tests/support/suite.h"

/* Open a system of the shipped file with settings "key=value" (NULL-ended) and another model than
 * its own (NULL: that one); fails the test when that is not possible. */
static inline struct system *rig_system_of(const char *name, const char *model, const char *gpu,
                                           bool roofline, const char *const *settings) {
    static struct setting overrides[32];
    uint32_t n = 0;
    for (; settings != NULL && settings[n] != NULL; n++) {
        const char *equals = strchr(settings[n], '=');
        ck_assert_ptr_nonnull(equals);
        snprintf(overrides[n].key, sizeof overrides[n].key, "%.*s", (int)(equals - settings[n]),
                 settings[n]);
        snprintf(overrides[n].value, sizeof overrides[n].value, "%s", equals + 1);
        snprintf(overrides[n].place, sizeof overrides[n].place, "test");
    }
    struct system_request request = {.system = name,
                                     .model = model,
                                     .gpu = gpu,
                                     .overrides = overrides,
                                     .n_overrides = n,
                                     .roofline = roofline};
    struct err err = {0};
    struct system *system = NULL;
    ck_assert_msg(system_open(&request, &system, &err) == 0, "%s", err.text);
    return system;
}

static inline struct system *rig_system(const char *name, const char *gpu, bool roofline,
                                        const char *const *settings) {
    return rig_system_of(name, NULL, gpu, roofline, settings);
}

struct list_source {
    const struct arrival *arrivals;
    size_t n, next;
};

static inline enum source_reply list_next(void *state, struct arrival *out, struct err *err) {
    struct list_source *list = state;
    (void)err;
    if (list->next == list->n) {
        return SOURCE_END;
    }
    *out = list->arrivals[list->next++];
    return SOURCE_ROW;
}

struct poisson_source {
    struct rng rng, lengths;
    double rate, now_s;
    uint64_t n, next;
    uint32_t prompt_min, prompt_max, output_min, output_max;
};

static inline uint32_t rig_between(struct rng *rng, uint32_t low, uint32_t high) {
    return low + (uint32_t)(rng_next(rng) % (high - low + 1));
}

static inline enum source_reply poisson_next(void *state, struct arrival *out, struct err *err) {
    struct poisson_source *source = state;
    (void)err;
    if (source->next == source->n) {
        return SOURCE_END;
    }
    source->now_s += -log(rng_uniform(&source->rng)) / source->rate;
    *out = MAKE(
        struct arrival, .arrival_ns = (int64_t)(source->now_s * 1e9), .id = source->next++,
        .prompt_tokens = rig_between(&source->lengths, source->prompt_min, source->prompt_max),
        .output_tokens = rig_between(&source->lengths, source->output_min, source->output_max));
    return SOURCE_ROW;
}

struct fixed_executor {
    struct rng rng;
    double mean_ns;
    bool exponential;
    int64_t now_ns, end_ns, start_ns;
    uint32_t steps;
    bool busy;
};

static inline int fixed_submit(void *state, const struct submission *submission, struct err *err) {
    struct fixed_executor *fixed = state;
    (void)err;
    double ns =
        fixed->exponential ? -log(rng_uniform(&fixed->rng)) * fixed->mean_ns : fixed->mean_ns;
    fixed->busy = true;
    fixed->steps = 1;
    fixed->start_ns = fixed->now_ns;
    fixed->end_ns = fixed->now_ns + (int64_t)ns;
    (void)submission;
    return 0;
}

static inline int fixed_wait(void *state, int64_t until_ns, struct completion *out,
                             struct err *err) {
    struct fixed_executor *fixed = state;
    (void)err;
    if (fixed->busy && fixed->end_ns <= until_ns) {
        fixed->busy = false;
        fixed->now_ns = fixed->end_ns;
        *out = MAKE(struct completion, .kind = COMPLETION_BATCH, .time_ns = fixed->end_ns,
                    .start_ns = fixed->start_ns, .steps = fixed->steps);
    } else if (until_ns == INT64_MAX) {
        *out = (struct completion){.kind = COMPLETION_IDLE, .time_ns = fixed->now_ns};
    } else {
        fixed->now_ns = until_ns;
        *out = (struct completion){.kind = COMPLETION_TIME, .time_ns = until_ns};
    }
    return 0;
}

static inline int64_t fixed_estimate(const void *state, uint32_t replica,
                                     const struct step_shape *shape, int64_t workspace_bytes,
                                     double *joules) {
    (void)replica, (void)shape, (void)workspace_bytes;
    *joules = 0;
    return (int64_t)((const struct fixed_executor *)state)->mean_ns;
}

static inline struct executor fixed_interface(struct fixed_executor *fixed) {
    return (struct executor){
        .state = fixed, .submit = fixed_submit, .wait = fixed_wait, .estimate_ns = fixed_estimate};
}

struct kept_step {
    struct step_record record;
    int64_t sym[SYM_COUNT];
    uint64_t ids[64];
};

struct keeper {
    struct request_record *requests;
    size_t n_requests;
    struct kept_step *steps;
    size_t n_steps;
    size_t room_requests, room_steps;
};

static inline int keep_request(void *state, const struct request_record *record, struct err *err) {
    struct keeper *keeper = state;
    (void)err;
    if (keeper->n_requests == keeper->room_requests) {
        keeper->room_requests = 2 * keeper->room_requests + 64;
        keeper->requests =
            realloc(keeper->requests, keeper->room_requests * sizeof *keeper->requests);
    }
    keeper->requests[keeper->n_requests++] = *record;
    return 0;
}

static inline int keep_step(void *state, const struct step_record *record, struct err *err) {
    struct keeper *keeper = state;
    (void)err;
    if (keeper->n_steps == keeper->room_steps) {
        keeper->room_steps = 2 * keeper->room_steps + 64;
        keeper->steps = realloc(keeper->steps, keeper->room_steps * sizeof *keeper->steps);
    }
    struct kept_step *kept = &keeper->steps[keeper->n_steps++];
    kept->record = *record;
    memcpy(kept->sym, record->sym, sizeof kept->sym);
    for (uint32_t i = 0; record->request_ids != NULL && i < record->n && i < 64; i++) {
        kept->ids[i] = record->request_ids[i];
    }
    return 0;
}

static inline struct sink keeper_sink(struct keeper *keeper) {
    return (struct sink){.state = keeper, .request = keep_request, .step = keep_step};
}

static inline void keeper_fini(struct keeper *keeper) {
    free(keeper->requests);
    free(keeper->steps);
}

static inline const struct request_record *keeper_request(const struct keeper *keeper,
                                                          uint64_t id) {
    for (size_t i = 0; i < keeper->n_requests; i++) {
        if (keeper->requests[i].id == id) {
            return &keeper->requests[i];
        }
    }
    ck_abort_msg("no request %d", (int)id);
}

/* Query tokens of all steps of all requests. */
static inline uint64_t keeper_tokens(const struct keeper *keeper) {
    uint64_t tokens = 0;
    for (size_t i = 0; i < keeper->n_requests; i++) {
        tokens += keeper->requests[i].tokens_processed;
    }
    return tokens;
}

/* A step of counts[i] spans like spans[i] each. */
static inline struct step_price rig_price(const struct system *system, const struct span *spans,
                                          const uint32_t *counts, size_t n_kinds) {
    struct step_shape shape;
    struct step_price price;
    shape_clear(&shape);
    for (size_t i = 0; i < n_kinds; i++) {
        for (uint32_t j = 0; j < counts[i]; j++) {
            shape_add(shape.sym, &spans[i], 1);
        }
    }
    cost_price(system->cost, &shape, system->chunks.bound, &price);
    return price;
}

/* Run a system on the simulated executor; the sink may be NULL. */
static inline struct loop_result rig_run(struct system *system, struct arrival_source source,
                                         struct keeper *keeper) {
    struct executor_sim *sim = executor_sim_open(system, system->settings.replicas);
    struct sink sink = keeper != NULL ? keeper_sink(keeper) : (struct sink){0};
    struct loop_request request =
        MAKE(struct loop_request, .system = system, .executor = executor_sim_interface(sim),
             .source = source, .sinks = &sink, .n_sinks = keeper != NULL,
             .records_members = keeper != NULL, .seed = 1);
    struct loop_result result;
    struct err err = {0};
    ck_assert_msg(loop_run(&request, &result, &err) == 0, "%s", err.text);
    executor_sim_close(sim);
    return result;
}

#endif
