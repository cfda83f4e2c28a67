/* The tokenizer against Hugging Face's own, and what it says of files that it cannot use. */
#include <inttypes.h>
#include <jansson.h>

#include "engine/weights/tokenizer.h"
#include "sim/base/input/datadir.h"
#include "tests/support/archive.h"

static struct tokenizer *parse_file(const char *path) {
    struct err err = {0};
    struct tokenizer *tokenizer = NULL;
    char *text = scratch_read(path);
    ck_assert_msg(tokenizer_parse(path, text, strlen(text), &tokenizer, &err) == 0, "%s", err.text);
    free(text);
    return tokenizer;
}

static void check_ids(struct tokenizer *tokenizer, const json_t *row, const char *place) {
    struct err err = {0};
    struct token_ids got = {0};
    const json_t *text = json_object_get(row, "text"), *ids = json_object_get(row, "ids");
    int status =
        tokenizer_encode(tokenizer, json_string_value(text), json_string_length(text), &got, &err);
    ck_assert_msg(status == 0, "%s: %s", place, err.text);
    ck_assert_msg(got.n == json_array_size(ids), "%s: %zu ids, expected %zu", place, got.n,
                  json_array_size(ids));
    for (size_t i = 0; i < got.n; i++) {
        json_int_t id = json_integer_value(json_array_get(ids, i));
        ck_assert_msg(got.ids[i] == id, "%s: id %zu is %" PRId32 ", expected %lld", place, i,
                      got.ids[i], (long long)id);
    }
    free(got.ids);
}

static void check_text(const struct tokenizer *tokenizer, const json_t *row, const char *place) {
    struct token_ids ids = {0};
    const json_t *list = json_object_get(row, "decode");
    for (size_t i = 0; i < json_array_size(list); i++) {
        token_ids_add(&ids, (int32_t)json_integer_value(json_array_get(list, i)));
    }
    char *text = tokenizer_decode(tokenizer, ids.ids, ids.n, false, NULL);
    const char *wanted = json_string_value(json_object_get(row, "text"));
    ck_assert_msg(strcmp(text, wanted) == 0, "%s: '%s', expected '%s'", place, text, wanted);
    free(text);
    free(ids.ids);
}

static size_t compare(const char *tokenizer_path, const char *golden_path) {
    struct tokenizer *tokenizer = parse_file(tokenizer_path);
    FILE *file = fopen(golden_path, "r");
    ck_assert_msg(file != NULL, "%s", golden_path);
    char *line = NULL;
    size_t room = 0, n = 0;
    while (getline(&line, &room, file) > 0) {
        char place[4200];
        snprintf(place, sizeof place, "%s:%zu", golden_path, ++n);
        json_t *row = json_loads(line, 0, NULL);
        ck_assert_msg(row != NULL, "%s", place);
        if (json_object_get(row, "decode") != NULL) {
            check_text(tokenizer, row, place);
        } else {
            check_ids(tokenizer, row, place);
        }
        json_decref(row);
    }
    free(line);
    fclose(file);
    tokenizer_close(tokenizer);
    return n;
}

#define KEPT "tests/golden/tokenizers.tar.gz"

static struct tokenizer *kept_as(const char *name) {
    return parse_file(archive_file(KEPT, name));
}

TEST(ids_and_texts_are_those_of_hugging_face) {
    static const char *const names[] = {"qwen2", "llama3", "ling", "digits"};
    char path[4096];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char name[32], answers[40];
        snprintf(name, sizeof name, "%s.json", names[i]);
        snprintf(answers, sizeof answers, "%sl", name);
        ck_assert_uint_gt(compare(archive_file(KEPT, name), archive_file(KEPT, answers)), 100);
    }
    data_path(path, sizeof path, "experiments/train/models/sdar-2m/tokenizer.json");
    ck_assert_uint_gt(compare(path, archive_file(KEPT, "ours.jsonl")), 100);
}

