/* The chunk search, and the systems and live runs that go by it. */
#include "sim/system/system_step.h"
#define LIVE_ALWAYS 5 /* numbers here are those of the models' own widths */
#include "tests/support/live.h"
#include "tests/support/random_step.h"
#include "tests/support/says.h"

/* A problem with less memory than it takes unchunked, or a little more. */
struct problem {
    struct graph graph;
    struct step_shape shape;
    struct chunk_rule rule;
    struct chunk_request request;
};

static void random_problem(struct rng *rng, struct problem *p) {
    random_graph(rng, &p->graph);
    p->shape = short_or_long(rng);
    p->rule = (struct chunk_rule){.search = CHUNK_SEARCH_BOTTLENECK};
    p->rule.bound.of[CHUNK_LOGITS] = rng_uniform(rng) < 0.3 ? rig_between(rng, 1, 4096) : 0;
    const struct planner *planner = &planner_table[rng_next(rng) % planner_table_size];
    struct placement unchunked;
    placement_make(planner, &p->graph, &p->shape, p->rule.bound, &unchunked);
    p->request = MAKE(struct chunk_request, .rule = &p->rule, .planner = planner,
                      .graph = &p->graph, .shape = &p->shape,
                      .available_bytes =
                          (int64_t)((0.2 + 0.9 * rng_uniform(rng)) * (double)unchunked.peak_bytes));
}

/* How many chunks make a difference. */
static int64_t most_of(const struct chunk_request *r, int kind) {
    int64_t most = 0;
    for (uint32_t i = 0; i < r->graph->n_loops; i++) {
        int64_t rows = r->shape->sym[r->graph->loops[i].rows];
        most = (int)r->graph->loops[i].kind == kind && rows > most ? rows : most;
    }
    return most < CHUNK_MOST ? most : CHUNK_MOST;
}

static void plan_with(const struct problem *p, const uint32_t counts[CHUNK_KINDS],
                      struct chunk_result *result, struct placement *out) {
    const struct chunk_request *r = &p->request;
    struct chunk_rule rule = p->rule;
    struct chunk_rows chunks;
    rule.search = CHUNK_SEARCH_ALWAYS;
    memcpy(rule.counts, counts, sizeof rule.counts);
    (void)chunk_rows_given(&rule, r->graph, r->shape, &chunks);
    placement_make(r->planner, r->graph, r->shape, chunks, out);
    result->n_plans++;
}

/* The kind that gets one more chunk, or CHUNK_KINDS: while the bytes live are more than available,
 * the one that holds them; else the one that lowers the plan most. */
static int next_kind(const struct problem *p, const struct placement *plan,
                     struct chunk_result *result) {
    const struct chunk_request *r = &p->request;
    struct placement trial;
    int64_t live[GRAPH_MAX_OPS], of[CHUNK_KINDS + 1] = {0}, lowest = INT64_MAX;
    int holder = 0, found = CHUNK_KINDS;
    placement_measure(r->graph, r->shape, plan->chunks, &trial, live);
    for (uint32_t op = 0; op < r->graph->n_ops; op++) {
        int loop = r->graph->ops[op].loop;
        int kind = loop < 0 ? CHUNK_KINDS : (int)r->graph->loops[loop].kind;
        of[kind] = live[op] > of[kind] ? live[op] : of[kind];
    }
    for (int kind = 1; kind <= CHUNK_KINDS; kind++) {
        holder = of[kind] > of[holder] ? kind : holder;
    }
    if (of[holder] > r->available_bytes) {
        bool can = holder < CHUNK_KINDS && result->counts[holder] < most_of(r, holder);
        return can ? holder : CHUNK_KINDS;
    }
    for (int kind = 0; kind < CHUNK_KINDS; kind++) {
        uint32_t counts[CHUNK_KINDS];
        memcpy(counts, result->counts, sizeof counts);
        if (counts[kind]++ < most_of(r, kind)) {
            plan_with(p, counts, result, &trial);
            bool is_better =
                trial.peak_bytes < lowest || (trial.peak_bytes == lowest && of[kind] > of[found]);
            found = is_better ? kind : found;
            lowest = is_better ? trial.peak_bytes : lowest;
        }
    }
    return found;
}

/* The search as it is told: one more chunk, one more plan. */
static void one_by_one(const struct problem *p, struct chunk_result *out) {
    *out = (struct chunk_result){.counts = {1, 1, 1}};
    for (;;) {
        struct placement placement;
        plan_with(p, out->counts, out, &placement);
        out->fits = placement.peak_bytes <= p->request.available_bytes;
        int kind = out->fits ? CHUNK_KINDS : next_kind(p, &placement, out);
        if (kind == CHUNK_KINDS) {
            return;
        }
        out->counts[kind]++;
    }
}

