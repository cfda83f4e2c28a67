/* unmask cite: what a text has to say about how recorded numbers were made. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/caution.h"
#include "analysis/store/store.h"
#include "experiments/command/commands.h"
#include "experiments/study/released.h"
#include "sim/base/input/config.h"
#include "sim/base/num.h"
#include "sim/system/system_facts.h"

static const struct option cite_options[] = {
    {"run", "N", "this run alone (default: all of the database)", false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_cite[] = {cite_options, json_options, format_option,
                                                       NULL};

/* How far simulated numbers were from measured ones, by whose prices they were: rows of
 * docs/validation.md. */
static const struct {
    const char *kind, *throughput, *latency;
} errors[] = {{"measured", "-1.5 to +1.2 %", "-3.0 to +2.2 %"},
              {"transferred", "-6.1 to +5.2 %", "-14 to +16 %"},
              {"imported", "-2.1 to -0.6 %", "-21 to -3.5 %"}};
enum { N_ERRORS = sizeof errors / sizeof errors[0] };

/* What the runs have in common is said once, what differs is a list. */
enum fact {
    FACT_BUILD,
    FACT_SYSTEM,
    FACT_SETTINGS,
    FACT_MODEL,
    FACT_WORKLOAD,
    FACT_PRICES,
    FACT_ERROR,
    FACT_HOST,
    FACT_DECISIONS,
    FACT_COUNT
};
static const struct {
    const char *name, *title;
} fact_words[FACT_COUNT] = {
    [FACT_BUILD] = {"programs", "Program"},       [FACT_SYSTEM] = {"systems", "Systems"},
    [FACT_SETTINGS] = {"settings", "Settings"},   [FACT_MODEL] = {"models", "Models and GPUs"},
    [FACT_WORKLOAD] = {"workloads", "Workloads"}, [FACT_PRICES] = {"prices", "Times"},
    [FACT_ERROR] = {"errors", "Errors"},          [FACT_HOST] = {"hosts", "Host times"},
    [FACT_DECISIONS] = {"decisions", "Decisions"}};

struct citing {
    json_t *facts[FACT_COUNT]; /* {text: null}, as they first came */
    json_t *identities;        /* the same */
    json_t *usual;             /* {"SYSTEM MODEL GPU": what that system is without settings} */
    size_t n_of[WARNING_CODE_COUNT]; /* runs that warn so */
    size_t n;
    uint64_t first_seed, last_seed;
};

static const char *word(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static void add(struct citing *c, enum fact fact, const char *text) {
    if (text[0] != '\0') {
        json_object_set_new(c->facts[fact], text, json_null());
    }
}

static void add_build(struct citing *c, const json_t *run) {
    const json_t *build = json_object_get(json_object_get(run, "identity"), "build");
    char text[256];
    snprintf(text, sizeof text, "unmask %s (commit %.12s%s, sources %.12s)", word(build, "version"),
             word(build, "commit"),
             json_is_true(json_object_get(build, "dirty")) ? " with changes" : "",
             word(build, "sources"));
    add(c, FACT_BUILD, json_is_object(build) ? text : "");
}

static void add_system(struct citing *c, const json_t *run) {
    static const char *const kinds[] = {"scheduler", "cache", "decoder", "router"};
    const char *name = word(run, "system");
    struct released released = {.is_published = false};
    struct err ignored = {0};
    char text[1024];
    const char *is = word(run, "device")[0] != '\0'                   ? ""
                     : released_named(name, &released, &ignored) != 0 ? ""
                     : released.is_published                          ? "as published, "
                                                                      : "a design, ";
    size_t used = (size_t)snprintf(text, sizeof text, "%s (%s", name, is);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && used < sizeof text; i++) {
        const json_t *policy = json_object_get(json_object_get(run, "policies"), kinds[i]);
        const char *changed = word(policy, "changed");
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %.64s%s%.160s",
                                 i > 0 ? ", " : "", kinds[i], word(policy, "name"),
                                 changed[0] != '\0' ? " with " : "", changed);
    }
    snprintf(text + (used < sizeof text - 2 ? used : sizeof text - 2), 2, ")");
    add(c, FACT_SYSTEM, text);
}

