#include "sim/memory/planner/planner_order.h"

#include "sim/base/num.h"

void *scratch_take(struct scratch *scratch, size_t count, size_t size) {
    void *piece = scratch->memory == NULL ? NULL : scratch->memory + scratch->taken_bytes;
    scratch->taken_bytes += (count * size + 15) / 16 * 16;
    return piece;
}

int64_t offsets_peak(const struct packing *packing, const int64_t *offset_bytes) {
    int64_t peak = 0;
    for (uint32_t i = 0; i < packing->n_buffers; i++) {
        int64_t end = offset_bytes[i] + packing->buffers[i].bytes;
        peak = end > peak ? end : peak;
    }
    return peak;
}

int64_t packing_granule(const struct packing *packing) {
    int64_t of_sizes = 0, of_all = 0;
    bool all_divide = true;
    for (uint32_t i = 0; i < packing->n_buffers; i++) {
        of_sizes = common_divisor(of_sizes, packing->buffers[i].bytes);
    }
    of_all = of_sizes;
    for (uint32_t i = 0; i < packing->n_buffers && of_sizes > 0; i++) {
        int64_t align = packing->buffers[i].bytes > 0 ? packing->buffers[i].align_bytes : 1;
        all_divide &= of_sizes % align == 0;
        of_all = common_divisor(of_all, align);
    }
    return all_divide ? of_sizes : of_all;
}

static bool lives_at(const struct packing_buffer *buffer, int64_t time) {
    return buffer->first_time <= time && time <= buffer->last_time;
}

/* For each buffer the most bytes live at a birth within its life. */
static void find_crowds(const struct packing *packing, double *keys, double *at_birth) {
    const struct packing_buffer *buffers = packing->buffers;
    for (uint32_t i = 0; i < packing->n_buffers; i++) {
        int64_t live = 0;
        for (uint32_t j = 0; j < packing->n_buffers; j++) {
            live += lives_at(&buffers[j], buffers[i].first_time) ? buffers[j].bytes : 0;
        }
        at_birth[i] = (double)live;
    }
    for (uint32_t i = 0; i < packing->n_buffers; i++) {
        keys[i] = 0;
        for (uint32_t j = 0; j < packing->n_buffers; j++) {
            if (lives_at(&buffers[i], buffers[j].first_time) && at_birth[j] > keys[i]) {
                keys[i] = at_birth[j];
            }
        }
    }
}

static void find_keys(const struct packing *packing, enum buffer_order kind, double *keys) {
    for (uint32_t i = 0; i < packing->n_buffers && kind != ORDER_CROWD; i++) {
        const struct packing_buffer *b = &packing->buffers[i];
        double lifetime = (double)b->last_time - (double)b->first_time + 1;
        switch (kind) {
        case ORDER_BIRTH:
            keys[i] = -(double)b->first_time;
            break;
        case ORDER_BYTES:
            keys[i] = (double)b->bytes;
            break;
        case ORDER_AREA:
            keys[i] = (double)b->bytes * lifetime;
            break;
        case ORDER_LIFETIME:
            keys[i] = lifetime;
            break;
        case ORDER_CROWD:
            break;
        }
    }
    if (kind == ORDER_CROWD) {
        find_crowds(packing, keys, keys + packing->n_buffers);
    }
}

/* The larger of two children, one level down at a time. */
static void sift(uint32_t *items, uint32_t root, uint32_t n,
                 bool (*comes_before)(const void *state, uint32_t a, uint32_t b),
                 const void *state) {
    for (uint32_t child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && comes_before(state, items[child], items[child + 1])) {
            child++;
        }
        if (!comes_before(state, items[root], items[child])) {
            return;
        }
        uint32_t held = items[root];
        items[root] = items[child];
        items[child] = held;
    }
}

void order_sort(uint32_t *items, uint32_t n,
                bool (*comes_before)(const void *state, uint32_t a, uint32_t b),
                const void *state) {
    for (uint32_t i = n / 2; i > 0; i--) {
        sift(items, i - 1, n, comes_before, state);
    }
    for (uint32_t end = n; end > 1; end--) {
        uint32_t held = items[0];
        items[0] = items[end - 1];
        items[end - 1] = held;
        sift(items, 0, end - 1, comes_before, state);
    }
}

