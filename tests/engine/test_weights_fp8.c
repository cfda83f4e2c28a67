/* Weights in fp8: quantised from wide checkpoints and random numbers, taken as checkpoints in fp8
 * store them, expanded; and scales that cannot be read. */
#include <stdlib.h>

#include "engine/weights/weights.h"
#include "kernels/fp8.h"
#include "tests/support/checkpoints.h"
#include "tests/support/suite.h"

/* Parts of 256, 128 and 128 rows: squares of 128 x 128 are those of the fused matrices, too. */
static struct model model = {"fp8-test",     .family = "llada", .layers = 1,
                             .hidden = 256,  .heads = 4,        .kv_heads = 2,
                             .head_dim = 64, .ffn = 384,        .vocab = 8};
static const char config[] = "{\"model_type\":\"llada\",\"rope_theta\":10000,\"rms_norm_eps\":0.5}";

enum form {
    SQUARES,  /* X.weight_scale_inv, of 128 x 128 */
    ROWS,     /* X.weight_scale, [N, 1] */
    ROW_LIST, /* the same, [N] */
    ONE,      /* the same, [1] */
    WIDE,     /* no fp8 at all */
};

/* One thing of a checkpoint in fp8 that is otherwise sound, of the query's projection. */
static struct {
    bool lacks_scales, is_wide, transposes, marks_other, is_stored_in_fp8;
    const char *beside; /* the ending of one tensor more; NULL: none */
    double bad;         /* a scale; 0: none */
} wrong;

enum { MOST_BYTES = 1 << 23, MOST_HEADER = 1 << 14 };
static unsigned char bytes[MOST_BYTES];
static char header[MOST_HEADER];
static int64_t n_bytes;

static void add_tensor(const char *name, const char *type, const char *shape, const void *data,
                       int64_t size) {
    const size_t used = strlen(header);
    ck_assert(n_bytes + size <= MOST_BYTES);
    memcpy(bytes + n_bytes, data, (size_t)size);
    snprintf(header + used, sizeof header - used,
             "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%ld,%ld]}",
             used > 1 ? "," : "", name, type, shape, (long)n_bytes, (long)(n_bytes + size));
    n_bytes += size;
}

/* A code that is no NaN, and a scale; both tell tensors and places apart. */
static uint8_t code_at(int64_t i) {
    const uint8_t code = (uint8_t)(i * 37 + i / 256 * 11);
    return (code & 127) == 127 ? 9 : code;
}

static float scale_at(int64_t i) {
    return 0.001f * (float)(1 + i % 17);
}

static bool is_query(const char *name) {
    return strstr(name, "q_proj") != NULL;
}

static void add_scales(const char *name, enum form form, int64_t n, int64_t k) {
    static float scales[1024];
    const bool by_squares = form == SQUARES;
    const int64_t rows = by_squares ? (n + 127) / 128 : form == ONE ? 1 : n;
    const int64_t columns = by_squares ? (k + 127) / 128 : 1;
    char full[160], shape[64];
    for (int64_t i = 0; i < rows * columns; i++) {
        scales[i] = scale_at(i);
    }
    if (is_query(name) && wrong.bad != 0) {
        scales[1] = (float)wrong.bad;
    }
    snprintf(full, sizeof full, "%s%s", name, by_squares ? "_scale_inv" : "_scale");
    if (form == ROW_LIST || form == ONE) {
        snprintf(shape, sizeof shape, "[%ld]", (long)rows);
    } else {
        const bool turns = wrong.transposes && is_query(name);
        snprintf(shape, sizeof shape, "[%ld,%ld]", (long)(turns ? rows * columns * 2 : rows),
                 (long)columns);
        add_tensor(full, wrong.marks_other && is_query(name) ? "U32" : "F32", shape, scales,
                   rows * columns * 4 * (turns ? 2 * columns : 1));
        return;
    }
    add_tensor(full, "F32", shape, scales, rows * columns * 4);
}

static bool is_product(enum weight_slot slot) {
    return slot == WEIGHT_QKV || slot == WEIGHT_OUTPUT || slot == WEIGHT_GATE_UP ||
           slot == WEIGHT_DOWN;
}

