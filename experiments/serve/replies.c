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
    return status == 0 && out->tokenizer != NULL && !request->decodes ? find_words(out, err)
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

/* ---- tokens and their texts ---- */

enum { MOST_DIGITS = 16, MOST_TRIES = 8 };

/* The i-th token is this id, or a drawn word: -1. */
static int32_t id_at(const struct replies *replies, const struct call *call, uint32_t i) {
    if (call->tokens != NULL) {
        return replies->request.decodes || replies->tokenizer == NULL ? call->tokens[i] : -1;
    }
    if (i < call->n_echo) {
        return call->echo[i];
    }
    return replies->request.echoes && replies->tokenizer == NULL && call->prompt != NULL
               ? call->prompt[i % call->arrival.prompt_tokens]
               : -1;
}

static uint32_t word_at(const struct call *call, uint64_t key, uint32_t i) {
    return call->tokens != NULL ? (uint32_t)call->tokens[i]
                                : (uint32_t)(rng_at(key, i) * 2147483647.0);
}

struct piece {
    const char *bytes;
    size_t n;
    char digits[MOST_DIGITS];
};

/* What the i-th token adds to the text, as bytes. */
static void piece_at(const struct replies *replies, const struct call *call, uint64_t key,
                     uint32_t i, struct piece *out) {
    int32_t id = id_at(replies, call, i);
    if (id < 0 && replies->n_words == 0) {
        static const char blank[] = " ";
        const char *word = lorem[word_at(call, key, i) % N_LOREM];
        out->n = strlen(word) + 1;
        memcpy(out->digits, blank, 1);
        memcpy(out->digits + 1, word, out->n - 1);
        out->bytes = out->digits;
        return;
    }
    if (replies->tokenizer == NULL) {
        out->n = (size_t)snprintf(out->digits, sizeof out->digits, " %" PRId32, id);
        out->bytes = out->digits;
        return;
    }
    id = id < 0 ? replies->words[word_at(call, key, i) % replies->n_words] : id;
    out->bytes = tokenizer_bytes(replies->tokenizer, id, &out->n);
    out->n = tokenizer_is_special(replies->tokenizer, id) ? 0 : out->n;
}

static void add_pieces(const struct replies *replies, const struct call *call, uint64_t key,
                       uint32_t begin, uint32_t end, struct bytes *out) {
    struct piece piece;
    for (uint32_t i = begin; i < end; i++) {
        piece_at(replies, call, key, i, &piece);
        bytes_add(out, piece.bytes, piece.n);
    }
}

bool replies_ids(const struct replies *replies, const struct call *call, uint64_t id, uint32_t n,
                 int32_t *out) {
    const uint64_t key = replies_key(replies, call, id);
    bool is_known = true;
    for (uint32_t i = 0; is_known && i < n; i++) {
        out[i] = id_at(replies, call, i);
        is_known = out[i] >= 0 || replies->n_words > 0;
        if (is_known && out[i] < 0) {
            out[i] = replies->words[word_at(call, key, i) % replies->n_words];
        }
    }
    return is_known;
}

/* ---- stops ---- */

/* Which of the stops is the first to be whole in text[0..n), and where; NULL: none. */
static const char *find_stop(const char *stops, const char *text, size_t n, size_t *at) {
    const char *found = NULL;
    for (const char *stop = stops; *stop != '\0'; stop += strlen(stop) + 1) {
        const char *here = n > 0 ? memmem(text, n, stop, strlen(stop)) : NULL;
        const size_t begin = here != NULL ? (size_t)(here - text) : n;
        if (here != NULL && (found == NULL || begin + strlen(stop) < *at + strlen(found))) {
            found = stop;
            *at = begin;
        }
    }
    return found;
}

/* The bytes at the end of text[0..n) that may begin a stop. */
static size_t begun_stop(const char *stops, const char *text, size_t n) {
    size_t most = 0;
    for (const char *stop = stops; *stop != '\0'; stop += strlen(stop) + 1) {
        size_t part = strlen(stop) - 1;
        part = part < n ? part : n;
        while (part > most && memcmp(text + n - part, stop, part) != 0) {
            part--;
        }
        most = part > most ? part : most;
    }
    return most;
}

