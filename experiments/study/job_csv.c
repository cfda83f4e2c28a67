/* The job that reads CSV files: raw measurements become a table. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/study/jobs.h"
#include "sim/base/inputs.h"

enum { MOST_COLUMNS = 128 };

/* One line into cells, quotes undone; -1 where there are more than `MOST_COLUMNS`. */
static int split(char *line, char *cells[MOST_COLUMNS]) {
    int n = 0;
    for (char *from = line; from != NULL;) {
        if (n == MOST_COLUMNS) {
            return -1;
        }
        char *to = from, *next = NULL;
        cells[n++] = to;
        bool is_quoted = *from == '"';
        for (from += is_quoted; *from != '\0' && (is_quoted || *from != ','); from++) {
            if (is_quoted && *from == '"' && *++from != '"') {
                break;
            }
            *to++ = *from;
        }
        next = *from == ',' ? from + 1 : NULL;
        *to = '\0';
        from = next;
    }
    return n;
}

static int take_line(char *const names[], int n_names, char *line, const char *path, int number,
                     const json_t *row, json_t *rows, struct err *err) {
    char *cells[MOST_COLUMNS];
    if (split(line, cells) != n_names) {
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
    (void)state;
    char name[1024], path[1024], *names[MOST_COLUMNS], *header = NULL, *line = NULL;
    const char *folder = job_text(args, "folder");
    size_t room = 0, header_room = 0;
    snprintf(name, sizeof name, "%s%s%s", folder != NULL ? folder : "", folder != NULL ? "/" : "",
             job_text(args, "file"));
    FILE *file = fopen(job_path(path, sizeof path, name), "rb");
    if (file == NULL) {
        return err_world(err, "cannot read the measurements %s: %s", path, strerror(errno));
    }
    inputs_note("measurements", path);
    int n_names = 0, number = 1;
    if (getline(&header, &header_room, file) > 0) {
        header[strcspn(header, "\r\n")] = '\0';
        n_names = split(header, names);
    }
    int status = n_names > 0 ? 0 : err_world(err, "%s:1: there is no readable header", path);
    while (status == 0 && getline(&line, &room, file) > 0) {
        number++;
        line[strcspn(line, "\r\n")] = '\0';
        status =
            line[0] != '\0' ? take_line(names, n_names, line, path, number, row, rows, err) : 0;
    }
    if (status == 0 && json_array_size(rows) == 0) {
        status = err_world(err, "%s has no measurements", path);
    }
    free(header);
    free(line);
    fclose(file);
    return status;
}

const struct job job_csv = {
    .name = "csv",
    .doc = "the lines of CSV files, whose header names the columns",
    .required = (const char *const[]){"file", NULL},
    .optional = (const char *const[]){"folder", NULL},
    .fill = csv,
};
