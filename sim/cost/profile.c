#include "sim/cost/profile.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/cost/profile_table.h"

/* Columns of a row after the operator's name; the last one is time_us. */
enum { MAX_COLUMNS = 8, MAX_FILE_BYTES = 64 << 20 };
static const int64_t max_size = INT64_C(1) << 40; /* any size: exact as a double */

static const struct {
    const char *name;
    size_t n_sizes, n_axes;
    const char *columns;
} operators[PROFILE_OPS] = {
    [PROFILE_GEMM] = {"gemm", 3, 3, "m,n,k,time_us"},
    [PROFILE_ATTENTION_CAUSAL] = {"attention_causal", 6, 4,
                                  "batch,q,kv,heads,kv_heads,head_dim,time_us"},
    [PROFILE_ATTENTION_DECODE] = {"attention_decode", 6, 3,
                                  "batch,q,kv,heads,kv_heads,head_dim,time_us"},
    [PROFILE_MOE] = {"moe", 5, 2, "tokens,hidden,expert_ffn,top_k,experts,time_us"},
    [PROFILE_ELEMENTWISE] = {"elementwise", 1, 1, "bytes,time_us"},
    [PROFILE_ALL_REDUCE] = {"all_reduce", 2, 2, "gpus,bytes,time_us"},
    [PROFILE_ALL_GATHER] = {"all_gather", 2, 2, "gpus,bytes,time_us"},
};

struct rows {
    struct lattice_row *items;
    size_t n, capacity;
};

static bool append(struct rows *rows, const struct lattice_row *row) {
    if (rows->n == rows->capacity) {
        size_t capacity = rows->capacity == 0 ? 256 : 2 * rows->capacity;
        struct lattice_row *items = realloc(rows->items, capacity * sizeof *items);
        if (items == NULL) {
            return false;
        }
        rows->items = items;
        rows->capacity = capacity;
    }
    rows->items[rows->n++] = *row;
    return true;
}

/* Sizes in the file's order to lattice coordinates. */
static int place_row(const char *path, int line, enum profile_op op, const int64_t *sizes,
                     struct lattice_row *row, struct err *err) {
    memset(row, 0, sizeof *row);
    row->line = line;
    if (op == PROFILE_ATTENTION_CAUSAL || op == PROFILE_ATTENTION_DECODE) {
        int64_t batch = sizes[0], q = sizes[1], kv = sizes[2];
        struct head_layout layout = {sizes[3], sizes[4], sizes[5]};
        if (layout.heads > 0xffff || layout.kv_heads > layout.heads || layout.head_dim > 0xffff) {
            return err_world(err,
                             "%s:%d: heads %lld, kv_heads %lld, head_dim %lld: expected kv_heads "
                             "<= heads and all below 65536",
                             path, line, (long long)layout.heads, (long long)layout.kv_heads,
                             (long long)layout.head_dim);
        }
        if (q > kv || (op == PROFILE_ATTENTION_DECODE && q != 1)) {
            return err_world(err, "%s:%d: %s with %lld queries over %lld keys", path, line,
                             operators[op].name, (long long)q, (long long)kv);
        }
        row->at[0] = head_layout_pack(layout);
        row->at[1] = batch;
        row->at[2] = op == PROFILE_ATTENTION_CAUSAL ? q : kv;
        row->at[3] = op == PROFILE_ATTENTION_CAUSAL ? kv - q : 0;
        return 0;
    }
    if (op == PROFILE_MOE) {
        struct moe_shape shape = {sizes[1], sizes[2], sizes[3], sizes[4]};
        if (shape.hidden > 0x1ffff || shape.expert_ffn > 0x3ffff || shape.top_k > 0xfff ||
            shape.experts > 0xffff || shape.top_k > shape.experts) {
            return err_world(err,
                             "%s:%d: a mixture of %lld experts, %lld active, hidden %lld, "
                             "expert_ffn %lld is out of range",
                             path, line, (long long)shape.experts, (long long)shape.top_k,
                             (long long)shape.hidden, (long long)shape.expert_ffn);
        }
        row->at[0] = moe_shape_pack(shape);
        row->at[1] = sizes[0];
        return 0;
    }
    if ((op == PROFILE_ALL_REDUCE || op == PROFILE_ALL_GATHER) && sizes[0] < 2) {
        return err_world(err, "%s:%d: %s over %lld GPU", path, line, operators[op].name,
                         (long long)sizes[0]);
    }
    memcpy(row->at, sizes, operators[op].n_sizes * sizeof *sizes);
    return 0;
}

