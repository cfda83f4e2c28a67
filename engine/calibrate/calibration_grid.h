/* The grid of a calibration: at which sizes the operators of a model's step graphs are measured.
 *
 * Points are one per distinct shape over all graphs that our engine runs for the model: with and
 * without selection (where the model's attention is bidirectional), with the fused operators
 * (output head, gate and up) and without, and again of bidirectional models with features and with
 * patterns; of a model that is a rank's share, the rank's, and what the ranks exchange. They lie in
 * groups (one product, one pass, one width of block attention), light groups first; within a group
 * sizes rise. */
#ifndef UNMASK_ENGINE_CALIBRATE_CALIBRATION_GRID_H
#define UNMASK_ENGINE_CALIBRATE_CALIBRATION_GRID_H

#include "engine/op/points.h"
#include "sim/base/err.h"
#include "sim/step/builder.h"

enum { POINT_TEXT_CHARS = 128 };

/* Whether the model's keys and values are exact: the rows of paged attention are measured then, of
 * prefill (attention_causal) and of blocks or single tokens (attention_block); nothing selects. */
static inline bool calibration_is_exact(const struct model *model) {
    return model->mask != MASK_BIDIRECTIONAL;
}

/* The graphs that our engine runs for a model; those in which nothing is chosen where keys and
 * values are exact. The first are sets of what whole steps are measured with, too; the others have
 * operators of their own, and no more. */
enum calibration_variant {
    VARIANT_SELECTS = 1,
    VARIANT_IS_FUSED = 2,
    CALIBRATION_STEP_VARIANTS = 4,
    VARIANT_HAS_FEATURES = CALIBRATION_STEP_VARIANTS,
    VARIANT_HAS_PATTERNS,
    CALIBRATION_VARIANTS,
};
struct graph_options calibration_graph(const struct model *model, const struct storage *storage,
                                       int variant);
bool calibration_has_graph(const struct model *model, int variant);
/* Whether its operators are measured with these types: features are not kept in fp8. */
bool calibration_has_points(const struct model *model, const struct storage *storage, int variant);

/* ERR_USAGE naming the first operator that cannot be measured. The caller closes the grid. */
int calibration_grid_make(struct calibration_grid *grid, const struct model *model,
                          const struct storage *storage, const struct calibration_bounds *bounds,
                          struct err *err);
void calibration_grid_close(struct calibration_grid *grid);

/* A row of a profile up to its time: "gemm,32,4096,4096". Returns `text`. */
const char *calibration_point_text(const struct calibration_point *point,
                                   char text[POINT_TEXT_CHARS]);
/* Its column of a type: ",fp8"; "" where it is the profile's own. */
const char *calibration_point_type(const struct calibration_point *point);

/* Whether it is something that ranks do together, and the most bytes of one rank in any such point;
 * 0 where there is none. */
static inline bool calibration_point_is_exchange(const struct calibration_point *point) {
    return point->op == PROFILE_ALL_REDUCE || point->op == PROFILE_ALL_GATHER;
}
int64_t calibration_most_exchanged(const struct calibration_grid *grid);

#endif
