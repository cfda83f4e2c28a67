#include "sim/input/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/input/inputs.h"

char *text_read(const char *path, const char *role, size_t most, size_t *size, struct err *err) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        err_world(err, "cannot open %s: %s", path, strerror(errno));
        return NULL;
    }
    inputs_note(role, path);
    char *text = NULL;
    size_t room = 0, got = 0;
    *size = 0;
    do {
        if (*size + 1 >= room) {
            room = 2 * room + 4096;
            char *larger = mem_resized(text, room, 1);
            text = larger;
        }
        got = fread(text + *size, 1, room - *size - 1, file);
        *size += got;
    } while (got > 0 && *size <= most);
    text[*size] = '\0';
    bool is_read = !ferror(file) && *size <= most;
    if (!is_read) {
        (void)(ferror(file) ? err_world(err, "cannot read %s: %s", path, strerror(errno))
                            : err_world(err, "%s: larger than %zu bytes", path, most));
        free(text);
    }
    fclose(file);
    return is_read ? text : NULL;
}
