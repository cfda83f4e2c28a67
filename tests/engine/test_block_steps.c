/* Steps that the device decides: recorded, with parts that a number decides on, and issued by a
 * host that asks for the numbers. */
#include "engine/step/block_steps.h"
#include "sim/decode/block.h"
#include "sim/decode/focus.h"
#include "sim/graph/bucket.h"
#include "tests/support/chain.h"
#include "tests/support/faulty_device.h"

static const struct focus_rule rule = {.alpha = 1.5};

enum { BLOCK = 12, REQUESTS = 3 };

/* Requests whose blocks a rig decodes; what the host knows of them. */
struct blocks {
    struct rig *rig;
    struct step_limits limits;
    struct chain chains[REQUESTS];
    struct block_state states[REQUESTS];
    struct focus_yield yields[REQUESTS];
    uint8_t masked[REQUESTS][BLOCK], uncached[REQUESTS][BLOCK];
    uint8_t log[BLOCK_STEPS * MAX_SPANS * BLOCK];
    struct block_member members[REQUESTS];
    int n_steps, n_visits;
};

static void enter(struct blocks *b, int r) {
    const struct chain *c = &b->chains[r];
    block_begin(&b->states[r], BLOCK_NEIGHBOUR, (uint32_t)(c->end - c->begin),
                c->begin < c->prompt ? (uint32_t)(c->prompt - c->begin) : 0, b->masked[r],
                b->uncached[r]);
    focus_yield_begin_block(&b->yields[r], &rule);
}

static void open_blocks(struct blocks *b, const struct device_table *table, int64_t unit) {
    memset(b, 0, sizeof *b);
    b->limits = limits;
    b->limits.page_rows = 4;
    b->limits.block_tokens = BLOCK;
    b->limits.bucket_tokens = unit;
    b->rig = rig_set_up(
        &(struct rig_setup){&focus_blocks, &evicting, "random:21", table, KERNEL_F32, &b->limits});
    memset(rig_pool(b->rig), 0, POOL * sizeof(float));
    for (int r = 0; r < REQUESTS; r++) {
        b->chains[r] = (struct chain){.canvas = 50, .prompt = 20 + 5 * r, .block = BLOCK};
        chain_start(&b->chains[r], r, b->rig);
        chain_place(&b->chains[r], 4, 0);
        while (b->chains[r].cached < b->chains[r].begin) {
            rig_clear(b->rig);
            chain_add(&b->chains[r], b->rig);
            b->rig->spans[0].kept_queries = 0;
            rig_step(b->rig);
            chain_advance(&b->chains[r], 0);
        }
        focus_yield_init(&b->yields[r]);
        enter(b, r);
    }
}

/* What the log says of one step. */
static void follow(struct blocks *b, int r, const uint8_t *log) {
    uint8_t keep[BLOCK], chosen[BLOCK];
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->states[r].length; i++) {
        ck_assert_int_eq((log[i] & KERNEL_LOG_RAN) != 0, b->uncached[r][i]);
        keep[i] = (log[i] & KERNEL_LOG_KEPT) != 0;
        chosen[i] = (log[i] & KERNEL_LOG_COMMITTED) != 0;
        n += chosen[i];
    }
    block_pass(&b->states[r], keep, chosen);
    focus_yield_add(&b->yields[r], &rule, n);
}

static int visit(struct blocks *b, const int *running, int n, uint32_t most_steps,
                 struct err *err) {
    struct step_shape shape;
    for (int i = 0; i < n; i++) {
        int r = running[i];
        const struct chain *c = &b->chains[r];
        b->members[i] = (struct block_member){
            .canvas = (int64_t)r * CANVAS_TOKENS,
            .begin = c->begin,
            .length = c->end - c->begin,
            .frontier = b->states[r].frontier < 0 ? -1 : c->begin + b->states[r].frontier,
            .mean = b->yields[r].mean,
            .sum = (int32_t)b->yields[r].sum,
            .steps = (int32_t)b->yields[r].n,
            .logits = KERNEL_LOGITS_DENOISING,
            .masked = b->masked[r],
            .uncached = b->uncached[r],
            .pages = c->pages,
            .n_pages = c->n_pages};
        for (int s = 0; s < BLOCK_STEPS; s++) {
            b->members[i].take[s] = 1;
        }
    }
    int64_t most = bucket_most(MAX_SPANS, BLOCK, MAX_TOKENS);
    shape_clear(&shape);
    bucket_widen(&shape, most);
    placement_make(planner_find(b->rig->planner, err), &b->rig->graph, &shape, b->rig->chunks,
                   &b->rig->placement);
    const struct block_step step = {.placement = &b->rig->placement,
                                    .members = b->members,
                                    .n = (uint32_t)n,
                                    .max_tokens = (uint32_t)most,
                                    .most_steps = most_steps,
                                    .takes = true,
                                    .alpha = 1.5f};
    return block_step_submit(b->rig->forward, &step, err);
}

