/* Chat templates: what stands around a user's message, by name.
 *
 * A folder has its template as a program in Jinja, in chat_template.jinja or, as all did once, in
 * tokenizer_config.json. It is not run: those of the families that are supported are known here,
 * for one message of a user and the beginning of the answer, and are recognised by words of the
 * program. A template with other words, or with a system message of its own, is refused. */
#ifndef UNMASK_ENGINE_TEXT_CHAT_H
#define UNMASK_ENGINE_TEXT_CHAT_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/err.h"

struct chat {
    const char *name, *doc;
    const char *words;   /* that no template before it in the table has */
    const char *foreign; /* a word of other programs with the same words; NULL: there is none */
    const char *before, *after;
    bool begins; /* with the tokenizer's bos_token */
    bool trims;  /* white space around the message */
};

/* Ends with a NULL name; the first one is "none", which adds nothing. */
extern const struct chat chat_table[];

/* ERR_USAGE names what there is. */
int chat_find(const char *name, const struct chat **out, struct err *err);

/* The template of a folder: that of chat_template.jinja, else of tokenizer_config.json, else of
 * chat_template.json, as `transformers` prefers them; "none" where none of them has one. ERR_USAGE
 * where it is not known. */
int chat_of_folder(const char *folder, const struct chat **out, struct err *err);

/* The text of one message, ended; the caller frees it. `folder` says what bos_token is. NULL and a
 * sentence where that cannot be read. */
char *chat_text(const struct chat *chat, const char *folder, const char *message, size_t n,
                size_t *length, struct err *err);

#endif
