/* tokenizer.json: what it may say, and how it becomes a tokenizer. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/weights/tokenizer_pair.h"
#include "engine/weights/tokenizer_parts.h"
#include "sim/base/input/text.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/utf8.h"

/* What ByteLevel splits by where it is to split. */
static const char byte_level_split[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static const char *type_of(const json_t *object) {
    const char *type = json_string_value(json_object_get(object, "type"));
    return type != NULL ? type : "";
}

/* Parts of a tokenizer that are known. */
enum {
    KIND_BPE,
    KIND_SEQUENCE,
    KIND_NFC,
    KIND_SPLIT,
    KIND_DIGITS,
    KIND_BYTE_LEVEL,
    KIND_TEMPLATE,
};

/* -1: of another kind, or of none. */
static int kind_of(const json_t *object) {
    static const char *const kinds[] = {"BPE",       "Sequence",           "NFC", "Split", "Digits",
                                        "ByteLevel", "TemplateProcessing", NULL};
    return name_find(kinds, type_of(object));
}

static bool is_true(const json_t *object, const char *key, bool otherwise) {
    const json_t *value = json_object_get(object, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

static bool says(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    bool is_empty = json_is_string(value) && json_string_length(value) == 0;
    return value != NULL && !json_is_null(value) && !json_is_false(value) && !is_empty;
}

/* ---- the byte-level alphabet ---- */

/* Every byte is written as a character that can be seen: itself where it can be, else one of those
 * from U+0100 on, in order. */
static bool is_seen(uint32_t c) {
    return (c >= 33 && c <= 126) || (c >= 161 && c <= 172) || (c >= 174 && c <= 255);
}

enum { ALPHABET = 256 + 68 };

static void make_alphabet(int16_t byte_of[ALPHABET]) {
    uint32_t n_unseen = 0;
    for (uint32_t c = 0; c < ALPHABET; c++) {
        byte_of[c] = -1;
    }
    for (uint32_t byte = 0; byte < 256; byte++) {
        byte_of[is_seen(byte) ? byte : 256 + n_unseen++] = (int16_t)byte;
    }
}

/* The bytes that text stands for, as many as *n says then; false where a character is none of the
 * alphabet. `out` has room for the text. */
static bool bytes_of(const int16_t byte_of[ALPHABET], const char *text, size_t *n, char *out) {
    size_t made = 0;
    for (size_t at = 0; at < *n; made++) {
        bool is_valid;
        size_t length = utf8_next(text + at, *n - at, &is_valid);
        const unsigned char *c = (const unsigned char *)text + at;
        uint32_t code = length == 1 ? c[0] : (c[0] & 31u) << 6 | (c[1] & 63u);
        if (!is_valid || length > 2 || code >= ALPHABET || byte_of[code] < 0) {
            return false;
        }
        out[made] = (char)byte_of[code];
        at += length;
    }
    *n = made;
    return true;
}

/* ---- the vocabulary ---- */

static void set_token(struct tokenizer *t, int32_t id, const char *bytes, size_t n) {
    if (t->n_bytes + n >= t->bytes_room) { /* also for the first, of no bytes */
        t->bytes_room = 2 * (t->n_bytes + n) + 64;
        t->bytes = mem_resized(t->bytes, t->bytes_room, 1);
    }
    memcpy(t->bytes + t->n_bytes, bytes, n);
    t->tokens[id].offset = t->n_bytes;
    t->tokens[id].length = (uint32_t)n;
    t->n_bytes += n;
}

/* The token that is written so: the bytes of its characters, or, where one of them is none of the
 * alphabet, as it stands. Added tokens are treated alike, as Hugging Face's decoder does. */
static void set_written(struct tokenizer *t, const int16_t byte_of[ALPHABET], int32_t id,
                        const char *text, size_t length) {
    size_t n = length;
    char *bytes = mem_unwritten(n, 1);
    bool is_byte_level = bytes_of(byte_of, text, &n, bytes);
    set_token(t, id, is_byte_level ? bytes : text, is_byte_level ? n : length);
    free(bytes);
}

static int check_id(struct tokenizer *t, const json_t *value, const char *token, struct err *err) {
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id >= TOKENIZER_MOST_IDS) {
        return err_world(err, "%s: the id of token '%.64s' must be a whole number from 0 to %d",
                         t->path, token, TOKENIZER_MOST_IDS - 1);
    }
    t->n_ids = (uint32_t)id >= t->n_ids ? (uint32_t)id + 1 : t->n_ids;
    return 0;
}

/* So that there is room for every id. */
static int count_ids(struct tokenizer *t, json_t *vocab, const json_t *added, struct err *err) {
    const char *key;
    json_t *value;
    int status = json_object_size(vocab) > 0
                     ? 0
                     : err_world(err, "%s: the model has no vocabulary", t->path);
    json_object_foreach(vocab, key, value) {
        status = status == 0 ? check_id(t, value, key, err) : status;
    }
    for (size_t i = 0; status == 0 && i < json_array_size(added); i++) {
        status =
            check_id(t, json_object_get(json_array_get(added, i), "id"), "of added_tokens", err);
    }
    return status;
}

static void index_vocabulary(struct tokenizer *t) {
    size_t places = 16;
    while (places < 2 * (size_t)t->n_ids) {
        places *= 2;
    }
    t->by_bytes_mask = places - 1;
    t->by_bytes = mem_unwritten(places, sizeof *t->by_bytes);
    for (size_t i = 0; i < places; i++) {
        t->by_bytes[i] = -1;
    }
    for (uint32_t id = 0; id < t->n_ids; id++) {
        const struct token *token = &t->tokens[id];
        if (token->length > 0) {
            size_t at = tokenizer_hash(t->bytes + token->offset, token->length) & t->by_bytes_mask;
            while (t->by_bytes[at] >= 0) {
                at = (at + 1) & t->by_bytes_mask;
            }
            t->by_bytes[at] = (int32_t)id;
        }
    }
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        t->by_byte[byte] = tokenizer_lookup(t, &c, 1);
    }
}

static int read_vocabulary(struct tokenizer *t, json_t *vocab, const json_t *added,
                           const int16_t byte_of[ALPHABET], struct err *err) {
    int status = count_ids(t, vocab, added, err);
    if (status != 0) {
        return status;
    }
    t->tokens = mem_zeroed(t->n_ids, sizeof *t->tokens);
    const char *key;
    json_t *value;
    json_object_foreach(vocab, key, value) {
        set_written(t, byte_of, (int32_t)json_integer_value(value), key, strlen(key));
    }
    index_vocabulary(t);
    return 0;
}

/* ---- merges ---- */

/* The two sides of a merge, "a b" or ["a", "b"]. */
static bool sides_of(const json_t *merge, const char *side[2], size_t length[2]) {
    if (json_is_array(merge) && json_array_size(merge) == 2) {
        for (size_t i = 0; i < 2; i++) {
            side[i] = json_string_value(json_array_get(merge, i));
            length[i] = json_string_length(json_array_get(merge, i));
        }
        return side[0] != NULL && side[1] != NULL;
    }
    const char *text = json_string_value(merge);
    const char *blank = text != NULL ? strchr(text, ' ') : NULL;
    if (blank == NULL || strchr(blank + 1, ' ') != NULL) {
        return false;
    }
    side[0] = text;
    length[0] = (size_t)(blank - text);
    side[1] = blank + 1;
    length[1] = strlen(blank + 1);
    return true;
}

/* Both sides and what they make, as ids. */
static bool merge_ids(const struct tokenizer *t, const int16_t byte_of[ALPHABET],
                      const json_t *merge, int32_t ids[3]) {
    const char *side[2];
    size_t n[2], used = 0;
    if (!sides_of(merge, side, n)) {
        return false;
    }
    char *bytes = mem_unwritten(n[0] + n[1], 1);
    bool is_known = true;
    for (int i = 0; i < 2 && is_known; i++) {
        is_known = bytes_of(byte_of, side[i], &n[i], bytes + used);
        ids[i] = is_known ? tokenizer_lookup(t, bytes + used, n[i]) : -1;
        used += n[i];
    }
    ids[2] = is_known ? tokenizer_lookup(t, bytes, used) : -1;
    free(bytes);
    return is_known && ids[0] >= 0 && ids[1] >= 0 && ids[2] >= 0;
}

static int read_merges(struct tokenizer *t, const json_t *merges, const int16_t byte_of[ALPHABET],
                       struct err *err) {
    size_t n = json_array_size(merges);
    t->bpe = bpe_open(n);
    if (!json_is_array(merges)) {
        return err_world(err, "%s: the model has no list of merges", t->path);
    }
    for (size_t i = 0; i < n; i++) {
        int32_t ids[3];
        if (!merge_ids(t, byte_of, json_array_get(merges, i), ids)) {
            return err_world(err,
                             "%s: merge number %zu is not two tokens of the vocabulary that make a "
                             "third one",
                             t->path, i + 1);
        }
        bpe_add(t->bpe, ids[0], ids[1], ids[2]);
    }
    return 0;
}

static int read_model(struct tokenizer *t, const json_t *root, struct err *err) {
    const json_t *model = json_object_get(root, "model");
    if (kind_of(model) != KIND_BPE) {
        return err_world(err, "%s: a model of type '%.32s' is not supported, byte-level BPE is",
                         t->path, type_of(model));
    }
    static const char *const unsupported[] = {"dropout", "continuing_subword_prefix",
                                              "end_of_word_suffix", "byte_fallback"};
    for (size_t i = 0; i < sizeof unsupported / sizeof unsupported[0]; i++) {
        if (says(model, unsupported[i])) {
            return err_world(err, "%s: the model's %s is not supported", t->path, unsupported[i]);
        }
    }
    int16_t byte_of[ALPHABET];
    make_alphabet(byte_of);
    t->ignores_merges = is_true(model, "ignore_merges", false);
    int status = read_vocabulary(t, json_object_get(model, "vocab"),
                                 json_object_get(root, "added_tokens"), byte_of, err);
    return status != 0 ? status : read_merges(t, json_object_get(model, "merges"), byte_of, err);
}

/* ---- added tokens ---- */

static int the_longest_first(const void *a, const void *b) {
    const struct added_token *x = a, *y = b;
    return x->length != y->length ? (x->length < y->length) - (x->length > y->length)
                                  : (x->id > y->id) - (x->id < y->id);
}

static int read_added(struct tokenizer *t, const json_t *list, struct err *err) {
    int16_t byte_of[ALPHABET];
    make_alphabet(byte_of);
    size_t n = json_array_size(list);
    t->added = mem_zeroed(n, sizeof *t->added);
    for (size_t i = 0; i < n; i++) {
        const json_t *entry = json_array_get(list, i);
        const json_t *content = json_object_get(entry, "content");
        if (json_string_length(content) == 0) {
            return err_world(err, "%s: added token number %zu has no content", t->path, i + 1);
        }
        if (is_true(entry, "single_word", false)) {
            return err_world(err, "%s: single_word of the added token '%.64s' is not supported",
                             t->path, json_string_value(content));
        }
        struct added_token *added = &t->added[t->n_added++];
        *added =
            (struct added_token){.id = (int32_t)json_integer_value(json_object_get(entry, "id")),
                                 .text = mem_text(json_string_value(content)),
                                 .length = json_string_length(content),
                                 .lstrip = is_true(entry, "lstrip", false),
                                 .rstrip = is_true(entry, "rstrip", false),
                                 .normalized = is_true(entry, "normalized", false)};
        set_written(t, byte_of, added->id, added->text, added->length);
        t->begins_added[(unsigned char)added->text[0]] = true;
        t->tokens[added->id].is_special = is_true(entry, "special", false);
    }
    qsort(t->added, t->n_added, sizeof *t->added, the_longest_first);
    return 0;
}

/* ---- normalizer ---- */

static int read_normalizer(struct tokenizer *t, const json_t *normalizer, struct err *err) {
    const char *type = type_of(normalizer);
    if (normalizer == NULL || json_is_null(normalizer)) {
        return 0;
    }
    if (kind_of(normalizer) == KIND_SEQUENCE) {
        const json_t *list = json_object_get(normalizer, "normalizers");
        int status = 0;
        for (size_t i = 0; status == 0 && i < json_array_size(list); i++) {
            const json_t *part = json_array_get(list, i);
            status =
                kind_of(part) != KIND_SEQUENCE
                    ? read_normalizer(t, part, err)
                    : err_world(err, "%s: a sequence of normalizers in another is not supported",
                                t->path);
        }
        return status;
    }
    t->is_nfc = true;
    return kind_of(normalizer) == KIND_NFC
               ? 0
               : err_world(err, "%s: the normalizer %.32s is not supported, NFC is", t->path, type);
}

/* ---- splits ---- */

/* Oniguruma's white space is Unicode's: PCRE2's \s has one character more, and before 10.40 it
 * knows no \p{White_Space}. As it stands in a class, and whatever else there is. */
static const char white_space[] = "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}"
                                  "\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
static const char no_white_space[] =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"
    "\\x{3001}-\\x{10ffff}";

/* How many characters of a class lie before its first member: "[", "[^", "[]", "[^]". */
static size_t class_head(const char *at) {
    size_t n = at[1] == '^' ? 2 : 1;
    return n + (at[n] == ']');
}

static char *translate(const char *pattern) {
    char *made = NULL;
    size_t size;
    bool in_class = false;
    FILE *out = mem_stream(&made, &size);
    for (const char *at = pattern; *at != '\0';) {
        size_t n = at[0] == '\\' && at[1] != '\0' ? 2 : 1;
        if (n == 2 && (at[1] == 's' || at[1] == 'S')) {
            fprintf(out, in_class ? "%s" : "[%s]", at[1] == 's' ? white_space : no_white_space);
            at += n;
            continue;
        }
        if (*at == '[' && !in_class) {
            in_class = true;
            n = class_head(at);
        } else if (*at == '[' && at[1] == ':' && strstr(at, ":]") != NULL) {
            n = (size_t)(strstr(at, ":]") - at) + 2; /* [:alpha:] */
        } else if (*at == ']') {
            in_class = false;
        }
        fwrite(at, 1, n, out);
        at += n;
    }
    mem_stream_close(out);
    return made;
}

static int add_split(struct tokenizer *t, const char *pattern, bool is_literal, bool keeps_matches,
                     bool keeps_rest, struct err *err) {
    if (t->n_splits == TOKENIZER_MOST_SPLITS) {
        return err_world(err, "%s: more than %d splits are not supported", t->path,
                         TOKENIZER_MOST_SPLITS);
    }
    int code;
    PCRE2_SIZE at;
    char *translated = is_literal ? mem_text(pattern) : translate(pattern);
    uint32_t options = PCRE2_UTF | (is_literal ? PCRE2_LITERAL : PCRE2_UCP);
    pcre2_code *compiled =
        pcre2_compile((PCRE2_SPTR)translated, PCRE2_ZERO_TERMINATED, options, &code, &at, NULL);
    free(translated);
    if (compiled == NULL && code == PCRE2_ERROR_HEAP_FAILED) {
        mem_out(0);
    }
    if (compiled == NULL) {
        PCRE2_UCHAR reason[128];
        pcre2_get_error_message(code, reason, sizeof reason);
        return err_world(err, "%s: PCRE2 does not read the pattern '%.128s': %s", t->path, pattern,
                         (const char *)reason);
    }
    (void)pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE); /* only faster */
    t->splits[t->n_splits++] =
        (struct split){compiled, mem_given(pcre2_match_data_create_from_pattern(compiled, NULL)),
                       keeps_matches, keeps_rest};
    return 0;
}

