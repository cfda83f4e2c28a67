/* Prefix caching in the loop: what is found is what was computed, once, and no more. */
#include "sim/bound/bound.h"
#include "tests/support/rig.h"

/* ---- systems that share, and how ---- */

static const struct sharer {
    const char *system, *model;
    uint32_t match_tokens, page_tokens; /* matches are multiples; what is kept is, of the second */
    uint32_t decides;                   /* last tokens that are computed in any case, 1 or 0 */
    const char *settings[4];
} sharers[] = {
    {"vllm-ar", NULL, 16, 16, 1, {NULL}},
    {"ar", NULL, 64, 64, 1, {NULL}},
    {"sdar", NULL, 4, 4, 0, {NULL}},
    {"sdar", NULL, 32, 32, 0, {"block_tokens=32", NULL}},
    {"sdar", NULL, 32, 16, 0, {"block_tokens=32", "page_tokens=16", NULL}},
    {"sdar", NULL, 32, 8, 0, {"block_tokens=32", "page_tokens=24", NULL}},
    {"sdar", NULL, 64, 32, 0, {"block_tokens=64", "page_tokens=32", "cache.cross_block=on", NULL}},
    {"sglang", "llada2-mini", 32, 32, 0, {NULL}},
    {"lmdeploy", NULL, 4, 4, 0, {"scheduler.multi_loop=on", NULL}},
    {"focus", NULL, 16, 16, 0, {"block_tokens=16", NULL}},
    {"sdar", "fast-dllm-v2-7b", 32, 32, 1, {NULL}},
};
enum { N_SHARERS = sizeof sharers / sizeof sharers[0], MOST_SETTINGS = 8 };

static struct system *open_sharer(int i, bool on, const char *extra, const char *another) {
    const char *settings[MOST_SETTINGS] = {on ? "prefix_caching=on" : "prefix_caching=off"};
    size_t n = 1;
    for (size_t k = 0; k < 4 && sharers[i].settings[k] != NULL; k++) {
        settings[n++] = sharers[i].settings[k];
    }
    if (extra != NULL) {
        settings[n++] = extra;
    }
    if (another != NULL) {
        settings[n++] = another;
    }
    return rig_system_of(sharers[i].system, sharers[i].model, "h100", true, settings);
}

static struct loop_result serve(struct system *system, const struct arrival *arrivals, size_t n,
                                struct keeper *keeper) {
    struct list_source list = {.arrivals = arrivals, .n = n};
    return rig_run(system, (struct arrival_source){.state = &list, .next = list_next}, keeper);
}

/* ---- workloads whose every token is known ---- */

enum { MOST_CANVAS = 640, MOST_ARRIVALS = 60 };

struct known {
    struct arrival arrivals[MOST_ARRIVALS];
    uint32_t tokens[MOST_ARRIVALS][MOST_CANVAS]; /* prompt and output; no two alike by chance */
    size_t n;
};

/* Each begins like an earlier one, or like none. */
static void draw_known(struct known *known, uint64_t seed, size_t n, int64_t gap_ns) {
    struct rng rng = rng_stream(seed, "known");
    uint32_t next = 1;
    *known = (struct known){.n = n};
    for (size_t i = 0; i < n; i++) {
        struct arrival *a = &known->arrivals[i];
        *a = MAKE(struct arrival, .id = i, .arrival_ns = (int64_t)i * gap_ns,
                  .prompt_tokens = rig_between(&rng, 1, 400),
                  .output_tokens = rig_between(&rng, 1, 200), .leaves = i + 1);
        if (i > 0 && rng_next(&rng) % 5 > 0) {
            size_t from = rng_next(&rng) % i;
            const struct arrival *before = &known->arrivals[from];
            uint32_t most = before->prompt_tokens + before->output_tokens;
            most = most < a->prompt_tokens ? most : a->prompt_tokens;
            a->shares = from + 1;
            a->prefix_tokens = rng_next(&rng) % 2 == 0
                                   ? most
                                   : 1 + (uint32_t)(rng_next(&rng) % (most > 0 ? most : 1));
            memcpy(known->tokens[i], known->tokens[from], a->prefix_tokens * sizeof(uint32_t));
        }
        for (uint32_t t = a->prefix_tokens; t < a->prompt_tokens + a->output_tokens; t++) {
            known->tokens[i][t] = next++;
        }
    }
}

