/* The link over MPI: libunmask_mpi.so, built where mpicc is found. Bytes are sent in words of
 * eight, so that a message may have 16 GiB. */
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/run/ranks/link.h"

enum { WORD_BYTES = 8, TAG = 1 };

/* What has arrived and was not asked for yet. */
struct message {
    struct message *next;
    int from;
    size_t n;
    unsigned char *bytes;
};

static struct message *first, **last = &first;

static void *allocate(size_t n) {
    void *memory = malloc(n + 1);
    if (memory == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

static void link_open(int *rank, int *n_ranks) {
    int has;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &has);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, n_ranks);
}

/* Takes in one message, where one has arrived. */
static void pump(void) {
    int is_there, n_words;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &is_there, &status);
    if (!is_there) {
        return;
    }
    MPI_Get_count(&status, MPI_UINT64_T, &n_words);
    struct message *message = allocate(sizeof *message);
    uint64_t n;
    *message = (struct message){.from = status.MPI_SOURCE,
                                .bytes = allocate((size_t)n_words * WORD_BYTES)};
    MPI_Recv(message->bytes, n_words, MPI_UINT64_T, message->from, TAG, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    memcpy(&n, message->bytes, sizeof n); /* the length goes before */
    message->n = n;
    memmove(message->bytes, message->bytes + sizeof n, n);
    *last = message;
    last = &message->next;
}

/* Both sides of a long message may send at once: neither waits without receiving. */
static void link_send(int to, const void *bytes, size_t n) {
    uint64_t length = n;
    size_t n_words = (n + WORD_BYTES - 1) / WORD_BYTES + 1;
    unsigned char *copy = allocate(n_words * WORD_BYTES);
    memset(copy + (n_words - 1) * WORD_BYTES, 0, WORD_BYTES);
    memcpy(copy, &length, sizeof length);
    memcpy(copy + sizeof length, bytes, n);
    MPI_Request request;
    int is_done = 0;
    MPI_Isend(copy, (int)n_words, MPI_UINT64_T, to, TAG, MPI_COMM_WORLD, &request);
    for (MPI_Test(&request, &is_done, MPI_STATUS_IGNORE); !is_done;
         MPI_Test(&request, &is_done, MPI_STATUS_IGNORE)) {
        pump();
    }
    free(copy);
}

static bool link_receive(int *from, unsigned char **bytes, size_t *n) {
    pump();
    struct message *message = first;
    if (message == NULL) {
        return false;
    }
    first = message->next;
    last = first == NULL ? &first : last;
    *from = message->from;
    *bytes = message->bytes;
    *n = message->n;
    free(message);
    return true;
}

static void link_close(void) {
    MPI_Finalize();
}

extern const struct rank_link unmask_rank_link;
const struct rank_link unmask_rank_link = {.abi = RANK_LINK_ABI,
                                           .open = link_open,
                                           .send = link_send,
                                           .receive = link_receive,
                                           .close = link_close};
