/* Reading a profile: lines to rows, rows to lattices. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/input/field.h"
#include "sim/base/input/text.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/price/profile/profile_table.h"

enum { MAX_FILE_BYTES = 64 << 20 };

/* Columns of a row after the operator's name; the last one is time_us. */
enum { MAX_COLUMNS = 9 };
static const int64_t max_size = INT64_C(1) << 40; /* any size: exact as a double */
#define MOST_US 1e12                              /* of a row */

struct rows {
    struct lattice_row *items;
    size_t n, room;
};

/* By type; the last are those that name none. */
enum { ROWS_OF_FILE = PROFILE_TYPES };
struct all_rows {
    struct rows of[PROFILE_TYPES + 1][PROFILE_OPS];
    enum profile_op last; /* the operator of the row before: mostly this one's, too */
};

static int check_layout(const char *path, int line, struct head_layout layout, struct err *err) {
    return layout.heads <= 0xffff && layout.kv_heads <= layout.heads && layout.head_dim <= 0xffff
               ? 0
               : err_world(err,
                           "%s:%d: heads %lld, kv_heads %lld, head_dim %lld: expected kv_heads "
                           "<= heads and all below 65536",
                           path, line, (long long)layout.heads, (long long)layout.kv_heads,
                           (long long)layout.head_dim);
}

static int check_shape(const char *path, int line, struct moe_shape shape, struct err *err) {
    return shape.hidden <= 0x1ffff && shape.expert_ffn <= 0x3ffff && shape.top_k <= 0xfff &&
                   shape.experts <= 0xffff && shape.top_k <= shape.experts
               ? 0
               : err_world(err,
                           "%s:%d: a mixture of %lld experts, %lld active, hidden %lld, "
                           "expert_ffn %lld is out of range",
                           path, line, (long long)shape.experts, (long long)shape.top_k,
                           (long long)shape.hidden, (long long)shape.expert_ffn);
}

/* Sizes in the file's order to lattice coordinates. */
static int place_row(const char *path, int line, enum profile_op op, const int64_t *sizes,
                     struct lattice_row *row, struct err *err) {
    const struct profile_operator *shape = &profile_operators[op];
    int64_t of[SIZE_SINGLE + 1] = {0};
    memset(row, 0, sizeof *row);
    row->line = line;
    for (size_t i = 0; shape->sizes[i] != SIZE_END; i++) {
        enum profile_size size = shape->sizes[i];
        of[size] = sizes[i];
        if (size <= SIZE_3) {
            row->at[size - SIZE_0] = sizes[i];
        }
    }
    bool is_single = of[SIZE_SINGLE] > 0;
    int64_t q = of[is_single ? SIZE_SINGLE : SIZE_2], kv = of[is_single ? SIZE_2 : SIZE_KEYS];
    if (of[SIZE_SINGLE] > 1 || (of[SIZE_KEYS] > 0 && q > kv)) {
        return err_world(err, "%s:%d: %s with %lld queries over %lld keys", path, line, shape->name,
                         (long long)q, (long long)kv);
    }
    if ((op == PROFILE_ALL_REDUCE || op == PROFILE_ALL_GATHER) && sizes[0] < 2) {
        return err_world(err, "%s:%d: %s over %lld GPU", path, line, shape->name,
                         (long long)sizes[0]);
    }
    if (of[SIZE_KEYS] > 0) {
        row->at[3] = of[SIZE_KEYS] - of[SIZE_2];
    }
    if (op == PROFILE_PASS) {
        row->at[PASS_NAME] = of[SIZE_PASS];
    }
    if (of[SIZE_HEADS] > 0) {
        struct head_layout layout = {of[SIZE_HEADS], of[SIZE_KV_HEADS], of[SIZE_HEAD_DIM]};
        int bad = check_layout(path, line, layout, err);
        row->at[0] = bad ? 0 : head_layout_pack(layout);
        return bad;
    }
    if (of[SIZE_EXPERTS] > 0) {
        struct moe_shape moe = {of[SIZE_HIDDEN], of[SIZE_EXPERT_FFN], of[SIZE_TOP_K],
                                of[SIZE_EXPERTS]};
        int bad = check_shape(path, line, moe, err);
        row->at[MOE_SHAPE] = bad ? 0 : moe_shape_pack(moe);
        return bad;
    }
    return 0;
}

