/* Exact: the lowest plan there is, by search, or the best one found within a budget of nodes.
 *
 * The search is the one that MiniMalloc publishes (Moffitt, "MiniMalloc", ASPLOS 2023). Push every
 * buffer of a plan down as far as it goes and list the buffers by offset: each then lies on the
 * highest end among the buffers before it that live with it, its floor. So it suffices to choose
 * the order, with offsets that never decrease and, within an offset, ranks that never decrease.
 * A branch ends early where
 *   - a section (a largest set of buffers live at one time) cannot hold what is left: what is left
 *     of it lies above its floor, above the lowest floor of its buffers and above the last offset;
 *   - the next buffer would leave a gap in which another one fits: it could as well be moved down;
 *   - a buffer with nothing left above it failed: its place in the order can be no later one.
 * Where no unplaced buffer crosses from one time to the next, both sides are solved on their own.
 * Ranks decide which of many equal choices comes first, and hard problems are solved quickly under
 * one ranking and not under another; so three rankings take turns with budgets that double. */
#include <string.h>

#include "sim/memory/planner/planner_order.h"

enum position_outcome {
    FOUND,
    NONE,    /* no plan within the capacity */
    STOPPED, /* out of nodes */
};

/* Values to put back when a placement is undone. */
struct note {
    uint32_t index;
    int64_t value;
};

struct notes {
    struct note *notes;
    size_t n, room;
};

/* Placing all buffers notes every member of a section once. As many notes again are for raising the
 * floors of sections; when they are used up, floors stay. Ranks are noted where the problem falls
 * apart; when their notes are used up, ranks stay. A weaker search then, not a wrong one. */
enum { NOTES_PER_MEMBER = 2, RANK_NOTES_PER_BUFFER = 8 };

enum { WATCH_NODES = 128 };

struct search {
    /* The problem: buffers with bytes, renumbered. */
    uint32_t n, n_sections, n_members;
    uint32_t *original;
    int64_t *bytes, *align_bytes;
    double *area, *lifetime, *crowd_bytes; /* the last: what is left of its fullest section */
    uint32_t *first_section, *end_section;
    uint32_t *neighbours_start, *neighbours; /* buffers live at some time with each */
    uint32_t *members_start, *members;       /* buffers of each section */

    /* One attempt: the capacity, the ranking, and where the search stands. */
    int64_t capacity_bytes;
    uint64_t nodes_left;
    const struct plan_request *request; /* whose watch is asked every WATCH_NODES */
    uint64_t n_seen;
    bool is_stopped;
    int ranking; /* of the table below */
    int64_t *rank;
    uint32_t *pool; /* all buffers; each part of the search owns a range of it */
    bool *is_placed;
    int64_t *floor_bytes;    /* lowest offset left for each unplaced buffer */
    int64_t *solution_bytes; /* offsets of what has been found */
    int64_t *section_floor_bytes, *section_rest_bytes;
    uint32_t *lowest_member; /* of each section: likely the unplaced one with the lowest floor */
    uint32_t *n_crossing;    /* unplaced buffers that live in this section and the next */
    struct notes buffer_notes, section_notes, rank_notes;
};

/* A part of the problem: unplaced buffers pool[low..high), which live in sections first..end-1, and
 * what is known of the next one's place in the order. */
struct part {
    uint32_t low, high, first_section, end_section;
    int64_t last_offset_bytes;
    int64_t last_rank; /* -1: any at this offset */
};

/* ---- rankings ---- */

/* Each ranking compares these, the first that differs, the larger first. */
enum rank_key { RANK_LIFETIME, RANK_AREA, RANK_CROWD };

static const enum rank_key rankings[][3] = {
    {RANK_LIFETIME, RANK_AREA, RANK_CROWD},
    {RANK_CROWD, RANK_AREA, RANK_LIFETIME},
    {RANK_CROWD, RANK_LIFETIME, RANK_AREA},
};
enum { RANKING_COUNT = sizeof rankings / sizeof rankings[0] };

static bool ranks_before(const void *state, uint32_t a, uint32_t b) {
    const struct search *s = state;
    const double *const values[] = {
        [RANK_LIFETIME] = s->lifetime, [RANK_AREA] = s->area, [RANK_CROWD] = s->crowd_bytes};
    for (int i = 0; i < 3; i++) {
        const double *value = values[rankings[s->ranking][i]];
        if (value[a] != value[b]) {
            return value[a] > value[b];
        }
    }
    return a < b;
}

