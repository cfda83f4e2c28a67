/* Chat templates by name and by folder, and what counts as a right answer. */
#include "engine/text/answer.h"
#include "engine/text/chat.h"
#include "tests/support/scratch.h"

TEST(an_answer_is_what_stands_behind_the_last_mark) {
    static const struct {
        const char *text, *answer;
    } cases[] = {
        {"#### 42", "42"},
        {"so 3 * 4 = 12\n#### 12\n", "12"},
        {"#### 1\n#### 2", "2"},
        {"####5\nmore", "5"},
        {"####  1,234,567.", "1234567"},
        {"####\n Ruth \n", "Ruth"},
        {"#### #### 7 apples", "7 apples"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *answer = answer_of(cases[i].text);
        ck_assert_msg(answer != NULL, "%s", cases[i].text);
        ck_assert_str_eq(answer, cases[i].answer);
        free(answer);
    }
    static const char *const none[] = {"", "42", "### 42", "####", "#### ..", "#### \n "};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        ck_assert_msg(answer_of(none[i]) == NULL, "%s", none[i]);
        ck_assert(!answer_is_right(none[i], "42"));
    }
}

TEST(the_same_text_or_the_same_number_is_right) {
    static const char *const right[][2] = {{"#### 102.0", "102"},  {"#### 1,234", "1234"},
                                           {"#### 1234", "1,234"}, {"#### Ruth", "Ruth"},
                                           {"#### -0.50", "-.5"},  {"#### 1e3", "1000"},
                                           {"#### $7", "$7"}};
    static const char *const wrong[][2] = {
        {"#### 103", "102"}, {"#### ruth", "Ruth"},  {"#### 0x10", "16"}, {"#### inf", "infinity"},
        {"#### nan", "NaN"}, {"#### 7 apples", "7"}, {"42", "42"}};
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        ck_assert_msg(answer_is_right(right[i][0], right[i][1]), "%s", right[i][0]);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ck_assert_msg(!answer_is_right(wrong[i][0], wrong[i][1]), "%s", wrong[i][0]);
    }
}

static void check(const char *name, const char *folder, const char *message, const char *text) {
    const struct chat *chat;
    struct err err = {0};
    size_t n;
    ck_assert_int_eq(chat_find(name, &chat, &err), 0);
    char *made = chat_text(chat, folder, message, strlen(message), &n, &err);
    ck_assert_str_eq(made, text);
    ck_assert_uint_eq(n, strlen(text));
    free(made);
}

TEST(a_template_stands_around_the_message) {
    scratch_write("tokenizer_config.json", "{\"bos_token\": {\"content\": \"<|startoftext|>\"}}");
    check("none", NULL, " hi\n", " hi\n");
    check("qa", scratch_folder, "2 + 2?", "Q: 2 + 2?\nA:\n");
    check("llada", scratch_folder, " hi\n",
          "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"
          "<|start_header_id|>assistant<|end_header_id|>\n\n");
    check("llada", "/nowhere", "hi",
          "<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"
          "<|start_header_id|>assistant<|end_header_id|>\n\n");
    check("chatml", scratch_folder, "hi",
          "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    check("dream", scratch_folder, "hi",
          "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
          "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    check("ling", scratch_folder, "hi",
          "<role>SYSTEM</role>detailed thinking off<|role_end|><role>HUMAN</role>hi<|role_end|>"
          "<role>ASSISTANT</role>");
}