/* The index of `word` in the NULL-ended `names`, or ERR_WORLD with the nearest of them. */
static int find_word(const char *path, int line, const char *what, const char *word,
                     const char *const *names, size_t *out, struct err *err) {
    int found = name_find(names, word);
    *out = found >= 0 ? (size_t)found : 0;
    if (found >= 0) {
        return 0;
    }
    char hint[NAME_HINT_CHARS];
    name_hint(word, names, hint);
    return err_world(err, "%s:%d: unknown %s '%.40s'%s", path, line, what, word, hint);
}

static int read_size(const char *path, int line, const char *text, const char *columns,
                     int64_t *out, struct err *err) {
    uint64_t size;
    if (!num_u64(text, (uint64_t)max_size, &size) || size == 0) {
        return err_world(err, "%s:%d: '%.40s' is not a size from 1 to 2^40 (%s)", path, line, text,
                         columns);
    }
    *out = (int64_t)size;
    return 0;
}

/* Experts that a row of a mixture hits: a mean over layers, so no whole number. */
static int read_hits(const char *path, int line, const char *text, struct lattice_row *row,
                     struct err *err) {
    const double experts = (double)moe_shape_unpack(row->at[MOE_SHAPE]).experts;
    return num_f64(text, &row->hits) && row->hits > 0 && row->hits <= experts
               ? 0
               : err_world(err, "%s:%d: hit is '%.40s', expected how many of the %.0f experts",
                           path, line, text, experts);
}

static bool op_is_typed(enum profile_op op) {
    return op != PROFILE_ELEMENTWISE && op != PROFILE_ALL_REDUCE && op != PROFILE_ALL_GATHER;
}

/* Before what was timed of a row that was raised. */
static const char warm_mark[] = "warm=";

static bool is_warm(const char *text) {
    return *text == *warm_mark && strncmp(text, warm_mark, sizeof warm_mark - 1) == 0;
}

static bool op_is_raised(enum profile_op op) {
    return op == PROFILE_GEMM || op == PROFILE_ATTENTION_DECODE || op == PROFILE_MOE;
}

static bool is_time(double us) {
    return us > 0 && us <= MOST_US;
}

/* What was timed of a row that was raised, "warm=US" before its time, whose column is taken away.
 */
static int take_warm(const char *path, int line, enum profile_op op, char **columns, size_t *n,
                     double *warm_us, struct err *err) {
    const size_t at = *n > 3 && *n <= MAX_COLUMNS + 1 ? *n - 2 : 0; /* more were cut off */
    *warm_us = 0;
    if (at == 0 || !is_warm(columns[at])) {
        return 0;
    }
    if (!op_is_raised(op)) {
        return err_world(err, "%s:%d: %s is never raised from warm times", path, line,
                         profile_operators[op].name);
    }
    if (!num_f64(columns[at] + sizeof warm_mark - 1, warm_us) || !is_time(*warm_us)) {
        return err_world(err, "%s:%d: '%.40s', expected a positive number", path, line,
                         columns[at]);
    }
    columns[at] = columns[at + 1];
    *n -= 1;
    return 0;
}

/* The type that a row names before its time, whose column is taken away; ROWS_OF_FILE: none. Sizes
 * begin with a digit. */
static int take_type(const char *path, int line, enum profile_op op, char **columns, size_t *n,
                     size_t *type, struct err *err) {
    const size_t at = *n > 3 && *n <= MAX_COLUMNS + 1 ? *n - 2 : 0; /* more were cut off */
    const char first = columns[at][0];
    *type = ROWS_OF_FILE;
    if (at == 0 || first < 'a' || first > 'z') {
        return 0;
    }
    int bad = find_word(path, line, "type", columns[at], profile_type_words, type, err);
    if (bad == 0 && !op_is_typed(op)) {
        bad = err_world(err, "%s:%d: %s goes by bytes, whatever their type", path, line,
                        profile_operators[op].name);
    }
    columns[at] = columns[at + 1];
    *n -= 1;
    return bad;
}