/* What a system of that name is without settings; "" where there is none. */
static const char *usual_of(struct citing *c, const char *system, const char *model,
                            const char *gpu) {
    const struct system_request plain = {
        .system = system, .model = model, .gpu = gpu, .fills_gaps = true};
    char key[1024];
    struct err ignored = {0};
    struct system *opened = NULL;
    snprintf(key, sizeof key, "%.200s %.400s %.400s", system, model, gpu);
    if (json_object_get(c->usual, key) == NULL) {
        char *text = system_open(&plain, &opened, &ignored) == 0 ? system_text(opened) : NULL;
        json_object_set_new(c->usual, key, json_string(text != NULL ? text : ""));
        free(text);
        system_close(opened);
    }
    return word(c->usual, key);
}

/* Said elsewhere, or what follows from the device. */
static bool is_no_setting(const char *key) {
    static const char *const begins[] = {"model",  "scheduler", "cache",         "decoder",
                                         "router", "host",      "runtime.host_", NULL};
    for (size_t i = 0; begins[i] != NULL; i++) {
        const size_t n = strlen(begins[i]);
        if (strncmp(key, begins[i], n) == 0 &&
            (begins[i][n - 1] == '_' || key[n] == '\0' || key[n] == '.')) {
            return true;
        }
    }
    return false;
}

/* ", KEY=VALUE", numbers as people write them; returns the characters. */
static size_t put_setting(const struct config_entry *entry, char *out, size_t size) {
    double number;
    const bool is_number = num_f64(entry->value, &number);
    const int n = is_number ? snprintf(out, size, ", %.64s=%.9g", entry->key, number)
                            : snprintf(out, size, ", %.64s=%.160s", entry->key, entry->value);
    return (size_t)n < size ? (size_t)n : size - 1;
}

/* In which keys the system is another one than that of its name. */
static void add_settings(struct citing *c, const struct config *recorded, const char *system,
                         const char *gpu) {
    struct config usual = {0};
    struct err ignored = {0};
    char text[1024];
    const struct config_entry *model = config_find(recorded, "system", "model"), *entry = NULL;
    const char *plain = usual_of(c, system, model != NULL ? model->value : NULL, gpu);
    size_t used = (size_t)snprintf(text, sizeof text, "%.200s: ", system), before = used;
    if (plain[0] == '\0' ||
        config_parse("the system", plain, strlen(plain), &usual, &ignored) != 0) {
        config_fini(&usual);
        return;
    }
    while ((entry = config_next(recorded, "system", NULL, entry)) != NULL) {
        const struct config_entry *own = config_find(&usual, "", entry->key);
        if (!is_no_setting(entry->key) && (own == NULL || strcmp(own->value, entry->value) != 0)) {
            used += put_setting(entry, text + used, sizeof text - used);
        }
    }
    config_fini(&usual);
    if (used > before) {
        memmove(text + before, text + before + 2, used - before - 1);
        add(c, FACT_SETTINGS, text);
    }
}

/* Of a live run the device's, else whose prices they are. */
static void add_times(struct citing *c, const json_t *run) {
    const json_t *prices = json_object_get(run, "prices");
    const char *device = word(run, "device"), *of_all = word(run, "profile_kind");
    char text[1024];
    if (device[0] != '\0') {
        snprintf(text, sizeof text, "measured on %.200s", device);
        add(c, FACT_PRICES, text);
        return;
    }
    snprintf(text, sizeof text, "profile %.160s, %s: %.600s", word(run, "profile"), of_all,
             word(prices, "source"));
    add(c, FACT_PRICES, text);
    for (size_t i = 0; i < N_ERRORS; i++) {
        if (strstr(of_all, errors[i].kind) != NULL) {
            snprintf(text, sizeof text,
                     "with %s prices simulated throughput was %s and mean latency %s off measured "
                     "runs (docs/validation.md)",
                     errors[i].kind, errors[i].throughput, errors[i].latency);
            add(c, FACT_ERROR, text);
        }
    }
    if (strcmp(of_all, "roofline") == 0) {
        add(c, FACT_ERROR, "with prices of the data sheet alone no error is known");
    }
}

/* ", arrivals=gamma, arrivals.cv=3, input_tokens=100": what the command said of the traffic. */
static void put_traffic(const struct config *recorded, char *out, size_t size) {
    static const char *const lengths[] = {"input_tokens", "output_tokens"};
    size_t used = 0;
    const struct config_entry *entry = NULL;
    out[0] = '\0';
    while ((entry = config_next(recorded, "workload", NULL, entry)) != NULL) {
        if ((strncmp(entry->key, "arrivals", 8) == 0 && strcmp(entry->value, "trace") != 0) ||
            strcmp(entry->key, "where") == 0 || strncmp(entry->key, "skip_", 5) == 0) {
            used += put_setting(entry, out + used, size - used);
        }
    }
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        entry = config_find(recorded, "run", lengths[i]);
        if (entry != NULL && strcmp(entry->value, "0") != 0) {
            used += put_setting(entry, out + used, size - used);
        }
    }
}

