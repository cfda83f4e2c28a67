/* The invariants of live runs on the CPU over a matrix of configurations: what a request gets does
 * not depend on what runs beside it, on pages, scopes, mapped memory or preemption; a recorded
 * schedule is played to the token; a simulated one is carried out; memory is what was planned.
 *
 * A configuration is a line: a system, a model, its settings and the invariants that hold for it.
 */
#include "engine/device/mapping.h"
#include "tests/support/matrix.h"

/* A configuration under test: its run of all requests together, beside which others are held; and
 * the same where the pool has room for all at first, and for the longest alone, but not for all to
 * the end (NULL: nothing is asked of such a pool). */
struct subject {
    const struct matrix_config *config;
    const struct arrival_set *set;
    struct system *system, *narrow;
    struct served *base, *pressed;
};

/* Random weights can find the mask's own id the most likely, tied embeddings more often:
 * sdar-tiny's do at model.hidden=96. Where that is given, what follows depends on the scope: a
 * position that holds it is decided again if it has a logit row, and has none under
 * logit_scope=masked. So the widths of tests/support/live.h are such that no output holds one. */
static void check_no_masks(const struct subject *s, const struct system *system,
                           const struct served *served) {
    for (uint32_t id = 0; id < s->set->n; id++) {
        for (uint32_t t = 0; t < served->n_tokens[id]; t++) {
            ck_assert_msg(served->tokens[id][t] != (int32_t)system->model->mask_token,
                          "token %u of request %u is the mask's own id: other weights or widths", t,
                          id);
        }
    }
}

/* Everybody has an output, memory was what was planned, and nobody holds any of it. */
static void check_served(const struct subject *s, const struct system *system,
                         const struct served *served) {
    check_outputs(served, system, s->set->together, s->set->n);
    check_no_masks(s, system, served);
    check_used_as_planned(served, s->set->n);
    ck_assert_int_eq(served->pool_left_bytes, 0);
    ck_assert_int_eq(served->memory.metered_bytes + served->memory.unmapped_bytes,
                     served->memory.planned_bytes);
}

static struct served *serve_set(const struct subject *s, struct system *system) {
    struct served *served = serve_live(system, s->set->together, s->set->n);
    check_served(s, system, served);
    return served;
}

static void check_alone(const struct subject *s) {
    struct arrival apart[LIVE_REQUESTS];
    set_apart(s->set, apart);
    struct served *alone = serve_live(s->system, apart, s->set->n);
    check_served(s, s->system, alone);
    same_tokens(s->base, alone, s->set->n);
    if ((s->config->invariants & IDLE) != 0) {
        const struct loop_result *together = &s->base->result, *single = &alone->result;
        ck_assert_int_gt(together->sym[SYM_REQUESTS], (int64_t)together->request_steps);
        ck_assert_int_eq(single->sym[SYM_REQUESTS], (int64_t)single->request_steps);
    } else {
        ck_assert_uint_lt(s->base->n_steps, alone->n_steps);
    }
    free(alone);
}

static void check_mapped(const struct subject *s) {
    s->system->runtime.vmm = true;
    struct served *mapped = serve_set(s, s->system);
    s->system->runtime.vmm = false;
    ck_assert(!s->base->memory.is_mapped && mapped->memory.is_mapped);
    const struct engine_memory *memory = &mapped->memory;
    ck_assert_int_ge(memory->mapped_peak_bytes, mapped->activation_bytes + mapped->pool_bytes);
    if (s->config->set == CANVAS) { /* small pools: calls do not grow with the steps */
        ck_assert_int_gt(memory->unmapped_bytes, 0);
        ck_assert_int_le(memory->mapped_peak_bytes, 4 * MAPPING_HANDLE_BYTES);
        ck_assert_int_le(memory->mapping_calls, 1 + 3 * 4);
    }
    same_tokens(s->base, mapped, s->set->n);
    ck_assert_uint_eq(s->base->n_steps, mapped->n_steps);
    ck_assert_mem_eq(s->base->commits, mapped->commits, sizeof mapped->commits);
    free(mapped);
}

static void check_ways(const struct subject *s) {
    static const char *const ways[] = {
        "page_tokens=64 logit_scope=queries",
        "page_tokens=16 logit_scope=masked max_batched_tokens=24",
        "page_tokens=256 logit_scope=generation max_batched_tokens=16",
        "page_tokens=4 logit_scope=block",
    };
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct system *system = open_config(s->config, ways[i]);
        struct served *served = serve_set(s, system);
        same_tokens(s->base, served, s->set->n);
        free(served);
        system_close(system);
    }
}

/* With room for all and, where there is such a pool, under preemption. */
static void check_on_both(const struct subject *s,
                          void (*check)(const struct subject *s, struct system *system,
                                        const struct served *live)) {
    check(s, s->system, s->base);
    if (s->narrow != NULL) {
        check(s, s->narrow, s->pressed);
    }
}

