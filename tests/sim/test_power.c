/* Clocks and power: the model against what it must be in closed form, and the serving loop on a
 * card whose state is known. */
#include "sim/price/profile/power.h"

#include <math.h>
#include <string.h>

#include "sim/price/roofline.h"
#include "sim/system/system_step.h"
#include "tests/support/rig.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"

static const struct power card = {.idle_w = 100,
                                  .limit_w = 700,
                                  .busy_w = 200,
                                  .active_w = 150,
                                  .flop_pj = 1,
                                  .byte_pj = 50,
                                  .exponent = 1,
                                  .lag_ms = 30};

/* So many ns that are bound by operations and would draw 100 + 200 + 150 + 450 W. */
static struct power_step bound_by_operations(double ns) {
    return (struct power_step){
        .ns = ns, .busy_ns = ns, .compute_ns = ns, .flops_j = 450 * ns * 1e-9};
}

/* 10 ms bound by memory, 500 W. */
static const struct power_step light = {.ns = 1e7, .busy_ns = 1e7, .bytes_j = 2};

static double watts(const struct power_step *step, double slowdown) {
    const double more_s = 1e-9 * step->compute_ns * (slowdown - 1), s = 1e-9 * step->ns + more_s;
    const double active_j = card.active_w * (1e-9 * step->compute_ns * slowdown),
                 busy_j = card.busy_w * (1e-9 * step->busy_ns + more_s);
    return card.idle_w + ((busy_j + active_j) / (slowdown * slowdown) + step->flops_j / slowdown +
                          step->bytes_j) /
                             s;
}

TEST(the_clock_settles_where_power_meets_the_limit) {
    const struct power_step busy = bound_by_operations(1e7);
    /* (450 + 200 + 150) W / x^2 = 600 W, for the same operations take x times as long. */
    ck_assert_double_eq_tol(power_settled(&card, &busy), sqrt(800.0 / 600), 1e-9);
    ck_assert_double_eq(power_settled(&card, &light), 1);
    for (double share = 0; share <= 1; share += 0.25) {
        for (double joules = 4.2; joules < 20; joules *= 1.3) {
            for (double bytes_j = 0; bytes_j < 3; bytes_j += 0.7) {
                const struct power_step step = {1.1e7, 1e7, share * 1e7, joules + 1, bytes_j};
                const double x = power_settled(&card, &step);
                ck_assert_double_gt(x, 1);
                ck_assert_double_eq_tol(watts(&step, x), x < 7.99 ? 700 : watts(&step, 8), 1e-6);
            }
        }
    }
}

/* What memory alone draws no clock brings down. */
TEST(the_clock_falls_no_lower_than_the_lowest) {
    const struct power_step step = {.ns = 1e7, .busy_ns = 1e7, .bytes_j = 9};
    ck_assert_double_eq_tol(power_settled(&card, &step), 8, 1e-9);
}

TEST(joules_are_of_operations_bytes_and_time) {
    ck_assert_double_eq_tol(power_flops_j(&card, 2e12), 2, 1e-12);
    /* Measured on H200s at their power limit: 0.52 to 0.64. */
    ck_assert_double_eq_tol(power_flops(3e12, 1e12), 2.63e12, 1);
    ck_assert_double_eq_tol(power_flops(3e12, 0), 3e12, 1);
    ck_assert_double_eq_tol(power_bytes_j(&card, 1e10), 0.5, 1e-12);
    const struct power_step step = {
        .ns = 1.5e7, .busy_ns = 1e7, .compute_ns = 4e6, .flops_j = 3, .bytes_j = 1};
    ck_assert_double_eq_tol(power_work_joules(&card, &step, 1), 3 + 1 + 2 + 0.6, 1e-12);
    /* Half the clock: half the joules of an operation, a quarter of the watts for 14 and 8 ms. */
    ck_assert_double_eq_tol(power_work_joules(&card, &step, 2), 1.5 + 1 + 0.7 + 0.3, 1e-12);
}

/* By many short steps, what the lag says a long one is on average. */
TEST(the_clock_lags_behind_by_its_constant) {
    struct power_state state = {.behind = {0}};
    const struct power_step part = bound_by_operations(1e4);
    const double settled = power_settled(&card, &part);
    double missing_ms = 0, first = 0;
    for (double ms = 0; ms < 500;) {
        struct power_spent spent = power_run(&card, &part, &state);
        missing_ms += (settled - spent.slowdown) / (settled - 1) * spent.ns * 1e-6;
        ms += spent.ns * 1e-6;
        first = ms < 5 ? spent.slowdown : first;
    }
    ck_assert_double_eq_tol(missing_ms, card.lag_ms, 0.05);
    ck_assert_double_eq_tol(state.behind[POWER_LAGS - 1], settled - 1, 1e-6);
    /* It hardly moves within the first milliseconds. */
    ck_assert_double_lt(first, 1 + 0.03 * (settled - 1));
}

