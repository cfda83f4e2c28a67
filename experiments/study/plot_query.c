#include "experiments/study/plot_query.h"

#include <stdio.h>
#include <string.h>

#include "analysis/field.h"
#include "analysis/offered.h"

/* ---- what is drawn of the runs that are chosen ---- */

/* What an axis divides a field by: bytes are shown in GiB. */
static double scale_of(const char *column) {
    return strcmp(field_unit(column), "bytes") == 0 ? 1 << 30 : 1;
}

const char *plot_axis_label(const char *column, char text[FIELD_CHARS]) {
    if (scale_of(column) > 1) {
        size_t used = strlen(field_title(column, text));
        snprintf(text + used, FIELD_CHARS - used, " (GiB)");
        return text;
    }
    return field_label(column, text);
}

/* Words of a list of columns in SQL: 'dllm-serve, rate=0.4'. */
static void write_words(FILE *out, const struct plot_list *list) {
    for (size_t i = 0; i < list->n; i++) {
        char name[FIELD_CHARS];
        const char *column = list->column[i];
        fprintf(out,
                "%s CASE typeof(\"%s\") WHEN 'text' THEN %s\"%s\" WHEN 'null' THEN 'none' ELSE "
                "'%s=' || \"%s\" END",
                i > 0 ? " || ', ' ||" : "", column,
                strcmp(column, "inputs") == 0  ? "'inputs ' || "
                : strcmp(column, "build") == 0 ? "'build ' || "
                                               : "",
                column, field_find(column) != NULL ? field_spelled(column, name) : list->name[i],
                column);
    }
    fputs(list->n == 0 ? "''" : "", out);
}

/* The runs that are drawn, with panel and series. */
void plot_write_runs(FILE *out, const struct plot_request *request) {
    fputs("SELECT *, ", out);
    write_words(out, &request->facets);
    fputs(" AS of_panel, ", out);
    write_words(out, &request->by);
    fputs(" AS of_series FROM chosen ORDER BY rowid", out);
}

/* The title of a panel of the field `column`: the facet, the field where there are several. */
static void write_panel(FILE *out, const struct plot_request *request, const char *column) {
    char label[FIELD_CHARS];
    const char *title = request->y.n > 1 ? plot_axis_label(column, label) : "";
    fprintf(out, "of_panel || '%s%s%s' AS panel",
            request->facets.n > 0 && request->y.n > 1 ? ": " : "",
            request->y.n > 1 && plot_is_against(request) ? "difference of " : "", title);
}

/* The place of the field among those asked for. */
static size_t place_of(const struct plot_request *request, const char *column) {
    size_t i = 0;
    while (strcmp(request->y.column[i], column) != 0) {
        i++;
    }
    return i;
}

/* The place of seeds together: their own, or the mean of what was measured; of a rate that was not
 * met, what was offered. */
static void write_place(FILE *out, const char *column) {
    if (strcmp(column, "rate") == 0) {
        fprintf(out,
                "CASE WHEN abs(mean(offered_rate_req_s) - min(rate)) > %g * min(rate) THEN "
                "mean(offered_rate_req_s) ELSE min(rate) END",
                RATE_TOLERANCE);
        return;
    }
    fprintf(out, "CASE WHEN min(\"%s\") = max(\"%s\") THEN min(\"%s\") ELSE mean(\"%s\") END%s",
            column, column, column, column, scale_of(column) > 1 ? " / 1073741824.0" : "");
}

/* Shares of as many as a column counts, and how a run's own interval is called; others go by their
 * spread over seeds. */
static const struct counted {
    const char *field, *of, *own;
} counted_shares[] = {
    {"attainment", "requests", NULL},
    {"quality_accuracy", "quality_judged", "quality_accuracy"},
    {"quality_agreement", "quality_compared", "quality_agreement"},
};

static const struct counted *counted_find(const char *field) {
    for (size_t i = 0; i < sizeof counted_shares / sizeof *counted_shares; i++) {
        if (strcmp(field, counted_shares[i].field) == 0) {
            return &counted_shares[i];
        }
    }
    return NULL;
}

/* The ends of a mean's interval; those of pairs go by their spread. */
static void write_interval(FILE *out, const char *field, const char *column, bool is_pair) {
    static const char *const ends[] = {"low", "high"};
    const bool is_share = strcmp(field_unit(field), "share") == 0;
    const struct counted *counted = is_share && !is_pair ? counted_find(field) : NULL;
    const bool has_own = counted != NULL && counted->own != NULL;
    for (size_t i = 0; i < 2; i++) {
        fprintf(out, "%s%s%s%s(\"%s\"", i > 0 ? ", " : "", has_own ? "coalesce(" : "",
                !is_share ? ""
                : is_pair ? "share_difference_"
                          : "share_",
                ends[i], column);
        if (is_share && !is_pair) {
            fprintf(out, ", %s", counted != NULL ? counted->of : "NULL");
        }
        if (has_own) {
            fprintf(out, "), min(\"%s_%s\")", counted->own, ends[i]);
        }
        fprintf(out, ") / %.1f AS %s", scale_of(field), ends[i]);
    }
}

