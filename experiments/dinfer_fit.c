#include "experiments/dinfer_fit.h"

#include <gsl/gsl_errno.h>

const struct dinfer_target dinfer_targets[N_DINFER_TARGETS] = {
    {"llada-moe/crux-o", "CRUX-O"},       {"llada-moe/gsm8k", "GSM8K"},
    {"llada-moe/humaneval", "HumanEval"}, {"llada-moe/ifeval", "IFEval"},
    {"llada-moe/mbpp", "MBPP"},           {"llada-moe/lcb-v6", "LCB_V6"},
};

const char *const dinfer_decoder_names[N_DINFER_DECODERS] = {
    [DINFER_FAST_DLLM] = "threshold 0.9 (Fast-dLLM)",
    [DINFER_THRESHOLD] = "threshold 0.8",
    [DINFER_HIERARCHICAL] = "hierarchical, 0.92 and 0.62",
    [DINFER_CREDIT] = "credit, 0.8",
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

const struct paper_row *dinfer_row(const struct paper *paper, const char *dataset,
                                   const char *system, const char *setting) {
    return paper_find(paper, NULL, dataset, system, setting, "tpf");
}

int dinfer_fit_all(const struct paper *paper, struct decode_fit *out, struct err *err) {
    const struct rollout_rule rule = dinfer_rule(DINFER_FAST_DLLM);
    gsl_error_handler_t *handler = gsl_set_error_handler_off();
    int status = 0;
    for (size_t i = 0; status == 0 && i < N_DINFER_TARGETS; i++) {
        const struct paper_row *row =
            dinfer_row(paper, dinfer_targets[i].dataset, "Fast-dLLM", "without KV cache");
        if (row == NULL) {
            status = err_world(err,
                               "%s lacks a row that decode processes are fitted to: TPF of "
                               "Fast-dLLM on %s without KV cache",
                               paper->path, dinfer_targets[i].dataset);
            break;
        }
        out[i] = (struct decode_fit){.process = decode_assumed, .target = row->value};
        out[i].process.location = decode_location(&out[i].process, &rule, true, row->value);
        struct rollout sums = decode_fit_sample(&out[i].process, &rule);
        out[i].reached = rollout_tokens_per_step(&sums);
    }
    gsl_set_error_handler(handler);
    return status;
}

int dinfer_fit_print(const struct decode_fit *fits, FILE *out, struct err *err) {
    fprintf(out,
            "LLaDA-MoE, shape assumed: tokens per forward pass, blocks of 64\n"
            "  %-28s %10s %10s %9s %9s\n",
            "process", "stored", "fitted", "printed", "gives");
    for (size_t i = 0; i < N_DINFER_TARGETS; i++) {
        struct decode_process stored;
        int status = decode_process_find(dinfer_targets[i].process, &stored, err);
        if (status != 0) {
            return status;
        }
        fprintf(out, "  %-28s %10.4f %10.4f %9.2f %9.2f\n", dinfer_targets[i].process,
                stored.location, fits[i].process.location, fits[i].target, fits[i].reached);
    }
    return 0;
}

void dinfer_fit_write(const struct decode_fit *fits, FILE *file) {
    for (size_t i = 0; i < N_DINFER_TARGETS; i++) {
        const struct dinfer_target *to = &dinfer_targets[i];
        fprintf(file,
                "\n[%s]\nshape = assumed\nlocation = %.4f\n"
                "calibrated_to = dInfer Table 1: LLaDA-MoE, %s, Fast-dLLM without KV cache, %g "
                "tokens per forward pass\n"
                "paper_row = Table 1|8xH800|LLaDA-MoE|%s|Fast-dLLM|without KV cache|tpf\n",
                to->process, fits[i].process.location, to->dataset, fits[i].target, to->dataset);
    }
}
