/* Plug-ins with the accidents that policies of good will have: each works in a run as one imagines
 * it, and is found by check-plugin. This file is compiled once for each: accident_leak.so and so
 * on. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/plugins/bad.h"
#include "tests/plugins/first_fits.h"

#define STATE_SCHEDULER(its_name, its_state)                                                       \
    const struct scheduler unmask_policy = {.policy = {.abi = POLICY_ABI,                          \
                                                       .kind = POLICY_SCHEDULER,                   \
                                                       .size = sizeof(struct scheduler),           \
                                                       .state_bytes = sizeof(its_state),           \
                                                       .name = its_name,                           \
                                                       .doc = "has an accident"},                  \
                                            .schedule = schedule}

#define PARAM_SCHEDULER(its_name, its_state)                                                       \
    const struct scheduler unmask_policy = {                                                       \
        .policy = {.abi = POLICY_ABI,                                                              \
                   .kind = POLICY_SCHEDULER,                                                       \
                   .size = sizeof(struct scheduler),                                               \
                   .state_bytes = sizeof(its_state),                                               \
                   .name = its_name,                                                               \
                   .doc = "has an accident",                                                       \
                   .params = params,                                                               \
                   .n_params = sizeof params / sizeof params[0]},                                  \
        .schedule = schedule}

/* In order of arrival, as far as they fit. */
static inline void first_fits(const struct schedule_view *view, struct batch *batch) {
    struct taken used = {0, 0};
    select_running(view, &used, batch);
    admit_waiting(view, UINT32_MAX, &used, batch);
}

#ifdef PLUGIN_accident_kept_request
/* Remembers a request by its address in the view, to see later whether it got on. */
struct state {
    const struct request *watched;
    uint32_t steps, n_stuck;
};

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    struct state *state = opaque;
    if (state->watched != NULL) {
        state->n_stuck += state->watched->steps == state->steps;
    }
    state->watched = view->n_running > 0 ? &view->requests[view->running[0]] : NULL;
    state->steps = state->watched != NULL ? state->watched->steps : 0;
    first_fits(view, batch);
}

STATE_SCHEDULER("kept-request", struct state);
#endif

#ifdef PLUGIN_accident_kept_list
/* Remembers who ran at the last decision by the list itself. */
struct state {
    const uint32_t *before;
    uint32_t n_before, n_same;
};

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    struct state *state = opaque;
    for (uint32_t i = 0; i < state->n_before && i < view->n_running; i++) {
        state->n_same += state->before[i] == view->running[i];
    }
    state->before = view->running;
    state->n_before = view->n_running;
    first_fits(view, batch);
}

STATE_SCHEDULER("kept-list", struct state);
#endif

#ifdef PLUGIN_accident_kept_seen
/* Commits what became surer than at the last pass, of which it keeps the confidences' address. */
static const float *before;
static uint32_t n_before;

static uint32_t choose(const void *state, const struct request *request,
                       const struct decode_seen *seen, uint8_t *commit) {
    uint32_t n = 0;
    (void)state, (void)request;
    for (uint32_t i = 0; i < seen->n; i++) {
        commit[i] = i == 0 || (i < n_before && seen->confidence[i] > before[i]);
        n += commit[i];
    }
    before = seen->confidence;
    n_before = seen->n;
    return n;
}

const struct decoder unmask_policy = {POLICY(POLICY_DECODER, decoder, "kept-seen"),
                                      .choose = choose};
#endif

#ifdef PLUGIN_accident_seen_beyond
/* Looks at the position after the last. */
static uint32_t choose(const void *state, const struct request *request,
                       const struct decode_seen *seen, uint8_t *commit) {
    uint32_t n = 0;
    (void)state, (void)request;
    for (uint32_t i = 0; i < seen->n; i++) {
        commit[i] = i == 0 || seen->confidence[i] > seen->confidence[i + 1] + 0.2f;
        n += commit[i];
    }
    return n;
}

const struct decoder unmask_policy = {POLICY(POLICY_DECODER, decoder, "seen-beyond"),
                                      .choose = choose};
#endif

