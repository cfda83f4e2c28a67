/* Bounds of schedulers that say thresholds and rows: the passes listed for them, and that no run of
 * theirs is better. */
#include <math.h>

#include "sim/bound/bound.h"
#include "sim/bound/words.h"
#include "tests/support/rig.h"

enum { N = 16, MOST = 12 };

#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})

static struct system *open_of(const char *gpu, const char *const *more) {
    const char *settings[MOST + 3] = {"confidence=sdar-8b/math", "block_tokens=32"};
    uint32_t n = 2;
    for (uint32_t i = 0; more[i] != NULL; i++) {
        ck_assert_uint_lt(n, MOST + 2);
        settings[n++] = more[i];
    }
    settings[n] = NULL;
    return rig_system("sdar", gpu, true, settings);
}

static void draw(struct arrival *arrivals, uint32_t n, int64_t gap_ns, int64_t due_ns) {
    for (uint32_t i = 0; i < n; i++) {
        arrivals[i] =
            MAKE(struct arrival, .id = i, .arrival_ns = i * gap_ns, .prompt_tokens = 40 + 13 * i,
                 .output_tokens = 60 + 11 * i, .due_ns = due_ns);
    }
}

struct listed {
    struct passes passes;
    struct pass_type types[PASS_TYPES];
};

static struct listed list_of(const char *const *settings) {
    struct system *system = open_of("h200", settings);
    struct listed out;
    struct err err = {0};
    struct arrival arrivals[N];
    draw(arrivals, N, 1000, 1000000);
    struct list_source list = {arrivals, N, 0};
    const struct passes_request request = {
        .system = system, .source = {.state = &list, .next = list_next}, .seed = 3};
    ck_assert_msg(passes_list(&request, &out.passes, &err) == 0, "%s", err.text);
    passes_sum(&out.passes, system, out.types);
    system_close(system);
    return out;
}

static bool are_same(const struct passes *a, const struct passes *b) {
    return a->n == b->n && memcmp(a->items, b->items, a->n * sizeof *a->items) == 0;
}

/* A valve's lowest threshold is the one that passes are listed at; where the decoder's is lower,
 * that. */
