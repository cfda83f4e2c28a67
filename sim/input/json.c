#include "sim/input/json.h"

#include <stdlib.h>

#include "sim/input/text.h"

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
