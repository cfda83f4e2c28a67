#include "experiments/run/sweep/claims.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/mem.h"

/* Digests take the bytes from FIRST_AT on. A database has less than 2^48 of its own, SQLite's locks
 * at 2^30 among them (https://www.sqlite.org/limits.html, fileformat2.html). */
enum { DIGITS = 15 };
static const off_t first_at = (off_t)1 << 61;

struct claims {
    char *path;
    int file;
    bool has_told;
};

/* Locks belong to the open file, not to the process: the threads of a sweep hold one set. */
static enum protocol_answer set_lock(const struct claims *claims, short kind, off_t at) {
    struct flock lock = {.l_type = kind, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    int status;
    do {
        status = fcntl(claims->file, F_OFD_SETLK, &lock);
    } while (status != 0 && errno == EINTR);
    return status == 0                          ? PROTOCOL_YES
           : errno == EAGAIN || errno == EACCES ? PROTOCOL_NO
                                                : PROTOCOL_FAILED;
}

int claims_open(const char *database, struct claims **out, struct err *err) {
    int file = open(database, O_RDWR | O_CLOEXEC);
    if (file < 0) {
        return err_world(err, "cannot open '%s': %s", database, strerror(errno));
    }
    *out = mem_zeroed(1, sizeof **out);
    (*out)->path = mem_text(database);
    (*out)->file = file;
    return 0;
}

void claims_close(struct claims *claims) {
    if (claims == NULL) {
        return;
    }
    close(claims->file);
    free(claims->path);
    free(claims);
}

static off_t place_of(const char *digest) {
    char digits[DIGITS + 1];
    snprintf(digits, sizeof digits, "%s", digest);
    return first_at + (off_t)strtoull(digits, NULL, 16);
}

enum protocol_answer claims_take(struct claims *claims, const char *digest) {
    enum protocol_answer answer = set_lock(claims, F_WRLCK, place_of(digest));
    if (answer == PROTOCOL_FAILED && !claims->has_told) {
        fprintf(stderr,
                "unmask: the file system of %s has no locks for claims (%s): another sweep on it "
                "runs the same points again; each is recorded once\n",
                claims->path, strerror(errno));
        claims->has_told = true;
    }
    return answer;
}

void claims_drop(struct claims *claims, const char *digest) {
    (void)set_lock(claims, F_UNLCK, place_of(digest));
}
