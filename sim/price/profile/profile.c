#include "sim/price/profile/profile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/price/profile/profile_table.h"

#define ATTENTION_COLUMNS "batch,q,kv,heads,kv_heads,head_dim,time_us"
#define LAYOUT            SIZE_HEADS, SIZE_KV_HEADS, SIZE_HEAD_DIM
const struct profile_operator profile_operators[PROFILE_OPS] = {
    [PROFILE_GEMM] = {"gemm", "m,n,k,time_us", 3, {SIZE_0, SIZE_1, SIZE_2}},
    [PROFILE_ATTENTION_CAUSAL] = {"attention_causal",
                                  ATTENTION_COLUMNS,
                                  4,
                                  {SIZE_1, SIZE_2, SIZE_KEYS, LAYOUT}},
    [PROFILE_ATTENTION_DECODE] = {"attention_decode",
                                  ATTENTION_COLUMNS,
                                  3,
                                  {SIZE_1, SIZE_SINGLE, SIZE_2, LAYOUT}},
    [PROFILE_MOE] = {"moe",
                     "tokens,hidden,expert_ffn,top_k,experts[,hit],time_us",
                     2,
                     {SIZE_1, SIZE_HIDDEN, SIZE_EXPERT_FFN, SIZE_TOP_K, SIZE_EXPERTS}},
    [PROFILE_ELEMENTWISE] = {"elementwise", "bytes,time_us", 1, {SIZE_0}},
    [PROFILE_ALL_REDUCE] = {"all_reduce", "gpus,bytes,time_us", 2, {SIZE_0, SIZE_1}},
    [PROFILE_ALL_GATHER] = {"all_gather", "gpus,bytes,time_us", 2, {SIZE_0, SIZE_1}},
    [PROFILE_ATTENTION_FULL] = {"attention_full",
                                "batch,q,heads,kv_heads,head_dim,time_us",
                                3,
                                {SIZE_1, SIZE_2, LAYOUT}},
    [PROFILE_ATTENTION_BLOCK] = {"attention_block",
                                 ATTENTION_COLUMNS,
                                 4,
                                 {SIZE_1, SIZE_2, SIZE_3, LAYOUT}},
    [PROFILE_PASS] = {"pass", "NAME,channels,rows,time_us", 3, {SIZE_PASS, SIZE_1, SIZE_2}},
    [PROFILE_HEAD] = {"head", "rows,vocab,hidden,time_us", 3, {SIZE_2, SIZE_0, SIZE_1}},
    [PROFILE_GATE_UP] = {"gate_up",
                         "rows,gates_and_ups,hidden,time_us",
                         3,
                         {SIZE_2, SIZE_0, SIZE_1}},
    [PROFILE_ATTENTION_MIXED] = {"attention_mixed",
                                 ATTENTION_COLUMNS,
                                 4,
                                 {SIZE_1, SIZE_2, SIZE_3, LAYOUT}},
    [PROFILE_ATTENTION_PATTERN] = {"attention_pattern",
                                   ATTENTION_COLUMNS,
                                   4,
                                   {SIZE_1, SIZE_2, SIZE_3, LAYOUT}},
    [PROFILE_PATTERN] = {"pattern",
                         "batch,q,heads,kv_heads,head_dim,time_us",
                         3,
                         {SIZE_1, SIZE_2, LAYOUT}},
};

const char *const profile_pass_names[PROFILE_PASSES] = {
#define PASS(id, name) [PASS_##id] = (name),
#include "sim/step/ops.def"
};

const char *const host_kind_names[HOST_KIND_COUNT] = {"refresh", "reuse", "select"};

struct profile_peaks profile_peaks_of(const struct gpu *gpu) {
    return (struct profile_peaks){.flops = gpu->peak_bf16_flops,
                                  .fp8_flops = gpu->peak_fp8_flops,
                                  .bandwidth = gpu->peak_bandwidth,
                                  .sms = gpu->sms,
                                  .l2_bytes = gpu->l2_bytes,
                                  .is_assumed = gpu->compute_capability == 0};
}

struct profile_peaks profile_peaks_in(const struct profile_peaks *peaks, enum profile_type type) {
    struct profile_peaks of = *peaks;
    of.flops = profile_type_is_fp8(type) ? peaks->fp8_flops : peaks->flops;
    of.stored_bytes = type == PROFILE_BF16  ? BF16_BYTES
                      : type == PROFILE_F32 ? F32_BYTES
                                            : FP8_BYTES;
    of.moved_bytes = type == PROFILE_F32 ? F32_BYTES : BF16_BYTES;
    return of;
}

enum profile_type profile_type(const struct profile *profile) {
    return profile->type;
}

const struct profile *profile_in(const struct profile *profile, enum profile_type type) {
    return type == profile->type ? profile : profile->others[type];
}

