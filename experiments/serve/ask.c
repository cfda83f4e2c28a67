#include "experiments/serve/ask.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/system/system_sampling.h"

enum { IN_COMPLETIONS = 1, IN_CHATS = 2, IN_BOTH = 3, MOST_MESSAGES = 4096 };
enum { MOST_STOPS = 16, MOST_STOP_BYTES = 256 };
static const int64_t most_whole = INT64_C(1) << 53; /* what every JSON reader keeps exactly */

bool ask_refuse(struct ask_error *error, int status, const char *param, const char *format, ...) {
    va_list rest;
    *error = (struct ask_error){.status = status,
                                .type = status == 401   ? "authentication_error"
                                        : status == 429 ? "rate_limit_error"
                                        : status >= 500 ? "server_error"
                                                        : "invalid_request_error",
                                .code = NULL};
    snprintf(error->param, sizeof error->param, "%.60s", param != NULL ? param : "");
    va_start(rest, format);
    vsnprintf(error->message, sizeof error->message, format, rest);
    va_end(rest);
    return false;
}

char *ask_error_text(const struct ask_error *error, size_t *size) {
    /* What a client sent may have been cut in the middle of a character. */
    char message[sizeof error->message];
    snprintf(message, sizeof message, "%s", error->message);
    json_t *text = NULL;
    for (size_t n = strlen(message); (text = json_stringn(message, n)) == NULL && n > 0;) {
        message[--n] = '\0';
    }
    json_t *param = error->param[0] != '\0' ? json_string(error->param) : NULL;
    json_t *object =
        json_pack("{s:{s:o, s:s, s:o, s:s?}}", "error", "message", text, "type", error->type,
                  "param", param != NULL ? param : json_null(), "code", error->code);
    char *made = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    *size = strlen(made);
    return made;
}

/* ---- values ---- */

struct asking {
    const struct ask_facts *facts;
    struct ask *ask;
    struct ask_error *error;
    const json_t *object;
    const char *name;  /* of the field */
    const char *stops; /* why a prompt in the other form is refused */
};

static bool read_bool(struct asking *a, const json_t *value, bool *out) {
    *out = json_is_true(value);
    return json_is_boolean(value) || json_is_null(value) ||
           ask_refuse(a->error, 400, a->name, "%s is true or false", a->name);
}

static bool read_whole(struct asking *a, const json_t *value, int64_t least, int64_t most,
                       int64_t *out) {
    *out = json_integer_value(value);
    return (json_is_integer(value) && *out >= least && *out <= most) ||
           ask_refuse(a->error, 400, a->name, "%s is a whole number from %" PRId64 " to %" PRId64,
                      a->name, least, most);
}

/* ---- fields that are read ---- */

static bool read_model(struct asking *a, const json_t *value) {
    if (!json_is_string(value)) {
        return ask_refuse(a->error, 400, a->name, "model is a text");
    }
    if (strcmp(json_string_value(value), a->facts->model) != 0) {
        ask_refuse(a->error, 404, a->name, "there is no model '%.200s' here; this is '%s'",
                   json_string_value(value), a->facts->model);
        a->error->code = "model_not_found";
        return false;
    }
    return true;
}

static bool add_text(struct asking *a, const char *text, size_t n, bool begins) {
    struct err err = {0};
    const struct replies *replies = a->facts->replies;
    if (replies->tokenizer == NULL) {
        return ask_refuse(a->error, 400, a->name,
                          "this server was started without --tokenizer: prompts are lists of token "
                          "ids at /v1/completions");
    }
    if (begins) {
        tokenizer_begin(replies->tokenizer, &a->ask->prompt);
    }
    return tokenizer_encode(replies->tokenizer, text, n, &a->ask->prompt, &err) == 0 ||
           ask_refuse(a->error, 400, a->name, "%s: %s", a->name, err.text);
}

