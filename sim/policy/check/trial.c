#include "sim/policy/check/trial.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/num.h"
#include "sim/base/rng.h"
#include "sim/policy/plugin/registry.h"
#include "sim/serve/executor_sim.h"
#include "sim/serve/loop.h"

enum {
    SEED = 1,
    N_DRAWN = 80,
    N_DRAWN_AGAIN = 8,
    N_DRAWN_NUMBER = 2,
    N_MOST_AGAIN = 40,
    SETTING_CHARS = 320,
    MOST_WORDS = 32
};
#define MOST_ID 3000000000u /* requests of a long trace: no table has a place for each */

/* One workload. Its requests are drawn: prompts of up to `prompt` and outputs of up to
 * `output` tokens, and times between them of `gap_us` on average. */
struct work {
    const char *name, *system, *setting; /* "KEY=VALUE KEY=VALUE" */
    uint32_t kinds; /* 1 << enum policy_kind: of policies that are tried with it */
    uint32_t n, prompt, output, gap_us;
    uint32_t longest;   /* prompt tokens of one request among them; 0: none is longer */
    uint32_t n_clients; /* at most this many at once, the next not known; 0: all arrive */
    uint32_t first_id;
    bool alike;       /* all have as many tokens as they may */
    bool lasts_hours; /* its steps are that slow */
};

#define SCHEDULERS (1u << POLICY_SCHEDULER)
#define CACHES     (1u << POLICY_CACHE)
#define DECODERS   (1u << POLICY_DECODER)
#define ROUTERS    (1u << POLICY_ROUTER)
#define POLICIES   (SCHEDULERS | CACHES | DECODERS)
#define SLOW       " runtime.host_visit_ns=3s"

/* A step takes some milliseconds, and seconds where it is slow: objectives and patience of minutes
 * pass there. */
