#include "sim/serve/kept_prefixes.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/serve/lifecycle.h"
#include "sim/serve/plan.h"

/* Which content the whole prefix stands in. */
static uint32_t content_of(const struct lifecycle *life, uint32_t slot) {
    uint32_t until;
    return contents_at(&life->sharing.contents, life->sharing.of[slot].content,
                       life->requests[slot].prefix_tokens, &until);
}

static struct kept_prefix *find(struct kept_prefixes *prefixes, uint32_t content, uint32_t tokens) {
    for (size_t i = 0; i < prefixes->n; i++) {
        struct kept_prefix *item = &prefixes->items[i];
        if (item->content == content && item->tokens == tokens) {
            return item;
        }
    }
    return NULL;
}

static void use(struct kept_prefixes *prefixes, struct kept_prefix *item) {
    item->used = ++prefixes->n_uses;
}

/* Where it will be found, what it holds is not known yet: as if it held all of it. */
static int match(struct lifecycle *life, struct replica *replica, uint32_t slot, struct err *err) {
    struct request *request = &life->requests[slot];
    const uint32_t tokens = request->prefix_tokens;
    const bool is_found =
        life->sharing.assumes || find(&replica->prefixes, content_of(life, slot), tokens) != NULL;
    const uint32_t cached = is_found && tokens > 0 ? tokens : 0;
    if (cached == request->cached_tokens) {
        return 0;
    }
    request->cached_tokens = cached;
    return plan_step(life, request, &life->tracked[slot], err);
}

int kept_prefixes_wait(struct lifecycle *life, uint32_t slot, struct err *err) {
    const uint32_t index = life->tracked[slot].replica;
    return life->sharing.leads ? match(life, &life->replicas[index], slot, err) : 0;
}

int kept_prefixes_refresh(struct lifecycle *life, struct replica *replica, struct err *err) {
    int status = 0;
    if (!replica->prefixes.changed) {
        return 0;
    }
    replica->prefixes.changed = false;
    for (uint32_t i = 0; status == 0 && i < replica->n_waiting; i++) {
        status = match(life, replica, replica->waiting[replica->head + i], err);
    }
    return status;
}

int kept_prefixes_take(struct lifecycle *life, struct replica *replica, uint32_t slot,
                       struct err *err) {
    const struct executor *executor = &life->asked->executor;
    const struct request *request = &life->requests[slot];
    if (!life->sharing.leads || request->cached_tokens == 0) {
        return 0;
    }
    struct kept_prefix *item =
        find(&replica->prefixes, content_of(life, slot), request->prefix_tokens);
    if (item == NULL) {
        ASSERT(life->sharing.assumes);
        return 0;
    }
    use(&replica->prefixes, item);
    return executor->take_prefix != NULL
               ? executor->take_prefix(executor->state, life->tracked[slot].replica, slot, request,
                                       item->first, err)
               : 0;
}

static void remove_item(struct lifecycle *life, struct kept_prefixes *prefixes, size_t at) {
    contents_drop(&life->sharing.contents, prefixes->items[at].content);
    prefixes->n--;
    memmove(prefixes->items + at, prefixes->items + at + 1,
            (prefixes->n - at) * sizeof *prefixes->items);
}

/* The first gap that holds as many tokens, and its place in the order; false: there is none. */
static bool find_gap(const struct kept_prefixes *prefixes, uint32_t most, uint32_t tokens,
                     uint32_t *first, size_t *at) {
    *first = 0;
    for (*at = 0; *at < prefixes->n; (*at)++) {
        const struct kept_prefix *next = &prefixes->items[*at];
        if (next->first - *first >= tokens) {
            return true;
        }
        *first = next->first + next->tokens;
    }
    return most - *first >= tokens;
}

static void drop_oldest(struct lifecycle *life, struct kept_prefixes *prefixes) {
    size_t oldest = 0;
    for (size_t i = 1; i < prefixes->n; i++) {
        oldest = prefixes->items[i].used < prefixes->items[oldest].used ? i : oldest;
    }
    remove_item(life, prefixes, oldest);
}

int kept_prefixes_keep(struct lifecycle *life, struct replica *replica, uint32_t slot,
                       struct err *err) {
    struct request *request = &life->requests[slot];
    struct kept_prefixes *prefixes = &replica->prefixes;
    const struct executor *executor = &life->asked->executor;
    const uint32_t tokens = request->prefix_tokens, content = content_of(life, slot);
    const uint32_t most = life->system->settings.prefix_store_tokens;
    uint32_t first;
    size_t at;
    request->cached_tokens = tokens;
    struct kept_prefix *item = find(prefixes, content, tokens);
    if (item != NULL || tokens > most) {
        if (item != NULL) {
            use(prefixes, item);
        }
        return 0;
    }
    while (!find_gap(prefixes, most, tokens, &first, &at)) {
        drop_oldest(life, prefixes);
    }
    prefixes->items =
        mem_grown(prefixes->items, prefixes->n, &prefixes->room, sizeof *prefixes->items);
    memmove(prefixes->items + at + 1, prefixes->items + at,
            (prefixes->n - at) * sizeof *prefixes->items);
    prefixes->n++;
    prefixes->items[at] =
        (struct kept_prefix){.content = content, .tokens = tokens, .first = first};
    use(prefixes, &prefixes->items[at]);
    contents_use(&life->sharing.contents, content);
    prefixes->changed = true;
    return executor->keep_prefix != NULL
               ? executor->keep_prefix(executor->state, life->tracked[slot].replica, slot, request,
                                       first, err)
               : 0;
}

void kept_prefixes_fini_replica(struct lifecycle *life, struct replica *replica) {
    while (replica->prefixes.n > 0) {
        remove_item(life, &replica->prefixes, replica->prefixes.n - 1);
    }
    free(replica->prefixes.items);
}