static bool add_ids(struct asking *a, const json_t *list) {
    const int64_t most =
        a->facts->is_device ? (int64_t)a->facts->vocab - 1 : (int64_t)INT32_MAX - 1;
    size_t i;
    json_t *value;
    if (json_array_size(list) > a->facts->context_tokens) {
        return ask_refuse(a->error, 400, a->name,
                          "the prompt has %zu tokens, the context at most %" PRIu32,
                          json_array_size(list), a->facts->context_tokens);
    }
    json_array_foreach((json_t *)list, i, value) {
        const int64_t id = json_integer_value(value);
        if (!json_is_integer(value) || id < 0 || id > most) {
            return ask_refuse(a->error, 400, a->name,
                              "element %zu of the prompt is no token id from 0 to %" PRId64, i,
                              most);
        }
        token_ids_add(&a->ask->prompt, (int32_t)id);
    }
    return true;
}

/* A text, a list of ids, or a list with one of these. */
static bool read_prompt(struct asking *a, const json_t *value) {
    if (json_is_array(value) && json_array_size(value) == 1 &&
        !json_is_integer(json_array_get(value, 0))) {
        value = json_array_get(value, 0);
    }
    if (json_is_string(value)) {
        return add_text(a, json_string_value(value), json_string_length(value), true);
    }
    if (json_is_array(value) && json_is_integer(json_array_get(value, 0))) {
        return add_ids(a, value);
    }
    return ask_refuse(a->error, 400, a->name,
                      "prompt is a text or a list of token ids that is not empty, and one of them "
                      "a request");
}

/* A message's content: a text, or parts that are texts. The caller frees it. */
static char *content_of(struct asking *a, const json_t *content, size_t *size) {
    if (json_is_string(content)) {
        *size = json_string_length(content);
        return mem_copied(json_string_value(content), *size);
    }
    char *text;
    FILE *out = mem_stream(&text, size);
    bool is_text = json_is_array(content) && json_array_size(content) > 0;
    size_t i;
    json_t *part;
    json_array_foreach((json_t *)content, i, part) {
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *said = json_object_get(part, "text");
        is_text = is_text && type != NULL && strcmp(type, "text") == 0 && json_is_string(said);
        if (is_text) {
            fwrite(json_string_value(said), 1, json_string_length(said), out);
        }
    }
    mem_stream_close(out);
    if (!is_text) {
        free(text);
        ask_refuse(a->error, 400, a->name,
                   "a message's content is a text, or a list of parts of type text");
        return NULL;
    }
    return text;
}

static bool add_message(struct asking *a, const json_t *message, size_t place, size_t n) {
    static const char *const roles[] = {"user", "system", "developer", "assistant", NULL};
    const char *role = json_string_value(json_object_get(message, "role"));
    const int known = role != NULL ? name_find(roles, role) : -1;
    const char *key;
    json_t *value;
    if (known < 0) {
        return ask_refuse(a->error, 400, a->name,
                          "message %zu has no role that is user, system, developer or assistant",
                          place);
    }
    json_object_foreach((json_t *)message, key, value) {
        if (strcmp(key, "role") != 0 && strcmp(key, "content") != 0 && strcmp(key, "name") != 0 &&
            !json_is_null(value)) {
            return ask_refuse(a->error, 400, a->name, "message %zu: there is no field '%.60s'",
                              place, key);
        }
    }
    /* Templates are known for one message of a user (engine/text/chat.h): a device's tokens would
     * be others'. A simulation counts the same words around each. */
    if (a->facts->is_device && (n > 1 || known != 0)) {
        return ask_refuse(a->error, 400, a->name,
                          "on a device a chat is one message of a user: its template is not known "
                          "for more");
    }
    size_t size = 0, length = 0;
    char *content = content_of(a, json_object_get(message, "content"), &size);
    struct err err = {0};
    const struct replies *replies = a->facts->replies;
    char *text = content == NULL ? NULL
                                 : chat_text(replies->chat, replies->request.tokenizer, content,
                                             size, &length, &err);
    bool is_good =
        content != NULL && (text != NULL || ask_refuse(a->error, 500, a->name, "%s", err.text));
    is_good = is_good && add_text(a, text, length, place == 0);
    free(content);
    free(text);
    return is_good;
}

