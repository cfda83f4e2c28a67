#include "experiments/cli/libraries.h"

#include <fcntl.h>
#include <gsl/gsl_errno.h>
#include <jansson.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "experiments/cli/interrupt.h"
#include "sim/base/mem.h"
#include "sim/base/system.h"

static json_malloc_t json_memory;
static struct sqlite3_mem_methods sqlite_memory;

static void *for_json(size_t size) {
    return mem_given(json_memory(size));
}

static void *for_sqlite(int size) {
    return mem_given(sqlite_memory.xMalloc(size));
}

static void *more_for_sqlite(void *memory, int size) {
    return mem_given(sqlite_memory.xRealloc(memory, size));
}

/* Callers that look at GSL's codes themselves switch this handler off meanwhile. */
static void on_gsl(const char *reason, const char *file, int line, int code) {
    if (code == GSL_ENOMEM) {
        mem_out(0);
    }
    fprintf(stderr, "unmask: internal error: GSL: %s at %s:%d; please report it\n", reason, file,
            line);
    abort();
}

void libraries_start(void) {
    int nowhere;
    system_keep_memory();
    do {
        nowhere = open("/dev/null", O_RDWR);
    } while (nowhere >= 0 && nowhere <= STDERR_FILENO);
    if (nowhere >= 0) {
        close(nowhere);
    }
    interrupt_start();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    json_free_t json_free;
    json_get_alloc_funcs(&json_memory, &json_free);
    json_set_alloc_funcs(for_json, json_free);
    sqlite3_config(SQLITE_CONFIG_GETMALLOC, &sqlite_memory);
    struct sqlite3_mem_methods methods = sqlite_memory;
    methods.xMalloc = for_sqlite;
    methods.xRealloc = more_for_sqlite;
    sqlite3_config(SQLITE_CONFIG_MALLOC, &methods);
    gsl_set_error_handler(on_gsl);
}

/* Reports that the compiler's tools (coverage, sanitizers) make at a program's end, where they are
 * linked in. */
void __gcov_dump(void) __attribute__((weak));
void __lsan_do_leak_check(void) __attribute__((weak));

_Noreturn void libraries_leave(int status) {
    if (__lsan_do_leak_check != NULL) {
        __lsan_do_leak_check();
    }
    if (__gcov_dump != NULL) {
        __gcov_dump();
    }
    _exit(status);
}
