/* What is said and drawn of a plan: live bytes, `unmask plan --picture`. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <sys/stat.h>

#include "engine/op/program.h"
#include "sim/memory/usage.h"
#include "sim/step/builder.h"
#include "tests/support/cli.h"
#include "tests/support/numbers.h"
#include "tests/support/random_step.h"

static void make_random_step(struct rng *rng, bool fused, struct graph *graph,
                             struct step_shape *shape) {
    struct graph_options options =
        MAKE(struct graph_options, .fused = fused, .gathers_cache = rng_uniform(rng) < 0.5,
             .splits_first_layer = rng_uniform(rng) < 0.5, .selects = rng_uniform(rng) < 0.5,
             .compares_values = rng_uniform(rng) < 0.5, .logits_bytes = 2,
             .fused_head = rng_uniform(rng) < 0.3, .copy_bytes = rng_uniform(rng) < 0.5 ? 8 : 0,
             .softmax_bytes = rng_uniform(rng) < 0.5 ? 8 : 0);
    graph_build(graph, any_model(rng), &options);
    *shape = random_shape(rng, 1, 4000);
}

TEST(the_classes_and_the_unused_room_add_up_to_the_peak) {
    struct rng rng = rng_stream(3, "usage");
    bool seen[TENSOR_CLASS_COUNT] = {false};
    for (int round = 0; round < 2000; round++) {
        struct graph graph;
        struct step_shape shape;
        struct placement placement;
        struct usage usage;
        make_random_step(&rng, rng_uniform(&rng) < 0.5, &graph, &shape);
        const struct planner *planner = &planner_table[rng_next(&rng) % planner_table_size];
        const struct chunk_rows chunks = random_chunks(&rng, 4096);
        placement_make(planner, &graph, &shape, chunks, &placement);
        usage_measure(&graph, &shape, &placement, &usage);
        int64_t sum = usage.unused_bytes, most = 0;
        for (int c = 0; c < TENSOR_CLASS_COUNT; c++) {
            sum += usage.class_bytes[c];
            seen[c] = seen[c] || usage.class_bytes[c] > 0;
        }
        for (uint32_t i = 0; i < graph.n_ops; i++) {
            most = usage.bytes[i] > most ? usage.bytes[i] : most;
        }
        ck_assert_int_eq(sum, placement.peak_bytes);
        ck_assert_int_ge(usage.unused_bytes, 0);
        ck_assert_int_eq(most, placement.lower_bound_bytes);
        ck_assert_int_le(usage.most_bytes, most);
        ck_assert_double_ge(usage_peak_to_average(&usage), 1);
    }
    for (int c = 0; c < TENSOR_CLASS_COUNT; c++) {
        ck_assert_msg(seen[c], "nothing of class %s was live at a peak", tensor_class_names[c]);
    }
}

TEST(operators_count_as_often_as_the_engine_executes_them) {
    struct rng rng = rng_stream(4, "turns");
    for (int round = 0; round < 300; round++) {
        struct graph graph;
        struct step_shape shape;
        struct placement placement;
        struct usage usage;
        struct program program;
        struct err err = {0};
        make_random_step(&rng, true, &graph, &shape);
        if (program_make(&program, &graph, &err) != 0) {
            continue; /* the engine has no such step */
        }
        const struct chunk_rows chunks = random_chunks(&rng, 1000);
        placement_make(&planner_table[0], &graph, &shape, chunks, &placement);
        usage_measure(&graph, &shape, &placement, &usage);
        int64_t instances[GRAPH_MAX_OPS] = {0}, n_instances = 0;
        double sum = 0;
        struct op_instance instance;
        program_start(&program, &placement, &shape, &instance);
        do {
            const struct op *op = &graph.ops[instance.op];
            bool attends = op->kind == OP_ATTENTION_FULL || op->kind == OP_ATTENTION_BLOCK;
            if (instance.n_rows > 0 && (!attends || shape.sym[op->span_n] > 0)) {
                instances[instance.op]++;
                n_instances++;
                sum += (double)usage.bytes[instance.op];
            }
        } while (program_next(&program, &placement, &shape, &instance));
        for (uint32_t i = 0; i < graph.n_ops; i++) {
            ck_assert_msg(usage.executions[i] == instances[i],
                          "%s: %" PRId64 " not %" PRId64 " times", graph.ops[i].name,
                          usage.executions[i], instances[i]);
        }
        ck_assert_int_eq(usage.n_executions, n_instances);
        ck_assert_double_eq_tol(usage.mean_bytes, sum / (double)n_instances,
                                1e-9 * usage.mean_bytes);
    }
}