/* Until all blocks are over; the host waits in a visit so many times. */
static int decode(struct blocks *b, uint32_t most_steps, int *n_waits, struct err *err) {
    *n_waits = 0;
    for (;;) {
        int running[REQUESTS], n = 0;
        for (int r = 0; r < REQUESTS; r++) {
            struct chain *c = &b->chains[r];
            if (!chain_over(c) && block_is_done(&b->states[r])) {
                chain_enter(c, c->end);
                if (!chain_over(c)) {
                    enter(b, r);
                }
            }
            if (!chain_over(c)) {
                running[n++] = r;
            }
        }
        if (n == 0) {
            return 0;
        }
        int before = faulty.n_waits;
        uint32_t n_steps, n_rows;
        int status = visit(b, running, n, most_steps, err);
        *n_waits += faulty.n_waits - before;
        if (status == 0) {
            status = block_step_log(b->rig->forward, &n_steps, &n_rows, b->log, err);
        }
        if (status != 0) {
            return status;
        }
        ck_assert(n_steps >= 1 && n_steps <= most_steps);
        for (uint32_t s = 0; s < n_steps; s++) {
            for (int i = 0; i < n; i++) {
                follow(b, running[i], b->log + (s * n_rows + (uint32_t)i) * BLOCK);
            }
        }
        b->n_steps += (int)n_steps;
        b->n_visits++;
        ck_assert_int_lt(b->n_visits, 200);
    }
}

static void read_canvases(struct blocks *b, int32_t canvases[REQUESTS][CANVAS_TOKENS]) {
    for (int r = 0; r < REQUESTS; r++) {
        rig_read(b->rig, r, 0, canvases[r], CANVAS_TOKENS);
    }
}

/* Recorded once, played ever after, without a wait; several steps a visit; in any sizes: the same
 * tokens. */
START_TEST(a_recorded_visit_waits_for_nothing_and_decodes_as_an_issued_one) {
    static const int64_t units[] = {64, 1, 10};
    static const uint32_t most[] = {1, 1, 5, 16};
    static int32_t expected[REQUESTS][CANVAS_TOKENS], found[REQUESTS][CANVAS_TOKENS];
    static struct blocks b;
    int n_steps = 0;
    for (int i = 0; i < 12; i++) {
        struct device_table table = faulty_device(0);
        struct err err = {0};
        bool is_plain = i % 4 == 0;
        int n_waits;
        open_blocks(&b, is_plain ? NULL : &table, units[i / 4]);
        faulty.queues = !is_plain;
        ck_assert_msg(decode(&b, most[i % 4], &n_waits, &err) == 0, "%s", err.text);
        ck_assert_int_eq(n_waits, 0);
        read_canvases(&b, i == 0 ? expected : found);
        n_steps = i == 0 ? b.n_steps : n_steps;
        ck_assert(i == 0 || memcmp(expected, found, sizeof expected) == 0);
        ck_assert_int_eq(b.n_steps, n_steps);
        ck_assert(most[i % 4] == 1 ? b.n_visits == n_steps : b.n_visits < n_steps);
        if (!is_plain) {
            ck_assert_int_eq(faulty.n_recorded, 1);
            ck_assert_int_eq(faulty.n_played, b.n_visits);
        }
        ck_assert_int_eq(rig_close(b.rig), 0);
        ck_assert_int_eq(faulty.n_open, 0);
    }
    ck_assert_int_gt(n_steps, 20);
}
END_TEST

