/* Schedulers that go by load: which rows of a step run, how wide blocks are decoded, and from which
 * threshold. */
#include "analysis/store/position_bytes.h"
#include "sim/policy/plugin/registry.h"
#include "sim/policy/scheduler/chances.h"
#include "sim/serve/positions.h"
#include "tests/support/rig.h"

enum { N = 24 };

/* Requests of SDAR's that are `gap_ms` apart, each with a deadline `due_ms` after its arrival; -1:
 * one by one with much time and with none. */
static void draw(struct arrival *arrivals, int64_t gap_ms, int64_t due_ms) {
    for (uint32_t i = 0; i < N; i++) {
        const bool waits = due_ms < 0 && i % 2 == 0; /* every other one has much time */
        arrivals[i] =
            MAKE(struct arrival, .id = i, .arrival_ns = i * gap_ms * 1000000,
                 .prompt_tokens = 40 + 13 * i, .output_tokens = 100 + 7 * i,
                 .due_ns = waits ? INT64_C(1000000000000) : 1000000 * (due_ms < 0 ? 1 : due_ms));
    }
}

static const char *const shared[] = {"cache=neighbour", "confidence=sdar-8b/math",
                                     "block_tokens=32", "decoder.threshold=0.85", NULL};

static struct system *open_with(const char *const *more) {
    const char *settings[16];
    uint32_t n = 0;
    for (uint32_t i = 0; shared[i] != NULL; i++) {
        settings[n++] = shared[i];
    }
    for (uint32_t i = 0; more[i] != NULL; i++) {
        settings[n++] = more[i];
    }
    settings[n] = NULL;
    return rig_system("sdar", "h200", true, settings);
}

#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})

static struct loop_result serve(const char *const *settings, int64_t gap_ms, int64_t due_ms,
                                struct keeper *keeper) {
    struct arrival arrivals[N];
    struct system *system = open_with(settings);
    draw(arrivals, gap_ms, due_ms);
    struct list_source list = {arrivals, N, 0};
    *keeper = (struct keeper){0};
    const struct loop_result result =
        rig_run(system, MAKE(struct arrival_source, .state = &list, .next = list_next), keeper);
    ck_assert_uint_eq(result.completed, N);
    system_close(system);
    return result;
}

static bool are_same(const struct keeper *a, const struct keeper *b) {
    bool same = a->n_steps == b->n_steps && a->n_requests == b->n_requests;
    for (size_t i = 0; same && i < a->n_steps; i++) {
        const struct step_record *x = &a->steps[i].record, *y = &b->steps[i].record;
        same = memcmp(a->steps[i].sym, b->steps[i].sym, sizeof a->steps[i].sym) == 0 &&
               x->start_ns == y->start_ns && x->end_ns == y->end_ns && x->n == y->n &&
               memcmp(a->steps[i].ids, b->steps[i].ids, x->n * sizeof a->steps[i].ids[0]) == 0;
    }
    return same && memcmp(a->requests, b->requests, a->n_requests * sizeof *a->requests) == 0;
}

/* ---- equal settings ---- */

/* A budget for all rows, a width of the whole block and a valve that stays where the decoder's
 * threshold is change nothing, to the byte. */
TEST(policies_with_equal_settings_are_the_plain_scheduler) {
    const char *const *const equal[] = {
        SETTINGS("scheduler=row-budget", "scheduler.rows=32"),
        SETTINGS("scheduler=width-by-rate", "scheduler.least=32", "scheduler.most=32"),
        SETTINGS("scheduler=deadline-valve", "scheduler.low=0.85", "scheduler.high=0.85")};
    struct keeper plain, other;
    serve(SETTINGS("scheduler=chunked"), 5, 100, &plain);
    for (size_t i = 0; i < 3; i++) {
        serve(equal[i], 5, 100, &other);
        ck_assert_msg(are_same(&plain, &other), "%s", equal[i][0]);
        keeper_fini(&other);
    }
    serve(SETTINGS("scheduler=row-budget", "scheduler.rows=31"), 5, 100, &other);
    ck_assert(!are_same(&plain, &other));
    keeper_fini(&other);
    keeper_fini(&plain);
}

/* ---- rows ---- */

static double tokens_of(const struct loop_result *result) {
    return (double)result->sym[SYM_TOKENS];
}