static bool read_messages(struct asking *a, const json_t *value) {
    const size_t n = json_array_size(value);
    if (a->facts->replies->tokenizer == NULL) {
        return ask_refuse(a->error, 400, a->name,
                          "this server was started without --tokenizer: prompts are lists of token "
                          "ids at /v1/completions");
    }
    if (n == 0 || n > MOST_MESSAGES) {
        return ask_refuse(a->error, 400, a->name, "messages is a list of 1 to %d messages",
                          MOST_MESSAGES);
    }
    for (size_t i = 0; i < n; i++) {
        if (!add_message(a, json_array_get(value, i), i, n)) {
            return false;
        }
    }
    return true;
}

static bool read_stream(struct asking *a, const json_t *value) {
    return read_bool(a, value, &a->ask->streams);
}

static bool read_stream_options(struct asking *a, const json_t *value) {
    const char *key;
    json_t *option;
    if (json_is_null(value)) {
        return true;
    }
    if (!json_is_object(value) || !json_is_true(json_object_get(a->object, "stream"))) {
        return ask_refuse(a->error, 400, a->name,
                          "stream_options is an object, and of requests with stream = true");
    }
    json_object_foreach((json_t *)value, key, option) {
        bool *flag = strcmp(key, "include_usage") == 0            ? &a->ask->wants_usage
                     : strcmp(key, "continuous_usage_stats") == 0 ? &a->ask->usage_each
                                                                  : NULL;
        if (flag == NULL) {
            return ask_refuse(a->error, 400, a->name, "stream_options has no '%.60s' here", key);
        }
        if (!read_bool(a, option, flag)) {
            return false;
        }
    }
    return true;
}

static bool read_max(struct asking *a, const json_t *value, bool *is_given) {
    int64_t tokens;
    if (json_is_null(value)) {
        return true;
    }
    if (!read_whole(a, value, 1, a->facts->context_tokens, &tokens)) {
        return false;
    }
    *is_given = true;
    if (a->ask->has_max && a->ask->has_max_new && a->ask->output_tokens != tokens) {
        return ask_refuse(a->error, 400, a->name,
                          "max_tokens and max_completion_tokens differ: one of them is enough");
    }
    a->ask->output_tokens = (uint32_t)tokens;
    return true;
}

static bool read_max_tokens(struct asking *a, const json_t *value) {
    return read_max(a, value, &a->ask->has_max);
}

static bool read_max_completion_tokens(struct asking *a, const json_t *value) {
    return read_max(a, value, &a->ask->has_max_new);
}

static bool read_min_tokens(struct asking *a, const json_t *value) {
    int64_t tokens;
    if (json_is_null(value)) {
        return true;
    }
    if (!read_whole(a, value, 0, a->facts->context_tokens, &tokens)) {
        return false;
    }
    a->ask->min_tokens = (uint32_t)tokens;
    return tokens == 0 || !a->facts->looks_for_ends ||
           ask_refuse(a->error, 400, a->name,
                      "min_tokens: the engine looks for the same ends of text in all requests; "
                      "start the server with --eos none");
}

/* One text, or a list of them. */
static bool read_stop(struct asking *a, const json_t *value) {
    const size_t n = json_is_array(value) ? json_array_size(value) : 1;
    size_t size;
    if (json_is_null(value) || n == 0 ||
        (json_is_string(value) && json_string_length(value) == 0)) {
        return true;
    }
    FILE *out = mem_stream(&a->ask->stops, &size);
    bool is_good = n <= MOST_STOPS;
    for (size_t i = 0; is_good && i < n; i++) {
        const json_t *stop = json_is_array(value) ? json_array_get(value, i) : value;
        const size_t length = json_string_length(stop);
        is_good = json_is_string(stop) && length > 0 && length <= MOST_STOP_BYTES;
        fwrite(is_good ? json_string_value(stop) : "", 1, is_good ? length + 1 : 1, out);
    }
    fputc('\0', out);
    mem_stream_close(out);
    return is_good || ask_refuse(a->error, 400, a->name,
                                 "stop is a text of 1 to %d bytes, or a list of 1 to %d of them",
                                 MOST_STOP_BYTES, MOST_STOPS);
}