static void write_fp8(enum form form) {
    static float wide[256 * 512];
    static uint8_t codes[256 * 512];
    static unsigned char file[MOST_BYTES + MOST_HEADER + 8];
    struct err err = {0};
    struct checkpoint_family family;
    ck_assert_msg(checkpoint_family_open(&model, &family, &err) == 0, "%s", err.text);
    strcpy(header, "{");
    n_bytes = 0;
    for (int s = 0; s < WEIGHT_SLOT_COUNT; s++) {
        const enum weight_slot slot = (enum weight_slot)s;
        for (int part = 0; part < parts_of(&model, slot, 0); part++) {
            int64_t n, k;
            char name[128], shape[64];
            if (!weight_part_shape(&model, slot, part, &n, &k)) {
                continue;
            }
            checkpoint_tensor_name(&family, slot, part, 0, name, sizeof name);
            snprintf(shape, sizeof shape, k > 1 ? "[%ld,%ld]" : "[%ld]", (long)n, (long)k);
            const bool narrow =
                form != WIDE && is_product(slot) && !(wrong.is_wide && is_query(name));
            for (int64_t i = 0; i < n * k; i++) {
                codes[i] = code_at(i + 64 * s + part);
                wide[i] = (float)((i * 7919 + s) % 2003 - 1001) / 500;
            }
            add_tensor(name, narrow ? "F8_E4M3" : "F32", shape,
                       narrow ? (const void *)codes : (const void *)wide, n * k * (narrow ? 1 : 4));
            if (narrow && !(wrong.lacks_scales && is_query(name))) {
                add_scales(name, form, n, k);
            }
            if (wrong.beside != NULL && is_query(name)) {
                char full[160];
                snprintf(full, sizeof full, "%s%s", name, wrong.beside);
                add_tensor(full, "F32", "[1]", wide, 4);
            }
        }
    }
    checkpoint_family_close(&family);
    strcat(header, "}");
    const size_t size = strlen(header);
    for (int i = 0; i < 8; i++) {
        file[i] = (unsigned char)((uint64_t)size >> 8 * i);
    }
    memcpy(file + 8, header, size);
    memcpy(file + 8 + size, bytes, (size_t)n_bytes);
    write_file("model.safetensors", file, 8 + size + (size_t)n_bytes);
    write_text("config.json", config);
}

static struct storage fp8_of(enum number_type type) {
    return (struct storage){.weights = (uint8_t)type,
                            .activations = (uint8_t)type,
                            .cache = NUMBER_F32,
                            .head = NUMBER_F32,
                            .wide = NUMBER_F32};
}

static struct weights open_weights(const struct storage *storage, const char *source) {
    struct weights weights;
    struct err err = {0};
    ck_assert_msg(
        weights_open_stored(&weights, device(KERNEL_F32), &model, storage, 0, source, &err) == 0,
        "%s", err.text);
    return weights;
}

static const enum weight_slot products[] = {WEIGHT_QKV, WEIGHT_OUTPUT, WEIGHT_GATE_UP, WEIGHT_DOWN};

/* The value of weight (row, column) of a slot. */
static float value_at(const struct weights *weights, enum weight_slot slot, int64_t row,
                      int64_t column) {
    const struct weight_matrices all = weight_matrices_of(&weights->layout, slot);
    const int64_t group = number_scale_columns(all.type, all.n_columns);
    const int64_t wide = (all.n_columns + group - 1) / group;
    const float *scales = weights_scales_at(weights, slot, 0);
    const void *at = weights_at(weights, slot, 0);
    return scales == NULL ? ((const float *)at)[row * all.n_columns + column]
                          : e4m3_to_float(((const uint8_t *)at)[row * all.n_columns + column]) *
                                scales[row / number_scale_rows(all.type) * wide + column / group];
}

