#include "engine/calibrate/measure_impl.h"

#include <gsl/gsl_statistics_double.h>
#include <stdlib.h>
#include <string.h>

#include "engine/weights/weights.h"
#include "kernels/ref/ref.h"
#include "sim/base/num.h"
#include "sim/base/rng.h"
#include "sim/model/ranks.h"

/* A recorded play takes about this long, as far as MAX_COPIES make it: starting it, some
 * microseconds, is a small part of it then. What is not recorded is queued while it runs. */
enum { RECORDED_NS = 4000000, ISSUED_NS = 500000, MIN_COPIES = 2, MAX_COPIES = 128 };
enum { MAX_PLAYS = 256, FLUSH_CACHES = 3 };
enum { REFERENCE_GPU = 8192, REFERENCE_CPU = 256 };

/* ---- the device ---- */

static int check(const struct measure *m, int status, struct err *err) {
    return status == DEVICE_OK ? 0 : engine_device_err(m->device, status, "measuring", err);
}

static int upload_arrays(const struct measure *m, struct err *err) {
    const struct device_table *table = m->device->table;
    int status =
        table->upload(device_of(m), m->regions[REGION_ARRAYS], m->host, ARRAYS * array_bytes(m));
    return check(m, status == DEVICE_OK ? table->finish(device_of(m)) : status, err);
}

/* Uniform between -1 and 1. */
static int randomise(const struct measure *m, enum region region, int64_t bytes, struct err *err) {
    struct call_random call = {.y = m->regions[region],
                               .key = hash_text("calibration"),
                               .n = bytes / m->element_bytes,
                               .spread = 1,
                               .dtype = m->device->dtype};
    return check(m, m->device->table->random(device_of(m), &call), err);
}

/* ---- opening ---- */

static void size_regions(struct measure *m) {
    const struct model *model = m->model;
    const struct calibration_bounds *bounds = &m->bounds;
    int64_t tokens = bounds->max_tokens, eb = m->element_bytes;
    int64_t widest = larger(
        larger(qkv_channels(model), 2LL * model->ffn),
        larger(2LL * model->shared_experts * model->shared_ffn, model_routed_experts(model)));
    int64_t pairs = tokens * model_most_active(model);
    int64_t kv_row = 2LL * model->kv_heads * model->head_dim;
    int64_t square = measure_reference_size(m) * measure_reference_size(m);
    int64_t logits = bounds->max_logit_rows * model->vocab;
    m->bytes[REGION_X] = eb * larger(tokens * widest, square);
    m->bytes[REGION_Y] =
        eb * larger(larger(larger(tokens * widest, logits), pairs * model->hidden), square);
    m->bytes[REGION_RING] =
        larger(m->flush_bytes, eb * larger(square, larger(tokens * larger(model->hidden, kv_row),
                                                          bounds->max_kv_rows * kv_row)));
    m->bytes[REGION_SCRATCH] =
        larger(larger(HEAD_SCRATCH_BYTES, 2 * tokens * model->kv_heads * (int64_t)sizeof(float)),
               pairs * model->expert_ffn * eb);
    m->bytes[REGION_ARRAYS] = ARRAYS * array_bytes(m);
    m->bytes[REGION_ANGLES] =
        MEASURE_MAX_ANGLES * (int64_t)model_rotary_dim(model) * (int64_t)sizeof(float);
    m->bytes[REGION_CHOICE] = (4 * pairs + model->experts + 1) * (int64_t)sizeof(int32_t);
}

static int fill_angles(const struct measure *m, struct err *err) {
    const struct device_table *table = m->device->table;
    void *host = NULL;
    int status = table->allocate_host(device_of(m), m->bytes[REGION_ANGLES], &host);
    if (status == DEVICE_OK) {
        rotation_table(&m->weights->constants.rotation, MEASURE_MAX_ANGLES,
                       (int32_t)model_rotary_dim(m->model), host);
        status =
            table->upload(device_of(m), m->regions[REGION_ANGLES], host, m->bytes[REGION_ANGLES]);
        int finished = table->finish(device_of(m));
        status = status == DEVICE_OK ? finished : status;
    }
    table->release_host(device_of(m), host);
    return check(m, status, err);
}

