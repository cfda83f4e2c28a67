/* Models out of config.json: what the published files say of each family, and what is refused. */
#include "sim/model/model_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sim/model/family.h"
#include "sim/model/gpu.h"
#include "sim/system/system_facts.h"
#include "tests/support/scratch.h"

/* The path of FOLDER/NAME/config.json with that text. */
static const char *write_config(const char *name, const char *text) {
    static char path[256];
    (void)mkdir(scratch_path(name), 0777);
    snprintf(path, sizeof path, "%s/config.json", name);
    return scratch_write(path, text);
}

#define SLIDING      "\"sliding_attention\""
#define FIVE_AND_ONE SLIDING "," SLIDING "," SLIDING "," SLIDING "," SLIDING ",\"full_attention\""

/* As their makers publish them, but for keys that say nothing of the model. */
static const struct {
    const char *model, *text;
} published[] = {
    {"llada-8b",
     "{\"activation_type\":\"silu\",\"alibi\":false,\"architectures\":[\"LLaDAModelLM\"],"
     "\"attention_layer_norm\":false,\"block_type\":\"llama\",\"d_model\":4096,"
     "\"embedding_size\":126464,\"include_bias\":false,\"include_qkv_bias\":false,"
     "\"layer_norm_type\":\"rms\",\"mask_token_id\":126336,\"max_sequence_length\":4096,"
     "\"mlp_hidden_size\":12288,\"model_type\":\"llada\",\"multi_query_attention\":null,"
     "\"n_heads\":32,\"n_kv_heads\":32,\"n_layers\":32,\"rms_norm_eps\":1e-05,\"rope\":true,"
     "\"rope_theta\":500000.0,\"vocab_size\":126464,\"weight_tying\":false}"},
    {"dream-7b",
     "{\"architectures\":[\"DreamModel\"],\"hidden_act\":\"silu\",\"hidden_size\":3584,"
     "\"intermediate_size\":18944,\"mask_token_id\":151666,"
     "\"max_position_embeddings\":131072,\"model_type\":\"Dream\","
     "\"num_attention_heads\":28,\"num_hidden_layers\":28,\"num_key_value_heads\":4,"
     "\"rms_norm_eps\":1e-06,\"rope_scaling\":null,\"rope_theta\":1000000.0,"
     "\"tie_word_embeddings\":false,\"use_sliding_window\":false,\"vocab_size\":152064}"},
    {"sdar-8b", "{\"architectures\":[\"SDARForCausalLM\"],\"attention_bias\":false,"
                "\"head_dim\":128,\"hidden_act\":\"silu\",\"hidden_size\":4096,"
                "\"intermediate_size\":12288,\"max_position_embeddings\":32768,"
                "\"model_type\":\"sdar\",\"num_attention_heads\":32,\"num_hidden_layers\":36,"
                "\"num_key_value_heads\":8,\"rms_norm_eps\":1e-06,\"rope_theta\":1000000,"
                "\"tie_word_embeddings\":false,\"vocab_size\":151936}"},
    {"qwen2.5-3b", "{\"architectures\":[\"Qwen2ForCausalLM\"],\"hidden_act\":\"silu\","
                   "\"hidden_size\":2048,\"intermediate_size\":11008,"
                   "\"max_position_embeddings\":32768,\"model_type\":\"qwen2\","
                   "\"num_attention_heads\":16,\"num_hidden_layers\":36,\"num_key_value_heads\":2,"
                   "\"rms_norm_eps\":1e-06,\"rope_theta\":1000000.0,\"tie_word_embeddings\":true,"
                   "\"use_sliding_window\":false,\"vocab_size\":151936}"},
    {"llama-3.1-8b",
     "{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,"
     "\"hidden_act\":\"silu\",\"hidden_size\":4096,\"intermediate_size\":14336,"
     "\"max_position_embeddings\":131072,\"mlp_bias\":false,"
     "\"num_attention_heads\":32,\"num_hidden_layers\":32,"
     "\"num_key_value_heads\":8,\"rms_norm_eps\":1e-05,\"rope_scaling\":{"
     "\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
     "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"},"
     "\"rope_theta\":500000.0,\"tie_word_embeddings\":false,\"vocab_size\":128256}"},
    {"llada-moe", "{\"architectures\":[\"LLaDAMoEModelLM\"],\"model_type\":\"lladamoe\","
                  "\"hidden_size\":2048,\"num_hidden_layers\":16,\"num_attention_heads\":16,"
                  "\"num_key_value_heads\":16,\"num_experts\":64,\"num_experts_per_tok\":8,"
                  "\"expert_intermediate_size\":1024,\"dense_intermediate_size\":8192,"
                  "\"max_position_embeddings\":8192,\"qk_layernorm\":true,\"rope_theta\":50000,"
                  "\"rms_norm_eps\":1e-05,\"hidden_act\":\"silu\",\"vocab_size\":157184}"},
    {"llada2-mini",
     "{\"first_k_dense_replace\":1,\"head_dim\":128,\"hidden_act\":\"silu\",\"hidden_size\":2048,"
     "\"intermediate_size\":5120,\"max_position_embeddings\":32768,\"model_type\":\"llada2_moe\","
     "\"moe_intermediate_size\":512,\"n_group\":8,\"norm_head\":false,\"norm_topk_prob\":true,"
     "\"num_attention_heads\":16,\"num_experts\":256,\"num_experts_per_tok\":8,"
     "\"num_hidden_layers\":20,\"num_key_value_heads\":4,\"num_shared_experts\":1,"
     "\"partial_rotary_factor\":0.5,\"rms_norm_eps\":1e-06,\"rope_theta\":600000,"
     "\"routed_scaling_factor\":2.5,\"score_function\":\"sigmoid\",\"tie_word_embeddings\":false,"
     "\"topk_group\":4,\"vocab_size\":157184}"},
    {"diffusiongemma",
     "{\"architectures\":[\"DiffusionGemmaForBlockDiffusion\"],\"canvas_length\":256,"
     "\"model_type\":\"diffusion_gemma\",\"tie_word_embeddings\":true,\"text_config\":{"
     "\"attention_bias\":false,\"attention_k_eq_v\":false,\"global_head_dim\":512,"
     "\"head_dim\":256,\"hidden_activation\":\"gelu_pytorch_tanh\",\"hidden_size\":2816,"
     "\"intermediate_size\":2112,\"layer_types\":[" FIVE_AND_ONE "," FIVE_AND_ONE "," FIVE_AND_ONE
     "," FIVE_AND_ONE "," FIVE_AND_ONE "],"
     "\"max_position_embeddings\":262144,\"model_type\":\"diffusion_gemma_text\","
     "\"moe_intermediate_size\":704,\"num_attention_heads\":16,\"num_experts\":128,"
     "\"num_global_key_value_heads\":2,\"num_hidden_layers\":30,\"num_key_value_heads\":8,"
     "\"rms_norm_eps\":1e-06,\"sliding_window\":1024,\"top_k_experts\":8,"
     "\"vocab_size\":262144}}"},
};

