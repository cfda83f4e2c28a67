#include "sim/price/profile_share.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"

enum { MOST_UNUSED = 6 };

struct shared {
    struct shared *next;
    struct profile *profile;
    uint32_t n_users;
    struct profile_peaks peaks;
    /* Of a file. */
    char *path, *text;
    size_t size;
    /* Of a transfer. */
    struct shared *donor; /* in use as long as this one is here; NULL: a file */
    char *gpus[2];
    struct transfer_side sides[2];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shared *first; /* the last one that was asked for */

static struct shared *find_profile(const struct profile *profile) {
    struct shared *shared = first;
    while (shared != NULL && shared->profile != profile) {
        shared = shared->next;
    }
    return shared;
}

static void unlink_shared(const struct shared *shared) {
    struct shared **place = &first;
    while (*place != shared) {
        place = &(*place)->next;
    }
    *place = shared->next;
}

static const struct profile *use(struct shared *shared) {
    shared->next = first;
    first = shared;
    shared->n_users++;
    return shared->profile;
}

static void drop(struct shared *shared) {
    unlink_shared(shared);
    if (shared->donor != NULL) {
        shared->donor->n_users--;
    }
    profile_close(shared->profile);
    free(shared->path);
    free(shared->text);
    free(shared->gpus[0]);
    free(shared->gpus[1]);
    free(shared);
}

/* The one that was asked for longest ago goes first, and after a transfer its donor may. */
static void drop_surplus(void) {
    struct shared *oldest;
    do {
        uint32_t n_unused = 0;
        oldest = NULL;
        for (struct shared *shared = first; shared != NULL; shared = shared->next) {
            if (shared->n_users == 0) {
                n_unused++;
                oldest = n_unused > MOST_UNUSED ? shared : NULL;
            }
        }
        if (oldest != NULL) {
            drop(oldest);
        }
    } while (oldest != NULL);
}

static bool peaks_equal(const struct profile_peaks *a, const struct profile_peaks *b) {
    return a->flops == b->flops && a->fp8_flops == b->fp8_flops && a->bandwidth == b->bandwidth &&
           a->sms == b->sms && a->l2_bytes == b->l2_bytes;
}

static bool sides_equal(const struct transfer_side *a, const struct transfer_side *b) {
    return strcmp(a->gpu, b->gpu) == 0 && peaks_equal(&a->peaks, &b->peaks) &&
           peaks_equal(&a->reached, &b->reached) && a->link_bandwidth == b->link_bandwidth &&
           a->passes_alone == b->passes_alone;
}

static bool is_file(const struct shared *shared, const struct shared *asked) {
    return shared->donor == NULL && strcmp(shared->path, asked->path) == 0 &&
           peaks_equal(&shared->peaks, &asked->peaks) && shared->size == asked->size &&
           memcmp(shared->text, asked->text, asked->size) == 0;
}

static const struct profile *share_file(struct shared *asked, struct err *err) {
    for (struct shared *shared = first; shared != NULL; shared = shared->next) {
        if (is_file(shared, asked)) {
            unlink_shared(shared);
            return use(shared);
        }
    }
    if (profile_parse_text(asked->path, asked->text, asked->size, &asked->peaks, &asked->profile,
                           err) != 0) {
        return NULL;
    }
    struct shared *shared = mem_zeroed(1, sizeof *shared);
    *shared = *asked;
    asked->path = asked->text = NULL;
    return use(shared);
}

int profile_share(const char *path, const struct profile_peaks *peaks, const struct profile **out,
                  struct err *err) {
    struct shared asked = {.peaks = *peaks};
    *out = NULL;
    asked.text = profile_read(path, &asked.size, err);
    if (asked.text == NULL) {
        return err_status(err);
    }
    asked.path = mem_text(path);
    pthread_mutex_lock(&lock);
    *out = share_file(&asked, err);
    drop_surplus();
    pthread_mutex_unlock(&lock);
    free(asked.path);
    free(asked.text);
    return *out != NULL ? 0 : err_status(err);
}

static const struct profile *share_transfer(struct shared *donor, const struct transfer_side *from,
                                            const struct transfer_side *to) {
    for (struct shared *shared = first; shared != NULL; shared = shared->next) {
        if (shared->donor == donor && sides_equal(&shared->sides[0], from) &&
            sides_equal(&shared->sides[1], to)) {
            unlink_shared(shared);
            return use(shared);
        }
    }
    struct shared *shared = mem_zeroed(1, sizeof *shared);
    shared->profile = profile_transfer(donor->profile, from, to);
    shared->donor = donor;
    donor->n_users++;
    shared->sides[0] = *from;
    shared->sides[1] = *to;
    for (int i = 0; i < 2; i++) {
        shared->gpus[i] = mem_text(shared->sides[i].gpu);
        shared->sides[i].gpu = shared->gpus[i];
    }
    return use(shared);
}

const struct profile *profile_share_transfer(const struct profile *donor,
                                             const struct transfer_side *from,
                                             const struct transfer_side *to) {
    pthread_mutex_lock(&lock);
    struct shared *shared = find_profile(donor);
    ASSERT(shared != NULL);
    const struct profile *profile = share_transfer(shared, from, to);
    drop_surplus();
    pthread_mutex_unlock(&lock);
    return profile;
}

void profile_give_back(const struct profile *profile) {
    if (profile == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    struct shared *shared = find_profile(profile);
    ASSERT(shared != NULL && shared->n_users > 0);
    shared->n_users--;
    drop_surplus();
    pthread_mutex_unlock(&lock);
}
