#include "experiments/run/ranks/ranks.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "experiments/run/cli/interrupt.h"
#include "experiments/run/ranks/link.h"
#include "sim/base/build.h"
#include "sim/base/mem.h"
#include "sim/base/monotonic.h"
#include "sim/base/num.h"
#include "sim/base/system.h"

static const char library_name[] = "libunmask_mpi.so";
static const int64_t least_rest_ns = 20000, most_rest_ns = 1000000, patience_ns = 300000000;
enum { REST_PART = 32 };

static struct {
    const struct rank_link *link; /* NULL: this is the only rank */
    int rank, n;
    int n_heard;     /* helpers that have come */
    int other_build; /* one of them that runs another build; 0: none does */
    struct rank_message *kept;
    int n_left;      /* helpers that take no more part */
    char left[1200]; /* why the first of them did; "": none had a reason */
    bool is_over;    /* rank 0 has told us, or is rank 0 and has told the others */
} ranks = {.n = 1};

int ranks_n(void) {
    return ranks.n;
}

bool ranks_is_helper(void) {
    return ranks.rank > 0;
}

bool ranks_are_dismissed(void) {
    return ranks.is_over;
}

/* ---- joining ---- */

/* Whether a launcher says that there are several: Open MPI, MPICH and its kin, Slurm with PMIx. */
static bool is_launched(void) {
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"};
    uint64_t n;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const char *text = getenv(sizes[i]);
        if (text != NULL && num_u64(text, INT_MAX, &n)) {
            return n > 1;
        }
    }
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
    return getenv("PMIX_RANK") != NULL && tasks != NULL && num_u64(tasks, INT_MAX, &n) && n > 1;
}

