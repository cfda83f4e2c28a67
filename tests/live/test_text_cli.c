/* Text in, text out on the command line, with random weights and tokenizers of their own. */
#include <errno.h>
#include <jansson.h>
#include <sys/stat.h>

#include "tests/support/archive.h"
#include "tests/support/cli.h"
#include "tests/support/outputs.h"

#define SMALL                                                                                      \
    "--model", "llada-tiny", "--backend", "cpu", "--set", "block_tokens=4", "--set",               \
        "steps_per_block=2", "--set", "reserve_bytes=16MiB", "--set", "memory_utilization=0.04",   \
        "--set", "max_batched_tokens=512"
#define RUN "run", SMALL, "--roofline", "--clock", "virtual"

#define TOKENIZERS "tests/golden/tokenizers.tar.gz"

/* A tokenizer.json in a folder of its own. */
static const char *folder_of(const char *name) {
    static char folder[512];
    char file[64], copy[600];
    snprintf(folder, sizeof folder, "%s/%s", scratch_folder, name);
    snprintf(file, sizeof file, "%s.json", name);
    snprintf(copy, sizeof copy, "%s/tokenizer.json", folder);
    ck_assert(mkdir(folder, 0777) == 0 || errno == EEXIST);
    archive_extract(TOKENIZERS, file, copy);
    return folder;
}

/* Whose tokens from 256 on, nearly all that random weights say, answer 7. */
static const char *sevens(void) {
    const char *folder = folder_of("qwen2");
    char path[600];
    json_t *root = json_load_file(archive_file(TOKENIZERS, "qwen2.json"), 0, NULL);
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    const char *key;
    json_t *id, *bytes = json_object();
    json_object_foreach(vocab, key, id) {
        char text[64];
        snprintf(text, sizeof text,
                 "####\xc4\xa0"
                 "7\xc4\x8a%d",
                 (int)json_integer_value(id));
        json_object_set(bytes, json_integer_value(id) < 256 ? key : text, id);
    }
    for (int i = (int)json_object_size(bytes); i < 1024; i++) {
        char text[64];
        snprintf(text, sizeof text,
                 "####\xc4\xa0"
                 "7\xc4\x8a%d",
                 i);
        json_object_set_new(bytes, text, json_integer(i));
    }
    json_object_set_new(json_object_get(root, "model"), "vocab", bytes);
    json_object_set_new(json_object_get(root, "model"), "merges", json_array());
    json_object_set_new(root, "added_tokens", json_array());
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    ck_assert_int_eq(json_dump_file(root, path, 0), 0);
    json_decref(root);
    return folder;
}

static double number(const json_t *object, const char *outer, const char *key) {
    const json_t *value = json_object_get(json_object_get(object, outer), key);
    ck_assert_msg(json_is_number(value), "%s.%s", outer, key);
    return json_number_value(value);
}

TEST(a_text_is_answered_with_a_text) {
    const char *folder = folder_of("llama3");
    char *text = PRINTS("generate", SMALL, "--tokenizer", folder, "--text", "it's 12 * 3", "--chat",
                        "none", "--output-tokens", "8");
    ck_assert_int_eq(strchr(text, '\0')[-1], '\n');
    json_t *object =
        json_parsed(PRINTS("generate", SMALL, "--tokenizer", folder, "--text", "it's 12 * 3",
                           "--chat", "none", "--output-tokens", "8", "--json"));
    const char *said = json_string_value(json_object_get(object, "text"));
    ck_assert(strncmp(text, said, strlen(said)) == 0 && strcmp(text + strlen(said), "\n") == 0);
    ck_assert_uint_eq(json_array_size(json_object_get(object, "output")), 8);
    /* The same as its ids, which the golden files hold against Hugging Face's; one more in front.
     */
    json_t *longer =
        json_parsed(PRINTS("generate", SMALL, "--tokenizer", folder, "--text", "it's 12 * 3",
                           "--chat", "qa", "--output-tokens", "8", "--json"));
    ck_assert_str_eq(json_string_value(json_object_get(longer, "chat")), "qa");
    ck_assert_int_gt(json_integer_value(json_object_get(longer, "prompt_tokens")),
                     json_integer_value(json_object_get(object, "prompt_tokens")));
    json_decref(longer);
    json_decref(object);
    free(text);
}

