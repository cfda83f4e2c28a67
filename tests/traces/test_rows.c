/* One list of requests, drawn at random, written in every way in which a file can say it: what is
 * read is what was drawn, in whatever format, unit and order of columns. */
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "sim/base/mem.h"
#include "sim/base/rng.h"
#include "tests/support/says.h"
#include "tests/support/scratch.h"
#include "traces/reader.h"

enum { MOST = 24, MOST_IDS = 6, BLOCK = 16 };

/* As a tool knows it; -1: it does not say. */
struct known_row {
    int64_t time_us, think_us;
    uint32_t input, output;
    int answer, prefix, tenant, session, parent, group, n_ids, ids[MOST_IDS];
    bool failed;
};

struct known_rows {
    struct known_row at[MOST];
    int n;
    bool has_ids, has_parents, tenants_are_texts;
    bool is_full; /* as columns of numbers must be */
};

static int draw(struct rng *rng, int least, int most) {
    return least + (int)(rng_uniform(rng) * (most - least + 1));
}

/* -1 in every other row. */
static int perhaps(struct rng *rng, int least, int most) {
    return draw(rng, 0, 1) == 0 ? -1 : draw(rng, least, most);
}

static void draw_rows(struct rng *rng, struct known_rows *out) {
    *out = (struct known_rows){.n = draw(rng, 1, MOST),
                               .has_ids = draw(rng, 0, 1) == 0,
                               .has_parents = draw(rng, 0, 1) == 0,
                               .tenants_are_texts = draw(rng, 0, 1) == 0};
    int64_t now_us = draw(rng, 0, 1) == 0 ? 0 : draw(rng, 1, 100000000);
    out->is_full = draw(rng, 0, 1) == 0;
    const int least = out->is_full ? 0 : -1;
    for (int i = 0; i < out->n; i++) {
        struct known_row *row = &out->at[i];
        now_us += draw(rng, 0, 2) == 0 ? 0 : draw(rng, 1, 3000000);
        *row = (struct known_row){.time_us = now_us,
                                  .think_us = perhaps(rng, 0, 5000000),
                                  .input = (uint32_t)draw(rng, 1, BLOCK * MOST_IDS),
                                  .output = (uint32_t)draw(rng, 1, 500),
                                  .tenant = draw(rng, out->tenants_are_texts ? -1 : least, 3),
                                  .group = perhaps(rng, 0, 2),
                                  .prefix = -1,
                                  .parent = -1};
        row->answer =
            out->is_full ? draw(rng, 1, (int)row->output) : perhaps(rng, 1, (int)row->output);
        row->session = out->has_parents ? i : perhaps(rng, 0, 3);
        if (out->has_parents && i > 0) {
            row->parent = perhaps(rng, 0, i - 1);
        }
        if (!out->has_ids) {
            row->prefix = draw(rng, least, (int)row->input);
            continue;
        }
        /* No more ids than the prompt has blocks, most of a few prompts that begin alike. */
        row->n_ids = perhaps(rng, 1, (int)(row->input + BLOCK - 1) / BLOCK);
        for (int k = 0; k < row->n_ids; k++) {
            row->ids[k] = draw(rng, 0, 4) == 0 ? draw(rng, 0, 9) : k;
        }
    }
}

/* ---- what they are, slowly ---- */

static int64_t root_of(const struct known_rows *rows, int i) {
    while (rows->at[i].parent >= 0) {
        i = rows->at[i].parent;
    }
    return rows->at[i].session;
}

/* The first of the first `n` rows that has the id; -1: none. */
static int first_with(const struct known_rows *rows, int n, int id) {
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < rows->at[i].n_ids; k++) {
            if (rows->at[i].ids[k] == id) {
                return i;
            }
        }
    }
    return -1;
}

/* How many ids at the front earlier rows have, and the first row that has the last of them. */
static uint32_t shared_ids(const struct known_rows *rows, int i, int *with) {
    uint32_t n = 0;
    *with = -1;
    for (int k = 0; k < rows->at[i].n_ids; k++) {
        int first = first_with(rows, i, rows->at[i].ids[k]);
        if (first < 0) {
            break;
        }
        *with = first;
        n++;
    }
    return n;
}

