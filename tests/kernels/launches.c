#include "tests/kernels/launches.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/calls.h"
#include "kernels/launch_shapes.h"
#include "kernels/rules/draw.h"
#include "sim/base/err.h"

/* CUDA C++ Programming Guide 13.0, technical specifications per compute capability. */
const struct architecture architectures[N_ARCHITECTURES] = {
    {"sm_80", false, 164 << 10, 163 << 10, 0},    {"sm_86", false, 100 << 10, 99 << 10, 0},
    {"sm_89", false, 100 << 10, 99 << 10, 0},     {"sm_90a", true, 228 << 10, 227 << 10, 1024},
    {"sm_120", false, 100 << 10, 99 << 10, 1024},
};

/* Adds a launch, or makes the one that is there as large. */
static void add(struct launch_list *list, int threads, int most_threads, int dynamic_bytes,
                bool asks, const char *format, ...) {
    struct launch row = {.threads = threads,
                         .most_threads = most_threads,
                         .dynamic_bytes = dynamic_bytes,
                         .asks = asks};
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(row.kernel, sizeof row.kernel, format, arguments);
    va_end(arguments);
    ASSERT(length > 0 && length < KERNEL_CHARS);
    for (size_t i = 0; i < list->n; i++) {
        struct launch *known = &list->row[i];
        if (known->threads == threads && strcmp(known->kernel, row.kernel) == 0) {
            known->dynamic_bytes =
                dynamic_bytes > known->dynamic_bytes ? dynamic_bytes : known->dynamic_bytes;
            return;
        }
    }
    ASSERT(list->n < MOST_LAUNCHES);
    list->row[list->n++] = row;
}

/* Of threads that no shape changes, and without dynamic shared memory. */
static void add_fixed(struct launch_list *list, int threads, const char *kernel) {
    add(list, threads, threads, 0, false, "%s", kernel);
}

static const char *truth(bool is) {
    return is ? "true" : "false";
}

static void add_both(struct launch_list *list, int threads, const char *kernel) {
    for (int is = 0; is < 2; is++) {
        add(list, threads, threads, 0, false, "%s<%s>", kernel, truth(is));
    }
}

static const int head_sizes[] = {
#define HEAD(D) D,
    HEAD_SIZES(HEAD)
#undef HEAD
};
enum { N_HEAD_SIZES = sizeof head_sizes / sizeof head_sizes[0] };
static const int wide_head_sizes[] = {
#define HEAD(D) D,
    WIDE_HEAD_SIZES(HEAD)
#undef HEAD
};
enum { N_WIDE_HEAD_SIZES = sizeof wide_head_sizes / sizeof wide_head_sizes[0] };

/* ---- elementwise ---- */

static void add_norms(struct launch_list *list) {
    for (int n_channels = 8; n_channels <= 32768; n_channels += 8) {
        for (int kind = 0; kind < 12; kind++) {
            const int n_rows = (const int[]){1, 4096, 4097}[kind / 4];
            struct block_shape shape = norm_shape_of(n_rows, n_channels, kind & 1, kind & 2);
            for (int codes = 0; codes < 2; codes++) {
                const int parts = norm_parts_of(shape, n_rows, codes);
                add(list, shape.threads / parts, NORM_MOST_THREADS, 0, false,
                    "norm_kernel<%d, %s, %d>", shape.each * parts, truth(codes), parts);
            }
        }
    }
}

static void add_ropes(struct launch_list *list) {
    for (int n_heads = 1; n_heads <= 1024; n_heads++) {
        for (int kind = 0; kind < 4 * N_WIDE_HEAD_SIZES; kind++) {
            int head_size = wide_head_sizes[kind / 4];
            if ((kind & 2) && !is_head_size(head_size)) {
                continue; /* not in fp8 */
            }
            add(list, rope_threads(head_size, n_heads), ROPE_MOST_THREADS, 0, false,
                "rope_kernel<%d, %s, %s>", head_size, truth(kind & 1), truth(kind & 2));
        }
    }
}