static const struct work table[] = {
    {"one request alone", "dllm-serve", "", POLICIES, .n = 1, .prompt = 300, .output = 64},
    {"one request alone, its prompt in chunks", "sdar", "max_batched_tokens=64", POLICIES, .n = 1,
     .prompt = 900, .output = 64, .longest = 900},
    {"memory and steps for one, exactly", "dllm-serve",
     "cache=dual page_tokens=16 pool_pages=23 max_batched_tokens=360", SCHEDULERS, .n = 3,
     .prompt = 300, .output = 60, .alike = true},
    {"growing: memory and steps for one, exactly", "sdar",
     "page_tokens=16 pool_pages=23 max_batched_tokens=300", SCHEDULERS, .n = 3, .prompt = 300,
     .output = 60, .alike = true},
    {"one place", "dllm-serve", "max_requests=1", SCHEDULERS, .n = 20, .prompt = 300, .output = 32},
    {"memory for one", "dllm-serve", "page_tokens=16 pool_pages=24", SCHEDULERS, .n = 20,
     .prompt = 300, .output = 32},
    {"steps for one", "dllm-serve", "block_tokens=4 max_batched_tokens=340", SCHEDULERS, .n = 40,
     .prompt = 300, .output = 32},
    {"a thousand at once", "dllm-serve", "max_requests=256", SCHEDULERS, .n = 1000, .prompt = 300,
     .output = 16},
    {"hundreds at once, memory for some", "dllm-serve",
     "page_tokens=16 pool_pages=320 max_requests=256 max_batched_tokens=1024", SCHEDULERS, .n = 900,
     .prompt = 200, .output = 8},
    {"hundreds at once, memory for some, slow", "dllm-serve",
     "page_tokens=16 pool_pages=320 max_requests=256 max_batched_tokens=1024" SLOW, SCHEDULERS,
     .n = 900, .prompt = 200, .output = 8},
    {"ten times too many", "dllm-serve",
     "page_tokens=16 pool_pages=320 max_requests=64 max_batched_tokens=1024", SCHEDULERS, .n = 120,
     .prompt = 200, .output = 8, .gap_us = 500},
    {"ten times too many, slow", "dllm-serve",
     "page_tokens=16 pool_pages=320 max_requests=64 max_batched_tokens=1024" SLOW, SCHEDULERS,
     .n = 120, .prompt = 200, .output = 8, .gap_us = 500000},
    {"memory for three", "dllm-serve", "page_tokens=16 pool_pages=40 max_batched_tokens=256",
     SCHEDULERS, .n = 30, .prompt = 200, .output = 8},
    {"memory for three, slow", "dllm-serve",
     "page_tokens=16 pool_pages=40 max_batched_tokens=256" SLOW, SCHEDULERS, .n = 30, .prompt = 200,
     .output = 8},
    {"one long among many short", "dllm-serve",
     "page_tokens=16 pool_pages=240 max_batched_tokens=3600 max_requests=64", SCHEDULERS, .n = 80,
     .prompt = 200, .output = 8, .gap_us = 2000, .longest = 3000},
    {"one long among many short, slow", "dllm-serve",
     "page_tokens=16 pool_pages=240 max_batched_tokens=3600 max_requests=64" SLOW, SCHEDULERS,
     .n = 80, .prompt = 200, .output = 8, .gap_us = 2000000, .longest = 3000},
    {"growing: hundreds at once, memory for some", "sdar",
     "block_tokens=32 page_tokens=16 pool_pages=320 max_requests=256 max_batched_tokens=1024",
     SCHEDULERS, .n = 900, .prompt = 200, .output = 8},
    {"growing: ten times too many, slow", "sdar",
     "block_tokens=32 page_tokens=16 pool_pages=320 max_batched_tokens=1024" SLOW, SCHEDULERS,
     .n = 120, .prompt = 200, .output = 8, .gap_us = 500000},
    {"growing: memory for one", "sdar",
     "block_tokens=4 page_tokens=16 pool_pages=24 max_batched_tokens=1024", SCHEDULERS | CACHES,
     .n = 20, .prompt = 300, .output = 64},
    {"growing: memory for three", "sdar",
     "block_tokens=32 page_tokens=16 pool_pages=40 max_batched_tokens=256", SCHEDULERS | CACHES,
     .n = 30, .prompt = 200, .output = 256},
    {"growing: two blocks a step", "sdar", "block_tokens=16 page_tokens=16 max_batched_tokens=32",
     CACHES, .n = 40, .prompt = 300, .output = 64},
    {"growing: a block a step", "sdar", "block_tokens=16 page_tokens=16 max_batched_tokens=16",
     SCHEDULERS, .n = 40, .prompt = 300, .output = 64},
    {"growing: a block a step, memory for one", "sdar",
     "block_tokens=16 page_tokens=16 pool_pages=24 max_batched_tokens=16", SCHEDULERS, .n = 40,
     .prompt = 300, .output = 64},
    {"growing: token by token, memory for three", "ar",
     "page_tokens=1 pool_pages=340 max_batched_tokens=64", SCHEDULERS | CACHES, .n = 60,
     .prompt = 200, .output = 128},
    {"growing: one long among many short", "sdar",
     "block_tokens=32 page_tokens=16 pool_pages=240 max_batched_tokens=1024", SCHEDULERS, .n = 80,
     .prompt = 200, .output = 8, .gap_us = 2000, .longest = 3000},
    {"growing: one long among many short, slow", "sdar",
     "block_tokens=32 page_tokens=16 pool_pages=240 max_batched_tokens=1024" SLOW, SCHEDULERS,
     .n = 80, .prompt = 200, .output = 8, .gap_us = 2000000, .longest = 3000},
    {"memory for three, and the host's", "dllm-serve",
     "page_tokens=16 pool_pages=40 max_batched_tokens=256 swap.host_bytes=64MiB", SCHEDULERS,
     .n = 30, .prompt = 200, .output = 8},
    {"growing: memory for three, and the host's", "sdar",
     "block_tokens=32 page_tokens=16 pool_pages=40 max_batched_tokens=256 swap.host_bytes=1GiB",
     SCHEDULERS, .n = 30, .prompt = 200, .output = 256},
    {"growing: memory for three, and the host's for one", "sdar",
     "block_tokens=32 page_tokens=16 pool_pages=40 max_batched_tokens=256 swap.host_bytes=40MiB "
     "swap.overlaps=on",
     SCHEDULERS, .n = 30, .prompt = 200, .output = 256},
    {"growing: deciding ahead, and the host's memory", "ar",
     "page_tokens=64 pool_pages=7 max_batched_tokens=64 swap.host_bytes=1GiB decides_ahead=on",
     SCHEDULERS, .n = 100, .prompt = 300, .output = 100},
    {"one long among short that keep coming, hours", "dllm-serve",
     "cache=none max_requests=8 max_batched_tokens=600 runtime.host_visit_ns=10s", SCHEDULERS,
     .n = 400, .prompt = 200, .output = 8, .longest = 400, .n_clients = 8, .alike = true,
     .lasts_hours = true},
    {"growing: one long among short that keep coming, hours, and the host's memory", "sdar",
     "page_tokens=16 pool_pages=40 max_requests=8 swap.host_bytes=1GiB runtime.host_visit_ns=10s "
     "runtime.host_visit_request_ns=10s",
     SCHEDULERS, .n = 400, .prompt = 200, .output = 8, .longest = 400, .n_clients = 8,
     .alike = true, .lasts_hours = true},
    {"canvases of random tokens", "diffusiongemma", "block_tokens=64", DECODERS, .n = 80,
     .prompt = 300, .output = 160, .gap_us = 50000},
    {"growing: deciding ahead", "ar", "page_tokens=64 pool_pages=7 max_batched_tokens=64",
     SCHEDULERS, .n = 100, .prompt = 300, .output = 100},
    {"clients that wait for their answers", "dllm-serve", "replicas=2 max_requests=8",
     SCHEDULERS | ROUTERS, .n = 60, .prompt = 200, .output = 32, .n_clients = 12},
    {"sixteen replicas at a loss", "dllm-serve", "replicas=16 max_requests=2", ROUTERS, .n = 1000,
     .prompt = 1000, .output = 16, .gap_us = 100},
    {"three replicas at ease", "sdar", "replicas=3", ROUTERS, .n = 200, .prompt = 1000,
     .output = 64, .gap_us = 100000},
};

