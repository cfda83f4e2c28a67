/* Number types: what each does to weights, pool, work, roofline, floor and rows of profiles, by
 * closed forms. Run from the repository root. */
#include <math.h>
#include <string.h>

#include "sim/price/roofline.h"
#include "sim/system/system_step.h"
#include "tests/support/says.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"

enum { SCALE = 128, MOST_SET = 8 };

/* "KEY=VALUE KEY=VALUE"; NULL and a sentence where the system is refused. */
static struct system *try_system(const char *name, const char *model, const char *gpu,
                                 const char *profile, bool roofline, const char *set,
                                 struct err *err) {
    struct setting settings[MOST_SET] = {{.key = ""}};
    struct system_request request = {.system = name,
                                     .model = model,
                                     .gpu = gpu,
                                     .profile_path = profile,
                                     .roofline = roofline,
                                     .overrides = settings};
    struct system *system = NULL;
    char text[512], *rest = text;
    snprintf(text, sizeof text, "%s", set);
    for (char *word = strtok_r(rest, " ", &rest); word != NULL; word = strtok_r(rest, " ", &rest)) {
        struct setting *setting = &settings[request.n_overrides++];
        char *value = strchr(word, '=');
        *value++ = '\0';
        snprintf(setting->key, sizeof setting->key, "%s", word);
        snprintf(setting->value, sizeof setting->value, "%s", value);
        snprintf(setting->place, sizeof setting->place, "--set");
    }
    return system_open(&request, &system, err) == 0 ? system : NULL;
}

static struct system *system_of(const char *model, const char *set) {
    struct err err = {0};
    struct system *system = try_system("dllm-serve", model, "h200", NULL, true, set, &err);
    ck_assert_msg(system != NULL, "%s", err.text);
    return system;
}

static const struct op *op_named(const struct system *system, const char *name) {
    for (uint32_t i = 0; i < system->graph.n_ops; i++) {
        if (strcmp(system->graph.ops[i].name, name) == 0) {
            return &system->graph.ops[i];
        }
    }
    return NULL;
}

static struct op_work work_of(const struct system *system, const char *name, double rows) {
    const struct op *op = op_named(system, name);
    ck_assert_msg(op != NULL, "no %s", name);
    const struct op_amount amount = {.rows = rows, .n_steps = 1, .hits = 2};
    return op_type_of(op)->work(&system->graph, op, &amount);
}

/* One full pass over `tokens` tokens, priced. */
static void price_pass(const struct system *system, uint32_t tokens,
                       struct op_price prices[GRAPH_MAX_OPS], struct step_price *step) {
    const struct span span = {
        .phase = PHASE_REFRESH, .queries = tokens, .first_queries = tokens, .logit_rows = tokens};
    struct step_shape shape;
    shape_clear(&shape);
    shape_add(shape.sym, &span, 1);
    cost_explain(system->cost, &shape, (struct chunk_rows){{0}}, prices);
    cost_price(system->cost, &shape, (struct chunk_rows){{0}}, step);
}

static const struct op_price *price_named(const struct system *system,
                                          const struct op_price *prices, const char *name) {
    const struct op *op = op_named(system, name);
    return op != NULL ? &prices[op - system->graph.ops] : NULL;
}

TEST(without_a_word_everything_is_bf16) {
    struct system *system = system_of("llada-8b", "cache=dual");
    ck_assert(storage_is(&system->graph.storage, NUMBER_BF16));
    ck_assert_int_eq(system->budget.weights_bytes, 2 * model_parameters(system->model));
    for (uint32_t i = 0; i < system->graph.n_tensors; i++) {
        ck_assert_int_eq(system->graph.tensors[i].type, NUMBER_BF16);
    }
    ck_assert_ptr_null(op_named(system, "quantised gated"));
    system_close(system);
    system = system_of("llada-8b", "storage.weights=f32");
    ck_assert(storage_is(&system->graph.storage, NUMBER_F32));
    ck_assert_int_eq(system->budget.weights_bytes, 4 * model_parameters(system->model));
    system_close(system);
}

