#include "experiments/serve/replies.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/rng.h"

static const char *const lorem[] = {
    "lorem", "ipsum",    "dolor",   "sit",     "amet",    "consectetur", "adipiscing", "elit",
    "sed",   "do",       "eiusmod", "tempor",  "magna",   "aliqua",      "ut",         "enim",
    "minim", "veniam",   "quis",    "nostrud", "ullamco", "laboris",     "nisi",       "aliquip",
    "ex",    "ea",       "commodo", "duis",    "aute",    "irure",       "in",         "voluptate",
    "velit", "esse",     "cillum",  "fugiat",  "nulla",   "pariatur",    "sint",       "occaecat",
    "non",   "proident", "sunt",    "culpa",   "qui",     "officia",     "mollit",     "anim",
};
enum { N_LOREM = sizeof lorem / sizeof lorem[0], MOST_WORDS = 4096, LEAST_WORDS = 8 };

/* Whether a token is a blank and letters, and a text of it that very token. */
static bool is_word(struct tokenizer *tokenizer, int32_t id) {
    size_t n;
    const char *bytes = tokenizer_bytes(tokenizer, id, &n);
    if (bytes == NULL || n < 3 || n > 16 || bytes[0] != ' ' ||
        tokenizer_is_special(tokenizer, id)) {
        return false;
    }
    for (size_t i = 1; i < n; i++) {
        if (!islower((unsigned char)bytes[i]) || (unsigned char)bytes[i] > 'z') {
            return false;
        }
    }
    struct token_ids again = {0};
    struct err err = {0};
    const bool is_same = tokenizer_encode(tokenizer, bytes, n, &again, &err) == 0 && again.n == 1 &&
                         again.ids[0] == id;
    free(again.ids);
    return is_same;
}

static int find_words(struct replies *replies, struct err *err) {
    const uint32_t n_ids = tokenizer_n_ids(replies->tokenizer);
    replies->words = mem_zeroed(MOST_WORDS, sizeof *replies->words);
    for (uint32_t id = 0; id < n_ids && replies->n_words < MOST_WORDS; id++) {
        if (is_word(replies->tokenizer, (int32_t)id)) {
            replies->words[replies->n_words++] = (int32_t)id;
        }
    }
    return replies->n_words >= LEAST_WORDS
               ? 0
               : err_usage(err,
                           "%s: its vocabulary has %zu tokens that are a blank and letters, of "
                           "which replies are made; %d are needed",
                           replies->request.tokenizer, replies->n_words, LEAST_WORDS);
}

int replies_open(const struct replies_request *request, struct replies *out, struct err *err) {
    *out = (struct replies){.request = *request, .chat = &chat_table[0]};
    int status = 0;
    if (request->tokenizer != NULL) {
        status = tokenizer_open(request->tokenizer, &out->tokenizer, err);
    }
    if (status == 0 && request->chat != NULL) {
        status = chat_find(request->chat, &out->chat, err);
    } else if (status == 0 && request->tokenizer != NULL) {
        status = chat_of_folder(request->tokenizer, &out->chat, err);
    }
    return status == 0 && out->tokenizer != NULL && !request->decodes && !request->echoes
               ? find_words(out, err)
               : status;
}

void replies_close(struct replies *replies) {
    tokenizer_close(replies->tokenizer);
    free(replies->words);
    *replies = (struct replies){0};
}

uint64_t replies_key(const struct replies *replies, const struct call *call, uint64_t id) {
    return call->has_seed ? rng_key(call->seed, 0, 1) : rng_key(replies->request.seed, id, 2);
}

/* The i-th token; a word's number where there is no vocabulary. */
static int32_t token_at(const struct replies *replies, const struct call *call, uint64_t key,
                        uint32_t i) {
    if (call->tokens != NULL) {
        return call->tokens[i];
    }
    if (replies->request.echoes && call->prompt != NULL) {
        return call->prompt[i % call->arrival.prompt_tokens];
    }
    return (int32_t)(rng_at(key, i) * 2147483647.0);
}

static void write_words(const struct replies *replies, const struct call *call, uint32_t begin,
                        uint32_t end, FILE *out) {
    const uint64_t key = replies_key(replies, call, call->arrival.id);
    const bool has_vocabulary = replies->n_words > 0;
    for (uint32_t i = begin; i < end; i++) {
        const uint32_t token = (uint32_t)token_at(replies, call, key, i);
        if (has_vocabulary) {
            size_t n;
            const int32_t word = replies->words[token % replies->n_words];
            const char *bytes = tokenizer_bytes(replies->tokenizer, word, &n);
            fwrite(bytes, 1, n, out);
        } else {
            fprintf(out, " %s", lorem[token % N_LOREM]);
        }
    }
}

static void write_numbers(const struct replies *replies, const struct call *call, uint32_t begin,
                          uint32_t end, FILE *out) {
    for (uint32_t i = begin; i < end; i++) {
        fprintf(out, " %" PRId32, token_at(replies, call, 0, i));
    }
}

/* What the tokenizer makes of all tokens so far, from where it was last written: of a character
 * that may go on the text so far ends with U+FFFD. */
static char *decode(const struct replies *replies, struct call *call, uint32_t end, bool is_last,
                    size_t *size) {
    static const char unknown[] = "\xef\xbf\xbd";
    int32_t *ids = mem_unwritten((size_t)end + 1, sizeof *ids);
    size_t whole;
    for (uint32_t i = 0; i < end; i++) {
        ids[i] = token_at(replies, call, 0, i);
    }
    char *text = tokenizer_decode(replies->tokenizer, ids, end, false, &whole);
    free(ids);
    while (!is_last && whole >= 3 && memcmp(text + whole - 3, unknown, 3) == 0) {
        whole -= 3;
    }
    const size_t from = call->written_bytes < whole ? call->written_bytes : whole;
    *size = whole - from;
    memmove(text, text + from, *size);
    text[*size] = '\0';
    call->written_bytes = whole > call->written_bytes ? whole : call->written_bytes;
    return text;
}

char *replies_text(const struct replies *replies, struct call *call, uint32_t end, bool is_last,
                   size_t *size) {
    const bool is_said = call->tokens != NULL && replies->request.decodes;
    const bool is_echo = call->tokens == NULL && replies->request.echoes && call->prompt != NULL;
    const uint32_t begin = call->written_tokens;
    call->written_tokens = end;
    if ((is_said || is_echo) && replies->tokenizer != NULL) {
        return decode(replies, call, end, is_last, size);
    }
    char *text;
    FILE *out = mem_stream(&text, size);
    if (is_said || is_echo || (call->tokens != NULL && replies->tokenizer == NULL)) {
        write_numbers(replies, call, begin, end, out);
    } else {
        write_words(replies, call, begin, end, out);
    }
    mem_stream_close(out);
    return text;
}
