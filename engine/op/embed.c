#include "engine/op/launch.h"

#include "sim/base/rng.h"
#include "sim/model/ranks.h"

static int launch_embed(const struct launch *l) {
    return l->table->embed(l->device,
                           &(struct call_embed){.table = op_weight(l),
                                                .ids = l->issue->room->canvases,
                                                .at = wide(l, PACKED_AT),
                                                .y = output(l, 0),
                                                .n_tokens = (int32_t)l->instance->n_rows,
                                                .n_channels = (int32_t)l->model->hidden,
                                                .n_vocab = (int32_t)model_whole_vocab(l->model),
                                                .dtype = l->dtype});
}

/* Of tokens at random. */
static void fill(struct trial *trial, const struct calibration_point *point) {
    trial_fill_rows(trial, point);
    trial->has_tokens = true;
    for (int64_t i = 0; i < trial->n_tokens; i++) {
        double u = rng_keyed(2, 0, 0, (uint64_t)i);
        trial->tokens[i] = (int32_t)(u * trial->model->vocab);
    }
}

const struct op_launch op_launch_embed = {
    .launch = launch_embed, .sizes = OP_SIZES_PASS, .fill = fill};