static uint32_t draw(struct rng *rng, uint32_t from, uint32_t to) {
    return from + (uint32_t)(rng_next(rng) % ((uint64_t)to - from + 1));
}

/* As likely between 1 and 10 as between 10 and 100. */
static uint32_t draw_size(struct rng *rng, uint32_t max) {
    uint32_t bits = 0;
    while (bits < 31 && (max >> bits) > 1) {
        bits++;
    }
    uint32_t top = 1u << draw(rng, 0, bits);
    uint32_t size = draw(rng, top, 2 * top - 1);
    return size < max ? size : max;
}

#define DRAW_OF(rng, list) ((list)[draw(rng, 0, (uint32_t)(sizeof(list) / sizeof *(list)) - 1)])

static void append(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void append(char *text, const char *format, ...) {
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, SETTING_CHARS - used, format, args);
    va_end(args);
    ASSERT(strlen(text) < SETTING_CHARS - 1);
}

/* Any system on any work, with limits that let some requests run alone, or many together. */
static struct work draw_work(struct rng *rng, enum policy_kind kind, char *setting) {
    static const struct {
        const char *system;
        bool grows, has_pages;
        uint32_t block_tokens; /* 0: any */
    } families[] = {
        {"dllm-serve", false, true, 0}, {"dllm-serve", false, true, 0},
        {"fast-dllm", false, false, 0}, {"entropy-cache", false, false, 0},
        {"sdar", true, true, 0},        {"sdar", true, true, 0},
        {"focus", true, true, 0},       {"fast-dllm-v2", true, true, 0},
        {"ar", true, true, 1},
    };
    static const uint32_t blocks[] = {1, 4, 8, 16, 32, 64, 128}, pages[] = {1, 16, 64, 256};
    static const char *const processes[] = {"kumaraswamy", "llada2", "llada", "sdar-27m/hops",
                                            "llada-29m/lookup"};
    static const char *const ends[] = {"off", "off", "block", "position"};
    const size_t family = draw(rng, 0, sizeof families / sizeof families[0] - 1);
    const bool grows = families[family].grows;
    uint32_t block = DRAW_OF(rng, blocks), page = DRAW_OF(rng, pages);
    block = families[family].block_tokens > 0 ? families[family].block_tokens : block;
    struct work work = {.name = "drawn work",
                        .kinds = SCHEDULERS | CACHES | DECODERS | ROUTERS,
                        .system = families[family].system,
                        .setting = setting,
                        .n = draw(rng, 1, 40),
                        .prompt = 1u << draw(rng, 0, 11),
                        .output = 1u << draw(rng, 0, 8),
                        .gap_us = draw_size(rng, 50000),
                        .first_id = kind == POLICY_SCHEDULER ? MOST_ID : 0};
    uint32_t canvas = work.prompt + work.output;
    uint32_t width =
        grows ? block * draw(rng, 1, 16) + draw(rng, 0, block - 1) : canvas * draw(rng, 1, 8);
    /* A pass may cross into the next block. */
    uint32_t least = kind == POLICY_CACHE ? 2 * block : block;
    setting[0] = '\0';
    append(setting, "block_tokens=%u max_batched_tokens=%u max_requests=%u", block,
           width > least ? width : least, draw_size(rng, 64));
    append(setting, " early_stop=%s confidence=%s confidence_drop=%u", DRAW_OF(rng, ends),
           DRAW_OF(rng, processes), draw(rng, 0, 3) == 0 ? 100 : draw(rng, 0, 3));
    if (block > 1) {
        append(setting, " steps_per_block=%u", draw(rng, 1, block));
    }
    if (families[family].has_pages) {
        append(setting, " page_tokens=%u pool_pages=%u", page,
               (uint32_t)ceil_div(canvas, page) * draw(rng, 1, grows ? 4 : 12) + draw(rng, 0, 2));
    }
    if (grows) {
        append(setting, " scheduler=chunked decides_ahead=%s", draw(rng, 0, 2) == 0 ? "on" : "off");
    }
    if (draw(rng, 0, 3) == 0 || kind == POLICY_ROUTER) {
        append(setting, " replicas=%u", draw(rng, 2, 16));
    }
    if (draw(rng, 0, 3) == 0) {
        append(setting, " runtime.host_visit_ns=%u00ms", draw(rng, 1, 100));
    }
    work.n_clients = draw(rng, 0, 3) == 0 ? draw_size(rng, 16) : 0;
    return work;
}

