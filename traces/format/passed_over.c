#include "traces/format/passed_over.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t most_of(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

struct passed_over passed_over_most(const struct passed_over *a, const struct passed_over *b) {
    struct passed_over most = {
        .failed = most_of(a->failed, b->failed),
        .left_out = most_of(a->left_out, b->left_out),
        .bad = most_of(a->bad, b->bad),
    };
    memcpy(most.first, a->first[0] != '\0' ? a->first : b->first, sizeof most.first);
    return most;
}

int passed_over_all(const struct passed_over *passed, const char *path, uint64_t line,
                    const char *first_bad, struct err *err) {
    if (passed->left_out + passed->bad == 0) {
        return err_world(err,
                         "%s:%" PRIu64 ": found the end of the file (%" PRIu64
                         " failed requests before it), expected at least one request",
                         path, line, passed->failed);
    }
    char words[256] = "";
    size_t used = 0;
    if (passed->left_out > 0) {
        used += (size_t)snprintf(words, sizeof words,
                                 "; --where leaves out %" PRIu64 ", the first because %s",
                                 passed->left_out, passed->first);
    }
    if (passed->failed > 0) {
        used += (size_t)snprintf(words + used, sizeof words - used, "; %" PRIu64 " failed",
                                 passed->failed);
    }
    if (passed->bad > 0) {
        snprintf(words + used, sizeof words - used,
                 "; %" PRIu64 " cannot be read, the first: ", passed->bad);
    }
    return err_world(err, "%s: no row is left: %s%.600s", path, words + 2,
                     passed->bad > 0 ? first_bad : "");
}