/* Next to the program, or where the system looks. */
static void *load(char *path, size_t size) {
    if (!system_beside(library_name, path, size)) {
        snprintf(path, size, "%s", library_name);
    }
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

static int load_link(struct err *err) {
    char path[2 * PATH_MAX];
    void *library = load(path, sizeof path);
    if (library == NULL) {
        return err_world(err,
                         "started as one of several ranks, but %s cannot be loaded (%s): `make` "
                         "builds it where it finds mpicc; --shard shares out a sweep without it",
                         library_name, dlerror());
    }
    const struct rank_link *link = dlsym(library, "unmask_rank_link");
    if (link == NULL || link->abi != RANK_LINK_ABI) {
        return err_world(err, "%s is of another build of unmask", path);
    }
    ranks.link = link;
    return 0;
}

/* Each helper tells rank 0 which program it runs: results of another one are none. */
static int compare_builds(struct err *err) {
    if (ranks.rank > 0) {
        struct rank_message hello = {.word = RANK_HELLO};
        parcel_put_text(&hello.parcel, build_this().sources);
        ranks_send(0, &hello);
        parcel_fini(&hello.parcel);
        return 0;
    }
    while (ranks.n_heard < ranks.n - 1) {
        struct rank_message *message = ranks_receive();
        if (message != NULL) {
            ranks_keep(message);
        } else {
            ranks_rest(most_rest_ns * REST_PART);
        }
    }
    return ranks.other_build > 0
               ? err_world(err, "rank %d runs another build of unmask than rank 0",
                           ranks.other_build)
               : 0;
}

int ranks_join(struct err *err) {
    if (!is_launched()) {
        return 0;
    }
    int status = load_link(err);
    if (status != 0) {
        return status;
    }
    ranks.link->open(&ranks.rank, &ranks.n);
    interrupt_start(); /* the library may have taken the signals */
    if (ranks.rank > 0 && freopen("/dev/null", "w", stdout) == NULL) {
        return err_world(err, "cannot write to /dev/null");
    }
    return compare_builds(err);
}

/* ---- messages ---- */

void ranks_send(int to, const struct rank_message *message) {
    struct parcel parcel = {.n = 0};
    const uint32_t words[] = {message->word, message->pool, message->thread, message->has_result};
    parcel_put(&parcel, words, sizeof words);
    parcel_put(&parcel, &message->piece, sizeof message->piece);
    parcel_put(&parcel, message->parcel.bytes, message->parcel.n);
    ranks.link->send(to, parcel.bytes, parcel.n);
    parcel_fini(&parcel);
}

static void note_coming(struct rank_message *message) {
    char *sources = parcel_take_text(&message->parcel);
    ranks.n_heard++;
    if (sources == NULL || strcmp(sources, build_this().sources) != 0) {
        ranks.other_build = message->from;
    }
    free(sources);
    ranks_free(message);
}

/* Why it left is told at the end, unless rank 0 says as much itself. */
static void note_leaving(struct rank_message *message) {
    char *why = parcel_take_text(&message->parcel);
    ranks.n_left++;
    if (why != NULL && !ranks.is_over && ranks.left[0] == '\0') {
        snprintf(ranks.left, sizeof ranks.left, "rank %d took no part: %s", message->from, why);
    }
    free(why);
    ranks_free(message);
}

struct rank_message *ranks_receive(void) {
    unsigned char *bytes;
    size_t n;
    int from;
    while (ranks.link->receive(&from, &bytes, &n)) {
        struct rank_message *message = mem_zeroed(1, sizeof *message);
        uint32_t words[4];
        message->from = from;
        message->parcel = (struct parcel){.bytes = bytes, .n = n, .room = n};
        parcel_take(&message->parcel, words, sizeof words);
        parcel_take(&message->parcel, &message->piece, sizeof message->piece);
        message->word = words[0];
        message->pool = words[1];
        message->thread = words[2];
        message->has_result = words[3];
        ranks.is_over = ranks.is_over || message->word == RANK_STOP;
        if (message->word != RANK_HELLO && message->word != RANK_LEAVE) {
            return message;
        }
        (message->word == RANK_HELLO ? note_coming : note_leaving)(message);
    }
    return NULL;
}

void ranks_keep(struct rank_message *message) {
    struct rank_message **last = &ranks.kept;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    message->next = NULL;
    *last = message;
}

struct rank_message *ranks_kept(void) {
    struct rank_message *all = ranks.kept;
    ranks.kept = NULL;
    return all;
}

void ranks_free(struct rank_message *message) {
    parcel_fini(&message->parcel);
    free(message);
}

void ranks_rest(int64_t idle_ns) {
    int64_t rest_ns = idle_ns / REST_PART;
    rest_ns = rest_ns < least_rest_ns ? least_rest_ns : rest_ns;
    struct timespec rest = {.tv_nsec = rest_ns < most_rest_ns ? rest_ns : most_rest_ns};
    nanosleep(&rest, NULL);
}

/* ---- leaving ---- */

/* Tells everybody that the command is over and waits until they have heard; not for long where the
 * program was interrupted, for then the launcher may have ended them. False: some have not. */
static bool dismiss(void) {
    const struct rank_message stop = {.word = RANK_STOP};
    ranks.is_over = true;
    for (int i = 1; i < ranks.n; i++) {
        ranks_send(i, &stop);
    }
    int64_t start_ns = monotonic_ns();
    while (ranks.n_left < ranks.n - 1) {
        struct rank_message *message = ranks_receive();
        if (message != NULL) {
            ranks_free(message);
            continue;
        }
        if (interrupt_is_caught() && monotonic_ns() - start_ns > patience_ns) {
            return false;
        }
        ranks_rest(most_rest_ns * REST_PART);
    }
    return true;
}

/* And waits until rank 0 says that the command is over. */
static void say_goodbye(const struct err *err) {
    struct rank_message leave = {.word = RANK_LEAVE};
    parcel_put_text(&leave.parcel, err->kind != ERR_NONE ? err->text : NULL);
    ranks_send(0, &leave);
    parcel_fini(&leave.parcel);
    while (!ranks.is_over) {
        struct rank_message *message = ranks_receive();
        if (message != NULL) {
            ranks_free(message);
        } else {
            ranks_rest(most_rest_ns * REST_PART);
        }
    }
}

void ranks_leave(const struct err *err) {
    if (ranks.link == NULL || ranks.n == 1) {
        return;
    }
    bool all_have_heard = true;
    if (ranks.rank > 0) {
        say_goodbye(err);
    } else {
        all_have_heard = dismiss();
        if (ranks.left[0] != '\0' && err->kind == ERR_NONE) {
            fprintf(stderr, "unmask: %s\n", ranks.left);
        }
    }
    if (all_have_heard) {
        ranks.link->close();
    }
    ranks.n = 1;
}
