/* Where a server listens, the library that answers there, and the key that it asks for. */
#ifndef UNMASK_EXPERIMENTS_SERVE_LISTEN_H
#define UNMASK_EXPERIMENTS_SERVE_LISTEN_H

#include "experiments/serve/http.h"
#include "sim/base/err.h"

enum { LISTEN_CHARS = 80 };

/* "127.0.0.1:8000" or "[::1]:8000", port 0: a free one. `*file` is the caller's, `shown` where it
 * is. ERR_USAGE: it is no such address; ERR_WORLD: it is taken, or not this machine's. */
int listen_on(const char *address, int *file, char shown[LISTEN_CHARS], struct err *err);

/* libunmask_http.so; ERR_WORLD says what is missing. */
int http_load(const struct http_library **out, struct err *err);

/* The one line of a file that no one else may read; the caller frees it. */
int key_read(const char *path, char **out, struct err *err);

/* As many open files as the system lets the program have; returns how many. */
uint64_t files_raise(void);

#endif
