#include "experiments/serve/listen.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/base/input/text.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/base/system.h"

static const char library_name[] = "libunmask_http.so";
enum { BACKLOG = 1024, MOST_KEY_BYTES = 4096 };

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* HOST:PORT, numbers both. */
static int parse(const char *text, union address *out, socklen_t *size, struct err *err) {
    char host[64];
    uint64_t port;
    const char *colon = strrchr(text, ':');
    const size_t n = colon != NULL ? (size_t)(colon - text) : 0;
    memset(out, 0, sizeof *out);
    if (colon != NULL && n < sizeof host && num_u64(colon + 1, 65535, &port)) {
        const bool is_v6 = n > 2 && text[0] == '[' && text[n - 1] == ']';
        snprintf(host, sizeof host, "%.*s", is_v6 ? (int)n - 2 : (int)n, is_v6 ? text + 1 : text);
        if (is_v6 && inet_pton(AF_INET6, host, &out->v6.sin6_addr) == 1) {
            out->v6.sin6_family = AF_INET6;
            out->v6.sin6_port = htons((uint16_t)port);
            *size = sizeof out->v6;
            return 0;
        }
        if (!is_v6 && inet_pton(AF_INET, host, &out->v4.sin_addr) == 1) {
            out->v4.sin_family = AF_INET;
            out->v4.sin_port = htons((uint16_t)port);
            *size = sizeof out->v4;
            return 0;
        }
    }
    return err_usage(err,
                     "--listen: '%.80s' is not an address and a port, such as 127.0.0.1:8000 or "
                     "[::1]:8000",
                     text);
}

static void show(const union address *address, char shown[LISTEN_CHARS]) {
    char host[INET6_ADDRSTRLEN] = "";
    const bool is_v6 = address->any.sa_family == AF_INET6;
    inet_ntop(address->any.sa_family,
              is_v6 ? (const void *)&address->v6.sin6_addr : (const void *)&address->v4.sin_addr,
              host, sizeof host);
    snprintf(shown, LISTEN_CHARS, is_v6 ? "[%s]:%u" : "%s:%u", host,
             (unsigned)ntohs(is_v6 ? address->v6.sin6_port : address->v4.sin_port));
}

int listen_on(const char *address, int *file, char shown[LISTEN_CHARS], struct err *err) {
    union address where;
    socklen_t size = 0;
    const int on = 1;
    if (parse(address, &where, &size, err) != 0) {
        return err_status(err);
    }
    *file = socket(where.any.sa_family, SOCK_STREAM, 0);
    if (*file < 0) {
        return err_world(err, "--listen: no socket: %s", strerror(errno));
    }
    (void)fcntl(*file, F_SETFD, FD_CLOEXEC);
    (void)setsockopt(*file, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(*file, &where.any, size) != 0 || listen(*file, BACKLOG) != 0 ||
        getsockname(*file, &where.any, &size) != 0) {
        const int cause = errno;
        close(*file);
        *file = -1;
        return err_world(err, "--listen: cannot listen on %.80s: %s", address,
                         cause == EADDRINUSE      ? "another program does"
                         : cause == EADDRNOTAVAIL ? "it is no address of this machine"
                                                  : strerror(cause));
    }
    show(&where, shown);
    return 0;
}

/* Next to the program, or where the system looks. */
int http_load(const struct http_library **out, struct err *err) {
    char path[2 * PATH_MAX];
    if (!system_beside(library_name, path, sizeof path)) {
        snprintf(path, sizeof path, "%s", library_name);
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return err_world(err,
                         "serve needs %s, which cannot be loaded (%s): `make` builds it where it "
                         "finds libmicrohttpd (Debian and Ubuntu: libmicrohttpd-dev; Fedora: "
                         "libmicrohttpd-devel)",
                         library_name, dlerror());
    }
    *out = dlsym(library, "unmask_http");
    return *out != NULL && (*out)->abi == HTTP_ABI
               ? 0
               : err_world(err, "%s is of another build of unmask", path);
}

int key_read(const char *path, char **out, struct err *err) {
    struct stat facts;
    size_t size;
    if (stat(path, &facts) == 0 && (facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        return err_world(
            err, "--api-key-file: others may read %s: `chmod 600` makes it its owner's", path);
    }
    char *text = text_read(path, NULL, MOST_KEY_BYTES, &size, err);
    if (text == NULL) {
        return err_status(err);
    }
    text[strcspn(text, "\r\n")] = '\0';
    if (text[0] == '\0' || strpbrk(text, " \t") != NULL) {
        free(text);
        return err_world(err, "--api-key-file: the first line of %s is no key", path);
    }
    *out = text;
    return 0;
}

uint64_t files_raise(void) {
    struct rlimit limit = {0};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
        (void)getrlimit(RLIMIT_NOFILE, &limit);
    }
    return (uint64_t)limit.rlim_cur;
}
