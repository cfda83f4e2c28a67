/* What plug-ins do wrong only where no exercise reaches: the word in UNMASK_CRIME, done once. */
#ifndef UNMASK_TESTS_PLUGINS_CRIME_H
#define UNMASK_TESTS_PLUGINS_CRIME_H

#define _GNU_SOURCE
#include <fenv.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/plugins/bad.h"

static inline int is_crime(const char *name) {
    const char *crime = getenv("UNMASK_CRIME");
    return crime != NULL && strcmp(crime, name) == 0;
}

static int overflow(int depth);
static int (*volatile again)(int) = overflow;
static void (*volatile let_go)(void *) = free;

static int overflow(int depth) {
    volatile char much[65536];
    much[depth % 100] = (char)depth;
    return again(depth + 1) + much[depth % 100];
}

/* Those that any callback can do. */
static inline void common_crime(const void *given) {
    volatile int zero = 0;
    if (is_crime("segv")) {
        *(volatile int *)(uintptr_t)(zero + 8) = 1;
    } else if (is_crime("fpe")) {
        raise(SIGFPE);
    } else if (is_crime("ill")) {
        __builtin_trap();
    } else if (is_crime("bus")) {
        raise(SIGBUS);
    } else if (is_crime("abort")) {
        abort();
    } else if (is_crime("overflow")) {
        zero = overflow(1);
    } else if (is_crime("exit")) {
        exit(0);
    } else if (is_crime("_exit")) {
        _exit(0);
    } else if (is_crime("quick_exit")) {
        quick_exit(0);
    } else if (is_crime("hang")) {
        while (zero == 0) {
        }
    } else if (is_crime("sleep")) {
        for (;;) {
            pause();
        }
    } else if (is_crime("doze")) {
        static int is_rested;
        const struct timespec nap = {.tv_sec = 1, .tv_nsec = 200000000};
        is_rested = is_rested || nanosleep(&nap, NULL) == 0;
    } else if (is_crime("rounding")) {
        fesetround(FE_UPWARD);
    } else if (is_crime("flush")) {
        __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
    } else if (is_crime("traps")) {
        feenableexcept(FE_DIVBYZERO);
    } else if (is_crime("free")) {
        let_go((char *)(uintptr_t)given + 4);
    } else if (is_crime("print")) {
        printf("a plug-in's own words\n");
    } else if (is_crime("close")) {
        for (int fd = 0; fd < 16; fd++) {
            close(fd);
        }
    }
}

#endif