/* Rank the buffers pool[low..high) by what is left of the sections. */
static void rank_pool(struct search *s, uint32_t low, uint32_t high) {
    for (uint32_t i = low; i < high; i++) {
        uint32_t buffer = s->pool[i];
        int64_t most = 0;
        for (uint32_t k = s->first_section[buffer]; k < s->end_section[buffer]; k++) {
            most = s->section_rest_bytes[k] > most ? s->section_rest_bytes[k] : most;
        }
        s->crowd_bytes[buffer] = (double)most;
    }
    order_sort(s->pool + low, high - low, ranks_before, s);
    for (uint32_t i = low; i < high; i++) {
        s->rank[s->pool[i]] = i - low;
    }
}

/* ---- one placement and its undoing ---- */

static void note(struct notes *notes, uint32_t index, int64_t value) {
    ASSERT(notes->n < notes->room);
    notes->notes[notes->n++] = (struct note){index, value};
}

static void take_back(struct notes *notes, size_t mark, int64_t *values) {
    while (notes->n > mark) {
        notes->n--;
        values[notes->notes[notes->n].index] = notes->notes[notes->n].value;
    }
}

/* Raise the floor of a section to the lowest floor of what is left of it. The buffer that held the
 * floor down the last time mostly still does. */
static void raise_section(struct search *s, uint32_t section) {
    int64_t held = s->section_floor_bytes[section], lowest = INT64_MAX;
    uint32_t likely = s->lowest_member[section];
    if (!s->is_placed[likely] && s->floor_bytes[likely] <= held) {
        return;
    }
    for (uint32_t i = s->members_start[section]; i < s->members_start[section + 1]; i++) {
        uint32_t buffer = s->members[i];
        if (s->is_placed[buffer]) {
            continue;
        }
        if (s->floor_bytes[buffer] <= held) {
            s->lowest_member[section] = buffer;
            return;
        }
        lowest = s->floor_bytes[buffer] < lowest ? s->floor_bytes[buffer] : lowest;
    }
    if (lowest < INT64_MAX && s->section_notes.n + s->n_members < s->section_notes.room) {
        note(&s->section_notes, section, held);
        s->section_floor_bytes[section] = lowest;
    }
}

/* Raise the floors above a placed buffer. `*first` and `*end` become the sections touched. False
 * when nothing is left above it. */
static bool raise_neighbours(struct search *s, uint32_t buffer, uint32_t *first, uint32_t *end) {
    int64_t top = s->floor_bytes[buffer] + s->bytes[buffer];
    bool anything_above = false;
    for (uint32_t i = s->neighbours_start[buffer]; i < s->neighbours_start[buffer + 1]; i++) {
        uint32_t other = s->neighbours[i];
        if (s->is_placed[other]) {
            continue;
        }
        anything_above = true;
        if (s->floor_bytes[other] < top) {
            note(&s->buffer_notes, other, s->floor_bytes[other]);
            s->floor_bytes[other] = align_up(top, s->align_bytes[other]);
            *first = s->first_section[other] < *first ? s->first_section[other] : *first;
            *end = s->end_section[other] > *end ? s->end_section[other] : *end;
        }
    }
    return anything_above;
}

/* Whether what is left of sections first..end-1 still fits above their floors. */
static bool sections_fit(struct search *s, uint32_t first, uint32_t end) {
    for (uint32_t section = first; section < end; section++) {
        int64_t rest = s->section_rest_bytes[section];
        if (rest > 0) {
            raise_section(s, section);
            if (s->section_floor_bytes[section] + rest > s->capacity_bytes) {
                return false;
            }
        }
    }
    return true;
}

static enum position_outcome search(struct search *s, const struct part *part);

/* Search a piece on its own, under ranks made for it where those of its surroundings can be noted.
 * A new ranking orders buffers at the last offset anew, so any of them may come next. */
static enum position_outcome search_piece(struct search *s, const struct part *part) {
    struct part piece = *part;
    size_t mark = s->rank_notes.n;
    if (mark + (piece.high - piece.low) <= s->rank_notes.room) {
        for (uint32_t i = piece.low; i < piece.high; i++) {
            note(&s->rank_notes, s->pool[i], s->rank[s->pool[i]]);
        }
        rank_pool(s, piece.low, piece.high);
        piece.last_rank = -1;
    }
    enum position_outcome outcome = search(s, &piece);
    take_back(&s->rank_notes, mark, s->rank);
    return outcome;
}