/* A state remembers what the last step settles at, of no other step. */
TEST(a_step_runs_alike_whichever_step_was_before) {
    const struct power_step busy = bound_by_operations(1e7);
    struct power_step more = busy;
    struct power_state state = {.behind = {0}};
    more.bytes_j = 1;
    const struct power_step *steps[] = {&busy, &light, &busy, &more, &more, &busy};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct power_state fresh = {.behind = {0}};
        memcpy(fresh.behind, state.behind, sizeof fresh.behind);
        const struct power_spent spent = power_run(&card, steps[i], &state);
        const struct power_spent same = power_run(&card, steps[i], &fresh);
        ck_assert(spent.ns == same.ns && spent.work_joules == same.work_joules);
        ck_assert_int_eq(memcmp(state.behind, fresh.behind, sizeof state.behind), 0);
    }
}

TEST(a_long_step_takes_what_many_short_ones_take) {
    struct power_state whole = {.behind = {0}}, parts = {.behind = {0}};
    const struct power_step long_step = bound_by_operations(6e7), part = bound_by_operations(1e5);
    double ns = 0, joules = 0;
    const struct power_spent once = power_run(&card, &long_step, &whole);
    for (int i = 0; i < 600; i++) {
        struct power_spent spent = power_run(&card, &part, &parts);
        ns += spent.ns;
        joules += spent.work_joules;
    }
    ck_assert_double_eq_tol(once.ns / ns, 1, 3e-3);
    ck_assert_double_eq_tol(once.work_joules / joules, 1, 5e-3);
}

TEST(idling_and_memory_bound_work_let_the_clock_back) {
    const struct power_step busy = bound_by_operations(1e7);
    struct power_state worked = {.behind = {0}}, rested, moved;
    for (int i = 0; i < 100; i++) {
        power_run(&card, &busy, &worked);
    }
    rested = moved = worked;
    power_rest(&card, 5e7, &rested);
    for (int i = 0; i < 5; i++) {
        struct power_spent spent = power_run(&card, &light, &moved);
        ck_assert_double_eq(spent.ns, light.ns);
    }
    for (int i = 0; i < POWER_LAGS; i++) {
        ck_assert_double_eq_tol(rested.behind[i], moved.behind[i], 1e-12);
        ck_assert_double_lt(rested.behind[i], 0.2 * worked.behind[i]);
    }
    struct power_state again = rested;
    power_rest(&card, 0, &again);
    ck_assert_double_eq(again.behind[0], rested.behind[0]);
}

/* What transients of an H200 showed (roofline.h): nearly all of a product whose bytes take two
 * thirds of its time, little of one whose bytes take all but an eighth. */
TEST(a_clock_stretches_what_operations_bind) {
    ck_assert_double_eq(stretched_ns(100, 0), 100);
    ck_assert_double_eq(stretched_ns(100, 100), 0);
    ck_assert_double_eq(stretched_ns(90, 100), 0);
    ck_assert_double_eq_tol(stretched_ns(75.9, 0.67 * 75.9) / 75.9, 0.91, 0.01);
    ck_assert_double_lt(stretched_ns(55.9, 0.87 * 55.9) / 55.9, 0.6);
}

TEST(constants_are_named_and_bounded) {
    struct power power = {0};
    ck_assert_ptr_null(power_missing(&power));
    ck_assert(power_take(&power, "idle_w", 100));
    ck_assert_str_eq(power_missing(&power), "limit_w");
    ck_assert(!power_take(&power, "watts", 100));
    ck_assert(!power_take(&power, "limit_w", 0));
    ck_assert(!power_take(&power, "limit_w", -1));
    ck_assert(!power_take(&power, "exponent", 11));
}

/* ---- profiles ---- */

static const char rows[] =
    "power,idle_w,100\npower,limit_w,700\npower,busy_w,200\npower,active_w,150\n"
    "power,flop_pj,1\npower,byte_pj,50\npower,exponent,1\npower,lag_ms,30\n";

static int parse(const char *text, struct profile **out, struct err *err) {
    const struct profile_peaks peaks = {
        .flops = 1e15, .bandwidth = 4e12, .sms = 132, .l2_bytes = 50000000};
    return profile_parse("here", text, strlen(text), &peaks, out, err);
}

static void make_text(char *text, size_t size, const char *more) {
    snprintf(text, size,
             "# Operator times of one device.\n# kind: measured\n# source: nobody\n%s"
             "gemm,128,4096,4096,10\n",
             more);
}

TEST(a_profile_keeps_them) {
    char text[1024];
    struct err err = {0};
    struct profile *profile, *again;
    make_text(text, sizeof text, rows);
    ck_assert_msg(parse(text, &profile, &err) == 0, "%s", err.text);
    ck_assert_int_eq(memcmp(profile_power(profile), &card, sizeof card), 0);
    char *written = NULL;
    size_t size;
    FILE *file = open_memstream(&written, &size);
    ck_assert_int_eq(profile_write(profile, file, &err), 0);
    fclose(file);
    ck_assert_msg(parse(written, &again, &err) == 0, "%s", err.text);
    ck_assert_int_eq(memcmp(profile_power(again), &card, sizeof card), 0);
    free(written);
    profile_close(again);
    profile_close(profile);
}

TEST(a_profile_with_a_part_of_them_is_refused) {
    static const char *const bad[] = {"power,idle_w,100\n", "power,idle_w\n", "power,idle_w,x\n",
                                      "power,volts,1\n", "power,lag_ms,-3\n",
                                      /* as calibrations before busy_w wrote them */
                                      "power,idle_w,100\npower,limit_w,700\npower,flop_pj,1\n"
                                      "power,byte_pj,50\npower,exponent,1\npower,lag_ms,30\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[1024];
        struct err err = {0};
        struct profile *profile = NULL;
        make_text(text, sizeof text, bad[i]);
        ck_assert_int_ne(parse(text, &profile, &err), 0);
        ck_assert_ptr_nonnull(strstr(err.text, "power"));
    }
}

