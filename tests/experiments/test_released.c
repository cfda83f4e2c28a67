/* Steps of released LLaDA-8B programs on one H200, priced beside what was measured
 * (experiments/study/reference/h200_released.csv, rows of 2026-11-22 and, of dLLM-Serve,
 * 2026-11-28; prompt 256, output 256, block 32).
 *
 * Taken from these rows: rates of eager passes from the steps of 16 requests (sim/step/eager.c),
 * the ratio of products and the synchronisations from the dual cache's reuse of 32, launches from
 * steps of one request and the short kernels' time from the dual cache's reuse of 1 and 64
 * (sim/price/runtime.c). All others are predictions. Device times are compared; times as a clock
 * reads them where the device bounds a step, for the host of these runs was 1.8 times slower than
 * the reference host. */
#include "tests/support/rig.h"

static struct span canvas(uint32_t rows) {
    return (struct span){
        .phase = PHASE_REFRESH, .queries = rows, .first_queries = rows, .logit_rows = rows};
}

static struct span part(uint32_t queries, uint32_t context) {
    return (struct span){.phase = PHASE_REUSE,
                         .queries = queries,
                         .first_queries = queries,
                         .context = context,
                         .logit_rows = queries};
}

/* dLLM-Cache: layer 0 and the head over the canvas of 512, sampling over the output. */
static struct span features(uint32_t queries, uint32_t value_rows) {
    return (struct span){.phase = value_rows > 0 && queries < 256 ? PHASE_REUSE : PHASE_REFRESH,
                         .queries = queries,
                         .first_queries = 512,
                         .context = 512 - queries,
                         .logit_rows = 512,
                         .sampled_rows = 256,
                         .value_rows = value_rows};
}

static struct span selecting(void) {
    struct span span = canvas(512);
    span.select_rows = 480;
    span.pack_rows = 240;
    return span;
}

static struct step_price price_of(struct system *system, struct span span, uint32_t n) {
    return rig_price(system, &span, &n, 1);
}

struct row {
    uint32_t batch;
    struct span span;
    const char *step;
    double device_ms; /* 0: not profiled */
    double wall_ms;   /* 0: bound by the host, which is another row's matter */
};

static void compare(const char *name, const char *const *settings, const struct row *rows,
                    size_t n) {
    struct system *system = rig_system(name, "h200", false, settings);
    for (size_t i = 0; i < n; i++) {
        struct step_price price = price_of(system, rows[i].span, rows[i].batch);
        double device_ms = price.device_ns * 1e-6, wall_ms = price.wall_ns * 1e-6;
        if (getenv("UNMASK_SHOW") != NULL) {
            printf("%s, %s of %u: device %.2f of %.2f ms, wall %.2f of %.2f ms\n", name,
                   rows[i].step, rows[i].batch, device_ms, rows[i].device_ms, wall_ms,
                   rows[i].wall_ms);
        }
        /* Few rows: our products of 32 to 256 rows are faster than cuBLAS's or slower. */
        double tolerance = rows[i].batch == 1 ? 0.15 : 0.1;
        if (rows[i].device_ms > 0) {
            ck_assert_msg(fabs(device_ms / rows[i].device_ms - 1) <= tolerance,
                          "%s, %s of %u requests: %.2f ms on the device, measured %.2f", name,
                          rows[i].step, rows[i].batch, device_ms, rows[i].device_ms);
        }
        if (rows[i].wall_ms > 0) {
            ck_assert_msg(fabs(wall_ms / rows[i].wall_ms - 1) <= tolerance,
                          "%s, %s of %u requests: %.2f ms, measured %.2f", name, rows[i].step,
                          rows[i].batch, wall_ms, rows[i].wall_ms);
        }
    }
    system_close(system);
}
#define COMPARE(name, rows) compare(name, NULL, rows, sizeof(rows) / sizeof((rows)[0]))

TEST(fast_dllm_with_the_dual_cache) {
    const struct span full = canvas(512), block = part(32, 480);
    const struct row rows[] = {
        {1, full, "refresh", 18.144, 0},         {4, full, "refresh", 65.257, 68.641},
        {8, full, "refresh", 130.075, 134.475},  {16, full, "refresh", 263.211, 265.947},
        {32, full, "refresh", 535.822, 536.868}, {64, full, "refresh", 1110.476, 1113.760},
        {1, block, "reuse", 9.810, 0},           {4, block, "reuse", 14.904, 0},
        {8, block, "reuse", 23.295, 0},          {16, block, "reuse", 41.018, 0},
        {32, block, "reuse", 76.882, 88.478},    {64, block, "reuse", 151.157, 162.861},
    };
    COMPARE("fast-dllm-published", rows);
}