/* Texts are numbered as they come, "none" like one of them. */
static uint32_t tenant_of(const struct known_rows *rows, int i) {
    int n_before = 0;
    if (!rows->tenants_are_texts) {
        return rows->at[i].tenant < 0 ? 0 : (uint32_t)rows->at[i].tenant;
    }
    for (int k = 0; k <= i; k++) {
        bool is_new = true;
        for (int b = 0; b < k; b++) {
            is_new = is_new && rows->at[b].tenant != rows->at[k].tenant;
        }
        if (rows->at[k].tenant == rows->at[i].tenant) {
            return (uint32_t)n_before;
        }
        n_before += is_new;
    }
    return 0;
}

/* Whether two names that a reader made up are equal where those in the file are. */
static void check_name(const char *what, const struct known_rows *rows, const uint64_t *found,
                       int64_t (*name)(const struct known_rows *rows, int i)) {
    for (int i = 0; i < rows->n; i++) {
        ck_assert_msg((found[i] == 0) == (name(rows, i) < 0), "%s of row %d", what, i);
        for (int k = 0; k < i; k++) {
            ck_assert_msg((found[i] == found[k]) == (name(rows, i) == name(rows, k)),
                          "%s of rows %d and %d", what, k, i);
        }
    }
}

static int64_t session_of(const struct known_rows *rows, int i) {
    return rows->has_parents ? root_of(rows, i) : rows->at[i].session;
}

static int64_t group_of(const struct known_rows *rows, int i) {
    return rows->at[i].group;
}

static void check_hashes(const struct known_rows *rows, const struct arrival *got) {
    for (int i = 0; i < rows->n; i++) {
        int with;
        uint32_t tokens = BLOCK * shared_ids(rows, i, &with);
        ck_assert_uint_eq(got[i].prefix_tokens,
                          tokens < rows->at[i].input ? tokens : rows->at[i].input);
        ck_assert_uint_eq(got[i].shares, with < 0 ? 0 : got[with].leaves);
        ck_assert_int_eq(got[i].leaves != 0, rows->at[i].n_ids > 0);
    }
}

static int read_all(const char *path, const struct trace_reading *how, struct arrival *out,
                    int room, struct trace **trace) {
    struct err err = {0};
    int n = 0;
    ck_assert_msg(trace_open_as(path, how, trace, &err) == 0, "%s", err.text);
    struct arrival_source source = trace_source(*trace);
    enum source_reply reply;
    while ((reply = source.next(source.state, &out[n], &err)) == SOURCE_ROW && n + 1 < room) {
        n++;
    }
    ck_assert_msg(reply == SOURCE_END, "%s", err.text);
    return n;
}

/* `has_all`: tenants, answers and the like are in the file, too. */
static void check_rows(const char *path, const struct trace_reading *how,
                       const struct known_rows *rows, bool has_all) {
    struct arrival got[MOST + 2];
    uint64_t sessions[MOST], groups[MOST];
    struct trace *trace;
    ck_assert_int_eq(read_all(path, how, got, MOST + 2, &trace), rows->n);
    for (int i = 0; i < rows->n; i++) {
        const struct known_row *row = &rows->at[i];
        ck_assert_uint_eq(got[i].id, (uint64_t)i);
        ck_assert_int_eq(got[i].arrival_ns, 1000 * (row->time_us - rows->at[0].time_us));
        ck_assert_uint_eq(got[i].prompt_tokens, row->input);
        ck_assert_uint_eq(got[i].output_tokens, row->output);
        ck_assert_uint_eq(got[i].tenant, has_all ? tenant_of(rows, i) : 0);
        ck_assert_uint_eq(got[i].answer_tokens, !has_all || row->answer < 0 ? 0 : row->answer);
        ck_assert_int_eq(got[i].think_ns,
                         !has_all || row->think_us < 0 ? -1 : row->think_us * 1000);
        if (!rows->has_ids) {
            ck_assert_uint_eq(got[i].prefix_tokens, !has_all || row->prefix < 0 ? 0 : row->prefix);
        }
        sessions[i] = got[i].session;
        groups[i] = got[i].prefix_group;
    }
    if (has_all) {
        check_name("session", rows, sessions, session_of);
        check_name("group", rows, groups, group_of);
    }
    if (has_all && rows->has_ids) {
        check_hashes(rows, got);
    }
    trace_close(trace);
}

