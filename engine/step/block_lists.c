#include "engine/step/block_lists.h"

#include <string.h>

#include "engine/step/packed.h"
#include "sim/base/num.h"

enum { N_PLACES = 3 };

void block_lists_lay_out(struct block_lists *lists, int32_t n_requests, int32_t max_pages,
                         int32_t max_block, int32_t n_tokens) {
    const int64_t b = n_requests, flags = b * max_block;
    const int64_t bytes[BLOCK_ARRAY_COUNT] = {
        [BLOCK_CANVAS_START] = b * (int64_t)sizeof(int64_t),
        [BLOCK_BEGIN] = b * (int64_t)sizeof(int32_t),
        [BLOCK_LENGTH] = b * (int64_t)sizeof(int32_t),
        [BLOCK_FRONTIER] = b * (int64_t)sizeof(int32_t),
        [BLOCK_TAKE] = b * (int64_t)sizeof(int32_t),
        [BLOCK_TAKES] = BLOCK_STEPS * b * (int64_t)sizeof(int32_t),
        [BLOCK_MEAN] = b * (int64_t)sizeof(float),
        [BLOCK_SUM] = b * (int64_t)sizeof(int32_t),
        [BLOCK_COUNTED] = b * (int64_t)sizeof(int32_t),
        [BLOCK_THRESHOLD] = b * (int64_t)sizeof(float),
        [BLOCK_NUMBERS] = BLOCK_NUMBER_COUNT * (int64_t)sizeof(int32_t),
        [BLOCK_PAGES] = b * max_pages * (int64_t)sizeof(int32_t),
        [BLOCK_LOGITS] = b,
        [BLOCK_ENDS] = b,
        [BLOCK_DECODED] = flags,
        [BLOCK_FINAL] = flags,
        [BLOCK_PLACES] = N_PLACES * (int64_t)sizeof(int32_t),
        [BLOCK_KEEP] = n_tokens,
        [BLOCK_LOG] = BLOCK_STEPS * flags,
    };
    *lists = (struct block_lists){.n_requests = n_requests,
                                  .max_pages = max_pages,
                                  .max_block = max_block,
                                  .n_tokens = n_tokens};
    for (int array = 0; array < BLOCK_ARRAY_COUNT; array++) {
        lists->upload_bytes = array == BLOCK_PLACES ? lists->bytes : lists->upload_bytes;
        lists->offset_bytes[array] = lists->bytes;
        lists->bytes += align_up(bytes[array], PACKED_ALIGN_BYTES);
    }
}

static int32_t *narrow(const struct block_lists *lists, unsigned char *out,
                       enum block_array array) {
    return (int32_t *)(void *)(out + lists->offset_bytes[array]);
}

void block_lists_fill(const struct block_lists *lists, const struct block_member *members,
                      int32_t n, int32_t most_steps, unsigned char *out) {
    int64_t *canvas_start = (int64_t *)(void *)(out + lists->offset_bytes[BLOCK_CANVAS_START]);
    float *mean = (float *)(void *)(out + lists->offset_bytes[BLOCK_MEAN]);
    float *threshold = (float *)(void *)(out + lists->offset_bytes[BLOCK_THRESHOLD]);
    memset(out, 0, (size_t)lists->upload_bytes);
    narrow(lists, out, BLOCK_NUMBERS)[NUMBER_MOST] = most_steps;
    narrow(lists, out, BLOCK_NUMBERS)[NUMBER_AGAIN] = 1;
    for (int64_t i = 0; i < n; i++) {
        const struct block_member *member = &members[i];
        uint8_t *decoded = out + lists->offset_bytes[BLOCK_DECODED] + i * lists->max_block;
        uint8_t *final = out + lists->offset_bytes[BLOCK_FINAL] + i * lists->max_block;
        canvas_start[i] = member->canvas;
        mean[i] = member->mean;
        threshold[i] = member->threshold;
        narrow(lists, out, BLOCK_BEGIN)[i] = member->begin;
        narrow(lists, out, BLOCK_LENGTH)[i] = member->length;
        narrow(lists, out, BLOCK_FRONTIER)[i] = member->frontier;
        narrow(lists, out, BLOCK_SUM)[i] = member->sum;
        narrow(lists, out, BLOCK_COUNTED)[i] = member->steps;
        narrow(lists, out, BLOCK_TAKE)[i] = member->take[0];
        for (int64_t s = 0; s < most_steps; s++) {
            narrow(lists, out, BLOCK_TAKES)[s * lists->n_requests + i] = member->take[s];
        }
        memcpy(narrow(lists, out, BLOCK_PAGES) + i * lists->max_pages, member->pages,
               (size_t)member->n_pages * sizeof *member->pages);
        out[lists->offset_bytes[BLOCK_LOGITS] + i] = member->logits;
        out[lists->offset_bytes[BLOCK_ENDS] + i] = member->ends_early;
        for (int32_t p = 0; p < member->length; p++) {
            decoded[p] = !member->masked[p];
            final[p] = !member->uncached[p];
        }
    }
}
