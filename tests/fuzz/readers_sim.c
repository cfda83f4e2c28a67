/* Readers of what is simulated: models, GPUs, hosts, runtimes, profiles, packing problems,
 * allocation streams, systems, decode processes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/base/input/config.h"
#include "sim/base/input/datadir.h"
#include "sim/decode/process.h"
#include "sim/decode/process_file.h"
#include "sim/memory/allocator.h"
#include "sim/memory/instance.h"
#include "sim/model/model_config.h"
#include "sim/price/profile/profile_check.h"
#include "sim/price/runtime.h"
#include "sim/system/system.h"
#include "sim/system/system_facts.h"
#include "tests/fuzz/reader.h"

static void read_model(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    struct err err = {0};
    const struct model *model = model_find(path, &err);
    if (!went_well(model == NULL, &err, path)) {
        return;
    }
    ASSERT(model->name[0] != '\0' && model->layers > 0 && model->heads % model->kv_heads == 0);
    ASSERT(model_parameters(model) > 0 && model_weights_bytes(model, &(struct storage){0}) > 0);
    ASSERT(model_trunk_active_parameters(model) <= model_parameters(model));
    ASSERT(model_kv_bytes_per_token(model, NUMBER_BF16) > 0 && model_flops_per_token(model) > 0);
    reader_see_int(model_parameters(model));
    reader_see_int((int64_t)model_weights_bytes(model, &(struct storage){0}));
    reader_see_int((int64_t)model_kv_bytes_per_token(model, NUMBER_BF16));
    reader_see_double(model_flops_per_token(model));
    ASSERT(model->mask_token == NO_MASK_TOKEN || model->mask_token < model->vocab);
}

/* Read as it stands, not through the catalogue, which keeps all that it read. */
static void read_config_json(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    struct model model = {.name = "x"};
    struct err err = {0}, difference = {0};
    const struct model *ours = model_find("llada-tiny", &err);
    ASSERT(ours != NULL);
    if (went_well(model_config_find(path, &model, &err), &err, path)) {
        ASSERT(model.family != NULL && model.layers > 0 && model.hidden > 0);
        reader_see_int(model_parameters(&model));
        (void)went_well(model_agree(ours, &model, path, &difference), &difference, path);
    }
}

static void read_gpu(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    struct err err = {0};
    const struct gpu *gpu = gpu_find(path, &err);
    if (went_well(gpu == NULL, &err, path)) {
        ASSERT(gpu->memory_bytes > 0 && gpu->best_bandwidth > 0);
        reader_see_int(gpu->memory_bytes);
        reader_see_double(gpu->best_bandwidth);
        reader_see_int(gpu->link_peers);
    }
}

static void read_host(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    static const char constants_text[] = "[FACTOR]\nvalue = 2.5\nfitted_to = a test\n";
    struct config constants;
    struct host host;
    struct err err = {0};
    ASSERT(config_parse("calibrated.ini", constants_text, strlen(constants_text), &constants,
                        &err) == 0);
    int status = host_find(path, &constants, &host, &err);
    ASSERT(!went_well(status, &err, NULL) || (host.factor >= 0 && host.factor <= 100));
    reader_see_double(status == 0 ? host.factor : 0);
    config_fini(&constants);
}

static void read_runtime(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    struct err err = {0};
    const struct runtime_preset *preset = runtime_find(path, &err);
    ASSERT(!went_well(preset == NULL, &err, path) || preset->doc != NULL);
}

static char *written(const struct profile *profile, size_t *size) {
    char *text = NULL;
    struct err err = {0};
    FILE *file = open_memstream(&text, size);
    ASSERT(file != NULL && profile_write(profile, file, &err) == 0);
    fclose(file);
    return text;
}

