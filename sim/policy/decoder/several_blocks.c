#include "sim/policy/decoder/several_blocks.h"

/* The same of the positions [from, to) of those seen, which are a block's. */
static uint32_t mark_block(const float *rank, float least, uint32_t from, uint32_t to, bool forces,
                           uint8_t *commit) {
    uint32_t n = 0, best = from;
    for (uint32_t i = from; i < to; i++) {
        commit[i] = rank[i] > least;
        n += commit[i];
        best = rank[i] > rank[best] ? i : best;
    }
    if (n == 0 && to > from && forces) {
        commit[best] = 1;
        n = 1;
    }
    return n;
}

uint32_t several_blocks_choose(const struct request *request, const struct decode_seen *seen,
                               const float *rank, float least, double complete, uint8_t *commit) {
    uint32_t n = 0, from = 0;
    bool forces = true;
    for (uint32_t mark = 0; mark < window_marks(request) && from < seen->n; mark++) {
        const struct range range = window_mark(request, mark);
        const uint32_t length = range_length(range);
        uint32_t to = from;
        while (to < seen->n && seen->first + seen->offset[to] < range.end) {
            to++;
        }
        n += mark_block(rank, least, from, to, forces, commit);
        forces = length - (to - from) >= complete * length;
        from = to;
    }
    return n;
}
