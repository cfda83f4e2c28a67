#include "experiments/study/dinfer_rule.h"

struct rollout_rule dinfer_rule(enum dinfer_decoder decoder) {
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