static int parse_row(const char *path, int line, char *text, struct rows rows[PROFILE_OPS],
                     struct err *err) {
    char *columns[MAX_COLUMNS + 1] = {NULL};
    size_t n = 0;
    char *rest = text;
    do {
        columns[n++] = strsep(&rest, ",");
    } while (rest != NULL && n <= MAX_COLUMNS);
    const char *names[PROFILE_OPS + 1] = {NULL};
    size_t op = 0;
    for (; op < PROFILE_OPS && strcmp(columns[0], operators[op].name) != 0; op++) {
        names[op] = operators[op].name;
    }
    if (op == PROFILE_OPS) {
        char hint[NAME_HINT_CHARS];
        name_hint(columns[0], names, hint);
        return err_world(err, "%s:%d: unknown operator '%.40s'%s", path, line, columns[0], hint);
    }
    size_t n_sizes = operators[op].n_sizes;
    if (n != n_sizes + 2) {
        return err_world(err, "%s:%d: %s has %zu columns after its name, expected %zu: %s", path,
                         line, operators[op].name, n - 1, n_sizes + 1, operators[op].columns);
    }
    int64_t sizes[MAX_COLUMNS] = {0};
    for (size_t i = 0; i < n_sizes; i++) {
        uint64_t size;
        if (!num_u64(columns[i + 1], (uint64_t)max_size, &size) || size == 0) {
            return err_world(err, "%s:%d: '%.40s' is not a size from 1 to 2^40 (%s)", path, line,
                             columns[i + 1], operators[op].columns);
        }
        sizes[i] = (int64_t)size;
    }
    struct lattice_row row;
    int bad = place_row(path, line, (enum profile_op)op, sizes, &row, err);
    if (bad) {
        return bad;
    }
    if (!num_f64(columns[n - 1], &row.time_us) || row.time_us <= 0 || row.time_us > 1e12) {
        return err_world(err, "%s:%d: time_us is '%.40s', expected a positive number", path, line,
                         columns[n - 1]);
    }
    if (!append(&rows[op], &row)) {
        return err_world(err, "%s: out of memory", path);
    }
    return 0;
}

/* "# key: value" lines that matter; other comments are for people. */
static int parse_comment(struct profile *profile, int line, const char *text, struct err *err) {
    static const char kind[] = "# kind: ", source[] = "# source: ";
    char **field = NULL;
    if (strncmp(text, kind, sizeof kind - 1) == 0) {
        field = &profile->kind;
        text += sizeof kind - 1;
        if (strcmp(text, "measured") != 0 && strcmp(text, "imported") != 0) {
            return err_world(err, "%s:%d: kind is '%.40s', expected measured or imported",
                             profile->path, line, text);
        }
    } else if (strncmp(text, source, sizeof source - 1) == 0) {
        field = &profile->source;
        text += sizeof source - 1;
    } else {
        return 0;
    }
    if (*field != NULL) {
        return err_world(err, "%s:%d: a second kind or source line", profile->path, line);
    }
    *field = strdup(text);
    return *field != NULL ? 0 : err_world(err, "%s: out of memory", profile->path);
}

