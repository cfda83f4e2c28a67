#include "sim/serve/sharing.h"

#include <stdlib.h>

#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/serve/lifecycle.h"
#include "sim/serve/plan.h"

static struct shared *of(const struct lifecycle *life, uint32_t slot) {
    return &life->sharing.of[slot];
}

bool sharing_has_pages(const struct lifecycle *life) {
    return life->sharing.is_on && !life->sharing.assumes;
}

/* Up to where tokens decide on what is in a page: the end of its block, whose positions see each
 * other. */
static uint32_t end_of_block(const struct sharing *sharing, uint32_t page) {
    const uint32_t pages = sharing->match_tokens / sharing->page_tokens;
    return (page / pages + 1) * sharing->match_tokens;
}

static uint32_t content_of_page(const struct sharing *sharing, uint32_t content, uint32_t page) {
    uint32_t until;
    return contents_at(&sharing->contents, content, end_of_block(sharing, page), &until);
}

/* ---- bytes in struct request ---- */

/* Sums over running requests do not change: what is needed and what is held become less alike. */
static void set_lent(struct lifecycle *life, uint32_t slot, uint32_t lent, bool holds) {
    struct shared *shared = of(life, slot);
    int64_t bytes = ((int64_t)lent - shared->lent_pages) * life->sharing.page_bytes;
    life->requests[slot].kv_bytes -= bytes;
    life->requests[slot].kv_held_bytes -= holds ? bytes : 0;
    shared->lent_pages = lent;
}

static void charge_changed(void *state, uint32_t slot, int by) {
    struct lifecycle *life = state;
    struct shared *shared = of(life, slot);
    shared->holder.n_charged += (uint32_t)by;
    set_lent(life, slot, shared->lent_pages - (uint32_t)by, true);
}

static uint64_t held_since(void *state, uint32_t slot) {
    const struct lifecycle *life = state;
    return of(life, slot)->holder.since;
}

/* Running requests stand in order of admission. */
static uint32_t find_heir(void *state, uint32_t index, const struct page *page, uint32_t leaver) {
    const struct lifecycle *life = state;
    const struct replica *replica = &life->replicas[index];
    uint32_t i = 0;
    for (; i < replica->n_running; i++) {
        uint32_t slot = replica->running[i];
        const struct shared *shared = of(life, slot);
        if (slot != leaver && shared->holder.n_found > page->number &&
            content_of_page(&life->sharing, shared->content, page->number) == page->content) {
            break;
        }
    }
    ASSERT(i < replica->n_running);
    return replica->running[i];
}

static void content_changed(void *state, uint32_t replica, uint32_t content, int by) {
    struct lifecycle *life = state;
    struct contents *contents = &life->sharing.contents;
    if (contents->items[content].n_waiters > 0) {
        contents->items[content].changed = ++life->sharing.n_changes;
        life->replicas[replica].pages_changed = true;
    }
    if (by > 0) {
        contents_use(contents, content);
    } else if (by < 0) {
        contents_drop(contents, content);
    }
}

/* ---- setting up ---- */

void sharing_init(struct lifecycle *life) {
    const struct system *system = life->system;
    const struct settings *settings = &system->settings;
    const struct executor *executor = &life->asked->executor;
    enum causality causal = system_causality(system->model);
    bool is_on = settings->prefix_caching && executor->shares_prefixes &&
                 system->rows.kind == ROW_EXACT && causal != SEES_CANVAS;
    uint32_t unit = causal == SEES_TOKENS ? settings->page_tokens : settings->block_tokens;
    uint32_t page = (uint32_t)common_divisor(settings->page_tokens, unit);
    ASSERT(page > 0 && (!is_on || page == system_page_rows(system)));
    const bool leads = settings->prefix_caching && system->rows.lead_layers > 0;
    const bool tracks = is_on || leads || executor->tells_tokens;
    life->sharing =
        (struct sharing){.is_on = is_on,
                         .tracks = tracks,
                         .leads = leads,
                         .assumes = (is_on || leads) && executor->assumes_prefixes,
                         .page_tokens = page,
                         .match_tokens = unit,
                         .page_bytes = system->budget.unit_bytes / (settings->page_tokens / page)};
    if (tracks) {
        const size_t room = 2 * (size_t)life->n_slots + 1024, most = 1 << 20;
        contents_init(&life->sharing.contents, room < most ? room : most);
        life->sharing.of = mem_reserved(life->n_slots, sizeof *life->sharing.of);
    }
}