static void add_rest(struct citing *c, const json_t *run, const struct config *recorded) {
    const json_t *host = json_object_get(run, "host"), *drawn = json_object_get(run, "decisions");
    const char *error = word(drawn, "error");
    char text[1024];
    snprintf(text, sizeof text, "%s on %s", word(run, "model"), word(run, "gpu"));
    add(c, FACT_MODEL, text);
    const char *trace = word(run, "trace"), *at = strstr(trace, " at ");
    const json_t *asked = json_object_get(json_object_get(run, "offered"), "asked_req_s");
    size_t used = (size_t)snprintf(text, sizeof text, "%.*s: %.400s, %lld requests",
                                   at != NULL && at - trace < 200 ? (int)(at - trace) : 200, trace,
                                   word(run, "trace_provenance"),
                                   (long long)json_integer_value(json_object_get(run, "requests")));
    if (json_is_number(asked)) {
        used += (size_t)snprintf(text + used, sizeof text - used, " at %.6g a second",
                                 json_number_value(asked));
    }
    put_traffic(recorded, text + used, sizeof text - used);
    add(c, FACT_WORKLOAD, text);
    if (json_is_object(host)) {
        snprintf(text, sizeof text, "%s, factor %.4g, %s: %.600s", word(host, "name"),
                 json_number_value(json_object_get(host, "factor")), word(host, "kind"),
                 word(host, "source"));
        add(c, FACT_HOST, text);
    }
    if (json_is_true(json_object_get(drawn, "drawn"))) {
        snprintf(text, sizeof text, "drawn by %s, %s: %.300s%s%.300s", word(drawn, "process"),
                 word(drawn, "kind"), word(drawn, "source"), error[0] != '\0' ? "; error " : "",
                 error);
        add(c, FACT_DECISIONS, text);
    }
}

static int take(void *state, const struct stored_run *stored, struct err *err) {
    struct citing *c = state;
    json_t *run = stored->damage == NULL ? json_loads(stored->summary, 0, NULL) : NULL;
    if (run == NULL) {
        return err_world(err, "run %lld: %s", (long long)stored->run,
                         stored->damage != NULL ? stored->damage : "its summary is no JSON");
    }
    struct config recorded = {0};
    struct err ignored = {0};
    const char *config = stored->config != NULL ? stored->config : "";
    const bool is_read =
        config_parse("the record", config, strlen(config), &recorded, &ignored) == 0;
    add_build(c, run);
    add_system(c, run);
    if (is_read && config[0] != '\0') {
        add_settings(c, &recorded, stored->system, stored->gpu);
    }
    add_times(c, run);
    add_rest(c, run, &recorded);
    config_fini(&recorded);
    for (int code = 0; code < WARNING_CODE_COUNT; code++) {
        c->n_of[code] += caution_has(run, (enum warning_code)code);
    }
    if (stored->identity[0] != '\0') {
        json_object_set_new(c->identities, stored->identity, json_null());
    }
    c->first_seed = c->n == 0 || stored->seed < c->first_seed ? stored->seed : c->first_seed;
    c->last_seed = c->n == 0 || stored->seed > c->last_seed ? stored->seed : c->last_seed;
    c->n++;
    json_decref(run);
    return 0;
}

static json_t *list_of(const json_t *texts) {
    json_t *list = json_array();
    const char *text;
    json_t *unused;
    json_object_foreach((json_t *)(uintptr_t)texts, text, unused) {
        json_array_append_new(list, json_string(text));
    }
    return list;
}

static json_t *to_json(const struct citing *c) {
    json_t *object = json_pack("{s:I, s:[I, I]}", "runs", (json_int_t)c->n, "seeds",
                               (json_int_t)c->first_seed, (json_int_t)c->last_seed);
    json_t *warnings = json_object();
    for (int fact = 0; fact < FACT_COUNT; fact++) {
        json_object_set_new(object, fact_words[fact].name, list_of(c->facts[fact]));
    }
    for (int code = 0; code < WARNING_CODE_COUNT; code++) {
        if (c->n_of[code] > 0) {
            json_object_set_new(warnings, warning_words[code],
                                json_integer((json_int_t)c->n_of[code]));
        }
    }
    json_object_set_new(object, "warnings", warnings);
    json_object_set_new(object, "identities", list_of(c->identities));
    return object;
}

