#include "experiments/run/prefixes.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/rng.h"

/* Prompts that have less in common share nothing; canvases, and tokens of all of them, that are
 * kept; canvases of one beginning that are compared, the latest. */
enum { HEAD_TOKENS = 16, CANVASES = 4096, BUCKETS = 8192, COMPARED = 16, MOST_TOKENS = 4 << 20 };

struct canvas {
    int32_t *tokens; /* [n], owned; NULL: free */
    uint32_t n, n_prompt;
    uint64_t id; /* of the request */
    uint32_t bucket;
    uint32_t older, newer;   /* of all that are kept; NONE: none */
    uint32_t before, behind; /* of those with its beginning, from the latest */
};
enum { NONE = UINT32_MAX };

struct prefixes {
    struct canvas canvases[CANVASES];
    uint32_t first_of[BUCKETS]; /* the latest */
    uint32_t oldest, newest;
    uint32_t free; /* linked by `newer` */
    uint64_t n_tokens;
    uint32_t last; /* of the last arrival; NONE: it has none */
};

struct prefixes *prefixes_open(void) {
    struct prefixes *p = mem_zeroed(1, sizeof *p);
    for (uint32_t i = 0; i < CANVASES; i++) {
        p->canvases[i].newer = i + 1 < CANVASES ? i + 1 : NONE;
    }
    memset(p->first_of, 0xff, sizeof p->first_of);
    p->oldest = p->newest = p->last = NONE;
    return p;
}

void prefixes_close(struct prefixes *p) {
    for (uint32_t i = 0; p != NULL && i < CANVASES; i++) {
        free(p->canvases[i].tokens);
    }
    free(p);
}

static uint32_t bucket_of(const int32_t *tokens) {
    uint64_t hash = HEAD_TOKENS;
    for (uint32_t i = 0; i < HEAD_TOKENS; i++) {
        hash = rng_key(hash, (uint64_t)(uint32_t)tokens[i], i);
    }
    return (uint32_t)(hash >> 20) % BUCKETS;
}

static uint32_t common(const struct canvas *c, const int32_t *tokens, uint32_t n) {
    const uint32_t most = c->n < n ? c->n : n;
    uint32_t same = 0;
    while (same < most && c->tokens[same] == tokens[same]) {
        same++;
    }
    return same;
}

static void forget(struct prefixes *p, uint32_t at) {
    struct canvas *c = &p->canvases[at];
    *(c->before != NONE ? &p->canvases[c->before].behind : &p->first_of[c->bucket]) = c->behind;
    if (c->behind != NONE) {
        p->canvases[c->behind].before = c->before;
    }
    *(c->older != NONE ? &p->canvases[c->older].newer : &p->oldest) = c->newer;
    *(c->newer != NONE ? &p->canvases[c->newer].older : &p->newest) = c->older;
    p->n_tokens -= c->n;
    free(c->tokens);
    *c = (struct canvas){.newer = p->free};
    p->free = at;
    p->last = p->last == at ? NONE : p->last;
}

static void keep(struct prefixes *p, uint32_t at, const struct arrival *arrival, int32_t *tokens,
                 uint32_t n) {
    struct canvas *c = &p->canvases[at];
    p->free = c->newer;
    *c = (struct canvas){.tokens = tokens,
                         .n = n,
                         .n_prompt = arrival->prompt_tokens,
                         .id = arrival->id,
                         .bucket = bucket_of(tokens),
                         .older = p->newest,
                         .newer = NONE,
                         .before = NONE};
    c->behind = p->first_of[c->bucket];
    if (c->behind != NONE) {
        p->canvases[c->behind].before = at;
    }
    p->first_of[c->bucket] = at;
    *(p->newest != NONE ? &p->canvases[p->newest].newer : &p->oldest) = at;
    p->newest = at;
    p->n_tokens += n;
    p->last = at;
}

void prefixes_arrive(struct prefixes *p, const int32_t *prompt, const int32_t *answer,
                     uint32_t n_answer, struct arrival *arrival) {
    const uint32_t n_prompt = arrival->prompt_tokens, n = n_prompt + n_answer;
    arrival->shares = arrival->leaves = 0;
    arrival->prefix_tokens = 0;
    p->last = NONE;
    /* Before it is compared, so that one that is given again finds what it found. */
    while (p->oldest != NONE && (p->free == NONE || p->n_tokens > MOST_TOKENS)) {
        forget(p, p->oldest);
    }
    if (n_prompt < HEAD_TOKENS) {
        return;
    }
    uint32_t at = p->first_of[bucket_of(prompt)];
    for (uint32_t tried = 0; at != NONE && tried < COMPARED; tried++) {
        const uint32_t same = common(&p->canvases[at], prompt, n_prompt);
        if (same >= HEAD_TOKENS && same > arrival->prefix_tokens) {
            arrival->prefix_tokens = same;
            arrival->shares = (uint64_t)at + 1;
        }
        at = p->canvases[at].behind;
    }
    int32_t *tokens = mem_unwritten(n, sizeof *tokens);
    memcpy(tokens, prompt, n_prompt * sizeof *tokens);
    if (n_answer > 0) {
        memcpy(tokens + n_prompt, answer, n_answer * sizeof *tokens);
    }
    at = p->free;
    keep(p, at, arrival, tokens, n);
    arrival->leaves = (uint64_t)at + 1;
}

void prefixes_answer(struct prefixes *p, const struct arrival *arrival, const int32_t *answer,
                     uint32_t n) {
    struct canvas *c = arrival->leaves > 0 ? &p->canvases[arrival->leaves - 1] : NULL;
    if (c == NULL || c->tokens == NULL || c->id != arrival->id) {
        return; /* it was forgotten since */
    }
    c->tokens = mem_resized(c->tokens, c->n_prompt + n, sizeof *c->tokens);
    memcpy(c->tokens + c->n_prompt, answer, n * sizeof *answer);
    p->n_tokens += c->n_prompt + n - c->n;
    c->n = c->n_prompt + n;
}

void prefixes_take_back(struct prefixes *p) {
    if (p->last != NONE) {
        forget(p, p->last);
    }
}

void prefixes_forget(struct prefixes *p, uint64_t name) {
    if (name > 0 && p->canvases[name - 1].tokens != NULL) {
        forget(p, (uint32_t)(name - 1));
    }
}
