#include "sim/policy/scheduler/ranks.h"

/* ---- lines ---- */

void line_append(struct line *line, struct lined *own, uint32_t slot) {
    own[slot].before = line->last;
    own[slot].after = 0;
    *(line->last != 0 ? &own[line->last - 1].after : &line->first) = slot + 1;
    line->last = slot + 1;
}

void line_drop(struct line *line, struct lined *own, uint32_t slot) {
    const struct lined *lined = &own[slot];
    *(lined->before != 0 ? &own[lined->before - 1].after : &line->first) = lined->after;
    *(lined->after != 0 ? &own[lined->after - 1].before : &line->last) = lined->before;
}

/* ---- trees: treaps whose nodes are lists, too ---- */

bool ranked_is_before(const struct ranked *a, const struct ranked *b) {
    return a->key < b->key || (!(b->key < a->key) && a->place < b->place);
}

/* As good as random, and the same in every run (the finalizer of SplitMix64, Steele et al. 2014).
 */
static uint64_t priority(const struct ranked *ranked) {
    uint64_t x = ranked->place * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

/* Those before `ranked` and those after it. */
static void split(struct ranked *own, uint32_t link, const struct ranked *ranked, uint32_t *before,
                  uint32_t *after) {
    if (link == 0) {
        *before = *after = 0;
    } else if (ranked_is_before(&own[link - 1], ranked)) {
        *before = link;
        split(own, own[link - 1].right, ranked, &own[link - 1].right, after);
    } else {
        *after = link;
        split(own, own[link - 1].left, ranked, before, &own[link - 1].left);
    }
}

static uint32_t join(struct ranked *own, uint32_t before, uint32_t after) {
    if (before == 0 || after == 0) {
        return before != 0 ? before : after;
    }
    if (priority(&own[before - 1]) >= priority(&own[after - 1])) {
        own[before - 1].right = join(own, own[before - 1].right, after);
        return before;
    }
    own[after - 1].left = join(own, before, own[after - 1].left);
    return after;
}

static void put_below(struct ranked *own, uint32_t *root, uint32_t link) {
    struct ranked *ranked = &own[link - 1];
    if (*root != 0 && priority(&own[*root - 1]) >= priority(ranked)) {
        struct ranked *above = &own[*root - 1];
        const bool goes_left = ranked_is_before(ranked, above);
        *(goes_left ? &ranked->after : &ranked->before) = *root;
        put_below(own, goes_left ? &above->left : &above->right, link);
        return;
    }
    split(own, *root, ranked, &ranked->left, &ranked->right);
    *root = link;
    for (uint32_t at = ranked->left; at != 0; at = own[at - 1].right) {
        ranked->before = at;
    }
    for (uint32_t at = ranked->right; at != 0; at = own[at - 1].left) {
        ranked->after = at;
    }
}

static void take_below(struct ranked *own, uint32_t *root, uint32_t link) {
    const struct ranked *ranked = &own[link - 1];
    if (*root == link) {
        *root = join(own, ranked->left, ranked->right);
        return;
    }
    struct ranked *above = &own[*root - 1];
    take_below(own, ranked_is_before(ranked, above) ? &above->left : &above->right, link);
}

void ranks_put(struct ranks *ranks, struct ranked *own, uint32_t slot, double key) {
    struct ranked *ranked = &own[slot];
    ranked->key = key;
    ranked->place = ++ranks->n_places;
    ranked->before = ranked->after = 0;
    put_below(own, &ranks->root, slot + 1);
    *(ranked->before != 0 ? &own[ranked->before - 1].after : &ranks->first) = slot + 1;
    *(ranked->after != 0 ? &own[ranked->after - 1].before : &ranks->last) = slot + 1;
}

void ranks_drop(struct ranks *ranks, struct ranked *own, uint32_t slot) {
    const struct ranked *ranked = &own[slot];
    take_below(own, &ranks->root, slot + 1);
    *(ranked->before != 0 ? &own[ranked->before - 1].after : &ranks->first) = ranked->after;
    *(ranked->after != 0 ? &own[ranked->after - 1].before : &ranks->last) = ranked->before;
}
