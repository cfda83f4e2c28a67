/* Jobs that decode without a model: processes rolled out, and FOCUS's eviction of random deltas. */
#include <gsl/gsl_randist.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/study/decode_fit.h"
#include "experiments/study/jobs.h"
#include "sim/base/input/config.h"
#include "sim/base/input/datadir.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/base/rng.h"
#include "sim/decode/process_file.h"
#include "sim/decode/rollout.h"

/* The decoders that dInfer (arXiv 2510.08666) compares, in blocks of 64 positions as in its
 * evaluation guide. */

/* Of Fast-dLLM the threshold is the default of the script that dInfer's repository runs it by
 * (benchmarks/benchmark_dataset_fastdllm.py at eecb211 and fce4e32: 0.95, block_length 64), of
 * dInfer's own that of its evaluation guide (0.8) and of its script for the hierarchical one;
 * credit goes with the guide's. Which of them the printed rows are of is not said. */
enum dinfer_decoder {
    DINFER_FAST_DLLM,    /* threshold 0.95 */
    DINFER_THRESHOLD,    /* 0.8 */
    DINFER_HIERARCHICAL, /* 0.92 and 0.62 */
    DINFER_CREDIT,       /* 0.8 */
    N_DINFER_DECODERS,
};

static struct rollout_rule dinfer_rule(enum dinfer_decoder decoder) {
    struct rollout_rule rule = {.block_tokens = 64,
                                .rule = {.kind = DECODE_THRESHOLD, .threshold = 0.95F}};
    switch (decoder) {
    case DINFER_CREDIT:
        rule.credits = true;
        rule.credit = (struct decode_credit){.alpha = 0.7F, .beta = 0.8F, .gamma = 0.2F};
        rule.rule.threshold = 0.8F;
        rule.rule.slack = 1e-5F;
        break;
    case DINFER_THRESHOLD:
        rule.rule.threshold = 0.8F;
        rule.rule.slack = 1e-5F;
        break;
    case DINFER_HIERARCHICAL:
        rule.rule =
            (struct decode_rule){.kind = DECODE_HIERARCHICAL, .threshold = 0.92F, .low = 0.62F};
        break;
    default:
        break;
    }
    return rule;
}

/* ---- processes ---- */

enum { N_REQUESTS = 200 /* of eight blocks each */ };

static const char *const rule_words[] = {"block-diffusion", "dc+",    "focus",
                                         "fast-dllm",       "dinfer", "dinfer-hierarchical",
                                         "dinfer-credit",   NULL};

/* What a decode process's file calls them where it has their errors. */
static const char *const judged_as[] = {"threshold", "threshold",    "focus", "threshold",
                                        "threshold", "hierarchical", "credit"};

static int rule_of(const char *word, double threshold, double temperature, struct rollout_rule *out,
                   struct err *err) {
    int i = 0;
    while (rule_words[i] != NULL && strcmp(rule_words[i], word) != 0) {
        i++;
    }
    if (rule_words[i] == NULL) {
        char hint[NAME_HINT_CHARS];
        return err_usage(err, "there is no rule '%s' to decode by%s", word,
                         name_hint(word, rule_words, hint));
    }
    *out = i == 2   ? decode_focus((float)threshold, temperature)
           : i >= 3 ? dinfer_rule((enum dinfer_decoder)(i - 3))
                    : decode_plain((float)threshold, temperature);
    out->cache = i == 1 ? BLOCK_NEIGHBOUR : out->cache;
    out->ranks = i == 0;
    return 0;
}

/* How much less sure a model is over stale rows of a cache: a constant of calibrated.ini. */
static int take_drop(const char *section, double *drop, struct err *err) {
    struct config calibrated;
    char path[1024];
    int status = config_read(data_path(path, sizeof path, "experiments/study/calibrated.ini"),
                             &calibrated, err);
    if (status != 0) {
        return status;
    }
    const struct config_entry *entry = config_find(&calibrated, section, "value");
    if (entry == NULL || !num_f64(entry->value, drop)) {
        status = err_world(err, "%s has no number [%s] value", path, section);
    }
    config_fini(&calibrated);
    return status;
}

static void put_sums(const struct rollout *sums, json_t *row) {
    json_t *steps = json_array();
    for (size_t i = 0; i <= ROLLOUT_MOST_POSITIONS; i++) {
        json_array_append_new(steps, json_integer((json_int_t)sums->of_count[i]));
    }
    json_object_set_new(row, "steps", json_integer((json_int_t)(sums->passes - sums->blocks)));
    json_object_set_new(row, "steps_by_tokens", steps);
    job_put(row, "redundancy", rollout_redundancy(sums));
    job_put(row, "tokens_per_step", rollout_tokens_per_step(sums));
    job_put(row, "top_quintile", rollout_top_quintile(sums));
}