/* The more rows a request may run the more a step has, and what is left out costs commits only
 * where it was to be committed. */
TEST(steps_have_as_many_rows_as_are_said) {
    struct keeper keeper;
    double before = 0;
    for (int rows = 1; rows <= 32; rows *= 2) {
        char text[32];
        snprintf(text, sizeof text, "scheduler.rows=%d", rows);
        const struct loop_result result =
            serve(SETTINGS("scheduler=row-budget", text), 5, 100, &keeper);
        const double per_step = tokens_of(&result) / (double)result.request_steps;
        ck_assert_msg(per_step > before && per_step < 2 * rows + 16, "%d: %g after %g", rows,
                      per_step, before);
        before = per_step;
        keeper_fini(&keeper);
    }
}

/* The budget runs fewer rows than all, in about as many passes; alone, where rows cost next to
 * nothing, more than under load. */
TEST(a_budget_runs_what_is_worth_its_time) {
    struct keeper keeper;
    const struct loop_result all = serve(SETTINGS("scheduler=chunked"), 5, 100, &keeper);
    const int64_t all_ns = keeper.requests[N - 1].finished_ns;
    keeper_fini(&keeper);
    const struct loop_result loaded = serve(SETTINGS("scheduler=row-budget"), 5, 100, &keeper);
    ck_assert_int_lt(keeper.requests[N - 1].finished_ns, all_ns);
    keeper_fini(&keeper);
    const struct loop_result alone = serve(SETTINGS("scheduler=row-budget"), 100000, 100, &keeper);
    keeper_fini(&keeper);
    ck_assert_msg(tokens_of(&loaded) < 0.75 * tokens_of(&all) &&
                      (double)loaded.request_steps < 1.25 * (double)all.request_steps,
                  "%g of %g tokens, %llu of %llu passes", tokens_of(&loaded), tokens_of(&all),
                  (unsigned long long)loaded.request_steps, (unsigned long long)all.request_steps);
    ck_assert_uint_lt(alone.request_steps, loaded.request_steps);
}

/* What no pass has run is not seen: a step over the first two positions of a block reads no keys of
 * the others. */
TEST(positions_that_no_pass_has_run_are_not_attended_to) {
    struct keeper narrow, wide;
    const struct loop_result a = serve(SETTINGS("scheduler=width-by-rate", "scheduler.least=2",
                                                "scheduler.most=2", "decoder.threshold=1"),
                                       100000, 100, &narrow);
    const struct loop_result b = serve(SETTINGS("scheduler=width-by-rate", "scheduler.least=32",
                                                "scheduler.most=32", "decoder.threshold=1"),
                                       100000, 100, &wide);
    /* The first step over the first block of the first request: 40 tokens, the first 32 of them
     * prefilled, 8 at the head of the block. */
    const int64_t *first = narrow.steps[1].sym, *all = wide.steps[1].sym;
    ck_assert_int_eq(first[SYM_TOKENS], 8 + 2);
    ck_assert_int_eq(first[SYM_CONTEXT_ROWS] + first[SYM_TOKENS], 32 + 8 + 2);
    ck_assert_int_eq(all[SYM_TOKENS], 32);
    ck_assert_int_eq(all[SYM_CONTEXT_ROWS] + all[SYM_TOKENS], 32 + 32);
    ck_assert_uint_eq(a.request_steps, b.request_steps); /* one position a pass, either way */
    keeper_fini(&narrow);
    keeper_fini(&wide);
}

/* Positions 0, 4 and 5 of eight are decided, 0 to 5 have run; of the others those run first that
 * stand next to a decided one, then the surest, then those that no pass has run. */