/* ---- requests ---- */

struct source {
    const struct work *work;
    struct rng rng;
    uint64_t next, n_ended;
    int64_t now_ns;
    uint64_t most_decisions; /* that all of them can take */
};

static enum source_reply next_arrival(void *state, struct arrival *out, struct err *err) {
    struct source *source = state;
    const struct work *work = source->work;
    (void)err;
    if (source->next == work->n) {
        return SOURCE_END;
    }
    if (work->n_clients > 0 && source->next >= source->n_ended + work->n_clients) {
        return SOURCE_WAIT;
    }
    const bool is_longest = work->longest > 0 && source->next == (work->n > 3 ? 3 : 0);
    static const uint32_t tenants[] = {0, 1, 2, 4000000000u}; /* any number names one */
    *out = (struct arrival){
        .id = work->first_id + source->next++,
        .arrival_ns = source->now_ns,
        .prompt_tokens = is_longest    ? work->longest
                         : work->alike ? work->prompt
                                       : draw_size(&source->rng, work->prompt),
        .output_tokens = is_longest    ? 160
                         : work->alike ? work->output
                                       : draw_size(&source->rng, work->output),
        .tenant = tenants[source->next % 4],
        .priority = (uint32_t)(source->next % 5),
        .due_ns = source->next % 4 == 0 ? 0 : (int64_t)(source->next % 7 + 1) * 400000000,
        .predicted_tokens = (uint32_t)(source->next * 37 % 200),
        .think_ns = -1};
    out->answer_tokens =
        source->next % 2 == 0 ? draw(&source->rng, 1, out->output_tokens) : out->output_tokens;
    source->now_ns +=
        work->gap_us > 0 ? INT64_C(1000) * draw(&source->rng, 0, 2 * work->gap_us) : 0;
    return SOURCE_ROW;
}

static void note_end(void *state, uint64_t id, int64_t now_ns) {
    struct source *source = state;
    (void)id;
    source->n_ended++;
    source->now_ns = now_ns > source->now_ns ? now_ns : source->now_ns;
}

/* Four times over, since those that are preempted compute again: a step for each token and each
 * token of a prompt. */
static uint64_t most_decisions(const struct work *work) {
    return 4 * ((uint64_t)work->n * (work->prompt + 2 * work->output) + work->longest + 500);
}

