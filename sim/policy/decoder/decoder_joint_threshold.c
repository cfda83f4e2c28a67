/* LLaDA2.1's joint threshold (inclusionAI/LLaDA2.X llada2_1_tech_report.pdf; SGLang's
 * JointThreshold at 17d5721): every masked position above one threshold is filled, the most
 * confident one always, and in the same pass every token of the block, but for the prompt's, is
 * replaced where another one is the most likely and above a second threshold. When nothing is
 * masked any more passes go on until one of them replaces nothing, or for a number of them; after
 * that the block is stored.
 *
 * diffusers (BlockRefinementScheduler at 58eb52c) also fills an even share of the block in each
 * pass, and has done with a block once as many passes as there are shares have filled it. */
#include "sim/policy/decoder/decoder.h"

struct state {
    double threshold, edit_threshold, penalty;
    uint32_t max_post_edit_steps, steps;
    bool zero_edits;
};

static const struct param params[] = {
    {"threshold", PARAM_F64, 0, "1", "0.5", 0, 1, NULL, offsetof(struct state, threshold),
     "confidence above which a masked position is filled"},
    {"edit_threshold", PARAM_F64, 0, "1", "0", 0, 1, NULL, offsetof(struct state, edit_threshold),
     "confidence above which a token is replaced, at most decoder.threshold; 1: none is"},
    {"zero_edits", PARAM_BOOL, 0, "1", "on", 0, 1, NULL, offsetof(struct state, zero_edits),
     "an edit_threshold of 0 replaces every token that differs, as in SGLang (off: none, as in "
     "diffusers) [decoder.edit_threshold = 0]"},
    {"max_post_edit_steps", PARAM_U32, 0, "steps", "16", 0, 4096, NULL,
     offsetof(struct state, max_post_edit_steps),
     "steps over a block without masks that may replace tokens [decoder.edit_threshold < 1]"},
    {"steps", PARAM_U32, 0, "steps", "0", 0, 65536, NULL, offsetof(struct state, steps),
     "steps that fill a block: each fills an even share of it at least, and where that takes them "
     "all no more follow (diffusers: 32; 0: each fills the best position at least)"},
    {"penalty", PARAM_F64, 0, "1", "0", 0, 1000, NULL, offsetof(struct state, penalty),
     "what the logit of the token before a position loses, against stutter; live alone: what is "
     "drawn does not know of it"},
};

static void rule(const void *opaque, const struct request *request, struct decode_rule *out) {
    const struct state *state = opaque;
    const bool edits = state->edit_threshold > 0 || state->zero_edits;
    (void)request;
    *out = (struct decode_rule){.kind = DECODE_JOINT,
                                .rank = RANK_CONFIDENCE,
                                .threshold = (float)state->threshold,
                                .edit = edits ? (float)state->edit_threshold : 1,
                                .post_passes = state->max_post_edit_steps,
                                .steps = state->steps,
                                .penalty = (float)state->penalty};
}

const struct decoder decoder_joint_threshold = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .state_bytes = sizeof(struct state),
               .name = "joint-threshold",
               .doc = "fills masks above one threshold, replaces tokens above another; more passes "
                      "(LLaDA2.1)",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .rule = rule,
};