static void check_preempted(const struct subject *s) {
    ck_assert_uint_eq(s->base->n_preempted, 0);
    ck_assert_uint_gt(s->pressed->n_preempted, 0);
    if ((s->config->invariants & PREEMPTED) != 0) {
        same_tokens(s->base, s->pressed, s->set->n);
    }
}

/* At any step: of running, waiting and preempted requests alike. */
static void check_stopped(const struct subject *s) {
    uint32_t n_preempted = 0;
    for (size_t stop = 1; stop < 40; stop += 4) {
        struct serving serving = {
            .system = s->narrow, .arrivals = s->set->together, .n = s->set->n, .stop_after = stop};
        struct served *served = serve(&serving);
        ck_assert_msg(served->err.kind == ERR_NONE, "%s", served->err.text);
        const struct loop_result *result = &served->result;
        ck_assert(result->interrupted || result->completed == s->set->n);
        ck_assert_uint_eq(result->completed + result->rejected, result->arrived);
        ck_assert_uint_eq(served->n_outputs, result->completed);
        ck_assert_int_gt(served->pool_bytes, 0);
        ck_assert_int_eq(served->pool_left_bytes, 0);
        n_preempted += served->n_preempted;
        free(served);
    }
    ck_assert_uint_gt(n_preempted, 0);
}

/* The operators of every second step are measured one by one, which changes nothing. */
static void check_accuracy(const struct system *system, const struct accuracy *accuracy,
                           size_t n_steps) {
    double by_operator_ns = 0, whole_ns = 0;
    ck_assert_uint_eq(accuracy->n_steps, n_steps);
    ck_assert_uint_eq(accuracy_by_operator(accuracy, STEP_CLASS_COUNT), (n_steps + 1) / 2);
    for (uint32_t kind = 0; kind < STEP_CLASS_COUNT; kind++) {
        for (uint32_t op = 0; op < system->graph.n_ops; op++) {
            by_operator_ns += accuracy->ops[kind][op].measured_ns;
        }
    }
    for (size_t i = 0; i < accuracy->n_steps; i++) {
        ck_assert(accuracy->steps[i].measured_device_ns > 0);
        ck_assert(accuracy->steps[i].measured_wall_ns >= accuracy->steps[i].measured_device_ns);
        ck_assert(accuracy->steps[i].predicted_wall_ns > 0);
        whole_ns += i % 2 == 0 ? accuracy->steps[i].measured_device_ns : 0;
    }
    ck_assert_double_eq_tol(by_operator_ns / whole_ns, 1, 1e-9);
}

static void check_played_on(const struct subject *s, struct system *system,
                            const struct served *live) {
    struct accuracy accuracy;
    accuracy_init(&accuracy, system, live->n_steps, 2);
    struct serving serving = {.system = system,
                              .arrivals = s->set->together,
                              .n = s->set->n,
                              .played = live,
                              .accuracy = &accuracy};
    struct served *played = serve(&serving);
    ck_assert_msg(played->err.kind == ERR_NONE, "%s", played->err.text);
    check_served(s, system, played);
    same_tokens(live, played, s->set->n);
    ck_assert_uint_eq(played->n_steps, live->n_steps);
    ck_assert_mem_eq(played->commits, live->commits, sizeof live->commits);
    ck_assert_mem_eq(played->result.sym, live->result.sym, sizeof live->result.sym);
    ck_assert_int_eq(played->result.end_ns, live->result.end_ns);
    ck_assert_int_eq(played->planned_activation_bytes, live->activation_bytes);
    ck_assert_int_eq(played->result.kv_peak_bytes, live->pool_bytes);
    check_accuracy(system, &accuracy, live->n_steps);
    accuracy_fini(&accuracy);
    free(played);
}

static void check_played(const struct subject *s) {
    check_on_both(s, check_played_on);
}

static struct served *simulate(const struct subject *s, struct system *system) {
    struct serving serving = {
        .system = system, .arrivals = s->set->together, .n = s->set->n, .simulates = true};
    struct served *simulated = serve(&serving);
    ck_assert_msg(simulated->err.kind == ERR_NONE, "%s", simulated->err.text);
    return simulated;
}

