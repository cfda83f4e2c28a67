#include "experiments/serve/serve.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "experiments/run/cli/interrupt.h"
#include "experiments/run/prefixes.h"
#include "experiments/run/recorder.h"
#include "experiments/serve/api.h"
#include "experiments/serve/listen.h"
#include "sim/base/mem.h"
#include "sim/base/monotonic.h"
#include "sim/base/names.h"
#include "sim/base/rng.h"
#include "sim/base/system.h"
#include "traces/lengths.h"

/* How long replies may take to leave once no more is computed. */
static const int64_t flush_ns = 5000000000;
enum { FILES_BESIDE = 64, KEPT_REQUESTS = 32768 };

struct serving {
    const struct serve_request *request;
    struct composition *run;
    struct replies replies;
    struct length *answers;    /* NULL: outputs are answers */
    struct prefixes *prefixes; /* NULL: the system caches none */
    struct inbox *inbox;
    struct api api;
    const struct http_library *http;
    struct http_server *server;
    char *key;
    int listening;
    struct store *store;
    struct recorder *recorder;
};

/* ---- opening ---- */

/* MODEL,KEY=VALUE,... */
static int open_answers(struct serving *s, struct err *err) {
    static const char place[] = "--answers";
    const char *rest = s->request->answers, *word;
    size_t length;
    char text[128];
    int status = 0;
    for (bool is_first = true; status == 0 && rest != NULL && name_next(&rest, ",", &word, &length);
         is_first = false) {
        if (length >= sizeof text) {
            return err_usage(err, "--answers: a word of it is too long");
        }
        snprintf(text, sizeof text, "%.*s", (int)length, word);
        char *equals = strchr(text, '=');
        if (is_first) {
            status = length_open(text, place, LENGTH_ANSWER, &s->answers, err);
        } else if (equals == NULL) {
            status = err_usage(err, "--answers: '%s' is not KEY=VALUE", text);
        } else {
            *equals = '\0';
            status = length_set(s->answers, place, text, equals + 1, err);
        }
    }
    if (status == 0 && s->answers != NULL && length_is_logged(s->answers)) {
        status = err_usage(err, "--answers: there is no trace to take answers from");
    }
    return status != 0 || s->answers == NULL
               ? status
               : length_start(s->answers, s->request->run->options.seed, err);
}

static uint32_t answer_of(const struct serving *s, const struct call *call) {
    const uint64_t id = call->arrival.id;
    const uint32_t most = call->arrival.output_tokens;
    const uint64_t key = replies_key(&s->replies, call, id);
    uint32_t answer = s->answers == NULL || call->ignores_end
                          ? 0
                          : length_answer_at(s->answers, most, rng_at(key, UINT32_MAX));
    answer = answer > 0 && answer < call->min_tokens ? call->min_tokens : answer;
    const uint32_t stop =
        call->stops == NULL ? 0 : replies_stop(&s->replies, call, id, answer > 0 ? answer : most);
    return stop > 0 ? stop : answer;
}

/* Of a simulation: the answer, and what of the prompt is cached. */
static void on_arrive(void *state, struct call *call) {
    const struct serving *s = state;
    struct arrival *arrival = &call->arrival;
    arrival->answer_tokens = answer_of(s, call);
    if (s->prefixes == NULL) {
        return;
    }
    uint32_t n = arrival->answer_tokens > 0 ? arrival->answer_tokens : arrival->output_tokens;
    int32_t *answer = mem_unwritten(n, sizeof *answer);
    n = replies_ids(&s->replies, call, arrival->id, n, answer) ? n : 0;
    prefixes_arrive(s->prefixes, call->prompt, answer, n, arrival);
    free(answer);
}

/* Of a device: what of the prompt is cached, and what later ones may begin with. */
static void on_arrive_live(void *state, struct call *call) {
    prefixes_arrive(((const struct serving *)state)->prefixes, call->prompt, NULL, 0,
                    &call->arrival);
}

static void on_answer(void *state, const struct call *call, const int32_t *tokens, uint32_t n) {
    prefixes_answer(((const struct serving *)state)->prefixes, &call->arrival, tokens, n);
}

static void on_arrive_later(void *state) {
    prefixes_take_back(((const struct serving *)state)->prefixes);
}

static void on_leave(void *state, const struct call *call) {
    prefixes_forget(((const struct serving *)state)->prefixes, call->arrival.leaves);
}

static int check_system(const struct serving *s, struct err *err) {
    const struct system *system = s->run->system;
    return system->scheduler->policy.kind == POLICY_SCHEDULER && s->run->decode == NULL
               ? 0
               : err_usage(err, "serve decides itself what passes commit");
}