TEST(the_search_finds_the_counts_of_one_chunk_more_at_a_time) {
    struct rng rng = rng_stream(15, "bottleneck");
    uint32_t n_chunked = 0, n_misfits = 0, n_plans = 0, n_steps = 0;
    for (int round = 0; round < 1500; round++) {
        struct problem p;
        struct placement placement;
        struct chunk_result fast, slow;
        struct err err = {0};
        random_problem(&rng, &p);
        chunk_place(&p.request, &placement, &fast);
        one_by_one(&p, &slow);
        ck_assert_int_eq(fast.fits, slow.fits);
        ck_assert(fast.fits == (placement.peak_bytes <= p.request.available_bytes));
        ck_assert_msg(placement_verify(&p.graph, &placement, &err) == 0, "%s", err.text);
        n_misfits += !fast.fits;
        if (fast.fits) {
            ck_assert_mem_eq(fast.counts, slow.counts, sizeof fast.counts);
            n_chunked += fast.counts[0] + fast.counts[1] + fast.counts[2] > CHUNK_KINDS;
            n_plans += fast.n_plans;
            n_steps += slow.n_plans;
        }
    }
    ck_assert_uint_gt(n_chunked, 300);
    ck_assert_uint_gt(n_misfits, 100);
    printf("%u problems chunked, %u hopeless; %u plans instead of %u\n", n_chunked, n_misfits,
           n_plans, n_steps);
}

TEST(with_room_to_spare_nothing_is_chunked) {
    struct rng rng = rng_stream(16, "lazy");
    for (int round = 0; round < 300; round++) {
        struct problem p;
        struct placement placement, unchunked;
        struct chunk_result result;
        random_problem(&rng, &p);
        placement_make(p.request.planner, &p.graph, &p.shape, p.rule.bound, &unchunked);
        p.request.available_bytes = unchunked.peak_bytes;
        chunk_place(&p.request, &placement, &result);
        ck_assert(result.fits && result.n_plans == 1);
        ck_assert_uint_eq(result.counts[CHUNK_ATTENTION], 1);
        ck_assert_uint_eq(result.counts[CHUNK_FFN], 1);
        ck_assert_uint_eq(result.counts[CHUNK_LOGITS], 1);
        ck_assert_mem_eq(&placement.chunks, &p.rule.bound, sizeof placement.chunks);
        ck_assert_int_eq(placement.peak_bytes, unchunked.peak_bytes);
    }
}

static double price_of(void *state, const struct step_shape *shape, struct chunk_rows chunks) {
    struct step_price price;
    cost_price(state, shape, chunks, &price);
    return price.wall_ns;
}

static uint32_t most_chunks(const struct chunk_result *result) {
    uint32_t most = 0;
    for (int kind = 0; kind < CHUNK_KINDS; kind++) {
        most = result->counts[kind] > most ? result->counts[kind] : most;
    }
    return most;
}

/* Steps of real systems under both searches. */
TEST(the_bottleneck_search_fits_where_any_does_and_costs_little_more) {
    static const char *const systems[] = {"dllm-serve", "fast-dllm", "vanilla-published"};
    struct rng rng = rng_stream(17, "brute force");
    double largest_excess = 0, largest_overhead = 0;
    uint32_t n = 0, n_missed = 0;
    for (int s = 0; s < 3; s++) {
        struct system *system = rig_system(systems[s], "l40s", false, NULL);
        for (int round = 0; round < 60; round++) {
            struct step_shape shape = short_or_long(&rng);
            shape.sym[SYM_LOGIT_ROWS] += 1;
            struct placement unchunked, a, b;
            struct chunk_result found, all;
            struct chunk_rule rule = {.price_ns = price_of, .state = system->cost, .grid = 32};
            struct chunk_request request =
                MAKE(struct chunk_request, .rule = &rule, .planner = system->planner,
                     .graph = &system->graph, .shape = &shape);
            placement_make(system->planner, &system->graph, &shape, no_chunks, &unchunked);
            request.available_bytes =
                (int64_t)((0.3 + 0.7 * rng_uniform(&rng)) * (double)unchunked.peak_bytes);
            rule.search = CHUNK_SEARCH_BOTTLENECK;
            chunk_place(&request, &a, &found);
            rule.search = CHUNK_SEARCH_BRUTE_FORCE;
            chunk_place(&request, &b, &all);
            ck_assert_msg(found.fits || !all.fits, "only brute force finds a plan");
            n_missed += found.fits && !all.fits;
            double ns = price_of(system->cost, &shape, a.chunks);
            double excess = ns / price_of(system->cost, &shape, b.chunks) - 1;
            double overhead = ns / price_of(system->cost, &shape, no_chunks) - 1;
            if (all.fits) {
                ck_assert(excess >= 0 || most_chunks(&found) > rule.grid);
                largest_excess = excess > largest_excess ? excess : largest_excess;
                n++;
            }
            if (found.fits && shape.sym[SYM_TOKENS] > 4096) {
                largest_overhead = overhead > largest_overhead ? overhead : largest_overhead;
            }
        }
        system_close(system);
    }
    printf("%u steps: bottleneck costs at most %.2f %% more than brute force and, beyond 4096 "
           "tokens, %.2f %% more than no chunks; %u fit only in more chunks than brute force "
           "tries\n",
           n, 100 * largest_excess, 100 * largest_overhead, n_missed);
    ck_assert_uint_gt(n, 50);
    /* Profiles price some numbers of rows below larger ones: then chunks pay even with room to
     * spare, which a lazy search leaves alone. */
    ck_assert_double_lt(largest_excess, 0.1);
    ck_assert_double_lt(largest_overhead, 0.02);
}