TEST(tensors_are_classed_by_the_part_of_the_model_that_writes_them) {
    static const struct {
        const char *tensor;
        enum tensor_class class;
    } expected[] = {{"residual", TENSOR_RESIDUAL},
                    {"attention norm", TENSOR_ATTENTION},
                    {"qkv", TENSOR_ATTENTION},
                    {"selection scores", TENSOR_ATTENTION},
                    {"attention projected", TENSOR_ATTENTION},
                    {"ffn norm", TENSOR_FFN},
                    {"routing", TENSOR_FFN},
                    {"gate and up", TENSOR_FFN},
                    {"ffn output", TENSOR_FFN},
                    {"final norm", TENSOR_OTHER},
                    {"logits copy", TENSOR_LOGITS},
                    {"head scratch", TENSOR_LOGITS},
                    {"candidates", TENSOR_LOGITS}};
    enum { N_EXPECTED = sizeof expected / sizeof expected[0] };
    int n_found[N_EXPECTED] = {0};
    for (int round = 0; round < 16; round++) {
        struct graph graph;
        struct err err = {0};
        struct graph_options options =
            MAKE(struct graph_options, .fused = (round & 1) != 0, .fused_head = (round & 2) != 0,
                 .splits_first_layer = (round & 4) != 0, .selects = true, .logits_bytes = 2,
                 .copy_bytes = 8);
        graph_build(&graph, model_find((round & 8) != 0 ? "llada-moe" : "llada-8b", &err),
                    &options);
        for (int t = 0; t < (int)graph.n_tensors; t++) {
            for (int i = 0; i < N_EXPECTED; i++) {
                if (strcmp(graph.tensors[t].name, expected[i].tensor) == 0) {
                    ck_assert_msg(tensor_class(&graph, t) == expected[i].class, "%s is %s",
                                  expected[i].tensor, tensor_class_names[tensor_class(&graph, t)]);
                    n_found[i]++;
                }
            }
        }
    }
    for (int i = 0; i < N_EXPECTED; i++) {
        ck_assert_msg(n_found[i] > 0, "no graph has a tensor '%s'", expected[i].tensor);
    }
}

#define FIXED   "plan", "--systems", "tests/golden/cli/systems.ini", "--roofline", "--system", "fused"
#define EXAMPLE "tests/golden/instances/input.12.csv"

TEST(plan_says_what_the_peak_is_made_of_and_how_far_above_the_mean) {
    char *text = PRINTS(FIXED, "--requests", "4", "--json");
    json_error_t error;
    json_t *json = json_loads(text, 0, &error);
    ck_assert_ptr_nonnull(json);
    const json_t *live = json_object_get(json, "live"), *peak = json_object_get(json, "at_peak");
    ck_assert_double_eq_tol(number(live, "peak_to_average"),
                            number(live, "most_bytes") / number(live, "mean_bytes"), 1e-8);
    ck_assert_double_eq(number(live, "most_bytes"), number(json, "lower_bound_bytes"));
    ck_assert_double_eq_tol(number(peak, "inflation"),
                            number(json, "peak_bytes") / number(json, "lower_bound_bytes") - 1,
                            1e-9);
    ck_assert_str_eq(json_string_value(json_object_get(peak, "operator")), "output head");
    ck_assert_double_eq(number(peak, "residual_bytes") + number(peak, "attention_bytes") +
                            number(peak, "ffn_bytes") + number(peak, "logits_bytes") +
                            number(peak, "other_bytes") + number(peak, "unused_bytes"),
                        number(json, "peak_bytes"));
    json_decref(json);
    free(text);
    text = PRINTS(FIXED, "--requests", "4", "--planner", "all");
    ck_assert_ptr_nonnull(strstr(text, "\npeak-to-average ratio "));
    free(text);
}

