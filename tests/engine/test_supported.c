/* The table of what runs where: a system that has a feature is refused where the table says so, by
 * its reason, and nowhere else; each of the shipped systems opens on the CPU or is refused. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/supported.h"
#include "experiments/study/released.h"
#include "sim/system/system_facts.h"
#include "tests/support/says.h"
#include "tests/support/suite.h"

#define WINDOW                                                                                     \
    "storage.weights=f32 model.local_window=64 model.global_every=2 model.global_kv_heads=1 "      \
    "model.global_head_dim=64 "
#define NOISE                                                                                      \
    "storage.weights=f32 model.uniform_noise=on model.mask_token=4294967295 "                      \
    "model.causal_prompt=on "

static struct system *system_with(const char *name, const char *model, const char *settings) {
    struct setting overrides[8];
    struct system_request asked = {.system = name, .model = model, .gpu = "cpu", .roofline = true};
    for (const char *at = settings; *at != '\0';
         at += strcspn(at, " ") + (strchr(at, ' ') != NULL)) {
        struct setting *setting = &overrides[asked.n_overrides++];
        *setting = (struct setting){.place = "test"};
        const int key = (int)strcspn(at, "="), value = (int)strcspn(at, " ") - key - 1;
        snprintf(setting->key, sizeof setting->key, "%.*s", key, at);
        snprintf(setting->value, sizeof setting->value, "%.*s", value, at + key + 1);
    }
    asked.overrides = overrides;
    struct system *system = NULL;
    struct err err = {0};
    ck_assert_msg(system_open(&asked, &system, &err) == 0, "%s %s: %s", name, settings, err.text);
    return system;
}

/* What has each row of the table and nothing else of it on the places where that is lacked; a row
 * is the one whose name begins so, the shortest of several. */