/* Solve the ranges of sections that no unplaced buffer joins any more, each on its own. */
static enum position_outcome search_pieces(struct search *s, const struct part *part) {
    struct part piece = *part;
    uint32_t low = part->low;
    for (uint32_t section = part->first_section; section < part->end_section; section++) {
        if (section + 1 < part->end_section && s->n_crossing[section] > 0) {
            continue;
        }
        piece.low = piece.high = low;
        piece.end_section = section + 1;
        for (uint32_t i = low; i < part->high; i++) {
            uint32_t buffer = s->pool[i];
            if (s->first_section[buffer] <= section) {
                s->pool[i] = s->pool[piece.high];
                s->pool[piece.high++] = buffer;
            }
        }
        enum position_outcome outcome = search_piece(s, &piece);
        if (outcome != FOUND) {
            return outcome;
        }
        low = piece.high;
        piece.first_section = section + 1;
    }
    return FOUND;
}

/* Search on with the buffer at pool[part->low] placed; `part` is what it was before. */
static enum position_outcome search_below(struct search *s, const struct part *part,
                                          uint32_t buffer) {
    struct part rest = *part;
    bool falls_apart = false;
    rest.low++;
    rest.last_offset_bytes = s->floor_bytes[buffer];
    rest.last_rank = s->rank[buffer];
    for (uint32_t i = s->first_section[buffer]; i + 1 < s->end_section[buffer]; i++) {
        falls_apart |= --s->n_crossing[i] == 0;
    }
    enum position_outcome outcome = falls_apart ? search_pieces(s, &rest) : search(s, &rest);
    for (uint32_t i = s->first_section[buffer]; i + 1 < s->end_section[buffer]; i++) {
        s->n_crossing[i]++;
    }
    return outcome;
}

/* Place a buffer on its floor, search on, and undo it. `*anything_above` tells whether the buffer
 * stands in the way of another one. */
static enum position_outcome search_with(struct search *s, const struct part *part, uint32_t buffer,
                                         bool *anything_above) {
    size_t buffer_mark = s->buffer_notes.n, section_mark = s->section_notes.n;
    int64_t offset = s->floor_bytes[buffer], bytes = s->bytes[buffer];
    uint32_t first = s->first_section[buffer], end = s->end_section[buffer];
    s->is_placed[buffer] = true;
    for (uint32_t section = first; section < end; section++) {
        note(&s->section_notes, section, s->section_floor_bytes[section]);
        s->section_floor_bytes[section] = offset + bytes;
        s->section_rest_bytes[section] -= bytes;
    }
    *anything_above = raise_neighbours(s, buffer, &first, &end);
    enum position_outcome outcome =
        sections_fit(s, first, end) ? search_below(s, part, buffer) : NONE;
    take_back(&s->section_notes, section_mark, s->section_floor_bytes);
    take_back(&s->buffer_notes, buffer_mark, s->floor_bytes);
    for (uint32_t i = s->first_section[buffer]; i < s->end_section[buffer]; i++) {
        s->section_rest_bytes[i] += bytes;
    }
    s->is_placed[buffer] = false;
    if (outcome == FOUND) {
        s->solution_bytes[buffer] = offset;
    }
    return outcome;
}

/* Offsets from here on cannot be chosen next: another buffer would fit below, or what is left of
 * some section, all of which will lie at this offset or above, would not fit any more. */
static int64_t end_of_choice(const struct search *s, const struct part *part) {
    int64_t lowest_end = INT64_MAX, most_rest = 0;
    for (uint32_t i = part->low; i < part->high; i++) {
        int64_t end = s->floor_bytes[s->pool[i]] + s->bytes[s->pool[i]];
        lowest_end = end < lowest_end ? end : lowest_end;
    }
    for (uint32_t i = part->first_section; i < part->end_section; i++) {
        most_rest = s->section_rest_bytes[i] > most_rest ? s->section_rest_bytes[i] : most_rest;
    }
    int64_t highest = s->capacity_bytes - most_rest;
    return highest + 1 < lowest_end ? highest + 1 : lowest_end;
}

static bool stops(struct search *s) {
    const struct plan_request *request = s->request;
    if (s->n_seen++ % WATCH_NODES == 0 && request->watch != NULL && !s->is_stopped) {
        s->is_stopped = request->watch(request->watch_state, s->n_seen);
    }
    return s->is_stopped;
}