/* ---- serving ---- */

static struct setting *add_setting(struct setting *settings, uint32_t *n, const char *key,
                                   const char *value) {
    ASSERT(*n < MOST_WORDS);
    struct setting *setting = &settings[(*n)++];
    *setting = (struct setting){.place = "trial"};
    snprintf(setting->key, sizeof setting->key, "%s", key);
    snprintf(setting->value, sizeof setting->value, "%s", value);
    return setting;
}

/* What is tried, by which name, and one of its parameters. */
struct tried {
    const char *name;
    union any_policy *policy;
    const char *param, *value; /* NULL: all have their initial values */
};

/* The system with what is tried in it. */
static int open_system(const struct work *work, const struct tried *tried, struct system **out,
                       struct err *err) {
    struct setting settings[MOST_WORDS];
    char words[SETTING_CHARS], *rest = words;
    const char *part = policy_kind_names[tried->policy->policy.kind];
    uint32_t n = 0;
    snprintf(words, sizeof words, "%s", work->setting);
    for (char *key = strtok_r(words, " ", &rest); key != NULL; key = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(key, '=');
        ASSERT(value != NULL);
        *value = '\0';
        add_setting(settings, &n, key, value + 1);
    }
    add_setting(settings, &n, "max_in_system", "1024");
    add_setting(settings, &n, part, tried->name);
    if (tried->param != NULL) {
        char key[sizeof settings[0].key];
        snprintf(key, sizeof key, "%s.%s", part, tried->param);
        add_setting(settings, &n, key, tried->value);
    }
    const struct system_request request = {.system = work->system,
                                           .gpu = "h200",
                                           .overrides = settings,
                                           .n_overrides = n,
                                           .roofline = true};
    if (system_open(&request, out, err) != 0) {
        return (int)err->kind;
    }
    switch ((enum policy_kind)tried->policy->policy.kind) {
    case POLICY_SCHEDULER:
        (*out)->scheduler = &tried->policy->scheduler;
        break;
    case POLICY_CACHE:
        (*out)->cache = &tried->policy->cache;
        break;
    case POLICY_DECODER:
        (*out)->decoder = &tried->policy->decoder;
        break;
    case POLICY_ROUTER:
        (*out)->router = &tried->policy->router;
        break;
    }
    return 0;
}

/* Serves it; what was wrong is in trial->err. */
static void serve(struct trial *trial, const struct work *work, const struct tried *tried) {
    struct twice *twice = &trial->twice;
    struct system *system;
    struct err err = {0};
    snprintf(trial->work, sizeof trial->work, "%s%s%s%s%s", work->name,
             tried->param != NULL ? ", with " : "", tried->param != NULL ? tried->param : "",
             tried->param != NULL ? " = " : "", tried->param != NULL ? tried->value : "");
    twice->n_decisions = 0;
    twice->lasts_hours = work->lasts_hours;
    twice->most_decisions = most_decisions(work);
    int status = open_system(work, tried, &system, &err);
    if (status != 0) { /* it does not go with such a policy, or memory for no request */
        trial->err = twice->err;
        trial->refusal = err;
        return;
    }
    struct source source = {.work = work, .rng = rng_stream(SEED, "trial")};
    struct executor_sim *sim = executor_sim_open(system, system->settings.replicas);
    const struct loop_request request = {
        .system = system,
        .executor = executor_sim_interface(sim),
        .source = {&source, next_arrival, work->n_clients > 0 ? note_end : NULL, NULL},
        .is_trial = true,
        .lets_wait = tried->policy->policy.kind == POLICY_CACHE,
        .seed = SEED,
        .stop = &twice->stop};
    struct loop_result result;
    status = loop_run(&request, &result, &err);
    executor_sim_close(sim);
    system_close(system);
    if (twice->err.kind != ERR_NONE) {
        trial->err = twice->err;
    } else if (status != 0) {
        trial->err = err;
    } else if (twice->stop) {
        err_world(&trial->err,
                  "%s %s starves: %llu of %llu requests are not done after %llu decisions",
                  policy_kind_names[tried->policy->policy.kind], tried->policy->policy.name,
                  (unsigned long long)(result.arrived - result.completed),
                  (unsigned long long)result.arrived, (unsigned long long)twice->n_decisions);
    }
}

