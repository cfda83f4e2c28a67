#include "engine/calibrate/calibration_room.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/calibrate/calibration_stage.h"
#include "engine/calibrate/measure.h"
#include "engine/op/packed.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"

/* Of the device's free memory, at most: for stored logits, for one layer's cached rows while
 * operators are measured, and for all layers' in whole steps. */
enum { LOGITS_SHARE = 4, KV_SHARE = 4, STORE_SHARE = 2, KV_ROWS_PER_TOKEN = 16 };
/* Of the device's memory, left for captured graphs, libraries and what else asks for some. */
enum { SPARE_SHARE = 24 };

/* `most`, or as much as memory allows: a power of two then. */
static int64_t as_fits(int64_t fits, int64_t most) {
    int64_t power = 1;
    while (2 * power <= fits) {
        power *= 2;
    }
    return fits >= most ? most : power;
}

static int64_t least_tokens(const struct model *model) {
    return 2LL * model->block_tokens;
}

static int check_asked(const struct calibration_request *request, int64_t page_rows,
                       struct err *err) {
    const struct model *model = request->system->model;
    const int64_t max = request->max_tokens;
    if (max < least_tokens(model) || max > INT32_MAX / KV_ROWS_PER_TOKEN) {
        return err_usage(err, "a calibration of %s takes %" PRId64 " to %d tokens, not %" PRId64,
                         model->name, least_tokens(model), INT32_MAX / KV_ROWS_PER_TOKEN, max);
    }
    if (page_rows > 0 && !packed_takes_pages(page_rows)) {
        return err_usage(err,
                         "%s has pages of %" PRId64 " rows, but the kernels take a power of two "
                         "from 4 to 256",
                         request->system->name, page_rows);
    }
    return 0;
}

/* Memory that the device must have free in addition to the weights. */
struct need {
    struct stage_need stage;
    int64_t operators_bytes;
};

static int find_need(const struct calibration_request *request,
                     const struct calibration_bounds *bounds, struct need *need, struct err *err) {
    const struct model *model = request->system->model;
    const struct steps_request stages = {.device = request->device,
                                         .weights = request->weights,
                                         .planner = request->system->planner,
                                         .chunks = request->system->chunks.bound,
                                         .bounds = *bounds};
    struct calibration_steps *steps = mem_unwritten(1, sizeof *steps);
    struct calibration_grid grid;
    calibration_steps_list(steps, model, bounds);
    need->stage = stage_need(steps, model, &stages);
    free(steps);
    int status =
        calibration_grid_make(&grid, model, &request->weights->layout.storage, bounds, err);
    if (status == 0) {
        status = measure_need(request->device, request->weights, bounds, &grid,
                              &need->operators_bytes, err);
        calibration_grid_close(&grid);
    }
    return status;
}

static int64_t most_of(const struct need *need) {
    return num_larger(need->stage.workspace_bytes + need->stage.pool_bytes, need->operators_bytes);
}

static int64_t spare_bytes(const struct calibration_request *request) {
    return request->device->facts.memory_bytes / SPARE_SHARE;
}

static int say_missing(const struct calibration_request *request, int64_t free_bytes,
                       int64_t need_bytes, const char *whose, struct err *err) {
    char need[32], has[32], spare[32];
    return err_world(
        err,
        "%s of %s needs %s in addition to the weights and %s to spare, but the device has %s free",
        whose, request->system->model->name,
        num_format_bytes(need, sizeof need, (double)need_bytes),
        num_format_bytes(spare, sizeof spare, (double)spare_bytes(request)),
        num_format_bytes(has, sizeof has, (double)free_bytes));
}