TEST(a_folders_template_is_recognised_or_refused) {
    static const struct {
        const char *config, *name; /* NULL: refused */
    } cases[] = {
        {"{}", "none"},
        {"{\"chat_template\": \"{{ '<|im_start|>' + message['role'] }}\"}", "chatml"},
        {"{\"chat_template\": \"<|im_start|>system\\nYou are a helpful assistant.\"}", "dream"},
        {"{\"chat_template\": \"<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You "
         "are a helpful assistant.\"}",
         "qwen2.5"},
        {"{\"chat_template\": \"'<role>HUMAN</role>' + message.content\"}", "ling"},
        {"{\"chat_template\": \"'<|start_header_id|>' + message['role']\"}", "llada"},
        {"{\"chat_template\": \"{{ 'Q: ' + message['content'] }}\"}", "qa"},
        {"{\"chat_template\": [{\"name\": \"tool\", \"template\": \"x\"}, {\"name\": \"default\", "
         "\"template\": \"<|im_start|>\"}]}",
         "chatml"},
        {"{\"chat_template\": \"[INST] {{ message }} [/INST]\"}", NULL},
        {"{\"chat_template\": [{\"name\": \"tool\", \"template\": \"<|im_start|>\"}]}", NULL},
        {"{\"chat_template\": 7}", NULL},
        {"{\"chat_template\": null}", "none"},
        /* The words of a known template around a system message of another. */
        {"{\"chat_template\": \"<|im_start|>system\\nYou are SmolLM, a small model.<|im_end|>\"}",
         NULL},
        {"{\"chat_template\": \"'<|im_start|>system\\\\nYou are Ling.<|im_end|>'\"}", NULL},
        {"{\"chat_template\": \"'<|im_start|>system\\\\n' + content\"}", "chatml"},
        {"{\"chat_template\": \"'<|start_header_id|>' Cutting Knowledge Date: December 2023\"}",
         NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct chat *chat = NULL;
        struct err err = {0};
        scratch_write("tokenizer_config.json", cases[i].config);
        int status = chat_of_folder(scratch_folder, &chat, &err);
        ck_assert_int_eq(status, cases[i].name != NULL ? 0 : ERR_USAGE);
        if (cases[i].name != NULL) {
            ck_assert_str_eq(chat->name, cases[i].name);
        }
    }
    const struct chat *chat;
    struct err err = {0};
    ck_assert_int_eq(chat_find("alpaca", &chat, &err), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "none, qwen2.5, dream, chatml, ling, llada, qa"));
}

/* Where transformers keeps a template of its own file, that one counts. */
TEST(a_template_in_a_file_of_its_own_comes_first) {
    const struct chat *chat = NULL;
    struct err err = {0};
    scratch_write("tokenizer_config.json", "{\"chat_template\": \"<|im_start|>\"}");
    scratch_write("chat_template.json", "{\"chat_template\": \"[INST]\"}");
    scratch_write("chat_template.jinja", "{{ 'Q: ' + message['content'] }}");
    ck_assert_int_eq(chat_of_folder(scratch_folder, &chat, &err), 0);
    ck_assert_str_eq(chat->name, "qa");
    scratch_write("chat_template.jinja", "[INST] {{ message }}");
    ck_assert_int_eq(chat_of_folder(scratch_folder, &chat, &err), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "chat_template.jinja: its chat template is not known"));
    ck_assert_int_eq(unlink(scratch_path("chat_template.jinja")), 0);
    err = (struct err){0};
    ck_assert_int_eq(chat_of_folder(scratch_folder, &chat, &err), 0);
    ck_assert_str_eq(chat->name, "chatml");
    scratch_write("tokenizer_config.json", "{}");
    ck_assert_int_eq(chat_of_folder(scratch_folder, &chat, &err), ERR_USAGE);
    scratch_write("tokenizer_config.json", "{");
    err = (struct err){0};
    ck_assert_int_eq(chat_of_folder(scratch_folder, &chat, &err), ERR_WORLD);
    scratch_write("tokenizer_config.json",
                  "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 7\n");
    err = (struct err){0};
    ck_assert_int_eq(chat_of_folder(scratch_folder, &chat, &err), ERR_WORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "is a Git LFS pointer"));
    ck_assert_int_eq(unlink(scratch_path("chat_template.json")), 0);
    ck_assert_int_eq(unlink(scratch_path("tokenizer_config.json")), 0);
    err = (struct err){0};
    ck_assert_int_eq(chat_of_folder(scratch_folder, &chat, &err), 0);
    ck_assert_str_eq(chat->name, "none");
}

SUITE("text")
