/* LLaDA2.2's insert and delete (inclusionAI/LLaDA2.X LLaDA2_2_tech_report.pdf, section 3.1;
 * SGLang's JointThresholdInDel): the joint threshold with two tokens more, one that drops its
 * position and one that puts a mask before it. What follows moves, inside the block: after a
 * dropped position a mask is added at the block's end, and of a block that has become longer the
 * last position is cut.
 *
 * While masks of the block's start are left a pass fills one position more than masks were
 * inserted, the most confident ones, or all above the threshold where those are as many. Without
 * such masks it fills all. So a position that was decided may be masked again. That SGLang forbids
 * tokens where a content comes back, so that passes end, is not followed: what is drawn settles. */
#include "sim/policy/decoder/moving.h"

static const struct param params[] = {
    {"threshold", PARAM_F64, 0, "1", "0.5", 0, 1, NULL, offsetof(struct joint_indel, threshold),
     "confidence above which a masked position is filled"},
    {"edit_threshold", PARAM_F64, 0, "1", "0", 0, 1, NULL,
     offsetof(struct joint_indel, edit_threshold),
     "confidence above which a token is replaced, or a position dropped or inserted, at most "
     "decoder.threshold"},
    {"max_post_edit_steps", PARAM_U32, 0, "steps", "16", 0, 4096, NULL,
     offsetof(struct joint_indel, max_post_edit_steps),
     "steps over a block without masks of its start that may edit"},
    {"delete_token", PARAM_U32, 0, "1", "0", 0, INT32_MAX, NULL,
     offsetof(struct joint_indel, delete_token),
     "id of the token that drops its position (0: the model's) [backend = cpu|cuda]"},
    {"insert_token", PARAM_U32, 0, "1", "0", 0, INT32_MAX, NULL,
     offsetof(struct joint_indel, insert_token),
     "id of the token that puts a mask before what its position holds (0: the model's) "
     "[backend = cpu|cuda]"},
};

static void rule(const void *opaque, const struct request *request, struct decode_rule *out) {
    const struct joint_indel *state = opaque;
    (void)request;
    *out = (struct decode_rule){.kind = DECODE_JOINT,
                                .rank = RANK_CONFIDENCE,
                                .threshold = (float)state->threshold,
                                .edit = (float)state->edit_threshold,
                                .post_passes = state->max_post_edit_steps};
}

const struct decoder decoder_joint_indel = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .state_bytes = sizeof(struct joint_indel),
               .name = "joint-indel",
               .doc = "the joint threshold with positions inserted and dropped (LLaDA2.2)",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .rule = rule,
    .way = DECODER_MOVES,
};