struct keyed {
    const struct packing *packing;
    const double *keys;
    bool ties_by_bytes; /* births at the same time stay in the order of the problem */
};

static bool key_comes_before(const void *state, uint32_t a, uint32_t b) {
    const struct keyed *keyed = state;
    const struct packing_buffer *buffers = keyed->packing->buffers;
    if (keyed->keys[a] != keyed->keys[b]) {
        return keyed->keys[a] > keyed->keys[b];
    }
    if (keyed->ties_by_bytes && buffers[a].bytes != buffers[b].bytes) {
        return buffers[a].bytes > buffers[b].bytes;
    }
    return a < b;
}

void order_make(const struct packing *packing, enum buffer_order kind, uint32_t *order,
                double *keys) {
    struct keyed keyed = {packing, keys, kind != ORDER_BIRTH};
    find_keys(packing, kind, keys);
    for (uint32_t i = 0; i < packing->n_buffers; i++) {
        order[i] = i;
    }
    order_sort(order, packing->n_buffers, key_comes_before, &keyed);
}

/* Where the buffer goes among those placed, which are listed by offset. */
static int64_t find_gap(const struct packing *packing, uint32_t buffer, enum gap_choice choice,
                        const uint32_t *by_offset, uint32_t n_placed, const int64_t *offset_bytes) {
    const struct packing_buffer *b = &packing->buffers[buffer];
    int64_t top = 0, best = -1, best_gap = INT64_MAX;
    for (uint32_t i = 0; i < n_placed; i++) {
        uint32_t other = by_offset[i];
        if (!packing_live_together(b, &packing->buffers[other])) {
            continue;
        }
        int64_t start = align_up(top, b->align_bytes), gap = offset_bytes[other] - top;
        if (start + b->bytes <= offset_bytes[other] && gap < best_gap) {
            best = start;
            best_gap = gap;
            if (choice == GAP_LOWEST) {
                return best;
            }
        }
        int64_t end = offset_bytes[other] + packing->buffers[other].bytes;
        top = end > top ? end : top;
    }
    return best >= 0 ? best : align_up(top, b->align_bytes);
}

int64_t order_place(const struct packing *packing, const uint32_t *order, enum gap_choice choice,
                    uint32_t *by_offset, int64_t *offset_bytes) {
    int64_t peak = 0;
    uint32_t n_placed = 0;
    for (uint32_t i = 0; i < packing->n_buffers; i++) {
        uint32_t buffer = order[i];
        if (packing->buffers[buffer].bytes == 0) {
            offset_bytes[buffer] = 0;
            continue;
        }
        int64_t offset = find_gap(packing, buffer, choice, by_offset, n_placed, offset_bytes);
        uint32_t at = n_placed++;
        for (; at > 0 && offset_bytes[by_offset[at - 1]] > offset; at--) {
            by_offset[at] = by_offset[at - 1];
        }
        by_offset[at] = buffer;
        offset_bytes[buffer] = offset;
        int64_t end = offset + packing->buffers[buffer].bytes;
        peak = end > peak ? end : peak;
    }
    return peak;
}

struct ordering {
    double *keys;
    uint32_t *order, *by_offset;
};

static size_t lay_out(struct ordering *o, uint32_t n, void *memory) {
    struct scratch scratch = {memory, 0};
    SCRATCH_TAKE(&scratch, o->keys, ORDER_KEYS_PER_BUFFER * (size_t)n);
    SCRATCH_TAKE(&scratch, o->order, n);
    SCRATCH_TAKE(&scratch, o->by_offset, n);
    return scratch.taken_bytes;
}

size_t order_scratch_bytes(const struct packing *packing) {
    struct ordering o;
    return lay_out(&o, packing->n_buffers, NULL);
}

void order_solve(const struct packing *packing, enum buffer_order kind, enum gap_choice choice,
                 void *memory, int64_t *offset_bytes) {
    struct ordering o;
    lay_out(&o, packing->n_buffers, memory);
    order_make(packing, kind, o.order, o.keys);
    order_place(packing, o.order, choice, o.by_offset, offset_bytes);
}
