#include "engine/weights/tokenizer_pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/input/text.h"
#include "sim/base/num.h"

enum { PATH_CHARS = 4096, MOST_MERGES_BYTES = 1 << 28 };

/* The splits of a class: transformers' tokenization_qwen2.py (PRETOKENIZE_REGEX, which Dream's own
 * tokenization_dream.py repeats) and tokenization_gpt2.py; NULL: ByteLevel's own, which is GPT-2's.
 */
static const struct {
    const char *class, *split;
    bool is_nfc;
} classes[] = {
    {"Qwen2Tokenizer",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     true},
    {"GPT2Tokenizer", NULL, false},
};

static bool has(const char *folder, const char *file, char path[PATH_CHARS]) {
    return snprintf(path, PATH_CHARS, "%s/%s", folder, file) < PATH_CHARS &&
           access(path, F_OK) == 0;
}

bool tokenizer_pair_is_there(const char *folder) {
    char path[PATH_CHARS];
    return has(folder, "vocab.json", path) && has(folder, "merges.txt", path);
}

/* "Qwen2Tokenizer", "Qwen2TokenizerFast" and "DreamTokenizer" split alike. */
static int find_class(const char *folder, const json_t *config, size_t *out, struct err *err) {
    const char *said = json_string_value(json_object_get(config, "tokenizer_class"));
    const char *class = said != NULL ? said : "";
    if (strcmp(class, "DreamTokenizer") == 0) {
        class = "Qwen2Tokenizer";
    }
    for (*out = 0; *out < sizeof classes / sizeof classes[0]; ++*out) {
        const size_t n = strlen(classes[*out].class);
        if (strncmp(class, classes[*out].class, n) == 0 &&
            (class[n] == '\0' || strcmp(class + n, "Fast") == 0)) {
            return 0;
        }
    }
    return err_usage(err,
                     "%s has no tokenizer.json, and vocab.json with merges.txt is read for the "
                     "classes Qwen2Tokenizer, DreamTokenizer and GPT2Tokenizer, not for %s: "
                     "transformers' AutoTokenizer with use_fast=True saves a tokenizer.json",
                     folder, said != NULL ? said : "a folder that names none");
}

/* The lines of merges.txt, but for its "#version" and empty ones. */
static json_t *read_merges(const char *path, struct err *err) {
    size_t size;
    char *text = text_read(path, "tokenizer", MOST_MERGES_BYTES, &size, err);
    if (text == NULL) {
        return NULL;
    }
    json_t *merges = json_array();
    char *rest = text, *line;
    for (size_t number = 1; (line = text_line(&rest, NULL)) != NULL; number++) {
        const bool is_head = number == 1 && strncmp(line, "#version", 8) == 0;
        if (line[0] != '\0' && !is_head && json_array_append_new(merges, json_string(line)) != 0) {
            err_world(err, "%s:%zu: found bytes that are not UTF-8", path, number);
            json_decref(merges);
            merges = NULL;
            break;
        }
    }
    free(text);
    return merges;
}

/* {"151643": {"content": "<|endoftext|>", ...}} as a list whose entries have their id. */
static json_t *added_tokens(const char *path, const json_t *config, struct err *err) {
    json_t *list = json_array(), *token;
    const char *id;
    json_object_foreach(json_object_get(config, "added_tokens_decoder"), id, token) {
        uint64_t number;
        if (!json_is_object(token) || !num_u64(id, UINT32_MAX, &number)) {
            err_world(err, "%s: added_tokens_decoder has '%s', expected an id and a token", path,
                      id);
            json_decref(list);
            return NULL;
        }
        json_t *entry = json_copy(token);
        json_object_set_new(entry, "id", json_integer((json_int_t)number));
        json_array_append_new(list, entry);
    }
    return list;
}

static json_t *pre_tokenizer(size_t class) {
    const bool is_own = classes[class].split == NULL;
    json_t *level = json_pack("{s:s, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                              "use_regex", (int)is_own);
    return is_own ? level
                  : json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, o]}", "type", "Sequence",
                              "pretokenizers", "type", "Split", "pattern", "Regex",
                              classes[class].split, "behavior", "Isolated", "invert", 0, level);
}

json_t *tokenizer_pair_read(const char *folder, struct err *err) {
    char config_path[PATH_CHARS], path[PATH_CHARS];
    size_t class = 0;
    json_t *config = NULL, *vocab = NULL, *merges = NULL, *added = NULL, *root = NULL;
    if (has(folder, "tokenizer_config.json", config_path)) {
        config = json_read(config_path, "tokenizer", 0, err);
    }
    if (err->kind == ERR_NONE && find_class(folder, config, &class, err) == 0) {
        added = added_tokens(config_path, config, err);
    }
    if (added != NULL && has(folder, "vocab.json", path)) {
        vocab = json_read(path, "tokenizer", 0, err);
    }
    if (vocab != NULL && has(folder, "merges.txt", path)) {
        merges = read_merges(path, err);
    }
    if (merges != NULL) {
        root = json_pack("{s:{s:s, s:O, s:O}, s:O, s:o, s:o, s:{s:s}}", "model", "type", "BPE",
                         "vocab", vocab, "merges", merges, "added_tokens", added, "normalizer",
                         classes[class].is_nfc ? json_pack("{s:s}", "type", "NFC") : json_null(),
                         "pre_tokenizer", pre_tokenizer(class), "decoder", "type", "ByteLevel");
    }
    json_decref(config);
    json_decref(vocab);
    json_decref(merges);
    json_decref(added);
    return root;
}