/* ---- how they are written ---- */

struct unit {
    const char *word;
    int64_t us; /* 0: a date */
};
static const struct unit units[] = {
    {"ns", 0}, {"us", 1}, {"ms", 1000}, {"s", 1000000}, {"date", -1}};
enum { N_UNITS = sizeof units / sizeof units[0] };

static void put_time(FILE *out, const struct unit *unit, int64_t us) {
    if (unit->us < 0) {
        time_t s = 1700000000 + us / 1000000;
        struct tm tm;
        gmtime_r(&s, &tm);
        fprintf(out, "%04d-%02d-%02dT%02d:%02d:%02d.%06d", tm.tm_year + 1900, tm.tm_mon + 1,
                tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (int)(us % 1000000));
    } else if (unit->us == 0) {
        fprintf(out, "%" PRId64, us * 1000);
    } else if (unit->us == 1) {
        fprintf(out, "%" PRId64, us);
    } else {
        fprintf(out, "%" PRId64 ".%0*" PRId64, us / unit->us, unit->us == 1000 ? 3 : 6,
                us % unit->us);
    }
}

enum { TIME, INPUT, OUTPUT, TENANT, PREFIX, ANSWER, SESSION, THINK, PARENT, GROUP, HASHES, JUNK };
enum { N_FIELDS = JUNK + 1, N_PLAIN = OUTPUT + 1 };
static const char *const words[N_FIELDS] = {"time",   "input",  "output",  "tenant",
                                            "prefix", "answer", "session", "think",
                                            "parent", "group",  "hashes",  "junk"};

/* Which of them the file has, in which order; the flat or nested name of each. */
struct writing {
    int order[N_FIELDS], n;
    const struct unit *unit, *think;
    bool is_json, is_list, nests;
    char columns[512];
};

static bool is_asked(const struct known_rows *rows, int field) {
    return field == HASHES   ? rows->has_ids
           : field == PREFIX ? !rows->has_ids
           : field == PARENT ? rows->has_parents
                             : true;
}

static const char *name_of(const struct writing *w, int field, char out[32]) {
    snprintf(out, 32, "%sthe_%s", w->nests && field % 2 == 0 ? "of.it." : "", words[field]);
    return out;
}

static void draw_writing(struct rng *rng, const struct known_rows *rows, struct writing *w) {
    *w = (struct writing){.unit = &units[draw(rng, 0, N_UNITS - 1)],
                          .think = &units[draw(rng, 0, N_UNITS - 2)],
                          .is_json = !rows->is_full || draw(rng, 0, 2) == 0};
    w->is_list = w->is_json && draw(rng, 0, 1) == 0;
    w->nests = w->is_json && draw(rng, 0, 1) == 0;
    for (int field = 0; field < N_FIELDS; field++) {
        if (!is_asked(rows, field)) {
            continue;
        }
        int at = draw(rng, 0, w->n);
        memmove(w->order + at + 1, w->order + at, (size_t)(w->n - at) * sizeof w->order[0]);
        w->order[at] = field;
        w->n++;
        if (field != JUNK) {
            char name[32];
            size_t used = strlen(w->columns);
            snprintf(w->columns + used, sizeof w->columns - used, "%s%s=%s%s%s",
                     used > 0 ? "," : "", words[field], name_of(w, field, name),
                     field == TIME || field == THINK ? ":" : "",
                     field == TIME    ? w->unit->word
                     : field == THINK ? w->think->word
                                      : "");
        }
    }
}

static void put_number(FILE *out, int64_t number, const char *none) {
    if (number < 0) {
        fputs(none, out);
    } else {
        fprintf(out, "%" PRId64, number);
    }
}