/* What is written of it is read as the same, and every row is looked up without and with it. */
static void read_profile(const char *path, const uint8_t *data, size_t size) {
    const struct profile_peaks peaks = {
        .flops = 300e12, .fp8_flops = 600e12, .bandwidth = 800e9, .sms = 142, .l2_bytes = 96 << 20};
    struct profile *profile, *again;
    struct err err = {0};
    if (!went_well(profile_parse(path, (const char *)data, size, &peaks, &profile, &err), &err,
                   path)) {
        return;
    }
    size_t n, n_again;
    char *text = written(profile, &n);
    ASSERT(profile_parse(path, text, n, &peaks, &again, &err) == 0);
    char *text_again = written(again, &n_again);
    ASSERT(n == n_again && memcmp(text, text_again, n) == 0);
    reader_see(text, n);
    struct profile_check check;
    profile_check(profile, &check);
    free(text);
    free(text_again);
    profile_close(profile);
    profile_close(again);
}

static void read_instance(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    struct instance instance;
    struct err err = {0};
    if (!went_well(instance_read(path, &instance, &err), &err, path)) {
        return;
    }
    struct plan plan = {.offset_bytes = calloc(instance.packing.n_buffers + 1, sizeof(int64_t))};
    ASSERT(plan.offset_bytes != NULL);
    struct plan_request request = {.packing = &instance.packing, .max_nodes = 200};
    for (size_t i = 0; i < planner_table_size; i++) {
        if (planner_solve(&planner_table[i], &request, NULL, &plan, &err) == 0) {
            ASSERT(plan_verify(&instance.packing, &plan, &err) == 0);
            reader_see(plan.offset_bytes, instance.packing.n_buffers * sizeof(int64_t));
        }
    }
    free(plan.offset_bytes);
    instance_fini(&instance);
}

static void read_stream(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    struct stream stream;
    struct err err = {0};
    stream_init(&stream);
    if (went_well(stream_read(path, &stream, &err), &err, path)) {
        for (size_t i = 0; i < allocator_n_models; i++) {
            struct allocator_report report;
            allocator_replay(&stream, &allocator_models[i], &stream.settings, &report);
            reader_see_int(report.peak_reserved_bytes);
            reader_see_int(report.peak_allocated_bytes);
        }
    }
    stream_fini(&stream);
}

/* The section [mine], priced by the data sheet; what it became is the same when it is read again.
 */
static void read_system(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    struct system_request request = {.system = "mine",
                                     .gpu = "l40s",
                                     .systems_path = path,
                                     .longest_canvas_tokens = 256,
                                     .roofline = true};
    struct system *system;
    struct err err = {0};
    if (!went_well(system_open(&request, &system, &err), &err, NULL)) {
        return;
    }
    char *text = system_text(system);
    reader_see_text(text);
    ASSERT(text != NULL && system_reserve_bytes(system) >= 0 && system_gpus(system) > 0);
    free(text);
    system_close(system);
}

static void read_process(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    struct decode_process process;
    struct err err = {0};
    if (!went_well(decode_process_read(path, "mine", &process, &err), &err, path)) {
        return;
    }
    enum { LENGTH = 8 };
    static const uint8_t masked[LENGTH] = {0, 1, 1, 0, 1, 1, 1, 1};
    const struct decode_view view = {
        .block_start = 64, .block_length = LENGTH, .step = 3, .masked = masked};
    float confidence[LENGTH];
    process_confidence(&process, 1, &view, confidence);
    for (int i = 0; i < LENGTH; i++) {
        reader_see_double((double)confidence[i]);
        ASSERT(masked[i] ? confidence[i] >= 0 && confidence[i] <= 1 : confidence[i] == 0);
    }
}

const struct reader readers_of_sim[] = {
    {"model", "x.ini", read_model},
    {"config-json", "config.json", read_config_json},
    {"gpu", "x.ini", read_gpu},
    {"host", "x.ini", read_host},
    {"runtime", "x.ini", read_runtime},
    {"profile", "x.csv", read_profile},
    {"instance", "x.csv", read_instance},
    {"stream", "x.csv", read_stream},
    {"system", "x.ini", read_system},
    {"decode-process", "x.ini", read_process},
    {NULL, NULL, NULL},
};