static int64_t fp8_matrix(int64_t n, int64_t k) {
    return n * k + 4 * ((n + SCALE - 1) / SCALE) * ((k + SCALE - 1) / SCALE);
}

/* Products' weights have one byte a number and a scale for each square; the rest keeps two. */
TEST(fp8_weights_halve_what_products_read_and_the_pool_takes_the_rest) {
    struct system *wide = system_of("llada-8b", "page_tokens=16"),
                  *narrow = system_of("llada-8b", "page_tokens=16 storage.weights=fp8"),
                  *head =
                      system_of("llada-8b", "page_tokens=16 storage.weights=fp8 storage.head=fp8");
    const struct model *m = narrow->model;
    const int64_t c = m->hidden, q = (int64_t)m->heads * m->head_dim,
                  kv = (int64_t)m->kv_heads * m->head_dim;
    const int64_t numbers = m->layers * ((q + 2 * kv) * c + c * q + 3 * c * (int64_t)m->ffn);
    const int64_t bytes = m->layers * (fp8_matrix(q + 2 * kv, c) + fp8_matrix(c, q) +
                                       fp8_matrix(2 * (int64_t)m->ffn, c) + fp8_matrix(c, m->ffn));
    ck_assert_int_eq(narrow->budget.weights_bytes, 2 * (model_parameters(m) - numbers) + bytes);
    ck_assert_int_eq(narrow->budget.weights_bytes - head->budget.weights_bytes,
                     2 * model_head_parameters(m) - fp8_matrix(m->vocab, c));
    const int64_t freed = wide->budget.weights_bytes - narrow->budget.weights_bytes;
    const int64_t gained = narrow->budget.pool_bytes - wide->budget.pool_bytes;
    const int64_t more = narrow->budget.activation_bytes - wide->budget.activation_bytes;
    ck_assert_int_le(llabs(gained + more - freed), narrow->budget.unit_bytes);
    ck_assert_int_eq(narrow->row_bytes, wide->row_bytes);
    system_close(wide);
    system_close(narrow);
    system_close(head);
}

/* One scale for a row of a matrix and of an input, in place of one for 128 x 128. */
TEST(channels_have_a_scale_each) {
    struct system *system = system_of("llada-8b", "storage.weights=fp8-channel"),
                  *squares = system_of("llada-8b", "storage.weights=fp8");
    const struct model *m = system->model;
    const struct op_work down = work_of(system, "down", 3);
    ck_assert_double_eq(down.weight_bytes, (double)(m->hidden * (m->ffn + 4.0)));
    ck_assert_double_eq(down.row_bytes, 3 * (m->ffn + 128.0 + 2.0 * m->hidden));
    ck_assert_double_eq(down.fp8_flops, down.flops);
    const int64_t rows = m->layers * ((int64_t)(m->heads + 2 * m->kv_heads) * m->head_dim +
                                      2 * (int64_t)m->hidden + 2 * (int64_t)m->ffn);
    const int64_t c = m->hidden, kv = (int64_t)m->kv_heads * m->head_dim,
                  q = (int64_t)m->heads * m->head_dim;
    const int64_t of_squares =
        m->layers *
        (fp8_matrix(q + 2 * kv, c) + fp8_matrix(c, q) + fp8_matrix(2 * (int64_t)m->ffn, c) +
         fp8_matrix(c, m->ffn) - (q + 2 * kv) * c - c * q - 3 * c * (int64_t)m->ffn);
    ck_assert_int_eq(system->budget.weights_bytes - squares->budget.weights_bytes,
                     4 * rows - of_squares);
    system_close(system);
    system_close(squares);
}