static int open_replies(struct serving *s, struct err *err) {
    const struct serve_request *request = s->request;
    const bool is_device = s->run->fleet != NULL;
    const struct replies_request wanted = {
        .tokenizer = request->tokenizer,
        .chat = request->chat,
        .echoes = request->echoes,
        .decodes = is_device && !backend_has_random_weights(&request->run->backend),
        .seed = request->run->options.seed};
    const struct model *model = s->run->system->whole;
    int status = replies_open(&wanted, &s->replies, err);
    return status == 0 && is_device && s->replies.tokenizer != NULL
               ? tokenizer_check_fits(s->replies.tokenizer, model->name, model->vocab, err)
               : status;
}

/* Of a device, by the first `n` tokens that it decoded. */
static uint32_t stop_of(void *state, const struct call *call, uint32_t n) {
    const struct serving *s = state;
    return replies_stop(&s->replies, call, call->arrival.id, n);
}

static void open_inbox(struct serving *s) {
    const struct serve_request *request = s->request;
    const uint32_t most = s->run->system->settings.max_in_system;
    struct live *live = s->run->fleet != NULL ? fleet_live(s->run->fleet, 0) : NULL;
    if (s->run->system->settings.prefix_caching) {
        s->prefixes = prefixes_open();
    }
    const struct inbox_request wanted = {
        .http = s->http,
        .clock = live != NULL ? CLOCK_DEVICE : request->clock,
        .speed = request->speed,
        .clients = request->clients,
        .capacity = request->capacity > 0 && request->capacity < most ? request->capacity : most,
        .drain_ns = request->drain_ns,
        .interrupt = interrupt_catch(),
        .live = live,
        .arrive = live == NULL          ? on_arrive
                  : s->prefixes != NULL ? on_arrive_live
                                        : NULL,
        .answer = live != NULL && s->prefixes != NULL ? on_answer : NULL,
        .arrive_later = s->prefixes != NULL ? on_arrive_later : NULL,
        .leave = s->prefixes != NULL ? on_leave : NULL,
        .stop = stop_of,
        .state = s};
    s->inbox = inbox_open(&wanted);
    for (uint32_t r = 0; live != NULL && r < fleet_replicas(s->run->fleet); r++) {
        struct live *own = fleet_live(s->run->fleet, r);
        live_set_prompt(own, inbox_prompt, s->inbox);
        live_set_show(own, inbox_show, s->inbox);
        live_set_output(own, inbox_output, s->inbox);
    }
}

static void state_facts(struct serving *s) {
    const struct serve_request *request = s->request;
    const struct system *system = s->run->system;
    const struct settings *settings = &system->settings;
    s->api =
        (struct api){.http = s->http,
                     .inbox = s->inbox,
                     .replies = &s->replies,
                     .key = s->key,
                     .kv_total_bytes = system->budget.pool_bytes,
                     .started_s = (int64_t)time(NULL),
                     .facts = {.model = request->name != NULL ? request->name : system->model->name,
                               .context_tokens = settings->context_tokens,
                               .vocab = system->whole->vocab,
                               .default_tokens = request->output_tokens,
                               .system = system,
                               .is_device = s->run->fleet != NULL,
                               .looks_for_ends = s->run->ends.n > 0,
                               .takes_arrivals = request->clock == CLOCK_VIRTUAL,
                               .replies = &s->replies}};
}

static int open_recorder(struct serving *s, struct err *err) {
    const struct serve_request *request = s->request;
    if (request->db == NULL) {
        return 0;
    }
    store_stop_on(interrupt_catch());
    int status = store_open(request->db, STORE_WRITE, &s->store, err);
    if (status == 0) {
        s->recorder =
            recorder_open(s->store, &s->run->facts, &s->run->summary.slo, request->level, true);
    }
    return status;
}

/* Signals are the main thread's. */
static const char *open_library(struct serving *s, const struct http_hooks *hooks) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    const char *failed = s->http->open(s->listening, &s->request->limits, hooks, &s->server);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