/* The next smaller ones: fewer cached rows where those take most of a step, else fewer tokens. */
static void shrink(struct calibration_bounds *bounds, const struct need *need) {
    const bool is_of_steps =
        need->stage.workspace_bytes + need->stage.pool_bytes > need->operators_bytes;
    if (is_of_steps && need->stage.pool_bytes > need->stage.workspace_bytes) {
        bounds->max_store_rows = as_fits(bounds->max_store_rows / 2, INT64_MAX);
        return;
    }
    bounds->max_tokens = as_fits(bounds->max_tokens / 2, INT64_MAX);
    if (bounds->max_logit_rows > bounds->max_tokens) {
        bounds->max_logit_rows = bounds->max_tokens;
    }
    if (bounds->max_kv_rows > KV_ROWS_PER_TOKEN * bounds->max_tokens) {
        bounds->max_kv_rows = KV_ROWS_PER_TOKEN * bounds->max_tokens;
    }
}

int calibration_bounds_find(const struct calibration_request *request, int64_t free_bytes,
                            struct calibration_bounds *out, struct err *err) {
    const struct model *model = request->system->model;
    const int64_t bytes = engine_element_bytes(request->device), max = request->max_tokens;
    const int64_t token_bytes = model_kv_bytes_per_token(model, engine_number(request->device));
    const int64_t logit_rows = free_bytes / LOGITS_SHARE / (model->vocab * bytes);
    const int64_t kv_rows = KV_ROWS_PER_TOKEN * max;
    *out = (struct calibration_bounds){
        .max_tokens = max,
        .max_logit_rows = as_fits(logit_rows, max),
        .max_kv_rows = as_fits(free_bytes / KV_SHARE / (token_bytes / model->layers), kv_rows),
        .max_store_rows = as_fits(free_bytes / STORE_SHARE / token_bytes, kv_rows),
        .page_rows = calibration_is_exact(model) ? request->system->settings.page_tokens : 0,
        .is_coarse = request->is_quick};
    struct need need = {{0, 0}, 0};
    int status = check_asked(request, out->page_rows, err);
    status = status == 0 ? find_need(request, out, &need, err) : status;
    while (status == 0 && most_of(&need) > free_bytes - spare_bytes(request)) {
        shrink(out, &need);
        if (out->max_tokens < least_tokens(model) || out->max_store_rows < least_tokens(model)) {
            return say_missing(request, free_bytes, most_of(&need), "the least calibration", err);
        }
        status = find_need(request, out, &need, err);
    }
    return status;
}

int calibration_bounds_check(const struct calibration_request *request, int64_t free_bytes,
                             const struct calibration_bounds *bounds, struct err *err) {
    struct need need = {{0, 0}, 0};
    int status = find_need(request, bounds, &need, err);
    return status == 0 && most_of(&need) > free_bytes
               ? say_missing(request, free_bytes, most_of(&need), "the calibration that was begun",
                             err)
               : status;
}

const char *calibration_bounds_text(const struct calibration_bounds *bounds,
                                    char text[CALIBRATION_BOUNDS_CHARS]) {
    snprintf(
        text, CALIBRATION_BOUNDS_CHARS,
        "up to %" PRId64 " tokens, %" PRId64 " logit rows, %" PRId64 " and %" PRId64 " cached rows",
        bounds->max_tokens, bounds->max_logit_rows, bounds->max_kv_rows, bounds->max_store_rows);
    return text;
}

bool calibration_bounds_read(const char *text, struct calibration_bounds *out) {
    char again[CALIBRATION_BOUNDS_CHARS];
    struct calibration_bounds found = *out;
    bool is_read = sscanf(text,
                          "up to %" SCNd64 " tokens, %" SCNd64 " logit rows, %" SCNd64
                          " and %" SCNd64 " cached rows",
                          &found.max_tokens, &found.max_logit_rows, &found.max_kv_rows,
                          &found.max_store_rows) == 4 &&
                   strncmp(calibration_bounds_text(&found, again), text, strlen(again)) == 0 &&
                   found.max_tokens > 0 && found.max_tokens <= INT32_MAX / KV_ROWS_PER_TOKEN &&
                   found.max_logit_rows > 0 && found.max_kv_rows > 0 && found.max_store_rows > 0;
    *out = is_read ? found : *out;
    return is_read;
}
