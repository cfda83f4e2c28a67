/* Models, GPUs and runtimes as files: what is shipped, one's own, and files that are wrong. */
#include "sim/base/input/catalogue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/base/input/inputs.h"
#include "sim/model/gpu.h"
#include "sim/model/model.h"
#include "sim/price/runtime.h"
#include "sim/system/host.h"
#include "tests/support/scratch.h"

#define MODEL_TEXT                                                                                 \
    "[model]\ntitle = Mine\nsource = a test\nlayers = 2\nhidden = 64\nheads = 4\nkv_heads = 2\n"   \
    "head_dim = 16\nffn = 96\nvocab = 100\nmax_positions = 512\nmask_token = 99\n"                 \
    "attention = bidirectional\nblock_tokens = 8\n"
#define GPU_TEXT                                                                                   \
    "[gpu]\ntitle = Mine\nsource = a test\nsms = 10\ncompute_capability = 100\nmemory = 4 GiB\n"   \
    "l2 = 8 MiB\npeak_bf16_flops = 10e12\nbest_bf16_flops = 9e12\npeak_fp64_flops = 1e12\n"        \
    "peak_bandwidth = 800e9\nbest_bandwidth = 700e9\nl2_bandwidth = 2e12\nlink = none\n"           \
    "link_bandwidth = 1e9\n"

TEST(a_file_of_ones_own_is_a_thing_like_those_that_are_shipped) {
    struct err err = {0};
    const char *path = scratch_write("mine.ini", MODEL_TEXT "tied = off"); /* no last newline */
    const struct model *model = model_find(path, &err);
    ck_assert_msg(model != NULL, "%s", err.text);
    ck_assert_str_eq(model->name, "mine");
    ck_assert_str_eq(model->path, path);
    ck_assert_uint_eq(model->mask_token, 99);
    ck_assert(model->mask == MASK_BIDIRECTIONAL && !model->tied && model->experts == 0);
    ck_assert_ptr_eq(model_find(path, &err), model);
    ck_assert_ptr_null(model_find("llada-8b", &err)->path);
    path = scratch_write("card.ini", GPU_TEXT "profile = card.csv\n");
    const struct gpu *gpu = gpu_find(path, &err);
    ck_assert_msg(gpu != NULL, "%s", err.text);
    ck_assert_int_eq(gpu->memory_bytes, INT64_C(4) << 30);
    /* Its profile lies beside it, or is one of the shipped. */
    char profile[512], beside[512];
    ck_assert_str_eq(strrchr(gpu_profile_path(gpu, profile, sizeof profile), '/'), "/card.csv");
    ck_assert_ptr_nonnull(strstr(profile, "kernels/profiles"));
    snprintf(beside, sizeof beside, "%s", scratch_write("card.csv", ""));
    ck_assert_str_eq(gpu_profile_path(gpu, profile, sizeof profile), beside);
}

/* A card whose file names no profile has its calibrations in a folder of its name. */
TEST(what_a_card_was_calibrated_to_is_found_beside_its_file) {
    struct err err = {0};
    char path[512], folder[512];
    const struct gpu *gpu = gpu_find(scratch_write("bare.ini", GPU_TEXT), &err);
    ck_assert_msg(gpu != NULL, "%s", err.text);
    ck_assert_ptr_null(gpu_model_profile_path(gpu, "llada-8b", path, sizeof path));
    snprintf(folder, sizeof folder, "%s", scratch_path("bare"));
    ck_assert(mkdir(folder, 0700) == 0);
    const char *file = scratch_write("bare/llada-8b.csv", "");
    ck_assert_str_eq(gpu_model_profile_path(gpu, "llada-8b", path, sizeof path), file);
    ck_assert_ptr_null(gpu_model_profile_path(gpu, "dream-7b", path, sizeof path));
    ck_assert_ptr_null(gpu_model_profile_path(gpu_find("l4", &err), "llada-8b", path, sizeof path));
    ck_assert_ptr_nonnull(
        gpu_model_profile_path(gpu_find("h100", &err), "llada-8b", path, sizeof path));
}