static uint32_t common_prefix(const struct known *known, size_t i, size_t j) {
    uint32_t n = 0;
    while (n < MOST_CANVAS && known->tokens[i][n] != 0 &&
           known->tokens[i][n] == known->tokens[j][n]) {
        n++;
    }
    return n;
}

/* What i finds where all earlier ones are done and nothing was evicted. */
static uint32_t reference_hit(const struct known *known, const struct sharer *how, size_t i) {
    const struct arrival *a = &known->arrivals[i];
    bool is_causal = strstr(how->system, "ar") == how->system || how->system[0] == 'v';
    uint32_t found = 0, most = a->prompt_tokens;
    for (size_t j = 0; j < i; j++) {
        const struct arrival *b = &known->arrivals[j];
        uint32_t written = b->prompt_tokens + b->output_tokens - is_causal;
        uint32_t common = common_prefix(known, i, j);
        written = written / how->page_tokens * how->page_tokens;
        common = common < written ? common : written;
        found = common > found ? common : found;
    }
    /* Where the token after the prompt is decided on by its last block. */
    if (how->decides > 0 && (is_causal || most % how->match_tokens == 0)) {
        most -= 1;
    }
    found = found < most ? found : most;
    return found / how->match_tokens * how->match_tokens;
}

/* A page holds a part of a block, and every position of a block sees the others. */
TEST(pages_of_a_block_that_is_shared_in_part_are_not_shared) {
    static const char *const settings[] = {"prefix_caching=on", "block_tokens=32", "page_tokens=16",
                                           "decoder=fixed", NULL};
    struct arrival arrivals[] = {
        {.id = 0, .prompt_tokens = 64, .output_tokens = 96, .leaves = 1},
        {.id = 1, .prompt_tokens = 64, .output_tokens = 96, .shares = 1, .prefix_tokens = 48}};
    struct system *system = rig_system_of("sdar", NULL, "h100", true, settings);
    const int64_t page_bytes = system->budget.unit_bytes;
    ck_assert_int_eq(serve(system, arrivals, 2, NULL).kv_peak_bytes, (10 + 10 - 2) * page_bytes);
    arrivals[1].prefix_tokens = 64;
    ck_assert_int_eq(serve(system, arrivals, 2, NULL).kv_peak_bytes, (10 + 10 - 4) * page_bytes);
    system_close(system);
}

TEST_EACH(with_room_enough_all_that_was_computed_is_found, N_SHARERS) {
    static struct known known;
    const struct sharer *how = &sharers[_i];
    uint64_t hits = 0;
    for (uint64_t seed = 0; seed < 2; seed++) {
        draw_known(&known, seed, 40, INT64_C(1000000000000));
        struct keeper keeper = {0};
        struct system *system = open_sharer(_i, true, NULL, NULL);
        struct loop_result result = serve(system, known.arrivals, known.n, &keeper);
        ck_assert_uint_eq(result.completed, known.n);
        for (size_t k = 0; k < keeper.n_requests; k++) {
            const struct request_record *r = &keeper.requests[k];
            uint32_t expected = reference_hit(&known, how, r->id);
            ck_assert_msg(r->prefix_tokens == expected,
                          "seed %u, request %u of %u prompt tokens, %u of them shared: found %u, "
                          "expected %u",
                          (unsigned)seed, (unsigned)r->id, r->prompt_tokens,
                          (unsigned)r->shared_tokens, (unsigned)r->prefix_tokens, expected);
            hits += expected;
        }
        keeper_fini(&keeper);
        system_close(system);
    }
    ck_assert_uint_gt(hits, 1000);
}

/* Together, in any order, and with pages that are taken from one another: never more than some
 * other canvas has, and all is done. The loop's audit counts the pages. */