static void put_value(FILE *out, const struct known_rows *rows, const struct known_row *row,
                      const struct writing *w, int field) {
    const char *none = w->is_json ? "null" : "", *quote = w->is_json ? "\"" : "";
    bool is_date = field == TIME && w->unit->us < 0;
    switch (field) {
    case TIME:
        fputs(is_date ? quote : "", out);
        put_time(out, w->unit, row->time_us);
        fputs(is_date ? quote : "", out);
        break;
    case THINK:
        if (row->think_us < 0) {
            fputs(none, out);
        } else {
            put_time(out, w->think, row->think_us);
        }
        break;
    case TENANT:
        if (rows->tenants_are_texts && row->tenant >= 0) {
            fprintf(out, "%sthe %d%s", quote, row->tenant, quote);
        } else {
            put_number(out, row->tenant, none);
        }
        break;
    case GROUP:
        if (row->group >= 0) {
            fprintf(out, "\"a, %d\"", row->group);
        } else {
            fputs(none, out);
        }
        break;
    case HASHES:
        fputs(row->n_ids < 0 ? none : w->is_json ? "[" : "\"[", out);
        for (int k = 0; k < row->n_ids; k++) {
            fprintf(out, "%s%d", k > 0 ? ", " : "", row->ids[k]);
        }
        fputs(row->n_ids < 0 ? "" : w->is_json ? "]" : "]\"", out);
        break;
    case JUNK:
        fputs(w->is_json ? "{\"time\": [NaN, \"}\\\"\"], \"input\": 7}" : "\"x,\"\"y\"", out);
        break;
    default:
        put_number(out,
                   field == INPUT     ? (int64_t)row->input
                   : field == OUTPUT  ? (int64_t)row->output
                   : field == PREFIX  ? row->prefix
                   : field == ANSWER  ? row->answer
                   : field == SESSION ? row->session
                                      : row->parent,
                   none);
    }
}

static void put_object(FILE *out, const struct known_rows *rows, const struct known_row *row,
                       const struct writing *w) {
    bool is_first = true;
    for (int inner = 0; inner < 2; inner++) { /* those within "of": "it": come last */
        fputs(inner == 0 ? "{" : "", out);
        for (int i = 0; i < w->n; i++) {
            bool is_inner = w->nests && w->order[i] % 2 == 0;
            if (is_inner == (inner == 1)) {
                fprintf(out, "%s\"the_%s\": ", is_first ? "" : ", ", words[w->order[i]]);
                put_value(out, rows, row, w, w->order[i]);
                is_first = false;
            }
        }
        if (inner == 0 && w->nests) {
            fprintf(out, "%s\"of\": {\"it\": {", is_first ? "" : ", ");
            is_first = true;
        }
    }
    fputs(w->nests ? "}}}" : "}", out);
}

static const char *write_rows(const struct known_rows *rows, const struct writing *w) {
    const char *path = scratch_path("rows");
    FILE *out = fopen(path, "w");
    ck_assert_ptr_nonnull(out);
    for (int i = 0; !w->is_json && i < w->n; i++) {
        fprintf(out, "%sthe_%s", i > 0 ? "," : "", words[w->order[i]]);
    }
    fputs(!w->is_json ? "\n" : w->is_list ? " [" : "", out);
    for (int i = 0; i < rows->n; i++) {
        if (w->is_json) {
            fputs(i > 0 && w->is_list ? " ,\n" : "", out);
            put_object(out, rows, &rows->at[i], w);
            fputs(w->is_list ? "" : "\n", out);
            continue;
        }
        for (int k = 0; k < w->n; k++) {
            fputs(k > 0 ? "," : "", out);
            put_value(out, rows, &rows->at[i], w, w->order[k]);
        }
        fputs("\n", out);
    }
    fputs(w->is_list ? "] \n" : "", out);
    ck_assert_int_eq(fclose(out), 0);
    return path;
}

TEST(rows_are_the_same_however_they_are_written) {
    struct rng rng = rng_stream(11, "rows");
    for (int n = 0; n < 150; n++) {
        struct known_rows rows;
        struct writing w;
        draw_rows(&rng, &rows);
        draw_writing(&rng, &rows, &w);
        const struct trace_reading how = {.columns = w.columns,
                                          .hash_tokens = rows.has_ids ? BLOCK : 0};
        check_rows(write_rows(&rows, &w), &how, &rows, true);
    }
}