static int parse_lines(struct profile *profile, char *text, struct rows rows[PROFILE_OPS],
                       struct err *err) {
    int line = 0;
    for (char *rest = text; rest != NULL;) {
        char *row = strsep(&rest, "\n");
        line++;
        if (row[0] == '\0') {
            continue;
        }
        int bad = row[0] == '#' ? parse_comment(profile, line, row, err)
                                : parse_row(profile->path, line, row, rows, err);
        if (bad) {
            return bad;
        }
    }
    if (profile->kind == NULL || profile->source == NULL) {
        return err_world(err, "%s: no '# %s: ' line says where the numbers come from",
                         profile->path, profile->kind == NULL ? "kind" : "source");
    }
    return 0;
}

static int build(struct profile *profile, struct rows rows[PROFILE_OPS], struct err *err) {
    for (size_t op = 0; op < PROFILE_OPS; op++) {
        struct lattice_row twins[2];
        if (rows[op].n == 0) {
            continue;
        }
        switch (lattice_init(&profile->ops[op], operators[op].n_axes, rows[op].items, rows[op].n,
                             twins)) {
        case LATTICE_FINE:
            break;
        case LATTICE_DUPLICATE:
            return err_world(err, "%s:%d: the same %s row stands in line %d already", profile->path,
                             twins[1].line, operators[op].name, twins[0].line);
        case LATTICE_TOO_LARGE:
            return err_world(err, "%s: the %s rows span a grid of more than %d cells",
                             profile->path, operators[op].name, LATTICE_MAX_CELLS);
        case LATTICE_NO_MEMORY:
            return err_world(err, "%s: out of memory", profile->path);
        }
    }
    return profile_refresh(profile) ? 0 : err_world(err, "%s: out of memory", profile->path);
}

int profile_parse(const char *path, const char *text, size_t size,
                  const struct profile_peaks *peaks, struct profile **out, struct err *err) {
    ASSERT(peaks->flops > 0 && peaks->bandwidth > 0 && peaks->sms > 0);
    struct rows rows[PROFILE_OPS] = {{0}};
    struct profile *profile = calloc(1, sizeof *profile);
    char *copy = malloc(size + 1);
    int bad = 0;
    if (profile == NULL || copy == NULL || (profile->path = strdup(path)) == NULL) {
        bad = err_world(err, "%s: out of memory", path);
        goto free_rows;
    }
    memcpy(copy, text, size);
    copy[size] = '\0';
    profile->peaks = *peaks;
    if (memchr(text, '\0', size) != NULL) {
        bad = err_world(err, "%s: holds a zero byte; expected text", path);
    }
    bad = bad ? bad : parse_lines(profile, copy, rows, err);
    bad = bad ? bad : build(profile, rows, err);
free_rows:
    for (size_t op = 0; op < PROFILE_OPS; op++) {
        free(rows[op].items);
    }
    free(copy);
    if (bad) {
        profile_close(profile);
        profile = NULL;
    }
    *out = profile;
    return bad;
}

int profile_open(const char *path, const struct profile_peaks *peaks, struct profile **out,
                 struct err *err) {
    *out = NULL;
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return err_world(err, "cannot read the profile %s: %s", path, strerror(errno));
    }
    char *text = NULL;
    size_t size = 0, capacity = 0, got;
    int bad = 0;
    do {
        if (size == capacity) {
            capacity = capacity == 0 ? 1 << 16 : 2 * capacity;
            char *grown = capacity > MAX_FILE_BYTES ? NULL : realloc(text, capacity);
            if (grown == NULL) {
                bad = err_world(err, "%s: larger than %d bytes, or out of memory", path,
                                MAX_FILE_BYTES);
                break;
            }
            text = grown;
        }
        got = fread(text + size, 1, capacity - size, file);
        size += got;
    } while (got > 0);
    if (!bad && ferror(file)) {
        bad = err_world(err, "cannot read the profile %s: %s", path, strerror(errno));
    }
    fclose(file);
    bad = bad ? bad : profile_parse(path, text, size, peaks, out, err);
    free(text);
    return bad;
}