static enum position_outcome search(struct search *s, const struct part *part) {
    if (part->low == part->high) {
        return FOUND;
    }
    if (s->nodes_left == 0 || stops(s)) {
        return STOPPED;
    }
    s->nodes_left--;
    int64_t end = end_of_choice(s, part);
    int64_t last_offset = part->last_offset_bytes, last_rank = part->last_rank;
    for (;;) {
        uint32_t at = part->high;
        int64_t best_floor = end, best_rank = -1;
        for (uint32_t i = part->low; i < part->high; i++) {
            int64_t floor = s->floor_bytes[s->pool[i]], rank = s->rank[s->pool[i]];
            bool comes = floor > last_offset || (floor == last_offset && rank > last_rank);
            if (comes && (floor < best_floor || (floor == best_floor && rank < best_rank))) {
                at = i;
                best_floor = floor;
                best_rank = rank;
            }
        }
        if (at == part->high) {
            return NONE;
        }
        uint32_t buffer = s->pool[at];
        s->pool[at] = s->pool[part->low];
        s->pool[part->low] = buffer;
        bool anything_above;
        enum position_outcome outcome = search_with(s, part, buffer, &anything_above);
        if (outcome != NONE || !anything_above) {
            return outcome;
        }
        last_offset = best_floor;
        last_rank = best_rank;
    }
}

/* ---- one capacity ---- */

/* Search under one ranking with at most `max_nodes`; gives back those it left over. */
static enum position_outcome attempt(struct search *s, int ranking, uint64_t *max_nodes) {
    s->ranking = ranking;
    s->buffer_notes.n = s->section_notes.n = s->rank_notes.n = 0;
    memset(s->section_floor_bytes, 0, s->n_sections * sizeof s->section_floor_bytes[0]);
    memset(s->section_rest_bytes, 0, s->n_sections * sizeof s->section_rest_bytes[0]);
    for (uint32_t i = 0; i < s->n_sections; i++) {
        s->lowest_member[i] = s->members[s->members_start[i]];
    }
    memset(s->n_crossing, 0, s->n_sections * sizeof s->n_crossing[0]);
    for (uint32_t i = 0; i < s->n; i++) {
        s->pool[i] = i;
        s->is_placed[i] = false;
        s->floor_bytes[i] = 0;
        for (uint32_t section = s->first_section[i]; section < s->end_section[i]; section++) {
            s->section_rest_bytes[section] += s->bytes[i];
            s->n_crossing[section] += section + 1 < s->end_section[i];
        }
    }
    struct part all = {.high = s->n, .end_section = s->n_sections, .last_rank = -1};
    s->nodes_left = *max_nodes;
    enum position_outcome outcome = search_pieces(s, &all);
    *max_nodes = s->nodes_left;
    return outcome;
}

/* Rankings in turns, with budgets that double, until one of them has the answer. */
static enum position_outcome search_within(struct search *s, int64_t capacity_bytes,
                                           uint64_t max_nodes, uint64_t *n_nodes) {
    s->capacity_bytes = capacity_bytes;
    for (uint64_t turn = 2 * (uint64_t)s->n;; turn *= 2) {
        for (int ranking = 0; ranking < RANKING_COUNT; ranking++) {
            uint64_t given = turn < max_nodes ? turn : max_nodes, left = given;
            enum position_outcome outcome = attempt(s, ranking, &left);
            max_nodes -= given - left;
            *n_nodes += given - left;
            if (outcome != STOPPED || max_nodes == 0 || s->is_stopped) {
                return outcome;
            }
        }
    }
}

/* ---- the problem ---- */

/* The end of the first section after `*time`: the first death after the next birth. Everything live
 * then is a set that no other moment's set contains. False when nothing is born any more. */
static bool next_section(const struct packing *packing, bool any_before, int64_t *time) {
    int64_t birth = INT64_MAX, death = INT64_MAX;
    for (uint32_t i = 0; i < packing->n_buffers; i++) {
        const struct packing_buffer *b = &packing->buffers[i];
        if (b->bytes > 0 && (!any_before || b->first_time > *time)) {
            birth = b->first_time < birth ? b->first_time : birth;
        }
    }
    for (uint32_t i = 0; i < packing->n_buffers; i++) {
        const struct packing_buffer *b = &packing->buffers[i];
        if (b->bytes > 0 && b->last_time >= birth) {
            death = b->last_time < death ? b->last_time : death;
        }
    }
    *time = death;
    return birth < INT64_MAX;
}

