/* Where the points of a campaign are run: once each, by whoever comes first. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/identity.h"
#include "analysis/store/store.h"
#include "experiments/run/sweep/campaign_impl.h"
#include "sim/base/mem.h"

/* ---- what the database held ---- */

static void digest_config(const char *config, char out[SHA256_HEX_CHARS]) {
    struct sha256 sha;
    sha256_begin(&sha);
    sha256_add(&sha, config, strlen(config));
    sha256_hex(&sha, out);
}

int campaign_keep_known(void *state, const struct stored_run *run, struct err *err) {
    struct work *work = state;
    (void)err;
    if (work->n_known == work->room_known) {
        work->room_known = 2 * work->room_known + 64;
        work->known = mem_resized(work->known, work->room_known, sizeof *work->known);
    }
    struct known *known = &work->known[work->n_known++];
    known->run = run->run;
    known->is_damaged = run->damage != NULL;
    digest_config(run->config, known->config);
    return 0;
}

static int by_config(const void *a, const void *b) {
    const struct known *x = a, *y = b;
    int order = strcmp(x->config, y->config);
    return order != 0 ? order : (x->run > y->run) - (x->run < y->run);
}

void campaign_sort_known(struct work *work) {
    if (work->n_known > 0) {
        qsort(work->known, work->n_known, sizeof *work->known, by_config);
    }
}

/* The latest run of a configuration, or NULL. */
static const struct known *find_known(const struct work *work, const char *config) {
    struct known after = {.run = INT64_MAX};
    digest_config(config, after.config);
    size_t low = 0, high = work->n_known;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (by_config(&work->known[middle], &after) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const struct known *last = low > 0 ? &work->known[low - 1] : NULL;
    return last != NULL && strcmp(last->config, after.config) == 0 ? last : NULL;
}

/* False where the summary is none: then the point is run again. */
static bool take_stored(struct campaign_point *point, const char *summary) {
    json_error_t trouble;
    point->summary = json_loads(summary, 0, &trouble);
    point->was_stored = point->summary != NULL;
    return point->was_stored;
}

/* ---- where a point is run ---- */

/* Where a digest stands among those that this campaign runs, or the free place for it. */
static const char **own_place(const struct work *work, const char *digest) {
    size_t at = (size_t)strtoull(digest + SHA256_HEX_CHARS - 9, NULL, 16) % work->room_own;
    while (work->own[at] != NULL && strcmp(work->own[at], digest) != 0) {
        at = (at + 1) % work->room_own;
    }
    return &work->own[at];
}

/* What cannot be read now is run. */
bool campaign_take_recorded(struct work *work, struct campaign_point *point, const char *digest) {
    char *summary = NULL;
    struct err ignored = {0};
    (void)store_find_summary(work->store, digest, &summary, &ignored);
    bool is_taken = summary != NULL && take_stored(point, summary);
    free(summary);
    return is_taken;
}

/* Under the lock, of a point to be run here: what an earlier run of the same configuration says
 * of it. Returns whether that run stands for it. */
static bool recall(struct work *work, struct campaign_point *point, const char *config,
                   const json_t *identity) {
    const struct known *known = find_known(work, config);
    char *text = NULL;
    json_error_t trouble;
    if (known != NULL && known->is_damaged) {
        snprintf(point->stale, sizeof point->stale, "its record is damaged");
        return false;
    }
    struct err ignored = {0};
    if (known == NULL || store_load_summary(work->store, known->run, &text, &ignored) != 0) {
        return false;
    }
    json_t *summary = json_loads(text, 0, &trouble);
    struct identity_difference difference =
        identity_compare(json_object_get(summary, "identity"), identity, true);
    bool stands = work->campaign->any_build && !difference.inputs && take_stored(point, text);
    if (!stands && point->stale[0] == '\0') {
        snprintf(point->stale, sizeof point->stale, "%s", difference.text);
    }
    json_decref(summary);
    free(text);
    return stands;
}

/* Under the lock. What this campaign runs itself is run as often as it was asked for, so that the
 * order in which threads come does not matter. A point that has come back from another program is
 * claimed already, unless a file that it reads has changed meanwhile. */
static enum point_state where_to_run(struct work *work, size_t i, const char *digest) {
    struct pending *pending = &work->pending[i];
    bool has_claim = work->points[i].has_claim;
    if (has_claim && strcmp(pending->digest, digest) != 0) {
        claims_drop(work->claims, pending->digest);
        has_claim = work->points[i].has_claim = false;
    }
    snprintf(pending->digest, sizeof pending->digest, "%s", digest);
    if (!has_claim && digest[0] != '\0' && *own_place(work, digest) == NULL) {
        (void)protocol_do(&work->protocol, PROTOCOL_TURN, i, true);
    } else {
        work->points[i].state = POINT_CLAIMED;
    }
    if (work->points[i].has_claim) {
        *own_place(work, digest) = pending->digest;
    }
    return campaign_state(work, i);
}

enum place_of_run campaign_turn(struct work *work, size_t i, const char *config,
                                const json_t *identity) {
    struct campaign_point *point = &work->campaign->points[i];
    if (work->claims == NULL) {
        return RUN_HERE;
    }
    pthread_mutex_lock(&work->lock);
    enum point_state state = where_to_run(work, i, identity_digest(identity));
    if (state == POINT_CLAIMED && recall(work, point, config, identity)) {
        state = protocol_do(&work->protocol, PROTOCOL_OVER, i, false);
    }
    pthread_mutex_unlock(&work->lock);
    return state == POINT_CLAIMED     ? RUN_HERE
           : state == POINT_ELSEWHERE ? RUN_ELSEWHERE
                                      : RUN_BEFORE;
}

/* A helper's turn is taken by rank 0, which has the database. */
enum place_of_run campaign_ask_for_turn(struct work *work, size_t i, const char *config,
                                        const json_t *identity) {
    struct parcel question = {.n = 0}, answer = {.n = 0};
    enum place_of_run place = RUN_ELSEWHERE;
    if (work->campaign->db == NULL || !work->campaign->resumes) {
        return RUN_HERE;
    }
    parcel_put(&question, &i, sizeof i);
    parcel_put_text(&question, config);
    parcel_put_json(&question, identity);
    if (pool_ask(&question, &answer)) {
        parcel_take(&answer, &place, sizeof place);
    }
    work->pending[i].is_decided = place != RUN_HERE;
    parcel_fini(&question);
    parcel_fini(&answer);
    return place;
}

void campaign_answer_turn(void *state, struct parcel *question, struct parcel *answer) {
    struct work *work = state;
    size_t i;
    parcel_take(question, &i, sizeof i);
    char *config = parcel_take_text(question);
    json_t *identity = parcel_take_json(question);
    enum place_of_run place = campaign_turn(work, i, config, identity);
    parcel_put(answer, &place, sizeof place);
    json_decref(identity);
    free(config);
}