TEST(published_configurations_are_the_models_of_the_data_folder) {
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        struct err err = {0};
        const struct model *ours = model_find(published[i].model, &err);
        const struct model *read = model_find(write_config("one", published[i].text), &err);
        ck_assert_msg(read != NULL, "%s", err.text);
        ck_assert_str_eq(read->name, "one");
        ck_assert_msg(model_agree(ours, read, "one", &err) == 0, "%s", err.text);
        ck_assert_ptr_eq(model_recognise(read, &err), ours);
        /* What it does not state the family assumes as the data folder has it. */
        ck_assert_int_eq(model_parameters(read), model_parameters(ours));
        ck_assert_uint_eq(model_rotary_dim(read), model_rotary_dim(ours));
        ck_assert(read->mask == ours->mask && read->shifted_logits == ours->shifted_logits);
        ck_assert(read->router == ours->router && read->routed_scale == ours->routed_scale);
        ck_assert_uint_eq(read->mask_token, ours->mask_token);
        ck_assert_uint_eq(read->block_tokens, ours->block_tokens);
        ck_assert_uint_eq(read->expert_groups, ours->expert_groups);
        ck_assert_ptr_nonnull(strstr(read->assumed, "attention = "));
    }
}

/* With a folder's path, with and without a slash behind it. */
TEST(a_folder_stands_for_its_configuration) {
    struct err err = {0};
    char path[256];
    const struct model *model = model_find(write_config("folder", published[0].text), &err);
    snprintf(path, sizeof path, "%s", scratch_path("folder"));
    ck_assert_ptr_eq(model_find(path, &err), model);
    ck_assert_ptr_nonnull(model_find(strcat(path, "/"), &err));
    ck_assert_str_eq(model_find(path, &err)->name, "folder");
}

/* published[i] with one text replaced by another. */
static const char *changed(size_t i, const char *what, const char *by) {
    static char text[4096];
    const char *at = strstr(published[i].text, what);
    ck_assert_msg(at != NULL, "%s", what);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - published[i].text), published[i].text, by,
             at + strlen(what));
    return text;
}