TEST(a_file_that_changed_is_read_again) {
    struct err err = {0};
    const char *path = scratch_write("again.ini", MODEL_TEXT);
    const struct model *before = model_find(path, &err);
    scratch_write("again.ini", MODEL_TEXT "qk_norm = on\n");
    const struct model *after = model_find(path, &err);
    ck_assert(before != NULL && after != NULL && before != after);
    ck_assert(!before->qk_norm && after->qk_norm);
}

TEST(who_reads_a_thing_notes_its_file) {
    struct err err = {0};
    struct inputs inputs = {0}, *outside = inputs_collect(&inputs);
    ck_assert_ptr_nonnull(model_find("llada-8b", &err));
    ck_assert_ptr_nonnull(gpu_find("h100", &err));
    ck_assert_ptr_nonnull(gpu_find("h100", &err));
    (void)inputs_collect(outside);
    ck_assert_uint_eq(inputs.n, 2);
    ck_assert_str_eq(inputs.items[0].path, "sim/model/gpus/h100.ini");
    ck_assert_str_eq(inputs.items[1].role, "model");
    ck_assert_uint_eq(strlen(inputs.items[0].sha256), 64);
    inputs_fini(&inputs);
}

static const struct {
    const char *text; /* added to a model that is right */
    enum err_kind kind;
    const char *sentence; /* a part of it */
} wrong_models[] = {
    {"layerz = 3\n", ERR_USAGE, ":15: unknown key 'layerz' of a model; did you mean 'layers'?"},
    {"rotary_dim = -2\n", ERR_USAGE, ":15: '-2' is not a value for rotary_dim"},
    {"experts = 99999999999999999999\n", ERR_USAGE, ":15: '99999999999999999999' is not a value"},
    {"rotary_dim = 1.5\n", ERR_USAGE, ":15: '1.5' is not a value"},
    {"rotary_dim = 18\n", ERR_USAGE, "rotary_dim is at most head_dim"},
    {"router = topk\n", ERR_USAGE, "expected one of none, softmax, sigmoid-grouped"},
    {"router = softmax\n", ERR_USAGE, "experts = 0"},
    {"experts_active = 1\n", ERR_USAGE, "experts = 0"},
    {"expert_ffn = 1\n", ERR_USAGE, "experts = 0"},
    {"shared_experts = 1\n", ERR_USAGE, "experts = 0"},
    {"shared_ffn = 1\n", ERR_USAGE, "experts = 0"},
    {"dense_layers = 1\n", ERR_USAGE, "experts = 0"},
    {"experts = 8\n", ERR_USAGE, "a mixture needs a router"},
    {"experts = 8\nexperts_active = 9\nexpert_ffn = 4\nrouter = softmax\n", ERR_USAGE, "mixture"},
    {"experts = 8\nexperts_active = 2\nexpert_ffn = 4\nrouter = softmax\n", ERR_USAGE,
     "ffn is their width"},
    {"family = \n", ERR_USAGE, "family is empty"},
    {"qk_norm = maybe\n", ERR_USAGE, "expected on or off"},
    {"[other]\nlayers = 3\n", ERR_USAGE, ":16: unknown section [other], expected [model]"},
    {"layers = 3\n", ERR_USAGE, "set twice"},
    {"nonsense\n", ERR_USAGE, "expected [section] or key = value"},
};

TEST(a_wrong_file_is_refused_with_its_line) {
    for (size_t i = 0; i < sizeof wrong_models / sizeof wrong_models[0]; i++) {
        struct err err = {0};
        char text[1024];
        snprintf(text, sizeof text, MODEL_TEXT "%s", wrong_models[i].text);
        const char *path = scratch_write("wrong.ini", text);
        ck_assert_ptr_null(model_find(path, &err));
        ck_assert_int_eq(err.kind, wrong_models[i].kind);
        ck_assert_msg(strstr(err.text, path) != NULL && strstr(err.text, wrong_models[i].sentence),
                      "%s", err.text);
    }
}

