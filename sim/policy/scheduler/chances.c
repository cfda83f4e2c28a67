#include "sim/policy/scheduler/chances.h"

enum { REMEMBERED = 4096 };

static void count(struct chances *chances, uint32_t kind, bool is_committed) {
    if (chances->ran[kind] >= REMEMBERED) {
        chances->ran[kind] /= 2;
        chances->committed[kind] /= 2;
    }
    chances->ran[kind]++;
    chances->committed[kind] += is_committed;
}

static bool is_masked(const struct masked_seen *masked, uint32_t n, uint32_t offset) {
    uint32_t low = 0, high = n;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (masked[middle].offset < offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < n && masked[low].offset == offset;
}

void chances_learn(struct chances *chances, struct chances_told *told,
                   const struct request *request, const struct masked_seen *masked, uint32_t n) {
    const bool is_there = told->first == window_first(request);
    for (uint32_t i = 0; i < told->n; i++) {
        count(chances, told->kind[i], !is_there || !is_masked(masked, n, told->offset[i]));
    }
    told->n = 0;
}

void chances_gains(const double *chances, uint32_t n, double *out) {
    double none = 1;
    uint32_t parts[CHANCES_MOST_POSITIONS]; /* lengths of runs of equal gains, from the left */
    uint32_t n_parts = 0, end = 0;
    double gains[CHANCES_MOST_POSITIONS];
    for (uint32_t i = 0; i < n; i++) {
        double gain = i == 0 ? 1 : chances[i] * (1 - none);
        uint32_t length = 1;
        none *= 1 - chances[i];
        /* What gains more than those before it makes one run with them. */
        while (n_parts > 0 && gains[n_parts - 1] < gain) {
            n_parts--;
            gain = (gain * length + gains[n_parts] * parts[n_parts]) / (length + parts[n_parts]);
            length += parts[n_parts];
        }
        gains[n_parts] = gain;
        parts[n_parts++] = length;
    }
    for (uint32_t part = 0; part < n_parts; part++) {
        for (uint32_t i = 0; i < parts[part]; i++) {
            out[end++] = gains[part];
        }
    }
}
