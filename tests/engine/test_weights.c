/* Safetensors files and their defects, checkpoints of every family. */
#include "tests/support/checkpoints.h"

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

/* A shard with one tensor of one number. */
static void write_shard(const char *name, const char *tensor) {
    unsigned char file[512];
    char header[256];
    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", tensor);
    write_file(name, file, make_file(file, header, NULL, 4));
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

SUITE("weights")
