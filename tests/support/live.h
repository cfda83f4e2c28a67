/* What the suites of live runs share: a small system on the CPU, served and played again. */
#ifndef UNMASK_TESTS_SUPPORT_LIVE_H
#define UNMASK_TESTS_SUPPORT_LIVE_H

#include "experiments/run/meter.h"
#include "tests/support/played.h"
#include "tests/support/rig.h"
#include "traces/decode_log.h"

enum { LIVE_REQUESTS = 4, LIVE_BLOCK = 64, LIVE_OUTPUT = 64, LIVE_STEPS = 512, LIVE_SETTINGS = 16 };

/* Settings of every system here. The last two make its model narrower: what is compared does not
 * depend on widths, and most of the time is theirs. A suite for which that is not so says 5. */
#ifndef LIVE_ALWAYS
#define LIVE_ALWAYS 7
#endif

/* A system for the CPU back end in little memory; `settings` "key=value", NULL-ended. */
static inline struct system *live_system_of(const char *name, const char *model,
                                            const char *const *settings) {
    const bool has_experts_only =
        strcmp(model, "llada-moe-tiny") == 0 || strcmp(model, "diffusiongemma-tiny") == 0;
    const char *const always[] = {"storage.weights=f32",
                                  "reserve_bytes=16MiB",
                                  "memory_utilization=0.04",
                                  "max_batched_tokens=256",
                                  "max_in_system=16",
                                  "model.hidden=128",
                                  has_experts_only ? "model.expert_ffn=32" : "model.ffn=64"};
    static struct setting all[LIVE_SETTINGS + LIVE_ALWAYS];
    uint32_t n = 0;
    for (size_t i = 0; i < LIVE_ALWAYS || settings[i - LIVE_ALWAYS] != NULL; i++) {
        const char *text = i < LIVE_ALWAYS ? always[i] : settings[i - LIVE_ALWAYS];
        const char *equals = strchr(text, '=');
        struct setting *setting = &all[n++];
        *setting = (struct setting){.place = "test"};
        snprintf(setting->key, sizeof setting->key, "%.*s", (int)(equals - text), text);
        snprintf(setting->value, sizeof setting->value, "%s", equals + 1);
    }
    struct system_request request =
        MAKE(struct system_request, .system = name, .model = model, .gpu = "cpu", .overrides = all,
             .n_overrides = n, .roofline = true);
    struct err err = {0};
    struct system *system = NULL;
    ck_assert_msg(system_open(&request, &system, &err) == 0, "%s", err.text);
    return system;
}

static inline struct system *live_system(const char *model, const char *const *settings) {
    return live_system_of("dllm-serve", model, settings);
}

/* The widths of LLaDA in small, where a test's numbers are about its weights. */
#define LIVE_WIDE               "model.hidden=256", "model.ffn=512"
#define LIVE_SYSTEM(model, ...) live_system(model, (const char *const[]){__VA_ARGS__, NULL})

/* What became of a run: tokens by request id, and its submissions as a replay plays them. */
struct served {
    struct loop_result result;
    int32_t tokens[LIVE_REQUESTS][LIVE_OUTPUT];
    uint32_t n_tokens[LIVE_REQUESTS], n_outputs;
    struct replay_step steps[LIVE_STEPS];
    uint64_t ids[LIVE_STEPS][LIVE_REQUESTS];
    uint32_t commits[LIVE_STEPS][LIVE_REQUESTS];
    struct step_positions positions[LIVE_STEPS];
    uint32_t lengths[LIVE_STEPS][LIVE_REQUESTS];
    uint8_t keep[LIVE_STEPS][LIVE_REQUESTS * LIVE_BLOCK],
        commit[LIVE_STEPS][LIVE_REQUESTS * LIVE_BLOCK];
    float entropy[LIVE_STEPS][LIVE_REQUESTS * LIVE_BLOCK],
        seen[LIVE_STEPS][LIVE_REQUESTS * LIVE_BLOCK];
    size_t n_steps;
    bool is_live; /* the device decided */
    int64_t planned_activation_bytes, activation_bytes, pool_bytes;
    int64_t pool_left_bytes; /* held when everybody was gone */
    uint32_t n_preempted;    /* requests were, so many times in all */
    struct swap swap;        /* summed */
    size_t stop_after;       /* steps; 0: the run is not stopped */
    volatile sig_atomic_t stop;
    struct request_record records[LIVE_REQUESTS]; /* by id */
    struct decode_log *passes;                    /* what each pass ran and committed */
    struct engine_memory memory;
    struct err err;
};

