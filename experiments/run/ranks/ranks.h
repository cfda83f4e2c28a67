/* Ranks: one program started several times by mpirun or srun, working on one command.
 *
 * All ranks run the command; rank 0 alone prints, records and draws. Where there is work to share
 * (pool.h), rank 0 hands pieces out to its own threads and to those of the others. A rank that
 * cannot do its part says so to rank 0 and leaves; the launcher ends all of them when one is
 * killed. */
#ifndef UNMASK_EXPERIMENTS_RUN_RANKS_RANKS_H
#define UNMASK_EXPERIMENTS_RUN_RANKS_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "experiments/run/ranks/parcel.h"
#include "sim/base/err.h"

/* Joins the others where a launcher has started several ranks: ERR_WORLD where that needs a library
 * that is not there. The main thread's, as all of these functions. */
int ranks_join(struct err *err);

int ranks_n(void);              /* 1: this is the only one */
bool ranks_is_helper(void);     /* of rank 0: prints, records and draws nothing */
bool ranks_are_dismissed(void); /* rank 0 has said that the command is over */

/* Waits until all ranks are here and leaves them. `err` is why this one ends early, or holds
 * nothing. Nothing is done where there are no others. */
void ranks_leave(const struct err *err);

/* ---- for pool.h ---- */

enum rank_word {
    RANK_HELLO,  /* to rank 0: the build of the program */
    RANK_NEXT,   /* to rank 0: the result of a piece, or none yet, and a wish for another one */
    RANK_ASK,    /* to rank 0: a question in the middle of a piece */
    RANK_LEAVE,  /* to rank 0: its sentence, or none */
    RANK_PIECE,  /* from rank 0: a piece to work on */
    RANK_ANSWER, /* from rank 0 */
    RANK_NONE,   /* from rank 0: this pool has no more pieces */
    RANK_STOP,   /* from rank 0: the command is over */
};

struct rank_message {
    struct rank_message *next;
    int from;
    uint32_t word, pool, thread;
    uint32_t has_result;
    uint64_t piece;
    struct parcel parcel;
};

void ranks_send(int to, const struct rank_message *message);
/* NULL: nothing has arrived. Messages of ranks that come or leave are looked at on the way. The
 * caller frees the message. */
struct rank_message *ranks_receive(void);
void ranks_free(struct rank_message *message);

/* Puts by what comes too early, and hands all of it back, a list. */
void ranks_keep(struct rank_message *message);
struct rank_message *ranks_kept(void);

/* How long to sleep between two looks, `idle_ns` after the last message came: a small part of
 * that. */
void ranks_rest(int64_t idle_ns);

#endif