TEST_EACH(nothing_is_found_that_no_one_computed, N_SHARERS) {
    static struct known known;
    static const char *const pools[] = {"pool_pages=40", "pool_pages=60", "pool_pages=400"};
    static const char *const more[] = {"max_batched_tokens=160", "max_batched_tokens=512",
                                       "replicas=2"};
    uint64_t found = 0, preemptions = 0;
    for (uint64_t seed = 0; seed < 3; seed++) {
        draw_known(&known, seed + 100, MOST_ARRIVALS, INT64_C(3000000));
        struct keeper keeper = {0};
        struct system *system = open_sharer(_i, true, pools[seed], more[(seed + (uint64_t)_i) % 3]);
        struct loop_result result = serve(system, known.arrivals, known.n, &keeper);
        ck_assert_uint_eq(result.completed + result.rejected, known.n);
        for (size_t k = 0; k < keeper.n_steps; k++) {
            ck_assert_int_le(keeper.steps[k].record.kv_used_bytes, system->budget.pool_bytes);
        }
        for (size_t k = 0; k < keeper.n_requests; k++) {
            const struct request_record *r = &keeper.requests[k];
            uint32_t most = 0;
            for (size_t j = 0; j < known.n; j++) {
                uint32_t common = j == r->id ? 0 : common_prefix(&known, r->id, j);
                most = common > most ? common : most;
            }
            ck_assert_uint_le(r->prefix_tokens, most);
            ck_assert_uint_le(r->prefix_tokens, r->shared_tokens);
            ck_assert_uint_eq(r->prefix_tokens % sharers[_i].match_tokens, 0);
            found += r->prefix_tokens;
            preemptions += r->preemptions;
        }
        keeper_fini(&keeper);
        system_close(system);
    }
    ck_assert_uint_gt(found, 500);
    ck_assert_uint_gt(preemptions, 0);
}

static bool decides_ahead; /* the system that is served */

/* Preempts whomever, not the one admitted last, and counts on what that one held: what others hold
 * yet does not come back. */
static void schedule_rudely(void *state, const struct schedule_view *view, struct batch *batch) {
    int64_t held_bytes = 0;
    for (uint32_t i = 0; i < view->n_running; i++) {
        held_bytes += view->requests[view->running[i]].kv_held_bytes;
    }
    /* A page that several hold is some one's, and no one's twice. Who decides ahead does not know
     * yet of what was freed. */
    int64_t used_bytes = view->kv_total_bytes - view->kv_free_bytes;
    ck_assert(held_bytes == used_bytes || (decides_ahead && held_bytes < used_bytes));
    struct rng *rng = state;
    int64_t tokens = view->max_batched_tokens, bytes = view->kv_free_bytes;
    uint32_t spared = view->n_running > 0 ? (uint32_t)(rng_next(rng) % view->n_running) : 0;
    for (uint32_t i = 0; i < view->n_running && view->n_running > 1; i++) {
        const struct request *request = &view->requests[view->running[i]];
        if (i != spared && rng_next(rng) % 8 == 0) {
            batch->preempted[batch->n_preempted++] = view->running[i];
            bytes += request->kv_held_bytes;
        }
    }
    for (uint32_t i = 0; i < view->n_running + view->n_waiting; i++) {
        bool admits = i >= view->n_running;
        uint32_t at = admits ? i - view->n_running : (i + spared) % view->n_running, p = 0;
        uint32_t slot = admits ? view->waiting[at] : view->running[at];
        const struct request *request = &view->requests[slot];
        while (p < batch->n_preempted && batch->preempted[p] != slot) {
            p++;
        }
        int64_t growth = request->kv_bytes - request->kv_held_bytes;
        uint32_t queries = request->span.queries;
        bool is_left = p == batch->n_preempted;
        bool has_place = !admits || view->n_running + batch->n_admitted < view->max_requests;
        if (is_left && has_place && queries <= tokens && growth <= bytes) {
            batch->selected[batch->n++] = slot;
            batch->n_admitted += admits;
            tokens -= queries;
            bytes -= growth;
        }
    }
    batch->n_preempted = batch->n > 0 ? batch->n_preempted : 0;
}

/* A running one that lacks memory waits for others; alone it always has it. */
TEST_EACH(whoever_is_preempted_pages_that_others_hold_stay, N_SHARERS) {
    static struct known known;
    uint64_t preemptions = 0;
    for (uint64_t seed = 0; seed < 3; seed++) {
        draw_known(&known, seed + 200, MOST_ARRIVALS, INT64_C(3000000));
        struct keeper keeper = {0};
        struct system *system = open_sharer(_i, true, "pool_pages=300", "max_requests=24");
        struct rng rng = rng_stream(seed, "rude");
        const struct scheduler rude = {.policy = {.abi = POLICY_ABI,
                                                  .kind = POLICY_SCHEDULER,
                                                  .size = sizeof(struct scheduler),
                                                  .state_bytes = sizeof rng,
                                                  .name = "rude"},
                                       .grows = 1,
                                       .schedule = schedule_rudely};
        const struct scheduler *before = system->scheduler;
        void *state = system->scheduler_state;
        system->scheduler = &rude;
        system->scheduler_state = &rng;
        decides_ahead = system->settings.decides_ahead;
        struct loop_result result = serve(system, known.arrivals, known.n, &keeper);
        ck_assert_uint_eq(result.completed + result.rejected, known.n);
        for (size_t k = 0; k < keeper.n_requests; k++) {
            preemptions += keeper.requests[k].preemptions;
        }
        system->scheduler = before;
        system->scheduler_state = state;
        keeper_fini(&keeper);
        system_close(system);
    }
    ck_assert_uint_gt(preemptions, 20);
}