/* What a file must say, and what holds between two of its lines. */
TEST(a_model_that_cannot_be_is_refused) {
    static const struct {
        const char *line, *instead, *sentence;
    } changes[] = {
        {"layers = 2\n", "", "[model] has no layers"},
        {"source = a test\n", "", "[model] has no source"},
        {"attention = bidirectional\n", "", "[model] has no attention"},
        {"kv_heads = 2\n", "kv_heads = 3\n", "no multiple of kv_heads"},
        {"mask_token = 99\n", "mask_token = 100\n", "vocab = 100"},
        {"mask_token = 99\n", "", "needs a mask_token"},
        {"attention = bidirectional\n", "attention = autoregressive\n", "no mask_token"},
        {"ffn = 96\n", "", "needs an ffn above 0"},
        {"head_dim = 16\n", "head_dim = 15\n", "are even"},
        {"ffn = 96\n", "ffn = 96\nlayers = 2\n", "set twice"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct err err = {0};
        char text[1024] = MODEL_TEXT;
        char *at = strstr(text, changes[i].line);
        const char *rest = strstr(MODEL_TEXT, changes[i].line) + strlen(changes[i].line);
        snprintf(at, sizeof text - (size_t)(at - text), "%s%s", changes[i].instead, rest);
        ck_assert_ptr_null(model_find(scratch_write("wrong.ini", text), &err));
        ck_assert_int_eq(err.kind, ERR_USAGE);
        ck_assert_msg(strstr(err.text, changes[i].sentence) != NULL, "%s", err.text);
    }
}

TEST(gpus_and_runtimes_are_read_as_strictly) {
    struct err err = {0};
    ck_assert_ptr_null(gpu_find(scratch_write("card.ini", GPU_TEXT "sm = 3\n"), &err));
    ck_assert_ptr_nonnull(strstr(err.text, "unknown key 'sm' of a GPU; did you mean 'sms'?"));
    err = (struct err){0};
    const char *text = GPU_TEXT "host_bandwidth = 5e9\nbest_host_bandwidth = 6e9\n";
    ck_assert_ptr_null(gpu_find(scratch_write("card.ini", text), &err));
    ck_assert_ptr_nonnull(strstr(err.text, "best_host_bandwidth is above host_bandwidth"));
    err = (struct err){0};
    ck_assert_ptr_null(gpu_find(scratch_write("card.ini", "[gpu]\ntitle = x\n"), &err));
    ck_assert_int_eq(err.kind, ERR_USAGE);
    err = (struct err){0};
    ck_assert_ptr_null(gpu_find("/nowhere/card.ini", &err));
    ck_assert_int_eq(err.kind, ERR_WORLD);
    err = (struct err){0};
    ck_assert_ptr_null(runtime_find(
        scratch_write("runtime.ini", "[runtime]\ndoc = x\nsource = y\nhost_kind = guessed\n"),
        &err));
    ck_assert_ptr_nonnull(strstr(err.text, "host_kind = 'guessed'"));
    err = (struct err){0};
    const struct runtime_preset *mine = runtime_find(
        scratch_write("runtime.ini", "[runtime]\ndoc = x\nsource = y\nhost_kind = assumed\n"
                                     "host_reuse_ns = 2 ms\nhost_mode = serial\n"),
        &err);
    ck_assert_msg(mine != NULL, "%s", err.text);
    ck_assert_double_eq(mine->runtime.host_step_ns[HOST_REUSE], 2e6);
    ck_assert(!mine->runtime.varlen);
}

TEST(a_host_of_ones_own_is_found_by_its_path) {
    struct err err = {0};
    struct config constants = {.path = NULL};
    struct host host;
    const char *path = scratch_write("machine.ini", "[host]\ndoc = mine\nfactor = 1.5\n"
                                                    "kind = measured\nsource = timed\n");
    ck_assert_msg(host_find(path, &constants, &host, &err) == 0, "%s", err.text);
    ck_assert_str_eq(host.name, "machine");
    ck_assert_str_eq(host.path, path);
    ck_assert_double_eq(host.factor, 1.5);
    ck_assert_int_eq(host.provenance.kind, PROVENANCE_MEASURED);
    path = scratch_write("machine.ini", "[host]\ndoc = mine\nfactor = -1\nkind = measured\n");
    ck_assert_int_eq(host_find(path, &constants, &host, &err), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "factor = '-1'"));
    err = (struct err){0};
    path = scratch_write("machine.ini", "[host]\ndoc = mine\nfactor = $none\nkind = calibrated\n");
    constants.path = (char *)"calibrated.ini";
    ck_assert_int_eq(host_find(path, &constants, &host, &err), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "no calibrated constant 'none'"));
}

