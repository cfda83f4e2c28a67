/* Faults that the environment asks of build/asan/unmask-faults (`make faults`):
 *
 *     UNMASK_FAULT=KIND:N[:HOW]   what goes wrong at the N-th chance, counted from 1
 *     UNMASK_FAULT_LOG=FILE       FILE gets a line "fired KIND N PLACE" when it does, and at the
 *                                 program's end "chances KIND=COUNT ..." of every kind
 *
 *     alloc    allocations, of the program and of SQLite, jansson, GSL, PCRE2 and utf8proc
 *     file     opening, writing, closing, syncing and renaming of files that are not databases,
 *              threads and child processes
 *     device   calls to the CPU back end
 *     io       SQLite's calls to the operating system
 *     write    SQLite's writes
 *
 * HOW: once (the default): it fails; on: it and all that follow; kill, int, term, hup: it does not
 * fail, the program gets that signal there. Of io also power: the power is cut, so that of what was
 * written since the last sync each sector may be lost; lie: the same, and no sync before had an
 * effect. Of write also short: it fails after its first half was written; full: it and all that
 * follow find no space; torn: some of its sectors are written and the program is killed.
 *
 * What is random, follows from N. Nothing of this is in the program that is shipped: the linker
 * wraps the calls (--wrap), a VFS lies over SQLite's own. */
#ifndef UNMASK_TESTS_TORTURE_FAULT_H
#define UNMASK_TESTS_TORTURE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

enum fault_kind { FAULT_ALLOC, FAULT_FILE, FAULT_DEVICE, FAULT_IO, FAULT_WRITE, FAULT_KINDS };

enum fault_how {
    HOW_ONCE,
    HOW_ON,
    HOW_KILL,
    HOW_INT,
    HOW_TERM,
    HOW_HUP,
    HOW_POWER,
    HOW_LIE,
    HOW_SHORT,
    HOW_FULL,
    HOW_TORN,
};

/* One more chance of this kind, at a place named so: whether it goes wrong. */
bool fault_hits(enum fault_kind kind, const char *place);

/* What was asked for. */
extern enum fault_how fault_how;

/* Whether the power will be cut: what was written and not synced is to be remembered. */
bool fault_cuts_power(void);

uint64_t fault_random(void);
_Noreturn void fault_kill(void);

/* Hang the faults into SQLite and jansson, before either is used. */
void fault_sqlite(void);
void fault_libraries(void);
void fault_device(void);

#endif
