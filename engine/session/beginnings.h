/* The tokens of prompts that no one wrote: drawn, and the same wherever the workload says that
 * prompts begin alike (sim/serve/contents.h). A position's token is drawn from the seed, the
 * request that had it first and the position; where that was a position of its output, it is what
 * was decoded there. */
#ifndef UNMASK_ENGINE_SESSION_BEGINNINGS_H
#define UNMASK_ENGINE_SESSION_BEGINNINGS_H

#include "sim/model/model.h"
#include "sim/serve/contents.h"

struct beginnings {
    uint64_t seed;
    uint32_t n_tokens, mask_token; /* tokens of the vocabulary; the one that is never drawn */
    /* Outputs with which prompts may begin, by content. */
    struct decoded {
        uint64_t id; /* of the content, as long as it is this one's */
        int32_t *tokens;
        uint32_t n;
    } * decoded;
    size_t room;
};

void beginnings_open(struct beginnings *beginnings, uint64_t seed, const struct model *model);
void beginnings_close(struct beginnings *beginnings);

/* The first n tokens of a request's canvas, all of them of its prompt. `beginning` NULL: it begins
 * like no other. */
void beginnings_read(const struct beginnings *beginnings, uint64_t request,
                     const struct beginning *beginning, uint32_t n, int32_t *tokens);

/* A canvas's output is decoded, and a later prompt may begin with it. */
void beginnings_keep(struct beginnings *beginnings, const struct beginning *beginning,
                     const int32_t *output, uint32_t n);

#endif