/* ---- who shares nothing ---- */

TEST_EACH(without_shared_prefixes_all_is_the_same_to_the_nanosecond, N_SHARERS) {
    struct keeper keepers[2] = {{0}, {0}};
    for (int on = 0; on < 2; on++) {
        struct system *system = open_sharer(_i, on == 1, NULL, NULL);
        struct poisson_source source = {.rng = rng_stream(3, "arrivals"),
                                        .lengths = rng_stream(3, "lengths"),
                                        .rate = 20,
                                        .n = 60,
                                        .prompt_min = 1,
                                        .prompt_max = 600,
                                        .output_min = 1,
                                        .output_max = 200};
        rig_run(system, (struct arrival_source){.state = &source, .next = poisson_next},
                &keepers[on]);
        system_close(system);
    }
    ck_assert_uint_eq(keepers[0].n_requests, 60);
    ck_assert_uint_eq(keepers[0].n_requests, keepers[1].n_requests);
    ck_assert_uint_eq(keepers[0].n_steps, keepers[1].n_steps);
    ck_assert_mem_eq(keepers[0].requests, keepers[1].requests, 60 * sizeof *keepers[0].requests);
    for (size_t i = 0; i < keepers[0].n_steps; i++) {
        const struct step_record *a = &keepers[0].steps[i].record, *b = &keepers[1].steps[i].record;
        ck_assert(a->start_ns == b->start_ns && a->end_ns == b->end_ns && a->n == b->n &&
                  a->kv_used_bytes == b->kv_used_bytes);
        ck_assert_mem_eq(keepers[0].steps[i].sym, keepers[1].steps[i].sym,
                         sizeof keepers[0].steps[i].sym);
    }
    keeper_fini(&keepers[0]);
    keeper_fini(&keepers[1]);
}

/* ---- a queue of the same ---- */

static uint64_t found_by(const struct keeper *keeper) {
    uint64_t tokens = 0;
    for (size_t i = 0; i < keeper->n_requests; i++) {
        tokens += keeper->requests[i].prefix_tokens;
    }
    return tokens;
}

/* How long a queue of requests takes that share `shared` of their prompts. */
static int64_t queue_ns(int i, bool on, const char *replicas, uint32_t prompt, uint32_t shared,
                        struct keeper *keeper) {
    enum { N = 12 };
    struct arrival arrivals[N];
    for (size_t k = 0; k < N; k++) {
        arrivals[k] = MAKE(struct arrival, .id = k, .prompt_tokens = prompt, .output_tokens = 40,
                           .prefix_tokens = shared);
    }
    struct system *system = open_sharer(i, on, replicas, "decoder=fixed");
    struct loop_result result = serve(system, arrivals, N, keeper);
    ck_assert_uint_eq(result.completed, N);
    system_close(system);
    return result.end_ns;
}

TEST_EACH(a_queue_of_the_same_pays_for_its_prefix_once, N_SHARERS) {
    static const char *const replicas[] = {"replicas=1", "replicas=3"};
    const struct sharer *how = &sharers[_i];
    uint32_t match = (1537 - how->decides) / how->match_tokens * how->match_tokens;
    for (uint64_t n = 1; n <= 3; n += 2) {
        struct keeper off = {0}, on = {0}, none = {0};
        int64_t off_ns = queue_ns(_i, false, replicas[n / 2], 1537, 1537, &off);
        int64_t on_ns = queue_ns(_i, true, replicas[n / 2], 1537, 1537, &on);
        int64_t none_ns = queue_ns(_i, false, replicas[n / 2], 1537 - match, 0, &none);
        ck_assert_uint_eq(found_by(&on), (12 - n) * match);
        /* What an eviction keeps depends on how others decode. */
        ck_assert(strcmp(how->system, "focus") == 0 ||
                  keeper_tokens(&off) - keeper_tokens(&on) == (12 - n) * match);
        ck_assert_int_lt(on_ns, off_ns);
        ck_assert_int_gt(on_ns, none_ns);
        keeper_fini(&off);
        keeper_fini(&on);
        keeper_fini(&none);
    }
}

