#include "analysis/groups.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/summary.h"
#include "sim/base/mem.h"

const struct grouping_words grouping_words[GROUPING_COUNT] = {
    [BY_TENANT] = {"tenant", "tenants", "fairness"},
    [BY_PRIORITY] = {"priority", "classes", "fairness_of_classes"},
};

uint32_t grouping_key(enum grouping by, const struct request_record *record) {
    return by == BY_TENANT ? record->tenant : record->priority;
}

void groups_fini(struct groups *groups) {
    for (size_t i = 0; i < groups->n; i++) {
        summary_fini(groups->items[i].summary);
        free(groups->items[i].summary);
    }
    free(groups->items);
    *groups = (struct groups){.are_too_many = groups->are_too_many};
}

/* The place of the first key that is not below this one. */
static size_t place_of(const struct groups *groups, uint32_t key) {
    size_t low = 0, high = groups->n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (groups->items[middle].key < key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct summary *add(struct groups *groups, uint32_t key) {
    const size_t at = place_of(groups, key);
    groups->items = mem_grown(groups->items, groups->n, &groups->room, sizeof *groups->items);
    memmove(&groups->items[at + 1], &groups->items[at], (groups->n++ - at) * sizeof *groups->items);
    groups->items[at] = (struct group){key, mem_zeroed(1, sizeof(struct summary))};
    return groups->items[at].summary;
}

struct summary *groups_of(struct groups *groups, uint32_t key, const struct summary *run) {
    if (run->requests == 0) {
        groups->first = key;
    }
    if (groups->are_too_many || (groups->n == 0 && key == groups->first)) {
        return NULL;
    }
    if (groups->n == 0) {
        summary_group(run, add(groups, groups->first));
    }
    const size_t at = place_of(groups, key);
    if (at < groups->n && groups->items[at].key == key) {
        return groups->items[at].summary;
    }
    if (groups->n == GROUPS_MOST) {
        groups->are_too_many = true;
        groups_fini(groups);
        return NULL;
    }
    struct summary *group = add(groups, key);
    summary_init(group, &run->slo);
    group->is_of_group = true;
    return group;
}

void groups_copy(const struct groups *from, struct groups *to) {
    *to = *from;
    to->room = from->n;
    to->items = mem_zeroed(from->n + 1, sizeof *to->items);
    for (size_t i = 0; i < from->n; i++) {
        to->items[i] = (struct group){from->items[i].key, mem_zeroed(1, sizeof(struct summary))};
        summary_copy(from->items[i].summary, to->items[i].summary);
    }
}

void groups_finish(struct groups *groups, const struct summary *run) {
    for (size_t i = 0; i < groups->n; i++) {
        struct summary *group = groups->items[i].summary;
        group->first_arrival_ns = run->first_arrival_ns;
        group->last_finish_ns = run->last_finish_ns;
        group->own_reasons = run->own_reasons;
        summary_finish(group);
    }
}

double groups_share(const struct summary *of, const struct summary *run) {
    return run->service_tokens > 0 ? (double)of->service_tokens / (double)run->service_tokens
                                   : (double)NAN;
}

double groups_fairness(const struct groups *groups) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < groups->n; i++) {
        const double served = (double)groups->items[i].summary->service_tokens;
        sum += served;
        squares += served * served;
    }
    return groups->n > 1 && squares > 0 ? sum * sum / ((double)groups->n * squares) : (double)NAN;
}
