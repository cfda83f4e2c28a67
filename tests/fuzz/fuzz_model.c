/* Any bytes as a model's INI file, a GPU's and a checkpoint's config.json: refused with one
 * sentence, or a thing that arithmetic can be done with. The first byte says which. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sim/model/gpu.h"
#include "sim/model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[] = "/tmp/unmask-fuzz-XXXXXX";
static char ini[64], json[64];

static void remove_files(void) {
    unlink(ini);
    unlink(json);
    rmdir(folder);
}

static void write_file(const char *path, const uint8_t *data, size_t size) {
    FILE *file = fopen(path, "wb");
    ASSERT(file != NULL && fwrite(data, 1, size, file) == size);
    fclose(file);
}

static void check_model(const struct model *model) {
    ASSERT(model->name[0] != '\0' && model->layers > 0 && model->heads % model->kv_heads == 0);
    ASSERT(model_parameters(model) > 0 && model_weights_bytes(model) > 0);
    ASSERT(model_trunk_active_parameters(model) <= model_parameters(model));
    ASSERT(model_kv_bytes_per_token(model) > 0 && model_flops_per_token(model) > 0);
    ASSERT(model->mask_token == NO_MASK_TOKEN || model->mask_token < model->vocab);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (ini[0] == '\0') {
        ASSERT(mkdtemp(folder) != NULL && atexit(remove_files) == 0);
        snprintf(ini, sizeof ini, "%s/x.ini", folder);
        snprintf(json, sizeof json, "%s/x.json", folder);
    }
    if (size == 0) {
        return 0;
    }
    struct err err = {0};
    const char *path = data[0] % 3 == 0 ? json : ini;
    write_file(path, data + 1, size - 1);
    if (data[0] % 3 == 2) {
        const struct gpu *gpu = gpu_find(path, &err);
        ASSERT((gpu != NULL) == (err.kind == ERR_NONE));
        ASSERT(gpu == NULL || (gpu->memory_bytes > 0 && gpu->best_bandwidth > 0));
        return 0;
    }
    const struct model *model = model_find(path, &err);
    ASSERT((model != NULL) == (err.kind == ERR_NONE));
    if (model != NULL) {
        check_model(model);
    } else {
        ASSERT(err.text[0] != '\0');
    }
    return 0;
}