TEST(what_the_file_says_counts_and_what_differs_is_named) {
    static const struct {
        size_t of;
        const char *what, *by, *sentence;
    } changes[] = {
        {2, "\"num_attention_heads\":32", "\"num_attention_heads\":64",
         "heads is 64, but sdar-8b has 32"},
        {0, "\"n_layers\":32", "\"n_layers\":99", "layers is 99, but llada-8b has 32"},
        {0, "126336", "7", "mask_token is 7, but llada-8b has 126336"},
        {0, "\"max_sequence_length\":4096", "\"max_sequence_length\":64", "max_positions is 64"},
        {0, "\"rope\":true", "\"rope\":true,\"qk_norm\":true", "qk_norm is on, but llada-8b"},
        {2, "\"tie_word_embeddings\":false", "\"tie_word_embeddings\":true", "tied is on"},
        {6, "\"routed_scaling_factor\":2.5", "\"routed_scaling_factor\":1", "routed_scale is 1"},
        {6, "0.5", "0.25", "rotary_dim is 32, but llada2-mini has 64"},
        {6, "\"n_group\":8", "\"n_group\":4", "expert_groups is 4"},
        {7, "\"sliding_window\":1024", "\"sliding_window\":512", "local_window is 512"},
        {7, "\"global_head_dim\":512", "\"global_head_dim\":256", "global_head_dim is 256"},
        {7, "\"num_global_key_value_heads\":2", "\"num_global_key_value_heads\":4",
         "global_kv_heads is 4"},
        {7, "\"canvas_length\":256,", "\"canvas_length\":256,\"self_conditioning_size\":64,",
         "conditioning_ffn is 64"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct err err = {0};
        const struct model *ours = model_find(published[changes[i].of].model, &err);
        const char *text = changed(changes[i].of, changes[i].what, changes[i].by);
        const struct model *read = model_find(write_config("changed", text), &err);
        ck_assert_msg(read != NULL, "%s", err.text);
        ck_assert_int_eq(model_agree(ours, read, "PATH", &err), ERR_WORLD);
        ck_assert_msg(strstr(err.text, changes[i].sentence) != NULL, "%s", err.text);
        err = (struct err){0};
        ck_assert_ptr_eq(model_recognise(read, &err), read);
    }
}

/* Layers of which every n-th sees everything, and no others. */
TEST(layers_out_of_order_are_refused) {
    static const struct {
        const char *what, *by, *sentence;
    } changes[] = {
        {SLIDING ",\"full_attention\"," SLIDING, SLIDING "," SLIDING ",\"full_attention\"",
         "layer 12 of text_config.layer_types is out of the order of every 7-th"},
        {SLIDING, "\"chunked_attention\"", "neither sliding_attention nor full_attention"},
        {"[" SLIDING "," SLIDING "," SLIDING "," SLIDING ",",
         "[" SLIDING "," SLIDING "," SLIDING ",\"full_attention\",",
         "layer 6 of text_config.layer_types is out of the order of every 4-th"},
        {"\"num_hidden_layers\":30", "\"num_hidden_layers\":28",
         "text_config.layer_types has 30 layers, and the model 28"},
        {"," SLIDING ",\"full_attention\"]", "]",
         "text_config.layer_types has 28 layers, and the model 30"},
        {"\"top_k_experts\":8", "\"top_k_experts\":[8]",
         "top_k_experts: '[8]' is not a value for experts_active of the model"},
        {"\"sliding_window\":1024", "\"sliding_window\":0",
         "local_window, global_every, global_kv_heads and global_head_dim are all 0, or none of "
         "them"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct err err = {0};
        const char *text = changed(7, changes[i].what, changes[i].by);
        ck_assert_ptr_null(model_find(write_config("layers", text), &err));
        ck_assert_msg(strstr(err.text, changes[i].sentence) != NULL, "%s", err.text);
    }
}

/* As transformers' Gemma4TextConfig has it. */
TEST(what_a_gemma_leaves_out_is_as_its_code_has_it) {
    static const struct {
        const char *what;
        uint32_t head_dim, global_head_dim, global_kv_heads;
    } left_out[] = {
        {"\"head_dim\":256,", 256, 512, 2},
        {"\"global_head_dim\":512,", 256, 512, 2},
        {"\"num_global_key_value_heads\":2,", 256, 512, 8},
    };
    for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++) {
        struct err err = {0};
        const struct model *read =
            model_find(write_config("gemma", changed(7, left_out[i].what, "")), &err);
        ck_assert_msg(read != NULL, "%s", err.text);
        ck_assert_uint_eq(read->head_dim, left_out[i].head_dim);
        ck_assert_uint_eq(read->global_head_dim, left_out[i].global_head_dim);
        ck_assert_uint_eq(read->global_kv_heads, left_out[i].global_kv_heads);
    }
}

#define FP8(rest)        "{\"quant_method\":\"fp8\"" rest "}"
#define COMPRESSED(rest) "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{" rest "}}"
#define GROUP(weights, inputs)                                                                     \
    "\"group_0\":{\"targets\":[\"Linear\"],\"weights\":" weights ",\"input_activations\":" inputs  \
    "}"
#define FLOAT8(rest) "{\"num_bits\":8,\"type\":\"float\"," rest "}"
#define BY_TOKEN     FLOAT8("\"strategy\":\"token\",\"dynamic\":true")

/* As published checkpoints say it: what is read, and what is refused, by its name. */
TEST(quantised_checkpoints_are_read_or_refused_by_their_method) {
    static const struct {
        const char *config, *type, *sentence;
    } cases[] = {
        {FP8(",\"activation_scheme\":\"dynamic\",\"fmt\":\"e4m3\",\"weight_block_size\":[128,128]"),
         "fp8", NULL},
        {FP8(",\"activation_scheme\":\"dynamic\",\"ignored_layers\":[\"lm_head\"]"), "fp8-channel",
         NULL},
        {"{\"quant_method\":\"fbgemm_fp8\",\"activation_scale_ub\":1200.0}", "fp8-channel", NULL},
        {COMPRESSED(GROUP(FLOAT8("\"strategy\":\"channel\""), BY_TOKEN)), "fp8-channel", NULL},
        {COMPRESSED(GROUP(FLOAT8("\"strategy\":\"tensor\""), "null")), "fp8-channel", NULL},
        {COMPRESSED(
             GROUP(FLOAT8("\"strategy\":\"block\",\"block_structure\":[128,128]"), BY_TOKEN)),
         "fp8", NULL},
        {COMPRESSED(
             GROUP(FLOAT8("\"strategy\":\"block\",\"block_structure\":\"128x128\""), BY_TOKEN)),
         "fp8", NULL},
        {"{\"quant_method\":\"compressed-tensors\",\"transform_config\":{},\"sparsity_config\":"
         "{\"format\":\"dense\"},\"config_groups\":{" GROUP(FLOAT8("\"strategy\":\"channel\""),
                                                            BY_TOKEN) "}}",
         "fp8-channel", NULL},
        {"null", NULL, NULL},
        {FP8(",\"weight_block_size\":[64,128]"), NULL, "weight_block_size"},
        {FP8(",\"weight_block_size\":128"), NULL,
         "weight_block_size of quantization_config is 128"},
        {FP8(",\"activation_scheme\":\"static\""), NULL, "activation_scheme"},
        {FP8(",\"fmt\":\"e5m2\""), NULL, "fmt of quantization_config is \"e5m2\""},
        {FP8(",\"scale_fmt\":\"ue8m0\""), NULL, "scale_fmt"},
        {COMPRESSED(GROUP("{\"num_bits\":4,\"type\":\"int\",\"strategy\":\"group\"}", "null")),
         NULL,
         "quantised by compressed-tensors, and weights of quantization_config is {\"num_bits\":4"},
        {COMPRESSED(GROUP(FLOAT8("\"strategy\":\"channel\",\"symmetric\":false"), BY_TOKEN)), NULL,
         "symmetric of quantization_config is false"},
        {COMPRESSED(GROUP(FLOAT8("\"strategy\":\"channel\""),
                          BY_TOKEN ",\"output_activations\":" BY_TOKEN)),
         NULL, "output_activations"},
        {COMPRESSED(
             GROUP(FLOAT8("\"strategy\":\"block\",\"block_structure\":\"64x128\""), BY_TOKEN)),
         NULL, "block_structure of quantization_config is \"64x128\"; [128, 128] is read"},
        {COMPRESSED(GROUP(FLOAT8("\"strategy\":\"block\",\"block_structure\":\"all\""), BY_TOKEN)),
         NULL, "block_structure of quantization_config is \"all\""},
        {"{\"quant_method\":\"compressed-tensors\",\"transform_config\":{\"config_groups\":{}},"
         "\"config_groups\":{" GROUP(FLOAT8("\"strategy\":\"channel\""), BY_TOKEN) "}}",
         NULL, "transform_config"},
        {"{\"quant_method\":\"compressed-tensors\",\"sparsity_config\":{\"format\":"
         "\"sparse-24-bitmask\"},\"config_groups\":{" GROUP(FLOAT8("\"strategy\":\"channel\""),
                                                            BY_TOKEN) "}}",
         NULL, "sparsity_config"},
        {COMPRESSED(GROUP(FLOAT8("\"strategy\":\"group\""), BY_TOKEN)), NULL, "strategy"},
        {COMPRESSED(GROUP(FLOAT8("\"strategy\":\"channel\""),
                          FLOAT8("\"strategy\":\"tensor\",\"dynamic\":false"))),
         NULL, "input_activations"},
        {COMPRESSED(""), NULL, "one group is read"},
        {"{\"quant_method\":\"compressed-tensors\",\"kv_cache_scheme\":{},\"config_groups\":"
         "{" GROUP(FLOAT8("\"strategy\":\"channel\""), BY_TOKEN) "}}",
         NULL, "kv_cache_scheme"},
        {"{\"quant_method\":\"gptq\",\"bits\":4}", NULL, "quantised by gptq"},
        {"{\"quant_method\":\"awq\"}", NULL, "quantised by awq"},
        {"{\"quant_method\":\"bitsandbytes\",\"load_in_8bit\":true}", NULL, "by bitsandbytes"},
        {"{\"load_in_4bit\":false,\"load_in_8bit\":true}", NULL,
         "quantised by bitsandbytes, which"},
        {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\"}", NULL,
         "quantised by modelopt, NVFP4, which nothing here reads"},
        {"[]", NULL, "names no quant_method"},
        {"{\"quant_method\":8}", NULL, "names no quant_method"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = {0};
        char rope[800];
        snprintf(rope, sizeof rope, "\"rope\":true,\"quantization_config\":%s", cases[i].config);
        const struct model *read =
            model_find(write_config("quantised", changed(0, "\"rope\":true", rope)), &err);
        ck_assert_msg((read != NULL) == (cases[i].sentence == NULL), "%zu: %s", i, err.text);
        if (read != NULL && cases[i].type != NULL) {
            ck_assert_str_eq(read->quantised, cases[i].type);
        } else if (read != NULL) {
            ck_assert_ptr_null(read->quantised);
        } else {
            ck_assert_msg(strstr(err.text, cases[i].sentence) != NULL, "%s", err.text);
        }
    }
}

/* NVIDIA's checkpoints say it in a file of their own. */
TEST(a_file_of_modelopt_beside_config_json_is_looked_at) {
    static const struct {
        const char *said, *sentence;
    } cases[] = {
        {"{\"quantization\":{\"quant_algo\":\"NVFP4\"}}",
         "hf_quant_config.json: the weights are quantised by modelopt, NVFP4, which nothing here"},
        {"{\"quantization\":{\"quant_algo\":\"FP8\"}}", "quantised by modelopt, FP8,"},
        {"{\"quantization\":{\"quant_algo\":null}}", NULL},
        {"{}", NULL},
        {"{", "hf_quant_config.json:1: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = {0};
        char name[64];
        snprintf(name, sizeof name, "beside-%zu", i);
        const char *path = write_config(name, published[0].text);
        snprintf(name, sizeof name, "beside-%zu/hf_quant_config.json", i);
        (void)scratch_write(name, cases[i].said);
        const struct model *read = model_find(path, &err);
        ck_assert_msg((read != NULL) == (cases[i].sentence == NULL), "%zu: %s", i, err.text);
        ck_assert(read != NULL || strstr(err.text, cases[i].sentence) != NULL);
    }
}

TEST(what_the_engine_does_not_run_is_refused) {
    static const struct {
        size_t of;
        const char *what, *by, *sentence;
    } changes[] = {
        {0, "\"silu\"", "\"gelu\"", "activation_type is gelu"},
        {0, "\"attention_layer_norm\":false", "\"attention_layer_norm\":true",
         "attention_layer_norm is true"},
        {0, "\"rope\":true", "\"rope\":true,\"rope_scaling\":{\"type\":\"yarn\"}", "'yarn'"},
        {0, "\"rope\":true", "\"rope\":true,\"quantization_config\":{\"bits\":4}",
         "names no quant_method"},
        {0, "\"n_layers\":32", "\"n_layers\":-1", "n_layers: '-1'"},
        {0, "\"n_layers\":32", "\"n_layers\":99999999999999999999", "too big"},
        {0, "\"n_layers\":32", "\"n_layers\":\"many\"", "n_layers: 'many'"},
        {0, "\"n_layers\":32,", "",
         "has no n_layers, from which a model of the family llada takes its layers"},
        {0, "\"mask_token_id\":126336", "\"mask_token_id\":126464", "mask_token = 126464"},
        {6, "\"model_type\":\"llada2_moe\"", "\"model_type\":\"gemma\"", "no family of models"},
        {6, "\"model_type\":\"llada2_moe\"", "\"model_type\":\"../x\"", "no family of models"},
        {1, "\"use_sliding_window\":false", "\"use_sliding_window\":true", "use_sliding_window"},
        {4, "\"factor\":8.0", "\"factor\":0.5", "needs a factor of at least 1"},
        {6, "0.5", "1.5", "partial_rotary_factor"},
        {6, "\"rms_norm_eps\"", "\"rotary_dim\":32,\"rms_norm_eps\"", "but rotary_dim is 32"},
        {6, "\"norm_head\":false", "\"use_rmsnorm\":false", "use_rmsnorm is false"},
        {0, "\"activation_type\"", "\"block_group_size\":2,\"activation_type\"", "group_size is 2"},
        {6, "\"sigmoid\"", "\"softmax\"", "score_function is softmax"},
        {6, "\"n_group\":8", "\"n_group\":7", "expert_groups must divide"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct err err = {0};
        const char *text = changed(changes[i].of, changes[i].what, changes[i].by);
        ck_assert_ptr_null(model_find(write_config("refused", text), &err));
        ck_assert_msg(strstr(err.text, changes[i].sentence) != NULL, "%s", err.text);
        ck_assert_msg(err.kind != ERR_NONE && strstr(err.text, scratch_folder) != NULL, "%s",
                      err.text);
    }
}

TEST(what_is_no_configuration_is_refused) {
    static const char *const texts[] = {
        "", "{", "[]", "3", "{}", "{\"model_type\":3}", "{\"architectures\":[\"Unknown\"]}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct err err = {0};
        ck_assert_ptr_null(model_find(write_config("none", texts[i]), &err));
        ck_assert_int_eq(err.kind, ERR_WORLD);
        ck_assert_msg(strstr(err.text, scratch_folder) != NULL, "%s", err.text);
    }
}

/* As LLaDA's configuration_llada.py and modeling_llada.py have it. */
TEST(an_ffn_without_a_width_is_a_multiple_of_the_channels) {
    static const struct {
        const char *by;
        uint32_t ffn;
        bool is_stated;
    } said[] = {{"\"mlp_ratio\":3,", 12288, true},
                {"\"mlp_hidden_size\":null,\"mlp_ratio\":5,", 20480, true},
                {"\"mlp_hidden_size\":12288,\"mlp_ratio\":4,", 12288, true},
                {"\"mlp_ratio\":null,", 16384, false},
                {"", 16384, false}};
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        struct err err = {0};
        const struct model *read = model_find(
            write_config("ratio", changed(0, "\"mlp_hidden_size\":12288,", said[i].by)), &err);
        ck_assert_msg(read != NULL, "%s", err.text);
        ck_assert_uint_eq(read->ffn, said[i].ffn);
        ck_assert_int_eq((read->stated & model_param_bit("ffn")) != 0, said[i].is_stated);
        ck_assert_int_eq(strstr(read->assumed, "ffn = 16384") != NULL, !said[i].is_stated);
    }
    static const char *const bad[] = {"0", "-1", "2.5", "\"4\"", "1048577"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err err = {0};
        char by[64];
        snprintf(by, sizeof by, "\"mlp_ratio\":%s,", bad[i]);
        ck_assert_ptr_null(
            model_find(write_config("ratio", changed(0, "\"mlp_hidden_size\":12288,", by)), &err));
        ck_assert_msg(strstr(err.text, "mlp_ratio must be a whole number from 1 to 1048576"), "%s",
                      err.text);
    }
    struct err err = {0};
    ck_assert_ptr_null(model_find(
        write_config("ratio", changed(0, "\"mlp_hidden_size\":12288,", "\"mlp_ratio\":1048576,")),
        &err));
    ck_assert_msg(strstr(err.text, "mlp_ratio") != NULL, "%s", err.text);
}

TEST(another_familys_ffn_is_no_multiple) {
    struct err err = {0};
    ck_assert_ptr_null(model_find(
        write_config("dream", changed(1, "\"intermediate_size\":18944", "\"mlp_ratio\":4")), &err));
    ck_assert_ptr_nonnull(strstr(err.text, "a model without experts needs an ffn above 0"));
}

#define CAPACITY(n) "\"expert_capacity\":" n ",\"vocab_size\":157184"

/* By the name that SGLang reads: how many experts the tokens of a block may use. */
TEST(the_experts_that_a_block_chooses_among_are_read) {
    static const char *const none[] = {CAPACITY("null"), CAPACITY("0")};
    struct err err = {0};
    const struct model *read = model_find(
        write_config("blocks", changed(6, "\"vocab_size\":157184", CAPACITY("48"))), &err);
    ck_assert_msg(read != NULL, "%s", err.text);
    ck_assert_uint_eq(read->block_experts, 48);
    ck_assert_uint_eq(read->block_routing, BLOCK_ROUTING_LARGEST);
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        read = model_find(write_config("one", changed(6, "\"vocab_size\":157184", none[i])), &err);
        ck_assert_msg(read != NULL, "%s", err.text);
        ck_assert_uint_eq(read->block_routing, BLOCK_ROUTING_NONE);
    }
    ck_assert_ptr_null(model_find(
        write_config("blocks", changed(6, "\"vocab_size\":157184", CAPACITY("7"))), &err));
    ck_assert_msg(strstr(err.text, "block_experts from experts_active (8)") != NULL, "%s",
                  err.text);
}

#define MOVES(gone, put)                                                                           \
    "\"delete_token_id\":" gone ",\"split_token_id\":" put ",\"vocab_size\":157184"

/* By the names that SGLang reads; both, or none, which are tokens of the model and not its mask. */
TEST(the_tokens_by_which_a_canvas_moves_are_read) {
    static const char *const bad[] = {MOVES("156930", "156930"), MOVES("156930", "156895"),
                                      MOVES("156895", "156931"), MOVES("157184", "156931"),
                                      MOVES("156930", "157184"), MOVES("156930", "null"),
                                      MOVES("null", "156931")};
    struct err err = {0};
    const struct model *read = model_find(
        write_config("moves", changed(6, "\"vocab_size\":157184", MOVES("156930", "156931"))),
        &err);
    ck_assert_msg(read != NULL, "%s", err.text);
    ck_assert_uint_eq(read->delete_token, 156930);
    ck_assert_uint_eq(read->insert_token, 156931);
    /* They are another model's than LLaDA2.0's, which has none. */
    ck_assert_ptr_eq(model_recognise(read, &err), read);
    ck_assert_uint_eq(model_find("llada2-mini", &err)->delete_token, 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        err = (struct err){0};
        ck_assert_ptr_null(
            model_find(write_config("moves", changed(6, "\"vocab_size\":157184", bad[i])), &err));
        ck_assert_msg(strstr(err.text, "must be two tokens below vocab = 157184") != NULL, "%s",
                      err.text);
    }
}

/* The class runs the model; its model_type may be that of the class which it began as. */
TEST(the_architecture_decides_the_family) {
    struct err err = {0};
    char text[2048];
    const char *moe = published[5].text, *type = "\"model_type\":\"lladamoe\"";
    const char *at = strstr(moe, type);
    const char *const said[] = {"\"model_type\":\"llada\"", "\"model_type\":\"llama\"",
                                "\"model_type\":\"own\"", "\"model_type\":null"};
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - moe), moe, said[i], at + strlen(type));
        const struct model *read = model_find(write_config("moe", text), &err);
        ck_assert_msg(read != NULL, "%s", err.text);
        ck_assert_str_eq(read->family, "lladamoe");
        ck_assert_ptr_null(read->architecture);
        ck_assert_ptr_eq(model_recognise(read, &err), model_find("llada-moe", &err));
    }
}

