/* The positions of a step as bytes, for tapes and databases: of each member the length of its
 * window as a varint (varint.h), a bit for each position that it kept and one for each that it
 * committed; then, where the cache policy reads entropies, those of what was committed, four bytes
 * each (IEEE 754, the lowest byte first); then, where the scheduler looks at masked positions, a
 * byte of its own and the confidences of all that was kept. What else became of positions stands
 * apart: of each member a bit for each position that it revised and one for each that it masked
 * again. */
#ifndef UNMASK_ANALYSIS_STORE_POSITION_BYTES_H
#define UNMASK_ANALYSIS_STORE_POSITION_BYTES_H

#include <stddef.h>

#include "sim/serve/record.h"

/* No more bytes than these for `n` members. */
size_t position_bytes_most(const struct step_positions *positions, uint32_t n);

/* Writes them and returns how many bytes it took. */
size_t position_bytes_put(unsigned char *to, const struct step_positions *positions, uint32_t n);

/* Reads `n` members from exactly these bytes; false where they are something else. The arrays of
 * `positions` grow as needed; it starts zeroed. */
bool position_bytes_get(const unsigned char *at, const unsigned char *end, uint32_t n,
                        struct step_positions *positions);

/* What became of positions besides commits: writes it, and returns how many bytes it took, no more
 * than position_bytes_most; 0: nothing. */
size_t outcome_bytes_put(unsigned char *to, const struct step_positions *positions, uint32_t n);

/* Reads it from exactly these bytes into what position_bytes_get read; false where they are
 * something else. */
bool outcome_bytes_get(const unsigned char *at, const unsigned char *end, uint32_t n,
                       struct step_positions *positions);

struct step_positions positions_copied(const struct step_positions *from, uint32_t n);
void positions_free(struct step_positions *positions);

#endif
