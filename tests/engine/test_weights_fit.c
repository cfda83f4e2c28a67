/* Checkpoints that do not fit their model, random weights, layouts. */
#include "tests/support/checkpoints.h"

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
        ck_assert_int_eq(
            weight_layout_make(&layout, model, KERNEL_BF16, &(struct storage){0}, &err), 0);
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
    ck_assert_int_eq(weight_layout_make(&layout, &wide, KERNEL_F32, &(struct storage){0}, &err),
                     ERR_USAGE);
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

SUITE("weights that fit")
