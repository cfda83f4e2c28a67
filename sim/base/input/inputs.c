#include "sim/base/input/inputs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/base/input/datadir.h"
#include "sim/base/mem.h"
#include "sim/base/system.h"

enum { READ_BYTES = 1 << 18 };

static _Thread_local struct inputs *collecting;

/* What was digested, by what tells that a file changed. */
struct digested {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
    char sha256[SHA256_HEX_CHARS];
};

static struct {
    pthread_mutex_t lock;
    struct digested *items;
    size_t n, room;
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct inputs *inputs_collect(struct inputs *into) {
    struct inputs *before = collecting;
    collecting = into;
    return before;
}

static bool is_same(const struct digested *digested, const struct stat *facts) {
    return digested->device == facts->st_dev && digested->inode == facts->st_ino &&
           digested->size == facts->st_size &&
           digested->changed.tv_sec == system_changed(facts).tv_sec &&
           digested->changed.tv_nsec == system_changed(facts).tv_nsec;
}

static bool recall(const struct stat *facts, char sha256[SHA256_HEX_CHARS]) {
    bool found = false;
    pthread_mutex_lock(&known.lock);
    for (size_t i = 0; i < known.n && !found; i++) {
        found = is_same(&known.items[i], facts);
        if (found) {
            memcpy(sha256, known.items[i].sha256, SHA256_HEX_CHARS);
        }
    }
    pthread_mutex_unlock(&known.lock);
    return found;
}

static void keep(const struct stat *facts, const char sha256[SHA256_HEX_CHARS]) {
    pthread_mutex_lock(&known.lock);
    known.items = mem_grown(known.items, known.n, &known.room, sizeof *known.items);
    struct digested *digested = &known.items[known.n++];
    *digested =
        (struct digested){facts->st_dev, facts->st_ino, facts->st_size, system_changed(facts), {0}};
    memcpy(digested->sha256, sha256, SHA256_HEX_CHARS);
    pthread_mutex_unlock(&known.lock);
}

/* From the file's begin; its place stays. False on an error of reading, which the file's reader
 * meets as well. */
static bool digest_of(int file, char sha256[SHA256_HEX_CHARS]) {
    unsigned char *bytes = mem_unwritten(READ_BYTES, 1);
    struct sha256 sha;
    sha256_begin(&sha);
    ssize_t got;
    for (off_t at = 0; (got = pread(file, bytes, READ_BYTES, at)) > 0; at += got) {
        sha256_add(&sha, bytes, (size_t)got);
    }
    free(bytes);
    sha256_hex(&sha, sha256);
    return got == 0;
}

bool inputs_digest_open(int file, char sha256[SHA256_HEX_CHARS]) {
    struct stat facts;
    if (fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode)) {
        return false;
    }
    if (recall(&facts, sha256)) {
        return true;
    }
    if (!digest_of(file, sha256)) {
        return false;
    }
    keep(&facts, sha256);
    return true;
}

void inputs_note_open(const char *role, const char *path, int file) {
    char sha256[SHA256_HEX_CHARS];
    if (collecting != NULL) {
        inputs_note_digest(role, path, inputs_digest_open(file, sha256) ? sha256 : "");
    }
}

int inputs_hold(const char *role, const char *path) {
    struct stat facts;
    const bool is_there = stat(path, &facts) == 0;
    if (is_there && !S_ISREG(facts.st_mode)) {
        inputs_note_digest(role, path, "");
        return -1;
    }
    int file = is_there ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (file >= 0) {
        inputs_note_open(role, path, file);
    } else if (errno != ENOENT && errno != ENOTDIR) {
        inputs_note_digest(role, path, "");
    }
    return file;
}

bool inputs_is_still(int file, const char *path) {
    struct stat held, named;
    return fstat(file, &held) == 0 && stat(path, &named) == 0 && held.st_dev == named.st_dev &&
           held.st_ino == named.st_ino;
}

int inputs_release(int file, const char *path, struct err *err) {
    const bool is_still = file < 0 || inputs_is_still(file, path);
    if (file >= 0) {
        close(file);
    }
    return is_still ? 0 : err_world(err, "%s: was replaced while it was read", path);
}

/* Relative to the data folder where the file lies there. */
static const char *name_of(const char *path) {
    static const char *const folders[] = {"experiments/", "traces/", "kernels/", "sim/"};
    const char *data = data_dir();
    size_t length = strlen(data);
    if (strncmp(path, data, length) == 0 && path[length] == '/') {
        const char *inside = path + length + strspn(path + length, "/");
        for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
            if (strncmp(inside, folders[i], strlen(folders[i])) == 0) {
                return inside;
            }
        }
    }
    return path;
}

static int compare(const struct input_file *a, const char *role, const char *path) {
    int by_role = strcmp(a->role, role);
    return by_role != 0 ? by_role : strcmp(a->path, path);
}

void inputs_note_digest(const char *role, const char *path, const char *sha256) {
    struct inputs *inputs = collecting;
    if (inputs == NULL) {
        return;
    }
    const char *name = name_of(path);
    size_t at = 0;
    while (at < inputs->n && compare(&inputs->items[at], role, name) < 0) {
        at++;
    }
    if (at < inputs->n && compare(&inputs->items[at], role, name) == 0) {
        if (strcmp(inputs->items[at].sha256, sha256) != 0) {
            inputs->items[at].sha256[0] = '\0';
        }
        return;
    }
    inputs->items = mem_grown(inputs->items, inputs->n, &inputs->room, sizeof *inputs->items);
    struct input_file *input = &inputs->items[at];
    memmove(input + 1, input, (inputs->n++ - at) * sizeof *input);
    *input = (struct input_file){.role = role, .path = mem_text(name)};
    memcpy(input->sha256, sha256, strlen(sha256) + 1);
}

const char *inputs_digest_of(const struct inputs *inputs, const char *path) {
    for (size_t i = 0; i < inputs->n; i++) {
        if (strcmp(inputs->items[i].path, name_of(path)) == 0) {
            return inputs->items[i].sha256;
        }
    }
    return "";
}

void inputs_fini(struct inputs *inputs) {
    for (size_t i = 0; i < inputs->n; i++) {
        free(inputs->items[i].path);
    }
    free(inputs->items);
    *inputs = (struct inputs){0};
}