static const struct {
    const char *feature, *system, *model, *settings;
} cases[] = {
    {"rows of local layers", "sdar", "sdar-tiny", WINDOW "context_tokens=1024"},
    {"layers with a window and", "sdar", "sdar-tiny", WINDOW "context_tokens=64 storage.cache=fp8"},
    {"gelu with", NULL, NULL, NULL}, /* on a GPU, below */
    {"canvases of random tokens without", "diffusiongemma", "sdar-tiny",
     NOISE "runtime.sampler_bytes=4"},
    {"padded batches", "fast-dllm", "llada-tiny", "runtime=hf-eager storage.weights=f32"},
    {"cached rows copied", "dllm-serve", "llada-tiny",
     "runtime=nano-vllm runtime.engine=on storage.weights=f32"},
    {"steps of another code than ours (runtime.engine = off)", "dllm-serve", "llada-tiny",
     "runtime.engine=off storage.weights=f32"},
    {"patterns of more than", "sparsed", "llada-tiny",
     "cache.pattern_tokens=1 context_tokens=4097 beyond_positions=on storage.weights=f32"},
    {"rules that rank", NULL, NULL, NULL}, /* changed below */
    {"a temperature, with a fused head", "dllm-serve", "llada-tiny",
     "temperature=0.8 runtime.fused_head=on probabilities=kept model.logit_softcap=5 "
     "storage.weights=f32"},
    {"pages of no power", "sdar", "sdar-tiny", "page_tokens=5 storage.weights=f32"},
    {"logits of which a part", "vanilla", "llada-tiny",
     "runtime.fused_head=off sample_scope=output storage.weights=f32"},
    {"cached rows of no", NULL, NULL, NULL}, /* changed below */
    {"numbers in another type than f32", "dllm-serve", "llada-tiny", "storage.weights=bf16"},
    {"numbers in another type than bf16", NULL, NULL, NULL}, /* on a GPU, below */
    {"heads of other", NULL, NULL, NULL},                    /* the same */
    {"rows chosen by key-value heads", "dllm-serve", "dream-tiny",
     "tensor_parallel=4 storage.weights=f32"},
    {"runtime.whole_head = on", "fast-dllm", "dream-tiny",
     "tensor_parallel=2 runtime.whole_head=on storage.weights=f32"},
    {"swap.overlaps = on", "dllm-serve", "llada-tiny",
     "swap.host_bytes=1MiB swap.overlaps=on storage.weights=f32"},
    {"eviction with cached rows in fp8", "focus", "sdar-tiny",
     "storage.weights=f32 storage.cache=fp8"},
    {"features with inputs or rows of fp8", "dllm-cache", "llada-tiny",
     "storage.weights=fp8 storage.wide=f32"},
    {"experts chosen by block", "sdar", "llada2-tiny",
     "model.block_routing=largest model.block_experts=4 chunk_search=bottleneck "
     "storage.weights=f32"},
    {"drafts accepted by ratio without", "sdar", "sdar-tiny",
     "decoder=self-speculation runtime.fused_head=on storage.weights=f32"},
    {"checks of drafts", NULL, NULL, NULL}, /* on a GPU, below */
    {"a canvas that moves without tokens", "sdar", "sdar-tiny",
     "decoder=joint-indel decoder.insert_token=3 storage.weights=f32"},
    {"a canvas that moves without all", "sdar", "sdar-tiny",
     "decoder=joint-indel decoder.insert_token=3 decoder.delete_token=4 runtime.fused_head=on "
     "storage.weights=f32"},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

static void assert_lacks(const struct system *system, unsigned where, const struct feature *f) {
    struct err err = {0};
    ck_assert_int_eq(supports_system(system, where, &err), ERR_USAGE);
    ASSERT_SAYS(err.text, f->name);
    ASSERT_SAYS(err.text, f->why);
    if (f->instead != NULL) {
        ASSERT_SAYS(err.text, f->instead);
    }
}

static const struct feature *row(const char *begins) {
    const struct feature *found = NULL;
    for (const struct feature *f = feature_table; f->name != NULL; f++) {
        if (strstr(f->name, begins) == f->name &&
            (found == NULL || strlen(f->name) < strlen(found->name))) {
            found = f;
        }
    }
    ck_assert_msg(found != NULL, "no row begins with '%s'", begins);
    return found;
}

TEST(there_is_a_case_for_every_row) {
    bool has[N_CASES] = {false};
    for (size_t i = 0; i < N_CASES; i++) {
        const ptrdiff_t at = row(cases[i].feature) - feature_table;
        ck_assert_msg(at < N_CASES && !has[at], "two cases of '%s'", feature_table[at].name);
        has[at] = true;
    }
    ck_assert_ptr_null(feature_table[N_CASES].name);
}

TEST_EACH(a_system_that_has_a_feature_is_refused_where_it_is_lacked, N_CASES) {
    const struct feature *f = row(cases[_i].feature);
    if (cases[_i].system == NULL) {
        return;
    }
    struct system *system = system_with(cases[_i].system, cases[_i].model, cases[_i].settings);
    const bool of_ranks = f->lacked == WHERE_RANKS;
    assert_lacks(system, WHERE_CPU | (of_ranks ? WHERE_RANKS : 0), f);
    struct err err = {0};
    ck_assert_msg(!of_ranks || supports_system(system, WHERE_CPU, &err) == 0, "%s", err.text);
    system_close(system);
}

/* By tokens that the model has, or the decoder, or one of each. */
TEST(a_canvas_moves_by_the_models_own_tokens) {
    static const char *const said[] = {"model.delete_token=3 model.insert_token=4",
                                       "decoder.delete_token=3 decoder.insert_token=4",
                                       "model.delete_token=3 model.insert_token=4 "
                                       "decoder.delete_token=5"};
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        struct err err = {0};
        char settings[256];
        snprintf(settings, sizeof settings,
                 "decoder=joint-indel runtime.fused_head=off storage.weights=f32 %s", said[i]);
        struct system *system = system_with("sdar", "sdar-tiny", settings);
        ck_assert_msg(supports_system(system, WHERE_CPU, &err) == 0, "%s", err.text);
        system_close(system);
    }
}

TEST(pages_are_of_the_rows_that_kernels_take) {
    for (uint32_t rows = 1; rows <= 1024; rows++) {
        struct system *system = system_with("sdar", "sdar-tiny", "storage.weights=f32");
        system->settings.page_tokens = rows;
        const bool taken = rows == 4 || rows == 8 || rows == 16 || rows == 32 || rows == 64 ||
                           rows == 128 || rows == 256;
        ck_assert_ptr_eq(feature_lacked(system, WHERE_CPU), taken ? NULL : row("pages of no"));
        rows += rows > 300 ? 99 : 0;
        system_close(system);
    }
}

