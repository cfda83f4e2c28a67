#include "engine/text/chat.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/input/json.h"

#define IM(role, text) "<|im_start|>" role "\n" text "<|im_end|>\n"
#define IM_USER        "<|im_start|>user\n"
#define IM_ANSWER      "<|im_end|>\n<|im_start|>assistant\n"

const struct chat chat_table[] = {
    {"none", "the text alone", NULL, "", "", false, false},
    {"qwen2.5", "Qwen2.5: ChatML with its own system message", "You are Qwen, created by Alibaba",
     IM("system", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.") IM_USER,
     IM_ANSWER, false, false},
    {"dream", "Dream: ChatML with a system message", "You are a helpful assistant",
     IM("system", "You are a helpful assistant.") IM_USER, IM_ANSWER, false, false},
    {"chatml", "SDAR and Qwen3", "<|im_start|>", IM_USER, IM_ANSWER, false, false},
    {"ling", "LLaDA2 and LLaDA-MoE", "<role>HUMAN</role>",
     "<role>SYSTEM</role>detailed thinking off<|role_end|><role>HUMAN</role>",
     "<|role_end|><role>ASSISTANT</role>", false, false},
    {"llada", "LLaDA-8B-Instruct, and Llama 3 without a system message", "<|start_header_id|>",
     "<|start_header_id|>user<|end_header_id|>\n\n",
     "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n", true, true},
    {"qa", "the models of experiments/train", "'Q: '", "Q: ", "\nA:\n", false, false},
    {NULL, NULL, NULL, NULL, NULL, false, false},
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

/* Where there is no such file there is nothing; the caller releases it. */
static json_t *read_config(const char *folder) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/tokenizer_config.json", folder) >= (int)sizeof path) {
        return NULL;
    }
    struct err ignored = {0};
    return json_read(path, NULL, 0, &ignored);
}

/* A template stands there as a text, or several do in a list under names: then the default one. */
static const char *template_of(const json_t *config) {
    const json_t *value = json_object_get(config, "chat_template");
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *entry = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name != NULL && strcmp(name, "default") == 0) {
            return json_string_value(json_object_get(entry, "template"));
        }
    }
    return json_string_value(value);
}

int chat_of_folder(const char *folder, const struct chat **out, struct err *err) {
    json_t *config = read_config(folder);
    const char *template = template_of(config);
    *out = template == NULL ? &chat_table[0] : NULL;
    for (size_t i = 1; *out == NULL && chat_table[i].name != NULL; i++) {
        *out = strstr(template, chat_table[i].words) != NULL ? &chat_table[i] : NULL;
    }
    json_decref(config);
    return *out != NULL ? 0
                        : err_usage(err,
                                    "%s/tokenizer_config.json: its chat_template is not known: "
                                    "--chat NAME, or --chat none for the text alone",
                                    folder);
}

/* {"content": "<|startoftext|>"}, or the text itself. */
static void put_beginning(const char *folder, FILE *out) {
    json_t *config = folder != NULL ? read_config(folder) : NULL;
    const json_t *token = json_object_get(config, "bos_token");
    const json_t *content = json_is_object(token) ? json_object_get(token, "content") : token;
    if (json_is_string(content)) {
        fputs(json_string_value(content), out);
    }
    json_decref(config);
}

char *chat_text(const struct chat *chat, const char *folder, const char *message, size_t n,
                size_t *length) {
    char *text = NULL;
    FILE *out = mem_stream(&text, length);
    if (chat->begins) {
        put_beginning(folder, out);
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
    return text;
}
