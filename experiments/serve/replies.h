/* Replies: what a call's tokens are, and their text.
 *
 * A simulation decides how many tokens there are and when, and no token of them: they are words,
 * one token each, drawn by the call's seed (lorem), or the prompt once more, and words after it
 * (echo). A device with weights of a checkpoint says them itself; random weights' tokens are no
 * text, and stand for words, too. With a tokenizer words are tokens of its vocabulary that are a
 * blank and letters, so that a reply's text has as many tokens as its usage counts; without one
 * words are fixed, and a device's tokens are written as numbers.
 *
 * A stop ends the reply with the token by which its text is there. The text is written up to where
 * the stop begins (shows_stop: ends), and what may be the beginning of one waits. */
#ifndef UNMASK_EXPERIMENTS_SERVE_REPLIES_H
#define UNMASK_EXPERIMENTS_SERVE_REPLIES_H

#include "engine/text/chat.h"
#include "engine/weights/tokenizer.h"
#include "experiments/serve/bytes.h"
#include "experiments/serve/call.h"

struct replies_request {
    const char *tokenizer; /* a folder; NULL: there is none */
    const char *chat;      /* a template's name; NULL: the folder's */
    bool echoes;
    bool decodes; /* a device's tokens are the text */
    uint64_t seed;
};

struct replies {
    struct replies_request request;
    struct tokenizer *tokenizer; /* NULL: there is none */
    const struct chat *chat;
    int32_t *words; /* [n_words]: tokens of the vocabulary; NULL: the fixed words */
    size_t n_words;
};

/* ERR_USAGE and ERR_WORLD as the tokenizer's; ERR_USAGE where its vocabulary has no words. */
int replies_open(const struct replies_request *request, struct replies *out, struct err *err);
void replies_close(struct replies *replies);

/* The key of a call's draws: its own seed's, or that of the server's seed and the call's id. */
uint64_t replies_key(const struct replies *replies, const struct call *call, uint64_t id);

/* What an echo begins with: as much of the prompt's text, up to the call's output_tokens, as has as
 * many tokens once it is read again. Of one that has a tokenizer, whose one caller this is. */
void replies_echo(struct replies *replies, struct call *call);

/* Of a call with stops: by how many of the first `n` tokens one of them is there; 0: none is. */
uint32_t replies_stop(const struct replies *replies, const struct call *call, uint64_t id,
                      uint32_t n);

/* The ids of the first n tokens of a reply, of which the vocabulary has one each: false where there
 * is none, as words are fixed. */
bool replies_ids(const struct replies *replies, const struct call *call, uint64_t id, uint32_t n,
                 int32_t *out);

/* Adds the text of the reply's tokens from where it was last written to `end`, without what is
 * still half a character, or may begin a stop, unless `is_last`. Moves what the call says is
 * written. */
void replies_text(const struct replies *replies, struct call *call, uint32_t end, bool is_last,
                  struct bytes *out);

#endif
