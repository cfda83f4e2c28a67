#include "engine/weights/quantiser.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/num.h"

enum { STRIP_ROWS = SCALE_GROUP };

/* Numbers of the largest strip; 0 where nothing is in fp8. */
static int64_t strip_numbers(const struct weight_layout *layout) {
    int64_t most = 0;
    for (int slot = 0; slot < WEIGHT_SLOT_COUNT; slot++) {
        const struct weight_matrices all = weight_matrices_of(layout, (enum weight_slot)slot);
        const int64_t numbers = all.n > 0 ? STRIP_ROWS * all.n_columns : 0;
        const bool counts = weight_is_fp8(layout, (enum weight_slot)slot);
        most = counts && numbers > most ? numbers : most;
    }
    return most;
}

int quantiser_open(struct quantiser *q, const struct weights *weights, struct err *err) {
    const struct engine_device *device = weights->device;
    const int64_t n = strip_numbers(&weights->layout);
    *q = (struct quantiser){.weights = weights};
    if (n == 0) {
        return 0;
    }
    q->scales = mem_unwritten((size_t)n, sizeof *q->scales);
    void *host = NULL;
    int status = device->table->allocate_host(device->device, n * F32_BYTES, &q->buffer);
    status = status == DEVICE_OK
                 ? device->table->allocate_host(device->device, n * F32_BYTES, &host)
                 : status;
    q->values = host;
    status = status == DEVICE_OK ? device->table->allocate(device->device, n * F32_BYTES, &q->drawn)
                                 : status;
    return engine_device_err(device, status, "making room to quantise weights", err);
}

void quantiser_close(struct quantiser *q) {
    if (q->weights == NULL) {
        return;
    }
    const struct engine_device *device = q->weights->device;
    device->table->release(device->device, q->drawn);
    device->table->release_host(device->device, q->buffer);
    device->table->release_host(device->device, q->values);
    free(q->scales);
    *q = (struct quantiser){.weights = NULL};
}

/* Rows [first, first + n) of one matrix of a slot. */
struct strip {
    struct weight_matrices all;
    int64_t matrix, first, n;
    int64_t group, wide; /* columns that share a scale, and scales of a row */
};

/* n rows of a part, which are the strip's from row `at` on: numbers, or codes where the checkpoint
 * has scales of them. */
static int take_rows(struct quantiser *q, const struct part *part, int64_t first, int64_t n,
                     int64_t at, const struct strip *strip, const struct quantiser_source *source,
                     struct err *err) {
    const bool shares = strip->all.type == NUMBER_FP8;
    const bool had_scales = q->scales[0] >= 0;
    float *scales = q->scales + (shares ? 0 : at);
    if (source->scales != NULL) {
        const int status = source->scales(source->context, part, first, n, strip->all.type, scales);
        if (status != 0) {
            return status;
        }
        if (shares && at > 0 && (had_scales || scales[0] >= 0)) {
            return err_world(err,
                             "the checkpoint's scales are one for each 128 x 128, which the "
                             "matrices of '%s' do not fill: leave storage.weights out, and they "
                             "are expanded",
                             weight_slot_names[part->slot]);
        }
        if (scales[0] >= 0) {
            return source->codes(source->context, part, first, n,
                                 (uint8_t *)q->buffer + at * part->n_columns);
        }
    }
    float *values = source->draws ? q->drawn : q->values;
    return source->rows(source->context, part, first, n, values + at * part->n_columns);
}

/* The numbers of a strip, or its codes and scales: the first is negative where a checkpoint has
 * none. */
static int take_strip(struct quantiser *q, const struct part *slot, const struct strip *strip,
                      const struct quantiser_source *source, struct err *err) {
    const struct weight_layout *layout = &q->weights->layout;
    const int at_once = weight_parts_at_once(slot->slot);
    int64_t before = 0; /* rows of the parts that came so far */
    int status = 0;
    q->scales[0] = -1;
    for (int i = 0; status == 0 && i < at_once; i++) {
        struct part part = *slot;
        part.index = (int)strip->matrix * at_once + i;
        weight_part_shape(layout->model, part.slot, part.index, &part.n_rows, &part.n_columns);
        weight_place_part(layout, &part);
        const int64_t from = strip->first > before ? strip->first - before : 0;
        int64_t to = strip->first + strip->n - before;
        to = to < part.n_rows ? to : part.n_rows;
        if (from < to) {
            const int64_t at = before + from - strip->first; /* in the strip */
            status = take_rows(q, &part, from, to - from, at, strip, source, err);
        }
        before += part.n_rows;
    }
    return status;
}

