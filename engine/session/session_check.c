/* Which systems the engine runs. */
#include <inttypes.h>

#include "engine/session/session.h"
#include "sim/decode/block.h"

/* The row sets that the engine cannot run, and why. */
static int refuse_rows(const struct system *system, struct err *err) {
    const struct row_sets *rows = &system->rows;
    const char *name = system->cache->policy.name;
    if (rows->kind == ROW_FEATURES || rows->chooser == CHOSEN_BY_CHANGE) {
        return err_usage(err,
                         "the engine does not run cache policy %s: it keeps keys and values of a "
                         "canvas, and runs the same positions through all layers",
                         name);
    }
    bool scatters = rows->settles == BLOCK_DELAYED || rows->settles == BLOCK_NEIGHBOUR ||
                    rows->chooser == CHOSEN_BY_POLICY;
    if (scatters && system->model->shifted_logits) {
        return err_usage(err,
                         "the engine does not run cache policy %s with %s: its logits decide on "
                         "the next position, and the one before a masked position may be left out",
                         name, system->model->name);
    }
    if (rows->chooser == CHOSEN_BY_POLICY && system->settings.iteration == ITERATION_SMOOTH) {
        return err_usage(err,
                         "iteration = smooth keeps what a step says of every masked position, and "
                         "cache %s evicts some in its middle: the engine does not run both",
                         name);
    }
    return 0;
}

/* Rules that look at every position's place among the others do so for so many, at most. */
static int check_rule(const struct system *system, struct err *err) {
    uint32_t kind = decoder_rule_always(system->decoder, system->decoder_state).kind;
    bool is_ranked = kind != DECODE_COUNT && kind != DECODE_THRESHOLD;
    return !is_ranked || system->settings.block_tokens <= DECODE_MAX_RANKED
               ? 0
               : err_usage(err,
                           "the engine decides by %s in blocks of at most %d tokens, not %" PRIu32,
                           system->decoder->policy.name, DECODE_MAX_RANKED,
                           system->settings.block_tokens);
}

bool sessions_list_positions(const struct system *system) {
    return rows_leave_out(&system->rows);
}

int sessions_check_batch(const struct sessions *sessions, const struct planned_step *planned,
                         struct err *err) {
    uint32_t n = planned_spans(planned), most = sessions->limits.max_requests;
    return n <= most ? 0
                     : err_usage(err,
                                 "a batch of %" PRIu32 " requests, but the engine was opened for "
                                 "%" PRIu32,
                                 n, most);
}

int sessions_check(const struct system *system, struct err *err) {
    if (refuse_rows(system, err) != 0) {
        return (int)err->kind;
    }
    const struct decoder *decoder = system->decoder;
    if (system->settings.unroll_maximum > 1 && decoder->choose != NULL) {
        return err_usage(err,
                         "decoder %s chooses on the host after each step, which unroll.maximum = "
                         "%" PRIu32 " does not let it: set unroll.maximum = 1",
                         decoder->policy.name, system->settings.unroll_maximum);
    }
    if (system->row_bytes % (STORE_ALIGN_ELEMENTS * system->runtime.element_bytes) != 0) {
        return err_usage(err,
                         "the engine keeps rows of a multiple of %d values, those of %s have "
                         "%" PRId64,
                         STORE_ALIGN_ELEMENTS, system->model->name,
                         system->row_bytes / system->runtime.element_bytes);
    }
    return check_rule(system, err);
}
