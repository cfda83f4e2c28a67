#include "sim/base/input/datadir.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/base/mem.h"
#include "sim/base/system.h"

#ifndef UNMASK_DATA_DIR
#error "UNMASK_DATA_DIR: the directory of the source tree, set by the Makefile"
#endif

enum { PATH_CHARS = 4096, MOST_LEVELS = 5 };

static const char installed[] = "/share/unmask";
static char found[PATH_CHARS + sizeof installed];

static bool holds_data(const char *folder) {
    char path[sizeof found + 32];
    snprintf(path, sizeof path, "%s/experiments/study/systems.ini", folder);
    return access(path, R_OK) == 0;
}

/* The nearest folder above the program that holds the files, or whose share/unmask does: of a
 * source tree, below which build/unmask and build/tests/gpu/... lie, or of an installation's
 * prefix. */
static bool find_above_program(void) {
    char folder[PATH_CHARS];
    if (!system_program(folder, sizeof folder - sizeof installed)) {
        return false;
    }
    for (int level = 0; level < MOST_LEVELS; level++) {
        char *slash = strrchr(folder, '/');
        if (slash == NULL || slash == folder) {
            return false;
        }
        *slash = '\0';
        snprintf(found, sizeof found, "%s", folder);
        if (holds_data(found)) {
            return true;
        }
        snprintf(found, sizeof found, "%s%s", folder, installed);
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

struct files {
    char **paths;
    size_t n, room;
};

static char *joined(const char *folder, const char *name) {
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = mem_unwritten(size, 1);
    snprintf(path, size, "%s/%s", folder, name);
    return path;
}

static void gather(const char *folder, unsigned depth, const char *ending, struct files *files,
                   struct err *err) {
    DIR *entries = opendir(folder);
    if (entries == NULL && errno == ENOMEM) {
        mem_out(0);
    }
    if (entries == NULL && errno != ENOENT && errno != ENOTDIR) {
        (void)err_world(err, "cannot read the folder %s: %s", folder, strerror(errno));
    }
    const struct dirent *entry;
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        size_t length = strlen(entry->d_name), end = strlen(ending);
        if (entry->d_name[0] == '.') {
            continue;
        }
        char *path = joined(folder, entry->d_name);
        if (depth > 0) {
            gather(path, depth - 1, ending, files, err);
            free(path);
        } else if (length >= end && strcmp(entry->d_name + length - end, ending) == 0) {
            files->paths = mem_grown(files->paths, files->n, &files->room, sizeof *files->paths);
            files->paths[files->n++] = path;
        } else {
            free(path);
        }
    }
    if (entries != NULL) {
        closedir(entries);
    }
}

static int compare(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

char **data_files(const char *folder, unsigned depth, const char *ending, struct err *err) {
    char *path = joined(data_dir(), folder);
    struct files files = {0};
    gather(path, depth, ending, &files, err);
    free(path);
    files.paths = mem_resized(files.paths, files.n + 1, sizeof *files.paths);
    files.paths[files.n] = NULL;
    qsort(files.paths, files.n, sizeof *files.paths, compare);
    return files.paths;
}

char **data_names(const char *folder, struct err *err) {
    char **names = data_files(folder, 0, ".ini", err);
    for (size_t i = 0; names[i] != NULL; i++) {
        const char *base = strrchr(names[i], '/') + 1;
        memmove(names[i], base, strlen(base) + 1);
        names[i][strlen(names[i]) - strlen(".ini")] = '\0';
    }
    return names;
}

void names_free(char **names) {
    for (size_t i = 0; names[i] != NULL; i++) {
        free(names[i]);
    }
    free(names);
}
