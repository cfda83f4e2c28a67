/* Every key of every shipped system does something, or a warning says that it does nothing: each is
 * moved to other legal values over small workloads, and what was served is compared. Cases and
 * exceptions are data: tests/experiments/settings/cases.ini.
 *
 * A legal value may be refused in a sentence; a warning where the record changes all the same is a
 * fault, too. UNMASK_SETTINGS=PATTERN: the systems to try (make settings-test tries all); else
 * those that cases.ini has as `cut`. */
#include <fnmatch.h>
#include <stdlib.h>
#include <time.h>

#include "sim/base/mem.h"
#include "sim/memory/placement.h"
#include "sim/policy/plugin/registry.h"
#include "sim/price/runtime.h"
#include "sim/system/lmax.h"
#include "sim/system/system_facts.h"
#include "sim/system/system_reads.h"
#include "tests/support/cases.h"

enum { MOST_VALUES = 24, MOST_KEYS = 256 };

/* ---- one run ---- */

struct served {
    bool is_refused, is_warned;
    uint64_t digest;
    char text[200]; /* why it was refused */
};

static bool warns_of(const struct warnings *warnings, const char *key) {
    for (unsigned i = 0; i < warnings->n; i++) {
        const char *rest = name_behind(warnings->items[i].text, key);
        if (warnings->items[i].code == WARNING_SETTING_UNUSED && rest != NULL && *rest == ' ') {
            return true;
        }
    }
    return false;
}

static void serve(const char *system, const struct test_case *of, const struct setting *moved,
                  struct served *out) {
    struct run_request request = {
        .system = system, .gpu = of->gpu, .workload = of->workload, .options.seed = 1};
    struct setting settings[MOST_SET + 1];
    memcpy(settings, of->set, sizeof of->set);
    request.settings = settings;
    request.n_settings = of->n_set;
    if (moved != NULL) {
        settings[request.n_settings++] = *moved;
    }
    struct err err = {0};
    struct composition *c = NULL;
    json_t *summary = NULL;
    *out = (struct served){.digest = UINT64_C(0xcbf29ce484222325)};
    const struct sink sink = {.state = &out->digest, .request = mix_request};
    const struct run_watch watch = {.sinks = &sink, .n_sinks = 1};
    int status = compose_open(&request, &c, &err);
    status = status == 0 ? compose_run(c, &watch, &err) : status;
    status = status == 0 ? summary_json(&c->summary, &c->facts, &summary, &err) : status;
    out->is_refused = status != 0;
    snprintf(out->text, sizeof out->text, "%.199s", err.text);
    if (status == 0) {
        mix_numbers(&out->digest, summary);
        out->is_warned = moved != NULL && warns_of(&c->facts.warnings, moved->key);
    }
    json_decref(summary);
    compose_close(c);
}

/* Systems whose allocator is PyTorch's: what the longest canvas holds. */
static void plan(const char *system, const struct test_case *of, const struct setting *moved,
                 struct served *out) {
    struct setting settings[MOST_SET + 1];
    struct system_request request = {.system = system, .gpu = of->gpu, .overrides = settings};
    struct err err = {0};
    struct system *s = NULL;
    if (moved != NULL) {
        settings[request.n_overrides++] = *moved;
    }
    *out = (struct served){.digest = UINT64_C(0xcbf29ce484222325)};
    int status = system_open(&request, &s, &err);
    struct lmax_request ask = {.system = s, .prompt_share = 0.5};
    struct lmax *found = mem_zeroed(1, sizeof *found);
    status = status == 0 ? lmax_find(&ask, found, &err) : status;
    out->is_refused = status != 0;
    snprintf(out->text, sizeof out->text, "%.199s", err.text);
    if (status == 0) {
        const int64_t all[] = {found->memory_bytes,          found->weights_bytes,
                               found->reserve_bytes,         found->available_bytes,
                               found->longest.canvas_tokens, found->longest.held_bytes,
                               found->longest.cached_bytes,  found->longest.unlimited_bytes,
                               found->beyond.held_bytes,     found->bound};
        MIX(&out->digest, all);
        MIX(&out->digest, found->longest.par);
        const struct system_in in = {s, "lmax"};
        const struct facts facts = {system_in_fact, &in};
        struct warnings warnings = {0};
        system_warn_of_unread(s, &facts, &warnings);
        out->is_warned = moved != NULL && warns_of(&warnings, moved->key);
    }
    free(found);
    system_close(s);
}

