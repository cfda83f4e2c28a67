#include "sim/base/input/unpack.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "sim/base/input/inputs.h"
#include "sim/base/mem.h"
#include "sim/base/system.h"
#include "sim/base/wait.h"

enum { INPUT_BYTES = 64 << 10 };

/* Members and frames may follow each other; the file ends with a whole one. */
struct unpack {
    FILE *file;
    z_stream gzip;
    ZSTD_DStream *zstd; /* NULL: gzip */
    unsigned char bytes[INPUT_BYTES];
    size_t begin, end; /* of what is left to unpack */
    bool is_inside;    /* of a member or frame */
};

static int begin(struct unpack *u) {
    u->begin = u->end = 0;
    u->is_inside = false;
    if (u->zstd != NULL) {
        return ZSTD_isError(ZSTD_initDStream(u->zstd)) ? -1 : 0;
    }
    return inflateReset(&u->gzip) == Z_OK ? 0 : -1;
}

/* Unpacks some of what is left; -1: it is damaged. */
static ssize_t unpack(struct unpack *u, char *out, size_t size) {
    if (u->zstd != NULL) {
        ZSTD_inBuffer in = {u->bytes, u->end, u->begin};
        ZSTD_outBuffer to = {out, size, 0};
        size_t left = ZSTD_decompressStream(u->zstd, &to, &in);
        u->begin = in.pos;
        u->is_inside = left != 0;
        if (ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation) {
            mem_out(0);
        }
        return ZSTD_isError(left) ? -1 : (ssize_t)to.pos;
    }
    u->gzip.next_in = u->bytes + u->begin;
    u->gzip.avail_in = (uInt)(u->end - u->begin);
    u->gzip.next_out = (unsigned char *)out;
    u->gzip.avail_out = size < INPUT_BYTES ? (uInt)size : INPUT_BYTES;
    uInt room = u->gzip.avail_out;
    int status = inflate(&u->gzip, Z_NO_FLUSH);
    if (status == Z_MEM_ERROR) {
        mem_out(0);
    }
    u->begin = u->end - u->gzip.avail_in;
    u->is_inside = status != Z_STREAM_END;
    if (status == Z_STREAM_END && inflateReset(&u->gzip) != Z_OK) {
        return -1;
    }
    bool is_fine = status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR;
    return is_fine ? (ssize_t)(room - u->gzip.avail_out) : -1;
}

static ssize_t read_unpacked(void *cookie, char *out, size_t size) {
    struct unpack *u = cookie;
    for (;;) {
        if (u->begin == u->end) {
            u->begin = 0;
            u->end = fread(u->bytes, 1, sizeof u->bytes, u->file);
            if (ferror(u->file)) {
                return -1;
            }
        }
        bool is_over = u->end == 0;
        if (is_over && !u->is_inside) {
            return 0;
        }
        ssize_t n = unpack(u, out, size);
        if (n < 0 || (n == 0 && is_over)) {
            errno = EBADMSG;
            return -1;
        }
        if (n > 0) {
            return n;
        }
    }
}

/* To the begin alone. */
static int rewind_unpacked(void *state) {
    struct unpack *u = state;
    if (fseek(u->file, 0, SEEK_SET) != 0) {
        return -1;
    }
    clearerr(u->file);
    return begin(u);
}

static int close_unpacked(void *cookie) {
    struct unpack *u = cookie;
    int status = fclose(u->file);
    inflateEnd(&u->gzip);
    ZSTD_freeDStream(u->zstd);
    free(u);
    return status;
}

FILE *unpack_open(const char *path, const char *role) {
    static const unsigned char gzip[] = {0x1f, 0x8b}, zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
    const int wait = wait_begin();
    FILE *file = fopen(path, "rb");
    wait_end(wait);
    unsigned char head[sizeof zstd];
    if (file != NULL && role != NULL) {
        inputs_note_open(role, path, fileno(file));
    }
    if (file == NULL || fseek(file, 0, SEEK_SET) != 0) {
        return file; /* what cannot be read twice is read as it stands */
    }
    size_t n = fread(head, 1, sizeof head, file);
    clearerr(file);
    bool is_zstd = n == sizeof zstd && memcmp(head, zstd, sizeof zstd) == 0;
    bool is_gzip = n >= sizeof gzip && memcmp(head, gzip, sizeof gzip) == 0;
    if (fseek(file, 0, SEEK_SET) != 0 || (!is_zstd && !is_gzip)) {
        return file;
    }
    struct unpack *u = mem_zeroed(1, sizeof *u);
    u->file = file;
    u->zstd = is_zstd ? mem_given(ZSTD_createDStream()) : NULL;
    if (inflateInit2(&u->gzip, 15 + 16) != Z_OK) { /* 16: gzip's header, no other's */
        mem_out(0);
    }
    (void)begin(u);
    static const struct system_reader reader = {read_unpacked, rewind_unpacked, close_unpacked};
    return mem_given(system_stream(&reader, u));
}
