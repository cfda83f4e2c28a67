/* Allocations and files: what the program, and libraries in its name, ask of the C library. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit.h>
#include <gsl/gsl_multimin.h>
#include <gsl/gsl_rng.h>
#include <gsl/gsl_roots.h>
#include <jansson.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utf8proc.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tests/torture/fault.h"

enum { ERROR_SEEN = 0x20 }; /* glibc's _IO_ERR_SEEN */

/* A call that may find no memory, and one that may find the file system in its way. */
#define WRAP(kind, cause, type, name, failure, parameters, arguments)                              \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters {                                                                \
        if (fault_hits(kind, #name)) {                                                             \
            errno = cause;                                                                         \
            return failure;                                                                        \
        }                                                                                          \
        return __real_##name arguments;                                                            \
    }
#define ALLOC(type, name, parameters, arguments)                                                   \
    WRAP(FAULT_ALLOC, ENOMEM, type, name, NULL, parameters, arguments)
/* GSL's own way to say so. */
#define GSL(type, name, parameters, arguments)                                                     \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters {                                                                \
        if (fault_hits(FAULT_ALLOC, #name)) {                                                      \
            GSL_ERROR_VAL("as the test wants it", GSL_ENOMEM, NULL);                               \
        }                                                                                          \
        return __real_##name arguments;                                                            \
    }
#define FILES(type, name, failure, cause, parameters, arguments)                                   \
    WRAP(FAULT_FILE, cause, type, name, failure, parameters, arguments)

ALLOC(void *, malloc, (size_t size), (size))
ALLOC(void *, calloc, (size_t n, size_t size), (n, size))
ALLOC(void *, realloc, (void *memory, size_t size), (memory, size))
ALLOC(void *, aligned_alloc, (size_t align, size_t size), (align, size))
ALLOC(char *, strdup, (const char *text), (text))
ALLOC(char *, strndup, (const char *text, size_t n), (text, n))
ALLOC(FILE *, open_memstream, (char **text, size_t *size), (text, size))
ALLOC(FILE *, fmemopen, (void *memory, size_t size, const char *mode), (memory, size, mode))
GSL(gsl_vector *, gsl_vector_alloc, (const size_t n), (n))
GSL(gsl_matrix *, gsl_matrix_alloc, (const size_t n, const size_t m), (n, m))
GSL(gsl_rng *, gsl_rng_alloc, (const gsl_rng_type *type), (type))
GSL(gsl_root_fsolver *, gsl_root_fsolver_alloc, (const gsl_root_fsolver_type *type), (type))
GSL(gsl_multifit_linear_workspace *, gsl_multifit_linear_alloc, (const size_t n, const size_t p),
    (n, p))
GSL(gsl_multifit_robust_workspace *, gsl_multifit_robust_alloc,
    (const gsl_multifit_robust_type *type, const size_t n, const size_t p), (type, n, p))
GSL(gsl_multimin_fminimizer *, gsl_multimin_fminimizer_alloc,
    (const gsl_multimin_fminimizer_type *type, size_t n), (type, n))
ALLOC(pcre2_match_data *, pcre2_match_data_create_from_pattern_8,
      (const pcre2_code *code, pcre2_general_context *context), (code, context))
WRAP(FAULT_ALLOC, ENOMEM, utf8proc_ssize_t, utf8proc_map, UTF8PROC_ERROR_NOMEM,
     (const utf8proc_uint8_t *text, utf8proc_ssize_t n, utf8proc_uint8_t **out,
      utf8proc_option_t options),
     (text, n, out, options))
WRAP(FAULT_ALLOC, ENOMEM, ssize_t, getline, -1, (char **line, size_t *room, FILE *file),
     (line, room, file))
WRAP(FAULT_ALLOC, ENOMEM, ssize_t, __getdelim, -1, (char **line, size_t *room, int end, FILE *file),
     (line, room, end, file))
WRAP(FAULT_ALLOC, ENOMEM, int, glob, GLOB_NOSPACE,
     (const char *pattern, int flags, int (*error)(const char *path, int number), glob_t *out),
     (pattern, flags, error, out))
WRAP(FAULT_ALLOC, ENOMEM, void *, mmap, MAP_FAILED,
     (void *at, size_t size, int protection, int flags, int file, off_t offset),
     (at, size, protection, flags, file, offset))