static void add_elementwise(struct launch_list *list) {
    add_fixed(list, ELEMENTWISE_THREADS, "embed_kernel");
    add_fixed(list, ELEMENTWISE_THREADS, "swiglu_kernel");
    add_fixed(list, ELEMENTWISE_THREADS, "add_kernel");
    add_fixed(list, ELEMENTWISE_THREADS, "keep_kernel");
    add_fixed(list, ELEMENTWISE_THREADS, "keep_fp8_kernel");
    add_fixed(list, ELEMENTWISE_THREADS, "quantise_weights_kernel<float>");
    add_fixed(list, ELEMENTWISE_THREADS, "quantise_weights_kernel<__nv_bfloat16>");
    add_fixed(list, ELEMENTWISE_THREADS, "random_kernel<float>");
    add_fixed(list, ELEMENTWISE_THREADS, "random_kernel<__nv_bfloat16>");
    add_fixed(list, COMPACT_THREADS, "compact_kernel");
    add_fixed(list, FEATURE_THREADS, "keep_feature_kernel");
    add_fixed(list, FEATURE_THREADS, "add_feature_kernel");
    add_fixed(list, 1, "settle");
    add_fixed(list, 1, "probe"); /* asked for when a device is opened, never launched */
    add_norms(list);
    add_ropes(list);
}

/* ---- decoding ---- */

static void add_decode(struct launch_list *list) {
    add_fixed(list, DRAW_THREADS, "draw_kernel");
    add_fixed(list, DRAW_THREADS, "draw_part_kernel");
    add_fixed(list, SOFTMAX_THREADS, "softmax_kernel");
    add_fixed(list, ELEMENTWISE_THREADS, "softcap_kernel");
    add_fixed(list, RENOISE_THREADS, "renoise_kernel<1>");
    add_fixed(list, RENOISE_THREADS, "renoise_kernel<8>");
    add_fixed(list, CONDITION_THREADS, "condition_kernel");
    add_fixed(list, EXPECTED_THREADS, "keep_expected_kernel");
    add_fixed(list, EXPECTED_THREADS, "add_expected_kernel");
    add_fixed(list, NEXT_STEP_THREADS, "next_step_kernel");
    add_fixed(list, CREDIT_THREADS, "credit_kernel");
    add_fixed(list, PENALISE_THREADS, "penalise_kernel");
    add_both(list, SAMPLE_THREADS, "sample_kernel");
    add_both(list, HEAD_REDUCE_THREADS, "head_reduce_kernel");
    add_both(list, HEAD_MERGE_THREADS, "head_merge_kernel");
    for (int rows = 0; rows <= 65536; rows++) {
        struct block_shape shape = decode_shape_of(rows);
        for (int joint = 0; joint < 2; joint++) {
            add(list, shape.threads, shape.threads, 0, false, "decode_kernel<%d, %d, %s>",
                shape.threads, shape.each, truth(joint != 0));
        }
    }
    for (int rows = 0; rows <= DECODE_MAX_RANKED; rows++) {
        int threads = ranked_threads(rows);
        add(list, threads, threads, ranked_bytes(rows), false, "ranked_kernel<%d>", threads);
    }
}

static void add_selection(struct launch_list *list) {
    for (int i = 0; i < N_HEAD_SIZES; i++) {
        int size = head_sizes[i];
        add(list, SCORE_THREADS, SCORE_THREADS, 0, false, "score_kernel<%d, false>", size);
        add(list, SCORE_THREADS, SCORE_THREADS, 0, false, "score_kernel<%d, true>", size);
        add(list, SUM_THREADS, SUM_THREADS, 0, false, "sum_kernel<%d>", size);
        add(list, PACK_THREADS, PACK_THREADS, 0, false, "pack_kernel<%d>", size);
        add(list, PACK_THREADS, PACK_THREADS, 0, false, "pack_fp8_kernel<%d>", size);
    }
    add_fixed(list, SIMILARITY_THREADS, "similarity_kernel");
    for (int candidates = 0; candidates <= 65536; candidates++) {
        struct block_shape shape = top_shape_of(candidates);
        add(list, shape.threads, shape.threads, 0, false, "pick_kernel<%d, %d>", shape.threads,
            shape.each);
        add(list, shape.threads, shape.threads, 0, false, "top_kernel<%d, %d>", shape.threads,
            shape.each);
    }
    for (int masked = 0; masked <= FOCUS_MAX_BLOCK; masked++) {
        struct block_shape shape = importance_shape_of(masked);
        for (int i = 0; i < N_HEAD_SIZES; i++) {
            add(list, shape.threads, shape.threads, 0, false, "importance_kernel<%d, %d, %d>",
                head_sizes[i], shape.each, shape.threads);
        }
    }
}

static void add_ranks(struct launch_list *list) {
    static const char *const types[] = {"float", "__nv_bfloat16"};
    add_fixed(list, RANKS_THREADS, "gather_kernel");
    add_fixed(list, RANKS_COMBINE_THREADS, "combine_ranks_kernel");
    add_fixed(list, RANKS_COMBINE_THREADS, "renoise_combine_kernel");
    for (int n = 2; n <= 8; n *= 2) {
        for (int t = 0; t < 2; t++) {
            add(list, RANKS_THREADS, RANKS_THREADS, 0, false, "direct_kernel<%s, %d>", types[t], n);
            add(list, RANKS_THREADS, RANKS_THREADS, 0, false, "sliced_kernel<%s, %d>", types[t], n);
        }
    }
}

