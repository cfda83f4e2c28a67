/* unmask sensitivity: which printed rankings depend on an inferred setting, and at which of its
 * values they turn round. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/command/commands.h"
#include "experiments/run/asked.h"
#include "experiments/run/cli/interrupt.h"
#include "experiments/run/cli/options.h"
#include "experiments/run/cli/table.h"
#include "experiments/run/sweep/campaign.h"
#include "experiments/study/released.h"
#include "sim/base/input/config.h"
#include "sim/base/input/datadir.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"

enum { PATH_CHARS = 1024, MOST_CLAIMS = 32, MOST_BISECTIONS = 7, SIDES = 2 };

static const struct option own_options[] = {
    {"file", "FILE", "the rankings to try; default: experiments/study/sensitivity.ini", false},
    {NULL, NULL, NULL, false},
};
static const struct option *const groups[] = {own_options, job_options, json_options, format_option,
                                              NULL};

/* One printed ranking and the setting that it may depend on. Texts are borrowed from the file. */
struct claim {
    const char *name, *text, *gpu, *key, *why;
    struct words systems, workloads, printed, values;
    double rate;
    bool is_given[SIDES]; /* the sides that get the setting */
};

/* A claim under one workload, at one place: the shipped setting first, then every value. */
struct trial {
    const struct claim *claim;
    size_t workload;
    struct setting setting;
};

static int required(const struct config *config, const char *section, const char *key,
                    const char **out, struct err *err) {
    const struct config_entry *entry = config_find(config, section, key);
    if (entry == NULL) {
        return err_usage(err, "%s: [%s] lacks '%s'", config->path, section, key);
    }
    *out = entry->value;
    return 0;
}

static int required_words(const struct config *config, const char *section, const char *key,
                          struct words *out, struct err *err) {
    const char *text = "";
    char place[256];
    snprintf(place, sizeof place, "%.180s: [%.48s] %s", config->path, section, key);
    int status = required(config, section, key, &text, err);
    return status != 0 ? status : words_split(text, out, place, err);
}

static int claim_read(const struct config *config, const char *section, struct claim *claim,
                      struct err *err) {
    static const char *const side_words[] = {"first", "second", NULL};
    const char *rate = "", *of = "";
    *claim = (struct claim){.name = section};
    struct {
        const char *key, **out;
    } texts[] = {{"claim", &claim->text}, {"gpu", &claim->gpu}, {"key", &claim->key},
                 {"why", &claim->why},    {"rate", &rate},      {"of", &of}};
    struct {
        const char *key;
        struct words *out;
    } lists[] = {{"systems", &claim->systems},
                 {"workloads", &claim->workloads},
                 {"printed", &claim->printed},
                 {"values", &claim->values}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (required(config, section, texts[i].key, texts[i].out, err) != 0) {
            return err_status(err);
        }
    }
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        if (required_words(config, section, lists[i].key, lists[i].out, err) != 0) {
            return err_status(err);
        }
    }
    int one = name_find(side_words, of); /* -1: both */
    claim->is_given[0] = one != 1;
    claim->is_given[1] = one != 0;
    if (claim->systems.n != SIDES || claim->printed.n != claim->workloads.n) {
        return err_usage(err, "%s: [%s] needs two systems, and a printed ratio or - a workload",
                         config->path, section);
    }
    if (!num_f64(rate, &claim->rate) || claim->rate <= 0) {
        return err_usage(err, "%s: [%s] rate is not above 0: '%s'", config->path, section, rate);
    }
    return 0;
}

static int claims_read(const struct config *config, struct claim *claims, size_t *n,
                       struct err *err) {
    *n = 0;
    const struct config_entry *entry = NULL;
    while ((entry = config_next(config, NULL, "claim", entry)) != NULL) {
        if (*n == MOST_CLAIMS) {
            return err_usage(err, "%s: more than %d rankings", config->path, MOST_CLAIMS);
        }
        if (claim_read(config, entry->section, &claims[(*n)++], err) != 0) {
            return err_status(err);
        }
    }
    return *n > 0 ? 0 : err_usage(err, "%s: found no 'claim'", config->path);
}

static void set_value(struct trial *trial, const char *value) {
    snprintf(trial->setting.key, sizeof trial->setting.key, "%s", trial->claim->key);
    snprintf(trial->setting.value, sizeof trial->setting.value, "%s", value);
    snprintf(trial->setting.place, sizeof trial->setting.place, "[%s]", trial->claim->name);
}