TEST(what_does_not_fit_in_any_chunks_says_how_much_it_needs) {
    static const char *const settings[] = {"chunk_search=bottleneck", NULL};
    struct system *system = rig_system("fast-dllm", "l40s", true, settings);
    struct step_shape shape;
    struct span span = {
        .phase = PHASE_REFRESH, .queries = 4096, .first_queries = 4096, .logit_rows = 32};
    shape_clear(&shape);
    shape_add(shape.sym, &span, 1);
    struct placement placement;
    struct err err = {0};
    ck_assert_int_eq(system_place(system, &shape, 100 << 20, &placement, &err), ERR_WORLD);
    ASSERT_SAYS(err.text,
                "a step of 4096 tokens does not fit: its plan needs 160 MiB of workspace, "
                "100 MiB are available; the floor without chunkable tensors is 160 MiB");
    system_close(system);
}

TEST(chunks_that_are_always_asked_for_are_given) {
    static const char *const settings[] = {"chunk_search=always", "ffn_chunks=3", "logit_chunks=5",
                                           "logit_chunk_rows=0", NULL};
    struct system *system = rig_system("dllm-serve", "l40s", true, settings);
    struct step_shape shape;
    struct span span = {
        .phase = PHASE_REFRESH, .queries = 1000, .first_queries = 1000, .logit_rows = 64};
    shape_clear(&shape);
    shape_add(shape.sym, &span, 1);
    struct placement placement;
    struct err err = {0};
    ck_assert_int_eq(system_place(system, &shape, INT64_MAX, &placement, &err), 0);
    ck_assert_int_eq(placement.chunks.of[CHUNK_FFN], 334);
    ck_assert_int_eq(placement.chunks.of[CHUNK_LOGITS], 13);
    ck_assert_uint_eq(placement.n_chunks[0], 3);
    ck_assert_uint_eq(placement.n_chunks[1], 5);
    struct chunk_rows chunks = system_chunks(system, &shape, 0);
    ck_assert_mem_eq(&chunks, &placement.chunks, sizeof chunks);
    system_close(system);
}

TEST(chunking_lets_a_device_hold_more_requests) {
    static const char *const lazy[] = {"chunk_search=bottleneck", NULL};
    static const char *const slow[] = {"chunk_search=brute-force", NULL};
    static const char *const names[] = {"vanilla", "fast-dllm", "dllm-cache-published"};
    for (int i = 0; i < 3; i++) {
        struct system *plain = rig_system(names[i], "rtx4090", true, NULL);
        struct system *chunked = rig_system(names[i], "rtx4090", true, lazy);
        struct system *brute = rig_system(names[i], "rtx4090", true, slow);
        ck_assert_uint_ge(chunked->budget.max_requests, plain->budget.max_requests);
        ck_assert_uint_ge(chunked->budget.max_requests, brute->budget.max_requests);
        system_close(plain);
        system_close(chunked);
        system_close(brute);
    }
}

/* Requests all at once. */
enum { N_LIVE = 3 };
static const struct arrival arrivals[N_LIVE] = {
    {.id = 0, .prompt_tokens = 60, .output_tokens = 11},
    {.id = 1, .prompt_tokens = 45, .output_tokens = 9},
    {.id = 2, .prompt_tokens = 80, .output_tokens = 7},
};

