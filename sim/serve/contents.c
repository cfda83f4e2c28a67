#include "sim/serve/contents.h"

#include <stdlib.h>

#include "sim/base/err.h"
#include "sim/base/mem.h"

/* ---- names ---- */

static struct contents_named *find_name(const struct contents_names *names, uint64_t name) {
    ASSERT(names->room > 0);
    size_t at = (size_t)(name * UINT64_C(0x9E3779B97F4A7C15) >> 20) % names->room;
    while (names->items[at].name != 0 && names->items[at].name != name) {
        at = (at + 1) % names->room;
    }
    return &names->items[at];
}

static void names_init(struct contents_names *names) {
    *names = (struct contents_names){.room = 1024};
    names->items = mem_zeroed(names->room, sizeof *names->items);
}

/* The place of a name, new ones with CONTENT_NONE. */
static struct contents_named *take_name(struct contents_names *names, uint64_t name) {
    if (2 * (names->n + 1) > names->room) {
        struct contents_names larger = {.room = 2 * names->room, .n = names->n};
        larger.items = mem_zeroed(larger.room, sizeof *larger.items);
        for (size_t i = 0; i < names->room; i++) {
            if (names->items[i].name != 0) {
                *find_name(&larger, names->items[i].name) = names->items[i];
            }
        }
        free(names->items);
        *names = larger;
    }
    struct contents_named *found = find_name(names, name);
    if (found->name == 0) {
        *found = (struct contents_named){name, CONTENT_NONE};
        names->n++;
    }
    return found;
}

/* ---- contents ---- */

void contents_init(struct contents *contents, size_t n) {
    *contents = (struct contents){.first_free = CONTENT_NONE, .room = n};
    contents->items = mem_unwritten(n + 1, sizeof *contents->items);
    names_init(&contents->names);
    names_init(&contents->group_names);
}

void contents_fini(struct contents *contents) {
    free(contents->items);
    free(contents->names.items);
    free(contents->group_names.items);
    free(contents->groups);
}

static uint32_t add(struct contents *contents, uint64_t id) {
    uint32_t at = contents->first_free;
    if (at != CONTENT_NONE) {
        contents->first_free = contents->items[at].parent;
    } else {
        contents->items =
            mem_grown(contents->items, contents->n, &contents->room, sizeof *contents->items);
        at = (uint32_t)contents->n++;
        ASSERT(at < CONTENT_NONE);
    }
    contents->items[at] =
        (struct content){.id = id, .parent = CONTENT_NONE, .known_tokens = UINT32_MAX};
    return at;
}

/* Those that no one has need of any more are free, and with them their parents. */
static void sweep(struct contents *contents, uint32_t at) {
    while (at != CONTENT_NONE) {
        struct content *content = &contents->items[at];
        uint32_t parent = content->parent;
        if (content->n_uses + content->n_names + content->n_children > 0) {
            return;
        }
        ASSERT(content->n_waiters == 0);
        content->parent = contents->first_free;
        contents->first_free = at;
        at = parent;
        if (at != CONTENT_NONE) {
            contents->items[at].n_children--;
        }
    }
}

void contents_use(struct contents *contents, uint32_t content) {
    contents->items[content].n_uses++;
}

void contents_drop(struct contents *contents, uint32_t content) {
    ASSERT(contents->items[content].n_uses > 0);
    contents->items[content].n_uses--;
    sweep(contents, content);
}

/* `*place` refers to `content` from now on, and to what it did no more. */
static void name(struct contents *contents, uint32_t *place, uint32_t content) {
    uint32_t old = *place;
    *place = content;
    contents->items[content].n_names++;
    if (old != CONTENT_NONE) {
        contents->items[old].n_names--;
        sweep(contents, old);
    }
}

/* ---- who begins like whom ---- */

static struct contents_group *group_of(struct contents *contents, const struct arrival *arrival) {
    /* Tenants are numbers below 2^32; a group's own name is a hash, never 0. */
    uint64_t key =
        arrival->prefix_group != 0 ? arrival->prefix_group : (UINT64_C(1) << 32) + arrival->tenant;
    struct contents_named *named = take_name(&contents->group_names, key);
    if (named->at == CONTENT_NONE) {
        contents->groups = mem_grown(contents->groups, contents->n_groups, &contents->groups_room,
                                     sizeof *contents->groups);
        named->at = (uint32_t)contents->n_groups++;
        contents->groups[named->at] =
            (struct contents_group){.stem = CONTENT_NONE, .longest = CONTENT_NONE};
    }
    return &contents->groups[named->at];
}

/* What an arrival that says how many tokens it shares, and not with whom, begins with. */
static uint32_t stem_of(struct contents *contents, const struct arrival *arrival,
                        struct contents_group *group) {
    if (arrival->prefix_tokens > group->stem_tokens && group->longest != CONTENT_NONE &&
        group->longest_tokens > group->stem_tokens) {
        name(contents, &group->stem, group->longest);
        group->stem_tokens = group->longest_tokens;
    }
    return group->stem;
}

static void set_parent(struct contents *contents, uint32_t content, uint32_t parent,
                       uint32_t tokens) {
    contents->items[content].parent = parent;
    contents->items[content].shared_tokens = tokens;
    contents->items[parent].n_children++;
}

/* By name: what a row left, or else a sequence of the name's own. */
static uint32_t named_parent(struct contents *contents, uint64_t shares) {
    struct contents_named *named = take_name(&contents->names, shares);
    if (named->at == CONTENT_NONE) {
        name(contents, &named->at, add(contents, UINT64_MAX - contents->n_nobodys++));
    }
    return named->at;
}

uint32_t contents_arrive(struct contents *contents, const struct arrival *arrival) {
    uint32_t content = add(contents, arrival->id + 1);
    contents_use(contents, content);
    contents->items[content].prompt_tokens = contents->items[content].known_tokens =
        arrival->prompt_tokens;
    if (arrival->shares != 0 && arrival->prefix_tokens > 0) {
        set_parent(contents, content, named_parent(contents, arrival->shares),
                   arrival->prefix_tokens);
    }
    if (arrival->leaves != 0) {
        name(contents, &take_name(&contents->names, arrival->leaves)->at, content);
    }
    if (arrival->shares != 0) {
        return content;
    }
    struct contents_group *group = group_of(contents, arrival);
    if (arrival->prefix_tokens > 0) {
        uint32_t stem = stem_of(contents, arrival, group), most = group->stem_tokens;
        if (stem != CONTENT_NONE) {
            set_parent(contents, content, stem,
                       arrival->prefix_tokens < most ? arrival->prefix_tokens : most);
        }
    }
    if (arrival->prompt_tokens > group->longest_tokens) {
        name(contents, &group->longest, content);
        group->longest_tokens = arrival->prompt_tokens;
    }
    return content;
}

void contents_cut(struct contents *contents, uint32_t content) {
    struct content *own = &contents->items[content];
    if (own->parent != CONTENT_NONE) {
        const uint32_t known = contents->items[own->parent].known_tokens;
        own->shared_tokens = own->shared_tokens < known ? own->shared_tokens : known;
    }
}

uint32_t contents_at(const struct contents *contents, uint32_t content, uint32_t end,
                     uint32_t *until) {
    *until = UINT32_MAX;
    const struct content *at = &contents->items[content];
    while (at->parent != CONTENT_NONE && end <= at->shared_tokens) {
        *until = at->shared_tokens < *until ? at->shared_tokens : *until;
        content = at->parent;
        at = &contents->items[content];
    }
    return content;
}