/* Notes what was served since there were `before` calls, or of what the promise was broken. */
static void note_served(struct trial *trial, uint64_t before) {
    struct err *err = &trial->err;
    if (err->kind != ERR_NONE) {
        size_t used = strlen(err->text);
        snprintf(err->text + used, sizeof err->text - used, " (call %llu, %s)",
                 (unsigned long long)trial->twice.n_calls, trial->work);
    } else if (trial->n_served < TRIAL_MOST_SERVED && trial->twice.n_calls > before) {
        struct served *served = &trial->served[trial->n_served++];
        snprintf(served->name, sizeof served->name, "%s", trial->work);
        served->n_calls = trial->twice.n_calls - before;
    }
}

/* The table's workloads of at most n_most requests, then n_drawn drawn ones; a line for each
 * served, or for all drawn. */
static void serve_all(struct trial *trial, const struct tried *tried, uint32_t n_most,
                      uint32_t n_drawn) {
    const uint32_t n_table = sizeof table / sizeof table[0];
    const enum policy_kind kind = tried->policy->policy.kind;
    struct rng rng = rng_stream(SEED, "drawn work");
    uint64_t before = trial->twice.n_calls;
    for (uint32_t i = 0; i < n_table + n_drawn && trial->err.kind == ERR_NONE; i++) {
        char setting[SETTING_CHARS];
        const struct work work = i < n_table ? table[i] : draw_work(&rng, kind, setting);
        if ((work.kinds >> kind & 1) != 0 && (i >= n_table || work.n <= n_most)) {
            serve(trial, &work, tried);
        }
        bool ends_line = i < n_table ? tried->param == NULL : i + 1 == n_table + n_drawn;
        if (ends_line || trial->err.kind != ERR_NONE) {
            note_served(trial, before);
            before = trial->twice.n_calls;
        }
    }
}

/* A number within the range, as likely small as large. */
static double draw_number(struct rng *rng, const struct param *param) {
    const double u = (double)draw(rng, 0, 1000) / 1000;
    const double low = fmax(param->min, 0), span = param->max - low;
    const double value = span > 1 ? low + expm1(u * log1p(span)) : low + u * span;
    return param->type == PARAM_F64 ? value : floor(value);
}

/* Every other value of a switch or a word; of a number both ends of its range and one between. */
static void try_values(struct trial *trial, struct tried *tried, const struct param *param,
                       struct rng *rng) {
    static const char *const truths[] = {"on", "off", NULL};
    const bool is_word = param->type == PARAM_WORD;
    const char *const *words = is_word ? param->words : truths;
    tried->param = param->name;
    for (uint32_t j = 0; (is_word || param->type == PARAM_BOOL) && words[j] != NULL; j++) {
        if (trial->err.kind == ERR_NONE && strcmp(words[j], param->initial) != 0) {
            tried->value = words[j];
            trial->twice.drops_words = false;
            serve_all(trial, tried, UINT32_MAX, N_DRAWN_AGAIN);
        }
    }
    const double numbers[] = {param->min, param->max, draw_number(rng, param)};
    for (int j = 0; !is_word && param->type != PARAM_BOOL && j < 3; j++) {
        char text[40];
        snprintf(text, sizeof text, param->type == PARAM_F64 ? "%.9g" : "%.0f", numbers[j]);
        if (trial->err.kind == ERR_NONE) {
            trial->twice.drops_words = true;
            tried->value = text;
            serve_all(trial, tried, N_MOST_AGAIN, N_DRAWN_NUMBER);
        }
    }
}

void trial_run(struct trial *trial, const char *name, union any_policy *policy) {
    struct tried tried = {.name = name, .policy = policy};
    struct rng rng = rng_stream(SEED, "values");
    memset(trial, 0, sizeof *trial);
    twice_wrap(&trial->twice, policy);
    serve_all(trial, &tried, UINT32_MAX, N_DRAWN);
    if (trial->n_served == 0 && trial->err.kind == ERR_NONE) {
        err_world(&trial->err, "no system goes with it: %s", trial->refusal.text);
    }
    for (uint64_t i = 0; i < policy->policy.n_params && trial->err.kind == ERR_NONE; i++) {
        try_values(trial, &tried, &policy->policy.params[i], &rng);
    }
}