static bool read_shows_stop(struct asking *a, const json_t *value) {
    return read_bool(a, value, &a->ask->shows_stop);
}

static bool read_ignore_eos(struct asking *a, const json_t *value) {
    bool ignores = false;
    if (!read_bool(a, value, &ignores)) {
        return false;
    }
    a->ask->ignores_end = ignores;
    return !ignores || !a->facts->looks_for_ends ||
           ask_refuse(a->error, 400, a->name,
                      "ignore_eos: the engine looks for the same ends of text in all requests; "
                      "start the server with --eos none");
}

static bool read_seed(struct asking *a, const json_t *value) {
    int64_t seed;
    if (json_is_null(value)) {
        return true;
    }
    if (!read_whole(a, value, -most_whole, most_whole, &seed)) {
        return false;
    }
    a->ask->has_seed = true;
    a->ask->seed = (uint64_t)seed;
    a->ask->sampling.seed = 1 + ((uint64_t)seed & INT64_MAX);
    return true;
}

static bool read_number(struct asking *a, const json_t *value, double most, uint64_t *to) {
    const double x = json_number_value(value);
    if (json_is_null(value)) {
        return true;
    }
    if (!json_is_number(value) || !(x >= 0 && x <= most)) {
        return ask_refuse(a->error, 400, a->name, "%s is a number from 0 to %g", a->name, most);
    }
    *to = 1 + (uint64_t)llround(x * SAMPLING_UNIT);
    return true;
}

static bool read_temperature(struct asking *a, const json_t *value) {
    return read_number(a, value, 100, &a->ask->sampling.temperature);
}

static bool read_top_p(struct asking *a, const json_t *value) {
    return (json_is_number(value) && json_number_value(value) <= 0)
               ? ask_refuse(a->error, 400, a->name, "top_p is above 0 and at most 1")
               : read_number(a, value, 1, &a->ask->sampling.top_p);
}

/* -1 and 0: all. */
static bool read_top_k(struct asking *a, const json_t *value) {
    int64_t k = 0;
    if (json_is_null(value)) {
        return true;
    }
    if (!read_whole(a, value, -1, INT32_MAX, &k)) {
        return false;
    }
    a->ask->sampling.top_k = 1 + (uint64_t)(k < 0 ? 0 : k);
    return true;
}

static bool takes_arrivals(struct asking *a) {
    return a->facts->takes_arrivals ||
           ask_refuse(a->error, 400, a->name,
                      "%s is for a server with --clock virtual: here a request arrives when it "
                      "is there",
                      a->name);
}

static bool read_arrival_us(struct asking *a, const json_t *value) {
    int64_t us;
    if (!takes_arrivals(a) || !read_whole(a, value, 0, most_whole / 1024, &us)) {
        return false;
    }
    a->ask->has_arrival = true;
    a->ask->arrival_ns = us * 1000;
    return true;
}

static bool read_request_id(struct asking *a, const json_t *value) {
    int64_t id;
    if (!takes_arrivals(a) || !read_whole(a, value, 0, most_whole, &id)) {
        return false;
    }
    a->ask->has_request_id = true;
    a->ask->request_id = (uint64_t)id;
    return true;
}

/* ---- the table ---- */

