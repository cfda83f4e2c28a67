#include "experiments/serve/api.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

static json_t *head_of(const struct api *api, const struct call *call, bool is_chunk) {
    char name[48];
    const char *kind = call->is_chat ? (is_chunk ? "chat.completion.chunk" : "chat.completion")
                                     : "text_completion";
    return json_pack("{s:s, s:s, s:I, s:s}", "id", name_of(call, name), "object", kind, "created",
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

static json_t *chunk_choice(const struct call *call, const char *text, size_t size,
                            const char *finish, bool is_first) {
    if (!call->is_chat) {
        return json_pack("{s:i, s:o, s:n, s:s?}", "index", 0, "text", text_of(text, size),
                         "logprobs", "finish_reason", finish);
    }
    json_t *delta = json_object();
    if (is_first) {
        json_object_set_new(delta, "role", json_string("assistant"));
    }
    if (is_first || size > 0) {
        json_object_set_new(delta, "content", text_of(text, size));
    }
    return json_pack("{s:i, s:o, s:n, s:s?}", "index", 0, "delta", delta, "logprobs",
                     "finish_reason", finish);
}

/* ---- a reply at once ---- */

static void answer_whole(struct api *api, struct call *call, struct http_exchange *exchange) {
    size_t size;
    char *text = replies_text(api->replies, call, call->answer_tokens, true, &size);
    json_t *object = head_of(api, call, false);
    json_object_set_new(object, "choices", json_pack("[o]", whole_choice(call, text, size)));
    json_object_set_new(object, "usage", usage_of(call, call->answer_tokens));
    free(text);
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

static void put_event(struct call *call, json_t *object, int64_t due_ns) {
    char *text = json_dumps(object, JSON_COMPACT);
    const size_t n = strlen(text);
    json_decref(object);
    free(call->pending);
    call->pending = mem_unwritten(n + 16, 1);
    call->pending_size = (size_t)snprintf(call->pending, n + 16, "data: %s\n\n", text);
    call->pending_at = 0;
    call->pending_due_ns = due_ns;
    free(text);
}

static void put_line(struct call *call, const char *line) {
    free(call->pending);
    call->pending = mem_text(line);
    call->pending_size = strlen(line);
    call->pending_at = 0;
    call->pending_due_ns = 0;
}

static void put_chunk(const struct api *api, struct call *call, json_t *choice, int64_t due_ns) {
    json_t *object = head_of(api, call, true);
    json_object_set_new(object, "choices",
                        choice != NULL ? json_pack("[o]", choice) : json_array());
    if (choice == NULL) {
        json_object_set_new(object, "usage", usage_of(call, call->answer_tokens));
    } else if (call->usage_each) {
        json_object_set_new(object, "usage", usage_of(call, call->written_tokens));
    } else if (call->wants_usage) {
        json_object_set_new(object, "usage", json_null());
    }
    put_event(call, object, due_ns);
}

/* What the loop has said by now, of which the next event is made without its lock. */
struct seen {
    enum call_state state;
    bool has_block;
    bool is_last; /* of the blocks, of a reply that is whole */
    struct call_block block;
};

static struct seen look(const struct held *held) {
    struct call *call = held->call;
    inbox_lock(held->api->inbox);
    const bool has_block = call->n_written < call->n_blocks;
    const struct seen seen = {
        .state = call->state,
        .has_block = has_block,
        .is_last = call->state == CALL_DONE && call->n_written + 1 >= call->n_blocks,
        .block = has_block ? call->blocks[call->n_written] : (struct call_block){0}};
    inbox_unlock(held->api->inbox);
    return seen;
}

/* The next event, into call->pending; false: there is none yet. */
static bool make_event(const struct held *held) {
    const struct api *api = held->api;
    struct call *call = held->call;
    const struct seen seen = look(held);
    if (seen.state == CALL_REFUSED) {
        struct ask_error error;
        size_t size;
        say_refused(api, call, &error);
        char *text = ask_error_text(&error, &size);
        json_t *object = json_loads(text, 0, NULL);
        free(text);
        put_event(call, object, 0);
        call->phase = STREAM_OVER;
        return true;
    }
    if (call->phase == STREAM_BLOCKS && seen.has_block) {
        size_t size;
        const bool is_first = call->n_written++ == 0;
        char *text = replies_text(api->replies, call, seen.block.end_tokens, seen.is_last, &size);
        put_chunk(api, call, chunk_choice(call, text, size, NULL, is_first), seen.block.due_ns);
        free(text);
        return true;
    }
    if (seen.state != CALL_DONE) {
        return false;
    }
    if (call->phase == STREAM_BLOCKS) {
        put_chunk(api, call, chunk_choice(call, "", 0, finish_of(call), false), 0);
        call->phase = call->wants_usage ? STREAM_USAGE : STREAM_END;
        return true;
    }
    if (call->phase == STREAM_USAGE) {
        put_chunk(api, call, NULL, 0);
        call->phase = STREAM_END;
        return true;
    }
    put_line(call, "data: [DONE]\n\n");
    call->phase = STREAM_OVER;
    return true;
}

static size_t more(void *own, char *out, size_t room, bool *is_over) {
    const struct held *held = own;
    struct call *call = held->call;
    size_t n = 0;
    while (n < room) {
        if (call->pending_at == call->pending_size) {
            if (call->phase == STREAM_OVER) {
                *is_over = n == 0;
                break;
            }
            if (!make_event(held)) {
                break;
            }
        }
        const size_t left = call->pending_size - call->pending_at;
        const size_t part = left < room - n ? left : room - n;
        memcpy(out + n, call->pending + call->pending_at, part);
        call->pending_at += part;
        n += part;
        if (call->pending_at == call->pending_size && call->pending_due_ns > 0) {
            inbox_lock(held->api->inbox);
            tally_add(&inbox_tally(held->api->inbox)->written_s,
                      (double)(monotonic_ns() - call->pending_due_ns) * 1e-9);
            inbox_unlock(held->api->inbox);
            call->pending_due_ns = 0;
        }
    }
    return n;
}

/* ---- endpoints ---- */

static struct call *make_call(struct api *api, const struct taking *t, struct ask *ask) {
    struct call *call = mem_zeroed(1, sizeof *call);
    call->arrival = (struct arrival){.id = ask->request_id,
                                     .arrival_ns = ask->arrival_ns,
                                     .prompt_tokens = (uint32_t)ask->prompt.n,
                                     .output_tokens = ask->output_tokens,
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

struct http_hooks api_hooks(struct api *api) {
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
