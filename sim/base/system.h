/* What differs between operating systems: Linux, where everything is tested, and macOS, where the
 * program is only compiled (`make mac-check`). No other code depends on it. */
#ifndef UNMASK_SIM_BASE_SYSTEM_H
#define UNMASK_SIM_BASE_SYSTEM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

/* The path of the program that runs, without links; false: it is not known, or too long. */
bool system_program(char *path, size_t size);

/* What starts it once more, on Linux even where its file was replaced meanwhile; may be `path`. */
const char *system_itself(char *path, size_t size);

/* The path of a library of ours: in the program's folder, in lib/unmask of an installation, in
 * kernels/ of a build, or two folders up (for a test). False where it is in none of them. */
bool system_beside(const char *name, char *path, size_t size);

/* "SEGV" of SIGSEGV; "unknown" of a number that has no name. */
const char *system_signal_name(int signal);

/* An empty file in memory that has no other name and that programs started here do not get; -1 and
 * errno where there is none. */
int system_memory_file(void);

/* Writes all of them, however many calls that takes; false and errno where it cannot. */
bool system_write(int file, const void *bytes, size_t size);

/* The environment, as posix_spawn takes it. */
char **system_environment(void);

/* Ends the program with nothing done before; exit() does the same once leave_at_once was called. */
_Noreturn void system_leave(int status);
void system_leave_at_once(void);

/* Processor time that another program has used; 0: not known. */
int64_t system_processor_ns(pid_t program);

/* How long the object file says that an exported object is; false: it does not say. On macOS no
 * file does, and every object is taken to be long enough. */
bool system_symbol_bytes(const void *symbol, uint64_t *bytes);

/* Threads of the program that run; 0: not known. */
unsigned system_threads(void);

/* A child calls it: it gets `signal` when its parent ends. macOS has no such thing. */
void system_end_with_parent(int signal);

/* What is freed is kept for what is allocated next, instead of being given back page by page. */
void system_keep_memory(void);

/* How long the machine has slept since it started, but for a constant: 0 where it is not known. */
int64_t system_slept_ns(void);

/* Cores that may run the program, at least one. */
unsigned system_cores(void);

/* The calling thread, and those that it starts from now on, run soon after they have something to
 * do: Linux lets sleeps end 50 us late unless it is told not to, and lets others finish a slice of
 * some milliseconds unless ours are shorter (6.12 and later). Neither gives a thread a larger
 * share. */
void system_run_promptly(void);

/* Sleeps, by the clock that never goes back; a signal may end it early. */
void system_nap(int64_t ns);

/* A condition that is waited for by the clock that never goes back, at most `ns`. */
void system_condition_init(pthread_cond_t *condition);
void system_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t ns);

/* When a file's content last changed. */
struct timespec system_changed(const struct stat *facts);

/* The processor's name; "CPU" where it is not known. */
void system_processor_name(char *out, size_t size);

/* Bytes of the memory that the machine has; 0: not known. */
int64_t system_total_bytes(void);

/* Bytes of memory that programs could have, and of the processor's second cache; 0: not known. */
int64_t system_free_bytes(void);
int64_t system_l2_bytes(void);

/* A stream over `state` that reads by `read` (bytes, 0 at the end, -1), goes to its begin and
 * nowhere else by `rewind`, and ends by `close`; NULL: no memory. */
struct system_reader {
    ssize_t (*read)(void *state, char *out, size_t n);
    int (*rewind)(void *state);
    int (*close)(void *state);
};
FILE *system_stream(const struct system_reader *reader, void *state);

/* Unpredictable bytes; false with errno where there are none. */
bool system_random(void *out, size_t n);

/* Frees a tree of tsearch, and by `free_item` what it holds. */
void system_tree_free(void *root, void (*free_item)(void *item));

/* The logarithm of gamma of a positive number, on any number of threads. */
double system_log_gamma(double x);

/* The last `c` within `n` bytes; NULL: there is none. */
const void *system_last(const void *bytes, int c, size_t n);

/* The day in UTC, "2026-11-28". Returns `text`. */
enum { SYSTEM_DAY_CHARS = 16 };
const char *system_today(char text[SYSTEM_DAY_CHARS]);

#endif
