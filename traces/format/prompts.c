/* Prompts as rows of a trace. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "traces/format/format.h"
#include "traces/format/prompts.h"

enum { NAME_CHARS = 32 };

/* By the words, so that a first line that is broken is told as one. */
static bool prompts_opens(const struct line *first) {
    static const char *const words[] = {"\"prompt\"", "\"ids\"", "\"messages\""};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (first->length > 0 && first->text[0] == '{' &&
            memmem(first->text, first->length, words[i], strlen(words[i])) != NULL) {
            return true;
        }
    }
    return false;
}

static int bad(const struct prompt *prompt, const char *found, const char *expected,
               struct err *err) {
    return err_usage(err, "%s:%" PRIu64 ": found %s, expected %s", prompt->path, prompt->line,
                     found, expected);
}

/* A text, or a number as it would be written; NULL where there is none. `space` holds it. */
static const char *word_of(const json_t *object, const char *key, char space[NAME_CHARS]) {
    const json_t *value = json_object_get(object, key);
    if (json_is_integer(value)) {
        snprintf(space, NAME_CHARS, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    } else if (json_is_real(value)) {
        snprintf(space, NAME_CHARS, "%.17g", json_real_value(value));
    }
    return json_is_number(value) ? space : json_string_value(value);
}

static int read_ids(const json_t *list, struct prompt *prompt, int32_t **ids, struct err *err) {
    size_t n = json_array_size(list);
    if (n == 0 || n > INT32_MAX) {
        return bad(prompt, "no token in 'ids'", "a list of token ids", err);
    }
    *ids = mem_unwritten(n, sizeof **ids);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX) {
            return bad(prompt, "something else in 'ids'", "whole numbers from 0 on", err);
        }
        (*ids)[i] = (int32_t)json_integer_value(id);
    }
    prompt->ids = *ids;
    prompt->n_ids = (uint32_t)n;
    return 0;
}

/* The first key that a row has of those by which tools say how much may be generated. */
static int read_output(const json_t *object, const struct prompt *prompt, uint32_t *tokens,
                       struct err *err) {
    static const char *const keys[] = {"output_tokens",         "output_length",
                                       "max_completion_tokens", "max_tokens",
                                       "max_output_tokens",     "body.max_completion_tokens",
                                       "body.max_tokens",       "body.max_output_tokens"};
    const json_t *value = NULL;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && value == NULL; i++) {
        value = json_at(object, keys[i]);
        value = json_is_null(value) ? NULL : value;
    }
    json_int_t n = value != NULL ? json_integer_value(value) : PROMPT_OUTPUT_TOKENS;
    *tokens = (uint32_t)n;
    return n >= 1 && n <= INT32_MAX
               ? 0
               : bad(prompt, "another value of 'output_tokens'", "a whole number from 1 on", err);
}

/* A message's content: a text, or the texts of its parts. False: something else is in it. */
static bool write_message(const json_t *message, FILE *out) {
    const json_t *content = json_object_get(message, "content"), *part;
    size_t i;
    if (json_is_string(content)) {
        fprintf(out, "%s\n", json_string_value(content));
        return true;
    }
    json_array_foreach((json_t *)content, i, part) {
        const char *text = json_string_value(json_object_get(part, "text"));
        if (text == NULL) {
            return false;
        }
        fprintf(out, "%s\n", text);
    }
    return json_is_array(content) || content == NULL || json_is_null(content);
}

/* The messages of a chat as one text, a line each. */
static int read_messages(const json_t *messages, struct prompt *prompt, char **text,
                         struct err *err) {
    const json_t *message;
    size_t i;
    bool is_text = json_array_size(messages) > 0;
    FILE *out = mem_stream(text, &prompt->text_bytes);
    json_array_foreach((json_t *)messages, i, message) {
        is_text = is_text && write_message(message, out);
    }
    mem_stream_close(out);
    prompt->text_bytes -= prompt->text_bytes > 0; /* the last line's end */
    (*text)[prompt->text_bytes] = '\0';
    prompt->text = *text;
    return is_text && prompt->text_bytes > 0
               ? 0
               : bad(prompt, "something else than texts in 'messages'", "messages with a content",
                     err);
}

