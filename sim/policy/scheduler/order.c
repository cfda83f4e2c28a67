#include "sim/policy/scheduler/order.h"

#include "sim/policy/scheduler/concurrency.h"

enum order_where { NEW, RANKED, AGED, ADMITTED };

/* By link: a slot and one. */
static struct ranked *ranked_at(const struct order_use *use, uint32_t link) {
    return (struct ranked *)use->view->own + (link - 1);
}

static const struct request *request_at(const struct order_use *use, uint32_t link) {
    return &use->view->requests[link - 1];
}

static double share_left(const struct request *request) {
    return 1 - (double)request->committed_tokens / request->output_tokens;
}

static bool is_out_of_patience(const struct order_use *use, const struct request *request) {
    return use->view->now_ns - request->arrival_ns > use->patience_ns;
}

/* Keys of those out of patience are below zero: the oldest first. */
static double key_of(const struct order_use *use, uint32_t link) {
    const struct request *request = request_at(use, link);
    if (is_out_of_patience(use, request)) {
        return (double)(request->arrival_ns - use->view->now_ns);
    }
    struct ranked *ranked = ranked_at(use, link);
    double share = share_left(request);
    if (ranked->steps <= 0) {
        struct outlook outlook;
        use->view->foresee(use->view->estimator, link - 1, NULL, 0, &outlook);
        ranked->tokens = (double)outlook.tokens / share;
        ranked->steps = (double)outlook.steps / share;
    }
    return use->rules->key(use->state, use->view, request, ranked, share);
}

/* ---- the tree: a treap over group, rank and place, whose nodes are a list, too ---- */

static bool is_before(const struct ranked *a, const struct ranked *b) {
    if (a->group < b->group || a->group > b->group) {
        return a->group < b->group;
    }
    if (a->rank < b->rank || a->rank > b->rank) {
        return a->rank < b->rank;
    }
    return a->place < b->place;
}

/* As good as random, and the same in every run (the finalizer of SplitMix64, Steele et al. 2014).
 */
static uint64_t priority(const struct ranked *ranked) {
    uint64_t x = ranked->place * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

static void tree_put(const struct order_use *use, uint32_t link) {
    struct ranked *ranked = ranked_at(use, link);
    uint32_t *place = &use->order->root, *left = &ranked->left, *right = &ranked->right;
    ranked->before = ranked->after = 0;
    while (*place != 0 && priority(ranked_at(use, *place)) >= priority(ranked)) {
        struct ranked *above = ranked_at(use, *place);
        bool goes_left = is_before(ranked, above);
        *(goes_left ? &ranked->after : &ranked->before) = *place;
        place = goes_left ? &above->left : &above->right;
    }
    uint32_t below = *place;
    *place = link;
    while (below != 0) { /* what stood there goes to its two sides */
        struct ranked *other = ranked_at(use, below);
        uint32_t this = below;
        if (is_before(other, ranked)) {
            *left = ranked->before = this;
            left = &other->right;
            below = other->right;
        } else {
            *right = ranked->after = this;
            right = &other->left;
            below = other->left;
        }
    }
    *left = *right = 0;
    if (ranked->before != 0) {
        ranked_at(use, ranked->before)->after = link;
    }
    if (ranked->after != 0) {
        ranked_at(use, ranked->after)->before = link;
    }
}

static void tree_take(const struct order_use *use, uint32_t link) {
    const struct ranked *ranked = ranked_at(use, link);
    uint32_t *place = &use->order->root;
    while (*place != link) {
        struct ranked *above = ranked_at(use, *place);
        place = is_before(ranked, above) ? &above->left : &above->right;
    }
    uint32_t left = ranked->left, right = ranked->right;
    while (left != 0 && right != 0) {
        struct ranked *l = ranked_at(use, left), *r = ranked_at(use, right);
        bool left_is_above = priority(l) >= priority(r);
        *place = left_is_above ? left : right;
        place = left_is_above ? &l->right : &r->left;
        left = left_is_above ? l->right : left;
        right = left_is_above ? right : r->left;
    }
    *place = left != 0 ? left : right;
    if (ranked->before != 0) {
        ranked_at(use, ranked->before)->after = ranked->after;
    }
    if (ranked->after != 0) {
        ranked_at(use, ranked->after)->before = ranked->before;
    }
}

/* The first request of which `is_beyond`, which holds for all that follow it; 0: none. */
static uint32_t tree_first(const struct order_use *use, double group,
                           bool (*is_beyond)(const struct order_use *use, double group,
                                             uint32_t link)) {
    uint32_t found = 0;
    for (uint32_t link = use->order->root; link != 0;) {
        bool beyond = is_beyond(use, group, link);
        found = beyond ? link : found;
        link = beyond ? ranked_at(use, link)->left : ranked_at(use, link)->right;
    }
    return found;
}

static bool is_of_later_group(const struct order_use *use, double group, uint32_t link) {
    return ranked_at(use, link)->group > group;
}

static bool is_in_time(const struct order_use *use, double group, uint32_t link) {
    double its = ranked_at(use, link)->group;
    return its > group || (!(its < group) && key_of(use, link) < ORDER_LATE / 2);
}

/* ---- those that wait ---- */

static void put(const struct order_use *use, uint32_t link) {
    struct ranked *ranked = ranked_at(use, link);
    const struct request *request = request_at(use, link);
    ranked->place = ++use->order->n_places;
    ranked->is_narrow = request->span.exact || !is_full_pass(&request->span);
    use->order->n_narrow += ranked->is_narrow;
    if (is_out_of_patience(use, request)) {
        ranked->where = AGED;
        use->order->n_aged++;
        return;
    }
    (void)key_of(use, link); /* which measures it */
    use->rules->place(use->state, request, ranked);
    ranked->where = RANKED;
    use->order->n_ranked++;
    tree_put(use, link);
}

static bool is_known(const struct order_use *use, uint32_t slot) {
    return ranked_at(use, slot + 1)->where != NEW;
}

void order_sync(const struct order_use *use) {
    struct order *order = use->order;
    const struct schedule_view *view = use->view;
    uint32_t known = view->n_waiting;
    while (known > 0 && !is_known(use, view->waiting[known - 1])) {
        known--;
    }
    if (order->n_ranked + order->n_aged != known) {
        /* Some still wait after order_admit, or left in another way. */
        *order = (struct order){0};
        known = 0;
    }
    for (uint32_t i = known; i < view->n_waiting; i++) {
        put(use, view->waiting[i] + 1);
    }
}

void order_admit(const struct order_use *use, const struct batch *batch) {
    struct order *order = use->order;
    for (uint32_t i = batch->n - batch->n_admitted; i < batch->n; i++) {
        struct ranked *ranked = ranked_at(use, batch->selected[i] + 1);
        if (ranked->where == RANKED) {
            tree_take(use, batch->selected[i] + 1);
            order->n_ranked--;
        } else {
            order->n_aged--;
        }
        order->n_narrow -= ranked->is_narrow;
        ranked->where = ADMITTED;
    }
}

uint32_t order_running(const struct order_use *use, struct candidate *out, uint32_t most) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < use->view->n_running; i++) {
        uint32_t slot = use->view->running[i];
        double key = key_of(use, slot + 1);
        if (n == most && out[most - 1].key <= key) {
            continue;
        }
        uint32_t place = n < most ? n++ : most - 1;
        for (; place > 0 && out[place - 1].key > key; place--) {
            out[place] = out[place - 1];
        }
        out[place] = (struct candidate){key, slot, false};
    }
    return n;
}

