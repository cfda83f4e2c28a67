/* The files that a run reads: who opens one notes it here, with the digest of its content.
 *
 * What is digested is what is read: the open file, not what its name leads to a moment later. A
 * run is composed on one thread, which collects what is noted between inputs_collect and its
 * undoing; readers need not know for whom they read. Outside of a collection nothing is noted or
 * digested. A file that did not change is digested once a process, however many runs read it: it is
 * recognised by device, inode, size and time of change.
 *
 * Files of the data folder are named relative to it, others as they were given, so that what is
 * noted does not depend on the machine. */
#ifndef UNMASK_SIM_BASE_INPUT_INPUTS_H
#define UNMASK_SIM_BASE_INPUT_INPUTS_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/err.h"
#include "sim/base/input/sha256.h"

/* `role` is one of a few words, such as "profile" or "trace". The digest is "" where the content
 * cannot be read twice, as that of a pipe, or could not be read for it. */
struct input_file {
    const char *role;
    char *path;
    char sha256[SHA256_HEX_CHARS];
};

/* By role and path; each file once a role. Starts zeroed. */
struct inputs {
    struct input_file *items;
    size_t n, room;
};

/* From now on this thread notes what it opens in `into`; NULL: nowhere. Returns where it did
 * before, to be handed back. */
struct inputs *inputs_collect(struct inputs *into);

/* Notes a file that is open, by what it holds, whatever its name leads to by now; it is read from
 * its begin, and its place stays. A file that is noted again with another content, because it
 * changed between, has no digest. `role` is not copied. */
void inputs_note_open(const char *role, const char *path, int file);

/* The same around the reading of a file by others, who open it by its name (SQLite, the dynamic
 * loader): opens and notes it, and keeps it. A descriptor for inputs_release, or -1: there is no
 * such file, which is its reader's to report. */
int inputs_hold(const char *role, const char *path);

/* Ends it: ERR_WORLD where the name leads to another file by now. */
int inputs_release(int file, const char *path, struct err *err);

/* Whether a name still leads to the file that is open. */
bool inputs_is_still(int file, const char *path);

/* Notes a file of which only a part is covered: the role says which. */
void inputs_note_digest(const char *role, const char *path, const char *sha256);

/* The digest of a regular file that is open (-1: none is), from its begin; its place stays. False
 * when it cannot be read. */
bool inputs_digest_open(int file, char sha256[SHA256_HEX_CHARS]);

/* The digest of a file among those noted, whatever its role; "" where it is not among them. */
const char *inputs_digest_of(const struct inputs *inputs, const char *path);

void inputs_fini(struct inputs *inputs);

#endif
