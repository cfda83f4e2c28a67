#include "experiments/study/dinfer_fit.h"
#include "sim/decode/process_file.h"

#include <gsl/gsl_errno.h>
#include <math.h>
#include <string.h>

const struct dinfer_target dinfer_targets[N_DINFER_TARGETS] = {
    {"llada-moe/crux-o", "CRUX-O", "llada-td/crux-o", "moe-200/crux-o"},
    [DINFER_GSM8K] = {"llada-moe/gsm8k", "GSM8K", "llada-td/gsm8k", "moe-200/gsm8k"},
    {"llada-moe/humaneval", "HumanEval", "llada-td/humaneval", "moe-200/humaneval"},
    {"llada-moe/ifeval", "IFEval", "llada-td/ifeval", "moe-200/ifeval"},
    {"llada-moe/mbpp", "MBPP", "llada-td/mbpp", "moe-200/mbpp"},
    {"llada-moe/lcb-v6", "LCB_V6", "llada-td/lcb-v6", "moe-200/lcb-v6"},
};

struct rollout_rule dinfer_rule(enum dinfer_decoder decoder) {
    struct rollout_rule rule = {.block_tokens = 64,
                                .rule = {.kind = DECODE_THRESHOLD, .threshold = 0.9F}};
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

static const struct paper_row *row_of(const struct paper *paper, const char *table,
                                      const char *dataset, const char *system,
                                      const char *setting) {
    for (size_t i = 0; i < paper->n_rows; i++) {
        const struct paper_row *row = &paper->rows[i];
        if (strcmp(row->source, table) == 0 && strcmp(row->dataset, dataset) == 0 &&
            strcmp(row->system, system) == 0 && strcmp(row->setting, setting) == 0 &&
            strcmp(row->quantity, "tpf") == 0) {
            return row;
        }
    }
    return NULL;
}

const struct paper_row *dinfer_row(const struct paper *paper, const char *dataset,
                                   const char *system, const char *setting) {
    return row_of(paper, "Table 1", dataset, system, setting);
}

const struct paper_row *dinfer_distilled_row(const struct paper *paper, const char *dataset) {
    return row_of(paper, "Table 2", dataset, "dInfer", "with KV cache");
}

/* Written with four decimals: what is derived from a location is derived from those. */
static double as_written(double location) {
    return round(location * 1e4) / 1e4;
}

static void settle_under(struct decode_fit *fit, double location, const struct rollout_rule *rule) {
    fit->process.location = as_written(location);
    struct rollout sums = decode_fit_sample(&fit->process, rule);
    fit->reached = rollout_tokens_per_step(&sums);
}

static void settle(struct decode_fit *fit, double location, enum dinfer_decoder decoder) {
    const struct rollout_rule rule = dinfer_rule(decoder);
    settle_under(fit, location, &rule);
}

static int fit_base(const struct paper *paper, struct decode_fit *out, struct err *err) {
    const struct rollout_rule rule = dinfer_rule(DINFER_FAST_DLLM);
    for (size_t i = 0; i < N_DINFER_TARGETS; i++) {
        const struct paper_row *row =
            dinfer_row(paper, dinfer_targets[i].dataset, "Fast-dLLM", "without KV cache");
        if (row == NULL) {
            return err_world(err,
                             "%s lacks a row that decode processes are fitted to: TPF of "
                             "Fast-dLLM on %s without KV cache",
                             paper->path, dinfer_targets[i].dataset);
        }
        out[i] = (struct decode_fit){.process = decode_assumed, .target = row->value};
        settle(&out[i], decode_location(&out[i].process, &rule, true, row->value),
               DINFER_FAST_DLLM);
    }
    return 0;
}

/* The canvas is run to its end, whatever lies behind the answer. */
static void fit_short(struct dinfer_fits *fits) {
    struct rollout_rule rule = dinfer_rule(DINFER_FAST_DLLM);
    rule.answer_tokens = DINFER_SHORT_ANSWER;
    for (size_t i = 0; i < N_DINFER_TARGETS; i++) {
        struct decode_fit *fit = &fits->of_short[i];
        *fit = (struct decode_fit){.process = decode_assumed, .target = fits->base[i].target};
        settle_under(fit, decode_location(&fit->process, &rule, true, fit->target), &rule);
    }
}

static double shift_of(const struct dinfer_fits *fits) {
    return fits->distilled[DINFER_GSM8K].process.location -
           fits->base[DINFER_GSM8K].process.location;
}

static int fit_distilled(const struct paper *paper, struct dinfer_fits *fits, struct err *err) {
    struct rollout_rule rule = dinfer_rule(DINFER_THRESHOLD);
    rule.rule.slack = 0; /* where the search begins every confidence is 0, but for less than it */
    for (size_t i = 0; i < N_DINFER_TARGETS; i++) {
        const struct paper_row *row = dinfer_distilled_row(paper, dinfer_targets[i].dataset);
        if (row == NULL) {
            return err_world(err,
                             "%s lacks a row that decode processes are compared with: TPF of "
                             "dInfer on %s in Table 2",
                             paper->path, dinfer_targets[i].dataset);
        }
        fits->distilled[i] = (struct decode_fit){.process = decode_assumed, .target = row->value};
    }
    struct decode_fit *gsm8k = &fits->distilled[DINFER_GSM8K];
    settle(gsm8k, decode_location(&gsm8k->process, &rule, true, gsm8k->target), DINFER_THRESHOLD);
    for (size_t i = 0; i < N_DINFER_TARGETS; i++) {
        settle(&fits->distilled[i], fits->base[i].process.location + shift_of(fits),
               DINFER_THRESHOLD);
    }
    return 0;
}

int dinfer_fit_all(const struct paper *paper, struct dinfer_fits *out, struct err *err) {
    gsl_error_handler_t *handler = gsl_set_error_handler_off();
    int status = fit_base(paper, out->base, err);
    status = status == 0 ? fit_distilled(paper, out, err) : status;
    if (status == 0) {
        fit_short(out);
    }
    gsl_set_error_handler(handler);
    return status;
}

static int print_fit(const char *name, const struct decode_fit *fit, FILE *out, struct err *err) {
    struct decode_process stored;
    int status = decode_process_find(name, &stored, err);
    if (status == 0) {
        fprintf(out, "  %-28s %10.4f %10.4f %9.2f %9.2f\n", name, stored.location,
                fit->process.location, fit->target, fit->reached);
    }
    return status;
}

int dinfer_fit_print(const struct dinfer_fits *fits, FILE *out, struct err *err) {
    fprintf(out,
            "LLaDA-MoE, shape assumed: tokens per forward pass, blocks of 64; its distilled model "
            "moved by GSM8K's shift\n"
            "  %-28s %10s %10s %9s %9s\n",
            "process", "stored", "fitted", "printed", "gives");
    int status = 0;
    for (size_t i = 0; status == 0 && i < N_DINFER_TARGETS; i++) {
        status = print_fit(dinfer_targets[i].process, &fits->base[i], out, err);
    }
    for (size_t i = 0; status == 0 && i < N_DINFER_TARGETS; i++) {
        status = print_fit(dinfer_targets[i].distilled, &fits->distilled[i], out, err);
    }
    for (size_t i = 0; status == 0 && i < N_DINFER_TARGETS; i++) {
        status = print_fit(dinfer_targets[i].short_process, &fits->of_short[i], out, err);
    }
    return status;
}

size_t dinfer_fit_numbers(const struct dinfer_fits *fits, struct fitted_number *out) {
    size_t n = 0;
    for (size_t i = 0; i < N_DINFER_TARGETS; i++) {
        const struct dinfer_target *to = &dinfer_targets[i];
        const char *const names[] = {to->process, to->distilled, to->short_process, to->distilled};
        const double values[] = {fits->base[i].process.location,
                                 fits->distilled[i].process.location,
                                 fits->of_short[i].process.location, shift_of(fits)};
        for (size_t k = 0; k < (i == DINFER_GSM8K ? 3 : 4); k++) {
            out[n] = (struct fitted_number){.key = k < 3 ? "location" : "transferred_from",
                                            .value = values[k]};
            snprintf(out[n++].section, sizeof out->section, "%s", names[k]);
        }
    }
    return n;
}