TEST(a_tokenizer_that_is_not_shipped_can_be_named) {
    const char *path = getenv("TOKENIZER"), *golden = getenv("GOLDEN");
    if (path != NULL && golden != NULL) {
        printf("%s: %zu lines\n", golden, compare(path, golden));
    }
}

static struct tokenizer *shipped(void) {
    char path[4096];
    data_path(path, sizeof path, "experiments/train/models/sdar-2m/tokenizer.json");
    return parse_file(path);
}

TEST(a_beginning_stands_in_front_where_the_file_says_so) {
    struct tokenizer *with = kept_as("llama3.json");
    struct tokenizer *without = kept_as("qwen2.json");
    struct token_ids ids = {0};
    tokenizer_begin(without, &ids);
    ck_assert_uint_eq(ids.n, 0);
    tokenizer_begin(with, &ids);
    ck_assert_uint_eq(ids.n, 1);
    ck_assert_int_eq(ids.ids[0], tokenizer_find(with, "<|im_start|>"));
    ck_assert_int_eq(tokenizer_find(with, "<|nobody|>"), -1);
    ck_assert(tokenizer_is_special(with, ids.ids[0]) && !tokenizer_is_special(with, 5));
    free(ids.ids);
    tokenizer_close(with);
    tokenizer_close(without);
}

/* Long words meet the heap's bounds and the time that a merge takes. */
TEST(a_word_of_a_million_letters_is_merged_at_once) {
    enum { N = 1000000 };
    struct tokenizer *t = shipped();
    struct token_ids ids = {0};
    struct err err = {0};
    char *text = malloc(N);
    for (size_t i = 0; i < N; i++) {
        text[i] = "thereandthen"[i * 7 % 12];
    }
    ck_assert_int_eq(tokenizer_encode(t, text, N, &ids, &err), 0);
    size_t n = 0;
    for (size_t i = 0; i < ids.n; i++) {
        size_t length;
        const char *bytes = tokenizer_bytes(t, ids.ids[i], &length);
        ck_assert_int_eq(memcmp(bytes, text + n, length), 0);
        n += length;
    }
    ck_assert_uint_eq(n, N);
    ck_assert_uint_lt(ids.n, N);
    free(text);
    free(ids.ids);
    tokenizer_close(t);
}

TEST(text_that_is_not_utf_8_is_refused_with_its_place) {
    static const char *const bad[] = {"abc\xff",  "\xc3",     "a\xed\xa0\x80",
                                      "\xc0\x80", "\xf5\x80", "x\xe2\x82"};
    static const char *const byte[] = {"byte 3", "byte 0", "byte 1", "byte 0", "byte 0", "byte 1"};
    struct tokenizer *t = shipped();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct token_ids ids = {0};
        struct err err = {0};
        ck_assert_int_eq(tokenizer_encode(t, bad[i], strlen(bad[i]), &ids, &err), ERR_USAGE);
        ck_assert_msg(strstr(err.text, byte[i]) != NULL, "%s", err.text);
        ck_assert_uint_eq(ids.n, 0);
        free(ids.ids);
    }
    tokenizer_close(t);
}

TEST(ids_beyond_the_models_vocabulary_do_not_fit) {
    struct tokenizer *t = shipped();
    struct err err = {0};
    ck_assert_uint_eq(tokenizer_n_ids(t), 2048);
    ck_assert_int_eq(tokenizer_check_fits(t, "a model", 2048, &err), 0);
    ck_assert_int_eq(tokenizer_check_fits(t, "a model", 2047, &err), ERR_USAGE);
    ck_assert(strstr(err.text, "a model") != NULL && strstr(err.text, "2047") != NULL);
    size_t n = 1;
    ck_assert(tokenizer_bytes(t, 2048, &n) == NULL && n == 0);
    ck_assert(tokenizer_bytes(t, -1, &n) == NULL && n == 0);
    tokenizer_close(t);
}