/* ---- the data beside the test ---- */

/* The reason why the pair is an exception, or NULL. */
static const struct config_entry *exception(const char *system, const char *key) {
    const struct config_entry *entry = NULL;
    char pair[160];
    snprintf(pair, sizeof pair, "%.80s/%.70s", system, key);
    while ((entry = config_next(&data, "exceptions", NULL, entry)) != NULL) {
        if (fnmatch(entry->key, pair, 0) == 0) {
            return entry;
        }
    }
    return NULL;
}

/* ---- keys and their other legal values ---- */

struct moved_key {
    char key[SETTING_KEY_CHARS];
    const struct param *param; /* NULL: what chooses a part */
    enum policy_kind kind;     /* of a policy that is chosen */
};

static size_t add_params(struct moved_key *keys, size_t n, const char *prefix,
                         const struct param *params, size_t n_params) {
    for (size_t i = 0; i < n_params; i++, n++) {
        ck_assert_uint_lt(n, MOST_KEYS);
        keys[n] = (struct moved_key){.param = &params[i]};
        snprintf(keys[n].key, sizeof keys[n].key, "%s%s", prefix, params[i].name);
    }
    return n;
}

static size_t list_keys(const struct system *s, bool with_model, struct moved_key *keys) {
    const struct policy *const policies[] = {&s->scheduler->policy, &s->cache->policy,
                                             &s->decoder->policy, &s->router->policy};
    static const char *const parts[] = {"runtime", "planner", "host", "confidence"};
    size_t n = add_params(keys, 0, "", system_params, system_n_params);
    n = add_params(keys, n, "runtime.", runtime_params, runtime_n_params);
    n = add_params(keys, n, "host.", host_params, host_n_params);
    n = with_model ? add_params(keys, n, "model.", model_params, model_n_params) : n;
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        char prefix[64];
        const char *kind = policy_kind_names[policies[i]->kind];
        snprintf(prefix, sizeof prefix, "%s.", kind);
        n = add_params(keys, n, prefix, policies[i]->params, policies[i]->n_params);
        keys[n] = (struct moved_key){.kind = (enum policy_kind)policies[i]->kind};
        snprintf(keys[n++].key, sizeof keys->key, "%s", kind);
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        keys[n] = (struct moved_key){.param = NULL};
        snprintf(keys[n++].key, sizeof keys->key, "%s", parts[i]);
    }
    return n;
}

struct value {
    char text[64];
};

static size_t add_value(struct value *values, size_t n, const char *now, const char *value) {
    bool is_new = strcmp(now, value) != 0 && n < MOST_VALUES;
    for (size_t i = 0; i < n; i++) {
        is_new = is_new && strcmp(values[i].text, value) != 0;
    }
    if (is_new) {
        snprintf(values[n].text, sizeof values[n].text, "%s", value);
    }
    return n + is_new;
}