TEST(an_architecture_that_no_family_has_is_kept_for_a_warning) {
    struct err err = {0};
    const struct model *read = model_find(
        write_config("own", changed(3, "Qwen2ForCausalLM", "OwnDiffusionForCausalLM")), &err);
    ck_assert_msg(read != NULL, "%s", err.text);
    ck_assert_str_eq(read->family, "qwen2");
    ck_assert_str_eq(read->architecture, "OwnDiffusionForCausalLM");
}

/* Whether a system with this model warns that its architecture is known to no family. */
static bool warns_of_architecture(const char *model, const struct setting *set, uint32_t n) {
    const struct system_request request = {
        .system = "vllm-ar", .model = model, .gpu = "h100", .overrides = set, .n_overrides = n};
    struct warnings warnings = {0};
    struct system *system = NULL;
    struct err err = {0};
    ck_assert_msg(system_open(&request, &system, &err) == 0, "%s", err.text);
    system_warn_of_settings(system, &warnings);
    system_close(system);
    bool found = false;
    for (unsigned i = 0; i < warnings.n; i++) {
        found = found || warnings.items[i].code == WARNING_ARCHITECTURE_UNKNOWN;
    }
    return found;
}

TEST(a_system_warns_of_an_architecture_until_the_attention_is_said) {
    char own[512];
    const struct setting said = {
        .key = "model.attention", .value = "autoregressive", .place = "--set"};
    snprintf(own, sizeof own, "%s",
             write_config("own2", changed(3, "Qwen2ForCausalLM", "OwnDiffusionForCausalLM")));
    ck_assert(warns_of_architecture(own, NULL, 0));
    ck_assert(!warns_of_architecture(own, &said, 1));
    ck_assert(!warns_of_architecture(write_config("known", published[3].text), NULL, 0));
}