/* A name is never a file of the present folder. */
TEST(a_name_that_is_a_file_here_is_pointed_at) {
    struct err err = {0};
    char before[1024];
    ck_assert_ptr_nonnull(getcwd(before, sizeof before));
    scratch_write("plain", MODEL_TEXT);
    ck_assert_int_eq(chdir(scratch_folder), 0);
    ck_assert_ptr_null(model_find("plain", &err));
    ck_assert_ptr_nonnull(strstr(err.text, "./plain"));
    ck_assert_int_eq(chdir(before), 0);
}

TEST(all_are_listed_by_name_and_found_by_it) {
    struct err err = {0};
    const struct gpu *const *gpus = gpu_all(&err);
    ck_assert_msg(gpus != NULL, "%s", err.text);
    for (size_t i = 0; gpus[i] != NULL; i++) {
        ck_assert_ptr_eq(gpu_find(gpus[i]->name, &err), gpus[i]);
        ck_assert(i == 0 || strcmp(gpus[i - 1]->name, gpus[i]->name) < 0);
        ck_assert(gpus[i]->donor == NULL || gpu_check_name(gpus[i]->donor, &err) == 0);
        ck_assert(gpus[i]->donor_of_passes == NULL ||
                  gpu_check_name(gpus[i]->donor_of_passes, &err) == 0);
    }
}

/* As nvidia-smi and PyTorch print them, and as people type them. */
TEST(a_gpu_is_found_by_any_name_that_is_its_own) {
    static const struct {
        const char *said, *is;
    } names[] = {{"NVIDIA H100 80GB HBM3", "h100"},
                 {"H100", "h100"},
                 {"nvidia l40s", "l40s"},
                 {"NVIDIA GeForce RTX 4090", "rtx4090"},
                 {"RTX 4090", "rtx4090"},
                 {"rtx-4090", "rtx4090"},
                 {"GeForce RTX 3090", "rtx3090"},
                 {"NVIDIA A100-SXM4-80GB", "a100-80g"},
                 {"A100-80G", "a100-80g"},
                 {"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000"},
                 {"a6000", "rtx-a6000"},
                 {"Tesla T4", "t4"},
                 {"RTX 5060 Ti", "rtx5060ti"},
                 {"h200", "h200"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct err err = {0};
        const struct gpu *gpu = gpu_find(names[i].said, &err);
        ck_assert_msg(gpu != NULL, "%s: %s", names[i].said, err.text);
        ck_assert_str_eq(gpu->name, names[i].is);
        ck_assert_int_eq(gpu_check_name(names[i].said, &err), 0);
    }
}

/* A hint at another card is worse than none. */
TEST(a_gpu_that_no_file_describes_is_not_taken_for_its_neighbour) {
    static const char *const others[] = {
        "a800-40g", "b100",  "rtx4080", "rtx4090d",  "rtx4090 Laptop",  "h20e",
        "a30",      "t1000", "v100s",   "h800-pcie", "rtx3090ti",       "l20",
        "h400",     "l2",    "gb300",   "rtx5080",   "NVIDIA L40S-48Q", "",
        "nvidia"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct err err = {0};
        ck_assert_ptr_null(gpu_find(others[i], &err));
        ck_assert_msg(strstr(err.text, "did you mean") == NULL, "%s", err.text);
        ck_assert_msg(strstr(err.text, "a card of your own is a file") != NULL, "%s", err.text);
    }
    struct err err = {0};
    ck_assert_ptr_null(gpu_find("a100", &err));
    ck_assert_ptr_nonnull(strstr(err.text, "did you mean 'a100-40g' or 'a100-80g'?"));
    err = (struct err){0};
    ck_assert_ptr_null(gpu_find("rtx4900", &err));
    ck_assert_msg(strstr(err.text, "did you mean 'rtx4090'?") != NULL, "%s", err.text);
}

SUITE("catalogue")
