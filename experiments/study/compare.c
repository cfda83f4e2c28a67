/* Which of a study's numbers is compared with which row of a paper. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/run/cli/cautions.h"
#include "experiments/run/prices.h"
#include "experiments/run/sweep/sample.h"
#include "experiments/study/figure.h"
#include "sim/base/mem.h"
#include "sim/base/warning.h"

/* ---- the paper's rows as a table ---- */

static json_t *row_json(const struct paper_row *row, size_t id) {
    return json_pack("{s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:f, s:s, s:s}", "id",
                     (json_int_t)id, "source", row->source, "gpu", row->gpu, "model", row->model,
                     "dataset", row->dataset, "system", row->system, "setting", row->setting,
                     "quantity", row->quantity, "value", row->value, "unit", row->unit, "cause",
                     row->cause);
}

int study_print(const struct study *study, const struct paper *paper, struct tables *tables,
                struct err *err) {
    char query[1024], place[256] = "rows";
    const char *rows = study_text(study, "rows", place);
    json_t *all = json_array();
    for (size_t i = 0; i < paper->n_rows; i++) {
        json_array_append_new(all, row_json(&paper->rows[i], i));
    }
    int status = tables_add(tables, "paper", all, err);
    json_decref(all);
    snprintf(query, sizeof query, "SELECT * FROM paper WHERE %s ORDER BY id",
             rows != NULL ? rows : "1");
    return status != 0 ? status : tables_keep(tables, "printed", query, place, err);
}

/* ---- ours compared with them ---- */

/* "source|gpu|dataset|system|setting|quantity", as the constants of calibrated.ini name it, or
 * "source|gpu|model|dataset|..." where rows of several models are alike. */
static bool is_calibration(const struct config *calibrated, const struct paper_row *row) {
    char text[256], of_model[320];
    snprintf(text, sizeof text, "%s|%s|%s|%s|%s|%s", row->source, row->gpu, row->dataset,
             row->system, row->setting, row->quantity);
    snprintf(of_model, sizeof of_model, "%s|%s|%s|%s", row->source, row->gpu, row->model,
             text + strlen(row->source) + strlen(row->gpu) + 2);
    const struct config_entry *entry = NULL;
    while ((entry = config_next(calibrated, NULL, "paper_row", entry)) != NULL) {
        if (strcmp(entry->value, text) == 0 || strcmp(entry->value, of_model) == 0) {
            return true;
        }
    }
    return false;
}

static int take_result(const json_t *answer, const struct paper_row *row, struct paper_result *out,
                       struct err *err) {
    const json_t *ours = json_object_get(answer, "ours");
    const char *reading = json_string_value(json_object_get(answer, "reading"));
    const char *word = json_string_value(json_object_get(answer, "role"));
    int role = paper_role_of(word != NULL ? word : "");
    if (role < 0) {
        return err_usage(err, "the comparison has the role '%s'", word);
    }
    *out =
        (struct paper_result){.row = row,
                              .ours = json_is_number(ours) ? json_number_value(ours) : (double)NAN,
                              .role = (enum paper_role)role};
    snprintf(out->reading, sizeof out->reading, "%s", reading != NULL ? reading : "");
    return 0;
}

/* The results of one printed row; one without a number of ours where none speaks of it. */
static int take_row(const json_t *answers, const struct paper *paper, json_int_t id,
                    struct paper_result *out, size_t *n, struct err *err) {
    bool any = false;
    for (size_t i = 0; i < json_array_size(answers) && err->kind == ERR_NONE; i++) {
        const json_t *answer = json_array_get(answers, i);
        if (json_integer_value(json_object_get(answer, "id")) == id) {
            take_result(answer, &paper->rows[id], &out[(*n)++], err);
            any = true;
        }
    }
    if (!any) {
        out[(*n)++] = (struct paper_result){.row = &paper->rows[id], .ours = (double)NAN};
    }
    return (int)err->kind;
}

