#include "experiments/sweep/claims.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/base/mem.h"

/* Byte 0 is everybody's: shared by those who have the file open, so that only the last removes it.
 * Digests take the bytes from 1 on. */
enum { PRESENCE_AT = 0, PATH_CHARS = 4096, DIGITS = 15 };

struct claims {
    char path[PATH_CHARS];
    int file;
};

/* Locks belong to the open file, not to the process: the threads of a sweep hold one set. */
static bool set_lock(const struct claims *claims, short kind, off_t at, bool waits) {
    struct flock lock = {.l_type = kind, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    int status;
    do {
        status = fcntl(claims->file, waits ? F_OFD_SETLKW : F_OFD_SETLK, &lock);
    } while (status != 0 && errno == EINTR && waits);
    /* EAGAIN and EACCES: somebody has it. Anything else: there are no locks here. */
    return status == 0 || (errno != EAGAIN && errno != EACCES);
}

/* Whether the file under the name still is the one that is open. */
static bool is_there(const struct claims *claims) {
    struct stat named, opened;
    return lstat(claims->path, &named) == 0 && fstat(claims->file, &opened) == 0 &&
           named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

int claims_open(const char *database, struct claims **out, struct err *err) {
    struct claims *claims = mem_zeroed(1, sizeof *claims);
    int length = snprintf(claims->path, sizeof claims->path, "%s-claims", database);
    if (length < 0 || (size_t)length >= sizeof claims->path) {
        free(claims);
        return err_world(err, "%.64s...: the name is too long", database);
    }
    /* The last owner may remove the file between our opening it and our lock. */
    do {
        struct stat opened;
        claims->file =
            open(claims->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        if (claims->file < 0) {
            int cause = errno;
            err_world(err, "cannot open %s: %s", claims->path, strerror(cause));
            free(claims);
            return (int)err->kind;
        }
        /* Ours are empty, and go when the last one leaves. */
        if (fstat(claims->file, &opened) != 0 || !S_ISREG(opened.st_mode) || opened.st_size != 0) {
            err_world(err,
                      "%s is not a file of claims on points, which beside %s it would be: move it",
                      claims->path, database);
            close(claims->file);
            free(claims);
            return (int)err->kind;
        }
        (void)set_lock(claims, F_RDLCK, PRESENCE_AT, true);
        if (is_there(claims)) {
            break;
        }
        close(claims->file);
    } while (true);
    *out = claims;
    return 0;
}

void claims_close(struct claims *claims) {
    if (claims == NULL) {
        return;
    }
    if (set_lock(claims, F_WRLCK, PRESENCE_AT, false) && is_there(claims)) {
        unlink(claims->path);
    }
    close(claims->file);
    free(claims);
}

static off_t place_of(const char *digest) {
    char digits[DIGITS + 1];
    snprintf(digits, sizeof digits, "%s", digest);
    return (off_t)strtoull(digits, NULL, 16) + PRESENCE_AT + 1;
}

bool claims_take(struct claims *claims, const char *digest) {
    return set_lock(claims, F_WRLCK, place_of(digest), false);
}

void claims_drop(struct claims *claims, const char *digest) {
    (void)set_lock(claims, F_UNLCK, place_of(digest), false);
}