/* Beside what is in force: near it, far from it, and the ends of what is allowed. */
static size_t list_numbers(const struct param *p, const char *now, struct value *values) {
    const double at = strtod(now, NULL), span = p->max - p->min < 100 ? p->max - p->min : 1;
    const double tried[] = {2 * at,
                            at / 2,
                            at + 1,
                            at - 1,
                            at / 8,
                            8 * at,
                            p->min + 0.3 * span,
                            p->min + 0.7 * span,
                            1,
                            2,
                            3,
                            4,
                            6,
                            16,
                            64,
                            128,
                            1000,
                            10000,
                            1e6,
                            p->min,
                            p->max};
    size_t n = 0;
    for (size_t i = 0; i < sizeof tried / sizeof tried[0]; i++) {
        double value = p->type == PARAM_F64 ? tried[i] : (double)(int64_t)tried[i];
        char text[64];
        snprintf(text, sizeof text, "%.17g", value);
        if (value >= p->min && value <= p->max) {
            n = add_value(values, n, now, text);
        }
    }
    return n;
}

static size_t list_names(const struct moved_key *key, const char *now, struct value *values) {
    struct err err = {0};
    size_t n = 0;
    if (key->kind != 0) {
        for (size_t i = 0; i < policy_count(key->kind); i++) {
            n = add_value(values, n, now, policy_at(key->kind, i)->name);
        }
    } else if (strcmp(key->key, "runtime") == 0) {
        for (const struct runtime_preset *const *all = runtime_all(&err); *all != NULL; all++) {
            n = add_value(values, n, now, (*all)->name);
        }
    } else if (strcmp(key->key, "planner") == 0) {
        for (size_t i = 0; i < planner_table_size; i++) {
            n = add_value(values, n, now, planner_table[i].name);
        }
    } else if (strcmp(key->key, "host") == 0) {
        n = add_value(values, n, now, "reference");
        n = add_value(values, n, now, "dllm-serve-l40s");
    } else {
        n = add_value(values, n, now, "kumaraswamy");
        n = add_value(values, n, now, "llada-td/gsm8k");
    }
    return n;
}

static size_t list_values(const struct moved_key *key, const char *now, struct value *values) {
    const struct param *p = key->param;
    size_t n = 0;
    if (p == NULL) {
        return list_names(key, now, values);
    }
    if (p->type == PARAM_BOOL) {
        return add_value(values, 0, now, strcmp(now, "on") == 0 ? "off" : "on");
    }
    for (size_t i = 0; p->type == PARAM_WORD && p->words[i] != NULL; i++) {
        n = add_value(values, n, now, p->words[i]);
    }
    return p->type == PARAM_WORD ? n : list_numbers(p, now, values);
}

/* ---- moving them ---- */

struct tally {
    size_t systems, pairs, runs, changed, warned, refused, excepted, faults;
};

struct mover {
    const char *system;
    bool is_served; /* else planned by `plan lmax` */
    struct served base[MOST_CASES];
    struct tally *tally;
};

static void run_case(const struct mover *m, size_t i, const struct setting *moved,
                     struct served *out) {
    (m->is_served ? serve : plan)(m->system, &cases[i], moved, out);
    m->tally->runs++;
}

/* What all other values of a key come to. */
struct verdict {
    bool changes, warns, lies, is_refused;
    char text[200]; /* why it was refused, or which value changed what it warned of */
};

static void try_value(const struct mover *m, const struct setting *moved, struct verdict *v) {
    for (size_t i = 0; i < (m->is_served ? n_cases : 1) && !v->changes; i++) {
        struct served now;
        if (m->base[i].is_refused) {
            continue;
        }
        run_case(m, i, moved, &now);
        bool differs = !now.is_refused && now.digest != m->base[i].digest;
        if (now.is_refused && !v->lies) {
            snprintf(v->text, sizeof v->text, "%s", now.text);
        }
        if (differs && now.is_warned && !v->lies) {
            snprintf(v->text, sizeof v->text, "%.60s in %s", moved->value, cases[i].name);
            v->lies = true;
        }
        v->is_refused = v->is_refused || now.is_refused;
        v->warns = v->warns || now.is_warned;
        v->changes = v->changes || (differs && !now.is_warned);
    }
}

