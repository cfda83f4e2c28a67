#include "engine/text/chat.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/input/text.h"
#include "sim/base/mem.h"

#define IM(role, text) "<|im_start|>" role "\n" text "<|im_end|>\n"
#define IM_USER        "<|im_start|>user\n"
#define IM_ANSWER      "<|im_end|>\n<|im_start|>assistant\n"

const struct chat chat_table[] = {
    {"none", "the text alone", NULL, NULL, "", "", false, false},
    {"qwen2.5", "Qwen2.5: ChatML with its own system message", "You are Qwen, created by Alibaba",
     NULL,
     IM("system", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.") IM_USER,
     IM_ANSWER, false, false},
    {"dream", "Dream: ChatML with a system message", "You are a helpful assistant", NULL,
     IM("system", "You are a helpful assistant.") IM_USER, IM_ANSWER, false, false},
    {"chatml", "SDAR and Qwen3", "<|im_start|>", NULL, IM_USER, IM_ANSWER, false, false},
    {"ling", "LLaDA2 and LLaDA-MoE", "<role>HUMAN</role>", NULL,
     "<role>SYSTEM</role>detailed thinking off<|role_end|><role>HUMAN</role>",
     "<|role_end|><role>ASSISTANT</role>", false, false},
    {"llada", "LLaDA-8B-Instruct, and Llama 3 without a system message", "<|start_header_id|>",
     "Cutting Knowledge Date", "<|start_header_id|>user<|end_header_id|>\n\n",
     "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n", true, true},
    {"qa", "the models of experiments/train", "'Q: '", NULL, "Q: ", "\nA:\n", false, false},
    {NULL, NULL, NULL, NULL, NULL, NULL, false, false},
};

int chat_find(const char *name, const struct chat **out, struct err *err) {
    char known[256] = "";
    for (size_t i = 0; chat_table[i].name != NULL; i++) {
        if (strcmp(name, chat_table[i].name) == 0) {
            *out = &chat_table[i];
            return 0;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", chat_table[i].name);
    }
    return err_usage(err, "there is no chat template '%s'; there are: %s", name, known);
}

/* ---- a folder's own ---- */

enum { PATH_CHARS = 4096, MOST_TEMPLATE_BYTES = 1 << 22 };

/* Whether the folder has that file; its path. */
static bool has_file(const char *folder, const char *file, char path[PATH_CHARS]) {
    return snprintf(path, PATH_CHARS, "%s/%s", folder, file) < PATH_CHARS &&
           access(path, F_OK) == 0;
}

/* NULL where there is no such file, or it is not read; the caller releases it. */
static json_t *read_config(const char *folder, const char *file, struct err *err) {
    char path[PATH_CHARS];
    return has_file(folder, file, path) ? json_read(path, "tokenizer", 0, err) : NULL;
}

/* A template stands there as a text, or several do in a list under names: then the default one. */
static const char *template_of(const json_t *value) {
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *entry = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name != NULL && strcmp(name, "default") == 0) {
            return json_string_value(json_object_get(entry, "template"));
        }
    }
    return json_string_value(value);
}

/* Whether the program puts a system message where the user has written none: words that stand right
 * after the beginning of one, where other programs put what they were given. */
static bool has_own_system_message(const char *template) {
    static const char start[] = "<|im_start|>system";
    for (const char *at = template; (at = strstr(at, start)) != NULL;) {
        at += sizeof start - 1;
        while (isspace((unsigned char)*at) || strncmp(at, "\\n", 2) == 0) {
            at += *at == '\\' ? 2 : 1;
        }
        if (isalpha((unsigned char)*at)) {
            return true;
        }
    }
    return false;
}

static const struct chat *recognise(const char *template) {
    for (const struct chat *chat = &chat_table[1]; chat->name != NULL; chat++) {
        if (strstr(template, chat->words) != NULL) {
            const bool adds_none = strstr(chat->before, "system") == NULL;
            const bool is_foreign =
                (chat->foreign != NULL && strstr(template, chat->foreign) != NULL) ||
                (adds_none && has_own_system_message(template));
            return is_foreign ? NULL : chat;
        }
    }
    return NULL;
}

static int take_template(const char *folder, const char *file, const char *template,
                         const struct chat **out, struct err *err) {
    *out = template != NULL ? recognise(template) : NULL;
    return *out != NULL ? 0
                        : err_usage(err,
                                    "%s/%s: its chat template is not known: --chat NAME, or --chat "
                                    "none for the text alone",
                                    folder, file);
}

int chat_of_folder(const char *folder, const struct chat **out, struct err *err) {
    static const char jinja[] = "chat_template.jinja";
    static const char *const configs[] = {"tokenizer_config.json", "chat_template.json"};
    char path[PATH_CHARS];
    *out = &chat_table[0];
    if (has_file(folder, jinja, path)) {
        size_t size;
        char *template = text_read(path, "chat template", MOST_TEMPLATE_BYTES, &size, err);
        int status =
            template != NULL ? take_template(folder, jinja, template, out, err) : err_status(err);
        free(template);
        return status;
    }
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        json_t *config = read_config(folder, configs[i], err);
        const json_t *value = json_object_get(config, "chat_template");
        int status = err->kind != ERR_NONE ? err_status(err) : 0;
        bool has_one = value != NULL && !json_is_null(value);
        if (has_one) {
            status = take_template(folder, configs[i], template_of(value), out, err);
        }
        json_decref(config);
        if (has_one || status != 0) {
            return status;
        }
    }
    return 0;
}

/* {"content": "<|startoftext|>"}, or the text itself. */
static void put_beginning(const char *folder, FILE *out, struct err *err) {
    json_t *config = folder != NULL ? read_config(folder, "tokenizer_config.json", err) : NULL;
    const json_t *token = json_object_get(config, "bos_token");
    const json_t *content = json_is_object(token) ? json_object_get(token, "content") : token;
    if (json_is_string(content)) {
        fputs(json_string_value(content), out);
    }
    json_decref(config);
}

char *chat_text(const struct chat *chat, const char *folder, const char *message, size_t n,
                size_t *length, struct err *err) {
    char *text = NULL;
    FILE *out = mem_stream(&text, length);
    if (chat->begins) {
        put_beginning(folder, out, err);
    }
    for (; chat->trims && n > 0 && isspace((unsigned char)message[0]); n--) {
        message++;
    }
    while (chat->trims && n > 0 && isspace((unsigned char)message[n - 1])) {
        n--;
    }
    fputs(chat->before, out);
    fwrite(message, 1, n, out);
    fputs(chat->after, out);
    mem_stream_close(out);
    if (err->kind != ERR_NONE) {
        free(text);
        text = NULL;
    }
    return text;
}
