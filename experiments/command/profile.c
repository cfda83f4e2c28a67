/* unmask profile: where a GPU's prices come from and how good the look-ups between them are. */
#include <math.h>
#include <string.h>

#include "experiments/command/commands.h"
#include "experiments/run/cli/table.h"
#include "experiments/run/compose.h"
#include "sim/base/names.h"
#include "sim/model/gpu.h"
#include "sim/price/profile/profile_check.h"
#include "sim/price/transfer.h"

static const struct option own_options[] = {
    {"all", NULL, "check: every profile", false},
    {"profile", "FILE", "this profile of the GPU, not the shipped one", false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_profile[] = {own_options, json_options, format_option,
                                                          NULL};

/* The GPU that `name` names, with the profile in `file` or its own, or NULL. */
static const struct gpu *open_profile(const char *name, const char *file, struct profile **out,
                                      struct err *err) {
    const struct gpu *gpu = gpu_find(name, err);
    return gpu != NULL && compose_open_profile(gpu, file, out, err) == 0 ? gpu : NULL;
}

/* ---- show ---- */

static json_t *facts_json(const struct profile *profile) {
    json_t *facts = json_object();
    const char *key, *value;
    for (size_t i = 0; profile_fact(profile, i, &key, &value); i++) {
        json_object_set_new(facts, key, json_string(value));
    }
    return facts;
}

static void print_facts(const struct profile *profile) {
    const char *key, *value;
    for (size_t i = 0; profile_fact(profile, i, &key, &value); i++) {
        printf("%-12s %s\n", key, value);
    }
}

/* {"gemm": 1884}: by operator, how many rows were timed on a warm cache. */
static json_t *raised_json(const struct profile *profile) {
    json_t *raised = json_object();
    for (int op = 0; op < PROFILE_OPS; op++) {
        size_t n_rows, n_raised = profile_raised(profile, (enum profile_op)op, &n_rows);
        if (n_raised > 0) {
            json_object_set_new(raised, profile_op_name((enum profile_op)op),
                                json_integer((json_int_t)n_raised));
        }
    }
    return raised;
}

static void print_raised(const struct profile *profile) {
    for (int op = 0; op < PROFILE_OPS; op++) {
        size_t n_rows, n_raised = profile_raised(profile, (enum profile_op)op, &n_rows);
        if (n_raised > 0) {
            printf("raised       %zu of %zu %s rows, timed on a warm L2 cache, to what they read "
                   "takes from memory\n",
                   n_raised, n_rows, profile_op_name((enum profile_op)op));
        }
    }
}

/* The path, relative to the data folder for shipped profiles. */
static const char *file_of(const struct gpu *gpu, const char *given, char *text, size_t size) {
    if (given != NULL || gpu->path != NULL) {
        return given != NULL ? given : gpu_profile_path(gpu, text, size);
    }
    snprintf(text, size, "kernels/profiles/%s", gpu->profile);
    return text;
}

/* "gemm(fp8)" for tables of another type than the file's own. */
static json_t *operator_json(const struct profile *profile, const struct profile *rows, int op) {
    const char *name = profile_op_name((enum profile_op)op);
    return rows == profile ? json_string(name)
                           : json_sprintf("%s(%s)", name, profile_type_words[profile_type(rows)]);
}

/* The tables that it has, its own type's first. */
static json_t *operators_json(const struct profile *profile) {
    json_t *operators = json_array();
    for (int type = -1; type < PROFILE_TYPES; type++) {
        const struct profile *rows =
            type < 0 ? profile : profile_in(profile, (enum profile_type)type);
        for (int op = 0; rows != NULL && op < PROFILE_OPS; op++) {
            if ((type < 0 || rows != profile) && profile_has(rows, (enum profile_op)op)) {
                json_array_append_new(operators, operator_json(profile, rows, op));
            }
        }
    }
    return operators;
}

static int show(const char *name, const struct options *options, struct err *err) {
    struct profile *profile = NULL;
    const char *given = options_text(options, "profile");
    const struct gpu *gpu = open_profile(name, given, &profile, err);
    if (gpu == NULL) {
        return (int)err->kind;
    }
    int status = 0;
    char file[4096];
    json_t *operators = operators_json(profile);
    if (options_has(options, "json")) {
        status =
            cmd_print_json(json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:O}", "gpu", gpu->name,
                                     "file", given != NULL ? given : gpu->profile, "kind",
                                     provenance_words[profile_kind(profile)], "source",
                                     profile_source(profile), "provenance", facts_json(profile),
                                     "raised_rows", raised_json(profile), "operators", operators),
                           err);
    } else {
        printf("%s (%s)\nfile         %s\nkind         %s\nsource       %s\n", gpu->name,
               gpu->title, file_of(gpu, given, file, sizeof file),
               provenance_words[profile_kind(profile)], profile_source(profile));
        print_facts(profile);
        print_raised(profile);
        printf("operators   ");
        for (size_t i = 0; i < json_array_size(operators); i++) {
            printf(" %s", json_string_value(json_array_get(operators, i)));
        }
        printf("\npeaks        %.4g TFLOP/s, %.4g GB/s, %u multiprocessors (%s)\n",
               gpu->peak_bf16_flops * 1e-12, gpu->peak_bandwidth * 1e-9, gpu->sms, gpu->source);
    }
    json_decref(operators);
    profile_close(profile);
    return status;
}

