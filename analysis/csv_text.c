#include "analysis/csv_text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_BYTES = 1 << 26 };

int csv_text_open(const char *path, struct csv_text *out, struct err *err) {
    struct stat found = {.st_size = 0};
    FILE *file = fopen(path, "rb");
    *out = (struct csv_text){.text = NULL};
    if (file == NULL || fstat(fileno(file), &found) != 0 || !S_ISREG(found.st_mode)) {
        err_world(err, "cannot read '%s': %s", path,
                  file == NULL ? strerror(errno) : "it is not a file");
    } else if (found.st_size > MOST_BYTES) {
        err_world(err, "'%s' is longer than %d bytes", path, MOST_BYTES);
    }
    size_t size = (size_t)found.st_size;
    char *text = err->kind == ERR_NONE ? malloc(size + 1) : NULL;
    ASSERT(err->kind != ERR_NONE || text != NULL);
    if (text != NULL && fread(text, 1, size, file) != size) {
        err_world(err, "cannot read '%s': %s", path, strerror(errno));
    } else if (text != NULL && memchr(text, '\0', size) != NULL) {
        err_world(err, "'%s' holds a zero byte: it is not a text file", path);
    }
    if (file != NULL) {
        fclose(file);
    }
    if (err->kind != ERR_NONE) {
        free(text);
        return (int)err->kind;
    }
    text[size] = '\0';
    *out = (struct csv_text){.text = text, .rest = text, .n_lines = 1};
    for (const char *c = text; *c != '\0'; c++) {
        out->n_lines += *c == '\n';
    }
    return 0;
}

void csv_text_close(struct csv_text *csv) {
    free(csv->text);
    *csv = (struct csv_text){.text = NULL};
}

char *csv_text_line(struct csv_text *csv) {
    char *line = csv->rest;
    if (*line == '\0') {
        return NULL;
    }
    size_t length = strcspn(line, "\n");
    csv->rest = line + length + (line[length] == '\n');
    csv->line++;
    line[length] = '\0';
    if (length > 0 && line[length - 1] == '\r') {
        line[length - 1] = '\0';
    }
    return line;
}

int csv_text_split(char *line, char *cells[], int most) {
    int n = 0;
    char *in = line;
    for (;;) {
        if (n == most) {
            return -1;
        }
        char *out = in;
        cells[n++] = out;
        if (*in == '"') {
            in++;
            while (*in != '\0' && !(in[0] == '"' && in[1] != '"')) {
                in += *in == '"';
                *out++ = *in++;
            }
            if (*in != '"' || (in[1] != ',' && in[1] != '\0')) {
                return -1;
            }
            in++;
        } else {
            in += strcspn(in, ",");
            out = in;
        }
        bool is_last = *in == '\0';
        *out = '\0';
        if (is_last) {
            return n;
        }
        in++;
    }
}
