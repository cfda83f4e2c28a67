#include "sim/input/datadir.h"

#include <glob.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/base/mem.h"

#ifndef UNMASK_DATA_DIR
#error "UNMASK_DATA_DIR: the directory of the source tree, set by the Makefile"
#endif

enum { PATH_CHARS = 4096, MOST_LEVELS = 5 };

static char found[PATH_CHARS];

static bool holds_data(const char *folder) {
    char path[PATH_CHARS + 32];
    snprintf(path, sizeof path, "%s/experiments/systems.ini", folder);
    return access(path, R_OK) == 0;
}

/* The nearest folder above the program that holds the files: build/unmask, build/portable/unmask
 * and build/tests/gpu/... lie below theirs. */
static bool find_above_program(void) {
    ssize_t size = readlink("/proc/self/exe", found, sizeof found - 1);
    if (size <= 0) {
        return false;
    }
    found[size] = '\0';
    for (int level = 0; level < MOST_LEVELS; level++) {
        char *slash = strrchr(found, '/');
        if (slash == NULL || slash == found) {
            return false;
        }
        *slash = '\0';
        if (holds_data(found)) {
            return true;
        }
    }
    return false;
}

/* Short names where the folder is the present one. */
static bool is_present_folder(const char *folder) {
    struct stat here, there;
    return stat(".", &here) == 0 && stat(folder, &there) == 0 && here.st_dev == there.st_dev &&
           here.st_ino == there.st_ino;
}

static void find(void) {
    if (!find_above_program()) {
        snprintf(found, sizeof found, "%s",
                 holds_data(UNMASK_DATA_DIR) || !holds_data(".") ? UNMASK_DATA_DIR : ".");
    }
    if (is_present_folder(found)) {
        snprintf(found, sizeof found, ".");
    }
}

const char *data_dir(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const char *named = getenv("UNMASK_DATA");
    if (named != NULL && named[0] != '\0') {
        return named;
    }
    pthread_once(&once, find);
    return found;
}

const char *data_path(char *path, size_t size, const char *relative) {
    snprintf(path, size, "%s/%s", data_dir(), relative);
    return path;
}

char **data_names(const char *folder) {
    char pattern[PATH_CHARS];
    glob_t files = {0};
    snprintf(pattern, sizeof pattern, "%.2048s/%.512s/*.ini", data_dir(), folder);
    size_t n = glob(pattern, 0, NULL, &files) == 0 ? files.gl_pathc : 0;
    char **names = mem_zeroed(n + 1, sizeof *names);
    for (size_t i = 0; i < n; i++) {
        const char *base = strrchr(files.gl_pathv[i], '/') + 1;
        names[i] = mem_copied(base, strlen(base) - strlen(".ini"));
    }
    globfree(&files);
    return names;
}

void names_free(char **names) {
    for (size_t i = 0; names[i] != NULL; i++) {
        free(names[i]);
    }
    free(names);
}