TEST(a_folder_without_a_tokenizer_is_named) {
    struct tokenizer *t = NULL;
    struct err err = {0};
    ck_assert_int_eq(tokenizer_open(scratch_folder, &t, &err), ERR_USAGE);
    ck_assert(t == NULL && strstr(err.text, scratch_folder) != NULL);
}

/* vocab.json, merges.txt and tokenizer_config.json of a tokenizer.json, as a slow class saves them.
 */
static void write_pair(const json_t *root, const char *class) {
    const json_t *model = json_object_get(root, "model");
    ck_assert_int_eq(json_dump_file(json_object_get(model, "vocab"), scratch_path("vocab.json"), 0),
                     0);
    FILE *merges = fopen(scratch_path("merges.txt"), "w");
    fprintf(merges, "#version: 0.2\n");
    size_t i;
    json_t *merge, *added, *decoder = json_object();
    json_array_foreach(json_object_get(model, "merges"), i, merge) {
        if (json_is_string(merge)) {
            fprintf(merges, "%s\n", json_string_value(merge));
        } else {
            fprintf(merges, "%s %s\n", json_string_value(json_array_get(merge, 0)),
                    json_string_value(json_array_get(merge, 1)));
        }
    }
    fclose(merges);
    json_array_foreach(json_object_get(root, "added_tokens"), i, added) {
        char id[32];
        json_t *entry = json_copy(added);
        snprintf(id, sizeof id, "%d", (int)json_integer_value(json_object_get(added, "id")));
        json_object_del(entry, "id");
        json_object_set_new(decoder, id, entry);
    }
    json_t *config =
        json_pack("{s:s, s:o}", "tokenizer_class", class, "added_tokens_decoder", decoder);
    ck_assert_int_eq(json_dump_file(config, scratch_path("tokenizer_config.json"), 0), 0);
    json_decref(config);
}

/* The shipped tokenizer has the splits of Qwen2's class, as Dream's has. */
TEST(a_vocabulary_with_merges_is_the_same_tokenizer) {
    static const char *const classes[] = {"DreamTokenizer", "Qwen2Tokenizer", "Qwen2TokenizerFast"};
    static const char *const texts[] = {"Tom has 3 boxes of 12 pens.\n\n  How many?",
                                        "It's a na\u00efve <|endoftext|> test\t1234 <|mask|>x", " ",
                                        "\r\n\r\na  b   c\u4e2d\u6587 don't 'RE"};
    char path[4096];
    struct err err = {0};
    struct tokenizer *whole = shipped();
    json_t *root = json_load_file(
        data_path(path, sizeof path, "experiments/train/models/sdar-2m/tokenizer.json"), 0, NULL);
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        struct tokenizer *pair = NULL;
        write_pair(root, classes[i]);
        ck_assert_msg(tokenizer_open(scratch_folder, &pair, &err) == 0, "%s", err.text);
        ck_assert_uint_eq(tokenizer_n_ids(pair), tokenizer_n_ids(whole));
        for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++) {
            struct token_ids a = {0}, b = {0};
            ck_assert_int_eq(tokenizer_encode(whole, texts[t], strlen(texts[t]), &a, &err), 0);
            ck_assert_int_eq(tokenizer_encode(pair, texts[t], strlen(texts[t]), &b, &err), 0);
            ck_assert_uint_eq(a.n, b.n);
            ck_assert_mem_eq(a.ids, b.ids, a.n * sizeof *a.ids);
            free(a.ids);
            free(b.ids);
        }
        tokenizer_close(pair);
    }
    struct tokenizer *none = NULL;
    write_pair(root, "LlamaTokenizer");
    ck_assert_int_eq(tokenizer_open(scratch_folder, &none, &err), ERR_USAGE);
    ck_assert_msg(strstr(err.text, "not for LlamaTokenizer") != NULL, "%s", err.text);
    ck_assert_int_eq(unlink(scratch_path("tokenizer_config.json")), 0);
    err = (struct err){0};
    ck_assert_int_eq(tokenizer_open(scratch_folder, &none, &err), ERR_USAGE);
    scratch_write("tokenizer_config.json", "{\"tokenizer_class\": \"GPT2Tokenizer\", "
                                           "\"added_tokens_decoder\": {\"x\": {}}}");
    err = (struct err){0};
    ck_assert_int_eq(tokenizer_open(scratch_folder, &none, &err), ERR_WORLD);
    ck_assert_msg(strstr(err.text, "'x'") != NULL, "%s", err.text);
    json_decref(root);
    tokenizer_close(whole);
}