/* ---- the loop ---- */

/* What steps take more that are no captured graph. */
enum { REFRESH_NS = 300000, REUSE_NS = 200000, SELECT_NS = 500000 };
#define HOST                                                                                       \
    "host,refresh,40000,1000,300000\nhost,reuse,30000,1000,200000\n"                               \
    "host,select,50000,1000,500000\n"

/* The shipped profile of `name`, without its rows of the clock, and, where there are others, of the
 * host, with `more` behind it. */
static void write_profile(const char *name, const char *path, const char *more) {
    char from_path[128], line[512];
    const bool has_host = strstr(more, "host,") != NULL;
    snprintf(from_path, sizeof from_path, "kernels/profiles/%s.csv", name);
    FILE *from = fopen(from_path, "r"), *to = fopen(path, "w");
    ck_assert(from != NULL && to != NULL);
    while (fgets(line, sizeof line, from) != NULL) {
        if (strncmp(line, "# rows:", 7) != 0 && strncmp(line, "power,", 6) != 0 &&
            (!has_host || strncmp(line, "host,", 5) != 0)) {
            fputs(line, to);
        }
    }
    fputs(more, to);
    fclose(from);
    fclose(to);
}

static struct system *system_of_profile(const char *name, const char *profile, const char *more,
                                        const char *const *settings) {
    static char path[512];
    struct setting overrides[8];
    uint32_t n = 0;
    for (; settings[n] != NULL; n++) {
        const char *equals = strchr(settings[n], '=');
        snprintf(overrides[n].key, sizeof overrides[n].key, "%.*s", (int)(equals - settings[n]),
                 settings[n]);
        snprintf(overrides[n].value, sizeof overrides[n].value, "%s", equals + 1);
        snprintf(overrides[n].place, sizeof overrides[n].place, "test");
    }
    snprintf(path, sizeof path, "%s/card.csv", scratch_folder);
    write_profile(profile, path, more);
    const struct system_request request = {.system = name,
                                           .gpu = "h200",
                                           .profile_path = path,
                                           .overrides = overrides,
                                           .n_overrides = n};
    struct err err = {0};
    struct system *system = NULL;
    ck_assert_msg(system_open(&request, &system, &err) == 0, "%s", err.text);
    return system;
}

static struct system *system_on_card(const char *name, const char *const *settings) {
    return system_of_profile(name, "h200", rows, settings);
}

static struct poisson_source random_source(struct rng *rng, uint64_t seed, uint64_t n) {
    return MAKE(struct poisson_source, .rng = rng_stream(seed, "arrivals"),
                .lengths = rng_stream(seed, "lengths"), .rate = 1 + 4 * rng_uniform(rng), .n = n,
                .prompt_min = 1, .prompt_max = 900, .output_min = 1, .output_max = 400);
}

static struct loop_result serve(const char *name, const char *more, const char *skip,
                                struct keeper *kept) {
    const char *const settings[] = {skip, NULL};
    struct system *system = system_of_profile(name, "h200", more, settings);
    struct rng rng = rng_stream(5, "power");
    struct poisson_source source = random_source(&rng, 7, 60);
    struct loop_result result =
        rig_run(system, (struct arrival_source){.state = &source, .next = poisson_next}, kept);
    system_close(system);
    return result;
}

static void skip_and_step(const char *name, const char *more) {
    struct keeper kept[2] = {{0}};
    struct loop_result results[2];
    for (int skip = 0; skip < 2; skip++) {
        results[skip] = serve(name, more, skip ? "skip_ahead=on" : "skip_ahead=off", &kept[skip]);
    }
    ck_assert_uint_gt(results[0].submissions, results[1].submissions);
    ck_assert_int_eq(results[0].end_ns, results[1].end_ns);
    for (size_t i = 0; i < kept[0].n_requests; i++) {
        ck_assert_int_eq(
            memcmp(&kept[0].requests[i], &kept[1].requests[i], sizeof kept[0].requests[i]), 0);
    }
    keeper_fini(&kept[0]);
    keeper_fini(&kept[1]);
}

TEST(skipping_ahead_is_step_by_step_to_the_nanosecond) {
    static const char *const systems[] = {"dllm-serve", "fast-dllm", "dllm-cache"};
    char more[1024];
    snprintf(more, sizeof more, "%s%s", rows, HOST);
    for (size_t s = 0; s < sizeof systems / sizeof *systems; s++) {
        skip_and_step(systems[s], rows);
        skip_and_step(systems[s], more); /* whose first two steps of a shape take longer */
    }
    snprintf(more, sizeof more, "%s%sbetween,47000\n", rows, HOST);
    for (size_t s = 0; s < sizeof systems / sizeof *systems; s++) {
        skip_and_step(systems[s], more);
    }
}

/* Rows that were measured on a card whose file says a third of its bandwidth: what the clock
 * stretches is the card's, not the file's. */
