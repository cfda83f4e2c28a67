/* Safetensors files and their defects, checkpoints, random weights. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/weights/checkpoint.h"
#include "engine/weights/safetensors.h"
#include "engine/weights/truncated.h"
#include "kernels/bf16.h"
#include "kernels/rules/keyed.h"
#include "sim/base/rng.h"
#include "sim/model/ranks.h"
#include "tests/support/says.h"
#include "tests/support/scratch.h"

enum { FILE_BYTES = 1 << 24 };

/* Length, header, then `data_bytes` bytes of `data` (or zeros). Returns the whole size. */
static size_t make_file(unsigned char *file, const char *header, const void *data,
                        size_t data_bytes) {
    size_t n = strlen(header);
    ck_assert(8 + n + data_bytes <= FILE_BYTES);
    for (int i = 0; i < 8; i++) {
        file[i] = (unsigned char)((uint64_t)n >> 8 * i);
    }
    memcpy(file + 8, header, n);
    memset(file + 8 + n, 0, data_bytes);
    if (data != NULL) {
        memcpy(file + 8 + n, data, data_bytes);
    }
    return 8 + n + data_bytes;
}

static const char *parse_error(const unsigned char *file, size_t size) {
    static struct err err;
    struct safetensors parsed;
    err = (struct err){0};
    int status = safetensors_parse("f", file, size, &parsed, &err);
    ck_assert_msg(status == ERR_WORLD, "it was read");
    ck_assert_ptr_null(parsed.tensors);
    return err.text;
}

/* The sentence about a file with this header and so many bytes of data. */
static const char *header_error(const char *header, size_t data_bytes) {
    static unsigned char file[FILE_BYTES];
    return parse_error(file, make_file(file, header, NULL, data_bytes));
}

