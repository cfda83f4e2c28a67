/* Readers of checkpoints, and of what a calibration leaves behind. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/calibrate/calibration_samples.h"
#include "engine/session/end_tokens.h"
#include "engine/text/chat.h"
#include "engine/weights/safetensors.h"
#include "engine/weights/tokenizer.h"
#include "sim/base/input/datadir.h"
#include "sim/model/model.h"
#include "tests/fuzz/reader.h"

static void read_ends(const struct stored_tensor *tensor) {
    float value;
    reader_see_text(tensor->name);
    if (tensor->n_elements > 0 && tensor->dtype != STORED_OTHER) { /* whose numbers nobody reads */
        stored_read(tensor, 0, 1, &value);
        reader_see_double((double)value);
        stored_read(tensor, tensor->n_elements - 1, 1, &value);
        reader_see_double((double)value);
    }
}

/* Tensors that lie inside the file, apart from each other, and can be read to their last element.
 */
static void read_safetensors(const char *path, const uint8_t *data, size_t size) {
    (void)path;
    struct safetensors file;
    struct err err = {0};
    if (!went_well(safetensors_parse("x.safetensors", data, size, &file, &err), &err, NULL)) {
        return;
    }
    int64_t sum = 0;
    for (size_t i = 0; i < file.n_tensors; i++) {
        const struct stored_tensor *tensor = &file.tensors[i];
        int64_t bytes = tensor->n_elements * tensor->element_bytes;
        ASSERT(tensor->data >= data && tensor->data + bytes <= data + size);
        ASSERT(i == 0 || strcmp(file.tensors[i - 1].name, tensor->name) < 0);
        ASSERT(safetensors_find(&file, tensor->name) == tensor);
        read_ends(tensor);
        sum += bytes;
    }
    ASSERT(sum <= (int64_t)size);
    safetensors_close(&file);
}

static void folder_of(const char *path, char folder[128]) {
    snprintf(folder, 128, "%.*s", (int)(strrchr(path, '/') - path), path);
}

/* The list of a checkpoint's shards, with the shards of a small one beside it. */
static void read_index(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    static const char *const shards[] = {"model-00001-of-00002.safetensors",
                                         "model-00002-of-00002.safetensors"};
    char folder[128], link[128], relative[128], shard[4096];
    for (int i = 0; i < 2; i++) {
        snprintf(relative, sizeof relative, "tests/golden/engine/llada-tiny/%s", shards[i]);
        (void)!symlink(data_path(shard, sizeof shard, relative),
                       reader_beside(path, shards[i], link));
    }
    struct safetensors file;
    struct err err = {0};
    folder_of(path, folder);
    if (went_well(safetensors_open(folder, &file, &err), &err, NULL)) {
        for (size_t i = 0; i < file.n_tensors; i++) {
            read_ends(&file.tensors[i]);
        }
        safetensors_close(&file);
    }
}

/* A tokenizer's ids stand for the bytes of the text. */
static void read_tokenizer(const char *path, const uint8_t *data, size_t size) {
    (void)path;
    static const char text[] =
        "Q: it's 12 * 345\xc2\xbd <|im_end|> e\xcc\x81\n\n  \xe6\x97\xa5 ab\t#### 42";
    struct tokenizer *tokenizer = NULL;
    struct err err = {0};
    if (!went_well(tokenizer_parse("x.json", (const char *)data, size, &tokenizer, &err), &err,
                   "x.json: ")) {
        ASSERT(tokenizer == NULL);
        return;
    }
    struct token_ids ids = {0};
    tokenizer_begin(tokenizer, &ids);
    (void)went_well(tokenizer_encode(tokenizer, text, sizeof text - 1, &ids, &err), &err, NULL);
    for (size_t i = 0; i < ids.n; i++) {
        size_t n;
        const char *bytes = tokenizer_bytes(tokenizer, ids.ids[i], &n);
        ASSERT(ids.ids[i] >= 0 && (uint32_t)ids.ids[i] < tokenizer_n_ids(tokenizer));
        ASSERT((bytes == NULL) == (n == 0));
        reader_see_int(ids.ids[i]);
    }
    free(tokenizer_decode(tokenizer, ids.ids, ids.n, true, NULL));
    free(ids.ids);
    tokenizer_close(tokenizer);
}

/* tokenizer_config.json */
static void read_chat(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    char folder[128];
    const struct chat *chat;
    struct err err = {0};
    folder_of(path, folder);
    if (went_well(chat_of_folder(folder, &chat, &err), &err, NULL)) {
        size_t length;
        char *text = chat_text(chat, folder, " hello ", 7, &length, &err);
        ASSERT(text != NULL && strlen(text) <= length);
        reader_see_text(text);
        free(text);
    }
}

/* generation_config.json */
static void read_end_tokens(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    char folder[128], text[256];
    struct end_tokens ends;
    struct err err = {0};
    const struct model *model = model_find("llada-tiny", &err);
    ASSERT(model != NULL);
    folder_of(path, folder);
    if (went_well(end_tokens_read(folder, model, &ends, &err), &err, path)) {
        for (uint32_t i = 0; i < ends.n; i++) {
            ASSERT(ends.tokens[i] >= 0 && (uint32_t)ends.tokens[i] < model->vocab);
        }
        end_tokens_text(&ends, text, sizeof text);
        reader_see_text(text);
    }
}

/* A calibration's partial file: every sample is a time, and what was read once is read again. */
static void read_samples(const char *path, const uint8_t *data, size_t size) {
    (void)data, (void)size;
    static const struct calibration_bounds bounds = {.max_tokens = 64,
                                                     .max_logit_rows = 64,
                                                     .max_kv_rows = 256,
                                                     .page_rows = 16,
                                                     .is_coarse = true};
    static struct calibration_grid grid;
    struct err err = {0};
    if (grid.n == 0) {
        const struct model *model = model_find("llada-tiny", &err);
        ASSERT(model != NULL &&
               calibration_grid_make(&grid, model, &(struct storage){0}, &bounds, &err) == 0);
    }
    struct calibration_samples samples;
    if (!went_well(samples_open(&samples, &grid, path, "a test", &err), &err, path)) {
        return;
    }
    size_t n = 0;
    for (size_t i = 0; i < CALIBRATION_MAX_ROUNDS * grid.n; i++) {
        ASSERT(isnan(samples.us[i]) || (samples.us[i] > 0 && isfinite(samples.us[i])));
        n += !isnan(samples.us[i]);
    }
    ASSERT(n == samples.n_found);
    reader_see_int((int64_t)n);
    samples_close(&samples);
    ASSERT(samples_open(&samples, &grid, path, "a test", &err) == 0 && samples.n_found == n);
    samples_close(&samples);
}

const struct reader readers_of_engine[] = {
    {"safetensors", NULL, read_safetensors},
    {"safetensors-index", "model.safetensors.index.json", read_index},
    {"tokenizer", NULL, read_tokenizer},
    {"chat", "tokenizer_config.json", read_chat},
    {"end-tokens", "generation_config.json", read_end_tokens},
    {"calibration", "x.csv.partial", read_samples},
    {NULL, NULL, NULL},
};
