/* Why a price is what it is: the steps of the ladder, one by one. Run from the repository root. */
#include <math.h>
#include <string.h>

#include "sim/price/profile/profile.h"
#include "sim/price/why.h"
#include "sim/system/system_step.h"
#include "tests/support/rig.h"
#include "tests/support/scratch.h"

/* A step of some spans, in chunks of this many rows (0: whole). */
struct case_step {
    struct span span;
    uint32_t n;
};

static const struct case_step block = {
    {.phase = PHASE_REUSE, .queries = 32, .context = 480, .logit_rows = 32}, 3};
static const struct case_step gathered = {
    {.phase = PHASE_REUSE, .queries = 32, .context = 262, .logit_rows = 32}, 4};
static const struct case_step canvas = {
    {.phase = PHASE_REFRESH, .queries = 1124, .logit_rows = 1124}, 2};
static const struct case_step single = {
    {.phase = PHASE_REUSE, .queries = 1, .context = 900, .logit_rows = 1}, 64};
static const struct case_step prefill = {{.phase = PHASE_PREFILL, .queries = 777, .logit_rows = 1},
                                         1};

static struct step_shape shape_of(const struct case_step *steps, size_t n_steps) {
    static const struct span *spans[256];
    static struct span all[256];
    struct step_shape shape;
    shape_clear(&shape);
    shape.spans = spans;
    for (size_t i = 0; i < n_steps; i++) {
        struct span span = steps[i].span;
        span.first_queries = span.queries;
        span.kept_queries = span.queries > 1 ? span.queries - 1 : 1;
        span.kept_keys = span.queries + span.context;
        for (uint32_t j = 0; j < steps[i].n; j++) {
            all[shape.n_spans] = span;
            spans[shape.n_spans] = &all[shape.n_spans];
            shape.n_spans++;
            shape_add(shape.sym, &span, 1);
        }
    }
    return shape;
}

/* Every rung begins where the one before it ended, changes something and says what it rests on. */
static void judge_chain(const struct why *why, const char *title, double first_ns) {
    double so_far = first_ns;
    for (uint32_t i = 0; i < why->n; i++) {
        const struct why_rung *rung = &why->rungs[i];
        ck_assert_msg(rung->before_ns == so_far, "%s: %s begins at %.17g, not at %.17g", title,
                      rung->name, rung->before_ns, so_far);
        ck_assert_msg(rung->after_ns != rung->before_ns, "%s: %s does nothing", title, rung->name);
        ck_assert_msg(rung->setting != NULL || rung->from.source[0] != '\0',
                      "%s: %s rests on nothing", title, rung->name);
        ck_assert_str_ne(rung->says, "");
        so_far = rung->after_ns;
    }
    ck_assert_double_eq(so_far, why->ns);
}

static const struct why_rung *rung_of(const struct why *why, const char *name) {
    for (uint32_t i = 0; i < why->n; i++) {
        if (strcmp(why->rungs[i].name, name) == 0) {
            return &why->rungs[i];
        }
    }
    return NULL;
}

/* All operators and the step: their rungs end at what is priced. Which operator has `step`, NULL:
 * none. */
static struct why explain_all(const struct system *system, const struct step_shape *shape,
                              struct chunk_rows chunks, const char *op_name, const char *step) {
    struct op_price prices[GRAPH_MAX_OPS];
    struct why why, found = {.n = 0};
    struct step_price price;
    double sum_ns = 0;
    cost_explain(system->cost, shape, chunks, prices);
    for (uint32_t i = 0; i < system->graph.n_ops; i++) {
        const struct op *op = &system->graph.ops[i];
        why_operator(system->cost, i, shape, chunks, &why);
        ck_assert_double_eq(why.ns, prices[i].ns);
        judge_chain(&why, op->name, 0);
        const struct why_rung *wait = rung_of(&why, "wait for the host");
        sum_ns += wait != NULL ? wait->before_ns : prices[i].ns; /* a step waits once */
        if (rung_of(&why, step) != NULL && (op_name == NULL || strcmp(op_name, op->name) == 0)) {
            found = why;
        }
    }
    cost_price(system->cost, shape, chunks, &price);
    cost_add_plans(system->cost, 3, &price);
    why_step(system->cost, shape, chunks, &price, &why);
    (void)cost_settle(system->cost, shape, &price);
    ck_assert_double_eq(why.ns, price.wall_ns);
    const double first_ns = why.n > 0 ? why.rungs[0].before_ns : why.ns;
    judge_chain(&why, "the step", first_ns);
    ck_assert_double_eq_tol(first_ns, sum_ns, 1e-9 * sum_ns);
    return rung_of(&why, step) != NULL ? why : found;
}

