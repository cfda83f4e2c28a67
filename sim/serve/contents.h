/* What canvases begin alike: the token sequences of a run, as a tree.
 *
 * A content is what stands in one request's canvas. Its first tokens may be those of an earlier
 * one, its parent; a position's tokens are therefore named by the content that first had them, and
 * two canvases have the same keys and values up to a position if that name is the same there.
 * The workload tells which prompts begin alike (sim/base/arrival.h):
 *  - by name: a prompt begins with what a row of that name left, prompt and output, as in the next
 *    request of a conversation. Without such a row it begins with a sequence that all prompts of
 *    that name share.
 *  - by group, or without one by tenant: it begins like an earlier prompt of the group. All such
 *    rows are assumed to share one sequence, as a system prompt is shared: that of the longest
 *    earlier prompt of the group at the first such row, and again where a row shares more than
 *    that has. The first row of a group shares nothing.
 *
 * Contents are kept while a request under way, a page or a name has need of them. Memory grows with
 * names and groups, and is asked for when a request arrives. */
#ifndef UNMASK_SIM_SERVE_CONTENTS_H
#define UNMASK_SIM_SERVE_CONTENTS_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/arrival.h"

enum { CONTENT_NONE = UINT32_MAX };

struct content {
    uint64_t id; /* of the request whose it is + 1; of a name that no row left: below 0 */
    uint32_t parent, shared_tokens;       /* CONTENT_NONE: none, 0 */
    uint32_t prompt_tokens, known_tokens; /* its prompt; and what of it has been decoded, too */
    uint32_t n_names, n_children, n_uses;
    uint32_t n_waiters; /* requests that wait and whose canvas begins with it, or is it */
    uint64_t changed;   /* when its pages last changed while a request waited */
};

struct contents_named {
    uint64_t name; /* 0: a free place */
    uint32_t at;
};

/* What a canvas begins with. */
struct beginning {
    const struct contents *contents;
    uint32_t content;
};

/* A hash table of `room` places. */
struct contents_names {
    struct contents_named *items;
    size_t n, room;
};

struct contents_group {
    uint32_t stem, longest; /* what rows share; the longest prompt so far */
    uint32_t stem_tokens, longest_tokens;
};

struct contents {
    struct content *items;
    size_t n, room;
    uint32_t first_free; /* linked by `parent` */
    struct contents_names names, group_names;
    struct contents_group *groups;
    size_t n_groups, groups_room;
    uint64_t n_nobodys;
};

/* Room for `n` contents before more memory is asked for. */
void contents_init(struct contents *contents, size_t n);
void contents_fini(struct contents *contents);

/* The content of a request that arrives, used once. */
uint32_t contents_arrive(struct contents *contents, const struct arrival *arrival);

void contents_use(struct contents *contents, uint32_t content);
void contents_drop(struct contents *contents, uint32_t content);

/* A prompt begins with no more of its parent than is known of that. */
void contents_cut(struct contents *contents, uint32_t content);

/* Whether a request yet to come may begin with it. */
static inline bool contents_is_known(const struct contents *contents, uint32_t content) {
    return contents->items[content].n_names + contents->items[content].n_children > 0;
}

/* Which content the tokens before `end` stand in, the last of them at least; `*until` is the last
 * end for which the answer is the same. */
uint32_t contents_at(const struct contents *contents, uint32_t content, uint32_t end,
                     uint32_t *until);

#endif
