#include "sim/base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/base/system.h"
#include "sim/base/wait.h"

int output_may_replace(const char *path, const char *head, const char *what, struct err *err) {
    struct stat found;
    if (path[0] == '\0') {
        return err_usage(err, "%s needs the name of a file", what);
    }
    if (stat(path, &found) != 0 || !S_ISREG(found.st_mode) || found.st_size == 0) {
        return 0; /* whatever else is wrong shows when it is opened */
    }
    char start[64] = "";
    FILE *file = fopen(path, "rb");
    if (file != NULL) {
        size_t n = fread(start, 1, sizeof start - 1, file);
        start[n] = '\0';
        fclose(file);
    }
    if (strncmp(start, head, strlen(head)) == 0) {
        return 0;
    }
    return err_usage(err, "'%s' exists and is not %s: it is not overwritten", path, what);
}

/* What is being written; more at once than anybody writes. */
enum { MOST_UNFINISHED = 64 };
static _Atomic(const char *) unfinished[MOST_UNFINISHED];

static void claim(const char *path) {
    for (int i = 0; i < MOST_UNFINISHED; i++) {
        const char *none = NULL;
        if (atomic_compare_exchange_strong(&unfinished[i], &none, path)) {
            return;
        }
    }
}

void output_keep(const struct output *out) {
    for (int i = 0; i < MOST_UNFINISHED; i++) {
        const char *same = out->beside;
        if (atomic_compare_exchange_strong(&unfinished[i], &same, NULL)) {
            return;
        }
    }
}

void output_abandon(void) {
    for (int i = 0; i < MOST_UNFINISHED; i++) {
        const char *path = atomic_exchange(&unfinished[i], NULL);
        if (path != NULL) {
            unlink(path);
        }
    }
}

/* The length of the folder's part of a path, its slash included. */
static size_t folder_length(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? (size_t)(slash + 1 - path) : 0;
}

/* The descriptor of ours that a path stands for, such as /dev/stdout and /dev/fd/3; -1: none. It is
 * written through itself: opened anew, a file would be written from its begin. */
static int descriptor_of(const char *path) {
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/", "/proc/thread-self/fd/"};
    if (strcmp(path, "/dev/stdout") == 0 || strcmp(path, "/dev/stderr") == 0) {
        return strcmp(path, "/dev/stdout") == 0 ? STDOUT_FILENO : STDERR_FILENO;
    }
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        const size_t n = strlen(folders[i]);
        uint64_t number = 0;
        if (strncmp(path, folders[i], n) == 0 && num_u64(path + n, INT_MAX, &number)) {
            return (int)number;
        }
    }
    return -1;
}

/* Where a path leads: of links the file at their end, which may not be there yet. */
static int follow_links(const char *path, char target[OUTPUT_PATH_CHARS], struct err *err) {
    enum { MOST_LINKS = 40 }; /* as Linux has it */
    char link[OUTPUT_PATH_CHARS];
    ssize_t n;
    for (int i = 0; (n = readlink(target, link, sizeof link - 1)) >= 0; i++) {
        const size_t folder = link[0] == '/' ? 0 : folder_length(target);
        link[n] = '\0';
        if (i == MOST_LINKS || folder + (size_t)n >= OUTPUT_PATH_CHARS) {
            return err_world(err, "cannot write '%s': %s", path, strerror(ELOOP));
        }
        memcpy(target + folder, link, (size_t)n + 1);
    }
    return 0;
}

/* A new file of a unique name in the target's folder: its descriptor, or -1 with errno. As with
 * open, it has the mode of the file that it will replace, else the one that umask leaves. */
