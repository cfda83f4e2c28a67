#include "experiments/serve/api.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "experiments/serve/calls.h"
#include "sim/base/build.h"
#include "sim/base/mem.h"
#include "sim/base/monotonic.h"

static const char as_json[] = "application/json";
static const char as_text[] = "text/plain; version=0.0.4; charset=utf-8";
enum { RETRY_S = 1 };

/* What a call of the thread of HTTP is about: one that is answered at once has none. */
struct held {
    struct api *api;
    struct call *call; /* NULL: it was answered */
};

struct taking {
    struct api *api;
    struct http_exchange *exchange;
    const struct http_request *request;
    struct held *held;
};

/* ---- answers ---- */

static void answer_text(const struct api *api, struct http_exchange *exchange, int status,
                        const char *type, const char *text, size_t size) {
    const struct http_answer answer = {.status = status, .type = type, .body = text, .size = size};
    api->http->answer(exchange, &answer);
}

static void answer_json(const struct api *api, struct http_exchange *exchange, json_t *object) {
    char *text = json_dumps(object, JSON_COMPACT);
    answer_text(api, exchange, 200, as_json, text, strlen(text));
    free(text);
    json_decref(object);
}

static void answer_error(const struct api *api, struct http_exchange *exchange,
                         const struct ask_error *error) {
    size_t size;
    char *text = ask_error_text(error, &size);
    const struct http_answer answer = {.status = error->status,
                                       .type = as_json,
                                       .body = text,
                                       .size = size,
                                       .retry_s = error->status == 429 ? RETRY_S : 0,
                                       .asks_for_key = error->status == 401,
                                       .closes = error->status == 413 || error->status == 503};
    api->http->answer(exchange, &answer);
    free(text);
}

static void refuse(const struct taking *t, enum refusal why, const struct ask_error *error) {
    inbox_lock(t->api->inbox);
    inbox_tally(t->api->inbox)->refused[why]++;
    inbox_unlock(t->api->inbox);
    answer_error(t->api, t->exchange, error);
}

/* ---- what a reply is called ---- */

static const char *name_of(const struct call *call, char text[48]) {
    snprintf(text, 48, "%s-%" PRIu64, call->is_chat ? "chatcmpl" : "cmpl", call->number);
    return text;
}

static json_t *usage_of(const struct call *call, uint32_t completion_tokens) {
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens",
                     (json_int_t)call->arrival.prompt_tokens, "completion_tokens",
                     (json_int_t)completion_tokens, "total_tokens",
                     (json_int_t)call->arrival.prompt_tokens + completion_tokens,
                     "prompt_tokens_details", "cached_tokens", (json_int_t)call->cached_tokens);
}

static const char *finish_of(const struct call *call) {
    return call->has_ended ? "stop" : "length";
}

static json_t *head_of(const struct api *api, const struct call *call) {
    char name[48];
    return json_pack("{s:s, s:s, s:I, s:s}", "id", name_of(call, name), "object",
                     call->is_chat ? "chat.completion" : "text_completion", "created",
                     (json_int_t)call->created_s, "model", api->facts.model);
}

/* A text of the reply, of which jansson takes only UTF-8: other bytes do not leave the tokenizer.
 */
static json_t *text_of(const char *text, size_t size) {
    json_t *made = json_stringn(text, size);
    return made != NULL ? made : json_string("");
}

static json_t *whole_choice(const struct call *call, const char *text, size_t size) {
    return call->is_chat
               ? json_pack("{s:i, s:{s:s, s:o}, s:n, s:s}", "index", 0, "message", "role",
                           "assistant", "content", text_of(text, size), "logprobs", "finish_reason",
                           finish_of(call))
               : json_pack("{s:i, s:o, s:n, s:s}", "index", 0, "text", text_of(text, size),
                           "logprobs", "finish_reason", finish_of(call));
}

/* ---- a reply at once ---- */

static void answer_whole(struct api *api, struct call *call, struct http_exchange *exchange) {
    struct bytes *text = &api->text;
    text->n = 0;
    replies_text(api->replies, call, call->answer_tokens, true, text);
    json_t *object = head_of(api, call);
    json_object_set_new(object, "choices", json_pack("[o]", whole_choice(call, text->at, text->n)));
    json_object_set_new(object, "usage", usage_of(call, call->answer_tokens));
    answer_json(api, exchange, object);
}