/* Counts buffers, sections and their members; returns how many neighbours all buffers have. */
static size_t measure(struct search *s, const struct packing *packing) {
    size_t n_neighbours = 0;
    s->n = s->n_sections = s->n_members = 0;
    for (uint32_t i = 0; i < packing->n_buffers; i++) {
        const struct packing_buffer *b = &packing->buffers[i];
        for (uint32_t j = 0; j < i && b->bytes > 0; j++) {
            const struct packing_buffer *other = &packing->buffers[j];
            n_neighbours += other->bytes > 0 && packing_live_together(b, other) ? 2 : 0;
        }
        s->n += b->bytes > 0;
    }
    int64_t time = 0;
    for (; next_section(packing, s->n_sections > 0, &time); s->n_sections++) {
        for (uint32_t i = 0; i < packing->n_buffers; i++) {
            const struct packing_buffer *b = &packing->buffers[i];
            s->n_members += b->bytes > 0 && b->first_time <= time && time <= b->last_time;
        }
    }
    return n_neighbours;
}

/* Give every array of the search its memory; returns the bytes that takes. */
static size_t lay_out(struct search *s, const struct packing *packing, void *memory) {
    struct scratch scratch = {memory, 0};
    const size_t n_neighbours = measure(s, packing);
    s->buffer_notes.room = n_neighbours / 2;
    s->section_notes.room = (size_t)NOTES_PER_MEMBER * s->n_members;
    s->rank_notes.room = (size_t)RANK_NOTES_PER_BUFFER * s->n;
    SCRATCH_TAKE(&scratch, s->original, s->n);
    SCRATCH_TAKE(&scratch, s->bytes, s->n);
    SCRATCH_TAKE(&scratch, s->align_bytes, s->n);
    SCRATCH_TAKE(&scratch, s->area, s->n);
    SCRATCH_TAKE(&scratch, s->lifetime, s->n);
    SCRATCH_TAKE(&scratch, s->crowd_bytes, s->n);
    SCRATCH_TAKE(&scratch, s->first_section, s->n);
    SCRATCH_TAKE(&scratch, s->end_section, s->n);
    SCRATCH_TAKE(&scratch, s->neighbours_start, (size_t)s->n + 1);
    SCRATCH_TAKE(&scratch, s->neighbours, n_neighbours);
    SCRATCH_TAKE(&scratch, s->members_start, (size_t)s->n_sections + 1);
    SCRATCH_TAKE(&scratch, s->members, s->n_members);
    SCRATCH_TAKE(&scratch, s->rank, s->n);
    SCRATCH_TAKE(&scratch, s->pool, s->n);
    SCRATCH_TAKE(&scratch, s->is_placed, s->n);
    SCRATCH_TAKE(&scratch, s->floor_bytes, s->n);
    SCRATCH_TAKE(&scratch, s->solution_bytes, s->n);
    SCRATCH_TAKE(&scratch, s->section_floor_bytes, s->n_sections);
    SCRATCH_TAKE(&scratch, s->section_rest_bytes, s->n_sections);
    SCRATCH_TAKE(&scratch, s->lowest_member, s->n_sections);
    SCRATCH_TAKE(&scratch, s->n_crossing, s->n_sections);
    SCRATCH_TAKE(&scratch, s->buffer_notes.notes, s->buffer_notes.room);
    SCRATCH_TAKE(&scratch, s->section_notes.notes, s->section_notes.room);
    SCRATCH_TAKE(&scratch, s->rank_notes.notes, s->rank_notes.room);
    return scratch.taken_bytes;
}

/* Sections in the order of time with their members; fills in where each buffer lives. */
static void fill_sections(struct search *s, const struct packing *packing) {
    int64_t time = 0;
    uint32_t n_members = 0, section = 0;
    for (; next_section(packing, section > 0, &time); section++) {
        s->members_start[section] = n_members;
        for (uint32_t i = 0; i < s->n; i++) {
            const struct packing_buffer *b = &packing->buffers[s->original[i]];
            if (b->first_time <= time && time <= b->last_time) {
                bool is_first = s->end_section[i] == 0;
                s->first_section[i] = is_first ? section : s->first_section[i];
                s->end_section[i] = section + 1;
                s->members[n_members++] = i;
            }
        }
    }
    s->members_start[section] = n_members;
}

