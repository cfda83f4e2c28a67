/* Prompts as JSON lines and, where known, the right answers.
 *
 *   {"id": "gsm-0", "task": "gsm", "prompt": "Q: ...\nA:\n", "answer": "510"}
 *   {"ids": [12, 7, 1044], "output_tokens": 64}
 *
 * A line has one of `prompt`, a text, and `ids`, tokens. `id` (a text or a whole number), `task`,
 * `answer` (a text or a number) and `output_tokens` (default: 256) may be there, and how the
 * request's tokens are drawn: `temperature`, `top_p`, `top_k` and `seed` (sim/base/sampling.h).
 * Further keys are ignored. A line that is not as it must be ends the reading with one sentence
 * "path:line: ..." (ERR_USAGE).
 *
 * The tokenizer that counts texts is not known here: it comes with the taker of prompts. */
#ifndef UNMASK_TRACES_FORMAT_PROMPTS_H
#define UNMASK_TRACES_FORMAT_PROMPTS_H

#include <stddef.h>
#include <stdint.h>

#include "sim/base/err.h"

enum { PROMPT_OUTPUT_TOKENS = 256 };

/* One line; everything is borrowed for the duration of a call. */
struct prompt {
    uint64_t number; /* in its file, from 0 */
    const char *path;
    uint64_t line;
    const char *id, *task, *answer; /* NULL where the line does not say */
    const char *text;               /* NULL: ids */
    size_t text_bytes;
    const int32_t *ids; /* [n_ids] */
    uint32_t n_ids;
};

struct prompt_taker {
    void *state;
    /* Called with each prompt, and again when a file is read again, with the same number. In
     * *tokens its number of tokens, at least 1. NULL: texts cannot be counted. */
    int (*take)(void *state, const struct prompt *prompt, uint32_t *tokens, struct err *err);
};

#endif
