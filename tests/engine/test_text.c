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
    char *made = chat_text(chat, folder, message, strlen(message), &n);
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

SUITE("text")