TEST(passes_are_listed_at_the_lowest_threshold) {
    static const struct {
        const char *said[5], *plain[3];
        bool same;
    } cases[] = {
        {{"scheduler=deadline-valve", "scheduler.low=0.7", "scheduler.high=0.9",
          "decoder.threshold=0.9"},
         {"scheduler=chunked", "decoder.threshold=0.7"},
         true},
        {{"scheduler=deadline-valve", "scheduler.low=0.7", "scheduler.high=0.9",
          "decoder.threshold=0.9"},
         {"scheduler=chunked", "decoder.threshold=0.9"},
         false},
        {{"scheduler=threshold-valve", "scheduler.threshold=0.6", "decoder.threshold=0.9"},
         {"scheduler=continuous", "decoder.threshold=0.6"},
         true},
        {{"scheduler=threshold-valve", "scheduler.threshold=0.95", "decoder.threshold=0.9"},
         {"scheduler=continuous", "decoder.threshold=0.9"},
         true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct listed said = list_of(cases[i].said), plain = list_of(cases[i].plain);
        ck_assert_msg(are_same(&said.passes, &plain.passes) == cases[i].same, "%zu", i);
        ck_assert(!said.passes.is_cut);
        passes_fini(&said.passes);
        passes_fini(&plain.passes);
    }
}

/* As many passes as with all rows, and over them as many rows as are committed; but a batch may
 * have passes of any number of rows. So it is where a cache leaves rows out by itself. */
TEST_EACH(passes_that_may_have_fewer_rows_are_listed_with_what_they_commit, 3) {
    static const char *const caches[] = {"cache=exact", "cache=neighbour", "cache=delayed"};
    const char *const ends = "cache.commit_last=off"; /* so that the last pass decides, too */
    struct listed plain = list_of(SETTINGS("scheduler=chunked", ends, caches[_i]));
    struct listed cut = list_of(
        _i < 2 ? SETTINGS("scheduler=row-budget", ends, caches[_i])
               : SETTINGS("scheduler=deadline-valve", "scheduler.low=0.9", ends, caches[_i]));
    uint64_t tokens = 0;
    uint32_t n_cut = 0; /* requests whose last pass is */
    double rows = 0;
    ck_assert(cut.passes.is_cut && !plain.passes.is_cut);
    ck_assert_uint_eq(cut.passes.n, plain.passes.n);
    for (size_t i = 0; i < cut.passes.n; i++) {
        const struct pass *pass = &cut.passes.items[i], *whole = &plain.passes.items[i];
        const bool is_whole = pass->span.queries == whole->span.queries;
        ck_assert_uint_le(pass->span.queries, whole->span.queries);
        ck_assert_uint_ge(pass->span.queries, 1);
        ck_assert_uint_le(pass->span.context, whole->span.context);
        rows += is_whole ? 0 : pass->times * pass->span.queries;
        /* Of the rows that its block has in the cache none is sure to be there. */
        ck_assert(is_whole || pass->span.context % 32 == 0);
    }
    for (size_t i = 0; i < cut.passes.n_requests; i++) {
        const struct passenger *request = &cut.passes.requests[i];
        const size_t last = request->first + request->n - 1;
        tokens += request->tokens;
        n_cut += cut.passes.items[last].span.queries < plain.passes.items[last].span.queries;
    }
    ck_assert_msg(rows <= (double)tokens && rows > 0.6 * (double)tokens, "%g of %llu", rows,
                  (unsigned long long)tokens);
    ck_assert(n_cut > 0 || _i > 0);
    const struct pass_type *reuse = &cut.types[2 * PHASE_REUSE];
    ck_assert_int_eq(reuse->least[SYM_TOKENS], 1);
    ck_assert_int_eq(reuse->most[SYM_TOKENS], plain.types[2 * PHASE_REUSE].most[SYM_TOKENS]);
    ck_assert_int_eq(reuse->most[SYM_TOKENS], 32);
    passes_fini(&plain.passes);
    passes_fini(&cut.passes);
}

/* Of one request under a scheduler that says rows: its passes take at least what they take with one
 * row each, wherever the rows are that they have to run between them, and so does what is behind
 * the work of each; the work has all rows. */
TEST(where_rows_may_run_in_any_pass_its_time_is_that_of_one) {
    struct system *system = open_of("l40s", SETTINGS("scheduler=row-budget", "cache=exact"));
    struct err err = {0};
    struct arrival arrival;
    struct listed listed;
    struct price_parts parts;
    struct prices prices;
    struct bound bound;
    draw(&arrival, 1, 0, 0);
    arrival.output_tokens = 200;
    struct list_source list = {&arrival, 1, 0}, again = list;
    struct passes_request request = {
        .system = system, .source = {.state = &list, .next = list_next}, .seed = 3};
    ck_assert_int_eq(passes_list(&request, &listed.passes, &err), 0);
    passes_sum(&listed.passes, system, listed.types);
    ck_assert_int_eq(parts_open(system, listed.types, 1, &parts, &err), 0);
    ck_assert_int_eq(prices_find(&parts, listed.types, &prices, &err), 0);
    request.source.state = &again;
    ck_assert_int_eq(bound_find(&request, 0, &bound, &err), 0);
    double work_ns = 0, behind_ns = 0, tail_ns = 0;
    for (size_t i = listed.passes.n; i-- > 0;) {
        struct pass pass = listed.passes.items[i];
        work_ns += pass.times * price_of(&prices, &pass);
        if (pass.span.phase == PHASE_REUSE) {
            pass.span.queries = pass.span.first_queries = 1;
            pass.span.logit_rows = pass.span.logit_rows > 0;
            pass.span.sampled_rows = pass.span.sampled_rows > 0;
            pass.span.kept_queries = pass.span.kept_queries > 0;
        }
        const double one_ns = price_of(&prices, &pass);
        const bool is_prefill = pass.span.phase == PHASE_PREFILL;
        const double alone_ns = is_prefill ? one_ns : fmax(one_ns, parts_alone_ns(&parts, &pass));
        tail_ns += pass.times * one_ns * (behind_ns + pass.times * alone_ns / 2);
        behind_ns += pass.times * alone_ns;
    }
    ck_assert_double_eq_tol(bound.work_s, work_ns * 1e-9, 1e-9 * bound.work_s);
    ck_assert_double_eq_tol(bound.mean_by_passes_s, behind_ns * 1e-9, 1e-9);
    ck_assert_double_eq_tol(bound.mean_by_both_s, (work_ns / 2 + tail_ns / work_ns) * 1e-9, 1e-9);
    parts_close(&parts);
    passes_fini(&listed.passes);
    system_close(system);
}

/* ---- no run is better ---- */

struct drawn {
    char text[MOST][48];
    const char *settings[MOST + 1];
    uint32_t n;
};

static void put(struct drawn *drawn, const char *key, double value) {
    snprintf(drawn->text[drawn->n], sizeof drawn->text[0], "%s=%g", key, value);
    drawn->settings[drawn->n] = drawn->text[drawn->n];
    drawn->n++;
}

/* Settings near where nothing is left out and nothing is lowered, too: there bounds are tight. */
static void draw_settings(struct drawn *drawn, struct rng *rng, uint32_t scheduler) {
    static const char *const schedulers[] = {"scheduler=row-budget", "scheduler=width-by-rate",
                                             "scheduler=deadline-valve",
                                             "scheduler=threshold-valve"};
    static const char *const caches[] = {"cache=exact", "cache=neighbour", "cache=delayed"};
    static const uint32_t rows[] = {0, 1, 4, 16, 31, 32};
    const double low = 0.5 + 0.1 * rig_between(rng, 0, 4);
    *drawn = (struct drawn){.settings = {schedulers[scheduler], caches[rig_between(rng, 0, 2)]}};
    drawn->n = 2;
    put(drawn, "decoder.threshold", 0.7 + 0.05 * rig_between(rng, 0, 5));
    put(drawn, "max_requests", rig_between(rng, 1, N));
    if (scheduler == 0) {
        put(drawn, "scheduler.rows", rows[rig_between(rng, 0, 5)]);
    } else if (scheduler == 1) {
        put(drawn, "scheduler.least", rows[rig_between(rng, 1, 5)]);
        put(drawn, "scheduler.most", 32);
    } else if (scheduler == 2) {
        put(drawn, "scheduler.low", low);
        put(drawn, "scheduler.high", low + 0.005 * rig_between(rng, 0, 20));
    } else {
        put(drawn, "scheduler.threshold", low);
        put(drawn, "scheduler.from", rig_between(rng, 1, 8));
        put(drawn, "scheduler.to", 0);
    }
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

TEST_EACH(no_run_of_a_scheduler_that_says_thresholds_or_rows_is_better, 80) {
    static const char *const gpus[] = {"h200", "h100", "l40s", "a100-80g"};
    struct rng rng = rng_stream((uint64_t)_i, "words");
    struct drawn drawn;
    struct arrival arrivals[N];
    struct keeper keeper = {0};
    struct bound bound;
    struct err err = {0};
    double latency_s[N], sum_s = 0;
    const uint32_t n = _i % 3 == 0 ? 1 : rig_between(&rng, 2, N);
    draw_settings(&drawn, &rng, (uint32_t)_i % 4);
    struct system *system = open_of(gpus[rig_between(&rng, 0, 3)], drawn.settings);
    draw(arrivals, n, 5000000 * rig_between(&rng, 0, 30), 200000000 * rig_between(&rng, 1, 10));
    struct list_source list = {arrivals, n, 0}, again = list;
    const struct passes_request request = {
        .system = system, .source = {.state = &list, .next = list_next}, .seed = 1};
    ck_assert_msg(bound_find(&request, 0, &bound, &err) == 0, "%s", err.text);
    const struct loop_result result =
        rig_run(system, MAKE(struct arrival_source, .state = &again, .next = list_next), &keeper);
    ck_assert_uint_eq(result.completed, n);
    for (size_t i = 0; i < n; i++) {
        const struct request_record *record = &keeper.requests[i];
        latency_s[i] = (double)(record->finished_ns - record->arrival_ns) * 1e-9;
        sum_s += latency_s[i];
    }
    qsort(latency_s, n, sizeof *latency_s, by_value);
    ck_assert_double_gt(bound.prices.scale, 0.9999);
    ck_assert_double_ge((double)result.end_ns * 1e-9, 0.9999999 * bound.makespan_s);
    ck_assert_double_ge(sum_s / n, 0.9999999 * bound.mean_latency_s);
    ck_assert_double_ge(latency_s[n - 1], 0.9999999 * bound.p99_latency_s);
    ck_assert_double_gt(bound.mean_latency_s, 0.05 * sum_s / n);
    keeper_fini(&keeper);
    system_close(system);
}

/* Narrower windows of a canvas are no fewer passes, nor more; of others' schedulers nothing is
 * known, whatever they are called. */
TEST_EACH(of_other_words_no_bound_is_known, 2) {
    const char *const settings[] = {_i == 0 ? "scheduler=width-by-load" : "scheduler=continuous",
                                    "decoder=threshold", NULL};
    struct system *system = rig_system("fast-dllm", "h200", false, settings);
    struct scheduler own = *system->scheduler;
    struct arrival arrivals[1];
    struct passes passes;
    struct err err = {0};
    own.policy.name = "row-budget";
    own.changes_passes = 1;
    system->scheduler = _i == 0 ? system->scheduler : &own;
    draw(arrivals, 1, 0, 0);
    struct list_source list = {arrivals, 1, 0};
    const struct passes_request request = {
        .system = system, .source = {.state = &list, .next = list_next}, .seed = 3};
    ck_assert_int_eq(passes_list(&request, &passes, &err), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, _i == 0 ? "width-by-load says" : "row-budget says"));
    system_close(system);
}

SUITE("bound of words")