/* Why the loop did not take it. */
static void say_refused(const struct api *api, const struct call *call, struct ask_error *error) {
    const int64_t n = (int64_t)call->arrival.prompt_tokens + call->arrival.output_tokens;
    switch (call->reason) {
    case REJECT_CONTEXT:
    case REJECT_KV:
    case REJECT_TOKENS:
    case REJECT_ACTIVATION:
        ask_refuse(error, 400, NULL,
                   "a request of %" PRId64 " tokens can never be served by this system: %s", n,
                   call->reason == REJECT_CONTEXT  ? "they are more than its context"
                   : call->reason == REJECT_KV     ? "its keys and values are larger than the pool"
                   : call->reason == REJECT_TOKENS ? "one of its steps exceeds the token budget"
                                                   : "one of its steps does not fit the memory");
        break;
    case REJECT_QUEUE:
        ask_refuse(error, 429, NULL, "as many requests as the server takes are here already");
        break;
    default:
        ask_refuse(error, 503, NULL, "%s",
                   api->end_sentence[0] != '\0' ? api->end_sentence
                   : call->reason >= REJECT_OWN && call->reason < REJECT_CANCELLED
                       ? "the scheduler rejected the request"
                       : "the server ended before the request was done");
    }
}

void api_give_up(void *state, struct call *call) {
    const struct api *api = state;
    call->reason = REJECT_SHUTDOWN;
    if (call->exchange != NULL) {
        api->http->wake(call->exchange);
    }
}

/* ---- a stream ---- */

enum { STREAM_BLOCKS, STREAM_FINISH, STREAM_USAGE, STREAM_END, STREAM_OVER };

/* One line of the stream is made at a time, by the one thread of HTTP, in api->line: no event
 * allocates. What a client does not take at once is kept with its call. */

static void begin_chunk(struct api *api, const struct call *call) {
    char name[48];
    struct bytes *line = &api->line;
    line->n = 0;
    bytes_text(line, "data: {\"id\":\"");
    bytes_text(line, name_of(call, name));
    bytes_text(line, call->is_chat ? "\",\"object\":\"chat.completion.chunk\",\"created\":"
                                   : "\",\"object\":\"text_completion\",\"created\":");
    bytes_number(line, call->created_s);
    bytes_text(line, ",\"model\":");
    bytes_json(line, api->facts.model, strlen(api->facts.model));
    bytes_text(line, ",\"choices\":[");
}

/* The text that stands in api->text. */
static void add_choice(struct api *api, const struct call *call, const char *finish,
                       bool is_first) {
    struct bytes *line = &api->line;
    const struct bytes *text = &api->text;
    bytes_text(line, "{\"index\":0,");
    if (!call->is_chat) {
        bytes_text(line, "\"text\":");
        bytes_json(line, text->at, text->n);
    } else {
        bytes_text(line, is_first ? "\"delta\":{\"role\":\"assistant\"" : "\"delta\":{");
        if (is_first || text->n > 0) {
            bytes_text(line, is_first ? ",\"content\":" : "\"content\":");
            bytes_json(line, text->at, text->n);
        }
        bytes_text(line, "}");
    }
    bytes_text(line, ",\"logprobs\":null,\"finish_reason\":");
    bytes_text(line, finish == NULL ? "null" : call->has_ended ? "\"stop\"" : "\"length\"");
    bytes_text(line, "}");
}

static void add_usage(struct api *api, const struct call *call, uint32_t completion_tokens) {
    char *text;
    json_t *usage = usage_of(call, completion_tokens);
    text = json_dumps(usage, JSON_COMPACT);
    bytes_text(&api->line, text);
    free(text);
    json_decref(usage);
}

static void end_chunk(struct api *api, const struct call *call, bool is_usage) {
    struct bytes *line = &api->line;
    bytes_text(line, "]");
    if (is_usage || call->usage_each) {
        bytes_text(line, ",\"usage\":");
        add_usage(api, call, is_usage ? call->answer_tokens : call->written_tokens);
    } else if (call->wants_usage) {
        bytes_text(line, ",\"usage\":null");
    }
    bytes_text(line, "}\n\n");
}

static void make_refusal(struct api *api, const struct call *call) {
    struct ask_error error;
    size_t size;
    say_refused(api, call, &error);
    char *text = ask_error_text(&error, &size);
    api->line.n = 0;
    bytes_text(&api->line, "data: ");
    bytes_add(&api->line, text, size);
    bytes_text(&api->line, "\n\n");
    free(text);
}