static void count_verdict(struct tally *tally, const char *system, const char *key,
                          const struct verdict *v) {
    const struct config_entry *why = exception(system, key);
    bool is_silent = !v->changes && !v->warns && !v->is_refused;
    bool is_needless = why != NULL && !is_silent && strchr(why->key, '*') == NULL;
    const char *fault = v->lies                    ? "warns, but changes the record"
                        : is_silent && why == NULL ? "does nothing and says nothing"
                        : is_needless              ? "needs no exception"
                                                   : NULL;
    tally->pairs++;
    tally->changed += v->changes;
    tally->warned += !v->changes && v->warns;
    tally->refused += !v->changes && !v->warns && v->is_refused;
    tally->excepted += is_silent && why != NULL;
    tally->faults += fault != NULL;
    if (fault != NULL) {
        printf("%s: %s %s %s\n", system, key, fault, v->text);
    }
}

/* Behind three values that warn a fourth tells nothing new. */
static void move_key(const struct mover *m, const struct system *s, const struct moved_key *key) {
    enum { MOST_WARNED = 3 };
    char text[FACT_CHARS];
    struct value values[MOST_VALUES];
    struct verdict v = {.changes = false};
    const char *now = system_fact(s, key->key, text);
    ck_assert_msg(now != NULL, "%s has no key %s", m->system, key->key);
    size_t n = list_values(key, now, values);
    for (size_t i = 0; i < n && !v.changes && !(v.warns && i >= MOST_WARNED); i++) {
        struct setting moved = {.place = "--set"};
        memcpy(moved.key, key->key, sizeof key->key);
        memcpy(moved.value, values[i].text, sizeof values[i].text);
        try_value(m, &moved, &v);
    }
    count_verdict(m->tally, m->system, key->key, &v);
}

static void move_system(const char *name, bool with_model, struct tally *tally) {
    const struct system_request request = {
        .system = name, .gpu = cases[0].gpu, .workload = cases[0].workload};
    struct err err = {0};
    struct system *s = NULL;
    struct moved_key keys[MOST_KEYS];
    ck_assert_msg(system_open(&request, &s, &err) == 0, "%s: %s", name, err.text);
    struct mover m = {.system = name, .tally = tally, .is_served = system_serves(s, &err) == 0};
    size_t n_served = 0;
    for (size_t i = 0; i < (m.is_served ? n_cases : 1); i++) {
        run_case(&m, i, NULL, &m.base[i]);
        n_served += !m.base[i].is_refused;
    }
    ck_assert_msg(n_served > 0, "%s: %s", name, m.base[0].text);
    size_t n = list_keys(s, with_model, keys);
    for (size_t i = 0; i < n; i++) {
        move_key(&m, s, &keys[i]);
    }
    tally->systems++;
    system_close(s);
}

/* Whether a list of the data names it. */
static bool is_listed(const char *key, const char *name) {
    const struct config_entry *entry = config_find(&data, "suite", key);
    const char *rest = entry != NULL ? entry->value : NULL, *word;
    size_t length;
    while (name_next(&rest, ",", &word, &length)) {
        if (strlen(name) == length && strncmp(word, name, length) == 0) {
            return true;
        }
    }
    return false;
}

static int each_system(void *state, const char *name, const char *doc) {
    (void)doc;
    const char *asked = getenv("UNMASK_SETTINGS");
    bool is_asked = asked == NULL ? is_listed("cut", name) : fnmatch(asked, name, 0) == 0;
    if (is_asked && !is_listed("skip", name)) {
        move_system(name, is_listed("models", name), state);
    }
    return 0;
}

TEST(a_key_changes_the_record_or_is_said_to_do_nothing) {
    struct tally tally = {0};
    struct err err = {0};
    read_cases();
    ck_assert_msg(system_list(each_system, &tally, &err) == 0, "%s", err.text);
    ck_assert(getenv("UNMASK_SETTINGS") != NULL || tally.systems > 1);
    printf("%zu systems, %zu pairs in %zu runs: %zu changed, %zu warned, %zu refused, %zu "
           "excepted, %zu faults\n",
           tally.systems, tally.pairs, tally.runs, tally.changed, tally.warned, tally.refused,
           tally.excepted, tally.faults);
    config_fini(&data);
    ck_assert_uint_eq(tally.faults, 0);
}