static int find_operator(const char *path, int line, const char *word, size_t *op,
                         struct err *err) {
    const char *names[PROFILE_OPS + 1] = {NULL};
    for (size_t i = 0; i < PROFILE_OPS; i++) {
        names[i] = profile_operators[i].name;
    }
    return find_word(path, line, "operator", word, names, op, err);
}

static bool is_of_last(const struct all_rows *rows, const char *word) {
    return strcmp(word, profile_operators[rows->last].name) == 0;
}

static void add_row(struct all_rows *rows, size_t type, const struct lattice_row *row) {
    struct rows *of = &rows->of[type][rows->last];
    of->items = mem_grown(of->items, of->n, &of->room, sizeof *row);
    of->items[of->n++] = *row;
}

static int parse_operator(const char *path, int line, char **columns, size_t n,
                          struct all_rows *rows, struct err *err) {
    size_t op = rows->last;
    int bad = is_of_last(rows, columns[0]) ? 0 : find_operator(path, line, columns[0], &op, err);
    if (bad) {
        return bad;
    }
    const struct profile_operator *shape = &profile_operators[op];
    rows->last = (enum profile_op)op;
    size_t n_sizes = 0, type;
    double warm_us;
    if (take_warm(path, line, (enum profile_op)op, columns, &n, &warm_us, err) != 0 ||
        take_type(path, line, (enum profile_op)op, columns, &n, &type, err) != 0) {
        return err_status(err);
    }
    while (shape->sizes[n_sizes] != SIZE_END) {
        n_sizes++;
    }
    const bool says_hits = op == PROFILE_MOE && n == n_sizes + 3;
    if (n != n_sizes + 2 && !says_hits) {
        return err_world(err, "%s:%d: %s has %zu columns after its name, expected %zu: %s", path,
                         line, shape->name, n - 1, n_sizes + 1, shape->columns);
    }
    int64_t sizes[MAX_COLUMNS] = {0};
    size_t first = 0;
    if (op == PROFILE_PASS) {
        const char *passes[PROFILE_PASSES + 1] = {NULL};
        memcpy(passes, profile_pass_names, sizeof profile_pass_names);
        size_t pass;
        bad = find_word(path, line, "pass", columns[1], passes, &pass, err);
        sizes[first++] = (int64_t)pass;
    }
    for (size_t i = first; bad == 0 && i < n_sizes; i++) {
        bad = read_size(path, line, columns[i + 1], shape->columns, &sizes[i], err);
    }
    struct lattice_row row;
    bad = bad ? bad : place_row(path, line, (enum profile_op)op, sizes, &row, err);
    bad = bad || !says_hits ? bad : read_hits(path, line, columns[n - 2], &row, err);
    if (bad) {
        return bad;
    }
    if (!num_f64(columns[n - 1], &row.time_us) || !is_time(row.time_us)) {
        return err_world(err, "%s:%d: time_us is '%.40s', expected a positive number", path, line,
                         columns[n - 1]);
    }
    row.warm_us = warm_us;
    add_row(rows, type, &row);
    return 0;
}

static int parse_host(struct profile *profile, int line, char *const *columns, size_t n,
                      struct err *err) {
    const char *path = profile->path;
    if (n != 4 && n != 5) {
        return err_world(err,
                         "%s:%d: host has %zu columns after its name, expected 3 or 4: "
                         "KIND,step_ns,request_ns,issued_ns",
                         path, line, n - 1);
    }
    const char *kinds[HOST_KIND_COUNT + 1] = {NULL};
    memcpy(kinds, host_kind_names, sizeof host_kind_names);
    size_t kind;
    int bad = find_word(path, line, "kind of step", columns[1], kinds, &kind, err);
    if (bad) {
        return bad;
    }
    struct profile_host *host = &profile->host[kind];
    if (host->given) {
        return err_world(err, "%s:%d: a second host row for %s", path, line, kinds[kind]);
    }
    double *const fields[] = {&host->step_ns, &host->request_ns, &host->issued_ns};
    for (size_t i = 0; i < n - 2; i++) {
        if (!num_f64(columns[2 + i], fields[i]) || *fields[i] < 0 || *fields[i] > 1e10) {
            return err_world(err, "%s:%d: '%.40s' is not a time from 0 to 1e10 ns", path, line,
                             columns[2 + i]);
        }
    }
    host->given = true;
    return 0;
}