TEST(positions_run_in_the_order_of_what_is_known_of_them) {
    static const struct {
        uint32_t most;
        bool surest;
        const char *run; /* decided ones, which have yet to be cached, run in any case */
        uint32_t seen;
    } cases[] = {
        {1, true, "11001100", 6},  {2, true, "11001110", 7},  {3, true, "11011110", 7},
        {4, true, "11111110", 7},  {5, true, "11111111", 8},  {1, false, "11001100", 6},
        {3, false, "11111100", 6}, {4, false, "11111110", 7}, {9, false, "11111111", 8},
    };
    static const uint8_t masked[] = {0, 1, 1, 1, 0, 0, 1, 1};
    static const float seen[] = {0, 0.1f, 0.2f, 0.4f, 0, 0, 0, 0};
    struct system *system = open_with(SETTINGS("scheduler=row-budget"));
    struct positions positions;
    positions_init(&positions, system, 1, 1);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct request request = {.causal = SEES_BLOCKS,
                                  .block_tokens = 8,
                                  .canvas_tokens = 72,
                                  .window = window_of(0, 64, 8, 5)};
        positions_enter(&positions, 0, &request, 0);
        memcpy(positions.blocks[0].masked, masked, sizeof masked);
        positions.blocks[0].n_masked = 5;
        positions.blocks[0].frontier = 5;
        memcpy(positions.seen, seen, sizeof seen);
        positions_plan(&positions, 0, &request, false);
        positions_leave(&positions, 0, &request, cases[c].most, cases[c].surest);
        const struct planned_block block = positions_block(&positions, 0);
        uint32_t n = 0;
        for (uint32_t i = 0; i < 8; i++) {
            ck_assert_msg(block.run[i] == (cases[c].run[i] == '1') && block.keep[i] == block.run[i],
                          "case %zu, position %u", c, i);
            n += block.run[i];
        }
        ck_assert_uint_eq(window_uncached(&request), n);
        ck_assert_uint_eq(window_seen(&request), cases[c].seen);
        struct masked_seen look[8];
        struct outcomes found;
        ck_assert_uint_eq(positions_look(&positions, 0, look, 3), 5);
        ck_assert(look[2].offset == 3 && look[2].confidence == seen[3]);
        /* The pass says how sure it was of what it ran, and of nothing else. */
        request.steps = 1;
        window_advance(&request, 1, 0);
        ck_assert(positions_pass(&positions, 0, &request, false, 0, true, &found));
        for (uint32_t i = 0; i < 8; i++) {
            const bool runs = cases[c].run[i] == '1' && masked[i] != 0;
            ck_assert((positions.seen[i] == seen[i]) == !runs);
        }
    }
    positions_fini(&positions);
    system_close(system);
}

/* Where logits are shifted a position runs with the one before it, whose row decides on it, as long
 * as there is room for both; what runs without it is not decided. */
TEST(a_position_runs_with_the_one_before_it_where_logits_are_shifted) {
    static const struct {
        uint32_t most;
        const char *run;
        uint32_t candidates;
    } cases[] = {{1, "11001100", 1}, {2, "11001110", 2}, {3, "11101110", 3}, {4, "11111110", 4}};
    static const uint8_t masked[] = {0, 1, 1, 1, 0, 0, 1, 1};
    static const float seen[] = {0, 0.1f, 0.2f, 0.4f, 0, 0, 0, 0};
    struct system *system = open_with(SETTINGS("scheduler=row-budget", "model.shifted_logits=on"));
    struct positions positions;
    positions_init(&positions, system, 1, 1);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct request request = {.causal = SEES_BLOCKS,
                                  .shifted = 1,
                                  .block_tokens = 8,
                                  .canvas_tokens = 72,
                                  .window = window_of(0, 64, 8, 5)};
        struct outcomes found;
        positions_enter(&positions, 0, &request, 0);
        memcpy(positions.blocks[0].masked, masked, sizeof masked);
        positions.blocks[0].n_masked = 5;
        memcpy(positions.seen, seen, sizeof seen);
        positions_plan(&positions, 0, &request, false);
        positions_leave(&positions, 0, &request, cases[c].most, true);
        const struct planned_block block = positions_block(&positions, 0);
        for (uint32_t i = 0; i < 8; i++) {
            ck_assert_msg(block.run[i] == (cases[c].run[i] == '1') && block.keep[i] == block.run[i],
                          "case %zu, position %u", c, i);
        }
        ck_assert_uint_eq(positions_candidates(&positions, 0), cases[c].candidates);
        /* What no row decides on, since an eviction left that row out, is not seen. */
        if (c == 3) {
            positions.keep[2] = 0;
            ck_assert_uint_eq(positions_candidates(&positions, 0), 2);
        }
        request.steps = 1;
        window_advance(&request, 1, 0);
        ck_assert(positions_pass(&positions, 0, &request, false, 0, true, &found));
        for (uint32_t i = 1; i < 8; i++) {
            const bool decides = block.keep[i] && block.keep[i - 1] && masked[i];
            ck_assert((positions.seen[i] == seen[i]) == !decides);
        }
    }
    positions_fini(&positions);
    system_close(system);
}