/* ---- what shipped systems say in vain ---- */

enum { MOST_LINES = 1024 };

/* A line of systems.ini, which several systems may inherit. */
struct line {
    char place[128], key[SETTING_KEY_CHARS];
    bool is_read;
};

struct lines {
    struct line items[MOST_LINES];
    size_t n;
};

static const char *any_workload(const void *system_in, const char *name, char text[FACT_CHARS]) {
    return strcmp(name, "run.answers") == 0 ? "on" : system_in_fact(system_in, name, text);
}

static struct line *line_at(struct lines *lines, const struct setting *setting) {
    size_t i = 0;
    while (i < lines->n && strcmp(lines->items[i].place, setting->place) != 0) {
        i++;
    }
    ck_assert_uint_lt(i, MOST_LINES);
    lines->n += i == lines->n;
    struct line *line = &lines->items[i];
    memcpy(line->place, setting->place, sizeof line->place);
    memcpy(line->key, setting->key, sizeof line->key);
    return line;
}

static void mark_read(struct lines *lines, const struct system *s) {
    static const char *const backends[] = {"sim", "lmax"};
    for (uint32_t i = 0; i < s->n_applied; i++) {
        const struct setting *setting = &s->applied[i];
        struct line *line = setting->layer > 0 ? line_at(lines, setting) : NULL;
        for (size_t b = 0; line != NULL && b < sizeof backends / sizeof backends[0]; b++) {
            const struct system_in in = {s, backends[b]};
            const struct facts facts = {any_workload, &in};
            char text[CONDITION_CHARS];
            line->is_read |= system_unread(s, setting->key, &facts, text) == NULL;
        }
    }
}

/* On GPUs that keys hold for, with models and workloads that others are about. */
static int read_lines(void *state, const char *name, const char *doc) {
    static const struct {
        const char *gpu, *model, *workload;
    } asked[] = {{"l40s", NULL, "burst"},        {"rtx4090", NULL, "burst"},
                 {"h200", NULL, "burst"},        {"rtx-pro-6000", NULL, "burst"},
                 {"l40s", "llada-moe", "burst"}, {"l40s", NULL, "sharegpt"},
                 {"l40s", NULL, "gsm8k"}};
    (void)doc;
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        const struct system_request request = {.system = name,
                                               .gpu = asked[i].gpu,
                                               .model = asked[i].model,
                                               .workload = asked[i].workload,
                                               .longest_canvas_tokens = 1024,
                                               .roofline = true};
        struct err err = {0};
        struct system *s = NULL;
        int status = system_open(&request, &s, &err);
        ck_assert_msg(status == 0 || request.model != NULL || compose_says_no_memory(&err),
                      "%s: %s", name, err.text);
        if (status == 0) {
            mark_read(state, s);
            system_close(s);
        }
    }
    return 0;
}

TEST(shipped_systems_set_nothing_that_nothing_reads) {
    struct lines *lines = mem_zeroed(1, sizeof *lines);
    struct err err = {0};
    size_t n_unread = 0;
    ck_assert_msg(system_list(read_lines, lines, &err) == 0, "%s", err.text);
    ck_assert_uint_gt(lines->n, 200);
    for (size_t i = 0; i < lines->n; i++) {
        n_unread += !lines->items[i].is_read;
        if (!lines->items[i].is_read) {
            printf("%s: nothing reads %s\n", lines->items[i].place, lines->items[i].key);
        }
    }
    free(lines);
    ck_assert_uint_eq(n_unread, 0);
}

SUITE("settings")