static const struct field {
    const char *name;
    int in;
    bool (*read)(struct asking *a, const json_t *value); /* NULL: it has no model here, and is */
    const char *neutral; /* taken as null or as one of these JSON values; NULL: as anything */
    const char *doc;
} fields[] = {
    {"model", IN_BOTH, read_model, NULL, "the server's (`GET /v1/models`); required"},
    {"prompt", IN_COMPLETIONS, read_prompt, NULL,
     "a list of token ids, or with --tokenizer a text; one a request; required"},
    {"messages", IN_CHATS, read_messages, NULL,
     "with --tokenizer; on a device one message of a user; required"},
    {"max_tokens", IN_BOTH, read_max_tokens, NULL,
     "positions that are decoded, the canvas after the prompt (default: --output-tokens)"},
    {"max_completion_tokens", IN_BOTH, read_max_completion_tokens, NULL, "the same"},
    {"stream", IN_BOTH, read_stream, NULL, "server-sent events, one a committed block"},
    {"stream_options", IN_BOTH, read_stream_options, NULL,
     "`include_usage`, and vLLM's `continuous_usage_stats`"},
    {"ignore_eos", IN_BOTH, read_ignore_eos, NULL,
     "all of max_tokens; on a device where it looks for no end of text"},
    {"min_tokens", IN_BOTH, read_min_tokens, NULL,
     "of the answer, not with stop; on a device where it looks for no end of text"},
    {"stop", IN_BOTH, read_stop, NULL,
     "a text, or up to 16, at the first of which the reply ends; what follows is freed"},
    {"include_stop_str_in_output", IN_BOTH, read_shows_stop, NULL,
     "whether the reply's text has the stop"},
    {"seed", IN_BOTH, read_seed, NULL,
     "of a simulation's words and lengths, and of the tokens that are drawn"},
    {"temperature", IN_BOTH, read_temperature, NULL,
     "above 0 with --set sampling=on; 0: the most likely token (default: the server's)"},
    {"top_p", IN_BOTH, read_top_p, NULL, "of what is drawn (default: the server's)"},
    {"top_k", IN_BOTH, read_top_k, NULL, "the same; -1 and 0: all"},
    {"arrival_us", IN_BOTH, read_arrival_us, NULL,
     "extension, with --clock virtual: when it arrives, from the start"},
    {"request_id", IN_BOTH, read_request_id, NULL,
     "extension, with --clock virtual: its place among all requests, from 0"},
    {"user", IN_BOTH, NULL, NULL, "a label"},
    {"safety_identifier", IN_BOTH, NULL, NULL, "a label"},
    {"prompt_cache_key", IN_BOTH, NULL, NULL, "a label"},
    {"metadata", IN_BOTH, NULL, NULL, "a label"},
    {"service_tier", IN_BOTH, NULL, "\"auto\"\n\"default\"", "not modelled"},
    {"store", IN_CHATS, NULL, "false", "nothing is kept of a chat"},
    {"n", IN_BOTH, NULL, "1", "one answer a request"},
    {"best_of", IN_COMPLETIONS, NULL, "1", "not modelled"},
    {"stop_token_ids", IN_BOTH, NULL, "[]", "not modelled"},
    {"echo", IN_COMPLETIONS, NULL, "false", "not modelled"},
    {"suffix", IN_COMPLETIONS, NULL, "\"\"", "not modelled"},
    {"logprobs", IN_BOTH, NULL, "false", "not modelled"},
    {"top_logprobs", IN_CHATS, NULL, "0", "not modelled"},
    {"logit_bias", IN_BOTH, NULL, "{}", "not modelled"},
    {"presence_penalty", IN_BOTH, NULL, "0", "not modelled"},
    {"frequency_penalty", IN_BOTH, NULL, "0", "not modelled"},
    {"repetition_penalty", IN_BOTH, NULL, "1", "not modelled"},
    {"length_penalty", IN_BOTH, NULL, "1", "not modelled"},
    {"min_p", IN_BOTH, NULL, "0", "not modelled"},
    {"use_beam_search", IN_BOTH, NULL, "false", "not modelled"},
    {"skip_special_tokens", IN_BOTH, NULL, "true", "not modelled"},
    {"spaces_between_special_tokens", IN_BOTH, NULL, "true\nfalse", "of tokens that are not shown"},
    {"add_special_tokens", IN_BOTH, NULL, "true", "not modelled"},
    {"truncate_prompt_tokens", IN_BOTH, NULL, "", "not modelled"},
    {"prompt_logprobs", IN_BOTH, NULL, "", "not modelled"},
    {"return_token_ids", IN_BOTH, NULL, "false", "not modelled"},
    {"allowed_token_ids", IN_BOTH, NULL, "", "not modelled"},
    {"bad_words", IN_BOTH, NULL, "[]", "not modelled"},
    {"logits_processors", IN_BOTH, NULL, "[]", "not modelled"},
    {"structured_outputs", IN_BOTH, NULL, "", "not modelled"},
    {"priority", IN_BOTH, NULL, "0", "requests are equal"},
    {"add_generation_prompt", IN_CHATS, NULL, "true", "not modelled"},
    {"continue_final_message", IN_CHATS, NULL, "false", "not modelled"},
    {"chat_template", IN_CHATS, NULL, "", "the folder's"},
    {"chat_template_kwargs", IN_CHATS, NULL, "{}", "not modelled"},
    {"documents", IN_CHATS, NULL, "[]", "not modelled"},
    {"verbosity", IN_CHATS, NULL, "\"medium\"", "not modelled"},
    {"prediction", IN_CHATS, NULL, "", "not modelled"},
    {"audio", IN_CHATS, NULL, "", "not modelled"},
    {"web_search_options", IN_CHATS, NULL, "", "not modelled"},
    {"response_format", IN_BOTH, NULL, "{\"type\":\"text\"}", "not modelled"},
    {"modalities", IN_CHATS, NULL, "[\"text\"]", "not modelled"},
    {"tools", IN_CHATS, NULL, "[]", "not modelled"},
    {"tool_choice", IN_CHATS, NULL, "\"none\"", "not modelled"},
    {"parallel_tool_calls", IN_CHATS, NULL, "true\nfalse", "of tools, which are not modelled"},
    {"functions", IN_CHATS, NULL, "[]", "not modelled"},
    {"function_call", IN_CHATS, NULL, "\"none\"", "not modelled"},
    {"reasoning_effort", IN_CHATS, NULL, "\"none\"", "not modelled"},
};
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