static void write_fields(FILE *out, const struct plot_request *request, const char *field) {
    const char *x = request->x.column[0];
    const char *style = request->look != NULL ? request->look : "";
    const bool is_pair = plot_is_against(request);
    char column[FIELD_CHARS];
    if (is_pair) {
        snprintf(column, sizeof column, "difference_%zu", place_of(request, field));
    } else {
        snprintf(column, sizeof column, "%s", field);
    }
    fputs("SELECT panel, series, x, y, low, high, style, setup, place, field FROM (SELECT ", out);
    write_panel(out, request, field);
    fputs(", of_series AS series, ", out);
    write_place(out, x);
    fprintf(out, " AS x, mean(\"%s\") / %.1f AS y, ", column, scale_of(field));
    write_interval(out, field, column, is_pair);
    fprintf(out,
            ", '%s' AS style, setup, min(place) AS place, %zu AS field FROM %s GROUP BY of_panel, "
            "of_series, setup%s%s%s) WHERE x IS NOT NULL AND y IS NOT NULL",
            strcmp(style, "lines") == 0 ? "both" : style, place_of(request, field),
            is_pair ? "paired" : "shown", plot_is_single(x) ? ", \"" : "",
            plot_is_single(x) ? x : "", plot_is_single(x) ? "\"" : "");
}

const char *plot_bound_of(const char *column) {
    static const char *const bounded[][2] = {{"throughput_tok_s", "bound_throughput_tok_s"},
                                             {"latency_s_mean", "bound_latency_mean_s"},
                                             {"latency_s_p99", "bound_latency_p99_s"}};
    for (size_t i = 0; i < sizeof bounded / sizeof bounded[0]; i++) {
        if (strcmp(column, bounded[i][0]) == 0) {
            return bounded[i][1];
        }
    }
    return NULL;
}

/* Next to each line of a field its bound, in the mean over seeds: it bounds expectations. */
static void write_bound(FILE *out, const struct plot_request *request, const char *field) {
    const char *x = request->x.column[0];
    fputs(" UNION ALL SELECT panel, series, x, y, NULL, NULL, 'dashed', setup, place, field FROM "
          "(SELECT ",
          out);
    write_panel(out, request, field);
    fprintf(out, ", of_series || '%s%s' AS series, ", request->by.n > 0 ? ": " : "", PLOT_BOUND);
    write_place(out, x);
    fprintf(
        out,
        " AS x, mean(\"%s\") AS y, setup, min(place) AS place, %zu AS field FROM shown GROUP BY "
        "of_panel, of_series, setup) WHERE x IS NOT NULL AND y IS NOT NULL",
        plot_bound_of(field), place_of(request, field));
}

/* A run of several groups stands in `shown` once for each. */
static const char *group_joins(const struct plot_request *request) {
    static const char *const joins[GROUPING_COUNT + 1] = {
        [BY_TENANT] = " AND (s.tenant IS NULL OR s.tenant = q.tenant)",
        [BY_PRIORITY] = " AND (s.priority IS NULL OR s.priority = q.priority)",
        [GROUPING_COUNT] = "",
    };
    return joins[plot_told_by(request)];
}

/* Shares of all requests of a run, then of all runs of a series. */
static void write_cdf(FILE *out, const struct plot_request *request, const char *column) {
    fputs("SELECT ", out);
    write_panel(out, request, column);
    fprintf(
        out,
        ", of_series AS series, \"%s\" AS x,"
        " 100.0 * sum(weight) OVER (PARTITION BY of_panel, of_series ORDER BY \"%s\""
        " ROWS UNBOUNDED PRECEDING) / n_runs AS y,"
        " NULL AS low, NULL AS high, 'line' AS style, setup, s.place AS place,"
        " %zu AS field FROM \"of_%s\" AS q JOIN shown AS s ON q.run = s.run AND q.file = s.file%s"
        " JOIN (SELECT of_panel AS p, of_series AS g, count(*) AS n_runs FROM shown"
        " GROUP BY 1, 2) ON p = of_panel AND g = of_series",
        column, column, place_of(request, column), column, group_joins(request));
}

static void write_requests(FILE *out, const struct plot_request *request, const char *column) {
    const char *x = request->x.column[0];
    fputs("SELECT ", out);
    write_panel(out, request, column);
    fprintf(out,
            ", of_series AS series, q.\"%s\" AS x, q.\"%s\" AS y, NULL AS low, NULL AS high,"
            " 'points' AS style, setup, s.place AS place, %zu AS field"
            " FROM requests AS q JOIN shown AS s ON q.run = s.run AND q.file = s.file%s"
            " WHERE q.\"%s\" IS NOT NULL AND q.\"%s\" IS NOT NULL",
            x, column, place_of(request, column), group_joins(request), x, column);
}

static void write_over_time(FILE *out, const struct plot_request *request, const char *column) {
    fputs("SELECT ", out);
    write_panel(out, request, column);
    fprintf(out,
            ", of_series AS series, c.time_s AS x, c.\"%s\" / %.1f AS y, NULL AS low, NULL AS high,"
            " 'line' AS style, s.run || s.file AS setup, s.place AS place,"
            " %zu AS field FROM course AS c JOIN shown AS s ON c.run = s.run AND c.file = s.file"
            " WHERE c.\"%s\" IS NOT NULL",
            column, scale_of(column), place_of(request, column), column);
}

void plot_write_points(FILE *out, const struct plot_request *request) {
    static void (*const write[])(FILE *, const struct plot_request *,
                                 const char *) = {[PLOT_FIELDS] = write_fields,
                                                  [PLOT_REQUESTS] = write_requests,
                                                  [PLOT_CDF] = write_cdf,
                                                  [PLOT_OVER_TIME] = write_over_time};
    for (size_t i = 0; i < request->y.n; i++) {
        fputs(i > 0 ? " UNION ALL " : "", out);
        write[request->kind](out, request, request->y.column[i]);
        if (request->with_bounds && plot_bound_of(request->y.column[i]) != NULL) {
            write_bound(out, request, request->y.column[i]);
        }
    }
}
