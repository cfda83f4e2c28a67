/* A step: the shape of one forward pass as the command line describes it. */
#ifndef UNMASK_EXPERIMENTS_STUDY_STEP_H
#define UNMASK_EXPERIMENTS_STUDY_STEP_H

#include "experiments/run/cli/options.h"
#include "sim/serve/step.h"
#include "sim/system/system.h"

/* --requests, --prompt, --output, --step; or --refresh and --reuse. */
extern const struct option step_options[];

/* One kind of request in the step: as it stood before each of its steps so far and before this one,
 * the last of the path. */
struct step_kind {
    uint32_t n_requests;
    struct request *path;
    uint32_t n_path;
    /* [n_path, PATH_FLAGS, block_tokens]: the positions of the active block, as struct
     * planned_block has them, before each step. */
    uint8_t *flags;
    uint32_t block_tokens;
};
enum { PATH_FLAGS = 4 };

/* Those of a step of the path; the last step commits what it may commit first. */
struct planned_block step_block(const struct step_kind *kind, uint32_t i);

struct asked_step {
    struct step_kind kinds[2]; /* refresh and reuse, or the one of --step */
    const struct span **spans;
    struct step_shape shape; /* padded where the runtime pads */
    int64_t workspace_bytes; /* that it may take in addition to its requests' cached state */
    char text[192];          /* the step in words */
};

/* Ask the system's policies for the spans of such requests. `system` is changed while this runs and
 * as before on return. ERR_USAGE when they have no such step, ERR_WORLD when they are rejected. */
int step_make(const struct options *options, struct system *system, struct asked_step *out,
              struct err *err);
/* One request's first step. */
int step_first(struct system *system, uint32_t prompt_tokens, uint32_t output_tokens,
               struct asked_step *out, struct err *err);
void step_fini(struct asked_step *step);

/* What `explain` and `plan` share: open the system that the options name, make the step, show it.
 */
int step_show(const struct options *options,
              int (*show)(const struct options *options, const struct system *system,
                          const struct asked_step *step, struct err *err),
              struct err *err);

/* One request's first step on a system that stands for itself: as `unmask plan latency` and the
 * figures of step times ask for it. */

/* Opens the system for canvases of up to this many tokens, beyond the model's positions too. The
 * first step decides on all outputs, which are masked: the scope `masked`, which would count one
 * block of them, becomes `generation`. `on_engine`: as the engine runs it. */
int first_step_open(const struct system_request *wanted, uint32_t longest_tokens, bool on_engine,
                    struct system **out, struct err *err);

/* The outputs of a canvas of which the prompt has that share: at least one position. */
uint32_t first_step_outputs(uint32_t canvas_tokens, double prompt_share);

/* What attention, FFN and logits take of the sum over operators, out of one time for each: norms
 * and additions outside of the loops are in none. */
struct step_parts {
    double attention_ns, ffn_ns, logits_ns, sum_ns;
};
struct step_parts step_parts_of(const struct graph *graph, const double op_ns[GRAPH_MAX_OPS]);

#endif