/* ---- products ---- */

static void add_experts(struct launch_list *list) {
    add_both(list, ROUTE_THREADS, "route_kernel");
    add_fixed(list, ROUTE_BLOCK_THREADS, "block_route_kernel");
    add_fixed(list, MOE_COMBINE_THREADS, "combine_kernel");
    for (int64_t pairs = 0; pairs <= 1 << 16; pairs++) {
        int warps = sort_warps(pairs);
        add(list, 32 * warps, 32 * warps, 0, false, "sort_kernel<%d>", warps);
    }
    for (int kind = 0; kind < 4; kind++) {
        add(list, MOE_MMA_THREADS, MOE_MMA_THREADS, MOE_MMA_STAGES * MOE_MMA_STAGE_BYTES, true,
            "moe_mma_kernel<%s, %s>", truth(kind & 1), truth(kind & 2));
    }
}

/* Weights in fp8, and the rows that they are multiplied with. */
static void add_fp8(struct launch_list *list) {
    for (int each = 1; each <= 8; each *= 2) {
        add(list, QUANTISE_THREADS, QUANTISE_THREADS, 0, false, "quantise_long_kernel<%d>", each);
    }
    for (int i = 0; i < 4; i++) {
        add(list, QUANTISE_THREADS, QUANTISE_THREADS, 0, false, "quantise_short_kernel<%d, %d>",
            1 + i / 2, 1 + i % 2);
    }
    add_fixed(list, ELEMENTWISE_THREADS, "fp8_expand_kernel");
    for (int x_too = 0; x_too < 2; x_too++) {
        add(list, FP8_MMA_THREADS, FP8_MMA_THREADS, FP8_MMA_STAGES * FP8_MMA_STAGE_BYTES, true,
            "fp8_mma_kernel<%s>", truth(x_too));
    }
}

/* The same on sm_90a alone. */
static void add_hopper_fp8(struct launch_list *list) {
    for (int form = 0; form < 4; form++) {
        const char *gated = truth(form & 1), *squares = truth(form & 2);
        for (int sharing = 0; sharing < 3 && form < 2; sharing++) {
            for (int box = 64; box <= 128; box *= 2) {
                add(list, PRODUCT_THREADS, PRODUCT_THREADS, FP8_RING_BYTES + RING_ALIGNMENT, true,
                    "fp8_tiles_kernel<%s, %d, %d>", gated, sharing, box);
            }
        }
        for (int kind = 0; kind < 8; kind++) { /* widths of 8 to 64, inputs in bf16 and fp8 */
            add(list, FEW_LINEAR_THREADS, FEW_LINEAR_THREADS,
                FEW_LINEAR_RING_BYTES + RING_ALIGNMENT, true, "fp8_few_kernel<%s, %s, %s, %d>",
                gated, squares, truth(kind & 1), 8 << kind / 2);
        }
        add(list, FEW_LINEAR_THREADS, FEW_LINEAR_THREADS, FP8_RING_BYTES + RING_ALIGNMENT, true,
            "fp8_few_kernel<%s, %s, false, 128>", gated, squares);
    }
}

