/* The tables of a results database, as SQL. The columns of `requests` are those of
 * sim/serve/request.def; the number of the schema is that of its newest column or
 * change.
 *
 * Schema 1 had no `identity`, schema 2 did not know where texts end, schema 3 did not know which
 * positions a step kept and committed, schema 4 had no checksums and did not know which prefixes
 * requests found (prefix_tokens NULL), schema 5 not what they shared with whom (shared_tokens,
 * shared_with and session NULL), schema 6 not by which request's end an arrival became known,
 * schema 7 of positions' outcomes commits alone, schema 8 no deadlines, priorities or predictions,
 * schema 9 nothing that was swapped out, schema 10 not how requests asked for their tokens to be
 * drawn. They are read as they are, and changed to the newest when something is recorded.
 *
 * Rows of a run are clustered by (run, number), so that recording appends and reading scans.
 * Integers in blobs are LEB128 varints. A step's batch is kept once in `members` as long as it does
 * not change on its replica: pairs of request id and tokens it commits in one step. A step's
 * `positions` are those of its members, where they were followed: of each the length of its active
 * block, 0 where the step was none of it, and a bit for each position that it kept after an
 * eviction, then for each that it committed, the lowest bit of a byte first; after those of all
 * members, under cache policies that read them, the entropies of what was committed
 * (analysis/store/position_bytes.h); NULL: only counts. `outcomes`, of as many positions, is which
 * of them a step revised and masked again; NULL: none. Of a step ahead of which requests were
 * swapped out or brought back, `swaps` says how many, and what it took. Requests that have left are
 * numbered from 0 in that order. A run of a device that is recorded while it goes on, with its
 * steps, has a row for each request under way as well, of number -1 - id and in state queued, which
 * goes when the request leaves. What the policies decided, admissions, rejections and batches, is
 * the view `decisions`. `identity` is the digest of what a run was made of, whose parts stand in
 * its summary (analysis/identity.h); NULL: it is not known. `incomplete` says why a run was cut
 * short; NULL: it is whole. `rows_sha256` is over the run's rows in the other tables, NULL while it
 * is being recorded, and `sha256` over its row in `runs`, without its number
 * (analysis/store/store_digest.c); NULL: an older unmask recorded it. */
#ifndef UNMASK_ANALYSIS_STORE_SCHEMA_H
#define UNMASK_ANALYSIS_STORE_SCHEMA_H

#include <stdint.h>

enum { SCHEMA_APPLICATION_ID = 0x756e6d6b }; /* "unmk" */

/* The number of this program's schema. */
int64_t schema_version(void);

/* SQL, which the caller frees: that makes the tables of an empty database; that changes one of a
 * version to the next; and views of today's columns over an older one, which stays as it is. */
char *schema_create(void);
char *schema_change(int64_t version);
char *schema_views(int64_t version);

#endif