/* The same submissions of the same requests, which run and commit as much, in the same memory. */
static void check_simulated_on(const struct subject *s, struct system *system,
                               const struct served *live) {
    struct served *simulated = simulate(s, system);
    ck_assert_uint_eq(simulated->n_steps, live->n_steps);
    for (size_t i = 0; i < live->n_steps; i++) {
        ck_assert_uint_eq(simulated->steps[i].steps, live->steps[i].steps);
        ck_assert_uint_eq(simulated->steps[i].n_requests, live->steps[i].n_requests);
    }
    ck_assert_mem_eq(simulated->ids, live->ids, sizeof live->ids);
    ck_assert_mem_eq(simulated->commits, live->commits, sizeof live->commits);
    ck_assert_mem_eq(simulated->result.sym, live->result.sym, sizeof live->result.sym);
    ck_assert_uint_eq(simulated->n_preempted, live->n_preempted);
    ck_assert_int_eq(simulated->result.kv_peak_bytes, live->pool_bytes);
    ck_assert_int_eq(simulated->planned_activation_bytes, live->activation_bytes);
    free(simulated);
}

static void check_simulated(const struct subject *s) {
    check_on_both(s, check_simulated_on);
}

/* Simulated decisions are not those of the model: as many positions run, stay and are committed as
 * they say, and no mask is left. */
static void check_carried_on(const struct subject *s, struct system *system,
                             const struct served *live) {
    struct served *simulated = simulate(s, system);
    (void)live;
    struct accuracy accuracy;
    uint32_t most = 0;
    for (size_t i = 0; i < simulated->n_steps; i++) {
        most = simulated->commits[i][0] > most ? simulated->commits[i][0] : most;
    }
    ck_assert(most > 1 || system->settings.block_tokens == 1);
    accuracy_init(&accuracy, system, simulated->n_steps, 3);
    struct serving serving = MAKE(struct serving, .system = system, .arrivals = s->set->together,
                                  .n = s->set->n, .played = simulated, .accuracy = &accuracy);
    struct served *played = serve(&serving);
    ck_assert_msg(played->err.kind == ERR_NONE, "%s", played->err.text);
    ck_assert_uint_eq(played->n_outputs, s->set->n);
    check_outputs(played, system, s->set->together, s->set->n);
    check_no_masks(s, system, played);
    ck_assert_uint_eq(accuracy.n_steps, simulated->n_steps);
    ck_assert_uint_eq(accuracy_by_operator(&accuracy, STEP_CLASS_COUNT),
                      (simulated->n_steps + 2) / 3);
    accuracy_fini(&accuracy);
    free(simulated);
    free(played);
}

static void check_carried(const struct subject *s) {
    check_on_both(s, check_carried_on);
}

static const struct {
    unsigned invariants;
    void (*check)(const struct subject *subject);
} checks[] = {
    {ALONE | IDLE, check_alone},  {MAPPED, check_mapped},
    {WAYS, check_ways},           {PREEMPTED | GOES_ON, check_preempted},
    {STOPPED, check_stopped},     {PLAYED, check_played},
    {SIMULATED, check_simulated}, {CARRIED, check_carried},
};

/* Configuration `i` of all families; false past the last one. */
static bool find_config(size_t i, struct matrix_config *out) {
    for (int family = 0; family < N_FAMILIES; family++) {
        size_t n = 0;
        while (families[family](n, out)) {
            if (i == n) {
                return true;
            }
            n++;
        }
        i -= n;
    }
    return false;
}

TEST_EACH(a_configuration_keeps_its_invariants, 1) {
    struct matrix_config config;
    ck_assert(find_config((size_t)_i, &config));
    struct subject s = {
        .config = &config, .set = &sets[config.set], .system = open_config(&config, NULL)};
    const unsigned on_both = PREEMPTED | GOES_ON | STOPPED | PLAYED | SIMULATED | CARRIED;
    s.base = serve_set(&s, s.system);
    if (config.narrow_pages > 0 && (config.invariants & on_both) != 0) {
        s.narrow = open_config(&config, NULL);
        s.narrow->budget.pool_bytes = config.narrow_pages * s.narrow->budget.unit_bytes;
        s.pressed = serve_set(&s, s.narrow);
    }
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        if ((config.invariants & checks[i].invariants) != 0) {
            checks[i].check(&s);
        }
    }
    free(s.base);
    free(s.pressed);
    system_close(s.system);
    system_close(s.narrow);
}

/* The configurations by the numbers that a failure names. */
static void print_configs(void) {
    struct matrix_config config;
    for (size_t i = 0; find_config(i, &config); i++) {
        printf("%zu: %s %s", i, config.system, config.model);
        for (size_t k = 0; k < config.n_settings; k++) {
            printf(" %s", config.text[k]);
        }
        printf("\n");
    }
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        print_configs();
        return EXIT_SUCCESS;
    }
    struct matrix_config config;
    int n = 0;
    while (find_config((size_t)n, &config)) {
        n++;
    }
    /* Arguments: the first configuration, and the one behind the last. */
    suite_tests[0].begin = argc == 3 ? atoi(argv[1]) : 0;
    suite_tests[0].end = argc == 3 ? atoi(argv[2]) : n;
    return suite_run("matrix of live runs (--list)");
}
