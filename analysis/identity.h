/* The identity of a run: its resolved configuration, the content of every file it read and the
 * build that ran it, as the JSON object that every summary carries:
 *   {"digest": SHA-256 over all of it,
 *    "build": {"version", "commit", "dirty", "sources"},
 *    "inputs": [{"role", "path", "sha256"}, ...]}
 * Of the build only version and sources count: commits that changed no source are one build. Runs
 * of equal digests have the same result. A digest is null when the content of a file cannot be read
 * twice; such a run equals no other. */
#ifndef UNMASK_ANALYSIS_IDENTITY_H
#define UNMASK_ANALYSIS_IDENTITY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "sim/base/input/inputs.h"

/* `config` is the resolved configuration as text. The object is the caller's. */
json_t *identity_json(const char *config, const struct inputs *inputs);

/* Its digest; "" where it has none, also for NULL. */
const char *identity_digest(const json_t *identity);

/* In what two runs of one configuration differ. */
struct identity_difference {
    bool build; /* another version or other sources */
    bool inputs;
    char text[512]; /* "mine.so has changed", "another build (commit ...)", ...; "": in nothing */
};

/* What is other now than it was `then`. Of files that only one of them read, only those count that
 * were read now; where `all` is set, the others too. NULL for `then`: nothing is known of it. */
struct identity_difference identity_compare(const json_t *then, const json_t *now, bool all);

/* "a1b2c3d4e5f6, unmask 0.1.0, commit 0123456789ab (changed)" */
void identity_describe(const json_t *identity, char *text, size_t size);

#endif