/* Where a step shows, and by how much it changes the price: `factor` 0: by whatever. */
static const struct {
    const char *step, *op, *system, *model, *gpu, *setting;
    const struct case_step *shapes[2];
    int64_t chunk;
    double factor;
} cases[] = {
    {"look-up", "down", "dllm-serve", "llada-8b", "h200", NULL, {&block}, 0, 0},
    {"one call with prefills",
     NULL,
     "vllm-ar",
     NULL,
     "rtx-pro-6000",
     NULL,
     {&single, &prefill},
     0,
     0},
    {"product ratio",
     "qkv projection",
     "fast-dllm-published",
     "llada-8b",
     "h200",
     NULL,
     {&canvas},
     0,
     0.86},
    {"product ratio",
     "qkv projection",
     "dllm-serve",
     "llada-8b",
     "l40s",
     "runtime.product_ratio=1.5",
     {&canvas},
     0,
     1.5},
    {"activation", "gate and up", "dllm-serve", "llada-8b", "a100-80g", NULL, {&block}, 0, 0},
    {"mixture's part",
     "expert gate and up",
     "dllm-serve",
     "llada-moe",
     "h100",
     NULL,
     {&block},
     0,
     2.0 / 3},
    {"mixture's part",
     "expert down",
     "dllm-serve",
     "llada-moe",
     "h100",
     NULL,
     {&block},
     0,
     1.0 / 3},
    {"eager passes", "ffn norm", "fast-dllm-published", "llada-8b", "h200", NULL, {&block}, 0, 0},
    {"eager rate", "ffn norm", "fast-dllm-published", "llada-8b", "h200", NULL, {&block}, 0, 0},
    {"double precision", NULL, "native-float64", "llada-8b", "rtx4090", NULL, {&canvas}, 0, 0},
    {"in-step correction", "down", "dllm-serve", "llada-8b", "h200", NULL, {&block}, 0, 0},
    {"corrected experts", NULL, "dllm-serve", "llada-moe", "h200", NULL, {&block}, 0, 0},
    {"floor",
     "kv gather",
     "dllm-serve-published",
     "llada-8b",
     "rtx-pro-6000",
     NULL,
     {&gathered},
     0,
     0},
    {"repetitions", "down", "dllm-serve", "llada-8b", "h200", NULL, {&block}, 0, 32},
    {"chunks", "down", "mosaic", "llada-8b", "a100-80g", NULL, {&canvas}, 500, 0},
    {"wait for the host", NULL, "focus", NULL, "a100-80g", NULL, {&block}, 0, 0},
    {"launches beyond the graph",
     NULL,
     "fast-dllm-published",
     "llada-8b",
     "h200",
     NULL,
     {&block},
     0,
     0},
    {"waits for the host", NULL, "focus", NULL, "h100", NULL, {&block}, 0, 0},
    {"host", NULL, "dllm-serve", "llada-8b", "h200", NULL, {&block}, 0, 0},
    {"plans", NULL, "mosaic-published", NULL, "a100-80g", NULL, {&canvas}, 0, 0},
    {"visit", NULL, "sglang-published", NULL, "h100", NULL, {&block}, 0, 0},
    {"clock", NULL, "dllm-serve", "llada-8b", "h200", NULL, {&canvas}, 0, 0},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

TEST(every_step_of_the_ladder_shows_where_it_applies) {
    for (size_t i = 0; i < N_CASES; i++) {
        const char *const settings[] = {cases[i].setting, NULL};
        struct system *system =
            rig_system_of(cases[i].system, cases[i].model, cases[i].gpu, false, settings);
        struct case_step steps[2] = {*cases[i].shapes[0]};
        size_t n = 1;
        if (cases[i].shapes[1] != NULL) {
            steps[n++] = *cases[i].shapes[1];
        }
        const struct step_shape shape = shape_of(steps, n);
        const int64_t chunk = cases[i].chunk;
        const struct why why = explain_all(
            system, &shape, (struct chunk_rows){{chunk, chunk, chunk}}, cases[i].op, cases[i].step);
        const struct why_rung *rung = rung_of(&why, cases[i].step);
        ck_assert_msg(rung != NULL, "%s on %s: no '%s'", cases[i].system, cases[i].gpu,
                      cases[i].step);
        if (cases[i].factor > 0) {
            ck_assert_double_eq_tol(rung->after_ns / rung->before_ns, cases[i].factor, 1e-12);
        }
        system_close(system);
    }
}

/* A price of imported rows that the floor raised is imported still, and says that it was raised;
 * other outputs call it by what it is raised to. */
TEST(a_price_that_the_floor_raised_keeps_its_kind) {
    struct system *system =
        rig_system_of("dllm-serve-published", "llada-8b", "rtx-pro-6000", false, NULL);
    const struct step_shape shape = shape_of(&gathered, 1);
    struct op_price prices[GRAPH_MAX_OPS];
    size_t n_raised = 0;
    cost_explain(system->cost, &shape, (struct chunk_rows){{0}}, prices);
    for (uint32_t i = 0; i < system->graph.n_ops; i++) {
        struct why why;
        why_operator(system->cost, i, &shape, (struct chunk_rows){{0}}, &why);
        if (why.is_raised) {
            ck_assert_int_eq(why.kind, PROVENANCE_IMPORTED);
            ck_assert_int_eq(prices[i].kind, PROVENANCE_ROOFLINE);
            ck_assert_int_eq(rung_of(&why, "floor")->from.kind, PROVENANCE_ROOFLINE);
            n_raised++;
        }
    }
    ck_assert_uint_gt(n_raised, 0);
    system_close(system);
}

/* Over many systems: rungs begin where the one before ended and end at the price. */
TEST(every_price_is_explained_to_the_last_rung) {
    static const char *const systems[] = {
        "vanilla-published", "dllm-cache", "mosaic", "sdar", "focus", "sglang", "vllm-ar"};
    static const char *const gpus[] = {"h100", "a100-40g", "rtx3090", "b200", "gb200"};
    const struct case_step *const steps[] = {&block, &canvas, &single, &prefill};
    for (size_t s = 0; s < sizeof systems / sizeof systems[0]; s++) {
        for (size_t g = 0; g < sizeof gpus / sizeof gpus[0]; g++) {
            struct system *system = rig_system_of(systems[s], NULL, gpus[g], false, NULL);
            for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
                const struct step_shape shape = shape_of(steps[i], 1);
                (void)explain_all(system, &shape, (struct chunk_rows){{0}}, NULL, "");
                (void)explain_all(system, &shape, (struct chunk_rows){{300, 200, 100}}, NULL, "");
            }
            system_close(system);
        }
    }
}