TEST(fast_dllm_with_the_prefix_cache) {
    const struct row rows[] = {
        {1, canvas(512), "refresh", 18.101, 0},
        {1, part(256, 256), "reuse 256", 12.622, 0},
        {1, part(128, 384), "reuse 128", 10.348, 0},
        {1, part(32, 480), "reuse 32", 9.875, 0},
        {4, canvas(512), "refresh", 65.500, 70.384},
        {4, part(256, 256), "reuse 256", 38.189, 0},
        {4, part(128, 384), "reuse 128", 25.066, 0},
        {4, part(32, 480), "reuse 32", 17.054, 0},
        {16, canvas(512), "refresh", 266.229, 269.768},
        {16, part(256, 256), "reuse 256", 149.453, 152.391},
        {16, part(192, 320), "reuse 192", 0, 127.759},
        {16, part(128, 384), "reuse 128", 91.584, 95.886},
        {16, part(64, 448), "reuse 64", 0, 67.845},
        {16, part(32, 480), "reuse 32", 50.975, 0},
    };
    COMPARE("fast-dllm-prefix-published", rows);
}

TEST(llada_without_a_cache) {
    const struct row rows[] = {{1, canvas(512), "full", 18.185, 0},
                               {4, canvas(512), "full", 67.290, 70.314}};
    COMPARE("vanilla-published", rows);
}

TEST(dllm_cache) {
    struct span both = features(512, 0);
    both.context = 0;
    const struct row rows[] = {
        {1, both, "both", 17.429, 0},
        {1, features(256, 0), "output", 12.550, 0},
        {1, features(320, 512), "prompt", 19.222, 0},
        {1, features(64, 256), "reuse", 13.133, 0},
        {4, both, "both", 62.696, 67.063},
        {4, features(256, 0), "output", 41.227, 44.113},
        {4, features(320, 512), "prompt", 55.928, 0},
        {4, features(64, 256), "reuse", 31.686, 0},
        {16, both, "both", 253.660, 256.919},
        {16, features(256, 0), "output", 161.312, 165.180},
        {16, features(320, 512), "prompt", 211.736, 0},
        {16, features(64, 256), "reuse", 109.537, 0},
    };
    COMPARE("dllm-cache-published", rows);
}

TEST(sparse_dllm) {
    const struct row rows[] = {{1, canvas(512), "full", 17.439, 0},
                               {1, selecting(), "full and select", 20.169, 0},
                               {1, part(32, 240), "reuse", 8.304, 0}};
    COMPARE("sparse-dllm-published", rows);
}

/* Measured on two other machines than its terms (experiments/study/reference/h200_released.csv).
 * Their hosts were slow and unsteady, so that walls are another test's matter. The short kernels of
 * a selection are taken from 32 requests at 32 layers; all others are predictions. */
TEST(dllm_serve) {
    const struct span block = part(32, 240);
    struct span full = canvas(512), select = selecting();
    full.logit_rows = select.logit_rows = 32;
    const struct row rows[] = {
        {1, block, "reuse", 7.234, 0},       {16, block, "reuse", 31.176, 0},
        {64, block, "reuse", 119.115, 0},    {128, block, "reuse", 237.120, 0},
        {1, full, "state 0", 13.577, 0},     {16, full, "state 0", 187.779, 0},
        {32, full, "state 0", 378.942, 0},   {1, select, "state 1", 18.963, 0},
        {16, select, "state 1", 273.429, 0}, {32, select, "state 1", 547.901, 0}};
    const struct row layers[] = {{1, block, "8 layers, reuse", 2.200, 0},
                                 {16, block, "8 layers, reuse", 9.161, 0},
                                 {64, block, "8 layers, reuse", 34.972, 0},
                                 {128, block, "8 layers, reuse", 69.400, 0},
                                 {1, full, "8 layers, state 0", 3.765, 0},
                                 {16, full, "8 layers, state 0", 47.967, 0},
                                 {32, full, "8 layers, state 0", 96.516, 0},
                                 {1, select, "8 layers, state 1", 5.130, 0},
                                 {16, select, "8 layers, state 1", 69.730, 0},
                                 {32, select, "8 layers, state 1", 139.567, 0}};
    COMPARE("dllm-serve-published", rows);
    const char *const eight[] = {"layers=8", NULL};
    compare("dllm-serve-published", eight, layers, sizeof layers / sizeof layers[0]);
}

/* A step of dLLM-Serve: requests in state 0, selecting and reusing. */
struct mix {
    uint32_t full, select, reuse;
    double wall_ms;
};

static void compare_walls(const char *const *settings, const struct mix *rows, size_t n,
                          double tolerance) {
    const struct span block = part(32, 240);
    struct span full = canvas(512), select = selecting();
    full.logit_rows = select.logit_rows = 32;
    struct system *system = rig_system("dllm-serve-published", "h200", false, settings);
    for (size_t i = 0; i < n; i++) {
        const struct span *spans[] = {&full, &select, &block};
        const uint32_t counts[] = {rows[i].full, rows[i].select, rows[i].reuse};
        struct step_shape shape;
        struct step_price price;
        shape_clear(&shape);
        for (int k = 0; k < 3; k++) {
            for (uint32_t c = 0; c < counts[k]; c++) {
                shape_add(shape.sym, spans[k], 1);
            }
        }
        cost_price(system->cost, &shape, system->chunks.bound, &price);
        const double wall_ms = price.wall_ns * 1e-6;
        if (getenv("UNMASK_SHOW") != NULL) {
            printf("%u + %u + %u: %.1f of %.1f ms, %+.1f %%\n", counts[0], counts[1], counts[2],
                   wall_ms, rows[i].wall_ms, 100 * (wall_ms / rows[i].wall_ms - 1));
        }
        ck_assert_msg(fabs(wall_ms / rows[i].wall_ms - 1) <= tolerance,
                      "%u + %u + %u: %.1f ms, measured %.1f", counts[0], counts[1], counts[2],
                      wall_ms, rows[i].wall_ms);
    }
    system_close(system);
}

