#include "sim/base/input/path.h"

#include <stdio.h>
#include <string.h>

bool path_named_in(const char *file, const char *path, char *out, size_t size) {
    const char *slash = path[0] == '/' ? NULL : strrchr(file, '/');
    const bool is_handed = strncmp(file, "/dev/", strlen("/dev/")) == 0;
    slash = slash != NULL && is_handed && strcmp(slash + 1, path) != 0 ? NULL : slash;
    const int folder = slash != NULL ? (int)(slash - file) + 1 : 0;
    path += folder > 0 && strncmp(path, "./", 2) == 0 ? 2 : 0;
    const int n = snprintf(out, size, "%.*s%s", folder, file, path);
    return n >= 0 && (size_t)n < size;
}