/* ---- chances ---- */

TEST(chances_are_shares_of_what_ran_and_new_kinds_are_tried) {
    static struct chances chances;
    static struct chances_told told;
    const struct request request = {.window = window_of(0, 64, 8, 8)};
    const struct request next = {.window = window_of(1, 72, 8, 8)};
    const struct masked_seen left[] = {{1, 0.5f}, {4, 0}, {6, 0}};
    ck_assert_double_eq(chances_of(&chances, 3), 1);
    for (uint32_t round = 0; round < 50; round++) {
        chances_tell(&told, &request, 4, 3); /* in any order; still masked */
        chances_tell(&told, &request, 0, 2); /* committed */
        chances_tell(&told, &request, 1, 3);
        chances_tell(&told, &request, 5, 3); /* committed */
        chances_learn(&chances, &told, &request, left, 3);
        ck_assert_uint_eq(told.n, 0);
    }
    ck_assert_double_eq(chances.ran[3], 150);
    ck_assert_double_eq(chances.committed[3], 50);
    ck_assert_double_eq(chances.committed[2], chances.ran[2]);
    /* The window moved on: all that ran was committed. */
    chances_tell(&told, &request, 1, 4);
    chances_learn(&chances, &told, &next, left, 3);
    ck_assert_double_eq(chances.committed[4], 1);
}

TEST(gains_add_up_to_what_is_expected_and_never_increase) {
    static const double chances[] = {0.5, 0.2, 0.9, 0.1};
    double gains[4], sum = 0, none = 1, expected = 0;
    chances_gains(chances, 4, gains);
    for (int i = 0; i < 4; i++) {
        sum += gains[i];
        none *= 1 - chances[i];
        expected += chances[i];
        ck_assert(i == 0 || gains[i] <= gains[i - 1]);
    }
    ck_assert_double_eq_tol(sum, expected + none, 1e-12);
    ck_assert_double_eq_tol(gains[0], 1, 1e-12);        /* the best is committed in any case */
    ck_assert_double_eq_tol(gains[1], gains[2], 1e-12); /* the third one makes up for the second */
    ck_assert_double_lt(gains[3], gains[2]);
}

/* ---- the valve ---- */

static double mean_threshold(const struct keeper *keeper) {
    double sum = 0, n = 0;
    for (size_t i = 0; i < keeper->n_steps; i++) {
        sum += (double)keeper->steps[i].record.thresholds_millionths;
        n += (double)keeper->steps[i].record.n_by_threshold;
    }
    return 1e-6 * sum / n;
}

/* Requests in time commit from the upper bound on; late ones from a lower threshold, which keeps
 * the mean where it is to stay. */
TEST(a_valve_opens_for_late_requests_as_far_as_its_mean_allows) {
    const char *const bounds[] = {"scheduler=deadline-valve", "scheduler.low=0.7",
                                  "scheduler.high=0.9", NULL, NULL};
    const char *held[5];
    memcpy(held, bounds, sizeof held);
    held[3] = "scheduler.mean=0.8";
    struct keeper keeper;
    serve(bounds, 100000, 100000, &keeper);
    ck_assert_double_eq_tol(mean_threshold(&keeper), 0.9, 1e-6);
    keeper_fini(&keeper);
    const struct loop_result open = serve(bounds, 5, 1, &keeper);
    ck_assert_double_lt(mean_threshold(&keeper), 0.705);
    keeper_fini(&keeper);
    const struct loop_result half = serve(held, 5, 1, &keeper);
    ck_assert_double_ge(mean_threshold(&keeper), 0.799);
    ck_assert_double_lt(mean_threshold(&keeper), 0.81);
    ck_assert_uint_lt(open.request_steps, half.request_steps);
    keeper_fini(&keeper);
    /* What those in time leave to the mean the others use. */
    const struct loop_result mixed = serve(held, 5, -1, &keeper);
    ck_assert_double_ge(mean_threshold(&keeper), 0.8);
    keeper_fini(&keeper);
    held[1] = "scheduler.low=0.8";
    const struct loop_result apart = serve(held, 5, -1, &keeper);
    ck_assert_uint_lt(mixed.request_steps, apart.request_steps);
    keeper_fini(&keeper);
}