static int open_server(struct serving *s, struct err *err) {
    const struct http_hooks hooks = api_hooks(&s->api);
    char shown[LISTEN_CHARS];
    system_run_promptly();
    int status = listen_on(s->request->listen, &s->listening, shown, err);
    if (status != 0) {
        return status;
    }
    const uint64_t n_files = files_raise();
    if (n_files < (uint64_t)s->request->limits.connections + FILES_BESIDE) {
        return err_world(err,
                         "%" PRIu32 " connections need as many files, of which the system lets "
                         "the program have %" PRIu64 ": --connections, or `ulimit -n`",
                         s->request->limits.connections, n_files);
    }
    const char *failed = open_library(s, &hooks);
    if (failed != NULL) {
        return err_world(err, "serve: %s", failed);
    }
    s->listening = -1; /* the library's */
    inbox_attach(s->inbox, s->server);
    fprintf(stderr, "unmask: %s, %s on %s, as '%s' at http://%s\n", s->run->facts.system,
            s->run->facts.model, s->run->facts.gpu, s->api.facts.model, shown);
    return 0;
}

static int open_all(struct serving *s, struct err *err) {
    const struct serve_request *request = s->request;
    int status = http_load(&s->http, err);
    if (status == 0 && request->key_file != NULL) {
        status = key_read(request->key_file, &s->key, err);
    }
    status = status != 0 ? status : open_answers(s, err);
    status = status != 0 ? status : compose_open(request->run, &s->run, err);
    status = status != 0 ? status : check_system(s, err);
    status = status != 0 ? status : open_replies(s, err);
    if (status != 0) {
        return status;
    }
    if (request->db == NULL) {
        summary_limit(&s->run->summary, KEPT_REQUESTS); /* a replay counts all that is recorded */
    }
    open_inbox(s);
    state_facts(s);
    status = open_recorder(s, err);
    return status != 0 ? status : open_server(s, err);
}

/* ---- the end ---- */

/* Replies that are whole leave before connections are closed. */
static void flush(const struct serving *s) {
    enum { NAP_NS = 2000000 };
    const int64_t until_ns = monotonic_ns() + flush_ns;
    while (s->http->n_busy(s->server) > 0 && monotonic_ns() < until_ns) {
        system_nap(NAP_NS);
    }
}

static int record(struct serving *s, struct err *err) {
    struct recording recording = {
        .recorder = s->recorder, .summary = &s->run->summary, .facts = &s->run->facts};
    int status = recorder_finish(&recording, err);
    if (recording.run > 0) {
        fprintf(stderr, "unmask: recorded as run %" PRId64 " of %s%s\n", recording.run,
                store_path(s->store), status != 0 ? ", incomplete: the end is missing" : "");
    }
    return status;
}

static void end_server(struct serving *s, int status, const struct err *err) {
    if (s->server == NULL) {
        return;
    }
    if (status != 0) {
        snprintf(s->api.end_sentence, sizeof s->api.end_sentence, "%s", err->text);
    }
    inbox_end(s->inbox, api_give_up, &s->api);
    flush(s);
    s->http->close(s->server);
    s->server = NULL;
}

static void close_all(struct serving *s) {
    if (s->listening >= 0) {
        close(s->listening);
    }
    recorder_close(s->recorder);
    store_close(s->store);
    inbox_close(s->inbox);
    replies_close(&s->replies);
    prefixes_close(s->prefixes);
    api_close(&s->api);
    length_close(s->answers);
    free(s->key);
}

/* Nothing is computed once clients have what they asked for; what they did is a whole run. */
static int serve(struct serving *s, struct err *err) {
    const struct arrival_source source = inbox_source(s->inbox);
    struct sink sinks[2] = {inbox_sink(s->inbox)};
    uint32_t n_sinks = 1;
    if (s->recorder != NULL) {
        sinks[n_sinks++] = recorder_sink(s->recorder);
    }
    const struct run_watch watch = {.source = &source,
                                    .around = inbox_around,
                                    .around_state = s->inbox,
                                    .sinks = sinks,
                                    .n_sinks = n_sinks,
                                    .records_members = true,
                                    .stop = inbox_stop(s->inbox)};
    return compose_run(s->run, &watch, err);
}

int serve_run(const struct serve_request *request, struct composition **out, struct err *err) {
    struct serving s = {.request = request, .listening = -1};
    *out = NULL;
    int status = open_all(&s, err);
    const bool is_open = status == 0;
    if (is_open) {
        status = serve(&s, err);
    }
    end_server(&s, status, err);
    if (is_open && s.recorder != NULL) {
        struct err late = {0};
        if (record(&s, &late) != 0 && status == 0) {
            *err = late;
            status = err_status(err);
        }
    }
    if (is_open && status == 0) {
        const uint64_t n_left = inbox_n_left(s.inbox);
        fprintf(stderr, "unmask: %" PRIu64 " requests served, %" PRIu64 " given up\n",
                s.run->summary.completed, n_left);
        *out = s.run;
    } else {
        compose_close(s.run);
    }
    close_all(&s);
    return status;
}