static void make_end(struct api *api, struct call *call) {
    if (call->phase == STREAM_BLOCKS) {
        api->text.n = 0;
        begin_chunk(api, call);
        add_choice(api, call, finish_of(call), false);
        end_chunk(api, call, false);
        call->phase = call->wants_usage ? STREAM_USAGE : STREAM_END;
    } else if (call->phase == STREAM_USAGE) {
        begin_chunk(api, call);
        end_chunk(api, call, true);
        call->phase = STREAM_END;
    } else {
        api->line.n = 0;
        bytes_text(&api->line, "data: [DONE]\n\n");
        call->phase = STREAM_OVER;
    }
}

/* What the loop has said by now, of which events are made without its lock. */
enum { SEEN_BLOCKS = 16 };
struct seen {
    enum call_state state;
    size_t n_blocks;
    bool has_all; /* blocks that there are so far */
    struct call_block blocks[SEEN_BLOCKS];
};

static void look(const struct held *held, struct seen *out) {
    const struct call *call = held->call;
    inbox_lock(held->api->inbox);
    const size_t n = call->n_blocks - call->n_written;
    out->state = call->state;
    out->n_blocks = n < SEEN_BLOCKS ? n : SEEN_BLOCKS;
    out->has_all = n <= SEEN_BLOCKS;
    if (n > 0) {
        memcpy(out->blocks, call->blocks + call->n_written, out->n_blocks * sizeof *out->blocks);
    }
    inbox_unlock(held->api->inbox);
}

/* The i-th event of what was seen, into api->line; false: there is none. */
static bool make_event(const struct held *held, const struct seen *seen, size_t i) {
    struct api *api = held->api;
    struct call *call = held->call;
    if (call->phase == STREAM_OVER) {
        return false;
    }
    if (seen->state == CALL_REFUSED) {
        make_refusal(api, call);
        call->phase = STREAM_OVER;
        return true;
    }
    if (i < seen->n_blocks) {
        const bool is_first = call->n_written++ == 0;
        const bool is_last = seen->state == CALL_DONE && seen->has_all && i + 1 == seen->n_blocks;
        api->text.n = 0;
        replies_text(api->replies, call, seen->blocks[i].end_tokens, is_last, &api->text);
        begin_chunk(api, call);
        add_choice(api, call, NULL, is_first);
        end_chunk(api, call, false);
        return true;
    }
    if (seen->state != CALL_DONE || !seen->has_all) {
        return false;
    }
    make_end(api, call);
    return true;
}

/* What of `bytes` has room is taken at once, the rest kept. */
static size_t hand_over(struct call *call, const struct bytes *bytes, char *out, size_t room) {
    const size_t n = bytes->n < room ? bytes->n : room;
    memcpy(out, bytes->at, n);
    if (n < bytes->n) {
        call->pending_size = bytes->n - n;
        call->pending_at = 0;
        call->pending = mem_copied(bytes->at + n, call->pending_size);
    }
    return n;
}

static size_t take_pending(struct call *call, char *out, size_t room) {
    const size_t left = call->pending_size - call->pending_at;
    const size_t n = left < room ? left : room;
    if (left > 0) {
        memcpy(out, call->pending + call->pending_at, n);
        call->pending_at += n;
    }
    if (n == left && call->pending != NULL) {
        free(call->pending);
        call->pending = NULL;
        call->pending_size = call->pending_at = 0;
    }
    return n;
}

static size_t more(void *own, char *out, size_t room, bool *is_over) {
    const struct held *held = own;
    struct api *api = held->api;
    struct call *call = held->call;
    size_t n = take_pending(call, out, room);
    if (n < room && call->phase != STREAM_OVER) {
        struct seen seen;
        look(held, &seen);
        for (size_t i = 0; n < room && make_event(held, &seen, i); i++) {
            n += hand_over(call, &api->line, out + n, room - n);
            if (i < seen.n_blocks) {
                tally_add(&api->written_s, (double)(monotonic_ns() - seen.blocks[i].due_ns) * 1e-9);
            }
        }
    }
    *is_over = n == 0 && call->phase == STREAM_OVER;
    return n;
}

/* ---- endpoints ---- */

