/* The accuracy of a run: what the cost model predicts for each of its steps, compared with what was
 * measured.
 *
 * Errors are signed, predicted / measured - 1: above 0 the model is too slow. A submission of
 * several equal steps counts as that many in the distributions, each at their mean. */
#ifndef UNMASK_EXPERIMENTS_RUN_ACCURACY_H
#define UNMASK_EXPERIMENTS_RUN_ACCURACY_H

#include <jansson.h>
#include <stdio.h>

#include "engine/live.h"
#include "experiments/run/retiming.h"
#include "sim/base/warning.h"
#include "sim/system/system.h"

enum step_class {
    STEP_REFRESH,   /* whole canvases alone, nothing selected */
    STEP_REUSE,     /* blocks against cached rows alone */
    STEP_SELECTING, /* whole canvases of which some choose what they keep */
    STEP_MIXED,
};
enum { STEP_CLASS_COUNT = STEP_MIXED + 1 };
extern const char *const step_class_names[STEP_CLASS_COUNT];

/* Times of one step of a submission. */
struct compared_step {
    uint32_t steps, kind;
    bool unrolled; /* they were measured issued at once, with one visit of the host */
    int64_t sym[SYM_COUNT];
    double predicted_device_ns, predicted_host_ns, predicted_wall_ns;
    double measured_device_ns, measured_wall_ns;
    double idle_ns; /* of the card before the first of them */
};

/* One operator of the graph, over the steps that were measured operator by operator. */
struct compared_operator {
    double predicted_ns, measured_ns;
};

struct accuracy {
    const struct system *system;
    struct compared_step *steps; /* of each submission, in order */
    size_t n_steps, room;
    struct warnings beware; /* that their times are not the device's own */
    /* The requests at predicted and at measured times, in the recorded batches; and whether they
     * are known, all of them: not from a file of steps, nor of a run that was cut short. */
    struct retiming predicted, measured;
    bool knows_requests;
    uint32_t every; /* operators of every Nth step; 0: of none */
    /* By kind of step; measured times add up to whole steps. */
    struct compared_operator ops[STEP_CLASS_COUNT][GRAPH_MAX_OPS];
    uint32_t n_by_operator[STEP_CLASS_COUNT]; /* steps measured so */
};

/* Room for `n_steps` submissions. */
void accuracy_init(struct accuracy *accuracy, const struct system *system, size_t n_steps,
                   uint32_t every);
void accuracy_fini(struct accuracy *accuracy);

enum step_class step_class_of(const struct submission *submission);

void accuracy_add(struct accuracy *accuracy, const struct compared_step *step);

/* Steps of this submission, compared so, ran from start to end in the record; and a request that
 * the run is done with. */
void accuracy_time(struct accuracy *accuracy, const struct submission *submission,
                   const struct compared_step *step, int64_t start_ns, int64_t end_ns);
struct sink accuracy_sink(struct accuracy *accuracy);

/* Nothing is added any more. */
void accuracy_finish(struct accuracy *accuracy, bool knows_requests);

/* Whether the next submission is one of those measured operator by operator. */
bool accuracy_wants_operators(const struct accuracy *accuracy);

/* Operator times of one of its steps, taken between events, which take time themselves, and the
 * step as it was predicted and measured whole: what events took is taken off, so that the times add
 * up to its device time (sim/price/in_step.h). Where the card has a clock its operators are
 * predicted at the one of that step. */
void accuracy_add_operators(struct accuracy *accuracy, const struct submission *submission,
                            const double ns[GRAPH_MAX_OPS], const struct compared_step *whole);

/* Steps of one kind, or of all where `kind` is STEP_CLASS_COUNT, that were measured by operator. */
uint32_t accuracy_by_operator(const struct accuracy *accuracy, uint32_t kind);

void accuracy_print(const struct accuracy *accuracy, FILE *out);
json_t *accuracy_json(const struct accuracy *accuracy);

/* Of warnings of the run that measured the steps keeps what says that its times are not the
 * device's own. */
void accuracy_beware(struct accuracy *accuracy, const struct warnings *of_run);

/* One row per submission; of steps that were carried out one by one, each has a row. Its column
 * `beware` has the codes of those warnings, "-" of none. */
int accuracy_write(const struct accuracy *accuracy, const char *path, struct err *err);

/* What was measured, from such a file, with predictions of the system as it is now: those of the
 * file are not read. Columns are found by their names. The caller runs accuracy_fini only after 0;
 * ERR_WORLD names file and line of what is no step, or none of this system. */
int accuracy_read(const char *path, const struct system *system, struct accuracy *out,
                  struct err *err);

#endif
