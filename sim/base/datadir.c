#include "sim/base/datadir.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef UNMASK_DATA_DIR
#error "UNMASK_DATA_DIR: the directory of the source tree, set by the Makefile"
#endif

const char *data_dir(void) {
    const char *named = getenv("UNMASK_DATA");
    if (named != NULL && named[0] != '\0') {
        return named;
    }
    return access("experiments/systems.ini", R_OK) == 0 ? "." : UNMASK_DATA_DIR;
}

const char *data_path(char *path, size_t size, const char *relative) {
    snprintf(path, size, "%s/%s", data_dir(), relative);
    return path;
}