/* A number counts by its value: 1.0 is 1. */
static bool is_value(const json_t *value, const char *text, size_t n) {
    json_t *neutral = json_loadb(text, n, JSON_DECODE_ANY, NULL);
    const bool is_same = json_is_number(neutral) && json_is_number(value)
                             ? fabs(json_number_value(neutral) - json_number_value(value)) < 1e-12
                             : json_equal(neutral, (json_t *)value) != 0;
    json_decref(neutral);
    return is_same;
}

static bool is_neutral(const struct field *field, const json_t *value) {
    if (field->neutral == NULL || json_is_null(value)) {
        return true;
    }
    for (const char *text = field->neutral; *text != '\0';) {
        const size_t n = strcspn(text, "\n");
        if (is_value(value, text, n)) {
            return true;
        }
        text += n + (text[n] == '\n');
    }
    return false;
}

static bool take_neutral(struct asking *a, const struct field *field, const json_t *value) {
    char shown[96];
    if (is_neutral(field, value)) {
        return true;
    }
    snprintf(shown, sizeof shown, "%s", field->neutral);
    for (char *c = shown; *c != '\0'; c++) {
        *c = *c == '\n' ? ',' : *c;
    }
    return ask_refuse(a->error, 400, a->name, "%s has no model here (%s): it is null%s%s", a->name,
                      field->doc, shown[0] != '\0' ? " or " : "", shown);
}

static const struct field *find_field(const char *name, int in) {
    for (size_t i = 0; i < N_FIELDS; i++) {
        if ((fields[i].in & in) != 0 && strcmp(fields[i].name, name) == 0) {
            return &fields[i];
        }
    }
    return NULL;
}

static bool read_fields(struct asking *a) {
    const int in = a->ask->is_chat ? IN_CHATS : IN_COMPLETIONS;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)a->object, key, value) {
        const struct field *field = find_field(key, in);
        if (field == NULL) {
            return ask_refuse(a->error, 400, key, "there is no field '%.60s' here", key);
        }
        a->name = field->name;
        if (!(field->read != NULL ? field->read(a, value) : take_neutral(a, field, value))) {
            return false;
        }
    }
    return true;
}

