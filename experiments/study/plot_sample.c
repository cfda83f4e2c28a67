#include "experiments/study/plot_sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/rate.h"
#include "analysis/spread.h"
#include "sim/base/mem.h"

bool plot_is_single(const char *column) {
    return strcmp(column, "seed") == 0 || strcmp(column, "run") == 0;
}

/* ---- which runs ---- */

/* One identity is one sample, whoever recorded it how often: a whole run before one that was cut
 * short, of those the longest. What was measured on a device again is another sample, and a double
 * is a copy of its row alone. */
static const char sample_sql[] =
    "SELECT *, row_number() OVER (PARTITION BY sample ORDER BY incomplete IS NOT NULL, completed "
    "DESC, place) > 1 OR (incomplete IS NOT NULL AND has_whole) AS is_double FROM (SELECT *, rowid "
    "AS place, CASE WHEN identity_digest IS NULL THEN rowid WHEN device IS NULL OR incomplete IS "
    "NOT NULL THEN identity_digest ELSE coalesce(\"row\", rowid) END AS sample, max(incomplete IS "
    "NULL) OVER (PARTITION BY coalesce(identity_digest, rowid)) AS has_whole FROM run WHERE (%s))";

static bool names_seed(const struct plot_list *list) {
    for (size_t i = 0; i < list->n; i++) {
        if (plot_is_single(list->column[i])) {
            return true;
        }
    }
    return false;
}

/* Doubles are left out, and so are seeds that draw nothing, unless seeds are what is shown. */
int plot_choose(const struct plot_request *request, struct tables *tables, struct err *err) {
    char *query = NULL;
    size_t size;
    bool each = names_seed(&request->x) || names_seed(&request->by) || names_seed(&request->facets);
    FILE *out = mem_stream(&query, &size);
    fprintf(out, sample_sql, request->where != NULL ? request->where : "1");
    mem_stream_close(out);
    int status = tables_keep(tables, "sample", query, "--where", err);
    free(query);
    if (status != 0) {
        return status;
    }
    status = tables_keep(tables, "sorted",
                         "SELECT *, is_drawn = 0 AND device IS NULL AND row_number() OVER "
                         "(PARTITION BY setup ORDER BY seed, place) > 1 AS is_again FROM sample "
                         "WHERE NOT is_double",
                         "plot", err);
    query = NULL;
    out = mem_stream(&query, &size);
    fprintf(out,
            "SELECT *, dense_rank() OVER (PARTITION BY setup ORDER BY seed) - 1 AS seed_n FROM "
            "sorted WHERE %s ORDER BY place",
            each ? "1" : "is_again IS NOT 1");
    mem_stream_close(out);
    status = status != 0 ? status : tables_keep(tables, "chosen", query, "plot", err);
    free(query);
    return status;
}

/* ---- notes on samples ---- */

char *plot_ask_text(struct tables *tables, const char *query) {
    json_t *rows = tables_own(tables, query);
    const char *text = json_string_value(json_object_get(json_array_get(rows, 0), "text"));
    char *copy = mem_text(text != NULL ? text : "");
    json_decref(rows);
    return copy;
}

bool plot_misses_rates(struct tables *tables) {
    char query[256];
    snprintf(query, sizeof query,
             "SELECT 'yes' AS text FROM shown WHERE rate > 0 GROUP BY setup HAVING "
             "abs(mean(offered_rate_req_s) - min(rate)) > %g * min(rate) LIMIT 1",
             RATE_TOLERANCE);
    char *text = plot_ask_text(tables, query);
    bool misses = text[0] != '\0';
    free(text);
    return misses;
}