/* ---- records ---- */

/* Confidences of what was kept stand after the entropies of what was committed, where there are
 * any; other lengths are no such bytes. */
TEST(confidences_of_what_was_kept_are_read_as_written) {
    uint32_t lengths[] = {3, 2};
    uint8_t keep[] = {1, 0, 1, 1, 1, 0}, outcome[] = {1, 0, 0, 0, 1, 0};
    float entropy[] = {0.5f, 0, 0, 0, 0.25f, 0}, seen[] = {0.9f, 0, 0.3f, 0.2f, 0.7f, 0};
    for (int has = 0; has < 4; has++) {
        const struct step_positions written = {.stride = 3,
                                               .lengths = lengths,
                                               .keep = keep,
                                               .outcome = outcome,
                                               .entropy = (has & 1) != 0 ? entropy : NULL,
                                               .seen = (has & 2) != 0 ? seen : NULL};
        unsigned char bytes[256];
        const size_t size = position_bytes_put(bytes, &written, 2);
        ck_assert_uint_le(size, position_bytes_most(&written, 2));
        struct step_positions read = {0};
        ck_assert(position_bytes_get(bytes, bytes + size, 2, &read));
        ck_assert_int_eq(read.entropy != NULL, (has & 1) != 0);
        ck_assert_int_eq(read.seen != NULL, (has & 2) != 0);
        for (uint32_t i = 0; i < 6; i++) {
            ck_assert(read.seen == NULL || keep[i] == 0 || read.seen[i] == seen[i]);
            ck_assert(read.entropy == NULL || outcome[i] == 0 || read.entropy[i] == entropy[i]);
        }
        ck_assert(!position_bytes_get(bytes, bytes + size - 1, 2, &read) || has == 0);
        positions_free(&read);
    }
}

/* ---- what does not go together ---- */

static void refuses(const char *name, const char *setting, const char *other, const char *says) {
    struct system_request request = {.system = name, .gpu = "h200", .roofline = true};
    struct setting settings[2];
    const char *const words[] = {setting, other};
    for (int i = 0; i < 2; i++) {
        const char *equals = strchr(words[i], '=');
        settings[i] = MAKE(struct setting, .place = "test");
        snprintf(settings[i].key, sizeof settings[i].key, "%.*s", (int)(equals - words[i]),
                 words[i]);
        snprintf(settings[i].value, sizeof settings[i].value, "%s", equals + 1);
    }
    request.overrides = settings;
    request.n_overrides = 2;
    struct err err = {0};
    struct system *system = NULL;
    ck_assert_int_ne(system_open(&request, &system, &err), 0);
    ck_assert_msg(err.kind == ERR_USAGE && strstr(err.text, says) != NULL, "%s", err.text);
}

TEST(what_cannot_take_other_rows_widths_or_thresholds_is_refused_with_one_sentence) {
    refuses("focus", "scheduler=row-budget", "max_requests=8", "cache focus chooses them itself");
    refuses("fast-dllm", "scheduler=row-budget", "max_requests=8", "is bidirectional");
    refuses("sglang-s", "scheduler=width-by-rate", "max_requests=8", "decoder joint-threshold");
    refuses("sdar", "scheduler=row-budget", "unroll.maximum=4", "set unroll.maximum = 1");
    refuses("multibd", "scheduler=row-budget", "max_requests=8", "set blocks_in_flight = 1");
    refuses("multibd", "scheduler=deadline-valve", "max_requests=8", "set decoder = threshold");
    refuses("d3llm", "scheduler=width-by-load", "max_requests=8", "set blocks_in_flight = 1");
    refuses("dsb", "scheduler=width-by-load", "max_requests=8", "set window_slides = off");
    refuses("sdar", "scheduler=width-by-load", "max_requests=8", "is block-causal");
    refuses("fast-dllm", "scheduler=threshold-valve", "decoder=fixed", "decoder fixed has none");
    refuses("fast-dllm", "scheduler=width-by-load", "scheduler.to=12", "has 12 and 12");
    refuses("load-valve", "scheduler.low=0.95", "max_requests=8", "has 0.95 and 0.9");
    refuses("load-width", "scheduler.least=64", "max_requests=8", "has 64 and 32");
}

SUITE("load")