/* A small model of LLaDA's family does not have the mask token of the large one. */
TEST(a_mask_token_beyond_the_vocabulary_is_not_assumed) {
    struct err err = {0};
    static char text[2048];
    snprintf(text, sizeof text, "%s", changed(0, "\"mask_token_id\":126336,", ""));
    memcpy(strstr(text, "126464"), "002048", 6);
    memcpy(strstr(text, "126464"), "002048", 6);
    for (char *at = text; (at = strstr(at, ":00")) != NULL; at++) {
        memcpy(at, ":  ", 3);
    }
    ck_assert_ptr_null(model_find(write_config("small", text), &err));
    ck_assert_ptr_nonnull(strstr(err.text, "says no mask_token_id"));
}

/* Of all families, that nothing in their files is misspelt. */
TEST(every_family_says_what_a_model_has) {
    static const char *const names[] = {
        "Dream",    "Fast_dLLM_Qwen",  "a2d-llama",  "a2d-qwen2", "a2d-qwen3", "llada",
        "lladamoe", "llava_llada",     "llada2_moe", "llama",     "qwen2",     "qwen3",
        "rnd1",     "diffusion_gemma", "sdar",       "sdar_moe",  "wedlm",     "stable_diffcoder"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct err err = {0};
        struct family family;
        char found[64];
        ck_assert_msg(family_open(names[i], "test", &family, &err) == 0, "%s", err.text);
        for (size_t e = 0; e < family.own.n_entries; e++) {
            const struct config_entry *entry = &family.own.entries[e];
            bool is_of_model =
                strcmp(entry->section, "config") == 0 || strcmp(entry->section, "assumed") == 0;
            ck_assert_msg(!is_of_model ||
                              param_find(model_params, model_n_params, entry->key) != NULL,
                          "%s: %s", names[i], entry->key);
        }
        const char *architecture = family_value(&family, "family", "architectures");
        ck_assert_str_eq(family_of_architecture(architecture, found, sizeof found, &err), names[i]);
        ck_assert_ptr_nonnull(family_value(&family, "assumed", "rope_theta"));
        ck_assert_ptr_nonnull(family_value(&family, "tensors", "embedding"));
        family_close(&family);
    }
}