/* On sm_90a alone. */
static void add_hopper_products(struct launch_list *list) {
    for (int sharing = 0; sharing < 3; sharing++) {
        for (int kind = 0; kind < 3; kind++) { /* bf16, fp8 by rows, the head's of these */
            for (int width = kind == 2 ? 256 : 128; width <= 256; width += 64) {
                for (int gated = 0; gated < (kind == 2 ? 1 : 2); gated++) {
                    add(list, PRODUCT_THREADS, PRODUCT_THREADS, PRODUCT_RING_BYTES + RING_ALIGNMENT,
                        true, "product_kernel<%s, %d, %d, %d>", truth(gated), sharing, width, kind);
                }
            }
        }
    }
    for (int gated = 0; gated < 2; gated++) {
        for (int width = 8; width <= 64; width *= 2) {
            add(list, FEW_LINEAR_THREADS, FEW_LINEAR_THREADS,
                FEW_LINEAR_RING_BYTES + RING_ALIGNMENT, true, "few_linear_kernel<%s, %d>",
                truth(gated), width);
            for (int kind = 0; kind < 6; kind++) { /* 64 rows to 192, of a block or of two */
                add(list, FEW_LINEAR_THREADS, FEW_LINEAR_THREADS, EVEN_LINEAR_BYTES, true,
                    "even_linear_kernel<%s, %d, %d, %d>", truth(gated), width, 1 + kind / 2,
                    1 + kind % 2);
            }
        }
        for (int few = 0; few < 2; few++) {
            int ring = few ? MOE_FEW_RING_BYTES : MOE_RING_BYTES;
            add(list, MOE_WGMMA_THREADS, MOE_WGMMA_THREADS, ring + RING_ALIGNMENT, true,
                "moe_wgmma_kernel<%s, %s>", truth(gated), truth(few));
            ring = few ? MOE_FP8_FEW_RING_BYTES : MOE_RING_BYTES;
            for (int x_too = 0; x_too < 2; x_too++) {
                add(list, MOE_WGMMA_THREADS, MOE_WGMMA_THREADS, ring + RING_ALIGNMENT, true,
                    "moe_fp8_kernel<%s, %s, %s>", truth(gated), truth(few), truth(x_too));
            }
        }
        for (int cluster = 1; cluster <= 2; cluster++) {
            for (int tokens = 192; tokens <= 256; tokens += 64) {
                add(list, HEAD_THREADS, HEAD_THREADS, HEAD_RING_BYTES + RING_ALIGNMENT, true,
                    "head_wgmma_kernel<%d, %d, %s>", cluster, tokens, truth(gated));
            }
        }
    }
}

/* ---- attention ---- */

/* Of one head size; rows: of a group's queries. */
static void add_line(struct launch_list *list, int size, int64_t rows, bool compact,
                     bool invariant) {
    struct line_shape shape = line_shape_of(rows, invariant, compact, size);
    char keys[4][28] = {"paged_keys"};
    (void)snprintf(keys[1], sizeof keys[1], "stored_keys<%d>", size);
    (void)snprintf(keys[2], sizeof keys[2], "paged_fp8_keys<%d>", size);
    (void)snprintf(keys[3], sizeof keys[3], "stored_fp8_keys<%d>", size);
    for (int i = 0; i < 4; i++) {
        add(list, line_threads(shape), line_threads(shape), line_bytes(shape, size), true,
            "line_attention_kernel<%s, %d, %d, %d, %d, %d, %s>", keys[i], size, shape.warps_m,
            shape.warps_n, shape.tile_keys, LINE_STAGES(size), truth(invariant));
    }
}

/* One shape for all checks of drafts. */
static void add_checks(struct launch_list *list) {
    for (int i = 0; i < N_HEAD_SIZES; i++) {
        const struct line_shape shape = line_shape_of(INT64_MAX, true, true, head_sizes[i]);
        for (int invariant = 0; invariant < 2; invariant++) {
            add(list, line_threads(shape), line_threads(shape), line_bytes(shape, head_sizes[i]),
                true, "line_attention_kernel<checked_keys, %d, %d, %d, %d, %d, %s>", head_sizes[i],
                shape.warps_m, shape.warps_n, shape.tile_keys, LINE_STAGES(head_sizes[i]),
                truth(invariant));
        }
    }
}

static void add_lines(struct launch_list *list, bool compact) {
    for (int64_t rows = 1; rows <= 1024; rows++) {
        for (int i = 0; i < N_HEAD_SIZES; i++) {
            add_line(list, head_sizes[i], rows, compact, false);
            add_line(list, head_sizes[i], rows, compact, true);
        }
    }
}

/* Patterns of as many blocks as there may be. */
static void add_patterns(struct launch_list *list) {
    for (int i = 0; i < N_HEAD_SIZES; i++) {
        const int head_size = head_sizes[i];
        add(list, PATTERN_THREADS, PATTERN_THREADS,
            (int)PATTERN_BYTES(head_size, PATTERN_MAX_BLOCKS), true, "pattern_kernel<%d>",
            head_size);
        add(list, PATTERN_THREADS, PATTERN_THREADS, PATTERN_ATTENTION_BYTES(head_size), true,
            "pattern_attention_kernel<%d>", head_size);
    }
}

static void add_dense(struct launch_list *list) {
    for (int i = 0; i < N_HEAD_SIZES; i++) {
        add(list, DENSE_THREADS, DENSE_THREADS, DENSE_BYTES(head_sizes[i]), true,
            "dense_attention_kernel<%d>", head_sizes[i]);
    }
}