/* What the H100's calibration would say with rows of these operators too: the text, to be freed. */
static char *with_rows(const char *rows) {
    char *shipped = scratch_read("kernels/profiles/h100/llada-8b.csv");
    char *counted = strstr(shipped, "# rows:");
    ck_assert_ptr_nonnull(counted);
    char *rest = strchr(counted, '\n') + 1;
    const size_t size = strlen(shipped) + strlen(rows) + 1;
    char *text = malloc(size);
    ck_assert_ptr_nonnull(text);
    snprintf(text, size, "%.*s%s%s", (int)(counted - shipped), shipped, rest, rows);
    free(shipped);
    return text;
}

static struct why why_of(const struct system *system, const struct step_shape *shape,
                         const char *name) {
    struct why why = {.n = 0};
    for (uint32_t i = 0; i < system->graph.n_ops; i++) {
        if (strcmp(system->graph.ops[i].name, name) == 0) {
            why_operator(system->cost, i, shape, (struct chunk_rows){{0}}, &why);
        }
    }
    ck_assert_msg(why.n > 0, "%s", name);
    return why;
}

/* A row of just this size that its import raised is named with what was timed, one that it did not
 * is not: SDAR-1.7B's smaller products of four rows on the L40S, whose six weights fit into its
 * cache. */
