/* What test_store.c and test_store_damage.c share. */
#ifndef UNMASK_TESTS_SUPPORT_STORED_H
#define UNMASK_TESTS_SUPPORT_STORED_H

#include <jansson.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "analysis/store/store_impl.h"
#include "tests/support/scratch.h"

static char folder[80], path[128];

static inline void make_folder(void) {
    snprintf(folder, sizeof folder, "%s/XXXXXX", scratch_folder);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert(chmod(scratch_folder, 0755) == 0 && chmod(folder, 0777) == 0);
    snprintf(path, sizeof path, "%s/results.db", folder);
}

static inline struct run_facts facts_of(const char *system) {
    struct run_facts facts = run_facts_unknown();
    facts.system = system;
    facts.profile_kind = "imported";
    facts.seed = 42;
    facts.config = "[system]\nname = x\n";
    return facts;
}

static inline struct store *open_store(void) {
    struct store *store = NULL;
    struct err err = {0};
    int failed = store_open(path, STORE_WRITE, &store, &err);
    ck_assert_msg(failed == 0, "%s", err.text);
    return store;
}

enum { MEMBERS = 3 };
static const uint64_t ids[2][MEMBERS] = {{0, 127, 128}, {1, UINT64_MAX, 5000000000}};
static const uint32_t commits[MEMBERS] = {1, 0, 300};

/* Step `i` of a made-up run: the batch changes every fourth one. */
static inline struct step_record step_at(uint64_t i, int64_t *sym) {
    for (int s = 0; s < SYM_COUNT; s++) {
        sym[s] = (int64_t)i * 1000003 * s;
    }
    struct step_record step =
        MAKE(struct step_record, .index = i, .replica = (uint32_t)(i % 2),
             .repeat = 1 + (uint32_t)(i % 7), .start_ns = (int64_t)i * 1000,
             .end_ns = (int64_t)i * 1000 + 999, .gpu_ns = 700, .host_ns = 299, .sym = sym,
             .n = MEMBERS, .request_ids = ids[(i / 4) % 2], .commit_tokens = commits,
             .kv_used_bytes = 1 << 20, .n_running = 3, .n_waiting = (uint32_t)i);
    step.n_by_phase[PHASE_REUSE] = 2;
    step.n_by_phase[PHASE_REFRESH] = 1;
    return step;
}

static inline struct request_record request_at(uint64_t i) {
    return (struct request_record){.id = i ^ 1,
                                   .replica = 1,
                                   .tenant = 2,
                                   .prompt_tokens = 3,
                                   .output_tokens = 4,
                                   .answer_tokens = 3,
                                   .committed_tokens = 4,
                                   .steps_after_end = 2,
                                   .tokens_after_end = 17,
                                   .arrival_ns = (int64_t)i,
                                   .admitted_ns = -1,
                                   .first_block_ns = 7,
                                   .finished_ns = INT64_MAX - (int64_t)i,
                                   .state = REQUEST_DONE,
                                   .reason = REJECT_NONE,
                                   .steps = 8,
                                   .refresh_steps = 9,
                                   .preemptions = 10,
                                   .first_block_tokens = 11,
                                   .tokens_processed = 1ULL << 40,
                                   .temperature_millionths = i % 3,
                                   .top_p_millionths = i % 2 * 1000001,
                                   .top_k = i % 5 * 1000000007,
                                   .sampling_seed = i % 2 << 63,
                                   .revised_tokens = 12};
}

static inline struct event_record event_at(uint64_t i) {
    return (struct event_record){
        .time_ns = (int64_t)i, .request = i, .kind = EVENT_REJECT, .replica = 1, .detail = 4};
}

/* Records `n` of everything and returns the first error. */
static inline int record(struct sink *sink, uint64_t n, struct err *err) {
    for (uint64_t i = 0; i < n; i++) {
        int64_t sym[SYM_COUNT];
        struct step_record step = step_at(i, sym);
        struct request_record request = request_at(i);
        struct event_record event = event_at(i);
        int failed = sink->step != NULL ? sink->step(sink->state, &step, err) : 0;
        if (failed == 0) {
            failed = sink->request(sink->state, &request, err);
        }
        if (failed == 0 && sink->event != NULL) {
            failed = sink->event(sink->state, &event, err);
        }
        if (failed != 0) {
            return failed;
        }
    }
    return 0;
}

static inline int record_run(struct store *store, const char *system, enum store_level level,
                             uint64_t n, struct err *err) {
    struct run_facts facts = facts_of(system);
    struct summary summary;
    summary_init(&summary, NULL);
    summary_finish(&summary);
    struct sink sink;
    int64_t run;
    int failed = store_run_begin(store, &facts, level, &run, &sink, err);
    if (failed == 0) {
        failed = record(&sink, n, err);
    }
    if (failed == 0) {
        failed = store_run_commit(store, &summary, &facts, err);
    }
    return failed;
}

static inline int count_run(void *state, const struct stored_run *run, struct err *err) {
    (void)run, (void)err;
    ++*(int *)state;
    return 0;
}

static inline int runs_in(struct store *store) {
    int n = 0;
    struct err err = {0};
    int failed = store_list_runs(store, count_run, &n, &err);
    ck_assert_msg(failed == 0, "%s", err.text);
    return n;
}

struct check {
    uint64_t n;
};

static inline int same_step(void *state, const struct step_record *r, struct err *err) {
    (void)err;
    struct check *check = state;
    int64_t sym[SYM_COUNT];
    struct step_record expected = step_at(check->n++, sym);
    ck_assert_uint_eq(r->index, expected.index);
    ck_assert_uint_eq(r->replica, expected.replica);
    ck_assert_uint_eq(r->repeat, expected.repeat);
    ck_assert_int_eq(r->start_ns, expected.start_ns);
    ck_assert_int_eq(r->end_ns, expected.end_ns);
    ck_assert_int_eq(r->gpu_ns, expected.gpu_ns);
    ck_assert_int_eq(r->host_ns, expected.host_ns);
    ck_assert_mem_eq(r->sym, sym, sizeof sym);
    ck_assert_mem_eq(r->n_by_phase, expected.n_by_phase, sizeof r->n_by_phase);
    ck_assert_uint_eq(r->n, expected.n);
    ck_assert_mem_eq(r->request_ids, expected.request_ids, sizeof ids[0]);
    ck_assert_mem_eq(r->commit_tokens, expected.commit_tokens, sizeof commits);
    ck_assert_int_eq(r->kv_used_bytes, expected.kv_used_bytes);
    ck_assert_uint_eq(r->n_running, expected.n_running);
    ck_assert_uint_eq(r->n_waiting, expected.n_waiting);
    return 0;
}

static inline void await(pid_t pid) {
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}

struct seen {
    int n, n_incomplete, n_damaged;
    int64_t n_requests;
};

static inline int see(void *state, const struct stored_run *run, struct err *err) {
    struct seen *seen = state;
    (void)err;
    json_t *summary = json_loads(run->summary, 0, NULL);
    seen->n++;
    seen->n_damaged += run->damage != NULL;
    seen->n_incomplete += json_is_string(json_object_get(summary, "incomplete"));
    seen->n_requests += run->n_requests;
    json_decref(summary);
    return 0;
}

static inline struct seen look(void) {
    struct seen seen = {0};
    struct store *store = NULL;
    struct err err = {0};
    ck_assert_msg(store_open(path, STORE_READ, &store, &err) == 0, "%s", err.text);
    ck_assert_int_eq(store_list_runs(store, see, &seen, &err), 0);
    store_close(store);
    return seen;
}

#endif