static const char prompts[] =
    "{\"id\": \"a\", \"task\": \"x\", \"prompt\": \"Q: 3 + 4?\", \"answer\": \"7\", "
    "\"output_tokens\": 8}\n"
    "{\"id\": \"b\", \"prompt\": \"Q: 3 + 5?\", \"answer\": \"8\", \"output_tokens\": 8}\n"
    "{\"id\": \"c\", \"prompt\": \"nothing\", \"output_tokens\": 8}\n"
    "{\"id\": \"d\", \"ids\": [300, 301, 302], \"answer\": 7.0, \"output_tokens\": 5}\n";

TEST(prompts_of_a_file_are_judged) {
    const char *folder = sevens(), *file = scratch_write("p.jsonl", prompts);
    const char *outputs = scratch_path("outputs.jsonl");
    json_t *object = json_parsed(PRINTS("generate", SMALL, "--tokenizer", folder, "--prompts", file,
                                        "--outputs", outputs, "--json"));
    json_t *list = json_object_get(object, "prompts");
    ck_assert_uint_eq(json_array_size(list), 4);
    static const char *const ids[] = {"a", "b", "c", "d"};
    for (size_t i = 0; i < 4; i++) {
        json_t *one = json_array_get(list, i), *right = json_object_get(one, "right");
        ck_assert_str_eq(json_string_value(json_object_get(one, "id")), ids[i]);
        ck_assert_uint_eq(json_array_size(json_object_get(one, "output")), i == 3 ? 5 : 8);
        ck_assert(i == 2 ? right == NULL : json_is_true(right) == (i != 1));
    }
    ck_assert(number(object, "quality", "judged") == 3 && number(object, "quality", "right") == 2);
    ck_assert_str_eq(
        json_string_value(json_object_get(json_object_get(object, "quality"), "marks")), "10-1");
    json_decref(object);
    char *text = PRINTS("generate", SMALL, "--tokenizer", folder, "--prompts", file);
    ck_assert_ptr_nonnull(strstr(text, "== a: right (7)\n"));
    ck_assert_ptr_nonnull(strstr(text, "== b: wrong (8)\n"));
    ck_assert_ptr_nonnull(strstr(text, "== c\n"));
    ck_assert_ptr_nonnull(strstr(text, "right        2 of 3 = 66.7 % (20.8 to 93.9)"));
    free(text);
    /* Agreement with what was written. */
    object = json_parsed(PRINTS("generate", SMALL, "--tokenizer", folder, "--prompts", file,
                                "--reference", outputs, "--json"));
    ck_assert(number(object, "quality", "compared") == 4);
    ck_assert(number(object, "quality", "agreement") == 1);
    json_decref(object);
    const char *other = scratch_write("other.jsonl", "{\"number\": 0, \"output\": [1]}\n"
                                                     "{\"number\": 9, \"output\": [1]}\n");
    object = json_parsed(PRINTS("generate", SMALL, "--tokenizer", folder, "--prompts", file,
                                "--reference", other, "--json"));
    ck_assert(number(object, "quality", "compared") == 1);
    ck_assert(number(object, "quality", "agreement") == 0);
    json_decref(object);
    other = scratch_write("other.jsonl", "{\"number\": 0, \"id\": \"z\", \"output\": [1]}\n");
    char sentence[700];
    snprintf(sentence, sizeof sentence,
             "%s:1: this is an output of the prompt 'z', number 0 here is 'a'", other);
    REFUSES(2, sentence, "generate", SMALL, "--tokenizer", folder, "--prompts", file, "--reference",
            other);
}

TEST(a_prompt_of_one_token_has_a_reference_too) {
    const char *file = scratch_write("one.jsonl", "{\"ids\": [300], \"output_tokens\": 3}\n");
    const char *said = scratch_write("said.jsonl", "{\"number\": 0, \"output\": [1]}\n");
    json_t *object =
        json_parsed(PRINTS("generate", SMALL, "--prompts", file, "--reference", said, "--json"));
    ck_assert(number(object, "quality", "compared") == 1);
    json_decref(object);
}

