#include "sim/input/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/wait.h"
#include "sim/input/inputs.h"

static size_t lines_before(const char *text, const char *end) {
    size_t n = 0;
    for (; text < end; text++) {
        n += *text == '\n';
    }
    return n;
}

bool text_is_lfs_pointer(const char *path, const void *bytes, size_t n, struct err *err) {
    static const char first[] = "version https://git-lfs.github.com/spec/";
    if (n < sizeof first - 1 || memcmp(bytes, first, sizeof first - 1) != 0) {
        return false;
    }
    err_world(err, "%s is a Git LFS pointer, not the file itself: `git lfs pull` fetches it", path);
    return true;
}

char *text_read(const char *path, const char *role, size_t most, size_t *size, struct err *err) {
    int wait = wait_begin();
    FILE *file = fopen(path, "rb");
    wait_end(wait);
    if (file == NULL) {
        err_world(err, "cannot open %s: %s", path, strerror(errno));
        return NULL;
    }
    if (role != NULL) {
        inputs_note_open(role, path, fileno(file));
    }
    char *text = NULL;
    size_t room = 0, got = 0;
    const char *nul = NULL;
    *size = 0;
    do {
        if (*size + 1 >= room) {
            room = 2 * room + 4096;
            text = mem_resized(text, room, 1);
        }
        wait = wait_begin();
        got = fread(text + *size, 1, room - *size - 1, file);
        wait_end(wait);
        nul = memchr(text + *size, '\0', got);
        *size += got;
    } while (got > 0 && nul == NULL && *size <= most);
    text[*size] = '\0';
    if (ferror(file)) {
        err_world(err, "cannot read %s: %s", path, strerror(errno));
    } else if (nul != NULL) {
        err_world(err, "%s:%zu: found a NUL byte, expected text", path,
                  lines_before(text, nul) + 1);
    } else if (*size > most) {
        err_world(err, "%s: larger than %zu bytes", path, most);
    } else {
        (void)text_is_lfs_pointer(path, text, *size, err);
    }
    fclose(file);
    if (err->kind != ERR_NONE) {
        free(text);
        return NULL;
    }
    return text;
}

char *text_line(char **rest, size_t *length) {
    char *line = *rest;
    if (*line == '\0') {
        return NULL;
    }
    size_t n = strcspn(line, "\n");
    *rest = line + n + (line[n] == '\n');
    n -= n > 0 && line[n] == '\n' && line[n - 1] == '\r';
    line[n] = '\0';
    if (length != NULL) {
        *length = n;
    }
    return line;
}