static int read_split(struct tokenizer *t, const json_t *split, struct err *err) {
    const json_t *pattern = json_object_get(split, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    const char *literal = json_string_value(json_object_get(pattern, "String"));
    const char *behavior = json_string_value(json_object_get(split, "behavior"));
    bool inverts = is_true(split, "invert", false);
    static const char *const behaviors[] = {"Isolated", "Removed", NULL};
    int does = behavior != NULL ? name_find(behaviors, behavior) : -1;
    bool removes = does == 1;
    if (does < 0) {
        return err_world(err,
                         "%s: a split's behavior %.32s is not supported, Isolated and Removed are",
                         t->path, behavior != NULL ? behavior : "without a name");
    }
    if (regex == NULL && literal == NULL) {
        return err_world(err, "%s: a split has no pattern", t->path);
    }
    return add_split(t, regex != NULL ? regex : literal, regex == NULL, !removes || inverts,
                     !removes || !inverts, err);
}

/* One pre-tokenizer that is no sequence. */
static int read_pre_tokenizer(struct tokenizer *t, const json_t *pre, bool *is_byte_level,
                              struct err *err) {
    const char *type = type_of(pre);
    int kind = kind_of(pre);
    if (kind == KIND_SPLIT) {
        return read_split(t, pre, err);
    }
    if (kind == KIND_DIGITS) {
        return add_split(t, is_true(pre, "individual_digits", false) ? "\\p{N}" : "\\p{N}+", false,
                         true, true, err);
    }
    if (kind != KIND_BYTE_LEVEL) {
        return err_world(
            err,
            "%s: the pre-tokenizer %.32s is not supported; Split, Digits and ByteLevel "
            "are",
            t->path, type[0] != '\0' ? type : "without a type");
    }
    if (is_true(pre, "add_prefix_space", true)) {
        return err_world(err, "%s: add_prefix_space of ByteLevel is not supported", t->path);
    }
    *is_byte_level = true;
    return is_true(pre, "use_regex", true) ? add_split(t, byte_level_split, false, true, true, err)
                                           : 0;
}

static int read_pre_tokenizers(struct tokenizer *t, const json_t *pre, struct err *err) {
    bool is_byte_level = false, is_list = kind_of(pre) == KIND_SEQUENCE;
    const json_t *list = json_object_get(pre, "pretokenizers");
    size_t n = is_list ? json_array_size(list) : 1;
    int status = 0;
    for (size_t i = 0; status == 0 && i < n; i++) {
        status =
            read_pre_tokenizer(t, is_list ? json_array_get(list, i) : pre, &is_byte_level, err);
    }
    return status != 0 || is_byte_level
               ? status
               : err_world(err, "%s: only byte-level tokenizers are supported", t->path);
}

/* ---- post-processor and decoder ---- */

static int read_template(struct tokenizer *t, const json_t *processor, struct err *err) {
    const json_t *single = json_object_get(processor, "single");
    const json_t *known = json_object_get(processor, "special_tokens");
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *special = json_object_get(json_array_get(single, i), "SpecialToken");
        if (special == NULL) {
            return 0; /* the text; what follows would end it */
        }
        const char *name = json_string_value(json_object_get(special, "id"));
        const json_t *ids =
            name != NULL ? json_object_get(json_object_get(known, name), "ids") : NULL;
        for (size_t k = 0; k < json_array_size(ids); k++) {
            json_int_t id = json_integer_value(json_array_get(ids, k));
            if (id < 0 || id >= t->n_ids || t->n_beginning == TOKENIZER_MOST_BEGINNINGS) {
                return err_world(err, "%s: the post_processor's tokens are not understood",
                                 t->path);
            }
            t->beginning[t->n_beginning++] = (int32_t)id;
        }
    }
    return 0;
}