void sharing_fini(struct lifecycle *life) {
    if (life->sharing.tracks) {
        contents_fini(&life->sharing.contents);
        mem_released(life->sharing.of);
    }
}

void sharing_init_replica(struct lifecycle *life, uint32_t replica) {
    if (sharing_has_pages(life)) {
        const struct page_watch watch = {life,      replica,    charge_changed,
                                         find_heir, held_since, content_changed};
        int64_t n = life->system->budget.pool_bytes / life->sharing.page_bytes;
        ASSERT(n >= 0 && n < UINT32_MAX / 4);
        page_cache_init(&life->replicas[replica].pages, (uint32_t)n, &watch);
    }
    if (sharing_has_pages(life) && life->asked->executor.shares_pages) {
        struct page_lists *lists = &life->replicas[replica].page_lists;
        lists->cache = &life->replicas[replica].pages;
        lists->items = mem_reserved(life->n_slots, sizeof *lists->items);
    }
}

void sharing_fini_replica(struct replica *replica) {
    mem_released(replica->page_lists.items);
    page_cache_fini(&replica->pages);
}

/* ---- matching ---- */

/* Leading tokens that may be found: of a request that never ran those that it shares, of one that
 * was preempted all that are known, but for what decides on the next position. */
static uint32_t most_found(const struct lifecycle *life, uint32_t slot) {
    const struct request *request = &life->requests[slot];
    bool decides = request->causal == SEES_TOKENS || window_lacks_row(request);
    uint32_t known = window_first(request) - (decides && window_first(request) > 0);
    uint32_t shared = of(life, slot)->shared_tokens;
    bool ran = life->requests[slot].admitted_ns >= 0;
    return ran || known < shared ? known : shared;
}

struct match {
    uint32_t tokens, pages, held; /* of the pages, those that others hold */
};

static struct match match_pages(const struct lifecycle *life, uint32_t replica, uint32_t slot) {
    const struct sharing *sharing = &life->sharing;
    const struct page_cache *pages = &life->replicas[replica].pages;
    uint32_t n = most_found(life, slot) / sharing->match_tokens *
                 (sharing->match_tokens / sharing->page_tokens);
    uint32_t content = of(life, slot)->content, at = CONTENT_NONE, until = 0;
    struct match match = {0, 0, 0}, whole = match;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t end = (i + 1) * sharing->page_tokens;
        uint32_t block_end = end_of_block(sharing, i);
        if (block_end > until || at == CONTENT_NONE) {
            at = contents_at(&sharing->contents, content, block_end, &until);
        }
        uint32_t page = page_cache_find(pages, at, i);
        if (page == PAGE_NONE) {
            break;
        }
        match.pages++;
        match.held += page_cache_is_held(pages, page);
        match.tokens = end;
        whole = end % sharing->match_tokens == 0 ? match : whole;
    }
    return whole;
}

/* Assumes that all that is shared is found, in pages charged to no request. */
static struct match assume(const struct lifecycle *life, uint32_t slot) {
    const struct sharing *sharing = &life->sharing;
    uint32_t tokens = most_found(life, slot) / sharing->match_tokens * sharing->match_tokens;
    uint32_t pages = tokens / sharing->page_tokens;
    return (struct match){tokens, pages, pages};
}

