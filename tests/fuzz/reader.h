/* What the fuzz targets share: a reader of files, given any bytes, ends in one sentence or in a
 * thing that keeps its promises. All targets are one program; UNMASK_READER names the reader. */
#ifndef UNMASK_TESTS_FUZZ_READER_H
#define UNMASK_TESTS_FUZZ_READER_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/err.h"

struct reader {
    const char *name; /* its cases are a folder of tests/fuzz/corpus.tar.gz */
    const char *file; /* what the bytes are called; NULL: no file is written */
    void (*read)(const char *path, const uint8_t *data, size_t size);
};

/* Of each part of the tree; ends with a NULL name. */
extern const struct reader readers_of_traces[], readers_of_sim[], readers_of_engine[],
    readers_of_experiments[], readers_of_stores[];

/* The reader of that name, or NULL; the i-th, NULL behind the last. */
const struct reader *reader_find(const char *name);
const struct reader *reader_at(size_t i);

/* Gives it the bytes, as a new file in a folder that is removed when the program ends. */
void reader_try(const struct reader *reader, const uint8_t *data, size_t size);

/* A file beside it. Returns `out`. */
const char *reader_beside(const char *path, const char *name, char out[128]);

/* Any decode trace's rows (reader_decode_trace.c). */
void read_decode_rows(const char *path, const uint8_t *data, size_t size);

/* What a reader made of the bytes: numbers and words of what it read are put into a digest, which
 * reader_seen gives and begins anew. Floating point as printed with nine digits. */
void reader_see(const void *bytes, size_t size);
uint64_t reader_seen(void);

static inline void reader_see_int(int64_t value) {
    reader_see(&value, sizeof value);
}

static inline void reader_see_text(const char *text) {
    reader_see(text != NULL ? text : "", text != NULL ? strlen(text) + 1 : 1);
}

void reader_see_double(double value);

/* `status` says the same as `err`, which has one sentence where there was trouble, and that one
 * begins with `path` unless it is NULL; of it the place behind the path is seen. Whether all went
 * well. */
static inline int went_well(int status, const struct err *err, const char *path) {
    ASSERT((status == 0) == (err->kind == ERR_NONE));
    ASSERT(status == 0 || (err->text[0] != '\0' && strchr(err->text, '\n') == NULL));
    ASSERT(status == 0 || path == NULL || strstr(err->text, path) != NULL);
    const char *place = status != 0 && path != NULL ? strstr(err->text, path) + strlen(path) : "";
    reader_see_int(err->kind);
    reader_see_int(place[0] == ':' ? strtoll(place + 1, NULL, 10) : 0);
    return status == 0;
}

#endif