#ifdef PLUGIN_accident_leak
/* Room for a sorted copy of the queue, which it forgets. */
static uint32_t *volatile last;

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    (void)opaque;
    uint32_t *sorted = malloc((view->n_waiting + 1) * sizeof *sorted);
    if (sorted != NULL && view->n_waiting > 0) {
        memcpy(sorted, view->waiting, view->n_waiting * sizeof *sorted);
    }
    last = sorted;
    first_fits(view, batch);
}

BAD_SCHEDULER("leak");
#endif

#ifdef PLUGIN_accident_leaking_router
/* A list of who went where that only grows. */
struct went {
    struct went *next;
    uint64_t id;
    uint32_t where, unused[13];
};
static struct went *all;

static uint32_t route(void *state, const struct request *request, const struct route_view *view,
                      int64_t *until_ns) {
    (void)state, (void)until_ns;
    const uint32_t where = (uint32_t)(request->id % view->n);
    struct went *went = calloc(1, sizeof *went);
    if (went != NULL) {
        *went = (struct went){.next = all, .id = request->id, .where = where};
        all = went;
    }
    return where;
}

const struct router unmask_policy = {POLICY(POLICY_ROUTER, router, "leaking-router"),
                                     .route = route};
#endif

#ifdef PLUGIN_accident_clock
/* Asks the machine what time it is. */
static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    struct timespec now;
    (void)opaque;
    first_fits(view, batch);
    clock_gettime(CLOCK_MONOTONIC, &now);
    batch->hold = now.tv_sec < 0 ? HOLD_STEP : HOLD_CHANGE;
}

BAD_SCHEDULER("clock");
#endif

#ifdef PLUGIN_accident_random
/* Breaks ties of a long queue by chance. */
static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    (void)opaque;
    first_fits(view, batch);
    if (view->n_waiting > 500 && batch->n_admitted > 0 && rand() < 0) {
        batch->n--;
        batch->n_admitted--;
    }
}

BAD_SCHEDULER("random");
#endif

#ifdef PLUGIN_accident_file
/* Writes down what it decides. */
static uint32_t plan(const void *state, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    (void)state, (void)memory;
    FILE *log = fopen("/tmp/unmask-accident.log", "a");
    if (log != NULL) {
        fprintf(log, "%u\n", request->canvas_tokens);
        fclose(log);
    }
    *rows = (struct row_sets){.kind = ROW_NONE, .run = {0, request->canvas_tokens}};
    rows->head = rows->run;
    return 1;
}

const struct cache_policy unmask_policy = {POLICY(POLICY_CACHE, cache_policy, "file"),
                                           .plan = plan};
#endif

#if defined PLUGIN_accident_thread || defined PLUGIN_accident_threads_at_load
static void *work(void *unused) {
    for (;;) {
        pause();
    }
    return unused;
}
#endif

#ifdef PLUGIN_accident_thread
/* Leaves a part of the work to a thread. */
static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    pthread_t thread;
    (void)opaque;
    if (view->n_waiting > 30) {
        (void)pthread_create(&thread, NULL, work, NULL);
    }
    first_fits(view, batch);
}

BAD_SCHEDULER("thread");
#endif

#ifdef PLUGIN_accident_threads_at_load
/* The same, begun as soon as it is loaded. */
__attribute__((constructor)) static void begin(void) {
    pthread_t thread;
    (void)pthread_create(&thread, NULL, work, NULL);
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    (void)opaque;
    first_fits(view, batch);
}

BAD_SCHEDULER("threads-at-load");
#endif

#ifdef PLUGIN_accident_divides
/* Divides by a parameter that may be 0. */
struct state {
    uint32_t share;
};
static const struct param params[] = {{"share", PARAM_U32, 0, "1", "4", 0, 100, NULL,
                                       offsetof(struct state, share), "of the queue at once"}};

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    const volatile struct state *state = opaque;
    struct taken used = {0, 0};
    select_running(view, &used, batch);
    admit_waiting(view, 1 + view->n_waiting / state->share, &used, batch);
}

PARAM_SCHEDULER("divides", struct state);
#endif

#ifdef PLUGIN_accident_wide_range
/* A parameter may be larger than the table that it is the length of. */
struct state {
    uint32_t classes, n_of[16];
};
static const struct param params[] = {{"classes", PARAM_U32, 0, "1", "4", 1, 100000, NULL,
                                       offsetof(struct state, classes), "of requests"}};

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    struct state *state = opaque;
    for (uint32_t i = 0; i < state->classes; i++) {
        state->n_of[i] = 0;
    }
    first_fits(view, batch);
}

