/* The library that the CPU multiplies by: where it is started, and what is said where it is not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kernels/ref/cpu_blas.h"
#include "tests/support/suite.h"

#ifndef __SANITIZE_ADDRESS__ /* which takes all address space there is */
static void leave_mib(size_t mib) {
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    ck_assert(file != NULL && fscanf(file, "%zu", &pages) == 1);
    fclose(file);
    const rlim_t bytes = pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)mib << 20);
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &(struct rlimit){bytes, RLIM_INFINITY}), 0);
}

/* What OpenBLAS is asked for, and what it says where so much address space is not to be had. */
static const struct {
    const char *threads, *says;
} rooms[] = {{NULL, "340 MiB of address space for 1 thread,"},
             {"1", "340 MiB of address space for 1 thread,"},
             {"2", "484 MiB of address space for 2 threads,"},
             {"3", "628 MiB of address space for 3 threads,"},
             {"0", "340 MiB of address space for 1 thread,"},
             {"-7", "340 MiB of address space for 1 thread,"},
             {"1024", "147652 MiB of address space for 1024 threads,"},
             {"1025", "147652 MiB of address space for 1024 threads,"}};

TEST_EACH(openblas_is_started_where_there_is_room, sizeof rooms / sizeof rooms[0]) {
    char text[256] = "";
    if (rooms[_i].threads != NULL) {
        setenv("OPENBLAS_NUM_THREADS", rooms[_i].threads, 1);
    } else {
        unsetenv("OPENBLAS_NUM_THREADS");
    }
    leave_mib(strtoul(rooms[_i].says, NULL, 10) - 20);
    ck_assert(!blas_start(text, sizeof text));
    ck_assert_msg(strstr(text, rooms[_i].says) != NULL, "%s", text);
    if (_i > 1) {
        return;
    }
    leave_mib(500);
    ck_assert_msg(blas_start(text, sizeof text), "%s", text);
    const char *threads = getenv("OPENBLAS_NUM_THREADS");
    ck_assert(rooms[_i].threads == NULL ? threads == NULL : strcmp(threads, "1") == 0);
    ck_assert_msg(blas_start(text, sizeof text), "%s", text);
    leave_mib(100); /* another device's products take 144 */
    ck_assert(!blas_start(text, sizeof text));
    ck_assert_msg(strstr(text, "144 MiB of address space for each device") != NULL, "%s", text);
    leave_mib(160);
    ck_assert_msg(blas_start(text, sizeof text), "%s", text);
}
#endif

SUITE("blas")