static void add_window_attention(struct launch_list *list, bool wide) {
    for (int i = 0; i < N_WIDE_HEAD_SIZES; i++) {
        int size = wide_head_sizes[i];
        if ((size > 128) == wide) {
            add(list, WINDOW_THREADS, WINDOW_THREADS, WINDOW_BYTES(size), true,
                "window_attention_kernel<%d>", size);
        }
    }
}

static void add_hopper_attention(struct launch_list *list) {
    add_window_attention(list, true);
    for (int i = 0; i < N_HEAD_SIZES; i++) {
        int size = head_sizes[i];
        add(list, WARPGROUP_THREADS, WARPGROUP_THREADS, WARPGROUP_BYTES(size, DENSE_WGMMA_STAGES),
            true, "dense_attention_wgmma_kernel<%d>", size);
        add(list, WARPGROUP_THREADS, WARPGROUP_THREADS,
            WARPGROUP_BYTES(size, PAGED_WGMMA_STAGES(size)), true,
            "paged_attention_wgmma_kernel<%d>", size);
        add(list, WARPGROUP_THREADS, WARPGROUP_THREADS, WARPGROUP_BYTES(size, DENSE_WGMMA_STAGES),
            true, "pattern_attention_wgmma_kernel<%d>", size);
    }
    for (int warps = 1; warps <= 4; warps *= 2) {
        for (int paged = 0; paged < 2; paged++) {
            add(list, FEW_ATTENTION_THREADS, FEW_ATTENTION_THREADS,
                FEW_ATTENTION_STAGES * FEW_ATTENTION_STAGE_BYTES, true,
                "few_attention_kernel<%s, %d>", paged ? "paged_keys" : "stored_keys<128>", warps);
        }
    }
}

void launches_of(const struct architecture *architecture, struct launch_list *out) {
    out->n = 0;
    add_elementwise(out);
    add_decode(out);
    add_selection(out);
    add_ranks(out);
    add_experts(out);
    add_fp8(out);
    add_dense(out);
    add_patterns(out);
    add_checks(out);
    add_lines(out, true);
    add_window_attention(out, false);
    if (!line_wants_compact(architecture->shared_bytes)) {
        add_lines(out, false);
    }
    if (architecture->is_hopper) {
        add_hopper_products(out);
        add_hopper_fp8(out);
        add_hopper_attention(out);
    }
}

/* ---- what was compiled, and the limits ---- */

/* A line: registers+bytes of each architecture, "-" where nothing was compiled, and the kernel. */
static bool line_read(const char *line, size_t column, struct launch *out) {
    char cell[N_ARCHITECTURES][24];
    return sscanf(line, "%23s %23s %23s %23s %23s %95[^\n]", cell[0], cell[1], cell[2], cell[3],
                  cell[4], out->kernel) == N_ARCHITECTURES + 1 &&
           sscanf(cell[column], "%d+%d", &out->registers, &out->static_bytes) == 2;
}

size_t launches_read(const char *path, const struct architecture *architecture,
                     struct launch_list *list, char *unknown) {
    char line[256];
    struct launch read;
    size_t n_unknown = 0;
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (!line_read(line, (size_t)(architecture - architectures), &read)) {
            continue;
        }
        for (size_t i = 0; i < list->n; i++) {
            if (strcmp(list->row[i].kernel, read.kernel) == 0) {
                list->row[i].registers = read.registers;
                list->row[i].static_bytes = read.static_bytes;
            }
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    for (size_t i = 0; i < list->n; i++) {
        if (list->row[i].registers == 0) { /* compiled code has some */
            (void)snprintf(unknown, KERNEL_CHARS, "%s", list->row[i].kernel);
            n_unknown++;
        }
    }
    return n_unknown;
}

int launch_registers(const struct launch *launch) {
    int warps = (launch->threads + 31) / 32;
    return (launch->registers * 32 + REGISTER_UNIT - 1) / REGISTER_UNIT * REGISTER_UNIT * warps;
}

const char *launch_refusal(const struct architecture *architecture, const struct launch *launch) {
    int bytes = launch->dynamic_bytes + launch->static_bytes;
    if (launch->threads < 1 || launch->threads > BLOCK_THREADS) {
        return "more threads than a block has";
    }
    if (launch->threads > launch->most_threads) {
        return "more threads than the kernel is compiled for";
    }
    if (bytes > architecture->block_bytes) {
        return "more shared memory than a block has";
    }
    if (bytes > DEFAULT_BYTES && !launch->asks) {
        return "more shared memory than a block has that does not ask for it";
    }
    if (launch->registers > THREAD_REGISTERS || launch_registers(launch) > BLOCK_REGISTERS) {
        return "more registers than a block has";
    }
    return NULL;
}