static bool has(const struct plot_list *list, const char *column) {
    for (size_t i = 0; i < list->n; i++) {
        if (strcmp(list->column[i], column) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds what a query answers, where it answers. */
static void add_answer(FILE *out, struct tables *tables, const char *query) {
    char *text = plot_ask_text(tables, query);
    if (text[0] != '\0') {
        fprintf(out, "%s%s", ftell(out) > 0 ? "; " : "", text);
    }
    free(text);
}

static void add_spread(FILE *out, const struct plot_request *request, struct tables *tables) {
    char note[SPREAD_NOTE_CHARS];
    char *most = plot_ask_text(tables, "SELECT max(n) || '' AS text FROM (SELECT count(DISTINCT "
                                       "seed) AS n FROM shown GROUP BY setup)");
    size_t n = (size_t)atoi(most);
    free(most);
    if (request->kind == PLOT_FIELDS && n > 1) {
        add_answer(out, tables,
                   "SELECT 'not every point has as many seeds' AS text FROM (SELECT min(n) AS "
                   "least, max(n) AS most FROM (SELECT count(DISTINCT seed) AS n FROM shown GROUP "
                   "BY setup)) WHERE least < most");
        fprintf(out, "%spoints and error bars: %s", ftell(out) > 0 ? "; " : "",
                spread_note(n, note));
    } else if (request->kind != PLOT_OVER_TIME && n > 1) {
        fprintf(out, "%srequests of %zu seeds together", ftell(out) > 0 ? "; " : "", n);
    }
}

static void add_rates(FILE *out, const struct plot_request *request, struct tables *tables) {
    bool is_x = request->kind == PLOT_FIELDS && has(&request->x, "rate");
    if ((is_x || has(&request->by, "rate") || has(&request->facets, "rate")) &&
        plot_misses_rates(tables)) {
        if (!is_x) {
            fprintf(out, "%srates are those asked for", ftell(out) > 0 ? "; " : "");
        }
        add_answer(out, tables,
                   "SELECT 'rates that were offered are up to ' || round(100 * max(abs("
                   "offered_rate_req_s / rate - 1)), 1) || ' % off those asked for' AS text FROM "
                   "shown WHERE rate > 0");
    }
}

char *plot_note(const struct plot_request *request, struct tables *tables) {
    static const char *const of_all[] = {
        "SELECT n || ' of ' || n_all || ' runs saturated: their latencies go by their length' AS "
        "text FROM (SELECT count(*) AS n_all, sum(offered_state IS 'saturated') AS n FROM shown) "
        "WHERE n > 0",
        "SELECT 'whether ' || n || ' of ' || n_all || ' runs are saturated cannot be told' AS text "
        "FROM (SELECT count(*) AS n_all, sum(offered_state IS 'cannot tell' OR offered_state IS "
        "'unknown') AS n FROM shown) WHERE n > 0",
        "SELECT n || ' of ' || n_all || ' runs rejected requests' AS text FROM (SELECT count(*) AS "
        "n_all, sum(rejected > 0) AS n FROM shown) WHERE n > 0",
        "SELECT n || ' runs are on record more than once and count once' AS text FROM (SELECT "
        "count(*) AS n FROM sample WHERE is_double) WHERE n > 0",
        "SELECT 'seeds that draw nothing are one run, without an interval' AS text FROM sorted "
        "WHERE "
        "is_again AND place NOT IN (SELECT place FROM chosen) LIMIT 1",
        "SELECT 'decisions are drawn, error ' || group_concat(e, ' or ') AS text FROM (SELECT "
        "DISTINCT decisions_error AS e FROM shown WHERE decisions_error IS NOT NULL)"};
    char *note = NULL;
    size_t size;
    FILE *out = mem_stream(&note, &size);
    add_answer(
        out, tables,
        "SELECT 'profile ' || group_concat(p, ', ') AS text FROM (SELECT DISTINCT gpu || ': ' "
        "|| profile_kind AS p FROM shown)");
    add_answer(out, tables,
               "SELECT group_concat(t, '; ') AS text FROM (SELECT DISTINCT trace_provenance AS t "
               "FROM shown)");
    add_spread(out, request, tables);
    add_rates(out, request, tables);
    for (size_t i = 0; i < sizeof of_all / sizeof of_all[0]; i++) {
        add_answer(out, tables, of_all[i]);
    }
    mem_stream_close(out);
    return note;
}