TEST(a_row_that_its_import_raised_says_what_was_timed) {
    static const struct span four = {
        .phase = PHASE_REUSE, .queries = 4, .context = 300, .logit_rows = 4};
    struct system *system = rig_system_of("sdar", "sdar-1.7b", "l40s", false, NULL);
    struct step_shape shape;
    shape_clear(&shape);
    shape_add(shape.sym, &four, 1);
    struct why why = why_of(system, &shape, "output projection");
    ck_assert_str_eq(rung_of(&why, "look-up")->from.source,
                     "kernels/profiles/l40s.csv: gemm,4,2048,2048 (extrapolated: raised from "
                     "9.33 us of a warm cache)");
    why = why_of(system, &shape, "down");
    ck_assert_str_eq(rung_of(&why, "look-up")->from.source,
                     "kernels/profiles/l40s.csv: gemm,4,2048,6144 (exact)");
    system_close(system);
}

/* An operator of its own kernel: the rows that price it where the profile has some and where it has
 * none, and the time that those say. */
static const struct {
    const char *system, *op, *own, *without;
    double us;
} of_own[] = {
    {"dllm-cache", "value similarity", "pass,similarity,4096,512", "h100's", 50},
    {"dllm-cache", "pick rows", "pass,pick,4096,256", "h100's", 60},
    {"dllm-cache", "attention store", "pass,keep_feature,4096,256", "h100's", 70},
    {"dllm-cache", "kept ffn add", "pass,add_feature,4096,2048", "pass,add,4096,2048", 80},
    {"sparsed", "score and choose blocks", "pattern, 2 sequences of 1024 queries",
     "attention_full, 2 sequences of 1024 queries", 900},
    {"sparsed", "pattern attention", "attention_pattern, 2 sequences of 1024 queries",
     "attention_full, 2 sequences of 1024 queries", 400},
};

TEST(kernels_of_features_and_patterns_are_priced_by_rows_of_their_own_where_there_are_any) {
    static const struct span of_features[] = {{.phase = PHASE_REUSE,
                                               .queries = 128,
                                               .first_queries = 1024,
                                               .context = 896,
                                               .logit_rows = 1024,
                                               .value_rows = 256}},
                             of_patterns[] = {{.phase = PHASE_REFRESH,
                                               .queries = 1024,
                                               .first_queries = 1024,
                                               .logit_rows = 32,
                                               .attended_keys = 512},
                                              {.phase = PHASE_REFRESH,
                                               .queries = 1024,
                                               .first_queries = 1024,
                                               .logit_rows = 32,
                                               .attended_keys = 1536}};
    char *text = with_rows("pass,similarity,4096,512,50\npass,pick,4096,256,60\n"
                           "pass,keep_feature,4096,256,70\npass,add_feature,4096,2048,80\n"
                           "pattern,2,1024,32,32,128,900\n"
                           "attention_pattern,2,1024,512,32,32,128,400\n");
    const char *path = scratch_write("with.csv", text);
    struct err err = {0};
    free(text);
    for (size_t i = 0; i < sizeof of_own / sizeof of_own[0]; i++) {
        const bool is_pattern = strcmp(of_own[i].system, "sparsed") == 0;
        const struct span *spans = is_pattern ? of_patterns : of_features;
        struct step_shape shape;
        shape_clear(&shape);
        shape_add(shape.sym, &spans[0], 2);
        if (is_pattern) {
            shape_add(shape.sym, &spans[1], 2);
        }
        for (int has = 0; has < 2; has++) {
            const struct system_request request = MAKE(
                struct system_request, .system = of_own[i].system, .model = "llada-8b",
                .gpu = "h100", .profile_path = has ? path : "kernels/profiles/h100/llada-8b.csv");
            struct system *system = NULL;
            ck_assert_msg(system_open(&request, &system, &err) == 0, "%s", err.text);
            const struct why why = why_of(system, &shape, of_own[i].op);
            const char *source = why.rungs[0].from.source;
            ck_assert_msg(strstr(source, has ? of_own[i].own : of_own[i].without) != NULL, "%s: %s",
                          of_own[i].op, source);
            if (has) {
                ck_assert_double_eq_tol(why.rungs[0].after_ns, 1e3 * of_own[i].us, 1e-6);
            }
            system_close(system);
        }
    }
}

SUITE("why")