/* ---- bad values ---- */

/* Three rows, of which the second has this value in one column; `field` says which one. */
static const char *write_value(const char *value, int field, bool is_json) {
    static const char *const own[3] = {"t", "i", "o"}, *const plain[3] = {"1", "9", "8"};
    const char *path = scratch_path("value");
    FILE *out = fopen(path, "w");
    ck_assert_ptr_nonnull(out);
    fputs(is_json ? "" : "t,i,o,x\n", out);
    for (int i = 0; i < 3; i++) {
        const char *x = i == 1                       ? value
                        : is_json && field == HASHES ? "[1]"
                        : field == HASHES            ? "\"[1]\""
                        : field == TIME              ? "1"
                                                     : "3";
        for (int k = 0; k < 3; k++) {
            fprintf(out, is_json ? "%s\"%s\":%s" : "%s%.0s%s",
                    k > 0     ? ","
                    : is_json ? "{"
                              : "",
                    own[k], plain[k]);
        }
        fprintf(out, is_json ? ",\"x\":%s}\n" : ",%s\n", x);
    }
    ck_assert_int_eq(fclose(out), 0);
    return path;
}

/* Whether the file is read to its end; else the sentence names line and column. */
static bool takes(const char *value, int field, bool is_json) {
    char columns[128], place[64];
    struct trace *trace;
    struct err err = {0};
    struct arrival row;
    const char *path = write_value(value, field, is_json);
    snprintf(columns, sizeof columns, "time=%s,input=%s,output=%s", field == TIME ? "x:s" : "t:s",
             field == INPUT ? "x" : "i", field == OUTPUT ? "x" : "o");
    if (field > OUTPUT) {
        size_t used = strlen(columns);
        snprintf(columns + used, sizeof columns - used, ",%s=x%s%s", words[field],
                 field == THINK ? ":s" : "", field == PARENT ? ",session=i" : "");
    }
    const struct trace_reading how = {.columns = columns, .hash_tokens = 4, .sorts = true};
    enum source_reply reply = SOURCE_BAD;
    if (trace_open_as(path, &how, &trace, &err) == 0) {
        struct arrival_source source = trace_source(trace);
        while ((reply = source.next(source.state, &row, &err)) == SOURCE_ROW) {
        }
        trace_close(trace);
    }
    if (reply == SOURCE_BAD) {
        snprintf(place, sizeof place, "value:%d: found ", is_json ? 2 : 3);
        bool is_told =
            strstr(err.text, place) != NULL && strstr(err.text, "expected ") != NULL &&
            (strstr(err.text, " in x, ") != NULL || strstr(err.text, words[field]) != NULL);
        ck_assert_msg(is_told, "%s", err.text);
    }
    return reply == SOURCE_END;
}

/* One letter a column, as `words` has them: t takes it, - refuses it. */
TEST(every_column_refuses_what_it_cannot_be) {
    static const struct {
        const char *json, *json_takes, *csv, *csv_takes;
    } values[] = {
        {"7", "tttttttttt-", "7", "tttttttttt-"},
        {"7.0", "tttttttttt-", "7.0", "tttttttttt-"},
        {"0", "t--tt-tttt-", "0", "t--tt-tttt-"},
        {"4294967295", "tttt--tttt-", "4294967295", "tttt--tttt-"},
        {"4294967296", "t-----tttt-", "4294967296", "t--t--tttt-"},
        {"1.5", "t------t---", "1.5", "t--t--tttt-"},
        {"-1", "------t-tt-", "-1", "------t-tt-"},
        {"1e300", "------t-tt-", "1e300", "---t--t-tt-"},
        {"\"x\"", "---t--t-tt-", "x", "---t--t-tt-"},
        {"\"7\"", "---t--t-tt-", "\"7\"", "tttttttttt-"},
        {"null", "---tttttttt", "", "------ttttt"},
        {"true", "-----------", "true", "---t--t-tt-"},
        {"[]", "----------t", "[]", "---t--t-ttt"},
        {"[1,2]", "----------t", "\"[1, 2]\"", "---t--t-ttt"},
        {"[1,-2]", "-----------", "\"[1, -2]\"", "---t--t-tt-"},
        {"[1.5]", "-----------", "[1.5]", "---t--t-tt-"},
        {"[[1]]", "-----------", "[[1]]", "---t--t-tt-"},
        {"{\"a\":1}", "-----------", "{}", "---t--t-tt-"},
    };
    for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
        for (int is_json = 0; is_json < 2; is_json++) {
            const char *value = is_json ? values[v].json : values[v].csv;
            char found[JUNK + 1] = "";
            for (int field = TIME; field < JUNK; field++) {
                found[field] = takes(value, field, is_json) ? 't' : '-';
            }
            ck_assert_msg(strcmp(found, is_json ? values[v].json_takes : values[v].csv_takes) == 0,
                          "%s: %s", value, found);
        }
    }
}