static bool check_sampling(struct asking *a) {
    const struct sampling *asked = &a->ask->sampling;
    struct err err = {0};
    return system_check_sampling(a->facts->system, asked, &err) == 0 ||
           ask_refuse(a->error, 400, asked->temperature > 1 ? "temperature" : "top_p", "%s",
                      err.text);
}

static bool check_whole(struct asking *a) {
    struct ask *ask = a->ask;
    const char *prompt = ask->is_chat ? "messages" : "prompt";
    const char *const musts[] = {"model", prompt};
    for (size_t i = 0; i < 2; i++) {
        if (json_object_get(a->object, musts[i]) == NULL) {
            return ask_refuse(a->error, 400, musts[i], "the request has no '%s'", musts[i]);
        }
    }
    if (ask->prompt.n == 0) {
        return ask_refuse(a->error, 400, prompt, "the prompt has no tokens");
    }
    if (a->facts->takes_arrivals && !ask->has_request_id) {
        return ask_refuse(a->error, 400, "request_id",
                          "a server with --clock virtual asks for request_id, the request's place "
                          "among all");
    }
    if (!ask->has_max && !ask->has_max_new) {
        ask->output_tokens = a->facts->default_tokens;
    }
    if (ask->min_tokens > (ask->stops != NULL ? 0 : ask->output_tokens)) {
        return ask_refuse(a->error, 400, "min_tokens",
                          ask->stops != NULL ? "min_tokens and stop together have no model here"
                                             : "min_tokens is more than max_tokens");
    }
    if (ask->prompt.n + ask->output_tokens > a->facts->context_tokens) {
        ask_refuse(a->error, 400, prompt,
                   "the prompt has %zu tokens and the output %" PRIu32
                   ", together more than the context's %" PRIu32,
                   ask->prompt.n, ask->output_tokens, a->facts->context_tokens);
        a->error->code = "context_length_exceeded";
        return false;
    }
    return true;
}

bool ask_read(const struct ask_facts *facts, bool is_chat, const char *body, size_t size,
              struct ask *out, struct ask_error *error) {
    json_error_t trouble;
    *out = (struct ask){.is_chat = is_chat};
    json_t *object = json_loadb(body, size, JSON_REJECT_DUPLICATES, &trouble);
    if (!json_is_object(object)) {
        json_decref(object);
        return object == NULL
                   ? ask_refuse(error, 400, NULL, "the body is no JSON: line %d, column %d: %s",
                                trouble.line, trouble.column, trouble.text)
                   : ask_refuse(error, 400, NULL, "the body is no JSON object");
    }
    struct asking asking = {.facts = facts, .ask = out, .error = error, .object = object};
    const bool is_good = read_fields(&asking) && check_sampling(&asking) && check_whole(&asking);
    json_decref(object);
    if (!is_good) {
        free(out->prompt.ids);
        free(out->stops);
        *out = (struct ask){0};
    }
    return is_good;
}

void ask_list(FILE *out) {
    static const char *const endpoints[] = {
        [IN_COMPLETIONS] = "completions", [IN_CHATS] = "chats", [IN_BOTH] = "both"};
    fprintf(out, "| field | of | accepted | meaning |\n|---|---|---|---|\n");
    for (size_t i = 0; i < N_FIELDS; i++) {
        const struct field *f = &fields[i];
        fprintf(out, "| `%s` | %s | ", f->name, endpoints[f->in]);
        if (f->read != NULL || f->neutral == NULL) {
            fprintf(out, "read");
        } else {
            fprintf(out, "null");
            for (const char *text = f->neutral; *text != '\0';) {
                const size_t n = strcspn(text, "\n");
                fprintf(out, ", `%.*s`", (int)n, text);
                text += n + (text[n] == '\n');
            }
        }
        fprintf(out, " | %s |\n", f->doc);
    }
}