TEST(sizes_that_kernels_do_not_take_are_refused) {
    struct system *system = system_with("dllm-serve", "llada-tiny", "storage.weights=f32");
    struct err err = {0};
    ck_assert_msg(supports_system(system, WHERE_CPU, &err) == 0, "%s", err.text);
    ck_assert_ptr_eq(feature_lacked(system, WHERE_CUDA), row("numbers in another type than bf16"));
    system->row_bytes = 12;
    assert_lacks(system, WHERE_CPU, row("cached rows of no"));
    system_close(system);
    system = system_with("dllm-serve", "llada-tiny", "decoder=entropy-bounded");
    ck_assert_ptr_ne(feature_lacked(system, WHERE_CUDA), row("rules that rank"));
    system->settings.block_tokens = 5000;
    ck_assert_ptr_eq(feature_lacked(system, WHERE_CUDA), row("rules that rank"));
    system_close(system);
}

/* On the CPU fp8 runs next to float32, on a GPU next to bf16,. */
TEST(fp8_runs_next_to_the_type_that_a_back_end_computes_in) {
    static const char *const set[] = {
        "storage.weights=fp8 storage.wide=f32",
        "storage.weights=fp8 storage.wide=f32 storage.activations=f32",
        "storage.weights=fp8-channel storage.wide=f32",
        "storage.weights=f32 storage.head=fp8 storage.activations=fp8",
        "storage.weights=f32 storage.cache=fp8",
        "storage.weights=fp8 storage.wide=bf16",
        "storage.head=fp8 storage.activations=bf16",
        "storage.weights=bf16 storage.cache=fp8",
    };
    for (size_t i = 0; i < sizeof set / sizeof set[0]; i++) {
        struct system *system = system_with("dllm-serve", "llada-tiny", set[i]);
        struct err err = {0};
        ck_assert_ptr_eq(feature_lacked(system, WHERE_CPU),
                         i < 5 ? NULL : row("numbers in another type than f32"));
        ck_assert_ptr_eq(feature_lacked(system, WHERE_CUDA),
                         i < 5 ? row("numbers in another type than bf16") : NULL);
        ck_assert_int_eq(supports_system(system, WHERE_CUDA, &err), i < 5 ? ERR_USAGE : 0);
        ck_assert(i >= 5 || strstr(err.text, "with fp8 storage.wide = bf16") != NULL);
        system_close(system);
    }
    struct system *system = system_with("fast-dllm", "dream-tiny",
                                        "tensor_parallel=2 storage.weights=fp8 "
                                        "storage.wide=bf16");
    ck_assert_ptr_null(feature_lacked(system, WHERE_CUDA | WHERE_RANKS));
    system_close(system);
    system = system_with("sdar", "sdar-tiny",
                         "decoder=self-speculation decoder.accept=same storage.weights=bf16 "
                         "storage.cache=fp8");
    assert_lacks(system, WHERE_CUDA, row("checks of drafts"));
    system_close(system);
}

TEST(heads_that_a_gpu_has_no_attention_for_are_refused) {
    struct system *system = system_with("dllm-serve", "llada-tiny", "storage.weights=bf16");
    struct model model = *system->model;
    system->model = &model;
    for (uint32_t head = 8; head <= 512; head += 8) {
        const bool taken = head == 64 || head == 96 || head == 128 || head == 256;
        model.head_dim = head;
        static const enum row_kind kinds[] = {ROW_KV, ROW_EXACT, ROW_PATTERN};
        for (int kind = 0; kind < 3; kind++) {
            system->rows.kind = kinds[kind];
            system->rows.pattern.tokens = 128;
            ck_assert_ptr_eq(feature_lacked(system, WHERE_CUDA),
                             taken ? NULL : row("heads of other"));
        }
    }
#define HEAD(D) ck_assert_ptr_nonnull(strstr(row("heads of other")->name, #D));
    HEAD_SIZES(HEAD)
#undef HEAD
    system_close(system);
}

/* Layers with a window run on GPUs, with heads that pages are attended to by, and gelu next to
 * products in bf16. */