TEST(what_the_clock_stretches_goes_by_the_rows_not_by_the_sheet) {
    double share[2];
    for (int i = 0; i < 2; i++) {
        const struct system_request request = {.system = "fast-dllm",
                                               .model = "llada-8b",
                                               .gpu = i == 0 ? "h200" : "rtx4090",
                                               .profile_path =
                                                   "kernels/profiles/h200/llada-8b.csv"};
        const struct span canvas = {
            .phase = PHASE_REFRESH, .queries = 512, .first_queries = 512, .logit_rows = 32};
        struct err err = {0};
        struct system *system = NULL;
        struct step_price price;
        struct step_shape shape;
        ck_assert_msg(system_open(&request, &system, &err) == 0, "%s", err.text);
        shape_clear(&shape);
        shape_add(shape.sym, &canvas, 1);
        cost_price(system->cost, &shape, (struct chunk_rows){{0}}, &price);
        share[i] = price.compute_ns / price.device_ns;
        system_close(system);
    }
    ck_assert_double_gt(share[0], 0.3);
    ck_assert_double_eq_tol(share[1], share[0], 0.1);
}

/* Of submissions one after another: another one starts as long behind as the profile says, the same
 * one once more at once, as do those that are played. */
TEST(between_submissions_that_differ_time_passes) {
    enum { BETWEEN_NS = 47000 };
    const char *const settings[] = {"runtime=unmask", "host.factor=2", NULL};
    char more[1024];
    snprintf(more, sizeof more, "%sbetween,%d\n", rows, BETWEEN_NS);
    struct system *system = system_of_profile("fast-dllm", "h200", more, settings);
    struct executor_sim *sim = executor_sim_open(system, 1), *pricer = executor_sim_open(system, 1);
    struct executor executor = executor_sim_interface(sim);
    const struct span canvas = {
        .phase = PHASE_REFRESH, .queries = 512, .first_queries = 512, .logit_rows = 32};
    static const uint32_t slots[][1] = {{3}, {3}, {4}, {4}, {4}};
    static const uint32_t repeats[] = {2, 3, 1, 1, 1};
    static const uint32_t n_canvases[] = {1, 1, 1, 2, 2};
    static const bool waits[] = {true, false, true, true, false};
    int64_t end_ns = 0;
    for (size_t i = 0; i < sizeof repeats / sizeof *repeats; i++) {
        struct step_shape shape;
        struct completion done, played;
        struct err err = {0};
        shape_clear(&shape);
        shape_add(shape.sym, &canvas, n_canvases[i]);
        const struct submission submission = {
            .repeat = repeats[i],
            .stop_ns = INT64_MAX,
            .step = {
                .shape = &shape, .workspace_bytes = INT64_MAX, .slots = slots[i], .n_slots = 1}};
        ck_assert_int_eq(executor.submit(executor.state, &submission, &err), 0);
        ck_assert_int_eq(executor.wait(executor.state, INT64_MAX, &done, &err), 0);
        ck_assert_int_eq(done.start_ns - end_ns, waits[i] ? 2 * BETWEEN_NS : 0);
        ck_assert_int_eq(
            executor_sim_play(pricer, &submission, done.start_ns - end_ns, &played, &err), 0);
        ck_assert_int_eq(played.time_ns - played.start_ns, done.time_ns - done.start_ns);
        end_ns = done.time_ns;
    }
    executor_sim_close(sim);
    executor_sim_close(pricer);
    system_close(system);
}

/* A refresh of 16 canvases again and again, then what schedulers are told of one more. */
TEST(estimates_know_the_clock_and_the_joules) {
    const char *const settings[] = {NULL};
    struct system *system = system_on_card("fast-dllm", settings);
    struct executor_sim *sim = executor_sim_open(system, 1);
    struct executor executor = executor_sim_interface(sim);
    const struct span canvas = {
        .phase = PHASE_REFRESH, .queries = 512, .first_queries = 512, .logit_rows = 32};
    struct step_shape shape;
    double rested_j, worked_j, again_j;
    struct err err = {0};
    shape_clear(&shape);
    shape_add(shape.sym, &canvas, 16);
    const int64_t rested_ns = executor.estimate_ns(executor.state, 0, &shape, INT64_MAX, &rested_j);
    const struct submission submission = {.repeat = 20,
                                          .stop_ns = INT64_MAX,
                                          .step = {.shape = &shape, .workspace_bytes = INT64_MAX}};
    struct completion done;
    ck_assert_int_eq(executor.submit(executor.state, &submission, &err), 0);
    ck_assert_int_eq(executor.wait(executor.state, INT64_MAX, &done, &err), 0);
    /* At first above what the clock settles at. */
    const double drawn_w = done.joules / ((double)(done.time_ns - done.start_ns) * 1e-9);
    ck_assert(drawn_w > card.limit_w && drawn_w < 1.5 * card.limit_w);
    const int64_t worked_ns = executor.estimate_ns(executor.state, 0, &shape, INT64_MAX, &worked_j);
    ck_assert_int_gt(worked_ns, rested_ns);
    ck_assert_double_eq_tol(worked_j / ((double)worked_ns * 1e-9), card.limit_w, 1);
    struct step_price price;
    cost_price(system->cost, &shape, system_chunks(system, &shape, INT64_MAX), &price);
    ck_assert_double_lt(price.wall_ns, (double)rested_ns);
    ck_assert_double_gt(cost_settle(system->cost, &shape, &price), 1);
    ck_assert_double_eq_tol(price.wall_ns, (double)worked_ns, 1e-3 * (double)worked_ns);
    /* Idling lets it back. */
    ck_assert_int_eq(executor.wait(executor.state, done.time_ns + 1000000000, &done, &err), 0);
    ck_assert_int_eq(executor.estimate_ns(executor.state, 0, &shape, INT64_MAX, &again_j),
                     rested_ns);
    ck_assert_double_eq_tol(again_j, rested_j, 1e-9);
    executor_sim_close(sim);
    system_close(system);
}