static struct call *make_call(struct api *api, const struct taking *t, struct ask *ask) {
    struct call *call = mem_zeroed(1, sizeof *call);
    call->arrival = (struct arrival){.id = ask->request_id,
                                     .arrival_ns = ask->arrival_ns,
                                     .prompt_tokens = (uint32_t)ask->prompt.n,
                                     .output_tokens = ask->output_tokens,
                                     .sampling = ask->sampling,
                                     .think_ns = -1};
    call->names_arrival = ask->has_arrival;
    call->names_id = ask->has_request_id;
    call->streams = ask->streams;
    call->is_chat = ask->is_chat;
    call->wants_usage = ask->wants_usage;
    call->usage_each = ask->usage_each;
    call->shows_stop = ask->shows_stop;
    call->min_tokens = ask->min_tokens;
    call->stops = ask->stops;
    call->ignores_end = ask->ignores_end;
    call->has_seed = ask->has_seed;
    call->seed = ask->seed;
    call->created_s = (int64_t)time(NULL);
    call->number = ++api->n_calls;
    call->connection = t->request->connection;
    call->whole_ns = t->request->whole_ns;
    call->prompt = ask->prompt.ids;
    call->exchange = t->exchange;
    replies_echo(api->replies, call);
    if (api->facts.is_device) {
        call->tokens = mem_zeroed(ask->output_tokens, sizeof *call->tokens);
    }
    return call;
}

static void post(const struct taking *t, struct ask *ask) {
    struct api *api = t->api;
    struct call *call = make_call(api, t, ask);
    struct ask_error error;
    t->held->call = call; /* the loop may say of it what becomes of it before this returns */
    const enum posted posted = inbox_post(api->inbox, call);
    if (posted == POSTED) {
        return;
    }
    t->held->call = NULL;
    call_free(call);
    switch (posted) {
    case POST_FULL:
        ask_refuse(&error, 429, NULL, "as many requests as the server takes are here already");
        refuse(t, REFUSED_QUEUE, &error);
        break;
    case POST_ID_TAKEN:
        ask_refuse(&error, 400, "request_id", "a request of this request_id is under way");
        refuse(t, REFUSED_REQUEST, &error);
        break;
    case POSTED:
    case POST_CLOSING:
        ask_refuse(&error, 503, NULL, "the server is about to end");
        refuse(t, REFUSED_CLOSING, &error);
        break;
    }
}

static void take_completion(const struct taking *t, bool is_chat) {
    struct ask ask;
    struct ask_error error;
    if (ask_read(&t->api->facts, is_chat, t->request->body, t->request->size, &ask, &error)) {
        post(t, &ask);
    } else {
        refuse(t, REFUSED_REQUEST, &error);
    }
}

static void take_completions(const struct taking *t) {
    take_completion(t, false);
}

static void take_chats(const struct taking *t) {
    take_completion(t, true);
}

static void take_models(const struct taking *t) {
    const struct api *api = t->api;
    answer_json(api, t->exchange,
                json_pack("{s:s, s:[{s:s, s:s, s:I, s:s, s:I}]}", "object", "list", "data", "id",
                          api->facts.model, "object", "model", "created",
                          (json_int_t)api->started_s, "owned_by", "unmask", "max_model_len",
                          (json_int_t)api->facts.context_tokens));
}

static void take_health(const struct taking *t) {
    struct ask_error error;
    if (inbox_is_closing(t->api->inbox)) {
        ask_refuse(&error, 503, NULL, "the server is about to end");
        answer_error(t->api, t->exchange, &error);
        return;
    }
    answer_json(t->api, t->exchange,
                json_pack("{s:s, s:s}", "status", "ok", "version", UNMASK_VERSION));
}

static void take_metrics(const struct taking *t) {
    char *text;
    size_t size;
    FILE *out = mem_stream(&text, &size);
    inbox_lock(t->api->inbox);
    struct tally tally = *inbox_tally(t->api->inbox);
    inbox_unlock(t->api->inbox);
    tally.written_s = t->api->written_s;
    tally.n_waiting = tally.n_in_system - tally.n_running;
    tally.kv_total_bytes = t->api->kv_total_bytes;
    tally_print(&tally, t->api->facts.model, out);
    mem_stream_close(out);
    answer_text(t->api, t->exchange, 200, as_text, text, size);
    free(text);
}