TEST(windows_and_gelu_run_on_gpus_in_bf16) {
    static const struct {
        const char *settings, *lacked;
        unsigned where;
    } runs[] = {
        {"model.global_head_dim=64", NULL, WHERE_CUDA},
        {"model.global_head_dim=64", NULL, WHERE_CUDA | WHERE_RANKS},
        {"model.global_head_dim=512", NULL, WHERE_CUDA},
        {"model.global_head_dim=320", "heads of other", WHERE_CUDA},
    };
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        char settings[512];
        snprintf(settings, sizeof settings,
                 "storage.weights=bf16 context_tokens=64 model.local_window=64 "
                 "model.global_every=2 model.global_kv_heads=1 %s",
                 runs[i].settings);
        struct system *system = system_with("sdar", "sdar-tiny", settings);
        ck_assert_ptr_eq(feature_lacked(system, runs[i].where),
                         runs[i].lacked != NULL ? row(runs[i].lacked) : NULL);
        system_close(system);
    }
    struct system *system = system_with("dllm-serve", "llada-tiny",
                                        "model.gelu=on storage.weights=fp8 storage.wide=bf16");
    assert_lacks(system, WHERE_CUDA, row("gelu with"));
    system_close(system);
}

/* ---- every system ---- */

static const char *tiny_model(const struct system *system) {
    return system->model->mask == MASK_BIDIRECTIONAL ? "llada-tiny"
           : system->model->experts > 0              ? "llada2-tiny"
           : system->model->mask == MASK_CAUSAL      ? NULL
                                                     : "sdar-tiny";
}

static int count_opened(void *state, const char *name, const char *doc) {
    (void)doc;
    uint32_t *counts = state;
    struct err err = {0};
    const struct system_request own = {.system = name, .gpu = "h200", .roofline = true};
    struct system *system = NULL;
    ck_assert_msg(system_open(&own, &system, &err) == 0, "%s: %s", name, err.text);
    const char *model = tiny_model(system);
    const bool is_of_noise = system->model->uniform_noise;
    system_close(system);
    if (model == NULL) {
        return 0;
    }
    system = system_with(name, model,
                         is_of_noise ? NOISE "max_requests=4 max_batched_tokens=2048"
                                     : "storage.weights=f32 max_requests=4 max_batched_tokens=2048 "
                                       "expert_parallel=off tensor_parallel=1");
    struct engine_request asked = {.backend = BACKEND_CPU, .weights = "random:3", .system = system};
    struct engine *engine = NULL;
    const bool runs = supports_system(system, WHERE_CPU, &err) == 0;
    err = (struct err){0};
    const int status =
        system_serves(system, &err) != 0 ? ERR_USAGE : engine_open(&asked, &engine, &err);
    ck_assert_msg((status == 0) == runs, "%s: %s", name, err.text);
    counts[runs]++;
    if (status == 0) {
        engine_close(engine);
    }
    system_close(system);
    return 0;
}

TEST(each_system_opens_or_is_refused_by_the_table) {
    uint32_t counts[2] = {0};
    struct err err = {0};
    ck_assert_int_eq(system_list(count_opened, counts, &err), 0);
    ck_assert_uint_gt(counts[0], 20);
    ck_assert_uint_gt(counts[1], 20);
}

/* Every table says of these that they are simulated only: of what was released, and of designs on
 * another runtime than ours. */
static int runs_as_said(void *state, const char *name, const char *doc) {
    (void)doc;
    uint32_t *counts = state;
    struct err err = {0};
    struct released released;
    const struct feature *lacked;
    ck_assert_int_eq(released_named(name, &released, &err), 0);
    ck_assert_int_eq(released_lacks(name, &lacked, &err), 0);
    ck_assert_msg(!released.is_published || lacked != NULL, "%s runs live", name);

    char *said = NULL;
    size_t size;
    FILE *out = open_memstream(&said, &size);
    released_print(&name, 1, out);
    ck_assert_int_eq(fclose(out), 0);
    ck_assert_msg((strstr(said, "simulated only") != NULL) == (lacked != NULL), "%s", said);
    ck_assert_msg((strstr(said, "our own runtime") != NULL) == (lacked == NULL), "%s", said);
    free(said);
    counts[lacked != NULL]++;
    return 0;
}

TEST(what_is_simulated_only_is_called_so) {
    uint32_t counts[2] = {0};
    struct err err = {0};
    ck_assert_int_eq(system_list(runs_as_said, counts, &err), 0);
    ck_assert_uint_gt(counts[0], 20);
    ck_assert_uint_gt(counts[1], 20);
}

SUITE("supported")