#define MODEL "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, "
#define LEVEL "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}"
#define REST  ", \"pre_tokenizer\": " LEVEL ", \"decoder\": {\"type\": \"ByteLevel\"}}"

TEST(what_is_not_supported_is_said_in_one_sentence) {
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "line"},
        {"[]", "object"},
        {"{}", "BPE"},
        {"{\"model\": {\"type\": \"WordPiece\"}}", "WordPiece"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {}}}", "vocabulary"},
        {"{\"model\": {\"type\": \"BPE\", \"byte_fallback\": true}}", "byte_fallback"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -1}}}", "'a'"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 4194304}}}", "'a'"},
        {"{" MODEL "\"merges\": 7}" REST, "merges"},
        {"{" MODEL "\"merges\": [\"a b\", \"ab\"]}" REST, "number 2"},
        {"{" MODEL "\"merges\": [[\"a\", \"c\"]]}" REST, "number 1"},
        {"{" MODEL "\"merges\": []}, \"added_tokens\": [{\"id\": 3}]" REST, "content"},
        {"{" MODEL "\"merges\": []}, \"added_tokens\": [{\"id\": 3, \"content\": \"<x>\", "
         "\"single_word\": true}]" REST,
         "single_word"},
        {"{" MODEL "\"merges\": []}, \"normalizer\": {\"type\": \"NFKC\"}" REST, "NFKC"},
        {"{" MODEL "\"merges\": []}, \"pre_tokenizer\": {\"type\": \"Metaspace\"}}", "Metaspace"},
        {"{" MODEL "\"merges\": []}, \"pre_tokenizer\": {\"type\": \"ByteLevel\"}}",
         "add_prefix_space"},
        {"{" MODEL "\"merges\": []}, \"pre_tokenizer\": {\"type\": \"Digits\"}}", "byte-level"},
        {"{" MODEL "\"merges\": []}, \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": "
         "{\"Regex\": \"(\"}, \"behavior\": \"Isolated\"}}",
         "PCRE2"},
        {"{" MODEL "\"merges\": []}, \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": "
         "{\"Regex\": \"a\"}, \"behavior\": \"MergedWithNext\"}}",
         "MergedWithNext"},
        {"{" MODEL "\"merges\": []}, \"pre_tokenizer\": " LEVEL
         ", \"decoder\": {\"type\": \"Fuse\"}}",
         "Fuse"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tokenizer *t = NULL;
        struct err err = {0};
        int status = tokenizer_parse("x.json", bad[i].text, strlen(bad[i].text), &t, &err);
        ck_assert_msg(status == ERR_WORLD && t == NULL, "%s", bad[i].text);
        ck_assert_msg(strncmp(err.text, "x.json: ", 8) == 0, "%s", err.text);
        ck_assert_msg(strstr(err.text, bad[i].says) != NULL, "%s: %s", bad[i].text, err.text);
    }
}