/* What was recorded before anything runs is what is played. */
START_TEST(steps_recorded_in_advance_are_the_steps_of_a_run) {
    static struct blocks b;
    const struct device_table table = faulty_device(0);
    struct err err = {0};
    struct placement placement;
    struct step_shape shape;
    int n_waits;
    open_blocks(&b, &table, 64);
    shape_clear(&shape);
    bucket_widen(&shape, bucket_most(MAX_SPANS, BLOCK, MAX_TOKENS));
    placement_make(planner_find(b.rig->planner, &err), &b.rig->graph, &shape, b.rig->chunks,
                   &placement);
    const struct block_step step = {.placement = &placement,
                                    .n = MAX_SPANS,
                                    .max_tokens = (uint32_t)shape.sym[SYM_TOKENS],
                                    .most_steps = 1,
                                    .takes = true,
                                    .alpha = 1.5f};
    const int64_t before = forward_workspace_peak(b.rig->forward);
    ck_assert_int_lt(before, placement.peak_bytes);
    ck_assert_int_eq(block_step_warm(b.rig->forward, &step, &err), 0);
    ck_assert_int_eq(faulty.n_recorded, 1);
    ck_assert_int_eq(forward_workspace_peak(b.rig->forward), before); /* nothing ran */
    ck_assert_int_eq(decode(&b, 4, &n_waits, &err), 0);
    ck_assert_int_eq(faulty.n_recorded, 1);
    ck_assert_int_eq(faulty.n_played, b.n_visits);
    ck_assert_int_eq(forward_workspace_peak(b.rig->forward), placement.peak_bytes);
    rig_close(b.rig);
}
END_TEST

START_TEST(whichever_call_fails_a_visit_says_so) {
    static struct blocks b;
    struct device_table table = faulty_device(0);
    struct err err = {0};
    int n_waits, status = ERR_WORLD;
    for (long at = 1; status != 0; at += 37) {
        table = faulty_device(0);
        open_blocks(&b, &table, 64);
        faulty.n_calls = 0;
        faulty.fail_at = at;
        err = (struct err){0};
        status = decode(&b, 4, &n_waits, &err);
        ck_assert(status == 0 || (status == ERR_WORLD && err.text[0] != '\0'));
        rig_close(b.rig);
        ck_assert_int_eq(faulty.n_open, 0);
        status = faulty.n_calls < at ? 0 : status;
    }
}
END_TEST

START_TEST(blocks_that_do_not_fit_are_refused) {
    static struct blocks b;
    const int first[] = {0};
    struct err err = {0};
    open_blocks(&b, NULL, 64);
    b.chains[0].n_pages = 2;
    ck_assert_int_eq(visit(&b, first, 1, 1, &err), ERR_USAGE);
    ck_assert_str_eq(err.text, "block 0 of a step is 12 positions from 12 on, in 2 pages, of a "
                               "canvas at 0");
    b.chains[0].n_pages = 13;
    b.chains[0].pages[1] = 1 << 20;
    err = (struct err){0};
    ck_assert_int_eq(visit(&b, first, 1, 1, &err), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "block 0 of a step has page 1048576 of"));
    err = (struct err){0};
    b.chains[0].pages[1] = 1;
    ck_assert_int_eq(visit(&b, first, 1, 17, &err), ERR_USAGE);
    ck_assert_str_eq(err.text, "17 steps at once, but 1 to 16 are run");
    rig_close(b.rig);
    struct rig *rig = exact_rig(&focus_blocks, &evicting, 4);
    b.rig = rig;
    err = (struct err){0};
    ck_assert_int_eq(visit(&b, first, 1, 1, &err), ERR_USAGE);
    ck_assert_str_eq(err.text, "the engine was not opened for steps that the device decides");
    rig_close(rig);
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        a_recorded_visit_waits_for_nothing_and_decodes_as_an_issued_one,
        steps_recorded_in_advance_are_the_steps_of_a_run,
        whichever_call_fails_a_visit_says_so,
        blocks_that_do_not_fit_are_refused,
    };
    return SUITE_RUN("block_steps", tests);
}