/* ---- rows that do not count ---- */

/* Rows of every kind of failure among others: by what the user asks for, these and no others are
 * left out, and counted. */
TEST(rows_are_left_out_for_what_they_say_and_counted) {
    static const struct {
        const char *row; /* without its input, by which it is known again */
        bool says_so, lacks_tokens, is_a;
    } kinds[] = {
        {"\"o\":5,\"status\":\"ok\",\"m\":\"a\"", false, false, true},
        {"\"o\":5,\"status\":200,\"m\":\"b\"", false, false, false},
        {"\"o\":5,\"status\":199,\"m\":\"a\"", true, false, true},
        {"\"o\":5,\"status\":299,\"m\":\"a\"", false, false, true},
        {"\"o\":5,\"status\":300,\"m\":\"a\"", true, false, true},
        {"\"o\":5,\"status\":0,\"m\":\"b\"", false, false, false},
        {"\"o\":5,\"status\":\"Timed_Out\",\"m\":\"a\"", true, false, true},
        {"\"o\":5,\"status\":null,\"m\":\"a\"", false, false, true},
        {"\"o\":5,\"m\":\"a\"", false, false, true},
        {"\"o\":0,\"m\":\"a\"", false, true, true},
        {"\"o\":null,\"m\":null", false, true, false},
        {"\"m\":\"a\"", false, true, true},
        {"\"o\":5", false, false, false},
    };
    enum { N_KINDS = sizeof kinds / sizeof kinds[0] };
    struct rng rng = rng_stream(5, "failed");
    for (int n = 0; n < 40; n++) {
        char *text;
        size_t size;
        FILE *out = mem_stream(&text, &size);
        int order[16], n_rows = draw(&rng, 2, 16), n_good = 0, n_failed = 0, n_other = 0;
        bool asks = draw(&rng, 0, 1) == 0, is_not = draw(&rng, 0, 1) == 0;
        uint32_t inputs[16];
        for (int i = 0; i < n_rows; i++) {
            order[i] = i == 0 ? 0 : draw(&rng, 0, N_KINDS - 1);
            bool is_left_out = asks && kinds[order[i]].is_a == is_not;
            bool has_failed = kinds[order[i]].says_so || kinds[order[i]].lacks_tokens;
            fprintf(out, "{\"i\":%d,%s}\n", 100 + i, kinds[order[i]].row);
            n_other += is_left_out;
            n_failed += !is_left_out && has_failed;
            if (!is_left_out && !has_failed) {
                inputs[n_good++] = (uint32_t)(100 + i);
            }
        }
        mem_stream_close(out);
        const struct trace_reading how = {.columns = "input=i,output=o",
                                          .where = !asks    ? NULL
                                                   : is_not ? "m!=a"
                                                            : "m=a",
                                          .skip_failed = true};
        struct arrival got[18];
        struct trace *trace;
        if (n_good > 0) {
            ck_assert_int_eq(read_all(scratch_write("failed", text), &how, got, 18, &trace),
                             n_good);
            for (int i = 0; i < n_good; i++) {
                ck_assert_uint_eq(got[i].prompt_tokens, inputs[i]);
            }
            ck_assert_uint_eq(trace_skipped(trace), (uint64_t)n_failed);
            ck_assert_uint_eq(trace_left_out(trace), (uint64_t)n_other);
            trace_close(trace);
        }
        free(text);
    }
}

SUITE("rows")