static int parse_between(struct profile *profile, int line, char *const *columns, size_t n,
                         struct err *err) {
    const char *path = profile->path;
    if (n != 2 || profile->between_ns > 0) {
        return err_world(err, "%s:%d: %s", path, line,
                         n != 2 ? "between has one column after its name, NS"
                                : "a second between row");
    }
    if (!num_f64(columns[1], &profile->between_ns) || profile->between_ns <= 0 ||
        profile->between_ns > 1e10) {
        return err_world(err, "%s:%d: '%.40s' is not a time above 0, up to 1e10 ns", path, line,
                         columns[1]);
    }
    return 0;
}

static int parse_correction(struct profile *profile, int line, char *const *columns, size_t n,
                            struct err *err) {
    const char *path = profile->path;
    double factor;
    double hits = 0;
    if ((n != 2 && n != 5 && n != 6) || (n == 2 && profile->correction.all > 0)) {
        return err_world(err, "%s:%d: %s", path, line,
                         n == 2
                             ? "a second load row for all operators"
                             : "load has one column after its name, FACTOR, or four, "
                               "KIND,SIZE,ROWS,FACTOR, or five of experts: and how many are hit");
    }
    const char *text = columns[n == 6 ? 4 : n - 1];
    if (!num_f64(text, &factor) || factor < LEAST_CORRECTION || factor > MOST_CORRECTION) {
        return err_world(err, "%s:%d: load '%.40s' is not a number from %g to %g", path, line, text,
                         LEAST_CORRECTION, MOST_CORRECTION);
    }
    if (n == 6 && (!num_f64(columns[5], &hits) || hits <= 0 || hits > 0xffff)) {
        return err_world(err, "%s:%d: hit is '%.40s', expected a number of experts", path, line,
                         columns[5]);
    }
    if (n == 2) {
        profile->correction.all = factor;
        return 0;
    }
    const char *kinds[OP_KIND_COUNT + 1] = {NULL};
    memcpy(kinds, op_kind_names, sizeof op_kind_names);
    size_t kind;
    int64_t rows = 0;
    int bad = find_word(path, line, "kind of operator", columns[1], kinds, &kind, err);
    bad = bad ? bad : read_size(path, line, columns[3], "KIND,SIZE,ROWS,FACTOR", &rows, err);
    if (bad == 0 && !correction_add(&profile->correction, (enum op_kind)kind, columns[2],
                                    (double)rows, factor, hits)) {
        bad = err_world(err,
                        "%s:%d: load of '%.40s': its rows do not rise, or there are over %d of "
                        "them, over %d operators or over %d characters",
                        path, line, columns[2], CORRECTION_MAX_POINTS, CORRECTION_MAX_CURVES,
                        CORRECTION_KEY_CHARS - 1);
    }
    return bad;
}

static int parse_power(struct profile *profile, int line, char *const *columns, size_t n,
                       struct err *err) {
    double value;
    if (n != 3) {
        return err_world(err, "%s:%d: power has %zu columns after its name, expected 2: KEY,VALUE",
                         profile->path, line, n - 1);
    }
    if (!num_f64(columns[2], &value) || !power_take(&profile->power, columns[1], value)) {
        return err_world(err,
                         "%s:%d: power row '%.40s,%.40s': no such constant, or out of its range",
                         profile->path, line, columns[1], columns[2]);
    }
    return 0;
}

static int parse_tile(struct profile *profile, int line, char *const *columns, size_t n,
                      struct err *err) {
    double value;
    if (n != 3 || !num_f64(columns[2], &value) || !tiles_take(&profile->tiles, columns[1], value)) {
        return err_world(err,
                         "%s:%d: tile row '%.40s': expected a known KEY,VALUE, above 0 and at most "
                         "65536",
                         profile->path, line, n > 1 ? columns[1] : "");
    }
    profile->has_tiles = true;
    return 0;
}

