#include "engine/weights/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "engine/weights/tokenizer_parts.h"
#include "sim/base/mem.h"
#include "sim/base/utf8.h"

void token_ids_add(struct token_ids *ids, int32_t id) {
    if (ids->n == ids->room) {
        ids->room = 2 * ids->room + 64;
        ids->ids = mem_resized(ids->ids, ids->room, sizeof *ids->ids);
    }
    ids->ids[ids->n++] = id;
}

void tokenizer_close(struct tokenizer *t) {
    if (t == NULL) {
        return;
    }
    for (uint32_t i = 0; i < t->n_splits; i++) {
        pcre2_match_data_free(t->splits[i].match);
        pcre2_code_free(t->splits[i].code);
    }
    for (size_t i = 0; i < t->n_added; i++) {
        free((char *)t->added[i].text);
    }
    bpe_close(t->bpe);
    free(t->added);
    free(t->by_bytes);
    free(t->tokens);
    free(t->bytes);
    free(t->path);
    free(t);
}

/* ---- tokens ---- */

uint64_t tokenizer_hash(const char *bytes, size_t n) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    }
    return hash ^ hash >> 32;
}

int32_t tokenizer_lookup(const struct tokenizer *t, const char *bytes, size_t n) {
    for (size_t at = tokenizer_hash(bytes, n) & t->by_bytes_mask; t->by_bytes[at] >= 0;
         at = (at + 1) & t->by_bytes_mask) {
        const struct token *token = &t->tokens[t->by_bytes[at]];
        if (token->length == n && memcmp(t->bytes + token->offset, bytes, n) == 0) {
            return t->by_bytes[at];
        }
    }
    return -1;
}

uint32_t tokenizer_n_ids(const struct tokenizer *t) {
    return t->n_ids;
}

int tokenizer_check_fits(const struct tokenizer *t, const char *model, uint32_t vocab,
                         struct err *err) {
    return t->n_ids <= vocab ? 0
                             : err_usage(err,
                                         "%s does not fit %s: its ids reach %" PRIu32
                                         ", the model's vocabulary ends at %" PRIu32,
                                         t->path, model, t->n_ids - 1, vocab - 1);
}

int32_t tokenizer_find(const struct tokenizer *t, const char *token) {
    size_t n = strlen(token);
    for (size_t i = 0; i < t->n_added; i++) {
        if (t->added[i].length == n && memcmp(t->added[i].text, token, n) == 0) {
            return t->added[i].id;
        }
    }
    return tokenizer_lookup(t, token, n);
}

void tokenizer_begin(const struct tokenizer *t, struct token_ids *out) {
    for (uint32_t i = 0; i < t->n_beginning; i++) {
        token_ids_add(out, t->beginning[i]);
    }
}

const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *n) {
    bool exists = id >= 0 && (uint32_t)id < t->n_ids && t->tokens[id].length > 0;
    *n = exists ? t->tokens[id].length : 0;
    return exists ? t->bytes + t->tokens[id].offset : NULL;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id) {
    return id >= 0 && (uint32_t)id < t->n_ids && t->tokens[id].is_special;
}

/* ---- text to ids ---- */

/* One call of tokenizer_encode. */
struct encoding {
    struct tokenizer *t;
    struct token_ids *out;
    struct err *err;
};

/* A piece that no split takes apart further. */
static int encode_word(const struct encoding *e, const char *text, size_t n) {
    struct tokenizer *t = e->t;
    int32_t whole = t->ignores_merges ? tokenizer_lookup(t, text, n) : -1;
    if (whole >= 0) {
        token_ids_add(e->out, whole);
        return 0;
    }
    size_t first = e->out->n;
    for (size_t i = 0; i < n; i++) {
        int32_t id = t->by_byte[(unsigned char)text[i]];
        if (id < 0) {
            return err_usage(e->err, "the vocabulary of %s has no token for the byte 0x%02x",
                             t->path, (unsigned char)text[i]);
        }
        token_ids_add(e->out, id);
    }
    e->out->n = first + bpe_merge(t->bpe, e->out->ids + first, n);
    return 0;
}

static int encode_piece(const struct encoding *e, uint32_t i_split, const char *text, size_t n);

static int encode_part(const struct encoding *e, uint32_t i_split, bool is_kept, const char *text,
                       size_t n) {
    return is_kept && n > 0 ? encode_piece(e, i_split + 1, text, n) : 0;
}

/* A match without a character takes nothing apart. */
static int encode_piece(const struct encoding *e, uint32_t i_split, const char *text, size_t n) {
    if (i_split == e->t->n_splits) {
        return encode_word(e, text, n);
    }
    const struct split *split = &e->t->splits[i_split];
    size_t begin = 0; /* of what no match has taken */
    for (size_t from = 0; from < n;) {
        int found = pcre2_match(split->code, (PCRE2_SPTR)text, n, from,
                                PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, split->match, NULL);
        if (found == PCRE2_ERROR_NOMATCH) {
            break;
        }
        const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(split->match);
        size_t first = ends[0], last = ends[1];
        if (found < 0 || first < from || last <= first) {
            return err_usage(e->err, "the text cannot be split as %s says (PCRE2's error %d)",
                             e->t->path, found);
        }
        int status = encode_part(e, i_split, split->keeps_rest, text + begin, first - begin);
        status = status == 0
                     ? encode_part(e, i_split, split->keeps_matches, text + first, last - first)
                     : status;
        if (status != 0) {
            return status;
        }
        from = begin = last;
    }
    return encode_part(e, i_split, split->keeps_rest, text + begin, n - begin);
}