/* The shared pages are in the pool once. */
TEST_EACH(what_all_share_takes_memory_once, N_SHARERS) {
    const struct sharer *how = &sharers[_i];
    struct arrival arrivals[8];
    int64_t peak[2];
    for (size_t k = 0; k < 8; k++) {
        arrivals[k] = MAKE(struct arrival, .id = k, .prompt_tokens = 1025, .output_tokens = 40,
                           .prefix_tokens = 1025);
    }
    struct system *system = NULL;
    for (int on = 0; on < 2; on++) {
        if (system != NULL) {
            system_close(system);
        }
        system = open_sharer(_i, on == 1, NULL, NULL);
        peak[on] = serve(system, arrivals, 8, NULL).kv_peak_bytes;
    }
    uint32_t shared = (1025 - how->decides) / how->match_tokens * how->match_tokens;
    int64_t shared_bytes = (int64_t)shared * system->budget.unit_bytes / system->budget.unit_rows;
    ck_assert_int_eq(peak[0] - peak[1], 7 * shared_bytes);
    system_close(system);
}

/* ---- turns ---- */

/* The answer of the turn before is part of what a turn shares: its whole blocks, of which those
 * count whose exact keys and values were written. */
TEST(a_turn_finds_the_answer_of_the_turn_before) {
    static const struct {
        const char *commit_last;
        uint32_t prompt, output, found;
    } cases[] = {{"cache.commit_last=on", 64, 64, 128},
                 {"cache.commit_last=off", 64, 64, 96},
                 {"cache.commit_last=on", 64, 60, 96}, /* its last block goes on otherwise */
                 {"cache.commit_last=on", 70, 90, 160}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t whole = cases[i].prompt + cases[i].output;
        const struct arrival turns[] = {{.id = 0,
                                         .prompt_tokens = cases[i].prompt,
                                         .output_tokens = cases[i].output,
                                         .leaves = 5},
                                        {.id = 1,
                                         .arrival_ns = INT64_C(1000000000000),
                                         .prompt_tokens = whole + 50,
                                         .output_tokens = 20,
                                         .prefix_tokens = whole,
                                         .shares = 5}};
        struct keeper keeper = {0};
        struct system *system = open_sharer(3, true, cases[i].commit_last, NULL);
        serve(system, turns, 2, &keeper);
        ck_assert_uint_eq(keeper.requests[1].id, 1);
        ck_assert_uint_eq(keeper.requests[1].prefix_tokens, cases[i].found);
        keeper_fini(&keeper);
        system_close(system);
    }
}

/* Of a prompt that is whole blocks nothing is left to prefill, unless its last block decides on
 * what comes next. */
TEST_EACH(a_whole_prompt_is_found_but_for_what_decides_on_the_next_token, N_SHARERS) {
    const struct sharer *how = &sharers[_i];
    struct arrival arrivals[2];
    for (size_t k = 0; k < 2; k++) {
        arrivals[k] =
            MAKE(struct arrival, .id = k, .arrival_ns = (int64_t)k * INT64_C(1000000000000),
                 .prompt_tokens = 320, .output_tokens = 64, .prefix_tokens = 320);
    }
    struct keeper keeper = {0};
    struct system *system = open_sharer(_i, true, NULL, NULL);
    serve(system, arrivals, 2, &keeper);
    ck_assert_uint_eq(keeper.requests[1].prefix_tokens, 320 - how->decides * how->match_tokens);
    keeper_fini(&keeper);
    system_close(system);
}

/* A bound counts on it: who shares with no earlier one computes all, also where a later one did
 * before it. */