PARAM_SCHEDULER("wide-range", struct state);
#endif

#ifdef PLUGIN_accident_closed_range
/* With the smallest value it admits nothing at all. */
struct state {
    double share;
};
static const struct param params[] = {{"share", PARAM_F64, 0, "1", "0.5", 0, 1, NULL,
                                       offsetof(struct state, share), "of the places it fills"}};

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    const struct state *state = opaque;
    struct taken used = {0, 0};
    const double places = state->share * view->max_requests;
    select_running(view, &used, batch);
    if (view->n_running < (places < 1 && places > 0 ? 1 : places)) {
        admit_waiting(view, 1, &used, batch);
    }
}

PARAM_SCHEDULER("closed-range", struct state);
#endif

#ifdef PLUGIN_accident_tenants
/* Counts by tenant in a table that knows as many as the author had. */
struct state {
    uint64_t served[4];
    uint32_t after[60];
};

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    struct state *state = opaque;
    first_fits(view, batch);
    for (uint32_t i = 0; i < batch->n; i++) {
        const struct request *request = &view->requests[batch->selected[i]];
        state->served[request->tenant] += request->span.queries;
    }
}

STATE_SCHEDULER("tenants", struct state);
#endif

#ifdef PLUGIN_accident_ids
/* Has a place for each of as many requests as its author tried. */
struct state {
    uint8_t was_seen[2048];
};

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    struct state *state = opaque;
    first_fits(view, batch);
    for (uint32_t i = 0; i < batch->n; i++) {
        state->was_seen[view->requests[batch->selected[i]].id] = 1;
    }
}

STATE_SCHEDULER("ids", struct state);
#endif

#ifdef PLUGIN_accident_passing_over
/* The latest runs first: as long as others come, the first never runs again. */
static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    struct taken used = {0, 0};
    (void)opaque;
    for (uint32_t i = view->n_running; i-- > 0;) {
        const struct request *request = &view->requests[view->running[i]];
        if (used.tokens + request->span.queries <= view->max_batched_tokens) {
            batch->selected[batch->n++] = view->running[i];
            used.tokens += request->span.queries;
        }
    }
    /* Those that wait come before those that run: what is left of the step is theirs. */
    if (view->n_waiting > 0 && view->n_running < view->max_requests) {
        const struct request *request = &view->requests[view->waiting[0]];
        if (request->span.queries <= view->max_batched_tokens &&
            request->kv_bytes <= view->kv_free_bytes) {
            while (batch->n > 0 && used.tokens + request->span.queries > view->max_batched_tokens) {
                batch->n--;
                used.tokens -= view->requests[batch->selected[batch->n]].span.queries;
            }
            batch->selected[batch->n++] = view->waiting[0];
            batch->n_admitted = 1;
        }
    }
}

BAD_SCHEDULER("passing-over");
#endif

#ifdef PLUGIN_accident_preempting
/* Takes the memory of the one that has run longest, when someone waits for a place; not where
 * what is cached can be computed anew alone. */
enum { QUANTUM = 24 };

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    struct taken used = {0, 0};
    uint32_t oldest = UINT32_MAX;
    (void)opaque;
    for (uint32_t i = 0; i < view->n_running && view->n_running > 1; i++) {
        const struct request *request = &view->requests[view->running[i]];
        if (view->n_waiting > 0 && request->steps >= QUANTUM && oldest == UINT32_MAX) {
            oldest = view->running[i];
        }
    }
    for (uint32_t i = 0; i < view->n_running; i++) {
        const struct request *request = &view->requests[view->running[i]];
        if (view->running[i] != oldest &&
            used.tokens + request->span.queries <= view->max_batched_tokens) {
            batch->selected[batch->n++] = view->running[i];
            used.tokens += request->span.queries;
        }
    }
    if (oldest != UINT32_MAX && batch->n > 0) {
        batch->preempted[batch->n_preempted++] = oldest;
        return;
    }
    admit_waiting(view, UINT32_MAX, &used, batch);
}

BAD_SCHEDULER("preempting");
#endif