TEST(tensors_are_found_by_name_and_read_as_float) {
    static const uint16_t halves[] = {0x3c00, 0xc500, 0x0001, 0x83ff, 0x7c00, 0x3555};
    static const float expected[] = {1,          -5, 0x1p-24f, -1023 * 0x1p-24f, (float)INFINITY,
                                     0x1.554p-2f};
    static const uint16_t brains[] = {0x3f80, 0xc0a0};
    static const float singles[] = {1.5f, -2.25f, 1e-30f};
    static unsigned char file[FILE_BYTES];
    unsigned char data[12 + 4 + 12];
    memcpy(data, halves, 12);
    memcpy(data + 12, brains, 4);
    memcpy(data + 16, singles, 12);
    /* A header of odd length: the data are not aligned. */
    size_t size = make_file(file,
                            "{\"__metadata__\":{\"a\":\"b\"},"
                            "\"s\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[16,28]},"
                            "\"h\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
                            "\"none\":{\"dtype\":\"F16\",\"shape\":[0,3],\"data_offsets\":[12,12]},"
                            "\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[12,16]}} ",
                            data, sizeof data);
    struct safetensors parsed;
    struct err err = {0};
    ck_assert_msg(safetensors_parse("f", file, size, &parsed, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(parsed.n_tensors, 4);
    const struct stored_tensor *h = safetensors_find(&parsed, "h");
    ck_assert(h != NULL && h->n_dims == 2 && h->shape[0] == 2 && h->shape[1] == 3);
    float values[6];
    stored_read(h, 0, 6, values);
    ck_assert_mem_eq(values, expected, sizeof values);
    stored_read(h, 4, 2, values);
    ck_assert_mem_eq(values, expected + 4, 8);
    stored_read(safetensors_find(&parsed, "b"), 0, 2, values);
    ck_assert(values[0] == 1 && values[1] == -5);
    stored_read(safetensors_find(&parsed, "s"), 0, 3, values);
    ck_assert_mem_eq(values, singles, sizeof singles);
    ck_assert_int_eq(safetensors_find(&parsed, "none")->n_elements, 0);
    ck_assert_ptr_null(safetensors_find(&parsed, "__metadata__"));
    safetensors_close(&parsed);
}

TEST(a_damaged_frame_or_header_is_named) {
    static unsigned char file[FILE_BYTES];
    ASSERT_SAYS(parse_error(file, 7), "f: 7 bytes are too few for a safetensors file");
    size_t size = make_file(file, "{}", NULL, 0);
    ASSERT_SAYS(parse_error(file, size - 1), "f: the header ends at byte 10, but the file at 9");
    ASSERT_SAYS(parse_error(file, size), "f: holds no tensors");
    file[7] = 0x80;
    ASSERT_SAYS(parse_error(file, size), "f: a header of 9223372036854775810 bytes is beyond "
                                         "the format's 100000000");
    ASSERT_SAYS(header_error("[]", 0), "f: the header is not a JSON object");
    /* Jansson's words, and our place. */
    ASSERT_SAYS(header_error("{\"a\":", 0), "f: the header is not sound JSON: (byte 13)");
    ASSERT_SAYS(header_error("{\"a\":{},\"a\":{}}", 0),
                "f: the header is not sound JSON: (byte 19)");
}

TEST(a_pointer_of_git_lfs_is_called_one) {
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\n"
                                  "oid sha256:0000\nsize 4063515640\n";
    ASSERT_SAYS(parse_error((const unsigned char *)pointer, sizeof pointer - 1),
                "f is a Git LFS pointer, not the file itself: `git lfs pull` fetches it");
}

TEST(an_entry_that_cannot_be_true_is_named) {
    ASSERT_SAYS(header_error("{\"a\":1}", 0), "f: the entry of tensor 'a' is not an object");
    ASSERT_SAYS(header_error("{\"a\":{}}", 0), "f: tensor 'a' has no dtype");
    ASSERT_SAYS(header_error("{\"a\":{\"dtype\":\"I65\"}}", 0),
                "f: tensor 'a' has dtype I65, which the format does not have");
    ASSERT_SAYS(header_error("{\"a\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4),
                "f: tensor 'a' is I64 [1], 8 bytes, but claims 4");
    ASSERT_SAYS(header_error("{\"a\":{\"dtype\":\"F32\",\"shape\":7}}", 0),
                "f: tensor 'a' has no shape of at most 8 dimensions");
    ASSERT_SAYS(header_error("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1]}}", 0),
                "f: tensor 'a' has no shape of at most 8 dimensions");
    ASSERT_SAYS(header_error("{\"a\":{\"dtype\":\"F32\",\"shape\":[2,-1]}}", 0),
                "f: a dimension of tensor 'a' is not a whole number >= 0");
    ck_assert_str_eq(
        header_error("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296]}}", 0),
        "f: the shape of tensor 'a' is too large to be true");
    ASSERT_SAYS(header_error("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4),
                "f: tensor 'a' has no data_offsets [begin, end]");
    ck_assert_str_eq(
        header_error("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4),
        "f: tensor 'a' has no data_offsets [begin, end]");
    ck_assert_str_eq(
        header_error("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7),
        "f: tensor 'a' claims bytes 0 to 8 of the data, but the file holds 7 (truncated?)");
    ck_assert_str_eq(
        header_error("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4),
        "f: tensor 'a' claims bytes 4 to 0 of the data, but the file holds 4 (truncated?)");
    ck_assert_str_eq(
        header_error("{\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,4]}}", 4),
        "f: tensor 'a' is F32 [2, 1], 8 bytes, but claims 4");
}

TEST(every_byte_of_the_data_belongs_to_one_tensor) {
    ck_assert_str_eq(
        header_error("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                     "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
                     12),
        "f: tensors 'a' and 'b' overlap");
    ck_assert_str_eq(
        header_error("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[7,11]}}",
                     11),
        "f: 3 bytes of data before tensor 'b' belong to no tensor");
    ck_assert_str_eq(
        header_error("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 9),
        "f: the last 5 bytes belong to no tensor");
}

static char folder[80];

/* A folder of its own for a test. */
static void enter_folder(void) {
    snprintf(folder, sizeof folder, "%s/XXXXXX", scratch_folder);
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void write_file(const char *name, const void *bytes, size_t size) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    ck_assert(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

static void write_text(const char *name, const char *text) {
    write_file(name, text, strlen(text));
}

/* A shard with one tensor of one number. */
static void write_shard(const char *name, const char *tensor) {
    unsigned char file[512];
    char header[256];
    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", tensor);
    write_file(name, file, make_file(file, header, NULL, 4));
}

/* The sentence about the folder, with its own name written as "DIR". */
static const char *shorten(const char *sentence) {
    static char text[1024];
    size_t used = 0;
    for (const char *at = sentence; *at != '\0' && used + 4 < sizeof text;) {
        if (strncmp(at, folder, strlen(folder)) == 0) {
            used += (size_t)snprintf(text + used, sizeof text - used, "DIR");
            at += strlen(folder);
        } else {
            text[used++] = *at++;
        }
    }
    text[used] = '\0';
    return text;
}

static const char *folder_error(void) {
    struct err err = {0};
    struct safetensors files;
    ck_assert_int_eq(safetensors_open(folder, &files, &err), ERR_WORLD);
    return shorten(err.text);
}

TEST(shards_are_read_through_their_index) {
    enter_folder();
    write_shard("one.safetensors", "a");
    write_shard("two.safetensors", "b");
    write_text("model.safetensors.index.json",
               "{\"weight_map\":{\"b\":\"two.safetensors\",\"a\":\"one.safetensors\"}}");
    struct safetensors files;
    struct err err = {0};
    ck_assert_msg(safetensors_open(folder, &files, &err) == 0, "%s", err.text);
    ck_assert(files.n_files == 2 && files.n_tensors == 2);
    ck_assert_ptr_nonnull(strstr(safetensors_find(&files, "b")->file, "two"));
    safetensors_close(&files);
}

TEST(a_folder_that_is_no_checkpoint_is_named) {
    enter_folder();
    ASSERT_SAYS(folder_error(), "DIR: holds neither model.safetensors.index.json nor "
                                "model.safetensors");
    write_text("model.safetensors", "");
    ASSERT_SAYS(folder_error(), "DIR/model.safetensors: is empty");
    write_text("model.safetensors.index.json", "{\n\"weight_map\" 1}");
    ASSERT_SAYS(folder_error(), "DIR/model.safetensors.index.json:2: is not sound JSON: ");
    write_text("model.safetensors.index.json", "{}");
    ASSERT_SAYS(folder_error(), "DIR/model.safetensors.index.json: has no weight_map");
    write_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"../x.safetensors\"}}");
    ASSERT_SAYS(folder_error(), "DIR/model.safetensors.index.json: tensor 'a' is not mapped to "
                                "a file of this folder");
    write_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"x.safetensors\"}}");
    ASSERT_SAYS(folder_error(), "DIR/x.safetensors: cannot be opened: No such file or directory");
    write_shard("x.safetensors", "b");
    ASSERT_SAYS(folder_error(), "DIR/model.safetensors.index.json: tensor 'a' is not in "
                                "DIR/x.safetensors");
    write_shard("y.safetensors", "b");
    write_text("model.safetensors.index.json",
               "{\"weight_map\":{\"b\":\"x.safetensors\",\"c\":\"y.safetensors\"}}");
    ASSERT_SAYS(folder_error(), "tensor 'b' is both in DIR/x.safetensors and in DIR/y.safetensors");
    struct err err = {0};
    struct safetensors files;
    ck_assert_int_eq(safetensors_open("/nowhere", &files, &err), ERR_WORLD);
    ASSERT_SAYS(err.text, "/nowhere: cannot be opened: No such file or directory");
}

static const struct model dream = {"dream-test", .family = "Dream", .layers = 2,   .hidden = 6,
                                   .heads = 3,   .kv_heads = 1,     .head_dim = 2, .ffn = 5,
                                   .vocab = 7,   .qkv_bias = true};
static const struct model llada = {"llada-test",  .family = "llada", .layers = 1,
                                   .hidden = 4,   .heads = 2,        .kv_heads = 2,
                                   .head_dim = 2, .ffn = 3,          .vocab = 5};

/* One changed thing of a checkpoint that is otherwise sound. */
struct damage {
    const char *missing;  /* a tensor that is left out */
    const char *reshaped; /* a tensor that is written as one row */
    const char *extra;    /* a tensor of one number that is added */
    const char *type;     /* of the extra one, of four bytes; NULL: F32 */
    int head;             /* of a tied model: 1: its embedding again, 2: other numbers */
    const char *config;
};

static const char dream_config[] =
    "{\"model_type\":\"Dream\",\"rope_theta\":10000,\"rms_norm_eps\":0.5}";

/* A number that tells the tensor and the element apart. */
static float mark(enum weight_slot slot, int part, uint32_t layer, int64_t i) {
    return (float)(((int)slot * 16 + part) * 4 + (int)layer) * 512 + (float)i;
}

/* Parts that a layer has of a slot. */
static int parts_of(const struct model *model, enum weight_slot slot, uint32_t layer) {
    bool is_here = !weight_is_per_layer(slot) || weight_is_of_layer(model, slot, layer);
    return is_here ? weight_part_count(model, slot) : 0;
}

/* Rows of all parts of a slot together. */
static int64_t rows_of(const struct model *model, enum weight_slot slot) {
    int64_t sum = 0, n_rows, n_columns;
    for (int part = 0; weight_part_shape(model, slot, part, &n_rows, &n_columns); part++) {
        sum += n_rows;
    }
    return sum;
}

static void write_checkpoint(const struct model *model, const struct damage *damage) {
    static char header[1 << 16];
    static float data[FILE_BYTES / 4];
    static unsigned char file[FILE_BYTES];
    struct err err = {0};
    struct checkpoint_family opened, *family = &opened;
    ck_assert_msg(checkpoint_family_open(model, family, &err) == 0, "%s", err.text);
    size_t used = (size_t)snprintf(header, sizeof header, "{");
    int64_t n = 0;
    for (uint32_t layer = 0; layer < model->layers; layer++) {
        for (int s = 0; s < WEIGHT_SLOT_COUNT; s++) {
            enum weight_slot slot = (enum weight_slot)s;
            bool is_whole = checkpoint_stores_whole(family, slot);
            for (int part = 0; part < parts_of(model, slot, layer); part++) {
                int64_t n_rows, n_columns;
                char name[128], shape[64];
                bool exists = weight_part_shape(model, slot, part, &n_rows, &n_columns);
                bool again = slot == WEIGHT_HEAD && part == 0 && damage->head > 0;
                if ((!exists && !again) || (layer > 0 && !weight_is_per_layer(slot))) {
                    continue;
                }
                checkpoint_tensor_name(family, slot, part, layer, name, sizeof name);
                if (damage->missing != NULL && strcmp(name, damage->missing) == 0) {
                    continue;
                }
                int64_t dims[2] = {is_whole ? rows_of(model, slot) : n_rows, n_columns};
                uint32_t n_dims = n_columns > 1 ? 2 : 1;
                if (damage->reshaped != NULL && strcmp(name, damage->reshaped) == 0) {
                    dims[1] *= dims[0];
                    dims[0] = 1;
                    n_dims = 2;
                }
                stored_shape_text(dims, n_dims, shape, sizeof shape);
                int64_t size = n_rows * n_columns, stored = dims[0] * dims[1];
                if (!is_whole || part == 0) {
                    used += (size_t)snprintf(header + used, sizeof header - used,
                                             "%s\"%s\":{\"dtype\":\"F32\",\"shape\":%s,"
                                             "\"data_offsets\":[%ld,%ld]}",
                                             n > 0 ? "," : "", name, shape, (long)(4 * n),
                                             (long)(4 * (n + stored)));
                }
                for (int64_t i = 0; i < size; i++) {
                    bool copies = again && damage->head == 1;
                    data[n++] = mark(copies ? WEIGHT_EMBEDDING : slot, part, layer, i);
                }
            }
        }
    }
    if (damage->extra != NULL) {
        used += (size_t)snprintf(header + used, sizeof header - used,
                                 ",\"%s\":{\"dtype\":\"%s\",\"shape\":[1],"
                                 "\"data_offsets\":[%ld,%ld]}",
                                 damage->extra, damage->type != NULL ? damage->type : "F32",
                                 (long)(4 * n), (long)(4 * n + 4));
        n++;
    }
    checkpoint_family_close(family);
    snprintf(header + used, sizeof header - used, "}");
    write_file("model.safetensors", file, make_file(file, header, data, (size_t)(4 * n)));
    write_text("config.json", damage->config);
}

/* The CPU in either dtype; closed at the end of a test by close_devices. */
static struct engine_device devices[KERNEL_F32 + 1];

static const struct engine_device *device(enum kernel_dtype dtype) {
    struct err err = {0};
    if (devices[dtype].device == NULL) {
        ck_assert_int_eq(engine_device_start(&device_cpu, dtype, &devices[dtype], &err), 0);
    }
    return &devices[dtype];
}

/* Nothing is left on them. */
static void close_devices(void) {
    for (int dtype = 0; dtype <= KERNEL_F32; dtype++) {
        if (devices[dtype].device != NULL) {
            ck_assert_int_eq(device_cpu.allocated_bytes(devices[dtype].device), 0);
            engine_device_close(&devices[dtype]);
        }
    }
}

static const char *checkpoint_error(const struct model *model, const struct damage *damage) {
    struct err err = {0};
    struct weights weights;
    write_checkpoint(model, damage);
    ck_assert_int_eq(weights_open(&weights, device(KERNEL_F32), model, folder, &err), ERR_WORLD);
    ck_assert_ptr_null(weights.block);
    return shorten(err.text);
}

/* Every number of the model where it belongs. Returns how many there are. */
static int64_t check_filled(const struct weights *weights) {
    const struct weight_layout *layout = &weights->layout;
    int64_t n_seen = 0;
    for (uint32_t layer = 0; layer < layout->model->layers; layer++) {
        for (int s = 0; s < WEIGHT_SLOT_COUNT; s++) {
            enum weight_slot slot = (enum weight_slot)s;
            const void *at = weights_at(weights, slot, layer);
            int64_t n_rows, n_columns, i = 0;
            for (int part = 0; part < parts_of(layout->model, slot, layer); part++) {
                if (!weight_part_shape(layout->model, slot, part, &n_rows, &n_columns)) {
                    continue;
                }
                ck_assert_ptr_nonnull(at);
                uint32_t of = weight_is_per_layer(slot) ? layer : 0;
                for (int64_t j = 0; j < n_rows * n_columns; j++, i++, n_seen++) {
                    float expected = mark(slot, part, of, j);
                    if (weight_dtype(slot, layout->dtype) == KERNEL_F32) {
                        ck_assert_float_eq(((const float *)at)[i], expected);
                    } else {
                        ck_assert_uint_eq(((const uint16_t *)at)[i], bf16_from_float(expected));
                    }
                }
            }
        }
    }
    return n_seen;
}

TEST(a_checkpoint_fills_the_fused_matrices_part_after_part) {
    enter_folder();
    write_checkpoint(&dream, &(struct damage){.config = dream_config});
    for (int dtype = KERNEL_BF16; dtype <= KERNEL_F32; dtype++) {
        struct weights weights;
        struct err err = {0};
        ck_assert_msg(
            weights_open(&weights, device((enum kernel_dtype)dtype), &dream, folder, &err) == 0,
            "%s", err.text);
        ck_assert(weights.constants.rotation.theta == 10000 &&
                  weights.constants.norm_epsilon == 0.5f);
        ck_assert_int_eq(check_filled(&weights), 2 * (2 * 42 + 6) + 2 * (12 + 60 + 10 + 36 + 90));
        weights_close(&weights);
    }
    close_devices();
}

/* Shapes as each family has them: head norms, biases, tied heads. */
static const struct {
    struct model model;
    const char *config;
} families[] = {
    {{.name = "sdar-test", .family = "sdar", .qk_norm = true, .tied = true},
     "\"model_type\":\"sdar\""},
    {{.name = "sdar-test", .family = "sdar", .qk_norm = true},
     "\"model_type\":\"sdar\",\"rope_scaling\":null"},
    {{.name = "fast-test", .family = "Fast_dLLM_Qwen", .qkv_bias = true},
     "\"model_type\":\"Fast_dLLM_Qwen\""},
    {{.name = "qwen2.5-test", .family = "qwen2", .qkv_bias = true, .tied = true},
     "\"model_type\":\"qwen2\",\"rope_scaling\":{\"rope_type\":\"default\"}"},
    {{.name = "llada-test", .family = "llada", .qk_norm = true},
     "\"model_type\":\"llada\",\"qk_norm\":true,\"n_layers\":2"},
    {{.name = "llama-test", .family = "llama"},
     "\"model_type\":\"llama\",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,"
     "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
     "\"original_max_position_embeddings\":8192}"},
};

static struct model family_model(size_t i) {
    struct model model = families[i].model;
    model.layers = 2;
    model.hidden = 6;
    model.heads = 4;
    model.kv_heads = 2;
    model.head_dim = 2;
    model.ffn = 5;
    model.vocab = 7;
    return model;
}

static const char *family_config(const char *facts) {
    static char text[512];
    snprintf(text, sizeof text, "{%s,\"rope_theta\":5e5,\"rms_norm_eps\":1e-5}", facts);
    return text;
}

TEST(checkpoints_of_block_diffusion_and_autoregressive_families_are_read) {
    enter_folder();
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        struct model model = family_model(i);
        struct weights weights;
        struct err err = {0};
        write_checkpoint(&model, &(struct damage){.config = family_config(families[i].config)});
        int status = weights_open(&weights, device(KERNEL_F32), &model, folder, &err);
        ck_assert_msg(status == 0, "%s: %s", model.name, err.text);
        int64_t per_layer = 2 * 6 + 6 * 16 + 8 * 6 + 3 * 6 * 5 + (model.qkv_bias ? 16 : 0) +
                            (model.qk_norm ? 4 : 0);
        ck_assert_int_eq(check_filled(&weights), /* those of no layer are looked at in each */
                         2 * per_layer + 2 * (6 + (model.tied ? 1 : 2) * 42));
        ck_assert((weights_at(&weights, WEIGHT_HEAD, 0) ==
                   weights_at(&weights, WEIGHT_EMBEDDING, 0)) == model.tied);
        bool stretches = strcmp(model.name, "llama-test") == 0;
        ck_assert(weights.constants.rotation.stretch.factor == (stretches ? 8 : 0));
        weights_close(&weights);
    }
    close_devices();
}

/* Shapes as the mixtures have them: groups, a bias, an expert that is shared, a dense layer first,
 * one matrix of queries, keys and values. */
static const struct {
    struct model model;
    const char *config;
    int64_t n_numbers;
} mixtures[] = {
    {{.name = "llada-moe-test", .family = "lladamoe", .router = ROUTER_SOFTMAX, .qk_norm = true},
     "\"model_type\":\"lladamoe\"",
     2 * (160 + 4 * 6 + 4 * 54)},
    {{.name = "sdar-moe-test", .family = "sdar_moe", .router = ROUTER_SOFTMAX, .qk_norm = true},
     "\"model_type\":\"sdar_moe\"",
     2 * (160 + 4 * 6 + 4 * 54)},
    {{.name = "llada2-test",
      .family = "llada2_moe",
      .router = ROUTER_SIGMOID_GROUPED,
      .qk_norm = true,
      .ffn = 5,
      .shared_experts = 2,
      .shared_ffn = 2,
      .dense_layers = 1,
      .expert_bias = true},
     "\"model_type\":\"llada2_moe\"",
     2 * 160 + 3 * 30 + 4 * 6 + 4 + 4 * 54 + 3 * 24},
};

static struct model mixture_model(size_t i) {
    struct model model = mixtures[i].model;
    model.layers = 2;
    model.hidden = 6;
    model.heads = 4;
    model.kv_heads = 2;
    model.head_dim = 2;
    model.vocab = 7;
    model.experts = 4;
    model.experts_active = 2;
    model.expert_ffn = 3;
    return model;
}

TEST(checkpoints_of_mixtures_of_experts_are_read) {
    enter_folder();
    for (size_t i = 0; i < 2 * sizeof mixtures / sizeof mixtures[0]; i++) {
        struct model model = mixture_model(i / 2);
        enum kernel_dtype dtype = i % 2 == 0 ? KERNEL_F32 : KERNEL_BF16;
        struct weights weights;
        struct err err = {0};
        write_checkpoint(&model, &(struct damage){.config = family_config(mixtures[i / 2].config)});
        int status = weights_open(&weights, device(dtype), &model, folder, &err);
        ck_assert_msg(status == 0, "%s: %s", model.name, err.text);
        ck_assert_int_eq(check_filled(&weights), mixtures[i / 2].n_numbers + 2 * (6 + 2 * 42));
        weights_close(&weights);
    }
    close_devices();
}

TEST(a_mixture_that_does_not_fit_its_checkpoint_is_named) {
    enter_folder();
    struct model model = mixture_model(2);
    struct damage damage = {.config = family_config(mixtures[2].config)};
    damage.missing = "model.layers.1.mlp.experts.3.up_proj.weight";
    ASSERT_SAYS(checkpoint_error(&model, &damage),
                "DIR: has no tensor 'model.layers.1.mlp.experts.3.up_proj.weight', which "
                "model 'llada2-test' needs");
    damage.missing = NULL;
    damage.reshaped = "model.layers.0.attention.query_key_value.weight";
    ASSERT_SAYS(checkpoint_error(&model, &damage),
                "DIR/model.safetensors: tensor "
                "'model.layers.0.attention.query_key_value.weight' is [1, 96], but model "
                "'llada2-test' needs [16, 6]");
    damage.reshaped = NULL;
    damage.extra = "model.layers.0.mlp.gate.weight"; /* its first layer is dense */
    ASSERT_SAYS(checkpoint_error(&model, &damage),
                "DIR: holds a tensor 'model.layers.0.mlp.gate.weight', for which model "
                "'llada2-test' has no place: this is another model");
    close_devices();
}

/* A part [n_rows, n_columns] of a matrix of `width` columns, which begins at `whole`. */
static void assert_part(const float *mine, int64_t n_rows, int64_t n_columns, const float *whole,
                        int64_t width) {
    for (int64_t row = 0; row < n_rows; row++) {
        ck_assert_mem_eq(mine + row * n_columns, whole + row * width, n_columns * sizeof *mine);
    }
}

TEST(ranks_read_their_parts_of_a_checkpoint) {
    enter_folder();
    struct model model = mixture_model(2), rank;
    model.ffn = 6;
    model.expert_ffn = 4;
    model.vocab = 8;
    enum { C = 6, D = 2, F = 4, E = 4 };
    write_checkpoint(&model, &(struct damage){.config = family_config(mixtures[2].config)});
    struct weights whole, mine;
    struct err err = {0};
    const struct engine_device *cpu = device(KERNEL_F32);
    ck_assert_int_eq(weights_open(&whole, cpu, &model, folder, &err), 0);
    const float *all_qkv = weights_at(&whole, WEIGHT_QKV, 1);
    const float *all_down = weights_at(&whole, WEIGHT_EXPERTS_DOWN, 1);
    const float *all_up = weights_at(&whole, WEIGHT_EXPERTS_GATE_UP, 1);
    const float *all_head = weights_at(&whole, WEIGHT_HEAD, 0);
    for (int i = 0; i < 4; i++) {
        bool by_expert = i / 2 == 1;
        uint32_t r = (uint32_t)i % 2;
        ck_assert_int_eq(model_divide(&model, 2, by_expert, &rank, &err), 0);
        ck_assert_msg(weights_open_rank(&mine, cpu, &rank, r, folder, &err) == 0, "%s", err.text);
        const float *qkv = weights_at(&mine, WEIGHT_QKV, 1);
        const float *down = weights_at(&mine, WEIGHT_EXPERTS_DOWN, 1);
        const float *up = weights_at(&mine, WEIGHT_EXPERTS_GATE_UP, 1);
        assert_part(qkv, 2 * D, C, all_qkv + r * 2 * D * C, C);
        assert_part(qkv + 2 * D * C, D, C, all_qkv + (4 + r) * D * C, C);
        assert_part(qkv + 3 * D * C, D, C, all_qkv + (6 + r) * D * C, C);
        assert_part(weights_at(&mine, WEIGHT_HEAD, 0), 4, C, all_head + r * 4 * C, C);
        if (by_expert) {
            assert_part(up, E / 2 * 2 * F, C, all_up + r * (E / 2 * 2 * F * C), C);
            assert_part(down, E / 2 * C, F, all_down + r * (E / 2 * C * F), F);
        } else {
            assert_part(up, F / 2, C, all_up + r * (F / 2 * C), C);
            assert_part(up + F / 2 * C, F / 2, C, all_up + (F + r * (F / 2)) * C, C);
            assert_part(down, E * C, F / 2, all_down + r * (F / 2), F);
        }
        weights_close(&mine);
    }
    weights_close(&whole);
    close_devices();
}

TEST(a_tied_checkpoint_may_hold_its_embedding_twice_and_no_other_head) {
    enter_folder();
    struct model model = family_model(0);
    struct weights weights;
    struct err err = {0};
    struct damage damage = {.config = family_config(families[0].config), .head = 1};
    write_checkpoint(&model, &damage);
    ck_assert_msg(weights_open(&weights, device(KERNEL_F32), &model, folder, &err) == 0, "%s",
                  err.text);
    weights_close(&weights);
    damage.head = 2;
    ASSERT_SAYS(checkpoint_error(&model, &damage),
                "DIR: holds a tensor 'lm_head.weight', for which model 'sdar-test' has no "
                "place: this is another model");
    close_devices();
}

/* Numbers of transformers' formula for Llama 3.1, worked out on their own. */
TEST(low_frequencies_are_stretched_as_llama_has_it) {
    static const struct {
        int32_t pair;
        double frequency;
    } cases[] = {{0, 1},
                 {10, 0.12868737343265052},
                 {28, 0.003211445994752591},
                 {29, 0.002166570763503359},
                 {31, 0.0008567514129196321},
                 {34, 0.0001785078127679964},
                 {35, 9.556212353964683e-05},
                 {63, 3.068925988914511e-07}};
    const struct rotation llama3 = {500000, {8, 1, 4, 8192}}, plain = {.theta = 500000};
    static float table[64 * 128], unstretched[64 * 128];
    rotation_table(&llama3, 64, 128, table);
    rotation_table(&plain, 64, 128, unstretched);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int32_t pair = cases[i].pair;
        double frequency = rotation_frequency(&llama3, pair, 128);
        ck_assert_double_eq_tol(frequency / cases[i].frequency, 1, 1e-12);
        const float *at = table + 63 * 128 + 2 * pair;
        ck_assert_double_eq_tol((double)at[0], cos(63 * frequency), 1e-7);
        ck_assert_double_eq_tol((double)at[1], sin(63 * frequency), 1e-7);
        bool is_same = memcmp(at, unstretched + 63 * 128 + 2 * pair, 2 * sizeof *at) == 0;
        ck_assert(is_same == (pair < 29));
    }
}

TEST(a_stretch_that_the_engine_does_not_run_is_named) {
    enter_folder();
    struct model model = family_model(5);
    struct damage damage = {
        .config = family_config("\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"yarn\"}")};
    ASSERT_SAYS(checkpoint_error(&model, &damage),
                "DIR/config.json: rope_scaling of type 'yarn', but the engine runs 'llama3' "
                "and none");
    damage.config = family_config("\"model_type\":\"llama\",\"rope_scaling\":{\"rope_type\":"
                                  "\"llama3\",\"factor\":8}");
    ASSERT_SAYS(checkpoint_error(&model, &damage),
                "DIR/config.json: rope_scaling of type 'llama3' needs a factor of at least 1, "
                "0 < low_freq_factor < high_freq_factor and original_max_position_embeddings");
    close_devices();
}

TEST(a_matrix_larger_than_a_piece_arrives_whole) {
    static const struct model tall = {"llada-tall",  .family = "llada", .layers = 1,
                                      .hidden = 8,   .heads = 1,        .kv_heads = 1,
                                      .head_dim = 2, .ffn = 3,          .vocab = 140000};
    enter_folder();
    struct err err = {0};
    struct weights weights;
    write_checkpoint(
        &tall,
        &(struct damage){
            .config = "{\"model_type\":\"llada\",\"rope_theta\":5e5,\"rms_norm_eps\":1e-5}"});
    ck_assert_msg(weights_open(&weights, device(KERNEL_F32), &tall, folder, &err) == 0, "%s",
                  err.text);
    const float *embedding = weights_at(&weights, WEIGHT_EMBEDDING, 0);
    const float *head = weights_at(&weights, WEIGHT_HEAD, 0);
    for (int64_t i = 0; i < 8 * 140000; i++) {
        ck_assert(embedding[i] == mark(WEIGHT_EMBEDDING, 0, 0, i));
        ck_assert(head[i] == mark(WEIGHT_HEAD, 0, 0, i));
    }
    weights_close(&weights);
    close_devices();
}

TEST(a_checkpoint_that_does_not_fit_the_model_is_named) {
    enter_folder();
    struct damage damage = {.missing = "model.layers.1.mlp.up_proj.weight", .config = dream_config};
    ASSERT_SAYS(checkpoint_error(&dream, &damage),
                "DIR: has no tensor 'model.layers.1.mlp.up_proj.weight', which model "
                "'dream-test' needs");
    damage = (struct damage){.reshaped = "model.layers.0.self_attn.k_proj.weight",
                             .config = dream_config};
    ASSERT_SAYS(checkpoint_error(&dream, &damage),
                "DIR/model.safetensors: tensor 'model.layers.0.self_attn.k_proj.weight' is "
                "[1, 12], but model 'dream-test' needs [2, 6]");
    damage = (struct damage){.reshaped = "model.norm.weight", .config = dream_config};
    ASSERT_SAYS(checkpoint_error(&dream, &damage),
                "DIR/model.safetensors: tensor 'model.norm.weight' is [1, 6], but model "
                "'dream-test' needs [6]");
    damage =
        (struct damage){.extra = "model.layers.2.mlp.down_proj.weight", .config = dream_config};
    ASSERT_SAYS(checkpoint_error(&dream, &damage),
                "DIR: holds a tensor 'model.layers.2.mlp.down_proj.weight', for which model "
                "'dream-test' has no place: this is another model");
    damage = (struct damage){.extra = "model.layers.0.mlp.experts.0.up_proj.weight",
                             .config = dream_config};
    ASSERT_SAYS(checkpoint_error(&dream, &damage),
                "DIR: holds a tensor 'model.layers.0.mlp.experts.0.up_proj.weight', for which "
                "model 'dream-test' has no place: this is another model");
    damage = (struct damage){.extra = "value_head.inv_freq", .config = dream_config};
    ASSERT_SAYS(checkpoint_error(&dream, &damage),
                "DIR: holds a tensor 'value_head.inv_freq', for which model 'dream-test' has "
                "no place: this is another model");
    damage = (struct damage){
        .extra = "model.transformer.blocks.0.q_proj.bias",
        .config = "{\"model_type\":\"llada\",\"rope_theta\":5e5,\"rms_norm_eps\":1e-5}"};
    ck_assert_str_eq(
        checkpoint_error(&llada, &damage),
        "DIR: holds a tensor 'model.transformer.blocks.0.q_proj.bias', for which model "
        "'llada-test' has no place: this is another model");
    close_devices();
}

TEST(a_rotary_buffer_is_passed_over) {
    enter_folder();
    struct err err = {0};
    struct weights weights;
    write_checkpoint(&dream,
                     &(struct damage){.extra = "model.layers.0.self_attn.rotary_emb.inv_freq",
                                      .config = dream_config});
    ck_assert_msg(weights_open(&weights, device(KERNEL_F32), &dream, folder, &err) == 0, "%s",
                  err.text);
    weights_close(&weights);
    close_devices();
}

/* Old releases of transformers saved positions with the weights. */
TEST(a_buffer_of_whole_numbers_is_passed_over_and_a_weight_of_them_is_named) {
    enter_folder();
    struct err err = {0};
    struct weights weights;
    struct damage damage = {
        .extra = "model.embeddings.position_ids", .type = "I32", .config = dream_config};
    write_checkpoint(&dream, &damage);
    ck_assert_msg(weights_open(&weights, device(KERNEL_F32), &dream, folder, &err) == 0, "%s",
                  err.text);
    weights_close(&weights);
    damage.missing = damage.extra = "model.norm.weight";
    ASSERT_SAYS(checkpoint_error(&dream, &damage),
                "DIR/model.safetensors: tensor 'model.norm.weight' has dtype I32; F32, BF16 and "
                "F16 are read");
    close_devices();
}

TEST(a_configuration_of_another_family_is_named) {
    enter_folder();
    struct damage damage = {.config = dream_config};
    ck_assert_str_eq(
        checkpoint_error(&llada, &damage),
        "DIR/config.json: the model_type is 'Dream', but llada-test is of the family llada");
    damage.config = "{\"model_type\":\"Dream\",\"rope_theta\":1e6,\"rms_norm_eps\":1e-6,"
                    "\"num_hidden_layers\":3}";
    ASSERT_SAYS(checkpoint_error(&dream, &damage),
                "DIR/config.json: layers is 3, but dream-test has 2");
    damage.config = "{\"model_type\":\"Dream\",\"rope_theta\":0,\"rms_norm_eps\":1e-6}";
    ASSERT_SAYS(checkpoint_error(&dream, &damage),
                "DIR/config.json: rope_theta must be a number above 1 and rms_norm_eps one "
                "between 0 and 1");
    damage.config = "{\"model_type\":\"Dream\",\"rope_theta\":1e6}";
    ASSERT_SAYS(checkpoint_error(&dream, &damage),
                "DIR/config.json: rope_theta must be a number above 1 and rms_norm_eps one "
                "between 0 and 1");
    damage.config = "{";
    ASSERT_SAYS(checkpoint_error(&dream, &damage), "DIR/config.json:1: ");
    close_devices();
}

TEST(random_weights_depend_on_the_seed_alone_and_are_never_zero) {
    static const struct model wide = {"sdar-test",  .family = "sdar", .layers = 2,    .hidden = 200,
                                      .heads = 4,   .kv_heads = 2,    .head_dim = 32, .ffn = 300,
                                      .vocab = 400, .qk_norm = true,  .tied = true};
    struct weights a, b, rounded, other;
    struct err err = {0};
    ck_assert_int_eq(weights_open(&a, device(KERNEL_F32), &wide, "random:7", &err), 0);
    ck_assert_int_eq(weights_open(&b, device(KERNEL_F32), &wide, "random:7", &err), 0);
    ck_assert_int_eq(weights_open(&rounded, device(KERNEL_BF16), &wide, "random:7", &err), 0);
    ck_assert_int_eq(weights_open(&other, device(KERNEL_F32), &wide, "random:8", &err), 0);
    ck_assert(a.constants.rotation.theta == 1e6);
    ck_assert(a.constants.rotation.stretch.factor == 0); /* the Llama that sdar is like has one */
    ck_assert_ptr_eq(weights_at(&a, WEIGHT_HEAD, 0), weights_at(&a, WEIGHT_EMBEDDING, 0));
    ck_assert_ptr_null(weights_at(&a, WEIGHT_QKV_BIAS, 1));
    for (int slot = 0; slot < WEIGHT_SLOT_COUNT; slot++) {
        for (uint32_t layer = 0; layer < wide.layers; layer++) {
            int64_t n_rows, n_columns;
            if (!weight_part_shape(&wide, (enum weight_slot)slot, 0, &n_rows, &n_columns)) {
                continue;
            }
            const float *x = weights_at(&a, (enum weight_slot)slot, layer);
            const float *same = weights_at(&b, (enum weight_slot)slot, layer);
            const float *not_same = weights_at(&other, (enum weight_slot)slot, layer);
            const uint16_t *half = weights_at(&rounded, (enum weight_slot)slot, layer);
            double squares = 0;
            int64_t n = n_rows * n_columns;
            ck_assert_mem_eq(x, same, (size_t)n * sizeof *x);
            ck_assert_mem_ne(x, not_same, (size_t)n * sizeof *x);
            for (int64_t i = 0; i < n; i++) {
                ck_assert(x[i] != 0 && half[i] == bf16_from_float(x[i]));
                squares += (double)x[i] * (double)x[i];
            }
            double fan_in = (double)n_columns; /* the embedding is the head, too */
            if (n_columns > 1) {
                ck_assert_double_eq_tol(squares / (double)n * fan_in, 1, 0.03);
            }
        }
    }
    const float *first = weights_at(&a, WEIGHT_QKV, 0), *second = weights_at(&a, WEIGHT_QKV, 1);
    ck_assert(first[0] != second[0]);
    weights_close(&a);
    weights_close(&b);
    weights_close(&rounded);
    weights_close(&other);
    close_devices();
}

TEST(a_layout_gives_every_matrix_its_own_aligned_place) {
    static const char *const names[] = {"dream-7b", "sdar-8b", "llada-moe", "sdar-30b-a3b",
                                        "llada2-mini"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct weight_layout layout;
        struct err err = {0};
        const struct model *model = model_find(names[i], &err);
        ck_assert_int_eq(weight_layout_make(&layout, model, KERNEL_BF16, &err), 0);
        int64_t bytes = model_weights_bytes(model, &(struct storage){0}), n_slots = 0, end = 0;
        for (uint32_t layer = 0; layer < model->layers; layer++) {
            for (int s = layer == 0 ? 0 : WEIGHT_ATTENTION_NORM; s < WEIGHT_SLOT_COUNT; s++) {
                enum weight_slot slot = (enum weight_slot)s;
                int64_t at = weight_offset_bytes(&layout, slot, layer), n = 0, n_rows, n_columns;
                for (int part = 0; part < parts_of(model, slot, layer); part++) {
                    n += weight_part_shape(model, slot, part, &n_rows, &n_columns)
                             ? n_rows * n_columns
                             : 0;
                }
                ck_assert_int_eq(at >= 0, n > 0);
                if (n > 0) {
                    bool is_wide = weight_dtype(slot, KERNEL_BF16) == KERNEL_F32;
                    ck_assert(at % WEIGHT_ALIGN_BYTES == 0 && at >= end);
                    end = at + n * (is_wide ? F32_BYTES : BF16_BYTES);
                    n_slots++;
                }
            }
        }
        ck_assert(end <= layout.bytes);
        ck_assert(layout.bytes >= bytes && layout.bytes < bytes + n_slots * 2 * WEIGHT_ALIGN_BYTES);
    }
}

/* Every part is the sequence of its own key: what any device makes of it (kernels/rules/keyed.h).
 */
TEST(random_parts_are_keyed_by_seed_and_name) {
    struct weights weights;
    struct err err = {0};
    ck_assert_int_eq(weights_open(&weights, device(KERNEL_F32), &dream, "random:9", &err), 0);
    const float *values = weights_at(&weights, WEIGHT_QKV, 1);
    uint64_t key = rng_stream(9, "weights qkv 2 of layer 1").s[0];
    for (uint64_t i = 0; i < 12; i++) { /* 2 rows of values behind 6 of queries and 2 of keys */
        double u = 2 * uniform_keyed(key, i) - 1;
        ck_assert_float_eq(values[8 * 6 + i], (float)(sqrt(3.0 / 6) * u));
    }
    weights_close(&weights);
    close_devices();
}

TEST(weights_that_cannot_be_made_are_refused_with_one_sentence) {
    struct weights weights;
    struct err err = {0};
    ck_assert_int_eq(weights_open(&weights, device(KERNEL_F32), &dream, "random:x", &err),
                     ERR_USAGE);
    ASSERT_SAYS(err.text,
                "weights 'random:x': random weights are written random:SEED, a whole number");
    err = (struct err){0};
    ck_assert_int_eq(weights_open(&weights, device(KERNEL_F32), &dream, "random", &err), ERR_USAGE);
    ASSERT_SAYS(err.text, "weights 'random': there is no such folder; random weights are "
                          "written random:SEED, such as random:1");
    err = (struct err){0};
    ck_assert_int_eq(weights_open(&weights, device(KERNEL_F32), &dream, "/nowhere", &err),
                     ERR_WORLD);
    ASSERT_SAYS(err.text, "/nowhere/config.json: cannot be opened: No such file or directory");
    err = (struct err){0};
    struct model unknown = dream;
    unknown.name = unknown.family = "gpt-2";
    ck_assert_int_eq(weights_open(&weights, device(KERNEL_F32), &unknown, "random:1", &err),
                     ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "no family of models is called 'gpt-2'; there are: "));
    err = (struct err){0};
    unknown.family = NULL;
    ck_assert_int_eq(weights_open(&weights, device(KERNEL_F32), &unknown, "random:1", &err),
                     ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "no weights for model 'gpt-2'"));
    err = (struct err){0};
    struct weight_layout layout;
    struct model wide = mixture_model(0);
    wide.experts = 512;
    ck_assert_int_eq(weight_layout_make(&layout, &wide, KERNEL_F32, &err), ERR_USAGE);
    ASSERT_SAYS(err.text, "model 'llada-moe-test' chooses 2 of 512 experts in 0 groups; the "
                          "engine runs at most 16 of 256 in 32");
    close_devices();
}

TEST(a_file_that_becomes_shorter_while_it_is_read_ends_the_program_with_status_1) {
    char bytes[8192];
    memset(bytes, 'x', sizeof bytes - 1);
    bytes[sizeof bytes - 1] = '\0';
    const char *path = scratch_write("shorter", bytes);
    int file = open(path, O_RDWR);
    const volatile char *map = mmap(NULL, sizeof bytes, PROT_READ, MAP_PRIVATE, file, 0);
    ck_assert_ptr_ne((void *)(uintptr_t)map, MAP_FAILED);
    pid_t child = fork();
    if (child == 0) {
        truncated_watch(path, (const void *)(uintptr_t)map, sizeof bytes);
        _exit(ftruncate(file, 0) == 0 && map[4096] == 'x' ? 2 : 3);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(WIFEXITED(status) ? WEXITSTATUS(status) : 128, 1);
    munmap((void *)(uintptr_t)map, sizeof bytes);
    close(file);
}

SUITE("weights")