uint32_t replies_stop(const struct replies *replies, const struct call *call, uint64_t id,
                      uint32_t n) {
    const uint64_t key = replies_key(replies, call, id);
    struct piece piece;
    struct bytes text = {0};
    size_t at, end = 0;
    uint32_t n_tokens = 0;
    add_pieces(replies, call, key, 0, n, &text);
    const char *stop = find_stop(call->stops, text.at, text.n, &at);
    while (stop != NULL && end < at + strlen(stop)) {
        piece_at(replies, call, key, n_tokens++, &piece);
        end += piece.n;
    }
    bytes_free(&text);
    return n_tokens;
}

/* How much of a text a client is to have by now. */
static size_t without_stop(const struct call *call, const char *text, size_t n, bool is_last) {
    size_t at;
    const char *stop = find_stop(call->stops, text, n, &at);
    if (stop != NULL) {
        return call->shows_stop ? at + strlen(stop) : at;
    }
    return is_last ? n : n - begun_stop(call->stops, text, n);
}

/* ---- the text ---- */

/* Without the tokens that people are not shown. */
static void add_decoded(const struct replies *replies, const struct call *call, uint32_t end,
                        struct bytes *out) {
    int32_t *ids = mem_unwritten((size_t)end + 1, sizeof *ids);
    size_t size;
    (void)replies_ids(replies, call, call->arrival.id, end, ids);
    char *text = tokenizer_decode(replies->tokenizer, ids, end, false, &size);
    bytes_add(out, text, size);
    free(text);
    free(ids);
}

/* Of tokens that may be parts of characters: of a character that may go on the text so far ends
 * with U+FFFD. */
static size_t whole_characters(const char *text, size_t n) {
    static const char unknown[] = "\xef\xbf\xbd";
    while (n >= 3 && memcmp(text + n - 3, unknown, 3) == 0) {
        n -= 3;
    }
    return n;
}

void replies_text(const struct replies *replies, struct call *call, uint32_t end, bool is_last,
                  struct bytes *out) {
    const bool is_said = call->tokens != NULL && replies->request.decodes;
    const bool is_decoded = replies->tokenizer != NULL && (is_said || call->n_echo > 0);
    const uint64_t key = replies_key(replies, call, call->arrival.id);
    const uint32_t begin = call->written_tokens;
    call->written_tokens = end;
    if (!is_decoded && call->stops == NULL) {
        add_pieces(replies, call, key, begin, end, out);
        return;
    }
    struct bytes text = {0};
    if (is_decoded) {
        add_decoded(replies, call, end, &text);
    } else {
        add_pieces(replies, call, key, 0, end, &text);
    }
    size_t whole = is_decoded && !is_last ? whole_characters(text.at, text.n) : text.n;
    whole = call->stops != NULL ? without_stop(call, text.at, whole, is_last) : whole;
    if (whole > call->written_bytes) {
        bytes_add(out, text.at + call->written_bytes, whole - call->written_bytes);
        call->written_bytes = whole;
    }
    bytes_free(&text);
}

/* ---- an echo ---- */

/* Whether the text of the first n of these tokens, and a word after it, is read as these tokens. */
static bool is_stable(const struct replies *replies, const int32_t *ids, size_t n) {
    struct token_ids again = {0};
    struct err err = {0};
    size_t size;
    int32_t *with_word = mem_unwritten(n + 1, sizeof *ids);
    memcpy(with_word, ids, n * sizeof *ids);
    with_word[n] = replies->words[0];
    char *text = tokenizer_decode(replies->tokenizer, with_word, n + 1, false, &size);
    const bool is_same = tokenizer_encode(replies->tokenizer, text, size, &again, &err) == 0 &&
                         again.n == n + 1 &&
                         memcmp(again.ids, with_word, (n + 1) * sizeof *ids) == 0;
    free(text);
    free(with_word);
    free(again.ids);
    return is_same;
}

void replies_echo(struct replies *replies, struct call *call) {
    struct tokenizer *tokenizer = replies->tokenizer;
    struct token_ids said = {0};
    struct err err = {0};
    size_t size;
    if (!replies->request.echoes || tokenizer == NULL || call->prompt == NULL) {
        return;
    }
    char *text =
        tokenizer_decode(tokenizer, call->prompt, call->arrival.prompt_tokens, false, &size);
    size_t n = tokenizer_encode(tokenizer, text, size, &said, &err) == 0 ? said.n : 0;
    free(text);
    n = n < call->arrival.output_tokens ? n : call->arrival.output_tokens;
    for (size_t tries = 0; n > 0 && !is_stable(replies, said.ids, n); tries++) {
        n = tries < MOST_TRIES ? n - 1 : 0;
    }
    call->echo = said.ids;
    call->n_echo = (uint32_t)n;
}
