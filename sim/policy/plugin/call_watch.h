/* Watches a plug-in while it is called in a run: one that crashes, ends the program, never
 * returns or breaks a promise that is checked ends the run with one sentence: its path, its
 * callback and the number of the call; unfinished output files removed, status 1.
 *
 * None of our code runs after a crash or a broken promise: memory may hold anything. Recorded data
 * stay as after a kill. A plug-in's output goes to standard error. */
#ifndef UNMASK_SIM_POLICY_PLUGIN_CALL_WATCH_H
#define UNMASK_SIM_POLICY_PLUGIN_CALL_WATCH_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { CALL_LIMIT_S = 5 }; /* for one callback in a run, in which the machine may be busy */

/* Memory of ours that a call may not touch as it did, and what it did where it crashed there:
 * "wrote to the requests of the view, which it may only read,". */
struct call_place {
    const void *from;
    size_t bytes;
    const char *deed;
};
enum { CALL_MOST_PLACES = 32 };

/* The call of one thread. Read by the watch while it is under way. */
struct watched_call {
    const char *path;
    const char *volatile callback; /* under way, else NULL */
    volatile uint64_t n;           /* calls of this thread so far */
    unsigned rounding;             /* of the processor's floating point, before the call */
    struct call_place places[CALL_MOST_PLACES];
    unsigned n_places;
};

/* From now on. `stop`: set when the user wants the program to end; NULL: never. */
void call_watch_begin(const char *path);
void call_watch_interrupt(const volatile sig_atomic_t *stop);

/* This process is check-plugin's trial: a sentence that ends it goes into `out`, and who waits for
 * it limits the time of each call. */
void call_watch_trial(char *out, size_t size);
bool call_is_trial(void);

/* Around a call; `path` is borrowed for as long as the program runs. */
struct watched_call *call_enter(const char *path, const char *callback);
void call_leave(struct watched_call *call);

/* This thread's. */
struct watched_call *call_under_way(void);

/* A plug-in in the folder of the socket that this variable of the environment names asks a program
 * at its other end, which counts the time that it takes itself, without that in which it is
 * stopped: no limit of ours holds for it. */
#define CALL_ANSWERED_AT "UNMASK_POLICIES"
bool call_is_answered_elsewhere(const char *path);

/* Such a plug-in is told by this variable that it is exercised before a run, and may end that
 * process with this status once it has seen enough. */
#define CALL_IS_TRIAL "UNMASK_TRIAL"
enum { CALL_TRIAL_ENDED = 86 };

/* It broke a promise: ends the program. */
_Noreturn void call_broke(const struct watched_call *call, const char *callback, const char *format,
                          ...) __attribute__((format(printf, 3, 4)));

/* The plug-in cannot be called at all: ends the program with the sentence. */
_Noreturn void call_cannot(const char *sentence);

#endif
