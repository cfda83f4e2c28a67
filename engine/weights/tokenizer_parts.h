/* The inside of a tokenizer, shared by the file that reads it and the one that runs it. */
#ifndef UNMASK_ENGINE_WEIGHTS_TOKENIZER_PARTS_H
#define UNMASK_ENGINE_WEIGHTS_TOKENIZER_PARTS_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "engine/weights/bpe.h"
#include "engine/weights/tokenizer.h"

enum {
    TOKENIZER_MOST_IDS = 1 << 22,
    TOKENIZER_MOST_SPLITS = 8,
    TOKENIZER_MOST_BEGINNINGS = 8,
};

/* `offset` into tokenizer.bytes; length 0: there is no such id. */
struct token {
    size_t offset;
    uint32_t length;
    bool is_special;
};

struct added_token {
    int32_t id;
    const char *text;
    size_t length;
    bool lstrip, rstrip; /* takes the white space before or after it */
    bool normalized;     /* looked for in the normalized text */
};

/* One way to take a text apart: at each match, of which and of what lies between some are kept. */
struct split {
    pcre2_code *code;
    pcre2_match_data *match;
    bool keeps_matches, keeps_rest;
};

struct tokenizer {
    char *path;
    char *bytes; /* of all tokens */
    size_t n_bytes, bytes_room;
    struct token *tokens; /* [n_ids] */
    uint32_t n_ids;
    int32_t *by_bytes; /* the vocabulary's ids by hash of their bytes, -1: none */
    size_t by_bytes_mask;
    int32_t by_byte[256];      /* -1: the vocabulary lacks it */
    struct added_token *added; /* the longest first */
    size_t n_added;
    bool begins_added[256]; /* whether some added token begins with this byte */
    bool is_nfc, ignores_merges;
    struct split splits[TOKENIZER_MOST_SPLITS];
    uint32_t n_splits;
    int32_t beginning[TOKENIZER_MOST_BEGINNINGS];
    uint32_t n_beginning;
    struct bpe *bpe;
};

/* The id of the vocabulary's token of these bytes, or -1. */
int32_t tokenizer_lookup(const struct tokenizer *tokenizer, const char *bytes, size_t n);
/* FNV-1a. */
uint64_t tokenizer_hash(const char *bytes, size_t n);

#endif