static int allocate(struct measure *m, struct err *err) {
    const struct device_table *table = m->device->table;
    int status = DEVICE_OK;
    for (int i = 0; status == DEVICE_OK && i < REGIONS; i++) {
        m->bytes[i] = align_up(m->bytes[i], MEASURE_ALIGN_BYTES);
        status = table->allocate(device_of(m), m->bytes[i], &m->regions[i]);
    }
    if (status == DEVICE_NO_MEMORY) {
        char needed[32];
        return err_world(err,
                         "the device has no room for the %s that measuring takes beside the "
                         "weights; a smaller --max-tokens takes less",
                         num_format_bytes(needed, sizeof needed, (double)measure_bytes(m)));
    }
    if (status == DEVICE_OK) {
        void *host = NULL;
        status = table->allocate_host(device_of(m), m->bytes[REGION_ARRAYS], &host);
        m->host = host;
    }
    if (status == DEVICE_OK) {
        memset(m->host, 0, (size_t)m->bytes[REGION_ARRAYS]);
        status = table->event_open(device_of(m), &m->from);
    }
    return check(m, status == DEVICE_OK ? table->event_open(device_of(m), &m->to) : status, err);
}

int measure_renew(struct measure *m, struct err *err) {
    int status = randomise(m, REGION_X, m->bytes[REGION_X], err);
    return status == 0 ? randomise(m, REGION_RING, m->bytes[REGION_RING], err) : status;
}

int measure_open(const struct engine_device *device, const struct weights *weights,
                 const struct calibration_bounds *bounds, struct measure **out, struct err *err) {
    struct measure *m = calloc(1, sizeof *m);
    ASSERT(m != NULL);
    m->device = device;
    m->weights = weights;
    m->model = weights->layout.model;
    m->bounds = *bounds;
    m->element_bytes = device->dtype == KERNEL_F32 ? F32_BYTES : BF16_BYTES;
    int64_t flush_bytes = FLUSH_CACHES * device->facts.l2_bytes;
    m->flush_bytes = weights->layout.bytes > flush_bytes ? flush_bytes : 0;
    size_regions(m);
    int status = allocate(m, err);
    status = status == 0 ? randomise(m, REGION_Y, m->bytes[REGION_Y], err) : status;
    status = status == 0 ? measure_renew(m, err) : status;
    status = status == 0 ? fill_angles(m, err) : status;
    if (status != 0) {
        measure_close(m);
        m = NULL;
    }
    *out = m;
    return status;
}

void measure_close(struct measure *m) {
    if (m == NULL) {
        return;
    }
    const struct device_table *table = m->device->table;
    for (int i = 0; i < REGIONS; i++) {
        table->release(device_of(m), m->regions[i]);
    }
    table->release_host(device_of(m), m->host);
    if (m->from != NULL) {
        table->event_close(device_of(m), m->from);
    }
    if (m->to != NULL) {
        table->event_close(device_of(m), m->to);
    }
    free(m);
}

int64_t measure_bytes(const struct measure *m) {
    int64_t bytes = 0;
    for (int i = 0; i < REGIONS; i++) {
        bytes += m->bytes[i];
    }
    return bytes;
}

/* ---- time ---- */

/* Plays of some copies of the point's operator. */
struct play {
    struct device_graph *recording; /* NULL: the calls themselves */
    int n_copies;
};

static int issue_copies(const struct measure *m, int n_copies) {
    int status = DEVICE_OK;
    for (int copy = 0; status == DEVICE_OK && copy < n_copies; copy++) {
        status = measure_issue(m, copy);
    }
    return status;
}

/* SwiGLU in place shrinks its gates: they are drawn anew before each play, so that no play meets
 * numbers too small for a model. */
static int renew_inputs(const struct measure *m, struct err *err) {
    const struct calibration_point *point = m->point;
    if (point->op != PROFILE_PASS || point->pass != PASS_SWIGLU) {
        return 0;
    }
    return randomise(m, REGION_X,
                     2 * point->sizes[POINT_PASS_CHANNELS] * m->n_tokens * m->element_bytes, err);
}

static int time_play(const struct measure *m, const struct play *play, double *ns,
                     struct err *err) {
    const struct device_table *table = m->device->table;
    struct device *device = device_of(m);
    int bad = renew_inputs(m, err);
    if (bad != 0) {
        return bad;
    }
    int status = measure_flush(m);
    status = status == DEVICE_OK ? table->event_record(device, m->from) : status;
    if (status == DEVICE_OK) {
        status = play->recording != NULL ? table->graph_launch(device, play->recording)
                                         : issue_copies(m, play->n_copies);
    }
    status = status == DEVICE_OK ? table->event_record(device, m->to) : status;
    status = status == DEVICE_OK ? table->event_wait(device, m->to) : status;
    status = status == DEVICE_OK ? table->event_elapsed(device, m->from, m->to, ns) : status;
    return check(m, status, err);
}

static int record(const struct measure *m, struct play *play, struct err *err) {
    const struct device_table *table = m->device->table;
    if (table->capture_begin == NULL) {
        return 0;
    }
    int status = table->capture_begin(device_of(m));
    if (status == DEVICE_OK) {
        int issued = issue_copies(m, play->n_copies);
        status = table->capture_end(device_of(m), &play->recording);
        status = issued != DEVICE_OK ? issued : status;
    }
    return check(m, status, err);
}

