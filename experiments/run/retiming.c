#include "experiments/run/retiming.h"

#include <math.h>
#include <stdlib.h>

#include "sim/base/mem.h"

void retiming_init(struct retiming *retiming, uint32_t n_replicas) {
    *retiming = (struct retiming){.n_lanes = n_replicas};
    retiming->lanes = mem_zeroed(n_replicas, sizeof *retiming->lanes);
    summary_init(&retiming->summary, NULL);
}

void retiming_fini(struct retiming *retiming) {
    for (uint32_t i = 0; i < retiming->n_lanes; i++) {
        free(retiming->lanes[i].steps);
    }
    free(retiming->lanes);
    summary_fini(&retiming->summary);
    *retiming = (struct retiming){0};
}

static int64_t last_arrival_ns(const struct planned_step *step) {
    int64_t last = 0;
    for (uint32_t i = 0; i < step->n_slots; i++) {
        const int64_t arrival_ns = step->requests[step->slots[i]].arrival_ns;
        last = arrival_ns > last ? arrival_ns : last;
    }
    return last;
}

void retiming_add(struct retiming *retiming, const struct submission *submission, int64_t start_ns,
                  int64_t end_ns, double ns) {
    struct retiming_lane *lane = &retiming->lanes[submission->replica];
    const struct retimed_steps *before = lane->n > 0 ? &lane->steps[lane->n - 1] : NULL;
    const double arrived_ns = (double)last_arrival_ns(&submission->step);
    const double could_ns = fmax(before != NULL ? (double)before->end_ns : 0, arrived_ns);
    const double can_ns = fmax(before != NULL ? before->new_end_ns : 0, arrived_ns);
    const double new_start_ns = can_ns + fmax((double)start_ns - could_ns, 0);
    lane->steps = mem_grown(lane->steps, lane->n, &lane->room, sizeof *lane->steps);
    lane->steps[lane->n++] =
        (struct retimed_steps){start_ns, end_ns, new_start_ns, new_start_ns + ns};
}

/* The first steps that had not ended before this moment; as many as there are: all had. */
static size_t find(const struct retiming_lane *lane, int64_t ns) {
    size_t low = 0, high = lane->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (lane->steps[middle].end_ns < ns) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Within steps in proportion; between them as long after the last as it was. */
static int64_t new_time(const struct retiming *retiming, uint32_t replica, int64_t ns) {
    const struct retiming_lane *lane = &retiming->lanes[replica];
    const size_t at = find(lane, ns);
    if (at < lane->n && lane->steps[at].start_ns <= ns) {
        const struct retimed_steps *s = &lane->steps[at];
        const double span_ns = (double)(s->end_ns - s->start_ns);
        const double part = span_ns > 0 ? (double)(ns - s->start_ns) / span_ns : 1;
        return llround(s->new_start_ns + part * (s->new_end_ns - s->new_start_ns));
    }
    return at == 0 ? ns
                   : llround((double)(ns - lane->steps[at - 1].end_ns) +
                             lane->steps[at - 1].new_end_ns);
}

void retiming_request(struct retiming *retiming, const struct request_record *record) {
    struct request_record timed = *record;
    struct err never = {0};
    if (record->state == REQUEST_DONE) {
        timed.finished_ns = new_time(retiming, record->replica, record->finished_ns);
        timed.first_block_ns = record->first_block_ns < 0
                                   ? record->first_block_ns
                                   : new_time(retiming, record->replica, record->first_block_ns);
    }
    (void)summary_sink(&retiming->summary).request(&retiming->summary, &timed, &never);
}

void retiming_finish(struct retiming *retiming) {
    summary_finish(&retiming->summary);
}
