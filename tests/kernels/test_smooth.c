/* Iteration smoothing: its schedule, its product in graph, plan and price, what it does to drawn
 * confidences, and who refuses it. */
#include <string.h>

#include "sim/decode/smooth.h"
#include "sim/step/builder.h"
#include "sim/system/system_step.h"
#include "tests/support/live.h"
#include "tests/support/says.h"

static const struct smoothing released = {.weight_init = 0.15,
                                          .weight_growth = 0.02,
                                          .weight_most = 0.3,
                                          .threshold_decay = 0.02,
                                          .gain = 1};

TEST(weight_grows_and_threshold_sinks_with_the_steps_of_a_request) {
    ck_assert_double_eq(smoothing_weight(&released, 0), 0); /* nothing was said yet */
    ck_assert_double_eq_tol(smoothing_weight(&released, 1), 0.15, 1e-12);
    ck_assert_double_eq_tol(smoothing_weight(&released, 8), 0.29, 1e-12);
    ck_assert_double_eq_tol(smoothing_weight(&released, 9), 0.3, 1e-12);
    ck_assert_double_eq_tol(smoothing_weight(&released, 1000000), 0.3, 1e-12);
    ck_assert_float_eq(smoothing_threshold(&released, 0, 0.8f), 1);
    ck_assert_float_eq_tol(smoothing_threshold(&released, 5, 0.8f), 0.9f, 1e-6f);
    ck_assert_float_eq(smoothing_threshold(&released, 11, 0.8f), 0.8f);
    ck_assert_float_eq(smoothing_threshold(&released, 1000000, 0.8f), 0.8f);
}

TEST(confidences_rise_in_order_and_stay_in_the_open_interval) {
    float confidence[] = {0, 1e-30f, 0.2f, 0.5f, 0.9f, 0.99999994f};
    float raised[6];
    memcpy(raised, confidence, sizeof raised);
    smoothing_raise(&released, 0, 6, raised);
    ck_assert_mem_eq(raised, confidence, sizeof raised);
    smoothing_raise(&released, 9, 6, raised);
    ck_assert_float_eq(raised[0], 0);
    ck_assert_float_eq_tol(raised[3], 1 / (1 + expf(-0.3f)), 1e-6f);
    for (int i = 1; i < 6; i++) {
        ck_assert(raised[i] >= confidence[i] && raised[i] > raised[i - 1] && raised[i] < 1);
    }
}

static const struct op *op_named(const struct graph *graph, const char *name) {
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        if (strcmp(graph->ops[i].name, name) == 0) {
            return &graph->ops[i];
        }
    }
    return NULL;
}

static struct system *dinfer(const char *const *settings) {
    return rig_system("dinfer", "h100", false, settings);
}
#define DINFER(...) dinfer((const char *const[]){__VA_ARGS__, NULL})

/* A reusing step of one request. */
static void price_step(const struct system *s, struct step_price *price, int64_t *peak_bytes) {
    const struct span span = {
        .phase = PHASE_REUSE, .queries = 96, .first_queries = 96, .context = 416, .logit_rows = 64};
    struct step_shape shape;
    struct placement placement;
    struct err err = {0};
    shape_clear(&shape);
    shape_add(shape.sym, &span, 1);
    ck_assert_int_eq(system_place(s, &shape, s->budget.activation_bytes, &placement, &err), 0);
    *peak_bytes = placement.peak_bytes;
    system_price(s, &shape, s->budget.activation_bytes, price);
}

TEST(the_product_with_the_table_of_embeddings_is_planned_and_priced) {
    struct system *plain = DINFER("iteration=plain"), *smooth = DINFER("iteration=smooth");
    const struct model *m = smooth->model;
    const struct op *product = op_named(&smooth->graph, "embedding of probabilities");
    ck_assert_ptr_null(op_named(&plain->graph, "embedding of probabilities"));
    ck_assert_ptr_nonnull(product);
    ck_assert_int_eq(product->n, m->hidden);
    ck_assert_int_eq(product->k, m->vocab);
    ck_assert_int_eq(product->weight, WEIGHT_EMBEDDING);
    ck_assert_int_eq(product->rows, SYM_LOGIT_ROWS);
    struct step_price prices[2];
    int64_t peaks[2];
    price_step(plain, &prices[0], &peaks[0]);
    price_step(smooth, &prices[1], &peaks[1]);
    /* It reads the table once, at 2 to 3.35 TB/s, and little besides. */
    double more_ns = prices[1].device_ns - prices[0].device_ns;
    double table_bytes = 2.0 * (double)(product->n * product->k);
    ck_assert_double_ge(more_ns, table_bytes / 3350);
    ck_assert_double_le(more_ns, 1.2 * table_bytes / 2000 + 30e3);
    /* Probabilities live beside the logits they are made from. */
    ck_assert_int_ge(peaks[1], 2 * 64 * 2LL * m->vocab);
    ck_assert_int_le(peaks[1], peaks[0] + 64 * 2LL * m->vocab + (1 << 20));
    system_close(plain);
    system_close(smooth);
}