/* The two runs of a trial; a side that does not get the setting runs as shipped. The key `gpu` is
 * the card of both. */
static void trial_points(const struct trial *trial, struct campaign_point points[SIDES]) {
    const struct claim *claim = trial->claim;
    bool is_gpu = strcmp(trial->setting.key, "gpu") == 0;
    for (int side = 0; side < SIDES; side++) {
        bool is_set = claim->is_given[side] && trial->setting.key[0] != '\0' && !is_gpu;
        points[side] =
            (struct campaign_point){.request = {.system = claim->systems.word[side],
                                                .gpu = is_gpu ? trial->setting.value : claim->gpu,
                                                .workload = claim->workloads.word[trial->workload],
                                                .options = {.seed = 1, .rate_per_s = claim->rate},
                                                .settings = &trial->setting,
                                                .n_settings = is_set ? 1 : 0}};
    }
}

static int no_result(const struct campaign_point *point, const struct err *why, struct err *err) {
    return err_world(err, "%s has no result: %.900s", point->request.system, why->text);
}

/* Throughput of the first system over that of the second; NaN where either has no result. */
static double ratio_of(const struct campaign_point points[SIDES]) {
    double second = cmd_number(points[1].summary, "throughput_tok_s", NULL);
    return second > 0 ? cmd_number(points[0].summary, "throughput_tok_s", NULL) / second
                      : (double)NAN;
}

/* The ratio at one more value; NaN where either does not fit into the device. */
static int try_value(const struct trial *like, double value, double *ratio, struct err *err) {
    struct trial trial = *like;
    struct campaign_point points[SIDES];
    double results[SIDES];
    char text[32];
    *ratio = (double)NAN;
    snprintf(text, sizeof text, "%.9g", value);
    set_value(&trial, text);
    trial_points(&trial, points);
    for (int side = 0; side < SIDES; side++) {
        json_t *summary = NULL;
        struct err why = {0};
        if (compose_summary(&points[side].request, &summary, &why) != 0) {
            return compose_says_no_memory(&why) ? 0 : no_result(&points[side], &why, err);
        }
        results[side] = cmd_number(summary, "throughput_answer_tok_s", NULL);
        json_decref(summary);
    }
    *ratio = results[0] / results[1];
    return 0;
}

/* Halves the way from `low` to `high`, between which the winner changes: down to neighbouring whole
 * numbers, or MOST_BISECTIONS times. */
static int narrow(const struct trial *trial, double low, double high, bool first_wins_low,
                  char *out, size_t size, struct err *err) {
    bool is_whole = low == floor(low) && high == floor(high) && fabs(high - low) >= 1;
    for (int i = 0; i < MOST_BISECTIONS && !(is_whole && fabs(high - low) <= 1); i++) {
        double ratio, middle = is_whole ? floor((low + high) / 2) : (low + high) / 2;
        if (try_value(trial, middle, &ratio, err) != 0) {
            return err_status(err);
        }
        *((ratio > 1) == first_wins_low ? &low : &high) = middle;
    }
    snprintf(out, size, is_whole ? "%.0f to %.0f" : "%.4g to %.4g", low, high);
    return 0;
}

/* Where the ranking turns round: between the first two neighbouring values with different winners;
 * words stand as they are. */
static int find_flip(const struct claim *claim, const struct trial *trial, const double *ratios,
                     char *out, size_t size, struct err *err) {
    const struct words *values = &claim->values;
    snprintf(out, size, "never");
    for (size_t v = 0; v + 1 < values->n; v++) {
        double low, high;
        if (!((ratios[v] - 1) * (ratios[v + 1] - 1) < 0)) {
            continue;
        }
        if (num_f64(values->word[v], &low) && num_f64(values->word[v + 1], &high)) {
            return narrow(trial, low, high, ratios[v] > 1, out, size, err);
        }
        snprintf(out, size, "%s to %s", values->word[v], values->word[v + 1]);
        break;
    }
    return 0;
}