static const struct endpoint {
    const char *method, *path;
    bool wants_key;
    void (*take)(const struct taking *t);
    const char *doc;
} endpoints[] = {
    {"POST", "/v1/completions", true, take_completions, "a prompt of token ids or text"},
    {"POST", "/v1/chat/completions", true, take_chats, "messages, with --tokenizer"},
    {"GET", "/v1/models", true, take_models, "the one model, and its context (max_model_len)"},
    {"GET", "/health", false, take_health,
     "200 while requests are taken, 503 once the server ends"},
    {"GET", "/metrics", false, take_metrics, "counters for Prometheus, below"},
};
enum { N_ENDPOINTS = sizeof endpoints / sizeof endpoints[0] };

/* As long as it takes for any key of this length. */
static bool has_key(const char *authorization, const char *key) {
    static const char scheme[] = "Bearer ";
    const size_t n = strlen(key);
    if (authorization == NULL || strncmp(authorization, scheme, sizeof scheme - 1) != 0) {
        return false;
    }
    const char *given = authorization + sizeof scheme - 1;
    unsigned char differs = strlen(given) != n;
    for (size_t i = 0; i < n && given[i] != '\0'; i++) {
        differs |= (unsigned char)(given[i] ^ key[i]);
    }
    return differs == 0;
}

static void take_request(const struct taking *t) {
    const struct http_request *request = t->request;
    const struct endpoint *endpoint = NULL;
    bool knows_path = false;
    struct ask_error error;
    for (size_t i = 0; i < N_ENDPOINTS; i++) {
        const bool is_path = strcmp(request->path, endpoints[i].path) == 0;
        knows_path = knows_path || is_path;
        if (is_path && strcmp(request->method, endpoints[i].method) == 0) {
            endpoint = &endpoints[i];
        }
    }
    if (request->refused != 0) {
        ask_refuse(&error, request->refused, NULL, "the body is larger than this server takes");
        refuse(t, REFUSED_REQUEST, &error);
    } else if (endpoint == NULL) {
        ask_refuse(&error, knows_path ? 405 : 404, NULL,
                   knows_path ? "%.20s is not a method of %.200s" : "there is no %.20s %.200s here",
                   request->method, request->path);
        refuse(t, REFUSED_REQUEST, &error);
    } else if (endpoint->wants_key && t->api->key != NULL &&
               !has_key(request->authorization, t->api->key)) {
        ask_refuse(&error, 401, NULL, "the request has no key, or another one than the server's");
        error.code = "invalid_api_key";
        refuse(t, REFUSED_KEY, &error);
    } else {
        endpoint->take(t);
    }
}

/* ---- hooks ---- */

static void *take(void *state, struct http_exchange *exchange, const struct http_request *request) {
    struct held *held = mem_zeroed(1, sizeof *held);
    held->api = state;
    const struct taking taking = {state, exchange, request, held};
    take_request(&taking);
    return held;
}

static void over(void *own, bool is_cut) {
    struct held *held = own;
    if (held->call != NULL) {
        inbox_over(held->api->inbox, held->call, is_cut);
    }
    free(held);
}

static void closed(void *state, uint64_t connection) {
    inbox_left(((struct api *)state)->inbox, connection);
}

/* A call whose reply is wanted at once is answered when it is done, on the thread of HTTP. */
static void ready(void *own) {
    const struct held *held = own;
    struct call *call = held->call;
    struct ask_error error;
    if (call == NULL) {
        return;
    }
    inbox_lock(held->api->inbox);
    const enum call_state state = call->state;
    struct http_exchange *exchange = call->exchange;
    const bool is_streaming = call->is_streaming;
    inbox_unlock(held->api->inbox);
    if (is_streaming || exchange == NULL) {
        return;
    }
    if (state == CALL_DONE) {
        answer_whole(held->api, call, exchange);
    } else if (state == CALL_REFUSED) {
        say_refused(held->api, call, &error);
        answer_error(held->api, exchange, &error);
    }
}

void api_close(struct api *api) {
    bytes_free(&api->line);
    bytes_free(&api->text);
}

struct http_hooks api_hooks(struct api *api) {
    tally_added(&api->written_s);
    return (struct http_hooks){
        .state = api, .take = take, .ready = ready, .more = more, .over = over, .closed = closed};
}

void api_list(FILE *out) {
    fprintf(out, "| request | key | answer |\n|---|---|---|\n");
    for (size_t i = 0; i < N_ENDPOINTS; i++) {
        fprintf(out, "| `%s %s` | %s | %s |\n", endpoints[i].method, endpoints[i].path,
                endpoints[i].wants_key ? "yes" : "no", endpoints[i].doc);
    }
}
