#include "sim/model/model.h"

#include <math.h>
#include <string.h>

#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/model/ranks.h"

/* Shapes read from the models' configuration files or from the graph builders of public serving
 * code; "U" in a source marks a shape taken over from the model it was trained from. */
const char *const attention_mask_names[ATTENTION_MASK_COUNT] = {"bidirectional", "block-causal",
                                                                "autoregressive"};
const char *const router_kind_names[ROUTER_KIND_COUNT] = {"none", "softmax", "sigmoid-grouped"};

const struct model model_table[] = {
    {.name = "llada-8b",
     .title = "LLaDA-8B Base/Instruct/1.5",
     .layers = 32,
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 32,
     .head_dim = 128,
     .ffn = 12288,
     .vocab = 126464,
     .max_positions = 4096,
     .mask_token = 126336,
     .mask = MASK_BIDIRECTIONAL,
     .block_tokens = 32,
     .source = "GSAI-ML/LLaDA-8B-Instruct config; arXiv 2502.09992"},
    {.name = "dream-7b",
     .title = "Dream-v0 7B Base/Instruct",
     .layers = 28,
     .hidden = 3584,
     .heads = 28,
     .kv_heads = 4,
     .head_dim = 128,
     .ffn = 18944,
     .vocab = 152064,
     .max_positions = 131072,
     .mask_token = 151666,
     .qkv_bias = true,
     .shifted_logits = true,
     .mask = MASK_BIDIRECTIONAL,
     .block_tokens = 32,
     .source = "Dream-org/Dream-v0 config; max positions of Qwen2.5 (U), trained at 2048"},
    {.name = "sdar-1.7b",
     .title = "SDAR-1.7B-Chat",
     .layers = 28,
     .hidden = 2048,
     .heads = 16,
     .kv_heads = 8,
     .head_dim = 128,
     .ffn = 6144,
     .vocab = 151936,
     .max_positions = 32768,
     .mask_token = 151669,
     .qk_norm = true,
     .tied = true,
     .mask = MASK_BLOCK_CAUSAL,
     .block_tokens = 4,
     .source = "Qwen3-1.7B shape (U)"},
    {.name = "sdar-4b",
     .title = "SDAR-4B-Chat",
     .layers = 36,
     .hidden = 2560,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .ffn = 9728,
     .vocab = 151936,
     .max_positions = 32768,
     .mask_token = 151669,
     .qk_norm = true,
     .mask = MASK_BLOCK_CAUSAL,
     .block_tokens = 4,
     .source = "JetAstra/SDAR training/model config.json"},
    {.name = "sdar-8b",
     .title = "SDAR-8B-Chat",
     .layers = 36,
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .ffn = 12288,
     .vocab = 151936,
     .max_positions = 32768,
     .mask_token = 151669,
     .qk_norm = true,
     .mask = MASK_BLOCK_CAUSAL,
     .block_tokens = 4,
     .source = "JetAstra/SDAR training/model config.json"},
    {.name = "fast-dllm-v2-7b",
     .title = "Fast_dLLM_v2_7B",
     .layers = 28,
     .hidden = 3584,
     .heads = 28,
     .kv_heads = 4,
     .head_dim = 128,
     .ffn = 18944,
     .vocab = 152064,
     .max_positions = 32768,
     .mask_token = 151665,
     .qkv_bias = true,
     .shifted_logits = true,
     .mask = MASK_BLOCK_CAUSAL,
     .block_tokens = 32,
     .source = "Qwen2.5-7B shape; max positions (U)"},
    {.name = "llama-3.1-8b",
     .title = "Llama-3.1-8B",
     .layers = 32,
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .ffn = 14336,
     .vocab = 128256,
     .max_positions = 131072,
     .mask_token = NO_MASK_TOKEN,
     .mask = MASK_CAUSAL,
     .block_tokens = 1,
     .source = "meta-llama/Llama-3.1-8B config"},
    {.name = "qwen2.5-3b",
     .title = "Qwen2.5-3B",
     .layers = 36,
     .hidden = 2048,
     .heads = 16,
     .kv_heads = 2,
     .head_dim = 128,
     .ffn = 11008,
     .vocab = 151936,
     .max_positions = 32768,
     .mask_token = NO_MASK_TOKEN,
     .qkv_bias = true,
     .tied = true,
     .mask = MASK_CAUSAL,
     .block_tokens = 1,
     .source = "Qwen/Qwen2.5-3B config"},
    {.name = "llada-moe",
     .title = "LLaDA-MoE-7B-A1B",
     .layers = 16,
     .hidden = 2048,
     .heads = 16,
     .kv_heads = 16,
     .head_dim = 128,
     .vocab = 157184,
     .max_positions = 8192,
     .mask_token = 156895,
     .qk_norm = true,
     .mask = MASK_BIDIRECTIONAL,
     .block_tokens = 64,
     .router = ROUTER_SOFTMAX,
     .experts = 64,
     .experts_active = 8,
     .expert_ffn = 1024,
     .expert_groups = 1,
     .expert_groups_active = 1,
     .routed_scale = 1,
     .source = "inclusionAI/LLaDA-MoE-7B-A1B config; weights that are not divided by their sum: "
               "norm_topk_prob's default"},
    {.name = "sdar-30b-a3b",
     .title = "SDAR-30B-A3B",
     .layers = 48,
     .hidden = 2048,
     .heads = 32,
     .kv_heads = 4,
     .head_dim = 128,
     .vocab = 151936,
     .max_positions = 32768,
     .mask_token = 151669,
     .qk_norm = true,
     .mask = MASK_BLOCK_CAUSAL,
     .block_tokens = 4,
     .router = ROUTER_SOFTMAX,
     .experts = 128,
     .experts_active = 8,
     .expert_ffn = 768,
     .expert_groups = 1,
     .expert_groups_active = 1,
     .norm_topk = true,
     .routed_scale = 1,
     .source = "Qwen3-30B-A3B shape (U)"},
    {.name = "llada2-mini",
     .title = "LLaDA2.0-mini (16B-A1.4B)",
     .layers = 20,
     .hidden = 2048,
     .heads = 16,
     .kv_heads = 4,
     .head_dim = 128,
     .rotary_dim = 64,
     .ffn = 5120,
     .vocab = 157184,
     .max_positions = 32768,
     .mask_token = 156895,
     .qk_norm = true,
     .mask = MASK_BLOCK_CAUSAL,
     .block_tokens = 32,
     .router = ROUTER_SIGMOID_GROUPED,
     .experts = 256,
     .experts_active = 8,
     .block_experts_hit = 69.5,
     .block_experts_hit_source = "arXiv 2605.30876v2, Table 2: mean of four benchmarks",
     .expert_ffn = 512,
     .shared_experts = 1,
     .shared_ffn = 512,
     .dense_layers = 1,
     .expert_groups = 8,
     .expert_groups_active = 4,
     .expert_bias = true,
     .norm_topk = true,
     .routed_scale = 2.5,
     .source = "inclusionAI/LLaDA2.0-mini config; inclusionAI/dFactory llada2_mini config.json "
               "(rotation, "
               "router)"},
    {.name = "llada2-flash",
     .title = "LLaDA2.0-flash (100B-A6.1B)",
     .layers = 32,
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 4,
     .head_dim = 128,
     .rotary_dim = 64,
     .ffn = 9216,
     .vocab = 157184,
     .max_positions = 32768,
     .mask_token = 156895,
     .qk_norm = true,
     .mask = MASK_BLOCK_CAUSAL,
     .block_tokens = 32,
     .router = ROUTER_SIGMOID_GROUPED,
     .experts = 256,
     .experts_active = 8,
     .expert_ffn = 1024,
     .shared_experts = 1,
     .shared_ffn = 1024,
     .dense_layers = 1,
     .expert_groups = 8,
     .expert_groups_active = 4,
     .expert_bias = true,
     .norm_topk = true,
     .routed_scale = 2.5,
     .source = "inclusionAI/dFactory llada2_flash config.json"},
    {.name = "llada-tiny",
     .title = "LLaDA in small, for tests",
     .layers = 4,
     .hidden = 256,
     .heads = 2,
     .kv_heads = 2,
     .head_dim = 128,
     .ffn = 512,
     .vocab = 1024,
     .max_positions = 4096,
     .mask_token = 1023,
     .mask = MASK_BIDIRECTIONAL,
     .block_tokens = 32,
     .source = "a test's own shape"},
    {.name = "dream-tiny",
     .title = "Dream in small, for tests",
     .layers = 4,
     .hidden = 512,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 128,
     .ffn = 1024,
     .vocab = 1536,
     .max_positions = 4096,
     .mask_token = 1535,
     .qkv_bias = true,
     .shifted_logits = true,
     .mask = MASK_BIDIRECTIONAL,
     .block_tokens = 32,
     .source = "a test's own shape"},
    {.name = "sdar-tiny",
     .title = "SDAR in small, for tests",
     .layers = 4,
     .hidden = 384,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 128,
     .ffn = 768,
     .vocab = 1280,
     .max_positions = 4096,
     .mask_token = 1279,
     .qk_norm = true,
     .tied = true,
     .mask = MASK_BLOCK_CAUSAL,
     .block_tokens = 4,
     .source = "a test's own shape"},
    {.name = "fast-dllm-v2-tiny",
     .title = "Fast-dLLM v2 in small, for tests",
     .layers = 4,
     .hidden = 384,
     .heads = 3,
     .kv_heads = 1,
     .head_dim = 128,
     .ffn = 768,
     .vocab = 1280,
     .max_positions = 4096,
     .mask_token = 1279,
     .qkv_bias = true,
     .shifted_logits = true,
     .mask = MASK_BLOCK_CAUSAL,
     .block_tokens = 32,
     .source = "a test's own shape"},
    {.name = "qwen2.5-tiny",
     .title = "Qwen2.5 in small, for tests",
     .layers = 4,
     .hidden = 384,
     .heads = 4,
     .kv_heads = 1,
     .head_dim = 128,
     .ffn = 640,
     .vocab = 1152,
     .max_positions = 4096,
     .mask_token = NO_MASK_TOKEN,
     .qkv_bias = true,
     .tied = true,
     .mask = MASK_CAUSAL,
     .block_tokens = 1,
     .source = "a test's own shape"},
    {.name = "llada-moe-tiny",
     .title = "LLaDA-MoE in small, for tests",
     .layers = 3,
     .hidden = 256,
     .heads = 2,
     .kv_heads = 2,
     .head_dim = 128,
     .vocab = 1024,
     .max_positions = 4096,
     .mask_token = 1023,
     .qk_norm = true,
     .mask = MASK_BIDIRECTIONAL,
     .block_tokens = 32,
     .router = ROUTER_SOFTMAX,
     .experts = 16,
     .experts_active = 4,
     .expert_ffn = 128,
     .expert_groups = 1,
     .expert_groups_active = 1,
     .routed_scale = 1,
     .source = "a test's own shape"},
    {.name = "llada2-tiny",
     .title = "LLaDA2.0 in small, for tests",
     .layers = 3,
     .hidden = 256,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 128,
     .rotary_dim = 64,
     .ffn = 512,
     .vocab = 1280,
     .max_positions = 4096,
     .mask_token = 1279,
     .qk_norm = true,
     .mask = MASK_BLOCK_CAUSAL,
     .block_tokens = 32,
     .router = ROUTER_SIGMOID_GROUPED,
     .experts = 32,
     .experts_active = 4,
     .expert_ffn = 64,
     .shared_experts = 1,
     .shared_ffn = 64,
     .dense_layers = 1,
     .expert_groups = 8,
     .expert_groups_active = 4,
     .expert_bias = true,
     .norm_topk = true,
     .routed_scale = 2.5,
     .source = "a test's own shape"},
};
const size_t model_table_size = sizeof model_table / sizeof model_table[0];