static int print_claim(const struct claim *claim, const struct campaign_point *points,
                       const struct trial *trials, json_t *all, bool for_people, struct err *err) {
    size_t n_places = 1 + claim->values.n;
    int status = 0;
    struct table *table = table_open("workload|printed|as shipped|batch");
    for (size_t v = 0; v < claim->values.n; v++) {
        table_column(table, claim->values.word[v]);
    }
    table_column(table, "turns at");
    for (size_t w = 0; w < claim->workloads.n; w++) {
        double ratios[WORDS_MOST] = {0}, printed;
        char flip[2 * WORDS_CHARS + 8];
        const struct campaign_point *shipped = &points[SIDES * w * n_places];
        table_add(table, "s %.2f %.2f %.0f", claim->workloads.word[w],
                  num_f64(claim->printed.word[w], &printed) ? printed : (double)NAN,
                  ratio_of(shipped), cmd_number(shipped[1].summary, "max_batch", NULL));
        for (size_t v = 0; v < claim->values.n; v++) {
            ratios[v] = ratio_of(&shipped[SIDES * (v + 1)]);
            table_number(table, ratios[v], "%.2f");
        }
        status = status != 0
                     ? status
                     : find_flip(claim, &trials[w * n_places + 1], ratios, flip, sizeof flip, err);
        table_text(table, flip);
    }
    if (status == 0 && for_people) {
        printf("%s: %s over %s on %s\nover %s: %s\n\n", claim->text, claim->systems.word[0],
               claim->systems.word[1], claim->gpu, claim->key, claim->why);
        table_print(table, stdout);
        const char *const systems[] = {claim->systems.word[0], claim->systems.word[1]};
        released_print(systems, 2, stdout);
        printf("\n");
    } else if (status == 0) {
        json_array_append_new(all, json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o}", "name",
                                             claim->name, "claim", claim->text, "gpu", claim->gpu,
                                             "first", claim->systems.word[0], "second",
                                             claim->systems.word[1], "key", claim->key, "why",
                                             claim->why, "ratios", table_json(table)));
    }
    table_close(table);
    return status;
}

/* All runs of all claims share the threads. */
static int try_claims(const struct claim *claims, size_t n_claims, unsigned n_threads,
                      bool for_people, struct err *err) {
    size_t n = 0, at = 0;
    for (size_t c = 0; c < n_claims; c++) {
        n += claims[c].workloads.n * (1 + claims[c].values.n);
    }
    struct trial *trials = mem_zeroed(n + 1, sizeof *trials);
    struct campaign_point *points = mem_zeroed(n + 1, SIDES * sizeof *points);
    for (size_t c = 0; c < n_claims; c++) {
        for (size_t w = 0; w < claims[c].workloads.n; w++) {
            for (size_t v = 0; v <= claims[c].values.n; v++, at++) {
                trials[at] = (struct trial){.claim = &claims[c], .workload = w};
                if (v > 0) {
                    set_value(&trials[at], claims[c].values.word[v - 1]);
                }
                trial_points(&trials[at], &points[SIDES * at]);
            }
        }
    }
    struct campaign campaign = {.points = points, .n = SIDES * n, .stop = interrupt_catch()};
    int status = campaign_run(&campaign, n_threads, err);
    for (size_t i = 0; status == 0 && i < SIDES * n; i++) {
        if (points[i].summary == NULL && !points[i].has_no_room) {
            status = no_result(&points[i], &points[i].err, err);
        }
    }
    json_t *all = json_array();
    at = 0;
    for (size_t c = 0; status == 0 && c < n_claims; c++) {
        status = print_claim(&claims[c], &points[SIDES * at], &trials[at], all, for_people, err);
        at += claims[c].workloads.n * (1 + claims[c].values.n);
    }
    if (status == 0 && !for_people) {
        status = cmd_print_json(json_incref(all), err);
    }
    json_decref(all);
    campaign_fini(&campaign);
    free(points);
    free(trials);
    return status;
}

static int run(const struct options *options, struct err *err) {
    struct claim *claims = mem_zeroed(MOST_CLAIMS, sizeof *claims);
    struct config config = {0};
    char path[PATH_CHARS];
    const char *file = options_text(options, "file");
    unsigned n_threads;
    size_t n;
    int status = asked_threads(options, &n_threads, err);
    if (status == 0) {
        file =
            file != NULL ? file : data_path(path, sizeof path, "experiments/study/sensitivity.ini");
        status = config_read(file, &config, err);
    }
    if (status == 0) {
        status = claims_read(&config, claims, &n, err);
    }
    if (status == 0) {
        status = try_claims(claims, n, n_threads, !options_has(options, "json"), err);
    }
    config_fini(&config);
    free(claims);
    return status;
}

const struct command command_sensitivity = {
    .name = "sensitivity",
    .words = "",
    .doc = "printed rankings over the settings that were inferred: where they turn round",
    .more = "Every ratio is the throughput of the first system over that of the second. 'as\n"
            "shipped' runs the setting that the figures use; 'batch' is what the second system\n"
            "reaches there.",
    .options = groups,
    .run = run,
};