static bool is_white(utf8proc_int32_t c) {
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

/* How many bytes of white space text[0..n) begins with. */
static size_t leading_white(const char *text, size_t n) {
    size_t used = 0;
    while (used < n) {
        utf8proc_int32_t c;
        utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)text + used,
                                                   (utf8proc_ssize_t)(n - used), &c);
        if (length <= 0 || !is_white(c)) {
            break;
        }
        used += (size_t)length;
    }
    return used;
}

/* Where the white space begins with which text[0..n) ends. */
static size_t trailing_white(const char *text, size_t n) {
    size_t end = n;
    while (end > 0) {
        size_t at = end - 1;
        while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80) {
            at--;
        }
        if (leading_white(text + at, end - at) != end - at) {
            break;
        }
        end = at;
    }
    return end;
}

/* The longest added token that text[0..n) begins with, or NULL. */
static const struct added_token *added_at(const struct tokenizer *t, bool normalized,
                                          const char *text, size_t n) {
    if (!t->begins_added[(unsigned char)text[0]]) {
        return NULL;
    }
    for (size_t i = 0; i < t->n_added; i++) {
        const struct added_token *added = &t->added[i];
        if (added->normalized == normalized && added->length <= n &&
            memcmp(added->text, text, added->length) == 0) {
            return added;
        }
    }
    return NULL;
}

static int encode_normalized(const struct encoding *e, const char *text, size_t n);

/* What lies between added tokens: of those found in the text as it is, it is normalized next. */
static int encode_between(const struct encoding *e, bool normalized, const char *text, size_t n) {
    if (n == 0) {
        return 0;
    }
    return normalized ? encode_piece(e, 0, text, n) : encode_normalized(e, text, n);
}

static int encode_added(const struct encoding *e, bool normalized, const char *text, size_t n) {
    size_t begin = 0;
    for (size_t at = 0; at < n;) {
        const struct added_token *added = added_at(e->t, normalized, text + at, n - at);
        if (added == NULL) {
            at++;
            continue;
        }
        size_t first = added->lstrip ? trailing_white(text, at) : at;
        size_t last = at + added->length;
        first = first > begin ? first : begin;
        int status = encode_between(e, normalized, text + begin, first - begin);
        if (status != 0) {
            return status;
        }
        token_ids_add(e->out, added->id);
        last += added->rstrip ? leading_white(text + last, n - last) : 0;
        at = begin = last;
    }
    return encode_between(e, normalized, text + begin, n - begin);
}

static int encode_normalized(const struct encoding *e, const char *text, size_t n) {
    if (!e->t->is_nfc) {
        return encode_added(e, true, text, n);
    }
    utf8proc_uint8_t *composed = NULL;
    utf8proc_ssize_t length = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n,
                                           &composed, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (length < 0) {
        return err_usage(e->err, "the text cannot be normalized: %s", utf8proc_errmsg(length));
    }
    int status = encode_added(e, true, (const char *)composed, (size_t)length);
    free(composed);
    return status;
}

int tokenizer_check_text(const char *text, size_t n, struct err *err) {
    for (size_t at = 0; at < n;) {
        bool is_valid;
        size_t length = utf8_next(text + at, n - at, &is_valid);
        if (!is_valid) {
            return err_usage(err, "the text cannot be encoded: its byte %zu (0x%02x) is not UTF-8",
                             at, (unsigned char)text[at]);
        }
        at += length;
    }
    return 0;
}

int tokenizer_encode(struct tokenizer *t, const char *text, size_t n, struct token_ids *out,
                     struct err *err) {
    const struct encoding encoding = {t, out, err};
    int status = tokenizer_check_text(text, n, err);
    return status != 0 ? status : encode_added(&encoding, false, text, n);
}

/* ---- ids to text ---- */

static void put_valid(FILE *out, const char *text, size_t n) {
    for (size_t at = 0; at < n;) {
        bool is_valid;
        size_t length = utf8_next(text + at, n - at, &is_valid);
        if (is_valid) {
            fwrite(text + at, 1, length, out);
        } else {
            fputs("\xef\xbf\xbd", out);
        }
        at += length;
    }
}

char *tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool shows_special,
                       size_t *length) {
    char *bytes = NULL, *text = NULL;
    size_t n_bytes, n_text;
    FILE *joined = mem_stream(&bytes, &n_bytes);
    for (size_t i = 0; i < n; i++) {
        size_t size;
        const char *token = tokenizer_bytes(t, ids[i], &size);
        if (size > 0 && (shows_special || !tokenizer_is_special(t, ids[i]))) {
            fwrite(token, 1, size, joined);
        }
    }
    mem_stream_close(joined);
    FILE *out = mem_stream(&text, &n_text);
    put_valid(out, bytes, n_bytes);
    mem_stream_close(out);
    free(bytes);
    if (length != NULL) {
        *length = n_text;
    }
    return text;
}
