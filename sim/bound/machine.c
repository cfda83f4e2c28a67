#include "sim/bound/machine.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "sim/base/mem.h"
#include "sim/base/sort.h"

/* ---- who is worked on ---- */

struct waiting {
    double key;
    size_t job;
};

/* A binary heap with the least key on top. */
struct heap {
    struct waiting *items;
    size_t n;
};

static void heap_push(struct heap *heap, struct waiting item) {
    size_t at = heap->n++;
    while (at > 0 && heap->items[(at - 1) / 2].key > item.key) {
        heap->items[at] = heap->items[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->items[at] = item;
}

static struct waiting heap_pop(struct heap *heap) {
    struct waiting top = heap->items[0], last = heap->items[--heap->n];
    size_t at = 0;
    for (size_t child = 1; child < heap->n; child = 2 * at + 1) {
        child += child + 1 < heap->n && heap->items[child + 1].key < heap->items[child].key;
        if (heap->items[child].key >= last.key) {
            break;
        }
        heap->items[at] = heap->items[child];
        at = child;
    }
    heap->items[at] = last;
    return top;
}

struct course {
    double sum_end_ns,
        sum_mean_ns; /* over jobs: when they end; the mean time of the work on them */
    double last_end_ns;
};

/* The job with the least work left first, or with the least in all. */
static struct course run(const struct machine_job *jobs, size_t n, double speed, bool by_left) {
    struct course course = {0};
    struct heap heap = {.items = mem_unwritten(n + 1, sizeof *heap.items)};
    double *left_ns = mem_unwritten(n + 1, sizeof *left_ns), now_ns = 0;
    size_t next = 0;
    while (next < n || heap.n > 0) {
        if (heap.n == 0 && jobs[next].release_ns > now_ns) {
            now_ns = jobs[next].release_ns;
        }
        for (; next < n && jobs[next].release_ns <= now_ns; next++) {
            left_ns[next] = jobs[next].work_ns / speed;
            heap_push(&heap, (struct waiting){left_ns[next], next});
        }
        struct waiting item = heap_pop(&heap);
        const struct machine_job *job = &jobs[item.job];
        double until_ns = next < n ? jobs[next].release_ns : INFINITY;
        double whole_ns = job->work_ns / speed;
        bool ends = now_ns + left_ns[item.job] <= until_ns;
        double end_ns = ends ? now_ns + left_ns[item.job] : until_ns;
        double done_ns = ends ? left_ns[item.job] : until_ns - now_ns;
        course.sum_mean_ns += whole_ns > 0 ? (now_ns + end_ns) / 2 * done_ns / whole_ns : now_ns;
        left_ns[item.job] -= done_ns;
        now_ns = end_ns;
        if (ends) {
            course.sum_end_ns += end_ns;
            course.last_end_ns = end_ns;
        } else {
            heap_push(&heap, (struct waiting){by_left ? left_ns[item.job] : item.key, item.job});
        }
    }
    free(left_ns);
    free(heap.items);
    return course;
}

void machine_run(const struct machine_job *jobs, size_t n, double speed,
                 struct machine_limits *out) {
    *out = (struct machine_limits){0};
    if (n == 0) {
        return;
    }
    struct course shortest_left = run(jobs, n, speed, true), shortest = run(jobs, n, speed, false);
    double released_ns = 0, alone_ns = 0, tail_ns = 0, end_ns = shortest_left.last_end_ns;
    for (size_t i = 0; i < n; i++) {
        released_ns += jobs[i].release_ns;
        alone_ns += jobs[i].alone_ns;
        tail_ns += jobs[i].tail_ns;
        end_ns = fmax(end_ns, jobs[i].release_ns + jobs[i].alone_ns);
    }
    double count = (double)n;
    out->mean_by_work_ns = (shortest_left.sum_end_ns - released_ns) / count;
    out->mean_by_passes_ns = alone_ns / count;
    out->mean_by_both_ns = (shortest.sum_mean_ns + tail_ns - released_ns) / count;
    out->mean_latency_ns =
        fmax(out->mean_by_work_ns, fmax(out->mean_by_passes_ns, out->mean_by_both_ns));
    out->end_ns = end_ns;
}

/* ---- on time ---- */

/* Takes out of `kept`, of which the last is late, the job without which the last is done first. */
static void drop_one(const struct machine_job *jobs, double speed, size_t *kept, size_t *n,
                     double *starts_ns) {
    double now_ns = 0, before_ns = 0, room_ns = INFINITY;
    for (size_t i = 0; i < *n; i++) {
        before_ns = now_ns;
        starts_ns[i] = fmax(now_ns, jobs[kept[i]].release_ns);
        now_ns = starts_ns[i] + jobs[kept[i]].work_ns / speed;
    }
    size_t best = *n - 1;
    double best_ns = now_ns - before_ns;
    for (size_t i = *n; i-- > 0;) { /* later jobs move up as far as their releases allow */
        const struct machine_job *job = &jobs[kept[i]];
        double gain_ns = fmin(job->work_ns / speed, room_ns);
        if (i + 1 < *n && gain_ns > best_ns) {
            best_ns = gain_ns;
            best = i;
        }
        room_ns = fmin(room_ns, starts_ns[i] - job->release_ns);
    }
    for (size_t i = best; i + 1 < *n; i++) {
        kept[i] = kept[i + 1];
    }
    --*n;
}

/* How many are on time; fewer than `enough` where there can be no more. */
static size_t on_time(const struct machine_job *jobs, size_t n, double speed, double latency_ns,
                      size_t enough) {
    size_t *kept = mem_unwritten(n + 1, sizeof *kept), n_kept = 0;
    double *starts_ns = mem_unwritten(n + 1, sizeof *starts_ns), end_ns = 0;
    for (size_t i = 0; i < n && n_kept + n - i >= enough; i++) {
        if (jobs[i].alone_ns > latency_ns) {
            continue;
        }
        kept[n_kept++] = i;
        end_ns = fmax(end_ns, jobs[i].release_ns) + jobs[i].work_ns / speed;
        if (end_ns > jobs[i].release_ns + latency_ns) {
            drop_one(jobs, speed, kept, &n_kept, starts_ns);
            end_ns = 0;
            for (size_t k = 0; k < n_kept; k++) {
                end_ns = fmax(end_ns, jobs[kept[k]].release_ns) + jobs[kept[k]].work_ns / speed;
            }
        }
    }
    free(kept);
    free(starts_ns);
    return n_kept;
}

size_t machine_on_time(const struct machine_job *jobs, size_t n, double speed, double latency_ns) {
    return on_time(jobs, n, speed, latency_ns, 0);
}

double machine_quantile(const struct machine_job *jobs, size_t n, double speed, double q) {
    if (n == 0) {
        return 0;
    }
    size_t place = (size_t)floor((double)(n - 1) * q);
    double *alone_ns = mem_unwritten(n, sizeof *alone_ns);
    for (size_t i = 0; i < n; i++) {
        alone_ns[i] = jobs[i].alone_ns;
    }
    sort_doubles(alone_ns, n);
    double low = alone_ns[place], high = low;
    free(alone_ns);
    while (speed > 0 && low < INFINITY && on_time(jobs, n, speed, high, place + 1) <= place) {
        low = high;
        high = fmax(1, 2 * high);
    }
    while (high > low * 1.0005) { /* `low` is too little, or alone what it is */
        double middle = (low + high) / 2;
        *(on_time(jobs, n, speed, middle, place + 1) <= place ? &low : &high) = middle;
    }
    return low;
}