static int open_beside(struct output *out, const struct stat *replaced) {
    enum { MOST_TRIES = 100, MOST_NAME = 200 };
    const size_t folder = folder_length(out->target);
    for (int i = 0; i < MOST_TRIES; i++) {
        uint32_t number = 0;
        if (!system_random(&number, sizeof number)) {
            return -1;
        }
        int n = snprintf(out->beside, sizeof out->beside, "%.*s%.*s.part-%08" PRIx32, (int)folder,
                         out->target, MOST_NAME, out->target + folder, number);
        if (n >= (int)sizeof out->beside) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int file = open(out->beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (file >= 0 && replaced != NULL) {
            (void)fchmod(file, replaced->st_mode & 0777);
        }
        if (file >= 0 || errno != EEXIST) {
            return file;
        }
    }
    return -1;
}

static int cannot_write(const char *path, int cause, struct err *err) {
    return err_world(err, "cannot write '%s': %s", path, strerror(cause));
}

static int begin(const char *path, bool is_file, struct output *out, int *file, struct err *err) {
    struct stat found;
    *out = (struct output){.path = path};
    if (strlen(path) >= OUTPUT_PATH_CHARS) {
        return err_usage(err, "'%.60s...' is too long for the name of a file", path);
    }
    const int descriptor = descriptor_of(path);
    if (descriptor >= 0 && !is_file) {
        fflush(stdout);
        *file = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
        return *file >= 0 ? 0 : cannot_write(path, errno, err);
    }
    snprintf(out->target, sizeof out->target, "%s", path);
    const bool is_there = stat(path, &found) == 0;
    if ((!is_there || S_ISREG(found.st_mode)) && follow_links(path, out->target, err) != 0) {
        return err_status(err);
    }
    if (is_there && !S_ISREG(found.st_mode) && is_file) {
        return err_world(err, "cannot write '%s': it is not a file", path);
    }
    if (is_there && !S_ISREG(found.st_mode)) {
        const int wait = wait_begin();
        *file = open(out->target, O_WRONLY | O_CLOEXEC);
        wait_end(wait);
        return *file >= 0 ? 0 : cannot_write(path, errno, err);
    }
    if (is_there && access(out->target, W_OK) != 0) {
        return cannot_write(path, errno, err);
    }
    *file = open_beside(out, is_there ? &found : NULL);
    if (*file < 0) {
        const int cause = errno;
        out->beside[0] = '\0';
        return is_there ? err_world(err, "cannot write '%s': no file can be made in its folder: %s",
                                    path, strerror(cause))
                        : cannot_write(path, cause, err);
    }
    claim(out->beside);
    return 0;
}

int output_open(const char *path, struct output *out, struct err *err) {
    int file = -1;
    if (begin(path, false, out, &file, err) != 0) {
        return err_status(err);
    }
    out->file = mem_given(fdopen(file, "w"));
    return 0;
}

int output_reserve(const char *path, struct output *out, struct err *err) {
    int file = -1;
    if (begin(path, true, out, &file, err) != 0) {
        return err_status(err);
    }
    close(file);
    return 0;
}

int output_grow(const char *path, const char *who, FILE **file, struct err *err) {
    struct stat held, named = {0};
    int descriptor = -1;
    *file = NULL;
    do { /* again where who had it removed it, done, before it was locked here */
        if (descriptor >= 0) {
            close(descriptor);
        }
        descriptor =
            open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        if (descriptor < 0) {
            return errno == ELOOP ? err_world(err, "cannot write '%s': it is a link", path)
                                  : cannot_write(path, errno, err);
        }
        if (fstat(descriptor, &held) != 0 || !S_ISREG(held.st_mode)) {
            close(descriptor);
            return err_world(err, "cannot write '%s': it is not a file", path);
        }
        if (flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            close(descriptor);
            return err_world(err, "'%s' is being written by another %s", path, who);
        }
    } while (lstat(path, &named) != 0 || named.st_dev != held.st_dev ||
             named.st_ino != held.st_ino);
    *file = mem_given(fdopen(descriptor, "a+"));
    return 0;
}

int output_close(struct output *out, bool keeps, struct err *err) {
    const bool is_beside = out->beside[0] != '\0';
    bool failed = out->file != NULL && ferror(out->file) != 0;
    failed = (out->file != NULL && fclose(out->file) != 0) || failed;
    failed = failed || (keeps && is_beside && rename(out->beside, out->target) != 0);
    int cause = errno;
    if (is_beside && (failed || !keeps)) {
        unlink(out->beside);
    }
    output_keep(out);
    return failed && keeps ? cannot_write(out->path, cause, err) : 0;
}

void output_csv_text(FILE *out, const char *text) {
    if (strpbrk(text, ",\"\n\r") == NULL) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (const char *c = text; *c != '\0'; c++) {
        fputs(*c == '"' ? "\"\"" : (char[]){*c, '\0'}, out);
    }
    fputc('"', out);
}

void output_xml_text(FILE *out, const char *text) {
    static const char special[] = "&<>\"'";
    static const char *const written[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    for (const char *c = text; *c != '\0'; c++) {
        const char *at = strchr(special, *c);
        fputs(at != NULL ? written[at - special] : (char[]){*c, '\0'}, out);
    }
}