/* The bytes of a checkpoint are the bytes of the block; expanded they are codes times scales. */
TEST(a_checkpoint_in_fp8_is_taken_as_it_is_and_expanded_where_wide_numbers_are_asked_for) {
    enter_folder();
    for (int form = SQUARES; form <= ONE; form++) {
        write_fp8((enum form)form);
        const struct storage narrow = fp8_of(form == SQUARES ? NUMBER_FP8 : NUMBER_FP8_CHANNEL);
        const struct storage f32 = storage_of(NUMBER_F32);
        struct weights taken = open_weights(&narrow, folder), wide = open_weights(&f32, folder);
        for (size_t s = 0; s < sizeof products / sizeof products[0]; s++) {
            const enum weight_slot slot = products[s];
            const struct weight_matrices all = weight_matrices_of(&taken.layout, slot);
            const uint8_t *codes = weights_at(&taken, slot, 0);
            int64_t before = 0, n, k;
            for (int part = 0; weight_part_shape(&model, slot, part, &n, &k); part++) {
                for (int64_t i = 0; i < n * k; i++) {
                    const uint8_t code = code_at(i + 64 * slot + part);
                    const int64_t at = form == SQUARES
                                           ? i / k / 128 * ((k + 127) / 128) + i % k / 128
                                       : form == ONE ? 0
                                                     : i / k;
                    const float value = e4m3_to_float(code) * scale_at(at);
                    ck_assert_int_eq(codes[before * k + i], code);
                    ck_assert(value_at(&taken, slot, before + i / k, i % k) == value);
                    ck_assert(value_at(&wide, slot, before + i / k, i % k) == value);
                }
                before += n;
            }
            ck_assert_int_eq(before, all.n_rows);
        }
        weights_close(&taken);
        weights_close(&wide);
    }
    close_devices();
}

/* Within half of the last place of e4m3, by the largest number that shares the scale. */
TEST(wide_checkpoints_and_random_numbers_are_quantised) {
    enter_folder();
    write_fp8(WIDE);
    const char *const sources[] = {folder, "random:5"};
    static const enum number_type types[] = {NUMBER_FP8, NUMBER_FP8_CHANNEL};
    for (int i = 0; i < 4; i++) {
        const struct storage narrow = fp8_of(types[i / 2]), f32 = storage_of(NUMBER_F32);
        struct weights taken = open_weights(&narrow, sources[i % 2]);
        struct weights wide = open_weights(&f32, sources[i % 2]);
        ck_assert_int_eq(taken.layout.bytes % WEIGHT_ALIGN_BYTES, 0);
        ck_assert_int_le(taken.layout.bytes - model_weights_bytes(&model, &narrow),
                         WEIGHT_SLOT_COUNT * WEIGHT_ALIGN_BYTES);
        ck_assert_int_ge(taken.layout.bytes, model_weights_bytes(&model, &narrow));
        for (size_t s = 0; s < sizeof products / sizeof products[0]; s++) {
            const struct weight_matrices all = weight_matrices_of(&taken.layout, products[s]);
            double apart = 0, size = 0;
            for (int64_t row = 0; row < all.n_rows; row++) {
                for (int64_t column = 0; column < all.n_columns; column++) {
                    const float want = value_at(&wide, products[s], row, column);
                    const float got = value_at(&taken, products[s], row, column);
                    ck_assert(fabsf(got - want) <= fabsf(want) * 0x1.01p-4f + 1e-4f);
                    apart += pow((double)(got - want), 2);
                    size += pow((double)want, 2);
                }
            }
            ck_assert_double_lt(sqrt(apart / size), 0.04);
            ck_assert_double_gt(sqrt(apart / size), 0.01);
        }
        weights_close(&taken);
        weights_close(&wide);
    }
    close_devices();
}

/* The output head where it is said, and nothing else, is in fp8. */
TEST(the_head_is_quantised_where_its_type_says_so) {
    struct storage storage = storage_of(NUMBER_F32);
    storage.head = NUMBER_FP8;
    struct weights taken = open_weights(&storage, "random:5");
    ck_assert_ptr_nonnull(weights_scales_at(&taken, WEIGHT_HEAD, 0));
    ck_assert_ptr_null(weights_scales_at(&taken, WEIGHT_QKV, 0));
    ck_assert_ptr_null(weights_scales_at(&taken, WEIGHT_EMBEDDING, 0));
    weights_close(&taken);
    close_devices();
}