static int put(const struct quantiser *q, int64_t offset_bytes, int64_t bytes, struct err *err) {
    const struct engine_device *device = q->weights->device;
    int status =
        device->table->upload(device->device, q->weights->block + offset_bytes, q->buffer, bytes);
    status = status == DEVICE_OK ? device->table->finish(device->device) : status;
    return engine_device_err(device, status, "uploading weights", err);
}

/* Where in the block a strip's codes lie, and its scales. */
struct strip_place {
    int64_t codes, scales, n_scales;
};

static struct strip_place place_of(const struct part *slot, const struct strip *strip) {
    const struct weight_matrices *all = &strip->all;
    const int64_t rows = number_scale_rows(all->type);
    const int64_t scales_before = strip->matrix * ceil_div(all->n_rows, rows) + strip->first / rows;
    return (struct strip_place){
        .codes = slot->offset_bytes + (strip->matrix * all->n_rows + strip->first) * all->n_columns,
        .scales = slot->offset_bytes + all->n * all->n_rows * all->n_columns +
                  scales_before * strip->wide * F32_BYTES,
        .n_scales = ceil_div(strip->n, rows) * strip->wide};
}

static int put_strip(struct quantiser *q, const struct part *slot, const struct strip *strip,
                     struct err *err) {
    const struct strip_place place = place_of(slot, strip);
    int status = put(q, place.codes, strip->n * strip->all.n_columns, err);
    if (status != 0) {
        return status;
    }
    memcpy(q->buffer, q->scales, (size_t)place.n_scales * sizeof *q->scales);
    return put(q, place.scales, place.n_scales * F32_BYTES, err);
}

/* On the device, where numbers that were read on the host are uploaded first. */
static int quantise_strip(struct quantiser *q, const struct part *slot, const struct strip *strip,
                          bool is_drawn, struct err *err) {
    const struct engine_device *device = q->weights->device;
    const struct device_table *table = device->table;
    const struct strip_place place = place_of(slot, strip);
    const struct call_quantise_weights call = {
        .x = q->drawn,
        .codes = q->weights->block + place.codes,
        .scales = (float *)(void *)(q->weights->block + place.scales),
        .n_rows = (int32_t)strip->n,
        .n_channels = (int32_t)strip->all.n_columns,
        .w_rows = (int32_t)number_scale_rows(strip->all.type),
        .w_columns = (int32_t)strip->group,
        .dtype = KERNEL_F32};
    int status = is_drawn ? DEVICE_OK
                          : table->upload(device->device, q->drawn, q->values,
                                          strip->n * strip->all.n_columns * F32_BYTES);
    status = status == DEVICE_OK ? table->quantise_weights(device->device, &call) : status;
    status = status == DEVICE_OK && !is_drawn ? table->finish(device->device) : status;
    return engine_device_err(device, status, "quantising weights", err);
}

int quantiser_fill(struct quantiser *q, const struct part *first,
                   const struct quantiser_source *source, struct err *err) {
    struct strip strip = {.all = weight_matrices_of(&q->weights->layout, first->slot)};
    strip.group = number_scale_columns(strip.all.type, strip.all.n_columns);
    strip.wide = ceil_div(strip.all.n_columns, strip.group);
    int status = 0;
    for (; status == 0 && strip.matrix < strip.all.n; strip.matrix++) {
        for (strip.first = 0; status == 0 && strip.first < strip.all.n_rows;
             strip.first += STRIP_ROWS) {
            const int64_t left = strip.all.n_rows - strip.first;
            strip.n = left < STRIP_ROWS ? left : STRIP_ROWS;
            status = take_strip(q, first, &strip, source, err);
            if (status == 0) {
                status = q->scales[0] < 0 ? quantise_strip(q, first, &strip, source->draws, err)
                                          : put_strip(q, first, &strip, err);
            }
        }
    }
    return status;
}
