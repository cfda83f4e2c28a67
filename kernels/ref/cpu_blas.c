#include "kernels/ref/cpu_blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim/base/err.h"
#include "sim/base/system.h"

#ifndef UNMASK_BLAS_DIR
#define UNMASK_BLAS_DIR "" /* where pkg-config said that it is, with a slash */
#endif

/* Address space that OpenBLAS takes, as peaks of VmSize say of 0.3.13 to 0.3.34 on x86-64 (168 to
 * 300 MiB with one thread, 136 to 139 more with two), and what its libraries take in addition. */
enum { MIB = 1 << 20, FIRST_MIB = 340, MORE_MIB = 144, MOST_THREADS = 1024 };

/* Where it is found by the loader, and where it was when this was compiled. */
#ifdef __APPLE__
static const char *const names[] = {"libopenblas.dylib", UNMASK_BLAS_DIR "libopenblas.dylib",
                                    "/opt/homebrew/opt/openblas/lib/libopenblas.dylib"};
#else
static const char *const names[] = {"libopenblas.so.0", UNMASK_BLAS_DIR "libopenblas.so.0",
                                    "libopenblasp.so.0", "libopenblas.so"};
#endif

static blas_product start_and_multiply;
blas_product *blas_sgemm = start_and_multiply;

static struct {
    pthread_mutex_t lock;
    bool is_loaded;
} blas = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool has_room(size_t bytes) {
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return room != MAP_FAILED && munmap(room, bytes) == 0;
}

/* The one that is packed with the program, else the system's. */
static void *load(void) {
    char path[4096];
    void *library = system_beside("libunmask_blas.so", path, sizeof path)
                        ? dlopen(path, RTLD_NOW | RTLD_LOCAL)
                        : NULL;
    for (size_t i = 0; library == NULL && i < sizeof names / sizeof names[0]; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

/* A product that is too large for kernels that need no room of their own: it takes the room that it
 * keeps from then on. */
static bool take_room(blas_product *product) {
    const int m = 16, n = 256, k = 512;
    const float one = 1, zero = 0;
    float *of = calloc((size_t)n * k + (size_t)m * n, sizeof *of);
    if (of != NULL) {
        product("T", "N", &m, &n, &k, &one, of, &k, of, &k, &zero, of + (size_t)n * k, &m);
    }
    free(of);
    return of != NULL;
}

/* With the lock held. More threads than one only where somebody asks for them. */
static bool start(char *text, size_t size) {
    const char *asked = getenv("OPENBLAS_NUM_THREADS");
    long n = asked != NULL ? strtol(asked, NULL, 10) : 1;
    n = n < 1 ? 1 : n > MOST_THREADS ? MOST_THREADS : n;
    const size_t mib = FIRST_MIB + (size_t)(n - 1) * MORE_MIB;
    if (!has_room(mib * MIB)) {
        snprintf(text, size,
                 "OpenBLAS wants %zu MiB of address space for %ld thread%s, which are not to be "
                 "had (ulimit -v?)",
                 mib, n, n > 1 ? "s" : "");
        return false;
    }
    if (asked == NULL) { /* for as long as it looks: children have what they had */
        setenv("OPENBLAS_NUM_THREADS", "1", 1);
    }
    void *library = load();
    if (asked == NULL) {
        unsetenv("OPENBLAS_NUM_THREADS");
    }
    blas_product *product = NULL;
    void *symbol = library != NULL ? dlsym(library, "sgemm_") : NULL;
    memcpy(&product, &symbol, sizeof product);
    if (product == NULL) {
        const char *reason = dlerror();
        snprintf(text, size,
                 "it multiplies by OpenBLAS, which cannot be loaded: install libopenblas0 "
                 "(Debian) or openblas (Fedora, conda-forge, Homebrew) (%.80s)",
                 reason != NULL ? reason : "it has no sgemm_");
        return false;
    }
    if (!take_room(product)) {
        snprintf(text, size, "there is no memory for OpenBLAS");
        return false;
    }
    blas_sgemm = product;
    return blas.is_loaded = true;
}

bool blas_start(char *text, size_t size) {
    pthread_mutex_lock(&blas.lock);
    bool is_started = blas.is_loaded;
    bool is_there = is_started || start(text, size);
    pthread_mutex_unlock(&blas.lock);
    if (is_started && !has_room((size_t)MORE_MIB * MIB)) {
        snprintf(text, size,
                 "OpenBLAS wants %d MiB of address space for each device, which are not to be had "
                 "(ulimit -v?)",
                 MORE_MIB);
        return false;
    }
    return is_there;
}

/* Of callers that open no device: tests of the kernels. */
static void start_and_multiply(const char *transpose_a, const char *transpose_b, const int *m,
                               const int *n, const int *k, const float *alpha, const float *a,
                               const int *lda, const float *b, const int *ldb, const float *beta,
                               float *c, const int *ldc) {
    char text[256];
    const bool is_there = blas_start(text, sizeof text);
    ASSERT(is_there);
    blas_sgemm(transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