/* ---- cards ---- */

static const struct gpu *card_of(const char *text, struct err *err) {
    char name[64];
    snprintf(name, sizeof name, "card-%zu.ini", strlen(text));
    return gpu_find(scratch_write(name, text), err);
}

#define SHEET                                                                                      \
    "[gpu]\nsource = me\nsms = 100\ncompute_capability = 90\nmemory = 80GiB\n"                     \
    "peak_bf16_flops = 1e14\npeak_bandwidth = 1e12\n"

TEST(a_card_is_told_all_that_it_lacks_at_once) {
    struct err err = {0};
    ck_assert_ptr_null(card_of("[gpu]\npeak_bf16_flops = 1e14\n", &err));
    ck_assert_ptr_nonnull(strstr(err.text, "has no source, sms, compute_capability, memory, "
                                           "peak_bandwidth, which every GPU needs"));
    err = (struct err){0};
    ck_assert_ptr_null(card_of("[gpu]\nsource = me\nsms = 100\ncompute_capability = 90\nmemory = "
                               "80GiB\npeak_bf16_flops = 1e14\n",
                               &err));
    ck_assert_ptr_nonnull(strstr(err.text, "has no peak_bandwidth = ..., which every GPU needs"));
}

TEST(what_a_data_sheet_lacks_is_assumed_and_said) {
    struct err err = {0};
    const struct gpu *gpu = card_of(SHEET, &err);
    ck_assert_msg(gpu != NULL, "%s", err.text);
    ck_assert_double_eq_tol(gpu->best_bf16_flops, 0.7e14, 1);
    ck_assert_double_eq_tol(gpu->best_bandwidth, 0.9e12, 1);
    ck_assert_double_eq_tol(gpu->l2_bandwidth, 2e12, 1);
    ck_assert_double_eq_tol(gpu->peak_fp64_flops, 1e12, 1);
    ck_assert_double_eq(gpu->link_bandwidth, 31.5e9);
    ck_assert_int_eq(gpu->l2_bytes, 32 << 20);
    ck_assert_str_eq(gpu->source, "me; assumed: l2, peak_fp64_flops, best_bf16_flops, "
                                  "best_bandwidth, l2_bandwidth, link_bandwidth");
    gpu = card_of(SHEET "l2 = 1MiB\nbest_bf16_flops = 5e13\nbest_bandwidth = 5e11\nl2_bandwidth = "
                        "3e12\npeak_fp64_flops = 1\nlink = mine\nlink_bandwidth = 2e9\n",
                  &err);
    ck_assert_msg(gpu != NULL, "%s", err.text);
    ck_assert_str_eq(gpu->source, "me");
    ck_assert_double_eq(gpu->best_bf16_flops, 5e13);
    ck_assert_str_eq(gpu->link, "mine");
}

