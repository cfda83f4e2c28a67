/* A folder for the files of a suite: made when the program starts, removed when it ends. */
#ifndef UNMASK_TESTS_SUPPORT_SCRATCH_H
#define UNMASK_TESTS_SUPPORT_SCRATCH_H

#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/suite.h"

static char scratch_folder[64];
static pid_t scratch_owner;

__attribute__((constructor)) static void scratch_init(void) {
    snprintf(scratch_folder, sizeof scratch_folder, "/tmp/unmask-test-XXXXXX");
    scratch_owner = getpid();
    if (mkdtemp(scratch_folder) == NULL) {
        abort();
    }
}

/* Tests run in children, which leave the folder alone. */
__attribute__((destructor)) static void scratch_fini(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", scratch_folder);
    if (getpid() == scratch_owner && system(command) != 0) {
        fprintf(stderr, "cannot remove %s\n", scratch_folder);
    }
}

/* The path of a file in the folder; the eight latest paths are kept. */
static inline const char *scratch_path(const char *name) {
    static char paths[8][512];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", scratch_folder, name);
    return path;
}

static inline const char *scratch_write(const char *name, const char *text) {
    const char *path = scratch_path(name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    return path;
}

/* What is left of a file, and a zero behind it; the caller frees it. */
static inline char *scratch_rest(FILE *file) {
    char *text = NULL;
    size_t size = 0, got;
    do {
        text = realloc(text, size + 65537);
        ck_assert_ptr_nonnull(text);
        got = fread(text + size, 1, 65536, file);
        size += got;
    } while (got > 0);
    text[size] = '\0';
    return text;
}

/* A file that is being written beside this one, under its own name, or NULL; to be freed. */
static inline char *scratch_unfinished(const char *path) {
    char pattern[1024];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s.part-*", path);
    char *first = glob(pattern, 0, NULL, &found) == 0 ? strdup(found.gl_pathv[0]) : NULL;
    globfree(&found);
    return first;
}

/* The bytes of a file and a NUL behind them, to be freed. */
static inline char *scratch_read(const char *path) {
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s", path);
    char *text = scratch_rest(file);
    fclose(file);
    return text;
}

#endif