/* Processes are sampled afresh, not on the sample that they were fitted to. */
static int rollout(void **state, const json_t *args, json_t *row, json_t *rows, struct err *err) {
    (void)state;
    struct decode_process process;
    struct rollout_rule rule;
    const char *drop_of = job_text(args, "less_sure_by");
    double threshold = 0.9, temperature = 1, drop = 0, noise = (double)NAN;
    uint64_t block = 0, seed = 1;
    int status = job_number(args, "threshold", 0, 1, &threshold, err);
    status = status != 0 ? status : job_number(args, "temperature", 0, 10, &temperature, err);
    status = status != 0 ? status : job_number(args, "delta_noise", 0, 1000, &noise, err);
    status =
        status != 0 ? status : job_whole(args, "block_tokens", ROLLOUT_MOST_POSITIONS, &block, err);
    status = status != 0 ? status : job_whole(args, "seed", INT64_MAX, &seed, err);
    if (status == 0 && drop_of != NULL) {
        status = take_drop(drop_of, &drop, err);
    }
    status =
        status != 0 ? status : rule_of(job_text(args, "rule"), threshold, temperature, &rule, err);
    status = status != 0 ? status : decode_process_find(job_text(args, "process"), &process, err);
    if (status != 0) {
        return status;
    }
    process.location -= drop;
    process.delta_noise = isnan(noise) ? process.delta_noise : noise;
    rule.block_tokens = block > 0 ? (uint32_t)block : rule.block_tokens;
    struct rollout sums = decode_sample(&process, seed, &rule, N_REQUESTS);
    put_sums(&sums, row);
    const char *const names[] = {judged_as[name_find(rule_words, job_text(args, "rule"))], NULL};
    json_object_set_new(row, "decisions_error", json_string(decode_process_error(&process, names)));
    return json_array_append(rows, row);
}

const struct job job_rollout = {
    .name = "rollout",
    .doc = "blocks of a decode process, decoded by a rule: what they run and commit",
    .required = (const char *const[]){"process", "rule", NULL},
    .optional = (const char *const[]){"threshold", "temperature", "delta_noise", "block_tokens",
                                      "less_sure_by", "seed", NULL},
    .fill = rollout,
};

/* ---- eviction ---- */

/* FOCUS, appendix D: what it bounds is the share of decodable tokens below the threshold; its
 * threshold is the true deviation of the others, the released code's comes from the block itself,
 * and a budget may keep more. */
enum { MASKED = 18, DECODABLE = 4, N_BLOCKS = 20000 };

/* A GSL generator over our streams, so that a seed decides. */
static void stream_set(void *state, unsigned long seed) {
    *(struct rng *)state = rng_stream(seed, "appendix D");
}

static double stream_uniform(void *state) {
    return rng_uniform(state);
}

static unsigned long stream_get(void *state) {
    return rng_next(state) >> 32;
}

static const gsl_rng_type stream_type = {.name = "unmask",
                                         .max = 0xffffffffUL,
                                         .size = sizeof(struct rng),
                                         .set = stream_set,
                                         .get = stream_get,
                                         .get_double = stream_uniform};

/* Shares lost by the appendix's threshold, the code's, and code and budget. */
static void simulate(gsl_rng *rng, double snr, json_t *row) {
    static const struct focus_rule released = {.alpha = 1.5};
    uint8_t all[MASKED], keep[MASKED];
    uint64_t n_own = 0, n_released = 0, n_kept = 0;
    memset(all, 1, sizeof all);
    for (int b = 0; b < N_BLOCKS; b++) {
        float delta[MASKED];
        double sum = 0, squares = 0;
        for (int i = 0; i < MASKED; i++) {
            /* Decodable ones apart: the left-neighbour rule would help those next to another. */
            double mean = i % 4 == 1 && i / 4 < DECODABLE ? snr : 0;
            delta[i] = (float)(mean + gsl_ran_gaussian(rng, 1));
            sum += delta[i];
            squares += (double)delta[i] * delta[i];
        }
        double mean = sum / MASKED, deviation = sqrt(squares / MASKED - mean * mean);
        focus_select(&released, MASKED, all, all, delta, DECODABLE, MASKED, keep);
        for (int i = 1; i / 4 < DECODABLE; i += 4) {
            n_own += delta[i] < 1;
            n_released += delta[i] < mean + deviation;
            n_kept += !keep[i];
        }
    }
    double n = (double)N_BLOCKS * DECODABLE;
    job_put(row, "own", (double)n_own / n);
    job_put(row, "released", (double)n_released / n);
    job_put(row, "kept", (double)n_kept / n);
}

/* One stream for all of the ratios, which are numbers with blanks between. */
static int eviction(void **state, const json_t *args, json_t *row, json_t *rows, struct err *err) {
    (void)state;
    uint64_t seed = 1;
    int status = job_whole(args, "seed", INT64_MAX, &seed, err);
    gsl_rng *rng = mem_given(gsl_rng_alloc(&stream_type));
    gsl_rng_set(rng, seed);
    const char *rest = job_text(args, "snr");
    while (status == 0 && *rest != '\0') {
        char *end;
        double snr = strtod(rest, &end);
        if (end == rest || !(snr > 0)) {
            status = err_usage(err, "snr: expected positive numbers at '%s'", rest);
            break;
        }
        json_t *own = json_copy(row);
        job_put(own, "snr", snr);
        simulate(rng, snr, own);
        json_array_append_new(rows, own);
        rest = end + strspn(end, " ");
    }
    gsl_rng_free(rng);
    return status;
}

const struct job job_eviction = {
    .name = "eviction",
    .doc = "how often FOCUS's rules evict a decodable token, by Monte Carlo over random deltas",
    .required = (const char *const[]){"snr", NULL},
    .optional = (const char *const[]){"seed", NULL},
    .fill = eviction,
};
