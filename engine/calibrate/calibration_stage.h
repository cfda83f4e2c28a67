/* A stage of the whole steps: those that one of the model's graphs runs, the memory for the largest
 * of them, and the arrays of the step that comes next. */
#ifndef UNMASK_ENGINE_CALIBRATE_CALIBRATION_STAGE_H
#define UNMASK_ENGINE_CALIBRATE_CALIBRATION_STAGE_H

#include "engine/calibrate/calibration_steps.h"

/* One graph, opened, and the arrays of its steps. */
struct stage {
    const struct steps_request *request;
    int variant; /* of the graphs, which says what steps it runs */
    const struct model *model;
    struct graph graph;
    struct forward *forward;
    struct step_limits limits;
    int64_t element_bytes;
    struct chunk_rows chunks;
    struct span *spans;            /* [max_requests] */
    const struct span **span_list; /* the same */
    struct step_part *parts;       /* the same */
    int32_t *n_committed;          /* the same */
    /* Of a canvas: numbers from 0 on, which positions and pages are; where each position's block
     * ends; and the rows of positions of which those after the first block are kept. */
    int32_t *numbers, *ends, *kept_rows;
    int32_t *tokens;       /* [canvas_tokens] */
    int64_t filled_tokens; /* of them the step's */
    const struct calibration_step *filled;
    struct placement placement;
    struct step_shape shape;
    struct step step;
};

/* `request` and `variant` are written. ERR_WORLD where the device has too little memory; what was
 * opened is closed by stage_close all the same. */
int stage_open(struct stage *stage, const struct calibration_steps *steps, struct err *err);
void stage_close(struct stage *stage);

/* Whether its graph runs the step; and the step filled in, to be submitted. */
bool stage_runs(const struct stage *stage, const struct calibration_step *step);
void stage_fill(struct stage *stage, const struct calibration_step *step);

/* What the largest stage takes of the device, but for some megabytes of arrays; of the request
 * device, planner, chunks and bounds are read. */
struct stage_need {
    int64_t workspace_bytes, pool_bytes;
};
struct stage_need stage_need(const struct calibration_steps *steps, const struct model *model,
                             const struct steps_request *request);

#endif