static int apply(struct lifecycle *life, uint32_t slot, const struct match *match,
                 struct err *err) {
    struct request *request = &life->requests[slot];
    struct shared *shared = of(life, slot);
    shared->found_pages = match->pages;
    shared->matched = life->sharing.n_changes;
    set_lent(life, slot, match->held, false);
    if (match->tokens == request->cached_tokens) {
        return 0;
    }
    request->cached_tokens = match->tokens;
    return plan_step(life, request, &life->tracked[slot], err);
}

static int match_anew(struct lifecycle *life, uint32_t slot, struct err *err) {
    if (life->sharing.assumes) {
        return 0;
    }
    struct match match = match_pages(life, life->tracked[slot].replica, slot);
    return apply(life, slot, &match, err);
}

uint32_t sharing_look(const struct lifecycle *life, uint32_t replica, uint32_t slot) {
    if (!life->sharing.is_on) {
        return 0;
    }
    return life->sharing.assumes ? assume(life, slot).tokens
                                 : match_pages(life, replica, slot).tokens;
}

/* ---- a request's way ---- */

void sharing_arrive(struct lifecycle *life, uint32_t slot, const struct arrival *arrival) {
    struct contents *contents = &life->sharing.contents;
    if (!life->sharing.tracks) {
        return;
    }
    struct shared *shared = of(life, slot);
    *shared = (struct shared){.content = contents_arrive(contents, arrival)};
    if (life->asked->executor.tells_tokens) {
        contents_cut(contents, shared->content);
    }
    if (!life->sharing.is_on && !life->sharing.leads) {
        return;
    }
    const struct content *content = &contents->items[shared->content];
    shared->shared_tokens = content->shared_tokens;
    if (life->sharing.leads) {
        struct request *request = &life->requests[slot];
        request->prefix_tokens = content->shared_tokens < request->prompt_tokens
                                     ? content->shared_tokens
                                     : request->prompt_tokens;
    }
    shared->shared_with = content->parent != CONTENT_NONE ? contents->items[content->parent].id : 0;
}

const struct beginning *sharing_beginning(const struct lifecycle *life, uint32_t slot,
                                          struct beginning *out) {
    if (!life->asked->executor.tells_tokens) {
        return NULL;
    }
    *out = (struct beginning){&life->sharing.contents, of(life, slot)->content};
    return out;
}

/* It, and all that its canvas begins with, has a waiter more or less. */
static void count_waiter(struct lifecycle *life, uint32_t slot, bool waits) {
    struct shared *shared = of(life, slot);
    if (shared->waits != waits) {
        shared->waits = waits;
        uint32_t at = shared->content;
        while (at != CONTENT_NONE) {
            struct content *content = &life->sharing.contents.items[at];
            content->n_waiters += waits ? 1 : UINT32_MAX;
            at = content->parent;
        }
    }
}

int sharing_wait(struct lifecycle *life, uint32_t slot, struct err *err) {
    if (!life->sharing.is_on) {
        return kept_prefixes_wait(life, slot, err);
    }
    const struct shared *shared = of(life, slot);
    if (life->sharing.assumes) {
        struct match match = assume(life, slot);
        return apply(life, slot, &match, err);
    }
    bool ran = life->requests[slot].admitted_ns >= 0;
    if (!ran && life->sharing.contents.items[shared->content].parent == CONTENT_NONE) {
        return 0;
    }
    count_waiter(life, slot, true);
    return match_anew(life, slot, err);
}

static uint64_t last_change(const struct contents *contents, uint32_t at) {
    uint64_t last = 0;
    while (at != CONTENT_NONE) {
        const struct content *content = &contents->items[at];
        last = content->changed > last ? content->changed : last;
        at = content->parent;
    }
    return last;
}

int sharing_refresh(struct lifecycle *life, struct replica *replica, struct err *err) {
    const uint32_t *waiting = replica->waiting + replica->head;
    int status = 0;
    if (!replica->pages_changed) {
        return kept_prefixes_refresh(life, replica, err);
    }
    replica->pages_changed = false;
    for (uint32_t i = 0; status == 0 && i < replica->n_waiting; i++) {
        const struct shared *shared = of(life, waiting[i]);
        if (shared->waits &&
            last_change(&life->sharing.contents, shared->content) > shared->matched) {
            status = match_anew(life, waiting[i], err);
        }
    }
    return status;
}