/* Shipped cards that nobody measured say what is assumed of them, measured ones nothing. */
TEST(shipped_cards_are_whole) {
    struct err err = {0};
    const struct gpu *mi300x = gpu_find("mi300x", &err), *l40s = gpu_find("l40s", &err);
    ck_assert_ptr_nonnull(strstr(mi300x->source, "; assumed: best_bf16_flops, best_bandwidth"));
    ck_assert_ptr_null(strstr(l40s->source, "assumed"));
    ck_assert(!gpu_is_host(mi300x));
}

/* ---- families of others' repositories ---- */

#define SIZES(layers, hidden, heads, kv_heads, ffn, vocab, positions)                              \
    ",\"num_hidden_layers\":" #layers ",\"hidden_size\":" #hidden                                  \
    ",\"num_attention_heads\":" #heads ",\"num_key_value_heads\":" #kv_heads                       \
    ",\"intermediate_size\":" #ffn ",\"vocab_size\":" #vocab                                       \
    ",\"max_position_embeddings\":" #positions ",\"hidden_act\":\"silu\","                         \
    "\"tie_word_embeddings\":"
#define QWEN3_8B SIZES(36, 4096, 32, 8, 12288, 151936, 16384) "false,\"head_dim\":128"

/* As their repositories have them, but for keys that say nothing of the model. Parameters are those
 * of the shipped model of that shape, with `more`. */