TEST(a_workload_of_prompts_is_served_and_judged) {
    const char *folder = sevens(), *file = scratch_write("p.jsonl", prompts);
    const char *outputs = scratch_path("o.jsonl");
    json_t *object = json_parsed(PRINTS(RUN, "--tokenizer", folder, "--workload", file,
                                        "--output-tokens", "16", "--outputs", outputs, "--json"));
    ck_assert_int_eq(json_integer_value(json_object_get(object, "completed")), 4);
    ck_assert(number(object, "quality", "served") == 4 && number(object, "quality", "right") == 2);
    ck_assert(number(object, "quality", "tokens_run_per_right") ==
              json_number_value(json_object_get(object, "tokens_processed")) / 2);
    ck_assert(number(object, "quality", "answer_tok_s") > 0);
    json_decref(object);
    /* Another order of the same prompts, and their answers again. */
    object = json_parsed(PRINTS(RUN, "--tokenizer", folder, "--workload", file, "--output-tokens",
                                "16", "--arrivals", "poisson", "--rate", "1000", "--requests", "9",
                                "--reference", outputs, "--set", "decoder=threshold", "--json"));
    ck_assert(number(object, "quality", "served") == 9 && number(object, "quality", "right") == 5);
    ck_assert(number(object, "quality", "compared") == 9);
    json_decref(object);
    char *text = PRINTS(RUN, "--tokenizer", folder, "--workload", file, "--output-tokens", "16");
    ck_assert_ptr_nonnull(strstr(text, "\nright        2 of 3 = 66.7 % (20.8 to 93.9)"));
    free(text);
    /* Simulated, they are lengths. */
    text = PRINTS("run", "--tokenizer", folder, "--workload", file, "--roofline", "--json");
    ck_assert_ptr_nonnull(strstr(text, "\"completed\": 4,"));
    ck_assert_ptr_null(strstr(text, "\"quality\""));
    free(text);
}

/* compare has the pairs of prompts, a sweep its columns, a study the fields of quality. */
TEST(right_answers_stand_side_by_side) {
    const char *folder = sevens(), *file = scratch_write("p.jsonl", prompts);
    const char *outputs = scratch_path("o.jsonl");
#define TEXTS "--tokenizer", folder, "--clock", "virtual"
#define ASKED SMALL, TEXTS, "--roofline", "--workload", file, "--output-tokens", "8"
    free(PRINTS("run", ASKED, "--system", "vanilla", "--outputs", outputs));
    json_t *both = json_parsed(PRINTS("compare", "--systems", "vanilla,dllm-serve", ASKED,
                                      "--reference", outputs, "--json"));
    ck_assert_uint_eq(json_array_size(both), 2);
    for (size_t i = 0; i < 2; i++) {
        json_t *one = json_array_get(both, i);
        ck_assert(number(one, "quality", "right") == 2 && number(one, "quality", "compared") == 4);
        ck_assert(number(one, "mcnemar", "pairs") == 3 && number(one, "mcnemar", "p") == 1);
        ck_assert(i == 1 || number(one, "quality", "agreement") == 1);
    }
    json_decref(both);
    char *text = PRINTS("compare", "--systems", "vanilla,dllm-serve", ASKED, "--seeds", "2");
    ck_assert_ptr_nonnull(strstr(text, "\nright answers, 95 % intervals"));
    ck_assert_ptr_nonnull(strstr(text, "66.7 (30.0 to 90.3)")); /* 4 of 6 */
    free(text);
    char ini[1024];
    snprintf(ini, sizeof ini,
             "[sweep]\nsystems = vanilla\nmodels = llada-tiny\nworkloads = %s\n"
             "output_tokens = 8\nset.block_tokens = 4, 8\nset.memory_utilization = 0.04\n"
             "set.reserve_bytes = 16MiB\n",
             file);
    text = PRINTS("sweep", scratch_write("s.ini", ini), "--backend", "cpu", TEXTS);
    ck_assert_ptr_nonnull(strstr(text, "right_%  agree_%"));
    ck_assert_ptr_nonnull(strstr(text, "66.7"));
    free(text);
    snprintf(ini, sizeof ini,
             "[figure]\ntitle = x\nkind = table\n"
             "query = SELECT system AS x, quality_accuracy AS y, quality_accuracy_low AS low, "
             "quality_accuracy_high AS high FROM run\n[run]\nsystem = vanilla\ngpu = cpu\n"
             "backend = cpu\nmodel = llada-tiny\nworkload = %s\ntokenizer = %s\n"
             "output_tokens = 8\nset block_tokens = 4\nset memory_utilization = 0.04\n"
             "set reserve_bytes = 16MiB\n",
             file, folder);
    free(PRINTS("figure", scratch_write("quality.ini", ini), "--out", scratch_folder));
    text = scratch_read(scratch_path("quality.csv"));
    ck_assert_msg(strstr(text, "vanilla,0.6666666") != NULL, "%s", text);
    free(text);
#undef ASKED
#undef TEXTS
}

