#include "engine/op/trial.h"

#include <stdlib.h>

#include "sim/base/mem.h"
#include "sim/base/num.h"

void trial_open(struct trial *trial, const struct model *model,
                const struct calibration_bounds *bounds) {
    const size_t n = (size_t)bounds->max_tokens;
    *trial = (struct trial){
        .model = model,
        .page_rows = bounds->page_rows,
        .max_requests = bounds->max_tokens,
        .max_tokens = bounds->max_tokens,
        .is_exact = model->mask != MASK_BIDIRECTIONAL,
        .spans = mem_zeroed(n, sizeof *trial->spans),
        .span_list = mem_zeroed(n, sizeof *trial->span_list),
        .parts = mem_zeroed(n, sizeof *trial->parts),
        .positions = mem_zeroed(n, sizeof *trial->positions),
        .extents = mem_zeroed(n, sizeof *trial->extents),
        .contexts = mem_zeroed(n, sizeof *trial->contexts),
        .tokens = mem_zeroed(n, sizeof *trial->tokens),
        .confidences = mem_zeroed(n, sizeof *trial->confidences),
    };
    for (size_t i = 0; i < n; i++) {
        trial->positions[i] = (int32_t)(i % TRIAL_MAX_POSITIONS);
    }
    if (trial->is_exact) {
        trial->max_pages = (bounds->max_kv_rows + bounds->max_tokens) / bounds->page_rows + 1;
        trial->pages = mem_zeroed((size_t)trial->max_pages, sizeof *trial->pages);
    }
}

void trial_close(struct trial *trial) {
    free(trial->spans);
    free(trial->span_list);
    free(trial->parts);
    free(trial->positions);
    free(trial->extents);
    free(trial->contexts);
    free(trial->tokens);
    free(trial->confidences);
    free(trial->pages);
    free(trial->words);
    *trial = (struct trial){0};
}

void trial_make(struct trial *trial, const struct calibration_point *point, bool keeps_half) {
    shape_clear(&trial->shape);
    trial->shape.spans = trial->span_list;
    trial->n_tokens = trial->n_pages = trial->store_elements = 0;
    trial->n_words = 0;
    trial->has_tokens = trial->has_candidates = false;
    trial->keeps_half = keeps_half;
    if (point->fill != NULL) {
        point->fill(trial, point);
    } else {
        trial_fill_rows(trial, point);
    }
}

struct step_part *trial_add(struct trial *trial, struct span span) {
    const uint32_t i = trial->shape.n_spans++;
    if (span.first_queries == 0) {
        span.first_queries = span.queries;
    }
    ASSERT(i < trial->max_requests && trial->n_tokens + span.first_queries <= trial->max_tokens);
    span.exact = trial->is_exact;
    trial->spans[i] = span;
    trial->span_list[i] = &trial->spans[i];
    trial->parts[i] = (struct step_part){
        .canvas = trial->n_tokens,
        .positions = trial->positions,
        .kv_pages = {.extent = trial->extents + trial->n_tokens, .reads_only = true},
        .drawing = {.top_p = 1, .temperature = 1, .draws = true},
        .draw_key = trial->shape.n_spans,
    };
    shape_add(trial->shape.sym, &span, 1);
    trial->n_tokens += span.first_queries;
    return &trial->parts[i];
}

void trial_give_store(struct trial *trial, struct step_part *part, int64_t n_rows) {
    part->kv = (struct kv_store){.first = trial->store_elements, .n_rows = (int32_t)n_rows};
    trial->store_elements += packed_layer_elements(trial->packed, (int32_t)n_rows);
}

static int64_t pages_of(const struct trial *trial, uint32_t i) {
    const struct span *span = &trial->spans[i];
    return ceil_div((int64_t)span->context + span->queries, trial->page_rows);
}

void trial_give_pages(struct trial *trial) {
    int32_t *pages = trial->pages, next = 0;
    int64_t most = 0;
    for (uint32_t i = 0; i < trial->shape.n_spans; i++) {
        const int64_t n = pages_of(trial, i);
        ASSERT(trial->n_pages + n <= trial->max_pages);
        trial->parts[i].kv_pages.pages = pages + trial->n_pages;
        trial->parts[i].kv_pages.n_pages = (int32_t)n;
        trial->n_pages += n;
        most = n > most ? n : most;
    }
    for (int64_t page = 0; page < most; page++) {
        for (uint32_t i = 0; i < trial->shape.n_spans; i++) {
            const struct kv_pages *kv = &trial->parts[i].kv_pages;
            if (page < kv->n_pages) {
                pages[kv->pages - pages + page] = next++;
            }
        }
    }
}

double trial_share(int64_t n, int64_t r) {
    const int64_t stride = n % 5 == 0 ? 7 : 5; /* so that neighbours differ */
    const double at = ((double)(r * stride % n) + 0.5) / (double)n;
    return n == 1 ? 1 : 0.6 + 0.8 * at;
}

void trial_spread(struct trial *trial, int64_t n, int64_t mean) {
    int64_t left = n * mean;
    for (int64_t r = 0; r < n; r++) {
        int64_t rows = (int64_t)((double)mean * trial_share(n, r));
        rows = rows < left ? rows : left;
        trial->contexts[r] = (int32_t)(rows > 1 ? rows : 1);
        left -= trial->contexts[r];
    }
    trial->contexts[0] += (int32_t)(left > 0 ? left : 0);
}

void trial_fill_rows(struct trial *trial, const struct calibration_point *point) {
    for (int64_t left = point->n_rows; left > 0; left -= TRIAL_MAX_POSITIONS) {
        uint32_t n = (uint32_t)(left < TRIAL_MAX_POSITIONS ? left : TRIAL_MAX_POSITIONS);
        trial_add(trial, (struct span){.phase = PHASE_REFRESH, .queries = n, .logit_rows = n});
    }
}