static const struct {
    const char *text, *shape, *family, *note;
    int64_t more;
    enum attention_mask attention;
    uint32_t block_tokens, mask_token;
} made[] = {
    /* Qwen3-0.6B has 596,049,920 parameters */
    {"{\"architectures\":[\"A2DQwen3LMHeadModel\"],\"model_type\":\"a2d-qwen3\","
     "\"rope_scaling\":null,\"sliding_window\":null" SIZES(28, 1024, 16, 8, 3072, 151936,
                                                           40960) "true,\"head_dim\":128}",
     NULL, "a2d-qwen3", "model.attention=block-causal", 596049920, MASK_BIDIRECTIONAL, 32, 151669},
    /* Llama-3.2-1B has 1,235,814,400, and a row for the mask */
    {"{\"architectures\":[\"A2DLlamaLMHeadModel\"],\"model_type\":\"a2d-llama\","
     "\"rope_theta\":500000.0,\"rope_scaling\":{\"factor\":32.0,\"high_freq_factor\":4.0,"
     "\"low_freq_factor\":1.0,\"original_max_position_embeddings\":8192,"
     "\"rope_type\":\"llama3\"}" SIZES(16, 2048, 32, 8, 8192, 128257, 131072) "true}",
     NULL, "a2d-llama", "model.attention=block-causal", 1235814400 + 2048, MASK_BIDIRECTIONAL, 32,
     128256},
    {"{\"architectures\":[\"WeDLMForCausalLM\"],\"model_type\":\"wedlm\",\"qk_norm\":true,"
     "\"attention_bias\":false,\"mask_token_id\":151666" QWEN3_8B "}",
     "sdar-8b", "wedlm", "takes one pass more", 0, MASK_BLOCK_CAUSAL, 16, 151666},
    {"{\"architectures\":[\"WeDLMForCausalLM\"],\"model_type\":\"wedlm\",\"qk_norm\":false,"
     "\"attention_bias\":true" SIZES(28, 3584, 28, 4, 18944, 152064, 32768) "false}",
     "dream-7b", "wedlm", "takes one pass more", 0, MASK_BLOCK_CAUSAL, 16, 151665},
    {"{\"architectures\":[\"LlavaLLaDAModelLM\"],\"model_type\":\"llava_llada\","
     "\"mm_hidden_size\":1152" SIZES(32, 4096, 32, 32, 12288, 126464, 16384) "false}",
     "llada-8b", "llava_llada", NULL, 0, MASK_BIDIRECTIONAL, 32, 126336},
    /* its language model before it is trained */
    {"{\"architectures\":[\"LLaDAModelLM\"],\"model_type\":\"llada\",\"rope_theta\":500000.0" SIZES(
         32, 4096, 32, 32, 12288, 126464, 16384) "false}",
     "llada-8b", "llava_llada", NULL, 0, MASK_BIDIRECTIONAL, 32, 126336},
    {"{\"architectures\":[\"RND1LM\"],\"model_type\":\"rnd1\",\"decoder_sparse_step\":1,"
     "\"mlp_only_layers\":[],\"moe_intermediate_size\":768,\"norm_topk_prob\":true,"
     "\"num_experts\":128,\"num_experts_per_tok\":8,\"mask_token_id\":151669,"
     "\"rope_scaling\":false,\"rope_theta\":1000000.0" SIZES(48, 2048, 32, 4, 6144, 151936,
                                                             40960) "false,\"head_dim\":128}",
     "sdar-30b-a3b", "rnd1", NULL, 0, MASK_BIDIRECTIONAL, 32, 151669},
    {"{\"architectures\":[\"StableDiffcoderForCausalLM\"],\"model_type\":\"llama\","
     "\"rope_theta\":500000.0,\"mlp_bias\":false" SIZES(32, 4096, 32, 8, 14336, 155136,
                                                        8192) "false}",
     "llama-3.1-8b", "stable_diffcoder", NULL, 2LL * (155136 - 128256) * 4096, MASK_BLOCK_CAUSAL, 4,
     5},
    /* TraDo says that it is SDAR */
    {"{\"architectures\":[\"SDARForCausalLM\"],\"model_type\":\"sdar\",\"block_size\":4" QWEN3_8B
     "}",
     "sdar-8b", "sdar", NULL, 0, MASK_BLOCK_CAUSAL, 4, 151669},
};

TEST(models_made_of_others_are_read_as_what_they_are) {
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        struct err err = {0};
        const struct model *model = model_find(write_config("made", made[i].text), &err);
        ck_assert_msg(model != NULL, "%zu: %s", i, err.text);
        const struct model *shape = made[i].shape != NULL ? model_find(made[i].shape, &err) : NULL;
        ck_assert_str_eq(model->family, made[i].family);
        ck_assert_int_eq(model_parameters(model),
                         made[i].more + (shape != NULL ? model_parameters(shape) : 0));
        ck_assert(shape == NULL || made[i].more > 0 || model_has_shape_of(model, shape));
        ck_assert_uint_eq(model->mask, made[i].attention);
        ck_assert_uint_eq(model->block_tokens, made[i].block_tokens);
        ck_assert_uint_eq(model->mask_token, made[i].mask_token);
        ck_assert(!model->shifted_logits);
        ck_assert_ptr_null(model->architecture);
        ck_assert_int_eq(model->note != NULL, made[i].note != NULL);
        ck_assert_msg(model->note == NULL || strstr(model->note, made[i].note) != NULL, "%s",
                      model->note);
    }
    struct err err = {0};
    ck_assert_ptr_null(model_find(write_config("unheard", "{\"model_type\":\"unheard\"}"), &err));
    ck_assert_ptr_nonnull(strstr(err.text, "--set model.attention="));
}

/* Llama 3 has no token to spare: without a row for it, A2D's mask is none. */
TEST(a_mask_beyond_llamas_tokens_is_asked_for) {
    char text[1024];
    struct err err = {0};
    snprintf(text, sizeof text, "%s", made[1].text);
    memcpy(strstr(text, "128257"), "128256", 6);
    ck_assert_ptr_null(model_find(write_config("a2d", text), &err));
    ck_assert_ptr_nonnull(strstr(err.text, "says no mask_token_id, and the family's, 128256"));
}

/* Open-dCoder's class is Qwen2's: what tells that it is a diffusion model is its mask. */
TEST(an_autoregressive_model_with_a_mask_token_is_noted) {
    struct err err = {0};
    const char *named = "\"mask_token_id\":151665,\"vocab_size\":151936";
    const struct model *read =
        model_find(write_config("masked", changed(3, "\"vocab_size\":151936", named)), &err);
    ck_assert_msg(read != NULL, "%s", err.text);
    ck_assert_uint_eq(read->mask, MASK_CAUSAL);
    ck_assert_ptr_nonnull(strstr(read->note, "names mask_token_id 151665"));
    ck_assert_ptr_null(model_find(write_config("one", published[3].text), &err)->note);
    ck_assert_ptr_null(model_find(write_config("one", published[1].text), &err)->note);
}

SUITE("model config")