/* A submission that is played is one that is submitted and waited for behind so much idling, which
 * counts where there is a clock. */
TEST(what_is_played_idles_and_runs_as_what_is_submitted) {
    const char *const settings[] = {NULL};
    struct system *clocked = system_on_card("fast-dllm", settings),
                  *other = rig_system("fast-dllm", "a100-80g", false, NULL);
    const struct span canvas = {
        .phase = PHASE_REFRESH, .queries = 512, .first_queries = 512, .logit_rows = 32};
    static const int64_t idle_ns[] = {0, 1000, 5000000, 0, 1000000000};
    struct step_shape shape;
    shape_clear(&shape);
    shape_add(shape.sym, &canvas, 16);
    const struct submission submission = {.repeat = 20,
                                          .stop_ns = INT64_MAX,
                                          .step = {.shape = &shape, .workspace_bytes = INT64_MAX}};
    for (int has_clock = 0; has_clock < 2; has_clock++) {
        struct system *system = has_clock ? clocked : other;
        struct executor_sim *one = executor_sim_open(system, 1),
                            *two = executor_sim_open(system, 1);
        struct executor executor = executor_sim_interface(two);
        struct completion played, done = {.time_ns = 0};
        struct err err = {0};
        for (size_t i = 0; i < sizeof idle_ns / sizeof *idle_ns; i++) {
            const int64_t until_ns = done.time_ns + (has_clock ? idle_ns[i] : 0);
            ck_assert_int_eq(executor_sim_play(one, &submission, idle_ns[i], &played, &err), 0);
            ck_assert_int_eq(executor.wait(executor.state, until_ns, &done, &err), 0);
            ck_assert_int_eq(executor.submit(executor.state, &submission, &err), 0);
            ck_assert_int_eq(executor.wait(executor.state, INT64_MAX, &done, &err), 0);
            ck_assert_int_eq(played.kind, COMPLETION_BATCH);
            ck_assert_int_eq(played.start_ns, until_ns);
            ck_assert_int_eq(played.time_ns, done.time_ns);
            ck_assert_int_eq(played.gpu_ns, done.gpu_ns);
            ck_assert_uint_eq(played.steps, 20);
        }
        /* Beyond what a clock counts. */
        ck_assert(executor_sim_play(one, &submission, INT64_MAX, &played, &err) ==
                  (has_clock ? (int)ERR_WORLD : 0));
        executor_sim_close(one);
        executor_sim_close(two);
    }
    system_close(clocked);
    system_close(other);
}

/* Plays two submissions in a row after a rest of more than any clock remembers. `x`: which. */
static void play_two(struct executor_sim *sim, int64_t *now_ns, uint32_t x,
                     struct completion out[2]) {
    static const int64_t rest_ns = 1000000000000;
    const struct span canvas = {
        .phase = PHASE_REFRESH, .queries = 512, .first_queries = 512, .logit_rows = 32};
    struct step_shape shape;
    shape_clear(&shape);
    shape_add(shape.sym, &canvas, x % 2 == 0 ? 16 : 12);
    for (uint32_t i = 0; i < 2; i++) {
        struct err err = {0};
        const int64_t idle_ns = i == 0 ? rest_ns : 0;
        const bool stops = x / 4 % 2 != 0;
        const struct submission submission = {
            .repeat = x / 2 % 2 == 0 ? 20 : 7,
            .stop_ns = stops ? *now_ns + idle_ns + 250000000 : INT64_MAX,
            .step = {.shape = &shape, .workspace_bytes = INT64_MAX}};
        ck_assert_int_eq(executor_sim_play(sim, &submission, idle_ns, &out[i], &err), 0);
        *now_ns = out[i].time_ns;
    }
}

/* What is remembered of a submission is what all that it depends on gives: the step, how often it
 * comes, from which clock on, and whether something stops it. */
TEST(a_submission_takes_what_it_takes_on_a_fresh_executor) {
    enum { KINDS = 8, TIMES = 3 };
    const char *const settings[] = {NULL};
    struct system *system = system_on_card("fast-dllm", settings);
    struct executor_sim *warm = executor_sim_open(system, 1);
    int64_t now_ns = 0;
    uint32_t n_stopped = 0;
    for (uint32_t x = 0; x < KINDS * TIMES; x++) {
        struct executor_sim *fresh = executor_sim_open(system, 1);
        struct completion got[2], expected[2];
        int64_t fresh_ns = 0;
        play_two(warm, &now_ns, x % KINDS, got);
        play_two(fresh, &fresh_ns, x % KINDS, expected);
        for (int i = 0; i < 2; i++) {
            ck_assert_uint_eq(got[i].steps, expected[i].steps);
            ck_assert_int_eq(got[i].time_ns - got[i].start_ns,
                             expected[i].time_ns - expected[i].start_ns);
            ck_assert_int_eq(got[i].gpu_ns, expected[i].gpu_ns);
            ck_assert_int_eq(got[i].host_ns, expected[i].host_ns);
            ck_assert_double_eq(got[i].joules, expected[i].joules);
            n_stopped += got[i].steps < 7;
        }
        ck_assert_int_ne(got[0].time_ns - got[0].start_ns, got[1].time_ns - got[1].start_ns);
        executor_sim_close(fresh);
    }
    ck_assert_uint_gt(n_stopped, 0);
    executor_sim_close(warm);
    system_close(system);
}

