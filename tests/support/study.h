/* Studies in tests: filled, asked, and their numbers taken out by query. */
#ifndef UNMASK_TESTS_SUPPORT_STUDY_H
#define UNMASK_TESTS_SUPPORT_STUDY_H

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/study/figure.h"
#include "sim/base/input/datadir.h"

struct studied {
    struct study study;
    struct tables *tables;
    struct paper paper;
};

/* "mosaic-fig2" as it is shipped. */
static inline const char *study_path(const char *name, char path[256]) {
    snprintf(path, 256, "%s/experiments/study/studies/%.*s/%s.ini", data_dir(),
             strncmp(name, "dllm", 4) == 0 ? 10 : (int)strcspn(name, "-"), name, name);
    return path;
}

/* All of a study but its drawing; the status of what failed first. */
static inline int study_try(const char *path, const struct study_changes *changes,
                            unsigned n_threads, struct studied *out, struct err *err) {
    char file[256];
    *out = (struct studied){.tables = tables_open()};
    int status = study_open(path, changes, &out->study, err);
    const char *paper = status == 0 ? study_text(&out->study, "paper", NULL) : NULL;
    if (paper != NULL) {
        snprintf(file, sizeof file, "experiments/study/paper/%s", paper);
        status = paper_load(file, &out->paper, err);
        status = status != 0 ? status : study_print(&out->study, &out->paper, out->tables, err);
    }
    status =
        status != 0 ? status : study_fill(&out->study, n_threads, NULL, NULL, out->tables, err);
    status = status != 0 ? status : study_select(&out->study, out->tables, err);
    return status != 0 ? status : study_ask(&out->study, out->tables, err);
}

static inline void studied_fini(struct studied *studied) {
    tables_close(studied->tables);
    paper_fini(&studied->paper);
    study_close(&studied->study);
}

static inline struct studied study_shipped(const char *name, unsigned n_threads) {
    char path[256];
    struct studied studied;
    struct err err = {0};
    const struct study_changes none = {.n_seeds = 1};
    ck_assert_msg(study_try(study_path(name, path), &none, n_threads, &studied, &err) == 0, "%s",
                  err.text);
    return studied;
}

/* The rows that a query answers, and its only number: NaN for NULL. */
static inline json_t *study_rows(const struct studied *studied, const char *query) {
    json_t *rows;
    struct err err = {0};
    ck_assert_msg(tables_select(studied->tables, query, "a test", &rows, &err) == 0, "%s",
                  err.text);
    return rows;
}

static inline double study_number(const struct studied *studied, const char *query) {
    json_t *rows = study_rows(studied, query);
    ck_assert_msg(json_array_size(rows) == 1, "%s", query);
    json_t *row = json_array_get(rows, 0);
    ck_assert_uint_eq(json_object_size(row), 1);
    json_t *value = json_object_iter_value(json_object_iter(row));
    double number = json_is_number(value) ? json_number_value(value) : (double)NAN;
    json_decref(rows);
    return number;
}

/* The same tables, whatever threads filled them. */
static inline void study_same(const struct studied *one, const struct studied *two,
                              const char *table, size_t n_rows) {
    char query[64];
    snprintf(query, sizeof query, "SELECT * FROM %s", table);
    json_t *a = study_rows(one, query), *b = study_rows(two, query);
    ck_assert_uint_eq(json_array_size(a), n_rows);
    ck_assert(json_equal(a, b));
    json_decref(a);
    json_decref(b);
}

/* A file in the folder for temporary ones; to be removed by the caller. */
static inline const char *study_file(const char *text, char path[64]) {
    snprintf(path, 64, "/tmp/unmask-study-XXXXXX.ini");
    FILE *file = fdopen(mkstemps(path, 4), "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
    return path;
}

static inline void study_refuses(const char *text, const char *sentence) {
    char path[64];
    struct studied studied;
    struct err err = {0};
    const struct study_changes none = {.n_seeds = 1};
    ck_assert_int_ne(study_try(study_file(text, path), &none, 1, &studied, &err), 0);
    ck_assert_msg(strstr(err.text, sentence) != NULL, "%s", err.text);
    studied_fini(&studied);
    remove(path);
}

#endif