/* The host whose time its terms are, 2026-11-21: fitted to 1 and 64 requests that reuse, 32 in
 * state 0 and 32 that select; the other four are predictions. */
TEST(dllm_serve_beside_the_reference_host) {
    const struct mix rows[] = {{0, 0, 1, 33.0},  {0, 0, 64, 517.5}, {1, 0, 0, 26.2},
                               {32, 0, 0, 446},  {0, 1, 0, 48.6},   {0, 32, 0, 1016},
                               {30, 0, 32, 652}, {0, 30, 32, 1211}};
    compare_walls(NULL, rows, sizeof rows / sizeof rows[0], 0.08);
}

/* Another host, 2026-11-28b: one factor for twelve steps. It drifts: the same step took up to 1.6
 * times as long from one round to the next. */
TEST(dllm_serve_beside_a_host_half_as_quick) {
    const char *const settings[] = {"host.factor=2.0", NULL};
    const struct mix rows[] = {{0, 0, 1, 66.8},   {0, 0, 16, 281.4},  {0, 0, 64, 961.8},
                               {0, 0, 128, 1923}, {1, 0, 0, 49.4},    {0, 1, 0, 104.6},
                               {16, 0, 0, 253.3}, {0, 16, 0, 927.8},  {32, 0, 0, 528.3},
                               {0, 32, 0, 1720},  {30, 0, 32, 981.4}, {0, 30, 32, 1967}};
    compare_walls(settings, rows, sizeof rows / sizeof rows[0], 0.15);
}

/* Measured after the model stood, and not looked at before: a prompt of 512, batches of 8. */
TEST(steps_that_nothing_was_taken_from) {
    const struct row dual[] = {{16, canvas(768), "refresh", 404.313, 407.938},
                               {16, part(32, 736), "reuse", 51.986, 0},
                               {32, canvas(768), "refresh", 833.128, 840.097},
                               {32, part(32, 736), "reuse", 99.213, 110.071}};
    const struct row prefix[] = {{8, canvas(512), "refresh", 132.833, 137.457},
                                 {8, part(256, 256), "reuse 256", 75.175, 80.363},
                                 {8, part(192, 320), "reuse 192", 0, 66.688},
                                 {8, part(128, 384), "reuse 128", 46.588, 51.542},
                                 {8, part(32, 480), "reuse 32", 27.954, 0}};
    const struct row vanilla[] = {{8, canvas(512), "full", 134.917, 139.614}};
    COMPARE("fast-dllm-published", dual);
    COMPARE("fast-dllm-prefix-published", prefix);
    COMPARE("vanilla-published", vanilla);
}

/* Between refreshes: queries and keys of the rows that moved, values of the output alone; layer 0
 * and the head over the canvas. */
TEST(dllm_cache_projects_values_once) {
    struct system *system = rig_system("dllm-cache", "h200", true, NULL);
    const struct model *model = system->model;
    struct span span = features(64, 256);
    struct step_shape shape;
    shape_clear(&shape);
    shape_add(shape.sym, &span, 1);
    double flops, bytes;
    cost_work(system->cost, shape.sym, 1, &flops, &bytes);
    double layer = model_flops_per_token(model) / 32, value = 2.0 * 4096 * 4096;
    double products = 512 * layer + 31 * (64 * (layer - value) + 256 * value) +
                      512 * model_head_flops_per_row(model);
    double attention = 4.0 * 4096 * (512.0 * 512 + 31.0 * 64 * 512);
    ck_assert_double_eq_tol(flops / (products + attention), 1, 1e-4);
    system_close(system);
}

/* Its logits are those of the canvas; a softmax in bf16 looks at the output's. */
TEST(rows_that_are_not_sampled_cost_the_head_alone) {
    struct system *system = rig_system("dllm-cache-published", "h200", false, NULL);
    struct step_shape shape;
    struct op_price ops[GRAPH_MAX_OPS];
    struct span span = features(64, 256);
    shape_clear(&shape);
    shape_add(shape.sym, &span, 1);
    cost_explain(system->cost, &shape, system->chunks.bound, ops);
    double vocab = system->model->vocab, softmax = 0, head = 0;
    for (uint32_t i = 0; i < system->graph.n_ops; i++) {
        softmax += system->graph.ops[i].kind == OP_SOFTMAX ? ops[i].bytes : 0;
        head += strcmp(system->graph.ops[i].name, "output head") == 0 ? ops[i].flops : 0;
    }
    ck_assert_double_eq_tol(softmax, 256 * vocab * 4, 1);
    ck_assert_double_eq_tol(head, 512 * vocab * 4096 * 2, 1);
    system_close(system);
}

SUITE("released")