/* ---- the walk: a heap of parts of groups ---- */

static struct order_part *part_at(const struct order_use *use, uint32_t i) {
    return &((struct ranked *)use->view->own + i / 2)->parts[i % 2];
}

static bool part_is_before(const struct order_use *use, const struct order_part *a,
                           const struct order_part *b) {
    if (a->key < b->key || a->key > b->key) {
        return a->key < b->key;
    }
    return ranked_at(use, a->next)->place < ranked_at(use, b->next)->place;
}

/* Moves the part down from the place to where it belongs. */
static void sink(const struct order_use *use, uint32_t n, uint32_t place, struct order_part part) {
    for (uint32_t child; (child = 2 * place + 1) < n; place = child) {
        child += child + 1 < n && part_is_before(use, part_at(use, child + 1), part_at(use, child));
        if (!part_is_before(use, part_at(use, child), &part)) {
            break;
        }
        *part_at(use, place) = *part_at(use, child);
    }
    *part_at(use, place) = part;
}

/* A part of a group, unless it is empty. */
static void add_part(const struct order_use *use, struct order_walk *walk, uint32_t from,
                     uint32_t end) {
    if (from != end) {
        *part_at(use, walk->n_parts++) = (struct order_part){key_of(use, from), from, end};
    }
}

static uint32_t first_link(const struct order_use *use) {
    uint32_t link = use->order->root;
    while (link != 0 && ranked_at(use, link)->left != 0) {
        link = ranked_at(use, link)->left;
    }
    return link;
}

/* None in the tree is out of patience: those went before. */
static void begin(const struct order_use *use, struct order_walk *walk) {
    uint32_t next_group;
    for (uint32_t link = first_link(use); link != 0; link = next_group) {
        double group = ranked_at(use, link)->group;
        next_group = tree_first(use, group, is_of_later_group);
        uint32_t in_time = link;
        if (key_of(use, link) >= ORDER_LATE / 2) {
            in_time = tree_first(use, group, is_in_time);
            add_part(use, walk, link, in_time);
        }
        add_part(use, walk, in_time, next_group);
    }
    for (uint32_t i = walk->n_parts / 2; i-- > 0;) {
        sink(use, walk->n_parts, i, *part_at(use, i));
    }
    walk->is_begun = true;
}

/* Those out of patience stand before all others in the queue, which is in order of arrival. */
static bool next_aged(const struct order_use *use, struct order_walk *walk, uint32_t *link) {
    const struct schedule_view *view = use->view;
    if (walk->is_begun || walk->n_aged == view->n_waiting) {
        return false;
    }
    *link = view->waiting[walk->n_aged] + 1;
    if (!is_out_of_patience(use, request_at(use, *link))) {
        return false;
    }
    if (ranked_at(use, *link)->where == RANKED) {
        tree_take(use, *link);
        ranked_at(use, *link)->where = AGED;
        use->order->n_ranked--;
        use->order->n_aged++;
    }
    walk->n_aged++;
    return true;
}

bool order_next(const struct order_use *use, struct order_walk *walk, struct candidate *out) {
    uint32_t link;
    if (next_aged(use, walk, &link)) {
        *out = (struct candidate){key_of(use, link), link - 1, true};
        return true;
    }
    if (!walk->is_begun) {
        begin(use, walk);
    }
    if (walk->n_parts == 0) {
        return false;
    }
    struct order_part part = *part_at(use, 0);
    *out = (struct candidate){part.key, part.next - 1, true};
    part.next = ranked_at(use, part.next)->after;
    if (part.next != part.end) {
        part.key = key_of(use, part.next);
    } else {
        part = *part_at(use, --walk->n_parts);
    }
    if (walk->n_parts > 0) {
        sink(use, walk->n_parts, 0, part);
    }
    return true;
}