void profile_close(struct profile *profile) {
    if (profile == NULL) {
        return;
    }
    for (size_t op = 0; op < PROFILE_OPS; op++) {
        lattice_fini(&profile->ops[op]);
    }
    free(profile->gemm_tile);
    free(profile->gemm_tile_errors);
    free(profile->path);
    free(profile->kind);
    free(profile->source);
    free(profile);
}

struct profile *profile_copy(const struct profile *donor, const char *source,
                             const struct profile_peaks *peaks) {
    struct profile *copy = calloc(1, sizeof *copy);
    if (copy == NULL) {
        return NULL;
    }
    copy->peaks = *peaks;
    copy->path = strdup(donor->path);
    copy->kind = strdup("transferred");
    copy->source = strdup(source);
    bool fine = copy->path != NULL && copy->kind != NULL && copy->source != NULL;
    for (size_t op = 0; op < PROFILE_OPS && fine; op++) {
        fine = donor->ops[op].n_cells == 0 || lattice_copy(&copy->ops[op], &donor->ops[op]);
    }
    if (!fine) {
        profile_close(copy);
        return NULL;
    }
    return copy;
}

bool profile_refresh(struct profile *profile) {
    for (size_t op = 0; op < PROFILE_OPS; op++) {
        const struct lattice *lattice = &profile->ops[op];
        profile->floor_us[op] = INFINITY;
        for (size_t i = 0; i < lattice->n_cells; i++) {
            profile->floor_us[op] = fmin(profile->floor_us[op], lattice->time_us[i]);
        }
    }
    return profile->ops[PROFILE_GEMM].n_cells == 0 || gemm_choose_tiles(profile);
}

const char *profile_kind(const struct profile *profile) {
    return profile->kind;
}

const char *profile_source(const struct profile *profile) {
    return profile->source;
}

const struct profile_peaks *profile_peaks(const struct profile *profile) {
    return &profile->peaks;
}

const char *profile_op_name(enum profile_op op) {
    return operators[op].name;
}

bool profile_has(const struct profile *profile, enum profile_op op) {
    return profile->ops[op].n_cells > 0;
}

struct lattice *profile_lattice(struct profile *profile, enum profile_op op) {
    return profile->ops[op].n_cells > 0 ? &profile->ops[op] : NULL;
}

int profile_require(const struct profile *profile, enum profile_op op, struct err *err) {
    if (profile_has(profile, op)) {
        return 0;
    }
    return err_world(err, "%s: has no '%s' rows (%s,%s)", profile->path, operators[op].name,
                     operators[op].name, operators[op].columns);
}

double profile_gemm(const struct profile *profile, int64_t m, int64_t n, int64_t k,
                    enum profile_match *match) {
    ASSERT(profile_has(profile, PROFILE_GEMM) && m > 0 && n > 0 && k > 0);
    return 1e3 * gemm_us(profile, m, n, k, match);
}

double profile_moe(const struct profile *profile, int64_t tokens, int64_t hidden,
                   int64_t expert_ffn, int64_t top_k, int64_t experts, enum profile_match *match) {
    ASSERT(profile_has(profile, PROFILE_MOE) && tokens > 0 && top_k <= experts);
    struct moe_shape shape = {hidden, expert_ffn, top_k, experts};
    return 1e3 * moe_us(profile, shape, tokens, match);
}

double profile_elementwise(const struct profile *profile, int64_t bytes,
                           enum profile_match *match) {
    ASSERT(profile_has(profile, PROFILE_ELEMENTWISE) && bytes > 0);
    return 1e3 * elementwise_us(profile, bytes, match);
}

double profile_collective(const struct profile *profile, enum profile_op op, int64_t n_gpus,
                          int64_t bytes, enum profile_match *match) {
    ASSERT(op == PROFILE_ALL_REDUCE || op == PROFILE_ALL_GATHER);
    ASSERT(profile_has(profile, op) && n_gpus >= 2 && bytes > 0);
    return 1e3 * collective_us(profile, op, n_gpus, bytes, match);
}