const struct model *model_find(const char *name, struct err *err) {
    const char *names[sizeof model_table / sizeof model_table[0] + 1] = {NULL};
    for (size_t i = 0; i < model_table_size; i++) {
        if (strcmp(model_table[i].name, name) == 0) {
            return &model_table[i];
        }
        names[i] = model_table[i].name;
    }
    char hint[NAME_HINT_CHARS];
    name_hint(name, names, hint);
    err_usage(err, "unknown model '%s'%s (`unmask list models` prints them all)", name, hint);
    return NULL;
}

static int64_t attention_parameters(const struct model *m) {
    int64_t q_dim = (int64_t)m->heads * m->head_dim, kv_dim = (int64_t)m->kv_heads * m->head_dim;
    int64_t biases = m->qkv_bias ? q_dim + 2 * kv_dim : 0;
    int64_t norms = m->qk_norm ? 2 * (int64_t)m->head_dim : 0;
    return m->hidden * (2 * q_dim + 2 * kv_dim) + biases + norms + 2 * (int64_t)m->hidden;
}

static int64_t swiglu_parameters(const struct model *m, int64_t width) {
    return 3 * (int64_t)m->hidden * width;
}

static int64_t router_parameters(const struct model *m) {
    int64_t routed = model_routed_experts(m);
    return (int64_t)m->hidden * routed + (m->expert_bias ? routed : 0);
}