static int parse_row(struct profile *profile, int line, char *text, struct all_rows *rows,
                     struct err *err) {
    char *columns[MAX_COLUMNS + 1] = {NULL};
    size_t n = (size_t)field_cut(text, false, columns, MAX_COLUMNS + 1);
    static const char *const others[] = {"load", "host", "power", "between", "tile", NULL};
    switch (is_of_last(rows, columns[0]) ? -1 : name_find(others, columns[0])) {
    case 0:
        return parse_correction(profile, line, columns, n, err);
    case 1:
        return parse_host(profile, line, columns, n, err);
    case 2:
        return parse_power(profile, line, columns, n, err);
    case 3:
        return parse_between(profile, line, columns, n, err);
    case 4:
        return parse_tile(profile, line, columns, n, err);
    default:
        return parse_operator(profile->path, line, columns, n, rows, err);
    }
}

/* ---- rows as nearly all are ---- */

/* A size of so few digits that it is in range, and the comma after it: what follows. NULL: another.
 */
static const char *plain_size(const char *text, int64_t *size) {
    enum { IN_RANGE_DIGITS = 12 };
    const char *c = text;
    *size = 0;
    for (; *c >= '0' && *c <= '9' && c < text + IN_RANGE_DIGITS; c++) {
        *size = *size * 10 + (*c - '0');
    }
    return *size > 0 && *c == ',' ? c + 1 : NULL;
}

static const char *after_word(const char *text, const char *word) {
    const size_t length = strlen(word);
    return strncmp(text, word, length) == 0 && text[length] == ',' ? text + length + 1 : NULL;
}

/* The type that a plain row names, if it names one, and what follows it; NULL: an unknown word. */
static const char *plain_type(const char *text, size_t *type) {
    *type = ROWS_OF_FILE;
    if (*text < 'a' || *text > 'z' || is_warm(text)) {
        return text;
    }
    const char *after = NULL;
    for (size_t i = 0; after == NULL && i < PROFILE_TYPES; i++) {
        after = after_word(text, profile_type_words[i]);
        *type = i;
    }
    return after;
}

/* What was timed of a raised row, where it says so, and what follows it; NULL: what is no such
 * time.
 */
static const char *plain_warm(const char *text, enum profile_op op, double *warm_us) {
    *warm_us = 0;
    if (!is_warm(text)) {
        return text;
    }
    const char *after = num_decimal(text + sizeof warm_mark - 1, warm_us);
    return after != NULL && *after == ',' && is_time(*warm_us) && op_is_raised(op) ? after + 1
                                                                                   : NULL;
}

/* A row of the same operator as the row before it, in sizes of plain digits, read in one walk over
 * its bytes: the line after it. NULL: another row, for parse_row. */
static const char *plain_row(const char *text, enum profile_op op, int64_t sizes[MAX_COLUMNS],
                             size_t *type, double *warm_us, double *time_us) {
    const struct profile_operator *shape = &profile_operators[op];
    const char *at = after_word(text, shape->name);
    for (size_t i = 0; at != NULL && shape->sizes[i] != SIZE_END; i++) {
        at = plain_size(at, &sizes[i]);
    }
    at = at != NULL ? plain_type(at, type) : NULL;
    at = at != NULL && (*type == ROWS_OF_FILE || op_is_typed(op)) ? plain_warm(at, op, warm_us)
                                                                  : NULL;
    at = at != NULL ? num_decimal(at, time_us) : NULL;
    return at != NULL && *at == '\n' && is_time(*time_us) ? at + 1 : NULL;
}

/* Takes a plain row; `*taken` is false where it is another. */
static int take_plain(const char *path, int line, const char **rest, struct all_rows *rows,
                      bool *taken, struct err *err) {
    int64_t sizes[MAX_COLUMNS] = {0};
    double warm_us, time_us;
    size_t type;
    struct lattice_row row;
    const char *after = plain_row(*rest, rows->last, sizes, &type, &warm_us, &time_us);
    *taken = after != NULL;
    if (after == NULL) {
        return 0;
    }
    *rest = after;
    if (place_row(path, line, rows->last, sizes, &row, err) != 0) {
        return err_status(err);
    }
    row.time_us = time_us;
    row.warm_us = warm_us;
    add_row(rows, type, &row);
    return 0;
}

