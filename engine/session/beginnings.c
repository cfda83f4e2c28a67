#include "engine/session/beginnings.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/rng.h"
#include "sim/model/ranks.h"

void beginnings_open(struct beginnings *b, uint64_t seed, const struct model *model) {
    *b = (struct beginnings){
        .seed = seed, .n_tokens = model_whole_vocab(model), .mask_token = model->mask_token};
}

void beginnings_close(struct beginnings *b) {
    for (size_t i = 0; i < b->room; i++) {
        free(b->decoded[i].tokens);
    }
    free(b->decoded);
    *b = (struct beginnings){0};
}

static int32_t drawn_token(const struct beginnings *b, uint64_t id, uint32_t position) {
    const double u = rng_keyed(b->seed, id, 0, position);
    const uint32_t token = (uint32_t)(u * (b->n_tokens - 1));
    return (int32_t)(token + (token >= b->mask_token));
}

/* Outputs are masked where decoding ended before them. */
static int32_t token_of(const struct beginnings *b, const struct contents *contents, uint32_t at,
                        uint32_t position) {
    const struct content *content = &contents->items[at];
    const struct decoded *decoded = at < b->room ? &b->decoded[at] : NULL;
    if (decoded != NULL && decoded->tokens != NULL && decoded->id == content->id &&
        position >= content->prompt_tokens && position - content->prompt_tokens < decoded->n &&
        decoded->tokens[position - content->prompt_tokens] != (int32_t)b->mask_token) {
        return decoded->tokens[position - content->prompt_tokens];
    }
    return drawn_token(b, content->id - 1, position);
}

void beginnings_read(const struct beginnings *b, uint64_t request,
                     const struct beginning *beginning, uint32_t n, int32_t *tokens) {
    uint32_t at = CONTENT_NONE, until = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (beginning == NULL) {
            tokens[i] = drawn_token(b, request, i);
            continue;
        }
        if (at == CONTENT_NONE || i + 1 > until) {
            at = contents_at(beginning->contents, beginning->content, i + 1, &until);
        }
        tokens[i] = token_of(b, beginning->contents, at, i);
    }
}

/* As many places as contents were ever under way at once. */
static void make_room(struct beginnings *b, uint32_t content) {
    const size_t before = b->room;
    if (content < before) {
        return;
    }
    const size_t room = 2 * (size_t)content + 64;
    struct decoded *larger = mem_zeroed(room, sizeof *larger);
    if (before > 0) {
        memcpy(larger, b->decoded, before * sizeof *larger);
    }
    free(b->decoded);
    b->decoded = larger;
    b->room = room;
}

void beginnings_keep(struct beginnings *b, const struct beginning *beginning, const int32_t *output,
                     uint32_t n) {
    make_room(b, beginning->content);
    struct decoded *decoded = &b->decoded[beginning->content];
    free(decoded->tokens);
    *decoded = (struct decoded){.id = beginning->contents->items[beginning->content].id,
                                .tokens = mem_unwritten(n, sizeof *decoded->tokens),
                                .n = n};
    memcpy(decoded->tokens, output, n * sizeof *output);
}