/* The GPU that is none computes in float32 next to fp8. */
TEST(what_is_not_in_fp8_goes_by_storage_wide_and_the_gpu) {
    static const struct {
        const char *gpu, *set;
        enum number_type wide, activations, cache, head;
    } cases[] = {
        {"h200", "storage.weights=fp8", NUMBER_BF16, NUMBER_FP8, NUMBER_BF16, NUMBER_BF16},
        {"cpu", "storage.weights=fp8", NUMBER_F32, NUMBER_FP8, NUMBER_F32, NUMBER_F32},
        {"h200", "storage.weights=fp8 storage.wide=f32 storage.activations=f32", NUMBER_F32,
         NUMBER_F32, NUMBER_F32, NUMBER_F32},
        {"cpu", "storage.weights=fp8-channel storage.wide=bf16 storage.cache=fp8", NUMBER_BF16,
         NUMBER_FP8_CHANNEL, NUMBER_FP8, NUMBER_BF16},
        {"cpu", "", NUMBER_BF16, NUMBER_BF16, NUMBER_BF16, NUMBER_BF16},
        {"h200", "storage.weights=f32 storage.wide=bf16", NUMBER_F32, NUMBER_F32, NUMBER_F32,
         NUMBER_F32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = {0};
        struct system *system =
            try_system("dllm-serve", "llada-tiny", cases[i].gpu, NULL, true, cases[i].set, &err);
        ck_assert_msg(system != NULL, "%s", err.text);
        const struct storage *types = &system->graph.storage;
        ck_assert_int_eq(types->wide, cases[i].wide);
        ck_assert_int_eq(types->activations, cases[i].activations);
        ck_assert_int_eq(types->cache, cases[i].cache);
        ck_assert_int_eq(types->head, cases[i].head);
        ck_assert_int_eq(graph_element_bytes(&system->graph), number_bytes(cases[i].wide));
        system_close(system);
    }
}

TEST(a_mixtures_experts_are_in_fp8_and_its_router_is_not) {
    struct system *system = system_of("llada-moe", "storage.weights=fp8");
    const struct model *m = system->model;
    const struct op_work router = work_of(system, "router", 10);
    const struct op_work experts = work_of(system, "expert down", 10);
    ck_assert_double_eq(router.weight_bytes, 2.0 * m->experts * m->hidden);
    ck_assert_double_eq(router.fp8_flops, 0);
    ck_assert_double_eq(experts.weight_bytes, 2.0 * (double)fp8_matrix(m->hidden, m->expert_ffn));
    ck_assert(experts.fp8_flops == experts.flops && experts.flops > 0);
    system_close(system);
}

TEST(an_fp8_cache_has_rows_of_one_byte_a_number_and_a_scale_a_head) {
    struct system *wide = system_of("llada-8b", ""),
                  *narrow = system_of("llada-8b", "storage.cache=fp8");
    const struct model *m = narrow->model;
    ck_assert_int_eq(narrow->row_bytes, 2LL * m->layers * m->kv_heads * (m->head_dim + 4));
    ck_assert_int_eq(narrow->budget.weights_bytes, wide->budget.weights_bytes);
    ck_assert_int_eq(narrow->budget.unit_bytes, narrow->row_bytes * narrow->settings.page_tokens);
    const struct op *op = op_named(narrow, "block attention");
    const struct op_amount amount = {.sum_q = 4, .sum_kv = 100, .sum_cached = 96, .sum_q_kv = 400};
    const struct op_work work = op_type_of(op)->work(&narrow->graph, op, &amount);
    ck_assert_double_eq(work.cached_bytes, 96.0 * 2 * m->kv_heads * (m->head_dim + 4));
    ck_assert_double_eq(work.row_bytes, 2.0 * 2 * m->head_dim * (4 * m->heads + 4 * m->kv_heads));
    ck_assert_double_eq(work.fp8_flops, 0);
    ck_assert_int_eq(op_profile_type(&narrow->graph, op), PROFILE_FP8_BF16);
    ck_assert_int_eq(op_profile_type(&narrow->graph, op_named(narrow, "down")), PROFILE_BF16);
    system_close(wide);
    system_close(narrow);
}

TEST(no_cached_rows_have_no_type_of_their_own) {
    struct system *system = system_of("llada-8b", "cache=none storage.cache=fp8");
    ck_assert(storage_is(&system->graph.storage, NUMBER_BF16));
    system_close(system);
}

/* W8A8 reads, multiplies and is bounded by fp8; W8A16 reads fp8 and multiplies bf16. */
TEST(roofline_and_floor_go_by_the_types_that_are_read_and_multiplied) {
    struct system *wide = system_of("llada-8b", ""),
                  *both = system_of("llada-8b", "storage.weights=fp8"),
                  *half = system_of("llada-8b", "storage.weights=fp8 storage.activations=bf16");
    const struct gpu *gpu = wide->gpu;
    const struct model *m = wide->model;
    const int64_t n = m->hidden, k = m->ffn;
    enum { MANY = 4096 };
    const double flops = 2.0 * MANY * (double)(n * k), launch_ns = 2000;
    static const double counts[] = {1, MANY};
    for (size_t i = 0; i < 2; i++) {
        const double rows = counts[i];
        const struct op_work w16 = work_of(wide, "down", rows), w8 = work_of(both, "down", rows),
                             w8a16 = work_of(half, "down", rows);
        ck_assert_double_eq(w16.weight_bytes, 2.0 * (double)(n * k));
        ck_assert_double_eq(w8.weight_bytes, (double)fp8_matrix(n, k));
        ck_assert_double_eq(w8a16.weight_bytes, (double)fp8_matrix(n, k));
        ck_assert_double_eq(w16.row_bytes, rows * 2.0 * (double)(n + k));
        ck_assert_double_eq(w8.row_bytes, rows * (double)(2 * n + k + 4 * (k / SCALE)));
        ck_assert_double_eq(w8a16.row_bytes, w16.row_bytes);
        ck_assert(w8.flops == w16.flops && w8.fp8_flops == w8.flops && w8a16.fp8_flops == 0);
    }
    struct op_price prices[GRAPH_MAX_OPS];
    struct step_price step;
    const double best_fp8 = gpu->peak_fp8_flops * gpu->best_bf16_flops / gpu->peak_bf16_flops;
    price_pass(wide, MANY, prices, &step);
    ck_assert_double_eq_tol(price_named(wide, prices, "down")->ns / m->layers,
                            launch_ns + 1e9 * flops / gpu->best_bf16_flops, 1);
    price_pass(half, MANY, prices, &step);
    ck_assert_double_eq_tol(price_named(half, prices, "down")->ns / m->layers,
                            launch_ns + 1e9 * flops / gpu->best_bf16_flops, 1);
    price_pass(both, MANY, prices, &step);
    ck_assert_double_eq_tol(price_named(both, prices, "down")->ns / m->layers,
                            launch_ns + 1e9 * flops / best_fp8, 1);
    const struct op_work few = work_of(both, "down", 1), many = work_of(both, "down", MANY),
                         as_bf16 = work_of(half, "down", MANY);
    ck_assert_double_eq_tol(floor_ns(gpu, &few), 1e9 * few.weight_bytes / gpu->peak_bandwidth,
                            1e-6);
    ck_assert_double_eq_tol(floor_ns(gpu, &many), 1e9 * flops / gpu->peak_fp8_flops, 1e-6);
    ck_assert_double_eq_tol(floor_ns(gpu, &as_bf16), 1e9 * flops / gpu->peak_bf16_flops, 1e-6);
    system_close(wide);
    system_close(both);
    system_close(half);
}

/* What a product reads in fp8 is made by the norm before it, which writes nothing else where
 * nothing else reads it, or by an operator of its own, which reads the wide row. */
TEST(inputs_are_quantised_before_products_of_fp8) {
    struct system *system = system_of("llada-8b", "storage.weights=fp8");
    static const char *const norms[] = {"attention norm", "ffn norm"};
    const struct model *m = system->model;
    const double h = m->hidden, q = (double)m->heads * m->head_dim, ffn = m->ffn;
    for (int i = 0; i < 2; i++) { /* the second one adds to the residual stream before */
        const struct op_work work = work_of(system, norms[i], 3);
        ck_assert_double_eq(op_work_bytes(&work), 3 * (2 * h + i * 4 * h + h + 4 * h / SCALE));
        const struct op *op = op_named(system, norms[i]);
        ck_assert_int_eq(system->graph.tensors[op->out[i]].type, NUMBER_FP8);
        ck_assert_int_eq(op->out[i + 1], -1);
    }
    struct op_work work = work_of(system, "quantised attention output", 3);
    ck_assert_double_eq(op_work_bytes(&work), 3 * (2 * q + q + 4 * q / SCALE));
    work = work_of(system, "gate and up", 3); /* a tile of which has all that share a scale */
    ck_assert_double_eq(work.row_bytes, 3 * (h + 4 * h / SCALE + ffn + 4 * ffn / SCALE));
    ck_assert_ptr_null(op_named(system, "quantised gated"));
    ck_assert_ptr_null(op_named(system, "quantised head input"));
    system_close(system);
    system = system_of("llada-8b", "storage.weights=fp8 storage.head=fp8");
    ck_assert_ptr_nonnull(op_named(system, "quantised head input"));
    const struct op *head = op_named(system, "output head");
    ck_assert_int_eq(op_profile_type(&system->graph, head), PROFILE_FP8);
    system_close(system);
    system = system_of("llada-8b", "storage.weights=fp8-channel");
    work = work_of(system, "quantised gated", 3); /* by rows, of which a tile has a part */
    ck_assert_double_eq(op_work_bytes(&work), 3 * (2 * ffn + ffn + 128));
    system_close(system);
    /* A router reads what is wide. */
    system = system_of("llada2-mini", "storage.weights=fp8 cache=exact");
    const struct op *router = op_named(system, "router"),
                    *experts = op_named(system, "expert gate and up");
    ck_assert_int_eq(system->graph.tensors[router->in[0]].type, NUMBER_BF16);
    ck_assert_int_eq(system->graph.tensors[experts->in[0]].type, NUMBER_FP8);
    system_close(system);
}

static double shares_of(const struct system *system, enum provenance_kind kind) {
    struct op_price prices[GRAPH_MAX_OPS];
    struct step_price step;
    price_pass(system, 256, prices, &step);
    return cost_shares(system->cost, &step.time).by_kind[kind];
}

/* The H200's own rows, and the same file with products of fp8 that take half as long. */
static const char *with_fp8_rows(void) {
    static char path[256];
    char *text = NULL, line[512];
    size_t size;
    FILE *in = fopen("kernels/profiles/h200/llada-8b.csv", "r"),
         *out = open_memstream(&text, &size);
    ck_assert(in != NULL && out != NULL);
    while (fgets(line, sizeof line, in) != NULL) {
        char *time = strrchr(line, ',');
        const bool is_product = strncmp(line, "gemm,", 5) == 0 || strncmp(line, "gate_up,", 8) == 0;
        if (strncmp(line, "# rows:", 7) != 0) {
            fputs(line, out);
        }
        if (is_product) {
            const double us = strtod(time + 1, NULL);
            *time = '\0';
            fprintf(out, "%s,fp8,%.6g\n", line, us / 2);
        }
    }
    fclose(in);
    fclose(out);
    snprintf(path, sizeof path, "%s", scratch_write("fp8.csv", text));
    free(text);
    return path;
}

TEST(rows_of_the_type_price_it_and_without_them_roofline_does_with_its_share) {
    struct err err = {0};
    const char *path = with_fp8_rows();
    struct op_price prices[GRAPH_MAX_OPS];
    struct step_price step;
    struct system *wide = try_system("dllm-serve", "llada-8b", "h200", path, false, "", &err);
    struct system *rows =
        try_system("dllm-serve", "llada-8b", "h200", path, false, "storage.weights=fp8", &err);
    struct system *none =
        try_system("dllm-serve", "llada-8b", "h200", NULL, false, "storage.weights=fp8", &err);
    ck_assert_msg(wide != NULL && rows != NULL && none != NULL, "%s", err.text);
    price_pass(wide, 256, prices, &step);
    const struct op_price bf16 = *price_named(wide, prices, "down");
    price_pass(rows, 256, prices, &step);
    const struct op_price fp8 = *price_named(rows, prices, "down");
    const struct op_price head = *price_named(rows, prices, "output head");
    price_pass(none, 256, prices, &step);
    const struct op_price sheet = *price_named(none, prices, "down");
    const struct op_price own_head = *price_named(none, prices, "output head");
    ck_assert(bf16.kind == PROVENANCE_MEASURED && fp8.kind == PROVENANCE_MEASURED);
    ck_assert_int_eq(sheet.kind, PROVENANCE_TRANSFERRED); /* of the H100's imported rows */
    ck_assert_int_eq(own_head.kind, PROVENANCE_MEASURED);
    ck_assert_double_eq(head.ns, own_head.ns);
    ck_assert_double_lt(fp8.ns, bf16.ns);
    /* Quantising alone is priced by roofline where products have rows. */
    ck_assert_double_lt(shares_of(wide, PROVENANCE_ROOFLINE), 0.01);
    ck_assert_double_lt(shares_of(rows, PROVENANCE_ROOFLINE), 0.15);
    ck_assert_double_gt(shares_of(none, PROVENANCE_TRANSFERRED), 0.5);
    /* A card with rows of bf16 alone, and no other one to transfer fp8 from. */
    struct system *bare = try_system("dllm-serve", "llada-8b", "rtx-pro-6000", NULL, false,
                                     "storage.weights=fp8", &err);
    ck_assert_msg(bare != NULL, "%s", err.text);
    ck_assert_double_gt(shares_of(bare, PROVENANCE_ROOFLINE), 0.5);
    ck_assert_double_gt(shares_of(bare, PROVENANCE_IMPORTED), 0.1);
    system_close(bare);
    system_close(wide);
    system_close(rows);
    system_close(none);
}

/* An operation of fp8 counts for as many of bf16 as take as long. */
TEST(work_in_fp8_counts_as_what_takes_as_long_in_bf16) {
    struct system *wide = system_of("llada-8b", ""),
                  *narrow = system_of("llada-8b", "storage.weights=fp8");
    int64_t sym[SYM_COUNT] = {[SYM_TOKENS] = 100};
    double bf16_flops, fp8_flops, bytes;
    cost_work(wide->cost, sym, 1, &bf16_flops, &bytes);
    cost_work(narrow->cost, sym, 1, &fp8_flops, &bytes);
    const double ratio = wide->gpu->peak_bf16_flops / wide->gpu->peak_fp8_flops;
    ck_assert_double_gt(bf16_flops, 0);
    ck_assert_double_eq_tol(fp8_flops / bf16_flops, ratio, 1e-9);
    system_close(wide);
    system_close(narrow);
}

TEST(types_that_do_not_go_together_are_refused_with_a_sentence) {
    static const struct {
        const char *system, *model, *gpu, *set, *says;
    } cases[] = {
        {"dllm-serve", "llada-8b", "h200", "storage.activations=f32",
         "f32 and bf16 do not go together"},
        {"dllm-serve", "llada-8b", "h200", "storage.weights=fp8 storage.cache=f32",
         "f32 and bf16 do not go together"},
        {"dllm-serve", "llada-8b", "h200", "storage.weights=fp8 storage.head=fp8-channel",
         "fp8 and fp8-channel do not go together"},
        {"dllm-serve", "llada-8b", "h200", "storage.cache=fp8-channel", "fp8-channel"},
        {"dllm-serve", "llada-8b", "h200", "storage.activations=fp8",
         "storage.activations = fp8 is for weights of fp8"},
        {"dllm-serve", "llada-8b", "a100-80g", "storage.weights=fp8",
         "NVIDIA A100 SXM4 80 GB has no products of fp8"},
        {"sdar", "sdar-tiny", "h200", "storage.head=fp8", "is its embedding"},
        {"mosaic-torch", "llada-8b", "h200", "storage.head=fp8", "allocator = torch-"},
        {"dllm-serve", "llada-8b", "h200", "storage.weights=fp4", "fp4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = {0};
        ck_assert_ptr_null(try_system(cases[i].system, cases[i].model, cases[i].gpu, NULL, true,
                                      cases[i].set, &err));
        ASSERT_SAYS(err.text, cases[i].says);
    }
    struct err err = {0};
    struct system *system = try_system("dllm-serve", "llada-8b", "a100-80g", NULL, true,
                                       "storage.weights=fp8 storage.activations=bf16", &err);
    ck_assert_msg(system != NULL, "%s", err.text);
    system_close(system);
}

SUITE("storage")
