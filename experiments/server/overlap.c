#include "experiments/server/overlap.h"

#include <stdlib.h>

#include "sim/base/mem.h"

static int take_request(void *state, const struct request_record *record, struct err *err) {
    struct overlap *overlap = state;
    (void)err;
    if (record->state != REQUEST_DONE || record->first_block_ns < 0) {
        return 0;
    }
    if (overlap->n + 2 > overlap->room) {
        size_t room = 2 * overlap->room + 256;
        overlap->edges = mem_resized(overlap->edges, room, sizeof *overlap->edges);
        overlap->room = room;
    }
    overlap->edges[overlap->n++] = (struct overlap_edge){record->first_block_ns, 1};
    overlap->edges[overlap->n++] = (struct overlap_edge){record->finished_ns, -1};
    return 0;
}

struct sink overlap_sink(struct overlap *overlap) {
    return (struct sink){.state = overlap, .request = take_request};
}

static int by_time(const void *a, const void *b) {
    const struct overlap_edge *x = a, *y = b;
    return x->time_ns != y->time_ns ? (x->time_ns > y->time_ns) - (x->time_ns < y->time_ns)
                                    : x->change - y->change;
}

uint32_t overlap_peak(struct overlap *overlap) {
    if (overlap->n > 0) {
        qsort(overlap->edges, overlap->n, sizeof *overlap->edges, by_time);
    }
    int64_t now = 0, peak = 0;
    for (size_t i = 0; i < overlap->n; i++) {
        now += overlap->edges[i].change;
        peak = now > peak ? now : peak;
    }
    return (uint32_t)peak;
}

void overlap_fini(struct overlap *overlap) {
    free(overlap->edges);
    *overlap = (struct overlap){0};
}
