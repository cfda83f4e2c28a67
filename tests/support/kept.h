/* Texts that are kept in files of tests/golden. */
#ifndef UNMASK_TESTS_SUPPORT_KEPT_H
#define UNMASK_TESTS_SUPPORT_KEPT_H

#include "tests/support/scratch.h"

/* Line by line; UNMASK_GOLDEN=write in the environment renews the file. */
static inline void kept_same(const char *path, const char *now) {
    const char *mode = getenv("UNMASK_GOLDEN");
    if (mode != NULL && strcmp(mode, "write") == 0) {
        FILE *file = fopen(path, "wb");
        ck_assert_ptr_nonnull(file);
        fputs(now, file);
        ck_assert_int_eq(fclose(file), 0);
        return;
    }
    char *kept = scratch_read(path);
    const char *a = kept, *b = now;
    size_t n_other = 0;
    while (*a != '\0' || *b != '\0') {
        const size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
        if (n != m || memcmp(a, b, n) != 0) {
            if (n_other++ < 10) {
                fprintf(stderr, "kept %.*s\nnow  %.*s\n", (int)n, a, (int)m, b);
            }
        }
        a += n + (a[n] == '\n');
        b += m + (b[m] == '\n');
    }
    free(kept);
    ck_assert_msg(n_other == 0, "%zu lines are not those of %s; make golden if they should not be",
                  n_other, path);
}

#endif