TEST(a_byte_that_the_vocabulary_lacks_is_named) {
    static const char text[] = "{" MODEL "\"merges\": [\"a b\"]}" REST;
    struct tokenizer *t = NULL;
    struct token_ids ids = {0};
    struct err err = {0};
    ck_assert_int_eq(tokenizer_parse("x.json", text, strlen(text), &t, &err), 0);
    ck_assert_int_eq(tokenizer_encode(t, "abba", 4, &ids, &err), 0);
    ck_assert_uint_eq(ids.n, 3);
    ck_assert_int_eq(ids.ids[0], 2);
    ck_assert_int_eq(tokenizer_encode(t, "c", 1, &ids, &err), ERR_USAGE);
    ck_assert(strstr(err.text, "0x63") != NULL);
    free(ids.ids);
    tokenizer_close(t);
}

/* U+180E, which PCRE2's \\s takes in and Unicode's white space does not, is part of a word; a space
 * is none. */
TEST(white_space_is_unicodes) {
    static const char text[] =
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"\u00e1\": 1, \"\u0142\": 2, "
        "\"\u0130\": 3, \"a\u00e1\": 4, \"\u0120\": 5, \"a\u0120\": 6}, \"merges\": [\"a \u00e1\", "
        "\"a \u0120\"]}, \"pre_tokenizer\": {\"type\": "
        "\"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": "
        "\"%s\"}, \"behavior\": \"Isolated\"}, {\"type\": \"ByteLevel\", "
        "\"add_prefix_space\": false, \"use_regex\": false}]}, \"decoder\": {\"type\": "
        "\"ByteLevel\"}}";
    static const char *const patterns[] = {
        "\\\\S+",       "\\\\s",      "[^\\\\s]+",           "[\\\\s]",
        "[^\\\\S]",     "[]\\\\s]",   "[^]\\\\s]+",          "[[:digit:]\\\\s]",
        "[\\\\[\\\\s]", "[x]|\\\\S+", "[^x[:alpha:]]?\\\\S+"};
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        struct tokenizer *t = NULL;
        struct token_ids ids = {0};
        struct err err = {0};
        char made[sizeof text + 32];
        snprintf(made, sizeof made, text, patterns[i]);
        ck_assert_msg(tokenizer_parse("x.json", made, strlen(made), &t, &err) == 0, "%s", err.text);
        ck_assert_int_eq(tokenizer_encode(t, "a\u180e", 4, &ids, &err), 0);
        ck_assert_uint_eq(ids.n, 3);
        ck_assert(ids.ids[0] == 4 && ids.ids[1] == 2 && ids.ids[2] == 3);
        ids.n = 0;
        ck_assert_int_eq(tokenizer_encode(t, "a a", 3, &ids, &err), 0);
        ck_assert_msg(ids.n == 3 && ids.ids[0] == 0 && ids.ids[1] == 5, "%s", patterns[i]);
        free(ids.ids);
        tokenizer_close(t);
    }
}

/* "ab" comes before "xa", but its b has gone into "bc" before its turn. */
TEST(a_merge_whose_pair_is_gone_does_not_happen) {
    static const char text[] =
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"x\": 3, "
        "\"bc\": 4, \"ab\": 5, \"xa\": 6, \"abc\": 7}, \"merges\": [\"b c\", \"a b\", \"x a\", "
        "\"a bc\"]}" REST;
    static const struct {
        const char *word;
        int32_t ids[2];
    } cases[] = {{"xabc", {6, 4}}, {"abca", {7, 0}}, {"xaab", {6, 5}}};
    struct tokenizer *t = NULL;
    struct err err = {0};
    ck_assert_msg(tokenizer_parse("x.json", text, strlen(text), &t, &err) == 0, "%s", err.text);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct token_ids ids = {0};
        ck_assert_int_eq(tokenizer_encode(t, cases[i].word, 4, &ids, &err), 0);
        ck_assert_uint_eq(ids.n, 2);
        ck_assert_int_eq(ids.ids[0], cases[i].ids[0]);
        ck_assert_int_eq(ids.ids[1], cases[i].ids[1]);
        free(ids.ids);
    }
    tokenizer_close(t);
}

SUITE("tokenizer")