struct profile *profile_other(const struct profile *profile, enum profile_type type,
                              const struct profile_peaks *peaks) {
    struct profile *other = mem_zeroed(1, sizeof *other);
    other->path = mem_text(profile->path);
    other->source = mem_text(profile->source);
    other->kind = profile->kind;
    other->type = type;
    other->peaks = profile_peaks_in(peaks, type);
    other->tiles = profile->tiles;
    other->measured_edges = profile->measured_edges;
    other->routing_alpha = profile->routing_alpha;
    for (size_t i = 0; i < profile->n_notes; i++) {
        profile_add_note(other, profile->notes[i].key, profile->notes[i].value);
    }
    return other;
}

const char *profile_kind_of_file(const char *path, char *text, size_t size, struct err *err) {
    static const char key[] = "# kind: ";
    const char *found = NULL;
    char line[512];
    FILE *file = fopen(path, "r");
    while (file != NULL && found == NULL && fgets(line, sizeof line, file) != NULL &&
           line[0] == '#') {
        if (strncmp(line, key, sizeof key - 1) == 0) {
            const char *kind = line + sizeof key - 1;
            snprintf(text, size, "%.*s", (int)strcspn(kind, "\r\n"), kind);
            found = text;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    if (found == NULL) {
        err_set(err, ERR_WORLD, ERR_CODE_NONE, "'%s' does not say its kind, or cannot be read",
                path);
    }
    return found;
}

void profile_close(struct profile *profile) {
    if (profile == NULL) {
        return;
    }
    for (size_t type = 0; type < PROFILE_TYPES; type++) {
        profile_close(profile->others[type]);
    }
    for (size_t op = 0; op < PROFILE_OPS; op++) {
        lattice_fini(&profile->ops[op]);
    }
    for (size_t i = 0; i < profile->n_notes; i++) {
        free(profile->notes[i].key);
        free(profile->notes[i].value);
    }
    free(profile->notes);
    mem_released(profile->gemm_tile);
    mem_released(profile->gemm_tile_errors);
    free(profile->path);
    free(profile->source);
    free(profile);
}

void profile_drop_rows(struct profile *profile, enum profile_op op) {
    lattice_fini(&profile->ops[op]);
    profile->ops[op] = (struct lattice){0};
}

struct profile *profile_copy(const struct profile *donor, const char *source,
                             const struct profile_peaks *peaks) {
    struct profile *copy = mem_zeroed(1, sizeof *copy);
    copy->type = donor->type;
    copy->peaks = profile_peaks_in(peaks, copy->type);
    copy->measured_edges = donor->measured_edges;
    copy->routing_alpha = donor->routing_alpha;
    memcpy(copy->host, donor->host, sizeof copy->host);
    copy->between_ns = donor->between_ns;
    copy->power = donor->power;
    copy->tiles = donor->tiles;
    copy->has_tiles = donor->has_tiles;
    copy->correction = donor->correction;
    copy->path = mem_text(donor->path);
    copy->kind = PROVENANCE_TRANSFERRED;
    copy->source = mem_text(source);
    for (size_t op = 0; op < PROFILE_OPS; op++) {
        if (donor->ops[op].n_cells > 0) {
            lattice_copy(&copy->ops[op], &donor->ops[op]);
        }
    }
    return copy;
}

/* A card that does more than its data sheet says does that between its rows, too. */
static void raise_peaks(struct profile *profile) {
    struct profile_peaks *peaks = &profile->peaks;
    if (profile->kind != PROVENANCE_MEASURED || peaks->is_assumed) {
        return;
    }
    const struct profile_rates own = profile_rates(profile);
    peaks->flops = own.flops > GPU_IS_FASTER * peaks->flops ? own.flops : peaks->flops;
    peaks->bandwidth =
        own.bandwidth > GPU_IS_FASTER * peaks->bandwidth ? own.bandwidth : peaks->bandwidth;
}

void profile_refresh(struct profile *profile) {
    raise_peaks(profile);
    for (size_t op = 0; op < PROFILE_OPS; op++) {
        const struct lattice *lattice = &profile->ops[op];
        profile->floor_us[op] = INFINITY;
        for (size_t i = 0; i < lattice->n_cells; i++) {
            profile->floor_us[op] = fmin(profile->floor_us[op], lattice->time_us[i]);
        }
    }
    moe_find_launch(profile);
    if (profile->ops[PROFILE_GEMM].n_cells > 0) {
        gemm_forget_tiles(profile);
    }
}

enum provenance_kind profile_kind(const struct profile *profile) {
    return profile->kind;
}

const char *profile_source(const struct profile *profile) {
    return profile->source;
}

const char *profile_path(const struct profile *profile) {
    return profile->path;
}

const struct profile_peaks *profile_peaks(const struct profile *profile) {
    return &profile->peaks;
}

const char *profile_note(const struct profile *profile, const char *key) {
    for (size_t i = 0; i < profile->n_notes; i++) {
        if (strcmp(profile->notes[i].key, key) == 0) {
            return profile->notes[i].value;
        }
    }
    return NULL;
}

bool profile_fact(const struct profile *profile, size_t i, const char **key, const char **value) {
    if (i >= profile->n_notes) {
        return false;
    }
    *key = profile->notes[i].key;
    *value = profile->notes[i].value;
    return true;
}

const struct profile_host *profile_host(const struct profile *profile, size_t kind) {
    ASSERT(kind < HOST_KIND_COUNT);
    return &profile->host[kind];
}

double profile_between_ns(const struct profile *profile) {
    return profile->between_ns;
}

const struct power *profile_power(const struct profile *profile) {
    return &profile->power;
}

const struct tiles *profile_tiles(const struct profile *profile) {
    return &profile->tiles;
}

const struct correction *profile_correction(const struct profile *profile) {
    return &profile->correction;
}

void profile_correct(struct profile *profile, const struct correction *correction) {
    profile->correction = *correction;
    profile->correction.tile_rows = profile->tiles.corrected_rows;
    profile->correction.tile_from = profile->tiles.corrected_from;
}

const char *profile_op_name(enum profile_op op) {
    return profile_operators[op].name;
}

bool profile_has(const struct profile *profile, enum profile_op op) {
    return profile->ops[op].n_cells > 0;
}

bool profile_measures(const struct profile *profile, enum profile_op op, int64_t n, int64_t k) {
    ASSERT(op == PROFILE_GEMM || op == PROFILE_HEAD || op == PROFILE_GATE_UP);
    const struct lattice *lattice = &profile->ops[op];
    size_t outputs = op == PROFILE_GEMM ? GEMM_N : FUSED_OUTPUTS;
    size_t inputs = op == PROFILE_GEMM ? GEMM_K : FUSED_INPUTS;
    size_t rows = op == PROFILE_GEMM ? GEMM_M : FUSED_ROWS;
    if (lattice->n_cells == 0) {
        return false;
    }
    ptrdiff_t i_n = lattice_index(lattice, outputs, n), i_k = lattice_index(lattice, inputs, k);
    if (i_n < 0 || i_k < 0) {
        return false;
    }
    size_t base =
        (size_t)i_n * lattice->axes[outputs].stride + (size_t)i_k * lattice->axes[inputs].stride;
    struct lattice_bracket at = lattice_around(lattice, base, rows, 1);
    return at.lo >= 0 || at.hi >= 0;
}

bool profile_measures_heads(const struct profile *profile, enum profile_op op, int64_t heads,
                            int64_t kv_heads, int64_t head_dim) {
    ASSERT(op == PROFILE_ATTENTION_FULL || op == PROFILE_ATTENTION_BLOCK ||
           op == PROFILE_ATTENTION_CAUSAL || op == PROFILE_ATTENTION_PATTERN ||
           op == PROFILE_PATTERN);
    int64_t layout = head_layout_pack((struct head_layout){heads, kv_heads, head_dim});
    return profile->ops[op].n_cells > 0 &&
           lattice_index(&profile->ops[op], FULL_LAYOUT, layout) >= 0;
}

bool profile_measures_group(const struct profile *profile, enum profile_op op, int64_t n_gpus) {
    ASSERT(op == PROFILE_ALL_REDUCE || op == PROFILE_ALL_GATHER);
    return profile->ops[op].n_cells > 0 && lattice_index(&profile->ops[op], 0, n_gpus) >= 0;
}

size_t profile_raised(const struct profile *profile, enum profile_op op, size_t *n_rows) {
    const struct lattice *lattice = &profile->ops[op];
    size_t n_raised = 0;
    *n_rows = 0;
    for (size_t cell = 0; cell < lattice->n_cells; cell++) {
        *n_rows += !isnan(lattice->time_us[cell]);
        n_raised += row_is_raised(lattice, cell);
    }
    return n_raised;
}

static double warm_us(const struct lattice *lattice, const int64_t at[LATTICE_MAX_AXES]) {
    size_t cell = 0;
    for (size_t a = 0; lattice->warm_us != NULL && a < lattice->n_axes; a++) {
        const ptrdiff_t i = lattice_index(lattice, a, at[a]);
        if (i < 0) {
            return 0;
        }
        cell += (size_t)i * lattice->axes[a].stride;
    }
    return row_is_raised(lattice, cell) ? lattice->warm_us[cell] : 0;
}

double profile_gemm_warm_us(const struct profile *profile, int64_t m, int64_t n, int64_t k) {
    return warm_us(&profile->ops[PROFILE_GEMM],
                   (const int64_t[LATTICE_MAX_AXES]){[GEMM_M] = m, [GEMM_N] = n, [GEMM_K] = k});
}

double profile_moe_warm_us(const struct profile *profile, struct moe_shape shape, int64_t tokens) {
    return warm_us(&profile->ops[PROFILE_MOE],
                   (const int64_t[LATTICE_MAX_AXES]){
                       [MOE_SHAPE] = moe_shape_pack(shape), [MOE_TOKENS] = tokens});
}

struct lattice *profile_lattice(struct profile *profile, enum profile_op op) {
    return profile->ops[op].n_cells > 0 ? &profile->ops[op] : NULL;
}

int profile_require(const struct profile *profile, enum profile_op op, struct err *err) {
    if (profile_has(profile, op)) {
        return 0;
    }
    return err_world(err, "%s: has no '%s' rows (%s,%s)", profile->path, profile_operators[op].name,
                     profile_operators[op].name, profile_operators[op].columns);
}