int study_compare(const struct study *study, struct tables *tables, const struct paper *paper,
                  const struct config *calibrated, struct paper_result **out, size_t *n,
                  struct err *err) {
    char place[256];
    const char *query = study_text(study, "compare", place),
               *role = study_text(study, "role", NULL);
    const char *declared = study_text(study, "declared", NULL);
    json_t *answers = NULL, *printed = NULL;
    int all = paper_role_of(role != NULL ? role : "");
    *out = NULL;
    *n = 0;
    int status =
        all < 0 ? err_usage(err, "%s: the role '%s' is not a row's", study->configs[0].path, role)
                : tables_select(tables, "SELECT id FROM printed", "rows", &printed, err);
    if (status == 0 && query != NULL) {
        status = tables_select(tables, query, place, &answers, err);
    }
    *out = mem_zeroed(json_array_size(answers) + json_array_size(printed) + 1, sizeof **out);
    for (size_t i = 0; i < json_array_size(printed) && status == 0; i++) {
        json_int_t id = json_integer_value(json_object_get(json_array_get(printed, i), "id"));
        status = take_row(answers, paper, id, *out, n, err);
    }
    for (size_t i = 0; i < *n; i++) {
        (*out)[i].role =
            is_calibration(calibrated, (*out)[i].row) ? PAPER_CALIBRATION : (*out)[i].role;
    }
    paper_settle(*out, *n, declared != NULL ? declared : "", (enum paper_role)(all < 0 ? 0 : all));
    json_decref(answers);
    json_decref(printed);
    return status;
}

/* ---- what makes the runs easy to misread ---- */

/* How many rows of the table are so; 0 where it lacks one of these columns. */
static json_int_t count(struct tables *tables, const char *runs, const char *columns,
                        const char *condition) {
    char query[512];
    if (!tables_have(tables, runs, columns)) {
        return 0;
    }
    snprintf(query, sizeof query, "SELECT count(*) AS n FROM \"%s\" WHERE %s", runs, condition);
    json_t *rows = tables_own(tables, query);
    json_int_t n = json_integer_value(json_object_get(json_array_get(rows, 0), "n"));
    json_decref(rows);
    return n;
}

/* For the first run, once. */
static void warn_of_prices(struct tables *tables, const char *runs, struct warnings *out) {
    char query[512], ours[128], first[128];
    json_t *row;
    size_t i;
    snprintf(
        query, sizeof query,
        "SELECT DISTINCT gpu, model, system, profile, prices_kind AS kind, prices_of AS \"of\", "
        "prices_kernels AS kernels, prices_asked AS asked, prices_over_imported AS over_imported, "
        "prices_over_roofline AS over_roofline FROM \"%s\" WHERE prices_of IS NOT NULL",
        runs);
    if (!tables_have(tables, runs,
                     "gpu,model,system,profile,prices_kind,prices_of,prices_kernels,"
                     "prices_asked,prices_over_imported,prices_over_roofline")) {
        return; /* runs of an older program do not say */
    }
    json_t *rows = tables_own(tables, query);
    json_array_foreach(rows, i, row) {
        json_t *base = json_array_get(rows, 0);
        json_object_set_new(row, "prices", json_copy(row));
        const json_t *const at[] = {row, base};
        char *const names[] = {ours, first};
        for (int side = 0; side < 2; side++) {
            snprintf(names[side], sizeof ours, "%s, %s on %s",
                     json_string_value(json_object_get(at[side], "system")),
                     json_string_value(json_object_get(at[side], "model")),
                     json_string_value(json_object_get(at[side], "gpu")));
        }
        if (prices_warn(row, ours, base, first, out)) {
            break;
        }
    }
    json_decref(rows);
}

void study_print_warnings(struct tables *tables, const char *runs, FILE *out) {
    char condition[256];
    if (runs == NULL) {
        return;
    }
    struct warnings of_all = {0};
    struct cautions cautions = {.n = (size_t)count(tables, runs, "", "1")};
    for (int code = 0; code < WARNING_CODE_COUNT; code++) {
        snprintf(condition, sizeof condition, "instr(warnings, '\"code\":\"%s\"') > 0",
                 warning_words[code]);
        cautions_count(&cautions, (enum warning_code)code,
                       (size_t)count(tables, runs, "warnings", condition));
    }
    cautions.n_none = (size_t)count(tables, runs, "no_result", "no_result <> ''");
    warn_of_prices(tables, runs, &of_all);
    if (count(tables, runs, "is_drawn,seed_n", "is_drawn AND seed_n > 0") == 0 &&
        count(tables, runs, "is_drawn", "is_drawn") > 0) {
        sample_warn_of_one_seed(&of_all);
    }
    cautions_of_all(&cautions, &of_all);
    cautions_print(&cautions, out);
}