static void print(const struct citing *c, const char *database) {
    const char *text;
    json_t *unused;
    printf("Methodology\n\n%zu run%s of %s, seed%s %llu", c->n, c->n > 1 ? "s" : "", database,
           c->first_seed < c->last_seed ? "s" : "", (unsigned long long)c->first_seed);
    if (c->first_seed < c->last_seed) {
        printf(" to %llu", (unsigned long long)c->last_seed);
    }
    printf(".\n");
    for (int fact = 0; fact < FACT_COUNT; fact++) {
        size_t n = 0;
        json_object_foreach(c->facts[fact], text, unused) {
            printf("%s%s%s", n == 0 ? fact_words[fact].title : "", n == 0 ? ": " : "; ", text);
            n++;
        }
        printf("%s", n > 0 ? ".\n" : "");
    }
    size_t n = 0;
    for (int code = 0; code < WARNING_CODE_COUNT; code++) {
        if (c->n_of[code] > 0) {
            printf("%s%s (%s, %zu of %zu runs)", n++ == 0 ? "Cautions: " : "; ",
                   warning_meanings[code], warning_words[code], c->n_of[code], c->n);
        }
    }
    printf("%s", n > 0 ? ".\n" : "");
    n = json_object_size(c->identities);
    json_object_foreach(c->identities, text, unused) {
        printf("%s%.16s",
               text == json_object_iter_key(json_object_iter(c->identities)) ? "Identities: "
                                                                             : ", ",
               text);
    }
    printf("%s", n > 0 ? ".\n" : "");
}

/* What the text says, a row each. */
static void print_table(const struct citing *c) {
    const char *text;
    json_t *unused;
    struct table *table = table_open("what|is");
    for (int fact = 0; fact < FACT_COUNT; fact++) {
        json_object_foreach(c->facts[fact], text, unused) {
            table_add(table, "s s", fact_words[fact].title, text);
        }
    }
    for (int code = 0; code < WARNING_CODE_COUNT; code++) {
        char of_all[WARNING_CHARS];
        snprintf(of_all, sizeof of_all, "%s (%s, %zu of %zu runs)", warning_meanings[code],
                 warning_words[code], c->n_of[code], c->n);
        if (c->n_of[code] > 0) {
            table_add(table, "s s", "Cautions", of_all);
        }
    }
    json_object_foreach(c->identities, text, unused) {
        table_add(table, "s s", "Identities", text);
    }
    table_print(table, stdout);
    table_close(table);
}

static int cite(const struct options *options, struct citing *c, struct err *err) {
    struct store *store = NULL;
    uint64_t run = 0;
    if (options->n_words != 1) {
        return err_usage(err, "cite needs a database, which `run --db` or `sweep --db` wrote");
    }
    int status = options_whole(options, "run", 1, INT64_MAX, &run, err);
    status = status != 0 ? status : store_open(options->words[0], STORE_READ, &store, err);
    if (status == 0 && run > 0) {
        status = store_load_run(store, (int64_t)run, take, c, err);
    } else if (status == 0) {
        status = store_list_samples(store, take, c, err);
    }
    store_close(store);
    if (status == 0 && c->n == 0) {
        status = err_world(err, "there is no run in '%s'", options->words[0]);
    }
    if (status == 0 && options_has(options, "json")) {
        return cmd_print_json(to_json(c), err);
    }
    if (status == 0) {
        print(c, options->words[0]);
        if (!table_is_text()) {
            print_table(c);
        }
    }
    return status;
}

static int run(const struct options *options, struct err *err) {
    struct citing citing = {.identities = json_object(), .usual = json_object()};
    for (int fact = 0; fact < FACT_COUNT; fact++) {
        citing.facts[fact] = json_object();
    }
    int status = cite(options, &citing, err);
    for (int fact = 0; fact < FACT_COUNT; fact++) {
        json_decref(citing.facts[fact]);
    }
    json_decref(citing.identities);
    json_decref(citing.usual);
    return status;
}

const struct command command_cite = {
    .name = "cite",
    .words = "DB",
    .doc = "a text that says how recorded numbers were made: versions, prices, errors, cautions",
    .more =
        "A block for the section \"Methodology\" of a paper, of all runs of a database or of one:\n"
        "the program's version and sources, systems with their policies and settings, models, "
        "GPUs,\n"
        "workloads and seeds, where times come from and how far such times were off measured ones, "
        "what is\n"
        "drawn or assumed, and the runs' identities, by which anyone can tell equal ones.",
    .options = options_of_cite,
    .max_words = 1,
    .run = run,
};