void profile_add_note(struct profile *profile, const char *key, const char *value) {
    profile->notes = mem_resized(profile->notes, profile->n_notes + 1, sizeof *profile->notes);
    struct profile_note *note = &profile->notes[profile->n_notes++];
    *note = (struct profile_note){mem_text(key), mem_text(value)};
}

static int take_kind(struct profile *profile, int line, const char *word, struct err *err) {
    int kind = provenance_find(word);
    if (profile->has_kind) {
        return err_world(err, "%s:%d: a second kind line", profile->path, line);
    }
    if (kind < 0 || kind > PROVENANCE_TRANSFERRED) {
        return err_world(err, "%s:%d: kind is '%.40s', expected measured, imported or transferred",
                         profile->path, line, word);
    }
    profile->kind = (enum provenance_kind)kind;
    profile->has_kind = true;
    return 0;
}

/* "# key: value" lines say where the numbers come from; other comments are for people. */
static int parse_comment(struct profile *profile, int line, char *text, struct err *err) {
    static const char key_chars[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    static const char *const own_keys[] = {"kind", "source", "columns", "rows", NULL};
    enum { KIND, SOURCE, COLUMNS, ROWS };
    char *key = text + 2;
    size_t length = text[1] == ' ' ? strspn(key, key_chars) : 0;
    if (length == 0 || key[length] != ':' || key[length + 1] != ' ') {
        return 0;
    }
    const char *value = key + length + 2;
    key[length] = '\0';
    switch (name_find(own_keys, key)) {
    case KIND:
        return take_kind(profile, line, value, err);
    case SOURCE:
        if (profile->source != NULL) {
            return err_world(err, "%s:%d: a second source line", profile->path, line);
        }
        profile->source = mem_text(value);
        return 0;
    case COLUMNS:
        return 0;
    case ROWS:
        profile->counts_rows = true;
        return num_u64(value, UINT32_MAX, &profile->rows_said)
                   ? 0
                   : err_world(err, "%s:%d: rows is '%.40s', expected a number", profile->path,
                               line, value);
    default:
        profile_add_note(profile, key, value);
        return 0;
    }
}

/* Measured here, or transferred from what was. */
static bool has_measured_edges(const struct profile *profile) {
    const char *donor = profile_note(profile, "donor_kind");
    return profile->kind == PROVENANCE_MEASURED ||
           (profile->kind == PROVENANCE_TRANSFERRED && donor != NULL &&
            provenance_find(donor) == PROVENANCE_MEASURED);
}

/* A table whose benchmark repeated its loop over a few weights has rows that were timed on a warm
 * cache: raising them is part of its import. */
static int check_raised(const struct profile *profile, struct err *err) {
    if (profile_note(profile, "weights_in_turn") == NULL ||
        profile_note(profile, "raised_by") != NULL) {
        return 0;
    }
    return err_world(err,
                     "%s: '# weights_in_turn' says that rows were timed on a warm cache, and no "
                     "'# raised_by' that they were raised: `experiments/import/cold.py GPU.ini "
                     "FILE` does that; without the first line they are read as they are",
                     profile->path);
}

/* "expert_routing: power_law A": the exponent; 0: another, or none. */
static double routing_alpha(const struct profile *profile) {
    static const char power_law[] = "power_law ";
    const char *routing = profile_note(profile, "expert_routing");
    return routing != NULL && strncmp(routing, power_law, sizeof power_law - 1) == 0
               ? strtod(routing + sizeof power_law - 1, NULL)
               : 0;
}

/* A file that says how many rows it has is known to be whole; one without that line is taken as it
 * stands. */
static int check_length(const struct profile *profile, uint64_t n_rows, bool is_ended,
                        struct err *err) {
    if (!profile->counts_rows || (n_rows == profile->rows_said && is_ended)) {
        return 0;
    }
    return n_rows == profile->rows_said
               ? err_world(err, "%s: the last line is cut off", profile->path)
               : err_world(err,
                           "%s: the file says that it has %" PRIu64 " rows, but %" PRIu64
                           " are there: it was cut off, or changed without its line '# rows'",
                           profile->path, profile->rows_said, n_rows);
}

/* A line that is no plain row; whether it counts as a row. */
static int parse_line(struct profile *profile, int line, const char *start, size_t length,
                      struct all_rows *rows, uint64_t *n_rows, struct err *err) {
    char *copy = mem_copied(start, length), *rest = copy;
    char *row = text_line(&rest, NULL);
    int bad = 0;
    *n_rows += row[0] != '#' && row[0] != '\0';
    if (row[0] != '\0') {
        bad = row[0] == '#' ? parse_comment(profile, line, row, err)
                            : parse_row(profile, line, row, rows, err);
    }
    free(copy);
    return bad;
}

static int parse_lines(struct profile *profile, const char *text, struct all_rows *rows,
                       struct err *err) {
    int line = 0;
    uint64_t n_rows = 0;
    bool is_ended = true;
    for (const char *rest = text; *rest != '\0';) {
        bool taken;
        int bad = take_plain(profile->path, ++line, &rest, rows, &taken, err);
        n_rows += taken;
        if (!taken) {
            const char *end = strchr(rest, '\n');
            const size_t length = end != NULL ? (size_t)(end + 1 - rest) : strlen(rest);
            is_ended = end != NULL;
            bad = parse_line(profile, line, rest, length, rows, &n_rows, err);
            rest += length;
        }
        if (bad) {
            return bad;
        }
    }
    if (!profile->has_kind || profile->source == NULL) {
        return err_world(err, "%s: no '# %s: ' line says where the numbers come from",
                         profile->path, !profile->has_kind ? "kind" : "source");
    }
    const char *missing = power_missing(&profile->power);
    if (missing != NULL) {
        return err_world(err,
                         "%s: there are power rows, but none of %s: unmask calibrate --clocks "
                         "measures them all",
                         profile->path, missing);
    }
    profile->measured_edges = has_measured_edges(profile);
    profile->routing_alpha = routing_alpha(profile);
    profile->correction.tile_rows = profile->tiles.corrected_rows;
    profile->correction.tile_from = profile->tiles.corrected_from;
    const int bad = check_raised(profile, err);
    return bad ? bad : check_length(profile, n_rows, is_ended, err);
}

static int build(struct profile *profile, struct rows rows[PROFILE_OPS], struct err *err) {
    for (size_t op = 0; op < PROFILE_OPS; op++) {
        struct lattice_row equals[2];
        if (rows[op].n == 0) {
            continue;
        }
        switch (lattice_init(&profile->ops[op], profile_operators[op].n_axes, rows[op].items,
                             rows[op].n, equals)) {
        case LATTICE_FINE:
            break;
        case LATTICE_DUPLICATE:
            return err_world(err, "%s:%d: the same %s row stands in line %d already", profile->path,
                             equals[1].line, profile_operators[op].name, equals[0].line);
        case LATTICE_TOO_LARGE:
            return err_world(err, "%s: the %s rows span a grid of more than %d cells",
                             profile->path, profile_operators[op].name, LATTICE_MAX_CELLS);
        }
    }
    profile_refresh(profile);
    return 0;
}

/* The type of rows that name none: old files of the cpu back end say "float32". */
static int find_type(struct profile *profile, struct err *err) {
    const char *dtype = profile_note(profile, "dtype");
    if (dtype == NULL) {
        profile->type = PROFILE_BF16;
        return 0;
    }
    const int found =
        strcmp(dtype, "float32") == 0 ? PROFILE_F32 : name_find(profile_type_words, dtype);
    profile->type = (enum profile_type)(found < 0 ? 0 : found);
    return found >= 0 ? 0
                      : err_world(err,
                                  "%s: dtype is '%.40s', expected bf16, f32, fp8, "
                                  "fp8-bf16 or fp8-channel",
                                  profile->path, dtype);
}

/* Rows that name the file's own type are among those that name none. */
static void merge(struct rows *into, struct rows *from) {
    for (size_t i = 0; i < from->n; i++) {
        into->items = mem_grown(into->items, into->n, &into->room, sizeof *into->items);
        into->items[into->n++] = from->items[i];
    }
    from->n = 0;
}

static bool has_rows(const struct rows rows[PROFILE_OPS]) {
    size_t n = 0;
    for (size_t op = 0; op < PROFILE_OPS; op++) {
        n += rows[op].n;
    }
    return n > 0;
}

static int build_all(struct profile *profile, struct all_rows *rows,
                     const struct profile_peaks *peaks, struct err *err) {
    int bad = find_type(profile, err);
    profile->peaks = profile_peaks_in(peaks, profile->type);
    for (size_t op = 0; op < PROFILE_OPS; op++) {
        merge(&rows->of[ROWS_OF_FILE][op], &rows->of[profile->type][op]);
    }
    bad = bad ? bad : build(profile, rows->of[ROWS_OF_FILE], err);
    for (size_t type = 0; bad == 0 && type < PROFILE_TYPES; type++) {
        if (!has_rows(rows->of[type])) {
            continue;
        }
        if (profile_type_is_fp8((enum profile_type)type) && peaks->fp8_flops <= 0) {
            return err_world(err, "%s: has rows of fp8, and the GPU's file no peak_fp8_flops",
                             profile->path);
        }
        profile->others[type] = profile_other(profile, (enum profile_type)type, peaks);
        bad = build(profile->others[type], rows->of[type], err);
    }
    return bad;
}

static void free_rows(struct all_rows *rows) {
    for (size_t type = 0; type <= PROFILE_TYPES; type++) {
        for (size_t op = 0; op < PROFILE_OPS; op++) {
            free(rows->of[type][op].items);
        }
    }
    free(rows);
}

int profile_parse_text(const char *path, const char *text, size_t size,
                       const struct profile_peaks *peaks, struct profile **out, struct err *err) {
    ASSERT(peaks->flops > 0 && peaks->bandwidth > 0 && peaks->sms > 0);
    struct all_rows *rows = mem_zeroed(1, sizeof *rows);
    struct profile *profile = mem_zeroed(1, sizeof *profile);
    profile->path = mem_text(path);
    profile->tiles = tiles_default;
    int bad = strlen(text) == size ? parse_lines(profile, text, rows, err)
                                   : err_world(err, "%s: holds a zero byte; expected text", path);
    bad = bad ? bad : build_all(profile, rows, peaks, err);
    free_rows(rows);
    if (bad) {
        profile_close(profile);
        profile = NULL;
    }
    *out = profile;
    return bad;
}

int profile_parse(const char *path, const char *text, size_t size,
                  const struct profile_peaks *peaks, struct profile **out, struct err *err) {
    char *copy = mem_copied(text, size);
    const int bad = profile_parse_text(path, copy, size, peaks, out, err);
    free(copy);
    return bad;
}

/* A calibration during which others computed leaves its file under this name (calibrate --shared).
 */
static bool has_shared(const char *path) {
    char name[1024];
    const int length = snprintf(name, sizeof name, "%s.shared", path);
    return length < (int)sizeof name && access(name, R_OK) == 0;
}

char *profile_read(const char *path, size_t *size, struct err *err) {
    char *text = text_read(path, "profile", MAX_FILE_BYTES, size, err);
    if (text == NULL && access(path, F_OK) != 0 && has_shared(path)) {
        *err = (struct err){0};
        err_world(err,
                  "there is no %s, but %s.shared: calibrate measured while others computed, and "
                  "--shared keeps what it measured",
                  path, path);
    }
    return text;
}

int profile_open(const char *path, const struct profile_peaks *peaks, struct profile **out,
                 struct err *err) {
    size_t size;
    char *text = profile_read(path, &size, err);
    *out = NULL;
    int bad =
        text != NULL ? profile_parse_text(path, text, size, peaks, out, err) : err_status(err);
    free(text);
    return bad;
}