static void fill(struct search *s, const struct packing *packing) {
    for (uint32_t i = 0, n = 0; i < packing->n_buffers; i++) {
        const struct packing_buffer *b = &packing->buffers[i];
        if (b->bytes > 0) {
            s->original[n] = i;
            s->bytes[n] = b->bytes;
            s->align_bytes[n] = b->align_bytes;
            s->lifetime[n] = (double)b->last_time - (double)b->first_time + 1;
            s->area[n] = (double)b->bytes * s->lifetime[n];
            s->first_section[n] = s->end_section[n] = 0;
            n++;
        }
    }
    fill_sections(s, packing);
    uint32_t n_neighbours = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        s->neighbours_start[i] = n_neighbours;
        for (uint32_t j = 0; j < s->n; j++) {
            if (i != j && packing_live_together(&packing->buffers[s->original[i]],
                                                &packing->buffers[s->original[j]])) {
                s->neighbours[n_neighbours++] = j;
            }
        }
    }
    s->neighbours_start[s->n] = n_neighbours;
}

/* ---- from one capacity to the next ---- */

size_t plan_exact_scratch_bytes(const struct packing *packing) {
    struct search s;
    size_t bytes = plan_portfolio_scratch_bytes(packing);
    if (packing->n_buffers <= PACKING_MAX_BUFFERS) {
        bytes += lay_out(&s, packing, NULL);
    }
    return bytes;
}

struct descent {
    struct search search;
    const struct packing *packing;
    struct plan *plan;
    int64_t peak_bytes, granule_bytes;
    uint64_t max_nodes;
};

static enum position_outcome probe(struct descent *d, int64_t capacity_bytes, uint64_t max_nodes) {
    struct search *s = &d->search;
    capacity_bytes = capacity_bytes / d->granule_bytes * d->granule_bytes;
    uint64_t n_nodes = 0;
    enum position_outcome outcome = search_within(s, capacity_bytes, max_nodes, &n_nodes);
    d->max_nodes -= n_nodes;
    d->plan->n_nodes += n_nodes;
    if (outcome == FOUND) {
        for (uint32_t i = 0; i < s->n; i++) {
            d->plan->offset_bytes[s->original[i]] = s->solution_bytes[i];
        }
        d->peak_bytes = offsets_peak(d->packing, d->plan->offset_bytes);
    } else if (outcome == NONE && capacity_bytes >= d->plan->proven_bound_bytes) {
        d->plan->proven_bound_bytes = capacity_bytes + d->granule_bytes;
    }
    return outcome;
}

/* First at the lower bound, which is nearly always reached, then halving what is left between what
 * cannot be or could not be found and what has been, each with a part of the nodes left; the last
 * ones go into the step below the best plan, where a failure is a proof. */
static void descend(struct descent *d) {
    int64_t low = d->plan->proven_bound_bytes;
    enum position_outcome outcome = probe(d, low, d->max_nodes / 4);
    while (outcome != FOUND && d->peak_bytes - low > d->granule_bytes && !d->search.is_stopped) {
        int64_t middle = low + (d->peak_bytes - low) / 2;
        middle = middle / d->granule_bytes * d->granule_bytes;
        middle = middle > low ? middle : low + d->granule_bytes;
        if (middle >= d->peak_bytes) {
            break;
        }
        if (probe(d, middle, d->max_nodes / 4) != FOUND) {
            low = middle;
        }
    }
    while (d->peak_bytes > d->plan->proven_bound_bytes && d->max_nodes > 0 &&
           !d->search.is_stopped) {
        probe(d, d->peak_bytes - d->granule_bytes, d->max_nodes);
    }
}

int plan_exact(const struct plan_request *request, void *memory, struct plan *plan,
               struct err *err) {
    struct descent d = {.packing = request->packing, .plan = plan};
    plan_portfolio(request, memory, plan, err);
    d.peak_bytes = offsets_peak(d.packing, plan->offset_bytes);
    if (d.peak_bytes <= plan->lower_bound_bytes || d.peak_bytes <= request->capacity_bytes) {
        return 0;
    }
    if (d.packing->n_buffers > PACKING_MAX_BUFFERS) {
        plan->stopped = true;
        return 0;
    }
    d.search.request = request;
    lay_out(&d.search, d.packing, (char *)memory + plan_portfolio_scratch_bytes(d.packing));
    fill(&d.search, d.packing);
    d.granule_bytes = packing_granule(d.packing);
    d.max_nodes = request->max_nodes > 0 ? request->max_nodes : PLAN_DEFAULT_NODES;
    if (request->capacity_bytes > 0) {
        int64_t capacity = request->capacity_bytes;
        plan->stopped =
            capacity >= plan->lower_bound_bytes && probe(&d, capacity, d.max_nodes) == STOPPED;
    } else {
        descend(&d);
        plan->stopped = d.peak_bytes > plan->proven_bound_bytes;
    }
    return 0;
}
