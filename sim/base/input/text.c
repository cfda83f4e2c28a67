#include "sim/base/input/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/input/inputs.h"
#include "sim/base/mem.h"
#include "sim/base/wait.h"

static size_t lines_before(const char *text, const char *end) {
    size_t n = 0;
    for (; text < end; text++) {
        n += *text == '\n';
    }
    return n;
}

bool text_is_foreign(const char *path, const void *bytes, size_t n, struct err *err) {
    static const struct {
        const char *first;
        size_t length;
        const char *sentence;
    } known[] = {
        {"version https://git-lfs.github.com/spec/", 40,
         "is a Git LFS pointer, not the file itself: `git lfs pull` fetches it"},
        {"\xfd"
         "7zXZ",
         5, "is compressed by xz, which is not read: decompress it first"},
        {"BZh", 3, "is compressed by bzip2, which is not read: decompress it first"},
        {"PK\x03\x04", 4,
         "is a ZIP archive or a workbook, which is not read: unpack it first, or "
         "save the sheet as CSV"},
        {"PAR1", 4, "is a Parquet file, which is not read: save its rows as CSV or JSON lines"},
        {"\xff\xfe", 2, "is in UTF-16, expected UTF-8: save it so"},
        {"\xfe\xff", 2, "is in UTF-16, expected UTF-8: save it so"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (n >= known[i].length && memcmp(bytes, known[i].first, known[i].length) == 0) {
            err_world(err, "%s %s", path, known[i].sentence);
            return true;
        }
    }
    return false;
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
    } else if (text_is_foreign(path, text, *size, err)) {
        *size = 0; /* which `err` says */
    } else if (nul != NULL) {
        err_world(err, "%s:%zu: found a NUL byte, expected text", path,
                  lines_before(text, nul) + 1);
    } else if (*size > most) {
        err_world(err, "%s: larger than %zu bytes", path, most);
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

enum { MOST_BYTES = 1 << 28 };

json_t *json_read(const char *path, const char *role, size_t flags, struct err *err) {
    size_t size;
    char *text = text_read(path, role, MOST_BYTES, &size, err);
    if (text == NULL) {
        return NULL;
    }
    json_error_t trouble;
    json_t *root = json_loadb(text, size, flags, &trouble);
    free(text);
    if (root == NULL) {
        err_world(err, "%s:%d: %s", path, trouble.line > 0 ? trouble.line : 1, trouble.text);
    }
    return root;
}