TEST(the_first_of_a_prefix_finds_nothing_in_whatever_order) {
    const struct arrival arrivals[] = {
        {.id = 0, .prompt_tokens = 640, .output_tokens = 320, .leaves = 5},
        {.id = 1, .prompt_tokens = 640, .output_tokens = 32, .prefix_tokens = 640, .shares = 5}};
    struct keeper keeper = {0};
    struct system *system = open_sharer(3, true, "scheduler=shortest-left", "max_requests=1");
    serve(system, arrivals, 2, &keeper);
    ck_assert_uint_eq(keeper.requests[0].id, 1);
    ck_assert_uint_eq(keeper.requests[1].prefix_tokens, 0);
    keeper_fini(&keeper);
    system_close(system);
}

/* What was used least recently goes first: the third finds nothing of the first, all of the second.
 */
TEST(the_least_recently_used_prefix_is_evicted) {
    struct arrival arrivals[4];
    for (size_t k = 0; k < 4; k++) {
        arrivals[k] =
            MAKE(struct arrival, .id = k, .arrival_ns = (int64_t)k * INT64_C(1000000000000),
                 .prompt_tokens = 320, .output_tokens = 32, .prefix_tokens = 320,
                 .shares = k < 2 ? k + 1 : 4 - k);
    }
    struct keeper keeper = {0};
    struct system *system = open_sharer(3, true, "pool_pages=9", NULL); /* of 64, a request has 6 */
    serve(system, arrivals, 3, &keeper);
    ck_assert_uint_eq(keeper.requests[2].prefix_tokens, 320);
    keeper_fini(&keeper);
    keeper = (struct keeper){0};
    arrivals[2].shares = 1;
    serve(system, arrivals, 3, &keeper);
    /* Nine pages less the six of the second, from the first one's beginning. */
    ck_assert_uint_eq(keeper.requests[2].prefix_tokens, 192);
    keeper_fini(&keeper);
    system_close(system);
}

TEST_EACH(a_preempted_request_finds_what_is_left_of_its_own, N_SHARERS) {
    uint64_t tokens[2];
    for (int on = 0; on < 2; on++) {
        static struct known known;
        struct keeper keeper = {0};
        struct system *system = open_sharer(_i, on == 1, "pool_pages=40", NULL);
        draw_known(&known, 9, MOST_ARRIVALS, 0);
        uint64_t preemptions = 0;
        for (size_t k = 0; k < known.n; k++) {
            known.arrivals[k].prefix_tokens = 0;
        }
        serve(system, known.arrivals, known.n, &keeper);
        tokens[on] = keeper_tokens(&keeper);
        for (size_t k = 0; k < keeper.n_requests; k++) {
            preemptions += keeper.requests[k].preemptions;
        }
        ck_assert_uint_gt(preemptions, 0);
        keeper_fini(&keeper);
        system_close(system);
    }
    ck_assert_uint_lt(tokens[1], tokens[0]);
}

/* ---- bounds ---- */

TEST_EACH(a_bound_stays_below_whatever_is_found, N_SHARERS) {
    static struct known known;
    static const char *const pools[] = {"pool_pages=40", "pool_pages=80", "pool_pages=1000"};
    for (uint64_t seed = 0; seed < 3; seed++) {
        draw_known(&known, seed + 50, MOST_ARRIVALS, seed % 2 == 0 ? 0 : INT64_C(2000000));
        struct system *system = open_sharer(_i, true, pools[seed % 3], NULL);
        struct list_source list = {.arrivals = known.arrivals, .n = known.n};
        struct passes_request request = {
            .system = system, .source = {.state = &list, .next = list_next}, .seed = 1};
        struct bound bound;
        struct err err = {0};
        ck_assert_msg(bound_find(&request, 0, &bound, &err) == 0, "%s", err.text);
        struct keeper keeper = {0};
        serve(system, known.arrivals, known.n, &keeper);
        double end_s = 0, latency_s = 0;
        size_t n = 0;
        for (size_t k = 0; k < keeper.n_requests; k++) {
            const struct request_record *r = &keeper.requests[k];
            if (r->state == REQUEST_DONE) {
                end_s = fmax(end_s, (double)r->finished_ns / 1e9);
                latency_s += (double)(r->finished_ns - r->arrival_ns) / 1e9;
                n++;
            }
        }
        ck_assert_double_le(bound.makespan_s, end_s * (1 + 1e-9));
        ck_assert_double_le(bound.mean_latency_s, latency_s / (double)n * (1 + 1e-9));
        keeper_fini(&keeper);
        system_close(system);
    }
}

SUITE("sharing")