/* Pages that the request's next step needs and it has not. */
static uint32_t pages_missing(const struct lifecycle *life, uint32_t slot, uint32_t has) {
    int64_t bytes = budget_request_bytes(&life->system->budget, life->requests[slot].kv_rows);
    int64_t needs = bytes / life->sharing.page_bytes;
    return needs > has ? (uint32_t)needs - has : 0;
}

/* The page that comes next in its canvas, if that can be found; PAGE_NONE otherwise. */
static uint32_t next_page(const struct lifecycle *life, const struct replica *replica,
                          const struct shared *shared) {
    const uint32_t number = shared->holder.n_found;
    const uint32_t at = content_of_page(&life->sharing, shared->content, number);
    return page_cache_find(&replica->pages, at, number);
}

/* The pages matched, then what is left of its own, of which no one else can make use. */
void sharing_hold(struct lifecycle *life, struct replica *replica, uint32_t slot) {
    if (!sharing_has_pages(life)) {
        return;
    }
    struct shared *shared = of(life, slot);
    count_waiter(life, slot, false);
    shared->holder.since = ++life->sharing.n_admitted;
    while (shared->holder.n_found < shared->found_pages) {
        page_cache_hold(&replica->pages, &shared->holder, slot, next_page(life, replica, shared));
    }
    bool reclaims = life->requests[slot].preemptions > 0;
    while (reclaims && pages_missing(life, slot, holder_pages(&shared->holder)) > 0) {
        reclaims = page_cache_reclaim(&replica->pages, &shared->holder, slot, shared->content);
    }
}

int sharing_unhold(struct lifecycle *life, struct replica *replica, uint32_t slot,
                   struct err *err) {
    struct shared *shared = of(life, slot);
    page_cache_release(&replica->pages, &shared->holder, slot, shared->content);
    return sharing_wait(life, slot, err);
}

int sharing_admit(struct lifecycle *life, struct replica *replica, uint32_t slot, struct err *err) {
    struct request *request = &life->requests[slot];
    const struct sharing *sharing = &life->sharing;
    if (!sharing_has_pages(life) || of(life, slot)->holder.n_own > 0) {
        return 0;
    }
    struct shared *shared = of(life, slot);
    struct page_holder *holder = &shared->holder;
    struct match match = match_pages(life, life->tracked[slot].replica, slot);
    if (match.tokens <= request->cached_tokens) {
        return 0;
    }
    while (holder->n_found < match.tokens / sharing->page_tokens) {
        page_cache_hold(&replica->pages, holder, slot, next_page(life, replica, shared));
    }
    request->cached_tokens = match.tokens;
    return plan_step(life, request, &life->tracked[slot], err);
}

bool sharing_fits(const struct lifecycle *life, const struct replica *replica, uint32_t slot,
                  uint32_t *pages) {
    if (!sharing_has_pages(life)) {
        return true;
    }
    *pages += pages_missing(life, slot, holder_pages(&of(life, slot)->holder));
    return *pages <= page_cache_free(&replica->pages);
}

void sharing_take(struct lifecycle *life, struct replica *replica, uint32_t slot) {
    struct request *request = &life->requests[slot];
    struct shared *shared = of(life, slot);
    struct page_holder *holder = &shared->holder;
    page_cache_take(&replica->pages, holder, slot, pages_missing(life, slot, holder_pages(holder)));
    shared->lent_pages = holder_pages(holder) - holder->n_charged;
    request->kv_bytes = request->kv_held_bytes = holder->n_charged * life->sharing.page_bytes;
    replica->kv_used_bytes = replica->pages.n_held * life->sharing.page_bytes;
}

