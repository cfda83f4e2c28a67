#include "experiments/run/same_batches.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"

/* A request of a run, and how many steps it has taken so far. */
struct part {
    uint64_t id;
    int64_t arrival_ns;
    uint64_t steps;
};

struct batch_key {
    uint64_t key;
    int64_t start_ns;
};

struct batches {
    struct part *parts; /* by id, once all are there */
    size_t n_parts, part_room;
    struct batch_key *keys; /* in their order */
    size_t n_keys, key_room;
};

static int take_request(void *state, const struct request_record *record, struct err *err) {
    struct batches *all = state;
    (void)err;
    all->parts = mem_grown(all->parts, all->n_parts, &all->part_room, sizeof *all->parts);
    all->parts[all->n_parts++] = (struct part){record->id, record->arrival_ns, 0};
    return 0;
}

static int by_id(const void *a, const void *b) {
    const struct part *first = a, *second = b;
    return (first->id > second->id) - (first->id < second->id);
}

static struct part *part_of(const struct batches *all, uint64_t id) {
    const struct part wanted = {.id = id};
    return bsearch(&wanted, all->parts, all->n_parts, sizeof *all->parts, by_id);
}

/* FNV-1a over numbers, and a last mixing. */
static uint64_t mixed(uint64_t key, uint64_t number) {
    key = (key ^ number) * UINT64_C(0x100000001b3);
    return key ^ key >> 29;
}

static void add_key(struct batches *all, const struct step_record *record, int64_t start_ns) {
    uint64_t key = mixed(UINT64_C(0xcbf29ce484222325), record->replica);
    for (uint32_t i = 0; i < record->n; i++) {
        struct part *part = part_of(all, record->request_ids[i]);
        key = mixed(mixed(key, record->request_ids[i]), part != NULL ? part->steps++ : 0);
    }
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
        key = mixed(key, record->n_by_phase[phase]);
    }
    all->keys = mem_grown(all->keys, all->n_keys, &all->key_room, sizeof *all->keys);
    all->keys[all->n_keys++] = (struct batch_key){key, start_ns};
}

/* A record stands for `repeat` steps of the same. */
static int take_step(void *state, const struct step_record *record, struct err *err) {
    struct batches *all = state;
    if (record->request_ids == NULL) {
        return err_usage(err, "a step of the run does not say who took part in it");
    }
    const int64_t each_ns = (record->end_ns - record->start_ns) / record->repeat;
    for (uint32_t i = 0; i < record->repeat; i++) {
        add_key(all, record, record->start_ns + i * each_ns);
    }
    return 0;
}

static int load(struct store *store, int64_t run, struct batches *all, struct err *err) {
    int status = store_load_requests(store, run, take_request, all, err);
    if (all->n_parts > 0) {
        qsort(all->parts, all->n_parts, sizeof *all->parts, by_id);
    }
    status = status != 0 ? status : store_load_steps(store, run, take_step, all, err);
    if (status == 0 && all->n_keys == 0) {
        status =
            err_usage(err, "run %" PRId64 " has no steps on record: it needs --levels steps", run);
    }
    return status;
}

static int by_key(const void *a, const void *b) {
    const uint64_t *first = a, *second = b;
    return (*first > *second) - (*first < *second);
}

/* Which request the first of them had seen arrive where the other had not, if it is one. */
static void explain(const struct batches *one, const struct batches *other,
                    struct same_batches *out) {
    const size_t at = (size_t)out->first;
    snprintf(out->why, sizeof out->why, "another decision");
    if (at >= other->n_keys) {
        snprintf(out->why, sizeof out->why, "the other run has fewer steps");
        return;
    }
    const int64_t first_ns = one->keys[at].start_ns, second_ns = other->keys[at].start_ns;
    for (size_t i = 0; i < one->n_parts; i++) {
        const struct part *part = &one->parts[i], *same = part_of(other, part->id);
        if (same != NULL && (part->arrival_ns <= first_ns) != (same->arrival_ns <= second_ns)) {
            snprintf(out->why, sizeof out->why, "request %" PRIu64 " came %s", part->id,
                     part->arrival_ns <= first_ns ? "earlier in its steps" : "later in its steps");
            return;
        }
    }
}

static void count(const struct batches *one, const struct batches *other,
                  struct same_batches *out) {
    uint64_t *sorted = mem_unwritten(other->n_keys, sizeof *sorted);
    for (size_t i = 0; i < other->n_keys; i++) {
        sorted[i] = other->keys[i].key;
    }
    qsort(sorted, other->n_keys, sizeof *sorted, by_key);
    out->n = one->n_keys > other->n_keys ? one->n_keys : other->n_keys;
    out->first = out->n;
    for (size_t i = 0; i < one->n_keys; i++) {
        const bool is_there =
            bsearch(&one->keys[i].key, sorted, other->n_keys, sizeof *sorted, by_key) != NULL;
        out->n_equal += is_there;
        out->first = !is_there && out->first == out->n ? i : out->first;
    }
    free(sorted);
    if (out->n_equal < out->n) {
        out->first = out->first == out->n ? one->n_keys : out->first;
        explain(one, other, out);
    }
}

int same_batches_count(struct store *store, int64_t run, int64_t other, struct same_batches *out,
                       struct err *err) {
    struct batches first = {0}, second = {0};
    *out = (struct same_batches){.run = run, .other = other};
    int status = load(store, run, &first, err);
    status = status != 0 ? status : load(store, other, &second, err);
    if (status == 0) {
        count(&first, &second, out);
    }
    free(first.parts);
    free(first.keys);
    free(second.parts);
    free(second.keys);
    return status;
}

/* 0 and 100 are of none and of all alone: a share next to them is told to a tenth. */
static double percent_of(const struct same_batches *same) {
    const double percent = 100.0 * (double)same->n_equal / (double)same->n;
    return same->n_equal == 0 || same->n_equal == same->n ? percent
                                                          : fmin(fmax(percent, 0.1), 99.9);
}

void same_batches_print(const struct same_batches *same, FILE *out) {
    fprintf(out, "batches: %" PRIu64 " of %" PRIu64 " equal (%.3g %%)", same->n_equal, same->n,
            percent_of(same));
    if (same->n_equal < same->n) {
        fprintf(out, ", first that differs: step %" PRIu64 " of run %" PRId64 " (%s)", same->first,
                same->run, same->why);
    }
    fprintf(out, "\n");
}

json_t *same_batches_json(const struct same_batches *same) {
    const bool all = same->n_equal == same->n;
    return json_pack("{sI sI sI sI so so}", "run", (json_int_t)same->run, "against",
                     (json_int_t)same->other, "batches", (json_int_t)same->n, "equal",
                     (json_int_t)same->n_equal, "first_different",
                     all ? json_null() : json_integer((json_int_t)same->first), "why",
                     all ? json_null() : json_string(same->why));
}