/* All layers; each mixture layer with `experts` routed experts. */
static int64_t layers_parameters(const struct model *m, uint32_t experts) {
    int64_t dense_layers = model_first_mixture(m);
    int64_t mixture_layers = m->layers - dense_layers;
    return m->layers * attention_parameters(m) + dense_layers * swiglu_parameters(m, m->ffn) +
           mixture_layers *
               (experts * swiglu_parameters(m, m->expert_ffn) +
                m->shared_experts * swiglu_parameters(m, m->shared_ffn) + router_parameters(m)) +
           m->hidden;
}

int64_t model_head_parameters(const struct model *model) {
    return (int64_t)model->vocab * model->hidden;
}

int64_t model_parameters(const struct model *model) {
    int64_t embedding = model_ranks(model) * model_head_parameters(model);
    return layers_parameters(model, model->experts) + embedding +
           (model->tied ? 0 : model_head_parameters(model));
}

int64_t model_trunk_active_parameters(const struct model *model) {
    return layers_parameters(model, model->experts_active);
}

int64_t model_weights_bytes(const struct model *model) {
    return BF16_BYTES * model_parameters(model);
}

int64_t model_kv_bytes_per_token(const struct model *model) {
    return 2LL * BF16_BYTES * model->layers * model->kv_heads * model->head_dim;
}

int64_t model_logits_bytes_per_row(const struct model *model, int64_t element_bytes) {
    return element_bytes * model->vocab;
}

int64_t model_feature_cache_bytes_per_token(const struct model *model) {
    return 2LL * BF16_BYTES * model->layers *
           ((int64_t)model->kv_heads * model->head_dim + model->hidden);
}

double model_flops_per_token(const struct model *model) {
    return 2.0 * (double)model_trunk_active_parameters(model);
}

double model_head_flops_per_row(const struct model *model) {
    return 2.0 * (double)model_head_parameters(model);
}

double model_experts_hit(uint32_t experts, uint32_t experts_active, double n_tokens) {
    return experts * (1 - pow(1 - (double)experts_active / experts, n_tokens));
}