TEST(plan_draws_a_step_and_a_file) {
    char *plain = PRINTS(FIXED, "--requests", "4");
    char *text = PRINTS(FIXED, "--requests", "4", "--picture", scratch_path("step.svg"));
    ck_assert_str_eq(text, plain);
    free(text);
    free(plain);
    char *svg = scratch_read(scratch_path("step.svg"));
    static const char *const shown[] = {"fused, llada-8b on l40s, planner first-fit: 4 requests",
                                        "dense layers, 32 times",
                                        "qkv, rotated qkv",
                                        "247 MiB",
                                        "peak 279 MiB",
                                        "lower bound 255 MiB",
                                        "argmax and confidence",
                                        "offset, live bytes"};
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        ck_assert_msg(strstr(svg, shown[i]) != NULL, "the picture does not show '%s'", shown[i]);
    }
    free(svg);
    free(PRINTS("plan", "--instance", EXAMPLE, "--picture", scratch_path("file.svg")));
    svg = scratch_read(scratch_path("file.svg"));
    ck_assert_ptr_nonnull(strstr(svg, "input.12.csv: 5 buffers, planner exact"));
    ck_assert_ptr_nonnull(strstr(svg, "peak = lower bound 12 B"));
    ck_assert_ptr_nonnull(strstr(svg, ">b5<"));
    free(svg);
    scratch_write("hostile.csv",
                  "id,lower,upper,size\n<b> & 'c',0,4,40"); /* an end of line is not needed */
    free(PRINTS("plan", "--instance", scratch_path("hostile.csv"), "--picture",
                scratch_path("file.svg"))); /* replaces its like */
    svg = scratch_read(scratch_path("file.svg"));
    ck_assert_ptr_nonnull(strstr(svg, "&lt;b&gt; &amp; &#39;c&#39;"));
    ck_assert_ptr_null(strstr(svg, "<b>"));
    free(svg);
}

TEST(a_picture_that_fails_leaves_what_was_printed) {
    char *plain = PRINTS("plan", "--instance", EXAMPLE);
    struct output output = CLI("plan", "--instance", EXAMPLE, "--picture", "/nowhere/p.svg");
    ck_assert_str_eq(output.out, plain);
    cli_expect(output, 1, "cannot write '/nowhere/p.svg': No such file or directory");
    free(plain);
    output = CLI(FIXED, "--picture", "p.jpeg"); /* asked wrongly: nothing is planned */
    ck_assert_str_eq(output.out, "");
    cli_expect(output, 2, "'p.jpeg': a picture is a file that ends in .svg");
    REFUSES(2, "--picture draws one plan: name one planner instead of all", FIXED, "--planner",
            "all", "--picture", "p.svg");
    REFUSES(2, "'" EXAMPLE "': a picture is a file that ends in .svg", "plan", "--instance",
            EXAMPLE, "--picture", EXAMPLE);
    const char *other = scratch_write("notes.svg", "not a picture");
    struct output refused = CLI("plan", "--instance", EXAMPLE, "--picture", other);
    ck_assert_int_eq(refused.status, 2);
    output_free(&refused);
    char *kept = scratch_read(other);
    ck_assert_str_eq(kept, "not a picture");
    free(kept);
}

SUITE("plan")