static struct loop_result run(const char *const *settings) {
    static const struct arrival alone = {.prompt_tokens = 100, .output_tokens = 256};
    struct system *system = dinfer(settings);
    struct list_source list = {&alone, 1, 0};
    struct loop_result result =
        rig_run(system, (struct arrival_source){.state = &list, .next = list_next}, NULL);
    ck_assert_uint_eq(result.completed, 1);
    system_close(system);
    return result;
}
#define RUN(...)                                                                                   \
    run((const char *const[]){"decoder=threshold", "decoder.threshold=0.8", __VA_ARGS__, NULL})

TEST(without_effect_it_takes_the_same_steps_and_more_time) {
    struct loop_result plain = RUN("iteration=plain"),
                       idle = RUN("iteration=smooth", "iteration.gain=0",
                                  "iteration.threshold_decay=1"),
                       raised = RUN("iteration=smooth", "iteration.threshold_decay=1"),
                       smooth = RUN("iteration=smooth"),
                       never = RUN("iteration=smooth", "iteration.threshold_decay=0");
    /* The first step alone is held to a threshold of 1. */
    ck_assert_uint_ge(idle.steps, plain.steps);
    ck_assert_uint_le(idle.steps, plain.steps + 4);
    ck_assert_int_gt(idle.end_ns, plain.end_ns);
    ck_assert_uint_lt(raised.steps, idle.steps);
    ck_assert_uint_ge(smooth.steps, raised.steps);
    ck_assert_uint_eq(never.steps, 256); /* the most confident one a step */
}

/* Where everybody passes at once, the very first step, held to a threshold of 1, commits one token:
 * four blocks take one step more. */
TEST(the_first_step_of_a_request_counts_as_none_before) {
    struct loop_result plain =
                           run((const char *const[]){"decoder=threshold", "decoder.threshold=1e-9",
                                                     "cache=none", "unroll.maximum=1", NULL}),
                       idle = run((const char *const[]){
                           "decoder=threshold", "decoder.threshold=1e-9", "cache=none",
                           "unroll.maximum=1", "iteration=smooth", "iteration.gain=0",
                           "iteration.threshold_decay=1", NULL});
    ck_assert_uint_eq(plain.steps, 4);
    ck_assert_uint_eq(idle.steps, 5);
}

static void assert_refused(const char *name, const char *key, const char *value,
                           const char *sentence) {
    struct setting settings[2] = {{.key = "iteration", .value = "smooth", .place = "test"},
                                  {.place = "test"}};
    snprintf(settings[1].key, sizeof settings[1].key, "%s", key);
    snprintf(settings[1].value, sizeof settings[1].value, "%s", value);
    struct system_request request = {
        .system = name, .gpu = "h100", .overrides = settings, .n_overrides = 2, .roofline = true};
    struct err err = {0};
    struct system *system = NULL;
    ck_assert_int_eq(system_open(&request, &system, &err), ERR_USAGE);
    ASSERT_SAYS(err.text, sentence);
}

TEST(what_says_nothing_of_masked_positions_is_refused) {
    assert_refused("dinfer", "runtime.fused_head", "on",
                   "iteration = smooth reads what planned steps say of masked positions: set "
                   "runtime.fused_head = off");
    assert_refused("native", "allocator", "torch",
                   "iteration = smooth reads what planned steps say of masked positions: set "
                   "allocator = planned");
    assert_refused("vllm-ar", "max_requests", "1",
                   "iteration = smooth reads what planned steps say of masked positions: an "
                   "autoregressive model has none");
}

SUITE("smooth")