FILES(FILE *, fopen, NULL, EMFILE, (const char *path, const char *mode), (path, mode))
FILES(FILE *, tmpfile, NULL, EMFILE, (void), ())
FILES(int, memfd_create, -1, EMFILE, (const char *name, unsigned flags), (name, flags))
FILES(int, mkstemp, -1, EACCES, (char *path), (path))
FILES(DIR *, opendir, NULL, EMFILE, (const char *path), (path))
FILES(ssize_t, read, -1, EIO, (int file, void *to, size_t n), (file, to, n))
FILES(ssize_t, pwrite, -1, EIO, (int file, const void *from, size_t n, off_t at),
      (file, from, n, at))
FILES(int, truncate, -1, EIO, (const char *path, off_t size), (path, size))
FILES(int, fsync, -1, EIO, (int file), (file))
FILES(int, ftruncate, -1, EIO, (int file, off_t size), (file, size))
FILES(int, rename, -1, EACCES, (const char *from, const char *to), (from, to))
FILES(int, mkdir, -1, EACCES, (const char *path, mode_t mode), (path, mode))
FILES(int, stat, -1, EACCES, (const char *path, struct stat *out), (path, out))
FILES(int, fstat, -1, EIO, (int file, struct stat *out), (file, out))
FILES(int, fseek, -1, EIO, (FILE * file, long at, int whence), (file, at, whence))
FILES(pid_t, fork, -1, EAGAIN, (void), ())
FILES(int, pthread_create, EAGAIN, EAGAIN,
      (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *state),
      (thread, attributes, run, state))
FILES(int, posix_spawnp, EAGAIN, EAGAIN,
      (pid_t * child, const char *program, const posix_spawn_file_actions_t *actions,
       const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]),
      (child, program, actions, attributes, arguments, environment))

/* Half of it arrives, and the stream is in error, as glibc has it. */
size_t __real_fwrite(const void *from, size_t size, size_t n, FILE *file);
size_t __wrap_fwrite(const void *from, size_t size, size_t n, FILE *file);
size_t __wrap_fwrite(const void *from, size_t size, size_t n, FILE *file) {
    if (fault_hits(FAULT_FILE, "fwrite")) {
        n = __real_fwrite(from, size, n / 2, file);
        file->_flags |= ERROR_SEEN;
        errno = ENOSPC;
        return n;
    }
    return __real_fwrite(from, size, n, file);
}

int __real_fflush(FILE *file);
int __wrap_fflush(FILE *file);
int __wrap_fflush(FILE *file) {
    if (file != NULL && fault_hits(FAULT_FILE, "fflush")) {
        file->_flags |= ERROR_SEEN;
        errno = ENOSPC;
        return EOF;
    }
    return __real_fflush(file);
}

/* The file is closed, and what was written last did not arrive. */
int __real_fclose(FILE *file);
int __wrap_fclose(FILE *file);
int __wrap_fclose(FILE *file) {
    bool is_hit = fault_hits(FAULT_FILE, "fclose");
    int status = __real_fclose(file);
    errno = is_hit ? ENOSPC : errno;
    return is_hit ? EOF : status;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    int mode = (flags & O_CREAT) != 0 ? va_arg(more, int) : 0;
    va_end(more);
    if (fault_hits(FAULT_FILE, "open")) {
        errno = EMFILE;
        return -1;
    }
    return __real_open(path, flags, mode);
}

pcre2_code *__real_pcre2_compile_8(PCRE2_SPTR pattern, PCRE2_SIZE n, uint32_t options, int *error,
                                   PCRE2_SIZE *place, pcre2_compile_context *context);
pcre2_code *__wrap_pcre2_compile_8(PCRE2_SPTR pattern, PCRE2_SIZE n, uint32_t options, int *error,
                                   PCRE2_SIZE *place, pcre2_compile_context *context);
pcre2_code *__wrap_pcre2_compile_8(PCRE2_SPTR pattern, PCRE2_SIZE n, uint32_t options, int *error,
                                   PCRE2_SIZE *place, pcre2_compile_context *context) {
    if (fault_hits(FAULT_ALLOC, "pcre2_compile")) {
        *error = PCRE2_ERROR_HEAP_FAILED;
        *place = 0;
        return NULL;
    }
    return __real_pcre2_compile_8(pattern, n, options, error, place, context);
}

static void *json_memory(size_t size) {
    return fault_hits(FAULT_ALLOC, "json") ? NULL : __real_malloc(size);
}

void fault_libraries(void) {
    json_set_alloc_funcs(json_memory, free);
}