static const char *fp8_error(enum form form, enum number_type type) {
    const struct storage storage = fp8_of(type);
    struct weights weights;
    struct err err = {0};
    write_fp8(form);
    ck_assert_int_eq(
        weights_open_stored(&weights, device(KERNEL_F32), &model, &storage, 0, folder, &err),
        ERR_WORLD);
    ck_assert_ptr_null(weights.block);
    memset(&wrong, 0, sizeof wrong);
    return shorten(err.text);
}

TEST(scales_that_cannot_be_read_are_refused_with_a_sentence) {
    enter_folder();
    wrong.lacks_scales = true;
    ASSERT_SAYS(fp8_error(SQUARES, NUMBER_FP8), "q_proj.weight' is F8_E4M3 and has no scales");
    wrong.bad = INFINITY;
    ASSERT_SAYS(fp8_error(SQUARES, NUMBER_FP8), "scale 1 of ");
    wrong.bad = NAN;
    ASSERT_SAYS(fp8_error(ROWS, NUMBER_FP8_CHANNEL), "no finite number");
    wrong.bad = -1;
    ASSERT_SAYS(fp8_error(SQUARES, NUMBER_FP8), "is -1, which is no finite number of at least 0");
    wrong.transposes = true;
    ASSERT_SAYS(fp8_error(SQUARES, NUMBER_FP8), "one for each 128 x 128 of it");
    wrong.marks_other = true;
    ASSERT_SAYS(fp8_error(SQUARES, NUMBER_FP8), "are U32; F32, BF16 and F16 are read");
    ASSERT_SAYS(fp8_error(SQUARES, NUMBER_FP8_CHANNEL), "set storage.weights = fp8");
    ASSERT_SAYS(fp8_error(ROWS, NUMBER_FP8), "set storage.weights = fp8-channel");
    wrong.beside = "_zero_point";
    ASSERT_SAYS(fp8_error(ROWS, NUMBER_FP8_CHANNEL), "of a quantisation that nothing here reads");
    wrong.beside = ".input_scale";
    ASSERT_SAYS(fp8_error(ROWS, NUMBER_FP8_CHANNEL), "weight.input_scale' of a quantisation");
    wrong.beside = ".other";
    ASSERT_SAYS(fp8_error(ROWS, NUMBER_FP8_CHANNEL), "has no place: this is another model");
    wrong.is_wide = true;
    ASSERT_SAYS(fp8_error(SQUARES, NUMBER_FP8), "q_proj.weight' is F32 and ");
    close_devices();
}

/* Where a rank's row and column of a slot lie in the model's. */
static void place_in_whole(const struct model *rank, enum weight_slot slot, int64_t number,
                           int64_t *row, int64_t *column) {
    int64_t before = 0, n, k;
    if (slot == WEIGHT_OUTPUT || slot == WEIGHT_DOWN) {
        ck_assert(weight_part_shape(rank, slot, 0, &n, &k));
        *column += number * k;
        return;
    }
    for (int part = 0; weight_part_shape(rank, slot, part, &n, &k); part++) {
        if (*row < before + n) {
            *row += before * (rank->ranks - 1) + number * n;
            return;
        }
        before += n;
    }
    ck_abort_msg("no such row");
}

/* Their squares are the model's where cuts fall between these, and so are scales of rows that are
 * not cut. */