/* ---- check ---- */

static json_t *errors_json(const struct profile_errors *e) {
    return e->n == 0 ? json_pack("{s:i}", "rows", 0)
                     : json_pack("{s:I, s:f, s:f, s:f}", "rows", (json_int_t)e->n, "median_abs",
                                 e->median_abs, "p90_abs", e->p90_abs, "bias", e->median);
}

static json_t *check_json(const struct gpu *gpu, const struct profile_check *check) {
    json_t *rows = json_array();
    for (int i = 0; i < CHECK_ROWS; i++) {
        if (check->rows[i].interior.n + check->rows[i].frontier.n > 0) {
            json_array_append_new(rows,
                                  json_pack("{s:s, s:o, s:o}", "left_out", check->rows[i].name,
                                            "interior", errors_json(&check->rows[i].interior),
                                            "frontier", errors_json(&check->rows[i].frontier)));
        }
    }
    return json_pack("{s:s, s:o, s:o}", "gpu", gpu->name, "rows", rows, "scatter_of_the_table",
                     errors_json(&check->noise));
}

static void add_errors(struct table *table, const struct profile_errors *e) {
    bool has = e->n > 0;
    table_add(table, "%.2f %.2f %+.2f i", has ? 100 * e->median_abs : (double)NAN,
              has ? 100 * e->p90_abs : (double)NAN, has ? 100 * e->median : (double)NAN,
              (int64_t)e->n);
}

/* Errors of rows between others, and of those at an edge. */
static void print_check(const struct profile_check *check) {
    struct table *table = table_open("left out|median_%|p90_%|bias_%|rows|edge median_%|"
                                     "edge p90_%|edge bias_%|edge rows");
    for (int i = 0; i < CHECK_ROWS; i++) {
        if (check->rows[i].interior.n + check->rows[i].frontier.n > 0) {
            table_text(table, check->rows[i].name);
            add_errors(table, &check->rows[i].interior);
            add_errors(table, &check->rows[i].frontier);
        }
    }
    if (check->noise.n > 0) {
        table_text(table, "gemm, scatter of the table");
        add_errors(table, &check->noise);
        table_add(table, "- - - -");
    }
    table_print(table, stdout);
    table_close(table);
    printf("each measured row is left out and predicted from the others: between rows that enclose "
           "it,\nor at an edge of the table, where utilisation is held; bias: the median with its "
           "sign\n");
}

static int check_one(const char *name, const char *file, json_t *all, struct err *err) {
    struct profile *profile = NULL;
    struct profile_check check;
    const struct gpu *gpu = open_profile(name, file, &profile, err);
    if (gpu == NULL) {
        return (int)err->kind;
    }
    profile_check(profile, &check);
    if (all != NULL) {
        json_array_append_new(all, check_json(gpu, &check));
    } else {
        printf("%s: %s, %s\n", gpu->name, provenance_words[profile_kind(profile)],
               profile_source(profile));
        print_check(&check);
    }
    profile_close(profile);
    return 0;
}

static int check(const struct options *options, struct err *err) {
    bool all = options_has(options, "all");
    if (all == (options->n_words == 2)) {
        return err_usage(err, "profile check: expected the name of a profile or --all");
    }
    if (all && options_has(options, "profile")) {
        return err_usage(err, "profile check: --profile is one GPU's, --all are the shipped ones");
    }
    json_t *array = options_has(options, "json") ? json_array() : NULL;
    int status = 0;
    if (!all) {
        status = check_one(options->words[1], options_text(options, "profile"), array, err);
    }
    bool is_first = true;
    const struct gpu *const *gpus = all ? gpu_all(err) : NULL;
    status = all && gpus == NULL ? err_status(err) : status;
    for (size_t i = 0; all && status == 0 && gpus[i] != NULL; i++) {
        if (gpus[i]->profile == NULL) {
            continue;
        }
        if (!is_first && array == NULL) {
            printf("\n");
        }
        is_first = false;
        status = check_one(gpus[i]->name, NULL, array, err);
    }
    if (status == 0 && array != NULL) {
        return cmd_print_json(array, err);
    }
    json_decref(array);
    return status;
}

static int run(const struct options *options, struct err *err) {
    static const char *const verbs[] = {"check", "show", NULL};
    enum { CHECK, SHOW };
    if (options->n_words == 0) {
        return err_usage(err, "profile: expected check or show");
    }
    const char *word = options->words[0];
    int verb = name_find(verbs, word);
    if (verb == CHECK) {
        return check(options, err);
    }
    if (verb != SHOW) {
        char hint[NAME_HINT_CHARS];
        name_hint(word, verbs, hint);
        return err_usage(err, "profile: '%s' is neither check nor show%s", word, hint);
    }
    if (options->n_words != 2) {
        return err_usage(err, "profile show: expected the name of a profile");
    }
    return show(options->words[1], options, err);
}

const struct command command_profile = {
    .name = "profile",
    .words = "check NAME|--all, or show NAME",
    .doc = "where a GPU's prices come from, and how far off look-ups between them are",
    .more = "check leaves every measured row out in turn and predicts it from the others; \"new "
            "shape\", \"new mixture\" and \"new heads\": every row of that shape.",
    .options = options_of_profile,
    .max_words = 2,
    .run = run,
};