static int read_processor(struct tokenizer *t, const json_t *processor, struct err *err) {
    if (kind_of(processor) == KIND_TEMPLATE) {
        return read_template(t, processor, err);
    }
    const json_t *list = json_object_get(processor, "processors");
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (kind_of(json_array_get(list, i)) == KIND_TEMPLATE) {
            return read_template(t, json_array_get(list, i), err);
        }
    }
    return 0;
}

static int read_root(struct tokenizer *t, const json_t *root, struct err *err) {
    int status = read_model(t, root, err);
    status = status == 0 ? read_added(t, json_object_get(root, "added_tokens"), err) : status;
    status = status == 0 ? read_normalizer(t, json_object_get(root, "normalizer"), err) : status;
    status =
        status == 0 ? read_pre_tokenizers(t, json_object_get(root, "pre_tokenizer"), err) : status;
    status = status == 0 ? read_processor(t, json_object_get(root, "post_processor"), err) : status;
    const json_t *decoder = json_object_get(root, "decoder");
    return status != 0 || kind_of(decoder) == KIND_BYTE_LEVEL
               ? status
               : err_world(err, "%s: the decoder '%.32s' is not supported, ByteLevel is", t->path,
                           type_of(decoder));
}

/* Takes `root`, NULL where it could not be read. */
static int make(const char *path, json_t *root, const json_error_t *trouble, struct tokenizer **out,
                struct err *err) {
    if (!json_is_object(root)) {
        json_decref(root);
        return err_world(err, "%s: %s (line %d)", path,
                         root == NULL ? trouble->text : "this is no JSON object",
                         root == NULL ? trouble->line : 1);
    }
    struct tokenizer *t = mem_zeroed(1, sizeof *t);
    t->path = mem_text(path);
    int status = read_root(t, root, err);
    json_decref(root);
    if (status != 0) {
        tokenizer_close(t);
        return status;
    }
    *out = t;
    return 0;
}

int tokenizer_parse(const char *path, const char *text, size_t size, struct tokenizer **out,
                    struct err *err) {
    json_error_t trouble = {0};
    json_t *root = json_loadb(text, size, 0, &trouble);
    return make(path, root, &trouble, out, err);
}

int tokenizer_open(const char *folder, struct tokenizer **out, struct err *err) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/tokenizer.json", folder) >= (int)sizeof path) {
        return err_usage(err, "%.64s...: the folder's name is too long", folder);
    }
    if (access(path, F_OK) != 0 && tokenizer_pair_is_there(folder)) {
        json_t *root = tokenizer_pair_read(folder, err);
        return root != NULL ? make(folder, root, NULL, out, err) : err_status(err);
    }
    if (access(path, F_OK) != 0) {
        return err_usage(
            err,
            "%s has neither tokenizer.json nor vocab.json with merges.txt: text cannot "
            "be turned into its tokens",
            folder);
    }
    json_t *root = json_read(path, "tokenizer", 0, err);
    return root != NULL ? make(path, root, NULL, out, err) : err_status(err);
}
