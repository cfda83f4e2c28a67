/* What ranks tell each other of a campaign. */
#include <stdlib.h>

#include "experiments/run/ranks/ranks.h"
#include "experiments/run/sweep/campaign_impl.h"
#include "sim/base/mem.h"

/* To rank 0: what a helper has found. */
static void put_result(struct work *work, size_t i, struct parcel *out) {
    struct campaign_point *point = &work->campaign->points[i];
    struct pending *pending = &work->pending[i];
    bool has_run = pending->composition != NULL;
    parcel_put(out, &pending->is_decided, sizeof pending->is_decided);
    if (pending->is_decided) {
        return;
    }
    parcel_put(out, &point->err, sizeof point->err);
    parcel_put(out, &point->has_no_room, sizeof point->has_no_room);
    parcel_put_json(out, point->summary);
    parcel_put_text(out, point->notes);
    parcel_put(out, &point->n_requests, sizeof point->n_requests);
    parcel_put(out, point->requests, point->n_requests * sizeof *point->requests);
    parcel_put(out, &has_run, sizeof has_run);
    if (has_run) {
        handed_put(pending->composition, pending->recorder, out);
    }
    campaign_drop_records(pending);
    campaign_point_fini(point);
}

static void take_result(struct work *work, size_t i, struct parcel *in) {
    struct campaign_point *point = &work->campaign->points[i];
    struct handed *handed = NULL;
    bool is_decided, has_run = false;
    parcel_take(in, &is_decided, sizeof is_decided);
    if (!is_decided) {
        parcel_take(in, &point->err, sizeof point->err);
        parcel_take(in, &point->has_no_room, sizeof point->has_no_room);
        point->summary = parcel_take_json(in);
        point->notes = parcel_take_text(in);
        parcel_take(in, &point->n_requests, sizeof point->n_requests);
        point->requests_room = point->n_requests;
        point->requests = mem_unwritten(point->requests_room, sizeof *point->requests);
        parcel_take(in, point->requests, point->n_requests * sizeof *point->requests);
        parcel_take(in, &has_run, sizeof has_run);
    }
    if (has_run) {
        handed = handed_take(work->store, work->campaign->level, in);
    }
    campaign_come_in(work, i, NULL, handed);
}

/* Which point a piece is goes to the helper, what it found comes back. */
void campaign_put(void *state, size_t index, struct parcel *out) {
    struct work *work = state;
    if (ranks_is_helper()) {
        put_result(work, work->round[index], out);
    } else {
        parcel_put(out, &work->round[index], sizeof work->round[index]);
    }
}

void campaign_take(void *state, size_t index, struct parcel *in) {
    struct work *work = state;
    if (ranks_is_helper()) {
        parcel_take(in, &work->round[index], sizeof work->round[index]);
    } else {
        take_result(work, work->round[index], in);
    }
}