static inline int served_output(void *state, uint64_t id, const int32_t *tokens, uint32_t n,
                                struct err *err) {
    struct served *served = state;
    (void)err;
    ck_assert(id < LIVE_REQUESTS && n <= LIVE_OUTPUT && served->n_tokens[id] == 0);
    memcpy(served->tokens[id], tokens, n * sizeof *tokens);
    served->n_tokens[id] = n;
    served->n_outputs++;
    return 0;
}

static inline int served_step(void *state, const struct step_record *record, struct err *err) {
    struct served *served = state;
    (void)err;
    ck_assert(served->n_steps < LIVE_STEPS && record->n <= LIVE_REQUESTS);
    size_t i = served->n_steps++;
    served->stop = served->n_steps == served->stop_after;
    served->swap.n_out += record->swap.n_out;
    served->swap.n_in += record->swap.n_in;
    served->swap.out_bytes += record->swap.out_bytes;
    served->swap.in_bytes += record->swap.in_bytes;
    served->swap.stall_ns += record->swap.stall_ns;
    memcpy(served->ids[i], record->request_ids, record->n * sizeof served->ids[i][0]);
    memcpy(served->commits[i], record->commit_tokens, record->n * sizeof served->commits[i][0]);
    for (uint32_t j = 0; served->passes != NULL && j < record->n; j++) {
        struct decode_pass pass = record->passes[j];
        pass.committed = record->commit_tokens[j];
        if (pass.processed > 0) {
            decode_log_add(served->passes, record->request_ids[j], &pass, record->repeat, NULL);
        }
    }
    served->steps[i] =
        MAKE(struct replay_step, .steps = record->repeat, .n_requests = record->n,
             .start_ns = record->start_ns, .end_ns = record->end_ns, .gpu_ns = record->gpu_ns,
             .host_ns = record->host_ns, .swap = record->swap, .request_ids = served->ids[i],
             .commits = served->commits[i]);
    const struct step_positions *positions = record->positions;
    if (positions != NULL) {
        ck_assert_uint_le(positions->stride, LIVE_BLOCK);
        size_t n_flags = (size_t)record->n * positions->stride;
        memcpy(served->lengths[i], positions->lengths, record->n * sizeof served->lengths[i][0]);
        memcpy(served->keep[i], positions->keep, n_flags);
        memcpy(served->commit[i], positions->outcome, n_flags);
        bool has_entropy = positions->entropy != NULL;
        if (has_entropy) {
            memcpy(served->entropy[i], positions->entropy, n_flags * sizeof served->entropy[i][0]);
        }
        bool has_seen = positions->seen != NULL;
        if (has_seen) {
            memcpy(served->seen[i], positions->seen, n_flags * sizeof served->seen[i][0]);
        }
        served->positions[i] =
            MAKE(struct step_positions, .stride = positions->stride, .lengths = served->lengths[i],
                 .keep = served->keep[i], .outcome = served->commit[i],
                 .entropy = has_entropy ? served->entropy[i] : NULL,
                 .seen = has_seen ? served->seen[i] : NULL);
        served->steps[i].positions = &served->positions[i];
    }
    return 0;
}

static inline int served_request(void *state, const struct request_record *record,
                                 struct err *err) {
    struct served *served = state;
    (void)err;
    served->n_preempted += record->preemptions;
    if (served->passes != NULL) {
        bool ends = record->answer_tokens < record->output_tokens;
        const struct decode_done done = {record->prompt_tokens, record->output_tokens,
                                         ends ? record->answer_tokens : 0};
        decode_log_finish(served->passes, record->id, &done);
    }
    if (record->id < LIVE_REQUESTS) {
        served->records[record->id] = *record;
    }
    return 0;
}

/* How to serve. `played` NULL: live, in virtual time; else that run's schedule, on the device. */
struct serving {
    struct system *system;
    const struct arrival *arrivals;
    size_t n;
    const struct served *played;
    const struct device_table *table; /* instead of the device's own; NULL: the same */
    bool waits;                       /* for arrivals, in real time */
    bool simulates;                   /* nothing runs on the device, decisions are drawn */
    const int32_t *(*prompt)(void *state, uint64_t id); /* live_set_prompt's; NULL: drawn */
    void *prompt_state;
    struct accuracy *accuracy;          /* of a schedule played */
    size_t stop_after;                  /* so many steps, as if from outside; 0: to the end */
    struct decode_log *passes;          /* to be filled; NULL: not asked for */
    struct end_tokens ends;             /* that a live run looks for */
    const struct decode_source *decode; /* decisions that are played; NULL: none */
};

