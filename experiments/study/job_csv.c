/* The job that reads CSV files: raw measurements become a table. */
#include <stdio.h>

#include "analysis/csv_text.h"
#include "experiments/study/jobs.h"
#include "sim/input/inputs.h"

enum { MOST_COLUMNS = 128 };

static int take_line(char *const names[], int n_names, char *line, const char *path, int number,
                     const json_t *row, json_t *rows, struct err *err) {
    char *cells[MOST_COLUMNS];
    if (csv_text_split(line, cells, MOST_COLUMNS) != n_names) {
        return err_world(err, "%s:%d: expected %d cells, as in the header", path, number, n_names);
    }
    json_t *own = json_copy((json_t *)(uintptr_t)row);
    for (int c = 0; c < n_names; c++) {
        json_object_set_new(own, names[c], job_cell(cells[c]));
    }
    json_array_append_new(rows, own);
    return 0;
}

static int csv(void **state, const json_t *args, json_t *row, json_t *rows, struct err *err) {
    char name[1024], path[1024], *names[MOST_COLUMNS], *line;
    const char *folder = job_text(args, "folder");
    struct csv_text file;
    (void)state;
    snprintf(name, sizeof name, "%s%s%s", folder != NULL ? folder : "", folder != NULL ? "/" : "",
             job_text(args, "file"));
    if (csv_text_open(job_path(path, sizeof path, name), &file, err) != 0) {
        return (int)err->kind;
    }
    inputs_note("measurements", path);
    char *header = csv_text_line(&file);
    int n_names = header != NULL ? csv_text_split(header, names, MOST_COLUMNS) : -1;
    int status = n_names > 0 ? 0 : err_world(err, "%s:1: there is no readable header", path);
    while (status == 0 && (line = csv_text_line(&file)) != NULL) {
        status =
            line[0] != '\0' ? take_line(names, n_names, line, path, file.line, row, rows, err) : 0;
    }
    if (status == 0 && json_array_size(rows) == 0) {
        status = err_world(err, "%s has no measurements", path);
    }
    csv_text_close(&file);
    return status;
}

const struct job job_csv = {
    .name = "csv",
    .doc = "the lines of CSV files, whose header names the columns",
    .required = (const char *const[]){"file", NULL},
    .optional = (const char *const[]){"folder", NULL},
    .fill = csv,
};