/* ---- steps that are no captured graph ---- */

/* A card that no step slows down. */
#define COOL                                                                                       \
    "power,idle_w,100\npower,limit_w,9000\npower,busy_w,200\npower,active_w,150\n"                 \
    "power,flop_pj,1\npower,byte_pj,50\n"                                                          \
    "power,exponent,1\npower,lag_ms,30\n"
#define HOST_UNKNOWN "host,refresh,40000,1000\nhost,reuse,30000,1000\nhost,select,50000,1000\n"

struct bench {
    struct system *system;
    struct executor_sim *sim;
    struct executor executor;
};

static struct bench bench_of(struct system *system, uint32_t n_replicas) {
    struct executor_sim *sim = executor_sim_open(system, n_replicas);
    return (struct bench){system, sim, executor_sim_interface(sim)};
}

static struct bench bench_open(const char *more, uint32_t n_replicas) {
    const char *const settings[] = {NULL};
    return bench_of(system_of_profile("dllm-serve", "h200", more, settings), n_replicas);
}

static void bench_close(struct bench *bench) {
    executor_sim_close(bench->sim);
    system_close(bench->system);
}

static struct completion submit(struct bench *bench, const struct submission *submission) {
    struct completion done;
    struct err err = {0};
    void *state = bench->executor.state;
    ck_assert_msg(bench->executor.submit(state, submission, &err) == 0, "%s", err.text);
    ck_assert_int_eq(bench->executor.wait(state, INT64_MAX, &done, &err), 0);
    ck_assert_int_eq(done.kind, COMPLETION_BATCH);
    return done;
}

static struct submission times(const struct step_shape *shape, uint32_t repeat) {
    return MAKE(struct submission, .repeat = repeat, .stop_ns = INT64_MAX,
                .step = {.shape = shape, .workspace_bytes = INT64_MAX});
}

static int64_t taken_ns(const struct completion *done) {
    return done->time_ns - done->start_ns;
}

static struct completion step(struct bench *bench, uint32_t replica,
                              const struct step_shape *shape) {
    struct submission submission = times(shape, 1);
    submission.replica = replica;
    return submit(bench, &submission);
}

/* So many requests of each kind, their contexts as long. */
static struct step_shape shape_of(int64_t n_refresh, int64_t n_reuse, int64_t n_select,
                                  uint32_t context) {
    const struct span refresh = {
        .phase = PHASE_REFRESH, .queries = 256, .first_queries = 256, .logit_rows = 32};
    struct span select = refresh;
    const struct span reuse = {.phase = PHASE_REUSE,
                               .queries = 32,
                               .first_queries = 32,
                               .context = context,
                               .logit_rows = 32};
    struct step_shape shape;
    select.select_rows = 224;
    select.pack_rows = 112;
    shape_clear(&shape);
    shape_add(shape.sym, &refresh, n_refresh);
    shape_add(shape.sym, &reuse, n_reuse);
    shape_add(shape.sym, &select, n_select);
    return shape;
}

static int64_t foreseen_ns(const struct bench *bench, const struct step_shape *shape) {
    double joules;
    return bench->executor.estimate_ns(bench->executor.state, 0, shape, INT64_MAX, &joules);
}

/* Its first two steps take so much more than its third, which takes what is foreseen. */
static void check_more(struct bench *bench, uint32_t replica, const struct step_shape *shape,
                       int64_t more_ns) {
    double joules;
    struct completion done[4];
    const int64_t foreseen_ns =
        bench->executor.estimate_ns(bench->executor.state, replica, shape, INT64_MAX, &joules);
    for (int i = 0; i < 4; i++) {
        done[i] = step(bench, replica, shape);
    }
    for (int i = 0; i < 4; i++) {
        const int64_t more = i < 2 ? more_ns : 0;
        ck_assert_int_eq(taken_ns(&done[i]), foreseen_ns + more);
        ck_assert_int_le(llabs(done[i].gpu_ns - done[3].gpu_ns - more), 1);
    }
}

TEST(a_shape_is_issued_twice_and_takes_more_while_it_is) {
    struct bench bench = bench_open(COOL HOST, 1);
    const struct step_shape reuse = shape_of(0, 4, 0, 300), refresh = shape_of(2, 0, 0, 0),
                            select = shape_of(0, 0, 3, 0), longer = shape_of(0, 4, 0, 900);
    check_more(&bench, 0, &reuse, REUSE_NS);
    check_more(&bench, 0, &refresh, REFRESH_NS);
    check_more(&bench, 0, &select, SELECT_NS);
    check_more(&bench, 0, &longer, 0); /* more context alone makes no other graph */
    check_more(&bench, 0, &reuse, 0);
    bench_close(&bench);
}

