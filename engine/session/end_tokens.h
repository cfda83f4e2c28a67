/* The tokens with which a model ends its text, and where a request's text ends by them.
 *
 * They stand in a checkpoint's generation_config.json or config.json (eos_token_id, a number or a
 * list), or the user names them. Random weights have none: what they say never ends. */
#ifndef UNMASK_ENGINE_SESSION_END_TOKENS_H
#define UNMASK_ENGINE_SESSION_END_TOKENS_H

#include "engine/session/session.h"

enum { MOST_END_TOKENS = 16 };

struct end_tokens {
    int32_t tokens[MOST_END_TOKENS];
    uint32_t n; /* 0: none is looked for */
};

/* "N,N,..." or "none"; ids below the model's vocabulary. ERR_USAGE names `place`. */
int end_tokens_parse(const char *text, const char *place, const struct model *model,
                     struct end_tokens *out, struct err *err);

/* Those of a checkpoint folder, none where it names none; none for "random:SEED". */
int end_tokens_read(const char *weights, const struct model *model, struct end_tokens *out,
                    struct err *err);

/* "N, N, ..." for people. Returns `text`. */
const char *end_tokens_text(const struct end_tokens *ends, char *text, size_t size);

/* Where the first of them stands in the request's window, with nothing masked before it: in
 * *answer_tokens its output positions up to there; 0: nowhere. *is_met: whether one stands there at
 * all. Waits for the device. */
int end_tokens_find(const struct end_tokens *ends, struct sessions *sessions, uint32_t slot,
                    const struct request *request, uint32_t *answer_tokens, bool *is_met,
                    struct err *err);

#endif
