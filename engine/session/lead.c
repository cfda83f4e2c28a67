#include "engine/session/lead.h"

#include <stdlib.h>

#include "sim/base/mem.h"

void lead_open(struct lead *lead, const struct step_limits *limits) {
    *lead = (struct lead){.parts = mem_zeroed(limits->max_requests, sizeof *lead->parts),
                          .spans = mem_zeroed(limits->max_requests, sizeof *lead->spans),
                          .span_list = mem_zeroed(limits->max_requests, sizeof(struct span *))};
}

void lead_close(struct lead *lead) {
    free(lead->parts);
    free(lead->spans);
    free(lead->span_list);
    *lead = (struct lead){0};
}

/* Nothing of it goes through the head. */
static void plan_part(const struct step *step, uint32_t i, struct step_part *part,
                      struct span *span) {
    const uint32_t left_out = span->queries - span->first_queries;
    *part = step->parts[i];
    part->positions += left_out;
    part->kv_rows = left_out > 0 ? NULL : part->kv_rows;
    part->logit_rows = part->targets = part->row_places = NULL;
    part->decision = (struct decision){0};
    span->context += left_out;
    span->queries = span->first_queries;
    span->logit_rows = span->sampled_rows = 0;
}

void lead_plan(struct lead *lead, struct step *step) {
    shape_clear(&lead->shape);
    for (uint32_t i = 0; i < step->shape->n_spans; i++) {
        lead->spans[i] = *step->shape->spans[i];
        lead->span_list[i] = &lead->spans[i];
        plan_part(step, i, &lead->parts[i], &lead->spans[i]);
        shape_add(lead->shape.sym, &lead->spans[i], 1);
    }
    lead->shape.n_spans = step->shape->n_spans;
    lead->shape.spans = lead->span_list;
    lead->step = *step;
    lead->step.shape = &lead->shape;
    lead->step.parts = lead->parts;
    step->lead = &lead->step;
}