TEST(a_mixed_step_takes_the_largest_of_its_kinds) {
    struct bench bench = bench_open(COOL HOST, 1);
    const struct step_shape two = shape_of(1, 3, 0, 300), all = shape_of(1, 3, 1, 300),
                            others = shape_of(0, 3, 2, 300);
    check_more(&bench, 0, &two, REFRESH_NS);
    check_more(&bench, 0, &all, SELECT_NS);
    check_more(&bench, 0, &others, SELECT_NS);
    bench_close(&bench);
}

TEST(of_steps_back_to_back_the_first_two_are_issued) {
    struct bench bench = bench_open(COOL HOST, 1);
    const struct step_shape reuse = shape_of(0, 4, 0, 300), other = shape_of(0, 5, 0, 300);
    const struct submission five = times(&reuse, 5), three = times(&other, 3);
    const struct completion first = submit(&bench, &five), second = submit(&bench, &five);
    ck_assert_int_eq(taken_ns(&first), taken_ns(&second) + 2 * REUSE_NS);
    ck_assert_int_le(llabs(first.gpu_ns - second.gpu_ns - 2 * REUSE_NS / 5), 1);
    ck_assert_int_eq(first.host_ns, second.host_ns);
    /* One of them already was. */
    const struct completion one = step(&bench, 0, &other), rest = submit(&bench, &three),
                            later = submit(&bench, &three);
    ck_assert_int_eq(3 * (taken_ns(&one) - REUSE_NS), taken_ns(&later));
    ck_assert_int_eq(taken_ns(&rest), taken_ns(&later) + REUSE_NS);
    bench_close(&bench);
}

TEST(a_submission_that_stops_has_issued_no_more_than_ran) {
    struct bench bench = bench_open(COOL HOST, 1);
    const struct step_shape reuse = shape_of(0, 4, 0, 300);
    struct submission stopped = times(&reuse, 5);
    stopped.stop_ns = 1;
    const struct completion first = submit(&bench, &stopped);
    ck_assert_uint_eq(first.steps, 1);
    const struct completion second = step(&bench, 0, &reuse), third = step(&bench, 0, &reuse);
    ck_assert_int_eq(taken_ns(&first), taken_ns(&second));
    ck_assert_int_eq(taken_ns(&second), taken_ns(&third) + REUSE_NS);
    bench_close(&bench);
}

TEST(unrolled_steps_are_issued_whole_twice) {
    struct bench bench = bench_open(COOL HOST, 1);
    const struct step_shape reuse = shape_of(0, 4, 0, 300);
    struct submission unrolled = times(&reuse, 4);
    struct completion done[4];
    unrolled.unrolled = true;
    for (int i = 0; i < 4; i++) {
        done[i] = submit(&bench, &unrolled);
        ck_assert_uint_eq(done[i].steps, 4);
    }
    for (int i = 0; i < 3; i++) {
        const int64_t more = i < 2 ? REUSE_NS : 0;
        ck_assert_int_eq(taken_ns(&done[i]), taken_ns(&done[3]) + 4 * more);
        ck_assert_int_le(llabs(done[i].gpu_ns - done[3].gpu_ns - more), 1);
    }
    bench_close(&bench);
}

TEST(each_replica_issues_its_own) {
    struct bench bench = bench_open(COOL HOST, 2);
    const struct step_shape reuse = shape_of(0, 4, 0, 300);
    check_more(&bench, 0, &reuse, REUSE_NS);
    check_more(&bench, 1, &reuse, REUSE_NS);
    check_more(&bench, 0, &reuse, 0);
    bench_close(&bench);
}

TEST(without_their_row_or_without_a_clock_steps_take_the_same_from_the_first) {
    static const char *const profiles[] = {COOL HOST_UNKNOWN, HOST, HOST_UNKNOWN};
    for (size_t i = 0; i < sizeof profiles / sizeof *profiles; i++) {
        struct bench bench = bench_open(profiles[i], 1);
        const struct step_shape reuse = shape_of(0, 4, 0, 300), refresh = shape_of(2, 0, 0, 0);
        ck_assert(cost_knows_issued(bench.system->cost) == (i == 1));
        check_more(&bench, 0, &reuse, 0);
        check_more(&bench, 0, &refresh, 0);
        bench_close(&bench);
    }
}

TEST(only_the_kinds_that_are_known_take_more) {
    for (int known = 0; known < 3; known++) {
        char more[512];
        snprintf(more, sizeof more,
                 COOL "host,refresh,40000,1000%s\nhost,reuse,30000,1000%s\n"
                      "host,select,50000,1000%s\n",
                 known == 0 ? ",300000" : "", known == 1 ? ",300000" : ",0",
                 known == 2 ? ",300000" : "");
        struct bench bench = bench_open(more, 1);
        const struct step_shape shapes[] = {shape_of(2, 0, 0, 0), shape_of(0, 4, 0, 300),
                                            shape_of(0, 0, 2, 0)},
                                mixed = shape_of(1, 1, 1, 300);
        ck_assert(cost_knows_issued(bench.system->cost));
        for (int kind = 0; kind < 3; kind++) {
            check_more(&bench, 0, &shapes[kind], kind == known ? 300000 : 0);
        }
        check_more(&bench, 0, &mixed, 300000);
        bench_close(&bench);
    }
}

