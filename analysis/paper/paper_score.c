#include "analysis/paper/paper_score.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/output.h"

void paper_score_init(struct paper_score *score) {
    *score = (struct paper_score){0};
}

void paper_score_fini(struct paper_score *score) {
    for (size_t i = 0; i < score->n_seen; i++) {
        free(score->seen[i]);
    }
    free(score->seen);
    *score = (struct paper_score){0};
}

/* Whether a printed number comes for the first time. */
static bool is_new(struct paper_score *score, const char *paper, const struct paper_row *row) {
    char key[512];
    snprintf(key, sizeof key, "%s|%s|%s|%s|%s|%s|%s|%s", paper, row->source, row->gpu, row->model,
             row->dataset, row->system, row->setting, row->quantity);
    for (size_t i = 0; i < score->n_seen; i++) {
        if (strcmp(score->seen[i], key) == 0) {
            return false;
        }
    }
    if (score->n_seen == score->max_seen) {
        score->max_seen = score->max_seen > 0 ? 2 * score->max_seen : 64;
        char **more = mem_resized(score->seen, score->max_seen, sizeof *more);
        score->seen = more;
    }
    score->seen[score->n_seen] = mem_text(key);
    score->n_seen++;
    return true;
}

static void add_tally(struct paper_tally *to, const struct paper_tally *from) {
    to->counted += from->counted;
    to->within += from->within;
    to->missing += from->missing;
    to->calibration += from->calibration;
    to->derived += from->derived;
    to->appendix += from->appendix;
}

int paper_score_add(struct paper_score *score, const char *paper,
                    const struct paper_result *results, size_t n, struct err *err) {
    size_t line = 0;
    while (line < score->n_lines && strcmp(score->lines[line].paper, paper) != 0) {
        line++;
    }
    if (line == PAPER_SCORE_MOST) {
        return err_usage(err, "scores are kept of at most %d papers", PAPER_SCORE_MOST);
    }
    if (line == score->n_lines) {
        snprintf(score->lines[line].paper, PAPER_SCORE_NAME, "%s", paper);
        score->n_lines++;
    }
    for (size_t i = 0; i < n; i++) {
        struct paper_result result = results[i];
        if (result.role == PAPER_COUNTED && !is_new(score, paper, result.row)) {
            result.role = PAPER_DERIVED;
        }
        struct paper_tally tally = paper_tally(&result, 1);
        add_tally(&score->lines[line].tally, &tally);
    }
    return 0;
}

static void print_line(const char *paper, const struct paper_tally *tally, enum paper_format format,
                       FILE *out) {
    static const char *const formats[] = {
        [PAPER_TEXT] = "%-16s  %11zu  %11zu  %5s  %7zu  %11zu  %7zu  %8zu\n",
        [PAPER_MARKDOWN] = "| %s | %zu | %zu | %s | %zu | %zu | %zu | %zu |\n",
        [PAPER_CSV] = "%s,%zu,%zu,%s,%zu,%zu,%zu,%zu\n"};
    char share[16] = "";
    if (tally->counted > 0) {
        double of_all = (double)tally->within / (double)tally->counted;
        snprintf(share, sizeof share, format == PAPER_CSV ? "%.4f" : "%.0f %%",
                 format == PAPER_CSV ? of_all : 100 * of_all);
    }
    fprintf(out, formats[format], paper, tally->counted, tally->within, share, tally->missing,
            tally->calibration, tally->derived, tally->appendix);
}

void paper_score_print(const struct paper_score *score, enum paper_format format, FILE *out) {
    static const char *const headings[] = {
        [PAPER_TEXT] = "paper             independent  within 15 %  share  not run  calibration  "
                       "derived  appendix\n",
        [PAPER_MARKDOWN] = "| paper | independent rows | within 15 % | share | not run | "
                           "calibration | derived | appendix |\n"
                           "|---|--:|--:|--:|--:|--:|--:|--:|\n",
        [PAPER_CSV] = "paper,independent_rows,within_15_percent,share,not_run,calibration,derived,"
                      "appendix\n"};
    struct paper_tally all = {0};
    fputs(headings[format], out);
    for (size_t i = 0; i < score->n_lines; i++) {
        print_line(score->lines[i].paper, &score->lines[i].tally, format, out);
        add_tally(&all, &score->lines[i].tally);
    }
    print_line("all", &all, format, out);
}

int paper_score_write(const struct paper_score *score, enum paper_format format, const char *path,
                      struct err *err) {
    struct output out;
    if (output_open(path, &out, err) != 0) {
        return err_status(err);
    }
    paper_score_print(score, format, out.file);
    return output_close(&out, true, err);
}