static int count_copies(const struct measure *m, double once_ns) {
    bool records = m->device->table->capture_begin != NULL;
    double copies = (records ? RECORDED_NS : ISSUED_NS) / (once_ns > 1 ? once_ns : 1);
    int least = records ? MIN_COPIES : 1;
    return copies < least ? least : copies > MAX_COPIES ? MAX_COPIES : (int)copies;
}

/* The prepared point: once for the device to choose its kernels, once to see how long it takes,
 * then in plays. */
static int time_point(const struct measure *m, double target_ns, double *us, struct err *err) {
    struct play play = {.n_copies = 1};
    double once_ns = 0, plays[MAX_PLAYS] = {0}, total_ns = 0;
    int n = 0;
    int status = time_play(m, &play, &once_ns, err);
    status = status == 0 ? time_play(m, &play, &once_ns, err) : status;
    if (status != 0) {
        return status;
    }
    play.n_copies = count_copies(m, once_ns);
    status = record(m, &play, err);
    while (status == 0 && n < MAX_PLAYS && (n == 0 || total_ns < target_ns)) {
        status = time_play(m, &play, &plays[n], err);
        total_ns += status == 0 ? plays[n++] : 0;
    }
    if (play.recording != NULL) {
        m->device->table->graph_close(device_of(m), play.recording);
    }
    *us = status == 0 ? 1e-3 * gsl_stats_median(plays, 1, (size_t)n) / play.n_copies : 0;
    return status;
}

static int prepare(struct measure *m, const struct calibration_point *point, struct err *err) {
    int status = measure_prepare(m, point) ? upload_arrays(m, err) : 0;
    bool reads_choice =
        point->op == PROFILE_MOE || (point->op == PROFILE_PASS && point->pass == PASS_MOE_COMBINE);
    return status == 0 && reads_choice ? check(m, measure_choose(m, 0), err) : status;
}

int measure_point(struct measure *m, const struct calibration_point *point, double target_ns,
                  double *us, struct err *err) {
    /* A profile's times are above 0; a part of a call may seem to take none. */
    static const double shortest_us = 1e-3;
    bool packs = point->op == PROFILE_PASS && point->pass == PASS_PACK;
    double without_us = 0;
    int status = 0;
    *us = 0;
    if (packs) {
        m->keeps_half = false;
        status = prepare(m, point, err);
        status = status == 0 ? time_point(m, target_ns, &without_us, err) : status;
    }
    m->keeps_half = packs;
    status = status == 0 ? prepare(m, point, err) : status;
    status = status == 0 ? time_point(m, target_ns, us, err) : status;
    *us -= without_us;
    *us = *us > shortest_us ? *us : shortest_us;
    return status;
}

int64_t measure_reference_size(const struct measure *m) {
    return m->device->facts.capability > 0 ? REFERENCE_GPU : REFERENCE_CPU;
}

int measure_reference(struct measure *m, double target_ns, double *us, struct err *err) {
    const struct device_table *table = m->device->table;
    int64_t size = measure_reference_size(m);
    struct call_linear call = {.x = m->regions[REGION_X],
                               .w = m->regions[REGION_RING],
                               .y = m->regions[REGION_Y],
                               .x_stride = size,
                               .y_stride = size,
                               .n_tokens = (int32_t)size,
                               .n_outputs = (int32_t)size,
                               .n_inputs = (int32_t)size,
                               .dtype = m->device->dtype};
    enum { AT_ONCE = 4 };
    double plays[MAX_PLAYS], total_ns = 0;
    int status = table->linear(device_of(m), &call), n = 0; /* chooses its kernel */
    while (status == DEVICE_OK && (n == 0 || total_ns < target_ns)) {
        double ns = 0;
        status = table->event_record(device_of(m), m->from);
        for (int i = 0; status == DEVICE_OK && i < AT_ONCE; i++) {
            status = table->linear(device_of(m), &call);
        }
        status = status == DEVICE_OK ? table->event_record(device_of(m), m->to) : status;
        status = status == DEVICE_OK ? table->event_wait(device_of(m), m->to) : status;
        status =
            status == DEVICE_OK ? table->event_elapsed(device_of(m), m->from, m->to, &ns) : status;
        plays[n % MAX_PLAYS] = ns / AT_ONCE;
        total_ns += ns > 1 ? ns : 1;
        n++;
    }
    *us = status == DEVICE_OK
              ? 1e-3 * gsl_stats_median(plays, 1, (size_t)(n < MAX_PLAYS ? n : MAX_PLAYS))
              : 0;
    return check(m, status, err);
}