/* A second in which it does hardly anything, at this card's limit of 700 W. */
TEST(a_card_draws_less_while_operators_are_issued) {
    char more[512];
    struct completion done[2];
    for (int issues = 0; issues < 2; issues++) {
        double joules;
        snprintf(more, sizeof more, "%shost,refresh,40000,1000%s\n", rows,
                 issues ? ",1000000000" : "");
        struct bench bench = bench_open(more, 1);
        const struct step_shape shape = shape_of(40, 0, 0, 0);
        void *state = bench.executor.state;
        const int64_t rested_ns = bench.executor.estimate_ns(state, 0, &shape, INT64_MAX, &joules);
        done[issues] = step(&bench, 0, &shape);
        const int64_t after_ns = bench.executor.estimate_ns(state, 0, &shape, INT64_MAX, &joules);
        ck_assert(issues ? after_ns == rested_ns : after_ns > rested_ns);
        bench_close(&bench);
    }
    ck_assert_double_gt(done[0].joules / (double)taken_ns(&done[0]), 700e-9);
    ck_assert_double_lt(done[1].joules / (double)taken_ns(&done[1]), 300e-9);
}

/* A limit that the work meets within so many times what issuing takes, and the step itself, which
 * take as long: only what lasts shorter lets the clock fall. */
static bool is_slowed(double work_j, int64_t step_ns, double share) {
    char more[512];
    double joules, limit_w = 100 + work_j / ((double)step_ns * (1 + share) * 1e-9);
    snprintf(more, sizeof more,
             "power,idle_w,100\npower,limit_w,%.9g\npower,busy_w,200\npower,active_w,150\n"
             "power,flop_pj,1\npower,byte_pj,50\npower,exponent,1\npower,lag_ms,30\n"
             "host,refresh,40000,1000,%lld\n",
             limit_w, (long long)step_ns);
    struct bench bench = bench_open(more, 1);
    const struct step_shape shape = shape_of(40, 0, 0, 0);
    void *state = bench.executor.state;
    const int64_t rested_ns = bench.executor.estimate_ns(state, 0, &shape, INT64_MAX, &joules);
    (void)step(&bench, 0, &shape);
    const int64_t after_ns = bench.executor.estimate_ns(state, 0, &shape, INT64_MAX, &joules);
    bench_close(&bench);
    return after_ns > rested_ns;
}

TEST(what_issuing_takes_counts_whole_in_the_power_of_a_step) {
    struct bench cool = bench_open(COOL HOST_UNKNOWN, 1);
    const struct step_shape shape = shape_of(40, 0, 0, 0);
    const struct completion done = step(&cool, 0, &shape);
    const int64_t step_ns = taken_ns(&done);
    const double work_j = done.joules - 100e-9 * (double)step_ns;
    bench_close(&cool);
    ck_assert(!is_slowed(work_j, step_ns, 0.8));
    ck_assert(is_slowed(work_j, step_ns, 1.2));
}

/* The host has a word in the middle of a step that evicts. DC+ leaves positions out, too, but
 * nothing of it asks the host in the middle of a step. Where something goes the calibrated wait of
 * 475 us has what issuing takes, unless that is measured. */
TEST(steps_that_evict_are_never_captured) {
    static const char *const names[] = {"sdar", "dc+", "focus"};
    const char *const settings[] = {NULL}, *const by_hand[] = {"evict_wait_ns=500000", NULL};
    const struct span block = {.phase = PHASE_REUSE,
                               .queries = 4,
                               .first_queries = 4,
                               .context = 512,
                               .logit_rows = 4,
                               .exact = 1,
                               .kept_queries = 4,
                               .kept_keys = 516};
    struct step_shape shape, evicting;
    shape_clear(&shape);
    shape_add(shape.sym, &block, 8);
    evicting = shape;
    evicting.sym[SYM_KEPT_Q] /= 2;
    for (size_t i = 0; i < 3; i++) {
        const char *const profile = "h200/sdar-8b";
        struct bench knows = bench_of(system_of_profile(names[i], profile, COOL HOST, settings), 1);
        ck_assert(cost_knows_issued(knows.system->cost));
        check_more(&knows, 0, &shape, i < 2 ? REUSE_NS : 0);
        if (i == 2) {
            struct bench asks =
                bench_of(system_of_profile(names[i], profile, COOL HOST_UNKNOWN, settings), 1);
            struct bench is_told =
                bench_of(system_of_profile(names[i], profile, COOL HOST, by_hand), 1);
            const double factor = knows.system->runtime.host_factor;
            const int64_t all_ns = foreseen_ns(&asks, &shape);
            const int64_t rest_ns = foreseen_ns(&knows, &evicting) - REUSE_NS;
            check_more(&asks, 0, &evicting, 0);
            check_more(&knows, 0, &evicting, 0);
            ck_assert_int_eq(foreseen_ns(&knows, &shape), all_ns + REUSE_NS);
            ck_assert_int_eq(foreseen_ns(&is_told, &shape), all_ns + REUSE_NS);
            ck_assert_int_eq(foreseen_ns(&asks, &evicting), rest_ns + llround(475000 * factor));
            ck_assert_int_eq(foreseen_ns(&is_told, &evicting), rest_ns + llround(500000 * factor));
            bench_close(&asks);
            bench_close(&is_told);
        }
        bench_close(&knows);
    }
}

SUITE("power")
