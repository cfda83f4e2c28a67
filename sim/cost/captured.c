#include "sim/cost/captured.h"

#include <string.h>

#include "sim/base/err.h"
#include "sim/base/num.h"

/* Of those that are captured or of those that are not. */
static uint32_t oldest(const struct captured *captured, bool is_captured) {
    uint32_t found = MAX_KNOWN_STEPS;
    for (uint32_t i = 0; i < MAX_KNOWN_STEPS; i++) {
        if (captured->steps[i].is_captured == is_captured &&
            (found == MAX_KNOWN_STEPS ||
             captured->steps[i].last_used < captured->steps[found].last_used)) {
            found = i;
        }
    }
    ASSERT(found < MAX_KNOWN_STEPS);
    return found;
}

uint32_t captured_find(struct captured *captured, uint64_t key, bool *is_new) {
    uint32_t place = 0;
    while (place < MAX_KNOWN_STEPS &&
           (captured->steps[place].last_used == 0 || captured->steps[place].key != key)) {
        place++;
    }
    *is_new = place == MAX_KNOWN_STEPS;
    if (*is_new) {
        place = oldest(captured, false);
        captured->steps[place].key = key;
    }
    captured->steps[place].last_used = ++captured->n_uses;
    return place;
}

uint32_t captured_keep(struct captured *captured, uint32_t place) {
    uint32_t dropped = MAX_KNOWN_STEPS;
    if (captured->n_captured == MAX_CAPTURED) {
        dropped = oldest(captured, true);
        captured_drop(captured, dropped);
    }
    captured->steps[place].is_captured = true;
    captured->n_captured++;
    return dropped;
}

void captured_drop(struct captured *captured, uint32_t place) {
    ASSERT(captured->steps[place].is_captured);
    captured->steps[place].is_captured = false;
    captured->n_captured--;
}

bool captured_issues(struct captured *captured, uint64_t key) {
    bool is_new;
    const uint32_t place = captured_find(captured, key, &is_new);
    const bool issues = !captured->steps[place].is_captured;
    if (issues && !is_new) {
        (void)captured_keep(captured, place);
    }
    return issues;
}

/* FNV-1a over words of eight bytes, each mixed once more (the finaliser of MurmurHash3). */
uint64_t captured_hash(const void *bytes, size_t n) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t at = 0; at < n; at += sizeof hash) {
        uint64_t word = 0;
        memcpy(&word, (const char *)bytes + at, n - at < sizeof word ? n - at : sizeof word);
        word ^= word >> 33;
        word *= UINT64_C(0xff51afd7ed558ccd);
        word ^= word >> 33;
        hash = (hash ^ word) * UINT64_C(0x100000001b3);
        hash ^= hash >> 29;
    }
    return hash;
}

/* Of the spans that attend to themselves, and of the others; and how many decide nothing. */
struct longest {
    int64_t full_queries, block_queries, logit_rows, candidates, pages, n_commit;
};

static struct longest longest_of(const struct step_shape *shape, uint32_t page_rows) {
    struct longest most = {0};
    int64_t n_pages = 0;
    for (uint32_t i = 0; shape->spans != NULL && i < shape->n_spans; i++) {
        const struct span *span = shape->spans[i];
        const bool is_full = span->exact ? span->phase == PHASE_PREFILL : span->context == 0;
        int64_t *queries = is_full ? &most.full_queries : &most.block_queries;
        *queries = num_larger(*queries, span->queries);
        most.logit_rows = num_larger(most.logit_rows, span->logit_rows);
        most.candidates = num_larger(most.candidates, span->select_rows);
        most.n_commit += span->phase == PHASE_COMMIT;
        n_pages =
            page_rows > 0
                ? num_larger(n_pages, ceil_div((int64_t)span->context + span->queries, page_rows))
                : 0;
    }
    for (most.pages = 1; most.pages < n_pages;) {
        most.pages *= 2;
    }
    return most;
}

uint64_t captured_key(const struct step_shape *shape, uint32_t page_rows) {
    static const enum symbol attended[] = {SYM_CONTEXT_ROWS, SYM_PREFILL_K, SYM_PREFILL_QK,
                                           SYM_BLOCK_K,      SYM_BLOCK_QK,  SYM_KEPT_K,
                                           SYM_KEPT_QK};
    struct {
        int64_t sym[SYM_COUNT];
        struct longest longest;
    } step = {.longest = longest_of(shape, page_rows)};
    memcpy(step.sym, shape->sym, sizeof step.sym);
    for (size_t i = 0; i < sizeof attended / sizeof *attended; i++) {
        step.sym[attended[i]] = 0;
    }
    return captured_hash(&step, sizeof step);
}
