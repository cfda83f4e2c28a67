/* Models and GPUs: computed sizes against the figures published or derived for them. */
#include "sim/model/gpu.h"
#include "sim/model/model.h"
#include "tests/support/says.h"
#include "tests/support/suite.h"

#include <string.h>

/* Parameters in billions, weights in GiB, active trunk and head in billions, KV and feature cache
 * in KiB per token, bf16 logits in KiB per row. Computed by hand from the configurations; the
 * parameter counts agree with the model cards (8.02 B, 7.62 B, 30.5 B, 16.26 B, 102.9 B). */
struct expected {
    const char *name;
    double parameters, weights_gib, trunk_active, head;
    double kv_kib, logits_kib, feature_kib;
};

static const struct expected expected_table[] = {
    {"llada-8b", 8.02, 14.9, 6.98, 0.518, 512, 247, 1024},
    {"dream-7b", 7.62, 14.2, 6.53, 0.545, 56, 297, 448},
    {"llada-moe", 7.36, 13.7, 1.08, 0.322, 128, 307, 256},
    {"sdar-4b", 4.41, 8.2, 3.63, 0.389, 144, 297, 504},
    {"sdar-8b", 8.19, 15.3, 6.95, 0.622, 144, 297, 720},
    {"sdar-30b-a3b", 30.5, 56.9, 2.73, 0.311, 96, 297, 480},
    {"llada2-mini", 16.26, 30.3, 0.79, 0.322, 40, 307, 200},
    {"llada2-flash", 102.9, 191.7, 4.86, 0.644, 64, 307, 576},
    {"diffusiongemma", 25.25, 47.03, 3.10, 0.738, 220, 512, 550},
    {"llama-3.1-8b", 8.03, 14.96, 6.98, 0.525, 128, 250.5, 640},
    {"qwen2.5-3b", 3.09, 5.75, 2.77, 0.311, 36, 296.75, 324},
    {"qwen3-8b", 8.19, 15.3, 6.95, 0.622, 144, 297, 720}, /* sdar-8b's shape */
};

TEST(computed_sizes_agree_with_the_derived_table) {
    for (size_t i = 0; i < sizeof expected_table / sizeof expected_table[0]; i++) {
        const struct expected *e = &expected_table[i];
        struct err err = {0};
        const struct model *m = model_find(e->name, &err);
        ck_assert_msg(m != NULL, "%s", err.text);
        ck_assert_double_eq_tol((double)model_parameters(m) * 1e-9 / e->parameters, 1, 0.004);
        ck_assert_double_eq_tol((double)model_weights_bytes(m, &(struct storage){0}) / 0x1p30 /
                                    e->weights_gib,
                                1, 0.006);
        ck_assert_double_eq_tol((double)model_trunk_active_parameters(m) * 1e-9 / e->trunk_active,
                                1, 0.01);
        ck_assert_double_eq_tol((double)model_head_parameters(m) * 1e-9 / e->head, 1, 0.003);
        ck_assert_double_eq_tol((double)model_kv_bytes_per_token(m, NUMBER_BF16) / 1024, e->kv_kib,
                                1e-9);
        ck_assert_double_eq_tol((double)model_logits_bytes_per_row(m, 2) / 1024 / e->logits_kib, 1,
                                0.003);
        ck_assert_double_eq_tol((double)model_feature_cache_bytes_per_token(m, NUMBER_BF16) / 1024,
                                e->feature_kib, 1e-9);
    }
}

TEST(flops_of_llada_8b_are_fourteen_billion_a_token_and_one_a_logit_row) {
    struct err err = {0};
    const struct model *m = model_find("llada-8b", &err);
    ck_assert_double_eq_tol(model_flops_per_token(m) * 1e-9, 14.0, 0.05);
    ck_assert_double_eq_tol(model_head_flops_per_row(m) * 1e-9, 1.036, 0.001);
}

TEST(the_papers_logit_tensor_is_8_3_gigabytes) {
    struct err err = {0};
    const struct model *m = model_find("llada-8b", &err);
    /* dLLM-Serve, section 3.2: B = 16, L = 2048, fp16. */
    double bytes = 16.0 * 2048 * (double)model_logits_bytes_per_row(m, BF16_BYTES);
    ck_assert_double_eq_tol(bytes * 1e-9, 8.29, 0.01);
}

TEST(every_row_is_complete_and_names_its_source) {
    struct err err = {0};
    const struct model *const *models = model_all(&err);
    const struct gpu *const *gpus = gpu_all(&err);
    ck_assert_msg(models != NULL && gpus != NULL, "%s", err.text);
    for (size_t i = 0; models[i] != NULL; i++) {
        const struct model *m = models[i];
        ck_assert(m->layers > 0 && m->hidden > 0 && m->heads % m->kv_heads == 0 && m->vocab > 0);
        ck_assert(m->experts == 0 ? m->ffn > 0 : m->experts_active > 0 && m->expert_ffn > 0);
        ck_assert(m->max_positions > 0 && m->block_tokens > 0);
        ck_assert_ptr_nonnull(m->source);
        ck_assert((m->mask == MASK_CAUSAL || m->uniform_noise) == (m->mask_token == NO_MASK_TOKEN));
        ck_assert(m->mask_token < m->vocab || m->mask_token == NO_MASK_TOKEN);
    }
    for (size_t i = 0; gpus[i] != NULL; i++) {
        const struct gpu *g = gpus[i];
        ck_assert(g->sms > 0 && g->memory_bytes > 0 && g->l2_bytes > 0);
        ck_assert(g->best_bandwidth <= g->peak_bandwidth && g->best_bandwidth > 0);
        /* GeForce cards run above their nominal boost clock. */
        ck_assert(g->best_bf16_flops > 0 && g->best_bf16_flops <= 1.11 * g->peak_bf16_flops);
        ck_assert(g->peak_fp64_flops > 0 && g->peak_fp64_flops < g->peak_bf16_flops);
        ck_assert_ptr_nonnull(g->source);
        bool is_processor = g->compute_capability == 0;
        ck_assert(g->donor == NULL || gpu_find(g->donor, &err)->profile != NULL);
        ck_assert(!is_processor || strstr(g->source, "assumed") == g->source);
    }
}

TEST(an_unknown_name_is_met_with_the_nearest) {
    struct err err = {0};
    ck_assert_ptr_null(model_find("lada-8b", &err));
    ASSERT_SAYS(err.text, "unknown model 'lada-8b'; did you mean 'llada-8b'? (`unmask list "
                          "models` prints them all)");
    err = (struct err){0};
    ck_assert_ptr_null(gpu_find("rtx4080", &err));
    ck_assert_int_eq(err.kind, ERR_USAGE);
    ASSERT_SAYS(err.text, "unknown GPU 'rtx4080'; a card of your own is a file, --gpu ./mine.ini "
                          "(`unmask list gpus` prints them all)");
}

SUITE("model")