/* A tokenizer of bytes that lacks one of them. */
TEST(text_that_cannot_be_encoded_is_told_by_its_byte) {
    char command[2048], sentence[1024];
    snprintf(command, sizeof command,
             "mkdir -p %s/lacking && cp experiments/train/models/sdar-2m/* %s/lacking && sed "
             "'s/\"^\": 61,/\"^^\": 61,/' experiments/train/models/sdar-2m/tokenizer.json "
             ">%s/lacking/tokenizer.json",
             scratch_folder, scratch_folder, scratch_folder);
    ck_assert_int_eq(system(command), 0);
    snprintf(sentence, sizeof sentence,
             "--text: the vocabulary of %s/lacking/tokenizer.json has no token for the byte 0x5e",
             scratch_folder);
    REFUSES(2, sentence, "generate", "--backend", "cpu", "--weights", scratch_path("lacking"),
            "--text", "2^3");
}

TEST(bad_input_is_told_in_one_sentence) {
    const char *folder = folder_of("ling");
    char sentence[1024];
#define GENERATE "generate", SMALL, "--tokenizer", folder
    REFUSES(2, "'ab?': found what is no UTF-8, expected UTF-8 on one line", GENERATE, "--text",
            "ab\xff");
    REFUSES(2,
            "--text: 1 tokens of prompt and 5000 of output do not run: rejected for context "
            "(4096 tokens of context)",
            GENERATE, "--text", "a", "--output-tokens", "5000");
    REFUSES(2,
            "--text: a text needs a tokenizer: the folder of --weights has one, or --tokenizer "
            "FOLDER names one",
            "generate", SMALL, "--text", "a");
    snprintf(sentence, sizeof sentence,
             "%s has no tokenizer.json: text cannot be turned into its tokens", scratch_folder);
    REFUSES(2, sentence, "generate", SMALL, "--tokenizer", scratch_folder, "--text", "a");
    const char *broken = scratch_write("broken.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": 1}\n");
    snprintf(sentence, sizeof sentence, "%s:2: found no text in 'prompt', expected a text", broken);
    REFUSES(2, sentence, GENERATE, "--prompts", broken);
    REFUSES(2, sentence, RUN, "--tokenizer", folder, "--workload", broken);
    const char *beyond = scratch_write("beyond.jsonl", "{\"ids\": [1, 1024]}\n");
    snprintf(sentence, sizeof sentence,
             "%s:1: '1024' is no token of llada-tiny, whose ids are 0 to 1023", beyond);
    REFUSES(2, sentence, GENERATE, "--prompts", beyond);
    REFUSES(2, sentence, RUN, "--workload", beyond);
    REFUSES(
        2,
        "experiments/train/models/sdar-2m/tokenizer.json does not fit llada-tiny: its ids reach "
        "2047, the model's vocabulary ends at 1023",
        "generate", SMALL, "--tokenizer", "experiments/train/models/sdar-2m", "--text", "a");
    REFUSES(2, "--outputs is for the back ends cpu and cuda", "run", "--outputs", broken);
    REFUSES(2, "--reference is for workloads whose trace is a file of prompts", RUN, "--reference",
            broken, "--requests", "1", "--input-tokens", "4", "--output-tokens", "4");
    const char *some = scratch_write("some.jsonl", "{\"prompt\": \"a\"}\n");
    snprintf(sentence, sizeof sentence,
             "%s:1: found no 'number' and 'output', expected a line of --outputs", some);
    REFUSES(2, sentence, GENERATE, "--prompts", some, "--reference", some);
#undef GENERATE
}

SUITE("text_cli")