static inline struct served *serve(const struct serving *serving) {
    struct system *system = serving->system;
    struct served *served = calloc(1, sizeof *served);
    const struct fleet_request asked = {
        .engine = {.backend = BACKEND_CPU, .weights = "random:3", .system = system},
        .seed = 5,
        .skips_idle = !serving->waits};
    const uint32_t n_replicas = system->settings.replicas;
    struct fleet *fleet = NULL;
    struct err *err = &served->err;
    served->passes = serving->passes;
    served->stop_after = serving->stop_after;
    ck_assert_msg(fleet_open(&asked, &fleet, err) == 0, "%s", err->text);
    for (uint32_t r = 0; r < n_replicas; r++) {
        struct engine *engine = fleet_engine(fleet, r);
        struct live *live = fleet_live(fleet, r);
        engine->device.table = serving->table != NULL ? serving->table : engine->device.table;
        live_set_output(live, served_output, served);
        live_set_prompt(live, serving->prompt, serving->prompt_state);
    }
    fleet_set_ends(fleet, &serving->ends);
    struct executor_sim *sim = executor_sim_open(system, n_replicas);
    struct executor_replay *replay = NULL;
    struct played played;
    struct meter_request around =
        MAKE(struct meter_request, .inner = fleet_interface(fleet), .system = system, .pricer = sim,
             .places_all = true, .accuracy = serving->accuracy);
    if (serving->played != NULL) {
        played = MAKE(struct played, .steps = (struct replay_step *)serving->played->steps,
                      .n = serving->played->n_steps);
        struct replay_record record = played_record(&played);
        record.decides = serving->played->is_live;
        record.unrolls = true;
        replay = executor_replay_open(&record, 1);
        around.inner = executor_replay_interface(replay);
        around.replay = replay;
        around.rerun = fleet;
    }
    served->is_live = serving->played == NULL && !serving->simulates;
    if (serving->simulates) {
        around.inner = executor_sim_interface(sim);
        around.pricer = NULL;
    }
    struct meter meter;
    meter_init(&meter, &around);
    struct list_source list = {serving->arrivals, serving->n, 0};
    struct sink sink = {.state = served, .request = served_request, .step = served_step};
    struct loop_request request =
        MAKE(struct loop_request, .system = system, .executor = meter_interface(&meter),
             .source = {.state = &list, .next = list_next}, .sinks = &sink, .n_sinks = 1,
             .records_members = true, .decode = serving->decode, .stop = &served->stop, .seed = 1);
    (void)loop_run(&request, &served->result, err);
    int64_t logit_bytes;
    meter_memory(&meter, &served->planned_activation_bytes, &logit_bytes);
    served->activation_bytes = fleet_activation_peak_bytes(fleet);
    served->pool_bytes = fleet_pool_peak_bytes(fleet);
    served->memory = fleet_memory(fleet);
    for (uint32_t r = 0; r < n_replicas; r++) {
        served->pool_left_bytes += live_pool_bytes(fleet_live(fleet, r));
    }
    meter_fini(&meter);
    executor_replay_close(replay);
    executor_sim_close(sim);
    fleet_close(fleet);
    return served;
}

/* Live, in virtual time, to the end. */
static inline struct served *serve_live(struct system *system, const struct arrival *arrivals,
                                        size_t n) {
    struct served *served =
        serve(&(struct serving){.system = system, .arrivals = arrivals, .n = n});
    ck_assert_msg(served->err.kind == ERR_NONE, "%s", served->err.text);
    return served;
}

/* All were served, in the memory that was planned. */
static inline void check_used_as_planned(const struct served *served, size_t n) {
    ck_assert_uint_eq(served->result.completed, n);
    ck_assert_uint_eq(served->n_outputs, n);
    ck_assert_int_gt(served->activation_bytes, 0);
    ck_assert_int_eq(served->activation_bytes, served->planned_activation_bytes);
    ck_assert_int_eq(served->pool_bytes, served->result.kv_peak_bytes);
}

/* Everybody has an output of the model's tokens; arrivals by their ids. */
static inline void check_outputs(const struct served *served, const struct system *system,
                                 const struct arrival *arrivals, size_t n) {
    for (size_t id = 0; id < n; id++) {
        ck_assert_uint_eq(served->n_tokens[id], arrivals[id].output_tokens);
        for (uint32_t i = 0; i < served->n_tokens[id]; i++) {
            ck_assert_int_ge(served->tokens[id][i], 0);
            ck_assert_int_lt(served->tokens[id][i], (int)system->whole->vocab);
        }
    }
}

static inline bool has_same_tokens(const struct served *a, const struct served *b) {
    return memcmp(a->tokens, b->tokens, sizeof a->tokens) == 0;
}

static inline void same_tokens(const struct served *a, const struct served *b, size_t n) {
    for (size_t id = 0; id < n; id++) {
        ck_assert_uint_eq(a->n_tokens[id], b->n_tokens[id]);
        ck_assert_mem_eq(a->tokens[id], b->tokens[id], a->n_tokens[id] * sizeof a->tokens[id][0]);
    }
}

#endif