/* In a file of batches the prompt is in the body. */
static const json_t *asked(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return value != NULL ? value : json_object_get(json_object_get(object, "body"), key);
}

static int read_content(const json_t *object, struct prompt *prompt, int32_t **ids, char **said,
                        struct err *err) {
    const json_t *text = asked(object, "prompt"), *list = asked(object, "ids"),
                 *messages = asked(object, "messages");
    if (text == NULL && list == NULL && messages != NULL) {
        return read_messages(messages, prompt, said, err);
    }
    if ((text != NULL) == (list != NULL)) {
        return bad(prompt, text != NULL ? "both 'prompt' and 'ids'" : "neither 'prompt' nor 'ids'",
                   "one of them", err);
    }
    if (list != NULL) {
        return read_ids(list, prompt, ids, err);
    }
    prompt->text = json_string_value(text);
    prompt->text_bytes = json_string_length(text);
    return prompt->text_bytes > 0 ? 0 : bad(prompt, "no text in 'prompt'", "a text", err);
}

/* One number of it; where it is not there, or null, nothing is said. */
static int read_sampled(const json_t *object, const char *key, double unit, double most,
                        const struct prompt *prompt, uint64_t *out, struct err *err) {
    const json_t *value = asked(object, key);
    const double x = json_number_value(value) * unit;
    char found[64], expected[64];
    if (value == NULL || json_is_null(value)) {
        return 0;
    }
    if (json_is_number(value) && x >= 0 && x <= most * unit && (unit > 1 || x == floor(x))) {
        *out = 1 + (uint64_t)llround(x);
        return 0;
    }
    snprintf(found, sizeof found, "another value of '%s'", key);
    snprintf(expected, sizeof expected, "%s from 0 to %.0f",
             unit > 1 ? "a number" : "a whole number", most);
    return bad(prompt, found, expected, err);
}

static int read_sampling(const json_t *object, const struct prompt *prompt, struct sampling *out,
                         struct err *err) {
    const struct {
        const char *key;
        double unit, most;
        uint64_t *to;
    } keys[] = {{"temperature", SAMPLING_UNIT, 100, &out->temperature},
                {"top_p", SAMPLING_UNIT, 1, &out->top_p},
                {"top_k", 1, UINT32_MAX, &out->top_k},
                {"seed", 1, 0x1p53, &out->seed}};
    int status = 0;
    for (size_t i = 0; status == 0 && i < sizeof keys / sizeof keys[0]; i++) {
        status =
            read_sampled(object, keys[i].key, keys[i].unit, keys[i].most, prompt, keys[i].to, err);
    }
    return status;
}

static int prompts_take(const struct line *line, const struct prompt_taker *taker,
                        struct trace_row *row, struct err *err) {
    json_error_t reason = {0};
    char id[NAME_CHARS], answer[NAME_CHARS];
    struct prompt prompt = {.number = line->number - 1, .path = line->path, .line = line->number};
    json_t *object = json_lenient(line->text, line->length, JSON_REJECT_DUPLICATES, &reason);
    if (!json_is_object(object)) {
        json_decref(object);
        return bad(&prompt, object == NULL ? reason.text : "no object", "a JSON object", err);
    }
    const char *name = json_object_get(object, "id") != NULL ? "id" : "custom_id";
    prompt.id = word_of(object, name, id);
    prompt.task = json_string_value(json_object_get(object, "task"));
    prompt.answer = word_of(object, "answer", answer);
    int32_t *ids = NULL;
    char *said = NULL;
    *row = (struct trace_row){.prompt = line->number};
    int status = read_content(object, &prompt, &ids, &said, err);
    status = status == 0 ? read_output(object, &prompt, &row->output_tokens, err) : status;
    status = status == 0 ? read_sampling(object, &prompt, &row->sampling, err) : status;
    if (status == 0 && taker->take == NULL) {
        row->input_tokens = prompt.n_ids;
        status = prompt.text == NULL
                     ? 0
                     : bad(&prompt, "a text", "a tokenizer that counts its tokens", err);
    } else if (status == 0) {
        status = taker->take(taker->state, &prompt, &row->input_tokens, err);
    }
    free(ids);
    free(said);
    json_decref(object);
    return status;
}

const struct family family_prompts = {.opens = prompts_opens, .take = prompts_take};
