/* The one name by which a database is opened, whatever it is called by. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/store/store_impl.h"
#include "sim/base/mem.h"

/* Of the names in a folder that are links to one file, the first in order; `*n` is how many. */
static void find_first(const char *folder, const struct stat *file, char *name, size_t size,
                       nlink_t *n) {
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    *n = 0;
    while (listing != NULL && (entry = readdir(listing)) != NULL) {
        struct stat facts;
        if (entry->d_ino == file->st_ino &&
            fstatat(dirfd(listing), entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) == 0 &&
            facts.st_dev == file->st_dev && facts.st_ino == file->st_ino) {
            if (*n == 0 || strcmp(entry->d_name, name) < 0) {
                snprintf(name, size, "%s", entry->d_name);
            }
            ++*n;
        }
    }
    if (listing != NULL) {
        closedir(listing);
    }
}

/* SQLite names the journal after the file's name: whoever opens a file by another hard link of it
 * does not find what a killed program left half done, and must not. */
char *store_name(const char *path, bool will_write) {
    char name[NAME_MAX + 1];
    struct stat file;
    nlink_t n;
    char *real = realpath(path, NULL); /* NULL: it does not exist, or SQLite says why not */
    if (real == NULL || stat(real, &file) != 0 || file.st_nlink < 2) {
        char *same = mem_text(real != NULL ? real : path);
        free(real);
        return same;
    }
    char *slash = strrchr(real, '/');
    char *folder = mem_text(real);
    folder[slash - real + 1] = '\0';
    find_first(folder, &file, name, sizeof name, &n);
    if (n < file.st_nlink && will_write) {
        fprintf(stderr,
                "unmask: %s has another name in another folder: record by one of them alone, since "
                "a program that is killed leaves its journal under the name that it used\n",
                path);
    }
    char *first = mem_resized(NULL, strlen(folder) + sizeof name, 1);
    sprintf(first, "%s%s", folder, n > 0 ? name : slash + 1);
    free(folder);
    free(real);
    return first;
}