/* Memory is what was planned. */
static struct served *serve_all(struct system *system) {
    struct served *served =
        serve(&(struct serving){.system = system, .arrivals = arrivals, .n = N_LIVE});
    ck_assert_msg(served->err.kind == ERR_NONE, "%s", served->err.text);
    ck_assert_uint_eq(served->result.completed, N_LIVE);
    ck_assert_int_eq(served->activation_bytes, served->planned_activation_bytes);
    ck_assert_int_eq(served->pool_bytes, served->result.kv_peak_bytes);
    ck_assert_int_eq(served->memory.metered_bytes, served->memory.planned_bytes);
    return served;
}

static struct system *chunked_system(const char *model, const char *layout, const char *gate_up,
                                     const char *cache, int64_t reserve_bytes, const char *search) {
    char kv[32], fused[48], reserve[64], chunks[48], queries[48];
    snprintf(kv, sizeof kv, "kv=%s", layout);
    snprintf(fused, sizeof fused, "runtime.fused_gate_up=%s", gate_up);
    snprintf(reserve, sizeof reserve, "reserve_bytes=%ld", (long)reserve_bytes);
    snprintf(chunks, sizeof chunks, "chunk_search=%s", search);
    snprintf(queries, sizeof queries, "runtime.query_chunks=%s",
             strcmp(cache, "cache=none") == 0 ? "on" : "off");
    return LIVE_SYSTEM(model, kv, fused, reserve, chunks, queries, cache, "attention_chunks=5",
                       "ffn_chunks=3", "logit_chunks=4", "logit_scope=queries",
                       "logit_chunk_rows=0", "context_tokens=96", "max_batched_tokens=96",
                       "runtime.fused_head=off");
}

/* Tokens are the same bits in any chunks, and the searches find theirs in little more than what the
 * longest step takes in the smallest. */
static void serve_in_chunks(const char *model, const char *layout, const char *gate_up,
                            const char *cache, bool bottleneck, bool brute_force) {
    static const char *const searches[] = {"always", "bottleneck", "brute-force"};
    struct system *plain = chunked_system(model, layout, gate_up, cache, 16 << 20, "none");
    struct served *unchunked = serve_all(plain);
    struct step_shape longest = full_pass(96), shape = full_pass(90);
    struct placement most, least;
    placement_make(plain->planner, &plain->graph, &longest, no_chunks, &most);
    placement_make(plain->planner, &plain->graph, &longest, (struct chunk_rows){{4, 4, 4}}, &least);
    int64_t kv_bytes = budget_request_bytes(&plain->budget, 96);
    int64_t left = kv_bytes + least.peak_bytes + (most.peak_bytes - least.peak_bytes) / 4;
    int64_t rest = plain->budget.usable_bytes - plain->budget.weights_bytes - left;
    for (int i = 0; i < 3; i++) {
        if ((i == 1 && !bottleneck) || (i == 2 && !brute_force)) {
            continue;
        }
        struct system *system =
            chunked_system(model, layout, gate_up, cache, i == 0 ? 16 << 20 : rest, searches[i]);
        struct served *served = serve_all(system);
        struct chunk_rows chunks =
            system_chunks(system, &shape, budget_workspace_bytes(&system->budget, kv_bytes));
        ck_assert(chunks.of[CHUNK_ATTENTION] > 0 || chunks.of[CHUNK_FFN] > 0 ||
                  chunks.of[CHUNK_LOGITS] > 0);
        ck_assert_int_le(served->activation_bytes, i == 0 ? unchunked->activation_bytes - 1 : left);
        for (uint32_t id = 0; id < N_LIVE; id++) {
            ck_assert_mem_eq(served->tokens[id], unchunked->tokens[id],
                             arrivals[id].output_tokens * sizeof served->tokens[id][0]);
        }
        free(served);
        system_close(system);
    }
    free(unchunked);
    system_close(plain);
}

TEST(live_runs_in_chunks_give_the_same_tokens_in_the_memory_planned) {
    static const char *const models[] = {"llada-tiny", "dream-tiny"};
    static const char *const words[] = {"on", "off"};
    for (int i = 0; i < 8; i++) { /* every pair of settings under every search */
        bool odd = (i ^ i >> 1 ^ i >> 2) & 1;
        serve_in_chunks(models[i & 1], i & 2 ? "slab" : "pages", words[i >> 2], "cache=dual", odd,
                        !odd);
    }
}

/* All combinations of three kinds are too many for every step of a run. */
TEST(live_runs_with_attention_in_chunks_give_the_same_tokens) {
    serve_in_chunks("llada-tiny", "slab", "on", "cache=none", true, false);
    serve_in_chunks("dream-tiny", "pages", "off", "cache=none", true, false);
}

SUITE("chunk search")