static void publish(struct lifecycle *life, struct replica *replica, uint32_t slot,
                    uint32_t tokens) {
    const struct sharing *sharing = &life->sharing;
    struct shared *shared = of(life, slot);
    struct page_holder *holder = &shared->holder;
    while (holder->n_own > 0 && (holder->n_found + 1) * sharing->page_tokens <= tokens) {
        const uint32_t at = content_of_page(sharing, shared->content, holder->n_found);
        page_cache_publish(&replica->pages, holder, slot, at);
    }
    set_lent(life, slot, holder_pages(holder) - holder->n_charged, true);
    replica->kv_used_bytes = replica->pages.n_held * sharing->page_bytes;
}

void sharing_written(struct lifecycle *life, struct replica *replica, uint32_t slot,
                     uint32_t tokens) {
    if (!sharing_has_pages(life) ||
        (of(life, slot)->holder.n_found + 1) * life->sharing.page_tokens > tokens) {
        return;
    }
    const struct shared *shared = of(life, slot);
    /* What no one can come to share need not be found: its own, if no name leads there. */
    uint32_t begin = of(life, slot)->shared_tokens;
    bool is_known = contents_is_known(&life->sharing.contents, shared->content);
    tokens = is_known || tokens < begin ? tokens : begin;
    if ((shared->holder.n_found + 1) * life->sharing.page_tokens <= tokens) {
        publish(life, replica, slot, tokens);
    }
}

void sharing_release(struct lifecycle *life, struct replica *replica, uint32_t slot, bool returns) {
    struct shared *shared = of(life, slot);
    if (returns) {
        publish(life, replica, slot, sharing_exact(&life->requests[slot]));
    }
    page_cache_release(&replica->pages, &shared->holder, slot,
                       returns ? shared->content : PAGE_NONE);
    shared->lent_pages = shared->found_pages = 0;
    replica->kv_used_bytes = replica->pages.n_held * life->sharing.page_bytes;
}

const struct page_lists *sharing_lists(const struct lifecycle *life, struct replica *replica) {
    struct page_lists *lists = &replica->page_lists;
    if (lists->items == NULL) {
        return NULL;
    }
    lists->n = replica->n_running;
    for (uint32_t i = 0; i < lists->n; i++) {
        const uint32_t slot = replica->running[i];
        lists->items[i] = (struct page_list){slot, &of(life, slot)->holder};
    }
    return lists;
}

void sharing_known(struct lifecycle *life, uint32_t slot) {
    const struct request *request = &life->requests[slot];
    if (life->sharing.tracks) {
        const uint32_t answer = request->answer_tokens;
        life->sharing.contents.items[of(life, slot)->content].known_tokens =
            request->prompt_tokens + (answer > 0 ? answer : request->output_tokens);
    }
}

void sharing_leave(struct lifecycle *life, uint32_t slot) {
    if (life->sharing.tracks) {
        count_waiter(life, slot, false);
        contents_drop(&life->sharing.contents, of(life, slot)->content);
    }
}

uint32_t sharing_exact(const struct request *request) {
    const bool has_blocks = request->causal == SEES_BLOCKS || request->causal == SEES_CANVASES;
    bool is_whole = has_blocks && window_uncached(request) == 0;
    return is_whole ? window_end(request) : request->cached_tokens;
}

int64_t sharing_lent_bytes(const struct lifecycle *life, uint32_t slot) {
    return life->sharing.is_on ? of(life, slot)->lent_pages * life->sharing.page_bytes : 0;
}

void sharing_audit(const struct lifecycle *life, const struct replica *replica) {
    const struct page_cache *pages = &replica->pages;
    if (!sharing_has_pages(life)) {
        return;
    }
    uint32_t n = 0;
    for (uint32_t at = pages->first_free; at != PAGE_NONE; at = pages->items[at].next) {
        ASSERT(pages->items[at].n_holders == 0);
        n++;
    }
    ASSERT(pages->n_held == 0 && n == pages->n_listed && n == pages->n_handed_out);
    for (size_t i = 0; i < life->sharing.contents.n; i++) {
        ASSERT(life->sharing.contents.items[i].n_waiters == 0);
    }
}
