/* A link between the ranks of one program: bytes from one to another, by the launcher's library.
 *
 * The program itself needs no such library: libunmask_mpi.so holds one link under the name
 * `unmask_rank_link`, and is looked for where a launcher says that there are ranks. */
#ifndef UNMASK_EXPERIMENTS_RUN_RANKS_LINK_H
#define UNMASK_EXPERIMENTS_RUN_RANKS_LINK_H

#include <stdbool.h>
#include <stddef.h>

enum { RANK_LINK_ABI = 1 };

/* All functions are the main thread's. Trouble inside the library ends all ranks, with its own
 * words on standard error. */
struct rank_link {
    int abi; /* RANK_LINK_ABI */
    void (*open)(int *rank, int *n_ranks);
    /* Returns when `bytes` may be written again; takes in what arrives meanwhile. */
    void (*send)(int to, const void *bytes, size_t n);
    /* The next message that has arrived, in the order of each sender; false: there is none now.
     * `*bytes` is the caller's to free. */
    bool (*receive)(int *from, unsigned char **bytes, size_t *n);
    void (*close)(void); /* waits until all ranks have called it */
};

#endif
