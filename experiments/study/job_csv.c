/* The job that reads CSV files: raw measurements become a table. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "experiments/study/jobs.h"
#include "sim/base/input/csv.h"

static int take_lines(struct csv *csv, const json_t *row, json_t *rows, struct err *err) {
    char *names[CSV_MOST_FIELDS];
    bool more;
    int status = csv_line(csv, &more, err);
    csv->n_fields = status == 0 && more ? csv_cut(csv, err) : 0;
    if (status == 0 && (csv->n_fields < 1 || csv->n_fields > CSV_MOST_FIELDS)) {
        status = err_world(err, "%s:1: there is no readable header", csv->line.path);
    }
    memcpy(names, csv->fields, sizeof names);
    while (status == 0 && (status = csv_line(csv, &more, err)) == 0 && more) {
        if (csv->line.length == 0) {
            continue;
        }
        status = csv_row(csv, err);
        json_t *own = json_copy((json_t *)(uintptr_t)row);
        for (int c = 0; status == 0 && c < csv->n_fields; c++) {
            json_object_set_new(own, names[c], job_cell(csv->fields[c]));
        }
        json_array_append_new(rows, own);
    }
    return status;
}

static int csv(void **state, const json_t *args, json_t *row, json_t *rows, struct err *err) {
    char name[1024], path[1024];
    const char *folder = job_text(args, "folder");
    struct csv file;
    (void)state;
    snprintf(name, sizeof name, "%s%s%s", folder != NULL ? folder : "", folder != NULL ? "/" : "",
             job_text(args, "file"));
    int status = csv_open(&file, job_path(path, sizeof path, name), "measurements", err);
    file.is_quoted = file.is_open_end = true;
    status = status == 0 ? take_lines(&file, row, rows, err) : status;
    if (status == 0 && json_array_size(rows) == 0) {
        status = err_world(err, "%s has no measurements", path);
    }
    csv_close(&file);
    return status;
}

const struct job job_csv = {
    .name = "csv",
    .doc = "the lines of CSV files, whose header names the columns",
    .required = (const char *const[]){"file", NULL},
    .optional = (const char *const[]){"folder", NULL},
    .fill = csv,
};