TEST(ranks_have_the_codes_and_scales_of_their_part) {
    static const enum number_type types[] = {NUMBER_FP8, NUMBER_FP8_CHANNEL};
    enum { RANKS = 2 };
    struct model whole = model, rank;
    struct err err = {0};
    enter_folder();
    model.kv_heads = 4;
    model.ffn = 512;
    whole = model;
    ck_assert_int_eq(model_divide(&whole, RANKS, false, &rank, &err), 0);
    for (int i = 0; i < 6; i++) {
        const enum number_type type = types[i / 3];
        const struct storage narrow = fp8_of(type);
        write_fp8(i % 3 == 0 ? WIDE : type == NUMBER_FP8 ? SQUARES : ROWS);
        const char *source = i % 3 == 2 ? "random:5" : folder;
        struct weights all = open_weights(&narrow, source);
        for (uint32_t r = 0; r < RANKS; r++) {
            struct weights part;
            ck_assert_msg(weights_open_stored(&part, device(KERNEL_F32), &rank, &narrow, r, source,
                                              &err) == 0,
                          "%s", err.text);
            for (size_t s = 0; s < sizeof products / sizeof products[0]; s++) {
                const enum weight_slot slot = products[s];
                const struct weight_matrices own = weight_matrices_of(&part.layout, slot);
                const bool is_cut = slot == WEIGHT_OUTPUT || slot == WEIGHT_DOWN;
                const bool is_same = type == NUMBER_FP8 || i % 3 == 1 || !is_cut;
                for (int64_t at = 0; at < own.n_rows * own.n_columns; at++) {
                    int64_t row = at / own.n_columns, column = at % own.n_columns;
                    const float mine = value_at(&part, slot, row, column);
                    place_in_whole(&rank, slot, r, &row, &column);
                    const float theirs = value_at(&all, slot, row, column);
                    ck_assert(is_same ? mine == theirs
                                      : fabsf(mine - theirs) <= fabsf(theirs) * 0.13f + 1e-3f);
                }
            }
            weights_close(&part);
        }
        weights_close(&all);
    }
    close_devices();
}

/* A rank's part of the key-value heads is half a square. */
TEST(squares_that_a_rank_s_cut_crosses_are_quantised_and_not_read) {
    struct model rank;
    struct weights weights;
    struct err err = {0};
    const struct storage storage = fp8_of(NUMBER_FP8), rows = fp8_of(NUMBER_FP8_CHANNEL);
    enter_folder();
    ck_assert_int_eq(model_divide(&model, 2, false, &rank, &err), 0);
    ck_assert_int_eq(
        weights_open_stored(&weights, device(KERNEL_F32), &rank, &storage, 1, "random:1", &err), 0);
    weights_close(&weights);
    write_fp8(SQUARES);
    ck_assert_int_eq(
        weights_open_stored(&weights, device(KERNEL_F32), &rank, &storage, 1, folder, &err),
        ERR_WORLD);
    ASSERT_SAYS(err.text, "a part of the model's weights cuts at row 64");
    write_fp8(ROWS);
    err = (struct err){0};
    ck_assert_int_eq(
        weights_open_stored(&weights, device(KERNEL_F32), &rank, &rows, 1, folder, &err), 0);
    weights_close(&weights);
    close_devices();
}

/* Gates of 96 rows: a square of gates and ups together has numbers of two of the checkpoint's. */
TEST(squares_that_two_parts_share_are_quantised_and_not_read) {
    enter_folder();
    model.ffn = 96;
    const struct storage storage = fp8_of(NUMBER_FP8);
    struct weights taken = open_weights(&storage, "random:1");
    weights_close(&taken);
    ASSERT_SAYS(fp8_error(SQUARES, NUMBER_FP8), "the matrices of 'gate up' do not fill");
    close_devices();
}

/* As a GPU of compute capability 8.0 would be asked: its inputs stay wide. */
TEST(a_card_without_products_of_fp8_takes_wide_inputs_alone) {
    static const int32_t capabilities[] = {80, 86, 89, 90};
    for (int i = 0; i < 8; i++) {
        struct engine_device card = *device(KERNEL_F32);
        struct storage storage = fp8_of(NUMBER_FP8);
        struct weights weights;
        struct err err = {0};
        card.facts.capability = capabilities[i / 2];
        storage.activations = i % 2 ? NUMBER_F32 : NUMBER_FP8;
        const int status =
            weights_open_stored(&weights, &card, &model, &storage, 0, "random:1", &err);
        const bool is_refused = card.facts.capability < 89 && i % 2 == 0;
        ck_assert_int_eq(status, is_refused ? ERR_USAGE : 0);
        ck_assert(!is_refused || strstr(err.text, "set storage.activations = bf16") != NULL);
        if (status == 0) {
            weights_close(&weights);
        }
    }
    close_devices();
}

SUITE("weights in fp8")
